"""Calls of the system fail, lie, are cut short and kill: nothing acknowledged is lost, appending goes on (suites 9 and 10)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.campaign import system_faults
from support.campaign.processes import new_seed
from support.campaign.system_faults import KINDS, Promise, with_shim, with_small_file_system

POSITIONS = 2_048
DISKS = 50

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the shim, and the limits that it stands beside, are Linux's")


@pytest.mark.parametrize("promise", Promise, ids=lambda promise: promise.name.lower())
def test_each_call_of_the_system_may_fail_in_turn(promise: Promise) -> None:
    names = [name for name, kind in KINDS.items() if kind.promise is promise]
    calls = with_shim(system_faults.sweep, new_seed(), names)
    assert all(calls[name] > 0 for name in names), calls
    assert sum(calls.values()) > 20


def test_work_that_ends_its_life_at_a_fault_before_the_counted_call_does_not_keep_a_sweep_from_ending() -> None:
    name = "a record is refused and cannot be cut off again"
    assert with_shim(system_faults.sweep, 206450567, [name])[name] > 10


def test_death_after_any_byte_of_a_write_leaves_whole_batches_and_a_torn_tail_at_most() -> None:
    done = with_shim(system_faults.tear, new_seed())
    assert done["killed"] == done["cases"] > 200
    assert done["found_torn"] > 100


def test_a_batch_that_does_not_fit_by_any_number_of_bytes_is_refused_and_the_log_goes_on() -> None:
    assert with_shim(system_faults.limits, new_seed(), POSITIONS)["positions"] >= POSITIONS


def test_a_full_disk_refuses_records_and_loses_none(tmp_path: Path) -> None:
    assert with_shim(system_faults.small_disks, new_seed(), DISKS)["cases"] == DISKS
    mounting = with_small_file_system(tmp_path)  # not every machine allows it: the disks above are full without
    if mounting is not None:
        assert with_shim(system_faults.full_disks, new_seed(), DISKS, str(tmp_path), before=mounting)["cases"] == DISKS
