"""Every reading call and command on files that lie, each case in a child with limits of memory and time.

A right answer or a `PylogError` is allowed. Anything else is a finding: another exception, a process that dies, memory or time
beyond the limits, or other records where only derived files lie.

In tests/, with pylog's sources on the path:

    python -m support.campaign.lying <first seed> <cases>          prints a JSON document
    python -m support.campaign.lying <first seed> <cases> --short  some calls for each case: a thousand in a minute
    NUMBA_BOUNDSCHECK=1 python -m support.campaign.lying 0 50      with checks of each access of the kernels
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import itertools
import json
import logging
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pylog
from support.campaign.lying_files import Lie, lay, lies, specimen, values_of
from support.campaign.processes import own_environment, until

MEMORY: Final = 1 << 30  # beyond what the child has at its start: a batch and its records may take some hundred megabytes
CPU_SECONDS: Final = 60  # of a whole case, which takes a third of a second; holes of 64 MiB are read some fifty times
WALL_SECONDS: Final = 300  # of a whole case that waits
_SHORT_CASES: Final = 50  # of one child
_BEGUN: Final = "begun "
_GAPS: Final = 200  # damaged stretches that a reader passes
_ROWS: Final = 2_000_000  # a bomb of records ends here
_DERIVED: Final = re.compile(r"t-0/.*\.(index|timeindex|snapshot|seal)|t-0/(partition\.metadata|group-members)|cleaner-offset.*")
_TOPICS: Final = ("t", "c", "x", "old", "__consumer_offsets")
_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
Call = Callable[[Path], object]


# ---- reading -----------------------------------------------------------------------------------------------------------------


def _drained(frames: Iterator[Any]) -> int:
    rows = 0
    for frame in frames:
        rows += frame.num_rows
        if rows > _ROWS:
            break
    return rows


def _gone_through(log: pylog.Log, **how: Any) -> None:
    """Scans a log, and goes on where an error says that it can be done."""
    start: int | None = None
    for _ in range(_GAPS):
        try:
            _drained(log.scan(start, **how))
        except pylog.PylogError as error:
            _no_shortage(error)
            if error.next_offset is None or (start is not None and error.next_offset <= start):
                return
            start = error.next_offset
        else:
            return


def _asked(log: pylog.Log) -> None:
    """Asks a log everything that takes an offset or a time."""
    with _allowed():
        start, end = log.start_offset, log.end_offset
        for offset in {start, (start + end) // 2, end - 1, end, 0, 5, 88, 121, 1 << 31, (1 << 63) - 1}:
            for call in (
                lambda at=offset: log.read(at),
                lambda at=offset: log.read_many([at, start]),
                lambda at=offset: _drained(log.scan(at, max_rows=10)),
                lambda at=offset: list(itertools.islice(log.records(at, isolation_level="read_committed"), 10)),
                lambda at=offset: log.offset_for_timestamp(at),
                lambda at=offset: log.size_between(start, at),
                lambda at=offset: log.split_offsets(start, at, 1000),
            ):
                with _allowed():
                    call()
    for call in (
        lambda: log.stable_offset,
        lambda: log.segments,
        lambda: log.offset_for_timestamp(1003, isolation_level="read_committed"),
        lambda: log.durable_offset,
        lambda: log.remote_offsets,
    ):
        with _allowed():
            call()


def _reads(store: pylog.Store) -> list[Callable[[], object]]:
    """All that a store reads."""
    calls: list[Callable[[], object]] = [store.topics, store.check, store.verify, store.metrics, store.groups]
    calls += [store.offsets.known_groups, lambda: store.verify(records=True), store.offsets.skipped_records]
    for group in ("g", "members"):
        calls += [partial(store.offsets.fetch, group), partial(_described, store, group)]
        calls.append(partial(store.offsets.position, group, ("t", 0)))
    for topic in _TOPICS:
        calls.append(lambda name=topic: _gone_through(store.log(name), columns=_COLUMNS))
        calls.append(lambda name=topic: _gone_through(store.log(name), columns=_COLUMNS, isolation_level="read_committed"))
        calls.append(lambda name=topic: _asked(store.log(name)))
    return [*calls, partial(_polled, store)]


def _described(store: pylog.Store, group: str) -> object:
    return store.group(group).describe()


def _polled(store: pylog.Store) -> None:
    with store.consumer("t", "c", auto_offset_reset="earliest") as consumer:
        consumer.poll(0)
        list(itertools.islice(iter(lambda: consumer.poll(0), []), 5))


def read(root: Path, some: random.Random | None = None) -> None:
    """Reads with all calls of a store; with a generator of random numbers, with one of them."""
    with _allowed(), pylog.open(root, "r") as store:
        for call in _reads(store) if some is None else some.sample(_reads(store), 1):
            with _allowed():
                call()
    for topic in _TOPICS[:4] if some is None else some.sample(_TOPICS[:4], 1):
        with _allowed():
            pylog.read_table(root, topic)


def _changes(store: pylog.Store) -> list[Callable[[], object]]:
    """What a program does that goes on with such a store."""
    calls: list[Callable[[], object]] = []
    for topic in _TOPICS[:4]:
        calls += [
            lambda name=topic: store.log(name).append(b"new", key=b"k"),
            lambda name=topic: store.log(name).append_batch([b"n"], producer=pylog.ProducerBatch(7, 0, 2)),
            lambda name=topic: store.log(name).flush(),
        ]
    return [
        *calls,
        store.tick,
        lambda: store.compact("c"),
        lambda: store.retain(dry_run=True),
        lambda: store.offsets.commit("g", {("t", 0): 1}),
        store.offsets.expire,
        lambda: store.log("t").delete_records(3),
        lambda: store.log("t").truncate(100),
        lambda: store.alter_topic("t", retention_ms=1000),
        store.check,
        store.verify,
        partial(_described, store, "members"),
        lambda: _joined(store),
        lambda: store.create_topic("new"),
        lambda: _transacted(store),
        lambda: store.delete_topic("c"),
    ]


def write(root: Path, some: random.Random | None = None) -> None:
    """Makes all changes; with a generator of random numbers, one of them."""
    with _allowed(), pylog.open(root, lock_timeout_ms=1000) as store:
        for call in _changes(store) if some is None else some.sample(_changes(store), 1):
            with _allowed():
                call()


def _transacted(store: pylog.Store) -> None:
    with store.transaction("tx") as transaction:
        transaction.append("t", b"x")
        transaction.send_offsets("g", {("t", 0): 1})


def _joined(store: pylog.Store) -> None:
    with store.consumer("t", group_id="members", auto_offset_reset="earliest") as consumer:
        consumer.poll(0)
        consumer.commit()


COMMANDS: Final = (
    ("topics", "{}"),
    ("describe", "{}", "t"),
    ("stats", "{}"),
    ("verify", "{}"),
    ("verify", "{}", "--json"),
    ("cat", "{}", "t", "--from", "-5"),
    ("cat", "{}", "c", "--format", "jsonl"),
    ("cat", "{}", "old", "--key", "k"),
    ("groups", "list", "{}"),
    ("groups", "describe", "{}", "members", "--members"),
    ("groups", "export", "{}", "g"),
    ("transactions", "list", "{}"),
    ("compare", "{}", "{}"),
    ("doctor", "{}"),
    ("retain", "{}", "--dry-run"),
    ("repair", "skip", "{}"),
    ("repair", "truncate", "{}"),
    ("graduate", "{}", "--dry-run"),
    ("graduate", "{}", "--undo", "--yes"),
    ("copy", "{}", "t", "{}-copy"),
    ("copy", "{}", "old", "{}-copy"),
    ("compare", "{}", "{}-copy", "--bytes"),
    ("repair", "skip", "{}", "--execute", "--backup", "{}-skipped"),
    ("repair", "truncate", "{}", "--execute", "--backup", "{}-truncated"),
    ("verify", "{}"),
)


def command(root: Path, seed: int | None = None, count: int = 4) -> None:
    """Some commands, one after the other, and dumps of as many files: all without a seed."""
    from support.cli import call

    rng = random.Random(seed)
    files = [path for path in sorted(root.glob("*-*/*")) if path.is_file()]
    some = COMMANDS if seed is None else sorted(rng.sample(COMMANDS, count), key=COMMANDS.index)
    for arguments in some:
        check_outcome(call(*(argument.replace("{}", str(root)) for argument in arguments)))
    for path in files if seed is None else rng.sample(files, min(count, len(files))):
        if path.is_file():
            check_outcome(call("dump", str(path), "--records", "--json"))
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
                check_outcome(call("dump", str(path), "--like-kafka", "--print-data-log"))


def check_outcome(outcome: Any) -> None:
    assert "Traceback" not in outcome.complaints, outcome.complaints
    assert "not enough memory" not in outcome.complaints, outcome.complaints


@contextlib.contextmanager
def _allowed() -> Iterator[None]:
    try:
        yield
    except pylog.PylogError as error:
        _no_shortage(error)


def _no_shortage(error: pylog.PylogError) -> None:
    if getattr(error, "errno", None) in (errno.ENOMEM, errno.EMFILE):
        raise AssertionError("the limits of the child were reached") from error


# ---- one case ----------------------------------------------------------------------------------------------------------------


def same_records(lie: Lie, expected: list[tuple[int, bytes | None]]) -> Call:
    """Where only derived files lie, the records are what they were. A seal that differs may also be an error of pylog."""

    def check(root: Path) -> None:
        if all(_DERIVED.fullmatch(path) and content is not None for path, content in lie.changed.items()):
            with _allowed() if any(path.endswith(".seal") for path in lie.changed) else contextlib.nullcontext():
                assert values_of(root) == expected, "other records than were written"

    return check


def some_calls_of(seed: int, lie: Lie, expected: list[tuple[int, bytes | None]]) -> tuple[Call, ...]:
    """What is done to a case of many: some of the calls below, which the seed chooses."""
    some = random.Random(seed)
    reads: tuple[Call, ...] = (lambda root: read(root, some), same_records(lie, expected))
    if some.random() < 0.1:
        return (*reads, lambda root: command(root, seed, 1))
    return reads if some.random() < 0.5 else (*reads, lambda root: write(root, some))


def calls_of(seed: int, lie: Lie, expected: list[tuple[int, bytes | None]]) -> tuple[Call, ...]:
    """What is done to a case: all of reading, and either a program's changes or the commands."""
    if seed % 2:
        return read, same_records(lie, expected), write, read
    return read, same_records(lie, expected), lambda root: command(root, seed)


def run_case(seed: int, directory: Path, expected: list[tuple[int, bytes | None]], *, short: bool = False) -> None:
    """Runs a case in this process, and prints what was found."""
    files, lie = lies(seed)
    lay(root := directory / "store", files, lie)
    _limit()
    for call in (some_calls_of if short else calls_of)(seed, lie, expected):
        try:
            call(root)
        except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
            print(json.dumps({"seed": seed, "told": lie.told, "error": traceback.format_exc()[-3000:]}), flush=True)
            return


def _limit() -> None:
    """Limits what this process may take from now on."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    seconds = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)


def cases(first: int, count: int, *, short: bool = False) -> Iterator[dict[str, Any]]:
    """Runs cases in children of this process, and yields the findings. A child runs many short cases, or one long one.

    The next child goes on after a case that has ended its child.
    """
    expected = warmed()
    seed, end = first, first + count
    while seed < end:
        print(f"case {seed}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="pylog-lying-") as directory, tempfile.TemporaryFile() as told:
            some = range(seed, min(end, seed + (_SHORT_CASES if short else 1)))
            child = os.fork()
            if not child:
                _live(some, Path(directory), expected, told.fileno(), short=short)
            _, status = os.waitpid(child, 0)
            told.seek(0)
            lines = told.read().decode(errors="replace").splitlines()
            yield from (json.loads(line) for line in lines if line.startswith('{"seed"'))
            begun = [int(line.removeprefix(_BEGUN)) for line in lines if line.startswith(_BEGUN)]
            seed = begun[-1] + 1 if begun else some.stop
            if status:
                last = "\n".join(lines)[-3000:]
                yield {"seed": seed - 1, "told": lies(seed - 1)[1].told, "error": f"the child ended with {status}: {last}"}


def _live(some: range, directory: Path, expected: list[tuple[int, bytes | None]], descriptor: int, *, short: bool) -> None:
    """The child: never returns."""
    try:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - the parent's may hold what it has not written yet
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        faulthandler.enable(open(2, "w", closefd=False))  # noqa: SIM115
        for seed in some:
            print(f"{_BEGUN}{seed}", flush=True)
            with tempfile.TemporaryDirectory(dir=directory) as own:
                run_case(seed, Path(own), expected, short=short)
    finally:
        sys.stdout.flush()
        os._exit(0)


def warmed() -> list[tuple[int, bytes | None]]:
    """Loads and compiles what the children need; returns the records of topic `t`."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        lay(root, specimen(), Lie({}, []))
        expected = values_of(root)
        for call in (read, command, write, read):
            call(root)
        shutil.rmtree(root)
    gc.collect()
    gc.freeze()
    return expected


# ---- the campaign ------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float, cases: int = 60) -> dict[str, Any]:
    """Cases until the time is over, in fresh processes; each fourth of them with numba's bounds checks."""
    counts: Counter[str] = Counter()
    violations = []
    for number in until(None, seconds):
        checked = number % 4 == 3
        first = seed * 1_000_000 + number * cases
        found = in_process(first, cases // 10 if checked else cases, checked=checked)
        violations += [json.dumps(each, indent=1).replace("\\n", "\n") for each in found]
        counts.update(files=cases // 10 if checked else cases, checked=checked)
    return {"seed": seed, **counts, "violations": violations}


def in_process(first: int, count: int, *, checked: bool = False, short: bool = False) -> list[dict[str, Any]]:
    """Runs cases below a fresh process; returns the findings."""
    environment = own_environment() | ({"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": "/tmp/pylog-checked"} if checked else {})
    environment["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    environment.setdefault("MALLOC_ARENA_MAX", "2")
    command_line = [sys.executable, "-m", "support.campaign.lying", str(first), str(count), *(["--short"] if short else [])]
    done = subprocess.run(command_line, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return [{"seed": first, "told": ["the whole program"], "error": done.stderr[-3000:]}]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"seed"')]


if __name__ == "__main__":
    for finding in cases(int(sys.argv[1]), int(sys.argv[2]), short="--short" in sys.argv):
        print(json.dumps(finding), flush=True)
    print(f"{sys.argv[2]} cases from {sys.argv[1]}", flush=True)
