"""`tools.verify` on damaged copies of what a broker wrote: the right file, position and offsets, and what to do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import pylog
from pylog.errors import InvalidArgumentError, NotALogDirectoryError, StorageFailedError
from pylog.fs import OsFileSystem
from pylog.tools.verify import DAMAGED, SOUND, UNREADABLE, Affected, verify
from support.campaign.lying_files import batches_of
from support.cli import call
from support.golden import data as golden_data
from support.golden.data import CorruptVariant

BATCH = re.compile(r"batch \d+ at (\d+)")
TORN = {"zero-tail", "zero-tail-16", "garbage-tail", "garbage-tail-11", "repeat-last-batch"}
HARMLESS = {"index-preallocated", "index-cut", *TORN}


def variant(name: str, base: str = "mixed-codecs") -> CorruptVariant:
    return next(found for found in golden_data.corrupt_variants() if (found.base, found.variant) == (base, name))


def only(found: tuple[Affected, ...]) -> Affected:
    (one,) = found
    return one


@pytest.mark.slow
def test_every_damaged_copy_is_reported_by_file_position_and_offsets():
    for damaged in golden_data.corrupt_variants():
        found = verify(str(damaged.directory))
        assert (found.exit_code == SOUND) == (damaged.variant in HARMLESS), damaged.id
        place = BATCH.search(damaged.done)
        if place is not None:
            told = only(found.affected)
            assert (Path(told.finding.path).name, told.finding.position) == (damaged.file, int(place[1])), damaged.id
            assert told.first_offset is not None
            assert told.last_offset is not None
            lost = range(told.first_offset, told.last_offset + 1)
            expected = {record["offset"] for record in damaged.pristine.expected()}
            readable = {offset for first, last in only_readable(found) for offset in range(first, last + 1)}
            assert readable == expected - set(lost), damaged.id


def only_readable(found: object) -> tuple[tuple[int, int], ...]:
    (one,) = found.readable  # type: ignore[attr-defined]
    return one.ranges  # type: ignore[no-any-return]


class Withheld(OsFileSystem):
    """Files of one name may not be read by this user."""

    def read(self, path: str, limit: int) -> bytes | None:
        if path.endswith("partition.metadata"):
            raise StorageFailedError(f"cannot open {path}: Permission denied", path=path, errno=13)
        return super().read(path, limit)


def test_a_topic_id_without_read_permission_is_unreadable_and_no_repair_is_advised(tmp_path: Path):
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
    metadata = tmp_path / "s" / "t-0" / "partition.metadata"
    found = verify(str(tmp_path / "s"), fs=Withheld())
    assert found.exit_code == UNREADABLE
    assert {(each.finding.kind, each.finding.path) for each in found.affected} == {("unreadable", str(metadata))}
    assert "copy the directory elsewhere first" in found.affected[0].advice


@pytest.mark.slow
def test_directories_of_brokers_are_sound():
    for case in golden_data.cases("4.3.0"):
        if case.partitions and case.name != "unclean":
            found = verify(str(case.log_directory))
            assert (found.exit_code, found.affected) == (SOUND, ()), case.name
            assert {result.verdict for result in found.files} <= {"good"}


@pytest.mark.parametrize(
    ("name", "file", "offsets", "kind"),
    [
        ("middle-segment-missing", "00000000000000000114.log", (114, 170), "missing"),
        ("first-segment-missing", "00000000000000000000.log", (0, 57), "missing"),
        ("cut-middle-segment", "00000000000000000114.log", (166, 170), "corrupt"),
        ("cut-at-batch", "00000000000000000171.log", (203, None), "missing"),
        ("index-garbage", "00000000000000000114.index", (None, None), "derived"),
        ("snapshot-flip", "00000000000000000205.snapshot", (None, None), "derived"),
        ("zero-tail", "00000000000000000171.log", (None, None), "torn"),
    ],
)
def test_missing_derived_and_torn_files_are_distinguished(
    name: str, file: str, offsets: tuple[int | None, int | None], kind: str
):
    found = verify(str(variant(name).log_directory))
    told = only(found.affected)
    assert (Path(told.finding.path).name, told.finding.kind) == (file, kind)
    assert (told.first_offset, told.last_offset) == offsets
    assert {Path(result.path).name for result in found.files if result.verdict != "good"} == {file}


def test_advice_names_the_repair_and_the_directory():
    damaged = variant("flip-crc-last")
    told = only(verify(str(damaged.log_directory)).affected)
    assert f"pylog repair skip {damaged.directory}" in told.advice
    assert "nothing is lost" in only(verify(str(variant("no-index").directory)).affected).advice


def test_a_single_file_can_be_verified():
    damaged = variant("flip-crc-middle")
    found = verify(str(damaged.directory / damaged.file))
    told = only(found.affected)
    assert (told.first_offset, told.last_offset, found.exit_code) == (139, 147, DAMAGED)
    assert only_file(found.files) == (str(damaged.directory / damaged.file), "corrupt")
    assert verify(str(next(damaged.pristine.directory.glob("*.log")))).ok


def only_file(files: tuple[object, ...]) -> tuple[str, str]:
    (one,) = files
    return one.path, one.verdict  # type: ignore[attr-defined]


def test_a_directory_that_is_called_otherwise_can_be_verified(tmp_path: Path):
    damaged = variant("flip-crc-middle")
    copied = shutil.copytree(damaged.directory, tmp_path / "what I found")
    assert only(verify(str(copied)).affected).first_offset == 139


def test_nothing_is_written_and_nothing_locked(tmp_path: Path):
    root = variant("zero-hole").copy(tmp_path / "data")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    before = {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}
    assert verify(str(root)).exit_code == DAMAGED
    assert {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]} == before
    for path in [root, *root.rglob("*")]:
        path.chmod(0o700)


def test_files_that_cannot_be_read_are_distinguished_from_damage(tmp_path: Path):
    root = golden_data.case("4.3.0", "mixed-codecs").copy(tmp_path / "data")
    log = root / "mixed-codecs-0" / "00000000000000000114.log"
    log.unlink()
    log.symlink_to("elsewhere")
    found = verify(str(root))
    assert found.exit_code == UNREADABLE
    assert "not a regular file" in only(found.affected).finding.message


def test_a_partition_of_the_catalog_that_is_missing_is_reported(tmp_path: Path):
    with pylog.open(tmp_path / "data") as store:
        store.create_topic("orders", partition_count=2)
    shutil.rmtree(tmp_path / "data" / "orders-1")
    told = only(verify(str(tmp_path / "data")).affected)
    assert told.finding.kind == "missing"
    assert "partition 1 of topic orders" in told.finding.message


def test_progress_reaches_the_size_of_the_files():
    steps: list[tuple[int, int]] = []
    case = golden_data.case("4.3.0", "large-values")
    verify(str(case.log_directory), progress=lambda done, total, path: steps.append((done, total)))
    size = sum(path.stat().st_size for path in case.log_directory.rglob("*.log"))
    assert steps[-1] == (size, size)


def test_missing_partitions_are_reported():
    with pytest.raises(NotALogDirectoryError, match="there is no directory"):
        verify("/nowhere")
    with pytest.raises((StorageFailedError, NotALogDirectoryError)):
        verify("/nowhere/00000000000000000000.log")
    with pytest.raises(InvalidArgumentError, match="rate_limit=0"):
        verify(os.path.dirname(__file__), rate_limit=0)


@pytest.mark.damaged("the last batch is a shorter one from elsewhere")
def test_two_findings_at_the_same_offset_are_both_reported(tmp_path: Path):
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        for values in ([b"a"] * 3, [b"b" * 50], [b"c" * 100] * 3):
            store.log("t").append_batch(values)
    path = tmp_path / "t-0" / f"{0:020}.log"
    first, second, _ = batches_of(path.read_bytes())
    path.write_bytes(first + second + first)
    found = verify(str(tmp_path))
    assert len([each for each in found.affected if each.first_offset == 4]) > 1


@pytest.mark.damaged("a segment has bytes of another file between its batches")
def test_bytes_between_two_batches_that_follow_each_other_cost_no_record(tmp_path: Path):
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=400)
        for number in range(9):
            store.log("t").append(b"%d" % number * 50)
    path = min((tmp_path / "t-0").glob("*.log"))
    first, *more = batches_of(path.read_bytes())
    path.write_bytes(first + b"\xff" * 100 + b"".join(more))
    with pylog.open(tmp_path, "r") as store:
        assert len(list(store.log("t").records())) == 9
    found = verify(str(tmp_path))
    assert not found.ok
    assert found.readable == ()
    plan = call("repair", "skip", str(tmp_path))
    assert "no record is lost" in plan.text


@pytest.mark.damaged("a file is shorter than its synced end")
@pytest.mark.parametrize("cut", [7, 200])
def test_a_file_that_is_shorter_than_was_synced_costs_the_records_that_it_lacks_and_no_others(tmp_path: Path, cut: int):
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=2000)
        for number in range(19):
            store.log("t").append(b"%d" % number * 50)
    path = max((tmp_path / "t-0").glob("*.log"))
    os.truncate(path, path.stat().st_size - cut)
    with pylog.open(tmp_path, "r") as store:
        left = len(list(store.log("t").records()))
    found = verify(str(tmp_path))
    assert found.exit_code == DAMAGED
    assert only_readable(found) == ((0, left - 1),)
    assert any(f"were synced: the records from offset {left} on are missing" in each.finding.message for each in found.affected)
