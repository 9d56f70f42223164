//! Reading packs: blocks, and single chunks with the blocks around them kept for a while.

use super::came::Came;
use super::opened::Opened;
use super::rescue::Lost;
use super::table::Told;
use super::{Healed, Lru};
use crate::cache::Copies;
use crate::index::{Index, Location, PackInfo};
use crate::lock::lock;
use crate::{Cache, Error, Repository, Result};
use drumlin_format::generation::MetaKeys;
use drumlin_format::pack::{self, Block, Codec, PackKind, Table};
use drumlin_format::{ChunkId, PackId};
use drumlin_seal::{SealKey, Secret};
use drumlin_store::Soon;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

/// Reads chunks of a repository. Shared by threads.
pub struct Reader {
    pub(super) repository: Repository,
    pub(super) index: Arc<Index>,
    pub(super) cache: Arc<Cache>,
    /// By the pack that a block was sealed for and the pack whose table gave the key: a table that claims a wrong key
    /// for somebody else's pack spoils nothing but its own blocks.
    keys: Mutex<HashMap<(PackId, PackId), Arc<SealKey>>>,
    pub(super) tables: Mutex<Lru<PackId, Table>>,
    /// Tables that are had from elsewhere.
    pub(super) taught: OnceLock<HashMap<PackId, Arc<Table>>>,
    blocks: Opened,
    pub(super) lost: Mutex<Lost>,
    /// Damaged packs at hand.
    healed: Mutex<Lru<PackId, Mutex<Option<Healed>>>>,
    /// Whether damage is healed by parity, or told.
    pub(super) heals: bool,
    /// Whether copies of tree packs are believed to be what the repository has.
    pub(super) copies: bool,
    /// Of a storage far away: blocks of contents as they came, which the next who needs a part of them need not fetch
    /// again.
    came: Option<Came>,
    /// Packs of which there are copies, and that the repository has as well.
    there: Mutex<HashSet<PackId>>,
    /// Packs whose own tables were asked because kept ones were of no use.
    pub(super) doubted: Mutex<HashSet<PackId>>,
    /// Packs that are of other generations than the index says.
    pub(super) generations: Mutex<HashMap<PackId, u32>>,
    /// Whether what index objects say of a pack's table is used where the table itself can't be read.
    pub(super) believes: bool,
    /// What index objects say of tables.
    pub(super) told: Mutex<Told>,
    /// A reader of the packs as seen through their bands, if there are any.
    pub(super) through: OnceLock<Option<Arc<Reader>>>,
}

/// Damaged packs that are kept at hand: directories and shards made again, 1 MiB and more of each.
const HEALED_MAX: usize = 4;
/// Enough for the packs of one restore window; a key takes some hundred bytes.
const KEYS_MAX: usize = 4096;
const TABLES_BYTES: usize = 12 << 20;

impl Reader {
    /// A reader that keeps decoded blocks of up to `block_cache_bytes`.
    pub fn new(repository: Repository, index: Arc<Index>, cache: Arc<Cache>, block_cache_bytes: usize) -> Self {
        Reader {
            repository,
            index,
            cache,
            keys: Mutex::new(HashMap::new()),
            tables: Mutex::new(Lru::new(TABLES_BYTES)),
            taught: OnceLock::new(),
            blocks: Opened::new(block_cache_bytes),
            lost: Mutex::new(Lost::default()),
            healed: Mutex::new(Lru::new(HEALED_MAX)),
            heals: true,
            copies: false,
            came: None,
            there: Mutex::default(),
            doubted: Mutex::default(),
            generations: Mutex::default(),
            believes: false,
            told: Mutex::default(),
            through: OnceLock::new(),
        }
    }

    /// This reader, which now tells damage even where parity makes up for it.
    pub fn without_parity(self) -> Self {
        Reader { heals: false, ..self }
    }

    /// This reader, which now uses this client's copies of tree packs and keeps copies of what it reads. Before it uses
    /// a copy it makes sure that the pack itself is there and has the right length. Not for checks of the repository.
    pub fn with_copies(self) -> Self {
        Reader { copies: true, ..self }
    }

    /// This reader, which now uses what the index says of a pack's table if the table itself can't be read, not even
    /// through its parity. For commands that want contents back, not for those that will refer to them.
    pub fn with_told_tables(self) -> Self {
        Reader { believes: true, ..self }
    }

    /// This reader, which now keeps up to so many bytes of the last blocks of contents from a far storage, sealed.
    /// Those that are not used up yet, according to [`Reader::used`], stay longest.
    pub fn with_room(self, bytes: usize) -> Self {
        let came = self.repository.store().is_far().then(|| Came::new(bytes));
        Reader { came, ..self }
    }

    /// The copies, if they may be used for this pack.
    fn copies_of(&self, info: &PackInfo) -> Option<&Copies> {
        self.cache.copies().filter(|_| self.copies && info.kind == PackKind::Tree)
    }

    /// Fill `buf` from the copy of a pack that is in the repository.
    fn copied(&self, info: &PackInfo, offset: u64, buf: &mut [u8]) -> bool {
        let Some(copies) = self.copies_of(info) else { return false };
        if !copies.has(info.id, offset, buf.len()) {
            return false;
        }
        if !lock(&self.there).contains(&info.id) {
            if !matches!(self.repository.store().len(&info.name()), Ok(Some(len)) if len == info.len) {
                return false;
            }
            lock(&self.there).insert(info.id);
        }
        copies.read(info.id, offset, buf)
    }

    /// Whether damage is healed, rather than told.
    pub(super) fn heals(&self) -> bool {
        self.heals
    }

    /// The repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Where it keeps what it knows.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The index.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Read, open and decode a block into `out`, which is replaced. `scratch` is room for the sealed bytes.
    /// The chunks' identities are not checked: see [`Reader::check`].
    pub fn block(
        &self,
        info: &PackInfo,
        table: &Table,
        number: u32,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.read_block(info, table, number, scratch, out, self.heals) {
            Err(e) if e.is_of_one_object() => match self.last_resort(&info.id)? {
                Some(through) => self.resorted(info, through.block(info, table, number, scratch, out), e),
                None => Err(e),
            },
            other => {
                if self.believes {
                    self.note_told(info);
                }
                other
            }
        }
    }

    fn read_block(
        &self,
        info: &PackInfo,
        table: &Table,
        number: u32,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
        heals: bool,
    ) -> Result<()> {
        let fail = |detail| info.damaged_block(number, detail);
        let block = table.blocks.get(number as usize).ok_or_else(|| fail("there is no such block"))?;
        // What stands in it is written over.
        scratch.resize(block.stored_len as usize, 0);
        let copies = self.copies_of(info);
        if self.copied(info, block.offset, scratch) {
            if self.decode(info, table, block, number, scratch, out).is_ok() {
                return Ok(());
            }
            copies.inspect(|copies| copies.forget(info.id));
        }
        let came = self.came.as_ref().filter(|_| info.kind == PackKind::Data);
        let coming = match came.map(|came| came.get((info.id, number))) {
            Some(Ok(sealed)) => {
                scratch.clone_from(&sealed);
                if self.decode(info, table, block, number, scratch, out).is_ok() {
                    return Ok(());
                }
                // By a wrong table it may have come with another length.
                scratch.resize(block.stored_len as usize, 0);
                None
            }
            Some(Err(coming)) => Some(coming),
            None => None,
        };
        let name = info.name();
        let read = self.repository.store().read_at(&name, block.offset, scratch).map_err(Error::from);
        if let Some(coming) = coming
            && read.is_ok()
        {
            coming.arrived(scratch);
        }
        let copy = copies.filter(|_| read.is_ok()).map(|copies| (copies, scratch.clone()));
        let read = read.and_then(|()| self.decode(info, table, block, number, scratch, out));
        let Err(why) = read else {
            copy.inspect(|(copies, sealed)| copies.keep(info.id, block.offset, sealed));
            return Ok(());
        };
        if !heals || !self.heal(info, &why, block.offset, scratch)? {
            return Err(why);
        }
        match self.decode(info, table, block, number, scratch, out) {
            // What is told of is what was found first.
            Err(e) if e.is_of_one_object() => return Err(why),
            other => other?,
        }
        self.repository.note_healed(&name);
        Ok(())
    }

    /// A block as it is sealed, into `out`, which is replaced; opened to see that it is whole, if this role can. What
    /// comes of it stands in `opened`. Where it can't, the pack's parity has to say that it is whole; of a pack without
    /// any nobody knows.
    pub fn sealed_block(
        &self,
        info: &PackInfo,
        table: &Table,
        number: u32,
        out: &mut Vec<u8>,
        opened: Option<&mut Vec<u8>>,
    ) -> Result<()> {
        let fail = |detail| info.damaged_block(number, detail);
        let block = table.blocks.get(number as usize).ok_or_else(|| fail("there is no such block"))?;
        out.resize(block.stored_len as usize, 0);
        let name = info.name();
        let Some(opened) = opened else {
            // Its parity alone can tell. What was adopted as it came would be sealed by new parity as it is.
            let pack = self.parity_of(info)?;
            let made_again = match &mut *lock(&pack) {
                Some(pack) => pack.read_sound(block.offset, out)?,
                None => self.repository.store().read_at(&name, block.offset, out).map(|()| false)?,
            };
            if made_again {
                self.repository.note_healed(&name);
            }
            return Ok(());
        };
        let mut read = self.repository.store().read_at(&name, block.offset, out).map_err(Error::from);
        read = read.and_then(|()| self.decode(info, table, block, number, &mut out.clone(), opened));
        let Err(why) = read else { return Ok(()) };
        if !self.heal(info, &why, block.offset, out)?
            || self.decode(info, table, block, number, &mut out.clone(), opened).is_err()
        {
            return Err(why);
        }
        self.repository.note_healed(&name);
        Ok(())
    }

    /// Whether a block is as it was sealed, with nothing of it to be made again, by the word of its pack's parity: for
    /// who can't open it. `None`: the pack has none that this program knows.
    ///
    /// # Errors
    /// The storage fails.
    pub fn is_as_sealed(&self, info: &PackInfo, table: &Table, number: u32) -> Result<Option<bool>> {
        let Some(block) = table.blocks.get(number as usize) else { return Ok(Some(false)) };
        let pack = self.parity_of(info)?;
        let mut pack = lock(&pack);
        let read = |pack: &mut Healed| pack.read_sound(block.offset, &mut vec![0; block.stored_len as usize]);
        pack.as_mut().map(|pack| Ok(!read(pack)?)).transpose()
    }

    /// Read bytes of a pack through its parity, after they were of no use as they stand. Whether there may be others
    /// now.
    fn heal(&self, info: &PackInfo, why: &Error, offset: u64, out: &mut [u8]) -> Result<bool> {
        if !why.is_of_one_object() || why.is_missing() {
            return Ok(false);
        }
        let pack = self.parity_of(info)?;
        let mut pack = lock(&pack);
        let Some(healed) = &mut *pack else { return Ok(false) };
        match healed.read_at(offset, out) {
            Ok(()) => Ok(true),
            Err(e) if e.is_of_one_object() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A pack as its parity shows it, if it has any.
    fn parity_of(&self, info: &PackInfo) -> Result<Arc<Mutex<Option<Healed>>>> {
        let mut all = lock(&self.healed);
        if let Some(pack) = all.get(&info.id) {
            return Ok(pack);
        }
        let pack = Arc::new(Mutex::new(Healed::open(&self.repository, &self.truly(info))?));
        all.put(info.id, pack.clone(), 1);
        Ok(pack)
    }

    /// Open and decode a block whose sealed bytes are in `sealed`, into `out`, which is replaced.
    pub fn decode(
        &self,
        info: &PackInfo,
        table: &Table,
        block: &Block,
        number: u32,
        sealed: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let fail = |detail| info.damaged_block(number, detail);
        let slot = table.slots.get(block.slot as usize).ok_or_else(|| fail("its key is not in the table"))?;
        let info = &*self.truly(info);
        let key = self.key(info, slot)?;
        let suite = self.repository.config().suite;
        let context = pack::header(info.kind, suite, info.generation, slot.origin).encode();
        let plain =
            key.open(block.number, &context, sealed).map_err(|_| fail("its bytes are not those that were sealed"))?;
        out.clear();
        match block.codec {
            Codec::Raw => out.extend_from_slice(plain),
            Codec::Padding => {}
            Codec::Zstd => {
                out.reserve_exact(block.raw_len as usize);
                DECOMPRESSOR
                    .with_borrow_mut(|d| d.decompress_to_buffer(plain, out))
                    .map_err(|_| fail("it can't be decompressed"))?;
            }
        }
        if out.len() != block.raw_len as usize { Err(fail("it is not as long as it should be")) } else { Ok(()) }
    }

    /// Whether bytes are the chunk of this id.
    pub fn check(&self, kind: PackKind, id: &ChunkId, bytes: &[u8]) -> Result<bool> {
        Ok(match kind {
            PackKind::Data => self.repository.data_ids()?.id(bytes) == id.0,
            PackKind::Tree => {
                let ids = self.repository.tree_ids();
                ids.ok_or_else(|| self.repository.not_allowed("tell tree nodes apart"))?.id(bytes) == id.0
            }
        })
    }

    /// One chunk, checked. The block that holds it is kept for the chunks beside it. Where a pack is gone or damaged,
    /// it is taken from another one that has it.
    ///
    /// # Errors
    /// [`Error::MissingChunk`]: no pack has it, by an index that was brought up to date for this. Damage
    /// ([`Error::is_damage`]): all that have it are damaged there beyond their parity, or gone. [`Error::NotAllowed`]:
    /// the key doesn't read this kind. That the storage fails, or has the pack where it has to be thawed first.
    pub fn chunk(&self, kind: PackKind, id: &ChunkId) -> Result<Vec<u8>> {
        let location = self.locate(id)?.ok_or(Error::MissingChunk(*id))?;
        match self.chunk_at(kind, id, location) {
            // A key that opens but few packs may find it in one of those.
            Err(e) if e.is_damage() || matches!(e, Error::NotAllowed { .. }) => {
                self.elsewhere(kind, id, &self.index.pack(location.pack).id)?.ok_or(e)
            }
            other => other,
        }
    }

    /// One chunk, checked, from where the index has it.
    ///
    /// # Errors
    /// As [`Reader::chunk_in`].
    pub fn chunk_at(&self, kind: PackKind, id: &ChunkId, location: Location) -> Result<Vec<u8>> {
        self.chunk_in(&self.index.pack(location.pack), location.ordinal, kind, id)
    }

    /// The chunk at one place of one pack, checked, whatever other packs hold it.
    ///
    /// # Errors
    /// As [`Reader::chunk`], of this pack alone; and damage, where its table has another chunk in that place.
    pub fn chunk_in(&self, info: &PackInfo, ordinal: u32, kind: PackKind, id: &ChunkId) -> Result<Vec<u8>> {
        self.read_chunk(info, self.table(info)?, ordinal, kind, id, self.heals)
    }

    /// As [`Reader::chunk_in`], but always through the pack's parity where that is needed.
    pub fn healed_chunk(&self, info: &PackInfo, ordinal: u32, kind: PackKind, id: &ChunkId) -> Result<Vec<u8>> {
        self.read_chunk(info, self.healed_table(info)?, ordinal, kind, id, true)
    }

    fn read_chunk(
        &self,
        info: &PackInfo,
        table: Arc<Table>,
        ordinal: u32,
        kind: PackKind,
        id: &ChunkId,
        heals: bool,
    ) -> Result<Vec<u8>> {
        let fail = |detail| info.damaged_block(0, detail);
        let chunk = table.chunks.get(ordinal as usize).filter(|c| c.id == *id && info.kind == kind);
        let chunk = chunk.ok_or_else(|| fail("the index and the pack's table contradict each other"))?;
        let cut = |block: &[u8]| -> Result<Option<Vec<u8>>> {
            let bytes = block.get(chunk.offset as usize..).and_then(|rest| rest.get(..chunk.len as usize));
            Ok(match bytes {
                Some(bytes) if self.check(kind, id, bytes)? => Some(bytes.to_vec()),
                _ => None,
            })
        };
        let turn = match self.blocks.get((info.id, chunk.block)) {
            Ok(block) => match cut(&block)? {
                Some(bytes) => return Ok(bytes),
                // By a wrong table another block may have come by this number.
                None => None,
            },
            Err(turn) => Some(turn),
        };
        let (mut scratch, mut block) = (SCRATCH.take(), Vec::new());
        let read = self.read_block(info, &table, chunk.block, &mut scratch, &mut block, heals);
        SCRATCH.set(scratch);
        read?;
        let block = Arc::new(block);
        if let Some(turn) = turn {
            turn.done(block.clone());
        }
        cut(&block)?.ok_or_else(|| info.damaged_block(chunk.block, "a chunk doesn't match its id"))
    }

    /// A hint that this chunk will soon be asked for: a store that is far away is asked for its block now.
    pub fn expect(&self, id: &ChunkId) {
        self.expect_next(id, &mut None);
    }

    /// As [`Reader::expect`], of one chunk after the other: many stand in one block, which is worth one hint. `last` is
    /// the block of the one before.
    pub fn expect_next(&self, id: &ChunkId, last: &mut Option<(PackId, u32)>) {
        let Ok(Some(location)) = self.index.lookup(id) else { return };
        let info = self.index.pack(location.pack);
        let Ok(table) = self.table(&info) else { return };
        let Some(chunk) = table.chunks.get(location.ordinal as usize).filter(|chunk| chunk.id == *id) else { return };
        let block = (info.id, chunk.block);
        if last.replace(block) != Some(block) && !self.blocks.is_known(block) {
            self.expect_block(&info, &table, chunk.block);
        }
    }

    /// A hint that this pack's table will soon be asked for.
    pub fn expect_table(&self, info: &PackInfo) {
        let len = info.table_len as usize;
        if !lock(&self.tables).contains(&info.id) && !self.kept_tables().is_some_and(|tables| tables.has(info.id)) {
            let name = info.name();
            self.repository.store().expect(Soon::Range { name: &name, offset: info.table_offset, len });
        }
    }

    /// Whether it keeps blocks of contents as they came: then it is worth saying what will be wanted.
    pub fn keeps_blocks(&self) -> bool {
        self.came.is_some()
    }

    /// So many bytes of a block of contents will be used, for [`Reader::with_room`].
    pub fn wanted(&self, info: &PackInfo, number: u32, bytes: u64) {
        self.came.iter().for_each(|came| came.wanted((info.id, number), bytes));
    }

    /// So many bytes of a block of contents were used.
    pub fn used(&self, info: &PackInfo, table: &Table, number: u32, bytes: u64) {
        if let (Some(came), Some(block)) = (&self.came, table.blocks.get(number as usize)) {
            came.used((info.id, number), bytes, u64::from(block.raw_len));
        }
    }

    /// A hint that this block will soon be asked for ([`Reader::block`]).
    pub fn expect_block(&self, info: &PackInfo, table: &Table, number: u32) {
        if let Some(block) = table.blocks.get(number as usize) {
            self.expect_stored(info, number, (block.offset, block.stored_len));
        }
    }

    /// The same of a block that stands there, by its offset and length.
    pub fn expect_stored(&self, info: &PackInfo, number: u32, (offset, len): (u64, u32)) {
        let len = len as usize;
        if !self.copies_of(info).is_some_and(|copies| copies.has(info.id, offset, len))
            && !self.came.as_ref().is_some_and(|came| came.is_known((info.id, number)))
        {
            self.repository.store().expect(Soon::Range { name: &info.name(), offset, len });
        }
    }

    fn key(&self, info: &PackInfo, slot: &pack::Slot) -> Result<Arc<SealKey>> {
        let of = (slot.origin, info.id);
        if let Some(key) = lock(&self.keys).get(&of) {
            return Ok(key.clone());
        }
        let secrets = self.repository.secrets();
        let suite = self.repository.config().suite;
        let header = pack::header(info.kind, suite, info.generation, slot.origin).encode();
        let name = || info.name();
        let private = match info.kind {
            PackKind::Data => secrets.data_key(info.generation),
            PackKind::Tree => secrets.meta_key(info.generation),
        };
        let secret: Secret = match (self.cache.pack_key(slot.origin), private) {
            (Some(secret), _) => secret,
            (None, Some(private)) => private.unwrap_key(&slot.wrapped, pack::WRAP_INFO, &header).map_err(|source| {
                Error::damaged(&name())(drumlin_format::Error::Seal { object: "pack key", source })
            })?,
            (None, None) if self.repository.opens(info.kind, 0) => {
                return Err(Error::UnknownGeneration { object: name(), generation: info.generation });
            }
            (None, None) => return Err(self.repository.not_allowed("read what is in the repository")),
        };
        let key = Arc::new(SealKey::new(suite, &secret));
        let mut keys = lock(&self.keys);
        if keys.len() >= KEYS_MAX {
            keys.clear();
        }
        keys.insert(of, key.clone());
        Ok(key)
    }
}

thread_local! {
    /// Room for a sealed block: fresh memory of that size costs as much as opening it.
    static SCRATCH: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    static DECOMPRESSOR: std::cell::RefCell<zstd::bulk::Decompressor<'static>> =
        std::cell::RefCell::new(zstd::bulk::Decompressor::new().expect("zstd gives a context unless memory is exhausted"));
}
