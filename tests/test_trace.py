"""Nothing is deleted, moved, recovered, reassigned or altered without a line in `logging` that says what and why."""

from __future__ import annotations

import ast
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
import support.archive_scenes
import support.kernel_scenes  # noqa: F401 - registers its scenes
from pylog import trace
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem
from support.faults.interruptions import interrupted_at_step
from support.scenes import (
    NOW,
    SCENES,
    a_member_does_not_poll,
    a_topic_lives,
    an_administrator_works,
    fill,
    opened,
    retention_deletes,
)
from test_tidy import SOURCES, house

PAGE = SOURCES.parent / "docs" / "reference" / "log-lines.md"


class Lines(logging.Handler):
    """Keeps what is logged below "pylog"."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, event: trace.Event) -> list[Any]:
        there = [each for each in self.records if each.name == event.logger]
        return [each for each in there if getattr(each, "pylog", {}).get("event") == event.name]

    def facts(self, event: trace.Event) -> list[dict[str, Any]]:
        return [{name: value for name, value in each.pylog.items() if name != "event"} for each in self.of(event)]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("pylog")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


# ---- the rules -----------------------------------------------------------------------------------------------------------


def names_of(events: tuple[trace.Event, ...]) -> list[str]:
    return [name for name, value in vars(trace).items() if value in events]


@pytest.mark.damaged("scenes break files and stop in the middle of changes")
@pytest.mark.parametrize("name", names_of(trace.EVENTS))
def test_each_event_leaves_a_line_with_its_facts(name: str, tmp_path: Path, lines: Lines) -> None:
    SCENES[name](tmp_path)
    event: trace.Event = getattr(trace, name)
    found = lines.of(event)
    assert found
    for each in found:
        assert each.levelno == event.level
        assert each.getMessage().startswith(f"{event.sentence}: ")
        assert len(each.pylog) > 1
        assert "\n" not in each.getMessage()


def test_a_line_of_retention_says_which_offsets_are_deleted_and_by_which_option(tmp_path: Path, lines: Lines) -> None:
    retention_deletes(tmp_path)
    found = lines.facts(trace.SEGMENTS_DELETED)
    ranges = [(each["first"], each["end"], each["reason"]) for each in found]
    assert ranges == [(0, 2, "start_offset"), (2, 4, "size"), (4, 10, "time")]
    assert all(each["bytes"] == 170 * each["segments"] and each["newest"] == NOW for each in found)
    assert found[1]["retention_bytes"] == 1000
    assert found[2]["retention_ms"] == 1000
    assert found[0].items() >= {"topic": "orders", "partition": 0}.items()


def test_a_line_of_an_altered_topic_has_the_old_and_the_new_value_of_each_option(tmp_path: Path, lines: Lines) -> None:
    a_topic_lives(tmp_path)
    found = {each["option"]: (each["old"], each["new"]) for each in lines.facts(trace.TOPIC_ALTERED)}
    assert found == {"retention_ms": (1000, 604_800_000), "segment_bytes": (1 << 30, 5000)}


def test_a_line_of_an_expelled_member_has_the_reason(tmp_path: Path, lines: Lines) -> None:
    a_member_does_not_poll(tmp_path)
    (found,) = lines.facts(trace.MEMBER_EXPELLED)
    assert found["reason"] == "it did not poll for max_poll_interval_ms=10000"
    assert found["partitions"] in (["orders-0"], ["orders-1"])


def test_a_line_of_deleted_offsets_has_the_offsets(tmp_path: Path, lines: Lines) -> None:
    an_administrator_works(tmp_path)
    assert [each["offsets"] for each in lines.facts(trace.OFFSETS_DELETED)] == [["orders-0:0"], ["orders-0:7"]]
    (reset,) = lines.facts(trace.OFFSETS_RESET)
    assert (reset["old"], reset["new"], reset["reason"]) == (7, 0, "reset to earliest")


def test_text_from_outside_cannot_add_a_line_or_a_fact(lines: Lines) -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), clock=ManualClock(NOW)) as store:
        store.create_topic("orders")
        group = "a\nERROR all is lost: group=b"
        store.offsets.commit(group, {("orders", 0): 0})
        store.group(group).delete()
    (found,) = lines.of(trace.GROUP_DELETED)
    assert found.getMessage() == r"Deleted a group: group='a\nERROR all is lost: group=b' reason='Group.delete was called'"
    assert found.pylog["group"] == group


@pytest.mark.pair("retention by time", "truncation")
def test_a_handler_may_append_to_the_log_that_its_line_is_about(tmp_path: Path, lines: Lines) -> None:
    """Lines come when no lock is held: the handler's append meets a log that is whole."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock=clock) as store:
        store.create_topic("orders", segment_bytes=500, retention_ms=1000)
        log = store.log("orders")
        appended: list[int] = []

        class Appending(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.name in ("pylog.retention", "pylog.log"):
                    appended.append(store.log("orders").append(record.getMessage().encode(), timestamp=clock.now_ms()))

        handler = Appending(logging.INFO)
        logging.getLogger("pylog").addHandler(handler)
        try:
            fill(log)
            clock.advance(60_000)
            store.tick()
            fill(log)
            log.truncate(15)
        finally:
            logging.getLogger("pylog").removeHandler(handler)
        values = [record.value for record in log.records()]
        assert len(appended) >= 3
        assert sum(b"Deleted segments" in (value or b"") for value in values) == 1
        assert (values[-1] or b"").startswith(b"Truncated a log")


def test_a_handler_that_raises_breaks_nothing(tmp_path: Path, lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log's disk is full")

    handler = Raising(logging.INFO)
    logging.getLogger("pylog").addHandler(handler)
    try:
        retention_deletes(tmp_path)
    finally:
        logging.getLogger("pylog").removeHandler(handler)
    assert "the log's disk is full" in capsys.readouterr().err
    with pylog.open(tmp_path, "r") as store:
        assert store.log("orders").start_offset == store.log("orders").end_offset == 10


def test_no_line_is_given_to_a_handler_while_this_thread_holds_a_lock(lines: Lines) -> None:
    with trace.TELLING, trace.holding(), trace.TELLING, trace.holding():
        trace.later(trace.STORE_CLOSED, path="a")
        trace.write_queued()
        assert trace.is_holding()
        assert len(trace.waiting) == 1
    assert not trace.waiting
    seen: list[bool] = []

    def look() -> None:
        seen.append(trace.is_holding())

    thread = threading.Thread(target=look)
    with trace.TELLING, trace.holding():
        thread.start()
        thread.join()
    assert seen == [False]


@pytest.mark.slow
def test_an_interrupt_at_any_step_of_an_append_and_a_tick_holds_no_later_line_back(tmp_path: Path, lines: Lines) -> None:
    with opened(tmp_path) as store:
        store.create_topic("orders", segment_bytes=200)
        source = str(Path(trace.__file__).parent)
        for number in range(3, 2000, 41):

            def work() -> None:
                store.log("orders").append(b"x" * 50)
                store.alter_topic("orders", retention_ms=10**9 + number)  # noqa: B023 - called at once
                store.tick()

            if not interrupted_at_step(number, work, source):
                break
            assert not trace.is_holding()
            lines.records.clear()
            trace.line(trace.STORE_CLOSED, path=str(number))
            assert [found.pylog["path"] for found in lines.of(trace.STORE_CLOSED)] == [str(number)]


def test_a_line_says_once_that_retention_waits_for_a_group_and_once_that_it_does_so_no_more(tmp_path: Path, lines: Lines) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock=clock) as store:
        store.create_topic("orders", segment_bytes=500, retention_ms=1000, retention_group="g")
        log = store.log("orders")
        fill(log)
        clock.advance(60_000)
        for _ in range(3):
            store.tick()
        (waiting,) = lines.of(trace.GROUP_AWAITED)
        assert waiting.pylog["group"] == "g"
        assert waiting.pylog["committed"] == "none"
        assert waiting.pylog["first"] == 0
        assert waiting.pylog["segments"] > 1
        store.offsets.commit("g", {("orders", 0): log.end_offset})
        for _ in range(3):
            store.tick()
        assert len(lines.of(trace.GROUP_AWAITED)) == len(lines.of(trace.GROUP_AWAITED_NO_MORE)) == 1
        fill(log)
        clock.advance(60_000)
        store.tick()
        assert [found.pylog["committed"] for found in lines.of(trace.GROUP_AWAITED)] == ["none", 10]


def test_a_static_member_that_closes_leaves_a_line(tmp_path: Path, lines: Lines) -> None:
    with opened(tmp_path) as store:
        store.create_topic("orders")
        with store.consumer("orders", group_id="g", group_instance_id="one", session_timeout_ms=45_000) as consumer:
            consumer.poll(timeout_ms=0)
        (closed,) = lines.of(trace.STATIC_MEMBER_CLOSED)
        assert (closed.pylog["group"], closed.pylog["instance"], closed.pylog["session_timeout_ms"]) == ("g", "one", 45_000)
        assert not lines.of(trace.MEMBER_LEFT)
        with store.consumer("orders", group_id="g") as consumer:
            consumer.poll(timeout_ms=0)
        assert len(lines.of(trace.STATIC_MEMBER_CLOSED)) == 1


def test_appends_and_polls_leave_no_line(tmp_path: Path, lines: Lines) -> None:
    with opened(tmp_path) as store:
        store.create_topic("orders")
        log = store.log("orders")
        with store.consumer(group_id="billing", auto_offset_reset="earliest") as consumer, store.producer() as producer:
            consumer.subscribe(["orders"])
            consumer.poll()
            consumer.commit()
            lines.records.clear()
            for _ in range(5):
                log.append(b"x")
                producer.send("orders", b"y").get()
                consumer.poll()
                consumer.commit()
                list(log.records())
            assert lines.records == []


# ---- the page and the source ---------------------------------------------------------------------------------------------

_ROW = re.compile(r"\| `(pylog\.\w+)` \| (\w+) \| ([^|]+?) \| ([^|]+?) \|")


def test_the_page_lists_every_event_with_its_logger_level_and_sentence() -> None:
    rows = [found.groups() for line in PAGE.read_text().splitlines() if (found := _ROW.match(line))]
    expected = [(each.logger, logging.getLevelName(each.level), each.name, each.sentence) for each in trace.EVENTS]
    assert rows == expected


def test_no_two_events_of_a_logger_have_one_name() -> None:
    assert len({(each.subject, each.name) for each in trace.EVENTS}) == len(trace.EVENTS)


@pytest.mark.slow
def test_every_event_is_used() -> None:
    text = "".join(module.source for name, module in house().items() if name != "pylog.trace")
    assert [name for name in names_of(trace.EVENTS) if f"trace.{name}" not in text] == []


# Functions that remove, rename or cut files and leave no line themselves, each with its reason.
SILENT = {
    "pylog.restoring._Restore.run": "the marker of an unfinished restore; each partition has left a line",
    "pylog.restoring._Restore._restore_segment": "an unfinished file of an earlier try; the partition leaves a line",
    "pylog.fs.": "the file system itself",
    "pylog.objects.block_cache.BlockCache.": "copies of blocks of an object store, up to a bound",
    "pylog.testing.": "file systems for tests",
    "pylog.archive.leaving._write": "a note of what is left to do; each deletion in the archive left a line",
    "pylog.background_errors.": "a note for `pylog doctor`; each error left a line when it was noted",
    "pylog.root_directory.RootDirectory.leave_clean_state": "the marker says that nobody writes; no data",
    "pylog.log.writing.pending_deletions.PendingDeletions.sweep": "the deletion left a line when the files were renamed",
    "pylog.log.maintenance.trimming._rename_away": "its callers leave lines: retention and truncation",
    "pylog.log.maintenance.trimming.truncate": "leaves a line at its end",
    "pylog.log.maintenance.trimming._cut_transactions": "part of a truncation, which leaves a line at its end",
    "pylog.log.maintenance.trimming._remove_indexes": "derived from the segment that the truncation's line names",
    "pylog.log.maintenance.trimming._shortened": "an unfinished copy of an earlier try",
    "pylog.log.maintenance.segment_swap.": "compaction leaves one line for a whole log, in the cleaner",
    "pylog.log.writing.sealing.take_back": "files of a segment that was not begun",
    "pylog.log.writing.writer.LogWriter._undo": "a failed append; the caller has the error",
    "pylog.log.recovery.loader._remove_if_there": "its caller leaves a line",
    "pylog.log.recovery.producer_snapshots.drop_snapshots": "its caller leaves a line",
    "pylog.directory.locks.": "the owner's name in a lock file",
    "pylog.log.writing.active_file.": "cuts what was never acknowledged: zeros that were written ahead, or a failed append",
    "pylog.topics.deleting.rename_deleted": "the deletion leaves a line when the directory is removed",
    "pylog.topics.deleting._rename_and_remove": "the deletion leaves a line when the directory is removed",
    "pylog.topics.deleting._remove": "its caller leaves a line",
    "pylog.staging.file.StagingFile.discard": "rows of a task that failed; Spark runs it again",
    "pylog.transactions.staged.StagedTransactions.go_on": "the line of the micro-batch that it completes",
    "pylog.staging.names._remove": "its callers: the sweep leaves a line, a finished job needs its files no more",
    "pylog.spark.writer.": "rows of an aborted job; Spark reports it",
    "pylog.tools.repair._Execution": "repair leaves one line for a partition",
    "pylog.tools.graduate._remove": "its caller leaves a line",
    "pylog.cli.": "commands call the methods of the store",
}

_REMOVING = {"remove", "rename", "truncate", "remove_tree", "cut"}


def removals() -> Iterator[tuple[str, bool]]:
    """Each function that calls a method which removes, renames or cuts files, and whether it leaves a line."""
    for module in house().values():
        for owner, node in functions_of(module.tree):
            calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
            removing = [each for each in calls if each.attr in _REMOVING and "fs" in ast.unparse(each.value).lower()]
            removing += [
                each for each in calls if each.attr in ("cut", "truncate") and ast.unparse(each.value).endswith(("file", "raw"))
            ]
            named = [each.func for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
            removing += [each for each in named if each.id == "remove_derived"]
            told = any(ast.unparse(each) in ("trace.line", "trace.later") for each in calls)
            if removing:
                yield f"{module.name}.{owner}{node.name}", told


def functions_of(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield owner, node


@pytest.mark.slow
def test_every_function_that_removes_renames_or_cuts_files_leaves_a_line_or_has_a_reason() -> None:
    silent = [name for name, told in removals() if not told and not name.startswith(tuple(SILENT))]
    assert silent == [], "give it a line (pylog.trace), or a reason in SILENT"


@pytest.mark.slow
def test_no_reason_to_be_silent_outlives_its_function() -> None:
    there = [name for name, _ in removals()]
    assert [reason for reason in SILENT if reason != "pylog.cli." and not any(name.startswith(reason) for name in there)] == []
