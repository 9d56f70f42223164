//! Making a pack's parity while the pack is written: nothing of the pack is kept but a window.
//!
//! The code ([`fold`](super::fold)) has four recovery shards. It works on four data shards at a time and adds up what
//! comes of them: so it needs no more memory than the sums, and may be stopped after any of them. A codeword of fewer
//! recovery shards is the same one without its last rows.
//!
//! How many codewords are woven together depends on how long the pack gets, which isn't known before its end. So a pack
//! is coded in each of the ways that are still possible: that costs a few per cent of the work, since the others end
//! early.

use super::fold::{Fold, Rows};
use drumlin_format::parity::{self, Head, ROWS_MAX, SHARD_BYTES, STRIPE_SHARDS, Sums};

/// Rows of a codeword as the code sees it, used or not: data shards are taken by so many.
pub(super) const ROWS: usize = ROWS_MAX as usize;
/// Shards that are coded at once: four for each of sixteen codewords.
const WINDOW_SHARDS: usize = 64;
const WINDOW_BYTES: usize = WINDOW_SHARDS * SHARD_BYTES;
const WINDOWS_A_STRIPE: usize = STRIPE_SHARDS as usize / WINDOW_SHARDS;

pub(super) type Shard = [u8; SHARD_BYTES];

/// Takes a pack's bytes in their order and makes its parity.
pub struct Encoder {
    /// What came since the last window; never empty once there was anything, since the last one is coded otherwise.
    window: Vec<u8>,
    windows: usize,
    sums: Vec<u32>,
    /// By how many codewords are woven.
    ways: [Way; 3],
    fold: Fold,
    recovery: Vec<u8>,
}

/// One way of weaving.
struct Way {
    weave: usize,
    /// So many windows are coded this way at the most.
    windows_max: usize,
    /// Of each codeword its rows, before the last transform.
    rows: Vec<Rows>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::with(Fold::best())
    }
}

impl Encoder {
    fn with(fold: Fold) -> Self {
        let way = |weave, windows_max| Way { weave, windows_max, rows: Vec::new() };
        Encoder {
            window: Vec::new(),
            windows: 0,
            sums: Vec::new(),
            ways: [way(1, 4), way(4, 16), way(16, usize::MAX)],
            fold,
            recovery: Vec::new(),
        }
    }

    /// Take the next bytes of the pack.
    pub fn write(&mut self, mut bytes: &[u8]) {
        if !self.window.is_empty() {
            let room = WINDOW_BYTES - self.window.len();
            if bytes.len() <= room {
                self.window.extend_from_slice(bytes);
                return;
            }
            let (first, rest) = bytes.split_at(room);
            bytes = rest;
            let mut window = std::mem::take(&mut self.window);
            window.extend_from_slice(first);
            self.code(&window);
            window.clear();
            self.window = window;
        }
        while bytes.len() > WINDOW_BYTES {
            let (first, rest) = bytes.split_at(WINDOW_BYTES);
            self.code(first);
            bytes = rest;
        }
        self.window.extend_from_slice(bytes);
    }

    /// The parity of all that was written, whose last `head.table_len` bytes are the table. `None`: such a pack has
    /// none.
    pub fn finish(mut self, head: &Head) -> Option<Vec<u8>> {
        let layout = head.layout()?;
        let written = (self.windows * WINDOW_BYTES + self.window.len()) as u64;
        if written != layout.data_len() {
            return None;
        }
        let mut last = std::mem::take(&mut self.window);
        last.resize(last.len().next_multiple_of(SHARD_BYTES), 0);
        self.sums.extend(shards(&last).iter().map(parity::sum));
        if layout.is_tiny() {
            self.recovery = added_up(shards(&last)).to_vec();
        } else {
            last.resize(WINDOW_BYTES, 0);
            let Encoder { ways, fold, recovery, windows, .. } = &mut self;
            let way = ways.iter_mut().find(|way| way.weave == layout.weave() as usize)?;
            way.add(&last, *windows % WINDOWS_A_STRIPE, *fold, &mut |_, _| {});
            way.flush(layout.stripes().last()?.rows as usize, *fold, recovery);
        }
        let recovery_sums: Vec<u32> = shards(&self.recovery).iter().map(parity::sum).collect();
        let stripes = layout.stripes().map(|stripe| Sums {
            data: self.sums[stripe.first as usize..][..stripe.shards as usize].to_vec(),
            recovery: recovery_sums[stripe.first_recovery as usize..][..stripe.recovery() as usize].to_vec(),
        });
        let directory = parity::encode(head, &layout, &stripes.collect::<Vec<_>>());
        let mut out = vec![0; layout.parity_len() as usize];
        let place = |at: u64| (at - layout.data_len()) as usize;
        out[place(layout.recovery_offset(0))..][..self.recovery.len()].copy_from_slice(&self.recovery);
        layout.directories().for_each(|at| out[place(at)..][..directory.len()].copy_from_slice(&directory));
        Some(out)
    }

    /// A window that isn't the last one.
    fn code(&mut self, window: &[u8]) {
        let (stripe_ends, at) = ((self.windows + 1).is_multiple_of(WINDOWS_A_STRIPE), self.windows % WINDOWS_A_STRIPE);
        let [others @ .., longest] = &mut self.ways;
        for way in others {
            // What follows this window is too long for the ways that end with it, but one may end in the next.
            if self.windows + 1 < way.windows_max {
                way.add(window, at, self.fold, &mut |_, _| {});
            } else {
                way.rows = Vec::new();
            }
        }
        // The sums are made where each shard is at hand anyhow: a pass of their own over the window would take as long
        // again.
        let first = self.sums.len();
        self.sums.resize(first + WINDOW_SHARDS, 0);
        let sums = &mut self.sums[first..];
        longest.add(window, at, self.fold, &mut |number, shard| sums[number] = parity::sum(shard));
        if stripe_ends {
            longest.flush(ROWS, self.fold, &mut self.recovery);
        }
        self.windows += 1;
    }
}

impl Way {
    /// Add a window, which is the `at`th of its stripe; `each` is shown all of its shards, with their numbers in it.
    fn add(&mut self, window: &[u8], at: usize, fold: Fold, each: &mut dyn FnMut(usize, &Shard)) {
        let group = self.weave * ROWS;
        self.rows.resize(self.weave, [[0; SHARD_BYTES]; ROWS]);
        for (number, shards) in shards(window).chunks_exact(group).enumerate() {
            let four = at * WINDOW_SHARDS / group + number;
            for (codeword, rows) in self.rows.iter_mut().enumerate() {
                let places: [usize; ROWS] = std::array::from_fn(|row| row * self.weave + codeword);
                fold.add(rows, places.map(|place| &shards[place]), four);
                places.iter().for_each(|place| each(number * group + place, &shards[*place]));
            }
        }
    }

    /// The stripe ends: append so many rows of its codewords to `recovery`.
    fn flush(&mut self, rows: usize, fold: Fold, recovery: &mut Vec<u8>) {
        self.rows.iter_mut().for_each(|codeword| fold.finish(codeword));
        for row in 0..rows {
            self.rows.iter().for_each(|codeword| recovery.extend_from_slice(&codeword[row]));
        }
        self.rows.fill([[0; SHARD_BYTES]; ROWS]);
    }
}

/// Whole shards.
fn shards(bytes: &[u8]) -> &[Shard] {
    bytes.as_chunks::<SHARD_BYTES>().0
}

/// The one recovery shard of a tiny pack.
pub(super) fn added_up<'s>(shards: impl IntoIterator<Item = &'s Shard>) -> Shard {
    let mut sum = [0; SHARD_BYTES];
    shards.into_iter().for_each(|shard| added_to(&mut sum, shard));
    sum
}

/// Add bytes to others, as the code adds.
pub(crate) fn added_to(to: &mut [u8], bytes: &[u8]) {
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to ^= byte);
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::fold::Path;
    use super::*;
    use drumlin_format::HEADER_BYTES;
    use drumlin_format::parity::Layout;
    use proptest::prelude::*;
    use reed_solomon_simd::engine::DefaultEngine;
    use reed_solomon_simd::rate::{HighRateEncoder, RateEncoder};

    pub fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn head(len: usize) -> Head {
        Head { header: [1; HEADER_BYTES], table_offset: 32, table_len: len as u32 - 32 }
    }

    /// The recovery shards of a stripe's codeword by the library's own encoder.
    fn by_library(codeword: &[&Shard], rows: usize) -> Vec<Vec<u8>> {
        let mut encoder = HighRateEncoder::new(codeword.len(), ROWS, SHARD_BYTES, DefaultEngine::new(), None).unwrap();
        codeword.iter().for_each(|shard| encoder.add_original_shard(shard).unwrap());
        let coded = encoder.encode().unwrap();
        coded.recovery_iter().take(rows).map(<[u8]>::to_vec).collect()
    }

    /// By each path that this processor can take.
    fn check(bytes: &[u8], pieces: usize) {
        Path::ALL.into_iter().filter_map(Fold::new).for_each(|fold| check_by(fold, bytes, pieces));
    }

    fn check_by(fold: Fold, bytes: &[u8], pieces: usize) {
        let mut encoder = Encoder::with(fold);
        bytes.chunks(pieces).for_each(|piece| encoder.write(piece));
        let (head, layout) = (head(bytes.len()), Layout::of(bytes.len() as u64).unwrap());
        let parity = encoder.finish(&head).unwrap();
        assert_eq!(parity.len(), layout.parity_len() as usize);
        let place = |at: u64| (at - layout.data_len()) as usize;
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(SHARD_BYTES), 0);
        let data = shards(&padded);
        for (number, stripe) in layout.stripes().enumerate() {
            for directory in layout.directories() {
                let sums = parity::decode_sums(&head, &layout, number, &parity[place(directory)..]).unwrap();
                let of = &data[stripe.first as usize..][..stripe.shards as usize];
                assert!(sums.data.iter().copied().eq(of.iter().map(parity::sum)));
                let first = place(layout.recovery_offset(stripe.first_recovery));
                let recovery = shards(&parity[first..][..stripe.recovery() as usize * SHARD_BYTES]);
                assert!(sums.recovery.iter().copied().eq(recovery.iter().map(parity::sum)));
            }
            for codeword in 0..stripe.weave {
                let of = data[stripe.first as usize..][..stripe.shards as usize].iter();
                let of: Vec<&Shard> = of.skip(codeword as usize).step_by(stripe.weave as usize).collect();
                let rows = stripe.rows as usize;
                let right = match (of.len(), layout.is_tiny()) {
                    (0, _) => vec![vec![0; SHARD_BYTES]; rows],
                    (_, true) => vec![added_up(of).to_vec()],
                    (_, false) => by_library(&of, rows),
                };
                for (row, right) in right.iter().enumerate() {
                    let number = stripe.first_recovery + row as u32 * stripe.weave + codeword;
                    let at = place(layout.recovery_offset(number));
                    assert!(parity[at..][..SHARD_BYTES] == right[..], "row {row} of codeword {codeword}");
                }
            }
        }
    }

    #[test]
    fn it_is_what_the_library_makes_of_the_whole() {
        let shard = SHARD_BYTES;
        for len in [33, 100, shard, shard + 1, 16 * shard, 16 * shard + 1, 64 * shard, 64 * shard + 1, 256 * shard] {
            check(&noise(len, len as u64), 1000);
            check(&noise(len, len as u64), 1 << 20);
        }
        for len in [256 * shard + 1, 1024 * shard, 1024 * shard + 1, 4096 * shard, 4096 * shard + 5000, 4400 * shard] {
            check(&noise(len, len as u64), 300_001);
        }
    }

    /// What packs have that were written before: never edited.
    #[test]
    fn it_is_what_it_always_was() {
        let cases: [(usize, &str); 6] = [
            (100, "b4f20ebffbce629de04271e83e6f403f"),
            (16 * SHARD_BYTES, "57df1af9c9e94a3bfd876e69d8721c58"),
            (100 * SHARD_BYTES + 1, "17b9addceb6841d59e8c91b9320ca0de"),
            (300 * SHARD_BYTES, "f34c4ef4f39d3e379777d4504e7ce4ae"),
            (1100 * SHARD_BYTES + 5000, "75963b865d1f9e657d200fb2c0c48ded"),
            (4400 * SHARD_BYTES, "c8ef69d7e27dfaa40df09961c1e4d5a5"),
        ];
        for (len, sum) in cases {
            let mut encoder = Encoder::default();
            encoder.write(&noise(len, 7));
            let made = drumlin_seal::checksum(&encoder.finish(&head(len)).unwrap());
            assert_eq!(made.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), sum, "{len}");
        }
    }

    /// As `docs/format.md` states it, element by element.
    #[test]
    fn the_code_is_the_one_of_the_format() {
        const BASIS: [u32; 16] = [
            0x0001, 0xacca, 0x3c0e, 0x163e, 0xc582, 0xed2e, 0x914c, 0x4012, 0x6c98, 0x10d8, 0x6a72, 0xb900, 0xfdb8,
            0xfb34, 0xff38, 0x991e,
        ];
        let field = |coordinates: u32| (0..16).filter(|i| coordinates >> i & 1 == 1).fold(0, |sum, i| sum ^ BASIS[i]);
        let multiply = |a: u32, b: u32| {
            let long = (0..16).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ a << i);
            (16..32).rev().fold(long, |rest, i| if rest >> i & 1 == 1 { rest ^ 0x1_002d << (i - 16) } else { rest })
        };
        let len = 150 * SHARD_BYTES;
        let (bytes, layout) = (noise(len, 5), Layout::of(len as u64).unwrap());
        let mut encoder = Encoder::default();
        encoder.write(&bytes);
        let parity = encoder.finish(&head(len)).unwrap();
        assert_eq!((layout.weave(), layout.recovery()), (1, 3));
        // The row that isn't kept, from the first equation; the others then hold, or not.
        let value = |shard: &[u8], element: usize| {
            let at = element / 32 * 64 + element % 32;
            field(u32::from(shard[at]) | u32::from(shard[at + 32]) << 8)
        };
        for element in [0, 31, 32, 1000, 2047] {
            let first = (layout.recovery_offset(0) - layout.data_len()) as usize;
            let rows = parity[first..].chunks_exact(SHARD_BYTES).take(3);
            let mut word: Vec<u32> = rows.map(|shard| value(shard, element)).collect();
            word.push(0);
            word.extend(bytes.chunks_exact(SHARD_BYTES).map(|shard| value(shard, element)));
            word[3] = word.iter().fold(0, |sum, c| sum ^ c);
            for power in 1..4 {
                let term = |(place, c): (usize, &u32)| (0..power).fold(*c, |c, _| multiply(c, field(place as u32)));
                assert_eq!(word.iter().enumerate().map(term).fold(0, |sum, c| sum ^ c), 0, "x to the {power}");
            }
        }
    }

    #[test]
    fn what_was_not_written_has_no_parity() {
        let mut encoder = Encoder::default();
        encoder.write(&[1; 99]);
        assert!(encoder.finish(&head(100)).is_none());
        assert!(Encoder::default().finish(&Head { table_len: u32::MAX, ..head(100) }).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn however_it_is_written(len in 33usize..3_000_000, pieces in 1usize..600_000, seed in any::<u64>()) {
            check(&noise(len, seed), pieces.max(len / 1000));
        }
    }
}
