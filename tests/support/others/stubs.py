"""Modules that the tests of others import and that the layer does not have: their names exist, and cannot be used."""

from __future__ import annotations

import sys
import unittest.mock
from types import ModuleType
from typing import Any, Final

_PRIVATE: Final = (  # of kafka-python: network, protocol, record formats, and the insides of its clients
    "kafka.client_async",
    "kafka.cluster",
    "kafka.conn",
    "kafka.metrics.stats",
    "kafka.net",
    "kafka.net.compat",
    "kafka.producer.buffer",
    "kafka.producer.transaction_manager",
    "kafka.protocol",
    "kafka.protocol.broker_version_data",
    "kafka.protocol.metadata",
    "test.mock_broker",
    "aiokafka.producer.transaction_manager",  # of aiokafka: the same
    "aiokafka.protocol",
    "aiokafka.protocol.produce",
    "aiokafka.record",
)


class _Private(ModuleType):
    """A module whose names are placeholders."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> None:
            raise NotImplementedError(f"{self.__name__}.{name} is private; the layer has no network")

        made = type(name, (), {"__init__": refuse})
        setattr(self, name, made)
        return made


def put_in() -> None:
    """Makes the modules importable. Modules that the layer has stay."""
    for name in _PRIVATE:
        above, _, last = name.rpartition(".")
        made = sys.modules.setdefault(name, _Private(name))
        if above in sys.modules and last not in vars(sys.modules[above]):
            setattr(sys.modules[above], last, made)
    fetcher: Any = sys.modules["aiokafka.consumer.fetcher"]
    fetcher.FetchRequest = _Private("aiokafka.protocol.fetch").FetchRequest
    sys.modules.setdefault("mock", unittest.mock)  # the package that version 2.0 was tested with
