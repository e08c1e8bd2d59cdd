"""The state of an open log, kept up to date with what this process and others do."""

from __future__ import annotations

import threading
from threading import get_ident

from pylog import trace
from pylog.clock import Clock
from pylog.directory.locks import under
from pylog.errors import StorageFailedError
from pylog.fs import Gate, process_id
from pylog.log.reading import lookup
from pylog.log.reading.follower import Follower, load_live
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.segment_view import SegmentInfo
from pylog.log.state import LogState
from pylog.log.writing.partition_writer import LogContext, PartitionWriter
from pylog.metrics import Counters


class CurrentState:
    """The half of a `Log` that gives the state: this process's writer has it, or a follower of what others write.

    Args:
        source: the partition.
        clock: for waiting.
        surroundings: what the log asks of its store.
    """

    def __init__(self, source: Source, clock: Clock, surroundings: LogContext) -> None:
        self.partition = source.partition
        self.counters = Counters()  # what this process appended
        self._source = source
        self._clock = clock
        self._surroundings = surroundings
        self._is_exclusive = surroundings.exclusive
        self._lock = threading.RLock()
        self._closed = False
        self._gate = Gate(lookup.name(source.partition), source.directory, again="its store")
        self._pid = process_id()
        self._rests = 0  # of the writer, that the follower knows of
        self._state: LogState
        self._mutator: PartitionWriter | None = None
        if source.writable:
            self._mutator = PartitionWriter(source, clock, self._publish, surroundings, self.counters)
            self._lock = self._mutator.lock
            self._follow_on(self._mutator.loaded)
            if self._mutator.writer is not None:
                self._publish(self._mutator.writer.state)
        else:
            self._follow_on(load_live(source, clock))
            surroundings.found(self._follower.loaded.findings)
        remote = self._state.remote_offsets
        if remote:
            trace.line(trace.IN_TIER, self.partition, first=remote.start, last=remote.stop - 1, local_start=remote.stop)

    def _follow_on(self, loaded: Loaded) -> None:
        """Follows from what was loaded, until this process writes."""
        self._followed = loaded
        self._follower = Follower(self._source, self._clock, loaded, self._publish)

    def _check_open(self) -> None:
        self._gate.check()

    def _publish(self, state: LogState) -> None:
        self._state = state

    def look(self, *, committed: bool = False, settled: bool = False, reaching: int | None = None) -> LogState:
        """The state now: what other processes did is taken, unless this one is at work and will take it itself.

        Args:
            committed: also find the open transactions.
            settled: wait for what this process is about to change.
            reaching: an offset; nobody is asked if the log was known to end there or behind, though it may be cut or gone by now.

        Cost: one pread when nothing has changed.
        """
        inside, me = self._gate.inside, get_ident()
        inside.append(me)  # what `with self._gate` does, in half the time
        try:
            if self._gate.is_shut:
                raise self._gate.error()  # noqa: TRY301 - `check` is a call more, on the way of every append and read
            reached = reaching is not None and reaching <= self._state.end_offset
            if not reached and (settled or not self._is_exclusive):
                under(self._lock, self._take_changes, settled, wait=settled)
            return self._state_with_transactions() if committed else self._state
        except Exception as error:
            self._gate.explain(error)
            raise
        finally:
            inside.remove(me)

    def _state_with_transactions(self) -> LogState:
        """The state, in which the open transactions are known."""
        if self._mutator is None or self._mutator.writer is None:
            with self._lock:
                self._follower.know_transactions()
        return self._state

    def _current(self) -> LogState:
        """The state now, as `look` without arguments; asked for again only if another process may have changed the log.

        Cost: one pread, 1 µs. Where no header of pylog counts, as in a broker's directory, the log is asked for every 50 ms.
        """
        return self.look() if self._may_have_changed() else self._state

    def _may_have_changed(self) -> bool:
        """Whether another process may have changed the log since the state was published. Takes no lock."""
        if self._is_exclusive:
            return False
        mutator = self._mutator
        try:
            writer = None if mutator is None else mutator.writer
            if writer is not None:
                return writer.header.changed() or writer.is_catching_up  # in this order: what it takes is published before
            if mutator is not None and (mutator.loaded is not self._followed or mutator.rests != self._rests):
                return True
            return self._follower.may_have_changed()
        except StorageFailedError:  # closed by another thread
            return True

    def _take_changes(self, settled: bool) -> None:
        mutator = self._mutator
        if mutator is not None and mutator.at_work:
            return
        if mutator is None or mutator.writer is None:
            if mutator is not None and mutator.loaded is not self._followed:
                self._follow_on(mutator.loaded)
            if mutator is not None and mutator.rests != self._rests:
                self._rests = mutator.rests
                self._follower.forget()
            self._follower.look(settled=settled)
        elif mutator.writer.failure is None and not mutator.writer.is_current():
            mutator.take_changes_of_others(wait=settled)

    # ---- ends ----------------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The smallest offset that can be read here: of a log in a broker's remote tier the local log start offset."""
        return self.look().start_offset

    @property
    def remote_offsets(self) -> range:
        """The offsets before `start_offset` that only a Kafka broker's remote tier has; empty for a log that is all here.

        Reading without a start, and by time, raises OffsetOutOfRangeError if it would have to begin there.
        """
        return self.look().remote_offsets

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get, whichever process appended last. Cost: one pread."""
        return self.look().end_offset

    @property
    def durable_offset(self) -> int:
        """All records below outlive a power loss."""
        return self.look().durable_offset

    @property
    def stable_offset(self) -> int:
        """Where `read_committed` reading ends: before the earliest open transaction (storage-format 6.7.2)."""
        return self.look(committed=True).stable_offset

    @property
    def is_gone(self) -> bool:
        """Whether another process has deleted the partition."""
        return self._follower.gone or (self._mutator is not None and self._mutator.gone)

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The log's segments in numbers, oldest first: offsets, size, path. Cost: O(n), and one pread.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"paid", b"sent"])
        ...     [(segment.base_offset, segment.end_offset) for segment in store.log("orders").segments]
        [(0, 2)]
        """
        return self.look().described()

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """What was found when the log was loaded: a torn tail, damage, derived files that had to be made again."""
        return tuple((self._mutator or self._follower).loaded.findings)
