"""Checks and holds the options with which a store is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Final

from pylog import limits
from pylog.arguments import check_option_names, checked_int
from pylog.config import Durability, OffsetsConfig, TopicConfig, TransactionsConfig
from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition

MODES: Final = ("rw", "r")
RANGES: Final = {
    "lock_timeout_ms": (0, limits.LONGEST_WAIT_MS),
    "tick_interval_ms": (1, limits.INT64_MAX),
    "cleaner_dedupe_buffer_size": (64, limits.INT64_MAX),
}
Committed = Callable[[str, TopicPartition], int | None]


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The options of an open store; see `pylog.open`."""

    mode: str = "rw"
    archive: object | None = None  # a URL or an object store, checked when the archive is opened
    durability: Durability = Durability.SYNC
    create: bool = False
    exclusive: bool = False
    lock_timeout_ms: int = 30_000
    tick_interval_ms: int | None = None
    committed: Committed | None = None
    offsets: OffsetsConfig = OffsetsConfig()  # noqa: RUF009 - it is frozen
    transactions: TransactionsConfig = TransactionsConfig()  # noqa: RUF009 - it is frozen
    cleaner_dedupe_buffer_size: int = limits.DEFAULT_DEDUPE_BUFFER_BYTES
    cleaner_io_max_bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidArgumentError(f"mode={self.mode!r} is not one of {', '.join(MODES)}")
        object.__setattr__(self, "durability", Durability.of(self.durability))
        if not isinstance(self.offsets, OffsetsConfig):
            raise InvalidArgumentError(f"offsets={self.offsets!r} is not a pylog.OffsetsConfig")
        if not isinstance(self.transactions, TransactionsConfig):
            raise InvalidArgumentError(f"transactions={self.transactions!r} is not a pylog.TransactionsConfig")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None or name != "tick_interval_ms":  # None there means no background ticks
                object.__setattr__(self, name, checked_int(name, value, low, high))
        rate = self.cleaner_io_max_bytes_per_second
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0):
            raise InvalidArgumentError(f"cleaner_io_max_bytes_per_second={rate!r} is not a positive number")


def check_known(given: Collection[str], known: Collection[str]) -> None:
    """Refuses options that a store does not have.

    Args:
        given: the names that a caller gave.
        known: the names that exist.

    Raises:
        InvalidArgumentError: an option does not exist; the message says where an option of a topic belongs.
    """
    if not set(given) - set(known):
        return
    topics = {each.name for each in fields(TopicConfig)} | {each.name.replace("_", ".") for each in fields(TopicConfig)}
    belongs = "it is an option of a topic, as in store.create_topic(name, {}=...)"
    instead = {name: belongs.format(name.replace(".", "_")) for name in topics.intersection(given) - set(known)}
    check_option_names("store", given, known, instead)
