"""The rules of the protocol (reliability 3, 10 to 12), each as a way to take it out of the engine.

The names are those of the model in which each rule was found to be needed. A rule is taken out by the smallest change of one
method; where the engine does more than the rule asks for, what is taken out is that too, and the reason stands beside it.

To each rule belongs a schedule under which its absence shows. Its events name calls, so that it outlives most changes of the
engine; when it does not, `missed` looks around.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from pylog.fs import process_id
from pylog.log.durable_point import FAILED, DurablePoint, DurablePointFile
from pylog.log.reading import follower
from pylog.log.reading.follower import Follower
from pylog.log.recovery import loader
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.writing import active_segment
from pylog.log.writing.published_state import PublishedState
from pylog.log.writing.writer import LogWriter
from support.campaign.protocol import Outcome, neighbour, run_once, usual_places
from support.campaign.scheduler import Schedule

Patches = contextlib.AbstractContextManager[Any]
NEIGHBOURS: Final = 300  # tried when a rule's own schedule does not show its absence


class Careless:
    """A file, or a file system, that leaves a call out."""

    def __init__(self, inner: Any, call: str) -> None:
        self._inner = inner
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name == self._call else getattr(self._inner, name)


def careless(method: str, call: str, holder: Callable[[LogWriter], Any], attribute: str) -> Patches:
    """A writer's method leaves a call out: one of what an attribute of the holder has when it begins."""
    original = getattr(LogWriter, method)

    def carelessly(self: LogWriter, *arguments: Any) -> Any:
        held = holder(self)
        inner = getattr(held, attribute)
        setattr(held, attribute, Careless(inner, call))
        try:
            return original(self, *arguments)
        finally:
            setattr(held, attribute, inner)

    return patch.object(LogWriter, method, carelessly)


def without_sync(method: str) -> Patches:
    """A writer's method does not sync the file that it appends to when it begins."""
    return careless(method, "sync", lambda writer: writer.active.file, "raw")


@contextlib.contextmanager
def both_of(first: Patches, second: Patches) -> Iterator[None]:
    with first, second:
        yield


# ---- the rules ---------------------------------------------------------------------------------------------------------------


def size() -> Patches:
    """The counter alone says that the log is as it was left; who dies in mid-append leaves it so, and bytes behind the end."""

    def is_current(self: LogWriter) -> bool:
        slot = self.header.slot
        return slot is not None and slot.epoch % 2 == 0 and not slot.flags and not self.header.changed()

    return patch.object(LogWriter, "is_current", is_current)


def odd() -> Patches:
    """Segments are made and go under an even epoch; that they did is said only afterwards."""

    def begin_change(self: PublishedState, *, durably: bool = False, **fields: Any) -> None:
        if fields:
            (self.header.write_both if durably else self.header.write)(**fields)

    def end_change(self: PublishedState, **fields: Any) -> None:
        self.header.write_both(epoch=self.slot.epoch + 2, **fields)

    return patch.multiple(PublishedState, begin_change=begin_change, end_change=end_change)


def poison() -> Patches:
    """A failed sync is told nobody."""
    write = DurablePointFile.write

    def without_flag(self: DurablePointFile, **changes: Any) -> None:
        if changes.get("flags") != FAILED:
            write(self, **changes)

    return patch.object(DurablePointFile, "write", without_flag)


def both() -> Patches:
    """What is harmful when it is old is written into one slot, and not synced."""
    return patch.object(DurablePointFile, "write_both", DurablePointFile.write)


def bound() -> Patches:
    """Batches are written further apart than the header says that unsynced ones can be."""
    return patch.object(LogWriter, "_raise_bound", lambda self, level, size: None)


def rboot() -> Patches:
    """A reader believes the published end of another boot."""
    end_at_published = loader._end_at_published

    def whatever_the_boot(loaded: Loaded) -> None:
        loaded.same_boot = True
        end_at_published(loaded)

    return patch.object(loader, "_end_at_published", whatever_the_boot)


def early() -> Patches:
    """A writer's first slot is written with its first commit, not before its first byte."""

    def begin(self: DurablePointFile, slot: DurablePoint) -> None:
        known = self.refresh()
        counter = slot.counter if known is None else max(known.counter, slot.counter)
        self.slot = replace(slot, counter=counter, boot_mark=self.boot_mark, pid=process_id())

    return patch.object(DurablePointFile, "begin", begin)


def cutsync() -> Patches:
    """A failed append is cut off without a sync."""
    return without_sync("_undo")


def ino() -> Patches:
    """A file counts as the header's because it has its name.

    After a compaction alone that is not missed: brokers do not compact the last segment, and a header that names another one is
    told to be stale by that, or read after a restart, when the last segment is scanned. A file that was fetched anew is another
    matter.
    """
    own_slot = loader._own_slot

    def by_name(source: Source, loaded: Loaded, same_boot: bool) -> None:
        slot = loaded.found
        named = None if slot is None else loaded.segments.find(slot.active_base)
        if slot is not None and named is not None:
            loaded.found = replace(slot, active_inode=named.inode())
        own_slot(source, loaded, same_boot)
        loaded.found, loaded.slot = slot, None if loaded.slot is None else slot

    return patch.object(loader, "_own_slot", by_name)


def retry() -> Patches:
    """A slot that reads torn while it is written gives way to the older one, and a reader believes that.

    The header's memory alone is not missed: who reads an older slot finds that it knows more, and loads again; that takes a
    header no older than the one that it had seen.

    A reader first asks whether the header has changed. If that made it read the slots, the older one is overwritten already. The
    rule is missed if bytes past the published end made it read them: the header is still as it was, and changes during the read.
    """
    refresh, extend = DurablePointFile.refresh, Follower._extend

    def refresh_without_memory(self: DurablePointFile) -> DurablePoint | None:
        self.slot, self._seen = None, b""
        return refresh(self)

    def take(self: Follower, slot: DurablePoint, *, same_boot: bool) -> bool:
        if self._slot is not None and slot.epoch == self._slot.epoch and slot.counter < self._slot.counter:
            self._set_state(replace(self._state, active_size=slot.published_position, end_offset=slot.published_offset))
            return True
        return extend(self, slot, same_boot=same_boot)

    return both_of(patch.object(DurablePointFile, "refresh", refresh_without_memory), patch.object(Follower, "_extend", take))


def recheck() -> Patches:
    """Nobody looks at the header again after the files."""
    return patch.object(follower, "_is_of_one_epoch", lambda before, after: True)


def rollhdr() -> Patches:
    """The newest file counts as the active segment, whatever the header says; and a roll makes it before the old one is synced.

    The first alone is not missed: nothing is in a new file before the header names it, and what is in the old one by then,
    and not published yet, is synced; it can be read early, and does not vanish.
    """
    end_at_published = loader._end_at_published

    def with_newer_ones(loaded: Loaded) -> None:
        segments, sizes = loaded.segments, [segment.size for segment in loaded.segments]
        end_at_published(loaded)
        for index in range(len(loaded.segments) - 1, len(segments)):
            segments[index].size, segments[index].sealed = sizes[index], index < len(segments) - 1
        loaded.segments = segments

    return both_of(patch.object(loader, "_end_at_published", with_newer_ones), without_sync("roll"))


def dirsync() -> Patches:
    """A process that takes over syncs the file that it found, but not the file's name."""
    make_durable = active_segment.make_durable

    def without_names(source: Source, *rest: Any) -> None:
        make_durable(dataclasses.replace(source, fs=Careless(source.fs, "sync_directory")), *rest)

    return patch.object(active_segment, "make_durable", without_names)


class Rule(NamedTuple):
    """A rule: how to take it out, and when that shows."""

    taken_out: Callable[[], Patches]
    scenario: str
    schedule: str


RULES: Final[Mapping[str, Rule]] = {
    rule.taken_out.__name__: rule
    for rule in (
        Rule(size, "die", "W W V V W V / X X X; W@3.sync/0.log:kill"),
        Rule(odd, "roll", "W W V V W V / X X; W@3.create/2.log+1:kill"),
        Rule(poison, "syncfail", "W W W V R W V V R R / X X / Y Y; W@4.sync/0.log:sync:0, V@2.end:power:0"),
        Rule(both, "truncate", "W W W W W V V V R R R R / X X; W@4.truncate/0.log+2:power:1"),
        Rule(bound, "mixed", "W W V V V V V V / X X; V@6.end:power:14"),
        Rule(rboot, "power", "W W W V V R R R / S S X X T T; V@1.end:power:0"),
        Rule(early, "first", "R W R W R / X X; W@2.sync/0.log:stop:R, R@3.end:power:0"),
        Rule(cutsync, "full", "W W W W V V / X X; W@2.write/0.log#3:full, W@3.end:power:1"),
        Rule(ino, "refetch", "W W W / B / R R X X"),
        Rule(
            retry,
            "slots",
            "W W W R R R W W R / X X; R@3.size/0.log:stop:W, W@4.sync/0.log:stop:R, "
            "R@3.pread/durable-point#4:stop:W, W@5.write/durable-point#2:stop:R",
        ),
        Rule(recheck, "readers", "W W R W R W R R S S S S / X X; R@2.list/t-0:stop:W, W@4.create/3.log:stop:R"),
        Rule(rollhdr, "os", "W W W W / R R / X X S S S; W@4.end:power:0"),
        Rule(dirsync, "roll", "W W V V W V / X X; W@3.create/2.log+1:kill, V@3.end:power:0"),
    )
}


def missed(rule: Rule) -> Outcome | None:
    """A run that shows that a rule is taken out: of its own schedule, or one near it."""
    usual_places(rule.scenario)  # of the whole engine
    own = Schedule.parse(rule.schedule)
    with rule.taken_out():
        for schedule in (own, *(neighbour(own, seed) for seed in range(NEIGHBOURS))):
            outcome = run_once(rule.scenario, schedule)
            if outcome.problem is not None:
                return outcome
    return None
