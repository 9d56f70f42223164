//! Tables of packs: from the pack itself, through its parity where it must be; as this client has kept them; and, of
//! packs that can't give them out, as index objects have them.

use super::reader::Reader;
use super::{Healed, read_footer};
use crate::cache::Tables;
use crate::lock::lock;
use crate::{Error, PackInfo, Repository, Result};
use drumlin_format::index::Entry;
use drumlin_format::pack::{self, Block, Footer, Table};
use drumlin_format::{IndexId, PackId, Signer};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// What index objects say of packs that can't give out their tables.
#[derive(Default)]
pub(super) struct Told {
    /// Which of them name a pack, once that was asked.
    objects: Option<HashMap<PackId, Vec<IndexId>>>,
    /// `None` where none has a table that fits.
    tables: HashMap<PackId, Option<Arc<Table>>>,
}

impl Reader {
    /// A pack's table of contents.
    pub fn table(&self, info: &PackInfo) -> Result<Arc<Table>> {
        if let Some(table) = self.table_at_hand(&info.id) {
            return Ok(table);
        }
        if let Some(table) = self.kept_table(info) {
            return Ok(table);
        }
        let own = match self.signed_table(info) {
            Err(e) if e.is_of_one_object() => match self.last_resort(&info.id)? {
                Some(through) => self.resorted(info, through.signed_table(info), e),
                None => Err(e),
            },
            other => other,
        };
        let table = match own {
            Ok((table, _)) => Arc::new(table),
            Err(e) if e.is_of_one_object() && !e.is_missing() && self.believes => self.told_table(info)?.ok_or(e)?,
            Err(e) => return Err(e),
        };
        self.put_at_hand(info.id, table.clone());
        self.kept_tables().inspect(|tables| tables.keep(info.id, &table));
        Ok(table)
    }

    pub(super) fn table_at_hand(&self, pack: &PackId) -> Option<Arc<Table>> {
        let taught = self.taught.get().and_then(|taught| taught.get(pack)).cloned();
        taught.or_else(|| lock(&self.tables).get(pack))
    }

    /// Keep in mind of which generation a pack is by its own word, if the index has it otherwise.
    pub(super) fn note_generation(&self, info: &PackInfo, generation: u32) {
        if generation != info.generation {
            lock(&self.generations).insert(info.id, generation);
        }
    }

    /// What is known of a pack, with its generation as it says itself, as far as it was asked.
    pub(super) fn truly<'a>(&self, info: &'a PackInfo) -> Cow<'a, PackInfo> {
        match lock(&self.generations).get(&info.id) {
            Some(generation) => Cow::Owned(PackInfo { generation: *generation, ..info.clone() }),
            None => Cow::Borrowed(info),
        }
    }

    /// A pack's table as an index object had it, if this client has kept it.
    fn kept_table(&self, info: &PackInfo) -> Option<Arc<Table>> {
        let table = self.kept_tables()?.get(info.id).filter(|table| table.blocks_end() == info.table_offset)?;
        let table = Arc::new(table);
        self.put_at_hand(info.id, table.clone());
        Some(table)
    }

    /// Where packs' tables are kept, if they may be used.
    pub(super) fn kept_tables(&self) -> Option<&Tables> {
        self.cache.tables().filter(|_| self.copies)
    }

    /// A pack was of no use. It may be the kept table that is wrong, and not the pack: its own is asked, once, and
    /// counts if it can be had.
    pub(super) fn doubt(&self, info: &PackInfo) {
        let Some(tables) = self.kept_tables().filter(|_| lock(&self.doubted).insert(info.id)) else { return };
        if let Ok((own, _)) = self.signed_table(info) {
            tables.forget(info.id);
            tables.keep(info.id, &own);
            self.put_at_hand(info.id, Arc::new(own));
        }
    }

    /// A pack's table of contents, by its parity where it must be, whatever the reader does otherwise.
    pub fn healed_table(&self, info: &PackInfo) -> Result<Arc<Table>> {
        Ok(match self.table_at_hand(&info.id) {
            Some(table) => table,
            None => {
                let (table, _, generation) = read_own(&self.repository, info)?;
                self.note_generation(info, generation);
                let table = Arc::new(table);
                self.put_at_hand(info.id, table.clone());
                table
            }
        })
    }

    /// Take these for the tables of packs in which they may be damaged, before any of those is read. They are kept:
    /// whoever has to be taught one may have it from nowhere else.
    pub fn teach(&self, tables: HashMap<PackId, Arc<Table>>) {
        let _ = self.taught.set(tables);
    }

    fn put_at_hand(&self, pack: PackId, table: Arc<Table>) {
        let bytes = table.chunks.len() * size_of::<pack::Chunk>() + table.blocks.len() * size_of::<Block>();
        lock(&self.tables).put(pack, table, bytes);
    }

    /// A pack's table of contents, read anew, and who signed it: to be compared with the certificates by whoever needs
    /// to know. [`Reader::table`] believes anybody who has a key.
    pub fn signed_table(&self, info: &PackInfo) -> Result<(Table, Signer)> {
        if !self.heals {
            return read_table_as_is(&self.repository, info);
        }
        let (table, signer, generation) = read_own(&self.repository, info)?;
        self.note_generation(info, generation);
        Ok((table, signer))
    }

    /// The table of a pack that is there and can't give it out, as an index object has it; `None` if none has one that
    /// fits. Chunks are checked by their ids as ever: a table that is a lie gives nothing back.
    pub(super) fn told_table(&self, info: &PackInfo) -> Result<Option<Arc<Table>>> {
        // Held meanwhile: whoever else wants such a table waits for the same.
        let mut told = lock(&self.told);
        if let Some(table) = told.tables.get(&info.id) {
            return Ok(table.clone());
        }
        if told.objects.is_none() {
            told.objects = Some(self.ask_what_is_told()?);
        }
        let objects = told.objects.as_ref().and_then(|objects| objects.get(&info.id)).cloned().unwrap_or_default();
        let mut found = None;
        for object in objects {
            let entries = match self.repository().index_entries(object) {
                Err(e) if e.is_of_one_object() => continue,
                other => other?.unwrap_or_default(),
            };
            let fits = |entry: &Entry| {
                entry.pack == info.id && entry.kind == info.kind && entry.table.blocks_end() == info.table_offset
            };
            if let Some(entry) = entries.into_iter().find(fits) {
                found = Some(Arc::new(entry.table));
                break;
            }
        }
        told.tables.insert(info.id, found.clone());
        Ok(found)
    }

    /// A block of a pack was read: if that was by such a table, it is to be told.
    pub(super) fn note_told(&self, info: &PackInfo) {
        let is_told = matches!(lock(&self.told).tables.get(&info.id), Some(Some(_)));
        if is_told {
            self.repository().note_healed(&info.name());
        }
    }

    /// Which index objects name which packs.
    fn ask_what_is_told(&self) -> Result<HashMap<PackId, Vec<IndexId>>> {
        let (objects, mut told) = (self.repository().index_objects()?, HashMap::<_, Vec<_>>::new());
        let hooks = self.repository().ask_many(&objects, |(object, len)| {
            match self.repository().index_hooks_of(*object, *len) {
                Err(e) if e.is_of_one_object() => Ok(None),
                other => other,
            }
        })?;
        for ((object, _), hooks) in objects.iter().zip(hooks) {
            for of in hooks.into_iter().flat_map(|(_, packs)| packs) {
                told.entry(of.pack).or_default().push(*object);
            }
        }
        Ok(told)
    }
}

/// Read a pack's table of contents from the store, by the pack's parity if it is damaged.
pub(crate) fn read_table(repository: &Repository, info: &PackInfo) -> Result<(Table, Signer)> {
    read_own(repository, info).map(|(table, signer, _)| (table, signer))
}

/// As [`read_table`], with the tag of the pack's generation: the pack's own word on it, if the index says otherwise.
fn read_own(repository: &Repository, info: &PackInfo) -> Result<(Table, Signer, u32)> {
    let as_it_is =
        |info: &PackInfo| read_table_as_is(repository, info).map(|(table, signer)| (table, signer, info.generation));
    match as_it_is(info) {
        Err(why) if why.is_of_one_object() && !why.is_missing() => {
            let name = info.name();
            let own = own_info(repository, info)?;
            if let Some(Ok(read)) = own.as_ref().map(as_it_is) {
                return Ok(read);
            }
            let info = own.as_ref().unwrap_or(info);
            let mut sealed = vec![0; info.table_len as usize];
            let healed = match Healed::open(repository, info)? {
                Some(mut pack) => pack.read_at(info.table_offset, &mut sealed),
                None => return Err(why),
            };
            match healed.and_then(|()| open_table(repository, info, sealed)) {
                Err(e) if e.is_of_one_object() => Err(why),
                other => {
                    repository.note_healed(&name);
                    other.map(|(table, signer)| (table, signer, info.generation))
                }
            }
        }
        other => other,
    }
}

/// Where a pack says itself that its table is, if that is elsewhere than an index object says, which may be wrong;
/// `None` if it can't be asked either.
fn own_info(repository: &Repository, info: &PackInfo) -> Result<Option<PackInfo>> {
    let Some(len) = repository.store().len(&info.name())? else { return Ok(None) };
    match read_footer(repository, info.kind, info.id, len) {
        Ok((generation, footer)) => {
            let Footer { table_offset, table_len, pack_len: len, .. } = footer;
            let own = PackInfo { generation, len, table_offset, table_len, ..info.clone() };
            Ok(Some(own).filter(|own| own != info))
        }
        Err(e) if e.is_of_one_object() => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_table_as_is(repository: &Repository, info: &PackInfo) -> Result<(Table, Signer)> {
    open_table(repository, info, sealed_table(repository, info)?)
}

fn sealed_table(repository: &Repository, info: &PackInfo) -> Result<Vec<u8>> {
    let mut sealed = vec![0; info.table_len as usize];
    repository.store().read_at(&info.name(), info.table_offset, &mut sealed)?;
    Ok(sealed)
}

fn open_table(repository: &Repository, info: &PackInfo, sealed: Vec<u8>) -> Result<(Table, Signer)> {
    let header = pack::header(info.kind, repository.config().suite, info.generation, info.id);
    let name = info.name();
    Table::open(&header, repository.secrets(), sealed).map_err(Error::damaged(&name))
}
