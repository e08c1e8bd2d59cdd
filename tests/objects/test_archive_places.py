"""Where an archive may be, and several processes that archive for the first time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.archive.verifying import verify_archive
from pylog.errors import InvalidArgumentError
from pylog.objects import open_objects

ARCHIVES = """
import sys, pylog
sys.stdin.readline()
with pylog.open(sys.argv[1]) as store:
    for _ in range(3):
        store.archive(sys.argv[2], include_active=True)
"""


@pytest.mark.parametrize("inside", ["", "/", "/sub", "/orders-0", "/../shop/x"])
def test_an_archive_inside_the_store_is_refused(tmp_path: Path, inside: str) -> None:
    """Its directories may pass for partitions, and it is lost with the store."""
    shop = tmp_path / "shop"
    with pylog.open(shop) as store:
        store.create_topic("orders")
        store.log("orders").append(b"paid")
        before = sorted(shop.rglob("*"))
        for url in (f"{shop}{inside}", f"file://{shop}{inside}"):
            with pytest.raises(InvalidArgumentError, match="is inside the store"):
                store.archive(url)
        assert sorted(shop.rglob("*")) == before
        (tmp_path / "link").symlink_to(shop)
        with pytest.raises(InvalidArgumentError, match="is inside the store"):
            store.archive(str(tmp_path / "link" / "x"))
        store.archive(str(tmp_path / "shop-archive"))
    with pytest.raises(InvalidArgumentError, match="is inside the store"):
        pylog.open(tmp_path / "other", archive=str(tmp_path / "other" / "x"))


def test_processes_that_archive_for_the_first_time_give_the_store_one_id(tmp_path: Path) -> None:
    shop, archive = tmp_path / "shop", str(tmp_path / "archive")
    with pylog.open(shop) as store:
        store.create_topic("orders", partition_count=2, segment_bytes=300)
        for number in range(20):
            store.log("orders", number % 2).append(b"%d" % number + b"x" * 80)
    command = [sys.executable, "-c", ARCHIVES, str(shop), archive]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    ended = [(process.communicate()[1].decode(), process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0], ended
    found = verify_archive(open_objects(archive), deep=True, orphans=True)
    assert (found.ok, found.orphans) == (True, ())
    pylog.restore(archive, tmp_path / "copy")
    with pylog.open(tmp_path / "copy", "r") as copy:
        assert sum(len(list(copy.log("orders", number).records())) for number in range(2)) == 20
