//! 256-bit vectors: 32 numbers at a time, their low bytes in one and their high bytes in another. A product is looked
//! up for each half of a byte, as the library does.

use super::{Factors, LINES, Line, Rows};
use crate::pack::parity::{ROWS, Shard};
use core::arch::x86_64::*;
use std::sync::LazyLock;

/// What a number multiplies to, for each value of each four bits: low bytes, high bytes.
type Nibbles = [[[u8; 16]; 2]; 4];

pub(super) static FACTORS: LazyLock<Vec<Factors<Nibbles>>> = LazyLock::new(|| super::factors(nibbles));

fn nibbles(products: [u16; 16]) -> Nibbles {
    let product = |nibble: usize, value: usize| {
        (0..4).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum ^ products[nibble * 4 + bit])
    };
    std::array::from_fn(|nibble| {
        std::array::from_fn(|half| std::array::from_fn(|value| product(nibble, value).to_le_bytes()[half]))
    })
}

/// 32 numbers: low bytes, high bytes.
type Numbers = [__m256i; 2];

/// As [`super::Fold::add`].
#[target_feature(enable = "avx2")]
pub(super) fn add(rows: &mut Rows, shards: [&Shard; ROWS], by: &Factors<Nibbles>) {
    for at in 0..LINES {
        let [mut a, mut b, mut c, mut d] =
            [load(shards[0], at), load(shards[1], at), load(shards[2], at), load(shards[3], at)];
        b = xor(b, a);
        a = add_product(a, b, &by.first);
        d = xor(d, c);
        c = add_product(c, d, &by.last);
        c = xor(c, a);
        a = add_product(a, c, &by.across);
        d = xor(d, b);
        b = add_product(b, d, &by.across);
        for (row, sum) in rows.iter_mut().zip([a, b, c, d]) {
            let sum = xor(load(row, at), sum);
            store(row, at, sum);
        }
    }
}

/// As [`super::Fold::finish`].
#[target_feature(enable = "avx2")]
pub(super) fn finish(rows: &mut Rows, by: &Factors<Nibbles>) {
    for at in 0..LINES {
        let [mut a, mut b, mut c, mut d] =
            [load(&rows[0], at), load(&rows[1], at), load(&rows[2], at), load(&rows[3], at)];
        a = add_product(a, c, &by.across);
        c = xor(c, a);
        b = add_product(b, d, &by.across);
        d = xor(d, b);
        a = add_product(a, b, &by.first);
        b = xor(b, a);
        c = add_product(c, d, &by.last);
        d = xor(d, c);
        for (row, made) in rows.iter_mut().zip([a, b, c, d]) {
            store(row, at, made);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(shard: &Shard, at: usize) -> Numbers {
    let line: &Line = &shard.as_chunks().0[at];
    // SAFETY: both halves lie within the line.
    unsafe { [_mm256_loadu_si256(line.as_ptr().cast()), _mm256_loadu_si256(line.as_ptr().add(32).cast())] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(shard: &mut Shard, at: usize, numbers: Numbers) {
    let line: &mut Line = &mut shard.as_chunks_mut().0[at];
    // SAFETY: both halves lie within the line.
    unsafe {
        _mm256_storeu_si256(line.as_mut_ptr().cast(), numbers[0]);
        _mm256_storeu_si256(line.as_mut_ptr().add(32).cast(), numbers[1]);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: Numbers, b: Numbers) -> Numbers {
    [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])]
}

/// `sum` and `numbers` times a factor.
#[inline]
#[target_feature(enable = "avx2")]
fn add_product(sum: Numbers, numbers: Numbers, by: &Nibbles) -> Numbers {
    let low = _mm256_set1_epi8(0x0f);
    let nibbles = [
        _mm256_and_si256(numbers[0], low),
        _mm256_and_si256(_mm256_srli_epi64::<4>(numbers[0]), low),
        _mm256_and_si256(numbers[1], low),
        _mm256_and_si256(_mm256_srli_epi64::<4>(numbers[1]), low),
    ];
    let mut sum = sum;
    for (nibble, tables) in nibbles.into_iter().zip(by) {
        for (half, table) in sum.iter_mut().zip(tables) {
            // SAFETY: a table has sixteen bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            *half = _mm256_xor_si256(*half, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibble));
        }
    }
    sum
}
