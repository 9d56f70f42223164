//! The chunking function once more, from the text of `docs/chunking.md` and from nothing of the crate: slow, one
//! position after the other, with a SipHash of its own. Also data to try it on.
#![allow(dead_code)]

/// SipHash-c-d with c = 1 and d = 3, for a message of any length.
pub fn siphash13(k0: u64, k1: u64, message: &[u8]) -> u64 {
    let mut a = k0 ^ u64::from_be_bytes(*b"somepseu");
    let mut b = k1 ^ u64::from_be_bytes(*b"dorandom");
    let mut c = k0 ^ u64::from_be_bytes(*b"lygenera");
    let mut d = k1 ^ u64::from_be_bytes(*b"tedbytes");
    let mut rounds = |times: usize, before: u64, after: u64, mark: u64| {
        d ^= before;
        c ^= mark;
        for _ in 0..times {
            a = a.wrapping_add(b);
            b = b.rotate_left(13) ^ a;
            a = a.rotate_left(32);
            c = c.wrapping_add(d);
            d = d.rotate_left(16) ^ c;
            a = a.wrapping_add(d);
            d = d.rotate_left(21) ^ a;
            c = c.wrapping_add(b);
            b = b.rotate_left(17) ^ c;
            c = c.rotate_left(32);
        }
        a ^= after;
        a ^ b ^ c ^ d
    };
    let mut words = message.chunks_exact(8);
    for word in &mut words {
        let m = word.iter().rev().fold(0, |m, &byte| m << 8 | u64::from(byte));
        rounds(1, m, m, 0);
    }
    let last = words.remainder().iter().rev().fold(0, |m, &byte| m << 8 | u64::from(byte));
    let last = last | (message.len() as u64) << 56;
    rounds(1, last, last, 0);
    rounds(3, 0, 0, 0xff)
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// The sixteen weights of stage 1, the last word's first.
pub fn weights(secret: &[u8; 32]) -> [u64; 16] {
    let m = |j: usize| le(&secret[2 * j..2 * j + 2]) / 32 * 32 + [5, 25, 17, 3][j];
    core::array::from_fn(|i| {
        let chosen = (0..4).filter(|j| i / (1 << j) % 2 == 1);
        chosen.fold(1, |c, j| c * m(j) % 65536)
    })
}

/// What the secret says about a position, from the 64 bytes before it: `None` if stage 1 refuses, else the verdict.
/// `c` are the secret's [`weights`].
pub fn verdict(secret: &[u8; 32], c: &[u64; 16], window: &[u8]) -> Option<u64> {
    let w = |i: usize| u64::from(window[62 - 2 * i]) + 256 * u64::from(window[63 - 2 * i]);
    let sum = (0..16).fold(0, |sum, i| sum + c[i] * w(i)) % 65536;
    let passes = sum / 256 == u64::from(secret[24]) / 2 * 2 + 1;
    passes.then(|| siphash13(le(&secret[8..16]), le(&secret[16..24]), window))
}

/// The lengths of all chunks.
pub fn lengths(secret: &[u8; 32], min: usize, normal: usize, max: usize, mut data: &[u8]) -> Vec<usize> {
    let (bits, c) = (normal.ilog2() - 8, weights(secret));
    let mut all = Vec::new();
    while !data.is_empty() {
        let cut = (min..data.len().min(max)).find(|&p| {
            let bits = if p < normal { bits + 2 } else { bits - 2 };
            verdict(secret, &c, &data[p - 64..p]).is_some_and(|v| v.is_multiple_of(1 << bits))
        });
        let cut = cut.unwrap_or(data.len().min(max));
        all.push(cut);
        data = &data[cut..];
    }
    all
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA '14).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64's words, little-endian.
pub fn random(len: usize, mut seed: u64) -> Vec<u8> {
    let mut data = Vec::with_capacity(len + 8);
    while data.len() < len {
        data.extend_from_slice(&next(&mut seed).to_le_bytes());
    }
    data.truncate(len);
    data
}

/// Lines of a log: much alike, few the same.
pub fn log(len: usize, mut seed: u64) -> Vec<u8> {
    let words = ["osd", "mon", "paxos", "heartbeat", "deep-scrub ok", "slow request", "map", "pg", "client", "mgr"];
    let mut text = Vec::with_capacity(len + 200);
    let mut time = 1_700_000_000_000u64;
    while text.len() < len {
        let r = next(&mut seed);
        time += r % 997;
        let (a, b) = (words[(r >> 10) as usize % words.len()], words[(r >> 20) as usize % words.len()]);
        let line = format!(
            "{}.{:03} host{:02} {a}[{}]: {b} from 10.0.{}.{} took {} ms\n",
            time / 1000,
            time % 1000,
            r >> 30 & 15,
            (r >> 34) % 40_000,
            r >> 50 & 3,
            r >> 52 & 255,
            r >> 60
        );
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(len);
    text
}
