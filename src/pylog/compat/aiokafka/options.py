"""The options of aiokafka's clients: their defaults, and those that only mean something on a network."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.aiokafka import errors
from pylog.compat.aiokafka.partitioner import DefaultPartitioner
from pylog.compat.aiokafka.version import __version__
from pylog.compat.clusters import too_long_for_a_transaction
from pylog.compat.kafka.assignors import RoundRobinPartitionAssignor, assignor_names
from pylog.compat.kafka.consumer_options import heartbeat_of, reset_policy
from pylog.compat.kafka.options import note_ignored, number, size, whole
from pylog.config import Durability
from pylog.limits import INT32_MAX, PRODUCER_LARGEST_BATCH_BYTES

ACKS_BY_IDEMPOTENCE: Final = object()  # the default of `acks`
_NETWORK: Final[dict[str, Any]] = {  # of all clients; accepted and ignored
    "loop": None,
    "request_timeout_ms": 40_000,
    "retry_backoff_ms": 100,
    "metadata_max_age_ms": 300_000,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "api_version": None,
    "connections_max_idle_ms": 540_000,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
}
_CONSUMER_NETWORK: Final[dict[str, Any]] = {
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "check_crcs": True,
    "consumer_timeout_ms": 200,
    "rebalance_timeout_ms": None,
    "client_rack": None,
}
CONSUMER: Final[dict[str, Any]] = (
    _NETWORK
    | _CONSUMER_NETWORK
    | {
        "bootstrap_servers": "localhost",
        "client_id": f"aiokafka-{__version__}",
        "group_id": None,
        "group_instance_id": None,
        "key_deserializer": None,
        "value_deserializer": None,
        "fetch_max_bytes": 52_428_800,
        "max_partition_fetch_bytes": 1 << 20,
        "auto_offset_reset": "latest",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 5000,
        "partition_assignment_strategy": (RoundRobinPartitionAssignor,),
        "max_poll_interval_ms": 300_000,
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 3000,
        "max_poll_records": None,
        "exclude_internal_topics": True,
        "isolation_level": "read_uncommitted",
    }
)
PRODUCER: Final[dict[str, Any]] = _NETWORK | {
    "bootstrap_servers": "localhost",
    "client_id": None,
    "acks": ACKS_BY_IDEMPOTENCE,
    "key_serializer": None,
    "value_serializer": None,
    "compression_type": None,
    "max_batch_size": 16_384,
    "partitioner": DefaultPartitioner(),
    "max_request_size": 1 << 20,
    "linger_ms": 0,
    "enable_idempotence": False,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
}
ADMIN: Final[dict[str, Any]] = _NETWORK | {"bootstrap_servers": "localhost", "client_id": f"aiokafka-{__version__}"}
OLD: Final[Mapping[str, Mapping[str, Any]]] = {  # options of older versions, by class
    "AIOKafkaConsumer": {},
    "AIOKafkaProducer": {"send_backoff_ms": 100},
    "AIOKafkaAdminClient": {},
}
_DEFAULTS: Final = {"AIOKafkaConsumer": CONSUMER, "AIOKafkaProducer": PRODUCER, "AIOKafkaAdminClient": ADMIN}
_CALLED: Final = frozenset({"key_serializer", "value_serializer", "key_deserializer", "value_deserializer", "partitioner"})
IGNORED: Final[Mapping[str, frozenset[str]]] = {
    "AIOKafkaConsumer": frozenset({*_NETWORK, *_CONSUMER_NETWORK}),
    "AIOKafkaProducer": frozenset({*_NETWORK, *OLD["AIOKafkaProducer"]} - {"request_timeout_ms"}),
    "AIOKafkaAdminClient": frozenset(_NETWORK),
}


def config_of(client: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a client's configuration: the defaults with what was given.

    Args:
        client: the class's name.
        given: by the program.

    Raises:
        TypeError: an option does not exist, or cannot be called.
    """
    defaults = _DEFAULTS[client]
    wrong = sorted(set(given) - set(defaults) - set(OLD[client]))
    if wrong:
        near = difflib.get_close_matches(wrong[0], defaults, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TypeError(f"{client}() got an unexpected keyword argument {wrong[0]!r}{hint}")
    config = dict(defaults) | dict(given)
    for name in _CALLED & config.keys():
        if config[name] is not None and not callable(config[name]):
            raise TypeError(f"{name}={config[name]!r} cannot be called")
    return config


def warn_of_ignored(client: str, given: Mapping[str, Any], topics_at: str) -> None:
    """Logs the names of options that differ from their default and are ignored: once for each class and set of names.

    Args:
        client: the class's name.
        given: by the program.
        topics_at: where topics are.
    """
    note_ignored(client, IGNORED[client], _DEFAULTS[client] | dict(OLD[client]), given, topics_at)


def consumer_options(config: Mapping[str, Any], *, waits_ms: int) -> dict[str, Any]:
    """Returns the options of pylog's consumer for a configuration.

    Args:
        config: from `config_of`.
        waits_ms: how long one call of the plain consumer waits.

    Raises:
        ValueError, TypeError: a value is wrong.
    """
    records, isolation, policy = config["max_poll_records"], config["isolation_level"], config["auto_offset_reset"]
    if records is not None and (not isinstance(records, int) or records < 1):
        raise ValueError(f"max_poll_records={records!r} is not a positive int")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"Incorrect isolation level {isolation}; it is read_uncommitted or read_committed")
    if not isinstance(config["group_id"], str | None):
        raise TypeError(f"group_id={config['group_id']!r} is not a name")
    if not isinstance(policy, str):
        raise TypeError(f"auto_offset_reset={policy!r} is not text; it is earliest, latest or none")
    lows = {"auto_commit_interval_ms": 0, "max_poll_interval_ms": 1, "session_timeout_ms": 1, "heartbeat_interval_ms": 1}
    numbers = {name: whole(name, config[name], low) for name, low in lows.items()}
    numbers["heartbeat_interval_ms"] = heartbeat_of(numbers)
    numbers |= {name: size(name, config[name]) for name in ("fetch_max_bytes", "max_partition_fetch_bytes")}
    is_member = config["group_id"] is not None
    return numbers | {
        "group_id": config["group_id"],
        "group_instance_id": config["group_instance_id"] if is_member else None,
        "client_id": str(config["client_id"]),
        "auto_offset_reset": reset_policy(policy),
        "enable_auto_commit": bool(config["enable_auto_commit"]) if is_member else None,
        "isolation_level": isolation,
        "exclude_internal_topics": bool(config["exclude_internal_topics"]),
        "partition_assignment_strategy": assignor_names(config["partition_assignment_strategy"]),
        "max_poll_records": records or INT32_MAX,
        "consumer_timeout_ms": waits_ms,
    }


def producer_options(config: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of pylog's producer for a configuration, and settles `acks` and idempotence in it.

    Args:
        config: from `config_of`.
        given: the options that the program gave.

    Raises:
        ValueError, TypeError: a value is wrong, or options contradict each other.
        InvalidTransactionTimeout: as a broker raises it.
    """
    if config["acks"] not in (0, 1, -1, "all", ACKS_BY_IDEMPOTENCE):
        raise ValueError(f"acks={config['acks']!r} is not 0, 1, -1 or 'all'")
    if config["compression_type"] not in ("gzip", "snappy", "lz4", "zstd", None):
        raise ValueError(f"compression_type={config['compression_type']!r} is not gzip, snappy, lz4, zstd or None")
    if config["transactional_id"] is not None:
        config["enable_idempotence"] = True
    if config["enable_idempotence"] and config["acks"] not in (-1, "all", ACKS_BY_IDEMPOTENCE):
        raise ValueError(f"acks={config['acks']} cannot be combined with enable_idempotence=True")
    if config["acks"] is ACKS_BY_IDEMPOTENCE:
        config["acks"] = -1 if config["enable_idempotence"] else 1
    config["acks"] = -1 if config["acks"] == "all" else config["acks"]
    size("max_request_size", config["max_request_size"], 1)  # `AIOKafkaProducer.send` compares it
    options: dict[str, Any] = {
        "linger_ms": float(number("linger_ms", config["linger_ms"])),
        "max_block_ms": whole("request_timeout_ms", config["request_timeout_ms"]),
        "max_request_size": INT32_MAX,
        "compression": config["compression_type"],
        "enable_idempotence": bool(config["enable_idempotence"]),
        "durability": None if config["acks"] == -1 else Durability.OS,
    }
    if "max_batch_size" in given:  # pylog's own default is 32 times as large
        options["batch_size"] = min(size("max_batch_size", config["max_batch_size"], 1), PRODUCER_LARGEST_BATCH_BYTES)
    if config["transactional_id"] is not None:
        timeout = whole("transaction_timeout_ms", config["transaction_timeout_ms"])
        if wrong := too_long_for_a_transaction(timeout):
            raise errors.InvalidTransactionTimeout(wrong)
        options |= {"transactional_id": config["transactional_id"], "transaction_timeout_ms": timeout}
    return options
