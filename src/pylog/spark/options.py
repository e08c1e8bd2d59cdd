"""The options of a read: strings as Spark hands them over, checked once, turned into one frozen value.

Names and meanings are those of Spark's Kafka connector, so that a job moves from it by changing `format` and
`kafka.bootstrap.servers` to `path`. A batch read has an end; a streaming read has limits for each of its micro-batches, and may
commit for a group. Where a start or an end is given in more than one way, the order is the connector's:
`startingTimestamp`, then `startingOffsetsByTimestamp`, then `startingOffsets`; the same for the end.

Checks that need no files are made here, so that a mistake is reported when the query is analysed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition
from pylog.spark import values
from pylog.spark.access import NO_ACCESS, TIER, Access, access_of
from pylog.spark.given import ENDING, GivenOptions
from pylog.spark.values import named
from pylog.urls import is_url

EARLIEST = -2
LATEST = -1
DEFAULT_MAX_BYTES_PER_PARTITION = 128 << 20  # what Spark gives a task of any file format
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_STRATEGIES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class ListedTopics:
    """`subscribe`: these topics, all partitions of each."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TopicPattern:
    """`subscribePattern`: the topics in whose name it is found, anywhere, as by the connector."""

    pattern: str


@dataclass(frozen=True)
class ListedPartitions:
    """`assign`: these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class Everywhere:
    """One end for every partition: `EARLIEST` or `LATEST`."""

    offset: int


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition, or `EARLIEST` or `LATEST`."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimestamp:
    """The first record of each partition that is not older than this; milliseconds."""

    timestamp: int


@dataclass(frozen=True)
class AtTimestamps:
    """A start or end by time, with a time for each partition."""

    timestamps: Mapping[TopicPartition, int]


TopicSelection = ListedTopics | TopicPattern | ListedPartitions
Limit = Everywhere | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True)
class ScanOptions:
    """The options that every task needs. Small, because they are sent to each task.

    Attributes:
        columns: the schema's columns, in its order.
        isolation_level: `read_uncommitted` or `read_committed`.
        verify_checksums: whether each batch's CRC is computed.
        fail_on_data_loss: true if deleted records are an error, false for a warning.
        access: how to reach the bucket of a URL, and a broker's remote tier. It has no credentials: each process takes them from
            its environment.
    """

    columns: tuple[str, ...]
    isolation_level: str
    verify_checksums: bool
    fail_on_data_loss: bool
    access: Access = NO_ACCESS


@dataclass(frozen=True, kw_only=True)
class RateLimits:
    """How much of a stream one micro-batch takes.

    Attributes:
        max_offsets: the largest number of offsets, in all partitions together.
        min_offsets: the number of new offsets to wait for, in all partitions together.
        max_delay_ms: the longest wait for `min_offsets` since the previous micro-batch, in milliseconds.
        max_bytes: the approximate largest size in the files, in all partitions together.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    max_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What batch and streaming reads have in common.

    Attributes:
        paths: log directories, absolute; or URLs of archives; or the URL of a broker's remote tier alone.
        subscription: which partitions are read.
        start: where reading begins.
        latest_if_none_younger: with a start by time, true to begin at the end of a partition without such a record; false to
            fail.
        min_partitions, max_bytes_per_partition, max_records_per_partition: how a partition is cut into tasks.
        scan: the options of the tasks.
    """

    paths: tuple[str, ...]
    subscription: TopicSelection
    start: Limit
    latest_if_none_younger: bool
    min_partitions: int | None
    max_bytes_per_partition: int
    max_records_per_partition: int | None
    scan: ScanOptions


@dataclass(frozen=True, kw_only=True)
class ReadOptions(SourceOptions):
    """The options of one batch read; `read_options` makes them.

    Attributes:
        end: where reading ends (exclusive).
        snapshot: whether the read has whole transactions only, in all partitions together.
    """

    end: Limit
    snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class StreamOptions(SourceOptions):
    """The options of one streaming read; `stream_options` makes them.

    Attributes:
        limits: the limits of one micro-batch.
        group: for which each micro-batch's end is committed, if any.
    """

    limits: RateLimits
    group: str | None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Checks the options of a batch read.

    Args:
        options: names, in any case, to values.

    Returns:
        The options, checked as far as possible without the store.

    Raises:
        InvalidArgumentError: an option that does not exist, is not for batch reads, is missing, or has a bad value.

    >>> read_options({"path": "/data/shop", "SUBSCRIBE": "orders, returns"}).subscription
    ListedTopics(names=('orders', 'returns'))
    """
    return _batch(GivenOptions(options, "batch reads"))


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Returns the options of a streaming read.

    >>> stream_options({"path": "/data/shop", "subscribe": "orders", "maxOffsetsPerTrigger": "1000"}).limits.max_offsets
    1000
    """
    return _stream(GivenOptions(options, "streaming reads"))


def any_options(options: Mapping[str, str]) -> SourceOptions:
    """Returns the options of a read before Spark has decided between batch and streaming.

    >>> any_options({"path": "/data/shop", "subscribe": "orders", "startingOffsets": "latest"}).start
    Everywhere(offset=-1)
    """
    given = GivenOptions(options, "batch reads", "streaming reads")
    return _batch(given) if any(name in given for name in ENDING) else _stream(given)


def _batch(given: GivenOptions) -> ReadOptions:
    start = _limit(given, "starting", Everywhere(EARLIEST))
    _refuse(start, LATEST, "startingOffsets", "-1 (latest) is for streaming reads: a batch read would be empty")
    end = _limit(given, "ending", Everywhere(LATEST))
    _refuse(end, EARLIEST, "endingOffsets", "a batch read that ends at -2 (earliest) would be empty")
    _check_order(start, end)
    snapshot, common = given.get("snapshot", values.boolean, False), _common(given)
    if snapshot and len(common["paths"]) > 1:
        raise InvalidArgumentError("snapshot takes a cut over the partitions of one directory; path names several")
    return ReadOptions(start=start, end=end, snapshot=snapshot, **common)


def _stream(given: GivenOptions) -> StreamOptions:
    start = _limit(given, "starting", Everywhere(LATEST))
    group, common = given.get("groupId", values.word, None), _common(given)
    if group is not None and len(common["paths"]) > 1:
        raise InvalidArgumentError(
            "groupId requires one directory, because a group's committed offsets are in one; path names several"
        )
    if group is not None and is_url(common["paths"][0]):
        raise InvalidArgumentError(
            f"groupId commits to a log directory, and {common['paths'][0]} can only be read; leave groupId out"
        )
    return StreamOptions(start=start, limits=_rate_limits(given), group=group, **common)


def _common(given: GivenOptions) -> dict[str, Any]:
    strategy = given.get("startingOffsetsByTimestampStrategy", values.one_of("error", "latest"), "error")
    access = access_of(given)
    return {
        "paths": _paths(given, access),
        "subscription": _subscription(given),
        "latest_if_none_younger": strategy == "latest",
        "min_partitions": given.get("minPartitions", values.positive, None),
        "max_bytes_per_partition": given.get("maxBytesPerPartition", values.positive, DEFAULT_MAX_BYTES_PER_PARTITION),
        "max_records_per_partition": given.get("maxRecordsPerPartition", values.positive, None),
        "scan": ScanOptions(
            columns=_columns(given),
            isolation_level=_isolation(given),
            verify_checksums=given.get("verifyChecksums", values.boolean, True),
            fail_on_data_loss=given.get("failOnDataLoss", values.boolean, True),
            access=access,
        ),
    }


# ---- what to read --------------------------------------------------------------------------------------------------------


def _subscription(given: GivenOptions) -> TopicSelection:
    names = [name for name in _STRATEGIES if name in given]
    if len(names) != 1:
        found = f"{' and '.join(names)} were given" if names else "none was given"
        raise InvalidArgumentError(f"exactly one of the options {', '.join(_STRATEGIES)} says what to read; {found}")
    if names == ["subscribe"]:
        return ListedTopics(tuple(dict.fromkeys(given.required("subscribe", values.words))))
    if names == ["subscribePattern"]:
        return TopicPattern(given.required("subscribePattern", values.pattern))
    return ListedPartitions(given.required("assign", values.partitions))


def _paths(given: GivenOptions, access: Access) -> tuple[str, ...]:
    """Returns the paths. A broker's remote tier may be read with the broker's directories or without."""
    tier = access.opened_tier()
    if tier is None:
        return given.required("path", values.paths)
    paths = given.get("path", values.paths, (tier.url,))
    for path in filter(is_url, paths if "path" in given else ()):
        raise InvalidArgumentError(f"path={path} with a {TIER}: path takes the broker's log directories; or leave it out")
    return paths


def _columns(given: GivenOptions) -> tuple[str, ...]:
    default = (*COLUMNS, HEADERS) if given.get("includeHeaders", values.boolean, False) else COLUMNS
    return given.get("columns", _column_names, default)


def _column_names(name: str, value: str) -> tuple[str, ...]:
    known = {column.lower(): column for column in (*COLUMNS, HEADERS)}
    found = [known.get(word.lower(), "") for word in values.words(name, value)]
    if "" in found or len(set(found)) < len(found):
        raise InvalidArgumentError(f"{name}={value!r} is not a list of different names of {', '.join(known.values())}")
    return tuple(found)


def _isolation(given: GivenOptions) -> str:
    parse = values.one_of("read_uncommitted", "read_committed")
    names = [name for name in ("isolationLevel", "isolation.level", "kafka.isolation.level") if name in given]
    levels = {given.required(name, parse) for name in names}
    if len(levels) > 1:
        raise InvalidArgumentError(f"{' and '.join(names)} are the same option and were given two values")
    return levels.pop() if levels else "read_uncommitted"


# ---- starts and ends -----------------------------------------------------------------------------------------------------


def _limit(given: GivenOptions, which: str, default: Limit) -> Limit:
    if f"{which}Timestamp" in given:
        return AtTimestamp(given.required(f"{which}Timestamp", values.milliseconds))
    if f"{which}OffsetsByTimestamp" in given:
        return AtTimestamps(given.required(f"{which}OffsetsByTimestamp", values.timestamps))
    return given.get(f"{which}Offsets", _offsets, default)


def _offsets(name: str, value: str) -> Limit:
    word = {"earliest": EARLIEST, "latest": LATEST}.get(value.strip().lower())
    return AtOffsets(values.offsets(name, value)) if word is None else Everywhere(word)


def _refuse(limit: Limit, offset: int, name: str, why: str) -> None:
    if limit == Everywhere(offset):
        raise InvalidArgumentError(f"{name}: {why}")
    if isinstance(limit, AtOffsets) and (bad := [partition for partition, at in limit.offsets.items() if at == offset]):
        raise InvalidArgumentError(f"{name} of {named(*bad)}: {why}")


def _check_order(start: Limit, end: Limit) -> None:
    """Checks that a start and an end given in the same way name the same partitions, and are in order."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_pairs(start.offsets, end.offsets, "startingOffsets", "endingOffsets")
    elif isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        _check_pairs(start.timestamps, end.timestamps, "startingOffsetsByTimestamp", "endingOffsetsByTimestamp")


def _check_pairs(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], start_name: str, end_name: str) -> None:
    if start.keys() != end.keys():
        odd = named(*(start.keys() ^ end.keys()))
        raise InvalidArgumentError(f"{start_name} and {end_name} must name the same partitions; only one of them names {odd}")
    for partition, first in sorted(start.items()):
        if 0 <= end[partition] < first:
            raise InvalidArgumentError(f"{start_name} {first} of {named(partition)} is greater than {end_name} {end[partition]}")


# ---- how much at a time --------------------------------------------------------------------------------------------------


def _rate_limits(given: GivenOptions) -> RateLimits:
    found = RateLimits(
        max_offsets=given.get("maxOffsetsPerTrigger", values.positive, None),
        min_offsets=given.get("minOffsetsPerTrigger", values.positive, None),
        max_delay_ms=given.get("maxTriggerDelay", values.duration_ms, DEFAULT_MAX_TRIGGER_DELAY_MS),
        max_bytes=given.get("maxBytesPerTrigger", values.positive, None),
    )
    if found.max_offsets is not None and found.min_offsets is not None and found.min_offsets > found.max_offsets:
        raise InvalidArgumentError(
            f"minOffsetsPerTrigger={found.min_offsets} is more than maxOffsetsPerTrigger={found.max_offsets}"
        )
    return found
