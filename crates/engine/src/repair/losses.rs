//! What is lost, in as many objects as readers need to take them.

use drumlin_format::loss::Loss;
use drumlin_format::{ChunkId, PackId};

/// Chunks that one loss names at the most: 32 MiB of ids. What is longer than 512 MiB is read by nobody.
pub(super) const CHUNKS_MAX: usize = 1 << 20;

/// What one loss says: chunks, and packs.
pub(super) type Part<'a> = (&'a [ChunkId], &'a [PackId]);

/// What is to be said by losses of so many chunks at the most. There is always a first one, which names the packs.
pub(super) fn in_parts<'a>(chunks: &'a [ChunkId], packs: &'a [PackId], most: usize) -> Vec<Part<'a>> {
    let (first, rest) = chunks.split_at(chunks.len().min(most));
    let mut parts = vec![(first, packs)];
    parts.extend(rest.chunks(most).map(|chunks| (chunks, &[][..])));
    parts
}

/// Whether that is what a loss says.
pub(super) fn says(loss: &Loss, part: Part) -> bool {
    (&loss.chunks[..], &loss.packs[..]) == part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_is_named_once_however_many_there_are() {
        let chunks: Vec<ChunkId> = (0..7).map(|n| ChunkId([n; 32])).collect();
        let packs = [PackId([1; 16])];
        let lens = |count: usize| {
            let parts = in_parts(&chunks[..count], &packs, 3);
            assert!(parts.iter().flat_map(|(chunks, _)| *chunks).eq(&chunks[..count]));
            assert!(parts.iter().map(|(_, packs)| packs.len()).eq((0..parts.len()).map(|at| usize::from(at == 0))));
            parts.iter().map(|(chunks, _)| chunks.len()).collect::<Vec<_>>()
        };
        assert_eq!(lens(0), [0]);
        assert_eq!(lens(3), [3]);
        assert_eq!(lens(4), [3, 1]);
        assert_eq!(lens(7), [3, 3, 1]);
    }
}
