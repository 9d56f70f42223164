//! What was asked for in advance, in threads of its own, because somebody said that he will ask for it: objects, lengths and
//! listings. Each is given out once. What this store writes or removes since is not in it, so it is forgotten then.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::Inner;
use super::peer::lock;
use crate::Listed;
use crate::name::is_below;

/// More than so many are not asked for at once.
const AHEAD_MAX: usize = 8;

#[derive(Default)]
pub(super) struct Ahead {
    under_way: Mutex<Vec<UnderWay>>,
}

struct UnderWay {
    name: String,
    what: What,
}

enum What {
    Object(JoinHandle<Option<Vec<u8>>>),
    Listing(JoinHandle<Option<Vec<Listed>>>),
    Length(JoinHandle<Option<Option<u64>>>),
}

/// Ask for an object.
pub(super) fn object(store: &Arc<Inner>, name: &str) {
    begin(store, name, |store, name| {
        // What goes wrong is told to the one who asks.
        let get = move || store.get(&name).ok();
        thread::Builder::new().name("sftp-ahead".into()).spawn(get).ok().map(What::Object)
    });
}

/// Ask for an object's length.
pub(super) fn length(store: &Arc<Inner>, name: &str) {
    begin(store, name, |store, name| {
        let len = move || store.len(&name).ok();
        thread::Builder::new().name("sftp-ahead".into()).spawn(len).ok().map(What::Length)
    });
}

/// Ask for a folder's listing.
pub(super) fn listing(store: &Arc<Inner>, folder: &str) {
    begin(store, folder, |store, folder| {
        let list = move || {
            let mut listed = Vec::new();
            store.list(&folder, &mut |object| listed.push(object)).ok().map(|()| listed)
        };
        thread::Builder::new().name("sftp-ahead".into()).spawn(list).ok().map(What::Listing)
    });
}

fn begin(store: &Arc<Inner>, name: &str, start: impl FnOnce(Arc<Inner>, String) -> Option<What>) {
    let mut under_way = lock(&store.ahead.under_way);
    under_way.retain(|of| of.name != name);
    if under_way.len() < AHEAD_MAX
        && let Some(what) = start(store.clone(), name.to_owned())
    {
        under_way.push(UnderWay { name: name.to_owned(), what });
    }
}

impl Ahead {
    fn take(&self, name: &str, is_it: impl Fn(&What) -> bool) -> Option<What> {
        let mut under_way = lock(&self.under_way);
        let place = under_way.iter().position(|of| of.name == name && is_it(&of.what))?;
        Some(under_way.swap_remove(place).what)
    }

    /// The object, if it was asked for and is there.
    pub(super) fn object(&self, name: &str) -> Option<Vec<u8>> {
        match self.take(name, |what| matches!(what, What::Object(_)))? {
            What::Object(thread) => thread.join().ok()?,
            _ => None,
        }
    }

    /// The length, if it was asked for; `None` within if there is no such object.
    pub(super) fn length(&self, name: &str) -> Option<Option<u64>> {
        match self.take(name, |what| matches!(what, What::Length(_)))? {
            What::Length(thread) => thread.join().ok()?,
            _ => None,
        }
    }

    /// The listing, if it was asked for.
    pub(super) fn listing(&self, folder: &str) -> Option<Vec<Listed>> {
        match self.take(folder, |what| matches!(what, What::Listing(_)))? {
            What::Listing(thread) => thread.join().ok()?,
            _ => None,
        }
    }

    /// An object is about to be written or removed.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.under_way).retain(|of| of.name != name && !is_below(name, &of.name));
    }
}
