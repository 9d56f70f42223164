//! The local cache: what a client keeps beside the repository to be fast, and, for a key that can't read, to know what
//! it wrote itself. A hint, all of it: delete it and it is made again; a wrong byte in it is noticed and passed over.
//!
//! ```text
//! <folder>/<repository id>/runs/…       the index (see `index`)
//!                          hooks/…      the sparse index
//!                          pack-keys    keys of tree packs that this client wrote or opened, sealed
//!                          last/<name>  this client's last snapshots, sealed
//!                          trees/…      copies of tree packs of a storage far away, sealed as they are there
//!                          tables/…     tables of its packs, sealed
//!                          snapshots/…  copies of its snapshots, sealed as they are there
//! ```
//!
//! What is secret is sealed under a key derived from the client's own secrets.

mod copies;
mod shelf;
mod snapshots;
mod tables;

pub(crate) use copies::Copies;
pub(crate) use snapshots::Snapshots;
pub(crate) use tables::Tables;

use crate::lock::lock;
use crate::{Error, Index, Repository, Result, names};
use drumlin_format::PackId;
use drumlin_format::pack::PackKind;
use drumlin_seal::{SealKey, Secret, TAG_BYTES, checksum, derive};
use drumlin_store::Soon;
use drumlin_store::descriptors;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Packs that are asked for in advance: the last tree seldom lies in more, and a store takes few such questions at
/// once.
const COPIES_EXPECTED: usize = 12;

/// A client's cache for one repository.
pub struct Cache {
    /// `None`: nothing is kept beyond this process.
    folder: Option<PathBuf>,
    /// For files of this process alone.
    scratch: PathBuf,
    secret: Secret,
    suite: drumlin_seal::Suite,
    pack_keys: Mutex<Option<HashMap<PackId, Secret>>>,
    /// `None` where nothing is kept, or where the storage is as near as a copy would be.
    copies: Option<Copies>,
    /// `None` in the same cases.
    tables: Option<Tables>,
}

/// Something small that a client remembers, by name.
pub type Remembered = Vec<u8>;

/// What copies of tree packs may take: those of some tens of millions of entries.
const COPIES_BYTES_MAX: u64 = 1 << 30;
/// And tables of packs: those of some thirty millions of chunks.
const TABLES_BYTES_MAX: u64 = 1 << 30;

/// With less than that a folder is as good as full: the keys of all chunks of a repository of some TiB.
const ROOM_MIN: u64 = 512 << 20;

/// The folder that makes a folder a cache: the first to come, and the last to go.
const LAST: &str = "last";

/// What stands in the folder of a cache.
const PARTS: [&str; 7] = [LAST, "trees", "tables", names::SNAPSHOTS, "runs", "hooks", "pack-keys"];

const KEY_RECORD_BYTES: usize = 16 + 32 + TAG_BYTES;

impl Cache {
    /// The cache below `folder`, which is made if it isn't there; in `scratch` alone if it can't be.
    pub fn open(repository: &Repository, folder: Option<&Path>, scratch: &Path) -> Result<Self> {
        let secrets = repository.secrets();
        let own = secrets.signing.as_ref().map_or(&secrets.index, |k| k.secret());
        let folder =
            folder.map(|f| f.join(repository.config().id.to_string())).filter(|f| make_folder(&f.join(LAST)).is_ok());
        let (secret, suite) = (derive(own, "local cache", &[]), repository.config().suite);
        let is_far = repository.store().is_far();
        let mut cache = Cache {
            copies: folder.as_ref().filter(|_| is_far).map(|f| Copies::new(f.join("trees"))),
            tables: None,
            folder,
            scratch: scratch.to_owned(),
            secret,
            suite,
            pack_keys: Mutex::new(None),
        };
        let of_far = cache.tables_folder().filter(|_| is_far);
        cache.tables = of_far.map(|f| Tables::new(f, cache.secret.clone(), suite, TABLES_BYTES_MAX));
        Ok(cache)
    }

    /// Each key's own, as its names of what is remembered are.
    fn tables_folder(&self) -> Option<PathBuf> {
        let own = hex(&derive(&self.secret, "tables' folder", &[]).expose()[..8]);
        self.folder.as_ref().map(|folder| folder.join("tables").join(own))
    }

    /// Whether what it learns is there for the next run.
    pub fn is_kept(&self) -> bool {
        self.folder.is_some()
    }

    /// Whether a folder holds a cache and nothing else: whoever clears caches must not remove what is somebody else's,
    /// whatever its name.
    pub fn is_at(folder: &Path) -> bool {
        let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        let Ok(entries) = fs::read_dir(folder) else { return false };
        let is_ours = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                PARTS.contains(&&*name) || [".scratch-", "pack-keys.new-"].iter().any(|begun| name.starts_with(begun))
            })
        };
        is_folder(folder) && is_folder(&folder.join(LAST)) && entries.into_iter().all(is_ours)
    }

    /// Whether a folder holds a cache, perhaps beside something else.
    pub fn is_among_others_at(folder: &Path) -> bool {
        folder.join(LAST).is_dir()
    }

    /// Remove a cache that is there ([`Cache::is_at`]). One that is removed in part is seen as a cache all the same.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_at(folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name() == LAST {
                continue;
            }
            let removed = match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path()),
                false => fs::remove_file(entry.path()),
            };
            // Whoever is at work may have given it another name, or removed it.
            removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        }
        fs::remove_dir_all(folder)
    }

    /// Where index runs are kept, if they are: `runs`, or `hooks` for those of the sparse index.
    pub(crate) fn runs_folder(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?.join(name);
        make_folder(&folder).is_ok().then_some(folder)
    }

    /// The cache's folder.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// A file without a name, gone with the process: in the cache's folder, which mostly has more room than that of
    /// other files for a while, unless it is nearly full.
    pub fn scratch_file(&self) -> Result<File> {
        let has_room = |folder: &&PathBuf| {
            room(folder).is_none_or(|room| room >= ROOM_MIN || Some(room) >= self::room(&self.scratch))
        };
        let folder = self.folder.as_ref().filter(has_room).unwrap_or(&self.scratch);
        // It may be read-only.
        unnamed_file(folder).or_else(|e| self.file_elsewhere().map_err(|_| e))
    }

    /// A scratch file outside of the cache, for what the cache has no room for.
    pub(crate) fn file_elsewhere(&self) -> Result<File> {
        unnamed_file(&self.scratch)
    }

    /// Copies of tree packs, if they are worth keeping.
    pub(crate) fn copies(&self) -> Option<&Copies> {
        self.copies.as_ref()
    }

    /// Tables of packs, if they are worth keeping.
    pub(crate) fn tables(&self) -> Option<&Tables> {
        self.tables.as_ref()
    }

    /// The names of the packs of which there are copies, those that were used last.
    pub fn copied(&self) -> Vec<String> {
        let copies = self.copies.iter().flat_map(|copies| copies.all());
        copies.take(COPIES_EXPECTED).map(|(pack, _)| names::pack(PackKind::Tree, pack)).collect()
    }

    /// A hint that these packs will be used again: a storage far away is asked now whether they are there.
    pub fn expect_copies(&self, repository: &Repository) {
        self.copied().iter().for_each(|name| repository.store().expect(Soon::Length(name)));
    }

    /// Throw away copies and tables of packs that the index, which is up to date, no longer has, and what is beyond the
    /// room that these may take.
    pub fn tidy(&self, index: &Index) {
        if let (Some(copies), Some(tables)) = (&self.copies, &self.tables) {
            let packs: HashSet<PackId> = index.packs().iter().map(|pack| pack.id).collect();
            copies.tidy(|pack| packs.contains(&pack), COPIES_BYTES_MAX);
            tables.tidy(|pack| packs.contains(&pack));
        }
    }

    /// The key of a tree pack, if this client has kept it.
    pub(crate) fn pack_key(&self, pack: PackId) -> Option<Secret> {
        let mut keys = lock(&self.pack_keys);
        keys.get_or_insert_with(|| self.load_pack_keys().unwrap_or_default()).get(&pack).cloned()
    }

    /// Keep the key of a tree pack.
    pub(crate) fn keep_pack_key(&self, pack: PackId, key: &Secret) -> Result<()> {
        let mut keys = lock(&self.pack_keys);
        keys.get_or_insert_with(|| self.load_pack_keys().unwrap_or_default()).insert(pack, key.clone());
        let Some(path) = self.pack_keys_path() else { return Ok(()) };
        let mut record = key.expose().to_vec();
        self.pack_seal(pack).seal(0, &pack.0, &mut record);
        let record = [&pack.0[..], &record].concat();
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let append = || descriptors::wait_for(open)?.write_all(&record);
        append().map_err(|source| Error::Cache { action: "append to", path: path.display().to_string(), source })
    }

    fn load_pack_keys(&self) -> io::Result<HashMap<PackId, Secret>> {
        let mut bytes = Vec::new();
        if let Some(path) = self.pack_keys_path() {
            descriptors::wait_for(|| File::open(&path))?.read_to_end(&mut bytes)?;
        }
        let mut keys = HashMap::new();
        for record in bytes.chunks_exact(KEY_RECORD_BYTES) {
            let (id, sealed) = record.split_at(16);
            let id = PackId(id.try_into().expect("split at 16"));
            let mut sealed = sealed.to_vec();
            if let Ok(plain) = self.pack_seal(id).open(0, &id.0, &mut sealed)
                && let Some(secret) = Secret::from_slice(plain)
            {
                keys.insert(id, secret);
            }
        }
        Ok(keys)
    }

    fn pack_keys_path(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|f| f.join("pack-keys"))
    }

    fn pack_seal(&self, pack: PackId) -> SealKey {
        SealKey::new(self.suite, &derive(&self.secret, "kept pack key", &pack.0))
    }

    /// Remember `bytes` under a name, in place of what was there.
    pub fn remember(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let fresh = crate::random_id()?;
        let mut sealed = bytes.to_vec();
        self.memory_seal(&fresh).seal(0, name.as_bytes(), &mut sealed);
        let path = folder.join(LAST).join(self.file_name(name));
        replace_file(&path, &[&fresh[..], &sealed].concat())
    }

    /// What was remembered under a name; `None` if there is nothing, or nothing sound.
    pub fn recall(&self, name: &str) -> Option<Remembered> {
        let folder = self.folder.as_ref()?.join(LAST);
        let read = |name: String| descriptors::wait_for(|| fs::read(folder.join(&name)));
        // What was remembered before 2026-11-29 had one name for all keys.
        let bytes = read(self.file_name(name)).or_else(|_| read(hex(&checksum(name.as_bytes())))).ok()?;
        let (fresh, sealed) = bytes.split_first_chunk::<16>()?;
        let mut sealed = sealed.to_vec();
        self.memory_seal(fresh).open(0, name.as_bytes(), &mut sealed).ok().map(|plain| plain.to_vec())
    }

    /// Each key's own: what one remembers another one can't open, and would put its own in the place.
    fn file_name(&self, name: &str) -> String {
        hex(&derive(&self.secret, "remembered as", name.as_bytes()).expose()[..16])
    }

    fn memory_seal(&self, fresh: &[u8; 16]) -> SealKey {
        SealKey::new(self.suite, &derive(&self.secret, "remembered", fresh))
    }
}

/// Bytes that a user may still put into a folder, if that can be told.
fn room(folder: &Path) -> Option<u64> {
    rustix::fs::statvfs(folder).ok().map(|of| of.f_bavail.saturating_mul(of.f_frsize))
}

/// A file without a name in a folder.
fn unnamed_file(folder: &Path) -> Result<File> {
    let fail =
        |source: io::Error| Error::Cache { action: "make a file in", path: folder.display().to_string(), source };
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let unnamed = || rustix::fs::open(folder, flags, rustix::fs::Mode::from_raw_mode(0o600));
    match descriptors::wait_for(unnamed) {
        Ok(fd) => Ok(fd.into()),
        // Some file systems know no nameless files.
        Err(_) => {
            let path = folder.join(format!(".scratch-{}-{}", std::process::id(), hex(&crate::random_id()?)));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = file.map_err(fail)?;
            fs::remove_file(&path).map_err(fail)?;
            Ok(file)
        }
    }
}

/// A file in memory: where nothing has any room left.
pub(crate) fn file_in_memory() -> Result<File> {
    let made = rustix::fs::memfd_create("drumlin-index", rustix::fs::MemfdFlags::CLOEXEC);
    made.map(File::from).map_err(|e| Error::Cache {
        action: "make a file in",
        path: "(in memory)".into(),
        source: e.into(),
    })
}

/// A folder for the owner's eyes only, with its parents. What root makes in another one's folder (`sudo` may keep HOME)
/// is that one's, or he couldn't use it any more.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let above = path.ancestors().find(|above| above.exists()).filter(|_| rustix::process::geteuid().is_root());
    let Some((above, owner)) =
        above.and_then(|above| Some((above, fs::metadata(above).ok().filter(|m| m.uid() != 0)?)))
    else {
        return fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    };
    // By descriptors: he could put a link in the place of what was just made, and be given what that leads to.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(above, flags, Mode::empty())?;
    for part in path.strip_prefix(above).unwrap_or(path).iter() {
        let made = match rustix::fs::mkdirat(&dir, part, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        dir = rustix::fs::openat(&dir, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
        if made {
            // Some file systems can't; then it is root's, as ever.
            let _ = fchown(&dir, Some(owner.uid()), Some(owner.gid()));
        }
    }
    Ok(())
}

/// Replace a file in one step. Not made durable: a cache that is lost costs time only.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |source| Error::Cache { action: "write", path: path.display().to_string(), source };
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        descriptors::wait_for(open)?.write_all(bytes)?;
        fs::rename(&temporary, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&temporary);
        fail(e)
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, NewLock, Unlock};
    use drumlin_format::key::Role;
    use drumlin_format::pack::Table;
    use drumlin_store::MemoryStore;
    use std::sync::Arc;

    #[test]
    fn what_one_key_keeps_another_one_leaves() {
        let memory = MemoryStore::new();
        let lock = NewLock::File(Secret::new([1; 32]));
        let (owner, _) = Repository::create(Arc::new(memory.clone()), CreateOptions::default(), lock, "", 1).unwrap();
        let secret = Secret::new([7; 32]);
        let key = owner.add_key(Role::Writer, &NewLock::File(secret.clone()), "", 2).unwrap();
        let unlock = Unlock::File(owner.key_file(key, &secret).to_string());
        let writer = Repository::open(Arc::new(memory), &unlock).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = [&owner, &writer].map(|repository| {
            let mut cache = Cache::open(repository, Some(folder.path()), folder.path()).unwrap();
            // As of a storage far away.
            let tables = Tables::new(cache.tables_folder().unwrap(), cache.secret.clone(), cache.suite, 1 << 20);
            cache.tables = Some(tables);
            cache
        });
        let pack = PackId([3; 16]);
        for (cache, bytes) in [(&one, b"one"), (&two, b"two")] {
            cache.remember("parent", bytes).unwrap();
            cache.tables.as_ref().unwrap().keep(pack, &Table::default());
        }
        for (cache, bytes) in [(&one, b"one"), (&two, b"two")] {
            assert_eq!(cache.recall("parent").as_deref(), Some(&bytes[..]));
            assert!(cache.tables.as_ref().unwrap().get(pack).is_some());
        }
    }

    #[test]
    fn what_root_makes_in_a_folder_of_somebody_else_is_that_ones() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::lchown(home.path(), Some(12345), Some(54321)).unwrap();
        let made = home.path().join(".local/state/drumlin");
        make_folder(&made).unwrap();
        for path in [home.path().join(".local"), home.path().join(".local/state"), made.clone()] {
            let meta = fs::metadata(&path).unwrap();
            assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (12345, 54321, 0o700), "{}", path.display());
        }
        std::os::unix::fs::lchown(&made, Some(0), Some(0)).unwrap();
        make_folder(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().uid(), 0, "what was there stays whose it is");
    }
}
