"""kafka-python's metrics: names, and the values that can be known without a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from pylog.clock import SystemClock

_CLOCK: Final = SystemClock()


class MetricName:
    """The name of a metric.

    Args:
        name: what it measures.
        group: the metrics that it belongs to.
        description: in words.
        tags: the client's tags.
    """

    def __init__(self, name: str, group: str, description: str | None = None, tags: Mapping[str, Any] | None = None) -> None:
        if not name or not group:
            raise ValueError("a metric has a name and a group")
        if tags is not None and not isinstance(tags, dict):
            raise ValueError("tags must be a dict")
        self.name = name
        self.group = group
        self.description = description
        self.tags = None if tags is None else dict(tags)

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.group, frozenset((self.tags or {}).items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetricName) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return f"MetricName(name={self.name}, group={self.group}, description={self.description}, tags={self.tags})"


class KafkaMetric:
    """A metric with its value.

    Args:
        metric_name: its name.
        measurable: returns the value.
        config: ignored.
    """

    def __init__(self, metric_name: MetricName, measurable: Callable[[], float], config: Any = None) -> None:
        if metric_name is None or measurable is None:
            raise ValueError("a metric has a name and something that measures it")
        self.metric_name = metric_name
        self.measurable = measurable
        self.config = config

    def value(self, time_ms: float | None = None) -> float:
        """Returns the value."""
        return float(self.measurable())


class AbstractMetricsReporter(ABC):
    """The base of the classes in the option `metric_reporters`. A client makes an object of each one, and closes it."""

    @abstractmethod
    def init(self, metrics: list[KafkaMetric]) -> None:
        """Called first, with the metrics that there are."""

    @abstractmethod
    def metric_change(self, metric: KafkaMetric) -> None:
        """Called for each metric that is added. Its `value()` is always the present one."""

    @abstractmethod
    def metric_removal(self, metric: KafkaMetric) -> None:
        """Is never called: a client's metrics stay."""

    @abstractmethod
    def configure(self, configs: Mapping[str, Any]) -> None:
        """Is never called, as by kafka-python."""

    @abstractmethod
    def close(self) -> None:
        """Called when the client is closed."""


class Meter:
    """Measures one thing: how often it happened, how much, how much on average and at most.

    Attributes:
        count: how often it happened.
        total: the sum of the amounts.
        largest: the largest amount.
    """

    __slots__ = ("_since", "count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.largest = 0.0
        self._since = _CLOCK.monotonic()

    def add(self, amount: float, count: int = 1) -> None:
        """Adds an amount that happened `count` times."""
        self.count += count
        self.total += amount
        self.largest = max(self.largest, amount)

    @property
    def average(self) -> float:
        """The amount on average."""
        return self.total / self.count if self.count else 0.0

    def rate(self) -> float:
        """Returns the amounts a second, since the client was made."""
        return self.total / self._age()

    def frequency(self) -> float:
        """Returns how often it happened a second, since the client was made."""
        return self.count / self._age()

    def _age(self) -> float:
        return max(_CLOCK.monotonic() - self._since, 0.001)


def now() -> float:
    """Returns seconds of the monotonic clock, to measure with."""
    return _CLOCK.monotonic()


def zero() -> float:
    """Returns the value of metrics that only a network has."""
    return 0.0


class Metrics:
    """The metrics of one client.

    Args:
        config: the client's options. `client_id` is the tag of all names. Of each class in `metric_reporters`, an object is made
            and told of each metric, as by kafka-python.
        table: by group, the metrics' names with what measures them.
    """

    def __init__(self, config: Mapping[str, Any], table: Mapping[str, Mapping[str, Callable[[], float]]]) -> None:
        self._found = [
            KafkaMetric(MetricName(name, group, name.replace("-", " "), {"client-id": config["client_id"]}), measure)
            for group, measures in table.items()
            for name, measure in measures.items()
        ]
        self._reporters = [make() for make in config["metric_reporters"]]
        for reporter in self._reporters:
            reporter.init([])
            for metric in self._found:
                reporter.metric_change(metric)

    def close(self) -> None:
        """Closes the reporters."""
        for reporter in self._reporters:
            reporter.close()

    def answer(self, *, raw: bool) -> dict[Any, Any]:
        """Returns the values by group and name; raw, the metrics by their names."""
        if raw:
            return {each.metric_name: each for each in self._found}
        values: dict[Any, Any] = {}
        for each in self._found:
            values.setdefault(each.metric_name.group, {})[each.metric_name.name] = each.value()
        return values
