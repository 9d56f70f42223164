//! What a session has put, and whether the storage still has it: that may have been put back to an older state
//! meanwhile.

use crate::lock::lock;
use crate::many::ask_store;
use crate::{Error, Result, names};
use drumlin_format::pack::PackKind;
use drumlin_format::{IndexId, PackId};
use drumlin_store::{Kind, Store};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

/// Of fewer objects each is asked for by its name.
const LISTED_MIN: usize = 256;
/// One in so many of all packs: else a list of all has more pages than there would be questions at once.
const LISTED_SHARE: u64 = 64;

/// The objects that a session has put.
#[derive(Default)]
pub(crate) struct Puts(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    /// With their lengths.
    all: Vec<(Object, u64)>,
    /// So many of them have been asked for.
    asked: usize,
}

/// An object of those that snapshots and plans rest on.
#[derive(Clone, Copy)]
pub(crate) enum Object {
    Pack(PackKind, PackId),
    Index(IndexId),
}

impl Object {
    fn name(self) -> String {
        match self {
            Object::Pack(kind, id) => names::pack(kind, id),
            Object::Index(id) => names::index(id),
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Object::Pack(kind, _) => names::folder(kind),
            Object::Index(_) => names::INDEX,
        }
    }
}

impl Puts {
    /// Remember that an object was put.
    pub fn note(&self, object: Object, len: u64) {
        self.objects().all.push((object, len));
    }

    /// The packs.
    pub fn packs(&self) -> HashSet<PackId> {
        let pack = |(object, _): &(Object, u64)| match object {
            Object::Pack(_, id) => Some(*id),
            Object::Index(_) => None,
        };
        self.objects().all.iter().filter_map(pack).collect()
    }

    /// The index objects.
    pub fn indexes(&self) -> Vec<IndexId> {
        let index = |(object, _): &(Object, u64)| match object {
            Object::Pack(..) => None,
            Object::Index(id) => Some(*id),
        };
        self.objects().all.iter().filter_map(index).collect()
    }

    /// Ask the storage for what was put: for all of it, or for what came since it was asked last. There are about so
    /// many packs in all.
    ///
    /// # Errors
    /// [`Error::Undone`] for the first that isn't there as it was put.
    pub fn refuse_lost(&self, store: &dyn Store, all: bool, packs: impl FnOnce() -> u64) -> Result<()> {
        let (mut objects, asked) = {
            let written = self.objects();
            (written.all[if all { 0 } else { written.asked }..].to_vec(), written.all.len())
        };
        if store.is_far() && objects.len() >= LISTED_MIN && objects.len() as u64 * LISTED_SHARE >= packs() {
            let listed = listed(store, &objects)?;
            // What a list leaves out may be there all the same.
            objects.retain(|(object, len)| listed.get(&object.name()) != Some(len));
        }
        ask_store(store, &objects, |(object, len)| match store.len(&object.name()) {
            Ok(Some(there)) if there == *len => Ok(()),
            // Who may put and not look has to believe.
            Err(e) if e.kind == Kind::Refused => Ok(()),
            Ok(there) => {
                let now = there.map_or("gone".into(), |there| format!("{there} bytes long, not {len}"));
                Err(Error::Undone { name: object.name(), now, location: store.location() })
            }
            Err(e) => Err(e.into()),
        })?;
        self.objects().asked = asked;
        Ok(())
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.0)
    }
}

/// The lengths of what the storage lists of some objects; of none if it may not be listed.
fn listed(store: &dyn Store, objects: &[(Object, u64)]) -> Result<HashMap<String, u64>> {
    let names: HashSet<String> = objects.iter().map(|(object, _)| object.name()).collect();
    let folders: HashSet<&str> = objects.iter().map(|(object, _)| object.folder()).collect();
    let mut listed = HashMap::with_capacity(names.len());
    for folder in folders {
        let list = store.list(folder, &mut |object| {
            if names.contains(&object.name) {
                listed.insert(object.name, object.len);
            }
        });
        match list {
            Err(e) if e.kind == Kind::Refused => {}
            other => other?,
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_store::{Call, Fault, FaultStore, MemoryStore, Op, Put, RecordStore, When};

    /// So many packs and an index object, put and noted.
    fn put(memory: &MemoryStore, packs: usize) -> Puts {
        let puts = Puts::default();
        for n in 0..packs {
            let id = PackId(crate::random_id().unwrap());
            let object = Object::Pack(if n % 5 == 0 { PackKind::Tree } else { PackKind::Data }, id);
            memory.put(&object.name(), &vec![0; n % 7], Put::Create).unwrap();
            puts.note(object, n as u64 % 7);
        }
        puts
    }

    fn undone(puts: &Puts, store: &dyn Store) -> Option<(String, String)> {
        match puts.refuse_lost(store, true, || 0) {
            Ok(()) => None,
            Err(Error::Undone { name, now, .. }) => Some((name, now)),
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn what_is_gone_or_shorter_is_told_whether_it_is_listed_or_asked_for() {
        for packs in [3, 300] {
            for far in [false, true] {
                let memory = MemoryStore::new();
                let puts = put(&memory, packs);
                let store = if far { memory.far() } else { memory.clone() };
                assert_eq!(undone(&puts, &store), None);
                let (object, len) = puts.objects().all[packs - 1];
                memory.put(&object.name(), &vec![0; len as usize + 2], Put::Replace).unwrap();
                assert_eq!(undone(&puts, &store), Some((object.name(), format!("{} bytes long, not {len}", len + 2))));
                memory.delete(&object.name()).unwrap();
                assert_eq!(undone(&puts, &store), Some((object.name(), "gone".into())));
            }
        }
    }

    #[test]
    fn what_is_far_and_many_is_listed() {
        let memory = MemoryStore::new();
        let puts = put(&memory, 300);
        let calls = |packs| {
            let store = RecordStore::new(memory.far());
            let log = store.log();
            puts.refuse_lost(&store, true, || packs).unwrap();
            let is_list = |call: &Call| matches!(call, Call::List { .. });
            let (lists, others): (Vec<_>, Vec<_>) = log.calls().into_iter().partition(is_list);
            (lists.len(), others.len())
        };
        assert_eq!(calls(300), (2, 0));
        assert_eq!(calls(300 * LISTED_SHARE + 1), (0, 300), "a list of all has more pages");
    }

    #[test]
    fn who_may_not_look_believes() {
        let memory = MemoryStore::new();
        let puts = put(&memory, 300);
        let store = FaultStore::new(memory.far());
        store.faults().add(When::op(Op::List), Fault::Fail(Kind::Refused));
        assert_eq!(undone(&puts, &store), None);
        let lost = puts.objects().all[7].0;
        memory.delete(&lost.name()).unwrap();
        assert_eq!(
            undone(&puts, &store),
            Some((lost.name(), "gone".into())),
            "each is asked for where there are no lists"
        );
        store.faults().add(When::op(Op::Len), Fault::Fail(Kind::Refused));
        assert_eq!(undone(&puts, &store), None);
    }

    #[test]
    fn what_was_asked_for_is_asked_for_once_but_at_the_end() {
        let memory = MemoryStore::new();
        let puts = put(&memory, 3);
        puts.refuse_lost(&memory, false, || 0).unwrap();
        let lost = puts.objects().all[1].0;
        memory.delete(&lost.name()).unwrap();
        puts.refuse_lost(&memory, false, || 0).unwrap();
        assert_eq!(undone(&puts, &memory), Some((lost.name(), "gone".into())));
    }
}
