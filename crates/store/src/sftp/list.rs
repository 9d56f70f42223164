//! Listing: every object below a folder, or an error; many folders at once.
//!
//! As in [`crate::LocalStore`], names outside the grammar and the folder `tmp/` are no objects, and a symbolic link with an
//! object's name is an error. A folder's objects are given out when the folder has been read to its end: what broke
//! in between is read anew, and nothing is given twice.

use std::collections::VecDeque;

use crossbeam_channel::unbounded;

use super::Inner;
use super::peer::{Peer, Trouble};
use super::wire::{Attrs, Entry, Reply, Request, Sort, status};
use crate::name::{TMP, is_segment};
use crate::{Listed, Result};

/// Folders that are read at once: a whole level of packs' folders takes a few round trips.
const FOLDERS_AT_ONCE: usize = 64;
/// Pieces of a folder's listing that are asked for at once: few at first, more once it turns out to be long.
const PIECES_AT_FIRST: usize = 2;
const PIECES_MAX: usize = 16;
/// OpenSSH gives 100 entries in a piece, and others about as many.
const FULL_PIECE: usize = 50;
/// A folder with more entries is none of ours: a server that makes up names without end shall not fill our memory.
const ENTRIES_MAX: usize = 4 << 20;

/// A folder, or why it can't be read.
struct Read {
    folder: String,
    entries: std::result::Result<Vec<Entry>, Trouble>,
    /// All of it was read by what was asked for at first.
    at_once: bool,
}

/// A folder that is being read.
struct Reading {
    place: usize,
    handle: Vec<u8>,
    entries: Vec<Entry>,
    /// Pieces that were asked for and have not come.
    asked: usize,
    pieces: usize,
    ended: bool,
    failed: Option<Trouble>,
}

impl Inner {
    /// Give each object below `prefix`.
    pub(super) fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let mut todo = VecDeque::from([prefix.to_owned()]);
        while !todo.is_empty() {
            let some: Vec<String> = todo.drain(..todo.len().min(FOLDERS_AT_ONCE)).collect();
            let (read, base) = self.run("list", &some[0], |peer| self.read_folders(peer, &some))?;
            self.linked("list", base)?;
            for Read { folder, entries, .. } in read {
                todo.extend(self.give(&folder, entries, each)?);
            }
        }
        Ok(())
    }

    /// Give each object of each folder, so that each folder is seen after the one before it was.
    ///
    /// OpenSSH answers what a connection asks for in the order in which it was asked: there all are asked for at once.
    pub(super) fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
        let names: Vec<String> = folders.iter().map(|&folder| folder.to_owned()).collect();
        let mut read = Vec::new();
        if let Some(first) = names.first() {
            let at_once = self.run("list", first, |peer| match peer.offers().sync {
                true => self.read_folders(peer, &names).map(Some),
                false => Ok(None),
            })?;
            if let Some((came, base)) = at_once {
                self.linked("list", base)?;
                read = came;
            }
        }
        let mut in_order = true;
        let mut read = read.into_iter();
        for (place, name) in names.iter().enumerate() {
            match read.next() {
                // One that wasn't there may have been made while the one before it was read.
                Some(Read { folder, entries, at_once }) if in_order && (place == 0 || entries.is_ok()) => {
                    in_order = at_once;
                    for below in self.give(&folder, entries, &mut |listed| each(place, listed))? {
                        in_order = false;
                        self.list(&below, &mut |listed| each(place, listed))?;
                    }
                }
                _ => {
                    in_order = false;
                    self.list(name, &mut |listed| each(place, listed))?;
                }
            }
        }
        Ok(())
    }

    /// Give each object of a folder; the folders below it.
    fn give(
        &self,
        folder: &str,
        entries: std::result::Result<Vec<Entry>, Trouble>,
        each: &mut dyn FnMut(Listed),
    ) -> Result<Vec<String>> {
        let entries = match entries {
            Ok(entries) => entries,
            // Never made, or removed since it was listed; that the root is there was seen by the caller.
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => return Ok(Vec::new()),
            Err(trouble) => return Err(self.error("list", folder, &trouble)),
        };
        let mut below = Vec::new();
        for Entry { name, attrs } in entries {
            let Some(segment) = std::str::from_utf8(&name).ok().filter(|name| is_segment(name.as_bytes())) else {
                continue;
            };
            let name = if folder.is_empty() { segment.to_owned() } else { format!("{folder}/{segment}") };
            match attrs.sort() {
                Sort::Folder if name == TMP => {}
                Sort::Folder => below.push(name),
                sort => match attrs.size.filter(|_| sort == Sort::File) {
                    Some(len) => each(Listed { name, len }),
                    None => return Err(self.error("list", &name, &Trouble::NoObject(sort))),
                },
            }
        }
        Ok(below)
    }

    /// All entries of one folder, but itself and the one above.
    pub(super) fn entries(&self, folder: &str) -> Result<Vec<Entry>> {
        let one = [folder.to_owned()];
        let (read, base) = self.run("list", folder, |peer| self.read_folders(peer, &one))?;
        self.linked("list", base)?;
        match read.into_iter().next().map(|read| read.entries) {
            Some(Ok(entries)) => Ok(entries),
            Some(Err(trouble)) if trouble.is(status::NO_SUCH_FILE) => Ok(Vec::new()),
            Some(Err(trouble)) => Err(self.error("list", folder, &trouble)),
            None => Ok(Vec::new()),
        }
    }

    /// Read folders to their ends, and ask for the repository's own. They come as they were given.
    #[allow(clippy::type_complexity)]
    fn read_folders(
        &self,
        peer: &Peer,
        folders: &[String],
    ) -> std::result::Result<(Vec<Read>, std::result::Result<Attrs, Trouble>), Trouble> {
        let mut flight = peer.flight();
        for folder in folders {
            flight.add(&Request::OpenDir { path: &self.path(folder) });
        }
        flight.add(&Request::Stat { path: &self.base });
        let mut replies = flight.land()?;
        let base = replies.pop().ok_or(Trouble::Odd)?.attrs();
        let (to, answers) = unbounded();
        let (mut reading, mut read) = (Vec::new(), Vec::new());
        for (folder, reply) in folders.iter().zip(replies) {
            let (place, folder) = (read.len(), folder.clone());
            let entries = match reply.handle() {
                Ok(handle) => {
                    for _ in 0..PIECES_AT_FIRST {
                        peer.ask(&Request::ReadDir { handle: &handle }, &to, reading.len());
                    }
                    let (entries, asked, pieces) = (Vec::new(), PIECES_AT_FIRST, PIECES_AT_FIRST);
                    reading.push(Reading { place, handle, entries, asked, pieces, ended: false, failed: None });
                    Ok(Vec::new())
                }
                Err(trouble) => Err(trouble),
            };
            read.push(Read { folder, entries, at_once: true });
        }
        while reading.iter().any(|of| of.asked > 0) {
            let answer = peer.wait(&answers)?;
            let of = &mut reading[answer.tag];
            of.asked -= 1;
            match answer.reply? {
                Reply::Names(names) if names.is_empty() => of.ended = true,
                Reply::Names(names) => {
                    // A piece that isn't full is usually the last one.
                    if names.len() >= FULL_PIECE {
                        of.pieces = (of.pieces * 2).min(PIECES_MAX);
                    }
                    of.entries.extend(names.into_iter().filter(|e| e.name != b"." && e.name != b".."));
                    if of.entries.len() > ENTRIES_MAX {
                        return Err(Trouble::Status { code: status::FAILURE, words: "the folder has no end".into() });
                    }
                }
                Reply::Status { code: status::EOF, .. } => of.ended = true,
                other => of.failed = Some(other.done().err().unwrap_or(Trouble::Odd)),
            }
            if !of.ended && of.failed.is_none() && (of.asked == 0 || of.pieces > PIECES_AT_FIRST) {
                read[of.place].at_once = false;
                for _ in of.asked..of.pieces {
                    peer.ask(&Request::ReadDir { handle: &of.handle }, &to, answer.tag);
                }
                of.asked = of.asked.max(of.pieces);
            }
        }
        for Reading { place, handle, mut entries, failed, .. } in reading {
            peer.tell(&Request::Close { handle: &handle });
            // Some file systems give an entry twice while others change the folder.
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            entries.dedup_by(|a, b| a.name == b.name);
            read[place].entries = failed.map_or(Ok(entries), Err);
        }
        Ok((read, base))
    }
}
