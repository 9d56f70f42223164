//! Owners and groups of another machine mapped to this one: by name where this machine knows the name, else by number.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{PoisonError, RwLock};

/// Decides to which numbers recorded owners go. Looks each name up once; may be shared by threads.
///
/// Number 0 is root on every system and is never mapped.
#[derive(Debug)]
pub struct Owners {
    numeric: bool,
    users: RwLock<HashMap<Box<[u8]>, Option<u32>>>,
    groups: RwLock<HashMap<Box<[u8]>, Option<u32>>>,
}

impl Owners {
    /// With `numeric`, names are ignored.
    pub fn new(numeric: bool) -> Self {
        Owners { numeric, users: RwLock::default(), groups: RwLock::default() }
    }

    /// The local number of the user that had the number `uid` and, if that is known, this name.
    pub fn user(&self, uid: u32, name: Option<&[u8]>) -> u32 {
        self.map(uid, name, &self.users, local_user)
    }

    /// The local number of the group that had the number `gid` and, if that is known, this name.
    pub fn group(&self, gid: u32, name: Option<&[u8]>) -> u32 {
        self.map(gid, name, &self.groups, local_group)
    }

    fn map(
        &self,
        id: u32,
        name: Option<&[u8]>,
        known: &RwLock<HashMap<Box<[u8]>, Option<u32>>>,
        look_up: impl Fn(&[u8]) -> Option<u32>,
    ) -> u32 {
        let Some(name) = name.filter(|n| !self.numeric && id != 0 && !n.is_empty()) else { return id };
        if let Some(found) = known.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return found.unwrap_or(id);
        }
        // A name that is root's here must not make root the owner of what was not root's.
        let found = look_up(name).filter(|&local| local != 0);
        known.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), found);
        found.unwrap_or(id)
    }
}

fn local_user(name: &[u8]) -> Option<u32> {
    look_up(name, |name, buffer| {
        // SAFETY: an all-zero passwd is a valid value (null pointers, zero numbers).
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to live values, the length is the buffer's.
        let code =
            unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        (code, (!found.is_null()).then_some(entry.pw_uid))
    })
}

fn local_group(name: &[u8]) -> Option<u32> {
    look_up(name, |name, buffer| {
        // SAFETY: an all-zero group is a valid value (null pointers, zero numbers).
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to live values, the length is the buffer's.
        let code =
            unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        (code, (!found.is_null()).then_some(entry.gr_gid))
    })
}

fn look_up(name: &[u8], call: impl Fn(&CString, &mut [libc::c_char]) -> (i32, Option<u32>)) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; 4096];
    loop {
        match call(&name, &mut buffer) {
            // Groups with thousands of members.
            (libc::ERANGE, _) if buffer.len() < 16 << 20 => buffer.resize(buffer.len() * 4, 0),
            (libc::EINTR, _) => {}
            (0, found) => return found,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_where_known() {
        let owners = Owners::new(false);
        let nobody = local_user(b"nobody").expect("every system has nobody");
        assert_eq!(owners.user(12345, Some(b"nobody")), nobody);
        assert_eq!(owners.user(54321, Some(b"nobody")), nobody, "from the cache");
        assert_eq!(owners.user(12345, Some(b"no such user here")), 12345);
        assert_eq!(owners.user(12345, None), 12345);
        assert_eq!(owners.user(12345, Some(b"nul\0inside")), 12345);
        assert_eq!(owners.group(12345, Some(b"no such group")), 12345);
    }

    #[test]
    fn root_is_root_and_nobody_becomes_it() {
        let owners = Owners::new(false);
        assert_eq!(owners.user(0, Some(b"nobody")), 0);
        assert_eq!(owners.user(1000, Some(b"root")), 1000);
        assert_eq!(owners.group(1000, Some(b"root")), 1000);
    }

    #[test]
    fn by_number_if_asked() {
        let owners = Owners::new(true);
        assert_eq!(owners.user(12345, Some(b"nobody")), 12345);
    }
}
