"""Plans as files: the CSV that Kafka's `kafka-consumer-groups --reset-offsets --export` writes and `--from-file` reads.

No header. A line is `topic,partition,offset`, or, for several groups, `group,topic,partition,offset`; the first line of a file
decides (groups-and-transactions 2.9).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final

from pylog import limits
from pylog.directory.topic_names import check_topic_name
from pylog.errors import InvalidArgumentError, InvalidTopicError
from pylog.fs import OsFileSystem, path_of, replace_file
from pylog.record.types import TopicPartition

PlannedOffsets = Mapping[TopicPartition, int]

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_PLAIN: Final = 24  # characters: Kafka's writer always quotes longer text
_FIRST_SAFE: Final = "-"  # and text with a character before this one: blanks, quotes, commas, `#` …

PathLike = str | PurePath


def write(path: PathLike, text: str) -> None:
    """Replaces a file atomically; a symbolic link is followed.

    Raises:
        InvalidArgumentError: the path exists and is not a file, or the text is larger than `read` accepts.
        StorageFailedError: it cannot be written.
    """
    name, data = _checked_path(path), text.encode()
    if len(data) > limits.MAX_PLAN_BYTES:
        message = f"{name} would have {len(data)} bytes, more than the {limits.MAX_PLAN_BYTES} of a plan"
        raise InvalidArgumentError(f"{message}; write several files of some groups each", path=name)
    replace_file(name, data)


def read(path: PathLike) -> tuple[str, str]:
    """Returns a file's text and its name.

    Raises:
        InvalidArgumentError: the file does not exist, or is not text.
        StorageFailedError: it cannot be read.
    """
    name = _checked_path(path)
    data = OsFileSystem().read(name, limits.MAX_PLAN_BYTES)
    if data is None:
        raise InvalidArgumentError(f"there is no file {name}; export a group's offsets to create one", path=name)
    try:
        return data.decode(), name
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name} is not UTF-8: byte {error.start}", path=name) from error


def _checked_path(path: PathLike) -> str:
    given = path_of("path", path)
    if not PurePath(given).name:
        raise InvalidArgumentError(f"{given!r} is not the path of a file")
    return given


def format_plan(offsets: PlannedOffsets) -> str:
    """Formats the file of one group.

    >>> format_plan({TopicPartition("orders", 1): 7, TopicPartition("orders", 0): 3})
    'orders,0,3\\norders,1,7\\n'
    """
    return "".join(
        f"{_quoted(partition.topic)},{partition.partition},{offset}\n" for partition, offset in sorted(offsets.items())
    )


def format_plans(groups: Mapping[str, PlannedOffsets]) -> str:
    """Formats the file of several groups.

    >>> format_plans({"to bill": {TopicPartition("orders", 1): 7}})
    '"to bill",orders,1,7\\n'
    """
    lines = ((_quoted(name), format_plan(offsets)) for name, offsets in sorted(groups.items()))
    return "".join(f"{name},{line}" for name, text in lines for line in text.splitlines(keepends=True))


def _quoted(text: str) -> str:
    if text and len(text) <= _PLAIN and min(text) >= _FIRST_SAFE:
        return text
    return '"' + text.replace('"', '""') + '"'


def parse_plan(text: str, path: str, group: str) -> dict[TopicPartition, int]:
    """Returns one group's offsets from a file of one group or of several.

    Raises:
        InvalidArgumentError: a line is malformed (the error names it), or the group has no line.
    """
    rows = list(_rows(text, path))
    if rows and len(rows[0][1]) == 3:
        found = _by_group(path, [(number, [group, *fields]) for number, fields in rows], 3)
    else:
        found = _by_group(path, rows, 4)
    if group not in found:
        raise InvalidArgumentError(f"{path} has no line for the group {group!r}; it has some for {_some(found)}", path=path)
    return found[group]


def parse_plans(text: str, path: str) -> dict[str, dict[TopicPartition, int]]:
    """Returns each group's offsets from a file of several groups.

    Raises:
        InvalidArgumentError: a line is malformed; the error names it.
    """
    return _by_group(path, list(_rows(text, path)), 4)


def _some(groups: Iterable[str]) -> str:
    return ", ".join(map(repr, list(groups)[:10])) or "none at all"


def _rows(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the lines with their numbers; empty lines are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise InvalidArgumentError(f"{path}, line {reader.line_num}: {error}", path=path) from error


def _by_group(path: str, rows: list[tuple[int, list[str]]], columns: int) -> dict[str, dict[TopicPartition, int]]:
    """Returns offsets by group and partition, from rows whose first field is the group.

    Args:
        path: the file, for errors.
        rows: line numbers and fields.
        columns: the number of columns in this file.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    for number, fields in rows:
        try:
            group, partition, offset = _parsed(fields, columns)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{path}, line {number}: {error}", path=path) from error
        if partition in found.setdefault(group, {}):
            raise InvalidArgumentError(f"{path}, line {number}: {partition.topic}-{partition.partition} appears twice", path=path)
        found[group][partition] = offset
    return found


def _parsed(fields: list[str], columns: int) -> tuple[str, TopicPartition, int]:
    if len(fields) != 4:
        named = "topic,partition,offset" if columns == 3 else "group,topic,partition,offset"
        raise InvalidArgumentError(f"the line has {len(fields) - (4 - columns)} fields; it should be {named}")
    group, topic, partition, offset = fields
    try:
        found = TopicPartition(check_topic_name(topic), _number("partition", partition, 0, limits.INT32_MAX))
    except InvalidTopicError as error:
        raise InvalidArgumentError(str(error)) from error
    return group, found, _number("offset", offset, -limits.INT64_MAX, limits.INT64_MAX)


def _number(name: str, text: str, low: int, high: int) -> int:
    if not _NUMBER.fullmatch(text.strip()) or not low <= int(text) <= high:
        raise InvalidArgumentError(f"the {name} {text!r} is not a number from {low} to {high}")
    return int(text)
