#!/usr/bin/env python3
"""The reader's decoders against the test values of docs/format.md. One line a check."""

import os
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import reader as r


def b(text):
    return bytes.fromhex("".join(text.split()))


ONE = bytes([1] * 32)

SESSION = b("""6472756d6c696e01 07 01 000000000000 03030303030303030303030303030303 09090909090909090909090909090909
acf0802d205a76b4b310205914bd551e0c34990531d3cc0a17ef8f779ee8db259b677503416a5f22534d019543730933
53fd6c1b66d2cb9a760eb0f8c94404dc5429adcf6a7b727078f55c71e998b93bdbe39bf7d3f0137b0688661d99bd0072
4f804e25457bacfd5fe12d964efb2c9f27f3f3ad0efd900f84811fb8c3293fed2761ba4d02263fb7781a3b4a5c1b7cbb""")
SESSION_BODY = b("a4 00 6168 01 24 02 07 03 66 6261636b7570")
FOOTER = b("6472756d656e6401 e803000000000000 d0070000 00000000 e80b000000000000 de91a85f80cafe99153c2f4e68bb74bd")
LEAF = b("""01 04 03 01 00 00 02 00 04 686f6d65 01 04 02 0075 00 04 00 03 02 01 00 03 686f6d65 616263 64 646576
01 e807 01 75 00 03 01 ed03 00 e807 64 00 a403 00 e807 64 06 a403 00 e807 64 00 01 01 02 00 05 05 00
c801 00 00 00 0e 00 00 00 9003 00 00 00 12 00 00 00 00 64 64 64 00 0b 0b 0b 64 00 13 14
01 02 02 03 01 03 8110""")
BODY = (b("02 04 08 09 12 00") + ONE + b"\0" + bytes([7] * 32) + b("02 06 05") + bytes([2] * 32)
        + b("01 01 06 757365722e61 01 76 00 00 40"))
INNER = (b("03 01 02 00 00 01 61 00 06 686f6d650075 01 62 ac02 c801 32 808040 ac02 c801 32 808040")
         + ONE + bytes([65] * 32) + bytes([2] * 32) + bytes([66] * 32))
TABLE = (b("01") + bytes([8] * 16) + b("01 9009") + bytes(1168)
         + b("03 00 00 01 78 f403 02 00 01 00 f807 e807 01 00 02 02 9003 00 00")
         + bytes([1] * 32) + bytes([2] * 32) + bytes([3] * 32) + b("ac02 c801 e807"))


def derivation():
    return r.derive(ONE, "small object", b"ctx") == b(
        "05b79688de66d3334cec22c0791ac0496f06c59df3b21ccaf51a88a515afcf46")


def identity():
    return r.chunk_id(r.derive(ONE, "data chunk"), b"abc") == b(
        "93347f7ee942a47b5b135b82c0b15c2ca8c66761306b7215f7a9173b2f6d6e6e")


def signature():
    public = Ed25519PrivateKey.from_private_bytes(ONE).public_key().public_bytes_raw()
    s = b("8d070e1ec64ae46ebffd7338da09f760a06ca206badd602f97bc928172f085a2"
          "7ee9e758bf97c3f21b0838e1b8a2fef5c724fe21de5aeeff66d6f36c4afe530a")
    return r.signature_holds(public, s, "config", b"abc") and not r.signature_holds(public, s, "snapshot", b"abc")


def generations():
    """The pair of a key, what a keeper's secrets say of a generation, and its object's header."""
    nine, two = bytes([9] * 32), bytes([2] * 16)
    secrets = b("a9 00 50") + ONE[:16] + b("01 50") + two + b("02 03 03 5820") + nine + b("04 5820") + nine + b(
        "08 5820") + nine + b("0a 5820") + nine + b("0b 5820") + nine + b(
        "0d 81 a4 00 01 01 1a 01020304 02 5820") + bytes([4] * 32) + b("04 5820") + bytes([6] * 32)
    s = r.decode_secrets(secrets)
    header = b("6472756d6c696e 01 0d 01 04030201 0000") + bytes(15) + b"\1"
    return (r.wrapping_key(s) == b("58e92b4c77d36a2728715e57bed433a904e6d74efb61e9a832444446c0fc2926")
            and s.generations == [(1, 0x01020304, bytes([4] * 32), None, bytes([6] * 32))]
            and r.make_header(r.GENERATION, 1, (1).to_bytes(16, "big"), 0x01020304) == header
            and r.tag_of(header) == 0x01020304)


def small_encodings():
    return (r.enum(r.cbor(b("82 00 80"))) == (0, []) and r.enum(r.cbor(b("82 02 80"))) == (2, [])
            and r.enum(r.cbor(b("82 01 84 50" + "aa" * 16 + "18 40 01 01"))) == (1, [bytes([0xAA] * 16), 64, 1, 1])
            and r.cbor(b("a3 00 01 02 05 03 09")) == {0: 1, 2: 5, 3: 9}
            and r.enum(r.cbor(b("82 01 81 09"))) == (1, [9])
            and r.enum(r.cbor(b("82 00 81 50" + "03" * 16))) == (0, [bytes([3] * 16)]))


def footer():
    header = r.make_header(r.DATA_PACK, 1, bytes([9] * 16))
    return r.decode_footer(header, FOOTER, 3048) == (1000, 2000)


def session():
    ident = bytes([3] * 16)
    header, signed = r.open_small(SESSION, "small object", {0: ONE}, r.SESSION, ident, 1)
    public = Ed25519PrivateKey.from_private_bytes(bytes([2] * 32)).public_key().public_bytes_raw()
    return (signed.signer == bytes([2] * 16) and signed.body == SESSION_BODY
            and r.cbor(signed.body) == {0: "h", 1: -5, 2: 7, 3: "backup"}
            and r.signature_holds(public, signed.signature, "session", header + signed.signer + signed.body))


def table():
    t = r.decode_table(TABLE + bytes(5))
    return ([(x.number, x.codec, x.offset, x.stored, x.raw) for x in t.blocks]
            == [(0, 1, 32, 120, 500), (1, 0, 152, 1016, 1000), (2, 2, 1168, 400, 0)]
            and [x.chunks for x in t.blocks[:2]] == [[(ONE, 0, 300), (bytes([2] * 32), 300, 200)],
                                                      [(bytes([3] * 32), 0, 1000)]] and t.end == 1568)


def leaf_and_body():
    leaf = r.decode_leaf(LEAF)
    r.decode_body(BODY, leaf)
    home, abc, abd, dev = leaf
    return ([e.path() for e in leaf] == [b"home", b"home/abc", b"home/abd", b"home/u/dev"]
            and [e.type for e in leaf] == [1, 0, 0, 6] and [e.mode for e in leaf] == [0o755, 0o644, 0o644, 0o644]
            and all((e.uid, e.gid, e.user, e.group) == (1000, 100, b"u", None) for e in leaf)
            and all((e.mtime, e.ctime) == ((100, 7), (200, 9)) for e in leaf)
            and [e.birth for e in leaf] == [None, (150, 4), (150, 4), (150, 4)]
            and [e.inode for e in leaf] == [50, 50, 40, 50] and [e.size for e in leaf] == [0, 5, 5, 0]
            and [(e.nlink, e.filesystem) for e in leaf] == [(1, 0), (1, 0), (2, 3), (1, 0)]
            and [e.device for e in leaf] == [0, 0, 0, 0x801]
            and home.xattrs == abc.xattrs == [(b"user.a", b"v")] and abd.xattrs == dev.xattrs == []
            and abc.chunk == ONE and abd.flags == 0x40 and dev.chunk is dev.list is None
            and abd.list == (0, bytes([7] * 32), [(3, bytes([2] * 32)), (2, None)]))


def inner():
    return r.decode_inner(INNER, 1) == [(b"", b"a", ONE, bytes([65] * 32)),
                                        (b"home\0u", b"b", bytes([2] * 32), bytes([66] * 32))]


def refusals():
    """Every value cut short or with a byte more is refused, and so is any changed bit of what is authenticated."""
    def body(data):
        r.decode_body(data, r.decode_leaf(LEAF))

    def opened(data):
        r.open_small(data, "small object", {0: ONE}, r.SESSION, bytes([3] * 16), 1)

    cases = [(decode, bad) for decode, good in
             ((r.decode_leaf, LEAF), (body, BODY), (lambda d: r.decode_inner(d, 1), INNER), (opened, SESSION),
              (r.cbor, SESSION_BODY)) for bad in [good[:n] for n in range(len(good))] + [good + b"\0"]]
    cases += [(opened, SESSION[:i] + bytes([SESSION[i] ^ 1]) + SESSION[i + 1:]) for i in range(len(SESSION))]
    cases += [(r.decode_table, TABLE[:n]) for n in range(len(TABLE))] + [(r.decode_table, TABLE + b"\0\1")]
    cases += [(r.cbor, b(x)) for x in ("1800", "190017", "5f40ff", "a201000000", "a2000000", "c000", "f4", "f90000",
                                       "61ff", "a16000", "81" * 17 + "00", "9affffffff")]
    cases += [(lambda d: r.Fields(d).varint(), b(x)) for x in ("8000", "ff" * 9 + "02", "80" * 10 + "01", "80")]
    for decode, bad in cases:
        try:
            decode(bad)
            return False
        except r.Refused:
            pass
    return True


# ---- What a golden repository may lack: a tree of two levels, and blocks that a pack took over from another ----

def varint(n):
    out = b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def counted(data):
    return varint(len(data)) + data


def plain_leaf(directory, names, kind=r.PIPE):
    """Leaf and body of entries without contents, all of one type and directory."""
    n = len(names)
    columns = [b"\x01", varint(n), b"\x01", varint(n) + b"\0" + counted(directory),
               b"".join(b"\0" + varint(len(name)) for name in names), b"".join(names), b"\0\0",
               b"\x01" + bytes([kind, 0, 0, 0, 0]), bytes(n * 9), b"\0\0"]
    return b"".join(columns), b"\x02" + varint(n) + bytes(n) + b"\0"


def plain_inner(level, children):
    """An inner node; children are directory, name and ids."""
    names = b"".join(b"\0" + counted(directory) + counted(name) for directory, name, *_ in children)
    ids = b"".join(i for child in children for i in child[2:])
    return b"\x03" + bytes([level]) + varint(len(children)) + names + bytes(4 * len(children)) + ids


class Chunks(r.Repository):
    """A repository of chunks that are just there."""

    def __init__(self):
        self.chunks, self.said = {}, []

    def add(self, chunk):
        self.chunks[r.blake3(chunk).digest()] = chunk
        return r.blake3(chunk).digest()

    def fetch(self, kind, ident):
        return self.chunks[ident]

    def trouble(self, what):
        self.said.append(what)

    def tree(self, *leaves, first=None):
        """A root of level 2 with an inner node of level 1 for every two leaves."""
        nodes = [(directory, names[0], *map(self.add, plain_leaf(directory, names, *kind)))
                 for directory, names, *kind in leaves]
        inner = [(*nodes[i][:2], self.add(plain_inner(1, nodes[i:i + 2]))) for i in range(0, len(nodes), 2)]
        if first:
            inner[0] = (*first, inner[0][2])
        entries = sum(len(leaf[1]) for leaf in leaves)
        directories = sum(len(leaf[1]) for leaf in leaves if leaf[2:] == (r.DIRECTORY,))
        root, sums = self.add(plain_inner(2, inner)), [entries, 0, directories, 0]
        return r.Snapshot(*[None] * 7, root, 2, sums, *[None] * 5)

    def paths(self, *leaves, **how):
        return [e.path() for e in self.entries(self.tree(*leaves, **how))]


def refused(action, *arguments, **how):
    try:
        action(*arguments, **how)
        return False
    except r.Refused:
        return True


def tree_of_two_levels():
    c = Chunks()
    top, sub = (b"", [b"d", b"e"], r.DIRECTORY), (b"d", [b"a", b"b"])
    good = c.paths(top, sub, (b"d", [b"c"]), (b"e", [b"a"]))
    return (good == [b"d", b"e", b"d/a", b"d/b", b"d/c", b"e/a"] and not c.said
            and refused(c.paths, top, sub, first=(b"", b"c"))               # not what the parent names
            and refused(c.paths, top, (b"d", [b"a", b"z"]), (b"d", [b"c"]))  # reaches into the next child
            and refused(c.paths, (b"", [b"d", b"e"]), sub))                  # below a pipe


class Objects(r.Store):
    """A store in memory."""

    def __init__(self, objects):
        self.objects = objects

    def read(self, name, offset=0, length=None):
        r.need(name in self.objects, "no such object")
        return self.objects[name][offset:][:length]


def wrap(unwrapper, key, info, aad):
    """What Unwrapper.unwrap takes, for a key of 32 bytes."""
    ephemeral = r.X25519PrivateKey.generate()
    lattice, ciphertext = r.MLKEM768PublicKey.from_public_bytes(unwrapper.public()[:1184]).encapsulate()
    encapsulation = ciphertext + ephemeral.public_key().public_bytes_raw()
    secret = unwrapper.extract(unwrapper.decapsulate(encapsulation), b"secret", b"")
    context = b"\0" + unwrapper.extract(b"", b"psk_id_hash", b"") + unwrapper.extract(b"", b"info_hash", info)
    nonce = unwrapper.expand(secret, b"base_nonce", context, 12)
    return encapsulation + r.ChaCha20Poly1305(unwrapper.expand(secret, b"key", context, 32)).encrypt(nonce, key, aad)


def blocks_of_other_packs():
    pack, origin, text = bytes([1] * 16), bytes([2] * 16), b"taken over" * 9
    c = r.Repository.__new__(r.Repository)
    header, foreign = (r.make_header(r.DATA_PACK, 2, i, 7) for i in (pack, origin))
    c.unwrappers, c.data_key = {r.DATA_PACK: {7: r.Unwrapper(bytes([5] * 32))}}, ONE
    info = b"drumlin v1 pack key"
    keys = {foreign: bytes([6] * 32), header: bytes([7] * 32)}
    wrapped = [wrap(c.unwrappers[r.DATA_PACK][7], key, info, h) for h, key in keys.items()]
    nonce = (1 << 40).to_bytes(8, "little") + bytes(4)
    sealed = [r.ChaCha20Poly1305(key).encrypt(nonce, text[i:], h) for i, (h, key) in enumerate(keys.items())]
    ids = [r.chunk_id(ONE, text[i:]) for i in range(2)]
    number = varint(1 << 40)
    table = r.decode_table(
        b"\x02" + b"".join(i + b"\x01" + counted(w) for i, w in zip((origin, pack), wrapped))
        + b"\x02" + b"".join(bytes([i]) + number + b"\0" + varint(106 - i) + varint(90 - i) + b"\x01" for i in range(2))
        + b"".join(ids) + varint(90) + varint(89))
    c.store = Objects({r.pack_name(r.DATA_PACK, pack): header + b"".join(sealed)})
    c.config = r.Config(None, 2, None, None, None)
    c.pack_keys, c.blocks, c.blocks_size = {}, r.OrderedDict(), 0
    c.places, c.known_packs, c.all_read = {r.DATA_PACK: {}}, {}, True
    c.add_pack(pack, r.DATA_PACK, table)
    return [c.fetch(r.DATA_PACK, i) for i in ids] == [text, text[1:]]


def configs_and_copies():
    """Which of the two is read: the copy where the config is gone or damaged, and never instead of a newer one."""
    whole = r.file_bytes(os.path.join(os.path.dirname(__file__), "..", "golden", "v1", "repository", "config"))
    damaged, newer = whole[:90] + bytes([whole[90] ^ 1]) + whole[91:], whole[:7] + b"\x02" + whole[8:]

    def opened(**objects):
        try:
            repository = r.Repository(Objects({name.replace("_", "."): data for name, data in objects.items()}))
            return repository.config == r.read_config(whole), repository.troubles
        except r.Refused as e:
            return str(e).partition(":")[0]

    return [
        opened(config=whole), opened(config=whole, config_copy=damaged), opened(config_copy=whole),
        opened(config=damaged, config_copy=whole), opened(config=damaged), opened(config=newer, config_copy=whole),
        opened(config=damaged, config_copy=damaged), opened(),
    ] == [(True, 0), (True, 0), (True, 1), (True, 1), "config", "config", "config", "config"]


HEAD = b("""6472756d626e64016472756d6c696e010c01000000000000070707070707070707070707070707010302000000000000
030101010101010101010101010101010105000000000000000000000000000000000000000000000000000000000000
000004020202020202020202020202020202020700000000000000e453e00ce3244637fc1f33d08b21ef59""")
SUMS = b("5794cda800000000ff225a4f01000000020000002bbcbde7ae765cdb45fd2ee9719e67fb")
ROWS = ((b("0631d7624d86957b"), b("8d8085bd03060b32")), (b("7159ab1b35d69e4a"), b("6d676b48020e0424")))
BASIS = (0x0001, 0xacca, 0x3c0e, 0x163e, 0xc582, 0xed2e, 0x914c, 0x4012, 0x6c98, 0x10d8, 0x6a72, 0xb900, 0xfdb8, 0xfb34,
         0xff38, 0x991e)


def slice_sum(data):
    """The sum of a slice, as that of a shard."""
    def mix(state, word):
        state ^= word
        return (state << 29 | state >> 35) % (1 << 64) * 0x9e3779b97f4a7c15 % (1 << 64)
    lanes = list(range(1, 9))
    data = data.ljust(65536, b"\0")
    for n in range(len(data) // 8):
        lanes[n % 8] = mix(lanes[n % 8], int.from_bytes(data[8 * n:8 * n + 8], "little"))
    state = 0
    for lane in lanes:
        state = mix(state, lane)
    return state >> 32


def element(low, high):
    """An element of the field by its coordinates."""
    value = 0
    for i in range(16):
        value ^= BASIS[i] if (low | high << 8) >> i & 1 else 0
    return value


def times(x, y):
    product = 0
    for i in range(16):
        product ^= x << i if y >> i & 1 else 0
    for i in range(30, 15, -1):
        product ^= 0x1002d << (i - 16) if product >> i & 1 else 0
    return product


def band():
    header = r.make_header(12, 1, bytes([7] * 15 + [1]))
    seats = [HEAD[48 + 25 * n:73 + 25 * n] for n in range(3)]
    right = [b"\3" + bytes([1] * 16) + b"\5" + bytes(7), bytes(25), b"\4" + bytes([2] * 16) + b"\7" + bytes(7)]
    sums = [slice_sum(b"hello"), 0, slice_sum(b"worlds!"), 1, 2]
    packed = b"".join(n.to_bytes(4, "little") for n in sums)
    return (HEAD[:8] == b"drumbnd\1" and HEAD[8:40] == header and HEAD[40:48] == bytes([3, 2]) + bytes(6)
            and seats == right and len(HEAD) == 64 + 25 * 3 and HEAD[-16:] == r.checksum(HEAD[:-16])
            and slice_sum(b"") == 0x9573d8f4 and slice_sum(bytes(7 * n % 251 for n in range(8192))) == 0xb4655fb5
            and SUMS == packed + r.checksum(bytes([7] * 15) + bytes(4) + packed))


def code_of_bands():
    sevens = bytes(7 * n % 251 for n in range(40))
    worlds = b"worlds!".ljust(40, b"\0")
    for i in range(8):
        word = [element(low[i], high[i]) for low, high in ROWS]
        word += [element(pack[i], pack[32 + i]) for pack in (sevens, bytes(40), worlds)]
        first = second = 0
        for place, value in enumerate(word):
            first ^= value
            second ^= times(value, element(place, 0))
        if first or second:
            return False
    return True


CHECKS = (derivation, identity, signature, generations, small_encodings, footer, session, table, leaf_and_body, inner, refusals,
          tree_of_two_levels, blocks_of_other_packs, configs_and_copies, band, code_of_bands)

if __name__ == "__main__":
    failed = 0
    for check in CHECKS:
        try:
            good = check()
        except r.Refused as why:
            good = False
            print(f"       {why}")
        failed += not good
        print(f"{'ok' if good else 'FAILED'}: {check.__name__.replace('_', ' ')}")
    sys.exit(1 if failed else 0)
