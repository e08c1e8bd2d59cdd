"""An interrupt (Ctrl-C, a signal handler that raises) may come wherever a function begins. Afterwards the consumer goes on where
it was: what a call did not hand out comes again, nothing comes twice, and closing waits for nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from interruptions import in_another_thread, interrupted_at
from pylog import Consumer, Durability, TopicPartition, limits
from pylog.store import Store

RECORDS = 60
T0 = TopicPartition("t", 0)
Found = list[dict[TopicPartition, Any]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Two partitions, which are read in many pieces."""
    monkeypatch.setattr(limits, "SCAN_ROWS", 8)
    monkeypatch.setattr(limits, "RECORD_CHUNK_ROWS", 3)  # of which objects are made
    with pylog.open(tmp_path, durability=Durability.OS) as made:
        made.create_topic("t", partitions=2)
        for number in range(2):
            made.log("t", number).append_many([b"x"] * RECORDS)
        yield made


def by_poll(consumer: Consumer, found: Found) -> None:
    found.append(consumer.poll(max_records=8))


def by_poll_arrow(consumer: Consumer, found: Found) -> None:
    found.append(consumer.poll_arrow(max_records=5))


def by_iteration(consumer: Consumer, found: Found) -> None:
    found.append({T0: [*islice(consumer, 1)]})


def by_commits(consumer: Consumer, found: Found) -> None:
    consumer.commit_async()
    by_poll(consumer, found)
    consumer.commit()


STEPS = [by_poll, by_poll_arrow, by_iteration, by_commits]


def offsets(found: Found) -> dict[int, list[int]]:
    """What was handed out, by partition."""
    seen: dict[int, list[int]] = {0: [], 1: []}
    for place, given in (item for each in found for item in each.items()):
        if isinstance(given, pa.RecordBatch):
            seen[place.partition] += given.column("offset").to_pylist()
        else:
            for record in given:
                seen[record.partition].append(record.offset)
    return seen


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what is raised in finalizers
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("turns", [0, 3])
def test_wherever_an_interrupt_comes_each_record_is_handed_out_once_and_closing_waits_for_nobody(
    store: Store, step: Callable[[Consumer, Found], None], turns: int
) -> None:
    for number in itertools.count(1):
        consumer = store.consumer(
            "t", group=f"g{number}", auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=0
        )
        found: Found = []
        for _ in range(turns):
            step(consumer, found)
        came = interrupted_at(number, partial(step, consumer, found))
        while not found or any(map(len, found[-1].values())):
            step(consumer, found)
        assert offsets(found) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}, number
        if step is by_commits:
            consumer.commit()  # behind all that were asked for, whichever an interrupt kept from being known
            assert [store.offsets.position(f"g{number}", ("t", each)) for each in range(2)] == [RECORDS, RECORDS]
            assert not consumer._commits._worker.has_result  # nothing is kept of what is done
        in_another_thread(lambda: consumer.close() is None)  # noqa: B023
        if not came:
            break
    assert number > 3  # an iteration's step takes four calls
