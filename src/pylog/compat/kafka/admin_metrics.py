"""The metrics of an administrator, under kafka-python's names. Only `metric_reporters` see them: it has no method for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.kafka.metrics import Metrics, zero

_OF_A_NETWORK: Final = (
    "connection-close-rate",
    "connection-count",
    "connection-creation-rate",
    "incoming-byte-rate",
    "network-io-rate",
    "outgoing-byte-rate",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "response-rate",
    "throttle-time-avg",
    "throttle-time-max",
)
_COUNT: Final = float(1 + len(_OF_A_NETWORK))


class AdminMetrics(Metrics):
    """The metrics of one administrator. All but their count only a network has: they are 0.

    Args:
        config: the administrator's options.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        names = dict.fromkeys(_OF_A_NETWORK, zero)
        super().__init__(config, {"kafka-metrics-count": {"count": lambda: _COUNT}, "admin-metrics": names})
