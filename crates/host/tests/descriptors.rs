//! A walk holds few descriptors however much waits for its consumer, and gives all of them back.
//!
//! On its own, as it counts what the whole process holds.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use drumlin_host::filter::Filter;
use drumlin_host::walk::{Options, Walk};

fn open_now() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

#[test]
fn descriptors_are_bounded_and_given_back() {
    let tmp = tempfile::tempdir().expect("a directory");
    for a in 0..40 {
        for b in 0..25 {
            let dir = tmp.path().join(format!("{a}/{b}/c"));
            std::fs::create_dir_all(&dir).expect("mkdir");
            std::fs::write(dir.join("f"), b"x").expect("write");
        }
    }
    let before = open_now();
    for stop_early in [false, true] {
        let sources = vec![tmp.path().as_os_str().as_bytes().to_vec()];
        let options = Options { sources, threads: 4.into(), ..Options::default() };
        let mut walk = Walk::start(options, Arc::new(Filter::none())).expect("threads");
        let (mut held, mut most) = (Vec::new(), 0);
        while let Some(listing) = walk.next() {
            // Every file opens, whether its directory is still held or not.
            for entry in listing.iter().filter(|e| e.name == b"f") {
                listing.dir().open_file(entry.name).expect("open");
            }
            assert!(listing.errors().is_empty(), "{:?}", listing.errors());
            held.push(listing);
            most = most.max(open_now() - before);
            if stop_early && held.len() == 500 {
                break;
            }
        }
        assert!(stop_early || held.len() > 2040, "{} directories", held.len());
        // 256 for the walk, half as many again for files that were asked for, one in the hand of each worker.
        assert!(most <= 256 + 128 + 8, "{most} descriptors at once");
        assert!(most > 200, "the test holds too little to show anything: {most}");
        drop(walk);
        assert!(open_now() - before <= 256 + 128);
        drop(held);
        assert_eq!(open_now(), before);
    }
}
