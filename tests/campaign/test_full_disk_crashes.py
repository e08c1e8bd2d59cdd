"""The calls that free room on a full disk: a crash between two of their steps loses nothing, and they can be finished."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import islice

import pytest

from pylog.directory.locks import PYLOG_LOCK
from pylog.limits import MAX_BOOT_ID_BYTES
from support.campaign.full_disk import ACTIONS, ROOT, Case, crashes, extent_of, filled, opened

MOMENTS = 5  # of each call; `./dev torture full` has all


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.pair("crash", "retention by size", "delete_records", "truncation", "close")
def test_a_crash_between_two_steps_on_a_full_disk_loses_nothing_and_the_call_can_be_finished(name: str) -> None:
    case, draw = Case(name), random.Random(name)
    every = max(1, case.steps // MOMENTS)
    for number, moment in enumerate(islice(case.moments(), draw.randrange(every), None, every)):
        found = case.problem(moment, draw.choice(crashes(moment, draw, 3)), taken=number % 2 == 1)
        assert found is None, found


def test_a_store_opens_on_a_full_disk_although_a_deletion_that_a_dead_process_began_cannot_be_finished() -> None:
    case, draw = Case("delete_topic"), random.Random(1)
    for moment in islice(case.moments(), case.steps - 16, None):
        found = case.problem(moment, next(moment.deaths(draw)), taken=True)
        assert found is None, found


@pytest.mark.parametrize("name", ["tick", "delete_records at a segment", "delete_records in a segment"])
def test_segments_are_deleted_on_a_full_disk_although_another_program_has_taken_the_reserve(name: str) -> None:
    disk, store, _, values = filled()
    store.close()
    with closing(disk.open(f"{ROOT}/{PYLOG_LOCK}", write=True)) as lock:
        lock.truncate(MAX_BOOT_ID_BYTES)
    disk.fill()
    with opened(disk) as again:
        ACTIONS[name](again)
        extent = extent_of(again, values)
        assert extent is not None
        assert disk.free() > 10
        assert again.log("t").append(b"more") == extent.end
        assert again.verify().ok
    with opened(disk.crash()) as again:
        assert again.log("t").start_offset == extent.start
        assert again.verify().ok


def test_a_store_opens_for_writing_on_a_full_disk_on_which_its_lock_file_has_no_block() -> None:
    disk, store, extent, values = filled()
    store.close()
    with closing(disk.open(f"{ROOT}/{PYLOG_LOCK}", write=True)) as lock:
        lock.truncate(0)
    disk.fill()
    with opened(disk) as again:
        assert extent_of(again, values) == extent
        again.tick()
        assert again.log("small").append(b"more") == 1
        disk.clock.sleep(2)
        again.tick()
        assert disk.size_of(f"{ROOT}/{PYLOG_LOCK}") > 0
