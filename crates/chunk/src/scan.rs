//! Looking for the first cut in a range of positions.
//!
//! Stage 1 collects the positions that pass the filter, a block at a time and without a branch that depends on the
//! data; stage 2 then judges them in order. Taking them apart is what makes it fast: a test and a jump at each
//! candidate would be mispredicted once in 256 bytes.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use core::ops::Range;

use crate::key::Key;
use crate::params::WINDOW;

/// Positions of stage 1 between two looks at stage 2. What lies behind a cut in its block was scanned for nothing.
const BLOCK: usize = 2048;

/// Room for a whole block of candidates, for what was left from the block before, and two that are written ahead.
/// A power of two, so that an index can be masked rather than checked.
const ROOM: usize = 2 * BLOCK;

/// Candidates that stage 2 takes at once in the widest path.
const BATCH: usize = 8;

/// How far ahead of stage 1 memory is asked for, in bytes; it may point past the end. Measured on streams larger than
/// the second-level cache: without it, about half the rate in both vector paths.
#[cfg(target_arch = "x86_64")]
const PREFETCH: usize = 4096;

/// With so many candidates in one block the data is no ordinary data (one in 256 is expected).
const DENSE: usize = 128;

/// The instructions that a [`Chunker`](crate::Chunker) uses. They differ in speed, never in the cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// Plain code, for any processor.
    Portable,
    /// 256-bit vectors of x86-64.
    Avx2,
    /// 512-bit vectors of x86-64 (F and BW).
    Avx512,
}

impl Path {
    /// Every path there is, the plainest first.
    pub const ALL: [Path; 3] = [Path::Portable, Path::Avx2, Path::Avx512];

    /// Whether this processor can take the path.
    pub fn is_available(self) -> bool {
        match self {
            Path::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Path::Avx2 | Path::Avx512 => false,
        }
    }

    /// The widest path that this processor can take.
    pub fn best() -> Path {
        Path::ALL.into_iter().rev().find(|p| p.is_available()).unwrap_or(Path::Portable)
    }
}

/// A path that is known to be available: only [`Scanner::new`] makes one, and checks.
#[derive(Clone, Copy)]
pub(crate) struct Scanner(Path);

impl Scanner {
    pub fn new(path: Path) -> Option<Scanner> {
        path.is_available().then_some(Scanner(path))
    }

    pub fn path(self) -> Path {
        self.0
    }

    /// The first position in `lo..hi` that passes both stages under `mask`.
    ///
    /// `WINDOW <= lo` and `hi <= data.len()` are the caller's to keep; they are checked by slicing, never by trust.
    /// `found` is room to work in: what it held is gone.
    pub fn find(
        self,
        key: &Key,
        data: &[u8],
        Range { start: lo, end: hi }: Range<usize>,
        mask: u64,
        found: &mut Candidates,
    ) -> Option<usize> {
        found.len = 0;
        let mut p = lo;
        while p < hi {
            let end = hi.min(p + BLOCK);
            let before = found.len;
            self.filter(key, data, p, end, found);
            p = end;
            let hit = if found.len - before > DENSE {
                let hit = judge_repeats(key, data, found.all(), mask);
                found.len = 0;
                hit
            } else {
                let take = if p < hi { found.len - found.len % BATCH } else { found.len };
                if take == 0 {
                    continue;
                }
                let hit = self.judge(key, data, &found.all()[..take], mask);
                found.drop_first(take);
                hit
            };
            if hit.is_some() {
                return hit;
            }
        }
        None
    }

    /// Appends the positions of `lo..hi` (at most [`BLOCK`] of them) that pass stage 1.
    fn filter(self, key: &Key, data: &[u8], lo: usize, hi: usize, out: &mut Candidates) {
        match self.0 {
            Path::Portable => portable::filter(key, data, lo, hi, out),
            // SAFETY: `Scanner::new` saw that this processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => unsafe { avx2::filter(key, data, lo, hi, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => unsafe { avx512::filter(key, data, lo, hi, out) },
            #[cfg(not(target_arch = "x86_64"))]
            Path::Avx2 | Path::Avx512 => portable::filter(key, data, lo, hi, out),
        }
    }

    /// The first of `candidates` that passes stage 2.
    fn judge(self, key: &Key, data: &[u8], candidates: &[u32], mask: u64) -> Option<usize> {
        match self.0 {
            // SAFETY: `Scanner::new` saw that this processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => unsafe { avx512::judge(key, data, candidates, mask) },
            _ => portable::judge(key, data, candidates, mask),
        }
    }
}

/// Positions that passed stage 1 and wait for stage 2, in rising order.
pub(crate) struct Candidates {
    at: [u32; ROOM],
    len: usize,
}

impl Candidates {
    pub fn new() -> Candidates {
        Candidates { at: [0; ROOM], len: 0 }
    }

    fn all(&self) -> &[u32] {
        &self.at[..self.len]
    }

    /// Appends `base + i` for each bit `i` of `bits`: one bit in 256 is set, so more than two are rare.
    #[inline(always)]
    fn push(&mut self, base: usize, bits: u64) {
        let rest = bits & bits.wrapping_sub(1);
        self.at[self.len % ROOM] = base as u32 + bits.trailing_zeros();
        self.at[(self.len + 1) % ROOM] = base as u32 + rest.trailing_zeros();
        let count = bits.count_ones() as usize;
        if count > 2 {
            self.push_many(base, bits);
        } else {
            self.len += count;
        }
    }

    #[cold]
    fn push_many(&mut self, base: usize, mut bits: u64) {
        while bits != 0 {
            self.at[self.len % ROOM] = base as u32 + bits.trailing_zeros();
            self.len += 1;
            bits &= bits - 1;
        }
    }

    fn drop_first(&mut self, n: usize) {
        self.at.copy_within(n..self.len, 0);
        self.len -= n;
    }
}

/// The window that ends at `p`.
#[inline(always)]
fn window(data: &[u8], p: usize) -> Option<&[u8; WINDOW]> {
    data.get(..p)?.last_chunk()
}

/// Stage 2 for data in which far too many positions pass stage 1: runs of one byte or of a short pattern, under a key
/// that happens to like it. There the same window comes again and again, and need not be hashed again.
#[cold]
fn judge_repeats(key: &Key, data: &[u8], candidates: &[u32], mask: u64) -> Option<usize> {
    let mut refused: Option<&[u8; WINDOW]> = None;
    for &p in candidates {
        let w = window(data, p as usize)?;
        if refused == Some(w) {
            continue;
        }
        if key.verdict(w) & mask == 0 {
            return Some(p as usize);
        }
        refused = Some(w);
    }
    None
}
