//! The protocol's objects in a repository.

use super::{Board, Flag};
use crate::history::Act;
use crate::keys::TrustedKey;
use crate::{Error, Repository, Result, names};
use drumlin_format::decision::{self, Verdict};
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::plan::Plan;
use drumlin_format::session::{Session, purpose};
use drumlin_format::snapshot::{self, Snapshot};
use drumlin_format::{IndexId, KeyId, PackId, PlanId, SessionId, Signer, SnapshotId};
use drumlin_store::{Action, Kind, Look, Put, Soon};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;

/// A repository as the protocol sees it.
pub struct Desk<'a> {
    repository: &'a Repository,
    /// What a session of ours says of itself.
    session: Session,
    /// Where a session is put: what is looked at next, once there are no plans.
    looks: Option<&'a Looks>,
    /// The session that was put last: a listing has to have it.
    own: Cell<Option<SessionId>>,
    trusted: OnceCell<HashMap<KeyId, TrustedKey>>,
    /// The snapshots that were read, by their ids; `None`: it can't be.
    read: RefCell<HashMap<SnapshotId, Option<Stored>>>,
    /// A decision that the storage has been told of before.
    announced: Option<Announced>,
}

/// What a writer looks at once it is registered, besides the index: see [`Desk::looking`].
#[derive(Default)]
pub struct Looks {
    /// Whether it is losses.
    pub losses: bool,
    /// Objects that may be there.
    pub objects: Vec<String>,
}

impl Looks {
    /// A hint that this is what is looked at now.
    pub(crate) fn expect(&self, repository: &Repository) {
        if self.losses {
            repository.store().expect(Soon::Listing(names::LOSSES));
        }
        self.objects.iter().for_each(|name| repository.store().expect(Soon::Length(name)));
    }
}

/// A decision that is about to be taken, as it will be put.
pub(crate) struct Announced {
    flag: Flag,
    verdict: Verdict,
    bytes: Vec<u8>,
}

/// A snapshot, as far as it matters to what becomes of its session.
#[derive(Clone, Copy)]
struct Stored {
    session: SessionId,
    /// Who has signed it, if that is known.
    signer: Option<KeyId>,
    is_partial: bool,
}

impl<'a> Desk<'a> {
    /// For who registers no session.
    pub fn new(repository: &'a Repository) -> Self {
        Desk::of(repository, Session::new("", "", 0))
    }

    /// For who registers sessions, and says this of each.
    pub fn of(repository: &'a Repository, session: Session) -> Self {
        Desk {
            repository,
            session,
            looks: None,
            own: Cell::new(None),
            trusted: OnceCell::new(),
            read: RefCell::default(),
            announced: None,
        }
    }

    /// This desk, for who looks at the index, and at these, once a session is put: a storage that is far away is asked
    /// along with it.
    pub(crate) fn looking(self, looks: &'a Looks) -> Self {
        Desk { looks: Some(looks), ..self }
    }

    /// This desk, of a session whose decision was announced.
    pub(crate) fn having_announced(self, announced: Option<Announced>) -> Self {
        Desk { announced, ..self }
    }

    /// Tell a storage that is far away what will be decided, so that nobody waits for it to be written then. It says
    /// nothing before it has its name. `None` where nothing is gained.
    pub(crate) fn announce(&self, session: SessionId, verdict: &Verdict) -> Result<Option<Announced>> {
        let store = self.repository.store();
        if !store.is_far() || !self.creates_atomically()? {
            return Ok(None);
        }
        let flag = Flag::Decision(session);
        let bytes = self.seal(flag, verdict)?;
        store.expect(Soon::Bytes { name: &flag.name(), bytes: &bytes });
        Ok(Some(Announced { flag, verdict: verdict.clone(), bytes }))
    }

    fn trusted(&self) -> Result<&HashMap<KeyId, TrustedKey>> {
        if self.trusted.get().is_none() {
            let _ = self.trusted.set(self.repository.trusted_keys()?);
        }
        Ok(self.trusted.get().expect("set above"))
    }

    fn list<T>(&self, folder: &str, mut parse: impl FnMut(&str) -> Option<T>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.repository.store().list(folder, &mut |listed| found.extend(parse(names::last(&listed.name))))?;
        Ok(found)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self.repository.store().get(name) {
            Err(e) if e.kind == Kind::Missing => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// The storage listed a folder, and left out what is in it.
    fn too_short(&self, folder: &str, name: &str) -> Error {
        let cause = format!("'{name}' is missing from the listing, though it is there: is all of the storage mounted?");
        drumlin_store::Error::because(Kind::Io, Action::List, folder, &self.repository.store().location(), cause).into()
    }

    fn seal(&self, flag: Flag, verdict: &Verdict) -> Result<Vec<u8>> {
        let with = self.repository.sealing()?;
        Ok(decision::seal(flag.session(), verdict, self.repository.config().suite, with))
    }

    /// What the history calls what it does.
    fn purpose(&self) -> &str {
        if self.session.purpose.is_empty() { purpose::PRUNE } else { &self.session.purpose }
    }

    /// The snapshots of a session that are there now and can be read. None, for who can't read any.
    fn snapshots_of(&self, session: SessionId) -> Result<Vec<(SnapshotId, Stored)>> {
        if self.repository.may_list().is_err() {
            return Ok(Vec::new());
        }
        let listed = self.list(names::SNAPSHOTS, SnapshotId::parse)?;
        let mut read = self.read.borrow_mut();
        let new: Vec<SnapshotId> = listed.iter().filter(|id| !read.contains_key(id)).copied().collect();
        for id in self.repository.expected(&new) {
            if let Some(bytes) = self.get(&names::snapshot(id))? {
                let opened = snapshot::open(id, self.repository.secrets(), &bytes).ok();
                read.insert(id, opened.map(|(snapshot, signer)| self.stored(&snapshot, &signer)).transpose()?);
            }
        }
        let of_session = |id: &SnapshotId| Some((*id, read.get(id).copied()??));
        Ok(listed.iter().filter_map(of_session).filter(|(_, stored)| stored.session == session).collect())
    }

    fn stored(&self, snapshot: &Snapshot, signer: &Signer) -> Result<Stored> {
        let (session, is_partial) = (snapshot.session, snapshot.partial.is_some());
        Ok(Stored { session, signer: self.signed_by(signer)?, is_partial })
    }

    /// The key that has signed something, if it is one that the owner has certified.
    fn signed_by(&self, signer: &Signer) -> Result<Option<KeyId>> {
        let key = self.trusted()?.get(&signer.key).filter(|key| signer.verify(&key.verifying).is_ok());
        Ok(key.map(|_| signer.key))
    }

    /// Who has put a session, if that is known.
    pub(crate) fn signer_of(&self, session: SessionId) -> Result<Option<KeyId>> {
        let Some(bytes) = self.get(&names::session(session))? else { return Ok(None) };
        match Session::open(session, self.repository.secrets(), &bytes) {
            Ok((_, signer)) => self.signed_by(&signer),
            Err(_) => Ok(None),
        }
    }

    /// What a flag says, and who says it.
    fn word(&self, flag: Flag) -> Result<Option<(Verdict, KeyId)>> {
        let name = flag.name();
        let Some(bytes) = self.get(&name)? else { return Ok(None) };
        self.repository.decided(&name, flag.session(), &bytes, self.trusted()?).map(Some)
    }

    /// What a decision stands for that can't be read: a session that has put a whole snapshot was done, and refers to
    /// nothing more. Its own word, or anybody could have it pass for done while it is at work.
    fn guess(&self, session: SessionId) -> Result<Verdict> {
        let put = self.snapshots_of(session)?;
        let own = self.signer_of(session)?;
        let counts = |stored: &Stored| stored.signer.is_some() && own.is_none_or(|own| stored.signer == Some(own));
        let whole = put.iter().find(|(_, stored)| !stored.is_partial && counts(stored));
        Ok(whole.map_or(NOTHING, |(snapshot, _)| Verdict::Committed { snapshot: *snapshot }))
    }

    /// Of the sessions that wrote these index objects, those that were evicted, or on which nobody can read what was
    /// decided: what they name has to be named by others before it counts.
    pub fn evicted(&self, objects: &[IndexId]) -> Result<Vec<SessionId>> {
        self.evicted_unless(objects, self.repository.decided_on()?, |eviction| Ok(eviction? == Some(false)))
    }

    /// As [`Desk::evicted`], for a writer, who goes on with the secrets that he has when what was decided is in newer
    /// ones; `decided`: the sessions that were decided on, listed after the index objects were.
    pub fn evicted_among(
        &self,
        objects: &[IndexId],
        decided: impl IntoIterator<Item = SessionId>,
    ) -> Result<Vec<SessionId>> {
        self.evicted_unless(objects, decided, |eviction| match eviction {
            Err(e) if e.is_unknown_generation() => Ok(false),
            eviction => Ok(eviction? == Some(false)),
        })
    }

    fn evicted_unless(
        &self,
        objects: &[IndexId],
        decided: impl IntoIterator<Item = SessionId>,
        stands: impl Fn(Result<Option<bool>>) -> Result<bool>,
    ) -> Result<Vec<SessionId>> {
        let mut evicted = Vec::new();
        for session in decided {
            if objects.iter().any(|object| object.is_of(&session)) && !stands(self.eviction(session))? {
                evicted.push(session);
            }
        }
        Ok(evicted)
    }

    /// Whether an index object is of a session that has not ended and has decided nothing. One that can't be opened is
    /// then torn: a writer was cut off on a storage where nothing can be written first and named after. Nobody has ever
    /// read it, so nobody refers to what it should name.
    pub fn is_unfinished(&self, object: IndexId) -> Result<bool> {
        for session in self.list(names::SESSIONS, SessionId::parse)? {
            if object.is_of(&session) {
                // What it decided may be torn like this. What can't be read for want of newer secrets isn't its own.
                let is_torn = || match self.eviction(session) {
                    Err(e) if e.is_unknown_generation() => Ok(false),
                    eviction => eviction.map(|eviction| eviction.is_none()),
                };
                return Ok(!self.repository.decided_on()?.contains(&session) || is_torn()?);
            }
        }
        Ok(false)
    }

    /// What a session says of itself; `None` if it has ended, or says nothing that can be believed.
    pub fn session(&self, id: SessionId) -> Result<Option<Session>> {
        let Some(bytes) = self.get(&names::session(id))? else { return Ok(None) };
        let Ok((session, signer)) = Session::open(id, self.repository.secrets(), &bytes) else {
            return Ok(None);
        };
        let key = self.trusted()?.get(&signer.key).filter(|key| signer.verify(&key.verifying).is_ok());
        Ok(key.map(|_| session))
    }

    /// Plans that are damaged, and what of them: as two readings find them.
    ///
    /// # Errors
    /// The storage fails, or one is sealed with secrets that came since.
    pub fn broken_plans(&self) -> Result<Vec<(PlanId, Error)>> {
        let mut broken = Vec::new();
        for id in self.plans()? {
            match self.plan(id).or_else(|_| self.plan(id)) {
                Err(e) if is_broken(&e) => broken.push((id, e)),
                other => drop(other?),
            }
        }
        Ok(broken)
    }

    /// Remove the word of a session that has committed, and that has ended.
    pub(crate) fn remove_commit(&self, session: SessionId) -> Result<()> {
        let flag = if self.creates_atomically()? { Flag::Decision(session) } else { Flag::Commit(session) };
        match self.word(flag) {
            Err(e) if is_broken(&e) => Ok(()),
            word => match word? {
                Some((Verdict::Committed { .. }, _)) => self.remove(flag),
                _ => Ok(()),
            },
        }
    }

    /// Whether a session has neither ended nor been evicted: nobody removes or moves anything of what it refers to. One
    /// that is there is asked after all the same, as a put that had to be tried again may have come late, when it had
    /// been removed.
    ///
    /// # Errors
    /// The storage can't be asked, or what was decided can't be read: for a session that is at work that is no reason
    /// to go on.
    pub fn stands(&self, session: SessionId) -> Result<bool> {
        if !self.has_session(session)? {
            return Ok(false);
        }
        for flag in [Flag::Decision(session), Flag::Evicted(session)] {
            if let Some((Verdict::Evicted { .. }, _)) = self.word(flag)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a session that is there has come to its end, or was ended: an account that may remove nothing leaves it.
    ///
    /// # Errors
    /// The storage can't be asked, or what was decided can't be read.
    pub fn is_over(&self, session: SessionId) -> Result<bool> {
        for flag in Flag::of_verdicts(session, self.creates_atomically()?) {
            if self.verdict(flag)?.is_some_and(|verdict| !matches!(verdict, Verdict::Claimed { .. })) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a session was evicted, for good, as far as anybody can tell.
    pub fn is_evicted(&self, session: SessionId) -> Result<bool> {
        Ok(self.eviction(session)? == Some(true))
    }

    /// The same; `None` if what was decided can't be read. What isn't where this storage has it may be where another
    /// one has, from which the repository was copied.
    fn eviction(&self, session: SessionId) -> Result<Option<bool>> {
        let mut flags = [Flag::Decision(session), Flag::Evicted(session)];
        if !self.creates_atomically()? {
            flags.reverse();
        }
        for flag in flags {
            match self.word(flag) {
                Err(e) if is_broken(&e) => return Ok(None),
                word => match word? {
                    Some((Verdict::Evicted { .. }, _)) => return Ok(Some(true)),
                    None | Some((Verdict::Claimed { .. }, _)) => {}
                    Some(_) => return Ok(Some(false)),
                },
            }
        }
        Ok(Some(false))
    }
}

impl Board for Desk<'_> {
    type Error = Error;

    fn creates_atomically(&self) -> Result<bool> {
        Ok(self.repository.store().creates_atomically()?)
    }

    fn plans(&self) -> Result<Vec<PlanId>> {
        self.list(names::PLANS, PlanId::parse)
    }

    fn plan(&self, id: PlanId) -> Result<Option<Plan>> {
        let name = names::plan(id);
        let Some(bytes) = self.get(&name)? else { return Ok(None) };
        // One that can't be read might condemn anything: that is an error, and ends a backup.
        let (plan, signer) = Plan::open(id, self.repository.secrets(), &bytes).map_err(Error::damaged(&name))?;
        let key = self.trusted()?.get(&signer.key).filter(|key| matches!(key.role, Role::Owner | Role::Keeper));
        Ok(key.filter(|key| signer.verify(&key.verifying).is_ok()).map(|_| plan))
    }

    fn put_plan(&self, plan: &Plan) -> Result<()> {
        let bytes = plan.seal(self.repository.config().suite, self.repository.sealing()?);
        Ok(self.repository.store().put(&names::plan(plan.id), &bytes, Put::Create)?)
    }

    fn has_any_of(&self, plan: &Plan) -> Result<bool> {
        let packs =
            plan.packs.iter().flat_map(|id| [PackKind::Data, PackKind::Tree].map(|kind| names::pack(kind, *id)));
        let names: Vec<String> = packs.chain(plan.indexes.iter().map(|id| names::index(*id))).collect();
        let lens = self.repository.ask_many(&names, |name| self.repository.store().len(name))?;
        Ok(lens.iter().any(Option::is_some))
    }

    fn remove_plan(&self, id: PlanId) -> Result<()> {
        Ok(self.repository.store().delete(&names::plan(id))?)
    }

    fn sessions(&self) -> Result<Vec<SessionId>> {
        let mut sessions = self.list(names::SESSIONS, SessionId::parse)?;
        // A collector that is shown too few of them would take what the others refer to: what one listing leaves out by
        // some mishap another one has.
        sessions.extend(self.list(names::SESSIONS, SessionId::parse)?);
        sessions.sort_unstable();
        sessions.dedup();
        match self.own.get().filter(|own| !sessions.contains(own)) {
            Some(own) if self.has_session(own)? => Err(self.too_short(names::SESSIONS, &names::session(own))),
            _ => Ok(sessions),
        }
    }

    fn has_session(&self, id: SessionId) -> Result<bool> {
        Ok(self.repository.store().len(&names::session(id))?.is_some())
    }

    fn put_session(&self, id: SessionId) -> Result<()> {
        let bytes = self.session.seal(id, self.repository.config().suite, self.repository.sealing()?);
        let mut looks = Vec::new();
        if let Some(Looks { losses, objects }) = &self.looks {
            // Plans first, and if there are any nothing else: what is to be referred to has to be seen once they were
            // read.
            looks.extend([Look::Empty(names::PLANS), Look::InOrder(names::INDEX), Look::InOrder(names::DECISIONS)]);
            looks.extend(losses.then_some(Look::Listing(names::LOSSES)));
            looks.extend(objects.iter().map(|name| Look::Length(name)));
        }
        self.repository.store().put_and_look(&names::session(id), &bytes, &looks)?;
        self.own.set(Some(id));
        Ok(())
    }

    fn may_come_back(&self, id: SessionId) -> Result<bool> {
        Ok(self.repository.store().may_come_late(&names::session(id)))
    }

    fn remove_session(&self, id: SessionId) -> Result<()> {
        self.repository.store().delete(&names::session(id))?;
        Ok(self.repository.store().sync()?)
    }

    /// A listing takes its time. Of a claim that goes meanwhile and of the eviction that was put before that it may
    /// have neither; of a commit and the eviction that came behind it, the latter alone. So an eviction is asked for by
    /// its name as well, and if it stands all is listed once more.
    fn flags(&self, session: SessionId) -> Result<Vec<Flag>> {
        let list = || self.list(names::DECISIONS, |name| Flag::parse(name).filter(|flag| flag.session() == session));
        let flags = list()?;
        let evicted = Flag::Evicted(session);
        let is_doubtful = match flags.contains(&evicted) {
            true => !flags.contains(&Flag::Commit(session)),
            false => self.repository.store().len(&evicted.name())?.is_some(),
        };
        if is_doubtful { list() } else { Ok(flags) }
    }

    fn verdict(&self, flag: Flag) -> Result<Option<Verdict>> {
        let session = flag.session();
        let (verdict, by) = match self.word(flag) {
            Err(e) if is_broken(&e) => return self.guess(session).map(Some),
            word => match word.or_else(|e| self.repository.refuse_if_rekeyed(&e).and(Err(e)))? {
                Some(word) => word,
                None => return Ok(None),
            },
        };
        let is_own = matches!(verdict, Verdict::Committed { .. } | Verdict::Collected { .. });
        // A session's end is its own to decide, or anybody with a key could take it out of a collector's sight.
        let is_foreign = is_own && self.signer_of(session)?.is_some_and(|signer| signer != by);
        Ok(Some(if is_foreign { NOTHING } else { verdict }))
    }

    fn create(&self, flag: Flag, verdict: &Verdict) -> Result<bool> {
        let announced = self.announced.as_ref().filter(|of| (of.flag, &of.verdict) == (flag, verdict));
        let bytes = announced.map_or_else(|| self.seal(flag, verdict), |of| Ok(of.bytes.clone()))?;
        match self.repository.store().put(&flag.name(), &bytes, Put::Create) {
            Err(e) if e.kind == Kind::Exists => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn replace(&self, flag: Flag, verdict: &Verdict) -> Result<()> {
        Ok(self.repository.store().put(&flag.name(), &self.seal(flag, verdict)?, Put::Replace)?)
    }

    fn remove(&self, flag: Flag) -> Result<()> {
        Ok(self.repository.store().delete(&flag.name())?)
    }

    fn has_counted(&self, session: SessionId) -> Result<bool> {
        let put = self.snapshots_of(session)?;
        let signer = self.signer_of(session)?;
        if signer.is_none() && !self.has_session(session)? {
            // Somebody else has just removed it.
            return Ok(false);
        }
        // One of another signer can't be of this session; and what was seen to count does.
        let counts = |(id, stored): &(SnapshotId, Stored)| stored.signer != signer || self.repository.has_seen(*id);
        Ok(put.iter().any(counts))
    }

    fn remove_checkpoints(&self, session: SessionId, committed: SnapshotId) -> Result<()> {
        // Who can't read snapshots, or remove any, leaves them: of a session's snapshots the last one counts.
        if self.repository.may_list().is_err() || self.repository.may_forget().is_err() {
            return Ok(());
        }
        let put = self.snapshots_of(session)?;
        let flag = if self.creates_atomically()? { Flag::Decision(session) } else { Flag::Commit(session) };
        let by = match self.word(flag) {
            Ok(word) => word.map(|(_, by)| by),
            Err(e) if is_broken(&e) => {
                put.iter().find(|(id, _)| *id == committed).and_then(|(_, stored)| stored.signer)
            }
            Err(e) => return Err(e),
        };
        let is_checkpoint = |(id, stored): &&(SnapshotId, Stored)| {
            *id != committed && stored.is_partial && by.is_some() && stored.signer == by
        };
        let left: Vec<SnapshotId> = put.iter().filter(is_checkpoint).map(|(id, _)| *id).collect();
        self.repository.record(Act::now(self.purpose()), &left, &[])?;
        left.into_iter().try_for_each(|id| match self.repository.remove_snapshot(id) {
            Err(e) if e.is_refused() => Ok(()),
            other => other,
        })
    }

    fn remove_indexes(&self, ids: &[IndexId]) -> Result<()> {
        let store = self.repository.store();
        self.repository.record(Act::now(self.purpose()), &[], ids)?;
        self.repository.ask_many(ids, |id| store.delete(&names::index(*id)))?;
        Ok(store.sync()?)
    }

    fn remove_packs(&self, ids: &[PackId]) -> Result<()> {
        let store = self.repository.store();
        // A plan doesn't say of which kind a pack is, and removing what isn't there is no error.
        let names = ids.iter().flat_map(|id| [PackKind::Data, PackKind::Tree].map(|kind| names::pack(kind, *id)));
        self.repository.ask_many(&names.collect::<Vec<_>>(), |name| store.delete(name))?;
        Ok(store.sync()?)
    }
}

/// A claim of nobody's, which means nothing.
const NOTHING: Verdict = Verdict::Claimed { by: SessionId([0; 16]) };

fn is_broken(e: &Error) -> bool {
    e.is_damage() && !e.is_unknown_generation()
}
