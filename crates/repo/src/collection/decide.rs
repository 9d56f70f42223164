//! One decision a session: either it commits or it is evicted, whoever comes first.
//!
//! An eviction takes two steps, a claim and its confirmation, because a session may have ended between the collector's
//! listing and its claim: its decision is removed by then, and the claim finds the place free. So the claim alone means
//! nothing, and is confirmed only while the session is still registered: a session whose place is taken can't commit,
//! and one that hasn't committed doesn't end. A confirmed eviction stands for good: the writer may wake up years later.

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
}

/// How it stands about a collector's plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// This one has been decided on, and has to be carried out.
    Decided(PlanId),
    /// None will ever be.
    Void,
    /// The collector is at work, or stopped.
    Open,
    /// It has decided, and it was evicted, and nobody can tell what came first: whoever saw the decision alone carries
    /// the plan out, at any time from now on. Elsewhere than in stores that create atomically.
    Doubtful,
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
        // Before the flag: it may have come too late. And while somebody claims the session nobody else knows which it
        // will be.
        let against = |flag: &Flag| matches!(flag, Flag::Claim(..) | Flag::Evicted(_));
        if flags.iter().any(against) || !flags.contains(&Flag::Commit(session)) {
            return Ok(None);
        }
        Flag::Commit(session)
    };
    let is_own = |verdict: &Verdict| matches!(verdict, Verdict::Committed { .. } | Verdict::Collected { .. });
    Ok(board.verdict(flag)?.filter(is_own))
}

/// End a session of ours that has committed. Without a session its snapshot counts for good, and without a session a
/// decision means nothing: so in this order. Where the session may come back, the decision stays, or the snapshot would
/// count no more: it is put again, should somebody who knows nothing of that have ended the session for us.
pub fn end<B: Board>(board: &B, session: SessionId, verdict: &Verdict) -> Result<(), B::Error> {
    board.remove_session(session)?;
    if !board.may_come_back(session)? {
        return remove_decision(board, session);
    }
    match board.creates_atomically()? {
        true => board.create(Flag::Decision(session), verdict).map(drop),
        false => board.replace(Flag::Commit(session), verdict),
    }
}

/// End a collector's session, whose plan was carried out: should that come back, it means nothing.
pub(super) fn clear_up<B: Board>(board: &B, session: SessionId) -> Result<(), B::Error> {
    board.remove_session(session)?;
    remove_decision(board, session)
}

fn remove_decision<B: Board>(board: &B, session: SessionId) -> Result<(), B::Error> {
    board.remove(if board.creates_atomically()? { Flag::Decision(session) } else { Flag::Commit(session) })
}

/// End a session in the name of its writer, who has committed this snapshot.
fn end_for<B: Board>(board: &B, session: SessionId, committed: SnapshotId) -> Result<Fate, B::Error> {
    board.remove_checkpoints(session, committed)?;
    board.remove_session(session)?;
    // Who hasn't put it can't know, as a rule.
    if !board.may_come_back(session)? {
        remove_decision(board, session)?;
    }
    Ok(Fate::Ended)
}

/// How it stands about the plans of a collector.
pub(super) fn standing<B: Board>(board: &B, collector: SessionId) -> Result<Standing, B::Error> {
    let decided = |flag| -> Result<Option<Standing>, B::Error> {
        Ok(match board.verdict(flag)? {
            Some(Verdict::Collected { plan }) => Some(Standing::Decided(plan)),
            _ => None,
        })
    };
    if board.creates_atomically()? {
        return Ok(match decided(Flag::Decision(collector))? {
            Some(decided) => decided,
            None if board.has_session(collector)? => Standing::Open,
            None => Standing::Void,
        });
    }
    // First the session: who removes it has put his flag before, or has carried out everything.
    let at_work = board.has_session(collector)?;
    let flags = board.flags(collector)?;
    let has_decided = flags.contains(&Flag::Commit(collector));
    let is_claimed = flags.iter().any(|flag| matches!(flag, Flag::Claim(..)));
    Ok(match flags.contains(&Flag::Evicted(collector)) {
        true if has_decided => Standing::Doubtful,
        // Should it decide now, nobody will see that and not see this.
        true => Standing::Void,
        false if has_decided && !is_claimed => decided(Flag::Commit(collector))?.unwrap_or(Standing::Open),
        false if at_work => Standing::Open,
        false if has_decided => Standing::Doubtful,
        false => Standing::Void,
    })
}

/// Get `session` out of the way of the collector `by`.
///
/// # Errors
/// The board's. The session may be claimed then: whoever collects next goes on from there.
pub fn evict<B: Board>(board: &B, session: SessionId, by: SessionId) -> Result<Fate, B::Error> {
    if board.creates_atomically()? { evict_atomically(board, session, by) } else { evict_by_flags(board, session, by) }
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
/// Of two collectors one may see the flag, and the other not yet; and no flags make them agree. So who sees another's
/// claim beside the flag of a collector evicts it, too: then its plan is [`Standing::Doubtful`] for everybody who looks
/// after that.
fn evict_by_flags<B: Board>(board: &B, session: SessionId, by: SessionId) -> Result<Fate, B::Error> {
    let claim = Flag::Claim(session, by);
    board.replace(claim, &Verdict::Claimed { by })?;
    let flags = board.flags(session)?;
    let is_anothers = |flag: &Flag| matches!(flag, Flag::Claim(..)) && *flag != claim;
    let gone = |evicted| {
        if evicted {
            board.replace(Flag::Evicted(session), &Verdict::Evicted { plan: 0 })?;
        }
        board.remove_session(session)
    };
    let commit = Flag::Commit(session);
    let word = if flags.contains(&commit) { Some(board.verdict(commit)?) } else { None };
    let fate = match word {
        _ if flags.contains(&Flag::Evicted(session)) => {
            gone(false)?;
            Fate::Evicted
        }
        Some(Some(Verdict::Collected { .. })) if flags.iter().any(is_anothers) => {
            gone(true)?;
            Fate::Evicted
        }
        Some(Some(Verdict::Collected { plan })) => Fate::Collector(plan),
        Some(Some(Verdict::Committed { snapshot })) => end_for(board, session, snapshot)?,
        Some(None) => Fate::Ended,
        // It has said nothing, or somebody else has in its place: it may be at work, and commit yet.
        None | Some(Some(_)) if !board.has_session(session)? => Fate::Ended,
        None | Some(Some(_)) if board.has_counted(session)? => {
            gone(false)?;
            // The claim stays: should the session be a collector's, and decide yet, it sees that it has not.
            return Ok(Fate::Ended);
        }
        None | Some(Some(_)) => {
            gone(true)?;
            Fate::Evicted
        }
    };
    board.remove(claim)?;
    Ok(fate)
}
