"""What a store hands out that stands on it: its clients.

Here alone imports run up, inside of methods, when a client is asked for: whoever uses none loads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylog.clock import Clock

if TYPE_CHECKING:
    from pylog.groups.admin import Group
    from pylog.offsets.store import OffsetStore


class Clients:
    """The part of a `Store` that makes clients."""

    _clock: Clock
    _offsets: OffsetStore

    def groups(self) -> list[str]:
        """The names of the consumer groups, those of brokers too, sorted. As `OffsetStore.groups`."""
        return self._offsets.groups()

    def group(self, name: str) -> Group:
        """One consumer group, to be described, reset or deleted; of any name, also one that nobody has used.

        Raises:
            InvalidArgumentError: it is not a group's name.
        """
        from pylog.groups.admin import Group
        from pylog.store import Store

        assert isinstance(self, Store)
        return Group(name, self, self._clock)
