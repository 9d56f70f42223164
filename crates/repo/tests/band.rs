//! Bands: up to as many packs as there are rows may be lost, or slices of as many at each place, and all is as it was;
//! beyond that it is said. Recovery objects that are damaged or that lie make nothing worse.

use drumlin_format::band::{Head, Member, SLICE_BYTES};
use drumlin_format::pack::{self, Footer, PackKind};
use drumlin_format::parity;
use drumlin_format::{BandId, PackId};
use drumlin_repo::band::{Bands, Made, Recipe, Through, Verified, make};
use drumlin_repo::pack::{Encoder, Healed};
use drumlin_repo::{CreateOptions, NewLock, Repository, Result, names};
use drumlin_seal::Secret;
use drumlin_store::{Kind, MemoryStore, Put, Store};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

fn noise(len: usize, seed: u64) -> Vec<u8> {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..4 << 20).map(|_| next()).collect()
    });
    let at = (seed as usize).wrapping_mul(7919) % (NOISE.len() - len);
    NOISE[at..at + len].to_vec()
}

/// Some packs.
struct Scene {
    memory: MemoryStore,
    repository: Repository,
    packs: Vec<(Member, Vec<u8>)>,
}

fn name(member: &Member) -> String {
    names::pack(member.kind, member.pack)
}

impl Scene {
    fn new(lens: &[usize], seed: u64) -> Self {
        let memory = MemoryStore::new();
        let lock = NewLock::File(Secret::new([1; 32]));
        let options = CreateOptions::default();
        let repository = Repository::create(Arc::new(memory.clone()), options, lock, "test", 0).unwrap().0;
        let mut scene = Scene { memory, repository, packs: Vec::new() };
        lens.iter().enumerate().for_each(|(n, len)| scene.add(noise(*len, seed + n as u64)));
        scene
    }

    fn add(&mut self, bytes: Vec<u8>) {
        let n = self.packs.len() as u8;
        let kind = if n.is_multiple_of(3) { PackKind::Tree } else { PackKind::Data };
        let member = Member { pack: PackId([n + 1; 16]), kind, len: bytes.len() as u64 };
        self.memory.put(&name(&member), &bytes, Put::Create).unwrap();
        self.packs.push((member, bytes));
    }

    /// With parity of its own.
    fn add_whole_pack(&mut self, data_len: usize, seed: u64) {
        let (suite, id) = (self.repository.config().suite, PackId([self.packs.len() as u8 + 1; 16]));
        let kind = if self.packs.len().is_multiple_of(3) { PackKind::Tree } else { PackKind::Data };
        let header = pack::header(kind, suite, 0, id);
        let mut bytes = noise(data_len, seed);
        bytes[..32].copy_from_slice(&header.encode());
        let mut encoder = Encoder::default();
        encoder.write(&bytes);
        let (table_offset, table_len) = (data_len as u64 - 100, 100);
        let head = parity::Head { header: header.encode(), table_offset, table_len };
        let parity = encoder.finish(&head).unwrap();
        bytes.extend_from_slice(&parity);
        bytes.extend_from_slice(&Footer::new(table_offset, table_len, parity.len() as u32).encode(&header));
        self.add(bytes);
    }

    fn members(&self) -> Vec<Option<Member>> {
        self.packs.iter().map(|(member, _)| Some(*member)).collect()
    }

    fn bands(&self) -> Bands {
        Bands::look(&self.repository).unwrap()
    }

    fn try_make(&self, recipe: &Recipe) -> Result<Made> {
        let bands = self.bands();
        let through = Through::new(&self.repository, &bands);
        make(&self.repository, &bands, &through, recipe, &|| false, &|_| {}).map(Option::unwrap)
    }

    fn make(&self, seats: Vec<Option<Member>>, rows: usize, from: &[BandId]) -> Made {
        self.try_make(&Recipe { seats, rows, from: from.to_vec() }).unwrap()
    }

    fn forget(&self, band: BandId) {
        self.names().iter().filter(|n| n.contains(&band.to_string())).for_each(|n| self.memory.delete(n).unwrap());
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.memory.list(names::PARITY, &mut |listed| names.push(listed.name)).unwrap();
        names.sort();
        names
    }

    fn lose(&self, seat: usize) {
        self.memory.delete(&name(&self.packs[seat].0)).unwrap();
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.memory.get(name).unwrap();
        change(&mut bytes);
        self.memory.put(name, &bytes, Put::Replace).unwrap();
    }

    fn damage(&self, seat: usize, at: usize, len: usize) {
        self.change(&name(&self.packs[seat].0), |bytes| bytes[at..at + len].iter_mut().for_each(|b| *b = !*b));
    }

    fn mend(&self) {
        for (member, bytes) in &self.packs {
            self.memory.put(&name(member), bytes, Put::Replace).unwrap();
        }
    }

    /// Read a pack through its bands.
    fn read(&self, seat: usize) -> Option<Vec<u8>> {
        let (member, right) = &self.packs[seat];
        let through = Through::new(&self.repository, &self.bands());
        let mut bytes = vec![0; right.len()];
        let surely = through.read_surely(&name(member), 0, &mut bytes).map(|()| bytes);
        let mut pieces = vec![0; right.len()];
        // As blocks are read: anywhere.
        let mut at = 0;
        let by_pieces = pieces.chunks_mut(99_991).try_for_each(|piece| {
            let read = through.read_at(&name(member), at, piece);
            at += piece.len() as u64;
            read
        });
        match surely {
            Ok(bytes) => {
                assert!(by_pieces.is_ok() && pieces == bytes);
                Some(bytes)
            }
            Err(e) => {
                assert!(e.is_of_one_object(), "{e}");
                None
            }
        }
    }

    #[track_caller]
    fn all_come_back(&self) {
        for (seat, (_, right)) in self.packs.iter().enumerate() {
            assert!(self.read(seat).is_some_and(|bytes| bytes == *right), "seat {seat}");
        }
    }

    /// The recovery data of a band.
    fn rows(&self, head: &Head) -> Vec<Vec<u8>> {
        let row = |number: u8| {
            let bytes = self.memory.get(&names::recovery(head.band.object(number))).unwrap();
            bytes[head.data_offset() as usize..][..head.row_len() as usize].to_vec()
        };
        (1..=head.rows as u8).map(row).collect()
    }
}

#[test]
fn a_band_is_found_as_it_was_made() {
    let scene = Scene::new(&[100, 200_000, 65_536], 1);
    let made = scene.make(scene.members(), 2, &[]);
    let bands = scene.bands();
    assert_eq!((bands.all.len(), bands.stray.len()), (1, 0));
    let band = &bands.all[0];
    assert!(band.is_whole() && band.head == made.band.head && band.objects == made.band.objects);
    assert_eq!(made.cost.read, 265_636);
    assert_eq!(made.cost.written, band.bytes());
    for number in 0..=2 {
        assert_eq!(band.verify(&scene.repository, number).unwrap(), Verified::default());
    }
    // Any one object tells of all.
    for kept in 0..=2usize {
        let names = scene.names();
        let gone: Vec<_> =
            (0..=2).filter(|n| *n != kept).map(|n| (&names[n], scene.memory.get(&names[n]).unwrap())).collect();
        gone.iter().for_each(|(name, _)| scene.memory.delete(name).unwrap());
        let found = scene.bands();
        assert_eq!((&found.all[0].head, found.all[0].is_whole()), (&made.band.head, false));
        assert_eq!(found.all[0].wrong().count(), 2);
        // And its last bytes, if the first ones are gone.
        scene.change(&names[kept], |bytes| bytes[..4096].fill(0));
        assert_eq!(scene.bands().all[0].head, made.band.head);
        let verified = scene.bands().all[0].verify(&scene.repository, kept as u8).unwrap();
        assert_eq!((verified.heads, verified.slices), (1, 0));
        gone.iter().for_each(|(name, bytes)| scene.memory.put(name, bytes, Put::Create).unwrap());
        scene.change(&names[kept], |bytes| bytes[..4096].copy_from_slice(&made.band.head.beginning(kept as u8)));
    }
    scene.all_come_back();
}

#[test]
fn by_slices_more_packs_may_be_damaged_than_there_are_rows() {
    for rows in [1, 2, 3] {
        let lens = [300_000, 299_999, 200_000, 70_000, 300_000, 250_000, 300_000];
        let scene = Scene::new(&lens, 5);
        scene.make(scene.members(), rows, &[]);
        // As many whole packs as may be, but for one; and of the others one at each place.
        (1..rows).for_each(|seat| scene.lose(seat));
        for (place, seat) in [(0, 4), (1, 3), (2, 5), (3, 6), (4, 0)] {
            scene.damage(seat, place * SLICE_BYTES + 10, 1 + seat * 300);
        }
        scene.all_come_back();
        // One more at one of these places: the two there are lost, and nothing else is.
        scene.damage(6, 2 * SLICE_BYTES + 60_000, 1);
        for seat in [1..rows, 5..7].into_iter().flatten() {
            assert!(scene.read(seat).is_none(), "{rows} rows, seat {seat}");
        }
        for seat in [0, 3, 4] {
            assert!(scene.read(seat).is_some_and(|bytes| bytes == scene.packs[seat].1));
        }
    }
}

/// A lost pack, and damage in others that is beyond what the band bears: their own parity does it.
#[test]
fn a_packs_own_parity_helps_the_others() {
    let mut scene = Scene::new(&[], 0);
    (0..4).for_each(|n| scene.add_whole_pack(400_000 + n * 50_000, n as u64 + 9));
    scene.make(scene.members(), 1, &[]);
    scene.lose(2);
    (0..2).for_each(|seat| scene.damage(seat, 100_000, 3000));
    scene.all_come_back();
    // Too much of it; but the lost pack is healed by its own parity, where all but one slice of it is there.
    scene.mend();
    scene.damage(0, 70_000, 60_000);
    scene.damage(1, 70_000, 60_000);
    assert!(scene.read(0).is_none() && scene.read(1).is_none());
    scene.all_come_back_but(&[0, 1]);
}

impl Scene {
    fn all_come_back_but(&self, seats: &[usize]) {
        for seat in (0..self.packs.len()).filter(|seat| !seats.contains(seat)) {
            assert!(self.read(seat).is_some_and(|bytes| bytes == self.packs[seat].1));
        }
    }
}

/// What had rotted before a band covered it is nothing that the band makes again, and what rots after that is read
/// through the band while the pack's own parity is at work.
#[test]
fn packs_seen_through_bands_are_healed_by_their_own_parity() {
    let mut scene = Scene::new(&[], 5);
    // Longer than what is looked at of a band at once: the pack's end, where its parity is found, is another part than
    // its beginning.
    (0..4).for_each(|n| scene.add_whole_pack(20 * SLICE_BYTES, n));
    scene.damage(1, 1000, 5);
    scene.make(scene.members(), 1, &[]);
    scene.damage(1, SLICE_BYTES + 1000, 5);
    let (through, member) = (scene.repository.through(&scene.bands()), scene.packs[1].0);
    let (to, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let healed = Healed::find(&through, member.kind, member.pack, member.len).unwrap();
        to.send(healed.unwrap().look_at_all().unwrap()).unwrap();
    });
    let damage = seen.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for itself");
    assert!(damage.is_healed(), "{damage:?}");
}

#[test]
fn a_band_takes_the_place_of_others_and_what_stays_is_not_read() {
    for rows in [1, 2, 5] {
        let lens = [100_000, 150_000, 200_000, 50_000, 99_000, 170_000, 400_000, 120_000];
        let scene = Scene::new(&lens, 3);
        let all = scene.members();
        let pick = |seats: &[Option<usize>]| seats.iter().map(|n| n.and_then(|n| all[n])).collect::<Vec<_>>();
        let first = scene.make(pick(&[Some(0), Some(1), Some(2), None, Some(3), None]), rows, &[]).band;
        let second = scene.make(pick(&[None, Some(4), None, Some(5), None, None]), rows, &[]).band;
        let same_as_new = |seats: Vec<Option<Member>>, from: &[BandId], read: &[usize]| {
            let recipe = Recipe { seats: seats.clone(), rows, from: from.to_vec() };
            let cost = recipe.cost(&scene.bands());
            // Packs that stay can't be read.
            let kept: HashMap<usize, Vec<u8>> =
                (0..8).filter(|n| !read.contains(n)).map(|n| (n, scene.packs[n].1.clone())).collect();
            kept.keys().for_each(|n| scene.lose(*n));
            let made = scene.try_make(&recipe);
            scene.mend();
            let made = made.unwrap_or_else(|e| panic!("{rows} rows: {e}"));
            assert!(cost.read.abs_diff(made.cost.read) <= 65_536 * 8, "{cost:?} {:?}", made.cost);
            let new = scene.make(seats, rows, &[]);
            assert!(scene.rows(&made.band.head) == scene.rows(&new.band.head), "{rows} rows");
            scene.forget(new.band.id());
            for number in 0..=rows as u8 {
                assert_eq!(made.band.verify(&scene.repository, number).unwrap(), Verified::default());
            }
            made.band
        };
        // One goes; one goes, the longest, and two come, one of them the longest; two bands become one, one of them
        // moves.
        let without = same_as_new(pick(&[Some(0), None, Some(2), None, Some(3), None]), &[first.id()], &[1]);
        same_as_new(pick(&[Some(0), Some(1), None, None, Some(3), None]), &[first.id()], &[2]);
        same_as_new(pick(&[Some(0), Some(6), None, Some(7), Some(3), None]), &[without.id()], &[2, 6, 7]);
        same_as_new(pick(&[Some(0), Some(1), Some(2), Some(5), Some(3), Some(4)]), &[first.id(), second.id()], &[4]);
        // Nothing is taken over for nothing.
        let recipe = Recipe { seats: pick(&[Some(3), None]), rows, from: vec![first.id()] };
        assert!(recipe.cheapest(&scene.bands()).from.is_empty());
    }
}

/// What was damaged since is healed by the new band as it would have been by the old one.
#[test]
fn damage_is_not_taken_over() {
    for rows in [1, 2] {
        let scene = Scene::new(&[200_000; 5], 8);
        let mut seats = scene.members();
        let old = scene.make(seats.clone(), rows, &[]).band;
        scene.damage(0, 70_000, 10);
        seats[4] = None;
        let new = scene.make(seats.clone(), rows, &[old.id()]).band;
        scene.forget(old.id());
        scene.all_come_back_but(&[4]);
        // Nor where all are read, as long as the old one stands.
        let again = scene.make(seats, rows, &[]).band;
        scene.forget(new.id());
        scene.all_come_back_but(&[4]);
        // Where that can't be helped it fails.
        (0..rows).for_each(|seat| scene.lose(seat + 1));
        let failed = scene.try_make(&Recipe { seats: scene.members(), rows, from: Vec::new() }).unwrap_err();
        assert!(failed.is_of_one_object(), "{failed}");
        assert_eq!(scene.bands().all.len(), 1, "{again:?}");
    }
}

/// Packs that end before the piece at hand begins.
#[test]
fn short_packs_sit_beside_long_ones() {
    let mut scene = Scene::new(&[1_500_000, 200_000, 2_100_000], 4);
    let first = scene.make(scene.members(), 2, &[]).band;
    scene.add(noise(90_000, 50));
    scene.make([scene.members(), vec![None]].concat(), 2, &[first.id()]);
    scene.forget(first.id());
    scene.lose(2);
    scene.lose(3);
    scene.all_come_back();
}

#[test]
fn old_recovery_data_that_is_damaged_is_not_made_use_of() {
    let scene = Scene::new(&[200_000; 5], 8);
    let mut seats = scene.members();
    let old = scene.make(seats.clone(), 2, &[]).band;
    let name = names::recovery(old.id().object(2));
    scene.change(&name, |bytes| bytes[4096 + 70_000] ^= 1);
    let verified = old.verify(&scene.repository, 2).unwrap();
    assert_eq!((verified.heads, verified.sums, verified.slices), (0, 0, 1));
    seats[4] = None;
    let new = scene.make(seats.clone(), 2, &[old.id()]).band;
    let right = scene.make(seats, 2, &[]).band;
    assert!(scene.rows(&new.head) == scene.rows(&right.head));
}

#[test]
fn what_was_not_made_to_its_end_is_no_band() {
    let scene = Scene::new(&[70_000; 3], 2);
    let made = scene.make(scene.members(), 2, &[]).band;
    scene.memory.delete(&names::recovery(made.id().object(0))).unwrap();
    let bands = scene.bands();
    assert!(!bands.all[0].is_made() && !bands.all[0].is_whole());
    // It heals all the same.
    scene.lose(0);
    scene.lose(1);
    scene.all_come_back();
    scene.memory.delete(&names::recovery(made.id().object(1))).unwrap();
    assert!(scene.read(0).is_none() && scene.read(2).is_some());
    // A number that no band of two rows has, and nothing at all.
    scene.memory.put(&names::recovery(made.id().object(9)), b"", Put::Create).unwrap();
    scene.memory.put(&names::recovery(BandId([9; 15]).object(0)), &noise(5000, 1), Put::Create).unwrap();
    let mut stray: Vec<_> = scene.bands().stray.iter().map(|(id, _)| id.number()).collect();
    stray.sort_unstable();
    assert_eq!(stray, [0, 9]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any packs, any rows: what is lost up to the rows comes back, recovery objects or packs; one more is told.
    #[test]
    fn what_is_lost_comes_back(
        lens in prop::collection::vec(1usize..200_000, 1..20),
        rows in 1usize..6,
        holes in prop::collection::vec(0usize..20, 0..4),
        order in any::<u64>(),
    ) {
        let scene = Scene::new(&lens, order % 1000);
        let mut seats = scene.members();
        holes.iter().for_each(|at| seats.insert(at % (seats.len() + 1), None));
        let head = scene.make(seats, rows, &[]).band.head;
        let mut places: Vec<usize> = (0..lens.len() + rows).collect();
        places.sort_by_key(|n| noise(8, order.wrapping_add(*n as u64 * 131)));
        let lose = |place: usize| match place.checked_sub(lens.len()) {
            None => scene.lose(place),
            Some(row) => scene.memory.delete(&names::recovery(head.band.object(row as u8 + 1))).unwrap(),
        };
        places.iter().take(rows).for_each(|place| lose(*place));
        scene.all_come_back();
        if let Some(one_more) = places.get(rows) {
            lose(*one_more);
            let gone: Vec<usize> = places[..=rows].iter().copied().filter(|n| *n < lens.len()).collect();
            scene.all_come_back_but(&gone);
            // The shorter ones may end before as many are lost.
            let longest = gone.iter().max_by_key(|n| lens[**n]).copied();
            let (slices, first) = (|n: usize| lens[n].div_ceil(SLICE_BYTES), places[..=rows].iter().any(|n| *n >= lens.len()));
            if let Some(longest) = longest.filter(|n| !first && gone.iter().all(|g| slices(*g) == slices(*n))) {
                prop_assert!(scene.read(longest).is_none());
            }
        }
    }

    /// Whatever recovery objects hold, what is whole is read as it is, and what is lost as it was or not at all.
    #[test]
    fn recovery_objects_that_are_damaged_do_no_harm(
        lens in prop::collection::vec(1usize..150_000, 1..6),
        rows in 1usize..4,
        seed in any::<u64>(),
        what in 0usize..6,
    ) {
        let scene = Scene::new(&lens, 77);
        scene.make(scene.members(), rows, &[]);
        scene.make(scene.members(), 1, &[]);
        scene.lose(seed as usize % lens.len());
        let names = scene.names();
        for (n, name) in names.iter().enumerate() {
            let other = scene.memory.get(&names[(n + 1) % names.len()]).unwrap();
            let noise = noise(200, seed.wrapping_add(n as u64) % 100_000);
            let at = |len: usize| (seed.rotate_left(n as u32 * 7) as usize) % len;
            scene.change(name, |bytes| match what {
                0 => { let at = at(bytes.len()); bytes[at] ^= 0x20 }
                1 => bytes.truncate(at(bytes.len())),
                2 => { let at = at(bytes.len() - 200); bytes[at..at + 200].copy_from_slice(&noise) }
                3 => *bytes = other,
                4 => bytes.extend_from_slice(&noise),
                // Heads that can be read, of other seats and lengths.
                _ => {
                    let at = 32 + 40 + at(60);
                    bytes[at] = bytes[at].wrapping_add(1);
                    let end = 32 + 48 + 25 * lens.len();
                    if bytes.len() > end + 16 {
                        let sum = drumlin_seal::checksum(&bytes[32..end]);
                        bytes[end..end + 16].copy_from_slice(&sum);
                    }
                }
            });
        }
        let bands = scene.bands();
        for band in &bands.all {
            for number in 0..=band.head.rows as u8 {
                let _ = band.verify(&scene.repository, number);
            }
        }
        let through = Through::new(&scene.repository, &bands);
        for (seat, (member, right)) in scene.packs.iter().enumerate() {
            let is_lost = seat == seed as usize % lens.len();
            let mut bytes = vec![0; right.len()];
            match through.read_at(&name(member), 0, &mut bytes) {
                Ok(()) => prop_assert!(bytes == *right || is_lost, "garbage for what is whole"),
                Err(e) => prop_assert!(is_lost && matches!(e.kind, Kind::Missing | Kind::Truncated), "{}", e),
            }
        }
    }
}
