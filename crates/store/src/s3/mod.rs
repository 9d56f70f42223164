//! A store in a bucket: Amazon S3, and whatever else speaks its protocol.
//!
//! ```text
//! s3://bucket/prefix                       Amazon's, or the server that --endpoint or AWS_ENDPOINT_URL names
//! s3:https://host:port/bucket/prefix       that server
//! ```
//!
//! An object's key is the prefix, a slash, and its name. Below `tmp/` lies one object: [`once`].
//!
//! # What a crash leaves
//!
//! A put is there whole and durable when the server has answered, or not at all. A large object goes up in parts that
//! nobody sees before they are put together; what a killed writer leaves of those takes room, and is removed by others
//! after a week: [`clear`].
//!
//! # When the line breaks, or the server has enough
//!
//! Every request is tried again until [`crate::Retries`] gives up. What may have been done already is looked at:
//! [`objects`]. Of an upload only the parts that were under way are sent again: [`upload`].
//!
//! # Creating what must be new
//!
//! `If-None-Match: *` lets one of several creators win, where the server honours it. Some take it and overwrite all the
//! same, so each is put to the test before it is trusted: [`once`].

mod address;
mod clear;
mod client;
mod cold;
mod credentials;
mod http;
mod list;
mod objects;
mod once;
mod past;
mod retention;
mod said;
mod settings;
mod sign;
mod time;
mod upload;
mod xml;

pub use address::S3Address;
pub use past::PastStore;
pub use retention::ObjectLock;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::ahead::{self, Ahead, Asked};
use crate::around::Surroundings;
use crate::late::Late;
use crate::name;
use crate::{Action, Cleared, Error, Haste, Kind, Listed, Put, Result, Soon, Store, Thaw, Upload};
use client::Client;
use credentials::{Chain, Profile, User};
use once::Once;
use settings::Settings;

/// A part of a bucket, or the whole.
pub struct S3Store {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    ahead: Ahead,
    once: Once,
    /// The bucket takes nothing without its sum.
    wants_sums: AtomicBool,
    /// The last part of an upload that has arrived was there soon.
    is_quick: AtomicBool,
    /// Parts on their way beyond those that any upload has.
    more_parts: AtomicUsize,
    late: Late,
}

impl S3Store {
    /// Take an empty part of a bucket for a new repository. [`Kind::Exists`] if there is anything in it;
    /// [`Kind::Missing`] if there is no such bucket.
    pub fn create(address: &S3Address, around: &Surroundings) -> Result<Self> {
        let store = Self::open(address, around)?;
        store.inner.is_empty()?;
        if !store.inner.tested()? {
            store.inner.client.tell(
                "this server can't make sure that only one client creates an object of a name (it ignores If-None-Match): \
                 decisions are made in another way, which relies on listings that show at once what was written",
            );
        }
        Ok(store)
    }

    /// Whatever is there. Asks the server for nothing: whether there is such a bucket is found when something is asked
    /// for.
    pub fn open(address: &S3Address, around: &Surroundings) -> Result<Self> {
        let location = address.to_string();
        let refused = |why: String| Error::because(Kind::Refused, Action::Open, "", &location, why);
        let user = User::new(around.aws.clone(), around.home.clone());
        let profile = Profile::read(&user).map_err(refused)?;
        let settings = Settings::new(address, around, &user, &profile).map_err(refused)?;
        let keys = Chain::new(user, profile, settings.is_amazon(), settings.proxies.clone());
        let client = Client::new(settings, keys, location, around);
        Ok(S3Store {
            inner: Arc::new(Inner {
                client,
                ahead: Ahead::default(),
                once: Once::default(),
                wants_sums: AtomicBool::default(),
                is_quick: AtomicBool::default(),
                more_parts: AtomicUsize::default(),
                late: Late::default(),
            }),
        })
    }
}

impl Inner {
    fn location(&self) -> &str {
        self.client.location()
    }

    fn because(&self, kind: Kind, action: Action, name: &str, cause: &str) -> Error {
        Error::because(kind, action, name, self.location(), cause)
    }

    fn taken(&self, name: &str) -> Error {
        self.because(Kind::Exists, Action::Write, name, "there is an object of that name already")
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

impl Store for S3Store {
    fn location(&self) -> String {
        self.inner.location().to_owned()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn creates_atomically(&self) -> Result<bool> {
        self.inner.looked()
    }

    fn may_come_late(&self, name: &str) -> bool {
        self.inner.late.has(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        name::check_prefix(Action::List, prefix, self.inner.location())?;
        match self.inner.ahead.listing(prefix) {
            Some(listed) => listed.into_iter().for_each(each),
            None => self.inner.list(prefix, each)?,
        }
        Ok(())
    }

    /// What was asked for ahead may be older than the folder before it.
    fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
        folders.iter().try_for_each(|folder| name::check_prefix(Action::List, folder, self.inner.location()))?;
        let mut all = folders.iter().enumerate();
        all.try_for_each(|(at, folder)| self.inner.list(folder, &mut |listed| each(at, listed)))
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        name::check(Action::Find, name, self.inner.location())?;
        self.inner.ahead.length(name).map_or_else(|| self.inner.len(name), Ok)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        name::check(Action::Read, name, self.inner.location())?;
        self.inner.ahead.object(name).map_or_else(|| self.inner.get(name), Ok)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        name::check(Action::Read, name, self.inner.location())?;
        ahead::read(&*self.inner, name, offset, buf)
    }

    fn freezes(&self) -> bool {
        true
    }

    fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        name::check(Action::Thaw, name, self.inner.location())?;
        self.inner.thaw(name, haste)
    }

    fn retain(&self, name: &str) -> Result<()> {
        name::check(Action::Lock, name, self.inner.location())?;
        self.inner.retain(name)
    }

    fn retains(&self) -> bool {
        self.inner.retains()
    }

    fn retention_ends_soon(&self, name: &str) -> Result<bool> {
        name::check(Action::Find, name, self.inner.location())?;
        self.inner.retention_ends_soon(name)
    }

    fn expect(&self, soon: Soon<'_>) {
        match soon {
            Soon::Range { name, offset, len } if name::is_name(name) => ahead::range(&self.inner, name, offset, len),
            Soon::Object(name) if name::is_name(name) => ahead::object(&self.inner, name),
            Soon::Listing(folder) if name::is_name(folder) => ahead::listing(&self.inner, folder),
            Soon::Length(name) if name::is_name(name) => ahead::length(&self.inner, name),
            Soon::Put => once::test_soon(&self.inner),
            _ => {}
        }
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        name::check(Action::Write, name, self.inner.location())?;
        self.inner.ahead.forget(name);
        self.inner.put(name, bytes, how)
    }

    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        name::check(Action::Write, name, self.inner.location())?;
        self.inner.ahead.forget(name);
        Ok(Box::new(upload::S3Upload::begin(self.inner.clone(), name, len_hint)))
    }

    fn sync(&self) -> Result<()> {
        // Whatever was answered is durable.
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        name::check(Action::Delete, name, self.inner.location())?;
        self.inner.ahead.forget(name);
        self.inner.delete(name)
    }

    fn clear_unfinished(&self) -> Result<Cleared> {
        self.inner.clear()
    }
}
