//! A run: chunk locations, sorted, in a file that never changes; read by the page with `pread`, so that a file cut
//! short is an error and not a signal.
//!
//! ```text
//! page 0 …:  127 entries (24 bytes of id, pack u32, ordinal u32) | count u32 | 12 zero bytes | checksum (16)
//! tail:      first keys of the pages (u64 each) | filters | packs | checksum (16)
//! end:       magic (8) | pages u32 | filters u32 | packs u32 | entries u64 | tail offset u64 | checksum (16)
//! ```
//!
//! A filter (binary fuse, Graf & Lemire 2022, 9 bits a key) covers the entries of up to 512 pages: built piece by
//! piece, so that merging needs little memory, and asked first, so that a chunk nobody has costs no read.
//! 24 bytes of an identity can't be met by chance or by design (2^96 tries for a collision of one's own making).

use crate::{Error, names};
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, PackId};
use drumlin_seal::checksum;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use xorf::{BinaryFuse8, Descriptor, Filter};

const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 32;
const PAGE_ENTRIES: usize = 127;
const SEGMENT_PAGES: usize = 512;
const END_BYTES: usize = 52;
const MAGIC: &[u8; 8] = b"drumrun\x01";
const PACK_BYTES: usize = 41;

/// The part of an identity that runs keep.
pub(crate) type Key = [u8; 24];

pub(crate) fn key(id: &ChunkId) -> Key {
    let mut key = [0; 24];
    key.copy_from_slice(&id.0[..24]);
    key
}

/// What the index knows of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackInfo {
    /// The pack.
    pub id: PackId,
    /// What it holds.
    pub kind: PackKind,
    /// The tag of its generation.
    pub generation: u32,
    /// Bytes of the whole pack.
    pub len: u64,
    /// Where its sealed table begins.
    pub table_offset: u64,
    /// Bytes of its sealed table.
    pub table_len: u32,
}

impl PackInfo {
    /// Its name in the storage.
    pub fn name(&self) -> String {
        names::pack(self.kind, self.id)
    }

    /// What is wrong with a block of it, by the block's position in its table.
    pub fn damaged_block(&self, block: u32, detail: &'static str) -> Error {
        Error::DamagedBlock { name: self.name(), block, detail }
    }
}

/// An entry: a chunk's key, its pack's number among the run's packs, its place in that pack's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunEntry {
    pub key: Key,
    pub pack: u32,
    pub ordinal: u32,
}

/// An open run.
pub(crate) struct Run {
    file: File,
    first_keys: Vec<u64>,
    filters: Vec<BinaryFuse8>,
    pub packs: Vec<Arc<PackInfo>>,
    pub entries: u64,
}

impl Run {
    /// Bytes of memory that an open run takes.
    pub fn memory(&self) -> usize {
        self.first_keys.len() * 8
            + self.filters.iter().map(|f| f.fingerprints.len()).sum::<usize>()
            + self.packs.len() * 64
    }

    /// Where a chunk is: pack number in this run, ordinal. Of several places that hold it, the first that will do.
    pub fn lookup(&self, wanted: &Key, mut will_do: impl FnMut(u32, u32) -> bool) -> io::Result<Option<(u32, u32)>> {
        let top = top(wanted);
        // The last page that begins at or before the key; equal tops across a page border are looked up in both.
        let end = self.first_keys.partition_point(|k| *k <= top);
        let same = self.first_keys[..end].iter().rev().take_while(|k| **k == top).count();
        let start = (end - same).saturating_sub(1);
        for page in start..end {
            if !self.filters[page / SEGMENT_PAGES].contains(&filter_key(wanted)) {
                continue;
            }
            let bytes = self.page(page)?;
            let count = page_count(&bytes)?;
            let entries = &bytes[..count * ENTRY_BYTES];
            let at = partition(entries, |e| e[..24] < wanted[..]);
            let from_there = entries.chunks_exact(ENTRY_BYTES).skip(at);
            for entry in from_there.take_while(|e| e[..24] == wanted[..]).map(decode_entry) {
                if entry.pack as usize >= self.packs.len() {
                    return Err(bad());
                }
                if will_do(entry.pack, entry.ordinal) {
                    return Ok(Some((entry.pack, entry.ordinal)));
                }
            }
        }
        Ok(None)
    }

    fn page(&self, page: usize) -> io::Result<[u8; PAGE_BYTES]> {
        let mut bytes = [0; PAGE_BYTES];
        self.file.read_exact_at(&mut bytes, (page * PAGE_BYTES) as u64)?;
        if bytes[PAGE_BYTES - 16..] != checksum(&bytes[..PAGE_BYTES - 16]) { Err(bad()) } else { Ok(bytes) }
    }

    /// Whether all of it can be read.
    pub fn is_sound(&self) -> bool {
        self.iter().all(|entry| entry.is_ok())
    }

    /// All entries in order.
    pub fn iter(&self) -> RunIter<'_> {
        RunIter { run: self, page: 0, entries: Vec::new().into_iter() }
    }

    /// Open a run that [`RunWriter`] wrote.
    pub fn open(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let end_at = len.checked_sub(END_BYTES as u64).ok_or_else(bad)?;
        let mut end = [0; END_BYTES];
        file.read_exact_at(&mut end, end_at)?;
        if &end[..8] != MAGIC || end[36..] != checksum(&end[..36]) {
            return Err(bad());
        }
        let u32_at = |at: usize| u32::from_le_bytes(end[at..at + 4].try_into().expect("4 bytes")) as usize;
        let u64_at = |at: usize| u64::from_le_bytes(end[at..at + 8].try_into().expect("8 bytes"));
        let (pages, filters, packs) = (u32_at(8), u32_at(12), u32_at(16));
        let (entries, tail_at) = (u64_at(20), u64_at(28));
        let tail_len = end_at.checked_sub(tail_at).ok_or_else(bad)?;
        if tail_at != (pages * PAGE_BYTES) as u64 || (pages * 8 + packs * PACK_BYTES + 16) as u64 > tail_len {
            return Err(bad());
        }
        let mut tail = vec![0; tail_len as usize];
        file.read_exact_at(&mut tail, tail_at)?;
        let Some((mut rest, sum)) = tail.split_last_chunk::<16>() else { return Err(bad()) };
        if *sum != checksum(rest) || filters != pages.div_ceil(SEGMENT_PAGES) {
            return Err(bad());
        }
        let mut take = |n: usize| {
            let (head, left) = rest.split_at_checked(n).ok_or_else(bad)?;
            rest = left;
            Ok::<_, io::Error>(head)
        };
        let first_keys =
            take(pages * 8)?.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect();
        let filters = (0..filters).map(|_| decode_filter(&mut take)).collect::<io::Result<_>>()?;
        let packs = take(packs * PACK_BYTES)?.chunks_exact(PACK_BYTES).map(decode_pack).collect::<io::Result<_>>()?;
        Ok(Run { file, first_keys, filters, packs, entries })
    }
}

/// Writes a run from entries that come in order.
pub(crate) struct RunWriter {
    out: BufWriter<File>,
    page: Vec<u8>,
    first_keys: Vec<u64>,
    filters: Vec<BinaryFuse8>,
    segment: Vec<u64>,
    last: Option<(Key, u32)>,
    entries: u64,
}

impl RunWriter {
    /// Write to an empty file.
    pub fn new(file: File) -> Self {
        RunWriter {
            out: BufWriter::with_capacity(1 << 16, file),
            page: Vec::with_capacity(PAGE_BYTES),
            first_keys: Vec::new(),
            filters: Vec::new(),
            segment: Vec::new(),
            last: None,
            entries: 0,
        }
    }

    /// Append an entry; of several with one key in one pack the first stays. What stands in several packs has an entry
    /// for each: one of them may be gone or shunned.
    pub fn push(&mut self, entry: RunEntry) -> io::Result<()> {
        if self.last == Some((entry.key, entry.pack)) {
            return Ok(());
        }
        self.last = Some((entry.key, entry.pack));
        if self.page.is_empty() {
            self.first_keys.push(top(&entry.key));
        }
        self.page.extend_from_slice(&entry.key);
        self.page.extend_from_slice(&entry.pack.to_le_bytes());
        self.page.extend_from_slice(&entry.ordinal.to_le_bytes());
        self.segment.push(filter_key(&entry.key));
        self.entries += 1;
        if self.page.len() == PAGE_ENTRIES * ENTRY_BYTES { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> io::Result<()> {
        let count = (self.page.len() / ENTRY_BYTES) as u32;
        self.page.resize(PAGE_ENTRIES * ENTRY_BYTES, 0xff);
        self.page.extend_from_slice(&count.to_le_bytes());
        self.page.extend_from_slice(&[0; 12]);
        let sum = checksum(&self.page);
        self.page.extend_from_slice(&sum);
        self.out.write_all(&self.page)?;
        self.page.clear();
        if self.first_keys.len().is_multiple_of(SEGMENT_PAGES) { self.end_segment() } else { Ok(()) }
    }

    fn end_segment(&mut self) -> io::Result<()> {
        self.segment.sort_unstable();
        // Different ids may share their filter key; the filter wants each key once.
        self.segment.dedup();
        self.filters.push(BinaryFuse8::try_from(&self.segment).map_err(io::Error::other)?);
        self.segment.clear();
        Ok(())
    }

    /// Write the rest and open the run.
    pub fn finish(mut self, packs: &[Arc<PackInfo>]) -> io::Result<Run> {
        if !self.page.is_empty() {
            self.end_page()?;
        }
        if !self.segment.is_empty() {
            self.end_segment()?;
        }
        let mut tail = Vec::new();
        self.first_keys.iter().for_each(|k| tail.extend_from_slice(&k.to_le_bytes()));
        self.filters.iter().for_each(|f| encode_filter(f, &mut tail));
        packs.iter().for_each(|p| encode_pack(p, &mut tail));
        let sum = checksum(&tail);
        tail.extend_from_slice(&sum);
        let mut end = MAGIC.to_vec();
        for n in [self.first_keys.len(), self.filters.len(), packs.len()] {
            end.extend_from_slice(&(n as u32).to_le_bytes());
        }
        end.extend_from_slice(&self.entries.to_le_bytes());
        end.extend_from_slice(&((self.first_keys.len() * PAGE_BYTES) as u64).to_le_bytes());
        let sum = checksum(&end);
        end.extend_from_slice(&sum);
        self.out.write_all(&tail)?;
        self.out.write_all(&end)?;
        let file = self.out.into_inner().map_err(|e| e.into_error())?;
        Ok(Run {
            file,
            first_keys: self.first_keys,
            filters: self.filters,
            packs: packs.to_vec(),
            entries: self.entries,
        })
    }
}

/// The entries of a run in order.
pub(crate) struct RunIter<'a> {
    run: &'a Run,
    page: usize,
    entries: std::vec::IntoIter<RunEntry>,
}

impl Iterator for RunIter<'_> {
    type Item = io::Result<RunEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            if self.page == self.run.first_keys.len() {
                return None;
            }
            let page = self.run.page(self.page).and_then(|bytes| {
                let count = page_count(&bytes)?;
                Ok(bytes[..count * ENTRY_BYTES].chunks_exact(ENTRY_BYTES).map(decode_entry).collect::<Vec<_>>())
            });
            self.page += 1;
            match page {
                Ok(entries) => self.entries = entries.into_iter(),
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

/// Merge runs into one, without packs that don't count, by the place of their run and their number in that. Packs are
/// numbered anew, run after run.
pub(crate) fn merge(runs: &[Arc<Run>], counts: impl Fn(usize, u32) -> bool, file: File) -> io::Result<Run> {
    let mut packs = Vec::new();
    let mut heads = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let mut number = |(pack, info): (u32, &Arc<PackInfo>)| {
            counts(at, pack).then(|| {
                packs.push(info.clone());
                packs.len() as u32 - 1
            })
        };
        let numbers: Vec<Option<u32>> = (0..).zip(&run.packs).map(&mut number).collect();
        let mut entries = run.iter().filter_map(move |entry| match entry {
            Ok(entry) => match numbers.get(entry.pack as usize) {
                Some(number) => number.map(|pack| Ok(RunEntry { pack, ..entry })),
                None => Some(Err(bad())),
            },
            Err(e) => Some(Err(e)),
        });
        if let Some(first) = entries.next() {
            heads.push((first?, entries));
        }
    }
    let mut writer = RunWriter::new(file);
    // Few runs at a time: the least head is found by looking at all of them.
    while let Some(at) = (0..heads.len()).min_by(|a, b| heads[*a].0.key.cmp(&heads[*b].0.key)) {
        let (entry, entries) = &mut heads[at];
        writer.push(*entry)?;
        match entries.next() {
            Some(next) => *entry = next?,
            None => drop(heads.swap_remove(at)),
        }
    }
    writer.finish(&packs)
}

fn top(key: &Key) -> u64 {
    u64::from_be_bytes(key[..8].try_into().expect("8 of 24 bytes"))
}

fn filter_key(key: &Key) -> u64 {
    u64::from_le_bytes(key[8..16].try_into().expect("8 of 24 bytes"))
}

fn page_count(page: &[u8; PAGE_BYTES]) -> io::Result<usize> {
    let at = PAGE_ENTRIES * ENTRY_BYTES;
    let count = u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes")) as usize;
    if count > PAGE_ENTRIES { Err(bad()) } else { Ok(count) }
}

fn decode_entry(bytes: &[u8]) -> RunEntry {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    RunEntry { key: bytes[..24].try_into().expect("24 bytes"), pack: u32_at(24), ordinal: u32_at(28) }
}

/// How many entries satisfy `less`, of which all stand first.
fn partition(entries: &[u8], less: impl Fn(&[u8]) -> bool) -> usize {
    let (mut low, mut high) = (0, entries.len() / ENTRY_BYTES);
    while low < high {
        let middle = (low + high) / 2;
        if less(&entries[middle * ENTRY_BYTES..(middle + 1) * ENTRY_BYTES]) { low = middle + 1 } else { high = middle }
    }
    low
}

fn encode_filter(filter: &BinaryFuse8, out: &mut Vec<u8>) {
    let Descriptor { seed, segment_length, segment_length_mask, segment_count_length } = filter.descriptor;
    out.extend_from_slice(&seed.to_le_bytes());
    for n in [segment_length, segment_length_mask, segment_count_length, filter.fingerprints.len() as u32] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.extend_from_slice(&filter.fingerprints);
}

fn decode_filter<'a>(take: &mut impl FnMut(usize) -> io::Result<&'a [u8]>) -> io::Result<BinaryFuse8> {
    let head = take(24)?;
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let descriptor = Descriptor {
        seed: u64::from_le_bytes(head[..8].try_into().expect("8 bytes")),
        segment_length: u32_at(8),
        segment_length_mask: u32_at(12),
        segment_count_length: u32_at(16),
    };
    let fingerprints: Box<[u8]> = take(u32_at(20) as usize)?.into();
    // A lookup touches up to two segments behind the counted ones.
    let needed = u64::from(descriptor.segment_count_length) + 2 * u64::from(descriptor.segment_length);
    let mask = u64::from(descriptor.segment_length_mask) + 1;
    if needed > fingerprints.len() as u64 || mask != u64::from(descriptor.segment_length) || !mask.is_power_of_two() {
        return Err(bad());
    }
    Ok(BinaryFuse8 { descriptor, fingerprints })
}

fn encode_pack(pack: &PackInfo, out: &mut Vec<u8>) {
    out.extend_from_slice(&pack.id.0);
    out.push(pack.kind.object() as u8);
    out.extend_from_slice(&pack.len.to_le_bytes());
    out.extend_from_slice(&pack.table_offset.to_le_bytes());
    out.extend_from_slice(&pack.table_len.to_le_bytes());
    out.extend_from_slice(&pack.generation.to_le_bytes());
}

fn decode_pack(bytes: &[u8]) -> io::Result<Arc<PackInfo>> {
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let kind = [PackKind::Data, PackKind::Tree].into_iter().find(|k| k.object() as u8 == bytes[16]).ok_or_else(bad)?;
    Ok(Arc::new(PackInfo {
        id: PackId(bytes[..16].try_into().expect("16 bytes")),
        kind,
        len: u64_at(17),
        table_offset: u64_at(25),
        table_len: u32::from_le_bytes(bytes[33..37].try_into().expect("4 bytes")),
        generation: u32::from_le_bytes(bytes[37..41].try_into().expect("4 bytes")),
    }))
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a run of the index cache is damaged")
}

/// An error about the cache's runs.
pub(super) fn cache_error(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |source| Error::Cache { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn id(n: u64) -> Key {
        let hash = drumlin_seal::checksum(&n.to_le_bytes());
        let mut key = [0; 24];
        key[..16].copy_from_slice(&hash);
        key[16..].copy_from_slice(&n.to_le_bytes());
        key
    }

    fn packs(n: u8) -> Vec<Arc<PackInfo>> {
        (0..n)
            .map(|b| {
                let (id, kind, generation) = (PackId([b; 16]), PackKind::Data, u32::from(b) << 20);
                Arc::new(PackInfo { id, kind, generation, len: 9, table_offset: 5, table_len: 4 })
            })
            .collect()
    }

    fn write(entries: &BTreeMap<Key, (u32, u32)>, file: File, n: u8) -> Run {
        let mut writer = RunWriter::new(file);
        for (key, (pack, ordinal)) in entries {
            writer.push(RunEntry { key: *key, pack: *pack, ordinal: *ordinal }).unwrap();
        }
        writer.finish(&packs(n)).unwrap()
    }

    #[test]
    fn finds_what_is_there_and_nothing_else() {
        for n in [0u64, 1, 127, 128, 300_000] {
            let entries: BTreeMap<_, _> = (0..n).map(|i| (id(i), ((i % 3) as u32, i as u32))).collect();
            let file = tempfile::tempfile().unwrap();
            let written = write(&entries, file.try_clone().unwrap(), 3);
            let run = Run::open(file).unwrap();
            assert_eq!((run.entries, run.packs.len()), (n, 3));
            for run in [&written, &run] {
                for i in (0..n).step_by(1 + n as usize / 5000) {
                    assert_eq!(run.lookup(&id(i), |_, _| true).unwrap(), Some(((i % 3) as u32, i as u32)));
                }
                assert!((n..n + 2000).all(|i| run.lookup(&id(i), |_, _| true).unwrap().is_none()));
            }
            assert!(run.iter().map(|e| e.unwrap().key).eq(entries.keys().copied()));
            assert!(n < 1000 || run.memory() < n as usize * 3 / 2, "{} bytes for {n} keys", run.memory());
        }
    }

    #[test]
    fn merging_keeps_equals_of_different_packs_and_renumbers_packs() {
        let of =
            |range: std::ops::Range<u64>, ordinal| -> BTreeMap<_, _> { range.map(|i| (id(i), (1, ordinal))).collect() };
        let a = Arc::new(write(&of(0..1000, 7), tempfile::tempfile().unwrap(), 2));
        let b = Arc::new(write(&of(500..1500, 8), tempfile::tempfile().unwrap(), 2));
        let merged = merge(&[a, b], |_, _| true, tempfile::tempfile().unwrap()).unwrap();
        assert_eq!((merged.entries, merged.packs.len()), (2000, 4));
        let lookup = |n, not: &[u32]| merged.lookup(&id(n), |pack, _| !not.contains(&pack)).unwrap();
        assert_eq!(lookup(1400, &[]), Some((3, 8)));
        // Equals may stand on two pages: all of them are found.
        for n in 500..1000 {
            assert_eq!((lookup(n, &[3]), lookup(n, &[1])), (Some((1, 7)), Some((3, 8))), "{n}");
            assert_eq!(lookup(n, &[1, 3]), None);
        }
    }

    #[test]
    fn what_stands_twice_in_a_pack_has_one_entry() {
        let mut writer = RunWriter::new(tempfile::tempfile().unwrap());
        for (pack, ordinal) in [(0, 1), (0, 5), (1, 2)] {
            writer.push(RunEntry { key: id(1), pack, ordinal }).unwrap();
        }
        let run = writer.finish(&packs(2)).unwrap();
        assert_eq!((run.entries, run.lookup(&id(1), |_, _| true).unwrap()), (2, Some((0, 1))));
    }

    #[test]
    fn damage_is_noticed_never_believed() {
        let entries: BTreeMap<_, _> = (0..400).map(|i| (id(i), (0, i as u32))).collect();
        let file = tempfile::tempfile().unwrap();
        write(&entries, file.try_clone().unwrap(), 1);
        let len = file.metadata().unwrap().len();
        for at in (0..len).step_by(11) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
            if let Ok(run) = Run::open(file.try_clone().unwrap()) {
                for i in 0..400 {
                    if let Ok(found) = run.lookup(&id(i), |_, _| true) {
                        assert_eq!(found, Some((0, i as u32)), "byte {at}");
                    }
                }
            }
            file.write_all_at(&byte, at).unwrap();
        }
        for len in (0..len).step_by(101) {
            file.set_len(len).unwrap();
            assert!(Run::open(file.try_clone().unwrap()).is_err());
        }
    }
}
