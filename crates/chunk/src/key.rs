//! The secret, and the two functions that it steers: the filter of stage 1 and the verdict of stage 2.
//!
//! This is the plain form that every path must equal, bit by bit. Byte layout: `docs/chunking.md`.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::params::WINDOW;

/// Bytes that stage 1 looks at.
pub(crate) const FILTER_WINDOW: usize = 32;

/// What the four multipliers leave when divided by 32. Any product of some of them then leaves an odd rest of its own,
/// so that all sixteen weights of the filter differ, whatever the secret.
const RESTS: [u16; 4] = [5, 25, 17, 3];

/// What of the 32 secret bytes the chunker uses. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Key {
    /// Number j weighs what lies 2^(j+1) bytes further back.
    pub multipliers: [u16; 4],
    /// The upper byte of the filter's sum where a position passes. Odd, so never that of a run of zeros.
    pub passing: u8,
    pub s0: u64,
    pub s1: u64,
}

impl Key {
    pub fn new(secret: &[u8; 32]) -> Key {
        let (words, _) = secret.as_chunks::<8>();
        let [m, s0, s1, last] = [0, 1, 2, 3].map(|i| u64::from_le_bytes(words[i]));
        let multiplier = |j: usize| (m >> (16 * j)) as u16 & !31 | RESTS[j];
        Key { multipliers: [0, 1, 2, 3].map(multiplier), passing: last as u8 | 1, s0, s1 }
    }

    /// Stage 1: whether the position that ends `window` passes.
    #[cfg(test)]
    pub fn filter(&self, window: &[u8; FILTER_WINDOW]) -> bool {
        let mut sum = 0u16;
        for (i, word) in window.as_chunks::<2>().0.iter().rev().enumerate() {
            let weight = (0..4).filter(|j| i >> j & 1 == 1).fold(1u16, |w, j| w.wrapping_mul(self.multipliers[j]));
            sum = sum.wrapping_add(weight.wrapping_mul(u16::from_le_bytes(*word)));
        }
        (sum >> 8) as u8 == self.passing
    }

    /// Stage 2: SipHash-1-3 (Aumasson and Bernstein, INDOCRYPT 2012) over the window before a position.
    #[inline(always)]
    pub fn verdict(&self, window: &[u8; WINDOW]) -> u64 {
        let mut v = [
            self.s0 ^ 0x736f_6d65_7073_6575,
            self.s1 ^ 0x646f_7261_6e64_6f6d,
            self.s0 ^ 0x6c79_6765_6e65_7261,
            self.s1 ^ 0x7465_6462_7974_6573,
        ];
        for word in window.as_chunks::<8>().0 {
            let m = u64::from_le_bytes(*word);
            v[3] ^= m;
            round(&mut v);
            v[0] ^= m;
        }
        // The padding block of SipHash: nothing left over, and the length in the top byte.
        let m = (WINDOW as u64) << 56;
        v[3] ^= m;
        round(&mut v);
        v[0] ^= m;
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn takes_the_secret_apart_as_specified() {
        let key = Key::new(&core::array::from_fn(|i| i as u8));
        assert_eq!(key.multipliers, [0x0105, 0x0319, 0x0511, 0x0703]);
        assert_eq!(key.passing, 25);
        assert_eq!((key.s0, key.s1), (0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110));
        let key = Key::new(&[0xff; 32]);
        assert_eq!((key.multipliers, key.passing), ([0xffe5, 0xfff9, 0xfff1, 0xffe3], 0xff));
    }

    #[test]
    fn weights_differ_below_32() {
        let product = |of: usize| (0..4).filter(|j| of >> j & 1 == 1).map(|j| RESTS[j]).product::<u16>() % 32;
        assert_eq!((0..16).map(product).collect::<HashSet<_>>().len(), 16);
    }

    #[test]
    fn swapping_bytes_that_differ_changes_the_filter() {
        // Of two upper bytes that differ in their lower nibble, one order at most passes under a given key.
        let mut key = Key::new(&core::array::from_fn(|i| (i * 91 + 7) as u8));
        let window: [u8; FILTER_WINDOW] = core::array::from_fn(|i| (i * i * 5 + i) as u8);
        let pass = |key: &mut Key, w: &[u8; 32]| (0..=255).find(|&b| (key.passing = b, key.filter(w)).1).unwrap();
        for i in (1..FILTER_WINDOW).step_by(2) {
            for j in (i + 2..FILTER_WINDOW).step_by(2) {
                let mut swapped = window;
                swapped.swap(i, j);
                let same = pass(&mut key, &window) == pass(&mut key, &swapped);
                assert!(!same || (window[i] ^ window[j]) & 15 == 0, "{i} {j}");
            }
        }
    }

    #[test]
    fn zeros_pass_under_no_key() {
        for last in 0..=255 {
            let mut secret = [0; 32];
            secret[24] = last;
            assert!(!Key::new(&secret).filter(&[0; FILTER_WINDOW]));
        }
    }

    #[test]
    fn wipes_all_of_it() {
        fn wiped_on_drop<T: ZeroizeOnDrop>(_: &T) {}
        let mut key = Key::new(&[0xff; 32]);
        wiped_on_drop(&key);
        key.zeroize();
        assert_eq!((key.multipliers, key.passing, key.s0, key.s1), ([0; 4], 0, 0, 0));
    }
}
