"""The events of confluent-kafka's clients: errors of the store for `error_cb`, statistics for `stats_cb`, lines of the log."""

from __future__ import annotations

import itertools
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pylog.clock import SystemClock
from pylog.compat.confluent.configuration import LOGGER, Given, text
from pylog.compat.confluent.errors import KafkaError
from pylog.compat.kafka.metadata import NODE

_CLOCK: Final = SystemClock()
_NUMBERS: Final = itertools.count(1)
_NAME: Final = "rdkafka"  # the default of `client.id`
_LINGER_S: Final = 0.1  # the longest wait between two checks whether statistics are due
BROKER_NAME: Final = f"{NODE.host}:{NODE.port}/{NODE.node_id}"

Collect = Callable[[], dict[str, Any]]


class Events:
    """The events of one client. They are delivered inside its calls, as by confluent-kafka.

    `throttle_cb` and `oauth_cb` are never called: there is no broker that slows a client down or asks for a token. They are in
    the log line of options without an effect.

    Args:
        given: the client's options.
        kind: "producer", "consumer" or "administrator".

    Attributes:
        client_id: the option `client.id`.
    """

    def __init__(self, given: Given, kind: str) -> None:
        self.client_id = text(given.take("client.id")) or _NAME
        self._kind = "consumer" if kind == "consumer" else "producer"  # librdkafka has no third kind
        self._name = f"{self.client_id}#{self._kind}-{next(_NUMBERS)}"
        self._on_error: Callable[[KafkaError], object] | None = given.take("error_cb")
        self._on_statistics: Callable[[str], object] | None = given.take("stats_cb")
        interval_ms = given.take("statistics.interval.ms", 0)
        self._interval = interval_ms / 1000 if self._on_statistics else 0
        self._logger = given.take("logger")
        self._errors: deque[KafkaError] = deque()
        self._is_failing = False
        self._began = _CLOCK.monotonic()
        self._due = self._began + self._interval
        given.end(kind, self.log)

    def log(self, level: int, message: str) -> None:
        """Writes a line to the option `logger`, else to the logger `pylog.compat`."""
        (LOGGER if self._logger is None else self._logger).log(level, message)

    # ---- errors --------------------------------------------------------------------------------------------------------------

    def failed(self, error: KafkaError) -> None:
        """Notes an error that concerns the client: the store fails, or the producer is fenced. It is one event until `worked`.

        Args:
            error: any error; others are left out.
        """
        if self._is_failing or not (error.fatal() or error == KafkaError.KAFKA_STORAGE_ERROR):
            return
        self._is_failing = True
        self._errors.append(error)

    def worked(self) -> None:
        """Notes that a call of the store has worked."""
        self._is_failing = False

    # ---- delivery ------------------------------------------------------------------------------------------------------------

    @property
    def are_awaited(self) -> bool:
        """True if a call should wait for events although it has nothing else to wait for."""
        return bool(self._interval)

    def wait(self, seconds: float) -> None:
        """Waits, but not past the next statistics."""
        _CLOCK.sleep(max(0.0, min(seconds, _LINGER_S, self._due - _CLOCK.monotonic())))

    def deliver(self, collect: Collect) -> int:
        """Calls the callbacks for what has happened. Returns how many calls it made. Raises what a callback raises.

        Args:
            collect: returns the client's own part of the statistics.
        """
        count = 0
        while self._errors:
            error = self._errors.popleft()
            if self._on_error is None:
                self.log(logging.ERROR, f"{self._name}: {error.str()}")
            else:
                self._on_error(error)
                count += 1
        if self._interval and self._on_statistics is not None and _CLOCK.monotonic() >= self._due:
            self._due = _CLOCK.monotonic() + self._interval
            self._on_statistics(json.dumps(self._general() | collect()))
            count += 1
        return count

    def _general(self) -> dict[str, Any]:
        """Returns what the statistics of both clients have. The figures of requests and of a network are zero."""
        now = _CLOCK.monotonic()
        return {
            "name": self._name,
            "client_id": self.client_id,
            "type": self._kind,
            "ts": int(now * 1e6),
            "time": _CLOCK.now_ms() // 1000,
            "age": self.age_us,
            "replyq": 0,
            "msg_cnt": 0,
            "msg_size": 0,
            "msg_max": 0,
            "msg_size_max": 0,
            "simple_cnt": 0,
            "metadata_cache_cnt": 0,
            **dict.fromkeys(("tx", "tx_bytes", "rx", "rx_bytes", "txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes"), 0),
            "brokers": {BROKER_NAME: _broker(self.age_us)},
            "topics": {},
        }

    @property
    def age_us(self) -> int:
        """Microseconds since the client was created."""
        return int((_CLOCK.monotonic() - self._began) * 1e6)


class Counts:
    """Records and bytes by partition."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], list[int]] = {}

    def add(self, partition: tuple[str, int], records: int, size: int) -> None:
        """Counts records of a partition.

        Args:
            partition: topic and number.
            records, size: their number, and their bytes.
        """
        found = self.of.setdefault(partition, [0, 0])
        found[0] += records
        found[1] += size

    @property
    def total(self) -> tuple[int, int]:
        """All records, and their bytes."""
        return sum(each[0] for each in self.of.values()), sum(each[1] for each in self.of.values())


def topics_of(partitions: dict[tuple[str, int], dict[str, Any]], age_us: int) -> dict[str, Any]:
    """Returns the part `topics` of statistics.

    Args:
        partitions: the figures by partition.
        age_us: the client's age in microseconds.
    """
    found: dict[str, Any] = {}
    for (topic, number), figures in sorted(partitions.items()):
        row = found.setdefault(topic, {"topic": topic, "age": age_us // 1000, "metadata_age": 0, "partitions": {}})
        row["partitions"][str(number)] = {"partition": number, "broker": NODE.node_id, "leader": NODE.node_id, **figures}
    return found


def _broker(age_us: int) -> dict[str, Any]:
    name = {"name": BROKER_NAME, "nodeid": NODE.node_id, "nodename": f"{NODE.host}:{NODE.port}", "source": "learned"}
    return name | {"state": "UP", "stateage": age_us, "connects": 1, "disconnects": 0, "txerrs": 0, "rxerrs": 0, "toppars": {}}
