"""The application: routes to pages, and the same data as JSON. Reading happens in threads, never in the event loop."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from pylog.errors import ClosedError, InvalidArgumentError, OffsetOutOfRangeError, PylogError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.times import timestamp_of
from pylog.ui import group_pages, record_pages, store_pages, topic_pages
from pylog.ui.html import PageFrame
from pylog.ui.observation import GroupSeen, Observation, TopicSeen, Watch
from pylog.ui.search import FoundRecord, Query, SearchPage, cursor_text, parsed_cursor, search
from pylog.ui.security import LOCAL, Guarded
from pylog.ui.words import exact

_STATIC: Final = {"ui.css": "text/css; charset=utf-8", "ui.js": "text/javascript; charset=utf-8"}
_ASKED: Final = ("find", "how", "partition", "from", "direction", "cursor")
_DIGITS: Final = re.compile("[0-9]{1,19}")
_STATUS: Final[dict[type[PylogError], int]] = {
    InvalidArgumentError: 400,
    UnknownTopicOrPartitionError: 404,
    OffsetOutOfRangeError: 404,
    ClosedError: 503,
}


class Page(NamedTuple):
    """A page in both forms.

    Attributes:
        html: makes the page.
        data: makes the same as an object for JSON.
        status: of HTTP.
    """

    html: Callable[[PageFrame], str]
    data: Callable[[], object]
    status: int = 200


def application(watch: Watch, *, token: str | None, hosts: Collection[str] = LOCAL) -> Any:
    """Returns the window on a store as an ASGI application. The data of a page `/X` is at `/json/X`.

    Args:
        watch: of the store.
        token: that requests must have; None for none, if the application around it asks for one.
        hosts: names under which the pages may be asked for.
    """
    window = _Window(watch)
    routes = {
        "/": window.overview,
        "/topics": window.topics,
        "/topics/{topic}": window.records,
        "/topics/{topic}/{tab}": window.tab,
        "/topics/{topic}/{partition}/{offset}": window.record,
        "/groups": window.groups,
        "/groups/{group:path}": window.group,
    }
    as_json = [Route(path, _answering(watch, make, as_json=True)) for path, make in routes.items()]
    as_html = [Route(path, _answering(watch, make, as_json=False)) for path, make in routes.items()]
    first = [Route("/static/{name}", _static), Route("/go", _answering_go(watch)), Mount("/json", routes=as_json)]
    return Guarded(Starlette(routes=[*first, *as_html]), token, hosts)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return Response("There is no such file.", 404, media_type="text/plain")
    return Response(shipped(name), media_type=_STATIC[name])


def shipped(name: str) -> bytes:
    """Returns a file that the pages use."""
    return resources.files("pylog.ui").joinpath("static", name).read_bytes()


Make = Callable[[Request, Observation], Page]


def _answering(watch: Watch, make: Make, *, as_json: bool) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_answer, watch, make, request, as_json)

    return answer


def _answer(watch: Watch, make: Make, request: Request, as_json: bool) -> Response:
    try:
        seen = watch.observation()
    except PylogError as error:
        return Response(str(error), 503, media_type="text/plain; charset=utf-8")
    frame = PageFrame(request.scope.get("root_path", "").removesuffix("/json" if as_json else ""), seen)
    try:
        page = make(request, seen)
        made = _json(page.data()) if as_json else page.html(frame).encode(errors="surrogateescape")
        status = page.status
    except PylogError as error:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        made = (
            _json({"error": str(error)})
            if as_json
            else store_pages.problem(frame, _TITLES.get(status, "It failed"), str(error)).encode()
        )
    return Response(made, status, media_type="application/json" if as_json else "text/html; charset=utf-8")


_TITLES: Final = {400: "That cannot be asked", 404: "Not found", 503: "The store is closed"}


def _json(data: object) -> bytes:
    return json.dumps(data, default=_plain, ensure_ascii=True).encode()


def _plain(value: object) -> object:
    """Returns a value as JSON has it: bytes as text with escapes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _answering_go(watch: Watch) -> Callable[[Request], Any]:
    async def go(request: Request) -> Response:
        seen = await run_in_threadpool(watch.observation)
        frame = PageFrame(request.scope.get("root_path", ""), seen)
        return RedirectResponse(_target(frame, request.query_params.get("to", "").strip()), 303)

    return go


def _target(frame: PageFrame, wanted: str) -> str:
    """Returns the page of `orders-3@1042`, of a topic, or of a group; else the list of topics."""
    wanted_partition, _, offset = wanted.partition("@")
    topic, _, number = wanted_partition.rpartition("-")
    digits = offset.replace(",", "")
    if topic in frame.seen.topics and number.isdecimal() and digits.isdecimal():
        return frame.url("topics", topic, number, digits)
    if wanted in frame.seen.topics:
        return frame.url("topics", wanted)
    if wanted in frame.seen.groups:
        return frame.url("groups", wanted)
    return frame.url("topics")


class _Window:
    """The pages of a store."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def overview(self, _: Request, seen: Observation) -> Page:
        return Page(store_pages.overview, lambda: _store_data(seen))

    def topics(self, request: Request, seen: Observation) -> Page:
        internal = request.query_params.get("internal") == "1"
        return Page(
            lambda frame: store_pages.topics(frame, internal), lambda: [_topic_data(each) for each in seen.topics.values()]
        )

    def groups(self, _: Request, seen: Observation) -> Page:
        return Page(group_pages.groups, lambda: [_group_data(each) for each in seen.groups.values()])

    def group(self, request: Request, seen: Observation) -> Page:
        name = request.path_params["group"]
        found = seen.groups.get(name)
        if found is None:
            raise UnknownTopicOrPartitionError(f"there is no group {name!r} in {seen.path}, or its records cannot be read")
        return Page(lambda frame: group_pages.group(frame, found), lambda: _group_data(found))

    def tab(self, request: Request, seen: Observation) -> Page:
        topic, tab = _topic_of(request, seen), request.path_params["tab"]
        if tab == "records":
            return self.records(request, seen)
        makers = {
            "partitions": topic_pages.partitions,
            "segments": topic_pages.segments,
            "groups": topic_pages.topic_groups,
            "options": topic_pages.options,
        }
        if tab not in makers:
            raise UnknownTopicOrPartitionError(f"topic {topic.name!r} has no page {tab!r}; it has {', '.join(topic_pages.TABS)}")
        return Page(lambda frame: makers[tab](frame, topic), lambda: _topic_data(topic))

    def records(self, request: Request, seen: Observation) -> Page:
        topic = _topic_of(request, seen)
        asked = {name: request.query_params[name] for name in _ASKED if request.query_params.get(name)}
        query = Query()
        try:
            query = Query(asked.get("find", ""), asked.get("how", "contains"), asked.get("direction", "back") == "back")
            found = self._found(topic, query, asked)
        except InvalidArgumentError as error:
            sentence = str(error)
            return Page(
                lambda frame: record_pages.records(frame, topic, query, asked, None, sentence), lambda: {"error": sentence}, 400
            )
        return Page(lambda frame: record_pages.records(frame, topic, query, asked, found), lambda: _found_data(found))

    def _found(self, topic: TopicSeen, query: Query, asked: Mapping[str, str]) -> SearchPage:
        manager = self._watch.manager
        readable = [each.partition.partition for each in topic.partitions if each.damage is None]
        wanted = asked.get("partition", "")
        if wanted:
            if wanted not in map(str, readable):
                raise InvalidArgumentError(f"topic {topic.name!r} has no partition {wanted!r} that can be read")
            readable = [int(wanted)]
        logs = {number: manager.log(topic.name, number) for number in readable}
        cursor = parsed_cursor(asked["cursor"]) if "cursor" in asked else {}
        new = {number: log for number, log in logs.items() if number not in cursor}
        begin = cursor | _starts(new, asked.get("from", ""), backwards=query.backwards)
        return search(logs, query, begin, manager.clock)

    def record(self, request: Request, seen: Observation) -> Page:
        topic = _topic_of(request, seen)
        number, offset = _number(request, "partition"), _number(request, "offset")
        log = self._watch.manager.log(topic.name, number)
        row = _row(log, number, offset, backwards=request.query_params.get("direction") == "back")
        facts = {
            "Partition": f"{topic.name}-{number}",
            "Offset": str(row.offset),
            "Timestamp": f"{exact(row.timestamp)} ({row.timestamp})",
        }
        return Page(lambda frame: record_pages.record(frame, topic, row, facts), row._asdict)


def _number(request: Request, name: str) -> int:
    """Returns a number from a path, which may have any length."""
    text: str = request.path_params[name]
    if not _DIGITS.fullmatch(text):
        raise UnknownTopicOrPartitionError(f"{text[:100]!r} is no {name}")
    return int(text)


def _topic_of(request: Request, seen: Observation) -> TopicSeen:
    name = request.path_params["topic"]
    if name not in seen.topics:
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r} in {seen.path}")
    return seen.topics[name]


def _starts(logs: Mapping[int, PartitionLog], given: str, *, backwards: bool) -> dict[int, int]:
    """Returns where a search begins in each partition: at an offset, at a time, or at the end that is first."""
    if not given:
        return {number: log.end_offset if backwards else log.start_offset for number, log in logs.items()}
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
        raise InvalidArgumentError(f"{text!r} is neither an offset nor a time; write 1042, or 2026-01-31T17:00") from error
    found = timestamp_of(given if given.tzinfo is not None else given.replace(tzinfo=UTC))
    return max(0, found or 0)


def _row(log: PartitionLog, number: int, offset: int, *, backwards: bool) -> FoundRecord:
    """Returns the record at an offset, or the next one in a direction: offsets may be missing.

    Raises:
        OffsetOutOfRangeError: there is none.
    """
    query, cursor = Query(backwards=backwards), {number: offset + backwards}
    while True:
        page = search({number: log}, query, cursor, log.clock, 1)
        if page.rows:
            return page.rows[0]
        if page.is_done:
            break
        cursor = page.cursor
    direction = "at or before" if backwards else "at or after"
    ends = f"offsets {log.start_offset} to {log.end_offset}"
    message = f"{log.partition.topic}-{number} has no record {direction} {offset}; it has {ends}"
    raise OffsetOutOfRangeError(message, offset=offset)


# ---- data --------------------------------------------------------------------------------------------------------------------


def _store_data(seen: Observation) -> dict[str, object]:
    return {
        "path": seen.path,
        "at_ms": seen.at_ms,
        "free_bytes": seen.free,
        "topics": [_topic_data(each) for each in seen.topics.values()],
        "groups": [_group_data(each) for each in seen.groups.values()],
    }


def _topic_data(topic: TopicSeen) -> dict[str, object]:
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "offsets": topic.offsets,
        "bytes": topic.size,
        "rate": topic.rate,
        "options": asdict(topic.config),
        "partitions": [{**asdict(each), "partition": each.partition.partition, "bytes": each.size} for each in topic.partitions],
    }


def _group_data(group: GroupSeen) -> dict[str, object]:
    return {
        "group": group.name,
        "state": group.state,
        "verdict": str(group.health.verdict),
        "lag": group.lag,
        "lag_seconds": group.health.lag_seconds,
        "members": [asdict(each) for each in group.members],
        "partitions": [
            {**asdict(each), "partition": each.partition.partition, "topic": each.partition.topic}
            for each in group.health.partitions
        ],
    }


def _found_data(found: SearchPage) -> dict[str, object]:
    return {
        "records": [row._asdict() for row in found.rows],
        "cursor": cursor_text(found.cursor),
        "searched_offsets": found.searched,
        "done": found.is_done,
    }
