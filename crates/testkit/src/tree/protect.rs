//! Trees that resist removal, removed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode};

use crate::at;

/// Lifts immutable and append-only, and gives the owner all permissions on directories, in all of the tree: so that it
/// can be changed or removed. Times, and the modes of directories, are no longer what they were.
pub fn unprotect(dir: &Path) -> io::Result<()> {
    at::raise_descriptor_limit();
    let root = at::open_root(dir)?;
    let _ = at::change_flags(root.as_fd(), 0, at::FLAGS_LOCKING);
    each(root.as_fd(), &mut |at, name, _| {
        // Where there are no flags there is nothing to lift.
        if let Ok(fd) = at::open(at, name) {
            let _ = at::change_flags(fd.as_fd(), 0, at::FLAGS_LOCKING);
        }
        Ok(())
    })
}

/// Calls [`unprotect`] when it is dropped, so that the folder around the tree can be removed, however a test ends. Made
/// after that folder, it is dropped before it.
pub struct Unprotect<'a>(pub &'a Path);

impl Drop for Unprotect<'_> {
    fn drop(&mut self) {
        // There may be no such tree yet.
        let _ = unprotect(self.0);
    }
}

/// Removes the tree with all its protections, its paths as long as they may be.
pub fn remove(dir: &Path) -> io::Result<()> {
    unprotect(dir)?;
    let root = at::open_root(dir)?;
    empty(root.as_fd())?;
    std::fs::remove_dir(dir)
}

/// Calls for each regular file and directory, a directory before its entries.
fn each(
    dir: BorrowedFd<'_>,
    call: &mut impl FnMut(BorrowedFd<'_>, &[u8], FileType) -> io::Result<()>,
) -> io::Result<()> {
    for name in at::names(dir)? {
        let stat = at::stat(dir, &name)?;
        match at::kind(&stat) {
            FileType::Directory => {
                if stat.stx_mode & 0o700 != 0o700 {
                    let mode = Mode::from_raw_mode(u32::from(stat.stx_mode & 0o7777) | 0o700);
                    // Immutable ones refuse, and are opened below all the same.
                    let _ = fs::chmodat(dir, name.as_slice(), mode, AtFlags::empty());
                }
                call(dir, &name, FileType::Directory)?;
                each(at::open_dir(dir, &name)?.as_fd(), call)?;
            }
            FileType::RegularFile => call(dir, &name, FileType::RegularFile)?,
            _ => {}
        }
    }
    Ok(())
}

fn empty(dir: BorrowedFd<'_>) -> io::Result<()> {
    for name in at::names(dir)? {
        if at::kind(&at::stat(dir, &name)?) == FileType::Directory {
            empty(at::open_dir(dir, &name)?.as_fd())?;
            fs::unlinkat(dir, name.as_slice(), AtFlags::REMOVEDIR)?;
        } else {
            fs::unlinkat(dir, name.as_slice(), AtFlags::empty())?;
        }
    }
    Ok(())
}
