"""A call that is nearly right is accepted or told how to be right, and one of a wrong type raises an error of pylog's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import pylog

OTHERS: list[Any] = [object(), 5, 1.5, "x", b"x", [], {}, None]


def seek_unassigned(store: pylog.Store) -> None:
    with store.consumer() as consumer:
        consumer.seek(("orders", 9), 5)


def open_with(store: pylog.Store, **options: Any) -> pylog.Store:
    return pylog.open(store.path, **options)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    with pylog.open(tmp_path / "shop") as opened:
        opened.create_topic("orders", partition_count=2)
        opened.log("orders").append_many([b"paid", b"shipped"])
        opened.offsets.commit("billing", {("orders", 0): 1})
        yield opened


def test_a_topic_that_exists_is_returned_as_it_is_if_the_caller_accepts_that(store: pylog.Store) -> None:
    assert store.create_topic("orders", exist_ok=True) == store.topic("orders")
    assert store.create_topic("orders", 2, exist_ok=True, retention_ms=604_800_000).partition_count == 2
    with pytest.raises(pylog.TopicAlreadyExistsError, match="pass exist_ok=True"):
        store.create_topic("orders")


def test_a_topic_that_exists_and_differs_is_refused_with_the_differences(store: pylog.Store) -> None:
    with pytest.raises(pylog.TopicAlreadyExistsError) as told:
        store.create_topic("orders", 4, exist_ok=True, segment_bytes=100)
    assert "segment_bytes is 1073741824, not 100, partition_count is 2, not 4" in str(told.value)
    with pytest.raises(pylog.InvalidArgumentError):
        store.create_topic("orders", exist_ok=True, segment_bytes=-1)
    assert store.create_topic("new", exist_ok=True).partition_count == 1


@pytest.mark.parametrize("given", [{"retention.ms": 5}, {"retention_ms": 5}, {"config": {"retention.ms": 5}}])
def test_options_have_kafkas_names_too(store: pylog.Store, given: dict[str, Any]) -> None:
    assert store.create_topic("new", **given).config.retention_ms == 5
    assert store.alter_topic("orders", **given).config.retention_ms == 5


def test_an_option_given_twice_is_refused(store: pylog.Store) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="retention_ms is given twice"):
        store.create_topic("new", retention_ms=5, config={"retention.ms": 6})
    assert "new" not in store.topics()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda store: store.create_topic("x", retenton_ms=5), "unknown topic option retenton_ms; did you mean retention_ms?"),
        (lambda store: store.create_topic("x", replication_factor=1), "leave it out: a store keeps one copy"),
        (lambda store: store.create_topic("x", num_partitions=2), "use partition_count"),
        (lambda store: store.consumer(grup_id="x"), "did you mean group_id?"),
        (lambda store: store.consumer(bootstrap_servers="x"), "a consumer belongs to an open store"),
        (
            lambda store: store.create_topic("x", retention_ms="7d"),
            "it is in milliseconds: 7 days are 604800000, -1 keeps everything",
        ),
        (lambda store: store.add_partitions("orders", 1), "cannot reduce 'orders' to 1 partition: it has 2, and"),
        (lambda store: store.log("orders").read(99), "offset 99 is out of range for orders-0, which holds offsets 0 to 1"),
        (
            lambda store: store.log("orders", 1).read(0),
            "offset 0 is out of range for orders-1, which is empty; its next offset is 0",
        ),
        (lambda store: store.log("orders").truncate(99), "offset 99 is beyond the end of orders-0, which is 2; for "),
        (lambda store: store.log("orders").delete_records(99), "orders-0, give an offset from 0 to 2"),
        (lambda store: store.consumer(bootstrap_servers="x"), "pylog.compat.kafka runs programs for kafka-python"),
        (lambda store: store.consumer(["orders"]), "give topics one by one, as in consumer('orders', 'audit')"),
        (lambda store: store.consumer(value_deserializer=object()), "give a function that takes bytes, such as bytes.decode"),
        (lambda store: store.producer(value_serializer=object()), "give a function that returns bytes, such as str.encode"),
        (seek_unassigned, "orders-9 is not assigned to this consumer"),
        (lambda store: store.group("no").describe(), "no member and no committed offset; Store.groups lists the groups"),
        (lambda store: open_with(store, retention_ms=5), "as in store.create_topic(name, retention_ms=...)"),
        (lambda store: open_with(store, mod="r"), "unknown store option mod; did you mean mode?"),
        (lambda store: store.producer(lingerms=5), "did you mean linger_ms?"),
        (lambda store: store.producer(acks=0), 'use durability="os" and ignore the future'),
        (lambda store: store.log("order"), "no topic 'order'; did you mean orders?"),
        (lambda store: store.log("zzz"), "no topic 'zzz'; it has orders"),
        (lambda store: store.log("orders", 5), "partition 5 of 'orders' does not exist; its partitions are 0 to 1"),
        (lambda store: store.offsets.commit("g", [("orders", 0)]), "must be a mapping, as in"),
        (lambda store: store.tick("now"), "is not an int from 0 to 9223372036854775807; it is in milliseconds since 1970"),
        (lambda store: store.verify(progress=5), "progress=5 cannot be called"),
    ],
)
def test_an_error_says_how_the_call_would_be_right(store: pylog.Store, call: Callable[[pylog.Store], object], told: str) -> None:
    with pytest.raises(pylog.PylogError) as raised:
        call(store)
    assert told in str(raised.value)


def test_times_may_be_datetimes_with_a_time_zone(store: pylog.Store) -> None:
    noon, log = datetime(2024, 1, 31, 13, 0, 0, 1999, tzinfo=timezone(timedelta(hours=1))), store.log("orders", 1)
    log.append(b"one", timestamp=noon)
    log.append_many([(None, b"two", [], noon)])
    with store.producer() as producer:
        assert producer.send("orders", b"three", partition=1, timestamp=noon).result(30).timestamp == 1_706_702_400_001
    assert [record.timestamp for record in log.records()] == [1_706_702_400_001] * 3
    assert log.offset_for_timestamp(noon) == log.offset_for_timestamp(1_706_702_400_001)
    with store.consumer() as consumer:
        found = consumer.offsets_for_times({pylog.TopicPartition("orders", 1): noon})
    assert [each.offset for each in found.values() if each] == [0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (datetime(2024, 1, 31), "has no time zone; give it one"),  # noqa: DTZ001 - that is what is refused
        (1_706_702_400.5, "give milliseconds since 1970: int(seconds * 1000)"),
        (date(2024, 1, 31), "milliseconds since 1970, or a datetime with a time zone"),
        ("noon", "milliseconds since 1970, or a datetime with a time zone"),
        (True, "milliseconds since 1970, or a datetime with a time zone"),
    ],
    ids=str,
)
def test_another_time_is_refused_with_the_right_form(store: pylog.Store, given: Any, told: str) -> None:
    log = store.log("orders", 1)
    with store.producer() as producer:
        for call in (
            lambda: log.append(b"x", timestamp=given),
            lambda: log.append_many([(None, b"x", [], given)]),
            lambda: log.offset_for_timestamp(given),
            lambda: producer.send("orders", b"x", timestamp=given),
        ):
            with pytest.raises(pylog.InvalidArgumentError) as raised:
                call()
            assert told in str(raised.value)
    assert log.end_offset == 0


def test_the_import_on_windows_says_where_pylog_runs() -> None:
    program = "import sys; sys.platform = 'win32'; import pylog"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: pylog runs on Linux and macOS; on Windows use WSL 2")


@pytest.mark.parametrize("others", [["tmux-0/"], ["notes.txt"], ["photos-2024/", "notes.txt", "photos-2024/beach.jpg"]], ids=str)
def test_a_directory_with_other_files_gets_no_locks_and_no_topics(tmp_path: Path, others: list[str]) -> None:
    for name in others:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(pylog.NotALogDirectoryError, match=r"neither empty nor a log directory.*create=True"):
        pylog.open(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    with pylog.open(tmp_path, create=True) as store:
        store.create_topic("orders")
    with pylog.open(tmp_path) as store:
        assert "orders" in store.topics()


@pytest.mark.parametrize("others", [[], ["lost+found/"], [".gitkeep"]], ids=str)
def test_a_directory_with_no_files_but_the_systems_is_a_new_store(tmp_path: Path, others: list[str]) -> None:
    for name in others:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    with pylog.open(tmp_path) as store:
        assert store.create_topic("orders").partition_count == 1


def test_a_catalog_of_a_newer_pylog_is_refused_with_the_advice_to_upgrade(store: pylog.Store) -> None:
    catalog = Path(store.path) / "pylog.json"
    catalog.write_text(catalog.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(pylog.UnsupportedFormatError, match=r"pylog\.json has version 9; .* version 1; upgrade pylog to read it"):
        store.topics()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "records are deleted after 7 days"),
        ({"retention_ms": 90_000, "retention_bytes": 10}, "records are deleted after 90 seconds and beyond 10 bytes a partition"),
        ({"retention_ms": -1}, "all records are kept"),
        ({"cleanup_policy": "compact"}, "compaction keeps the last record of each key"),
    ],
)
def test_the_log_line_of_a_new_topic_says_which_records_will_be_deleted(
    store: pylog.Store, caplog: pytest.LogCaptureFixture, options: dict[str, Any], told: str
) -> None:
    with caplog.at_level("INFO", "pylog.topics"):
        store.create_topic("new", **options)
    assert told in caplog.text


@pytest.mark.parametrize("name", ["os", "sync", "interval:50"])
def test_a_level_may_be_given_by_its_name(tmp_path: Path, name: str) -> None:
    with pylog.open(tmp_path, durability=name) as store:  # type: ignore[arg-type]
        store.create_topic("orders")
        done = store.log("orders").append_batch([b"paid"], durability=name)  # type: ignore[arg-type]
        assert done.durability == pylog.Durability.of(name)
        with store.producer(durability=name) as producer:
            assert producer.send("orders", b"paid").result(30).durability == pylog.Durability.of(name)
        with pytest.raises(pylog.InvalidArgumentError, match="'sync', 'os' or 'interval:MS'"):
            store.log("orders").append(b"paid", durability="disk")  # type: ignore[arg-type]


CALLS: dict[str, Callable[[pylog.Store, Any], object]] = {
    "append": lambda store, given: store.log("orders").append(given),
    "append_many": lambda store, given: store.log("orders").append_many(given),
    "append_arrow": lambda store, given: store.log("orders").append_arrow(given),
    "read": lambda store, given: store.log("orders").read(given),
    "records": lambda store, given: list(store.log("orders").records(given)),
    "scan": lambda store, given: list(store.log("orders").scan(given)),
    "scan, columns": lambda store, given: list(store.log("orders").scan(columns=given)),
    "scan, max_rows": lambda store, given: list(store.log("orders").scan(max_rows=given)),
    "follow": lambda store, given: list(store.log("orders").follow(given, timeout_ms=0)),
    "wait_for": lambda store, given: store.log("orders").wait_for(given, timeout_ms=0),
    "wait_for, timeout_ms": lambda store, given: store.log("orders").wait_for(0, timeout_ms=given),
    "offset_for_timestamp": lambda store, given: store.log("orders").offset_for_timestamp(given),
    "size_between": lambda store, given: store.log("orders").size_between(given, given),
    "split_offsets": lambda store, given: store.log("orders").split_offsets(given, given, given),
    "truncate": lambda store, given: store.log("orders").truncate(given),
    "delete_records": lambda store, given: store.log("orders").delete_records(given),
    "create_topic": lambda store, given: store.create_topic(given),
    "create_topic, count": lambda store, given: store.create_topic("new", given),
    "create_topic, config": lambda store, given: store.create_topic("new", config=given),
    "alter_topic": lambda store, given: store.alter_topic("orders", retention_ms=given),
    "delete_topic": lambda store, given: store.delete_topic(given),
    "compact": lambda store, given: store.compact(given),
    "log": lambda store, given: store.log(given),
    "log, partition": lambda store, given: store.log("orders", given),
    "group": lambda store, given: store.group(given),
    "consumer": lambda store, given: store.consumer(given),
    "commit": lambda store, given: store.offsets.commit(given, {}),
    "commit, offsets": lambda store, given: store.offsets.commit("g", given),
    "fetch": lambda store, given: store.offsets.fetch(given),
    "tick": lambda store, given: store.tick(given),
    "verify": lambda store, given: store.verify(given * 10**9 if isinstance(given, int | float) else given),
    "verify, progress": lambda store, given: store.verify(progress=given),
    "open": lambda store, given: pylog.open(given, mode="r"),
    "read_table": lambda store, given: pylog.read_table(store.path, given),
    "Store.read_table": lambda store, given: store.read_table(given),
    "snapshot": lambda store, given: store.snapshot(given),
    "snapshot, groups": lambda store, given: store.snapshot(groups=given),
    "scan, snapshot": lambda store, given: store.log("orders").scan(snapshot=given),
    "read_table, path": lambda store, given: pylog.read_table(given, "orders"),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", OTHERS, ids=lambda given: type(given).__name__)
def test_a_call_with_a_wrong_type_succeeds_or_raises_an_error_of_pylog(store: pylog.Store, name: str, given: Any) -> None:
    with contextlib.suppress(pylog.PylogError):
        CALLS[name](store, given)
