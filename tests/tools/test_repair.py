"""`tools.repair`: afterwards nothing is wrong, nothing that could be read is lost, and everything is still there as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.errors import InvalidArgumentError, PylogError, StoreLockedError
from pylog.fs import FileSystem, OsFileSystem
from pylog.fs.system import OsFile
from pylog.record.batch import scan_batches
from pylog.record.format import ATTRIBUTES, CONTROL_BIT, POSITION, SIZE
from pylog.testing import FaultyFileSystem
from pylog.tools import repair as repairing
from pylog.tools.backup import MANIFEST
from pylog.tools.pieces import EmptyBatch, KeptBytes
from pylog.tools.repair import repair
from pylog.tools.verify import verify
from support.faults.repairs import Values, variant, without, written
from support.golden import data as golden_data
from support.golden.data import CorruptVariant

TELLING = [
    "flip-payload-middle",
    "flip-baseoffset-high-last",
    "length-zero-last",
    "cut-middle-segment",
    "cut-to-empty",
    "zero-tail",
    "repeat-last-batch",
    "first-segment-missing",
    "middle-segment-missing",
    "no-indexes-at-all",
    "snapshot-flip",
    "epoch-garbage",
]


class Unsynced(OsFileSystem):
    """Files that nobody needs after the test."""

    def sync_directory(self, path: str) -> None:
        """Nothing is at stake."""

    def create(self, path: str) -> OsFile:
        made = super().create(path)
        made.sync = lambda: None  # type: ignore[method-assign]
        return made


def held(root: Path, damaged: CorruptVariant) -> Values:
    """Everything that a consumer gets who starts at the beginning."""
    with pylog.open(root, mode="r") as store:
        log = store.log(damaged.pristine.topic, damaged.pristine.partition)
        return {record.offset: record.value for record in log.records()}


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def kept_locks(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if name not in (".lock", "pylog.lock")}


@pytest.mark.slow
def test_skip_repairs_every_damaged_copy_and_loses_nothing_that_could_be_read(tmp_path: Path):
    for damaged in golden_data.corrupt_variants():
        if damaged.base != "mixed-codecs":
            continue
        root = damaged.copy(tmp_path / damaged.variant)
        done = repair(str(root), "skip", execute=True, fs=Unsynced())
        after = verify(str(root))
        assert (after.exit_code, after.affected) == (0, ()), damaged.id
        assert not any(lost.readable for plan in done.plans for lost in plan.lost), damaged.id
        assert held(root, damaged) == without(written(damaged), done), damaged.id


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["truncate", "quarantine"])
def test_the_other_policies_lose_what_they_say_and_leave_nothing_wrong(tmp_path: Path, policy: str):
    for name in TELLING:
        damaged = variant(name)
        root = damaged.copy(tmp_path / name)
        done = repair(str(root), policy, execute=True, fs=Unsynced())
        after = verify(str(root))
        assert (after.exit_code, after.affected) == (0, ()), damaged.id
        assert held(root, damaged) == without(written(damaged), done), damaged.id


def test_truncate_says_which_readable_records_it_costs(tmp_path: Path):
    (plan,) = repair(str(variant("flip-crc-middle").copy(tmp_path / "data")), "truncate").plans
    assert [tuple(lost) for lost in plan.lost] == [(139, 147, False), (148, 204, True)]
    assert (plan.end_offset, plan.new_end_offset) == (205, 139)
    assert any("offsets 148 to 204 are lost, ALTHOUGH THEY CAN BE READ NOW" in told for told in plan.sentences())


def test_an_empty_batch_stands_where_records_are_gone(tmp_path: Path):
    (plan,) = repair(str(variant("flip-crc-middle").copy(tmp_path / "data")), "skip").plans
    (segment,) = plan.segments
    assert segment.pieces == (KeptBytes(0, 1993), EmptyBatch(139, 147, 0), KeptBytes(2321, 3949 + 145))
    assert plan.new_end_offset == plan.end_offset


def test_a_plan_changes_nothing_and_locks_nothing(tmp_path: Path):
    root = variant("flip-crc-last").copy(tmp_path / "data")
    before = files(root)
    assert repair(str(root), "skip").backup is None
    assert files(tmp_path / "data") == before
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("policy", ["skip", "truncate", "quarantine"])
def test_the_backup_holds_every_file_that_was_touched_as_it_was(tmp_path: Path, policy: str):
    damaged = variant("cut-middle-segment")
    root = damaged.copy(tmp_path / "data")
    before = files(root)
    done = repair(str(root), policy, execute=True, backup=str(tmp_path / "backup"))
    after, backup = files(root), files(tmp_path / "backup")
    touched = {name for name in before if after.get(name) != before[name]}
    assert touched <= set(backup)
    assert {name: data for name, data in backup.items() if name != MANIFEST}.items() <= before.items()
    assert done.backup == str(tmp_path / "backup")
    assert f"{damaged.pristine.tp}: {policy}".encode() in backup[MANIFEST]


def test_copying_the_backup_back_undoes_a_repair(tmp_path: Path):
    damaged = variant("zero-hole")
    root = damaged.copy(tmp_path / "data")
    repair(str(root), "truncate", execute=True, backup=str(tmp_path / "backup"))
    shutil.copytree(tmp_path / "backup", root, dirs_exist_ok=True)
    assert verify(str(root)).affected[0][1:3] == verify(str(damaged.log_directory)).affected[0][1:3]


def test_a_whole_partition_can_be_taken_out_and_goes_on_at_its_end(tmp_path: Path):
    damaged = variant("flip-crc-middle")
    root = damaged.copy(tmp_path / "data")
    repair(str(root / damaged.pristine.tp), "quarantine", execute=True, whole=True)
    assert verify(str(root)).affected == ()
    with pylog.open(root) as store:
        log = store.log(damaged.pristine.topic)
        assert (log.start_offset, log.append(b"next")) == (205, 205)


@pytest.mark.parametrize("policy", ["skip", "truncate", "quarantine"])
def test_writing_goes_on_after_a_repair(tmp_path: Path, policy: str):
    damaged = variant("flip-payload-last")
    root = damaged.copy(tmp_path / "data")
    (plan,) = repair(str(root), policy, execute=True).plans
    with pylog.open(root) as store:
        assert store.log(damaged.pristine.topic).append(b"next") == plan.new_end_offset
    assert verify(str(root)).ok


@pytest.mark.slow
def test_a_store_of_pylogs_own_is_repaired_with_its_seals_and_headers(tmp_path: Path):
    root = tmp_path / "shop"
    with pylog.open(root) as store:
        store.create_topic("orders", segment_bytes=400, index_interval_bytes=100)
        for number in range(30):
            store.log("orders").append(b"%03d" % number * 10, timestamp=number)
        segments = [Path(segment.path) for segment in store.log("orders").segments]
    for path in (segments[1], segments[-1]):
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
    before = {offset for first, last in verify(str(root)).readable[0].ranges for offset in range(first, last + 1)}
    assert len(before) == 28
    repair(str(root), "skip", execute=True)
    assert verify(str(root)).affected == ()
    with pylog.open(root) as store:
        log = store.log("orders")
        assert {record.offset for record in log.records()} == before
        assert log.append(b"next") == 30


def test_a_directory_that_another_process_writes_to_is_refused(tmp_path: Path):
    damaged = variant("flip-crc-last")
    root = damaged.copy(tmp_path / "data")
    with pylog.open(root):
        with pytest.raises(StoreLockedError):
            repair(str(root), "skip", execute=True)
        assert repair(str(root), "skip").plans
    locks = OsFileSystem().open_locks(str(root / ".lock"))
    locks.try_lock(0, 0, exclusive=True)
    with pytest.raises(StoreLockedError, match="Kafka broker"):
        repair(str(root), "skip", execute=True)
    locks.close()
    assert kept_locks(files(root / damaged.pristine.tp)) == files(damaged.directory)


def test_a_backup_in_the_way_of_a_broker_or_of_another_backup_is_refused(tmp_path: Path):
    root = variant("flip-crc-last").copy(tmp_path / "data")
    with pytest.raises(InvalidArgumentError, match="no broker starts with it there"):
        repair(str(root), "skip", execute=True, backup=str(root / "backup"))
    (tmp_path / "there").mkdir()
    with pytest.raises(InvalidArgumentError, match="already exists"):
        repair(str(root), "skip", execute=True, backup=str(tmp_path / "there"))


def test_a_policy_that_is_none_and_more_than_one_whole_partition_are_refused(tmp_path: Path):
    root = variant("flip-crc-last").copy(tmp_path / "data")
    shutil.copytree(root / "mixed-codecs-0", root / "mixed-codecs-1")
    with pytest.raises(InvalidArgumentError, match="policy='mend'"):
        repair(str(root), "mend")
    with pytest.raises(InvalidArgumentError, match="one partition"):
        repair(str(root), "quarantine", whole=True)
    with pytest.raises(InvalidArgumentError, match="one partition"):
        repair(str(root / "mixed-codecs-0"), "skip", whole=True)


def test_damage_before_the_logs_start_does_not_make_truncate_empty_the_log(tmp_path: Path):
    damaged = variant("flip-crc-middle")
    root = damaged.copy(tmp_path / "data")
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\n{damaged.pristine.topic} 0 160\n")
    with pytest.raises(InvalidArgumentError, match=r"is before the log start offset 160.*use skip"):
        repair(str(root), "truncate")
    repair(str(root), "skip", execute=True)
    assert verify(str(root)).ok


def test_a_partition_that_cannot_be_read_is_left_alone_and_the_others_are_repaired(tmp_path: Path):
    damaged = variant("flip-crc-last")
    root = damaged.copy(tmp_path / "data")
    shutil.copytree(root / damaged.pristine.tp, root / "other-0")
    log = root / "other-0" / "00000000000000000114.log"
    log.unlink()
    log.symlink_to("elsewhere")
    done = repair(str(root), "skip", execute=True)
    assert [refused.target.key.topic for refused in done.refused] == ["other"]
    assert verify(str(root / damaged.pristine.tp)).ok


@pytest.mark.parametrize("policy", ["skip", "truncate", "quarantine"])
@pytest.mark.parametrize("execute", [False, True])
def test_a_bad_sector_is_named_and_nothing_of_its_partition_is_changed(tmp_path: Path, policy: str, execute: bool):
    """Also where everything else is damaged too; other partitions are repaired."""
    damaged = variant("flip-crc-last")
    root = damaged.copy(tmp_path / "data")
    shutil.copytree(root / damaged.pristine.tp, root / "other-0")
    bad = root / damaged.pristine.tp / "00000000000000000114.log"
    before = files(bad.parent)
    faulty = FaultyFileSystem(OsFileSystem())
    faulty.fail("read EIO", of=f"{damaged.pristine.tp}/{bad.name}", forever=True)
    with pytest.raises(InvalidArgumentError, match=f"{bad}.*EIO.*an unreadable file cannot be repaired"):
        repair(str(bad.parent), policy, execute=execute, fs=faulty)
    done = repair(str(root), policy, execute=execute, fs=faulty)
    assert [(refused.target.directory, str(bad) in refused.why) for refused in done.refused] == [(str(bad.parent), True)]
    assert [plan.target.key.topic for plan in done.plans] == ["other"]
    assert files(bad.parent) == before
    assert verify(str(root / "other-0")).ok == execute


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "truncate"])
@pytest.mark.parametrize("fault", ["write ENOSPC", "create ENOSPC", "rename EIO", "remove EIO", "sync EIO", "sync_directory EIO"])
def test_a_repair_that_fails_anywhere_is_finished_by_the_next_one(tmp_path: Path, policy: str, fault: str):
    """What is to stay can be read all the time, and after another try nothing is wrong."""
    damaged = variant("cut-middle-segment")
    staying = without(written(damaged), repair(str(damaged.log_directory), policy))
    failed = 0
    for number in range(1, 100, 4):
        root = damaged.copy(tmp_path / str(number))
        faulty = FaultyFileSystem(OsFileSystem())
        faulty.fail(fault, number)
        try:
            repair(str(root), policy, execute=True, fs=faulty)
            assert not faulty.fired or fault == "write ENOSPC"  # without room, optional files are left out
        except PylogError:
            failed += 1
            assert staying.items() <= readable(root, damaged).items(), number
            repair(str(root), policy, execute=True, backup=f"{root}.second")
        assert verify(str(root)).affected == (), number
        assert held(root, damaged) == staying, number
        if not faulty.fired:
            break
    assert failed


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "truncate"])
def test_a_read_that_fails_once_costs_no_record_that_a_repair_keeps(tmp_path: Path, policy: str):
    """It stops the repair, or what it was for is worked out otherwise."""
    damaged = variant("cut-middle-segment")
    staying = without(written(damaged), repair(str(damaged.log_directory), policy))
    failed = 0
    for number in range(1, 100, 7):
        root = damaged.copy(tmp_path / str(number))
        faulty = FaultyFileSystem(OsFileSystem())
        faulty.fail("read EIO", number)
        try:
            repair(str(root), policy, execute=True, fs=faulty)
        except PylogError:
            failed += 1
            assert staying.items() <= readable(root, damaged).items(), number
            repair(str(root), policy, execute=True, backup=f"{root}.second")
        assert faulty.fired, number
        assert verify(str(root)).affected == (), number
        assert held(root, damaged) == staying, number
    assert failed


def readable(root: Path, damaged: CorruptVariant) -> Values:
    """What can be read between the damages."""
    (found,) = verify(str(root)).readable or (None,)
    if found is None:
        return held(root, damaged)
    with pylog.open(root, mode="r") as store:
        log = store.log(damaged.pristine.topic)
        return {offset: value for first, last in found.ranges for offset, value in between(log, first, last)}


def between(log: pylog.Log, first: int, last: int) -> list[tuple[int, bytes | None]]:
    frames = log.scan(first, last + 1, columns=("offset", "value"))
    return [(row["offset"], row["value"]) for frame in frames for row in frame.to_pylist()]


# ---- links -----------------------------------------------------------------------------------------------------------------


def test_a_linked_partition_is_not_repaired_while_another_process_writes_it(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders")
        store.log("orders").append_many([b"a"] * 10)
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "orders-0").symlink_to(tmp_path / "shop" / "orders-0")
        with pytest.raises(StoreLockedError):
            repair(str(tmp_path / "home" / "orders-0"), "quarantine", execute=True, whole=True)
        assert store.log("orders").append(b"b") == 10
        assert len(list(store.log("orders").records())) == 11
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["orders-0"]


def test_a_backup_does_not_get_into_the_log_directory_through_a_link(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders")
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    with pytest.raises(InvalidArgumentError, match="is inside"):
        repair(str(tmp_path / "shop"), "skip", execute=True, backup=str(tmp_path / "link" / "backup"))
    assert not (tmp_path / "shop" / "backup").exists()


# ---- transactions ----------------------------------------------------------------------------------------------------------


def aborted(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.txnindex")}


def spoil_a_record(path: Path) -> None:
    """Flips a bit in the third batch, or a later one that is no marker."""
    data = bytearray(path.read_bytes())
    table = scan_batches(np.frombuffer(bytes(data), np.uint8)).table
    batch = next(at for at in range(2, table.shape[1]) if not table[ATTRIBUTES, at] & CONTROL_BIT)
    data[int(table[POSITION, batch] + table[SIZE, batch]) - 1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("number", range(4))
def test_a_repair_that_is_killed_never_leaves_a_segment_that_stays_without_its_aborted_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A broker would take them for committed."""
    (golden,) = (each for each in golden_data.case("4.3.0", "txn").partitions if each.tp == "txn-0")
    directory = tmp_path / "data" / "txn-0"
    shutil.copytree(golden.directory, directory)
    first, *_ = sorted(directory.glob("*.log"))
    spoil_a_record(first)
    before = {name: data for name, data in aborted(directory).items() if not name.startswith(first.stem)}
    assert len(before) == 3
    write, left = repairing.write_atomically, number

    def die(fs: FileSystem, path: str, name: str, data: bytes) -> None:
        nonlocal left
        if name.endswith(".txnindex"):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        write(fs, path, name, data)

    monkeypatch.setattr(repairing, "write_atomically", die)
    with pytest.raises(KeyboardInterrupt):
        repair(str(tmp_path / "data"), "skip", execute=True)
    assert aborted(directory).items() >= before.items()
