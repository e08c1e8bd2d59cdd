"""Lists of records become the same columns, whatever shapes their items have and however many there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog import limits
from pylog.errors import InvalidArgumentError, InvalidRecordError
from pylog.log.arguments import rows_of
from pylog.record.few import few_of
from pylog.record.kernel import INTERPRETED

NOW = 1_700_000_000_000
MANY = limits.FEW_RECORDS + 1

blobs = st.none() | st.binary(max_size=4)
headers = st.sampled_from([None, (), (("h", b"v"),), [("a", None), ("b", b"")]])
shapes = (
    blobs,
    st.tuples(blobs, blobs),
    st.tuples(blobs, blobs, headers),
    st.tuples(blobs, blobs, headers, st.none() | st.integers(0, 9)),
)


def alone(item: Any) -> tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]:
    """What an item says, spelt out: timestamp, key, value, headers."""
    key, value, pairs, stamp = (*(item if isinstance(item, tuple) else (None, item)), None, None)[:4]
    return NOW if stamp is None else stamp, key, value, tuple((name.encode(), held) for name, held in pairs or ())


@settings(max_examples=30 if INTERPRETED else 60)
@given(st.one_of(*(st.lists(shape, min_size=1, max_size=40) for shape in (*shapes, st.one_of(*shapes)))))
def test_a_list_of_any_shapes_is_the_records_that_each_item_stands_for(items: list[Any]) -> None:
    assert few_of(rows_of(items, NOW)).records == [alone(item) for item in items]


@pytest.mark.parametrize("count", [1, MANY, 300])
@pytest.mark.parametrize("kind", [bytearray, memoryview])
@pytest.mark.parametrize("others", [b"v", None, (b"k", b"v")])
def test_a_value_may_be_whatever_has_bytes_as_where_one_is_appended_alone(count: int, kind: Any, others: Any) -> None:
    found = few_of(rows_of([*[others] * (count - 1), kind(b"bytes")], NOW)).records
    assert found == [*[alone(others)] * (count - 1), alone(b"bytes")]


@pytest.mark.parametrize("count", [1, MANY, 300])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("text", InvalidArgumentError),
        (5, InvalidArgumentError),
        ((b"v",), InvalidArgumentError),
        ((b"k", b"v", (), 0, 0), InvalidArgumentError),
        ([b"k", b"v"], InvalidArgumentError),
        (("k", b"v"), InvalidRecordError),
        ((b"k", "v"), InvalidRecordError),
        ((b"k", 5), InvalidRecordError),
        ((b"k", b"v", 5), InvalidRecordError),
        ((b"k", b"v", (), -2), InvalidRecordError),
        ((b"k", b"v", (), True), InvalidRecordError),
    ],
)
@pytest.mark.parametrize("good", [b"v", (b"k", b"v"), (b"k", b"v", (), 0)])
def test_one_item_that_is_no_record_is_found_among_any(count: int, wrong: Any, error: type, good: Any) -> None:
    with pytest.raises(error):
        rows_of([*[good] * (count - 1), wrong], NOW)
