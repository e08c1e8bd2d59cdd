"""However many partitions a store writes and reads, its open files are bounded (reliability 13)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import pylog
from pylog import limits

PARTITIONS = 40
BOUND = 4


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_WRITERS", BOUND)


def open_files() -> int:
    return len(os.listdir("/dev/fd" if sys.platform == "darwin" else "/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.parametrize("level", [pylog.Durability.SYNC, pylog.Durability.OS])
def test_more_partitions_than_may_be_ready_for_writing_take_appends_in_turn(tmp_path: Path, level: pylog.Durability) -> None:
    before = open_files()
    with pylog.open(tmp_path, durability=level) as store:
        store.create_topic("t", partition_count=PARTITIONS)
        logs = [store.log("t", number) for number in range(PARTITIONS)]
        for turn in range(3):
            for number, log in enumerate(logs):
                assert log.append(b"%d of %d" % (turn, number)) == turn
                assert log.end_offset == turn + 1
        for number, log in enumerate(logs):
            assert [record.value for record in log.records()] == [b"%d of %d" % (turn, number) for turn in range(3)]
        assert open_files() - before < 2 * BOUND + limits.OPEN_FILES + 10
        assert store.check().ok, str(store.check())
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with pylog.open(tmp_path, mode="r") as store:
        assert all(store.log("t", number).end_offset == 3 for number in range(PARTITIONS))


def test_what_others_appended_is_taken_once_however_often_writers_rest(tmp_path: Path) -> None:
    """Taken twice it would look as if the file held it twice: damage where there is none."""
    with pylog.open(tmp_path) as one, pylog.open(tmp_path) as two:
        one.create_topic("t", index_interval_bytes=100)
        one.create_topic("u", partition_count=BOUND + 1)
        ones, twos = one.log("t"), two.log("t")

        def rest() -> None:
            for number in range(BOUND + 1):
                two.log("u", number).append(b"in the way")

        for log in (ones, twos, twos, ones):
            log.append(b"x" * 60)
        rest()
        ones.append(b"x" * 60)
        for _ in range(2):
            twos.append_many([b"y" * 60] * 50)
        rest()
        assert twos.end_offset == 105
        assert twos.append(b"z") == 105
        assert two.check().ok, str(two.check())


@pytest.mark.slow
def test_a_log_whose_writer_was_closed_still_sees_what_others_append_and_goes_on(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store, pylog.open(tmp_path) as other:
        store.create_topic("t", partition_count=PARTITIONS)
        log = store.log("t", 0)
        log.append(b"a")
        for number in range(1, PARTITIONS):
            store.log("t", number).append(b"in the way")
        assert log.end_offset == 1
        assert other.log("t", 0).append(b"b") == 1
        assert log.end_offset == 2
        assert log.append(b"c") == 2
        assert [record.value for record in log.records()] == [b"a", b"b", b"c"]
        assert [record.value for record in other.log("t", 0).records()] == [b"a", b"b", b"c"]
