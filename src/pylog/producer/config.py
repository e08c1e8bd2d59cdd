"""The options of a producer, with kafka-python's names, checked on construction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypedDict

from pylog import limits
from pylog.arguments import check_option_names, is_int
from pylog.awaitables import refuse_coroutine_function
from pylog.config import COMPRESSION_TYPES, Durability
from pylog.errors import InvalidArgumentError
from pylog.partitioner import DefaultPartitioner, Partitioner, PartitionFunction, RoundRobinPartitioner
from pylog.record.types import Header, K, V
from pylog.serializers import RecordHeaders, SerializesRecords, calls_of, conversion_of
from pylog.transactions.records import checked_own_id

_ALIASES: Final = {"compression_type": "compression"}  # kafka-python's word → ours
_INSTEAD: Final = {  # what replaces kafka-python's other options
    "bootstrap_servers": "a producer belongs to an open store; leave it out. pylog.compat.kafka runs programs for kafka-python",
    "client_id": "producers have no names; leave it out",
    "retries": "set delivery_timeout_ms, the time for which an append is retried",
    "request_timeout_ms": "set delivery_timeout_ms, the time for which an append is retried",
    "max_in_flight_requests_per_connection": "batches are appended one after the other; leave it out",
}
PARTITIONERS: Final = ("default", "round_robin")
Serializer = Callable[..., bytes | None] | SerializesRecords[Any]


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """The options of `Store.producer`. Times in milliseconds, sizes in bytes.

    `Store.producer` also accepts kafka-python's `compression_type` (the same as `compression`) and `acks`. A record has one copy,
    so "all", -1 and 1 mean the same, and 0 is refused. `durability` decides what an acknowledgement promises.

    Attributes:
        compression: the name of a codec; None is the topic's `compression.type`.
        linger_ms: how long the producer waits for more records before it writes a batch; 0 does not wait.
        batch_size: the largest number of record bytes in a batch, at which lingering ends. A larger record gets its own batch.
        buffer_memory: bytes of records that are not in the log yet. A record counts as its key, value, headers and 256 bytes, and
            at least 1 KiB.
        max_block_ms: how long `send` waits for room in the buffer.
        max_request_size: the largest size of one record with its batch header; larger records are refused.
        delivery_timeout_ms: how long an append is retried while another process holds the log.
        retry_backoff_ms: the pause between two attempts.
        metadata_max_age_ms: how long a topic's partitions and options are cached. A change made through the same store, and a
            missing partition, are noticed at once.
        enable_idempotence: number the batches, so that none is appended twice.
        durability: what an acknowledgement promises; None is the topic's level, else the store's.
        partitioner: "default" (Kafka's: by the hash of the key, sticky without a key), "round_robin", or a callable that takes
            (key, all partitions, available partitions) and returns a partition. `send` calls it.
        key_serializer: turns the key given to `send` into bytes or None: a callable of the key, a callable of (key, topic,
            headers), or an object with `serialize(topic, headers, data)`.
        value_serializer: the same for the value.
        transactional_id: names the program, whose records are then sent in transactions: see `Producer.init_transactions`. A
            newer producer with the same id fences older ones.
        transaction_timeout_ms: how long a transaction may stay open; `max_timeout_ms` of `TransactionsConfig` at most.

    Raises:
        InvalidArgumentError: a value has a wrong type or is out of its range.

    >>> ProducerConfig(linger_ms=5).batch_size
    524288
    """

    compression: str | None = None
    linger_ms: float = 0
    batch_size: int = limits.PRODUCER_BATCH_BYTES
    buffer_memory: int = limits.PRODUCER_BUFFER_BYTES
    max_block_ms: int = 60_000
    max_request_size: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 1_000
    enable_idempotence: bool = True
    durability: Durability | None = None
    partitioner: str | PartitionFunction = "default"
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.compression is not None and self.compression not in COMPRESSION_TYPES:
            raise InvalidArgumentError(f"compression={self.compression!r} is not one of {', '.join(COMPRESSION_TYPES)}")
        for name, (low, high) in _RANGES.items():
            object.__setattr__(self, name, _checked_number(name, getattr(self, name), low, high))
        if self.durability is not None:
            object.__setattr__(self, "durability", Durability.of(self.durability))
        if not isinstance(self.enable_idempotence, bool):
            raise InvalidArgumentError(f"enable_idempotence={self.enable_idempotence!r} is not True or False")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise InvalidArgumentError("transactional_id cannot be combined with enable_idempotence=False; leave that option out")
        if self.transactional_id is not None:
            checked_own_id(self.transactional_id)
        for name in ("key_serializer", "value_serializer"):
            conversion_of(name, getattr(self, name), "serialize")
            refuse_coroutine_function(name, calls_of(getattr(self, name), "serialize"), "give a plain function")
        refuse_coroutine_function("partitioner", self.partitioner, "give a plain function")
        if not callable(self.partitioner) and self.partitioner not in PARTITIONERS:
            raise InvalidArgumentError(f"partitioner={self.partitioner!r} is not callable, nor one of {', '.join(PARTITIONERS)}")


class ProducerArguments(TypedDict, Generic[K, V], total=False):
    """The options of `Store.producer`, for type checkers and editors: the fields of `ProducerConfig`, and two more.

    K and V are what the serializers accept. Without a serializer they are bytes or None.

    Attributes:
        compression_type: the same as `compression`.
        acks: for programs that pass it to kafka-python; it has no effect.
    """

    compression: str | None
    compression_type: str | None
    acks: Literal["all", -1, 1]
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    metadata_max_age_ms: int
    enable_idempotence: bool
    durability: Durability | str | None
    partitioner: str | PartitionFunction
    key_serializer: Callable[[K], bytes | None] | Callable[[K, str, RecordHeaders], bytes | None] | SerializesRecords[K] | None
    value_serializer: Callable[[V], bytes | None] | Callable[[V, str, RecordHeaders], bytes | None] | SerializesRecords[V] | None
    transactional_id: str | None
    transaction_timeout_ms: int


class SendArguments(TypedDict, Generic[K], total=False):
    """The options of `AsyncProducer.send`, for type checkers and editors: see `Producer.send`."""

    key: K | None
    headers: Iterable[Header] | None
    partition: int | None
    timestamp: int | datetime | None


def producer_config(options: Mapping[str, Any]) -> ProducerConfig:
    """Returns the configuration with the given options, which may also be `compression_type` and `acks`.

    Args:
        options: values by name, such as `linger_ms`.

    Raises:
        InvalidArgumentError: an option does not exist; the message lists the options that exist.
    """
    given = {_ALIASES.get(name, name): value for name, value in options.items()}
    if len(given) < len(options):
        raise InvalidArgumentError("compression and compression_type are the same option; give one of them")
    _check_acks(given.pop("acks", "all"))
    check_option_names("producer", given, [field.name for field in fields(ProducerConfig)], _INSTEAD)
    return ProducerConfig(**given)


def called_partitioner(config: ProducerConfig) -> PartitionFunction | None:
    """Returns the user's callable, if one was given."""
    return None if isinstance(config.partitioner, str) else config.partitioner


def new_partitioner(config: ProducerConfig) -> Partitioner:
    """Returns the partitioner for whole columns of a topic's records."""
    return RoundRobinPartitioner() if config.partitioner == "round_robin" else DefaultPartitioner(config.batch_size)


def _checked_number(name: str, value: object, low: int, high: int) -> int | float:
    if name == "linger_ms" and isinstance(value, float) and low <= value <= high:
        return float(value)
    if not is_int(value) or not low <= value <= high:
        raise InvalidArgumentError(f"{name}={value!r} is not a number from {low} to {high}")
    return int(value)


def _check_acks(acks: object) -> None:
    """Refuses `acks=0`, and unknown values."""
    if isinstance(acks, bool) or acks not in ("all", -1, 1):
        raise InvalidArgumentError(
            f"acks={acks!r} is not supported; use 'all', -1 or 1. To send without waiting, use durability=\"os\" and ignore the "
            "future"
        )


_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "linger_ms": (0, limits.LONGEST_WAIT_MS),
    "batch_size": (1, limits.PRODUCER_LARGEST_BATCH_BYTES),
    "buffer_memory": (1024, limits.INT64_MAX),
    "max_block_ms": (0, limits.LONGEST_WAIT_MS),
    "max_request_size": (1, limits.INT32_MAX),
    "delivery_timeout_ms": (0, limits.LONGEST_WAIT_MS),
    "retry_backoff_ms": (0, limits.LONGEST_WAIT_MS),
    "metadata_max_age_ms": (0, limits.INT64_MAX),
    "transaction_timeout_ms": (1, limits.INT32_MAX),
}
