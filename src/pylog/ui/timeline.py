"""`Timelines`: the records of a topic over event time, in bars of equal length, from batch headers or time indexes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from pylog import limits
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.ends_by_time import begin_ms, ends_by_time
from pylog.log_manager import LogManager
from pylog.ui.observation import TopicSeen

BARS: Final = 120
_FRESH_S: Final = 10.0
_KEPT: Final = 32  # topics
_LARGE_LOG_BYTES: Final = 8 << 20  # an index interval of a larger log is a small part of a bar


class TimeBar(NamedTuple):
    """About how many records have a timestamp from `begin_ms` up to, but not including, `end_ms`."""

    begin_ms: int
    end_ms: int
    records: int


class Timelines:
    """Makes timelines, and keeps them for ten seconds. Methods may be called from any thread.

    Args:
        manager: the store's log manager.
    """

    def __init__(self, manager: LogManager) -> None:
        self._clock = manager.clock
        self._guard = threading.Lock()
        self._kept: dict[tuple[str, str | None], tuple[float, list[TimeBar]]] = {}  # by name and id

    def of(self, topic: TopicSeen, logs: Mapping[int, PartitionLog]) -> list[TimeBar]:
        """Returns the bars of a topic, at most 120; none if its records have no timestamps.

        Raises:
            PylogError: a partition cannot be read.

        Cost: headers of at most 64 MiB, and one search of a time index for each bar and large partition, once in ten seconds.
        """
        with self._guard:
            now, key = self._clock.monotonic(), (topic.name, topic.id)
            known = self._kept.get(key)
            if known is None or now - known[0] >= _FRESH_S:
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                known = self._kept[key] = now, _bars(topic, logs)
            return known[1]


def _bars(topic: TopicSeen, logs: Mapping[int, PartitionLog]) -> list[TimeBar]:
    begins = [each for log in logs.values() if (each := log.answer(begin_ms)) >= 0]
    newest = topic.newest_ms
    if not begins or newest < min(begins):
        return []
    begin = min(begins)
    length = (newest - begin) // BARS + 1
    times = list(range(begin - 1, newest + length, length))
    most = min(_LARGE_LOG_BYTES, limits.TALLY_BYTES // len(logs))
    ends = [log.answer(partial(ends_by_time, times=times, most_bytes=most)) for log in logs.values()]
    reached = [sum(each) for each in zip(*ends, strict=True)]
    return [
        TimeBar(time + 1, time + 1 + length, after - before)
        for time, before, after in zip(times, reached, reached[1:], strict=False)
    ]
