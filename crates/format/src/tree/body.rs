//! A leaf's body: what leads to the contents of each entry, in the order of the leaf.

use super::list::{LEVEL_MAX, decode_refs, encode_refs};
use super::{BODY_XATTRS_MAX, INLINE_REFS_MAX, Kind, Leaf, List, Meta, NodeKind, Ref, Xattrs, marks, read_node};
use crate::error::malformed;
use crate::wire::{Reader, Writer};
use crate::{ChunkId, Result};

const OBJECT: &str = "tree body";
const ONE_CHUNK: u8 = 1;
const LIST: u8 = 2;
const TARGET: u8 = 4;
const XATTRS: u8 = 8;
const FLAGS: u8 = 16;

/// Where a file's bytes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// There are none, or they are missing (the entry's marks tell).
    #[default]
    None,
    /// All of them in one chunk.
    Chunk(ChunkId),
    /// In several.
    List(List),
}

impl Data {
    /// The chunks that it names itself: of a long list these are nodes.
    pub fn names(&self) -> impl Iterator<Item = ChunkId> {
        let (one, several) = match self {
            Data::None => (None, &[][..]),
            Data::Chunk(id) => (Some(*id), &[][..]),
            Data::List(list) => (None, &list.refs[..]),
        };
        one.into_iter().chain(several.iter().filter_map(Ref::chunk))
    }
}

/// What a body keeps of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// A file's bytes.
    pub data: Data,
    /// A symlink's target.
    pub target: Vec<u8>,
    /// Extended attributes: POSIX ACLs, capabilities, labels and the user's own.
    pub xattrs: Xattrs,
    /// Inode flags, as FS_IOC_GETFLAGS gives them.
    pub flags: u32,
}

impl Content {
    /// Whether it can belong to an entry of this metadata; a decoder refuses what can't. Lengths in refs are checked
    /// apart from this.
    pub fn check(&self, meta: &Meta) -> Result<()> {
        let missing = meta.marks & marks::CONTENTS_MISSING != 0;
        match (&self.data, meta.kind) {
            (Data::None, Kind::File) if meta.size > 0 && !missing => {
                return malformed(OBJECT, "a file has a length, and neither contents nor a mark that they are missing");
            }
            (Data::None, _) => {}
            (_, Kind::File) if meta.size > 0 => {}
            (_, Kind::File) => return malformed(OBJECT, "an empty file has contents"),
            _ => return malformed(OBJECT, "something that is no file has contents"),
        }
        match (self.target.is_empty(), meta.kind) {
            (false, Kind::Symlink) if self.target.contains(&0) => {
                malformed(OBJECT, "the target of a symbolic link has a zero byte")
            }
            (true, Kind::Symlink) if !missing => {
                malformed(OBJECT, "a symbolic link has neither a target nor a mark that it is missing")
            }
            (_, Kind::Symlink) | (true, _) => Ok(()),
            (false, _) => malformed(OBJECT, "something that is no symbolic link has a target"),
        }
    }

    /// About how many bytes it adds to a body, besides ids: what [`super::Boundaries::body_ends`] adds up.
    pub fn weight(&self) -> usize {
        self.target.len() + self.xattrs.bytes() + self.xattrs.len() * 64
    }
}

/// The contents of a leaf's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// As many as the leaf has entries.
    pub contents: Vec<Content>,
}

impl Body {
    /// The body's chunk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.contents.len() * 34);
        out.push(NodeKind::Body as u8);
        out.varint(self.contents.len() as u64);
        out.extend(self.contents.iter().map(tag));
        for c in &self.contents {
            if let Data::Chunk(id) = &c.data {
                out.extend_from_slice(&id.0);
            }
        }
        for c in &self.contents {
            if let Data::List(list) = &c.data {
                out.push(list.level);
                out.extend_from_slice(&list.whole);
                encode_refs(&mut out, &list.refs);
            }
        }
        self.contents.iter().filter(|c| !c.target.is_empty()).for_each(|c| out.counted(&c.target));
        self.encode_xattrs(&mut out);
        self.contents.iter().filter(|c| c.flags != 0).for_each(|c| out.varint(u64::from(c.flags)));
        out
    }

    /// A table of the sets that occur, then for each entry that has one its number: sets repeat a lot.
    fn encode_xattrs(&self, out: &mut Vec<u8>) {
        let mut sets: Vec<&Xattrs> = Vec::new();
        let mut numbers = Vec::new();
        for c in self.contents.iter().filter(|c| !c.xattrs.is_empty()) {
            let number = sets.iter().rposition(|s| **s == c.xattrs).unwrap_or_else(|| {
                sets.push(&c.xattrs);
                sets.len() - 1
            });
            numbers.varint(number as u64);
        }
        out.varint(sets.len() as u64);
        for set in sets {
            out.varint(set.len() as u64);
            for (name, value) in set.iter() {
                out.counted(name);
                out.counted(value);
            }
        }
        out.extend_from_slice(&numbers);
    }

    /// Read what [`Body::encode`] wrote for this leaf.
    pub fn decode(bytes: &[u8], leaf: &Leaf) -> Result<Self> {
        let mut r = read_node(bytes, NodeKind::Body, OBJECT)?;
        if r.count(1)? != leaf.len() {
            return r.fail("it is the body of another leaf");
        }
        let tags = r.take(leaf.len())?;
        if tags.iter().any(|t| *t >= 32 || t & (ONE_CHUNK | LIST) == ONE_CHUNK | LIST) {
            return r.fail("an entry has contents of a kind that this version doesn't know");
        }
        let mut contents = vec![Content::default(); leaf.len()];
        let each = |bit: u8| tags.iter().enumerate().filter(move |(_, t)| **t & bit != 0).map(|(at, _)| at);
        for at in each(ONE_CHUNK) {
            contents[at].data = Data::Chunk(r.id()?);
        }
        for at in each(LIST) {
            let (level, whole) = (r.u8()?, r.array()?);
            let refs = decode_refs(&mut r, leaf.get(at).2.size, INLINE_REFS_MAX)?;
            if level > LEVEL_MAX || refs.is_empty() {
                return r.fail("a chunk list is empty or too deep");
            }
            contents[at].data = Data::List(List { level, refs, whole });
        }
        for at in each(TARGET) {
            let target = r.counted()?;
            if target.is_empty() {
                return r.fail("a tag promises a target that is empty");
            }
            contents[at].target = target.to_vec();
        }
        let sets = decode_sets(&mut r, leaf.len())?;
        for at in each(XATTRS) {
            let Some(set) = sets.get(r.index()?) else {
                return r.fail("an entry has extended attributes that aren't there");
            };
            contents[at].xattrs = set.clone();
        }
        for at in each(FLAGS) {
            contents[at].flags = r.u32()?;
            if contents[at].flags == 0 {
                return r.fail("a tag promises inode flags that are zero");
            }
        }
        r.end()?;
        contents.iter().enumerate().try_for_each(|(at, content)| content.check(leaf.get(at).2))?;
        Ok(Body { contents })
    }
}

/// The sets of extended attributes, each in memory once, whoever has them.
fn decode_sets(r: &mut Reader, entries: usize) -> Result<Vec<Xattrs>> {
    let mut sets = Vec::new();
    let mut attributes = 0;
    for _ in 0..r.count_up_to(1, entries)? {
        let count = r.count_up_to(3, BODY_XATTRS_MAX - attributes)?;
        attributes += count;
        let mut set: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (name, value) = (r.counted()?, r.counted()?);
            if name.is_empty() || name.contains(&0) {
                return r.fail("an extended attribute has no name, or one with a zero byte");
            }
            if set.last().is_some_and(|(before, _)| before.as_slice() >= name) {
                return r.fail("extended attributes are not in order");
            }
            set.push((name.to_vec(), value.to_vec()));
        }
        if set.is_empty() {
            return r.fail("a set of extended attributes is empty");
        }
        sets.push(set.into());
    }
    Ok(sets)
}

fn tag(c: &Content) -> u8 {
    let data = match c.data {
        Data::None => 0,
        Data::Chunk(_) => ONE_CHUNK,
        Data::List(_) => LIST,
    };
    let bit = |bit, set: bool| if set { bit } else { 0 };
    data | bit(TARGET, !c.target.is_empty()) | bit(XATTRS, !c.xattrs.is_empty()) | bit(FLAGS, c.flags != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{NODE_ENTRIES_MAX, Ref, TREE_CHUNK_BYTES_MAX, Time};
    use proptest::prelude::*;

    fn meta(kind: Kind, size: u64) -> Meta {
        Meta {
            kind,
            mode: 0o644,
            marks: 0,
            uid: 0,
            gid: 0,
            size,
            mtime: Time::default(),
            ctime: Time::default(),
            btime: None,
            ino: 1,
            nlink: 1,
            filesystem: 0,
            rdev: 0,
        }
    }

    fn sample() -> (Leaf, Body) {
        let mut leaf = Leaf::default();
        let acl = Xattrs::from(vec![(b"system.posix_acl_access".to_vec(), vec![1; 30]), (b"user.x".to_vec(), vec![])]);
        let mut body = Body::default();
        let mut add = |name: &[u8], size, content: Content| {
            let kind = if content.target.is_empty() { Kind::File } else { Kind::Symlink };
            leaf.push(b"dir", name, &meta(kind, size));
            body.contents.push(content);
        };
        add(b"a", 5, Content { data: Data::Chunk(ChunkId([1; 32])), xattrs: acl.clone(), ..Content::default() });
        let refs = vec![Ref::Chunk { id: ChunkId([2; 32]), len: 70 }, Ref::Hole { len: 30 }];
        add(
            b"b",
            100,
            Content { data: Data::List(List { level: 0, refs, whole: [7; 32] }), flags: 64, ..Content::default() },
        );
        add(b"c", 3, Content { target: b"x/y".to_vec(), xattrs: acl, ..Content::default() });
        add(b"d", 0, Content::default());
        (leaf, body)
    }

    #[test]
    fn round_trip_and_cuts() {
        let (leaf, body) = sample();
        let bytes = body.encode();
        assert_eq!(Body::decode(&bytes, &leaf).unwrap(), body);
        for cut in 0..bytes.len() {
            assert!(Body::decode(&bytes[..cut], &leaf).is_err(), "cut to {cut}");
        }
        let mut other = leaf.clone();
        other.push(b"dir", b"e", leaf.get(3).2);
        assert!(Body::decode(&bytes, &other).is_err());
    }

    /// Bodies that are right in all but one thing.
    #[test]
    fn what_no_reader_may_take_is_refused() {
        let of = |content: Content, size: u64| {
            let mut leaf = Leaf::default();
            leaf.push(b"", b"a", &meta(Kind::File, size));
            Body::decode(&Body { contents: vec![content] }.encode(), &leaf)
        };
        let list = |level: u8, count: usize| {
            let refs = vec![Ref::Chunk { id: ChunkId([1; 32]), len: 1 }; count];
            of(Content { data: Data::List(List { level, refs, whole: [7; 32] }), ..Content::default() }, count as u64)
        };
        assert!(list(LEVEL_MAX, INLINE_REFS_MAX).is_ok());
        assert!(list(LEVEL_MAX + 1, INLINE_REFS_MAX).is_err());
        assert!(list(0, INLINE_REFS_MAX + 1).is_err());
        let attribute = |len: usize| {
            let xattrs = Xattrs::from(vec![(b"user.a".to_vec(), vec![b'v'; len])]);
            of(Content { xattrs, ..Content::default() }, 0)
        };
        assert!(attribute(TREE_CHUNK_BYTES_MAX - 1000).is_ok());
        assert!(attribute(TREE_CHUNK_BYTES_MAX).is_err());
    }

    #[test]
    fn contents_that_contradict_their_entry_are_refused() {
        let list = |len| Data::List(List { level: 0, refs: vec![Ref::Hole { len }], whole: [7; 32] });
        let (file, link, dir) = (meta(Kind::File, 9), meta(Kind::Symlink, 9), meta(Kind::Dir, 0));
        let empty = meta(Kind::File, 0);
        let missing = |meta| Meta { marks: marks::CONTENTS_MISSING, ..meta };
        let data = |data| Content { data, ..Content::default() };
        let chunk = || data(Data::Chunk(ChunkId([1; 32])));
        let target = |target: &[u8]| Content { target: target.to_vec(), ..Content::default() };
        let nothing = Content::default;
        for (meta, content, sound) in [
            (file, chunk(), true),
            (file, data(list(9)), true),
            (file, data(list(8)), false),
            (file, nothing(), false),
            (missing(file), nothing(), true),
            (Meta { marks: marks::CHANGED_WHILE_READ | marks::RACY, ..file }, nothing(), false),
            (file, Content { target: b"x".to_vec(), ..chunk() }, false),
            (empty, nothing(), true),
            (empty, chunk(), false),
            (link, target(b"x"), true),
            (link, nothing(), false),
            (missing(link), nothing(), true),
            (link, target(b"a\0b"), false),
            (link, Content { target: b"x".to_vec(), ..chunk() }, false),
            (dir, nothing(), true),
            (dir, target(b"x"), false),
            (dir, chunk(), false),
            (dir, data(list(0)), false),
            (meta(Kind::Fifo, 0), nothing(), true),
            (meta(Kind::BlockDevice, 9), chunk(), false),
            (meta(Kind::Socket, 9), data(list(9)), false),
        ] {
            let mut leaf = Leaf::default();
            leaf.push(b"", b"a", &meta);
            let body = Body { contents: vec![content] };
            let decoded = Body::decode(&body.encode(), &leaf);
            assert_eq!(decoded.is_ok(), sound, "{meta:?} {body:?} {decoded:?}");
        }
    }

    /// The body of so many empty files, of which each has the `number`th of these sets.
    fn with_sets(entries: usize, sets: &[Vec<(&[u8], &[u8])>], number: u64) -> Result<Body> {
        let mut leaf = Leaf::default();
        (0..entries).for_each(|at| leaf.push(b"", format!("{at:05}").as_bytes(), &meta(Kind::File, 0)));
        let mut out = vec![NodeKind::Body as u8];
        out.varint(entries as u64);
        out.extend(vec![XATTRS; entries]);
        out.varint(sets.len() as u64);
        for set in sets {
            out.varint(set.len() as u64);
            for (name, value) in set {
                out.counted(name);
                out.counted(value);
            }
        }
        (0..entries).for_each(|_| out.varint(number));
        Body::decode(&out, &leaf)
    }

    #[test]
    fn sets_are_sorted_and_their_names_are_names() {
        let one = |set| with_sets(1, &[set], 0).is_ok();
        assert!(one(vec![(b"a", b"1"), (b"b", b"")]));
        assert!(!one(vec![(b"b", b"1"), (b"a", b"")]));
        assert!(!one(vec![(b"a", b"1"), (b"a", b"2")]));
        assert!(!one(vec![]) && !one(vec![(b"", b"1")]) && !one(vec![(b"a\0", b"1")]));
        assert!(with_sets(1, &[vec![(b"a", b"1")]], 1).is_err(), "a set that isn't there");
        assert!(with_sets(1, &[vec![(b"a", b"1")], vec![(b"b", b"1")]], 0).is_err(), "more sets than entries");
    }

    #[test]
    fn entries_share_their_set_and_sets_are_bounded() {
        let names: Vec<Vec<u8>> =
            (0..=BODY_XATTRS_MAX as u32).map(|n| n.to_be_bytes().map(|b| b | 128).to_vec()).collect();
        let mut names: Vec<&[u8]> = names.iter().map(|n| &n[..]).collect();
        names.sort_unstable();
        names.dedup();
        let set: Vec<(&[u8], &[u8])> = names.iter().take(8000).map(|n| (*n, &b"v"[..])).collect();
        let body = with_sets(NODE_ENTRIES_MAX, std::slice::from_ref(&set), 0).unwrap();
        let first = body.contents[0].xattrs.as_ptr();
        assert!(body.contents.iter().all(|c| c.xattrs.as_ptr() == first), "8,192 entries, one set in memory");
        let sets = vec![set; 9];
        assert!(with_sets(NODE_ENTRIES_MAX, &sets[..8], 0).is_ok());
        assert!(with_sets(NODE_ENTRIES_MAX, &sets, 0).is_err(), "72,000 attributes");
    }

    proptest! {
        #[test]
        fn bent_bytes_never_panic(at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let (leaf, body) = sample();
            let mut bytes = body.encode();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = Body::decode(&bytes, &leaf);
        }
    }
}
