//! Entries without contents: symlinks, pipes, sockets, devices.
//!
//! The calls that create them give no descriptor, so the entry is held by `O_PATH` right after and must be what was
//! made: of that kind, of this user, with one name. What somebody put in its place meanwhile is left alone.

use std::sync::Arc;

use rustix::fd::AsFd;
use rustix::fs::{self, FileType, Mode};
use rustix::io::Errno;

use super::apply::{self, Attributes, Now, Wanted};
use super::dir::TargetDir;
use super::error::{Error, Problem, Problems, Result, What};
use super::handle::Handle;
use super::resolve::check_name;
use crate::meta::Kind;

impl TargetDir {
    /// Makes the symlink `name` to `wanted.extras.target`, which is any bytes and is never resolved here.
    pub fn symlink(self: &Arc<Self>, name: &[u8], wanted: &Wanted<'_>) -> Result<Problems> {
        check_name(name)?;
        fs::symlinkat(wanted.extras.target.as_slice(), self.fd(), name)
            .map_err(|e| Error::system("create", name, e))?;
        self.finish_node(name, Kind::Symlink, wanted)
    }

    /// Makes a pipe, a socket or a device (`rdev` as `makedev` gives it; 0 for the others). A device that this user may
    /// not make is a [`Problem`], and then nothing is there.
    ///
    /// Files, directories and symlinks are made by other calls: here they are refused with `EINVAL`.
    pub fn mknod(self: &Arc<Self>, name: &[u8], kind: Kind, rdev: u64, wanted: &Wanted<'_>) -> Result<Problems> {
        check_name(name)?;
        let (file_type, rdev) = match kind {
            Kind::Fifo => (FileType::Fifo, 0),
            Kind::Socket => (FileType::Socket, 0),
            Kind::CharDevice => (FileType::CharacterDevice, rdev),
            Kind::BlockDevice => (FileType::BlockDevice, rdev),
            Kind::File | Kind::Dir | Kind::Symlink => return Err(Error::system("create", name, Errno::INVAL)),
        };
        match fs::mknodat(self.fd(), name, file_type, Mode::RUSR | Mode::WUSR, rdev) {
            Ok(()) => self.finish_node(name, kind, wanted),
            Err(e @ Errno::PERM) if matches!(kind, Kind::CharDevice | Kind::BlockDevice) => {
                Ok(vec![Problem::new(What::Node, e)])
            }
            Err(e) => Err(Error::system("create", name, e)),
        }
    }

    /// Gives metadata to the entry that was just made, if it still is what was made.
    pub(super) fn finish_node(self: &Arc<Self>, name: &[u8], kind: Kind, wanted: &Wanted<'_>) -> Result<Problems> {
        let (fd, stat) = self.pin(name)?;
        if stat.kind != kind || stat.nlink != 1 || !self.is_ours(stat.uid) {
            return Err(Error::Swapped(name.to_vec()));
        }
        // A pipe may inherit an ACL from its directory; a symlink can't.
        let attributes = if kind == Kind::Symlink { Attributes::None } else { Attributes::Inherited };
        let mut problems = Problems::new();
        let now = Now::of(&stat, attributes);
        apply::apply(Handle::path(fd.as_fd()), &now, wanted, self.shared(), &mut problems);
        Ok(problems)
    }

    /// Whether a new entry here may have this owner: ours, or the one that the file system gives instead (NFS, FUSE,
    /// user namespaces), as seen on a file made for the purpose: creating that one gives a descriptor, so it can't be
    /// swapped.
    fn is_ours(self: &Arc<Self>, uid: u32) -> bool {
        if uid == self.shared().euid {
            return true;
        }
        let probe = self.create_temp();
        probe.is_ok_and(|file| file.owner() == uid)
    }
}
