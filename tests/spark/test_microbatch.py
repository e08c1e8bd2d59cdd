"""Micro-batches as plain data: whatever happens to the topics between them, each record is read once, or its loss is told."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.record.types import TopicPartition
from pylog.spark.microbatch import Loss, begins, is_news, ranges, summary
from pylog.spark.rates import at_most
from pylog.spark.stream_offset import StreamOffset
from pylog.spark.watch import PartitionsSeen

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]


class Topics:
    """Topics that change, and every record that there ever was: (id of the topic, partition, offset)."""

    def __init__(self) -> None:
        self.logs = {PARTITIONS[0]: (0, 0)}
        self.ids = {"a": "a0"}
        self.written: set[tuple[str, TopicPartition, int]] = set()
        self.removed: set[tuple[str, TopicPartition, int]] = set()

    def sight(self) -> PartitionsSeen:
        homes = dict.fromkeys(self.logs, "/data")
        spans = self.logs.items()
        return PartitionsSeen(
            homes, {part: span[0] for part, span in spans}, {part: span[1] for part, span in spans}, dict(self.ids)
        )

    def append(self, part: TopicPartition, count: int) -> None:
        start, end = self.logs.setdefault(part, (0, 0))
        self.ids.setdefault(part.topic, f"{part.topic}0")
        self.logs[part] = start, end + count
        self.written |= {(self.ids[part.topic], part, offset) for offset in range(end, end + count)}

    def retain(self, part: TopicPartition, count: int) -> None:
        if part in self.logs:
            start, end = self.logs[part]
            self.logs[part] = max(start, end - count), end
            self.removed |= {(self.ids[part.topic], part, offset) for offset in range(start, max(start, end - count))}

    def recreate(self, part: TopicPartition, count: int) -> None:
        if part.topic in self.ids:
            for each in [each for each in self.logs if each.topic == part.topic]:
                self.retain(each, 0)
                del self.logs[each]
            self.ids[part.topic] = f"{part.topic}{int(self.ids[part.topic][1:]) + 1}"
            self.append(part, count)


CHANGES = st.tuples(st.sampled_from(["append", "append", "retain", "recreate"]), st.sampled_from(PARTITIONS), st.integers(0, 9))
STEPS = st.tuples(st.lists(CHANGES, max_size=3), st.lists(CHANGES, max_size=1), st.integers(1, 12))


@settings(deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_each_record_is_read_once_or_is_lost_and_no_loss_is_silent(steps: list[tuple[list[tuple], list[tuple], int]]):  # type: ignore[type-arg]
    topics = Topics()
    at = StreamOffset(topics.sight().ends, topics.sight().ids)
    read: list[tuple[str, TopicPartition, int]] = []
    for before, after, limit in [*steps, ([], [], 10_000)]:
        for change, part, count in before:
            getattr(topics, change)(part, count)
        sight = topics.sight()
        end = StreamOffset(at_most(limit, begins(at, sight), sight.ends), sight.ids)
        if not is_news(end.positions, at, sight.ids):
            continue
        for change, part, count in after:  # the micro-batch is written into the checkpoint, and planned later
            getattr(topics, change)(part, count)
        start, end = (StreamOffset.from_json(json.loads(json.dumps(place.to_json()))) for place in (at, end))
        found, losses = ranges(start, end, topics.sight())
        planned = [(end.ids[part.topic], part, offset) for part, span in found.items() for offset in range(*span)]
        assert losses or set(planned) == expected(at, end, topics)
        read += planned
        at = end
    assert len(read) == len(set(read))
    assert set(read) <= topics.written
    there = {record for record in topics.written if record not in topics.removed}
    assert there <= set(read)


def expected(start: StreamOffset, end: StreamOffset, topics: Topics) -> set[tuple[str, TopicPartition, int]]:
    """What lies between two places, of all that was ever written."""
    first = {part: offset for part, offset in start.positions.items() if start.ids[part.topic] == end.ids.get(part.topic)}
    return {
        (an_id, part, offset)
        for an_id, part, offset in topics.written
        if end.ids.get(part.topic) == an_id and first.get(part, 0) <= offset < end.positions.get(part, 0)
    }


def test_a_summary_names_ten_losses_and_counts_the_others():
    losses = [Loss(f"a-{number} no longer exists", PARTITIONS[0], 0) for number in range(12)]
    assert summary(losses).endswith("a-9 no longer exists; and 2 more")
