//! Which handle the server gives next, so that what is wanted of a file can be asked for along with the request that
//! opens it, and no round trip passes in between.
//!
//! OpenSSH's handles are numbers of four bytes: a file gets that of the one that was closed last, or the next higher
//! one (`handle_new` in its sftp-server.c), and it does what a connection asks for in the order in which it was asked.
//! So the next number is known, if what is under way is opened as well.
//!
//! It is a guess, and used as one: whoever makes it compares it with the handle that the answer has, and throws away
//! what came of another. Nobody else asks for anything between the request that opens something and what is asked of
//! the guess. Then a wrong one does no harm, for it is nobody's number:
//!
//! - where the answers to all openings have come, a number that isn't open is free, whoever the server is;
//! - where some have not, and OpenSSH opened fewer files than was expected, fewer numbers are taken, and the guess is
//!   one that is still free (`a_wrong_guess_is_nobodys_number`). Of another server that isn't known, and nothing is
//!   guessed then.
//!
//! To what is only guessed nothing is written, but where both the line and SFTP say that it is OpenSSH's server, and
//! then to new files alone ([`super::peer::Peer::foresee_new`]): what is nobody's number can't be written to.
//!
//! With the first handle that isn't what it should have been guessing ends on that connection.

use std::collections::{HashSet, VecDeque};

use super::wire::{Reply, Request};

/// A handle of OpenSSH.
pub(super) type Number = [u8; 4];

/// The handles of one connection.
#[derive(Default)]
pub(super) struct Handles {
    open: HashSet<u32>,
    /// Those that were closed, in that order.
    free: Vec<u32>,
    /// The lowest that was never given.
    next: u32,
    /// What was asked for since, from the first request to open something on whose answer has not come.
    sent: VecDeque<Sent>,
    /// This server's handles are others.
    strange: bool,
}

enum Sent {
    Open { id: u32, given: Option<Given> },
    Close(u32),
}

enum Given {
    Handle(u32),
    Nothing,
    /// No handle of OpenSSH's.
    Other,
}

fn number(handle: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(handle.try_into().ok()?))
}

impl Handles {
    /// A request goes out.
    pub(super) fn sent(&mut self, id: u32, request: &Request) {
        match request {
            _ if self.strange => return,
            Request::Open { .. } | Request::OpenDir { .. } => self.sent.push_back(Sent::Open { id, given: None }),
            Request::Close { handle } => self.sent.extend(number(handle).map(Sent::Close)),
            _ => return,
        }
        self.settle();
    }

    /// An answer has come in.
    pub(super) fn answered(&mut self, id: u32, reply: &Reply) {
        let opened = self.sent.iter_mut().find_map(|sent| match sent {
            Sent::Open { id: of, given } if *of == id => Some(given),
            _ => None,
        });
        let Some(given) = opened else { return };
        *given = Some(match reply {
            Reply::Handle(handle) => number(handle).map_or(Given::Other, Given::Handle),
            _ => Given::Nothing,
        });
        self.settle();
    }

    /// The handle that the next file gets, if all that is under way is opened, and if this server is one whose handles
    /// can be guessed; while anything is under way that OpenSSH's alone.
    pub(super) fn next(&self, is_openssh: bool) -> Option<Number> {
        let is_settled = self.sent.is_empty();
        if self.strange || !(is_settled || is_openssh) {
            return None;
        }
        if is_settled {
            return Some(self.following().to_be_bytes());
        }
        let (mut open, mut free, mut next) = (self.open.clone(), self.free.clone(), self.next);
        for sent in &self.sent {
            match sent {
                Sent::Open { given: Some(Given::Nothing), .. } => {}
                Sent::Open { .. } => {
                    open.insert(free.pop().unwrap_or_else(|| {
                        next += 1;
                        next - 1
                    }));
                }
                // A guess, by what was known then, may be none by what is known now.
                Sent::Close(number) if open.remove(number) => free.push(*number),
                Sent::Close(_) => {}
            }
        }
        Some(free.last().copied().unwrap_or(next).to_be_bytes())
    }

    fn following(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.next)
    }

    /// Take in what has happened for certain.
    fn settle(&mut self) {
        while let Some(first) = self.sent.pop_front_if(|sent| !matches!(sent, Sent::Open { given: None, .. })) {
            match first {
                Sent::Close(number) => {
                    // Another one was never given: its closing does nothing.
                    if self.open.remove(&number) {
                        self.free.push(number);
                    }
                }
                Sent::Open { given: Some(Given::Handle(number)), .. } if number == self.following() => {
                    if self.free.pop().is_none() {
                        self.next += 1;
                    }
                    self.open.insert(number);
                }
                Sent::Open { given: Some(Given::Nothing), .. } => {}
                Sent::Open { .. } => {
                    *self = Handles { strange: true, ..Handles::default() };
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPEN: Request = Request::OpenDir { path: b"d" };

    fn close(handles: &mut Handles, number: u32) {
        handles.sent(99, &Request::Close { handle: &number.to_be_bytes() });
    }

    fn given(number: u32) -> Reply {
        Reply::Handle(number.to_be_bytes().to_vec())
    }

    fn failed() -> Reply {
        Reply::Status { code: 2, words: String::new() }
    }

    fn next(handles: &Handles) -> Option<u32> {
        handles.next(true).map(u32::from_be_bytes)
    }

    #[test]
    fn numbers_come_again_the_last_one_first() {
        let mut handles = Handles::default();
        for number in 0..3 {
            assert_eq!(next(&handles), Some(number));
            handles.sent(number, &OPEN);
            assert_eq!(next(&handles), Some(number + 1), "if it is opened");
            handles.answered(number, &given(number));
        }
        close(&mut handles, 1);
        close(&mut handles, 0);
        assert_eq!(next(&handles), Some(0));
        handles.sent(10, &OPEN);
        assert_eq!(next(&handles), Some(1));
        handles.answered(10, &failed());
        assert_eq!(next(&handles), Some(0), "what was not opened took none");
        handles.sent(11, &OPEN);
        handles.sent(12, &OPEN);
        // Answers may come in any order; what they say of is in the order of the requests.
        handles.answered(12, &given(1));
        handles.answered(11, &given(0));
        assert_eq!(next(&handles), Some(3));
        // One that was closed because it was expected, and never came.
        close(&mut handles, 3);
        assert_eq!(next(&handles), Some(3));
    }

    #[test]
    fn of_other_servers_nothing_is_guessed_while_something_is_opened() {
        let mut handles = Handles::default();
        assert_eq!(handles.next(false), Some([0; 4]));
        handles.sent(0, &OPEN);
        assert_eq!(handles.next(false), None);
        handles.answered(0, &given(0));
        assert_eq!(handles.next(false), Some([0, 0, 0, 1]));
    }

    #[test]
    fn nothing_is_guessed_of_a_server_that_counts_otherwise() {
        for other in [Reply::Handle(b"0".to_vec()), given(7)] {
            let mut handles = Handles::default();
            handles.sent(0, &OPEN);
            handles.answered(0, &other);
            assert_eq!(next(&handles), None);
            handles.sent(1, &OPEN);
            handles.answered(1, &given(0));
            assert_eq!(next(&handles), None, "for good");
        }
    }

    /// OpenSSH's list of handles.
    #[derive(Default)]
    struct Server {
        open: Vec<u32>,
        unused: Vec<u32>,
        count: u32,
    }

    impl Server {
        fn open(&mut self) -> u32 {
            let number = self.unused.pop().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            self.open.push(number);
            number
        }

        fn close(&mut self, number: u32) {
            if let Some(place) = self.open.iter().position(|open| *open == number) {
                self.open.swap_remove(place);
                self.unused.push(number);
            }
        }
    }

    proptest! {
        /// Files are opened and closed, with guesses and without, some openings fail, and answers come late and in any
        /// order. What is asked of a guess is asked right behind its opening.
        #[test]
        fn a_wrong_guess_is_nobodys_number(steps in proptest::collection::vec((0_u8..5, any::<bool>(), 0_usize..8), 1..120)) {
            let (mut handles, mut server) = (Handles::default(), Server::default());
            // Answers on their way, and the files that we know of.
            let (mut on_the_way, mut ours) = (VecDeque::new(), Vec::new());
            let mut hits = 0;
            for (id, (what, succeeds, which)) in (0..).zip(steps) {
                match what {
                    0 | 1 => {
                        let guess = next(&handles).expect("this server's can be guessed");
                        handles.sent(id, &OPEN);
                        let real = succeeds.then(|| server.open());
                        if what == 1 {
                            prop_assert!(real == Some(guess) || !server.open.contains(&guess), "{} is another's", guess);
                            // A listing closes what it guesses, whatever that is.
                            close(&mut handles, guess);
                            server.close(guess);
                            on_the_way.push_back((id, real, real == Some(guess)));
                            hits += usize::from(real == Some(guess));
                        } else {
                            on_the_way.push_back((id, real, false));
                        }
                    }
                    2 if !ours.is_empty() => {
                        let number = ours.swap_remove(which % ours.len());
                        close(&mut handles, number);
                        server.close(number);
                    }
                    _ => {
                        if !on_the_way.is_empty()
                            && let Some((id, real, is_closed)) = on_the_way.remove(which % on_the_way.len())
                        {
                            handles.answered(id, &real.map_or_else(failed, given));
                            ours.extend(real.filter(|_| !is_closed));
                        }
                    }
                }
            }
            for (id, real, _) in on_the_way.drain(..) {
                handles.answered(id, &real.map_or_else(failed, given));
            }
            // All that is known by now is what the server has.
            let expected = server.unused.last().copied().unwrap_or(server.count);
            prop_assert_eq!(next(&handles), Some(expected), "after {} right guesses", hits);
        }
    }
}
