//! The code of a band: the high-rate one of `reed-solomon-simd`, as inside of packs, of as many rows as the band has.
//!
//! It is linear, and that is what makes bands cheap to keep: the recovery data of a band in which one pack takes the
//! place of another is the old recovery data with something added for each of the two. The packs that stay need not be
//! read.

use crate::pack::{ENGINE, Line, added_to};
use drumlin_format::band::Head;
use reed_solomon_simd::engine::tables::{ExpLog, get_exp_log, mul};
use reed_solomon_simd::engine::{Engine, GF_MODULUS, ShardsRefMut};

const LINE_BYTES: usize = size_of::<Line>();

/// Adds up what packs contribute to the rows, for some bytes in a row of each.
pub(super) struct Adder {
    rows: usize,
    lines: usize,
    /// Of each row, before the last transform.
    sums: Vec<Line>,
    /// Seats are taken by as many as rows are, rounded up to a power of two: those at hand, by which number of that
    /// kind.
    work: Vec<Line>,
    at_hand: Option<usize>,
}

impl Adder {
    /// For so many rows of so many bytes, a multiple of 64; nothing is added yet.
    pub fn new(rows: usize, len: usize) -> Self {
        let (size, lines) = (rows.next_power_of_two(), len.div_ceil(LINE_BYTES));
        let work = if size == 1 { Vec::new() } else { vec![[0; LINE_BYTES]; size * lines] };
        Adder { rows, lines, sums: vec![[0; LINE_BYTES]; size * lines], work, at_hand: None }
    }

    fn size(&self) -> usize {
        self.rows.next_power_of_two()
    }

    /// Add what a seat contributes that holds these bytes, and zeros behind them. To take it away again, add it once
    /// more.
    pub fn add(&mut self, seat: usize, bytes: &[u8]) {
        let (size, lines) = (self.size(), self.lines);
        if size == 1 {
            added_to(self.sums.as_flattened_mut(), bytes);
            return;
        }
        if self.at_hand != Some(seat / size) {
            self.transform();
            self.at_hand = Some(seat / size);
        }
        added_to(self.work[seat % size * lines..][..lines].as_flattened_mut(), bytes);
    }

    fn transform(&mut self) {
        let Some(at_hand) = self.at_hand.take() else { return };
        let (size, first) = (self.size(), at_hand * self.size());
        ENGINE.ifft(&mut ShardsRefMut::new(size, self.lines, &mut self.work), 0, size, size, first + size);
        added_to(self.sums.as_flattened_mut(), self.work.as_flattened());
        self.work.fill([0; LINE_BYTES]);
    }

    /// The rows.
    pub fn finish(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.transform();
        let (size, rows, lines) = (self.size(), self.rows, self.lines);
        if size > 1 {
            ENGINE.fft(&mut ShardsRefMut::new(size, lines, &mut self.sums), 0, size, size, 0);
        }
        self.sums.chunks_exact_mut(lines).take(rows).map(<[Line]>::as_flattened_mut)
    }
}

/// Make the slices of all seats again of which there is none, from those that there are: `seats` by seat (empty ones
/// and those that end before are slices of zeros), `rows` by row, all of so many bytes. `None`: too many are lost.
///
/// What the packs at hand contribute is taken from as many rows as packs are lost; what is left of each is the sum of
/// the lost ones, each times a number of the field: as many equations as unknowns, which any rows have solutions for.
pub(super) fn solve(
    head: &Head,
    len: usize,
    seats: &[Option<&[u8]>],
    rows: &[Option<&[u8]>],
) -> Option<Vec<(usize, Vec<u8>)>> {
    let lost: Vec<usize> = (0..seats.len()).filter(|n| seats[*n].is_none()).collect();
    let used: Vec<usize> = (0..rows.len()).filter(|n| rows[*n].is_some()).take(lost.len()).collect();
    if used.len() < lost.len() {
        return None;
    }
    if lost.is_empty() {
        return Some(Vec::new());
    }
    let mut adder = Adder::new(head.rows, len);
    for (seat, slice) in seats.iter().enumerate() {
        if let Some(slice) = slice {
            adder.add(seat, slice);
        }
    }
    let mut left: Vec<Vec<Line>> = Vec::new();
    for (number, sum) in adder.finish().enumerate().filter(|(number, _)| used.contains(number)) {
        added_to(sum, rows[number]?);
        left.push(sum.as_chunks().0.to_vec());
    }
    let matrix: Vec<Vec<u16>> = lost.iter().map(|seat| factors(head.rows, *seat, &used)).collect();
    // By lost seat and row, rather than by row and lost seat.
    let inverse = inverted((0..used.len()).map(|row| matrix.iter().map(|of| of[row]).collect()).collect())?;
    let made = lost.iter().zip(inverse).map(|(seat, factors)| {
        let mut sum = vec![0; len];
        for (left, factor) in left.iter().zip(factors).filter(|(_, factor)| *factor != 0) {
            let mut term = left.clone();
            ENGINE.mul(&mut term, get_exp_log().log[usize::from(factor)]);
            added_to(&mut sum, term.as_flattened());
        }
        (*seat, sum)
    });
    Some(made.collect())
}

/// By what a seat's contents are multiplied in each of these rows.
fn factors(rows: usize, seat: usize, used: &[usize]) -> Vec<u16> {
    // The code of 1, as the first element of a line.
    let [low, high] = get_exp_log().exp[0].to_le_bytes();
    let mut line = [0; LINE_BYTES];
    (line[0], line[LINE_BYTES / 2]) = (low, high);
    let mut adder = Adder::new(rows, LINE_BYTES);
    adder.add(seat, &line);
    let all: Vec<u16> = adder.finish().map(|row| u16::from_le_bytes([row[0], row[LINE_BYTES / 2]])).collect();
    used.iter().map(|row| all[*row]).collect()
}

/// The inverse of a square matrix over the field; `None` if it has none.
fn inverted(mut matrix: Vec<Vec<u16>>) -> Option<Vec<Vec<u16>>> {
    let ExpLog { exp, log } = get_exp_log();
    let times = |x: u16, y: u16| if y == 0 { 0 } else { mul(x, log[usize::from(y)], exp, log) };
    let one = exp[0];
    let size = matrix.len();
    let mut inverse: Vec<Vec<u16>> =
        (0..size).map(|row| (0..size).map(|column| if row == column { one } else { 0 }).collect()).collect();
    for column in 0..size {
        let pivot = (column..size).find(|row| matrix[*row][column] != 0)?;
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        // x to the order of the group less one is its inverse.
        let by = exp[usize::from((GF_MODULUS - log[usize::from(matrix[column][column])]) % GF_MODULUS)];
        for row in [&mut matrix[column], &mut inverse[column]] {
            row.iter_mut().for_each(|x| *x = times(*x, by));
        }
        let (pivots, ones) = (matrix[column].clone(), inverse[column].clone());
        for row in (0..size).filter(|row| *row != column) {
            let by = matrix[row][column];
            matrix[row].iter_mut().zip(&pivots).for_each(|(x, pivot)| *x ^= times(*pivot, by));
            inverse[row].iter_mut().zip(&ones).for_each(|(x, one)| *x ^= times(*one, by));
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_format::band::Member;
    use drumlin_format::pack::PackKind;
    use drumlin_format::{BandId, PackId};
    use drumlin_seal::Suite;
    use proptest::prelude::*;
    use reed_solomon_simd::engine::DefaultEngine;
    use reed_solomon_simd::rate::{HighRateEncoder, RateEncoder};

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn head(seats: usize, rows: usize) -> Head {
        let member = |n: usize| Some(Member { pack: PackId([n as u8 + 1; 16]), kind: PackKind::Data, len: 64 });
        Head::new(BandId([1; 15]), Suite::Aes256Gcm, (0..seats).map(member).collect(), rows).unwrap()
    }

    fn rows_of(slices: &[Vec<u8>], rows: usize, len: usize) -> Vec<Vec<u8>> {
        let mut adder = Adder::new(rows, len);
        slices.iter().enumerate().for_each(|(seat, slice)| adder.add(seat, slice));
        adder.finish().map(|row| row.to_vec()).collect()
    }

    #[test]
    fn it_is_what_the_library_makes() {
        for (seats, rows) in [(1, 1), (2, 2), (5, 1), (16, 2), (17, 3), (20, 4), (33, 5), (128, 16), (3, 16)] {
            let slices: Vec<_> = (0..seats).map(|n| noise(192, n as u64 * 77 + 5)).collect();
            let mut encoder = HighRateEncoder::new(seats, rows, 192, DefaultEngine::new(), None).unwrap();
            slices.iter().for_each(|slice| encoder.add_original_shard(slice).unwrap());
            let right: Vec<Vec<u8>> = encoder.encode().unwrap().recovery_iter().map(<[u8]>::to_vec).collect();
            assert!(rows_of(&slices, rows, 192) == right, "{seats}+{rows}");
        }
    }

    /// As `docs/format.md` states it: the sums of c·x^i over all places are 0, for as many i as there are rows, rounded
    /// up to a power of two.
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
        for rows in [1, 2, 4, 8] {
            let slices: Vec<_> = (0..11).map(|n| noise(64, n + 3)).collect();
            let word: Vec<Vec<u8>> = rows_of(&slices, rows, 64).into_iter().chain(slices).collect();
            for element in [0, 7, 31] {
                for power in 0..rows {
                    let term = |(place, slice): (usize, &Vec<u8>)| {
                        let c = field(u32::from(slice[element]) | u32::from(slice[element + 32]) << 8);
                        (0..power).fold(c, |c, _| multiply(c, field(place as u32)))
                    };
                    assert_eq!(
                        word.iter().enumerate().map(term).fold(0, |sum, c| sum ^ c),
                        0,
                        "{rows}: x to the {power}"
                    );
                }
            }
        }
    }

    /// The test values of `docs/format.md`.
    #[test]
    fn rows_as_they_are_specified() {
        let sevens = (0..40u16).map(|n| (n * 7 % 251) as u8).collect();
        let rows = rows_of(&[sevens, Vec::new(), b"worlds!".to_vec()], 2, 64);
        let hex = |row: &[u8]| row.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let told = rows.iter().map(|row| hex(&row[..8]) + " " + &hex(&row[32..40])).collect::<Vec<_>>();
        assert_eq!(told, ["0631d7624d86957b 8d8085bd03060b32", "7159ab1b35d69e4a 6d676b48020e0424"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is lost, up to as many as there are rows, comes back; one more doesn't.
        #[test]
        fn lost_slices_come_back(seats in 1usize..40, rows in 1usize..9, seed in any::<u64>(), lines in 1usize..5) {
            let (head, len) = (head(seats, rows), lines * 64);
            let slices: Vec<_> = (0..seats).map(|n| noise(len, seed ^ (n as u64 * 991))).collect();
            let all = rows_of(&slices, rows, len);
            let mut order: Vec<usize> = (0..seats + rows).collect();
            order.sort_by_key(|n| noise(8, seed.rotate_left(*n as u32 % 64) ^ (*n as u64 * 7)));
            for lost in [rows, rows + 1] {
                let gone = &order[..lost.min(order.len())];
                let mut there: Vec<_> = slices.iter().cloned().map(Some).collect();
                let mut kept: Vec<_> = all.iter().cloned().map(Some).collect();
                for place in gone {
                    if *place < seats { there[*place] = None } else { kept[*place - seats] = None }
                }
                let wanted = there.iter().filter(|slice| slice.is_none()).count();
                let there: Vec<_> = there.iter().map(Option::as_deref).collect();
                let kept: Vec<_> = kept.iter().map(Option::as_deref).collect();
                match solve(&head, len, &there, &kept) {
                    None => prop_assert!(lost > rows || wanted == 0),
                    Some(made) => {
                        prop_assert!(lost <= rows || wanted < lost);
                        prop_assert!(made.iter().all(|(seat, slice)| *slice == slices[*seat]));
                        prop_assert_eq!(made.len(), wanted);
                    }
                }
            }
        }

        /// A pack in another's place: the rows are those of the new band, and nobody else was looked at.
        #[test]
        fn packs_change_places(seats in 1usize..40, rows in 1usize..9, seed in any::<u64>(), at in any::<prop::sample::Index>()) {
            let mut slices: Vec<_> = (0..seats).map(|n| noise(128, seed ^ (n as u64 * 991))).collect();
            let old = rows_of(&slices, rows, 128);
            let (seat, new) = (at.index(seats), noise(100, seed ^ 0xabc));
            let mut adder = Adder::new(rows, 128);
            adder.add(seat, &slices[seat]);
            adder.add(seat, &new);
            slices[seat] = new;
            let changed: Vec<Vec<u8>> = adder.finish().zip(&old).map(|(row, old)| {
                added_to(row, old);
                row.to_vec()
            }).collect();
            prop_assert!(changed == rows_of(&slices, rows, 128));
        }
    }
}
