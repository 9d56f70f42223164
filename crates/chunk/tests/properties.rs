//! What a chunker is for: sizes within their bounds and near their mean, and cuts that find back after a change.

mod reference;

use std::collections::HashSet;

use drumlin_chunk::{Chunker, Params};
use reference::{log, random};

const PARAMS: fn() -> Params = || Params::around(1 << 14).unwrap();

fn chunker() -> Chunker {
    Chunker::new(&core::array::from_fn(|i| (i * 7 + 1) as u8), PARAMS())
}

fn lengths(data: &[u8]) -> Vec<usize> {
    chunker().chunks(data).map(<[u8]>::len).collect()
}

/// Positions of the cuts, counted from the end of the data.
fn cuts_from_end(data: &[u8]) -> HashSet<usize> {
    lengths(data).into_iter().scan(data.len(), |left, len| Some(std::mem::replace(left, *left - len))).collect()
}

#[test]
fn nothing_for_nothing() {
    assert_eq!(chunker().cut(&[]), 0);
    assert_eq!(chunker().chunks(&[]).count(), 0);
}

#[test]
fn input_up_to_min_is_one_chunk() {
    let data = random(4096, 1);
    for len in [1, 63, 64, 65, 4095, 4096] {
        assert_eq!(chunker().cut(&data[..len]), len);
    }
}

#[test]
fn sizes_stay_within_bounds_and_lose_nothing() {
    let random = random(4 << 20, 2);
    let period: Vec<u8> = b"period-8".iter().copied().cycle().take(1 << 20).collect();
    for data in [&random, &log(1 << 20, 3), &period, &vec![0; 1 << 20], &vec![255; 1 << 20]] {
        let lengths = lengths(data);
        let (last, others) = lengths.split_last().unwrap();
        assert!(others.iter().all(|len| (4096..=65536).contains(len)), "{lengths:?}");
        assert!((1..=65536).contains(last));
        assert_eq!(lengths.iter().sum::<usize>(), data.len());
    }
}

#[test]
fn data_without_variety_is_cut_in_equal_pieces() {
    let period: Vec<u8> = b"period-8".iter().copied().cycle().take(1 << 20).collect();
    for data in [vec![0; 1 << 20], vec![255; 1 << 20], period] {
        let chunks: HashSet<&[u8]> = chunker().chunks(&data).collect();
        assert!(chunks.len() <= 2, "{} different chunks", chunks.len());
    }
}

#[test]
fn mean_is_what_the_masks_promise() {
    // A chunk outlives position p with (1 - q)^(p - min) before normal, q being one in 2^(bits + 2), and then with one
    // in 2^(bits - 2); the mean is the sum of that over all p below max.
    let Params { min, normal, max, .. } = PARAMS();
    let (strict, loose) = (1.0 - 1.0 / f64::from(normal * 4), 1.0 - 4.0 / f64::from(normal));
    let mut expected = f64::from(min);
    let mut alive = 1.0;
    for p in min..max {
        expected += alive;
        alive *= if p < normal { strict } else { loose };
    }
    let data = random(64 << 20, 4);
    let lengths = lengths(&data);
    let mean = data.len() as f64 / lengths.len() as f64;
    assert!((mean / expected - 1.0).abs() < 0.03, "{mean} where {expected} was expected");
    let early = lengths.iter().filter(|&&len| len < normal as usize).count() as f64 / lengths.len() as f64;
    let expected = 1.0 - strict.powi((normal - min) as i32);
    assert!((early - expected).abs() < 0.03, "{early} below normal where {expected} was expected");
}

#[test]
fn cuts_find_back_after_an_insert() {
    let old = random(1 << 20, 5);
    let cuts = cuts_from_end(&old);
    for (at, len) in [(0, 1), (1, 7), (4096, 64), (100_000, 1), (500_000, 3000)] {
        let mut new = old.clone();
        new.splice(at..at, random(len, at as u64));
        let lost = cuts.difference(&cuts_from_end(&new)).filter(|&&c| c < old.len() - at).count();
        assert!(lost <= 8, "{lost} of {} cuts lost behind an insert of {len} at {at}", cuts.len());
    }
}

#[test]
fn cuts_find_back_in_text() {
    let old = log(2 << 20, 6);
    let mut new = old.clone();
    new.splice(1000..1000, *b"1700000000.000 host99 audit[1]: a line that was not there before\n");
    let (before, after) = (cuts_from_end(&old), cuts_from_end(&new));
    assert!(before.len() > 50);
    assert!(before.difference(&after).count() <= 12, "{} of {}", before.difference(&after).count(), before.len());
}

#[test]
fn another_secret_cuts_elsewhere() {
    let data = random(1 << 20, 7);
    let ours = cuts_from_end(&data);
    // One bit in each part of the secret that counts: multipliers, the filter's byte, and both halves of SipHash's key.
    for byte in [1, 3, 5, 7, 8, 16, 24] {
        let mut secret: [u8; 32] = core::array::from_fn(|i| (i * 7 + 1) as u8);
        secret[byte] ^= 0x20;
        let other = Chunker::new(&secret, PARAMS());
        let mut left = data.len();
        let same = other.chunks(&data).filter(|c| (ours.contains(&left), left -= c.len()).0).count();
        assert!(same < ours.len() / 4, "{same} cuts are the same under byte {byte}");
    }
    let mut secret: [u8; 32] = core::array::from_fn(|i| (i * 7 + 1) as u8);
    for byte in [0, 2, 4, 6] {
        secret[byte] ^= 31;
    }
    secret[24] ^= 1;
    secret[25..].fill(0);
    assert!(
        Chunker::new(&secret, PARAMS()).chunks(&data).map(<[u8]>::len).eq(lengths(&data)),
        "these bits are not used"
    );
}

#[test]
#[should_panic(expected = "Params::new")]
fn altered_sizes_are_refused() {
    let mut params = PARAMS();
    params.min = 0;
    Chunker::new(&[0; 32], params);
}

#[test]
fn debug_shows_no_secret() {
    let shown = format!("{:?}", Chunker::new(&[0xab; 32], PARAMS()));
    assert!(shown.contains("params") && !shown.contains("171") && !shown.contains("ab, ab"), "{shown}");
}
