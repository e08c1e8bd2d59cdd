"""A window beside a broker, and on a directory that cannot be written: it reads, and its changes are refused with the reason."""

from __future__ import annotations

import builtins
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.cli.stores import writing
from pylog.directory.locks import KAFKA_LOCK
from pylog.monitoring.measured import measures_of
from pylog.ui.app import made_application
from support.ui import Browser, form_token, posted

PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/segments",
    "/topics/orders/0/1",
    "/groups/billing",
    "/health",
    "/metrics",
)
CHANGES = (
    ("reset-offsets", {"group": "billing", "to": "earliest"}),
    ("delete-group", {"group": "billing", "typed": "billing"}),
    ("copy-record", {"topic": "orders", "partition": "0", "offset": "1", "to": "orders"}),
    ("delete-records", {"topic": "orders", "partition": "0", "before": "2"}),
    ("delete-topic", {"topic": "orders", "typed": "orders"}),
)
# As a broker has it: Java takes a POSIX record lock on the whole file.
BROKER = (
    "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
)


def content(directory: Path) -> dict[str, tuple[bytes, int]]:
    files = [each for each in sorted(directory.rglob("*")) if each.is_file()]
    return {str(each): (each.read_bytes(), each.stat().st_mtime_ns) for each in files}


def refusals(directory: Path) -> list[tuple[int, str]]:
    """Looks at all pages, tries all changes, and returns what was answered to these. No byte may have changed."""
    before, answers = content(directory), []
    with pylog.open(directory, mode="r") as store:
        watch = measures_of(store).watch()
        browser = Browser(made_application(watch, token=None, writing=partial(writing, str(directory))))
        for page in PAGES:
            assert browser.get(page).status == 200, page
        token = form_token(browser.get("/health").text)
        for name, fields in CHANGES:
            answered = posted(browser, f"/change/{name}", form_token=token, **fields)
            answers.append((answered.status, answered.text))
    assert content(directory) == before
    return answers


def test_beside_a_broker_a_window_reads_says_so_and_changes_nothing(directory: Path) -> None:
    command = [sys.executable, "-c", BROKER, str(directory / KAFKA_LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        with pylog.open(directory, mode="r") as store:
            browser = Browser(made_application(measures_of(store).watch(), token=None))
            assert "a broker has it open" in browser.get("/").text
            assert f"(process {broker.pid})" in browser.get("/health").text
        for status, text in refusals(directory):
            assert status == 400
            assert "broker" in text
        broker.communicate(b"")
    with pylog.open(directory, mode="r") as store:
        assert "has it open" not in Browser(made_application(measures_of(store).watch(), token=None)).get("/").text


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@contextmanager
def read_only(patched: pytest.MonkeyPatch, path: Path) -> Iterator[list[str]]:
    """A file system that is mounted read-only at a path, for this process. Notes what was tried to write there."""
    tried: list[str] = []
    access, statvfs = os.access, os.statvfs

    def is_inside(at: Any) -> bool:
        return isinstance(at, str | os.PathLike) and str(at).startswith(str(path))

    def refusing(name: str, real: Any) -> Any:
        def call(at: Any, *given: Any, **options: Any) -> Any:
            if is_inside(at) and (name != "open" or (given and given[0] & _WRITING)):
                tried.append(f"{name} {at}")
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(at))
            return real(at, *given, **options)

        return call

    def flags_of(at: Any) -> os.statvfs_result:
        found = list(statvfs(at))
        return os.statvfs_result([*found[:8], found[8] | (os.ST_RDONLY if is_inside(at) else 0), *found[9:]])

    def opened(at: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        assert not (is_inside(at) and set(mode) & set("wax+")), at
        return real_open(at, mode, *given, **options)

    real_open = builtins.open
    with patched.context() as within:
        for name in ("open", "mkdir", "unlink", "rmdir", "rename", "replace", "truncate", "chmod", "utime", "link", "symlink"):
            within.setattr(os, name, refusing(name, getattr(os, name)))
        within.setattr(os, "access", lambda at, mode, **rest: access(at, mode, **rest) and not (is_inside(at) and mode & os.W_OK))
        within.setattr(os, "statvfs", flags_of)
        within.setattr(builtins, "open", opened)
        yield tried


def test_on_a_read_only_file_system_a_window_reads_and_tries_to_write_only_for_a_change(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with read_only(monkeypatch, directory) as tried:
        with pylog.open(directory, mode="r") as store:
            browser = Browser(made_application(measures_of(store).watch(), token=None))
            for page in PAGES:
                assert browser.get(page).status == 200, page
        assert tried == []
        for status, text in refusals(directory):
            assert status == 400
            assert "read-only file system" in text
