//! Index objects one by one, as they are in the storage: for collectors and checks, which trust no cache.

use super::PackInfo;
use crate::{Error, Repository, Result, names};
use drumlin_format::index::{self, Entry, Hooks};
use drumlin_format::{Header, IndexId, ObjectType};
use drumlin_store::Kind;

/// The hooks of an index object seldom take more: of 64 Ki chunks they are a thousand, of 8 bytes each.
const HOOKS_BYTES: usize = 16 << 10;

impl Repository {
    /// All index objects and their lengths in bytes.
    pub fn index_objects(&self) -> Result<Vec<(IndexId, u64)>> {
        let mut objects = Vec::new();
        self.store().list(names::INDEX, &mut |listed| {
            objects.extend(IndexId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
        })?;
        Ok(objects)
    }

    /// What an index object says of its packs, without their chunks, behind the tag of its own generation; `None` if it
    /// is gone.
    pub fn index_hooks(&self, id: IndexId) -> Result<Option<(u32, Vec<Hooks>)>> {
        match self.store().len(&names::index(id))? {
            Some(len) => self.index_hooks_of(id, len),
            None => Ok(None),
        }
    }

    /// As [`Repository::index_hooks`], of an object whose length is known: as a rule in one step.
    pub fn index_hooks_of(&self, id: IndexId, object_len: u64) -> Result<Option<(u32, Vec<Hooks>)>> {
        let name = names::index(id);
        let read = || -> Result<(u32, Vec<Hooks>)> {
            let mut start = vec![0; HOOKS_BYTES.min(object_len as usize)];
            self.store().read_at(&name, 0, &mut start)?;
            let len = index::hooks_len(&start).map_err(Error::damaged(&name))?;
            if u64::from(len) > object_len {
                let detail = "it is shorter than it says";
                return Err(Error::damaged(&name)(drumlin_format::Error::Malformed { object: "index object", detail }));
            }
            let needed = index::PREFIX_BYTES + len as usize;
            if needed > start.len() {
                start.resize(needed, 0);
                self.store().read_at(&name, 0, &mut start)?;
            }
            let header = Header::decode(&start, ObjectType::Index).map_err(Error::damaged(&name))?;
            let hooks = index::open_hooks(id, self.secrets(), &start).map_err(Error::damaged(&name))?.0;
            Ok((header.generation, hooks))
        };
        gone(read())
    }

    /// The packs that an index object names, with their tables; `None` if it is gone.
    pub fn index_entries(&self, id: IndexId) -> Result<Option<Vec<Entry>>> {
        let name = names::index(id);
        let read = || -> Result<Vec<Entry>> {
            let bytes = self.store().get(&name)?;
            Ok(index::open(id, self.secrets(), &bytes).map_err(Error::damaged(&name))?.0)
        };
        gone(read())
    }
}

fn gone<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Error::Store(e)) if e.kind == Kind::Missing => Ok(None),
        other => other.map(Some),
    }
}

impl From<&Hooks> for PackInfo {
    fn from(of: &Hooks) -> Self {
        PackInfo {
            id: of.pack,
            kind: of.kind,
            generation: of.generation,
            len: of.pack_len,
            table_offset: of.table_offset,
            table_len: of.table_len,
        }
    }
}
