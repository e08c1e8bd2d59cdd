"""`tools.graduate`: what it writes is what a broker reads, nothing is written when something is wrong, and all can be taken back.

That a broker boots from it is tested with one: tests/kafka/test_interop_graduate.py.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog import limits
from pylog.config import TopicConfig
from pylog.directory.partition_metadata import new_topic_id
from pylog.errors import (
    CorruptionError,
    IllegalStateError,
    InvalidArgumentError,
    NotALogDirectoryError,
    StorageFailedError,
    StoreLockedError,
)
from pylog.fs import FileSystem
from pylog.offsets.store import offset_manager_of
from pylog.record.batch import scan_batches
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, COUNT, CRC_GOOD, CRC_STATE, LAST_OFFSET
from pylog.tools import graduate
from pylog.tools.adoption import kafka_options
from pylog.tools.graduate import RECORD, Graduation, carry_out, plan_graduation, take_back
from pylog.tools.metadata import KafkaTopic, bootstrap_checkpoint
from pylog.topics.signs import META_PROPERTIES
from support.faults.neighbours import Neighbour

OS = pylog.Durability.OS
NOON = 1_706_702_400_000
AS_A_BROKER = """
import fcntl
store.close()
file = open(path + "/.lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "shop", durability=OS, offsets=pylog.OffsetsConfig(topic_num_partitions=3)) as store:
        store.create_topic("orders", partition_count=2, retention_ms=-1)
        store.log("orders").append_batch([b"a", b"b"], producer=pylog.ProducerBatch(41, 0, 0))
        store.offsets.commit("billing", {("orders", 0): 1})
    return tmp_path / "shop"


def files(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name not in (".lock", "pylog.lock"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def noon() -> int:
    return NOON


# ---- bytes -------------------------------------------------------------------------------------------------------------------


def test_metadata_records_are_those_that_kafkas_own_tool_writes() -> None:
    """The golden values of groups-and-transactions 9.4."""
    topic_id = new_topic_id()
    raw = base64.urlsafe_b64decode(topic_id + "==")
    data = bootstrap_checkpoint([KafkaTopic("boo", topic_id, {"retention.ms": "-1"}, (50,))], 1, 0, NOON)
    assert bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00") in data, "metadata.version 30"
    assert bytes.fromhex("01020004626f6f") + raw + b"\0" in data
    assert bytes.fromhex("0104000204626f6f0d726574656e74696f6e2e6d73032d3100") in data
    numbers = "02000000010200000001010100000001000000320000000002" + bytes(16).hex() + "00"
    assert bytes.fromhex("01030100000000") + raw + bytes.fromhex(numbers) in data


@pytest.mark.parametrize("partitions", [0, 1, 250])
def test_the_checkpoint_is_batches_without_a_gap_between_two_control_batches(partitions: int) -> None:
    topics = [KafkaTopic("wide", new_topic_id(), {}, (0,) * partitions)]
    data = bootstrap_checkpoint(topics, 1, 7, NOON)
    table = scan_batches(np.frombuffer(data, np.uint8), verify=True).table
    assert (table[CRC_STATE] == CRC_GOOD).all()
    assert table[ATTRIBUTES].tolist() == [0x20, *[0] * (table.shape[1] - 2), 0x20]
    assert table[BASE_OFFSET].tolist() == [0, *(table[LAST_OFFSET][:-1] + 1).tolist()]
    assert int(table[COUNT].sum()) == 2 + 6 + 1 + partitions + 1
    assert struct.pack(">iqq", 1, 0, 7) in data


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}),
        ({"compression_type": "none"}, {"compression.type": "uncompressed"}),
        ({"segment_bytes": 5000}, {"segment.bytes": "1048576"}),
        ({"durability": "sync"}, {"flush.messages": "1"}),
        ({"durability": "interval:250"}, {"flush.ms": "250"}),
        ({"retention_group": "g", "retention_ms": 5, "retention_bytes": 5}, {"retention.ms": "-1", "retention.bytes": "-1"}),
        ({"min_cleanable_dirty_ratio": 0.25, "cleanup_policy": "compact"}, {"min.cleanable.dirty.ratio": "0.25"}),
    ],
)
def test_options_are_told_in_kafkas_words_and_never_delete_more_than_here(options: dict, expected: dict) -> None:
    found = kafka_options(TopicConfig(**options))
    assert expected.items() <= found.items()
    assert not {"durability", "retention.group", "retention.group.max.bytes", "producer.id.expiration.ms"} & found.keys()


# ---- planning ----------------------------------------------------------------------------------------------------------------


def test_a_plan_names_topics_properties_and_files_and_writes_nothing(shop: Path) -> None:
    before = files(shop)
    found = plan_graduation(str(shop), node_id=7)
    assert files(shop) == before
    assert [(topic.name, len(topic.leader_epochs)) for topic in found.topics] == [("__consumer_offsets", 3), ("orders", 2)]
    assert found.topics[0].options["cleanup.policy"] == "compact"
    assert [file.path for file in found.files] == ["bootstrap.checkpoint", "meta.properties"]
    assert b"node.id=7\n" in found.files[1].data
    assert found.properties["offsets.topic.num.partitions"] == "3"
    assert found.properties["node.id"] == "7"
    assert found.next_producer_id == 42
    assert "offsets.retention.minutes" not in found.properties


def test_changes_that_a_broker_would_make_at_once_are_reported(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.create_topic("old", segment_bytes=120)
        for number in range(4):
            store.log("old").append(b"x" * 20, timestamp=NOON + number)
        store.create_topic("own", durability="sync", retention_group="billing")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(offset_manager_of(store.offsets).clock, "now_ms", noon)
            store.offsets.commit("sleepy", {("orders", 0): 0})
    found = plan_graduation(str(shop))
    notes = "\n".join(found.notes)
    assert "topic old: retention will delete 4 segments" in notes
    assert "old --set retention.ms=-1" in notes
    assert "topic old: segment.bytes=120 becomes 1048576" in notes
    assert "topic own: durability=sync becomes flush.messages=1" in notes
    assert "topic own: retention.group=billing" in notes
    assert int(found.properties["offsets.retention.minutes"]) > 1_000_000, "else the broker deletes the oldest offsets"


def test_partitions_without_an_id_get_the_one_of_their_topic(shop: Path) -> None:
    (shop / "orders-1" / "partition.metadata").unlink()
    found = plan_graduation(str(shop))
    orders = found.topics[1]
    assert found.files[0].path == "orders-1/partition.metadata"
    assert found.files[0].data == (shop / "orders-0" / "partition.metadata").read_bytes()
    assert orders.id.encode() in found.files[0].data


def _broker_was_here(shop: Path) -> None:
    (shop / "meta.properties").write_text("version=1\n")


def _a_foreign_directory(shop: Path) -> None:
    (shop / "lost+found").mkdir()


def _a_number_beyond_all_partitions(shop: Path) -> None:
    (shop / f"orders-{limits.MAX_PARTITIONS}").mkdir()


def _a_name_that_stops_brokers(shop: Path) -> None:
    (shop / "orders-0" / "copy.log").write_bytes(b"")


def _another_topics_partition(shop: Path) -> None:
    (shop / "orders-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {new_topic_id()}")


def _damage(shop: Path) -> None:
    path = shop / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def _a_torn_end(shop: Path) -> None:
    path = shop / "orders-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + bytes(30))


@pytest.mark.damaged("some of them are meant to be")
@pytest.mark.parametrize(
    ("spoil", "error", "told"),
    [
        (_broker_was_here, IllegalStateError, "belongs to a broker already: it has meta.properties"),
        (_a_foreign_directory, NotALogDirectoryError, r"lost\+found is not a partition directory"),
        (_a_number_beyond_all_partitions, NotALogDirectoryError, "orders-1000000 .* at most 1000000 are allowed; move it away"),
        (_a_name_that_stops_brokers, NotALogDirectoryError, "copy.log has no offset in its name"),
        (_another_topics_partition, (NotALogDirectoryError, CorruptionError), "orders-1"),
        (_damage, CorruptionError, "orders-0.*verify the directory to see all of it, and repair it first"),
        (_a_torn_end, CorruptionError, "has 30 bytes after its end; remove .*cleanshutdown"),
    ],
)
def test_a_graduation_that_would_go_wrong_with_a_broker_is_refused(
    shop: Path, spoil: Callable[[Path], None], error: type[Exception], told: str
) -> None:
    spoil(shop)
    before = files(shop)
    with pytest.raises(error, match=told):
        plan_graduation(str(shop))
    assert files(shop) == before


@pytest.mark.slow
def test_a_directory_that_another_process_has_open_is_refused(shop: Path) -> None:
    found = plan_graduation(str(shop))
    with Neighbour() as other:
        other.run("import pylog\nstore = pylog.open(path)", path=str(shop))
        with pytest.raises(StoreLockedError):
            carry_out(found)
        other.run(
            "store.close()\nimport fcntl\nfile = open(path + '/.lock', 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)", path=str(shop)
        )
        with pytest.raises(StoreLockedError, match="exclusively"):
            plan_graduation(str(shop))
    assert not (shop / RECORD).exists()


@pytest.mark.parametrize("node_id", [-1, 2**31, True, "1"])
def test_a_node_id_that_no_broker_can_have_is_refused(shop: Path, node_id: object) -> None:
    with pytest.raises(InvalidArgumentError, match="node_id="):
        plan_graduation(str(shop), node_id=node_id)  # type: ignore[arg-type]


# ---- doing it, and taking it back --------------------------------------------------------------------------------------------


@pytest.mark.damaged("a file is removed, which checking at the end would have made")
def test_written_files_can_be_taken_back_to_the_byte(shop: Path) -> None:
    (shop / "orders-1" / "partition.metadata").unlink()
    before = files(shop)
    found = plan_graduation(str(shop))
    carry_out(found)
    after = files(shop)
    assert after.keys() - before.keys() == {RECORD, *(file.path for file in found.files)}
    assert {path: after[path] for path in before} == before
    with pytest.raises(IllegalStateError, match=r"already: it has meta\.properties; undo the graduation"):
        plan_graduation(str(shop))
    with pylog.open(shop, mode="r") as store:
        assert store.log("orders").read(1).value == b"b"
    assert set(take_back(str(shop))) == {file.path for file in found.files}
    assert files(shop) == before
    with pytest.raises(IllegalStateError, match="was not graduated"):
        take_back(str(shop))


def test_nothing_is_taken_back_once_a_broker_has_started(shop: Path) -> None:
    carry_out(plan_graduation(str(shop)))
    (shop / "__cluster_metadata-0").mkdir()
    before = files(shop)
    with pytest.raises(IllegalStateError, match="a broker has started"):
        take_back(str(shop))
    assert files(shop) == before


def test_a_note_of_what_was_written_removes_nothing_else(shop: Path) -> None:
    outside = shop.parent / "partition.metadata"
    outside.write_text("mine")
    for names in ('["pylog.json"]', '["../partition.metadata"]', '["orders-0/durable-point"]', "[1]", "nonsense"):
        (shop / RECORD).write_text(f'{{"version":1,"files":{names}}}')
        with pytest.raises(CorruptionError, match=RECORD):
            take_back(str(shop))
    assert outside.exists()
    assert (shop / "pylog.json").exists()


def test_a_plan_is_refused_when_the_directory_has_changed_since(shop: Path) -> None:
    found = plan_graduation(str(shop))
    with pylog.open(shop) as store:
        store.log("orders").append(b"late")
    with pytest.raises(IllegalStateError, match="changed since"):
        carry_out(found)
    assert not (shop / "meta.properties").exists()


def test_a_write_that_fails_leaves_no_directory_that_a_broker_starts_on(shop: Path) -> None:
    found = plan_graduation(str(shop))
    broken = Graduation(**{**vars(found), "files": (*found.files[:-1], found.files[-1]._replace(directory="nowhere"))})
    with pytest.raises(StorageFailedError):
        carry_out(broken)
    assert (shop / "bootstrap.checkpoint").exists()
    assert not (shop / "meta.properties").exists(), "without it no broker starts"


def test_one_that_was_killed_before_its_last_file_is_finished_by_graduating_again(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = graduate.write_atomically

    def until_the_last(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
        if name == META_PROPERTIES:
            raise KeyboardInterrupt
        write(fs, directory, name, data)

    monkeypatch.setattr(graduate, "write_atomically", until_the_last)
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan_graduation(str(shop)))
    monkeypatch.undo()
    carry_out(plan_graduation(str(shop)))
    assert (shop / META_PROPERTIES).exists()
    take_back(str(shop))
    assert not (shop / META_PROPERTIES).exists()
