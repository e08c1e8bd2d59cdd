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
from pylog.errors import PylogError, UnknownTopicOrPartitionError
from pylog.text import counted, size_text
from pylog.urls import is_url

_LIBRARIES: Final = ("numpy", "numba", "pyarrow", "cramjam", "google-crc32c", "msgspec", "sortedcontainers", "cyclopts", "rich")
_OPTIONAL: Final = ("pyspark",)
_LITTLE_ROOM: Final = 1 << 30  # bytes
_NO_ROOM: Final = 1 << 20  # bytes; appends of the default batch size are refused
_COLUMNS: Final = (Column("what"), Column("verdict"), Column("found"), Column("advice"))


class DoctorRow(NamedTuple):
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
        store: Path of a log directory, on which a broker may be running, or URL of an archive.
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


def _installation() -> Iterator[DoctorRow]:
    yield DoctorRow("pylog", __version__)
    yield DoctorRow("python", f"{platform.python_version()} ({sys.executable})")
    yield DoctorRow("system", f"{platform.system()} {platform.release()} {platform.machine()}")
    for name in _LIBRARIES:
        found = _version(name)
        yield DoctorRow(name, found) if found else DoctorRow(name, "missing", "problem", f"pip install {name}")
    for name in _OPTIONAL:
        yield DoctorRow(name, _version(name) or "not installed")


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _kernels() -> DoctorRow:
    """Checks that the kernels are compiled and cached."""
    from pylog.record.kernel import INTERPRETED

    if INTERPRETED:
        advice = "unset NUMBA_DISABLE_JIT: it makes pylog a hundred times slower"
        return DoctorRow("kernels", "interpreted: NUMBA_DISABLE_JIT is set", "problem", advice)
    path = _kernel_cache()
    if path is None:
        advice = (
            "set NUMBA_CACHE_DIR to a writable directory: without a cache, each process with much work compiles for some seconds"
        )
        return DoctorRow("kernels", "no writable directory for their cache", "problem", advice)
    cached = _cached_kernels(path)
    if not cached:
        return DoctorRow(
            "kernels", f"none in the cache {path} yet", "note", "pylog warm compiles them; until then plain Python runs"
        )
    return DoctorRow("kernels", f"{cached} in the cache {path}")


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


def _directory(path: str) -> Iterator[DoctorRow]:
    try:
        yield _content(path)
    except PylogError as error:
        yield DoctorRow("directory", path, "problem", str(error))
        return
    if not is_url(path):
        yield from _machine(path)
    yield from _archive(path)
    yield from _partitions(path)
    yield from _transactions(path)


def _machine(path: str) -> Iterator[DoctorRow]:
    """Checks what a directory has of this machine, and an archive has not."""
    from pylog.fs.system_info import may_write

    yield from _file_system(path)
    if not may_write(path):
        yield DoctorRow("permission", "read only", "note", "pylog can read it; commands that write must be run by its owner")
    else:
        yield from _withheld_locks(path)
    yield from _locks(path)
    yield from _background(path)


def _partitions(path: str) -> Iterator[DoctorRow]:
    """Reports partitions that cannot be opened, and records that are damaged or missing, as far as opening shows it."""
    from pylog.cli.stores import logs_of, reading
    from pylog.log.recovery.findings import losses_in

    advice = f"find all damage, with advice for each: pylog verify {path}"
    with reading(path) as opened:
        for topic in opened.topics().values():
            for number in topic.partition_ids:
                try:
                    [log] = logs_of(opened, topic, [number])
                except UnknownTopicOrPartitionError:  # it was deleted, or is not created yet
                    continue
                except PylogError as error:
                    yield DoctorRow("partition", str(error), "problem", advice)
                else:
                    yield from (
                        DoctorRow("partition", finding.message, "problem", advice)
                        for finding in losses_in(log.recovery_report)[:1]
                    )


def _transactions(path: str) -> Iterator[DoctorRow]:
    """Reports the transactions that hold the last stable offset of a partition."""
    from pylog.cli.doctor_transactions import held_partitions

    held, errors = held_partitions(path)
    for each in held:
        yield DoctorRow("transaction", each.what, "problem" if each.hangs else "note", each.advice)
    if errors:
        found = f"the open transactions of {counted(len(errors), 'partition')} cannot be read"
        yield DoctorRow("transaction", found, "note", f"{errors[0]}; pylog verify {path} finds all damage")


def _background(path: str) -> Iterator[DoctorRow]:
    """Reports errors of background work that a process has noted in the directory."""
    from pylog.background_errors import read_background_errors
    from pylog.fs import OsFileSystem
    from pylog.times import time_text

    noted = read_background_errors(OsFileSystem(), path)
    if noted is not None:
        when = f"the last at {time_text(noted.time_ms)} in process {noted.process}"
        advice = f"{noted.message}; a store with tick_interval_ms that closes without such an error removes this note"
        yield DoctorRow("background work", f"{noted.count} or more errors, {when}", "note", advice)


def _archive(path: str) -> Iterator[DoctorRow]:
    """Reports deletions of topics that are not finished in the archive."""
    from pylog.cli.stores import reading
    from pylog.store import manager_of

    with reading(path) as opened:
        try:
            noted = manager_of(opened).tiers.notes()
        except PylogError as error:
            yield DoctorRow("archive", str(error), "problem")
        else:
            for found, advice in [] if noted is None else noted.facts():
                yield DoctorRow("archive", found, "note", advice)


def _content(path: str) -> DoctorRow:
    """Checks that the directory can be read, and counts its topics and partitions."""
    from pylog.cli.stores import reading
    from pylog.fs import OsFileSystem, join
    from pylog.offsets.schema import OFFSETS_TOPIC

    with reading(path) as opened:
        topics = opened.topics()
        count = sum(topic.partition_count for topic in topics.values())
        whose = "a Kafka broker's" if OsFileSystem().exists(join(path, "meta.properties")) else "pylog's"
        found = f"{path}: {whose}, {counted(len(topics), 'topic')}, {counted(count, 'partition')}"
        skipped = opened.offsets.skipped_records().items()
        complaints = [
            f"{OFFSETS_TOPIC}-{number}: skipped {counted(count, 'record')} that Kafka does not write"
            for number, (count, _) in skipped
        ]
        complaints += [finding.message for finding in opened.recovery_report]
    return DoctorRow("directory", found, "note", "; ".join(complaints)) if complaints else DoctorRow("directory", found)


def _file_system(path: str) -> Iterator[DoctorRow]:
    from pylog.fs.system_info import NETWORK, VOLATILE, mount_of, room_at

    mount = mount_of(path)
    if mount is None:
        yield DoctorRow("file system", "unknown", "note", "this operating system does not report it")
    else:
        where = f"{mount.type} at {mount.point}{', read only' * mount.read_only}"
        if mount.type in NETWORK:
            yield DoctorRow(
                "file system", where, "problem", "writing to a network file system is not supported: locks and fsync may not work"
            )
        elif mount.type in VOLATILE:
            yield DoctorRow("file system", where, "note", "the directory is in memory: everything is lost when the machine stops")
        elif mount.type.startswith("fuse"):
            yield DoctorRow("file system", where, "note", "make sure that this file system supports locks and fsync")
        else:
            yield DoctorRow("file system", where)
    room = room_at(path)
    if room is not None:
        free, size = room
        message = f"{size_text(free)} free of {size_text(size)}"
        if free < _NO_ROOM:
            advice = "appends are refused: lower retention.ms or retention.bytes of a topic, and run pylog retain"
            yield DoctorRow("room", message, "problem", advice)
        else:
            yield DoctorRow("room", message, "note", "free some space") if free < _LITTLE_ROOM else DoctorRow("room", message)


def _withheld_locks(path: str) -> Iterator[DoctorRow]:
    """Finds lock files that this user may not write. A process that writes to the directory must open them for writing."""
    from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
    from pylog.fs import OsFileSystem, join
    from pylog.fs.system_info import may_write

    for name in (KAFKA_LOCK, PYLOG_LOCK):
        file = join(path, name)
        if OsFileSystem().exists(file) and not may_write(file):
            advice = "pylog can read the directory; to write, ask the owner of the file for write permission"
            yield DoctorRow("permission", f"{file} may not be written by this user", "problem", advice)


def _locks(path: str) -> Iterator[DoctorRow]:
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
        yield DoctorRow("lock", "free: no process has the directory open for writing")
    elif owner == 0:
        yield DoctorRow("lock", f"pylog has the directory open for writing: {names or 'a process of another user'}")
    else:
        advice = "pylog can read the directory; stop the broker before writing to it"
        yield DoctorRow("lock", f"a broker is running on the directory: {names or f'process {owner}'}", "note", advice)
