//! What to do about a session in the way: wait for it, or find that it is dead.
//!
//! It is dead for sure if its process was one of this machine and is gone. Of others nobody can know: what is left is
//! whether they write. A session that has written nothing between one prune and another much later one is given up; if
//! it lives after all, its user has to run his backup again, and nothing else is lost.

use crate::convert;
use crate::legible::legible;
use crate::monitor::Monitor;
use drumlin_format::SessionId;
use drumlin_format::session::purpose;
use drumlin_host::process::Alive;
use drumlin_repo::collection::{Board, Desk, Patience};
use drumlin_repo::{Cache, Repository, names};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often a session in the way is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How often it is looked whether it writes.
const LISTEN_AGAIN: Duration = Duration::from_secs(30);
/// Sessions that are remembered, those that have ended among them.
const REMEMBERED_MAX: usize = 1000;
/// Under this name the cache remembers who was silent.
const REMEMBERED: &str = "sessions seen by prune";

/// What is to be done about sessions in the way.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// This machine's name.
    pub host: String,
    /// How long to wait for those that are at work, in all.
    pub wait: Duration,
    /// Those that are known to be dead.
    pub evict: Vec<SessionId>,
    /// Those are taken for dead that have given no sign of life for so long.
    pub evict_after: Duration,
}

/// Waits for sessions.
pub(crate) struct Waiting<'a> {
    repository: &'a Repository,
    cache: &'a Cache,
    desk: &'a Desk<'a>,
    policy: Policy,
    monitor: &'a dyn Monitor,
    /// Spent waiting, by whatever sessions were in the way: not what the work itself has taken.
    waited: Duration,
    /// When each session was found to be silent or not.
    looked: HashMap<SessionId, Instant>,
    /// Since 1970.
    now: Duration,
    /// Sessions that were told to be waited for.
    told: HashSet<SessionId>,
    /// A prune's own session: of two that are in each other's way one has to go out of it.
    me: Option<SessionId>,
    /// The session that it goes out of the way of.
    yields_to: Option<SessionId>,
}

/// What a session had written when it was seen first like that, and when that was, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    written: u64,
    at: u64,
}

impl<'a> Waiting<'a> {
    pub fn new(
        repository: &'a Repository,
        cache: &'a Cache,
        desk: &'a Desk<'a>,
        policy: Policy,
        monitor: &'a dyn Monitor,
        now: Duration,
    ) -> Self {
        let (waited, looked, told) = (Duration::ZERO, HashMap::new(), HashSet::new());
        let (me, yields_to) = (None, None);
        Waiting { repository, cache, desk, policy, monitor, waited, looked, now, told, me, yields_to }
    }

    /// For a prune, whose session is `me`, and that has waited for so long before.
    pub fn of_prune(self, me: SessionId, waited: Duration) -> Self {
        Waiting { me: Some(me), waited, ..self }
    }

    /// How long was waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    pub fn patience(&mut self, session: SessionId) -> Patience {
        if self.monitor.stop() {
            return Patience::GiveUp;
        }
        if self.is_over(session) {
            return Patience::Evict;
        }
        if self.has_to_yield(session) {
            self.yields_to = Some(session);
            return Patience::GiveUp;
        }
        self.pause(session)
    }

    /// Two prunes that have both registered wait for each other's end, as either may not know the other's plan. So one
    /// of them, the one with the larger id, ends, and begins anew when the other is through; and any of them for a
    /// repair.
    fn has_to_yield(&self, session: SessionId) -> bool {
        let Some(me) = self.me else { return false };
        match self.desk.session(session) {
            Ok(Some(of)) if of.purpose == purpose::PRUNE => session < me,
            Ok(Some(of)) => of.purpose == purpose::REPAIR,
            _ => false,
        }
    }

    /// Once this prune is out of the way of another: wait for the end of that. `false`: it had not been in its way, or
    /// there was no waiting for it.
    pub fn wait_outside(&mut self, session: SessionId) -> crate::Result<bool> {
        if self.yields_to != Some(session) {
            return Ok(false);
        }
        while self.desk.has_session(session)? && !self.is_over(session) {
            if self.monitor.stop() || self.pause(session) == Patience::GiveUp {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn pause(&mut self, session: SessionId) -> Patience {
        let left = self.policy.wait.saturating_sub(self.waited);
        if left.is_zero() {
            return Patience::GiveUp;
        }
        if self.told.insert(session) {
            self.monitor.waits(&describe(self.desk, session));
        }
        let since = Instant::now();
        std::thread::sleep(LOOK_AGAIN.min(left));
        self.waited += since.elapsed();
        Patience::Wait
    }

    /// Whether it is known to have ended, or is given up.
    pub fn is_over(&mut self, session: SessionId) -> bool {
        self.policy.evict.contains(&session) || self.is_dead(session) || self.is_silent(session)
    }

    /// Whether its process was one of this system and is gone.
    fn is_dead(&self, session: SessionId) -> bool {
        match self.desk.session(session) {
            Ok(Some(of)) => {
                let has_same_label = of.host == self.policy.host;
                of.process.is_some_and(|p| convert::process(&p).alive(has_same_label) == Alive::No)
            }
            _ => false,
        }
    }

    /// Whether it has written nothing for too long.
    fn is_silent(&mut self, session: SessionId) -> bool {
        // Silence is counted in days: to list the index five times a second says no more of it.
        if self.looked.get(&session).is_some_and(|looked| looked.elapsed() < LISTEN_AGAIN) {
            return false;
        }
        self.looked.insert(session, Instant::now());
        let mut written = 0;
        let list = self.repository.store().list(names::INDEX, &mut |listed| {
            let id = drumlin_format::IndexId::parse(names::last(&listed.name));
            written += u64::from(id.is_some_and(|id| id.is_of(&session)));
        });
        let mut known = self.cache.recall(REMEMBERED).map(|bytes| decode(&bytes)).unwrap_or_default();
        let now = self.now.as_secs();
        let new = Seen { written, at: now };
        let seen = *known
            .entry(session)
            .and_modify(|seen| {
                // Seen by a clock that was ahead: else it would be waited for until that time has come.
                if seen.written != written || seen.at > now {
                    *seen = new
                }
            })
            .or_insert(new);
        // Sessions that have ended are forgotten when there are many.
        if known.len() > REMEMBERED_MAX
            && let Ok(sessions) = self.desk.sessions()
        {
            known.retain(|id, _| sessions.binary_search(id).is_ok());
        }
        let _ = self.cache.remember(REMEMBERED, &encode(&known));
        // A clock that was set back makes it wait longer.
        list.is_ok() && now.saturating_sub(seen.at) > self.policy.evict_after.as_secs()
    }
}

fn encode(known: &BTreeMap<SessionId, Seen>) -> Vec<u8> {
    let record =
        |(id, seen): (&SessionId, &Seen)| [&id.0[..], &seen.written.to_le_bytes(), &seen.at.to_le_bytes()].concat();
    known.iter().flat_map(record).collect()
}

fn decode(bytes: &[u8]) -> BTreeMap<SessionId, Seen> {
    let (records, _) = bytes.as_chunks::<32>();
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    records
        .iter()
        .filter_map(|r| {
            let id = SessionId(r[..16].try_into().ok()?);
            Some((id, Seen { written: number(&r[16..24]), at: number(&r[24..]) }))
        })
        .collect()
}

/// Who is in the way, in words.
pub(crate) fn describe(desk: &Desk, session: SessionId) -> String {
    match desk.session(session) {
        Ok(Some(of)) => {
            format!("a {} of host '{}' is at work (session {session})", legible(&of.purpose), legible(&of.host))
        }
        Ok(None) => {
            format!("session {session} may be at work; its description is damaged, or not signed by a known key")
        }
        Err(_) => format!("session {session} is at work"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_comes_back() {
        let known: BTreeMap<_, _> =
            (0..3).map(|n| (SessionId([n; 16]), Seen { written: u64::from(n), at: 7 })).collect();
        assert_eq!(decode(&encode(&known)), known);
        assert_eq!(decode(&encode(&known)[..33]).len(), 1);
    }
}
