"""How a producer works: kafka-python's names, checked when they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from pylog import limits
from pylog.arguments import check_option_names, is_int
from pylog.awaitables import refuse_coroutine_function
from pylog.config import COMPRESSION_TYPES, Durability
from pylog.errors import InvalidArgumentError
from pylog.partitioner import Callback, DefaultPartitioner, Partitioner, RoundRobinPartitioner

_ALIASES: Final = {"compression_type": "compression"}  # kafka-python's word → ours
_INSTEAD: Final = {  # what other options of kafka-python's are here
    "bootstrap_servers": "a store is a directory, and this one is open",
    "client_id": "a producer has no name; leave it out",
    "retries": "delivery_timeout_ms says how long an append is tried again",
    "request_timeout_ms": "delivery_timeout_ms says how long an append is tried again",
    "max_in_flight_requests_per_connection": "batches follow each other; leave it out",
    "transactional_id": "there are no transactions; enable_idempotence has each batch in the log once",
}
PARTITIONERS: Final = ("default", "round_robin")
Serializer = Callable[[Any], bytes | None]


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """The options of `Store.producer`. Times in milliseconds, sizes in bytes.

    `Store.producer` also takes kafka-python's `compression_type`, which is `compression`, and `acks`: "all", -1 and 1 are the
    same here, where a record has one copy (what an acknowledgement promises `durability` says), and 0 is refused.

    Attributes:
        compression: a codec's name; None is the topic's own.
        linger_ms: how long a record waits for others before it is written with those that are there; 0 is not at all.
        batch_size: record bytes of one batch, at most (a larger record is a batch of its own), and where lingering ends.
        buffer_memory: of records that are not in the log yet; one counts as its key, value, headers and 256 bytes, or as 1 KiB.
        max_block_ms: how long `send` waits for room in the buffer.
        max_request_size: of a record with the batch around it; what is larger is refused.
        delivery_timeout_ms: how long an append is tried again that another process holds up.
        retry_backoff_ms: between two of these attempts.
        metadata_max_age_ms: how long a topic's partitions and options are relied on that another process may change, unless one
            turns out to be gone. What its own store changes a producer sees at once.
        enable_idempotence: number the batches, so that none is appended twice.
        durability: what an acknowledgement promises; None is the topic's own, or the store's.
        partitioner: "default" (Kafka's: by the key's hash, sticky without one), "round_robin", or a callable that takes (key,
            all partitions, available partitions) and returns a partition; it is called by `send`.
        key_serializer, value_serializer: callables that make bytes, or None, of what `send` is given.

    Raises:
        InvalidArgumentError: a value of another type, or out of its range.

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
    partitioner: str | Callback = "default"
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        if self.compression is not None and self.compression not in COMPRESSION_TYPES:
            raise InvalidArgumentError(f"compression={self.compression!r} is not one of {', '.join(COMPRESSION_TYPES)}")
        for name, (low, high) in _RANGES.items():
            object.__setattr__(self, name, _checked_number(name, getattr(self, name), low, high))
        if self.durability is not None and not isinstance(self.durability, Durability):
            raise InvalidArgumentError(f"durability={self.durability!r} is not a pylog.Durability")
        if not isinstance(self.enable_idempotence, bool):
            raise InvalidArgumentError(f"enable_idempotence={self.enable_idempotence!r} is not True or False")
        for name in ("key_serializer", "value_serializer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r} cannot be called")
            refuse_coroutine_function(name, getattr(self, name), "give a plain function")
        refuse_coroutine_function("partitioner", self.partitioner, "give a plain function")
        if not callable(self.partitioner) and self.partitioner not in PARTITIONERS:
            raise InvalidArgumentError(f"partitioner={self.partitioner!r} is not callable, nor one of {', '.join(PARTITIONERS)}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ProducerConfig:
        """A configuration from options by name, `compression_type` and `acks` too.

        Raises:
            InvalidArgumentError: an option that does not exist; the error lists those that do.
        """
        given = {_ALIASES.get(name, name): value for name, value in options.items()}
        if len(given) < len(options):
            raise InvalidArgumentError("compression and compression_type are one option; give one of them")
        _check_acks(given.pop("acks", "all"))
        check_option_names("producer", given, [field.name for field in fields(cls)], _INSTEAD)
        return cls(**given)

    @property
    def called_partitioner(self) -> Callback | None:
        """The user's callable, if one was given."""
        return None if isinstance(self.partitioner, str) else self.partitioner

    def new_partitioner(self) -> Partitioner:
        """What chooses partitions for whole columns of a topic's records."""
        return RoundRobinPartitioner() if self.partitioner == "round_robin" else DefaultPartitioner(self.batch_size)


def _checked_number(name: str, value: object, low: int, high: int) -> int | float:
    if name == "linger_ms" and isinstance(value, float) and low <= value <= high:
        return float(value)
    if not is_int(value) or not low <= value <= high:
        raise InvalidArgumentError(f"{name}={value!r} is not a number from {low} to {high}")
    return int(value)


def _check_acks(acks: object) -> None:
    """Refuses what would be no acknowledgement."""
    if isinstance(acks, bool) or acks not in ("all", -1, 1):
        raise InvalidArgumentError(
            f"acks={acks!r} is not 'all', -1 or 1: every record is acknowledged or refused here; who does not care does not wait "
            "for its future, and durability=Durability.OS is what costs least"
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
}
