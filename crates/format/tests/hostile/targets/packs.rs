//! Tables, footers, index objects.

use super::*;

fn pack_header() -> Header {
    pack::header(PackKind::Data, SUITE, 0, PackId([9; 16]))
}

/// A sealed table, its message, or the table alone.
pub fn table(bytes: &[u8]) -> bool {
    let header = pack_header();
    let (depth, rest) = depth(bytes, 3);
    let most = 16 * rest.len() + 4096;
    let decoded = match depth {
        0 => {
            let sealed = rest.to_vec();
            bounded(most, || Table::open(&header, &KEYS.index, sealed).map(|(table, _)| table))
        }
        1 => {
            let sealed = [&FRESH[..], &sealed(&header, "pack table", 0, rest)].concat();
            bounded(most, || Table::open(&header, &KEYS.index, sealed).map(|(table, _)| table))
        }
        _ => bounded(most, || Table::decode(rest)),
    };
    let Ok(table) = decoded else { return false };
    check_table(&table);
    let sealed_len = table.sealed_len();
    let sealed = table.seal(&header, sealed_len, sealing());
    assert_eq!(sealed.len(), sealed_len);
    assert_eq!(Table::open(&header, &KEYS.index, sealed).map(|(table, _)| table).as_ref(), Ok(&table));
    true
}

/// What a writer could have made, and nothing else.
fn check_table(table: &Table) {
    assert_eq!(Table::decode(&table.encode()).as_ref(), Ok(table));
    let mut again = Table { slots: table.slots.clone(), ..Table::default() };
    for block in &table.blocks {
        let first = block.first_chunk as usize;
        let chunks = table.chunks[first..first + block.chunks as usize].iter().map(|c| (c.id, c.len));
        let chunks: Vec<_> = chunks.collect();
        again.push(block.slot, block.number, block.codec, block.stored_len, block.raw_len, &chunks).unwrap();
    }
    assert_eq!(&again, table);
}

fn sample_table() -> Table {
    let mut table = Table::default();
    table.slots.push(Slot { origin: PackId([9; 16]), wrapped: vec![5; 1168] });
    table.push(0, 0, Codec::Zstd, 120, 500, &[(ChunkId([1; 32]), 300), (ChunkId([2; 32]), 200)]).unwrap();
    table.push(0, 1, Codec::Raw, 1016, 1000, &[(ChunkId([200; 32]), 1000)]).unwrap();
    table.push(0, 2, Codec::Padding, 400, 0, &[]).unwrap();
    table
}

pub fn table_samples() -> Vec<Vec<u8>> {
    let (header, table) = (pack_header(), sample_table());
    let object = table.seal(&header, table.sealed_len(), sealing());
    let message = unsealed(&header, "pack table", 0, &object[FRESH.len()..]);
    let mut two = Table::default();
    two.slots.push(Slot { origin: PackId([1; 16]), wrapped: vec![5; 1168] });
    two.slots.push(Slot { origin: PackId([2; 16]), wrapped: vec![6; 1168] });
    let chunks: Vec<_> = (0..200u8).map(|b| (ChunkId([b; 32]), 1000 + u32::from(b))).collect();
    let len = chunks.iter().map(|(_, len)| len).sum();
    two.push(1, 7, Codec::Zstd, 5000, len, &chunks).unwrap();
    two.push(0, 3, Codec::Zstd, 500, 600, &[(ChunkId([3; 32]), 600)]).unwrap();
    vec![at_depth(0, &object), at_depth(1, &message), at_depth(2, &table.encode()), at_depth(2, &two.encode())]
}

/// A footer with or without a right checksum, of a pack as long as it says.
pub fn footer(bytes: &[u8]) -> bool {
    let header = pack_header();
    let (depth, rest) = depth(bytes, 2);
    let mut footer = rest.to_vec();
    if depth == 1 && footer.len() == FOOTER_BYTES {
        let sum = checksum(&[&header.encode()[..], &footer[..32]].concat());
        footer[32..].copy_from_slice(&sum);
    }
    let pack_len = footer.get(24..32).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let Ok(decoded) = bounded(256, || Footer::decode(&footer, &header, pack_len)) else { return false };
    assert_eq!(decoded.encode(&header)[..], footer);
    assert!(decoded.table_offset.checked_add(decoded.table_len.into()).is_some_and(|end| end <= pack_len));
    assert!(Footer::decode(&footer, &header, pack_len ^ 1).is_err());
    true
}

pub fn footer_samples() -> Vec<Vec<u8>> {
    let footer = Footer::new(1000, 2000, 0).encode(&pack_header());
    vec![at_depth(0, &footer), at_depth(1, &footer)]
}

/// A parity directory with or without right checksums: of its head, and of its first stripe.
pub fn parity(bytes: &[u8]) -> bool {
    let (depth, rest) = depth(bytes, 2);
    let mut directory = rest.to_vec();
    if depth == 1 && directory.len() >= HEAD_BYTES {
        let sum = checksum(&directory[..HEAD_BYTES - 16]);
        directory[HEAD_BYTES - 16..HEAD_BYTES].copy_from_slice(&sum);
    }
    let Ok(head) = bounded(256, || Head::decode(&directory)) else { return false };
    let layout = head.layout().expect("a head that was decoded has one");
    assert!(u64::from(layout.parity_len()) < layout.data_len() / 4 + 20_000);
    assert_eq!(layout.directories().last().unwrap() + layout.directory_len() as u64 + 48, layout.pack_len());
    let stripe = layout.stripes().next().unwrap();
    let sums = HEAD_BYTES..HEAD_BYTES + 4 * (stripe.shards + stripe.recovery()) as usize;
    if depth == 1 && directory.len() >= sums.end + 16 {
        let sum = checksum(&[&directory[..HEAD_BYTES], &[0; 4], &directory[sums.clone()]].concat());
        directory[sums.end..sums.end + 16].copy_from_slice(&sum);
    }
    let most = 16 * directory.len() + 4096;
    let Some(first) = bounded(most, || parity::decode_sums(&head, &layout, 0, &directory)) else { return false };
    assert_eq!((first.data.len(), first.recovery.len()), (stripe.shards as usize, stripe.recovery() as usize));
    let again = parity::encode(&head, &layout, &[first]);
    assert!(directory.starts_with(&again));
    true
}

pub fn parity_samples() -> Vec<Vec<u8>> {
    let of = |data_len: u64| {
        let head = Head { header: pack_header().encode(), table_offset: data_len - 1000, table_len: 1000 };
        let layout = head.layout().unwrap();
        let sums =
            |s: Stripe| parity::Sums { data: vec![7; s.shards as usize], recovery: vec![8; s.recovery() as usize] };
        parity::encode(&head, &layout, &layout.stripes().map(sums).collect::<Vec<_>>())
    };
    [3000, 300_000].iter().flat_map(|len| [at_depth(0, &of(*len)), at_depth(1, &of(*len))]).collect()
}

fn index_header() -> Header {
    Header::new(ObjectType::Index, SUITE, [4; 16])
}

/// An index object; or the length of its first part in four bytes (little-endian), that part and the other, with the
/// digest put right.
pub fn index(bytes: &[u8]) -> bool {
    let (header, id) = (index_header(), IndexId([4; 16]));
    let object = match depth(bytes, 2) {
        (0, object) => object.to_vec(),
        (_, parts) => {
            let Some((len, parts)) = parts.split_first_chunk::<4>() else { return false };
            let Some((hooks, tables)) = parts.split_at_checked(u32::from_le_bytes(*len) as usize) else { return false };
            let mut hooks = hooks.to_vec();
            if let Some(place) = hooks.get_mut(80..112) {
                place.copy_from_slice(&digest(tables));
            }
            let hooks = sealed(&header, "index object", 0, &hooks);
            let len = (hooks.len() as u32).to_le_bytes();
            [&header.encode()[..], &FRESH, &len, &hooks, &sealed(&header, "index object", 1, tables)].concat()
        }
    };
    let most = 16 * object.len() + 4096;
    let hooks = bounded(most, || index::open_hooks(id, &KEYS.index, &object));
    let Ok((entries, _)) = bounded(most, || index::open(id, &KEYS.index, &object)) else { return hooks.is_ok() };
    let (hooks, _) = hooks.unwrap();
    assert!(hooks.iter().map(|h| h.pack).eq(entries.iter().map(|e| e.pack)));
    entries.iter().for_each(|entry| check_table(&entry.table));
    let again = index::seal(&header, &entries, sealing());
    assert_eq!(index::open(id, &KEYS.index, &again).map(|(entries, _)| entries), Ok(entries));
    assert_eq!(index::open_hooks(id, &KEYS.index, &again).map(|(hooks, _)| hooks), Ok(hooks));
    true
}

pub fn index_samples() -> Vec<Vec<u8>> {
    let table = sample_table();
    let (table_len, end) = (3000, table.blocks_end());
    let pack_len = end + u64::from(table_len) + FOOTER_BYTES as u64;
    let (pack, kind) = (PackId([1; 16]), PackKind::Data);
    let entry = Entry { pack, kind, generation: 0, pack_len, table_len, table };
    let full = [entry.clone(), Entry { pack: PackId([2; 16]), kind: PackKind::Tree, ..entry.clone() }];
    let pack_len = 32 + u64::from(table_len) + FOOTER_BYTES as u64;
    let bare = [Entry { pack_len, table: Table::default(), ..entry }];
    let header = index_header();
    let of = |entries: &[Entry]| {
        let object = index::seal(&header, entries, sealing());
        let hooks_end = index::PREFIX_BYTES + index::hooks_len(&object).unwrap() as usize;
        let hooks = unsealed(&header, "index object", 0, &object[index::PREFIX_BYTES..hooks_end]);
        let tables = unsealed(&header, "index object", 1, &object[hooks_end..]);
        // Most of both is padding, which isn't worth the time; some stays.
        let some = |part: &[u8]| part.iter().rposition(|b| *b != 0).map_or(0, |last| last + 4);
        let (hooks, tables) = (&hooks[..some(&hooks)], &tables[..some(&tables)]);
        let parts = [&(hooks.len() as u32).to_le_bytes()[..], hooks, tables].concat();
        [at_depth(0, &object), at_depth(1, &parts)]
    };
    [of(&full), of(&bare)].concat()
}

/// The head of a recovery object with or without a right checksum, and a slice's sums behind it, likewise.
pub fn band(bytes: &[u8]) -> bool {
    let id = BandId([7; 15]).object(1);
    let (depth, rest) = depth(bytes, 2);
    let mut head = rest.to_vec();
    let seats = head.get(40).map_or(0, |seats| usize::from(*seats));
    let end = 48 + 25 * seats;
    if depth == 1 && head.len() >= end + 16 {
        let sum = checksum(&head[..end]);
        head[end..end + 16].copy_from_slice(&sum);
    }
    let most = 64 * head.len() + 4096;
    let Ok(decoded) = bounded(most, || band::Head::decode(&head, id)) else { return false };
    let encoded = decoded.encode(1);
    assert!(head.starts_with(&encoded));
    assert_eq!(band::Head::decode_last(&encoded, id).as_ref(), Ok(&decoded));
    assert!(band::Head::decode(&head, BandId([8; 15]).object(1)).is_err());
    let (slices, last) = (decoded.slices(), decoded.slices() - 1);
    assert!(decoded.object_len(1) > decoded.object_len(0) && decoded.members().count() > 0);
    assert_eq!((last * band::SLICE_BYTES) as u64 + decoded.slice_len(last) as u64, decoded.row_len());
    assert!(decoded.members().all(|m| m.slices() <= slices && m.len <= band::MEMBER_BYTES_MAX));
    let record = head[encoded.len()..].to_vec();
    if let Some(sums) = bounded(most, || decoded.decode_sums(last, &record)) {
        assert!(record.starts_with(&decoded.encode_sums(last, &sums)));
    }
    true
}

pub fn band_samples() -> Vec<Vec<u8>> {
    let member = |n: u8, len| Some(band::Member { pack: PackId([n; 16]), kind: PackKind::Data, len });
    let tree = Some(band::Member { pack: PackId([9; 16]), kind: PackKind::Tree, len: 70_000 });
    let of = |seats: Vec<Option<band::Member>>, rows: usize| {
        let sums = band::Sums { seats: vec![5; seats.len()], rows: vec![6; rows] };
        let head = band::Head::new(BandId([7; 15]), SUITE, seats, rows).unwrap();
        [head.encode(1), head.encode_sums(head.slices() - 1, &sums)].concat()
    };
    let samples = [of(vec![member(1, 100)], 1), of(vec![member(1, 65_536), None, tree, member(2, 1 << 32)], 3)];
    samples.iter().flat_map(|sample| [at_depth(0, sample), at_depth(1, sample)]).collect()
}
