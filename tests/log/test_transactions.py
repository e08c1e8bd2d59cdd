"""Batches of transactions, and their markers, as the engine appends them to one partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pylog
from pylog.config import Durability
from pylog.index.transaction_index import TransactionIndex
from pylog.log.arguments import pieces_of
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.refitting import MarkerRequest
from pylog.record.types import MarkerBatch, OpenTransaction, ProducerBatch, TransactionalBatch
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem, RecordingFileSystem
from support.faults.power import image_of, losses

ID = 1 << 48


def append(log: PartitionLog, epoch: int, sequence: int, *values: bytes, codec: str = "none", producer_id: int = ID) -> range:
    now_ms = log.clock.now_ms()
    producer = TransactionalBatch(producer_id, epoch, sequence)
    return log.append(now_ms, pieces_of(list(values), now_ms), codec, producer=producer).offsets


def end(log: PartitionLog, epoch: int, *, committed: bool, producer_id: int = ID) -> None:
    """Ends a transaction whose data has an epoch."""
    marker = MarkerBatch(producer_id, epoch + 1, -1)
    log.commit(MarkerRequest(log.clock.now_ms(), producer_id, lambda _: (marker, committed), 0, Durability.SYNC))


def open_transactions(log: PartitionLog) -> list[OpenTransaction]:
    with log.writer().current() as writer:
        return list(writer.producers.open_transactions())


def values(store: Store, *, committed: bool = True) -> list[bytes | None]:
    if store.mode == "rw":
        engine(store)
    level = "read_committed" if committed else "read_uncommitted"
    return [record.value for record in store.log("t").records(isolation_level=level)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
    return tmp_path


def engine(store: Store) -> PartitionLog:
    """The log of a store that leaves open transactions alone: no transactional id knows these."""
    manager_of(store).found_unstable = lambda log: None
    return manager_of(store).log("t", 0)


def test_a_transaction_is_read_once_it_is_committed_and_never_if_it_is_aborted(root: Path) -> None:
    with pylog.open(root) as store:
        log = engine(store)
        append(log, 0, 0, b"a", b"b")
        assert (values(store), values(store, committed=False)) == ([], [b"a", b"b"])
        assert open_transactions(log) == [OpenTransaction(ID, 0, 0)]
        end(log, 0, committed=True)
        append(log, 1, 0, b"c")
        end(log, 1, committed=False)
        store.log("t").append(b"d")
        assert (values(store), values(store, committed=False)) == ([b"a", b"b", b"d"], [b"a", b"b", b"c", b"d"])
        assert not open_transactions(log)
    with pylog.open(root, "r") as store:
        assert values(store) == [b"a", b"b", b"d"]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("count", [1, 1000])
def test_every_codec_and_size_of_a_batch_keeps_the_bit_of_the_transaction(root: Path, codec: str, count: int) -> None:
    with pylog.open(root) as store:
        log = engine(store)
        append(log, 0, 0, *[b"x" * 20] * count, codec=codec)
        end(log, 0, committed=False)
        assert values(store) == []
        assert len(values(store, committed=False)) == count
        assert not store.verify(records=True).findings


def test_a_batch_of_an_open_transaction_must_have_its_epoch_and_follow_its_sequence(root: Path) -> None:
    with pylog.open(root) as store:
        log = engine(store)
        append(log, 3, 0, b"a", b"b")
        with pytest.raises(pylog.InvalidTransactionStateError, match="is open since offset 0"):
            append(log, 4, 0, b"c")  # of the next transaction, before the marker
        with pytest.raises(pylog.InvalidTransactionStateError, match="is open since offset 0"):
            log.append(0, pieces_of([b"c"], 0), producer=ProducerBatch(ID, 3, 2))
        with pytest.raises(pylog.OutOfOrderSequenceError, match="expects sequence 2"):
            append(log, 3, 3, b"c")
        assert append(log, 3, 0, b"a", b"b") == range(2), "sent again"
        append(log, 3, 2, b"c")
        end(log, 3, committed=True)
        with pytest.raises(pylog.ProducerFencedError, match="has epoch 4"):
            append(log, 3, 3, b"d")
        assert values(store) == [b"a", b"b", b"c"]


def test_aborted_transactions_are_in_the_index_of_their_segment_after_a_roll_and_after_a_close(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=400)
        log = engine(store)
        for epoch in range(6):
            append(log, epoch, 0, b"x" * 50)
            end(log, epoch, committed=epoch % 2 == 0)
        assert not store.verify(records=True).findings, "also while the active segment has no index yet"
    entries = sum(len(path.read_bytes()) // 34 for path in (tmp_path / "t-0").glob("*.txnindex"))
    assert entries == 3
    with pylog.open(tmp_path) as store:
        assert not [*store.verify(records=True).findings, *store.recovery_report]


def indexed(root: Path) -> list[tuple[int, int]]:
    """The transactions in the index of the segment 0: their first and last offsets."""
    index, damaged = TransactionIndex.from_bytes(0, (root / "t-0" / f"{0:020d}.txnindex").read_bytes())
    assert not damaged
    return [(entry.first_offset, entry.last_offset) for entry in index.entries]


def aborted(store: Store, epochs: range, producer_id: int = ID) -> None:
    """Appends aborted transactions of one record each."""
    for epoch in epochs:
        append(engine(store), epoch, 0, b"x", producer_id=producer_id)
        end(engine(store), epoch, committed=False, producer_id=producer_id)


def rolled(store: Store) -> None:
    """Fills the last segment."""
    store.alter_topic("t", segment_bytes=900)
    for _ in range(2):
        store.log("t").append(bytes(800))


@pytest.mark.parametrize("full", [False, True], ids=["active", "sealed"])
@pytest.mark.parametrize("leave", [0, 2, 4, 6, 7])
def test_a_truncation_keeps_the_aborted_transactions_below_it_in_the_index(root: Path, leave: int, full: bool) -> None:
    with pylog.open(root) as store:
        aborted(store, range(3))
    with pylog.open(root) as store:  # goes on from the snapshot of the close, at offset 6
        store.log("t").append(b"plain")
        store.log("t").append(b"plain")
        if full:
            rolled(store)
        store.log("t").truncate(leave)
        aborted(store, range(1), ID + 1)
        rolled(store)
        assert not [*store.verify(records=True).findings, *store.check().findings]
    assert indexed(root) == [*[(0, 1), (2, 3), (4, 5)][: leave // 2], (leave, leave + 1)]


@pytest.mark.slow
def test_a_power_loss_in_a_truncation_leaves_no_transaction_out_of_the_index(root: Path) -> None:
    with pylog.open(root) as store:
        aborted(store, range(3))
    fs = RecordingFileSystem(image=image_of(root, "s"))
    with pylog.open("/s", fs=fs) as store:
        store.log("t").truncate(4)
    for crash, image in losses(fs.recording, "truncation", 1, 0):
        with pylog.open("/s", fs=MemoryFileSystem(image=image, boots=2)) as store:
            aborted(store, range(1), ID + 1)
            rolled(store)
            assert not store.verify(records=True).findings, str(crash)


def test_a_second_process_sees_and_ends_a_transaction_that_the_first_one_began(root: Path) -> None:
    with pylog.open(root) as first, pylog.open(root) as second:
        append(engine(first), 0, 0, b"a")
        assert open_transactions(engine(second)) == [OpenTransaction(ID, 0, 0)]
        end(engine(second), 0, committed=False)
        append(engine(first), 1, 0, b"b")
        end(engine(first), 1, committed=True)
        assert values(first) == values(second) == [b"b"]


class TransactionMachine(RuleBasedStateMachine):
    """One partition with three producers, against a list: rolls, plain appends, crashes, and a second store."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFileSystem()
        self.rows: list[tuple[int, bytes, int | None]] = []  # offset, value, producer of a transaction
        self.ended: list[tuple[int, int, bool]] = []  # offset of a marker, producer, committed
        self.epochs = [0, 0, 0]
        self.sequences = [0, 0, 0]
        self.count = 0

    @initialize(size=st.sampled_from([300, 1000, 1 << 20]))
    def start(self, size: int) -> None:
        with self.opened() as store:
            store.create_topic("t", segment_bytes=size)
        self.store, self.other = self.opened(), self.opened()

    def opened(self) -> Store:
        return pylog.open("/data", fs=self.fs, clock=self.fs.clock)

    def value(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    @rule(number=st.integers(0, 2), rows=st.integers(1, 3), by_other=st.booleans(), codec=st.sampled_from(["none", "lz4"]))
    def append(self, number: int, rows: int, by_other: bool, codec: str) -> None:
        log = engine(self.other if by_other else self.store)
        given = [self.value() for _ in range(rows)]
        offsets = append(log, self.epochs[number], self.sequences[number], *given, producer_id=ID + number, codec=codec)
        self.sequences[number] += rows
        self.rows += [(offset, value, number) for offset, value in zip(offsets, given, strict=True)]

    @rule(by_other=st.booleans())
    def append_plain(self, by_other: bool) -> None:
        value = self.value()
        self.rows.append(((self.other if by_other else self.store).log("t").append(value), value, None))

    @rule(number=st.integers(0, 2), committed=st.booleans(), by_other=st.booleans())
    def end(self, number: int, committed: bool, by_other: bool) -> None:
        if not self.sequences[number]:
            return
        log = engine(self.other if by_other else self.store)
        self.ended.append((log.end_offset, number, committed))
        end(log, self.epochs[number], committed=committed, producer_id=ID + number)
        self.epochs[number] += 1
        self.sequences[number] = 0

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()

    @precondition(lambda self: self.count)
    @rule()
    def lose_power(self) -> None:
        self.fs = self.fs.crash()
        self.store, self.other = self.opened(), self.opened()

    def outcome(self, offset: int, number: int) -> bool | None:
        return next((committed for at, producer, committed in self.ended if producer == number and at > offset), None)

    @invariant()
    def what_is_committed_is_read_up_to_the_first_open_transaction(self) -> None:
        if not self.count:
            return
        expected: list[bytes] = []
        for offset, value, number in self.rows:
            outcome = True if number is None else self.outcome(offset, number)
            if outcome is None:
                break
            expected += [value] if outcome else []
        assert values(self.store) == values(self.other) == expected
        assert values(self.store, committed=False) == [value for _, value, _ in self.rows]
        still = {number: offset for offset, _, number in reversed(self.rows) if number is not None and self.sequences[number]}
        still = {number: min(o for o, _, n in self.rows if n == number and self.outcome(o, number) is None) for number in still}
        wanted = sorted((offset, ID + number, self.epochs[number]) for number, offset in still.items())
        assert [(each.first_offset, each.producer_id, each.epoch) for each in open_transactions(engine(self.store))] == wanted

    def teardown(self) -> None:
        if hasattr(self, "store"):
            found = self.store.verify(records=True).findings
            assert not [each for each in found if each.kind != "transaction"]  # no id knows the open ones of this machine
            self.store.close()
            self.other.close()


@pytest.mark.slow
class TestTransactionMachine(TransactionMachine.TestCase):
    settings = settings(max_examples=15, stateful_step_count=25)


@pytest.mark.pair("delete_records", "scan and follow")
@pytest.mark.pair("delete_records", "aborted transactions")
@pytest.mark.parametrize("committed", [True, False])
def test_a_log_that_begins_inside_a_batch_of_an_open_transaction_is_read_as_committed(root: Path, committed: bool) -> None:
    """The stable offset is then the log start, in the middle of the batch: the batch was read, and has no outcome yet."""
    with pylog.open(root) as store:
        log, transaction = store.log("t"), store.transaction("id")
        for each in (b"a", b"b", b"c"):
            transaction.append("t", each, partition=0)
        transaction.flush()
        log.delete_records(1)
        assert (log.start_offset, log.stable_offset, log.end_offset) == (1, 1, 3)
        with pylog.open(root, "r") as reader:
            for each in (log, reader.log("t")):
                for start in (None, 1, 2, 3):
                    assert list(each.records(start, isolation_level="read_committed")) == []
                assert each.read_many([1, 2], isolation_level="read_committed").num_rows == 0
                assert list(each.follow(1, isolation_level="read_committed", timeout_ms=1)) == []
                assert [record.value for record in each.records()] == [b"b", b"c"]
        transaction.commit() if committed else transaction.abort()
        assert [record.value for record in log.records(isolation_level="read_committed")] == [b"b", b"c"] * committed
