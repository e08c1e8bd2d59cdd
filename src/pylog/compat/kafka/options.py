"""The options of kafka-python's clients: their defaults, and those that only mean something on a network."""

from __future__ import annotations

import difflib
import logging
import math
import selectors
from collections.abc import Collection, Mapping
from typing import Any, Final

from pylog.compat.kafka.assignors import RangePartitionAssignor, RoundRobinPartitionAssignor
from pylog.compat.kafka.partitioner import DefaultPartitioner
from pylog.compat.kafka.version import __version__
from pylog.limits import INT32_MAX, LONGEST_WAIT_MS

LOGGER = logging.getLogger("pylog.compat")
API_VERSION: Final = (4, 3)  # the broker whose results the layer has


class KafkaNetClient:
    """The default of the option `kafka_client`. There is no network, so nothing can be made of it."""


_NO_DELAY: Final = [(6, 1, 1)]  # IPPROTO_TCP, TCP_NODELAY
_NETWORK: Final[dict[str, Any]] = {  # of all clients; accepted and ignored
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30_000,
    "max_in_flight_requests_per_connection": 5,
    "receive_message_max_bytes": 100_000_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": _NO_DELAY,
    "client_dns_lookup": "use_all_dns_ips",
    "connections_max_idle_ms": 540_000,
    "bootstrap_timeout_ms": 30_000,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "api_version": None,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
    "selector": selectors.DefaultSelector,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": KafkaNetClient,
}
_METRICS: Final[dict[str, Any]] = {"metrics_enabled": True, "metric_reporters": []}
_CONSUMER_NETWORK: Final[dict[str, Any]] = {
    "client_rack": "",
    "enable_incremental_fetch_sessions": True,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "check_crcs": True,
    "ssl_ciphers": None,
    "retry_backoff_ms": 100,
    "metadata_max_age_ms": 300_000,
}
_PRODUCER_NETWORK: Final[dict[str, Any]] = {"retries": math.inf, "ssl_ciphers": None}
_ADMIN_NETWORK: Final[dict[str, Any]] = {"retry_backoff_ms": 100, "metadata_max_age_ms": 300_000}
_OLD: Final[dict[str, Any]] = {  # of version 2, of all clients
    "api_version_auto_timeout_ms": 2000,
    "sock_chunk_bytes": 4096,
    "sock_chunk_buffer_count": 1000,
}
_COMMON: Final[dict[str, Any]] = {"bootstrap_servers": "localhost", "request_timeout_ms": 30_000}


def _no_callback(offsets: Any, response: Any) -> bool:
    return True


CONSUMER: Final[dict[str, Any]] = (
    _COMMON
    | _NETWORK
    | _CONSUMER_NETWORK
    | _METRICS
    | {
        "client_id": f"kafka-python-{__version__}",
        "group_id": None,
        "group_instance_id": None,
        "key_deserializer": None,
        "value_deserializer": None,
        "fetch_max_bytes": 52_428_800,
        "max_partition_fetch_bytes": 1 << 20,
        "auto_offset_reset": "latest",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 5000,
        "default_offset_commit_callback": _no_callback,
        "isolation_level": "read_uncommitted",
        "allow_auto_create_topics": True,
        "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
        "max_poll_records": 500,
        "max_poll_interval_ms": 300_000,
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": 3000,
        "consumer_timeout_ms": math.inf,
        "metric_group_prefix": "consumer",
        "exclude_internal_topics": True,
    }
)
PRODUCER: Final[dict[str, Any]] = (
    _COMMON
    | _NETWORK
    | _PRODUCER_NETWORK
    | _METRICS
    | {
        "client_id": None,
        "key_serializer": None,
        "value_serializer": None,
        "enable_idempotence": True,
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "delivery_timeout_ms": 120_000,
        "acks": -1,
        "compression_type": None,
        "batch_size": 16_384,
        "linger_ms": 0,
        "partitioner": DefaultPartitioner(),
        "max_block_ms": 60_000,
        "max_request_size": 1 << 20,
        "allow_auto_create_topics": True,
        "metadata_max_age_ms": 300_000,
        "retry_backoff_ms": 100,
    }
)
ADMIN: Final[dict[str, Any]] = (
    _COMMON | _NETWORK | _ADMIN_NETWORK | {"metric_reporters": [], "client_id": f"kafka-python-{__version__}"}
)
OLD: Final[Mapping[str, Mapping[str, Any]]] = {  # options of version 2 only, by class
    "KafkaConsumer": _OLD | {"legacy_iterator": False},
    "KafkaProducer": _OLD | {"bootstrap_topics_filter": frozenset(), "buffer_memory": 33_554_432},
    "KafkaAdminClient": _OLD,
}
IGNORED: Final[Mapping[str, frozenset[str]]] = {
    "KafkaConsumer": frozenset({*_NETWORK, *_CONSUMER_NETWORK, *OLD["KafkaConsumer"]}),
    "KafkaProducer": frozenset({*_NETWORK, *_PRODUCER_NETWORK, *OLD["KafkaProducer"]} - {"buffer_memory"}),
    "KafkaAdminClient": frozenset({*_NETWORK, *_ADMIN_NETWORK, *_OLD}),
}
_warned: set[tuple[str, frozenset[str]]] = set()


def unknown_options(client: str, given: Collection[str], known: Collection[str]) -> str | None:
    """Returns the message about options that do not exist; None if all do.

    Args:
        client: the class's name.
        given: names of options.
        known: the names that exist.
    """
    wrong = sorted(set(given) - set(known) - set(OLD[client]))
    if not wrong:
        return None
    near = difflib.get_close_matches(wrong[0], known, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"Unrecognized configs: {', '.join(wrong)}{hint}"


def config_of(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a client's configuration: the defaults with what was given.

    Args:
        defaults: the defaults of the class.
        given: by the program.
    """
    config = dict(defaults) | dict(given)
    version = config["api_version"]
    if isinstance(version, str) and version[:1].isdecimal():
        version = tuple(int(part) for part in version.split(".") if part.isdecimal())
    config["api_version"] = version if isinstance(version, tuple) else API_VERSION
    return config


def warn_of_ignored(client: str, defaults: Mapping[str, Any], given: Mapping[str, Any], topics_at: str) -> None:
    """Logs the names of options that differ from their default and are ignored: once for each class and set of names.

    Args:
        client: the class's name.
        defaults: the defaults of the class.
        given: by the program.
        topics_at: where topics are.
    """
    note_ignored(client, IGNORED[client], dict(defaults) | dict(OLD[client]), given, topics_at)


def note_ignored(
    client: str, ignored: Collection[str], known: Mapping[str, Any], given: Mapping[str, Any], topics_at: str
) -> None:
    """Logs the names of given options that are ignored and differ from their default: once for each class and set of names.

    Args:
        client: the class's name.
        ignored: the options that the class ignores.
        known: all options with their defaults.
        given: by the program.
        topics_at: where topics are.
    """
    names = frozenset(name for name in given if name in ignored and not _is(given[name], known[name]))
    if not names or (client, names) in _warned:
        return
    _warned.add((client, names))
    count = f"{len(names)} options only mean something on a network and are" if len(names) > 1 else "1 option is"
    LOGGER.info("%s: %s ignored: %s; topics are in %s", client, count, ", ".join(sorted(names)), topics_at)


def _is(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - values of ignored options are not looked at
        return False


def wrong_reporters(given: Any) -> str | None:
    """Returns the message about a wrong option `metric_reporters`; None if it is a list of classes.

    Args:
        given: its value.
    """
    if isinstance(given, list | tuple) and all(callable(each) for each in given):
        return None
    return f"metric_reporters={given!r} is not a list of classes"


def whole(name: str, value: Any, low: int = 0, high: int = LONGEST_WAIT_MS) -> int:
    """Returns a number as an int in a range. kafka-python takes floats, too, infinity among them.

    Args:
        name: the option's name.
        value: its value.
        low, high: the range; a number outside is replaced by the nearest one inside.

    Raises:
        TypeError: it is not a number.
    """
    return int(number(name, value, low, high))


def number(name: str, value: Any, low: int = 0, high: int = LONGEST_WAIT_MS) -> float:
    """Returns a number with its fraction. Otherwise like `whole`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise TypeError(f"{name}={value!r} is not a number")
    return min(max(value, low), high)


def size(name: str, value: Any, low: int = 0) -> int:
    """Returns a number of bytes as an int. Raises as `whole`."""
    return whole(name, value, low, INT32_MAX)
