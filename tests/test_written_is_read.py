"""What pylog accepts for writing, its readers accept: each bound of a reader has a writer that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import pylog
from pylog import background_errors, limits
from pylog.clock import SystemClock
from pylog.fs import FileKind, OsFileSystem, at_most
from pylog.groups import plan_file
from pylog.topics import catalog

T0: Final = pylog.TopicPartition("t", 0)
MOST_HEADERS: Final = 400
MOST: Final = limits.MAX_METADATA_CHARACTERS


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(limits, "MAX_BATCH_HEADERS", MOST_HEADERS)  # it is a million: the objects of a test take a second
    one = pylog.OffsetsConfig(topic_num_partitions=1, metadata_max_bytes=limits.MAX_METADATA_CHARACTERS)
    with pylog.open(tmp_path / "s", durability=pylog.Durability.OS, offsets=one) as opened:
        opened.create_topic("t", max_message_bytes=limits.INT32_MAX)
        yield opened


def headers(count: int) -> list[tuple[str, bytes | None]]:
    return [("", None)] * count


def _table(rows: int, count: int) -> pa.Table:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table({"value": [b"v"] * rows, "headers": pa.array([[{"key": "", "value": None}] * count] * rows, kind)})


def _by_producer(store: pylog.Store, count: int) -> None:
    with store.producer() as producer:
        producer.send("t", b"v", headers=headers(count)).result()


def _table_by_producer(store: pylog.Store, count: int) -> None:
    with store.producer() as producer:
        producer.send_arrow("t", _table(1, count))


NUMBERED: Final = pylog.ProducerBatch(7, 0, 0)
HEADERS: Final[dict[str, Callable[[pylog.Store, int], object]]] = {
    "append": lambda store, count: store.log("t").append(b"v", headers=headers(count)),
    "append_many": lambda store, count: store.log("t").append_many([(None, b"v", headers(count))]),
    "append_many, compressed": lambda store, count: store.log("t").append_many(
        [(None, b"v", headers(count))], compression="zstd"
    ),
    "append_batch": lambda store, count: store.log("t").append_batch([(None, b"v", headers(count))]),
    "an atomic batch": lambda store, count: store.log("t").append_batch([(None, b"v", headers(count // 2))] * 2, atomic=True),
    "many in an atomic batch": lambda store, count: store.log("t").append_batch(
        [(None, b"v", headers(count // 20))] * 20, atomic=True
    ),
    "a producer's batch": lambda store, count: store.log("t").append_batch(
        [(None, b"v", headers(count // 2))] * 2, producer=NUMBERED
    ),
    "append_arrow": lambda store, count: store.log("t").append_arrow(_table(1, count)),
    "Producer.send": _by_producer,
    "Producer.send_arrow": _table_by_producer,
}


@pytest.mark.parametrize("how", HEADERS)
def test_headers_that_a_writer_takes_are_read_and_more_are_refused_before_they_are_written(store: pylog.Store, how: str) -> None:
    write, log = HEADERS[how], store.log("t")
    write(store, MOST_HEADERS)
    records = list(log.records())
    assert sum(len(record.headers) for record in records) >= MOST_HEADERS
    for count in (MOST_HEADERS + 20, 2 * MOST_HEADERS):
        with pytest.raises(pylog.RecordTooLargeError, match=r"headers has more than the 400 .* use fewer"):
            write(store, count)
    assert log.end_offset == len(records)
    log.append(b"later")  # the store still works


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_records_of_more_bytes_than_a_reader_decompresses_stay_uncompressed(store: pylog.Store, codec: str) -> None:
    large, log = bytes(limits.MAX_BATCH_DECOMPRESSED_BYTES + 1), store.log("t")
    log.append_many([large], compression=codec)
    assert log.read(0).value == large
    assert log.segments[-1].size > len(large)


class TestTexts:
    """Names and texts at the end of their ranges."""

    def test_of_commits(self, store: pylog.Store) -> None:
        for character in ("x", "ä", "\uffff", "\U0001f600"):
            for count in (1, MOST // 2, MOST, MOST + 1):
                for group in ("g", "x" * limits.MAX_GROUP_BYTES, "ä" * (limits.MAX_GROUP_BYTES // 2)):
                    given = pylog.OffsetAndMetadata(0, character * count)
                    try:
                        store.offsets.commit(group, {T0: given})
                    except pylog.InvalidArgumentError:
                        continue
                    assert store.offsets.fetch(group)[T0].metadata == character * count
        assert not store.offsets.skipped_records()

    def test_of_members(self, store: pylog.Store) -> None:
        for character in ("x", "ä", "\U0001f600"):
            text = character * limits.MAX_CLIENT_TEXT_CHARACTERS
            with store.consumer("t", group_id=character, client_id=text, group_instance_id=text) as consumer:
                consumer.poll()
                (member,) = store.group(character).describe().members
                assert member.client_id == text
            with pytest.raises(pylog.InvalidArgumentError):
                store.consumer("t", group_id="g", client_id=text + "x")

    def test_of_topics(self, store: pylog.Store, tmp_path: Path) -> None:
        name = "n" * (limits.MAX_TOPIC_NAME_CHARACTERS)
        store.create_topic(name)
        store.log(name).append(b"v", key=b"k" * 100_000, headers=[("h" * 100_000, b"")])
        store.offsets.commit("g", {(name, 0): 1})
        store.close()
        with pylog.open(tmp_path / "s") as again:
            (record,) = again.log(name).records()
            assert len(record.headers[0][0]) == 100_000
            assert again.offsets.position("g", (name, 0)) == 1


def test_a_catalog_that_readers_would_refuse_is_not_written(store: pylog.Store, tmp_path: Path, monkeypatch: Any) -> None:
    there = (tmp_path / "s/pylog.json").read_bytes()
    kind = FileKind("a catalog", catalog._parse, at_most(len(there) + 50), "restore it")
    monkeypatch.setattr(catalog, "CATALOGS", kind)
    with pytest.raises(pylog.InvalidArgumentError, match=r"would have .* bytes, more than"):
        store.create_topic("another", retention_ms=1)
    assert (tmp_path / "s/pylog.json").read_bytes() == there
    assert list(store.topics()) == ["t"]


def test_a_plan_that_readers_would_refuse_is_not_written(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "MAX_PLAN_BYTES", 20)
    plan_file.write(tmp_path / "plan", "t,0,1\n" * 3)
    assert plan_file.read(tmp_path / "plan")[0] == "t,0,1\n" * 3
    with pytest.raises(pylog.InvalidArgumentError, match="several files"):
        plan_file.write(tmp_path / "plan", "t,0,1\n" * 4)
    assert plan_file.read(tmp_path / "plan")[0] == "t,0,1\n" * 3


@pytest.mark.parametrize("text", ["x", "ä", "\0", "\U0001f600", "\ud800", '"'], ids=ascii)
def test_a_note_of_any_error_is_read(tmp_path: Path, text: str) -> None:
    background_errors.write_background_errors(OsFileSystem(), str(tmp_path), SystemClock(), 1, ValueError(text * 5000))
    found = background_errors.read_background_errors(OsFileSystem(), str(tmp_path))
    assert found is not None
    assert found.message.startswith("ValueError: ")
