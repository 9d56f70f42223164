//! Cuts that were computed once by a program in another language, and must never change: they are on-disk behaviour.

mod reference;

use drumlin_chunk::{Chunker, Params, Path};
use reference::random;

/// Bytes 1, 2, … 32.
fn secret() -> [u8; 32] {
    core::array::from_fn(|i| i as u8 + 1)
}

fn text() -> Vec<u8> {
    let line = |i| format!("line {i} of a text in which every line is much like the one before\n");
    (0..4000).flat_map(|i| line(i).into_bytes()).collect()
}

#[track_caller]
fn assert_lengths(params: Params, data: &[u8], expected: &[usize]) {
    for path in Path::ALL {
        if let Some(chunker) = Chunker::with_path(&secret(), params, path) {
            let lengths: Vec<usize> = chunker.chunks(data).map(<[u8]>::len).collect();
            assert_eq!(lengths, expected, "{path:?}");
        }
    }
}

#[test]
fn random_bytes() {
    let lengths = [
        26745, 12236, 7633, 36624, 16639, 12569, 17045, 24182, 18350, 20976, 21585, 22199, 22377, 21140, 18331, 16734,
        24414, 16438, 19852, 19532, 9005, 22391, 22878, 23488, 19039, 22350, 17118, 16743, 19232, 22873, 17221, 12734,
        16803, 24889, 19670, 9761, 18186, 24354, 19689, 18063, 18770, 16927, 17927, 16395, 18822, 19811, 18764, 22339,
        11965, 17840, 13030, 21237, 19359, 18093, 19523, 5686,
    ];
    assert_lengths(Params::around(16384).unwrap(), &random(1 << 20, 2026), &lengths);
}

#[test]
fn text_of_numbered_lines() {
    let lengths = [
        8906, 2732, 6780, 5812, 7832, 8443, 7048, 14953, 10927, 5448, 2392, 4762, 5216, 14343, 4447, 3582, 6460, 10288,
        2830, 13757, 4469, 4288, 6731, 6941, 6460, 4820, 6202, 4772, 4337, 7420, 4352, 4291, 7671, 5982, 6747, 7604,
        6455, 6341, 8681, 6876, 2492,
    ];
    assert_lengths(Params::around(4096).unwrap(), &text(), &lengths);
}

#[test]
fn zeros() {
    assert_lengths(Params::around(4096).unwrap(), &[0; 40_000], &[16384, 16384, 7232]);
}

#[test]
fn siphash() {
    // Key 00..0f and message 00..3f, as in the appendix of the SipHash paper, with one round a word and three at the
    // end. Pins the reference that the other tests lean on.
    let message: Vec<u8> = (0..64).collect();
    let verdict = reference::siphash13(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, &message);
    assert_eq!(verdict, 0xf179_97ec_4b4a_6065);
}
