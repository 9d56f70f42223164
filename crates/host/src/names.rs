//! Names of users and groups for their numbers, each asked for once.
//!
//! The system may look in files, LDAP or the like; a number without a name is not an error and is remembered too.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ffi::CStr;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

type Cache<K, V> = RwLock<HashMap<K, Option<V>>>;

/// A cache of names; may be shared by threads.
#[derive(Debug, Default)]
pub struct Names {
    users: Cache<u32, Arc<[u8]>>,
    groups: Cache<u32, Arc<[u8]>>,
    uids: Cache<Box<[u8]>, u32>,
    gids: Cache<Box<[u8]>, u32>,
}

fn cached<Q: ?Sized + Eq + Hash, K: Borrow<Q> + Eq + Hash, V: Clone>(
    cache: &Cache<K, V>,
    key: &Q,
    own: impl FnOnce(&Q) -> K,
    ask: impl FnOnce(&Q) -> Option<V>,
) -> Option<V> {
    if let Some(known) = cache.read().unwrap_or_else(PoisonError::into_inner).get(key) {
        return known.clone();
    }
    let value = ask(key);
    cache.write().unwrap_or_else(PoisonError::into_inner).insert(own(key), value.clone());
    value
}

impl Names {
    /// An empty cache.
    pub fn new() -> Names {
        Names::default()
    }

    /// The name of a user.
    pub fn user(&self, uid: u32) -> Option<Arc<[u8]>> {
        cached(&self.users, &uid, |uid| *uid, |uid| user_name(*uid))
    }

    /// The name of a group.
    pub fn group(&self, gid: u32) -> Option<Arc<[u8]>> {
        cached(&self.groups, &gid, |gid| *gid, |gid| group_name(*gid))
    }

    /// The number of a user.
    pub fn uid(&self, name: &[u8]) -> Option<u32> {
        cached(&self.uids, name, |name| name.into(), user_number)
    }

    /// The number of a group.
    pub fn gid(&self, name: &[u8]) -> Option<u32> {
        cached(&self.gids, name, |name| name.into(), group_number)
    }
}

/// Calls one of the `get…_r` functions with a buffer as long as it wants, and reads what it found while that is valid.
///
/// `ask(record, buffer, length, found)` is the call; it returns 0 or an error number.
fn look_up<R, T>(
    ask: impl Fn(*mut R, *mut libc::c_char, usize, *mut *mut R) -> libc::c_int,
    read: impl Fn(&R) -> T,
) -> Option<T> {
    let mut buf: Vec<libc::c_char> = vec![0; 2048];
    loop {
        let mut record = std::mem::MaybeUninit::<R>::uninit();
        let mut found: *mut R = std::ptr::null_mut();
        match ask(record.as_mut_ptr(), buf.as_mut_ptr(), buf.len(), &mut found) {
            // Groups with thousands of members need much; more than this is a fault of the source.
            libc::ERANGE if buf.len() < 16 << 20 => buf.resize(buf.len() * 4, 0),
            libc::EINTR => {}
            0 if !found.is_null() => {
                // SAFETY: the call succeeded and set `found`, so it filled `record`, whose pointers lead into `buf`.
                return Some(read(unsafe { record.assume_init_ref() }));
            }
            _ => return None,
        }
    }
}

fn bytes(text: *const libc::c_char) -> Arc<[u8]> {
    if text.is_null() {
        return Arc::default();
    }
    // SAFETY: a string of a record that `look_up` just read: ended by a NUL, alive as long as its buffer.
    unsafe { CStr::from_ptr(text) }.to_bytes().into()
}

fn user_name(uid: u32) -> Option<Arc<[u8]>> {
    // SAFETY: all pointers are valid for the call, and the length is that of the buffer.
    look_up(|r, b, n, f| unsafe { libc::getpwuid_r(uid, r, b, n, f) }, |r: &libc::passwd| bytes(r.pw_name))
        .filter(|n| !n.is_empty())
}

fn group_name(gid: u32) -> Option<Arc<[u8]>> {
    // SAFETY: as above.
    look_up(|r, b, n, f| unsafe { libc::getgrgid_r(gid, r, b, n, f) }, |r: &libc::group| bytes(r.gr_name))
        .filter(|n| !n.is_empty())
}

fn user_number(name: &[u8]) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    let name = name.as_ptr();
    // SAFETY: as above; the name outlives the call.
    look_up(|r, b, n, f| unsafe { libc::getpwnam_r(name, r, b, n, f) }, |r: &libc::passwd| r.pw_uid)
}

fn group_number(name: &[u8]) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    let name = name.as_ptr();
    // SAFETY: as above; the name outlives the call.
    look_up(|r, b, n, f| unsafe { libc::getgrnam_r(name, r, b, n, f) }, |r: &libc::group| r.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_an_odd_number_has_none() {
        let names = Names::new();
        for _ in 0..2 {
            assert_eq!(names.user(0).as_deref(), Some(b"root".as_slice()));
            assert_eq!(names.group(0).as_deref(), Some(b"root".as_slice()));
            assert_eq!(names.uid(b"root"), Some(0));
            assert_eq!(names.gid(b"root"), Some(0));
            assert_eq!(names.user(3_999_999_999), None);
            assert_eq!(names.group(3_999_999_999), None);
            assert_eq!(names.uid(b"no such user"), None);
            assert_eq!(names.gid(b"nul\0inside"), None);
        }
    }
}
