"""The metrics of a producer, under kafka-python's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.kafka.metrics import Meter, Metrics, zero

_OF_A_NETWORK: Final = (
    "connection-close-rate",
    "connection-count",
    "connection-creation-rate",
    "metadata-age",
    "requests-in-flight",
)
_NOT_MEASURED: Final = (  # pylog's producer appends all waiting records of a topic at once, and measures no single batch
    "batch-size-avg",
    "batch-size-max",
    "compression-rate-avg",
    "record-queue-time-avg",
    "record-queue-time-max",
    "record-retry-rate",
    "records-per-request-avg",
)


class ProducerMetrics(Metrics):
    """The metrics of one producer. What only a network has, and what is not measured, is 0.

    Args:
        config: the producer's options.

    Attributes:
        refused: records that were refused.
        sizes: bytes of the keys and values of each record.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.refused = Meter()
        sizes = self.sizes = Meter()
        measured = {
            "byte-rate": sizes.rate,
            "record-error-rate": self.refused.frequency,
            "record-send-rate": sizes.frequency,
            "record-size-avg": lambda: sizes.average,
            "record-size-max": lambda: sizes.largest,
        }
        names: dict[str, Any] = dict.fromkeys((*_OF_A_NETWORK, *_NOT_MEASURED), zero) | measured
        super().__init__(config, {"kafka-metrics-count": {"count": lambda: 18.0}, "producer-metrics": names})

    def sent(self, key_size: int, value_size: int) -> None:
        """Notes a record.

        Args:
            key_size, value_size: bytes; -1 for none.
        """
        self.sizes.add(max(key_size, 0) + max(value_size, 0))
