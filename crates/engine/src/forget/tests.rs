//! What the rules keep: worked examples, and properties of all sets of rules over all sets of snapshots.

use super::*;
use drumlin_format::KeyId;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::collections::BTreeMap;

const DAY: i64 = 86_400;
/// A Friday: 2026-11-20 12:00 UTC.
const NOW: i64 = 1_795_176_000;

fn at(id: u16, time: i64) -> Candidate {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&id.to_be_bytes());
    Candidate {
        id: SnapshotId(bytes),
        time: (time, 0),
        host: "host".into(),
        paths: vec![b"/home".to_vec()],
        tags: Vec::new(),
        signer: Some(KeyId([1; 16])),
        partial: false,
        lacks_sources: false,
        behind: None,
        open_session: false,
    }
}

/// A snapshot each so many seconds, the newest first; the ids count from 0.
fn series(count: u16, every: i64) -> Vec<Candidate> {
    (0..count).map(|n| at(n, NOW - i64::from(n) * every)).collect()
}

fn options(rules: Rules) -> Options {
    Options { rules, group_by: GroupBy::default(), now: (NOW, 0), zone: TimeZone::UTC, allow_remove_all: false }
}

fn every(unit: Unit, count: Count) -> Rules {
    let mut rules = Rules::default();
    match unit {
        Unit::Hour => rules.every.hourly = count,
        Unit::Day => rules.every.daily = count,
        Unit::Week => rules.every.weekly = count,
        Unit::Month => rules.every.monthly = count,
        Unit::Year => rules.every.yearly = count,
    }
    rules
}

fn last(count: u32) -> Rules {
    Rules { last: Count::Of(count), ..Rules::default() }
}

fn fates(candidates: &[Candidate], options: &Options) -> BTreeMap<SnapshotId, Fate> {
    decide(candidates, options).into_iter().flat_map(|group| group.fates).collect()
}

/// The numbers of those that are kept, and why.
fn kept(candidates: &[Candidate], rules: Rules) -> Vec<(u16, String)> {
    let words = |reasons: &[Reason]| reasons.iter().map(Reason::to_string).collect::<Vec<_>>().join(", ");
    let number = |id: SnapshotId| u16::from_be_bytes([id.0[0], id.0[1]]);
    fates(candidates, &options(rules))
        .into_iter()
        .filter_map(|(id, fate)| match fate {
            Fate::Keep(reasons) => Some((number(id), words(&reasons))),
            _ => None,
        })
        .collect()
}

fn numbers(candidates: &[Candidate], rules: Rules) -> Vec<u16> {
    kept(candidates, rules).into_iter().map(|(id, _)| id).collect()
}

fn word(id: u16, text: &str) -> (u16, String) {
    (id, text.to_owned())
}

/// A disk that isn't mounted for a week must not cost the last snapshots that have what is on it.
#[test]
fn what_lacks_a_source_pushes_out_nothing_that_has_it() {
    let mut candidates = series(20, DAY);
    candidates[..12].iter_mut().for_each(|candidate| candidate.lacks_sources = true);
    let numbers: Vec<u16> = kept(&candidates, every(Unit::Day, Count::Of(3))).into_iter().map(|(n, _)| n).collect();
    assert_eq!(numbers, [0, 1, 2, 12, 13, 14]);
    // A stopped run is resumed as long as nothing whole came after it.
    let mut stopped = at(100, NOW - 13 * DAY + 1);
    stopped.partial = true;
    candidates.push(stopped);
    assert!(!kept(&candidates, last(1)).iter().any(|(n, _)| *n == 100));
    candidates.last_mut().unwrap().time = (NOW - 11 * DAY, 0);
    assert!(kept(&candidates, last(1)).iter().any(|(n, _)| *n == 100));
}

#[test]
fn the_last_ones() {
    assert_eq!(kept(&series(5, DAY), last(2)), [word(0, "last 1 of 2"), word(1, "last 2 of 2")]);
    assert_eq!(kept(&series(5, DAY), last(1)), [word(0, "last")]);
    assert_eq!(numbers(&series(5, DAY), Rules { last: Count::All, ..Rules::default() }).len(), 5);
}

/// As restic's manual has it: a backup each Sunday, four daily ones kept.
#[test]
fn days_that_have_snapshots_are_counted() {
    assert_eq!(numbers(&series(12, 7 * DAY), every(Unit::Day, Count::Of(4))), [0, 1, 2, 3]);
}

#[test]
fn the_newest_of_each_unit_stands_for_it() {
    // Each six hours from Friday noon on: 0 and 1 and 2 are of Friday (12:00, 06:00, 00:00), 3 is Thursday 18:00.
    let all = series(40, DAY / 4);
    assert_eq!(
        kept(&all, every(Unit::Day, Count::Of(3))),
        [word(0, "daily 1 of 3"), word(3, "daily 2 of 3"), word(7, "daily 3 of 3")]
    );
    // 19 is Sunday 18:00, the last of its week.
    assert_eq!(kept(&all, every(Unit::Week, Count::Of(2))), [word(0, "weekly 1 of 2"), word(19, "weekly 2 of 2")]);
    assert_eq!(numbers(&series(48, 1800), every(Unit::Hour, Count::Of(3))), [0, 1, 3]);
    // 2026-11-20, -10-31, …
    assert_eq!(numbers(&series(100, DAY), every(Unit::Month, Count::Of(3))), [0, 20, 51]);
    assert_eq!(numbers(&series(400, DAY), every(Unit::Year, Count::Of(2))), [0, 324]);
    let all: Vec<_> = kept(&all, every(Unit::Day, Count::All)).into_iter().map(|(_, why)| why).collect();
    assert_eq!((all.len(), &all[1][..]), (11, "daily 2"), "ten days, and the oldest");
}

#[test]
fn the_oldest_is_kept_while_a_rule_has_some_left() {
    let all = series(6, DAY / 4);
    // Friday and Thursday are all there is; 5 is the oldest.
    assert_eq!(
        kept(&all, every(Unit::Day, Count::Of(7))),
        [word(0, "daily 1 of 7"), word(3, "daily 2 of 7"), word(5, "oldest daily 3 of 7")]
    );
    assert_eq!(numbers(&all, every(Unit::Day, Count::Of(2))), [0, 3], "nothing is left for the oldest");
    assert_eq!(numbers(&all, every(Unit::Year, Count::Of(2))), [0, 5]);
    let mut rules = Rules::default();
    rules.within_every.daily = "1y".parse().ok();
    assert_eq!(kept(&all, rules.clone())[2], word(5, "oldest daily within 1y"));
    rules.within_every.daily = "30h".parse().ok();
    assert_eq!(numbers(&all, rules.clone()), [0, 3], "the oldest is 30 hours old, which is not within 30 hours");
    rules.within_every.daily = "31h".parse().ok();
    assert_eq!(numbers(&all, rules), [0, 3, 5]);
}

#[test]
fn periods_count_from_the_newest() {
    let all = series(10, DAY);
    let within = |period: &str| Rules { within: period.parse().ok(), ..Rules::default() };
    assert_eq!(numbers(&all, within("3d")), [0, 1, 2], "what is just three days old is not within");
    assert_eq!(kept(&all, within("25h"))[1], word(1, "within 25h"));
    assert_eq!(numbers(&all, within("19999y")).len(), 10);
    // What comes alone, after a pause, by a clock that was wrong or when the machine was on again, pushes nothing out;
    // the one after it does.
    let mut alone = series(10, DAY);
    alone[0].time.0 += 400 * DAY;
    let at = Options { now: (NOW + 400 * DAY, 0), ..options(within("3d")) };
    let kept_of = |all: &[Candidate]| fates(all, &at).iter().filter(|(_, fate)| matches!(fate, Fate::Keep(_))).count();
    assert_eq!(kept_of(&alone), 4);
    alone[1].time.0 += 400 * DAY;
    assert_eq!(kept_of(&alone), 2);
    // A year in which the machine was off, or a clock that jumped.
    let late = Options { now: (NOW + 400 * DAY, 0), ..options(within("3d")) };
    assert_eq!(fates(&all, &late), fates(&all, &options(within("3d"))));
}

#[test]
fn tags_keep_without_counting() {
    let mut all = series(4, DAY);
    all[2].tags = vec!["a".into(), "b".into()];
    all[3].tags = vec!["b".into()];
    let tags = |sets: &[&[&str]]| sets.iter().map(|s| s.iter().map(|t| (*t).to_owned()).collect()).collect();
    let rules = |sets: &[&[&str]]| Rules { tags: tags(sets), ..last(1) };
    assert_eq!(kept(&all, rules(&[&["a", "b"]])), [word(0, "last"), word(2, "tagged a+b")]);
    assert_eq!(numbers(&all, rules(&[&["a"], &["b"]])), [0, 2, 3]);
    assert_eq!(kept(&all, rules(&[&[]])), [word(0, "last, no tags"), word(1, "no tags")]);
}

#[test]
fn who_is_left_alone() {
    let mut all = series(5, DAY);
    all[0].time.0 = NOW + DAY + 1;
    all[1].signer = None;
    all[2].open_session = true;
    let fates = fates(&all, &options(last(1)));
    let of = |n: usize| fates[&all[n].id].clone();
    assert_eq!(of(0), Fate::LeaveAlone(Left::Future));
    assert_eq!(of(1), Fate::LeaveAlone(Left::UnknownKey));
    assert_eq!(of(2), Fate::LeaveAlone(Left::OpenSession));
    assert_eq!(of(3), Fate::Keep(vec![Reason::Last { n: 1, of: Count::Of(1) }]));
    assert_eq!(of(4), Fate::Go(Going::NoRule));
    // A day ahead is no more than a clock that is a bit off.
    all[0].time.0 = NOW + DAY;
    assert_eq!(numbers(&all, last(1)), [0]);
}

#[test]
fn a_stolen_key_pushes_out_nothing_but_its_own() {
    let mut all = series(8, DAY);
    // The newest four are somebody else's, who names the same host and sources.
    all[..4].iter_mut().for_each(|c| c.signer = Some(KeyId([2; 16])));
    assert_eq!(numbers(&all, last(2)), [0, 1, 4, 5]);
    assert_eq!(numbers(&all, every(Unit::Day, Count::Of(1))), [0, 4]);
}

#[test]
fn partial_ones_go_once_a_newer_one_is_whole() {
    let mut all = series(4, DAY);
    all[0].partial = true;
    all[2].partial = true;
    let fates_now = fates(&all, &options(last(9)));
    assert_eq!(fates_now[&all[0].id], Fate::Keep(vec![Reason::Resumes]));
    assert_eq!(fates_now[&all[2].id], Fate::Go(Going::Superseded));
    // What stands for nothing does not supersede anything either.
    all[1].signer = None;
    assert_eq!(fates(&all, &options(last(9)))[&all[2].id], Fate::Keep(vec![Reason::Resumes]));
    all[1].signer = Some(KeyId([1; 16]));
    all[1].host = "other".into();
    assert_eq!(fates(&all, &options(last(9)))[&all[2].id], Fate::Keep(vec![Reason::Resumes]));
    // Nor does another key's: a stolen one may name any host and sources.
    (all[1].host, all[1].signer) = ("host".into(), Some(KeyId([2; 16])));
    assert_eq!(fates(&all, &options(last(9)))[&all[2].id], Fate::Keep(vec![Reason::Resumes]));
    all[1].signer = Some(KeyId([1; 16]));
    // Nor is it counted: the whole one is the last.
    all[1].host = "host".into();
    assert_eq!(kept(&all, last(1)), [word(0, "the next backup resumes from it"), word(1, "last")]);
    all[2].tags = vec!["x".into()];
    assert_eq!(numbers(&all, Rules { tags: vec![vec!["x".into()]], ..last(1) }), [0, 1, 2]);
}

#[test]
fn groups_are_counted_apart() {
    let mut all = series(6, DAY);
    all[1].host = "other".into();
    all[2].paths = vec![b"/etc".to_vec(), b"/home".to_vec()];
    all[3].paths = vec![b"/home".to_vec(), b"/etc".to_vec()];
    all[4].tags = vec!["t".into()];
    assert_eq!(
        numbers(&all, last(1)),
        [0, 1, 2],
        "paths in any order are one set; tags make no group unless asked for"
    );
    let by = |text: &str| Options { group_by: text.parse().unwrap(), ..options(last(1)) };
    let going = |options| Plan { groups: decide(&all, &options) }.going().len();
    assert_eq!(going(by("host,paths,tags")), 2);
    assert_eq!(going(by("host")), 4);
    assert_eq!(going(by("")), 5);
    let groups = decide(&all, &by("host"));
    assert_eq!(groups.iter().map(|g| g.key.to_string()).collect::<Vec<_>>(), ["host host", "host other"]);
    assert!(groups[0].fates.is_sorted_by_key(|(id, _)| std::cmp::Reverse(*id)), "oldest first");
}

#[test]
fn nothing_is_left_of_a_group_only_if_that_is_asked_for() {
    let mut all = series(3, DAY);
    all[0].tags = vec!["x".into()];
    all[1].host = "other".into();
    let rules = Rules { tags: vec![vec!["x".into()]], ..Rules::default() };
    let plan = Plan { groups: decide(&all, &options(rules.clone())) };
    let refused = plan.check().unwrap_err().to_string();
    assert!(refused.contains("host other, paths /home") && refused.contains("the only snapshot of "), "{refused}");
    let plan = Plan { groups: decide(&all, &Options { allow_remove_all: true, ..options(rules) }) };
    assert!(plan.check().is_ok());
    assert_eq!(plan.going(), [all[2].id, all[1].id]);
    // One that does not count keeps no group alive.
    all[0].signer = None;
    let plan = Plan { groups: decide(&all[..1], &options(Rules::default())) };
    assert!(plan.check().is_ok() && plan.going().is_empty(), "nothing to remove is nothing to refuse");
    all[1] = at(1, NOW - DAY);
    assert!(Plan { groups: decide(&all, &options(Rules::default())) }.check().is_err());
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    // Times cluster, so that hours, days and weeks are shared; and some are beyond all calendars.
    let time = prop_oneof![
        8 => (0i64..60, 0i64..DAY).prop_map(|(days, second)| NOW - days * DAY - second),
        4 => (0i64..4000).prop_map(|days| NOW - days * DAY),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(NOW + 2 * DAY)],
    ];
    let one = (time, 0u8..3, proptest::collection::vec(0u8..3, 0..3), 0u8..16);
    proptest::collection::vec(one, 0..40).prop_map(|all| {
        let make = |(n, (time, host, tags, marks)): (usize, (i64, u8, Vec<u8>, u8))| Candidate {
            host: format!("host {host}"),
            tags: tags.iter().map(|t| format!("tag {t}")).collect(),
            signer: (marks != 0).then_some(KeyId([1; 16])),
            open_session: marks == 1,
            partial: marks == 2 || marks == 3,
            lacks_sources: marks == 4 || marks == 5,
            behind: (marks == 6).then_some(86_400),
            ..at(n as u16, time)
        };
        all.into_iter().enumerate().map(make).collect()
    })
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![4 => Just(Count::Of(0)), 4 => (1u32..9).prop_map(Count::Of), 1 => Just(Count::All)]
}

fn period() -> impl Strategy<Value = Option<Period>> {
    let period = (0u32..3, 0u32..5, 0u32..5, 0u32..40, 0u32..99);
    proptest::option::weighted(0.3, period).prop_map(|fields| {
        let (years, months, weeks, days, hours) = fields?;
        Some(Period { years, months, weeks, days, hours: hours.max(1) })
    })
}

fn per_unit<T: std::fmt::Debug>(one: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = PerUnit<T>> {
    (one.clone(), one.clone(), one.clone(), one.clone(), one)
        .prop_map(|(hourly, daily, weekly, monthly, yearly)| PerUnit { hourly, daily, weekly, monthly, yearly })
}

fn rules() -> impl Strategy<Value = Rules> {
    let tags = proptest::collection::vec(proptest::collection::vec(0u8..3, 0..3), 0..2)
        .prop_map(|sets| sets.iter().map(|set| set.iter().map(|t| format!("tag {t}")).collect()).collect());
    (count(), per_unit(count().boxed()), period(), per_unit(period().boxed()), tags)
        .prop_map(|(last, every, within, within_every, tags)| Rules { last, every, within, within_every, tags })
}

/// Both sets of rules at once; of two rules of a kind the one that keeps more.
fn joined(one: &Rules, other: &Rules) -> Rules {
    let more = |a: Count, b: Count| match (a, b) {
        (Count::Of(a), Count::Of(b)) => Count::Of(a.max(b)),
        _ => Count::All,
    };
    let or = |a: Option<Period>, b: Option<Period>| a.or(b);
    macro_rules! join {
        ($field:ident, $how:expr) => {
            PerUnit {
                hourly: $how(one.$field.hourly, other.$field.hourly),
                daily: $how(one.$field.daily, other.$field.daily),
                weekly: $how(one.$field.weekly, other.$field.weekly),
                monthly: $how(one.$field.monthly, other.$field.monthly),
                yearly: $how(one.$field.yearly, other.$field.yearly),
            }
        };
    }
    Rules {
        last: more(one.last, other.last),
        every: join!(every, more),
        within: or(one.within, other.within),
        within_every: join!(within_every, or),
        tags: [&one.tags[..], &other.tags].concat(),
    }
}

fn stays(fate: &Fate) -> bool {
    !matches!(fate, Fate::Go(_))
}

proptest! {
    #[test]
    fn more_rules_never_keep_less(all in candidates(), one in rules(), other in rules()) {
        let (few, many) = (fates(&all, &options(one.clone())), fates(&all, &options(joined(&one, &other))));
        prop_assert_eq!(few.len(), all.len());
        for (id, fate) in &few {
            prop_assert!(!stays(fate) || stays(&many[id]), "{:?}: {:?} and {:?}", id, fate, many[id]);
        }
    }

    #[test]
    fn no_group_is_emptied_unasked(all in candidates(), rules in rules()) {
        let options = options(rules);
        for group in decide(&all, &options) {
            // Those that count together: of one key, and with all sources or not. Whether any stays of each.
            let mut stay: BTreeMap<_, bool> = BTreeMap::new();
            for (id, fate) in &group.fates {
                let candidate = all.iter().find(|c| c.id == *id).unwrap();
                if !candidate.partial && !matches!(fate, Fate::LeaveAlone(_)) {
                    *stay.entry((candidate.signer, candidate.lacks_sources)).or_default() |= stays(fate);
                }
            }
            let emptied = stay.values().any(|any| !any);
            prop_assert_eq!(group.emptied, emptied);
            let refused = Plan { groups: vec![group.clone()] }.check().is_err();
            prop_assert_eq!(refused, emptied);
        }
        for group in decide(&all, &Options { allow_remove_all: true, ..options }) {
            prop_assert!(!group.emptied);
        }
    }

    #[test]
    fn order_makes_no_difference(all in candidates(), rules in rules(), seed in any::<u64>()) {
        let mut other = all.clone();
        other.sort_by_key(|c| seed.wrapping_mul(u64::from(c.id.0[1]) * 2 + 1) >> 32);
        prop_assert_eq!(decide(&all, &options(rules.clone())), decide(&other, &options(rules)));
    }

    #[test]
    fn who_does_not_count_changes_nothing_for_others(
        all in candidates(), rules in rules(), time in 0i64..60, kind in 0u8..3,
    ) {
        let before = fates(&all, &options(rules.clone()));
        let mut added = Candidate { host: "host 0".into(), ..at(9999, NOW - time * DAY) };
        match kind {
            0 => added.signer = None,
            1 => added.time.0 = NOW + (2 + time) * DAY,
            _ => added.open_session = true,
        }
        let mut more = all.clone();
        more.push(added.clone());
        let mut after = fates(&more, &options(rules));
        prop_assert!(matches!(after.remove(&added.id), Some(Fate::LeaveAlone(_))));
        prop_assert_eq!(before, after);
    }
}
