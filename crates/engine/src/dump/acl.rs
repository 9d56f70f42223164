//! POSIX ACLs in words, as archives have them.

use std::fmt::Write;

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

/// An ACL, as the kernel gives it as an attribute (`linux/posix_acl_xattr.h`: a version, then entries of a tag, bits
/// and an id), as one line of text with ids in numbers; `None` if it is none.
pub(super) fn text(acl: &[u8]) -> Option<String> {
    let (version, entries) = acl.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let mut text = String::new();
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let (tag, bits) = (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]));
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (kind, id) = match tag {
            0x01 => ("user", None),
            0x02 => ("user", Some(id)),
            0x04 => ("group", None),
            0x08 => ("group", Some(id)),
            0x10 => ("mask", None),
            0x20 => ("other", None),
            _ => return None,
        };
        let bit = |bit: u16, letter| if bits & bit == 0 { '-' } else { letter };
        let id = id.map_or_else(String::new, |id| id.to_string());
        let separator = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{separator}{kind}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_in_words() {
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in
            [(1u16, 6u16, u32::MAX), (2, 7, 1000), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)]
        {
            acl.extend_from_slice(&tag.to_le_bytes());
            acl.extend_from_slice(&bits.to_le_bytes());
            acl.extend_from_slice(&id.to_le_bytes());
        }
        assert_eq!(text(&acl).unwrap(), "user::rw-,user:1000:rwx,group::---,mask::rw-,other::r--");
        assert_eq!(text(&acl[..acl.len() - 1]), None);
        assert_eq!(text(&[]), None);
        acl[4] = 3;
        assert_eq!(text(&acl), None);
    }
}
