"""`pylog doctor`: whether this machine, this installation and a directory are fit for use."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
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
    """What was looked at, and what was found.

    Attributes:
        what: was looked at.
        found: what there is.
        verdict: "ok"; "note", which somebody may want to know; "problem", which will be in the way.
        advice: what to do about it.
    """

    what: str
    found: str
    verdict: Literal["ok", "note", "problem"] = "ok"
    advice: str | None = None


@command(PROGRAM)
def doctor(store: Annotated[str | None, Parameter(name="STORE")] = None, /, *, json: Json = False) -> int | None:
    """Looks at Python, the libraries, the compiled kernels' cache; of a directory at its file system, its locks and its files.

    Nothing is written to the directory. The exit code is 1 if there is a problem.

    Args:
        store: a directory; a broker may be running on it.
        json: print one JSON document.

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
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _kernels() -> Answer:
    """Whether kernels are compiled, and kept."""
    from pylog.record.memory import INTERPRETED

    if INTERPRETED:
        advice = "unset it: everything is a hundred times slower"
        return Answer("kernels", "interpreted: NUMBA_DISABLE_JIT is set", "problem", advice)
    path = _kernel_cache()
    if path is None:
        advice = "set NUMBA_CACHE_DIR to a directory that may be written: each process compiles them anew, for some seconds"
        return Answer("kernels", "there is no directory for their cache", "problem", advice)
    cached = _cached_kernels(path)
    if not cached:
        return Answer("kernels", f"none in the cache {path} yet", "note", "the first append and scan take some seconds, once")
    return Answer("kernels", f"{cached} in the cache {path}")


def _kernel_cache() -> str | None:
    """Where numba keeps the kernels for records; None if it may write nowhere."""
    from numba.core.caching import FunctionCache

    from pylog.record.kernels import scan_batches

    try:
        return str(FunctionCache(scan_batches.py_func).cache_path)
    except RuntimeError:
        return None


def _cached_kernels(path: str) -> int:
    """How many have been compiled of this pylog's, by this version of Python or another."""
    from pylog.fs import OsFileSystem
    from pylog.record.memory import source_digest

    fs = OsFileSystem()
    return sum(entry.name.endswith(".nbi") and source_digest() in entry.name for entry in fs.list(path)) if fs.exists(path) else 0


# ---- a directory -------------------------------------------------------------------------------------------------------------


def _directory(path: str) -> Iterator[Answer]:
    from pylog.fs.surroundings import may_write

    try:
        yield _content(path)
    except PylogError as error:
        yield Answer("directory", path, "problem", str(error))
        return
    yield from _file_system(path)
    if not may_write(path):
        yield Answer("permission", "read only", "note", "pylog can read it: commands that write need its owner")
    else:
        yield from _withheld_locks(path)
    yield from _locks(path)


def _content(path: str) -> Answer:
    """What it holds."""
    from pylog.cli.stores import reading
    from pylog.fs import OsFileSystem, join
    from pylog.offsets.schema import OFFSETS_TOPIC

    with reading(path) as opened:
        topics = opened.topics()
        count = sum(topic.partitions for topic in topics.values())
        whose = "a Kafka broker's" if OsFileSystem().exists(join(path, "meta.properties")) else "pylog's"
        found = f"{path}: {whose}, {len(topics)} topics, {count} partitions"
        skipped = opened.offsets.skipped_records().items()
        complaints = [
            f"{OFFSETS_TOPIC}-{number}: {count} records that no Kafka writes are skipped" for number, (count, _) in skipped
        ]
        complaints += [finding.message for finding in opened.recovery_report]
    return Answer("directory", found, "note", "; ".join(complaints)) if complaints else Answer("directory", found)


def _file_system(path: str) -> Iterator[Answer]:
    from pylog.fs.surroundings import NETWORK, VOLATILE, mount_of, room_at

    mount = mount_of(path)
    if mount is None:
        yield Answer("file system", "unknown", "note", "this system does not tell")
    else:
        where = f"{mount.type} at {mount.point}{', read only' * mount.read_only}"
        if mount.type in NETWORK:
            yield Answer("file system", where, "problem", "writing over a network is not supported: locks and syncs may not hold")
        elif mount.type in VOLATILE:
            yield Answer("file system", where, "note", "it is memory: everything is gone when the machine stops")
        elif mount.type.startswith("fuse"):
            yield Answer("file system", where, "note", "make sure that its locks and syncs are real")
        else:
            yield Answer("file system", where)
    room = room_at(path)
    if room is not None:
        free, size = room
        told = f"{size_text(free)} free of {size_text(size)}"
        yield Answer("room", told, "note", "make some") if free < _LITTLE_ROOM else Answer("room", told)


def _withheld_locks(path: str) -> Iterator[Answer]:
    """Files of locks that somebody else made, and kept for himself: who writes the directory has to open them for writing."""
    from pylog.fs import OsFileSystem, join
    from pylog.fs.surroundings import may_write
    from pylog.log.store_locks import KAFKA_LOCK, PYLOG_LOCK

    for name in (KAFKA_LOCK, PYLOG_LOCK):
        file = join(path, name)
        if OsFileSystem().exists(file) and not may_write(file):
            advice = "pylog can read the directory: before it writes, the file's owner has to let this user write the file"
            yield Answer("permission", f"{file} may not be written by this user", "problem", advice)


def _locks(path: str) -> Iterator[Answer]:
    """Who has it open for writing. pylog holds Kafka's lock shared and by descriptor, so the system names a broker only."""
    from pylog.fs import OsFileSystem, join
    from pylog.fs.surroundings import holders_of
    from pylog.log.store_locks import KAFKA_LOCK, PYLOG_LOCK

    owner = OsFileSystem().lock_owner(join(path, KAFKA_LOCK))
    holders = holders_of(join(path, PYLOG_LOCK)) if owner == 0 else holders_of(join(path, KAFKA_LOCK))
    names = ", ".join(f"{each.name} (process {each.pid})" for each in holders)
    if owner is None:
        yield Answer("lock", "free: nobody has it open for writing")
    elif owner == 0:
        yield Answer("lock", f"pylog has it open for writing: {names or 'a process that this user may not see'}")
    else:
        advice = "stop it before pylog writes; reading is fine"
        yield Answer("lock", f"a broker is running on it: {names or f'process {owner}'}", "note", advice)
