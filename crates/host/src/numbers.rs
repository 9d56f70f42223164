//! Inode numbers: whether a file keeps its own from one mount to the next.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::sys::{self, Follow};

/// FUSE: sshfs, rclone, unRAID's shares; fuseblk; virtiofs.
pub(crate) const FUSE: u32 = 0x6573_5546;
/// The types, as `statfs` tells them (its manual page, and the kernel's `magic.h`), of file systems that have no
/// numbers of their own: the kernel, a library or a server makes them up, and a file has another one after the next
/// mount, or as soon as the kernel has forgotten it. Some that pass their files' own numbers on look the same from
/// here.
const MADE_UP: [u32; 7] = [
    FUSE,
    0x0000_4d44, // FAT
    0x2011_bab0, // exFAT
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and later
    0x0000_517b, // SMB 1
    0x786f_4256, // shared folders of VirtualBox
];

impl Dir {
    /// Whether inode numbers last on the file system of an entry, which the walk found on the device `dev`.
    ///
    /// # Errors
    /// The entry is gone, lies on another device by now, or can't be asked.
    pub fn numbers_last(&self, name: &[u8], dev: u64) -> io::Result<bool> {
        let c_name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let nofollow = if self.follows(name) { OFlags::empty() } else { OFlags::NOFOLLOW };
        let dir = self.fd()?;
        let flags = OFlags::PATH | OFlags::CLOEXEC | nofollow;
        let entry = sys::open_retry(|| rustix::fs::openat(&dir, &c_name, flags, Mode::empty()))?;
        if sys::stat_at(entry.as_fd(), b"\0", Follow::No)?.dev != dev {
            return Err(Errno::XDEV.into());
        }
        let of = type_of(&entry)?;
        Ok(!MADE_UP.contains(&of))
    }
}

/// The type of the file system that something open is on.
pub(crate) fn type_of(open: impl AsFd) -> Result<u32, Errno> {
    Ok(rustix::fs::fstatfs(open)?.f_type as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_testkit::Numberless;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn asked_of_the_file_system_of_the_entry_itself() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("at");
        fs::create_dir(&at).unwrap();
        fs::create_dir(home.path().join("shown")).unwrap();
        fs::write(home.path().join("shown/file"), "x").unwrap();
        std::os::unix::fs::symlink("at", home.path().join("link")).unwrap();
        let dir = |path: &std::path::Path| {
            Dir::new(path.as_os_str().as_encoded_bytes()[1..].into(), path.as_os_str().len(), true)
        };
        let (outside, inside) = (dir(home.path()), dir(&at));
        let here = fs::metadata(home.path()).unwrap().dev();
        assert!(outside.numbers_last(b"at", here).unwrap());
        assert!(outside.numbers_last(b"at", here + 1).is_err(), "it lies elsewhere by now");
        assert!(outside.numbers_last(b"gone", here).is_err());
        let Some(_mounted) = Numberless::mount(&home.path().join("shown"), &at, 2) else {
            return eprintln!("no FUSE here: no more was tried");
        };
        let there = fs::metadata(&at).unwrap().dev();
        assert!(!outside.numbers_last(b"at", there).unwrap());
        assert!(!inside.numbers_last(b"file", there).unwrap());
        assert!(outside.numbers_last(b"link", here).unwrap(), "the symlink itself");
    }
}
