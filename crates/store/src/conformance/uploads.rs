//! Uploads: any size in any steps, several at once, finished or dropped.

use std::thread;

use super::{May, bytes, fails, names, ok, same, upload};
use crate::{Cleared, Kind, Put, Store};

const MIB: usize = 1 << 20;

pub(super) fn check(make: &impl Fn() -> Box<dyn Store>, may: May) {
    sizes_and_steps(&*make());
    hints(&*make());
    if may.hide {
        dropped(&*make());
    }
    never_replaces(&*make());
    interleaved(&*make());
    concurrent(&*make());
    not_cleared(&*make());
}

/// What somebody is writing is no leftover.
fn not_cleared(store: &dyn Store) {
    let mut upload = ok(store.upload("up/living", 0));
    // More than any store holds back until all of it is there.
    ok(upload.write(&bytes(4, 2 * MIB)));
    assert_eq!(ok(store.clear_unfinished()), Cleared::default(), "something that is being written was cleared away");
    ok(upload.write(b"34"));
    ok(upload.finish());
    same(
        &ok(store.get("up/living")),
        &[&bytes(4, 2 * MIB)[..], b"34"].concat(),
        "an object that was being written while leftovers were cleared",
    );
}

fn sizes_and_steps(store: &dyn Store) {
    let content = bytes(1, 9 * MIB + 5);
    let all = content.len();
    for (len, step) in [
        (0, 1),
        (1, 1),
        (4095, 7),
        (4096, 4096),
        (4097, 4096),
        (MIB, 4097),
        (2 * MIB, 2 * MIB),
        (4 * MIB - 1, 300_007),
        (4 * MIB, 65_536),
        (4 * MIB + 1, 4 * MIB),
        (all, all),
        (all, 262_144),
        (all, 3 * MIB + 1),
    ] {
        let name = format!("up/{len}-{step}");
        ok(upload(store, &name, &content[..len], len as u64, step));
        assert_eq!(ok(store.len(&name)), Some(len as u64), "{name}");
        same(&ok(store.get(&name)), &content[..len], &name);
    }
    let mut upload = ok(store.upload("up/nothing-between", 0));
    ok(upload.write(b""));
    ok(upload.write(b"1"));
    ok(upload.write(b""));
    ok(upload.finish());
    same(&ok(store.get("up/nothing-between")), b"1", "an upload with empty writes");
    ok(store.sync());
}

/// A wrong hint changes nothing.
fn hints(store: &dyn Store) {
    for len in [0, MIB, MIB + 3] {
        let content = bytes(2, len);
        for hint in [0, 1, len as u64 / 3 + 2, len as u64 + 3, 5 * MIB as u64, u64::MAX] {
            let name = format!("hint/{len}-{hint}");
            ok(upload(store, &name, &content, hint, 100_000));
            assert_eq!(ok(store.len(&name)), Some(len as u64), "{name}");
            same(&ok(store.get(&name)), &content, &name);
        }
    }
}

fn dropped(store: &dyn Store) {
    let content = bytes(3, 5 * MIB);
    for len in [0, 1, 5000, content.len()] {
        let mut upload = ok(store.upload("dropped", content.len() as u64));
        ok(upload.write(&content[..len]));
        assert_eq!(ok(store.len("dropped")), None, "an unfinished upload shows");
        fails(Kind::Missing, store.get("dropped"));
        drop(upload);
        assert_eq!(ok(store.len("dropped")), None, "a dropped upload shows");
        assert!(names(store, "").is_empty());
    }
    // Many, so that whatever an upload holds would run out if it were kept.
    for _ in 0..50 {
        let mut upload = ok(store.upload("dropped", 0));
        ok(upload.write(&content[..2 * MIB]));
    }
    ok(store.sync());
    ok(upload(store, "dropped", b"now", 3, 3));
    same(&ok(store.get("dropped")), b"now", "an upload after dropped ones");
}

fn never_replaces(store: &dyn Store) {
    ok(store.put("a", b"first", Put::Create));
    fails(Kind::Exists, upload(store, "a", b"second", 6, 6));
    same(&ok(store.get("a")), b"first", "an object after an upload to its name");
    ok(upload(store, "b", b"first", 5, 5));
    fails(Kind::Exists, store.put("b", b"second", Put::Create));
    same(&ok(store.get("b")), b"first", "an upload after a creation of its name");
    assert_eq!(names(store, ""), ["a", "b"]);
}

/// More uploads under way in one thread than a store may have buffers, in steps of different sizes.
fn interleaved(store: &dyn Store) {
    const UPLOADS: usize = 8;
    let contents: Vec<Vec<u8>> = (0..UPLOADS).map(|i| bytes(10 + i as u64, 3 * MIB + 1000 * i)).collect();
    let mut under_way: Vec<_> = contents
        .iter()
        .enumerate()
        .map(|(i, content)| (ok(store.upload(&format!("inter/{i}"), content.len() as u64)), content.as_slice()))
        .collect();
    let mut step = 1;
    while under_way.iter().any(|(_, rest)| !rest.is_empty()) {
        for (upload, rest) in &mut under_way {
            let (now, later) = rest.split_at(rest.len().min(step));
            ok(upload.write(now));
            *rest = later;
            step = (step * 7 + 1) % 200_003;
        }
    }
    for (upload, _) in under_way {
        ok(upload.finish());
    }
    for (i, content) in contents.iter().enumerate() {
        same(&ok(store.get(&format!("inter/{i}"))), content, &format!("interleaved upload {i}"));
    }
}

fn concurrent(store: &dyn Store) {
    thread::scope(|scope| {
        for worker in 0..6 {
            scope.spawn(move || {
                for round in 0..3 {
                    let content = bytes(worker * 10 + round, 2 * MIB + worker as usize * 4097);
                    let name = format!("con/{worker}/{round}");
                    ok(upload(store, &name, &content, content.len() as u64, 77_777));
                    same(&ok(store.get(&name)), &content, &name);
                    ok(store.sync());
                }
            });
        }
    });
    assert_eq!(names(store, "con").len(), 18);
}
