"""A broker's directory that begins in a remote tier: reading never silently starts later, nothing that the broker needs goes."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.errors import IllegalStateError, InvalidArgumentError, OffsetOutOfRangeError, PylogError
from pylog.groups.reset import PlannedOffset
from pylog.record.types import TopicPartition
from pylog.spark.options import read_options
from pylog.spark.planner import plan
from pylog.tools.compare import compare
from pylog.tools.repair import repair
from pylog.tools.verify import verify
from support.cli import call as run

ARCHIVE = Path(__file__).resolve().parent / "golden-tier" / "ktier-data.tar.xz"
LOCAL, END = 16081, 16502
WORDS = f"remote tier.*0 to {LOCAL - 1}.*starts at offset {LOCAL}"
T = TopicPartition("t", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


@pytest.fixture
def running(root: Path) -> Path:
    """As a broker leaves it that runs and has not yet written its log starts."""
    (root / "log-start-offset-checkpoint").unlink()
    return root


def printed(*command: object) -> str:
    done = run(*command)
    if done.code:
        raise OffsetOutOfRangeError(done.complaints)
    return done.text


def polled(root: Path, **options: object) -> object:
    with pylog.open(root, "r") as store, store.consumer("t", **options) as consumer:
        return consumer.poll(timeout_ms=100)


def read(action: Callable[[pylog.Log], object]) -> Callable[[Path], object]:
    def call(root: Path) -> object:
        with pylog.open(root, "r") as store:
            return action(store.log("t"))

    return call


FROM_THE_BEGINNING: dict[str, Callable[[Path], object]] = {
    "scan": read(lambda log: list(log.scan())),
    "records": read(lambda log: list(log.records())),
    "read": read(lambda log: log.read(7)),
    "follow": read(lambda log: list(log.follow(0, timeout_ms=1))),
    "time": read(lambda log: log.offset_for_timestamp(1_700_000_000_000)),
    "read_table": lambda root: pylog.read_table(root, "t"),
    "read_table from 0": lambda root: pylog.read_table(root, "t", 0, start=0),
    "consumer, earliest": lambda root: polled(root, auto_offset_reset="earliest"),
    "cat": lambda root: printed("cat", root, "t"),
    "cat, the last records": lambda root: printed("cat", root, "t", "--from", "-5000"),
    "copy": lambda root: printed("copy", root, "t", root.parent / "copy"),
    "spark": lambda root: plan(read_options({"path": str(root), "subscribe": "t"})),
    "spark, committed": lambda root: plan(
        read_options({"path": str(root), "subscribe": "t", "isolationLevel": "read_committed"})
    ),
    "spark, from 5": lambda root: plan(read_options({"path": str(root), "subscribe": "t", "startingOffsets": '{"t": {"0": 5}}'})),
}


@pytest.mark.pair("broker's directory", "scan and follow", "time search", "Spark")
@pytest.mark.parametrize("way", FROM_THE_BEGINNING)
def test_reading_from_the_beginning_never_silently_starts_at_the_local_log(root: Path, way: str) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        FROM_THE_BEGINNING[way](root)
    assert "remote tier" in str(caught.value)
    assert str(LOCAL) in str(caught.value)


@pytest.mark.pair("broker's directory", "scan and follow", "Spark")
@pytest.mark.parametrize("way", FROM_THE_BEGINNING)
def test_before_the_broker_has_written_the_log_start_its_records_tell_it(running: Path, way: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"remote tier.*{LOCAL}"):
        FROM_THE_BEGINNING[way](running)


def test_a_log_without_its_log_start_says_what_is_remote(running: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert f"0 to {LOCAL - 1} in a broker's remote tier" in printed("verify", running)
    described = printed("describe", running, "t").splitlines()
    assert described[-2].endswith("REMOTE START")
    assert described[-1].split() == ["0", str(LOCAL), str(END), str(END), "1", "214712", "0"]
    caplog.clear()
    with caplog.at_level("INFO", "pylog"), pylog.open(running, "r") as store:
        assert store.log("t").remote_offsets == range(LOCAL)
        assert caplog.text.count("Opened a log that begins in a broker's remote tier") == 1
        assert store.check().ok


def test_leader_epochs_without_records_of_remote_segments_are_no_tier(running: Path) -> None:
    """A crash leaves such epochs of a topic without remote storage, next to others that have it."""
    for path in running.glob("__remote_log_metadata-3/*.log"):
        path.write_bytes(b"")
    assert (running / "remote-log-index-cache").exists()
    with pylog.open(running, "r") as store:
        assert (store.log("t").start_offset, store.log("t").remote_offsets) == (LOCAL, range(0))


def test_local_records_are_read_when_their_start_is_named(root: Path) -> None:
    with pylog.open(root, "r") as store:
        log = store.log("t")
        assert (log.start_offset, log.end_offset, log.remote_offsets) == (LOCAL, END, range(LOCAL))
        assert sum(batch.num_rows for batch in log.scan(LOCAL)) == 420
        first, last = log.read(LOCAL), log.read(END - 2)
        found = log.offset_for_timestamp(last.timestamp)
        assert (first.offset, found is None or found.offset > LOCAL) == (LOCAL, True)
        assert log.offset_for_timestamp(last.timestamp + 10**12) is None
    assert pylog.read_table(root, "t", 0, start=LOCAL).num_rows == 420
    parts = plan(read_options({"path": str(root), "subscribe": "t", "startingOffsets": f'{{"t": {{"0": {LOCAL}}}}}'}))
    assert [(part.start, part.end) for part in parts] == [(LOCAL, END)]
    lenient = plan(read_options({"path": str(root), "subscribe": "t", "failOnDataLoss": "false"}))
    assert [(part.start, part.end) for part in lenient] == [(LOCAL, END)]


@pytest.mark.pair("broker's directory", "groups")
@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_position_in_the_remote_tier_is_not_reset(root: Path, policy: str) -> None:
    with pylog.open(root, "r") as store, store.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([T])
        consumer.seek(T, 7)
        with pytest.raises(OffsetOutOfRangeError, match="remote tier"):
            consumer.poll(timeout_ms=100)
        consumer.seek(T, LOCAL)
        assert consumer.poll(timeout_ms=100)


@pytest.mark.slow
def test_a_healthy_tiered_directory_is_called_healthy_and_the_tier_is_named(root: Path) -> None:
    found = verify(str(root))
    assert found.ok
    assert [each.finding.kind for each in found.affected] == ["remote"]
    assert f"0 to {LOCAL - 1} in a broker's remote tier" in printed("verify", root)
    with pylog.open(root, "r") as store:
        assert store.verify().ok
        assert store.check().ok


def test_lost_first_segments_are_missing_where_no_tier_has_them(root: Path) -> None:
    for path in (*root.glob("__remote_log_metadata-*"), root / "remote-log-index-cache"):
        shutil.rmtree(path)
    assert not verify(str(root)).ok  # nothing says that somebody has them; reading still never starts later
    with pylog.open(root, "r") as store, pytest.raises(OffsetOutOfRangeError, match="remote tier"):
        store.log("t").records()


@pytest.mark.slow
@pytest.mark.pair("broker's directory", "delete_records", "truncation", "retention by time", "retention by size")
def test_nothing_that_the_broker_needs_is_dropped_or_changed(root: Path) -> None:
    kept = ("log-start-offset-checkpoint", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata", "meta.properties")
    before = {name: (root / name).read_bytes() for name in kept}
    metadata = {path: path.read_bytes() for path in root.glob("__remote_log_metadata-*/*.log")}
    with pylog.open(root) as store:
        log = store.log("t")
        assert log.append(b"more") == END
        with pytest.raises(OffsetOutOfRangeError, match="remote tier"):
            log.delete_records(100)
        with pytest.raises(IllegalStateError, match="remote tier"):
            log.truncate(END - 3)
        with pytest.raises(IllegalStateError, match="remote tier"):
            store.delete_topic("t")
        store.alter_topic("t", retention_bytes=1, retention_ms=1, segment_bytes=1000)
    for number in range(2):
        with pylog.open(root) as store:
            assert store.log("t").append_many([b"x" * 600] * 3) == range(END + 1 + 3 * number, END + 4 + 3 * number)
            store.tick()
            assert store.log("t").start_offset == LOCAL
    assert {name: (root / name).read_bytes() for name in kept} == before
    assert {path: path.read_bytes() for path in metadata} == metadata
    assert verify(str(root)).ok


@pytest.mark.pair("broker's directory", "delete_records")
def test_records_deleted_up_to_a_local_offset_end_what_the_tier_is_needed_for(root: Path) -> None:
    with pylog.open(root) as store:
        log = store.log("t")
        assert log.delete_records(LOCAL + 10) == LOCAL + 10
        assert log.remote_offsets == range(0)
        assert sum(1 for _ in log.records()) > 400
    assert f"t 0 {LOCAL + 10}" in (root / "log-start-offset-checkpoint").read_text()
    with pylog.open(root, "r") as store:
        assert (store.log("t").start_offset, store.log("t").remote_offsets) == (LOCAL + 10, range(0))
    assert verify(str(root)).ok


@pytest.mark.pair("broker's directory", "compaction")
def test_a_log_in_a_tier_is_not_compacted_and_a_line_says_why(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pylog.open(root) as store:
        store.alter_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_bytes=1000)
        for number in range(6):
            store.log("t").append(b"x" * 600, key=b"%d" % (number % 2))
    before = {path.name: path.read_bytes() for path in (root / "t-0").glob("*.log")}
    with pylog.open(root) as store, caplog.at_level("WARNING", "pylog.compaction"):
        with pytest.raises(IllegalStateError, match=f"0 to {LOCAL - 1} are in a broker's remote tier"):
            store.compact("t")
        store.tick()
        store.tick()
    assert caplog.text.count("Will not compact") == 1
    assert {path.name: path.read_bytes() for path in (root / "t-0").glob("*.log")} == before


@pytest.mark.parametrize("swapped", [False, True])
def test_a_comparison_says_which_offsets_are_in_a_tier_and_compares_the_rest(root: Path, swapped: bool) -> None:
    other = root.parent / "other"
    shutil.copytree(root, other)
    (other / "log-start-offset-checkpoint").write_text("0\n0\n")
    for path in other.glob("__remote_log_metadata-*"):
        shutil.rmtree(path)
    with pylog.open(root, "r") as one, pylog.open(other, "r") as two:
        found = compare(*((two, one) if swapped else (one, two)), topics=["t"])
        (partition,) = found.topics[0].partitions
    assert (partition.equal, partition.differing, found.same) == (420, 0, False)
    side = "right" if swapped else "left"
    assert partition.unreadable == [f"offsets 0 to {LOCAL - 1} are in a broker's remote tier on the {side}, and are not compared"]


def test_records_that_the_other_side_has_in_a_tier_are_no_differences(root: Path, tmp_path: Path) -> None:
    with pylog.open(tmp_path / "whole") as whole:
        whole.create_topic("t")
        whole.log("t").append_many([b"x"] * 20)
        with pylog.open(root, "r") as tiered:
            (partition,) = compare(whole, tiered, topics=["t"]).topics[0].partitions
    assert partition.counts == {"only right": 420}
    assert len(partition.unreadable) == 1


@pytest.fixture
def damaged(root: Path) -> Path:
    """With a flipped bit in the middle of the first local segment."""
    (segment,) = sorted((root / "t-0").glob("*.log"))[:1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    return root


@pytest.mark.parametrize(("policy", "whole"), [("truncate", False), ("quarantine", False), ("quarantine", True)])
def test_a_repair_never_ends_a_log_earlier_whose_records_a_tier_may_have(damaged: Path, policy: str, whole: bool) -> None:
    before = {path: path.read_bytes() for path in (damaged / "t-0").iterdir()}
    for execute in (False, True):
        with pytest.raises(InvalidArgumentError, match=f"offsets 0 to {LOCAL - 1} of .* are in a broker's remote tier"):
            repair(str(damaged / "t-0"), policy, execute=execute, whole=whole, backup=str(damaged.parent / "backup"))
    assert {path: path.read_bytes() for path in (damaged / "t-0").iterdir()} == before


def test_a_repair_keeps_what_leads_the_broker_to_its_tier_and_says_so(damaged: Path) -> None:
    kept = ("log-start-offset-checkpoint", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata")
    before = {name: (damaged / name).read_bytes() for name in kept}
    done = repair(str(damaged), "skip", execute=True, backup=str(damaged.parent / "backup"))
    (plan,) = [each for each in done.plans if each.target.key == T]
    assert (
        f"offsets 0 to {LOCAL - 1} stay in a broker's remote tier, with the leader epochs that lead to them" in plan.sentences()
    )
    assert {name: (damaged / name).read_bytes() for name in kept} == before
    assert verify(str(damaged)).ok
    with pylog.open(damaged, "r") as store:
        assert store.log("t").remote_offsets == range(LOCAL)


@pytest.mark.slow
@pytest.mark.pair("broker's directory", "groups")
@pytest.mark.parametrize(
    ("target", "wanted"),
    [({"to": "earliest"}, 0), ({"to": 7}, 7), ({"shift_by": -END}, 0), ({"to": "1970-01-02"}, None)],
    ids=str,
)
def test_a_reset_into_a_tier_goes_to_the_first_local_offset_and_says_so(
    root: Path, target: dict[str, Any], wanted: int | None
) -> None:
    (root / "meta.properties").unlink()  # pylog may have groups here then
    with pylog.open(root) as store:
        store.offsets.commit("g", {T: END})
        planned = store.group("g").reset(**target)
        assert planned.partitions == (PlannedOffset(T, LOCAL, END, wanted, "in remote tier"),)
        assert store.offsets.position("g", T) == LOCAL
        assert store.group("g").reset(LOCAL + 4, scope={T}).adjusted == ()


def test_the_plan_of_a_reset_names_the_remote_tier(root: Path) -> None:
    (root / "meta.properties").unlink()
    with pylog.open(root) as store:
        store.offsets.commit("g", {T: END})
    done = run("groups", "reset", root, "g", "--to-earliest")
    assert f"{LOCAL}" in done.text
    assert "earlier offsets are in a broker's remote tier" in done.complaints


def test_a_line_below_the_first_segment_alone_is_no_tier(tmp_path: Path) -> None:
    """As a broker without a tier leaves it when it crashes after retention."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=200)
        for number in range(20):
            store.log("t").append(b"value %d" % number)
        store.log("t").delete_records(10)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pylog.open(tmp_path, "r") as store:
        log = store.log("t")
        assert log.remote_offsets == range(0)
        assert next(record.offset for record in log.records()) == log.start_offset > 3


def test_errors_of_a_tier_are_of_pylog(root: Path) -> None:
    with pylog.open(root, "r") as store, pytest.raises(PylogError, match=WORDS):
        store.log("t").scan()
