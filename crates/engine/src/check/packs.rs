//! The packs that the index names, and the chunks in each by their place: from the index objects alone.
//!
//! One pass over their [`Keys`] tells which chunks of a bad pack stand in others too.

use super::context::{Context, Read};
use super::finding::ObjectKind;
use super::signers::Signers;
use super::small::writes;
use crate::Result;
use crate::lock::lock;
use crate::reach::keys::Keys;
use crate::threads::on_threads;
use drumlin_format::index::{self, Entry};
use drumlin_format::pack::PackKind;
use drumlin_format::{IndexId, PackId};
use drumlin_repo::{Cache, PackInfo, names};
use drumlin_seal::checksum;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A pack.
pub(super) struct Pack {
    /// As the index has it.
    pub info: PackInfo,
    /// How many chunks are in it.
    pub chunks: u32,
    /// A checksum of its table.
    pub table_sum: [u8; 16],
    /// The index objects that name it, by number.
    pub named_by: Vec<u32>,
    /// How long it is in the storage; `None` if it isn't there.
    pub listed: Option<u64>,
}

impl Pack {
    /// Its name in the store.
    pub fn name(&self) -> String {
        names::pack(self.info.kind, self.info.id)
    }
}

/// What kind of finding is about such packs.
pub(super) fn object_kind(kind: PackKind) -> ObjectKind {
    match kind {
        PackKind::Data => ObjectKind::DataPack,
        PackKind::Tree => ObjectKind::TreePack,
    }
}

/// Some packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// How many.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All packs.
pub(super) struct Packs {
    pub packs: Vec<Pack>,
    /// Those that no index object names.
    pub leftover: Leftover,
    /// The index objects.
    pub objects: Vec<IndexId>,
    /// Those of them that can't be read.
    pub unreadable: HashSet<IndexId>,
    /// The numbers of the findings about those.
    pub unreadable_findings: Vec<u32>,
    /// Whether an index object that was listed was gone when it was to be read.
    pub vanished: bool,
    /// Their chunks. The packs have the same numbers there.
    pub keys: Keys,
}

impl Packs {
    /// Read all index objects, and compare what they name with the listings of packs.
    pub fn read(context: &Context, cache: &Cache, signers: &Signers) -> Result<Self> {
        let objects: Vec<_> = context.list(names::INDEX, IndexId::parse)?.into_iter().map(|(id, _)| id).collect();
        let packs = Mutex::new(Packs {
            packs: Vec::new(),
            leftover: Leftover::default(),
            objects,
            unreadable: HashSet::new(),
            unreadable_findings: Vec::new(),
            vanished: false,
            keys: Keys::new(cache)?,
        });
        let objects = lock(&packs).objects.clone();
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(id) = objects.get(number) else { return Ok(()) };
                let read = object(context, signers, *id)?;
                lock(&packs).take(context, *id, number as u32, read)?;
            }
        };
        on_threads("check", context.workers, work)?;
        let mut packs = packs.into_inner().unwrap_or_else(PoisonError::into_inner);
        packs.compare(context)?;
        Ok(packs)
    }

    /// Take over what came of reading an index object.
    fn take(&mut self, context: &Context, id: IndexId, number: u32, read: Object) -> Result<()> {
        match read {
            Object::Gone => self.vanished = true,
            Object::Unreadable(cause) => {
                self.unreadable.insert(id);
                self.unreadable_findings.push(context.findings.add(ObjectKind::Index, &names::index(id), cause));
            }
            Object::Entries(entries) => {
                for (entry, sum) in &entries {
                    self.add(context, number, entry, *sum)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, context: &Context, object: u32, entry: &Entry, table_sum: [u8; 16]) -> Result<()> {
        let info = PackInfo::from(entry);
        if let Some(number) = self.keys.number(&entry.pack) {
            let known = &mut self.packs[number as usize];
            if known.info != info || known.table_sum != table_sum {
                let other = names::index(self.objects[known.named_by[0] as usize]);
                let cause = format!("it contradicts '{other}' about pack '{}'", known.name());
                context.findings.add(ObjectKind::Index, &names::index(self.objects[object as usize]), cause);
            }
            known.named_by.push(object);
            return Ok(());
        }
        self.keys.add(entry)?;
        let chunks = entry.table.chunks.len() as u32;
        self.packs.push(Pack { info, chunks, table_sum, named_by: vec![object], listed: None });
        Ok(())
    }

    /// See which packs are there, by one listing a kind.
    fn compare(&mut self, context: &Context) -> Result<()> {
        for kind in [PackKind::Tree, PackKind::Data] {
            context.go_on()?;
            let listed = context.repository.store().list(names::folder(kind), &mut |listed| {
                let Some(id) = PackId::parse(names::last(&listed.name)) else { return };
                if listed.name != names::pack(kind, id) {
                    return;
                }
                match self.keys.number(&id).map(|number| &mut self.packs[number as usize]) {
                    Some(pack) if pack.info.kind == kind => pack.listed = Some(listed.len),
                    _ => {
                        self.leftover.packs += 1;
                        self.leftover.bytes += listed.len;
                    }
                }
            });
            listed.map_err(drumlin_repo::Error::from)?;
        }
        Ok(())
    }

    /// A pack by its number.
    pub fn pack(&self, number: u32) -> &Pack {
        &self.packs[number as usize]
    }

    /// Whether any of the index objects that named a pack is still there. If none is, whoever removed the pack had a
    /// right to.
    pub fn is_still_named(&self, context: &Context, pack: u32) -> Result<bool> {
        for object in &self.pack(pack).named_by {
            let name = names::index(self.objects[*object as usize]);
            if context.repository.store().len(&name).map_err(drumlin_repo::Error::from)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether all the index objects that were read are still there.
    pub fn still_stand(&self, context: &Context) -> Result<bool> {
        let now: HashSet<IndexId> = context.list(names::INDEX, IndexId::parse)?.into_iter().map(|(id, _)| id).collect();
        Ok(!self.vanished && self.objects.iter().all(|id| now.contains(id)))
    }
}

enum Object {
    Entries(Vec<(Entry, [u8; 16])>),
    Unreadable(String),
    Gone,
}

fn object(context: &Context, signers: &Signers, id: IndexId) -> Result<Object> {
    let name = names::index(id);
    let bytes = match context.get(&name)? {
        Read::Whole(bytes) => bytes,
        Read::Gone => return Ok(Object::Gone),
        Read::Unreadable(cause) => return Ok(Object::Unreadable(cause)),
    };
    Ok(match index::open(id, context.repository.secrets(), &bytes) {
        Ok((entries, signer)) => {
            // Whoever made it, readers use it: so what it names is looked at.
            signers.check(context.findings, (ObjectKind::Index, &name), &signer, writes, None);
            let with_sum = |entry: Entry| {
                let sum = checksum(&entry.table.encode());
                (entry, sum)
            };
            Object::Entries(entries.into_iter().map(with_sum).collect())
        }
        Err(e) => Object::Unreadable(e.to_string()),
    })
}
