"""Control records are read as Kafka's ControlRecordType and EndTransactionMarker read them (storage-format 1.8)."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import CorruptionError
from pylog.record.batch import scan_batches
from pylog.record.control import ControlRecord, control_type, end_transaction_epoch, parse_control
from pylog.record.control_batch import control_record, usual_marker
from pylog.record.format import CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT
from support.reference.records import Batch, Record


def key(version: int, kind: int) -> bytes:
    return struct.pack(">hh", version, kind)


def value(version: int, epoch: int) -> bytes:
    return struct.pack(">hi", version, epoch)


def test_the_marker_of_appendix_a4_is_a_commit_by_coordinator_epoch_0() -> None:
    record = parse_control(bytes.fromhex("00000001"), bytes.fromhex("000000000000"))
    assert record == ControlRecord(CONTROL_COMMIT, 0)
    assert record.name == "COMMIT"
    assert record.ends_transaction


def test_an_abort_is_distinguished_from_a_commit() -> None:
    assert parse_control(key(0, 0), value(0, 2**31 - 1)) == ControlRecord(CONTROL_ABORT, 2**31 - 1)


@pytest.mark.parametrize(
    ("kind", "name"), [(2, "LEADER_CHANGE"), (6, "KRAFT_VOTERS"), (7, "UNKNOWN"), (-1, "UNKNOWN"), (999, "UNKNOWN")]
)
def test_other_types_are_named_and_their_values_are_not_parsed(kind: int, name: str) -> None:
    record = parse_control(key(0, kind), b"?")
    assert record == ControlRecord(kind, None)
    assert record.name == name
    assert not record.ends_transaction


def test_higher_versions_are_read_as_version_0_and_longer_fields_are_let_be() -> None:
    assert control_type(key(7, 1) + b"more") == CONTROL_COMMIT
    assert end_transaction_epoch(value(3, 12) + b"more") == 12


@pytest.mark.parametrize("damaged", [None, b"", b"\0", b"\0\0\0", key(-1, 1), key(-32768, 0)])
def test_a_key_that_is_missing_short_or_of_a_negative_version_is_damage(damaged: bytes | None) -> None:
    with pytest.raises(CorruptionError, match="key"):
        parse_control(damaged, value(0, 0))


@pytest.mark.parametrize("damaged", [None, b"", b"\0" * 5, value(-1, 1)])
def test_a_value_that_is_missing_short_or_of_a_negative_version_is_damage(damaged: bytes | None) -> None:
    with pytest.raises(CorruptionError, match="value"):
        parse_control(key(0, 1), damaged)


# ---- the usual marker is read from its bytes ---------------------------------------------------------------------------------


def marker(epoch: int, kind: int, **fields: int) -> Batch:
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    record = Record(0, 0, key(0, kind), value(0, epoch))
    return Batch([record], 40, 3, attributes, 1000, producer_id=1 << 48, producer_epoch=4, **fields)


@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from([CONTROL_ABORT, CONTROL_COMMIT]))
def test_the_usual_marker_is_read_from_its_bytes_as_it_is_decoded(epoch: int, kind: int) -> None:
    assert usual_marker(memoryview(marker(epoch, kind).encoded())) == parse_control(key(0, kind), value(0, epoch))


@pytest.mark.parametrize(
    "batch",
    [
        Batch([Record(0, 0, key(0, 2), value(0, 1))], producer_id=7, attributes=CONTROL_BIT),
        Batch([Record(0, 0, key(1, 1), value(0, 1))], producer_id=7, attributes=CONTROL_BIT),
        Batch([Record(0, 0, key(0, 1), value(1, 1))], producer_id=7, attributes=CONTROL_BIT),
        Batch([Record(0, 0, key(0, 1) + b"?", value(0, 1))], producer_id=7, attributes=CONTROL_BIT),
        Batch([Record(0, 0, key(0, 1), value(0, 1), ((b"h", b""),))], producer_id=7, attributes=CONTROL_BIT),
        Batch([Record(1, 0, key(0, 1), value(0, 1))], producer_id=7, attributes=CONTROL_BIT),
        Batch([Record(0, 9, key(0, 1), value(0, 1))], producer_id=7, attributes=CONTROL_BIT),
    ],
)
def test_a_marker_of_another_form_is_decoded(batch: Batch) -> None:
    data = np.frombuffer(batch.encoded(), np.uint8)
    record = batch.records[0]
    assert usual_marker(memoryview(data)) is None
    assert control_record(data, scan_batches(data).table, 0) == parse_control(record.key, record.value)
