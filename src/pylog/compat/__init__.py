"""Kafka programs without a broker: the names of other libraries on a pylog store.

    import pylog.compat

    pylog.compat.install("/data/shop")  # first thing in the program

    from kafka import KafkaConsumer, KafkaProducer  # now on /data/shop

kafka-python (`pylog.compat.kafka`) and aiokafka (`pylog.compat.aiokafka`) are supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pylog.compat.installing import PACKAGES, install_only
from pylog.compat.installing import uninstall as _uninstall
from pylog.config import Durability

__all__ = ["install", "uninstall"]


def install(
    directory: str | None = None,
    *,
    mode: str = "rw",
    durability: str | Durability | None = None,
    auto_create_topics: bool = True,
    num_partitions: int = 1,
    topic_config: Mapping[str, Any] | None = None,
    clusters: Mapping[str, str] | None = None,
) -> None:
    """Makes `import kafka` and `import aiokafka` mean pylog's layers. Call it before the program imports them.

    Args:
        directory: the store's directory, which is created if it is missing, or `memory:`. By default the environment variable
            `PYLOG_KAFKA`, else `pylog-kafka` below the current directory.
        mode: "rw", or "r" to write nothing.
        durability: what acknowledgements guarantee where a topic has no level: "sync" (the default), "os" or "interval:MS".
        auto_create_topics: true to create a missing topic when a client sends to it or reads it.
        num_partitions: the number of partitions of such a topic.
        topic_config: its options, as for `Store.create_topic`. Topics keep their records unless this says otherwise.
        clusters: directories by the address of a server, for programs that use several clusters.

    Raises:
        IllegalStateError: a real package is imported already; the message names the modules that have its classes.
        InvalidArgumentError: a setting is wrong.
    """
    settings = {
        "mode": mode,
        "durability": None if durability is None else Durability.of(durability),
        "auto_create_topics": auto_create_topics,
        "num_partitions": num_partitions,
        "topic_config": dict(topic_config or {}),
        "clusters": dict(clusters or {}),
    }
    install_only(PACKAGES, directory, settings)


def uninstall() -> None:
    """Closes the stores, and makes `import kafka` and `import aiokafka` mean the real packages again.

    Names that modules have imported stay.
    """
    _uninstall()
