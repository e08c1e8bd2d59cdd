"""Object stores: archiving, restoring and reading by URL, against bare requests for the same bytes; appends beside an archiver.

The object store is S3Proxy in a process of its own, on this machine: its own work takes most of the time, and the same share of
it for both. It has no latency, except where a row says so: then each request waits before it is sent. Appends are measured beside
an archive whose objects are thrown away, so that neither a server nor a disk is shared, and beside one in a directory of the same
disk: there, the syncs of the objects hold up what is being appended.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pylog
from benchmarks.data import PIECE, plain_rows
from benchmarks.measure import Row, Sample, Settings, at_most, race, seconds, times
from pylog.objects import ObjectStore, open_objects
from pylog.objects.layout import LOG
from pylog.spark.options import read_options
from pylog.spark.planner import plan

PROJECT = Path(__file__).resolve().parent.parent
BLOCK = 8 << 20  # what pylog asks for at once
AHEAD = 8  # requests at a time
SOME = 100_000  # rows of an append beside the archiver
LATENCY_S = 0.03  # a usual time to the first byte of S3
LIMIT_MIB = 96  # that a scan by URL may take above a scan of the directory
# Anonymous memory only: a scan of a directory maps its files. The first record compiles the kernels, if none had.
CHILD = """
import json, os, sys, pylog

def kib():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1])

with pylog.open(sys.argv[1], mode="r", **json.loads(sys.argv[2])) as store:
    log = store.log("events")
    log.read(log.start_offset)
    start = peak = kib()
    for batch in log.scan():
        peak = max(peak, kib())
    print((peak - start) / 1024)
"""


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
        self._processor(objects, keys)
        self._memory()
        self._latency(objects)
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
        _scan_all(self._url, access=self._server.options)

    def _processor(self, objects: ObjectStore, keys: dict[str, int]) -> None:
        """Reports what a scan takes of the processors, without the server."""

        def taken(call: Callable[[], object]) -> Callable[[], float]:
            def measured() -> float:
                before = time.process_time()
                call()
                return (time.process_time() - before) * 2**30 / (self._megabytes * 1e6)

            return measured

        found = race(
            {
                "url": taken(self._scan),
                "directory": taken(lambda: _scan_all(self._store)),
                "bare": taken(lambda: _get(objects, keys, AHEAD)),
            },
            self._settings.repeated(3, 2),
        )
        for rival, words, target in (
            ("directory", "the same scan of the directory", times(1 / 1.8)),
            ("bare", "bare GETs of the same objects", None),
        ):
            row = Row(
                part="objects",
                work="scan by URL, all columns: time of the processors",
                unit="s/GiB",
                measured=found["url"],
                rival=words,
                rival_measured=found[rival],
                ratio=found[rival].over(found["url"]),
                target=target,
            )
            self._settings.report(row)

    def _memory(self) -> None:
        """Reports what a scan takes above one of the directory, each in a process of its own."""
        access = {name: value for name, value in self._server.options.items() if name != "credentials"}
        rounds = range(self._settings.repeated(3, 1))
        by_url = Sample(tuple(_peak(self._url, {"access": access}, self._server.environment) for _ in rounds))
        local = Sample(tuple(_peak(str(self._store), {}, {}) for _ in rounds))
        row = Row(
            part="objects",
            work="scan by URL, all columns: peak of anonymous memory above that of a scan of the directory",
            unit="MiB",
            measured=Sample(tuple(mine - theirs for mine, theirs in zip(by_url.rounds, local.rounds, strict=True))),
            target=at_most(LIMIT_MIB),
            note=f"a scan of the directory takes {local.median:.0f} MiB",
        )
        self._settings.report(row)

    def _latency(self, objects: ObjectStore) -> None:
        """Reports the rate of a scan with latency, and the time until a store that is opened by URL has its first record."""
        from support.objects import DelayedObjects

        delayed = DelayedObjects(objects, LATENCY_S)
        work, rounds = f"{1e3 * LATENCY_S:.0f} ms before each request", self._settings.repeated(3, 2)
        found = race(
            {"delayed": lambda: self._rate_of_open(delayed), "direct": lambda: self._rate_of_open(objects)},
            rounds,
        )
        self._settings.report_ratio(
            "objects",
            f"scan by URL, all columns, of a store that is open, {work}",
            "MB/s",
            found["delayed"],
            "the same without waiting",
            found["direct"],
            target=times(0.9),
        )
        self._first(delayed)
        count = delayed.count
        firsts = race(
            {"first": lambda: self._first(delayed), "bare": lambda: 1e3 * seconds(lambda: _some(delayed, count))}, rounds
        )
        row = Row(
            part="objects",
            work=f"open by URL and read the first record, {work}",
            unit="ms",
            measured=firsts["first"],
            rival=f"{count} bare GETs one after the other, as many as are sent",
            rival_measured=firsts["bare"],
            ratio=firsts["bare"].over(firsts["first"]),
        )
        self._settings.report(row)

    def _rate_of_open(self, objects: ObjectStore) -> float:
        with opened_at(objects), pylog.open(self._url, mode="r") as store:
            log = store.log("events")
            log.read(log.start_offset)
            return self._megabytes / seconds(lambda: [None for _ in log.scan()])

    def _first(self, delayed: Any) -> float:
        """Returns the milliseconds to the first record of a store that is not open, and has `delayed` count the requests."""
        delayed.count = 0

        def read() -> None:
            with opened_at(delayed), pylog.open(self._url, mode="r") as store:
                log = store.log("events")
                log.read(log.start_offset)

        return 1e3 * seconds(read)

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
                "bare": lambda: 1e3 * seconds(lambda: _some(objects, 6)),
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


def _scan_all(place: str | Path, **options: Any) -> None:
    with pylog.open(place, mode="r", **options) as store:
        for _ in store.log("events").scan():
            pass


def opened_at(objects: Any) -> AbstractContextManager[Any]:
    """Has `pylog.open` read these objects for every URL."""
    return mock.patch("pylog.objects.open_objects", return_value=objects)


def _peak(place: str, options: dict[str, Any], environment: Mapping[str, str]) -> float:
    """How far a scan in a new process raises its anonymous memory, in MiB."""
    child = [sys.executable, "-c", CHILD, place, json.dumps(options)]
    return float(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment).stdout)


def _some(objects: ObjectStore, count: int) -> None:
    for _ in range(count):
        objects.get("pylog/store/head.json")


def _get(objects: ObjectStore, keys: dict[str, int], together: int) -> None:
    """Reads objects in blocks, some at a time."""
    blocks = [(key, start, min(size, start + BLOCK)) for key, size in keys.items() for start in range(0, size, BLOCK)]
    with ThreadPoolExecutor(together) as pool:
        for _ in pool.map(lambda block: len(objects.get_range(*block)), blocks):
            pass
