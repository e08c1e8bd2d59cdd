"""Floors: what the parts of a work cost in Python without pylog, beside pylog's own cost, both in processor time.

A floor does what no library in Python can leave out: the bytes are copied and checked, the system calls made, the objects
created. It keeps no promise: no locks between threads, no errors, no options. README.md here says what each row's floor means.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa

import pylog
from benchmarks.data import BATCH_OVERHEAD, batches_of, fill, fill_segments, log_bytes, new_log, plain_rows
from benchmarks.gate import OS_LEVEL, Contest, run_contests
from benchmarks.measure import Settings
from benchmarks.offsets import SystemCalls
from pylog import OffsetsConfig, TopicPartition, limits
from pylog.tools.verify import verify

ROWS = 50_000
SINGLE = 200
OPENINGS = 10
SEGMENT_BYTES = 8 << 20
HASHED = 128 << 10
READ_BATCH = 16 << 10
_HEADER = struct.Struct(">qiibIhiqqqhii")


class _Record(msgspec.Struct, gc=False):
    """As pylog's record: an object that the garbage collector need not look at."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[()] = ()


def run(settings: Settings) -> None:
    """Reports a row for each work."""
    directory = Path(settings.directory)
    with ExitStack() as held:
        contests = [*_appends(directory, held), *_reads(directory, held), *_openings(directory), *_commits(directory, held)]
        run_contests(settings, [contest._replace(part="floor") for contest in contests])


# ---- appends -----------------------------------------------------------------------------------------------------------------


def _appends(directory: Path, held: ExitStack) -> Iterator[Contest]:
    log = held.enter_context(new_log(directory / "appended", segment_bytes=1 << 30))
    rows = plain_rows(0, ROWS)
    values = rows.column("value").to_pylist()
    data = np.frombuffer(b"x" * int(ROWS * 118.4), np.uint8)
    target = np.empty(len(data), np.uint8)
    bare = SystemCalls(directory / "bare", alone=False)
    held.callback(bare.close)

    def encoded() -> None:
        np.copyto(target, data)
        _hash(target)
        _write(directory / "file", target)

    def joined() -> None:
        np.fromiter(map(len, values), np.int32, len(values))
        b"".join(values)
        encoded()

    yield Contest("append_arrow, 50,000 rows", "copy, CRC, write()", lambda: log.append_arrow(rows), encoded, OS_LEVEL)
    yield Contest("append_many, 50,000 values", "join, copy, CRC, write()", lambda: log.append_many(values), joined, OS_LEVEL)
    yield Contest(
        "append of one record",
        "its system calls",
        lambda: [log.append(value) for value in values[:SINGLE]],
        lambda: [bare.commit(number) for number in range(SINGLE)],
        OS_LEVEL,
    )


def _hash(data: np.ndarray | bytes) -> None:
    for position in range(0, len(data), HASHED):
        google_crc32c.value(data[position : position + HASHED])


def _write(path: Path, data: np.ndarray) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, data)
    os.close(file)


# ---- reads -------------------------------------------------------------------------------------------------------------------


def _reads(directory: Path, held: ExitStack) -> Iterator[Contest]:
    log = held.enter_context(new_log(directory / "read", segment_bytes=SEGMENT_BYTES))
    end = fill_segments(log, 1, piece=ROWS)
    data = log_bytes(directory / "read")
    yield Contest(
        "records(), five fields read",
        "CRC, slices, objects and the loop that reads them",
        lambda: _read_fields(log.records(0, end)),
        lambda: _read_fields(_made(data, end)),
    )
    yield _verification(directory / "verified")
    store = held.enter_context(pylog.open(directory / "read", mode="r"))
    made = [*_made(data, end)]
    yield Contest(
        "for record in consumer",
        "log.records(), and a generator that keeps the position",
        lambda: _iterate(store, end),
        lambda: _iterated(_positioned([*log.records(0, end)]), end),
    )
    yield from _random_reads(directory, held, made)


def _verification(directory: Path) -> Contest:
    with new_log(directory) as log:
        fill(log, 10 * ROWS)
    path = min((directory / "events-0").glob("*.log"))
    return Contest("verify of 56 MiB", "pread and CRC", lambda: verify(str(directory)), lambda: _read_and_hash(path))


def _read_and_hash(path: Path) -> None:
    """Reads what another process could cut in pieces, as `verify` does, and never maps it."""
    buffer = np.empty(limits.READ_CHUNK_BYTES, np.uint8)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer.data):
            _hash(buffer[:size])


def _read_fields(records: Iterator[object]) -> None:
    for record in records:
        record.offset, record.timestamp, record.key, record.value, record.headers  # type: ignore[attr-defined] # noqa: B018


def _made(data: bytes, end: int) -> Iterator[_Record]:
    """As many records as the log has, of the sizes that they have there; positions cost nothing here."""
    _hash(data)
    size = len(data) // end
    for offset in range(end):
        at = offset * size
        yield _Record(offset, offset, data[at : at + 8], data[at + 8 : at + 108])


def _iterate(store: pylog.Store, end: int) -> None:
    with store.consumer("events", auto_offset_reset="earliest") as consumer:
        for record in consumer:
            if record.offset == end - 1:
                return


def _positioned(records: Sequence[pylog.Record]) -> Iterator[pylog.Record]:
    position = 0
    for record in records:
        position = record.offset + 1
        yield record
    assert position


def _iterated(records: Iterator[pylog.Record], end: int) -> None:
    for record in records:
        if record.offset == end - 1:
            return


def _random_reads(directory: Path, held: ExitStack, made: Sequence[_Record]) -> Iterator[Contest]:
    config = {"segment_bytes": SEGMENT_BYTES, "max_message_bytes": READ_BATCH + BATCH_OVERHEAD}
    log = held.enter_context(new_log(directory / "random", **config))
    end = fill_segments(log, 1, piece=ROWS)
    batches = batches_of(log_bytes(directory / "random"))
    firsts = [_HEADER.unpack_from(batch)[0] for batch in batches]
    offsets = np.random.default_rng(1).integers(0, min(end, len(made)), SINGLE).tolist()

    def found() -> None:
        for offset in offsets:
            batch = batches[bisect_right(firsts, offset) - 1]
            _HEADER.unpack_from(batch)
            google_crc32c.value(batch)
            _Record(offset, offset, batch[70:78], batch[80:180])

    yield Contest("read(offset), batches of 16 KiB", "search, CRC, an object", lambda: [*map(log.read, offsets)], found)


# ---- openings and commits ----------------------------------------------------------------------------------------------------


def _openings(directory: Path) -> Iterator[Contest]:
    for mode, rounds in (("r", 11), ("rw", 20)):
        path = directory / f"small-{mode}"
        with new_log(path) as log:
            fill(log, 1_000)
        yield Contest(
            f"opening and closing a store and a partition, mode={mode!r}",
            f"{7 * rounds} of its system calls",
            lambda path=path, mode=mode: [_open_log(path, mode) for _ in range(OPENINGS)],  # type: ignore[misc]
            lambda path=path, rounds=rounds: [_open_files(path, rounds) for _ in range(OPENINGS)],  # type: ignore[misc]
        )


def _open_log(directory: Path, mode: str) -> None:
    with pylog.open(directory, mode=mode) as store:
        assert store.log("events").end_offset == 1_000


def _open_files(directory: Path, rounds: int) -> None:
    """The usual calls of an opening, in their usual proportion: a small file looked at and read, a name looked up twice."""
    path = f"{directory}/events-0/partition.metadata"
    for _ in range(rounds):
        os.lstat(path)
        os.stat(path)
        file = os.open(path, os.O_RDONLY)
        os.fstat(file)
        os.pread(file, 256, 0)
        os.lseek(file, 0, os.SEEK_END)
        os.close(file)


def _commits(directory: Path, held: ExitStack) -> Iterator[Contest]:
    offsets = OffsetsConfig(topic_num_partitions=1)
    store = held.enter_context(pylog.open(directory / "groups", durability=pylog.Durability.OS, offsets=offsets))
    store.create_topic("events")
    store.log("events").append_arrow(pa.table({"value": [b"x"] * SINGLE}))
    bare = SystemCalls(directory / "commits", alone=False)
    held.callback(bare.close)
    partition = TopicPartition("events", 0)
    yield Contest(
        "commit of one offset",
        "its system calls",
        lambda: [store.offsets.commit("group", {partition: number}) for number in range(SINGLE)],
        lambda: [bare.commit(number) for number in range(SINGLE)],
        OS_LEVEL,
    )
