"""Object stores: archiving, restoring and reading by URL, against bare requests for the same bytes; appends beside an archiver.

The object store is S3Proxy in a process of its own, on this machine and without latency: its own work takes most of the time, and
the same share of it for both. Appends are measured beside an archive whose objects are thrown away, so that neither a server nor
a disk is shared, and beside one in a directory of the same disk: there, the syncs of the objects hold up what is being appended.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pylog
from benchmarks.data import PIECE, plain_rows
from benchmarks.measure import Row, Settings, race, seconds, times
from pylog.objects import ObjectStore, open_objects
from pylog.objects.layout import LOG
from pylog.spark.options import read_options
from pylog.spark.planner import plan

PROJECT = Path(__file__).resolve().parent.parent
BLOCK = 8 << 20  # what pylog asks for at once
AHEAD = 8  # requests at a time
SOME = 100_000  # rows of an append beside the archiver


def run(settings: Settings) -> None:
    """Reports all rows."""
    sys.path.append(str(PROJECT / "tests"))  # the server
    from support.servers.servers import started

    directory = Path(settings.directory)
    store = directory / "store"
    with pylog.open(store, durability=pylog.Durability.OS) as made:
        made.create_topic("events", segment_bytes=64 << 20, retention_ms=-1)
        for piece in range(settings.scaled(3, 1)):
            made.log("events").append_arrow(plain_rows(piece * PIECE, PIECE))
        made.archive(str(directory / "sealed"), include_active=True, topics=["events"])
        _append_beside(settings, made, directory)
    (directory / "server").mkdir()
    with started("s3proxy", PROJECT / ".cache" / "servers", directory / "server") as server:
        _Bucket(settings, store, server).report()


# ---- appends -----------------------------------------------------------------------------------------------------------------


def _append_beside(settings: Settings, store: pylog.Store, directory: Path) -> None:
    """Appends to one topic as long as another one is archived, or its files are copied."""
    store.create_topic("live", retention_ms=-1)
    files = sorted(directory.glob("store/events-0/*.log"))
    log, rows = store.log("live"), plain_rows(0, SOME)

    def rate(beside: Callable[[], object] | None) -> float:
        shutil.rmtree(directory / "copy", ignore_errors=True)
        (directory / "copy").mkdir()
        thread = threading.Thread(target=beside or (lambda: None))
        count = 0

        def append() -> None:
            nonlocal count
            thread.start()
            while thread.is_alive() or count < 10:
                log.append_arrow(rows)
                count += 1
            thread.join()

        taken = seconds(append)
        log.truncate(0)
        return count * SOME / taken / 1e6

    found = race(
        {
            "objects": lambda: rate(lambda: _archive_away(store)),
            "directory": lambda: rate(lambda: store.archive(str(directory / "copy" / "archive"), topics=["events"])),
            "copying": lambda: rate(lambda: [_copy_synced(file, directory / "copy" / file.name) for file in files]),
            "alone": lambda: rate(None),
        },
        settings.rounds,
    )
    work = f"append_arrow, {SOME:,} rows of 8 + 100 bytes at a time, while another topic is archived to"
    for mine, where, rival, words, target in (
        ("objects", "objects that are thrown away", "alone", "the same without an archiver", times(0.9)),
        ("directory", "a directory of the same disk", "alone", "the same without an archiver", None),
        ("directory", "a directory of the same disk", "copying", "beside a thread that copies and syncs the same files", None),
    ):
        more: dict[str, Any] = {"durability": "Durability.OS", "target": target}
        settings.report_ratio("objects", f"{work} {where}", "M records/s", found[mine], words, found[rival], **more)


def _archive_away(store: pylog.Store) -> None:
    """Archives all segments to a new archive, of which only the documents are kept."""
    from support.objects import EmptyLogs, every_url

    with every_url(EmptyLogs()):
        store.archive("s3://bucket/archive", topics=["events"])


def _copy_synced(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())


# ---- a bucket ----------------------------------------------------------------------------------------------------------------


class _Bucket:
    """A store and its archive on a server."""

    def __init__(self, settings: Settings, store: Path, server: Any) -> None:
        self._settings = settings
        self._store = store
        self._server = server
        self._url = server.new_url()
        self._logs = {
            str(number): file.read_bytes()
            for number, file in enumerate(sorted(store.glob("events-0/*.log")))
            if file.stat().st_size
        }
        self._megabytes = sum(map(len, self._logs.values())) / 1e6

    def report(self) -> None:
        with pylog.open(self._store) as store:
            self._rates("archive", "bare puts of the same files", 0.85, lambda: self._archive(store), self._put)
            store.archive(self._url, topics=["events"], **self._server.options)
        objects = open_objects(self._url, **self._server.options)
        keys = {each.key: each.size for each in objects.list("") if each.key.endswith(LOG) and each.key.startswith("events")}
        self._rates(
            "restore",
            "bare GETs of the same objects, in blocks of 8 MiB, one after the other",
            None,
            self._restore,
            lambda: _get(objects, keys, 1),
        )
        self._rates(
            "scan by URL, all columns",
            "bare GETs of the same objects, 8 blocks at a time",
            0.8,
            self._scan,
            lambda: _get(objects, keys, AHEAD),
        )
        self._plan(objects)

    def _rates(self, work: str, rival: str, target: float | None, mine: Callable[[], object], bare: Callable[[], object]) -> None:
        def rate(call: Callable[[], object]) -> Callable[[], float]:
            return lambda: self._megabytes / seconds(call)

        found = race({"pylog": rate(mine), "bare": rate(bare)}, self._settings.repeated(3, 2))
        goal = None if target is None else times(target)
        self._settings.report_ratio(
            "objects", f"{work}, {self._megabytes:.0f} MB on S3Proxy", "MB/s", found["pylog"], rival, found["bare"], target=goal
        )

    def _archive(self, store: pylog.Store) -> None:
        store.archive(self._server.new_url(), topics=["events"], **self._server.options)

    def _put(self) -> None:
        objects = open_objects(self._server.new_url(), **self._server.options)
        for name, data in self._logs.items():
            objects.put_new(name, data)

    def _restore(self) -> None:
        target = self._store.with_name("restored")
        shutil.rmtree(target, ignore_errors=True)
        pylog.restore(self._url, target, **self._server.options)

    def _scan(self) -> None:
        with pylog.open(self._url, mode="r", access=self._server.options) as store:
            for _ in store.log("events").scan():
                pass

    def _plan(self, objects: ObjectStore) -> None:
        os.environ.update(self._server.environment)
        given = {
            "path": self._url,
            "subscribe": "events",
            "s3.endpoint": self._server.options["endpoint"],
            "s3.region": "us-east-1",
        }
        found = race(
            {
                "plan": lambda: 1e3 * seconds(lambda: plan(read_options(given))),
                "bare": lambda: 1e3 * seconds(lambda: _six(objects)),
            },
            self._settings.rounds,
        )
        row = Row(
            part="objects",
            work="plan of a Spark read by URL",
            unit="ms",
            measured=found["plan"],
            rival="six bare GETs, as many as the plan sends",
            rival_measured=found["bare"],
            ratio=found["bare"].over(found["plan"]),
        )
        self._settings.report(row)


def _six(objects: ObjectStore) -> None:
    for _ in range(6):
        objects.get("pylog/store/head.json")


def _get(objects: ObjectStore, keys: dict[str, int], together: int) -> None:
    """Reads objects in blocks, some at a time."""
    blocks = [(key, start, min(size, start + BLOCK)) for key, size in keys.items() for start in range(0, size, BLOCK)]
    with ThreadPoolExecutor(together) as pool:
        for _ in pool.map(lambda block: len(objects.get_range(*block)), blocks):
            pass
