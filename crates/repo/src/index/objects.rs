//! Index objects one by one, as they are in the storage: for collectors and checks, which trust no cache.

use super::PackInfo;
use crate::{Error, Repository, Result, names};
use drumlin_format::index::{self, Entry, Hooks};
use drumlin_format::{Header, IndexId, ObjectType};
use drumlin_store::Kind;

impl Repository {
    /// All index objects and their lengths in bytes.
    pub fn index_objects(&self) -> Result<Vec<(IndexId, u64)>> {
        let mut objects = Vec::new();
        self.store().list(names::INDEX, &mut |listed| {
            objects.extend(IndexId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
        })?;
        Ok(objects)
    }

    /// What an index object says of its packs, without their chunks, behind the tag of its own generation; `None` if it is gone.
    pub fn index_hooks(&self, id: IndexId) -> Result<Option<(u32, Vec<Hooks>)>> {
        let name = names::index(id);
        let mut prefix = vec![0; index::PREFIX_BYTES];
        let read = |prefix: &mut Vec<u8>| -> Result<(u32, Vec<Hooks>)> {
            let store = self.store();
            store.read_at(&name, 0, prefix)?;
            let len = index::hooks_len(prefix).map_err(Error::damaged(&name))?;
            let Some(object_len) = store.len(&name)? else {
                // Somebody has removed it since.
                let gone = drumlin_store::Error::because(Kind::Missing, "read", &name, &store.location(), "it is gone");
                return Err(gone.into());
            };
            if u64::from(len) > object_len {
                let detail = "it is shorter than it says";
                return Err(Error::damaged(&name)(drumlin_format::Error::Malformed { object: "index object", detail }));
            }
            prefix.resize(index::PREFIX_BYTES + len as usize, 0);
            store.read_at(&name, 0, prefix)?;
            let header = Header::decode(prefix, ObjectType::Index).map_err(Error::damaged(&name))?;
            let hooks = index::open_hooks(id, self.secrets(), prefix).map_err(Error::damaged(&name))?.0;
            Ok((header.generation, hooks))
        };
        gone(read(&mut prefix))
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
