//! 512-bit vectors: 32 numbers at a time, their low bytes in the lower half and their high bytes in the upper one. To
//! multiply by a number is a matrix of 16 by 16 bits, which the processor applies by quarters.

use super::{Factors, LINES, Line, Rows};
use crate::pack::parity::{ROWS, Shard};
use core::arch::x86_64::*;
use std::sync::LazyLock;

/// The matrices of a factor: from each half of the bytes to the same half, and to the other one.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    same: [u64; 8],
    other: [u64; 8],
}

pub(super) static FACTORS: LazyLock<Vec<Factors<Matrices>>> = LazyLock::new(|| super::factors(matrices));

fn matrices(products: [u16; 16]) -> Matrices {
    // From a byte of the numbers to a byte of the products. The instruction has the row of bit 0 in the last byte, and
    // of each row the column of bit 0 in the lowest bit.
    let quarter = |from: usize, to: usize| {
        let row = |bit: usize| {
            (0..8).fold(0u8, |row, column| row | ((products[from * 8 + column] >> (to * 8 + bit) & 1) as u8) << column)
        };
        u64::from_be_bytes(std::array::from_fn(row))
    };
    let halves = |low, high| std::array::from_fn(|at| if at < 4 { low } else { high });
    Matrices { same: halves(quarter(0, 0), quarter(1, 1)), other: halves(quarter(1, 0), quarter(0, 1)) }
}

/// A factor's matrices at hand.
type Factor = [__m512i; 2];

/// As [`super::Fold::add`].
#[target_feature(enable = "avx512f,gfni")]
pub(super) fn add(rows: &mut Rows, shards: [&Shard; ROWS], by: &Factors<Matrices>) {
    let [first, last, across] = [at_hand(&by.first), at_hand(&by.last), at_hand(&by.across)];
    for at in 0..LINES {
        let [mut a, mut b, mut c, mut d] =
            [load(shards[0], at), load(shards[1], at), load(shards[2], at), load(shards[3], at)];
        b = _mm512_xor_si512(b, a);
        a = add_product(a, b, first);
        d = _mm512_xor_si512(d, c);
        c = add_product(c, d, last);
        c = _mm512_xor_si512(c, a);
        a = add_product(a, c, across);
        d = _mm512_xor_si512(d, b);
        b = add_product(b, d, across);
        for (row, sum) in rows.iter_mut().zip([a, b, c, d]) {
            let sum = _mm512_xor_si512(load(row, at), sum);
            store(row, at, sum);
        }
    }
}

/// As [`super::Fold::finish`].
#[target_feature(enable = "avx512f,gfni")]
pub(super) fn finish(rows: &mut Rows, by: &Factors<Matrices>) {
    let [first, last, across] = [at_hand(&by.first), at_hand(&by.last), at_hand(&by.across)];
    for at in 0..LINES {
        let [mut a, mut b, mut c, mut d] =
            [load(&rows[0], at), load(&rows[1], at), load(&rows[2], at), load(&rows[3], at)];
        a = add_product(a, c, across);
        c = _mm512_xor_si512(c, a);
        b = add_product(b, d, across);
        d = _mm512_xor_si512(d, b);
        a = add_product(a, b, first);
        b = _mm512_xor_si512(b, a);
        c = add_product(c, d, last);
        d = _mm512_xor_si512(d, c);
        for (row, made) in rows.iter_mut().zip([a, b, c, d]) {
            store(row, at, made);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn at_hand(by: &Matrices) -> Factor {
    // SAFETY: each has 64 bytes.
    unsafe { [_mm512_loadu_si512(by.same.as_ptr().cast()), _mm512_loadu_si512(by.other.as_ptr().cast())] }
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn load(shard: &Shard, at: usize) -> __m512i {
    let line: &Line = &shard.as_chunks().0[at];
    // SAFETY: a line has 64 bytes.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn store(shard: &mut Shard, at: usize, numbers: __m512i) {
    let line: &mut Line = &mut shard.as_chunks_mut().0[at];
    // SAFETY: a line has 64 bytes.
    unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), numbers) }
}

/// `sum` and `numbers` times a factor.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn add_product(sum: __m512i, numbers: __m512i, by: Factor) -> __m512i {
    const EXCHANGED: i32 = 0b01_00_11_10;
    const SUM_OF_THREE: i32 = 0x96;
    let exchanged = _mm512_shuffle_i64x2::<EXCHANGED>(numbers, numbers);
    let same = _mm512_gf2p8affine_epi64_epi8::<0>(numbers, by[0]);
    let other = _mm512_gf2p8affine_epi64_epi8::<0>(exchanged, by[1]);
    _mm512_ternarylogic_epi32::<SUM_OF_THREE>(sum, same, other)
}
