"""Options: frozen dataclasses with Kafka's property names, written with underscores. Values are checked on construction.

Defaults are Kafka's (storage-format 8). Smaller segments and indexes than a broker allows are legal, so that tests reach every
edge case often.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypedDict

from pylog import limits
from pylog.arguments import RENAMED, check_kind, check_option_names, checked_int
from pylog.errors import InvalidArgumentError, InvalidTypeError

COMPRESSION_TYPES = ("none", "uncompressed", "producer", "gzip", "snappy", "lz4", "zstd")
CLEANUP_POLICIES = ("delete", "compact")


@dataclass(frozen=True, repr=False)
class Durability:
    """What an acknowledgement guarantees: `Durability.SYNC`, `Durability.OS` or `Durability.INTERVAL(ms)` (reliability 5).

    `SYNC` (the default): `write` and `fdatasync`. Records survive a power loss.
    `INTERVAL(ms)`: `write`, and `fdatasync` at most `ms` milliseconds later. A power loss can lose the records of that time.
    `OS`: `write`. Records survive the death of the process; a power loss can lose those since the last flush or roll.

    Levels are values: compare them with `==`.

    Attributes:
        name: `"SYNC"`, `"INTERVAL"` or `"OS"`.
        interval_ms: the interval of `INTERVAL`; None for the other levels.

    Raises:
        InvalidArgumentError: an unknown name, or an interval that is not an int of at least 1.

    >>> Durability.INTERVAL(50), Durability.INTERVAL(50) == Durability.INTERVAL(50), Durability.SYNC == Durability.OS
    (Durability.INTERVAL(50), True, False)
    """

    SYNC: ClassVar[Durability]
    OS: ClassVar[Durability]

    name: str
    interval_ms: int | None = None

    def __post_init__(self) -> None:
        if self.name == "INTERVAL":
            object.__setattr__(self, "interval_ms", checked_int("interval_ms", self.interval_ms, 1, limits.INT64_MAX))
        elif self.name not in ("SYNC", "OS") or self.interval_ms is not None:
            raise InvalidArgumentError(
                f"name={self.name!r}, interval_ms={self.interval_ms!r} is not a level: use Durability.SYNC, .OS or .INTERVAL(ms)"
            )

    @classmethod
    def INTERVAL(cls, ms: int) -> Durability:  # noqa: N802 - a level like SYNC and OS, so in the same case
        """Returns the level that syncs a bounded time after an append.

        Args:
            ms: the longest time between an append and its sync, in milliseconds.
        """
        return cls("INTERVAL", ms)

    @classmethod
    def of(cls, level: str | Durability) -> Durability:
        """Returns the level for the text of a topic's option; a level is returned unchanged.

        Args:
            level: `"sync"`, `"os"` or `"interval:MS"`, MS in milliseconds.

        Raises:
            InvalidArgumentError: the text names no level.

        >>> Durability.of("interval:50"), Durability.of("sync")
        (Durability.INTERVAL(50), Durability.SYNC)
        """
        if isinstance(level, Durability):
            return level
        found = _LEVEL.fullmatch(level) if isinstance(level, str) else None
        if found is None:
            raise InvalidArgumentError(f"durability={level!r} is not 'sync', 'os' or 'interval:MS' with MS in milliseconds")
        return cls(found[1].upper()) if found[1] else cls.INTERVAL(int(found[2]))

    def __repr__(self) -> str:
        return f"Durability.{self.name}" if self.interval_ms is None else f"Durability.{self.name}({self.interval_ms})"


Durability.SYNC = Durability("SYNC")
Durability.OS = Durability("OS")

_LEVEL = re.compile(r"(sync|os)|interval:([0-9]{1,19})")


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic's configuration, under Kafka's names with underscores.

    Sizes are in bytes, times in milliseconds; -1 switches a retention limit off. Four options are pylog's own, not Kafka's:
    `durability`, `retention_group`, `retention_group_max_bytes` and `remote_delete_delay_ms`.

    Attributes:
        retention_ms: 7 days by default, as in Kafka. `Store.tick` and `Store.retain` delete a segment when its newest record is
            older, unless compaction alone is the policy. -1 keeps all records.
        delete_retention_ms: how long compaction keeps a tombstone after the first compaction that reads it.
        min_compaction_lag_ms: younger records are not compacted yet.
        max_compaction_lag_ms: older records are compacted even if little of the log is dirty. Compaction never changes the active
            segment, and only an append rolls it. So after the last append neither this option nor `delete_retention_ms` affects
            the records in the active segment, as in Kafka.
        message_timestamp_before_max_ms: an append is refused if a timestamp is further in the past.
        message_timestamp_after_max_ms: an append is refused if a timestamp is further in the future; one hour by default, as in
            Kafka 4. Neither option applies to records without a timestamp, or to a topic with LogAppendTime.
        file_delete_delay_ms: a broker's option, with Kafka's default. pylog deletes the files of a deleted segment as soon as no
            reader of its process uses them; a reader in another process keeps its open files. `create_topic` and `alter_topic`
            refuse all values except 0 and the default.
        durability: `"sync"`, `"os"` or `"interval:MS"`, the guarantee of appends to this topic; None means the store's.
        retention_group: a consumer group; retention by size and time deletes no record that the group has not committed.
        retention_group_max_bytes: the most bytes kept for the group; -1 means no limit.
        remote_storage_enable: true to tier the topic: `Store.tick` copies sealed segments to the store's archive, and
            `local_retention_*` decides how long they also stay on the disk. `retention_*` then applies to both together.
        local_retention_ms: as `retention_ms`, for the local copies of archived segments; -2 means the same value, -1 no limit.
        local_retention_bytes: as `retention_bytes`, for the same.
        remote_log_copy_disable: true to upload nothing more (KIP-950): the archive is read, and retention deletes from it.
            `local_retention_*` must be as `retention_*` then.
        remote_log_delete_on_disable: true to allow that `remote_storage_enable` is turned off: the records that are only in the
            archive are then deleted.
        remote_delete_delay_ms: how long objects of deleted segments stay in the archive; one day, for readers with old plans.

    Raises:
        InvalidArgumentError: a value is out of range, or contradicts another one.

    >>> TopicConfig(retention_ms=-1).segment_bytes
    1073741824
    """

    segment_bytes: int = limits.DEFAULT_SEGMENT_BYTES
    segment_ms: int = limits.DEFAULT_SEGMENT_MS
    segment_index_bytes: int = limits.DEFAULT_SEGMENT_INDEX_BYTES
    index_interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES
    max_message_bytes: int = limits.DEFAULT_MAX_MESSAGE_BYTES
    retention_ms: int = limits.DEFAULT_RETENTION_MS
    retention_bytes: int = -1
    cleanup_policy: str = "delete"
    delete_retention_ms: int = limits.DEFAULT_DELETE_RETENTION_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = limits.INT64_MAX
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = limits.INT64_MAX
    message_timestamp_after_max_ms: int = limits.DEFAULT_TIMESTAMP_AFTER_MAX_MS
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000
    durability: str | None = None
    retention_group: str | None = None
    retention_group_max_bytes: int = -1
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_delete_delay_ms: int = limits.DEFAULT_REMOTE_DELETE_DELAY_MS

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            object.__setattr__(self, name, checked_int(name, getattr(self, name), low, high))  # NumPy's become ints
        _choose("compression_type", self.compression_type, COMPRESSION_TYPES)
        _choose("message_timestamp_type", self.message_timestamp_type, ("CreateTime", "LogAppendTime"))
        policies = self.cleanup_policy.split(",") if isinstance(self.cleanup_policy, str) else [repr(self.cleanup_policy)]
        for policy in policies:
            _choose("cleanup_policy", policy, CLEANUP_POLICIES)
        _check_ratio("min_cleanable_dirty_ratio", self.min_cleanable_dirty_ratio)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            message = f"min_compaction_lag_ms={self.min_compaction_lag_ms} is more than max_compaction_lag_ms"
            raise InvalidArgumentError(
                f"{message}={self.max_compaction_lag_ms}: no record could satisfy both; lower the first or raise the second"
            )
        if self.compression_gzip_level == 0:
            raise InvalidArgumentError("compression_gzip_level=0 is not -1 (the codec's default) or 1 to 9")
        if self.durability is not None:
            Durability.of(self.durability if isinstance(self.durability, str) else repr(self.durability))
        if self.retention_group is not None and not _is_text(self.retention_group):
            raise InvalidArgumentError(f"retention_group={self.retention_group!r} is not the name of a consumer group")
        for name in ("remote_storage_enable", "remote_log_copy_disable", "remote_log_delete_on_disable"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r} is not True or False")
        if self.remote_storage_enable:
            _check_tiered(self)

    def __repr__(self) -> str:
        """Returns the options that differ from their defaults: one line of the interactive Python, not a page."""
        return f"TopicConfig({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def changed(self) -> dict[str, Any]:
        """Returns the options that differ from their defaults; these are stored on disk."""
        return {field.name: value for field in dataclasses.fields(self) if (value := getattr(self, field.name)) != field.default}

    @property
    def is_compacted(self) -> bool:
        """Whether compaction keeps only the last record of each key."""
        return "compact" in self.cleanup_policy.split(",")

    @property
    def is_tiered(self) -> bool:
        """Whether `Store.tick` has work in the archive: the topic is tiered, or was until its records there are deleted."""
        return self.remote_storage_enable or self.remote_log_delete_on_disable

    @property
    def local_retention(self) -> tuple[int, int]:
        """The limits of local copies of archived segments: milliseconds and bytes, -1 for no limit."""
        ms, size = self.local_retention_ms, self.local_retention_bytes
        return self.retention_ms if ms == -2 else ms, self.retention_bytes if size == -2 else size

    @functools.cached_property
    def roll_ms(self) -> int:
        """How long a segment stays active: compaction never changes the active segment, so it bounds the delay (6.3.4)."""
        lag_ms = self.max_compaction_lag_ms
        return min(self.segment_ms, lag_ms) if self.is_compacted and lag_ms > 0 else self.segment_ms

    @functools.cached_property
    def log_append_time(self) -> bool:
        """Whether a record's timestamp is the time of its append, instead of the one that it was given."""
        return self.message_timestamp_type == "LogAppendTime"


class CreateTopicArguments(TypedDict, total=False):
    """The options of `Store.create_topic`, for type checkers and editors: the fields of `TopicConfig`.

    Attributes:
        config: more options, by Kafka's names with dots or by these names.
    """

    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    retention_ms: int
    retention_bytes: int
    cleanup_policy: str
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    file_delete_delay_ms: int
    producer_id_expiration_ms: int
    durability: str | None
    retention_group: str | None
    retention_group_max_bytes: int
    remote_storage_enable: bool
    local_retention_ms: int
    local_retention_bytes: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_delete_delay_ms: int
    config: Mapping[str, Any]


class AlterTopicArguments(TypedDict, total=False):
    """The options of `Store.alter_topic`, for type checkers and editors; None restores the default.

    Attributes:
        config: more options, by Kafka's names with dots or by these names.
    """

    segment_bytes: int | None
    segment_ms: int | None
    segment_index_bytes: int | None
    index_interval_bytes: int | None
    max_message_bytes: int | None
    retention_ms: int | None
    retention_bytes: int | None
    cleanup_policy: str | None
    delete_retention_ms: int | None
    min_cleanable_dirty_ratio: float | None
    min_compaction_lag_ms: int | None
    max_compaction_lag_ms: int | None
    compression_type: str | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    message_timestamp_type: str | None
    message_timestamp_before_max_ms: int | None
    message_timestamp_after_max_ms: int | None
    file_delete_delay_ms: int | None
    producer_id_expiration_ms: int | None
    durability: str | None
    retention_group: str | None
    retention_group_max_bytes: int | None
    remote_storage_enable: bool | None
    local_retention_ms: int | None
    local_retention_bytes: int | None
    remote_log_copy_disable: bool | None
    remote_log_delete_on_disable: bool | None
    remote_delete_delay_ms: int | None
    config: Mapping[str, Any]


_TOPIC_OPTIONS: Final = tuple(field.name for field in dataclasses.fields(TopicConfig))


def topic_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of a topic by the names of `TopicConfig`.

    Args:
        given: options by name, with underscores or with Kafka's dots; `config` may hold a mapping of more.

    Raises:
        InvalidArgumentError: an option is given twice, or `config` is not a mapping.

    >>> topic_options({"retention.ms": 5, "config": {"segment.bytes": 100}})
    {'retention_ms': 5, 'segment_bytes': 100}
    """
    more = given.get("config", {})
    if not isinstance(more, Mapping):
        raise InvalidTypeError(f"config={more!r} is not a mapping of options")
    found: dict[str, Any] = {}
    for name, value in [*((name, value) for name, value in given.items() if name != "config"), *more.items()]:
        check_kind("an option's name", name, str, "text")
        option = name.replace(".", "_")
        if option in found:
            raise InvalidArgumentError(f"the option {option} is given twice")
        found[option] = value
    return found


def topic_config(options: Mapping[str, Any]) -> TopicConfig:
    """Returns the configuration with the given options of a topic.

    Args:
        options: values by name, such as `retention_ms`.

    Raises:
        InvalidArgumentError: an option does not exist; the message lists the options that exist.
    """
    known = list(_TOPIC_OPTIONS)
    hints = {name: f"use {RENAMED[name]}" for name in ("partitions", "num_partitions")}  # arguments of `create_topic`
    hints["replication_factor"] = "leave it out: a store keeps one copy"
    check_option_names("topic", options, known, hints)
    return TopicConfig(**options)


def codec_of(config: TopicConfig) -> str:
    """Returns the codec of appends that name none."""
    return "none" if config.compression_type in ("producer", "uncompressed") else config.compression_type


def compression_level(config: TopicConfig, codec: str) -> int | None:
    """Returns the compression level for a codec; None means the codec's default."""
    level = getattr(config, f"compression_{codec}_level", None)
    return None if level == -1 else level


@dataclass(frozen=True, kw_only=True)
class OffsetsConfig:
    """How committed offsets are kept, under the names of Kafka's broker options `offsets.*` with underscores.

    Attributes:
        topic_num_partitions: partitions of `__consumer_offsets`, when it is created.
        topic_segment_bytes: size of its segments, when it is created.
        retention_minutes: how long unused offsets are kept.
        retention_check_interval_ms: how often `Store.tick` expires unused offsets.
        metadata_max_bytes: the longest metadata of a commit, in UTF-16 code units as in Kafka.

    Raises:
        InvalidArgumentError: a value is out of range.

    >>> OffsetsConfig().retention_minutes
    10080
    """

    topic_num_partitions: int = 50
    topic_segment_bytes: int = limits.DEFAULT_OFFSETS_SEGMENT_BYTES
    retention_minutes: int = 10_080
    retention_check_interval_ms: int = 600_000
    metadata_max_bytes: int = 4096

    def __post_init__(self) -> None:
        _check_ranges(self, _OFFSETS_RANGES)


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """How transactions are kept, under the names of Kafka's broker options for them with underscores.

    Attributes:
        topic_num_partitions: partitions of `__transaction_state`, when it is created.
        topic_segment_bytes: size of its segments, when it is created.
        max_timeout_ms: the longest timeout of a transaction.
        transactional_id_expiration_ms: how long an unused transactional id is kept. `Store.tick` deletes older ones.

    Raises:
        InvalidArgumentError: a value is out of range.

    >>> TransactionsConfig().max_timeout_ms
    900000
    """

    topic_num_partitions: int = 50
    topic_segment_bytes: int = limits.DEFAULT_OFFSETS_SEGMENT_BYTES
    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000

    def __post_init__(self) -> None:
        _check_ranges(self, _TRANSACTIONS_RANGES)


def _check_ranges(config: OffsetsConfig | TransactionsConfig, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Checks the numbers of a configuration, and keeps each as a plain int."""
    for name, (low, high) in ranges.items():
        object.__setattr__(config, name, checked_int(name, getattr(config, name), low, high))


_TRANSACTIONS_RANGES = {
    "topic_num_partitions": (1, limits.MAX_PARTITIONS),
    "topic_segment_bytes": (14, limits.INT32_MAX),
    "max_timeout_ms": (1, limits.INT32_MAX),
    "transactional_id_expiration_ms": (1, limits.INT64_MAX),
}
_OFFSETS_RANGES = {
    "topic_num_partitions": (1, limits.MAX_PARTITIONS),
    "topic_segment_bytes": (14, limits.INT32_MAX),
    "retention_minutes": (1, limits.INT32_MAX),
    "retention_check_interval_ms": (1, limits.INT64_MAX),
    "metadata_max_bytes": (0, limits.MAX_METADATA_CHARACTERS),
}
_RANGES = {
    "segment_bytes": (14, limits.INT32_MAX),
    "segment_ms": (1, limits.INT64_MAX),
    "segment_index_bytes": (12, limits.INT32_MAX),
    "index_interval_bytes": (0, limits.INT32_MAX),
    "max_message_bytes": (0, limits.INT32_MAX),
    "retention_ms": (-1, limits.INT64_MAX),
    "retention_bytes": (-1, limits.INT64_MAX),
    "delete_retention_ms": (0, limits.INT64_MAX),
    "message_timestamp_before_max_ms": (0, limits.INT64_MAX),
    "message_timestamp_after_max_ms": (0, limits.INT64_MAX),
    "min_compaction_lag_ms": (0, limits.INT64_MAX),
    "max_compaction_lag_ms": (1, limits.INT64_MAX),
    "compression_gzip_level": (-1, 9),
    "compression_lz4_level": (1, 17),
    "compression_zstd_level": (-131072, 22),
    "file_delete_delay_ms": (0, limits.INT64_MAX),
    "producer_id_expiration_ms": (1, limits.INT64_MAX),
    "retention_group_max_bytes": (-1, limits.INT64_MAX),
    "local_retention_ms": (-2, limits.INT64_MAX),
    "local_retention_bytes": (-2, limits.INT64_MAX),
    "remote_delete_delay_ms": (0, limits.INT64_MAX),
}


def _check_tiered(config: TopicConfig) -> None:
    """Checks the options of a tiered topic, as Kafka does (`LogConfig.validateTopicLogConfigValues`)."""
    if config.is_compacted:
        message = f"remote_storage_enable=True does not work with cleanup_policy={config.cleanup_policy!r}"
        raise InvalidArgumentError(f"{message}: archived segments are never compacted; use cleanup_policy='delete'")
    for name in ("retention_ms", "retention_bytes"):
        local, whole = getattr(config, f"local_{name}"), getattr(config, name)
        if whole >= 0 and (local == -1 or local > whole):
            message = f"local_{name}={local} keeps more on the disk than {name}={whole} keeps at all"
            raise InvalidArgumentError(f"{message}; use at most {whole}, or -2 for the same value")
        if config.remote_log_copy_disable and local not in {-2, whole}:
            message = f"remote_log_copy_disable=True with local_{name}={local} and {name}={whole}"
            raise InvalidArgumentError(f"{message}: nothing more is archived, so the disk keeps all records; use -2")


def _choose(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgumentError(f"{name}={value!r} is not one of {', '.join(choices)}")


def _check_ratio(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgumentError(f"{name}={value!r} is not a number from 0 to 1")


def _is_text(value: object) -> bool:
    """Returns whether a value is text that a file can hold: lone surrogates cannot be encoded."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        return False
