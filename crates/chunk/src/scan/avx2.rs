//! Stage 1 in 256-bit vectors: 32 positions a step, those at even and at odd distances from its start apart.

use core::arch::x86_64::*;

use super::{Candidates, PREFETCH, portable};
use crate::key::Key;

/// Positions in a turn of the loop: two vectors of bytes.
const STEP: usize = 64;

/// Sums over 2, 4 and 8 words, sixteen positions two bytes apart.
#[derive(Clone, Copy)]
struct Sums([__m256i; 3]);

/// As [`portable::filter`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn filter(key: &Key, data: &[u8], lo: usize, hi: usize, out: &mut Candidates) {
    let m = key.multipliers.map(|m| _mm256_set1_epi16(m as i16));
    let passing = _mm256_set1_epi8(key.passing as i8);
    let zero = Sums([_mm256_setzero_si256(); 3]);
    let mut p = lo;
    if p + STEP <= hi {
        // The 32 positions before the first: of what the sums over 4 and 8 words lack here, nothing is used later.
        let Some(near) = lo.checked_sub(36).and_then(|from| data[from..].first_chunk()) else { return };
        let (mut even, mut odd) = (zero, zero);
        passes(&m, passing, near, &mut even, &mut odd);
        while p + STEP <= hi {
            let Some(near) = data[p - 4..].first_chunk::<{ STEP + 3 }>() else { return };
            let (Some(low), Some(high)) = (near.first_chunk(), near.last_chunk()) else { return };
            _mm_prefetch::<_MM_HINT_T0>(near.as_ptr().wrapping_add(PREFETCH).cast());
            let low = passes(&m, passing, low, &mut even, &mut odd);
            let high = passes(&m, passing, high, &mut even, &mut odd);
            out.push(p, u64::from(high) << 32 | u64::from(low));
            p += STEP;
        }
    }
    if p < hi {
        portable::filter(key, data, p, hi, out);
    }
}

/// One bit for each of the 32 positions that end at `near[4..36]`, exclusive; `even` and `odd` are moved on.
#[inline]
#[target_feature(enable = "avx2")]
fn passes(m: &[__m256i; 4], passing: __m256i, near: &[u8; 35], even: &mut Sums, odd: &mut Sums) -> u32 {
    let words = |at: usize| {
        debug_assert!(at <= 3);
        // SAFETY: `at` is at most 3, so the 32 bytes lie within the 35 of `near`.
        unsafe { _mm256_loadu_si256(near.as_ptr().add(at).cast()) }
    };
    let even = advance(m, even, words(2), words(0));
    let odd = advance(m, odd, words(3), words(1));
    // The upper bytes of both, in the order of positions.
    let all = _mm256_blendv_epi8(_mm256_srli_epi16::<8>(even), odd, _mm256_set1_epi16(0xff00_u16 as i16));
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(all, passing)) as u32
}

/// The sums over sixteen words, from the words at the positions and those two bytes before.
#[inline]
#[target_feature(enable = "avx2")]
fn advance(m: &[__m256i; 4], last: &mut Sums, words: __m256i, before: __m256i) -> __m256i {
    let add = |a, b, m| _mm256_add_epi16(a, _mm256_mullo_epi16(b, m));
    // The upper half of the vector before and the lower half of this one.
    let halves = |last, this| _mm256_permute2x128_si256::<0x21>(last, this);
    let s2 = add(words, before, m[0]);
    let s4 = add(s2, _mm256_alignr_epi8::<12>(s2, halves(last.0[0], s2)), m[1]);
    let s8 = add(s4, _mm256_alignr_epi8::<8>(s4, halves(last.0[1], s4)), m[2]);
    let s16 = add(s8, halves(last.0[2], s8), m[3]);
    *last = Sums([s2, s4, s8]);
    s16
}
