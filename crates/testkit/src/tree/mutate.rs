//! Random changes to a tree: the same for the same seed and tree.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::random::{contents, name, vary};
use crate::Rng;

/// Changes about one entry in ten, at least one: edits, appends, truncates, overwrites with the same bytes, renames,
/// moves, deletes, touches, changes modes, replaces files by directories and the reverse, adds. Returns what was done,
/// in order.
///
/// For trees as [`super::random`] makes them: paths shorter than `PATH_MAX`, nothing protected.
pub fn mutate(dir: &Path, seed: u64) -> io::Result<Vec<String>> {
    let mut rng = Rng::new(seed ^ 0x6d75_7461_7465);
    let mut all = Vec::new();
    entries(dir, &mut all)?;
    let mut done = Vec::new();
    for _ in 0..=all.len() / 10 {
        // Earlier changes may have taken the entry, or the directory it was in, away.
        let Some(path) = rng.pick(&all).cloned().filter(|p| p.symlink_metadata().is_ok()) else {
            add(dir, &mut rng, &mut done)?;
            continue;
        };
        change(dir, &path, &all, &mut rng, &mut done)?;
    }
    Ok(done)
}

fn change(root: &Path, path: &Path, all: &[PathBuf], rng: &mut Rng, done: &mut Vec<String>) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    let mut say = |what: &str| done.push(format!("{what} {}", path.as_os_str().as_bytes().escape_ascii()));
    match rng.below(14) {
        0..4 if meta.is_file() => {
            let mut data = fs::read(path)?;
            vary(rng, &mut data);
            rewrite(path, &data)?;
            say("edit");
        }
        4 if meta.is_file() => {
            let more = 1 + rng.below(20_000);
            writable(path)?;
            File::options().append(true).open(path)?.write_all(&rng.bytes(more))?;
            say("append to");
        }
        5 if meta.is_file() => {
            writable(path)?;
            File::options().write(true).open(path)?.set_len(rng.below(meta.len() as usize + 1) as u64)?;
            say("truncate");
        }
        6 if meta.is_file() => {
            let data = fs::read(path)?;
            rewrite(path, &data)?;
            say("overwrite with the same");
        }
        7 if meta.is_file() => {
            fs::remove_file(path)?;
            fs::create_dir(path)?;
            fs::write(path.join("inside"), contents(rng, &[]))?;
            say("replace by a directory");
        }
        7 if meta.is_dir() => {
            fs::remove_dir_all(path)?;
            fs::write(path, contents(rng, &[]))?;
            say("replace by a file");
        }
        8 | 9 => {
            let new = path.with_file_name(OsStr::from_bytes(&name(rng)));
            if new.symlink_metadata().is_err() {
                fs::rename(path, new)?;
                say("rename");
            }
        }
        10 => {
            let to = rng.pick(all).filter(|p| p.symlink_metadata().is_ok_and(|m| m.is_dir()));
            let to = to.map_or(root, PathBuf::as_path);
            let new = to.join(OsStr::from_bytes(&name(rng)));
            if !new.starts_with(path) && new.symlink_metadata().is_err() {
                fs::rename(path, new)?;
                say("move");
            }
        }
        11 => {
            if meta.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
            say("delete");
        }
        12 if !meta.is_symlink() => {
            let nanoseconds = Duration::from_nanos(rng.u64() % 2_000_000_000_000_000_000);
            let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + nanoseconds);
            writable(path)?;
            File::open(path)?.set_times(times)?;
            say("touch");
        }
        13 if !meta.is_symlink() => {
            let mode = (meta.permissions().mode() ^ (1 << rng.below(9))) | if meta.is_dir() { 0o700 } else { 0o400 };
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
            say("chmod");
        }
        _ => add(path.parent().unwrap_or(root), rng, done)?,
    }
    Ok(())
}

fn add(dir: &Path, rng: &mut Rng, done: &mut Vec<String>) -> io::Result<()> {
    let path = dir.join(OsStr::from_bytes(&name(rng)));
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    match rng.below(6) {
        0 => fs::create_dir(&path)?,
        1 => symlink(OsStr::from_bytes(&name(rng)), &path)?,
        _ => fs::write(&path, contents(rng, &[]))?,
    }
    done.push(format!("add {}", path.as_os_str().as_bytes().escape_ascii()));
    Ok(())
}

fn writable(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode() & 0o7777;
    if mode & 0o200 == 0 {
        fs::set_permissions(path, Permissions::from_mode(mode | 0o200))?;
    }
    Ok(())
}

fn rewrite(path: &Path, data: &[u8]) -> io::Result<()> {
    writable(path)?;
    fs::write(path, data)
}

/// All paths below `dir`, in an order that does not depend on the file system.
fn entries(dir: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut here: Vec<_> = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    here.sort_by_key(fs::DirEntry::file_name);
    for entry in here {
        all.push(entry.path());
        if entry.file_type()?.is_dir() {
            entries(&entry.path(), all)?;
        }
    }
    Ok(())
}
