//! The names in a directory, compactly: one arena, sorted spans.

use std::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, Mode, OFlags, RawDir};

/// The sorted names of one directory.
#[derive(Clone, Debug, Default)]
pub struct Names {
    arena: Vec<u8>,
    /// Start and length of each in the arena.
    spans: Vec<(u32, u16)>,
}

impl Names {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the directory is empty.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The names in bytewise order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.spans.iter().map(|&span| slice(&self.arena, span))
    }

    /// The one that comes `at` that place.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.spans.get(at).map(|&span| slice(&self.arena, span))
    }

    /// Whether `name` is among them.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.spans.binary_search_by(|&span| slice(&self.arena, span).cmp(name)).is_ok()
    }

    fn push(&mut self, name: &[u8]) -> rustix::io::Result<()> {
        let start = u32::try_from(self.arena.len()).map_err(|_| rustix::io::Errno::OVERFLOW)?;
        let len = u16::try_from(name.len()).map_err(|_| rustix::io::Errno::NAMETOOLONG)?;
        self.arena.extend_from_slice(name);
        self.spans.push((start, len));
        Ok(())
    }
}

fn slice(arena: &[u8], (start, len): (u32, u16)) -> &[u8] {
    &arena[start as usize..][..usize::from(len)]
}

/// Lists through a descriptor of its own, so that several threads may list one directory at once.
pub(super) fn list(dir: BorrowedFd<'_>) -> rustix::io::Result<Names> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = crate::sys::open_retry(|| fs::openat(dir, c".", flags, Mode::empty()))?;
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 1 << 16];
    let mut entries = RawDir::new(fd.as_fd(), &mut buffer);
    let mut names = Names::default();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name)?;
        }
    }
    let Names { arena, spans } = &mut names;
    spans.sort_unstable_by(|&a, &b| slice(arena, a).cmp(slice(arena, b)));
    Ok(names)
}
