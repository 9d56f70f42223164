//! Writing packs: many threads code and seal blocks at once, one stream a pack takes them in.
//!
//! A thread takes a ticket (pack and block number: the nonce, never given twice), codes, seals and checks its block
//! without any lock, and then appends it. A pack that is full gives no more tickets; whoever brings back its last one
//! has it closed by a thread of its own: table, footer, name. A pack appears in the store complete or not at all.

use super::{BlockBuilder, Coder, Coding, Encoder};
use crate::beside::{Beside, apart};
use crate::lock::lock;
use crate::{Cache, Error, Repository, Result, names, random_id, random_secret};
use drumlin_format::index::Entry;
use drumlin_format::pack::{self, Block, Codec, Footer, PackKind, Slot, Table, size_class};
use drumlin_format::parity::Head;
use drumlin_format::{ChunkId, Header, PackId};
use drumlin_seal::{SealKey, Secret, TAG_BYTES};
use drumlin_store::Upload;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A pack that was closed: what the index shall know of it, and its key for the local cache.
pub struct Finished {
    /// The pack and its table.
    pub entry: Entry,
    /// The key of its blocks.
    pub key: Secret,
}

/// How often it is looked whether a pack is closed that nobody wants any more.
const GIVING_UP_LOOK: Duration = Duration::from_millis(5);

/// Packs of a kind that may be on their way to the disk at once, besides the one that is being filled.
const CLOSING_MAX: usize = 1;

/// A pack of tiny chunks is closed early: its table is held in memory by whoever writes or reads it.
const PACK_CHUNKS_MAX: usize = 64 << 10;

/// What appending a block took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appended {
    /// Bytes of the block in the pack.
    pub bytes: u64,
    /// Time spent waiting for the storage to take them.
    pub waited: Duration,
}

/// Where finished packs go.
type Sink = Arc<dyn Fn(Finished) -> Result<()> + Send + Sync>;

/// Writes packs of one kind.
pub struct Packer {
    repository: Repository,
    kind: PackKind,
    /// The tag of the generation of its packs.
    generation: u32,
    current: Mutex<Option<Arc<OpenPack>>>,
    sink: Sink,
    /// Where copies of blocks that are written are kept, if they are.
    copies: Option<Arc<Cache>>,
    stored: AtomicU64,
    /// Packs that are being closed: their bytes have to reach the disk, which takes long and needs no processor.
    closing: Mutex<VecDeque<JoinHandle<Result<()>>>>,
    /// Why a pack, or a part of one, could not be written. What was to be in it is claimed and stored nowhere, and who
    /// was told may be anybody: nothing that was appended may be referred to any more.
    failed: Mutex<Option<String>>,
    /// Packs that are not closed yet are to get no name any more.
    given_up: Arc<AtomicBool>,
}

struct OpenPack {
    id: PackId,
    header: Header,
    header_bytes: [u8; 32],
    secret: Secret,
    key: SealKey,
    stream: Mutex<Stream>,
}

struct Stream {
    /// `None` once the pack is closed.
    upload: Option<Coded>,
    table: Table,
    next_number: u64,
    /// Blocks that were taken over: the packs that they were sealed for, and their numbers.
    adopted: HashSet<(PackId, u64)>,
    /// Tickets given out and not yet brought back.
    outstanding: u32,
    /// Gives no more tickets.
    full: bool,
}

/// A pack on its way to the store; all bytes before its parity go through here.
struct Coded {
    upload: Box<dyn Upload>,
    parity: Encoder,
}

impl Coded {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.upload.write(bytes)?;
        self.parity.write(bytes);
        Ok(())
    }
}

impl Packer {
    /// A packer of packs of a generation that hands finished ones to `sink`.
    pub fn new(repository: Repository, kind: PackKind, generation: u32, sink: Sink) -> Self {
        let (current, stored, closing) = (Mutex::new(None), AtomicU64::new(0), Mutex::new(VecDeque::new()));
        let (failed, given_up) = Default::default();
        Packer { repository, kind, generation, current, sink, copies: None, stored, closing, failed, given_up }
    }

    /// This packer, which now keeps copies of its blocks in a cache.
    pub(crate) fn with_copies(self, cache: Arc<Cache>) -> Self {
        Packer { copies: Some(cache), ..self }
    }

    fn keep_copy(&self, pack: PackId, offset: u64, bytes: &[u8]) {
        if let Some(copies) = self.copies.as_ref().and_then(|cache| cache.copies()) {
            copies.keep(pack, offset, bytes);
        }
    }

    /// Bytes that blocks took in packs so far.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Code, seal, check and append a block; its builder is emptied.
    ///
    /// # Errors
    /// As [`Packer::append_chunks`]; the builder is left as it is.
    pub fn append(&self, block: &mut BlockBuilder, coder: &mut Coder, coding: Coding) -> Result<Appended> {
        let appended = self.append_chunks(&block.raw, &block.chunks, coder, coding)?;
        block.clear();
        Ok(appended)
    }

    /// Code, seal, check and append a block of chunks that stand one after the other in `raw`.
    ///
    /// # Errors
    /// That the block, once sealed, isn't opened to what it was made of ([`Error::Machine`]: it computes wrong); that
    /// nothing can be sealed; that the storage fails. After any of them nothing that the session has stored may be
    /// referred to ([`Packer::has_failed`]).
    pub fn append_chunks(
        &self,
        raw: &[u8],
        chunks: &[(ChunkId, u32)],
        coder: &mut Coder,
        coding: Coding,
    ) -> Result<Appended> {
        if chunks.is_empty() {
            return Ok(Appended::default());
        }
        self.kept(self.append_block(raw, chunks, coder, coding))
    }

    fn append_block(
        &self,
        raw: &[u8],
        chunks: &[(ChunkId, u32)],
        coder: &mut Coder,
        coding: Coding,
    ) -> Result<Appended> {
        let (pack, number) = self.ticket()?;
        let sealed = self.seal(&pack, number, raw, coder, coding);
        let start = Instant::now();
        let appended = sealed.and_then(|codec| {
            let mut stream = lock(&pack.stream);
            let (stored, offset) = (coder.coded.len() as u32, stream.table.blocks_end());
            // What the table refuses isn't written: all that came behind it would stand elsewhere than the table says.
            stream.table.push(0, number, codec, stored, raw.len() as u32, chunks).map_err(refused)?;
            let upload = stream.upload.as_mut().expect("a pack with tickets out is open");
            upload.write(&coder.coded)?;
            self.keep_copy(pack.id, offset, &coder.coded);
            stream.full |= self.is_full(&stream.table);
            Ok(stored)
        });
        let closed = self.bring_back(&pack);
        let bytes = u64::from(appended?);
        closed?;
        self.stored.fetch_add(bytes, Ordering::Relaxed);
        Ok(Appended { bytes, waited: start.elapsed() })
    }

    /// Take over a block as it stands in another pack of the same generation, sealed: `slot` is where its key is there.
    /// A pack takes each block of an origin once only, and only by one key: any other is the next pack's first. (A
    /// table that says of an origin that it has another key is a lie, and what was filed under that key would never be
    /// opened again.)
    pub fn adopt(&self, slot: &Slot, block: &Block, sealed: &[u8], chunks: &[(ChunkId, u32)]) -> Result<u64> {
        self.kept(self.adopt_block(slot, block, sealed, chunks))
    }

    fn adopt_block(&self, slot: &Slot, block: &Block, sealed: &[u8], chunks: &[(ChunkId, u32)]) -> Result<u64> {
        loop {
            let (pack, _) = self.ticket()?;
            let adopted = {
                let mut stream = lock(&pack.stream);
                let new = stream.takes(slot) && stream.adopted.insert((slot.origin, block.number));
                stream.full |= !new;
                let offset = stream.table.blocks_end();
                let adopted = if new { stream.adopt(slot, block, sealed, chunks).map(|()| true) } else { Ok(false) };
                if let Ok(true) = adopted {
                    self.keep_copy(pack.id, offset, sealed);
                }
                adopted
            };
            if let Ok(true) = adopted {
                let mut stream = lock(&pack.stream);
                stream.full |= self.is_full(&stream.table);
            }
            let closed = self.bring_back(&pack);
            let adopted = adopted?;
            closed?;
            if adopted {
                let bytes = sealed.len() as u64;
                self.stored.fetch_add(bytes, Ordering::Relaxed);
                return Ok(bytes);
            }
        }
    }

    /// Remember that something failed: it is told once, to whoever comes across it.
    fn kept<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|e| {
            lock(&self.failed).get_or_insert_with(|| e.to_string());
        })
    }

    /// Whether a pack, or a part of one, could not be written.
    pub fn has_failed(&self) -> bool {
        lock(&self.failed).is_some()
    }

    /// Have no pack named from now on: the session is about to end, and nothing would protect it. Those that are being
    /// closed are waited for until then; they hold on to the storage.
    pub(crate) fn give_up(&self, until: Instant) {
        self.given_up.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut *lock(&self.closing)) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(GIVING_UP_LOOK);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }

    /// Close the pack at hand, so that all that was appended is in finished packs. No block may be under way.
    ///
    /// # Errors
    /// What fails; [`Error::Unwritten`] if anything has failed before, whoever was told.
    pub fn finish(&self) -> Result<()> {
        let mut closed = Ok(());
        if let Some(pack) = lock(&self.current).take() {
            let mut stream = lock(&pack.stream);
            stream.full = true;
            if stream.outstanding == 0 {
                closed = self.close(&pack, &mut stream);
            }
        }
        self.kept(closed.and(self.join(0)))?;
        match &*lock(&self.failed) {
            Some(cause) => Err(Error::Unwritten(cause.clone())),
            None => Ok(()),
        }
    }

    /// Wait until no more than so many packs are being closed. The first failure is told, once all of these have ended.
    fn join(&self, most: usize) -> Result<()> {
        let (mut closing, mut closed) = (lock(&self.closing), Ok(()));
        while closing.len() > most
            && let Some(thread) = closing.pop_front()
        {
            let ended =
                thread.join().map_err(|_| Error::Machine("a thread that closed a pack ended unexpectedly".into()));
            closed = closed.and(ended.flatten());
        }
        closed
    }

    fn is_full(&self, table: &Table) -> bool {
        let config = self.repository.config();
        let end = table.blocks_end() + u64::from(config.block_bytes) / 2;
        end >= u64::from(config.pack_bytes) || table.chunks.len() >= PACK_CHUNKS_MAX
    }

    fn ticket(&self) -> Result<(Arc<OpenPack>, u64)> {
        let mut current = lock(&self.current);
        if let Some(pack) = &*current {
            let mut stream = lock(&pack.stream);
            if !stream.full {
                stream.outstanding += 1;
                stream.next_number += 1;
                return Ok((pack.clone(), stream.next_number - 1));
            }
        }
        let pack = Arc::new(self.begin()?);
        *current = Some(pack.clone());
        Ok((pack, 0))
    }

    fn begin(&self) -> Result<OpenPack> {
        let config = self.repository.config();
        let id = PackId(random_id()?);
        let header = pack::header(self.kind, config.suite, self.generation, id);
        let header_bytes = header.encode();
        let secret = random_secret()?;
        let public = self.repository.public_key(self.kind, self.generation)?;
        let wrapped = public.wrap(&secret, pack::WRAP_INFO, &header_bytes, &random_secret()?).map_err(|source| {
            Error::damaged(names::CONFIG)(drumlin_format::Error::Seal { object: "public key", source })
        })?;
        let upload = self.repository.store().upload(&names::pack(self.kind, id), u64::from(config.pack_bytes))?;
        let mut upload = Coded { upload, parity: Encoder::default() };
        upload.write(&header_bytes)?;
        let table = Table { slots: vec![Slot { origin: id, wrapped }], ..Table::default() };
        let adopted = HashSet::new();
        let stream = Stream { upload: Some(upload), table, next_number: 1, adopted, outstanding: 1, full: false };
        let key = SealKey::new(config.suite, &secret);
        Ok(OpenPack { id, header, header_bytes, secret, key, stream: Mutex::new(stream) })
    }

    /// The sealed block is left in `coder.coded`.
    fn seal(&self, pack: &OpenPack, number: u64, raw: &[u8], coder: &mut Coder, coding: Coding) -> Result<Codec> {
        let codec = coder.encode(raw, coding).map_err(|e| Error::Machine(format!("zstd failed: {e}")))?;
        #[cfg(test)]
        coder.bend(super::coder::Bend::Coded);
        match codec {
            Codec::Raw => pack.key.seal_into(number, &pack.header_bytes, raw, &mut coder.coded),
            _ => pack.key.seal(number, &pack.header_bytes, &mut coder.coded),
        }
        #[cfg(test)]
        coder.bend(super::coder::Bend::Sealed);
        let opened = pack.key.open_into(number, &pack.header_bytes, &coder.coded, &mut coder.opened);
        if opened.is_err() || !coder.decodes_to(codec, raw) {
            // No damage of the repository, which a second attempt or a repair would be for.
            return Err(Error::Machine(format!(
                "block {number} of pack {} did not decode to what went into it, before it was written: this machine's memory or \
                 processor is failing. Nothing that refers to it was stored. Test the memory before you trust this machine with anything",
                pack.id
            )));
        }
        Ok(codec)
    }

    fn bring_back(&self, pack: &Arc<OpenPack>) -> Result<()> {
        let mut stream = lock(&pack.stream);
        stream.outstanding -= 1;
        if stream.full && stream.outstanding == 0 && stream.upload.is_some() {
            self.close(pack, &mut stream)?;
        }
        Ok(())
    }

    /// Hand the pack to a thread that closes it. Of the threads before at most one goes on: each holds buffers.
    fn close(&self, pack: &Arc<OpenPack>, stream: &mut Stream) -> Result<()> {
        let Some(upload) = stream.upload.take() else { return Ok(()) };
        let closing = Closing {
            repository: self.repository.clone(),
            kind: self.kind,
            pack: pack.clone(),
            upload,
            table: std::mem::take(&mut stream.table),
            number: stream.next_number,
            sink: self.sink.clone(),
            given_up: self.given_up.clone(),
        };
        // That another pack has failed is no reason for this one to.
        let joined = self.join(CLOSING_MAX - 1);
        match apart("close-pack", move || closing.run()) {
            Beside::Thread(thread) => lock(&self.closing).push_back(thread),
            Beside::Done(closed) => return joined.and(closed),
        }
        joined
    }
}

impl Stream {
    /// Whether the blocks of an origin that were taken over so far, if any were, have this key.
    fn takes(&self, slot: &Slot) -> bool {
        self.table.slots.iter().all(|known| known.origin != slot.origin || known.wrapped == slot.wrapped)
    }

    fn adopt(&mut self, slot: &Slot, block: &Block, sealed: &[u8], chunks: &[(ChunkId, u32)]) -> Result<()> {
        let place = match self.table.slots.iter().position(|s| s.origin == slot.origin) {
            Some(place) => place,
            None => {
                self.table.slots.push(slot.clone());
                self.table.slots.len() - 1
            }
        };
        let len = sealed.len() as u32;
        self.table.push(place as u32, block.number, block.codec, len, block.raw_len, chunks).map_err(refused)?;
        self.upload.as_mut().expect("a pack with tickets out is open").write(sealed)
    }
}

/// A pack that takes no more blocks.
struct Closing {
    repository: Repository,
    kind: PackKind,
    pack: Arc<OpenPack>,
    upload: Coded,
    table: Table,
    number: u64,
    sink: Sink,
    given_up: Arc<AtomicBool>,
}

impl Closing {
    /// Write what a pack ends with, and have it named.
    fn run(self) -> Result<()> {
        let Closing { repository, kind, pack, upload, mut table, number, sink, given_up } = self;
        // What is made for that is gone before the pack is named, which takes long, and before the index learns of it,
        // which takes memory.
        let (upload, footer) = end(&repository, &pack, upload, &mut table, number)?;
        if given_up.load(Ordering::Relaxed) {
            return Err(Error::Unwritten("the run has ended before".into()));
        }
        upload.finish()?;
        if given_up.load(Ordering::Relaxed) {
            // It is nobody's: no index object names it any more.
            return Err(Error::Unwritten("the run has ended before".into()));
        }
        let (pack_len, table_len) = (footer.pack_len, footer.table_len);
        let (id, generation) = (pack.id, pack.header.generation);
        let entry = Entry { pack: id, kind, generation, pack_len, table_len, table };
        sink(Finished { entry, key: pack.secret.clone() })
    }
}

/// Padding, table, parity, footer: what is left is to have it named.
fn end(
    repository: &Repository,
    pack: &OpenPack,
    mut upload: Coded,
    table: &mut Table,
    number: u64,
) -> Result<(Box<dyn Upload>, Footer)> {
    let table_len = table.sealed_len();
    let padding = padding(table.blocks_end(), table_len);
    let mut zeros = vec![0; padding as usize - TAG_BYTES];
    pack.key.seal(number, &pack.header_bytes, &mut zeros);
    upload.write(&zeros)?;
    table.push(0, number, Codec::Padding, padding, 0, &[]).map_err(refused)?;
    let sealed = table.seal(&pack.header, table_len, repository.sealing_of(pack.header.generation)?);
    upload.write(&sealed)?;
    let (table_offset, table_len) = (table.blocks_end(), sealed.len() as u32);
    let Coded { mut upload, parity } = upload;
    // A pack beyond all bounds has none.
    let parity = parity.finish(&Head { header: pack.header_bytes, table_offset, table_len }).unwrap_or_default();
    let footer = Footer::new(table_offset, table_len, parity.len() as u32);
    upload.write(&parity)?;
    upload.write(&footer.encode(&pack.header))?;
    Ok((upload, footer))
}

/// A block that no reader would take must not be written.
fn refused(source: drumlin_format::Error) -> Error {
    Error::Misuse(format!("a block can't be stored: {source}"))
}

/// How long a padding block, tag included, makes the length of all before the parity one of the size classes; the
/// parity's follows from it. `table_len` is the sealed table's.
fn padding(blocks_end: u64, table_len: usize) -> u32 {
    (size_class(blocks_end + TAG_BYTES as u64 + table_len as u64) - blocks_end - table_len as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Registration;
    use crate::pack::coder::Bend;
    use crate::{CreateOptions, Index, NewLock, WriteSession};
    use drumlin_format::session::Session;
    use drumlin_store::{MemoryStore, Store};

    fn session(memory: &MemoryStore) -> (WriteSession, tempfile::TempDir) {
        let lock = NewLock::File(Secret::new([1; 32]));
        let store = Arc::new(memory.clone());
        let (repository, _) = Repository::create(store, CreateOptions::default(), lock, "test", 0).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let registration = Registration::begin(&repository, Session::new("host", "backup", 0)).unwrap();
        let index = Arc::new(Index::open(&repository, cache.clone()).unwrap());
        (WriteSession::begin(registration, index, cache), scratch)
    }

    fn append(session: &WriteSession, raw: &[u8], coder: &mut Coder, coding: Coding) -> Result<Appended> {
        let mut block = BlockBuilder::default();
        block.push(session.data.repository.data_id(raw).unwrap(), raw);
        session.data.append(&mut block, coder, coding)
    }

    /// Memory or a processor that fails: it is found out while the source is there, and nothing refers to anything of
    /// that run.
    #[test]
    fn a_block_that_does_not_decode_to_what_went_into_it_is_not_stored() {
        let text = b"some words that repeat, ".repeat(2000);
        for (bend, coding) in
            [(Bend::Coded, Coding::Zstd(3)), (Bend::Sealed, Coding::Zstd(3)), (Bend::Sealed, Coding::Raw)]
        {
            let memory = MemoryStore::new();
            let (session, _scratch) = session(&memory);
            let mut coder = Coder::new().unwrap();
            append(&session, &text[1..], &mut coder, coding).unwrap();
            coder.bends = Some(bend);
            let refused = append(&session, &text, &mut coder, coding).map(|_| ()).unwrap_err();
            let Error::Machine(words) = &refused else { panic!("{bend:?}, {coding:?}: {refused:?}") };
            assert!(words.starts_with("block 1 of pack") && words.contains("this machine's memory"), "{words}");
            assert!(!refused.is_damage(), "a backup would begin anew on this machine");
            assert!(session.has_failed());
            // A later block is sound, and changes nothing about that.
            append(&session, &text[2..], &mut coder, coding).unwrap();
            assert!(matches!(session.flush(), Err(Error::Unwritten(cause)) if cause == refused.to_string()));
            for folder in [names::INDEX, names::SNAPSHOTS] {
                memory.list(folder, &mut |listed| panic!("{bend:?}, {coding:?}: {} is there", listed.name)).unwrap();
            }
        }
    }
}
