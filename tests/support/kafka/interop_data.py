"""What the interoperability tests share: topics for pylog to write, and every reader's answer in one form, the harness' `Record`.

    write_topics(directory)             # without closing: python -m support.kafka.interop_data DIRECTORY, which kills itself
    TOPICS["headers"].expected()        # what any reader must get
    read(store, "headers")              # what pylog gets

Each topic is there for one thing that a reader could get wrong.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import pylog
from pylog import limits
from pylog.clock import ManualClock
from pylog.fs import OsFileSystem, parent_process
from pylog.log.writing.append_batches import BatchRange
from pylog.record.builder import BatchEncoder
from pylog.record.compression import codec_id
from pylog.record.from_arrow import rows_from_arrow
from pylog.staging.file import StagingFile
from pylog.staging.intents import Intent, producer_of, write_intent
from pylog.staging.names import StagingName
from support.engines import engine_of
from support.kafka.adopt import AdoptedTopic
from support.kafka.harness import Record, ToolResult

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, tuple[Header, ...], int | None]  # key, value, headers, timestamp

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUERY = "0a1b2c3d-0000-4000-8000-0123456789ab"
NOW_MS = 1_700_000_000_000  # what the clock says while the topics are written
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")


# ---- what is written -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Append:
    """One call: `append_many`, `append_arrow`, `splice` of batches made elsewhere or, record by record, `append`."""

    rows: tuple[Row, ...]
    partition: int = 0
    compression: str | None = None
    how: str = "many"

    def to(self, log: pylog.Log) -> None:
        if self.how == "arrow":
            log.append_arrow(arrow_table(self.rows), compression=self.compression)
        elif self.how == "spliced":
            splice(log, self)
        elif self.how == "single":
            for key, value, headers, timestamp in self.rows:
                log.append(value, key, headers, timestamp)
        else:
            log.append_many(self.rows, compression=self.compression)


def splice(log: pylog.Log, append: Append) -> None:
    """Appends as a streaming query of Spark's does: batches out of a file, with a producer's numbers."""
    encoder, now_ms = BatchEncoder(codec_id(append.compression or "none"), batch_bytes=1000), NOW_MS
    with tempfile.NamedTemporaryFile() as staged:
        for rows in rows_from_arrow(arrow_table(append.rows), now_ms):
            for encoded in encoder.encode(rows, 0, 0):
                staged.write(encoded.data)
        staged.flush()
        file = OsFileSystem().open(staged.name)
        engine_of(log).append_batches([BatchRange(file, 0, file.size(), len(append.rows))], producer_of(QUERY, log.end_offset))
        file.close()


@dataclass(frozen=True)
class WrittenTopic:
    """A topic, its options and what is appended to it."""

    name: str
    appends: tuple[Append, ...] = ()
    partitions: int = 1
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def timestamp_type(self) -> str:
        return str(self.config.get("message_timestamp_type", "CreateTime"))

    def numbers(self, partition: int, offset: int) -> tuple[int, int, int]:
        """The producer's id, its epoch and the sequence of a record; -1 each where no producer has numbered it."""
        start = 0
        for append in (append for append in self.appends if append.partition == partition):
            end = start + len(append.rows)
            if append.how == "spliced" and start <= offset < end:
                producer = producer_of(QUERY, start)
                return producer.producer_id, producer.epoch, offset - start
            start = end
        return -1, -1, -1

    @property
    def kafka_config(self) -> dict[str, str]:
        """The options that a broker takes too: it minds segments below 1 MiB in a configuration, but not on the disk."""
        shared = {name.replace("_", "."): str(value) for name, value in self.config.items() if name != "segment_bytes"}
        if shared.get("compression.type") == "none":
            shared["compression.type"] = "uncompressed"  # its name among a topic's options
        return {"retention.ms": "-1"} | shared

    def expected(self) -> list[Record]:
        """The records as every reader must see them, by partition and offset."""
        ends = dict.fromkeys(range(self.partitions), 0)
        records = []
        for append in self.appends:
            for key, value, headers, timestamp in append.rows:
                stamp = NOW_MS if timestamp is None or self.timestamp_type == "LogAppendTime" else timestamp
                place = append.partition, ends[append.partition]
                records.append(Record(*place, stamp, self.timestamp_type, key, value, headers, leader_epoch=0))
                ends[append.partition] += 1
        return sorted(records, key=lambda record: (record.partition, record.offset))


def rows_of(count: int, *, seed: int = 0, size: int = 40, start: int = NOW_MS) -> tuple[Row, ...]:
    """Ordinary records: some keys null, some with headers; half of each value compresses well."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        key = None if number % 7 == 3 else b"key %d" % (number % 10)
        headers: tuple[Header, ...] = (("trace", b"%d" % number),) if number % 5 == 0 else ()
        rows.append((key, b"x" * (size // 2) + rng.randbytes(size // 2), headers, start + number))
    return tuple(rows)


def row(value: bytes | None = b"v", key: bytes | None = None, headers: Iterable[Header] = (), timestamp: int = NOW_MS) -> Row:
    return key, value, tuple(headers), timestamp


def arrow_table(rows: Iterable[Row]) -> pa.Table:
    keys, values, headers, timestamps = zip(*rows, strict=True)
    pairs = [[{"key": name, "value": value} for name, value in each] for each in headers]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps, pa.int64()),
        "headers": pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    return pa.table(columns)


def _codec_topics() -> Iterator[WrittenTopic]:
    """Each codec as the topic's own, in batches of one record and of many, with one batch whose codec the call names."""
    for number, codec in enumerate(CODECS):
        appends = (
            Append(rows_of(150, seed=number), how="arrow"),
            Append((row(b"alone", b"k"),)),
            Append((row(b"one", b"k"), row(b"by", b"k"), row(b"one", b"k")), how="single"),
            Append((row(b""),)),
            Append(rows_of(150, seed=9 + number), compression=CODECS[number - 1]),
        )
        yield WrittenTopic(f"codec-{codec}", appends, config={"compression_type": codec})


def _headers() -> WrittenTopic:
    rows = (
        row(headers=[("again", b"1"), ("again", b"2"), ("again", b"1")]),
        row(headers=[("null", None), ("empty", b""), ("zero", b"\0")]),
        row(headers=[("", b"no name"), ("", None), ("", b"")]),
        row(headers=[("grüße", "größe".encode()), ("键", b"\xff\xfe"), ("🗝", None)]),
        row(headers=[(f"many-{number}", b"%d" % number) for number in range(200)]),
        row(headers=[("n" * 300, b"v" * 5000)]),
        row(),
    )
    arrow = Append(rows, how="arrow", compression="lz4")
    return WrittenTopic("headers", (Append(rows), Append(rows, how="single"), arrow, Append(rows, compression="zstd")))


def _nulls() -> WrittenTopic:
    rows = tuple(row(value, key) for key in (None, b"", b"k") for value in (None, b"", b"v"))
    all_null = (row(None), row(None))
    appends = [Append(rows, compression=codec) for codec in CODECS]
    return WrittenTopic("nulls", (*appends, Append(all_null), Append(rows, how="arrow"), Append(rows, how="single")))


def _segments() -> WrittenTopic:
    """Some dozen segments; an index entry every few batches, batches of all codecs in turn."""
    appends = tuple(
        Append(rows_of(1 + number % 9, seed=number, size=120, start=NOW_MS + 1000 * number), compression=CODECS[number % 5])
        for number in range(100)
    )
    return WrittenTopic("segments.of_4-KiB", appends, config={"segment_bytes": 4096, "index_interval_bytes": 512})


def _disordered() -> WrittenTopic:
    """CreateTime that goes back and forth, within batches and between them, and by more than a segment's time."""
    rng = random.Random(5)
    stamps = [NOW_MS + rng.randrange(-86_400_000, 86_400_000) for _ in range(300)]
    stamps[100] = 0
    stamps[200] = NOW_MS + 30 * 86_400_000
    rows = tuple(row(b"%d" % stamp, timestamp=stamp) for stamp in stamps)
    appends = tuple(Append(rows[at : at + 6]) for at in range(0, 300, 6))
    config = {"segment_bytes": 2048, "index_interval_bytes": 256, "message_timestamp_after_max_ms": 2**63 - 1}
    return WrittenTopic("disordered", appends, config=config)


def _untimed() -> WrittenTopic:
    none = tuple(row(b"%d" % number, timestamp=-1) for number in range(5))
    mixed = (row(timestamp=-1), row(timestamp=NOW_MS), row(timestamp=-1), row(timestamp=0))
    return WrittenTopic("untimed", (Append(none), Append(mixed), Append(none, compression="gzip"), Append(none, how="single")))


def _appended_at() -> WrittenTopic:
    config = {"message_timestamp_type": "LogAppendTime", "segment_bytes": 4096}
    appends = tuple(Append(rows_of(20, seed=number, start=5), compression=CODECS[number % 5]) for number in range(10))
    return WrittenTopic("appended-at", appends, config=config)


def _spliced(name: str, **config: Any) -> WrittenTopic:
    appends = [Append(rows_of(200, seed=number), compression=codec, how="spliced") for number, codec in enumerate(CODECS)]
    return WrittenTopic(name, (Append(rows_of(3)), *appends), config={"segment_bytes": 16_384} | config)


def _big() -> WrittenTopic:
    """Records of a megabyte: random bytes, which grow when they are compressed, and zeros, which nearly vanish."""
    noise = random.Random(1).randbytes(1_000_000)
    rows = row(noise, b"noise"), row(bytes(1_000_000), b"zeros"), row(b"small")
    return WrittenTopic("big", tuple(Append(rows, compression=codec) for codec in CODECS))


def _spread() -> WrittenTopic:
    """Partitions of different lengths; the last one stays empty."""
    appends = tuple(Append(rows_of(10 + 40 * number, seed=number), partition=number) for number in range(3))
    return WrittenTopic("spread", appends, partitions=4)


TOPICS = {
    topic.name: topic
    for topic in (
        *_codec_topics(),
        _headers(),
        _nulls(),
        _segments(),
        _disordered(),
        _untimed(),
        _appended_at(),
        _spliced("spliced"),
        _spliced("spliced-at", message_timestamp_type="LogAppendTime"),
        _big(),
        _spread(),
        WrittenTopic("nothing", partitions=2),
        WrittenTopic("mended", (Append(rows_of(5)), Append(rows_of(7, seed=1)))),  # the torn tail between them is kept in a file
        WrittenTopic("dots.and_under-scores-7", (Append(rows_of(3)),)),
        WrittenTopic("now", (Append(((None, b"v", (), None),) * 3),)),  # the clock gives the time
    )
}


def _tear(directory: Path) -> None:
    """Makes the topic "mended", and leaves it as a crash in the middle of a second write does."""
    topic = TOPICS["mended"]
    with pylog.open(directory) as store:
        store.create_topic(topic.name)
        topic.appends[0].to(store.log(topic.name))
    log = directory / "mended-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])
    (directory / ".kafka_cleanshutdown").unlink()


def _write(store: pylog.Store) -> None:
    for topic in TOPICS.values():
        mended = topic.name in store.topics()
        if not mended:
            store.create_topic(topic.name, topic.partitions, **topic.config)
        for append in topic.appends[mended:]:
            append.to(store.log(topic.name, append.partition))
    fs = OsFileSystem()  # what Spark's queries leave in the root
    write_intent(fs, store.path, Intent(QUERY, 7, done=True))
    StagingFile(fs, store.path, StagingName("77", 0, parent_process(fs.boot_id())).new()).finish({}, durable=False)


def write_topics(directory: Path) -> None:
    """Writes all topics and closes the store."""
    _tear(directory)
    with pylog.open(directory, clock=ManualClock(NOW_MS)) as store:
        _write(store)


def write_topics_and_die(directory: Path) -> None:
    """Writes all topics, each record acknowledged, and kills this process: nothing is closed, zeros are behind most logs."""
    _tear(directory)
    limits.PREALLOCATE_AFTER = 1
    _write(pylog.open(directory, clock=ManualClock(NOW_MS)))
    os.kill(os.getpid(), signal.SIGKILL)


# ---- what is read --------------------------------------------------------------------------------------------------------


def read(store: pylog.Store, topic: str, isolation: str = "read_uncommitted") -> list[Record]:
    """Every record of a topic as pylog reads it, by partition and offset, in the form of the harness' consumer."""
    return [
        each
        for partition in store.topics()[topic].partition_ids
        for frame in store.log(topic, partition).scan(columns=COLUMNS, isolation_level=isolation)
        for each in _records(partition, frame)
    ]


def _records(partition: int, frame: pa.RecordBatch) -> Iterator[Record]:
    columns = frame.set_column(1, "timestamp", frame.column(1).view(pa.int64())).to_pydict()
    for offset, timestamp, kind, key, value, headers, epoch in zip(*columns.values(), strict=True):
        pairs = tuple((header["key"], header["value"]) for header in headers)
        yield Record(partition, offset, timestamp, TIMESTAMP_TYPES[kind], key, value, pairs, None if epoch < 0 else epoch)


def ends(store: pylog.Store, topic: str) -> dict[int, tuple[int, int]]:
    """Start and end offset of each partition, as `Broker.offsets` tells the broker's."""
    logs = {partition: store.log(topic, partition) for partition in store.topics()[topic].partition_ids}
    return {partition: (log.start_offset, log.end_offset) for partition, log in logs.items()}


def adopted(directory: Path) -> list[AdoptedTopic]:
    """The topics of a directory of pylog's, as a broker is to be told of them."""
    with pylog.open(directory, mode="r") as store:
        topics = store.topics()
        return [
            AdoptedTopic(name, topic.partition_count, str(topic.id), TOPICS[name].kafka_config) for name, topic in topics.items()
        ]


# ---- what a broker leaves and says -----------------------------------------------------------------------------------------


def files(directory: Path) -> dict[str, bytes]:
    """The content of every file, by its path below the directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


FAULTS = re.compile(r"(?i)mismatch|isvalid: false|invalid bytes|out of order|not found|exception|non-consecutive|failed")


def faults(dumped: ToolResult) -> list[str]:
    """What the dump tool objects to. It expects every file to begin at offset 0: to it the later segments skip something."""
    told = re.sub(r"Non-consecutive offsets in .*\n +-1 is followed by \d+\n", "", dumped.stderr)
    lines = [line for line in dumped.stdout.split("\n") if not line.startswith("|")]
    return [line for line in lines if FAULTS.search(line)] + told.splitlines()


# Loggers whose warnings are about the node's talk with itself and not about files: that its controller is not elected yet, that a
# session of the killed predecessor must end first or one of its own has, that a connection is closed already.
ABOUT_THE_QUORUM = (
    r"\((kafka\.server\.ControllerApis|org\.apache\.kafka\.(controller|clients|raft|network)\.[\w.]+"
    r"|org\.apache\.kafka\.server\.(AssignmentsManager|BrokerLifecycleManager))\)$"
)

# A broker that starts may ask for the groups of a partition before it leads it, and does so again when it does.
TOO_EARLY = r"Failed to load metadata from (\S+) with epoch \d+ due to Stopped loading records .* the partition is not online"


def complaints(output: str) -> list[str]:
    """The warnings and errors in a broker's log, but for those that every start and stop can have."""
    found = [line for line in output.splitlines() if re.match(r"\S+ \S+ (WARN|ERROR|FATAL) ", line)]
    return [line for line in found if not re.search(ABOUT_THE_QUORUM, line) and not is_made_good(line, output)]


def is_made_good(complaint: str, output: str) -> bool:
    """Whether a broker complains of having asked too early for groups that it loads later."""
    early = re.search(TOO_EARLY, complaint)
    return early is not None and f"Finished loading of metadata from {early[1]} with" in output.partition(complaint)[2]


if __name__ == "__main__":
    write_topics_and_die(Path(sys.argv[1]))
