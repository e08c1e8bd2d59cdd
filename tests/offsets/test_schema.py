"""Keys and values of `__consumer_offsets`: against Kafka's own bytes, and an encoder written from its schemas."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylog
from pylog import OffsetAndMetadata, TopicPartition
from pylog.offsets.schema import (
    OFFSETS_TOPIC,
    ClassicMember,
    Commit,
    GroupMetadata,
    format_offset,
    format_partition_key,
    group_key,
    java_hash,
    offset_key,
    parse_group,
    parse_offset,
    parse_partition_key,
    partition_of_group,
    subscribed_topics,
)
from support.golden import data as golden_data
from support.golden.data import GoldenPartition
from support.reference.offsets import reference_group, reference_offset

# What Kafka's serializers printed (groups-and-transactions 1.5 to 1.7, 4.5).
OFFSETS = {
    0: "0000 0000000000000102 0002 6869 0000018bcfe56800",
    1: "0001 0000000000000102 0002 6869 0000018bcfe56800 0000018bcfee8fc0",
    2: "0002 0000000000000102 0002 6869 0000018bcfe56800",
    3: "0003 0000000000000102 00000005 0002 6869 0000018bcfe56800",
    4: "0004 0000000000000102 00000005 03 6869 0000018bcfe56800 00",
}
EMPTY_GROUPS = {
    0: "0000 0000 00000000 ffff ffff 00000000",
    1: "0001 0000 00000000 ffff ffff 00000000",
    2: "0002 0000 00000000 ffff ffff 0000018bcfe56800 00000000",
    3: "0003 0000 00000000 ffff ffff 0000018bcfe56800 00000000",
    4: "0004 01 00000000 00 00 0000018bcfe56800 01 00",
}
_HEAD = "0008636f6e73756d6572 00000003 000572616e6765 00016d"
_TAIL = "0000afc8 00000002 0102 00000001 03"
GROUPS = {
    0: f"0000 {_HEAD} 00000001 00016d 000163 00022f68 {_TAIL}",
    1: f"0001 {_HEAD} 00000001 00016d 000163 00022f68 000493e0 {_TAIL}",
    3: f"0003 {_HEAD} 0000018bcfe56800 00000001 00016d 000169 000163 00022f68 000493e0 {_TAIL}",
    4: "0004 09636f6e73756d6572 00000003 0672616e6765 026d 0000018bcfe56800 02"
    "026d 0269 0263 032f68 000493e0 0000afc8 03 0102 02 03 00 00",
}
HASHES = {
    "": (0, 0), "a": (97, 47), "test": (3556498, 48), "my-group": (-1906497762, 12), "g-simple": (-498488872, 22),
    "connect-cluster": (1440343063, 13), "ключ": (33309882, 32), "日本語": (25921943, 43), "😀": (1772899, 49),
    "polygenelubricants": (-2147483648, 0), "DESIGNING WORKHOUSES": (-2147483648, 0), "GydZG_": (-2147483648, 0),
}  # fmt: skip
NOW = 1_700_000_000_000
PARTITIONS = [each for each in golden_data.partitions() if each.topic == OFFSETS_TOPIC]


@pytest.mark.parametrize(("group", "expected"), HASHES.items())
def test_a_group_is_where_java_puts_it(group: str, expected: tuple[int, int]) -> None:
    assert (java_hash(group), partition_of_group(group, 50)) == expected


def test_keys_are_kafkas() -> None:
    place = format_partition_key(TopicPartition("t", 7))
    assert offset_key(b"g", place) == bytes.fromhex("0001 0001 67 0001 74 00000007")
    assert group_key(b"g") == bytes.fromhex("0002 0001 67")
    assert parse_partition_key(place) == TopicPartition("t", 7)


@pytest.mark.parametrize("version", OFFSETS)
def test_every_version_of_an_offset_is_read(version: int) -> None:
    expected = OffsetAndMetadata(258, "hi", 5 if version >= 3 else None, NOW)
    assert parse_offset(bytes.fromhex(OFFSETS[version])) == Commit(expected, NOW + 600_000 if version == 1 else None)


def test_offsets_are_written_in_version_3_which_every_broker_reads() -> None:
    assert format_offset(258, b"hi", 5, NOW) == bytes.fromhex(OFFSETS[3])


@pytest.mark.parametrize("version", EMPTY_GROUPS)
def test_every_version_of_an_empty_group_is_read(version: int) -> None:
    since = NOW if version >= 2 else None
    assert parse_group(bytes.fromhex(EMPTY_GROUPS[version])) == GroupMetadata("", 0, None, None, since, ())


@pytest.mark.parametrize("version", GROUPS)
def test_every_version_of_a_group_with_a_member_is_read(version: int) -> None:
    member = ClassicMember("m", "i" if version >= 3 else None, "c", "/h", 300_000 if version else 45_000, 45_000, b"\1\2", b"\3")
    expected = GroupMetadata("consumer", 3, "range", "m", NOW if version >= 2 else None, (member,))
    assert parse_group(bytes.fromhex(GROUPS[version])) == expected


def test_a_subscription_of_any_version_tells_its_topics() -> None:
    plain = "00000002 00027431 00027432 ffffffff"
    for version in ("0000", "0001", "0003", "0063"):
        assert subscribed_topics(bytes.fromhex(version + plain)) == {"t1", "t2"}
    assert subscribed_topics(b"\0\0\0\0") is None


@pytest.mark.parametrize("value", [*OFFSETS.values(), *GROUPS.values(), *EMPTY_GROUPS.values()])
def test_a_value_that_is_cut_off_anywhere_is_corrupt(value: str) -> None:
    data = bytes.fromhex(value)
    parse = parse_offset if value in OFFSETS.values() else parse_group
    for size in range(len(data)):
        with pytest.raises(pylog.CorruptionError, match=r"does not parse|version"):
            parse(data[:size])


def test_versions_from_the_future_are_refused_and_no_bytes_do_anything_else() -> None:
    for parse in (parse_offset, parse_group):
        with pytest.raises(pylog.UnsupportedFormatError, match="version 5"):
            parse(b"\0\5" + bytes(40))
        with pytest.raises(pylog.CorruptionError, match="version -1"):
            parse(b"\xff\xff" + bytes(40))


@given(
    st.sampled_from([parse_offset, parse_group, parse_partition_key, subscribed_topics]),
    st.integers(0, 4),
    st.binary(max_size=80),
)
def test_foreign_bytes_are_parsed_or_refused(parse: Any, version: int, data: bytes) -> None:
    with contextlib.suppress(pylog.CorruptionError):  # anything else fails the test
        assert parse(struct.pack(">h", version) + data) != 0


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
COMMITS = st.builds(
    OffsetAndMetadata, st.integers(0, 2**63 - 1), TEXT, st.none() | st.integers(0, 2**31 - 1), st.integers(0, 2**62)
)


@given(COMMITS)
def test_written_records_are_read_again(commit: OffsetAndMetadata) -> None:
    assert commit.commit_timestamp is not None
    written = format_offset(commit.offset, commit.metadata.encode(), commit.leader_epoch, commit.commit_timestamp)
    assert written == reference_offset(3, Commit(commit))
    assert parse_offset(written) == Commit(commit)


@given(st.sampled_from([0, 1, 2, 3, 4]), COMMITS, st.none() | st.integers(0, 2**62))
def test_every_version_is_read_as_its_schema_says(version: int, commit: OffsetAndMetadata, expires: int | None) -> None:
    known = Commit(commit if version >= 3 else commit._replace(leader_epoch=None), expires if version == 1 else None)
    assert parse_offset(reference_offset(version, known)) == known


MEMBERS = st.builds(
    ClassicMember,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    st.integers(0, 9),
    st.integers(0, 9),
    st.binary(max_size=9),
    st.binary(max_size=200),
)
METADATA = st.builds(
    GroupMetadata,
    TEXT,
    st.integers(0, 9),
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | st.integers(0, 9),
    st.lists(MEMBERS, max_size=3).map(tuple),
)


@given(st.sampled_from([3, 4]), METADATA)
def test_groups_are_read_as_their_schema_says(version: int, metadata: GroupMetadata) -> None:
    assert parse_group(reference_group(version, metadata)) == metadata


# ---- golden records ----------------------------------------------------------------------------------------------------------


def decoded_by_kafka(partition: GoldenPartition) -> dict[int, tuple[dict[str, Any], dict[str, Any] | None]]:
    """The records of offsets that Kafka's dump tool decoded as JSON: offset → key and value."""
    found = {}
    for line in partition.of.text(partition.entry["dumpDecoded"]).splitlines():
        match = re.match(r'\| offset: (\d+) .*? key: (\{"type":"[01]",.*?\}\}) payload: (.*)$', line)
        if match:
            payload = None if match[3] == "<DELETE>" else json.loads(match[3])["data"]
            found[int(match[1])] = json.loads(match[2])["data"], payload
    return found


@pytest.mark.parametrize("partition", [each for each in PARTITIONS if each.version != "2.8.2"], ids=lambda each: each.id)
def test_golden_records_are_parsed_as_kafkas_own_tool_does(partition: GoldenPartition) -> None:
    expected = decoded_by_kafka(partition)
    with pylog.open(partition.log_directory, mode="r") as store:
        records = {each.offset: each for each in store.log(partition.topic, partition.partition).records()}
    for offset, (key, value) in expected.items():
        record = records[offset]
        place = format_partition_key(TopicPartition(key["topic"], key["partition"]))
        assert record.key == offset_key(key["group"].encode(), place)
        assert (record.value is None) == (value is None)
        if value is not None and record.value is not None:
            epoch = None if value["leaderEpoch"] < 0 else value["leaderEpoch"]
            read = OffsetAndMetadata(value["offset"], value["metadata"], epoch, value["commitTimestamp"])
            assert parse_offset(record.value).committed == read
    own = [record for record in records.values() if record.key is not None and record.key[:2] in (b"\0\0", b"\0\1")]
    assert len(own) == len(expected)


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda each: each.id)
def test_values_of_brokers_before_4_are_written_again_byte_for_byte(partition: GoldenPartition) -> None:
    with pylog.open(partition.log_directory, mode="r") as store:
        records = list(store.log(partition.topic, partition.partition).records())
    for record in records:
        if record.key is not None and record.key[:2] == b"\0\1" and record.value is not None and record.value[1] == 3:
            offset, metadata, epoch, timestamp = parse_offset(record.value).committed
            assert timestamp is not None
            assert format_offset(offset, metadata.encode(), epoch, timestamp) == record.value
        elif record.key is not None and record.key[:2] == b"\0\2" and record.value is not None:
            assert reference_group(record.value[1], parse_group(record.value)) == record.value
