//! The previous tree as a stream of leaves, read ahead by a thread of its own.

use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use drumlin_format::snapshot::{Reached, Snapshot};
use drumlin_format::tree::Leaf;
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::{Cursor, LeafRef};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A leaf of the previous tree.
pub(super) struct OldLeaf {
    pub child: LeafRef,
    pub leaf: Arc<Leaf>,
    /// Entries before this one are not part of the stream: they are in a partial snapshot that came before.
    pub from: usize,
    /// Entries from this one on are not part of it.
    pub to: usize,
}

/// The leaves, as they come. When it is dropped the thread that reads them has ended: who runs a backup may be about to
/// unmount where the repository is.
pub(super) struct OldLeaves {
    leaves: Option<Receiver<Result<OldLeaf>>>,
    thread: Option<JoinHandle<()>>,
}

impl OldLeaves {
    /// The next one; `None` at the end.
    pub fn next(&self) -> Option<Result<OldLeaf>> {
        self.leaves.as_ref()?.recv().ok()
    }
}

impl Drop for OldLeaves {
    fn drop(&mut self) {
        // Nobody listens any more: it ends once it has what it is at.
        self.leaves = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Leaves waiting between the reading thread and the merge.
const LEAVES_AHEAD: usize = 4;
/// Leaves that a store far away is asked for in advance: some megabytes of blocks.
const LEAVES_EXPECTED: usize = 512;

/// Begin to read. Of several snapshots each is read up to where it got, and the next from there on: first a partial
/// one, then the whole one that it was compared with.
pub(super) fn read(reader: Arc<Reader>, snapshots: Vec<Snapshot>) -> Result<OldLeaves> {
    let (sender, receiver) = bounded(LEAVES_AHEAD);
    let thread = std::thread::Builder::new()
        .name("old-tree".into())
        .spawn(move || {
            let mut from: Option<Reached> = None;
            for snapshot in snapshots {
                match send(&reader, &snapshot, from.as_ref(), &sender) {
                    // Nobody listens any more.
                    Ok(false) => return,
                    Ok(true) => {}
                    Err(e) => {
                        let _ = sender.send(Err(e));
                        return;
                    }
                }
                let Some(reached) = snapshot.partial else { return };
                // A run that was stopped later than the one before got further.
                if from.as_ref().is_none_or(|from| (&from.dir, &from.name) < (&reached.dir, &reached.name)) {
                    from = Some(reached);
                }
            }
        })
        .map_err(Error::system("start a thread"))?;
    Ok(OldLeaves { leaves: Some(receiver), thread: Some(thread) })
}

fn send(
    reader: &Arc<Reader>,
    snapshot: &Snapshot,
    from: Option<&Reached>,
    sender: &Sender<Result<OldLeaf>>,
) -> Result<bool> {
    let mut cursor = Cursor::new(reader.clone(), snapshot.root)?;
    if let Some(from) = from {
        cursor.seek(&from.dir, &from.name)?;
    }
    let (mut expected, mut hinted) = (VecDeque::new(), None);
    loop {
        while expected.len() < LEAVES_EXPECTED
            && let Some(child) = cursor.next_leaf()?
        {
            reader.expect_next(&child.node, &mut hinted);
            expected.push_back(child);
        }
        let Some(child) = expected.pop_front() else { return Ok(true) };
        let leaf = Arc::new(cursor.leaf(&child)?);
        if let Some(body) = child.body
            && reader.index().lookup(&body)?.is_none()
        {
            // A repair has given it up: nothing new may refer to it.
            return Err(drumlin_repo::Error::MissingChunk(body).into());
        }
        let after = |reached: &Reached, at: usize| {
            let (dir, name, _) = leaf.get(at);
            (dir, name) > (&reached.dir[..], &reached.name[..])
        };
        let first = from.map_or(0, |f| (0..leaf.len()).find(|at| after(f, *at)).unwrap_or(leaf.len()));
        let to = leaf.len();
        if sender.send(Ok(OldLeaf { child, leaf, from: first, to })).is_err() {
            return Ok(false);
        }
    }
}
