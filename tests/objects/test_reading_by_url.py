"""A store is read from the URL of its archive as from its directory, with as few requests as promised."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotALogDirectoryError,
    ObjectStoreError,
    OffsetOutOfRangeError,
    PylogError,
    ReadOnlyError,
)
from pylog.objects.cache import SMALL_OBJECTS
from pylog.objects.directory_objects import DirectoryObjects
from pylog.objects.remote_file import WINDOWS
from pylog.spark.options import read_options
from pylog.spark.planner import LogSlice, plan
from pylog.spark.reader import read_slice
from pylog.tools.graduate import plan_graduation
from pylog.tools.stats import collect
from pylog.tools.verify import verify
from pylog.unopened import UnopenedDirectory
from support.cli import call as run

T0 = 1_700_000_000_000
RECORDS = 3002  # of partition 0: one is of an aborted transaction
COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]


def abort_one(store: pylog.Store) -> None:
    with contextlib.suppress(RuntimeError), store.transaction("t") as transaction:
        transaction.append("orders", b"aborted", partition=0)
        transaction.flush()
        raise RuntimeError


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several segments, aborted transactions, deleted records and a group; its archive is beside it."""
    root = tmp_path_factory.mktemp("archived")
    small = {
        "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
        "transactions": pylog.TransactionsConfig(topic_num_partitions=1),
    }
    with pylog.open(root / "store", **small) as store:  # type: ignore[arg-type]
        store.create_topic("orders", partition_count=2, segment_bytes=1 << 16, retention_ms=-1)
        for partition in range(2):
            for number in range(30):
                rows = [(b"k%d" % row, bytes([number]) * 200, (), T0 + number * 100 + row) for row in range(100)]
                store.log("orders", partition).append_many(rows)
        store.log("orders", 1).delete_records(250)
        with store.transaction("t") as transaction:
            transaction.append("orders", b"committed", partition=0)
        abort_one(store)
        store.offsets.commit("g", {pylog.TopicPartition("orders", 0): 700})
        store.archive(str(root / "archive"), include_active=True)
    return root


@pytest.fixture
def url(archived: Path) -> str:
    return f"file://{archived}/archive"


def counted(made: list[str], name: str) -> Any:
    call = getattr(DirectoryObjects, name)

    def counting(self: object, key: str, *rest: Any) -> Any:
        made.append(f"{name} {key}")
        return call(self, key, *rest)

    return counting


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are made, in order."""
    made: list[str] = []
    for name in ("get", "get_range", "head", "list"):
        monkeypatch.setattr(DirectoryObjects, name, counted(made, name))
    SMALL_OBJECTS.forked()
    WINDOWS.forked()
    return made


def took(requests: list[str]) -> int:
    count = len(requests)
    requests.clear()
    return count


# ---- the same store ----------------------------------------------------------------------------------------------------------


def test_the_path_of_an_archives_directory_is_refused_with_its_url_and_nothing_is_written(archived: Path, url: str) -> None:
    path = archived / "archive"
    before = sorted(path.rglob("*"))
    openings: list[Callable[[], object]] = [
        lambda: pylog.open(path, "r"),
        lambda: pylog.open(path),
        lambda: pylog.open(path, create=True),
        lambda: pylog.read_table(path, "orders"),
        lambda: verify(str(path)),
        lambda: collect(str(path)),
        lambda: plan_graduation(str(path)),
        lambda: UnopenedDirectory(str(path)),
    ]
    for opening in openings:
        with pytest.raises(NotALogDirectoryError, match=f"archive of a store, not a log directory; read it by its URL, {url}"):
            opening()
    assert sorted(path.rglob("*")) == before


def test_a_url_gives_the_same_records_offsets_topics_and_groups_as_the_directory(archived: Path, url: str) -> None:
    with pylog.open(archived / "store", mode="r") as local, pylog.open(url, mode="r") as remote:
        assert remote.topics().keys() == local.topics().keys()
        assert remote.topic("orders").config == local.topic("orders").config
        for partition in range(2):
            one, other = local.log("orders", partition), remote.log("orders", partition)
            for name in ("start_offset", "end_offset", "stable_offset"):
                assert getattr(other, name) == getattr(one, name)
            for wanted in (0, T0, T0 + 1234, T0 + 10_000_000):
                assert other.offset_for_timestamp(wanted) == one.offset_for_timestamp(wanted)
            assert [other.read(offset) for offset in (300, 1700, 2999)] == [one.read(offset) for offset in (300, 1700, 2999)]
        assert remote.groups() == local.groups()
        assert remote.verify().ok
    for level in ("read_uncommitted", "read_committed"):
        options: dict[str, Any] = {"columns": COLUMNS, "isolation_level": level}
        assert pylog.read_table(url, "orders", **options).equals(pylog.read_table(archived / "store", "orders", **options))
    assert sum(batch.num_rows for batch in pylog.read_batches(url, "orders", 1, start=2000, end=2500)) == 500


def test_records_and_consumers_read_a_url(url: str) -> None:
    with pylog.open(url, mode="r") as store:
        assert sum(1 for _ in store.log("orders", 1).records()) == 2750
        with store.consumer("orders", isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            assert consumer.poll(timeout_ms=1000)


def test_commands_take_urls(archived: Path, url: str) -> None:
    assert "orders" in run("topics", url).text
    assert run("cat", url, "orders", "--partition", "1", "--from", "2999").text.count("\n") == 1
    described = [run("describe", path, "orders").text.splitlines()[1:3] for path in (url, archived / "store")]
    assert described[0] == described[1]
    assert "g" in run("groups", "list", url).text
    counted = [json.loads(run("stats", path, "--json", "--keys").text) for path in (url, archived / "store")]
    for found in counted:
        for partition in (partition for topic in found["topics"] for partition in topic["partitions"]):
            partition.pop("directory", None)
            for segment in partition["segments"]:
                segment.pop("last_append")
    assert counted[0] == counted[1]
    assert counted[0]["groups"][0]["group"] == "g"
    checked = json.loads(run("doctor", url, "--json").text)["answers"]
    of_directory = [each for each in checked if url in each["found"]]
    assert [each["what"] for each in of_directory] == ["directory"]
    assert not {"file system", "permission", "lock", "room"} & {each["what"] for each in checked}
    outcome = run("stats", f"{url}-none")
    assert outcome.code == 1
    assert "no archive of a store" in outcome.complaints


@pytest.mark.parametrize(
    "command", [("repair", "skip"), ("graduate",), ("archive",), ("backup",), ("produce",)], ids=lambda command: command[0]
)
def test_a_command_that_needs_a_directory_says_so_of_a_url(url: str, command: tuple[str, ...], tmp_path: Path) -> None:
    more = {"archive": [tmp_path / "other"], "backup": [tmp_path / "other"], "produce": ["orders"]}.get(command[0], [])
    outcome = run(*command, url, *more)
    assert outcome.code == 1
    assert f"{url} is a URL, and this needs a directory; pylog restore makes one from an archive" in outcome.complaints


@pytest.mark.parametrize("mode", ["rw"])
def test_an_archive_is_only_read(url: str, mode: str) -> None:
    with pytest.raises(ReadOnlyError, match="cannot be written; open it with mode='r'"):
        pylog.open(url, mode=mode)
    with pytest.raises(ReadOnlyError, match="cannot be written"):
        pylog.open(url)
    with pylog.open(url, mode="r") as store:
        topic = next(each for each in store.topics() if not each.startswith("__"))
        for call in (
            lambda: store.create_topic("t"),
            lambda: store.log(topic).append(b"x"),
            lambda: store.offsets.commit("billing", {(topic, 0): 0}),
            store.transactions.settle,
        ):
            with pytest.raises(ReadOnlyError, match="restore the archive into a directory, and write there"):
                call()


def test_a_url_without_an_archive_and_other_schemes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALogDirectoryError, match="no archive of a store"):
        pylog.open(f"file://{tmp_path}", mode="r")
    with pytest.raises(InvalidArgumentError, match="must begin with s3"):
        pylog.open("ftp://logs/shop", mode="r")
    with pytest.raises(InvalidArgumentError, match="access requires the URL"):
        pylog.open(tmp_path, mode="r", access={"region": "x"})


@pytest.mark.slow
def test_an_archive_on_s3_is_read_with_its_credentials_shown_nowhere(
    tmp_path: Path, s3_url: str, s3_options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        with pylog.open(tmp_path) as store:
            store.create_topic("orders", segment_bytes=1 << 16)
            store.log("orders").append_many([bytes(200)] * 1000)
            store.archive(s3_url, include_active=True, **s3_options)
        with pylog.open(s3_url, mode="r", access=s3_options) as store:
            log = store.log("orders")
            assert sum(batch.num_rows for batch in log.scan()) == 1000
            assert log.read(567).offset == 567
            assert "s3cr3t" not in repr(store) + repr(log)
        with pytest.raises(NotALogDirectoryError) as caught:
            pylog.open(s3_url + "/other", mode="r", access=s3_options)
    assert "s3cr3t" not in caplog.text + str(caught.value)


# ---- requests ----------------------------------------------------------------------------------------------------------------


def test_requests_are_as_few_as_promised(url: str, requests: list[str]) -> None:
    with pylog.open(url, mode="r") as store:
        assert took(requests) == 3  # the hint, the newest version, and that there is no later one
        store.topics()
        assert took(requests) == 0
        log = store.log("orders", 1)
        assert took(requests) == 3  # the same for the manifest of the partition
        assert (log.start_offset, log.end_offset) == (250, 3000)
        assert took(requests) == 0
        log.read(300)
        assert took(requests) == 2  # the small files of the segment, and the batch
        log.read(2900)
        assert took(requests) == 2
        log.read(310)
        assert took(requests) <= 1
        WINDOWS.forked()
        log.read(300)
        assert took(requests) == 1
        log.offset_for_timestamp(T0 + 1500)
        assert took(requests) == 2
        WINDOWS.forked()
        log.offset_for_timestamp(T0 + 1510)
        assert took(requests) == 1


def test_a_scan_costs_a_request_for_each_block_and_one_more_for_each_segment(url: str, requests: list[str]) -> None:
    with pylog.open(url, mode="r") as store:
        log = store.log("orders", 0)
        took(requests)
        assert sum(batch.num_rows for batch in log.scan()) == RECORDS
    logs = [request for request in requests if request.endswith(".log")]
    bundles = [request for request in requests if request.endswith(".indexes")]
    assert set(Counter(requests).values()) == {1}
    assert len(logs) == len(bundles) == len(requests) / 2  # no segment has more than 8 MiB


def test_a_plan_of_spark_reads_the_catalogue_and_lists_nothing(url: str, requests: list[str]) -> None:
    plan(read_options({"path": url, "subscribe": "orders"}))
    assert took(requests) == 6  # the store's manifest, and the topic's catalogue
    parts = plan(read_options({"path": url, "subscribe": "orders", "minPartitions": "20"}))
    assert len(parts) >= 20
    assert took(requests) == 6
    assert not [request for request in requests if request.startswith("list")]


# ---- damage ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(archived: Path, tmp_path: Path) -> Path:
    shutil.copytree(archived / "archive", tmp_path / "archive")
    return tmp_path / "archive"


def objects_of(archive: Path, suffix: str) -> list[Path]:
    return sorted(archive.glob(f"orders-*/0/*{suffix}"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_in_a_log_is_found_and_its_neighbours_are_read(copied: Path) -> None:
    path = objects_of(copied, ".log")[3]
    flip(path, path.stat().st_size // 2)
    SMALL_OBJECTS.forked()
    WINDOWS.forked()
    with pylog.open(f"file://{copied}", mode="r") as store:
        log, got = store.log("orders", 0), 0
        with pytest.raises(CorruptionError) as caught:  # noqa: PT012 - the records before the damage come first
            for batch in log.scan():
                got += batch.num_rows
        error = caught.value
        assert str(copied) in str(error.path)
        assert error.position is not None
        assert error.offset is not None
        assert error.next_offset is not None
        assert got == error.offset
        rest = sum(batch.num_rows for batch in log.scan(error.next_offset))
        assert RECORDS - 200 <= got + rest < RECORDS


@pytest.mark.parametrize("how", ["flipped", "cut", "deleted"])
def test_damaged_small_files_are_made_again_from_the_log(copied: Path, how: str) -> None:
    for path in objects_of(copied, ".indexes"):
        if how == "flipped":
            flip(path, path.stat().st_size // 2)
        elif how == "cut":
            path.write_bytes(path.read_bytes()[:7])
        else:
            path.unlink()
    SMALL_OBJECTS.forked()
    with pylog.open(f"file://{copied}", mode="r") as store:
        log = store.log("orders", 0)
        assert (sum(batch.num_rows for batch in log.scan()), log.read(1500).offset) == (RECORDS, 1500)
        assert sum(batch.num_rows for batch in log.scan(isolation_level="read_committed")) == RECORDS - 1
        found = log.offset_for_timestamp(T0 + 1500)
        assert found is not None
        assert found.timestamp == T0 + 1500


def test_the_manifest_before_a_damaged_one_counts(copied: Path, archived: Path) -> None:
    (newest,) = (copied / "pylog/partitions").glob("orders-*/0/*1.json.zst")
    flip(newest, newest.stat().st_size // 2)
    with pylog.open(f"file://{copied}", mode="r") as store:
        assert store.log("orders", 0).end_offset == 0  # there was no version before


def test_a_missing_log_is_an_error_that_names_its_url(copied: Path) -> None:
    objects_of(copied, ".log")[2].unlink()
    WINDOWS.forked()
    with pylog.open(f"file://{copied}", mode="r") as store, pytest.raises(ObjectStoreError, match=r"file://.*\.log"):
        for _ in store.log("orders", 0).scan():
            pass


def test_a_log_whose_first_objects_are_deleted_begins_after_them(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    with pylog.open(tmp_path / "store") as store:
        store.create_topic("orders", segment_bytes=1 << 16, retention_ms=-1)
        for _ in range(10):
            store.log("orders").append_many([b"x" * 200] * 100)
        store.archive(url, include_active=True)
        with pylog.open(url, mode="r") as far:
            log = far.log("orders")
            assert (log.start_offset, log.read(0).offset) == (0, 0)
            store.log("orders").delete_records(500)
            store.archive(url, include_active=True)
            first, *_ = objects_of(tmp_path / "archive", ".log")
            first.unlink()  # as a sweep does, once a reader has had the time that it keeps objects
            WINDOWS.forked()
            with pytest.raises(OffsetOutOfRangeError, match="from its start, offset 500"):
                next(iter(log.records()))
            with pytest.raises(OffsetOutOfRangeError):
                log.read(0)
            assert next(iter(log.records())).offset == 500
            assert (log.start_offset, far.verify().ok) == (500, True)


# ---- Spark -------------------------------------------------------------------------------------------------------------------


def rows_of(parts: list[LogSlice], options: Any) -> list[tuple[int, int]]:
    batches = [batch for part in parts for batch in read_slice(pickle.loads(pickle.dumps(part)), options.scan)]
    return [pair for batch in batches for pair in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"maxBytesPerPartition": "20000"},
        {"minPartitions": "50"},
        {"isolationLevel": "read_committed"},
        {"startingTimestamp": str(T0 + 1500)},
        {"startingOffsets": '{"orders": {"0": 100, "1": 2000}}', "endingOffsets": '{"orders": {"0": 2000, "1": -1}}'},
    ],
    ids=lambda given: "-".join(given) or "all",
)
def test_spark_reads_the_same_slices_records_from_a_url(archived: Path, url: str, given: dict[str, str]) -> None:
    found = {}
    for path in (str(archived / "store"), url, f"file:{archived}/archive"):
        options = read_options({"path": path, "subscribe": "orders", **given})
        parts = plan(options)
        assert path == str(archived / "store") or all(part.version for part in parts)
        found[path] = rows_of(parts, options)
    first, *others = found.values()
    assert all(other == first for other in others)


def test_a_task_needs_nothing_but_its_slice_and_one_manifest(url: str, requests: list[str]) -> None:
    options = read_options({"path": url, "subscribe": "orders"})
    (part, *_) = plan(options)
    took(requests)
    rows_of([part], options)
    assert sum(1 for request in requests if request.startswith("get ")) == 1


def test_a_slice_and_its_options_have_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    options = read_options(
        {"path": "s3://logs/shop", "subscribe": "t", "s3.region": "eu-central-1", "s3.endpoint": "https://o.example"}
    )
    assert dict(options.scan.access.bucket) == {"region": "eu-central-1", "endpoint": "https://o.example"}
    assert "s3cr3t" not in repr(options) + repr(pickle.dumps(options))


def test_segments_deleted_since_the_plan_are_an_error_with_the_offsets(copied: Path) -> None:
    options = read_options({"path": f"file:{copied}", "subscribe": "orders"})
    parts = plan(options)
    for path in copied.glob("orders-*/*/*.log"):
        path.unlink()
    WINDOWS.forked()
    with pytest.raises(PylogError) as caught:
        rows_of(parts, options)
    assert "offsets 0 to" in "".join(caught.value.__notes__)
