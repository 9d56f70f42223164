//! Listing: every object below a folder, or an error.
//!
//! Names outside the grammar (dot files, `lost+found`, a file manager's leftovers) and the folder `tmp/` are no
//! objects and are left out. Anything else that can't be told, such as a folder that can't be read or a symbolic link
//! with an object's name, is an error: what is missing from a listing may be taken for deleted.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::folder::Root;
use crate::Listed;
use crate::name::{TMP, is_segment};

/// Entries are read in pieces of this size.
const BUFFER_BYTES: usize = 32 << 10;

/// What went wrong, and with which name.
type Failure = (Errno, String);

/// Give each object below `prefix`.
pub(super) fn list(root: &Root, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<(), Failure> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut todo = vec![prefix.to_owned()];
    while let Some(folder) = todo.pop() {
        let fd = match root.folder(&folder) {
            // Never made, or removed since it was listed; the root itself is always there.
            Err(Errno::NOENT) if !folder.is_empty() => continue,
            result => result.map_err(|errno| (errno, folder.clone()))?,
        };
        entries(&fd, &folder, &mut buffer, |name, kind, len| {
            match kind {
                FileType::RegularFile => each(Listed { name, len }),
                FileType::Directory if name == TMP => {}
                FileType::Directory => todo.push(name),
                FileType::Symlink => return Err((Errno::LOOP, name)),
                _ => return Err((Errno::NOTSUP, name)),
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The files in `tmp/` and their lengths.
pub(super) fn temporaries(root: &Root) -> Result<Vec<(String, u64)>, Failure> {
    let fd = match root.folder(TMP) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        result => result.map_err(|errno| (errno, TMP.to_owned()))?,
    };
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut files = Vec::new();
    entries(&fd, "", &mut buffer, |name, kind, len| {
        if kind == FileType::RegularFile {
            files.push((name, len));
        }
        Ok(())
    })?;
    Ok(files)
}

/// Each entry of `folder` whose own name is within the grammar, with its whole name, its type and, for files, its
/// length.
fn entries(
    fd: &OwnedFd,
    folder: &str,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(String, FileType, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut listing = RawDir::new(fd, buffer);
    while let Some(entry) = listing.next() {
        let entry = match entry {
            Err(Errno::INTR) => continue,
            entry => entry.map_err(|errno| (errno, folder.to_owned()))?,
        };
        let segment = entry.file_name();
        if !is_segment(segment.to_bytes()) {
            continue;
        }
        let segment_text = segment.to_string_lossy();
        let name = if folder.is_empty() { segment_text.into_owned() } else { format!("{folder}/{segment_text}") };
        let (kind, len) = match entry.file_type() {
            FileType::Directory => (FileType::Directory, 0),
            _ => match fs::statat(fd, segment, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => (FileType::from_raw_mode(stat.st_mode), stat.st_size.unsigned_abs()),
                // Removed since.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err((errno, name)),
            },
        };
        each(name, kind, len)?;
    }
    Ok(())
}
