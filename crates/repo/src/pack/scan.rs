//! What packs say themselves, whatever index objects say of them: their own tables, and who has signed those.

use super::{read_footer, read_table};
use crate::keys::TrustedKey;
use crate::{Error, PackInfo, Repository, Result, names};
use drumlin_format::index::Entry;
use drumlin_format::key::Role;
use drumlin_format::pack::{Footer, PackKind, Table};
use drumlin_format::{KeyId, PackId};
use std::collections::{HashMap, HashSet};

impl Repository {
    /// What some packs say themselves: their own tables, and who has signed them, if the owner has certified that key.
    /// Those that can't be read say nothing.
    ///
    /// # Errors
    /// The storage fails.
    pub fn ask_tables<T: Sync, N, R: Send>(
        &self,
        packs: &[T],
        name: impl for<'t> Fn(&'t T) -> (N, &'t PackInfo) + Sync,
        take: impl Fn(N, Table, Option<(KeyId, Role)>) -> R + Sync,
    ) -> Result<Vec<R>> {
        let trusted = self.trusted_keys()?;
        let asked = self.ask_many(packs, |pack| {
            let (name, info) = name(pack);
            match read_table(self, info) {
                Ok((table, signer)) => {
                    let key = trusted.get(&signer.key).filter(|key| signer.verify(&key.verifying).is_ok());
                    Ok(Some(take(name, table, key.map(|key| (signer.key, key.role)))))
                }
                Err(e) if e.is_of_one_object() || e.frozen().is_some() => Ok(None),
                Err(e) => Err(e),
            }
        })?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Those of some packs that a client has written whose key adds and reads nothing: it can open none but its own.
    ///
    /// # Errors
    /// The storage fails.
    pub fn of_writers<'i>(&self, packs: impl IntoIterator<Item = &'i PackInfo>) -> Result<HashSet<PackId>> {
        let mut trusted = self.trusted_keys()?;
        trusted.retain(|_, key| key.role == Role::Writer && key.revoked.is_none());
        if trusted.is_empty() {
            return Ok(HashSet::new());
        }
        let packs: Vec<&PackInfo> = packs.into_iter().collect();
        let own = self.ask_many(&packs, |info| match read_table(self, info) {
            Ok((_, signer)) => {
                let key = trusted.get(&signer.key).filter(|key| signer.verify(&key.verifying).is_ok());
                Ok(key.map(|_| info.id))
            }
            // A check tells of it.
            Err(e) if e.is_of_one_object() => Ok(None),
            Err(e) => Err(e),
        })?;
        Ok(own.into_iter().flatten().collect())
    }
}

/// Reads tables from the packs themselves.
pub struct PackScan<'a> {
    repository: &'a Repository,
    trusted: HashMap<KeyId, TrustedKey>,
}

impl<'a> PackScan<'a> {
    /// Of this repository, whose keys are read once.
    pub fn new(repository: &'a Repository) -> Result<Self> {
        Ok(PackScan { repository, trusted: repository.trusted_keys()? })
    }

    /// What an index object should say of a pack, from the pack alone. `pack_len` is its length in the storage; what it
    /// was when the pack was written is in what comes back, and may be another one where its end is damaged.
    ///
    /// # Errors
    /// The pack is damaged, or nobody signed its table who may write packs.
    pub fn entry(&self, kind: PackKind, pack: PackId, pack_len: u64) -> Result<Entry> {
        let name = names::pack(kind, pack);
        let damaged = |detail| Error::damaged(&name)(drumlin_format::Error::Malformed { object: "pack", detail });
        let (generation, footer) = read_footer(self.repository, kind, pack, pack_len)?;
        let Footer { table_offset, table_len, pack_len, .. } = footer;
        let info = PackInfo { id: pack, kind, generation, len: pack_len, table_offset, table_len };
        let (table, signer) = read_table(self.repository, &info)?;
        let key = self.trusted.get(&signer.key).filter(|key| key.role != Role::Reader);
        if key.is_none_or(|key| signer.verify(&key.verifying).is_err()) {
            return Err(damaged("it is not signed by a key that may write packs"));
        }
        if table.blocks_end() != table_offset {
            return Err(damaged("its table is not where it should be"));
        }
        Ok(Entry { pack, kind, generation, pack_len, table_len, table })
    }
}
