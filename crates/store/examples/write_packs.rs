//! Measures how fast packs are written, against one plain file written with the same means.
//!
//! `write_packs <folder> [GiB] [MiB a pack] [KiB a write]`: on an empty folder of the file system to be measured.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use drumlin_store::{LocalStore, Store};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::time::{ClockId, clock_gettime};

const MIB: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: write_packs <folder> [GiB] [MiB a pack] [KiB a write]")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |text| text.parse());
    let (gib, pack_mib, write_kib) = (number(8)?, number(64)?, number(256)?);
    let folder = Path::new(&folder);
    for _ in 0..3 {
        measured("raw, O_DIRECT 4 MiB", gib, || raw(&folder.join("raw"), gib << 30))?;
        std::fs::remove_file(folder.join("raw"))?;
        measured("store, packs", gib, || packs(&folder.join("repo"), gib << 30, pack_mib * MIB, write_kib << 10))?;
        std::fs::remove_dir_all(folder.join("repo"))?;
    }
    Ok(())
}

fn measured(what: &str, gib: usize, f: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let (wall, cpu) = (Instant::now(), process_time());
    f()?;
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), process_time().saturating_sub(cpu));
    let mib = (gib << 10) as f64;
    println!("{what}: {:.2} GB/s, {:.0} µs of CPU a MiB", mib * MIB as f64 / wall / 1e9, cpu.as_secs_f64() * 1e6 / mib);
    Ok(())
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn raw(path: &Path, bytes: usize) -> Result<(), Box<dyn Error>> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file: File = OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
    let memory = vec![7; 4 * MIB + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &memory[start..start + 4 * MIB];
    for at in (0..bytes).step_by(buffer.len()) {
        file.write_all_at(buffer, at as u64)?;
    }
    file.sync_data()?;
    Ok(())
}

fn packs(path: &Path, bytes: usize, pack: usize, write: usize) -> Result<(), Box<dyn Error>> {
    let store = LocalStore::create(path)?;
    let block = vec![7; write];
    for number in 0..bytes / pack {
        let mut upload = store.upload(&format!("packs/{:02x}/{number:08x}", number % 256), pack as u64)?;
        for _ in 0..pack / write {
            upload.write(&block)?;
        }
        upload.finish()?;
    }
    store.sync()?;
    Ok(())
}
