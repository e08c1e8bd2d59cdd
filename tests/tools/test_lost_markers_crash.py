"""A repair that loses markers of transactions, on a disk that loses power: committed readers see no record of an aborted or
undecided transaction, and each committed one that the repair keeps, in every state, whoever opens it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pytest

import pylog
from pylog.config import Durability
from pylog.fs import FileSystem
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, POSITION, SIZE
from pylog.testing import Crash, MemoryFileSystem, RecordingFileSystem
from pylog.testing.disk import Image
from pylog.tools.repair import Repair, repair
from pylog.tools.verify import verify
from support.campaign.crashing import bury
from support.campaign.workloads import clock, quiet
from support.faults.power import files_below, losses, losses_behind
from support.faults.repairs import Values, without
from support.transactional import FEW

LOGS: Final = "logs"
PARTITION: Final = "out-0"
SUBSETS, CUTS = 1, 1  # beside nothing and everything


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def opened(fs: MemoryFileSystem, mode: str = "rw") -> pylog.Store:
    return pylog.open(f"/{LOGS}", mode, fs=fs, clock=fs.clock, durability=Durability.SYNC, **FEW if mode == "rw" else {})


def written() -> Image:
    """Segments of five batches with transactions that span them: of a and b committed ones, of c an aborted one."""
    fs = MemoryFileSystem(clock=clock())
    with opened(fs) as store:
        store.create_topic("out", segment_bytes=400, retention_ms=-1)
        a, b, c = (store.transaction(name) for name in "abc")
        for number in range(2):
            for transaction, value in ((a, b"a%d"), (b, b"b%d"), (c, b"bad %d")):
                put(transaction, value % number)
        store.log("out").append(b"plain")
        put(a, b"a2")
        put(b, b"b2")
        a.commit()
        c.abort()
        with store.transaction("d") as d:
            for number in range(3):
                put(d, b"d%d" % number)
        b.commit()
        with store.transaction("a") as a:
            put(a, b"e")
        store.log("out").append(b"plain")
    return fs.image()


def put(transaction: pylog.Transaction, value: bytes) -> None:
    """Writes a batch of one record."""
    transaction.append("out", value, partition=0)
    transaction.flush()


def damaged(image: Image, offset: int) -> Image:
    """The disk with a flipped bit in the batch of an offset."""
    for path, data in files_below(image, LOGS).items():
        if path.startswith(f"{PARTITION}/") and path.endswith(".log"):
            table = scan_batches(np.frombuffer(data, np.uint8)).table
            for batch in np.flatnonzero(table[BASE_OFFSET] == offset).tolist():
                number = next(number for number, content in image.files.items() if content == data)
                changed = bytearray(data)
                changed[int(table[POSITION, batch] + table[SIZE, batch]) - 1] ^= 1
                return image._replace(files={**image.files, number: bytes(changed)})
    raise AssertionError(f"no batch has offset {offset}")


def committed(fs: MemoryFileSystem, mode: str) -> Values:
    """What committed readers see between the damages, when the store is open in that mode."""
    found, seen = verify(f"/{LOGS}/{PARTITION}", fs=fs).readable, Values()
    store = opened(fs, mode)
    try:
        log = store.log("out")
        for first, last in found[0].ranges if found else [(log.start_offset, log.end_offset - 1)]:
            records = log.records(first, last + 1, isolation_level="read_committed")
            seen.update({record.offset: record.value for record in records})
    finally:
        bury(store)
    return seen


def committed_after(image: Image, mode: str) -> Values | None:
    """The same on a disk after a crash. None if readers are told that a marker is damaged, and its outcome unknown."""
    fs = MemoryFileSystem(image=image, boots=2, clock=clock())
    try:
        return committed(fs, mode)
    except pylog.CorruptionError:
        damages = [each for each in verify(f"/{LOGS}/{PARTITION}", fs=fs).affected if each.finding.kind == "corrupt"]
        return None if damages else {}


class Case(NamedTuple):
    """A repair: its policy, the damaged offset, the outcome of markers that cannot be read, and whether such a one is damaged."""

    policy: str
    offset: int
    outcome: str = "abort"
    is_of_a_marker: bool = False

    def repaired(self, fs: FileSystem, backup: str = "backup") -> Repair:
        return repair(f"/{LOGS}", self.policy, execute=True, lost_markers=self.outcome, backup=f"/{backup}", fs=fs, clock=clock())


CASES: Final = [
    Case("truncate", 4),
    Case("truncate", 8),
    Case("quarantine", 12),
    Case("skip", 10, is_of_a_marker=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.policy} {case.offset}")
def test_the_power_may_go_at_any_moment_of_a_repair_that_loses_markers(case: Case) -> None:
    whole = committed(MemoryFileSystem(image=written(), clock=clock()), "r")
    fs = RecordingFileSystem(image=damaged(written(), case.offset), clock=clock())
    done = case.repaired(fs)
    assert done.plans[0].markers
    kept = without(whole, done)
    assert committed(fs.process(), "r") == kept
    judged: set[int] = set()
    for crash, image in losses(fs.recording, str(case), SUBSETS, CUTS):
        if (digest := hash(tuple(sorted(files_below(image, LOGS).items())))) not in judged:
            judged.add(digest)
            judge(image, case, crash, whole, kept)
    for crash, image in losses_behind(fs.recording):
        assert committed(MemoryFileSystem(image=image, boots=2, clock=clock()), "rw") == kept, str(crash)
    assert len(judged) > 5


def judge(image: Image, case: Case, crash: Crash, whole: Values, kept: Values) -> None:
    for mode in ("r", "rw"):
        seen = committed_after(image, mode)
        if seen is None:
            assert case.is_of_a_marker, (mode, str(crash))
            continue
        assert seen.items() <= whole.items(), (mode, str(crash))
        assert kept.items() <= seen.items(), (mode, str(crash))
    fs = MemoryFileSystem(image=image, boots=2, clock=clock())
    case.repaired(fs, "second")
    assert committed(fs, "r") == kept, str(crash)
