//! Which snapshots the rules keep. Pure: snapshots, rules, the time and the time zone in, what becomes of each out.
//!
//! The meaning of the rules is restic's. They are asked from the newest snapshot to the oldest; `daily 7` keeps the
//! newest of each of the last 7 days *that have snapshots*; while such a rule has some left, it keeps the oldest one
//! too, which makes the history as long as can be. Periods count back from the newest snapshot of the group, not from
//! the clock: a clock that jumps removes nothing.
//!
//! Not every snapshot is *counted*. One that nobody known has signed could be put there by the storage, and one from
//! the future by a client whose clock is wrong: such a one must not push others out, and is left alone itself. So are
//! the last ones that were made later than another of their client's and call themselves older: by their times they
//! would be the first to go. And within a group the rules count the snapshots of each signing key for themselves, and
//! of those the ones for which some source was not there (a disk that isn't mounted, or is dead): they must not push
//! out the last ones that have it.

use super::calendar::{Bucket, before, zoned};
use super::fate::{Fate, Going, Left, Reason};
use super::group::{GroupBy, GroupKey};
use super::rules::{Count, Period, Rules, Unit};
use drumlin_format::{KeyId, SnapshotId};
use drumlin_repo::{SnapshotInfo, Trust};
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};

/// Clocks differ. A snapshot that is further ahead than so many seconds is from the future.
pub(crate) const FUTURE_SECONDS: i64 = 24 * 60 * 60;

/// What is to be known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which it is.
    pub id: SnapshotId,
    /// When it was taken: seconds since 1970 and nanoseconds.
    pub time: (i64, u32),
    /// The machine.
    pub host: String,
    /// What was backed up.
    pub paths: Vec<Vec<u8>>,
    /// The user's tags.
    pub tags: Vec<String>,
    /// The key that signed it, if it is one that may write.
    pub signer: Option<KeyId>,
    /// Of a run that was stopped.
    pub partial: bool,
    /// Some of its sources were not there.
    pub lacks_sources: bool,
    /// So many seconds later than its own time it was made.
    pub behind: Option<u64>,
    /// Its session hasn't ended.
    pub open_session: bool,
}

impl From<&SnapshotInfo> for Candidate {
    fn from(info: &SnapshotInfo) -> Self {
        let s = &info.snapshot;
        Candidate {
            id: s.id,
            time: s.time,
            host: s.host.clone(),
            paths: s.paths.clone(),
            tags: s.tags.clone(),
            signer: match info.trust {
                Trust::Signed(key) => Some(key),
                Trust::Unknown(_) => None,
            },
            partial: s.partial.is_some(),
            lacks_sources: s.summary.absent.is_some(),
            behind: s.summary.behind,
            open_session: info.open_session && !info.committed,
        }
    }
}

/// How to decide.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to keep.
    pub rules: Rules,
    /// Within which groups.
    pub group_by: GroupBy,
    /// The time now, seconds since 1970 and nanoseconds: only to tell what is from the future.
    pub now: (i64, u32),
    /// Where days begin.
    pub zone: TimeZone,
    /// Whether the rules may remove all snapshots of a group.
    pub allow_remove_all: bool,
}

/// A group, and what becomes of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they have in common.
    pub key: GroupKey,
    /// Each of them, oldest first.
    pub fates: Vec<(SnapshotId, Fate)>,
    /// Of those that count together, of one key, and with all sources or not, nothing would be kept, and nobody has
    /// allowed that.
    pub emptied: bool,
    /// By how many keys those were signed that the rules were asked about: each one's count for themselves.
    pub signers: usize,
}

/// What becomes of snapshots. In whatever order they come: the groups are in the order of what they have in common.
pub fn decide(candidates: &[Candidate], options: &Options) -> Vec<Group> {
    let mut groups: BTreeMap<GroupKey, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates {
        groups.entry(GroupKey::of(candidate, options.group_by)).or_default().push(candidate);
    }
    groups.into_iter().map(|(key, members)| decide_group(key, members, options)).collect()
}

fn decide_group(key: GroupKey, mut members: Vec<&Candidate>, options: &Options) -> Group {
    members.sort_by_key(|c| (c.time, c.id));
    let left = left_alone(&members, options.now);
    let counts = |at: &usize| left[*at].is_none() && !members[*at].partial;
    // Newest first, as the rules are asked.
    let counted: Vec<usize> = (0..members.len()).rev().filter(counts).collect();
    // Whoever has stolen a writer's key may name any host and any sources, and must not push out what others have
    // signed. Nor does what lacks a source stand for what has it.
    let mut alike: BTreeMap<(Option<KeyId>, bool), Vec<usize>> = BTreeMap::new();
    counted.iter().for_each(|at| alike.entry((members[*at].signer, members[*at].lacks_sources)).or_default().push(*at));
    let newest_whole: BTreeMap<Option<KeyId>, (i64, u32)> = {
        let whole = alike.iter().filter(|((_, lacks_sources), _)| !lacks_sources);
        whole.filter_map(|((signer, _), own)| Some((*signer, members[*own.first()?].time))).collect()
    };
    let signers = alike.keys().map(|(signer, _)| signer).collect::<BTreeSet<_>>().len();
    let mut reasons: Vec<(usize, Vec<Reason>)> = Vec::with_capacity(counted.len());
    let mut emptied = false;
    for own in alike.into_values() {
        let whole: Vec<&Candidate> = own.iter().map(|at| members[*at]).collect();
        let of_own = kept(&whole, options);
        emptied |= of_own.iter().all(Vec::is_empty) && !options.allow_remove_all;
        reasons.extend(own.into_iter().zip(of_own));
    }
    let mut fates: Vec<Fate> = members
        .iter()
        .zip(&left)
        .map(|(candidate, left)| match left {
            Some(left) => Fate::LeaveAlone(*left),
            None => {
                let newest = newest_whole.get(&candidate.signer).copied();
                partial(candidate, newest, &options.rules)
            }
        })
        .collect();
    for (at, reasons) in reasons {
        fates[at] = if reasons.is_empty() { Fate::Go(Going::NoRule) } else { Fate::Keep(reasons) };
    }
    Group { key, fates: members.iter().map(|c| c.id).zip(fates).collect(), emptied, signers }
}

/// Of those that were made by a clock that was behind, so many are left alone. The others go by their own times: if one
/// snapshot was from the future, and not the clock behind that made those after it, these are right.
const BEHIND_LEFT: usize = 7;

/// Which of a group's snapshots are left alone.
fn left_alone(members: &[&Candidate], now: (i64, u32)) -> Vec<Option<Left>> {
    let latest = (now.0.saturating_add(FUTURE_SECONDS), now.1);
    // In the order in which they were made, by all that is known.
    let mut behind: BTreeMap<Option<KeyId>, Vec<(i64, SnapshotId)>> = BTreeMap::new();
    for c in members.iter().filter(|c| !c.partial) {
        let made = c.behind.map(|seconds| c.time.0.saturating_add_unsigned(seconds));
        made.into_iter().for_each(|made| behind.entry(c.signer).or_default().push((made, c.id)));
    }
    behind.values_mut().for_each(|own| own.sort_unstable_by(|a, b| b.cmp(a)));
    let is_behind = |c: &Candidate| {
        let own = behind.get(&c.signer).into_iter().flatten();
        own.take(BEHIND_LEFT).any(|(_, id)| *id == c.id)
    };
    let one = |c: &&Candidate| match () {
        () if c.signer.is_none() => Some(Left::UnknownKey),
        () if c.open_session => Some(Left::OpenSession),
        () if c.time > latest => Some(Left::Future),
        () if is_behind(c) => Some(Left::Behind),
        () => None,
    };
    members.iter().map(one).collect()
}

/// What becomes of a partial snapshot: it is of use for as long as no newer one of the same key has all that it has.
fn partial(candidate: &Candidate, newest_whole: Option<(i64, u32)>, rules: &Rules) -> Fate {
    let mut reasons: Vec<_> = tagged(candidate, rules).collect();
    if newest_whole.is_none_or(|newest| newest <= candidate.time) {
        reasons.push(Reason::Resumes);
    }
    if reasons.is_empty() { Fate::Go(Going::Superseded) } else { Fate::Keep(reasons) }
}

fn tagged(candidate: &Candidate, rules: &Rules) -> impl Iterator<Item = Reason> {
    let has = |set: &&Vec<String>| match set.is_empty() {
        true => candidate.tags.is_empty(),
        false => set.iter().all(|tag| candidate.tags.contains(tag)),
    };
    rules.tags.iter().filter(has).map(|set| Reason::Tags(set.clone()))
}

/// A rule that keeps one snapshot of each hour, day, …
struct Tally {
    unit: Unit,
    limit: Limit,
    /// How many it has kept, and of which hour, day, … the last one was.
    kept: u32,
    last: Option<Bucket>,
}

enum Limit {
    Count(Count),
    /// The period, and what lies after this moment; everything if there is none.
    Within(Period, Option<jiff::Timestamp>),
}

impl Tally {
    /// Why this rule keeps the snapshot of that time, if it does. To be asked from the newest on.
    fn ask(&mut self, time: &jiff::Zoned, is_oldest: bool) -> Option<Reason> {
        let open = match &self.limit {
            Limit::Count(Count::All) => true,
            Limit::Count(Count::Of(of)) => self.kept < *of,
            Limit::Within(_, start) => start.is_none_or(|start| time.timestamp() > start),
        };
        let bucket = Bucket::of(self.unit, time);
        let is_new = self.last != Some(bucket);
        if !open || !(is_new || is_oldest) {
            return None;
        }
        self.last = Some(bucket);
        self.kept += 1;
        let (unit, oldest) = (self.unit, !is_new);
        Some(match self.limit {
            Limit::Count(of) => Reason::Every { unit, n: self.kept, of, oldest },
            Limit::Within(period, _) => Reason::WithinEvery { unit, period, oldest },
        })
    }
}

/// What lies behind this moment is within a period: of the newest snapshot, or of the one before, where the newest
/// alone comes after a pause that is longer than the period. A clock that was wrong for once pushes nothing out so, nor
/// does the first snapshot of a machine that was off for long.
fn start(newest_first: &[jiff::Zoned], period: Period) -> Option<jiff::Timestamp> {
    let start = before(newest_first.first()?, period);
    match newest_first.get(1) {
        Some(second) if start.is_some_and(|start| second.timestamp() <= start) => before(second, period),
        _ => start,
    }
}

/// Why each of these, newest first, is kept.
fn kept(newest_first: &[&Candidate], options: &Options) -> Vec<Vec<Reason>> {
    let rules = &options.rules;
    let times: Vec<_> = newest_first.iter().map(|c| zoned(c.time, &options.zone)).collect();
    if times.is_empty() {
        return Vec::new();
    }
    let start = |period| start(&times, period);
    let within = rules.within.map(|period| (period, start(period)));
    let counts =
        Unit::ALL.map(|unit| (unit, rules.every.get(unit).is_some().then(|| Limit::Count(rules.every.get(unit)))));
    let periods = Unit::ALL.map(|unit| (unit, rules.within_every.get(unit).map(|p| Limit::Within(p, start(p)))));
    let mut tallies: Vec<Tally> = { counts.into_iter().chain(periods) }
        .filter_map(|(unit, limit)| Some(Tally { unit, limit: limit?, kept: 0, last: None }))
        .collect();
    let mut all = Vec::with_capacity(times.len());
    for (at, (candidate, time)) in newest_first.iter().zip(&times).enumerate() {
        let mut reasons = Vec::new();
        let n = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        if rules.last == Count::All || matches!(rules.last, Count::Of(of) if n <= of) {
            reasons.push(Reason::Last { n, of: rules.last });
        }
        if let Some((period, start)) = within
            && start.is_none_or(|start| time.timestamp() > start)
        {
            reasons.push(Reason::Within(period));
        }
        reasons.extend(tallies.iter_mut().filter_map(|tally| tally.ask(time, at + 1 == times.len())));
        reasons.extend(tagged(candidate, rules));
        all.push(reasons);
    }
    all
}
