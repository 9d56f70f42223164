//! GB/s at which packs are banded, and at which a lost one is made again, with all of them in memory.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use drumlin_format::PackId;
use drumlin_format::band::Member;
use drumlin_format::pack::PackKind;
use drumlin_repo::band::{Bands, Recipe, Through, make};
use drumlin_repo::{CreateOptions, NewLock, Repository, names};
use drumlin_seal::Secret;
use drumlin_store::{MemoryStore, Put, Store};
use std::sync::Arc;

const PACK_BYTES: usize = 8 << 20;
const SHAPES: [(usize, usize); 4] = [(16, 1), (20, 2), (10, 2), (20, 4)];

fn scene(seats: usize) -> (MemoryStore, Repository, Vec<Option<Member>>) {
    let memory = MemoryStore::new();
    let lock = NewLock::File(Secret::new([1; 32]));
    let repository = Repository::create(Arc::new(memory.clone()), CreateOptions::default(), lock, "bench", 0);
    let repository = repository.expect("made in memory").0;
    let pack = |n: usize| {
        (0..PACK_BYTES as u64).map(move |i| ((i + n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
    };
    let member = |n: usize| {
        let member = Member { pack: PackId([n as u8 + 1; 16]), kind: PackKind::Data, len: PACK_BYTES as u64 };
        let bytes: Vec<u8> = pack(n).collect();
        memory.put(&names::pack(member.kind, member.pack), &bytes, Put::Create).expect("put in memory");
        Some(member)
    };
    let seats = (0..seats).map(member).collect();
    (memory, repository, seats)
}

fn forget(memory: &MemoryStore) {
    let mut all = Vec::new();
    memory.list(names::PARITY, &mut |listed| all.push(listed.name)).expect("listed in memory");
    all.iter().for_each(|name| memory.delete(name).expect("removed in memory"));
}

fn band(c: &mut Criterion) {
    let mut group = c.benchmark_group("band");
    group.sample_size(10);
    for (seats, rows) in SHAPES {
        let (memory, repository, seats) = scene(seats);
        let none = Bands::default();
        let through = Through::new(&repository, &none);
        let recipe = Recipe { seats, rows, from: Vec::new() };
        group.throughput(Throughput::Bytes((recipe.seats.len() * PACK_BYTES) as u64));
        group.bench_function(format!("make {}+{rows}", recipe.seats.len()), |b| {
            let made = |()| make(&repository, &none, &through, &recipe, &|| false, &|_| {}).expect("made in memory");
            b.iter_batched(|| forget(&memory), made, BatchSize::PerIteration);
        });
        forget(&memory);
        make(&repository, &none, &through, &recipe, &|| false, &|_| {}).expect("made in memory");
        let bands = Bands::look(&repository).expect("in memory");
        let name = names::pack(PackKind::Data, PackId([1; 16]));
        memory.delete(&name).expect("removed in memory");
        let mut bytes = vec![0; PACK_BYTES];
        group.throughput(Throughput::Bytes(PACK_BYTES as u64));
        group.bench_function(format!("heal {}+{rows}", recipe.seats.len()), |b| {
            b.iter(|| {
                let through = Through::new(&repository, &bands);
                let mut at = 0;
                for block in bytes.chunks_mut(1 << 20) {
                    through.read_at(&name, at, block).expect("healed");
                    at += block.len() as u64;
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, band);
criterion_main!(benches);
