//! Names as `getdents64` gave them, sorted where they lie in its buffer.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::sys::{self, Dirents, NAME_AT};

/// First size of the buffer for `getdents64`, and how large it grows before a directory counts as large.
pub(super) const RAW_BYTES: usize = 64 << 10;
const RAW_BYTES_MAX: usize = 512 << 10;
/// Free space that is worth another `getdents64` into the same buffer.
const RAW_BYTES_SPARE: usize = 16 << 10;
/// Slack behind the buffer's records, so that eight bytes can be read from any name.
pub(super) const RAW_SLACK: usize = 8;

/// A name in the buffer, with eight bytes of it as a number to sort by.
#[derive(Clone, Copy)]
pub(super) struct Key {
    prefix: u64,
    at: u32,
    pub(super) len: u16,
    /// Which of the directory's records it was.
    pub(super) index: u16,
}

impl Key {
    fn new(raw: &[u8], at: usize, len: usize, index: usize) -> Key {
        // Records have 24 bytes at least, so the largest buffer holds fewer than 2¹⁶.
        let mut key = Key { prefix: 0, at: at as u32, len: len as u16, index: index as u16 };
        key.load(raw, 0);
        key
    }

    /// Takes the prefix from `skip` bytes into the name.
    #[inline]
    fn load(&mut self, raw: &[u8], skip: usize) {
        let left = usize::from(self.len).saturating_sub(skip);
        let at = self.at as usize + usize::from(self.len) - left;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[at..at + 8]);
        let cut = if left < 8 { !(u64::MAX >> (8 * left)) } else { u64::MAX };
        self.prefix = u64::from_be_bytes(bytes) & cut;
    }

    pub(super) fn name<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        &raw[self.at as usize..self.at as usize + usize::from(self.len)]
    }

    /// The inode number that the record carries.
    pub(super) fn ino(&self, raw: &[u8]) -> u64 {
        let record = self.at as usize - NAME_AT;
        raw[record..record + 8].try_into().map_or(0, u64::from_ne_bytes)
    }

    pub(super) fn with_nul<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        &raw[self.at as usize..self.at as usize + usize::from(self.len) + 1]
    }
}

/// Sorts by name and drops names that were listed twice.
///
/// The names of a directory often begin alike: the prefixes are taken from where they begin to differ, so that whole
/// names need hardly be compared. No name holds a zero byte, so equal prefixes of short names mean equal names.
pub(super) fn sort(keys: &mut Vec<Key>, raw: &[u8]) {
    let mut skip = 0;
    while let (true, [first, rest @ ..]) = (skip <= 32, keys.as_slice()) {
        let differ = rest.iter().fold(0, |differ, key| differ | (key.prefix ^ first.prefix));
        let alike = differ.leading_zeros() as usize / 8;
        if alike == 0 || rest.is_empty() {
            break;
        }
        skip += alike;
        keys.iter_mut().for_each(|key| key.load(raw, skip));
        if differ != 0 {
            break;
        }
    }
    keys.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| a.name(raw).cmp(b.name(raw))));
    keys.dedup_by(|a, b| a.prefix == b.prefix && a.name(raw) == b.name(raw));
}

/// What one more reading of a directory brought.
pub(super) enum Filled {
    /// Some records; there may be more.
    Some,
    /// Nothing more.
    End,
    /// The buffer holds as much as it may: nothing was read.
    Full,
}

/// One more `getdents64` into the buffer, which grows up to its limit.
pub(super) fn fill(fd: impl AsFd, raw: &mut Vec<u8>, filled: &mut usize) -> Result<Filled, Errno> {
    if raw.len() - RAW_SLACK - *filled < RAW_BYTES_SPARE {
        if raw.len() >= RAW_BYTES_MAX {
            return Ok(Filled::Full);
        }
        raw.resize((raw.len() - RAW_SLACK) * 2 + RAW_SLACK, 0);
    }
    let end = raw.len() - RAW_SLACK;
    let n = sys::getdents(fd.as_fd(), &mut raw[*filled..end])?;
    *filled += n;
    Ok(if n == 0 { Filled::End } else { Filled::Some })
}

/// Makes keys of the records in the buffer, in the order in which they lie there.
pub(super) fn gather(raw: &[u8], filled: usize, keys: &mut Vec<Key>) {
    keys.clear();
    let names = Dirents { buf: &raw[..filled], at: 0 }.enumerate();
    keys.extend(names.map(|(index, (at, len))| Key::new(raw, at, len, index)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_names() {
        let names: [&[u8]; 12] = [
            b"a",
            b"ab",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefgh-",
            b"\xff",
            b"\x01",
            b"a\x01",
            b"ab",
            b"b",
            b"abcdefghi",
        ];
        let mut raw = Vec::new();
        let mut keys = Vec::new();
        let mut spots = Vec::new();
        for name in names {
            spots.push((raw.len(), name.len()));
            raw.extend_from_slice(name);
            raw.extend_from_slice(b"\0junk");
        }
        raw.extend_from_slice(&[0xee; RAW_SLACK]);
        keys.extend(spots.iter().map(|&(at, len)| Key::new(&raw, at, len, 0)));
        sort(&mut keys, &raw);
        let mut want = names.to_vec();
        want.sort();
        want.dedup();
        assert_eq!(keys.iter().map(|k| k.name(&raw)).collect::<Vec<_>>(), want);
    }

    #[test]
    fn names_that_begin_alike_sort_too() {
        for alike in [0, 1, 7, 8, 9, 16, 31, 40, 200] {
            let mut names: Vec<Vec<u8>> = ["", "b", "a", "ab", "abcdefgh", "abcdefghi", "abcdefgh1", "b\u{1}", "ab"]
                .iter()
                .map(|end| [vec![b'x'; alike], b"y".to_vec(), end.as_bytes().to_vec()].concat())
                .collect();
            let mut raw = Vec::new();
            let spots: Vec<_> = names
                .iter()
                .map(|name| {
                    let at = raw.len();
                    raw.extend_from_slice(name);
                    raw.push(0);
                    (at, name.len())
                })
                .collect();
            raw.extend_from_slice(&[0xee; RAW_SLACK]);
            let mut keys: Vec<_> = spots.iter().map(|&(at, len)| Key::new(&raw, at, len, 0)).collect();
            sort(&mut keys, &raw);
            names.sort();
            names.dedup();
            assert_eq!(keys.iter().map(|k| k.name(&raw)).collect::<Vec<_>>(), names, "{alike} alike");
        }
    }
}
