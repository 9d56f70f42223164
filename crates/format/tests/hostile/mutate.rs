//! Valid bytes made invalid, in the ways in which decoders go wrong.

use drumlin_testkit::Rng;

/// Where limits and types end.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    9,
    0x7f,
    0x80,
    0xff,
    0x100,
    1024,
    8192,
    8193,
    0x7fff,
    0xffff,
    0x10000,
    4 << 20,
    (16 << 20) + 1,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// `bytes` with some changes; `other` is something to take pieces from.
pub fn mutate(rng: &mut Rng, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=rng.below(5) {
        step(rng, &mut out, other);
    }
    out
}

fn step(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let len = bytes.len();
    // Counts and kinds stand at the start.
    let at = if rng.one_in(4) { rng.below(len.min(24) + 1) } else { rng.below(len + 1) };
    match rng.below(12) {
        0 | 1 if at < len => bytes[at] ^= 1 << rng.below(8),
        2 if at < len => bytes[at] = rng.u64() as u8,
        // Small numbers often stand for counts and lengths.
        3 if at < len => bytes[at] = bytes[at].wrapping_add([1, 255, 2, 128][rng.below(4)]),
        4 => bytes.truncate(at),
        5 => {
            let end = at + rng.below(len - at + 1).min(40);
            bytes.drain(at..end);
        }
        6 => {
            let piece = range(rng, len, 40);
            let piece = bytes[piece].to_vec();
            bytes.splice(at..at, piece);
        }
        7 => {
            let from = range(rng, other.len(), 300);
            let end = if rng.one_in(2) { at } else { (at + from.len()).min(len) };
            bytes.splice(at..end, other[from].iter().copied());
        }
        8 | 9 => {
            // One number over another of the same width, or in the place of a varint.
            let value = number(rng);
            let mut coded = match rng.below(8) {
                0 => vec![value as u8],
                1 => (value as u16).to_le_bytes().to_vec(),
                2 => (value as u32).to_be_bytes().to_vec(),
                3 => value.to_le_bytes().to_vec(),
                _ => varint(value),
            };
            let replaced = if rng.one_in(2) { coded.len() } else { 1 };
            if rng.one_in(8) {
                coded.reverse();
            }
            bytes.splice(at..(at + replaced).min(len), coded);
        }
        10 => {
            // As CBOR has it, with the major type kept.
            if at < len {
                let major = bytes[at] & 0xe0;
                let value = number(rng);
                let coded = match rng.below(4) {
                    0 => vec![major | (value as u8 & 31)],
                    1 => vec![major | 24, value as u8],
                    2 => [&[major | 26][..], &(value as u32).to_be_bytes()].concat(),
                    _ => [&[major | 27][..], &value.to_be_bytes()].concat(),
                };
                bytes.splice(at..at + 1, coded);
            }
        }
        _ => {
            let (a, b) = (range(rng, len, 40), rng.below(len + 1));
            let piece: Vec<u8> = bytes.drain(a).collect();
            let b = b.min(bytes.len());
            bytes.splice(b..b, piece);
        }
    }
}

fn number(rng: &mut Rng) -> u64 {
    // Sums overflow at the far end.
    let edge = if rng.one_in(4) { u64::MAX } else { EDGES[rng.below(EDGES.len())] };
    if rng.one_in(3) { edge.wrapping_add(rng.below(5) as u64).wrapping_sub(2) } else { edge }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn range(rng: &mut Rng, len: usize, most: usize) -> std::ops::Range<usize> {
    let start = rng.below(len + 1);
    start..start + rng.below((len - start).min(most) + 1)
}
