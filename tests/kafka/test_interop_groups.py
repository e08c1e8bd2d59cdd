"""A broker that is given a directory in which pylog's groups left their records loads them, and sees dead members off."""

from __future__ import annotations

import re
from pathlib import Path

import pylog
from pylog import OffsetsConfig
from pylog.groups.member import PartitionsRevoked
from pylog.groups.member_options import MemberOptions
from support.faults.neighbours import Neighbour
from support.groups.members import member_of
from support.kafka.adopt import AdoptedTopic, adopt
from support.kafka.harness import Broker
from support.kafka.interop_data import complaints

TIMEOUTS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}
JOIN = """
import pylog
from support.groups.members import member_of
store = pylog.open(path)
members = [member_of(store, "killed") for _ in range(2)]
for member in members:
    member.subscribe(["orders"])
    member.poll()
event = members[0].poll()
members[0].acknowledge_revocation(event.partitions)
members[1].poll(), members[0].poll()
members[0].commit({place: 2 for place in members[0].assignment})
[member.member_id for member in members if len(member.assignment) == 1]
"""


def test_a_broker_loads_our_groups_and_puts_out_members_that_are_gone(tmp_path: Path, broker) -> None:
    directory = tmp_path / "logs"
    with pylog.open(directory, offsets=OffsetsConfig(topic_num_partitions=2)) as store:
        store.create_topic("orders", partition_count=2)
        for number in range(2):
            store.log("orders", number).append_many([b"x"] * 10)
        left_by_all(store)
        topics = list(store.topics().values())
    with Neighbour() as other:
        members = other.run(JOIN, path=str(directory))
    adopt(directory, [AdoptedTopic(each.name, each.partition_count, str(each.id)) for each in topics])
    running = broker(directory, config=TIMEOUTS)
    assert re.search(r"left .* Empty +0", described(running, "left", "--state"))
    offsets = sorted(line.split()[:6] for line in described(running, "left").splitlines() if line.startswith("left"))
    assert offsets == [["left", "orders", "0", "3", "10", "7"], ["left", "orders", "1", "4", "10", "6"]]
    for member in members:
        running.wait_for(rf"\[GroupId killed\] Member {member} fenced .* because the member session expired")
    assert re.search(r"killed .* Empty +0", described(running, "killed", "--state"))
    assert len(members) == 2
    assert [line for line in complaints(running.output()) if "GroupCoordinator" in line] == []
    running.stop()
    with pylog.open(directory) as store:
        member = member_of(store, "killed")
        member.subscribe(["orders"])
        event = member.poll()
        assert sorted(0 if each is None else each.offset for each in event.partitions.values()) == [0, 2]
        member.leave()


def left_by_all(store: pylog.Store) -> None:
    """Two members, which committed and left."""
    one, two = member_of(store, "left"), member_of(store, "left", MemberOptions(assignors=("sticky", "range")))
    for member in (one, two):
        member.subscribe(["orders"])
        member.poll()
    event = one.poll()
    assert isinstance(event, PartitionsRevoked)
    one.acknowledge_revocation(event.partitions)
    two.poll()
    one.commit({place: 3 + place.partition for place in one.assignment})
    two.commit({place: 3 + place.partition for place in two.assignment})
    one.leave()
    two.leave()


def described(running: Broker, group: str, *how: str) -> str:
    return running.run_tool("consumer-groups", "--describe", "--group", group, *how).check().stdout
