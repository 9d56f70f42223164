use super::*;
use crate::KeyId;
use drumlin_seal::{Secret, SigningKey, Suite};
use proptest::prelude::*;

fn sample() -> Table {
    let mut table = Table::default();
    table.slots.push(Slot { origin: PackId([1; 16]), wrapped: vec![5; 1168] });
    table.push(0, 0, Codec::Zstd, 120, 500, &[(ChunkId([1; 32]), 300), (ChunkId([2; 32]), 200)]).unwrap();
    table.push(0, 1, Codec::Raw, 1016, 1000, &[(ChunkId([3; 32]), 1000)]).unwrap();
    table.push(0, 2, Codec::Padding, 400, 0, &[]).unwrap();
    table
}

fn signing() -> SigningKey {
    SigningKey::new(Secret::new([2; 32])).unwrap()
}

#[test]
fn tables_round_trip_and_know_their_offsets() {
    let table = sample();
    assert_eq!(Table::decode(&table.encode()).unwrap(), table);
    assert_eq!(table.encode().len(), table.encoded_len());
    assert_eq!(table.blocks[1].offset, 152);
    assert_eq!(table.chunks[1], Chunk { id: ChunkId([2; 32]), len: 200, offset: 300, block: 0 });
    assert_eq!(table.blocks_end(), 32 + 120 + 1016 + 400);
    let header = header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16]));
    let (index_key, signing) = (Secret::new([4; 32]), signing());
    let sealing =
        |fresh| Sealing { generation: 0, index_key: &index_key, key: KeyId([7; 16]), signing: &signing, fresh };
    let sealed = table.seal(&header, table.sealed_len(), sealing([1; 16]));
    assert_eq!(sealed.len(), table.sealed_len());
    assert_eq!(sealed.len() % 1024, 16 + TAG_BYTES);
    let (opened, signer) = Table::open(&header, &index_key, sealed.clone()).unwrap();
    assert_eq!((opened, signer.key), (table.clone(), KeyId([7; 16])));
    assert!(signer.verify(&signing.verifying()).is_ok());
    assert!(signer.verify(&SigningKey::new(Secret::new([3; 32])).unwrap().verifying()).is_err());
    let other = Header { id: [8; 16], ..header };
    assert!(Table::open(&other, &index_key, sealed.clone()).is_err(), "a table counts for its own pack only");
    for at in (0..sealed.len()).step_by(41) {
        let mut bent = sealed.clone();
        bent[at] ^= 1;
        assert!(Table::open(&header, &index_key, bent).is_err(), "byte {at}");
        assert!(Table::open(&header, &index_key, sealed[..at].to_vec()).is_err(), "cut to {at}");
    }
    let again = table.seal(&header, table.sealed_len(), sealing([2; 16]));
    assert_ne!(again[16..80], sealed[16..80], "the fresh bytes are in the key");
    assert_eq!(table.seal(&header, 0, sealing([3; 16])).len(), 16 + 80 + table.encode().len() + TAG_BYTES);
}

#[test]
fn there_is_room_for_one_more_block_in_the_sealed_length() {
    let mut table = sample();
    for number in 3..200 {
        let len = table.sealed_len();
        table.push(0, u64::MAX - number, Codec::Padding, 16 << 20, 0, &[]).unwrap();
        let index_key = Secret::new([4; 32]);
        let signing = signing();
        let with =
            Sealing { generation: 0, index_key: &index_key, key: KeyId([7; 16]), signing: &signing, fresh: [1; 16] };
        let header = header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16]));
        assert_eq!(table.seal(&header, len, with).len(), len);
    }
}

#[test]
fn inconsistent_tables_are_refused() {
    for bend in [
        (|t: &mut Table| t.blocks[0].raw_len = 499) as fn(&mut Table),
        |t| t.blocks[0].raw_len = 501,
        |t| t.blocks[0].slot = 1,
        |t| t.blocks[0].stored_len = 15,
        |t| t.blocks[0].stored_len = u32::MAX,
        |t| t.blocks[0].chunks = 3,
        |t| t.blocks[2].chunks = u32::MAX,
        // Raw blocks are as long as their contents and a tag.
        |t| t.blocks[1].stored_len = 1015,
        |t| t.blocks[1].stored_len = 1017,
        // Padding has neither chunks nor contents, anything else has both.
        |t| t.blocks[2].raw_len = 1,
        |t| (t.blocks[1].codec, t.blocks[1].raw_len) = (Codec::Padding, 0),
        |t| t.blocks[2].codec = Codec::Zstd,
        |t| (t.blocks[2].codec, t.blocks[2].stored_len) = (Codec::Raw, 16),
        // Two blocks of one key and number, one behind the other or not.
        |t| t.blocks[1].number = 0,
        |t| t.blocks[2].number = 0,
        // Two chunks of which one has all the bytes.
        |t| (t.chunks[0].len, t.chunks[1].len) = (500, 0),
        |t| t.slots[0].wrapped.truncate(1167),
        |t| t.slots[0].wrapped.push(0),
        |t| t.slots[0].wrapped.clear(),
        |t| t.slots.push(t.slots[0].clone()),
    ] {
        let mut table = sample();
        bend(&mut table);
        assert!(Table::decode(&table.encode()).is_err(), "{table:?}");
    }
    let mut two = sample();
    two.slots.push(Slot { origin: PackId([2; 16]), ..two.slots[0].clone() });
    two.blocks[1].slot = 1;
    two.blocks[1].number = 0;
    assert_eq!(Table::decode(&two.encode()).unwrap(), two, "numbers count for each key apart");
    let bytes = sample().encode();
    for len in 0..bytes.len() {
        assert!(Table::decode(&bytes[..len]).is_err(), "cut to {len}");
    }
}

#[test]
fn what_a_decoder_would_refuse_is_not_pushed() {
    let one = |len| [(ChunkId([1; 32]), len)];
    let mut table = sample();
    let before = table.clone();
    assert!(table.push(0, 3, Codec::Zstd, 100, 10, &one(11)).is_err());
    assert!(table.push(0, 3, Codec::Zstd, 100, 10, &one(9)).is_err());
    assert!(table.push(0, 3, Codec::Zstd, 100, 0, &one(0)).is_err());
    assert!(table.push(0, 3, Codec::Zstd, 100, 7, &[one(u32::MAX)[0], one(8)[0]]).is_err(), "a sum that wraps");
    assert!(table.push(0, 3, Codec::Zstd, 100, 0, &[]).is_err());
    assert!(table.push(0, 3, Codec::Raw, 10, 10, &one(10)).is_err());
    assert!(table.push(0, 3, Codec::Padding, 100, 10, &one(10)).is_err());
    assert!(table.push(1, 3, Codec::Zstd, 100, 10, &one(10)).is_err());
    assert!(table.push(0, 3, Codec::Zstd, (16 << 20) + 1, 10, &one(10)).is_err());
    // As it is it would be too long, whoever seals it anew.
    let most = (16 << 20) - 16;
    assert!(table.push(0, 3, Codec::Zstd, 100, most + 1, &one(most + 1)).is_err());
    assert_eq!(table, before);
    table.clone().push(0, 3, Codec::Zstd, 100, most, &one(most)).unwrap();
    // The largest block that a config allows, as it is.
    let most = 2 * crate::config::GATHERED_BYTES_MAX - 1;
    table.push(0, 3, Codec::Raw, most + 16, most, &one(most)).unwrap();
    assert_eq!(Table::decode(&table.encode()).unwrap(), table);
}

#[test]
fn footers_notice_every_flip() {
    let header = header(PackKind::Tree, Suite::Aes256Gcm, 0, PackId([9; 16]));
    let footer = Footer::new(1000, 2000, 0);
    let bytes = footer.encode(&header);
    assert_eq!(Footer::decode(&bytes, &header, 3048), Ok(footer));
    assert!(Footer::decode(&bytes, &header, 3049).is_err());
    let longest = Footer::new(1000, TABLE_BYTES_MAX, 0);
    assert!(Footer::decode(&longest.encode(&header), &header, longest.pack_len).is_ok());
    let longer = Footer::new(1000, TABLE_BYTES_MAX + 1, 0);
    assert!(Footer::decode(&longer.encode(&header), &header, longer.pack_len).is_err());
    for i in 0..FOOTER_BYTES {
        let mut bent = bytes;
        bent[i] ^= 0x10;
        assert!(Footer::decode(&bent, &header, 3048).is_err(), "byte {i}");
    }
}

#[test]
fn size_classes_cost_little() {
    assert_eq!(size_class(1), 4096);
    assert_eq!(size_class(0), 0);
    assert_eq!((size_class(u64::MAX), size_class(u64::MAX - (1 << 40))), (u64::MAX, u64::MAX));
    assert_eq!(size_class(64 << 20), 64 << 20);
    assert_eq!(size_class((64 << 20) + 1), (64 << 20) + (512 << 10));
    for len in (1u64 << 20..100 << 20).step_by(777_777) {
        let class = size_class(len);
        assert!(class >= len && class - len <= len / 128 + 1 && size_class(class) == class);
    }
}

proptest! {
    #[test]
    fn hostile_tables_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Table::decode(&bytes);
    }

    #[test]
    fn bent_tables_never_panic(at in 0usize..2000, value in any::<u8>()) {
        let mut bytes = sample().encode();
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(table) = Table::decode(&bytes) {
            for chunk in &table.chunks {
                let block = &table.blocks[chunk.block as usize];
                prop_assert!(chunk.offset + chunk.len <= block.raw_len);
            }
        }
    }
}
