"""The fold of a partition of `__transaction_state`: the last record of each id, ids by their producers, and odd records."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import pylog
from pylog import Durability, TopicPartition
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.replayed_partition import ReplayedPartition
from pylog.store import manager_of
from pylog.transactions import states
from pylog.transactions.image import TransactionsImage
from pylog.transactions.metadata import TRANSACTION_STATE_TOPIC, TransactionMetadata, TransactionOwner, TransactionState
from pylog.transactions.records import format_key, format_value
from support.golden import data as golden_data

P = 1 << 48
NOW = 1_700_000_000_000
T0 = TopicPartition("t", 0)
EMPTY = TransactionMetadata("a", P, 4, 60_000, TransactionState.EMPTY, (), NOW)
OPEN = states.begin(EMPTY, EMPTY.identity, [T0], TransactionOwner.of(7, Durability.SYNC), NOW)
PREPARED = states.prepare_commit(OPEN, OPEN.identity, {T0: 3}, NOW, lambda: P + 9)


def image_of(*given_states: TransactionMetadata) -> TransactionsImage:
    image = TransactionsImage()
    for offset, state in enumerate(given_states):
        assert image.take(offset, format_key(state.transactional_id), format_value(state))
    return image


def test_the_last_record_of_an_id_counts_and_a_tombstone_removes_it() -> None:
    image = image_of(EMPTY, OPEN, replace(EMPTY, transactional_id="b", producer_id=P + 1))
    assert (image.ids(), image.undecided()) == (["a", "b"], ["a"])
    assert (image.state_of("a"), image.state_of("c")) == (OPEN, None)
    image.take_own(3, format_key("a"), None)
    assert (image.ids(), image.state_of("a"), image.state_of_producer(P)) == (["b"], None, None)


def test_an_id_is_found_by_its_producer_id_and_by_the_one_before() -> None:
    renewed = replace(EMPTY, producer_id=P + 1, producer_epoch=0, previous_producer_id=P)
    image = image_of(renewed)
    assert image.state_of_producer(P) == image.state_of_producer(P + 1) == renewed
    assert image.state_of_producer(P + 2) is None
    image.take(1, format_key("b"), format_value(replace(EMPTY, transactional_id="b")))  # its own, so that it counts more
    found = image.state_of_producer(P)
    assert found is not None
    assert found.transactional_id == "b"
    image.take(2, format_key("a"), None)
    assert image.state_of_producer(P) == found
    assert image.state_of_producer(P + 1) is None


def test_prepared_and_open_transactions_are_undecided() -> None:
    done = states.complete(PREPARED, PREPARED, NOW)
    assert done is not None
    named = [replace(state, transactional_id=name) for name, state in zip("abcd", (EMPTY, OPEN, PREPARED, done), strict=True)]
    assert image_of(*named).undecided() == ["b", "c"]


@pytest.mark.parametrize("key", [None, b"", b"\0", bytes.fromhex("0001 0001 61"), bytes.fromhex("0000 0002 61"), b"\0\0\0\1\xff"])
def test_a_record_with_an_odd_key_is_skipped_and_counted(key: bytes | None) -> None:
    image = image_of(EMPTY)
    assert not image.take(1, key, format_value(OPEN))
    assert (image.skipped_count, image.skipped[0].offset, image.ids()) == (1, 1, ["a"])


@pytest.mark.parametrize(
    ("value", "error"), [(b"\0\1short", CorruptionError), (b"\0\2" + bytes(40), UnsupportedFormatError), (b"", CorruptionError)]
)
def test_an_id_whose_last_value_cannot_be_read_is_refused_and_never_has_the_state_before(
    value: bytes, error: type[Exception]
) -> None:
    image = image_of(OPEN, replace(EMPTY, transactional_id="b", producer_id=P + 1))
    assert image.take(2, format_key("a"), value)
    for _ in range(2):
        with pytest.raises(error, match="the record at offset 2 gives the transactional id 'a' no state"):
            image.state_of("a")
    with pytest.raises(error):
        image.state_of_producer(P)
    assert (list(image.faults()), image.undecided(), image.skipped_count) == (["a"], [], 1)
    assert image.state_of("b") is not None
    image.take(3, format_key("a"), format_value(EMPTY))
    assert (image.state_of("a"), image.faults()) == (EMPTY, {})


@given(st.data())
def test_values_that_are_checked_fast_are_read_as_the_others(data: st.DataObject) -> None:
    """A value of the usual size with a byte changed is in the index and the list of undecided ids what its parser makes of it."""
    repeated = data.draw(st.sampled_from([-1, P]))
    value = bytearray(format_value(replace(EMPTY, state=data.draw(st.sampled_from([0, 4, 5])), previous_producer_id=repeated)))
    for _ in range(data.draw(st.integers(0, 2))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 5, 8, 255]))
    image = TransactionsImage()
    image.take(0, format_key("a"), bytes(value))
    try:
        state = image.state_of("a")
    except (CorruptionError, UnsupportedFormatError):
        assert list(image.faults()) == ["a"]
        return
    assert state is not None
    assert image.faults() == {}
    assert image.state_of_producer(state.producer_id) == state
    assert (image.undecided() == []) == state.state.is_at_rest


class Partition(ReplayedPartition[TransactionsImage]):
    """A partition that lists the records that it skipped."""

    def _report(self, offset: int, why: str) -> None:
        logging.getLogger("test").warning("%d: %s", offset, why)


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_the_ids_of_a_broker_have_their_last_states(version: str, caplog: pytest.LogCaptureFixture) -> None:
    found: dict[str, tuple[TransactionState, int]] = {}
    with pylog.open(golden_data.case(version, "txn").log_directory, mode="r") as store:
        for number in store.topics()[TRANSACTION_STATE_TOPIC].partition_ids:
            log = manager_of(store).log(TRANSACTION_STATE_TOPIC, number)
            partition = Partition(lambda log=log: log, "", number, TransactionsImage)  # type: ignore[misc]
            with partition.image() as image:
                for name in image.ids():
                    state = image.state_of(name)
                    assert state is not None
                    assert image.state_of_producer(state.producer_id) == state
                    found[name] = state.state, state.producer_epoch
    assert len(found) >= 4
    assert {state for state, _ in found.values()} <= {state for state in TransactionState if state < TransactionState.DEAD}
    assert caplog.text == ""
