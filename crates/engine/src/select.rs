//! Which snapshot a user means, and which path in it.
//!
//! A snapshot is named by the start of its id or as `latest` (`latest~2`: two before it), and a folder in it after a
//! colon, as restic has it: `latest:/home/u`. `latest` never means a snapshot that nobody known here has signed, nor a
//! partial one: the storage could make up the former, and the latter lacks files that a restore would silently miss.

use crate::forget::FUTURE_SECONDS;
use crate::legible::legible;
use crate::{Error, Result};
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{self, DIR_BYTES_MAX};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Index, Repository, SnapshotInfo, Trust};
use std::fmt;
use std::sync::Arc;

/// Blocks that a reader of trees keeps: enough for the leaf, the body and the inner nodes at hand.
const TREE_CACHE_BYTES: usize = 4 << 20;

/// A reader for the operations that only read, and of contents but a part.
pub fn open_reader(repository: &Repository, cache: &Arc<Cache>) -> Result<Arc<Reader>> {
    let index = Arc::new(Index::open_lean(repository, cache.clone())?);
    cache.tidy(&index);
    Ok(Arc::new(
        Reader::new(repository.clone(), index, cache.clone(), TREE_CACHE_BYTES).with_copies().with_told_tables(),
    ))
}

/// Which snapshots count. What is empty excludes none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Taken on one of these machines.
    pub hosts: Vec<String>,
    /// With all tags of at least one of these sets. The empty set stands for snapshots without tags.
    pub tags: Vec<Vec<String>>,
    /// Of all of these sources, and perhaps more.
    pub paths: Vec<SourceName>,
    /// Of no other paths than these.
    pub exactly: bool,
    /// Taken at this moment or later: seconds since 1970 and nanoseconds.
    pub after: Option<(i64, u32)>,
    /// Taken earlier than this.
    pub before: Option<(i64, u32)>,
}

/// How a user names a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceName {
    /// A file or a folder.
    pub path: Vec<u8>,
    /// A stream of this name is meant as well.
    pub stream: Option<Vec<u8>>,
}

impl From<Vec<u8>> for SourceName {
    fn from(path: Vec<u8>) -> Self {
        SourceName { path, stream: None }
    }
}

impl SourceName {
    /// Whether this source of a snapshot is meant.
    fn means(&self, source: &[u8]) -> bool {
        let plain = |path: &[u8]| path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        source[..plain(source)] == self.path[..plain(&self.path)] || self.stream.as_deref() == Some(source)
    }
}

impl SnapshotFilter {
    /// Whether a snapshot counts.
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        let has_path = |name: &SourceName| snapshot.paths.iter().any(|source| name.means(source));
        let has_set = |set: &Vec<String>| match set.is_empty() {
            true => snapshot.tags.is_empty(),
            false => set.iter().all(|tag| snapshot.tags.contains(tag)),
        };
        (self.hosts.is_empty() || self.hosts.contains(&snapshot.host))
            && (self.tags.is_empty() || self.tags.iter().any(has_set))
            && self.paths.iter().all(has_path)
            && self.after.is_none_or(|after| snapshot.time >= after)
            && self.before.is_none_or(|before| snapshot.time < before)
            && (!self.exactly || snapshot.paths.iter().all(|source| self.paths.iter().any(|name| name.means(source))))
    }

    /// Whether a snapshot has some of the sources, but not all of them or others as well.
    pub fn nearly_matches(&self, snapshot: &Snapshot) -> bool {
        let any = SnapshotFilter { paths: Vec::new(), exactly: false, ..self.clone() };
        let shares = snapshot.paths.iter().any(|source| self.paths.iter().any(|name| name.means(source)));
        shares && any.matches(snapshot) && !self.matches(snapshot)
    }

    /// Those that count, in the order given.
    pub fn select(&self, snapshots: &[SnapshotInfo]) -> Vec<SnapshotInfo> {
        snapshots.iter().filter(|info| self.matches(&info.snapshot)).cloned().collect()
    }
}

/// What a user named.
#[derive(Clone, Debug)]
pub struct SnapshotSpec {
    /// The snapshot.
    pub snapshot: SnapshotInfo,
    /// The folder in it; the root unless one was given.
    pub subfolder: TreePath,
    /// The newest of those that `latest` passes over, as their time is still to come.
    pub from_the_future: Option<SnapshotInfo>,
}

/// The snapshot that `spec` names among `snapshots` (oldest first, as [`Repository::snapshots`] gives them).
///
/// The filter narrows `latest`; an id is looked for among all. `now` is in seconds since 1970: a snapshot that is ahead
/// of it by more than a day, made where a clock was wrong, would be the latest for years, and isn't as long as there
/// are others.
///
/// # Errors
/// [`Error::NoSnapshot`] if none fits, or several do: these are listed.
pub fn find_snapshot(
    snapshots: &[SnapshotInfo],
    spec: impl AsRef<[u8]>,
    filter: &SnapshotFilter,
    now: i64,
) -> Result<SnapshotSpec> {
    let spec = spec.as_ref();
    let (name, subfolder) = match spec.iter().position(|b| *b == b':') {
        Some(at) => (&spec[..at], TreePath::parse(&spec[at + 1..])?),
        None => (spec, TreePath::root()),
    };
    let name = std::str::from_utf8(name)
        .map_err(|_| Error::NoSnapshot("a snapshot is named 'latest', 'latest~N' or by the start of its id".into()))?;
    let (snapshot, from_the_future) = match name.strip_prefix("latest") {
        Some("") => latest(snapshots, 0, filter, now)?,
        Some(rest) => match rest.strip_prefix('~').map(str::parse) {
            Some(Ok(back)) => latest(snapshots, back, filter, now)?,
            _ => return Err(Error::NoSnapshot(format!("'{name}' is not a snapshot; did you mean latest~1?"))),
        },
        None => (by_prefix(snapshots, name)?, None),
    };
    Ok(SnapshotSpec { snapshot, subfolder, from_the_future })
}

/// The snapshot `back` places before the latest, and the newest one that is passed over because its time is in the
/// future.
fn latest(
    snapshots: &[SnapshotInfo],
    back: usize,
    filter: &SnapshotFilter,
    now: i64,
) -> Result<(SnapshotInfo, Option<SnapshotInfo>)> {
    let fits: Vec<_> = snapshots.iter().filter(|info| filter.matches(&info.snapshot)).collect();
    let counts = |info: &SnapshotInfo| matches!(info.trust, Trust::Signed(_)) && info.snapshot.partial.is_none();
    let (come, mut counted): (Vec<&SnapshotInfo>, Vec<_>) = fits
        .iter()
        .filter(|info| counts(info))
        .partition(|info| info.snapshot.time.0 > now.saturating_add(FUTURE_SECONDS));
    let mut from_the_future = come.last().map(|info| (*info).clone());
    if counted.is_empty() {
        // It is this clock that is wrong, most likely.
        (counted, from_the_future) = (come, None);
    }
    if let Some(found) = counted.iter().rev().nth(back) {
        return Ok(((*found).clone(), from_the_future));
    }
    let count = counted.len();
    let is_one = count < 2;
    let narrowed = match () {
        () if *filter == SnapshotFilter::default() => "",
        () if is_one => " that fits what was asked for (host, tags, paths, times)",
        () => " that fit what was asked for (host, tags, paths, times)",
    };
    let mut text = match (count, fits.is_empty()) {
        (0, true) => format!("there is no snapshot{narrowed}"),
        (0, false) => format!(
            "there is no snapshot{narrowed} that is whole and signed by a known key; name one of these by its id:"
        ),
        (1, _) => format!("there is only one snapshot{narrowed}"),
        _ => format!("there are only {count} snapshots{narrowed}"),
    };
    if count == 0 {
        list_candidates(&mut text, fits.iter().rev().copied());
    }
    Err(Error::NoSnapshot(text))
}

fn by_prefix(snapshots: &[SnapshotInfo], prefix: &str) -> Result<SnapshotInfo> {
    if prefix.is_empty() || prefix.len() > 32 || !prefix.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Error::NoSnapshot(format!("'{prefix}' is neither 'latest' nor the start of a snapshot's id")));
    }
    let prefix = prefix.to_ascii_lowercase();
    let fits: Vec<_> = snapshots.iter().filter(|i| i.snapshot.id.to_string().starts_with(&prefix)).collect();
    match fits[..] {
        [] => Err(Error::NoSnapshot(format!("there is no snapshot whose id starts with '{prefix}'"))),
        [one] => Ok(one.clone()),
        _ => {
            let mut text = format!("'{prefix}' is the start of {} snapshots' ids:", fits.len());
            list_candidates(&mut text, fits.iter().copied());
            Err(Error::NoSnapshot(text))
        }
    }
}

/// So many are listed.
const CANDIDATES_MAX: usize = 10;

fn list_candidates<'a>(text: &mut String, infos: impl Iterator<Item = &'a SnapshotInfo>) {
    for (at, info) in infos.enumerate() {
        if at == CANDIDATES_MAX {
            text.push_str("\n  …");
            return;
        }
        let s = &info.snapshot;
        let partial = if s.partial.is_some() { ", partial" } else { "" };
        let unsigned = if matches!(info.trust, Trust::Unknown(_)) { ", signed by an unknown key" } else { "" };
        let id = s.id.to_string();
        text.push_str(&format!("\n  {}  {} UTC  {}{partial}{unsigned}", &id[..12], utc(s.time.0), legible(&s.host)));
    }
}

/// A time as people read it, in UTC. Days to dates by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
fn utc(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day counted from 1970-01-01.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// A path in a snapshot, as the tree orders it: components joined by zero bytes, the root empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath {
    key: Vec<u8>,
}

impl TreePath {
    /// The root, which has no entry of its own.
    pub fn root() -> Self {
        TreePath::default()
    }

    /// A path as a user writes it: `/a/b`, `a/b`, `a//./b/` are one.
    ///
    /// # Errors
    /// [`Error::NoPath`] for what no snapshot can hold: `..`, a zero byte, a name or a path of excessive length.
    pub fn parse(path: &[u8]) -> Result<Self> {
        let mut key = Vec::with_capacity(path.len());
        for part in path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b".")) {
            if !tree::is_name(part) || key.len() + part.len() >= DIR_BYTES_MAX {
                return Err(Error::NoPath(String::from_utf8_lossy(path).into_owned()));
            }
            if !key.is_empty() {
                key.push(0);
            }
            key.extend_from_slice(part);
        }
        Ok(TreePath { key })
    }

    /// The path of an entry.
    pub fn of(dir: &[u8], name: &[u8]) -> Self {
        TreePath { key: tree::join(dir, name) }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.key.is_empty()
    }

    /// What stands as the directory of the entries right below it.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The directory and the name of its own entry; `None` for the root.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        match self.key.iter().rposition(|b| *b == 0) {
            _ if self.key.is_empty() => None,
            Some(at) => Some((&self.key[..at], &self.key[at + 1..])),
            None => Some((&[], &self.key)),
        }
    }

    /// The absolute path, as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![b'/'];
        out.extend(self.key.iter().map(|b| if *b == 0 { b'/' } else { *b }));
        out
    }

    /// An error that says that it isn't there.
    pub(crate) fn missing(&self) -> Error {
        Error::NoPath(self.to_string())
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

/// Append the absolute path of the entry `name` of the directory `dir`.
pub fn push_path(dir: &[u8], name: &[u8], out: &mut Vec<u8>) {
    if !dir.is_empty() {
        out.push(b'/');
        out.extend(dir.iter().map(|b| if *b == 0 { b'/' } else { *b }));
    }
    out.push(b'/');
    out.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_format::snapshot::{Reached, Summary};
    use drumlin_format::{KeyId, SessionId, SnapshotId};

    fn info(id: u8, time: i64, host: &str, tags: &[&str]) -> SnapshotInfo {
        let snapshot = Snapshot {
            id: SnapshotId([id; 16]),
            session: SessionId([0; 16]),
            time: (time, 0),
            host: host.into(),
            user: "u".into(),
            paths: vec![b"/home/".to_vec(), b"/etc".to_vec()],
            tags: tags.iter().map(|t| (*t).to_owned()).collect(),
            root: None,
            partial: None,
            parent: None,
            program: "test".into(),
            summary: Summary::default(),
            plans: Vec::new(),
            original: None,
            passed_by: None,
        };
        SnapshotInfo { snapshot, trust: Trust::Signed(KeyId([1; 16])), open_session: false, committed: true }
    }

    fn sample() -> Vec<SnapshotInfo> {
        let mut all = vec![
            info(0xa1, 1000, "one", &["x", "y"]),
            info(0xa2, 2000, "two", &[]),
            info(0xb3, 3000, "one", &["x"]),
            info(0xc4, 4000, "one", &[]),
            info(0xd5, 5000, "one", &[]),
        ];
        all[3].snapshot.partial = Some(Reached { dir: Vec::new(), name: b"n".to_vec() });
        all[4].trust = Trust::Unknown(KeyId([2; 16]));
        all
    }

    fn id(spec: &str, filter: &SnapshotFilter) -> std::result::Result<u8, String> {
        find_snapshot(&sample(), spec, filter, 6000).map(|s| s.snapshot.snapshot.id.0[0]).map_err(|e| e.to_string())
    }

    #[test]
    fn names_of_snapshots() {
        let all = SnapshotFilter::default();
        assert_eq!(id("latest", &all), Ok(0xb3), "neither a partial nor an unsigned one");
        assert_eq!(id("latest~1", &all), Ok(0xa2));
        assert_eq!(id("latest~2:/a", &all), Ok(0xa1));
        assert_eq!(id("b3", &all), Ok(0xb3));
        assert_eq!(id("B3b", &all), Ok(0xb3));
        assert_eq!(id("d5", &all), Ok(0xd5), "by id any can be had");
        assert!(id("latest~3", &all).unwrap_err().contains("only 3 snapshots"));
        assert!(id("latest~x", &all).is_err() && id("latest2", &all).is_err());
        assert!(id("", &all).is_err() && id("zz", &all).is_err() && id("ff", &all).unwrap_err().contains("'ff'"));
        let ambiguous = id("a", &all).unwrap_err();
        assert!(ambiguous.contains("a1a1a1a1a1a1  1970-01-01 00:16:40 UTC  one"), "{ambiguous}");
        assert!(ambiguous.contains("a2a2"), "{ambiguous}");
        assert!(find_snapshot(&[], "latest", &all, 6000).is_err());
        let only_odd = find_snapshot(&sample()[3..], "latest", &all, 6000).unwrap_err().to_string();
        assert!(only_odd.contains("partial") && only_odd.contains("unknown key"), "{only_odd}");
        let spec = find_snapshot(&sample(), &b"a1:/home/\xff/"[..], &all, 6000).unwrap();
        assert_eq!(spec.subfolder.key(), b"home\0\xff");
    }

    #[test]
    fn what_is_still_to_come_is_the_latest_only_where_nothing_else_is() {
        let all = SnapshotFilter::default();
        let at = |spec: &str, now| {
            let found = find_snapshot(&sample(), spec, &all, now).unwrap();
            (found.snapshot.snapshot.id.0[0], found.from_the_future.map(|info| info.snapshot.id.0[0]))
        };
        let day = FUTURE_SECONDS;
        assert_eq!(at("latest", 3000 - day), (0xb3, None));
        assert_eq!(at("latest", 2999 - day), (0xa2, Some(0xb3)));
        assert_eq!(at("latest~1", 2500 - day), (0xa1, Some(0xb3)));
        assert_eq!(at("latest", i64::MIN), (0xb3, None), "a clock that was never set");
        assert_eq!(at("b3", 0 - day), (0xb3, None));
    }

    #[test]
    fn filters() {
        let tags = |sets: &[&[&str]]| SnapshotFilter {
            tags: sets.iter().map(|s| s.iter().map(|t| (*t).to_owned()).collect()).collect(),
            ..SnapshotFilter::default()
        };
        assert_eq!(id("latest", &tags(&[&["x", "y"]])), Ok(0xa1));
        assert_eq!(id("latest", &tags(&[&["x", "y"], &["x"]])), Ok(0xb3));
        assert_eq!(id("latest", &tags(&[&[]])), Ok(0xa2));
        let host = SnapshotFilter { hosts: vec!["two".into()], ..SnapshotFilter::default() };
        assert_eq!(id("latest", &host), Ok(0xa2));
        assert_eq!(host.select(&sample()).len(), 1);
        let paths = |p: &[u8]| SnapshotFilter { paths: vec![p.to_vec().into()], ..SnapshotFilter::default() };
        let exactly = |p: &[&[u8]]| SnapshotFilter {
            paths: p.iter().map(|p| p.to_vec().into()).collect(),
            exactly: true,
            ..SnapshotFilter::default()
        };
        assert_eq!(id("latest", &paths(b"/home")), Ok(0xb3));
        assert_eq!(id("latest", &paths(b"/etc/")), Ok(0xb3));
        assert!(id("latest", &paths(b"/et")).unwrap_err().contains("fits"));
        assert_eq!(id("latest", &exactly(&[b"/etc", b"/home/"])), Ok(0xb3));
        assert!(id("latest", &exactly(&[b"/home"])).unwrap_err().contains("fits"));
        let nearly =
            |filter: &SnapshotFilter| sample().iter().filter(|info| filter.nearly_matches(&info.snapshot)).count();
        assert_eq!(
            (nearly(&exactly(&[b"/home"])), nearly(&exactly(&[b"/etc", b"/home"])), nearly(&exactly(&[b"/x"]))),
            (5, 0, 0)
        );
        let times = |after: Option<i64>, before: Option<i64>| SnapshotFilter {
            after: after.map(|second| (second, 0)),
            before: before.map(|second| (second, 0)),
            ..SnapshotFilter::default()
        };
        assert_eq!(id("latest", &times(None, Some(3000))), Ok(0xa2));
        assert_eq!(id("latest", &times(None, Some(3001))), Ok(0xb3));
        assert_eq!(id("latest~1", &times(Some(2000), None)), Ok(0xa2));
        assert!(id("latest~1", &times(Some(2001), None)).is_err());
    }

    #[test]
    fn paths_of_users() {
        for same in ["/a/b", "a/b", "a//b/", "./a/./b/."] {
            let path = TreePath::parse(same.as_bytes()).unwrap();
            assert_eq!((path.key(), path.entry()), (&b"a\0b"[..], Some((&b"a"[..], &b"b"[..]))), "{same}");
            assert_eq!(path.to_string(), "/a/b");
        }
        assert_eq!(TreePath::parse(b"x").unwrap().entry(), Some((&b""[..], &b"x"[..])));
        for root in ["", "/", "//.", "."] {
            let path = TreePath::parse(root.as_bytes()).unwrap();
            assert!(path.is_root() && path.entry().is_none() && path.to_bytes() == b"/");
        }
        for bad in [&b"a/../b"[..], b"a\0b", &[b'n'; 2000]] {
            assert!(TreePath::parse(bad).is_err());
        }
        let mut out = Vec::new();
        push_path(b"", b"a", &mut out);
        push_path(b"a\0b", b"c", &mut out);
        assert_eq!(out, b"/a/a/b/c");
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(-1), "1969-12-31 23:59:59");
        assert_eq!(utc(1_790_000_000), "2026-09-21 14:13:20");
    }
}
