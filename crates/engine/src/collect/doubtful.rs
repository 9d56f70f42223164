//! Packs about which index objects disagree, and which can't be asked themselves: all that is said of them stays said.

use drumlin_format::PackId;
use drumlin_format::index::Entry;
use std::collections::BTreeMap;

/// Packs that can't be asked themselves, and the different things that index objects say of each.
#[derive(Default)]
pub(crate) struct Doubtful(BTreeMap<PackId, Vec<Entry>>);

impl Doubtful {
    /// Add a pack about which nobody knows what is right; `entry` is the first thing that is said of it.
    pub fn begin(&mut self, entry: Entry) {
        self.0.insert(entry.pack, vec![entry]);
    }

    /// Note what another index object says, if it is about one of these packs.
    pub fn hear(&mut self, entry: Entry) {
        if let Some(said) = self.0.get_mut(&entry.pack).filter(|said| !said.contains(&entry)) {
            said.push(entry);
        }
    }

    /// Take one entry of each pack that has any left; `None` once no pack has.
    pub fn next(&mut self) -> Option<Vec<Entry>> {
        self.0.retain(|_, said| !said.is_empty());
        let next: Vec<Entry> = self.0.values_mut().filter_map(Vec::pop).collect();
        (!next.is_empty()).then_some(next)
    }
}
