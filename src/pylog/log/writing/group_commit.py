"""`GroupCommit`: commits the requests that wait together, with one lock, one write and one sync. `requests` has their queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pylog import limits
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import PylogError, RecordTooLargeError
from pylog.log.recovery.loaded import Source
from pylog.log.writing.refitting import DecidedRequest, refit
from pylog.log.writing.requests import Request, RequestGroup, Requests, encoded_group, grouped
from pylog.log.writing.writer import LogWriter
from pylog.metrics import Counters
from pylog.record.ahead import one_ahead


class GroupCommit:
    """The appends of one partition: their queue, and the commit of those that wait together.

    Args:
        source, clock, counters: the partition's.
        current: returns the writer of the log as it is now. Called under both locks.
        give_up: closes a writer whose files were replaced.

    Attributes:
        requests: the queue.
        appending: requests are being committed, by the thread that has the lock.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        counters: Counters,
        current: Callable[[], LogWriter],
        give_up: Callable[[LogWriter], None],
    ) -> None:
        assert source.lock is not None
        self._partition_lock = source.lock
        self._held = source.held
        self._source = source
        self._clock = clock
        self._counters = counters
        self._current = current
        self._give_up = give_up
        self.requests = Requests(clock)
        self.appending = False

    def commit(self, requests: list[Request]) -> None:
        """Commits some requests with one lock, one check, one write and one sync. Under the log's lock."""
        lock = self._partition_lock
        before = lock.depth
        try:
            self.appending = True
            if not lock.enter(requests[0].began):
                self._refuse_late(requests)
                return
            try:
                self._commit_current(requests)
            finally:
                lock.leave()
        except BaseException as error:
            lock.restore(before)
            for request in requests:
                if not request.done:
                    request.refuse(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self.appending = False

    def _commit_current(self, requests: list[Request]) -> None:
        """Does the same under both locks."""
        writer = self._current()
        only = requests[0] if len(requests) == 1 else None
        if only and only.producer is None and only.options is self._source.options.now:  # the usual case
            if only.check is not None:
                only.check()
            self._commit_group(RequestGroup([(only, writer.published.state.end_offset)], only.level, only.size), writer)
        elif only:
            if self._fits(only) and not self._is_settled(only, writer):
                self._commit_group(grouped(requests, writer.published.state.end_offset), writer)
        else:
            for group in self._groups(filter(self._fits, requests), writer):
                self._commit_group(group, writer)
        if self._held.failure is not None:
            self._give_up(writer)

    def _refuse_late(self, requests: list[Request]) -> None:
        """Refuses the requests that have waited for the lock's whole timeout, as the first one has. The others wait on.

        So none waits for two timeouts: its own, and that of the request that was committed before it.
        """
        lock = self._partition_lock
        late = [request for request in requests if request is requests[0] or lock.is_late(request.began)]
        self.requests.put_back([request for request in requests if request not in late])
        for request in late:
            request.refuse(lock.refused())

    def _fits(self, request: Request) -> bool:
        """Returns whether a request fits the current options. An older request is checked again, and may be refused."""
        options = self._source.options.now
        try:
            if request.options is not options:
                refit(request, options, self._clock.now_ms())
            if request.check is not None:
                request.check()
        except PylogError as error:  # raised by the requesting thread
            request.refuse(error)
            return False
        return True

    def _groups(self, requests: Iterable[Request], writer: LogWriter) -> Iterator[RequestGroup]:
        """Groups requests. A producer's second one begins another group, because its numbers are checked after the first."""
        together: list[Request] = []
        numbered: set[int] = set()
        for request in requests:
            numbers = request.producer
            if numbers is not None and numbers.producer_id in numbered:
                yield grouped(together, writer.state.end_offset)
                together, numbered = [], set()
            if self._is_settled(request, writer):
                continue
            if numbers is not None:
                numbered.add(numbers.producer_id)
            together.append(request)
        if together:
            yield grouped(together, writer.state.end_offset)

    @staticmethod
    def _is_settled(request: Request, writer: LogWriter) -> bool:
        """Returns whether a request needs no write: it is a duplicate, decides to append nothing, or is refused."""
        if request.producer is None and not isinstance(request, DecidedRequest):
            return False
        writer.stop.check()  # otherwise records that the previous group failed to write would count as duplicates
        try:
            known = _known_offsets(request, writer)
        except PylogError as error:  # raised by the requesting thread
            request.refuse(error)
            return True
        if known is not None:
            if request.level == Durability.SYNC:
                writer.flush()  # it may have a lower durability, or no acknowledgement yet
            request.acknowledge(known, request.level, duplicate=True)
        return known is not None

    def _commit_group(self, group: RequestGroup, writer: LogWriter) -> None:
        published = writer.published
        first = published.state.end_offset
        failure: BaseException | None = None
        try:
            stamp = self._clock.now_ms() if self._source.options.now.config.log_append_time else None
            encoded = encoded_group(group, writer.leader_epoch, stamp)
            if group.size <= limits.APPEND_CHUNK_BYTES:
                writer.append(encoded, group.level, group.size)
            else:
                with one_ahead(iter(encoded)) as ahead:
                    writer.append(ahead, group.level, group.size)
            self._counters.wrote(published.state.end_offset - first, writer.put_ms)
        except BaseException as error:  # noqa: BLE001 - raised by the requesting threads
            failure = error
        if isinstance(failure, RecordTooLargeError) and len(group.requests) > 1:  # commit one by one: only one of them fails
            for request, _ in group.requests:
                self._commit_group(grouped([request], writer.state.end_offset), writer)
            return
        group.settle(published.state.end_offset, failure)
        if failure is not None and not isinstance(failure, Exception):
            raise failure


def _known_offsets(request: Request, writer: LogWriter) -> range | None:
    """Returns the offsets of records that need no write; None if the request's records must be written.

    Raises:
        PylogError: the request is refused.
    """
    if isinstance(request, DecidedRequest):
        return None if request.decide(writer.producers) else range(0)
    assert request.producer is not None
    known = writer.producers.check(request.producer, request.count)
    return None if known is None else range(known.first_offset, known.last_offset + 1)
