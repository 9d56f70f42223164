//! Which snapshot to compare with.

use crate::{Error, Result};
use drumlin_format::SnapshotId;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::collection::Known;
use drumlin_repo::{Cache, Repository, SnapshotInfo, Trust, names};

/// Which snapshot to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The latest of the same host and the same paths; if there is none, the latest of the host that has some of them:
    /// entries are compared by their absolute paths, and what is the same need not be read.
    Latest,
    /// This one.
    Id(SnapshotId),
    /// None: all is read.
    None,
}

/// The snapshots to compare with: at most a partial one and the whole one that it was itself compared with.
#[derive(Clone, Debug, Default)]
pub struct ParentSnapshots(pub Vec<Snapshot>);

impl ParentSnapshots {
    /// Find them among those that every plan in `known` admits. `remembered` is what [`remembered`] gave before the
    /// session was put: of what was remembered later the index may lack something. A client that can't read the
    /// repository, and one whose cache is up to date, knows its own by it.
    pub fn find(
        repository: &Repository,
        remembered: &[Snapshot],
        parent: &Parent,
        host: &str,
        paths: &[Vec<u8>],
        known: &Known,
    ) -> Result<Self> {
        let first = match parent {
            Parent::None => return Ok(ParentSnapshots::default()),
            Parent::Latest => match recall(repository, remembered)? {
                Some(chain) if chain.0.iter().all(|snapshot| known.admits(snapshot)) => return Ok(chain),
                Some(_) | None if repository.secrets().meta.is_none() => return Ok(ParentSnapshots::default()),
                Some(_) | None => {
                    let (snapshots, _) = repository.snapshots_so_far(&[])?;
                    let of_host =
                        |s: &&SnapshotInfo| s.snapshot.host == host && known.admits(&s.snapshot) && is_signed(s);
                    let newest_first = || snapshots.iter().rev().filter(of_host);
                    let same = newest_first().find(|s| s.snapshot.paths == paths);
                    let alike =
                        || newest_first().find(|s| s.snapshot.partial.is_none() && overlap(&s.snapshot.paths, paths));
                    match same.or_else(alike) {
                        Some(info) => info.snapshot.clone(),
                        None => return Ok(ParentSnapshots::default()),
                    }
                }
            },
            // Whoever signed it: the user says so.
            Parent::Id(id) => match by_id(repository, id, |_| true)? {
                Some(snapshot) if known.admits(&snapshot) => snapshot,
                Some(_) => {
                    let why = "can't be compared with until the running prune has ended";
                    return Err(Error::NoSnapshot(format!("snapshot {id} {why}")));
                }
                None => return Err(Error::NoSnapshot(format!("there is no snapshot {id} to compare with"))),
            },
        };
        let mut chain = vec![first];
        while let Some(last) = chain.last()
            && last.partial.is_some()
            && let Some(before) = last.parent
            && chain.len() < CHAIN_MAX
        {
            match by_id(repository, &before, is_signed)? {
                Some(snapshot) if known.admits(&snapshot) => chain.push(snapshot),
                Some(_) | None => break,
            }
        }
        Ok(ParentSnapshots(chain))
    }

    /// The snapshot that the new one names as its parent.
    pub fn first(&self) -> Option<&Snapshot> {
        self.0.first()
    }
}

/// Whether two sets of sources have something in common.
fn overlap(some: &[Vec<u8>], others: &[Vec<u8>]) -> bool {
    // One that ends in a slash follows a symlink, or is the root.
    let bare = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
    let is_in =
        |path: &[u8], folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
    let files =
        |all: &[Vec<u8>]| all.iter().filter(|path| path.starts_with(b"/")).map(|path| bare(path)).collect::<Vec<_>>();
    let (some, others) = (files(some), files(others));
    some.iter().any(|one| others.iter().any(|other| is_in(one, other) || is_in(other, one)))
}

/// Runs that are interrupted again and again: so many of them are looked back through.
const CHAIN_MAX: usize = 16;

fn by_id(repository: &Repository, id: &SnapshotId, counts: impl Fn(&SnapshotInfo) -> bool) -> Result<Option<Snapshot>> {
    let (snapshots, _) = repository.snapshots_so_far(&[])?;
    Ok(snapshots.into_iter().find(|info| info.snapshot.id == *id && counts(info)).map(|info| info.snapshot))
}

/// Whether a snapshot is there and still what `latest` means for its host and paths: another cache (another user's, one
/// that couldn't be written) knows nothing of what was saved since, and the same source may have looked otherwise then.
/// A key that reads nothing can't tell, and goes by what it remembers.
pub(super) fn is_latest(repository: &Repository, of: &Snapshot) -> Result<bool> {
    if repository.secrets().meta.is_none() {
        return Ok(repository.store().len(&names::snapshot(of.id)).map_err(drumlin_repo::Error::from)?.is_some());
    }
    let (snapshots, _) = repository.snapshots_so_far(&[])?;
    let fits = |info: &&SnapshotInfo| {
        let of_it = &info.snapshot;
        of_it.host == of.host && of_it.paths == of.paths && of_it.partial.is_none() && is_signed(info)
    };
    Ok(snapshots.iter().rev().find(fits).is_some_and(|latest| latest.snapshot.id == of.id))
}

/// Whether somebody has signed it who may add snapshots: what others say of files that have not changed isn't taken
/// over unread.
fn is_signed(info: &SnapshotInfo) -> bool {
    matches!(info.trust, Trust::Signed(_))
}

pub(super) fn name(host: &str, paths: &[Vec<u8>]) -> String {
    let mut name = format!("parent of {host}");
    for path in paths {
        name.push('\n');
        name.push_str(&path.escape_ascii().to_string());
    }
    name
}

/// Remember a snapshot, and what it was compared with if it is partial, as the latest of its host and paths.
pub(super) fn remember(cache: &Cache, snapshot: &Snapshot, parents: &ParentSnapshots) {
    let mut chain = vec![snapshot];
    if snapshot.partial.is_some() {
        chain.extend(parents.0.iter().take(CHAIN_MAX - 1));
    }
    let mut bytes = Vec::new();
    for snapshot in chain {
        let plain = snapshot.to_plain();
        bytes.extend_from_slice(&(plain.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&plain);
    }
    // A cache that can't be written costs the next run some time.
    let _ = cache.remember(&name(&snapshot.host, &snapshot.paths), &bytes);
}

/// The objects of which it will be looked whether they are there: what was remembered, and its tree.
pub(super) fn objects(cache: &Cache, remembered: &[Snapshot]) -> Vec<String> {
    if remembered.is_empty() {
        return Vec::new();
    }
    remembered.iter().map(|snapshot| names::snapshot(snapshot.id)).chain(cache.copied()).collect()
}

/// What was remembered, if all of it is still in the repository.
fn recall(repository: &Repository, remembered: &[Snapshot]) -> Result<Option<ParentSnapshots>> {
    for snapshot in remembered {
        if repository.store().len(&names::snapshot(snapshot.id)).map_err(drumlin_repo::Error::from)?.is_none() {
            return Ok(None);
        }
    }
    Ok(if remembered.is_empty() { None } else { Some(ParentSnapshots(remembered.to_vec())) })
}

/// The latest of these sources that this client has made, and what it was compared with if it is partial: the newest
/// first.
pub fn remembered(cache: &Cache, host: &str, paths: &[Vec<u8>]) -> Option<Vec<Snapshot>> {
    let bytes = cache.recall(&name(host, paths))?;
    let mut chain = Vec::new();
    let mut rest = &bytes[..];
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (plain, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        chain.push(Snapshot::from_plain(plain).ok()?);
        rest = after;
    }
    Some(chain)
}
