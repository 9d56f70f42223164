//! The bytes of SFTP, version 3 (draft-ietf-secsh-filexfer-02), as OpenSSH speaks it, with its extensions
//! (its file `PROTOCOL`, section 4): requests written, replies read. Nothing here does any I/O.
//!
//! Names and handles are bytes: a handle of OpenSSH is a number of four bytes, which is no text. A packet of the other
//! side is taken up to [`PACKET_BYTES_MAX`], and any bytes in it are an error at worst.

use std::io;

/// What one READ or WRITE carries at most with every server known: OpenSSH takes packets of 256 KiB, less 1 KiB.
pub(super) const PIECE_BYTES: usize = 255 << 10;

/// A longer packet of the other side is not read.
pub(super) const PACKET_BYTES_MAX: usize = 1 << 20;

/// Flags of OPEN.
pub(super) mod open {
    pub const READ: u32 = 0x01;
    pub const WRITE: u32 = 0x02;
    pub const CREATE: u32 = 0x08;
    pub const EXCLUSIVE: u32 = 0x20;
}

/// Codes of STATUS.
pub(super) mod status {
    pub const OK: u32 = 0;
    pub const EOF: u32 = 1;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const PERMISSION_DENIED: u32 = 3;
    pub const FAILURE: u32 = 4;
    pub const BAD_MESSAGE: u32 = 5;
    pub const NO_CONNECTION: u32 = 6;
    pub const CONNECTION_LOST: u32 = 7;
    pub const UNSUPPORTED: u32 = 8;
}

const ATTR_SIZE: u32 = 0x01;
const ATTR_OWNER: u32 = 0x02;
const ATTR_MODE: u32 = 0x04;
const ATTR_TIMES: u32 = 0x08;
const ATTR_EXTENDED: u32 = 0x8000_0000;

/// A request, apart from its number.
#[derive(Clone, Debug)]
pub(super) enum Request<'a> {
    /// `mode` is what a new file gets.
    Open {
        path: &'a [u8],
        flags: u32,
        mode: Option<u32>,
    },
    Close {
        handle: &'a [u8],
    },
    Read {
        handle: &'a [u8],
        offset: u64,
        len: u32,
    },
    /// The bytes follow the packet: [`Request::encode`] counts `len` of them and leaves them out.
    Write {
        handle: &'a [u8],
        offset: u64,
        len: u32,
    },
    Stat {
        path: &'a [u8],
    },
    LinkStat {
        path: &'a [u8],
    },
    FileStat {
        handle: &'a [u8],
    },
    SetMode {
        handle: &'a [u8],
        mode: u32,
    },
    OpenDir {
        path: &'a [u8],
    },
    ReadDir {
        handle: &'a [u8],
    },
    Remove {
        path: &'a [u8],
    },
    MakeDir {
        path: &'a [u8],
        mode: u32,
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    /// `posix-rename@openssh.com`: replaces what is there.
    Replace {
        from: &'a [u8],
        to: &'a [u8],
    },
    /// `hardlink@openssh.com`.
    Link {
        from: &'a [u8],
        to: &'a [u8],
    },
    /// `fsync@openssh.com`.
    Sync {
        handle: &'a [u8],
    },
    /// `statvfs@openssh.com`.
    Room {
        path: &'a [u8],
    },
    /// `limits@openssh.com`.
    Limits,
}

impl Request<'_> {
    /// The packet, with its length in front.
    pub(super) fn encode(&self, id: u32) -> Vec<u8> {
        let mut out = vec![0; 4];
        let mut begin = |kind: u8, id: u32| {
            out.push(kind);
            out.extend_from_slice(&id.to_be_bytes());
        };
        let mut follows = 0;
        match *self {
            Request::Open { path, flags, mode } => {
                begin(3, id);
                put(&mut out, path);
                out.extend_from_slice(&flags.to_be_bytes());
                put_mode(&mut out, mode);
            }
            Request::Close { handle } => {
                begin(4, id);
                put(&mut out, handle);
            }
            Request::Read { handle, offset, len } => {
                begin(5, id);
                put(&mut out, handle);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&len.to_be_bytes());
            }
            Request::Write { handle, offset, len } => {
                begin(6, id);
                put(&mut out, handle);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&len.to_be_bytes());
                follows = len;
            }
            Request::LinkStat { path } => {
                begin(7, id);
                put(&mut out, path);
            }
            Request::FileStat { handle } => {
                begin(8, id);
                put(&mut out, handle);
            }
            Request::SetMode { handle, mode } => {
                begin(10, id);
                put(&mut out, handle);
                put_mode(&mut out, Some(mode));
            }
            Request::OpenDir { path } => {
                begin(11, id);
                put(&mut out, path);
            }
            Request::ReadDir { handle } => {
                begin(12, id);
                put(&mut out, handle);
            }
            Request::Remove { path } => {
                begin(13, id);
                put(&mut out, path);
            }
            Request::MakeDir { path, mode } => {
                begin(14, id);
                put(&mut out, path);
                put_mode(&mut out, Some(mode));
            }
            Request::Stat { path } => {
                begin(17, id);
                put(&mut out, path);
            }
            Request::Rename { from, to } => {
                begin(18, id);
                put(&mut out, from);
                put(&mut out, to);
            }
            Request::Replace { from, to } => {
                begin(200, id);
                put(&mut out, b"posix-rename@openssh.com");
                put(&mut out, from);
                put(&mut out, to);
            }
            Request::Link { from, to } => {
                begin(200, id);
                put(&mut out, b"hardlink@openssh.com");
                put(&mut out, from);
                put(&mut out, to);
            }
            Request::Sync { handle } => {
                begin(200, id);
                put(&mut out, b"fsync@openssh.com");
                put(&mut out, handle);
            }
            Request::Room { path } => {
                begin(200, id);
                put(&mut out, b"statvfs@openssh.com");
                put(&mut out, path);
            }
            Request::Limits => {
                begin(200, id);
                put(&mut out, b"limits@openssh.com");
            }
        }
        let len = (out.len() - 4) as u32 + follows;
        out[..4].copy_from_slice(&len.to_be_bytes());
        out
    }
}

/// The first packet of a client.
pub(super) const INIT: [u8; 9] = [0, 0, 0, 5, 1, 0, 0, 0, 3];

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn put_mode(out: &mut Vec<u8>, mode: Option<u32>) {
    match mode {
        Some(mode) => {
            out.extend_from_slice(&ATTR_MODE.to_be_bytes());
            out.extend_from_slice(&mode.to_be_bytes());
        }
        None => out.extend_from_slice(&[0; 4]),
    }
}

/// What a server says of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attrs {
    pub size: Option<u64>,
    pub mode: Option<u32>,
    /// Seconds since 1970, by the server's clock.
    pub mtime: Option<u32>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    File,
    Folder,
    Link,
    Other,
}

impl Attrs {
    /// By the mode; a server that tells none has files and nothing else, as far as can be known.
    pub(super) fn sort(&self) -> Sort {
        match self.mode.map(|mode| mode & 0o170_000) {
            None | Some(0 | 0o100_000) => Sort::File,
            Some(0o040_000) => Sort::Folder,
            Some(0o120_000) => Sort::Link,
            Some(_) => Sort::Other,
        }
    }
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub attrs: Attrs,
}

/// Bytes that were read, where they stand in their packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Data {
    packet: Vec<u8>,
    start: usize,
    len: usize,
}

impl Data {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.packet[self.start..self.start + self.len]
    }
}

/// A reply, apart from its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Status { code: u32, words: String },
    Handle(Vec<u8>),
    Data(Data),
    Names(Vec<Entry>),
    Attrs(Attrs),
    Extended(Vec<u8>),
}

/// What a packet of the other side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// The answer to [`INIT`], and the names of the extensions that are offered.
    Version {
        version: u32,
        extensions: Vec<Vec<u8>>,
    },
    Reply {
        id: u32,
        reply: Reply,
    },
}

/// A packet that makes no sense.
pub(super) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other side doesn't speak SFTP: {what}"))
}

impl Packet {
    /// Read a packet, which comes without its length.
    pub(super) fn decode(packet: Vec<u8>) -> io::Result<Self> {
        let mut rest = Rest { bytes: &packet, at: 0 };
        let kind = rest.u8()?;
        let first = rest.u32()?;
        if kind == 2 {
            let mut extensions = Vec::new();
            while rest.at < packet.len() {
                extensions.push(rest.text()?.to_vec());
                rest.text()?;
            }
            return Ok(Packet::Version { version: first, extensions });
        }
        let reply = match kind {
            101 => {
                let code = rest.u32()?;
                // Servers of the first days leave the words away.
                let words = rest.text().map(|words| String::from_utf8_lossy(words).into_owned()).unwrap_or_default();
                Reply::Status { code, words }
            }
            102 => Reply::Handle(rest.text()?.to_vec()),
            103 => {
                let len = rest.text()?.len();
                let start = rest.at - len;
                return Ok(Packet::Reply { id: first, reply: Reply::Data(Data { packet, start, len }) });
            }
            104 => {
                let count = rest.u32()?;
                let mut entries = Vec::new();
                for _ in 0..count {
                    let name = rest.text()?.to_vec();
                    let long = rest.text()?;
                    let mut attrs = Attrs::default();
                    let is_folder = long.first() == Some(&b'd');
                    rest.attrs(&mut attrs)?;
                    if attrs.mode.is_none() && is_folder {
                        attrs.mode = Some(0o040_000);
                    }
                    entries.push(Entry { name, attrs });
                }
                Reply::Names(entries)
            }
            105 => {
                let mut attrs = Attrs::default();
                rest.attrs(&mut attrs)?;
                Reply::Attrs(attrs)
            }
            201 => Reply::Extended(packet[rest.at..].to_vec()),
            other => return Err(malformed(&format!("it sent a packet of type {other}"))),
        };
        Ok(Packet::Reply { id: first, reply })
    }
}

/// What has not been read yet of a packet.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| malformed("a packet is too short for what it says"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u8(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut number = [0; 4];
        number.copy_from_slice(self.take(4)?);
        Ok(u32::from_be_bytes(number))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn text(&mut self) -> io::Result<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn attrs(&mut self, attrs: &mut Attrs) -> io::Result<()> {
        let flags = self.u32()?;
        if flags & ATTR_SIZE != 0 {
            attrs.size = Some(self.u64()?);
        }
        if flags & ATTR_OWNER != 0 {
            self.take(8)?;
        }
        if flags & ATTR_MODE != 0 {
            attrs.mode = Some(self.u32()?);
        }
        if flags & ATTR_TIMES != 0 {
            self.u32()?;
            attrs.mtime = Some(self.u32()?);
        }
        if flags & ATTR_EXTENDED != 0 {
            for _ in 0..self.u32()? {
                self.text()?;
                self.text()?;
            }
        }
        Ok(())
    }
}

/// The fields of a `statvfs@openssh.com` reply that matter: how many bytes are free for this account.
pub(super) fn free_bytes(reply: &[u8]) -> io::Result<u64> {
    let mut rest = Rest { bytes: reply, at: 0 };
    let (_block, fragment) = (rest.u64()?, rest.u64()?);
    rest.take(16)?;
    Ok(rest.u64()?.saturating_mul(fragment))
}

/// The fields of a `limits@openssh.com` reply: the longest READ and WRITE; 0 for one that isn't told.
pub(super) fn limits(reply: &[u8]) -> io::Result<(u64, u64)> {
    let mut rest = Rest { bytes: reply, at: 0 };
    rest.take(8)?;
    Ok((rest.u64()?, rest.u64()?))
}

/// Packets from a stream that comes in pieces of any length.
#[derive(Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// Take in what came, and give each packet that is whole by now to `each`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Packet) -> io::Result<()>) -> io::Result<()> {
        while !bytes.is_empty() {
            let wanted = match self.buffer.first_chunk::<4>() {
                None => 4,
                Some(len) => 4 + u32::from_be_bytes(*len) as usize,
            };
            let (now, later) = bytes.split_at(bytes.len().min(wanted - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            let Some(len) = self.buffer.first_chunk::<4>().map(|len| u32::from_be_bytes(*len) as usize) else { break };
            if len > PACKET_BYTES_MAX {
                return Err(malformed(&self.first_words(len)));
            }
            if self.buffer.len() == 4 + len {
                let packet = self.buffer.split_off(4);
                self.buffer.clear();
                each(Packet::decode(packet)?)?;
            } else if self.buffer.capacity() < 4 + len {
                self.buffer.reserve_exact(4 + len - self.buffer.len());
            }
        }
        Ok(())
    }

    /// A shell that greets its user is what usually stands where a packet should.
    fn first_words(&self, len: usize) -> String {
        let first = &self.buffer[..4];
        if first.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
            let shown = String::from_utf8_lossy(first).escape_debug().to_string();
            return format!("it began with the text '{shown}…': a login script that prints something?");
        }
        format!("a packet of {len} bytes")
    }
}

#[cfg(test)]
mod tests;
