//! What new index objects say of the packs that those named in whose place they are put. About some packs these may
//! disagree: then the pack's own word counts, and as long as that can't be read all that is said of it stays said.

use super::ground::{ASKED_AT_ONCE, own_word};
use crate::Result;
use drumlin_format::PackId;
use drumlin_format::index::Entry;
use drumlin_format::pack::PackKind;
use drumlin_repo::pack::PackScan;
use drumlin_repo::{Repository, WriteSession};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Names packs again.
pub(crate) struct Naming<'a> {
    repository: &'a Repository,
    /// Packs about which index objects disagree, and their lengths.
    contested: HashMap<PackId, (PackKind, u64)>,
    scan: Option<PackScan<'a>>,
    heard: HashSet<PackId>,
    doubtful: Doubtful,
}

/// What an index object says of a pack of which none before has said anything.
pub(crate) struct Said {
    entry: Entry,
    /// What else that object says of it.
    others: Vec<Entry>,
    /// What the pack says, if index objects disagree, and it can be read.
    own: Option<Entry>,
}

impl Said {
    /// The pack.
    pub fn pack(&self) -> PackId {
        self.entry.pack
    }

    /// What is most likely true.
    pub fn likely(self) -> Entry {
        self.own.unwrap_or(self.entry)
    }
}

impl<'a> Naming<'a> {
    /// Nothing has been said yet.
    pub fn new(repository: &'a Repository, contested: HashMap<PackId, (PackKind, u64)>) -> Result<Self> {
        let scan = if contested.is_empty() { None } else { Some(PackScan::new(repository)?) };
        Ok(Naming { repository, contested, scan, heard: HashSet::new(), doubtful: Doubtful::default() })
    }

    /// Hear what an index object says, a part of it at a time ([`parts`]). Packs about which others disagree are asked,
    /// side by side.
    pub fn hear(&mut self, entries: Vec<Entry>) -> Result<Vec<Said>> {
        let (mut new, mut asked): (Vec<Said>, _) = (Vec::new(), Vec::new());
        for entry in entries {
            if self.heard.insert(entry.pack) {
                asked.extend(self.contested.get(&entry.pack).map(|(kind, len)| (entry.pack, *kind, *len)));
                new.push(Said { entry, others: Vec::new(), own: None });
            } else if let Some(said) = new.iter_mut().find(|said| said.pack() == entry.pack) {
                said.others.push(entry);
            } else {
                self.doubtful.hear(entry);
            }
        }
        let own = match &self.scan {
            Some(scan) => self.repository.ask_many(&asked, |(pack, kind, len)| own_word(scan, *kind, *pack, *len))?,
            None => Vec::new(),
        };
        let mut own: HashMap<PackId, Entry> = own.into_iter().flatten().map(|entry| (entry.pack, entry)).collect();
        new.iter_mut().for_each(|said| said.own = own.remove(&said.entry.pack));
        Ok(new)
    }

    /// Have new index objects say it.
    pub fn name_again(&mut self, session: &WriteSession, said: Said) -> Result<()> {
        match said.own {
            None if self.contested.contains_key(&said.entry.pack) => {
                self.doubtful.begin(said.entry);
                said.others.into_iter().for_each(|other| self.doubtful.hear(other));
            }
            own => session.name_again(own.unwrap_or(said.entry))?,
        }
        Ok(())
    }

    /// Have them say the rest, once all has been heard: an index object says one thing of a pack.
    pub fn finish(mut self, session: &WriteSession) -> Result<()> {
        while let Some(entries) = self.doubtful.next() {
            session.flush()?;
            entries.into_iter().try_for_each(|entry| session.name_again(entry))?;
        }
        Ok(())
    }
}

/// What an index object says, in parts: one that contradicts others about all packs there are would have as many tables
/// in memory.
pub(crate) fn parts(mut entries: Vec<Entry>) -> impl Iterator<Item = Vec<Entry>> {
    std::iter::from_fn(move || {
        let rest = entries.split_off(entries.len().min(ASKED_AT_ONCE));
        Some(std::mem::replace(&mut entries, rest)).filter(|part| !part.is_empty())
    })
}

/// Packs that can't be asked themselves, and the different things that index objects say of each.
#[derive(Default)]
struct Doubtful(BTreeMap<PackId, Vec<Entry>>);

impl Doubtful {
    /// Add a pack about which nobody knows what is right; `entry` is the first thing that is said of it.
    fn begin(&mut self, entry: Entry) {
        self.0.insert(entry.pack, vec![entry]);
    }

    /// Note what another index object says, if it is about one of these packs.
    fn hear(&mut self, entry: Entry) {
        if let Some(said) = self.0.get_mut(&entry.pack).filter(|said| !said.contains(&entry)) {
            said.push(entry);
        }
    }

    /// Take one entry of each pack that has any left; `None` once no pack has.
    fn next(&mut self) -> Option<Vec<Entry>> {
        self.0.retain(|_, said| !said.is_empty());
        let next: Vec<Entry> = self.0.values_mut().filter_map(Vec::pop).collect();
        (!next.is_empty()).then_some(next)
    }
}
