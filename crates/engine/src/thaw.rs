//! Cold storage: the packs that something needs are asked for all at once, and waited for.

use crate::monitor::Monitor;
use crate::{Error, Result};
use drumlin_repo::{Haste, PackInfo, Repository};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Packs that are looked after before it is waited again: what was asked for first mostly comes first.
const LOOKED_AFTER: usize = 64;
/// How soon a user who wants to end it is heard.
const HEARD: Duration = Duration::from_millis(100);

/// How to go about what is in cold storage.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How soon it shall be there.
    pub haste: Haste,
    /// How often to look whether it is.
    pub pace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { haste: Haste::default(), pace: Duration::from_secs(120) }
    }
}

/// See to it that these packs can be read, and wait until they can. Whether they can; if not, the user has ended it,
/// and they will be there when they are asked for again.
///
/// # Errors
/// The storage can't or won't bring one of them back.
pub(crate) fn thaw(
    repository: &Repository,
    packs: &[Arc<PackInfo>],
    options: Options,
    monitor: &dyn Monitor,
) -> Result<bool> {
    let mut coming = ask(repository, packs, options.haste, monitor, false)?;
    if !coming.is_empty() && !monitor.stop() {
        let gib = coming.iter().map(|pack| pack.len).sum::<u64>() as f64 / f64::from(1 << 30);
        let (packs, plural) = (coming.len(), if coming.len() == 1 { "" } else { "s" });
        monitor.waits(&format!(
            "{packs} pack{plural} ({gib:.1} GiB) in cold storage; the storage has been asked for all that is needed, and will take hours. The \
             same command can be run again later instead"
        ));
    }
    loop {
        if monitor.stop() {
            return Ok(false);
        }
        let Some(first) = coming.chunks(LOOKED_AFTER).next() else { return Ok(true) };
        let still = ask(repository, first, options.haste, monitor, true)?;
        let looked_after = first.len();
        if still.is_empty() {
            coming.drain(..looked_after);
            continue;
        }
        coming.splice(..looked_after, still);
        let until = Instant::now() + options.pace;
        while Instant::now() < until && !monitor.stop() {
            thread::sleep(HEARD.min(options.pace));
        }
    }
}

/// Ask for packs; those that can't be read yet. `asked`: all have been asked for before.
fn ask(
    repository: &Repository,
    packs: &[Arc<PackInfo>],
    haste: Haste,
    monitor: &dyn Monitor,
    asked: bool,
) -> Result<Vec<Arc<PackInfo>>> {
    let is_coming = |pack: &Arc<PackInfo>| match repository.thaw(pack, haste) {
        Ok(ready) => Ok(!ready),
        // Whoever reads it tells that it is gone, and what was in it.
        Err(e) if e.is_missing() => Ok(false),
        // A line that is down for a while: what takes a day can be looked after later.
        Err(e) if asked && e.is_transient() => Ok(true),
        Err(e) => Err(Error::from(e)),
    };
    let answers = repository.ask_many(packs, |pack| if monitor.stop() { Ok(true) } else { is_coming(pack) })?;
    Ok(packs.iter().zip(answers).filter(|(_, coming)| *coming).map(|(pack, _)| pack.clone()).collect())
}
