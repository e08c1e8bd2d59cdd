"""Commits of offsets alone, whose logs are looked up once: the check under the lock notices all that has changed since."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import OffsetAndMetadata, Store, TopicPartition

WIDE = [TopicPartition("wide", number) for number in range(5)]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two stores of one directory, as two processes have them. The first one has committed for `wide`."""
    with pylog.open(tmp_path, offsets=pylog.OffsetsConfig(topic_num_partitions=1)) as one, pylog.open(tmp_path) as other:
        one.create_topic("wide", partition_count=len(WIDE))
        for key in WIDE:
            one.log(*key).append_many([b"a", b"b", b"c"])
        one.offsets.commit("g", dict.fromkeys(WIDE, 1))
        yield one, other


def test_a_commit_reads_the_header_of_each_log_when_it_is_called_and_when_it_has_the_lock(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = stores
    read, count, me = os.pread, [0], threading.get_ident()

    def counted(*given: int) -> bytes:
        count[0] += threading.get_ident() == me
        return read(*given)

    monkeypatch.setattr(os, "pread", counted)
    store.offsets.commit("g", dict.fromkeys(WIDE, 2))
    assert count[0] == 2 * len(WIDE) + 1  # and of the group's own partition
    monkeypatch.undo()
    assert {each.offset for each in store.offsets.fetch("g").values()} == {2}


def test_an_offset_that_only_another_process_has_reached_is_committed(stores: tuple[Store, Store]) -> None:
    store, other = stores
    other.log("wide", 2).append_many([b"d", b"e"])
    store.offsets.commit("g", {WIDE[2]: 5, WIDE[3]: 3})
    with pytest.raises(pylog.OffsetOutOfRangeError, match="offset 6 is past the end of wide-2, which is 5"):
        store.offsets.commit("g", {WIDE[1]: 2, WIDE[2]: 6})
    assert store.offsets.position("g", WIDE[1]) == 1


def test_a_topic_that_another_process_deletes_and_makes_again_is_another_one(stores: tuple[Store, Store]) -> None:
    store, other = stores
    other.delete_topic("wide")
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="wide"):
        store.offsets.commit("g", {WIDE[0]: 1})
    other.create_topic("wide", partition_count=len(WIDE))
    with pytest.raises(pylog.OffsetOutOfRangeError, match="offset 1 is past the end of wide-0, which is 0"):
        store.offsets.commit("g", {WIDE[0]: 1})
    assert store.offsets.fetch("g") == {}
    store.offsets.commit("g", {("wide", 0): 0})
    assert store.offsets.fetch("g")[WIDE[0]].offset == 0


def test_a_deleted_topic_takes_no_commit_even_of_its_first_offset(stores: tuple[Store, Store]) -> None:
    store, _ = stores
    store.delete_topic("wide")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.offsets.commit("g", {WIDE[0]: 0})
    assert store.offsets.fetch("g") == {}


@pytest.mark.parametrize("offset", [True, -1, 2**63, 1.0, "1", None])
def test_offsets_that_are_none_are_refused_beside_good_ones(stores: tuple[Store, Store], offset: object) -> None:
    store, _ = stores
    given: dict[object, object] = {WIDE[0]: 2, WIDE[1]: offset}
    with pytest.raises(pylog.PylogError):
        store.offsets.commit("g", given)  # type: ignore[arg-type]
    assert store.offsets.position("g", WIDE[0]) == 1


def test_a_commit_with_metadata_among_plain_ones_keeps_it(stores: tuple[Store, Store]) -> None:
    store, _ = stores
    store.offsets.commit("g", {WIDE[0]: 2, WIDE[1]: OffsetAndMetadata(3, "note")})
    found = store.offsets.fetch("g")
    assert (found[WIDE[0]].offset, found[WIDE[1]].metadata) == (2, "note")


def test_a_boolean_is_no_partition(stores: tuple[Store, Store]) -> None:
    store, _ = stores
    with pytest.raises(pylog.InvalidArgumentError, match="is not a partition"):
        store.offsets.commit("g", {TopicPartition("wide", True): 1})
