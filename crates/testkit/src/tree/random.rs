//! Random trees for property tests: the same for the same seed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::Rng;

/// Contents that later files repeat or vary.
const REMEMBERED_MAX: usize = 24;

/// Fills the empty directory `dir` with `size` entries: files of up to 256 KiB (a quarter of them duplicates of others,
/// or alike), directories, symlinks, hard links. Modes vary; the owner can always read.
pub fn random(dir: &Path, seed: u64, size: usize) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let mut dirs: Vec<PathBuf> = vec![dir.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    let mut known: Vec<Vec<u8>> = Vec::new();
    for _ in 0..size {
        let Some(parent) = rng.pick(&dirs).cloned() else { break };
        let path = parent.join(OsStr::from_bytes(&name(&mut rng)));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match rng.below(20) {
            0..3 => {
                std::fs::create_dir(&path)?;
                dirs.push(path);
            }
            3 => symlink(OsStr::from_bytes(&name(&mut rng)), &path)?,
            4 if !files.is_empty() => {
                if let Some(old) = rng.pick(&files) {
                    std::fs::hard_link(old, &path)?;
                }
            }
            _ => {
                let data = contents(&mut rng, &known);
                std::fs::write(&path, &data)?;
                let mode = [0o644, 0o600, 0o755, 0o444, 0o640][rng.below(5)];
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
                if known.len() < REMEMBERED_MAX {
                    known.push(data);
                } else {
                    let at = rng.below(known.len());
                    known[at] = data;
                }
                files.push(path);
            }
        }
    }
    Ok(())
}

/// Short and long, mostly plain, now and then of any bytes.
pub(super) fn name(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.one_in(20) { 1 + rng.below(120) } else { 1 + rng.below(12) };
    let any = rng.one_in(10);
    let mut name: Vec<u8> = (0..len)
        .map(|_| match any {
            true => 1 + rng.below(255) as u8,
            false => b"abcdefghijklmnopqrstuvwxyz0123456789.-_ "[rng.below(40)],
        })
        .collect();
    for byte in &mut name {
        if *byte == b'/' {
            *byte = b'+';
        }
    }
    if name == b"." || name == b".." {
        name = b"dots".to_vec();
    }
    name
}

/// New bytes, a copy of known ones, or a variation of them.
pub(super) fn contents(rng: &mut Rng, known: &[Vec<u8>]) -> Vec<u8> {
    match (rng.below(8), rng.pick(known).cloned()) {
        (0, Some(old)) => old,
        (1, Some(mut old)) => {
            vary(rng, &mut old);
            old
        }
        _ => {
            let len = match rng.below(20) {
                0 => 0,
                1..12 => rng.below(4 << 10),
                12..19 => rng.below(40 << 10),
                _ => rng.below(256 << 10),
            };
            if rng.one_in(3) { rng.bytes(len) } else { rng.text(len) }
        }
    }
}

/// Some bytes overwritten, inserted or cut out.
pub(super) fn vary(rng: &mut Rng, data: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(data.len() + 1);
        let piece_len = 1 + rng.below(300);
        let end = (at + piece_len).min(data.len());
        let piece = rng.bytes(piece_len);
        match rng.below(3) {
            0 => data[at..end].copy_from_slice(&piece[..end - at]),
            1 => drop(data.splice(at..at, piece)),
            _ => drop(data.drain(at..end)),
        }
    }
}
