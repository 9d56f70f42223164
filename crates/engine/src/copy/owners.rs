//! Names of users and groups, as the leaves have them from which entries are taken.

use crate::lock::lock;
use drumlin_format::tree::{Leaf, Meta};
use drumlin_repo::tree::NameSource;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The names for the leaf at hand. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Owners(Arc<Mutex<Names>>);

#[derive(Default)]
struct Names {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
}

impl Owners {
    fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.0)
    }

    /// A new leaf begins: as many names are held as one can have.
    pub fn clear(&self) {
        let mut names = self.names();
        names.users.clear();
        names.groups.clear();
    }

    /// Take note of the names of an entry's owner and group, which is of this leaf.
    pub fn learn(&self, leaf: &Leaf, meta: &Meta) {
        let mut names = self.names();
        let names = &mut *names;
        let pairs =
            [(&mut names.users, &leaf.owners.users, meta.uid), (&mut names.groups, &leaf.owners.groups, meta.gid)];
        for (known, of_leaf, id) in pairs {
            if !known.contains_key(&id)
                && let Ok(at) = of_leaf.binary_search_by_key(&id, |(of, _)| *of)
            {
                known.insert(id, of_leaf[at].1.clone());
            }
        }
    }
}

impl NameSource for Owners {
    fn user(&mut self, uid: u32) -> Option<Vec<u8>> {
        self.names().users.get(&uid).cloned()
    }

    fn group(&mut self, gid: u32) -> Option<Vec<u8>> {
        self.names().groups.get(&gid).cloned()
    }
}
