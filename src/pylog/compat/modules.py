"""The modules of kafka-python and aiokafka: which module here has the names of each of them."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

_KAFKA: Final = {  # kafka-python's module, after `kafka.`: ours, after `pylog.compat.kafka.`
    "structs": "structs",
    "errors": "errors",
    "future": "future",
    "util": "util",
    "version": "version",
    "codec": "codec",
    "metrics": "metrics",
    "metrics.metric_name": "metrics",
    "metrics.kafka_metric": "metrics",
    "metrics.metrics_reporter": "metrics",
    "serializer": "serializer",
    "serializer.abstract": "serializer",
    "serializer.default": "serializer",
    "serializer.json": "serializer",
    "serializer.wrapper": "serializer",
    "partitioner": "partitioner",
    "partitioner.abc": "partitioner",
    "partitioner.default": "partitioner",
    "partitioner.sticky": "partitioner",
    "consumer": "consumer",
    "consumer.group": "consumer",
    "consumer.fetcher": "consumer",
    "consumer.subscription_state": "consumer",
    "producer": "producer",
    "producer.kafka": "producer",
    "producer.future": "producer",
    "admin": "admin",
    "admin.client": "admin",
    "admin.acl_resource": "admin",
    "admin.config_resource": "admin",
    "admin.new_partitions": "admin",
    "admin.new_topic": "admin",
    "coordinator": "assignors",
    "coordinator.base": "structs",
    "coordinator.assignors": "assignors",
    "coordinator.assignors.abstract": "assignors",
    "coordinator.assignors.range": "assignors",
    "coordinator.assignors.roundrobin": "assignors",
    "coordinator.assignors.cooperative_sticky": "assignors",
    "coordinator.assignors.sticky": "assignors",
    "coordinator.assignors.sticky.sticky_assignor": "assignors",
    "net": "network",
    "net.sasl": "network",
    "net.sasl.oauth": "oauth",
    "record": "network",
    "record.abc": "records",
    "vendor": "six",
    "vendor.six": "six",
    "vendor.six.moves": "six",
    "oauth": "oauth",
    "oauth.abstract": "oauth",
    "sasl": "oauth",
    "sasl.oauth": "oauth",
}
_AIOKAFKA: Final = {  # aiokafka's module, after `aiokafka.`: ours, after `pylog.compat.`
    "abc": "aiokafka.abc",
    "structs": "aiokafka.structs",
    "errors": "aiokafka.errors",
    "helpers": "aiokafka.helpers",
    "util": "aiokafka.util",
    "codec": "kafka.codec",
    "client": "aiokafka.client",
    "cluster": "aiokafka.client",
    "partitioner": "aiokafka.partitioner",
    "consumer": "aiokafka.consumer",
    "consumer.consumer": "aiokafka.consumer",
    "consumer.fetcher": "aiokafka.errors",
    "producer": "aiokafka.producer",
    "producer.producer": "aiokafka.producer",
    "producer.message_accumulator": "aiokafka.batch",
    "admin": "aiokafka.admin",
    "admin.client": "aiokafka.admin",
    "admin.config_resource": "aiokafka.admin",
    "admin.new_partitions": "aiokafka.admin",
    "admin.new_topic": "aiokafka.admin",
    "admin.records_to_delete": "aiokafka.admin",
    "coordinator": "kafka.assignors",
    "coordinator.assignors": "kafka.assignors",
    "coordinator.assignors.abstract": "kafka.assignors",
    "coordinator.assignors.range": "kafka.assignors",
    "coordinator.assignors.roundrobin": "kafka.assignors",
    "coordinator.assignors.sticky": "kafka.assignors",
    "coordinator.assignors.sticky.sticky_assignor": "kafka.assignors",
}
OUR_MODULES: Final = {  # by real package: its modules below it, and ours below `pylog.compat`
    "kafka": {name: f"kafka.{ours}" for name, ours in _KAFKA.items()},
    "aiokafka": _AIOKAFKA,
}


def modules_below(package: str) -> dict[str, ModuleType]:
    """Returns our modules by the names that a real package's modules have below it.

    Args:
        package: the real package's name, such as `kafka`.
    """
    return {name: importlib.import_module(f"pylog.compat.{ours}") for name, ours in OUR_MODULES[package].items()}


def give_names(package: str) -> None:
    """Makes a real package's modules importable below our package, and attributes of the modules above them.

    Args:
        package: the real package's name, such as `kafka`.
    """
    ours = f"pylog.compat.{package}"
    found = modules_below(package)
    for name, module in found.items():
        sys.modules.setdefault(f"{ours}.{name}", module)
        above, _, last = name.rpartition(".")
        owner = found[above] if above else sys.modules[ours]
        if last not in vars(owner):
            setattr(owner, last, module)
