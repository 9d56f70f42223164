//! A bucket that keeps versions, as it was at a time: what was removed or replaced since is there, what came since is
//! not.
//!
//! All versions of all our keys are listed once. Of each key the one counts that was the newest at that time, and none
//! if that was the mark of a removal. By the server's clock, to the second; an object that went up in parts has the
//! time at which its upload began, on most servers: a pack may be there a little before anything names it, which is no
//! harm.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::client::Ask;
use super::list::{PAGE_BYTES_MAX, PAGES_MAX};
use super::{Inner, S3Address, S3Store, once, time, xml};
use crate::ahead::{self, Ahead, Asked};
use crate::around::Surroundings;
use crate::lock::lock;
use crate::name;
use crate::{Action, Error, Haste, Kind, Listed, Put, Result, Soon, Store, Thaw, Upload};

/// What a server without versions calls the only one.
const ONLY: &str = "null";

/// The store of a bucket as it was. It can't be changed.
pub struct PastStore {
    past: Arc<Past>,
}

struct Past {
    bucket: Arc<Inner>,
    /// In seconds since 1970.
    at: i64,
    /// By their names; once somebody has asked.
    found: Mutex<Option<Arc<Versions>>>,
    ahead: Ahead,
}

type Versions = BTreeMap<String, Version>;

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    id: String,
    len: u64,
}

/// A version, or the mark of a removal, as it is listed.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    key: String,
    /// Seconds, and what stands behind them.
    since: (i64, String),
    /// `None`: a mark.
    version: Option<Version>,
}

impl PastStore {
    /// Whatever was there at `at`, in seconds since 1970. Asks the server for nothing.
    pub fn open(address: &S3Address, around: &Surroundings, at: i64) -> Result<Self> {
        let bucket = S3Store::open(address, around)?.inner;
        Ok(PastStore { past: Arc::new(Past { bucket, at, found: Mutex::default(), ahead: Ahead::default() }) })
    }

    fn refuse<T>(&self, action: Action, name: &str) -> Result<T> {
        let cause =
            format!("the repository is shown as it was at {}, and can't be changed", time::iso_of(self.past.at));
        Err(self.past.bucket.because(Kind::Refused, action, name, &cause))
    }
}

impl Past {
    fn location(&self) -> &str {
        self.bucket.location()
    }

    fn versions(&self) -> Result<Arc<Versions>> {
        let mut found = lock(&self.found);
        if let Some(found) = &*found {
            return Ok(found.clone());
        }
        let versions = Arc::new(self.sweep()?);
        *found = Some(versions.clone());
        Ok(versions)
    }

    /// Look at all versions that there are.
    fn sweep(&self) -> Result<Versions> {
        let base = &self.bucket.client.settings().base;
        // The newest of each key that is old enough, so far.
        let mut newest: BTreeMap<String, Entry> = BTreeMap::new();
        let (mut is_kept, mut is_any) = (false, false);
        self.bucket.pages_of_versions(&mut |entry| {
            let is_ours = |name: &&str| name::is_name(name) || *name == once::STONE;
            let Some(name) = entry.key.strip_prefix(base.as_str()).filter(is_ours) else { return };
            is_any = true;
            is_kept |= entry.version.as_ref().is_none_or(|version| version.id != ONLY);
            // Of several of one moment the first that is listed is the newest.
            if entry.since.0 <= self.at && newest.get(name).is_none_or(|known| known.since < entry.since) {
                newest.insert(name.to_owned(), entry);
            }
        })?;
        if is_any && !is_kept {
            self.bucket.client.tell(
                "the bucket keeps no versions: what was removed or replaced since can't be shown; only what was added since is left out",
            );
        }
        Ok(newest.into_iter().filter_map(|(name, entry)| Some((name, entry.version?))).collect())
    }

    fn version(&self, verb: Action, name: &str) -> Result<Version> {
        let missing = || self.bucket.because(Kind::Missing, verb, name, "there was no such object then");
        self.versions()?.get(name).cloned().ok_or_else(missing)
    }
}

impl Inner {
    /// Each version of each key of ours, as they are listed.
    fn pages_of_versions(&self, each: &mut dyn FnMut(Entry)) -> Result<()> {
        let odd = |cause: &str| self.because(Kind::Io, Action::List, "", cause);
        let mut after: Option<(String, String)> = None;
        for _ in 0..PAGES_MAX {
            let mut query = vec![("versions", ""), ("prefix", self.client.settings().base.as_str())];
            if let Some((key, id)) = &after {
                query.push(("key-marker", key));
                query.extend((!id.is_empty()).then_some(("version-id-marker", id.as_str())));
            }
            let ask =
                Ask { name: None, query: &query, most: PAGE_BYTES_MAX, ..Ask::new("ListBucketVersions", "GET", "") };
            let response = self.client.done(Action::List, &ask)?;
            let text = String::from_utf8_lossy(&response.body);
            let page = xml::element(&text, "ListVersionsResult")
                .ok_or_else(|| odd("the server doesn't list versions: does it support them?"))?;
            for (which, entry) in xml::any_of(page, &["Version", "DeleteMarker"]) {
                each(
                    read(entry, which == 0)
                        .ok_or_else(|| odd("the server lists a version without its name, id, time or length"))?,
                );
            }
            if xml::text(page, "IsTruncated").is_none_or(|more| more.trim() != "true") {
                return Ok(());
            }
            let next = xml::text(page, "NextKeyMarker").filter(|key| !key.is_empty());
            let next = next.map(|key| (key, xml::text(page, "NextVersionIdMarker").unwrap_or_default()));
            if next.is_none() || next == after {
                return Err(odd("the server cuts its listing short and doesn't say how it goes on"));
            }
            after = next;
        }
        Err(odd("the server's listing has no end"))
    }
}

fn read(entry: &str, is_version: bool) -> Option<Entry> {
    let field = |name: &str| xml::text(entry, name).map(|text| text.trim().to_owned());
    let since = field("LastModified")?;
    let version = match is_version {
        true => Some(Version { id: field("VersionId")?, len: field("Size")?.parse().ok()? }),
        false => None,
    };
    Some(Entry { key: xml::text(entry, "Key")?, since: (time::iso(&since)?, fraction(&since)), version })
}

/// The digits behind the seconds, to be compared.
fn fraction(since: &str) -> String {
    let digits = since.split_once('.').map_or("", |(_, digits)| digits);
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().trim_end_matches('0').to_owned()
}

impl Asked for Past {
    fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        let version = self.version(Action::Read, name)?;
        self.bucket.get_version(name, Some(&version.id))
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.versions()?.get(name).map(|version| version.len))
    }

    fn list(&self, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let versions = self.versions()?;
        let below = versions.iter().filter(|(name, _)| name::is_name(name) && name::is_below(name, folder));
        below.for_each(|(name, version)| each(Listed { name: name.clone(), len: version.len }));
        Ok(())
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let version = self.version(Action::Read, name)?;
        let wanted = offset.saturating_add(buf.len() as u64);
        if wanted > version.len {
            return Err(Error::truncated(Action::Read, name, self.location(), wanted, version.len));
        }
        if buf.is_empty() {
            return Ok(());
        }
        self.bucket.read_version(name, Some(&version.id), offset, buf)
    }
}

impl Store for PastStore {
    fn location(&self) -> String {
        self.past.location().to_owned()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn creates_atomically(&self) -> Result<bool> {
        match Asked::get(&*self.past, once::STONE) {
            Ok(said) => Ok(once::is_honoured(Some(&said))),
            Err(e) if e.kind == Kind::Missing => Ok(once::is_honoured(None)),
            Err(e) => Err(e),
        }
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        name::check_prefix(Action::List, prefix, self.past.location())?;
        self.past.list(prefix, each)
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        name::check(Action::Find, name, self.past.location())?;
        self.past.len(name)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        name::check(Action::Read, name, self.past.location())?;
        self.past.ahead.object(name).map_or_else(|| self.past.get(name), Ok)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        name::check(Action::Read, name, self.past.location())?;
        ahead::read(&*self.past, name, offset, buf)
    }

    fn freezes(&self) -> bool {
        true
    }

    fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        name::check(Action::Thaw, name, self.past.location())?;
        let version = self.past.version(Action::Thaw, name)?;
        self.past.bucket.thaw_version(name, Some(&version.id), haste)
    }

    fn expect(&self, soon: Soon<'_>) {
        match soon {
            Soon::Range { name, offset, len } if name::is_name(name) => ahead::range(&self.past, name, offset, len),
            Soon::Object(name) if name::is_name(name) => ahead::object(&self.past, name),
            // All lengths and listings are known, and nothing is going to be put.
            _ => {}
        }
    }

    fn put(&self, name: &str, _bytes: &[u8], _how: Put) -> Result<()> {
        self.refuse(Action::Write, name)
    }

    fn upload(&self, name: &str, _len_hint: u64) -> Result<Box<dyn Upload>> {
        self.refuse(Action::Write, name)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.refuse(Action::Delete, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_as_servers_list_them() {
        let text = "<Key>p/a&amp;b</Key><VersionId>x=</VersionId><LastModified>2026-11-22T07:00:00.120Z</LastModified><Size>5</Size>";
        let since = (1_795_330_800, "12".to_owned());
        let version = Version { id: "x=".into(), len: 5 };
        assert_eq!(read(text, true), Some(Entry { key: "p/a&b".into(), since: since.clone(), version: Some(version) }));
        assert_eq!(read(text, false), Some(Entry { key: "p/a&b".into(), since, version: None }));
        for field in ["Key", "VersionId", "LastModified", "Size"] {
            assert_eq!(read(&text.replace(field, "Other"), true), None, "{field}");
        }
        assert_eq!(read(&text.replace('5', "many"), true), None);
    }

    #[test]
    fn moments_within_a_second() {
        let at = |text: &str| (time::iso(text).unwrap(), fraction(text));
        let in_order =
            ["2026-11-22T07:00:00Z", "2026-11-22T07:00:00.05Z", "2026-11-22T07:00:00.1Z", "2026-11-22T07:00:01.000Z"];
        assert!(in_order.is_sorted_by_key(|text| at(text)));
        assert_eq!(at("2026-11-22T07:00:00.100Z"), at("2026-11-22T07:00:00.1+00:00"));
        assert_eq!(at("2026-11-22T07:00:00.000Z"), at("2026-11-22T07:00:00Z"));
    }
}
