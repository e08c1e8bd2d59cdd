"""A consumer at damaged records: everything before them is handed out, they are not, and it is told how to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Consumer, TopicPartition
from pylog.clock import ManualClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

pytestmark = pytest.mark.damaged("that is what is tested")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    """Two partitions of ten batches with ten records each; in the first one the batch of offsets 30 to 39 is damaged."""
    with pylog.open(tmp_path) as made:
        made.create_topic("t", partition_count=2)
        for number in range(2):
            for first in range(0, 100, 10):
                made.log("t", number).append_many([b"%09d" % each for each in range(first, first + 10)])
    file = tmp_path / "t-0" / f"{0:020d}.log"
    data = file.read_bytes()
    file.write_bytes(data.replace(b"%09d" % 35, b"000000x35"))
    with pylog.open(tmp_path, mode="r") as opened:
        yield opened


@pytest.fixture
def assigned(store: pylog.Store) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers of partitions, which are closed afterwards."""
    with ExitStack() as last:

        def made(*places: TopicPartition) -> Consumer:
            consumer = last.enter_context(store.consumer(auto_offset_reset="earliest", max_poll_records=7))
            consumer.assign(places)
            return consumer

        yield made


def drained(consumer: Consumer) -> tuple[dict[TopicPartition, list[int]], list[pylog.CorruptionError]]:
    """What twenty polls give, and what they raise."""
    got: dict[TopicPartition, list[int]] = {}
    raised = []
    for _ in range(40):
        try:
            for place, records in consumer.poll().items():
                got.setdefault(place, []).extend(record.offset for record in records)
        except pylog.CorruptionError as error:
            raised.append(error)
    return got, raised


def test_records_before_damage_are_returned_and_each_poll_raises_until_a_seek(assigned: Callable[..., Consumer]) -> None:
    consumer = assigned(T0)
    got, raised = drained(consumer)
    assert got == {T0: list(range(30))}
    assert len(raised) > 30
    error = raised[-1]
    assert (error.partition, error.offset, error.next_offset, consumer.position(T0)) == (T0, 30, 40, 30)
    assert error.next_offset is not None
    consumer.seek(T0, error.next_offset)
    assert drained(consumer) == ({T0: list(range(40, 100))}, [])


def test_other_partitions_go_on_meanwhile(assigned: Callable[..., Consumer]) -> None:
    got, raised = drained(assigned(T0, T1))
    assert got == {T0: list(range(30)), T1: list(range(100))}
    assert raised


def test_a_partition_whose_first_record_of_a_time_is_not_known_keeps_no_other_from_being_returned(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with pylog.open(tmp_path / "s", clock=clock) as made:
        made.create_topic("t", partition_count=2)
        for value in (b"000000001", b"000000002", b"000000003"):
            for number in range(2):
                made.log("t", number).append(value)
            clock.advance(60_000)
    file = tmp_path / "s" / "t-0" / f"{0:020d}.log"
    file.write_bytes(file.read_bytes().replace(b"000000002", b"00000000x"))
    with pylog.open(tmp_path / "s", mode="r", clock=clock) as store:
        with store.consumer("t", auto_offset_reset="by_duration:PT2M") as consumer:
            got, raised = drained(consumer)
        assert (got, {error.partition for error in raised}) == ({T1: [1, 2]}, {T0})


def test_an_iteration_raises_at_the_damage_and_goes_on_after_it(assigned: Callable[..., Consumer]) -> None:
    consumer = assigned(T0)
    seen: list[int] = []

    def read_on() -> None:
        seen.extend(record.offset for record in consumer)

    with pytest.raises(pylog.CorruptionError, match=r"t-0.*reading can continue at offset 40"):
        read_on()
    assert seen == list(range(30))
    consumer.seek(T0, 95)
    assert [next(consumer).offset for _ in range(5)] == list(range(95, 100))
    consumer.close()


def test_arrow_batches_end_at_the_damage_too(assigned: Callable[..., Consumer]) -> None:
    consumer = assigned(T0)
    assert consumer.poll_arrow()[T0].column("offset").to_pylist() == list(range(30))
    with pytest.raises(pylog.CorruptionError) as caught:
        consumer.poll_arrow()
    assert caught.value.partition == T0


def test_damaged_offsets_of_groups_are_told_and_never_taken_for_none(tmp_path: Path) -> None:
    few = pylog.OffsetsConfig(topic_num_partitions=1)
    with pylog.open(tmp_path / "s", offsets=few) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 10)
        store.offsets.commit("group", {T0: 5})
        store.offsets.commit("group", {T0: 6})
    file = tmp_path / "s" / "__consumer_offsets-0" / f"{0:020d}.log"
    file.write_bytes(file.read_bytes().replace(b"group", b"grupp", 1))
    with pylog.open(tmp_path / "s", mode="r", offsets=few) as store:
        consumer: Any = store.consumer(group_id="group", auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.assign([T0])
        for ask in (consumer.poll, lambda: consumer.position(T0), lambda: consumer.committed(T0)):
            with pytest.raises(pylog.CorruptionError):
                ask()
