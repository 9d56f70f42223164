//! A collection: from its registration to the removal of what it condemned.

use super::decide::{Standing, clear_up, own_word, standing};
use super::{Board, Fate, commit, evict, register, register::Known};
use drumlin_format::decision::Verdict;
use drumlin_format::plan::Plan;
use drumlin_format::{IndexId, PackId, PlanId, SessionId, SnapshotId};

/// What a first look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// Packs of which no snapshot needs anything that isn't elsewhere too.
    pub packs: Vec<PackId>,
    /// Index objects that name such packs; what else they name is named by others.
    pub indexes: Vec<IndexId>,
    /// The snapshots that were looked at.
    pub snapshots: Vec<SnapshotId>,
    /// Packs that stay where they are, and leave the index with those objects.
    pub unnamed: Vec<PackId>,
}

/// Take back a collection that has not come to its decision: its plans and its session.
fn withdraw<B: Board>(board: &B, me: SessionId) -> Result<(), B::Error> {
    let plans = remove_plans_of(board, me);
    // Even if that failed: a plan without its session is nobody's.
    board.remove_session(me)?;
    plans
}

fn remove_plans_of<B: Board>(board: &B, session: SessionId) -> Result<(), B::Error> {
    for id in board.plans()? {
        if board.plan(id)?.is_some_and(|plan| plan.session == session) {
            board.remove_plan(id)?;
        }
    }
    Ok(())
}

/// What is collected: who knows snapshots, trees and packs.
pub trait Subject<B: Board> {
    /// What it fails with.
    type Error: From<B::Error>;

    /// The first look. May write packs and index objects that take the place of others; nothing that it condemns may be
    /// needed by any snapshot at hand, that of an open session included, if the packs that the known plans condemn
    /// are taken for gone: they may go at any time, or never. They are condemned once more where nothing of them is
    /// needed, and the index objects of those plans in any case. `None`: there is nothing to condemn.
    fn look(&mut self, board: &B, known: &Known) -> Result<Option<Draft>, Self::Error>;

    /// The second look, now that nobody is left who might not know the plan: takes from the draft what a snapshot that
    /// has come since needs after all, and adds index objects that have come since and name condemned packs. It reads
    /// the index afresh: what the first look saw, another collector may have removed. What the known plans condemn is
    /// taken for gone here, too.
    fn look_again(&mut self, board: &B, draft: &mut Draft) -> Result<(), Self::Error>;

    /// An id that was never used before.
    fn plan_id(&mut self) -> Result<PlanId, Self::Error>;

    /// Whether something that could not be put may yet appear, and be believed if the session ends.
    fn is_in_doubt(&self) -> bool {
        false
    }
}

/// What to do about a session in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Look again whether it has ended: whoever says so has waited a while.
    Wait,
    /// Evict it.
    Evict,
    /// Leave everything as it is.
    GiveUp,
}

/// What became of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collected {
    /// There was nothing to condemn.
    Nothing,
    /// These are gone.
    Done(Draft),
    /// This session was in the way; nothing is gone.
    Blocked(SessionId),
    /// Another collector was faster; nothing is gone by our doing.
    Evicted,
}

/// Collect, as the session `me`, which is new. `patience` is asked about each session in the way, again and again.
///
/// May be stopped at any point: what stands then is finished, or undone, by the next collection. One that fails before
/// it decides undoes that itself; if its decision fails, it may be there all the same, and others settle that.
///
/// # Errors
/// The board's and the subject's own. Nothing is gone unless the decision came to be.
pub fn collect<B: Board, S: Subject<B>>(
    board: &B,
    me: SessionId,
    subject: &mut S,
    patience: &mut dyn FnMut(SessionId) -> Patience,
) -> Result<Collected, S::Error> {
    let mut decides = false;
    let collected = run(board, me, subject, patience, &mut decides);
    let is_undecided = match &collected {
        Err(_) => !decides && !subject.is_in_doubt(),
        // Where there are flags, ours is there: somebody may have seen it alone.
        Ok(Collected::Evicted) => board.creates_atomically()?,
        Ok(_) => false,
    };
    if is_undecided {
        // If that fails as well, the next collection does it.
        let _ = withdraw(board, me);
    }
    collected
}

fn run<B: Board, S: Subject<B>>(
    board: &B,
    me: SessionId,
    subject: &mut S,
    patience: &mut dyn FnMut(SessionId) -> Patience,
    decides: &mut bool,
) -> Result<Collected, S::Error> {
    let known = register(board, me)?;
    settle(board, &known)?;
    // Index objects that are written here name again what others named. What another is about to remove must not be
    // among it: so whoever stands for a plan is over before anything is looked at.
    for plan in &known.plans {
        if !clear(board, plan.session, me, patience)? {
            board.remove_session(me)?;
            return Ok(Collected::Blocked(plan.session));
        }
    }
    // Those plans were carried out or never will be: what they condemn is gone, or a pack like any other. Where that
    // can't be known, they stand.
    let doubtful = settle(board, &known)?;
    let Some(mut draft) = subject.look(board, &doubtful)? else {
        board.remove_session(me)?;
        return Ok(Collected::Nothing);
    };
    let mut plan = plan(subject.plan_id()?, me, &draft);
    board.put_plan(&plan)?;
    // Whoever registers from here on sees the plan. Whoever is registered now may not have.
    for session in board.sessions()? {
        if session != me && !clear(board, session, me, patience)? {
            board.remove_plan(plan.id)?;
            board.remove_session(me)?;
            return Ok(Collected::Blocked(session));
        }
    }
    let before = draft.clone();
    subject.look_again(board, &mut draft)?;
    let mut plans = vec![plan.id];
    if draft != before {
        plan = self::plan(subject.plan_id()?, me, &draft);
        board.put_plan(&plan)?;
        plans.push(plan.id);
    }
    *decides = true;
    if !commit(board, me, &Verdict::Collected { plan: plan.id })? {
        return Ok(Collected::Evicted);
    }
    carry_out(board, &plan, &plans)?;
    Ok(Collected::Done(draft))
}

fn plan(id: PlanId, session: SessionId, draft: &Draft) -> Plan {
    let Draft { packs, indexes, snapshots, unnamed } = draft.clone();
    Plan { id, session, packs, indexes, snapshots, unnamed }
}

/// Remove what a plan that was decided on condemns, then the plans of its session, then the session. First the index
/// objects: what no index names is referred to by nobody who begins now.
fn carry_out<B: Board>(board: &B, plan: &Plan, plans: &[PlanId]) -> Result<(), B::Error> {
    board.remove_indexes(&plan.indexes)?;
    board.remove_packs(&plan.packs)?;
    plans.iter().try_for_each(|id| board.remove_plan(*id))?;
    clear_up(board, plan.session)
}

/// Finish what collectors that were stopped have decided on, and remove plans that nobody will ever decide on. Gives
/// those of which that isn't known.
fn settle<B: Board>(board: &B, known: &Known) -> Result<Known, B::Error> {
    let mut doubtful = Known::default();
    for plan in &known.plans {
        match standing(board, plan.session)? {
            Standing::Decided(id) => finish(board, plan.session, id)?,
            Standing::Void => board.remove_plan(plan.id)?,
            // Nothing is left that could be carried out.
            Standing::Doubtful if !board.has_any_of(plan)? => board.remove_plan(plan.id)?,
            // One that is open is in the way, and will be dealt with there.
            Standing::Doubtful | Standing::Open => doubtful.plans.push(plan.clone()),
        }
    }
    Ok(doubtful)
}

/// Carry out the plan that a collector has decided on.
fn finish<B: Board>(board: &B, session: SessionId, id: PlanId) -> Result<(), B::Error> {
    // After the decision: it may be on a plan that was put since others were listed.
    let Some(plan) = board.plan(id)?.filter(|plan| plan.session == session) else {
        // It was carried out, and its collector was stopped right before its end.
        return clear_up(board, session);
    };
    let mut ids = Vec::new();
    for other in board.plans()? {
        // One that can't be read is no reason not to: without this session it is nobody's, and a repair removes it.
        let is_of_session = other == id || matches!(board.plan(other), Ok(Some(plan)) if plan.session == session);
        ids.extend(is_of_session.then_some(other));
    }
    // The one that it is about goes last: whoever finishes this later has to find it.
    ids.sort_by_key(|other| *other == id);
    carry_out(board, &plan, &ids)
}

/// End sessions that are known to be over, so that what they left counts as nobody's.
pub fn bury<B: Board>(board: &B, over: &[SessionId], by: SessionId) -> Result<(), B::Error> {
    over.iter().try_for_each(|session| clear(board, *session, by, &mut |_| Patience::Evict).map(drop))
}

/// Remove plans that nobody can read, as the session `me`, which is new, once nobody else is registered. Gives a
/// session that there was no waiting for; then they stand.
///
/// Whoever registers later can't read them either, and does nothing. A plan without its session was not decided on, and
/// never will be. One that was decided on and that stands yet has its session: whose removal takes the plan, and fails
/// here.
pub fn discard<B: Board>(
    board: &B,
    plans: &[PlanId],
    me: SessionId,
    patience: &mut dyn FnMut(SessionId) -> Patience,
) -> Result<Option<SessionId>, B::Error> {
    board.put_session(me)?;
    let at_work = alone(board, me, &mut |_| Ok(true), patience);
    if let Ok(None) = at_work {
        plans.iter().try_for_each(|id| board.remove_plan(*id))?;
    }
    board.remove_session(me)?;
    at_work
}

/// See that no other collector is registered, as `counts` tells them; `me` is. Gives one that there was no waiting for.
///
/// Whoever registers from here on finds `me`, and sees that he is not alone.
pub fn alone<B: Board>(
    board: &B,
    me: SessionId,
    counts: &mut dyn FnMut(SessionId) -> Result<bool, B::Error>,
    patience: &mut dyn FnMut(SessionId) -> Patience,
) -> Result<Option<SessionId>, B::Error> {
    for session in board.sessions()? {
        if session != me && counts(session)? && !clear(board, session, me, patience)? {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// Wait for the end of a session, or bring it about. `false`: there was no waiting for it.
fn clear<B: Board>(
    board: &B,
    session: SessionId,
    me: SessionId,
    patience: &mut dyn FnMut(SessionId) -> Patience,
) -> Result<bool, B::Error> {
    while board.has_session(session)? {
        // Who has decided is over, whether he has cleared up or not, and whether he may: nothing that he does is in
        // anybody's way.
        let is_over = own_word(board, session)?.is_some();
        match if is_over { Patience::Evict } else { patience(session) } {
            Patience::Wait => {}
            Patience::GiveUp => return Ok(false),
            Patience::Evict => {
                if let Fate::Collector(id) = evict(board, session, me)? {
                    finish(board, session, id)?;
                }
                return Ok(true);
            }
        }
    }
    Ok(true)
}
