//! What a writer reads of a storage once its session stands: plans first, then what index objects there are, then what was decided on.

use crate::{Repository, Result, names};
use drumlin_format::{IndexId, PlanId, SessionId};
use drumlin_store::Listed;
use std::collections::{HashMap, HashSet};

/// The index objects and the decisions of a storage. An object of somebody who was evicted before he wrote it is told as that: decisions are
/// listed last.
#[derive(Default)]
pub(crate) struct Listing {
    /// The index objects, and their lengths in bytes.
    pub objects: HashMap<IndexId, u64>,
    /// The sessions that were decided on.
    pub decided: HashSet<SessionId>,
}

impl Listing {
    /// As they are now.
    pub fn now(repository: &Repository) -> Result<Self> {
        let mut listing = Listing::default();
        let folders = [names::INDEX, names::DECISIONS];
        repository.store().list_in_order(&folders, &mut |at, listed| listing.take(at, &listed))?;
        Ok(listing)
    }

    /// The plans that stand, and if there are none what stands behind them: where there are, they have to be read before the index is
    /// listed. A storage that is far away is asked once for all.
    pub fn behind_plans(repository: &Repository) -> Result<(Vec<PlanId>, Option<Self>)> {
        let (mut plans, mut listing) = (Vec::new(), Listing::default());
        let folders = [names::PLANS, names::INDEX, names::DECISIONS];
        repository.store().list_in_order(&folders, &mut |at, listed| match at {
            0 => plans.extend(PlanId::parse(names::last(&listed.name))),
            _ => listing.take(at - 1, &listed),
        })?;
        let listing = plans.is_empty().then_some(listing);
        Ok((plans, listing))
    }

    fn take(&mut self, at: usize, listed: &Listed) {
        match at {
            0 => self.objects.extend(IndexId::parse(names::last(&listed.name)).map(|id| (id, listed.len))),
            _ => self.decided.extend(names::decided_on(&listed.name)),
        }
    }
}
