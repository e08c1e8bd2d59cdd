"""Which marker ends an open transaction of a partition: rules 4, 8 and 14 of transactions 4, as pure functions.

The caller holds the partition's lock and has looked at its open transaction; the state of the id was read before that.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pylog.errors import InvalidTransactionStateError
from pylog.limits import MAX_PRODUCER_EPOCH
from pylog.record.types import TopicPartition
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionState
from pylog.transactions.producer_ids import is_of_a_broker
from pylog.transactions.states import last_transaction


class Marker(NamedTuple):
    """A marker to append.

    Attributes:
        producer_id, epoch: the marker's producer id and epoch.
        is_commit: true for COMMIT, false for ABORT.
        is_orphans: true if it ends another transaction than the prepared one: an orphan of an earlier epoch.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    is_orphans: bool = False


def orphan_marker(producer_id: int, epoch: int) -> Marker:
    """Returns the marker that aborts an orphan: its epoch follows that of the orphan's data (rules 4, 14).

    >>> orphan_marker(7, 3)
    Marker(producer_id=7, epoch=4, is_commit=False, is_orphans=True)
    """
    return Marker(producer_id, min(epoch + 1, MAX_PRODUCER_EPOCH), False, True)


def marker_for(prepared: TransactionMetadata, open_epoch: int | None) -> Marker | None:
    """Returns the marker that a finisher appends to a partition of a prepared transaction; None to leave it alone (rule 8).

    Args:
        prepared: the prepared transaction.
        open_epoch: epoch of the open transaction of its producer id in the partition; None if none is open.

    Raises:
        InvalidTransactionStateError: `prepared` is not a prepared transaction.
    """
    own = last_transaction(prepared)
    if not prepared.state.is_prepared or own is None:
        name, state = prepared.transactional_id, prepared.state.kafka_name
        raise InvalidTransactionStateError(f"the transactional id {name!r} is in the state {state}, which needs no markers")
    if open_epoch is None or open_epoch > own.producer_epoch:
        return None
    if open_epoch < own.producer_epoch:
        return orphan_marker(prepared.producer_id, open_epoch)
    return Marker(*prepared.identity, prepared.state is TransactionState.PREPARE_COMMIT)


class OpenTransactionKind(Enum):
    """What an open transaction of a partition is, compared with the state of its id (transactions 6.3).

    `KNOWN`: its id has it open or prepared, and finishes it. `ORPHAN`: nothing else will end it, so `orphan_marker` does.
    `HANGING`: a broker's producer that no id has; only a command ends it.
    """

    KNOWN = "known"
    ORPHAN = "orphan"
    HANGING = "hanging"


def judge(state: TransactionMetadata | None, found: ProducerIdAndEpoch, partition: TopicPartition) -> OpenTransactionKind:
    """Returns what an open transaction is. It was seen before the state was read: another order may judge wrongly.

    Args:
        state: the state of the id that has the producer id, or had it before its current one; None if there is none.
        found: producer id and epoch of the open transaction.
        partition: where it is open.
    """
    if state is None:
        return OpenTransactionKind.HANGING if is_of_a_broker(found.producer_id) else OpenTransactionKind.ORPHAN
    is_undecided = state.state is TransactionState.ONGOING or state.state.is_prepared
    known = is_undecided and partition in state.partitions and last_transaction(state) == found
    return OpenTransactionKind.KNOWN if known else OpenTransactionKind.ORPHAN
