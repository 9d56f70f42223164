//! The plan: the tree read in order; directories, links and devices made on the way; files gathered into windows whose
//! chunks are handed out in pack order.

use super::empties::Empties;
use super::existing;
use super::locate::Locator;
use super::range::Range;
use super::selection::{self, Selection};
use super::stream::Stream;
use super::window::{File, Multi, MultiState, Use, Window};
use super::worker::{Context, Task};
use crate::convert;
use crate::list::report_damage;
use crate::monitor::{Change, ProblemKind, add};
use crate::{Error, Result};
use crossbeam_channel::Sender;
use drumlin_format::ChunkId;
use drumlin_format::pack::Table;
use drumlin_format::tree::{Body, Content, Data, Kind, Leaf, Meta, Ref, join, marks};
use drumlin_host::meta::{Extras, Stat};
use drumlin_host::place::{Names, TargetDir, Wanted};
use drumlin_repo::tree::{Cursor, LeafRef, Refs};
use drumlin_repo::{Location, PackInfo};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};

/// Files from this size on are written by one worker from start to end.
const STREAM_BYTES: u64 = 8 << 20;
/// Blocks of a window that a store far away is asked for in advance.
const BLOCKS_EXPECTED: usize = 8;
/// The first window is small, so that the workers soon have something to do.
const WINDOW_BYTES_FIRST: usize = 1 << 20;

/// Reads the tree and hands out work.
pub(super) struct Planner<'a> {
    context: &'a Context<'a>,
    tasks: Sender<Task>,
    window: Window,
    window_bytes: usize,
    window_bytes_max: usize,
    dir: Option<Dir>,
    selection: Selection,
    locator: Locator,
    /// Leaves with directories in them, for the pass that completes those.
    leaves: Vec<LeafRef>,
    first_links: HashMap<(u32, u64), (Link, u32)>,
    links: Vec<(Link, Link)>,
    empties: Empties,
    /// A part of the tree could not be read.
    gap: bool,
}

/// A place below the target: directory and name.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub dir: Arc<[u8]>,
    pub name: Box<[u8]>,
}

/// What is left to do when the files are there.
pub(super) struct Planned {
    /// Links to be made: to the first, from the second.
    pub links: Vec<(Link, Link)>,
    /// Leaves with directories in them.
    pub leaves: Vec<LeafRef>,
    pub selection: Selection,
}

/// The directory at hand.
struct Dir {
    key: Vec<u8>,
    /// Below the target, joined by slashes.
    path: Arc<[u8]>,
    /// Absolute in the source.
    source: Vec<u8>,
    /// `None`: it can't be had, or in a dry run isn't there.
    handle: Option<Arc<TargetDir>>,
    /// What was there before.
    there: Option<Names>,
    /// Its number in the window, if it has one.
    number: Option<u32>,
    /// Names that the snapshot has, where all others are to be deleted.
    keep: Option<Vec<Box<[u8]>>>,
}

impl<'a> Planner<'a> {
    pub fn new(context: &'a Context<'a>, tasks: Sender<Task>) -> Result<Self> {
        Ok(Planner {
            context,
            tasks,
            window: Window::default(),
            window_bytes: WINDOW_BYTES_FIRST,
            window_bytes_max: context.options.memory / 24,
            dir: None,
            selection: Selection::new(context.options)?,
            locator: Locator::new(context.reader.clone()),
            leaves: Vec::new(),
            first_links: HashMap::new(),
            links: Vec::new(),
            empties: Empties::new(context.options),
            gap: false,
        })
    }

    /// Read all that is wanted.
    pub fn run(&mut self) -> Result<()> {
        self.check_paths()?;
        let mut cursor = Cursor::new(self.context.reader.clone(), self.context.options.snapshot.root)?;
        for range in self.selection.ranges.clone() {
            cursor.seek(&range.start.0, &range.start.1)?;
            'leaves: loop {
                let child = match cursor.next_leaf() {
                    Ok(Some(child)) => child,
                    Ok(None) => break,
                    Err(e) => {
                        self.gap(None, e)?;
                        continue;
                    }
                };
                if range.end.as_ref().is_some_and(|end| (&child.dir, &child.name) >= (&end.0, &end.1)) {
                    break;
                }
                let read = cursor.leaf(&child).and_then(|leaf| Ok((cursor.body(&child, &leaf)?, leaf)));
                let (body, leaf) = match read {
                    Ok(read) => read,
                    Err(e) => {
                        self.gap(Some(&child), e)?;
                        continue;
                    }
                };
                if child.sums.dirs > 0 && self.leaves.last().is_none_or(|l| l.node != child.node) {
                    self.leaves.push(child.clone());
                }
                for at in 0..leaf.len() {
                    let (dir, name, meta) = leaf.get(at);
                    if (dir, name) < (&range.start.0[..], &range.start.1[..]) {
                        continue;
                    }
                    if range.end.as_ref().is_some_and(|end| (dir, name) >= (&end.0[..], &end.1[..])) {
                        break 'leaves;
                    }
                    if self.context.ended() {
                        return Ok(());
                    }
                    if !range.way || meta.kind == Kind::Dir {
                        self.entry(&leaf, &body, at, &range)?;
                    }
                }
            }
        }
        self.end_dir()?;
        self.hand_out()?;
        self.empties.end(self.context, &self.selection);
        Ok(())
    }

    /// A part of the tree can't be read: it is told, and the rest goes on. From here on nothing is deleted, since nobody knows
    /// what should be there.
    fn gap(&mut self, child: Option<&LeafRef>, error: drumlin_repo::Error) -> Result<()> {
        self.gap = true;
        self.empties.give_up();
        if let Some(dir) = &mut self.dir {
            dir.keep = None;
        }
        match child {
            Some(child) => report_damage(self.context.monitor, child, error),
            None if error.is_damage() => {
                self.context.problem(
                    b"/",
                    ProblemKind::Damaged,
                    format!("a part of the snapshot's tree can't be read: {error}"),
                );
                Ok(())
            }
            None => Err(error.into()),
        }
    }

    /// Every path that was asked for must be there, before anything is made for the others.
    fn check_paths(&self) -> Result<()> {
        let mut cursor = Cursor::new(self.context.reader.clone(), self.context.options.snapshot.root)?;
        for path in &self.context.options.paths {
            let Some((dir, name)) = self.selection.key(path) else { continue };
            cursor.seek(&dir, &name)?;
            let there = match cursor.next_leaf()? {
                Some(child) => cursor.leaf(&child)?.iter().any(|(d, n, _)| (d, n) == (&dir[..], &name[..])),
                None => false,
            };
            if !there {
                return Err(Error::NoPath(String::from_utf8_lossy(path).into_owned()));
            }
        }
        Ok(())
    }

    /// What is left to do when the files are there.
    pub fn finish(self) -> Planned {
        Planned { links: self.links, leaves: self.leaves, selection: self.selection }
    }

    fn entry(&mut self, leaf: &Leaf, body: &Body, at: usize, range: &Range) -> Result<()> {
        let (dir, name, meta) = leaf.get(at);
        if self.dir.as_ref().is_none_or(|d| d.key != dir) {
            self.end_dir()?;
            self.empties.begin(dir, self.context, &self.selection);
            self.dir = Some(self.begin_dir(dir, range.has_all_of(dir))?);
        }
        let current = self.dir.as_mut().expect("begun above");
        if let Some(keep) = &mut current.keep {
            keep.push(name.into());
        }
        let mut path = current.source.clone();
        path.push(b'/');
        path.extend_from_slice(name);
        if !self.selection.wants(&path, meta) {
            return Ok(());
        }
        let (context, content) = (self.context, &body.contents[at]);
        let counters = context.counters();
        add(&counters.entries, 1);
        match meta.kind {
            Kind::File => add(&counters.files, 1),
            Kind::Dir => add(&counters.dirs, 1),
            _ => {}
        }
        let counts_itself = self.hand_over(leaf, content, at, path, range)?;
        if meta.kind == Kind::File && !counts_itself {
            add(&counters.bytes, meta.size);
        }
        Ok(())
    }

    /// Make what can be made at once, and give what has contents to those who write them. Whether the bytes of the file are
    /// counted by them, as they come: a large one takes long.
    fn hand_over(&mut self, leaf: &Leaf, content: &Content, at: usize, path: Vec<u8>, range: &Range) -> Result<bool> {
        let (dir, name, meta) = leaf.get(at);
        let (context, current) = (self.context, self.dir.as_mut().expect("begun by the caller"));
        let counters = context.counters();
        if meta.marks & marks::CONTENTS_MISSING != 0 {
            context.problem(&path, ProblemKind::Damaged, "its contents could not be read when it was backed up");
            return Ok(false);
        }
        if current.handle.is_none() && !context.options.dry_run {
            if !self.selection.is_picky() {
                // Why was told when the directory could not be had.
                add(&counters.unwritable, 1);
                return Ok(false);
            }
            current.handle = Some(make_path(context, &current.path)?);
        }
        let there = match &current.handle {
            Some(handle) if current.there.as_ref().is_some_and(|names| names.contains(name)) => {
                let Some(there) = existing::there(context, handle, name, meta, &path) else { return Ok(false) };
                if let Some(stat) = &there
                    && meta.kind == Kind::Dir
                    && range.has_all_of(&join(dir, name))
                {
                    self.empties.expect(dir, name, handle, stat);
                }
                there
            }
            _ => None,
        };
        if meta.nlink > 1 && self.linked(name, meta) {
            return Ok(false);
        }
        self.place(leaf, name, meta, content, path, there)
    }

    /// Whether an entry is a further link of a file met before: such are made at the end.
    fn linked(&mut self, name: &[u8], meta: &Meta) -> bool {
        let link = Link { dir: self.dir.as_ref().expect("begun").path.clone(), name: name.into() };
        match self.first_links.get_mut(&(meta.filesystem, meta.ino)) {
            None => {
                self.first_links.insert((meta.filesystem, meta.ino), (link, meta.nlink - 1));
                false
            }
            Some((first, left)) => {
                self.links.push((first.clone(), link));
                *left -= 1;
                if *left == 0 {
                    // All names of the file have been met.
                    self.first_links.remove(&(meta.filesystem, meta.ino));
                }
                true
            }
        }
    }

    /// See [`Planner::hand_over`].
    fn place(
        &mut self,
        leaf: &Leaf,
        name: &[u8],
        meta: &Meta,
        content: &Content,
        path: Vec<u8>,
        mut there: Option<Stat>,
    ) -> Result<bool> {
        let context = self.context;
        let current = self.dir.as_ref().expect("begun");
        let owner = owner(context, leaf, meta);
        let mtime = convert::host_time(meta.mtime);
        if meta.kind == Kind::File {
            let stream = there.is_some()
                || meta.size >= STREAM_BYTES
                || matches!(&content.data, Data::List(l) if l.level > 0)
                || context.options.dry_run;
            if stream {
                let stream = Stream {
                    path,
                    dir: current.path.to_vec(),
                    name: name.to_vec(),
                    mode: meta.mode,
                    owner,
                    mtime,
                    size: meta.size,
                    extras: extras(content),
                    data: content.data.clone(),
                    exists: there.is_some(),
                    counted: Cell::new(0),
                };
                // What the window has comes first in the packs as well.
                return self.send(Task::Stream(Box::new(stream))).map(|()| true);
            }
            if meta.size > 0 {
                return self.file(name, meta, owner, content, path);
            }
        }
        let Some(handle) = current.handle.clone().filter(|_| !context.options.dry_run) else {
            let change = if there.is_some() { Change::Kept } else { Change::Restored };
            context.placed(&path, Vec::new(), change);
            return Ok(false);
        };
        let extras = extras(content);
        let wanted = Wanted { mode: meta.mode, owner: Some(owner), mtime, extras: &extras };
        let made = match meta.kind {
            Kind::File => handle.place_file(name, &[], &wanted),
            Kind::Dir if there.is_some() => Ok(Vec::new()),
            Kind::Dir => handle.make_dir(name).map(|_| Vec::new()),
            kind => {
                if let Some(stat) = there {
                    let right = match kind {
                        Kind::Symlink => handle.read_link(name).is_ok_and(|t| t == content.target),
                        _ => stat.rdev == meta.rdev,
                    };
                    if right {
                        let problems = handle.amend(name, convert::host_kind(kind), &wanted);
                        match problems {
                            Ok(problems) => context.placed(&path, problems, Change::Kept),
                            Err(e) => context.unwritable(&path, e),
                        }
                        return Ok(false);
                    }
                    if let Err(e) = handle.remove(name) {
                        context.unwritable(&path, e);
                        return Ok(false);
                    }
                    there = None;
                }
                match kind {
                    Kind::Symlink => handle.symlink(name, &wanted),
                    _ => handle.mknod(name, convert::host_kind(kind), meta.rdev, &wanted),
                }
            }
        };
        match made {
            Ok(problems) => {
                let change = if there.is_some() { Change::Kept } else { Change::Restored };
                context.placed(&path, problems, change);
            }
            Err(e) => context.unwritable(&path, e),
        }
        Ok(false)
    }

    /// Put a file into the window. See [`Planner::hand_over`].
    fn file(
        &mut self,
        name: &[u8],
        meta: &Meta,
        (uid, gid): (u32, u32),
        content: &Content,
        path: Vec<u8>,
    ) -> Result<bool> {
        let mut uses = Vec::new();
        let mut multi = None;
        let number = self.window.files.len() as u32;
        let used =
            |location: Location, offset| Use { pack: location.pack, ordinal: location.ordinal, file: number, offset };
        match &content.data {
            Data::None => return Ok(false),
            Data::Chunk(id) => match self.locator.locate(id)? {
                Some(location) => uses.push(used(location, 0)),
                None => return self.missing(&path, id),
            },
            Data::List(list) => {
                let (mut at, mut holes) = (0, Vec::new());
                let reader = self.context.reader.clone();
                for r in Refs::new(&reader, list) {
                    let r = match r {
                        Err(e) if e.is_damage() => {
                            self.context.problem(&path, ProblemKind::Damaged, e);
                            return Ok(false);
                        }
                        other => other?,
                    };
                    match r {
                        Ref::Hole { len } => {
                            holes.extend_from_slice(&u64::to_le_bytes(at));
                            holes.extend_from_slice(&len.to_le_bytes());
                            at += len;
                        }
                        Ref::Chunk { id, len } => {
                            let Some(location) = self.locator.locate(&id)? else { return self.missing(&path, &id) };
                            uses.push(used(location, at));
                            at += len;
                        }
                    }
                }
                if uses.is_empty() {
                    // Nothing but a hole.
                    return self.all_hole(name, meta, (uid, gid), content, path);
                }
                multi = Some(Multi {
                    left: AtomicU32::new(uses.len() as u32),
                    failed: AtomicBool::new(false),
                    state: Mutex::new(MultiState { whole: list.whole, holes, ..MultiState::default() }),
                });
            }
        }
        let dir = self.dir_number();
        let window = &mut self.window;
        let has_extras = !content.xattrs.is_empty() || content.flags != 0;
        if has_extras {
            window.extras.push(extras(content));
        }
        window.multis.extend(multi);
        let name = window.add_name(name);
        window.files.push(File {
            dir,
            name,
            mode: meta.mode,
            uid,
            gid,
            mtime: convert::host_time(meta.mtime),
            size: meta.size,
            extras: if has_extras { window.extras.len() as u32 } else { 0 },
            multi: if matches!(content.data, Data::List(_)) { window.multis.len() as u32 } else { 0 },
        });
        window.uses.extend(uses);
        if window.memory() >= self.window_bytes {
            self.hand_out()?;
        }
        Ok(false)
    }

    fn all_hole(
        &mut self,
        name: &[u8],
        meta: &Meta,
        owner: (u32, u32),
        content: &Content,
        path: Vec<u8>,
    ) -> Result<bool> {
        let current = self.dir.as_ref().expect("begun");
        let stream = Stream {
            path,
            dir: current.path.to_vec(),
            name: name.to_vec(),
            mode: meta.mode,
            owner,
            mtime: convert::host_time(meta.mtime),
            size: meta.size,
            extras: extras(content),
            data: content.data.clone(),
            exists: false,
            counted: Cell::new(0),
        };
        self.send(Task::Stream(Box::new(stream))).map(|()| true)
    }

    fn missing(&self, path: &[u8], id: &ChunkId) -> Result<bool> {
        let cause = drumlin_repo::Error::MissingChunk(*id);
        self.context.problem(path, ProblemKind::Damaged, cause);
        Ok(false)
    }

    fn dir_number(&mut self) -> u32 {
        let current = self.dir.as_mut().expect("begun");
        *current.number.get_or_insert_with(|| {
            self.window.dirs.push((current.source.clone(), current.path.to_vec()));
            self.window.dirs.len() as u32 - 1
        })
    }

    fn send(&self, task: Task) -> Result<()> {
        self.tasks.send(task).map_err(|_| Error::Worker)
    }

    /// Hand the window out, block by block in the order of the packs.
    fn hand_out(&mut self) -> Result<()> {
        let next = Window { number: self.window.number + 1, ..Window::default() };
        let mut window = std::mem::replace(&mut self.window, next);
        window.shrink();
        if let Some(dir) = &mut self.dir {
            dir.number = None;
        }
        self.window_bytes = (self.window_bytes * 4).min(self.window_bytes_max).max(WINDOW_BYTES_FIRST);
        window.uses.sort_unstable();
        let window = Arc::new(window);
        let mut at = 0;
        let mut pack: Option<(u32, Arc<PackInfo>, Arc<Table>)> = None;
        let mut ahead = VecDeque::new();
        while let Some(first) = window.uses.get(at) {
            if pack.as_ref().is_none_or(|(number, ..)| *number != first.pack) {
                let info = self.context.reader.index().pack(first.pack);
                let table = match self.context.reader.table(&info) {
                    Err(e) if e.is_damage() => {
                        // A pack that is gone costs what is in it and nowhere else, not the rest.
                        let len = window.uses[at..].iter().take_while(|u| u.pack == first.pack).count();
                        let uses = at..at + len;
                        at += len;
                        self.send(Task::Lost { window: window.clone(), pack: first.pack, uses, cause: e.to_string() })?;
                        continue;
                    }
                    other => other?,
                };
                pack = Some((first.pack, info, table));
            }
            let (_, info, table) = pack.clone().expect("set above");
            let block_of = |u: &Use| table.chunks.get(u.ordinal as usize).map(|c| c.block);
            let Some(block) = block_of(first) else {
                return Err(Error::Repo(drumlin_repo::Error::DamagedBlock {
                    pack: info.id,
                    block: 0,
                    detail: "the index and the pack's table contradict each other; 'drumlin cache clear' makes the index anew",
                }));
            };
            let len =
                window.uses[at..].iter().take_while(|u| u.pack == first.pack && block_of(u) == Some(block)).count();
            let uses = at..at + len;
            at += len;
            self.context.reader.expect_block(&info, &table, block);
            ahead.push_back(Task::Block { window: window.clone(), info, table, block, uses });
            if ahead.len() > BLOCKS_EXPECTED
                && let Some(task) = ahead.pop_front()
            {
                self.send(task)?;
            }
        }
        ahead.into_iter().try_for_each(|task| self.send(task))
    }

    /// `whole`: all that the snapshot has in it is wanted, so that what else is there may be deleted.
    fn begin_dir(&mut self, key: &[u8], whole: bool) -> Result<Dir> {
        let path: Arc<[u8]> = self.selection.below(key).into();
        let source = selection::source_dir(key);
        let context = self.context;
        let handle = match context.target.as_ref().map(|t| t.dir(&path)) {
            None => None,
            Some(Ok(handle)) => Some(handle),
            // It is made when something in it is wanted; or nothing is; or why it could not be made was told then.
            Some(Err(e)) if e.is_missing() => None,
            Some(Err(e)) => {
                context.unwritable(&source, e);
                None
            }
        };
        let there = handle.as_ref().and_then(|h| h.list().ok()).filter(|names| !names.is_empty());
        // A run that was stopped in this directory has left the rest of it out.
        let cut = context.options.snapshot.partial.as_ref().is_some_and(|reached| reached.dir == key);
        let keep = (context.options.delete && whole && !cut && !self.gap && there.is_some()).then(Vec::new);
        Ok(Dir { key: key.to_vec(), path, source, handle, there, number: None, keep })
    }

    /// Delete what the snapshot doesn't have in the directory at hand.
    fn end_dir(&mut self) -> Result<()> {
        let Some(dir) = self.dir.take() else { return Ok(()) };
        let (Some(mut keep), Some(handle), Some(there)) = (dir.keep, dir.handle, dir.there) else { return Ok(()) };
        keep.sort_unstable();
        for name in there.iter().filter(|n| keep.binary_search_by(|k| (**k).cmp(n)).is_err()) {
            let mut path = dir.source.clone();
            path.push(b'/');
            path.extend_from_slice(name);
            existing::delete(self.context, &handle, name, &path, &self.selection);
        }
        Ok(())
    }
}

/// Make a directory below the target, and those above it.
fn make_path(context: &Context, path: &[u8]) -> Result<Arc<TargetDir>> {
    let target = context.target.as_ref().ok_or(Error::Worker)?;
    let mut dir = target.root().clone();
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        dir = match dir.make_dir(name) {
            Err(e) if e.is_exists() => dir.open_dir(name)?,
            other => other?,
        };
    }
    Ok(dir)
}

pub(super) fn extras(content: &Content) -> Extras {
    Extras { xattrs: content.xattrs.to_vec(), flags: content.flags, target: content.target.clone() }
}

/// Who shall own an entry on this machine.
pub(super) fn owner(context: &Context, leaf: &Leaf, meta: &Meta) -> (u32, u32) {
    let name = |names: &[(u32, Vec<u8>)], id| names.iter().find(|(i, _)| *i == id).map(|(_, n)| n.clone());
    let user = name(&leaf.owners.users, meta.uid);
    let group = name(&leaf.owners.groups, meta.gid);
    (context.owners.user(meta.uid, user.as_deref()), context.owners.group(meta.gid, group.as_deref()))
}
