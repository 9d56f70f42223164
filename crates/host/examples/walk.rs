//! Measures the walk against a bare one: `walk DIR [THREADS [ROUNDS]]`. Both stay on the file system of DIR.
//!
//! The bare walk does the system calls and nothing else: open, `getdents64`, `statx` of every entry in the order in
//! which they come, close; threads share directories through stacks of their own. It gives no order, keeps nothing.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use drumlin_host::filter::{Filter, FilterOptions, Pattern};
use drumlin_host::walk::{Options, Walk};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags};

type Job = (Option<Arc<OwnedFd>>, CString);

struct Bare {
    shared: Mutex<(Vec<Job>, usize)>,
    wake: Condvar,
    idle: AtomicUsize,
    entries: AtomicU64,
}

fn bare(root: &[u8], threads: usize) -> u64 {
    let root = CString::new(root).unwrap_or_default();
    let bare = Bare {
        shared: Mutex::new((vec![(None, root)], threads)),
        wake: Condvar::new(),
        idle: AtomicUsize::new(0),
        entries: AtomicU64::new(0),
    };
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| bare_worker(&bare));
        }
    });
    bare.entries.into_inner()
}

fn bare_worker(bare: &Bare) {
    let mut stack: Vec<Job> = Vec::new();
    let mut buf = Vec::with_capacity(64 << 10);
    let (mut count, mut dev) = (0, None);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    loop {
        if stack.is_empty() {
            let mut shared = bare.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.1 -= 1;
            bare.idle.fetch_add(1, Ordering::Relaxed);
            loop {
                if let Some(job) = shared.0.pop() {
                    stack.push(job);
                    break;
                }
                if shared.1 == 0 {
                    bare.entries.fetch_add(count, Ordering::Relaxed);
                    bare.wake.notify_all();
                    return;
                }
                shared = bare.wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
            }
            shared.1 += 1;
            bare.idle.fetch_sub(1, Ordering::Relaxed);
        }
        if bare.idle.load(Ordering::Relaxed) > 0 && stack.len() > 1 {
            let half = stack.len() / 2;
            let mut shared = bare.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.0.extend(stack.drain(..half));
            drop(shared);
            bare.wake.notify_all();
        }
        let Some((parent, name)) = stack.pop() else { continue };
        let at = parent.as_ref().map_or(CWD, |fd| fd.as_fd());
        let Ok(fd) = rustix::fs::openat(at, &name, flags, Mode::empty()) else { continue };
        drop(parent);
        let fd = Arc::new(fd);
        let mut dir = RawDir::new(fd.as_fd(), buf.spare_capacity_mut());
        while let Some(Ok(entry)) = dir.next() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let Ok(stat) = rustix::fs::statx(&fd, name, AtFlags::SYMLINK_NOFOLLOW, mask) else { continue };
            count += 1;
            let here = (stat.stx_dev_major, stat.stx_dev_minor);
            let first = *dev.get_or_insert(here);
            if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory && here == first {
                stack.push((Some(Arc::clone(&fd)), name.to_owned()));
            }
        }
    }
}

fn ours(root: &[u8], threads: usize, filter: &Arc<Filter>) -> u64 {
    let options =
        Options { sources: vec![root.to_vec()], threads: threads.into(), one_file_system: true, ..Options::default() };
    let Ok(mut walk) = Walk::start(options, Arc::clone(filter)) else { return 0 };
    let (mut entries, mut sum) = (0, 0u64);
    while let Some(listing) = walk.next() {
        // As a consumer does: look at every entry once.
        for entry in listing.iter() {
            sum = sum.wrapping_add(entry.stat.size ^ entry.stat.ino ^ entry.name.len() as u64);
        }
        entries += listing.len() as u64;
    }
    std::hint::black_box(sum);
    entries
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn peak_rss() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or("VmHWM: ?").to_owned()
}

fn measure(label: &str, rounds: usize, mut walk: impl FnMut() -> u64) -> f64 {
    let (mut wall, mut cpu, mut entries) = (f64::MAX, f64::MAX, 0);
    for _ in 0..rounds {
        let (c, t) = (cpu_seconds(), Instant::now());
        entries = walk();
        wall = wall.min(t.elapsed().as_secs_f64());
        cpu = cpu.min(cpu_seconds() - c);
    }
    let each = 1e6 / entries.max(1) as f64;
    println!(
        "{label:28} {entries:9} entries  {:6.3} µs wall  {:6.3} µs cpu an entry  {:10.0} entries/s",
        wall * each,
        cpu * each,
        entries as f64 / wall
    );
    wall * each
}

fn main() {
    let mut args = std::env::args_os().skip(1);
    let root = args.next().map_or_else(|| b"/".to_vec(), |a| a.into_vec());
    let mut number = |default| args.next().and_then(|a| a.to_str()?.parse().ok()).unwrap_or(default);
    let threads: usize = number(2);
    let rounds: usize = number(5);
    let none = Arc::new(Filter::none());
    let patterns = ["*.o", "target/", "/var/cache", "!keep.o", "**/node_modules/", "*.tmp"];
    let options =
        FilterOptions { exclude: patterns.map(Pattern::flag).into(), exclude_caches: true, ..Default::default() };
    // The walk first, for the sake of its peak of memory.
    ours(&root, threads, &none);
    println!("after one walk: {}", peak_rss());
    let mut ratios = Vec::new();
    for _ in 0..2 {
        let b = measure(&format!("bare, {threads} threads"), rounds, || bare(&root, threads));
        let w = measure(&format!("walk, {threads} threads"), rounds, || ours(&root, threads, &none));
        ratios.push(w / b);
    }
    println!("ratio {:.3} and {:.3}", ratios[0], ratios[1]);
    if args.next().is_none()
        && let Ok(filter) = Filter::new(&options)
    {
        let filter = Arc::new(filter);
        measure("walk, six patterns", rounds, || ours(&root, threads, &filter));
    }
    println!("at the end: {}", peak_rss());
}
