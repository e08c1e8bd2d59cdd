"""State that the parts of an open store keep by a topic's name: routes, logs, warnings. It goes with the topic.

A part that caches anything by a topic's name is a `Keeper`, and registers itself once. The log manager notices that topics were
deleted, also by other processes, and asks all keepers to forget them. So no keeper has to watch the topics itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pylog.fs import LiveSet

IsDeleted = Callable[[str], bool]


class Keeper(Protocol):
    """A part of a store that keeps something by a topic's name."""

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Forgets the topics for which `is_deleted` is true. Any thread may call it."""
        ...


class WarnedTopics(set[str]):
    """The topics for which a warning was logged: a keeper."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Removes names. See `Keeper`."""
        self.difference_update([name for name in self.copy() if is_deleted(name)])


class KeptByTopic:
    """The keepers of one store. It keeps none of them alive.

    >>> class Names(set):
    ...     __hash__ = object.__hash__
    ...
    ...     def forget_topics(self, is_deleted):
    ...         self.difference_update([name for name in self if is_deleted(name)])
    >>> kept, names = KeptByTopic(), Names(["orders", "days"])
    >>> kept.add(names)
    >>> kept.forget(lambda name: name == "days")
    >>> names
    Names({'orders'})
    """

    def __init__(self) -> None:
        self._keepers: LiveSet[Keeper] = LiveSet()

    def add(self, keeper: Keeper) -> None:
        """Adds a keeper, until it is collected."""
        self._keepers.add(keeper)

    def forget(self, is_deleted: IsDeleted) -> None:
        """Makes all keepers forget the topics for which `is_deleted` is true."""
        for keeper in self._keepers.members():
            keeper.forget_topics(is_deleted)
