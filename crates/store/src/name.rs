//! The grammar of object names. Every store checks every name against it before it does anything else, so that no name
//! can lead out of a repository or into its temporary files.

use crate::{Action, Error, Kind, Result};

/// The longest segment in bytes: what the common file systems take.
pub const SEGMENT_BYTES_MAX: usize = 255;

/// The longest name in bytes: what S3 takes (1,024), less room for a prefix.
pub const NAME_BYTES_MAX: usize = 900;

/// The folder that stores keep for unfinished objects: never the first segment of a name.
pub const TMP: &str = "tmp";

/// Whether `segment` may be a part of a name.
pub fn is_segment(segment: &[u8]) -> bool {
    !segment.is_empty()
        && segment.len() <= SEGMENT_BYTES_MAX
        && segment[0] != b'.'
        && segment.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether `name` may name an object or, as a prefix, a folder.
pub fn is_name(name: &str) -> bool {
    let mut segments = name.split('/');
    name.len() <= NAME_BYTES_MAX
        && segments.clone().next() != Some(TMP)
        && segments.all(|segment| is_segment(segment.as_bytes()))
}

/// [`Kind::Refused`] unless `name` may name an object.
pub fn check(action: Action, name: &str, location: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    // Shown escaped: a refused name may hold anything.
    let shown = name.escape_debug().to_string();
    Err(Error::because(Kind::Refused, action, &shown, location, "this is no valid object name"))
}

/// As [`check`], for the folder of a listing: `""`, for all, is allowed too.
pub fn check_prefix(action: Action, prefix: &str, location: &str) -> Result<()> {
    if prefix.is_empty() { Ok(()) } else { check(action, prefix, location) }
}

/// Whether `name` is below the folder `prefix`.
pub fn is_below(name: &str, prefix: &str) -> bool {
    prefix.is_empty() || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar() {
        let longest = "a".repeat(SEGMENT_BYTES_MAX);
        for good in ["a", "packs/1f/1f00", "A.b_c-9", "a..b", "-", "tmpx/a", "a/tmp", longest.as_str()] {
            assert!(is_name(good), "{good}");
        }
        let too_long = "a".repeat(SEGMENT_BYTES_MAX + 1);
        let too_deep = "a/".repeat(NAME_BYTES_MAX / 2) + "a";
        let bad = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", ".a", "a/.b", "a b", "a\0", "ä"];
        for bad in bad.into_iter().chain(["a\\b", "tmp", "tmp/a", "a\n", "~", "a:b", &too_long, &too_deep]) {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn below_is_by_whole_segments() {
        assert!(is_below("packs/a", "packs") && is_below("packs/a", ""));
        assert!(!is_below("packs2/a", "packs") && !is_below("packs", "packs"));
    }
}
