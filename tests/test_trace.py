"""Nothing is deleted, moved, recovered, reassigned or altered without a line in `logging` that says what and why."""

from __future__ import annotations

import ast
import logging
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, OffsetsConfig, TopicPartition, trace
from pylog.clock import ManualClock
from pylog.fs import OsFileSystem, parent_process
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch, commit_job
from pylog.staging.intents import Intent, PartitionIntent, write_intent
from pylog.staging.names import StagingName
from pylog.testing import MemoryFileSystem
from pylog.tools.graduate import carry_out, plan_graduation, take_back
from pylog.tools.repair import repair
from support.faults.faulty_fs import Faults, FaultyFileSystem
from support.faults.repairs import variant
from support.spark.staged import QUERY, stage
from test_tidy import SOURCES, house

NOW = 1_700_000_000_000
PAGE = SOURCES.parent / "docs" / "reference" / "log-lines.md"

Scene = Callable[[Path], None]
SCENES: dict[str, Scene] = {}


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


def scene(*names: str) -> Callable[[Scene], Scene]:
    """What produces some events, by the names that they have in `pylog.trace`."""

    def note(function: Scene) -> Scene:
        SCENES.update(dict.fromkeys(names, function))
        return function

    return note


def opened(path: Path, **options: Any) -> pylog.Store:
    few = OffsetsConfig(topic_num_partitions=1)
    return pylog.open(path, clock=options.pop("clock", ManualClock(NOW)), durability=Durability.OS, offsets=few, **options)


def fill(log: pylog.Log, count: int = 10, **given: Any) -> None:
    for _ in range(count):
        log.append(b"x" * 100, **given)


# ---- what produces each event --------------------------------------------------------------------------------------------


@scene("STORE_OPENED", "STORE_CLOSED", "TOPIC_CREATED", "TOPIC_ALTERED", "PARTITIONS_ADDED", "PARTITION_DELETED", "TOPIC_DELETED")
def a_topic_lives(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2, retention_ms=1000)
        fill(store.log("orders"))
        store.alter_topic("orders", retention_ms=None, segment_bytes=5000)
        store.add_partitions("orders", 3)
        store.delete_topic("orders")


@scene("STORE_UNCLEAN", "TORN", "TORN_KEPT", "RECOVERED")
def a_write_is_cut_off(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
    (path / ".kafka_cleanshutdown").unlink()
    with (path / "orders-0" / f"{0:020}.log").open("ab") as file:
        file.write((10).to_bytes(8, "big") + b"garbage")
    with opened(path) as store:
        fill(store.log("orders"), 1)


@scene("TOPIC_COMPACTED")
def a_topic_becomes_compact(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
        store.alter_topic("orders", cleanup_policy="compact")


@scene("PARTITION_COMPLETED")
def a_partition_is_completed(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2)
    (path / "orders-1" / "partition.metadata").unlink()
    (path / "orders-1").rmdir()
    opened(path).close()


@scene("DELETION_FINISHED")
def a_deletion_is_finished(path: Path) -> None:
    _stop_in_deletion(path)
    opened(path).close()


def _stop_in_deletion(path: Path) -> None:
    class Stopping(OsFileSystem):
        def remove_tree(self, path: str) -> None:
            raise pylog.StorageFailedError(f"{path}: stopped", path=path, errno=5)

    store = opened(path, fs=Stopping())
    store.create_topic("orders")
    fill(store.log("orders"))
    with pytest.raises(pylog.StorageFailedError):
        store.delete_topic("orders")
    store.close()


@scene("DELETION_DELAYED")
def a_deletion_is_delayed(path: Path) -> None:
    _stop_in_deletion(path)

    class Stopping(OsFileSystem):
        def remove_tree(self, path: str) -> None:
            raise pylog.StorageFailedError(f"{path}: stopped", path=path, errno=5)

    opened(path, fs=Stopping()).close()


@scene("TOPICS_DROPPED")
def a_broker_has_deleted_a_topic(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
    (path / "orders-0" / "partition.metadata").unlink()
    (path / "orders-0").rmdir()
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    opened(path).close()


@scene("LEFTOVERS_REMOVED")
def a_leftover_is_removed(path: Path) -> None:
    opened(path).close()
    (path / "recovery-point-offset-checkpoint.tmp").write_text("0\n")
    opened(path).close()


@scene("START_RAISED", "SEGMENTS_DELETED")
def retention_deletes(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", segment_bytes=200, retention_ms=1000, retention_bytes=1000)
        fill(store.log("orders"))
        store.log("orders").delete_records(2)
        store.tick()
        clock.advance(60_000)
        store.tick()


@scene("CLEANED")
def compaction_cleans(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("prices", segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        fill(store.log("prices"), key=b"k")
        store.tick()


@scene("CLEANING_ENDED", "UNCLEANABLE")
def compaction_meets_damage(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("prices", segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        fill(store.log("prices"), key=b"k")
    file = path / "prices-0" / f"{0:020}.log"
    file.write_bytes(file.read_bytes()[:-20] + b"?" * 20)
    store = opened(path)
    with pytest.raises(pylog.CorruptionError):
        store.tick()
    store.close()


@scene("TRUNCATED", "CHECKPOINT_LOWERED", "FILES_REMOVED", "SNAPSHOTS_REMOVED")
def a_log_is_truncated(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
    with opened(path) as store:
        store.log("orders").truncate(3)


@scene("EPOCHS_CUT")
def a_log_is_truncated_below_its_epoch(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
    (path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 5\n")
    with opened(path) as store:
        store.log("orders").truncate(3)


@scene("WRITING_FAILED")
def a_sync_fails(path: Path) -> None:
    fs = FaultyFileSystem()
    store = pylog.open(path, fs=fs, clock=ManualClock(NOW))
    store.create_topic("orders")
    store.log("orders").append(b"x")
    fs.faults = Faults({"sync": {1}})
    with pytest.raises(pylog.StorageFailedError):
        store.log("orders").append(b"x")
    store.close()


@scene("PRODUCERS_EXPIRED")
def producers_expire(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", producer_id_expiration_ms=1000)
        store.log("orders").append_batch([b"x"], producer=pylog.ProducerBatch(7, 0, 0))
        clock.advance(60_000)
        store.tick()


@scene("CORRUPT")
def damage_is_found(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        for _ in range(3):
            store.log("orders").append(b"x" * 100, durability=Durability.SYNC)
    (path / ".kafka_cleanshutdown").unlink()
    file = path / "orders-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[8:12] = b"\0\0\0\0"
    file.write_bytes(data)
    (path / "orders-0" / "pylog-durable-point").unlink(missing_ok=True)
    for entry in (path / "orders-0").glob("*"):
        if entry.suffix in (".index", ".timeindex", ".snapshot", ".seal"):
            entry.unlink()
    store = opened(path)
    with pytest.raises(pylog.CorruptionError):
        store.log("orders").append(b"x")
    store.close()


@scene("MISSING")
def records_are_missing(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
    last = max((path / "orders-0").glob("*.log"))
    for entry in list((path / "orders-0").iterdir()):
        if entry.name.startswith(last.stem) and not entry.name.endswith("snapshot"):
            entry.unlink()
    with opened(path) as store:
        store.log("orders")


@scene("REBUILT")
def a_derived_file_is_rebuilt(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
    (path / "orders-0" / "leader-epoch-checkpoint").write_text("no checkpoint")
    with opened(path) as store:
        store.log("orders")


@scene("CHECKPOINT_UNREADABLE")
def a_checkpoint_cannot_be_read(path: Path) -> None:
    opened(path).close()
    (path / "recovery-point-offset-checkpoint").write_text("no checkpoint")
    opened(path).close()


@scene("CHANGE_FINISHED")
def a_truncation_is_finished(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("prices", segment_bytes=200, cleanup_policy="compact")
        fill(store.log("prices"), key=b"k")
        store.compact("prices")
    first = path / "prices-0" / f"{0:020}.index"
    first.rename(first.with_name(first.name + ".swap"))
    seal = path / "prices-0" / f"{0:020}.seal"
    seal.rename(seal.with_name(seal.name + ".swap"))
    log = path / "prices-0" / f"{0:020}.log"
    log.rename(log.with_name(log.name + ".swap"))
    with opened(path) as store:
        store.log("prices")


@scene("BACKED_UP", "REPAIRED")
def a_partition_is_repaired(path: Path) -> None:
    root = variant("flip-payload-middle").copy(path / "root")
    repair(str(root), "skip", execute=True, backup=str(path / "copies"))


@scene("STAGING_REMOVED")
def staging_files_are_removed(path: Path) -> None:
    opened(path).close()
    dead = parent_process(OsFileSystem().boot_id())._replace(started=1)
    (path / StagingName("ab-1", 0, dead).new()).write_bytes(b"")
    opened(path).close()


@scene("HANDED_OVER", "TAKEN_BACK")
def a_store_is_handed_over(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
    carry_out(plan_graduation(str(path)))
    take_back(str(path))


@scene("MEMBER_JOINED", "MEMBER_LEFT", "REBALANCED", "ASSIGNED", "REVOKED")
def members_share_a_topic(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2)
        with store.consumer(group_id="billing") as one:
            one.subscribe(["orders"])
            one.poll()
            with store.consumer(group_id="billing") as two:
                two.subscribe(["orders"])
                for _ in range(3):
                    two.poll()
                    one.poll()
                assert len(one.assignment()) == len(two.assignment()) == 1


@scene("MEMBER_EXPELLED", "MEMBER_FENCED", "LOST")
def a_member_does_not_poll(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", partition_count=2)
        options: dict[str, Any] = {"group": "billing", "max_poll_interval_ms": 10_000, "session_timeout_ms": 45_000}
        with store.consumer(**options) as one, store.consumer(**options) as two:
            one.subscribe(["orders"])
            one.poll()
            two.subscribe(["orders"])
            two.poll()
            one.poll()
            for _ in range(40):
                clock.advance(1000)
                two.poll()
            one.poll()


@scene("OFFSETS_RESET", "OFFSETS_DELETED", "GROUP_DELETED")
def an_administrator_works(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
        store.offsets.commit("billing", {("orders", 0): 7})
        store.group("billing").reset("earliest")
        store.group("billing").delete_offsets("orders")
        store.offsets.commit("billing", {("orders", 0): 7})
        store.group("billing").delete()


@scene("OFFSETS_LEFT")
def offsets_cannot_be_deleted(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        store.offsets.commit("billing", {("orders", 0): 0})
        store.offsets.commit("billing", {("orders", 0): 0})
    file = path / "__consumer_offsets-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with opened(path) as store:
        store.delete_topic("orders")


@scene("DAMAGED_KEPT")
def a_damaged_checkpoint_is_replaced(path: Path) -> None:
    (path / "log-start-offset-checkpoint").write_text("no checkpoint")
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
        store.log("orders").delete_records(1)


@scene("CHECKPOINT_REFUSED")
def a_checkpoint_of_a_later_version_stays(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
        (path / "recovery-point-offset-checkpoint").write_text("9\n0\n")


@scene("MEMBERS_DISMISSED")
def a_group_without_processes_is_reset(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        with store.consumer(group_id="billing", group_instance_id="worker") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll()
        store.group("billing").reset("earliest", scope="orders")


@scene("SPARK_COMMITTED")
def a_spark_job_commits(path: Path) -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    with pylog.open("/shop", fs=fs, clock=clock) as store:
        store.create_topic("copy", partition_count=2)
        commit_job(StoreAccess(store, fs, clock), "ab-1", stage(fs, [{0: [b"a"], 1: [b"b"]}], job="ab-1"), CommitOptions())


@scene("SPARK_RESUMED")
def a_micro_batch_is_resumed(path: Path) -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    with pylog.open("/shop", fs=fs, clock=clock) as store:
        store.create_topic("copy", partition_count=2)
        files = stage(fs, [{0: [b"a"]}])
        write_intent(fs, "/shop", Intent(QUERY, 0, tuple(files), (PartitionIntent("copy", 0, 0),)))
        commit_batch(StoreAccess(store, fs, clock), QUERY, 0, stage(fs, [{0: [b"a"]}]), CommitOptions())


@scene("NEW_PARTITIONS")
def a_group_meets_new_partitions(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        with store.consumer(group_id="billing", auto_offset_reset="latest") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll()
            store.add_partitions("orders", 2)
            for _ in range(5):
                consumer.poll(timeout_ms=20)


@scene("IN_TIER")
def a_log_begins_in_a_remote_tier(path: Path) -> None:
    with tarfile.open(Path(__file__).resolve().parent / "golden-tier" / "ktier-data.tar.xz") as archive:
        archive.extractall(path, filter="data")
    with pylog.open(path / "data", "r") as store:
        store.log("t")


@scene("POSITION_RESET")
def a_position_is_reset(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
        with store.consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll()
            store.log("orders").delete_records(10)
            consumer.seek(TopicPartition("orders", 0), 1)
            consumer.poll()


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


def test_no_line_is_given_to_a_handler_while_this_thread_holds_a_lock() -> None:
    with trace.HELD, trace.HELD:
        trace.later(trace.STORE_CLOSED, path="a")
        trace.tell()
        assert trace.HELD.depth == 2
    seen: list[int] = []

    def look() -> None:
        seen.append(trace.HELD.depth)

    thread = threading.Thread(target=look)
    with trace.HELD:
        thread.start()
        thread.join()
    assert seen == [0]


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


def test_every_event_is_used() -> None:
    text = "".join(module.source for name, module in house().items() if name != "pylog.trace")
    assert [name for name in names_of(trace.EVENTS) if f"trace.{name}" not in text] == []


# Functions that remove, rename or cut files and leave no line themselves, each with its reason.
SILENT = {
    "pylog.fs.": "the file system itself",
    "pylog.testing.": "file systems for tests",
    "pylog.background_errors.": "a note for `pylog doctor`; each error left a line when it was noted",
    "pylog.root_directory.RootDirectory.leave_clean_state": "the marker says that nobody writes; no data",
    "pylog.log.writing.pending_deletions.PendingDeletions.sweep": "the deletion left a line when the files were renamed",
    "pylog.log.maintenance.trimming._rename_away": "its callers leave lines: retention and truncation",
    "pylog.log.maintenance.trimming.truncate": "leaves a line at its end",
    "pylog.log.maintenance.trimming._remove_indexes": "derived from the segment that the truncation's line names",
    "pylog.log.maintenance.trimming._shortened": "an unfinished copy of an earlier try",
    "pylog.log.maintenance.segment_swap.": "compaction leaves one line for a whole log, in the cleaner",
    "pylog.log.writing.rolling.take_back": "files of a segment that was not begun",
    "pylog.log.writing.writer.LogWriter._undo": "a failed append; the caller has the error",
    "pylog.log.recovery.loader._remove_if_there": "its caller leaves a line",
    "pylog.log.producer_state.drop_snapshots": "its caller leaves a line",
    "pylog.directory.locks.": "the owner's name in a lock file",
    "pylog.log.writing.active_file.": "cuts what was never acknowledged: zeros that were written ahead, or a failed append",
    "pylog.topics.deleting.rename_deleted": "the deletion leaves a line when the directory is removed",
    "pylog.topics.deleting._rename_and_remove": "the deletion leaves a line when the directory is removed",
    "pylog.topics.deleting._remove": "its caller leaves a line",
    "pylog.staging.file.StagingFile.discard": "rows of a task that failed; Spark runs it again",
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


def test_every_function_that_removes_renames_or_cuts_files_leaves_a_line_or_has_a_reason() -> None:
    silent = [name for name, told in removals() if not told and not name.startswith(tuple(SILENT))]
    assert silent == [], "give it a line (pylog.trace), or a reason in SILENT"


def test_no_reason_to_be_silent_outlives_its_function() -> None:
    there = [name for name, _ in removals()]
    assert [reason for reason in SILENT if reason != "pylog.cli." and not any(name.startswith(reason) for name in there)] == []
