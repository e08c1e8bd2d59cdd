"""Parses the values of options. The errors of malformed ones describe the expected form.

A parser takes the option's name and its value. JSON is read strictly: integers are integers, and nothing is named twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from pylog import limits
from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition
from pylog.urls import directory_url, is_url

T = TypeVar("T")
Parse = Callable[[str, str], T]  # (name of the option, its value) -> the parsed value


def named(*partitions: TopicPartition) -> str:
    """Returns the names of the first few partitions, sorted, as Kafka writes them.

    >>> named(TopicPartition("orders", 1), TopicPartition("orders", 0))
    'orders-0, orders-1'
    """
    shown = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(shown) if len(shown) <= 10 else f"{', '.join(shown[:10])} and {len(shown) - 10} more"


# ---- words and numbers ---------------------------------------------------------------------------------------------------


def words(name: str, value: str) -> tuple[str, ...]:
    """Words between commas; at least one.

    >>> words("subscribe", "orders, returns")
    ('orders', 'returns')
    """
    found = tuple(word for partition in value.split(",") if (word := partition.strip()))
    if not found:
        raise InvalidArgumentError(f"{name}={value!r} names nothing")
    return found


def word(name: str, value: str) -> str:
    """Parses any text but blanks."""
    if not value.strip():
        raise InvalidArgumentError(f"{name} is empty")
    return value


def pairs(name: str, value: str) -> tuple[tuple[str, str], ...]:
    """Parses names with a text each. The error does not repeat the value, which may be a secret that was given by mistake.

    >>> pairs("tier.keys", "k1=/etc/keys/k1.pem, k2=/etc/keys/k2.pem")
    (('k1', '/etc/keys/k1.pem'), ('k2', '/etc/keys/k2.pem'))
    """
    parts = [part.strip().partition("=") for part in value.split(",")]
    found = {first.strip(): second.strip() for first, _, second in parts}
    if len(found) < len(parts) or not all(found) or not all(found.values()) or "-----BEGIN" in value:
        raise InvalidArgumentError(f"{name} must be different names with a text each, as in 'k1=/etc/keys/k1.pem, k2=...'")
    return tuple(found.items())


def one_of(*choices: str) -> Parse[str]:
    """Returns a parser of one of a few words, in any case."""

    def parse(name: str, value: str) -> str:
        word = value.strip().lower()
        if word not in choices:
            raise InvalidArgumentError(f"{name}={value!r} is not one of {', '.join(choices)}")
        return word

    return parse


def boolean(name: str, value: str) -> bool:
    """Parses `true` or `false`, in any case."""
    return one_of("true", "false")(name, value) == "true"


def positive(name: str, value: str) -> int:
    """Parses an integer of at least 1."""
    return _number(name, value, 1)


def milliseconds(name: str, value: str) -> int:
    """Parses a time since 1970; negative ones have other meanings in Kafka's protocol."""
    return _number(name, value, 0)


def _number(name: str, value: str, low: int) -> int:
    text = value.strip()
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) or not low <= int(text) <= limits.INT64_MAX:
        raise InvalidArgumentError(f"{name}={value!r} is not an integer of at least {low}")
    return int(text)


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(name: str, value: str) -> int:
    """Parses a duration as Spark writes it: a number with a unit; milliseconds without one.

    >>> duration_ms("maxTriggerDelay", "15m"), duration_ms("maxTriggerDelay", "250")
    (900000, 250)
    """
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", value.strip().lower(), re.ASCII)
    unit = None if found is None else _UNITS_MS.get(found[2] or "ms")
    if found is None or unit is None:
        raise InvalidArgumentError(f"{name}={value!r} is not a time like 30s, 15m or 1h; its units are {', '.join(_UNITS_MS)}")
    return int(found[1]) * unit


def pattern(name: str, value: str) -> str:
    """Parses a regular expression."""
    found = value.strip()
    if not found:
        raise InvalidArgumentError(f"{name} is empty")
    try:
        re.compile(found)
    except re.error as error:
        raise InvalidArgumentError(f"{name}={found!r} is not a regular expression: {error}") from error
    return found


def paths(name: str, value: str) -> tuple[str, ...]:
    """Directories between commas, made absolute: Spark's other processes need not have this working directory.

    A URL of an archive stays a URL.

    >>> paths("path", "/data/a, file:///data/b, s3://logs/shop/")
    ('/data/a', '/data/b', 's3://logs/shop')
    """
    return tuple(_local(name, word) for word in words(name, value))


def _local(name: str, path: str) -> str:
    """Returns a path as the file system takes it. Spark SQL passes file: URIs, without escapes."""
    uri = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?://(?:localhost)?)?(/(?!/).*)", path)
    if uri is None and "://" not in path:
        return str(Path(path).absolute())
    if uri is None and is_url(path) and not path.startswith("file:"):
        return path.rstrip("/")
    if uri is None or uri[1].lower() != "file":
        raise InvalidArgumentError(f"{name}={path!r} is not a path in a file system that is mounted here, nor a URL of objects")
    from pylog.directory.archives import is_archive  # most reads need neither here
    from pylog.fs import OsFileSystem

    return directory_url(uri[2]) if is_archive(OsFileSystem(), uri[2]) else uri[2]


# ---- JSON ----------------------------------------------------------------------------------------------------------------


def partitions(name: str, value: str) -> frozenset[TopicPartition]:
    """Parses topics with lists of partitions; at least one partition.

    >>> sorted(partitions("assign", '{"orders": [0, 1]}'))
    [TopicPartition(topic='orders', partition=0), TopicPartition(topic='orders', partition=1)]
    """
    wrong = f'{name}={value!r} is not JSON like {{"orders": [0, 1], "returns": [0]}}'
    found = set()
    for topic, numbers in _topics(value, wrong).items():
        if not isinstance(numbers, list):
            raise InvalidArgumentError(f"{wrong}: {topic!r} has no list of partitions")
        found |= {TopicPartition(topic, _integer(number, 0, limits.INT32_MAX, wrong)) for number in numbers}
    if not found:
        raise InvalidArgumentError(f"{name}={value!r} names no partition")
    return frozenset(found)


def offsets(name: str, value: str) -> dict[TopicPartition, int]:
    """Parses an offset for each partition; -2 and -1 are the connector's names for the earliest and the latest.

    >>> offsets("startingOffsets", '{"orders": {"0": 23}}')
    {TopicPartition(topic='orders', partition=0): 23}
    """
    return _by_partition(value, -2, f'{name}={value!r} is neither a word nor JSON like {{"orders": {{"0": 23, "1": 42}}}}')


def timestamps(name: str, value: str) -> dict[TopicPartition, int]:
    """Parses a time for each partition, in milliseconds."""
    return _by_partition(value, 0, f'{name}={value!r} is not JSON like {{"orders": {{"0": 1700000000000}}}}')


def _by_partition(value: str, low: int, wrong: str) -> dict[TopicPartition, int]:
    found = {}
    for topic, numbers in _topics(value, wrong).items():
        if not isinstance(numbers, dict):
            raise InvalidArgumentError(f"{wrong}: {topic!r} has no object of partitions")
        for partition, number in numbers.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", partition, re.ASCII):
                raise InvalidArgumentError(f"{wrong}: {partition!r} is not a partition")
            key = TopicPartition(topic, _integer(int(partition), 0, limits.INT32_MAX, wrong))
            found[key] = _integer(number, low, limits.INT64_MAX, wrong)
    return found


def _topics(value: str, wrong: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value, object_pairs_hook=_no_repetition)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{wrong}: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidArgumentError(f"{wrong}: it is not a JSON object of topics")
    return parsed


def _no_repetition(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} appears twice")
        found[name] = value
    return found


def _integer(value: Any, low: int, high: int, wrong: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgumentError(f"{wrong}: {value!r} is not an integer from {low} to {high}")
    return value
