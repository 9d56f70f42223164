//! Entries a second of a tree's leaves, as a backup of nothing new reads them, and writes those that have changed.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drumlin_format::tree::{Kind, Leaf, Meta, Time};
use std::hint::black_box;

const ENTRIES: u64 = 1000;

/// Files of some folders, as a project's sources have them.
fn leaf() -> Leaf {
    let mut leaf = Leaf::default();
    for n in 0..ENTRIES {
        let time = Time { sec: 1_700_000_000 + (n * 7919 % 86_400) as i64, nsec: (n * 104_729 % 1_000_000_000) as u32 };
        let meta = Meta {
            kind: Kind::File,
            mode: 0o644,
            marks: 0,
            uid: 1000,
            gid: 1000,
            size: n * n % 50_000,
            mtime: time,
            ctime: time,
            btime: Some(time),
            ino: 1_000_000 + n,
            nlink: 1,
            filesystem: 0,
            rdev: 0,
        };
        leaf.push(
            format!("project\0src\0folder-{:02}", n / 40).as_bytes(),
            format!("file-{n:04}.rs").as_bytes(),
            &meta,
        );
    }
    leaf.owners.users.push((1000, b"user".to_vec()));
    leaf.owners.groups.push((1000, b"user".to_vec()));
    leaf
}

fn leaves(c: &mut Criterion) {
    let leaf = leaf();
    let bytes = leaf.encode();
    let mut group = c.benchmark_group("leaf");
    group.throughput(Throughput::Elements(ENTRIES));
    group.bench_function("encode", |b| b.iter(|| black_box(&leaf).encode()));
    group.bench_function("decode", |b| b.iter(|| Leaf::decode(black_box(&bytes)).expect("it was just encoded")));
    group.finish();
}

criterion_group!(benches, leaves);
criterion_main!(benches);
