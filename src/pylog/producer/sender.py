"""The producer's thread. It takes records from the buffer and appends them in batches, one partition after the other.

A batch without acknowledgement is retried, with the same numbers, in two cases: another process held the log, or the thread that
wrote for this one was interrupted. Any other error fails its records. The numbers of an abandoned batch are not used again
(`Numbering.restart`), because its records may be in the log.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final

from pylog.clock import Clock
from pylog.errors import (
    ClosedError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    PylogError,
    RecordTooLargeError,
    StorageFailedError,
    StoreLockedError,
    UnknownTopicOrPartitionError,
)
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.producer.buffer import RecordAccumulator
from pylog.producer.columns import (
    Columns,
    Futures,
    PartitionRows,
    batch_size_of,
    batches,
    chosen_partitions,
    columns_of,
    columns_of_table,
    partitions_named,
    parts,
)
from pylog.producer.config import ProducerConfig
from pylog.producer.future import Outcome, by_route, key_of, route_of, settle
from pylog.producer.numbering import Numbering
from pylog.producer.route import Route
from pylog.record.rows import Rows
from pylog.record.types import Acknowledgement, BatchMetadata, TopicPartition

LOGGER = logging.getLogger("pylog")


_AFTER_FAILURE_S: Final = 0.1  # pause after the thread failed to take records


class Sender:
    """Appends the records of one producer.

    Args:
        manager: the topics and logs that it sends to.
        clock: for timestamps and timeouts.
        config: the producer's.
        buffer: the source of records.
    """

    def __init__(self, manager: LogManager, clock: Clock, config: ProducerConfig, buffer: RecordAccumulator) -> None:
        self._manager = manager
        self._clock = clock
        self._config = config
        self._buffer = buffer

    def run(self) -> None:
        """Appends until the buffer is closed and empty."""
        while True:
            try:
                if not self._run_once():
                    return
            except BaseException as error:  # noqa: BLE001 - out of memory, for example: later records must still be appended
                self._manager.failures.note(error)
                threading.Event().wait(_AFTER_FAILURE_S)

    def _run_once(self) -> bool:
        """Takes some records and settles them. Returns whether there were any."""
        accepted = self._buffer.take()
        try:
            for route, futures in self._by_route(accepted) if accepted else ():
                self._deliver(route, futures)
        except BaseException as error:  # noqa: BLE001 - whatever it is, no thread may wait forever
            self._buffer.refuse([future for future in accepted if not future.done()], _as_failure(error))
            self._manager.failures.note(error)
        finally:
            self._buffer.done()
        return bool(accepted)

    def _by_route(self, accepted: Futures) -> Iterable[tuple[Route, Futures]]:
        """Returns the records by topic, in their order."""
        if self._buffer.topics == 1:
            return [(route_of(accepted[0]), accepted)]
        return by_route(accepted).items()

    def _deliver(self, route: Route, futures: Futures) -> None:
        """Appends the records of one topic, and settles their futures."""
        with self._buffer.waiting.turn:
            try:
                if self.is_old(route):
                    self.renew_at_once(route)
                try:
                    self._deliver_to(route, futures, first=True)
                except UnknownTopicOrPartitionError:  # none was appended: all are sent again to the current partitions, in order
                    self.renew_at_once(route)
                    self._deliver_to(route, futures, first=False)
            except PylogError as error:
                self._buffer.refuse([future for future in futures if not future.done()], error)

    def _deliver_to(self, route: Route, futures: Futures, *, first: bool) -> None:
        """Appends the records of one topic to the cached partitions.

        Raises:
            UnknownTopicOrPartitionError: at the `first` attempt, if a partition no longer exists; nothing was appended.
        """
        now_ms = self._clock.now_ms()
        columns = columns_of(futures, route, now_ms)
        if route.tightened and not all(accepted := self._checked(route, columns)):
            futures = list(compress(futures, accepted))
            if not futures:
                return
            columns = columns_of(futures, route, now_ms)
        placed = list(parts(columns, chosen_partitions(route, columns, partitions_named(futures, route)), now_ms))
        if first:
            self._check_partitions(route, placed)
        for partition, part in placed:
            for batch in self._batches(route, part):
                self._settle(route, partition, batch, now_ms, first=first)
                first = False

    def _is_tightened(self, route: Route, batch: PartitionRows) -> bool:
        """Refreshes the topic. Returns true if its limits are stricter than when the batch was built."""
        before = route.limit, route.compacted
        self.renew_at_once(route)
        route.tightened = True
        sizes = zip(batch.futures, batch.sizes.tolist(), strict=True)
        refused = any(route.takes(key_of(future), batch_size_of(size)) is not None for future, size in sizes)
        return refused or (route.limit, route.compacted) != before

    def _checked(self, route: Route, columns: Columns) -> list[bool]:
        """Returns for each record whether the topic still accepts it, and refuses the others one by one."""
        accepted = []
        for future, size in zip(columns.futures, columns.sizes.tolist(), strict=True):
            error = route.takes(key_of(future), batch_size_of(size))
            accepted.append(error is None)
            if error is not None:
                self._buffer.refuse([future], error)
        return accepted

    def _settle(self, route: Route, partition: int, batch: PartitionRows, now_ms: int, *, first: bool) -> None:
        """Appends one batch and settles its futures, in order. Raises as `_deliver_to`."""
        try:
            done = self._append(route, partition, batch.rows, first=first)
        except PylogError as error:
            if first and isinstance(error, UnknownTopicOrPartitionError):
                raise
            if isinstance(error, InvalidRecordError | RecordTooLargeError) and self._is_tightened(route, batch):
                self._deliver_to(route, batch.futures, first=False)
                return
            self._buffer.refuse(batch.futures, error, partition)
            return
        stamp = self._stamp(route, partition, done) if route.stamped else now_ms
        settle(batch.futures, Outcome(route.topic, partition, done.offsets.start, stamp, route.stamped, done.durability))
        self._buffer.call_back(batch.futures)

    def _stamp(self, route: Route, partition: int, done: Acknowledgement) -> int:
        """Returns the LogAppendTime, which the log has set."""
        with contextlib.suppress(PylogError):  # the records are in the log even if reading them fails
            return self._known_log(route, partition).read(done.offsets.start).timestamp
        return -1

    # ---- tables --------------------------------------------------------------------------------------------------------------

    def send_table(self, route: Route, table: Any, *, whole: bool = False) -> list[BatchMetadata]:
        """Appends the rows of a table in the calling thread, after all records taken before.

        Args:
            route: the topic's route.
            table: as for `Producer.send_arrow`.
            whole: true to append the rows of each partition as one batch, whatever `batch_size` is.
        """
        sent: list[BatchMetadata] = []
        with self._buffer.waiting.turn:
            self.renew_at_once(route)
            try:
                self._send_table_to(route, table, sent, first=True, whole=whole)
            except UnknownTopicOrPartitionError:
                if sent:
                    raise
                self.renew_at_once(route)
                self._send_table_to(route, table, sent, first=False, whole=whole)
        return sent

    def _send_table_to(self, route: Route, table: Any, sent: list[BatchMetadata], *, first: bool, whole: bool) -> None:
        """Appends the rows to the cached partitions, and adds the batches to `sent`. Raises as `_deliver_to`."""
        now_ms = self._clock.now_ms()
        for columns, named in columns_of_table(table, route, now_ms):
            placed = list(parts(columns, chosen_partitions(route, columns, named), now_ms))
            self._check_partitions(route, placed)
            for partition, part in placed:
                for batch in [part] if whole else self._batches(route, part):
                    done = self._append(route, partition, batch.rows, first=first and not sent)
                    sent.append(BatchMetadata(route.topic, partition, done.offsets, done.durability))

    # ---- partitions ----------------------------------------------------------------------------------------------------------

    def is_old(self, route: Route) -> bool:
        """Returns whether a topic must be read again: the store has changed a topic since, or the metadata is too old."""
        if route.changes != self._manager.topic_changes:
            return True
        return self._clock.monotonic() - route.read_at > self._config.metadata_max_age_ms / 1000

    def renew_at_once(self, route: Route) -> None:
        """Reads the topic and updates the cached metadata."""
        changes = self._manager.topic_changes  # read before the topic, so that a change in between is noticed next time
        route.renew(self._manager.topic(route.topic), self._clock.monotonic(), changes)

    def _check_partitions(self, route: Route, placed: Sequence[tuple[int, PartitionRows]]) -> None:
        """Raises UnknownTopicOrPartitionError if a partition no longer exists, before anything is appended to the others."""
        for partition, _ in placed:
            try:
                self._known_log(route, partition)
            except UnknownTopicOrPartitionError:
                raise
            except PylogError:
                continue  # raised again for its own records; the others are not affected

    def _batches(self, route: Route, part: PartitionRows) -> Iterator[PartitionRows]:
        """Splits the records of a partition into batches."""
        return batches(part, self._config.batch_size, route.limit)

    # ---- appending -----------------------------------------------------------------------------------------------------------

    def _append(self, route: Route, partition: int, rows: Rows, *, first: bool) -> Acknowledgement:
        """Appends one batch exactly once, with retries. Refuses the `first` one if the partition was created again."""
        numbering = route.numbering(partition) if self._config.enable_idempotence else None
        try:
            done = self._append_patiently(route, partition, rows, numbering, first=first)
        except BaseException:
            if numbering is not None:
                numbering.restart()
            raise
        if numbering is not None:
            numbering.advance(len(rows))
        return done

    def _append_patiently(
        self, route: Route, partition: int, rows: Rows, numbering: Numbering | None, *, first: bool
    ) -> Acknowledgement:
        deadline = self._clock.monotonic() + self._config.delivery_timeout_ms / 1000
        log = None
        while True:
            if self._buffer.abandoned:
                raise ClosedError("the producer was closed before the record could be appended")
            try:
                log = self._known_log(route, partition)
                return self._append_to(log, rows, numbering)
            except OutOfOrderSequenceError:  # the log was truncated, or has expired the producer: it has no record of this batch
                if numbering is None or numbering.next_batch().sequence == 0:
                    raise
                numbering.restart()
            except (UnknownTopicOrPartitionError, ClosedError):  # nothing was appended: the topic may have been deleted
                if not self._is_made_again(route, partition, log):
                    raise
                if first:
                    raise UnknownTopicOrPartitionError(f"topic {route.topic!r} was deleted and created again") from None
            except (StoreLockedError, StorageFailedError) as error:
                if not _may_pass(error, numbering) or self._clock.monotonic() >= deadline:
                    raise
                self._clock.sleep(self._config.retry_backoff_ms / 1000)

    def _known_log(self, route: Route, partition: int) -> PartitionLog:
        return self._manager.known_log(TopicPartition(route.topic, partition))

    def _append_to(self, log: PartitionLog, rows: Rows, numbering: Numbering | None) -> Acknowledgement:
        producer = None if numbering is None else numbering.next_batch()
        return log.append(self._clock.now_ms(), [rows], self._config.compression, self._config.durability, producer)

    def _is_made_again(self, route: Route, partition: int, log: PartitionLog | None) -> bool:
        """Returns whether the partition was created again, with another log. If so, the next send reads the topic again.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        route.distrust()
        return self._manager.log(route.topic, partition) is not log


def _may_pass(error: PylogError, numbering: Numbering | None) -> bool:
    """Returns whether a retry can succeed without duplicates: nothing was written, or the sequence numbers prevent duplicates."""
    if isinstance(error, StorageFailedError):  # the thread that wrote these records with its own was interrupted
        return error.errno == errno.EINTR and numbering is not None
    return True


def _as_failure(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else StorageFailedError(f"the producer's thread was interrupted by {error!r}")
