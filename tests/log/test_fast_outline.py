"""The fast outline has what opening the log finds, or nothing, whatever is done to the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import Durability
from pylog.fs import OsFileSystem
from pylog.log.reading.fast_outline import FastOutline, fast_outline, is_still_so
from pylog.log.reading.outline import PartitionExtent
from pylog.log.reading.planning import cut
from pylog.store import manager_of
from support.faults.sparse_log import TOPIC, make_store

FS = OsFileSystem()


def filled(root: Path, pieces: int = 12, *, rows: int = 50, interval: int = 1) -> Path:
    """A store that was closed, with segments of some sixteen kilobytes."""
    values = pa.table({"value": pa.array([b"%0100d" % number for number in range(rows)], pa.binary())})
    with pylog.open(root, durability=Durability.OS) as store:
        store.create_topic(TOPIC, segment_bytes=16_384, index_interval_bytes=interval)
        for _ in range(pieces):
            store.log(TOPIC).append_arrow(values)
    return root


def seen(root: Path) -> FastOutline | None:
    return fast_outline(FS, str(root / f"{TOPIC}-0"), 0, ours=True)


def known(root: Path) -> PartitionExtent:
    """What opening it finds."""
    with pylog.open(root, mode="r") as store:
        return manager_of(store).outline(TOPIC)


def numbers(outline: PartitionExtent) -> tuple[int, int, list[int], list[int]]:
    return outline.start_offset, outline.end_offset, list(outline.bases), list(outline.sizes)


@pytest.mark.parametrize(("rows", "interval"), [(50, 1), (50, 4096), (1, 4096)])
def test_a_glance_at_a_closed_log_says_what_opening_finds(tmp_path: Path, rows: int, interval: int):
    root = filled(tmp_path / "shop", 600 // rows, rows=rows, interval=interval)
    found = seen(root)
    assert found is not None
    with pylog.open(root, mode="r") as store:
        opened = manager_of(store).outline(TOPIC)
        assert numbers(found.outline) == numbers(opened)
        assert len(opened.bases) > 3
        for start, end, size in [(0, 600, 3_000), (120, 599, 20_000), (77, 78, 1), (599, 600, 1), (0, 600, 1)]:
            assert cut(found.outline, start, end, size) == cut(opened, start, end, size)


def test_a_glance_at_a_brokers_log_says_what_opening_finds(tmp_path: Path):
    make_store(tmp_path / "shop", partitions=1, segments=3, batches=4)
    found = seen(tmp_path / "shop")
    assert found is not None
    assert found.slot is None
    assert numbers(found.outline) == numbers(known(tmp_path / "shop"))


def test_where_the_log_begins_is_reported_by_its_header_and_a_brokers_checkpoint(tmp_path: Path):
    root = filled(tmp_path / "shop")
    with pylog.open(root) as store:
        store.log(TOPIC).delete_records(420)
    directory = str(root / f"{TOPIC}-0")
    starts = {
        (told, ours): found.outline.start_offset
        for told in (0, 500, 900)
        for ours in (True, False)
        if (found := fast_outline(FS, directory, told, ours=ours)) is not None
    }
    assert starts == {(0, True): 420, (500, True): 420, (900, True): 420, (0, False): 420, (500, False): 500, (900, False): 900}


@pytest.mark.slow
def test_a_log_that_is_written_is_seen_as_published_or_not_at_all(tmp_path: Path):
    with pylog.open(filled(tmp_path / "shop")) as store:
        for _ in range(200):
            store.log(TOPIC).append(b"one more")
            found = seen(tmp_path / "shop")
            assert found is None or found.outline.end_offset == store.log(TOPIC).end_offset


def test_a_partition_that_is_not_there_is_not_seen(tmp_path: Path):
    assert seen(tmp_path) is None
    (tmp_path / f"{TOPIC}-0").mkdir()
    assert seen(tmp_path) is None


@pytest.mark.parametrize("broker", [False, True])
def test_an_outline_that_is_no_longer_current_is_noticed(tmp_path: Path, broker: bool):
    root = filled(tmp_path / "shop")
    if broker:
        (root / f"{TOPIC}-0" / "durable-point").unlink()
    found = seen(root)
    assert found is not None
    directory = str(root / f"{TOPIC}-0")
    assert is_still_so(FS, directory, found)
    with pylog.open(root) as store:
        store.log(TOPIC).append(b"one more")
    assert not is_still_so(FS, directory, found)


def test_bytes_that_a_broker_appends_after_a_header_are_noticed(tmp_path: Path):
    root = filled(tmp_path / "shop")
    found = seen(root)
    assert found is not None
    directory = root / f"{TOPIC}-0"
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(bytes(80))
    assert not is_still_so(FS, str(directory), found)


def test_a_header_where_there_was_none_is_noticed(tmp_path: Path):
    root = filled(tmp_path / "shop")
    header = root / f"{TOPIC}-0" / "durable-point"
    content = header.read_bytes()
    header.unlink()
    found = seen(root)
    assert found is not None
    header.write_bytes(content)
    assert not is_still_so(FS, str(header.parent), found)


def test_a_header_of_another_boot_is_not_believed(tmp_path: Path):
    root = filled(tmp_path / "shop")
    shutil.copytree(root, tmp_path / "copy")
    assert seen(root) is not None
    assert seen(tmp_path / "copy") is None


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    filled(root / "pylog", 8)
    shutil.copytree(root / "pylog", root / "broker")
    (root / "broker" / f"{TOPIC}-0" / "durable-point").unlink()
    return root


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_a_file_holds_a_glance_says_what_opening_finds_or_nothing(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    root = tmp_path_factory.mktemp("damaged") / "shop"
    shutil.copytree(sound / data.draw(st.sampled_from(["pylog", "broker"])), root)
    files = sorted((root / f"{TOPIC}-0").iterdir())
    path = data.draw(st.sampled_from([files[-1], *files]))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    match data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "tail"])):
        case "flip" if content:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del content[at:]
        case "grow":
            content += data.draw(st.binary(min_size=1, max_size=70))
        case "tail" if content:
            content[-min(61, len(content))] ^= 0x40
        case _:
            content.clear()
    path.write_bytes(content)
    found = seen(root)
    if found is not None:
        assert numbers(found.outline) == numbers(known(root))
