//! Losses that this client hasn't met yet: a run that reads every file stores again what was lost, where it is still
//! there. One such run is enough for each loss.

use super::parent::name;
use crate::Result;
use drumlin_format::LossId;
use drumlin_repo::{Cache, Repository};

fn remembered(host: &str, paths: &[Vec<u8>]) -> String {
    format!("losses met by {}", name(host, paths))
}

/// The losses that came since the last run of this host and paths that read everything.
pub(super) fn unmet(repository: &Repository, cache: &Cache, host: &str, paths: &[Vec<u8>]) -> Result<Vec<LossId>> {
    let mut losses = repository.loss_ids()?;
    if !losses.is_empty() {
        let met = cache.recall(&remembered(host, paths)).unwrap_or_default();
        losses.retain(|id| !met.as_chunks::<16>().0.contains(&id.0));
    }
    Ok(losses)
}

/// A whole run has read everything while these losses stood.
pub(super) fn met(cache: &Cache, host: &str, paths: &[Vec<u8>], losses: &[LossId]) {
    if losses.is_empty() {
        return;
    }
    let name = remembered(host, paths);
    let mut met = cache.recall(&name).unwrap_or_default();
    losses.iter().for_each(|id| met.extend_from_slice(&id.0));
    // Without it the next run reads everything once more.
    let _ = cache.remember(&name, &met);
}
