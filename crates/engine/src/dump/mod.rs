//! Contents written to a stream: one file's bytes, or a directory as a tar or zip archive.
//!
//! ```text
//! tree ─ plan ─┬─ batches, in order ────────────┬─ archive ─ out
//!              └─ blocks to fetch ─ workers ────┘
//! ```
//!
//! All that is written was verified: each chunk against its identity, and a file of several chunks as a whole at its
//! end. A damaged file ends the dump of that file with an error. Within an archive it is told to the monitor and
//! counted, and zeros stand for what is missing, so that the rest of the archive can be read.

mod acl;
mod crc;
mod feed;
mod plan;
mod tar;
#[cfg(test)]
mod tests;
mod zip;

use crate::holes::Holes;
use crate::list::find_entry;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::select::TreePath;
use crate::{Error, Result};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Kind, Meta, Xattrs};
use drumlin_repo::pack::Reader;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

/// What kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// POSIX pax (IEEE Std 1003.1-2017, pax), as GNU tar and libarchive read it: names of any length, times in
    /// nanoseconds, extended attributes, hard links, devices. Holes become zeros; sockets are left out.
    Tar,
    /// Zip with zip64, not compressed: files, directories and symlinks with mode, owner and time in seconds. Hard links
    /// become files of their own; devices, pipes and sockets are left out. The archive's directory is kept in memory.
    Zip,
}

/// What to write to an archive.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directory, or a single entry.
    pub path: TreePath,
    /// Names in the archive begin below this directory, if they are in it; else below the root.
    pub relative_to: TreePath,
    /// Threads that fetch and decode; at least one.
    pub workers: usize,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries.
    pub entries: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Entries that the kind of archive has no place for.
    pub skipped: u64,
    /// Entries that are missing, or not what they were: all of them were told to the monitor.
    pub damaged: u64,
}

/// An entry on its way into an archive.
#[derive(Clone, Debug)]
struct Item {
    /// The path in the snapshot, for messages.
    path: Vec<u8>,
    /// The name in the archive: components joined by slashes, none at either end.
    name: Vec<u8>,
    meta: Meta,
    target: Vec<u8>,
    xattrs: Xattrs,
    user: Vec<u8>,
    group: Vec<u8>,
    /// The name in the archive of an earlier entry with the same inode.
    link: Option<Vec<u8>>,
}

/// A kind of archive.
trait Archive {
    /// Whether an entry can be put in.
    fn takes(&self, item: &Item) -> bool;
    /// Begin an entry. Of a regular file that is no link, `meta.size` bytes of data follow.
    fn begin(&mut self, item: &Item) -> io::Result<()>;
    /// Some bytes of the file.
    fn data(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// The file is complete.
    fn end(&mut self) -> io::Result<()>;
    /// The archive is complete.
    fn finish(&mut self) -> io::Result<()>;
}

/// A file's bytes as they are.
struct Raw<W>(W);

impl<W: Write> Archive for Raw<W> {
    fn takes(&self, item: &Item) -> bool {
        item.meta.kind == Kind::File
    }

    fn begin(&mut self, _: &Item) -> io::Result<()> {
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Write one file's bytes, in order.
///
/// # Errors
/// [`Error::NoPath`] if there is no such path; damage, after the bytes before it were written; what `out` says.
pub fn dump_file(
    reader: &Arc<Reader>,
    root: Option<Root>,
    path: &TreePath,
    workers: usize,
    monitor: &dyn Monitor,
    out: &mut dyn Write,
) -> Result<Report> {
    let no_file = |what: &str| Error::Repo(drumlin_repo::Error::Misuse(format!("'{path}' is {what}, not a file")));
    if path.is_root() {
        return Err(no_file("a directory"));
    }
    match find_entry(reader, root, path, |entry| Ok(entry.meta().kind))? {
        Kind::File => {}
        Kind::Dir => return Err(no_file("a directory")),
        Kind::Symlink => return Err(no_file("a symlink")),
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => return Err(no_file("a special file")),
    }
    let options = Options { path: path.clone(), relative_to: TreePath::root(), workers };
    let mut raw = Raw(BufWriter::with_capacity(BUFFER_BYTES, out));
    feed::run(reader, root, &options, false, monitor, &mut Sink::new(&mut raw, reader, monitor, true))
}

/// Small writes are gathered.
const BUFFER_BYTES: usize = 128 << 10;

/// Write a directory, or a single entry, as an archive.
///
/// # Errors
/// [`Error::NoPath`] if there is no such path; what `out` says, and what concerns the repository as a whole. After an
/// error the archive has no proper end.
pub fn dump_archive(
    reader: &Arc<Reader>,
    root: Option<Root>,
    options: &Options,
    format: Format,
    monitor: &dyn Monitor,
    out: &mut dyn Write,
) -> Result<Report> {
    if !options.path.is_root() {
        find_entry(reader, root, &options.path, |_| Ok(()))?;
    }
    let out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut archive: Box<dyn Archive + '_> = match format {
        Format::Tar => Box::new(tar::Tar::new(out)),
        Format::Zip => Box::new(zip::Zip::new(out)),
    };
    let sink = &mut Sink::new(&mut *archive, reader, monitor, false);
    feed::run(reader, root, options, format == Format::Tar, monitor, sink)
}

/// Puts what comes from the repository into an archive, and verifies it.
struct Sink<'a> {
    archive: &'a mut (dyn Archive + 'a),
    reader: &'a Reader,
    monitor: &'a dyn Monitor,
    /// Damage ends it all.
    strict: bool,
    report: Report,
    file: Option<Current>,
}

/// The file at hand.
struct Current {
    path: Vec<u8>,
    meta: Meta,
    left: u64,
    hasher: Option<drumlin_seal::Hasher>,
    /// As the whole identity covers them.
    holes: Holes,
    damaged: bool,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl<'a> Sink<'a> {
    fn new(archive: &'a mut (dyn Archive + 'a), reader: &'a Reader, monitor: &'a dyn Monitor, strict: bool) -> Self {
        Sink { archive, reader, monitor, strict, report: Report::default(), file: None }
    }

    /// Begin an entry; `several`: its file is made of more than one chunk.
    fn begin(&mut self, item: &Item, several: bool) -> Result<()> {
        if !self.archive.takes(item) {
            self.report.skipped += 1;
            return Ok(());
        }
        self.archive.begin(item).map_err(write_error)?;
        self.report.entries += 1;
        let counters = self.monitor.counters();
        add(&counters.entries, 1);
        if item.meta.kind != Kind::File {
            return Ok(());
        }
        self.report.files += 1;
        add(&counters.files, 1);
        if item.link.is_none() {
            let hasher = if several { Some(self.reader.repository().data_ids()?.hasher()) } else { None };
            let (path, meta) = (item.path.clone(), item.meta);
            self.file = Some(Current { path, meta, left: meta.size, hasher, holes: Holes::default(), damaged: false });
        }
        Ok(())
    }

    /// A verified chunk of the file at hand, or why there is none.
    fn chunk(&mut self, bytes: drumlin_repo::Result<&[u8]>, len: u64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        match bytes {
            Ok(bytes) if bytes.len() as u64 == len && len <= file.left => {
                if let Some(hasher) = &mut file.hasher {
                    hasher.update(bytes);
                }
                file.left -= len;
                self.report.bytes += len;
                add(&self.monitor.counters().bytes, len);
                self.archive.data(bytes).map_err(write_error)
            }
            // What comes behind it belongs where it was.
            Ok(_) => {
                self.damage("a chunk is not as long as the file says", None)?;
                self.zeros(len)
            }
            Err(e) if e.is_damage() => {
                let cause = e.to_string();
                self.damage(&cause, Some(e))?;
                self.zeros(len)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn hole(&mut self, len: u64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let at = file.meta.size - file.left;
        file.holes.add(self.reader.cache(), at, len);
        self.zeros(len)
    }

    fn zeros(&mut self, len: u64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut left = len.min(file.left);
        file.left -= left;
        self.report.bytes += left;
        add(&self.monitor.counters().bytes, left);
        while left > 0 {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            let n = left.min(ZEROS.len() as u64);
            self.archive.data(&ZEROS[..n as usize]).map_err(write_error)?;
            left -= n;
        }
        Ok(())
    }

    /// The file at hand is not what it was.
    fn damage(&mut self, cause: &str, error: Option<drumlin_repo::Error>) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.strict {
            let path = String::from_utf8_lossy(&file.path);
            let misuse = || drumlin_repo::Error::Misuse(format!("'{path}' can't be written: {cause}"));
            return Err(error.unwrap_or_else(misuse).into());
        }
        if !std::mem::replace(&mut file.damaged, true) {
            let path = file.path.clone();
            self.missing(path, cause);
        }
        Ok(())
    }

    /// An entry is missing, or not what it was.
    fn missing(&mut self, path: Vec<u8>, cause: &str) {
        self.report.damaged += 1;
        add(&self.monitor.counters().damaged, 1);
        self.monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause: cause.to_owned() });
    }

    /// The file at hand is at its end, and this is the identity of its contents.
    fn end(&mut self, whole: Option<[u8; 32]>) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let holes = std::mem::take(&mut file.holes);
        let is = match file.hasher.take() {
            None => None,
            Some(mut hasher) => {
                holes.finish(&mut hasher).map_err(Error::system("read back what was put aside of a file"))?;
                Some(*hasher.finalize().as_bytes())
            }
        };
        if file.left > 0 && !file.damaged {
            self.damage("its contents are not in the snapshot", None)?;
        } else if !file.damaged && is.is_some() && is != whole {
            self.damage("its chunks are sound, but together they are not what was backed up", None)?;
        }
        self.zeros(u64::MAX)?;
        self.file = None;
        self.archive.end().map_err(write_error)
    }
}

fn write_error(source: io::Error) -> Error {
    Error::System { action: "write the output".into(), source }
}
