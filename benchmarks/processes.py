"""P13: processes that share a partition: how soon a reader sees an append, and what writers pay for each other."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Self

import numpy as np

import pylog
from benchmarks.data import new_log
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_most, microseconds, race, seconds, times
from pylog.log.durable_point import SLOT_SIZE

VALUE = b"0123456789" * 10
LEVELS = {"Durability.OS": "os", "Durability.SYNC": "sync"}
WARM_UP = 100  # appends that a reader sees before it is measured
PAUSES = (0.005, 0.0075)  # seconds between two appends: 100 to 200 a second, and no beat with the reader's naps
NAP = 0.001  # between two looks of the bare reader, as of ours at the longest
IDLE_S = 3.0  # after so much silence the pauses between two checks are the longest
WINDOW = 0.5  # seconds for which writers append at once
LOOP_S, BETWEEN_S = 3.0, 0.005  # for how long a process appends in a loop, and between two calls of the one that waits for it


def run(settings: Settings) -> None:
    """Reports the rows of P13."""
    directory = Path(settings.directory)
    for level in LEVELS:
        _notice(settings, directory / f"notice-{level}", level)
    _cycle(settings, directory)
    _appends(settings, directory)
    for level in LEVELS:
        _in_turn(settings, directory / f"turns-{level}", level)
    _waits(settings, directory / "waits")


class Process:
    """A function in another process, with a pipe to it; it says "ready" when it is. A context manager that waits for its end."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self._process = context.Process(target=function, args=(*arguments, there))
        self._process.start()
        there.close()  # so that its death is noticed
        self.pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        self._process.join()


# ---- a reader ----------------------------------------------------------------------------------------------------------------


def _notice(settings: Settings, directory: Path, level: str) -> None:
    """From the return of an append to the return of `wait_for` in a reader; both read CLOCK_MONOTONIC."""
    count = settings.scaled(2_100, 600)
    pauses = np.random.default_rng(4).uniform(*PAUSES, WARM_UP + count)
    appended = np.empty(WARM_UP + count, np.int64)
    end = multiprocessing.get_context("spawn").RawValue(ctypes.c_int64)
    with ExitStack() as opened:
        log = opened.enter_context(new_log(directory, durability=LEVELS[level]))
        reader = opened.enter_context(Process(_watch, directory, WARM_UP + count))
        bare = opened.enter_context(Process(_watch_number, end, WARM_UP + count))
        for number, pause in enumerate(pauses.tolist()):
            log.append(VALUE)
            appended[number] = time.monotonic_ns()
            end.value = number + 1
            time.sleep(pause)
        seen, busy, idle = reader.pipe.recv()
        bare_seen = bare.pipe.recv()
    _report_delays(settings, level, _delays(settings, seen - appended), _delays(settings, bare_seen - appended))
    for work, share in (
        ("a reader that wait_for wakes a hundred to two hundred times a second: share of a core", busy),
        ("a reader that waits after three seconds in which nothing came: share of a core", idle),
    ):
        target = at_most(0.5) if share is idle else None
        settings.report(Row(part="P13", work=work, unit="%", measured=Sample((100 * share,)), durability=level, target=target))


def _delays(settings: Settings, taken: np.ndarray) -> dict[int, Sample]:
    """Percentiles in milliseconds of the parts that stand for rounds."""
    parts = np.array_split(taken[WARM_UP:] / 1e6, settings.rounds)
    return {percent: Sample(tuple(float(np.percentile(part, percent)) for part in parts)) for percent in (50, 99)}


def _report_delays(settings: Settings, level: str, ours: dict[int, Sample], bare: dict[int, Sample]) -> None:
    for percent, target in ((50, None), (99, at_most(2))):
        settings.report(
            Row(
                part="P13",
                work=f"append returned → reader in another process returned from wait_for, p{percent}",
                unit="ms",
                measured=ours[percent],
                durability=level,
                rival="a number in shared memory, looked at every millisecond",
                rival_measured=bare[percent],
                ratio=bare[percent].over(ours[percent]),
                target=target,
            )
        )


def _watch(directory: Path, count: int, connection: Connection) -> None:
    """The reader: when it saw each record, and the parts of a core that it took meanwhile and after a second of silence."""
    seen = np.empty(count, np.int64)
    with pylog.open(directory, mode="r") as store:
        log = store.log("events")

        def watch() -> None:
            for offset in range(count):
                log.wait_for(offset)
                seen[offset] = time.monotonic_ns()

        connection.send("ready")
        busy = _core_share(watch)
        connection.send((seen, busy, _idle_share(log, count)))


def _idle_share(log: pylog.Log, count: int) -> float:
    """The share of a core that one long wait takes after its first seconds."""
    waiting = Thread(target=log.wait_for, args=(count, 2.5 * IDLE_S * 1000))
    waiting.start()
    time.sleep(IDLE_S)
    share = _core_share(lambda: time.sleep(IDLE_S))
    waiting.join()
    return share


def _core_share(work: Callable[[], object]) -> float:
    """The processor's time over the clock's."""
    used = time.process_time()
    taken = seconds(work)
    return (time.process_time() - used) / taken


def _watch_number(end: ctypes.c_int64, count: int, connection: Connection) -> None:
    """The least that a reader can do who looks every millisecond: when it saw each number."""
    seen = np.empty(count, np.int64)
    connection.send("ready")
    for number in range(count):
        while end.value <= number:
            time.sleep(NAP)
        seen[number] = time.monotonic_ns()
    connection.send(seen)


# ---- one writer that others may join -----------------------------------------------------------------------------------------


def _cycle(settings: Settings, directory: Path) -> None:
    """What each append pays for the possibility of other writers: take the lock, look, let go. Nobody else is there."""
    calls = range(settings.scaled(5_000, 2_000))
    with ExitStack() as opened:
        log = opened.enter_context(new_log(directory / "cycle"))
        log.append(VALUE)
        bare = _BareCycle(directory / "bare")
        opened.callback(bare.close)
        works = {"pylog": _lock_and_check(log), "bare": bare.turn}
        contestants = {name: lambda work=work: _median_us(work, calls) for name, work in works.items()}
        found = race(contestants, settings.rounds)
    settings.report(
        Row(
            part="P13",
            work="partition lock, is_current(), unlock, nobody else writing, p50",
            unit="µs",
            measured=found["pylog"],
            durability=NO_WRITES,
            rival="bare lock, pread of the header, lseek, unlock",
            rival_measured=found["bare"],
            ratio=found["bare"].over(found["pylog"]),
            target=at_most(6),
        )
    )


def _median_us(work: Callable[[int], object], calls: Sequence[int]) -> float:
    return float(np.median(microseconds(work, calls)))


def _lock_and_check(log: pylog.Log) -> Callable[[int], None]:
    """What a log does before each append, and behind it."""
    owner = log._partition_log.writer()
    lock, writer = owner.source.lock, owner.writer
    assert lock is not None
    assert writer is not None

    def cycle(_: int) -> None:
        with lock:
            assert writer.is_current()

    return cycle


class _BareCycle:
    """The system calls of such a turn, on files of its own."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._buffer = [bytearray(2 * SLOT_SIZE)]
        os.pwrite(self._file, self._buffer[0], 0)

    def turn(self, _: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1000)
        os.preadv(self._file, self._buffer, 0)
        os.lseek(self._file, 0, os.SEEK_END)
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 1000)

    def close(self) -> None:
        os.close(self._file)


def _appends(settings: Settings, directory: Path) -> None:
    """Whole appends: by a store that is alone, by one that others may join, by two that take over each other's every record."""
    calls = settings.scaled(1_000, 500)
    os_level = pylog.Durability.OS
    with ExitStack() as opened:
        shared = opened.enter_context(new_log(directory / "shared"))
        store = opened.enter_context(pylog.open(directory / "turns", durability=os_level))
        store.create_topic("events")
        other = opened.enter_context(pylog.open(directory / "turns", durability=os_level))
        exclusive = opened.enter_context(pylog.open(directory / "alone", durability=os_level, exclusive=True))
        exclusive.create_topic("events")
        alone, turns = exclusive.log("events"), [store.log("events"), other.log("events")]
        works: dict[str, Callable[[int], object]] = {
            "exclusive": lambda _: alone.append(VALUE),
            "shared": lambda _: shared.append(VALUE),
            "turns": lambda number: turns[number % 2].append(VALUE),
        }
        contestants = {name: lambda work=work: _median_us(work, range(calls)) for name, work in works.items()}
        found = race(contestants, settings.rounds)
        assert turns[0].end_offset == turns[1].end_offset == calls * (settings.rounds + 1)
    for work, name, rival in (
        ("append of 100 bytes, others may write but do not, p50", "shared", "exclusive"),
        ("append of 100 bytes, two stores in strict alternation, p50", "turns", "shared"),
    ):
        words = "the same with exclusive=True" if rival == "exclusive" else "one store that nobody joins"
        _report_appends(settings, work, found, name, (rival, words))


def _report_appends(
    settings: Settings,
    work: str,
    found: Mapping[str, Sample],
    name: str,
    rival: tuple[str, str],
    target: Target | None = None,
) -> None:
    """A row of microseconds at `OS`, against another of the contestants, which has a name and words."""
    settings.report(
        Row(
            part="P13",
            work=work,
            unit="µs",
            measured=found[name],
            durability="Durability.OS",
            rival=rival[1],
            rival_measured=found[rival[0]],
            ratio=found[rival[0]].over(found[name]),
            target=target,
        )
    )


# ---- two writers -------------------------------------------------------------------------------------------------------------


def _in_turn(settings: Settings, directory: Path, level: str) -> None:
    """Two processes that append to one partition as fast as they can, against one of them alone."""
    with new_log(directory):
        pass
    shares: list[float] = []
    with ExitStack() as opened:
        first, other = (opened.enter_context(Process(_append_until, directory, LEVELS[level], name)) for name in (0, 1))

        def both() -> float:
            counts = _in_window([first, other])
            shares.append(100 * min(counts) / sum(counts))
            return sum(counts) / WINDOW

        found = race({"one": lambda: sum(_in_window([first])) / WINDOW, "two": both}, settings.rounds)
        sent = [_total(process) for process in (first, other)]
    _check_nothing_lost(directory, sent)
    work = "append of 100 bytes, two processes at once"
    settings.report_ratio(
        "P13",
        work,
        "calls/s",
        found["two"],
        "one process alone",
        found["one"],
        durability=level,
        note=f"nothing lost of {sum(sent):,} records",
        target=times(0.5),
    )
    share = Sample(tuple(shares[1:]))  # the first round warms up
    settings.report(Row(part="P13", work=f"{work}: the slower one's share", unit="%", measured=share, durability=level))


def _waits(settings: Settings, directory: Path) -> None:
    """A process that appends now and then beside one that appends in a loop: its wait for the lock, and its whole append."""
    with ExitStack() as opened:
        log = opened.enter_context(new_log(directory))
        other = opened.enter_context(Process(_append_until, directory, "os", 1))
        lock = log._partition_log.writer().source.lock
        assert lock is not None

        def turn(_: int) -> None:
            with lock:
                pass

        def append(_: int) -> None:
            log.append(VALUE)

        works = {
            "append": lambda: _median_us(append, range(1_000)),
            "turn": lambda: _beside_a_loop(turn, other),
            "whole": lambda: _beside_a_loop(append, other),
        }
        found = race(works, settings.rounds)
        _total(other)
    beside = "beside a process that appends in a loop"
    for work, name, target in (
        (f"wait for the partition lock {beside}, p99", "turn", times(1 / 20)),
        (f"append of 100 bytes {beside}, which first reads all that the other has appended, p99", "whole", None),
    ):
        _report_appends(settings, work, found, name, ("append", "an append when nobody else writes, p50"), target)


def _beside_a_loop(work: Callable[[int], object], loop: Process) -> float:
    """The 99th percentile in microseconds of work that is done from time to time while another process appends."""
    taken, end = list[float](), time.monotonic() + LOOP_S
    loop.pipe.send(end)
    while time.monotonic() < end:
        time.sleep(BETWEEN_S)
        taken.append(1e6 * seconds(lambda: work(0)))
    loop.pipe.recv()
    return float(np.percentile(taken, 99))


def _append_until(directory: Path, level: str, name: int, connection: Connection) -> None:
    """A writer: appends until each moment that it is told, answers with how many; told none, with how many in all."""
    sent = 0
    with pylog.open(directory, durability=pylog.Durability.of(level)) as store:
        log = store.log("events")
        connection.send("ready")
        while (end := connection.recv()) is not None:
            before = sent
            while time.monotonic() < end:
                log.append(b"%d %097d" % (name, sent))
                sent += 1
            connection.send(sent - before)
    connection.send(sent)


def _in_window(processes: Sequence[Process]) -> list[int]:
    """How many appends each of the processes makes in the same time."""
    end = time.monotonic() + WINDOW
    for process in processes:
        process.pipe.send(end)
    return [process.pipe.recv() for process in processes]


def _total(process: Process) -> int:
    """All that a process appended; it has closed its store."""
    process.pipe.send(None)
    total: int = process.pipe.recv()
    return total


def _check_nothing_lost(directory: Path, sent: Sequence[int]) -> None:
    """Each process's records are there, once each, in its order."""
    found: list[list[int]] = [[] for _ in sent]
    with pylog.open(directory, mode="r") as store:
        for record in store.log("events").records():
            name, number = (record.value or b"").split()
            found[int(name)].append(int(number))
    assert found == [list(range(count)) for count in sent], "two writers lost or mixed up records"
