"""The changes of an `AsyncConsumer` that its next call makes first.

Plain calls such as `seek` and `pause` change nothing at once. However often a program calls them before it reads again, only
the last state counts: a position and whether it is paused for each partition, and one choice of topics or partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pylog.consumer.consumer import Consumer
from pylog.errors import IllegalStateError
from pylog.record.types import TopicPartition

Change = Callable[[Consumer[Any, Any]], object]


class _State(NamedTuple):
    """The last requests for one partition; None for what was not requested."""

    offset: int | None = None
    paused: bool | None = None


@dataclass(frozen=True)
class _Assignment:
    """Partitions to assign.

    Attributes:
        partitions: the last ones requested.
        kept: those that were assigned before, and that all requests since have named. Only they keep their positions.
    """

    partitions: frozenset[TopicPartition]
    kept: frozenset[TopicPartition]

    def __call__(self, consumer: Consumer[Any, Any]) -> None:
        if consumer.assignment() & self.partitions - self.kept:
            consumer.assign(self.kept)
        consumer.assign(self.partitions)


class PendingChanges:
    """Changes that wait for the next call of one consumer. They are requested in one thread, and made in another.

    Their number is at most two for each partition, and two for the choice of topics or partitions.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()  # never held during a call of the consumer
        self._before: dict[TopicPartition, _State] = {}  # requested before the consumer leaves or chooses
        self._leaves = False
        self._chosen: Change | None = None
        self._states: dict[TopicPartition, _State] = {}  # requested after that
        self._running: Change | None = None  # the choice that the consumer's thread is making

    def __bool__(self) -> bool:
        return bool(self._before or self._leaves or self._chosen or self._states)

    # ---- requests ------------------------------------------------------------------------------------------------------------

    def subscribe(self, *given: object) -> None:
        """Requests a subscription: the arguments of `Consumer.subscribe`.

        Raises:
            IllegalStateError: an assignment is pending.
        """
        with self._guard:
            pending = self._chosen
            if isinstance(pending, _Assignment):
                if pending.partitions:
                    raise IllegalStateError("partitions are assigned at the next read; call unsubscribe() before subscribe()")
                self._leave()
            self._choose(lambda consumer: consumer.subscribe(*given))  # type: ignore[arg-type] # checked by that method

    def assign(self, partitions: Iterable[TopicPartition], now: Collection[TopicPartition]) -> None:
        """Requests an assignment.

        Args:
            partitions: the partitions.
            now: the partitions that are assigned to the consumer.

        Raises:
            IllegalStateError: a subscription is pending.
        """
        wanted = frozenset(partitions)
        with self._guard:
            pending = self._chosen
            if pending is not None and not isinstance(pending, _Assignment):
                raise IllegalStateError("topics are subscribed to at the next read; call unsubscribe() before assign()")
            present = self._present(now) if pending is None else pending.kept
            self._choose(_Assignment(wanted, frozenset(each for each in wanted if each in present)))
            self._states = {each: state for each, state in self._states.items() if each in wanted}

    def unsubscribe(self) -> None:
        """Requests the end of the subscription or assignment."""
        with self._guard:
            self._leave()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Requests a position."""
        with self._guard:
            self._states[partition] = self._states.get(partition, _State())._replace(offset=offset)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Requests that partitions are paused, or that they are not."""
        with self._guard:
            for each in partitions:
                self._states[each] = self._states.get(each, _State())._replace(paused=paused)

    def assigned(self, now: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Returns the partitions that are assigned after the choice that is pending, of those that are assigned now."""
        with self._guard:
            return self._chosen.partitions if isinstance(self._chosen, _Assignment) else self._present(now)

    def clear(self) -> None:
        """Forgets all of them."""
        with self._guard:
            self._before, self._leaves, self._chosen, self._states = {}, False, None, {}

    def _present(self, now: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Returns the partitions that are assigned when the pending choice is made."""
        if self._leaves:
            return ()
        return self._running.partitions if isinstance(self._running, _Assignment) else now

    def _choose(self, choice: Change) -> None:
        self._keep_order()
        self._chosen = choice

    def _leave(self) -> None:
        self._keep_order()
        self._leaves, self._chosen, self._states = True, None, {}

    def _keep_order(self) -> None:
        """Lets the requests for partitions that are still assigned come before the next choice, which may commit positions."""
        for partition in [each for each in self._states if self._is_present(each)]:
            offset, paused = self._states.pop(partition)
            earlier = self._before.get(partition, _State())
            self._before[partition] = _State(
                earlier.offset if offset is None else offset, earlier.paused if paused is None else paused
            )

    def _is_present(self, partition: TopicPartition) -> bool:
        """Returns whether the pending choice leaves the present assignment of a partition."""
        return not self._leaves and (not isinstance(self._chosen, _Assignment) or partition in self._chosen.kept)

    # ---- the consumer's thread -----------------------------------------------------------------------------------------------

    def make(self, consumer: Consumer[Any, Any]) -> None:
        """Makes the changes. A change that raises is not repeated; the others stay pending."""
        while (change := self._next(is_nested=self._running is not None)) is not None:
            running, self._running = self._running, change  # a listener of this change may request and make others
            try:
                change(consumer)
            finally:
                self._running = running

    def _next(self, *, is_nested: bool) -> Change | None:
        """Takes the next change. Inside a listener of another one no choice is made: it waits for the end of that change."""
        with self._guard:
            if self._before:
                return _first_of(self._before)
            if is_nested and (self._leaves or self._chosen is not None):
                return None
            if self._leaves:
                self._leaves = False
                return Consumer.unsubscribe
            if self._chosen is not None:
                change, self._chosen = self._chosen, None
                return change
            return _first_of(self._states) if self._states else None


def _first_of(states: dict[TopicPartition, _State]) -> Change:
    """Takes the requests for one partition."""
    partition = next(iter(states))
    return partial(_set, partition, states.pop(partition))


def _set(partition: TopicPartition, state: _State, consumer: Consumer[Any, Any]) -> None:
    offset, paused = state
    if offset is not None:
        consumer.seek(partition, offset)
    if paused is not None:
        (consumer.pause if paused else consumer.resume)(partition)
