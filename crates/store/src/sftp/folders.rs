//! The folders of a repository on a server: made on demand, made durable in batches.
//!
//! OpenSSH opens a folder like a file, and syncs it: so an entry is durable once its folder has been synced, and the
//! folders above it. A server that doesn't is left to itself.
//!
//! As in [`crate::LocalStore`], a failed sync of a folder is never forgotten.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::peer::{Peer, Together, Trouble};
use super::wire::{Reply, Request, open, status};
use super::{Inner, split};
use crate::lock::lock;
use crate::{Action, Result};

/// Folders that are kept open.
const OPEN_MAX: usize = 16;
/// Folders that are opened and synced at once.
const AT_ONCE: usize = 64;

#[derive(Default)]
pub(super) struct Folders {
    state: Mutex<State>,
    /// One sync at a time: a second one must not find the list empty and return before the first has done its work.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Those that are known to be there.
    known: HashSet<String>,
    /// Those with entries made or removed since they were last synced, and the number of the last mark: what is marked
    /// while a sync is under way is for the next one.
    dirty: BTreeMap<String, u64>,
    marks: u64,
    /// Those whose own entry, and all above, are durable.
    anchored: HashSet<String>,
    open: HashMap<String, Arc<Open>>,
    failed: Option<Trouble>,
}

impl State {
    fn mark(&mut self, folder: &str) {
        self.marks += 1;
        self.dirty.insert(folder.to_owned(), self.marks);
    }

    /// These were synced by a request that was made after all marks up to this number.
    fn settle(&mut self, folders: &[String], asked: u64) {
        for folder in folders {
            if self.dirty.get(folder).is_some_and(|mark| *mark <= asked) {
                self.dirty.remove(folder);
            }
            self.anchored.insert(folder.clone());
        }
    }
}

/// A folder that is open on some connection; closed when dropped.
pub(super) struct Open {
    peer: Arc<Peer>,
    handle: Vec<u8>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.peer.tell(&Request::Close { handle: &self.handle });
    }
}

/// Folders that have to be synced together, and those of them that are open.
#[derive(Default)]
pub(super) struct Opened {
    folders: Vec<String>,
    open: Vec<Arc<Open>>,
    /// The last mark before their sync was asked for.
    asked: Cell<u64>,
}

impl Opened {
    /// How many syncs [`Opened::sync`] asks for.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Ask for all that are open to be synced.
    pub(super) fn sync(&self, flight: &mut dyn Together) {
        for open in &self.open {
            flight.add(&Request::Sync { handle: &open.handle });
        }
    }
}

/// The folders on the way down to `folder`, itself last.
fn chain(folder: &str) -> impl Iterator<Item = &str> {
    let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
    ends.map(|end| &folder[..end]).filter(|f| !f.is_empty())
}

impl Folders {
    /// Those on the way to `folder` that are not known to be there.
    pub(super) fn lacking(&self, folder: &str) -> Vec<String> {
        let state = lock(&self.state);
        chain(folder).filter(|f| !state.known.contains(*f)).map(str::to_owned).collect()
    }

    /// Ask for folders to be made; [`Folders::note_made`] takes the replies.
    pub(super) fn ask_to_make(&self, store: &Inner, flight: &mut dyn Together, folders: &[String]) {
        for folder in folders {
            flight.add(&Request::MakeDir { path: &store.path(folder), mode: 0o755 });
        }
    }

    /// Take as many replies as there are `folders`. One that is there already is no trouble, as is one that can't be
    /// made: what comes next will tell.
    pub(super) fn note_made(&self, folders: &[String], replies: &mut impl Iterator<Item = Reply>) {
        for (folder, reply) in folders.iter().zip(replies) {
            if reply.done().is_ok() {
                let mut state = lock(&self.state);
                state.anchored.remove(folder);
                state.mark(split(folder).0);
            }
        }
    }

    /// From here on the sync of these is asked for, behind what names an object in `folder` and makes `lacking`: of
    /// both that sync will be true.
    pub(super) fn ask(&self, opened: &Opened, folder: &str, lacking: &[String]) {
        let mut state = lock(&self.state);
        lacking.iter().for_each(|made| state.mark(split(made).0));
        state.mark(folder);
        opened.asked.set(state.marks);
    }

    /// Take as many replies as there are `folders`, which were marked by [`Folders::ask`].
    pub(super) fn note_asked(&self, folders: &[String], replies: &mut impl Iterator<Item = Reply>) {
        for (folder, reply) in folders.iter().zip(replies) {
            if reply.done().is_ok() {
                lock(&self.state).anchored.remove(folder);
            }
        }
    }

    /// A folder is there, as something in it is.
    pub(super) fn know(&self, folder: &str) {
        lock(&self.state).known.extend(chain(folder).map(str::to_owned));
    }

    /// Make a folder, and what is missing above it.
    pub(super) fn make(&self, store: &Inner, peer: &Peer, folder: &str) -> std::result::Result<(), Trouble> {
        let folders: Vec<String> = chain(folder).map(str::to_owned).collect();
        let mut flight = peer.flight();
        self.ask_to_make(store, &mut flight, &folders);
        self.note_made(&folders, &mut flight.land()?.into_iter());
        Ok(())
    }

    /// Something in `folder` was written: it is there, and has to be synced.
    pub(super) fn mark(&self, folder: &str) {
        let mut state = lock(&self.state);
        state.known.extend(chain(folder).map(str::to_owned));
        state.mark(folder);
    }

    /// A folder that lies at the top, if it is open and durable itself: few objects are removed there, by somebody who
    /// waits for it, so that a sync of each may go along. Elsewhere many are, and one sync does for all.
    pub(super) fn at_hand(&self, peer: &Peer, folder: &str) -> Opened {
        let state = lock(&self.state);
        let is_fit = !folder.contains('/') && state.failed.is_none() && state.anchored.contains(folder);
        let open = state.open.get(folder).filter(|open| is_fit && open.peer.number == peer.number);
        Opened { open: open.cloned().into_iter().collect(), ..Opened::default() }
    }

    /// Something in `folder` was removed.
    pub(super) fn mark_removed(&self, folder: &str) {
        lock(&self.state).mark(folder);
    }

    /// A folder is not there after all: somebody has removed it.
    pub(super) fn unknow(&self, folder: &str) {
        let mut state = lock(&self.state);
        for folder in chain(folder) {
            state.known.remove(folder);
        }
    }

    /// What came of the sync of a folder. Some file systems, such as shares of others' machines, don't know what that
    /// is: OpenSSH's server tells their EINVAL as a bad message, and their ENOSYS as unsupported. There is nothing more
    /// that can be done then, as with one that opens none.
    pub(super) fn synced(&self, peer: &Peer, reply: Reply) -> std::result::Result<(), Trouble> {
        match reply.done() {
            Err(trouble) if trouble.is(status::BAD_MESSAGE) || trouble.is(status::UNSUPPORTED) => {
                peer.syncs_folders.store(false, Ordering::Relaxed);
                Ok(())
            }
            other => other.map_err(|trouble| self.fail(trouble)),
        }
    }

    /// A sync has failed: nothing can be promised to be durable any more.
    pub(super) fn fail(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Gone(_) => trouble,
            trouble => lock(&self.state).failed.get_or_insert(trouble).clone(),
        }
    }

    /// Make all entries durable that were marked before this call.
    pub(super) fn sync(&self, store: &Inner) -> Result<()> {
        let _alone = lock(&self.syncing);
        let dirty: Vec<String> = lock(&self.state).dirty.keys().cloned().collect();
        store.run(Action::Persist, "", |peer| self.persist(store, peer, &dirty))
    }

    /// The folders that have to be synced so that entries in `folders` are durable, opened where they are open.
    pub(super) fn wanted(&self, peer: &Peer, folders: &[String]) -> std::result::Result<Opened, Trouble> {
        let state = lock(&self.state);
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let mut todo = BTreeSet::new();
        for folder in folders {
            todo.insert(folder.clone());
            let mut at = folder.as_str();
            while !at.is_empty() && !state.anchored.contains(at) {
                at = split(at).0;
                todo.insert(at.to_owned());
            }
        }
        let open = |folder: &String| state.open.get(folder).filter(|open| open.peer.number == peer.number).cloned();
        let asked = Cell::new(state.marks);
        Ok(Opened { open: todo.iter().filter_map(open).collect(), folders: todo.into_iter().collect(), asked })
    }

    /// Those of them that have still to be opened; none, if this server can't sync folders.
    pub(super) fn closed(&self, peer: &Peer, wanted: &Opened) -> Vec<String> {
        if !peer.offers().sync || !peer.syncs_folders.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let state = lock(&self.state);
        let is_open = |folder: &&String| state.open.get(*folder).is_some_and(|open| open.peer.number == peer.number);
        wanted.folders.iter().filter(|folder| !is_open(folder)).cloned().collect()
    }

    /// Ask for folders to be opened; [`Folders::note_opened`] takes the replies.
    pub(super) fn ask_to_open(&self, store: &Inner, flight: &mut dyn Together, folders: &[String]) {
        for folder in folders {
            flight.add(&Request::Open { path: &store.path(folder), flags: open::READ, mode: None });
        }
    }

    /// Take as many replies as there are `folders`. One that isn't there has no entries that could be lost.
    pub(super) fn note_opened(
        &self,
        peer: &Arc<Peer>,
        folders: &[String],
        replies: &mut impl Iterator<Item = Reply>,
        wanted: &mut Opened,
    ) {
        for (folder, reply) in folders.iter().zip(replies) {
            match reply.handle() {
                Ok(handle) => {
                    let open = Arc::new(Open { peer: peer.clone(), handle });
                    wanted.open.push(open.clone());
                    let mut state = lock(&self.state);
                    // Those of packs go first, of which there are many.
                    let least = |open: &HashMap<String, _>| {
                        open.keys().find(|folder| folder.contains('/')).or_else(|| open.keys().next()).cloned()
                    };
                    let least = if state.open.len() >= OPEN_MAX { least(&state.open) } else { None };
                    let old = least.and_then(|least| state.open.remove(&least));
                    state.open.insert(folder.clone(), open);
                    drop(state);
                    drop(old);
                }
                // One that this account may write to and not read can't be synced, and the others can.
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) || trouble.is(status::PERMISSION_DENIED) => {}
                // This server doesn't open folders: there is nothing more that can be done.
                Err(_) => peer.syncs_folders.store(false, Ordering::Relaxed),
            }
        }
    }

    /// All that had to be synced has been, if all of it was open: whether that is so.
    pub(super) fn note_synced(&self, peer: &Peer, wanted: &Opened) -> bool {
        let can = peer.offers().sync && peer.syncs_folders.load(Ordering::Relaxed);
        if can && wanted.open.len() < wanted.folders.len() {
            return false;
        }
        lock(&self.state).settle(&wanted.folders, wanted.asked.get());
        true
    }

    /// Make the entries in `folders` durable, and the folders themselves.
    pub(super) fn persist(
        &self,
        store: &Inner,
        peer: &Arc<Peer>,
        folders: &[String],
    ) -> std::result::Result<(), Trouble> {
        for some in folders.chunks(AT_ONCE) {
            let mut wanted = self.wanted(peer, some)?;
            let closed = self.closed(peer, &wanted);
            if !closed.is_empty() {
                let mut flight = peer.flight();
                self.ask_to_open(store, &mut flight, &closed);
                self.note_opened(peer, &closed, &mut flight.land()?.into_iter(), &mut wanted);
            }
            let mut flight = peer.flight();
            wanted.sync(&mut flight);
            flight.land()?.into_iter().try_for_each(|reply| self.synced(peer, reply))?;
            // What could not be opened isn't there, or can't be synced.
            lock(&self.state).settle(&wanted.folders, wanted.asked.get());
        }
        Ok(())
    }

    /// Make the entry of the repository's own folder durable, if the account may look at what is above it.
    pub(super) fn persist_above(&self, store: &Inner) {
        let above = match store.base.iter().rposition(|b| *b == b'/') {
            Some(0) => b"/".to_vec(),
            Some(end) => store.base[..end].to_vec(),
            None => b".".to_vec(),
        };
        let _ = store.run(Action::Create, "", |peer| {
            if !peer.offers().sync {
                return Ok(());
            }
            let handle = peer.one(&Request::Open { path: &above, flags: open::READ, mode: None })?.handle()?;
            let synced = peer.one(&Request::Sync { handle: &handle });
            peer.tell(&Request::Close { handle: &handle });
            synced.map(|_| ())
        });
    }
}
