"""Spark reads a broker's remote tier, with the broker's directory or alone, and its tasks look nothing up again."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import pylog
from pylog.errors import CorruptionError, InvalidArgumentError, NotALogDirectoryError, OffsetOutOfRangeError
from pylog.objects.aiven import AivenTier
from pylog.objects.local_tier import LocalTier
from pylog.spark.options import any_options, read_options, stream_options
from pylog.spark.planner import LogSlice, plan
from pylog.spark.reader import read_slice
from pylog.spark.schema import arrow_schema
from support.kafka_tiers import PREFIXES, metadata_free_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL, END = 16081, 16502
FROM_12000 = {"startingOffsets": '{"t": {"0": 12000}}'}  # the golden tier has no logs below it


def alone(unpacked: Path, name: str, key: str, topic: str = "txn") -> dict[str, str]:
    """Returns the options that read one of Aiven's tiers without a broker's directory."""
    given = {"tier": f"file://{unpacked}/{name}/tier", "subscribe": topic, "tier.keyPrefix": PREFIXES[name]}
    return {name: value for name, value in given.items() if value} | ({"tier.keys": f"k1={key}"} if "encrypted" in name else {})


def beside(unpacked: Path, root: Path) -> dict[str, str]:
    """Returns the options that read a broker's directory with its `LocalTieredStorage`."""
    tier = f"file://{unpacked}/ktier/remote/kafka-tiered-storage"
    return {"path": str(root), "subscribe": "t", "tier": tier, "tier.layout": "local", **FROM_12000}


def sent(parts: list[LogSlice]) -> list[LogSlice]:
    """Returns slices as an executor gets them."""
    return [pickle.loads(pickle.dumps(part)) for part in parts]


def rows_of(options: Mapping[str, str]) -> list[tuple[int, int, bytes | None]]:
    scan = read_options(options).scan
    batches = [batch for part in sent(plan(read_options(options))) for batch in read_slice(part, scan)]
    table = pa.Table.from_batches(batches)
    return list(zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))


@pytest.fixture
def no_lists(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forbids lists of a tier after the plan, when the fixture's list has an entry."""
    found: list[str] = []
    for layout in (AivenTier, LocalTier):
        for name in ("segments", "partitions"):
            real = getattr(layout, name)

            def checked(self: Any, *arguments: Any, real: Any = real) -> Any:
                assert not found, "a task lists the tier"
                return real(self, *arguments)

            monkeypatch.setattr(layout, name, checked)
    return found


@pytest.mark.pair("broker's directory", "Spark")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", sorted(PREFIXES))
def test_every_flavour_of_a_tier_alone_has_the_rows_that_pylog_reads(
    unpacked: Path, key: str, name: str, isolation: str, no_lists: list[str]
) -> None:
    topic = "t" if name == "aiven-zstd" else "txn"
    options = alone(unpacked, name, key, topic) | {"isolationLevel": isolation, "maxBytesPerPartition": "3000"}
    parts = sent(plan(read_options(options)))
    assert len(parts) > 4
    no_lists.append("from here on")
    tasks = [batch for part in parts for batch in read_slice(part, read_options(options).scan)]
    schema = arrow_schema(read_options(options).scan.columns)
    found = pa.Table.from_batches(tasks, schema).select(["partition", "offset", "value"])
    no_lists.clear()
    keys = {"k1": key} if "encrypted" in name else None
    tier = pylog.KafkaTier(options["tier"], key_prefix=PREFIXES[name], keys=keys)
    wanted = pylog.read_table(tier, topic, columns=["partition", "offset", "value"], isolation_level=isolation)
    assert found.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize(("isolation", "count"), [("read_uncommitted", 4500), ("read_committed", 2500)])
def test_remote_and_local_segments_are_one_log(unpacked: Path, isolation: str, count: int, no_lists: list[str]) -> None:
    options = beside(unpacked, unpacked / "ktier" / "data") | {"isolationLevel": isolation, "maxRecordsPerPartition": "500"}
    parts = sent(plan(read_options(options)))
    assert (parts[0].start, parts[-1].end, len(parts)) == (12000, END, 10)
    no_lists.append("from here on")
    offsets = [
        offset
        for part in parts
        for batch in read_slice(part, read_options(options).scan)
        for offset in batch["offset"].to_pylist()
    ]
    assert len(offsets) == count
    assert offsets == sorted(set(offsets))


def test_a_slice_has_the_segments_that_its_task_reads_and_no_more(unpacked: Path) -> None:
    options = beside(unpacked, unpacked / "ktier" / "data")
    parts = plan(read_options(options | {"maxRecordsPerPartition": "500"}))
    segments = [[each.base_offset for each in part.tier.parts if each.segment] if part.tier else None for part in parts]
    assert segments[0] == [12000]
    (local,) = plan(read_options(options | {"startingOffsets": f'{{"t": {{"0": {LOCAL}}}}}'}))
    assert local.tier is not None
    assert [(each.base_offset, each.end_offset, each.segment) for each in local.tier.parts] == [(0, LOCAL, None)]
    assert max(len(pickle.dumps(part)) for part in parts) < 1000
    committed = plan(read_options(options | {"isolationLevel": "read_committed"}))
    assert committed[0].tier is not None
    assert [each.base_offset for each in committed[0].tier.parts if each.segment] == [12000, 14033]


def test_segments_that_the_broker_moves_after_the_plan_are_read_from_the_tier(unpacked: Path, tmp_path: Path) -> None:
    """The local segments of a plan are deleted when its task opens the log."""
    root = metadata_free_directory(unpacked, tmp_path / "data")
    options = {"path": str(root), "subscribe": "t", "tier": f"file://{unpacked}/aiven-zstd/tier", **FROM_12000}
    local = tmp_path / "kept"
    shutil.copytree(root / "t-0", local)
    with pylog.open(root, mode="r", archive=pylog.KafkaTier(options["tier"])) as store:
        values = [record.value for record in store.log("t").records(14033, LOCAL)]
    (earlier,) = plan(read_options(options))
    moved = f"{14033:020d}"
    segment = next((unpacked / "ktier" / "remote").rglob(f"{moved}-*.log"))
    shutil.copy(segment, root / "t-0" / f"{moved}.log")
    (part,) = plan(read_options(options))
    assert part.tier is not None
    assert part.tier.local_start == 14033
    (root / "t-0" / f"{moved}.log").unlink()
    for each in (part, earlier):
        rows = [value for batch in read_slice(each, read_options(options).scan) for value in batch["value"].to_pylist()]
        assert rows[2032 : 2032 + 2048] == values


def test_without_the_tier_the_error_names_the_option(unpacked: Path) -> None:
    options = {"path": str(unpacked / "ktier" / "data"), "subscribe": "t"}
    with pytest.raises(OffsetOutOfRangeError, match="remote tier, which the option `tier` reads"):
        plan(read_options(options))


def test_a_segment_that_the_tier_lost_is_an_error_with_its_offsets(unpacked: Path, tmp_path: Path) -> None:
    root = metadata_free_directory(unpacked, tmp_path / "data")
    options = {"path": str(root), "subscribe": "t", "tier": f"file://{unpacked}/aiven-zstd/tier"}
    with pytest.raises(CorruptionError, match="offsets 0 to 11999 of t-0 are in no segment"):
        rows_of(options)


def test_an_executor_without_the_brokers_directory_says_so(unpacked: Path, tmp_path: Path) -> None:
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    options = beside(unpacked, root)
    parts = plan(read_options(options))
    shutil.rmtree(root)
    with pytest.raises(NotALogDirectoryError, match="every executor needs the store"):
        list(read_slice(parts[0], read_options(options).scan))


def test_of_two_topics_with_one_name_one_is_chosen(unpacked: Path, key: str, tmp_path: Path) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    (folder,) = [each for each in tier.iterdir() if each.name.startswith("txn-")]
    shutil.copytree(folder, tier / "txn-AAAAAAAAAAAAAAAAAAAAAA")
    options = {"tier": f"file://{tier}", "subscribe": "txn"}
    with pytest.raises(InvalidArgumentError, match="choose one"):
        plan(read_options(options))
    chosen = options | {"tier.topicIds": f"txn={folder.name.removeprefix('txn-')}"}
    assert rows_of(chosen) == rows_of(alone(unpacked, "aiven-plain", key))


# ---- options and secrets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/data", "tier.layout": "local"}, "add the option 'tier'"),
        ({"tier": "file:///tier", "tier.layout": "kafka"}, "layout='kafka' is not one of aiven, local"),
        ({"tier": "ftp://tier"}, "must begin with s3://"),
        ({"tier": "file:///tier", "path": "s3://bucket/shop"}, "path takes the broker's log directories"),
        ({"tier": "file:///tier", "tier.keys": "key.pem"}, "tier.keys must be different names"),
        ({"tier": "file:///tier", "tier.keys": "k1=a, k1=b"}, "tier.keys must be different names"),
        ({"tier": "file:///tier", "tier.layout": "local", "tier.keys": "k1=a"}, "takes no key_prefix and no keys"),
    ],
    ids=str,
)
def test_a_bad_option_of_a_tier_is_refused(options: dict[str, str], message: str) -> None:
    for parse in (read_options, stream_options, any_options):
        with pytest.raises(InvalidArgumentError, match=message):
            parse({"subscribe": "t", **options})


def test_no_key_and_no_password_is_in_a_message_a_plan_or_a_repr(
    unpacked: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    pem = Path(key).read_text()
    secret = pem.splitlines()[3]
    texts = []
    for options in ({"tier.keys": f"k1={pem}"}, {"tier.keys": pem}, {"tier": f"s3://me:{secret}@bucket/tier"}):
        with pytest.raises(InvalidArgumentError) as caught:
            read_options({"tier": "file:///tier", "subscribe": "t", **options})
        texts.append(str(caught.value))
    with caplog.at_level("DEBUG", "pylog"):
        options = alone(unpacked, "aiven-encrypted", key)
        parts, scan = plan(read_options(options)), read_options(options).scan
        assert sum(batch.num_rows for part in parts for batch in read_slice(part, scan)) == 437
    texts += [repr(parts), repr(scan), caplog.text, repr(pickle.dumps((parts, scan)))]
    assert not [text for text in texts if secret in text]


# ---- in Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("broker's directory", "Spark")
def test_spark_reads_an_encrypted_tier_and_its_plan_has_no_key(spark: SparkSession, unpacked: Path, key: str) -> None:
    frame = spark.read.format("pylog").options(**alone(unpacked, "aiven-zstd-encrypted", key)).load()
    assert frame.groupBy("partition").count().orderBy("partition").collect() == [(0, 325), (1, 112)]
    given = ", ".join(f"`{name}` '{value}'" for name, value in alone(unpacked, "aiven-zstd-encrypted", key).items())
    spark.sql(f"CREATE TABLE tiered USING pylog OPTIONS ({given})")
    assert spark.sql("SELECT count(*) FROM tiered").collect() == [(437,)]
    with pytest.raises(PySparkException, match="a broker's remote tier, which cannot be written"):
        spark.sql("INSERT INTO tiered (key, value) VALUES (X'00', X'00')")
    spark.sql("DROP TABLE tiered")
    shown = frame._jdf.queryExecution().toString() + repr(frame)
    assert Path(key).read_text().splitlines()[3] not in shown
