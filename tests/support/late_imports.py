"""Imports inside functions, below the edges of the house, and why they are not at the top of their modules."""

from __future__ import annotations

from collections.abc import Mapping

LATE_IMPORTS: Mapping[str, str] = {  # "module -> import": the reason
    "pylog.objects.opening -> pylog.objects.obstore_objects": "its package may be missing, and directories need none",
    "pylog.objects.aiven -> cryptography.exceptions": "its package may be missing, and most tiers are not encrypted",
    "pylog.objects.aiven -> cryptography.hazmat.primitives.ciphers.aead": "as its exceptions",
    "pylog.objects.aiven_keys -> cryptography.hazmat.primitives.asymmetric.rsa": "as its exceptions",
    "pylog.objects.aiven_keys -> cryptography.hazmat.primitives.serialization": "as its exceptions",
    "pylog.opening -> pylog.objects.kafka_tier": "few stores are read from objects",
    "pylog.opening -> pylog.archived_files": "as the tiers of brokers",
    "pylog.opening -> pylog.objects": "as the tiers of brokers",
    "pylog.log.recovery.tier -> pylog.objects.tier_metadata": "few logs begin in a tier, and it takes the kernels",
    "pylog.unopened -> pylog.log.recovery.tier": "most logs begin at offset 0",
    "pylog.fs.mapping -> numpy": "most commands map no file, and its import takes longer than they do",
    "pylog.log.reading.fast_outline -> pylog.log.reading.split_segment": "imports numpy; only a plan that splits needs it",
    "pylog.log.reading.outline -> pylog.log.reading.follower": "takes long; a plan needs it only where headers do not tell",
    "pylog.log.reading.outline -> pylog.log.state": "as for the follower",
    "pylog.producer.core -> multiprocessing.util": "a child process has imported it already; others need not wait for its import",
    "pylog.ui -> pylog.ui.app": "its extra may be missing",
    "pylog.open_clients -> pylog.consumer.consumer": "opening a store loads no client: they are a tenth of its start-up time",
    "pylog.open_clients -> pylog.consumer.options": "as the consumer",
    "pylog.archived_store -> pylog.archive.archiving": "as the consumer",
    "pylog.archived_store -> pylog.objects.opening": "as the consumer",
    "pylog.store_parts -> pylog.archive.tiers": "most stores have no archive",
    "pylog.store_parts -> pylog.archive.tiering": "as its tiers",
    "pylog.store_parts -> pylog.groups.admin": "as the consumer",
    "pylog.store_parts -> pylog.transactions": "as the consumer",
    "pylog.monitoring.measured -> pylog.monitoring": "as the consumer",
    "pylog.monitoring.measured -> pylog.ui": "as the consumer, and its extra may be missing",
    "pylog.metrics -> prometheus_client.core": "a program that has no such registry need not have the package",
    "pylog.open_clients -> pylog.producer.config": "as the consumer",
    "pylog.open_clients -> pylog.transactions.manager": "as the consumer",
    "pylog.open_clients -> pylog.transactions.snapshots": "as the consumer",
    "pylog.open_clients -> pylog.producer.core": "as the consumer",
    "pylog.open_clients -> pylog.producer.producer": "as the consumer",
    "pylog.urls -> urllib.parse": "only stores with an archive need it",
}
