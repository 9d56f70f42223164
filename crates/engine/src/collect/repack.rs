//! Writing packs anew without what nobody needs, in the order in which the newest snapshots need it.
//!
//! A block of which nearly all is needed moves as it is sealed, its key in a slot of its own; of the others the chunks
//! that are needed are packed into new blocks. A key that can't read contents moves all blocks of contents as they are.
//! Whatever can be opened is checked before it counts as moved.
//!
//! What is sealed with secrets that are not the newest is packed into new blocks in any case, if the key opens it: so
//! it is sealed with the newest. What the key doesn't open stays in packs of its generation.

use super::rank::{Ranks, UNRANKED};
use crate::lock::lock;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::reach::marks::Marks;
use crate::{Error, Result};
use drumlin_format::key::Role;
use drumlin_format::pack::{Block, Chunk, Codec, PackKind, Table};
use drumlin_format::{ChunkId, PackId};
use drumlin_repo::pack::{BlockBuilder, Coder, Coding, Reader};
use drumlin_repo::tree::{Family, TREE_BLOCK_BYTES};
use drumlin_repo::{PackInfo, Repository, WriteSession, beside};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// A block of which less than this share of a hundred is unused moves as it is.
const SPARE_PERCENT: u64 = 5;
/// A block below this part of an ordinary one is packed into a new one with others.
const SMALL_PART: u32 = 4;
/// The level that pays best where nothing waits for the storage.
const CODING: Coding = Coding::Best(3);
/// Decoded blocks that a thread keeps for the chunks beside those at hand.
const KEPT_BLOCKS: usize = 16;
/// So many pieces are put in order at once...
const PIECES_MAX: usize = 1 << 20;
/// ...and those of packs with so many chunks, of which each takes some 44 bytes of a table: where blocks move whole
/// there are few pieces.
const CHUNKS_MAX: usize = 1 << 20;

/// What may move along though nobody needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// A little of a block, so that it need not be made anew.
    Little,
    /// Nothing of contents, as far as the key opens them: what was forgotten is to be gone.
    Nothing,
}

/// A pack to be written anew.
pub(crate) struct Source {
    info: PackInfo,
    table: Arc<Table>,
}

/// Far away so many tables, and blocks of each thread, are on their way while others are dealt with.
const TABLES_AHEAD: usize = 16;
const BLOCKS_AHEAD: usize = 8;

/// What moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    rank: u32,
    source: u32,
    block: u32,
    /// A place in the table; [`WHOLE`] for the block as it is.
    chunk: u32,
}

const WHOLE: u32 = u32::MAX;

/// How a pack's blocks will move, and what that costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Bytes that nobody needs.
    pub unused: u64,
    /// Those of them that will go.
    pub drops: u64,
    /// Bytes that will be written, with their share of table, parity and padding.
    pub moves: u64,
}

/// What moving a pack's blocks would cost, and how much of it nobody needs.
pub(crate) fn cost(repository: &Repository, info: &PackInfo, table: &Table, marks: &Marks, spare: Spare) -> Cost {
    let mut cost = Cost::default();
    let mut all = 0;
    for (block, needed) in blocks(table, info, marks) {
        let (stored, raw) = (u64::from(block.stored_len), u64::from(block.raw_len).max(1));
        let share = stored * needed / raw;
        let moves = match needed {
            0 => 0,
            _ if moves_whole(repository, info, block, needed, spare) => stored,
            _ => share,
        };
        cost.unused += stored - share;
        cost.drops += stored - moves;
        all += stored;
    }
    let stays = u128::from(all - cost.drops);
    cost.moves = (u128::from(info.len) * stays / u128::from(all.max(1))) as u64;
    cost
}

/// The blocks of a pack that hold chunks, and how many bytes of each are needed.
fn blocks<'t>(table: &'t Table, info: &'t PackInfo, marks: &'t Marks) -> impl Iterator<Item = (&'t Block, u64)> {
    let marked = marks.of(&info.id);
    table.blocks.iter().filter(|b| b.codec != Codec::Padding).map(move |block| {
        let chunks = block.first_chunk as usize..(block.first_chunk + block.chunks) as usize;
        let needed = chunks
            .filter(|at| marked.as_ref().is_some_and(|m| m.is(*at)))
            .map(|at| u64::from(table.chunks[at].len))
            .sum();
        (block, needed)
    })
}

/// Whether a pack is of an older generation, and can be sealed anew by this key.
pub(crate) fn can_renew(repository: &Repository, info: &PackInfo) -> bool {
    let is_newest = repository.generation().is_ok_and(|newest| newest == info.generation);
    !is_newest && repository.opens(info.kind, info.generation)
}

fn moves_whole(repository: &Repository, info: &PackInfo, block: &Block, needed: u64, spare: Spare) -> bool {
    let kind = info.kind;
    if can_renew(repository, info) {
        return false;
    }
    let raw = u64::from(block.raw_len);
    let small = block.raw_len < repository.config().block_bytes / SMALL_PART;
    // Clients that may only write keep the keys of their own tree packs: a block that is sealed anew they couldn't
    // read.
    kind == PackKind::Tree
        || !repository.opens(kind, info.generation)
        || !small
            && match spare {
                Spare::Little => (raw - needed) * 100 <= raw * SPARE_PERCENT,
                Spare::Nothing => needed == raw,
            }
}

/// Everything that moving takes.
pub(crate) struct Repack<'a> {
    pub repository: &'a Repository,
    pub reader: &'a Reader,
    pub session: &'a WriteSession,
    pub marks: &'a Marks,
    pub ranks: &'a Ranks,
    pub monitor: &'a dyn Monitor,
    pub workers: usize,
    pub spare: Spare,
    /// What lies in cold storage stays, and may move another time. A failure for who has no other time.
    pub leaves_frozen: bool,
}

impl Repack<'_> {
    /// Move what is needed of these packs. Those of which something could not be moved have to `stay`, for these
    /// reasons; also if it fails.
    pub fn run(&self, packs: &[PackInfo], stay: &Mutex<BTreeMap<PackId, Problem>>) -> Result<()> {
        let (mut sources, mut pieces, mut chunks) = (Vec::new(), Vec::new(), 0);
        let forged = self.forged(packs)?;
        packs.iter().take(TABLES_AHEAD).for_each(|info| self.reader.expect_table(info));
        for (at, info) in packs.iter().enumerate() {
            packs.iter().skip(at + TABLES_AHEAD).take(1).for_each(|next| self.reader.expect_table(next));
            match self.reader.table(info) {
                Ok(table) if !self.marks.fits(&info.id, &table)? => {
                    // Somebody's index object says other things of it than it says itself: what is needed of it nobody
                    // knows.
                    let detail = "the index and its own table disagree about it";
                    self.stays(stay, info, &info.damaged_block(0, detail));
                }
                Ok(_) if forged.contains(&info.id) => {
                    let detail = "its table has blocks of another pack, and its signer may not move blocks";
                    self.stays(stay, info, &info.damaged_block(0, detail));
                }
                Ok(table) => {
                    chunks += table.chunks.len();
                    let source = Source { info: info.clone(), table };
                    self.pieces(sources.len() as u32, &source, &mut pieces);
                    sources.push(source);
                }
                Err(e) if e.is_damage() => self.stays(stay, info, &e),
                Err(e) => return Err(e.into()),
            }
            if pieces.len() >= PIECES_MAX || chunks >= CHUNKS_MAX || at + 1 == packs.len() {
                pieces.sort_unstable();
                self.share_out(&sources, &pieces, stay)?;
                sources.clear();
                pieces.clear();
                chunks = 0;
            }
        }
        Ok(())
    }

    /// Of packs whose blocks are moved unseen those that give another pack for where a block is from, by nobody's word
    /// who moves any. What a keeper has moved stands for what is where it is from: see `duplicates.rs`.
    fn forged(&self, packs: &[PackInfo]) -> Result<HashSet<PackId>> {
        let is_closed = |info: &&PackInfo| !self.repository.opens(info.kind, info.generation);
        let closed: Vec<PackInfo> = packs.iter().filter(is_closed).cloned().collect();
        if closed.is_empty() {
            return Ok(HashSet::new());
        }
        let asked = self.repository.ask_tables(
            &closed,
            |info| (info.id, info),
            |id, table, signer| {
                let moves = matches!(signer, Some((_, Role::Owner | Role::Keeper)));
                (!moves && table.slots.iter().any(|slot| slot.origin != id)).then_some(id)
            },
        )?;
        Ok(asked.into_iter().flatten().collect())
    }

    fn pieces(&self, number: u32, source: &Source, pieces: &mut Vec<Piece>) {
        let Source { info, table } = source;
        let Some(marked) = self.marks.of(&info.id) else { return };
        for (block, needed) in blocks(table, info, self.marks) {
            if needed == 0 {
                continue;
            }
            let at = table.chunks[block.first_chunk as usize].block;
            let live = (block.first_chunk..block.first_chunk + block.chunks).filter(|at| marked.is(*at as usize));
            let rank = |chunk: u32| self.ranks.of(&info.id, chunk as usize);
            if moves_whole(self.repository, info, block, needed, self.spare) {
                let rank = live.map(rank).min().unwrap_or(UNRANKED);
                pieces.push(Piece { rank, source: number, block: at, chunk: WHOLE });
            } else {
                pieces.extend(live.map(|chunk| Piece { rank: rank(chunk), source: number, block: at, chunk }));
            }
        }
    }

    fn share_out(&self, sources: &[Source], pieces: &[Piece], stay: &Mutex<BTreeMap<PackId, Problem>>) -> Result<()> {
        let each = pieces.len().div_ceil(self.workers.max(1)).max(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = pieces
                .chunks(each)
                .map(|part| beside(scope, "move", move || Mover::new(self, sources, stay)?.run(part)))
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join())
        })
    }

    fn stays(&self, stay: &Mutex<BTreeMap<PackId, Problem>>, info: &PackInfo, cause: &drumlin_repo::Error) {
        lock(stay).entry(info.id).or_insert_with(|| {
            let path = info.name().into_bytes();
            let kind = if cause.is_damage() { ProblemKind::Damaged } else { ProblemKind::Unreadable };
            Problem { path, kind, cause: format!("it stays as it is: {}", cause.cause()) }
        });
    }
}

/// One thread's part.
struct Mover<'a> {
    repack: &'a Repack<'a>,
    sources: &'a [Source],
    stay: &'a Mutex<BTreeMap<PackId, Problem>>,
    coder: Coder,
    data: BlockBuilder,
    /// Of each [`Family`], as in what a backup writes.
    tree: [BlockBuilder; 3],
    sealed: Vec<u8>,
    /// Decoded blocks, and when each was of use last.
    kept: HashMap<(u32, u32), (Vec<u8>, u64)>,
    turn: u64,
}

impl<'a> Mover<'a> {
    fn new(repack: &'a Repack<'a>, sources: &'a [Source], stay: &'a Mutex<BTreeMap<PackId, Problem>>) -> Result<Self> {
        let coder = Coder::new().map_err(Error::system("set up zstd"))?;
        let (data, tree) = (BlockBuilder::default(), Default::default());
        Ok(Mover { repack, sources, stay, coder, data, tree, sealed: Vec::new(), kept: HashMap::new(), turn: 0 })
    }

    fn run(mut self, pieces: &[Piece]) -> Result<()> {
        let is_alike = |a: &Piece, b: &Piece| (a.source, a.block) == (b.source, b.block);
        let mut blocks = pieces.chunk_by(is_alike).map(|of_block| of_block[0]);
        for _ in 0..BLOCKS_AHEAD {
            self.expect(blocks.next());
        }
        for (at, piece) in pieces.iter().enumerate() {
            if self.repack.monitor.stop() {
                return Err(Error::Interrupted);
            }
            if at == 0 || !is_alike(piece, &pieces[at - 1]) {
                self.expect(blocks.next());
            }
            let source = &self.sources[piece.source as usize];
            let moved = if piece.chunk == WHOLE { self.whole(source, piece) } else { self.chunk(source, piece) };
            match moved {
                // Not of the source: what failed is where it was to go, and may have been somebody else's.
                Err(e) if self.repack.session.has_failed() => return Err(e),
                Err(Error::Repo(e)) if e.is_damage() && self.salvage(source, piece)? => {}
                Err(Error::Repo(e)) if e.is_damage() || self.repack.leaves_frozen && e.frozen().is_some() => {
                    self.repack.stays(self.stay, &source.info, &e)
                }
                other => other?,
            }
        }
        self.flush()
    }

    /// A hint that the block of a piece comes soon.
    fn expect(&self, piece: Option<Piece>) {
        if let Some(piece) = piece.filter(|piece| !self.kept.contains_key(&(piece.source, piece.block))) {
            let Source { info, table } = &self.sources[piece.source as usize];
            self.repack.reader.expect_block(info, table, piece.block);
        }
    }

    fn flush(&mut self) -> Result<()> {
        let session = self.repack.session;
        let trees = self.tree.iter_mut().map(|builder| (builder, &session.tree));
        for (builder, packer) in trees.chain([(&mut self.data, &session.data)]) {
            let appended = packer.append(builder, &mut self.coder, CODING)?;
            add(&self.repack.monitor.counters().bytes_written, appended.bytes);
        }
        Ok(())
    }

    /// A block as it is sealed.
    fn whole(&mut self, source: &Source, piece: &Piece) -> Result<()> {
        let Source { info, table } = source;
        let (repack, block) = (self.repack, &table.blocks[piece.block as usize]);
        if repack.repository.opens(info.kind, info.generation) {
            let mut out = Vec::new();
            repack.reader.sealed_block(info, table, piece.block, &mut self.sealed, Some(&mut out))?;
            for chunk in chunks(table, block) {
                check(repack.reader, info, chunk, &out)?;
            }
        } else {
            repack.reader.sealed_block(info, table, piece.block, &mut self.sealed, None)?;
        }
        let slot = table.slots.get(block.slot as usize);
        let slot = slot.ok_or_else(|| info.damaged_block(piece.block, "its key is not in the table"))?;
        let ids: Vec<_> = chunks(table, block).iter().map(|c| (c.id, c.len)).collect();
        let bytes = repack.session.adopt((info.kind, info.generation), slot, block, &self.sealed, &ids)?;
        add(&repack.monitor.counters().bytes_written, bytes);
        Ok(())
    }

    /// A chunk, into a new block.
    fn chunk(&mut self, source: &Source, piece: &Piece) -> Result<()> {
        let chunk = source.table.chunks[piece.chunk as usize];
        let at = (piece.source, piece.block);
        self.turn += 1;
        if !self.kept.contains_key(&at) {
            let oldest = self.kept.iter().min_by_key(|(_, (_, turn))| *turn).map(|(at, _)| *at);
            let mut out = match oldest.filter(|_| self.kept.len() >= KEPT_BLOCKS) {
                Some(oldest) => self.kept.remove(&oldest).map(|(out, _)| out).unwrap_or_default(),
                None => Vec::new(),
            };
            self.repack.reader.block(&source.info, &source.table, piece.block, &mut self.sealed, &mut out)?;
            self.kept.insert(at, (out, self.turn));
        }
        let Some((block, turn)) = self.kept.get_mut(&at) else { return Ok(()) };
        *turn = self.turn;
        let bytes = check(self.repack.reader, &source.info, &chunk, block)?;
        let builders = (&mut self.data, &mut self.tree);
        push(self.repack, &mut self.coder, builders, source.info.kind, chunk.id, bytes)
    }

    /// Move chunks that can't be read where they are: each from another pack that has it, which may be damaged as well,
    /// at other places. `false`: one of them can't be read anywhere.
    fn salvage(&mut self, source: &Source, piece: &Piece) -> Result<bool> {
        let Source { info, table } = source;
        if !self.repack.repository.opens(info.kind, info.generation) {
            return Ok(false);
        }
        let wanted = match piece.chunk {
            WHOLE => chunks(table, &table.blocks[piece.block as usize]).to_vec(),
            chunk => vec![table.chunks[chunk as usize]],
        };
        for chunk in wanted {
            match self.repack.reader.elsewhere(info.kind, &chunk.id, &info.id)? {
                Some(bytes) => {
                    let builders = (&mut self.data, &mut self.tree);
                    push(self.repack, &mut self.coder, builders, info.kind, chunk.id, &bytes)?;
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Put a chunk into the block that is being made.
fn push(
    repack: &Repack,
    coder: &mut Coder,
    (data, tree): (&mut BlockBuilder, &mut [BlockBuilder; 3]),
    kind: PackKind,
    id: ChunkId,
    bytes: &[u8],
) -> Result<()> {
    let session = repack.session;
    let (builder, packer, full) = match kind {
        PackKind::Data => (data, &session.data, repack.repository.config().block_bytes as usize),
        PackKind::Tree => (&mut tree[Family::of(bytes) as usize], &session.tree, TREE_BLOCK_BYTES),
    };
    if builder.raw.len() + bytes.len() > full && !builder.is_empty() {
        let appended = packer.append(builder, coder, CODING)?;
        add(&repack.monitor.counters().bytes_written, appended.bytes);
    }
    builder.push(id, bytes);
    Ok(())
}

fn chunks<'t>(table: &'t Table, block: &Block) -> &'t [Chunk] {
    &table.chunks[block.first_chunk as usize..(block.first_chunk + block.chunks) as usize]
}

/// The bytes of a chunk in its decoded block, if they are what its name says.
fn check<'b>(reader: &Reader, info: &PackInfo, chunk: &Chunk, block: &'b [u8]) -> Result<&'b [u8]> {
    let bytes = block.get(chunk.offset as usize..).and_then(|rest| rest.get(..chunk.len as usize));
    if let Some(bytes) = bytes
        && reader.check(info.kind, &chunk.id, bytes)?
    {
        return Ok(bytes);
    }
    Err(info.damaged_block(chunk.block, "a chunk doesn't match its id").into())
}
