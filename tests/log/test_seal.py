"""The header digest and the seal: every flipped bit of a sealed segment is found, and where it is."""

from __future__ import annotations

import functools
import itertools
import tempfile
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylog
from pylog.fs import FILES, OsFileSystem
from pylog.record.batch import Table, scan_batches
from pylog.record.format import POSITION, PREFIX_SIZE, SIZE
from pylog.segment.batch_walk import walk
from pylog.segment.header_digest import HeaderDigest, digest_of, prefixes
from pylog.segment.names import LOG, SEAL, file_name, plan_load
from pylog.segment.seal import Altered, Seal, SealedReader, encode_seal, make_seal, parse_seal, read_seal, write_seal
from pylog.segment.segment import LogSegment
from support.golden.data import GoldenPartition, partitions
from support.log.derived import first_mismatch

FS = OsFileSystem()
INTERVAL = 300


@functools.cache
def segment_bytes() -> bytes:
    """A segment of twelve batches of 70 to 180 bytes, as pylog writes it."""
    with tempfile.TemporaryDirectory() as directory, pylog.open(directory) as store:
        store.create_topic("t")
        for number in range(12):
            store.log("t").append(b"%d" % number * (10 * number % 70 + 1), timestamp=1000 + number)
        return (Path(directory) / "t-0" / file_name(0, LOG)).read_bytes()


def table_of(data: bytes) -> Table:
    return scan_batches(np.frombuffer(data, np.uint8)).table


def ends_of(table: Table) -> list[int]:
    return (table[POSITION] + table[SIZE]).tolist()


def segment_at(directory: Path, base_offset: int = 0) -> LogSegment:
    """The segment in a directory, read again at each use."""
    size = (directory / file_name(base_offset, LOG)).stat().st_size
    return LogSegment(FS, str(directory), base_offset, size=size, mtime_ms=0, open_files=FILES)


def sealed(directory: Path, interval_bytes: int = INTERVAL) -> tuple[LogSegment, Seal]:
    """A segment in a directory, and its seal."""
    (directory / file_name(0, LOG)).write_bytes(segment_bytes())
    segment = segment_at(directory)
    return segment, make_seal(0, 12, digest_of(segment, segment.size, interval_bytes))


def change(segment: LogSegment, position: int, data: bytes) -> None:
    with Path(segment.path).open("r+b") as file:
        file.seek(position)
        file.write(data)


# ---- the digest --------------------------------------------------------------------------------------------------------------


def reference(data: bytes, table: Table, interval_bytes: int) -> tuple[int, list[tuple[int, int]]]:
    """The digest and the marks, batch by batch, as their definition says."""
    joined, marks, marked = b"", [], 0
    for position, size in zip(table[POSITION].tolist(), table[SIZE].tolist(), strict=True):
        joined += data[position : position + PREFIX_SIZE]
        if position + size - marked > interval_bytes:
            marked = position + size
            marks.append((marked, google_crc32c.value(joined)))
    return google_crc32c.value(joined), marks


def marks_of(digest: HeaderDigest) -> list[tuple[int, int]]:
    positions, digests = digest.marks
    return list(zip(positions.tolist(), digests.tolist(), strict=True))


EXACT = 237  # bytes of the first three batches: an interval that is just not exceeded


def test_the_exact_interval_is_where_a_batch_ends() -> None:
    assert ends_of(table_of(segment_bytes()))[2] == EXACT


@pytest.mark.parametrize("interval_bytes", [0, 1, 100, EXACT, 300, 4096])
def test_the_digest_is_the_crc_of_the_first_21_bytes_of_each_batch_with_a_mark_an_interval(interval_bytes: int) -> None:
    data = segment_bytes()
    table = table_of(data)
    digest = HeaderDigest(interval_bytes)
    digest.add(memoryview(data), table, 0, 12, 0)
    assert (digest.value, marks_of(digest)) == reference(data, table, interval_bytes)
    single = HeaderDigest(interval_bytes)
    for batch in range(12):
        single.add(memoryview(data), table, batch, batch + 1, 0)
    assert (single.value, marks_of(single)) == (digest.value, marks_of(digest))
    assert (digest.batches, digest.position) == (12, len(data))
    assert digest.last_crc == int.from_bytes(data[int(table[POSITION, -1]) + 17 :][:4], "big")


@given(cuts=st.lists(st.integers(0, 12), max_size=12), interval_bytes=st.sampled_from([0, 150, EXACT, 300, 1000, 4096]))
def test_the_digest_does_not_depend_on_how_many_batches_are_added_at_a_time(cuts: list[int], interval_bytes: int) -> None:
    data = segment_bytes()
    table = table_of(data)
    whole, pieces = HeaderDigest(interval_bytes), HeaderDigest(interval_bytes)
    whole.add(memoryview(data), table, 0, 12, 0)
    for first, end in itertools.pairwise([0, *sorted(cuts), 12]):
        start = int(table[POSITION, first]) if first < 12 else len(data)
        piece = np.frombuffer(data[start:], np.uint8)  # as a chunk of a file: positions count from its start
        pieces.add(piece, table_of(data[start:]), 0, end - first, start)
    assert (pieces.value, pieces.batches, pieces.position, pieces.last_crc) == (
        whole.value,
        whole.batches,
        whole.position,
        whole.last_crc,
    )
    assert marks_of(pieces) == marks_of(whole)


def test_a_copy_of_a_digest_goes_its_own_way() -> None:
    data = segment_bytes()
    table = table_of(data)
    digest = HeaderDigest(INTERVAL)
    digest.add(memoryview(data), table, 0, 6, 0)
    before = (digest.value, digest.batches, digest.position, digest.last_crc, marks_of(digest))
    copy = digest.copy()
    copy.add(memoryview(data), table, 6, 12, 0)
    assert (digest.value, digest.batches, digest.position, digest.last_crc, marks_of(digest)) == before
    digest.add(memoryview(data), table, 6, 12, 0)
    assert (copy.value, marks_of(copy)) == (digest.value, marks_of(digest))


def test_a_digest_of_nothing_seals_an_empty_segment(tmp_path: Path) -> None:
    (tmp_path / file_name(7, LOG)).write_bytes(b"")
    segment = segment_at(tmp_path, 7)
    seal = make_seal(7, 7, digest_of(segment, 0))
    assert seal[:6] == (7, 7, 0, 0, 0, 0)
    assert first_mismatch(segment, parse_seal(encode_seal(seal), "x")) is None


def test_the_digest_of_a_file_is_refused_up_to_where_no_batch_ends(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    assert digest_of(segment, ends_of(table_of(segment_bytes()))[4]).batches == 5
    with pytest.raises(pylog.CorruptionError, match="no batch ends at position 100"):
        digest_of(segment, 100)
    with pytest.raises(pylog.CorruptionError):
        digest_of(segment, seal.size + 1)


@pytest.mark.parametrize("golden", partitions(), ids=lambda partition: partition.id)
def test_segments_of_brokers_can_be_sealed_old_formats_among_them(golden: GoldenPartition) -> None:
    for path in golden.directory.glob("*.log"):
        data = path.read_bytes()
        segment = segment_at(golden.directory, int(path.stem))
        digest = digest_of(segment, len(data), 1000)
        assert (digest.value, marks_of(digest)) == reference(data, table_of(data), 1000)
        assert first_mismatch(segment, make_seal(int(path.stem), 0, digest)) is None


# ---- the file ----------------------------------------------------------------------------------------------------------------


def equal(left: Seal, right: Seal) -> bool:
    return left[:7] == right[:7] and all(np.array_equal(*pair) for pair in zip(left[7:], right[7:], strict=True))


def test_a_seal_reads_back_as_it_was_written(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    assert read_seal(FS, segment) is None
    seal = seal._replace(replaces=(3, 1 << 40))
    write_seal(FS, str(tmp_path), seal)
    found = read_seal(FS, segment)
    assert found is not None
    assert equal(found, seal)
    assert (tmp_path / f"{0:020d}{SEAL}").read_bytes() == encode_seal(seal)


def test_the_bytes_of_a_seal_are_those_of_its_format() -> None:
    digest = HeaderDigest(0)
    data = segment_bytes()
    digest.add(memoryview(data), table_of(data), 0, 2, 0)
    seal = make_seal(5, 9, digest, replaces=[7], inode=11)
    first, second = marks_of(digest)
    body = b"PYSL" + bytes([1, 0, 0, 0])
    body += b"".join(number.to_bytes(8, "little") for number in (5, 9, digest.position, 11))
    body += b"".join(number.to_bytes(4, "little") for number in (digest.last_crc, 2, digest.value, 1, 2))
    body += (7).to_bytes(8, "little")
    body += b"".join(number.to_bytes(4, "little") for number in (first[0], second[0], first[1], second[1]))
    assert encode_seal(seal) == body + google_crc32c.value(body).to_bytes(4, "little")


def test_a_seal_with_a_flipped_bit_or_cut_off_is_refused() -> None:
    data = segment_bytes()
    digest = HeaderDigest(INTERVAL)
    digest.add(memoryview(data), table_of(data), 0, 12, 0)
    good = encode_seal(make_seal(0, 12, digest, replaces=[3]))
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((pylog.CorruptionError, pylog.UnsupportedFormatError)) as caught:
            parse_seal(bytes(damaged), "the seal")
        assert caught.value.path == "the seal"
        assert isinstance(caught.value, pylog.UnsupportedFormatError) == (bit // 8 in (4, 5)), "only another version is unknown"
    for size in range(len(good)):
        with pytest.raises(pylog.CorruptionError):
            parse_seal(good[:size], "x")
    with pytest.raises(pylog.CorruptionError):
        parse_seal(good + b"\0", "x")


def with_crc(body: bytes) -> bytes:
    return body + google_crc32c.value(body).to_bytes(4, "little")


def test_a_seal_of_a_later_pylog_is_not_taken_for_damage() -> None:
    good = encode_seal(make_seal(0, 12, HeaderDigest()))[:-4]
    with pytest.raises(pylog.UnsupportedFormatError, match="version 2"):
        parse_seal(with_crc(good[:4] + b"\x02\x00" + good[6:]), "x")
    with pytest.raises(pylog.UnsupportedFormatError, match="flags"):
        parse_seal(with_crc(good[:6] + b"\x01\x00" + good[8:]), "x")


@pytest.mark.parametrize(
    "changed",
    [
        {"positions": np.array([10, 10], np.uint32)},
        {"positions": np.array([20, 10], np.uint32)},
        {"positions": np.array([0, 10], np.uint32)},
        {"positions": np.array([10, 101], np.uint32)},
        {"size": -1},
        {"size": 1 << 40},
    ],
)
def test_a_seal_that_contradicts_itself_is_refused(changed: dict[str, Any]) -> None:
    marks = {"positions": np.array([10, 100], np.uint32), "digests": np.array([1, 2], np.uint32)}
    seal = make_seal(0, 12, HeaderDigest())._replace(size=100, **marks)
    assert equal(parse_seal(encode_seal(seal), "x"), seal)
    with pytest.raises(pylog.CorruptionError, match="contradicts itself"):
        parse_seal(encode_seal(seal._replace(**changed)), "x")


def test_the_seal_of_another_segment_is_refused(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    (tmp_path / f"{0:020d}{SEAL}").write_bytes(encode_seal(seal._replace(base_offset=12)))
    with pytest.raises(pylog.CorruptionError, match="another segment"):
        read_seal(FS, segment)


def test_the_name_of_a_seal_is_known_to_belong_to_its_segment_and_never_taken_for_a_log() -> None:
    log, seal = file_name(5, LOG), file_name(5, SEAL)
    assert plan_load([log, seal], lambda name: 0).segments == {5: log}
    replaced = plan_load([log, seal, file_name(0, LOG) + ".swap"], lambda name: 6)
    assert sorted(replaced.removals) == [log, seal]


# ---- damage ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_flipped_bit_that_a_batch_s_own_checksum_leaves_open_is_found_in_its_interval(tmp_path: Path) -> None:
    """All bits of offset, length, leader epoch, magic and checksum of each batch."""
    segment, seal = sealed(tmp_path)
    data = segment_bytes()
    bounds = [0, *seal.positions.tolist(), seal.size]
    for start in table_of(data)[POSITION].tolist():
        for bit in range(8 * PREFIX_SIZE):
            position = start + bit // 8
            change(segment, position, bytes([data[position] ^ 1 << bit % 8]))
            found = first_mismatch(segment, seal)
            assert found is not None, (position, bit)
            assert not found.foreign
            assert found.position <= position < found.position + found.size
            assert bounds.index(found.position + found.size) - bounds.index(found.position) == 1, "not one interval"
            change(segment, position, data[position : position + 1])
    assert first_mismatch(segment, seal) is None


@pytest.mark.slow
def test_every_flipped_bit_of_a_sealed_segment_is_found_by_the_batch_s_checksum_or_the_seal(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    data = segment_bytes()
    unseen_by_checksums = 0
    for bit in range(8 * len(data)):
        position = bit // 8
        change(segment, position, bytes([data[position] ^ 1 << bit % 8]))
        damage = [stretch.damage for stretch in walk(segment, 0, len(data), 12, verify=True) if stretch.damage is not None]
        if damage:
            assert damage[0].position <= position < damage[0].end
        else:
            unseen_by_checksums += 1
            assert first_mismatch(segment, seal) is not None, (position, bit % 8)
        change(segment, position, data[position : position + 1])
    assert unseen_by_checksums, "then no seal would be needed"


def test_two_batches_that_have_changed_places_are_found(tmp_path: Path) -> None:
    """Each of them is sound, also its checksum: only their order is wrong."""
    segment, seal = sealed(tmp_path)
    data = segment_bytes()
    ends = [0, *ends_of(table_of(data))]
    first, second = data[ends[4] : ends[5]], data[ends[5] : ends[6]]
    change(segment, ends[4], second + first)
    found = first_mismatch(segment, seal)
    assert found is not None
    assert found.position <= ends[4] < found.position + found.size


def test_a_stretch_of_zeros_is_found_in_the_interval_that_it_begins_in(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    start = ends_of(table_of(segment_bytes()))[6]
    change(segment, start, bytes(200))
    found = first_mismatch(segment, seal)
    assert found is not None
    assert found.position == seal.mark_before(start)
    assert found.position + found.size == seal.mark_after(start)


# ---- foreign writers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [0, 5, 11, 13])
def test_a_file_that_was_cut_or_went_on_has_a_foreign_seal(tmp_path: Path, batches: int) -> None:
    segment, seal = sealed(tmp_path)
    data = segment_bytes()
    ends = [0, *ends_of(table_of(data))]
    Path(segment.path).write_bytes(data[: ends[batches]] if batches < 13 else data + data[: ends[1]])
    found = first_mismatch(segment, seal)
    assert found is not None
    assert found.foreign
    assert "another program" in found.why


def test_a_file_of_the_same_size_that_ends_with_another_good_batch_has_a_foreign_seal(tmp_path: Path) -> None:
    """A broker cut the segment and appended other records of the same size."""
    segment, seal = sealed(tmp_path)
    with pylog.open(tmp_path / "other") as store:
        store.create_topic("t")
        store.log("t").append(b"11" * 41, timestamp=9999)
        batch = bytearray((tmp_path / "other" / "t-0" / file_name(0, LOG)).read_bytes())
    batch[:8] = (11).to_bytes(8, "big")
    last = int(table_of(segment_bytes())[POSITION, -1])
    assert len(segment_bytes()) - last == len(batch)
    change(segment, last, bytes(batch))
    found = first_mismatch(segment, seal)
    assert found is not None
    assert found.foreign


def test_a_last_batch_that_only_got_another_offset_is_damage_and_no_foreign_writer(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    last = int(table_of(segment_bytes())[POSITION, -1])
    change(segment, last + 7, b"\x0c")
    found = first_mismatch(segment, seal)
    assert found is not None
    assert not found.foreign


# ---- reading along -----------------------------------------------------------------------------------------------------------


def altered_at(segment: LogSegment, *batches: int) -> None:
    """Gives some batches another leader epoch."""
    for batch in batches:
        change(segment, int(table_of(segment_bytes())[POSITION, batch]) + 12, b"\x01")


def read_from(segment: LogSegment, reader: SealedReader, first: int, end: int) -> list[Altered]:
    """What a reader tells of some batches, given one at a time."""
    ends = [0, *ends_of(table_of(segment_bytes()))]
    regions = [next(segment.regions(ends[batch], ends[batch + 1])) for batch in range(first, end)]
    return [found for region in regions for found in reader.altered(region.buffer, region.table, region.shift)]


def interval_of(seal: Seal, batch: int) -> Altered:
    position = int(table_of(segment_bytes())[POSITION, batch])
    return Altered(seal.mark_before(position), seal.mark_after(position))


def test_each_altered_interval_is_reported_and_none_between(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    altered_at(segment, 1, 7, 11)
    expected = sorted({interval_of(seal, batch) for batch in (1, 7, 11)})
    assert len(expected) == 3
    assert read_from(segment, SealedReader(seal), 0, 12) == expected
    (region,) = segment.regions(0, seal.size)
    assert SealedReader(seal).altered(region.buffer, region.table, region.shift) == expected


def test_headers_are_compared_before_they_are_used_although_their_interval_continues(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    table = table_of(segment_bytes())
    first = next(batch for batch in range(11) if interval_of(seal, batch) == interval_of(seal, batch + 1))
    altered_at(segment, first)
    assert read_from(segment, SealedReader(seal), 0, first + 1) == [], "the mark lies behind"
    assert read_from(segment, SealedReader(seal, segment), 0, first + 1) == [interval_of(seal, first)]
    assert read_from(segment, SealedReader(seal, segment), 0, 12) == [interval_of(seal, first)], "and told once"
    assert int(table[POSITION, first + 1]) not in seal.positions


def test_a_header_that_is_altered_after_the_batches_read_is_found_with_their_interval(tmp_path: Path) -> None:
    """Which of an interval's headers is altered cannot be told, so none of them is good."""
    segment, seal = sealed(tmp_path)
    first = next(batch for batch in range(11) if interval_of(seal, batch) == interval_of(seal, batch + 1))
    altered_at(segment, first + 1)
    assert read_from(segment, SealedReader(seal, segment), 0, first + 1) == [interval_of(seal, first)]


@pytest.mark.parametrize("start", range(12))
def test_a_walk_that_starts_in_the_middle_is_compared_from_the_next_mark_on(tmp_path: Path, start: int) -> None:
    segment, seal = sealed(tmp_path)
    position = int(table_of(segment_bytes())[POSITION, start])
    assert read_from(segment, SealedReader(seal), start, 12) == []
    altered_at(segment, 11)
    whole = seal.mark_before(position) == position or seal.mark_after(position) < seal.size
    assert read_from(segment, SealedReader(seal), start, 12) == ([interval_of(seal, 11)] if whole else [])


def test_a_walk_that_starts_at_a_mark_leaves_no_batch_out(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    ends = [0, *ends_of(table_of(segment_bytes()))]
    for batch in range(12):
        altered_at(segment, batch)
        start = ends.index(seal.mark_before(ends[batch]))
        assert start <= batch
        assert read_from(segment, SealedReader(seal, segment), start, batch + 1) == [interval_of(seal, batch)]
        Path(segment.path).write_bytes(segment_bytes())


def test_a_batch_that_has_swallowed_the_next_ones_spoils_each_interval_that_it_reaches_into(tmp_path: Path) -> None:
    segment, seal = sealed(tmp_path)
    ends = [0, *ends_of(table_of(segment_bytes()))]
    batch = next(batch for batch in range(12) if ends[batch + 1] in seal.positions)
    change(segment, ends[batch] + 8, (ends[batch + 2] - ends[batch] - 12).to_bytes(4, "big"))
    region = next(segment.regions(0, seal.size))
    found = SealedReader(seal).altered(region.buffer, region.table, region.shift)
    assert found == [interval_of(seal, batch), interval_of(seal, batch + 1)]


def test_marks_are_found_by_position(tmp_path: Path) -> None:
    _, seal = sealed(tmp_path)
    first, second = seal.positions[:2].tolist()
    assert seal.mark_before(0) == seal.mark_before(first - 1) == 0
    assert seal.mark_before(first) == seal.mark_before(second - 1) == first
    assert seal.mark_after(0) == first
    assert seal.mark_after(first) == second
    assert seal.mark_after(seal.size) == seal.size
    assert (seal.digest_at(0), seal.digest_at(first), seal.digest_at(seal.size)) == (0, seal.digests[0], seal.digest)
    assert seal.digest_at(first + 1) is None


def test_prefixes_are_gathered_from_any_place_of_a_buffer() -> None:
    data = segment_bytes()
    table = table_of(data)
    expected = b"".join(data[start : start + PREFIX_SIZE] for start in table[POSITION].tolist())
    assert prefixes(memoryview(data), table) == prefixes(np.frombuffer(data, np.uint8), table) == expected
    assert prefixes(memoryview(b""), table[:, :0]) == b""
