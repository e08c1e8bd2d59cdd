"""Records that were not acknowledged, and whose outcome no call has asked for: they are logged once, by topic and partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from pylog.producer.future import FutureRecordMetadata, Outcome

LOGGER = logging.getLogger("pylog.producer")
_MOST_KEPT: Final = 1_000  # failed batches; with more of them the oldest are not kept until the next flush
_MOST_NAMED: Final = 10  # partitions in one line of the log


class _Failed(NamedTuple):
    """A batch that failed.

    Attributes:
        place: its topic, with the partition where that is known.
        size: its records.
        outcome: which also counts the records whose outcome was asked for.
    """

    place: str
    size: int
    outcome: Outcome

    @property
    def unobserved(self) -> int:
        """How many records' outcomes no call has asked for."""
        return self.size - len(self.outcome.observed or ())


class Failures:
    """The failed batches of one producer since the last report. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._kept: deque[_Failed] = deque()

    def note(self, futures: Sequence[FutureRecordMetadata], outcome: Outcome) -> None:
        """Keeps a batch that has failed until the next report. All records are of one topic."""
        topic = futures[0].route.topic
        place = topic if outcome.partition < 0 else f"{topic}-{outcome.partition}"
        self._kept.append(_Failed(place, len(futures), outcome))

    @property
    def are_many(self) -> bool:
        """True if a report is due before the next flush, so that what is kept stays small."""
        return len(self._kept) > _MOST_KEPT

    def report(self) -> None:
        """Logs how many records failed unobserved, where, and the first error of each partition. Reports each record once."""
        found: dict[str, tuple[int, Exception | None]] = {}
        for failed in self._taken():
            count, first = found.get(failed.place, (0, failed.outcome.error))
            found[failed.place] = count + failed.unobserved, first
        found = {place: (count, error) for place, (count, error) in found.items() if count}
        if not found:
            return
        parts = [f"{place}: {count} ({type(error).__name__}: {error})" for place, (count, error) in found.items()]
        more = f"; and {len(parts) - _MOST_NAMED} more partitions" if len(parts) > _MOST_NAMED else ""
        LOGGER.error(
            "%d records that were sent are not acknowledged, and no call has asked for their outcome: %s%s. "
            "Call result() of the future that each send returns, or give on_delivery",
            sum(count for count, _ in found.values()),
            "; ".join(parts[:_MOST_NAMED]),
            more,
        )

    def _taken(self) -> list[_Failed]:
        """The failed batches, which are not kept any longer."""
        taken: list[_Failed] = []
        try:
            while True:
                taken.append(self._kept.popleft())
        except IndexError:
            return taken
