//! What to save: paths from the command line, from files of paths, and from the profile, made absolute and plain.

use crate::exit::{Failure, Result};
use crate::place;
use crate::render::path::shown;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The path as a source: absolute, without `.`, doubled slashes and, where it isn't a symlink, without a slash at its
/// end; so that a source has one spelling and is recognised the next time.
///
/// # Errors
/// It is empty, or there is no working directory to start from.
pub fn absolute(path: &OsStr) -> Result<Vec<u8>> {
    if path.is_empty() {
        return Err(Failure::usage("one of the paths is empty"));
    }
    if path.as_bytes().contains(&0) {
        return Err(Failure::usage(format!("'{}' contains a zero byte, which no path can", shown(path.as_bytes()))));
    }
    let absolute = std::path::absolute(path)
        .map_err(|e| Failure::failed(format!("cannot tell the working directory: {}", crate::exit::plain(&e))))?;
    let trailing = path.as_bytes().ends_with(b"/") || path.as_bytes().ends_with(b"/.");
    let mut parts: Vec<&OsStr> = Vec::new();
    let mut resolved;
    let mut components = absolute.components();
    // Behind a symlink `..` is the parent of its target: only the system can tell.
    if let Some(up) =
        absolute.components().collect::<Vec<_>>().iter().rposition(|c| *c == std::path::Component::ParentDir)
    {
        let upward: PathBuf = components.by_ref().take(up + 1).collect();
        resolved = upward.canonicalize().map_err(Failure::file("find", &upward))?;
        resolved = resolved.join(components.as_path());
    } else {
        resolved = absolute.clone();
    }
    parts.extend(resolved.iter().filter(|p| *p != "/"));
    let mut plain = Vec::new();
    for part in parts {
        plain.push(b'/');
        plain.extend_from_slice(part.as_bytes());
    }
    if plain.is_empty() {
        plain.push(b'/');
    } else if trailing && Path::new(OsStr::from_bytes(&plain)).is_symlink() {
        // The slash says that what it points to is meant.
        plain.push(b'/');
    }
    Ok(plain)
}

/// Of what is not what it leads to: what to do who wants that. A folder and a file are what they are.
pub fn saves_itself_alone(path: &[u8]) -> Option<&'static str> {
    let path = Path::new(OsStr::from_bytes(path));
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return None;
    }
    let kind = path.symlink_metadata().ok()?.file_type();
    match () {
        () if kind.is_symlink() && path.is_dir() => {
            Some("a symbolic link: only the link is saved; to save the folder that it leads to, add a '/' at the end")
        }
        () if kind.is_symlink() => Some("a symbolic link: only the link is saved, not what it leads to"),
        () if kind.is_block_device() || kind.is_char_device() => Some(
            "a device: only its node is saved; to save its contents, give them as a stream: 'drumlin backup --stdin NAME < DEVICE'",
        ),
        () => None,
    }
}

/// Files of paths, as `--files-from` and its kin name them.
#[derive(Clone, Copy)]
pub enum Lines {
    /// One shell pattern a line; `#` begins a comment.
    Patterns,
    /// One path a line, as it is.
    Verbatim,
    /// Each path ended by a zero byte.
    Raw,
}

/// The paths that a file names. `missing` hears of patterns that match nothing.
///
/// # Errors
/// The file can't be read.
pub fn from_file(file: &Path, lines: Lines, missing: &mut dyn FnMut(&str)) -> Result<Vec<OsString>> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(Failure::file("read paths from", Path::new("standard input")))?;
    } else {
        bytes = std::fs::read(file).map_err(Failure::file("read paths from", file))?;
    }
    let end = if matches!(lines, Lines::Raw) { 0 } else { b'\n' };
    let mut paths = Vec::new();
    for line in bytes.split(|b| *b == end) {
        match lines {
            Lines::Raw | Lines::Verbatim if line.is_empty() => {}
            Lines::Raw | Lines::Verbatim => paths.push(OsString::from_vec(line.to_vec())),
            Lines::Patterns => {
                let line = line.trim_ascii();
                if line.is_empty() || line.starts_with(b"#") {
                    continue;
                }
                if !glob::is_pattern(line) {
                    paths.push(OsString::from_vec(line.to_vec()));
                    continue;
                }
                let found = glob::expand(Path::new(OsStr::from_bytes(line)));
                if found.is_empty() {
                    missing(&shown(line));
                }
                paths.extend(found.into_iter().map(PathBuf::into_os_string));
            }
        }
    }
    Ok(paths)
}

/// The sources of a profile.
///
/// # Errors
/// There is no home folder to find them in.
pub fn of_profile(sources: &[String]) -> Result<Vec<OsString>> {
    sources.iter().map(|s| place::expand(s).map(PathBuf::into_os_string)).collect()
}

mod glob {
    //! Patterns of the shell, expanded: `*`, `?` and `[…]` within a name. Names that begin with a dot are matched only
    //! by patterns that do.

    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    pub fn is_pattern(text: &[u8]) -> bool {
        text.iter().any(|b| matches!(b, b'*' | b'?' | b'[' | b'\\'))
    }

    /// What there is that matches, sorted.
    pub fn expand(pattern: &Path) -> Vec<PathBuf> {
        let mut found = vec![PathBuf::new()];
        for part in pattern.components() {
            let part = part.as_os_str();
            let mut next = Vec::new();
            for base in found {
                if !is_pattern(part.as_bytes()) {
                    next.push(base.join(part));
                    continue;
                }
                let dir = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
                let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name());
                let hidden = |name: &[u8]| name.starts_with(b".") && !part.as_bytes().starts_with(b".");
                let fits =
                    |name: &&std::ffi::OsString| !hidden(name.as_bytes()) && matches(part.as_bytes(), name.as_bytes());
                let mut names: Vec<_> = names.filter(|n| fits(&n)).collect();
                names.sort();
                next.extend(names.into_iter().map(|n| base.join(n)));
            }
            found = next;
        }
        found.retain(|p| p.symlink_metadata().is_ok());
        found
    }

    /// Whether a name matches. Linear but for the last star, to which it goes back.
    pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
        let (mut p, mut n) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        loop {
            if p < pattern.len() && pattern[p] == b'*' {
                star = Some((p, n));
                p += 1;
                continue;
            }
            if n == name.len() && p == pattern.len() {
                return true;
            }
            if n < name.len()
                && p < pattern.len()
                && let Some(len) = one(&pattern[p..], name[n])
            {
                p += len;
                n += 1;
                continue;
            }
            match star {
                Some((at, from)) if from < name.len() => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                _ => return false,
            }
        }
    }

    /// The length of the pattern for one byte, if it matches.
    fn one(pattern: &[u8], byte: u8) -> Option<usize> {
        match pattern[0] {
            b'?' => Some(1),
            b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
            b'[' => {
                let not = matches!(pattern.get(1), Some(b'!' | b'^'));
                let start = if not { 2 } else { 1 };
                // A bracket that stands first is one of the set.
                let end = start + 1 + pattern.get(start + 1..)?.iter().position(|b| *b == b']')?;
                let set = &pattern[start..end];
                let mut found = false;
                let mut at = 0;
                while at < set.len() {
                    if at + 2 < set.len() && set[at + 1] == b'-' {
                        found |= (set[at]..=set[at + 2]).contains(&byte);
                        at += 3;
                    } else {
                        found |= set[at] == byte;
                        at += 1;
                    }
                }
                (found != not).then_some(end + 1)
            }
            literal => (literal == byte).then_some(1),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn names_match_as_the_shell_has_it() {
            for (pattern, name, fits) in [
                ("*.c", "a.c", true),
                ("*.c", "a.cc", false),
                ("*a*b", "xaybzb", true),
                ("a?c", "abc", true),
                ("a?c", "ac", false),
                ("[a-c]x", "bx", true),
                ("[!a-c]x", "bx", false),
                ("[]]", "]", true),
                ("[-a]", "-", true),
                ("\\*", "*", true),
                ("\\*", "x", false),
                ("*", "", true),
                ("", "", true),
                ("[", "[", false),
                ("a*a*a*a*a*b", &"a".repeat(2000), false),
            ] {
                assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
            }
        }

        #[test]
        fn what_is_there_is_found() {
            let dir = tempfile::tempdir().unwrap();
            for name in ["a1", "a2", ".a3", "b"] {
                std::fs::create_dir_all(dir.path().join(name).join("x")).unwrap();
            }
            let found = |p: &str| expand(&dir.path().join(p)).len();
            assert_eq!(
                [found("a*"), found("*"), found(".*"), found("*/x"), found("*/y"), found("[ab]?")],
                [2, 3, 1, 3, 0, 2]
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_one_spelling() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::os::unix::fs::symlink("d", root.join("l")).unwrap();
        let of = |p: &str| String::from_utf8(absolute(root.join(p).as_os_str()).unwrap()).unwrap();
        let is = |p: &str| root.join(p).to_str().unwrap().to_owned();
        assert_eq!([of("d"), of("d/"), of("./d//."), of("l/../d")], [is("d"), is("d"), is("d"), is("d")]);
        assert_eq!([of("l"), of("l/")], [is("l"), is("l") + "/"], "the slash makes it what it points to");
        assert_eq!(absolute(OsStr::new("/")).unwrap(), b"/");
        assert_eq!(absolute(OsStr::new("//")).unwrap(), b"/");
        assert_eq!(
            absolute(OsStr::new("x")).unwrap(),
            [std::env::current_dir().unwrap().as_os_str().as_bytes(), b"/x"].concat()
        );
        assert!(absolute(OsStr::new("")).is_err() && absolute(OsStr::new("/no-such-dir-here/../x")).is_err());
        assert_eq!(absolute(OsStr::from_bytes(b"/a\xff")).unwrap(), b"/a\xff");
    }

    #[test]
    fn files_of_paths() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one.c"), "").unwrap();
        let list = dir.path().join("list");
        let text = format!("# comment\n\n  /plain  \n{0}/*.c\n{0}/*.z\n", dir.path().display());
        std::fs::write(&list, &text).unwrap();
        let mut missing = Vec::new();
        let paths = from_file(&list, Lines::Patterns, &mut |m| missing.push(m.to_owned())).unwrap();
        assert_eq!(paths, [OsString::from("/plain"), dir.path().join("one.c").into()]);
        assert_eq!(missing, [format!("{}/*.z", dir.path().display())]);
        let paths = from_file(&list, Lines::Verbatim, &mut |_| {}).unwrap();
        assert_eq!((paths.len(), paths[0].to_str()), (4, Some("# comment")));
        std::fs::write(&list, "/a\r\n/b").unwrap();
        assert_eq!(from_file(&list, Lines::Verbatim, &mut |_| {}).unwrap(), ["/a\r", "/b"]);
        std::fs::write(&list, b"/a\nb\0/\xff\0").unwrap();
        let paths = from_file(&list, Lines::Raw, &mut |_| {}).unwrap();
        assert_eq!(paths, [OsString::from("/a\nb"), OsString::from_vec(b"/\xff".to_vec())]);
    }
}
