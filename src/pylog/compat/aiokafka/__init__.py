"""aiokafka's names on a pylog store: an asyncio program for Kafka runs without a broker.

    import pylog.compat.aiokafka as aiokafka

    async with aiokafka.AIOKafkaProducer(bootstrap_servers="pylog:///data/shop") as producer:
        await producer.send_and_wait("orders", b"paid")

`install` makes `import aiokafka` mean this package, so that a program runs unchanged.
"""

from __future__ import annotations

from typing import Any

from pylog.compat.aiokafka.abc import ConsumerRebalanceListener
from pylog.compat.aiokafka.client import AIOKafkaClient
from pylog.compat.aiokafka.consumer import AIOKafkaConsumer
from pylog.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from pylog.compat.aiokafka.producer import AIOKafkaProducer
from pylog.compat.aiokafka.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pylog.compat.aiokafka.version import __version__
from pylog.compat.installing import install_only, uninstall
from pylog.compat.modules import give_names

__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "__version__",
    "install",
    "uninstall",
]


def install(directory: str | None = None, **settings: Any) -> None:
    """Makes `import aiokafka` mean this package: `pylog.compat.install` for aiokafka alone.

    Args:
        directory, settings: as for `pylog.compat.install`.

    Raises:
        IllegalStateError: the real package is imported already; the message names the modules that have its classes.
    """
    install_only(("aiokafka",), directory, settings)


give_names("aiokafka")
