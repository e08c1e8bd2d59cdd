"""From kafka-python's options of a producer to pylog's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from pylog import limits
from pylog.compat.clusters import too_long_for_a_transaction
from pylog.compat.kafka import errors
from pylog.compat.kafka.options import PRODUCER, config_of, number, size, unknown_options, whole, wrong_reporters
from pylog.config import Durability

LOGGER = logging.getLogger("pylog.compat")
CLIENT: Final = "KafkaProducer"
_CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")
_NUMBERS: Final = count(1)  # of client ids
_MOST_IN_FLIGHT: Final = 5  # with idempotence


def producer_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a producer.

    Args:
        given: the options by name.

    Raises:
        ValueError: an option or a codec does not exist.
        KafkaConfigurationError: options contradict each other.
    """
    wrong = unknown_options(CLIENT, given, PRODUCER)
    if wrong:
        raise ValueError(wrong)
    config = config_of(PRODUCER, given)
    if config["compression_type"] not in _CODECS:
        raise ValueError(f"compression_type={config['compression_type']!r} is not None, gzip, snappy, lz4 or zstd")
    if config["client_id"] is None:
        config["client_id"] = f"kafka-python-producer-{next(_NUMBERS)}"
    config["acks"] = -1 if config["acks"] == "all" else config["acks"]
    if isinstance(config["acks"], bool) or config["acks"] not in (-1, 0, 1):
        raise errors.KafkaConfigurationError(f"acks={config['acks']!r} is not 'all', -1, 0 or 1")
    if not isinstance(config["client_id"], str):
        raise errors.KafkaConfigurationError(f"client_id={config['client_id']!r} is not text")
    if wrong := wrong_reporters(config["metric_reporters"]):
        raise errors.KafkaConfigurationError(wrong)
    _settle_idempotence(config, given)
    return config


def _settle_idempotence(config: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Switches idempotence off where other options rule it out, as kafka-python does."""
    if not config["enable_idempotence"]:
        if config["transactional_id"] is not None:
            raise errors.KafkaConfigurationError("cannot set transactional_id without enable_idempotence; leave that option out")
        return
    against = [
        f"{name}={given[name]!r}"
        for name, is_against in (
            ("acks", config["acks"] != -1),
            ("retries", config["retries"] == 0),
            ("max_in_flight_requests_per_connection", _is_more(config["max_in_flight_requests_per_connection"])),
        )
        if name in given and is_against
    ]
    if against and config["transactional_id"] is not None:
        raise errors.KafkaConfigurationError(f"transactional_id cannot be combined with {', '.join(against)}")
    if against and "enable_idempotence" in given:
        raise errors.KafkaConfigurationError(f"enable_idempotence=True cannot be combined with {', '.join(against)}")
    if against:
        LOGGER.warning("KafkaProducer: idempotence is switched off by %s", ", ".join(against))
        config["enable_idempotence"] = False


def _is_more(in_flight: Any) -> bool:
    return isinstance(in_flight, int | float) and in_flight > _MOST_IN_FLIGHT


def _check_delivery(config: Mapping[str, Any]) -> None:
    """Raises KafkaConfigurationError for a delivery that would end before the waits that it consists of, as kafka-python does."""
    delivery, linger = config["delivery_timeout_ms"], config["linger_ms"]
    request = number("request_timeout_ms", config["request_timeout_ms"])
    if delivery < linger + request:
        parts = f"linger_ms={linger} and request_timeout_ms={config['request_timeout_ms']} together"
        raise errors.KafkaConfigurationError(f"delivery_timeout_ms={delivery} is less than {parts}")


def native_options(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of pylog's producer for a configuration.

    Args:
        config: from `producer_config`.
        given: the options that the program gave.

    Raises:
        KafkaConfigurationError: a value has a wrong type. InvalidTransactionTimeoutError: as a broker raises it.
    """
    try:
        options: dict[str, Any] = {
            name: whole(name, config[name])
            for name in ("max_block_ms", "delivery_timeout_ms", "retry_backoff_ms", "metadata_max_age_ms")
        }
        if config["transactional_id"] is not None:
            timeout = whole("transaction_timeout_ms", config["transaction_timeout_ms"])
            if wrong := too_long_for_a_transaction(timeout):
                raise errors.InvalidTransactionTimeoutError(wrong)
            options |= {"transactional_id": config["transactional_id"], "transaction_timeout_ms": timeout}
        options["linger_ms"] = float(number("linger_ms", config["linger_ms"]))
        _check_delivery(config)
        size("max_request_size", config["max_request_size"], 1)  # `KafkaProducer.send` compares it
        options["max_request_size"] = limits.INT32_MAX
        if "batch_size" in given:  # pylog's own default is 32 times as large
            options["batch_size"] = min(size("batch_size", config["batch_size"], 1), limits.PRODUCER_LARGEST_BATCH_BYTES)
        if "buffer_memory" in given:
            options["buffer_memory"] = size("buffer_memory", given["buffer_memory"], 1024)
    except TypeError as error:
        raise errors.KafkaConfigurationError(str(error)) from error
    return options | {
        "compression": config["compression_type"],
        "enable_idempotence": bool(config["enable_idempotence"]),
        "durability": None if config["acks"] == -1 else Durability.OS,
    }
