//! The test values of `docs/format.md`, byte by byte. Never edited but together with that page, and not at all once a
//! repository of version 1 is in the world: what was written must be read for ever.

use drumlin_format::decision::Verdict;
use drumlin_format::generation::{Generation, GenerationSecrets, LazyKey, Origin};
use drumlin_format::history::Entry;
use drumlin_format::key::{KeyObject, KeyParts, Lock, Role, Secrets};
use drumlin_format::loss::Loss;
use drumlin_format::pack::{self, Codec, Footer, PackKind, Slot, Table};
use drumlin_format::parity::{self, Head};
use drumlin_format::session::Session;
use drumlin_format::tree::{Body, Child, Content, Data, Inner, Kind, Leaf, List, Meta, Ref, Sums, Time, Xattrs};
use drumlin_format::{ChunkId, HistoryId, KeyId, LossId, PackId, RepositoryId, Sealing, SessionId, SnapshotId};
use drumlin_seal::{IdKey, PassphraseCost, Secret, SigningKey, Suite, checksum, derive};

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

fn signing(byte: u8) -> SigningKey {
    SigningKey::new(secret(byte)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Digits with spaces between them; `xx*n` stands for a byte n times.
#[track_caller]
fn assert_bytes(bytes: &[u8], expected: &str) {
    let digits: String = expected
        .split_whitespace()
        .map(|word| match word.split_once('*') {
            Some((byte, times)) => byte.repeat(times.parse().unwrap()),
            None => word.to_owned(),
        })
        .collect();
    assert_eq!(hex(bytes), digits);
}

#[test]
fn primitives() {
    let derived = derive(&secret(1), "small object", b"ctx");
    assert_bytes(derived.expose(), "05b79688de66d3334cec22c0791ac0496f06c59df3b21ccaf51a88a515afcf46");
    let id = IdKey::new(&secret(1), "data chunk").id(b"abc");
    assert_bytes(&id, "93347f7ee942a47b5b135b82c0b15c2ca8c66761306b7215f7a9173b2f6d6e6e");
    assert_bytes(
        &signing(1).sign("config", b"abc"),
        "8d070e1ec64ae46ebffd7338da09f760a06ca206badd602f97bc928172f085a2
         7ee9e758bf97c3f21b0838e1b8a2fef5c724fe21de5aeeff66d6f36c4afe530a",
    );
}

#[test]
fn small_bodies() {
    assert_bytes(&minicbor::to_vec(Lock::File).unwrap(), "82 00 80");
    assert_bytes(&minicbor::to_vec(Lock::Revoked).unwrap(), "82 02 80");
    let lock = Lock::passphrase([0xaa; 16], PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 });
    assert_bytes(&minicbor::to_vec(lock).unwrap(), "82 01 84 50 aa*16 18 40 01 01");
    assert_bytes(&minicbor::to_vec(Verdict::Evicted { plan: 9 }).unwrap(), "82 01 81 09");
    let committed = Verdict::Committed { snapshot: SnapshotId([3; 16]) };
    assert_bytes(&minicbor::to_vec(committed).unwrap(), "82 00 81 50 03*16");
}

#[test]
fn session() {
    let session = Session { plan_seen: 7, ..Session::new("h", "backup", -5) };
    assert_bytes(&minicbor::to_vec(&session).unwrap(), "a4 00 61 68 01 24 02 07 03 66 6261636b7570");
    let (index_key, signing) = (secret(1), signing(2));
    let with = Sealing { generation: 0, index_key: &index_key, key: KeyId([2; 16]), signing: &signing, fresh: [9; 16] };
    let object = session.seal(SessionId([3; 16]), Suite::Aes256Gcm, with);
    assert_bytes(&object, SESSION);
}

const SESSION: &str = "6472756d6c696e010701000000000000
    03030303030303030303030303030303
    09090909090909090909090909090909
    acf0802d205a76b4b310205914bd551e0c34990531d3cc0a17ef8f779ee8db259b677503416a5f22534d019543730933
    53fd6c1b66d2cb9a760eb0f8c94404dc5429adcf6a7b727078f55c71e998b93bdbe39bf7d3f0137b0688661d99bd0072
    4f804e25457bacfd5fe12d964efb2c9f27f3f3ad0efd900f84811fb8c3293fed2761ba4d02263fb7781a3b4a5c1b7cbb";

#[test]
fn history_entry() {
    let (index_key, signing) = (secret(1), signing(2));
    let with = Sealing { generation: 0, index_key: &index_key, key: KeyId([2; 16]), signing: &signing, fresh: [9; 16] };
    let entry = Entry {
        snapshots: vec![SnapshotId([5; 16])],
        absorbed: vec![HistoryId([8; 16])],
        ..Entry::new(HistoryId([3; 16]), "forget", 5)
    };
    assert_bytes(&entry.seal(Suite::Aes256Gcm, with), HISTORY);
}

const HISTORY: &str = "6472756d6c696e010b01000000000000
    03030303030303030303030303030303
    09090909090909090909090909090909
    795536cd4c81f40c87b4c934ce81a3907fda2750586b8d893c1a19eb9e55e5b7ede3e55ad5f1219db57b99e4c2b65e4b
    a35359d00d93a3dd60046ee8d20d15ba0fa07130aefd1efe5b778a02f323a52c7cba1a95e114ec6856c659930e42b41e
    f993f655a55679f4cca17fbffd415f681b4e731b15abf2ecad68495e6af4b3fcfc060d62046955b272fe266bea56448f
    4b5fbb081335810d00db335fb53a9357362116172e70af69859445c951c770028107e17a5464547a0b31964fde157c9e
    67ed9b60e7b9489436d313802b9506d10fe91e20422d079553918c254e02232ace7b6b25ed655b55ba0cb5460be09089
    cd04ced9d8aa549035ac5418e3dfdb8d279d061e359bee512760be93ebcc6629";

fn keepers_secrets() -> Secrets {
    Secrets {
        repository: RepositoryId([1; 16]),
        key: KeyId([2; 16]),
        role: Role::Keeper,
        owner: signing(3).verifying(),
        index: secret(4),
        identity: None,
        cutting: None,
        data: None,
        meta: Some(drumlin_seal::PrivateKey::new(secret(8)).unwrap()),
        owner_signing: None,
        signing: Some(signing(9)),
        tree_identity: Some(secret(11)),
        wrapping: None,
        generations: Vec::new(),
    }
}

#[test]
fn certificates() {
    let (owner, secrets) = (signing(3), keepers_secrets());
    assert_bytes(&secrets.encode(), SECRETS);
    let unlock = secret(77);
    let (lock, fresh) = (Lock::File, [9; 16]);
    let parts = KeyParts { secrets: &secrets, lock, unlock: &unlock, label: "l", created: 5, fresh, generation: 0 };
    let bytes = KeyObject::seal(&parts, Suite::Aes256Gcm, &owner);
    let object = KeyObject::decode(KeyId([2; 16]), &bytes).unwrap();
    assert_bytes(&checksum(&bytes), "bd9a9a74e79de70cd932b8966dddcff7");
    assert_bytes(&checksum(&object.revoke(RepositoryId([1; 16]), 9, &owner)), "aa863bcb2f9b9a65c3a4873d8e5eb0ce");
}

#[test]
fn generation() {
    let owner = signing(3);
    let half = |byte| Some(LazyKey::new(secret(byte)));
    let secrets = GenerationSecrets { number: 1, tag: 0x01020304, index: secret(4), data: half(5), meta: half(6) };
    let of = Origin { repository: RepositoryId([1; 16]), suite: Suite::Aes256Gcm, created: 7 };
    let mut generation = Generation::new(of, &secrets).unwrap();
    let keeper = secrets.lessen(Role::Keeper).unwrap();
    let pair = drumlin_seal::PrivateKey::new(derive(&secret(9), "key wrapping", &[2; 16])).unwrap();
    generation.share(KeyId([2; 16]), &pair.public(), &keeper, (&secret(10), &secret(11))).unwrap();
    let bytes = generation.encode(&owner);
    assert_bytes(&bytes[..32], "6472756d6c696e 01 0d 01 04030201 0000 00*15 01");
    assert_bytes(&checksum(&bytes), "c694dac6f329580f0c35e5e2d82bafcb");
    assert_bytes(
        derive(&secret(9), "key wrapping", &[2; 16]).expose(),
        "58e92b4c77d36a2728715e57bed433a904e6d74efb61e9a832444446c0fc2926",
    );
    let with = |generations| Secrets { generations, ..keepers_secrets() }.encode();
    let (without, with) = (with(Vec::new()), with(vec![keeper]));
    assert_bytes(&with[without.len()..], "0d 81 a4 00 01 01 1a 01020304 02 5820 04*32 04 5820 06*32");
}

#[test]
fn loss() {
    let (index_key, signing) = (secret(1), signing(2));
    let with = Sealing { generation: 0, index_key: &index_key, key: KeyId([2; 16]), signing: &signing, fresh: [9; 16] };
    let loss = Loss { id: LossId([3; 16]), chunks: vec![ChunkId([5; 32])], packs: vec![PackId([8; 16])] };
    assert_bytes(&loss.seal(Suite::Aes256Gcm, with), LOSS);
}

const LOSS: &str = "6472756d6c696e010a01000000000000
    03030303030303030303030303030303
    09090909090909090909090909090909
    bf3e3ee0a32c1823973ed363e2bda50df9f32cb932b6b18c14a7a1d01f57d768eec76fe2697b5ab05c7f0576bff615c0
    0d04f3607d5b414f18cd974c3e89bdb6ef996225b6e2b475ec9a8988a69dbfaf2f7b472e1622c84ae25c291a3b3ae5ae
    7e949e17963413e06f3bca16c420769bdcfb64ac7c1941339201081078140745f4a5df72b43f5e295629f7d140e8c718
    bc09baf50a7710b9273e54ee13a32df3af0944b1690d8df41df9f352b4658b9e7e0d9e0e1d23b7c76a54004b9fb88809
    41cbd31a3cf9ce33b3e1b86c6b779a694d2fc5e6202082dfa9e12982e57f3164253db46f4b5350f02f34cfa89dddb14d
    df961249018fca43e8a929902318d85efe6759cacbc46b9e8c15daeacb71b125";

#[test]
fn parity_of_a_pack() {
    let head = Head {
        header: pack::header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16])).encode(),
        table_offset: 9000,
        table_len: 100,
    };
    let layout = head.layout().unwrap();
    assert_bytes(&parity::encode(&head, &layout, &[parity::Sums { data: vec![1, 2, 3], recovery: vec![4] }]), "6472756d70617201 2823000000000000 64000000 dc1c0000 6472756d6c696e0103010000000000000909090909090909 0909090909090909 2697e947c7e4a2186ec32196803abe33
         01000000 02000000 03000000 04000000 853e54d4e6dc863e8d580eefcb2a3c87");
}

const SECRETS: &str = "a8 00 50 01*16  01 50 02*16  02 03
    03 5820 ed4928c628d1c2c6eae90338905995612959273a5c63f93636c14614ac8737d1
    04 5820 04*32  08 5820 08*32  0a 5820 09*32  0b 5820 0b*32";

#[test]
fn footer_and_table() {
    let header = pack::header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16]));
    assert_bytes(
        &Footer::new(1000, 2000, 0).encode(&header),
        "6472756d656e6401 e803000000000000 d0070000 00000000 e80b000000000000 de91a85f80cafe99153c2f4e68bb74bd",
    );
    let mut table = Table::default();
    table.slots.push(Slot { origin: PackId([9; 16]), wrapped: vec![5; 1168] });
    table.push(0, 0, Codec::Zstd, 120, 500, &[(ChunkId([1; 32]), 300), (ChunkId([2; 32]), 200)]).unwrap();
    table.push(0, 1, Codec::Raw, 1016, 1000, &[(ChunkId([3; 32]), 1000)]).unwrap();
    table.push(0, 2, Codec::Padding, 400, 0, &[]).unwrap();
    assert_bytes(
        &table.encode(),
        "01 09*16 01 9009 05*1168  03  00 00 01 78 f403 02  00 01 00 f807 e807 01  00 02 02 9003 00 00
         01*32 02*32 03*32  ac02 c801 e807",
    );
}

fn meta() -> Meta {
    Meta {
        kind: Kind::File,
        mode: 0o644,
        marks: 0,
        uid: 1000,
        gid: 100,
        size: 5,
        mtime: Time { sec: 100, nsec: 7 },
        ctime: Time { sec: 200, nsec: 9 },
        btime: Some(Time { sec: 150, nsec: 4 }),
        ino: 50,
        nlink: 1,
        filesystem: 0,
        rdev: 0,
    }
}

fn leaf() -> Leaf {
    let mut leaf = Leaf::default();
    leaf.push(b"", b"home", &Meta { kind: Kind::Dir, mode: 0o755, size: 0, btime: None, ..meta() });
    leaf.push(b"home", b"abc", &meta());
    leaf.push(b"home", b"abd", &Meta { nlink: 2, filesystem: 3, ino: 40, ..meta() });
    leaf.push(b"home\0u", b"dev", &Meta { kind: Kind::BlockDevice, rdev: 0x801, size: 0, ..meta() });
    leaf.owners.users.push((1000, b"u".to_vec()));
    leaf
}

#[test]
fn tree_nodes() {
    let leaf = leaf();
    assert_bytes(
        &leaf.encode(),
        "01 04
         03  01 00 00  02 00 04 686f6d65  01 04 02 0075
         00 04  00 03  02 01  00 03
         686f6d65 616263 64 646576
         01  e807 01 75
         00
         03  01 ed03 00 e807 64  00 a403 00 e807 64  06 a403 00 e807 64
         00 01 01 02
         00 05 05 00
         c801 00 00 00  0e 00 00 00
         9003 00 00 00  12 00 00 00
         00 64 64 64  00 0b 0b 0b
         64 00 13 14
         01  02 02 03
         01  03 8110",
    );
    assert_eq!(Leaf::decode(&leaf.encode()).unwrap().get(3), leaf.get(3));
    let xattrs = Xattrs::from(vec![(b"user.a".to_vec(), b"v".to_vec())]);
    let refs = vec![Ref::Chunk { id: ChunkId([2; 32]), len: 3 }, Ref::Hole { len: 2 }];
    let list = Data::List(List { level: 0, refs, whole: [7; 32] });
    let body = Body {
        contents: vec![
            Content { xattrs: xattrs.clone(), ..Content::default() },
            Content { data: Data::Chunk(ChunkId([1; 32])), xattrs, ..Content::default() },
            Content { data: list, flags: 0x40, ..Content::default() },
            Content::default(),
        ],
    };
    assert_bytes(
        &body.encode(),
        "02 04  08 09 12 00
         01*32
         00 07*32  02 06 05 02*32
         01  01 06 757365722e61 01 76
         00 00
         40",
    );
    assert_eq!(Body::decode(&body.encode(), &leaf).unwrap(), body);
    let sums = Sums { entries: 300, files: 200, dirs: 50, bytes: 1 << 20 };
    let child = |dir: &[u8], name: &[u8], byte: u8| Child {
        dir: dir.to_vec(),
        name: name.to_vec(),
        node: ChunkId([byte; 32]),
        body: Some(ChunkId([byte + 100; 32])),
        sums,
    };
    let inner = Inner { level: 1, children: vec![child(b"", b"a", 1), child(b"home\0u", b"b", 2)] };
    assert_bytes(
        &inner.encode(),
        "03 01 02  00 00 01 61  00 06 686f6d650075 01 62
         ac02 c801 32 808040  ac02 c801 32 808040
         01*32 65*32 02*32 66*32",
    );
}
