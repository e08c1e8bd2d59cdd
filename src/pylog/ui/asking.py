"""Reads what a request asks for: names, numbers, offsets, times and cursors. A mistake in it is an error in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from starlette.requests import Request

from pylog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.times import timestamp_of
from pylog.ui.decoding import AUTOMATIC, FORMS
from pylog.ui.observation import GroupSeen, Observation, TopicSeen
from pylog.ui.search import parsed_cursor

_FORM_FIELDS: Final = ("key_as", "value_as", "headers_as")
_FIELDS: Final = ("find", "how", "partition", "from", "direction", "cursor", *_FORM_FIELDS)
_DIGITS: Final = re.compile("[0-9]{1,19}")
_LAST: Final = re.compile("-([0-9]{1,18})")


def fields_of(request: Request) -> dict[str, str]:
    """Returns the fields of the form for records that are filled in."""
    return {name: request.query_params[name] for name in _FIELDS if request.query_params.get(name)}


class Forms(NamedTuple):
    """How keys, values and headers are decoded: keys of `FORMS`."""

    key: str = AUTOMATIC
    value: str = AUTOMATIC
    headers: str = AUTOMATIC


AS_IT_IS: Final = Forms()


def forms_of(request: Request) -> Forms:
    """Returns how a page decodes keys, values and headers."""
    given = [request.query_params.get(name, AUTOMATIC) for name in _FORM_FIELDS]
    for name, form in zip(_FORM_FIELDS, given, strict=True):
        if form not in FORMS:
            known = ", ".join(filter(None, FORMS))
            raise InvalidArgumentError(f"{name}={form[:100]!r} is not one of {known}")
    return Forms(*given)


def number_in(request: Request, name: str) -> int:
    """Returns a number from a path, which may have any length."""
    text: str = request.path_params[name]
    if not _DIGITS.fullmatch(text):
        raise UnknownTopicOrPartitionError(f"{text[:100]!r} is no {name}")
    return int(text)


def topic_in(request: Request, seen: Observation) -> TopicSeen:
    """Returns the topic that a path names."""
    name = request.path_params["topic"]
    if name not in seen.topics:
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r} in {seen.path}")
    return seen.topics[name]


def group_in(request: Request, seen: Observation) -> GroupSeen:
    """Returns the group that a path names."""
    name = request.path_params["group"]
    found = seen.groups.get(name)
    if found is None:
        raise UnknownTopicOrPartitionError(f"there is no group {name!r} in {seen.path}, or its records cannot be read")
    return found


def logs_of(manager: LogManager, topic: TopicSeen, partition: str) -> dict[int, PartitionLog]:
    """Returns the logs of a topic that can be read: of one partition, or of all if the text is empty."""
    readable = [each.partition.partition for each in topic.partitions if each.damage is None]
    if partition:
        if partition not in map(str, readable):
            raise InvalidArgumentError(f"topic {topic.name!r} has no partition {partition[:100]!r} that can be read")
        readable = [int(partition)]
    return {number: manager.log(topic.name, number) for number in readable}


def cursor_of(logs: Mapping[int, PartitionLog], asked: Mapping[str, str], *, backwards: bool) -> dict[int, int]:
    """Returns where a search goes on, or begins, in each partition."""
    known = parsed_cursor(asked["cursor"]) if "cursor" in asked else {}
    new = {number: log for number, log in logs.items() if number not in known}
    return known | starts(new, asked.get("from", ""), backwards=backwards)


def starts(logs: Mapping[int, PartitionLog], given: str, *, backwards: bool) -> dict[int, int]:
    """Returns where a search begins in each partition.

    Args:
        logs: the partitions.
        given: an offset, a time, `earliest`, `latest`, or `-100` for the last 100 offsets; empty for the end that is first.
        backwards: true for the newest records first.
    """
    given = given.strip() or ("latest" if backwards else "earliest")
    if given in ("earliest", "latest"):
        return {number: log.end_offset if given == "latest" else log.start_offset for number, log in logs.items()}
    last = _LAST.fullmatch(given)
    if last is not None:
        return {number: max(log.start_offset, log.end_offset - int(last[1])) for number, log in logs.items()}
    digits = given.replace(",", "")
    if digits.isascii() and digits.isdecimal() and len(digits) < 19:
        return dict.fromkeys(logs, int(digits) + backwards)
    timestamp = _timestamp_in(given)
    found = {number: log.offset_for_timestamp(timestamp) for number, log in logs.items()}
    return {number: logs[number].end_offset if each is None else each.offset for number, each in found.items()}


def _timestamp_in(text: str) -> int:
    """Returns the timestamp of ISO 8601 text. A time without a zone is in UTC, as all times of the window."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text[:100]!r} is neither an offset nor a time; write 1042, -100, earliest, latest, or 2026-01-31T17:00"
        raise InvalidArgumentError(message) from error
    found = timestamp_of(given if given.tzinfo is not None else given.replace(tzinfo=UTC))
    return max(0, found or 0)
