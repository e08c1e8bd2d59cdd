"""`tools.repair` on a disk that loses power: whatever it leaves, nothing is lost, and repairing again finishes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

import pylog
from pylog.testing import Crash, MemoryFileSystem, Moment, Recording, RecordingFileSystem
from pylog.testing.disk import Image
from pylog.testing.memory import SYNC, SYNC_DIRECTORY
from pylog.testing.recording import CallSite, Without
from pylog.tools.backup import MANIFEST
from pylog.tools.repair import Repair, repair
from pylog.tools.verify import verify
from support.faults.power import files_below, image_of, losses, losses_behind
from support.faults.repairs import Values, variant, without, written
from support.golden.data import CorruptVariant

LOGS: Final = "logs"
BACKUP: Final = "backup"
SUBSETS, CUTS = 1, 1  # beside nothing and everything: drawn again at each of some forty moments


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
    """A repair that was reported as done is done, and its backup says what it is for."""
    fs = MemoryFileSystem(image=image, boots=2)
    assert verify(f"/{LOGS}", fs=fs).affected == (), str(crash)
    assert values(fs, damaged) == staying, str(crash)
    assert files_below(image, BACKUP)[MANIFEST], str(crash)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "truncate", "quarantine"])
def test_the_power_may_go_at_any_moment_of_a_repair(policy: str):
    assert lose_power(policy) > 50


@pytest.mark.slow
@pytest.mark.parametrize("function", ["copy_file", "_write_log", "settle"])
def test_a_repair_without_its_syncs_is_found_out(function: str):
    def syncs(site: CallSite) -> bool:
        return site.kind in (SYNC, SYNC_DIRECTORY) and site.function.endswith(function)

    with pytest.raises((AssertionError, pylog.PylogError)):
        lose_power("skip", syncs)


# ---- a partition that is emptied ---------------------------------------------------------------------------------------------


def brokers() -> tuple[Image, str, int]:
    """A broker's damaged partition: a disk, its directory, and its end."""
    damaged = variant("flip-crc-middle")
    return image_of(damaged.log_directory, LOGS), damaged.pristine.tp, 205


def own() -> tuple[Image, str, int]:
    """A partition of pylog's, of some segments, with the header that a clean shutdown leaves."""
    fs = MemoryFileSystem()
    with pylog.open(f"/{LOGS}", fs=fs) as store:
        store.create_topic("orders", segment_bytes=200)
        for number in range(12):
            store.log("orders").append(b"%d" % number * 20)
    return fs.image(), "orders-0", 12


def emptied(fs: MemoryFileSystem, tp: str, backup: str = BACKUP) -> None:
    repair(f"/{LOGS}/{tp}", "quarantine", execute=True, whole=True, backup=f"/{backup}", fs=fs)


def next_offset(fs: MemoryFileSystem, tp: str) -> int | None:
    """The offset that the next record gets, None where writing is refused."""
    with pylog.open(f"/{LOGS}", fs=fs) as store:
        try:
            return store.log(tp.removesuffix("-0")).append(b"next")
        except pylog.PylogError:
            return None


def judge_emptied(image: Image, boots: int, tp: str, end: int, told: str) -> None:
    """Nobody who comes then uses an offset again, and the next repair finishes it."""
    assert next_offset(MemoryFileSystem(image=image, boots=boots), tp) in (None, end), told
    fs = MemoryFileSystem(image=image, boots=boots)
    emptied(fs, tp, f"{BACKUP}.second")
    assert verify(f"/{LOGS}", fs=fs).affected == (), told
    with pylog.open(f"/{LOGS}", mode="r", fs=fs) as store:
        log = store.log(tp.removesuffix("-0"))
        assert (log.start_offset, log.end_offset) == (end, end), told
    assert next_offset(fs, tp) == end, told


def kills(recording: Recording) -> Iterator[tuple[Crash, Image]]:
    """The state behind each step, as the death of the process leaves it."""
    for after in range(1, len(recording) + 1):
        moment = Moment.of(recording, after)
        for crash in moment.deaths(random.Random(after), 1):
            yield crash, moment.state(crash)[1]


@pytest.mark.slow
@pytest.mark.parametrize("made", [brokers, own])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_partition_whose_emptying_is_cut_short_anywhere_keeps_its_end_and_is_emptied_by_the_next_run(
    made: Callable[[], tuple[Image, str, int]], power: bool
):
    image, tp, end = made()
    fs = RecordingFileSystem(image=image)
    emptied(fs, tp)
    judged: list[dict[str, bytes]] = []
    for crash, left in losses(fs.recording, tp, SUBSETS, CUTS) if power else kills(fs.recording):
        if (there := files_below(left, LOGS)) not in judged:  # most steps write the backup
            judged.append(there)
            judge_emptied(left, 1 + power, tp, end, str(crash))
    assert len(judged) > 10
