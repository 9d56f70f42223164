//! Between the host's view of an entry and the format's.

use drumlin_format::session::{self, Session};
use drumlin_format::tree::{self, Meta};
use drumlin_host::meta::{self, Stat};
use drumlin_host::process::Process;

/// What a session of this process says of itself; `now` is in seconds since 1970.
pub fn session(host: &str, purpose: &str, now: i64) -> Session {
    let process = Process::this().map(|p| session::Process {
        machine: p.machine,
        boot: p.boot,
        namespace: p.namespace,
        id: p.id,
        began: p.began,
        node: p.node,
    });
    Session { process, ..Session::new(host, purpose, now) }
}

/// The process of a session.
pub fn process(of: &session::Process) -> Process {
    let session::Process { machine, boot, namespace, id, began, node } = of.clone();
    Process { machine, boot, namespace, id, began, node }
}

/// A type.
pub fn kind(kind: meta::Kind) -> tree::Kind {
    match kind {
        meta::Kind::File => tree::Kind::File,
        meta::Kind::Dir => tree::Kind::Dir,
        meta::Kind::Symlink => tree::Kind::Symlink,
        meta::Kind::Fifo => tree::Kind::Fifo,
        meta::Kind::Socket => tree::Kind::Socket,
        meta::Kind::CharDevice => tree::Kind::CharDevice,
        meta::Kind::BlockDevice => tree::Kind::BlockDevice,
    }
}

/// A type, back.
pub fn host_kind(kind: tree::Kind) -> meta::Kind {
    match kind {
        tree::Kind::File => meta::Kind::File,
        tree::Kind::Dir => meta::Kind::Dir,
        tree::Kind::Symlink => meta::Kind::Symlink,
        tree::Kind::Fifo => meta::Kind::Fifo,
        tree::Kind::Socket => meta::Kind::Socket,
        tree::Kind::CharDevice => meta::Kind::CharDevice,
        tree::Kind::BlockDevice => meta::Kind::BlockDevice,
    }
}

/// A time.
pub fn time(time: meta::Time) -> tree::Time {
    tree::Time { sec: time.sec, nsec: time.nsec }
}

/// A time, back.
pub fn host_time(time: tree::Time) -> meta::Time {
    meta::Time { sec: time.sec, nsec: time.nsec }
}

/// What a tree keeps of a stat; `filesystem` is the ordinal of its device, used for hard links alone.
pub fn meta(stat: &Stat, filesystem: u32) -> Meta {
    let kind = kind(stat.kind);
    let linked = kind != tree::Kind::Dir && stat.nlink > 1;
    Meta {
        kind,
        mode: stat.mode & 0o7777,
        marks: 0,
        uid: stat.uid,
        gid: stat.gid,
        size: size(kind, stat.size),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        btime: stat.btime.map(time),
        ino: stat.ino,
        nlink: if linked { stat.nlink } else { 1 },
        filesystem: if linked { filesystem } else { 0 },
        rdev: if matches!(kind, tree::Kind::CharDevice | tree::Kind::BlockDevice) { stat.rdev } else { 0 },
    }
}

/// The size that a tree keeps of an entry: of files and symlinks alone.
pub fn size(kind: tree::Kind, size: u64) -> u64 {
    if matches!(kind, tree::Kind::File | tree::Kind::Symlink) { size } else { 0 }
}
