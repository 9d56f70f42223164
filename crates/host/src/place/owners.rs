//! Owners and groups of another machine mapped to this one: by name where this machine knows the name, else by number.

use crate::names::Names;

/// Decides to which numbers recorded owners go. Looks each name up once; may be shared by threads.
///
/// Number 0 is root on every system and is never mapped.
#[derive(Debug)]
pub struct Owners {
    numeric: bool,
    names: Names,
}

impl Owners {
    /// With `numeric`, names are ignored.
    pub fn new(numeric: bool) -> Self {
        Owners { numeric, names: Names::new() }
    }

    /// The local number of the user that had the number `uid` and, if that is known, this name.
    pub fn user(&self, uid: u32, name: Option<&[u8]>) -> u32 {
        self.map(uid, name, Names::uid)
    }

    /// The local number of the group that had the number `gid` and, if that is known, this name.
    pub fn group(&self, gid: u32, name: Option<&[u8]>) -> u32 {
        self.map(gid, name, Names::gid)
    }

    fn map(&self, id: u32, name: Option<&[u8]>, look_up: impl Fn(&Names, &[u8]) -> Option<u32>) -> u32 {
        let Some(name) = name.filter(|n| !self.numeric && id != 0 && !n.is_empty()) else { return id };
        // A name that is root's here must not make root the owner of what was not root's.
        look_up(&self.names, name).filter(|&local| local != 0).unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_where_known() {
        let owners = Owners::new(false);
        let nobody = Names::new().uid(b"nobody").expect("every system has nobody");
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
