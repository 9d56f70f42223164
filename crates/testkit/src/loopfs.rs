//! A fresh journalled ext4 in a loop file: for attributes and times that other file systems lack, and for fair timing.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A mounted file system of its own; unmounted and deleted when dropped.
#[derive(Debug)]
pub struct LoopFs {
    mount: PathBuf,
    /// Holds the image and the mount point.
    _home: TempDir,
}

impl LoopFs {
    /// Makes one of `bytes` (16 MiB at least). `None` if this user may not mount, or the tools or loop devices are
    /// lacking.
    pub fn new(bytes: u64) -> Option<LoopFs> {
        Self::with_options(bytes, &[], "loop")
    }

    /// The same with arguments for `mkfs.ext4` and mount options (`loop` must be among the latter).
    pub fn with_options(bytes: u64, mkfs: &[&str], mount_options: &str) -> Option<LoopFs> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let home = tempfile::Builder::new().prefix("drumlin-loop-").tempdir().ok()?;
        let (image, mount) = (home.path().join("image"), home.path().join("mnt"));
        std::fs::File::create(&image).and_then(|f| f.set_len(bytes.max(16 << 20))).ok()?;
        std::fs::create_dir(&mount).ok()?;
        // Blocks as on any larger disk: small ones would shorten symlinks and attributes.
        // Initialised at once, so that no kernel thread works beside the test.
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-E", eager]).args(mkfs).arg(&image))?;
        run(Command::new("mount").args(["-t", "ext4", "-o", mount_options]).arg(&image).arg(&mount))?;
        Some(LoopFs { mount, _home: home })
    }

    /// The root of the file system. It holds a `lost+found`.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// A new empty directory in it.
    pub fn dir(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.mount.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        let Ok(path) = CString::new(self.mount.as_os_str().as_bytes()) else { return };
        // SAFETY: the pointer is to a string that ends with a zero byte and lives through both calls.
        unsafe {
            if libc::umount2(path.as_ptr(), 0) != 0 {
                // Something is still open: it vanishes when that is closed.
                libc::umount2(path.as_ptr(), libc::MNT_DETACH);
            }
        }
    }
}

fn run(command: &mut Command) -> Option<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    status.success().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_while_it_lives() {
        let Some(fs) = LoopFs::new(16 << 20) else { return };
        let path = fs.dir("here").expect("a new directory");
        std::fs::write(path.join("file"), b"x").expect("a new file");
        drop(fs);
        assert!(!path.exists(), "unmounted and deleted");
    }
}
