"""Arrow tables that a producer is given: each row is in the log, where it says or where its key belongs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pylog.errors import (
    InvalidRecordError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pylog.store import Store
from support import sending
from support.sending import PATIENCE, values

store = pytest.fixture(sending.store)


# ---- tables ----------------------------------------------------------------------------------------------------------------


def test_a_tables_rows_go_where_they_say_or_where_their_keys_belong(store: Store) -> None:
    table = pa.table(
        {
            "key": pa.array(["foobar", "foobar", None, "kafka"]),
            "value": pa.array([b"a", b"b", b"c", b"d"]),
            "timestamp": pa.array([5, None, 7, 8], pa.int64()),
            "headers": [[{"key": "h", "value": b"1"}], [], None, []],
            "partition": pa.array([3, None, 3, None], pa.int8()),
        }
    )
    with store.producer() as producer:
        producer.send("four", b"before", partition=3)
        sent = producer.send_arrow("four", table)
    assert {(done.partition, done.offsets) for done in sent} == {(0, range(1)), (2, range(1)), (3, range(1, 3))}
    assert values(store, "four", 3) == [b"before", b"a", b"c"]
    assert store.log("four", 3).read(1).headers == (("h", b"1"),)
    assert values(store, "four", 1357151166 % 4) == [b"b"]
    assert values(store, "four", 1348980580 % 4) == [b"d"]


def test_a_large_table_with_headers_becomes_many_numbered_batches_in_order(store: Store) -> None:
    pairs = [[{"key": "trace", "value": b"%d" % number}] for number in range(3000)]
    table = pa.table({"value": [b"%d" % number for number in range(3000)], "headers": pairs})
    with store.producer(batch_size=3000) as producer:
        sent = producer.send_arrow("one", table)
        more = producer.send("one", b"behind").result(PATIENCE)
    assert len(sent) > 20
    assert [number for done in sent for number in done.offsets] == list(range(3000))
    assert more.offset == 3000
    assert [record.headers[0][1] for record in store.log("one").records(end=3000)] == [b"%d" % n for n in range(3000)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64()])
def test_partitions_may_be_named_by_any_integers_whatever_the_topics_number_of_partitions(
    store: Store, kind: pa.DataType
) -> None:
    store.create_topic("many", partition_count=300)
    with store.producer() as producer:
        sent = producer.send_arrow("many", pa.table({"value": [b"a", b"b"], "partition": pa.array([127, 5], kind)}))
        with pytest.raises(UnknownTopicOrPartitionError, match=str(largest := 2 ** (kind.bit_width - 1) - 1)):
            producer.send_arrow("four", pa.table({"value": [b"a"], "partition": pa.array([largest], kind)}))
    assert [done.partition for done in sent] == [127, 5]


def test_a_table_of_partitions_alone_is_so_many_records_of_nothing(store: Store) -> None:
    with store.producer() as producer:
        sent = producer.send_arrow("four", pa.table({"partition": [0, 1, 0]}))
    assert [(done.partition, done.offsets) for done in sent] == [(0, range(2)), (1, range(1))]
    assert [(record.key, record.value) for record in store.log("four").records()] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"value": [b"a", b"x" * 2_000_000]}, RecordTooLargeError),
        ({"value": [b"a"], "partition": [4]}, UnknownTopicOrPartitionError),
        ({"value": [b"a"], "partition": [-1]}, UnknownTopicOrPartitionError),
        ({"value": [b"a"], "partition": ["0"]}, InvalidRecordError),
        ({"value": [b"a"], "offset": [0]}, InvalidRecordError),
        ({"value": [1]}, InvalidRecordError),
    ],
)
def test_a_table_that_cannot_be_sent_is_refused_as_a_whole(store: Store, columns: dict[str, Any], error: type) -> None:
    good = {name: [b"good"] if name == "value" else [0] for name in columns}
    whole = pa.concat_tables([pa.table(good), pa.table(columns)]) if error is RecordTooLargeError else pa.table(columns)
    with store.producer() as producer, pytest.raises(error):
        producer.send_arrow("four", whole)
    assert [store.log("four", number).end_offset for number in range(4)] == [0, 0, 0, 0]


def test_a_value_that_is_no_table_is_refused(store: Store) -> None:
    with store.producer() as producer, pytest.raises(InvalidRecordError, match="not list"):
        producer.send_arrow("four", [b"a"])
