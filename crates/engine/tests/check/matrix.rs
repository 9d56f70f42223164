//! Every kind of object, damaged in every way: found, and named.

use crate::bench::{
    Objects, assert_sound, check_plainly, finding, folder, objects, packs_of_chunks, replaced, tiny_bench,
};
use crate::common::{Bench, options, settle};
use drumlin_engine::backup;
use drumlin_engine::check::Part;
use drumlin_engine::monitor::Quiet;
use drumlin_format::decision::Verdict;
use drumlin_format::key::Role;
use drumlin_format::loss::Loss;
use drumlin_format::plan::Plan;
use drumlin_format::{ChunkId, LossId, PackId, PlanId, SessionId};
use drumlin_repo::collection::{Board, Desk, Flag};
use drumlin_repo::{Cache, NewLock, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_testkit::tree;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

/// A repository with at least two objects of each kind, and what opens it without any key object.
fn whole() -> (Objects, String) {
    (0..40).find_map(|_| lived()).expect("of forty backups of nothing new each has written something")
}

/// `None`: a backup of nothing new has written something, as what it saw had been changed in the very moment of the one
/// before, or the folder above has, in which other tests make theirs: where a loss is to be met all is read. Nobody
/// misses what only that needs.
fn lived() -> Option<(Objects, String)> {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 5, 120).unwrap();
    fs::write(source.join("large"), drumlin_testkit::Rng::new(1).bytes(600_000)).unwrap();
    settle();
    bench.backup(&source);
    tree::mutate(&source, 1).unwrap();
    settle();
    bench.backup(&source);
    // A third snapshot is by somebody who can only write.
    let secret = Secret::new([7; 32]);
    let key = bench.repository.add_key(Role::Writer, &NewLock::File(secret.clone()), "writer", 1).unwrap();
    let file = bench.repository.key_file(key, &secret).to_string();
    let writer = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(file)).unwrap();
    let cache = Arc::new(Cache::open(&writer, None, bench.folder.path()).unwrap());
    tree::mutate(&source, 2).unwrap();
    settle();
    backup::backup(&writer, &cache, options(&[&source]), &Quiet::default()).unwrap();
    let desk = Desk::of(&bench.repository, drumlin_format::session::Session::new("host", "test", 5));
    let indexed = indexes(&bench);
    for n in [1, 2] {
        desk.replace(Flag::Decision(SessionId([n; 16])), &Verdict::Evicted { plan: 0 }).unwrap();
        desk.put_session(SessionId([n + 2; 16])).unwrap();
        let plan = Plan {
            id: PlanId([n; 16]),
            session: SessionId([n + 2; 16]),
            packs: vec![PackId([9; 16])],
            indexes: Vec::new(),
            snapshots: Vec::new(),
            unnamed: Vec::new(),
        };
        desk.put_plan(&plan).unwrap();
        let loss = Loss { id: LossId([n; 16]), chunks: vec![ChunkId([n; 32])], packs: vec![PackId([n; 16])] };
        bench.repository.put_loss(&loss).unwrap();
        let twin = bench.backup(&source).snapshot.unwrap();
        bench.repository.forget(&[twin.id]).unwrap();
    }
    let state = (objects(&bench.memory), bench.repository.recovery_file().to_string());
    (indexed == indexes(&bench)).then_some(state)
}

fn indexes(bench: &Bench) -> BTreeSet<String> {
    objects(&bench.memory).into_keys().filter(|name| folder(name) == "index").collect()
}

/// What can befall an object of a kind of which there are two.
fn damages(whole: &Objects, name: &str) -> Vec<(&'static str, Objects)> {
    let bytes = &whole[name];
    let with = |bytes: Vec<u8>| {
        let mut objects = whole.clone();
        objects.insert(name.to_owned(), bytes);
        objects
    };
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x20;
        with(bytes)
    };
    let mut deleted = whole.clone();
    deleted.remove(name);
    let mut damages = vec![
        ("deleted", deleted),
        ("cut by a byte", with(bytes[..bytes.len() - 1].to_vec())),
        ("cut by half", with(bytes[..bytes.len() / 2].to_vec())),
        ("emptied", with(Vec::new())),
        ("flipped at its head", flipped(3)),
        ("flipped in the middle", flipped(bytes.len() / 2)),
        ("flipped at its end", flipped(bytes.len() - 1)),
        ("longer by a byte", with([&bytes[..], &[0]].concat())),
    ];
    let other = whole.keys().find(|n| folder(n) == folder(name) && *n != name && whole[*n] != *bytes);
    if let Some(other) = other {
        let mut swapped = with(whole[other].clone());
        swapped.insert(other.clone(), bytes.clone());
        damages.push(("swapped for another", swapped));
    }
    damages
}

#[test]
fn whatever_befalls_an_object_is_found_and_the_object_named() {
    let (whole, recovery) = whole();
    let repository = replaced(&whole, &whole, &recovery);
    assert_sound(&check_plainly(&repository, None));
    assert_sound(&check_plainly(&repository, Some(Part::All)));
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_reading_alone = BTreeSet::new();
    for name in whole.keys() {
        let kind = folder(name);
        // Three of each kind are enough.
        let number = tried.entry(kind).or_default();
        *number += 1;
        if *number > 3 {
            continue;
        }
        for (what, damaged) in damages(&whole, name) {
            let repository = replaced(&whole, &damaged, &recovery);
            let mut report = check_plainly(&repository, None);
            let passing = ["snapshots", "sessions", "decisions", "plans", "losses", "forgotten", "history"];
            if what == "deleted" && (passing.contains(&kind) || name.ends_with(".copy")) {
                // As if it had never been, to a client that never saw it: whoever may delete has forgotten it. Older
                // programs made no copies.
                assert_sound(&report);
                continue;
            }
            // Nothing else says what the name of an index object was.
            let object = if (what, kind) == ("deleted", "index") { kind } else { name };
            if finding(&report, object).is_none() {
                assert!(matches!(kind, "data" | "tree"), "{name} {what}: {:#?}", report.findings);
                by_reading_alone.insert((kind, what));
                report = check_plainly(&repository, Some(Part::All));
            }
            assert!(finding(&report, object).is_some(), "{name} {what}: {:#?}", report.findings);
        }
    }
    let kinds: Vec<_> = tried.keys().copied().collect();
    let expected = [
        "config",
        "config.copy",
        "data",
        "decisions",
        "forgotten",
        "history",
        "index",
        "keys",
        "losses",
        "plans",
        "sessions",
        "snapshots",
        "tree",
    ];
    assert_eq!(kinds, expected);
    assert!(tried.iter().all(|(kind, n)| kind.starts_with("config") || *n > 1), "{tried:?}");
    // A pack of another length, or none, needs no reading; what is in the midst of contents does.
    assert!(by_reading_alone.contains(&("data", "flipped in the middle")));
    for what in ["deleted", "cut by a byte", "cut by half", "emptied", "longer by a byte"] {
        assert!(!by_reading_alone.iter().any(|(_, w)| *w == what), "{what}");
    }
}

/// Each byte of a pack counts: the header and the footer, which nobody needs to restore, and the padding.
#[test]
fn no_byte_of_a_pack_goes_unread() {
    let (whole, recovery) = whole();
    for kind in ["data", "tree"] {
        let (name, bytes) = whole.iter().filter(|(n, _)| folder(n) == kind).min_by_key(|(_, b)| b.len()).unwrap();
        let steps = (0..64).chain((64..bytes.len()).step_by(bytes.len() / 150)).chain(bytes.len() - 64..bytes.len());
        for at in steps {
            let mut damaged = whole.clone();
            damaged.get_mut(name).unwrap()[at] ^= 1;
            let report = check_plainly(&replaced(&whole, &damaged, &recovery), Some(Part::All));
            assert!(finding(&report, name).is_some(), "{name} byte {at} of {}", bytes.len());
            assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        }
    }
}

#[test]
fn damage_of_several_objects_is_told_of_each() {
    let (whole, recovery) = whole();
    let mut damaged = whole.clone();
    let mut names = Vec::new();
    let index = whole.keys().find(|n| folder(n) == "index").unwrap();
    // What only a damaged index object names isn't looked at.
    let others: Objects = whole.iter().filter(|(n, _)| *n != index).map(|(n, b)| (n.clone(), b.clone())).collect();
    let repository = replaced(&whole, &whole, &recovery);
    let named: BTreeSet<String> = packs_of_chunks(&repository, &others).into_values().flatten().collect();
    for kind in ["config", "data", "tree", "index", "keys", "snapshots", "decisions"] {
        let is_pack = matches!(kind, "data" | "tree");
        let name = whole.keys().find(|n| folder(n) == kind && (!is_pack || named.contains(*n))).unwrap();
        let bytes = damaged.get_mut(name).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        names.push(name);
    }
    let report = check_plainly(&replaced(&whole, &damaged, &recovery), Some(Part::All));
    for name in names {
        assert!(finding(&report, name).is_some(), "{name}: {:#?}", report.findings);
    }
    let order: Vec<_> = report.findings.iter().map(|f| (f.kind, &f.object)).collect();
    assert!(order.is_sorted(), "{order:?}");
}
