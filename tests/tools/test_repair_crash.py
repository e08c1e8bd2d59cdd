"""`tools.repair` on a disk that loses power: whatever it leaves, nothing is lost, and repairing again finishes it."""

from __future__ import annotations

from typing import Final

import pytest

import pylog
from golden_data import CorruptVariant
from power import files_below, image_of, losses, losses_behind
from pylog.testing import Crash, MemoryFileSystem, RecordingFileSystem
from pylog.testing.disk import Image
from pylog.testing.memory import SYNC, SYNC_DIRECTORY
from pylog.testing.recording import CallSite, Without
from pylog.tools.backup import MANIFEST
from pylog.tools.repair import Repair, repair
from pylog.tools.verify import verify
from repairs import Values, variant, without, written

LOGS: Final = "logs"
BACKUP: Final = "backup"
SUBSETS, CUTS = 1, 1  # beside nothing and everything: drawn anew at each of some forty moments


def values(fs: MemoryFileSystem, damaged: CorruptVariant, start: int | None = None, end: int | None = None) -> Values:
    with pylog.open(f"/{LOGS}", mode="r", fs=fs) as store:
        log = store.log(damaged.pristine.topic, damaged.pristine.partition)
        frames = log.scan(log.start_offset if start is None else start, end, columns=("offset", "value"))
        return {
            offset: value
            for frame in frames
            for offset, value in zip(frame["offset"].to_pylist(), frame["value"].to_pylist(), strict=True)
        }


def readable(fs: MemoryFileSystem, damaged: CorruptVariant) -> Values:
    """What can be read between the damages."""
    found = verify(f"/{LOGS}", fs=fs).readable
    if not found:
        return values(fs, damaged)
    return {offset: value for first, last in found[0].ranges for offset, value in values(fs, damaged, first, last + 1).items()}


def repaired(fs: MemoryFileSystem, policy: str, backup: str = f"/{BACKUP}") -> Repair:
    return repair(f"/{LOGS}", policy, execute=True, backup=backup, fs=fs)


def lose_power(policy: str, leave_out: Without | None = None) -> int:
    """Loses it everywhere in a repair, and judges what that leaves; returns how many states there were."""
    damaged = variant("cut-middle-segment")
    before = image_of(damaged.log_directory, LOGS)
    fs = RecordingFileSystem(image=before, without=leave_out)
    staying = without(written(damaged), repaired(fs, policy))
    assert values(fs, damaged) == staying
    judged = 0
    for crash, image in losses(fs.recording, policy, SUBSETS, CUTS):
        judge(image, crash, before, damaged, policy, staying)
        judged += 1
    for crash, image in losses_behind(fs.recording):
        judge_finished(image, crash, damaged, staying)
    return judged


def judge(image: Image, crash: Crash, before: Image, damaged: CorruptVariant, policy: str, staying: Values) -> None:
    """Every file is still there as it was, what stays can be read, and the next repair comes to the same end."""
    there, kept = files_below(image, LOGS), files_below(image, BACKUP)
    for path, data in files_below(before, LOGS).items():
        assert data in (there.get(path), kept.get(path)), (str(crash), path)
    fs = MemoryFileSystem(image=image, boots=2)
    assert staying.items() <= readable(fs, damaged).items(), str(crash)
    repaired(fs, policy, f"/{BACKUP}.second")
    assert verify(f"/{LOGS}", fs=fs).affected == (), str(crash)
    assert values(fs, damaged) == staying, str(crash)


def judge_finished(image: Image, crash: Crash, damaged: CorruptVariant, staying: Values) -> None:
    """Whoever was told that it is done finds it done, and the backup says what it is for."""
    fs = MemoryFileSystem(image=image, boots=2)
    assert verify(f"/{LOGS}", fs=fs).affected == (), str(crash)
    assert values(fs, damaged) == staying, str(crash)
    assert files_below(image, BACKUP)[MANIFEST], str(crash)


@pytest.mark.parametrize("policy", ["skip", "truncate", "quarantine"])
def test_the_power_may_go_at_any_moment_of_a_repair(policy: str):
    assert lose_power(policy) > 50


@pytest.mark.parametrize("function", ["_copied", "_write_log", "settle"])
def test_a_repair_without_its_syncs_is_found_out(function: str):
    def syncs(site: CallSite) -> bool:
        return site.kind in (SYNC, SYNC_DIRECTORY) and site.function.endswith(function)

    with pytest.raises((AssertionError, pylog.PylogError)):
        lose_power("skip", syncs)
