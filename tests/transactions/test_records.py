"""Keys and values of `__transaction_state`: against Kafka's own bytes, and against damaged ones."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import pylog
from pylog import TopicPartition
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.transactions.metadata import TRANSACTION_STATE_TOPIC, TransactionMetadata, TransactionOwner, TransactionState
from pylog.transactions.records import OWNER_TAG, format_key, format_value, parse_key, parse_value, partition_for
from support.golden import data as golden_data

NOW = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HEAD = "0000000000000001 0000 0000ea60"  # producer id, epoch, timeout
LATER, START = "0000018bcfe56800", "0000018bcfe567ff"
# What Kafka's serializers printed (groups-and-transactions 6.1).
VALUES: dict[str, tuple[int, TransactionMetadata]] = {
    f"0000 {HEAD} 00 ffffffff {LATER} ffffffffffffffff": (
        0,
        TransactionMetadata("tx", 1, 0, 60_000, TransactionState.EMPTY, (), NOW, client_transaction_version=0),
    ),
    f"0000 {HEAD} 01 00000001 000174 00000002 00000000 00000001 {LATER} {START}": (
        0,
        TransactionMetadata("tx", 1, 0, 60_000, TransactionState.ONGOING, (T0, T1), NOW, NOW - 1, client_transaction_version=0),
    ),
    f"0001 {HEAD} 00 00 {LATER} ffffffffffffffff 00": (
        1,
        TransactionMetadata("tx", 1, 0, 60_000, TransactionState.EMPTY, (), NOW, client_transaction_version=0),
    ),
    f"0001 {HEAD} 01 02 0274 03 00000000 00000001 00 {LATER} {START} 00": (
        1,
        TransactionMetadata("tx", 1, 0, 60_000, TransactionState.ONGOING, (T0, T1), NOW, NOW - 1, client_transaction_version=0),
    ),
    f"0001 0000000000000001 0005 0000ea60 02 01 {LATER} {START} 03 00 08 0000000000000001 01 08 0000000000000009 02 02 0002": (
        1,
        TransactionMetadata("tx", 1, 5, 60_000, TransactionState.PREPARE_COMMIT, (), NOW, NOW - 1, 1, 9),
    ),
}
OWNED = TransactionMetadata(
    "tx",
    1 << 48,
    7,
    60_000,
    TransactionState.PREPARE_COMMIT,
    (T0, T1),
    NOW,
    NOW - 5,
    owner=TransactionOwner(2**42 + 3, 2, (4, 9)),
)


def test_an_id_is_in_kafkas_partition() -> None:
    assert (partition_for("my-group", 50), partition_for("polygenelubricants", 50), partition_for("😀", 50)) == (12, 0, 49)


def test_keys_are_kafkas() -> None:
    assert format_key("tx") == bytes.fromhex("0000 0002 7478")
    assert parse_key(format_key("über")) == "über"
    with pytest.raises(UnsupportedFormatError, match="version 1"):
        parse_key(bytes.fromhex("0001 0002 7478"))


@pytest.mark.parametrize("value", VALUES)
def test_both_versions_of_kafkas_values_are_read_and_written_again_byte_for_byte(value: str) -> None:
    version, expected = VALUES[value]
    assert parse_value("tx", bytes.fromhex(value)) == expected
    assert format_value(expected, version) == bytes.fromhex(value)


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_golden_records_are_written_again_byte_for_byte(version: str) -> None:
    states = set()
    with pylog.open(golden_data.case(version, "txn").log_directory, mode="r") as store:
        numbers = store.topics()[TRANSACTION_STATE_TOPIC].partition_ids
        records = [record for number in numbers for record in store.log(TRANSACTION_STATE_TOPIC, number).records()]
    for record in records:
        assert record.key is not None
        assert record.value is not None
        name = parse_key(record.key)
        metadata = parse_value(name, record.value)
        assert format_key(name) == record.key
        assert format_value(metadata, record.value[1]) == record.value
        assert version == "4.3.0" or not metadata.has_own_epochs
        states.add(metadata.state)
    assert states == {state for state in TransactionState if state < TransactionState.DEAD}


def test_the_owner_is_a_tagged_field_of_pylogs_own() -> None:
    written = format_value(OWNED)
    assert written.hex().endswith("f9e001" + "1b" + "01" + f"{2**42 + 3:016x}" + "02" + "03" + f"{4:016x}{9:016x}")
    assert parse_value("tx", written) == OWNED
    assert OWNED.owner is not None
    assert OWNED.owner.is_synced


def with_tags(*tags: tuple[int, bytes]) -> bytes:
    """An Empty value with tagged fields."""
    body = bytes.fromhex(f"0001 {HEAD} 00 00 {LATER} ffffffffffffffff") + bytes([len(tags)])
    for number, value in tags:
        low = bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])
        body += low + bytes([len(value)]) + value
    return body


def test_tags_of_others_are_dropped_and_a_later_owner_is_read_as_far_as_it_is_known() -> None:
    later = struct.pack(">bqbB", 2, 7, 5, 1) + b"more"
    found = parse_value("tx", with_tags((5, b"x"), (OWNER_TAG, later), (OWNER_TAG + 1, b"y")))
    assert found.owner == TransactionOwner(7, 5)
    assert format_value(replace(found, owner=None)) == with_tags()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (f"0001 ffffffffffffffff 0000 0000ea60 00 00 {LATER} {LATER} 00", "producer id -1"),
        (f"0001 0000000000000001 fffe 0000ea60 00 00 {LATER} {LATER} 00", "producer epoch -2"),
        (f"0001 0000000000000001 0000 ffffffff 00 00 {LATER} {LATER} 00", "timeout -1"),
        (f"0001 {HEAD} 06 01 {LATER} {LATER} 00", "state 6"),
        (f"0001 {HEAD} 07 01 {LATER} {LATER} 00", "state 7"),
        (f"0001 {HEAD} ff 01 {LATER} {LATER} 00", "state -1"),
        (f"0001 {HEAD} 01 02 032e2e 02 00000000 00 {LATER} {LATER} 00", r"partition 0 of '\.\.'"),
        (f"0001 {HEAD} 01 02 0274 02 ffffffff 00 {LATER} {LATER} 00", "partition -1 of 't'"),
        (f"0001 {HEAD} 01 02 0274 ffffffff0f 00000000 00 {LATER} {LATER} 00", "does not parse"),
        (f"0001 {HEAD} 01 02 02ff 01 00 {LATER} {LATER} 00", "does not parse"),
        (f"0001 {HEAD} 00 00 {LATER} {LATER} 01 02 01 00", "does not parse"),
        (f"ffff {HEAD} 00 00 {LATER} {LATER} 00", "version -1"),
        (with_tags((2, b"\xff\xff")).hex(), "client transaction version -1"),
        (with_tags((OWNER_TAG, struct.pack(">bqbB", 0, 7, 5, 1))).hex(), "owner"),
        (with_tags((OWNER_TAG, struct.pack(">bqbB", 1, -7, 5, 1))).hex(), "owner"),
        (with_tags((OWNER_TAG, struct.pack(">bqbBq", 1, 7, 5, 2, 1))).hex(), "owner"),
        (with_tags((OWNER_TAG, struct.pack(">bqb", 1, 7, 5))).hex(), "does not parse"),
    ],
)
def test_a_value_that_no_coordinator_writes_is_corrupt(value: str, reason: str) -> None:
    with pytest.raises(CorruptionError, match=reason):
        parse_value("tx", bytes.fromhex(value))


@pytest.mark.parametrize("value", [*VALUES, format_value(OWNED).hex()])
def test_a_value_that_is_cut_off_anywhere_is_corrupt(value: str) -> None:
    data = bytes.fromhex(value)
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            parse_value("tx", data[:size])


def test_versions_from_the_future_are_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="version 2"):
        parse_value("tx", b"\0\2" + bytes(40))


NAMES = st.text(st.sampled_from("abc._-"), min_size=3, max_size=9)
IDS = st.integers(-1, 2**63 - 1)
ASSIGNED = st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=9).map(tuple)


@st.composite
def metadata(draw: st.DrawFn) -> TransactionMetadata:
    """Any state that a record can have."""
    state = draw(st.sampled_from(list(TransactionState)[:6]))
    partitions = () if state is TransactionState.EMPTY else draw(ASSIGNED)
    times = st.integers(-1, 2**63 - 1)
    epochs = st.integers(-1, 2**15 - 1)
    found = TransactionMetadata(
        "tx", draw(st.integers(0, 2**63 - 1)), draw(epochs), draw(st.integers(0, 2**31 - 1)), state, partitions, draw(times)
    )
    ends = draw(st.just(()) | st.lists(st.integers(0, 2**63 - 1), min_size=len(partitions), max_size=len(partitions)).map(tuple))
    owner = draw(st.none() | st.builds(TransactionOwner, st.integers(0, 2**63 - 1), st.integers(0, 127), st.just(ends)))
    version = draw(st.integers(0, 2**15 - 1))
    ids: tuple[Any, ...] = draw(times), draw(IDS), draw(IDS), draw(epochs), version, owner
    names = "start_timestamp_ms previous_producer_id next_producer_id next_producer_epoch client_transaction_version owner"
    return replace(found, **dict(zip(names.split(), ids, strict=True)))


@given(metadata())
def test_what_is_written_is_read_again(known: TransactionMetadata) -> None:
    assert parse_value("tx", format_value(known)) == known
    plain = replace(
        known,
        previous_producer_id=-1,
        next_producer_id=-1,
        next_producer_epoch=-1,
        client_transaction_version=0,
        owner=None,
    )
    assert parse_value("tx", format_value(known, 0)) == plain


@given(metadata(), st.data())
def test_damaged_bytes_are_read_or_refused(known: TransactionMetadata, data: st.DataObject) -> None:
    value = bytearray(format_value(known, data.draw(st.sampled_from([0, 1]))))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = parse_value("tx", bytes(value))
    except (CorruptionError, UnsupportedFormatError):
        return
    assert parse_value("tx", format_value(found)) == found
