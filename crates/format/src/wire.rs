//! The alphabet of the fixed tables: little-endian integers, LEB128 varints, counted bytes; read with bounds checked.

use crate::error::malformed;
use crate::{ChunkId, Result};

/// Reads a table; every method fails, instead of panicking, where the bytes end or mean nothing.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    object: &'static str,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], object: &'static str) -> Self {
        Reader { bytes, at: 0, object }
    }

    pub fn fail<T>(&self, detail: &'static str) -> Result<T> {
        malformed(self.object, detail)
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn u8(&mut self) -> Result<u8> {
        match self.bytes.get(self.at) {
            Some(byte) => {
                self.at += 1;
                Ok(*byte)
            }
            None => self.fail("it ends too early"),
        }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return self.fail("it ends too early");
        }
        let out = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(out)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub fn id(&mut self) -> Result<ChunkId> {
        self.array().map(ChunkId)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        // One byte is by far the most frequent case.
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return self.fail("a number is too large");
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return self.fail("a number is not in its shortest form");
                }
                return Ok(value);
            }
        }
        self.fail("a number is too large")
    }

    pub fn zigzag(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn u32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        value.try_into().or_else(|_| self.fail("a number is too large"))
    }

    /// A number that says where something is, or how much there is of it.
    pub fn index(&mut self) -> Result<usize> {
        let value = self.varint()?;
        value.try_into().or_else(|_| self.fail("a number is too large"))
    }

    /// A count of things that take at least `least` bytes each: never more than the rest can hold.
    pub fn count(&mut self, least: usize) -> Result<usize> {
        let value = self.varint()?;
        if value > (self.remaining() / least.max(1)) as u64 {
            return self.fail("it counts more than it holds");
        }
        usize::try_from(value).or_else(|_| self.fail("a number is too large"))
    }

    /// A [`Reader::count`] that may not pass `most`.
    pub fn count_up_to(&mut self, least: usize, most: usize) -> Result<usize> {
        let count = self.count(least)?;
        if count > most { self.fail("it counts more than it may") } else { Ok(count) }
    }

    /// Bytes behind their length.
    pub fn counted(&mut self) -> Result<&'a [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    pub fn end(&self) -> Result<()> {
        if self.remaining() > 0 { self.fail("it goes on after its end") } else { Ok(()) }
    }

    /// What is left must be zero bytes.
    pub fn zeros_to_end(&mut self) -> Result<()> {
        let rest = self.take(self.remaining())?;
        if rest.iter().any(|b| *b != 0) { self.fail("its padding is not zero") } else { Ok(()) }
    }
}

/// Writes what [`Reader`] reads.
pub(crate) trait Writer {
    fn varint(&mut self, value: u64);
    fn zigzag(&mut self, value: i64);
    fn counted(&mut self, bytes: &[u8]);
}

impl Writer for Vec<u8> {
    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    #[inline]
    fn zigzag(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63) as u64);
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Bytes of a number that [`Writer::varint`] writes.
pub(crate) fn varint_len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let values = [0, 1, 127, 128, 300, u32::MAX as u64, u64::MAX - 1, u64::MAX, 1 << 63];
        let mut bytes = Vec::new();
        for v in values {
            let before = bytes.len();
            bytes.varint(v);
            assert_eq!(bytes.len() - before, varint_len(v), "{v}");
            bytes.zigzag(v as i64);
        }
        let mut reader = Reader::new(&bytes, "test");
        for v in values {
            assert_eq!(reader.varint().unwrap(), v);
            assert_eq!(reader.zigzag().unwrap(), v as i64);
        }
        reader.end().unwrap();
    }

    #[test]
    fn hostile_numbers_are_refused() {
        for bytes in
            [&[0x80u8][..], &[0xff; 11], &[0x80, 0x00], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert!(Reader::new(bytes, "test").varint().is_err(), "{bytes:x?}");
        }
        assert!(Reader::new(&[200, 1, 0], "test").count(1).is_err());
        assert!(Reader::new(&[3, 0, 0, 0], "test").count(32).is_err());
        assert!(Reader::new(&[5, 1, 2], "test").counted().is_err());
    }
}
