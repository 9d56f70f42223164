//! Keyed content-defined chunking: slices in, cut points out.
//!
//! Pure: no I/O, no clock, no thread, no randomness. The cuts are part of the repository's behaviour over time: the
//! same secret, [`Params`] and bytes give the same cuts on every processor and in every version. `docs/chunking.md`
//! states the function byte by byte; in short, a position p inside a chunk (a cut *after* p bytes, p ≥ 64) is a cut if
//!
//! 1. the upper byte of a weighted sum, modulo 2^16, of the sixteen 16-bit little-endian words before p is a certain
//!    one; the weights are the products of any of four secret odd multipliers. One position in 256 passes this filter;
//! 2. the low bits of SipHash-1-3 over the 64 bytes before p are zero under a mask: `log2(normal) - 8 + 2` bits before
//!    `normal`, `log2(normal) - 8 - 2` bits from there on.
//!
//! Of the 32 secret bytes, 0..8 make the multipliers, 8..24 are the key of SipHash, and 24 is the byte to meet; 25..32
//! are not used. Positions below `min` are no cut, position `max` always is, and so is the end of the input.
//!
//! The filter is there for speed and can be solved for its key by one who sees cuts; SipHash is what is asked to
//! resist. Still nothing may rest on cuts being secret: sizes of chunks never reach the storage.
//!
//! ```
//! use drumlin_chunk::{Chunker, Params};
//!
//! let chunker = Chunker::new(&[7; 32], Params::around(1 << 16)?);
//! let data = vec![0u8; 1 << 20];
//! assert_eq!(chunker.chunks(&data).map(<[u8]>::len).sum::<usize>(), data.len());
//! # Ok::<(), drumlin_chunk::ParamsError>(())
//! ```

mod key;
mod params;
mod scan;

use core::fmt;
use core::iter::FusedIterator;

use key::Key;
pub use params::{Params, ParamsError, WINDOW};
pub use scan::Path;
use scan::{Candidates, Scanner};

/// Finds cuts. Holds the secret, which is wiped on drop; can be shared among threads.
pub struct Chunker {
    key: Key,
    scanner: Scanner,
    params: Params,
}

impl Chunker {
    /// A chunker on the fastest [`Path`] that this processor has.
    ///
    /// # Panics
    /// If the fields of `params` were changed into something that [`Params::new`] refuses.
    pub fn new(secret: &[u8; 32], params: Params) -> Chunker {
        Chunker::with_path(secret, params, Path::best())
            .or_else(|| Chunker::with_path(secret, params, Path::Portable))
            .expect("the portable path is always there")
    }

    /// A chunker on a path of the caller's choice, for tests and measurements; `None` if the processor lacks it.
    ///
    /// # Panics
    /// As [`Chunker::new`].
    pub fn with_path(secret: &[u8; 32], params: Params, path: Path) -> Option<Chunker> {
        assert_eq!(Params::new(params.min, params.normal, params.max), Ok(params), "sizes must come from Params::new");
        Some(Chunker { key: Key::new(secret), scanner: Scanner::new(path)?, params })
    }

    /// The sizes it was made with.
    pub fn params(&self) -> Params {
        self.params
    }

    /// The path it takes.
    pub fn path(&self) -> Path {
        self.scanner.path()
    }

    /// The length of the first chunk of `data`, which begins where a chunk begins and is either all that is left of
    /// the stream or at least `max` bytes of it. 0 for empty data only, and never more than `data.len()`.
    pub fn cut(&self, data: &[u8]) -> usize {
        let Params { min, normal, max } = self.params;
        let end = data.len().min(max as usize);
        if end <= min as usize {
            return end;
        }
        // The end is a cut whatever its bytes say, so the search stops before it.
        let turn = end.min(normal as usize);
        let find = |range, mask, found: &mut _| self.scanner.find(&self.key, data, range, mask, found);
        let mut found = Candidates::new();
        find(min as usize..turn, self.params.strict_mask(), &mut found)
            .or_else(|| find(turn..end, self.params.loose_mask(), &mut found))
            .unwrap_or(end)
    }

    /// All chunks of a whole stream, in order. Together they are `data`; none is empty.
    pub fn chunks<'c, 'd>(&'c self, data: &'d [u8]) -> Chunks<'c, 'd> {
        Chunks { chunker: self, rest: data }
    }
}

impl fmt::Debug for Chunker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunker").field("params", &self.params).field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Iterator over the chunks of a slice, from [`Chunker::chunks`].
#[derive(Clone, Debug)]
pub struct Chunks<'c, 'd> {
    chunker: &'c Chunker,
    rest: &'d [u8],
}

impl<'d> Iterator for Chunks<'_, 'd> {
    type Item = &'d [u8];

    fn next(&mut self) -> Option<&'d [u8]> {
        let (chunk, rest) = self.rest.split_at_checked(self.chunker.cut(self.rest))?;
        self.rest = rest;
        (!chunk.is_empty()).then_some(chunk)
    }
}

impl FusedIterator for Chunks<'_, '_> {}
