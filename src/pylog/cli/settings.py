"""Options of topics as the command line has them: `retention.ms=1000` or `retention_ms=1000`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from pylog.cli.exits import UsageError
from pylog.config import TopicConfig

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(TopicConfig)}


def kafka_name(name: str) -> str:
    """An option's name as Kafka has it.

    >>> kafka_name("retention_ms")
    'retention.ms'
    """
    return name.replace("_", ".")


def option_name(name: str) -> str:
    """An option's name as `TopicConfig` has it.

    Raises:
        UsageError: there is no such option.
    """
    found = name.strip().replace(".", "_")
    if found not in _DEFAULTS:
        raise UsageError(f"unknown topic option {name!r}; known: {', '.join(map(kafka_name, _DEFAULTS))}")
    return found


def parsed_options(given: Iterable[str]) -> dict[str, Any]:
    """Options of `TopicConfig` from texts such as `retention.ms=1000`. Whether the values will do, `TopicConfig` decides.

    Raises:
        UsageError: one is no `option=value`, there is no such option, or it is a number and the value is none.

    >>> parsed_options(["retention.ms=-1", "cleanup_policy=compact"])
    {'retention_ms': -1, 'cleanup_policy': 'compact'}
    """
    return dict(map(_parsed, given))


def _parsed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no option=value, such as retention.ms=86400000")
    found = option_name(name)
    kind = type(_DEFAULTS[found])
    try:
        return found, kind(value) if kind in (int, float) else value
    except ValueError as error:
        raise UsageError(f"{kafka_name(found)}={value!r} is not a number") from error


def settings_of(config: TopicConfig) -> list[dict[str, Any]]:
    """Every option with its value, and whether that is another one than the default."""
    return [
        {"option": kafka_name(name), "value": getattr(config, name), "changed": getattr(config, name) != default}
        for name, default in _DEFAULTS.items()
    ]
