//! What a check has found: one finding for each object that is not as it should be, and what that touches.

use crate::lock::lock;
use drumlin_format::SnapshotId;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// The config.
    Config,
    /// A key.
    Key,
    /// A generation of its secrets.
    Generation,
    /// A plan of what to remove.
    Plan,
    /// What a repair could not heal.
    Loss,
    /// An entry of the history.
    History,
    /// What became of a session.
    Decision,
    /// A writer's registration.
    Session,
    /// A snapshot.
    Snapshot,
    /// An index object; or, if it bears the folder's name alone, the index as a whole.
    Index,
    /// A recovery object of parity across packs.
    Recovery,
    /// A pack of tree nodes.
    TreePack,
    /// A pack of file contents.
    DataPack,
}

impl ObjectKind {
    /// What messages call it.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Config => "config",
            ObjectKind::Key => "key",
            ObjectKind::Generation => "generation",
            ObjectKind::Plan => "plan",
            ObjectKind::Loss => "loss",
            ObjectKind::History => "history",
            ObjectKind::Decision => "decision",
            ObjectKind::Session => "session",
            ObjectKind::Snapshot => "snapshot",
            ObjectKind::Index => "index",
            ObjectKind::Recovery => "recovery object",
            ObjectKind::TreePack => "tree pack",
            ObjectKind::DataPack => "data pack",
        }
    }
}

/// An object that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name in the store.
    pub object: String,
    /// What it is.
    pub kind: ObjectKind,
    /// What is wrong with it, each in words; [`CAUSES_MAX`] at the most.
    pub causes: Vec<String>,
    /// How many causes there are in all.
    pub causes_total: u64,
    /// Of a pack: its chunks that can't be read.
    pub chunks: u64,
    /// How many of those are whole in other packs, and so not lost.
    pub chunks_elsewhere: u64,
    /// Of a pack with parity, its own or that of a band: whether that heals all of it. Then it touches nothing.
    pub healed: Option<bool>,
    /// Whether it takes the pack's band to heal it.
    pub by_band: bool,
    /// Whether all that is wrong with it was put so by its writer: nothing heals that.
    pub made_so: bool,
    /// The snapshots that it touches, the latest first.
    pub snapshots: Vec<TouchedSnapshot>,
    /// What it touches in those, each stretch once; [`PATHS_MAX`] at the most.
    pub touched: Vec<Touched>,
    /// Whether it touches more than is in `touched`.
    pub touches_more: bool,
}

/// A snapshot that some damage touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedSnapshot {
    /// The snapshot.
    pub id: SnapshotId,
    /// How many of its entries are touched; `None`: the snapshot itself, as a whole.
    pub entries: Option<u64>,
}

/// A stretch of a tree that some damage touches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Touched {
    /// The absolute path of its entry, or of its first one.
    pub path: Vec<u8>,
    /// How many entries: one, or so many in the tree's order whose names can't be read.
    pub entries: u64,
    /// Of several entries: the path of the first one behind them. `None` up to the tree's end.
    pub before: Option<Vec<u8>>,
}

/// So many causes are told of an object.
pub const CAUSES_MAX: usize = 8;
/// So many stretches are told of an object.
pub const PATHS_MAX: usize = 300;

/// Findings as they come, from several threads.
#[derive(Default)]
pub(super) struct Findings(Mutex<Collected>);

#[derive(Default)]
struct Collected {
    findings: Vec<Finding>,
    by_object: BTreeMap<String, u32>,
    /// The causes that there were, hashed, by the number of their finding.
    causes: HashSet<(u32, u64)>,
    /// The snapshots that are touched as a whole, by the number of their finding.
    wholes: HashSet<(u32, SnapshotId)>,
    /// What is in each finding's `touched`.
    told: Vec<HashSet<Touched>>,
}

impl Findings {
    /// Something is wrong with an object. Gives the number of its finding.
    pub fn add(&self, kind: ObjectKind, object: &str, cause: impl Into<String>) -> u32 {
        self.tell(kind, object, cause.into(), false)
    }

    fn tell(&self, kind: ObjectKind, object: &str, cause: String, made_so: bool) -> u32 {
        let mut all = self.lock();
        let number = match all.by_object.get(object) {
            Some(number) => *number,
            None => {
                let number = all.begin(kind, object);
                all.findings[number as usize].made_so = made_so;
                number
            }
        };
        all.findings[number as usize].made_so &= made_so;
        if all.causes.insert((number, hash(&cause))) {
            let finding = &mut all.findings[number as usize];
            finding.causes_total += 1;
            if finding.causes.len() < CAUSES_MAX {
                finding.causes.push(cause);
            }
        }
        number
    }

    /// A snapshot is touched as a whole.
    pub fn whole(&self, number: u32, id: SnapshotId) {
        let all = &mut *self.lock();
        if all.wholes.insert((number, id)) {
            all.findings[number as usize].snapshots.push(TouchedSnapshot { id, entries: None });
        }
    }

    /// So many entries of a snapshot are touched.
    pub fn entries(&self, number: u32, id: SnapshotId, entries: u64) {
        self.lock().findings[number as usize].snapshots.push(TouchedSnapshot { id, entries: Some(entries) });
    }

    /// A stretch is touched.
    pub fn touched(&self, number: u32, touched: impl FnOnce() -> Touched) {
        let all = &mut *self.lock();
        let (finding, told) = (&mut all.findings[number as usize], &mut all.told[number as usize]);
        if finding.touches_more {
            return;
        }
        let touched = touched();
        if told.contains(&touched) {
        } else if told.len() == PATHS_MAX {
            finding.touches_more = true;
        } else {
            told.insert(touched.clone());
            finding.touched.push(touched);
        }
    }

    /// The number of the finding about an object.
    pub fn about(&self, object: &str) -> Option<u32> {
        self.lock().by_object.get(object).copied()
    }

    /// Whether a pack's parity heals it.
    pub fn healed(&self, number: u32, healed: bool) {
        self.lock().findings[number as usize].healed = Some(healed);
    }

    /// Whether a pack's parity was found to heal it.
    pub fn is_healed(&self, number: u32) -> bool {
        self.lock().findings[number as usize].healed == Some(true)
    }

    /// As [`Findings::add`], for an object that was written wrong in the first place: nothing heals that.
    pub fn add_made_so(&self, kind: ObjectKind, object: &str, cause: impl Into<String>) -> u32 {
        self.tell(kind, object, cause.into(), true)
    }

    /// Whether all that is told of an object is what its writer has put so.
    pub fn is_made_so(&self, number: u32) -> bool {
        self.lock().findings[number as usize].made_so
    }

    /// A pack's band heals it.
    pub fn by_band(&self, number: u32) {
        let finding = &mut self.lock().findings[number as usize];
        (finding.healed, finding.by_band) = (Some(true), true);
    }

    /// How many of a pack's chunks can't be read, and how many of those are elsewhere.
    pub fn chunks(&self, number: u32, chunks: u64, elsewhere: u64) {
        let finding = &mut self.lock().findings[number as usize];
        (finding.chunks, finding.chunks_elsewhere) = (chunks, elsewhere);
    }

    /// All of them: by kind, then by name.
    pub fn finish(self) -> Vec<Finding> {
        let mut findings = self.0.into_inner().unwrap_or_else(PoisonError::into_inner).findings;
        findings.sort_by(|a, b| (a.kind, &a.object).cmp(&(b.kind, &b.object)));
        findings
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        lock(&self.0)
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Collected {
    fn begin(&mut self, kind: ObjectKind, object: &str) -> u32 {
        let number = self.findings.len() as u32;
        self.by_object.insert(object.to_owned(), number);
        self.told.push(HashSet::new());
        self.findings.push(Finding {
            object: object.to_owned(),
            kind,
            causes: Vec::new(),
            causes_total: 0,
            chunks: 0,
            chunks_elsewhere: 0,
            healed: None,
            by_band: false,
            made_so: false,
            snapshots: Vec::new(),
            touched: Vec::new(),
            touches_more: false,
        });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_finding_an_object_and_a_bounded_one() {
        let findings = Findings::default();
        for n in 0..20 {
            assert_eq!(findings.add(ObjectKind::DataPack, "data/x", format!("cause {}", n % 10)), 0);
        }
        assert_eq!(findings.add(ObjectKind::Key, "keys/y", "gone"), 1);
        for n in 0..2 * PATHS_MAX {
            let path = (n / 2).to_string().into_bytes();
            findings.touched(0, || Touched { path, entries: 1, before: None });
        }
        assert!(!findings.lock().findings[0].touches_more, "each was told twice");
        findings.touched(0, || Touched { path: b"more".to_vec(), entries: 1, before: None });
        let all = findings.finish();
        assert_eq!(all.iter().map(|f| &f.object[..]).collect::<Vec<_>>(), ["keys/y", "data/x"]);
        let pack = &all[1];
        assert_eq!((pack.causes.len(), pack.causes_total), (CAUSES_MAX, 10));
        assert!(pack.touched.len() == PATHS_MAX && pack.touches_more);
    }
}
