//! Is the repository sound? And if not: which objects are damaged, and what does that touch?
//!
//! The *structure* is everything but the contents of data packs: config, keys, sessions, decisions, plans, snapshots,
//! index objects, that each pack which they name is there and as long as they say, and every node of every tree with
//! all that it refers to. *Reading* goes through packs as a whole, or through a part of them.
//!
//! A check registers no session, writes nothing to the repository, and may run beside backups and prunes. What a prune
//! removes meanwhile is no damage: whatever is missing is called so only if the index objects that name it still stand.

mod bad;
mod bands;
mod context;
mod finding;
mod nodes;
mod packs;
mod read;
mod rotation;
mod run;
mod signers;
mod small;
mod touch;
mod trees;

pub use finding::{CAUSES_MAX, Finding, ObjectKind, PATHS_MAX, Touched, TouchedSnapshot};
pub use packs::Leftover;
pub use rotation::Part;

use crate::monitor::Monitor;
use crate::parity::Objects;
use crate::{Error, Result};
use context::Context;
use drumlin_repo::history::Missing;
use drumlin_repo::{Cache, Repository};
use finding::Findings;
use std::sync::Arc;
use std::time::Instant;

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which part of the packs to read as a whole; none if `None`.
    pub read: Option<Part>,
    /// Threads.
    pub workers: usize,
}

/// What a check has looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is not as it should be: by kind, then by name.
    pub findings: Vec<Finding>,
    /// Snapshots whose trees were walked.
    pub snapshots: u64,
    /// Entries of their trees, those that several share once.
    pub entries: u64,
    /// Nodes of their trees, each once.
    pub nodes: u64,
    /// References to chunks of contents that were looked up.
    pub chunks: u64,
    /// How often the index had to be asked for those.
    pub lookups: u64,
    /// Index objects.
    pub index_objects: u64,
    /// Packs that they name.
    pub packs: u64,
    /// Their bytes.
    pub pack_bytes: u64,
    /// Packs that none names: of a backup at work, or left by a run that was cut short.
    pub leftover: Leftover,
    /// The config and key objects that have no copy, as older programs made none.
    pub lacking_copies: u64,
    /// Sessions that are registered: at work, or left by a crash.
    pub open_sessions: u64,
    /// Parity across packs, if there is any.
    pub parity: Option<Parity>,
    /// What was read of packs, if that was asked for.
    pub read: Option<ReadReport>,
    /// What the key in use kept from being checked.
    pub limits: Vec<Limit>,
    /// What this client has seen and is gone by nobody's word; it is among the findings.
    pub missing: Missing,
    /// The user wanted an end before all was looked at. What the damage touches is not told then.
    pub stopped: bool,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

/// Parity across packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parity {
    /// Bands that cover packs: all of their objects are there, and all of their packs.
    pub bands: u64,
    /// All recovery objects.
    pub objects: Objects,
    /// Those of bands that somebody is about to make or to remove, or was when he was killed.
    pub unfinished: Objects,
    /// Packs that are there and covered.
    pub covered: Leftover,
    /// Packs that are there and not covered.
    pub uncovered: Leftover,
    /// Recovery objects that were read as a whole, if that was asked for.
    pub read: Option<Objects>,
}

/// What was read of packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Packs that were read.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packs that a run which was stopped had read before, and this one went on from.
    pub packs_before: u64,
    /// Their bytes.
    pub bytes_before: u64,
    /// Packs that there are to read.
    pub packs_total: u64,
    /// Their bytes.
    pub bytes_total: u64,
}

/// What a role can't check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Snapshots and trees: a writer reads none.
    Trees,
    /// Blocks of tree packs, where packs are read: only what is around them was checked.
    TreeBlocks,
    /// Blocks of data packs, likewise.
    DataBlocks,
}

/// So often a check begins again because a prune has changed what it looked at.
const TRIES: usize = 4;

/// Check a repository. What is damaged is in the report.
///
/// # Errors
/// What concerns the storage as a whole; [`Error::Changing`] if prunes never let it come to an end. A share of the
/// packs ([`Part::Share`]) can't be read without a cache that remembers which were read.
pub fn check(repository: &Repository, cache: &Arc<Cache>, options: Options, monitor: &dyn Monitor) -> Result<Report> {
    let start = Instant::now();
    if matches!(options.read, Some(Part::Share(_))) && cache.folder().is_none() {
        let detail = "which packs were read longest ago is remembered in the cache, and there is no cache; read parts by their \
                      number, such as 1/10";
        return Err(drumlin_repo::Error::Misuse(detail.into()).into());
    }
    for _ in 0..TRIES {
        let findings = Findings::default();
        let context = Context { repository, findings: &findings, monitor, workers: options.workers.max(1) };
        let mut report = Report::default();
        match run::run(&context, cache, options.read, &mut report) {
            Ok(run::Ended::Done) => {}
            Ok(run::Ended::Changed) => continue,
            Err(Error::Interrupted) => report.stopped = true,
            Err(e) => return Err(e),
        }
        report.findings = findings.finish();
        report.millis = start.elapsed().as_millis() as u64;
        return Ok(report);
    }
    Err(Error::Changing)
}
