//! Packs of many sizes, damaged in many ways: up to what their parity bears they are healed to the same bytes, and
//! beyond that it is said.

use drumlin_format::PackId;
use drumlin_format::pack::{self, FOOTER_BYTES, Footer, PackKind};
use drumlin_format::parity::{Head, Layout, SHARD_BYTES, Stripe};
use drumlin_repo::pack::{Damage, Encoder, Healed, PackScan};
use drumlin_repo::{CreateOptions, NewLock, PackInfo, Repository, names};
use drumlin_seal::Secret;
use drumlin_store::{FaultStore, Faults, MemoryStore, Put, Store};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

const SHARD: usize = SHARD_BYTES;

/// A pack of noise, and what it was.
struct Scene {
    memory: MemoryStore,
    faults: Faults,
    repository: Repository,
    info: PackInfo,
    layout: Layout,
    whole: Vec<u8>,
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| noise(17 << 20, 1));
const SIZES: [usize; 13] = [
    52,
    3000,
    SHARD,
    SHARD + 1,
    16 * SHARD,
    16 * SHARD + 1,
    64 * SHARD + 7,
    129 * SHARD,
    256 * SHARD,
    256 * SHARD + 1,
    700 * SHARD + 99,
    1024 * SHARD + 1,
    4096 * SHARD + 3 * SHARD,
];

impl Scene {
    fn new(len: usize) -> Self {
        let memory = MemoryStore::new();
        let disk = FaultStore::new(memory.clone());
        let faults = disk.faults();
        let lock = NewLock::File(Secret::new([1; 32]));
        let options = CreateOptions::default();
        let repository = Repository::create(Arc::new(disk), options, lock, "test", 0).unwrap().0;
        let id = PackId([7; 16]);
        let header = pack::header(PackKind::Data, repository.config().suite, 0, id);
        let (table_offset, table_len) = (len as u64 - 20, 20);
        let mut whole = NOISE[..len].to_vec();
        whole[..32].copy_from_slice(&header.encode());
        let mut encoder = Encoder::default();
        encoder.write(&whole);
        let head = Head { header: header.encode(), table_offset, table_len };
        let parity = encoder.finish(&head).unwrap();
        let footer = Footer::new(table_offset, table_len, parity.len() as u32);
        whole.extend_from_slice(&parity);
        whole.extend_from_slice(&footer.encode(&header));
        let info =
            PackInfo { id, kind: PackKind::Data, generation: 0, len: whole.len() as u64, table_offset, table_len };
        let scene = Scene { memory, faults, repository, info, layout: Layout::of(len as u64).unwrap(), whole };
        scene.write(&scene.whole);
        scene
    }

    fn name(&self) -> String {
        names::pack(self.info.kind, self.info.id)
    }

    fn write(&self, bytes: &[u8]) {
        self.memory.put(&self.name(), bytes, Put::Replace).unwrap();
    }

    fn stripes(&self) -> Vec<Stripe> {
        self.layout.stripes().collect()
    }

    fn data_len(&self) -> usize {
        self.layout.data_len() as usize
    }

    /// Where a data shard is, and how much of it is in the pack.
    fn data(&self, shard: u32) -> std::ops::Range<usize> {
        let at = shard as usize * SHARD;
        at..(at + SHARD).min(self.data_len())
    }

    fn recovery(&self, number: u32) -> std::ops::Range<usize> {
        let at = self.layout.recovery_offset(number) as usize;
        at..at + SHARD
    }

    /// Spoil these shards of a pack in one of three ways.
    fn spoil(&self, places: &[std::ops::Range<usize>], how: usize) {
        let mut bytes = self.whole.clone();
        for (n, place) in places.iter().enumerate() {
            match (how + n) % 3 {
                0 => bytes[place.start + n * 37 % place.len()] ^= 1 << (n % 8),
                1 => bytes[place.clone()].iter_mut().for_each(|b| *b = !*b),
                // All of the sector, as a disk would.
                _ => self.faults.bad_bytes(&self.name(), place.start as u64..(place.start + SHARD) as u64),
            }
        }
        self.write(&bytes);
    }

    fn mend(&self) {
        self.faults.clear();
        self.write(&self.whole);
    }

    fn open(&self) -> Healed {
        Healed::open(&self.repository, &self.info).unwrap().expect("it has parity")
    }

    /// The damage; and whether all could be read and was as before.
    fn look(&self) -> (Damage, bool) {
        let mut healed = self.open();
        let damage = healed.look_at_all().unwrap();
        let same = (|| {
            let mut out = vec![0; self.data_len()];
            healed.read_at(0, &mut out).ok()?;
            // Read in pieces by one who hasn't looked before.
            let (mut fresh, mut at) = (self.open(), 0);
            for piece in self.whole[..self.data_len()].chunks(self.data_len() / 7 + 1) {
                let mut read = vec![0; piece.len()];
                fresh.read_at(at, &mut read).ok()?;
                at += piece.len() as u64;
                if read != piece {
                    return Some(false);
                }
            }
            Some(out == self.whole[..self.data_len()])
        })();
        (damage, same == Some(true))
    }
}

#[test]
fn what_is_whole_is_left_alone() {
    for len in SIZES {
        let scene = Scene::new(len);
        assert_eq!(scene.look(), (Damage::default(), true), "{len}");
        let other = PackInfo { table_offset: scene.info.table_offset - 1, table_len: 21, ..scene.info.clone() };
        let mut healed = Healed::open(&scene.repository, &other).unwrap().unwrap();
        assert!(healed.look_at_all().unwrap().blind > 0, "another pack's directory was believed");
        let longer = PackInfo { len: scene.info.len + 1, ..scene.info.clone() };
        assert!(Healed::open(&scene.repository, &longer).unwrap().is_none());
        assert!(scene.open().read_at(scene.info.len - 10, &mut [0; 9]).is_err());
    }
}

#[test]
fn up_to_its_rows_a_codeword_is_healed_and_no_further() {
    for len in SIZES {
        let scene = Scene::new(len);
        for (turn, stripe) in scene.stripes().into_iter().enumerate() {
            // One of sixteen stands for all: the largest packs take the longest.
            let codewords = if stripe.weave == 16 { vec![7] } else { vec![0, stripe.weave - 1] };
            for codeword in codewords.into_iter().collect::<BTreeSet<_>>() {
                let members = stripe.of_codeword(codeword);
                let member = |n: u32| scene.data(stripe.first + (n * 7919 % members) * stripe.weave + codeword);
                let row = |n: u32| scene.recovery(stripe.first_recovery + n * stripe.weave + codeword);
                for lost_rows in 0..=stripe.rows {
                    let most = (stripe.rows - lost_rows).min(members);
                    let rows = (0..lost_rows).map(row);
                    let places: Vec<_> = (0..most).map(member).chain(rows.clone()).collect();
                    scene.spoil(&places, turn + codeword as usize);
                    let right = Damage { data: most.into(), recovery: lost_rows.into(), ..Damage::default() };
                    assert_eq!(scene.look(), (right, true), "{len}: {most} shards and {lost_rows} rows");
                    scene.mend();
                    if most < members {
                        let places: Vec<_> = (0..most + 1).map(member).chain(rows).collect();
                        scene.spoil(&places, turn);
                        let (damage, same) = scene.look();
                        assert_eq!((damage.data, damage.lost, same), (u64::from(most) + 1, u64::from(most) + 1, false));
                        scene.mend();
                    }
                }
            }
        }
    }
}

#[test]
fn bursts_are_healed() {
    for len in SIZES {
        let scene = Scene::new(len);
        for stripe in scene.stripes() {
            let burst = (stripe.weave * stripe.rows).min(stripe.shards);
            for first in [0, (stripe.shards - burst) / 2, stripe.shards - burst] {
                let places: Vec<_> = (first..first + burst).map(|n| scene.data(stripe.first + n)).collect();
                for how in if stripe.shards > 1024 { 2..3 } else { 0..3 } {
                    scene.spoil(&places, how);
                    let right = Damage { data: burst.into(), ..Damage::default() };
                    assert_eq!(scene.look(), (right, true), "{len}: {burst} from {first}");
                    scene.mend();
                }
            }
        }
    }
}

#[test]
fn the_parity_itself_may_be_damaged() {
    for len in SIZES {
        let scene = Scene::new(len);
        let directories: Vec<usize> = scene.layout.directories().map(|at| at as usize).collect();
        let one_shard = || scene.data(scene.layout.shards() / 2);
        for (n, at) in directories.iter().enumerate() {
            for sector in 0..scene.layout.directory_len().div_ceil(SHARD) {
                let at = at + sector * SHARD;
                scene
                    .spoil(&[at..(at + SHARD).min(directories[n] + scene.layout.directory_len()), one_shard()], sector);
                let (damage, same) = scene.look();
                assert_eq!(damage.directories, 1, "{len}: directory {n}, sector {sector}");
                // Where there is but one directory, it may take the place of the one shard that may be lost.
                assert!(same || directories.len() == 1, "{len}: directory {n}, sector {sector}");
                scene.mend();
            }
        }
    }
}

#[test]
fn header_and_footer_are_made_again() {
    for len in SIZES {
        let scene = Scene::new(len);
        let mut bytes = scene.whole.clone();
        let footer = bytes.len() - FOOTER_BYTES;
        bytes[footer..].fill(0);
        bytes[..32].fill(0);
        scene.write(&bytes);
        let PackInfo { id, kind, len: pack_len, .. } = scene.info;
        for lost in ["footer", "last directory"] {
            if lost == "last directory" {
                let last = scene.layout.directories().last().unwrap() as usize;
                bytes[last..last + SHARD.min(footer - last)].fill(0);
                scene.write(&bytes);
            }
            let found = Healed::find(&scene.repository, kind, id, pack_len).unwrap();
            let Some(mut found) = found else {
                assert!(lost == "last directory" && scene.layout.is_tiny(), "{len}: {lost}");
                continue;
            };
            assert_eq!(found.table(), (scene.info.table_offset, scene.info.table_len), "{len}");
            let header = pack::header(kind, scene.repository.config().suite, 0, id);
            assert_eq!(found.footer().encode(&header)[..], scene.whole[footer..]);
            let mut header = [0; 32];
            found.read_at(0, &mut header).unwrap();
            assert_eq!(header, scene.whole[..32], "{len}");
        }
        // Another pack's directory tells nothing of this one.
        assert!(Healed::find(&scene.repository, kind, PackId([8; 16]), pack_len).is_err(), "it isn't there");
        let other = names::pack(kind, PackId([8; 16]));
        scene.memory.put(&other, &bytes, Put::Replace).unwrap();
        assert!(Healed::find(&scene.repository, kind, PackId([8; 16]), pack_len).unwrap().is_none());
        // No table opens that was never one.
        assert!(PackScan::new(&scene.repository).unwrap().entry(kind, id, pack_len).unwrap_err().is_damage());
    }
}

#[test]
fn a_pack_cut_short_gives_what_it_has() {
    for len in SIZES {
        let scene = Scene::new(len);
        for cut in [0, 10, len / 2, len - 1, scene.whole.len() - 1] {
            scene.write(&scene.whole[..cut]);
            let mut healed = scene.open();
            let damage = healed.look_at_all().unwrap();
            assert!(cut + 1 == scene.whole.len() || !damage.is_healed(), "{len} cut to {cut}");
            let there = cut.min(len) / SHARD * SHARD;
            let mut out = vec![0; there];
            healed.read_at(0, &mut out).unwrap();
            assert!(out == scene.whole[..there]);
            let _ = Healed::find(&scene.repository, scene.info.kind, scene.info.id, cut as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is damaged, if no codeword lost more than its rows, the pack is healed.
    #[test]
    fn damage_within_the_bound_is_healed(size in 0..SIZES.len(), seed in any::<u64>(), how in 0usize..3) {
        let scene = Scene::new(SIZES[size]);
        let mut random = noise(1 << 16, seed).into_iter().cycle();
        let mut next = |most: u32| u32::from_le_bytes(std::array::from_fn(|_| random.next().unwrap())) % most;
        let mut places = Vec::new();
        for stripe in scene.stripes() {
            for codeword in 0..stripe.weave {
                let (members, mut left) = (stripe.of_codeword(codeword), next(stripe.rows + 1));
                let mut taken = BTreeSet::new();
                while left > 0 && members > 0 {
                    left -= 1;
                    if next(4) == 0 {
                        let row = next(stripe.rows);
                        places.push(scene.recovery(stripe.first_recovery + row * stripe.weave + codeword));
                    } else {
                        let member = next(members);
                        // Twice the same is flipped back.
                        if taken.insert(member) {
                            places.push(scene.data(stripe.first + member * stripe.weave + codeword));
                        }
                    }
                }
            }
        }
        places.sort_by_key(|place| place.start);
        places.dedup();
        scene.spoil(&places, how);
        let (damage, same) = scene.look();
        prop_assert!(same && damage.is_healed(), "{damage:?}");
        prop_assert_eq!((damage.data + damage.recovery) as usize, places.len());
    }

    /// Hostile parity, and hostile lengths.
    #[test]
    fn parity_that_lies_does_no_harm(size in 0usize..11, seed in any::<u64>(), at in any::<u64>(), len in 1usize..9000) {
        let scene = Scene::new(SIZES[size]);
        let mut bytes = scene.whole.clone();
        let (start, end) = (scene.data_len(), bytes.len());
        let first = start + (at % (end - start) as u64) as usize;
        let last = (first + len).min(end);
        bytes[first..last].copy_from_slice(&noise(last - first, seed));
        scene.write(&bytes);
        let (damage, same) = scene.look();
        prop_assert!(same && damage.data == 0, "what is whole was touched: {damage:?}");
        let PackInfo { id, kind, len, .. } = scene.info;
        let _ = Healed::find(&scene.repository, kind, id, at);
        if let Some(found) = Healed::find(&scene.repository, kind, id, len).unwrap() {
            prop_assert_eq!(found.table(), (scene.info.table_offset, scene.info.table_len));
        }
        for table_offset in [at, u64::MAX, 31, 1 << 40] {
            let info = PackInfo { table_offset, ..scene.info.clone() };
            if let Some(mut healed) = Healed::open(&scene.repository, &info).unwrap() {
                let _ = healed.look_at_all();
            }
        }
    }
}
