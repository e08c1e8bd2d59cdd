"""A group is described as Kafka's admin client described it: state, members, assignments, offsets, how far behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.groups.description import GroupDescription, MemberDescription
from support.golden import data as golden_data
from support.golden.data import GoldenCase

CASES = {
    f"{case.version}/{case.name}": (case, manifest)
    for case in golden_data.cases()
    for name, manifest in (("txn", "groups.json"), ("groups", "expected.json"))
    if case.name == name
}
Said = dict[str, Any]


def told(description: GroupDescription) -> Said:
    """A description in the words of the corpus."""
    found: Said = {
        "type": description.type,
        "state": description.state,
        "simple": not description.protocol_type,
        "assignor": description.assignor,
        "members": [member(each, description.type) for each in description.members],
        "offsets": {
            f"{each.partition.topic}-{each.partition.partition}": {
                "offset": each.offset,
                "metadata": each.metadata,
                "leaderEpoch": each.leader_epoch,
            }
            for each in description.partitions
            if each.offset is not None
        },
    }
    if description.type == "Consumer":
        found |= {"groupEpoch": description.epoch, "targetAssignmentEpoch": description.target_epoch}
    return found


def member(each: MemberDescription, kind: str) -> Said:
    found: Said = {
        "memberId": each.member_id,
        "clientId": each.client_id,
        "host": each.host,
        "groupInstanceId": each.instance_id,
        "assignment": sorted(f"{place.topic}-{place.partition}" for place in each.assignment),
    }
    if kind == "Consumer":
        targets = sorted(f"{place.topic}-{place.partition}" for place in each.target or ())
        found |= {"memberEpoch": each.epoch, "targetAssignment": targets}
    return found


def recorded(said: Said) -> Said:
    """What the corpus has of a group, members in the order of their ids."""
    return said | {"members": sorted(said["members"], key=lambda each: str(each["memberId"]))}


def ends(case: GoldenCase) -> dict[str, tuple[int, int]]:
    return {each.tp: (each.meta["logStartOffset"], each.meta["logEndOffset"]) for each in case.partitions}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("name", CASES)
def test_a_group_is_described_as_kafkas_admin_client_described_it(name: str, mode: str, tmp_path: Path) -> None:
    case, manifest = CASES[name]
    path = case.log_directory if mode == "r" else case.copy(tmp_path / "copy")
    found = case.json(manifest)
    with pylog.open(path, mode=mode) as store:
        for group, said in found["groups"].items():
            if "describeError" in said or said["state"] == "Dead":
                with pytest.raises(pylog.GroupIdNotFoundError):
                    store.group(group).describe()
            else:
                assert told(store.group(group).describe()) == recorded(said), group
        listed = {group: each for group, each in found["listed"].items() if each["type"] != "Share"}
        described = {group: store.group(group).describe() for group in store.groups()}
        assert {group: (each.state, each.protocol_type) for group, each in described.items()} == {
            group: (each["state"], each["protocol"]) for group, each in listed.items()
        }


@pytest.mark.parametrize("name", CASES)
def test_lag_is_the_brokers_end_less_the_committed_offset(name: str) -> None:
    case, manifest = CASES[name]
    known = ends(case)
    with pylog.open(case.log_directory, mode="r") as store:
        for group, said in case.json(manifest)["groups"].items():
            if said["offsets"]:
                rows = {
                    f"{each.partition.topic}-{each.partition.partition}": each
                    for each in store.group(group).describe().partitions
                }
                for tp, each in said["offsets"].items():
                    if tp in known:
                        assert (rows[tp].start_offset, rows[tp].end_offset) == known[tp]
                    assert rows[tp].lag is None or rows[tp].lag == (rows[tp].end_offset or 0) - each["offset"]
