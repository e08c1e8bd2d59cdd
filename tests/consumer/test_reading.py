"""What a consumer hands out: which records, from which position on, in whose turn."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pylog
from pylog import Consumer, Durability, TopicPartition, limits
from pylog.clock import ManualClock
from pylog.consumer.options import ConsumerOptions, ResetPolicy
from pylog.consumer.reading import COLUMNS, PartitionReader
from pylog.testing import MemoryFileSystem
from support.engines import assignment_of

NOW = 1_700_000_000_000
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> Iterator[pylog.Store]:
    """A topic of three partitions with ten records in each."""
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock, durability=Durability.OS) as opened:
        opened.create_topic("t", partition_count=3, segment_bytes=1000)
        for number in range(3):
            append(opened, number, range(10))
        yield opened


def append(store: pylog.Store, partition: int, numbers: range, topic: str = "t") -> None:
    store.log(topic, partition).append_many([(b"key", b"%d" % number, (), NOW + number) for number in numbers])


@pytest.fixture
def consumer(store: pylog.Store) -> Iterator[Consumer]:
    """One that reads all of the topic from its start."""
    with store.consumer("t", auto_offset_reset="earliest") as made:
        yield made


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand records are read at a time."""
    monkeypatch.setattr(limits, "SCAN_ROWS", 1_000)


def values(found: dict[TopicPartition, list[pylog.Record]]) -> dict[int, list[int]]:
    return {partition.partition: [int(record.value or b"") for record in records] for partition, records in found.items()}


def everything(consumer: Consumer) -> list[pylog.Record]:
    """What there is now."""
    records = []
    while found := consumer.poll():
        records += [record for each in found.values() for record in each]
    return records


# ---- poll --------------------------------------------------------------------------------------------------------------------


def test_poll_returns_each_record_once_in_the_order_of_its_partition(consumer: Consumer) -> None:
    assert values(consumer.poll()) == {number: list(range(10)) for number in range(3)}
    assert consumer.poll() == {}
    assert [consumer.position(partition) for partition in (T0, T1, T2)] == [10, 10, 10]


def test_a_record_has_all_its_fields(store: pylog.Store) -> None:
    store.create_topic("one")
    store.log("one").append(b"v", b"k", [("h", b"x")], 5)
    store.log("one").append(None, None, timestamp=6)
    with store.consumer("one", auto_offset_reset="earliest") as consumer:
        first, second = consumer.poll()["one", 0]
    assert first == pylog.Record("one", 0, 0, 5, b"k", b"v", (("h", b"x"),))
    assert second == pylog.Record("one", 0, 1, 6, None, None, ())


def test_a_poll_returns_max_records_at_most_and_partitions_take_turns(consumer: Consumer) -> None:
    served = [values(consumer.poll(max_records=4)) for _ in range(6)]
    assert served[:4] == [{0: [0, 1, 2, 3]}, {1: [0, 1, 2, 3]}, {2: [0, 1, 2, 3]}, {0: [4, 5, 6, 7]}]
    assert all(sum(map(len, each.values())) == 4 for each in served)


def test_max_poll_records_bounds_every_poll(store: pylog.Store) -> None:
    with store.consumer("t", auto_offset_reset="earliest", max_poll_records=7) as consumer:
        assert values(consumer.poll()) == {0: list(range(7))}
        assert values(consumer.poll(max_records=25)) == {1: list(range(10)), 2: list(range(10)), 0: [7, 8, 9]}


def test_a_poll_of_very_many_records_is_one_list(store: pylog.Store) -> None:
    store.create_topic("large")
    append(store, 0, range(6_000), "large")
    with store.consumer("large", auto_offset_reset="earliest") as consumer:
        assert values(consumer.poll(max_records=5_000)) == {0: list(range(5_000))}
        assert values(consumer.poll(max_records=5_000)) == {0: list(range(5_000, 6_000))}


def test_a_poll_waits_for_records_of_another_writer_as_long_as_it_may(consumer: Consumer, store: pylog.Store, clock: Any) -> None:
    everything(consumer)
    before = clock.now_ms()
    assert consumer.poll(timeout_ms=250) == {}
    assert 250 <= clock.now_ms() - before < 260
    after(clock, 20, lambda: append(store, 1, range(10, 12)))
    assert values(consumer.poll(timeout_ms=1_000)) == {1: [10, 11]}
    assert clock.now_ms() - before < 320  # twenty naps of a hundredth of the silence


@pytest.mark.slow
def test_polls_check_files_less_often_after_many_empty_ones_and_often_again_after_records(
    consumer: Consumer, store: pylog.Store, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(consumer)
    naps: list[float] = []
    sleep = clock.sleep
    monkeypatch.setattr(clock, "sleep", lambda seconds: (naps.append(seconds), sleep(seconds)))
    for _ in range(110):
        assert consumer.poll(timeout_ms=1_000) == {}
    assert max(naps[:150]) <= 0.001
    assert naps[-2] == 0.025
    append(store, 1, range(10, 12))
    assert values(consumer.poll(timeout_ms=1_000)) == {1: [10, 11]}
    naps.clear()
    assert consumer.poll(timeout_ms=100) == {}
    assert max(naps) <= 0.001


def after(clock: ManualClock, naps: int, action: Callable[[], None]) -> None:
    """Does something while somebody waits: at the given nap."""
    sleep, count = clock.sleep, iter(range(naps + 1))

    def sleeping(seconds: float) -> None:
        sleep(seconds)
        if next(count, None) == naps:
            action()

    clock.sleep = sleeping  # type: ignore[method-assign]


def test_records_that_come_meanwhile_are_found_by_the_next_poll(consumer: Consumer, store: pylog.Store) -> None:
    everything(consumer)
    for number in range(10, 50):
        append(store, number % 3, range(number, number + 1))
        assert values(consumer.poll()) == {number % 3: [number]}


def test_arrow_batches_hold_the_same_records(store: pylog.Store, consumer: Consumer) -> None:
    with store.consumer("t", auto_offset_reset="earliest") as other:
        frames = other.poll_arrow()
        assert frames.keys() == {T0, T1, T2}
        expected = {partition: [record.value for record in records] for partition, records in consumer.poll().items()}
        assert {partition: frame.column("value").to_pylist() for partition, frame in frames.items()} == expected
        assert frames[T0].schema.names == ["offset", "timestamp", "key", "value", "headers"]
        assert other.poll_arrow() == {}


def test_arrow_and_records_can_be_polled_in_turn(store: pylog.Store) -> None:
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.assign([T0])
    assert values(consumer.poll(max_records=3)) == {0: [0, 1, 2]}
    assert consumer.poll_arrow(max_records=2)[T0].column("value").to_pylist() == [b"3", b"4"]
    assert values(consumer.poll(max_records=2)) == {0: [5, 6]}
    assert consumer.poll_arrow()[T0].column("offset").to_pylist() == [7, 8, 9]
    consumer.close()


# ---- iteration ---------------------------------------------------------------------------------------------------------------


def test_iteration_ends_when_nothing_has_come_for_the_consumers_timeout_and_goes_on_later(store: pylog.Store) -> None:
    with store.consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=10) as consumer:
        assert len(list(consumer)) == 30
        append(store, 2, range(10, 13))
        assert [record.value for record in consumer] == [b"10", b"11", b"12"]


def test_the_position_moves_with_each_record_of_an_iteration(store: pylog.Store) -> None:
    with store.consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        for record in consumer:
            assert consumer.position(TopicPartition("t", record.partition)) == record.offset + 1


def test_an_iteration_that_was_left_goes_on_where_it_was(consumer: Consumer) -> None:
    assert [next(consumer).offset for _ in range(4)] == [0, 1, 2, 3]
    for record in consumer:
        assert record.offset == 4
        break
    assert [consumer.position(partition) for partition in (T0, T1, T2)] == [5, 0, 0]
    assert sorted(values(consumer.poll()).items()) == [(0, list(range(5, 10))), (1, list(range(10))), (2, list(range(10)))]


def test_records_that_a_poll_returned_are_not_returned_again_by_an_iteration_that_had_them_in_hand(
    consumer: Consumer, store: pylog.Store
) -> None:
    first = next(consumer)  # with it came records of the other partitions
    rest = [record for records in consumer.poll().values() for record in records]
    assert len(rest) == 29
    append(store, 1, range(10, 11))
    again = next(consumer)
    assert sorted((record.partition, record.offset) for record in [first, *rest, again]) == sorted(
        [(partition, offset) for partition in range(3) for offset in range(10)] + [(1, 10)]
    )


def test_a_seek_beyond_the_last_fetched_record_is_kept(store: pylog.Store) -> None:
    with store.consumer(auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.assign([T0])
        assert [record.offset for record in consumer] == list(range(10))
        append(store, 0, range(10, 11))
        assert next(consumer).offset == 10  # the only one that came
        consumer.seek(T0, 8)
        assert [record.offset for record in consumer] == [8, 9, 10]


def test_iteration_heeds_what_the_loop_does_to_the_consumer(store: pylog.Store) -> None:
    with store.consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        seen: list[tuple[int, int]] = []
        for record in consumer:
            seen.append((record.partition, record.offset))
            if seen == [(0, 0), (0, 1)]:
                consumer.pause(T0)
            if seen[-1] == (1, 2):
                consumer.seek(T1, 8)
        assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), *((2, offset) for offset in range(10)), (1, 8), (1, 9)]
        consumer.resume(T0)
        assert [record.offset for record in consumer] == list(range(2, 10))


# ---- positions ---------------------------------------------------------------------------------------------------------------


def test_seek_goes_back_and_forth_whatever_was_read_ahead(store: pylog.Store) -> None:
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.assign([T0, T1, T2])
    consumer.pause(T1, T2)
    assert values(consumer.poll(max_records=2)) == {0: [0, 1]}
    consumer.seek(T0, 7)
    assert consumer.position(T0) == 7
    assert values(consumer.poll()) == {0: [7, 8, 9]}
    consumer.seek(T0, 0)
    assert values(consumer.poll(max_records=1)) == {0: [0]}
    consumer.seek_to_end(T0)
    assert consumer.poll() == {}
    consumer.seek_to_beginning()
    assert [consumer.position(partition) for partition in (T0, T1, T2)] == [0, 0, 0]
    consumer.close()


def test_records_after_a_seek_to_the_end_are_returned(consumer: Consumer, store: pylog.Store) -> None:
    consumer.poll()
    consumer.seek_to_end()
    append(store, 1, range(10, 11))
    assert values(consumer.poll()) == {1: [10]}


def test_paused_partitions_stay_assigned_and_return_nothing(consumer: Consumer) -> None:
    consumer.poll(max_records=1)
    consumer.pause(T0, T2)
    assert consumer.paused() == {T0, T2}
    assert values(consumer.poll()) == {1: list(range(10))}
    assert consumer.assignment() == {T0, T1, T2}
    consumer.resume(T2)
    assert values(consumer.poll()) == {2: list(range(10))}
    consumer.resume(T0)
    assert values(consumer.poll()) == {0: list(range(1, 10))}
    assert consumer.paused() == set()


@pytest.mark.parametrize(
    ("policy", "first"),
    [("earliest", 0), ("latest", 10), ("by_duration:PT0.996S", 4), ("by_duration:PT0S", 10), ("by_duration:P1D", 0)],
)
def test_without_an_offset_reading_begins_where_the_policy_says(
    store: pylog.Store, clock: ManualClock, policy: str, first: int
) -> None:
    clock.advance(1_000)
    with store.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([T0])
        assert consumer.position(T0) == first
        append(store, 0, range(10, 11))
        assert values(consumer.poll()) == {0: list(range(first, 11))}


def test_without_an_offset_and_a_reset_policy_a_poll_raises_until_a_seek(store: pylog.Store) -> None:
    with store.consumer(group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        for ask in (consumer.poll, lambda: consumer.position(T0)):
            with pytest.raises(pylog.NoOffsetForPartitionError, match="t-0") as caught:
                ask()
            assert caught.value.partition == T0
        consumer.seek(T0, 3)
        assert values(consumer.poll(max_records=1)) == {0: [3]}


def test_a_partition_without_an_offset_and_a_policy_keeps_no_other_from_being_returned(store: pylog.Store) -> None:
    def polled() -> object:
        try:
            return values(consumer.poll())
        except pylog.NoOffsetForPartitionError as error:
            return error.partition

    store.offsets.commit("g", {T1: 0, T2: 5})
    with store.consumer("t", group_id="g", auto_offset_reset="none", max_poll_records=5) as consumer:
        turns = [polled() for _ in range(7)]
        assert turns == [T0, {1: [0, 1, 2, 3, 4]}, {2: [5, 6, 7, 8, 9]}, T0, {1: [5, 6, 7, 8, 9]}, T0, T0]
        consumer.seek(T0, 9)
        assert polled() == {0: [9]}


@pytest.mark.parametrize(("policy", "values_after"), [("earliest", list(range(4, 10))), ("latest", [])])
def test_a_position_below_the_logs_start_is_reset_by_the_policy(store: pylog.Store, policy: str, values_after: list[int]) -> None:
    with store.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 2)
        store.log("t", 0).delete_records(before=4)
        assert values(consumer.poll()) == ({0: values_after} if values_after else {})
        assert consumer.position(T0) == 10


def test_a_position_that_is_not_in_the_log_is_an_error_without_a_policy(store: pylog.Store) -> None:
    with store.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0, T1])
        consumer.seek(T0, 11)
        consumer.seek(T1, 0)
        results: list[Any] = []
        for _ in range(3):
            try:
                results.append(values(consumer.poll(max_records=10)))
            except pylog.OffsetOutOfRangeError as error:
                results.append((error.partition, error.offset))
        assert results == [(T0, 11), {1: list(range(10))}, (T0, 11)]
        consumer.seek(T0, 10)
        assert consumer.poll() == {}


def test_retention_that_overtakes_a_reader_in_the_middle_is_a_reset_too(store: pylog.Store) -> None:
    append(store, 0, range(10, 200))
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert values(consumer.poll(max_records=2)) == {0: [0, 1]}
        store.log("t", 0).delete_records(before=190)
        consumer.seek(T0, 50)
        assert values(consumer.poll()) == {0: list(range(190, 200))}


def test_a_log_that_was_truncated_below_what_was_returned_is_not_read_on(store: pylog.Store) -> None:
    with store.consumer(auto_offset_reset="earliest") as consumer, store.consumer(auto_offset_reset="none") as strict:
        for each in (consumer, strict):
            each.assign([T0])
            each.seek(T0, 0)
            assert values(each.poll()) == {0: list(range(10))}
        store.log("t", 0).truncate(8)
        append(store, 0, range(80, 90))
        assert values(consumer.poll()) == {0: list(range(80, 90))}  # the batch of 0 to 9 is deleted as a whole
        with pytest.raises(pylog.OffsetOutOfRangeError, match="truncated"):
            strict.poll()


def test_a_log_that_was_truncated_above_is_read_on(store: pylog.Store) -> None:
    with store.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        consumer.poll()
        append(store, 0, range(10, 20))
        store.log("t", 0).truncate(10)
        append(store, 0, range(30, 33))
        assert values(consumer.poll()) == {0: [30, 31, 32]}


@pytest.mark.usefixtures("small_pieces")
def test_a_truncation_beyond_the_records_being_read_does_not_change_them(store: pylog.Store) -> None:
    append(store, 0, range(10, 6_000))
    with store.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        seen = values(consumer.poll(max_records=100))[0]
        assert assignment_of(consumer).partitions[T0].buffer.reader.offset < 5_000  # the rest is still to be read
        store.log("t", 0).append(b"6000")
        store.log("t", 0).truncate(6_000)
        append(store, 0, range(7_000, 7_010))
        seen += [int(record.value or b"") for record in everything(consumer)]
        assert seen == [*range(6_000), *range(7_000, 7_010)]


@pytest.mark.slow
def test_a_file_that_is_gone_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=Durability.OS) as made:
        made.create_topic("t", segment_bytes=1000)
        for number in range(100):
            append(made, 0, range(number, number + 1))
    with pylog.open(tmp_path, mode="r") as store, store.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 50)
        names = sorted((tmp_path / "t-0").glob("*.log"))
        assert len(consumer._core.log(T0).known.segments) == len(names) > 3
        for name in names[1:-1]:
            name.unlink()
        with pytest.raises((pylog.OffsetOutOfRangeError, pylog.CorruptionError)):
            [consumer.poll() for _ in range(5)]


# ---- looking things up -------------------------------------------------------------------------------------------------------


def test_end_offsets_and_offsets_for_times_are_found_for_any_partition(store: pylog.Store) -> None:
    store.log("t", 1).delete_records(before=3)
    with store.consumer() as consumer:
        assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 3}
        assert consumer.end_offsets([T0, ("t", 2)]) == {T0: 10, T2: 10}
        found = consumer.offsets_for_times({T0: NOW + 4, T1: NOW + 100})
        assert found == {T0: (4, NOW + 4), T1: None}
        assert consumer.topics() == {"t"}
        assert consumer.partitions_for_topic("t") == {0, 1, 2}
        assert consumer.partitions_for_topic("u") is None


def test_kafkas_internal_topics_are_listed_on_request(store: pylog.Store) -> None:
    store.offsets.commit("g", {T0: 1})
    with store.consumer() as consumer, store.consumer(exclude_internal_topics=False) as other:
        assert (consumer.topics(), other.topics()) == ({"t"}, {"t", "__consumer_offsets"})


# ---- deserializers -----------------------------------------------------------------------------------------------------------


def test_deserializers_make_objects_and_null_stays_none(store: pylog.Store) -> None:
    store.create_topic("d")
    store.log("d").append_many([(b"k", b"1"), (None, b"2"), (b"k", None)])
    options: dict[str, Any] = {"key_deserializer": bytes.decode, "value_deserializer": int}
    with store.consumer("d", auto_offset_reset="earliest", **options) as consumer:
        records = consumer.poll()["d", 0]
        assert [(record.key, record.value) for record in records] == [("k", 1), (None, 2), ("k", None)]


def test_a_deserializer_that_raises_leaves_the_position_at_its_record(store: pylog.Store) -> None:
    store.log("t", 0).append_many([b"ten", b"11"])
    with store.consumer("t", auto_offset_reset="earliest", value_deserializer=int) as consumer:
        handed = [record.value for record in consumer.poll()[T0]]
        assert handed == list(range(10))
        for _ in range(2):
            with pytest.raises(pylog.RecordDeserializationError, match="offset 10 of t-0") as caught:
                everything(consumer)
            assert (caught.value.partition, caught.value.offset) == (T0, 10)
            assert isinstance(caught.value.__cause__, ValueError)
            assert consumer.position(T0) == 10
        consumer.seek(T0, 11)
        assert everything(consumer)[-1].value == 11


def test_other_partitions_are_returned_while_one_cannot_be_read(store: pylog.Store) -> None:
    store.log("t", 1).append(b"ten")
    with store.consumer("t", auto_offset_reset="earliest", value_deserializer=int, max_poll_records=5) as consumer:
        seen: list[tuple[int, int]] = []
        raised = 0
        for _ in range(20):
            try:
                seen += [(record.partition, record.offset) for each in consumer.poll().values() for record in each]
            except pylog.RecordDeserializationError:
                raised += 1
        assert sorted(seen) == [(number, offset) for number in range(3) for offset in range(10)]
        assert raised > 5


# ---- reading ahead -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_records_read_and_not_returned_are_bounded_however_many_partitions_there_are(
    store: pylog.Store, small_pieces: None
) -> None:
    store.create_topic("wide", partition_count=8, segment_bytes=1000)
    for number in range(8):
        append(store, number, range(6_000), "wide")
    bounds: dict[str, Any] = {"fetch_max_bytes": 100_000, "max_partition_fetch_bytes": 50_000}
    with store.consumer("wide", auto_offset_reset="earliest", **bounds) as consumer:
        sizes, served = [], []
        while found := consumer.poll(max_records=500):
            served += found
            consumer._core.fetcher._settle()
            held = [state.buffer for state in assignment_of(consumer).partitions.values() if state.buffer is not None]
            sizes.append(sum(buffer.size for buffer in held))
        largest = max(frame.nbytes for frame in store.log("wide").scan(columns=COLUMNS, max_rows=1_000))
        assert 0 < max(sizes) < 100_000 + 2 * largest < 8 * largest
        assert {partition.partition for partition in served[: 2 * len(served) // 3]} == set(range(8))  # each has had its turn


@pytest.mark.usefixtures("small_pieces")
def test_a_read_that_fails_ahead_is_tried_again_when_it_is_wanted(
    store: pylog.Store, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, 0, range(10, 6_000))
    read, failures = PartitionReader.read, []

    def reading(reader: PartitionReader) -> Any:
        if threading.current_thread() is not threading.main_thread():
            failures.append(reader.offset)
            raise pylog.StorageFailedError("not now")
        return read(reader)

    monkeypatch.setattr(PartitionReader, "read", reading)
    with store.consumer("t", auto_offset_reset="earliest") as consumer:
        assert len(everything(consumer)) == 6_020
    assert failures


# ---- options -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_offset_reset": "oldest"},
        {"auto_offset_reset": "by_duration:-PT1H"},
        {"auto_offset_reset": "by_duration:P"},
        {"auto_offset_reset": "by_duration:PT"},
        {"auto_offset_reset": "PT1H"},
        {"auto_offset_reset": None},
        {"isolation_level": "serializable"},
        {"max_poll_records": 0},
        {"max_poll_records": True},
        {"fetch_max_bytes": -1},
        {"auto_commit_interval_ms": -1},
        {"enable_auto_commit": True},
        {"enable_auto_commit": "yes", "group_id": "g"},
        {"consumer_timeout_ms": -1},
        {"consumer_timeout_ms": math.nan},
        {"value_deserializer": "json"},
        {"heartbeat_interval_ms": 0},
        {"partition_assignment_strategy": None},
        {"partition_assignment_strategy": 5},
        {"partition_assignment_strategy": [["range"]]},
        {"bootstrap_servers": "localhost:9092"},
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused(store: pylog.Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match=next(iter(wrong))):
        store.consumer("t", **wrong)


def test_kafka_pythons_words_for_options_mean_the_same() -> None:
    assert ConsumerOptions.of({"group_id": "g", "isolation_level": "read_committed"}) == ConsumerOptions(
        group_id="g", isolation_level="read_committed"
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT24H", 86_400_000), ("P2DT3H4M5.678S", 183_845_678), ("pt0.001s", 1), ("P1D", 86_400_000), ("PT90M", 5_400_000)],
)
def test_durations_are_read_as_java_reads_them(text: str, ms: int) -> None:
    assert ResetPolicy.of(f"by_duration:{text}") == ResetPolicy("by_duration", ms)


def test_ints_of_numpy_are_ints(store: pylog.Store) -> None:
    options = {"max_poll_records": np.int32(4), "session_timeout_ms": np.int64(9_000), "consumer_timeout_ms": np.int64(0)}
    with store.consumer(group_id="g", auto_offset_reset="earliest", **options) as consumer:
        place = ("t", np.int64(0))
        consumer.assign([place])  # type: ignore[list-item]
        assert values(consumer.poll(np.int64(0))) == {0: [0, 1, 2, 3]}
        assert values(consumer.poll(max_records=np.int64(2))) == {0: [4, 5]}  # type: ignore[arg-type]
        consumer.seek(place, np.int64(1))  # type: ignore[arg-type]
        consumer.commit({place: np.int64(3)})  # type: ignore[dict-item]
        found = store.offsets.fetch("g", [place])  # type: ignore[list-item]
        assert [(each, type(each.partition), offset.offset) for each, offset in found.items()] == [(T0, int, 3)]
        store.offsets.commit("other", {T0: pylog.OffsetAndMetadata(np.int64(3), "", np.int32(0))})  # type: ignore[arg-type]
    plan = store.group("g").reset(5, scope=[place])  # type: ignore[list-item]
    assert plan.offsets == {T0: 5}


@pytest.mark.parametrize("topic", [["t"], b"t", None])
def test_a_value_that_is_no_topics_name_has_no_partitions(consumer: Consumer, topic: Any) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="is not a topic name"):
        consumer.partitions_for_topic(topic)


def test_a_timeout_longer_than_any_clock_runs_is_indefinite() -> None:
    assert ConsumerOptions(consumer_timeout_ms=10**400).consumer_timeout_ms == math.inf
