"""A reader that has a log open learns of each transaction that another process begins, and ends, in it later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import pylog
from pylog import Durability, Log, Store

Mode = Literal["r", "rw"]
LOOKS: dict[str, Callable[[Log], object]] = {  # which do not ask for open transactions
    "end_offset": lambda log: log.end_offset,
    "records": lambda log: list(log.records()),
    "none": lambda log: None,
}


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=300)
        yield store


def committed(log: Log) -> list[bytes | None]:
    return [record.value for record in log.records(isolation_level="read_committed")]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.pair("aborted transactions", "second process")
def test_an_open_transaction_in_a_segment_that_had_only_plain_records_is_not_read_as_committed(
    writer: Store, mode: Mode, look: str
) -> None:
    writer.log("t").append(b"plain")
    with pylog.open(writer.path, mode=mode) as store:
        log = store.log("t")
        assert log.end_offset == 1
        transaction = writer.transaction("id")
        transaction.append("t", b"open", partition=0)
        transaction.flush()
        LOOKS[look](log)
        assert (log.stable_offset, committed(log)) == (1, [b"plain"])
        assert [each.start_offset for each in store.transactions.find_open()] == [1]
        assert list(store.snapshot().cuts["t", 0].left_out.values()) == [1]  # type: ignore[index]
        transaction.commit()
        assert (log.stable_offset, committed(log)) == (3, [b"plain", b"open"])


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.pair("aborted transactions", "roll", "second process")
def test_a_transaction_whose_marker_comes_to_a_segment_of_plain_records_is_open_no_more(
    writer: Store, mode: Mode, commits: bool, look: str
) -> None:
    transaction = writer.transaction("id")
    transaction.append("t", b"first", partition=0)
    transaction.flush()
    while len(writer.log("t").segments) == 1:
        writer.log("t").append(b"plain")
    with pylog.open(writer.path, mode=mode) as store:
        log = store.log("t")
        before = log.end_offset
        transaction.commit() if commits else transaction.abort()
        LOOKS[look](log)
        assert log.stable_offset == before + 1
        expected = [b"first"] * commits + [b"plain"] * (before - 1)
        assert committed(log) == expected
        assert [record.value for record in log.records(snapshot=store.snapshot())] == expected
        assert not store.transactions.find_open()
