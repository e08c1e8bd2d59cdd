"""The same tests on each object store that is not pylog's own: moto and S3Proxy for S3, Azurite for Azure Blob Storage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pylog
from pylog.archive.verifying import verify_archive
from pylog.objects import open_objects
from support.kafka_tiers import PREFIXES
from support.objects import AFTER, BEFORE, FaultyObjects
from support.servers.servers import SECRETS, ObjectServer
from support.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
RECORDS = 2000
TIERED: dict[str, Any] = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_ms": -1, "segment_bytes": 5000}
COLUMNS = ["partition", "offset", "timestamp", "key", "value"]


@pytest.fixture(autouse=True)
def no_text_has_a_secret(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    with caplog.at_level("DEBUG", "pylog"):
        yield
    printed = capfd.readouterr()
    assert not [secret for secret in SECRETS if secret in caplog.text + printed.out + printed.err]


def archived(path: Path, url: str, server: ObjectServer) -> pylog.ArchiveReport:
    """A store with several segments, deleted records and a group's offset, in an archive."""
    with pylog.open(path, offsets=pylog.OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("orders", 2, segment_bytes=1 << 15, retention_ms=-1)
        for partition in range(2):
            for first in range(0, RECORDS, 100):
                rows = [(b"k%d" % row, bytes([row % 251]) * 100, (), T0 + row) for row in range(first, first + 100)]
                store.log("orders", partition).append_many(rows)
        store.log("orders", 1).delete_records(250)
        store.offsets.commit("billing", {pylog.TopicPartition("orders", 0): 700})
        return store.archive(url, include_active=True, **server.options)


# ---- jobs: these run on the driver, and what they send runs on the executors ---------------------------------------------


def load(spark: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    given = {"path": path, "subscribe": "orders", "maxRecordsPerPartition": "300", **options}
    return spark.read.format("pylog").options(**given).load()


def read(spark: SparkSession, path: str, options: dict[str, str], gone: str) -> Any:
    frame = load(spark, path, options)
    rows = frame.mapInArrow(with_executor(gone), "partition int, offset long, value binary, executor int").collect()
    shown = repr([frame, frame._jdf.queryExecution().toString(), frame.schema])
    return {
        "places": sorted([row.partition, row.offset] for row in rows),
        "values": sorted({bytes(row.value)[0] for row in rows}),
        "executors": len({row.executor for row in rows}),
        "late": load(spark, path, options).where(f"offset >= {RECORDS - 300} AND partition = 1").count(),
        "shown": shown,
    }


def with_executor(gone: str) -> Any:
    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert not Path(gone).exists()
        for batch in batches:
            executor = pa.array([os.getppid()] * batch.num_rows, pa.int32())
            yield batch.select(["partition", "offset", "value"]).append_column("executor", executor)

    return add


def hex_of(value: bytes | bytearray | None) -> str | None:
    return None if value is None else bytes(value).hex()


def read_tier(spark: SparkSession, options: dict[str, str]) -> Any:
    frame = spark.read.format("pylog").options(**options).load()
    rows = [(row.partition, row.offset, hex_of(row.value)) for row in frame.select("partition", "offset", "value").collect()]
    rows.sort()
    return {"rows": rows, "shown": repr([frame, frame._jdf.queryExecution().toString()])}


# ---- requests ----------------------------------------------------------------------------------------------------------------


def test_an_object_is_created_once_replaced_as_it_was_read_and_read_in_ranges(server: ObjectServer) -> None:
    objects = open_objects(server.new_url(), **server.options)
    objects.put_new("p/a", b"0123456789")
    with pytest.raises(pylog.ObjectExistsError):
        objects.put_new("p/a", b"other")
    assert bytes(objects.get_range("p/a", 2, 5)) == b"234"
    for start, end in ((5, 11), (20, 30)):
        with pytest.raises(pylog.ObjectStoreError):
            objects.get_range("p/a", start, end)
    _, etag = objects.get("p/a")
    objects.put_if("p/a", b"next", etag)
    with pytest.raises(pylog.ObjectConflictError):
        objects.put_if("p/a", b"late", etag)
    found = objects.head("p/a")
    assert found is not None
    assert (bytes(objects.get("p/a")[0]), found.size) == (b"next", 4)
    objects.put_new("p/b/c", b"x")
    objects.put_new("p2/a", b"x")
    assert sorted(each.key for each in objects.list("p/")) == ["p/a", "p/b/c"]
    objects.delete(["p/a", "p/b/c", "not/there"])
    assert [each.key for each in objects.list("")] == ["p2/a"]
    assert objects.head("p/a") is None
    with pytest.raises(pylog.ObjectNotFoundError):
        objects.get("p/a")


def test_of_many_writers_of_a_new_object_one_wins(server: ObjectServer) -> None:
    objects, outcomes = open_objects(server.new_url(), **server.options), Counter[str]()

    def write(number: int) -> None:
        for version in range(5):
            try:
                objects.put_new(f"manifest/{version}", b"%d" % number)
                outcomes[f"won {version}"] += 1
            except pylog.ObjectExistsError:
                outcomes["lost"] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {f"won {version}": 1 for version in range(5)} | {"lost": 35}


@pytest.mark.parametrize("name", ["s3proxy", "azurite"])  # moto takes any credentials
def test_wrong_credentials_are_an_error_without_them(servers: dict[str, ObjectServer], name: str) -> None:
    server = servers[name]
    wrong = {name: value[:-4] + "AAA=" for name, value in server.options["credentials"]().items()}
    objects = open_objects(server.new_url(), **{**server.options, "credentials": lambda: wrong})
    with pytest.raises(pylog.ObjectStoreError, match="the store refused the credentials") as caught:
        objects.put_new("a", b"x")
    assert not [value for value in wrong.values() if value in str(caught.value)]


# ---- an archive --------------------------------------------------------------------------------------------------------------


def test_a_store_is_archived_verified_read_by_url_and_restored(server: ObjectServer, tmp_path: Path) -> None:
    url, options = server.new_url(), server.options
    report = archived(tmp_path / "shop", url, server)
    assert report.not_archived == 0
    objects = open_objects(url, **options)
    assert verify_archive(objects, deep=True, orphans=True).ok
    with pylog.open(url, mode="r", access=options) as remote, pylog.open(tmp_path / "shop", mode="r") as local:
        assert remote.verify().ok
        assert remote.groups() == local.groups()
        for partition in range(2):
            one, other = local.log("orders", partition), remote.log("orders", partition)
            assert (other.start_offset, other.end_offset) == (one.start_offset, one.end_offset)
            assert other.offset_for_timestamp(T0 + 777) == one.offset_for_timestamp(T0 + 777)
            assert list(other.records()) == list(one.records())
    local_table = pylog.read_table(tmp_path / "shop", "orders", columns=COLUMNS)
    assert pylog.read_table(url, "orders", columns=COLUMNS, access=options).equals(local_table)
    restored = pylog.restore(url, tmp_path / "copy", old=tmp_path / "shop", **options)
    assert sum(each.lost for each in restored.partitions) == 0
    assert {each.relative_to(tmp_path / "copy"): each.read_bytes() for each in sealed(tmp_path / "copy")} == {
        each.relative_to(tmp_path / "shop"): each.read_bytes() for each in sealed(tmp_path / "shop")
    }


def sealed(path: Path) -> list[Path]:
    found = [each for each in path.glob("orders-*/*.log") if each.stat().st_size]
    assert found
    return found


def test_the_same_archive_again_uploads_nothing_and_another_store_is_refused(server: ObjectServer, tmp_path: Path) -> None:
    url = server.new_url()
    assert archived(tmp_path / "shop", url, server).segments > 2
    with pylog.open(tmp_path / "shop") as store:
        assert store.archive(url, **server.options).segments == 0
    with pytest.raises(pylog.IllegalStateError, match="archive of another store"):
        archived(tmp_path / "other", url, server)


def test_damage_in_a_bucket_is_found_and_named(server: ObjectServer, tmp_path: Path) -> None:
    url = server.new_url()
    archived(tmp_path / "shop", url, server)
    objects = open_objects(url, **server.options)
    key = min(each.key for each in objects.list("") if "/1/" in each.key and each.key.endswith(".log"))
    data = bytearray(objects.get(key)[0])
    data[len(data) // 2] ^= 1
    objects.put_if(key, data, None)
    assert not verify_archive(objects, deep=True).ok
    with pylog.open(url, mode="r", access=server.options) as store, pytest.raises(pylog.CorruptionError) as caught:
        list(store.log("orders", 1).scan())
    assert (str(caught.value.path).startswith(url), caught.value.offset is not None) == (True, True)
    assert Path(key).name.partition("-")[0] in str(caught.value.path)


# ---- Spark -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(servers: dict[str, ObjectServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A driver and two executors, with the credentials of each server in their environment."""
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "events").mkdir()
    environment = {name: value for server in servers.values() for name, value in server.environment.items()}
    options = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    options["spark.eventLog.dir"] = (directory / "events").as_uri()
    with Cluster(directory, environment, options) as made:
        yield made


def place(server: ObjectServer) -> dict[str, str]:
    """Returns the options of a read of a server's buckets."""
    return {"s3.endpoint": server.options["endpoint"], "s3.region": "us-east-1"}


def test_spark_reads_a_url_on_executors_that_have_no_store(server: ObjectServer, cluster: Cluster, tmp_path: Path) -> None:
    url, shop = server.new_url(), tmp_path / "shop"
    archived(shop, url, server)
    shutil.rmtree(shop)  # nothing but the bucket is left
    found = cluster.run(read, path=url, options=place(server), gone=str(shop))
    assert found["places"] == [[0, offset] for offset in range(RECORDS)] + [[1, offset] for offset in range(250, RECORDS)]
    assert (found["values"], found["executors"], found["late"]) == (list(range(251)), 2, 300)
    check_secrets(cluster, found["shown"])


def check_secrets(cluster: Cluster, shown: str, *more: str) -> None:
    """Checks that Spark's logs and a plan have no secret."""
    logged = [each.read_text(errors="replace") for each in cluster.log.parent.glob("events/**/*") if each.is_file()]
    events = "".join(logged)
    assert ("SparkListenerTaskEnd" in events, "physicalPlanDescription" in events) == (True, True)
    printed = shown + events + cluster.log.read_text(errors="replace")
    assert not [secret for secret in (*SECRETS, *more) if secret in printed]


@pytest.fixture
def tiers(server: ObjectServer) -> Callable[[Path], str]:
    """Copies a broker's tier to a bucket, and returns its URL."""

    def copied(directory: Path) -> str:
        url = server.new_url()
        objects = open_objects(url, **server.options)
        for file in directory.rglob("*"):
            if file.is_file():
                objects.put_new(str(file.relative_to(directory)), file.read_bytes())
        return url

    return copied


@pytest.mark.pair("broker's directory", "Spark")
@pytest.mark.parametrize("name", ["aiven-plain", "aiven-zstd-encrypted"])
def test_spark_reads_a_brokers_tier_in_a_bucket(
    server: ObjectServer, cluster: Cluster, unpacked: Path, key: str, tiers: Callable[[Path], str], name: str
) -> None:
    """The tier is read alone: the executors have nothing but its URL, and the path of the key."""
    url, keys = tiers(unpacked / name / "tier"), {"k1": key} if "encrypted" in name else {}
    options = {"tier": url, "subscribe": "txn", "tier.keyPrefix": PREFIXES[name], "maxBytesPerPartition": "3000"}
    options |= {"tier.keys": ",".join(f"{each}={path}" for each, path in keys.items()), **place(server)}
    found = cluster.run(read_tier, options={name: value for name, value in options.items() if value})
    wanted = pylog.read_table(
        pylog.KafkaTier(f"file://{unpacked}/{name}/tier", key_prefix=PREFIXES[name], keys=keys or None), "txn"
    )
    columns = (wanted[each].to_pylist() for each in ("partition", "offset", "value"))
    assert found["rows"] == [[partition, offset, hex_of(value)] for partition, offset, value in zip(*columns, strict=True)]
    assert len(found["rows"]) == 437
    check_secrets(cluster, found["shown"], Path(key).read_text().splitlines()[3])


@pytest.mark.pair("broker's directory", "Spark")
def test_spark_reads_a_brokers_directory_with_its_tier_in_a_bucket(
    server: ObjectServer, cluster: Cluster, unpacked: Path, tiers: Callable[[Path], str]
) -> None:
    url = tiers(unpacked / "ktier" / "remote" / "kafka-tiered-storage")
    options = {"path": str(unpacked / "ktier" / "data"), "subscribe": "t", "tier": url, "tier.layout": "local"}
    options |= {"startingOffsets": '{"t": {"0": 12000}}', "maxRecordsPerPartition": "500", **place(server)}
    found = cluster.run(read_tier, options=options)
    offsets = [offset for _, offset, _ in found["rows"]]
    assert (offsets[0], len(offsets), len(set(offsets))) == (12000, 4500, 4500)
    check_secrets(cluster, found["shown"])


# ---- tiering -----------------------------------------------------------------------------------------------------------------


def value(number: int) -> bytes:
    return b"%d " % number + b"x" * 90


def check(store: pylog.Store, least: int) -> int:
    """Checks that a log has each record once; returns its end."""
    log = store.log("t")
    found = [(record.offset, record.value) for record in log.records()]
    assert found == [(number, value(number)) for number in range(log.end_offset)]
    assert log.end_offset >= least
    return log.end_offset


@pytest.mark.parametrize("where", [BEFORE, AFTER])
def test_a_tiered_log_loses_nothing_when_requests_fail(server: ObjectServer, tmp_path: Path, where: str) -> None:
    count = iter(range(10**6))
    cloud: Any = FaultyObjects(
        open_objects(server.new_url(), **server.options), lambda request, key: where if next(count) % 7 == 3 else None
    )
    with pylog.open(tmp_path / "shop", archive=cloud) as store:
        store.create_topic("t", **TIERED)
        for number in range(400):
            store.log("t").append(value(number))
            if number % 50 == 49:
                store.tick()
        assert cloud.failed > 5
        cloud.fault = lambda request, key: None
        store.tick()
        assert store.log("t").local_start_offset > 300
        assert check(store, 400) == 400
        assert store.verify().ok
        store.log("t").delete_records(120)
        assert [record.offset for record in store.log("t").records()] == list(range(120, 400))


CHILD = """
import sys, json
import pylog
from pylog.objects import open_objects
path, url, options, credentials = json.loads(sys.argv[1])
with pylog.open(path, archive=open_objects(url, credentials=lambda: credentials, **options)) as store:
    log = store.log("t")
    while True:
        for number in range(log.end_offset, log.end_offset + 60):
            print(log.append(b"%d " % number + b"x" * 90), flush=True)
        store.tick()
"""


def test_a_process_that_is_killed_while_it_tiers_loses_no_acknowledged_record(server: ObjectServer, tmp_path: Path) -> None:
    url, path = server.new_url(), tmp_path / "shop"
    plain = {name: option for name, option in server.options.items() if name != "credentials"}
    given = json.dumps([str(path), url, plain, server.options["credentials"]()])
    cloud = open_objects(url, **server.options)
    with pylog.open(path, archive=cloud) as store:
        store.create_topic("t", **TIERED)
    acknowledged = 0
    for records in (70, 250, 310):  # killed soon after these: while segments are uploaded, or before, or after
        child = subprocess.Popen([sys.executable, "-c", CHILD, given], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        first = acknowledged
        while acknowledged < first + records:
            acknowledged = int(child.stdout.readline()) + 1
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *(int(line) + 1 for line in child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        with pylog.open(path, archive=cloud) as store:
            acknowledged = check(store, acknowledged)
    with pylog.open(path, archive=cloud) as store:
        store.tick()
        assert store.log("t").local_start_offset > 500
        assert check(store, acknowledged) == acknowledged
        assert store.verify().ok
        assert verify_archive(cloud, deep=True).ok
