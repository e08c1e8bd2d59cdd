"""`PublishedState`: what readers see of a log that this process writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pylog.fs import HeldDirectory
from pylog.log.durable_point import DurablePoint, DurablePointFile, SyncPoint
from pylog.log.producer_state import ProducerStateManager
from pylog.log.state import LogState
from pylog.log.writing.active_segment import ActiveSegment


class PublishedState:
    """The state that readers of this process see, and the slot of the shared header, which readers of other processes see.

    Not thread-safe: its `LogWriter` calls it under the partition's lock.

    Args:
        header: the shared header, with a slot.
        state: the log's.
        producers: the producer state, whose end follows the published one.
        held: checks that the log's names lead to its files.
        publish: receives each new state.

    Attributes:
        header, state: as given; the state is the last published one.
    """

    def __init__(
        self,
        header: DurablePointFile,
        state: LogState,
        producers: ProducerStateManager,
        held: HeldDirectory,
        publish: Callable[[LogState], None],
    ) -> None:
        self.header = header
        self.state = state
        self._producers = producers
        self._held = held
        self._publish = publish

    @property
    def slot(self) -> DurablePoint:
        """The current slot of the header."""
        assert self.header.slot is not None
        return self.header.slot

    # ---- the state -----------------------------------------------------------------------------------------------------------

    def with_written(self, active: ActiveSegment, slot: DurablePoint, durable_offset: int) -> LogState:
        """Returns the state with all written records, and its slot."""
        open_now = self._producers.open_transactions()
        return replace(
            self.state,
            epoch=slot.epoch,
            truncation_count=slot.truncation_count,
            active_size=active.size,
            end_offset=active.next_offset,
            durable_offset=durable_offset,
            first_unstable_offset=open_now[0].first_offset if open_now else None,
            open_transactions=open_now,
        )

    def change(self, **changes: Any) -> None:
        """Publishes the state with some fields changed."""
        slot = self.slot
        self.show(replace(self.state, epoch=slot.epoch, truncation_count=slot.truncation_count, **changes))

    def show(self, state: LogState) -> None:
        """Publishes a state."""
        self._producers.note_published(state.end_offset)
        self.state = state
        if state.active is not None:
            state.active.size = state.active_size
        self._publish(state)

    # ---- the header ----------------------------------------------------------------------------------------------------------

    def begin_change(self, **fields: Any) -> None:
        """Marks the start of a change of segments: other processes refresh when it is complete."""
        self._held.check()
        self.header.write(epoch=self.slot.epoch + 1, **fields)

    def begin_truncation(self, end: int, **fields: Any) -> None:
        """Marks the start of a truncation to `end`, durably. It counts even if the process dies before the end of the change."""
        self._held.check()
        self.header.note_truncation(end)
        self.header.write_both(epoch=self.slot.epoch + 1, truncation_count=self.slot.truncation_count + 1, **fields)

    def end_change(self, **fields: Any) -> None:
        """Marks the end of the change."""
        self.header.write_both(epoch=self.slot.epoch + 1, **fields)

    def sync_point(self, active: ActiveSegment) -> SyncPoint:
        """Returns the point that a sync of the active segment would make durable now."""
        return SyncPoint(active.file.raw, self.slot.epoch, active.size, active.next_offset)

    def note_durable(self, point: SyncPoint) -> None:
        """Notes a successful sync of a point, unless segments have changed since."""
        if point.epoch == self.slot.epoch and point.offset > self.state.durable_offset:
            self.header.write(durable_position=point.position, durable_offset=point.offset)
            self.change(durable_offset=point.offset)
