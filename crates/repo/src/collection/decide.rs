//! One decision a session: either it commits or it is evicted, whoever comes first.
//!
//! An eviction takes two steps, a claim and its confirmation, because a session may have ended between the collector's
//! listing and its claim: its decision is removed by then, and the claim finds the place free. So the claim alone means
//! nothing, and is confirmed only while the session is still registered: a session whose place is taken can't commit, and
//! one that hasn't committed doesn't end. A confirmed eviction stands for good: the writer may wake up years later.

use super::{Board, Flag};
use drumlin_format::decision::Verdict;
use drumlin_format::{PlanId, SessionId, SnapshotId};

/// What became of a session that stood in a collector's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has ended, by itself or as good as: it had committed.
    Ended,
    /// It will never commit.
    Evicted,
    /// It is a collector whose plan has been decided on, and has to be carried out.
    Collector(PlanId),
    /// It is a collector that has decided, too late perhaps: these are evicting it, too, and may not have seen that. Elsewhere than in stores
    /// that create atomically.
    Contended(Vec<SessionId>),
}

/// Decide that a session's work counts. `false`: it was evicted, or it may have been.
pub fn commit<B: Board>(board: &B, session: SessionId, verdict: &Verdict) -> Result<bool, B::Error> {
    if board.creates_atomically()? {
        let flag = Flag::Decision(session);
        // If it is there already it may be our own: the answer to an earlier try was lost.
        return Ok(board.create(flag, verdict)? || board.verdict(flag)?.as_ref() == Some(verdict));
    }
    board.replace(Flag::Commit(session), verdict)?;
    let against = |flag: &Flag| matches!(flag, Flag::Claim(..) | Flag::Evicted(_));
    Ok(!board.flags(session)?.iter().any(against))
}

/// What a session has decided for itself: it has committed, or collected, and nobody has evicted it.
pub(super) fn own_word<B: Board>(board: &B, session: SessionId) -> Result<Option<Verdict>, B::Error> {
    let flag = if board.creates_atomically()? {
        Flag::Decision(session)
    } else {
        let flags = board.flags(session)?;
        // Before the flag: it may have come too late. And while somebody claims the session nobody else knows which it will be.
        let against = |flag: &Flag| matches!(flag, Flag::Claim(..) | Flag::Evicted(_));
        if flags.iter().any(against) || !flags.contains(&Flag::Commit(session)) {
            return Ok(None);
        }
        Flag::Commit(session)
    };
    let is_own = |verdict: &Verdict| matches!(verdict, Verdict::Committed { .. } | Verdict::Collected { .. });
    Ok(board.verdict(flag)?.filter(is_own))
}

/// End a session that has committed. Without a session its snapshot counts for good, and without a session a decision
/// means nothing: so in this order.
pub fn end<B: Board>(board: &B, session: SessionId) -> Result<(), B::Error> {
    board.remove_session(session)?;
    board.remove(if board.creates_atomically()? { Flag::Decision(session) } else { Flag::Commit(session) })
}

/// End a session in the name of its writer, who has committed this snapshot.
fn end_for<B: Board>(board: &B, session: SessionId, committed: SnapshotId) -> Result<Fate, B::Error> {
    board.remove_checkpoints(session, committed)?;
    end(board, session).map(|()| Fate::Ended)
}

/// Get `session` out of the way of the collector `by`.
pub fn evict<B: Board>(board: &B, session: SessionId, by: SessionId) -> Result<Fate, B::Error> {
    evict_beside(board, session, by, &[])
}

/// The same. `over`: collectors that are, whose claims mean nothing any more.
pub(super) fn evict_beside<B: Board>(
    board: &B,
    session: SessionId,
    by: SessionId,
    over: &[SessionId],
) -> Result<Fate, B::Error> {
    if board.creates_atomically()? {
        evict_atomically(board, session, by)
    } else {
        evict_by_flags(board, session, by, over)
    }
}

fn evict_atomically<B: Board>(board: &B, session: SessionId, by: SessionId) -> Result<Fate, B::Error> {
    let flag = Flag::Decision(session);
    if !board.create(flag, &Verdict::Claimed { by })? {
        match board.verdict(flag)? {
            // Decided, ended and cleared up just now.
            None => return Ok(Fate::Ended),
            Some(Verdict::Committed { snapshot }) => return end_for(board, session, snapshot),
            Some(Verdict::Collected { plan }) => return Ok(Fate::Collector(plan)),
            Some(Verdict::Claimed { .. } | Verdict::Evicted { .. }) => {}
        }
    }
    if !board.has_session(session)? {
        // The claim stays: it means nothing without a session, and another collector may be confirming it.
        return Ok(Fate::Ended);
    }
    if board.has_counted(session)? {
        // The claim stays, here too.
        board.remove_session(session)?;
        return Ok(Fate::Ended);
    }
    board.replace(flag, &Verdict::Evicted { plan: 0 })?;
    board.remove_session(session)?;
    Ok(Fate::Evicted)
}

/// The writer puts its flag and then looks for a claim; the collector puts its claim and then looks for the writer's
/// flag. At least one of them sees the other.
///
/// Of two collectors one may see the flag, and the other not yet. Whether a plan is carried out or never will be they have to agree on: so who
/// sees both the flag and another's claim knows neither, until that one is over.
fn evict_by_flags<B: Board>(
    board: &B,
    session: SessionId,
    by: SessionId,
    over: &[SessionId],
) -> Result<Fate, B::Error> {
    let claim = Flag::Claim(session, by);
    board.replace(claim, &Verdict::Claimed { by })?;
    let flags = board.flags(session)?;
    let fate = if flags.contains(&Flag::Evicted(session)) {
        board.remove_session(session)?;
        Fate::Evicted
    } else if flags.contains(&Flag::Commit(session)) {
        match board.verdict(Flag::Commit(session))? {
            Some(Verdict::Collected { plan }) => {
                let others = flags.iter().filter_map(|flag| match flag {
                    Flag::Claim(_, other) if *other != by && !over.contains(other) => Some(*other),
                    _ => None,
                });
                match others.collect::<Vec<_>>() {
                    none if none.is_empty() => Fate::Collector(plan),
                    others => Fate::Contended(others),
                }
            }
            Some(Verdict::Committed { snapshot }) => end_for(board, session, snapshot)?,
            Some(_) => end(board, session).map(|()| Fate::Ended)?,
            None => Fate::Ended,
        }
    } else if !board.has_session(session)? {
        Fate::Ended
    } else if board.has_counted(session)? {
        board.remove_session(session)?;
        Fate::Ended
    } else {
        board.replace(Flag::Evicted(session), &Verdict::Evicted { plan: 0 })?;
        board.remove_session(session)?;
        Fate::Evicted
    };
    board.remove(claim)?;
    Ok(fate)
}
