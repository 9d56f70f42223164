//! The file for the next small object, created while nobody waits for it: whoever has put one object usually puts
//! another, and has one round trip less to wait.

use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, unbounded};

use super::Inner;
use super::objects::{BORN, NEW};
use super::peer::{Answer, Peer};
use super::wire::Request;
use crate::lock::lock;

#[derive(Default)]
pub(super) struct Spare {
    file: Mutex<Option<File>>,
}

impl Spare {
    /// The file, if there is one: nobody else gets it.
    pub fn take(&self) -> Option<File> {
        lock(&self.file).take()
    }
}

/// A file in `tmp/` that is being created.
pub(super) struct File {
    peer: Arc<Peer>,
    name: String,
    created: Receiver<Answer>,
}

impl Inner {
    /// Create the file for the next object, unless there is one, or it will be written along with being created, or the
    /// account could not take it away again.
    pub(super) fn set_spare(&self, peer: &Arc<Peer>) {
        let mut file = lock(&self.spare.file);
        if file.is_some() || peer.writes_at_once() || !peer.offers().replace {
            return;
        }
        let Ok(name) = self.temporary() else { return };
        let (to, created) = unbounded();
        peer.ask(&Request::Open { path: &self.path(&name), flags: NEW, mode: Some(BORN) }, &to, 0);
        *file = Some(File { peer: peer.clone(), name, created });
    }

    /// Wait for the file, and give its name and its handle, if it is on this connection.
    pub(super) fn ready(&self, file: File, peer: &Peer) -> Option<(String, Vec<u8>)> {
        let handle = file.peer.wait(&file.created).and_then(|answer| answer.reply).ok()?.handle().ok()?;
        if file.peer.number == peer.number {
            return Some((file.name, handle));
        }
        self.discard(&file.peer, &file.name, &handle);
        None
    }

    /// Nobody is going to put anything any more: take the file away.
    pub(super) fn drop_spare(&self) {
        if let Some(file) = self.spare.take() {
            self.drop_file(&file);
        }
    }

    /// Take away one that was taken and is not wanted.
    pub(super) fn drop_file(&self, file: &File) {
        let created = file.peer.wait(&file.created).and_then(|answer| answer.reply);
        if let Ok(Ok(handle)) = created.map(super::wire::Reply::handle) {
            self.discard(&file.peer, &file.name, &handle);
        }
    }

    fn discard(&self, peer: &Peer, name: &str, handle: &[u8]) {
        peer.tell(&Request::Close { handle });
        peer.tell(&Request::Remove { path: &self.path(name) });
    }
}
