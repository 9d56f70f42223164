//! What is read first of a repository, asked for before the server has said that it speaks SFTP.
//!
//! A client may not send anything before it has heard the server's version, by the letter of the protocol; OpenSSH's
//! server takes one packet after the other all the same, so that the answers come along with its version, and a round
//! trip is saved. So only OpenSSH's is asked like this, as it has named itself in ssh's own greeting. On a connection
//! on which nothing was opened yet a handle that is foreseen wrongly is nobody's (see [`super::handles`]). Whatever
//! isn't as expected is thrown away, and asked for as usual.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::handles::Number;
use super::peer::{Peer, Sent, Together, abilities};
use super::wire::{Reply, Request, Sort, open};
use crate::lock::lock;

/// No more objects than so many are asked for like this,
const FIRST_MAX: usize = 4;
/// and none that is longer: a config, a key.
const FIRST_BYTES_MAX: u32 = 32 << 10;

/// Objects that are wanted first, and those of them that came.
#[derive(Default)]
pub(super) struct First {
    /// Their names and paths.
    wanted: Vec<(String, Vec<u8>)>,
    is_over: AtomicBool,
    came: Mutex<HashMap<String, Vec<u8>>>,
}

/// Questions for them that are on their way.
pub(super) struct Early<'a> {
    peer: &'a Peer,
    sent: Sent<'a>,
    foreseen: Number,
}

impl First {
    pub(super) fn new(wanted: impl Iterator<Item = (String, Vec<u8>)>) -> Self {
        First { wanted: wanted.take(FIRST_MAX).collect(), ..First::default() }
    }

    /// Ask for them, and for what the account may do; `None` if nothing is wanted, or it can't be done. `none` is a
    /// path that nobody has.
    pub(super) fn ask<'a>(&self, peer: &'a Peer, none: &[u8]) -> Option<Early<'a>> {
        if self.wanted.is_empty() || self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let mut flight = peer.foresee_first()?;
        let foreseen = flight.handle;
        // Who stores something would wait for that next.
        abilities(none).iter().for_each(|request| flight.add(request));
        for (_, path) in &self.wanted {
            flight.add(&Request::LinkStat { path });
            flight.add(&Request::Open { path, flags: open::READ, mode: None });
            flight.add(&Request::FileStat { handle: &foreseen });
            flight.add(&Request::Read { handle: &foreseen, offset: 0, len: FIRST_BYTES_MAX });
            flight.add(&Request::Close { handle: &foreseen });
        }
        Some(Early { peer, sent: flight.send(), foreseen })
    }

    /// Keep what came of it, within this time: a server that has greeted and answers nothing is not waited for.
    pub(super) fn keep(&self, early: Early<'_>, within: Duration) {
        let Early { peer, sent, foreseen } = early;
        let Some((replies, in_order)) = sent.land_within(within) else {
            peer.die("it greets, and answers nothing that was asked before");
            return;
        };
        let mut replies = replies.into_iter();
        peer.learn(replies.next(), replies.next());
        for (name, _) in &self.wanted {
            let mut next = || replies.next();
            let (Some(looked), Some(opened), Some(is), Some(read), Some(_)) = (next(), next(), next(), next(), next())
            else {
                return;
            };
            match opened.handle() {
                Ok(handle) if handle == foreseen => {}
                Ok(handle) => {
                    peer.tell(&Request::Close { handle: &handle });
                    continue;
                }
                Err(_) => continue,
            }
            let (Ok(looked), Ok(is), true) = (looked.attrs(), is.attrs(), in_order) else { continue };
            if let Reply::Data(data) = read
                && looked.sort() == Sort::File
                && is.size == Some(data.bytes().len() as u64)
            {
                lock(&self.came).insert(name.clone(), data.bytes().to_vec());
            }
        }
    }

    /// Nothing is asked for like this any more.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether an object came.
    pub(super) fn has(&self, name: &str) -> bool {
        lock(&self.came).contains_key(name)
    }

    /// One that came, once.
    pub(super) fn take(&self, name: &str) -> Option<Vec<u8>> {
        lock(&self.came).remove(name)
    }
}
