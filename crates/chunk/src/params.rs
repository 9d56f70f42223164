//! The sizes that steer the chunker, checked once where they enter.

use thiserror::Error;

/// How many bits the masks move away from `log2(normal)`: up before `normal`, down from there on.
///
/// Normalised chunking as in FastCDC (Xia et al., USENIX ATC '16). Part of the on-disk behaviour.
pub(crate) const NORMALISATION_BITS: u32 = 2;

/// Bits of selectivity that the filter of stage 1 gives: it passes one position in `2^FILTER_BITS`.
pub(crate) const FILTER_BITS: u32 = 8;

/// Bytes that stage 2 looks at, so also the earliest position at which a cut can be.
pub const WINDOW: usize = 64;

/// The smallest `normal` that leaves stage 2 enough bits to decide with.
const NORMAL_MIN: u32 = 4096;

/// Chunk sizes in bytes. The same three numbers (and the same secret) always give the same cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Params {
    /// No cut comes before this many bytes, except at the end of the input. At least [`WINDOW`].
    pub min: u32,
    /// The size around which chunks gather, a power of two. From here on cuts become 16 times as likely.
    pub normal: u32,
    /// A chunk that gets this long is cut here.
    pub max: u32,
}

/// Why [`Params::new`] refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// `normal` is not a power of two, or below 4096.
    #[error("the normal chunk size must be a power of two of at least {NORMAL_MIN} bytes, not {0}")]
    Normal(u32),
    /// `min` is below [`WINDOW`] or above `normal`.
    #[error("the smallest chunk size must lie between {WINDOW} bytes and the normal size, not at {0}")]
    Min(u32),
    /// `max` is below `normal`.
    #[error("the largest chunk size must not be below the normal size, as {0} is")]
    Max(u32),
}

impl Params {
    /// Checks the three sizes against each other.
    ///
    /// # Errors
    /// A [`ParamsError`] that names the first size which does not fit.
    pub fn new(min: u32, normal: u32, max: u32) -> Result<Params, ParamsError> {
        if !normal.is_power_of_two() || normal < NORMAL_MIN {
            return Err(ParamsError::Normal(normal));
        }
        if (min as usize) < WINDOW || min > normal {
            return Err(ParamsError::Min(min));
        }
        if max < normal {
            return Err(ParamsError::Max(max));
        }
        Ok(Params { min, normal, max })
    }

    /// `min` = `normal` / 4 and `max` = 4 × `normal`.
    ///
    /// # Errors
    /// As [`Params::new`]; also where 4 × `normal` does not fit 32 bits.
    pub fn around(normal: u32) -> Result<Params, ParamsError> {
        let max = normal.checked_mul(4).ok_or(ParamsError::Normal(normal))?;
        Params::new(normal / 4, normal, max)
    }

    /// The bits of the verdict that must be zero before `normal`.
    pub(crate) fn strict_mask(&self) -> u64 {
        (1 << (self.normal.trailing_zeros() - FILTER_BITS + NORMALISATION_BITS)) - 1
    }

    /// The bits of the verdict that must be zero from `normal` on.
    pub(crate) fn loose_mask(&self) -> u64 {
        (1 << (self.normal.trailing_zeros() - FILTER_BITS - NORMALISATION_BITS)) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        assert_eq!(Params::new(64, 4096, 4096).map(|p| (p.min, p.normal, p.max)), Ok((64, 4096, 4096)));
        assert_eq!(Params::new(63, 4096, 8192), Err(ParamsError::Min(63)));
        assert_eq!(Params::new(4097, 4096, 8192), Err(ParamsError::Min(4097)));
        assert_eq!(Params::new(64, 2048, 8192), Err(ParamsError::Normal(2048)));
        assert_eq!(Params::new(64, 5000, 8192), Err(ParamsError::Normal(5000)));
        assert_eq!(Params::new(64, 0, 8192), Err(ParamsError::Normal(0)));
        assert_eq!(Params::new(64, 8192, 8191), Err(ParamsError::Max(8191)));
        assert_eq!(Params::around(1 << 31), Err(ParamsError::Normal(1 << 31)));
        assert_eq!(Params::new(1 << 31, 1 << 31, u32::MAX).map(|p| p.loose_mask()), Ok((1 << 21) - 1));
    }

    #[test]
    fn masks_stand_on_both_sides_of_normal() {
        let p = Params::around(1 << 16).unwrap();
        assert_eq!(p.strict_mask(), 0x3ff);
        assert_eq!(p.loose_mask(), 0x3f);
    }
}
