//! Files whose presence marks a directory as not worth keeping.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags};

use super::rule::{FilterError, Origin, Rule};

/// The name and the first bytes of such a file.
#[derive(Clone, Debug)]
pub(super) struct Tag {
    pub(super) name: Vec<u8>,
    header: Vec<u8>,
    pub(super) rule: Rule,
}

impl Tag {
    /// `NAME` or `NAME:HEADER`.
    pub(super) fn parse(given: &str) -> Result<Tag, FilterError> {
        let (name, header) = given.split_once(':').unwrap_or((given, ""));
        let rule = Rule { text: given.to_owned(), origin: Origin::Flag };
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(FilterError { rule, cause: "the name of a file is needed, without a path".into() });
        }
        Ok(Tag { name: name.into(), header: header.into(), rule })
    }

    pub(super) fn cachedir() -> Tag {
        Tag {
            name: b"CACHEDIR.TAG".to_vec(),
            header: b"Signature: 8a477f597d28d172789f06886806bc55".to_vec(),
            rule: Rule { text: "CACHEDIR.TAG".into(), origin: Origin::BuiltIn },
        }
    }

    /// Whether the file of this name in `dir` begins as it must. Any doubt keeps the directory.
    pub(super) fn marks(&self, dir: BorrowedFd<'_>) -> bool {
        if self.header.is_empty() {
            return true;
        }
        let Ok(name) = CString::new(self.name.as_slice()) else { return false };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::openat(dir, &name, flags, Mode::empty()) else { return false };
        if !rustix::fs::fstat(&fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile) {
            return false;
        }
        let mut head = vec![0; self.header.len()];
        let mut filled = 0;
        while filled < head.len() {
            match rustix::io::pread(&fd, &mut head[filled..], filled as u64) {
                Ok(0) => return false,
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        head == self.header
    }
}
