//! Listings: every object once, with its length, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{May, fails, names, ok, upload};
use crate::{Kind, Look, Put, Store};

/// How many objects the large listing has: more than a page of any service.
pub(super) const OBJECTS: usize = 5000;
/// How many are put while two folders are listed: some pieces of a listing.
const PUT_MEANWHILE: usize = 300;

pub(super) fn check(make: &impl Fn() -> Box<dyn Store>, may: May, objects: usize) {
    prefixes(&*make(), may);
    many(&*make(), objects);
    calls_back(&*make());
    in_order(&*make());
    behind_a_put(&*make());
}

fn prefixes(store: &dyn Store, may: May) {
    let all = ["config", "packs/1f/1f00", "packs/1f/1f01", "packs/20/2000", "packs-2/x", "packs2/x", "packs.x"];
    for name in all {
        ok(store.put(name, name.as_bytes(), Put::Create));
    }
    // Unfinished ones don't show.
    let upload = may.hide.then(|| ok(store.upload("packs/1f/1f02", 100)));
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    assert_eq!(names(store, ""), sorted);
    assert_eq!(names(store, "packs"), ["packs/1f/1f00", "packs/1f/1f01", "packs/20/2000"]);
    assert_eq!(names(store, "packs/1f"), ["packs/1f/1f00", "packs/1f/1f01"]);
    assert_eq!(names(store, "packs2"), ["packs2/x"]);
    for none in ["pack", "packs/1", "packs/21", "none"] {
        assert!(names(store, none).is_empty(), "{none}");
    }
    drop(upload);
}

fn many(store: &dyn Store, objects: usize) {
    let name = |i: usize| format!("many/{:02x}/{}{i:05}", i % 37, "x".repeat(i % 50));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= objects {
                        break;
                    }
                    let content = vec![0; i % 13];
                    if i.is_multiple_of(10) {
                        ok(store.put(&name(i), &content, Put::Create));
                    } else {
                        ok(upload(store, &name(i), &content, 0, 100));
                    }
                }
            });
        }
    });
    ok(store.sync());
    let expected: BTreeMap<String, u64> = (0..objects).map(|i| (name(i), (i % 13) as u64)).collect();
    let mut found = BTreeMap::new();
    ok(store.list("many", &mut |listed| {
        let again = found.insert(listed.name.clone(), listed.len);
        assert_eq!(again, None, "listed twice: {}", listed.name);
    }));
    assert_eq!(found.len(), objects);
    assert!(found == expected, "names or lengths differ");
}

/// A listing is often the start of reading what it lists.
fn calls_back(store: &dyn Store) {
    for name in ["a", "b/c"] {
        ok(store.put(name, name.as_bytes(), Put::Create));
    }
    let mut read = Vec::new();
    ok(store.list("", &mut |listed| read.push(ok(store.get(&listed.name)))));
    read.sort_unstable();
    assert_eq!(read, [b"a".to_vec(), b"b/c".to_vec()]);
}

/// Whoever puts something into the second folder first, and then into the first, is never seen to have done only the
/// latter.
fn in_order(store: &dyn Store) {
    let look = |first: &str, second: &str| {
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        ok(store.list_in_order(&[first, second], &mut |at, listed| {
            let name = listed.name.rsplit('/').next().unwrap_or_default().to_owned();
            assert!(seen[at].insert(name), "listed twice: {}", listed.name);
        }));
        let [first, second] = seen;
        assert!(first.is_subset(&second), "the second folder was seen before the first");
        first.len()
    };
    // Short ones and long ones; those that are there, and those that come meanwhile.
    for (round, objects) in [PUT_MEANWHILE / 10, PUT_MEANWHILE / 10, PUT_MEANWHILE].into_iter().enumerate() {
        let (first, second) = (format!("{round}/first"), format!("{round}/second"));
        let put = |i: usize| {
            ok(store.put(&format!("{second}/{i}"), b"2", Put::Create));
            ok(store.put(&format!("{first}/{i}"), b"1", Put::Create));
        };
        if round > 0 {
            put(0);
        }
        thread::scope(|scope| {
            let putting = scope.spawn(|| (usize::from(round > 0)..objects).for_each(put));
            while !putting.is_finished() {
                look(&first, &second);
            }
        });
        assert_eq!(look(&first, &second), objects);
    }
    let mut names = Vec::new();
    ok(store.list_in_order(&["0/first", "none", "0"], &mut |at, listed| names.push((at, listed.name))));
    let of = |place| names.iter().filter(|(at, _)| *at == place).count();
    assert_eq!((of(0), of(1), of(2)), (PUT_MEANWHILE / 10, 0, PUT_MEANWHILE / 5));
    ok(store.list_in_order(&[], &mut |_, _| unreachable!("nothing was asked for")));
}

/// Whatever is looked at behind a put was so once that was done: what was there before is seen, what comes later is
/// seen by who looks again, and of several folders each is seen after the one before it.
fn behind_a_put(store: &dyn Store) {
    let (first, second, done) = ("behind/first", "behind/second", AtomicUsize::new(0));
    thread::scope(|scope| {
        let putting = scope.spawn(|| {
            for i in 0..PUT_MEANWHILE / 10 {
                ok(store.put(&format!("{second}/{i}"), b"2", Put::Create));
                ok(store.put(&format!("{first}/{i}"), b"1", Put::Create));
                done.store(i + 1, Ordering::SeqCst);
            }
        });
        let mut round = 0;
        while !putting.is_finished() || round == 0 {
            let before = done.load(Ordering::SeqCst);
            let looks = [Look::Empty("none"), Look::Listing(first), Look::Listing(second)];
            ok(store.put_and_look(&format!("looks/{round}"), b"", &looks));
            let (ones, twos) = (names(store, first).len(), names(store, second).len());
            assert!(before <= ones && ones <= twos, "of {before} and more {ones} and {twos} were seen");
            round += 1;
        }
    });
    let own = format!("{first}/own");
    let looks =
        [Look::Empty(second), Look::Listing(first), Look::Length(&own), Look::Length("none/x"), Look::Listing("none")];
    ok(store.put_and_look(&own, b"own", &looks));
    assert_eq!((ok(store.len(&own)), ok(store.len("none/x"))), (Some(3), None));
    assert_eq!((ok(store.get(&own)), names(store, first).len()), (b"own".to_vec(), PUT_MEANWHILE / 10 + 1));
    assert_eq!(names(store, second).len(), PUT_MEANWHILE / 10);
    ok(store.put("none/x", b"", Put::Create));
    assert_eq!((ok(store.len("none/x")), names(store, "none").len()), (Some(0), 1), "put since");
    // One that is there already stays, and is found.
    fails(Kind::Exists, store.put_and_look(&own, b"another", &[Look::Length(&own)]));
    assert_eq!((ok(store.len(&own)), ok(store.get(&own))), (Some(3), b"own".to_vec()));
}
