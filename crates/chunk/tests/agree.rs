//! Every path gives the cuts of the reference, on any data and at any length.

mod reference;

use drumlin_chunk::{Chunker, Params, Path};
use proptest::prelude::*;
use reference::{lengths, log, random};

fn chunkers(secret: &[u8; 32], params: Params) -> Vec<Chunker> {
    Path::ALL.into_iter().filter_map(|path| Chunker::with_path(secret, params, path)).collect()
}

#[track_caller]
fn assert_agree(secret: &[u8; 32], params: Params, data: &[u8]) {
    let expected = lengths(secret, params.min as usize, params.normal as usize, params.max as usize, data);
    for chunker in chunkers(secret, params) {
        let got: Vec<usize> = chunker.chunks(data).map(<[u8]>::len).collect();
        assert_eq!(got, expected, "{:?} with {params:?} on {} bytes", chunker.path(), data.len());
    }
}

/// A secret under which a run of ones (bytes of value 1) passes stage 1 everywhere. With the smallest multipliers the
/// weights of the filter add up to 6 × 26 × 18 × 4 = 11232, and 11232 × 0x0101 leaves 0x0be0 modulo 2^16.
fn secret_that_likes_ones() -> [u8; 32] {
    let mut secret: [u8; 32] = core::array::from_fn(|i| (i * 29 + 3) as u8);
    secret[..8].fill(0);
    secret[24] = 0x0b;
    secret
}

fn secrets() -> impl Strategy<Value = [u8; 32]> {
    prop_oneof![4 => any::<[u8; 32]>(), 1 => Just(secret_that_likes_ones()), 1 => Just([0; 32]), 1 => Just([255; 32])]
}

fn sizes() -> impl Strategy<Value = Params> {
    (64..=4096u32, 12..=14u32, 0..20_000u32)
        .prop_map(|(min, bits, over)| Params::new(min, 1 << bits, (1 << bits) + over).expect("within the limits"))
}

/// Random, few different bytes, short periods, runs, and log lines, some after one another.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u64>(), 0..30_000usize).prop_map(|(seed, len)| random(len, seed)),
        (any::<u64>(), 0..30_000usize, 1..4u8)
            .prop_map(|(seed, len, few)| { random(len, seed).into_iter().map(|b| b % few).collect() }),
        (any::<u64>(), 1..40usize, 0..30_000usize)
            .prop_map(|(seed, period, len)| { random(period, seed).into_iter().cycle().take(len).collect() }),
        (any::<u8>(), 0..30_000usize).prop_map(|(byte, len)| vec![byte; len]),
        (0..2u8, 0..30_000usize).prop_map(|(byte, len)| vec![byte; len]),
        (any::<u64>(), 0..30_000usize).prop_map(|(seed, len)| log(len, seed)),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_any_data(secret in secrets(), params in sizes(), data in data()) {
        assert_agree(&secret, params, &data);
    }
}

#[test]
fn at_every_tail_length() {
    let params = Params::new(64, 4096, 8192).unwrap();
    let secret = core::array::from_fn(|i| i as u8);
    let data = random(20_000, 5);
    for len in (0..400).chain(1_900..2_300).chain(4_000..4_300).chain(8_100..8_300) {
        assert_agree(&secret, params, &data[..len]);
    }
}

#[test]
fn at_every_distance_from_a_cut() {
    // The cut wanders through every lane of a vector and across the borders of blocks.
    let params = Params::new(64, 4096, 65536).unwrap();
    let secret = core::array::from_fn(|i| i as u8);
    let data = random(40_000, 6);
    for from in 0..1_200 {
        let first = lengths(&secret, 64, 4096, 65536, &data[from..])[0];
        for chunker in chunkers(&secret, params) {
            assert_eq!(chunker.cut(&data[from..]), first, "{:?} from {from}", chunker.path());
        }
    }
}

#[test]
fn where_every_position_passes_the_filter() {
    let params = Params::new(64, 4096, 65536).unwrap();
    let secret = secret_that_likes_ones();
    let mut data = vec![1; 50_000];
    assert!(reference::verdict(&secret, &reference::weights(&secret), &data[..64]).is_some());
    assert_agree(&secret, params, &data);
    // Runs between bytes that differ, so that windows come again but not always.
    for i in (0..data.len()).step_by(777) {
        data[i] = (i / 777) as u8;
    }
    assert_agree(&secret, params, &data);
    // Runs just long enough for some positions to pass, in great number.
    let runs: Vec<u8> = random(1_200, 8).into_iter().flat_map(|b| [[1; 40].as_slice(), &[b]].concat()).collect();
    assert_agree(&secret, params, &runs);
}

#[test]
fn bytes_beyond_max_change_nothing() {
    let params = Params::new(64, 4096, 8192).unwrap();
    let data = random(100_000, 9);
    for chunker in chunkers(&[9; 32], params) {
        let mut rest = &data[..];
        while rest.len() > 8192 {
            let cut = chunker.cut(rest);
            assert_eq!(cut, chunker.cut(&rest[..8192]));
            rest = &rest[cut..];
        }
    }
}
