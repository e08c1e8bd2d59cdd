"""One consumer, one thread at a time, one process."""

from __future__ import annotations

import threading
from typing import Self

from pylog.errors import ClosedError, IllegalStateError
from pylog.fs import process_id


class Guard:
    """Held during each call of a consumer; a call from inside (by a listener, say) may hold it again.

    Raises:
        IllegalStateError: on entering: another thread is in a call.
        ClosedError: on entering: the consumer is closed, or this is a forked child.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pid = process_id()
        self.closed = False

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the consumer."""
        return process_id() != self._pid

    def close(self) -> None:
        """Ends the consumer: nobody holds it any more."""
        self.closed = True

    def __enter__(self) -> Self:
        if self.forked:
            raise ClosedError("a consumer does not live on in a forked process; make one there")
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError(
                "another thread is in a call of this consumer; one thread uses it at a time: make one for each"
            )
        if self.closed:
            self._lock.release()
            raise ClosedError("the consumer is closed; make another one")
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
