"""An interrupt (Ctrl-C, a signal handler that raises) may come at any step. Afterwards the consumer goes on where it was:
what a call did not hand out comes again, nothing comes twice, and closing waits for nobody. A handler may close it, too.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import ClosedError, Consumer, Durability, IllegalStateError, TopicPartition, limits
from pylog.consumer import consumer as consumer_module
from pylog.groups.member import GroupMember
from pylog.store import Store
from support.faults.interruptions import in_another_thread, interrupted_at, interrupted_at_step, steps

RECORDS = 40
T0 = TopicPartition("t", 0)
Found = list[dict[TopicPartition, Any]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Two partitions, which are read in many pieces."""
    monkeypatch.setattr(limits, "SCAN_ROWS", 8)
    monkeypatch.setattr(limits, "RECORD_CHUNK_ROWS", 3)  # of which objects are made
    with pylog.open(tmp_path, durability=Durability.OS) as made:
        made.create_topic("t", partition_count=2)
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


AT_STEP = partial(interrupted_at_step, path=str(Path(consumer_module.__file__).parent))
LATER = [(3, by_poll), (3, by_poll_arrow), (3, by_commits), (16, by_iteration)]  # the last one reads again then


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what is raised in finalizers
@pytest.mark.parametrize("interrupted", [interrupted_at, AT_STEP], ids=["at a call", "at a step of the consumer"])
@pytest.mark.parametrize(("turns", "step"), [(0, by_commits), *LATER])  # the first one joins the group, and commits what it reads
def test_wherever_an_interrupt_comes_each_record_is_returned_once_and_closing_does_not_wait(
    store: Store,
    step: Callable[[Consumer, Found], None],
    turns: int,
    interrupted: Callable[[int, Callable[[], object]], bool],
) -> None:
    others = set(threading.enumerate())
    for number in steps(10 if step is by_commits else 3):
        consumer = store.consumer(
            "t", group_id=f"g{number}", auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=0
        )
        found: Found = []
        for _ in range(turns):
            step(consumer, found)
        came = interrupted(number, partial(step, consumer, found))
        while not found or any(map(len, found[-1].values())):
            step(consumer, found)
        assert offsets(found) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}, number
        if step is by_commits:
            consumer.commit()  # behind all that were asked for, whichever an interrupt kept from being known
            assert [store.offsets.position(f"g{number}", ("t", each)) for each in range(2)] == [RECORDS, RECORDS]
            assert not consumer._commits._worker.has_result  # nothing is kept of what is done
        in_another_thread(lambda: consumer.close() is None)  # noqa: B023
        assert not [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("pylog")], number
        if not came:
            break
    assert number > 50


# ---- handlers that call the consumer -----------------------------------------------------------------------------------------


def handled_at(number: int, work: Callable[[], object], handler: Callable[[], object]) -> bool:
    """Does some work; a handler runs at that call of a consumer's, or its member's, function. Whether it came so far.

    The work may find the consumer closed.
    """
    calls = itertools.count(1)
    came = False

    def trace(frame: FrameType, event: str, _: object) -> None:
        nonlocal came
        if event == "call" and Path(frame.f_code.co_filename).parent.name in ("consumer", "groups") and next(calls) == number:
            came = True
            handler()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except ClosedError:
        assert came
    finally:
        sys.settrace(before)
    return came


@pytest.mark.slow
@pytest.mark.parametrize("step", [by_poll, by_commits])
def test_wherever_a_signals_handler_closes_the_consumer_it_leaves_and_commits_what_was_returned(
    store: Store, step: Callable[[Consumer, Found], None]
) -> None:
    for number in steps(6):
        group = f"g{number}"
        consumer = store.consumer("t", group_id=group, auto_offset_reset="earliest", consumer_timeout_ms=0)
        found: Found = []
        work = lambda: step(consumer, found)  # noqa: B023, E731
        came = in_another_thread(lambda: (handled_at(number, work, consumer.close),))[0]  # noqa: B023
        if not came:
            consumer.close()
            break
        with pytest.raises(ClosedError):
            consumer.poll()
        committed = [store.offsets.position(group, ("t", each)) or 0 for each in range(2)]
        assert committed == [len(each) for each in offsets(found).values()], number
        assert store.group(group).describe().members == () if group in store.groups() else not found
    assert number > 3


@pytest.mark.slow
def test_a_handler_may_close_the_consumer_twice_and_during_its_close(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = store.consumer("t", group_id="g", auto_offset_reset="earliest")
    consumer.poll(max_records=8)
    leave = GroupMember.leave

    def handled(member: GroupMember) -> None:
        consumer.close()
        consumer.close()
        leave(member)

    monkeypatch.setattr(GroupMember, "leave", handled)
    in_another_thread(lambda: consumer.close() is None)
    assert store.offsets.position("g", T0) == 8
    with pytest.raises(ClosedError):
        consumer.poll()


@pytest.mark.slow
def test_a_poll_or_commit_by_a_handler_during_a_call_is_refused_with_the_advice_to_set_a_flag(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = store.consumer("t", group_id="g", auto_offset_reset="earliest")
    poll = GroupMember.poll
    told: list[str] = []

    def handled(member: GroupMember) -> Any:
        for call in (consumer.poll, consumer.commit, consumer.unsubscribe):
            with pytest.raises(IllegalStateError, match="set a flag there") as refused:
                call()
            told.append(str(refused.value))
        return poll(member)

    monkeypatch.setattr(GroupMember, "poll", handled)
    assert in_another_thread(lambda: consumer.poll(max_records=8))
    assert told
    consumer.close()
    assert store.offsets.position("g", T0) == 8


def test_a_listener_that_has_committed_may_close_its_consumer_and_finds_it_closed(store: Store) -> None:
    class Leaves(pylog.ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            consumer.commit({T0: 5})
            consumer.close()
            with pytest.raises(ClosedError):
                consumer.commit()

    consumer = store.consumer(group_id="g")
    consumer.subscribe(["t"], listener=Leaves())
    assert consumer.poll() == {}
    assert store.offsets.position("g", T0) == 5
