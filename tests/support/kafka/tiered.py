"""A broker with Kafka's own `LocalTieredStorage`: its settings, and its topic, whose sealed segments soon leave the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TOPIC: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}


def settings(root: Path) -> Mapping[str, str]:
    """Returns a broker's settings; the tier is in the directory `remote` below `root`."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": str(root / "remote"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "100",
    }
