"""Topics, records and offsets that are asked for wrongly: a clear error of pylog's own, and nothing has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pylog
from pylog.directory.checkpoints import CLEAN_SHUTDOWN
from support import refusals
from support.refusals import NOW, RECORDS, refused

root = pytest.fixture(refusals.root)
store = pytest.fixture(refusals.store)


# ---- topics ----------------------------------------------------------------------------------------------------------------

BAD_NAMES = {
    "empty": "",
    "one dot": ".",
    "two dots": "..",
    "too long": "a" * 250,
    "a slash": "a/b",
    "a backslash": "a\\b",
    "a NUL": "a\0b",
    "a newline": "a\n",
    "a newline inside": "a\nb",
    "a space": "a b",
    "a colon": "c:",
    "an umlaut": "ärger",
    "another script's digits": "t٣",
    "a lone surrogate": "a\ud800",
    "the parent": "../t",
    "the root": "/etc",
    "a percent sign": "%2e%2e",
    "bytes": b"t",
    "none": None,
    "a number": 5,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_bad_topic_names_are_refused_everywhere(root: Path, store: pylog.Store, name: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: store.create_topic(name),
        lambda: store.topic(name),
        lambda: store.log(name),
        lambda: store.add_partitions(name, 5),
        lambda: store.delete_topic(name),
    ]
    for call in calls:
        with refused(pylog.InvalidTopicError, "topic name", unchanged=root):
            call()


def test_the_longest_name_is_a_name(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        assert store.create_topic("a" * 249).name == "a" * 249
        store.log("a" * 249).append(b"x")


@pytest.mark.parametrize(("taken", "name"), [("a.b", "a_b"), ("a_b", "a.b"), ("events", "Events")])
def test_names_that_would_collide_are_refused(tmp_path: Path, taken: str, name: str) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic(taken)
        for wanted in (taken, name):
            with refused(pylog.TopicAlreadyExistsError, wanted, unchanged=tmp_path):
                store.create_topic(wanted)


@pytest.mark.parametrize("kind", ["file", pytest.param("link", marks=pytest.mark.damaged("it leads to no partition")), "fifo"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_file_where_a_partition_would_go_is_noticed_before_anything_is_made(tmp_path: Path, kind: str, number: int) -> None:
    path = tmp_path / f"orders-{number}"
    (tmp_path / "elsewhere").mkdir()
    with pylog.open(tmp_path, create=True) as store:
        if number:
            store.create_topic("orders")
        {"file": path.touch, "link": lambda: path.symlink_to(tmp_path / "elsewhere"), "fifo": lambda: os.mkfifo(path)}[kind]()
        error = pylog.NotALogDirectoryError
        if kind == "link":  # a link stands for a partition, wherever it leads
            error = pylog.InvalidArgumentError if number else pylog.TopicAlreadyExistsError
        with refused(error, "orders", "" if kind == "link" else "not a directory", unchanged=tmp_path):
            store.add_partitions("orders", 2) if number else store.create_topic("orders", 2)
    with pylog.open(tmp_path) as store:
        assert list(store.topics()) == (["orders"] if number or kind == "link" else [])


def test_a_file_is_not_a_partition(root: Path) -> None:
    (root / "notes-0").write_bytes(b"x")
    with pylog.open(root, "r") as store:
        assert list(store.topics()) == ["t"]
        with refused(pylog.NotALogDirectoryError, "notes-0", "not a directory", unchanged=root):
            store.log("notes", 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        {"retention": 5},
        {"retention_hours": 5},
        {"segment_bytes": 5, "unknown": 1},
        {"segment_bytes": 13},
        {"segment_ms": 0},
        {"retention_ms": -2},
        {"retention_ms": 2**63},
        {"max_message_bytes": -1},
        {"compression_type": "brotli"},
        {"compression_type": None},
        {"compression_gzip_level": 0},
        {"compression_zstd_level": 23},
        {"message_timestamp_type": "createtime"},
        {"cleanup_policy": "forget"},
        {"cleanup_policy": 7},
        {"partition_count": 0},
        {"partition_count": -1},
        {"partition_count": 10**7},
    ],
)
def test_unknown_options_and_values_are_refused(root: Path, store: pylog.Store, options: dict[str, Any]) -> None:
    with refused(pylog.InvalidArgumentError, next(iter(set(options) - {"segment_bytes"} or options)), unchanged=root):
        store.create_topic("new", **options)


@pytest.mark.parametrize("wrong", ["1000", True, 1.0])
@pytest.mark.parametrize("option", ["segment_bytes", "partition_count"])
def test_values_of_a_wrong_type_are_refused(root: Path, store: pylog.Store, option: str, wrong: object) -> None:
    with refused(pylog.InvalidTypeError, option, unchanged=root):
        store.create_topic("new", **{option: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("partition", "kind"), [(1, pylog.UnknownTopicOrPartitionError), (-1, pylog.UnknownTopicOrPartitionError)]
)
def test_partitions_that_there_are_not_are_named(
    root: Path, store: pylog.Store, partition: int, kind: type[pylog.PylogError]
) -> None:
    with refused(kind, "t", str(partition), unchanged=root):
        store.log("t", partition)
    with refused(pylog.UnknownTopicOrPartitionError, "nothing", unchanged=root):
        store.log("nothing", 0)


@pytest.mark.parametrize("partition", ["0", None, 0.0, True, b"1"])
def test_a_partition_is_an_int(root: Path, store: pylog.Store, partition: Any) -> None:
    with refused(pylog.InvalidArgumentError, "partition", unchanged=root):
        store.log("t", partition)


# ---- records ---------------------------------------------------------------------------------------------------------------

BAD_APPENDS: dict[str, tuple[type[pylog.PylogError], Callable[[pylog.Log], Any]]] = {
    "a str": (pylog.InvalidRecordError, lambda log: log.append("text")),
    "a str as key": (pylog.InvalidRecordError, lambda log: log.append(b"v", "key")),
    "an int": (pylog.InvalidRecordError, lambda log: log.append(5)),
    "a float as timestamp": (pylog.InvalidRecordError, lambda log: log.append(b"v", timestamp=1.5)),
    "many offsets as an int": (pylog.InvalidArgumentError, lambda log: log.read_many(5)),
    "many offsets as a str": (pylog.InvalidArgumentError, lambda log: log.read_many("5")),
    "many offsets, one a str": (pylog.InvalidArgumentError, lambda log: log.read_many([0, "1"])),
    "many offsets, one missing": (pylog.InvalidArgumentError, lambda log: log.read_many(pa.array([0, None]))),
    "many offsets as floats": (pylog.InvalidArgumentError, lambda log: log.read_many(np.array([0.0]))),
    "many offsets in two dimensions": (pylog.InvalidArgumentError, lambda log: log.read_many(np.array([[0]]))),
    "many offsets, one negative": (pylog.OffsetOutOfRangeError, lambda log: log.read_many(np.array([0, -1]))),
    "many offsets, one of 64 bits": (pylog.InvalidArgumentError, lambda log: log.read_many(np.array([1 << 63], np.uint64))),
    "many offsets, one beyond": (pylog.OffsetOutOfRangeError, lambda log: log.read_many([0, 99])),
    "many offsets without a column": (pylog.InvalidArgumentError, lambda log: log.read_many([0], columns=[])),
    "a time before 1970": (pylog.InvalidRecordError, lambda log: log.append(b"v", timestamp=-2)),
    "a time beyond 64 bits": (pylog.InvalidRecordError, lambda log: log.append(b"v", timestamp=2**64)),
    "headers that are none": (pylog.InvalidRecordError, lambda log: log.append(b"v", headers=5)),
    "a header of one": (pylog.InvalidRecordError, lambda log: log.append(b"v", headers=[("a",)])),
    "a header without a name": (pylog.InvalidRecordError, lambda log: log.append(b"v", headers=[(None, b"x")])),
    "a header with a str value": (pylog.InvalidRecordError, lambda log: log.append(b"v", headers=[("a", "x")])),
    "headers as a dict": (pylog.InvalidRecordError, lambda log: log.append(b"v", headers={"ab": b"x"})),
    "a durability by name": (pylog.InvalidArgumentError, lambda log: log.append(b"v", durability="SYNC")),
    "many, one of them bad": (pylog.InvalidRecordError, lambda log: log.append_many([(b"k", b"v")] * 9 + [(b"k", "v")])),
    "many that are a str": (pylog.InvalidArgumentError, lambda log: log.append_many("abc")),
    "many that are bytes": (pylog.InvalidArgumentError, lambda log: log.append_many(b"abc")),
    "many that are a dict": (pylog.InvalidArgumentError, lambda log: log.append_many({b"k": b"v"})),
    "many that are a generator": (pylog.InvalidArgumentError, lambda log: log.append_many(value for value in [b"v"])),
    "a tuple of five": (pylog.InvalidArgumentError, lambda log: log.append_many([(b"k", b"v", (), 1, 2)])),
    "a tuple of one": (pylog.InvalidArgumentError, lambda log: log.append_many([(b"v",)])),
    "an unknown codec": (pylog.InvalidArgumentError, lambda log: log.append_many([b"v"], compression="brotli")),
    "a codec's number": (pylog.InvalidArgumentError, lambda log: log.append_many([b"v"], compression=1)),
    "a list of codecs": (pylog.InvalidArgumentError, lambda log: log.append_many([b"v"], compression=["zstd"])),
    "a list for a table": (pylog.InvalidRecordError, lambda log: log.append_arrow([b"v"])),
    "an unknown column": (pylog.InvalidRecordError, lambda log: log.append_arrow(pa.table({"value": [b"v"], "topic": ["t"]}))),
    "a column of ints": (pylog.InvalidRecordError, lambda log: log.append_arrow(pa.table({"value": [1, 2]}))),
    "a late chunk of bad times": (pylog.InvalidRecordError, lambda log: log.append_arrow(late_chunk([1, -5]))),
    "a record too large": (pylog.RecordTooLargeError, lambda log: log.append(bytes(300))),
    "a key too large": (pylog.RecordTooLargeError, lambda log: log.append(b"", bytes(300))),
    "a header too large": (pylog.RecordTooLargeError, lambda log: log.append(b"", headers=[("h", bytes(300))])),
    "many, the last too large": (pylog.RecordTooLargeError, lambda log: log.append_many([b"v"] * 50 + [bytes(300)])),
    "many compressible ones too large": (
        pylog.RecordTooLargeError,
        lambda log: log.append_many([bytes(300)], compression="zstd"),
    ),
    "a late chunk too large": (pylog.RecordTooLargeError, lambda log: log.append_arrow(late_chunk([1, 2], last=bytes(300)))),
}


def late_chunk(stamps: list[int], last: bytes = b"v") -> pa.Table:
    """A table of two chunks, of which only the second has something wrong."""
    good = pa.table({"value": [b"v"] * 3, "timestamp": [1, 2, 3]})
    return pa.concat_tables([good, pa.table({"value": [b"v", last], "timestamp": stamps})])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "append"), BAD_APPENDS.values(), ids=BAD_APPENDS.keys())
def test_a_record_that_cannot_be_written_leaves_the_log_unchanged(
    root: Path, store: pylog.Store, kind: type[pylog.PylogError], append: Callable[[pylog.Log], Any]
) -> None:
    log = store.log("t")
    end = log.end_offset
    with refused(kind, unchanged=root):
        append(log)
    assert log.end_offset == end
    assert log.append(b"good") == end
    assert [record.value for record in log.records()] == [*RECORDS, b"five", b"good"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "append"), BAD_APPENDS.values(), ids=BAD_APPENDS.keys())
def test_a_refused_first_append_does_not_even_touch_the_marker_of_a_clean_shutdown(
    root: Path, kind: type[pylog.PylogError], append: Callable[[pylog.Log], Any]
) -> None:
    with pylog.open(root) as store:
        log = store.log("t")
        with refused(kind, unchanged=root):
            append(log)
        assert (root / ".kafka_cleanshutdown").exists()


# ---- reading ---------------------------------------------------------------------------------------------------------------

BAD_READS: dict[str, tuple[type[pylog.PylogError], Callable[[pylog.Log], Any]]] = {
    "read before zero": (pylog.OffsetOutOfRangeError, lambda log: log.read(-1)),
    "read at the end": (pylog.OffsetOutOfRangeError, lambda log: log.read(log.end_offset)),
    "read far beyond": (pylog.OffsetOutOfRangeError, lambda log: log.read(2**62)),
    "read beyond all numbers": (pylog.InvalidArgumentError, lambda log: log.read(2**64)),
    "read at a str": (pylog.InvalidArgumentError, lambda log: log.read("1")),
    "read at a float": (pylog.InvalidArgumentError, lambda log: log.read(1.0)),
    "read at a bool": (pylog.InvalidArgumentError, lambda log: log.read(True)),
    "read at none": (pylog.InvalidArgumentError, lambda log: log.read(None)),
    "scan from before zero": (pylog.OffsetOutOfRangeError, lambda log: log.scan(-1)),
    "scan from beyond": (pylog.OffsetOutOfRangeError, lambda log: log.scan(log.end_offset + 1)),
    "scan to beyond": (pylog.OffsetOutOfRangeError, lambda log: log.scan(0, log.end_offset + 1)),
    "scan to before zero": (pylog.OffsetOutOfRangeError, lambda log: log.scan(0, -1)),
    "scan from a str": (pylog.InvalidArgumentError, lambda log: log.scan("0")),
    "records from beyond": (pylog.OffsetOutOfRangeError, lambda log: log.records(99)),
    "an unknown isolation": (pylog.InvalidArgumentError, lambda log: log.scan(isolation_level="serializable")),
    "an isolation of records": (pylog.InvalidArgumentError, lambda log: log.records(isolation_level=None)),
    "an isolation of times": (
        pylog.InvalidArgumentError,
        lambda log: log.offset_for_timestamp(5, isolation_level="READ_COMMITTED"),
    ),
    "an unknown column": (pylog.InvalidArgumentError, lambda log: log.scan(columns=["offset", "topic"])),
    "no column": (pylog.InvalidArgumentError, lambda log: log.scan(columns=[])),
    "a column twice": (pylog.InvalidArgumentError, lambda log: log.scan(columns=["key", "key"])),
    "a column as a str": (pylog.InvalidArgumentError, lambda log: log.scan(columns="offset")),
    "no rows": (pylog.InvalidArgumentError, lambda log: log.scan(max_rows=0)),
    "half a row": (pylog.InvalidArgumentError, lambda log: log.scan(max_rows=0.5)),
    "a time before 1970": (pylog.InvalidArgumentError, lambda log: log.offset_for_timestamp(-1)),
    "a time as a str": (pylog.InvalidArgumentError, lambda log: log.offset_for_timestamp("now")),
    "parts of nothing": (pylog.InvalidArgumentError, lambda log: log.split_offsets(0, 5, 0)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(("kind", "read"), BAD_READS.values(), ids=BAD_READS.keys())
def test_reads_of_what_is_not_there_are_refused_at_once(
    root: Path, mode: str, kind: type[pylog.PylogError], read: Callable[[pylog.Log], Any]
) -> None:
    with pylog.open(root, mode) as store:
        log = store.log("t")
        with refused(kind, unchanged=root):
            read(log)
        assert [record.value for record in log.records()] == RECORDS


def test_offsets_below_the_logs_start_are_out_of_range(root: Path) -> None:
    (root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    (root / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":7}')  # a broker was here, and deleted records
    with pylog.open(root, "r") as store:
        log = store.log("t")
        assert (log.start_offset, log.end_offset) == (2, 5)
        for read in (lambda: log.read(1), lambda: log.scan(1), lambda: log.records(0)):
            with refused(pylog.OffsetOutOfRangeError, "holds offsets 2 to 4", unchanged=root):
                read()
        assert [record.value for record in log.records()] == RECORDS[2:]
        found = log.offset_for_timestamp(0)
        assert found is not None
        assert (found.offset, found.timestamp, found.leader_epoch) == (2, NOW, 0)
