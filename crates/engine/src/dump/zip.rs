//! Zip archives (PKWARE APPNOTE 6.3.9), written in one pass: lengths and checksums follow the data.
//!
//! Contents are not compressed, but stand in stored blocks of a deflate stream (RFC 1951, 3.2.4): unlike plain storage
//! that tells a reader of a stream where they end.

use super::crc::crc32;
use super::{Archive, Item};
use crate::select::civil;
use drumlin_format::tree::Kind;
use std::io::{self, Write};

/// The longest stored block.
const STORED_MAX: usize = 65_535;
/// Beyond these, lengths and offsets need zip64.
const U32_MAX: u64 = 0xffff_ffff;
/// Files from this length on get zip64 headers: their blocks' headers could take them over the edge.
const LARGE: u64 = 0xfff0_0000;
/// Lengths and checksum follow the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;
const DEFLATE: u16 = 8;
/// By a Unix program that knows zip64.
const MADE_BY: u16 = 3 << 8 | 45;

/// Writes a zip archive.
pub(super) struct Zip<W> {
    out: W,
    at: u64,
    /// The archive's directory so far.
    directory: Vec<u8>,
    entries: u64,
    current: Option<Current>,
}

/// The entry at hand.
struct Current {
    name: Vec<u8>,
    flags: u16,
    /// DOS time and date.
    time: (u16, u16),
    extra: Vec<u8>,
    attributes: u32,
    offset: u64,
    data_at: u64,
    len: u64,
    crc: u32,
    large: bool,
    pending: Vec<u8>,
}

impl<W: Write> Zip<W> {
    pub fn new(out: W) -> Self {
        Zip { out, at: 0, directory: Vec::new(), entries: 0, current: None }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// What is pending, as a stored block.
    fn block(&mut self, last: bool) -> io::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let mut bytes = std::mem::take(&mut current.pending);
        let len = bytes.len() as u16;
        let mut head = vec![u8::from(last)];
        head.extend_from_slice(&len.to_le_bytes());
        head.extend_from_slice(&(!len).to_le_bytes());
        self.write(&head)?;
        self.write(&bytes)?;
        bytes.clear();
        if let Some(current) = &mut self.current {
            current.pending = bytes;
        }
        Ok(())
    }
}

impl<W: Write> Archive for Zip<W> {
    fn takes(&self, item: &Item) -> bool {
        // The format has two bytes for the length of a name.
        matches!(item.meta.kind, Kind::File | Kind::Dir | Kind::Symlink) && item.name.len() < 65_000
    }

    fn begin(&mut self, item: &Item) -> io::Result<()> {
        let meta = &item.meta;
        let mut name = item.name.clone();
        if meta.kind == Kind::Dir {
            name.push(b'/');
        }
        let utf8 = !name.is_ascii() && std::str::from_utf8(&name).is_ok();
        let kind = match meta.kind {
            Kind::Dir => 0o040_000,
            Kind::Symlink => 0o120_000,
            _ => 0o100_000,
        };
        let mut extra = Vec::new();
        if let Ok(sec) = i32::try_from(meta.mtime.sec) {
            field(&mut extra, 0x5455, &[&[1][..], &sec.to_le_bytes()].concat());
        }
        field(&mut extra, 0x7875, &[&[1, 4][..], &meta.uid.to_le_bytes(), &[4], &meta.gid.to_le_bytes()].concat());
        let current = Current {
            name,
            flags: FLAG_DESCRIPTOR | if utf8 { FLAG_UTF8 } else { 0 },
            time: dos_time(meta.mtime.sec),
            extra,
            attributes: (kind | u32::from(meta.mode)) << 16 | if meta.kind == Kind::Dir { 0x10 } else { 0 },
            offset: self.at,
            data_at: 0,
            len: 0,
            crc: 0,
            large: meta.kind == Kind::File && meta.size >= LARGE,
            pending: Vec::with_capacity(STORED_MAX),
        };
        let mut head = Vec::new();
        head.extend_from_slice(b"PK\x03\x04");
        put16(
            &mut head,
            &[if current.large { 45 } else { 20 }, current.flags, DEFLATE, current.time.0, current.time.1],
        );
        let mut extra = current.extra.clone();
        let unknown = if current.large { 0xffff_ffff } else { 0 };
        put32(&mut head, &[0, unknown, unknown]);
        if current.large {
            field(&mut extra, 1, &[0; 16]);
        }
        put16(&mut head, &[current.name.len() as u16, extra.len() as u16]);
        head.extend_from_slice(&current.name);
        head.extend_from_slice(&extra);
        self.write(&head)?;
        self.current = Some(Current { data_at: self.at, ..current });
        match meta.kind {
            Kind::File => Ok(()),
            Kind::Symlink => {
                self.data(&item.target)?;
                self.end()
            }
            _ => self.end(),
        }
    }

    fn data(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let Some(current) = &mut self.current else { return Ok(()) };
            let (now, rest) = bytes.split_at(bytes.len().min(STORED_MAX - current.pending.len()));
            current.pending.extend_from_slice(now);
            current.len += now.len() as u64;
            current.crc = crc32(current.crc, now);
            bytes = rest;
            if current.pending.len() == STORED_MAX {
                self.block(false)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.block(true)?;
        let Some(c) = self.current.take() else { return Ok(()) };
        let stored = self.at - c.data_at;
        let mut after = b"PK\x07\x08".to_vec();
        put32(&mut after, &[c.crc]);
        if c.large {
            put64(&mut after, &[stored, c.len]);
        } else {
            put32(&mut after, &[stored as u32, c.len as u32]);
        }
        self.write(&after)?;

        let far = c.offset >= U32_MAX;
        let mut wide = Vec::new();
        if c.large {
            put64(&mut wide, &[c.len, stored]);
        }
        if far {
            put64(&mut wide, &[c.offset]);
        }
        let mut extra = c.extra;
        if !wide.is_empty() {
            field(&mut extra, 1, &wide);
        }
        let narrow = |value: u64, wide: bool| if wide { 0xffff_ffff } else { value as u32 };
        let out = &mut self.directory;
        out.extend_from_slice(b"PK\x01\x02");
        put16(out, &[MADE_BY, if c.large || far { 45 } else { 20 }, c.flags, DEFLATE, c.time.0, c.time.1]);
        put32(out, &[c.crc, narrow(stored, c.large), narrow(c.len, c.large)]);
        put16(out, &[c.name.len() as u16, extra.len() as u16, 0, 0, 0]);
        put32(out, &[c.attributes, narrow(c.offset, far)]);
        out.extend_from_slice(&c.name);
        out.extend_from_slice(&extra);
        self.entries += 1;
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let (start, directory) = (self.at, std::mem::take(&mut self.directory));
        self.write(&directory)?;
        let (len, end) = (directory.len() as u64, self.at);
        let mut out = Vec::new();
        if self.entries >= 0xffff || start >= U32_MAX || len >= U32_MAX {
            out.extend_from_slice(b"PK\x06\x06");
            put64(&mut out, &[44]);
            put16(&mut out, &[MADE_BY, 45]);
            put32(&mut out, &[0, 0]);
            put64(&mut out, &[self.entries, self.entries, len, start]);
            out.extend_from_slice(b"PK\x06\x07");
            put32(&mut out, &[0]);
            put64(&mut out, &[end]);
            put32(&mut out, &[1]);
        }
        let count = self.entries.min(0xffff) as u16;
        out.extend_from_slice(b"PK\x05\x06");
        put16(&mut out, &[0, 0, count, count]);
        put32(&mut out, &[len.min(U32_MAX) as u32, start.min(U32_MAX) as u32]);
        put16(&mut out, &[0]);
        self.write(&out)?;
        self.out.flush()
    }
}

fn field(extra: &mut Vec<u8>, id: u16, bytes: &[u8]) {
    put16(extra, &[id, bytes.len() as u16]);
    extra.extend_from_slice(bytes);
}

fn put16(out: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
}

fn put32(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
}

fn put64(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
}

/// DOS time and date, in UTC, within what they can express.
fn dos_time(sec: i64) -> (u16, u16) {
    // 1980-01-01 to 2107-12-31.
    let sec = sec.clamp(315_532_800, 4_354_819_198);
    let (days, second) = (sec.div_euclid(86_400), sec.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let time = ((second / 3600) << 11) | ((second / 60 % 60) << 5) | (second % 60 / 2);
    let date = ((year - 1980) << 9) | (month << 5) | day;
    (time as u16, date as u16)
}
