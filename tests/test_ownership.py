"""Modes and owners of what pylog creates: the umask's, and in the directory of another owner that owner's, on every route."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog.fs import OsFileSystem, join, write_atomically
from pylog.staging.file import StagingFile
from pylog.tools.graduate import carry_out, plan_graduation
from pylog.tools.repair import repair

AS_ROOT = os.geteuid() == 0  # nobody else may give a directory to another owner: then all stays with this one
OWNER, GROUP = (12345, 23456) if AS_ROOT else (os.geteuid(), os.getegid())
AS_OWNER = f"""
import os, sys, pylog
_, place, root = sys.argv
with pylog.open(place + "/first") as store:  # all modules are there before other users' files cannot be read
    store.create_topic("t")
    store.log("t").append(b"")
    store.verify()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({GROUP})
    os.setuid({OWNER})
with pylog.open(root) as store:
    print(store.log("t").append(b"by the owner"), store.verify().ok)
"""


@pytest.fixture
def mask_027() -> Iterator[int]:
    """Neither the usual mask nor that of the directories below: what follows from which is told apart."""
    old = os.umask(0o027)
    yield 0o027
    os.umask(old)


def use_everything(root: Path) -> None:
    """Exercises what creates files: topics, rolls, cuts, compaction, producers, groups, staging, damage, repair, graduation."""
    with pylog.open(root) as store:
        store.create_topic("t", partition_count=2, segment_bytes=300)
        store.create_topic("prices", cleanup_policy="compact", segment_bytes=300)
        store.create_topic("gone")
        log, prices = store.log("t"), store.log("prices")
        for number in range(20):
            log.append(b"value %d" % number)
            prices.append(b"%d" % number, key=b"k%d" % (number % 3))
        with store.producer(enable_idempotence=True) as producer:
            producer.send("t", b"from a producer", partition=1)
        log.delete_records(5)
        log.truncate(12)
        store.compact("prices")
        store.alter_topic("t", retention_ms=1_000_000_000_000)
        store.add_partitions("t", 3)
        with store.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.poll(timeout_ms=0)
            consumer.commit()
        store.delete_topic("gone")
        store.tick()
    staged = StagingFile(OsFileSystem(), str(root), "pylog-staging-0-0-0.tmp")
    staged.finish({}, durable=True)
    damage(root / "t-0")
    assert repair(str(root), "skip", execute=True, backup=str(root.parent / "backup")).plans
    with pylog.open(root) as store:
        store.log("t").append(b"after the repair")
    carry_out(plan_graduation(str(root), node_id=1))


def damage(partition: Path) -> None:
    first = min(partition.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-5] ^= 0xFF
    first.write_bytes(data)


def give_away(path: Path) -> None:
    if AS_ROOT:
        os.chown(path, OWNER, GROUP)


def all_below(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path in sorted(root.rglob("*")):
        yield str(path.relative_to(root)), path.lstat()


@pytest.mark.slow
def test_everything_that_pylog_creates_follows_the_umask(tmp_path: Path, mask_027: int) -> None:
    use_everything(tmp_path / "data")
    found = dict(all_below(tmp_path))
    assert len(found) > 40
    wrong = {
        name: stat.filemode(seen.st_mode)
        for name, seen in found.items()
        if stat.S_IMODE(seen.st_mode) & 0o777 != (0o777 if stat.S_ISDIR(seen.st_mode) else 0o666) & ~mask_027
    }
    assert not wrong


@pytest.mark.slow
@pytest.mark.pair("broker's directory", "compaction")
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700])
def test_files_that_root_creates_in_the_directory_of_another_owner_are_that_owners(
    tmp_path: Path, mask_027: int, mode: int
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    give_away(home)
    use_everything(home / "data")
    found = dict(all_below(home))
    assert len(found) > 40
    bits = mode if AS_ROOT else 0o777 & ~mask_027
    wrong = {
        name: (seen.st_uid, seen.st_gid, stat.filemode(seen.st_mode))
        for name, seen in found.items()
        if (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode) & 0o777)
        != (OWNER, GROUP, bits if stat.S_ISDIR(seen.st_mode) else bits & 0o666)
    }
    assert not wrong


@pytest.mark.slow
@pytest.mark.pair("broker's directory", "second process")
def test_the_owner_of_a_directory_goes_on_where_root_has_written() -> None:
    with tempfile.TemporaryDirectory() as place:  # not below directories of root's that the owner cannot enter
        root = Path(place) / "data"
        give_away(Path(place))
        with pylog.open(root) as store:
            store.create_topic("t", segment_bytes=200)
            for number in range(10):
                store.log("t").append(b"by root %d" % number)
        program = [sys.executable, "-c", AS_OWNER, place, str(root)]
        done = subprocess.run(program, check=False, capture_output=True, text=True)
        assert done.stdout.split() == ["10", "True"], done.stderr


@pytest.mark.parametrize(("uid", "kept"), [(OWNER, True), (999, True), (0, False)])
def test_a_file_that_is_replaced_keeps_its_owner_and_mode_unless_root_left_it(tmp_path: Path, uid: int, kept: bool) -> None:
    tmp_path.chmod(0o755)
    give_away(tmp_path)
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    path.chmod(0o640)
    if AS_ROOT:
        os.chown(path, uid, GROUP)
    write_atomically(OsFileSystem(), str(tmp_path), path.name, b"new")
    seen = path.stat()
    owner = uid if kept and AS_ROOT else OWNER
    assert (path.read_bytes(), seen.st_uid, seen.st_gid) == (b"new", owner, GROUP)
    assert stat.S_IMODE(seen.st_mode) == (0o640 if kept or not AS_ROOT else 0o644)


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, mask_027: int) -> None:
    del mask_027
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    path.chmod(0o604)
    write_atomically(OsFileSystem(), str(tmp_path), path.name, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o604)


def test_no_link_in_the_place_of_a_new_file_or_of_one_that_is_renamed_leads_to_another_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"somebody's")
    other.chmod(0o600)
    (tmp_path / "name").write_bytes(b"old")
    (tmp_path / "name").chmod(0o666)
    os.link(other, tmp_path / "name.tmp")
    OsFileSystem().rename(join(str(tmp_path), "name.tmp"), join(str(tmp_path), "name"))
    assert stat.S_IMODE(other.stat().st_mode) == 0o600
    os.symlink(other, tmp_path / "new")
    with pytest.raises(pylog.StorageFailedError):
        OsFileSystem().create(join(str(tmp_path), "new"))
    assert other.read_bytes() == b"somebody's"
