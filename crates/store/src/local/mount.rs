//! Which file systems lie on another machine: what each call of theirs takes is a turn over a line.

use rustix::fd::AsFd;
use rustix::fs;

/// The types that `statfs` tells (its manual page, and the kernel's `magic.h`), by name.
const FAR: [(&str, u32); 12] = [
    ("9p", 0x0102_1997),
    ("afs", 0x5346_414f),
    ("afs", 0x6b41_4653),
    ("ceph", 0x00c3_6400),
    ("cifs", 0xff53_4d42),
    ("coda", 0x7375_7245),
    // sshfs and its like. One that is at hand is taken for far away, too, which costs the room for some copies.
    ("fuse", 0x6573_5546),
    ("lustre", 0x0bd0_0bd0),
    ("nfs", 0x0000_6969),
    ("smb", 0x0000_517b),
    ("smb2", 0xfe53_4d42),
    ("vboxsf", 0x786f_4256),
];

/// Whether a folder lies on another machine; one that can't be asked does not.
pub(super) fn is_far(folder: impl AsFd) -> bool {
    fs::fstatfs(folder).is_ok_and(|said| FAR.iter().any(|(_, of)| u64::from(*of) == (said.f_type as u64 & 0xffff_ffff)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::fs::File;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// A folder, unless it can't be opened, or whoever serves it doesn't answer.
    fn opened(at: &str) -> Option<File> {
        let (sender, receiver) = mpsc::channel();
        let at = at.to_owned();
        thread::spawn(move || sender.send(File::open(at)));
        receiver.recv_timeout(Duration::from_secs(10)).ok()?.ok()
    }

    /// Whatever is mounted here is told as its name in the table of mounts says.
    #[test]
    fn as_the_table_of_mounts_says() {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
        // Of several over one another, the last one is seen.
        let mounts: HashMap<&str, &str> = table
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ').skip(1);
                Some((words.next()?, words.next()?))
            })
            .collect();
        for (at, of) in mounts {
            let Some(folder) = opened(at) else { continue };
            let by_fuse = of.starts_with("fuse.") || matches!(of, "fuse" | "fuseblk");
            let named = by_fuse || matches!(of, "nfs4" | "smb3") || FAR.iter().any(|(name, _)| of == *name);
            assert_eq!(is_far(&folder), named, "{at}: {of}");
        }
        assert!(!is_far(File::open("/proc").unwrap()));
    }
}
