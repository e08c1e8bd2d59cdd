"""The commits of confluent-kafka's consumer: stored offsets, automatic commits, and reports to `on_commit`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from pylog.clock import SystemClock
from pylog.compat.confluent.errors import KafkaError, Translating, error_of, failed
from pylog.compat.confluent.events import Events
from pylog.compat.confluent.structs import OFFSET_INVALID, TopicPartition
from pylog.consumer.consumer import Consumer as NativeConsumer
from pylog.errors import ClosedError, PylogError
from pylog.record.types import OffsetAndMetadata
from pylog.record.types import TopicPartition as NativePartition

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], object]
_CLOCK: Final = SystemClock()


class Commits:
    """The commits of one consumer. Its thread calls every method.

    An offset is stored when a record is returned, or by the program. A commit without offsets takes what was stored since the
    last one. As in confluent-kafka, `on_commit` is not called for a synchronous commit, which returns or raises.

    Args:
        native: pylog's consumer, without automatic commits of its own.
        events: the consumer's; a failed commit without `on_commit` is one.
        on_commit: called with an error or None, and the partitions; None for no reports.
        interval_ms: milliseconds between two automatic commits; None for none.
        stores: whether a record that is returned stores its offset.
    """

    def __init__(
        self,
        native: NativeConsumer[Any, Any],
        events: Events,
        on_commit: OnCommit | None,
        interval_ms: int | None,
        *,
        stores: bool,
    ) -> None:
        self._native = native
        self._events = events
        self._on_commit = on_commit
        self._interval = None if interval_ms is None else interval_ms / 1000
        self._stores = stores
        self._due = _CLOCK.monotonic() + (self._interval or 0)
        self._stored: dict[NativePartition, TopicPartition] = {}
        self._committed: dict[NativePartition, int] = {}
        self._reports: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()  # the thread of commits adds to it

    # ---- stored offsets ------------------------------------------------------------------------------------------------------

    def returned(self, partition: NativePartition, position: int) -> None:
        """Stores the offset after a record that was returned."""
        if self._stores:
            self._stored[partition] = TopicPartition(*partition, position)

    def store(self, offsets: Iterable[TopicPartition]) -> None:
        """Stores offsets for the next commit.

        Raises:
            KafkaException: records store their offsets themselves, or a partition is not read.
        """
        if self._stores:
            raise failed(KafkaError._INVALID_ARG, "offsets are stored by the program only with enable.auto.offset.store=false")
        chosen, assigned = list(offsets), self._native.assignment()
        for each in chosen:
            if each.native not in assigned:
                raise failed(KafkaError._STATE, f"{each.topic}-{each.partition} is not assigned to this consumer")
        self._stored.update((each.native, each) for each in chosen)

    def stored_offsets(self) -> dict[NativePartition, int]:
        """Returns the stored offsets."""
        return {partition: each.offset for partition, each in self._stored.items()}

    def forget(self, partition: NativePartition) -> None:
        """Drops what is known of a partition that is not read any more."""
        self._stored.pop(partition, None)
        self._committed.pop(partition, None)

    def _uncommitted(self, partitions: Iterable[NativePartition]) -> list[TopicPartition]:
        """Returns the partitions, with what was stored since the last commit; `OFFSET_INVALID` where it is nothing."""
        found = []
        for partition in sorted(partitions):
            stored = self._stored.get(partition)
            is_new = stored is not None and stored.offset > self._committed.get(partition, OFFSET_INVALID)
            found.append(stored if stored is not None and is_new else TopicPartition(*partition))
        return found

    # ---- commits -------------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Iterable[TopicPartition] | None, *, asynchronous: bool) -> list[TopicPartition] | None:
        """Commits offsets, by default the stored ones. As `Consumer.commit`."""
        with Translating():
            chosen = self._uncommitted(self._native.assignment()) if offsets is None else list(offsets)
        if asynchronous:
            self._begin(chosen)
            return None
        if not _to_commit(chosen):
            raise failed(KafkaError._NO_OFFSET, "there are no offsets to commit")
        with Translating():
            self._write(chosen)
        return chosen

    def _write(self, chosen: list[TopicPartition]) -> None:
        self._native.commit(_to_commit(chosen))
        self._note(chosen)

    def _begin(self, chosen: list[TopicPartition]) -> None:
        """Commits in the background."""
        wanted = _to_commit(chosen)
        if not wanted:
            self._reports.append((KafkaError(KafkaError._NO_OFFSET, "there are no offsets to commit"), chosen))
            return
        try:
            self._native.commit_async(wanted).add_done_callback(partial(self._ended, chosen))
        except ClosedError:
            raise
        except PylogError as error:
            self._report(chosen, error)

    def _ended(self, chosen: list[TopicPartition], future: Future[None]) -> None:
        """Runs in the thread of commits."""
        error = future.exception()
        if error is None:
            self._note(chosen)
        self._report(chosen, error)

    def _note(self, chosen: list[TopicPartition]) -> None:
        self._committed.update((each.native, each.offset) for each in chosen if each.offset >= 0)

    def _report(self, chosen: list[TopicPartition], error: BaseException | None) -> None:
        found = None if error is None else error_of(error)
        copies = [TopicPartition(*each.native, each.offset, each.metadata, each.leader_epoch) for each in chosen]
        for each in copies:
            each.error = found if each.offset >= 0 else None
        self._reports.append((found, copies))

    def deliver(self) -> None:
        """Reports the commits that have ended. Raises what `on_commit` raises; the next call reports the rest."""
        while self._reports:
            report = self._reports.popleft()
            if self._on_commit is not None:
                self._on_commit(*report)
            else:
                self._unreported(report[0])

    def _unreported(self, error: KafkaError | None) -> None:
        """Logs a failed commit that the program is not told of. If the store has failed, it is an event."""
        if error is None:
            self._events.worked()
        elif error != KafkaError._NO_OFFSET:
            self._events.log(logging.WARNING, f"a commit has failed: {error.str()}")
            self._events.failed(error)

    # ---- automatic -----------------------------------------------------------------------------------------------------------

    def keep_up(self) -> None:
        """Begins an automatic commit if one is due."""
        if self._interval and _CLOCK.monotonic() >= self._due:
            self._due = _CLOCK.monotonic() + self._interval
            chosen = self._uncommitted(self._native.assignment())
            if _to_commit(chosen):
                self._begin(chosen)

    def before_leaving(self, partitions: Iterable[NativePartition]) -> None:
        """Commits what was stored for partitions that are given up, if automatic commits are on. A failure is reported."""
        chosen = self._uncommitted(partitions)
        if self._interval is None or not _to_commit(chosen):
            return
        try:
            self._write(chosen)
        except PylogError as error:
            self._report(chosen, error)
        else:
            self._report(chosen, None)


def _to_commit(chosen: Iterable[TopicPartition]) -> dict[Any, int | OffsetAndMetadata]:
    return {each.native: OffsetAndMetadata(each.offset, each.metadata or "") for each in chosen if each.offset >= 0}
