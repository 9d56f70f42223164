//! A file that is open on several connections, so that more of it is on its way to a far server: its lanes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};

use super::peer::{Answer, Gone, LOOK, Peer, Trouble};
use super::wire::{Request, open};

/// The file as it is open now.
pub(super) struct Under {
    pub(super) lanes: Vec<Lane>,
    /// Where answers come in: to WRITEs by where they began, to SYNCs with [`OF_SYNC`].
    pub(super) to: Sender<Answer>,
    pub(super) answers: Receiver<Answer>,
    /// What a sync on its way will make safe.
    pub(super) syncing: Option<u64>,
    /// Where it was to be opened, by the numbers of connections, and is being opened: answers come with [`OF_OPENING`]
    /// and below.
    opening: Vec<(u64, Option<Arc<Peer>>)>,
    /// WRITEs that have not been answered.
    owed: usize,
}

/// The file as it is open on one connection.
pub(super) struct Lane {
    pub(super) peer: Arc<Peer>,
    pub(super) handle: Vec<u8>,
    /// Bytes of this file that are on their way on it.
    load: usize,
}

pub(super) const OF_SYNC: usize = usize::MAX;
/// The tag of the answer to the first OPEN; the others count down from it.
const OF_OPENING: usize = OF_SYNC - 1;
/// How long answers to OPENs are waited for by who gives up a file that could be open in vain.
const SETTLING: Duration = Duration::from_secs(2);

impl Lane {
    pub(super) fn new(peer: Arc<Peer>, handle: Vec<u8>) -> Self {
        Lane { peer, handle, load: 0 }
    }

    /// Where nothing can be synced, only this tells whether the server has kept what it has taken: a quota, or a
    /// storage behind it that is full.
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
        let lanes = vec![Lane::new(peer.clone(), handle)];
        Under { lanes, to, answers, syncing: None, opening: Vec::new(), owed: 0 }
    }

    /// Open it on one more connection. It is a lane once the answer has come.
    pub(super) fn open(&mut self, peer: Arc<Peer>, path: &[u8]) {
        let open = Request::Open { path, flags: open::WRITE, mode: None };
        peer.ask(&open, &self.to, OF_OPENING - self.opening.len());
        self.opening.push((peer.number, Some(peer)));
    }

    /// Take in an answer to one of those; others come back. Where it could not be opened, the others carry it.
    pub(super) fn opened(&mut self, answer: Answer) -> Option<Answer> {
        let place = OF_OPENING.checked_sub(answer.tag).and_then(|at| self.opening.get_mut(at));
        let Some((_, place)) = place else { return Some(answer) };
        let handle = answer.reply.ok().and_then(|reply| reply.handle().ok());
        self.lanes.extend(place.take().zip(handle).map(|(peer, handle)| Lane::new(peer, handle)));
        None
    }

    /// Wait until nobody opens it any more, so that all who have it can close it. What else is answered is wanted by
    /// nobody.
    pub(super) fn settle(&mut self) {
        let start = Instant::now();
        while self.opening.iter().flat_map(|(_, peer)| peer).any(|peer| peer.check().is_ok())
            && start.elapsed() < SETTLING
        {
            if let Ok(answer) = self.answers.recv_timeout(LOOK) {
                self.opened(answer);
            }
        }
    }

    /// The connections on which it is open, or was to be: where that was refused it is not asked for again.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let opening = self.opening.iter().map(|(number, _)| *number);
        self.lanes.iter().map(|lane| lane.peer.number).chain(opening).collect()
    }

    /// Close it on the connections that are left.
    pub(super) fn leave(mut self) {
        self.settle();
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

    /// Send a piece down the lane with the least to do among those on which no more than `most` bytes of the file would
    /// be on their way, or else nothing is. Gives the number of its connection; `None`: it has to wait for an answer.
    pub(super) fn write(&mut self, offset: u64, bytes: &Bytes, most: usize) -> Option<u64> {
        let open = self.lanes.iter_mut().filter(|lane| lane.load == 0 || lane.load + bytes.len() <= most);
        let lane = open.min_by_key(|lane| lane.peer.load())?;
        lane.load += bytes.len();
        self.owed += 1;
        lane.peer.write(&lane.handle, offset, bytes.clone(), &self.to, offset as usize);
        Some(lane.peer.number)
    }

    /// Whether a WRITE has not been answered.
    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// An answer has come, to what has that tag.
    pub(super) fn heard(&mut self, tag: usize) {
        self.owed -= usize::from(tag != OF_SYNC && self.owed > 0);
    }

    /// The server has taken so much that was sent on that connection.
    pub(super) fn landed(&mut self, number: u64, len: usize) {
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.peer.number == number) {
            lane.load = lane.load.saturating_sub(len);
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::peer::{Line, Outgoing};
    use super::super::wire::{Packet, Reply, status};
    use super::*;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const LEN: usize = 1000;

    /// A connection, and what goes out on it. Its requests are numbered from 1.
    pub fn connection() -> (Arc<Peer>, UnboundedReceiver<Outgoing>) {
        let (out, outgoing) = unbounded_channel();
        (Peer::new(out, Line::new(Duration::from_secs(60))), outgoing)
    }

    fn answer(peer: &Peer, id: u32, reply: Reply) {
        peer.take(Packet::Reply { id, reply }).unwrap();
    }

    fn done() -> Reply {
        Reply::Status { code: status::OK, words: String::new() }
    }

    /// How many pieces are taken at once.
    fn fill(under: &mut Under, most: usize) -> Vec<u64> {
        let bytes = Bytes::from_static(&[0; LEN]);
        (0..100).map_while(|at| under.write(at, &bytes, most)).collect()
    }

    #[test]
    fn no_lane_has_more_than_it_may_have_and_each_has_something() {
        let (one, _heard) = connection();
        let (two, _heard) = connection();
        let mut under = Under::new(&one, b"h".to_vec());
        assert_eq!(fill(&mut under, 3 * LEN), [one.number; 3]);
        under.lanes.push(Lane::new(two.clone(), b"h".to_vec()));
        assert_eq!(fill(&mut under, 3 * LEN), [two.number; 3], "the one with the least to do");
        under.landed(one.number, LEN);
        assert_eq!(fill(&mut under, 3 * LEN), [one.number]);
        // What is longer than that goes by itself.
        let mut under = Under::new(&one, b"h".to_vec());
        assert_eq!(fill(&mut under, LEN / 2), [one.number]);
        under.landed(one.number, LEN);
        assert_eq!(fill(&mut under, LEN / 2), [one.number]);
    }

    #[test]
    fn it_is_a_lane_once_the_server_has_opened_it() {
        let ((one, _a), (two, _b), (three, _c)) = (connection(), connection(), connection());
        let mut under = Under::new(&one, b"h".to_vec());
        under.open(two.clone(), b"path");
        under.open(three.clone(), b"path");
        assert_eq!(under.numbers(), [one.number, two.number, three.number], "asked for but once");
        assert_eq!(under.lanes.len(), 1);
        answer(&three, 1, Reply::Handle(b"3".to_vec()));
        answer(&two, 1, Reply::Status { code: status::FAILURE, words: "no more files".into() });
        under.settle();
        let lanes: Vec<_> = under.lanes.iter().map(|lane| (lane.peer.number, lane.handle.clone())).collect();
        assert_eq!(lanes, [(one.number, b"h".to_vec()), (three.number, b"3".to_vec())]);
        assert_eq!(under.numbers(), [one.number, three.number, two.number, three.number], "nor where it was refused");
        // Answers to other requests are somebody else's.
        fill(&mut under, LEN);
        answer(&one, 1, done());
        assert!(under.opened(under.wait().unwrap()).is_some());
    }

    /// Who leaves it closes it where it was about to be opened, too; a connection that says nothing is not waited for
    /// without end.
    #[test]
    fn what_is_opened_late_is_closed() {
        let ((one, _a), (two, mut heard), (three, _c)) = (connection(), connection(), connection());
        let mut under = Under::new(&one, b"h".to_vec());
        under.open(two.clone(), b"path");
        under.open(three.clone(), b"path");
        three.die("gone");
        let late = {
            let two = two.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                answer(&two, 1, Reply::Handle(b"late".to_vec()));
            })
        };
        under.leave();
        late.join().unwrap();
        two.settle();
        let mut sent = Vec::new();
        while let Ok(packet) = heard.try_recv() {
            sent.extend(packet.head);
        }
        assert!(sent.windows(4).any(|bytes| bytes == b"late"), "{sent:?}");
        let mut under = Under::new(&one, b"h".to_vec());
        under.open(two.clone(), b"path");
        let start = Instant::now();
        under.settle();
        assert!((SETTLING..SETTLING * 3).contains(&start.elapsed()));
    }
}
