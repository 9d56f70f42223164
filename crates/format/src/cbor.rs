//! The small objects' bodies: CBOR maps with integer keys (RFC 8949). Unknown keys are passed over, so that a later
//! program may add some without a new format version.
//!
//! There is one encoding of everything: definite lengths, shortest integers, keys ascending and each once, no tags,
//! nothing behind the outermost value. So two readers can't take the same bytes for different things.

use crate::error::malformed;
use crate::{Error, HEADER_BYTES, Header, Result};
use drumlin_seal::checksum;

/// Encode a body.
pub(crate) fn encode<T: minicbor::Encode<()>>(body: &T) -> Vec<u8> {
    encode_into(Vec::new(), body)
}

/// Encode a body behind what is in `out`: with room enough, no part of a secret is left behind in memory given back.
pub(crate) fn encode_into<T: minicbor::Encode<()>>(mut out: Vec<u8>, body: &T) -> Vec<u8> {
    minicbor::encode(body, &mut out).expect("encoding to memory can't fail");
    out
}

/// Decode a body.
pub(crate) fn decode<'b, T: minicbor::Decode<'b, ()>>(bytes: &'b [u8], object: &'static str) -> Result<T> {
    let mut rest = bytes;
    if item(&mut rest, DEPTH_MAX).is_none() || !rest.is_empty() {
        return malformed(object, "its fields are not in the one form that they can have, or it goes on after its end");
    }
    minicbor::decode(bytes).map_err(|_| Error::Malformed { object, detail: "its fields are not what they should be" })
}

/// Deeper than any body, with room for what later versions may add.
const DEPTH_MAX: usize = 16;

/// Step over one value; `None` if it is cut short or in another form than the one that we write.
fn item(rest: &mut &[u8], depth: usize) -> Option<()> {
    let (major, value) = head(rest)?;
    match major {
        0 | 1 | 7 => {}
        2 | 3 => *rest = rest.get(usize::try_from(value).ok()?..)?,
        // Each element takes a byte at least, so a count that lies ends with the bytes.
        4 => {
            for _ in 0..value {
                item(rest, depth.checked_sub(1)?)?;
            }
        }
        5 => {
            let mut before = None;
            for _ in 0..value {
                let (0, key) = head(rest)? else { return None };
                if before.is_some_and(|before| before >= key) {
                    return None;
                }
                before = Some(key);
                item(rest, depth.checked_sub(1)?)?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Major type and argument of the value at hand, in the shortest form.
fn head(rest: &mut &[u8]) -> Option<(u8, u64)> {
    let (first, after) = rest.split_first()?;
    let (major, info) = (first >> 5, first & 31);
    let (width, least) = match info {
        0..=23 => (0, 0),
        24 => (1, 24),
        25 => (2, 1 << 8),
        26 => (4, 1 << 16),
        27 => (8, 1 << 32),
        _ => return None,
    };
    let (argument, after) = after.split_at_checked(width)?;
    let value = match width {
        0 => u64::from(info),
        _ => argument.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    };
    *rest = after;
    // In major type 7 the argument is not a number.
    (major == 7 || value >= least).then_some((major, value))
}

/// header | body | checksum of both: for objects that must be readable without a key.
pub(crate) fn plain_object(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut out = [&header.encode()[..], body].concat();
    let sum = checksum(&out);
    out.extend_from_slice(&sum);
    out
}

/// The body of what [`plain_object`] made; `header` was decoded from the same bytes.
pub(crate) fn plain_body<'a>(header: &Header, object: &'a [u8]) -> Result<&'a [u8]> {
    let what = header.object.label();
    let Some((bytes, sum)) = object.split_last_chunk::<16>() else {
        return malformed(what, "it ends too early");
    };
    if checksum(bytes) != *sum {
        return malformed(what, "its checksum is wrong: it is damaged or cut short");
    }
    bytes.get(HEADER_BYTES..).map_or_else(|| malformed(what, "it ends too early"), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minicbor::{Decode, Encode};
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Encode, Decode)]
    #[cbor(map)]
    struct Sample {
        #[n(0)]
        text: String,
        #[n(1)]
        number: i64,
        #[n(2)]
        list: Vec<u64>,
        #[n(5)]
        maybe: Option<u64>,
    }

    fn read(bytes: &[u8]) -> Result<Sample> {
        decode(bytes, "sample")
    }

    #[test]
    fn what_we_write_we_read_and_later_fields_are_passed_over() {
        for number in [0, 23, 24, -1, -25, 255, 256, 65536, i64::MAX, i64::MIN] {
            let sample = Sample { text: "x".repeat(300), number, list: vec![1 << 40, 7], maybe: None };
            assert_eq!(read(&encode(&sample)).unwrap(), sample);
        }
        let good = [&[0xa3, 0, 0x61, b'h', 1, 0x24, 2, 0x80][..], &[]].concat();
        assert_eq!(read(&good).unwrap().number, -5);
        let unknown = [&[0xa4][..], &good[1..], &[0x18, 99, 0x82, 1, 0xa1, 2, 3]].concat();
        assert_eq!(read(&unknown).unwrap(), read(&good).unwrap());
        let null = [&[0xa4][..], &good[1..], &[5, 0xf6]].concat();
        assert_eq!(read(&null).unwrap().maybe, None);
    }

    #[test]
    fn other_forms_of_the_same_are_refused() {
        let good = [0xa3, 0, 0x61, b'h', 1, 0x24, 2, 0x80];
        for (bad, why) in [
            ([&good[..], &[0]].concat(), "something behind it"),
            ([&[0xbf][..], &good[1..], &[0xff]].concat(), "a map of indefinite length"),
            ([&good[..7], &[0x9f, 0xff]].concat(), "an array of indefinite length"),
            ([&[0xa3, 0, 0x7f, 0x61, b'h', 0xff][..], &good[4..]].concat(), "a text of indefinite length"),
            ([&[0xa4][..], &good[1..], &[2, 0x80]].concat(), "a key twice"),
            (vec![0xa3, 1, 0x24, 0, 0x61, b'h', 2, 0x80], "keys out of order"),
            (vec![0xa3, 0, 0x61, b'h', 1, 0x38, 0x04, 2, 0x80], "a long form of a number"),
            (vec![0xa3, 0x18, 0, 0x61, b'h', 1, 0x24, 2, 0x80], "a long form of a key"),
            (vec![0xa3, 0, 0x78, 1, b'h', 1, 0x24, 2, 0x80], "a long form of a length"),
            ([&[0xa4][..], &good[1..], &[0x61, b'k', 1]].concat(), "a key that is text"),
            ([&[0xa4][..], &good[1..], &[0x18, 99, 0xc1, 1]].concat(), "a tag"),
            ([&[0xa4][..], &good[1..], &[0x18, 99], &[0x81; 4_000_000], &[1]].concat(), "too deep"),
            (vec![0xa3, 0, 0x61, b'h', 1, 0x24, 2, 0x9b, 0x7f, 255, 255, 255, 255, 255, 255, 255], "a count that lies"),
            (vec![0x5b, 0xff, 255, 255, 255, 255, 255, 255, 255], "a length that lies"),
        ] {
            assert!(read(&bad).is_err(), "{why}");
        }
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err(), "cut to {cut}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
