//! Sessions, decisions, plans, losses, entries of the history and snapshots: each is opened, and whose word it is
//! compared with the certificates.

use super::context::{Context, Read};
use super::finding::ObjectKind;
use super::signers::Signers;
use crate::Result;
use drumlin_format::decision::{self, Verdict};
use drumlin_format::history::Entry;
use drumlin_format::key::Role;
use drumlin_format::loss::Loss;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::snapshot::{self, Root};
use drumlin_format::{HistoryId, LossId, PlanId, SessionId, Signer, SnapshotId};
use drumlin_repo::history::Missing;
use drumlin_repo::{may_decide, names};
use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// The sessions that a check has to know of.
#[derive(Default)]
pub(super) struct Sessions {
    /// Nothing of them counts.
    pub evicted: HashSet<SessionId>,
    /// At work, or left by a crash.
    pub open: u64,
}

/// A snapshot whose tree is to be checked.
pub(super) struct Tree {
    /// The snapshot.
    pub id: SnapshotId,
    /// Its root; `None` if it is empty.
    pub root: Option<Root>,
    time: (i64, u32),
}

/// Whether a key of this role makes packs, index objects and sessions.
pub(super) fn writes(role: Role) -> bool {
    matches!(role, Role::Owner | Role::Writer | Role::Keeper)
}

/// Whether a key of this role forgets, prunes and repairs.
fn collects(role: Role) -> bool {
    matches!(role, Role::Owner | Role::Keeper)
}

/// Check sessions, decisions, plans, losses and entries of the history.
pub(super) fn sessions(context: &Context, signers: &Signers) -> Result<Sessions> {
    let (findings, secrets) = (context.findings, context.repository.secrets());
    let mut sessions = Sessions::default();
    let named = |id| (ObjectKind::Session, names::session(id));
    sessions.open = signed(context, signers, (names::SESSIONS, SessionId::parse), named, writes, |id, bytes| {
        Session::open(id, secrets, bytes).map(|(_, signer)| signer)
    })?;
    let decisions = context.list(names::DECISIONS, |name| Some((names::decided_on(name)?, name.to_owned())))?;
    for ((session, name), _) in decisions {
        let about = (ObjectKind::Decision, &format!("{}/{name}", names::DECISIONS)[..]);
        let Some(bytes) = context.get_or_tell(about)? else { continue };
        match decision::open(session, secrets, &bytes) {
            Ok((verdict, signer)) => {
                if signers.check(findings, about, &signer, |role| may_decide(&verdict, role), None)
                    && matches!(verdict, Verdict::Evicted { .. })
                {
                    sessions.evicted.insert(session);
                }
            }
            Err(e) => drop(findings.add(about.0, about.1, e.to_string())),
        }
    }
    let named = |id| (ObjectKind::Plan, names::plan(id));
    signed(context, signers, (names::PLANS, PlanId::parse), named, collects, |id, bytes| {
        Plan::open(id, secrets, bytes).map(|(_, signer)| signer)
    })?;
    let named = |id| (ObjectKind::Loss, names::loss(id));
    signed(context, signers, (names::LOSSES, LossId::parse), named, collects, |id, bytes| {
        Loss::open(id, secrets, bytes).map(|(_, signer)| signer)
    })?;
    let named = |id| (ObjectKind::History, names::history(id));
    signed(context, signers, (names::HISTORY, HistoryId::parse), named, collects, |id, bytes| {
        Entry::open(id, secrets, bytes).map(|(_, signer)| signer)
    })?;
    Ok(sessions)
}

/// Check all of a folder: that each can be opened, and was signed by who may. How many were there.
fn signed<Id: Copy>(
    context: &Context,
    signers: &Signers,
    (folder, parse): (&str, fn(&str) -> Option<Id>),
    named: impl Fn(Id) -> (ObjectKind, String),
    may: fn(Role) -> bool,
    open: impl Fn(Id, &[u8]) -> drumlin_format::Result<Signer>,
) -> Result<u64> {
    let mut there = 0;
    for (id, _) in context.list(folder, parse)? {
        let (kind, name) = named(id);
        let about = (kind, &name[..]);
        let Some(bytes) = context.get_or_tell(about)? else { continue };
        there += 1;
        match open(id, &bytes) {
            Ok(signer) => drop(signers.check(context.findings, about, &signer, may, None)),
            Err(e) => drop(context.findings.add(kind, &name, e.to_string())),
        }
    }
    Ok(there)
}

/// Tell of what this client has seen before and that is gone by nobody's word.
pub(super) fn missing(context: &Context) -> Result<Missing> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let missing = context.repository.look_back(now.as_secs().cast_signed(), true)?;
    let tell = |kind, name: String| {
        let cause = "this client has seen it, and now it isn't there, though nobody who may remove it has signed that";
        context.findings.add(kind, &name, cause)
    };
    for id in &missing.snapshots {
        context.findings.whole(tell(ObjectKind::Snapshot, names::snapshot(*id)), *id);
    }
    for id in &missing.indexes {
        tell(ObjectKind::Index, names::index(*id));
    }
    for id in &missing.entries {
        tell(ObjectKind::History, names::history(*id));
    }
    for (id, trouble) in &missing.keys {
        context.findings.add(ObjectKind::Key, &names::key(*id), format!("it {}", trouble.words()));
    }
    if missing.config {
        context.findings.add(ObjectKind::Config, names::CONFIG, "it is not the one that this client has seen");
    }
    for number in &missing.generations {
        let cause = "it isn't as this client has seen it: the storage has lost it, or gives back an older state";
        context.findings.add(ObjectKind::Generation, &names::generation(*number), cause);
    }
    Ok(missing)
}

/// The snapshots that there are.
///
/// To be listed before the index: what the snapshots of this listing refer to is in the index objects that are there
/// now, or in those that a prune has put in their place since.
pub(super) fn list_snapshots(context: &Context) -> Result<Vec<SnapshotId>> {
    Ok(context.list(names::SNAPSHOTS, SnapshotId::parse)?.into_iter().map(|(id, _)| id).collect())
}

/// Whether the snapshots of a listing are still there, all of them.
pub(super) fn still_listed(context: &Context, listed: &[SnapshotId]) -> Result<bool> {
    let now: HashSet<SnapshotId> = list_snapshots(context)?.into_iter().collect();
    Ok(listed.iter().all(|id| now.contains(id)))
}

/// Check what is left of forgotten snapshots, to be had back. Their trees may be gone by right.
pub(super) fn forgotten(context: &Context, signers: &Signers) -> Result<()> {
    let (findings, secrets) = (context.findings, context.repository.secrets());
    if secrets.meta.is_none() {
        return Ok(());
    }
    for (id, _) in context.list(names::FORGOTTEN, SnapshotId::parse)? {
        let about = (ObjectKind::Snapshot, &names::forgotten(id)[..]);
        let Some(bytes) = context.get_or_tell(about)? else { continue };
        match snapshot::open(id, secrets, &bytes) {
            Ok((_, signer)) => drop(signers.check(findings, about, &signer, saves, None)),
            Err(e) => drop(findings.add(about.0, about.1, e.to_string())),
        }
    }
    Ok(())
}

/// Whether a key of this role makes snapshots.
fn saves(role: Role) -> bool {
    matches!(role, Role::Owner | Role::Writer)
}

/// Check the snapshots of a listing. Gives all that can be read and weren't written by somebody who was evicted, the
/// latest first. Needs a role that reads them.
pub(super) fn snapshots(
    context: &Context,
    signers: &Signers,
    sessions: &Sessions,
    ids: &[SnapshotId],
) -> Result<Vec<Tree>> {
    if context.repository.secrets().meta.is_none() {
        return Ok(Vec::new());
    }
    let findings = context.findings;
    let mut trees = Vec::new();
    for id in ids {
        let about = (ObjectKind::Snapshot, &names::snapshot(*id)[..]);
        let bytes = match context.get(about.1)? {
            Read::Whole(bytes) => bytes,
            // Forgotten since it was listed.
            Read::Gone => continue,
            Read::Unreadable(cause) => {
                findings.whole(findings.add(about.0, about.1, cause), *id);
                continue;
            }
        };
        match snapshot::open(*id, context.repository.secrets(), &bytes) {
            Ok((snapshot, signer)) => {
                signers.check(findings, about, &signer, saves, Some(*id));
                if !sessions.evicted.contains(&snapshot.session) {
                    trees.push(Tree { id: *id, root: snapshot.root, time: snapshot.time });
                }
            }
            Err(e) => findings.whole(findings.add(about.0, about.1, e.to_string()), *id),
        }
    }
    trees.sort_by_key(|t| std::cmp::Reverse((t.time, t.id)));
    Ok(trees)
}
