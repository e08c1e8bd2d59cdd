"""The text that a scrape gets: pylog's own metrics, and on request those of other exporters, from the same samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

from pylog.metrics import METRICS, Sample, external, families, formatted
from pylog.monitoring.foreign import foreign_families


class Choice(NamedTuple):
    """The metrics to serve.

    Attributes:
        names: other exporters whose names are added; keys of `foreign.EXPORTERS`.
        topics: patterns of topics' names, such as `orders*`; all topics without any.
        internal: true to include Kafka's internal topics.
        counters: true to include the counts of this process. They are zero in a process that only reads.
    """

    names: Sequence[str] = ()
    topics: Sequence[str] = ()
    internal: bool = False
    counters: bool = True

    def of(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yields the chosen samples."""
        for sample in samples if self.internal else external(samples):
            topic = sample.labels.get("topic")
            if self._has_topic(topic) and (self.counters or METRICS[sample.name].kind != "counter"):
                yield sample

    def _has_topic(self, topic: str | None) -> bool:
        return topic is None or not self.topics or any(fnmatchcase(topic, pattern) for pattern in self.topics)


def page(take: Callable[[], Iterable[Sample]], choice: Choice, store: str, format: str) -> str:  # noqa: A002
    """Returns the metrics of a store as text.

    Args:
        take: takes the samples.
        choice: what to include.
        store: the path of the store, a label of each of pylog's own samples.
        format: as for `pylog.metrics.exposition`.
    """
    samples = list(choice.of(take()))
    own = families(samples, {"store": store})
    return formatted(chain(own, foreign_families(choice.names, samples, store) if choice.names else ()), format)
