//! What must hold when several threads want the same name.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{May, names, ok, same, upload};
use crate::{Kind, Put, Result, Store};

const THREADS: usize = 8;

pub(super) fn check(make: &impl Fn() -> Box<dyn Store>, may: May) {
    let store = make();
    assert_eq!(ok(store.creates_atomically()), may.create_alone);
    if may.create_alone {
        races(&*store);
    }
    if may.remove {
        replace_is_atomic(&*make(), may);
    }
}

fn races(store: &dyn Store) {
    one_winner(store, 30, "put", |name, content| store.put(name, content, Put::Create));
    one_winner(store, 10, "upload", |name, content| upload(store, name, content, 0, 1000));
    one_winner(store, 10, "either", |name, content| match content[0] % 2 {
        0 => store.put(name, content, Put::Create),
        _ => upload(store, name, content, 0, 1000),
    });
}

/// Of several threads that create a name, one succeeds, the others are told so, and the content is the winner's.
fn one_winner(store: &dyn Store, rounds: usize, way: &str, create: impl Fn(&str, &[u8]) -> Result<()> + Sync) {
    let barrier = Barrier::new(THREADS);
    for round in 0..rounds {
        let name = format!("race/{way}/{round}");
        let winners: Vec<usize> = thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS)
                .map(|racer| {
                    let (name, barrier, create) = (&name, &barrier, &create);
                    scope.spawn(move || {
                        barrier.wait();
                        match create(name, &content(racer)) {
                            Ok(()) => Some(racer),
                            Err(error) if error.kind == Kind::Exists => None,
                            Err(error) => panic!("a loser was told something else: {error}"),
                        }
                    })
                })
                .collect();
            racers
                .into_iter()
                .filter_map(|racer| racer.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
                .collect()
        });
        assert_eq!(winners.len(), 1, "{name} was won by {winners:?}");
        same(&ok(store.get(&name)), &content(winners[0]), &name);
    }
    assert_eq!(names(store, &format!("race/{way}")).len(), rounds);
}

fn content(racer: usize) -> Vec<u8> {
    vec![racer as u8; 1000 + racer]
}

/// Readers see one whole version or another while writers replace it; or, where that can't be, none for a moment.
fn replace_is_atomic(store: &dyn Store, may: May) {
    const VERSIONS: usize = 60;
    ok(store.put("version", &content(0), Put::Replace));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let seen = |read: Result<()>| match read {
                    Err(error) if error.kind == Kind::Missing && !may.replace_in_use => false,
                    read => {
                        ok(read);
                        true
                    }
                };
                while !done.load(Ordering::Relaxed) {
                    let mut found = Vec::new();
                    if seen(store.get("version").map(|bytes| found = bytes)) {
                        let racer = usize::from(found[0]);
                        same(&found, &content(racer), "a version");
                    }
                    let len = ok(store.len("version"));
                    let is_right = |len| (1000..1000 + THREADS as u64).contains(&len);
                    assert!(len.map_or(!may.replace_in_use, is_right), "{len:?}");
                    let mut range = [0; 1000];
                    if seen(store.read_at("version", 0, &mut range)) {
                        same(&range, &[range[0]; 1000], "a range of a version");
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    for version in 0..VERSIONS {
                        ok(store.put("version", &content((2 * version + writer) % THREADS), Put::Replace));
                    }
                })
            })
            .collect();
        // Readers stop even if a writer failed, so that the failure is seen.
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap_or_else(|e| std::panic::resume_unwind(e));
        }
    });
    ok(store.put("version", &content(3), Put::Replace));
    same(&ok(store.get("version")), &content(3), "the last version");
    assert_eq!(names(store, ""), ["version"]);
}
