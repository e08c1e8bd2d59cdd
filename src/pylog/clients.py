"""What a store offers to those who write through it: producers, which end with it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

from pylog.clock import Clock
from pylog.log.log import Log
from pylog.producer.config import ProducerConfig
from pylog.producer.producer import Producer
from pylog.topics import Topic


class Clients(ABC):
    """The half of a `Store` that makes clients, and closes them when the store closes."""

    _clock: Clock

    def __init__(self) -> None:
        self._producers: list[Producer] = []
        self._clients_guard = threading.Lock()

    @abstractmethod
    def topic(self, name: str) -> Topic: ...

    @abstractmethod
    def log(self, topic: str, partition: int = 0) -> Log: ...

    @abstractmethod
    def _check_writable(self) -> None: ...

    def producer(self, **config: Any) -> Producer:
        """A `Producer`, which sends records one at a time and appends them in batches. It is closed with the store.

        Args:
            config: options of `ProducerConfig` by name, such as `linger_ms`, `batch_size`, `compression`, `partitioner`,
                `value_serializer`: kafka-python's names.

        Raises:
            InvalidArgumentError: no such option, or no such value of it. ReadOnlyError, ClosedError: nothing can be written.

        Cost: a thread.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     with store.producer(value_serializer=str.encode, compression="zstd") as producer:
        ...         producer.send("orders", "paid").result().offset
        0
        """
        self._check_writable()
        producer = Producer(self, self._clock, ProducerConfig.of(config), self._forget)
        with self._clients_guard:
            self._producers.append(producer)
        return producer

    def _forget(self, producer: Producer) -> None:
        with self._clients_guard:
            if producer in self._producers:
                self._producers.remove(producer)

    def _close_clients(self) -> None:
        """Closes them all: what was sent is appended, before the logs are closed."""
        for producer in list(self._producers):
            producer.close()
