//! By the library, for processors that no path of our own is for.

use super::{LINES, Line, Rows};
use crate::pack::parity::{ROWS, Shard, added_to};
use reed_solomon_simd::engine::{DefaultEngine, Engine, ShardsRefMut};
use std::sync::LazyLock;

/// Its tables take 8 MiB and some milliseconds: made when they are first asked for.
pub(crate) static ENGINE: LazyLock<DefaultEngine> = LazyLock::new(DefaultEngine::new);

/// As [`super::Fold::add`].
pub(super) fn add(rows: &mut Rows, shards: [&Shard; ROWS], four: usize) {
    let mut work = [[0; size_of::<Line>()]; ROWS * LINES];
    for (to, shard) in work.chunks_exact_mut(LINES).zip(shards) {
        to.as_flattened_mut().copy_from_slice(shard);
    }
    ENGINE.ifft(&mut ShardsRefMut::new(ROWS, LINES, &mut work), 0, ROWS, ROWS, (four + 1) * ROWS);
    added_to(rows.as_flattened_mut(), work.as_flattened());
}

/// As [`super::Fold::finish`].
pub(super) fn finish(rows: &mut Rows) {
    let lines = rows.as_flattened_mut().as_chunks_mut().0;
    ENGINE.fft(&mut ShardsRefMut::new(ROWS, LINES, lines), 0, ROWS, ROWS, 0);
}
