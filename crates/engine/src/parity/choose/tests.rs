//! Any packs and any bands: one run covers all, a second one does nothing, and what is said to be removable is.

use super::*;
use drumlin_format::band::Head;
use drumlin_format::pack::PackKind;
use drumlin_seal::Suite;
use proptest::prelude::*;

fn member(n: u16, len: u64) -> Member {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    Member { pack: PackId(id), kind: PackKind::Data, len }
}

fn band(n: u8, rows: usize, seats: Vec<Option<Member>>) -> Option<Band> {
    let head = Head::new(BandId([n; 15]), Suite::Aes256Gcm, seats, rows).ok()?;
    let objects = (0..=rows as u8).map(|number| Some(head.object_len(number))).collect();
    Some(Band { head, objects })
}

fn ask(packs: &[Member]) -> Ask {
    Ask { wanted: packs.iter().map(|m| (m.pack, *m)).collect(), ..Ask::default() }
}

/// What there is once all is made, and what nobody needs is removed.
fn carried_out(bands: &Bands, choice: &Choice, next: &mut u8, clear: bool) -> Bands {
    let mut all: Vec<Band> = bands.all.clone();
    for step in &choice.steps {
        *next += 1;
        all.extend(band(*next, step.recipe.rows, step.recipe.seats.clone()));
    }
    if clear {
        all.retain(|band| !choice.removable.contains(&band.id()));
    }
    Bands { all, ..Bands::default() }
}

fn covered(bands: &Bands, ask: &Ask) -> HashSet<PackId> {
    let sound = |band: &&Band| band.is_whole() && band.head.members().all(|m| ask.wanted.get(&m.pack) == Some(&m));
    bands.all.iter().filter(sound).flat_map(|band| band.head.members().map(|m| m.pack)).collect()
}

/// Make, then remove, as upkeep does. Gives what there is then.
fn keep(bands: &Bands, ask: &Ask, next: &mut u8) -> Bands {
    let made = carried_out(bands, &choose(bands, ask), next, false);
    let again = choose(&made, ask);
    assert!(again.steps.is_empty(), "{:?}", again.steps);
    let cleared = carried_out(&made, &again, next, true);
    assert_eq!(covered(&cleared, ask).len(), ask.wanted.len());
    cleared
}

#[test]
fn shapes_are_read() {
    assert_eq!("16+1".parse(), Ok(Shape { seats: 16, rows: 1 }));
    assert_eq!(Shape { seats: 16, rows: 1 }.to_string(), "16+1");
    for wrong in ["16", "+", "16+", "0+1", "1+0", "129+1", "1+17", "16+1 "] {
        assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
    }
}

#[test]
fn packs_of_a_length_sit_together_and_few_bands_are_half_empty() {
    let mut packs: Vec<Member> = (0..50).map(|n| member(n, 60_000_000 + u64::from(n))).collect();
    packs.extend((50..60).map(|n| member(n, 10_000)));
    let ask = Ask { shape: Some(Shape { seats: 16, rows: 2 }), ..ask(&packs) };
    let choice = choose(&Bands::default(), &ask);
    let mut taken: Vec<usize> = choice.steps.iter().map(|s| s.recipe.seats.iter().flatten().count()).collect();
    taken.sort_unstable();
    assert_eq!(taken, [2, 10, 16, 16, 16]);
    assert_eq!((choice.uncovered.len(), choice.stay.len()), (60, 0));
    // The rows of the small ones are small.
    assert!(choice.cost(&Bands::default()).written < 60_000_100 * 2 * 4 + 100_000);
}

#[test]
fn one_more_pack_goes_where_there_is_room() {
    let (mut next, shape) = (0, Some(Shape { seats: 4, rows: 1 }));
    let packs: Vec<Member> = (0..6).map(|n| member(n, 5000)).collect();
    let bands = keep(&Bands::default(), &Ask { shape, ..ask(&packs) }, &mut next);
    let more: Vec<Member> = (0..7).map(|n| member(n, 5000)).collect();
    let choice = choose(&bands, &ask(&more));
    assert_eq!((choice.steps.len(), choice.stay.len(), choice.removable.len()), (1, 1, 0), "{choice:?}");
    let step = &choice.steps[0];
    assert_eq!((step.recipe.seats.iter().flatten().count(), step.replaces.len()), (3, 1));
    assert_eq!(choice.uncovered, [member(6, 5000)]);
}

#[test]
fn of_two_of_the_same_everybody_removes_the_same() {
    let packs: Vec<Member> = (0..3).map(|n| member(n, 5000)).collect();
    let seats = || packs.iter().copied().map(Some).collect::<Vec<_>>();
    let larger = band(9, 1, [seats(), vec![Some(member(7, 5000))]].concat()).unwrap();
    let all = vec![band(2, 1, seats()).unwrap(), band(1, 1, seats()).unwrap()];
    let choice = choose(&Bands { all: all.clone(), ..Bands::default() }, &ask(&packs));
    assert_eq!((choice.stay, choice.removable), (vec![BandId([1; 15])], vec![BandId([2; 15])]));
    // One with a pack that is gone covers nothing by itself.
    let all = [all, vec![larger]].concat();
    let choice = choose(&Bands { all, ..Bands::default() }, &ask(&packs));
    assert_eq!((choice.stay, choice.removable), (vec![BandId([1; 15])], vec![BandId([2; 15]), BandId([9; 15])]));
}

#[test]
fn what_a_lost_pack_may_be_made_of_is_held() {
    let packs: Vec<Member> = (0..4).map(|n| member(n, 5000)).collect();
    let bands = Bands { all: vec![band(1, 1, packs.iter().copied().map(Some).collect()).unwrap()], ..Bands::default() };
    let ask = Ask { held: HashSet::from([packs[3].pack]), ..ask(&packs[..3]) };
    let choice = choose(&bands, &ask);
    assert_eq!((choice.held.len(), choice.removable.len(), choice.steps.len()), (1, 0, 1));
    assert!(choice.steps[0].replaces.is_empty());
    let made = carried_out(&bands, &choice, &mut 5, false);
    assert!(choose(&made, &ask).removable.is_empty() && choose(&made, &ask).steps.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Packs come and go, bands are spoiled: after each upkeep all is covered, and there is not much more than it
    /// takes.
    #[test]
    fn upkeep_after_upkeep(
        rounds in prop::collection::vec((prop::collection::vec((0u16..400, 1u64..200_000), 0..40), any::<u64>()), 1..8),
        shape in (1usize..12, 1usize..4),
    ) {
        let shape = Shape { seats: shape.0, rows: shape.1 };
        let (mut bands, mut next, mut packs) = (Bands::default(), 0, BTreeMap::<PackId, Member>::new());
        for (round, (come, luck)) in rounds.iter().enumerate() {
            // Ids are never used again.
            let new = come.iter().enumerate().map(|(n, (_, len))| member((round * 1000 + n) as u16, *len));
            packs.extend(new.map(|m| (m.pack, m)));
            let mut at = 0u32;
            packs.retain(|_, _| {
                at += 1;
                luck.rotate_left(at) % 3 > 0
            });
            let spoiled = bands.all.iter().filter(|band| luck % 11 == u64::from(band.id().0[0]) % 11).map(Band::id).collect();
            let ask = Ask {
                shape: (round == 0 || luck % 5 == 0).then_some(shape),
                wanted: packs.clone(),
                spoiled,
                ..Ask::default()
            };
            if next > 150 {
                break;
            }
            bands = keep(&bands, &ask, &mut next);
            let rows: usize = bands.all.iter().filter(|band| band.head.rows > 0).count();
            // Full ones, one for each class that is not, and as many again as may be half empty.
            let least = packs.len().div_ceil(shape.seats);
            prop_assert!(rows <= 2 * least + 7, "{rows} bands for {} packs of {shape}", packs.len());
        }
    }
}
