//! Reading packs whole: every byte is compared with something. The header and the footer with what they must be, the
//! table with what the index says of it and with its signature, each block is opened, each chunk's identity is made
//! again, and so is the parity.
//!
//! Each thread reads one pack after the other, in large pieces. A role that can't open blocks of a kind checks what is
//! around them.

use super::bad::Bad;
use super::context::Context;
use super::finding::ObjectKind;
use super::packs::{Packs, object_kind};
use super::signers::Signers;
use super::small::writes;
use crate::Result;
use crate::monitor::add;
use crate::reach::keys::Place;
use drumlin_format::HEADER_BYTES;
use drumlin_format::pack::{self, FOOTER_BYTES, Footer, PackKind, Table};
use drumlin_format::parity::Head;
use drumlin_repo::Repository;
use drumlin_repo::pack::{Encoder, Reader};
use drumlin_seal::checksum;

/// Bytes read at a time; more for a block that is longer.
const PIECE_BYTES: usize = 4 << 20;

/// What came of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is whole.
    Whole,
    /// It is not, which was told.
    Damaged,
    /// It was removed rightly.
    Removed,
}

/// Reads packs. One a thread.
pub(super) struct PackReader<'a> {
    pub context: &'a Context<'a>,
    pub packs: &'a Packs,
    pub reader: &'a Reader,
    pub signers: &'a Signers,
    pub bad: &'a Bad,
    piece: Vec<u8>,
    block: Vec<u8>,
}

/// Whether this role can open the blocks of such packs.
pub(super) fn opens(repository: &Repository, kind: PackKind) -> bool {
    repository.opens(kind, 0)
}

impl<'a> PackReader<'a> {
    /// A reader.
    pub fn new(
        context: &'a Context<'a>,
        packs: &'a Packs,
        reader: &'a Reader,
        signers: &'a Signers,
        bad: &'a Bad,
    ) -> Self {
        PackReader { context, packs, reader, signers, bad, piece: Vec::new(), block: Vec::new() }
    }

    /// Read a pack, which was there when packs were listed.
    pub fn read(&mut self, number: u32) -> Result<Outcome> {
        let pack = self.packs.pack(number);
        let mut one = OnePack { reader: self, number, name: pack.name(), damaged: false, parity: None };
        let read = one.whole();
        let damaged = one.damaged;
        match read {
            Ok(()) => Ok(if damaged { Outcome::Damaged } else { Outcome::Whole }),
            Err(Ended::Missing) if !self.packs.is_still_named(self.context, number)? => Ok(Outcome::Removed),
            Err(Ended::Missing) => {
                let finding = self.context.findings.add(object_kind(pack.info.kind), &pack.name(), "it isn't there");
                self.bad.all_of(number, Some(finding));
                Ok(Outcome::Damaged)
            }
            Err(Ended::Failed(e)) => Err(e),
        }
    }
}

/// Why the reading of a pack ended.
enum Ended {
    /// It isn't there any more.
    Missing,
    /// The check ends.
    Failed(crate::Error),
}

impl From<crate::Error> for Ended {
    fn from(e: crate::Error) -> Self {
        Ended::Failed(e)
    }
}

/// One pack at hand.
struct OnePack<'r, 'a> {
    reader: &'r mut PackReader<'a>,
    number: u32,
    name: String,
    damaged: bool,
    /// Makes the parity again, as long as all that comes before it could be read.
    parity: Option<Encoder>,
}

impl OnePack<'_, '_> {
    fn tell(&mut self, cause: impl Into<String>) -> u32 {
        self.damaged = true;
        self.reader.context.findings.add(self.kind(), &self.name, cause)
    }

    fn kind(&self) -> ObjectKind {
        object_kind(self.reader.packs.pack(self.number).info.kind)
    }

    /// Fill `self.reader.piece`; `false`, and it is told why, if the storage doesn't give out these bytes.
    fn fill(&mut self, offset: u64, len: usize) -> std::result::Result<Option<String>, Ended> {
        self.reader.context.go_on()?;
        let piece = &mut self.reader.piece;
        piece.resize(len, 0);
        let store = self.reader.context.repository.store();
        match store.read_at(&self.name, offset, piece).map_err(drumlin_repo::Error::from) {
            Ok(()) => {
                add(&self.reader.context.monitor.counters().bytes_read, len as u64);
                Ok(None)
            }
            Err(e) if e.is_missing() => Err(Ended::Missing),
            Err(e) if e.is_of_one_object() => Ok(Some(e.cause())),
            Err(e) => Err(Ended::Failed(e.into())),
        }
    }

    fn whole(&mut self) -> std::result::Result<(), Ended> {
        let (packs, number) = (self.reader.packs, self.number);
        let info = &packs.pack(number).info;
        let Some((table, sealed)) = self.table()? else {
            let finding = self.tell("nothing in it can be read without its table");
            self.reader.bad.all_of(number, Some(finding));
            return self.footer();
        };
        if opens(self.reader.context.repository, info.kind) {
            let head = self.head();
            self.parity = head.layout().filter(|layout| layout.pack_len() == info.len).map(|_| Encoder::default());
            self.blocks(&table)?;
            return self.tail(&head, &sealed);
        }
        match self.fill(0, HEADER_BYTES)? {
            Some(cause) => drop(self.tell(cause)),
            None => self.header(),
        }
        self.footer()
    }

    /// Check the header, which the piece at hand begins with.
    fn header(&mut self) {
        let info = &self.reader.packs.pack(self.number).info;
        let header = pack::header(info.kind, self.suite(), info.generation, info.id).encode();
        if !self.reader.piece.starts_with(&header) {
            self.tell("its header is not that of such a pack");
        }
    }

    /// What the directory of its parity begins with, if it has one.
    fn head(&self) -> Head {
        let info = &self.reader.packs.pack(self.number).info;
        let header = pack::header(info.kind, self.suite(), info.generation, info.id).encode();
        Head { header, table_offset: info.table_offset, table_len: info.table_len }
    }

    /// Read and check what follows the table: the parity, which must be what is made of all before it, and the footer.
    fn tail(&mut self, head: &Head, sealed: &[u8]) -> std::result::Result<(), Ended> {
        let info = &self.reader.packs.pack(self.number).info;
        let table_end = info.table_offset + u64::from(info.table_len);
        let expected = self.parity.take().and_then(|mut encoder| {
            encoder.write(sealed);
            encoder.finish(head)
        });
        let Some(expected) = expected else { return self.footer() };
        let unprotected = "its contents are intact, but could not be healed everywhere if they were damaged as well";
        let before = self.damaged;
        if let Some(cause) = self.fill(table_end, expected.len() + FOOTER_BYTES)? {
            self.footer()?;
            if !before && !self.damaged {
                self.tell(format!("its parity can't be read ({cause}): {unprotected}"));
            }
            return Ok(());
        }
        // Of a pack that is damaged otherwise, what its parity is worth is asked when that is healed.
        if !before && !self.reader.piece.starts_with(&expected) {
            self.tell(format!("its parity is damaged: {unprotected}"));
        }
        self.reader.piece.drain(..expected.len());
        self.check_footer();
        Ok(())
    }

    /// Read and check the footer.
    fn footer(&mut self) -> std::result::Result<(), Ended> {
        let info = &self.reader.packs.pack(self.number).info;
        match self.fill(info.len - FOOTER_BYTES as u64, FOOTER_BYTES)? {
            Some(cause) => drop(self.tell(cause)),
            None => self.check_footer(),
        }
        Ok(())
    }

    /// Check the footer, which is the piece at hand.
    fn check_footer(&mut self) {
        let info = &self.reader.packs.pack(self.number).info;
        let header = pack::header(info.kind, self.suite(), info.generation, info.id);
        match Footer::decode(&self.reader.piece, &header, info.len) {
            Ok(footer) if (footer.table_offset, footer.table_len) == (info.table_offset, info.table_len) => {}
            Ok(_) => drop(self.tell("its footer and its index object disagree about its table")),
            Err(e) => drop(self.tell(e.to_string())),
        }
    }

    fn suite(&self) -> drumlin_seal::Suite {
        self.reader.context.repository.config().suite
    }

    /// Read and check the table.
    fn table(&mut self) -> std::result::Result<Option<(Table, Vec<u8>)>, Ended> {
        let packs = self.reader.packs;
        let known = packs.pack(self.number);
        let info = &known.info;
        let header = pack::header(info.kind, self.suite(), info.generation, info.id);
        if let Some(cause) = self.fill(info.table_offset, info.table_len as usize)? {
            self.tell(cause);
            return Ok(None);
        }
        let sealed = self.reader.piece.clone();
        let secrets = self.reader.context.repository.secrets();
        let (table, signer) = match Table::open(&header, secrets, sealed.clone()) {
            Ok(opened) => opened,
            Err(e) => {
                self.tell(e.to_string());
                return Ok(None);
            }
        };
        let (context, signers) = (self.reader.context, self.reader.signers);
        self.damaged |= !signers.check(context.findings, (self.kind(), &self.name), &signer, writes, None);
        if checksum(&table.encode()) != known.table_sum {
            self.tell("its table is not the one that its index object has");
            return Ok(None);
        }
        Ok(Some((table, sealed)))
    }

    /// Read and check all blocks. The table is the index's, so they fill what lies between header and table.
    fn blocks(&mut self, table: &Table) -> std::result::Result<(), Ended> {
        let mut first = 0;
        // The header is read with the first of them.
        let mut ahead = HEADER_BYTES;
        while first < table.blocks.len() {
            let (mut end, mut len) = (first, 0);
            while let Some(block) = table.blocks.get(end)
                && (end == first || len + block.stored_len as usize <= PIECE_BYTES)
            {
                len += block.stored_len as usize;
                end += 1;
            }
            if self.fill(table.blocks[first].offset - ahead as u64, ahead + len)?.is_none() {
                if ahead > 0 {
                    self.header();
                }
                let mut piece = std::mem::take(&mut self.reader.piece);
                if let Some(encoder) = &mut self.parity {
                    encoder.write(&piece);
                }
                let mut rest = &mut piece[ahead..];
                for number in first..end {
                    let (sealed, left) = rest.split_at_mut(table.blocks[number].stored_len as usize);
                    rest = left;
                    self.block(table, number, sealed)?;
                }
                self.reader.piece = piece;
            } else {
                // A bad sector is in one or two of them. What can't be read has no parity to compare with.
                self.parity = None;
                for number in first..end {
                    let block = &table.blocks[number];
                    if let Some(cause) = self.fill(block.offset, block.stored_len as usize)? {
                        self.bad_block(table, number, &cause);
                        continue;
                    }
                    let mut sealed = std::mem::take(&mut self.reader.piece);
                    self.block(table, number, &mut sealed)?;
                    self.reader.piece = sealed;
                }
            }
            (first, ahead) = (end, 0);
        }
        Ok(())
    }

    fn block(&mut self, table: &Table, number: usize, sealed: &mut [u8]) -> std::result::Result<(), Ended> {
        let info = &self.reader.packs.pack(self.number).info;
        let block = &table.blocks[number];
        let mut out = std::mem::take(&mut self.reader.block);
        let decoded = self.reader.reader.decode(info, table, block, number as u32, sealed, &mut out);
        let checked = decoded.map_err(crate::Error::from).and_then(|()| self.chunks(table, number, &out));
        self.reader.block = out;
        match checked {
            Err(crate::Error::Repo(e)) if e.is_of_one_object() => {
                let cause = match &e {
                    drumlin_repo::Error::DamagedBlock { detail, .. } => (*detail).to_owned(),
                    other => other.cause(),
                };
                self.bad_block(table, number, &cause);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn bad_block(&mut self, table: &Table, number: usize, cause: &str) {
        let finding = self.tell(format!("block {number}: {cause}"));
        let block = &table.blocks[number];
        for ordinal in block.first_chunk..block.first_chunk + block.chunks {
            self.reader.bad.one_of(Place { pack: self.number, ordinal }, finding);
        }
    }

    /// Make the identity of each of a block's chunks again.
    fn chunks(&mut self, table: &Table, number: usize, bytes: &[u8]) -> Result<()> {
        let kind = self.reader.packs.pack(self.number).info.kind;
        let block = &table.blocks[number];
        for at in block.first_chunk..block.first_chunk + block.chunks {
            // The table's decoder has seen to it that a block's chunks fill it.
            let chunk = &table.chunks[at as usize];
            let content = bytes.get(chunk.offset as usize..).and_then(|b| b.get(..chunk.len as usize));
            if !self.reader.reader.check(kind, &chunk.id, content.unwrap_or_default())? {
                let finding = self.tell(format!("block {number}: chunk {} doesn't match its id", chunk.id));
                self.reader.bad.one_of(Place { pack: self.number, ordinal: at }, finding);
            }
        }
        Ok(())
    }
}
