"""Compressed batches are made plain in groups, by two threads or one: the same ones in the same order, whatever their sizes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, PylogError, UnsupportedFormatError
from pylog.record import compression, unpacking
from pylog.record.batch import Bytes, Table, scan_batches
from pylog.record.format import BASE_OFFSET, CODEC_LZ4, HEADER_SIZE, POSITION, SIZE
from pylog.record.kernel import INTERPRETED
from pylog.record.unpacking import BatchGroup, Unpacker
from support.reference.records import Batch

EXAMPLES = settings(max_examples=10 if INTERPRETED else 100, deadline=None)
GOOD, BAD_CRC, NO_FRAME, UNKNOWN_CODEC, EMPTY = "good", "bad crc", "no frame", "unknown codec", "empty"
ERRORS = {BAD_CRC: CorruptionError, NO_FRAME: CorruptionError, UNKNOWN_CODEC: UnsupportedFormatError}


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms and groups so small that few and small records fill them, and that each stretch is worth a thread."""
    monkeypatch.setattr(limits, "UNPACKED_GROUP_BYTES", 2000)
    monkeypatch.setattr(limits, "UNPACKED_ROOM_BYTES", 5000)
    monkeypatch.setattr(unpacking, "_WORTH_A_THREAD", 2)


def payload_of(size: int, noise: int) -> bytes:
    """Bytes that compress to about `noise` of them."""
    return np.random.default_rng(size).bytes(min(noise, size)) + bytes(max(0, size - noise))


def encoded(number: int, payload: bytes, kind: str) -> bytes:
    codec = 1 + number % 4
    packed = b"this is no such thing" if kind == NO_FRAME else compression.compress(codec, payload).tobytes()
    attributes = 7 if kind == UNKNOWN_CODEC else codec
    count = 0 if kind == EMPTY else 1
    batch = Batch(payload=packed, base_offset=number, count=count, attributes=attributes, base_timestamp=0).encoded()
    return batch[:17] + bytes([batch[17] ^ 1]) + batch[18:] if kind == BAD_CRC else batch


def table_of(data: bytes) -> tuple[Bytes, Table]:
    buffer = np.frombuffer(data, np.uint8)
    return buffer, scan_batches(buffer).table


def payloads_in(group: BatchGroup) -> Iterator[tuple[int, bytes]]:
    """The first offset and the plain payload of each batch, as the group's table says."""
    for position, size, offset in group.table[[POSITION, SIZE, BASE_OFFSET]].T.tolist():
        yield offset, group.room[position + HEADER_SIZE : position + size].tobytes()


def unpacked(data: bytes) -> tuple[list[tuple[int, bytes]], PylogError | None]:
    buffer, table = table_of(data)
    unpacker, found, reached = Unpacker(verify=True), [], 0
    for _ in range(2):  # what a stretch left behind is of no harm to the next one
        found, reached = [], 0
        try:
            for group in unpacker.groups(buffer, table, 0, table.shape[1]):
                assert (group.first, group.table.shape[1]) == (reached, group.end - group.first)
                assert group.end > group.first
                reached = group.end
                time.sleep(0)
                found += payloads_in(group)
        except PylogError as error:
            failed: PylogError | None = error
        else:
            failed = None
    return found, failed


sizes = st.one_of(st.integers(0, 60), st.integers(0, 3000), st.integers(4800, 5100), st.integers(0, 40_000))
kinds = st.sampled_from([GOOD] * 30 + [EMPTY, BAD_CRC, NO_FRAME, UNKNOWN_CODEC])


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.tuples(sizes, sizes, kinds), min_size=1, max_size=40))
@example([(4939, 0, GOOD)] * 9)  # each fills a room to its last byte
@example([(4940, 0, GOOD)] * 9)  # one byte more
@example([(30_000, 10, GOOD), (100, 100, GOOD)] * 8)
@example([(10, 10, GOOD)] * 20 + [(10, 10, BAD_CRC)] + [(10, 10, GOOD)] * 20)
def test_groups_hold_what_batches_hold_one_by_one_up_to_the_first_bad_one(made: list[tuple[int, int, str]]) -> None:
    payloads = [payload_of(size, noise) for size, noise, _ in made]
    all_kinds = [kind for _, _, kind in made]
    data = b"".join(map(encoded, range(len(made)), payloads, all_kinds))
    found, error = unpacked(data)
    bad = next((number for number, kind in enumerate(all_kinds) if kind in ERRORS), len(made))
    assert found == [(number, b"" if all_kinds[number] == EMPTY else payloads[number]) for number in range(bad)]
    if bad == len(made):
        assert error is None
    else:
        assert type(error) is ERRORS[all_kinds[bad]]
        assert error.offset == bad


@pytest.mark.parametrize("worth_a_thread", [2, 1000])
def test_a_group_is_left_alone_while_it_is_used(worth_a_thread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_WORTH_A_THREAD", worth_a_thread)
    payloads = [payload_of(size, size) for size in range(600, 900)]
    buffer, table = table_of(b"".join(encoded(number, payload, GOOD) for number, payload in enumerate(payloads)))
    found = []
    for group in Unpacker(verify=True).groups(buffer, table, 0, table.shape[1]):
        before = group.room.tobytes()
        time.sleep(0.002)  # the other thread fills what it may
        assert group.room.tobytes() == before
        found += [payload for _, payload in payloads_in(group)]
    assert found == payloads


def test_rooms_are_used_again_and_stay_few() -> None:
    payloads = [payload_of(700, 700)] * 500
    buffer, table = table_of(b"".join(encoded(number, payload, GOOD) for number, payload in enumerate(payloads)))
    unpacker, rooms = Unpacker(verify=True), {}
    for _ in range(3):
        for group in unpacker.groups(buffer, table, 0, table.shape[1]):
            rooms[id(group.room)] = group.room
    assert len(rooms) <= unpacking._AT_ONCE + 1


def test_batches_without_place_in_a_room_cost_one_large_room_and_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BATCH_DECOMPRESSED_BYTES", 50_000)
    payloads = [bytes(50_000), bytes(100)] * 20
    data = b"".join(encoded(number, payload, GOOD) for number, payload in enumerate(payloads))
    buffer, table = table_of(data)
    unpacker, taken = Unpacker(verify=True), set()
    for group in unpacker.groups(buffer, table, 0, table.shape[1]):
        taken.add(group.room.size)
    assert taken <= {5000, 50_000 + HEADER_SIZE}
    found, error = unpacked(data + encoded(40, bytes(50_001), GOOD))
    assert [payload for _, payload in found] == payloads
    assert isinstance(error, DecompressionLimitError)
    assert error.offset == 40


def test_groups_grow_to_the_size_that_is_wanted_once_it_is_known_how_batches_expand() -> None:
    payloads = [payload_of(300, 30)] * 300
    data = b"".join(encoded(4 * number + CODEC_LZ4 - 1, payload, GOOD) for number, payload in enumerate(payloads))
    buffer, table = table_of(data)
    groups = [group.table.shape[1] for group in Unpacker(verify=True).groups(buffer, table, 0, table.shape[1])]
    wanted = 2000 // (300 + HEADER_SIZE)
    assert all(abs(size - wanted) <= 1 for size in groups[8:-1]), groups


def test_no_thread_is_left_when_a_reader_stops_in_the_middle() -> None:
    payloads = [payload_of(700, 700)] * 300
    buffer, table = table_of(b"".join(encoded(number, payload, GOOD) for number, payload in enumerate(payloads)))
    before = threading.active_count()
    groups = Unpacker(verify=True).groups(buffer, table, 0, table.shape[1])
    next(groups)
    assert threading.active_count() > before
    groups.close()
    assert threading.active_count() == before
