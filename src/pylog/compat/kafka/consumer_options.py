"""From kafka-python's options of a consumer to pylog's."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.kafka import errors
from pylog.compat.kafka.assignors import assignor_names
from pylog.compat.kafka.options import CONSUMER, config_of, size, unknown_options, whole, wrong_reporters
from pylog.compat.kafka.structs import IsolationLevel

CLIENT: Final = "KafkaConsumer"
LOGGER: Final = logging.getLogger("pylog.compat")
_OLD_POLICIES: Final = {"smallest": "earliest", "largest": "latest"}
_OLD_REQUEST_MS: Final = 305_000
_INSTANCE: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def consumer_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a consumer.

    Args:
        given: the options by name.

    Raises:
        KafkaConfigurationError: an option does not exist, or options contradict each other.
    """
    wrong = unknown_options(CLIENT, given, CONSUMER)
    if wrong:
        raise errors.KafkaConfigurationError(wrong)
    config = config_of(CONSUMER, given)
    _check_types(config)
    policy = config["auto_offset_reset"]
    config["auto_offset_reset"] = _OLD_POLICIES.get(policy, policy)
    _check_waits(config, given)
    if config["group_instance_id"] is not None:
        _check_instance(config["group_instance_id"], config["group_id"])
    if config["group_id"] is not None and not config["heartbeat_interval_ms"] < config["session_timeout_ms"]:
        message = f"heartbeat_interval_ms={config['heartbeat_interval_ms']} is not less than session_timeout_ms"
        raise errors.KafkaConfigurationError(f"{message}={config['session_timeout_ms']}")
    return config


def _check_types(config: Mapping[str, Any]) -> None:
    """Raises KafkaConfigurationError for options that kafka-python would fail over later."""
    if wrong := wrong_reporters(config["metric_reporters"]):
        raise errors.KafkaConfigurationError(wrong)
    if not isinstance(config["group_id"], str | None):
        raise errors.KafkaConfigurationError(f"group_id={config['group_id']!r} is not a name")
    if not isinstance(config["auto_offset_reset"], str | None):
        message = "is not text; it is earliest, latest or none"
        raise errors.KafkaConfigurationError(f"auto_offset_reset={config['auto_offset_reset']!r} {message}")
    if not isinstance(config["metric_group_prefix"], str):
        raise errors.KafkaConfigurationError(f"metric_group_prefix={config['metric_group_prefix']!r} is not text")
    callback = config["default_offset_commit_callback"]
    if callback is not None and not callable(callback):
        raise errors.KafkaConfigurationError(f"default_offset_commit_callback={callback!r} cannot be called")
    for name in ("consumer_timeout_ms", "request_timeout_ms"):
        if isinstance(config[name], bool) or not _is_number(config[name]):
            raise errors.KafkaConfigurationError(f"{name}={config[name]!r} is not a number of milliseconds")


def _check_waits(config: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises KafkaConfigurationError for times that each version refuses. Version 2's default of the middle one is longer."""
    longest = given.get("request_timeout_ms", _OLD_REQUEST_MS)
    for short, long in (
        ("fetch_max_wait_ms", longest),
        ("request_timeout_ms", config["connections_max_idle_ms"]),
    ):
        if _is_number(config[short]) and _is_number(long) and not config[short] < long:
            name = "request_timeout_ms" if short == "fetch_max_wait_ms" else "connections_max_idle_ms"
            raise errors.KafkaConfigurationError(f"{short}={config[short]} is not less than {name}={long}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _check_instance(instance: Any, group: Any) -> None:
    if group is None:
        raise errors.KafkaConfigurationError("group_instance_id requires group_id")
    if not isinstance(instance, str) or instance in (".", "..") or not _INSTANCE.fullmatch(instance):
        message = "is not 1 to 249 of the characters a-z A-Z 0-9 . _ -"
        raise errors.KafkaConfigurationError(f"group_instance_id={instance!r} {message}")


def native_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of pylog's consumer for a configuration.

    Args:
        config: from `consumer_config`.

    Raises:
        KafkaConfigurationError: a value has a wrong type.
    """
    group = config["group_id"]
    try:
        numbers = {
            name: whole(name, config[name], low)
            for name, low in (
                ("auto_commit_interval_ms", 0),
                ("max_poll_records", 1),
                ("max_poll_interval_ms", 1),
                ("session_timeout_ms", 1),
                ("heartbeat_interval_ms", 1),
            )
        }
        numbers |= {name: size(name, config[name]) for name in ("fetch_max_bytes", "max_partition_fetch_bytes")}
    except TypeError as error:
        raise errors.KafkaConfigurationError(str(error)) from error
    if group is not None:
        _check_heartbeat(numbers)
    numbers["heartbeat_interval_ms"] = heartbeat_of(numbers)
    return numbers | {
        "group_id": group,
        "auto_offset_reset": reset_policy(config["auto_offset_reset"]),
        "enable_auto_commit": bool(config["enable_auto_commit"]) if group is not None else None,
        "isolation_level": _isolation(config["isolation_level"]),
        "exclude_internal_topics": bool(config["exclude_internal_topics"]),
        "partition_assignment_strategy": _strategy(config["partition_assignment_strategy"]),
        "client_id": str(config["client_id"]),
        "group_instance_id": config["group_instance_id"],
    }


def reset_policy(given: str | None) -> str:
    """Returns a policy of pylog's consumer. As in kafka-python and aiokafka, case does not count, and anything else is "none".

    Args:
        given: the option `auto_offset_reset`.

    >>> reset_policy("Earliest")
    'earliest'
    """
    policy = "none" if given is None else given.lower()
    if policy in ("earliest", "latest", "none"):
        return policy
    LOGGER.warning("auto_offset_reset=%r is not earliest, latest or none; it is taken for none, as by the real client", given)
    return "none"


def _check_heartbeat(numbers: Mapping[str, int]) -> None:
    heartbeat, session = numbers["heartbeat_interval_ms"], numbers["session_timeout_ms"]
    if heartbeat >= session:
        message = f"heartbeat_interval_ms={heartbeat} is not less than session_timeout_ms={session}"
        raise errors.KafkaConfigurationError(f"{message}; a third of it is usual")


def heartbeat_of(numbers: Mapping[str, int]) -> int:
    """Returns the heartbeat of pylog's member: as given, but less than half of the session timeout, which pylog's groups require.

    Args:
        numbers: has `heartbeat_interval_ms` and `session_timeout_ms`.
    """
    return max(1, min(numbers["heartbeat_interval_ms"], (numbers["session_timeout_ms"] - 1) // 2))


def _strategy(given: Any) -> tuple[str, ...]:
    if given is CONSUMER["partition_assignment_strategy"]:
        return ("range", "cooperative-sticky")
    return assignor_names(given)


def _isolation(given: Any) -> str:
    """Returns a level that was given by name or by number: kafka-python takes both."""
    name = str(given).strip().upper().replace("-", "_")
    for level in IsolationLevel:
        if given == level or name == level.name:
            return level.name.lower()
    raise errors.KafkaConfigurationError(f"isolation_level={given!r} is not read_uncommitted or read_committed")
