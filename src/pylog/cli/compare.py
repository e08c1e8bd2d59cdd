"""`pylog compare`: compares two directories, or two topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, TopicScope, command
from pylog.cli.exits import FAILED, OK, UsageError
from pylog.cli.output import print_json, print_line, progress
from pylog.cli.stores import reading
from pylog.text import counted

if TYPE_CHECKING:
    from pylog.tools.compare import Comparison, PartitionComparison, TopicComparison

_SHOWN: Final = 10  # differences per partition; JSON has the first hundred


@command(CARE)
def compare(
    store: StorePath,
    other: Annotated[str, Parameter(name="OTHER")],
    /,
    *,
    topic: TopicScope = None,
    name: Annotated[str | None, Parameter(name=["--as"])] = None,
    bytes: Flag = False,  # noqa: A002 - the option's name
    json: Json = False,
) -> int:
    """Compares two directories: topics, options, partitions, and each record's offset, timestamp, key, value and headers.

    The division of records into batches is ignored, unless --bytes compares the files. Exit codes: 0 no difference,
    1 something differs or cannot be read, 2 the command line is wrong.

    Args:
        store: Path of the first log directory. A broker may be running on it.
        other: Path of the second log directory. With --as, it may be the same one.
        topic: Compare only this topic. May be repeated.
        name: Name of the topic in the second directory.
        bytes: Compare the bytes of the .log files instead of the records.
        json: Print one JSON document.

    Examples:
        pylog compare shop backup
        pylog compare shop shop --topic orders --as orders-2024
        pylog compare /var/lib/kafka/data mirror --bytes --json
    """
    from pylog.tools.compare import compare as compared

    if name is not None and len(topic or ()) != 1:
        raise UsageError("--as requires exactly one --topic: the name of the topic in the first directory")
    with reading(store) as left, reading(other) as right, progress("comparing", unit="bytes" if bytes else "records") as report:
        found = compared(left, right, topics=topic or (), renamed=name, by_bytes=bytes, progress=report)
    if json:
        print_json(_document(found))
    else:
        for line in _lines(found, "file" if bytes else "record"):
            print_line(line)
    return OK if found.same else FAILED


def _lines(found: Comparison, unit: str) -> Iterator[str]:
    for side, names in found.only.items():
        for name in names:
            yield f"topic {name}: only {side}"
    equal = sum(partition.equal for topic in found.topics for partition in topic.partitions)
    for topic in found.topics:
        yield from _topic_lines(topic, unit)
    counts = f"{counted(len(found.topics), 'topic')} on both sides, {counted(equal, f'equal {unit}')}"
    yield f"{'the same' if found.same else 'not the same'}: {counts}"


def _topic_lines(topic: TopicComparison, unit: str) -> Iterator[str]:
    name = topic.left if topic.left == topic.right else f"{topic.left} and {topic.right}"
    for option in topic.options:
        yield f"topic {name}: {option.option} is {_value(option.left)} left, {_value(option.right)} right"
    for side, numbers in topic.only.items():
        for number in numbers:
            yield f"topic {name}: partition {number} only {side}"
    for partition in topic.partitions:
        if not partition.same:
            yield from _partition_lines(f"{name}, partition {partition.partition}", partition, unit)


def _value(value: Any) -> str:
    return "the default" if value is None else str(value)


def _partition_lines(name: str, found: PartitionComparison, unit: str) -> Iterator[str]:
    counts = ", ".join(f"{what}: {count}" for what, count in sorted(found.counts.items()))
    yield (
        f"{name}: {counted(found.equal, f'equal {unit}')}, {found.differing} different ({counts})"
        if counts
        else f"{name}: {counted(found.equal, f'equal {unit}')}"
    )
    unit_name = "position" if unit == "file" else "offset"
    for each in found.first[:_SHOWN]:
        yield f"  {unit_name} {each.offset}: {', '.join(each.what)}"
    for sentence in found.unreadable:
        yield f"  cannot be read: {sentence}"


def _document(found: Comparison) -> dict[str, Any]:
    return {"same": found.same, "only": found.only, "topics": [_topic_document(topic) for topic in found.topics]}


def _topic_document(topic: TopicComparison) -> dict[str, Any]:
    return {
        "left": topic.left,
        "right": topic.right,
        "same": topic.same,
        "options": [each._asdict() for each in topic.options],
        "only": topic.only,
        "partitions": [_partition_document(each) for each in topic.partitions],
    }


def _partition_document(found: PartitionComparison) -> dict[str, Any]:
    ends = [{"start_offset": start, "end_offset": end} for start, end in found.ends]
    return {
        "partition": found.partition,
        "same": found.same,
        "left": ends[0],
        "right": ends[1],
        "equal": found.equal,
        "differing": found.differing,
        "counts": dict(found.counts),
        "first": [each._asdict() for each in found.first],
        "unreadable": found.unreadable,
    }
