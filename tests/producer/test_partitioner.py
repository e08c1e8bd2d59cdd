"""Records go where Kafka's clients would send them."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import limits
from pylog.errors import InvalidArgumentError
from pylog.partitioner import (
    OUT_OF_BOUNDS,
    DefaultPartitioner,
    RoundRobinPartitioner,
    hash_keys,
    hashes,
    murmur2,
    partition_called,
)
from pylog.record.rows import read_only
from support.record.forms import each_form  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("each_form")

# groups-and-transactions 4.3: what Java's `Utils.murmur2` returns.
VECTORS = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"abcd": -1323649548,
    b"abcde": 461995741,
    b"21": -973932308,
    b"foobar": -790332482,
    b"key-1": 193331640,
    b"user-42": 1459644460,
    b"kafka": -798503068,
    b"The quick brown fox jumps over the lazy dog": 495243318,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "ключ".encode(): 2122343024,
    "日本語".encode(): 1431860170,
    b"\x00": 375494588,
    b"\xff": -311467685,
    b"\x80\xff\x00\x01": 682733991,
    b"\xff" * 7: -71293549,
    bytes(4): 850957120,
    bytes(range(256)): -1948347274,
}
ONES = np.ones(10_000, np.int64)


def column(keys: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(keys, pa.binary())


def test_keys_hash_as_in_java() -> None:
    assert {key: murmur2(key) for key in VECTORS} == VECTORS


def test_a_column_hashes_as_its_keys_do_in_java() -> None:
    assert len(VECTORS) > limits.FEW_RECORDS  # so that the kernel does it
    assert hashes(column(list(VECTORS))).tolist() == [number & 0x7FFFFFFF for number in VECTORS.values()]


@pytest.mark.slow
@given(st.lists(st.binary(max_size=40) | st.none(), min_size=17, max_size=60), st.integers(0, 16))
def test_the_kernel_hashes_what_the_plain_function_does_in_any_slice_of_a_column(keys: list[bytes | None], first: int) -> None:
    found = hashes(column(keys)[first:]).tolist()
    assert found == [murmur2(key or b"") & 0x7FFFFFFF for key in keys[first:]]


@pytest.mark.parametrize("ends", [[0, 5], [-1, 2], [3, 2], [0, 2, 9], [0, 1 << 30]])
def test_the_kernel_touches_no_byte_that_it_was_not_given(ends: list[int]) -> None:
    data = read_only(np.frombuffer(b"abcd", np.uint8))
    assert hash_keys(data, read_only(np.array(ends, np.int32)), np.zeros(4, np.int32)) == OUT_OF_BOUNDS


@pytest.mark.parametrize("count", [1, 3, 10, 12, 50])
def test_a_key_goes_where_kafkas_producer_sends_it_whatever_is_sent_beside_it(count: int) -> None:
    keys: list[bytes | None] = [key for pair in zip(VECTORS, itertools.repeat(None), strict=False) for key in pair]
    chosen = DefaultPartitioner(50).choose(column(keys), ONES[: len(keys)], count).tolist()
    assert chosen[::2] == [(number & 0x7FFFFFFF) % count for number in VECTORS.values()]


def test_records_without_a_key_stay_in_one_partition_until_a_batch_is_full() -> None:
    partitioner = DefaultPartitioner(1000, seed=1)
    chosen = [partitioner.choose(pa.nulls(70, pa.binary()), ONES[:70] * 10, 50).tolist() for _ in range(100)]
    runs = [len(list(group)) for _, group in itertools.groupby(itertools.chain.from_iterable(chosen))]
    assert all(run % 100 == 0 for run in runs)
    assert len(runs) > 60


def test_all_partitions_are_chosen_equally_often() -> None:
    chosen = DefaultPartitioner(1, seed=2).choose(pa.nulls(10_000, pa.binary()), ONES, 4)
    assert np.bincount(chosen, minlength=4).min() > 2300


def test_a_record_larger_than_a_batch_moves_on_by_one_partition_only() -> None:
    partitioner = DefaultPartitioner(10, seed=3)
    sizes = np.array([10**12, 5, 4, 5], np.int64)
    first, second, third, fourth = partitioner.choose(pa.nulls(4, pa.binary()), sizes, 1000).tolist()
    assert first != second == third == fourth


def test_a_topic_with_fewer_partitions_than_before_is_no_trouble() -> None:
    partitioner = DefaultPartitioner(1 << 20, seed=4)
    partitioner.choose(pa.nulls(1, pa.binary()), ONES[:1], 1000)
    assert partitioner.choose(pa.nulls(1, pa.binary()), ONES[:1], 1).tolist() == [0]


def test_round_robin_goes_on_where_it_was_and_asks_no_key() -> None:
    partitioner = RoundRobinPartitioner()
    assert partitioner.choose(column([b"a"] * 4), ONES[:4], 3).tolist() == [0, 1, 2, 0]
    assert partitioner.choose(column([b"a"] * 4), ONES[:4], 3).tolist() == [1, 2, 0, 1]


@pytest.mark.parametrize("nonsense", [None, "1", 1.0, True, 4, -1, b"0"])
def test_a_callable_that_returns_no_partition_of_the_topic_is_refused(nonsense: object) -> None:
    with pytest.raises(InvalidArgumentError, match="the partitioner chose"):
        partition_called(lambda *_: nonsense, b"k", (0, 1, 2))  # type: ignore[arg-type, return-value]
