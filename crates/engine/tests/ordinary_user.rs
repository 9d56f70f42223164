//! What an ordinary user can't read, write or give away is told, and everything else comes back whole.

mod common;

use common::{Bench, bench, settle, user};
use drumlin_engine::backup::{self, Report};
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::{Error, restore};
use drumlin_repo::{Cache, NewLock, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::{LocalStore, Store};
use drumlin_testkit::compare::{self, Difference, What};
use drumlin_testkit::tree;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

fn differences(a: &Path, b: &Path) -> Vec<Difference> {
    compare::trees(a, b, &compare::Options { roots: false, ..compare::Options::default() }).unwrap()
}

/// Paths below `base` that a monitor was told of, with the kind of trouble.
fn told(monitor: &Quiet, base: &Path) -> Vec<(String, ProblemKind)> {
    let base = [base.as_os_str().as_bytes(), b"/"].concat();
    let short = |path: &[u8]| path.strip_prefix(&base[..]).unwrap_or(path).escape_ascii().to_string();
    let mut told: Vec<_> = monitor.problems().iter().map(|p| (short(&p.path), p.kind)).collect();
    told.sort_by(|a, b| a.0.cmp(&b.0));
    told
}

fn run(bench: &Bench, source: &Path) -> (Report, Quiet) {
    let monitor = Quiet::default();
    let report = backup::backup(&bench.repository, &bench.cache, common::options(&[source]), &monitor).unwrap();
    (report, monitor)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_nasty_tree_of_ones_own_comes_back_whole() {
    user::run("a_nasty_tree_of_ones_own_comes_back_whole", |folder| {
        assert!(!user::is_root());
        let bench = bench();
        let (source, target) = (folder.join("source"), folder.join("target"));
        fs::create_dir(&source).unwrap();
        let skipped = tree::nasty(&source, false).unwrap();
        println!("left out: {skipped:?}");
        settle();
        // One's own files can be closed to oneself as well.
        let closed = ["modes/0000", "modes/0111", "modes/0200"];
        let (report, monitor) = run(&bench, &source);
        assert_eq!(told(&monitor, &source), closed.map(|p| (p.to_owned(), ProblemKind::Unreadable)));
        assert_eq!((report.counts.unreadable, report.counts.vanished, report.counts.changed_while_read), (3, 0, 0));
        let snapshot = report.snapshot.unwrap();
        assert_eq!(snapshot.summary.unreadable, 3);

        let (restored, monitor) = bench.restore(&snapshot, &source, &target);
        assert_eq!(told(&monitor, &source), closed.map(|p| (p.to_owned(), ProblemKind::Damaged)));
        let counts = restored.counts;
        assert_eq!((counts.damaged, counts.unwritable, counts.attributes), (3, 0, 0));
        let found = differences(&source, &target);
        let missing: Vec<_> = found.iter().map(|d| (String::from_utf8_lossy(&d.path).into_owned(), &d.what)).collect();
        assert_eq!(missing, closed.map(|p| (p.to_owned(), &What::Presence)), "{found:#?}");

        // What could not be read is tried again, and only that.
        let (again, _) = run(&bench, &source);
        assert_eq!(
            (again.counts.new, again.counts.changed, again.counts.unreadable, again.counts.removed),
            (0, 3, 3, 0)
        );
        assert_eq!(again.counts.bytes_read, 0);
        closed.iter().for_each(|p| mode(&source.join(p), 0o600));
        settle();
        let (third, monitor) = run(&bench, &source);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!((third.counts.changed, third.counts.bytes_read), (3, 12));
        let target = folder.join("target-3");
        let (_, monitor) = bench.restore(&third.snapshot.unwrap(), &source, &target);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!(differences(&source, &target), []);
        let _ = tree::unprotect(folder);
    });
}

/// As `/home` is on many machines, and what a server shows to a root that it maps to nobody.
#[test]
fn what_leads_to_a_source_need_only_be_entered() {
    user::run("what_leads_to_a_source_need_only_be_entered", |folder| {
        let bench = bench();
        let (top, source) = (folder.join("top"), folder.join("top/within/mine"));
        fs::create_dir_all(source.join("dir")).unwrap();
        fs::write(source.join("dir/file"), "mine").unwrap();
        mode(&top.join("within"), 0o111);
        mode(&top, 0o111);
        settle();
        for round in 0..2 {
            let (report, monitor) = run(&bench, &source);
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            assert_eq!(report.counts.unreadable, 0);
            let target = folder.join(format!("target-{round}"));
            bench.restore(&report.snapshot.unwrap(), &source, &target);
            assert_eq!(differences(&source, &target), []);
        }
        // To be saved with all that is in it, it has to be listed.
        let (report, monitor) = run(&bench, &top);
        assert_eq!((report.counts.unreadable, monitor.problems().len()), (1, 1), "{:?}", monitor.problems());
        [top.clone(), top.join("within")].iter().for_each(|dir| mode(dir, 0o700));
    });
}

/// Go's module cache has no directory that its owner may write to.
#[test]
fn a_restore_goes_on_in_directories_that_are_closed_to_writing() {
    user::run("a_restore_goes_on_in_directories_that_are_closed_to_writing", |folder| {
        let bench = bench();
        let (source, target) = (folder.join("source"), folder.join("target"));
        fs::create_dir_all(source.join("closed/inner")).unwrap();
        let files = ["closed/a", "closed/b", "closed/inner/c"];
        files.iter().for_each(|name| fs::write(source.join(name), name).unwrap());
        fs::write(source.join("closed/large"), vec![7; 9 << 20]).unwrap();
        let close = |root: &Path| ["closed/inner", "closed"].iter().for_each(|dir| mode(&root.join(dir), 0o555));
        close(&source);
        settle();
        let snapshot = run(&bench, &source).0.snapshot.unwrap();
        let restore = || {
            let (report, monitor) = bench.restore(&snapshot, &source, &target);
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            assert_eq!(differences(&source, &target), []);
            report.counts
        };
        restore();
        // As a run that was stopped leaves it: some are missing, others are not right.
        ["closed", "closed/inner"].iter().for_each(|dir| mode(&target.join(dir), 0o755));
        fs::remove_file(target.join("closed/a")).unwrap();
        fs::remove_file(target.join("closed/large")).unwrap();
        fs::write(target.join("closed/inner/c"), "something else").unwrap();
        close(&target);
        assert_eq!(restore().restored, 3);
        let _ = tree::unprotect(folder);
    });
}

const SECRET: [u8; 32] = [1; 32];

/// A repository in `folder/repository`.
fn open(folder: &Path) -> (Repository, Arc<Cache>) {
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(folder.join("repository")).unwrap());
    let key = fs::read_to_string(folder.join("key")).unwrap();
    let repository = Repository::open(store, &Unlock::File(key)).unwrap();
    fs::create_dir_all(folder.join("scratch")).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, &folder.join("scratch")).unwrap());
    (repository, cache)
}

/// Root's backup of `source` into `folder/repository`.
fn by_root(folder: &Path, source: &Path) {
    let store: Arc<dyn Store> = Arc::new(LocalStore::create(folder.join("repository")).unwrap());
    let lock = NewLock::File(Secret::new(SECRET));
    let (repository, key) = Repository::create(store, common::small(), lock, "test", 0).unwrap();
    fs::write(folder.join("key"), repository.key_file(key, &Secret::new(SECRET)).as_bytes()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let monitor = Quiet::default();
    backup::backup(&repository, &cache, common::options(&[source]), &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
}

#[test]
fn what_root_backed_up_an_ordinary_user_gets_back_as_far_as_may_be() {
    const TEST: &str = "what_root_backed_up_an_ordinary_user_gets_back_as_far_as_may_be";
    if let Some(folder) = user::folder() {
        return restore_as_user(&folder);
    }
    if user::needs_root(TEST) {
        return;
    }
    let folder = user::shared_folder();
    let _ends = tree::Unprotect(folder.path());
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::create_dir(&source).unwrap();
    let skipped = tree::nasty(&source, true).unwrap();
    // Closed to its owner: what is in it has to be finished before.
    fs::create_dir_all(source.join("shut/inner")).unwrap();
    fs::write(source.join("shut/inner/file"), "saved").unwrap();
    mode(&source.join("shut/inner"), 0o750);
    mode(&source.join("shut"), 0o000);
    settle();
    by_root(folder.path(), &source);
    user::give(&folder.path().join("repository"));
    user::give(&folder.path().join("key"));
    user::again(TEST, folder.path());

    // As root again: whatever differs is what that user may not do, and was told.
    let told = fs::read(folder.path().join("told")).unwrap();
    let told: BTreeSet<&[u8]> = told.split(|b| *b == 0).filter(|p| !p.is_empty()).collect();
    let found = differences(&source, &target);
    for difference in &found {
        let may_differ = match &difference.what {
            // Told once, and counted.
            What::Owner => continue,
            What::Presence => difference.path.starts_with(b"nodes/"),
            What::Mode => true,
            What::Xattr(name) => name.starts_with(b"security.") || name.starts_with(b"trusted."),
            What::Flags => difference.path.starts_with(b"flags/"),
            _ => false,
        };
        assert!(may_differ, "{difference}");
        let path = [source.as_os_str().as_bytes(), b"/", &difference.path].concat();
        assert!(told.contains(&path[..]), "not a word of: {difference}");
    }
    // And the test has seen all of that, as far as the file system has it.
    let seen = |fits: fn(&What) -> bool| found.iter().filter(|d| fits(&d.what)).count();
    assert_eq!(seen(|w| *w == What::Presence), 3 - skipped.iter().filter(|(what, _)| *what == "device").count());
    assert!(seen(|w| *w == What::Owner) > 3000 && seen(|w| *w == What::Mode) >= 4, "{found:#?}");
    if skipped.is_empty() {
        assert!(seen(|w| matches!(w, What::Xattr(_))) >= 3 && seen(|w| *w == What::Flags) == 4, "{found:#?}");
    }
    // Nobody's rights are lent by a program that was another's.
    for name in ["modes/4755", "modes/2755", "modes/6711", "owners/suid-other", "attributes/capability-foreign"] {
        let mode = fs::metadata(target.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{name} is {mode:o}");
    }
}

fn restore_as_user(folder: &Path) {
    let (repository, cache) = open(folder);
    let snapshot = repository.snapshots().unwrap().0.remove(0).snapshot;
    let source = folder.join("source");
    let monitor = Quiet::default();
    let mut options = common::restore_options(&snapshot, &folder.join("target"));
    options.subfolder = Some(source.as_os_str().as_bytes().to_vec());
    let report = restore::restore(&repository, &cache, options, &monitor).unwrap();
    let problems = monitor.problems();
    let of = |kind| problems.iter().filter(|p| p.kind == kind).count() as u64;
    assert_eq!((report.counts.damaged, of(ProblemKind::Damaged)), (0, 0));
    assert_eq!(report.counts.unwritable, of(ProblemKind::Unwritable));
    assert_eq!(report.counts.restored + report.counts.unwritable, report.counts.entries);
    // Thousands of entries change hands; one line says so.
    let owners = problems.iter().filter(|p| p.cause.contains("owner") && p.kind == ProblemKind::Attribute);
    assert_eq!(owners.count(), 1, "{problems:#?}");
    assert!(report.counts.attributes > 3000 && of(ProblemKind::Attribute) < 100);
    let told: Vec<u8> = problems.iter().flat_map(|p| p.path.iter().copied().chain([0])).collect();
    fs::write(folder.join("told"), told).unwrap();
}

#[test]
fn closed_folders_are_told_and_what_is_beside_them_is_saved() {
    user::run("closed_folders_are_told_and_what_is_beside_them_is_saved", |folder| {
        let bench = bench();
        let source = folder.join("source");
        for name in ["closed/below", "listed", "open", "shut"] {
            fs::create_dir_all(source.join(name)).unwrap();
            fs::write(source.join(name).join("file"), name).unwrap();
        }
        settle();
        let (first, _) = run(&bench, &source);
        assert_eq!(first.counts.unreadable, 0);
        // No access at all; names without access to what they name; access without names.
        mode(&source.join("closed"), 0o000);
        mode(&source.join("listed"), 0o444);
        mode(&source.join("shut"), 0o111);
        fs::write(source.join("open/new"), "new").unwrap();
        settle();
        let (second, monitor) = run(&bench, &source);
        let unreadable = |p: &str| (p.to_owned(), ProblemKind::Unreadable);
        assert_eq!(told(&monitor, &source), ["closed", "listed/file", "shut"].map(unreadable));
        assert_eq!(second.counts.unreadable, 3);
        let target = folder.join("target");
        let (_, monitor) = bench.restore(&second.snapshot.unwrap(), &source, &target);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!(fs::read(target.join("open/new")).unwrap(), b"new");
        for name in ["closed", "listed", "shut"] {
            mode(&target.join(name), 0o755);
            assert_eq!(fs::read_dir(target.join(name)).unwrap().count(), 0, "{name}");
            mode(&source.join(name), 0o755);
        }
        // Opened again, all of it is there again.
        settle();
        let (third, monitor) = run(&bench, &source);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        let target = folder.join("target-3");
        bench.restore(&third.snapshot.unwrap(), &source, &target);
        assert_eq!(differences(&source, &target), []);
    });
}

#[test]
fn a_repository_that_may_only_be_read_refuses_a_backup_and_gives_everything_back() {
    user::run("a_repository_that_may_only_be_read_refuses_a_backup_and_gives_everything_back", |folder| {
        let source = folder.join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "contents").unwrap();
        by_root(folder, &source);
        let folders = |with: u32| {
            let mut all = vec![folder.join("repository")];
            while let Some(dir) = all.pop() {
                mode(&dir, 0o755);
                all.extend(fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()));
                mode(&dir, with);
            }
        };
        folders(0o555);
        let (repository, cache) = open(folder);
        let refused = backup::backup(&repository, &cache, common::options(&[&source]), &Quiet::default());
        let Err(Error::Repo(drumlin_repo::Error::Store(e))) = refused else { panic!("{refused:?}") };
        assert_eq!(e.kind, drumlin_store::Kind::Refused, "{e}");
        assert!(e.name.starts_with("sessions/"), "{e}");
        let snapshot = repository.snapshots().unwrap().0.remove(0).snapshot;
        let options = common::restore_options(&snapshot, &folder.join("target"));
        let report = restore::restore(&repository, &cache, options, &Quiet::default()).unwrap();
        assert_eq!((report.counts.damaged, report.counts.unwritable), (0, 0));
        folders(0o755);
        let again = backup::backup(&repository, &cache, common::options(&[&source]), &Quiet::default()).unwrap();
        assert_eq!(again.counts.bytes_new, 0);
    });
}

#[test]
fn what_an_ordinary_user_could_not_read_root_reads_in_the_next_run() {
    const TEST: &str = "what_an_ordinary_user_could_not_read_root_reads_in_the_next_run";
    if let Some(folder) = user::folder() {
        let (repository, cache) = open(&folder);
        let monitor = Quiet::default();
        let source = folder.join("source");
        let report = backup::backup(&repository, &cache, common::options(&[&source]), &monitor).unwrap();
        let told: BTreeSet<_> = told(&monitor, &source).into_iter().map(|(path, _)| path).collect();
        assert_eq!(told, ["closed", "closed-file"].map(str::to_owned).into());
        assert_eq!(report.counts.unreadable, monitor.problems().len() as u64);
        return;
    }
    if user::needs_root(TEST) {
        return;
    }
    let folder = user::shared_folder();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("closed/in"), "in it").unwrap();
    fs::write(source.join("closed-file"), "contents").unwrap();
    for name in ["closed", "closed-file"] {
        let set = rustix::fs::setxattr(source.join(name), "user.note", b"kept", rustix::fs::XattrFlags::empty());
        set.unwrap();
    }
    mode(&source.join("closed"), 0o700);
    mode(&source.join("closed-file"), 0o600);
    settle();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    by_root(folder.path(), &empty);
    user::give(&folder.path().join("repository"));
    user::give(&folder.path().join("key"));
    user::again(TEST, folder.path());

    // Nothing has changed since, but this time all of it can be read.
    let (repository, cache) = open(folder.path());
    let monitor = Quiet::default();
    let report = backup::backup(&repository, &cache, common::options(&[&source]), &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert!(report.parent.is_some() && report.counts.unmodified > 0);
    let target = folder.path().join("target");
    let mut options = common::restore_options(&report.snapshot.unwrap(), &target);
    options.subfolder = Some(source.as_os_str().as_bytes().to_vec());
    restore::restore(&repository, &cache, options, &Quiet::default()).unwrap();
    assert_eq!(differences(&source, &target), []);
}

/// Rules of `forget` must not take a snapshot without it for one that has it.
#[test]
fn a_source_that_may_not_be_listed_counts_as_not_there() {
    user::run("a_source_that_may_not_be_listed_counts_as_not_there", |folder| {
        let bench = bench();
        let (closed, open) = (folder.join("closed"), folder.join("open"));
        fs::create_dir_all(closed.join("below")).unwrap();
        fs::create_dir_all(open.join("closed")).unwrap();
        mode(&closed, 0);
        mode(&open.join("closed"), 0);
        settle();
        let monitor = Quiet::default();
        let options = common::options(&[&closed, &open]);
        let report = backup::backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
        mode(&closed, 0o700);
        mode(&open.join("closed"), 0o700);
        let summary = report.snapshot.unwrap().summary;
        assert_eq!((summary.absent, summary.unreadable), (Some(1), 2), "{:?}", monitor.problems());
    });
}
