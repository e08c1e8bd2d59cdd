"""A name that a file holds is a name: it leads to a file of the store, or it is refused. All checksums here are right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

import pylog
from pylog.clock import SystemClock
from pylog.errors import CorruptionError, InvalidArgumentError, PylogError
from pylog.fs import OsFileSystem, inside, parent_process
from pylog.groups.plan_file import parse_plans
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch
from pylog.staging.intents import Intent, PartitionIntent, StagedFile, intent_name, read_intent, write_intent
from pylog.staging.names import StagingName
from pylog.testing import MemoryFileSystem

QUERY = "ab-12"
OUTSIDE = ["../elsewhere/staged", "{top}/elsewhere/staged", "..", ".", "", "a/b", "a\0b", "a\nb", "\ud800", "x" * 256, "ä" * 128]


def sealed(content: dict[str, Any]) -> bytes:
    def encode(value: object) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    return encode(content | {"crc32c": f"{google_crc32c.value(encode(content | {'crc32c': ''})):08x}"})


def new_store(path: Path) -> Path:
    root = path / "store"
    (path / "elsewhere").mkdir()
    with pylog.open(root) as store:
        store.create_topic("t")
        store.log("t").append(b"one")
    return root


def one_record(path: Path) -> bytes:
    with pylog.open(path) as store:
        store.create_topic("t")
        store.log("t").append(b"from outside")
    return (path / "t-0" / f"{0:020}.log").read_bytes()


def staged(name: str, data: bytes, index: bytes) -> dict[str, Any]:
    return {"name": name, "index_position": len(data), "index_size": len(index), "index_crc": google_crc32c.value(index)}


def intent(*files: dict[str, Any], query: str = QUERY, topic: str = "t", **changed: Any) -> bytes:
    targets = [{"topic": topic, "partition": 0, "end_offset": 1} | changed]
    return sealed({"query": query, "batch": 3, "files": list(files), "targets": targets, "done": False, "version": 2})


def resume(root: Path) -> None:
    with pylog.open(root) as store:
        commit_batch(StoreAccess(store, OsFileSystem(), SystemClock()), QUERY, 3, [], CommitOptions())


def values(root: Path) -> list[bytes | None]:
    with pylog.open(root, "r") as store:
        return [record.value for record in store.log("t").records()]


def entries(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_of_a_directory_makes_no_path(name: str):
    with pytest.raises(CorruptionError, match=r"^/data/list names .*, which is not a file of /data") as caught:
        inside("/data", name.format(top="/top"), "/data/list")
    assert caught.value.path == "/data/list"
    assert str(caught.value).isprintable()


# ---- a query's file ------------------------------------------------------------------------------------------------------


def test_a_querys_file_with_the_name_of_its_own_staging_file_is_obeyed(tmp_path: Path):
    root, data = new_store(tmp_path), one_record(tmp_path / "other")
    index = json.dumps([{"t": 1}, [["t", 0, [0, len(data), 1]]]], separators=(",", ":")).encode()
    name = StagingName(QUERY, 3, parent_process(OsFileSystem().boot_id())).new()
    (root / name).write_bytes(data + index)
    (root / intent_name(QUERY)).write_bytes(intent(staged(name, data, index)))
    resume(root)
    assert values(root) == [b"one", b"from outside"]


@pytest.mark.parametrize("name", ["../elsewhere/staged", "{top}/elsewhere/staged", "t-0/../../elsewhere/staged", "link"])
def test_a_querys_file_that_names_a_file_outside_is_refused_and_nothing_appended(tmp_path: Path, name: str):
    root, data = new_store(tmp_path), one_record(tmp_path / "other")
    index = json.dumps([{"t": 1}, [["t", 0, [0, len(data), 1]]]], separators=(",", ":")).encode()
    (tmp_path / "elsewhere" / "staged").write_bytes(data + index)
    os.symlink(tmp_path / "elsewhere" / "staged", root / "link")
    (root / intent_name(QUERY)).write_bytes(intent(staged(name.format(top=tmp_path), data, index)))
    with pytest.raises(PylogError):
        resume(root)
    assert values(root) == [b"one"]
    assert (tmp_path / "elsewhere" / "staged").exists()


@pytest.mark.parametrize("query", ["x/../../elsewhere/a", "cd-34"])
def test_a_querys_file_that_is_another_querys_writes_no_file_of_that_name(tmp_path: Path, query: str):
    root = new_store(tmp_path)
    (root / "pylog-query.x").mkdir()
    (root / intent_name(QUERY)).write_bytes(intent(query=query))
    before = entries(tmp_path / "elsewhere")
    with pytest.raises(CorruptionError, match="it is the file of another query"):
        resume(root)
    assert entries(tmp_path / "elsewhere") == before
    assert not (root / "pylog-query.cd-34.json").exists()


@pytest.mark.parametrize("topic", ["../t", "/t", "..", "a\0b", ""])
def test_a_querys_file_names_topics_and_no_paths(tmp_path: Path, topic: str):
    root = new_store(tmp_path)
    (root / intent_name(QUERY)).write_bytes(intent(topic=topic))
    with pytest.raises(CorruptionError, match="names a topic that cannot exist"):
        resume(root)


@pytest.mark.parametrize("changed", [{"partition": -1}, {"partition": 2**31}, {"end_offset": -1}, {"end_offset": 2**63}])
def test_a_querys_file_with_numbers_that_no_log_has_is_refused(tmp_path: Path, changed: dict[str, int]):
    root = new_store(tmp_path)
    (root / intent_name(QUERY)).write_bytes(intent(**changed))
    with pytest.raises(CorruptionError, match="is damaged"):
        resume(root)


@pytest.mark.parametrize(
    "index",
    [
        b"rubbish",
        b"\xff",
        b"[" * 100_000,
        b'[{"t":1},[["t",0,[0,70]]]]',
        b'[{"t":1},[["t",0,[-5,70,1]]]]',
        b'[{"t":1},[["t",0,[0,9223372036854775808,1]]]]',
        b'[{"t":1},[["t",0,[0,1099511627776,1]]]]',
        b'[{"t":1},[["t",0,[0,70,4611686018427387904]]]]',
        b'[{"t":1},[["t",0,[0,70,0]]]]',
        b'[{"t":1},[["../t",0,[0,70,1]]]]',
        b'[{"../t":1},[]]',
        b'[{"t":1},[["t",-1,[0,70,1]]]]',
    ],
)
def test_an_index_of_a_staging_file_that_lies_under_its_checksum_is_refused(tmp_path: Path, index: bytes):
    root, data = new_store(tmp_path), one_record(tmp_path / "other")
    (root / "staged.batches").write_bytes(data + index)
    (root / intent_name(QUERY)).write_bytes(intent(staged("staged.batches", data, index)))
    with pytest.raises(CorruptionError, match="run the job again") as caught:
        resume(root)
    assert caught.value.position == len(data)
    assert values(root) == [b"one"]


UNREADABLE: dict[str, bytes | str] = {
    "nested": b'{"version":' + b"[" * 100_000,
    "nested deeper in": b'{"query":' + b"[" * 100_000,
    "no UTF-8": b'{"version":"\xff"}',
    "no object": b"[]",
    "nothing": b"",
    "a later version": b'{"version":9}',
    "a version of many digits": b'{"version":' + b"9" * 5000 + b"}",
    "a directory": "directory",
    "a link": "link",
    "a pipe": "pipe",
    "a hole of a gigabyte": "hole",
}


def lay(path: Path, kind: bytes | str) -> None:
    if isinstance(kind, bytes):
        path.write_bytes(kind)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(path.parent.parent / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 30)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_querys_file_that_cannot_be_read_keeps_no_store_from_opening_and_all_staging_files(tmp_path: Path, kind: str):
    root = new_store(tmp_path)
    lay(root / intent_name(QUERY), UNREADABLE[kind])
    dead = root / "pylog-staging.ab.0.aa-bb-1-2-3.0a.batches"
    dead.touch()
    os.utime(dead, (1e9, 1e9))
    with pylog.open(root) as store:
        assert store.log("t").append(b"two") == 1
    assert dead.exists()
    with pytest.raises(PylogError):
        read_intent(OsFileSystem(), str(root), QUERY)


def test_a_staging_file_of_a_process_with_an_impossible_number_keeps_no_store_from_opening(tmp_path: Path):
    root, owner = new_store(tmp_path), parent_process(OsFileSystem().boot_id())
    (root / StagingName("ab-1", 0, owner._replace(pid=2**70)).new()).touch()
    with pylog.open(root) as store:
        assert store.log("t").append(b"two") == 1


def test_a_querys_file_may_name_files_that_are_gone():
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs) as store:
        store.create_topic("t")
    write_intent(fs, "/s", Intent(QUERY, 3, (StagedFile("gone", 0, 0, 0),), (PartitionIntent("t", 0, 0),)))
    found = read_intent(fs, "/s", QUERY)
    assert found is not None
    assert found.files[0].name == "gone"


# ---- other files with names ----------------------------------------------------------------------------------------------

NAMES = ["../elsewhere-0", "/elsewhere-0", "..", "a/b-0", "a\0-0"]
TARGET = f"t-0.{'0' * 32}-delete"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["topics", "old", "new"])
def test_the_catalog_deletes_and_makes_nothing_outside(tmp_path: Path, name: str, field: str):
    root = new_store(tmp_path)
    (tmp_path / "elsewhere-0").mkdir()
    before = entries(tmp_path)
    content: dict[str, Any] = {"version": 1, "topics": {}, "deleting": {}}
    if field == "topics":
        content["topics"] = {name: {"id": "A" * 22, "partitions": 1, "config": {}}}
    else:
        content["deleting"] = {name: TARGET} if field == "old" else {"t-0": name}
    (root / "pylog.json").write_bytes(sealed(content))
    with pytest.raises(CorruptionError):
        pylog.open(root).close()
    assert entries(tmp_path) == before


def test_a_link_that_the_catalog_deletes_goes_and_what_it_leads_to_stays(tmp_path: Path):
    root = new_store(tmp_path)
    (tmp_path / "elsewhere" / "kept").touch()
    (root / "u-0").symlink_to(tmp_path / "elsewhere")
    content = {"version": 1, "topics": {}, "deleting": {"u-0": f"u-0.{'0' * 32}-delete"}}
    (root / "pylog.json").write_bytes(sealed(content))
    with pylog.open(root):
        pass
    assert (tmp_path / "elsewhere" / "kept").exists()
    assert not any(name.startswith("store/u-0") for name in entries(tmp_path))


@pytest.mark.parametrize("topic", ["../t", "/t", "..", "a\0b"])
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_checkpoint_with_a_path_for_a_topic_opens_nothing(tmp_path: Path, name: str, topic: str):
    root = new_store(tmp_path)
    before = entries(tmp_path / "elsewhere")
    (root / name).write_text(f"0\n1\n{topic} 0 5\n")
    with pylog.open(root) as store:
        assert store.log("t").append(b"two") == 1
        assert list(store.topics()) == ["t"]
    assert entries(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("topic", ["../t", "/t", "..", "a\0b"])
def test_a_plan_with_a_path_for_a_topic_is_refused(topic: str):
    with pytest.raises(InvalidArgumentError, match=r"line 1"):
        parse_plans(f"g,{topic},0,5\n", "plan.csv")


def test_a_catalog_with_more_partitions_together_than_memory_holds_is_refused(tmp_path: Path):
    root = new_store(tmp_path)
    topics = {f"x{number}": {"id": "A" * 22, "partitions": 1_000_000, "config": {}} for number in range(2)}
    (root / "pylog.json").write_bytes(sealed({"version": 1, "topics": topics, "deleting": {}}))
    before = entries(root)
    with pytest.raises(CorruptionError, match="more than 1000000 partitions together"):
        pylog.open(root).close()
    with pylog.open(root, "r") as store, pytest.raises(CorruptionError, match="more than 1000000 partitions together"):
        store.topics()
    assert entries(root) == before


@pytest.mark.slow
def test_no_topic_is_made_with_which_the_catalog_could_not_be_read_again(tmp_path: Path):
    with pylog.open(new_store(tmp_path)) as store:
        with pytest.raises(InvalidArgumentError, match="more than 1000000 together"):
            store.create_topic("u", 1_000_000)
        assert list(store.topics()) == ["t"]
