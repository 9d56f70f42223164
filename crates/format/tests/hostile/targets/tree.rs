//! Leaves, bodies, inner nodes, chunk lists.

use super::*;

fn meta(kind: Kind) -> Meta {
    Meta {
        kind,
        mode: 0o644,
        marks: 0,
        uid: 1000,
        gid: 100,
        size: 0,
        mtime: Time { sec: 1_700_000_000, nsec: 7 },
        ctime: Time { sec: 1_700_000_200, nsec: 9 },
        btime: Some(Time { sec: 1_600_000_000, nsec: 999_999_999 }),
        ino: 50,
        nlink: 1,
        filesystem: 0,
        rdev: 0,
    }
}

/// One entry of each kind.
fn sample_leaf() -> Leaf {
    let mut leaf = Leaf::default();
    leaf.push(b"", b"home", &meta(Kind::Dir));
    leaf.push(b"home", b"abc", &Meta { size: 5, ..meta(Kind::File) });
    leaf.push(b"home", b"abd", &Meta { size: 100, nlink: 2, filesystem: 3, ino: 40, ..meta(Kind::File) });
    leaf.push(b"home", b"empty", &Meta { btime: None, ..meta(Kind::File) });
    leaf.push(b"home", b"link", &Meta { size: 3, mode: 0o777, uid: 0, ..meta(Kind::Symlink) });
    leaf.push(b"home\0u", b"dev", &Meta { rdev: 0x801, ..meta(Kind::BlockDevice) });
    leaf.push(b"home\0u", b"gone", &Meta { size: 9, marks: 1, ..meta(Kind::File) });
    leaf.push(b"home\0uu", b"\xff", &Meta { mtime: Time { sec: -5, nsec: 0 }, ..meta(Kind::Fifo) });
    leaf.owners.users.push((0, b"root".to_vec()));
    leaf.owners.users.push((1000, b"u".to_vec()));
    leaf.owners.groups.push((100, b"users".to_vec()));
    leaf
}

/// A leaf's chunk.
pub fn leaf(bytes: &[u8]) -> bool {
    let most = 40 * bytes.len() + node_text(bytes.len());
    let Ok(leaf) = bounded(most, || Leaf::decode(bytes)) else { return false };
    assert!(!leaf.is_empty());
    assert!(leaf.iter().all(|(dir, name, _)| is_dir_path(dir) && is_name(name)));
    assert!(leaf.iter().is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    assert_eq!(leaf.sums().entries, leaf.len() as u64);
    assert_eq!(Leaf::decode(&leaf.encode()).as_ref(), Ok(&leaf));
    true
}

pub fn leaf_samples() -> Vec<Vec<u8>> {
    let mut long = Leaf::default();
    for at in 0..300u64 {
        let dir = format!("dir{}", at / 100);
        long.push(dir.as_bytes(), format!("file {at:04}").as_bytes(), &Meta { ino: at * 3, ..meta(Kind::File) });
    }
    vec![sample_leaf().encode(), long.encode()]
}

/// The length of a leaf's chunk in two bytes (little-endian), that chunk, and its body's.
pub fn body(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return false };
    let Some((leaf, bytes)) = rest.split_at_checked(u16::from_le_bytes(*len).into()) else { return false };
    // Where the leaf is nothing, the body is still worth a try.
    let leaf = Leaf::decode(leaf).unwrap_or_else(|_| sample_leaf());
    let most = 200 * leaf.len() + 64 * bytes.len() + 4096;
    let Ok(body) = bounded(most, || Body::decode(bytes, &leaf)) else { return false };
    assert_eq!(body.contents.len(), leaf.len());
    for (content, (_, _, meta)) in body.contents.iter().zip(leaf.iter()) {
        content.check(meta).unwrap();
        if let Data::List(list) = &content.data {
            assert_eq!(list.refs.iter().map(Ref::len).sum::<u64>(), meta.size);
        }
        assert!(content.xattrs.is_sorted_by(|a, b| a.0 < b.0));
    }
    assert_eq!(Body::decode(&body.encode(), &leaf).as_ref(), Ok(&body));
    true
}

pub fn body_samples() -> Vec<Vec<u8>> {
    let leaf = sample_leaf();
    let xattrs = Xattrs::from(vec![(b"user.a".to_vec(), b"v".to_vec()), (b"user.b".to_vec(), Vec::new())]);
    let other = Xattrs::from(vec![(b"system.posix_acl_access".to_vec(), vec![2; 28])]);
    let refs = vec![
        Ref::Hole { len: 30 },
        Ref::Chunk { id: ChunkId([2; 32]), len: 40 },
        Ref::Hole { len: 20 },
        Ref::Chunk { id: ChunkId([3; 32]), len: 10 },
    ];
    let contents = vec![
        Content { xattrs: xattrs.clone(), flags: 0x40, ..Content::default() },
        Content { data: Data::Chunk(ChunkId([1; 32])), xattrs, ..Content::default() },
        Content { data: Data::List(List { level: 1, refs, whole: [7; 32] }), ..Content::default() },
        Content { xattrs: other, ..Content::default() },
        Content { target: b"abc".to_vec(), ..Content::default() },
        Content::default(),
        Content::default(),
        Content::default(),
    ];
    let leaf = leaf.encode();
    vec![[&(leaf.len() as u16).to_le_bytes()[..], &leaf, &Body { contents }.encode()].concat()]
}

/// An inner node's chunk, taken to be of the level that it says.
pub fn inner(bytes: &[u8]) -> bool {
    let level = bytes.get(1).copied().unwrap_or(1);
    let most = 16 * bytes.len() + node_text(bytes.len());
    let Ok(inner) = bounded(most, || Inner::decode(bytes, level)) else { return false };
    assert!(inner.level == level && !inner.children.is_empty());
    assert!(inner.children.iter().all(|c| is_dir_path(&c.dir) && is_name(&c.name)));
    assert!(inner.children.iter().is_sorted_by(|a, b| (&a.dir, &a.name) < (&b.dir, &b.name)));
    for (at, child) in inner.children.iter().enumerate() {
        assert_eq!(inner.find(&child.dir, &child.name), at);
    }
    let _ = inner.sums();
    assert_eq!(Inner::decode(&inner.encode(), level).as_ref(), Ok(&inner));
    true
}

pub fn inner_samples() -> Vec<Vec<u8>> {
    let sample = |level: u8| {
        let child = |dir: &[u8], name: &[u8], byte: u8| Child {
            dir: dir.to_vec(),
            name: name.to_vec(),
            node: ChunkId([byte; 32]),
            body: (level == 1).then_some(ChunkId([byte + 100; 32])),
            sums: Sums { entries: 300, files: 200, dirs: 50, bytes: 1 << 40 },
        };
        let children = vec![
            child(b"", b"a", 1),
            child(b"", b"ab", 2),
            child(b"home\0u", b"b", 3),
            child(b"home\0v", b"a", 4),
            child(b"home\0v\0deeper", b"a", 5),
        ];
        Inner { level, children }.encode()
    };
    vec![sample(1), sample(2), sample(16)]
}

/// A node of a chunk list, taken to be of the level that it says and, if its refs can be counted, of their length.
pub fn list(bytes: &[u8]) -> bool {
    let level = bytes.get(1).copied().unwrap_or(0);
    let len = list_len(bytes.get(2..).unwrap_or(&[])).unwrap_or(0);
    let most = 64 * bytes.len() + 1024;
    let Ok(node) = bounded(most, || ListNode::decode(bytes, level, len)) else { return false };
    assert!(node.refs.iter().all(|r| !r.is_empty()));
    assert_eq!(node.refs.iter().map(Ref::len).sum::<u64>(), len);
    assert_eq!(ListNode::decode(&node.encode(), level, len).as_ref(), Ok(&node));
    assert!(ListNode::decode(bytes, level, len.wrapping_add(1)).is_err());
    true
}

fn list_len(mut bytes: &[u8]) -> Option<u64> {
    let mut next = || {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let count = next()?;
    (0..count).try_fold(0u64, |sum, _| sum.checked_add(next()? >> 1))
}

pub fn list_samples() -> Vec<Vec<u8>> {
    let chunk = |byte, len| Ref::Chunk { id: ChunkId([byte; 32]), len };
    let mixed = vec![chunk(1, 65536), Ref::Hole { len: 1 << 40 }, chunk(2, 1), Ref::Hole { len: 4096 }];
    let many = (0..100).map(|n| chunk(n, 70_000 + u64::from(n))).collect();
    let far = vec![Ref::Hole { len: (1 << 63) - 1 }, chunk(1, 1 << 62), Ref::Hole { len: 5 }, chunk(2, 1)];
    [(0, mixed), (1, many), (0, far)].into_iter().map(|(level, refs)| ListNode { level, refs }.encode()).collect()
}
