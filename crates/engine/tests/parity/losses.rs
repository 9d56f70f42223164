//! Packs that are lost or damaged, and recovery objects that are.

use crate::scene::{self, SHAPE, Scene, objects, store_of};
use drumlin_engine::check::ObjectKind;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::parity;
use drumlin_engine::repair;
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::{IndexId, PackId};
use drumlin_repo::band::Band;
use drumlin_repo::{Index, NewLock, PackInfo, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{Put, Store};
use drumlin_testkit::Rng;
use std::sync::Arc;

/// The packs of a band that are there, by name.
fn members(scene: &Scene, band: &Band) -> Vec<(String, PackId)> {
    let packs = scene.packs();
    let name = |m: drumlin_format::band::Member| (names::pack(m.kind, m.pack), m.pack);
    band.head.members().map(name).filter(|(name, _)| packs.contains_key(name)).collect()
}

/// Whole packs of every band at once: restores read through it, a check says so, a repair makes all of it again.
#[test]
fn whole_packs_come_back() {
    for turn in 0..3u64 {
        let scene = Scene::new(3);
        let mut lost = 0;
        for band in &scene.bands().all {
            let members = members(&scene, band);
            for n in 0..SHAPE.rows.min(members.len()) {
                // Others each time.
                let (name, _) = &members[(n + turn as usize * 2) % members.len()];
                scene.bench.memory.delete(name).unwrap();
                lost += 1;
            }
        }
        let found = scene.check(true).findings;
        assert_eq!(found.len(), lost, "{found:#?}");
        for finding in &found {
            assert_eq!((finding.healed, finding.by_band), (Some(true), true), "{finding:#?}");
            assert!(finding.snapshots.is_empty() && finding.touched.is_empty(), "{finding:#?}");
        }
        scene.all_whole();
        let plan = scene.plan();
        assert_eq!((plan.lost, plan.removed.objects), (lost as u64, 0), "nothing that is needed goes: {plan:?}");
        let (report, _) = scene.repair(&[]);
        assert_eq!((report.made_again.len(), report.gone.len(), report.lost_chunks), (lost, 0, 0), "{report:?}");
        assert!(report.unreadable.is_empty());
        assert!(scene.bench.memory.list(names::LOSSES, &mut |_| panic!("there is a loss")).is_ok());
        let parity = report.parity.unwrap();
        assert_eq!((parity.uncovered.packs, parity.lost, parity.left), (0, 0, None));
        // Without any parity across packs.
        scene.bench.memory.list(names::PARITY, &mut |_| {}).unwrap();
        let mut all = objects(&scene.bench.memory);
        all.retain(|name, _| !name.starts_with(names::PARITY));
        let without = store_of(&all);
        (0..scene.states.len()).for_each(|state| assert_eq!(scene.differences(&without, state), 0));
        assert!(scene.check(true).findings.is_empty());
        let plan = scene.plan();
        assert_eq!((plan.uncovered.packs, plan.removed.objects, plan.made), (0, 0, 0), "{plan:?}");
    }
}

/// As many whole packs as a band bears but one, and the others all damaged, each elsewhere, beyond what their own
/// parity bears.
#[test]
fn by_slices_more_is_healed() {
    let scene = Scene::new(3);
    let bands = scene.bands();
    let band = bands.all.iter().max_by_key(|band| band.head.row_len()).unwrap();
    let members = members(&scene, band);
    assert!(members.len() >= 5, "{members:?}");
    scene.bench.memory.delete(&members[0].0).unwrap();
    let mut damaged = Vec::new();
    for (place, (name, id)) in members[1..5].iter().enumerate() {
        // Ten sectors: more than their own parity bears.
        scene.change(name, |bytes| {
            let at = place * 65_536 + 5_000;
            let end = (at + 40_000).min(bytes.len());
            bytes[at.min(end)..end].iter_mut().for_each(|b| *b ^= 0x55);
        });
        damaged.push(*id);
    }
    scene.all_whole();
    let (report, _) = scene.repair(&damaged);
    assert_eq!((report.made_again.len(), report.damaged.len(), report.lost_chunks), (1, 0, 0), "{report:?}");
    assert_eq!(report.mended.len(), 4);
    scene.all_whole();
    scene.prune().unwrap();
    scene.all_whole();
    assert!(scene.check(true).findings.is_empty());
}

/// One more than the band bears: it is said, what is there is as it was, and with one of them back all is.
#[test]
fn too_many_are_told_and_nothing_gets_worse() {
    let scene = Scene::new(3);
    let bands = scene.bands();
    let band = bands.all.iter().max_by_key(|band| band.head.members().count()).unwrap();
    let members = members(&scene, band);
    let gone: Vec<(String, Vec<u8>)> = members[..SHAPE.rows + 1]
        .iter()
        .map(|(name, _)| (name.clone(), scene.bench.memory.get(name).unwrap()))
        .collect();
    gone.iter().for_each(|(name, _)| scene.bench.memory.delete(name).unwrap());
    let before = objects(&scene.bench.memory);
    let found = scene.check(true).findings;
    let of_packs: Vec<_> = found.iter().filter(|f| gone.iter().any(|(name, _)| *name == f.object)).collect();
    assert_eq!(of_packs.len(), SHAPE.rows + 1, "{found:#?}");
    assert!(of_packs.iter().any(|f| f.healed != Some(true)), "{found:#?}");
    // Parity is kept as it is: with one pack more the others can be made again.
    let report = scene.cover(None);
    assert_eq!((report.lost, report.uncovered.packs), (SHAPE.rows as u64 + 1, 0), "{report:?}");
    let after = objects(&scene.bench.memory);
    let is_held = |name: &str| !name.starts_with(names::PARITY) || name.contains(&band.id().to_string());
    let held: Vec<_> = before.iter().filter(|(name, _)| is_held(name)).collect();
    assert!(held.len() > 10 && held.iter().all(|(name, bytes)| after.get(*name) == Some(bytes)));
    let (report, _) = scene.repair(&[]);
    assert!(report.lost_chunks > 0 || !report.unreadable.is_empty(), "{report:?}");
    for (name, bytes) in &gone[..1] {
        scene.bench.memory.put(name, bytes, Put::Create).unwrap();
    }
    let held = Band { head: band.head.clone(), objects: band.objects.clone() };
    assert!(scene.bands().get(held.id()).is_some_and(Band::is_whole), "as long as something is lost");
    let repository = scene.repository();
    let through = repository.through(&scene.bands());
    for (name, right) in &gone[1..] {
        let mut bytes = vec![0; right.len()];
        through.store().read_at(name, 0, &mut bytes).unwrap();
        assert!(bytes == *right);
    }
    // No index object names them any more: they are had back all the same.
    let (report, _) = scene.repair(&[]);
    assert_eq!(
        (report.lost_chunks, report.unreadable.len(), report.made_again.len()),
        (0, 0, SHAPE.rows),
        "{report:?}"
    );
    scene.all_whole();
    assert!(scene.check(true).findings.is_empty());
}

/// A pack and all index objects that name it: the band alone tells of it.
#[test]
fn what_no_index_object_names_comes_back() {
    let scene = Scene::new(3);
    let bands = scene.bands();
    let band = bands.all.iter().max_by_key(|band| band.head.members().count()).unwrap();
    for (name, _) in &members(&scene, band)[..SHAPE.rows] {
        scene.bench.memory.delete(name).unwrap();
    }
    for name in scene.objects().into_keys().filter(|name| name.starts_with("index/")) {
        scene.change(&name, |bytes| bytes.iter_mut().for_each(|b| *b ^= 0x5a));
    }
    let (report, _) = scene.repair(&[]);
    assert_eq!((report.lost_chunks, report.unreadable.len()), (0, 0), "{report:?}");
    scene.all_whole();
    assert!(scene.check(true).findings.is_empty());
}

/// A pack that goes along with the index object that named it is nobody's for a client that has seen neither. It may
/// bring parity up to date, have it in another shape or want none any more: what the pack is made of stays.
#[test]
fn what_an_index_object_took_along_is_kept_for_a_repair() {
    let scene = Scene::new(3);
    let repository = scene.repository();
    let (id, _) = repository.index_objects().unwrap().into_iter().max_by_key(|(_, len)| *len).unwrap();
    let entries = repository.index_entries(id).unwrap().unwrap();
    let lost = entries.iter().find(|entry| entry.kind == PackKind::Data).unwrap();
    scene.bench.memory.delete(&names::index(id)).unwrap();
    scene.bench.memory.delete(&names::pack(lost.kind, lost.pack)).unwrap();
    let before = scene.bands().all.iter().filter(|band| band.head.members().any(|m| m.pack == lost.pack)).count();
    let off = |dry_run| {
        let (repository, options) = (scene.repository(), crate::scene::options(None));
        parity::off(&repository, &scene.cache(&repository), &options, dry_run, &Quiet::default())
    };
    for shape in [None, Some(parity::Shape { seats: 4, rows: 1 })] {
        let report = scene.cover(shape);
        assert_eq!((report.failed, report.lost, report.missing), (0, 0, true), "{report:?}");
        for dry_run in [true, false] {
            let refused = off(dry_run).unwrap_err().to_string();
            assert!(refused.contains("something that snapshots need is lost"), "{refused}");
        }
        let held = scene.bands().all.iter().filter(|band| band.head.members().any(|m| m.pack == lost.pack)).count();
        assert_eq!(held, before);
    }
    let (report, _) = scene.repair(&[]);
    assert_eq!((report.lost_chunks, report.unreadable.len()), (0, 0), "{report:?}");
    scene.all_whole();
    assert!(!scene.cover(None).missing);
    off(false).unwrap();
}

/// A keeper can't tell that what he codes is damaged. What was coded so tells him nothing of it either.
#[test]
fn a_keeper_codes_no_pack_that_he_leaves_to_an_owner() {
    let mut scene = Scene::new(2);
    scene.backup(2);
    let covered = scene::covered(&scene.bench.memory, &scene.bench.repository);
    let index = Index::open(&scene.bench.repository, scene.bench.cache.clone()).unwrap();
    let is_new = |info: &&Arc<PackInfo>| info.kind == PackKind::Data && !covered.contains(&info.id);
    let new = index.packs().iter().filter(is_new).max_by_key(|info| info.len).unwrap().clone();
    scene.change(&new.name(), |bytes| {
        let end = bytes.len() * 2 / 3;
        bytes[end..].fill(0);
    });
    let before = scene.differences(&scene.bench.memory, 2);
    assert!((1..20).contains(&before), "{before} files are lost");
    let owner = &scene.bench.repository;
    let secret = Secret::new([7; 32]);
    let key = owner.add_key(Role::Keeper, &NewLock::File(secret.clone()), "keeper", 0).unwrap();
    let file = owner.key_file(key, &secret).to_string();
    let keeper = Repository::open(Arc::new(scene.bench.memory.clone()), &Unlock::File(file)).unwrap();
    let repair = |damaged: &[PackId]| {
        let options = Scene::repair_options(damaged);
        repair::repair(&keeper, &scene.cache(&keeper), &options, &Quiet::default()).unwrap()
    };
    assert_eq!(repair(&[new.id]).closed, [new.id]);
    assert!(!scene.bands().all.iter().any(|band| band.head.members().any(|m| m.pack == new.id)), "it is coded");
    // By who doesn't know.
    parity::cover(&keeper, &scene.cache(&keeper), &crate::scene::options(None), &Quiet::default()).unwrap();
    assert!(scene.bands().all.iter().any(|band| band.head.members().any(|m| m.pack == new.id)));
    assert_eq!(repair(&[new.id]).closed, [new.id]);
    assert_eq!(scene.differences(&scene.bench.memory, 2), before);
}

/// What a snapshot needs that can't be read just now nobody knows: what lost packs were coded with stays.
#[test]
fn with_a_snapshot_that_can_not_be_read_nothing_counts_as_nobodys() {
    let scene = Scene::new(3);
    let (newest, _) = &scene.states[2];
    let repository = scene.repository();
    let of_it = |(id, _): &(IndexId, u64)| id.is_of(&newest.session);
    let (index, _) = repository.index_objects().unwrap().into_iter().find(of_it).unwrap();
    let entries = repository.index_entries(index).unwrap().unwrap();
    let lost = entries.iter().find(|entry| entry.kind == PackKind::Data).unwrap();
    let name = names::snapshot(newest.id);
    let whole = scene.bench.memory.get(&name).unwrap();
    scene.change(&name, |bytes| bytes.iter_mut().for_each(|b| *b ^= 0x5a));
    scene.bench.memory.delete(&names::pack(lost.kind, lost.pack)).unwrap();
    let (report, _) = scene.repair(&[]);
    assert_eq!((report.broken_snapshots, report.lost_chunks), (1, 0), "{report:?}");
    scene.cover(None);
    // The disk gives it out again.
    scene.bench.memory.put(&name, &whole, Put::Replace).unwrap();
    let (report, _) = scene.repair(&[]);
    assert_eq!((report.broken_snapshots, report.lost_chunks, report.unreadable.len()), (0, 0, 0), "{report:?}");
    scene.all_whole();
}

/// Whatever recovery objects say: nothing panics, no garbage gets anywhere, and a run with them ends as one without
/// them.
#[test]
fn hostile_recovery_objects_do_no_harm() {
    for seed in 0..24u64 {
        let mut rng = Rng::new(seed);
        let mut scene = Scene::new(2);
        let names: Vec<String> = scene.objects().into_keys().filter(|name| name.starts_with(names::PARITY)).collect();
        for name in &names {
            let other = scene.bench.memory.get(rng.pick(&names).unwrap()).unwrap();
            let what = rng.below(6);
            let (at, noise) = (rng.below(4000), rng.bytes(300));
            scene.change(name, |bytes| match what {
                0 => *bytes = noise,
                1 => *bytes = other,
                2 => bytes.truncate(at),
                3 => {
                    let at = at.min(bytes.len() - 300);
                    bytes[at..at + 300].copy_from_slice(&noise);
                }
                // A head with a right checksum that says something else of seats, rows, packs and lengths.
                4 => {
                    let end = 32 + 48 + 25 * SHAPE.seats;
                    let at = 32 + 40 + at % (end - 72);
                    bytes[at] ^= noise[0];
                    let sum = drumlin_seal::checksum(&bytes[32..end]);
                    bytes[end..end + 16].copy_from_slice(&sum);
                }
                _ => {}
            });
        }
        let lost = scene.packs().into_keys().nth(rng.below(3)).unwrap();
        if seed % 2 == 0 {
            let bytes = scene.bench.memory.get(&lost).unwrap();
            scene.bench.memory.delete(&lost).unwrap();
            scene.check(true);
            let (report, _) = scene.repair(&[]);
            let whole = report.lost_chunks == 0 && report.unreadable.is_empty();
            assert!(!whole || (0..2).all(|state| scene.differences(&scene.bench.memory, state) == 0), "seed {seed}");
            scene.bench.memory.put(&lost, &bytes, Put::Replace).unwrap();
            scene.repair(&[]);
        }
        scene.check(true);
        scene.all_whole();
        let report = scene.cover(None);
        assert_eq!(report.failed, 0, "seed {seed}: {report:?}");
        scene.keep(&[1]);
        scene.prune().unwrap();
        scene.all_whole();
        let repository = scene.repository();
        let off =
            parity::off(&repository, &scene.cache(&repository), &crate::scene::options(None), false, &Quiet::default());
        off.unwrap();
        assert!(scene.objects().keys().all(|name| !name.starts_with(names::PARITY)));
        scene.all_whole();
    }
}

/// A band whose heads say another length of a pack than the index: the pack is none the worse, and the band is made
/// anew.
#[test]
fn the_index_is_believed_and_not_a_band() {
    let scene = Scene::new(2);
    let band = scene.bands().all.into_iter().max_by_key(|band| band.head.members().count()).unwrap();
    let whole = scene.objects();
    for (seat, more) in (0..SHAPE.seats).flat_map(|seat| [1, -1, 50_000, -50_000].map(|more| (seat, more))) {
        let mut head = band.head.clone();
        let Some(member) = &mut head.seats[seat] else { continue };
        member.len = member.len.saturating_add_signed(more);
        for number in 0..=SHAPE.rows as u8 {
            let (start, end) = (head.beginning(number), head.encode(number));
            scene.change(&names::recovery(band.id().object(number)), |bytes| {
                let at = bytes.len() - end.len();
                bytes[..start.len()].copy_from_slice(&start);
                bytes[at..].copy_from_slice(&end);
            });
        }
        let report = scene.cover(None);
        assert_eq!((report.failed, report.uncovered.packs, report.made > 0), (0, 0, true), "seat {seat}: {report:?}");
        assert!(scene.bands().get(band.id()).is_none());
        scene.all_whole();
        let now = scene.objects().into_keys().filter(|name| name.starts_with(names::PARITY));
        now.for_each(|name| scene.bench.memory.delete(&name).unwrap());
        whole.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Replace).unwrap());
    }
}

#[test]
fn recovery_objects_that_are_missing_or_damaged_are_found_and_made_anew() {
    let scene = Scene::new(2);
    let band = scene.bands().all[0].clone();
    let name = |number| names::recovery(band.id().object(number));
    let whole = scene.objects();
    for (what, number) in [("gone", 1), ("short", 2), ("short", 0), ("flipped", 1), ("sums", 0), ("head", 2)] {
        let name = name(number);
        let mut spoiled = Vec::new();
        match what {
            "gone" => scene.bench.memory.delete(&name).unwrap(),
            "short" => scene.change(&name, |bytes| bytes.truncate(bytes.len() - 1)),
            "flipped" => scene.change(&name, |bytes| bytes[6000] ^= 1),
            "sums" => scene.change(&name, |bytes| bytes[4100] ^= 1),
            _ => scene.change(&name, |bytes| bytes[40] ^= 1),
        }
        let seen = matches!(what, "gone" | "short");
        let quick = scene.check(false);
        assert_eq!(quick.findings.len(), usize::from(seen), "{what}: {:?}", quick.findings);
        assert_eq!(quick.parity.unwrap().uncovered.packs > 0, seen, "{what}");
        let found = scene.check(true).findings;
        assert_eq!((found.len(), &found[0].object, found[0].kind), (1, &name, ObjectKind::Recovery), "{found:?}");
        assert!(found[0].touched.is_empty() && found[0].snapshots.is_empty());
        if !seen {
            spoiled.push(band.id());
        }
        let repository = scene.repository();
        let options = parity::Options { spoiled: spoiled.into_iter().collect(), ..crate::scene::options(None) };
        let report = parity::cover(&repository, &scene.cache(&repository), &options, &Quiet::default()).unwrap();
        assert_eq!((report.uncovered.packs, report.made > 0), (0, true), "{what}: {report:?}");
        assert!(scene.bands().get(band.id()).is_none(), "{what}: the damaged one is gone");
        assert!(scene.check(true).findings.is_empty(), "{what}");
        let now: Vec<String> = scene.objects().into_keys().collect();
        now.iter().filter(|n| n.starts_with(names::PARITY)).for_each(|n| scene.bench.memory.delete(n).unwrap());
        whole.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Replace).unwrap());
    }
}
