"""Places in a stream as Spark's checkpoint keeps them: the connector's JSON, and notes that it passes over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.directory.topic_names import is_topic_name
from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition
from pylog.spark.stream_offset import StreamOffset

ID = "Q3BOAAABTqe9kBAvQ3BOAA"
TOPICS = st.text("aZ9._-", min_size=1, max_size=9).filter(is_topic_name)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))
PLACES = st.builds(
    StreamOffset,
    POSITIONS,
    st.dictionaries(TOPICS, st.text("aZ9_-", min_size=22, max_size=22)),
    st.none() | POSITIONS,
)


def connectors(text: str) -> dict[TopicPartition, int]:
    """What the connector finds in it: it takes every key for a topic."""
    topics = json.loads(text).items()
    return {TopicPartition(topic, int(partition)): offset for topic, found in topics for partition, offset in found.items()}


@given(PLACES)
def test_a_place_comes_back_from_the_checkpoint(place: StreamOffset):
    assert StreamOffset.from_json(json.loads(json.dumps(place.to_json()))) == place


@given(PLACES)
def test_the_connector_finds_the_same_offsets(place: StreamOffset):
    assert connectors(json.dumps(place.to_json())) == place.positions


@given(POSITIONS, st.randoms())
def test_equal_places_give_equal_text(positions: dict[TopicPartition, int], random: Any):
    shuffled = list(positions.items())
    random.shuffle(shuffled)
    assert json.dumps(StreamOffset(dict(shuffled)).to_json()) == json.dumps(StreamOffset(positions).to_json())


def test_a_checkpoint_of_the_connector_is_read():
    found = StreamOffset.from_json({"orders": {"0": 1000, "10": 3}, "returns": {"0": 0}})
    assert found.positions == {("orders", 0): 1000, ("orders", 10): 3, ("returns", 0): 0}
    assert (found.ids, found.origin) == ({}, None)


def test_the_notes_have_names_that_no_topic_can_have():
    notes = StreamOffset({}, {"orders": ID}, {TopicPartition("orders", 0): 5}).to_json()
    assert notes == {f"orders@{ID}": {}, '@from {"orders":{"0":5}}': {}}
    assert not any(is_topic_name(note) for note in notes)


@pytest.mark.parametrize(
    "found",
    [{"orders": 1}, {"offset": 7}]
    + [{"orders": offsets} for offsets in ({"x": 1}, {"-1": 1}, {"0": -1}, {"0": "1"}, {"0": 1.5}, {"0": True})],
)
def test_text_that_is_no_offset_of_a_stream_is_refused(found: dict[str, Any]):
    with pytest.raises(InvalidArgumentError, match="use this query's checkpoint"):
        StreamOffset.from_json(found)


def test_a_topic_is_another_one_when_its_id_is():
    place = StreamOffset({}, {"orders": ID, "returns": ID, "gone": ID})
    assert place.recreated({"orders": ID, "returns": ID[::-1], "new": ID}) == {"returns"}
