//! A snapshot's copy from its session to its commit.

use super::base::Base;
use super::build::Builder;
use super::tree::Copy;
use super::worker::{Shared, Worker};
use super::{Copier, Report};
use crate::backup::{Level, is_worth_naming};
use crate::monitor::{Monitor, add};
use crate::threads;
use crate::{Error, Result, convert};
use crossbeam_channel::{bounded, unbounded};
use drumlin_format::SnapshotId;
use drumlin_format::session::purpose;
use drumlin_format::snapshot::{Root, Snapshot};
use drumlin_format::tree::Boundaries;
use drumlin_repo::collection::{Known, Registration};
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::Nodes;
use drumlin_repo::{Error as RepoError, Index, SnapshotInfo, Trust, WriteSession, names, random_id};
use std::sync::Arc;

/// A snapshot of the source and its copy.
struct Pair {
    source: Snapshot,
    target: Snapshot,
}

impl Copier {
    /// Copy a snapshot. `others` are the source's snapshots, among which one that was copied before is looked for.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Refused`] for a snapshot that no known key has signed, and if the target is
    /// damaged; [`Error::Hollow`]; [`Error::Copied`]; whatever either storage says, except for damage in the source,
    /// which is told to the monitor. Then there is no copy.
    pub fn copy(&mut self, snapshot: &SnapshotInfo, others: &[SnapshotInfo], monitor: &dyn Monitor) -> Result<Report> {
        let SnapshotInfo { snapshot, trust, .. } = snapshot;
        // It would bear our signature from now on.
        if matches!(trust, Trust::Unknown(_)) {
            let why = "no known key has signed it, and it would count as signed by yours";
            return Err(Error::Refused(format!("snapshot {} can't be copied: {why}", snapshot.id)));
        }
        let before = monitor.counters().get();
        let outcome = match self.attempt(snapshot, others, monitor, true) {
            // What the copy before refers to was sealed anew since, by somebody whose keys this key doesn't have.
            Err(Error::Repo(RepoError::NotAllowed { .. })) if !monitor.stop() => {
                monitor.counters().set(&before);
                self.attempt(snapshot, others, monitor, false)
            }
            outcome => outcome,
        };
        outcome.map_err(|e| match e {
            // All damage of the source is told and passed over: this is the target's, where a copy was to be taken
            // over. What is damaged there counts as stored, so that a copy made without that one would refer to it as
            // well.
            Error::Repo(e) if e.is_damage() && !e.is_unread() => Error::Refused(format!(
                "what snapshot {} would share with earlier copies is damaged in the target, so nothing was copied: {e}",
                snapshot.id
            )),
            other => other,
        })
    }

    /// `beside`: whether what an earlier copy has is taken over from it.
    fn attempt(
        &mut self,
        snapshot: &Snapshot,
        others: &[SnapshotInfo],
        monitor: &dyn Monitor,
        beside: bool,
    ) -> Result<Report> {
        let session = convert::session(&self.options.host, purpose::COPY, self.options.now);
        // Before anything is looked at that may be referred to: `docs/collection.md`.
        let registration = Registration::begin(&self.target.repository, session)?;
        let known = registration.known().clone();
        let cache = &self.target.cache;
        let looked = Index::open_for(&registration, cache.clone(), self.options.index).map_err(Error::from);
        let looked = looked.and_then(|index| {
            let pair = match beside && self.target.repository.loss_ids()?.is_empty() {
                true => self.pair(snapshot, others, &known)?,
                // What was lost there may be in any copy: all is read, and what is missing is stored again.
                false => None,
            };
            let parent = match snapshot.parent.and_then(|id| others.iter().find(|o| o.snapshot.id == id)) {
                Some(parent) => self.copies.of(&self.target, &parent.snapshot)?.map(|copy| copy.id),
                None => None,
            };
            Ok((Arc::new(index), pair, parent))
        });
        let (index, pair, parent) = match looked {
            Ok(looked) => looked,
            Err(e) => {
                let _ = registration.abandon();
                return Err(e);
            }
        };
        let session = Arc::new(WriteSession::begin(registration, index.clone(), cache.clone()));
        let damaged = monitor.counters().get().damaged;
        let root = self.tree(&session, index, snapshot.root, pair.as_ref(), monitor);
        let session = Arc::try_unwrap(session).map_err(|_| Error::Worker)?;
        let flushed = root.and_then(|root| session.flush().map(|()| root).map_err(Error::from));
        let flushed =
            flushed.and_then(|root| match monitor.counters().get().damaged > damaged && self.is_gone(snapshot)? {
                // What looked damaged was pruned: it would pass for whole, under the name of one that nobody can copy
                // again.
                true => Err(Error::Refused(format!(
                    "snapshot {} was forgotten and pruned while it was copied, and nothing of it was copied",
                    snapshot.id
                ))),
                false if snapshot.root.is_some() && root.is_none() => Err(Error::Hollow(snapshot.id)),
                false => self.is_copied(snapshot).and_then(|is_there| match is_there {
                    true => Err(Error::Copied(snapshot.id)),
                    false => Ok(root),
                }),
            });
        let lost = monitor.counters().get().damaged - damaged;
        let root = match flushed {
            Ok(root) => root,
            Err(e) => {
                // What was stored so far is found by whoever goes on. No snapshot refers to it.
                if is_worth_naming(&e) {
                    let _ = session.name_finished(!(monitor.stop() && self.target.repository.store().is_far()));
                }
                let _ = session.abandon();
                return Err(e);
            }
        };
        let mut summary = snapshot.summary;
        // Whoever deletes what a snapshot doesn't have goes by this.
        summary.unreadable += lost;
        let copy = Snapshot {
            id: SnapshotId(random_id()?),
            session: session.id(),
            summary,
            root,
            parent,
            plans: known.ids(),
            original: Some(snapshot.first_id()),
            ..snapshot.clone()
        };
        session.expect_snapshot(&copy);
        let indexes = session.indexes();
        // If this fails the snapshot may yet appear: its session stays, and protects what it refers to.
        session.put_snapshot(&copy).and_then(|()| session.commit(copy.id)).map_err(|e| match e {
            RepoError::Evicted => {
                Error::Refused("a prune stopped waiting for this copy, which had stood still; run it again".into())
            }
            other => other.into(),
        })?;
        self.copies.add(&self.target, &copy);
        Ok(Report { snapshot: copy, indexes, beside: pair.map(|pair| pair.source) })
    }

    /// Whether another run has copied it since this one began: two copies of it would count as two snapshots.
    fn is_copied(&mut self, snapshot: &Snapshot) -> Result<bool> {
        let new = self.copies.renew(&self.target)?;
        Ok(!new.is_empty() && self.copies.of(&self.target, snapshot)?.is_some_and(|copy| new.contains(&copy.id)))
    }

    /// Whether the source has a snapshot no more.
    fn is_gone(&self, snapshot: &Snapshot) -> Result<bool> {
        let name = names::snapshot(snapshot.id);
        Ok(self.source.repository.store().len(&name).map_err(RepoError::from)?.is_none())
    }

    /// The snapshot of which most is alike, and its copy: the parent, else the newest older one of the same host and
    /// sources. The copy must be one that all plans admit, and have all entries.
    fn pair(&self, snapshot: &Snapshot, others: &[SnapshotInfo], known: &Known) -> Result<Option<Pair>> {
        let parent = others.iter().filter(|other| Some(other.snapshot.id) == snapshot.parent);
        let like = others.iter().rev().filter(|other| {
            let other = &other.snapshot;
            (other.time, other.id) < (snapshot.time, snapshot.id)
                && (&other.host, &other.paths) == (&snapshot.host, &snapshot.paths)
        });
        for other in parent.chain(like).filter(|other| matches!(other.trust, Trust::Signed(_))) {
            let Some(copy) = self.copies.of(&self.target, &other.snapshot)? else { continue };
            let sums = |s: &Snapshot| s.root.map(|root| root.sums);
            if known.admits(&copy) && sums(&copy) == sums(&other.snapshot) {
                return Ok(Some(Pair { source: other.snapshot.clone(), target: copy }));
            }
        }
        Ok(None)
    }

    /// Write the tree.
    fn tree(
        &self,
        session: &Arc<WriteSession>,
        index: Arc<Index>,
        root: Option<Root>,
        pair: Option<&Pair>,
        monitor: &dyn Monitor,
    ) -> Result<Option<Root>> {
        let target = &self.target.repository;
        if let Some(root) = root {
            add(&monitor.counters().expected_entries, root.sums.entries);
            add(&monitor.counters().expected_bytes, root.sums.bytes);
        }
        let workers = self.options.workers.max(1);
        let reader = Reader::new(target.clone(), index, self.target.cache.clone(), self.options.memory / 24);
        let reader = Arc::new(reader);
        let shared = Shared::new(
            self.reader.clone(),
            session.clone(),
            (self.source.repository.data_ids()?.clone(), target.data_ids()?.clone()),
            Level::new(self.options.compression),
            monitor,
            target.config().block_bytes as usize,
        );
        let cutting = target.secrets().cutting.as_ref().ok_or(Error::Worker)?;
        let tree_ids = target.tree_ids().cloned().ok_or(Error::Worker)?;
        let nodes = Nodes::new(session.clone(), tree_ids)?;
        let builder = Builder::new(monitor, reader.clone(), Boundaries::new(cutting), nodes);
        let before = pair.map(|pair| (pair.source.root, Base::new(&reader, pair.target.root)));
        let (jobs, jobs_in) = bounded(2 * workers);
        let (done_out, done) = unbounded();
        std::thread::scope(|scope| {
            let started = threads::start(scope, "worker", workers, || {
                let worker = Worker::new(&shared)?;
                let (jobs, done) = (jobs_in.clone(), done_out.clone());
                Ok(move || worker.run(&jobs, &done))
            })?;
            // With the workers gone their channel ends. As for a panic among several, see the crate's documentation.
            drop((jobs_in, done_out));
            Copy::new(&shared, root, builder, (jobs, done), started).run(before)
        })
    }
}
