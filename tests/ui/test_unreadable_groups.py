"""Damage in the committed offsets is shown: without its groups, a store must not look as if it had none and were well."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog import OffsetsConfig
from pylog.monitoring.measured import measures_of
from pylog.ui.app import made_application
from support.ui import Browser


@pytest.mark.damaged("the records of a group are damaged")
def test_the_window_names_the_partition_of_groups_that_cannot_be_read(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("orders")
        store.log("orders").append_many([b"paid"] * 10)
        store.offsets.commit("billing", {("orders", 0): 2})
    file = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[80] ^= 1
    file.write_bytes(content)
    with pylog.open(tmp_path, mode="r") as store:
        names, damaged = store.offsets.known_groups()
        assert (list(names), list(damaged)) == ([], [0])
        browser = Browser(made_application(measures_of(store).watch(), token=None))
        groups, health, overview = (browser.get(each).text for each in ("/groups", "/health", "/"))
        assert "There are no consumer groups." not in groups
        assert "The groups in 1 partition of __consumer_offsets are missing here." in groups
        for page in (groups, health):
            assert "__consumer_offsets-0" in page
            assert "does not match its checksum" in page
        assert "can be read." not in health
        assert "1 partition with damage" in overview
        assert "all is well" not in overview
        topics = {each["topic"]: each for each in browser.get("/.json").json["topics"]}
        assert "does not match its checksum" in topics["__consumer_offsets"]["partitions"][0]["loss"]
        assert topics["orders"]["partitions"][0]["loss"] is None
