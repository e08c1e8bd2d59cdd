"""A broker moves a segment to its tier, or deletes one there, while a store is open: the next call sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pylog
from pylog.fs import OsFileSystem

MOVED = range(14033, 16081)  # the offsets of the last segment of `t` in the tier
END = 16502
LAST = 16500  # a marker of a transaction follows
CALLS: dict[str, Callable[[pylog.Log], object]] = {
    "records": lambda log: [record.offset for record in log.records(MOVED[0])],
    "scan": lambda log: sum(batch.num_rows for batch in log.scan(MOVED[0])),
    "scan of committed records": lambda log: sum(
        batch.num_rows for batch in log.scan(MOVED[0], isolation_level="read_committed")
    ),
    "read": lambda log: [log.read(offset) for offset in (MOVED[0], MOVED[-1], LAST)],
    "sizes": lambda log: log.size_between(MOVED[0], END),
}


def tier_of(root: Path) -> pylog.KafkaTier:
    return pylog.KafkaTier(str(root / "remote" / "kafka-tiered-storage"), layout="local")


@pytest.fixture
def broker(unpacked: Path, tmp_path: Path) -> Path:
    """A broker's directory and its tier. One segment is in both."""
    root = shutil.copytree(unpacked / "ktier", tmp_path / "broker")
    (copied,) = (root / "remote" / "kafka-tiered-storage").glob(f"t-0-*/{MOVED[0]:020d}-*.log")
    shutil.copy(copied, root / "data" / "t-0" / f"{MOVED[0]:020d}.log")
    return root


def raise_start(root: Path, start: int, *, is_recorded: bool) -> None:
    """Does as a broker: it raises the first leader epoch at once, and its checkpoint within a minute."""
    epochs = root / "data" / "t-0" / "leader-epoch-checkpoint"
    version, count, first, *later = epochs.read_text().splitlines()
    epochs.write_text("\n".join([version, count, f"{first.split()[0]} {start}", *later, ""]))
    if is_recorded:
        (root / "data" / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")


def delete_before(root: Path, start: int) -> None:
    """Does as a broker whose retention deletes remote segments."""
    for path in (root / "remote" / "kafka-tiered-storage").glob("t-0-*/*"):
        if int(path.name[:20]) < start:
            path.unlink()


def damage(store: pylog.Store) -> list[pylog.Finding]:
    """Returns the findings that are no missing index. The data of the tests lacks earlier segments."""
    return [finding for finding in store.verify().findings if finding.kind != "derived"]


def move(root: Path) -> None:
    """Does as a broker that deletes a local segment whose copy is in the tier."""
    for path in (root / "data" / "t-0").glob(f"{MOVED[0]:020d}.*"):
        path.rename(path.with_name(path.name + ".deleted"))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("is_known", [False, True], ids=["not read before", "read before"])
def test_a_segment_that_is_moved_is_read_in_the_tier(broker: Path, call: Callable[[pylog.Log], object], is_known: bool) -> None:
    with pylog.open(broker / "data", mode="r", archive=tier_of(broker)) as store:
        right, verified = call(store.log("t")), damage(store)
    with pylog.open(broker / "data", mode="r", archive=tier_of(broker)) as store:
        log = store.log("t")
        assert call(log) == right if is_known else log.end_offset == END
        move(broker)
        assert call(log) == right
        assert log.start_offset == 0
        assert damage(store) == verified


def test_records_that_were_begun_go_on_in_the_tier(broker: Path) -> None:
    with pylog.open(broker / "data", mode="r", archive=tier_of(broker)) as store:
        found = store.log("t").records(12000)
        first = next(found)
        move(broker)
        assert [first.offset, *(record.offset for record in found)][-1] == LAST


def test_a_segment_that_vanishes_between_the_look_and_its_opening_is_read_in_the_tier(
    broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OsFileSystem.open

    def moved_before(self: OsFileSystem, path: str, *, write: bool = False) -> object:
        if path.endswith(f"{MOVED[0]:020d}.log") and (broker / "data" / "t-0" / Path(path).name).exists():
            move(broker)
        return opened(self, path, write=write)

    with pylog.open(broker / "data", mode="r", archive=tier_of(broker)) as store:
        log = store.log("t")
        monkeypatch.setattr(OsFileSystem, "open", moved_before)
        assert [record.offset for record in log.records(MOVED[0])][-1] == LAST
        assert not (broker / "data" / "t-0" / f"{MOVED[0]:020d}.log").exists()


@pytest.mark.parametrize("is_recorded", [False, True], ids=["before its checkpoint", "and its checkpoint"])
@pytest.mark.parametrize("is_deleted", [False, True], ids=["before it deletes", "and deletes"])
def test_a_log_start_that_a_broker_raises_in_the_tier_is_that_of_the_next_call(
    broker: Path, is_recorded: bool, is_deleted: bool
) -> None:
    first = MOVED[0]
    with pylog.open(broker / "data", mode="r", archive=tier_of(broker)) as store:
        log, going_on = store.log("t"), store.log("t").records(12000)
        assert (log.start_offset, log.read(12000).offset, next(going_on).offset) == (0, 12000, 12000)
        raise_start(broker, first, is_recorded=is_recorded)
        if is_deleted:
            delete_before(broker, first)
        if is_deleted:  # else a read may use what it learnt in the last 50 ms
            with pytest.raises(pylog.OffsetOutOfRangeError):
                log.read(12001)
        assert (log.start_offset, [record.offset for record in log.records()][:1]) == (first, [first])
        assert damage(store) == []
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(log.scan(12000))
        rest = [record.offset for record in going_on]  # it had fetched the segment that is deleted
        assert (rest[0], rest[-1]) == (12001, LAST)
    with pylog.open(broker / "data", mode="r", archive=tier_of(broker)) as store:
        assert (store.log("t").start_offset, len(list(store.log("t").records()))) == (first, 2468)
