//! Tar archives in the pax format (IEEE Std 1003.1-2017, pax, "pax Interchange Format"): a ustar header an entry, and
//! before it, where that is not enough, a header of records.

use super::{Archive, Item, acl};
use drumlin_format::tree::Kind;
use std::io::{self, Write};

const BLOCK: usize = 512;
/// Archives end on a multiple of this.
const RECORD: u64 = 20 * BLOCK as u64;

/// Writes a tar archive.
pub(super) struct Tar<W> {
    out: W,
    at: u64,
}

impl<W: Write> Tar<W> {
    pub fn new(out: W) -> Self {
        Tar { out, at: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Fill up to a multiple of `unit`.
    fn pad(&mut self, unit: u64) -> io::Result<()> {
        let mut left = (unit - self.at % unit) % unit;
        while left > 0 {
            let n = left.min(BLOCK as u64);
            self.write(&[0; BLOCK][..n as usize])?;
            left -= n;
        }
        Ok(())
    }
}

impl<W: Write> Archive for Tar<W> {
    fn takes(&self, item: &Item) -> bool {
        item.meta.kind != Kind::Socket
    }

    fn begin(&mut self, item: &Item) -> io::Result<()> {
        let meta = &item.meta;
        let mut records = Vec::new();
        let mut name = item.name.clone();
        if meta.kind == Kind::Dir {
            name.push(b'/');
        }
        let (kind, linked) = match (&item.link, meta.kind) {
            (Some(first), _) => (b'1', &first[..]),
            (None, Kind::File | Kind::Socket) => (b'0', &[][..]),
            (None, Kind::Symlink) => (b'2', &item.target[..]),
            (None, Kind::CharDevice) => (b'3', &[][..]),
            (None, Kind::BlockDevice) => (b'4', &[][..]),
            (None, Kind::Dir) => (b'5', &[][..]),
            (None, Kind::Fifo) => (b'6', &[][..]),
        };
        let size = if kind == b'0' { meta.size } else { 0 };
        let mut header = [0; BLOCK];
        // Texts of records are UTF-8 unless they say otherwise.
        let texts = [&name[..], linked, &item.user, &item.group];
        if texts.iter().any(|text| std::str::from_utf8(text).is_err()) {
            record(&mut records, b"hdrcharset", b"BINARY");
        }
        text(&mut header[..100], &mut records, b"path", &name);
        text(&mut header[157..257], &mut records, b"linkpath", linked);
        text(&mut header[265..296], &mut records, b"uname", &item.user);
        text(&mut header[297..328], &mut records, b"gname", &item.group);
        octal(&mut header[100..108], u64::from(meta.mode));
        number(&mut header[108..116], &mut records, b"uid", u64::from(meta.uid));
        number(&mut header[116..124], &mut records, b"gid", u64::from(meta.gid));
        number(&mut header[124..136], &mut records, b"size", size);
        let time = meta.mtime;
        octal(&mut header[136..148], time.sec.max(0) as u64);
        if time.nsec != 0 || time.sec < 0 || time.sec >= 1 << 33 {
            record(&mut records, b"mtime", decimal(time.sec, time.nsec).as_bytes());
        }
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        if matches!(meta.kind, Kind::CharDevice | Kind::BlockDevice) {
            let (major, minor) = device(meta.rdev);
            number(&mut header[329..337], &mut records, b"SCHILY.devmajor", major);
            number(&mut header[337..345], &mut records, b"SCHILY.devminor", minor);
        }
        if item.link.is_none() {
            for (name, value) in item.xattrs.iter() {
                record(&mut records, &[b"SCHILY.xattr.", &keyword(name)[..]].concat(), value);
                // Told to restore ACLs, GNU tar goes by these, and takes away what it doesn't find in them: then the
                // group has what the mask allows.
                let key = match &name[..] {
                    b"system.posix_acl_access" => b"SCHILY.acl.access",
                    b"system.posix_acl_default" => &b"SCHILY.acl.default"[..],
                    _ => continue,
                };
                if let Some(acl) = acl::text(value) {
                    record(&mut records, key, acl.as_bytes());
                }
            }
        }
        if !records.is_empty() {
            let mut above = [0; BLOCK];
            above[..17].copy_from_slice(b"PaxHeaders/record");
            octal(&mut above[100..108], 0o644);
            octal(&mut above[108..116], 0);
            octal(&mut above[116..124], 0);
            octal(&mut above[124..136], records.len() as u64);
            octal(&mut above[136..148], 0);
            above[156] = b'x';
            above[257..265].copy_from_slice(b"ustar\x0000");
            checksum(&mut above);
            self.write(&above)?;
            self.write(&records)?;
            self.pad(BLOCK as u64)?;
        }
        checksum(&mut header);
        self.write(&header)
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        self.pad(BLOCK as u64)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write(&[0; 2 * BLOCK])?;
        self.pad(RECORD)?;
        self.out.flush()
    }
}

/// A text into its field; if it is too long, or no ASCII, into a record as well.
fn text(field: &mut [u8], records: &mut Vec<u8>, key: &[u8], text: &[u8]) {
    let fits = text.len() <= field.len();
    let part = if fits { text } else { &text[..field.len()] };
    field[..part.len()].copy_from_slice(part);
    if !fits || !text.is_ascii() {
        record(records, key, text);
    }
}

/// A number into its field if it fits, else into a record.
fn number(field: &mut [u8], records: &mut Vec<u8>, key: &[u8], value: u64) {
    if !octal(field, value) {
        record(records, key, value.to_string().as_bytes());
    }
}

/// A number in octal digits, ended by a zero byte. False, and all zeros, if it doesn't fit.
fn octal(field: &mut [u8], value: u64) -> bool {
    let digits = field.len() - 1;
    let fits = value < 1 << (3 * digits).min(63);
    let mut rest = if fits { value } else { 0 };
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + (rest & 7) as u8;
        rest >>= 3;
    }
    fits
}

fn checksum(header: &mut [u8; BLOCK]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u64 = header.iter().map(|b| u64::from(*b)).sum();
    octal(&mut header[148..155], sum);
}

/// `length key=value newline`, the length counting itself.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(len.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Seconds with nine decimals, none of them dropped, also before 1970.
fn decimal(sec: i64, nsec: u32) -> String {
    match (sec, nsec) {
        (sec, 0) => sec.to_string(),
        (sec, nsec) if sec >= 0 => format!("{sec}.{nsec:09}"),
        (sec, nsec) => format!("-{}.{:09}", -(i128::from(sec) + 1), 1_000_000_000 - nsec),
    }
}

/// The name of an attribute in a keyword: `=` and `%` as GNU tar writes them.
fn keyword(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'=' => out.extend_from_slice(b"%3D"),
            b'%' => out.extend_from_slice(b"%25"),
            other => out.push(*other),
        }
    }
    out
}

/// Major and minor of a device number as Linux encodes it.
fn device(rdev: u64) -> (u64, u64) {
    ((rdev >> 32) & 0xffff_f000 | (rdev >> 8) & 0xfff, (rdev >> 12) & 0xffff_ff00 | rdev & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for len in [0, 1, 80, 85, 86, 87, 88, 89, 90, 980, 984, 985, 986, 987, 9990] {
            let mut records = Vec::new();
            record(&mut records, b"key", &vec![b'v'; len]);
            let text = String::from_utf8(records.clone()).unwrap();
            let (count, rest) = text.split_once(' ').unwrap();
            assert_eq!(count.parse::<usize>().unwrap(), records.len());
            assert!(rest.starts_with("key=v") || len == 0);
        }
    }

    #[test]
    fn times_and_numbers() {
        assert_eq!(decimal(5, 1), "5.000000001");
        assert_eq!(decimal(-1, 500_000_000), "-0.500000000");
        assert_eq!(decimal(-2, 1), "-1.999999999");
        assert_eq!(decimal(i64::MIN, 0), i64::MIN.to_string());
        let mut field = [0; 8];
        assert!(octal(&mut field, 0o7777777) && field == *b"7777777\0");
        assert!(!octal(&mut field, 0o10000000));
        assert_eq!(device(rustix_makedev(4000, 0xf1234)), (4000, 0xf1234));
        assert_eq!(keyword(b"user.a=b%"), b"user.a%3Db%25");
    }

    fn rustix_makedev(major: u64, minor: u64) -> u64 {
        (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
    }
}
