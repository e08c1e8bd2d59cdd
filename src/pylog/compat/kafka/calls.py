"""One call of a client at a time, with kafka-python's errors in place of pylog's."""

from __future__ import annotations

import threading
from typing import Final

from pylog.clock import SystemClock
from pylog.compat.clusters import Cluster
from pylog.compat.kafka.translation import Translating
from pylog.errors import PylogError

_CLOCK: Final = SystemClock()
_A_MOMENT_S: Final = 0.001


class Calls:
    """Held during each call of a consumer. A thread that calls meanwhile waits; a call in a listener goes on.

    A `poll` holds it for parts of its time, so that other threads are let in between.

    Args:
        cluster: the consumer's.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.RLock()
        self._waiting = 0
        self._owner: int | None = None
        self._depth = 0
        self._errors = Translating(ValueError)

    @property
    def is_elsewhere(self) -> bool:
        """True while another thread is in a call."""
        return self._owner not in (None, threading.get_ident())

    def take(self, timeout: float) -> bool:
        """Begins a call, if no other thread is in one for longer than `timeout` seconds. `give_back` ends it."""
        self._waiting += 1
        try:
            if not self._lock.acquire(timeout=timeout):
                return False
        finally:
            self._waiting -= 1
        self._owner, self._depth = threading.get_ident(), self._depth + 1
        return True

    def give_back(self) -> None:
        """Ends a call that `take` began."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    def give_others_a_turn(self) -> None:
        """Waits a moment, outside of calls, if another thread waits for its turn."""
        if self._waiting:
            _CLOCK.sleep(_A_MOMENT_S)

    def __enter__(self) -> None:
        try:
            self._cluster.check_process()
        except PylogError as error:
            self._errors.reraise(error)
        self.take(-1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.give_back()
        if isinstance(error, PylogError):
            self._errors.reraise(error)
