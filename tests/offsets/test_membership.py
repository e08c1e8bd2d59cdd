"""Records of Kafka's consumer-group protocol: its own bytes parse, and are written again as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylog
from pylog.offsets import membership
from pylog.offsets.membership import (
    CURRENT,
    GROUP_EPOCH,
    GROUP_TOPICS,
    MEMBER,
    OF_MEMBERS,
    TARGET,
    TARGET_EPOCH,
    CurrentAssignment,
    Epoch,
    GroupTopics,
    MemberMetadata,
    TargetAssignment,
    TopicMetadata,
    TopicPartitions,
    group_record_key,
    member_of,
    member_record_key,
)
from pylog.offsets.schema import OFFSETS_TOPIC
from support.golden import data as golden_data

Layout = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]
LAYOUTS: dict[int, Layout] = {
    GROUP_EPOCH: (membership.parse_epoch, membership.format_epoch),
    GROUP_TOPICS: (membership.parse_topics, membership.format_topics),
    MEMBER: (membership.parse_member, membership.format_member),
    TARGET_EPOCH: (membership.parse_epoch, membership.format_epoch),
    TARGET: (membership.parse_target, membership.format_target),
    CURRENT: (membership.parse_current, membership.format_current),
}
ID = bytes(15) + b"\x01"
ID_HEX = ID.hex()
ASSIGNED = (TopicPartitions(ID, (0,)),)

# What Kafka's serializers printed (groups-and-transactions 1.8).
PRINTED = [
    (GROUP_EPOCH, "0000 00000001 00", Epoch(1)),
    (GROUP_TOPICS, f"0000 02 {ID_HEX} 0274 00000002 01 00 00", GroupTopics((TopicMetadata(ID, "t", 2),))),
    (
        MEMBER,
        "0000 00 00 0263 032f68 02 0274 01 000493e0 00 00",
        MemberMetadata(None, None, "c", "/h", ("t",), "", 300_000, None),
    ),
    (
        MEMBER,
        "0000 00 00 0263 032f68 02 0274 01 000493e0 00 01 00 0c 01 0000afc8 02 0272 02 09 00 00",
        MemberMetadata(None, None, "c", "/h", ("t",), "", 300_000, None, ((0, bytes.fromhex("010000afc802027202090000")),)),
    ),
    (TARGET, f"0000 02 {ID_HEX} 02 00000000 00 00", TargetAssignment(ASSIGNED)),
    (CURRENT, f"0000 00000001 00000000 00 02 {ID_HEX} 02 00000000 00 01 00", CurrentAssignment(1, 0, 0, ASSIGNED)),
]


@pytest.mark.parametrize(("kind", "printed", "meant"), PRINTED)
def test_values_have_the_bytes_that_kafkas_serializers_print(kind: int, printed: str, meant: Any) -> None:
    read, write = LAYOUTS[kind]
    assert write(meant) == bytes.fromhex(printed)
    assert read(bytes.fromhex(printed)) == meant


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_every_record_of_a_brokers_groups_parses_and_is_written_again_as_it_was(version: str) -> None:
    seen = dict.fromkeys(LAYOUTS, 0)
    with pylog.open(golden_data.case(version, "groups").log_directory, mode="r") as store:
        for number in store.topics()[OFFSETS_TOPIC].partition_ids:
            for record in store.log(OFFSETS_TOPIC, number).records():
                kind = int.from_bytes((record.key or b"")[:2], "big")
                if kind in LAYOUTS and record.value is not None:
                    read, write = LAYOUTS[kind]
                    assert write(read(record.value)) == record.value
                    seen[kind] += 1
    assert all(seen[kind] for kind in LAYOUTS if kind != GROUP_TOPICS or version == "3.9.1"), seen


def test_keys_have_the_bytes_that_kafkas_serializers_print_and_name_their_member() -> None:
    assert group_record_key(GROUP_EPOCH, b"g").hex() == "0003000167"
    for kind in OF_MEMBERS:
        key = member_record_key(kind, b"g", "mé")
        assert key == bytes([0, kind]) + b"\0\1g\0\3m\xc3\xa9"
        assert member_of(key) == "mé"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", LAYOUTS)
@given(cut=st.integers(0, 100), garbage=st.binary(max_size=60))
def test_bytes_that_are_no_such_value_are_corrupt_and_nothing_else(kind: int, cut: int, garbage: bytes) -> None:
    whole = next(
        bytes.fromhex(printed) for each, printed, _ in [*PRINTED, (TARGET_EPOCH, "0000 00000001 00", None)] if each == kind
    )
    for value in (whole[: cut % len(whole)], b"\0\0" + garbage, b"\xff\xff" + garbage):
        try:
            LAYOUTS[kind][0](value)
        except pylog.CorruptionError:
            continue
        assert value.startswith(b"\0\0")  # it happens to be one: what lies behind a value's end is not looked at


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_later_version_is_unsupported_and_not_guessed_at(kind: int) -> None:
    with pytest.raises(pylog.UnsupportedFormatError, match="version 1"):
        LAYOUTS[kind][0](b"\0\1" + bytes(20))
