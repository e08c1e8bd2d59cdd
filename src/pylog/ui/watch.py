"""`Watch`: observes a store at most once in two seconds, and gives all pages the same immutable `Observation`.

The first observation of a large store takes seconds, because it opens every partition. A thread makes it; meanwhile pages show
what is known.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pylog.errors import ClosedError, PylogError
from pylog.groups.lag_history import LagPoint
from pylog.groups.observer import GroupObserver
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.ui.beginning import Beginning, Begun
from pylog.ui.observation import FRESH_S, LagSeen, Observation
from pylog.ui.taking import take
from pylog.ui.tallies import Tallies
from pylog.ui.verifying import Verifying

if TYPE_CHECKING:
    from pylog.transactions.admin import TransactionAdmin

_LARGE: Final = 200  # partitions, from which on a thread makes the first observation: some 0.4 s
_SHARE: Final = 10  # pages show an observation this many times as long as it took: a tenth of a core at most
_MOST_S: Final = 60.0  # that pages show one observation
_KEPT: Final = 720  # observations in the history
_WINDOW_MS: Final = 3_600_000  # of the course of a lag before the window was opened
_PAST_FRESH_S: Final = 30.0
_PASTS: Final = 32  # groups whose course is kept


class Watch:
    """Observes a store. Methods may be called from any thread.

    Args:
        manager, offsets: the store's manager and offsets.
        transactions: returns the administration of its transactions.
        metrics: returns the metrics for a client with this `Accept` header, and their media type.

    Attributes:
        manager, offsets, metrics: as given.
        verifying: the verification of its directory.
    """

    def __init__(
        self,
        manager: LogManager,
        offsets: OffsetManager,
        transactions: Callable[[], TransactionAdmin],
        metrics: Callable[[str], tuple[str, str]],
    ) -> None:
        self.metrics = metrics
        self.manager = manager
        self.offsets = offsets
        self.verifying = Verifying(manager)
        self._transactions = transactions
        self._guard = threading.Lock()
        self._observer: GroupObserver | None = None
        self._tallies = Tallies()
        self._beginning: Beginning | None = None
        self._last: Observation | None = None
        self._taken = 0.0
        self._sizes: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._lags: dict[str, deque[LagSeen]] = {}
        self._pasts: dict[str, tuple[float, list[LagPoint]]] = {}

    @property
    def transactions(self) -> TransactionAdmin:
        """The transactions of the store."""
        return self._transactions()

    def close(self) -> None:
        """Ends what runs in the background."""
        self.verifying.stop()
        beginning = self._beginning
        if beginning is not None:
            beginning.stop()

    def forget(self) -> None:
        """Lets the next observation be a new one: something was changed."""
        with self._guard:
            self._last = None

    def lag_past(self, group_id: str) -> list[LagPoint]:
        """Returns the course of a group's lag in the last hour, at most half a minute old. Empty if it cannot be read."""
        with self._guard, self.manager.gate.throughout():
            now = self.manager.clock.monotonic()
            known = self._pasts.get(group_id)
            if known is None or now - known[0] >= _PAST_FRESH_S:
                if len(self._pasts) >= _PASTS:
                    self._pasts.clear()
                known = self._pasts[group_id] = now, self._past_of(group_id)
            return known[1]

    def _past_of(self, group_id: str) -> list[LagPoint]:
        observer = self._observer
        try:
            state = None if observer is None else observer.group(group_id)
            return [] if observer is None or state is None else observer.lag_history(group_id, state, _WINDOW_MS)
        except ClosedError:
            raise
        except PylogError:
            return []

    def observation(self, *, whole: bool = True) -> Observation:
        """Returns the store as it was at most two seconds ago, or longer if an observation takes more than a tenth of that.

        Args:
            whole: false to take what is known already, if this is the first observation of a large store.

        Raises:
            ClosedError: the store is closed. PylogError: the directory cannot be listed.
        """
        while True:
            with self._guard, self.manager.gate.throughout():
                beginning = self._begun()
                if beginning is None:
                    return self._current()
            known = beginning.known(wait=whole)
            if known is not None:
                return known

    def _begun(self) -> Beginning | None:
        """Returns the first observation, if it is a long one and not complete. Begins it."""
        beginning = self._beginning
        if beginning is not None and beginning.is_done:
            self._beginning = None
            self._adopt(beginning.found())
        elif beginning is None and self._observer is None and self._is_large():
            self._beginning = Beginning(self.manager, self.offsets)
        return self._beginning

    def _is_large(self) -> bool:
        return sum(topic.partition_count for topic in self.manager.topics().values()) > _LARGE

    def _adopt(self, begun: Begun) -> None:
        self._observer, self._tallies = begun.observer, begun.tallies
        self._taken = self.manager.clock.monotonic()
        self._last = self._noted(begun.seen)

    def _current(self) -> Observation:
        now = self.manager.clock.monotonic()
        if self._last is None or now - self._taken >= self._last.fresh_s:
            is_first = self._observer is None  # which opens the partitions
            seen = self._observe(self._last)
            self._taken = self.manager.clock.monotonic()
            took = 0.0 if is_first else self._taken - now
            self._last = replace(seen, fresh_s=min(max(FRESH_S, _SHARE * took), _MOST_S))
        return self._last

    def _observe(self, before: Observation | None) -> Observation:
        if self._observer is None:
            self._observer = GroupObserver(self.manager, self.offsets)
        else:
            self._observer.observe()
        return self._noted(take(self.manager, self.offsets, self._observer, self._tallies, before))

    def _noted(self, seen: Observation) -> Observation:
        """Adds an observation to the history, and returns it with that."""
        for name in self._lags.keys() - seen.groups.keys():
            del self._lags[name]
        for name, group in seen.groups.items():
            noted = LagSeen(seen.at_ms, group.health.lag_seconds, group.lag)
            self._lags.setdefault(name, deque(maxlen=_KEPT)).append(noted)
        self._sizes.append((seen.at_ms, seen.size))
        return replace(seen, lags={name: tuple(values) for name, values in self._lags.items()}, growth=self._growth())

    def _growth(self) -> float | None:
        (begun, first), (now, last) = self._sizes[0], self._sizes[-1]
        return (last - first) * 1000 / (now - begun) if now > begun else None
