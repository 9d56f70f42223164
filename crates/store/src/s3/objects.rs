//! Single objects: read, written whole, removed.
//!
//! A put that is answered by 412 may have met itself: an earlier attempt was carried out and its answer was lost. Then
//! what is there is compared with what was to be written; our objects differ from each other by their random parts.

use std::sync::atomic::Ordering;

use super::Inner;
use super::client::Ask;
use super::http::Response;
use crate::{Action, Error, Kind, Put, Result, TOO_LONG, WHOLE_BYTES_MAX};

impl Inner {
    /// The length of an object, or `None` if there is none.
    pub(super) fn len(&self, name: &str) -> Result<Option<u64>> {
        let ask = Ask::new("HeadObject", "HEAD", name);
        match self.client.call(Action::Find, &ask, &mut 0)? {
            // An answer to a HEAD needn't say it (RFC 9110, 8.6).
            Ok(response) => match content_length(&response) {
                Some(len) => Ok(Some(len)),
                None => self.len_by_range(name, None),
            },
            Err(said) if said.is_missing() => Ok(None),
            // An answer to a HEAD can't say why.
            Err(said) if said.code.is_empty() => self.len_by_range(name, None),
            Err(said) => Err(self.client.refused(Action::Find, &ask, &said)),
        }
    }

    /// What is said of an object besides its bytes, or `None` if there is none.
    pub(super) fn head(&self, verb: Action, name: &str) -> Result<Option<Response>> {
        self.head_version(verb, name, None)
    }

    /// What is said of a version of an object besides its bytes, or of the one that is there now; `None` if there is
    /// none.
    pub(super) fn head_version(&self, verb: Action, name: &str, version: Option<&str>) -> Result<Option<Response>> {
        let query = version.map(|version| ("versionId", version));
        let ask = Ask { query: query.as_slice(), ..Ask::new("HeadObject", "HEAD", name) };
        let mut silent = 0;
        loop {
            match self.client.call(verb, &ask, &mut 0)? {
                Ok(response) => return Ok(Some(response)),
                Err(said) if said.is_missing() => return Ok(None),
                // An answer to a HEAD can't say why. One to a GET can, and a wrong clock, say, is put right by it.
                Err(said) if said.code.is_empty() && silent == 0 => match self.len_by_range(name, version) {
                    Err(error) if error.kind != Kind::Frozen => return Err(error),
                    Ok(None) => return Ok(None),
                    _ => silent += 1,
                },
                Err(said) => return Err(self.client.refused(verb, &ask, &said)),
            }
        }
    }

    fn len_by_range(&self, name: &str, version: Option<&str>) -> Result<Option<u64>> {
        let query = version.map(|version| ("versionId", version));
        let get = Ask::new(reading(version.is_some()), "GET", name);
        let ask = Ask { query: query.as_slice(), headers: &[("range", "bytes=0-0")], most: 1, ..get };
        match self.client.call(Action::Find, &ask, &mut 0)? {
            // A server may pass over the range.
            Ok(response) => match if response.status == 200 { content_length(&response) } else { total(&response) } {
                Some(len) => Ok(Some(len)),
                None => Err(self.because(Kind::Io, Action::Find, name, "the server doesn't say how long it is")),
            },
            Err(said) if said.is_missing() => Ok(None),
            Err(said) if said.status == 416 => Ok(Some(0)),
            Err(said) => Err(self.client.refused(Action::Find, &ask, &said)),
        }
    }

    /// The whole object.
    pub(super) fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.get_version(name, None)
    }

    /// A whole version of an object, or the one that is there now.
    pub(super) fn get_version(&self, name: &str, version: Option<&str>) -> Result<Vec<u8>> {
        let version = version.map(|version| ("versionId", version));
        let ask = Ask {
            query: version.as_slice(),
            most: WHOLE_BYTES_MAX as usize + 1,
            ..Ask::new(reading(version.is_some()), "GET", name)
        };
        let body = self.client.done(Action::Read, &ask)?.body;
        if body.len() as u64 > WHOLE_BYTES_MAX {
            return Err(self.because(Kind::Io, Action::Read, name, TOO_LONG));
        }
        Ok(body)
    }

    /// Fill `buf` from `offset`.
    pub(super) fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_version(name, None, offset, buf)
    }

    /// Fill `buf` from `offset` of a version of an object, or of the one that is there now.
    pub(super) fn read_version(&self, name: &str, version: Option<&str>, offset: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = offset.saturating_add(buf.len() as u64);
        let ends = |len: u64| Error::truncated(Action::Read, name, self.location(), wanted, len);
        if buf.is_empty() || offset == u64::MAX {
            return match self.len(name)? {
                Some(len) if len < wanted || offset == u64::MAX => Err(ends(len)),
                Some(_) => Ok(()),
                None => Err(self.because(Kind::Missing, Action::Read, name, "there is no such object")),
            };
        }
        let range = format!("bytes={offset}-{}", wanted - 1);
        let headers = [("range", range.as_str())];
        // A server that knows no ranges gives all, of which no more is taken than is needed.
        let most = usize::try_from(wanted).unwrap_or(usize::MAX);
        let version = version.map(|version| ("versionId", version));
        let is_old = version.is_some();
        let ask = Ask { query: version.as_slice(), headers: &headers, most, ..Ask::new(reading(is_old), "GET", name) };
        match self.client.call(Action::Read, &ask, &mut 0)? {
            Ok(response) if response.status == 206 => {
                if response.body.len() == buf.len() {
                    buf.copy_from_slice(&response.body);
                    return Ok(());
                }
                match total(&response) {
                    Some(len) if len < wanted => Err(ends(len)),
                    _ => Err(self.because(
                        Kind::Io,
                        Action::Read,
                        name,
                        "the server gave another range than was asked for",
                    )),
                }
            }
            Ok(response) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(response.body.len());
                match response.body.get(from..from + buf.len()).filter(|_| from as u64 == offset) {
                    Some(bytes) => {
                        buf.copy_from_slice(bytes);
                        Ok(())
                    }
                    None => Err(ends(response.body.len() as u64)),
                }
            }
            Err(said) if said.status == 416 => match self.len(name)? {
                Some(len) => Err(ends(len)),
                None => Err(self.because(Kind::Missing, Action::Read, name, "there is no such object")),
            },
            Err(said) => Err(self.client.refused(Action::Read, &ask, &said)),
        }
    }

    /// Write an object whole.
    pub(super) fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        let is_new = how == Put::Create;
        let is_atomic = is_new && self.tested()?;
        if is_new && !is_atomic && self.len(name)?.is_some() {
            return Err(self.taken(name));
        }
        let class = self.client.settings().class(name).map(|class| ("x-amz-storage-class", class));
        let mut retention = self.retention(name);
        let sum = self.sum(name, bytes);
        let has_sum = sum.is_some();
        retention.extend(sum);
        let retention = retention.iter().map(|(name, value)| (*name, value.as_str()));
        let condition = is_atomic.then_some(("if-none-match", "*"));
        let headers: Vec<_> = condition.into_iter().chain(class).chain(retention).collect();
        let ask = Ask { headers: &headers, body: bytes, ..Ask::new("PutObject", "PUT", name) };
        let mut tries = 0;
        let said = self.client.call(Action::Write, &ask, &mut tries);
        if tries > 1 {
            self.late.note(name);
        }
        match said? {
            Ok(_) => Ok(()),
            Err(said) if said.wants_sum() && !has_sum => {
                self.wants_sums.store(true, Ordering::Relaxed);
                self.put(name, bytes, how)
            }
            // Sent twice by us, or by whoever balances the load of several servers and had no answer from the first.
            Err(said) if said.is_taken() => match self.is_ours(name, bytes) {
                Ok(true) => {
                    self.late.note(name);
                    Ok(())
                }
                Ok(false) => Err(self.taken(name)),
                Err(error) if error.kind == Kind::Refused => {
                    Err(self.because(Kind::Exists, Action::Write, name, UNKNOWN))
                }
                Err(error) => Err(error),
            },
            Err(said) => Err(self.client.refused(Action::Write, &ask, &said)),
        }
    }

    fn is_ours(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        match self.get(name) {
            Ok(there) => Ok(there == bytes),
            // Gone again.
            Err(error) if error.kind == Kind::Missing => Ok(false),
            // In a class that can't be read at once: names of packs are random, so that nobody else has one of that
            // length.
            Err(error) if error.kind == Kind::Frozen => Ok(self.len(name)? == Some(bytes.len() as u64)),
            Err(error) => Err(error),
        }
    }

    /// Remove an object, or hear from S3 that there is none: of what isn't removed an index object would be missed, or
    /// a pack paid for.
    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let ask = Ask::new("DeleteObject", "DELETE", name);
        match self.client.call(Action::Delete, &ask, &mut 0)? {
            Err(said) if !said.is_missing() => Err(self.client.refused(Action::Delete, &ask, &said)),
            _ => Ok(()),
        }
    }
}

/// Of a name that is taken, where nobody can see by what.
const UNKNOWN: &str = "there is an object of that name already; it may be the very one that was to be written, sent twice on the way, but these \
                       credentials can't see that: it takes the right GetObject";

/// The right that it takes to read an object, or a version of it.
fn reading(is_version: bool) -> &'static str {
    if is_version { "GetObjectVersion" } else { "GetObject" }
}

fn content_length(response: &Response) -> Option<u64> {
    response.header("content-length").and_then(|len| len.parse().ok())
}

/// The length of the whole object, of which an answer gives a range.
fn total(response: &Response) -> Option<u64> {
    response.header("content-range")?.rsplit_once('/')?.1.trim().parse().ok()
}
