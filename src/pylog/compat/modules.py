"""kafka-python's modules: which module here has the names of each of them."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

OUR_MODULES: Final = {  # kafka-python's module, after `kafka.`: ours, after `pylog.compat.kafka.`
    "structs": "structs",
    "errors": "errors",
    "future": "future",
    "util": "util",
    "version": "version",
    "codec": "codec",
    "metrics": "metrics",
    "metrics.metric_name": "metrics",
    "metrics.kafka_metric": "metrics",
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


def modules_below(package: str) -> dict[str, ModuleType]:
    """Returns the modules by the names that kafka-python's have below a package of ours.

    Args:
        package: the name of the package, `pylog.compat.kafka`.
    """
    return {name: importlib.import_module(f"{package}.{ours}") for name, ours in OUR_MODULES.items()}


def give_names(package: str) -> None:
    """Makes kafka-python's modules importable below a package of ours, and attributes of the modules above them.

    Args:
        package: the name of the package, `pylog.compat.kafka`.
    """
    found = modules_below(package)
    for name, module in found.items():
        sys.modules.setdefault(f"{package}.{name}", module)
        above, _, last = name.rpartition(".")
        owner = found[above] if above else sys.modules[package]
        if last not in vars(owner):
            setattr(owner, last, module)
