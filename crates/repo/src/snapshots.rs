//! The snapshots of a repository: which there are, which count, and who signed them.

use crate::collection::{Desk, Flag};
use crate::history::now;
use crate::keys::TrustedKey;
use crate::{Error, Repository, Result, names};
use drumlin_format::decision::{self, Verdict};
use drumlin_format::key::Role;
use drumlin_format::snapshot::{self, Snapshot};
use drumlin_format::{KeyId, SessionId, SnapshotId};
use drumlin_store::{Kind, Soon};
use std::collections::{BTreeSet, HashMap, HashSet};

/// So often the snapshots are listed, if a listing is cut short.
const LISTINGS_MAX: usize = 3;

/// Whose word a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Signed by this key, which the owner certified for writing, and may have revoked since.
    Signed(KeyId),
    /// Signed by a key that is unknown here or that may not write.
    Unknown(KeyId),
}

impl Trust {
    /// The key that has signed it, or says so.
    pub(crate) fn key(self) -> KeyId {
        match self {
            Trust::Signed(key) | Trust::Unknown(key) => key,
        }
    }
}

/// A snapshot as it was found.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Whose word it is.
    pub trust: Trust,
    /// Whether its session is still open: being written, or left by a crash, or by an account that may remove nothing.
    pub open_session: bool,
    /// Whether a decision says that it counts: it is over, whether its session was cleared up or not.
    pub committed: bool,
}

/// Snapshots that are asked for before they are read.
const AHEAD: usize = 8;

impl Repository {
    /// All snapshots that count, oldest first, and the errors of those that could not be read.
    ///
    /// A snapshot whose session is still open counts if a decision says so, or as a partial one; one whose session was
    /// evicted never does.
    ///
    /// # Errors
    /// [`Error::Rekeyed`] if there are some that were made with secrets that have been given since the repository was
    /// opened.
    pub fn snapshots(&self) -> Result<(Vec<SnapshotInfo>, Vec<Error>)> {
        self.snapshots_before(&[])
    }

    /// The same, for whoever will list these folders next: a storage far away is asked for them along with what
    /// snapshots say, so that they are seen as they are after the snapshots were listed.
    pub fn snapshots_before(&self, folders: &[&str]) -> Result<(Vec<SnapshotInfo>, Vec<Error>)> {
        let (infos, errors) = self.snapshots_so_far(folders)?;
        errors.iter().try_for_each(|error| self.refuse_if_rekeyed(error))?;
        Ok((infos, errors))
    }

    /// The same, for whoever goes on with the secrets that he has, if others were given since: of what was made with
    /// those it can't be told what it is.
    pub fn snapshots_so_far(&self, folders: &[&str]) -> Result<(Vec<SnapshotInfo>, Vec<Error>)> {
        self.may_list()?;
        // Snapshots first: a session is there before its snapshots, so a run under way is never taken for one that has
        // ended.
        let (mut ids, mut open, mut decided) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut keys = BTreeSet::new();
        let own = [names::SNAPSHOTS, names::SESSIONS, names::DECISIONS, names::KEYS];
        self.store().list_in_order(&own, &mut |at, listed| {
            let name = names::last(&listed.name);
            match at {
                0 => ids.extend(SnapshotId::parse(name)),
                1 => open.extend(SessionId::parse(name)),
                2 => decided.extend(names::decided_on(name)),
                _ => keys.extend(names::key_id(name)),
            }
        })?;
        if let Some(kept) = &self.kept {
            kept.tidy(&ids);
        }
        if ids.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        folders.iter().for_each(|folder| self.store().expect(Soon::Listing(folder)));
        let to_read = self.expected(&ids);
        let trusted = self.trusted_among(keys)?;
        let mut sessions = Sessions { repository: self, trusted, open, decided, said: HashMap::new() };
        let (mut infos, mut errors) = (Vec::new(), Vec::new());
        for id in to_read {
            match self.recall_snapshot(id, &sessions.trusted) {
                Ok(Some((snapshot, trust))) => infos.extend(sessions.weigh(snapshot, trust, &mut errors)?),
                // Forgotten since it was listed.
                Ok(None) => {}
                Err(e) if e.is_damage() => errors.push(e),
                Err(e) => return Err(e),
            }
        }
        leave_checkpoints(&mut infos);
        infos.sort_by_key(|info| (info.snapshot.time, info.snapshot.id));
        Ok((infos, errors))
    }

    /// All snapshots whose chunks must stay, newest first: those that count, and those of open sessions, which may
    /// count yet.
    ///
    /// # Errors
    /// One of them can't be read: then nobody knows what it needs. [`Error::Unexplained`] if one is gone that this
    /// client has seen.
    pub fn standing_snapshots(&self) -> Result<Vec<Snapshot>> {
        self.may_list()?;
        let (mut snapshots, mut gone) = (Vec::new(), Vec::new());
        for id in self.expected(&self.standing_ids()?) {
            let name = names::snapshot(id);
            match self.store().get(&name) {
                // Forgotten since it was listed.
                Err(e) if e.kind == Kind::Missing => gone.push(id),
                read => {
                    let opened = snapshot::open(id, self.secrets(), &read?).map_err(Error::damaged(&name));
                    snapshots.push(opened.or_else(|e| self.refuse_if_rekeyed(&e).and(Err(e)))?.0);
                }
            }
        }
        if !gone.is_empty() {
            let listed: HashSet<SnapshotId> = self.ids(names::SNAPSHOTS, SnapshotId::parse)?.into_iter().collect();
            if let Some(id) = gone.into_iter().find(|id| listed.contains(id)) {
                return Err(Error::Ghost { name: names::snapshot(id), location: self.store().location() });
            }
        }
        // Asked after they were read: whoever is evicted by now never counts.
        let desk = Desk::new(self);
        let decided: HashSet<SessionId> = self.decided_on()?.into_iter().collect();
        let mut evicted = HashSet::new();
        for session in snapshots.iter().map(|s| s.session).filter(|s| decided.contains(s)).collect::<HashSet<_>>() {
            if desk.is_evicted(session)? {
                evicted.insert(session);
            }
        }
        snapshots.retain(|s| !evicted.contains(&s.session));
        snapshots.sort_by_key(|s| std::cmp::Reverse((s.time, s.id)));
        Ok(snapshots)
    }

    /// These, to be read one after the other: a storage far away is asked for some in advance.
    pub(crate) fn expected(&self, ids: &[SnapshotId]) -> impl Iterator<Item = SnapshotId> {
        let expect = |id: &SnapshotId| {
            if self.kept.as_ref().is_none_or(|kept| !kept.has(*id)) {
                self.store().expect(Soon::Object(&names::snapshot(*id)));
            }
        };
        ids.iter().take(AHEAD).for_each(expect);
        ids.iter().enumerate().map(move |(at, id)| {
            ids.get(at + AHEAD).iter().for_each(|next| expect(next));
            *id
        })
    }

    /// The snapshots that are listed: all that this client remembers and nobody has removed must be among them.
    fn standing_ids(&self) -> Result<Vec<SnapshotId>> {
        for _ in 0..LISTINGS_MAX {
            let listed = self.ids(names::SNAPSHOTS, SnapshotId::parse)?;
            if self.lists_all(&listed, now())? {
                return Ok(listed);
            }
        }
        let why = "the storage keeps listing fewer snapshots than it has, so what they need is unknown";
        Err(Error::Unsteady(why.into()))
    }

    /// Fails unless the key opens snapshots.
    pub(crate) fn may_list(&self) -> Result<()> {
        if self.secrets().meta.is_some() { Ok(()) } else { Err(self.not_allowed("read snapshots")) }
    }

    /// The snapshot in an object of this name, and whose word it is; `None` if there is no such object.
    pub(crate) fn read_snapshot(
        &self,
        name: &str,
        id: SnapshotId,
        trusted: &HashMap<KeyId, TrustedKey>,
    ) -> Result<Option<(Snapshot, Trust)>> {
        match self.store().get(name) {
            Err(e) if e.kind == Kind::Missing => Ok(None),
            other => self.open_snapshot(name, id, &other?, trusted).map(Some),
        }
    }

    /// Read a snapshot that is listed, from this client's copy if there is a sound one.
    fn recall_snapshot(
        &self,
        id: SnapshotId,
        trusted: &HashMap<KeyId, TrustedKey>,
    ) -> Result<Option<(Snapshot, Trust)>> {
        let name = names::snapshot(id);
        let Some(kept) = &self.kept else { return self.read_snapshot(&name, id, trusted) };
        if let Some(Ok(read)) = kept.get(id).map(|bytes| self.open_snapshot(&name, id, &bytes, trusted)) {
            return Ok(Some(read));
        }
        let bytes = match self.store().get(&name) {
            Err(e) if e.kind == Kind::Missing => return Ok(None),
            other => other?,
        };
        let read = self.open_snapshot(&name, id, &bytes, trusted)?;
        kept.keep(id, &bytes);
        Ok(Some(read))
    }

    fn open_snapshot(
        &self,
        name: &str,
        id: SnapshotId,
        bytes: &[u8],
        trusted: &HashMap<KeyId, TrustedKey>,
    ) -> Result<(Snapshot, Trust)> {
        let (snapshot, signer) = snapshot::open(id, self.secrets(), bytes).map_err(Error::damaged(name))?;
        let trust = match trusted.get(&signer.key) {
            Some(key) if matches!(key.role, Role::Owner | Role::Writer) && signer.verify(&key.verifying).is_ok() => {
                Trust::Signed(signer.key)
            }
            _ => Trust::Unknown(signer.key),
        };
        Ok((snapshot, trust))
    }

    /// What was decided on a session, by somebody who may, and by whom. `listed`: something is known to have been, so
    /// that if it isn't where this storage has it, it is where another one has: the repository was copied from there.
    fn verdict(
        &self,
        session: SessionId,
        listed: bool,
        trusted: &HashMap<KeyId, TrustedKey>,
    ) -> Result<Option<(Verdict, KeyId)>> {
        let atomically = self.store().creates_atomically()?;
        let mut flags = Flag::of_verdicts(session, atomically);
        if listed {
            flags.extend(Flag::of_verdicts(session, !atomically));
        }
        for flag in flags {
            let name = flag.name();
            match self.store().get(&name) {
                Err(e) if e.kind == Kind::Missing => {}
                other => match self.decided(&name, session, &other?, trusted)? {
                    // A claim says nothing.
                    (Verdict::Claimed { .. }, _) => {}
                    said => return Ok(Some(said)),
                },
            }
        }
        Ok(None)
    }

    /// The sessions on which somebody has put a verdict, by whichever protocol.
    pub(crate) fn decided_on(&self) -> Result<Vec<SessionId>> {
        self.ids(names::DECISIONS, names::decided_on)
    }

    /// The verdict in a decision's bytes, by somebody who may, and by whom.
    pub(crate) fn decided(
        &self,
        name: &str,
        session: SessionId,
        bytes: &[u8],
        trusted: &HashMap<KeyId, TrustedKey>,
    ) -> Result<(Verdict, KeyId)> {
        let (verdict, signer) = decision::open(session, self.secrets(), bytes).map_err(Error::damaged(name))?;
        let key = trusted.get(&signer.key).filter(|key| may_decide(&verdict, key.role));
        if key.is_none_or(|key| signer.verify(&key.verifying).is_err()) {
            let detail = "it is not signed by a key that may decide that";
            return Err(Error::damaged(name)(drumlin_format::Error::Malformed { object: "decision", detail }));
        }
        Ok((verdict, signer.key))
    }

    /// Remove a snapshot for good, for the client itself that has put it: one that doesn't count, or has a successor.
    pub fn remove_snapshot(&self, id: SnapshotId) -> Result<()> {
        Ok(self.store().delete(&names::snapshot(id))?)
    }

    pub(crate) fn ids<T>(&self, folder: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
        let mut ids = Vec::new();
        self.store().list(folder, &mut |listed| ids.extend(parse(names::last(&listed.name))))?;
        Ok(ids)
    }
}

/// What was listed of sessions along with snapshots, and what was read of decisions on them: which snapshots count.
struct Sessions<'a> {
    repository: &'a Repository,
    trusted: HashMap<KeyId, TrustedKey>,
    /// Those that were there.
    open: HashSet<SessionId>,
    /// Those on which there was a decision.
    decided: HashSet<SessionId>,
    /// What stands in the place of the decisions that were asked for.
    said: HashMap<SessionId, Said>,
}

impl Sessions<'_> {
    /// A snapshot as it counts; `None` if it doesn't. A decision that can't be read goes to `errors`, once.
    fn weigh(&mut self, snapshot: Snapshot, trust: Trust, errors: &mut Vec<Error>) -> Result<Option<SnapshotInfo>> {
        let (id, session, is_open) = (snapshot.id, snapshot.session, self.open.contains(&snapshot.session));
        let verdict = match is_open || self.decided.contains(&session) {
            true => self.verdict_on(&snapshot, trust, errors)?,
            false => None,
        };
        let (open_session, committed) = match verdict {
            Some(Verdict::Evicted { .. }) => return Ok(None),
            Some(Verdict::Committed { snapshot: committed }) if committed != id => return Ok(None),
            Some(Verdict::Committed { .. }) => (is_open, true),
            None | Some(Verdict::Claimed { .. })
                if is_open && self.repository.store().len(&names::session(session))?.is_none() =>
            {
                // It has ended, or its eviction was confirmed: that stands before the session goes.
                if matches!(self.read(session), Ok(Some((Verdict::Evicted { .. }, _)))) {
                    return Ok(None);
                }
                (false, false)
            }
            // What counted before doesn't come to be in progress because somebody has put its session again.
            None | Some(Verdict::Claimed { .. }) if is_open && snapshot.partial.is_none() => {
                let by = Desk::new(self.repository).signer_of(session)?;
                if by == Some(trust.key()) && !self.repository.has_seen(id) {
                    return Ok(None);
                }
                (false, false)
            }
            None | Some(Verdict::Claimed { .. } | Verdict::Collected { .. }) => (is_open, false),
        };
        Ok(Some(SnapshotInfo { snapshot, trust, open_session, committed }))
    }

    /// What was decided on a snapshot's session, as far as it concerns the snapshot.
    fn verdict_on(&mut self, snapshot: &Snapshot, trust: Trust, errors: &mut Vec<Error>) -> Result<Option<Verdict>> {
        if !self.said.contains_key(&snapshot.session) {
            let said = match self.read(snapshot.session) {
                Ok(verdict) => Said::Verdict(verdict),
                Err(e) if e.is_damage() => {
                    errors.push(e);
                    Said::Unreadable
                }
                Err(e) => return Err(e),
            };
            self.said.insert(snapshot.session, said);
        }
        Ok(match &self.said[&snapshot.session] {
            // A writer puts a whole snapshot last, so one that is whole counts. At worst, the writer was told that
            // putting it had failed.
            Said::Unreadable if snapshot.partial.is_none() => Some(Verdict::Committed { snapshot: snapshot.id }),
            Said::Unreadable => None,
            // A decision signed by another key says nothing about this snapshot.
            Said::Verdict(Some((Verdict::Committed { .. }, by))) if trust.key() != *by => None,
            Said::Verdict(verdict) => verdict.as_ref().map(|(verdict, _)| verdict.clone()),
        })
    }

    /// What was decided on a session by now.
    fn read(&self, session: SessionId) -> Result<Option<(Verdict, KeyId)>> {
        self.repository.verdict(session, self.decided.contains(&session), &self.trusted)
    }
}

/// What stands in the place of the decision on a session.
enum Said {
    /// This, and who says it; or nothing.
    Verdict(Option<(Verdict, KeyId)>),
    /// Something that nobody can read, or that nobody has said who may.
    Unreadable,
}

/// Of each session's snapshots leave the one that got furthest: the others are checkpoints that its account was not
/// allowed to remove, and whose session was cleared up by somebody who can't read snapshots.
fn leave_checkpoints(infos: &mut Vec<SnapshotInfo>) {
    let further = |one: &Snapshot, other: &Snapshot| {
        let reached = |of: &Snapshot| of.partial.as_ref().map(|at| (at.dir.clone(), at.name.clone()));
        let (one_at, other_at) = (reached(one), reached(other));
        (one_at.is_none(), one_at, one.id) > (other_at.is_none(), other_at, other.id)
    };
    let mut last: HashMap<SessionId, &Snapshot> = HashMap::new();
    for SnapshotInfo { snapshot, .. } in infos.iter() {
        let last = last.entry(snapshot.session).or_insert(snapshot);
        if further(snapshot, last) {
            *last = snapshot;
        }
    }
    let last: HashSet<SnapshotId> = last.values().map(|snapshot| snapshot.id).collect();
    infos.retain(|info| info.snapshot.partial.is_none() || last.contains(&info.snapshot.id));
}

/// Whether a key of this role may decide so on a session.
pub fn may_decide(verdict: &Verdict, role: Role) -> bool {
    match verdict {
        Verdict::Committed { .. } => matches!(role, Role::Owner | Role::Writer),
        Verdict::Evicted { .. } | Verdict::Claimed { .. } | Verdict::Collected { .. } => {
            matches!(role, Role::Owner | Role::Keeper)
        }
    }
}
