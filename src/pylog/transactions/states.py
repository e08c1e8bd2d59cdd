"""The transitions of a transactional id, as pure functions: from the last record in `__transaction_state` to the next one.

Each takes the state that the caller has just read under the lock of the id's partition, and returns the state to append, or
raises. Rules have their numbers in transactions 4. A batch has its transaction's epoch, the markers have the next one.
Transactions of clients before KIP-890, which only brokers write, have markers with the data's epoch: see `has_own_epochs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec.structs import replace

from pylog.errors import InvalidTransactionStateError, ProducerFencedError, PylogError, TransactionAbortedError
from pylog.limits import MAX_PRODUCER_EPOCH
from pylog.record.types import TopicPartition
from pylog.transactions.metadata import (
    CURRENT_VERSION,
    LAST_DATA_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionOwner,
    TransactionState,
)

NewProducerId = Callable[[], int]
_NO_SEQUENCE: Final = -1


class TransactionOutcome(Enum):
    """What became of a transaction, as far as the last record of its id tells."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"

    @property
    def is_decided(self) -> bool:
        """Whether the transaction is committed or aborted."""
        return self in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)


# ---- init: a new incarnation (rules 3.2, 3.3, 12) ----------------------------------------------------------------------------


def init(
    current: TransactionMetadata | None,
    transactional_id: str,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: NewProducerId,
    highest_epoch: int = NO_PRODUCER_EPOCH,
) -> TransactionMetadata:
    """Returns the state Empty with the epoch of a new incarnation, which fences all older ones.

    The id gets a new producer id if it has none, if the epochs of its producer id are used up, or if a partition's epoch is
    beyond those of the id's records (a repaired `__transaction_state`).

    Args:
        current: the id's last state; None if it has no record.
        transactional_id: the id.
        timeout_ms: how long its transactions may stay open, in milliseconds.
        now_ms: time of the record.
        new_producer_id: draws a producer id.
        highest_epoch: the highest epoch of the producer id in the producer states of partitions, as far as the caller knows.

    Raises:
        InvalidTransactionStateError: a transaction of the id is open or prepared: finish it first.
    """
    if current is not None and not current.state.is_at_rest:
        raise InvalidTransactionStateError(
            f"the transactional id {transactional_id!r} has a transaction in the state {current.state.kafka_name}; "
            "it must be finished before a new incarnation can begin"
        )
    if current is None:
        identity, previous = ProducerIdAndEpoch(new_producer_id(), 0), NO_PRODUCER_ID
    elif current.producer_epoch >= LAST_DATA_EPOCH or highest_epoch > current.producer_epoch + 1:
        identity, previous = ProducerIdAndEpoch(new_producer_id(), 0), current.producer_id
    else:
        identity, previous = ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1), NO_PRODUCER_ID
    return TransactionMetadata(
        transactional_id, *identity, timeout_ms, TransactionState.EMPTY, (), now_ms, previous_producer_id=previous
    )


# ---- an open transaction (rules 1, 3, 6) -------------------------------------------------------------------------------------


def begin(
    current: TransactionMetadata | None,
    mine: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
    owner: TransactionOwner,
    now_ms: int,
) -> TransactionMetadata:
    """Returns the state Ongoing with the partitions that the transaction is about to write to.

    Args:
        current: the id's last state.
        mine: producer id and epoch of the incarnation.
        partitions: those known so far.
        owner: the transaction's owner.
        now_ms: its start.

    Raises:
        ProducerFencedError: a newer incarnation has taken over.
        TransactionAbortedError: another call has aborted the incarnation's last transaction.
        InvalidTransactionStateError: a transaction is open or prepared already.
    """
    known = _own(current, mine, "begin a transaction")
    if not known.state.is_at_rest or known.producer_epoch > LAST_DATA_EPOCH:
        raise _wrong_state(known, "begin a transaction")
    return replace(
        known,
        state=TransactionState.ONGOING,
        partitions=tuple(sorted(set(partitions))),
        start_timestamp_ms=now_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=CURRENT_VERSION,
        owner=owner,
    )


def add_partitions(
    current: TransactionMetadata | None, mine: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], now_ms: int
) -> TransactionMetadata:
    """Returns the state with more partitions; `current` itself if it has all of them, so that nothing need be appended.

    Raises:
        As `begin`; `InvalidTransactionStateError` if no transaction is open.
    """
    known = _ongoing(current, mine, "add partitions to a transaction")
    named = tuple(sorted({*known.partitions, *partitions}))
    return known if len(named) == len(known.partitions) else replace(known, partitions=named, last_update_timestamp_ms=now_ms)


def check_append(current: TransactionMetadata | None, mine: ProducerIdAndEpoch, partition: TopicPartition) -> None:
    """Raises unless a batch of a transaction may be appended to a partition. For use under that partition's lock (rule 3).

    Raises:
        As `add_partitions`; `InvalidTransactionStateError` also if the partition was not added.
    """
    known = _ongoing(current, mine, "append to a transaction")
    if partition not in known.partitions:
        raise InvalidTransactionStateError(
            f"the transaction of {known.transactional_id!r} does not have partition {partition.partition} of "
            f"{partition.topic!r}; add the partition before the first append"
        )


# ---- the decision and its end (rules 5, 6, 11) -------------------------------------------------------------------------------


def prepare_commit(
    current: TransactionMetadata | None,
    mine: ProducerIdAndEpoch,
    written: Mapping[TopicPartition, int],
    now_ms: int,
    new_producer_id: NewProducerId,
) -> TransactionMetadata:
    """Returns the state PrepareCommit: once it is durable, the transaction is committed.

    Args:
        current: the id's last state.
        mine: producer id and epoch of the incarnation.
        written: the partitions that have batches of the transaction, each with the offset after the last of its data.
        now_ms: time of the record.
        new_producer_id: draws a producer id, if the epochs of this one are used up.

    Raises:
        As `add_partitions`; `InvalidTransactionStateError` also if a partition was not added.
    """
    known = _ongoing(current, mine, "commit a transaction")
    partitions = tuple(sorted(written))
    missing = sorted(set(partitions) - set(known.partitions))
    if missing:
        raise InvalidTransactionStateError(
            f"the transaction of {known.transactional_id!r} does not have partition {missing[0].partition} of "
            f"{missing[0].topic!r}, so it cannot commit data there; abort it"
        )
    owner = known.owner and replace(known.owner, end_offsets=tuple(written[each] for each in partitions))
    return _prepared(known, TransactionState.PREPARE_COMMIT, partitions, owner, now_ms, new_producer_id)


def prepare_abort(
    current: TransactionMetadata | None, mine: ProducerIdAndEpoch, now_ms: int, new_producer_id: NewProducerId
) -> TransactionMetadata:
    """Returns the state PrepareAbort with all partitions of the transaction.

    Args:
        current: the id's last state.
        mine: producer id and epoch of the incarnation; for the transaction of another one those of the state found before.
        now_ms: time of the record.
        new_producer_id: draws a producer id, if the epochs of this one are used up.

    Raises:
        As `add_partitions`.
    """
    known = _ongoing(current, mine, "abort a transaction")
    return _prepared(known, TransactionState.PREPARE_ABORT, known.partitions, known.owner, now_ms, new_producer_id)


def _prepared(
    known: TransactionMetadata,
    state: TransactionState,
    partitions: tuple[TopicPartition, ...],
    owner: TransactionOwner | None,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> TransactionMetadata:
    return replace(
        known,
        producer_epoch=min(known.producer_epoch + 1, MAX_PRODUCER_EPOCH),
        state=state,
        partitions=partitions,
        last_update_timestamp_ms=now_ms,
        next_producer_id=new_producer_id() if known.producer_epoch >= LAST_DATA_EPOCH else NO_PRODUCER_ID,
        client_transaction_version=CURRENT_VERSION,
        owner=owner,
    )


def complete(current: TransactionMetadata | None, prepared: TransactionMetadata, now_ms: int) -> TransactionMetadata | None:
    """Returns the state CompleteCommit or CompleteAbort; None if the id has moved on, so that nothing need be appended.

    Args:
        current: the id's last state.
        prepared: the state whose markers were written.
        now_ms: time of the record.

    Raises:
        InvalidTransactionStateError: `prepared` is not a prepared transaction.
    """
    if not prepared.state.is_prepared:
        raise _wrong_state(prepared, "complete a transaction")
    if current != prepared:
        return None
    return _completed(prepared, prepared.state.is_commit, now_ms)


def complete_single(
    current: TransactionMetadata | None,
    begun: TransactionMetadata,
    now_ms: int,
    new_producer_id: NewProducerId,
    *,
    is_committed: bool,
) -> TransactionMetadata | None:
    """Returns the state CompleteCommit or CompleteAbort of a transaction of one batch; None if the id has moved on.

    Args:
        current: the id's last state.
        begun: the open transaction.
        now_ms: time of the record.
        new_producer_id: draws a producer id, if the epochs of this one are used up.
        is_committed: whether the batch is in its log.

    Raises:
        InvalidTransactionStateError: `begun` is no such transaction.
    """
    if not begun.is_single:
        raise _wrong_state(begun, "complete a transaction of one batch")
    if current != begun:
        return None
    decided = TransactionState.PREPARE_COMMIT if is_committed else TransactionState.PREPARE_ABORT
    return _completed(_prepared(begun, decided, begun.partitions, None, now_ms, new_producer_id), is_committed, now_ms)


def _completed(prepared: TransactionMetadata, is_commit: bool, now_ms: int) -> TransactionMetadata:
    renewed = prepared.next_producer_id != NO_PRODUCER_ID
    return replace(
        prepared,
        producer_id=prepared.next_producer_id if renewed else prepared.producer_id,
        producer_epoch=0 if renewed else prepared.producer_epoch,
        previous_producer_id=prepared.producer_id if renewed else prepared.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=(),
        last_update_timestamp_ms=now_ms,
        owner=None,
    )


# ---- questions ---------------------------------------------------------------------------------------------------------------


def last_transaction(state: TransactionMetadata) -> ProducerIdAndEpoch | None:
    """Returns producer id and epoch of the data of an id's last transaction; None if it has had none in this incarnation."""
    if state.state is TransactionState.EMPTY:
        return None
    if state.state is TransactionState.ONGOING or not state.has_own_epochs:
        return state.identity
    if state.state.is_complete and not state.producer_epoch:
        return ProducerIdAndEpoch(state.previous_producer_id, LAST_DATA_EPOCH)
    return ProducerIdAndEpoch(state.producer_id, state.producer_epoch - 1)


def outcome_of(current: TransactionMetadata | None, mine: ProducerIdAndEpoch) -> TransactionOutcome:
    """Returns what became of a transaction.

    Args:
        current: the id's last state.
        mine: producer id and epoch of the transaction's data.
    """
    if current is None or last_transaction(current) != mine:
        return TransactionOutcome.UNKNOWN
    if current.state is TransactionState.ONGOING:
        return TransactionOutcome.OPEN
    return TransactionOutcome.COMMITTED if current.state.is_commit else TransactionOutcome.ABORTED


def is_timed_out(current: TransactionMetadata, now_ms: int) -> bool:
    """Returns whether a broker's coordinator would abort the transaction by now. Transactions of pylog have an owner instead."""
    is_open = current.state is TransactionState.ONGOING
    return is_open and current.owner is None and current.start_timestamp_ms + current.timeout_ms < now_ms


# ---- refusals ----------------------------------------------------------------------------------------------------------------


def _ongoing(current: TransactionMetadata | None, mine: ProducerIdAndEpoch, action: str) -> TransactionMetadata:
    known = _own(current, mine, action)
    if known.state is not TransactionState.ONGOING:
        raise _wrong_state(known, action)
    return known


def _own(current: TransactionMetadata | None, mine: ProducerIdAndEpoch, action: str) -> TransactionMetadata:
    """Returns the state if it belongs to an incarnation."""
    if current is None:
        raise _fenced(mine, NO_PRODUCER_EPOCH, f"cannot {action}: the transactional id has no record any more")
    if current.identity == mine:
        return current
    if outcome_of(current, mine) is TransactionOutcome.ABORTED:
        raise TransactionAbortedError(
            f"cannot {action}: the transaction of {current.transactional_id!r} was aborted by another call: its timeout was "
            "over, an administrator aborted it, or a topic that it writes to was deleted; abort it here too, and begin it again"
        )
    if outcome_of(current, mine) is TransactionOutcome.COMMITTED:
        raise _wrong_state(current, action)
    reason = f"cannot {action}: a newer instance has taken over the transactional id {current.transactional_id!r}"
    raise _fenced(mine, current.producer_epoch, reason)


def _fenced(mine: ProducerIdAndEpoch, expected: int, reason: str) -> PylogError:
    return ProducerFencedError(
        f"{reason} (producer {mine.producer_id}, epoch {mine.producer_epoch}, has lost it); close this instance",
        producer_id=mine.producer_id,
        epoch=mine.producer_epoch,
        sequence=_NO_SEQUENCE,
        expected=expected,
    )


def _wrong_state(current: TransactionMetadata, action: str) -> PylogError:
    return InvalidTransactionStateError(
        f"cannot {action}: the transactional id {current.transactional_id!r} is in the state {current.state.kafka_name}"
    )
