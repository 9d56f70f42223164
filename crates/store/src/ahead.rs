//! What was asked for in advance, in threads of its own, because somebody said that he will ask for it: objects,
//! lengths, listings and, where the storage has no better way, ranges. Each is given out once. What this store writes
//! or removes since is not in it, so it is forgotten then.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::name::is_below;
use crate::readers::Readers;
use crate::{Listed, Result};

/// More than so many objects and listings are not asked for at once.
const AHEAD_MAX: usize = 16;
/// Nor more lengths, which may be waited for long after what was asked for later,
const LENGTHS_MAX: usize = 16;
/// nor more ranges than so many,
const RANGES_MAX: usize = 20;
/// nor ranges of more than so many bytes in all.
const RANGE_BYTES_MAX: usize = 16 << 20;
/// A range that has been here for so long, and that nobody has fetched, is given up, once so many bytes of others have
/// been fetched instead that were asked for later, or not in advance, [`RANGE_BYTES_MAX`], or nobody has fetched any for
/// as long. (Over a slow line one that is on its way may take far longer, and come before one that is wanted first.)
const RANGE_FOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

/// What such a thread is called.
const THREAD: &str = "store-ahead";

/// A store that can be asked from a thread, and has room for what was asked for in advance.
pub(crate) trait Asked: Send + Sync + 'static {
    /// Where that is kept.
    fn ahead(&self) -> &Ahead;
    /// See [`crate::Store::get`].
    fn get(&self, name: &str) -> Result<Vec<u8>>;
    /// See [`crate::Store::len`].
    fn len(&self, name: &str) -> Result<Option<u64>>;
    /// See [`crate::Store::list`].
    fn list(&self, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()>;
    /// See [`crate::Store::read_at`].
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()>;
}

#[derive(Default)]
pub(crate) struct Ahead {
    under_way: Mutex<Vec<UnderWay>>,
    readers: Readers,
}

struct UnderWay {
    name: String,
    what: What,
}

enum What {
    Object(JoinHandle<Option<Vec<u8>>>),
    Listing(JoinHandle<Option<Vec<Listed>>>),
    Length(JoinHandle<Option<Option<u64>>>),
    /// `here`: when it was seen that it is. `overtaken`: bytes that were asked for later, or not in advance, and
    /// fetched.
    Range {
        offset: u64,
        len: usize,
        here: Option<Instant>,
        overtaken: usize,
        read: JoinHandle<Option<Vec<u8>>>,
    },
}

impl What {
    /// Whether it is a range that nobody wants, as it seems. `quiet`: nobody has fetched any for a while.
    fn is_stale(&mut self, quiet: bool) -> bool {
        let What::Range { here, read, overtaken, .. } = self else { return false };
        if here.is_none() && read.is_finished() {
            *here = Some(Instant::now());
        }
        (quiet || *overtaken >= RANGE_BYTES_MAX) && here.is_some_and(|here| here.elapsed() > RANGE_FOR)
    }

    fn range_bytes(&self) -> Option<usize> {
        if let What::Range { len, .. } = self { Some(*len) } else { None }
    }
}

/// What goes wrong in such a thread is told to the one who asks later: he asks anew.
fn start<T: Send + 'static>(ask: impl FnOnce() -> Option<T> + Send + 'static) -> Option<JoinHandle<Option<T>>> {
    thread::Builder::new().name(THREAD.into()).spawn(ask).ok()
}

/// Ask for an object.
pub(crate) fn object<S: Asked>(store: &Arc<S>, name: &str) {
    begin(store, name, false, |store, name| start(move || store.get(&name).ok()).map(What::Object));
}

/// Ask for an object's length.
pub(crate) fn length<S: Asked>(store: &Arc<S>, name: &str) {
    begin(store, name, true, |store, name| start(move || store.len(&name).ok()).map(What::Length));
}

/// Ask for a folder's listing.
pub(crate) fn listing<S: Asked>(store: &Arc<S>, folder: &str) {
    begin(store, folder, false, |store, folder| {
        let list = move || {
            let mut listed = Vec::new();
            store.list(&folder, &mut |object| listed.push(object)).ok().map(|()| listed)
        };
        start(list).map(What::Listing)
    });
}

/// Ask for a range, if there is room for it.
pub(crate) fn range<S: Asked>(store: &Arc<S>, name: &str, offset: u64, len: usize) {
    let quiet = store.ahead().readers.are_quiet(RANGE_FOR);
    let mut under_way = lock(&store.ahead().under_way);
    under_way.retain_mut(|of| !of.what.is_stale(quiet));
    let is_it = |of: &UnderWay| of.name == name && of.what.is_range(offset, len);
    let ranges = under_way.iter().filter_map(|of| of.what.range_bytes());
    let (many, bytes) = ranges.fold((0, 0), |(many, bytes), more| (many + 1, bytes + more));
    if many >= RANGES_MAX || bytes + len > RANGE_BYTES_MAX || under_way.iter().any(is_it) {
        return;
    }
    let (asked, of) = (store.clone(), name.to_owned());
    let read = move || {
        let mut bytes = vec![0; len];
        asked.read_at(&of, offset, &mut bytes).ok().map(|()| bytes)
    };
    if let Some(read) = start(read) {
        under_way.push(UnderWay {
            name: name.to_owned(),
            what: What::Range { offset, len, here: None, overtaken: 0, read },
        });
    }
}

/// Fill `buf` from `offset`, with the range if it was asked for and is there.
///
/// # Errors
/// Those of the store.
pub(crate) fn read<S: Asked>(store: &S, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
    let _reading = store.ahead().readers.begin();
    match store.ahead().range(name, offset, buf.len()) {
        Some(bytes) => buf.copy_from_slice(&bytes),
        None => store.read_at(name, offset, buf)?,
    }
    Ok(())
}

fn begin<S: Asked>(store: &Arc<S>, name: &str, length: bool, start: impl FnOnce(Arc<S>, String) -> Option<What>) {
    let mut under_way = lock(&store.ahead().under_way);
    under_way.retain(|of| of.name != name || of.what.range_bytes().is_some());
    let is_alike = |of: &&UnderWay| of.what.range_bytes().is_none() && matches!(of.what, What::Length(_)) == length;
    if under_way.iter().filter(is_alike).count() < if length { LENGTHS_MAX } else { AHEAD_MAX }
        && let Some(what) = start(store.clone(), name.to_owned())
    {
        under_way.push(UnderWay { name: name.to_owned(), what });
    }
}

impl What {
    fn is_range(&self, from: u64, bytes: usize) -> bool {
        matches!(self, What::Range { offset, len, .. } if (*offset, *len) == (from, bytes))
    }
}

impl Ahead {
    fn take(&self, name: &str, is_it: impl Fn(&What) -> bool) -> Option<What> {
        let mut under_way = lock(&self.under_way);
        let place = under_way.iter().position(|of| of.name == name && is_it(&of.what))?;
        // In the order in which they were asked for.
        Some(under_way.remove(place).what)
    }

    /// The object, if it was asked for and is there.
    pub(crate) fn object(&self, name: &str) -> Option<Vec<u8>> {
        match self.take(name, |what| matches!(what, What::Object(_)))? {
            What::Object(thread) => thread.join().ok()?,
            _ => None,
        }
    }

    /// The length, if it was asked for; `None` within if there is no such object.
    pub(crate) fn length(&self, name: &str) -> Option<Option<u64>> {
        match self.take(name, |what| matches!(what, What::Length(_)))? {
            What::Length(thread) => thread.join().ok()?,
            _ => None,
        }
    }

    /// The listing, if it was asked for.
    pub(crate) fn listing(&self, folder: &str) -> Option<Vec<Listed>> {
        match self.take(folder, |what| matches!(what, What::Listing(_)))? {
            What::Listing(thread) => thread.join().ok()?,
            _ => None,
        }
    }

    /// Whether a range was asked for, and nobody has fetched it.
    pub(crate) fn has_range(&self, name: &str, offset: u64, len: usize) -> bool {
        lock(&self.under_way).iter().any(|of| of.name == name && of.what.is_range(offset, len))
    }

    /// The range, if it was asked for and is there.
    fn range(&self, name: &str, offset: u64, len: usize) -> Option<Vec<u8>> {
        let taken = {
            let mut under_way = lock(&self.under_way);
            let place = under_way.iter().position(|of| of.name == name && of.what.is_range(offset, len));
            let earlier = place.unwrap_or(under_way.len());
            for earlier in &mut under_way[..earlier] {
                if let What::Range { overtaken, .. } = &mut earlier.what {
                    *overtaken += len;
                }
            }
            under_way.remove(place?).what
        };
        match taken {
            What::Range { read, .. } => read.join().ok()?,
            _ => None,
        }
    }

    /// An object is about to be written or removed.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.under_way).retain(|of| of.name != name && !is_below(name, &of.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Takes its time for a range.
    #[derive(Default)]
    struct Slow {
        ahead: Ahead,
        reads: AtomicUsize,
        /// Those that no thread of its own has made.
        direct: AtomicUsize,
    }

    impl Asked for Slow {
        fn ahead(&self) -> &Ahead {
            &self.ahead
        }
        fn get(&self, _: &str) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn len(&self, _: &str) -> Result<Option<u64>> {
            Ok(None)
        }
        fn list(&self, _: &str, _: &mut dyn FnMut(Listed)) -> Result<()> {
            Ok(())
        }
        fn read_at(&self, _: &str, _: u64, _: &mut [u8]) -> Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.direct.fetch_add(usize::from(thread::current().name() != Some(THREAD)), Ordering::Relaxed);
            thread::sleep(RANGE_FOR * 2);
            Ok(())
        }
    }

    /// Over a slow line that may be long: thrown away, it would be asked for once more. What is here and isn't fetched
    /// makes room one day.
    #[test]
    fn a_range_waits_for_as_long_as_it_takes_to_come() {
        let store = Arc::new(Slow::default());
        let has = |offset| lock(&store.ahead.under_way).iter().any(|of| of.what.is_range(offset, 5));
        range(&store, "data/x", 0, 5);
        thread::sleep(RANGE_FOR * 3 / 2);
        range(&store, "data/x", 5, 5);
        assert!(has(0) && has(5));
        assert_eq!(store.ahead.range("data/x", 0, 5), Some(vec![0; 5]));
        assert_eq!(store.reads.load(Ordering::Relaxed), 2);
        thread::sleep(RANGE_FOR * 2);
        range(&store, "data/x", 10, 5);
        assert!(has(5), "it was seen to be here a moment ago");
        thread::sleep(RANGE_FOR * 3 / 2);
        range(&store, "data/x", 15, 5);
        assert!(!has(5) && has(15));
    }

    /// Read a range. Whether it was not here, nor on its way.
    fn is_read_directly(store: &Slow, offset: u64, len: usize) -> bool {
        let before = store.direct.load(Ordering::Relaxed);
        read(store, "data/x", offset, &mut vec![0; len]).unwrap();
        store.direct.load(Ordering::Relaxed) > before
    }

    /// Several come at the same time over a slow line, and the first to be here may be the last that is wanted.
    #[test]
    fn a_range_that_is_here_waits_while_another_one_is_waited_for() {
        let store = Arc::new(Slow::default());
        let has = |offset, len| lock(&store.ahead.under_way).iter().any(|of| of.what.is_range(offset, len));
        range(&store, "data/x", 5, 5);
        thread::sleep(RANGE_FOR * 2 + RANGE_FOR / 2);
        range(&store, "data/x", 0, 5);
        // By this it is seen that the first one is here.
        range(&store, "data/x", 10, 5);
        assert!(!is_read_directly(&store, 0, 5));
        range(&store, "data/x", 15, 5);
        assert!(has(5, 5), "somebody has waited for another one all the time");
        // So has who waits for what nobody has announced.
        assert!(is_read_directly(&store, 25, 5));
        range(&store, "data/x", 30, 5);
        assert!(has(5, 5));
        // What others overtake is wanted by nobody.
        for at in 0..3 {
            let len = RANGE_BYTES_MAX / 2 - 100;
            range(&store, "data/y", at, len);
            assert!(store.ahead.range("data/y", at, len).is_some());
        }
        range(&store, "data/x", 20, 5);
        assert!(!has(5, 5) && has(20, 5));
    }

    /// Else nothing would be asked for in advance any more by who reads all the time.
    #[test]
    fn ranges_that_nobody_fetches_make_room_for_who_reads_others() {
        let store = Arc::new(Slow::default());
        let has = |offset, len| lock(&store.ahead.under_way).iter().any(|of| of.what.is_range(offset, len));
        (0..RANGES_MAX as u64).for_each(|at| range(&store, "data/x", at, 5));
        let is_here = |of: &UnderWay| matches!(&of.what, What::Range { read, .. } if read.is_finished());
        while !lock(&store.ahead.under_way).iter().all(is_here) {
            thread::sleep(RANGE_FOR / 100);
        }
        let of_others = RANGE_BYTES_MAX / 2;
        assert!(is_read_directly(&store, 100, of_others));
        range(&store, "data/x", 1000, 5);
        assert!(!has(1000, 5), "there is no room");
        assert!(is_read_directly(&store, 200, of_others));
        range(&store, "data/x", 1000, 5);
        assert!(has(1000, 5) && !has(0, 5));
    }
}
