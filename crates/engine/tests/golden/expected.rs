//! What a golden repository shall give back, as `expected.json` says it, and the same of a folder on disk.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{SeekFrom, ioctl_getflags, lgetxattr, llistxattr, seek};
use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Bytes, in JSON as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Bytes).map_err(de::Error::custom)
    }
}

/// `expected.json`.
#[derive(Serialize, Deserialize)]
pub struct Expected {
    /// Every object of the repository and the BLAKE3 hash of its bytes, in hex.
    pub objects: BTreeMap<String, String>,
    /// The path below which everything was that was saved.
    pub source: String,
    pub keys: Vec<Key>,
    /// Those that count, oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Of all states of the source.
    pub entries: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub label: String,
    pub role: String,
    pub created: i64,
    pub revoked: Option<i64>,
    pub passphrase: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: String,
    /// Seconds since 1970, nanoseconds.
    pub time: (i64, u32),
    pub host: String,
    pub user: String,
    pub paths: Vec<Bytes>,
    pub tags: Vec<String>,
    pub parent: Option<String>,
    /// The label of the key that signed it.
    pub signer: String,
    /// Whether its session was never cleared up.
    pub open_session: bool,
    /// Which entries it holds: those of this state.
    pub state: String,
    /// If it is partial: the last entry that it holds, directory (components joined by zero bytes) and name.
    pub until: Option<(Bytes, Bytes)>,
}

/// An entry. What is left out of the JSON is as in [`Entry::default`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Below the source.
    pub path: Bytes,
    /// The only state of the source that has it; all that are not a stream, if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    #[serde(rename = "type", skip_serializing_if = "is_file")]
    pub kind: String,
    #[serde(skip_serializing_if = "is_common")]
    pub mode: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub uid: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub gid: u32,
    /// Seconds since 1970, nanoseconds.
    pub mtime: (i64, u32),
    #[serde(skip_serializing_if = "is_none")]
    pub size: u64,
    /// Of a device.
    #[serde(skip_serializing_if = "is_none")]
    pub rdev: u64,
    /// Of the contents, holes read as zeros; of files that are not empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Bytes>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<Bytes, Bytes>,
    /// As FS_IOC_GETFLAGS gives them, those that a user can set.
    #[serde(skip_serializing_if = "is_zero")]
    pub flags: u32,
    /// Entries of one number are hard links of one file; 0: it has one name only.
    #[serde(skip_serializing_if = "is_zero")]
    pub link: u32,
    /// Offset and length of each; in JSON see [`holes_as_rows`].
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "holes_as_rows",
        deserialize_with = "rows_as_holes"
    )]
    pub holes: Vec<(u64, u64)>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            path: Bytes::default(),
            state: String::new(),
            kind: "file".into(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: (0, 0),
            size: 0,
            rdev: 0,
            blake3: None,
            target: None,
            xattrs: BTreeMap::new(),
            flags: 0,
            link: 0,
            holes: Vec::new(),
        }
    }
}

/// Holes as rows of (offset of the first, length of each, distance from one to the next, count).
fn holes_as_rows<S: Serializer>(holes: &[(u64, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut rows: Vec<(u64, u64, u64, u64)> = Vec::new();
    for &(offset, len) in holes {
        match rows.last_mut() {
            Some(row) if row.1 == len && (row.3 == 1 || row.0 + row.2 * row.3 == offset) => {
                if row.3 == 1 {
                    row.2 = offset - row.0;
                }
                row.3 += 1;
            }
            _ => rows.push((offset, len, 0, 1)),
        }
    }
    rows.serialize(serializer)
}

fn rows_as_holes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u64, u64)>, D::Error> {
    let rows = Vec::<(u64, u64, u64, u64)>::deserialize(deserializer)?;
    let holes = rows.into_iter().flat_map(|(first, len, step, count)| (0..count).map(move |n| (first + n * step, len)));
    Ok(holes.collect())
}

fn is_file(kind: &str) -> bool {
    kind == "file"
}

fn is_common(mode: &u32) -> bool {
    *mode == 0o644
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_none(value: &u64) -> bool {
    *value == 0
}

/// Entries by their paths.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

impl Expected {
    /// The entries of a state, and of it only those up to `until` in the order of trees.
    pub fn tree(&self, state: &str, until: Option<&(Bytes, Bytes)>) -> Tree {
        let wanted = |entry: &&Entry| match &entry.state[..] {
            "" => state != "stream",
            only => only == state,
        };
        let before = |entry: &&Entry| {
            until.is_none_or(|(dir, name)| tree_key(&self.source, &entry.path.0) <= (dir.0.clone(), name.0.clone()))
        };
        let entries = self.entries.iter().filter(wanted).filter(before);
        let tree = entries.map(|e| (e.path.0.clone(), Entry { state: String::new(), ..e.clone() })).collect();
        with_links_counted(tree)
    }
}

/// Where a path below the source stands in a tree: its directory, components joined by zero bytes, and its name.
fn tree_key(source: &str, path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let path = [source.trim_start_matches('/').as_bytes(), b"/", path].concat();
    let mut parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
    let name = parts.pop().unwrap_or_default().to_vec();
    (parts.join(&0), name)
}

/// The same tree with its groups of hard links numbered in the order of their first paths, and a link whose other names
/// are not in the tree counted as none.
pub fn with_links_counted(mut tree: Tree) -> Tree {
    let mut names: HashMap<u32, u32> = HashMap::new();
    tree.values().for_each(|e| *names.entry(e.link).or_default() += 1);
    let mut numbers = HashMap::new();
    for entry in tree.values_mut().filter(|e| e.link > 0) {
        let next = numbers.len() as u32 + 1;
        entry.link = if names[&entry.link] > 1 { *numbers.entry(entry.link).or_insert(next) } else { 0 };
    }
    tree
}

/// What differs, one line each.
pub fn differences(expected: &Tree, found: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, entry) in expected {
        match found.get(path) {
            None => lines.push(format!("{} is missing", path.escape_ascii())),
            Some(is) if is != entry => lines.push(format!("{}: {is:?} instead of {entry:?}", path.escape_ascii())),
            Some(_) => {}
        }
    }
    lines.extend(found.keys().filter(|p| !expected.contains_key(*p)).map(|p| format!("{} is new", p.escape_ascii())));
    lines
}

/// What is below a folder. Asks the system alone, nothing of ours.
pub fn scan(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut inodes = HashMap::new();
    scan_into(root, b"", &mut tree, &mut inodes)?;
    Ok(with_links_counted(tree))
}

fn scan_into(dir: &Path, below: &[u8], tree: &mut Tree, inodes: &mut HashMap<u64, u32>) -> io::Result<()> {
    for listed in fs::read_dir(dir)? {
        let listed = listed?;
        let name = listed.file_name().into_vec();
        let path = if below.is_empty() { name } else { [below, b"/", &name].concat() };
        let stat = fs::symlink_metadata(listed.path())?;
        let mut entry = Entry {
            path: Bytes(path.clone()),
            kind: kind(stat.file_type())?.into(),
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
            mtime: (stat.mtime(), stat.mtime_nsec() as u32),
            xattrs: xattrs(&listed.path())?,
            ..Entry::default()
        };
        match &entry.kind[..] {
            "file" => {
                let file = File::open(listed.path())?;
                entry.size = stat.len();
                entry.flags = flags(&file)?;
                entry.holes = holes(&file, stat.len())?;
                if stat.len() > 0 {
                    let mut hasher = blake3::Hasher::new();
                    hasher.update_reader(&file)?;
                    entry.blake3 = Some(hasher.finalize().to_hex().to_string());
                }
            }
            "dir" => entry.flags = flags(&File::open(listed.path())?)?,
            "symlink" => {
                entry.size = stat.len();
                entry.target = Some(Bytes(fs::read_link(listed.path())?.into_os_string().into_vec()));
            }
            "char device" | "block device" => entry.rdev = stat.rdev(),
            _ => {}
        }
        if stat.nlink() > 1 && !stat.is_dir() {
            let next = inodes.len() as u32 + 1;
            entry.link = *inodes.entry(stat.ino()).or_insert(next);
        }
        tree.insert(path.clone(), entry);
        if stat.is_dir() {
            scan_into(&listed.path(), &path, tree, inodes)?;
        }
    }
    Ok(())
}

fn kind(kind: fs::FileType) -> io::Result<&'static str> {
    let kinds = [
        (kind.is_file(), "file"),
        (kind.is_dir(), "dir"),
        (kind.is_symlink(), "symlink"),
        (kind.is_fifo(), "fifo"),
        (kind.is_socket(), "socket"),
        (kind.is_char_device(), "char device"),
        (kind.is_block_device(), "block device"),
    ];
    let found = kinds.into_iter().find(|(is, _)| *is);
    found.map(|(_, name)| name).ok_or_else(|| io::Error::other("a file of no known type"))
}

fn flags(file: &File) -> io::Result<u32> {
    match ioctl_getflags(file) {
        Ok(flags) => Ok(flags.bits() & drumlin_host::meta::FLAGS_KEPT),
        Err(Errno::NOTTY | Errno::NOTSUP | Errno::INVAL) => Ok(0),
        Err(e) => Err(e.into()),
    }
}

fn holes(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size {
        let start = seek(file, SeekFrom::Hole(at))?.min(size);
        let end = match seek(file, SeekFrom::Data(start)) {
            Err(Errno::NXIO) => size,
            other => other?.min(size),
        };
        if end > start {
            holes.push((start, end - start));
        }
        at = end.max(start + 1);
    }
    seek(file, SeekFrom::Start(0))?;
    Ok(holes)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Bytes, Bytes>> {
    let mut buffer = vec![0u8; 1 << 16];
    let len = match llistxattr(path, &mut buffer[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    let list = buffer[..len].to_vec();
    let names = list.split(|b| *b == 0).filter(|name| !name.is_empty());
    // What a security module sets by itself is not of the recipe.
    let names = names.filter(|name| *name != b"security.selinux");
    names
        .map(|name| {
            let len = lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut buffer[..])?;
            Ok((Bytes(name.to_vec()), Bytes(buffer[..len].to_vec())))
        })
        .collect()
}
