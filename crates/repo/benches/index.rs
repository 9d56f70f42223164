//! Look-ups a second in an index of 300,000 chunks: of what is there, of what isn't, and of what a backup has just
//! stored and no index object names yet.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drumlin_format::ChunkId;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
use drumlin_repo::{Cache, CreateOptions, Index, IndexMode, NewLock, Repository, WriteSession};
use drumlin_seal::Secret;
use drumlin_store::MemoryStore;
use std::hint::black_box;
use std::sync::Arc;

const CHUNKS: u64 = 300_000;
/// So many are looked up in each turn.
const ASKED: u64 = 1000;

type Ask = fn(&Index, &ChunkId) -> bool;

fn id(repository: &Repository, number: u64) -> ChunkId {
    repository.data_id(&number.to_le_bytes()).expect("an owner's key names chunks")
}

/// Append these chunks, each of eight bytes, to the session's packs.
fn store(repository: &Repository, session: &WriteSession, numbers: std::ops::Range<u64>) {
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().expect("a coder"));
    for number in numbers {
        block.push(id(repository, number), &number.to_le_bytes());
        if block.raw.len() >= 64 << 10 {
            session.data.append(&mut block, &mut coder, Coding::Raw).expect("memory takes it");
        }
    }
    session.data.append(&mut block, &mut coder, Coding::Raw).expect("memory takes it");
}

fn index(c: &mut Criterion) {
    let lock = NewLock::File(Secret::new([1; 32]));
    let made = Repository::create(Arc::new(MemoryStore::new()), CreateOptions::default(), lock, "bench", 0);
    let repository = made.expect("memory takes it").0;
    let folder = tempfile::tempdir().expect("a folder for the cache");
    let cache = Arc::new(Cache::open(&repository, Some(folder.path()), folder.path()).expect("a cache"));
    let registration = Registration::begin(&repository, Session::new("h", "backup", 0)).expect("a session");
    let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).expect("an index"));
    let session = WriteSession::begin(registration, index.clone(), cache);
    store(&repository, &session, 0..CHUNKS);
    session.flush().expect("memory takes it");
    let fresh = CHUNKS..CHUNKS + ASKED;
    assert!(fresh.clone().all(|number| index.claim(&id(&repository, number)).expect("the index answers")));
    let mut group = c.benchmark_group("index");
    group.throughput(Throughput::Elements(ASKED));
    let spread = (0..ASKED).map(|n| n * (CHUNKS / ASKED));
    let is_there: Ask = |index, id| index.lookup(id).expect("the index answers").is_some();
    let is_claimed: Ask = |index, id| !index.claim(id).expect("the index answers");
    for (name, numbers, ask) in [
        ("there", spread.collect::<Vec<_>>(), is_there),
        ("not there", (2 * CHUNKS..2 * CHUNKS + ASKED).collect(), is_there),
        ("just claimed", fresh.collect(), is_claimed),
    ] {
        let ids: Vec<_> = numbers.into_iter().map(|number| id(&repository, number)).collect();
        group.bench_function(name, |b| b.iter(|| ids.iter().filter(|id| ask(&index, black_box(id))).count()));
    }
    group.finish();
}

criterion_group!(benches, index);
criterion_main!(benches);
