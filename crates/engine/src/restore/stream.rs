//! Files written from their start to their end: large ones, and ones that replace others. Blocks are fetched ahead by
//! whoever has time.

use super::plan::STREAM_BYTES;
use super::worker::Context;
use super::{Overwrite, compare, existing};
use crate::holes::Holes;
use crate::lock::lock;
use crate::monitor::{Change, ProblemKind, add};
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use drumlin_format::pack::{PackKind, Table};
use drumlin_format::tree::{Data, Ref};
use drumlin_format::{ChunkId, PackId};
use drumlin_host::meta::{Extras, Kind, Stat, Time};
use drumlin_host::place::{self, BigFile, FileId, TargetDir, Wanted};
use drumlin_repo::PackInfo;
use drumlin_repo::tree::Refs;
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks fetched ahead of the one being written.
const AHEAD: usize = 3;

/// Refs that are foreseen of a storage far away: of a GiB or two. A few more each time.
const FORESEEN_MAX: usize = 32 << 10;
const FORESEEN_STEP: usize = 32;
/// Of these, so many different blocks are hinted at ahead of those being asked for, of all files together, as a store
/// keeps no more: what was changed here and there lies in turns in this pack and in that, and most steps go on in a
/// block that is there already.
const HINTED: usize = 14;

/// A file to be written in order.
pub(super) struct Stream {
    /// Its path in the source, for messages.
    pub path: Vec<u8>,
    /// Its directory below the target.
    pub dir: Vec<u8>,
    pub name: Vec<u8>,
    pub mode: u16,
    pub owner: (u32, u32),
    pub mtime: Time,
    pub size: u64,
    pub extras: Extras,
    pub data: Data,
    /// What of that name is there, and to be replaced.
    pub there: Option<Stat>,
    /// Whether that is to be replaced even if it is right: it is another file's, too.
    pub anew: bool,
    /// Bytes that the counters have of it: those looked at or written so far.
    pub counted: Cell<u64>,
}

/// Something that is to be fetched.
pub(super) struct Fetch {
    number: u64,
    what: Fetchable,
    reply: Sender<Fetched>,
}

enum Fetchable {
    Block(Part),
    /// One chunk: its place in the pack's table, or why that pack is of no use.
    Chunk {
        info: Arc<PackInfo>,
        id: ChunkId,
        len: u64,
        place: std::result::Result<u32, String>,
    },
}

/// A block of which chunks are wanted.
struct Part {
    info: Arc<PackInfo>,
    table: Arc<Table>,
    block: u32,
    /// Their ordinals.
    ordinals: Vec<u32>,
}

struct Fetched {
    number: u64,
    /// The block's bytes, its chunks checked; or those of the one chunk.
    outcome: std::result::Result<Vec<u8>, Stop>,
}

impl Fetch {
    pub fn process(self, context: &Context, scratch: &mut Vec<u8>) {
        let outcome = match self.what {
            Fetchable::Block(part) => part.fetch(context, scratch).map_err(Stop::from),
            Fetchable::Chunk { info, id, len, place } => chunk(context, &info, &id, len, place),
        };
        let _ = self.reply.send(Fetched { number: self.number, outcome });
    }
}

/// A chunk, from its block, which is kept for the small files that follow, or from wherever else it is.
fn chunk(
    context: &Context,
    info: &PackInfo,
    id: &ChunkId,
    len: u64,
    place: std::result::Result<u32, String>,
) -> std::result::Result<Vec<u8>, Stop> {
    let why = match place.map(|ordinal| context.reader.chunk_in(info, ordinal, PackKind::Data, id)) {
        Err(why) => why,
        Ok(Err(e)) if e.is_damage() => e.to_string(),
        Ok(Ok(content)) if content.len() as u64 != len => format!("chunk {id} is not as long as the file says"),
        Ok(found) => return Ok(found?),
    };
    match context.reader.elsewhere(PackKind::Data, id, &info.id)? {
        Some(content) if content.len() as u64 == len => Ok(content),
        _ => Err(Stop::Damaged(why)),
    }
}

impl Part {
    fn fetch(&self, context: &Context, scratch: &mut Vec<u8>) -> drumlin_repo::Result<Vec<u8>> {
        let mut bytes = lock(&context.spare).pop().unwrap_or_default();
        let read = context.reader.block(&self.info, &self.table, self.block, scratch, &mut bytes);
        let checked = read.and_then(|()| {
            for ordinal in &self.ordinals {
                let chunk = &self.table.chunks[*ordinal as usize];
                let content = bytes.get(chunk.offset as usize..).and_then(|b| b.get(..chunk.len as usize));
                if !context.reader.check(PackKind::Data, &chunk.id, content.unwrap_or_default())? {
                    return Err(self.info.damaged_block(self.block, "a chunk doesn't match its id"));
                }
            }
            Ok(())
        });
        let lens = self.ordinals.iter().map(|ordinal| u64::from(self.table.chunks[*ordinal as usize].len));
        context.reader.used(&self.info, &self.table, self.block, lens.sum());
        match checked {
            Err(e) if e.is_damage() => self.elsewhere(context, e),
            other => other.map(|()| bytes),
        }
    }

    /// The chunks that are wanted, each from wherever it is to be had, at their places in the block.
    fn elsewhere(&self, context: &Context, why: drumlin_repo::Error) -> drumlin_repo::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for ordinal in &self.ordinals {
            let chunk = &self.table.chunks[*ordinal as usize];
            let content = context.reader.elsewhere(PackKind::Data, &chunk.id, &self.info.id)?;
            // Of another length than the pack's table has it, that table lies.
            let Some(content) = content.filter(|content| content.len() == chunk.len as usize) else {
                return Err(why);
            };
            let end = chunk.offset as usize + content.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[chunk.offset as usize..end].copy_from_slice(&content);
        }
        Ok(bytes)
    }
}

/// What comes next in the file.
enum Step {
    /// Some chunks of the block of that number, as (offset in the block, length).
    Block(u64, Vec<(u32, u32)>),
    Hole(u64),
}

/// Why a stream ended early.
enum Stop {
    Damaged(String),
    Place(place::Error),
    Fatal(Error),
}

impl From<place::Error> for Stop {
    fn from(e: place::Error) -> Self {
        Stop::Place(e)
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        match e {
            Error::Repo(e) => e.into(),
            e => Stop::Fatal(e),
        }
    }
}

impl From<drumlin_repo::Error> for Stop {
    fn from(e: drumlin_repo::Error) -> Self {
        if e.is_damage() { Stop::Damaged(e.to_string()) } else { Stop::Fatal(e.into()) }
    }
}

impl Stream {
    /// Write it, unless it is there and right.
    pub fn run(self: Box<Self>, context: &Context, scratch: &mut Vec<u8>) -> Result<()> {
        let placed = self.place(context, scratch);
        self.count(context, self.size);
        match placed {
            Ok(()) => Ok(()),
            Err(Stop::Fatal(e)) => Err(e),
            Err(Stop::Damaged(cause)) => {
                context.problem(&self.path, ProblemKind::Damaged, cause);
                Ok(())
            }
            Err(Stop::Place(e)) => {
                context.unwritable(&self.path, e);
                Ok(())
            }
        }
    }

    /// Count so many more of its bytes. What is there is first looked at and then perhaps written anew: no byte counts
    /// twice.
    fn count(&self, context: &Context, bytes: u64) {
        let bytes = bytes.min(self.size - self.counted.get());
        self.counted.set(self.counted.get() + bytes);
        add(&context.counters().bytes, bytes);
    }

    /// Say, in a dry run, that it would be written.
    fn tell(&self, context: &Context) {
        add(&context.counters().bytes_written, self.contents(context));
        context.placed(&self.path, place::Problems::new(), Change::Restored);
        if self.there.as_ref().is_some_and(|there| there.nlink > 1) {
            context.replaces(&self.path);
        }
    }

    /// Bytes of it that are no holes; all of them, if that can't be told.
    fn contents(&self, context: &Context) -> u64 {
        let Data::List(list) = &self.data else { return self.size };
        let len = |r: drumlin_repo::Result<Ref>| r.map(|r| if let Ref::Chunk { len, .. } = r { len } else { 0 });
        let refs = Refs::new(&context.reader, list).take_while(|_| !context.ended());
        refs.map(len).sum::<drumlin_repo::Result<u64>>().unwrap_or(self.size)
    }

    fn place(&self, context: &Context, scratch: &mut Vec<u8>) -> std::result::Result<(), Stop> {
        let Some(target) = &context.target else {
            self.tell(context);
            return Ok(());
        };
        let dir = match target.dir(&self.dir) {
            // What would be made by then need not be there yet.
            Err(_) if context.options.dry_run => {
                self.tell(context);
                return Ok(());
            }
            other => other?,
        };
        let wanted = Wanted { mode: self.mode, owner: Some(self.owner), mtime: self.mtime, extras: &self.extras };
        if let Some(id) = self.right(context, &dir)? {
            let amended = match context.options.dry_run {
                true => dir.may_amend(&self.name, Kind::File, id, &wanted).map(|()| place::Problems::new()),
                false => dir.amend(&self.name, Kind::File, id, &wanted),
            };
            match amended {
                // Written anew, and those names are left alone.
                Err(place::Error::Shared(_)) => {}
                amended => {
                    context.placed(&self.path, amended?, Change::Kept);
                    return Ok(());
                }
            }
        }
        if context.options.dry_run {
            self.tell(context);
            return Ok(());
        }
        let problems = if let Some(there) = &self.there {
            let temporary = dir.create_temp()?;
            self.fill(context, &temporary, scratch)?;
            if context.options.overwrite.spares() && existing::has_changed(&dir, &self.name, there) {
                // Somebody has saved it since it was found to be older: that is the newest there is.
                context.placed(&self.path, place::Problems::new(), Change::Kept);
                return Ok(());
            }
            existing::make_way(context, (&self.dir, &dir), &self.name, there)?;
            temporary.commit_as(&self.name, &wanted)?
        } else if context.options.overwrite.spares() {
            // A run that is killed leaves nothing that the next one would take for the user's.
            let temporary = dir.create_temp()?;
            self.fill(context, &temporary, scratch)?;
            temporary.commit_new(&self.name, &wanted)?
        } else {
            let file = dir.create_file(&self.name)?;
            if let Err(stop) = self.fill(context, &file, scratch) {
                drop(file);
                // Half a file under its own name would pass for a whole one.
                let _ = dir.remove(&self.name);
                return Err(stop);
            }
            file.finish(&wanted)?
        };
        context.placed(&self.path, problems, Change::Restored);
        Ok(())
    }

    /// What is there, if it is a file with these contents.
    fn right(&self, context: &Context, dir: &TargetDir) -> std::result::Result<Option<FileId>, Stop> {
        // To open a device may do something.
        if self.anew || self.there.as_ref().is_none_or(|there| there.kind != Kind::File) {
            return Ok(None);
        }
        let Ok((file, stat)) = dir.open_existing(&self.name) else { return Ok(None) };
        if stat.size != self.size {
            return Ok(None);
        }
        let is_right = context.options.overwrite == Overwrite::IfChanged && stat.mtime == self.mtime
            || compare::same(context, &file, &self.data, self.size, |len| self.count(context, len))?;
        Ok(is_right.then(|| FileId::of(&stat)))
    }

    fn fill(&self, context: &Context, file: &place::NewFile, scratch: &mut Vec<u8>) -> std::result::Result<(), Stop> {
        // In a long list holes may stand further down: room is set aside only where there can't be any.
        let holes = match &self.data {
            Data::List(list) => list.level > 0 || list.refs.iter().any(|r| matches!(r, Ref::Hole { .. })),
            _ => false,
        };
        file.set_early_flags(self.extras.flags);
        let mut out = BigFile::new(file, self.size, holes)?;
        let mut hasher = context.data_ids.hasher();
        let mut holes = Holes::default();
        let mut plan = Plan::new(context, &self.data, self.size);
        let mut steps: VecDeque<Step> = VecDeque::new();
        let mut arrived: VecDeque<Fetched> = VecDeque::new();
        let reply = bounded(AHEAD + 2);
        let mut blocks_ahead = 0;
        let mut at = 0u64;
        loop {
            while blocks_ahead < AHEAD
                && let Some(step) = plan.next(&reply.0)?
            {
                blocks_ahead += usize::from(matches!(step, Step::Block(..)));
                steps.push_back(step);
            }
            let Some(step) = steps.pop_front() else { break };
            if context.ended() {
                return Err(Stop::Fatal(Error::Interrupted));
            }
            match step {
                Step::Hole(len) => {
                    out.skip(len)?;
                    self.count(context, len);
                    holes.add(context.reader.cache(), at, len);
                    at += len;
                }
                Step::Block(number, chunks) => {
                    let bytes = wait(context, number, &reply.1, &mut arrived, scratch)?;
                    blocks_ahead -= 1;
                    for (offset, len) in chunks {
                        let content = bytes.get(offset as usize..).and_then(|rest| rest.get(..len as usize));
                        let content =
                            content.ok_or_else(|| Stop::Damaged("a chunk lies outside of its block".into()))?;
                        hasher.update(content);
                        out.write(content)?;
                        add(&context.counters().bytes_written, content.len() as u64);
                        self.count(context, content.len() as u64);
                        at += u64::from(len);
                    }
                    let mut spare = lock(&context.spare);
                    if spare.len() < AHEAD {
                        spare.push(bytes);
                    }
                }
            }
        }
        out.finish()?;
        let read = holes.finish(&mut hasher);
        read.map_err(|e| Stop::Fatal(Error::system("read back what was put aside of a file")(e)))?;
        let whole = match &self.data {
            Data::List(list) => Some(list.whole),
            Data::Chunk(id) => Some(id.0),
            Data::None => None,
        };
        if at != self.size || whole.is_some_and(|whole| whole != *hasher.finalize().as_bytes()) {
            let cause = "the file as a whole is not what was backed up, though each of its chunks is";
            return Err(Stop::Damaged(cause.into()));
        }
        Ok(())
    }
}

/// The block of that number, helping with fetches while it isn't there.
fn wait(
    context: &Context,
    number: u64,
    replies: &Receiver<Fetched>,
    arrived: &mut VecDeque<Fetched>,
    scratch: &mut Vec<u8>,
) -> std::result::Result<Vec<u8>, Stop> {
    loop {
        if let Some(at) = arrived.iter().position(|f| f.number == number)
            && let Some(fetched) = arrived.swap_remove_back(at)
        {
            return fetched.outcome;
        }
        if let Ok(fetched) = replies.try_recv() {
            arrived.push_back(fetched);
            continue;
        }
        select! {
            recv(replies) -> fetched => arrived.extend(fetched.ok()),
            recv(context.fetches.1) -> fetch => if let Ok(fetch) = fetch { fetch.process(context, scratch) },
        }
    }
}

/// What is to be fetched, one block after the other.
struct Plan<'a> {
    context: &'a Context<'a>,
    refs: Box<dyn Iterator<Item = drumlin_repo::Result<Ref>> + 'a>,
    /// Of a storage far away: refs that come, so that blocks which are wanted again stay, and the next ones are on
    /// their way.
    foreseen: VecDeque<Foreseen>,
    foresees: bool,
    /// How many of them have been looked at for what to hint at, and the blocks that were, and that nobody has asked
    /// for since.
    looked_at: usize,
    hinted: HashSet<(PackId, u32)>,
    held: Option<Ref>,
    next: u64,
    /// The pack at hand.
    pack: Option<(u32, Arc<PackInfo>, Arc<Table>)>,
    /// Others want what is in the same blocks: each is decoded once for all of them.
    is_small: bool,
}

/// A ref that comes, and where it is, if that could be told.
struct Foreseen {
    of: Ref,
    place: Option<Place>,
}

/// A block. Not the table that it stands in: of a file that lies in many packs each of some thousand refs would hold one
/// that nobody else has any more.
struct Place {
    info: Arc<PackInfo>,
    block: u32,
    /// Its offset and length.
    stored: (u64, u32),
}

impl Drop for Plan<'_> {
    /// A file may end early.
    fn drop(&mut self) {
        self.context.hinted.fetch_sub(self.hinted.len(), Ordering::Relaxed);
    }
}

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, data: &Data, size: u64) -> Self {
        let is_small = size < STREAM_BYTES;
        let refs: Box<dyn Iterator<Item = drumlin_repo::Result<Ref>> + 'a> = match data {
            Data::None => Box::new(std::iter::empty()),
            Data::Chunk(id) => Box::new(std::iter::once(Ok(Ref::Chunk { id: *id, len: size }))),
            Data::List(list) => Box::new(Refs::new(&context.reader, list)),
        };
        let foresees = !is_small && context.reader.keeps_blocks();
        let (foreseen, hinted) = (VecDeque::new(), HashSet::new());
        Plan { context, refs, foreseen, foresees, looked_at: 0, hinted, held: None, next: 0, pack: None, is_small }
    }

    fn step(&mut self) -> std::result::Result<Option<Ref>, Stop> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        if self.foresees {
            self.foresee()?;
            self.hint();
            if let Some(first) = self.foreseen.pop_front() {
                self.looked_at = self.looked_at.saturating_sub(1);
                return Ok(Some(first.of));
            }
        }
        Ok(self.refs.next().transpose()?)
    }

    /// Look further ahead than before by a few refs, so that the first block needn't wait for that.
    fn foresee(&mut self) -> std::result::Result<(), Stop> {
        let until = (self.foreseen.len() + FORESEEN_STEP).min(FORESEEN_MAX);
        while self.foreseen.len() < until
            && let Some(r) = self.refs.next().transpose()?
        {
            let place = match &r {
                Ref::Chunk { id, len } => self.want(id, *len),
                Ref::Hole { .. } => None,
            };
            self.foreseen.push_back(Foreseen { of: r, place });
        }
        Ok(())
    }

    /// Hint at the blocks that come next.
    fn hint(&mut self) {
        while self.context.hinted.load(Ordering::Relaxed) < HINTED
            && let Some(next) = self.foreseen.get(self.looked_at)
        {
            self.looked_at += 1;
            if let Some(Place { info, block, stored }) = &next.place
                && self.hinted.insert((info.id, *block))
            {
                self.context.hinted.fetch_add(1, Ordering::Relaxed);
                self.context.reader.expect_stored(info, *block, *stored);
            }
        }
    }

    /// Where a chunk is, which is said to be wanted. Whatever is wrong with it shows when it is fetched.
    fn want(&self, id: &ChunkId, len: u64) -> Option<Place> {
        let reader = &self.context.reader;
        let location = reader.index().lookup(id).ok()??;
        let info = reader.index().pack(location.pack);
        let table = reader.table(&info).ok()?;
        let chunk = table.chunks.get(location.ordinal as usize).filter(|chunk| chunk.id == *id)?;
        reader.wanted(&info, chunk.block, len);
        let (number, block) = (chunk.block, table.blocks.get(chunk.block as usize)?);
        Some(Place { info, block: number, stored: (block.offset, block.stored_len) })
    }

    /// Ask for the next block, with all refs that follow one another in it.
    fn next(&mut self, reply: &Sender<Fetched>) -> std::result::Result<Option<Step>, Stop> {
        let Some(first) = self.step()? else { return Ok(None) };
        let Ref::Chunk { id, len } = first else { return Ok(Some(Step::Hole(first.len()))) };
        let reader = &self.context.reader;
        let location = reader.locate(&id)?.ok_or(drumlin_repo::Error::MissingChunk(id))?;
        if self.pack.as_ref().is_none_or(|(number, ..)| *number != location.pack) {
            let info = reader.index().pack(location.pack);
            let table = match reader.table(&info) {
                // A prune may have moved it.
                Err(e) if e.is_damage() => {
                    return self.ask_for_chunk(info, id, len, Err(e.to_string()), reply);
                }
                other => other?,
            };
            self.pack = Some((location.pack, info, table));
        }
        let (_, info, table) = self.pack.clone().expect("set above");
        let fits = |ordinal: u32, id, len: u64| {
            table.chunks.get(ordinal as usize).filter(|c| c.id == id && u64::from(c.len) == len)
        };
        let Some(chunk) = fits(location.ordinal, id, len) else {
            let why = format!("the index and the table of '{}' contradict each other", info.name());
            return self.ask_for_chunk(info, id, len, Err(why), reply);
        };
        let block = chunk.block;
        if self.is_small {
            reader.expect_block(&info, &table, block);
            return self.ask_for_chunk(info, id, len, Ok(location.ordinal), reply);
        }
        let mut chunks = vec![(chunk.offset, chunk.len)];
        let mut ordinals = vec![location.ordinal];
        // Chunks of one file mostly stand one after the other.
        while let Some(r) = self.step()? {
            let next = location.ordinal + ordinals.len() as u32;
            match r {
                Ref::Chunk { id, len } if fits(next, id, len).is_some_and(|c| c.block == block) => {
                    let chunk = &table.chunks[next as usize];
                    chunks.push((chunk.offset, chunk.len));
                    ordinals.push(next);
                }
                other => {
                    self.held = Some(other);
                    break;
                }
            }
        }
        if self.hinted.remove(&(info.id, block)) {
            self.context.hinted.fetch_sub(1, Ordering::Relaxed);
        }
        self.context.reader.expect_block(&info, &table, block);
        self.ask(Fetchable::Block(Part { info, table, block, ordinals }), chunks, reply)
    }

    /// Have one chunk fetched, from its place in that pack or from elsewhere.
    fn ask_for_chunk(
        &mut self,
        info: Arc<PackInfo>,
        id: ChunkId,
        len: u64,
        place: std::result::Result<u32, String>,
        reply: &Sender<Fetched>,
    ) -> std::result::Result<Option<Step>, Stop> {
        self.ask(Fetchable::Chunk { info, id, len, place }, vec![(0, len as u32)], reply)
    }

    /// Have it fetched, of which these chunks come next in the file, as (offset, length).
    fn ask(
        &mut self,
        what: Fetchable,
        chunks: Vec<(u32, u32)>,
        reply: &Sender<Fetched>,
    ) -> std::result::Result<Option<Step>, Stop> {
        let number = self.next;
        self.next += 1;
        let fetch = Fetch { number, what, reply: reply.clone() };
        self.context.fetches.0.send(fetch).map_err(|_| Stop::Fatal(Error::Worker))?;
        Ok(Some(Step::Block(number, chunks)))
    }
}
