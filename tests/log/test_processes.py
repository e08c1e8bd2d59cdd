"""Several processes write one partition in turn: no record is lost, and all see each one at once, if one dies or stalls.

Open-file-description locks belong to a descriptor, so two stores of one process are two writers as those of two processes are;
a `Neighbour` is another process where one must die, stand still, or really run at the same time.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import Durability
from pylog.store import Store, manager_of
from pylog.topics import changes
from support.faults.neighbours import Neighbour, values
from support.log import processes
from support.log.durable_points import slot_of
from support.log.processes import SMALL

neighbour = pytest.fixture(scope="module")(processes.neighbour)
other = pytest.fixture(processes.other)
path = pytest.fixture(processes.path)
one = pytest.fixture(processes.one)
two = pytest.fixture(processes.two)


LEVELS = [Durability.SYNC, Durability.OS, Durability.INTERVAL(60_000)]


def bases(log: pylog.Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# ---- in turn -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_records_that_two_stores_append_in_turn_are_all_there_and_seen_at_once(one: Store, two: Store, level: Durability) -> None:
    logs = [one.log("t"), two.log("t")]
    for number in range(40):
        writer, reader = logs[number % 2], logs[1 - number % 2]
        assert writer.append(b"%d" % number, durability=level) == number
        assert reader.end_offset == number + 1
        assert reader.read(number).value == b"%d" % number
        assert values(reader, number) == [b"%d" % number]
    assert values(logs[0]) == values(logs[1]) == [b"%d" % number for number in range(40)]
    assert bases(logs[0]) == bases(logs[1])
    assert len(bases(logs[0])) > 3


def test_appends_of_every_sort_are_taken_over_by_the_other_store(one: Store, two: Store) -> None:
    log, other = one.log("t"), two.log("t")
    appends: list[Callable[[], range]] = [
        lambda: log.append_many([b"many"] * 30),
        lambda: log.append_many([b"packed"] * 30, compression="zstd"),
        lambda: log.append_arrow(pa.table({"value": [b"arrow"] * 30})),
        lambda: log.append_batch([b"numbered"] * 3, producer=pylog.ProducerBatch(1, 0, 0)).offsets,
        lambda: log.append_many([(b"k", b"v", [("h", b"1")], 5), (None, None)]),
    ]
    for append in appends:
        offsets = append()
        assert other.append(b"between") == offsets.stop
    assert list(log.records()) == list(other.records())
    assert log.offset_for_timestamp(5) == other.offset_for_timestamp(5)


def test_more_than_one_chunk_of_another_stores_appends_is_taken_over(path: Path, one: Store, two: Store) -> None:
    one.create_topic("large")
    one.log("large").append(b"first")
    two.log("large").append(b"second")
    offsets = one.log("large").append_arrow(pa.table({"value": [bytes(1000)] * 9000}))
    assert two.log("large").append(b"third") == offsets.stop
    assert two.log("large").read(8000).value == bytes(1000)
    assert one.log("large").end_offset == 9003


@pytest.mark.slow
def test_two_processes_that_append_at_the_same_time_lose_nothing(path: Path, one: Store, other: Neighbour) -> None:
    other.begin(
        "told = {}\n"
        "for number in range(150):\n"
        "    sent = [b'theirs %d %d' % (number, part) for part in range(1 + number % 3)]\n"
        "    told |= dict(zip(store.log('t').append_many(sent, durability=pylog.Durability.OS), sent))\n"
        "told"
    )
    log, told = one.log("t"), {}
    for number in range(150):
        sent = [b"ours %d %d" % (number, part) for part in range(1 + number % 3)]
        told |= dict(zip(log.append_many(sent, durability=Durability.OS), sent, strict=True))
    theirs = other.answer()
    assert not told.keys() & theirs.keys()
    assert {record.offset: record.value for record in log.records()} == told | theirs
    assert sorted(told | theirs) == list(range(600))
    with pylog.open(path, mode="r") as reading:
        assert reading.recovery_report == ()
        assert values(reading.log("t")) == [(told | theirs)[offset] for offset in range(600)]


def test_a_process_that_appends_beside_one_that_rolls_goes_on_in_the_new_segment(one: Store, other: Neighbour) -> None:
    log = one.log("t")
    log.append(b"ours")
    segments = len(log.segments)
    other.run("for _ in range(40): _ = store.log('t').append(bytes(50))")
    assert log.append(b"ours again") == 41
    assert len(log.segments) > segments + 3
    assert other.run("store.log('t').read(41).value") == b"ours again"
    assert other.run("[s.base_offset for s in store.log('t').segments]") == bases(log)


def test_a_flush_makes_the_records_of_all_processes_durable(one: Store, two: Store) -> None:
    log, other = one.log("t"), two.log("t")
    log.append(b"a")
    other.append(b"b")
    log.append(b"c", durability=Durability.OS)
    other.append(b"d", durability=Durability.OS)
    assert log.durable_offset == other.durable_offset == 2
    log.flush()
    assert log.durable_offset == other.durable_offset == 4
    other.append(b"e", durability=Durability.OS)
    log.flush()  # this store did not write since
    assert other.durable_offset == 5


def test_a_synced_append_makes_the_other_processes_records_before_it_durable_too(one: Store, two: Store) -> None:
    one.log("t").append(b"a", durability=Durability.OS)
    assert two.log("t").append(b"b", durability=Durability.SYNC) == 1
    assert one.log("t").durable_offset == 2


def test_only_a_level_that_asks_for_more_raises_the_bound_on_unsynced_bytes(path: Path, one: Store, two: Store) -> None:
    """It belongs to the segment, whichever process appends."""
    one.log("t").append(b"a", durability=Durability.OS)
    bound = slot_of(path).unsynced_bytes
    two.log("t").append(b"b", durability=Durability.SYNC)
    assert slot_of(path).unsynced_bytes == bound == 600


# ---- all that can be done to a log -------------------------------------------------------------------------------------------

operations = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append many", "truncate", "delete records", "flush", "reopen", "look"]),
        st.integers(0, 1),
        st.integers(0, 1000),
    ),
    max_size=25,
)


class Model:
    """Two stores and a reader of one directory, and what must be in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stores = [pylog.open(path), pylog.open(path)]
        self.stores[0].create_topic("t", **SMALL)
        self.reading = pylog.open(path, mode="r")
        self.reader = self.reading.log("t")
        self.records: dict[int, bytes] = {}
        self.start = self.end = 0

    def do(self, operation: str, which: int, number: int) -> None:
        log = self.stores[which].log("t")
        place = self.start + number % (self.end - self.start + 1)
        level = LEVELS[number % 2]
        if operation.startswith("append"):
            sent = [b"%d.%d" % (number, part) for part in range(1 if operation == "append" else 1 + number % 25)]
            offsets = log.append_many(sent, durability=level)
            assert offsets == range(self.end, self.end + len(sent))
            self.records |= dict(zip(offsets, sent, strict=True))
            self.end = offsets.stop
        elif operation == "truncate":
            log.truncate(place)
            self._was_truncated(log, place)
        elif operation == "delete records":
            assert log.delete_records(place) == place
            self.start = place
        elif operation == "flush":
            log.flush()
            assert log.durable_offset == self.end
        elif operation == "reopen":
            self.stores[which].close()
            self.stores[which] = pylog.open(self.path)
        else:
            self.check(log)

    def _was_truncated(self, log: pylog.Log, end: int) -> None:
        """The batch that `end` lies in went as a whole: how long it was, the log decided when it was appended."""
        left = {record.offset: record.value for record in log.records()}
        gone = [offset for offset in self.records if self.start <= offset < end and offset not in left]
        assert gone == list(range(end - len(gone), end))
        assert len(gone) < 25
        if end < self.end:
            self.records = {offset: value for offset, value in self.records.items() if offset < end and offset not in gone}
            self.end = end

    def check(self, log: pylog.Log) -> None:
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        expected = {offset: value for offset, value in self.records.items() if offset >= self.start}
        assert {record.offset: record.value for record in log.records()} == expected

    def close(self) -> None:
        for store in (*self.stores, self.reading):
            store.close()


@pytest.mark.slow
@settings(max_examples=40)
@given(operations)
def test_whatever_two_stores_do_in_turn_both_and_a_reader_see_the_same(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[str, int, int]]
) -> None:
    model = Model(tmp_path_factory.mktemp("model") / "s")
    try:
        for operation in done:
            model.do(*operation)
            model.check(model.reader)
        for store in model.stores:
            model.check(store.log("t"))
            assert store.recovery_report == ()
    finally:
        model.close()
    with pylog.open(model.path) as store:
        model.check(store.log("t"))
        assert store.recovery_report == ()
    shutil.rmtree(model.path)


# ---- changes of segments -----------------------------------------------------------------------------------------------------


def test_a_truncation_is_seen_by_the_other_store_and_both_go_on_from_there(one: Store, two: Store) -> None:
    log, other = one.log("t"), two.log("t")
    for number in range(30):
        log.append(b"%d" % number)
    other.append(b"30")
    assert len(log.segments) > 3
    other.truncate(4)
    assert log.end_offset == 4
    assert values(log) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(pylog.OffsetOutOfRangeError):
        log.read(4)
    assert log.append(b"new") == 4
    assert other.append(b"newer") == 5
    assert values(other) == [b"0", b"1", b"2", b"3", b"new", b"newer"]


def test_a_record_that_another_store_truncated_away_is_out_of_range_not_damaged(one: Store, two: Store) -> None:
    """This store has not looked since: it finds the file shorter than it knows it."""
    log = one.log("t")
    log.append_many([b"0", b"1"])
    for _ in range(3):
        log.append(b"x")
    assert len(values(log)) == 5
    two.log("t").truncate(3)
    assert log.read(2).value == b"x"
    with pytest.raises(pylog.OffsetOutOfRangeError):
        log.read(4)


def test_deleted_records_are_gone_for_the_other_store_too(one: Store, two: Store) -> None:
    log, other = one.log("t"), two.log("t")
    for number in range(30):
        log.append(b"%d" % number)
    assert other.end_offset == 30
    segments = len(other.segments)
    assert log.delete_records(20) == 20
    assert other.start_offset == 20
    assert len(other.segments) < segments
    with pytest.raises(pylog.OffsetOutOfRangeError):
        other.read(19)
    assert values(other) == [b"%d" % number for number in range(20, 30)]
    assert other.append(b"30") == 30
    assert other.delete_records(25) == 25
    assert log.start_offset == 25


def test_retention_of_one_store_is_seen_by_the_other(one: Store, two: Store) -> None:
    one.create_topic("short", segment_bytes=300, retention_ms=1000)
    log, other = one.log("short"), two.log("short")
    for number in range(20):
        log.append(b"%d" % number, timestamp=1000 * number)
    assert other.end_offset == 20
    assert two.tick(now_ms=15_000) > 0
    start = log.start_offset
    assert 0 < start < 15
    assert log.append(b"20", timestamp=20_000) == 20
    assert values(other) == [b"%d" % number for number in range(start, 21)]
    assert one.tick(now_ms=15_000) == 0


def test_retention_that_deletes_everything_leaves_a_log_that_both_go_on_with(one: Store, two: Store) -> None:
    one.create_topic("short", retention_ms=1000)
    for number in range(5):
        one.log("short").append(b"%d" % number, timestamp=0)
    assert two.tick(now_ms=10**6) == 1
    assert (one.log("short").start_offset, one.log("short").end_offset) == (5, 5)
    assert one.log("short").append(b"5") == 5
    assert values(two.log("short")) == [b"5"]


# ---- topics ------------------------------------------------------------------------------------------------------------------


def test_a_topic_that_another_store_makes_is_there_at_once(one: Store, two: Store) -> None:
    made = one.create_topic("new", partition_count=2, segment_bytes=1234)
    assert two.topics()["new"] == made
    assert two.log("new", 1).config.segment_bytes == 1234
    assert two.log("new", 1).append(b"x") == 0
    assert one.log("new", 1).read(0).value == b"x"


def test_partitions_that_another_store_adds_are_there_at_once(one: Store, two: Store) -> None:
    one.log("t").append(b"kept")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        two.log("t", 2)
    grown = one.add_partitions("t", 3)
    assert two.topic("t") == grown
    assert two.log("t", 2).append(b"x") == 0
    assert two.log("t", 0).read(0).value == b"kept"


def test_of_two_processes_that_make_the_same_topic_one_does(path: Path, one: Store, other: Neighbour) -> None:
    other.begin(
        "made = []\n"
        "for number in range(20):\n"
        "    try:\n"
        "        made.append(store.create_topic(f'race-{number}', partition_count=2).id)\n"
        "    except pylog.TopicAlreadyExistsError:\n"
        "        made.append(None)\n"
        "made"
    )
    ours: list[str | None] = []
    for number in range(20):
        try:
            ours.append(one.create_topic(f"race-{number}", partition_count=2).id)
        except pylog.TopicAlreadyExistsError:
            ours.append(None)
    for number, ids in enumerate(zip(ours, other.answer(), strict=True)):
        (made,) = {*ids} - {None}
        assert one.topics()[f"race-{number}"].id == made
        for partition in range(2):
            text = (path / f"race-{number}-{partition}" / "partition.metadata").read_text()
            assert text.endswith(made)


def test_two_stores_that_make_different_topics_keep_each_others_lines_of_the_catalog(one: Store, two: Store) -> None:
    for number in range(5):
        one.create_topic(f"one-{number}")
        two.create_topic(f"two-{number}")
    assert one.topics().keys() == two.topics().keys() == {"t"} | {f"{who}-{n}" for who in ("one", "two") for n in range(5)}


def test_the_log_of_a_topic_that_another_store_deleted_says_so_and_the_store_gives_the_new_one(one: Store, two: Store) -> None:
    old = one.log("t")
    old.append(b"old")
    two.delete_topic("t")
    for _ in range(2):
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            old.append(b"never")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        one.log("t")
    two.create_topic("t", segment_bytes=1234)
    assert two.log("t").append(b"new") == 0
    assert one.log("t") is not old
    assert one.log("t").config.segment_bytes == 1234
    assert values(one.log("t")) == [b"new"]
    assert one.log("t").append(b"newer") == 1


@pytest.mark.parametrize("wrote", [True, False], ids=["wrote", "only-read"])
def test_the_log_of_a_topic_that_another_store_deleted_and_made_again_never_writes_into_the_new_one(
    one: Store, two: Store, wrote: bool
) -> None:
    old = one.log("t")
    two.log("t").append(b"old")
    assert old.append(b"old") == 1 if wrote else old.end_offset == 1
    two.delete_topic("t")
    two.create_topic("t")
    two.log("t").append(b"new")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        old.append(b"never")
    assert values(one.log("t")) == [b"new"]
    assert one.log("t").append(b"newer") == 1


def test_an_unwritten_log_also_says_that_its_topic_was_deleted(one: Store, two: Store) -> None:
    old = one.log("t")
    two.delete_topic("t")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        old.append(b"never")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        one.log("t")
    two.create_topic("t")
    assert one.log("t").append(b"new") == 0


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-again"])
def test_a_log_that_was_only_read_says_that_its_topic_was_deleted_by_another_store(one: Store, two: Store, again: bool) -> None:
    old = one.log("t")
    two.log("t").append(b"old")
    assert values(old) == [b"old"]
    two.delete_topic("t")
    if again:
        two.create_topic("t")
        two.log("t").append_many([b"new", b"newer"])
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        values(old)
    if again:
        assert values(one.log("t")) == [b"new", b"newer"]
    else:
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            one.log("t")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_rename", "remove_directories"])
def test_a_topic_that_is_made_again_while_the_old_one_goes_does_not_go_in_its_place(
    one: Store, two: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """One store has decided to delete it and written that down, and the other one needs the name."""
    one.log("t").append(b"old")
    place: Any = manager_of(one).root.changes if hasattr(manager_of(one).root.changes, moment) else changes
    step = getattr(place, moment)

    def make_it_again(*given: Any) -> None:
        if not one.topics().keys() & {"t"}:
            monkeypatch.undo()
            two.create_topic("t")
            assert two.log("t").append(b"new") == 0
        step(*given)

    monkeypatch.setattr(place, moment, make_it_again)
    one.delete_topic("t")
    assert values(two.log("t")) == [b"new"]
    assert values(one.log("t")) == [b"new"]
    assert one.log("t").append(b"newer") == 1


@pytest.mark.slow
def test_a_topic_made_again_after_a_process_died_in_its_deletion_is_not_deleted_later(path: Path) -> None:
    with Neighbour() as other, pylog.open(path) as one:
        one.log("t").append(b"old")
        other.run(
            "fs = HookedFileSystem().before('open', 'durable-point', send_self(signal.SIGKILL)); store = pylog.open(path, fs=fs)",
            path=str(path),
        )
        other.begin("store.delete_topic('t')")
        assert other.wait() == -signal.SIGKILL
        assert "t" not in one.topics()
        one.create_topic("t")
        assert one.log("t").append(b"new") == 0
        assert values(one.log("t")) == [b"new"]
    with pylog.open(path) as one:
        assert values(one.log("t")) == [b"new"]


@pytest.mark.slow
def test_housekeeping_goes_on_beside_topics_that_others_delete(one: Store, two: Store) -> None:
    for name in ("a", "b", "c"):
        one.create_topic(name, segment_bytes=200, retention_ms=1000)
        for number in range(10):
            one.log(name).append(b"%d" % number, timestamp=number)
    two.delete_topic("b")
    assert one.tick(now_ms=10**6) > 2
    assert one.log("a").start_offset == one.log("c").start_offset == 10
    one.flush()
