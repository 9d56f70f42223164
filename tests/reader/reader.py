#!/usr/bin/env python3
"""A second reader of Drumlin repositories, written from docs/format.md and nothing else.

It shows that the document suffices to get one's files back. It is plain rather than fast, and it never writes to a
repository. Headings here are those of the document.

    reader.py REPOSITORY (--key-file F | --passphrase-file F | --recovery F) [--without-index] COMMAND

    keys                        the keys, one JSON object a line
    list                        the snapshots that count, one JSON object a line
    entries SNAPSHOT            a snapshot's entries, one JSON object a line; bytes that need not be text in base64
    restore SNAPSHOT TARGET     all of a snapshot, into a directory that is new or empty

Exit status: 0 if all went well, 1 if something was refused or is missing (said on standard error), 2 for wrong usage.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import re
import stat
import sys
from collections import OrderedDict, namedtuple

import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

MIB = 1 << 20
MASK64 = (1 << 64) - 1


class Refused(Exception):
    """Something is malformed, damaged, forged or not there."""


class Newer(Refused):
    """Something that a newer program has written."""


def need(condition, why, error=Refused):
    if not condition:
        raise error(why)


# ---- Conventions: numbers in tables and tree nodes ----

class Fields:
    """Takes the fields of a table or node from bytes, one after the other."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def left(self):
        return len(self.data) - self.at

    def take(self, n):
        need(n <= self.left(), "bytes are missing")
        self.at += n
        return self.data[self.at - n:self.at]

    def byte(self):
        return self.take(1)[0]

    def varint(self, limit=1 << 64):
        n = 0
        for i in range(10):
            b = self.byte()
            need(i < 9 or b == 1, "a number above 64 bits")
            n |= (b & 0x7F) << (7 * i)
            if b < 0x80:
                need(b or not i, "a number that is not in its shortest form")
                break
        need(n < limit, "a number above its limit")
        return n

    def varint32(self):
        return self.varint(1 << 32)

    def zigzag(self):
        return unzigzag(self.varint())

    def count(self, limit=None):
        n = self.varint()
        need(n <= self.left(), "a count of more than there is")
        need(limit is None or n <= limit, "a count above its limit")
        return n

    def counted(self):
        return self.take(self.varint())

    def end(self):
        need(not self.left(), "bytes are left over")

    def zeros(self):
        need(not any(self.data[self.at:]), "padding that is not zero")


def unzigzag(n):
    return (n >> 1) ^ -(n & 1)


def signed64(n):
    n &= MASK64
    return n - (1 << 64) if n >> 63 else n


# ---- Conventions: CBOR in the small objects ----

def cbor(data):
    """One value in the one encoding; maps become dict, arrays list."""
    f = Fields(data)
    value = cbor_value(f, 0)
    f.end()
    return value


def cbor_value(f, depth):
    need(depth <= 16, "CBOR nested too deep")
    first = f.byte()
    major, short = first >> 5, first & 31
    if first == 0xF6:
        return None
    need(major in (0, 1, 2, 3, 4, 5), "a CBOR tag, float or simple value")
    n = short
    if short >= 24:
        need(short <= 27, "CBOR of indefinite length")
        size = 1 << (short - 24)
        n = int.from_bytes(f.take(size), "big")
        need(n >= (24, 1 << 8, 1 << 16, 1 << 32)[short - 24], "a CBOR number that is not in its shortest form")
    if major == 0:
        return n
    if major == 1:
        return -1 - n
    if major == 2:
        return f.take(n)
    if major == 3:
        try:
            return f.take(n).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("text that is not UTF-8") from None
    need(n * (major - 3) <= f.left(), "a CBOR count of more than there is")
    if major == 4:
        return [cbor_value(f, depth + 1) for _ in range(n)]
    result, last = {}, -1
    for _ in range(n):
        key = cbor_value(f, depth + 1)
        need(type(key) is int and key > last, "CBOR map keys that are not ascending numbers")
        result[key], last = cbor_value(f, depth + 1), key
    return result


def field(container, key, kind, length=None, optional=False, below=None):
    """A field of a CBOR map or array, if it is of the wanted kind."""
    if isinstance(container, dict):
        value = container.get(key)
    else:
        value = container[key] if key < len(container) else None
    if value is None:
        need(optional, f"field {key} is missing")
        return None
    if kind == "uint":
        good = type(value) is int and 0 <= value and (below is None or value < below)
    elif kind == "int":
        good = type(value) is int and -(1 << 63) <= value < 1 << 63
    else:
        good = type(value) is {"bytes": bytes, "text": str, "map": dict, "array": list}[kind]
    need(good, f"field {key} is not {kind} within its bounds")
    need(length is None or len(value) == length, f"field {key} is not of {length} bytes")
    return value


def as_map(value):
    need(type(value) is dict, "not a CBOR map")
    return value


def as_array(value):
    need(type(value) is list, "not a CBOR array")
    return value


def enum(value):
    """The number of the variant, and its fields."""
    need(type(value) is list and len(value) == 2, "not a CBOR enum")
    return field(value, 0, "uint"), field(value, 1, "array")


def unpad(message):
    f = Fields(message)
    inner = f.counted()
    f.zeros()
    return inner


# ---- Primitives ----

def checksum(b):
    return blake3(b).digest()[:16]


def derive(secret, purpose, context=b""):
    return blake3(secret + context, derive_key_context="drumlin v1 " + purpose).digest()


def chunk_id(key, b):
    return blake3(b, key=key).digest()


def unseal(suite, key, part, context, sealed):
    need(len(sealed) >= 16, "a sealed message without its tag")
    cipher = {1: AESGCM, 2: ChaCha20Poly1305}[suite](key)
    try:
        return cipher.decrypt(part.to_bytes(8, "little") + bytes(4), bytes(sealed), context)
    except InvalidTag:
        raise Refused("does not open: damaged, forged, or another key") from None


def signature_holds(public, signature, purpose, message):
    text = b"drumlin v1 " + purpose.encode() + b"\0" + blake3(message).digest()
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
        return True
    except (InvalidSignature, ValueError):
        return False


class Unwrapper:
    """An X-Wing private key, for HPKE in mode base with one message."""

    SUITE = b"HPKE\x64\x7a\x00\x01\x00\x03"

    def __init__(self, private):
        expanded = hashlib.shake_256(private).digest(96)
        self.kem = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
        self.curve = X25519PrivateKey.from_private_bytes(expanded[64:])
        self.curve_public = self.curve.public_key().public_bytes_raw()

    def public(self):
        return self.kem.public_key().public_bytes_raw() + self.curve_public

    def decapsulate(self, encapsulation):
        ciphertext, ephemeral = encapsulation[:1088], encapsulation[1088:]
        try:
            shared = self.curve.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        except ValueError:  # the library refuses a secret of zeros, and the format doesn't
            shared = bytes(32)
        lattice = self.kem.decapsulate(ciphertext)
        return hashlib.sha3_256(lattice + shared + ephemeral + self.curve_public + b"\\.//^\\").digest()

    def extract(self, salt, label, ikm):
        return hmac.digest(salt, b"HPKE-v1" + self.SUITE + label + ikm, "sha256")

    def expand(self, secret, label, context, length):  # one round is enough: length is at most 32
        info = length.to_bytes(2, "big") + b"HPKE-v1" + self.SUITE + label + context
        return hmac.digest(secret, info + b"\x01", "sha256")[:length]

    def unwrap(self, wrapped, info, aad):
        need(len(wrapped) == 1168, "a wrapped key of a wrong length")
        context = b"\0" + self.extract(b"", b"psk_id_hash", b"") + self.extract(b"", b"info_hash", info)
        secret = self.extract(self.decapsulate(wrapped[:1120]), b"secret", b"")
        key = self.expand(secret, b"key", context, 32)
        nonce = self.expand(secret, b"base_nonce", context, 12)
        try:
            plain = ChaCha20Poly1305(key).decrypt(nonce, wrapped[1120:], aad)
        except InvalidTag:
            raise Refused("a wrapped key does not open") from None
        need(len(plain) == 32, "a wrapped key that is not 32 bytes")
        return plain


# ---- The header ----

CONFIG, KEY, DATA_PACK, TREE_PACK, INDEX, SNAPSHOT, SESSION, DECISION = range(1, 9)
GENERATION = 13


def make_header(kind, suite, ident, tag=0):
    return b"drumlin\x01" + bytes([kind, suite]) + tag.to_bytes(4, "little") + bytes(2) + ident


def tag_of(header):
    """The generation whose secrets open an object."""
    return int.from_bytes(header[10:14], "little")


def of_generation(secrets, header):
    """The secret of an object's generation."""
    need(tag_of(header) in secrets, f"of generation {tag_of(header):08x}, whose secrets this key doesn't have")
    return secrets[tag_of(header)]


def check_header(data, kind, ident=None, suite=None):
    """Header and the rest of an object."""
    header = data[:32]
    need(len(header) == 32 and header[:7] == b"drumlin", "no Drumlin object")
    need(header[7] != 0, "format version 0")
    need(header[7] == 1, f"format version {header[7]}: use a newer program", Newer)
    need(header[8] == kind, f"of type {header[8]} instead of {kind}")
    need(header[9] in (1, 2), "an unknown suite")
    need(suite is None or header[9] == suite, "of another suite than the config")
    need(not any(header[14:16]), "reserved bytes that are not zero")
    need(ident is None or header[16:] == ident, "the id is not the name's")
    return header, data[32:]


def check_sum(data):
    need(len(data) >= 48, "too short")
    need(checksum(data[:-16]) == data[-16:], "wrong checksum")
    return data[:-16]


# ---- Names in the store ----

class Store:
    """The local store: names are paths below one directory."""

    def __init__(self, root):
        self.root = root

    def path(self, name):
        return os.path.join(self.root, name)

    def ids(self, folder):
        """The ids of the objects in a folder, other names passed over."""
        path = self.path(folder)
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        if folder in ("data", "tree"):
            names = [n for xx in names if re.fullmatch("[0-9a-f]{2}", xx)
                     for n in sorted(os.listdir(self.path(f"{folder}/{xx}"))) if n.startswith(xx)]
        if folder in ("keys", "generations"):  # each stands there twice
            names = sorted({n.removesuffix(".copy") for n in names})
        return [bytes.fromhex(n) for n in names if re.fullmatch("[0-9a-f]{32}", n)]

    def has(self, name):
        return os.path.exists(self.path(name))

    def size(self, name):
        try:
            return os.stat(self.path(name)).st_size
        except OSError as e:
            raise Refused(f"{name}: {e.strerror}") from None

    def read(self, name, offset=0, length=None):
        try:
            with open(self.path(name), "rb") as f:
                f.seek(offset)
                data = f.read() if length is None else f.read(length)
        except OSError as e:
            raise Refused(f"{name}: {e.strerror}") from None
        need(length is None or len(data) == length, f"{name}: shorter than it should be")
        return data


def pack_name(kind, ident):
    return f"{'data' if kind == DATA_PACK else 'tree'}/{ident.hex()[:2]}/{ident.hex()}"


# ---- Config ----

Config = namedtuple("Config", "id suite owner data_public meta_public generation", defaults=(0,))


def read_config(data):
    header, _ = check_header(data, CONFIG)
    outer = as_array(cbor(check_sum(data)[32:]))
    body, signature = field(outer, 0, "bytes"), field(outer, 1, "bytes", 64)
    fields = as_map(cbor(body))
    sizes = field(fields, 0, "map")
    low, normal, high = (field(sizes, i, "uint", below=1 << 32) for i in range(3))
    need(normal >= 4096 and normal & (normal - 1) == 0, "chunk size normal out of bounds")
    need(64 <= low <= normal <= high <= 4 * MIB, "chunk sizes out of bounds")
    need(4096 <= field(fields, 1, "uint") <= 4 * MIB, "block size out of bounds")
    need(65536 <= field(fields, 2, "uint") <= 1024 * MIB, "pack size out of bounds")
    publics = [field(fields, i, "bytes", 1216) for i in (3, 4)]
    owner = field(fields, 5, "bytes", 32)
    wanted = field(fields, 6, "array")
    need(all(type(w) is str for w in wanted), "`needs` is not of text")
    unknown = [w for w in wanted if w != "generations"]
    need(not unknown, "the repository needs what this reader doesn't know: " + ", ".join(map(repr, unknown)), Newer)
    generation = field(fields, 7, "uint", optional=True, below=1 << 32) or 0
    need(("generations" in wanted) == (generation > 0) and not tag_of(header), "it contradicts itself about generations")
    for public in publics:
        try:
            MLKEM768PublicKey.from_public_bytes(public[:1184])
        except ValueError:
            raise Refused("a malformed public key") from None
    need(signature_holds(owner, signature, "config", header + body), "the config's signature does not hold")
    return Config(header[16:], header[9], owner, *publics, generation)


# ---- Keys ----

OWNER, READER, WRITER, KEEPER = range(4)
ROLES = ("owner", "reader", "writer", "keeper")
SECRETS = {4: "index", 5: "identity", 6: "cutting", 7: "data", 8: "meta", 9: "owner_signing", 10: "signing",
           11: "tree_identity", 12: "wrapping"}
SECRETS_OF = {OWNER: (4, 5, 6, 7, 8, 9, 10), READER: (4, 5, 7, 8), WRITER: (4, 5, 6, 10), KEEPER: (4, 8, 10, 11)}

Secrets = namedtuple("Secrets", ["repository", "key", "role", "owner", *SECRETS.values(), "generations"])
GenerationSecrets = namedtuple("GenerationSecrets", "number tag index data meta")
Certificate = namedtuple("Certificate", "role public made revoked")
KeyObject = namedtuple("KeyObject", "header lock salt cost raw_certificate certificate signature secrets label fresh")


def role_of(fields, key):
    role = field(fields, key, "uint")
    need(role in SECRETS_OF, f"unknown role {role}")
    return role


def decode_secrets(data):
    m = as_map(cbor(data))
    role = role_of(m, 2)
    for key in SECRETS_OF[role]:
        need(m.get(key) is not None, f"the {ROLES[role]}'s secrets lack field {key}")
    return Secrets(field(m, 0, "bytes", 16), field(m, 1, "bytes", 16), role, field(m, 3, "bytes", 32),
                   *(field(m, key, "bytes", 32, optional=True) for key in SECRETS), decode_generations(m, role))


def decode_generations(m, role):
    """The later generations that a key knows by itself."""
    known = []
    for g in field(m, 13, "array", optional=True) or []:
        g = as_map(g)
        number, tag = (field(g, i, "uint", below=1 << 32) for i in (0, 1))
        need(number and tag and (not known or known[-1].number < number), "generations that are none, or out of order")
        known.append(GenerationSecrets(number, tag, *generation_secrets(g, role, 2)))
    return known


def generation_secrets(m, role, first):
    index = field(m, first, "bytes", 32)
    data, meta = (field(m, i, "bytes", 32, optional=True) for i in (first + 1, first + 2))
    need((data or role not in (OWNER, READER)) and (meta or role == WRITER), "a generation lacks what the role needs")
    return index, data, meta


def decode_key_object(data, ident, suite):
    header, _ = check_header(data, KEY, ident, suite)
    m = as_map(cbor(check_sum(data)[32:]))
    lock, lock_fields = enum(field(m, 0, "array"))
    need(lock <= 2, "an unknown lock")
    salt = cost = None
    if lock == 1:
        salt = field(lock_fields, 0, "bytes", 16)
        cost = [field(lock_fields, i, "uint", below=1 << 32) for i in (1, 2, 3)]
    raw = field(m, 1, "bytes")
    c = as_map(cbor(raw))
    certificate = Certificate(role_of(c, 0), field(c, 1, "bytes", 32, optional=True), field(c, 2, "int"),
                              field(c, 3, "int", optional=True))
    secrets = field(m, 3, "bytes")
    revoked = certificate.revoked is not None
    need(revoked == (lock == 2), "lock and certificate disagree on whether the key was revoked")
    need(not (revoked and secrets), "a revoked key with secrets")
    return KeyObject(header, lock, salt, cost, raw, certificate, field(m, 2, "bytes", 64), secrets,
                     field(m, 4, "bytes"), field(m, 5, "bytes", 16))


def text_frame(data, title):
    """The lines between title and check of a key file or recovery file."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise Refused("not a text file in ASCII") from None
    lines = [line.strip().lower() for line in text.split("\n")]
    lines = [line for line in lines if line]
    need(len(lines) >= 2 and lines[0] == title, f"the first line is not '{title}'")
    right = blake3("".join(line + "\n" for line in lines[:-1]).encode()).digest()[:4].hex()
    need(lines[-1] == "check " + right, "the check is wrong: mistyped or damaged")
    return lines[1:-1]


def parse_key_file(data):
    lines = text_frame(data, "drumlin key file 1")
    match = re.fullmatch("repository ([0-9a-f]{32})\nkey ([0-9a-f]{32})\nsecret ([0-9a-f]{64})", "\n".join(lines))
    need(match, "not the lines of a key file")
    return tuple(map(bytes.fromhex, match.groups()))


def parse_recovery_file(data):
    lines = text_frame(data, "drumlin recovery file 1")
    need(lines and all(re.fullmatch("[0-9a-f]{64}", line) for line in lines[:-1])
         and re.fullmatch("([0-9a-f]{2}){1,32}", lines[-1]), "not the lines of a recovery file")
    return decode_secrets(bytes.fromhex("".join(lines)))


def passphrase_secret(passphrase, salt, cost):
    memory, passes, lanes = cost
    need(memory <= MIB and passes <= 64 and lanes <= 64, "a lock beyond the limits")
    try:
        return Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory).derive(passphrase)
    except ValueError as e:
        raise Refused(f"a lock that can't be: {e}") from None


def open_secrets(k, unlock):
    key = derive(unlock, "key object", k.header + k.fresh)
    secrets = decode_secrets(unseal(k.header[9], key, 0, k.header, k.secrets))  # not padded
    need(secrets.key == k.header[16:], "the secrets are of another key")
    need(secrets.role == k.certificate.role, "the secrets are of another role than the certificate")
    return secrets


# ---- Generations ----

Generation = namedtuple("Generation", "header number tag data_public meta_public shares")


def decode_generation(data, ident, config):
    header, _ = check_header(data, GENERATION, ident, config.suite)
    outer = as_array(cbor(check_sum(data)[32:]))
    body, signature = field(outer, 0, "bytes"), field(outer, 1, "bytes", 64)
    need(signature_holds(config.owner, signature, "generation", header + body), "the owner didn't sign it")
    m = as_map(cbor(body))
    need(field(m, 0, "bytes", 16) == config.id, "of another repository")
    number, tag = int.from_bytes(ident, "big"), tag_of(header)
    need(0 < number < 1 << 32 and tag, "the first generation has no object")
    field(m, 3, "int")
    shares = [(field(s, 0, "bytes", 16), field(s, 1, "bytes")) for s in map(as_array, field(m, 4, "array"))]
    need(all(a[0] < b[0] for a, b in zip(shares, shares[1:])), "shares out of order")
    return Generation(header, number, tag, field(m, 1, "bytes", 1216), field(m, 2, "bytes", 1216), dict(shares))


def wrapping_key(secrets):
    """The private half of a key's own pair."""
    return derive(secrets.signing, "key wrapping", secrets.key) if secrets.signing else secrets.wrapping


def open_share(generation, secrets):
    """What a generation hands to a key."""
    share, header = generation.shares[secrets.key], generation.header
    private = wrapping_key(secrets)
    need(private, "a key without a pair")
    fresh = Unwrapper(private).unwrap(share[:1168], b"drumlin v1 generation key", header)
    m = as_map(cbor(unpad(unseal(header[9], fresh, 0, header, share[1168:]))))
    index, data, meta = generation_secrets(m, secrets.role, 0)
    for half, public in ((data, generation.data_public), (meta, generation.meta_public)):
        need(not half or Unwrapper(half).public() == public, "private keys that don't belong to the public ones")
    return GenerationSecrets(generation.number, generation.tag, index, data, meta)


# ---- Packs ----

RAW, ZSTD, PADDING = range(3)
MAX_BLOCK = 16 * MIB
MAX_TABLE = 256 * MIB

Slot = namedtuple("Slot", "origin wrapped")
Block = namedtuple("Block", "slot number codec offset stored raw chunks")
Table = namedtuple("Table", "slots blocks ids end")


def decode_footer(header, footer, length):
    need(footer[:8] == b"drumend\x01", "no footer")
    t, l, p, whole = (int.from_bytes(footer[a:b], "little") for a, b in ((8, 16), (16, 20), (20, 24), (24, 32)))
    need(checksum(header + footer[:32]) == footer[32:], "wrong checksum of the footer")
    need(t >= 32 and t + l + p + 48 == length == whole and l <= MAX_TABLE, "a footer that disagrees with the pack")
    return t, l


def decode_table(data):
    f = Fields(data)
    slots = []
    for _ in range(f.count()):
        origin = f.take(16)
        need(f.byte() == 1, "an unknown KEM")
        slots.append(Slot(origin, f.counted()))
        need(len(slots[-1].wrapped) == 1168, "a wrapped key of a wrong length")
    need(len({s.origin for s in slots}) == len(slots), "an origin that stands twice")
    heads, seen, offset, total = [], set(), 32, 0
    for _ in range(f.count()):
        slot, number, codec = f.varint32(), f.varint(), f.byte()
        stored, raw, chunks = f.varint32(), f.varint32(), f.varint32()
        need(slot < len(slots), "a slot that isn't there")
        need(codec in (RAW, ZSTD, PADDING), "an unknown codec")
        need(16 <= stored <= MAX_BLOCK and raw <= MAX_BLOCK, "a block of a wrong length")
        need(codec != RAW or stored == raw + 16, "a raw block of two lengths")
        need((slot, number) not in seen, "two blocks of one number")
        need((not chunks and not raw) if codec == PADDING else chunks, "a block with chunks that should not have any, "
             "or without")
        seen.add((slot, number))
        heads.append((slot, number, codec, offset, stored, raw, chunks))
        offset += stored
        total += chunks
    need(total * 33 <= f.left(), "more chunks than there is room for")
    ids = [f.take(32) for _ in range(total)]
    blocks, chunk = [], 0
    for slot, number, codec, at, stored, raw, chunks in heads:
        places, position = [], 0
        for _ in range(chunks):
            length = f.varint32()
            need(length, "an empty chunk")
            places.append((ids[chunk], position, length))
            position += length
            chunk += 1
        need(position == raw, "chunks that are longer or shorter than their block")
        blocks.append(Block(slot, number, codec, at, stored, raw, places))
    f.zeros()
    return Table(slots, blocks, ids, offset)


def decode_block(block, message):
    """The raw bytes of a block that was opened."""
    if block.codec == RAW:
        raw = message
    else:
        try:
            need(message[:4] == zstandard.FRAME_HEADER, "no zstd frame")
            frame = zstandard.get_frame_parameters(message)
            known = frame.content_size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
            need(not frame.dict_id, "a frame with a dictionary")
            need(not known or frame.content_size == block.raw, "a frame of another length")
            raw = zstandard.ZstdDecompressor(max_window_size=MAX_BLOCK).decompress(
                message, max_output_size=block.raw, allow_extra_data=False)
        except zstandard.ZstdError as e:
            raise Refused(f"a block that can't be decompressed: {e}") from None
    need(len(raw) == block.raw, "a block of another raw length")
    return raw


# ---- The tree ----

REGULAR, DIRECTORY, SYMLINK, PIPE, SOCKET, CHARACTER, BLOCK = range(7)
TYPES = ("file", "directory", "symlink", "pipe", "socket", "character device", "block device")
NOT_READ = 1
MAX_TEXT = 4 * MIB
MAX_NODE = 8 * MIB
LEAF, BODY, INNER, LIST = 1, 2, 3, 4


class Entry:
    """An entry; the attributes are the fields of leaf and body."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.nlink, self.filesystem, self.device, self.birth = 1, 0, 0, None
        self.chunk = self.list = self.target = None
        self.xattrs, self.flags = [], 0

    def at(self):
        return self.directory, self.name

    def inside(self):
        """The directory that this entry is, if it is one."""
        return self.directory + b"\0" + self.name if self.directory else self.name

    def path(self):
        return self.inside().replace(b"\0", b"/")


def check_name(name):
    need(1 <= len(name) <= 1024 and name not in (b".", b"..") and b"/" not in name and b"\0" not in name,
         "a name that is not valid")


def check_directory(directory):
    need(len(directory) <= MIB, "a directory that is too long")
    if directory:
        for part in directory.split(b"\0"):
            check_name(part)


def shared(before, n, rest):
    need(n <= len(before), "shares more bytes than there are")
    return before[:n] + rest


def people(f, entries):
    """Names of users or groups by number."""
    result, last = {}, -1
    for _ in range(f.count(entries)):
        number = f.varint32()
        need(number > last, "users or groups out of order")
        result[number], last = f.counted(), number
    return result


def sparse(f, entries, *numbers):
    """A sparse column: which entry, and its numbers."""
    place, first = 0, True
    for _ in range(f.count(entries)):
        step = f.varint()
        need(first or step, "a step of 0")
        place, first = place + step, False
        need(place < entries, "a step that leads nowhere")
        yield (place, *(f.varint(limit) for limit in numbers))


def decode_leaf(data):
    f = Fields(data)
    need(len(data) <= MAX_NODE, "a leaf that is too long")
    need(f.byte() == LEAF, "no leaf")
    n = f.count(8192)
    need(n, "a leaf without entries")
    runs, before, text = [], None, 0
    for _ in range(f.count(n)):
        entries, share, rest = f.varint(), f.varint(), f.counted()
        directory = shared(before or b"", share, rest)
        check_directory(directory)
        need(entries, "a run without entries")
        need(before is None or before < directory, "directories out of order")
        runs.append((directory, entries))
        before, text = directory, text + len(directory)
        need(text <= MAX_TEXT, "too much text")
    need(sum(entries for _, entries in runs) == n, "runs that don't add up")
    shares = [(f.varint(), f.varint()) for _ in range(n)]
    leaf, place = [], 0
    for directory, entries in runs:
        before = b""
        for i in range(entries):
            share, rest = shares[place]
            name = shared(before, share, f.take(rest))
            check_name(name)
            need(not i or before < name, "names out of order")
            leaf.append(Entry(directory, name))
            before, place, text = name, place + 1, text + len(name)
            need(text <= MAX_TEXT, "too much text")
    users, groups = people(f, n), people(f, n)
    classes = [(f.byte(), f.varint(), f.byte(), f.varint32(), f.varint32()) for _ in range(f.count(n))]
    for kind, mode, marks, _, _ in classes:
        need(kind < len(TYPES) and mode <= 0o7777 and marks < 8, "a type, mode or mark that isn't there")
    for e in leaf:
        number = f.varint()
        need(number < len(classes), "a class that isn't there")
        e.type, e.mode, e.marks, e.uid, e.gid = classes[number]
        e.user, e.group = users.get(e.uid), groups.get(e.gid)
    for e in leaf:
        e.size = f.varint()
    times = []
    for column in range(4):
        value, values = 0, []
        for _ in leaf:
            value = signed64(value + f.zigzag())
            need(column % 2 == 0 or 0 <= value < 10**9, "nanoseconds out of bounds")
            values.append(value)
        times.append(values)
    births = [f.zigzag() for _ in leaf]
    for i, e in enumerate(leaf):
        e.mtime, e.ctime = (times[0][i], times[1][i]), (times[2][i], times[3][i])
        nanoseconds = f.varint()
        if nanoseconds:
            e.birth = signed64(e.ctime[0] - births[i]), e.ctime[1] - unzigzag(nanoseconds - 1)
            need(0 <= e.birth[1] < 10**9, "nanoseconds out of bounds")
        else:
            need(births[i] == 0, "an unknown birth time with seconds")
    inode = 0
    for e in leaf:
        e.inode = inode = (inode + f.zigzag()) & MASK64
    for place, nlink, filesystem in sparse(f, n, 1 << 32, 1 << 32):
        need(nlink >= 2 and leaf[place].type != DIRECTORY, "links of what has none")
        leaf[place].nlink, leaf[place].filesystem = nlink, filesystem
    for place, device in sparse(f, n, 1 << 64):
        leaf[place].device = device
    f.end()
    return leaf


Ref = namedtuple("Ref", "length id")  # the id is None for a hole
ListOf = namedtuple("ListOf", "level whole refs")


def decode_refs(f, limit, total):
    refs = [f.varint() for _ in range(f.count(limit))]
    need(refs and all(r >> 1 for r in refs), "a list without refs, or a ref of length 0")
    need(sum(r >> 1 for r in refs) == total, "refs that don't add up")
    return [Ref(r >> 1, None if r & 1 else f.take(32)) for r in refs]


def decode_body(data, leaf):
    """Adds what the body says to the entries of its leaf."""
    f = Fields(data)
    need(len(data) <= MAX_NODE, "a body that is too long")
    need(f.byte() == BODY, "no body")
    need(f.count() == len(leaf), "a body of another leaf")
    tags = f.take(len(leaf))
    need(all(tag < 32 and tag & 3 != 3 for tag in tags), "tags that can't be")

    def having(bit):
        return [e for e, tag in zip(leaf, tags) if tag & bit]

    for e in having(1):
        e.chunk = f.take(32)
    for e in having(2):
        level = f.byte()
        need(level <= 8, "a list of too many levels")
        whole = f.take(32)
        e.list = ListOf(level, whole, decode_refs(f, 8, e.size))
    for e in having(4):
        e.target = f.counted()
        need(e.type == SYMLINK and e.target and b"\0" not in e.target, "a target that can't be")
    sets, attributes = [], 0
    for _ in range(f.count(len(leaf))):
        pairs = [(f.counted(), f.counted()) for _ in range(f.count(65536))]
        names = [name for name, _ in pairs]
        attributes += len(pairs)
        need(pairs and attributes <= 65536, "an attribute set that is empty, or too many attributes")
        need(all(name and b"\0" not in name for name in names), "an attribute's name that can't be")
        need(all(a < b for a, b in zip(names, names[1:])), "attributes out of order")
        sets.append(pairs)
    for e in having(8):
        number = f.varint()
        need(number < len(sets), "an attribute set that isn't there")
        e.xattrs = sets[number]
    for e in having(16):
        e.flags = f.varint32()
        need(e.flags, "flags of 0")
    f.end()
    for e in leaf:
        contents = e.chunk is not None or e.list is not None
        need(not contents or (e.type == REGULAR and e.size), "contents of what has none")
        need(e.type != REGULAR or not e.size or contents or e.marks & NOT_READ, "a file without its contents")
        need(e.type != SYMLINK or e.target is not None or e.marks & NOT_READ, "a symbolic link without its target")


def decode_list_node(data, level, length):
    f = Fields(data)
    need(len(data) <= MAX_NODE, "a list node that is too long")
    need(f.byte() == LIST, "no list node")
    need(f.byte() == level, "a list node of another level")
    refs = decode_refs(f, 8192, length)
    f.end()
    return refs


Child = namedtuple("Child", "directory name node body")


def decode_inner(data, level):
    f = Fields(data)
    need(len(data) <= MAX_NODE, "an inner node that is too long")
    need(f.byte() == INNER, "no inner node")
    need(f.byte() == level, "an inner node of another level")
    n = f.count(8192)
    need(n, "an inner node without children")
    names, before, text = [], b"", 0
    for _ in range(n):
        share, rest, name = f.varint(), f.counted(), f.counted()
        directory = shared(before, share, rest)
        check_directory(directory)
        check_name(name)
        need(not names or names[-1] < (directory, name), "children out of order")
        names.append((directory, name))
        before, text = directory, text + len(directory) + len(name)
        need(text <= MAX_TEXT, "too much text")
    for _ in range(4 * n):
        f.varint()
    children = [Child(*at, f.take(32), f.take(32) if level == 1 else None) for at in names]
    f.end()
    return children


# ---- Snapshots, sessions and decisions ----

Signed = namedtuple("Signed", "signer signature body tag")
Snapshot = namedtuple("Snapshot", "id session time host user paths tags root level sums partial parent program "
                      "summary signer")


def decode_signed(message):
    a = as_array(cbor(unpad(message)))
    return Signed(field(a, 0, "bytes", 16), field(a, 1, "bytes", 64), field(a, 2, "bytes"),
                  field(a, 3, "uint", optional=True, below=1 << 32))


def decode_snapshot(ident, signed):
    m = as_map(cbor(signed.body))
    root, level = field(m, 7, "bytes", 32, optional=True), field(m, 8, "uint")
    need(1 <= level <= 16 if root else level == 0, "a level that the root can't have")
    paths, tags = field(m, 5, "array"), field(m, 6, "array")
    need(all(type(p) is bytes for p in paths) and all(type(t) is str for t in tags), "paths or tags of a wrong kind")
    sums, summary = field(m, 9, "map"), field(m, 13, "map")
    passed_by = field(m, 16, "array", optional=True) or []
    need(all(type(p) is bytes for p in passed_by), "directories that were passed by of a wrong kind")
    partial = field(m, 10, "map", optional=True)
    if partial is not None:
        partial = field(partial, 0, "bytes"), field(partial, 1, "bytes")
    return Snapshot(ident, field(m, 0, "bytes", 16),
                    (field(m, 1, "int"), field(m, 2, "uint", below=10**9)), field(m, 3, "text"), field(m, 4, "text"),
                    paths, tags, root, level, [field(sums, i, "uint") for i in range(4)], partial,
                    field(m, 11, "bytes", 16, optional=True), field(m, 12, "text"),
                    [field(summary, i, "uint") for i in range(10)] + [field(summary, i, "uint", optional=True) or 0 for i in (10, 11)], signed.signer)


def open_small(data, purpose_of_key, index_secrets, kind, ident, suite):
    """Header and signed message of a session or decision."""
    header, rest = check_header(data, kind, ident, suite)
    key = derive(of_generation(index_secrets, header), purpose_of_key, header + rest[:16])
    return header, decode_signed(unseal(header[9], key, 0, header, rest[16:]))


# ---- All of it together ----

Place = namedtuple("Place", "pack kind table block offset length")


class Repository:
    def __init__(self, store):
        self.store = store
        self.troubles = 0
        self.config = self.twice("config", read_config)
        self.certificates = {}
        self.pack_keys = {}
        self.blocks, self.blocks_size = OrderedDict(), 0
        self.places = {DATA_PACK: {}, TREE_PACK: {}}
        self.known_packs, self.all_read = {}, False

    def trouble(self, what):
        self.troubles += 1
        print(f"reader: {what}", file=sys.stderr)

    @staticmethod
    def told(name, action):
        """Does something, and names the object if it is refused."""
        try:
            return action()
        except Refused as e:
            raise type(e)(f"{name}: {e}") from None

    # -- opening --

    def twice(self, name, decode):
        """An object of which there is a copy, or that if it is sound and the object isn't."""
        try:
            return self.told(name, lambda: decode(self.store.read(name)))
        except Newer:
            raise
        except Refused as e:
            try:
                found = decode(self.store.read(f"{name}.copy"))
            except Refused:
                raise e from None
            self.trouble(e)
            return found

    def key_object(self, ident):
        return self.twice(f"keys/{ident.hex()}", lambda data: decode_key_object(data, ident, self.config.suite))

    def open_with_key_file(self, data):
        repository, key, secret = parse_key_file(data)
        need(repository == self.config.id, "the key file is for another repository")
        k = self.key_object(key)
        need(k.lock != 2, "the key was revoked")
        need(k.lock == 0, "the key is locked with a passphrase")
        self.use(open_secrets(k, secret))

    def open_with_passphrase(self, passphrase):
        for ident in self.store.ids("keys"):
            try:
                k = self.key_object(ident)
                if k.lock != 1:
                    continue
                secrets = open_secrets(k, passphrase_secret(passphrase, k.salt, k.cost))
            except Refused:
                continue
            return self.use(secrets)
        raise Refused("the passphrase opens no key of this repository")

    def use(self, secrets):
        need(secrets.repository == self.config.id and secrets.owner == self.config.owner,
             "the config belongs to another repository than the key")
        need(secrets.meta is not None, f"a {ROLES[secrets.role]}'s key reads no snapshots")
        self.secrets = secrets
        self.data_key = derive(secrets.identity, "data chunk") if secrets.identity else None
        self.tree_key = derive(secrets.identity, "tree chunk") if secrets.identity else secrets.tree_identity
        self.index_secrets = {0: secrets.index}
        self.unwrappers = {TREE_PACK: {0: Unwrapper(secrets.meta)}}
        if secrets.data:
            self.unwrappers[DATA_PACK] = {0: Unwrapper(secrets.data)}
        for known in secrets.generations:
            self.learn(known)
        self.read_generations()

    def learn(self, g):
        if g.tag not in self.index_secrets:
            self.index_secrets[g.tag] = g.index
            self.unwrappers[TREE_PACK][g.tag] = Unwrapper(g.meta)
            if g.data:
                self.unwrappers[DATA_PACK][g.tag] = Unwrapper(g.data)

    def read_generations(self):
        """What the repository's generations hand to this key."""
        found = {0}
        for ident in self.store.ids("generations") if self.config.generation else ():
            for name in (f"generations/{ident.hex()}", f"generations/{ident.hex()}.copy"):
                try:
                    generation = decode_generation(self.store.read(name), ident, self.config)
                    found.add(generation.number)
                    if self.secrets.key in generation.shares:
                        self.learn(open_share(generation, self.secrets))
                    break
                except Refused as e:
                    self.trouble(f"{name}: {e}")
        if max(found) < self.config.generation:
            self.trouble(f"generation {self.config.generation} of the secrets is not there")

    def certificate(self, ident):
        """A key's certificate, if the owner signed it."""
        if ident not in self.certificates:
            k = self.key_object(ident)
            message = k.header + self.config.id + k.raw_certificate
            need(signature_holds(self.config.owner, k.signature, "key certificate", message),
                 f"keys/{ident.hex()}: the owner didn't sign the certificate")
            self.certificates[ident] = k.certificate
        return self.certificates[ident]

    def check_signature(self, ident, signature, purpose, message):
        """The role of the signer, if all signatures hold."""
        certificate = self.certificate(ident)
        need(certificate.public is not None, "signed by a key that can't sign")
        need(signature_holds(certificate.public, signature, purpose, message), "the signature does not hold")
        return certificate.role

    def label(self, k):
        key = derive(of_generation(self.index_secrets, k.header), "key label", k.header + k.fresh)
        try:
            return unpad(unseal(k.header[9], key, 0, k.header, k.label)).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("a label that is not UTF-8") from None

    # -- index --

    def add_pack(self, ident, kind, table):
        """Notes where a pack's chunks are, by the word of an index object or of the pack itself."""
        known = self.known_packs.setdefault((ident, kind), [])
        if table in known:
            return
        known.append(table)
        for block in table.blocks:
            for chunk, offset, length in block.chunks:
                place = Place(ident, kind, table, block, offset, length)
                self.places[kind].setdefault(chunk, []).append(place)

    def read_index_object(self, ident):
        header, rest = check_header(self.store.read(f"index/{ident.hex()}"), INDEX, ident, self.config.suite)
        need(len(rest) >= 20, "too short")
        key = derive(of_generation(self.index_secrets, header), "index object", header + rest[:16])
        hooks_end = 20 + int.from_bytes(rest[16:20], "little")
        need(hooks_end <= len(rest), "hooks longer than the object")
        hooks = unseal(header[9], key, 0, header, rest[20:hooks_end])
        tables = unseal(header[9], key, 1, header, rest[hooks_end:])
        f = Fields(hooks)
        signer, signature = f.take(16), f.take(64)
        signed = header + signer + hooks[f.at:]
        need(blake3(tables).digest() == f.take(32), "part 1 is not the one that part 0 promises")
        packs = []
        for _ in range(f.count()):
            pack, kind = f.take(16), f.byte()
            if kind & 0x80:  # the tag is in the pack's header, too
                need(any(f.take(4)), "a tag of 0")
                kind ^= 0x80
            length, t, l, chunks = f.varint(), f.varint(), f.varint32(), f.varint32()
            need(kind in (DATA_PACK, TREE_PACK), "a pack of an unknown type")
            need(t + l + 48 <= length < t + l + 48 + 2**32 and t >= 32 and l <= MAX_TABLE, "a pack whose lengths disagree")
            packs.append((pack, kind, t, chunks, [f.take(8) for _ in range(f.count())]))
        f.zeros()
        g = Fields(tables)
        need(g.count() == len(packs), "parts that disagree in the number of packs")
        decoded = []
        for pack, kind, t, chunks, hook_list in packs:
            table = decode_table(g.counted())
            need(table.end == t, "parts that disagree in where blocks end")
            need(len(table.ids) == chunks, "parts that disagree in the number of chunks")
            need([i[:8] for i in table.ids if i[0] < 4] == hook_list, "parts that disagree in the hooks")
            decoded.append((pack, kind, table))
        g.zeros()
        try:
            self.check_signature(signer, signature, "index object", signed)
        except Refused as e:  # chunks are checked by their ids, so it may be used
            self.trouble(f"index/{ident.hex()}: used, but {e}")
        return decoded

    def read_pack_table(self, ident, kind):
        name = pack_name(kind, ident)
        length = self.store.size(name)
        need(length >= 80, "too short")
        header, _ = check_header(self.store.read(name, 0, 32), kind, ident, self.config.suite)
        t, l = decode_footer(header, self.store.read(name, length - 48, 48), length)
        sealed = self.store.read(name, t, l)
        key = derive(of_generation(self.index_secrets, header), "pack table", header + sealed[:16])
        message = unseal(header[9], key, 0, header, sealed[16:])
        f = Fields(message)
        signer, signature = f.take(16), f.take(64)
        table = decode_table(message[80:])
        need(table.end == t, "the blocks don't end where the table begins")
        try:
            self.check_signature(signer, signature, "pack table", header + signer + message[80:])
        except Refused as e:
            self.trouble(f"{name}: used, but {e}")
        return table

    def read_index(self):
        for ident in self.store.ids("index"):
            try:
                for pack in self.read_index_object(ident):
                    self.add_pack(*pack)
            except Refused as e:
                self.trouble(f"index/{ident.hex()}: {e}")

    def read_all_tables(self, compare=False):
        """Reads the tables of all packs; compares them with the index if wanted."""
        self.all_read = True
        for kind in (TREE_PACK, DATA_PACK):
            for ident in self.store.ids("data" if kind == DATA_PACK else "tree"):
                try:
                    table = self.read_pack_table(ident, kind)
                    need(not compare or all(t == table for t in self.known_packs.get((ident, kind), [])),
                         "an index object says something else than the pack's table")
                    self.add_pack(ident, kind, table)
                except Refused as e:
                    self.trouble(f"{pack_name(kind, ident)}: {e}")

    # -- chunks --

    def block_bytes(self, place):
        spot = place.kind, place.pack, place.block.offset
        if spot in self.blocks:
            self.blocks.move_to_end(spot)
            return self.blocks[spot]
        block, slot = place.block, place.table.slots[place.block.slot]
        name = pack_name(place.kind, place.pack)
        header, _ = check_header(self.store.read(name, 0, 32), place.kind, place.pack, self.config.suite)
        origin = make_header(place.kind, self.config.suite, slot.origin, tag_of(header))
        if (origin, slot.wrapped) not in self.pack_keys:
            need(place.kind in self.unwrappers, "this key does not open data packs")
            unwrapper = of_generation(self.unwrappers[place.kind], header)
            self.pack_keys[origin, slot.wrapped] = unwrapper.unwrap(slot.wrapped, b"drumlin v1 pack key", origin)
        sealed = self.store.read(name, block.offset, block.stored)
        message = unseal(self.config.suite, self.pack_keys[origin, slot.wrapped], block.number, origin, sealed)
        raw = decode_block(block, message)
        self.blocks[spot] = raw
        self.blocks_size += len(raw)
        while self.blocks_size > 64 * MIB and len(self.blocks) > 1:
            self.blocks_size -= len(self.blocks.popitem(last=False)[1])
        return raw

    def fetch(self, kind, ident):
        """A chunk's bytes, compared with its id; from another place if one fails."""
        key = self.data_key if kind == DATA_PACK else self.tree_key
        tried, why = 0, "no pack has it"
        while True:
            for place in self.places[kind].get(ident, [])[tried:]:
                tried += 1
                try:
                    chunk = self.block_bytes(place)[place.offset:place.offset + place.length]
                    need(chunk_id(key, chunk) == ident, "its bytes are not those of its id")
                    return chunk
                except Refused as e:
                    why = f"{pack_name(kind, place.pack)}: {e}"
                    self.trouble(f"chunk {ident.hex()}: {why}")
            if self.all_read:
                raise Refused(f"chunk {ident.hex()}: {why}")
            self.read_all_tables()  # the index may lack a pack, or be wrong about it

    # -- snapshots --

    def snapshot(self, ident):
        """A snapshot, if it is somebody's by all signatures."""
        name = f"snapshots/{ident.hex()}"
        header, rest = check_header(self.store.read(name), SNAPSHOT, ident, self.config.suite)
        need(len(rest) >= 1168 + 16, "too short")
        unwrapper = of_generation(self.unwrappers[TREE_PACK], header)
        key = unwrapper.unwrap(rest[:1168], b"drumlin v1 small object key", header)
        signed = decode_signed(unseal(header[9], key, 0, header, rest[1168:]))
        if signed.tag is not None:  # sealed anew with the secrets of another generation
            header = make_header(SNAPSHOT, header[9], ident, signed.tag)
        role = self.check_signature(signed.signer, signed.signature, "snapshot", header + signed.signer + signed.body)
        need(role in (OWNER, WRITER), f"signed by a {ROLES[role]}")
        return decode_snapshot(ident, signed)

    def verdict(self, session):
        """Variant and field of the decision on a session."""
        data = self.store.read(f"decisions/{session.hex()}")
        header, signed = open_small(data, "small object", self.index_secrets, DECISION, session, self.config.suite)
        self.check_signature(signed.signer, signed.signature, "decision", header + signed.signer + signed.body)
        variant, fields = enum(cbor(signed.body))
        need(variant in (0, 1), "an unknown verdict")
        return variant, field(fields, 0, "bytes", 16) if variant == 0 else field(fields, 0, "uint")

    def counts(self, snapshot):
        if not self.store.has(f"sessions/{snapshot.session.hex()}"):
            return True
        if not self.store.has(f"decisions/{snapshot.session.hex()}"):
            return False
        return self.told(f"decisions/{snapshot.session.hex()}",
                         lambda: self.verdict(snapshot.session)) == (0, snapshot.id)

    def snapshots(self):
        """All that count, oldest first."""
        found = []
        for ident in self.store.ids("snapshots"):
            name = f"snapshots/{ident.hex()}"
            try:
                snapshot = self.told(name, lambda: self.snapshot(ident))
                if self.counts(snapshot):
                    found.append(snapshot)
                else:
                    print(f"reader: {name}: left out, its session is under way or died", file=sys.stderr)
            except Refused as e:
                self.trouble(e)
        return sorted(found, key=lambda s: (s.time, s.id))

    # -- the tree --

    def entries(self, snapshot):
        """The entries in order, with all that ties one node to the next."""
        not_directories, checked = set(), None
        sums, last = [0, 0, 0, 0], None
        leaves = self.leaves(snapshot.root, snapshot.level, None, None) if snapshot.root else ()
        for leaf in leaves:
            for e in leaf:
                if e.directory != checked:
                    parts = e.directory.split(b"\0")
                    for i in range(1, len(parts) + 1):
                        need(b"\0".join(parts[:i]) not in not_directories,
                             f"{e.path()!r} stands below something that is not a directory")
                    checked = e.directory
                need(last is None or last < e.at(), "entries out of order")
                last = e.at()
                if e.type != DIRECTORY:
                    not_directories.add(e.inside())
                for i, n in enumerate((1, e.type == REGULAR, e.type == DIRECTORY, e.size * (e.type == REGULAR))):
                    sums[i] = min(sums[i] + n, MASK64)
                yield e
        if sums != snapshot.sums:
            self.trouble(f"the snapshot promises the sums {snapshot.sums}, its entries give {sums}")
        if snapshot.partial and last and last > snapshot.partial:
            self.trouble("a partial snapshot with entries behind its last one")

    def leaves(self, ident, level, first, bound):
        children = self.told(f"inner node {ident.hex()}", lambda: decode_inner(self.fetch(TREE_PACK, ident), level))
        need(first is None or children[0][:2] == first, "a child that does not begin with what its parent names")
        for i, child in enumerate(children):
            end = children[i + 1][:2] if i + 1 < len(children) else bound
            if level > 1:
                yield from self.leaves(child.node, level - 1, child[:2], end)
                continue
            leaf = self.told(f"leaf {child.node.hex()}", lambda: decode_leaf(self.fetch(TREE_PACK, child.node)))
            self.told(f"body {child.body.hex()}", lambda: decode_body(self.fetch(TREE_PACK, child.body), leaf))
            need(leaf[0].at() == child[:2], "a leaf that does not begin with what its parent names")
            need(end is None or leaf[-1].at() < end, "a leaf that reaches into the next one")
            yield leaf

    # -- contents --

    def stretches(self, level, refs):
        """(length, bytes) of a list; bytes are None for a hole."""
        for ref in refs:
            if ref.id is None:
                yield ref.length, None
            elif level == 0:
                chunk = self.fetch(DATA_PACK, ref.id)
                need(len(chunk) == ref.length, "a chunk of another length than its ref")
                yield ref.length, chunk
            else:
                node = self.fetch(TREE_PACK, ref.id)
                yield from self.stretches(level - 1, decode_list_node(node, level - 1, ref.length))

    def contents(self, e):
        """(offset, length, bytes) of a regular file; bytes are None for a hole. Raises at the end if the identity of
        the whole is wrong."""
        if e.chunk is not None:
            chunk = self.fetch(DATA_PACK, e.chunk)
            need(len(chunk) == e.size, "a chunk of another length than the file")
            yield 0, e.size, chunk
        elif e.list is not None:
            offset, holes, whole = 0, [], blake3(key=self.data_key)
            for length, piece in self.stretches(e.list.level, e.list.refs):
                if piece is None:
                    holes.append(offset.to_bytes(8, "little") + length.to_bytes(8, "little"))
                else:
                    whole.update(piece)
                yield offset, length, piece
                offset += length
            whole.update(b"".join(holes))
            need(offset == e.size, "a file of another length than its size")
            need(whole.digest() == e.list.whole, "a file whose contents are not those of its identity")


# ---- Commands ----

def b64(b):
    return base64.b64encode(b).decode()


def keys_json(repository):
    for ident in repository.store.ids("keys"):
        try:
            k = repository.key_object(ident)
            certificate = repository.certificate(ident)
            yield {"id": ident.hex(), "label": repository.label(k), "role": ROLES[certificate.role],
                   "created": certificate.made, "revoked": certificate.revoked, "passphrase": k.lock == 1}
        except Refused as e:
            repository.trouble(f"keys/{ident.hex()}: {e}")


def snapshot_json(repository, s):
    sums = dict(zip(("entries", "files", "directories", "bytes"), s.sums))
    summary = dict(zip(("new", "changed", "unmodified", "unreadable", "changed_while_read", "excluded", "bytes_read",
                        "bytes_new", "bytes_stored", "milliseconds", "absent", "rules"), s.summary))
    return {"id": s.id.hex(), "session": s.session.hex(), "time": list(s.time), "host": s.host, "user": s.user,
            "paths": [b64(p) for p in s.paths], "tags": s.tags, "root": s.root and s.root.hex(), "level": s.level,
            "sums": sums, "partial": [b64(p) for p in s.partial] if s.partial else None,
            "parent": s.parent and s.parent.hex(), "program": s.program, "summary": summary, "signer": s.signer.hex(),
            "open_session": repository.store.has(f"sessions/{s.session.hex()}")}


def file_digest(repository, e):
    """Plain BLAKE3 of all bytes of a file, zeros of holes included, and its holes."""
    h, holes = blake3(), []
    for offset, length, piece in repository.contents(e):
        if piece is not None:
            h.update(piece)
            continue
        holes.append([offset, length])
        while length:
            n = min(length, MIB)
            h.update(bytes(n))
            length -= n
    return h.hexdigest(), holes


def entry_json(repository, e):
    out = {"path": b64(e.path()), "type": TYPES[e.type], "mode": e.mode, "marks": e.marks, "uid": e.uid, "gid": e.gid,
           "user": e.user and b64(e.user), "group": e.group and b64(e.group), "size": e.size, "mtime": list(e.mtime),
           "ctime": list(e.ctime), "birth": e.birth and list(e.birth), "inode": e.inode, "nlink": e.nlink,
           "filesystem": e.filesystem, "device": e.device, "flags": e.flags,
           "target": None if e.target is None else b64(e.target),
           "xattrs": {b64(name): b64(value) for name, value in e.xattrs}, "blake3": None, "holes": []}
    if e.type == REGULAR and not e.marks & NOT_READ and repository.data_key and DATA_PACK in repository.unwrappers:
        try:
            out["blake3"], out["holes"] = file_digest(repository, e)
        except Refused as why:
            repository.trouble(f"{e.path()!r}: {why}")
    return out


class Restore:
    """Makes a snapshot's entries below a directory that was empty, so that nothing there leads elsewhere."""

    def __init__(self, repository, target):
        self.repository, self.target = repository, os.fsencode(target)
        os.makedirs(self.target, exist_ok=True)
        need(not os.listdir(self.target), "the target is not empty")
        self.made, self.directories = {}, []

    def run(self, snapshot):
        for e in self.repository.entries(snapshot):
            path = os.path.join(self.target, e.path())
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self.entry(e, path)
            except (Refused, OSError) as why:
                self.repository.trouble(f"{e.path()!r}: {why}")
        for e, path in reversed(self.directories):
            self.metadata(e, path)

    def entry(self, e, path):
        if e.type == DIRECTORY:
            os.mkdir(path, 0o700)
            self.directories.append((e, path))
            return
        file = (e.filesystem, e.inode)
        if e.nlink > 1 and file in self.made:
            os.link(self.made[file], path, follow_symlinks=False)
            return
        if e.marks & NOT_READ and e.chunk is None and e.list is None and e.target is None:
            raise Refused("the backup could not read it, so it is not restored")
        if e.type == REGULAR:
            self.contents(e, path)
        elif e.type == SYMLINK:
            os.symlink(e.target, path)
        elif e.type == PIPE:
            os.mkfifo(path, 0o600)
        elif e.type == SOCKET:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        else:
            os.mknod(path, (stat.S_IFCHR if e.type == CHARACTER else stat.S_IFBLK) | 0o600, e.device)
        self.metadata(e, path)
        if e.nlink > 1:
            self.made[file] = path

    def contents(self, e, path):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as f:
            try:
                for offset, _, piece in self.repository.contents(e):
                    if piece is not None:
                        f.seek(offset)
                        f.write(piece)
                f.truncate(e.size)
            except Refused:
                os.unlink(path)
                raise

    def metadata(self, e, path):
        if os.geteuid() == 0:
            os.chown(path, e.uid, e.gid, follow_symlinks=False)
        for name, value in e.xattrs:
            try:
                os.setxattr(path, name, value, follow_symlinks=False)
            except OSError as why:  # the file system or the system may not allow it
                print(f"reader: {e.path()!r}: attribute {name!r}: {why.strerror}", file=sys.stderr)
        if e.type != SYMLINK:
            os.chmod(path, e.mode)
        time = e.mtime[0] * 10**9 + e.mtime[1]
        os.utime(path, ns=(time, time), follow_symlinks=False)


def file_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def main():
    parser = argparse.ArgumentParser(description="reads Drumlin repositories")
    parser.add_argument("repository")
    key = parser.add_mutually_exclusive_group(required=True)
    key.add_argument("--key-file")
    key.add_argument("--passphrase-file", help="one newline at its end is not part of the passphrase")
    key.add_argument("--recovery")
    parser.add_argument("--without-index", action="store_true", help="find chunks by the tables of all packs")
    parser.add_argument("--compare-index", action="store_true", help="compare the index with the tables of all packs")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("keys")
    commands.add_parser("list")
    for name in ("entries", "restore"):
        commands.add_parser(name).add_argument("snapshot", help="id, or its first digits")
    commands.choices["restore"].add_argument("target")
    args = parser.parse_args()

    repository = Repository(Store(args.repository))
    if args.key_file:
        repository.open_with_key_file(file_bytes(args.key_file))
    elif args.recovery:
        repository.use(parse_recovery_file(file_bytes(args.recovery)))
    else:
        passphrase = file_bytes(args.passphrase_file)
        repository.open_with_passphrase(passphrase[:-1] if passphrase.endswith(b"\n") else passphrase)
    if args.command == "keys":
        for k in keys_json(repository):
            print(json.dumps(k))
        return repository.troubles == 0
    snapshots = repository.snapshots()
    if args.command == "list":
        for s in snapshots:
            print(json.dumps(snapshot_json(repository, s)))
        return repository.troubles == 0
    if not args.without_index:
        repository.read_index()
    if args.without_index or args.compare_index or not repository.known_packs:
        repository.read_all_tables(args.compare_index)
    chosen = [s for s in snapshots if s.id.hex().startswith(args.snapshot)]
    need(len(chosen) == 1, f"{len(chosen)} snapshots of that id")
    if args.command == "entries":
        for e in repository.entries(chosen[0]):
            print(json.dumps(entry_json(repository, e)))
    else:
        Restore(repository, args.target).run(chosen[0])
    return repository.troubles == 0


if __name__ == "__main__":
    try:
        sys.exit(0 if main() else 1)
    except (Refused, OSError) as problem:
        print(f"reader: {problem}", file=sys.stderr)
        sys.exit(1)
