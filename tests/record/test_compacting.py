"""Compaction's kernels against plain Python: keys that supersede each other, and batches that lose records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog.record import compacting, kernels
from pylog.record.batch import scan_batches
from pylog.record.compression import compress
from pylog.record.format import LAST_OFFSET, POSITION, SIZE
from pylog.record.kernel import INTERPRETED
from pylog.record.key_map import KeyMap
from pylog.record.legacy import LegacyRecord, decode_legacy, encode_legacy
from pylog.record.survivors import Judgement, Survivors
from support.record.digests import key_digest
from support.reference.compacting import Fate, Index, left_of, siphash
from support.reference.records import Batch, Record

EXAMPLES = settings(max_examples=15 if INTERPRETED else 60)
K0, K1 = 0x0706050403020100, 0x0F0E0D0C0B0A0908
FLAGS = {
    "discard": compacting.F_DISCARD,
    "retain": compacting.F_RETAIN,
    "tombstones_go": compacting.F_TOMBSTONES_GO,
    "no_horizon": compacting.F_NO_HORIZON,
    "control": compacting.F_CONTROL,
    "stamp": compacting.F_STAMP,
}

keys = st.sampled_from([None, b"", b"a", b"b", b"a key of more than eight bytes", b"\0" * 16])
values = st.sampled_from([None, b"", b"x", b"v" * 40])
stamps = st.integers(-(10**6), 10**13)


@pytest.fixture(autouse=True)
def wrapping_integers() -> Iterator[None]:
    """Interpreted, sums wrap as the compiled ones do, but numpy would warn of it."""
    with np.errstate(over="ignore"):
        yield


@st.composite
def batches(draw: Any) -> list[Batch]:
    """Some batches with gaps between offsets, in them and between them."""
    found, base = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 4))):
        deltas = sorted(draw(st.sets(st.integers(0, 12), max_size=8)))
        records = [
            Record(delta, draw(stamps), draw(keys), draw(values), draw(st.sampled_from([(), ((b"h", None),)])))
            for delta in deltas
        ]
        last = max(deltas, default=0) + draw(st.integers(0, 2))
        attributes = draw(st.sampled_from([0, 8, 64, 16]))
        found.append(Batch(records, base, 3, attributes, draw(stamps), producer_id=5, last_offset_delta=last))
        base += last + 1 + draw(st.integers(0, 2))
    return found


def joined(found: list[Batch]) -> tuple[Any, Any]:
    """The bytes and the table of batches."""
    buffer = np.frombuffer(b"".join(batch.encoded() for batch in found), np.uint8)
    return buffer, scan_batches(buffer).table


# ---- digests -------------------------------------------------------------------------------------------------------------------


def test_the_reference_is_siphash_as_published() -> None:
    high, low = siphash(bytes(range(15)), (K0, K1), rounds=2, final=4)
    assert (high.to_bytes(8, "little") + low.to_bytes(8, "little")).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"


@pytest.mark.slow
@EXAMPLES
@given(st.binary(max_size=40), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_digests_are_siphash(data: bytes, k0: int, k1: int) -> None:
    out = np.zeros(2, np.uint64)
    key_digest(np.frombuffer(b"!" + data, np.uint8), 1, len(data) + 1, np.uint64(k0), np.uint64(k1), out)
    assert tuple(out.tolist()) == siphash(data, (k0, k1))


# ---- which records are superseded ----------------------------------------------------------------------------------------------


def marked(dead: Any) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(dead, bitorder="little")).tolist())


@pytest.mark.slow
@EXAMPLES
@given(batches(), st.integers(0, 20), st.integers(1, 8), st.sampled_from([4, 12, 2048]))
def test_the_last_record_of_each_key_is_the_one_that_is_not_marked(
    found: list[Batch], first: int, capacity: int, chunk: int
) -> None:
    buffer, table = joined(found)
    state = np.array([0, len(found), 0, 0, capacity, first, -1], np.int64)
    slots, dead, scratch = np.zeros(32, np.uint64), np.zeros(32, np.uint8), np.zeros(4 * chunk, np.uint64)
    random_key = np.uint64(K0), np.uint64(K1)
    status = compacting.index_keys(buffer, table, state, True, True, slots, dead, scratch, *random_key)
    expected = Index(first, capacity)
    whole = list(takewhile(expected.enter, found))
    assert status == (kernels.OK if len(whole) == len(found) else kernels.FULL)
    assert marked(dead) == expected.dead
    assert state[compacting.K_BATCH] == len(whole)
    assert state[compacting.K_KEYS] == len(expected.last)
    assert state[compacting.K_LATEST] == expected.latest
    if status == kernels.OK:
        state[[compacting.K_BATCH, compacting.K_NUMBER]] = 0
        compacting.index_keys(buffer, table, state, False, False, slots, dead, scratch, *random_key)
        number = 0
        for batch in found:
            expected.look_up(batch, number)
            number += len(batch.records)
        assert marked(dead) == expected.dead


@pytest.mark.slow
@EXAMPLES
@given(batches(), st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_batch_is_refused_by_both_kernels(found: list[Batch], at: int, flipped: int) -> None:
    buffer, table = joined(found)
    at %= buffer.size
    damaged = buffer.copy()
    damaged[at] ^= flipped
    damaged.flags.writeable = False
    inside = at - int(table[POSITION][table[POSITION] <= at][-1])
    assert set(statuses(damaged, table, verify=True)) == {kernels.BAD_CRC if inside >= 17 else kernels.OK}
    assert set(statuses(damaged, table, verify=False)) <= {kernels.OK, kernels.BAD_RECORD}


def statuses(buffer: Any, table: Any, *, verify: bool) -> tuple[int, int]:
    """What the two kernels say of batches."""
    count = table.shape[1]
    slots, scratch, bits = np.zeros(64, np.uint64), np.zeros(64, np.uint64), np.zeros(32, np.uint8)
    entered = np.array([0, count, 0, 0, 31, 0, -1], np.int64)
    kept = np.array([0, count, 0, 99, 0, 0, 0, 0], np.int64)
    random_key = np.uint64(K0), np.uint64(K1)
    return (
        int(compacting.index_keys(buffer, table, entered, True, verify, slots, bits, scratch, *random_key)),
        int(compacting.keep_records(buffer, table, np.zeros(count, np.int64), kept, verify, bits, np.zeros(1 << 16, np.uint8))),
    )


# ---- what is left --------------------------------------------------------------------------------------------------------------

fates = st.builds(Fate, *[st.booleans()] * 6) | st.just(Fate(no_horizon=True))


@pytest.mark.slow
@EXAMPLES
@given(batches(), st.data(), st.integers(-1, 30), st.integers(0, 10**12))
def test_remaining_batches_are_those_of_the_rules(found: list[Batch], data: Any, latest: int, horizon: int) -> None:
    buffer, table = joined(found)
    count = sum(len(batch.records) for batch in found)
    dead = data.draw(st.sets(st.integers(0, max(0, count - 1))))
    asked = [data.draw(fates) for _ in found]
    bits = np.packbits([number in dead for number in range(count + 8)], bitorder="little")
    flags = np.array([sum(flag for name, flag in FLAGS.items() if getattr(fate, name)) for fate in asked], np.int64)
    state = np.array([0, len(found), 0, latest, horizon, 0, 0, 0], np.int64)
    out = np.zeros(1 << 14, np.uint8)
    assert compacting.keep_records(buffer, table, flags, state, True, bits, out) == kernels.OK
    expected, number = [], 0
    for batch, fate in zip(found, asked, strict=True):
        expected.append(left_of(batch, fate, dead, number, latest, horizon))
        number += len(batch.records)
    wanted = b"".join(left.encoded() for left in expected if left is not None)
    assert out[: state[compacting.R_POSITION]].tobytes() == wanted
    assert state[compacting.R_NUMBER] == count
    assert state[compacting.R_RECORDS] == sum(len(left.records) for left in expected if left is not None)


def test_an_output_without_room_is_full_and_nothing_of_the_batch_is_written() -> None:
    found = [Batch([Record(0, 0, b"k", b"v" * 100)], base_offset=base) for base in range(3)]
    buffer, table = joined(found)
    size = int(table[SIZE, 0])
    state = np.array([0, 3, 0, -1, 0, 0, 0, 0], np.int64)
    out = np.zeros(4 * size, np.uint8)
    arguments = (buffer, table, np.zeros(3, np.int64), state, True, np.zeros(1, np.uint8))
    assert compacting.keep_records(*arguments, out) == kernels.FULL
    assert (state[compacting.R_BATCH], state[compacting.R_POSITION]) == (2, 2 * size)
    assert out[: 2 * size].tobytes() == b"".join(batch.encoded() for batch in found[:2])


# ---- packed batches ------------------------------------------------------------------------------------------------------------


def packed(batch: Batch, codec: int) -> bytes:
    plain = batch.encoded()[61:]
    squeezed = compress(codec, plain).tobytes()
    return replace(batch, attributes=batch.attributes | codec, payload=squeezed, count=len(batch.records)).encoded()


def survivors_of(data: bytes, fate: int = compacting.F_NO_HORIZON, first: int = 0) -> tuple[bytes, Survivors]:
    """What is left when all records from an offset on supersede each other."""
    buffer = np.frombuffer(data, np.uint8)
    table = scan_batches(buffer).table
    keys = KeyMap(1 << 12, 100, first)
    assert keys.enter(buffer, table, table[LAST_OFFSET] >= first)
    made = Survivors(keys, 10**6)
    judged = Judgement(np.full(table.shape[1], fate, np.int64), 0)
    pieces = [piece.tobytes() for piece in (*made.feed(buffer, table, judged), *made.finish())]
    return b"".join(pieces), made


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_is_copied_as_it_is_unless_it_loses_records_and_keeps_its_codec(codec: int) -> None:
    lost = Batch([Record(delta, 0, key, b"old" * 9) for delta, key in enumerate((b"a", b"b", b"c"))], 0, base_timestamp=9)
    whole = Batch([Record(0, 0, b"b", b"new"), Record(1, 0, b"a", b"new")], 3, base_timestamp=9)
    data, made = survivors_of(packed(lost, codec) + packed(whole, codec))
    assert data.endswith(packed(whole, codec))
    assert (made.records, made.kept, made.changed) == (5, 3, 1)
    table = scan_batches(np.frombuffer(data, np.uint8), verify=True).table
    assert table[[2, 3, 4, 7, 14]].T.tolist() == [[0, 2, 1, codec, 1], [3, 4, 2, codec, 1]]
    again, made = survivors_of(data)
    assert (again, made.changed) == (data, 0)


def test_a_compressed_batch_that_loses_all_records_is_an_empty_one_or_gone() -> None:
    old, new = (Batch([Record(0, 0, b"a", b"x")], base, base_timestamp=9) for base in (0, 1))
    assert survivors_of(packed(old, 4) + packed(new, 4))[0] == packed(new, 4)
    data, _ = survivors_of(packed(old, 4) + packed(new, 4), compacting.F_RETAIN)
    assert data[:61] == Batch([], 0, -1, 0, -1, 9, count=0, last_offset_delta=0).encoded()


def test_a_damaged_compressed_batch_is_refused_with_its_place() -> None:
    data = bytearray(packed(Batch([Record(0, 0, b"a", b"x")], 7), 1))
    data[-1] ^= 1
    with pytest.raises(pylog.CorruptionError, match="checksum") as found:
        survivors_of(bytes(data))
    assert found.value.offset == 7


# ---- old formats ---------------------------------------------------------------------------------------------------------------

OLD_PLAIN = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_wrapper_of_an_old_format_keeps_offsets_codec_and_latest_time(magic: int, codec: int) -> None:
    stamp = 1000 if magic else -1
    kind = 0 if magic else -1
    records = [LegacyRecord(offset, stamp + offset * magic, kind, b"k%d" % offset, b"v" * 9) for offset in (3, 5, 9)]
    plain = bytearray(OLD_PLAIN)
    plain[16], plain[17] = magic, codec
    wrapper = encode_legacy(bytes(plain), records)
    assert decode_legacy(wrapper) == records
    fewer = encode_legacy(wrapper, records[:2])
    assert decode_legacy(fewer) == records[:2]
    assert fewer[16:18].tolist() == [magic, codec]


def test_plain_records_of_an_old_format_stay_or_go() -> None:
    other = bytearray(OLD_PLAIN)
    other[7] = 1
    data, made = survivors_of(OLD_PLAIN + bytes(other))
    assert data == bytes(other)
    assert (made.records, made.kept) == (2, 1)
    assert decode_legacy(np.frombuffer(data, np.uint8))[0].offset == 1


# ---- bounded memory ------------------------------------------------------------------------------------------------------------


def test_a_full_key_map_says_how_far_it_got_in_the_middle_of_a_batch() -> None:
    batch = Batch([Record(delta, 0, b"%d" % delta, b"v") for delta in range(10)])
    buffer, table = joined([batch])
    keys = KeyMap(64, 10, 0)
    assert keys.capacity == 3
    assert not keys.enter(buffer, table, np.ones(1, np.bool_))
    assert keys.latest == 2


def test_batches_that_do_not_count_are_numbered_all_the_same() -> None:
    found = [Batch([Record(0, 0, b"a", b"x"), Record(1, 0, b"a", b"y")], base) for base in (0, 2, 4)]
    buffer, table = joined(found)
    keys = KeyMap(1 << 10, 10, 0)
    assert keys.enter(buffer, table, np.array([True, False, True]))
    assert (keys.number, marked(keys.dead)) == (6, {0, 1, 4})
