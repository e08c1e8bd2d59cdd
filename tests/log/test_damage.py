"""Damaged directories: an error or a torn-tail verdict and every undamaged batch, never an altered record."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.fs import OsFileSystem
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, LAST_OFFSET
from support.golden.data import CorruptVariant, UncleanCase, corrupt_variants, unclean_cases
from support.golden.rows import COLUMNS, rows

DERIVED_ONLY = ("no-index", "no-timeindex", "no-indexes-at-all", "index-", "timeindex-", "snapshot-", "epoch-")


def read_everything(log: pylog.Log) -> tuple[list[dict[str, Any]], list[pylog.CorruptionError]]:
    """All rows that can be read, going on behind each error where it says."""
    got: list[dict[str, Any]] = []
    errors: list[pylog.CorruptionError] = []
    start: int | None = log.start_offset
    while start is not None:
        frames = log.scan(start, columns=COLUMNS)
        try:
            for frame in frames:
                got += rows(iter([frame]))
            return got, errors
        except pylog.CorruptionError as error:
            errors.append(error)
        assert None not in (errors[-1].path, errors[-1].position, errors[-1].offset)
        assert errors[-1].next_offset is None or errors[-1].next_offset > start, "reading would never come to an end"
        start = errors[-1].next_offset
    return got, errors


def undamaged_offsets(variant: CorruptVariant) -> set[int]:
    """Offsets of the pristine batches whose bytes stand in the variant's files, whole and unchanged."""
    fs, kept = OsFileSystem(), set()
    for path in sorted(variant.pristine.directory.glob("*.log")):
        damaged = variant.directory / path.name
        if not damaged.exists():
            continue
        data, view = damaged.read_bytes(), fs.map(str(path))
        table = scan_batches(view).table
        for batch in range(table.shape[1]):
            position, size = int(table[0, batch]), int(table[1, batch])
            if data[position : position + size] == view[position : position + size].tobytes():
                kept.update(range(int(table[BASE_OFFSET, batch]), int(table[LAST_OFFSET, batch]) + 1))
    return kept


@pytest.mark.sampled(5)
@pytest.mark.parametrize("variant", corrupt_variants(), ids=lambda variant: variant.id)
def test_damage_is_reported_and_everything_else_is_read_unaltered(variant: CorruptVariant) -> None:
    expected = {row["offset"]: row for row in variant.pristine.expected()}
    with pylog.open(variant.log_directory, mode="r") as store:
        log = store.log(variant.pristine.topic, variant.pristine.partition)
        got, errors = read_everything(log)
        verdicts = [finding.kind for finding in log.recovery_report]
    assert [row for row in got if row != expected.get(row["offset"])] == []
    assert undamaged_offsets(variant) <= {row["offset"] for row in got}
    if not variant.variant.startswith(DERIVED_ONLY) and variant.variant not in (
        "first-segment-missing",
        "middle-segment-missing",
    ):
        assert errors or {"torn", "corrupt", "missing"} & set(verdicts), "the damage went unnoticed"


def listing(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("variant", corrupt_variants(), ids=lambda variant: variant.id)
def test_reading_a_damaged_directory_changes_no_byte_of_it(variant: CorruptVariant) -> None:
    before = listing(variant.log_directory)
    with pylog.open(variant.log_directory, mode="r") as store:
        read_everything(store.log(variant.pristine.topic, variant.pristine.partition))
    assert listing(variant.log_directory) == before


@pytest.mark.slow
@pytest.mark.damaged("a damaged directory of a broker")
@pytest.mark.parametrize("variant", corrupt_variants(), ids=lambda variant: variant.id)
def test_opening_damage_for_writing_loses_no_undamaged_record(variant: CorruptVariant, tmp_path: Path) -> None:
    directory = variant.copy(tmp_path / "copy")
    expected = {row["offset"]: row for row in variant.pristine.expected()}
    with pylog.open(directory) as store:
        log = store.log(variant.pristine.topic, variant.pristine.partition)
        try:
            appended = log.append(b"after the damage")
        except pylog.CorruptionError:
            appended = None
    with pylog.open(directory, mode="r") as store:
        got, _ = read_everything(store.log(variant.pristine.topic, variant.pristine.partition))
    if appended is not None:
        assert got.pop()["offset"] == appended
    assert [row for row in got if row != expected.get(row["offset"])] == []
    assert undamaged_offsets(variant) <= {row["offset"] for row in got}


# ---- a killed broker ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=unclean_cases(), ids=lambda case: case.version)
def unclean(request: pytest.FixtureRequest) -> UncleanCase:
    case: UncleanCase = request.param
    return case


LOST_BY_THE_CHANGE = {"u-cut-0"}  # its last records are not in the file any more


@pytest.mark.slow
@pytest.mark.damaged("a damaged directory of a broker")
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_killed_brokers_directory_loses_nothing_that_is_still_in_the_file(
    unclean: UncleanCase, mode: str, tmp_path: Path
) -> None:
    directory = unclean.crashed(tmp_path)
    acked = unclean.mutations["ackedAtLeast"]
    with pylog.open(directory, mode=mode) as store:
        for partition in unclean.after.partitions:
            if partition.topic.startswith("__"):
                continue
            log = store.log(partition.topic, partition.partition)
            got, errors = read_everything(log)
            by_offset = {row["offset"]: row for row in got}
            for row in partition.expected():  # what the broker kept, pylog keeps, unaltered
                assert by_offset.get(row["offset"]) == row, (partition.tp, row["offset"])
            if partition.topic in acked:
                assert log.end_offset >= acked[partition.topic], partition.tp
                assert not errors, errors


@pytest.mark.slow
@pytest.mark.damaged("a damaged directory of a broker")
def test_where_the_broker_threw_good_records_away_they_are_kept(unclean: UncleanCase, tmp_path: Path) -> None:
    """A flipped bit made the broker drop everything behind it; only the damaged batch is unreadable."""
    directory = unclean.crashed(tmp_path)
    with pylog.open(directory) as store:
        for name in ("u-flip", "u-size", "u-flip-below"):
            log = store.log(name, 0)
            (partition,) = [found for found in unclean.after.partitions if found.topic == name]
            got, errors = read_everything(log)
            assert [error.next_offset is None for error in errors] == [False], (name, errors)
            assert max(row["offset"] for row in got) > max(row["offset"] for row in partition.expected())
            if name != "u-flip-below":  # damage below the recovery point is found when it is read
                with pytest.raises(pylog.CorruptionError):
                    log.append(b"never behind damage")


@pytest.mark.slow
@pytest.mark.damaged("a damaged directory of a broker")
def test_a_torn_tail_is_kept_aside_and_appending_goes_on(unclean: UncleanCase, tmp_path: Path) -> None:
    directory = unclean.crashed(tmp_path)
    with pylog.open(directory) as store:
        for name in ("u-garbage", "u-zero"):
            log = store.log(name, 0)
            assert [finding.kind for finding in log.recovery_report] == ["torn"], log.recovery_report
            end = log.end_offset
            assert log.append(b"goes on") == end
            (aside,) = (directory / f"{name}-0").glob("*.torn.*")
            assert aside.stat().st_size == log.recovery_report[0].size
            assert log.read(end).value == b"goes on"
