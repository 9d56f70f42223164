//! Four data shards added to the four rows of their codeword: the inner part of making a pack's parity.
//!
//! It is the high-rate code of `reed-solomon-simd` (Leopard: Lin, Chung and Han, FOCS 2014) of four recovery shards: an
//! inverse transform of four points for each four data shards, whose results are added up, and one transform at the
//! end. The library keeps a table for each of the 65,536 numbers that anything could be multiplied by: 8 MiB, and some
//! milliseconds until they are made. Four rows need 195 of them. And it goes over the shards four times, where one look
//! at each is enough.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod library;

use super::parity::{ROWS, Shard};
use drumlin_format::parity::{SHARD_BYTES, STRIPE_SHARDS};
use reed_solomon_simd::engine::GF_MODULUS;
use reed_solomon_simd::engine::tables::{get_exp_log, get_skew, mul};

pub(crate) use library::ENGINE;

/// The code works on pieces of this length: of 32 numbers the low bytes, then the high ones.
const LINE_BYTES: usize = 64;
const LINES: usize = SHARD_BYTES / LINE_BYTES;
/// Fours of data shards in a codeword, at the most.
const FOURS_MAX: usize = STRIPE_SHARDS as usize / 16 / ROWS;

pub(crate) type Line = [u8; LINE_BYTES];
/// A codeword's rows, before the last transform or behind it.
pub(super) type Rows = [Shard; ROWS];

/// The instructions that do it. They differ in speed, never in what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// The library's, for any processor.
    Library,
    /// 256-bit vectors of x86-64: products by sixteen numbers at a time, looked up.
    Avx2,
    /// 512-bit vectors of x86-64, whose processor multiplies bits by matrices.
    Gfni,
}

impl Path {
    /// Every path there is, the plainest first.
    pub const ALL: [Path; 3] = [Path::Library, Path::Avx2, Path::Gfni];

    /// Whether this processor can take the path.
    pub fn is_available(self) -> bool {
        match self {
            Path::Library => true,
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Path::Gfni => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni"),
            #[cfg(not(target_arch = "x86_64"))]
            Path::Avx2 | Path::Gfni => false,
        }
    }
}

/// A path that is known to be available: only [`Fold::new`] makes one, and checks.
#[derive(Clone, Copy)]
pub(super) struct Fold(Path);

impl Fold {
    pub fn new(path: Path) -> Option<Fold> {
        path.is_available().then_some(Fold(path))
    }

    /// By the widest path that this processor can take.
    pub fn best() -> Fold {
        Path::ALL.into_iter().rev().find_map(Fold::new).unwrap_or(Fold(Path::Library))
    }

    /// Add what four data shards contribute, as the `four`th of their codeword.
    pub fn add(self, rows: &mut Rows, shards: [&Shard; ROWS], four: usize) {
        match self.0 {
            Path::Library => library::add(rows, shards, four),
            // SAFETY: `Fold::new` saw that this processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => unsafe { avx2::add(rows, shards, &avx2::FACTORS[four + 1]) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Path::Gfni => unsafe { gfni::add(rows, shards, &gfni::FACTORS[four + 1]) },
            #[cfg(not(target_arch = "x86_64"))]
            Path::Avx2 | Path::Gfni => library::add(rows, shards, four),
        }
    }

    /// Make of the sums the recovery shards.
    pub fn finish(self, rows: &mut Rows) {
        match self.0 {
            Path::Library => library::finish(rows),
            // SAFETY: `Fold::new` saw that this processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => unsafe { avx2::finish(rows, &avx2::FACTORS[0]) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Path::Gfni => unsafe { gfni::finish(rows, &gfni::FACTORS[0]) },
            #[cfg(not(target_arch = "x86_64"))]
            Path::Avx2 | Path::Gfni => library::finish(rows),
        }
    }
}

/// What a transform of four points multiplies by: the first two points, the last two, and each of the former with one
/// of the latter.
#[derive(Clone, Copy)]
struct Factors<T> {
    first: T,
    last: T,
    across: T,
}

/// The factors of the last transform, then those of each four, made by `make` of the products of 1, 2, 4 … 32768.
fn factors<T>(make: impl Fn([u16; 16]) -> T) -> Vec<Factors<T>> {
    let skew = get_skew();
    let factor = |at: usize| make(products(skew[at]));
    (0..=FOURS_MAX)
        .map(|n| Factors { first: factor(n * ROWS), across: factor(n * ROWS + 1), last: factor(n * ROWS + 2) })
        .collect()
}

/// The products of a number, by its logarithm, with each power of two. They are all that there is to know: a product is
/// the sum of those of the other number's bits.
fn products(log: u16) -> [u16; 16] {
    let tables = get_exp_log();
    std::array::from_fn(|bit| match log {
        // The logarithm that stands for nothing.
        GF_MODULUS => 0,
        log => mul(1 << bit, log, &tables.exp, &tables.log),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::parity::tests::noise;

    #[test]
    fn all_paths_make_the_same() {
        let bytes = noise(ROWS * SHARD_BYTES, 11);
        let shards = bytes.as_chunks::<SHARD_BYTES>().0;
        let before = noise(ROWS * SHARD_BYTES, 12);
        for four in [0, 1, 2, 17, FOURS_MAX - 1] {
            let made: Vec<(Path, Box<Rows>)> = Path::ALL
                .into_iter()
                .filter_map(|path| Some((path, Fold::new(path)?)))
                .map(|(path, fold)| {
                    let mut rows = Box::new([[0; SHARD_BYTES]; ROWS]);
                    rows.as_flattened_mut().copy_from_slice(&before);
                    fold.add(&mut rows, std::array::from_fn(|n| &shards[n]), four);
                    fold.finish(&mut rows);
                    (path, rows)
                })
                .collect();
            assert!(made[0].1.as_flattened() != before);
            for (path, rows) in &made {
                assert!(*rows == made[0].1, "{path:?}, four {four}");
            }
        }
    }

    #[test]
    fn the_widest_path_is_taken() {
        let best = Path::ALL.into_iter().rev().find(|path| path.is_available());
        assert_eq!(Some(Fold::best().0), best);
    }
}
