"""A broker that is given our directory knows our groups, with their offsets and their lag, and goes on from there."""

from __future__ import annotations

import pylog
from kafka_adopt import AdoptedTopic, adopt
from pylog import OffsetAndMetadata, OffsetsConfig
from pylog.offsets.schema import OFFSETS_TOPIC


def test_a_broker_lists_our_groups_with_offsets_and_lag_and_pylog_reads_what_it_commits(tmp_path, broker) -> None:
    directory = tmp_path / "logs"
    with pylog.open(directory, offsets=OffsetsConfig(topic_num_partitions=4)) as store:
        store.create_topic("orders", partitions=2)
        for number in range(2):
            store.log("orders", number).append_many([b"x"] * 10)
        store.offsets.commit("billing", {("orders", 0): 1})
        store.offsets.commit("billing", {("orders", 0): 4, ("orders", 1): OffsetAndMetadata(10, "all", 0)})
        store.offsets.commit("gone", {("orders", 0): 1})
        store.offsets.delete("gone")
        topics = list(store.topics().values())
    adopt(directory, [AdoptedTopic(each.name, each.partitions, str(each.id)) for each in topics])
    running = broker(directory)
    described = running.run_tool("consumer-groups", "--describe", "--all-groups").check().stdout
    rows = sorted(line.split()[:6] for line in described.splitlines() if line.startswith(("billing", "gone")))
    assert rows == [["billing", "orders", "0", "4", "10", "6"], ["billing", "orders", "1", "10", "10", "0"]]
    running.commit("billing", "orders", {0: 7})
    running.stop()
    with pylog.open(directory, mode="r") as store:
        assert {place.partition: each.offset for place, each in store.offsets.fetch("billing").items()} == {0: 7, 1: 10}
    assert OFFSETS_TOPIC in {each.name for each in topics}
