//! What has come of an object that is uploaded, piece by piece: how far it was sent, taken by the server, and safe on
//! its disk. What isn't safe yet is kept.

use std::collections::VecDeque;

use bytes::Bytes;

use super::lanes::Under;

/// The pieces of an upload that are not known to be safe.
#[derive(Default)]
pub(super) struct Pieces {
    kept: VecDeque<Piece>,
    /// So many of the last of these are held.
    held: usize,
    end: u64,
    safe: u64,
}

struct Piece {
    offset: u64,
    bytes: Bytes,
    way: Way,
}

/// Where a piece is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Here: no lane has had room for it.
    Held,
    /// On the connection of that number.
    Lane(u64),
    /// The server has taken it in; whether it is on its disk nobody knows.
    Taken,
}

impl Pieces {
    /// Those of an object that is safe, and of that length.
    pub fn all_safe(len: u64) -> Self {
        Pieces { end: len, safe: len, ..Pieces::default() }
    }

    /// Bytes of all that have come.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that are on the server's disk.
    pub fn safe(&self) -> u64 {
        self.safe
    }

    /// Bytes that are kept.
    pub fn unsafe_bytes(&self) -> usize {
        (self.end - self.safe) as usize
    }

    /// One more, behind the others. It is held.
    pub fn push(&mut self, bytes: Bytes) {
        let offset = self.end;
        self.end += bytes.len() as u64;
        self.kept.push_back(Piece { offset, bytes, way: Way::Held });
        self.held += 1;
    }

    pub fn are_held(&self) -> bool {
        self.held > 0
    }

    /// None has been sent: all will be once more.
    pub fn hold_all(&mut self) {
        self.kept.iter_mut().for_each(|piece| piece.way = Way::Held);
        self.held = self.kept.len();
    }

    /// Send what is held, in order, as far as there is room on the lanes: `most` bytes on each.
    pub fn send(&mut self, under: &mut Under, most: usize) {
        let first = self.kept.len() - self.held;
        for piece in self.kept.iter_mut().skip(first) {
            let Some(lane) = under.write(piece.offset, &piece.bytes, most) else { return };
            piece.way = Way::Lane(lane);
            self.held -= 1;
        }
    }

    /// The server has taken in the one that begins there.
    pub fn take(&mut self, offset: u64, under: &mut Under) {
        if let Some(piece) = self.kept.iter_mut().find(|piece| piece.offset == offset)
            && let Way::Lane(number) = piece.way
        {
            piece.way = Way::Taken;
            under.landed(number, piece.bytes.len());
        }
    }

    /// Up to where the server has taken in everything.
    pub fn taken(&self) -> u64 {
        self.kept.iter().find(|piece| piece.way != Way::Taken).map_or(self.end, |piece| piece.offset)
    }

    /// Up to where all is sent.
    pub fn sent(&self) -> u64 {
        let first = self.kept.len() - self.held;
        self.kept.get(first).map_or(self.end, |piece| piece.offset)
    }

    /// All up to there is on the server's disk, and kept no longer. Answers to some of it may still come: servers give
    /// them in any order.
    pub fn make_safe(&mut self, safe: u64, under: &mut Under) {
        self.safe = self.safe.max(safe);
        let is_safe = |piece: &mut Piece| piece.offset + piece.bytes.len() as u64 <= self.safe;
        while let Some(piece) = self.kept.pop_front_if(is_safe) {
            if let Way::Lane(number) = piece.way {
                under.landed(number, piece.bytes.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::tests::connection;
    use super::*;

    #[test]
    fn what_is_sent_taken_and_safe_is_told_apart() {
        let ((one, _heard), (two, _heard2)) = (connection(), connection());
        let mut under = Under::new(&one, b"h".to_vec());
        let mut pieces = Pieces::default();
        let state = |pieces: &Pieces| (pieces.end(), pieces.sent(), pieces.taken(), pieces.safe());
        (0..4).for_each(|_| pieces.push(Bytes::from_static(&[0; 10])));
        assert_eq!((state(&pieces), pieces.are_held()), ((40, 0, 0, 0), true));
        pieces.send(&mut under, 30);
        assert_eq!(state(&pieces), (40, 30, 0, 0));
        // An answer to one that was not sent is none.
        [10, 30].into_iter().for_each(|offset| pieces.take(offset, &mut under));
        assert_eq!(state(&pieces), (40, 30, 0, 0));
        pieces.take(0, &mut under);
        pieces.send(&mut under, 30);
        assert_eq!((state(&pieces), pieces.are_held()), ((40, 40, 20, 0), false));
        // Of a piece that is safe in part all is kept.
        pieces.make_safe(15, &mut under);
        assert_eq!((state(&pieces), pieces.unsafe_bytes(), pieces.kept.len()), ((40, 40, 20, 15), 25, 3));
        // Another connection: from there all of it once more.
        let mut under = Under::new(&two, b"h".to_vec());
        pieces.hold_all();
        assert_eq!(state(&pieces), (40, 10, 10, 15));
        pieces.send(&mut under, usize::MAX);
        [10, 20, 30].into_iter().for_each(|offset| pieces.take(offset, &mut under));
        pieces.make_safe(40, &mut under);
        assert_eq!((state(&pieces), pieces.unsafe_bytes(), pieces.kept.len()), ((40, 40, 40, 40), 0, 0));
        assert_eq!(state(&Pieces::all_safe(7)), (7, 7, 7, 7));
    }

    /// Else its lane would have no room for ever.
    #[test]
    fn what_is_safe_before_it_is_answered_is_on_its_way_no_more() {
        let (one, _heard) = connection();
        let mut under = Under::new(&one, b"h".to_vec());
        let mut pieces = Pieces::default();
        (0..3).for_each(|_| pieces.push(Bytes::from_static(&[0; 10])));
        pieces.send(&mut under, 20);
        assert_eq!(pieces.sent(), 20);
        pieces.make_safe(20, &mut under);
        [0, 10].into_iter().for_each(|offset| pieces.take(offset, &mut under));
        (0..2).for_each(|_| pieces.push(Bytes::from_static(&[0; 10])));
        pieces.send(&mut under, 20);
        assert_eq!((pieces.sent(), pieces.end()), (40, 50), "two of three");
    }
}
