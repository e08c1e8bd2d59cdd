"""All that reads bytes which somebody else may have written, one function each: a pylog error or a value, whatever they are.

In tests/, with pylog's sources on the path, `python -m support.campaign.fuzz_targets` and one of these:

    loop <cases> <seed>              a mutation loop of our own, within a bound on memory and time
    one <target> <file>              repeats what either found
    atheris <target> [options]       libFuzzer, if atheris is installed; the options are its own
    all [<seconds> [<target> …]]     libFuzzer for each target: `./dev fuzz`
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import itertools
import random
import resource
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

import pylog
from pylog.directory.checkpoints import parse_offsets
from pylog.directory.leader_epoch_cache import epoch_for_offset, parse_epochs
from pylog.directory.partition_metadata import read_topic_id
from pylog.errors import PylogError
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex
from pylog.limits import INT64_MAX
from pylog.log.durable_point import SLOT_SIZE, DurablePoint, parse_slot
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.recovery.producer_snapshots import encode_snapshot
from pylog.record.batch import scan_batches
from pylog.record.checksum import crc32c
from pylog.record.compression import Scratch, compress
from pylog.record.control import parse_control
from pylog.record.decoder import TYPES, RecordDecoder
from pylog.record.legacy import iterate_legacy
from pylog.record.records import RECORD_COLUMNS, records_of
from pylog.record.types import TopicPartition
from pylog.segment.seal import parse_seal
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import Image
from pylog.topics.catalog import Catalog
from pylog.topics.listing import find_topics
from pylog.transactions.metadata import TransactionMetadata, TransactionOwner, TransactionState
from pylog.transactions.records import format_key, format_value, parse_key, parse_value
from support.campaign.corruption import ROOT, TOPIC, Specimen, make_specimen, read_all
from support.log.derived import format_offsets, parse_snapshot
from support.reference.legacy import GZIP, LZ4, SNAPPY, Message, message_set, wrapper

# libFuzzer watches all of pylog but the modules whose functions numba compiles: from their bytecode, and it must be their own.
COMPILED: Final = (
    "pylog.index.entries",
    "pylog.record.encoding",
    "pylog.record.finding",
    "pylog.record.kernels",
    "pylog.record.memory",
)
PATIENCE_S: Final = 60  # for one input: it takes a millisecond, and the first ones what compiling takes
MEMORY: Final = 2 << 30  # beyond what the program has when it begins; compiling takes some of it
LIMIT: Final = 1 << 20  # bytes that an input may decompress to
NUMBERS: Final = (0, 1, 49, 127, 128, 255, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)


class Target(NamedTuple):
    """Something that reads bytes.

    Attributes:
        read: raises a `PylogError`, or returns; anything else is a finding.
        seeds: inputs as they should be.
        seal: makes the checksums of an input true, so that what is behind them is reached.
    """

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    seal: Callable[[bytes], bytes] = bytes


# ---- batches and records -----------------------------------------------------------------------------------------------------


def read_batches(data: bytes) -> None:
    buffer = np.frombuffer(data, np.uint8)
    table = scan_batches(buffer, verify=bool(len(data) & 1)).table
    for columns in (RECORD_COLUMNS, tuple(TYPES)):
        decoder = RecordDecoder(columns, max_rows=100)
        for frame in itertools.chain(decoder.feed(buffer, table), decoder.finish()):
            frame.validate(full=True)
            if columns is RECORD_COLUMNS:
                records_of(frame, "t", 0)


def sealed_batches(data: bytes) -> bytes:
    """Batches whose checksums fit, each in its format."""
    changed, at = bytearray(data), 0
    while len(data) - at >= 17:
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if not at + 26 <= end <= len(data):
            break
        old = data[at + 16] < 2
        place, value = (12, zlib.crc32(data[at + 16 : end])) if old else (17, crc32c(data[at + 21 : end]))
        changed[at + place : at + place + 4] = struct.pack(">I", value)
        at = end
    return bytes(changed)


def read_legacy(data: bytes) -> None:
    for _ in iterate_legacy(data):
        pass


def legacy_seeds() -> list[bytes]:
    messages = [Message(number, 1000 + number, None if number % 2 else b"key", b"value" * number) for number in range(4)]
    inner = {magic: message_set(magic, messages) for magic in (0, 1)}
    wrapped = [wrapper(magic, 3, 1003, codec, inner[magic]) for magic in inner for codec in (GZIP, SNAPPY, LZ4)]
    return [*inner.values(), *wrapped]


def read_compressed(data: bytes) -> None:
    if data:
        Scratch(limit=LIMIT).decompress(data[0] % 8, data[1:], magic=data[0] >> 3 & 3)


def compressed_seeds() -> list[bytes]:
    plain = b"".join(b'{"id":%d}' % number for number in range(50))
    return [bytes((codec | 16,)) + compress(codec, plain).tobytes() for codec in range(5)]


def read_control(data: bytes) -> None:
    middle = data[0] if data else 0
    parse_control(data[1:middle], data[middle:])


# ---- indexes -----------------------------------------------------------------------------------------------------------------


def read_offset_index(data: bytes) -> None:
    index, _ = OffsetIndex.from_bytes(7, np.frombuffer(data, np.uint8), 1 << 20)
    for offset in (-1, 0, 7, 100, 1 << 31, INT64_MAX):
        index.lookup(offset), index.upper(offset), index.lower(offset), index.upper_bound_offset(offset)
    list(map(index.entry, range(len(index))))


def read_time_index(data: bytes) -> None:
    index, _ = TimeIndex.from_bytes(7, np.frombuffer(data, np.uint8))
    for number in (-1, 0, 7, 1 << 41, INT64_MAX):
        index.lookup(number)
    list(map(index.entry, range(len(index))))


def read_transaction_index(data: bytes) -> None:
    index, _ = TransactionIndex.from_bytes(7, np.frombuffer(data, np.uint8))
    assert data.startswith(index.encoded()) or len(index)


# ---- small files -------------------------------------------------------------------------------------------------------------


def directory_of(name: str, data: bytes) -> MemoryFileSystem:
    """A disk with one file, in a directory that looks like a partition's."""
    return MemoryFileSystem(image=Image({4: data}, {1: {"data": 2}, 2: {name: 4, "t-0": 3}, 3: {name: 4}}, 4))


def read_catalog_file(data: bytes) -> None:
    fs = directory_of("pylog.json", data)
    find_topics(fs, "/data")


def catalog_seeds() -> list[bytes]:
    """A catalog, and some that are made to cost more than they are worth."""
    topic = '{"version":1,"topics":{"t":{"id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":%s,"config":{"segment_bytes":%s}}}}'
    deep = "[" * 100_000 + "]" * 100_000
    return [(topic % values).encode() for values in ((1, 99), (10**9, 99), (-5, 99), (1, 10**400), (1, deep))]


def sealed_catalog(data: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(data, type=Catalog).sealed())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return data


def read_metadata(data: bytes) -> None:
    read_topic_id(directory_of("partition.metadata", data), "/data/t-0")


def read_snapshot(data: bytes) -> None:
    state = parse_snapshot(data, 5, "x")
    assert encode_snapshot(state), (state.first_unstable_offset, state.producers)


def sealed_snapshot(data: bytes) -> bytes:
    return data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:] if len(data) > 6 else data


def read_offsets(data: bytes) -> None:
    format_offsets(parse_offsets(data, "x"))


def read_epochs_file(data: bytes) -> None:
    epoch_for_offset(parse_epochs(data, "x"), 5)


def read_slot(data: bytes) -> None:
    slot = parse_slot(data[:SLOT_SIZE])
    assert slot is None or slot.encoded() == data[:SLOT_SIZE]


def read_transaction_state(data: bytes) -> None:
    """A value that can be read can be written, and means the same then."""
    found = parse_value("tx", data)
    assert parse_value("tx", format_value(found)) == found
    parse_key(data)


def transaction_state_seeds() -> list[bytes]:
    partitions = tuple(TopicPartition("t", number) for number in range(3))
    owner = TransactionOwner(5, 2, (1, 2, 3))
    prepared = TransactionMetadata("tx", 1 << 48, 7, 60_000, TransactionState.PREPARE_COMMIT, partitions, 9, 8, 7, 6, owner=owner)
    at_rest = TransactionMetadata("tx", 1 << 48, 7, 60_000, TransactionState.EMPTY, (), 9)
    return [format_value(each, version) for each in (prepared, at_rest) for version in (0, 1)] + [format_key("tx")]


def with_crc_at_end(data: bytes) -> bytes:
    """For the formats that end with the CRC-32C of what is before it."""
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def read_seal_file(data: bytes) -> None:
    seal = parse_seal(data, "x")
    for position in (0, 1, 100, (1 << 31) - 1):
        seal.mark_before(position), seal.mark_after(position), seal.digest_at(position)


def seal_seeds() -> list[bytes]:
    return [data for path, data in _specimen().files.items() if path.endswith(".seal")]


# ---- a whole log -------------------------------------------------------------------------------------------------------------


def read_log(data: bytes) -> None:
    """The bytes as the second one of three segments, with the seals and indexes of what should be there."""
    specimen = _specimen()
    fs = MemoryFileSystem(image=specimen.damaged(specimen.logs[1], data))
    with pylog.open(ROOT, "r", fs=fs, clock=fs.clock) as store:
        log = store.log(TOPIC)
        read_all(log, 0, log.end_offset)
        for offset in (0, 31, 60, 83):
            with contextlib.suppress(PylogError):
                log.read(offset)
        store.verify()


@functools.cache
def _specimen() -> Specimen:
    return make_specimen(["none", "lz4", "zstd"])


def log_seeds() -> list[bytes]:
    return [_specimen().files[path] for path in _specimen().logs]


TARGETS: Final[dict[str, Target]] = {
    "batches": Target(read_batches, lambda: [*log_seeds(), *legacy_seeds()], sealed_batches),
    "legacy": Target(read_legacy, legacy_seeds, sealed_batches),
    "compressed": Target(read_compressed, compressed_seeds),
    "control": Target(read_control, lambda: [bytes.fromhex("05000000010000000000050000")]),
    "offset index": Target(read_offset_index, lambda: [struct.pack(">iiii", 5, 100, 9, 300)]),
    "time index": Target(read_time_index, lambda: [struct.pack(">qiqi", 1000, 3, 2000, 9)]),
    "transaction index": Target(
        read_transaction_index, lambda: [b"".join(AbortedTransaction(7, 10 * n, 10 * n + 9, 10 * n).encoded() for n in (1, 2))]
    ),
    "pylog.json": Target(read_catalog_file, catalog_seeds, sealed_catalog),
    "partition.metadata": Target(read_metadata, lambda: [b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"]),
    "snapshot": Target(
        read_snapshot, lambda: [encode_snapshot(ProducerStateManager([Producer(1, 0, 5, 9, 2, 1000, 0, 7)]))], sealed_snapshot
    ),
    "offset checkpoint": Target(read_offsets, lambda: [b"0\n2\norders 0 42\norders 1 7\n"]),
    "leader epochs": Target(read_epochs_file, lambda: [b"0\n2\n0 0\n2 100\n"]),
    "durable point": Target(read_slot, lambda: [DurablePoint(counter=7).encoded()], with_crc_at_end),
    "transaction state": Target(read_transaction_state, transaction_state_seeds),
    "seal": Target(read_seal_file, seal_seeds, with_crc_at_end),
    "log": Target(read_log, log_seeds, sealed_batches),
}


def try_one(target: Target, data: bytes) -> None:
    """Reads an input; what is no error of pylog's leaves with the input beside it, for `one`."""
    try:
        target.read(data)
    except PylogError:
        return
    except BaseException as error:
        with tempfile.NamedTemporaryFile(prefix="pylog-fuzz-", delete=False) as file:
            file.write(data)
        error.add_note(f"the input is in {file.name}")
        raise


# ---- a mutation loop of our own ----------------------------------------------------------------------------------------------


def mutations(target: Target, rng: random.Random) -> Iterator[bytes]:
    """Inputs without end: seeds, changed a little or much, half of them with checksums made true again."""
    seeds = target.seeds()
    while True:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 5)):
            _mutate(data, rng, seeds)
        yield target.seal(bytes(data)) if rng.random() < 0.5 else bytes(data)


def _mutate(data: bytearray, rng: random.Random, seeds: list[bytes]) -> None:
    at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    match rng.randrange(8):
        case 0 if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1 if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = rng.randbytes(rng.randint(0, 20))
        case 4:
            data[at:at] = data[at : min(end, at + 200)]
        case 5:
            other = rng.choice(seeds)
            data[at:end] = other[at:end]
        case _:  # some number somewhere lies
            width, order = rng.choice((1, 2, 4, 8)), rng.choice(("big", "big", "little"))
            data[at : at + width] = (rng.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, order)


def loop(cases: int, seed: int) -> None:
    """So many inputs for each target, within the bounds; the first finding ends it."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for name, target in TARGETS.items():
        rng = random.Random(f"{seed} {name}")
        some = itertools.islice(mutations(target, rng), cases // 10 if name == "log" else cases)
        for data in itertools.chain(target.seeds(), some):
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)  # kernels do not listen to signals
            try_one(target, data)
    faulthandler.cancel_dump_traceback_later()


def fuzz(name: str, options: list[str]) -> None:
    """Hands a target to libFuzzer, with its seeds as the corpus; the parsers are loaded again so that their branches are seen."""
    import atheris

    for module in [module for module in sys.modules if module.startswith(("pylog.", "support.campaign."))]:
        del sys.modules[module]
    with atheris.instrument_imports(include=["pylog"], exclude=list(COMPILED)):
        targets = importlib.import_module("support.campaign.fuzz_targets")
    target = targets.TARGETS[name]

    def test(data: bytes) -> None:
        targets.try_one(target, data)
        targets.try_one(target, target.seal(data))

    with tempfile.TemporaryDirectory(prefix="pylog-corpus-") as corpus:
        for number, data in enumerate(target.seeds()):
            (Path(corpus) / str(number)).write_bytes(data)
        atheris.Setup([sys.argv[0], *options, corpus], test)
        atheris.Fuzz()


def fuzz_all(seconds: str = "60", *names: str) -> None:
    """LibFuzzer for each target, or those named, in its own process, so many seconds each; fails if one finds something."""
    found = []
    for name in names or TARGETS:
        command = [
            sys.executable,
            "-m",
            "support.campaign.fuzz_targets",
            "atheris",
            name,
            f"-max_total_time={seconds}",
            "-print_final_stats=1",
        ]
        if subprocess.run(command, check=False).returncode:
            found.append(name)
    sys.exit(f"found by {', '.join(found)}" if found else 0)


def main(action: str, *arguments: str) -> None:
    match action:
        case "loop":
            loop(*map(int, arguments))
        case "one":
            target, data = TARGETS[arguments[0]], Path(arguments[1]).read_bytes()
            target.read(data)
            target.read(target.seal(data))
        case "atheris":
            fuzz(arguments[0], list(arguments[1:]))
        case "all":
            fuzz_all(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
