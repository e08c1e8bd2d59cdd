"""The HTML report of `pylog stats`: one page with charts, without scripts or network.

The page's content security policy allows only its own styles. So even a missed escape could not turn a name or key into a script.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Final

from pylog.text import counted, size_text
from pylog.times import time_text
from pylog.tools.charts import StripSection, axis, bars, meter, strip, table, text
from pylog.tools.sketches import Powers, Timeline, ValueSpan
from pylog.tools.stats import DamagedRange, Lag, PartitionStats, SegmentStats, Stats, TopicStats

_COLUMNS: Final = 120  # bars of a topic's charts
_PARTITION_COLUMNS: Final = 80
_MOST_PARTITIONS: Final = 100  # drawn per topic
_MOST_SECTIONS: Final = 300  # sections of a strip
_MOST_ROWS: Final = 200  # rows of a table
_TEN_SECONDS_MS: Final = 10_000
_THREE_HOURS_MS: Final = 3 * 3_600_000

_STYLE: Final = """
:root{--paper:#fff;--ink:#1c2430;--quiet:#667085;--line:#e3e7ee;--soft:#f5f7fa;--one:#2f6fde;--two:#8fb5f5;--three:#1f9d8a;--bad:#d92d20}
@media(prefers-color-scheme:dark){:root{--paper:#12161c;--ink:#e6eaf0;--quiet:#98a2b3;--line:#2a313c;--soft:#1a2028;--one:#6ea1f7;\
--two:#3d5f9e;--three:#3fc1ab;--bad:#ff6b5e}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}
h2{font-size:19px;margin:0 0 4px;overflow-wrap:anywhere}
h3{font-size:14px;margin:24px 0 6px;color:var(--quiet);font-weight:600}
p{margin:4px 0}
.quiet{color:var(--quiet)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:10px;margin:20px 0}
.tile{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:10px}
.tile b{display:block;font-size:20px;line-height:28px}.tile.time b{font-size:12px;white-space:nowrap}
.tile span{color:var(--quiet);font-size:13px}
section{border-top:1px solid var(--line);margin-top:32px;padding-top:24px}
svg{display:block;width:100%;background:var(--soft);border-radius:4px}
svg.chart{height:110px}
svg.strip{height:22px}
rect.records{fill:var(--one)}rect.bytes{fill:var(--three)}rect.even{fill:var(--one)}rect.odd{fill:var(--two)}
rect.damaged,.damaged{fill:var(--bad);color:var(--bad)}
rect:hover{opacity:.7}
.axis{display:flex;justify-content:space-between;gap:8px;color:var(--quiet);font-size:12px;margin-top:3px}
.row{display:grid;grid-template-columns:48px 1fr;gap:8px;align-items:center;margin:5px 0}
.row>span{color:var(--quiet);font-size:13px;text-align:right}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:0 28px}
@media(max-width:700px){.pair{grid-template-columns:minmax(0,1fr)}}
.pair>div{min-width:0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{padding:4px 0 4px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:middle;white-space:nowrap}
th{color:var(--quiet);font-weight:600}
th:first-child,td:first-child{padding-left:0}
td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:84px}
.n{text-align:right;font-variant-numeric:tabular-nums}
svg.meter{min-width:70px;height:10px;border-radius:3px}
.meter .bar{fill:var(--one)}.meter .lag{fill:var(--three)}
.alarm{border-left:4px solid var(--bad);padding:8px 12px;background:var(--soft);margin:16px 0;overflow-wrap:anywhere}
details{margin:14px 0}summary{cursor:pointer;color:var(--quiet)}
"""
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()


def page(title: str, topics: Sequence[TopicStats], lags: Sequence[Lag], now_ms: int) -> str:
    """Returns the report as HTML.

    Args:
        title: title of the page: the path of the log directory.
        topics: result of `tools.stats.collect`.
        lags: result of `tools.stats.group_lags`.
        now_ms: time of the report, in milliseconds.

    Returns:
        HTML: some kilobytes per topic and partition, independent of the size of the logs.

    >>> page("shop", [], [], 0)[:15]
    '<!doctype html>'
    """
    body = [_head(title, topics, now_ms), _damage(topics), _lags(lags), *map(_topic, sorted(topics, key=_is_internal))]
    policy = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


# ---- the whole directory -----------------------------------------------------------------------------------------------------


def _head(title: str, topics: Sequence[TopicStats], now_ms: int) -> str:
    total = Stats()
    for topic in topics:
        total += topic.stats
    partitions = [partition for topic in topics for partition in topic.partitions]
    events = Timeline()
    for topic in topics:
        if not _is_internal(topic):
            events += topic.stats.timeline
    tiles: dict[str, str] = {
        "topics": f"{len(topics):,}",
        "partitions": f"{len(partitions):,}",
        "segments": f"{sum(len(partition.segments) for partition in partitions):,}",
        "records": f"{total.records:,}",
        "bytes": size_text(total.bytes),
        "first event": _time(events.first)[:16],
        "last event": _time(events.last)[:16],
    }
    return (
        f'<h1>{text(title)}</h1><p class="quiet">State at {text(_time(now_ms))} (all times are UTC)</p>'
        f'<div class="tiles">{"".join(_tile(name, value) for name, value in tiles.items())}</div>'
    )


def _tile(name: str, value: str) -> str:
    return f'<div class="tile{" time" if name.endswith("event") else ""}"><b>{text(value)}</b><span>{text(name)}</span></div>'


def _time(stamp: int | None) -> str:
    found = None if stamp is None else time_text(stamp)
    return "none" if found is None else found.replace("T", " ").removesuffix("Z").removesuffix(".000")


def _is_internal(topic: TopicStats) -> bool:
    """Returns True for Kafka's internal topics, whose timestamps are times of commits and not of events."""
    return topic.name.startswith("__")


def _damage(topics: Sequence[TopicStats]) -> str:
    partitions = [partition for topic in topics for partition in topic.partitions]
    said = [[*partition.losses, *([] if partition.error is None else [partition.error])] for partition in partitions]
    errors = [f'<p class="alarm">{text(each)}</p>' for sentences in said for each in sentences]
    ranges = [(partition, each) for partition in partitions for each in partition.damaged]
    if not ranges:
        return "".join(errors[:_MOST_ROWS])
    rows = [_damaged_row(partition, each) for partition, each in ranges[:_MOST_ROWS]]
    titles = ("partition", "offsets", "file", "position", "bytes", "what")
    more = f"<p>and {len(ranges) - _MOST_ROWS} more</p>" if len(ranges) > _MOST_ROWS else ""
    head = '<h2 class="damaged">Damaged</h2><p class="quiet">Run pylog verify for advice.</p>'
    return f"<section>{head}{table(titles, rows, left=3)}{more}</section>{''.join(errors[:_MOST_ROWS])}"


def _damaged_row(partition: PartitionStats, each: DamagedRange) -> Sequence[str]:
    file = each.path.rpartition("/")[2]
    name = f'<span class="damaged">{text("-".join(map(str, partition.key)))}</span>'
    offsets = f"{each.offset} to {each.next_offset - 1}"
    return name, text(offsets), text(file), text(f"{each.position:,}"), text(f"{each.size:,}"), text(f"the batch {each.why}")


def _lags(lags: Sequence[Lag]) -> str:
    if not lags:
        return ""
    top = max(each.lag for each in lags)
    rows = [
        (text(each.group), text(f"{each.topic}-{each.partition}"), *_numbers(each), meter(each.lag, top, "lag"))
        for each in lags[:_MOST_ROWS]
    ]
    more = f"<p>and {len(lags) - _MOST_ROWS} more, with less lag</p>" if len(lags) > _MOST_ROWS else ""
    titles = ("group", "partition", "lag", "committed", "end", "behind")
    return f"<section><h2>Groups</h2>{table(titles, rows, left=2)}{more}</section>"


def _numbers(each: Lag) -> tuple[str, str, str]:
    return text(f"{each.lag:,}"), text(f"{each.offset:,}"), text(f"{each.end_offset:,}")


# ---- one topic ---------------------------------------------------------------------------------------------------------------


def _topic(topic: TopicStats) -> str:
    parts = [f"<h2>{text(topic.name)}</h2>", _facts(topic)]
    if topic.stats.batches:
        spans = topic.stats.timeline.columns(_COLUMNS)
        parts += [
            _timeline("Records over event time", spans, "records"),
            _timeline("Bytes over event time", spans, "bytes"),
            '<div class="pair">',
            f"<div><h3>Batch sizes</h3>{_powers(topic.stats.batch_bytes, size_text)}</div>",
            f"<div><h3>Records in a batch</h3>{_powers(topic.stats.batch_records, _plain)}</div>",
            "</div><h3>Compression</h3>",
            _codecs(topic.stats),
        ]
    return f"<section>{''.join(parts)}{_partitions(topic)}</section>"


def _facts(topic: TopicStats) -> str:
    stats = topic.stats
    facts = [
        counted(len(topic.partitions), "partition", ","),
        counted(stats.records, "record", ","),
        size_text(stats.bytes),
        counted(stats.batches, "batch", ","),
    ]
    if stats.records_per_second is not None:
        facts.append(f"{stats.records_per_second:,.1f} records a second of event time")
    if stats.producer_ids:
        facts.append(counted(len(stats.producer_ids), "idempotent producer", ","))
    if stats.keys is not None and stats.keys.keys:
        facts.append(f"about {counted(stats.keys.estimate(), 'distinct key', ',')}")
    return f'<p class="quiet">{text(" · ".join(facts))}</p>'


def _timeline(title: str, spans: Sequence[ValueSpan], kind: str) -> str:
    if not spans:
        return ""
    values = [span.records if kind == "records" else span.bytes for span in spans]
    labels = [f"{value:,} records" if kind == "records" else size_text(value) for value in values]
    titles = [f"{_time(span.start)}: {value}" for span, value in zip(spans, labels, strict=True)]
    seconds = (spans[0].end - spans[0].start) / 1000
    heading = f"{title}: {max(values):,} at most" if kind == "records" else f"{title}: {size_text(max(values))} at most"
    heading = f"{heading} in {seconds:,.3g} s"
    return f"<h3>{text(heading)}</h3>{bars(values, titles, kind, heading)}{axis(*_labels(spans))}"


def _labels(spans: Sequence[ValueSpan]) -> list[str]:
    """Returns the time labels below a chart, with enough digits to differ."""
    first, last = spans[0].start, spans[-1].end
    cut = slice(0, 16) if last - first > _THREE_HOURS_MS else slice(5, 19) if last - first > _TEN_SECONDS_MS else slice(5, None)
    middle = [spans[len(spans) // 2].start] if len(spans) > 2 else []
    return [_time(stamp)[cut] for stamp in (first, *middle, last)]


def _plain(value: float) -> str:
    return f"{value:,.0f}"


def _powers(powers: Powers, label: Callable[[float], str]) -> str:
    found = list(powers.bars())
    top = max((bar.batches for bar in found), default=1)
    rows = [(text(label(bar.low)), meter(bar.batches, top), text(f"{bar.batches:,}")) for bar in found]
    message = f"{label(powers.mean)} on average, {label(powers.largest)} at most"
    return table(("from", "share", "batches"), rows, left=2) + f'<p class="quiet">{text(message)}</p>'


def _codecs(stats: Stats) -> str:
    rows = [
        (
            text(name),
            text(f"{codec.batches:,}"),
            text(f"{codec.records:,}"),
            text(size_text(codec.bytes)),
            text("1" if name == "none" else "unknown" if codec.ratio is None else f"{codec.ratio:.1f}"),
        )
        for name, codec in sorted(stats.codecs.items())
    ]
    return table(("codec", "batches", "records", "bytes", "ratio"), rows)


# ---- partitions and segments -------------------------------------------------------------------------------------------------


def _partitions(topic: TopicStats) -> str:
    filled = [each for each in topic.partitions if each.end_offset > each.start_offset or each.damaged]
    drawn = filled[:_MOST_PARTITIONS]
    parts = ["<h3>Segments, by offset</h3>" if drawn else "", *map(_map, drawn)]
    empty = len(topic.partitions) - len(filled)
    hidden = len(filled) - len(drawn)
    left = [
        f"empty: {counted(empty, 'partition', ',')}" if empty else "",
        f"not drawn: {counted(hidden, 'partition', ',')}" if hidden else "",
    ]
    labels = ", ".join(filter(None, left))
    parts.append(f'<p class="quiet">{text(labels)}</p>' if labels else "")
    return "".join(parts) + "".join(map(_details, drawn))


def _map(partition: PartitionStats) -> str:
    start, end = partition.start_offset, max(partition.end_offset, partition.start_offset + 1)
    sections = [*_segment_sections(partition.segments), *_damaged_sections(partition.damaged)]
    label = f"partition {partition.key.partition}: {counted(len(partition.segments), 'segment', ',')}"
    return f'<div class="row"><span>{text(partition.key.partition)}</span>{strip(sections, start, end, label)}</div>'


def _segment_sections(segments: Sequence[SegmentStats]) -> Iterator[StripSection]:
    """Yields sections for segments. If there are too many, adjacent segments share a section."""
    each = -(-len(segments) // _MOST_SECTIONS)
    for number, at in enumerate(range(0, len(segments), max(each, 1))):
        group = segments[at : at + each]
        first, last = group[0].base_offset, group[-1].end_offset
        size = size_text(sum(segment.bytes for segment in group))
        yield StripSection(first, last, "odd" if number % 2 else "even", f"offsets {first} to {last - 1}: {size}")


def _damaged_sections(damaged: Sequence[DamagedRange]) -> Iterator[StripSection]:
    for each in damaged[:_MOST_SECTIONS]:
        message = f"damaged: offsets {each.offset} to {each.next_offset - 1}"
        yield StripSection(each.offset, each.next_offset, "damaged", message)


def _details(partition: PartitionStats) -> str:
    stats = partition.stats
    message = f"partition {partition.key.partition}: offsets {partition.start_offset:,} to {partition.end_offset - 1:,}, "
    message += (
        f"{counted(stats.records, 'record', ',')}, {size_text(stats.bytes)}, {counted(len(partition.segments), 'segment', ',')}"
    )
    spans = stats.timeline.columns(_PARTITION_COLUMNS)
    charts = _timeline("Records over event time", spans, "records") + _timeline("Bytes over event time", spans, "bytes")
    rows = [_segment_row(segment) for segment in partition.segments[-_MOST_ROWS:]]
    titles = ("segment", "first event", "last event", "batches", "records", "bytes")
    hidden = len(partition.segments) - len(rows)
    more = f'<p class="quiet">{hidden:,} older segments are not shown</p>' if hidden else ""
    return f"<details><summary>{text(message)}</summary>{charts}{table(titles, rows, left=3)}{more}</details>"


def _segment_row(segment: SegmentStats) -> Sequence[str]:
    times = (_time(segment.first_timestamp), _time(segment.last_timestamp))
    numbers = (f"{segment.batches:,}", f"{segment.records:,}", size_text(segment.bytes))
    return tuple(map(text, (segment.base_offset, *times, *numbers)))
