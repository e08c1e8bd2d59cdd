"""Logs failed records whose outcome the program has not checked: each once, by topic and partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from pylog.producer.future import FutureRecordMetadata, Outcome, route_of
from pylog.text import counted

LOGGER = logging.getLogger("pylog.producer")
_MOST_KEPT: Final = 1_000  # failed batches; with more of them a report is due before the next flush
_MOST_NAMED: Final = 10  # partitions in one line of the log


class _Failed(NamedTuple):
    """A batch that failed.

    Attributes:
        partition: its topic, with the partition if that is known.
        size: the number of its records.
        outcome: its error, and the records whose outcome was checked.
    """

    partition: str
    size: int
    outcome: Outcome

    @property
    def unobserved(self) -> int:
        """The number of records whose outcome was not checked."""
        return self.size - len(self.outcome.observed or ())


class DeliveryFailures:
    """The failed batches of one producer since the last report. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._kept: deque[_Failed] = deque()

    def note(self, futures: Sequence[FutureRecordMetadata], outcome: Outcome) -> None:
        """Keeps a failed batch until the next report. All its records belong to one topic."""
        topic = route_of(futures[0]).topic
        partition = topic if outcome.partition < 0 else f"{topic}-{outcome.partition}"
        self._kept.append(_Failed(partition, len(futures), outcome))

    @property
    def are_many(self) -> bool:
        """True if a report is due before the next flush, to limit the memory."""
        return len(self._kept) > _MOST_KEPT

    def report(self) -> None:
        """Logs the number of unchecked failed records of each partition, and its first error. Reports each record once."""
        found: dict[str, tuple[int, Exception | None]] = {}
        for failed in self._take_all():
            count, first = found.get(failed.partition, (0, failed.outcome.error))
            found[failed.partition] = count + failed.unobserved, first
        found = {partition: (count, error) for partition, (count, error) in found.items() if count}
        if not found:
            return
        parts = [f"{partition}: {count} ({type(error).__name__}: {error})" for partition, (count, error) in found.items()]
        more = f"; and {counted(len(parts) - _MOST_NAMED, 'more partition')}" if len(parts) > _MOST_NAMED else ""
        LOGGER.error(
            "%d records were sent but not acknowledged, and their outcome was not checked: %s%s. "
            "Call result() on the future that each send returns, or pass on_delivery",
            sum(count for count, _ in found.values()),
            "; ".join(parts[:_MOST_NAMED]),
            more,
        )

    def _take_all(self) -> list[_Failed]:
        """Returns the failed batches and forgets them."""
        failed: list[_Failed] = []
        try:
            while True:
                failed.append(self._kept.popleft())
        except IndexError:
            return failed
