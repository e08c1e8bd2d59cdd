"""The newest manifest of a tiered partition is damaged, or a store answers with other bytes: no archived record is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from pylog.testing import MemoryFileSystem
from support.objects import MemoryObjects, every_url

_TIERED = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_ms": -1, "segment_bytes": 1000}
_MONTH_MS = 40 * 86_400_000


class WrongAnswers(MemoryObjects):
    """Objects in memory. A GET of the key `wrong` gets a page, as from a proxy that is overloaded, and one of `late` gets 404."""

    wrong = late = ""

    def get(self, key: str) -> tuple[bytes, str | None]:
        if key == self.late:
            raise ObjectNotFoundError(f"cannot read {self.url}/{key}: none", url=self.url, key=key)
        data, etag = super().get(key)
        return (b"<html>busy</html>" if key == self.wrong else data), etag


def appended(log: pylog.Log, count: int) -> None:
    for _ in range(count):
        log.append(b"%d" % log.end_offset + b"x" * 90)


def newest_key(cloud: MemoryObjects) -> str:
    return max(key for key in cloud.objects if key.startswith("pylog/partitions/t-") and key.endswith(".zst"))


ROUTES: dict[str, tuple[Callable[[pylog.Store], object], int]] = {
    "tick": (pylog.Store.tick, 0),
    "archive": (lambda store: store.archive(), 0),
    "archive with the active segment": (lambda store: store.archive(include_active=True), 0),
    "take over": (lambda store: store.archive(take_over=True), 0),
    "delete_records": (lambda store: store.log("t").delete_records(15), 15),
}


@pytest.mark.parametrize("forever", [False, True], ids=["for one call", "for ever"])
@pytest.mark.parametrize("route", ROUTES)
def test_records_that_only_a_damaged_manifest_names_stay(route: str, forever: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(1_700_000_000_000)
    cloud, (call, start) = WrongAnswers(now_ms=clock.now_ms), ROUTES[route]
    fs = MemoryFileSystem(clock=clock)
    with every_url(cloud), pylog.open("/shop", archive=cloud, fs=fs, clock=clock) as store:
        store.create_topic("t", **_TIERED)
        log = store.log("t")
        appended(log, 60)
        store.tick()
        assert log.local_start_offset == log.archived_end_offset == 54
        appended(log, 20)
        newest = newest_key(cloud)
        if forever:
            cloud.objects[newest] = b"damaged"
        else:
            cloud.wrong = newest
        call(store)
        cloud.wrong = ""
        store.tick()
        clock.advance(_MONTH_MS)
        pylog.sweep("memory://archive", clock=clock)
        assert [record.offset for record in log.records()] == list(range(start, 80))
        assert store.verify().ok
    assert any("its copy on the disk counts" in record.getMessage() for record in caplog.records)


def test_a_manifest_that_a_store_lists_and_does_not_find_is_no_empty_partition(tmp_path: Path) -> None:
    """As in a store that is not consistent yet: a restore had no records of the partition, and no error said so."""
    cloud = WrongAnswers()
    with every_url(cloud):
        with pylog.open(tmp_path / "shop") as store:
            store.create_topic("t")
            appended(store.log("t"), 10)
            store.archive("memory://archive", include_active=True)
            cloud.late = newest_key(cloud)
            with pytest.raises(ObjectStoreUnavailableError, match="try again"):
                store.archive("memory://archive", include_active=True)
        with pytest.raises(ObjectStoreUnavailableError, match="it is listed, and the store does not find it"):
            pylog.restore("memory://archive", tmp_path / "copy")
        cloud.late = ""
        pylog.restore("memory://archive", tmp_path / "copy")
    with pylog.open(tmp_path / "copy", mode="r") as copy:
        assert copy.log("t").end_offset == 10
