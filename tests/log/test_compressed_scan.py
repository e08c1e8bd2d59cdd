"""Many compressed batches: decompressed in another thread, in order, with damage where it is, and no thread left behind."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import pylog
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, POSITION, SIZE

ROWS = 60_000
CODECS = ("gzip", "snappy", "lz4", "zstd")


def written(path: Path, codec: str) -> pa.Table:
    table = pa.table(
        {"key": [b"%d" % number for number in range(ROWS)], "value": [b"value %d " % number * 10 for number in range(ROWS)]}
    )
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", compression_type=codec)
        store.log("t").append_arrow(table)
    return table


def read(log: pylog.Log, start: int = 0) -> list[tuple[int, bytes, bytes]]:
    frames = [frame.to_pydict() for frame in log.scan(start, columns=("offset", "key", "value"))]
    return [row for frame in frames for row in zip(frame["offset"], frame["key"], frame["value"], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_a_long_run_of_compressed_batches_reads_back_in_order(tmp_path: Path, codec: str) -> None:
    table = written(tmp_path, codec)
    with pylog.open(tmp_path, mode="r") as store:
        log = store.log("t")
        assert read(log) == list(zip(range(ROWS), table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pylog")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("codec", CODECS)
def test_damage_in_the_middle_of_a_run_costs_only_its_batch(tmp_path: Path, codec: str) -> None:
    written(tmp_path, codec)
    (path,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    batches = scan_batches(np.frombuffer(bytes(data), np.uint8)).table
    bad = batches.shape[1] // 2
    assert batches.shape[1] > 40
    data[int(batches[POSITION, bad] + batches[SIZE, bad] // 2)] ^= 4
    path.write_bytes(data)
    first, following = int(batches[BASE_OFFSET, bad]), int(batches[BASE_OFFSET, bad + 1])
    with pylog.open(tmp_path, mode="r") as store:
        log = store.log("t")
        before: list[int] = []

        def collect() -> None:
            for frame in log.scan(columns=("offset",)):
                before.extend(frame.column(0).to_pylist())

        with pytest.raises(pylog.CorruptionError) as caught:
            collect()
        assert before == list(range(first))
        assert (caught.value.offset, caught.value.next_offset) == (first, following)
        assert read(log, following)[0][0] == following
        assert [row[0] for row in read(log, following)] == list(range(following, ROWS))


def test_a_scan_that_is_given_up_leaves_no_thread(tmp_path: Path) -> None:
    written(tmp_path, "lz4")
    with pylog.open(tmp_path, mode="r") as store:
        frames = store.log("t").scan()
        assert next(frames).num_rows > 0
        frames.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pylog")]
