//! Listings that take their time: what goes meanwhile isn't in them, and what comes may be.

use crate::common::{bench, options};
use crate::{restores, source};
use drumlin_engine::backup::{self, Parent};
use drumlin_engine::monitor::Quiet;
use drumlin_format::decision::Verdict;
use drumlin_format::session::Session;
use drumlin_format::{PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Desk, Flag, commit};
use drumlin_repo::{Cache, Repository, Unlock, names, random_id};
use drumlin_store::{Listed, Look, MemoryStore, Put, Result, Store, Upload};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A storage in which something happens while a folder is listed: once.
struct Slow {
    memory: MemoryStore,
    atomic: bool,
    meanwhile: Mutex<Option<(&'static str, Meanwhile)>>,
    /// Of what comes meanwhile, the ends of the names that are listed.
    sees: Option<&'static str>,
    /// What happens right after something was looked at behind a put, and what was seen.
    after_looking: Mutex<Option<Meanwhile>>,
    seen: Mutex<HashMap<String, Vec<Listed>>>,
}

impl Slow {
    fn new(memory: &MemoryStore, atomic: bool) -> Self {
        Slow {
            memory: memory.clone(),
            atomic,
            meanwhile: Mutex::default(),
            sees: None,
            after_looking: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    fn while_listing(&self, folder: &'static str, meanwhile: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some((folder, Box::new(meanwhile)));
    }

    fn is_over(&self) -> bool {
        self.meanwhile.lock().unwrap().is_none()
    }
}

impl Store for Slow {
    fn location(&self) -> String {
        self.memory.location()
    }
    fn creates_atomically(&self) -> Result<bool> {
        Ok(self.atomic)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        if let Some(seen) = self.seen.lock().unwrap().remove(prefix) {
            seen.into_iter().for_each(each);
            return Ok(());
        }
        let meanwhile = self.meanwhile.lock().unwrap().take_if(|(folder, _)| *folder == prefix);
        let Some((_, meanwhile)) = meanwhile else { return self.memory.list(prefix, each) };
        let mut before = HashSet::new();
        self.memory.list(prefix, &mut |listed| _ = before.insert(listed.name))?;
        meanwhile();
        self.memory.list(prefix, &mut |listed| {
            if before.contains(&listed.name) || self.sees.is_some_and(|end| listed.name.ends_with(end)) {
                each(listed);
            }
        })
    }
    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.memory.len(name)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.memory.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.memory.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.memory.put(name, bytes, if self.atomic { how } else { Put::Replace })
    }
    fn put_and_look(&self, name: &str, bytes: &[u8], looks: &[Look<'_>]) -> Result<()> {
        self.put(name, bytes, Put::Create)?;
        let Some(then) = self.after_looking.lock().unwrap().take() else { return Ok(()) };
        for look in looks {
            let (Look::Empty(folder) | Look::Listing(folder) | Look::InOrder(folder)) = *look else { continue };
            let mut objects = Vec::new();
            self.memory.list(folder, &mut |listed| objects.push(listed))?;
            let is_over = matches!(look, Look::Empty(_)) && !objects.is_empty();
            self.seen.lock().unwrap().insert(folder.to_owned(), objects);
            if is_over {
                break;
            }
        }
        then();
        Ok(())
    }
    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        self.memory.upload(name, len_hint)
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.memory.delete(name)
    }
    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }
}

/// A collector has claimed a session, and evicts it while its writer looks whether anybody has.
#[test]
fn a_claim_that_becomes_an_eviction_while_flags_are_listed_is_seen() {
    let bench = bench();
    let slow = Arc::new(Slow::new(&bench.memory, false));
    let repository = Repository::open(slow.clone(), &Unlock::File(bench.key_file())).unwrap();
    let (session, by) = (SessionId(random_id().unwrap()), SessionId(random_id().unwrap()));
    let desk = Desk::of(&repository, Session::new("host", "backup", 0));
    desk.put_session(session).unwrap();
    desk.replace(Flag::Claim(session, by), &Verdict::Claimed { by }).unwrap();
    let collector = repository.clone();
    slow.while_listing(names::DECISIONS, move || {
        let desk = Desk::new(&collector);
        desk.replace(Flag::Evicted(session), &Verdict::Evicted { plan: 0 }).unwrap();
        desk.remove_session(session).unwrap();
        desk.remove(Flag::Claim(session, by)).unwrap();
    });
    let snapshot = SnapshotId(random_id().unwrap());
    assert!(!commit(&desk, session, &Verdict::Committed { snapshot }).unwrap(), "evicted, and not told");
    assert!(slow.is_over());
}

/// Who looks while a session commits, and is evicted then, doesn't see the latter alone: it would take a plan for void
/// that somebody carries out.
#[test]
fn an_eviction_is_not_seen_without_the_commit_before_it() {
    // One that came while it was listed may be in the listing, or be found by its name.
    for sees in [Some(".evicted"), None] {
        let bench = bench();
        let slow = Arc::new(Slow { sees, ..Slow::new(&bench.memory, false) });
        let repository = Repository::open(slow.clone(), &Unlock::File(bench.key_file())).unwrap();
        let session = SessionId(random_id().unwrap());
        let other = repository.clone();
        slow.while_listing(names::DECISIONS, move || {
            let desk = Desk::new(&other);
            let snapshot = SnapshotId(random_id().unwrap());
            desk.replace(Flag::Commit(session), &Verdict::Committed { snapshot }).unwrap();
            desk.replace(Flag::Evicted(session), &Verdict::Evicted { plan: 0 }).unwrap();
        });
        let flags: HashSet<Flag> = Desk::new(&repository).flags(session).unwrap().into_iter().collect();
        assert_eq!(flags, [Flag::Commit(session), Flag::Evicted(session)].into(), "{sees:?}");
    }
}

/// A plan stands when a writer has put its session, and is carried out before the writer reads it: it can't know then
/// what was condemned, so the index has to be looked at after that, not along with the listing in which the plan was.
#[test]
fn an_index_that_was_seen_while_a_plan_stood_is_not_believed() {
    let bench = bench();
    let source = source(&bench, "source", 8);
    bench.backup(&source);
    let slow = Arc::new(Slow::new(&bench.memory, true));
    let repository = Repository::open(slow.clone(), &Unlock::File(bench.key_file())).unwrap();
    bench.memory.put(&names::plan(PlanId([3; 16])), b"as good as gone", Put::Create).unwrap();
    let memory = bench.memory.clone();
    *slow.after_looking.lock().unwrap() = Some(Box::new(move || {
        for folder in [names::SNAPSHOTS, names::INDEX, names::DATA, names::TREE, names::PLANS] {
            let mut names = Vec::new();
            memory.list(folder, &mut |listed| names.push(listed.name)).unwrap();
            names.iter().for_each(|name| memory.delete(name).unwrap());
        }
    }));
    // It has the index objects in its cache, and needn't read them.
    let options = backup::Options { parent: Parent::None, ..options(&[&source]) };
    let report = backup::backup(&repository, &bench.cache, options, &Quiet::default()).unwrap();
    assert!(slow.after_looking.lock().unwrap().is_none());
    assert!(report.counts.bytes_new > 900_000, "refers to what is gone");
    restores(&bench, &report, &source);
}

/// Another backup of the same, which ends between the listing of the index and that of the snapshots, is compared with
/// all the same: the index is listed once more.
#[test]
fn a_backup_that_ends_after_the_index_was_listed_is_compared_with() {
    let bench = bench();
    let source = source(&bench, "source", 9);
    let slow = Arc::new(Slow::new(&bench.memory, true));
    let repository = Repository::open(slow.clone(), &Unlock::File(bench.key_file())).unwrap();
    let cache = |name: &str| {
        let folder = bench.folder.path().join(name);
        Arc::new(Cache::open(&repository, Some(&folder), bench.folder.path()).unwrap())
    };
    let (other, others_cache, of_other) = (bench.repository.clone(), cache("others"), options(&[&source]));
    slow.while_listing(names::INDEX, move || {
        backup::backup(&other, &others_cache, of_other, &Quiet::default()).unwrap();
    });
    let monitor = Quiet::default();
    let options = backup::Options { parent: Parent::Latest, ..options(&[&source]) };
    let report = backup::backup(&repository, &cache("own"), options, &monitor).unwrap();
    assert!(slow.is_over());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!((report.counts.unmodified, report.counts.bytes_new), (report.counts.entries, 0), "all was read again");
    restores(&bench, &report, &source);
}
