"""Producers: a batch sent twice is taken once, one that is missing is noticed, and a broker's snapshots say the same of it."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import (
    CorruptionError,
    InvalidArgumentError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerBatch,
    ProducerError,
    ProducerFencedError,
)
from pylog.fs import OsFileSystem
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.producer_state import Producer, ProducerStateManager, Sequenced
from pylog.log.recovery.producer_snapshots import encode_snapshot, load_snapshot, write_snapshot
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT
from pylog.record.types import check_producer_batch
from support.golden.data import GoldenPartition, partitions
from support.log.derived import parse_snapshot
from support.reference.records import Batch, Record

LAST = 2**31 - 1  # the largest sequence
TRANSACTIONAL_MARKER = TRANSACTIONAL_BIT | CONTROL_BIT


@dataclass
class Written:
    """A log of nothing but batch headers, and the producer state behind it: each append replays what it wrote."""

    state: ProducerStateManager = field(default_factory=ProducerStateManager)
    batches: list[bytes] = field(default_factory=list)

    def append(
        self, producer: int = 7, epoch: int = 0, sequence: int = -1, count: int = 1, *, attributes: int = 0, timestamp: int = 1000
    ) -> range:
        """Writes `count` records and says where. Nothing is checked first."""
        first = self.state.end_offset
        batch = Batch(
            base_offset=first,
            attributes=attributes,
            base_timestamp=timestamp,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            last_offset_delta=count - 1,
            count=0,
        )
        self._replay(batch)
        return range(first, first + count)

    def end_transaction(
        self, kind: int, producer: int = 7, epoch: int = 0, *, coordinator_epoch: int = 0, timestamp: int = 1000
    ) -> list[AbortedTransaction]:
        """Writes a marker and says which transactions it aborted."""
        batch = Batch(
            [Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch))],
            base_offset=self.state.end_offset,
            attributes=TRANSACTIONAL_MARKER,
            base_timestamp=timestamp,
            producer_id=producer,
            producer_epoch=epoch,
        )
        return self._replay(batch)

    def send(self, producer: int = 7, epoch: int = 0, sequence: int = 0, count: int = 1) -> range | Sequenced:
        """What an append of a producer does: it is checked, and written unless it is there already."""
        there = self.state.check(ProducerBatch(producer, epoch, sequence), count)
        return self.append(producer, epoch, sequence, count) if there is None else there

    def _replay(self, batch: Batch) -> list[AbortedTransaction]:
        self.batches.append(batch.encoded())
        return replay(self.state, self.batches[-1])

    @property
    def only_producer(self) -> Producer:
        (producer,) = self.state.producers
        return producer


def replay(state: ProducerStateManager, data: bytes) -> list[AbortedTransaction]:
    buffer = np.frombuffer(data, np.uint8)
    return state.replay(buffer, scan_batches(buffer).table)


def refused(log: Written, *batch: int) -> int:
    """The sequence that the log expects instead."""
    with pytest.raises(OutOfOrderSequenceError) as caught:
        log.send(*batch)
    return caught.value.expected


# ---- appending -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [0, 1, 1_000_000, LAST])
def test_a_producer_that_the_log_does_not_know_may_begin_anywhere(sequence: int) -> None:
    assert Written().send(7, 3, sequence) == range(1)


def test_a_producer_without_an_epoch_in_the_snapshot_may_begin_anywhere() -> None:
    log = Written(ProducerStateManager([Producer(7, -1)]))
    assert log.send(7, 3, 41) == range(1)


def test_batches_that_follow_on_are_taken() -> None:
    log = Written()
    assert [log.send(sequence=first, count=5) for first in (0, 5, 10)] == [range(5), range(5, 10), range(10, 15)]


def test_producers_do_not_see_each_other() -> None:
    log = Written()
    assert [log.send(producer, sequence=0) for producer in (7, 8, 9)] == [range(1), range(1, 2), range(2, 3)]
    assert refused(log, 8, 0, 5) == 1


def test_each_of_the_last_five_batches_is_known_when_it_is_sent_again() -> None:
    log = Written()
    for number in range(7):
        log.send(sequence=10 * number, count=10)
    again = [log.send(sequence=10 * number, count=10) for number in range(2, 7)]
    assert again == [Sequenced(10 * number, 10 * number + 9, 10 * number, 10 * number + 9) for number in range(2, 7)]
    assert log.state.end_offset == 70


def test_a_batch_from_long_ago_is_out_of_order() -> None:
    log = Written()
    for sequence in range(6):
        log.send(sequence=sequence)
    assert refused(log, 7, 0, 0) == 6


def test_a_batch_of_other_bounds_than_the_one_before_is_not_that_one() -> None:
    log = Written()
    log.send(sequence=0, count=10)
    assert [refused(log, 7, 0, sequence, count) for sequence, count in ((0, 9), (0, 11), (1, 9), (1, 10))] == [10] * 4


def test_a_gap_in_sequences_is_refused_and_the_error_names_the_expected_one() -> None:
    log = Written()
    log.send(sequence=0, count=3)
    with pytest.raises(OutOfOrderSequenceError, match="producer 7, epoch 0, sequence 4: the log expects sequence 3") as caught:
        log.send(sequence=4)
    error = caught.value
    assert (error.producer_id, error.epoch, error.sequence, error.expected) == (7, 0, 4, 3)
    assert isinstance(error, ProducerError)


def test_an_error_survives_its_way_to_another_process() -> None:
    log = Written()
    log.send(sequence=0)
    with pytest.raises(OutOfOrderSequenceError) as caught:
        log.send(sequence=9)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), copy.expected) == (OutOfOrderSequenceError, str(caught.value), 1)


def test_a_lower_epoch_is_fenced_its_old_batches_too() -> None:
    log = Written()
    log.send(epoch=4, sequence=0)
    log.send(epoch=5, sequence=0)
    for sequence in (0, 1):
        with pytest.raises(ProducerFencedError, match="epoch 5") as caught:
            log.send(epoch=4, sequence=sequence)
        assert (caught.value.epoch, caught.value.expected) == (4, 5)


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    log = Written()
    log.send(epoch=0, sequence=0, count=5)
    assert refused(log, 7, 1, 5) == 0
    assert log.send(epoch=1, sequence=0) == range(5, 6)
    assert log.send(epoch=1, sequence=1) == range(6, 7)


def test_the_first_batch_of_a_new_epoch_is_not_taken_for_that_of_the_old_one() -> None:
    log = Written()
    assert [log.send(epoch=epoch, sequence=0) for epoch in (0, 1)] == [range(1), range(1, 2)]


def test_sequences_begin_again_at_0_after_the_largest_one() -> None:
    log = Written()
    log.send(sequence=LAST - 1, count=2)
    assert refused(log, 7, 0, 1) == 0
    assert log.send(sequence=0) == range(2, 3)
    assert log.send(sequence=LAST - 1, count=2) == Sequenced(LAST - 1, LAST, 0, 1)


def test_a_batch_may_lie_across_the_largest_sequence() -> None:
    log = Written()
    log.send(sequence=LAST - 1, count=5)
    assert log.only_producer.last_sequence == 2
    assert log.send(sequence=LAST - 1, count=5) == Sequenced(LAST - 1, 2, 0, 4)
    assert log.send(sequence=3) == range(5, 6)


def test_checking_changes_nothing() -> None:
    log = Written()
    log.send(sequence=0)
    before = log.state.producers
    assert log.state.check(ProducerBatch(7, 0, 1), 1) is None
    assert log.state.check(ProducerBatch(8, 0, 0), 1) is None
    refused(log, 7, 0, 5)
    assert log.state.producers == before


# ---- replaying -----------------------------------------------------------------------------------------------------------------


def test_replaying_takes_gaps_and_lower_epochs_as_they_are() -> None:
    """Compaction leaves gaps, and what is in the log is in the log."""
    log = Written()
    for epoch, sequence in ((1, 0), (1, 17), (0, 3)):
        log.append(epoch=epoch, sequence=sequence)
    assert (log.only_producer.epoch, log.only_producer.batches) == (0, (Sequenced(3, 3, 2, 2),))


def test_batches_that_were_replayed_already_are_passed_over() -> None:
    log = Written()
    for sequence in range(3):
        log.send(sequence=sequence)
    before = log.only_producer
    replay(log.state, b"".join(log.batches))
    assert log.only_producer == before


def test_replaying_the_log_finds_the_same_five_batches() -> None:
    log = Written()
    for sequence in range(9):
        log.send(sequence=sequence)
    again = ProducerStateManager()
    replay(again, b"".join(log.batches))
    assert again.producers == log.state.producers
    assert [batch.first_sequence for batch in again.producers[0].batches] == [4, 5, 6, 7, 8]


def test_batches_without_a_producer_move_the_end_only() -> None:
    log = Written()
    log.append(producer=-1, epoch=-1, sequence=0, count=4)
    assert (log.state.producers, log.state.end_offset) == ([], 4)


def test_batches_that_were_not_written_after_all_leave_no_trace() -> None:
    log = Written()
    log.send(sequence=0)
    log.append(8, sequence=0, attributes=TRANSACTIONAL_BIT)
    before = log.state.producers
    for producers in ([7], [7, 8], [9]):  # the first state of each is the one that counts
        log.state.keep(np.array(producers))
        log.append(producers[0], sequence=1)
    log.end_transaction(CONTROL_COMMIT, 8)
    log.append(9, sequence=2, attributes=TRANSACTIONAL_BIT)
    log.state.put_back(2)
    assert (log.state.producers, log.state.end_offset, log.state.first_unstable_offset) == (before, 2, 1)
    assert log.send(sequence=1) == range(2, 3)


# ---- transactions --------------------------------------------------------------------------------------------------------------


def test_a_batch_outside_a_transaction_does_not_get_into_an_open_one() -> None:
    log = Written()
    log.append(sequence=0, attributes=TRANSACTIONAL_BIT)
    with pytest.raises(InvalidTransactionStateError, match="open since offset 0") as caught:
        log.send(sequence=1)
    assert caught.value.offset == 0
    log.end_transaction(CONTROL_COMMIT)
    assert log.send(sequence=1) == range(2, 3)


def test_sequences_go_on_after_a_marker_of_the_same_epoch() -> None:
    log = Written()
    log.append(sequence=0, count=2, attributes=TRANSACTIONAL_BIT)
    log.end_transaction(CONTROL_COMMIT, timestamp=2000)
    assert refused(log, 7, 0, 0) == 2
    assert log.send(sequence=0, count=2) == Sequenced(0, 1, 0, 1)
    assert log.only_producer.timestamp == 2000


def test_a_marker_of_a_higher_epoch_ends_the_old_one() -> None:
    log = Written()
    log.append(sequence=0, attributes=TRANSACTIONAL_BIT)
    log.end_transaction(CONTROL_ABORT, epoch=1, coordinator_epoch=3)
    with pytest.raises(ProducerFencedError):
        log.send(epoch=0, sequence=1)
    assert refused(log, 7, 1, 1) == 0
    assert log.send(epoch=1, sequence=0) == range(2, 3)
    assert log.only_producer.coordinator_epoch == 3


def test_an_aborted_transaction_is_stored_with_the_last_stable_offset_after_it() -> None:
    log = Written()
    log.append(7, sequence=0, attributes=TRANSACTIONAL_BIT)
    log.append(8, sequence=0, attributes=TRANSACTIONAL_BIT)
    assert log.state.first_unstable_offset == 0
    assert log.end_transaction(CONTROL_ABORT, 7) == [AbortedTransaction(7, 0, 2, 1)]
    assert log.state.first_unstable_offset == 1
    assert log.end_transaction(CONTROL_ABORT, 8) == [AbortedTransaction(8, 1, 3, 4)]
    assert log.end_transaction(CONTROL_ABORT, 8) == []
    assert log.state.first_unstable_offset is None


def test_a_marker_that_compaction_emptied_changes_nothing() -> None:
    log = Written()
    log.append(sequence=0, attributes=TRANSACTIONAL_BIT)
    before = log.only_producer
    log.append(epoch=9, attributes=TRANSACTIONAL_MARKER)
    assert log.only_producer == before


# ---- expiry --------------------------------------------------------------------------------------------------------------------


def test_an_idle_producer_is_forgotten_and_may_begin_anywhere_again() -> None:
    log = Written()
    log.append(7, sequence=0, timestamp=1000)
    log.append(8, sequence=0, timestamp=1001)
    assert log.state.expire(now_ms=1999, expiration_ms=1000) == []
    assert log.state.expire(now_ms=2000, expiration_ms=1000) == [7]
    assert log.send(7, sequence=41) == range(2, 3)
    assert refused(log, 8, 0, 41) == 1


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    log = Written()
    log.append(sequence=0, attributes=TRANSACTIONAL_BIT)
    assert log.state.expire(now_ms=10**15, expiration_ms=1) == []
    log.end_transaction(CONTROL_COMMIT, timestamp=5000)
    assert log.state.expire(now_ms=5999, expiration_ms=1000) == []
    assert log.state.expire(now_ms=6000, expiration_ms=1000) == [7]
    assert log.state.first_unstable_offset is None


# ---- snapshots -----------------------------------------------------------------------------------------------------------------

KAFKAS_SNAPSHOT = bytes.fromhex(
    "0001 3555357a 00000002"
    "0000000000000000 0000 00000004 0000000000000004 00000000 00000000000003ec ffffffff ffffffffffffffff"
    "0000000000000001 0000 00000000 0000000000000005 00000000 00000000000007d0 ffffffff 0000000000000005"
)


def test_a_snapshot_has_kafkas_bytes() -> None:
    log = Written()
    for sequence in range(5):
        log.append(0, sequence=sequence, timestamp=1000 + sequence)
    log.append(1, sequence=0, attributes=TRANSACTIONAL_BIT, timestamp=2000)
    assert encode_snapshot(log.state) == KAFKAS_SNAPSHOT
    assert encode_snapshot(parse_snapshot(KAFKAS_SNAPSHOT, 6, "x")) == KAFKAS_SNAPSHOT


def test_after_a_snapshot_only_the_last_batch_is_known() -> None:
    log = Written()
    for number in range(3):
        log.send(sequence=2 * number, count=2)
    again = Written(parse_snapshot(encode_snapshot(log.state), log.state.end_offset, "x"))
    assert refused(again, 7, 0, 2, 2) == 6
    assert again.send(sequence=4, count=2) == Sequenced(4, 5, 4, 5)
    assert again.send(sequence=6) == range(6, 7)
    assert again.send(sequence=4, count=2) == Sequenced(4, 5, 4, 5)


def test_an_open_transaction_goes_on_after_a_snapshot() -> None:
    log = Written()
    log.append(sequence=0, attributes=TRANSACTIONAL_BIT)
    again = Written(parse_snapshot(encode_snapshot(log.state), 1, "x"))
    assert again.state.first_unstable_offset == 0
    assert again.end_transaction(CONTROL_ABORT) == [AbortedTransaction(7, 0, 1, 2)]


def altered(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


DAMAGES = {
    "empty": b"",
    "cut in its head": KAFKAS_SNAPSHOT[:9],
    "cut in an entry": KAFKAS_SNAPSHOT[:-1],
    "longer": KAFKAS_SNAPSHOT + b"\0",
    "of another version": altered(KAFKAS_SNAPSHOT, 1),
    "altered in its checksum": altered(KAFKAS_SNAPSHOT, 5),
    "altered in an entry": altered(KAFKAS_SNAPSHOT, 40),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_not_used_an_older_one_is(tmp_path: Path, damage: str) -> None:
    fs, directory = OsFileSystem(), str(tmp_path)
    with pytest.raises(CorruptionError):
        parse_snapshot(DAMAGES[damage], 6, "x")
    write_snapshot(fs, directory, ProducerStateManager([Producer(9, 2)], 4))
    (tmp_path / "00000000000000000006.snapshot").write_bytes(DAMAGES[damage])
    state, complaints = load_snapshot(fs, directory, [4, 6], 0, 10)
    assert (state.producers, state.end_offset, len(complaints)) == ([Producer(9, 2)], 4, 1)
    state, complaints = load_snapshot(fs, directory, [6], 0, 10)
    assert (state.producers, state.end_offset, len(complaints)) == ([], 0, 1)


def test_snapshots_outside_the_log_are_not_used(tmp_path: Path) -> None:
    fs, directory = OsFileSystem(), str(tmp_path)
    for offset in (3, 5, 8, 9):
        write_snapshot(fs, directory, ProducerStateManager([Producer(offset, 0)], offset))
    assert load_snapshot(fs, directory, [3, 5, 8, 9], 3, 8)[0].producers == [Producer(8, 0)]
    assert load_snapshot(fs, directory, [3, 5, 8, 9], 3, 7)[0].producers == [Producer(5, 0)]
    assert load_snapshot(fs, directory, [3, 5, 8, 9], 5, 7)[0].end_offset == 5


def test_a_log_without_records_has_no_snapshot(tmp_path: Path) -> None:
    write_snapshot(OsFileSystem(), str(tmp_path), ProducerStateManager())
    assert not list(tmp_path.iterdir())


def whole_histories() -> list[GoldenPartition]:
    """Compaction removes batches that a snapshot knows of; in `unclean` a broker started again and forgot the old producers."""
    found = [partition for partition in partitions() if "compact" not in partition.case and partition.case != "unclean"]
    return [partition for partition in found if any(name.endswith(".snapshot") for name in partition.entry["files"])]


@pytest.mark.parametrize("golden", whole_histories(), ids=lambda partition: partition.id)
def test_replaying_a_brokers_log_gives_the_brokers_snapshots(golden: GoldenPartition) -> None:
    logs = [np.fromfile(path, np.uint8) for path in sorted(golden.directory.glob("*.log"))]
    tables = [scan_batches(log).table for log in logs]
    state = ProducerStateManager()
    for path in sorted(golden.directory.glob("*.snapshot")):
        broker = parse_snapshot(path.read_bytes(), int(path.stem), path.name)
        if broker.end_offset <= tables[0][BASE_OFFSET, 0]:  # the records that it speaks of were deleted
            state = ProducerStateManager(broker.producers, broker.end_offset)
        for log, table in zip(logs, tables, strict=True):
            state.replay(log, table[:, table[BASE_OFFSET] < broker.end_offset])
        assert encode_snapshot(state) == encode_snapshot(broker)
        assert state.first_unstable_offset == broker.first_unstable_offset


# ---- against a reference -------------------------------------------------------------------------------------------------------

Answer = str | tuple[int, int] | None
Sent = tuple[int, int, int, int]


class EveryBatch:
    """A log that forgets nothing: (epoch, all sequences of a batch, offset) of each producer's batches."""

    def __init__(self) -> None:
        self.of: dict[int, list[tuple[int, list[int], int]]] = {}
        self.end = 0

    def send(self, producer: int, epoch: int, sequence: int, count: int) -> Answer:
        """The offsets of a duplicate, what is wrong, or None: it was written."""
        sequences = [(sequence + index) % 2**31 for index in range(count)]
        known = self.of.setdefault(producer, [])
        answer = self._answer(known, epoch, sequences)
        if answer is None:
            known.append((epoch, sequences, self.end))
            self.end += count
        return answer

    def _answer(self, known: list[tuple[int, list[int], int]], epoch: int, sequences: list[int]) -> Answer:
        if not known:
            return None
        newest, before, _ = known[-1]
        for _, there, offset in [entry for entry in known if entry[0] == newest == epoch][-5:]:
            if there == sequences:
                return offset, offset + len(there) - 1
        if epoch < newest:
            return "fenced"
        expected = 0 if epoch > newest else (before[-1] + 1) % 2**31
        return None if sequences[0] == expected else f"expects {expected}"


def answer_of(log: Written, batch: Sent) -> Answer:
    try:
        there = log.send(*batch)
    except ProducerFencedError:
        return "fenced"
    except OutOfOrderSequenceError as error:
        return f"expects {error.expected}"
    return (there.first_offset, there.last_offset) if isinstance(there, Sequenced) else None


@st.composite
def sendings(draw: st.DrawFn) -> list[Sent]:
    """Producers that count on, repeat themselves, leave gaps and begin again, close to where sequences wrap."""
    sent: list[Sent] = []
    for _ in range(draw(st.integers(1, 25))):
        producer = draw(st.integers(1, 2))
        own = [batch for batch in sent if batch[0] == producer]
        how = draw(st.sampled_from(["next", "next", "next", "again", "epoch", "any"])) if own else "any"
        if how == "again":
            sent.append(draw(st.sampled_from(own)))
            continue
        _, epoch, sequence, count = own[-1] if own else (producer, 0, 0, 0)
        following = {"next": (sequence + count) % 2**31, "epoch": 0}.get(how, -1)
        if following < 0:
            following = draw(st.integers(0, 6) | st.integers(LAST - 6, LAST))
        sent.append((producer, epoch + (how == "epoch"), following, draw(st.integers(1, 3))))
    return sent


@pytest.mark.slow
@given(sendings(), st.integers(0, 25))
def test_every_answer_is_that_of_a_log_that_forgets_nothing(sent: list[Sent], reopened: int) -> None:
    log, reference = Written(), EveryBatch()
    for number, batch in enumerate(sent):
        if number == reopened:  # replayed from the beginning, as after a crash
            log.state = ProducerStateManager()
            replay(log.state, b"".join(log.batches))
        assert answer_of(log, batch) == reference.send(*batch)
    assert log.state.end_offset == reference.end


# ---- a producer's numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(0, 0, 0), (2**63 - 1, 2**15 - 1, LAST)])
def test_numbers_that_fit_a_batchs_header_are_taken(batch: tuple[int, int, int]) -> None:
    assert check_producer_batch(ProducerBatch(*batch)) == batch


def wrong_numbers() -> list[tuple[str, Any]]:
    beyond = {"producer_id": 2**63, "epoch": 2**15, "sequence": 2**31}
    values = [(name, value) for name, limit in beyond.items() for value in (-1, limit, True, 1.0, "1", None)]
    wrong: list[tuple[str, Any]] = [(name, ProducerBatch(1, 1, 1)._replace(**{name: value})) for name, value in values]
    return [*wrong, ("ProducerBatch", (1, 1, 1)), ("ProducerBatch", None)]


@pytest.mark.parametrize(("name", "batch"), wrong_numbers(), ids=repr)
def test_other_numbers_are_refused_by_their_name(name: str, batch: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        check_producer_batch(batch)
