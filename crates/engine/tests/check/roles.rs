//! Each role checks what it can, and says what it can't.

use crate::bench::{assert_sound, check_plainly, finding, folder, objects, store_of, tiny_bench};
use crate::common::settle;
use drumlin_engine::check::{Limit, Part};
use drumlin_format::key::Role;
use drumlin_repo::{NewLock, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::{Call, Put, RecordStore, Store};
use drumlin_testkit::Rng;
use std::fs;
use std::sync::Arc;

#[test]
fn a_role_that_cannot_read_checks_what_is_around() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    (0..20).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(30_000)).unwrap());
    settle();
    bench.backup(&source);
    let secret = Secret::new([9; 32]);
    for (role, structure, reading) in [
        (Role::Reader, &[][..], &[][..]),
        (Role::Keeper, &[], &[Limit::DataBlocks]),
        (Role::Writer, &[Limit::Trees], &[Limit::Trees, Limit::TreeBlocks, Limit::DataBlocks]),
    ] {
        let key = bench.repository.add_key(role, &NewLock::File(secret.clone()), role.name(), 1).unwrap();
        let file = Unlock::File(bench.repository.key_file(key, &secret).to_string());
        let whole = objects(&bench.memory);
        let record = RecordStore::new(store_of(&whole));
        let log = record.log();
        let repository = Repository::open(Arc::new(record), &file).unwrap();
        let report = check_plainly(&repository, None);
        assert_sound(&report);
        assert_eq!(report.limits, structure, "{role:?}");
        assert_eq!(report.snapshots, u64::from(role != Role::Writer));
        log.take();
        let report = check_plainly(&repository, Some(Part::All));
        assert_sound(&report);
        assert_eq!(report.limits, reading, "{role:?}");
        let read: u64 = log
            .calls()
            .iter()
            .map(|call| match call {
                Call::ReadAt { name, bytes, .. } if folder(name) == "data" => *bytes,
                _ => 0,
            })
            .sum();
        let data: u64 = whole.iter().filter(|(n, _)| folder(n) == "data").map(|(_, b)| b.len() as u64).sum();
        if role == Role::Reader {
            assert_eq!(read, data, "each byte once");
        } else {
            assert!(read > 0 && read < data / 10, "{role:?}: {read} of {data}, of which it could open nothing");
        }
        // What is around the blocks is everybody's to check; what is in them is not.
        let pack = whole.keys().find(|n| folder(n) == "data").unwrap();
        let (len, parity) = (whole[pack].len(), drumlin_testkit::parity_of(&whole[pack]));
        let table = parity.start - 200;
        for (at, needs_blocks) in [(5, false), (len - 20, false), (table, false), (500, true), (parity.end - 9, true)] {
            let store = store_of(&whole);
            let mut bytes = whole[pack].clone();
            bytes[at] ^= 1;
            store.put(pack, &bytes, Put::Replace).unwrap();
            let repository = Repository::open(Arc::new(store), &file).unwrap();
            let report = check_plainly(&repository, Some(Part::All));
            let found = finding(&report, pack).is_some();
            assert_eq!(found, !needs_blocks || role == Role::Reader, "{role:?} byte {at}");
        }
    }
}

#[test]
fn a_key_that_signed_and_is_gone_is_named_once_with_what_hangs_on_it() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    settle();
    let secret = Secret::new([9; 32]);
    let key = bench.repository.add_key(Role::Writer, &NewLock::File(secret.clone()), "", 1).unwrap();
    let file = Unlock::File(bench.repository.key_file(key, &secret).to_string());
    let writer = Repository::open(Arc::new(bench.memory.clone()), &file).unwrap();
    let cache = Arc::new(drumlin_repo::Cache::open(&writer, None, bench.folder.path()).unwrap());
    let backup = || {
        let options = crate::common::options(&[&source]);
        drumlin_engine::backup::backup(&writer, &cache, options, &drumlin_engine::monitor::Quiet::default()).unwrap()
    };
    let snapshots: Vec<_> = (0..3).map(|_| backup().snapshot.unwrap().id).collect();
    // Revoked, it signed what it signed.
    bench.repository.remove_key(key, 5).unwrap();
    assert_sound(&check_plainly(&bench.repository, Some(Part::All)));
    let name = format!("keys/{key}");
    bench.memory.delete(&name).unwrap();
    let report = check_plainly(&bench.repository, Some(Part::All));
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert!(finding(&report, &name).unwrap().causes[0].contains("its other copy is sound"), "{report:#?}");
    bench.memory.delete(&format!("{name}.copy")).unwrap();
    let report = check_plainly(&bench.repository, Some(Part::All));
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    let found = finding(&report, &name).unwrap();
    assert!(found.causes[0].contains("more"), "{found:#?}");
    let mut told: Vec<_> = found.snapshots.iter().map(|s| s.id).collect();
    told.sort();
    let mut expected = snapshots;
    expected.sort();
    assert_eq!(told, expected);
}

#[test]
fn what_a_key_signed_that_may_not_is_told() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    settle();
    let report = bench.backup(&source);
    // A plan is a keeper's: a writer has put one.
    use drumlin_repo::collection::{Board, Desk};
    let secret = Secret::new([9; 32]);
    let key = bench.repository.add_key(Role::Writer, &NewLock::File(secret.clone()), "", 1).unwrap();
    let file = Unlock::File(bench.repository.key_file(key, &secret).to_string());
    let writer = Repository::open(Arc::new(bench.memory.clone()), &file).unwrap();
    let plan = drumlin_format::plan::Plan {
        id: drumlin_format::PlanId([1; 16]),
        session: report.snapshot.unwrap().session,
        packs: Vec::new(),
        indexes: Vec::new(),
        snapshots: Vec::new(),
        unnamed: Vec::new(),
    };
    Desk::new(&writer).put_plan(&plan).unwrap();
    let report = check_plainly(&bench.repository, None);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    let found = finding(&report, &format!("plans/{}", plan.id)).unwrap();
    assert!(found.causes[0].contains("a writer key and may not"), "{found:#?}");
}
