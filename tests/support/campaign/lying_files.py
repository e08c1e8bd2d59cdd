"""Files that lie: each kind of file of a store, changed so that its content is impossible and its checksums are right.

`specimen` is a store with every kind of file. `lies` changes a few of its files, from a seed:

* counts, lengths, offsets, epochs and timestamps at the ends of their ranges; counts that differ from the bytes;
* varints without an end, batches twice, wrappers in wrappers, control batches, bombs, holes;
* names that lead elsewhere.
"""

from __future__ import annotations

import functools
import json
import random
import re
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pylog
from pylog.fs import OsFileSystem
from pylog.log.durable_point import DurablePointFile
from pylog.record.checksum import crc32c
from pylog.record.compression import Scratch, compress
from pylog.record.few import encode_few, few_rows
from pylog.transactions.records import OWNER_TAG
from support.campaign.fuzz_targets import NUMBERS, sealed_batches, sealed_snapshot, with_crc_at_end
from support.reference.legacy import GZIP, LZ4, SNAPPY, Message, message_set, wrapper

EXTREMES: Final = (*NUMBERS, 2, 3, 1000, (1 << 16) - 1, (1 << 31) - 2, (1 << 63) - 2, (1 << 64) - 2, (1 << 32) - 2)
NAMES: Final = (
    "../elsewhere",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/b",
    "a\0b",
    "\ud800",
    "x" * 300,
    "ä",
    "t-0",
    "__consumer_offsets",
)
VARINTS: Final = (
    b"\xff" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 12,
    b"\x01",
    b"\x00",
    b"\x7f",
)
CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")
HEADER: Final = 61
FIELDS: Final = {  # of a batch's header: position and size
    "base offset": (0, 8),
    "leader epoch": (12, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "largest timestamp": (35, 8),
    "producer": (43, 8),
    "producer's epoch": (51, 2),
    "sequence": (53, 4),
    "count": (57, 4),
}
Files = dict[str, bytes]


class Hole(NamedTuple):
    """A file with more bytes than are on the disk.

    Attributes:
        data: the bytes at its start.
        size: in bytes.
    """

    data: bytes
    size: int


class Lie(NamedTuple):
    """One case.

    Attributes:
        changed: the new content of the files that lie, by path; None for one that is gone.
        told: what was done, for the report.
    """

    changed: dict[str, bytes | Hole | None]
    told: list[str]


# ---- a store with each kind of file ------------------------------------------------------------------------------------------


@functools.cache
def specimen() -> Files:
    """The files of a store, by path. Made once in a process."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        _write(root)
        files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    ours = {path: data for path, data in files.items() if not path.startswith(("old-0/", "x-0/")) or path.endswith(".metadata")}
    return ours | _of_others() | _of_a_query()  # headers and indexes of the replaced logs would hide their records


def _write(root: Path) -> None:
    one, few = pylog.OffsetsConfig(topic_num_partitions=1), pylog.TransactionsConfig(topic_num_partitions=1)
    with pylog.open(root, durability=pylog.Durability.OS, offsets=one, transactions=few) as store:
        store.create_topic("t", segment_bytes=4000, index_interval_bytes=300)
        for number, codec in enumerate(CODECS * 3):
            values = [(b"k%d" % row, b"%d " % number * 40, (), 1000 + number) for row in range(8)]
            store.log("t").append_many(values, compression=codec)
        store.log("t").append(b"last", key=None, headers=[("h", b"1"), ("n", None)], timestamp=5000)
        for sequence in range(3):
            producer = pylog.ProducerBatch(7 + sequence % 2, 0, sequence // 2)
            store.log("t").append_batch([b"numbered"], producer=producer)
        store.create_topic("c", cleanup_policy="compact", segment_bytes=2000, index_interval_bytes=300)
        for number in range(60):
            store.log("c").append(b"v%d" % number * 20, key=b"k%d" % (number % 7), timestamp=1000)
        store.create_topic("x")
        store.create_topic("old")
        store.log("old").append(b"replaced below")
        store.offsets.commit("g", {("t", 0): 9, ("c", 0): 3})
        with store.consumer("t", group_id="members", auto_offset_reset="earliest") as consumer:
            consumer.poll(1000)
            consumer.commit()
        store.create_topic("paid")
        for number in range(2):
            with store.transaction("tx") as transaction:
                transaction.append("paid", b"%d" % number)
                transaction.send_offsets("g", {("t", 0): 9 + number})


def _batch(base: int, attributes: int, records: list[tuple[bytes | None, bytes | None]], sequence: int = -1) -> bytes:
    rows = few_rows([(1000, key, value, ()) for key, value in records])
    data = bytearray(encode_few(rows, base, 0, attributes).data)
    struct.pack_into(">qhi", data, 43, 77, 0, sequence)
    return sealed_batches(bytes(data))


def _of_others() -> Files:
    """Files as brokers write them: transactions, one of them aborted, and the formats 0 and 1."""
    marker = (bytes(4), struct.pack(">hi", 0, 3))
    commit = (struct.pack(">hh", 0, 1), marker[1])
    batches = [
        _batch(0, 16, [(None, b"aborted")] * 3, 0),
        _batch(3, 48, [marker]),
        _batch(4, 16, [(None, b"committed")] * 2, 3),
        _batch(6, 48, [commit]),
        _batch(7, 0, [(b"k", b"plain")]),
    ]
    log, old = f"x-0/{0:020}.log", f"old-0/{0:020}.log"
    messages = [[Message(4 * start + n, 1000 + n, b"k", b"value %d" % n) for n in range(4)] for start in range(4)]
    inner = [[message._replace(offset=n) for n, message in enumerate(each)] for each in messages]
    parts = [message_set(0, messages[0])]
    for start, codec in ((1, GZIP), (2, SNAPPY), (3, LZ4)):
        parts.append(wrapper(1, 4 * start + 3, 1003, codec, message_set(1, inner[start])))
    return {
        log: b"".join(batches),
        log.replace(".log", ".txnindex"): struct.pack(">hqqqq", 0, 77, 0, 3, 4),
        old: b"".join(parts),
        "x-0/leader-epoch-checkpoint": b"0\n1\n0 0\n",
        "replication-offset-checkpoint": b"0\n1\nt 0 9\n",
        "pylog-background-errors.json": b'{"count":1,"time_ms":1,"process":1,"message":"no"}',
        "t-0/group-members": bytes(128),
    }


def _of_a_query() -> Files:
    """A query's file with a staging file, as a driver leaves them that dies."""
    data = _batch(0, 0, [(None, b"staged")])
    index = json.dumps([{"t": 1}, [["t", 0, [0, len(data), 1]]], []], separators=(",", ":")).encode()
    name = "pylog-staging.ab-12.3.a.b.0.1.2.0011223344556677.batches"
    staged = {"name": name, "index_position": len(data), "index_size": len(index), "index_crc": crc32c(index)}
    target = {"topic": "t", "partition": 0, "end_offset": 1}
    intent = {"query": "ab-12", "batch": 3, "files": [staged], "targets": [target], "done": False, "version": 2}
    return {"pylog-query.ab-12.json": sealed_json(intent | {"crc32c": ""}), name: data + index}


# ---- batches -----------------------------------------------------------------------------------------------------------------


def batches_of(data: bytes) -> list[bytes]:
    """The batches of a `.log` file, of each format."""
    found, at = [], 0
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if not at + 12 < end <= len(data):
            break
        found.append(data[at:end])
        at = end
    return found


def a_number(rng: random.Random, size: int, before: bytes) -> bytes:
    """Another number of so many bytes: an extreme one, or a neighbour of the one before."""
    number = int.from_bytes(before, "big") + rng.choice((-1, 1)) if rng.random() < 0.3 else rng.choice(EXTREMES)
    return (number % (1 << 8 * size)).to_bytes(size, "big")


def _header(batch: bytes, rng: random.Random) -> tuple[bytes, str]:
    if len(batch) < HEADER or batch[16] != 2:
        at, size = rng.choice(((0, 8), (17, 1), (18, 8), (18, 4), (22, 4)))
        return batch[:at] + a_number(rng, size, batch[at : at + size]) + batch[at + size :], f"old header at {at}"
    name = rng.choice(list(FIELDS))
    at, size = FIELDS[name]
    return batch[:at] + a_number(rng, size, batch[at : at + size]) + batch[at + size :], name


def _records(batch: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Changes a batch's records under its compression."""
    if len(batch) < HEADER or batch[16] != 2:
        at = rng.randrange(18, len(batch)) if len(batch) > 18 else 0
        return batch[:at] + rng.choice(VARINTS)[:4] + batch[at + 4 :], "old body"
    codec, body = batch[22] & 7, batch[HEADER:]
    try:
        plain = bytes(Scratch(limit=1 << 22).decompress(codec, body)) if codec else body
    except pylog.PylogError:
        return batch, "unreadable"
    at = rng.randrange(min(len(plain), 60)) if plain else 0
    match rng.randrange(6):
        case 0:
            plain, told = plain[:at] + rng.choice(VARINTS) + plain[at:], "varint put in"
        case 1:
            plain, told = plain[:at] + rng.choice(VARINTS) + plain[at + 1 :], "varint"
        case 2:
            plain, told = plain[:at], "records cut"
        case 3:
            plain, told = plain * rng.choice((2, 50)), "records again"
        case 4:
            plain, told = bytes(rng.choice((0, 1000, 1 << 22))), "zeros"
        case _:
            plain, told = _bomb(rng), "a bomb"
    body = bytes(compress(codec, plain)) if codec else plain
    return batch[:8] + (len(body) + HEADER - 12).to_bytes(4, "big") + batch[12:HEADER] + body, told


def _bomb(rng: random.Random) -> bytes:
    """Records that are small on the disk and many, or large, in memory."""
    record = b"\0\0\0\x01\x01" + b"\0"
    return (bytes((2 * len(record),)) + record) * rng.choice((10, 100_000))


def _nested(rng: random.Random) -> tuple[bytes, str]:
    depth, magic = rng.choice((2, 3, 50, 200)), rng.choice((0, 1))
    data = message_set(magic, [Message(rng.choice((0, 5, (1 << 63) - 1)), 1000, b"k", b"v")])
    for _ in range(depth):
        data = wrapper(magic, rng.choice((0, 5, 15, (1 << 63) - 1)), 1000, GZIP, data)
    return data, f"wrapper {depth} deep"


def _control(rng: random.Random) -> tuple[bytes, str]:
    key = rng.choice((b"", b"\0", bytes(4), b"\xff" * 4, struct.pack(">hh", 0, rng.choice((0, 1, 2, 99, -1))), None))
    value = rng.choice((b"", bytes(6), b"\xff" * 6, None, bytes(1000)))
    attributes = rng.choice((32, 48, 32 | 64, 48 | 3))
    return _batch(rng.choice((0, 8, 200, 1 << 31)), attributes, [(key, value)] * rng.choice((1, 2))), "control batch"


def lie_in_log(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    """Changes a `.log` file; the checksums of its batches are right."""
    batches = batches_of(data)
    if not batches or rng.random() < 0.05:
        return Hole(data, rng.choice((len(data) + 4096, 1 << 26, 1 << 28))), "hole"
    at = rng.randrange(len(batches))
    match rng.randrange(9):
        case 0 | 1 | 2:
            batches[at], told = _header(batches[at], rng)
        case 3 | 4 | 5:
            batches[at], told = _records(batches[at], rng)
        case 6:
            other = rng.randrange(len(batches))
            batches[at], told = batches[other], "batch of elsewhere"
        case 7:
            new, told = _nested(rng)
            batches.insert(at, new)
        case _:
            new, told = _control(rng)
            batches.insert(at, new)
    return b"".join(map(sealed_batches, batches)), told


# ---- the other kinds ---------------------------------------------------------------------------------------------------------


def sealed_json(document: dict[str, Any]) -> bytes:
    """A document of pylog's, with its checksum as the last field."""

    def encode(value: object) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    return encode(document | {"crc32c": f"{crc32c(encode(document | {'crc32c': ''})):08x}"})


def _somewhere(value: Any, rng: random.Random) -> Any:
    """A document with one thing in it replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {rng.choice(NAMES) if name == key else name: each for name, each in value.items()}
        return value | {key: _somewhere(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _somewhere(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.7:
        return rng.choice(NAMES)
    return rng.choice((*EXTREMES, -1, -(1 << 63), 1 << 64, 10**400, 1e308, True, None, "", [], {}, [[]] * 1000, *NAMES))


def lie_in_json(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    if rng.random() < 0.1:
        return rng.choice((b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"version":1e999}', b"{}", b"null")), "odd JSON"
    document = json.loads(data)
    changed = _somewhere(document, rng)
    if isinstance(changed, dict) and "crc32c" in changed:
        return sealed_json(changed), "a field"
    return json.dumps(changed).encode(), "a field"


def lie_in_staging(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    at = data.rfind(b'[{"t"')
    return data[:at] + json.dumps(_somewhere(json.loads(data[at:]), rng), separators=(",", ":")).encode(), "its index"


def lie_in_text(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    """Changes a checkpoint or another file of words: a number, a name, or the lines."""
    words = re.split(rb"(\s+)", data)
    match rng.randrange(5):
        case 0:
            return data + data.split(b"\n")[-2 if data.endswith(b"\n") else -1] * rng.choice((1, 1000)), "a line again"
        case 1:
            lines = b"\n".join(b"t %d 5" % number for number in range(50_000))
            return b"0\n50000\n" + lines + b"\n", "many lines"
        case 2:
            at = rng.randrange(0, len(words), 2)
            words[at] = rng.choice(NAMES).encode(errors="surrogatepass")
        case _:
            at = rng.randrange(0, len(words), 2)
            words[at] = str(rng.choice((*EXTREMES, -1, -(1 << 63), 10**4000 if rng.random() < 0.1 else 5))).encode()
    return b"".join(words), "a word"


def _numbers(data: bytes, rng: random.Random, places: tuple[int, ...], order: str) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, size = rng.choice(places), rng.choice((2, 4, 8))
        if at + size <= len(changed):
            found = a_number(rng, size, bytes(changed[at : at + size]))
            changed[at : at + size] = found if order == "big" else found[::-1]
    return bytes(changed)


def lie_in_index(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    if rng.random() < 0.1:
        return Hole(data, rng.choice((10 << 20, 1 << 30, 1 << 34))), "hole"
    data = data or bytes(rng.choice((8, 12, 34, 4096)))
    if rng.random() < 0.2:
        return data * rng.choice((2, 1000)), "entries again"
    return _numbers(data, rng, tuple(range(0, len(data), 2)), "big"), "entries"


def lie_in_snapshot(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    if rng.random() < 0.2:
        return Hole(data, rng.choice((1 << 20, 1 << 28, 1 << 34))), "hole"
    if rng.random() < 0.3:
        count = rng.choice((1, 1000))
        data = data[:6] + struct.pack(">i", count) + (data[10:56] or bytes(46)) * count
    return sealed_snapshot(_numbers(data, rng, tuple(range(6, len(data), 2)), "big")), "entries"


def lie_in_seal(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    if rng.random() < 0.15:
        return Hole(data, rng.choice((1 << 20, 64 << 20, 2 << 30))), "hole"
    return with_crc_at_end(_numbers(data, rng, tuple(range(4, len(data) - 4, 2)), "little")), "fields"


def lie_in_header(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    slots = [data[start : start + 128] for start in (0, 128)]
    which = rng.choice((0, 1, 2))
    for number, slot in enumerate(slots):
        if which in (number, 2) and len(slot) == 128:
            slots[number] = with_crc_at_end(_numbers(slot, rng, tuple(range(8, 124, 4)), "little"))
    return b"".join(slots) + data[256:], "slots"


def lie_in_states(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    """States of transactional ids that no coordinator can have written, or none for these logs."""
    values = [(b"\0\0\0\2tx", _state(rng)) for _ in range(rng.choice((1, 1, 3, 500)))]
    if rng.random() < 0.3:
        values[-1] = rng.choice(((b"\0\1" + values[-1][0][2:], b""), (b"\0\0\x7f\xfftx", values[-1][1]), (b"", b"\xff")))
    last = batches_of(data)[-1]
    base = int.from_bytes(last[:8], "big") + 1 + struct.unpack_from(">i", last, 23)[0]
    return data + _batch(base, 0, [(key, value) for key, value in values]), "states"


_TOPICS: Final = (b"paid", b"t", b"..", b"../t", b"/etc", b"a\0b", b"\xff", b"", b"gone", b"__consumer_offsets", b"x" * 300)


def _state(rng: random.Random) -> bytes:
    """The value of one record; a field or two have numbers that they cannot have."""
    numbers = rng.choice(((0,), (0, 0), (-1,), (1 << 30,), (2**31 - 1,), tuple(range(5000)), ()))
    head = struct.pack(
        ">hqhib",
        rng.choice((1,) * 8 + (0, 2, -1)),
        rng.choice((0, 0, 1, 7, 77, 2**63 - 1, -1)),
        rng.choice((0, 1, 2, 3, 32767, -1, -2)),
        rng.choice((60_000, 0, 2**31 - 1, -1)),
        rng.choice((0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 9, -1)),
    )
    topics = rng.choice((_partitions_of_a_state(numbers, rng),) * 3 + (b"\0", b"\xff\xff\xff\xff\x0f"))
    times = struct.pack(">qq", rng.choice((0, 1_700_000_000_000, 2**63 - 1, -1, -(2**63))), rng.choice((0, -1, 2**63 - 1)))
    return head + topics + times + rng.choice((_owner(numbers, rng), b"\0", b"\xff" * 9))


def _partitions_of_a_state(numbers: tuple[int, ...], rng: random.Random) -> bytes:
    topic, count = rng.choice(_TOPICS), rng.choice((len(numbers),) * 8 + (2**31 - 1,))
    packed = b"".join(struct.pack(">i", each) for each in numbers)
    return b"\2" + _varint(len(topic) + 1) + topic + _varint(count + 1) + packed + b"\0"


def _owner(numbers: tuple[int, ...], rng: random.Random) -> bytes:
    """The tagged field of the process that has a transaction open."""
    ends = tuple(rng.choice((0, 2, 5, 2**63 - 1, -1)) for _ in rng.choice((numbers, ()))[:9])
    byte, version = rng.choice((1 << 42, 5, 0, 2**63 - 1, -1)), rng.choice((1, 1, 2, -1))
    owner = struct.pack(">bqbi", version, byte, rng.choice((0, 2, 9)), len(ends))
    owner += b"".join(struct.pack(">q", each) for each in ends)
    return b"\1" + _varint(OWNER_TAG) + _varint(len(owner)) + owner


def _varint(number: int) -> bytes:
    """An unsigned number as tagged fields have it."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def lie_in_members(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    if rng.random() < 0.3:
        return Hole(data, rng.choice((1 << 16, 8 << 20, 1 << 34))), "hole"
    slot = bytearray((data or bytes(128))[:128])
    struct.pack_into("<HH", slot, 4, 1, rng.choice((3, 64, 65, 65535)))
    slot[40:43] = rng.choice((b"\xff\xfe\xfd", b"abc", b"a\0b"))
    slot = bytearray(_numbers(bytes(slot), rng, (8, 16, 24, 32), "little"))
    slot[:4] = struct.pack("<I", crc32c(bytes(slot[4:104])))
    return bytes(slot) * rng.choice((1, 100)), "slots"


def lie_in_bytes(data: bytes, rng: random.Random) -> tuple[bytes | Hole, str]:
    if rng.random() < 0.3:
        return Hole(data, rng.choice((4097, 1 << 21, 1 << 34))), "hole"
    return rng.choice((b"", b"\0" * 100, b"\xff" * 100, data * 100)), "other bytes"


Liar = Callable[[bytes, random.Random], tuple[bytes | Hole, str]]
KINDS: Final[tuple[tuple[str, Liar], ...]] = (  # by pattern of the path; the first one that matches
    (r"pylog-staging\..*", lie_in_staging),
    (r".*\.json", lie_in_json),
    (r"__transaction_state-0/.*\.log", lie_in_states),
    (r".*\.log", lie_in_log),
    (r".*\.(index|timeindex|txnindex)", lie_in_index),
    (r".*\.snapshot", lie_in_snapshot),
    (r".*\.seal", lie_in_seal),
    (r".*/durable-point", lie_in_header),
    (r".*/group-members", lie_in_members),
    (r".*(checkpoint|partition\.metadata|meta\.properties)", lie_in_text),
    (r"\.kafka_cleanshutdown|\.lock|pylog\.lock", lie_in_bytes),
)
WEIGHTS: Final = (1, 2, 3, 8, 2, 1, 2, 2, 1, 2, 1)  # of the kinds: records can lie in most ways
BROKERS: Final[Files] = {
    "meta.properties": b"version=1\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n",
    "pylog-graduated.json": b'{"files":["meta.properties","t-0/partition.metadata"]}',
    "remote-log-index-cache/0.index": bytes(8),
    "log-start-offset-checkpoint": b"0\n1\nc 0 0\n",
}


def liar_of(path: str) -> Liar:
    """What makes a file of a path lie. Raises LookupError for a kind that has no liar."""
    return next(liar for pattern, liar in KINDS if re.fullmatch(pattern, path))


def _renamed(path: str, rng: random.Random) -> str:
    """Another number in the name of a segment's file."""
    number = rng.choice((0, 1, 5, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 10**20 - 1))
    return re.sub(r"[0-9]{20}", f"{number:020}", path)


def lies(seed: int) -> tuple[Files, Lie]:
    """Returns a store's files, and what lies among them."""
    rng = random.Random(seed)
    files = specimen() | (BROKERS if rng.random() < 0.2 else {})
    kind = rng.choices(KINDS, WEIGHTS)[0][0]
    changed: dict[str, bytes | Hole | None] = {}
    told = []
    for number in range(1 if kind.endswith("json") else rng.randint(1, 5)):
        path = _chosen(files, kind if number == 0 else rng.choices(KINDS[2:], WEIGHTS[2:])[0][0], rng)
        content = changed.get(path, files[path])
        if not isinstance(content, bytes):
            continue
        if rng.random() < 0.05 and re.search(r"[0-9]{20}", path):
            changed |= {path: None, _renamed(path, rng): content}
            told.append(f"{path}: renamed")
            continue
        changed[path], how = liar_of(path)(content, rng)
        told.append(f"{path}: {how}")
    return files, Lie(changed, told)


def _chosen(files: Files, kind: str, rng: random.Random) -> str:
    """A file of a kind."""
    return rng.choice([path for path in files if re.fullmatch(kind, path)])


def lay(root: Path, files: Files, lie: Lie) -> None:
    """Writes a case to an empty directory."""
    for path, content in {**files, **lie.changed}.items():
        if content is None:
            continue
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.write(content.data if isinstance(content, Hole) else content)
            if isinstance(content, Hole):
                file.truncate(content.size)
    for header in root.glob("*/durable-point"):
        _of_this_boot(header)


def _of_this_boot(path: Path) -> None:
    """Makes a header one of this boot and of these files, as far as its writer does: a copy would count as another one's."""
    data = path.read_bytes()
    file = DurablePointFile(OsFileSystem(), str(path.parent))
    mark = file.boot_mark
    file.close()
    slots = []
    for slot in (data[:128], data[128:256]):
        if len(slot) == 128:
            log = path.parent / f"{int.from_bytes(slot[40:48], 'little'):020}.log"
            inode = log.stat().st_ino if log.exists() else 0
            slot = with_crc_at_end(slot[:24] + mark + slot[40:48] + inode.to_bytes(8, "little") + slot[56:])  # noqa: PLW2901
        slots.append(slot)
    path.write_bytes(b"".join(slots) + data[256:])


def values_of(root: Path) -> list[tuple[int, bytes | None]]:
    """The records of topic `t`."""
    with pylog.open(root, "r") as store:
        return [(record.offset, record.value) for record in store.log("t").records()]
