"""`Window`: the pages of a store, each as HTML and as data, from what a request asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from starlette.requests import Request

from pylog.errors import (
    ClosedError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    PylogError,
    UnknownTopicOrPartitionError,
)
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.recent_producers import recent_producers
from pylog.transactions.described import OpenTransactionDescription
from pylog.ui import asking, data, group_pages, health_pages, record_pages, storage_pages, store_pages, topic_pages, whole_record
from pylog.ui.batch_facts import batch_facts
from pylog.ui.directory_facts import facts_of
from pylog.ui.export import exported
from pylog.ui.fates import Fates, fates
from pylog.ui.hiding import hidden
from pylog.ui.html import PageFrame
from pylog.ui.matching import Query
from pylog.ui.observation import Observation, PartitionSeen, TopicSeen
from pylog.ui.search import FoundRecord, SearchPage, parsed_cursor, search
from pylog.ui.tail import tail
from pylog.ui.timeline import TimeBar, Timelines
from pylog.ui.watch import Watch
from pylog.ui.words import exact
from pylog.urls import is_url

_SEARCHES: Final = 4  # at the same time
_EXPORTS: Final = 4  # at the same time. Not counted as searches: one waits as long as its reader is slow
_PATIENCE_S: Final = 2.0  # of a request that waits for one of the others to end
Fact = TypeVar("Fact")


class BusyError(Exception):
    """Too many searches are running."""


class Page(NamedTuple):
    """A page in both forms.

    Attributes:
        html: makes the page.
        data: makes the same as an object for JSON.
        status: the HTTP status.
    """

    html: Callable[[PageFrame], str]
    data: Callable[[], object]
    status: int = 200


class Window:
    """The pages of a store.

    Args:
        watch: the store's watch.
        hide_values: true to show sizes in the place of values.

    Attributes:
        hides_values: as `hide_values`.
        early: the pages that are shown before the first observation is complete.
    """

    def __init__(self, watch: Watch, *, hide_values: bool = False) -> None:
        self._watch = watch
        self.hides_values = hide_values
        self.early = (self.overview, self.topics)
        self._timelines = Timelines(watch.manager)
        self._searches = threading.BoundedSemaphore(_SEARCHES)
        self._exports = threading.BoundedSemaphore(_EXPORTS)

    # ---- the whole store -----------------------------------------------------------------------------------------------------

    def overview(self, _: Request, seen: Observation) -> Page:
        """Returns the first page."""
        return Page(store_pages.overview, lambda: data.store_data(seen))

    def topics(self, request: Request, seen: Observation) -> Page:
        """Returns the list of topics."""
        asked = request.query_params
        order = asked.get("order") or "name"
        if order not in store_pages.TOPIC_ORDERS:
            raise InvalidArgumentError(f"order={order[:100]!r} is not one of {', '.join(store_pages.TOPIC_ORDERS)}")
        shown = store_pages.Listing(asked.get("find", ""), order, asked.get("turned") == "1", asked.get("internal") == "1")
        return Page(
            lambda frame: store_pages.topics(frame, shown), lambda: [data.topic_data(each) for each in seen.topics.values()]
        )

    def health(self, _: Request, seen: Observation) -> Page:
        """Returns the health of the directory."""
        verified = self._watch.verifying.state()
        opened = [each for topic in seen.topics.values() for each in self._open_transactions(topic)]
        opened.sort(key=lambda each: -each.duration_ms)
        noted = facts_of(self._watch.manager, seen)
        return Page(lambda frame: health_pages.health(frame, verified, opened, noted), lambda: data.verified_data(verified))

    def groups(self, _: Request, seen: Observation) -> Page:
        """Returns the list of groups."""
        return Page(group_pages.groups, lambda: [data.group_data(each) for each in seen.groups.values()])

    def group(self, request: Request, seen: Observation) -> Page:
        """Returns one group, with the course of its lag."""
        found = asking.group_in(request, seen)
        past = self._watch.lag_past(found.name)
        return Page(
            lambda frame: group_pages.group(frame, found, past),
            lambda: data.group_data(found) | {"past": [each._asdict() for each in past]},
        )

    # ---- one topic -----------------------------------------------------------------------------------------------------------

    def tab(self, request: Request, seen: Observation) -> Page:
        """Returns one of the pages of a topic."""
        topic, tab = asking.topic_in(request, seen), request.path_params["tab"]
        makers = {"records": self.records, "live": self.live, "segments": self.segments, "producers": self.producers}
        if tab in makers:
            return makers[tab](request, seen)
        plain = {
            "partitions": topic_pages.partitions,
            "groups": topic_pages.topic_groups,
            "options": topic_pages.options,
        }
        if tab not in plain:
            raise UnknownTopicOrPartitionError(f"topic {topic.name!r} has no page {tab!r}; it has {', '.join(topic_pages.TABS)}")
        return Page(lambda frame: plain[tab](frame, topic), lambda: data.topic_data(topic))

    def segments(self, request: Request, seen: Observation) -> Page:
        """Returns the segments of a topic, with what happens to them next."""
        topic = asking.topic_in(request, seen)
        committed = self._watch.offsets.position

        def of(each: PartitionSeen, log: PartitionLog) -> Fates:
            group = topic.config.retention_group
            return fates(each, log, topic.config, None if group is None else committed(group, each.partition), seen.at_ms)

        page, found = self._of_each(request, topic, of)
        return Page(
            lambda frame: storage_pages.segments(frame, topic, found, page),
            lambda: (
                data.topic_data(topic)
                | {"fates": {number: each if isinstance(each, str) else each.__dict__ for number, each in found.items()}}
            ),
        )

    def producers(self, request: Request, seen: Observation) -> Page:
        """Returns the producers of a topic, and its open transactions."""
        topic = asking.topic_in(request, seen)
        page, found = self._of_each(request, topic, lambda _, log: log.answer(recent_producers))
        opened = self._open_transactions(topic)
        return Page(
            lambda frame: storage_pages.producers(frame, topic, found, opened, page),
            lambda: {
                "producers": {
                    number: each if isinstance(each, str) else [one._asdict() for one in each] for number, each in found.items()
                },
                "open_transactions": [vars(each) if hasattr(each, "__dict__") else str(each) for each in opened],
            },
        )

    def _open_transactions(self, topic: TopicSeen) -> Sequence[OpenTransactionDescription]:
        found: list[OpenTransactionDescription] = []
        for each in topic.partitions:
            if each.damage is None and each.stable_offset < each.end_offset:
                try:
                    found += self._watch.transactions.find_open(topic.name, each.partition.partition)
                except ClosedError:
                    raise
                except PylogError:  # the partition is reported as damaged, or was deleted
                    continue
        return found

    def _of_each(
        self, request: Request, topic: TopicSeen, find: Callable[[PartitionSeen, PartitionLog], Fact]
    ) -> tuple[int, dict[int, Fact | str]]:
        """Returns something about each partition of a page of partitions, or why it cannot be read."""
        given = request.query_params.get("page", "0")
        last = max(0, len(topic.partitions) - 1) // storage_pages.PARTITIONS
        page = min(int(given), last) if given.isascii() and given.isdecimal() and len(given) < 9 else 0
        found: dict[int, Fact | str] = {}
        begin = page * storage_pages.PARTITIONS
        for each in topic.partitions[begin : begin + storage_pages.PARTITIONS]:
            try:
                if each.damage is not None:
                    found[each.partition.partition] = each.damage
                    continue
                found[each.partition.partition] = find(each, self._watch.manager.log(*each.partition))
            except ClosedError:
                raise
            except PylogError as error:
                found[each.partition.partition] = str(error)
        return page, found

    # ---- records -------------------------------------------------------------------------------------------------------------

    def records(self, request: Request, seen: Observation) -> Page:
        """Returns a page of a search."""
        topic, asked, query, forms = asking.topic_in(request, seen), asking.fields_of(request), Query(), asking.AS_IT_IS
        try:
            forms = asking.forms_of(request)
            query = self._query(asked)
            found = self._found(topic, query, asked)
        except (InvalidArgumentError, BusyError) as error:
            sentence, status = str(error), 503 if isinstance(error, BusyError) else 400
            return Page(
                lambda frame: record_pages.records(frame, topic, query, asked, None, forms=forms, problem=sentence),
                lambda: {"error": sentence},
                status,
            )
        bars = () if "cursor" in asked else self._bars(topic)
        return Page(
            lambda frame: record_pages.records(frame, topic, query, asked, found, bars, forms),
            lambda: data.found_data(found) | {"timeline": [each._asdict() for each in bars]},
        )

    def _bars(self, topic: TopicSeen) -> Sequence[TimeBar]:
        """Returns the timeline of a topic; none if a partition cannot be read."""
        if is_url(self._watch.manager.path):
            return ()
        try:
            return self._timelines.of(topic, asking.logs_of(self._watch.manager, topic, ""))
        except ClosedError:
            raise
        except PylogError:
            return ()

    def _found(self, topic: TopicSeen, query: Query, asked: dict[str, str]) -> SearchPage:
        with _one_of(self._searches, f"{_SEARCHES} searches"):
            logs = asking.logs_of(self._watch.manager, topic, asked.get("partition", ""))
            found = search(logs, query, asking.cursor_of(logs, asked, backwards=query.backwards), self._watch.manager.clock)
        return replace(found, rows=self._shown(found.rows))

    def _query(self, asked: dict[str, str]) -> Query:
        backwards = asked.get("direction", "back") == "back"
        return Query(asked.get("find", ""), asked.get("how", "contains"), backwards, not self.hides_values)

    def _shown(self, rows: list[FoundRecord]) -> list[FoundRecord]:
        return list(map(hidden, rows)) if self.hides_values else rows

    def export(self, request: Request, seen: Observation, form: str) -> tuple[str, Iterator[bytes]]:
        """Returns the name of a file, and all that a search finds as its parts.

        Raises:
            BusyError: too many exports are running. InvalidArgumentError: a field is wrong.
        """
        topic, asked = asking.topic_in(request, seen), asking.fields_of(request)
        query = self._query(asked)
        logs = asking.logs_of(self._watch.manager, topic, asked.get("partition", ""))
        begin = asking.cursor_of(logs, asked, backwards=query.backwards)
        parts = self._parts(exported(form, logs, query, begin, self._watch.manager.clock, self._shown))
        return f"{topic.name}.{form}", parts

    def _parts(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        with _one_of(self._exports, f"{_EXPORTS} exports"):
            yield b""  # begun: what is wrong before the first record is an error page
            yield from parts

    def live(self, request: Request, seen: Observation) -> Page:
        """Returns the newest records."""
        topic, asked = asking.topic_in(request, seen), asking.fields_of(request)
        topic_id = self._watch.manager.topic(topic.name).id or ""  # before its logs: the next request notices another one
        logs = asking.logs_of(self._watch.manager, topic, asked.get("partition", ""))
        of_another = request.query_params.get("topic_id", topic_id) != topic_id
        found = tail(logs, parsed_cursor(asked["cursor"]) if "cursor" in asked else {}, of_another=of_another)
        found = replace(found, rows=self._shown(found.rows))
        forms = asking.forms_of(request)
        return Page(
            lambda frame: record_pages.live(frame, topic, topic_id, found, forms), lambda: data.tail_data(found, topic_id)
        )

    def record(self, request: Request, seen: Observation) -> Page:
        """Returns one record, whole, with the facts of its batch."""
        topic, number, forms = asking.topic_in(request, seen), asking.number_in(request, "partition"), asking.forms_of(request)
        log, row = self._record(request, topic, number)
        facts = {
            "Partition": f"{topic.name}-{number}",
            "Offset": str(row.offset),
            "Timestamp": f"{exact(row.timestamp)} ({row.timestamp})",
            **batch_facts(log, row.offset),
        }
        [shown] = self._shown([row])
        return Page(
            lambda frame: whole_record.record(frame, topic, shown, forms, facts), lambda: shown._asdict() | {"facts": facts}
        )

    def _record(self, request: Request, topic: TopicSeen, number: int) -> tuple[PartitionLog, FoundRecord]:
        log = self._watch.manager.log(topic.name, number)
        backwards = request.query_params.get("direction") == "back"
        return log, _row(log, number, asking.number_in(request, "offset"), backwards=backwards)

    def part(self, request: Request, seen: Observation) -> tuple[str, bytes]:
        """Returns the name of a file, and the key or the value of a record as its content.

        Raises:
            UnknownTopicOrPartitionError: a record has no such part. InvalidArgumentError: this window hides values.
        """
        topic, number = asking.topic_in(request, seen), asking.number_in(request, "partition")
        name = request.path_params["part"]
        if name not in ("key", "value"):
            raise UnknownTopicOrPartitionError(f"a record has no part {name[:100]!r}; it has key and value")
        if name == "value" and self.hides_values:
            raise InvalidArgumentError("this window hides values")
        _, row = self._record(request, topic, number)
        return f"{topic.name}-{number}-{row.offset}.{name}", (row.key if name == "key" else row.value) or b""


@contextmanager
def _one_of(slots: threading.BoundedSemaphore, what: str) -> Iterator[None]:
    if not slots.acquire(timeout=_PATIENCE_S):
        raise BusyError(f"{what} are running, and more would slow down everything; try again in a moment")
    try:
        yield
    finally:
        slots.release()


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
