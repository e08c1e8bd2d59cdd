"""A partition that lost files is told from a new one, on every route: other files name offsets that are not in its segments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import pylog
from pylog import DirectoryReplacedError, OffsetsConfig, Store
from pylog.directory.checkpoints import HIGH_WATERMARK, RECOVERY_POINT
from pylog.groups.health import Verdict
from pylog.log.recovery.findings import losses_in
from pylog.monitoring.measured import measures_of
from pylog.store import manager_of
from pylog.tools.verify import verify
from pylog.ui.app import made_application
from support.cli import call
from support.golden import data as golden_data
from support.ui import Browser

OFFSETS = OffsetsConfig(topic_num_partitions=1)
END = 50


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def lose(*files: Path) -> None:
    for file in files:
        file.unlink()


LOSSES: dict[str, Callable[[Path], None]] = {
    "the first segment": lambda directory: lose(segments(directory)[0]),
    "the last segment": lambda directory: lose(segments(directory)[-1]),
    "all segments": lambda directory: lose(*segments(directory)),
    "all with an offset as name": lambda directory: lose(*directory.glob("0*")),
}
FILES = LOSSES | {
    "all but the topic's id": lambda directory: lose(*{*directory.iterdir()} - {directory / "partition.metadata"}),
    "all files": lambda directory: lose(*directory.iterdir()),
}


def filled(root: Path) -> Store:
    """A store with a topic of several segments, which a group has read from, and one that is new."""
    store = pylog.open(root, offsets=OFFSETS)
    store.create_topic("orders", segment_bytes=2_000)
    store.create_topic("new")
    for _ in range(END):
        store.log("orders").append(b"x" * 100)
    store.offsets.commit("billing", {("orders", 0): 5})
    return store


def told(root: Path) -> dict[str, bool]:
    """Whether each route says that records of the topic are missing, and nothing of the other one."""
    found = {"verify": not verify(str(root)).ok}
    with pylog.open(root, mode="r") as store:
        assert not losses_in(store.log("new").recovery_report)
        unreadable = {each.labels["topic"]: each.value for each in store.metrics() if each.name == "log_unreadable"}
        assert not unreadable["new"]
        browser = Browser(made_application(measures_of(store).watch(), token=None))
        page = browser.get("/topics/orders/partitions.json").json
        found |= {
            "log": bool(store.log("orders").recovery_report),
            "metrics": unreadable["orders"] == 1,
            "health": store.group("billing").health().verdict is Verdict.LOST,
            "window, data": page["partitions"][0]["loss"] is not None,
            "window, health": "orders-0" in browser.get("/health").text and "can be read." not in browser.get("/health").text,
            "window, first page": "with damage" in browser.get("/").text,
        }
    listed = {each["topic"]: each["damaged_partitions"] for each in call("topics", root, "--json").json["topics"]}
    assert listed["new"] == []
    found |= {
        "topics": "pylog verify" in call("topics", root).complaints,
        "topics --json": listed["orders"] == [0],
        "describe": "pylog verify" in call("describe", root, "orders").complaints,
        "describe --json": bool(call("describe", root, "orders", "--json").json["partitions"][0]["damage"]),
        "groups health": call("groups", "health", root).code == 1,
        "doctor": call("doctor", root).code == 1,
    }
    return found


def all_tell(found: dict[str, bool]) -> bool:
    return found == dict.fromkeys(found, True)


@pytest.mark.parametrize("what", FILES)
def test_each_route_tells_that_files_of_a_closed_log_were_removed(tmp_path: Path, what: str) -> None:
    filled(tmp_path).close()
    assert not any(told(tmp_path).values())
    FILES[what](tmp_path / "orders-0")
    found = told(tmp_path)
    assert all_tell(found), found


@pytest.mark.damaged("a file of the open log is removed")
@pytest.mark.parametrize("what", LOSSES)
def test_each_route_tells_that_files_of_a_log_were_removed_whose_process_did_not_close_it(tmp_path: Path, what: str) -> None:
    """No checkpoint names its end: only its own header does."""
    store = filled(tmp_path)
    LOSSES[what](tmp_path / "orders-0")
    found = told(tmp_path)
    assert all_tell(found), found
    assert {each.value for each in store.metrics() if each.name == "log_unreadable" and each.labels["topic"] == "orders"} == {1}
    with suppress(DirectoryReplacedError):  # it has the removed file open
        store.close()


@pytest.mark.parametrize("what", LOSSES)
def test_a_window_and_metrics_that_are_open_tell_it_too(tmp_path: Path, what: str) -> None:
    """Reads go on from open files, and the header does not change: only a look for the files shows it."""
    filled(tmp_path).close()
    with pylog.open(tmp_path, mode="r") as store:

        def unreadable() -> list[float]:
            samples = store.metrics()
            return [each.value for each in samples if each.name == "log_unreadable" and each.labels["topic"] == "orders"]

        browser = Browser(made_application(measures_of(store).watch(), token=None))
        assert unreadable() == [0]
        assert browser.get("/topics/orders/partitions.json").json["partitions"][0]["loss"] is None
        LOSSES[what](tmp_path / "orders-0")
        assert unreadable() == [1]
        another = Browser(made_application(measures_of(store).watch(), token=None))
        assert another.get("/topics/orders/partitions.json").json["partitions"][0]["loss"] is not None


@pytest.mark.damaged("a file of the log is removed")
def test_a_group_that_has_read_past_the_removed_segments_is_not_lost(tmp_path: Path) -> None:
    filled(tmp_path).close()
    first, second = segments(tmp_path / "orders-0")[:2]
    lose(first)
    with pylog.open(tmp_path, mode="r") as store:
        assert store.group("billing").health().verdict is Verdict.LOST
        assert "files were removed" in store.group("billing").health().partitions[0].why
    with pylog.open(tmp_path) as store:
        store.offsets.commit("billing", {("orders", 0): int(second.stem)})
        assert store.group("billing").health().verdict is Verdict.OK


def _retained(store: Store) -> None:
    store.log("orders").delete_records(30)


def _cut(store: Store) -> None:
    store.log("orders").truncate(10)


def _emptied(store: Store) -> None:
    store.log("orders").delete_records(END)


def _made_again(store: Store) -> None:
    store.delete_topic("orders")
    store.create_topic("orders")


CHANGES: dict[str, Callable[[Store], None]] = {
    "nothing": lambda store: None,
    "records deleted": _retained,
    "all records deleted": _emptied,
    "a truncation": _cut,
    "a topic made again": _made_again,
}


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_pylog_itself_deletes_is_no_loss(tmp_path: Path, change: str, closed: bool) -> None:
    store = filled(tmp_path)
    CHANGES[change](store)
    if closed:
        store.close()
    with pylog.open(tmp_path, mode="r") as reader:
        assert not losses_in(reader.log("orders").recovery_report)
        assert {each.value for each in reader.metrics() if each.name == "log_unreadable"} == {0}
    assert [each["damaged_partitions"] for each in call("topics", tmp_path, "--json").json["topics"]] == [[], [], []]
    store.close()


def test_a_loss_that_was_accepted_is_told_no_more(tmp_path: Path) -> None:
    filled(tmp_path).close()
    lose(*segments(tmp_path / "orders-0")[1:])
    assert all_tell(told(tmp_path))
    assert call("repair", "skip", tmp_path / "orders-0", "--yes").code == 0
    with pylog.open(tmp_path, mode="r") as store:
        assert not losses_in(store.log("orders").recovery_report)
    assert verify(str(tmp_path)).ok


@pytest.fixture(params=["3.9.1", "4.3.0"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a directory of a broker, whose partitions are sound."""
    case = next(each for each in golden_data.cases() if each.version == request.param and each.name == "groups")
    shutil.copytree(case.log_directory, tmp_path / "kafka")
    return tmp_path / "kafka"


def test_a_partition_of_a_broker_without_its_segment_has_lost_it_although_no_checkpoint_says_that_it_was_synced(
    broker: Path,
) -> None:
    """A broker writes high watermarks every five seconds, and raises a recovery point only when it has rolled or stopped."""
    with pylog.open(broker, mode="r") as store:
        logs = [manager_of(store).log(name, number) for name, topic in store.topics().items() for number in topic.partition_ids]
        assert not any(losses_in(log.recovery_report) for log in logs)
        written = next(log for log in logs if log.end_offset > 0 and log.start_offset == 0)
        name = f"{written.partition.topic}-{written.partition.partition}"
    (broker / RECOVERY_POINT).unlink(missing_ok=True)
    for file in (broker / name).iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    with pylog.open(broker, mode="r") as store:
        [loss] = losses_in(store.log(*written.partition).recovery_report)
    assert "the high watermark checkpoint says that the log reached offset" in loss.message


def begun_again(root: Path) -> None:
    """Loses all files of the log, and appends to it more records than a group had read."""
    filled(root).close()
    shutil.rmtree(root / "orders-0")
    with pylog.open(root) as store:
        log = store.log("orders")
        assert losses_in(log.recovery_report)
        log.append_many([b"later"] * 20)


@pytest.mark.damaged("a partition is removed")
def test_a_log_without_files_begins_where_it_had_ended_so_that_a_group_misses_no_record_unnoticed(tmp_path: Path) -> None:
    begun_again(tmp_path)
    for mode in ("r", "rw"):
        with pylog.open(tmp_path, mode=mode) as store:
            assert (store.log("orders").start_offset, store.log("orders").end_offset) == (END, END + 20)
            health = store.group("billing").health()
            assert (health.verdict, health.partitions[0].lag) == (Verdict.LOST, END + 15)
            assert health.partitions[0].why == f"offsets 5 to {END - 1} were deleted before the group read them"
            verdicts = {each.labels["verdict"]: each.value for each in store.metrics() if each.name == "group_verdict"}
            assert verdicts["LOST"] == 1
    assert verify(str(tmp_path)).ok


@pytest.mark.damaged("a partition is removed")
def test_a_crash_before_the_first_append_to_such_a_log_leaves_it_at_the_same_offset(tmp_path: Path) -> None:
    filled(tmp_path).close()
    shutil.rmtree(tmp_path / "orders-0")
    pylog.open(tmp_path).close()
    (tmp_path / "orders-0" / f"{END:020}.log").touch()
    for mode in ("r", "rw"):
        with pylog.open(tmp_path, mode=mode) as store:
            assert (store.log("orders").start_offset, store.log("orders").end_offset) == (END, END)
            assert store.group("billing").health().verdict is Verdict.LOST
    with pylog.open(tmp_path) as store:
        assert store.log("orders").append(b"later") == END


@pytest.mark.damaged("a partition is removed")
def test_verify_gives_advice_on_a_log_without_files_that_helps(tmp_path: Path) -> None:
    """It advised a repair, which found nothing to repair."""
    filled(tmp_path).close()
    shutil.rmtree(tmp_path / "orders-0")
    for mode in ("r", "rw"):  # without the directory, and with an empty one
        pylog.open(tmp_path, mode=mode).close()
        [found] = verify(str(tmp_path)).affected
        assert found.finding.kind == "missing"
        assert "repair" not in found.advice
        assert "the next append begins at the offset that the log had reached" in found.advice
    with pylog.open(tmp_path) as store:
        store.log("orders").append(b"later")
    assert verify(str(tmp_path)).ok


@pytest.mark.damaged("all files of a log are removed")
@pytest.mark.parametrize("what", ["all segments", "all but the topic's id"])
def test_a_log_that_lost_its_files_and_kept_its_directory_begins_there_too(tmp_path: Path, what: str) -> None:
    filled(tmp_path).close()
    FILES[what](tmp_path / "orders-0")
    with pylog.open(tmp_path) as store:
        assert store.log("orders").append(b"later") == END
        assert [record.value for record in store.log("orders").records(END)] == [b"later"]
    with pylog.open(tmp_path, mode="r") as store:
        assert store.group("billing").health().verdict is Verdict.LOST


@pytest.mark.damaged("a partition is removed")
def test_the_line_of_a_partition_that_was_removed_does_not_blame_its_creator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pylog")
    begun_again(tmp_path)
    told_events = {each.pylog["event"]: each for each in caplog.records if hasattr(each, "pylog")}
    assert "partition completed" not in told_events
    made = told_events["partition created again"]
    assert (made.levelname, made.pylog["topic"], made.pylog["partition"]) == ("WARNING", "orders", 0)
    assert "a checkpoint lists it" in made.getMessage()
    assert (told_events["missing"].levelname, told_events["begun again"].levelname) == ("ERROR", "WARNING")
    assert told_events["begun again"].pylog["start"] == END


@pytest.mark.damaged("the directory of an open partition is removed")
def test_a_partition_that_is_removed_before_its_first_use_in_a_process_begins_there_too(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with pylog.open(tmp_path) as store:
        shutil.rmtree(tmp_path / "orders-0")
        assert store.log("orders").append(b"later") == END


def create_again(store: Store) -> int:
    """Deletes a topic that a broker has created, and creates it. Returns the partition that is new."""
    store.delete_topic("orders")
    store.create_topic("orders")
    return 0


def add_a_partition(store: Store) -> int:
    """Adds a partition to a topic that had had another one with this number. Returns the new one."""
    store.add_partitions("orders", 2)
    return 1


@pytest.mark.damaged("the high watermark checkpoint has offsets of a deleted topic")
@pytest.mark.parametrize("change", [create_again, add_a_partition])
def test_a_log_does_not_begin_at_the_high_watermark_of_a_deleted_topic(tmp_path: Path, change: Callable[[Store], int]) -> None:
    """A broker leaves the line until it writes the checkpoint again, and pylog changes no high watermark."""
    with pylog.open(tmp_path) as store:
        store.create_topic("orders")
    (tmp_path / HIGH_WATERMARK).write_text("0\n2\norders 0 100\norders 1 100\n")
    with pylog.open(tmp_path) as store:
        partition = change(store)
        assert store.log("orders", partition).append(b"the first record") == 0
    with pylog.open(tmp_path, mode="r") as store:
        log = store.log("orders", partition)
        assert (log.start_offset, log.end_offset, log.recovery_report) == (0, 1, ())
