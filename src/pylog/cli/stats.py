"""`pylog stats`: counts records, bytes, batches, producers and keys, and draws charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, command
from pylog.cli.exits import FAILED, OK, CommandFailed, complain
from pylog.cli.output import Column, print_json, print_line, print_table, progress
from pylog.clock import SystemClock
from pylog.errors import CorruptionError
from pylog.text import counted, size_text
from pylog.times import time_text

if TYPE_CHECKING:
    from pylog.tools.sketches import Powers
    from pylog.tools.stats import Lag, PartitionStats, Stats, TopicStats

_SUMS: Final = (
    Column("batches", "number"),
    Column("records", "number"),
    Column("bytes", "bytes"),
    Column("first_timestamp", title="first event"),
    Column("last_timestamp", title="last event"),
)
_RATE: Final = Column("rate", "number", "records")
_UNITS: Final = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "day"))  # seconds
_TOPICS: Final = (Column("topic"), Column("partitions", "number"), *_SUMS, _RATE)
_PARTITIONS: Final = (Column("topic"), Column("partition", "number"), *_SUMS, _RATE)
_SEGMENTS: Final = (
    Column("topic"),
    Column("partition", "number"),
    Column("base_offset", "number"),
    *_SUMS,
    Column("last_append"),
)
_CODECS: Final = (
    Column("topic"),
    Column("codec"),
    Column("batches", "number"),
    Column("records", "number"),
    Column("bytes", "bytes"),
    Column("ratio", "number"),
)
_BAR: Final = 40  # characters of the longest bar
_COLUMNS: Final = 20  # bars over event time
_TIMES: Final = ("first_timestamp", "last_timestamp", "last_append")


@command(CARE)
def stats(
    store: StorePath,
    topic: Annotated[list[str] | None, Parameter(name="TOPIC")] = None,
    /,
    *,
    partitions: Flag = False,
    segments: Flag = False,
    keys: Flag = False,
    html: str | None = None,
    json: Json = False,
) -> int:
    """Counts records, bytes, rates over event time, compression, batch sizes and producers.

    The command reads the headers of all batches. It estimates compression ratios from some batches of each codec, and counts all
    records of a batch at the batch's largest timestamp. The first event is the earliest first record of a batch; the last event
    is the latest record. A segment's last append is the time of its records without a timestamp. For a tiered topic, it
    downloads the segments that only the archive has. Exit code 1: parts that are damaged, or that the archive did not return,
    were left out.

    Args:
        store: Path of the log directory, or of one partition's directory, or the URL of an archive. A broker may be running
            on it.
        topic: Names of topics. Default: all topics.
        partitions: Print a table of partitions too.
        segments: Print a table of segments too.
        keys: Count distinct keys too, with an error of about 2 %. This decompresses all batches.
        html: Write a page with charts to this file. The page needs no network.
        json: Print one JSON document with everything.

    Examples:
        pylog stats shop
        pylog stats shop orders --keys --partitions
        pylog stats /var/lib/kafka/data --html report.html
        pylog stats s3://logs/shop orders
    """
    from pylog.cli.stores import note_links
    from pylog.tools.stats import collect

    note_links(store)
    with progress("counting") as report:
        found = collect(store, topics=topic or (), keys=keys, progress=report)
    missing = set(topic or ()) - {each.name for each in found}
    if missing:
        raise CommandFailed(f"{store} has no topic {min(missing)!r}")
    complaints = [*_complaints(found)]
    names = {each.name for each in found}
    lags = [each for each in _lags(store, complaints) if each.topic in names] if html is not None or json else []
    if html is not None:
        _write_page(html, store, found, lags)
    if json:
        print_json({"topics": [_topic_document(each) for each in found], "groups": [each._asdict() for each in lags]})
    elif html is None:
        _show(found, partitions=partitions, segments=segments)
    for partition in (partition for each in found for partition in each.partitions if partition.uncounted):
        left, name = partition.uncounted, f"{partition.key.topic}-{partition.key.partition}"
        complain(f"{name}: offsets {left.start} to {left.stop - 1} are only in the archive; not all of them are counted")
    for complaint in complaints:
        complain(complaint)
    return FAILED if complaints else OK


def _complaints(found: list[TopicStats]) -> Iterator[str]:
    for partition in (partition for topic in found for partition in topic.partitions):
        if partition.error is not None:
            yield partition.error
        for message in partition.losses:
            yield f"{message}; run pylog verify"
        if partition.damaged:
            first, ranges = partition.damaged[0], counted(len(partition.damaged), "damaged range")
            message = f"{ranges} of bytes, the first one at position {first.position} of {first.path}"
            yield f"{partition.directory}: {message}; run pylog verify"


def _lags(store: str, complaints: list[str]) -> list[Lag]:
    from pylog.tools.stats import group_lags

    try:
        return group_lags(store)
    except CorruptionError as error:
        complaints.append(str(error))
        return []


def _write_page(target: str, store: str, found: list[TopicStats], lags: list[Lag]) -> None:
    from pylog.fs import OsFileSystem, absolute, parent_of, replace_file
    from pylog.tools.report import page

    OsFileSystem().check_directory(parent_of(target), write=True)
    data = page(absolute(store), found, lags, SystemClock().now_ms()).encode()
    replace_file(target, data)
    complain(f"wrote {target}, {size_text(len(data))}")


# ---- for people --------------------------------------------------------------------------------------------------------------


def _show(found: list[TopicStats], *, partitions: bool, segments: bool) -> None:
    print_table(_TOPICS, [_topic_row(each) for each in found])
    if partitions:
        print_line("")
        print_table(_PARTITIONS, [_partition_row(each) for topic in found for each in topic.partitions])
    if segments:
        print_line("")
        print_table(_SEGMENTS, [row for topic in found for each in topic.partitions for row in _segment_rows(each)])
    print_line("")
    print_table(_CODECS, [row for topic in found for row in _codec_rows(topic)])
    for topic in found:
        if topic.stats.batches:
            _show_pictures(topic)


def _show_pictures(topic: TopicStats) -> None:
    stats = topic.stats
    _show_bars(
        f"{topic.name}: records over event time",
        [(time_text(span.start) or "", span.records) for span in stats.timeline.columns(_COLUMNS)],
    )
    _show_bars(f"{topic.name}: batches by size, mean {size_text(stats.batch_bytes.mean)}", _bars(stats.batch_bytes, size_text))
    title = f"{topic.name}: batches by records, mean {stats.batch_records.mean:,.1f}"
    _show_bars(title, _bars(stats.batch_records, lambda value: f"{value:.0f}"))
    print_line(f"{topic.name}: idempotent producers: {_producers(stats)}")
    if stats.keys is not None:
        keys = stats.keys
        message = f"about {keys.estimate():,} distinct of {keys.keys:,}, {size_text(keys.size)}; "
        message += f"without a key: {counted(keys.nulls, 'record', ',')}"
        print_line(f"{topic.name}: keys: {message}")


def _bars(powers: Powers, label: Callable[[float], str]) -> list[tuple[str, int]]:
    bars = powers.bars()
    return [(label(bar.low) + (f" to {label(bar.high)}" if bar.high > bar.low else ""), bar.batches) for bar in bars]


def _show_bars(title: str, bars: list[tuple[str, int]]) -> None:
    print_line("")
    print_line(title)
    top = max((count for _, count in bars), default=0)
    width = max((len(label) for label, _ in bars), default=0)
    for label, count in bars:
        drawn = "█" * max(round(_BAR * count / top), 1) if count else ""
        print_line(f"  {label:>{width}}  {drawn:<{_BAR}}  {count:,}")


def _producers(counted: Stats) -> str:
    from pylog.tools.stats import MOST_PRODUCERS

    count = len(counted.producer_ids)
    return f"{count:,} or more" if count >= MOST_PRODUCERS else f"{count:,}"


# ---- rows --------------------------------------------------------------------------------------------------------------------


def _sums(counted: Stats) -> dict[str, Any]:
    first, last, rate = counted.timeline.first, counted.timeline.last, counted.records_per_second
    return {
        "batches": counted.batches,
        "records": counted.records,
        "bytes": counted.bytes,
        "first_timestamp": None if first is None else time_text(first),
        "last_timestamp": None if last is None else time_text(last),
        "records_per_second": None if rate is None else round(rate, 3),
    }


def _topic_row(topic: TopicStats) -> dict[str, Any]:
    return {"topic": topic.name, "partitions": len(topic.partitions), **_sums(topic.stats), "rate": _rate_text(topic.stats)}


def _partition_row(partition: PartitionStats) -> dict[str, Any]:
    named = {"topic": partition.key.topic, "partition": partition.key.partition}
    return {**named, **_sums(partition.stats), "rate": _rate_text(partition.stats)}


def _rate_text(counted: Stats) -> str | None:
    """Returns the rate of records over event time, per unit of time in which there is at least one record."""
    rate = counted.records_per_second
    if rate is None:
        return None
    seconds, unit = next((each for each in _UNITS if rate * each[0] >= 1), _UNITS[-1])
    return f"{rate * seconds:,.1f}/{unit}"


def _segment_rows(partition: PartitionStats) -> Iterator[dict[str, Any]]:
    for each in partition.segments:
        times = {name: time_text(stamp) for name in _TIMES if (stamp := getattr(each, name)) is not None}
        yield {"topic": partition.key.topic, "partition": partition.key.partition, **each._asdict(), **times}


def _codec_rows(topic: TopicStats) -> Iterator[dict[str, Any]]:
    for name, codec in sorted(topic.stats.codecs.items()):
        ratio = None if codec.ratio is None else round(codec.ratio, 2)
        counted = {"batches": codec.batches, "records": codec.records, "bytes": codec.bytes}
        yield {"topic": topic.name, "codec": name, **counted, "ratio": 1.0 if name == "none" else ratio}


# ---- JSON --------------------------------------------------------------------------------------------------------------------


def _topic_document(topic: TopicStats) -> dict[str, Any]:
    partitions = [_partition_document(each) for each in topic.partitions]
    return {"topic": topic.name, **_stats_document(topic.stats), "codecs": _codecs(topic), "partitions": partitions}


def _codecs(topic: TopicStats) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "topic"} for row in _codec_rows(topic)]


def _stats_document(counted: Stats) -> dict[str, Any]:
    document: dict[str, Any] = {
        **_sums(counted),
        "control_batches": counted.control_batches,
        "producers": len(counted.producer_ids),
        "batch_bytes": _powers_document(counted.batch_bytes),
        "batch_records": _powers_document(counted.batch_records),
        "timeline": [each._asdict() for each in counted.timeline.spans()],
    }
    if counted.keys is not None:
        keys = counted.keys
        document["keys"] = {"distinct": keys.estimate(), "keys": keys.keys, "nulls": keys.nulls, "bytes": keys.size}
    return document


def _powers_document(powers: Powers) -> dict[str, Any]:
    bars = [bar._asdict() for bar in powers.bars() if bar.batches]
    return {"mean": round(powers.mean, 3), "largest": powers.largest, "histogram": bars}


def _partition_document(partition: PartitionStats) -> dict[str, Any]:
    return {
        "partition": partition.key.partition,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        **_stats_document(partition.stats),
        "segments": [_without_place(row) for row in _segment_rows(partition)],
        "damaged": [each._asdict() for each in partition.damaged],
        "losses": partition.losses,
        "error": partition.error,
    }


def _without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("topic", "partition")}
