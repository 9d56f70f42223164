//! The plan: the tree read in order; directories, links and devices made on the way; files gathered into windows whose
//! chunks are handed out in pack order.

use super::at_hand::{AtHand, Terms};
use super::barriers::Barriers;
use super::empties::Empties;
use super::existing;
use super::hand_out::hand_out;
use super::links::{Further, Link, Links};
use super::locate::Locator;
use super::node;
use super::parts::{self, Found, Parts};
use super::range::Range;
use super::selection::{self, Selection};
use super::stream::Stream;
use super::window::{File, Multi, MultiState, Use, Window};
use super::worker::{Context, Task};
use crate::convert;
use crate::list::report_damage;
use crate::monitor::{Change, ProblemKind, add};
use crate::select::TreePath;
use crate::{Error, Result};
use crossbeam_channel::Sender;
use drumlin_format::ChunkId;
use drumlin_format::tree::{Body, Content, Data, Kind, Leaf, Meta, join, marks};
use drumlin_host::meta::{Extras, Kind as HostKind, Stat};
use drumlin_host::place::{self, FileId, TargetDir, Wanted};
use drumlin_repo::Location;
use drumlin_repo::tree::{Cursor, LeafRef};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Files from this size on are written by one worker from start to end.
pub(super) const STREAM_BYTES: u64 = 8 << 20;
/// The first window is small, so that the workers soon have something to do. Windows end with a directory, unless that
/// is larger than a window may be at all: what lies in one block is mostly of one directory, and is to be in one
/// window.
const WINDOW_BYTES_FIRST: usize = 1 << 20;

/// Reads the tree and hands out work.
pub(super) struct Planner<'a> {
    context: &'a Context<'a>,
    tasks: Sender<Task>,
    window: Window,
    window_bytes: usize,
    window_bytes_max: usize,
    dir: Option<AtHand>,
    selection: Selection,
    locator: Locator,
    /// Leaves with directories in them, for the pass that completes those.
    leaves: Vec<LeafRef>,
    links: Links,
    empties: Empties,
    /// Directories that were made for what is wanted in them: paths below the target.
    made: HashSet<Vec<u8>>,
    /// Every directory could be made so far.
    all_made: bool,
    /// Files of several names that were there before, and are one of the snapshot's each.
    claimed: HashSet<FileId>,
    barriers: Barriers,
    /// A part of the tree could not be read.
    gap: bool,
}

/// What is left to do when the files are there.
pub(super) struct Planned {
    /// Links to be made: to the first, from the second.
    pub links: Vec<Further>,
    /// Leaves with directories in them.
    pub leaves: Vec<LeafRef>,
    /// Directories that were made for what is wanted in them: paths below the target.
    pub made: HashSet<Vec<u8>>,
    pub barriers: Barriers,
    pub selection: Selection,
}

impl<'a> Planner<'a> {
    pub fn new(context: &'a Context<'a>, tasks: Sender<Task>) -> Result<Self> {
        Ok(Planner {
            context,
            tasks,
            window: Window::default(),
            window_bytes: WINDOW_BYTES_FIRST,
            window_bytes_max: (context.options.memory / 24).max(WINDOW_BYTES_FIRST),
            dir: None,
            selection: Selection::new(context.options)?,
            locator: Locator::new(context.reader.clone()),
            leaves: Vec::new(),
            links: Links::default(),
            empties: Empties::new(context.options),
            made: HashSet::new(),
            all_made: true,
            claimed: HashSet::new(),
            barriers: Barriers::default(),
            gap: false,
        })
    }

    /// Read all that is wanted.
    pub fn run(&mut self) -> Result<()> {
        self.check_paths()?;
        let mut cursor = Cursor::new(self.context.reader.clone(), self.context.options.snapshot.root)?;
        for range in self.selection.ranges.clone() {
            if let Err(e) = cursor.seek(&range.start.0, &range.start.1) {
                self.gap(None, e)?;
            }
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
        self.end_dir();
        self.hand_out()?;
        self.empties.end(self.context, &self.selection);
        Ok(())
    }

    /// A part of the tree can't be read: it is told, and the rest goes on. From here on nothing is deleted, since
    /// nobody knows what should be there.
    fn gap(&mut self, child: Option<&LeafRef>, error: drumlin_repo::Error) -> Result<()> {
        self.gap = true;
        self.context.asides.gap();
        self.empties.give_up();
        if let Some(dir) = &mut self.dir {
            dir.keep_all();
        }
        match child {
            Some(child) => report_damage(self.context.monitor, child, error),
            // The cursor goes on behind it.
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
                return Err(TreePath::of(&dir, &name).missing());
            }
        }
        Ok(())
    }

    /// What is left to do when the files are there.
    pub fn finish(self) -> Planned {
        Planned {
            links: self.links.found,
            leaves: self.leaves,
            made: self.made,
            barriers: self.barriers,
            selection: self.selection,
        }
    }

    fn entry(&mut self, leaf: &Leaf, body: &Body, at: usize, range: &Range) -> Result<()> {
        let (dir, name, meta) = leaf.get(at);
        if self.dir.as_ref().is_none_or(|d| !d.is(dir)) {
            self.end_dir();
            if self.window.memory() >= self.window_bytes {
                self.hand_out()?;
            }
            self.empties.begin(dir, self.context, &self.selection);
            let terms = Terms {
                whole: range.has_all_of(dir) && !self.gap,
                deletes: !self.barriers.is_mounted(dir),
                all_made: self.all_made,
                barred: self.barriers.is_barred(dir),
                stays: self.barriers.is_kept_out(dir),
            };
            self.dir = Some(AtHand::begin(self.context, &self.selection, dir, terms));
        }
        let current = self.dir.as_mut().expect("begun above");
        current.keep(name);
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

    /// Make what can be made at once, and give what has contents to those who write them. Whether the bytes of the file
    /// are counted by them, as they come: a large one takes long.
    fn hand_over(&mut self, leaf: &Leaf, content: &Content, at: usize, path: Vec<u8>, range: &Range) -> Result<bool> {
        let (dir, name, meta) = leaf.get(at);
        let (context, current) = (self.context, self.dir.as_mut().expect("begun by the caller"));
        let counters = context.counters();
        if meta.marks & marks::CONTENTS_MISSING != 0 {
            context.differs(&path, "its contents could not be read when it was backed up or copied");
            return Ok(false);
        }
        if current.stays {
            add(&counters.unwritable, 1);
            return Ok(false);
        }
        if !current.is_there() && !context.options.dry_run {
            if self.selection.is_picky() && !current.barred {
                current.make(context, &mut self.made)?;
            }
            if !current.is_there() {
                // Why was told when the directory could not be had.
                add(&counters.unwritable, 1);
                return Ok(false);
            }
        }
        let there = match current.had(name) {
            Some(handle) => {
                if meta.kind == Kind::Dir
                    && self.selection.may_be_link(dir, name)
                    && existing::leads_elsewhere(context, handle, name, &path)
                {
                    self.barriers.barred(dir, name);
                    return Ok(false);
                }
                let at = (&*current.path, handle);
                let Some(there) = existing::there((context, &self.selection), at, name, meta, &path) else {
                    if meta.kind == Kind::Dir {
                        self.barriers.kept_out(dir, name);
                        return Ok(false);
                    }
                    let link = Link { dir: current.path.clone(), name: name.into() };
                    self.links.keep(context, handle, link, meta, content)?;
                    return Ok(false);
                };
                if let Some(stat) = &there
                    && context.options.delete
                    && meta.kind == Kind::Dir
                    && convert::kind(stat.kind) == Kind::Dir
                    && range.has_all_of(&join(dir, name))
                    && self.selection.is_whole(&join(dir, name))
                {
                    // What is asked for by its own path is no stranger.
                    let is_within = range.has_all_of(dir) && self.selection.is_whole(dir);
                    match existing::is_mounted(handle, stat) {
                        true if is_within => self.barriers.mounted(dir, name),
                        false if !self.barriers.is_mounted(dir) => self.empties.expect(dir, name),
                        _ => {}
                    }
                }
                there
            }
            None => None,
        };
        if meta.nlink > 1 {
            let link = Link { dir: current.path.clone(), name: name.into() };
            if self.links.is_further(link, meta, content, there.as_ref()) {
                return Ok(false);
            }
        }
        self.place(leaf, name, meta, content, path, there)
    }

    /// See [`Planner::hand_over`].
    fn place(
        &mut self,
        leaf: &Leaf,
        name: &[u8],
        meta: &Meta,
        content: &Content,
        path: Vec<u8>,
        there: Option<Stat>,
    ) -> Result<bool> {
        let context = self.context;
        let current = self.dir.as_mut().expect("begun");
        let owner = owner(context, leaf, meta);
        let mtime = convert::host_time(meta.mtime);
        if meta.kind == Kind::File {
            // What is left alone because it is there must be whole as soon as it is.
            let stream = there.is_some()
                || meta.size >= STREAM_BYTES
                || context.options.dry_run
                || context.options.overwrite.spares();
            if stream {
                // What another file of the snapshot has already, under another name, isn't this one's.
                let is_taken = there.as_ref().is_some_and(|there| {
                    there.kind == HostKind::File && there.nlink > 1 && !self.claimed.insert(FileId::of(there))
                });
                let stream = Stream { anew: is_taken, ..current.stream(name, meta, owner, content, path, there) };
                // What the window has comes first in the packs as well.
                return self.send(Task::Stream(Box::new(stream))).map(|()| true);
            }
            if meta.size > 0 {
                return self.file(name, meta, owner, content, path);
            }
        }
        let (mut there, in_the_way) = match there {
            Some(stat) if convert::kind(stat.kind) != meta.kind => (None, Some(stat)),
            there => (there, None),
        };
        let extras = extras(content);
        let wanted = Wanted { mode: meta.mode, owner: Some(owner), mtime, extras: &extras };
        if context.options.dry_run {
            self.foresee(name, meta, content, &wanted, &path, (there, in_the_way));
            return Ok(false);
        }
        let Some(handle) = current.open(context) else {
            add(&context.counters().unwritable, 1);
            return Ok(false);
        };
        let made = match meta.kind {
            Kind::File => handle.place_file(name, &[], &wanted),
            Kind::Dir => match (&there, in_the_way) {
                (None, in_the_way) => {
                    let made = match in_the_way {
                        None => handle.create_dir(name, extras.flags),
                        Some(_) => context.asides.make_dir((&*current.path, &*handle), name, extras.flags, &path),
                    };
                    made.and_then(|()| match self.selection.is_way(current.key(), name) {
                        true => {
                            self.made.insert(selection::joined(&current.path, name));
                            on_the_way(&handle, name, &wanted)
                        }
                        false => Ok(Vec::new()),
                    })
                }
                (Some(stat), _) => {
                    // It gets its mode when all is in it.
                    handle.open_up(name, stat);
                    Ok(Vec::new())
                }
            },
            _ => {
                let at = (&*current.path, &handle);
                node::place(context, at, name, (meta, content, &wanted), &mut there, in_the_way)
            }
        };
        match made {
            Ok(problems) => {
                let change = if there.is_some() { Change::Kept } else { Change::Restored };
                context.placed(&path, problems, change);
            }
            Err(e) => {
                self.all_made &= meta.kind != Kind::Dir;
                context.unwritable(&path, e);
            }
        }
        Ok(false)
    }

    /// Count what a run would do with an entry whose contents don't come as a stream, and do nothing.
    fn foresee(
        &mut self,
        name: &[u8],
        meta: &Meta,
        content: &Content,
        wanted: &Wanted,
        path: &[u8],
        (there, in_the_way): (Option<Stat>, Option<Stat>),
    ) {
        let context = self.context;
        let current = self.dir.as_mut().expect("begun");
        if meta.kind == Kind::Dir && in_the_way.is_some() {
            // It would give way, and nothing be there yet.
            self.barriers.barred(current.key(), name);
        }
        let is_kept = match (&there, current.had(name)) {
            (Some(there), Some(handle)) => {
                let may_stay = || handle.may_amend(name, convert::host_kind(meta.kind), FileId::of(there), wanted);
                meta.kind == Kind::Dir || node::is_right(handle, name, meta, content, there) && may_stay().is_ok()
            }
            _ => false,
        };
        if !is_kept && there.is_some_and(|there| there.nlink > 1) {
            context.replaces(path);
        }
        let change = if is_kept { Change::Kept } else { Change::Restored };
        context.placed(path, Vec::new(), change);
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
        let (parts, whole) = match &content.data {
            Data::None => return Ok(false),
            Data::Chunk(id) => match self.locator.locate(id)? {
                Some(location) => (Parts { places: vec![(location, 0)], ..Parts::default() }, id.0),
                None => return self.missing(&path, id),
            },
            Data::List(list) => match parts::find(&self.context.reader, &mut self.locator, list, meta.size)? {
                // Or nothing but a hole.
                Found::Parts(parts) if !parts.places.is_empty() => (parts, list.whole),
                Found::Parts(_) | Found::Many => {
                    let current = self.dir.as_ref().expect("begun");
                    let stream = current.stream(name, meta, (uid, gid), content, path, None);
                    return self.send(Task::Stream(Box::new(stream))).map(|()| true);
                }
                Found::Missing(id) => return self.missing(&path, &id),
                Found::Damaged(cause) => {
                    self.context.problem(&path, ProblemKind::Damaged, cause);
                    return Ok(false);
                }
            },
        };
        let multi = matches!(content.data, Data::List(_)).then(|| Multi {
            left: AtomicU32::new(parts.places.len() as u32),
            failed: AtomicBool::new(false),
            state: Mutex::new(MultiState { holes: parts.holes, ..MultiState::default() }),
        });
        let window = &mut self.window;
        let dir = self.dir.as_mut().expect("begun").number_in(window);
        let has_extras = !content.xattrs.is_empty() || content.flags != 0;
        let extras = if has_extras { window.add_extras(extras(content)) } else { 0 };
        let name = window.add_name(name);
        let (number, known) = (window.files.len() as u32, window.ids.len() as u32);
        let multi = multi.map_or(0, |multi| {
            window.multis.push(multi);
            window.multis.len() as u32
        });
        window.files.push(File {
            dir,
            name,
            mode: meta.mode,
            uid,
            gid,
            mtime: convert::host_time(meta.mtime),
            size: meta.size,
            whole,
            extras,
            multi,
        });
        window.uses.extend(parts.places.into_iter().zip(known..).map(|((location, offset), id)| {
            let Location { pack, ordinal } = location;
            Use { pack, ordinal, file: number, offset, id }
        }));
        window.ids.extend(parts.ids);
        if window.memory() >= self.window_bytes_max {
            self.hand_out()?;
        }
        Ok(false)
    }

    fn missing(&self, path: &[u8], id: &ChunkId) -> Result<bool> {
        let cause = drumlin_repo::Error::MissingChunk(*id);
        self.context.problem(path, ProblemKind::Damaged, cause);
        Ok(false)
    }

    fn send(&self, task: Task) -> Result<()> {
        self.tasks.send(task).map_err(|_| Error::Worker)
    }

    fn hand_out(&mut self) -> Result<()> {
        let next = Window { number: self.window.number + 1, ..Window::default() };
        let window = std::mem::replace(&mut self.window, next);
        if let Some(dir) = &mut self.dir {
            dir.forget_number();
        }
        self.window_bytes = (self.window_bytes * 4).min(self.window_bytes_max);
        hand_out(self.context, window, &self.tasks)
    }

    fn end_dir(&mut self) {
        if let Some(dir) = self.dir.take() {
            dir.end(self.context, &self.selection);
        }
    }
}

/// A directory that was made on the way to what is wanted, and that a later run would leave as it is: so it is closed
/// to nobody should this one be killed. It is finished with all others; problems are told then.
fn on_the_way(handle: &TargetDir, name: &[u8], wanted: &Wanted) -> place::Result<place::Problems> {
    if wanted.mode & 0o700 == 0o700 {
        // Whoever it is open to is enough: what else it shall have may be in the way of what is made in it.
        handle.open_dir(name)?.finish_dir_early(&Wanted { extras: &Extras::default(), ..*wanted })?;
    }
    Ok(Vec::new())
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
