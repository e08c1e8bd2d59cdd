"""Arrow data whose offsets lead out of their buffers, or go back, is refused: nothing is appended."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog.errors import InvalidRecordError
from pylog.testing import MemoryFileSystem

OFFSETS = [(0, -5, 6), (0, 50, 6), (0, -1000, 6), (0, 2**31 - 1, 6)]
KINDS = [pa.binary(), pa.string(), pa.large_binary()]


def altered(kind: pa.DataType, offsets: tuple[int, ...]) -> pa.Table:
    sink = pa.BufferOutputStream()
    table = pa.record_batch([pa.array(["abc", "def"]).cast(kind)], ["value"])
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    data, form = sink.getvalue().to_pybytes(), "<qqq" if kind == pa.large_binary() else "<iii"
    at = data.rfind(struct.pack(form, 0, 3, 6))
    return pa.ipc.open_stream(data[:at] + struct.pack(form, *offsets) + data[at + struct.calcsize(form) :]).read_all()


def sent(store: pylog.Store, table: Any) -> None:
    with store.producer() as producer:
        producer.send_arrow("t", table)


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("call", [lambda store, table: store.log("t").append_arrow(table), sent], ids=["append", "send"])
def test_a_column_whose_offsets_go_back_or_lead_outside_is_refused(kind: pa.DataType, offsets: tuple[int, ...], call: Any):
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t")
        with pytest.raises(InvalidRecordError, match="column value is damaged"):
            call(store, altered(kind, offsets))
        assert list(store.log("t").records()) == []


def test_a_sound_column_of_each_kind_is_appended():
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t")
        for kind in KINDS:
            store.log("t").append_arrow(altered(kind, (0, 3, 6)))
        assert [record.value for record in store.log("t").records()] == [b"abc", b"def"] * len(KINDS)
