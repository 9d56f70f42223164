//! A file that is open on several connections, so that more of it is on its way to a far server: its lanes.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};

use super::peer::{Answer, Gone, LOOK, Peer, Trouble};
use super::wire::Request;

/// The file as it is open now.
pub(super) struct Under {
    pub(super) lanes: Vec<Lane>,
    /// Where answers come in: to WRITEs by where they began, to SYNCs with [`OF_SYNC`].
    pub(super) to: Sender<Answer>,
    pub(super) answers: Receiver<Answer>,
    /// What a sync on its way will make safe.
    pub(super) syncing: Option<u64>,
}

/// The file as it is open on one connection.
pub(super) struct Lane {
    pub(super) peer: Arc<Peer>,
    pub(super) handle: Vec<u8>,
}

pub(super) const OF_SYNC: usize = usize::MAX;

impl Lane {
    /// Where nothing can be synced, only this tells whether the server has kept what it has taken: a quota, or a storage behind it
    /// that is full.
    pub(super) fn close(&self, is_synced: bool) -> std::result::Result<(), Trouble> {
        let close = Request::Close { handle: &self.handle };
        if is_synced {
            self.peer.tell(&close);
            return Ok(());
        }
        self.peer.one(&close)?.done()
    }
}

impl Under {
    pub(super) fn new(peer: &Arc<Peer>, handle: Vec<u8>) -> Self {
        let (to, answers) = unbounded();
        Under { lanes: vec![Lane { peer: peer.clone(), handle }], to, answers, syncing: None }
    }

    /// Close it on the connections that are left.
    pub(super) fn leave(self) {
        for lane in self.lanes.iter().filter(|lane| lane.peer.check().is_ok()) {
            lane.peer.tell(&Request::Close { handle: &lane.handle });
        }
    }

    /// The connection that the file was opened on first.
    pub(super) fn first(&self) -> Option<Arc<Peer>> {
        self.lanes.first().map(|lane| lane.peer.clone())
    }

    pub(super) fn syncs(&self) -> bool {
        self.lanes.iter().all(|lane| lane.peer.offers().sync)
    }

    /// Send a piece down the lane with the least to do.
    pub(super) fn write(&self, offset: u64, bytes: &Bytes) {
        if let Some(lane) = self.lanes.iter().min_by_key(|lane| lane.peer.load()) {
            lane.peer.write(&lane.handle, offset, bytes.clone(), &self.to, offset as usize);
        }
    }

    /// The next answer, over whichever lane.
    pub(super) fn wait(&self) -> std::result::Result<Answer, Gone> {
        loop {
            match self.answers.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                // A lane that died tells those who wait on it.
                Err(_) => self.lanes.iter().for_each(|lane| lane.peer.look()),
            }
        }
    }
}
