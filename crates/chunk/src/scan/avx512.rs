//! Both stages in 512-bit vectors: 64 positions of stage 1 a step, those at even and at odd distances from its start
//! apart, and eight windows of stage 2 at once.

use core::arch::x86_64::*;

use super::{BATCH, Candidates, PREFETCH, portable, window};
use crate::key::Key;
use crate::params::WINDOW;

const STEP: usize = 64;

/// Sums over 2, 4 and 8 words, 32 positions two bytes apart.
#[derive(Clone, Copy)]
struct Sums([__m512i; 3]);

/// As [`portable::filter`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt")]
pub(super) fn filter(key: &Key, data: &[u8], lo: usize, hi: usize, out: &mut Candidates) {
    let m = key.multipliers.map(|m| _mm512_set1_epi16(m as i16));
    let passing = _mm512_set1_epi8(key.passing as i8);
    let mut p = lo;
    if p + STEP <= hi {
        let Some(back) = data[..p].last_chunk() else { return };
        let [mut even, mut odd] = sums_before(&m, back);
        while p + STEP <= hi {
            let Some(near) = data[p - 4..].first_chunk() else { return };
            _mm_prefetch::<_MM_HINT_T0>(near.as_ptr().wrapping_add(PREFETCH).cast());
            out.push(p, passes(&m, passing, near, &mut even, &mut odd));
            p += STEP;
        }
    }
    if p < hi {
        portable::filter(key, data, p, hi, out);
    }
}

/// What the first call of [`passes`] needs, from the bytes before its positions: the lanes of the last 28 positions.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn sums_before(m: &[__m512i; 4], back: &[u8; WINDOW]) -> [Sums; 2] {
    // Words at the positions 32..=1 before the end, in the upper halves: the lower ones are never looked at.
    let words = |at: usize| {
        debug_assert!(at <= 31);
        // SAFETY: `at` is at most 31, so the 32 bytes lie within the 64 of `back`.
        let v = unsafe { _mm256_loadu_si256(back.as_ptr().add(at).cast()) };
        _mm512_inserti64x4::<1>(_mm512_setzero_si512(), v)
    };
    let mut sums = [Sums([_mm512_setzero_si512(); 3]); 2];
    for (odd, sums) in sums.iter_mut().enumerate() {
        advance(m, sums, words(30 + odd), words(28 + odd));
    }
    sums
}

/// One bit for each of the 64 positions that end at `near[4..68]`, exclusive; `even` and `odd` are moved on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn passes(m: &[__m512i; 4], passing: __m512i, near: &[u8; STEP + 3], even: &mut Sums, odd: &mut Sums) -> u64 {
    let words = |at: usize| {
        debug_assert!(at <= 3);
        // SAFETY: `at` is at most 3, so the 64 bytes lie within the 67 of `near`.
        unsafe { _mm512_loadu_si512(near.as_ptr().add(at).cast()) }
    };
    let even = advance(m, even, words(2), words(0));
    let odd = advance(m, odd, words(3), words(1));
    // The upper bytes of both, in the order of positions.
    let low8 = _mm512_set1_epi16(0xff);
    let all = _mm512_ternarylogic_epi32::<0b1100_1010>(low8, _mm512_srli_epi16::<8>(even), odd);
    _mm512_cmpeq_epi8_mask(all, passing)
}

/// The sums over sixteen words, from the words at the positions and those two bytes before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn advance(m: &[__m512i; 4], last: &mut Sums, words: __m512i, before: __m512i) -> __m512i {
    let add = |a, b, m| _mm512_add_epi16(a, _mm512_mullo_epi16(b, m));
    let s2 = add(words, before, m[0]);
    let s4 = add(s2, _mm512_alignr_epi32::<15>(s2, last.0[0]), m[1]);
    let s8 = add(s4, _mm512_alignr_epi32::<14>(s4, last.0[1]), m[2]);
    let s16 = add(s8, _mm512_alignr_epi32::<12>(s8, last.0[2]), m[3]);
    *last = Sums([s2, s4, s8]);
    s16
}

/// As [`portable::judge`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt")]
pub(super) fn judge(key: &Key, data: &[u8], candidates: &[u32], mask: u64) -> Option<usize> {
    for batch in candidates.chunks(BATCH) {
        // A short batch repeats its last member, whose lane can only be met after the member itself.
        let last = *batch.last()?;
        let mut at = [last; BATCH];
        at[..batch.len()].copy_from_slice(batch);
        let mut rows = [_mm512_setzero_si512(); BATCH];
        for (row, &p) in rows.iter_mut().zip(&at) {
            let w: &[u8; WINDOW] = window(data, p as usize)?;
            // SAFETY: the window is 64 bytes long.
            *row = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
        }
        let v = verdicts(key, rows);
        let hits = _mm512_testn_epi64_mask(v, _mm512_set1_epi64(mask as i64));
        if hits != 0 {
            return Some(at[hits.trailing_zeros() as usize % BATCH] as usize);
        }
    }
    None
}

/// [`Key::verdict`] of eight windows.
#[inline]
#[target_feature(enable = "avx512f")]
fn verdicts(key: &Key, windows: [__m512i; 8]) -> __m512i {
    let set = |x: u64| _mm512_set1_epi64(x as i64);
    let mut v = [
        set(key.s0 ^ 0x736f_6d65_7073_6575),
        set(key.s1 ^ 0x646f_7261_6e64_6f6d),
        set(key.s0 ^ 0x6c79_6765_6e65_7261),
        set(key.s1 ^ 0x7465_6462_7974_6573),
    ];
    let mut absorb = |m: __m512i| {
        v[3] = _mm512_xor_si512(v[3], m);
        v = round(v);
        v[0] = _mm512_xor_si512(v[0], m);
    };
    for m in transposed(windows) {
        absorb(m);
    }
    absorb(set((WINDOW as u64) << 56));
    v[2] = _mm512_xor_si512(v[2], set(0xff));
    for _ in 0..3 {
        v = round(v);
    }
    _mm512_ternarylogic_epi64::<0x96>(_mm512_xor_si512(v[0], v[1]), v[2], v[3])
}

#[inline]
#[target_feature(enable = "avx512f")]
fn round([mut a, mut b, mut c, mut d]: [__m512i; 4]) -> [__m512i; 4] {
    a = _mm512_add_epi64(a, b);
    c = _mm512_add_epi64(c, d);
    b = _mm512_xor_si512(_mm512_rol_epi64::<13>(b), a);
    d = _mm512_xor_si512(_mm512_rol_epi64::<16>(d), c);
    a = _mm512_rol_epi64::<32>(a);
    c = _mm512_add_epi64(c, b);
    a = _mm512_add_epi64(a, d);
    b = _mm512_xor_si512(_mm512_rol_epi64::<17>(b), c);
    d = _mm512_xor_si512(_mm512_rol_epi64::<21>(d), a);
    c = _mm512_rol_epi64::<32>(c);
    [a, b, c, d]
}

/// Eight rows of eight words: word j of row i becomes word i of row j.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(r: [__m512i; 8]) -> [__m512i; 8] {
    let quads = |a: __m512i, b: __m512i, c: __m512i, d: __m512i| {
        let ab0 = _mm512_shuffle_i64x2::<0x44>(a, b);
        let ab1 = _mm512_shuffle_i64x2::<0xee>(a, b);
        let cd0 = _mm512_shuffle_i64x2::<0x44>(c, d);
        let cd1 = _mm512_shuffle_i64x2::<0xee>(c, d);
        [
            _mm512_shuffle_i64x2::<0x88>(ab0, cd0),
            _mm512_shuffle_i64x2::<0xdd>(ab0, cd0),
            _mm512_shuffle_i64x2::<0x88>(ab1, cd1),
            _mm512_shuffle_i64x2::<0xdd>(ab1, cd1),
        ]
    };
    let lo = |i: usize| _mm512_unpacklo_epi64(r[i], r[i + 1]);
    let hi = |i: usize| _mm512_unpackhi_epi64(r[i], r[i + 1]);
    let [w0, w2, w4, w6] = quads(lo(0), lo(2), lo(4), lo(6));
    let [w1, w3, w5, w7] = quads(hi(0), hi(2), hi(4), hi(6));
    [w0, w1, w2, w3, w4, w5, w6, w7]
}
