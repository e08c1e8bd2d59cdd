"""Records are counted from batch headers: exactly, once, within a bound. Topics that are not counted show a limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, Store, limits
from pylog.errors import CorruptionError
from pylog.groups.unread import UnreadRecords
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.refresher import Refresher
from pylog.log.state import LogState
from pylog.monitoring.measured import measures_of
from pylog.record.types import TopicPartition
from pylog.store import manager_of
from pylog.ui.app import made_application
from pylog.ui.watch import Watch
from support.ui import Browser

SMALL: Any = {"segment_bytes": 1_000}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", partition_count=2, **SMALL)
        for number in range(60):
            made.log("orders", number % 2).append(b"value-%d" % number, key=b"k%d" % (number % 5))
        yield made


@pytest.fixture
def watch(store: Store) -> Watch:
    return measures_of(store).watch()


def shown(watch: Watch, topic: str = "orders") -> int | None:
    """The number of records in a new observation."""
    watch.forget()
    found: int | None = watch.observation().topics[topic].records
    return found


def held(store: Store, topic: str = "orders") -> int:
    return sum(sum(1 for _ in store.log(topic, number).records()) for number in range(store.topic(topic).partition_count))


def test_the_records_of_a_topic_are_counted_as_they_change(store: Store, watch: Watch) -> None:
    assert shown(watch) == held(store) == 60
    store.log("orders").append_many([b"x"] * 7)
    assert shown(watch) == 67
    store.log("orders", 1).delete_records(11)
    assert shown(watch) == held(store) == 56
    store.log("orders", 1).append(b"y")
    assert shown(watch) == 57


def test_markers_and_compacted_records_are_not_counted(store: Store, watch: Watch) -> None:
    store.create_topic("prices", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **SMALL)
    for number in range(60):
        store.log("prices").append(b"x" * 40, key=b"k%d" % (number % 3))
    with store.transaction("t") as transaction:
        transaction.append("prices", b"x", key=b"k1", partition=0)
        transaction.flush()  # more may follow, so it gets a marker
    assert shown(watch, "prices") == held(store, "prices") == 61
    store.compact("prices")
    assert shown(watch, "prices") == held(store, "prices") < 61
    assert watch.observation().topics["prices"].offsets == 62


def test_an_observation_reads_a_bounded_number_of_bytes_and_counts_on(
    store: Store, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TALLY_BYTES", 1_500)
    browser = Browser(made_application(watch, token=None))
    rounds = 0
    while shown(watch) is None:
        rounds += 1
        assert re.search(r'data-label="records"><span title="[^"]+">≤ 60</span>', browser.get("/topics").text)
    assert shown(watch) == 60
    assert rounds >= 3
    assert '<td class="n" data-label="records" title="60 offsets">60</td>' in browser.get("/topics").text


def test_large_logs_are_not_counted(store: Store, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_COUNT_BYTES", 1_000)
    assert [shown(watch) for _ in range(5)] == [None] * 5


@pytest.mark.damaged("the frame of a batch is")
def test_a_damaged_log_is_not_counted_and_the_others_are(store: Store, watch: Watch) -> None:
    path = Path(store.path, "orders-0", f"{0:020d}.log")
    data = bytearray(path.read_bytes())
    data[10] ^= 1  # the size of the first batch
    path.write_bytes(data)
    with pylog.open(store.path, mode="r") as opened:
        looked = measures_of(opened).watch()
        assert shown(looked) is None
        assert [each.records for each in looked.observation().topics["orders"].partitions] == [None, 30]
        assert "≤ 60" in Browser(made_application(looked, token=None)).get("/topics").text


def test_segments_have_their_codec_seal_and_tombstones(store: Store, watch: Watch) -> None:
    store.create_topic("prices", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, compression_type="gzip", **SMALL)
    for number in range(60):
        store.log("prices").append(None if number < 3 else b"x" * 40, key=b"k%d" % min(number, 7))
    browser = Browser(made_application(watch, token=None))
    store.compact("prices")
    text = browser.get("/topics/prices/segments").text
    assert 'data-label="codec">gzip<' in text
    assert 'data-label="seal">yes<' in text
    assert 'data-label="tombstones">kept for 23 hours<' in text
    segments = browser.get("/topics/orders/segments.json").json["partitions"][0]["segments"]
    assert [each["has_seal"] for each in segments] == [True] * (len(segments) - 1) + [None]
    assert sum(each["tally"]["records"] for each in segments) == 30
    assert segments[0]["tally"]["first_ms"] == store.log("orders").read(0).timestamp


# ---- cost --------------------------------------------------------------------------------------------------------------------


def test_an_observation_and_a_scrape_refresh_each_partition_once(
    store: Store, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with more partitions than files may be open: each further refresh would open two files again."""
    store.offsets.commit("billing", {("orders", 0): 3, ("orders", 1): 4})
    assert shown(watch) == 60  # the first one opens the partitions
    store.metrics()
    calls: list[TopicPartition] = []

    def counting(log: PartitionLog, **given: Any) -> LogState:
        calls.append(log.partition)
        return snapshot(log, **given)

    snapshot = PartitionLog.snapshot
    monkeypatch.setattr(PartitionLog, "snapshot", counting)
    for look in (lambda: shown(watch), store.metrics):
        calls.clear()
        look()
        assert sorted(each for each in calls if each.topic == "orders") == [("orders", 0), ("orders", 1)]


def test_open_transactions_that_cannot_be_read_are_said_each_time_and_hide_no_other_fact(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders")
        store.log("orders").append_many([b"a", b"b"])
    with pylog.open(tmp_path / "s", mode="r") as store:
        unread = UnreadRecords(manager_of(store).log("orders", 0))
        assert unread.stable_offset() == 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Refresher, "state", _without_transactions(Refresher.state))
            unread.refresh()
            assert unread.state.end_offset == 2
            for _ in range(2):
                with pytest.raises(CorruptionError, match="damaged"):
                    unread.stable_offset()
            assert unread.first(1).exists
        unread.refresh()
        assert unread.stable_offset() == 2


def _without_transactions(state: Callable[..., LogState]) -> Callable[..., LogState]:
    def refreshed(refresher: Refresher, *, committed: bool = False, **given: Any) -> LogState:
        if committed:
            raise CorruptionError("the open transactions are damaged", path="x.snapshot")
        return state(refresher, **given)

    return refreshed
