"""Faults of an engine with transactions: each leads to anomalies that the checker of histories must find."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pylog
from pylog.config import Durability
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.record.types import TopicPartition, TransactionalBatch
from pylog.transactions import coordinator, markers, states
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata

Patches = contextlib.AbstractContextManager[Any]


class Fault(NamedTuple):
    """A fault.

    Attributes:
        patches: plants it.
        kinds: anomalies of which at least one must be found.
    """

    patches: Callable[[], Patches]
    kinds: frozenset[str]


def _aborts_that_commit() -> Patches:
    original = markers.marker_for

    def commits(prepared: TransactionMetadata, open_epoch: int | None) -> markers.Marker | None:
        found = original(prepared, open_epoch)
        return None if found is None else found._replace(is_commit=True)

    return patch.object(coordinator.markers, "marker_for", commits)


def _decisions_without(left_out: Callable[[TopicPartition], bool]) -> Patches:
    original = states.prepare_commit

    def narrow(
        current: TransactionMetadata | None, mine: ProducerIdAndEpoch, written: Mapping[TopicPartition, int], *given: Any
    ) -> TransactionMetadata:
        return original(current, mine, {each: end for each, end in written.items() if not left_out(each)}, *given)

    return patch.object(coordinator.states, "prepare_commit", narrow)


def _without_one_partition() -> Patches:
    return _decisions_without(lambda partition: partition == ("kept", 0))


def _without_data() -> Patches:
    return _decisions_without(lambda partition: partition.topic not in INTERNAL_TOPICS)


def _without_offsets() -> Patches:
    return _decisions_without(lambda partition: partition.topic in INTERNAL_TOPICS)


def _answers_that_are_aborts() -> Patches:
    def aborts(self: Incarnation, mine: ProducerIdAndEpoch, *_: Any) -> TransactionMetadata:
        return self._coordinator.prepare_abort(self.transactional_id, mine)

    return patch.object(Incarnation, "prepare_commit", aborts)


def _batches_twice() -> Patches:
    original = Incarnation.append

    def twice(
        self: Incarnation,
        partition: TopicPartition,
        batch: TransactionalBatch,
        rows: Any,
        compression: str | None,
        level: Durability,
    ) -> range:
        first = original(self, partition, batch, rows, compression, level)
        again = batch._replace(sequence=batch.sequence + len(rows))
        return range(first.start, original(self, partition, again, rows, compression, level).stop)

    return patch.object(Incarnation, "append", twice)


def _readers_that_ignore_outcomes() -> Patches:
    original = pylog.Log.records

    def ignores(self: pylog.Log, *given: Any, **options: Any) -> Any:
        return original(self, *given, **{**options, "isolation_level": "read_uncommitted"})

    return patch.object(pylog.Log, "records", ignores)


def _stable_offsets_that_are_ends() -> Patches:
    return patch.object(pylog.Log, "stable_offset", property(lambda log: log.end_offset))


FAULTS: Final[dict[str, Fault]] = {
    "aborts that commit": Fault(_aborts_that_commit, frozenset({"aborted read", "dirty read"})),
    "decisions without one partition": Fault(_without_one_partition, frozenset({"lost write", "partial snapshot"})),
    "decisions without the data": Fault(_without_data, frozenset({"offset without output"})),
    "decisions without the offsets": Fault(_without_offsets, frozenset({"output without offset", "lost offset"})),
    "answers that are aborts": Fault(_answers_that_are_aborts, frozenset({"lost write", "stale snapshot", "lost offset"})),
    "batches that are written twice": Fault(_batches_twice, frozenset({"duplicate"})),
    "readers that ignore outcomes": Fault(_readers_that_ignore_outcomes, frozenset({"aborted read", "dirty read"})),
    "stable offsets that are ends": Fault(_stable_offsets_that_are_ends, frozenset({"unstable offset"})),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants a fault in this process and in the processes that it forks; none without a name."""
    with FAULTS[name].patches() if name else contextlib.nullcontext():
        yield
