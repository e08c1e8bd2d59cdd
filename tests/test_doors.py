"""Each small file comes in through one door (`pylog.fs.kinds`), and nothing but pylog's own errors comes out of it.

The first part looks at the source: no module reads files otherwise. The second part holds each kind to its bounds: what a parser
raises, how many bytes are read, and how much memory a byte may take.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

import pylog
from pylog import limits
from pylog.fs import FileKind, OsFileSystem, at_most, guarded
from pylog.staging.intents import Intent, PartitionIntent, StagedFile
from pylog.topics.catalog import Catalog, CatalogTopic

SOURCE = Path(pylog.__file__).parent

# Modules that open files by name, and what they read from them. All but these read small files, through a `FileKind`.
OPENERS = {
    "archive/restored_files.py": "no bytes: the checksum of a restored file, in pieces",
    "objects/block_cache.py": "no bytes: it notes when a block was used",
    "objects/remote_files.py": "it passes on what others open, as `fs.Door` does",
    "directory/locks.py": "writes the boot id",
    "groups/members_file.py": "slots of a fixed size",
    "log/checking/report.py": "no bytes: the identity of a file",
    "log/durable_point.py": "256 bytes",
    "index/entry_file.py": "a few entries of an index",
    "log/maintenance/trimming.py": "no bytes: it cuts a transaction index",
    "log/reading/fast_outline.py": "headers of batches",
    "log/reading/split_segment.py": "the header of a batch",
    "log/writing/active_segment.py": "writes records",
    "offsets/unopened.py": "records of a partition that is known to be small",
    "segment/log_file.py": "records, in regions of a bounded size",
    "segment/segment.py": "no bytes: the identity of a file",
    "splicing.py": "batches of a staging file, whose index bounds them",
    "staging/file.py": "the index of a staging file",
    "transactions/resting.py": "records of a partition that is known to be small",
    "tools/backup.py": "copies of files, in pieces",
    "tools/compare.py": "two files, in pieces",
    "tools/repair.py": "records, in pieces",
}
READERS = {
    "groups/plan_file.py": "a plan, which a user names on the command line",
    "objects/remote_files.py": "it passes on the reads of others, as `fs.Door` does",
    "objects/aiven_keys.py": "a key in a PEM file, which a user names",
    "objects/block_cache.py": "a block of a remote file, with its checksum",
    "segment/log_file.py": "records: a sealed segment is mapped",
}
FILE_SYSTEMS = ("fs", "files", "filesystem", "osfilesystem", "system", "below", "base")
METHODS = ("read", "map", "open")
PARSERS = ("from_bytes", "parse_epochs", "parse_offsets", "parse_seal", "parse_slot", "parse_topic_id", "snapshot_entries")


@functools.cache
def texts() -> dict[str, str]:
    """The modules, by their paths below the package."""
    names = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
    return {name: path.read_text() for name, path in names.items() if not name.startswith(("testing/", "fs/"))}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Those that name one of the methods that are searched for; to parse all of them takes a second."""
    for name, text in texts().items():
        if any(f"{each}(" in text for each in (*METHODS, *PARSERS)):
            yield name, ast.parse(text)


def calls(tree: ast.Module, names: tuple[str, ...]) -> list[int]:
    """The lines of a module that call a method of these names of a file system."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            of = ast.unparse(node.func.value)
            if of.split(".")[-1].lower().strip("_()") in FILE_SYSTEMS:
                found.append(node.lineno)
    return found


def direct(tree: ast.Module) -> list[int]:
    """The lines of a module that call a parser past its kind."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in PARSERS and not ast.unparse(node.func).startswith("int."):
            found.append(node.lineno)
    return found


@pytest.mark.slow
def test_small_files_are_read_through_their_kinds_only() -> None:
    for name, tree in modules():
        assert not calls(tree, ("read", "map")) or name in READERS, f"{name} reads a file past its kind"
        assert not calls(tree, ("open",)) or name in OPENERS, f"{name} opens a file: say in OPENERS what it reads"
        assert name == "index/kinds.py" or not direct(tree), f"{name}: {direct(tree)} calls a parser past its kind"
    assert not hasattr(pylog.fs, "read_derived"), "it would be a second door"


def test_a_module_that_reads_a_file_otherwise_is_found() -> None:
    assert calls(ast.parse("data = self._fs.read(path, 10)"), ("read",)) == [1]
    assert calls(ast.parse("file = fs.open(path)"), ("open",)) == [1]
    assert direct(ast.parse("parse_seal(data, path)\nint.from_bytes(data)\nOffsetIndex.from_bytes(0, data, 1)")) == [1, 3]


@functools.cache
def kinds() -> dict[str, FileKind[..., Any]]:
    """Every kind of the source, by module and name. Called when tests are collected, so it parses few modules."""
    found = {}
    for name, text in texts().items():
        for node in ast.parse(text).body if "FileKind" in text else ():
            value = getattr(node, "value", None)
            if isinstance(node, ast.AnnAssign) and isinstance(value, ast.Call) and ast.unparse(value.func) == "FileKind":
                module = importlib.import_module("pylog." + name.removesuffix(".py").replace("/", "."))
                found[f"{name}:{ast.unparse(node.target)}"] = getattr(module, ast.unparse(node.target))
    return found


# ---- what comes out of the door ----------------------------------------------------------------------------------------------

RAISED = [
    struct.error,
    UnicodeDecodeError,
    RecursionError,
    MemoryError,
    OverflowError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
]


def made(error: type[Exception]) -> Exception:
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no") if error is UnicodeDecodeError else error("no")


@pytest.mark.parametrize("error", RAISED)
def test_whatever_a_parser_raises_is_an_error_of_pylog_with_the_path_and_what_to_do(error: type[Exception]) -> None:
    def fails(data: bytes, path: str) -> None:
        raise made(error)

    def decodes() -> Iterator[int]:
        yield 1
        raise made(error)

    kind = FileKind("a note", fails, at_most(10), "write another one")
    with pytest.raises(pylog.PylogError) as caught:
        kind.parsed(b"", "/data/note")
    assert caught.value.path == "/data/note"
    assert "write another one" in str(caught.value) or isinstance(caught.value, pylog.StorageFailedError)
    with pytest.raises(pylog.PylogError) as caught:
        list(guarded(decodes(), "/data/note"))
    assert caught.value.path == "/data/note"


@pytest.mark.parametrize("name", kinds())
def test_a_file_that_is_larger_than_its_kind_can_be_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    kind, path = kinds()[name], tmp_path / "file"
    path.write_bytes(b"")
    os.truncate(path, kind.bound(0) + 1)

    tracemalloc.start()
    try:
        with pytest.raises(pylog.StorageFailedError, match="the limit for a file of this kind"):
            kind.fetch(OsFileSystem(), str(path))
        found = kind.fetch_derived(OsFileSystem(), str(path))
        assert found.data is None
        assert found.too_large
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


ODD: dict[str, bytes] = {
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\x00",
    "nested": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "numbers": b'{"version":1e999}',
    "a long number": b"0\n1\n" + b"9" * 10_000 + b" 1 1\n",
    "digits of others": "0\n²\na ² ²\n".encode(),
    "zeros": bytes(10_000),
    "ones": b"\xff" * 10_000,
    "a surrogate": b'{"version":1,"topics":{"\\ud800":{"id":"","partitions":1}}}',
}
CONTEXT: dict[str, tuple[Any, ...]] = {
    "index/kinds.py:OFFSETS": (0, 100),
    "index/kinds.py:TIMES": (0,),
    "index/kinds.py:TRANSACTIONS": (0,),
    "log/recovery/producer_snapshots.py:SNAPSHOTS": (5, None),
    "staging/intents.py:INTENTS": ("/data", "pylog-query.a.json"),
    "staging/file.py:INDEXES": (StagedFile("pylog-staging.a.batches", 0, 0, 0),),
}
NAMED: dict[str, dict[str, Any]] = {"groups/members_file.py:SLOTS": {"locked": False}}


@pytest.mark.parametrize("name", kinds())
@pytest.mark.parametrize("odd", ODD)
def test_no_kind_of_file_raises_anything_but_an_error_of_pylog(name: str, odd: str) -> None:
    kind = kinds()[name]
    with contextlib.suppress(pylog.PylogError):
        found = kind.parsed(ODD[odd], "/data/file", *CONTEXT.get(name, ()), **NAMED.get(name, {}))
        list(found if isinstance(found, Iterator) else ())


# ---- memory in proportion ----------------------------------------------------------------------------------------------------


def with_crc(body: bytes) -> bytes:
    return body + struct.pack("<I", google_crc32c.value(body))


def checkpoint(count: int) -> bytes:
    return f"0\n{count}\n".encode() + b"".join(b"t %d 0\n" % number for number in range(count))


def epochs(count: int) -> bytes:
    return f"0\n{count}\n".encode() + b"".join(b"%d %d\n" % (number, number) for number in range(count))


def snapshot(count: int) -> bytes:
    entries = b"".join(struct.pack(">qhiqiqiq", number, 0, 0, number, 0, 0, 0, -1) for number in range(count))
    counted = struct.pack(">i", count) + entries
    return struct.pack(">hI", 1, google_crc32c.value(counted)) + counted


def seal(count: int) -> bytes:
    head = struct.pack("<4sHHqqqQIIIII", b"PYSL", 1, 0, 0, 1, 1 << 30, 0, 0, 0, 0, count, 0)
    return with_crc(head + b"".join(struct.pack("<q", number) for number in range(count)))


def catalog(count: int) -> bytes:
    topics = {f"{number:x}": CatalogTopic("A" * 22, 1) for number in range(count)}
    return pylog.topics.catalog.msgspec.json.encode(Catalog(topics=topics).sealed())


def intent(count: int) -> bytes:
    targets = tuple(PartitionIntent("t", number, 0) for number in range(count))
    return pylog.topics.catalog.msgspec.json.encode(Intent("a", 0, targets=targets).sealed())


def staged(count: int) -> bytes:
    return json.dumps([{}, [["t", number, []] for number in range(count)]], separators=(",", ":")).encode()


def aborted(count: int) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, 1, number, number, number) for number in range(count))


DENSE: dict[str, Callable[[int], bytes]] = {
    "directory/checkpoints.py:OFFSETS": checkpoint,
    "directory/leader_epoch_cache.py:EPOCHS": epochs,
    "log/recovery/producer_snapshots.py:SNAPSHOTS": snapshot,
    "segment/seal.py:SEALS": seal,
    "topics/catalog.py:CATALOGS": catalog,
    "staging/intents.py:INTENTS": intent,
    "staging/file.py:INDEXES": staged,
    "index/kinds.py:OFFSETS": lambda count: b"".join(struct.pack(">ii", number, 1) for number in range(count)),
    "index/kinds.py:TIMES": lambda count: b"".join(struct.pack(">qi", number, number) for number in range(count)),
    "index/kinds.py:TRANSACTIONS": aborted,
}
SMALL = {
    "archive/settings.py:KNOWN",
    "archive/settings.py:PLANS",  # kinds of at most a megabyte, which are not decoded into many objects
    "background_errors.py:NOTES",
    "directory/checkpoints.py:MARKER",
    "directory/partition_metadata.py:METADATA",
    "groups/members_file.py:SLOTS",
    "log/durable_point.py:CUTS",
    "log/durable_point.py:SLOTS",
    "topics/listing.py:META",
}
SAME = {
    "directory/locks.py:BOOTS": "a boot id, and the zeros that reserve room, which become no objects",
    "log/recovery/producer_snapshots.py:ENTRIES": "one entry at a time",
    "archive/copied_manifest.py:COPIES": "a manifest, whose size is bounded when it is decompressed",
    "archive/leaving.py:NOTES": "a list of partitions, as in a catalog",
    "tools/graduate.py:NOTES": "a list of names, as in a catalog",
}


def test_each_kind_of_file_has_a_test_of_its_memory() -> None:
    assert set(kinds()) == set(DENSE) | SMALL | set(SAME)
    assert all(kinds()[name].bound(0) <= 1 << 20 for name in SMALL)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", DENSE)
def test_the_memory_that_a_file_takes_is_bounded_by_its_bytes(name: str) -> None:
    """For twice the bytes twice the memory, and never more than the factor that `limits` states."""
    kind, taken = kinds()[name], []
    context = CONTEXT.get(name, ())
    if name.endswith(":SNAPSHOTS"):
        context = (1 << 40, None)
    for count in (5_000, 10_000):
        data = DENSE[name](count)
        tracemalloc.start()
        try:
            found = kind.parsed(data, "/data/file", *context)
            taken.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert found is not None
        assert taken[-1] <= limits.MOST_MEMORY_PER_BYTE * len(data) + (1 << 20)
    assert taken[1] <= 2.5 * taken[0] + (1 << 20)


def test_a_checkpoint_of_too_many_lines_is_refused_before_its_lines_become_objects() -> None:
    data = b"0\n%d\n" % (limits.MAX_CHECKPOINT_LINES + 1) + b"\n" * (limits.MAX_CHECKPOINT_LINES + 1)
    tracemalloc.start()
    try:
        with pytest.raises(pylog.CorruptionError, match="more than"):
            kinds()["directory/checkpoints.py:OFFSETS"].parsed(data, "/data/file")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
