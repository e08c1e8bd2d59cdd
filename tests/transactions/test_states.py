"""The transitions of a transactional id: a test for each rule, and a machine that mixes incarnations and finishers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, precondition, rule
from msgspec.structs import replace

from pylog import Durability, TopicPartition
from pylog.errors import InvalidTransactionStateError, ProducerFencedError, PylogError, TransactionAbortedError
from pylog.transactions import states
from pylog.transactions.markers import Marker, OpenTransactionKind, judge, marker_for, orphan_marker
from pylog.transactions.metadata import (
    LAST_DATA_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionOwner,
    TransactionState,
)
from pylog.transactions.records import format_value, parse_value
from pylog.transactions.states import TransactionOutcome

P, Q, BROKERS = 1 << 48, (1 << 48) + 1, 17
NOW = 1_700_000_000_000
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
OWNER = TransactionOwner.of(2**42, Durability.SYNC)
AT = {"timeout_ms": 60_000, "now_ms": NOW}
EMPTY = TransactionMetadata("id", P, 4, 60_000, TransactionState.EMPTY, (), NOW)
MINE = EMPTY.identity


def ids() -> Callable[[], int]:
    """Producer ids from Q on."""
    return count(Q).__next__


def ongoing(epoch: int = 4, *partitions: TopicPartition) -> TransactionMetadata:
    empty = replace(EMPTY, producer_epoch=epoch)
    return states.begin(empty, empty.identity, partitions or (T0, T1), OWNER, NOW)


# ---- init --------------------------------------------------------------------------------------------------------------------


def test_the_first_incarnation_has_a_new_producer_id_and_each_later_one_the_next_epoch() -> None:
    first = states.init(None, "id", new_producer_id=ids(), **AT)
    assert (first.identity, first.state, first.partitions) == ((Q, 0), TransactionState.EMPTY, ())
    second = states.init(first, "id", new_producer_id=ids(), **AT)
    assert (second.identity, second.previous_producer_id) == ((Q, 1), -1)


def test_an_incarnation_after_a_commit_has_no_epoch_that_was_used() -> None:
    prepared = states.prepare_commit(ongoing(), MINE, {T0: 3}, NOW, ids())
    done = states.complete(prepared, prepared, NOW)
    assert done is not None
    assert (prepared.producer_epoch, done.producer_epoch) == (5, 5)
    assert states.init(done, "id", new_producer_id=ids(), **AT).producer_epoch == 6


@pytest.mark.parametrize("epoch", [LAST_DATA_EPOCH, LAST_DATA_EPOCH + 1])
def test_an_incarnation_without_epochs_left_has_a_new_producer_id(epoch: int) -> None:
    found = states.init(replace(EMPTY, producer_epoch=epoch), "id", new_producer_id=ids(), **AT)
    assert (found.identity, found.previous_producer_id) == ((Q, 0), P)


def test_a_partition_with_a_later_epoch_than_the_id_costs_the_producer_id() -> None:
    assert states.init(EMPTY, "id", new_producer_id=ids(), highest_epoch=5, **AT).identity == (P, 5)
    assert states.init(EMPTY, "id", new_producer_id=ids(), highest_epoch=6, **AT).identity == (Q, 0)


def test_an_incarnation_waits_for_the_end_of_what_is_open_or_prepared() -> None:
    open_one = ongoing()
    for state in (open_one, states.prepare_abort(open_one, MINE, NOW, ids())):
        with pytest.raises(InvalidTransactionStateError, match="must be finished"):
            states.init(state, "id", new_producer_id=ids(), **AT)


# ---- an open transaction -----------------------------------------------------------------------------------------------------


def test_a_transaction_names_its_partitions_before_it_appends() -> None:
    state = states.begin(EMPTY, MINE, [T1], OWNER, NOW + 5)
    assert (state.identity, state.start_timestamp_ms, state.owner) == (MINE, NOW + 5, OWNER)
    states.check_append(state, MINE, T1)
    with pytest.raises(InvalidTransactionStateError, match="does not have partition 0 of 't'"):
        states.check_append(state, MINE, T0)
    more = states.add_partitions(state, MINE, [T0, T1], NOW + 6)
    assert (more.partitions, more.start_timestamp_ms) == ((T0, T1), NOW + 5)
    assert states.add_partitions(more, MINE, [T1], NOW + 7) is more


def calls(state: TransactionMetadata | None) -> Iterator[Callable[[], object]]:
    """All that an incarnation can ask for."""
    yield lambda: states.begin(state, MINE, [T0], OWNER, NOW)
    yield lambda: states.add_partitions(state, MINE, [T0], NOW)
    yield lambda: states.check_append(state, MINE, T0)
    yield lambda: states.prepare_commit(state, MINE, {T0: 1}, NOW, ids())
    yield lambda: states.prepare_abort(state, MINE, NOW, ids())


@pytest.mark.parametrize("change", [{"producer_epoch": 6}, {"producer_epoch": 3}, {"producer_id": Q}], ids=str)
@pytest.mark.parametrize("state", [TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_ABORT])
def test_an_older_incarnation_is_fenced_in_all_that_it_does(state: TransactionState, change: dict[str, int]) -> None:
    for call in (*calls(replace(ongoing(), state=state, **change)), *calls(None)):
        with pytest.raises(ProducerFencedError, match="close this instance") as caught:
            call()
        assert (caught.value.producer_id, caught.value.epoch) == MINE


def test_a_transaction_that_another_process_has_aborted_says_so() -> None:
    aborting = states.prepare_abort(ongoing(), MINE, NOW, ids())
    done = states.complete(aborting, aborting, NOW)
    for state in (aborting, done):
        for call in calls(state):
            with pytest.raises(TransactionAbortedError, match="begin it again"):
                call()
    assert done is not None
    assert states.begin(done, done.identity, [T0], OWNER, NOW).producer_epoch == 5


def test_an_abort_by_another_process_is_told_also_if_it_took_the_last_epoch() -> None:
    mine = ProducerIdAndEpoch(P, LAST_DATA_EPOCH)
    aborting = states.prepare_abort(ongoing(LAST_DATA_EPOCH), mine, NOW, ids())
    for state in (aborting, states.complete(aborting, aborting, NOW)):
        with pytest.raises(TransactionAbortedError):
            states.prepare_commit(state, mine, {T0: 1}, NOW, ids())


def test_no_transaction_begins_twice_and_none_ends_that_has_not_begun() -> None:
    with pytest.raises(InvalidTransactionStateError, match=r"cannot begin a transaction.*Ongoing"):
        states.begin(ongoing(), MINE, [T0], OWNER, NOW)
    for call in list(calls(EMPTY))[1:]:
        with pytest.raises(InvalidTransactionStateError, match="state Empty"):
            call()
    spent = replace(EMPTY, producer_epoch=LAST_DATA_EPOCH + 1)
    with pytest.raises(InvalidTransactionStateError):  # there is no epoch for its markers
        states.begin(spent, spent.identity, [T0], OWNER, NOW)


# ---- the decision ------------------------------------------------------------------------------------------------------------


def test_a_commit_names_what_was_written_and_nothing_else() -> None:
    prepared = states.prepare_commit(ongoing(4, T0, T1, T2), MINE, {T2: 9, T0: 3}, NOW, ids())
    assert (prepared.partitions, prepared.identity) == ((T0, T2), (P, 5))
    assert prepared.owner == TransactionOwner(2**42, 2, (3, 9))
    with pytest.raises(InvalidTransactionStateError, match="partition 2 of 't'"):
        states.prepare_commit(ongoing(4, T0), MINE, {T2: 9}, NOW, ids())


def test_an_abort_names_all_that_was_added() -> None:
    prepared = states.prepare_abort(ongoing(4, T0, T1), MINE, NOW, ids())
    assert (prepared.partitions, prepared.identity, prepared.owner) == ((T0, T1), (P, 5), OWNER)


def test_the_last_epoch_of_a_producer_id_is_of_markers_and_the_next_transaction_has_a_new_id() -> None:
    mine = ProducerIdAndEpoch(P, LAST_DATA_EPOCH)
    prepared = states.prepare_commit(ongoing(LAST_DATA_EPOCH), mine, {T0: 1}, NOW, ids())
    assert (prepared.identity, prepared.next_producer_id) == ((P, 32_767), Q)
    assert marker_for(prepared, LAST_DATA_EPOCH) == Marker(P, 32_767, True)
    done = states.complete(prepared, prepared, NOW)
    assert done is not None
    assert (done.identity, done.previous_producer_id, done.next_producer_id) == ((Q, 0), P, -1)
    assert states.outcome_of(done, mine) is TransactionOutcome.COMMITTED


def test_complete_is_written_over_the_very_prepare_that_was_finished() -> None:
    prepared = states.prepare_commit(ongoing(), MINE, {T0: 1}, NOW, ids())
    done = states.complete(prepared, prepared, NOW + 1)
    assert done is not None
    assert (done.state, done.partitions, done.owner) == (TransactionState.COMPLETE_COMMIT, (), None)
    later = states.begin(done, done.identity, [T0], OWNER, NOW)
    for current in (done, later, replace(prepared, last_update_timestamp_ms=NOW + 9), None):
        assert states.complete(current, prepared, NOW) is None
    with pytest.raises(InvalidTransactionStateError, match="cannot complete"):
        states.complete(done, done, NOW)


def test_a_commit_with_the_last_epoch_gives_the_id_a_new_producer_id() -> None:
    last = states.prepare_commit(ongoing(LAST_DATA_EPOCH, T0), ProducerIdAndEpoch(P, LAST_DATA_EPOCH), {}, NOW, ids())
    committed = states.complete(last, last, NOW)
    assert committed is not None
    assert committed.identity == (Q, 0)


def single(epoch: int = 4) -> TransactionMetadata:
    empty = replace(EMPTY, producer_epoch=epoch)
    return states.begin(empty, empty.identity, [T0], TransactionOwner.of(2**42, Durability.SYNC, is_single=True), NOW)


def test_a_transaction_of_one_batch_is_complete_without_being_prepared() -> None:
    begun = single()
    committed = states.complete_single(begun, begun, NOW, ids(), is_committed=True)
    aborted = states.complete_single(begun, begun, NOW, ids(), is_committed=False)
    assert committed is not None
    assert aborted is not None
    assert [each.state.kafka_name for each in (committed, aborted)] == ["CompleteCommit", "CompleteAbort"]
    assert [each.identity for each in (committed, aborted)] == [(P, 5), (P, 5)]
    assert not committed.partitions
    assert committed.owner is None
    last = single(LAST_DATA_EPOCH)
    renewed = states.complete_single(last, last, NOW, ids(), is_committed=True)
    assert renewed is not None
    assert renewed.identity == (Q, 0)


def test_a_transaction_of_one_batch_is_completed_once_and_no_other_one_is() -> None:
    begun = single()
    done = states.complete_single(begun, begun, NOW, ids(), is_committed=True)
    for current in (done, None, replace(begun, last_update_timestamp_ms=NOW + 9)):
        assert states.complete_single(current, begun, NOW, ids(), is_committed=False) is None
    with pytest.raises(InvalidTransactionStateError, match="transaction of one batch"):
        states.complete_single(ongoing(), ongoing(), NOW, ids(), is_committed=True)


def test_the_outcome_of_a_transaction_is_in_the_last_record_until_the_next_one_begins() -> None:
    found = [ongoing(), states.prepare_commit(ongoing(), MINE, {}, NOW, ids()), states.prepare_abort(ongoing(), MINE, NOW, ids())]
    found += [done for done in (states.complete(each, each, NOW) for each in found[1:]) if done is not None]
    assert [states.outcome_of(each, MINE).value for each in found] == ["open", "committed", "aborted", "committed", "aborted"]
    later = states.begin(found[3], found[3].identity, [T0], OWNER, NOW)
    assert [states.outcome_of(each, MINE) for each in (later, EMPTY, None)] == [TransactionOutcome.UNKNOWN] * 3


# ---- brokers -----------------------------------------------------------------------------------------------------------------

BROKERS_OPEN = TransactionMetadata(
    "id", BROKERS, 3, 60_000, TransactionState.ONGOING, (T0, T1), NOW, NOW, client_transaction_version=0
)


def test_markers_of_a_brokers_older_transactions_have_the_epoch_of_the_data() -> None:
    prepared = replace(BROKERS_OPEN, state=TransactionState.PREPARE_COMMIT)
    assert marker_for(prepared, 3) == Marker(BROKERS, 3, True)
    assert marker_for(prepared, 4) is None
    done = states.complete(prepared, prepared, NOW)
    assert done is not None
    assert (done.identity, done.client_transaction_version) == ((BROKERS, 3), 0)
    assert states.init(done, "id", new_producer_id=ids(), **AT).identity == (BROKERS, 4)


def test_an_older_transaction_of_a_broker_is_aborted_with_the_next_epoch_which_fences_its_client() -> None:
    prepared = states.prepare_abort(BROKERS_OPEN, BROKERS_OPEN.identity, NOW, ids())
    assert marker_for(prepared, 3) == Marker(BROKERS, 4, False)
    fenced = replace(prepared, client_transaction_version=1)  # by a coordinator: the record has the next epoch already
    assert marker_for(fenced, 3) == Marker(BROKERS, 4, False, True)


def test_only_a_brokers_open_transaction_is_judged_by_the_wall_clock() -> None:
    assert not states.is_timed_out(BROKERS_OPEN, NOW + 60_000)
    assert states.is_timed_out(BROKERS_OPEN, NOW + 60_001)
    assert not states.is_timed_out(replace(BROKERS_OPEN, owner=OWNER), NOW + 60_001)
    assert not states.is_timed_out(replace(BROKERS_OPEN, state=TransactionState.PREPARE_COMMIT), NOW + 60_001)


def test_a_marker_ends_its_own_transaction_and_aborts_an_orphan_and_leaves_a_later_one_alone() -> None:
    prepared = states.prepare_commit(ongoing(), MINE, {T0: 1}, NOW, ids())
    assert [marker_for(prepared, epoch) for epoch in (4, 3, 0, 5, None)] == [
        Marker(P, 5, True),
        Marker(P, 4, False, True),
        Marker(P, 1, False, True),
        None,
        None,
    ]
    assert marker_for(states.prepare_abort(ongoing(), MINE, NOW, ids()), 4) == Marker(P, 5, False)
    with pytest.raises(InvalidTransactionStateError, match="no markers"):
        marker_for(EMPTY, 4)


def test_an_open_transaction_is_an_orphan_unless_its_id_has_it_open_or_prepared_in_this_partition() -> None:
    prepared = states.prepare_commit(ongoing(), MINE, {T0: 1}, NOW, ids())
    done = states.complete(prepared, prepared, NOW)
    assert done is not None
    known = [(ongoing(), MINE, T0), (prepared, MINE, T0), (states.prepare_abort(ongoing(), MINE, NOW, ids()), MINE, T1)]
    orphans = [
        (EMPTY, MINE, T0),
        (done, MINE, T0),
        (ongoing(), ProducerIdAndEpoch(P, 3), T0),
        (ongoing(), ProducerIdAndEpoch(P, 5), T0),
        (ongoing(), MINE, T2),
        (prepared, MINE, T1),
        (prepared, prepared.identity, T0),
        (replace(EMPTY, producer_id=Q, previous_producer_id=P), MINE, T0),
        (None, MINE, T0),
    ]
    assert {judge(*each) for each in known} == {OpenTransactionKind.KNOWN}
    assert {judge(*each) for each in orphans} == {OpenTransactionKind.ORPHAN}
    assert judge(None, ProducerIdAndEpoch(BROKERS, 0), T0) is OpenTransactionKind.HANGING


# ---- all of it ---------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Incarnation:
    """What a process knows of itself, however old that is."""

    identity: ProducerIdAndEpoch
    transaction: int = 0
    written: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(eq=False)
class Finisher:
    """A process that writes markers, stopped after any of them."""

    prepared: TransactionMetadata
    left: list[TopicPartition]


class Transactions(RuleBasedStateMachine):
    """One transactional id, its data in three partitions, any number of incarnations and finishers that see old states."""

    incarnations = Bundle("incarnations")
    finishers = Bundle("finishers")
    PARTITIONS = st.sets(st.sampled_from([T0, T1, T2]), min_size=1)
    ONE = st.sampled_from([T0, T1, T2])

    def __init__(self) -> None:
        super().__init__()
        self.record: bytes | None = None
        self.logs: dict[TopicPartition, list[tuple[ProducerIdAndEpoch, int] | Marker]] = {each: [] for each in (T0, T1, T2)}
        self.new_id = count(P).__next__
        self.transactions = count(1)
        self.committed: set[int] = set()
        self.begun: dict[ProducerIdAndEpoch, int] = {}
        self.ended: dict[tuple[TopicPartition, int], bool] = {}

    @property
    def current(self) -> TransactionMetadata | None:
        return None if self.record is None else parse_value("id", self.record)

    def put(self, state: TransactionMetadata) -> TransactionMetadata:
        self.record = format_value(state)
        return state

    def open_at(self, partition: TopicPartition) -> dict[int, int]:
        """Epochs of the open transactions by producer id."""
        found: dict[int, int] = {}
        for entry in self.logs[partition]:
            if isinstance(entry, Marker):
                found.pop(entry.producer_id, None)
            else:
                found[entry[0].producer_id] = entry[0].producer_epoch
        return found

    def mark(self, partition: TopicPartition, marker: Marker | None) -> None:
        """Appends a marker, and notes how the transaction that it ends has ended."""
        if marker is None:
            return
        log = self.logs[partition]
        assert all(entry.epoch <= marker.epoch for entry in log if isinstance(entry, Marker) and entry[0] == marker[0])
        for number, entry in enumerate(log):
            closed = any(isinstance(each, Marker) and each[0] == marker[0] for each in log[number:])
            if not isinstance(entry, Marker) and entry[0].producer_id == marker.producer_id and not closed:
                self.ended[partition, entry[1]] = marker.is_commit
        log.append(marker)

    @initialize(start=st.sampled_from(["none", "late", "broker's", "broker's open"]), epoch=st.integers(0, 3))
    def begin_with(self, start: str, epoch: int) -> None:
        if start == "late":
            self.put(replace(EMPTY, producer_id=self.new_id(), producer_epoch=LAST_DATA_EPOCH - epoch))
        elif start != "none":
            state = replace(BROKERS_OPEN, producer_epoch=epoch)
            if start == "broker's":
                state = replace(state, state=TransactionState.COMPLETE_COMMIT, partitions=())
            else:
                self.logs[T0].append((state.identity, 0))
            self.put(state)

    @rule(target=incarnations)
    def new_incarnation(self) -> Incarnation:
        self.finish()
        return Incarnation(self.put(states.init(self.current, "id", new_producer_id=self.new_id, **AT)).identity)

    @rule(mine=incarnations, partitions=PARTITIONS)
    def begin(self, mine: Incarnation, partitions: set[TopicPartition]) -> None:
        try:
            state = states.begin(self.current, mine.identity, partitions, OWNER, NOW)
        except PylogError:
            return
        self.put(state)
        mine.transaction, mine.written = next(self.transactions), {}
        assert state.identity not in self.begun, "two transactions have one epoch"
        self.begun[state.identity] = mine.transaction

    @rule(mine=incarnations, partition=ONE)
    def append(self, mine: Incarnation, partition: TopicPartition) -> None:
        try:
            self.put(states.add_partitions(self.current, mine.identity, [partition], NOW))
            states.check_append(self.current, mine.identity, partition)
        except PylogError:
            return
        open_epoch = self.open_at(partition).get(mine.identity.producer_id)
        if open_epoch is not None and open_epoch < mine.identity.producer_epoch:
            self.mark(partition, orphan_marker(mine.identity.producer_id, open_epoch))
        log = self.logs[partition]
        assert all(each.epoch <= mine.identity[1] for each in log if isinstance(each, Marker) and each[0] == mine.identity[0])
        log.append((mine.identity, mine.transaction))
        mine.written[partition] = len(log)

    @rule(target=finishers, mine=incarnations, commit=st.booleans())
    def decide(self, mine: Incarnation, commit: bool) -> Finisher:
        try:
            if commit:
                state = states.prepare_commit(self.current, mine.identity, mine.written, NOW, self.new_id)
                self.committed.add(mine.transaction)
            else:
                state = states.prepare_abort(self.current, mine.identity, NOW, self.new_id)
        except PylogError:
            return multiple()
        return self.finisher(self.put(state))

    @rule(target=finishers, mine=incarnations, partitions=PARTITIONS, commit=st.booleans(), finished=st.booleans())
    def whole(self, mine: Incarnation, partitions: set[TopicPartition], commit: bool, finished: bool) -> Finisher:
        """A transaction that another process may finish, while its own finisher is stopped before the first marker."""
        self.begin(mine, partitions)
        for partition in partitions:
            self.append(mine, partition)
        stopped = self.decide(mine, commit)
        if finished and isinstance(stopped, Finisher):
            self.finish()
            assert self.current is not None
            mine.identity = self.current.identity
        return stopped

    @rule(target=finishers)
    def another_aborts(self) -> Finisher:
        state = self.current
        if state is None or state.state is not TransactionState.ONGOING:
            return multiple()
        return self.finisher(self.put(states.prepare_abort(state, state.identity, NOW, self.new_id)))

    @rule(target=finishers)
    def another_finisher(self) -> Finisher:
        state = self.current
        return self.finisher(state) if state is not None and state.state.is_prepared else multiple()

    def finisher(self, state: TransactionMetadata) -> Finisher:
        return Finisher(state, list(state.partitions))

    @rule(finisher=finishers)
    def writes_a_marker(self, finisher: Finisher) -> None:
        if finisher.left:
            partition = finisher.left.pop()
            self.mark(partition, marker_for(finisher.prepared, self.open_at(partition).get(finisher.prepared.producer_id)))

    @rule(finisher=consumes(finishers), mine=incarnations)
    def finishes(self, finisher: Finisher, mine: Incarnation) -> None:
        """The owner goes on with the numbers of the new state, if it is its own transaction that ended."""
        while finisher.left:
            self.writes_a_marker(finisher)
        done = states.complete(self.current, finisher.prepared, NOW)
        if done is not None:
            self.put(done)
            if states.last_transaction(done) == mine.identity:
                mine.identity = done.identity

    @precondition(lambda self: self.current is not None)
    @rule(partition=ONE, back=st.integers(1, 3))
    def power_loss_leaves_an_orphan(self, partition: TopicPartition, back: int) -> None:
        assert self.current is not None
        identity = ProducerIdAndEpoch(self.current.producer_id, self.current.producer_epoch - back)
        is_later = any(entry[0] == identity[0] for entry in self.logs[partition] if isinstance(entry, Marker))
        if identity.producer_epoch >= 0 and not is_later and not self.open_at(partition):
            self.logs[partition].append((identity, -next(self.transactions)))

    @rule()
    def sweep(self) -> None:
        for partition in self.logs:
            for found in map(ProducerIdAndEpoch._make, self.open_at(partition).items()):
                state = self.current
                of_id = state if state is not None and found[0] in (state.producer_id, state.previous_producer_id) else None
                if judge(of_id, found, partition) is OpenTransactionKind.ORPHAN:
                    self.mark(partition, orphan_marker(*found))

    def finish(self) -> None:
        """Ends what is open, and writes all markers."""
        state = self.current
        if state is not None and state.state is TransactionState.ONGOING:
            state = self.put(states.prepare_abort(state, state.identity, NOW, self.new_id))
        if state is not None and state.state.is_prepared:
            for partition in state.partitions:
                self.mark(partition, marker_for(state, self.open_at(partition).get(state.producer_id)))
            done = states.complete(self.current, state, NOW)
            assert done is not None
            self.put(done)

    @invariant()
    def each_transaction_ends_as_it_was_decided(self) -> None:
        for (_, transaction), is_commit in self.ended.items():
            assert is_commit == (transaction in self.committed), transaction

    def teardown(self) -> None:
        self.finish()
        self.sweep()
        assert not any(map(self.open_at, self.logs)), "a transaction stays open"
        self.each_transaction_ends_as_it_was_decided()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
