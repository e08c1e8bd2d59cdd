"""`FailStop`: ends all writing of a log after a failure that leaves the state of the disk unknown."""

from __future__ import annotations

import contextlib

from pylog import trace
from pylog.errors import ClosedError, DirectoryReplacedError, StorageFailedError
from pylog.log.durable_point import FAILED, DurablePointFile
from pylog.log.recovery.loaded import Source


class FailStop:
    """Whether a log still accepts writes. A sync is never retried: the system may have marked the pages clean (fsyncgate).

    Args:
        source: the partition.
        header: the shared header, in which other processes see the failure.

    Attributes:
        reason: why no more writes are possible, or None.
        unreported: the error of a background flush, which the next call raises.
    """

    def __init__(self, source: Source, header: DurablePointFile) -> None:
        self.reason: str | None = None
        self.unreported: StorageFailedError | None = None
        self._source = source
        self._header = header

    def check(self) -> None:
        """Raises after a failure: first the error of a background flush, then ClosedError."""
        error, self.unreported = self.unreported, None
        if error is not None:
            raise error
        if self.reason is not None:
            raise ClosedError(self.reason, path=self._source.directory)

    def fail(self, reason: str) -> None:
        """Ends all writing."""
        self.reason = f"{self._source.directory}: {reason}; close the store and open it again, which checks the end of the log"
        trace.later(trace.WRITING_FAILED, self._source.partition, reason=self.reason)
        with contextlib.suppress(StorageFailedError):  # the first failure is reported
            self._header.write(flags=FAILED)

    def take(self, error: StorageFailedError, what: str) -> bool:
        """Ends writing after a failure during a change. Returns False if space or descriptors were lacking, which may pass.

        Args:
            error: the failure.
            what: the step that failed, in words.
        """
        if isinstance(error, DirectoryReplacedError):
            self.reason = str(error)  # and nothing is written: the header may belong to the new directory
        elif error.passes:
            return False
        else:
            self.fail(f"{what} ({error})")
        return True
