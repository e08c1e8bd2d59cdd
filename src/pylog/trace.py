"""Logs what pylog does on its own, through the standard library's `logging`: one line for everything that deletes, moves,
recovers, reassigns, or changes an option.

Each line is a sentence with facts after it, `Deleted segments: topic=orders partition=0 reason=time`. The same facts are in the
attribute `pylog` of the log record, a dict with the event's name. The loggers are children of `pylog`;
`docs/reference/log-lines.md` lists them. No line has a record's key, value or headers.

A handler is the user's code: it may be slow, may raise, and may append to the store that the line is about. So no handler runs
while the thread holds a log's lock. The modules below `pylog.log` call `later`, which queues the line; the outermost block that
holds a lock (`with TELLING, holding(), the_lock:`) passes it to the handlers once the lock is free.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

ROOT: Final = "pylog"
_PLAIN: Final = re.compile(r"[\w.,:;/@+>-]+", re.ASCII)
_LONGEST_VALUE: Final = 300
_MOST_ITEMS: Final = 20

logging.getLogger(ROOT).addHandler(logging.NullHandler())


class Event(NamedTuple):
    """A kind of event that is logged.

    Attributes:
        subject: the last word of the logger's name.
        name: the event's name, `record.pylog["event"]`.
        sentence: what happened.
        level: a level of `logging`.
    """

    subject: str
    name: str
    sentence: str
    level: int = logging.INFO

    @property
    def logger(self) -> str:
        """The logger's name."""
        return f"{ROOT}.{self.subject}"


# ---- the events --------------------------------------------------------------------------------------------------------------

STORE_OPENED: Final = Event("store", "opened", "Opened a store")
STORE_CLOSED: Final = Event("store", "closed", "Closed a store")
STORE_UNCLEAN: Final = Event("recovery", "unclean shutdown", "Found a store without a clean-shutdown marker")
HANDED_OVER: Final = Event("store", "handed over", "Wrote the files that hand a store over to a broker")
TAKEN_BACK: Final = Event("store", "taken back", "Removed the files that had handed a store over to a broker")

TOPIC_CREATED: Final = Event("topics", "created", "Created a topic")
TOPIC_ALTERED: Final = Event("topics", "altered", "Changed an option of a topic")
TOPIC_COMPACTED: Final = Event(
    "topics", "compacted", "Compaction will delete the records of a topic that have no key", logging.WARNING
)
PARTITIONS_ADDED: Final = Event("topics", "partitions added", "Added partitions to a topic")
PARTITION_COMPLETED: Final = Event("topics", "partition completed", "Completed a partition that a process had begun to create")
PARTITION_CREATED_AGAIN: Final = Event(
    "topics", "partition created again", "Created a missing partition again: its records are missing", logging.WARNING
)
PARTITION_DELETED: Final = Event("topics", "partition deleted", "Deleted a partition")
TOPIC_DELETED: Final = Event("topics", "deleted", "Deleted a topic")
DELETION_FINISHED: Final = Event("topics", "deletion finished", "Finished the deletion of partitions")
DELETION_DELAYED: Final = Event("topics", "deletion delayed", "Could not finish the deletion of a partition", logging.WARNING)
CHANGES_DELAYED: Final = Event("topics", "changes delayed", "Could not finish an earlier process's changes", logging.WARNING)
TOPICS_DROPPED: Final = Event("topics", "dropped", "Removed topics that a broker has deleted", logging.WARNING)
LEFTOVERS_REMOVED: Final = Event("topics", "leftovers removed", "Removed unfinished files of a dead process")

START_RAISED: Final = Event("retention", "start raised", "Raised the start of a log")
EPOCHS_LEFT_OUT: Final = Event("retention", "epochs left out", "Removed the leader epochs of a log, which are in its batches")
SEGMENTS_DELETED: Final = Event("retention", "deleted", "Deleted segments")
GROUP_AWAITED: Final = Event("retention", "waiting", "Keeps segments that a group has not read")
GROUP_AWAITED_NO_MORE: Final = Event("retention", "waiting ended", "Keeps no more segments for a group")

CLEANED: Final = Event("compaction", "cleaned", "Compacted a log")
CLEANING_ENDED: Final = Event("compaction", "given up", "Gave up the compaction of a log")
UNCLEANABLE: Final = Event("compaction", "uncleanable", "Will not compact a log again before it is opened again", logging.WARNING)

BEGUN_AGAIN: Final = Event(
    "log", "begun again", "Began a log without files at the offset that it had reached: its records are missing", logging.WARNING
)
TRUNCATED: Final = Event("log", "truncated", "Truncated a log")
DIRECTORY_REPLACED: Final = Event(
    "log", "directory replaced", "Found another directory or file under the name of an open one", logging.ERROR
)
WRITING_FAILED: Final = Event("log", "failed", "Stopped all writes to a log", logging.ERROR)
TRANSACTION_ABORTED: Final = Event("transactions", "aborted", "Aborted the transaction of a transactional id")
ORPHAN_ABORTED: Final = Event("transactions", "orphan aborted", "Aborted a transaction that was left open in a partition")
PRODUCER_ID_RENEWED: Final = Event(
    "transactions", "producer id renewed", "Gave a transactional id a new producer id", logging.WARNING
)
TRANSACTIONAL_IDS_EXPIRED: Final = Event("transactions", "expired", "Deleted the records of unused transactional ids")
TRANSACTION_INCOMPLETE: Final = Event(
    "transactions", "incomplete", "Could not write all markers of a transaction", logging.WARNING
)
TRANSACTIONS_UNREADABLE: Final = Event(
    "transactions", "unreadable", "Could not read the states of transactions, so none of them was finished", logging.WARNING
)
TRANSACTIONS_LEFT: Final = Event(
    "transactions",
    "left",
    "Could not finish the open transactions of a partition, and tries again at the next tick",
    logging.WARNING,
)
PRODUCERS_EXPIRED: Final = Event("log", "producers expired", "Removed the state of idle producers")

RECOVERED: Final = Event("recovery", "recovered", "Checked the end of a log that was not closed cleanly")
CHECKPOINT_UNREADABLE: Final = Event(
    "recovery", "checkpoint unreadable", "Ignores a checkpoint that it cannot read", logging.WARNING
)
DAMAGED_KEPT: Final = Event("recovery", "damaged file kept", "Replaced a damaged file and kept its bytes", logging.WARNING)
IN_TIER: Final = Event("recovery", "remote tier", "Opened a log that begins in a broker's remote tier", logging.WARNING)
CHECKPOINT_REFUSED: Final = Event("recovery", "checkpoint refused", "Left a checkpoint as it is", logging.WARNING)
TORN: Final = Event("recovery", "torn tail", "Found an unfinished write at the end of a log", logging.WARNING)
TORN_KEPT: Final = Event("recovery", "torn tail cut", "Cut an unfinished write off a log and kept its bytes", logging.WARNING)
CORRUPT: Final = Event("recovery", "corrupt", "Found damage in a log", logging.ERROR)
MISSING: Final = Event("recovery", "missing", "Found that records are missing from a log", logging.ERROR)
REBUILT: Final = Event("recovery", "rebuilt", "Rebuilt a file from the records")
IGNORED: Final = Event("recovery", "ignored", "Ignores a file that it cannot use, as if it were missing")
CHANGE_FINISHED: Final = Event("recovery", "change finished", "Finished a change of segments that a dead process had begun")
FILES_REMOVED: Final = Event("recovery", "files removed", "Removed files of segments that were deleted or replaced before")
SNAPSHOTS_REMOVED: Final = Event("recovery", "snapshots removed", "Removed producer snapshots after the end of a log")
CHECKPOINT_LOWERED: Final = Event("recovery", "checkpoint lowered", "Lowered a line of a checkpoint")
EPOCHS_CUT: Final = Event("recovery", "leader epochs cut", "Removed leader epochs after the end of a log")
BACKED_UP: Final = Event("recovery", "backed up", "Copied the files that a repair changes")
REPAIRED: Final = Event("recovery", "repaired", "Repaired a partition", logging.WARNING)
STAGING_REMOVED: Final = Event("recovery", "staging files removed", "Removed staging files of a dead job")
STAGING_KEPT: Final = Event(
    "recovery", "staging files kept", "Kept all staging files: the file of a query cannot be read", logging.WARNING
)

MEMBER_JOINED: Final = Event("groups", "joined", "A member joined its group")
MEMBER_LEFT: Final = Event("groups", "left", "A member left its group")
STATIC_MEMBER_CLOSED: Final = Event("groups", "static member closed", "A static member was closed and stays in its group")
MEMBER_EXPELLED: Final = Event("groups", "expelled", "Removed a member from its group")
MEMBER_FENCED: Final = Event("groups", "fenced", "A member is no longer in its group", logging.WARNING)
REBALANCED: Final = Event("groups", "rebalanced", "Assigned the partitions of a group again")
ASSIGNED: Final = Event("groups", "assigned", "A member took partitions")
REVOKED: Final = Event("groups", "revoked", "A member gave partitions up")
LOST: Final = Event("groups", "lost", "A member lost partitions", logging.WARNING)
NEW_PARTITIONS: Final = Event("groups", "new partitions", "Committed offset 0 of partitions that are new")
OFFSETS_RESET: Final = Event("groups", "offset reset", "Set the committed offset of a group")
OFFSETS_DELETED: Final = Event("groups", "offsets deleted", "Deleted committed offsets of a group")
OFFSETS_LEFT: Final = Event(
    "groups", "offsets left", "A topic is deleted, but what groups have committed for it could not be deleted", logging.WARNING
)
GROUP_DELETED: Final = Event("groups", "deleted", "Deleted a group")
MEMBERS_DISMISSED: Final = Event("groups", "dismissed", "Removed members of a stopped broker from a group")

TIER_LISTED: Final = Event("archive", "tier listed", "Listed a broker's tier, whose records of the segments are not here")
TIER_EPOCHS_WRONG: Final = Event(
    "archive", "tier epochs wrong", "Found leader epochs that contradict the batches of a broker's tier", logging.WARNING
)
TIER_LEFT_OUT: Final = Event("archive", "tier left out", "Left out a segment of a broker's tier: it is not in the log's epochs")
SEGMENT_ARCHIVED: Final = Event("archive", "segment archived", "Archived a segment")
ARCHIVE_FAILED: Final = Event("archive", "failed", "Could not reach or change the archive of a partition", logging.WARNING)
SEGMENT_RETIRED: Final = Event("archive", "retired", "Deleted a local segment that is in the archive")
OBJECTS_DELETED: Final = Event("archive", "objects deleted", "Deleted the objects of a segment from the archive")
ARCHIVE_DELETED: Final = Event("archive", "deleted", "Deleted the archive of a partition of a deleted topic")
SWEPT: Final = Event("archive", "swept", "Deleted an object that no manifest of its archive needs")
MANIFEST_DAMAGED: Final = Event("archive", "manifest damaged", "Ignores a damaged document of an archive", logging.ERROR)

ARCHIVE_KEPT: Final = Event("archive", "kept", "Keeps the archive of a topic that is about to be deleted")
ARCHIVED: Final = Event("archive", "archived", "Archived segments of a partition")
ARCHIVE_REFUSED: Final = Event("archive", "damaged segment", "Did not archive a damaged segment", logging.ERROR)
ARCHIVE_TAKEN_OVER: Final = Event("archive", "taken over", "Continues the archive of another directory", logging.WARNING)
RESTORED: Final = Event("archive", "restored", "Restored a partition from an archive")

POSITION_RESET: Final = Event("consumer", "position reset", "Set the position of a consumer by its auto_offset_reset")

KERNEL_COMPILED: Final = Event("kernels", "compiled", "Compiled a kernel, which was not in the cache")
COMPILER_REFUSED: Final = Event(
    "kernels", "refused", "Runs kernels in plain Python, because none can be compiled", logging.WARNING
)

SPARK_COMMITTED: Final = Event("spark", "committed", "Appended the rows of a Spark job")
SPARK_RESUMED: Final = Event("spark", "resumed", "Appended the rest of a micro-batch that a dead driver had decided")

EVENTS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Event))
_LOGGERS: Final = {event.subject: logging.getLogger(event.logger) for event in EVENTS}


# ---- giving lines to the handlers --------------------------------------------------------------------------------------------


class _TraceLine(NamedTuple):
    event: Event
    facts: dict[str, Any]


class _OfThread(threading.local):
    """Held by this thread while it holds locks. No other thread sees it, so it never blocks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


class _Telling:
    """Logs the queued lines at the end of a block, unless this thread still holds locks."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if waiting:
            write_queued()


_OF_THREAD: Final = _OfThread()
TELLING: Final = _Telling()
waiting: Final[deque[_TraceLine]] = deque()  # queued by `later`, in the order of the events


def wanted(event: Event) -> bool:
    """Returns whether any handler may accept an event. Call it before computing expensive facts."""
    logger = _LOGGERS[event.subject]  # not `isEnabledFor`: an interrupt inside it can leave a process-wide lock held
    return not logger.disabled and logger.manager.disable < event.level >= logger.getEffectiveLevel()


def line(event: Event, partition: tuple[str, int] | None = None, /, **facts: object) -> None:
    """Logs an event. If this thread holds locks, the line waits until they are free.

    Args:
        event: an event of this module.
        partition: the topic's name and the partition's number.
        facts: all other facts, in the order of the line. None is left out.
    """
    later(event, partition, **facts)
    if waiting:
        write_queued()


def later(event: Event, partition: tuple[str, int] | None = None, /, **facts: object) -> None:
    """Logs an event as `line` does, but at the next `write_queued`, even if this thread holds no locks. Cost: 1 µs."""
    if not wanted(event):
        return
    known = {} if partition is None else {"topic": partition[0], "partition": partition[1]}
    known |= {name: _fact(value) for name, value in facts.items() if value is not None}
    waiting.append(_TraceLine(event, known))


def holding() -> threading.RLock:
    """Returns a block in which this thread holds locks; lines wait until the outermost such block ends.

    Enter it with `with TELLING, holding(), ...`. It is a lock of the interpreter, which no interrupt leaves half entered or half
    left: a counter kept in Python would hold back the lines of its thread forever after an interrupt at the wrong moment.
    """
    return _OF_THREAD.lock


def is_holding() -> bool:
    """Returns whether this thread holds locks."""
    return bool(_OF_THREAD.lock._is_owned())  # type: ignore[attr-defined]  # every release of CPython has it


def write_queued() -> None:
    """Logs the queued lines, unless this thread holds locks."""
    if is_holding():
        return
    with holding():  # lines of a handler that uses pylog are logged by this loop
        try:
            while waiting:
                _log(waiting.popleft())
        except IndexError:  # another thread has logged it
            pass


def _log(waited: _TraceLine) -> None:
    event, facts = waited
    try:
        _LOGGERS[event.subject].log(event.level, "%s: %s", event.sentence, _Facts(facts), extra=_extra(event, facts))
    except Exception:  # noqa: BLE001 - raised by a handler: the logged work is done and stays done
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()


def _extra(event: Event, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"pylog": {"event": event.name, **facts}}


def _fact(value: object) -> object:
    """Returns a value as `record.pylog` holds it: numbers stay numbers, collections become lists."""
    if isinstance(value, str):
        return str(value)  # also the value of an enumeration
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return [_fact(item) for item in value] if isinstance(value, Iterable) else value


class _Facts:
    """Facts as text, formatted only if a handler needs it."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def __str__(self) -> str:
        return " ".join(f"{name}={text_of(value)}" for name, value in self._facts.items())


def text_of(value: object) -> str:
    """Formats a value for a line: quoted and escaped unless it is plain, and cut if it is long.

    >>> text_of("orders"), text_of("two words\\n"), text_of([1, 2])
    ('orders', "'two words\\\\n'", '1,2')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        more = f",+{len(value) - _MOST_ITEMS}" if len(value) > _MOST_ITEMS else ""
        return (",".join(map(text_of, value[:_MOST_ITEMS])) + more) or "none"
    text = str(value)
    text = text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
    return text if _PLAIN.fullmatch(text) else repr(text)


def names_of(found: Iterable[tuple[str, int]]) -> list[str]:
    """Returns partitions as the sorted names of their directories."""
    return [f"{topic}-{number}" for topic, number in sorted(found)]
