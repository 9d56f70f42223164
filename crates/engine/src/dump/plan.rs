//! What to write, in order, and which blocks are needed for it: the part that reads trees.

use super::{Item, Options};
use crate::identity::{Identity, identity};
use crate::list::{Entry, Span, each_entry};
use crate::monitor::Monitor;
use crate::select::TreePath;
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use drumlin_format::ChunkId;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{self, Content, Data, Kind, Ref, marks};
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::Refs;
use drumlin_seal::checksum;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A batch ends when its chunks have so many bytes...
const BATCH_BYTES: u64 = 1 << 20;
/// ...or when so much has happened in it.
const BATCH_EVENTS: usize = 1024;
/// Directories of so many bytes may wait for their contents.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// What happens next.
pub(super) enum Event {
    /// An entry; and whether it is a file of more than one chunk.
    Entry(Box<Item>, bool),
    /// An entry that can't be written: its path and why.
    Missing(Vec<u8>, String),
    /// The next chunk of the batch, and how long it should be.
    Chunk(u64),
    Hole(u64),
    /// The rest of the file's chunk list can't be read.
    Broken(drumlin_repo::Error),
    /// The file is complete: its whole identity if it has several chunks.
    End(Option<[u8; 32]>),
}

/// Some events, and the chunks that they need.
pub(super) struct Batch {
    pub events: Vec<Event>,
    pub fetched: Option<Receiver<Fetched>>,
}

/// Chunks to be fetched, all of one block as far as that is known.
pub(super) struct Job {
    pub ids: Vec<ChunkId>,
    pub block: Option<(u32, u32)>,
    pub reply: Sender<Fetched>,
}

/// Chunks that were fetched: places in a buffer.
pub(super) struct Fetched {
    pub bytes: Vec<u8>,
    pub chunks: Vec<drumlin_repo::Result<Range<usize>>>,
}

/// Plans.
pub(super) struct Plan<'a> {
    pub reader: &'a Arc<Reader>,
    pub options: &'a Options,
    /// Hard links are written as such.
    pub links: bool,
    pub monitor: &'a dyn Monitor,
    pub jobs: Sender<Job>,
    pub batches: Sender<Batch>,
    events: Vec<Event>,
    ids: Vec<ChunkId>,
    bytes: u64,
    /// The block that all of `ids` are in: pack and number.
    block: Option<(u32, u32)>,
    /// Inodes of which more names may come: the first name in the archive, and how many are left.
    inodes: HashMap<Identity, (Vec<u8>, u32)>,
    /// Directories whose contents are still to come, by their key in the tree. Extractors set a directory's time when
    /// they leave it: so it stands before its contents, not among its neighbours, where the tree has it.
    waiting: BTreeMap<Vec<u8>, Box<Item>>,
    waiting_bytes: usize,
    /// Symbolic links that were met, by the checksum of their key; and the directory at hand, with whether one of them
    /// stands above what is in it: such a tree is made up, and whoever unpacks it would write where the link leads.
    symlinks: HashSet<[u8; 16]>,
    dir: Vec<u8>,
    is_below_link: bool,
}

/// The consumer is gone: it knows why.
struct Gone;

impl<'a> Plan<'a> {
    pub fn new(
        reader: &'a Arc<Reader>,
        options: &'a Options,
        links: bool,
        monitor: &'a dyn Monitor,
        jobs: Sender<Job>,
        batches: Sender<Batch>,
    ) -> Self {
        Plan {
            reader,
            options,
            links,
            monitor,
            jobs,
            batches,
            events: Vec::new(),
            ids: Vec::new(),
            bytes: 0,
            block: None,
            inodes: HashMap::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            symlinks: HashSet::new(),
            dir: Vec::new(),
            is_below_link: false,
        }
    }

    /// Go through the tree. Ends without an error if the consumer is gone.
    pub fn run(mut self, root: Option<Root>) -> Result<()> {
        let path = &self.options.path;
        for span in [Span::entry(path), Span::below(path.key())] {
            let mut gone = false;
            each_entry(self.reader, root, span, self.monitor, &mut |entry| {
                if self.entry(entry)?.is_err() {
                    gone = true;
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if gone {
                return Ok(());
            }
        }
        // Whether the consumer is still there no longer matters.
        let _ = self.begin_dirs(None).and_then(|()| self.flush());
        Ok(())
    }

    /// Whether one of the links that were met stands above what is in a directory. A tree has what leads to a directory
    /// before what is in it.
    fn is_below_link(&mut self, dir: &[u8]) -> bool {
        if self.dir != dir {
            let ends = (0..dir.len()).filter(|at| dir[*at] == 0).chain([dir.len()]);
            self.is_below_link =
                !self.symlinks.is_empty() && { ends }.any(|end| self.symlinks.contains(&checksum(&dir[..end])));
            dir.clone_into(&mut self.dir);
        }
        self.is_below_link
    }

    /// Write the directories that come up to `key`, itself included; or all that wait.
    fn begin_dirs(&mut self, key: Option<&[u8]>) -> std::result::Result<(), Gone> {
        while let Some(first) = self.waiting.first_entry()
            && key.is_none_or(|key| first.key().as_slice() <= key)
        {
            let item = first.remove();
            self.waiting_bytes -= weight(&item);
            self.push(Event::Entry(item, false))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) -> Result<std::result::Result<(), Gone>> {
        if !self.waiting.is_empty() && self.begin_dirs(Some(entry.dir())).is_err() {
            return Ok(Err(Gone));
        }
        let name = relative(&self.options.relative_to, entry);
        if name.is_empty() {
            return Ok(Ok(()));
        }
        let meta = *entry.meta();
        if self.is_below_link(entry.dir()) {
            let cause = "in the snapshot it lies below a symbolic link, which is impossible: it was made up".to_owned();
            return Ok(self.push(Event::Missing(entry.path(), cause)));
        }
        if meta.kind == Kind::Symlink {
            self.symlinks.insert(checksum(&tree::join(entry.dir(), entry.name())));
        }
        if meta.marks & marks::CONTENTS_MISSING != 0 {
            let cause = "its contents could not be read when it was backed up or copied".to_owned();
            return Ok(self.push(Event::Missing(entry.path(), cause)));
        }
        let content = match entry.content() {
            Ok(content) => content,
            Err(Error::Repo(e)) if e.is_damage() => {
                let cause = format!("it can't be written: {e}");
                return Ok(self.push(Event::Missing(entry.path(), cause)));
            }
            Err(e) => return Err(e),
        };
        let item = Item {
            path: entry.path(),
            link: if self.links { self.link(entry, content, &name) } else { None },
            name,
            meta,
            target: content.target.clone(),
            xattrs: content.xattrs.clone(),
            user: entry.user().unwrap_or_default().to_vec(),
            group: entry.group().unwrap_or_default().to_vec(),
        };
        if meta.kind == Kind::Dir && self.waiting_bytes + weight(&item) <= WAITING_BYTES_MAX {
            self.waiting_bytes += weight(&item);
            self.waiting.insert(tree::join(entry.dir(), entry.name()), Box::new(item));
            return Ok(Ok(()));
        }
        let has_data = meta.kind == Kind::File && item.link.is_none();
        let several = has_data && matches!(content.data, Data::List(_));
        if self.push(Event::Entry(Box::new(item), several)).is_err() {
            return Ok(Err(Gone));
        }
        Ok(if has_data { self.data(&content.data, meta.size) } else { Ok(()) })
    }

    fn data(&mut self, data: &Data, size: u64) -> std::result::Result<(), Gone> {
        let mut whole = None;
        match data {
            Data::None => {}
            Data::Chunk(id) => self.chunk(id, size)?,
            Data::List(list) => {
                whole = Some(list.whole);
                let reader = self.reader.clone();
                for r in Refs::new(&reader, list) {
                    match r {
                        Ok(Ref::Chunk { id, len }) => self.chunk(&id, len)?,
                        Ok(Ref::Hole { len }) => self.push(Event::Hole(len))?,
                        Err(e) => {
                            self.push(Event::Broken(e))?;
                            break;
                        }
                    }
                }
            }
        }
        self.push(Event::End(whole))
    }

    /// The name in the archive of an entry of the same file, if one came before.
    fn link(&mut self, entry: &Entry, content: &Content, name: &[u8]) -> Option<Vec<u8>> {
        let meta = entry.meta();
        if meta.nlink < 2 || meta.kind == Kind::Dir {
            return None;
        }
        let file = identity(meta, content);
        let Some((first, left)) = self.inodes.get_mut(&file) else {
            self.inodes.insert(file, (name.to_vec(), meta.nlink - 1));
            return None;
        };
        let first = first.clone();
        *left -= 1;
        if *left == 0 {
            self.inodes.remove(&file);
        }
        Some(first)
    }

    fn chunk(&mut self, id: &ChunkId, len: u64) -> std::result::Result<(), Gone> {
        let block = self.block_of(id);
        if !self.ids.is_empty() && (block != self.block || self.bytes + len > BATCH_BYTES) {
            self.flush()?;
        }
        self.block = block;
        self.ids.push(*id);
        self.bytes += len;
        self.push(Event::Chunk(len))
    }

    /// Which block holds a chunk; `None` if that can't be told: who fetches it will say why.
    fn block_of(&self, id: &ChunkId) -> Option<(u32, u32)> {
        let location = self.reader.index().lookup(id).ok()??;
        let info = self.reader.index().pack(location.pack);
        let table = self.reader.table(&info).ok()?;
        Some((location.pack, table.chunks.get(location.ordinal as usize)?.block))
    }

    fn push(&mut self, event: Event) -> std::result::Result<(), Gone> {
        self.events.push(event);
        if self.events.len() >= BATCH_EVENTS { self.flush() } else { Ok(()) }
    }

    /// Hand over the batch at hand. Batches wait in a bounded queue, and a block is asked for when its batch is in it.
    fn flush(&mut self) -> std::result::Result<(), Gone> {
        let events = std::mem::take(&mut self.events);
        let ids = std::mem::take(&mut self.ids);
        self.bytes = 0;
        if events.is_empty() {
            return Ok(());
        }
        if ids.is_empty() {
            return self.batches.send(Batch { events, fetched: None }).map_err(|_| Gone);
        }
        let (reply, fetched) = bounded(1);
        self.batches.send(Batch { events, fetched: Some(fetched) }).map_err(|_| Gone)?;
        self.jobs.send(Job { ids, block: self.block, reply }).map_err(|_| Gone)
    }
}

/// Bytes that an entry takes while it waits, about.
fn weight(item: &Item) -> usize {
    let xattrs: usize = item.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    size_of::<Item>() + 3 * item.path.len() + xattrs
}

/// The name in the archive.
fn relative(base: &TreePath, entry: &Entry) -> Vec<u8> {
    let path = TreePath::of(entry.dir(), entry.name());
    let rest = match path.key().strip_prefix(base.key()) {
        Some([]) => &[],
        Some([0, rest @ ..]) => rest,
        Some(rest) if base.is_root() => rest,
        _ => path.key(),
    };
    // Of a single file that is itself the base, its name.
    let rest = if rest.is_empty() && entry.meta().kind != Kind::Dir { entry.name() } else { rest };
    rest.iter().map(|b| if *b == 0 { b'/' } else { *b }).collect()
}
