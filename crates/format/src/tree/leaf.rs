//! A leaf: names, and what a change test needs. Columns, each of differences to the entry before, so that zstd finds
//! like beside like.

use super::{
    DIR_BYTES_MAX, Kind, Meta, NAME_BYTES_MAX, NODE_ENTRIES_MAX, NODE_TEXT_MAX, NodeKind, Sums, Time, is_dir_path,
    is_name, marks, read_node,
};
use crate::Result;
use crate::wire::{Reader, Writer};

const OBJECT: &str = "tree leaf";

/// Some entries in tree order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Directories and names, one after the other.
    text: Vec<u8>,
    runs: Vec<Run>,
    entries: Vec<Entry>,
    /// Names of the users and groups that occur.
    pub owners: Owners,
}

/// Names of users and groups by their numbers; those without a name are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// User names by uid, in order, each uid once.
    pub users: Vec<(u32, Vec<u8>)>,
    /// Group names by gid, in order, each gid once.
    pub groups: Vec<(u32, Vec<u8>)>,
}

/// Entries of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    dir: (u32, u32),
    first: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: (u32, u32),
    run: u32,
    meta: Meta,
}

impl Leaf {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of text: what bounds a leaf of very long names.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Forget all entries, keep the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.runs.clear();
        self.entries.clear();
        self.owners.users.clear();
        self.owners.groups.clear();
    }

    /// Append an entry, which must come after the last one in tree order.
    pub fn push(&mut self, dir: &[u8], name: &[u8], meta: &Meta) {
        debug_assert!(is_dir_path(dir) && is_name(name));
        if self.runs.is_empty() || self.dir(self.runs.len() - 1) != dir {
            let dir = self.text_push(dir);
            self.runs.push(Run { dir, first: self.entries.len() as u32 });
        }
        let name = self.text_push(name);
        self.entries.push(Entry { name, run: self.runs.len() as u32 - 1, meta: *meta });
    }

    fn text_push(&mut self, bytes: &[u8]) -> (u32, u32) {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        self.text_from(start)
    }

    fn text_from(&self, start: usize) -> (u32, u32) {
        let place = |at| u32::try_from(at).expect("a leaf ends long before its text reaches 4 GiB");
        (place(start), place(self.text.len()))
    }

    fn text(&self, (start, end): (u32, u32)) -> &[u8] {
        &self.text[start as usize..end as usize]
    }

    fn dir(&self, run: usize) -> &[u8] {
        self.text(self.runs[run].dir)
    }

    /// The entry at a position: directory, name, meta.
    #[inline]
    pub fn get(&self, at: usize) -> (&[u8], &[u8], &Meta) {
        let entry = &self.entries[at];
        (self.dir(entry.run as usize), self.text(entry.name), &entry.meta)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &Meta)> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// What it holds.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.entries.iter().for_each(|e| sums.add_entry(&e.meta));
        sums
    }

    /// The leaf's chunk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.text.len() + self.entries.len() * 24);
        out.push(NodeKind::Leaf as u8);
        out.varint(self.entries.len() as u64);
        self.encode_text(&mut out);
        for names in [&self.owners.users, &self.owners.groups] {
            out.varint(names.len() as u64);
            for (id, name) in names {
                out.varint(u64::from(*id));
                out.counted(name);
            }
        }
        self.encode_classes(&mut out);
        let metas = || self.entries.iter().map(|e| &e.meta);
        metas().for_each(|m| out.varint(m.size));
        encode_times(&mut out, metas().map(|m| m.mtime));
        encode_times(&mut out, metas().map(|m| m.ctime));
        metas().for_each(|m| out.zigzag(m.btime.map_or(0, |b| m.ctime.sec.wrapping_sub(b.sec))));
        for m in metas() {
            // 0: no birth time; else its nanoseconds before the ctime's, plus one.
            match m.btime {
                None => out.varint(0),
                Some(b) => out.varint(zigzag(i64::from(m.ctime.nsec) - i64::from(b.nsec)) + 1),
            }
        }
        let mut before = 0u64;
        for m in metas() {
            out.zigzag(m.ino.wrapping_sub(before) as i64);
            before = m.ino;
        }
        encode_sparse(
            &mut out,
            metas(),
            |m| m.nlink > 1,
            |out, m| {
                out.varint(u64::from(m.nlink));
                out.varint(u64::from(m.filesystem));
            },
        );
        encode_sparse(&mut out, metas(), |m| m.rdev != 0, |out, m| out.varint(m.rdev));
        out
    }

    fn encode_text(&self, out: &mut Vec<u8>) {
        out.varint(self.runs.len() as u64);
        let mut before: &[u8] = &[];
        for (at, run) in self.runs.iter().enumerate() {
            let dir = self.text(run.dir);
            let end = self.runs.get(at + 1).map_or(self.entries.len() as u32, |r| r.first);
            out.varint(u64::from(end - run.first));
            let shared = shared(before, dir);
            out.varint(shared as u64);
            out.counted(&dir[shared..]);
            before = dir;
        }
        let mut rests = Vec::with_capacity(self.text.len());
        let (mut before, mut run): (&[u8], u32) = (&[], 0);
        for entry in &self.entries {
            let name = self.text(entry.name);
            let shared = if entry.run == run { shared(before, name) } else { 0 };
            out.varint(shared as u64);
            out.varint((name.len() - shared) as u64);
            rests.extend_from_slice(&name[shared..]);
            (before, run) = (name, entry.run);
        }
        out.extend_from_slice(&rests);
    }

    fn encode_classes(&self, out: &mut Vec<u8>) {
        let class = |m: &Meta| (m.kind as u8, m.mode, m.marks, m.uid, m.gid);
        let mut classes = Vec::new();
        let mut numbers = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let class = class(&entry.meta);
            // Few classes occur, the latest ones most often.
            let number = classes.iter().rposition(|c| *c == class).unwrap_or_else(|| {
                classes.push(class);
                classes.len() - 1
            });
            numbers.varint(number as u64);
        }
        out.varint(classes.len() as u64);
        for (kind, mode, marks, uid, gid) in classes {
            out.push(kind);
            out.varint(u64::from(mode));
            out.push(marks);
            out.varint(u64::from(uid));
            out.varint(u64::from(gid));
        }
        out.extend_from_slice(&numbers);
    }

    /// Read what [`Leaf::encode`] wrote. The entries are in order and their names are names.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = read_node(bytes, NodeKind::Leaf, OBJECT)?;
        let len = r.count_up_to(ENTRY_BYTES_MIN, NODE_ENTRIES_MAX)?;
        if len == 0 {
            return r.fail("it has no entries");
        }
        let mut leaf = Leaf { entries: Vec::with_capacity(len), ..Leaf::default() };
        leaf.decode_text(&mut r, len)?;
        for names in [&mut leaf.owners.users, &mut leaf.owners.groups] {
            for _ in 0..r.count_up_to(2, len)? {
                let (id, name) = (r.u32()?, r.counted()?);
                if names.last().is_some_and(|(before, _)| *before >= id) {
                    return r.fail("its owners' names are not in order");
                }
                if name.len() > NAME_BYTES_MAX {
                    return r.fail("an owner's name is too long");
                }
                names.push((id, name.to_vec()));
            }
        }
        leaf.decode_classes(&mut r)?;
        let entries = &mut leaf.entries;
        for e in entries.iter_mut() {
            e.meta.size = r.varint()?;
        }
        decode_times(&mut r, entries, |m| &mut m.mtime)?;
        decode_times(&mut r, entries, |m| &mut m.ctime)?;
        for e in entries.iter_mut() {
            e.meta.btime = Some(Time { sec: r.zigzag()?, nsec: 0 });
        }
        for e in entries.iter_mut() {
            let (ctime, coded) = (e.meta.ctime, r.varint()?);
            let before = e.meta.btime.map_or(0, |b| b.sec);
            e.meta.btime = match coded.checked_sub(1) {
                Some(coded) => Some(Time {
                    sec: ctime.sec.wrapping_sub(before),
                    nsec: nanoseconds(&r, i64::from(ctime.nsec).wrapping_sub(unzigzag(coded)))?,
                }),
                None if before == 0 => None,
                None => return r.fail("a birth time has seconds and is not known"),
            };
        }
        let mut before = 0u64;
        for e in entries.iter_mut() {
            before = before.wrapping_add(r.zigzag()? as u64);
            e.meta.ino = before;
        }
        decode_sparse(&mut r, entries, |r, m| {
            m.nlink = r.u32()?;
            m.filesystem = r.u32()?;
            match (m.nlink, m.kind) {
                (0 | 1, _) => r.fail("a hard link has no other"),
                (_, Kind::Dir) => r.fail("a directory has several hard links"),
                _ => Ok(()),
            }
        })?;
        decode_sparse(&mut r, entries, |r, m| {
            m.rdev = r.varint()?;
            Ok(())
        })?;
        r.end()?;
        Ok(leaf)
    }

    fn decode_text(&mut self, r: &mut Reader, len: usize) -> Result<()> {
        let runs = r.count_up_to(3, len)?;
        let mut total = 0usize;
        for _ in 0..runs {
            let count = r.varint()?;
            let shared = r.index()?;
            let rest = r.counted()?;
            let before = self.runs.last().map(|run| run.dir);
            let Some(prefix) = before.map_or(Some(&[][..]), |d| Some(self.text(d))).and_then(|b| b.get(..shared))
            else {
                return r.fail("a directory shares more than there is");
            };
            let dir_len = prefix.len() + rest.len();
            if dir_len > DIR_BYTES_MAX || self.text.len() + dir_len > NODE_TEXT_MAX {
                return r.fail("its directories and names are too long");
            }
            let dir = [prefix, rest].concat();
            if !is_dir_path(&dir) || before.is_some_and(|b| self.text(b) >= &dir[..]) {
                return r.fail("a directory is not a path, or out of order");
            }
            if count == 0 || count > (len - total) as u64 {
                return r.fail("its directories count other entries than it has");
            }
            let dir = self.text_push(&dir);
            self.runs.push(Run { dir, first: total as u32 });
            total += count as usize;
        }
        if total != len {
            return r.fail("its directories count other entries than it has");
        }
        let mut lens = Vec::with_capacity(len);
        let mut rest_total = 0usize;
        for _ in 0..len {
            let (shared, rest) = (r.varint()?, r.varint()?);
            if shared.max(rest) > NAME_BYTES_MAX as u64 {
                return r.fail("a name is too long");
            }
            lens.push((shared as usize, rest as usize));
            rest_total += rest as usize;
        }
        let mut rests = r.take(rest_total)?;
        for run in 0..runs as u32 {
            let first = self.runs[run as usize].first as usize;
            let end = self.runs.get(run as usize + 1).map_or(len, |r| r.first as usize);
            let mut before = (0u32, 0u32);
            for &(shared, rest) in &lens[first..end] {
                if shared > (before.1 - before.0) as usize {
                    return r.fail("a name shares more than there is");
                }
                let (rest, left) = rests.split_at(rest);
                rests = left;
                let start = self.text.len();
                if start + shared + rest.len() > NODE_TEXT_MAX {
                    return r.fail("its directories and names are too long");
                }
                self.text.extend_from_within(before.0 as usize..before.0 as usize + shared);
                self.text.extend_from_slice(rest);
                let name = self.text_from(start);
                let bytes = self.text(name);
                if !is_name(bytes) || before.1 > 0 && self.text(before) >= bytes {
                    return r.fail("a name is not a name, or out of order");
                }
                before = name;
                self.entries.push(Entry { name, run, meta: EMPTY });
            }
        }
        Ok(())
    }

    fn decode_classes(&mut self, r: &mut Reader) -> Result<()> {
        let mut classes = Vec::new();
        for _ in 0..r.count_up_to(5, self.len())? {
            let Some(kind) = Kind::from_number(r.u8()?) else {
                return r.fail("an entry is of no known type");
            };
            let (mode, marks) = (r.varint()?, r.u8()?);
            if mode > 0o7777 || marks & !marks::KNOWN != 0 {
                return r.fail("an entry has a mode or a mark that this version doesn't know");
            }
            classes.push(Meta { kind, mode: mode as u16, marks, uid: r.u32()?, gid: r.u32()?, ..EMPTY });
        }
        for entry in &mut self.entries {
            match classes.get(r.index()?) {
                Some(class) => entry.meta = *class,
                None => return r.fail("an entry is of a class that isn't there"),
            }
        }
        Ok(())
    }
}

/// What the columns take for one entry at least.
const ENTRY_BYTES_MIN: usize = 12;

const EMPTY: Meta = Meta {
    kind: Kind::File,
    mode: 0,
    marks: 0,
    uid: 0,
    gid: 0,
    size: 0,
    mtime: Time { sec: 0, nsec: 0 },
    ctime: Time { sec: 0, nsec: 0 },
    btime: None,
    ino: 0,
    nlink: 1,
    filesystem: 0,
    rdev: 0,
};

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(coded: u64) -> i64 {
    (coded >> 1) as i64 ^ -((coded & 1) as i64)
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// A column of seconds, then one of nanoseconds, as differences.
fn encode_times(out: &mut Vec<u8>, times: impl Iterator<Item = Time> + Clone) {
    let mut before = 0i64;
    for t in times.clone() {
        out.zigzag(t.sec.wrapping_sub(before));
        before = t.sec;
    }
    let mut before = 0i64;
    for t in times {
        out.zigzag(i64::from(t.nsec) - before);
        before = i64::from(t.nsec);
    }
}

fn decode_times(r: &mut Reader, entries: &mut [Entry], of: impl Fn(&mut Meta) -> &mut Time) -> Result<()> {
    let mut sec = 0i64;
    for e in entries.iter_mut() {
        sec = sec.wrapping_add(r.zigzag()?);
        of(&mut e.meta).sec = sec;
    }
    let mut nsec = 0i64;
    for e in entries.iter_mut() {
        let step = r.zigzag()?;
        let value = nanoseconds(r, nsec.wrapping_add(step))?;
        of(&mut e.meta).nsec = value;
        nsec = i64::from(value);
    }
    Ok(())
}

fn nanoseconds(r: &Reader, value: i64) -> Result<u32> {
    match u32::try_from(value) {
        Ok(value) if value < 1_000_000_000 => Ok(value),
        _ => r.fail("a time has too many nanoseconds"),
    }
}

/// The entries that have something: how many, then for each its distance from the one before and the thing.
fn encode_sparse<'a>(
    out: &mut Vec<u8>,
    metas: impl Iterator<Item = &'a Meta> + Clone,
    has: impl Fn(&Meta) -> bool,
    write: impl Fn(&mut Vec<u8>, &Meta),
) {
    out.varint(metas.clone().filter(|m| has(m)).count() as u64);
    let mut before = 0;
    for (at, m) in metas.enumerate().filter(|(_, m)| has(m)) {
        out.varint((at - before) as u64);
        before = at;
        write(out, m);
    }
}

fn decode_sparse(
    r: &mut Reader,
    entries: &mut [Entry],
    mut read: impl FnMut(&mut Reader, &mut Meta) -> Result<()>,
) -> Result<()> {
    let mut at = 0usize;
    for number in 0..r.count(2)? {
        let step = r.index()?;
        if number > 0 && step == 0 {
            return r.fail("it speaks twice of an entry");
        }
        at = at.saturating_add(step);
        match entries.get_mut(at) {
            Some(entry) => read(r, &mut entry.meta)?,
            None => return r.fail("it speaks of an entry that isn't there"),
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    pub(crate) fn meta() -> impl Strategy<Value = Meta> {
        let sec = || prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), Just(0)];
        let time = || (sec(), 0u32..1_000_000_000).prop_map(|(sec, nsec)| Time { sec, nsec });
        let near = (1_700_000_000i64..1_700_000_100, 0u32..1000).prop_map(|(sec, nsec)| Time { sec, nsec });
        (
            (0u8..7, 0u16..0o10000, 0u8..8, any::<u32>(), 0u32..3),
            (any::<u64>(), prop_oneof![time(), near.clone()], prop_oneof![time(), near], proptest::option::of(time())),
            (any::<u64>(), 1u32..4, any::<u32>(), prop_oneof![Just(0), any::<u64>()]),
        )
            .prop_map(
                |((kind, mode, marks, uid, gid), (size, mtime, ctime, btime), (ino, nlink, filesystem, rdev))| {
                    let kind = Kind::from_number(kind).unwrap();
                    let linked = nlink > 1 && kind != Kind::Dir;
                    let (nlink, filesystem) = if linked { (nlink, filesystem) } else { (1, 0) };
                    Meta { kind, mode, marks, uid, gid, size, mtime, ctime, btime, ino, nlink, filesystem, rdev }
                },
            )
    }

    pub(crate) fn leaf() -> impl Strategy<Value = Leaf> {
        let name = || {
            proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), 1u8..=255], 1..6)
                .prop_map(|n| n.into_iter().map(|b| if b == b'/' { b'x' } else { b }).collect::<Vec<u8>>())
                .prop_filter("dots", |n| n != b"." && n != b"..")
        };
        let dir = proptest::collection::vec(name(), 0..4).prop_map(|c| c.join(&0));
        proptest::collection::btree_map((dir, name()), meta(), 1..40).prop_map(from_map)
    }

    fn from_map(map: BTreeMap<(Vec<u8>, Vec<u8>), Meta>) -> Leaf {
        let mut leaf = Leaf::default();
        map.iter().for_each(|((dir, name), meta)| leaf.push(dir, name, meta));
        leaf.owners.users.push((0, b"root".to_vec()));
        leaf.owners.groups.push((5, b"tty".to_vec()));
        leaf
    }

    /// A directory of nearly 1 MiB, with room for four digits behind it.
    pub(crate) fn long_dir() -> Vec<u8> {
        let component = [&[b'a'; 1000][..], &[0]].concat();
        component.repeat((1 << 20) / 1001)
    }

    /// Entries in directories of nearly 1 MiB that share all but their ends.
    fn bomb(runs: usize) -> Vec<u8> {
        let dir = long_dir();
        let mut out = vec![NodeKind::Leaf as u8];
        out.varint(runs as u64);
        out.varint(runs as u64);
        for at in 0..runs {
            let end = format!("{at:04}");
            let shared = if at == 0 { 0 } else { dir.len() };
            out.varint(1);
            out.varint(shared as u64);
            out.counted(&[&dir[shared..], end.as_bytes()].concat());
        }
        out.extend([0, 1].repeat(runs));
        out.extend(vec![b'x'; runs]);
        out.extend([0, 0, 1, 0, 0, 0, 0, 0]);
        // Class, size, two for each of the three times, inode.
        out.extend(vec![0; runs * 9]);
        out.extend([0, 0]);
        out
    }

    #[test]
    fn shared_directories_do_not_fill_memory() {
        assert_eq!(Leaf::decode(&bomb(3)).unwrap().len(), 3);
        assert!(Leaf::decode(&bomb(5)).is_err());
        assert!(Leaf::decode(&bomb(8000)).is_err());
        // Names: one of 1,000 bytes, and thousands that share nearly all of it.
        let names = |count: usize| {
            let mut leaf = Leaf::default();
            for at in 0..count {
                leaf.push(b"", format!("{}{at:05}", "n".repeat(995)).as_bytes(), &EMPTY);
            }
            leaf.encode()
        };
        assert!(names(8000).len() < 1 << 20);
        assert!(Leaf::decode(&names(4000)).is_ok());
        assert!(Leaf::decode(&names(8000)).is_err());
    }

    /// One entry, with `owners` users and `classes` classes.
    fn crowded(owners: u64, classes: u64) -> Vec<u8> {
        let mut out = vec![NodeKind::Leaf as u8, 1, 1, 1, 0, 0, 0, 1, b'x'];
        out.varint(owners);
        (0..owners).for_each(|id| {
            out.varint(id);
            out.counted(b"");
        });
        out.push(0);
        out.varint(classes);
        out.extend(vec![0; classes as usize * 5]);
        out.extend([0; 9]);
        out.extend([0, 0]);
        out
    }

    #[test]
    fn no_more_owners_and_classes_than_entries() {
        assert!(Leaf::decode(&crowded(1, 1)).is_ok());
        assert!(Leaf::decode(&crowded(2, 1)).is_err());
        assert!(Leaf::decode(&crowded(1, 2)).is_err());
        assert!(Leaf::decode(&crowded(1 << 20, 1)).is_err());
    }

    /// Leaves that are right in all but one thing.
    #[test]
    fn what_no_reader_may_take_is_refused() {
        let of = |entries: usize, owners: &[usize]| {
            let mut leaf = Leaf::default();
            for n in 0..entries {
                let meta = Meta { uid: n as u32, ..EMPTY };
                leaf.push(b"", format!("{n:06}").as_bytes(), &meta);
            }
            leaf.owners.users.extend((0..).zip(owners).map(|(id, len)| (id, vec![b'u'; *len])));
            Leaf::decode(&leaf.encode())
        };
        assert!(of(NODE_ENTRIES_MAX, &[]).is_ok());
        assert!(of(NODE_ENTRIES_MAX + 1, &[]).is_err());
        assert!(of(1, &[NAME_BYTES_MAX]).is_ok());
        assert!(of(1, &[NAME_BYTES_MAX + 1]).is_err());
        // Beyond 8 MiB as a whole, by names that are all right.
        assert!(of(NODE_ENTRIES_MAX, &[NAME_BYTES_MAX; 7000]).is_ok());
        assert!(of(NODE_ENTRIES_MAX, &[NAME_BYTES_MAX; NODE_ENTRIES_MAX]).is_err());
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let named = |len: usize| {
            let (mut name, mut bytes) = (Vec::new(), crowded(1, 1));
            name.varint(len as u64);
            name.extend(vec![b'x'; len]);
            bytes.splice(7..9, name);
            Leaf::decode(&bytes)
        };
        assert!(named(NAME_BYTES_MAX).is_ok());
        assert!(named(NAME_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let two = |change: fn(&mut Leaf)| {
            let mut leaf = Leaf::default();
            leaf.push(b"", b"a", &Meta { kind: Kind::Dir, ..EMPTY });
            leaf.push(b"", b"b", &Meta { uid: 7, ..EMPTY });
            leaf.owners.users.extend([(0, b"root".to_vec()), (7, b"u".to_vec())]);
            change(&mut leaf);
            Leaf::decode(&leaf.encode())
        };
        assert!(two(|_| ()).is_ok());
        assert!(two(|leaf| leaf.owners.users.reverse()).is_err());
        assert!(two(|leaf| leaf.owners.users[1].0 = 0).is_err(), "one user twice");
        assert!(two(|leaf| leaf.owners.groups.extend([(5, vec![]), (4, vec![])])).is_err());
        assert!(two(|leaf| leaf.entries[1].meta.nlink = 2).is_ok());
        assert!(two(|leaf| leaf.entries[0].meta.nlink = 2).is_err(), "a directory has one name");
        assert!(two(|leaf| leaf.entries[0].meta.marks = 8).is_err());
        assert!(two(|leaf| leaf.entries[1].meta.marks = marks::KNOWN).is_ok());
    }

    #[test]
    fn birth_times_are_exact_at_the_extremes() {
        for (ctime, birth) in [(i64::MIN, 0), (0, i64::MIN), (i64::MAX, i64::MIN), (i64::MIN, i64::MAX), (5, 5)] {
            let (nsec, most) = (0, 999_999_999);
            let meta = Meta { ctime: Time { sec: ctime, nsec }, btime: Some(Time { sec: birth, nsec: most }), ..EMPTY };
            let mut leaf = Leaf::default();
            leaf.push(b"", b"a", &meta);
            leaf.push(b"", b"b", &Meta { btime: None, ..meta });
            let back = Leaf::decode(&leaf.encode()).unwrap();
            assert_eq!((back.get(0).2, back.get(1).2.btime), (&meta, None));
        }
    }

    proptest! {
        #[test]
        fn round_trip(leaf in leaf()) {
            let back = Leaf::decode(&leaf.encode()).unwrap();
            prop_assert!(back.iter().eq(leaf.iter()));
            prop_assert_eq!(&back.owners, &leaf.owners);
            prop_assert_eq!(back.encode(), leaf.encode());
        }

        #[test]
        fn hostile_bytes_never_panic(leaf in leaf(), at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = leaf.encode();
            let _ = Leaf::decode(&bytes[..cut.index(bytes.len())]);
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok(leaf) = Leaf::decode(&bytes) {
                let keys: Vec<_> = leaf.iter().map(|(d, n, _)| (d.to_vec(), n.to_vec())).collect();
                prop_assert!(keys.is_sorted_by(|a, b| a < b));
                prop_assert!(keys.iter().all(|(d, n)| is_dir_path(d) && is_name(n)));
            }
        }

        #[test]
        fn noise_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 1..300)) {
            bytes[0] = 1;
            let _ = Leaf::decode(&bytes);
        }
    }
}
