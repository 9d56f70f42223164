//! Single objects: written, read, replaced, removed, and names that are none.

use super::{May, bytes, fails, names, ok, same, upload};
use crate::{Kind, Put, Store};

pub(super) fn check(make: &impl Fn() -> Box<dyn Store>, may: May) {
    round_trips(&*make());
    ranges(&*make());
    missing(&*make());
    create(&*make());
    if may.remove {
        replace(&*make());
        delete(&*make());
    } else {
        no_removal(&*make());
    }
    bad_names(&*make());
}

/// An account that may only add is told so, and nothing changes.
fn no_removal(store: &dyn Store) {
    ok(store.put("d/a", b"first", Put::Replace));
    fails(Kind::Refused, store.put("d/a", b"second", Put::Replace));
    fails(Kind::Refused, store.delete("d/a"));
    same(&ok(store.get("d/a")), b"first", "an object that may not be changed");
    ok(store.sync());
}

fn round_trips(store: &dyn Store) {
    assert!(!store.location().is_empty());
    for (seed, len) in [0, 1, 2, 511, 4095, 4096, 4097, 100_000, 3 << 20, (3 << 20) + 17].into_iter().enumerate() {
        let (name, content) = (format!("round/trip-{len}"), bytes(seed as u64, len));
        ok(store.put(&name, &content, Put::Create));
        assert_eq!(ok(store.len(&name)), Some(len as u64), "{name}");
        same(&ok(store.get(&name)), &content, &name);
        let mut whole = vec![0; len];
        ok(store.read_at(&name, 0, &mut whole));
        same(&whole, &content, &name);
    }
    ok(store.sync());
    ok(store.sync());
    assert_eq!(ok(store.len("round")), None, "a folder is no object");
    fails(Kind::Missing, store.get("round"));
    ok(store.delete("round"));
    assert_eq!(ok(store.len("round/trip-1")), Some(1), "and deleting it leaves the objects below");
}

fn ranges(store: &dyn Store) {
    let content = bytes(1, 10_000);
    ok(store.put("a", &content, Put::Create));
    for (offset, len) in [(0, 1), (0, 10_000), (1, 9_998), (4095, 2), (4096, 4096), (9_999, 1), (0, 0), (10_000, 0)] {
        let mut buf = vec![0; len];
        ok(store.read_at("a", offset as u64, &mut buf));
        same(&buf, &content[offset..offset + len], &format!("range of {len} at {offset}"));
    }
    for (offset, len) in [(0, 10_001), (9_999, 2), (10_000, 1), (10_001, 0), (1 << 40, 1), (u64::MAX, 1), (u64::MAX, 0)]
    {
        let error = fails(Kind::Truncated, store.read_at("a", offset, &mut vec![0; len]));
        let message = error.to_string();
        let wanted = offset.saturating_add(len as u64).to_string();
        assert!(message.contains("10000") && message.contains(&wanted), "lengths are missing: {message}");
    }
    ok(store.put("empty", b"", Put::Create));
    ok(store.read_at("empty", 0, &mut []));
    fails(Kind::Truncated, store.read_at("empty", 0, &mut [0]));
}

fn missing(store: &dyn Store) {
    for name in ["none", "no/such/object"] {
        assert_eq!(ok(store.len(name)), None);
        let error = fails(Kind::Missing, store.get(name));
        assert!(error.to_string().contains(name), "{error}");
        fails(Kind::Missing, store.read_at(name, 0, &mut [0]));
        fails(Kind::Missing, store.read_at(name, 0, &mut []));
        ok(store.delete(name));
    }
    assert!(names(store, "none").is_empty());
    assert!(names(store, "").is_empty());
}

fn create(store: &dyn Store) {
    ok(store.put("a", b"first", Put::Create));
    let error = fails(Kind::Exists, store.put("a", b"second", Put::Create));
    assert!(error.to_string().contains("'a'"), "{error}");
    same(&ok(store.get("a")), b"first", "an object after a second creation");
}

fn replace(store: &dyn Store) {
    ok(store.put("a", b"first", Put::Create));
    let mut buf = [0; 3];
    ok(store.read_at("a", 0, &mut buf));
    ok(store.put("a", b"other", Put::Replace));
    same(&ok(store.get("a")), b"other", "a replaced object");
    ok(store.read_at("a", 0, &mut buf));
    same(&buf, b"oth", "a range of a replaced object");
    ok(store.put("a", b"", Put::Replace));
    assert_eq!(ok(store.len("a")), Some(0));
    fails(Kind::Truncated, store.read_at("a", 0, &mut buf));
    ok(store.put("new", b"1", Put::Replace));
    same(&ok(store.get("new")), b"1", "an object that replaced nothing");
    assert_eq!(names(store, ""), ["a", "new"]);
}

fn delete(store: &dyn Store) {
    ok(store.put("d/a", b"1", Put::Create));
    ok(store.put("d/b", b"2", Put::Create));
    ok(store.read_at("d/a", 0, &mut [0]));
    ok(store.delete("d/a"));
    assert_eq!(ok(store.len("d/a")), None);
    fails(Kind::Missing, store.get("d/a"));
    fails(Kind::Missing, store.read_at("d/a", 0, &mut [0]));
    ok(store.delete("d/a"));
    assert_eq!(names(store, ""), ["d/b"]);
    ok(store.put("d/a", b"new", Put::Create));
    same(&ok(store.get("d/a")), b"new", "an object made again");
    ok(store.delete("d/a"));
    ok(upload(store, "d/a", b"up", 2, 2));
    same(&ok(store.get("d/a")), b"up", "an object uploaded again");
    ok(store.sync());
}

fn bad_names(store: &dyn Store) {
    let long = "a".repeat(crate::name::SEGMENT_BYTES_MAX + 1);
    let bad = [
        "",
        "/",
        "/x",
        "x/",
        "x//y",
        ".",
        "..",
        "../x",
        "x/..",
        "x/../../y",
        ".x",
        "x/.y",
        "x y",
        "x\0y",
        "x\ny",
        "x\\y",
        "é",
        "tmp",
        "tmp/x",
        &long,
    ];
    for name in bad {
        fails(Kind::Refused, store.put(name, b"1", Put::Create));
        fails(Kind::Refused, store.put(name, b"1", Put::Replace));
        fails(Kind::Refused, store.get(name));
        fails(Kind::Refused, store.len(name));
        fails(Kind::Refused, store.read_at(name, 0, &mut [0]));
        fails(Kind::Refused, store.delete(name));
        fails(Kind::Refused, store.upload(name, 0));
        if !name.is_empty() {
            fails(Kind::Refused, store.list(name, &mut |_| ()));
        }
    }
    assert!(names(store, "").is_empty(), "a refused name left something behind");
}
