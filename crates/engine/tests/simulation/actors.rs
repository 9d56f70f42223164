//! Who takes part: writers, collectors, somebody who forgets and takes it back, readers and checkers. What they run are
//! the shipped operations, one after the other; one that is killed is started again.
//!
//! Another operation joins as one more [`Deed`].

use crate::base::Base;
use crate::book::{Book, Contents, no_cache};
use crate::machine;
use crate::world::{Client, Shared};
use drumlin_engine::backup::{self, Compression, Parent, Source, backup};
use drumlin_engine::check::{self, Part, check};
use drumlin_engine::monitor::ProblemKind;
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_engine::parity::{self, Shape};
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_engine::undelete::{self, undelete};
use drumlin_engine::{Error, Result};
use drumlin_format::SessionId;
use drumlin_host::filter::Filter;
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::history::Memory;
use drumlin_repo::{Cache, Error as RepoError, IndexMode, Repository};
use drumlin_store::{Kind, Store};
use drumlin_testkit::Rng;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Save some files, or a stream.
    Backup,
    /// Remove what nobody needs.
    Prune,
    /// Cover packs by parity across packs, or do without.
    Parity,
    /// Forget a snapshot or two.
    Forget,
    /// Have one back.
    Undelete,
    /// List all, read some and compare.
    Read,
    /// See whether all is sound.
    Check,
}

/// Somebody, and all that he has.
pub struct Actor<'a> {
    pub number: usize,
    pub deeds: Vec<Deed>,
    pub base: &'a Base,
    pub shared: Shared,
    pub book: Book,
    pub rng: Rng,
    /// His clock is off by up to so many seconds, either way.
    pub clock: i64,
    /// Where his cache is, if he keeps one from run to run.
    pub cache: Option<PathBuf>,
    pub scratch: PathBuf,
    /// What he has seen so far, if he remembers that.
    pub memory: Option<Arc<Memory>>,
    /// The files that he has saved last: their paths, what is in them, and by what tag.
    pub saved: Option<(Vec<Vec<u8>>, Contents, String)>,
}

/// A process of an actor.
struct Running {
    client: Client,
    repository: Repository,
    cache: Arc<Cache>,
}

impl Actor<'_> {
    /// Do all of it.
    pub fn run(mut self) {
        self.shared.turns().enter(self.number);
        let mut running = self.start();
        for deed in std::mem::take(&mut self.deeds) {
            if !running.client.alive() {
                running = self.start();
            }
            // Clocks are set, now and then, and not always forward.
            let offset = self.rng.below(2 * self.clock as usize + 1) as i64 - self.clock;
            machine::set_clock(self.number, offset);
            self.shared.note(self.number, || format!("{deed:?}"));
            let outcome = match deed {
                Deed::Backup => self.backup(&running),
                Deed::Prune => self.prune(&running),
                Deed::Parity => self.parity(&running),
                Deed::Forget => self.forget(&running),
                Deed::Undelete => self.undelete(&running),
                Deed::Read => self.read(&running),
                Deed::Check => self.check(&running),
            };
            self.shared.note(self.number, || match &outcome {
                Ok(()) => format!("{deed:?}: done"),
                Err(error) => format!("{deed:?}: {error}"),
            });
            self.count(deed, &outcome);
            self.look_back(&running);
            if let Err(error) = outcome
                && !self.is_fair(deed, &error, &running.client)
            {
                self.book.wrong(format!("{deed:?} of actor {} failed: {error} ({error:?})", self.number));
            }
        }
        self.shared.turns().leave(self.number);
    }

    fn start(&mut self) -> Running {
        let client = self.shared.process(self.number);
        let mut repository = self.base.open(Arc::new(client.clone()));
        if self.number.is_multiple_of(2) {
            let memory = self.memory.get_or_insert_with(|| Arc::new(Memory::open(&repository, None)));
            repository = repository.with_memory(memory.clone());
        }
        let cache = match &self.cache {
            Some(folder) => Arc::new(Cache::open(&repository, Some(folder), &self.scratch).unwrap()),
            None => no_cache(&repository, &self.scratch),
        };
        client.go();
        Running { client, repository, cache }
    }

    /// Sum up how it ended.
    fn count(&self, deed: Deed, outcome: &Result<()>) {
        match (deed, outcome) {
            (Deed::Read, Ok(())) => self.shared.count("readings", 1),
            (Deed::Check, Ok(())) => self.shared.count("checks", 1),
            (Deed::Backup, Err(Error::Repo(RepoError::Evicted))) => self.shared.count("backups evicted", 1),
            (Deed::Prune, Err(Error::Busy(_))) => self.shared.count("prunes in whose way somebody was", 1),
            (Deed::Undelete, Err(Error::Pruned { .. } | Error::Refused(_))) => {
                self.shared.count("undeletes refused", 1);
            }
            _ => {}
        }
    }

    /// The storage drops nothing here: whatever is gone was removed by somebody who said so.
    fn look_back(&self, running: &Running) {
        match running.repository.look_back(0, true) {
            Ok(missing) if !missing.is_empty() => self.book.wrong(format!("actor {} misses {missing}", self.number)),
            Ok(_) => {}
            Err(RepoError::Store(e)) if e.kind == Kind::Transient => {}
            Err(error) => self.book.wrong(format!("actor {} can't look back: {error}", self.number)),
        }
    }

    /// Whether an operation may end like this.
    fn is_fair(&self, deed: Deed, error: &Error, client: &Client) -> bool {
        match error {
            Error::Repo(RepoError::Store(e)) if e.kind == Kind::Transient => true,
            Error::Unsure { source: RepoError::Store(e), .. } if e.kind == Kind::Transient => true,
            Error::Repo(RepoError::Unexplained(_)) => false,
            Error::Repo(RepoError::Evicted) => matches!(deed, Deed::Backup),
            Error::Busy(_) => matches!(deed, Deed::Prune | Deed::Parity),
            Error::Interrupted => deed == Deed::Backup,
            Error::Pruned { .. } | Error::Refused(_) if deed == Deed::Undelete => true,
            // What it was to be compared with isn't there, or a plan doesn't admit it.
            Error::NoSnapshot(_) => deed == Deed::Backup,
            Error::Repo(RepoError::NoSnapshot(_)) => deed == Deed::Forget,
            // Prunes never let it come to an end.
            Error::Changing => deed == Deed::Check,
            // Who was evicted may find anything gone that he wants.
            _ => !matches!(deed, Deed::Read | Deed::Forget | Deed::Check) && client.was_evicted(),
        }
    }

    fn watch<'w>(&mut self, client: &'w Client, stops: bool) -> Watch<'w> {
        let stop_at = if stops && self.rng.one_in(4) { client.calls() + self.rng.below(60) as u64 } else { u64::MAX };
        Watch { counters: Counters::default(), problems: Mutex::default(), client, stop_at }
    }

    fn backup(&mut self, running: &Running) -> Result<()> {
        // The same once more, which makes no snapshot unless the files have other times by now or the last one is gone.
        let again = self.saved.clone().filter(|_| self.rng.one_in(2));
        let skip_unchanged = again.is_some();
        let (source, contents) = match &again {
            Some((paths, contents, _)) => (files_of(paths), contents.clone()),
            None if self.rng.one_in(3) => self.stream(),
            None => self.files(),
        };
        let paths = match &source {
            Source::Paths { paths, .. } => Some(paths.clone()),
            Source::Stream { .. } => None,
        };
        let tag = again.map_or_else(|| self.book.begins(contents.clone()), |(_, _, tag)| tag);
        let parent = match self.rng.below(4) {
            _ if skip_unchanged => Parent::Latest,
            0 => Parent::None,
            1 => match running.repository.snapshots()?.0.last() {
                Some(info) => Parent::Id(info.snapshot.id),
                None => Parent::None,
            },
            _ => Parent::Latest,
        };
        let options = backup::Options {
            source,
            // Two of them are one machine to the repository.
            host: format!("host{}", self.number / 2),
            user: "user".into(),
            tags: vec![tag.clone()],
            time: None,
            parent,
            force: self.rng.one_in(8),
            compression: Compression::Level(1),
            workers: 1,
            walkers: 1.into(),
            late: drumlin_engine::LATE,
            memory: 8 << 20,
            index: if self.rng.one_in(4) { IndexMode::Sparse } else { IndexMode::Exact },
            checkpoint_bytes: if self.rng.one_in(3) { 6000 } else { 0 },
            skip_unchanged,
            program: "simulation".into(),
        };
        self.shared.note(self.number, || format!("saves {tag}, compared with {:?}", options.parent));
        let watch = self.watch(&running.client, true);
        let outcome = backup(&running.repository, &running.cache, options, &watch);
        self.watched(&watch, Deed::Backup);
        match outcome {
            Ok(report) => {
                match report.snapshot {
                    Some(snapshot) => {
                        self.shared.note(self.number, || format!("{tag} is {}", snapshot.id));
                        self.book.committed(snapshot.id);
                        self.shared.count("backups committed", 1);
                        self.shared.count("backups stopped", u64::from(report.stopped));
                        self.saved = paths.filter(|_| !report.stopped).map(|paths| (paths, contents, tag));
                    }
                    // He relies on the other one from now on.
                    None => match report.parent.filter(|parent| parent.tags == [tag.clone()]) {
                        Some(parent) => {
                            self.shared.note(self.number, || format!("{tag} has been saved as {}", parent.id));
                            self.book.committed(parent.id);
                            self.shared.count("backups skipped", 1);
                        }
                        None => self.book.wrong(format!("{tag} was skipped, and the snapshot before is another")),
                    },
                }
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::Repo(RepoError::Evicted)) {
                    // By flags both may have put theirs: then it counts all the same, and is as whole as any.
                    // A tag that was used before is another snapshot's as well.
                    if !skip_unchanged && running.client.creates_atomically().unwrap_or(true) {
                        self.book.evicted(&tag);
                    }
                }
                Err(error)
            }
        }
    }

    fn files(&mut self) -> (Source, Contents) {
        let few = 1 + self.rng.below(5);
        let chosen: std::collections::BTreeSet<usize> =
            (0..few).map(|_| self.rng.below(self.base.files.len())).collect();
        if self.rng.one_in(2) {
            self.base.touch(2 + self.rng.below(1 << 30) as u64);
        }
        let files = chosen.iter().map(|at| &self.base.files[*at]);
        let paths: Vec<_> = files.clone().map(|f| f.path.clone().into_bytes()).collect();
        let contents = files.map(|f| (f.path.trim_start_matches('/').to_owned(), f.bytes.clone())).collect();
        (files_of(&paths), contents)
    }

    /// Parts that others have too, and some that nobody has.
    fn stream(&mut self) -> (Source, Contents) {
        let mut bytes = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            match self.rng.pick(&self.base.files) {
                Some(file) if !self.rng.one_in(3) => bytes.extend_from_slice(&file.bytes),
                _ => {
                    let len = 1 + self.rng.below(5000);
                    bytes.extend_from_slice(&self.rng.bytes(len));
                }
            }
        }
        let name = "stream".to_owned();
        let reader = Box::new(std::io::Cursor::new(bytes.clone()));
        let source = Source::Stream { name: name.clone().into_bytes(), reader, outcome: Box::new(|| Ok(())) };
        (source, [(name, Arc::new(bytes))].into())
    }

    /// Whom to take for dead.
    fn dead(&mut self, running: &Running) -> Result<Vec<SessionId>> {
        let dead = self.shared.dead_sessions();
        let mut evict = Vec::new();
        // Somebody who has waited for long enough: that those who live are not dead nobody can know.
        let harsh = self.rng.one_in(2);
        for id in Desk::new(&running.repository).sessions()? {
            if dead.contains(&id.to_string()) || harsh {
                evict.push(id);
            }
        }
        Ok(evict)
    }

    fn parity(&mut self, running: &Running) -> Result<()> {
        let shapes = [None, Some(Shape { seats: 3, rows: 1 }), Some(Shape { seats: 5, rows: 2 })];
        let options = parity::Options {
            host: "host".into(),
            shape: self.rng.pick(&shapes).copied().flatten(),
            spoiled: HashSet::new(),
            evict: self.dead(running)?,
            evict_after: Duration::from_secs(1 << 40),
            workers: 1,
        };
        let watch = self.watch(&running.client, false);
        let outcome = match self.rng.one_in(8) {
            true => parity::off(&running.repository, &running.cache, &options, false, &watch),
            false => parity::cover(&running.repository, &running.cache, &options, &watch),
        };
        self.shared.note(self.number, || format!("{outcome:?}"));
        self.watched(&watch, Deed::Parity);
        if let Ok(report) = &outcome {
            self.shared.count("bands made", report.made);
            self.shared.count("recovery objects removed", report.removed.objects);
        }
        outcome.map(drop)
    }

    fn prune(&mut self, running: &Running) -> Result<()> {
        let evict = self.dead(running)?;
        let options = prune_options(&mut self.rng, evict);
        self.shared.note(self.number, || format!("evicts {:?}", options.evict));
        let watch = self.watch(&running.client, false);
        let outcome = prune(&running.repository, &running.cache, &options, &watch);
        self.watched(&watch, Deed::Prune);
        if let Ok(report) = &outcome {
            let survey = report.survey.unwrap_or_default();
            self.shared.count("packs removed", report.gone.packs);
            self.shared.count("packs repacked", survey.repacked.packs);
            self.shared.count("orphans found", survey.orphans.packs);
        }
        outcome.map(drop)
    }

    fn forget(&mut self, running: &Running) -> Result<()> {
        let (infos, _) = running.repository.snapshots()?;
        let closed: Vec<_> = infos.iter().filter(|info| !info.open_session).map(|info| info.snapshot.id).collect();
        let mut ids = Vec::new();
        for _ in 0..1 + self.rng.below(2) {
            ids.extend(self.rng.pick(&closed).copied().filter(|id| !ids.contains(id)));
        }
        ids.iter().for_each(|id| self.book.forgets(*id));
        self.shared.note(self.number, || format!("forgets {ids:?}"));
        running.repository.forget(&ids)?;
        self.shared.count("snapshots forgotten", ids.len() as u64);
        Ok(())
    }

    fn undelete(&mut self, running: &Running) -> Result<()> {
        let (infos, _) = running.repository.forgotten()?;
        let Some(forgotten) = self.rng.pick(&infos).cloned() else { return Ok(()) };
        let options =
            undelete::Options { forgotten, host: format!("host{}", self.number), workers: 1, now: machine::EPOCH };
        let report = undelete(&running.repository, &running.cache, &options, &Quiet::default())?;
        self.shared.note(self.number, || format!("{} is {} now", options.forgotten.snapshot.id, report.snapshot.id));
        self.book.committed(report.snapshot.id);
        self.shared.count("snapshots had back", 1);
        Ok(())
    }

    fn read(&mut self, running: &Running) -> Result<()> {
        let rng = &mut self.rng;
        self.book.compare(&running.repository, &running.cache, |_| rng.one_in(2)).map(drop)
    }

    /// Nothing here is ever damaged: whatever it finds is wrong.
    fn check(&mut self, running: &Running) -> Result<()> {
        let read = self.rng.one_in(2).then_some(Part::All);
        let options = check::Options { read, workers: 1 };
        let watch = self.watch(&running.client, false);
        let report = check(&running.repository, &running.cache, options, &watch)?;
        if !report.findings.is_empty() {
            self.book.wrong(format!("actor {} is told of damage: {:?}", self.number, report.findings));
        }
        Ok(())
    }

    fn watched(&self, watch: &Watch, deed: Deed) {
        let mut problems = watch.problems.lock().unwrap();
        // A backup that was evicted in its sleep finds the tree before it gone, and starts over in a session of its
        // own.
        problems.retain(|problem| problem.kind != ProblemKind::Vanished || problem.path != b"/");
        // Of a stream without a byte it is told.
        problems.retain(|problem| problem.path != b"stream" || !problem.cause.contains("nothing came"));
        if !problems.is_empty() && !watch.client.was_evicted() && watch.client.alive() {
            self.book.wrong(format!("{deed:?} of actor {} had trouble: {problems:?}", self.number));
        }
    }
}

fn files_of(paths: &[Vec<u8>]) -> Source {
    Source::Paths { paths: paths.to_vec(), filter: Arc::new(Filter::none()), one_file_system: false }
}

/// Some way to prune.
pub fn prune_options(rng: &mut Rng, evict: Vec<SessionId>) -> prune::Options {
    prune::Options {
        host: "host".into(),
        max_unused: match rng.below(3) {
            0 => Unused::Bytes(0),
            1 => Unused::Percent(5.0),
            _ => Unused::Unlimited,
        },
        max_repack: rng.one_in(4).then(|| rng.below(20_000) as u64),
        max_rekey: Unused::Percent(5.0),
        allow_remove_all: true,
        wait: Duration::ZERO,
        evict,
        evict_after: Duration::from_secs(1 << 40),
        workers: 1,
    }
}

/// Watches an operation, and stops it once its process has made so many calls.
struct Watch<'a> {
    counters: Counters,
    problems: Mutex<Vec<Problem>>,
    client: &'a Client,
    stop_at: u64,
}

impl Monitor for Watch<'_> {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        self.problems.lock().unwrap().push(problem.clone());
    }

    fn stop(&self) -> bool {
        self.client.calls() >= self.stop_at
    }
}
