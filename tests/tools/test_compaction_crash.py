"""What compaction leaves, whole or killed at any moment, is no loss to `verify`, and nothing that `repair` has to do with."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog.directory.checkpoints import CLEANER
from pylog.errors import InvalidArgumentError
from pylog.segment.names import LOG, SEAL, SWAP, file_name
from pylog.testing import MemoryFileSystem, RecordingFileSystem
from pylog.tools.repair import repair
from pylog.tools.verify import Verification, verify
from support.faults.power import image_of, losses

KEYS, COUNT = 3, 16
SUBSETS, CUTS = 0, 0  # nothing and everything of what no sync covers: who sees `.swap` files sees all of them


def filled(path: Path, count: int) -> Path:
    """A store whose log has segments of three records, of most of which compaction leaves nothing."""
    with pylog.open(path) as store:
        store.create_topic("prices", cleanup_policy="compact", segment_bytes=300)
        for number in range(count):
            store.log("prices").append(b"v%d" % number * 5, key=b"k%d" % (number % KEYS))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return filled(tmp_path / "s", COUNT)


@pytest.fixture
def compacted(root: Path) -> Path:
    with pylog.open(root) as store:
        store.compact("prices")
    return root


def told(found: Verification) -> list[tuple[str, str]]:
    return [(each.finding.kind, Path(each.finding.path).name) for each in found.affected]


def values(path: str | Path, fs: MemoryFileSystem | None = None) -> dict[bytes | None, bytes | None]:
    given = {} if fs is None else {"fs": fs, "clock": fs.clock}  # which takes no time to wait for a change that died
    with pylog.open(path, mode="r", **given) as store:
        return {record.key: record.value for record in store.log("prices").records()}


def bases(root: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (root / "prices-0").glob(f"*{LOG}"))


def emptied(root: Path) -> list[int]:
    """The bases of the segments of which nothing is left."""
    return [base for base in bases(root) if not (root / "prices-0" / file_name(base, LOG)).stat().st_size]


@pytest.mark.slow
def test_no_crash_of_a_compaction_is_called_a_loss(tmp_path: Path) -> None:
    root = filled(tmp_path / "s", 2 * KEYS + 1)
    fs = RecordingFileSystem(image=image_of(root, "s"))
    latest = values(root)
    with pylog.open("/s", fs=fs) as store:
        store.compact("prices")
    states = 0
    for crash, image in losses(fs.recording, "compaction", SUBSETS, CUTS):
        left = MemoryFileSystem(image=image, boots=2)
        assert told(verify("/s", fs=left, clock=left.clock)) == [], str(crash)
        assert values("/s", left) == latest, str(crash)
        states += 1
    assert states > 20


def test_seals_of_emptied_segments_that_are_gone_cost_time_and_are_no_loss(compacted: Path) -> None:
    assert len(emptied(compacted)) > 2
    for seal in (compacted / "prices-0").glob(f"*{SEAL}"):
        seal.unlink()
    assert verify(str(compacted)).affected == ()
    with pylog.open(compacted, mode="r") as store:
        assert store.check().ok


def test_a_topic_that_was_compacted_and_is_no_more_may_have_gaps_as_far_as_its_checkpoint_says(compacted: Path) -> None:
    with pylog.open(compacted) as store:
        store.alter_topic("prices", cleanup_policy="delete")
    for seal in (compacted / "prices-0").glob(f"*{SEAL}"):
        seal.unlink()
    assert verify(str(compacted)).affected == ()
    (compacted / CLEANER).unlink()
    assert {kind for kind, _ in told(verify(str(compacted)))} == {"missing"}


def test_a_log_file_that_is_gone_from_a_compacted_topic_is_a_loss_whether_seals_are_there_or_not(compacted: Path) -> None:
    gone = emptied(compacted)[1]
    (compacted / "prices-0" / file_name(gone, LOG)).unlink()
    assert ("missing", file_name(gone, LOG)) in told(verify(str(compacted)))
    for base in set(bases(compacted)):
        (compacted / "prices-0" / file_name(base, SEAL)).unlink(missing_ok=True)
    assert ("missing", file_name(emptied(compacted)[0], LOG)) in told(verify(str(compacted))), (
        "what was derived from it is still there"
    )


# ---- repair ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """A store that compacts nothing, of whose segments one was emptied by somebody."""
    path = tmp_path / "lossy"
    with pylog.open(path) as store:
        store.create_topic("prices", segment_bytes=300)
        for number in range(COUNT):
            store.log("prices").append(b"v%d" % number * 5, key=b"k%d" % number)
    log = path / "prices-0" / file_name(bases(path)[2], LOG)
    other = log.with_name("other")
    other.touch()
    other.rename(log)  # its seal is that of another file, which is deleted
    return path


@pytest.mark.parametrize("policy", ["skip", "quarantine", "truncate"])
def test_records_of_an_emptied_segment_are_filled_there_and_not_in_the_segment_before(lossy: Path, policy: str) -> None:
    gone, following = bases(lossy)[2:4]
    assert ("missing", file_name(gone, LOG)) in told(verify(str(lossy)))
    done = repair(str(lossy), policy, execute=True)
    assert verify(str(lossy)).affected == ()
    assert not any(lost.readable for plan in done.plans for lost in plan.lost) or policy == "truncate"
    kept = [n for n in range(COUNT) if n < gone or (n >= following and policy != "truncate")]
    assert list(values(lossy)) == [b"k%d" % number for number in kept]


@pytest.mark.damaged("it was damaged on purpose")
def test_a_partition_with_a_swap_under_way_is_not_repaired_before_that_is_finished(root: Path) -> None:
    """Its sources are there beside what replaces them: taken for damage, the records would go twice."""
    with pylog.open(root) as store:
        store.compact("prices")
    directory = root / "prices-0"
    seal = directory / file_name(0, SEAL)
    seal.rename(seal.with_name(seal.name + SWAP))
    (directory / "leader-epoch-checkpoint").write_bytes(b"rubbish")
    with pytest.raises(InvalidArgumentError, match="open the partition for writing once"):
        repair(str(root), "skip")
    with pylog.open(root) as store:
        store.log("prices")
    repair(str(root), "skip", execute=True)
    assert verify(str(root)).affected == ()
