"""What Kafka's admin client reported of its groups is what replaying the broker's `__consumer_offsets` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetAndMetadata, TopicPartition
from support.golden import data as golden_data
from support.golden.data import GoldenCase

CASES = {
    f"{case.version}/{case.name}": (case, manifest)
    for case in golden_data.cases()
    for name, manifest in (("txn", "groups.json"), ("groups", "expected.json"))
    if case.name == name
}


def reported(case: GoldenCase, manifest: str) -> dict[str, dict[TopicPartition, tuple[int, str, int | None]]]:
    """Kafka's answer: group to partition to offset, metadata and leader epoch."""
    groups: dict[str, Any] = case.json(manifest)["groups"]
    return {
        name: {
            TopicPartition(place.rpartition("-")[0], int(place.rpartition("-")[2])): (
                each["offset"],
                each["metadata"],
                each["leaderEpoch"],
            )
            for place, each in group["offsets"].items()
        }
        for name, group in groups.items()
    }


def plain(offsets: dict[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, tuple[int, str, int | None]]:
    return {place: (each.offset, each.metadata, each.leader_epoch) for place, each in offsets.items()}


@pytest.mark.sampled(50)
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("name", CASES)
def test_groups_and_their_offsets_are_those_that_kafkas_admin_client_reported(name: str, mode: str, tmp_path: Path) -> None:
    case, manifest = CASES[name]
    path = case.log_directory if mode == "r" else case.copy(tmp_path / "copy")
    expected = reported(case, manifest)
    listed = {group for group, said in case.json(manifest)["listed"].items() if said["type"] != "Share"}
    with pylog.open(path, mode=mode) as store:
        assert set(store.offsets.groups()) == listed
        assert {group: plain(store.offsets.fetch(group)) for group in expected} == expected


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_offsets_that_an_open_transaction_has_committed_are_pending(version: str) -> None:
    case = golden_data.case(version, "txn")
    with pylog.open(case.log_directory, mode="r") as store:
        assert store.offsets.pending("g-txn-open")
        assert store.offsets.pending("g-txn") == set()
        assert store.offsets.fetch("g-txn-open") == {}


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_offsets_that_an_open_transaction_has_committed_for_a_topic_are_deleted_with_the_topic(
    version: str, tmp_path: Path
) -> None:
    with pylog.open(golden_data.case(version, "txn").copy(tmp_path / "copy")) as store:
        before = {place.topic for place in store.offsets.pending("g-txn-open")}
        for topic in before:
            store.delete_topic(topic)
        assert before
        assert store.offsets.pending("g-txn-open") == set()
        assert not any(place.topic in before for group in store.offsets.groups() for place in store.offsets.fetch(group))


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_a_transaction_that_a_broker_left_open_is_left_to_the_broker(version: str, tmp_path: Path) -> None:
    path = golden_data.case(version, "txn").copy(tmp_path / "copy")
    with pylog.open(path) as store:
        pending = store.offsets.pending("g-txn-open")
        assert pending
        store.tick()
        assert store.offsets.pending("g-txn-open") == pending
