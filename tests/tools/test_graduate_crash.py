"""`tools.graduate` on a disk that loses power: it is pylog's directory or a whole broker's, and can be finished or taken back."""

from __future__ import annotations

from typing import Final

import pytest

import pylog
from pylog.testing import MemoryFileSystem, RecordingFileSystem
from pylog.testing.disk import Image
from pylog.tools.graduate import RECORD, Graduation, carry_out, plan_graduation, take_back
from pylog.topics.signs import META_PROPERTIES
from support.faults.power import files_below, losses, losses_behind

SHOP: Final = "shop"
OPENING: Final = {"pylog.lock", ".lock", ".kafka_cleanshutdown"}  # what opening a store writes as well
SUBSETS, CUTS = 3, 2


def shop() -> Image:
    """A disk with a store of three partitions, one of them without the topic's id."""
    fs = MemoryFileSystem()
    fs.make_directory(f"/{SHOP}")
    with pylog.open(f"/{SHOP}", fs=fs) as store:
        store.create_topic("orders", partition_count=3)
        store.log("orders").append_many([b"a", b"b"])
    fs.remove(f"/{SHOP}/orders-1/partition.metadata")
    return fs.image()


def graduated(fs: MemoryFileSystem) -> Graduation:
    planned = plan_graduation(f"/{SHOP}", fs=fs)
    carry_out(planned, fs=fs)
    return planned


def new_files(image: Image, before: Image) -> dict[str, bytes]:
    """What graduating has put there."""
    known = files_below(before, SHOP)
    found = {path: data for path, data in files_below(image, SHOP).items() if path not in known}
    return {path: data for path, data in found.items() if not path.endswith(".tmp") and path not in OPENING}


def is_whole_or_no_brokers(image: Image, before: Image, planned: Graduation) -> bool:
    """Whether a broker finds all that it needs, or nothing that it would start on."""
    found = new_files(image, before)
    return META_PROPERTIES not in found or all(found.get(file.path) == file.data for file in planned.files)


def values(fs: MemoryFileSystem) -> list[bytes | None]:
    with pylog.open(f"/{SHOP}", mode="r", fs=fs) as store:
        return [record.value for record in store.log("orders").records()]


def taken_back(fs: MemoryFileSystem) -> None:
    if fs.exists(f"/{SHOP}/{RECORD}"):
        take_back(f"/{SHOP}", fs=fs)


@pytest.mark.slow
def test_the_power_may_go_at_any_moment_of_a_graduation():
    before = shop()
    fs = RecordingFileSystem(image=before)
    planned = graduated(fs)
    judged = 0
    for crash, image in losses(fs.recording, "graduate", SUBSETS, CUTS):
        assert is_whole_or_no_brokers(image, before, planned), str(crash)
        left = MemoryFileSystem(image=image, boots=2)
        assert values(left) == [b"a", b"b"], str(crash)
        taken_back(left)
        assert new_files(left.image(), before) == {}, str(crash)
        graduated(left)
        assert left.exists(f"/{SHOP}/{META_PROPERTIES}"), str(crash)
        judged += 1
    assert judged > 20
    for crash, image in losses_behind(fs.recording):
        assert set(new_files(image, before)) == {RECORD, *(file.path for file in planned.files)}, str(crash)


def test_the_power_may_go_at_any_moment_of_taking_a_graduation_back():
    before = shop()
    first = MemoryFileSystem(image=before)
    planned = graduated(first)
    fs = RecordingFileSystem(image=first.image())
    take_back(f"/{SHOP}", fs=fs)
    judged = 0
    for crash, image in losses(fs.recording, "undo", SUBSETS, CUTS):
        assert is_whole_or_no_brokers(image, before, planned), str(crash)
        left = MemoryFileSystem(image=image, boots=2)
        taken_back(left)
        assert new_files(left.image(), before) == {}, str(crash)
        judged += 1
    assert judged > 10
    for crash, image in losses_behind(fs.recording):
        assert new_files(image, before) == {}, str(crash)
