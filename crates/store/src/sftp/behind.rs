//! What is looked at right behind a put, in the same round trip: [`crate::Store::put_and_look`].
//!
//! OpenSSH does what a connection asks for in the order in which it was asked, so that what it answers behind the
//! naming of an object, and the sync of its folder, was so when the object was there, durably. Each answer is as good
//! as one that was asked for then; from the first on of which that isn't certain none is kept.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::Inner;
use super::list::Foresight;
use super::peer::{Foreseen, Peer, Together, Trouble};
use super::wire::{Reply, Request, Sort, status};
use crate::lock::lock;
use crate::{Listed, Look};

/// What was seen behind the last put, and nobody has asked for yet.
#[derive(Default)]
pub(super) struct Behind(Mutex<VecDeque<Seen>>);

enum Seen {
    /// `alone`: whether it may be given out without the folder that was seen before it.
    Listing {
        folder: String,
        objects: Vec<Listed>,
        alone: bool,
    },
    Length {
        name: String,
        len: Option<u64>,
    },
}

impl Seen {
    fn is_listing(&self, of: &str) -> bool {
        matches!(self, Seen::Listing { folder, .. } if folder == of)
    }
}

impl Behind {
    /// What was seen isn't certain any more.
    pub(super) fn forget(&self) {
        lock(&self.0).clear();
    }

    fn set(&self, seen: Vec<Seen>) {
        *lock(&self.0) = seen.into();
    }

    /// What is in a folder, once.
    pub(super) fn listing(&self, folder: &str) -> Option<Vec<Listed>> {
        let may = |seen: &Seen| matches!(seen, Seen::Listing { folder: of, alone: true, .. } if of == folder);
        if !lock(&self.0).iter().any(may) {
            return None;
        }
        self.listings(&[folder])?.pop()
    }

    /// What is in each of these folders, once, if each was seen behind the one before it. Else nothing that was seen of
    /// them is of use: of one that has to be listed now the next was seen too early.
    pub(super) fn listings(&self, folders: &[&str]) -> Option<Vec<Vec<Listed>>> {
        let mut seen = lock(&self.0);
        let (mut found, mut at) = (Vec::new(), 0);
        for folder in folders {
            let place = seen.iter().skip(at).position(|seen| seen.is_listing(folder));
            let Some(Seen::Listing { objects, .. }) = place.and_then(|place| seen.remove(at + place)) else {
                seen.retain(|seen| !folders.iter().any(|folder| seen.is_listing(folder)));
                return None;
            };
            at += place.unwrap_or_default();
            found.push(objects);
        }
        Some(found)
    }

    /// The length of an object, once; `None` within if there was no such object.
    pub(super) fn length(&self, of: &str) -> Option<Option<u64>> {
        let mut seen = lock(&self.0);
        let place = seen.iter().position(|seen| matches!(seen, Seen::Length { name, .. } if name == of))?;
        match seen.remove(place)? {
            Seen::Length { len, .. } => Some(len),
            Seen::Listing { .. } => None,
        }
    }

    /// Whether it has a folder's listing, for who needn't ask for it then.
    pub(super) fn has_listing(&self, folder: &str) -> bool {
        lock(&self.0).iter().any(|seen| seen.is_listing(folder))
    }

    /// Whether it has an object's length.
    pub(super) fn has_length(&self, of: &str) -> bool {
        lock(&self.0).iter().any(|seen| matches!(seen, Seen::Length { name, .. } if name == of))
    }
}

/// What is to be looked at behind the naming of an object, and what was seen.
#[derive(Default)]
pub(super) struct Looking<'a> {
    looks: &'a [Look<'a>],
    seen: Vec<Seen>,
}

impl<'a> Looking<'a> {
    pub(super) fn at(looks: &'a [Look<'a>]) -> Self {
        Looking { looks, seen: Vec::new() }
    }

    /// The naming went otherwise: what was seen with it says nothing.
    pub(super) fn begin_anew(&mut self) {
        self.seen.clear();
    }

    /// Requests that can carry these questions behind others, if there are any.
    pub(super) fn foresee<'p>(&self, peer: &'p Peer) -> Option<Foreseen<'p>> {
        if self.looks.is_empty() { None } else { peer.foresee_in_order() }
    }

    /// Ask.
    pub(super) fn ask(&self, store: &Inner, flight: &mut Foreseen) {
        for look in self.looks {
            match look {
                Look::Empty(folder) | Look::Listing(folder) | Look::InOrder(folder) => {
                    store.ask_to_read(flight, folder);
                }
                Look::Length(name) => flight.add(&Request::LinkStat { path: &store.path(name) }),
            }
        }
    }

    /// Take the answers to [`Looking::ask`].
    pub(super) fn take(
        &mut self,
        store: &Inner,
        peer: &Peer,
        foresight: Foresight,
        replies: &mut impl Iterator<Item = Reply>,
    ) -> Result<(), Trouble> {
        let mut is_certain = foresight.in_order;
        for look in self.looks {
            let seen = match *look {
                Look::Empty(folder) | Look::Listing(folder) | Look::InOrder(folder) => {
                    let alone = !matches!(look, Look::InOrder(_));
                    let read = foresight.take_read(peer, replies)?;
                    let mut objects = Vec::new();
                    let given = read.map(|entries| store.give(folder, entries, &mut |listed| objects.push(listed)));
                    // What is in folders below would be seen later than what comes behind.
                    let whole = given.is_some_and(|below| below.is_ok_and(|below| below.is_empty()));
                    whole.then(|| Seen::Listing { folder: folder.to_owned(), objects, alone })
                }
                Look::Length(name) => {
                    let len = match replies.next().ok_or(Trouble::Odd)?.attrs() {
                        Ok(attrs) => attrs.size.filter(|_| attrs.sort() == Sort::File).map(Some),
                        Err(trouble) => trouble.is(status::NO_SUCH_FILE).then_some(None),
                    };
                    len.map(|len| Seen::Length { name: name.to_owned(), len })
                }
            };
            is_certain &= seen.is_some();
            let holds_more = matches!(&seen, Some(Seen::Listing { objects, .. }) if !objects.is_empty());
            self.seen.extend(seen.filter(|_| is_certain));
            is_certain &= !(holds_more && matches!(look, Look::Empty(_)));
        }
        Ok(())
    }

    /// The object is there, durably: what was seen behind it can be given out.
    pub(super) fn keep(self, behind: &Behind) {
        behind.set(self.seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(folder: &str, objects: &[&str]) -> Seen {
        let objects = objects.iter().map(|name| Listed { name: (*name).to_owned(), len: 1 }).collect();
        Seen::Listing { folder: folder.to_owned(), objects, alone: folder != "b" }
    }

    fn behind(seen: Vec<Seen>) -> Behind {
        let behind = Behind::default();
        behind.set(seen);
        behind
    }

    #[test]
    fn each_answer_is_given_once_and_folders_in_the_order_in_which_they_were_seen() {
        let all = || {
            let length = Seen::Length { name: "x".to_owned(), len: None };
            behind(vec![listing("a", &["a/1"]), listing("b", &[]), length, listing("c", &["c/1"])])
        };
        let seen = all();
        assert_eq!(seen.listing("a").unwrap().len(), 1);
        assert_eq!(seen.listing("a"), None);
        assert_eq!((seen.length("x"), seen.length("x")), (Some(None), None));
        assert_eq!(seen.listings(&["b", "c"]).unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [0, 1]);
        let seen = all();
        assert_eq!(seen.listing("b"), None, "by itself it isn't given");
        assert!(seen.listings(&["a", "b"]).is_some());
        let seen = all();
        assert_eq!(seen.listings(&["c", "b"]), None, "b was seen before c");
        assert!(!seen.has_listing("b") && !seen.has_listing("c") && seen.has_listing("a"));
        let seen = all();
        assert_eq!(seen.listings(&["b", "none"]), None);
        assert_eq!(seen.listing("b"), None, "it is older than what will be read of the other");
        let seen = all();
        seen.forget();
        assert!(seen.listing("a").is_none() && !seen.has_length("x"));
    }
}
