//! A worker: decodes blocks and writes what they hold to the files that want it.

use super::aside::Asides;
use super::own::Own;
use super::stream::{Fetch, Stream};
use super::window::{File, Multi, MultiState, Use, Window};
use super::{Options, file};
use crate::latency::Latency;
use crate::lock::lock;
use crate::monitor::{Change, Counters, Monitor, Problem, ProblemKind, add};
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, select};
use drumlin_format::pack::{PackKind, Table};
use drumlin_host::meta::Extras;
use drumlin_host::place::{self, Owners, Target, TargetDir, Wanted};
use drumlin_repo::PackInfo;
use drumlin_repo::pack::Reader;
use drumlin_seal::IdKey;
use std::collections::HashSet;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What planner and workers share.
pub(super) struct Context<'a> {
    pub options: &'a Options,
    pub reader: Arc<Reader>,
    pub data_ids: Arc<IdKey>,
    /// `None` in a dry run into a folder that isn't there.
    pub target: Option<Target>,
    pub owners: Owners,
    pub own: Own,
    pub monitor: &'a dyn Monitor,
    pub fetches: (Sender<Fetch>, Receiver<Fetch>),
    /// Room for blocks of streams, used before: fresh memory costs as much as opening a block.
    pub spare: Mutex<Vec<Vec<u8>>>,
    /// Files of several chunks that are open between two of them.
    pub open: AtomicUsize,
    /// Blocks of all of them that are hinted at.
    pub hinted: AtomicUsize,
    /// How much may be kept open.
    pub room: Room,
    /// Whether it was told that owners can't be set.
    pub owner_told: AtomicBool,
    /// Files that could not be restored, by a hash of their paths in the source: no hard link may be made to what has
    /// their names.
    pub lost: Mutex<HashSet<u64>>,
    /// Files of several names that would be replaced, in a dry run: by a hash of their paths in the source. Their
    /// further names would be replaced as well.
    pub replaced: Mutex<HashSet<u64>>,
    /// Files of several chunks that are there and not complete: directory below the target, and name.
    pub unfinished: Mutex<HashSet<(Vec<u8>, Vec<u8>)>>,
    /// What directories took the place of.
    pub asides: &'a Asides,
    /// Files that aren't what was to be saved: see [`Context::differs`].
    pub differing: AtomicU64,
    /// The first failure that ends the run.
    pub fatal: Mutex<Option<Error>>,
}

/// How much may be kept open: of few descriptors (containers and old systems have 256, or 1,024 for any number of
/// workers) what is needed at once has to have its part, and what is read from.
pub(super) struct Room {
    /// Files whose chunks are still coming in.
    files: usize,
    /// Directories of each worker.
    pub(super) dirs: usize,
}

impl Room {
    const FILES_MAX: usize = 128;
    const DIRS_MAX: usize = 32;

    /// Of so many descriptors, for so many workers.
    pub fn new(descriptors: usize, workers: usize) -> Self {
        let dirs = (descriptors / 4 / workers.max(1)).clamp(1, Self::DIRS_MAX);
        Room { files: (descriptors / 8).clamp(1, Self::FILES_MAX), dirs }
    }
}

/// Work.
pub(super) enum Task {
    /// A block, and which of its chunks go where: a stretch of the window's uses.
    Block { window: Arc<Window>, info: Arc<PackInfo>, table: Arc<Table>, block: u32, uses: std::ops::Range<usize> },
    /// Chunks of a pack that is gone: they may be elsewhere by now.
    Lost { window: Arc<Window>, pack: u32, uses: std::ops::Range<usize>, cause: String },
    /// A file that is written from its start to its end.
    Stream(Box<Stream>),
}

impl Context<'_> {
    /// An entry of the target goes, or would: told by where it is there, as the snapshot has none. `dir`: the path of
    /// its directory below the target.
    pub fn deleted(&self, dir: &[u8], name: &[u8]) {
        add(&self.counters().deleted, 1);
        let path = [dir, name].into_iter().filter(|part| !part.is_empty()).map(OsStr::from_bytes);
        let path = self.options.target.join(path.collect::<PathBuf>());
        self.monitor.entry(Change::Deleted, path.as_os_str().as_bytes());
    }

    pub fn counters(&self) -> &Counters {
        self.monitor.counters()
    }

    /// Whether there is no point in going on.
    pub fn ended(&self) -> bool {
        self.monitor.stop() || lock(&self.fatal).is_some()
    }

    pub fn fail(&self, error: Error) {
        lock(&self.fatal).get_or_insert(error);
    }

    /// What ended it, if something did that was not the user.
    pub fn outcome(&self) -> Result<()> {
        match lock(&self.fatal).take() {
            None | Some(Error::Interrupted) => Ok(()),
            Some(fatal) => Err(fatal),
        }
    }

    pub fn problem(&self, path: &[u8], kind: ProblemKind, cause: impl ToString) {
        let counters = self.counters();
        let counter = match kind {
            ProblemKind::Damaged => &counters.damaged,
            ProblemKind::Attribute => &counters.attributes,
            _ => &counters.unwritable,
        };
        add(counter, 1);
        if kind != ProblemKind::Attribute {
            lock(&self.lost).insert(hash(path));
            self.asides.lost(path);
        }
        self.monitor.problem(&Problem { path: path.to_vec(), kind, cause: cause.to_string() });
    }

    /// A file isn't what was to be saved, though nothing that the repository has of it is damaged.
    pub fn differs(&self, path: &[u8], cause: &str) {
        add(&self.differing, 1);
        self.problem(path, ProblemKind::Damaged, cause);
    }

    /// Whether trouble was told of that path that kept its entry from being restored.
    pub fn is_lost(&self, path: &[u8]) -> bool {
        lock(&self.lost).contains(&hash(path))
    }

    /// What other names have of the file at that path would not be it any more.
    pub fn replaces(&self, path: &[u8]) {
        lock(&self.replaced).insert(hash(path));
    }

    pub fn is_replaced(&self, path: &[u8]) -> bool {
        lock(&self.replaced).contains(&hash(path))
    }

    /// Remove what a run that ended early has left incomplete: half a file under its own name would pass for a whole
    /// one.
    pub fn clear_away(&self) {
        let unfinished = std::mem::take(&mut *lock(&self.unfinished));
        let Some(target) = &self.target else { return };
        for (dir, name) in unfinished {
            // Why the run ended is what the user has to know.
            let _ = target.dir(&dir).and_then(|dir| dir.remove(&name));
        }
    }

    /// A failure to write one entry; a full file system ends the run.
    pub fn unwritable(&self, path: &[u8], error: place::Error) {
        if error.is_full() {
            self.fail(Error::Place(error));
        } else {
            self.problem(path, ProblemKind::Unwritable, error);
        }
    }

    /// Tell which attributes could not be set. That an ordinary user can't give files away is told once, and then
    /// counted.
    pub fn attributes(&self, path: &[u8], problems: place::Problems) {
        for problem in problems {
            if !problem.is_about_owners() {
                self.problem(path, ProblemKind::Attribute, problem);
            } else if !self.owner_told.swap(true, Ordering::Relaxed) {
                let cause =
                    format!("{problem}; only root can give files to other users, so further cases are only counted");
                self.problem(path, ProblemKind::Attribute, cause);
            } else {
                add(&self.counters().attributes, 1);
            }
        }
    }

    /// An entry is there; what of its attributes could not be set is told.
    pub fn placed(&self, path: &[u8], problems: place::Problems, change: Change) {
        let counters = self.counters();
        add(if change == Change::Kept { &counters.kept } else { &counters.restored }, 1);
        self.attributes(path, problems);
        if self.monitor.wants_entries() {
            self.monitor.entry(change, path);
        }
    }
}

fn hash(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(path);
    hasher.finish()
}

/// One of the worker threads.
pub(super) struct Worker<'a> {
    pub(super) context: &'a Context<'a>,
    scratch: Vec<u8>,
    block: Vec<u8>,
    /// By window and number.
    dirs: Vec<(u32, u32, Arc<TargetDir>)>,
    /// So many of them are kept.
    dirs_max: usize,
    /// What making files took of late.
    pub(super) latency: Latency,
}

static NO_EXTRAS: Extras = Extras { xattrs: Vec::new(), flags: 0, target: Vec::new() };

impl<'a> Worker<'a> {
    pub fn new(context: &'a Context<'a>) -> Self {
        let latency = Latency::new(context.options.late);
        let dirs_max = context.room.dirs;
        Worker { context, scratch: Vec::new(), block: Vec::new(), dirs: Vec::new(), dirs_max, latency }
    }

    /// One that writes in another one's place.
    pub(super) fn hand(context: &'a Context<'a>) -> Self {
        Worker { dirs_max: 1, ..Self::new(context) }
    }

    /// Work until no worker has a task left. A worker without tasks still fetches blocks for those that have some.
    /// `at_work` is dropped when this worker has no more tasks; `others` ends when all of them have dropped theirs.
    pub fn run(mut self, tasks: &Receiver<Task>, at_work: Sender<Infallible>, others: &Receiver<Infallible>) {
        let fetches = self.context.fetches.1.clone();
        loop {
            // Somebody waits for a fetch.
            if let Ok(fetch) = fetches.try_recv() {
                fetch.process(self.context, &mut self.scratch);
                continue;
            }
            select! {
                recv(fetches) -> fetch => if let Ok(fetch) = fetch { fetch.process(self.context, &mut self.scratch) },
                recv(tasks) -> task => match task {
                    Ok(task) if !self.context.ended() => self.task(task),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
        drop(at_work);
        loop {
            select! {
                recv(fetches) -> fetch => if let Ok(fetch) = fetch { fetch.process(self.context, &mut self.scratch) },
                recv(others) -> _ => return,
            }
        }
    }

    fn task(&mut self, task: Task) {
        match task {
            Task::Block { window, info, table, block, uses } => {
                if let Err(e) = self.block(&window, &info, &table, block, uses) {
                    self.context.fail(e);
                }
            }
            Task::Lost { window, pack, uses, cause } => {
                if let Err(e) = self.lost(&window, pack, uses, &cause) {
                    self.context.fail(e);
                }
            }
            Task::Stream(stream) => {
                if let Err(e) = stream.run(self.context, &mut self.scratch) {
                    self.context.fail(e);
                }
            }
        }
    }

    fn block(
        &mut self,
        window: &Arc<Window>,
        info: &PackInfo,
        table: &Table,
        block: u32,
        uses: std::ops::Range<usize>,
    ) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.block);
        let read = self.context.reader.block(info, table, block, &mut self.scratch, &mut bytes);
        let damage = match read {
            Ok(()) => None,
            Err(e) if e.is_damage() => Some(e.to_string()),
            Err(e) => return Err(e.into()),
        };
        let mut lens = 0;
        let mut files = Vec::new();
        // The uses of one chunk stand together: it is checked once.
        let mut checked = None;
        for at in uses {
            if self.context.ended() {
                break;
            }
            let used = &window.uses[at];
            let chunk = &table.chunks[used.ordinal as usize];
            let content = bytes.get(chunk.offset as usize..).and_then(|b| b.get(..chunk.len as usize));
            // That it is here, only the index says, which any writer may have made: so it is compared with the table.
            let wanted = window.chunk(used);
            let fault = match (&damage, content) {
                (Some(cause), _) => Some(cause.clone()),
                (None, None) => Some("a chunk lies outside of its block".into()),
                (None, Some(_)) if wanted != chunk.id => {
                    Some(format!("the index takes chunk {} of '{}' for chunk {wanted}", chunk.id, info.name()))
                }
                (None, Some(content)) => {
                    if checked != Some(used.ordinal)
                        && !self.context.reader.check(PackKind::Data, &chunk.id, content)?
                    {
                        Some(format!("chunk {} of '{}' doesn't match its id", chunk.id, info.name()))
                    } else {
                        lens += if checked == Some(used.ordinal) { 0 } else { u64::from(chunk.len) };
                        checked = Some(used.ordinal);
                        None
                    }
                }
            };
            match fault {
                // A prune may have moved it, or another pack may have it too.
                Some(cause) => match self.context.reader.elsewhere(PackKind::Data, &wanted, &info.id)? {
                    Some(content) => self.write(window, used, &content),
                    None => self.damaged(window, used, &cause),
                },
                None => match content.unwrap_or_default() {
                    content if self.latency.is_late() && window.is_of_one(used) => files.push((used, content)),
                    content => self.write(window, used, content),
                },
            }
        }
        self.spread(window, &files);
        self.latency.settle();
        self.context.reader.used(info, table, block, lens);
        self.block = bytes;
        Ok(())
    }

    fn lost(&mut self, window: &Arc<Window>, pack: u32, uses: std::ops::Range<usize>, cause: &str) -> Result<()> {
        for at in uses {
            if self.context.ended() {
                break;
            }
            let (used, reader) = (&window.uses[at], &self.context.reader);
            match reader.elsewhere(PackKind::Data, &window.chunk(used), &reader.index().pack(pack).id)? {
                Some(content) => self.write(window, used, &content),
                None => self.damaged(window, used, cause),
            }
        }
        Ok(())
    }

    fn damaged(&mut self, window: &Arc<Window>, used: &Use, cause: &str) {
        let file = &window.files[used.file as usize];
        match window.multi(file) {
            None => self.context.problem(&window.path(file), ProblemKind::Damaged, cause),
            Some(multi) => {
                if !multi.failed.swap(true, Ordering::Relaxed) {
                    self.context.problem(&window.path(file), ProblemKind::Damaged, cause);
                }
                self.arrived(window, file, multi);
            }
        }
    }

    pub(super) fn write(&mut self, window: &Arc<Window>, used: &Use, content: &[u8]) {
        let file = &window.files[used.file as usize];
        if content.len() as u64 != window.len(used) {
            return self.damaged(window, used, "its contents don't have the length that the tree says");
        }
        let written = match window.multi(file) {
            None => self.write_single(window, file, content),
            Some(multi) => self.write_part(window, file, multi, used.offset, content),
        };
        match written {
            Ok(()) => add(&self.context.counters().bytes_written, content.len() as u64),
            Err(e) => {
                let first = window.multi(file).is_none_or(|m| !m.failed.swap(true, Ordering::Relaxed));
                if first {
                    self.context.unwritable(&window.path(file), e);
                }
            }
        }
        if let Some(multi) = window.multi(file) {
            self.arrived(window, file, multi);
        }
    }

    fn write_single(&mut self, window: &Arc<Window>, file: &File, content: &[u8]) -> place::Result<()> {
        let begun = Instant::now();
        let dir = self.dir(window, file.dir)?;
        let name = window.name(file);
        let problems = dir.place_file(name, content, &wanted(window, file))?;
        self.latency.note(1, begun.elapsed());
        if problems.is_empty() && !self.context.monitor.wants_entries() {
            add(&self.context.counters().restored, 1);
        } else {
            self.context.placed(&window.path(file), problems, Change::Restored);
        }
        Ok(())
    }

    fn write_part(
        &mut self,
        window: &Arc<Window>,
        file: &File,
        multi: &Multi,
        offset: u64,
        content: &[u8],
    ) -> place::Result<()> {
        if multi.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let dir = self.dir(window, file.dir)?;
        let mut state = lock(&multi.state);
        let open = match state.file.take() {
            Some(open) => open,
            None => {
                let open = match state.made {
                    Some(id) => dir.reopen_file(window.name(file), id)?,
                    None => {
                        let open = dir.create_file(window.name(file))?;
                        lock(&self.context.unfinished).insert(window.place(file));
                        let id = open.id().inspect_err(|_| {
                            let _ = dir.remove(window.name(file));
                        });
                        state.made = Some(id?);
                        open.set_early_flags(wanted(window, file).extras.flags);
                        open.set_len(file.size)?;
                        open
                    }
                };
                self.context.open.fetch_add(1, Ordering::Relaxed);
                open
            }
        };
        if let Err(e) = open.write_at(offset, content) {
            self.context.open.fetch_sub(1, Ordering::Relaxed);
            return Err(e);
        }
        if state.hashed == offset && state.holes.is_empty() {
            state.hasher.get_or_insert_with(|| Box::new(self.context.data_ids.hasher())).update(content);
            state.hashed += content.len() as u64;
        }
        if self.context.open.load(Ordering::Relaxed) > self.context.room.files {
            self.context.open.fetch_sub(1, Ordering::Relaxed);
        } else {
            state.file = Some(open);
        }
        Ok(())
    }

    /// A chunk of a file of several has been dealt with; after the last one the file is completed.
    fn arrived(&mut self, window: &Arc<Window>, file: &File, multi: &Multi) {
        if multi.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let path = || window.path(file);
        let mut state = lock(&multi.state);
        lock(&self.context.unfinished).remove(&window.place(file));
        if multi.failed.load(Ordering::Relaxed) {
            let made = state.made.is_some();
            if state.file.take().is_some() {
                self.context.open.fetch_sub(1, Ordering::Relaxed);
            }
            if made && let Ok(dir) = self.dir(window, file.dir) {
                // Half a file under its own name would pass for a whole one.
                let _ = dir.remove(window.name(file));
            }
            return;
        }
        match self.complete(window, file, &mut state) {
            Ok(Some(problems)) => self.context.placed(&path(), problems, Change::Restored),
            Ok(None) => {
                let cause = "the file as a whole is not what was backed up, though each of its chunks is";
                self.context.problem(&path(), ProblemKind::Damaged, cause);
            }
            Err(e) => self.context.unwritable(&path(), e),
        }
    }

    /// Check the whole and set its metadata; `None` if it is not what it should be.
    fn complete(
        &mut self,
        window: &Arc<Window>,
        file: &File,
        state: &mut MultiState,
    ) -> place::Result<Option<place::Problems>> {
        let dir = self.dir(window, file.dir)?;
        let open = match (state.file.take(), state.made) {
            (Some(open), _) => {
                self.context.open.fetch_sub(1, Ordering::Relaxed);
                open
            }
            (None, Some(id)) => dir.reopen_file(window.name(file), id)?,
            (None, None) => return Ok(None),
        };
        let hasher = state.hasher.take().map_or_else(|| self.context.data_ids.hasher(), |hasher| *hasher);
        let whole = file::whole(&open, file.size, state.hashed, hasher, &state.holes, &mut self.scratch)?;
        if whole != file.whole {
            drop(open);
            let _ = dir.remove(window.name(file));
            return Ok(None);
        }
        open.finish(&wanted(window, file)).map(Some)
    }

    fn dir(&mut self, window: &Arc<Window>, number: u32) -> place::Result<Arc<TargetDir>> {
        let of = window.number;
        if let Some(at) = self.dirs.iter().rposition(|(w, n, _)| (*w, *n) == (of, number)) {
            return Ok(self.dirs[at].2.clone());
        }
        if self.dirs.len() >= self.dirs_max {
            self.dirs.remove(0);
        }
        let target = self.context.target.as_ref().expect("files are written only where there is a target");
        let dir = target.dir(&window.dirs[number as usize].1)?;
        self.dirs.push((of, number, dir.clone()));
        Ok(dir)
    }
}

/// The metadata that a file shall have.
fn wanted<'w>(window: &'w Window, file: &File) -> Wanted<'w> {
    Wanted {
        mode: file.mode,
        owner: Some((file.uid, file.gid)),
        mtime: file.mtime,
        extras: window.extras(file).unwrap_or(&NO_EXTRAS),
    }
}
