"""Kafka's topic options: from dotted names and texts to `TopicConfig`, and back."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.kafka import errors
from pylog.config import TopicConfig

LOGGER = logging.getLogger("pylog.compat")
FIELDS: Final = {field.name.replace("_", "."): field for field in dataclasses.fields(TopicConfig)}
MEANINGLESS: Final[Mapping[str, str]] = {  # Kafka's options that mean nothing here, with their defaults
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "preallocate": "false",
    "segment.jitter.ms": "0",
    "message.format.version": "3.0-IV1",
    "message.downconversion.enable": "true",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
    "remote.log.copy.disable": "false",
}
_TEXTS: Final = {"file.delete.delay.ms"}


def native_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns options of `TopicConfig` by name, and those that mean nothing here.

    Args:
        given: values by Kafka's dotted names; None restores the default.

    Raises:
        InvalidConfigurationError: an option does not exist, or a value cannot be read.
    """
    found: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    for name, value in given.items():
        if name in MEANINGLESS:
            ignored[name] = MEANINGLESS[name] if value is None else str(value)
        elif name in FIELDS:
            found[FIELDS[name].name] = None if value is None else _value(name, value)
        else:
            near = difflib.get_close_matches(name, [*FIELDS, *MEANINGLESS], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise errors.InvalidConfigurationError(f"unknown topic option {name}{hint}")
    if ignored:
        LOGGER.info("topic options that mean nothing here are kept while the process runs: %s", ", ".join(sorted(ignored)))
    return found, ignored


def _value(name: str, given: Any) -> Any:
    kind = str(FIELDS[name].type)
    if kind == "bool":
        if str(given).lower() not in ("true", "false"):
            raise errors.InvalidConfigurationError(f"{name}={given!r} is not true or false")
        return str(given).lower() == "true"
    try:
        return int(given) if kind == "int" else float(given) if kind == "float" else str(given)
    except (TypeError, ValueError, OverflowError) as error:  # the last one for an infinite number
        raise errors.InvalidConfigurationError(f"{name}={given!r} is not a number") from error


def default_of(name: str) -> str | None:
    """Returns an option's default as text."""
    if name in MEANINGLESS:
        return MEANINGLESS[name]
    default = FIELDS[name].default
    return None if default is None else _text(default)


def value_of(config: TopicConfig, name: str) -> str | None:
    """Returns an option's value as text; None without one."""
    found = getattr(config, FIELDS[name].name)
    return None if found is None else _text(found)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_of(name: str) -> str:
    """Returns the name of an option's type, as in `ConfigType`."""
    if name in MEANINGLESS:
        return "STRING"
    kind = str(FIELDS[name].type)
    if kind == "bool":
        return "BOOLEAN"
    return "LONG" if kind == "int" else "DOUBLE" if kind == "float" else "LIST" if name == "cleanup.policy" else "STRING"
