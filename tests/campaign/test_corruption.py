"""Whatever happens to the bytes of a closed log: no altered record is served, no undamaged one lost, none passed over in silence.

Each bit of each file is flipped, each file is cut to each length, sectors come back empty, old or from elsewhere (reliability
5, 8.3 suite 11). What cannot be promised is named where it is left out: sectors that hold whole good batches from elsewhere
(`MISPLACED`), and what no pylog has sealed (`test_records_of_another_program_…`).
"""

from __future__ import annotations

import functools
from contextlib import suppress

import pytest

import pylog
from pylog.testing import MemoryFileSystem
from support.campaign.corruption import (
    MISPLACED,
    PARTITION,
    ROOT,
    TOPIC,
    Damage,
    Laboratory,
    Specimen,
    complaints_of_writing,
    cuts,
    flips,
    make_specimen,
    sectors,
)

SEGMENTS = 3
PARTS = 4
CODECS = ("gzip", "snappy", "lz4", "zstd")
BESIDE = (
    ".index",
    ".timeindex",
    ".snapshot",
    ".seal",
    "leader-epoch-checkpoint",
    "durable-point",
    "partition.metadata",
    "/.kafka_cleanshutdown",
    "/.lock",
    "recovery-point-offset-checkpoint",
    "/pylog.json",
    "/pylog.lock",
)


@functools.cache
def specimen(*codecs: str) -> Specimen:
    return make_specimen(codecs)


@functools.cache
def laboratory(*codecs: str) -> Laboratory:
    return Laboratory(specimen(*codecs))


def everything(some: Specimen, path: str) -> list[Damage]:
    return [*flips(some, path), *cuts(some, path), *sectors(some, path)]


def beside(some: Specimen, suffix: str) -> list[str]:
    """The files that are not segments, of one kind."""
    return [path for path in some.files if path.endswith(suffix)]


def samples(some: Specimen) -> list[Damage]:
    """Some of all that can happen to the segments."""
    return [damage for path in some.logs for damage in (*flips(some, path)[::29], *cuts(some, path)[::13], *sectors(some, path))]


def test_the_cases_are_as_many_as_planned() -> None:
    plain = specimen("none")
    paths = [*plain.logs, *(path for suffix in BESIDE for path in beside(plain, suffix))]
    assert sorted(paths) == sorted(plain.files), "a file is left out, or taken twice"
    counts = [len(everything(plain, path)) for path in paths] + [len(samples(specimen(codec))) for codec in CODECS]
    assert sum(counts) >= 75_000


# ---- reading -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_no_flipped_bit_alters_a_record_or_costs_a_neighbour(segment: int, part: int) -> None:
    plain = specimen("none")
    assert laboratory("none").complaints(flips(plain, plain.logs[segment])[part::PARTS]) == []


def is_between_batches(some: Specimen, damage: Damage) -> bool:
    """Whether a sealed segment ends with a whole batch."""
    ends = {0, *(place.position + place.size for place in some.places_of(damage.path))}
    return damage.kind == "cut" and damage.path in some.logs[:-1] and damage.at in ends


@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_a_segment_of_any_length_is_read_up_to_there_and_the_rest_is_reported(segment: int) -> None:
    plain = specimen("none")
    assert laboratory("none").complaints(cuts(plain, plain.logs[segment])) == []


def test_sectors_that_are_empty_old_or_from_elsewhere_are_not_served() -> None:
    plain = specimen("none")
    assert laboratory("none").complaints(damage for path in plain.logs for damage in sectors(plain, path)) == []


@pytest.mark.parametrize("codec", CODECS)
def test_damage_to_compressed_batches_is_noticed_too(codec: str) -> None:
    assert laboratory(codec).complaints(samples(specimen(codec))) == []


@pytest.mark.parametrize("suffix", BESIDE)
def test_a_damaged_file_beside_the_segments_costs_time_and_no_record(suffix: str) -> None:
    plain = specimen("none")
    paths = beside(plain, suffix)
    assert paths
    assert laboratory("none").complaints(damage for path in paths for damage in everything(plain, path)) == []


# ---- what no pylog has sealed ------------------------------------------------------------------------------------------------


@functools.cache
def foreign() -> Specimen:
    """The same log as another program leaves it."""
    return specimen("none").without(".seal", "durable-point")


def is_outside_of_checksums(damage: Damage) -> bool:
    """Whether a flipped bit is in a batch's base offset or leader epoch, which no checksum of Kafka's covers."""
    inside = ((damage.at >> 3) - place.position for place in foreign().places_of(damage.path))
    return any(0 <= at < 8 or 12 <= at < 16 for at in inside)


def foreign_flips(*, outside: bool) -> list[Damage]:
    every = [damage for path in foreign().logs for damage in flips(foreign(), path)]
    return [damage for damage in every if is_outside_of_checksums(damage) == outside]


def test_records_of_another_program_are_as_safe_except_for_offsets_and_leader_epochs() -> None:
    assert Laboratory(foreign()).complaints(foreign_flips(outside=False)[::23]) == []


def test_records_of_another_program_under_a_flipped_offset_or_epoch_keep_their_content() -> None:
    """Those two fields are checked against the neighbours only: a batch at an end of the log may be served with other ones."""
    columns = ("timestamp", "key", "value", "headers")
    written = foreign().rows.select(columns).to_pylist()
    flipped = foreign_flips(outside=True)[::3]
    for damage in flipped:
        fs = MemoryFileSystem(image=foreign().damaged(damage.path, damage.applied(foreign())))
        with pylog.open(ROOT, "r", fs=fs, clock=fs.clock) as store, suppress(pylog.CorruptionError):
            log = store.log(TOPIC)
            served = [row for frame in log.scan(columns=columns) for row in frame.to_pylist()]
            assert served == written[: len(served)], damage
            assert len(served) == len(written) or log.recovery_report, damage
    assert len(flipped) > 700


# ---- verifying ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_every_flipped_bit_of_a_batchs_header_is_found_by_verify(segment: int) -> None:
    """Those of the active segment too: all of it was durable. Behind a header the batch's own checksum finds it: some will do."""
    plain = specimen("none")
    path = plain.logs[segment]
    heads = {place.position + at for place in plain.places_of(path) for at in range(21)}
    every = flips(plain, path)
    for damage in (*(damage for damage in every if damage.at >> 3 in heads), *every[::61]):
        fs = MemoryFileSystem(image=plain.damaged(path, damage.applied(plain)))
        with pylog.open(ROOT, "r", fs=fs, clock=fs.clock) as store:
            report = store.verify()
        assert path in {finding.path for finding in report.findings if finding.kind == "corrupt"}, damage
        assert not report.ok, damage


@pytest.mark.parametrize("segment", range(SEGMENTS - 1))
def test_a_sealed_segment_that_ends_between_two_batches_is_found_by_verify(segment: int) -> None:
    plain = specimen("none")
    cut = [damage for damage in cuts(plain, plain.logs[segment]) if is_between_batches(plain, damage)]
    for damage in cut:
        fs = MemoryFileSystem(image=plain.damaged(damage.path, damage.applied(plain)))
        with pylog.open(ROOT, "r", fs=fs, clock=fs.clock) as store:
            report = store.verify()
        assert damage.path in {finding.path for finding in report.findings if finding.kind == "corrupt"}, damage
    assert len(cut) >= 10


# ---- opening for writing -----------------------------------------------------------------------------------------------------


def for_writers(plain: Specimen) -> list[Damage]:
    paths = [path for path in plain.files if path.startswith(PARTITION)]
    every = [damage for path in paths for damage in (*flips(plain, path)[::101], *cuts(plain, path)[::47])]
    every += [damage for path in plain.logs for damage in sectors(plain, path) if damage.kind not in MISPLACED]
    return every


@pytest.mark.parametrize("boots", [1, 2], ids=["same boot", "after a restart"])
def test_opening_damage_for_writing_changes_no_durable_byte_and_gives_no_offset_twice(boots: int) -> None:
    plain = specimen("none")
    found = [told for damage in for_writers(plain) for told in complaints_of_writing(plain, damage, boots)]
    assert found == []
