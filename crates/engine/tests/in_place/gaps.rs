//! A part of the snapshot's tree can't be read: nobody knows what belongs there, so that nothing is deleted on the
//! strength of it.

use crate::scene::{Scene, scene};
use drumlin_engine::Error;
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_engine::restore::{self, Options};
use drumlin_format::pack::PackKind;
use drumlin_host::place::is_aside;
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Put, Store};
use drumlin_testkit::{Rng, wipe_parity};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// One directory whose leaves lie in several blocks of the tree, and small ones before and behind it.
fn large() -> Scene {
    scene(|source| {
        let mut rng = Rng::new(5);
        let mut fill = |dir: &str, files| {
            let dir = source.join(dir);
            fs::create_dir(&dir).unwrap();
            // Names that have nothing in common, so that leaves of them take room.
            let mut name = || rng.bytes(110).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            (0..files).for_each(|n| fs::write(dir.join(name()), format!("{n}")).unwrap());
        };
        (0..10).for_each(|n| fill(&format!("a{n}"), 20));
        // More than two blocks of leaves hold, wherever the repository's secret has them end.
        fill("b", 4500);
        (0..10).for_each(|n| fill(&format!("c{n}"), 20));
    })
}

fn sorted(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The packs of the tree, each damaged in one of its blocks beyond what parity bears: a pack for each block.
fn damaged(scene: &Scene) -> Vec<(String, Vec<u8>)> {
    let (repository, mut damaged) = (&scene.bench.repository, Vec::new());
    let objects = repository.index_objects().unwrap();
    let entries = objects.iter().flat_map(|(id, _)| repository.index_entries(*id).unwrap().unwrap());
    for entry in entries.filter(|entry| entry.kind == PackKind::Tree) {
        let name = names::pack(entry.kind, entry.pack);
        let mut wiped = scene.bench.memory.get(&name).unwrap();
        wipe_parity(&mut wiped);
        for block in entry.table.blocks.iter().filter(|block| block.chunks > 0) {
            let mut bent = wiped.clone();
            bent[block.offset as usize + block.stored_len as usize / 2] ^= 1;
            damaged.push((name.clone(), bent));
        }
    }
    assert!(damaged.len() > 4, "{} blocks are too few for any to be in the midst of a directory", damaged.len());
    damaged
}

/// Knows which entries were restored, or right.
#[derive(Default)]
struct Watch {
    quiet: Quiet,
    met: Mutex<BTreeSet<Vec<u8>>>,
}

impl Monitor for Watch {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, change: Change, path: &[u8]) {
        assert!(change != Change::Deleted, "{} is deleted", path.escape_ascii());
        self.met.lock().unwrap().insert(path.into());
    }
}

impl Watch {
    fn has_met(&self, path: &Path) -> bool {
        self.met.lock().unwrap().contains(path.as_os_str().as_bytes())
    }
}

/// Restore with a damaged pack in the place of a sound one. `None`: there was nothing to go by, since the uppermost
/// node is lost.
fn restore_from(scene: &Scene, (name, bent): &(String, Vec<u8>)) -> Option<Watch> {
    let bench = &scene.bench;
    let whole = bench.memory.get(name).unwrap();
    bench.memory.put(name, bent, Put::Replace).unwrap();
    let repository = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(bench.key_file())).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
    let watch = Watch::default();
    let options = Options { delete: true, ..scene.options() };
    let restored = restore::restore(&repository, &cache, options, &watch);
    bench.memory.put(name, &whole, Put::Replace).unwrap();
    match restored {
        Ok(report) => {
            assert!(report.counts.damaged > 0 && !watch.quiet.problems().is_empty(), "the damage is told");
            assert_eq!(report.counts.deleted, 0);
            Some(watch)
        }
        Err(Error::Repo(e)) if e.is_damage() => None,
        Err(e) => panic!("{e}"),
    }
}

/// Whichever part of the directory can't be read: its beginning, which another one is at hand for; its midst; its end.
#[test]
fn what_a_lost_part_of_the_tree_names_is_not_deleted() {
    let scene = large();
    scene.run(scene.options());
    // What is left over goes, as long as the tree is sound.
    fs::write(scene.target.join("b/left over"), "").unwrap();
    let (report, _) = scene.run(Options { delete: true, ..scene.options() });
    assert_eq!(report.counts.deleted, 1);
    scene.same();
    let of_large = sorted(&scene.source.join("b"));
    let (mut in_part, mut small_lost) = (BTreeSet::new(), false);
    for bent in damaged(&scene) {
        let watch = restore_from(&scene, &bent);
        scene.same();
        let Some(watch) = watch else { continue };
        let met: Vec<bool> = of_large.iter().map(|path| watch.has_met(path)).collect();
        if met.contains(&true) && met.contains(&false) {
            in_part.insert((met[0], met[met.len() - 1]));
        }
        let lacks_all = |dir: &str| !sorted(&scene.source.join(dir)).iter().any(|path| watch.has_met(path));
        // A block may end in one of them.
        let lost = |dir: String| watch.has_met(&scene.source.join(&dir)) && lacks_all(&dir);
        small_lost |= (0..10).any(|n| lost(format!("c{n}")));
    }
    assert_eq!(in_part, [(false, true), (true, false), (true, true)].into(), "which of its ends were met");
    assert!(small_lost, "no directory of which all entries are lost passes for an empty one");
}

/// A file that the user has in the place of a directory, whose entries are lost.
#[test]
fn what_gave_way_to_a_directory_stays_where_the_entries_of_that_are_lost() {
    let scene = large();
    scene.run(scene.options());
    let dir = scene.target.join("c5");
    let set_aside = || {
        let all = sorted(&scene.target).into_iter();
        all.filter(|path| is_aside(path.file_name().unwrap().as_bytes())).collect::<Vec<_>>()
    };
    let reset = || {
        if dir.is_dir() {
            fs::remove_dir_all(&dir).unwrap();
        }
        set_aside().into_iter().for_each(|path| fs::remove_file(path).unwrap());
        fs::write(&dir, "things").unwrap();
    };
    let mut kept = 0;
    for bent in damaged(&scene) {
        reset();
        let watch = restore_from(&scene, &bent);
        if dir.is_dir() && fs::read_dir(&dir).unwrap().count() == 20 {
            continue;
        }
        if dir.is_file() {
            assert_eq!(fs::read_to_string(&dir).unwrap(), "things");
            continue;
        }
        let [aside] = &set_aside()[..] else {
            panic!("{:?}: what the directory took the place of is gone", set_aside())
        };
        assert_eq!(fs::read_to_string(aside).unwrap(), "things");
        let problems = watch.expect("something was restored").quiet.problems();
        let name = aside.file_name().unwrap().to_str().unwrap();
        assert!(problems.iter().any(|problem| problem.cause.contains(name)), "{name} is told: {problems:?}");
        kept += 1;
    }
    assert!(kept > 0, "no damage hit the directory's entries alone");
    // With a sound tree it goes.
    reset();
    scene.run(Options { delete: true, ..scene.options() });
    assert!(set_aside().is_empty());
    scene.same();
}

/// Its own entry stands elsewhere in the tree than what is in it.
#[test]
fn a_folder_whose_own_metadata_are_lost_is_restored_all_the_same() {
    let scene = large();
    let folder = scene.source.join("c9");
    let files = sorted(&folder).len();
    let (mut alone, options) = (0, scene.options());
    for (turn, (name, bent)) in damaged(&scene).into_iter().enumerate() {
        let (bench, target) = (&scene.bench, scene.target.join(format!("turn {turn}")));
        let whole = bench.memory.get(&name).unwrap();
        bench.memory.put(&name, &bent, Put::Replace).unwrap();
        let repository = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
        let subfolder = Some(folder.as_os_str().as_bytes().to_vec());
        let (snapshot, monitor) = (options.snapshot.clone(), Quiet::default());
        let options = Options { subfolder, snapshot, target: target.clone(), ..scene.options() };
        let restored = restore::restore(&repository, &cache, options, &monitor);
        bench.memory.put(&name, &whole, Put::Replace).unwrap();
        if !target.exists() || sorted(&target).len() < files {
            continue;
        }
        // All is there: so this is no reason to end.
        restored.unwrap();
        let told = monitor.problems();
        assert!(told.len() < 2, "{told:?}");
        alone += usize::from(told.iter().any(|p| p.path == folder.as_os_str().as_bytes()));
    }
    assert!(alone > 0, "its own entry is in none of the blocks");
}
