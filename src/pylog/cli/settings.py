"""Options of topics on the command line: `retention.ms=1000` or `retention_ms=1000`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from pylog.arguments import did_you_mean
from pylog.cli.exits import UsageError
from pylog.config import TopicConfig

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(TopicConfig)}
_TRUTH = {"true": True, "false": False}


def kafka_name(name: str) -> str:
    """Returns Kafka's name of an option.

    >>> kafka_name("retention_ms")
    'retention.ms'
    """
    return name.replace("_", ".")


def option_name(name: str) -> str:
    """Returns the name of an option in `TopicConfig`.

    Raises:
        UsageError: the option does not exist.
    """
    found = name.strip().replace(".", "_")
    if found not in _DEFAULTS:
        known = [kafka_name(each) for each in _DEFAULTS]
        hint = did_you_mean(kafka_name(found), known) or f"; the options are {', '.join(known)}"
        raise UsageError(f"unknown topic option {name!r}{hint}")
    return found


def parsed_options(given: Iterable[str]) -> dict[str, Any]:
    """Parses options such as `retention.ms=1000`. `TopicConfig` checks the values.

    Raises:
        UsageError: a text is not `option=value`, the option does not exist, or its value must be a number.

    >>> parsed_options(["retention.ms=-1", "cleanup_policy=compact"])
    {'retention_ms': -1, 'cleanup_policy': 'compact'}
    """
    return dict(map(_parsed, given))


def _parsed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not option=value; give an option such as retention.ms=86400000")
    found = option_name(name)
    kind: type[Any] = type(_DEFAULTS[found])
    if kind is bool:
        if value.lower() not in _TRUTH:
            raise UsageError(f"{kafka_name(found)}={value!r} is not true or false")
        return found, _TRUTH[value.lower()]
    try:
        return found, kind(value) if kind in (int, float) else value
    except ValueError as error:
        raise UsageError(f"{kafka_name(found)}={value!r} is not a number") from error


def settings_of(config: TopicConfig) -> list[dict[str, Any]]:
    """Lists each option with its value, and whether the value differs from the default."""
    return [
        {"option": kafka_name(name), "value": getattr(config, name), "changed": getattr(config, name) != default}
        for name, default in _DEFAULTS.items()
    ]
