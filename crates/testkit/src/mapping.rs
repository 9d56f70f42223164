//! Files that are stored into through a mapping, as databases and virtual machines do.

use rustix::fs::{StatFs, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::null_mut;

/// A whole file, mapped so that what is stored becomes its contents.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    /// Map a file that is open for reading and writing, and isn't empty.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(file: &File) -> io::Result<Self> {
        let len = file.metadata()?.len() as usize;
        // SAFETY: the kernel chooses where, so that nothing is replaced.
        let start = unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)? };
        Ok(Mapping { start: start.cast(), len })
    }

    /// Store a byte.
    pub fn store(&mut self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: it lies within the mapping, which stands as long as this does; nobody has a reference into it.
        unsafe { self.start.add(at).write_volatile(byte) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length, and nobody has a reference into it.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}

/// Whether a file's pages are written back, and stores into them stamped anew after that: not on tmpfs, and overlayfs
/// keeps them elsewhere.
pub fn are_stores_stamped_anew(file: &File) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const OVERLAYFS: u32 = 0x794c_7630;
    fstatfs(file).is_ok_and(|StatFs { f_type, .. }| ![TMPFS, OVERLAYFS].contains(&(f_type as u32)))
}
