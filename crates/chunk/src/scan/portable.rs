//! Both stages in plain code: the only path on processors other than x86-64, and the end of a range on the others.

use super::{BLOCK, Candidates, window};
use crate::key::{FILTER_WINDOW, Key};

/// Positions before the first one that the widest sum looks back to.
const BACK: usize = FILTER_WINDOW - 2;

/// Appends the positions of `lo..hi` (at most [`BLOCK`]) that pass stage 1.
///
/// The sixteen products become four: the sum over 2n bytes is that over n, and a multiple of the one n bytes back.
/// Each is a plain loop over 16-bit numbers, which compilers turn into vectors on any processor.
pub(super) fn filter(key: &Key, data: &[u8], lo: usize, hi: usize, out: &mut Candidates) {
    let Some(near) = lo.checked_sub(FILTER_WINDOW).and_then(|from| data.get(from..hi.checked_sub(1)?)) else { return };
    let mut sums = [0u16; BACK + BLOCK];
    for ((sum, &low), &high) in sums.iter_mut().zip(near).zip(near.get(1..).unwrap_or_default()) {
        *sum = u16::from(low) | u16::from(high) << 8;
    }
    let sums = &mut sums[..BACK + (hi - lo).min(BLOCK)];
    let [m0, m1, m2, m3] = key.multipliers;
    let sums = folded::<2>(sums, m0);
    let sums = folded::<4>(sums, m1);
    let sums = folded::<8>(sums, m2);
    let sums = folded::<16>(sums, m3);
    for (i, eight) in sums.chunks(8).enumerate() {
        // Gathered without a branch, which only the one group in 32 that has a candidate takes.
        let passes = |sum: &u16| (sum >> 8) as u8 == key.passing;
        if eight.iter().fold(false, |any, sum| any | passes(sum)) {
            for j in (0..eight.len()).filter(|&j| passes(&eight[j])) {
                out.push(lo + 8 * i + j, 1);
            }
        }
    }
}

/// Adds to each sum `m` times the one `N` positions before it, and drops the first `N`, which have none.
///
/// What is read comes after what is written, so the place is reused.
#[inline(always)]
fn folded<const N: usize>(sums: &mut [u16], m: u16) -> &mut [u16] {
    let len = sums.len().saturating_sub(N);
    for i in 0..len {
        sums[i] = sums[i + N].wrapping_add(sums[i].wrapping_mul(m));
    }
    &mut sums[..len]
}

pub(super) fn judge(key: &Key, data: &[u8], candidates: &[u32], mask: u64) -> Option<usize> {
    candidates.iter().map(|&p| p as usize).find(|&p| window(data, p).is_some_and(|w| key.verdict(w) & mask == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_plain_form() {
        let key = Key::new(&core::array::from_fn(|i| (i * 91 + 7) as u8));
        let data: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(i).wrapping_mul(0x9e37_79b1) >> 21) as u8).collect();
        for (lo, hi) in [(64, 64 + BLOCK), (100, 101), (977, 1900), (5000 - BLOCK, 5000), (3000, 3000)] {
            let mut found = Candidates::new();
            filter(&key, &data, lo, hi, &mut found);
            let expected: Vec<u32> =
                (lo..hi).filter(|&p| key.filter(data[..p].last_chunk().unwrap())).map(|p| p as u32).collect();
            assert_eq!(found.all(), expected, "{lo}..{hi}");
        }
    }
}
