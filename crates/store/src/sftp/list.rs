//! Listing: every object below a folder, or an error; many folders at once.
//!
//! As in [`crate::LocalStore`], names outside the grammar and the folder `tmp/` are no objects, and a symbolic link
//! with an object's name is an error. A folder's objects are given out when the folder has been read to its end: what
//! broke in between is read anew, and nothing is given twice.

use std::collections::VecDeque;

use crossbeam_channel::unbounded;

use super::Inner;
use super::handles::Number;
use super::peer::{Foreseen, Peer, Together, Trouble};
use super::wire::{Attrs, Entry, Reply, Request, Sort, status};
use crate::name::{TMP, is_segment};
use crate::{Action, Listed, Result};

/// Folders that are read at once: a whole level of packs' folders takes a few round trips.
const FOLDERS_AT_ONCE: usize = 64;
/// Pieces of a folder's listing that are asked for at once: few at first, more once it turns out to be long.
const PIECES_AT_FIRST: usize = 2;
const PIECES_MAX: usize = 16;
/// Pieces of a folder that is read along with being opened: all that OpenSSH gives of some 300 entries.
const PIECES_AT_ONCE: usize = 4;
/// OpenSSH gives 100 entries in a piece, and others about as many.
const FULL_PIECE: usize = 50;
/// A folder with more entries is none of ours: a server that makes up names without end shall not fill our memory, nor
/// one whose names are longer than any file system has them.
const ENTRIES_MAX: usize = 4 << 20;
const NAME_BYTES_MAX: usize = 255;

/// A folder that is being read.
struct Reading {
    folder: String,
    handle: Vec<u8>,
    entries: Vec<Entry>,
    /// Entries that came.
    came: usize,
    /// Pieces that were asked for and have not come.
    asked: usize,
    pieces: usize,
    ended: bool,
    failed: Option<Trouble>,
}

impl Inner {
    /// Give each object below `prefix`.
    pub(super) fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.list_level(prefix, true, each)
    }

    /// The same; `short`: folders are expected to be no longer than what can be read along with opening them.
    fn list_level(&self, prefix: &str, mut short: bool, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let mut todo = VecDeque::from([prefix.to_owned()]);
        while !todo.is_empty() {
            let some: Vec<String> = todo.drain(..todo.len().min(FOLDERS_AT_ONCE)).collect();
            let (read, base) = self.run(Action::List, &some[0], |peer| self.read_folders(peer, &some, &mut short))?;
            self.linked(Action::List, base)?;
            for (folder, entries) in read {
                todo.extend(self.give(&folder, entries, each)?);
            }
        }
        Ok(())
    }

    /// Give each object of each folder, so that each folder is seen after the one before it was.
    ///
    /// OpenSSH does what a connection asks for in the order in which it was asked. There all are read in one round
    /// trip; what turns out longer than can be asked for in advance, and all behind it, is listed as usual.
    pub(super) fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
        let mut read = Vec::new();
        if let [first, _, ..] = folders
            && let Some((came, base)) = self.run(Action::List, first, |peer| self.read_at_once(peer, folders))?
        {
            self.linked(Action::List, base)?;
            read = came;
        }
        // Up to the first of which that isn't certain: what was read of those behind it is older than what will be read
        // of it.
        let mut read = read.into_iter().map_while(|came| came).collect::<Vec<_>>().into_iter();
        for (place, folder) in folders.iter().enumerate() {
            let mut each = |listed| each(place, listed);
            match read.next() {
                None => self.list_level(folder, false, &mut each)?,
                Some(entries) => {
                    let below = self.give(folder, entries, &mut each)?;
                    if !below.is_empty() {
                        // What is in those is seen later than the folders behind this one.
                        read = Vec::new().into_iter();
                    }
                    below.iter().try_for_each(|below| self.list(below, &mut each))?;
                }
            }
        }
        Ok(())
    }

    /// Open, read and close each of these folders, one after the other, and ask for the repository's own, all at once.
    /// `None` if that can't be done now; of a folder that turned out longer than what was asked for, or of which it
    /// isn't certain what was read, nothing.
    #[allow(clippy::type_complexity)]
    fn read_at_once(
        &self,
        peer: &Peer,
        folders: &[impl AsRef<str>],
    ) -> std::result::Result<Option<(Vec<Option<OfFolder>>, std::result::Result<Attrs, Trouble>)>, Trouble> {
        let Some(mut flight) = peer.foresee() else { return Ok(None) };
        let handle = flight.handle;
        folders.iter().for_each(|folder| self.ask_to_read(&mut flight, folder.as_ref()));
        flight.add(&Request::Stat { path: &self.base });
        let (replies, in_order) = flight.land()?;
        let (mut replies, foresight) = (replies.into_iter(), Foresight { handle, in_order });
        let read =
            folders.iter().map(|_| foresight.take_read(peer, &mut replies)).collect::<std::result::Result<_, _>>()?;
        Ok(Some((read, replies.next().ok_or(Trouble::Odd)?.attrs())))
    }

    /// Ask for a folder to be opened, read and closed; [`Foresight::take_read`] takes the answers.
    pub(super) fn ask_to_read(&self, flight: &mut Foreseen, folder: &str) {
        // Each gets the handle that the one before it has given back, or has not got.
        let handle = flight.handle;
        flight.add(&Request::OpenDir { path: &self.path(folder) });
        (0..PIECES_AT_ONCE).for_each(|_| flight.add(&Request::ReadDir { handle: &handle }));
        flight.add(&Request::Close { handle: &handle });
    }

    /// Give each object of a folder; the folders below it.
    pub(super) fn give(&self, folder: &str, entries: OfFolder, each: &mut dyn FnMut(Listed)) -> Result<Vec<String>> {
        let entries = match entries {
            Ok(entries) => entries,
            // Never made, or removed since it was listed; that the root is there was seen by the caller.
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => return Ok(Vec::new()),
            Err(trouble) => return Err(self.error(Action::List, folder, &trouble)),
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
                    None => return Err(self.error(Action::List, &name, &Trouble::NoObject(sort))),
                },
            }
        }
        Ok(below)
    }

    /// All entries of one folder, but itself and the one above.
    pub(super) fn entries(&self, folder: &str) -> Result<Vec<Entry>> {
        let one = [folder.to_owned()];
        let (read, base) = self.run(Action::List, folder, |peer| self.read_folders(peer, &one, &mut true))?;
        self.linked(Action::List, base)?;
        match read.into_iter().next().map(|(_, entries)| entries) {
            Some(Ok(entries)) => Ok(entries),
            Some(Err(trouble)) if trouble.is(status::NO_SUCH_FILE) => Ok(Vec::new()),
            Some(Err(trouble)) => Err(self.error(Action::List, folder, &trouble)),
            None => Ok(Vec::new()),
        }
    }

    /// Read folders to their ends, and ask for the repository's own; along with opening them as long as they turn out
    /// short.
    #[allow(clippy::type_complexity)]
    fn read_folders(
        &self,
        peer: &Peer,
        folders: &[String],
        short: &mut bool,
    ) -> std::result::Result<(Vec<(String, OfFolder)>, std::result::Result<Attrs, Trouble>), Trouble> {
        let mut read = Vec::new();
        let mut longer = Vec::new();
        if *short && let Some((came, base)) = self.read_at_once(peer, folders)? {
            for (folder, came) in folders.iter().zip(came) {
                match came {
                    Some(entries) => read.push((folder.clone(), entries)),
                    None => longer.push(folder.clone()),
                }
            }
            if longer.is_empty() {
                return Ok((read, base));
            }
            *short = false;
        }
        let folders = if longer.is_empty() { folders } else { &longer };
        let mut flight = peer.flight();
        for folder in folders {
            flight.add(&Request::OpenDir { path: &self.path(folder) });
        }
        flight.add(&Request::Stat { path: &self.base });
        let mut replies = flight.land()?;
        let base = replies.pop().ok_or(Trouble::Odd)?.attrs();
        let (to, answers) = unbounded();
        let mut reading = Vec::new();
        for (folder, reply) in folders.iter().zip(replies) {
            match reply.handle() {
                Ok(handle) => {
                    let place = reading.len();
                    for _ in 0..PIECES_AT_FIRST {
                        peer.ask(&Request::ReadDir { handle: &handle }, &to, place);
                    }
                    let (entries, asked, pieces) = (Vec::new(), PIECES_AT_FIRST, PIECES_AT_FIRST);
                    let folder = folder.clone();
                    reading.push(Reading {
                        folder,
                        handle,
                        entries,
                        came: 0,
                        asked,
                        pieces,
                        ended: false,
                        failed: None,
                    });
                }
                Err(trouble) => read.push((folder.clone(), Err(trouble))),
            }
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
                    of.came += names.len();
                    of.entries.extend(names.into_iter().filter(is_possible));
                    if of.came > ENTRIES_MAX {
                        return Err(Trouble::Status { code: status::FAILURE, words: "the folder has no end".into() });
                    }
                }
                Reply::Status { code: status::EOF, .. } => of.ended = true,
                other => of.failed = Some(other.done().err().unwrap_or(Trouble::Odd)),
            }
            if !of.ended && of.failed.is_none() && (of.asked == 0 || of.pieces > PIECES_AT_FIRST) {
                for _ in of.asked..of.pieces {
                    peer.ask(&Request::ReadDir { handle: &of.handle }, &to, answer.tag);
                }
                of.asked = of.asked.max(of.pieces);
            }
        }
        for Reading { folder, handle, entries, failed, .. } in reading {
            peer.tell(&Request::Close { handle: &handle });
            read.push((folder, failed.map_or_else(|| Ok(once_each(entries)), Err)));
        }
        Ok((read, base))
    }
}

/// The handle with which requests were made before it was known, and whether their answers came in order: what they say
/// is certain only then.
#[derive(Clone, Copy)]
pub(super) struct Foresight {
    pub handle: Number,
    pub in_order: bool,
}

impl Foresight {
    /// What [`Inner::ask_to_read`] has asked for. `None` if the folder turned out longer, or if it isn't certain what
    /// was read.
    pub(super) fn take_read(
        self,
        peer: &Peer,
        replies: &mut impl Iterator<Item = Reply>,
    ) -> std::result::Result<Option<OfFolder>, Trouble> {
        let opened = replies.next().ok_or(Trouble::Odd)?.handle();
        let pieces = collect_pieces(replies.by_ref().take(PIECES_AT_ONCE));
        let _closed = replies.next();
        Ok(match opened {
            Ok(handle) if handle == self.handle && self.in_order => pieces.map(Ok),
            Ok(handle) => {
                peer.tell(&Request::Close { handle: &handle });
                None
            }
            Err(trouble) => Some(Err(trouble)),
        })
    }
}

/// The entries of a folder, or why they can't be read.
type OfFolder = std::result::Result<Vec<Entry>, Trouble>;

/// All entries that the first answers to READDIR give, if they are all that there are.
fn collect_pieces(pieces: impl Iterator<Item = Reply>) -> Option<Vec<Entry>> {
    let (mut entries, mut ended) = (Vec::new(), false);
    // To the last one, for the sake of those behind them.
    for piece in pieces.collect::<Vec<_>>() {
        match piece {
            Reply::Names(names) => {
                ended |= names.is_empty();
                entries.extend(names.into_iter().filter(is_possible));
            }
            Reply::Status { code: status::EOF, .. } => ended = true,
            // Whoever lists it as usual is told what is wrong.
            _ => return None,
        }
    }
    ended.then(|| once_each(entries))
}

/// Whether an entry may be an object or a folder of a repository.
fn is_possible(entry: &Entry) -> bool {
    !matches!(&entry.name[..], b"." | b"..") && entry.name.len() <= NAME_BYTES_MAX
}

/// Some file systems give an entry twice while others change the folder.
fn once_each(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    entries.dedup_by(|a, b| a.name == b.name);
    entries
}
