//! A block's bytes: gathered from chunks, compressed unless a probe says that it is in vain, and checked by decoding
//! them again, because a compressor that produces garbage must be found out while the source is still there.

use drumlin_format::ChunkId;
use drumlin_format::pack::Codec;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

/// How to code a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Raw,
    /// By zstd at this level, unless it doesn't help.
    Zstd(i32),
    /// By zstd at this level, or with few matches where that makes it smaller: lines full of numbers, such as logs and
    /// dumps of databases, offer many short matches that cost more than they save.
    Best(i32),
}

/// Chunks on their way into one block.
#[derive(Default)]
pub struct BlockBuilder {
    /// The chunks' bytes, one after the other.
    pub raw: Vec<u8>,
    /// Their ids and lengths.
    pub chunks: Vec<(ChunkId, u32)>,
}

impl BlockBuilder {
    /// An empty block with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        BlockBuilder { raw: Vec::with_capacity(bytes), chunks: Vec::new() }
    }

    /// Append a chunk.
    pub fn push(&mut self, id: ChunkId, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        self.chunks.push((id, bytes.len() as u32));
    }

    /// Empty it, keeping its memory.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.chunks.clear();
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// Codes blocks; one a thread, since its contexts are reused.
pub struct Coder {
    compressor: Compressor<'static>,
    set: Effort,
    /// What made less than the level did of the last block that was coded in several ways, if anything, and how many
    /// blocks ago that was.
    best: (Option<Effort>, u32),
    decompressor: Decompressor<'static>,
    /// The coded block, then its sealed form.
    pub(super) coded: Vec<u8>,
    /// Room to open and decode it again.
    pub(super) opened: Vec<u8>,
    decoded: Vec<u8>,
    /// Room for what is made of pieces to see what a block is worth: `coded` keeps its length, which sealing the next
    /// raw block would have to fill again.
    probe: Vec<u8>,
    /// What this machine makes of the next block is wrong in a bit: as it was coded, or as it was sealed.
    #[cfg(test)]
    pub(super) bends: Option<Bend>,
}

/// Where a machine that fails is made to.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bend {
    /// When it has compressed.
    Coded,
    /// When it has sealed.
    Sealed,
}

/// Gains below this share of a block are not worth decoding at every restore.
const WORTHWHILE_PERCENT: usize = 97;
const PROBE_PIECES: usize = 4;
const PROBE_PIECE_BYTES: usize = 4 << 10;
const CONFIRM_BYTES: usize = 64 << 10;
/// Of so many bytes so many at the beginning are looked at, and how many of them must differ for noise.
const STRETCH_EVERY: usize = 1 << 10;
const STRETCH_BYTES: usize = 64;
const STRETCH_DISTINCT: u32 = 46;
/// So many stretches that are no noise are worth a try.
const STRETCHES_PERCENT: usize = 3;
/// One block of so many is coded in several ways.
const TRY_EVERY: u32 = 16;
/// Smaller ones say nothing of those behind them.
const TRY_BYTES: usize = 256 << 10;
/// zstd's fastest level that is no worse on all sorts of data than it has to be.
const FASTEST: Effort = Effort::level(1);
/// The fastest level with a table of only 2^11 or 2^9 places. Places are soon overwritten, so only matches that are
/// long or not far back are found. The second is for data that the first one suits.
const FEW_MATCHES: [Effort; 2] = [Effort { level: 1, hash_log: 11 }, Effort { level: 1, hash_log: 9 }];

/// How zstd looks for matches.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Effort {
    level: i32,
    /// The logarithm of its table's size; 0: the level's own.
    hash_log: u32,
}

impl Effort {
    const fn level(level: i32) -> Self {
        Effort { level, hash_log: 0 }
    }
}

/// What a block seems to hold.
enum Contents {
    /// Nothing that a compressor could use.
    Noise,
    /// Noise, and other things between it: chunks of several files, or a document with pictures.
    Mixed,
    Regular,
}

/// Whether more than a few stretches of a block are no noise: of 64 bytes by chance 57 differ from one another, and
/// fewer than 46 never do.
fn is_mixed(raw: &[u8]) -> bool {
    let stretches = raw.chunks_exact(STRETCH_EVERY).map(|stretch| &stretch[..STRETCH_BYTES]);
    let count = stretches.len();
    stretches.filter(|stretch| distinct(stretch) < STRETCH_DISTINCT).count() * 100 >= count * STRETCHES_PERCENT
}

/// How many different bytes there are.
fn distinct(bytes: &[u8]) -> u32 {
    let mut seen = [0u64; 4];
    for &byte in bytes {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    seen.iter().map(|part| part.count_ones()).sum()
}

impl Coder {
    /// A coder with its contexts.
    pub fn new() -> std::io::Result<Self> {
        Ok(Coder {
            compressor: Compressor::new(FASTEST.level)?,
            set: FASTEST,
            best: (None, TRY_EVERY),
            decompressor: Decompressor::new()?,
            coded: Vec::new(),
            opened: Vec::new(),
            decoded: Vec::new(),
            probe: Vec::new(),
            #[cfg(test)]
            bends: None,
        })
    }

    /// Flip a bit of what there is by now, if that is wanted.
    #[cfg(test)]
    pub(super) fn bend(&mut self, at: Bend) {
        if self.bends == Some(at) {
            let middle = self.coded.len() / 2;
            self.coded[middle] ^= 1;
            self.bends = None;
        }
    }

    /// Code `raw` into `self.coded`; left raw, it isn't copied there.
    pub(super) fn encode(&mut self, raw: &[u8], coding: Coding) -> std::io::Result<Codec> {
        match (coding, if coding == Coding::Raw { Contents::Noise } else { self.guess(raw)? }) {
            (Coding::Raw, _) | (_, Contents::Noise) => return Ok(Codec::Raw),
            // What is worth it in between is found by any level, and the fastest is soonest through the noise.
            (_, Contents::Mixed) => self.compress_with(raw, FASTEST)?,
            (Coding::Best(level), Contents::Regular) => self.compress_best(raw, Effort::level(level))?,
            (Coding::Zstd(level), Contents::Regular) => self.compress_with(raw, Effort::level(level))?,
        }
        let pays = self.coded.len() * 100 < raw.len() * WORTHWHILE_PERCENT;
        Ok(if pays { Codec::Zstd } else { Codec::Raw })
    }

    fn compress_with(&mut self, raw: &[u8], effort: Effort) -> std::io::Result<()> {
        self.set(effort)?;
        self.compress(raw).map(drop)
    }

    /// Blocks behind one another are mostly of a kind: what was best for the one that was tried is taken for those
    /// behind it.
    fn compress_best(&mut self, raw: &[u8], level: Effort) -> std::io::Result<()> {
        let (best, since) = self.best;
        if since < TRY_EVERY || raw.len() < TRY_BYTES {
            self.best.1 += 1;
            return self.compress_with(raw, best.unwrap_or(level));
        }
        self.compress_with(raw, level)?;
        self.best = (None, 1);
        for effort in FEW_MATCHES {
            std::mem::swap(&mut self.coded, &mut self.opened);
            self.compress_with(raw, effort)?;
            if self.coded.len() >= self.opened.len() {
                std::mem::swap(&mut self.coded, &mut self.opened);
                break;
            }
            self.best.0 = Some(effort);
        }
        Ok(())
    }

    /// A fast guess on a few pieces, confirmed on a larger one, as pieces alone are wrong for some binaries; then on
    /// many small ones, as those few miss what lies between pictures.
    fn guess(&mut self, raw: &[u8]) -> std::io::Result<Contents> {
        if raw.len() < 2 * CONFIRM_BYTES {
            return Ok(Contents::Regular);
        }
        self.set(Effort::level(-5))?;
        let mut total = 0;
        for piece in 0..PROBE_PIECES {
            let at = (raw.len() - PROBE_PIECE_BYTES) / PROBE_PIECES * piece;
            total += self.probe(&raw[at..at + PROBE_PIECE_BYTES])?;
        }
        if total * 100 < PROBE_PIECES * PROBE_PIECE_BYTES * WORTHWHILE_PERCENT {
            return Ok(Contents::Regular);
        }
        self.set(FASTEST)?;
        let at = (raw.len() - CONFIRM_BYTES) / 2;
        if self.probe(&raw[at..at + CONFIRM_BYTES])? * 100 < CONFIRM_BYTES * WORTHWHILE_PERCENT {
            return Ok(Contents::Regular);
        }
        Ok(if is_mixed(raw) { Contents::Mixed } else { Contents::Noise })
    }

    fn set(&mut self, effort: Effort) -> std::io::Result<()> {
        if effort.level != self.set.level {
            self.compressor.set_compression_level(effort.level)?;
        }
        if effort.hash_log != self.set.hash_log {
            self.compressor.set_parameter(CParameter::HashLog(effort.hash_log))?;
        }
        self.set = effort;
        Ok(())
    }

    fn compress(&mut self, raw: &[u8]) -> std::io::Result<usize> {
        compress(&mut self.compressor, raw, &mut self.coded)
    }

    /// How long a piece gets.
    fn probe(&mut self, raw: &[u8]) -> std::io::Result<usize> {
        compress(&mut self.compressor, raw, &mut self.probe)
    }

    /// Whether `self.opened` decodes to `raw`.
    pub(super) fn decodes_to(&mut self, codec: Codec, raw: &[u8]) -> bool {
        match codec {
            Codec::Raw => self.opened == raw,
            Codec::Zstd => {
                self.decoded.clear();
                self.decoded.reserve_exact(raw.len());
                self.decompressor.decompress_to_buffer(&self.opened, &mut self.decoded).is_ok() && self.decoded == raw
            }
            Codec::Padding => true,
        }
    }
}

fn compress(compressor: &mut Compressor<'static>, raw: &[u8], out: &mut Vec<u8>) -> std::io::Result<usize> {
    out.clear();
    // Blocks are nearly of a size: to grow by as much again, as vectors do, would leave half of it unused.
    out.reserve_exact(zstd::zstd_safe::compress_bound(raw.len()));
    compressor.compress_to_buffer(raw, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn text_is_compressed_noise_is_not() {
        let mut coder = Coder::new().unwrap();
        let text = b"some words that repeat, ".repeat(20_000);
        assert_eq!(coder.encode(&text, Coding::Zstd(3)).unwrap(), Codec::Zstd);
        assert!(coder.coded.len() < text.len() / 20);
        coder.opened = coder.coded.clone();
        assert!(coder.decodes_to(Codec::Zstd, &text));
        assert!(!coder.decodes_to(Codec::Zstd, &text[1..]));
        coder.opened[50] ^= 1;
        assert!(!coder.decodes_to(Codec::Zstd, &text));
        for len in [0, 1, 100, 5000, 500_000] {
            assert_eq!(coder.encode(&noise(len), Coding::Zstd(3)).unwrap(), Codec::Raw, "{len} bytes of noise");
        }
        assert_eq!(coder.encode(&text, Coding::Raw).unwrap(), Codec::Raw);
    }

    /// Numbers without end, none above `below`.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut noise = noise(1 << 20).into_iter().cycle();
        move |below| (0..8).fold(0, |n, _| n << 8 | u64::from(noise.next().unwrap())) % below
    }

    /// Lines of numbers between words that come again: many short matches, which cost more than they save.
    fn log(bytes: usize) -> Vec<u8> {
        let (mut number, mut log) = (numbers(), Vec::new());
        while log.len() < bytes {
            let words = ["opened by", "closed by", "read by", "late for"][number(4) as usize];
            log.extend(format!("{},{} {words} {}\n", number(u64::MAX), number(1 << 20), number(1000)).bytes());
        }
        log.truncate(bytes);
        log
    }

    /// Some words in any order.
    fn text(bytes: usize) -> Vec<u8> {
        let (mut number, mut text) = (numbers(), Vec::new());
        while text.len() < bytes {
            text.extend(["drift ", "till ", "esker ", "moraine ", "kettle ", "clay\n"][number(6) as usize].bytes());
        }
        text.truncate(bytes);
        text
    }

    #[test]
    fn of_several_efforts_the_one_that_makes_least_is_taken() {
        let mut coder = Coder::new().unwrap();
        let (log, text) = (log(1 << 20), text(1 << 20));
        let mut at = |coding, raw: &[u8]| {
            assert_eq!(coder.encode(raw, coding).unwrap(), Codec::Zstd);
            coder.opened = coder.coded.clone();
            assert!(coder.decodes_to(Codec::Zstd, raw));
            coder.coded.len()
        };
        let [slow_log, fast_log] = [3, 1].map(|level| at(Coding::Zstd(level), &log));
        let [slow, fast] = [3, 1].map(|level| at(Coding::Zstd(level), &text));
        assert!(slow < fast, "{slow} {fast}");
        let best = at(Coding::Best(3), &log);
        assert!(best < fast_log && fast_log < slow_log, "{best} {fast_log} {slow_log}");
        // Those behind it are taken for its like; in time it is found out that they aren't.
        let found = (1..=TRY_EVERY).find(|_| at(Coding::Best(3), &text) == slow);
        assert_eq!(found, Some(TRY_EVERY));
        assert_eq!(at(Coding::Best(3), &text), slow);
    }

    #[test]
    fn what_lies_between_noise_is_compressed_wherever_it_is() {
        let mut coder = Coder::new().unwrap();
        // A sixteenth, which the pieces that are tried first pass over.
        let (noise, text) = (noise(1 << 20), text(64 << 10));
        for at in [100 << 10, 350 << 10, 650 << 10, 900 << 10] {
            let mut mixed = noise.clone();
            mixed[at..at + text.len()].copy_from_slice(&text);
            assert_eq!(coder.encode(&mixed, Coding::Best(3)).unwrap(), Codec::Zstd, "text at {at}");
            assert!(coder.coded.len() < mixed.len() - text.len() / 2);
        }
        assert_eq!(coder.encode(&noise, Coding::Best(3)).unwrap(), Codec::Raw);
    }

    #[test]
    fn a_block_with_some_noise_is_still_compressed() {
        let mut coder = Coder::new().unwrap();
        let mut mixed = noise(200_000);
        mixed.extend(b"some words that repeat, ".repeat(20_000));
        assert_eq!(coder.encode(&mixed, Coding::Zstd(1)).unwrap(), Codec::Zstd);
    }
}
