//! A store on another machine, by SFTP: OpenSSH's server above all, and whatever else speaks version 3 of it.
//!
//! ```text
//! sftp://user@host:port/folder    our own ssh (russh), several connections
//! --ssh-command 'ssh …'           the user's ssh, for what ours can't do
//! stdio:PROGRAM ARGUMENTS         any program that speaks SFTP on its standard input and output
//! ```
//!
//! Objects lie as [`crate::LocalStore`] lays them: the two may share a repository.
//!
//! # What a crash leaves
//!
//! As there, an object gets its name when its bytes are whole: bytes to `tmp/`, `fsync@openssh.com`, name, sync of the
//! folder (OpenSSH lets a folder be opened and synced). A server that offers no fsync keeps what it was sent as long as
//! its machine doesn't crash; it can't promise more, and neither can this store.
//!
//! An account that may neither rename nor link has its objects written under their own names, born read-only. What is
//! cut short there stays: see [`objects`].
//!
//! # When the line breaks
//!
//! Every call is tried again over a new connection, until [`crate::Retries`] gives up. What may have been done already
//! is looked at first. An upload goes on where its bytes were last known to be safe: [`upload`].

mod address;
mod behind;
mod clear;
mod fed;
mod first;
mod folders;
mod handles;
mod lanes;
mod list;
mod objects;
mod peer;
mod pieces;
mod pool;
mod prepared;
mod program;
mod publish;
mod read;
mod spare;
mod ssh;
mod upload;
mod wire;

pub use address::Address;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::ahead::{self, Ahead, Asked};
use crate::around::Surroundings;
use crate::late::Late;
use crate::name::{self, TMP};
use crate::{Action, Cleared, Error, Kind, Listed, Location, Look, Put, Result, Soon, Store, Upload};
use behind::Behind;
use fed::Fed;
use first::First;
use folders::Folders;
use peer::{Peer, Together, Trouble};
use pool::{Pool, Way};
use prepared::Prepared;
use publish::Reserved;
use read::Kept;
use spare::Spare;
use upload::SftpUpload;
use wire::{Request, Sort, status};

/// A folder on another machine.
pub struct SftpStore {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Arc<Pool>,
    /// The repository's folder, as the server takes it.
    base: Vec<u8>,
    /// The folder has been seen.
    found: AtomicBool,
    folders: Folders,
    reserved: Reserved,
    /// See [`Inner::renames_over`].
    renames_over: OnceLock<bool>,
    kept: Kept,
    ahead: Ahead,
    behind: Behind,
    spare: Spare,
    prepared: Prepared,
    late: Late,
    /// Somebody keeps more than others may: [`upload::More`].
    keeps_more: AtomicBool,
}

impl SftpStore {
    /// Make a folder for a new repository, or take an empty one. [`Kind::Exists`] if there is anything in it;
    /// [`Kind::Missing`] if the folder that it is to be made in does not exist.
    pub fn create(location: &Location, around: &Surroundings) -> Result<Self> {
        let store = Self::open(location, around)?;
        store.inner.make()?;
        Ok(store)
    }

    /// Log in to where a repository is. Writes nothing. Whether the folder is there is found when something is asked
    /// for.
    pub fn open(location: &Location, around: &Surroundings) -> Result<Self> {
        let shown = location.to_string();
        let (way, base) = match location {
            Location::Sftp(address) => (way(address, around, &shown)?, address.path.clone()),
            Location::Program(command) => (Way::Program { command: command.clone(), several: false }, b".".to_vec()),
            Location::Local(_) | Location::S3(_) => {
                let cause = "this is not a place that SFTP can reach";
                return Err(Error::because(Kind::Refused, Action::Open, "", &shown, cause));
            }
        };
        let none = path(&base, "tmp/none");
        let first = around.first.iter().filter(|name| name::is_name(name));
        let first = First::new(first.map(|name| (name.clone(), path(&base, name))));
        let pool = Pool::new(way, shown, none, first, around);
        pool.peer()?;
        let inner = Inner {
            pool,
            base,
            found: AtomicBool::new(false),
            folders: Folders::default(),
            reserved: Reserved::default(),
            renames_over: OnceLock::new(),
            kept: Kept::default(),
            ahead: Ahead::default(),
            behind: Behind::default(),
            spare: Spare::default(),
            prepared: Prepared::default(),
            late: Late::default(),
            keeps_more: AtomicBool::new(false),
        };
        Ok(SftpStore { inner: Arc::new(inner) })
    }
}

impl Drop for SftpStore {
    /// Threads may hold the rest for a while, and the process may end before them.
    fn drop(&mut self) {
        self.inner.let_go();
        self.inner.pool.settle();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn way(address: &Address, around: &Surroundings, shown: &str) -> Result<Way> {
    match &around.ssh_command {
        Some(command) => {
            let command = ssh::command(command, address).map_err(|e| e.at(shown))?;
            Ok(Way::Program { command, several: true })
        }
        None => {
            let login = ssh::Login::new(address, around).map_err(|e| e.at(shown))?;
            Ok(Way::Ssh(Box::new(login)))
        }
    }
}

/// An object's path: below `base`, which may be relative to where a login begins.
fn path(base: &[u8], name: &str) -> Vec<u8> {
    match (base, name) {
        (base, "") => base.to_vec(),
        (b".", name) => name.as_bytes().to_vec(),
        (base, name) => [base, b"/", name.as_bytes()].concat(),
    }
}

/// `name` as its folder (`""` for the root) and what comes behind.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

impl Inner {
    /// Nobody is going to put anything any more.
    fn let_go(&self) {
        // Whoever writes for one that is to come sets a file for the next.
        self.drop_prepared();
        self.drop_spare();
    }

    fn path(&self, name: &str) -> Vec<u8> {
        path(&self.base, name)
    }

    fn location(&self) -> &str {
        self.pool.location()
    }

    /// What was asked for in advance says nothing of this object any more.
    fn forget(&self, name: &str) {
        self.pool.first.take(name);
        self.ahead.forget(name);
        self.behind.forget();
    }

    fn because(&self, kind: Kind, action: Action, name: &str, cause: &str) -> Error {
        Error::because(kind, action, name, self.location(), cause)
    }

    /// What the server said, by what can be done about it.
    fn error(&self, action: Action, name: &str, trouble: &Trouble) -> Error {
        let words = match trouble {
            Trouble::Status { words, .. } => words.to_ascii_lowercase(),
            _ => String::new(),
        };
        let kind = match trouble {
            Trouble::Gone(gone) => return self.pool.broken(action, name, gone),
            Trouble::Odd => Kind::Io,
            Trouble::NoObject(_) => Kind::Refused,
            Trouble::Status { code, .. } => match *code {
                status::NO_SUCH_FILE => Kind::Missing,
                status::PERMISSION_DENIED => Kind::Refused,
                status::NO_CONNECTION | status::CONNECTION_LOST => Kind::Transient,
                _ if words.contains("no space") || words.contains("quota") => Kind::Full,
                _ => Kind::Io,
            },
        };
        self.because(kind, action, name, &trouble.to_string())
    }

    /// A write that failed: OpenSSH calls a full disk a failure, like everything else, so it is asked for its room.
    fn write_error(&self, peer: &Peer, name: &str, trouble: &Trouble) -> Error {
        if trouble.is(status::FAILURE) && peer.offers().room {
            let room = match peer.one(&Request::Room { path: &self.base }) {
                Ok(wire::Reply::Extended(told)) => wire::free_bytes(&told).ok(),
                _ => None,
            };
            match room {
                Some(free) if free < 1 << 20 => {
                    return self.because(Kind::Full, Action::Write, name, "no space is left on the server");
                }
                _ => {
                    let cause =
                        format!("{trouble}; it gives no reason: check the account's quota, and that machine's disk");
                    return self.because(Kind::Io, Action::Write, name, &cause);
                }
            }
        }
        self.error(Action::Write, name, trouble)
    }

    /// There is no such object, unless the whole repository is gone: `base` is what the server says of its folder.
    fn missing(&self, action: Action, name: &str, base: std::result::Result<wire::Attrs, Trouble>) -> Error {
        match self.linked(action, base) {
            Ok(()) => self.because(Kind::Missing, action, name, "there is no such object"),
            Err(error) => error,
        }
    }

    /// "Not there" is an answer only while the repository is there.
    fn linked(&self, action: Action, base: std::result::Result<wire::Attrs, Trouble>) -> Result<()> {
        match base {
            Ok(attrs) if matches!(attrs.sort(), Sort::Folder) || attrs.mode.is_none() => {
                self.found.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(_) => Err(self.because(Kind::Io, action, "", "it is a file, not a folder")),
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => {
                if self.found.load(Ordering::Relaxed) {
                    let cause = "the repository's folder has been removed while it was in use";
                    return Err(self.because(Kind::Io, action, "", cause));
                }
                Err(self.because(Kind::Missing, Action::Open, "", "there is no such folder"))
            }
            Err(trouble) => Err(self.error(action, "", &trouble)),
        }
    }

    /// Run `call` over a connection until it is done, and say what failed.
    fn run<T>(
        &self,
        action: Action,
        name: &str,
        call: impl FnMut(&Arc<Peer>) -> std::result::Result<T, Trouble>,
    ) -> Result<T> {
        self.pool.with(action, name, call)?.map_err(|trouble| self.error(action, name, &trouble))
    }
}

impl Store for SftpStore {
    fn location(&self) -> String {
        self.inner.location().to_owned()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn may_come_late(&self, name: &str) -> bool {
        self.inner.late.has(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        name::check_prefix(Action::List, prefix, self.inner.location())?;
        match self.inner.behind.listing(prefix).or_else(|| self.inner.ahead.listing(prefix)) {
            Some(listed) => listed.into_iter().for_each(each),
            None => self.inner.list(prefix, each)?,
        }
        Ok(())
    }

    fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
        folders.iter().try_for_each(|folder| name::check_prefix(Action::List, folder, self.inner.location()))?;
        match self.inner.behind.listings(folders) {
            Some(seen) => {
                let seen = seen.into_iter().enumerate();
                seen.for_each(|(at, objects)| objects.into_iter().for_each(|listed| each(at, listed)));
                Ok(())
            }
            None => self.inner.list_in_order(folders, each),
        }
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        name::check(Action::Find, name, self.inner.location())?;
        let told = self.inner.behind.length(name).or_else(|| self.inner.ahead.length(name));
        told.map_or_else(|| self.inner.len(name), Ok)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        name::check(Action::Read, name, self.inner.location())?;
        let first = self.inner.pool.first.take(name);
        if first.is_some() {
            self.inner.found.store(true, Ordering::Relaxed);
        }
        let there = first.or_else(|| self.inner.ahead.object(name));
        there.map_or_else(|| self.inner.get(name), Ok)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        name::check(Action::Read, name, self.inner.location())?;
        ahead::read(&*self.inner, name, offset, buf)
    }

    fn expect(&self, soon: Soon<'_>) {
        match soon {
            // What isn't open yet is opened by another thread, and may be open when that is still on its way.
            Soon::Range { name, offset, len }
                if name::is_name(name)
                    && !self.inner.ahead.has_range(name, offset, len)
                    && !self.inner.expect(name, offset, len) =>
            {
                ahead::range(&self.inner, name, offset, len);
            }
            Soon::Object(name) if name::is_name(name) && !self.inner.pool.first.has(name) => {
                ahead::object(&self.inner, name);
            }
            Soon::Listing(folder) if name::is_name(folder) && !self.inner.behind.has_listing(folder) => {
                ahead::listing(&self.inner, folder)
            }
            Soon::Length(name) if name::is_name(name) && !self.inner.behind.has_length(name) => {
                ahead::length(&self.inner, name)
            }
            // Where nobody answers, whoever puts something is told.
            Soon::Bytes { name, bytes } if name::is_name(name) => self.inner.prepare(name, bytes),
            Soon::Put => drop(self.inner.pool.peer().map(|peer| self.inner.set_spare(&peer))),
            _ => {}
        }
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        name::check(Action::Write, name, self.inner.location())?;
        self.inner.forget(name);
        self.inner.put(name, bytes, how, &[])
    }

    fn put_and_look(&self, name: &str, bytes: &[u8], looks: &[Look<'_>]) -> Result<()> {
        name::check(Action::Write, name, self.inner.location())?;
        self.inner.forget(name);
        for look in looks {
            // Asked for before: it is older than what comes now.
            let (Look::Empty(of) | Look::Listing(of) | Look::InOrder(of) | Look::Length(of)) = *look;
            self.inner.ahead.forget(of);
        }
        self.inner.put(name, bytes, Put::Create, looks)
    }

    fn upload(&self, name: &str, _len_hint: u64) -> Result<Box<dyn Upload>> {
        name::check(Action::Write, name, self.inner.location())?;
        self.inner.forget(name);
        Ok(Box::new(Fed::new(SftpUpload::begin(self.inner.clone(), name)?)))
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn delete(&self, name: &str) -> Result<()> {
        name::check(Action::Delete, name, self.inner.location())?;
        self.inner.forget(name);
        self.inner.delete(name)
    }

    fn clear_unfinished(&self) -> Result<Cleared> {
        self.inner.clear()
    }
}

impl Asked for Inner {
    fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        Inner::get(self, name)
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        Inner::len(self, name)
    }

    fn list(&self, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        Inner::list(self, folder, each)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        Inner::read_at(self, name, offset, buf)
    }
}

impl Inner {
    /// The folder of a new repository.
    fn make(&self) -> Result<()> {
        let (is_new, base) = self.run(Action::Create, "", |peer| {
            let mut flight = peer.flight();
            flight.add(&Request::MakeDir { path: &self.base, mode: 0o700 });
            flight.add(&Request::Stat { path: &self.base });
            let mut replies = flight.land()?.into_iter();
            let (made, base) = (replies.next(), replies.next());
            Ok((made.map(wire::Reply::done), base.map(wire::Reply::attrs)))
        })?;
        match (is_new, base) {
            (Some(Err(trouble)), Some(Err(missing))) if missing.is(status::NO_SUCH_FILE) => match trouble {
                trouble if trouble.is(status::NO_SUCH_FILE) => {
                    return Err(self.because(Kind::Missing, Action::Create, "", "the folder above it does not exist"));
                }
                trouble => return Err(self.error(Action::Create, "", &trouble)),
            },
            (_, Some(base)) => self.linked(Action::Create, base)?,
            _ => return Err(self.error(Action::Create, "", &Trouble::Odd)),
        }
        // What an interrupted attempt left, and what an administrator made because the account may not, is no obstacle.
        let mut entries = self.entries("")?;
        entries.retain(|entry| entry.name != TMP.as_bytes() && entry.name != b"lost+found");
        let mut objects = false;
        let is_full = entries.iter().any(|entry| entry.attrs.sort() != Sort::Folder || entry.name.starts_with(b"."));
        if !is_full && !entries.is_empty() {
            self.list("", &mut |_| objects = true)?;
        }
        if is_full || objects {
            let cause = "the folder is not empty; a new repository needs a new or empty folder";
            return Err(self.because(Kind::Exists, Action::CreateRepository, "", cause));
        }
        std::thread::scope(|scope| {
            let above = || self.folders.persist_above(self);
            if std::thread::Builder::new().name("sftp-above".into()).spawn_scoped(scope, above).is_err() {
                above();
            }
            self.run(Action::Create, "", |peer| {
                if peer.abilities()?.rename {
                    // It goes along; whether it is there, whoever writes to it is told.
                    peer.tell(&Request::MakeDir { path: &self.path(TMP), mode: 0o755 });
                }
                self.folders.persist(self, peer, &[String::new()])
            })
        })
    }
}

#[cfg(test)]
mod tests;
