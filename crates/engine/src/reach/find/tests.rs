//! Wherever one comes from: a chunk is found where the index has it.

use super::*;
use crate::monitor::Quiet;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
use drumlin_repo::{Cache, CreateOptions, NewLock, Repository, WriteSession, random_secret};
use drumlin_store::MemoryStore;
use drumlin_testkit::Rng;

fn bytes(n: usize) -> Vec<u8> {
    Rng::new(n as u64).bytes(64)
}

/// A pack of these chunks, whether others hold them or not.
fn pack(repository: &Repository, cache: &Arc<Cache>, chunks: &[usize]) {
    let registration = Registration::begin(repository, Session::new("host", "test", 0)).unwrap();
    let index = Arc::new(Index::open(repository, cache.clone()).unwrap());
    let session = WriteSession::begin(registration, index, cache.clone());
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    for n in chunks {
        block.push(repository.data_id(&bytes(*n)).unwrap(), &bytes(*n));
    }
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    session.flush().unwrap();
    session.abandon().unwrap();
}

#[test]
fn a_guess_is_right_or_none() {
    let (scratch, lock) = (tempfile::tempdir().unwrap(), NewLock::File(random_secret().unwrap()));
    let options = CreateOptions::default();
    let repository = Repository::create(Arc::new(MemoryStore::new()), options, lock, "test", 0).unwrap().0;
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let mut rng = Rng::new(1);
    for first in [0, 100, 200, 300] {
        // Some of them twice in the same pack, some in others, too.
        let mut chunks: Vec<usize> = (first..first + 200).collect();
        (0..60).for_each(|_| {
            let (at, n) = (rng.below(chunks.len()), first + rng.below(200));
            chunks.insert(at, n);
        });
        pack(&repository, &cache, &chunks);
    }
    let objects: Vec<_> = repository.index_objects().unwrap().into_iter().map(|(id, _)| id).collect();
    let keys = Keys::read(&repository, &cache, &objects, 2, &Quiet::default()).unwrap();
    let index = Index::open(&repository, cache.clone()).unwrap();
    let passed = keys.repeated();
    index
        .shadowed(|location| {
            let pack = keys.number(&index.pack(location.pack).id).unwrap();
            passed.add(Place { pack, ordinal: location.ordinal });
        })
        .unwrap();
    let at = |found: Found| if let Found::At(place) = found { Some(place) } else { None };
    let mut finder = Finder::new(&keys, &index, PackKind::Data, Some(&passed));
    let mut plain = Finder::new(&keys, &index, PackKind::Data, None);
    let (mut asked, mut elsewhere) = (0u64, 0);
    for _ in 0..400 {
        let start = rng.below(500);
        for n in start..(start + 1 + rng.below(20)).min(520) {
            let id = repository.data_id(&bytes(n)).unwrap();
            let by_index = at(ask(&keys, &index, PackKind::Data, &id).unwrap());
            assert_eq!(by_index.is_some(), n < 500);
            assert_eq!(at(finder.find(&id).unwrap()), by_index, "chunk {n}");
            elsewhere += usize::from(at(plain.find(&id).unwrap()) != by_index);
            asked += 1;
        }
    }
    assert!(finder.lookups * 2 < asked, "{} lookups of {asked} chunks", finder.lookups);
    assert!(elsewhere > 20, "nothing was tried: {elsewhere} of {asked} are found at other places as well");
}
