"""What can be set: frozen dataclasses, Kafka's property names with underscores, values checked when they are made.

Kafka's defaults (storage-format 8). Smaller segments and indexes than a broker allows are legal, so that tests meet every
edge often.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pylog import limits
from pylog.errors import InvalidArgumentError

COMPRESSION_TYPES = ("none", "uncompressed", "producer", "gzip", "snappy", "lz4", "zstd")
CLEANUP_POLICIES = ("delete", "compact")


class Durability(enum.Enum):
    """What an acknowledgement promises.

    `SYNC`: like `write` and `fdatasync`: the records outlive a power loss (the default).
    `OS`: like `write`: they outlive the death of the process; a power loss may take those since the last flush or roll.
    """

    SYNC = "sync"
    OS = "os"


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic's configuration, under Kafka's names with underscores.

    Sizes in bytes, times in milliseconds; -1 switches a retention limit off.

    Raises:
        InvalidArgumentError: a value out of its range.

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
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidArgumentError(f"{name}={value!r} is not an int from {low} to {high}")
        _choose("compression_type", self.compression_type, COMPRESSION_TYPES)
        _choose("message_timestamp_type", self.message_timestamp_type, ("CreateTime", "LogAppendTime"))
        policies = self.cleanup_policy.split(",") if isinstance(self.cleanup_policy, str) else [repr(self.cleanup_policy)]
        for policy in policies:
            _choose("cleanup_policy", policy, CLEANUP_POLICIES)
        if self.compression_gzip_level == 0:
            raise InvalidArgumentError("compression_gzip_level=0 is not -1 (the codec's default) or 1 to 9")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TopicConfig:
        """A configuration from options by name.

        Raises:
            InvalidArgumentError: an option that does not exist; the error lists those that do.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise InvalidArgumentError(f"unknown topic option {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**options)

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults: what is kept on disk."""
        return {field.name: value for field in dataclasses.fields(self) if (value := getattr(self, field.name)) != field.default}

    @property
    def codec(self) -> str:
        """The codec that appends use when the call names none."""
        return "none" if self.compression_type in ("producer", "uncompressed") else self.compression_type

    def level(self, codec: str) -> int | None:
        """The compression level for a codec; None is the codec's own default."""
        level = getattr(self, f"compression_{codec}_level", None)
        return None if level == -1 else level

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


_RANGES = {
    "segment_bytes": (14, limits.INT32_MAX),
    "segment_ms": (1, limits.INT64_MAX),
    "segment_index_bytes": (12, limits.INT32_MAX),
    "index_interval_bytes": (0, limits.INT32_MAX),
    "max_message_bytes": (0, limits.INT32_MAX),
    "retention_ms": (-1, limits.INT64_MAX),
    "retention_bytes": (-1, limits.INT64_MAX),
    "compression_gzip_level": (-1, 9),
    "compression_lz4_level": (1, 17),
    "compression_zstd_level": (-131072, 22),
}


def _choose(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgumentError(f"{name}={value!r} is not one of {', '.join(choices)}")
