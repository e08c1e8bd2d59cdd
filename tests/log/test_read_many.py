"""`Log.read_many`: the records at many offsets are those that a scan has there, in the order of the offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pylog
from pylog.record.decoder import RecordDecoder
from pylog.testing import MemoryFileSystem
from support.golden.data import GoldenPartition, partitions

ALL = ["offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch", "producer_id", "sequence"]


@pytest.fixture
def log() -> Iterator[pylog.Log]:
    """Three hundred records in segments of about twenty, some batches compressed, one transaction aborted."""
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        store.create_topic("t", segment_bytes=2_000)
        made = store.log("t")
        for number in range(0, 300, 5):
            values = [(b"k%d" % each, b"v%d" % each) for each in range(number, number + 5)]
            made.append_many(values, compression=("none", "zstd", "lz4")[number % 3])
            if number == 100:
                with store.transaction("billing") as transaction:
                    transaction.append("t", b"aborted")
                    transaction.flush()
                    transaction.abort()
        yield made


def rows(log: pylog.Log, columns: Any = ("offset", "timestamp", "key", "value"), **options: Any) -> dict[int, Any]:
    """Returns what a scan has at each offset."""
    return {row["offset"]: row for frame in log.scan(columns=columns, **options) for row in frame.to_pylist()}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("columns", [("offset", "timestamp", "key", "value"), ALL, ["value", "offset"]])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.integers(0, 301), max_size=60))
def test_any_offsets_give_the_rows_of_a_scan_in_their_order(
    log: pylog.Log, columns: Any, isolation: str, asked: list[int]
) -> None:
    there = rows(log, columns, isolation_level=isolation)
    found = log.read_many(asked, columns=columns, isolation_level=isolation)
    assert found.to_pylist() == [there[offset] for offset in asked if offset in there]
    assert found.column_names == list(columns)


@pytest.mark.parametrize(
    "given",
    [
        (7, 3, 3),
        range(20),
        np.array([250, 7], np.int32),
        np.array([250, 7], np.uint64),
        pa.array([250, 7]),
        pa.chunked_array([[250], [7]]),
    ],
    ids=["tuple", "range", "int32", "uint64", "arrow", "chunked"],
)
def test_offsets_are_a_sequence_or_an_array_of_any_integers(log: pylog.Log, given: Any) -> None:
    asked = [int(each) for each in (given.to_pylist() if hasattr(given, "to_pylist") else given)]
    assert log.read_many(given)["offset"].to_pylist() == asked


def test_no_offsets_give_an_empty_table_with_the_columns(log: pylog.Log) -> None:
    assert log.read_many([], columns=["key", "sequence"]).schema == pa.schema([("key", pa.binary()), ("sequence", pa.int32())])


def test_columns_without_the_offset_are_returned_alone(log: pylog.Log) -> None:
    assert log.read_many([9, 2], columns=["value"]).to_pylist() == [{"value": b"v9"}, {"value": b"v2"}]


def test_offsets_in_the_gaps_of_a_compacted_log_have_no_row() -> None:
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        store.create_topic("t", cleanup_policy="compact", segment_bytes=500)
        log = store.log("t")
        log.append_many([(b"k%d" % (number % 3), b"%d" % number) for number in range(100)])
        for number in range(100, 140):
            log.append(b"%d" % number, key=b"k%d" % (number % 3))
        store.compact("t")
        there = rows(log)
        assert len(there) < 140
        for asked in (list(range(140)), [0, 139], [138]):
            assert log.read_many(asked).to_pylist() == [there[offset] for offset in asked if offset in there]


def test_each_batch_is_decoded_once_however_many_of_its_records_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        for _ in range(40):
            log.append_many([b"x" * 50] * 100)
        fed = list[int]()
        feed = RecordDecoder.feed

        def counted(decoder: Any, buffer: Any, table: Any) -> Any:
            fed.append(table.shape[1])
            return feed(decoder, buffer, table)

        monkeypatch.setattr(RecordDecoder, "feed", counted)
        asked = [*range(100, 150), *range(3_000, 3_050)] * 3
        assert log.read_many(asked)["offset"].to_pylist() == asked
        assert sum(fed) <= 3


def test_damage_elsewhere_does_not_keep_a_far_record_from_being_read(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=2_000)
        log = store.log("t")
        for number in range(100):
            log.append(b"%0100d" % number)
        harmed = log.segments[2]
    path = Path(harmed.path)
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pylog.open(tmp_path, "r") as store:
        log = store.log("t")
        far = [0, 1, harmed.end_offset + 1]
        assert log.read_many(far)["offset"].to_pylist() == far
        for columns in (["offset"], ["headers"]):
            with pytest.raises(pylog.CorruptionError, match=harmed.path):
                log.read_many([harmed.base_offset], columns=columns)


@pytest.mark.parametrize("golden", partitions()[::9], ids=str)
def test_the_records_of_brokers_of_all_versions_are_found(golden: GoldenPartition) -> None:
    if "readError" in golden.meta:
        return
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        there = rows(log)
        asked = sorted(there)[:: max(1, len(there) // 300)][::-1]
        assert log.read_many(asked).to_pylist() == [there[offset] for offset in asked]
        few = asked[::40]
        assert log.read_many(few).to_pylist() == [there[offset] for offset in few]
