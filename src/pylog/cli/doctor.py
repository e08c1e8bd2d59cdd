"""`pylog doctor`: checks the machine, the installation and a log directory."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

from cyclopts import Parameter

from pylog import __version__
from pylog.cli.app import PROGRAM, Json, command
from pylog.cli.exits import FAILED
from pylog.cli.output import Column, print_json, print_table
from pylog.errors import PylogError
from pylog.text import size_text

_LIBRARIES: Final = ("numpy", "numba", "pyarrow", "cramjam", "google-crc32c", "msgspec", "sortedcontainers", "cyclopts", "rich")
_OPTIONAL: Final = ("pyspark",)
_LITTLE_ROOM: Final = 1 << 30  # bytes
_COLUMNS: Final = (Column("what"), Column("verdict"), Column("found"), Column("advice"))


class Answer(NamedTuple):
    """The result of one check.

    Attributes:
        what: name of the check.
        found: what the check found.
        verdict: "ok", "note" (worth knowing) or "problem" (pylog may not work).
        advice: what to do next.
    """

    what: str
    found: str
    verdict: Literal["ok", "note", "problem"] = "ok"
    advice: str | None = None


@command(PROGRAM)
def doctor(store: Annotated[str | None, Parameter(name="STORE")] = None, /, *, json: Json = False) -> int | None:
    """Checks Python, the libraries and the cache of compiled kernels; and a directory's file system, locks, files and
    open transactions.

    The command writes nothing to the directory. The exit code is 1 if there is a problem.

    Args:
        store: Path of a log directory. A broker may be running on it.
        json: Print one JSON document.

    Examples:
        pylog doctor
        pylog doctor /var/lib/kafka/data
    """
    answers = [*_installation(), _kernels(), *(() if store is None else _directory(store))]
    healthy = all(answer.verdict != "problem" for answer in answers)
    if json:
        print_json({"healthy": healthy, "answers": [answer._asdict() for answer in answers]})
    else:
        print_table(_COLUMNS, [answer._asdict() for answer in answers])
    return None if healthy else FAILED


# ---- the installation --------------------------------------------------------------------------------------------------------


def _installation() -> Iterator[Answer]:
    yield Answer("pylog", __version__)
    yield Answer("python", f"{platform.python_version()} ({sys.executable})")
    yield Answer("system", f"{platform.system()} {platform.release()} {platform.machine()}")
    for name in _LIBRARIES:
        found = _version(name)
        yield Answer(name, found) if found else Answer(name, "missing", "problem", f"pip install {name}")
    for name in _OPTIONAL:
        yield Answer(name, _version(name) or "not installed")


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _kernels() -> Answer:
    """Checks that the kernels are compiled and cached."""
    from pylog.record.kernel import INTERPRETED

    if INTERPRETED:
        advice = "unset NUMBA_DISABLE_JIT: it makes pylog a hundred times slower"
        return Answer("kernels", "interpreted: NUMBA_DISABLE_JIT is set", "problem", advice)
    path = _kernel_cache()
    if path is None:
        advice = (
            "set NUMBA_CACHE_DIR to a writable directory: without a cache, each process with much work compiles for some seconds"
        )
        return Answer("kernels", "no writable directory for their cache", "problem", advice)
    cached = _cached_kernels(path)
    if not cached:
        return Answer(
            "kernels", f"none in the cache {path} yet", "note", "pylog warm compiles them; until then plain Python runs"
        )
    return Answer("kernels", f"{cached} in the cache {path}")


def _kernel_cache() -> str | None:
    """Returns the directory where numba caches the record kernels; None if no directory is writable."""
    from numba.core.caching import FunctionCache

    from pylog.record.kernels import scan_batches

    try:
        return str(FunctionCache(scan_batches.py_func).cache_path)
    except RuntimeError:
        return None


def _cached_kernels(path: str) -> int:
    """Counts the cached kernels of this version of pylog, for any version of Python."""
    from pylog.fs import OsFileSystem
    from pylog.record.kernel import source_digest

    fs = OsFileSystem()
    return sum(entry.name.endswith(".nbi") and source_digest() in entry.name for entry in fs.list(path)) if fs.exists(path) else 0


# ---- a directory -------------------------------------------------------------------------------------------------------------


def _directory(path: str) -> Iterator[Answer]:
    from pylog.fs.system_info import may_write

    try:
        yield _content(path)
    except PylogError as error:
        yield Answer("directory", path, "problem", str(error))
        return
    yield from _file_system(path)
    if not may_write(path):
        yield Answer("permission", "read only", "note", "pylog can read it; commands that write must be run by its owner")
    else:
        yield from _withheld_locks(path)
    yield from _locks(path)
    yield from _background(path)
    yield from _transactions(path)


def _transactions(path: str) -> Iterator[Answer]:
    """Reports the transactions that hold the last stable offset of a partition."""
    from pylog.cli.doctor_transactions import held_partitions

    held, errors = held_partitions(path)
    for each in held:
        yield Answer("transaction", each.what, "problem" if each.hangs else "note", each.advice)
    if errors:
        found = f"the open transactions of {len(errors)} partitions cannot be read"
        yield Answer("transaction", found, "note", f"{errors[0]}; pylog verify {path} finds all damage")


def _background(path: str) -> Iterator[Answer]:
    """Reports errors of background work that a process has noted in the directory."""
    from pylog.background_errors import read_background_errors
    from pylog.fs import OsFileSystem
    from pylog.times import time_text

    noted = read_background_errors(OsFileSystem(), path)
    if noted is not None:
        when = f"the last at {time_text(noted.time_ms)} in process {noted.process}"
        advice = f"{noted.message}; a store with tick_interval_ms that closes without such an error removes this note"
        yield Answer("background work", f"{noted.count} or more errors, {when}", "note", advice)


def _content(path: str) -> Answer:
    """Checks that the directory can be read, and counts its topics and partitions."""
    from pylog.cli.stores import reading
    from pylog.fs import OsFileSystem, join
    from pylog.offsets.schema import OFFSETS_TOPIC

    with reading(path) as opened:
        topics = opened.topics()
        count = sum(topic.partition_count for topic in topics.values())
        whose = "a Kafka broker's" if OsFileSystem().exists(join(path, "meta.properties")) else "pylog's"
        found = f"{path}: {whose}, {len(topics)} topics, {count} partitions"
        skipped = opened.offsets.skipped_records().items()
        complaints = [
            f"{OFFSETS_TOPIC}-{number}: skipped {count} records that Kafka does not write" for number, (count, _) in skipped
        ]
        complaints += [finding.message for finding in opened.recovery_report]
    return Answer("directory", found, "note", "; ".join(complaints)) if complaints else Answer("directory", found)


def _file_system(path: str) -> Iterator[Answer]:
    from pylog.fs.system_info import NETWORK, VOLATILE, mount_of, room_at

    mount = mount_of(path)
    if mount is None:
        yield Answer("file system", "unknown", "note", "this operating system does not report it")
    else:
        where = f"{mount.type} at {mount.point}{', read only' * mount.read_only}"
        if mount.type in NETWORK:
            yield Answer(
                "file system", where, "problem", "writing to a network file system is not supported: locks and fsync may not work"
            )
        elif mount.type in VOLATILE:
            yield Answer("file system", where, "note", "the directory is in memory: everything is lost when the machine stops")
        elif mount.type.startswith("fuse"):
            yield Answer("file system", where, "note", "make sure that this file system supports locks and fsync")
        else:
            yield Answer("file system", where)
    room = room_at(path)
    if room is not None:
        free, size = room
        message = f"{size_text(free)} free of {size_text(size)}"
        yield Answer("room", message, "note", "free some space") if free < _LITTLE_ROOM else Answer("room", message)


def _withheld_locks(path: str) -> Iterator[Answer]:
    """Finds lock files that this user may not write. A process that writes to the directory must open them for writing."""
    from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
    from pylog.fs import OsFileSystem, join
    from pylog.fs.system_info import may_write

    for name in (KAFKA_LOCK, PYLOG_LOCK):
        file = join(path, name)
        if OsFileSystem().exists(file) and not may_write(file):
            advice = "pylog can read the directory; to write, ask the owner of the file for write permission"
            yield Answer("permission", f"{file} may not be written by this user", "problem", advice)


def _locks(path: str) -> Iterator[Answer]:
    """Finds the process that has the directory open for writing. pylog holds Kafka's lock shared and by descriptor, so the
    operating system names only a broker.
    """
    from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
    from pylog.fs import OsFileSystem, join
    from pylog.fs.system_info import holders_of

    owner = OsFileSystem().lock_owner(join(path, KAFKA_LOCK))
    holders = holders_of(join(path, PYLOG_LOCK)) if owner == 0 else holders_of(join(path, KAFKA_LOCK))
    names = ", ".join(f"{each.name} (process {each.pid})" for each in holders)
    if owner is None:
        yield Answer("lock", "free: no process has the directory open for writing")
    elif owner == 0:
        yield Answer("lock", f"pylog has the directory open for writing: {names or 'a process of another user'}")
    else:
        advice = "pylog can read the directory; stop the broker before writing to it"
        yield Answer("lock", f"a broker is running on the directory: {names or f'process {owner}'}", "note", advice)
