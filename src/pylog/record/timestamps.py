"""Checks how far timestamps are from now (storage-format 6.2.4), and warns about seconds given as milliseconds."""

from __future__ import annotations

import logging
from typing import Final

from pylog import limits
from pylog.errors import InvalidTimestampError
from pylog.record.few import FewRows, Piece

LOGGER = logging.getLogger("pylog.timestamps")
_SECONDS_END: Final = 10**10
_SECONDS: Final = range(10**9, _SECONDS_END)  # 2001 to 2286 in seconds; as milliseconds a few months of 1970


class TimestampBounds:
    """Checks the timestamps of records before they are appended.

    Args:
        topic: the topic's name, for messages.
        before_max_ms: how far in the past a timestamp may be, in milliseconds.
        after_max_ms: how far in the future a timestamp may be, in milliseconds.
        warned: topics that were warned about; shared by the logs of a store. None disables warnings.

    >>> from pylog.record.few import few_rows
    >>> bounds = TimestampBounds("orders", limits.INT64_MAX, 3_600_000)
    >>> bounds.check(few_rows([(-1, None, b"no timestamp", ())]), 1_700_000_000_000)
    >>> bounds.check(few_rows([(1_700_000_000_000_000_000, None, b"nanoseconds", ())]), 1_700_000_000_000)
    Traceback (most recent call last):
    pylog.errors.InvalidTimestampError: topic 'orders': timestamp 1700000000000000000 is more than \
message_timestamp_after_max_ms=3600000 after now (1700000000000); give milliseconds since 1970, or raise that option of the topic
    """

    def __init__(self, topic: str, before_max_ms: int, after_max_ms: int, warned: set[str] | None = None) -> None:
        self._topic = topic
        self._before_max_ms = before_max_ms
        self._after_max_ms = after_max_ms
        self._warned = warned

    @property
    def limits_the_past(self) -> bool:
        """Whether a timestamp can be too far in the past."""
        return self._before_max_ms != limits.INT64_MAX

    def check(self, rows: Piece, now_ms: int) -> None:
        """Raises InvalidTimestampError if a timestamp is too far in the future, or else too far in the past.

        Records without a timestamp (-1) pass.

        Args:
            rows: the records.
            now_ms: the wall clock, in milliseconds.

        Cost: two passes over the timestamps.
        """
        if type(rows) is FewRows and len(rows.records) == 1:
            smallest = largest = rows.records[0][0]
        else:
            smallest, largest = rows.time_range()
        if smallest >= _SECONDS_END and largest - now_ms <= self._after_max_ms and now_ms - smallest <= self._before_max_ms:
            return  # the usual case
        if smallest < 0 and self._before_max_ms != limits.INT64_MAX:
            smallest = rows.smallest_timestamp()
        self.check_range(smallest, largest, now_ms)

    def check_range(self, smallest: int, largest: int, now_ms: int) -> None:
        """Does the same for known smallest and largest timestamps of the records that have one."""
        if largest - now_ms > self._after_max_ms:
            raise self._refused(largest, "after", self._after_max_ms, now_ms)
        if smallest >= 0 and now_ms - smallest > self._before_max_ms:
            raise self._refused(smallest, "before", self._before_max_ms, now_ms)
        if smallest < _SECONDS_END and self._warned is not None and self._topic not in self._warned:
            self._warn_of_seconds(smallest if smallest >= 0 else largest, self._warned)

    def _refused(self, timestamp: int, side: str, most: int, now_ms: int) -> InvalidTimestampError:
        return InvalidTimestampError(
            f"topic {self._topic!r}: timestamp {timestamp} is more than message_timestamp_{side}_max_ms={most} {side} now "
            f"({now_ms}); give milliseconds since 1970, or raise that option of the topic"
        )

    def _warn_of_seconds(self, timestamp: int, warned: set[str]) -> None:
        if timestamp in _SECONDS:
            warned.add(self._topic)
            LOGGER.warning(
                "topic %r: timestamp %d is in the year 1970 if it is milliseconds; timestamps are milliseconds, not seconds. "
                "The records were appended unchanged; this warning is logged once per topic",
                self._topic,
                timestamp,
            )
