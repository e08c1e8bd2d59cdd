"""kafka-python's names on a pylog store: a Kafka program runs without a broker.

    import pylog.compat.kafka as kafka

    producer = kafka.KafkaProducer(bootstrap_servers="pylog:///data/shop")
    producer.send("orders", b"paid").get(timeout=10)

`install` makes `import kafka` mean this package, so that a program runs unchanged.
"""

from __future__ import annotations

from typing import Any

from pylog.compat.installing import install_only, uninstall
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin import KafkaAdminClient
from pylog.compat.kafka.consumer import AsyncConsumerRebalanceListener, ConsumerRebalanceListener, KafkaConsumer
from pylog.compat.kafka.producer import KafkaProducer
from pylog.compat.kafka.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
from pylog.compat.kafka.structs import (
    ConsumerGroupMetadata,
    IsolationLevel,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
    TopicPartitionReplica,
)
from pylog.compat.kafka.version import __version__
from pylog.compat.modules import give_names

__all__ = [
    "AsyncConsumerRebalanceListener",
    "BrokerConnection",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
    "__version__",
    "install",
    "uninstall",
]


class KafkaClient:
    """A name of version 2. There is no network, so it cannot be made.

    Raises:
        UnsupportedVersionError: always.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        raise errors.UnsupportedVersionError(f"{type(self).__name__} needs a network; use KafkaConsumer and KafkaProducer")


class BrokerConnection(KafkaClient):
    """A name of version 2. There is no network, so it cannot be made.

    Raises:
        UnsupportedVersionError: always.
    """


def install(directory: str | None = None, **settings: Any) -> None:
    """Makes `import kafka` mean this package: `pylog.compat.install` for kafka-python alone.

    Args:
        directory, settings: as for `pylog.compat.install`.

    Raises:
        IllegalStateError: the real package is imported already; the message names the modules that have its classes.
    """
    install_only(("kafka",), directory, settings)


give_names("kafka")
