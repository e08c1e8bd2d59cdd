"""A transaction whose marker is damaged: its records are never served as committed unless a sound transaction index proves it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import pylog
from pylog.record.format import CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT
from support.reference.records import Batch, Record

pytestmark = pytest.mark.damaged("a marker is damaged, and a broker's directory is completed by hand")

FIRST, SECOND = 7, 8  # producers
NOW = 1_700_000_000_000

Change = Callable[[bytearray, int, int], None]


def batch(offset: int, key: bytes, value: bytes, producer: int = -1) -> Batch:
    """Records of a transaction, if there is a producer."""
    bits, epoch, sequence = (TRANSACTIONAL_BIT, 0, offset) if producer >= 0 else (0, -1, -1)
    return Batch([Record(0, 0, key, value)], offset, 0, bits, NOW + offset, None, producer, epoch, sequence)


def marker(offset: int, kind: int, producer: int) -> Batch:
    record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return Batch([record], offset, 0, TRANSACTIONAL_BIT | CONTROL_BIT, NOW + offset, None, producer, 0)


SEGMENTS = (
    (
        batch(0, b"a", b"aborted-0", FIRST),
        batch(1, b"p", b"plain-1"),
        batch(2, b"b", b"kept-2", SECOND),
        marker(3, CONTROL_COMMIT, SECOND),
        batch(4, b"a", b"aborted-4", FIRST),
        marker(5, CONTROL_ABORT, FIRST),  # the one that is damaged
        batch(6, b"c", b"kept-6", SECOND),
        marker(7, CONTROL_COMMIT, SECOND),
    ),
    (
        batch(8, b"a", b"kept-8", FIRST),
        marker(9, CONTROL_COMMIT, FIRST),
        batch(10, b"d", b"aborted-10", SECOND),
        marker(11, CONTROL_ABORT, SECOND),
    ),
    (batch(12, b"e", b"plain-12"),),
)
ABORTED = {b"aborted-0", b"aborted-4", b"aborted-10"}
KEPT = [b"plain-1", b"kept-2", b"kept-6", b"kept-8", b"plain-12", b"plain-13"]


def name_of(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a compacted topic, closed cleanly: its snapshot says that no transaction is open."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t", cleanup_policy="compact", producer_id_expiration_ms=10**15)
    for segment in SEGMENTS:
        data = b"".join(each.encoded() for each in segment)
        (tmp_path / "t-0" / name_of(segment[0].base_offset, ".log")).write_bytes(data)
    for derived in (*(tmp_path / "t-0").glob("*.index"), *(tmp_path / "t-0").glob("durable-point")):
        derived.unlink()
    with pylog.open(tmp_path) as store:
        store.log("t").append(b"plain-13", key=b"f")  # so that closing writes a snapshot
        assert [record.value for record in store.log("t").records(isolation_level="read_committed")] == KEPT
    assert (tmp_path / "t-0" / name_of(0, ".txnindex")).stat().st_size == 34
    return tmp_path


def damage(path: Path, change: Change, offset: int = 5) -> None:
    """Changes the bytes of the batch at an offset."""
    segment = next(each for each in reversed(SEGMENTS) if each[0].base_offset <= offset)
    start = sum(len(each.encoded()) for each in segment if each.base_offset < offset)
    file = path / "t-0" / name_of(segment[0].base_offset, ".log")
    data = bytearray(file.read_bytes())
    change(data, start, next(len(each.encoded()) for each in segment if each.base_offset == offset))
    file.write_bytes(data)
    for seal in (path / "t-0").glob("*.seal"):
        seal.unlink()


def commits_instead(data: bytearray, start: int, size: int) -> None:
    data[start + 61 + 8] = CONTROL_COMMIT  # the marker's type, without a new checksum


def aborts_instead(data: bytearray, start: int, size: int) -> None:
    data[start + 61 + 8] = CONTROL_ABORT


def is_no_marker(data: bytearray, start: int, _: int) -> None:
    data[start + 22] &= ~CONTROL_BIT & 0xFF


def is_of_another_producer(data: bytearray, start: int, _: int) -> None:
    data[start + 50] ^= 1


def zeros(data: bytearray, start: int, size: int) -> None:
    data[start : start + size] = bytes(size)


def zero_fields(data: bytearray, start: int, size: int) -> None:
    """Its frame is whole: it looks like a batch without a producer."""
    data[start + 21 : start + 43] = bytes(22)


def noise(data: bytearray, start: int, size: int) -> None:
    data[start : start + size] = bytes(range(1, size + 1))


def index_of(path: Path, base: int = 0) -> Path:
    return path / "t-0" / name_of(base, ".txnindex")


def garbled(at: int) -> Callable[[Path], None]:
    def garble(index: Path) -> None:
        data = bytearray(index.read_bytes())
        data[at] ^= 1
        index.write_bytes(data)

    garble.__name__ = f"garbled_{at}"
    return garble


def replaced_by_a_directory(index: Path) -> None:
    index.unlink()
    index.mkdir()


def emptied(index: Path) -> None:
    index.write_bytes(b"")


def cut(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:20])


def longer(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:34] + bytes(7))


CHANGES = [commits_instead, is_no_marker, is_of_another_producer, zeros, zero_fields, noise]
LOSSES = [Path.unlink, replaced_by_a_directory, emptied, cut, longer, garbled(0), garbled(9), garbled(17), garbled(25)]


def read_on(log: pylog.Log, start: int = 0) -> tuple[list[bytes | None], list[pylog.CorruptionError]]:
    """Reads everything that is committed, going on after each error where it says."""
    values: list[bytes | None] = []
    errors: list[pylog.CorruptionError] = []
    at: int | None = start
    while at is not None:
        try:
            for frame in log.scan(at, isolation_level="read_committed", columns=("offset", "value")):
                values += frame.column("value").to_pylist()
            break
        except pylog.CorruptionError as error:
            errors.append(error)
        assert None not in (errors[-1].path, errors[-1].position)
        assert errors[-1].next_offset is None or errors[-1].next_offset > at, "reading would never come to an end"
        at = errors[-1].next_offset
    return values, errors


@pytest.mark.sampled(3)
@pytest.mark.pair("aborted transactions", "crash")
@pytest.mark.parametrize(
    ("change", "lose", "mode"),
    [(change, lose, mode) for change in CHANGES for lose in LOSSES for mode in ("r", "rw") if zeros is change or emptied is lose],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_aborted_records_are_not_served_when_their_marker_is_damaged_and_the_index_proves_nothing(
    path: Path, change: Change, lose: Callable[[Path], None], mode: str
) -> None:
    damage(path, change)
    lose(index_of(path))
    with pylog.open(path, mode=mode) as store:
        values, errors = read_on(store.log("t"))
    assert not ABORTED & set(values)
    assert values == KEPT
    assert errors[0].offset == 0
    assert errors[0].path == str(path / "t-0" / name_of(0, ".log"))
    assert "producer 7" in str(errors[0])
    assert "continue at offset 1" in str(errors[0])


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_a_sound_index_tells_which_records_were_aborted_when_the_marker_is_damaged(path: Path, change: Change) -> None:
    damage(path, change)
    with pylog.open(path, mode="r") as store:
        values, errors = read_on(store.log("t"))
    assert values == KEPT
    assert [error.offset for error in errors] in ([5], [])  # the damaged bytes themselves


def test_a_sound_index_proves_that_a_transaction_with_a_damaged_commit_marker_was_committed(path: Path) -> None:
    damage(path, noise, 3)
    with pylog.open(path, mode="r") as store:
        values, errors = read_on(store.log("t"))
    assert values == KEPT
    assert [error.offset for error in errors] == [3]


def test_a_damaged_commit_marker_without_an_index_leaves_the_outcome_unknown(path: Path) -> None:
    damage(path, noise, 9)
    index_of(path, 8).unlink()
    with pylog.open(path, mode="r") as store:
        values, errors = read_on(store.log("t"))
    assert values == [value for value in KEPT if value != b"kept-8"]
    assert [error.offset for error in errors] == [8, 9]


def test_a_commit_that_is_followed_by_damage_and_a_later_abort_stays_committed_by_the_index(path: Path) -> None:
    damage(path, noise, 7)
    with pylog.open(path, mode="r") as store:
        values, errors = read_on(store.log("t"))
    assert values == KEPT
    assert [error.offset for error in errors] == [7]


def test_a_later_abort_proves_nothing_when_its_own_index_is_gone(path: Path) -> None:
    damage(path, noise, 7)
    index_of(path, 8).unlink()
    with pylog.open(path, mode="r") as store:
        values, errors = read_on(store.log("t"))
    assert values == [value for value in KEPT if value != b"kept-6"]
    assert [error.offset for error in errors] == [6, 7]


def test_records_and_a_consumer_raise_like_a_scan_and_go_on_where_the_error_says(path: Path) -> None:
    damage(path, noise)
    index_of(path).unlink()
    with pylog.open(path, mode="r") as store:
        log = store.log("t")
        with pytest.raises(pylog.CorruptionError, match="is unknown"):
            list(log.records(isolation_level="read_committed"))
        consumer = store.consumer(isolation_level="read_committed", auto_offset_reset="earliest")
        partition = pylog.TopicPartition("t", 0)
        consumer.assign([partition])
        values = []
        for _ in range(30):
            try:
                values += [record.value for record in consumer.poll(0).get(partition, [])]
            except pylog.CorruptionError as error:
                consumer.seek(partition, error.next_offset or 0)
        assert values == KEPT


def test_a_replay_over_damage_writes_no_index_that_passes_for_a_complete_one(path: Path) -> None:
    damage(path, aborts_instead, 9)
    for derived in (*(path / "t-0").glob("*.index"), *(path / "t-0").glob("*.txnindex")):
        derived.unlink()
    for _ in range(3):
        with pylog.open(path) as store:
            values, errors = read_on(store.log("t"))
        assert values == [value for value in KEPT if value != b"kept-8"]
        assert [error.offset for error in errors] == [8, 9]


@pytest.mark.pair("aborted transactions", "compaction")
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_compaction_leaves_a_log_alone_whose_outcomes_are_unknown_and_says_so(
    path: Path, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    damage(path, change)
    index_of(path).unlink()
    before = {file.name: file.read_bytes() for file in (path / "t-0").glob("*.log")}
    with pylog.open(path) as store, caplog.at_level("INFO", "pylog.compaction"):
        with pytest.raises(pylog.CorruptionError):
            store.compact("t")
        assert "Gave up the compaction of a log" in caplog.text
        values, _ = read_on(store.log("t"))
    assert {file.name: file.read_bytes() for file in (path / "t-0").glob("*.log")} == before
    assert not ABORTED & set(values)
