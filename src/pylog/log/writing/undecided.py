"""The open transactions of a log that may still be committed: retention and truncation leave them whole (transactions 13)."""

from __future__ import annotations

from collections.abc import Iterable

from pylog import limits
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.writing.partition_writer import PartitionWriter

OpenProducers = list[Producer]


def open_producers(partition_writer: PartitionWriter) -> OpenProducers:
    """Returns the producers with an open transaction, by the first offsets of these. Within `inspecting`."""
    producers = _known(partition_writer)
    return [] if producers is None else producers.open_producers()


def _known(partition_writer: PartitionWriter) -> ProducerStateManager | None:
    writer = partition_writer.writer
    return partition_writer.loaded.producers if writer is None else writer.producers


def open_producers_now(partition_writer: PartitionWriter) -> OpenProducers:
    """Returns the same now. Takes both locks."""
    with partition_writer.inspecting():
        return open_producers(partition_writer)


def has_batch_now(partition_writer: PartitionWriter, producer_id: int, epoch: int) -> bool:
    """Returns whether a log has a batch of a producer's epoch, and none of a later one. Takes both locks."""
    with partition_writer.inspecting():
        producers = _known(partition_writer)
        return producers is not None and producers.has_batch(producer_id, epoch)


def undecided(producers: Iterable[Producer], now_ms: int) -> OpenProducers:
    """Returns the producers whose open transactions may still be committed. Leaves out hanging ones.

    A broker's transaction hangs if its producer has been idle for longer than any transaction may be open there (KIP-664): no
    coordinator has it open. pylog's own never hang: an id has each of them open, or the next tick aborts it.

    Args:
        producers: those with an open transaction.
        now_ms: the wall clock, in milliseconds.

    >>> found = [Producer(7, 0, timestamp=0, transaction_first_offset=5)]
    >>> len(undecided(found, 1_200_000)), len(undecided(found, 1_200_001))
    (1, 0)
    """
    return [entry for entry in producers if not _hangs(entry, now_ms)]


def _hangs(entry: Producer, now_ms: int) -> bool:
    return entry.producer_id < limits.PRODUCER_IDS[0] and now_ms - entry.timestamp > limits.HANGING_TRANSACTION_MS


def open_from(producers: Iterable[Producer], now_ms: int) -> int | None:
    """Returns the offset from which retention keeps all records: the first one of an undecided transaction; None without one.

    Kafka's retention does not wait for transactions. Here it does, so that a commit never returns for records that retention has
    deleted. It does not wait for hanging transactions of a broker, because they may never end.
    """
    return min((entry.transaction_first_offset for entry in undecided(producers, now_ms)), default=None)
