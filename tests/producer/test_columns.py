"""What a producer took becomes columns, and each partition's records stay in the order in which they were sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.config import TopicConfig
from pylog.producer.buffer import RecordAccumulator
from pylog.producer.columns import batches, columns_of, parts
from pylog.producer.config import ProducerConfig
from pylog.producer.future import Details, FutureRecordMetadata
from pylog.producer.route import Route
from pylog.record.few import few_of
from pylog.topics.topic import Topic

NOW = 1_700_000_000_000
Sent = tuple[int, bytes | None, bytes | None]  # partition, key, value

one = st.tuples(st.integers(0, 3), st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=3))
runs = st.lists(st.tuples(one, st.integers(1, 5)), min_size=1, max_size=12).map(
    lambda runs: [each for each, n in runs for _ in range(n)]
)


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True])
@given(runs, st.integers(1, 400))
def test_records_in_any_order_of_partitions_are_parted_and_cut_in_their_order(timed: bool, sent: list[Sent], size: int) -> None:
    topic = Topic("t", None, TopicConfig(), (0, 1, 2, 3))
    route = Route(topic, RecordAccumulator(1 << 20, 0, 0, 1), ProducerConfig(), 0.0)
    route.keyed, route.timed = any(key is not None for _, key, _ in sent), timed
    futures = [FutureRecordMetadata(route, value, key, Details(timestamp=n)) for n, (_, key, value) in enumerate(sent)]
    partitions = np.array([partition for partition, _, _ in sent], np.int64)
    found = list(parts(columns_of(futures, route, NOW), partitions, NOW))
    assert sorted(partition for partition, _ in found) == sorted({partition for partition, _, _ in sent})
    for partition, part in found:
        cut = list(batches(part, size, 1 << 20))
        assert all(len(batch.rows) == len(batch.sizes) == len(batch.futures) for batch in cut)
        assert all(batch.sizes.sum() <= size or len(batch.rows) == 1 for batch in cut)
        mine = [number for number, each in enumerate(sent) if each[0] == partition]
        assert [future for batch in cut for future in batch.futures] == [futures[number] for number in mine]
        records = [record for batch in cut for record in few_of(batch.rows).records]
        assert records == [(number if timed else NOW, *sent[number][1:], ()) for number in mine]
