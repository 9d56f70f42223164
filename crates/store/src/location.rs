//! Where a repository is, as a user writes it: a path, a URL, or a program that speaks SFTP.
//!
//! This is the door through which other kinds of storage come in: a variant of [`Location`], a line in
//! [`Location::parse`], and one each in [`open`] and [`create`].

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::around::Surroundings;
use crate::s3::{PastStore, S3Address, S3Store};
use crate::sftp::{Address, SftpStore};
use crate::{Action, Error, Kind, LocalStore, Result, Store};

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A folder on a file system of this machine.
    Local(PathBuf),
    /// A folder on another machine, by SFTP.
    Sftp(Address),
    /// A bucket of an object storage, or a part of one.
    S3(S3Address),
    /// What a program serves by SFTP on its standard input and output: a command for the shell.
    Program(String),
}

/// Why a text is no location. The messages are for the user who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// There is nothing.
    #[error("the repository's location is empty")]
    Empty,
    /// A kind of storage that is known and can't be used yet.
    #[error(
        "'{given}': {scheme} storage is not supported; storage that rclone reaches is written 'stdio:rclone serve sftp --stdio REMOTE:PATH'"
    )]
    NotYet {
        /// What the user wrote.
        given: String,
        /// The scheme, without its colon.
        scheme: String,
    },
    /// A scheme that nobody knows.
    #[error("'{given}': '{scheme}' is not a known kind of storage; a local folder of that name is written './{given}'")]
    Unknown {
        /// What the user wrote.
        given: String,
        /// The scheme, without its colon.
        scheme: String,
    },
    /// `user@host:path`, as scp takes it.
    #[error(
        "'{given}' looks like a folder on another machine, which is written sftp://user@host/path; a local folder of that name is written './{given}'"
    )]
    LikeScp {
        /// What the user wrote.
        given: String,
    },
    /// A URL that can't be followed.
    #[error("'{given}': {why}")]
    BadUrl {
        /// What the user wrote.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Schemes that will come, or that users of other programs are used to.
const NOT_YET: [&str; 9] = ["rest", "http", "https", "azure", "b2", "gs", "swift", "rclone", "webdav"];

impl Location {
    /// Read a location: a path, a URL `file:///path` or `sftp://user@host:port/path` (percent-encoded),
    /// `s3://bucket/prefix`, or `stdio:PROGRAM`.
    ///
    /// What begins like a URL of another scheme is an error, never a folder of that name; `./` before it makes it one.
    pub fn parse(given: &str) -> std::result::Result<Self, LocationError> {
        if given.is_empty() {
            return Err(LocationError::Empty);
        }
        let Some((scheme, rest)) = split_scheme(given) else {
            return match given.split_once(':') {
                Some((before, _)) if before.contains('@') && !before.contains('/') => {
                    Err(LocationError::LikeScp { given: without_password(given) })
                }
                _ => Ok(Self::Local(PathBuf::from(given))),
            };
        };
        let lower = scheme.to_ascii_lowercase();
        let read = match lower.as_str() {
            "file" => Some(file_url(rest).map(Self::Local)),
            "sftp" => Some(Address::parse(rest).map(Self::Sftp)),
            "s3" => Some(S3Address::parse(rest).map(Self::S3)),
            "ssh" => Some(Err("folders on other machines are reached by SFTP: write sftp://user@host/path")),
            "stdio" => Some(match rest.trim() {
                "" => Err("the program is missing: stdio:PROGRAM ARGUMENTS"),
                command => Ok(Self::Program(command.to_owned())),
            }),
            _ => None,
        };
        if let Some(read) = read {
            return read.map_err(|why| LocationError::BadUrl { given: without_password(given), why });
        }
        if NOT_YET.contains(&lower.as_str()) {
            return Err(LocationError::NotYet { given: without_password(given), scheme: lower });
        }
        if rest.starts_with("//") {
            return Err(LocationError::Unknown { given: without_password(given), scheme: scheme.to_owned() });
        }
        // As rsync and scp have it.
        Err(LocationError::LikeScp { given: without_password(given) })
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::Local(path)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Sftp(address) => address.fmt(f),
            Self::S3(address) => address.fmt(f),
            Self::Program(command) => write!(f, "stdio:{command}"),
        }
    }
}

/// Open the store of an existing repository. [`crate::Kind::Missing`] if there is nothing at `location`.
pub fn open(location: &Location, around: &Surroundings) -> Result<Box<dyn Store>> {
    if let Some(at) = around.as_of {
        return match location {
            Location::S3(address) => Ok(Box::new(PastStore::open(address, around, at)?)),
            other => Err(no_versions(other)),
        };
    }
    match location {
        Location::Local(path) => Ok(Box::new(LocalStore::open(path)?)),
        Location::S3(address) => Ok(Box::new(S3Store::open(address, around)?)),
        remote => Ok(Box::new(SftpStore::open(remote, around)?)),
    }
}

/// Make the store of a new repository. [`crate::Kind::Exists`] if there is something at `location`.
pub fn create(location: &Location, around: &Surroundings) -> Result<Box<dyn Store>> {
    match location {
        Location::Local(path) => Ok(Box::new(LocalStore::create(path)?)),
        Location::S3(address) => Ok(Box::new(S3Store::create(address, around)?)),
        remote => Ok(Box::new(SftpStore::create(remote, around)?)),
    }
}

fn no_versions(location: &Location) -> Error {
    let cause = "only a bucket keeps versions that show an earlier state";
    Error::because(Kind::Refused, Action::Open, "", &location.to_string(), cause)
}

/// `scheme` and what comes behind its colon, as RFC 3986 has it.
fn split_scheme(given: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = given.split_once(':')?;
    let of_scheme = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(of_scheme)).then_some((scheme, rest))
}

/// The path of a `file:` URL (RFC 8089), from what comes behind `file:`.
fn file_url(rest: &str) -> std::result::Result<PathBuf, &'static str> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let (host, _) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                return Err("a file URL names a folder on this machine: write three slashes, file:///path");
            }
            &rest[host.len()..]
        }
    };
    if !path.starts_with('/') {
        return Err("the path of a file URL is absolute: file:///path");
    }
    if path.contains(['?', '#']) {
        return Err("'?' and '#' are written %3F and %23 in a file URL");
    }
    percent_decode(path).map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

pub(crate) fn percent_decode(text: &str) -> std::result::Result<Vec<u8>, &'static str> {
    let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err("'%' is not followed by two hexadecimal digits"),
            },
            byte => byte,
        };
        if decoded == 0 {
            return Err("a path has no zero bytes");
        }
        bytes.push(decoded);
    }
    Ok(bytes)
}

/// A location with what stands between `user:` and `@host` taken out: messages end up in logs.
fn without_password(given: &str) -> String {
    let after_scheme = given.find("://").map_or(0, |at| at + 3);
    let authority_end = given[after_scheme..].find('/').map_or(given.len(), |at| after_scheme + at);
    let authority = &given[after_scheme..authority_end];
    match authority.rfind('@').and_then(|at| authority[..at].find(':').map(|colon| (colon, at))) {
        Some((colon, at)) if after_scheme > 0 => {
            format!("{}{}:***{}", &given[..after_scheme], &authority[..colon], &given[after_scheme + at..])
        }
        _ => given.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Put};

    fn path(given: &str) -> PathBuf {
        match Location::parse(given).unwrap() {
            Location::Local(path) => path,
            other => panic!("{given} is {other:?}"),
        }
    }

    #[test]
    fn paths_and_file_urls() {
        for (given, expected) in [
            ("/srv/repo", "/srv/repo"),
            ("repo", "repo"),
            ("./sftp:x", "./sftp:x"),
            ("./a:b", "./a:b"),
            ("./u@h:/x", "./u@h:/x"),
            ("dir/u@h:x", "dir/u@h:x"),
            ("100%", "100%"),
            ("file:///srv/repo", "/srv/repo"),
            ("FILE://localhost/srv/a%20b%2Fc", "/srv/a b/c"),
            ("file:/srv", "/srv"),
        ] {
            assert_eq!(path(given), PathBuf::from(expected), "{given}");
        }
        assert_eq!(path("file:///%ff%C3%A4").into_os_string().into_vec(), b"/\xff\xc3\xa4");
    }

    #[test]
    fn what_is_refused_says_why() {
        for (given, part) in [
            ("", "empty"),
            ("sftp:u@h:/x", "sftp://user@host/path"),
            ("sftp://u@h", "no folder"),
            ("ssh://u@h/x", "sftp://user@host/path"),
            ("stdio:", "program is missing"),
            ("s3:bucket/x", "s3://bucket"),
            ("S3://", "no bucket"),
            ("azure://x/y", "azure"),
            ("rest:http://h/", "rest"),
            ("https://h/x", "https"),
            ("foo://bar", "'foo' is not a known kind"),
            ("u@h:/x", "sftp://"),
            ("nas:x", "sftp://"),
            ("nas:x", "./nas:x"),
            ("file://host/x", "three slashes"),
            ("file:rel", "absolute"),
            ("file://", "absolute"),
            ("file:///a%2", "hexadecimal"),
            ("file:///a%zz", "hexadecimal"),
            ("file:///a%+1", "hexadecimal"),
            ("file:///a%00b", "zero"),
            ("file:///a?b", "%3F"),
        ] {
            let message = Location::parse(given).unwrap_err().to_string();
            assert!(message.contains(part), "{given}: {message}");
        }
    }

    #[test]
    fn passwords_are_not_repeated() {
        let message = Location::parse("https://me:secret@host/x").unwrap_err().to_string();
        assert!(message.contains("https://me:***@host/x") && !message.contains("secret"), "{message}");
        let message = Location::parse("sftp://me:secret@host/x").unwrap_err().to_string();
        assert!(message.contains("sftp://me:***@host/x") && !message.contains("secret"), "{message}");
        let message = Location::parse("s3://me:secret@bucket/x").unwrap_err().to_string();
        assert!(message.contains("s3://me:***@bucket/x") && !message.contains("secret"), "{message}");
        let message = Location::parse("s3:https://me:secret@host/bucket").unwrap_err().to_string();
        assert!(message.contains("me:***@host/bucket") && !message.contains("secret"), "{message}");
        let message = Location::parse("foo://me:se@cret@host").unwrap_err().to_string();
        assert!(!message.contains("cret"), "{message}");
    }

    #[test]
    fn places_that_are_not_here() {
        let location = Location::parse("sftp://u@h:2222/srv/repo").unwrap();
        assert!(matches!(&location, Location::Sftp(address) if address.port == Some(2222)));
        assert_eq!(location.to_string(), "sftp://u@h:2222/srv/repo");
        let location = Location::parse("S3://bucket/prefix/").unwrap();
        assert!(matches!(&location, Location::S3(address) if address.prefix == "prefix"));
        assert_eq!(location.to_string(), "s3://bucket/prefix");
        let location = Location::parse("stdio:rclone serve sftp --stdio there:").unwrap();
        assert_eq!(location, Location::Program("rclone serve sftp --stdio there:".into()));
        assert_eq!(location.to_string(), "stdio:rclone serve sftp --stdio there:");
    }

    #[test]
    fn create_then_open() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::from(dir.path().join("repo"));
        let around = Surroundings::default();
        assert_eq!(open(&location, &around).err().map(|e| e.kind), Some(Kind::Missing));
        create(&location, &around).unwrap().put("a", b"1", Put::Create).unwrap();
        assert_eq!(create(&location, &around).err().map(|e| e.kind), Some(Kind::Exists));
        assert_eq!(open(&location, &around).unwrap().get("a").unwrap(), b"1");
    }
}
