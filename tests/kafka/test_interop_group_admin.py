"""A broker and pylog on one directory in turns: both tell the same of each group, and each goes on where the other ended."""

from __future__ import annotations

from pathlib import Path

import pylog
from pylog import OffsetAndMetadata, OffsetsConfig, TopicPartition
from pylog.groups.member import PartitionsAssigned
from pylog.store import Store
from support.cli import call
from support.groups.members import member_of
from support.kafka.adopt import AdoptedTopic, adopt
from support.kafka.harness import Broker

NOW = 1_700_000_000_000
O0, O1, R0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)
DELETED = {"by-time", "newer"}
LEFT_BEHIND: dict[str, dict[str, str]] = {"left-behind": {}, "left-newer": {"group.protocol": "consumer"}}
Rows = list[tuple[str, str, int, int | None, int | None, int | None]]


def values(topic: str, number: int, first: int, end: int) -> list[bytes]:
    return [f"{topic}-{number} {offset}".encode() for offset in range(first, end)]


def fill(store: Store) -> None:
    """Topics, records a second apart, and groups that were committed, reset in several ways, and deleted."""
    for topic, partitions in (("orders", 2), ("returns", 1)):
        store.create_topic(topic, partition_count=partitions)
        for number in range(partitions):
            records = [(None, value, (), NOW + 1000 * each) for each, value in enumerate(values(topic, number, 0, 10))]
            store.log(topic, number).append_many(records)
    store.log("orders", 1).delete_records(2)
    store.offsets.commit("billing", {O0: 4, O1: OffsetAndMetadata(6, "six", 0), R0: 10})
    store.offsets.commit("audit,eu", {O0: 9})
    store.group("by-time").reset("2023-11-14T22:13:23.500Z", scope="orders")
    store.group("from-start").reset(-5, scope=["orders", "returns"])
    for group in LEFT_BEHIND:
        store.offsets.commit(group, {O0: 9, O1: 9})
    store.offsets.commit("gone", {O0: 1})
    store.group("gone").delete()
    member = member_of(store, "ours")
    member.subscribe(["orders", "returns"])
    assert isinstance(member.poll(), PartitionsAssigned)
    member.commit({O0: 2, R0: 3})
    member.leave()


def as_pylog_sees(store: Store) -> Rows:
    return sorted(
        (name, place.partition.topic, place.partition.partition, place.offset, place.end_offset, place.lag)
        for name in store.groups()
        for place in store.group(name).describe().partitions
    )


def as_the_broker_sees(running: Broker) -> Rows:
    """The table of `kafka-consumer-groups --describe --all-groups`."""
    text = running.run_tool("consumer-groups", "--describe", "--all-groups").check().stdout
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("GROUP")]
    number = {"-": None}
    return sorted(
        (row[0], row[1], int(row[2]), *(number[each] if each in number else int(each) for each in row[3:6])) for row in rows
    )


def told(text: str) -> list[str]:
    """The lines of a table; their order is that of a hash map."""
    return sorted(line for line in text.splitlines() if line.strip())


def exported(running: Broker) -> str:
    """What Kafka's tool exports of all groups."""
    asked = ["--all-groups", "--all-topics", "--to-current", "--export", "--dry-run"]
    text = running.run_tool("consumer-groups", "--reset-offsets", *asked).check().stdout
    return "".join(sorted(line for line in text.splitlines(keepends=True) if line.strip()))


def test_broker_and_pylog_see_the_same_groups_and_go_on_in_turns(tmp_path: Path, broker) -> None:
    directory = tmp_path / "logs"
    with pylog.open(directory, offsets=OffsetsConfig(topic_num_partitions=4)) as store:
        fill(store)
        before = as_pylog_sees(store)
        pylog.export_offsets(store, tmp_path / "all.csv")
        store.group("by-time").export(tmp_path / "one.csv")
        topics = [AdoptedTopic(each.name, each.partition_count, str(each.id)) for each in store.topics().values()]
    adopt(directory, topics)
    running = broker(directory)
    # the broker's table and its file are ours
    assert as_the_broker_sees(running) == before
    # our program, beside the running broker, prints the lines of its tool
    for options in (["--describe", "--all-groups"], ["--list"]):
        ours = call("groups", options[0].removeprefix("--"), directory)
        assert told(ours.text) == told(running.run_tool("consumer-groups", *options).check().stdout)
    assert [row[:4] for row in before if row[0] == "from-start"] == [
        ("from-start", "orders", 0, 0),
        ("from-start", "orders", 1, 2),
        ("from-start", "returns", 0, 0),
    ]
    assert exported(running) == "".join(sorted((tmp_path / "all.csv").read_text().splitlines(keepends=True)))
    # its tool reads our file
    given = ["--group", "copied", "--from-file", str(tmp_path / "one.csv"), "--execute"]
    running.run_tool("consumer-groups", "--reset-offsets", *given).check()
    assert running.committed("copied") == {("orders", 0): 4, ("orders", 1): 4}
    # its consumers go on where our groups are
    read = running.consume_in_group("billing", "orders", 6 + 4)
    assert sorted(each.value or b"" for each in read) == values("orders", 0, 4, 10) + values("orders", 1, 6, 10)
    for group, config in LEFT_BEHIND.items():
        assert len(running.consume_in_group(group, "orders", 1 + 1, leave=False, config=config)) == 2
    running.consume_in_group("newer", "orders", 10 + 8, config={"group.protocol": "consumer"})
    assert [each.value for each in running.consume_in_group("ours", "returns", 7)] == values("returns", 0, 3, 10)
    running.commit("audit,eu", "orders", {0: 3})
    running.stop()

    with pylog.open(directory) as store:
        # pylog sees what they committed, and the member that is still in its group
        assert {place: each.offset for place, each in store.offsets.fetch("billing").items()} == {O0: 10, O1: 10, R0: 10}
        billing = store.group("billing").describe()
        assert (billing.state, billing.protocol_type, billing.members) == ("Empty", "consumer", ())
        for group, kind in zip(LEFT_BEHIND, ("Classic", "Consumer"), strict=True):
            left = store.group(group).describe()
            assert (left.type, left.state) == (kind, "Stable")
            assert [(each.client_id, each.assignment) for each in left.members] == [("member", (O0, O1))]
        assert (store.group("newer").describe().type, store.group("newer").lag()) == ("Consumer", {O0: 0, O1: 0})
        assert store.offsets.position("audit,eu", O0) == 3
        # and commits more, resets, deletes
        store.log("orders", 0).append_many(values("orders", 0, 10, 12))
        store.offsets.commit("billing", {O0: 11})
        for group in LEFT_BEHIND:
            store.group(group).reset(shift_by=-3)
        for group in DELETED:
            store.group(group).delete()
        after = as_pylog_sees(store)
    running.start()
    assert as_the_broker_sees(running) == after
    assert not DELETED & {row[0] for row in after}
    assert [each.value for each in running.consume_in_group("billing", "orders", 1)] == values("orders", 0, 11, 12)
    # the members that were left behind do not go on where they were, but where their groups were set to
    for group in LEFT_BEHIND:
        read = running.consume_in_group(group, "orders", 5 + 3)
        assert sorted({each.value or b"" for each in read}) == sorted(values("orders", 0, 7, 12) + values("orders", 1, 7, 10))
