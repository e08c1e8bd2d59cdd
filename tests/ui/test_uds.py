"""The window on a Unix socket: for its owner only, and the file goes with the window."""

from __future__ import annotations

import http.client
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pylog
from pylog import StorageFailedError
from pylog.monitoring.measured import measures_of
from pylog.ui.server import WindowServer
from support import warm
from support.cli import call


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


def status(path: Path, token: str, host: str = "localhost") -> int:
    connection = _Connection(path)
    connection.request("GET", "/topics", headers={"Authorization": f"Bearer {token}", "Host": host})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def served(directory: Path, path: Path, *hosts: str) -> Iterator[WindowServer]:
    with (
        pylog.open(directory) as store,
        WindowServer(measures_of(store).watch(), token="t", uds=str(path), hosts=hosts) as server,
    ):
        yield server


def test_only_the_owner_may_open_the_socket_and_it_goes_with_the_window(tmp_path: Path) -> None:
    path, mask = tmp_path / "ui.sock", os.umask(0)
    try:
        with served(tmp_path / "s", path, "ops.example") as server:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert server.url == "http://localhost/?token=t"
            assert [status(path, "t"), status(path, "t", "ops.example")] == [200, 200]
            assert [status(path, "wrong"), status(path, "t", "evil.example")] == [401, 400]
        assert not path.exists()
        assert os.umask(0) == 0, "the process's own mask is as it was"
    finally:
        os.umask(mask)


def test_a_socket_that_a_killed_window_left_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "ui.sock"
    with pylog.open(tmp_path / "s"):
        pass
    with warm.Started(["-m", "pylog", "ui", tmp_path / "s", "--uds", path]) as left:
        assert left.stdout.readline().startswith(b"http://localhost/?token=")
    assert path.exists()
    with served(tmp_path / "s", path):
        assert status(path, "t") == 200
        with pytest.raises(StorageFailedError, match="cannot listen"), served(tmp_path / "s", path):
            pass
        assert status(path, "t") == 200


def test_a_file_with_that_name_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "ui.sock"
    path.write_text("mine")
    with pylog.open(tmp_path / "s"):
        pass
    done = call("ui", tmp_path / "s", "--uds", path)
    assert done.code != 0
    assert re.search("cannot listen on .*ui.sock", done.complaints)
    assert path.read_text() == "mine"


def test_a_socket_and_an_address_are_not_given_together(tmp_path: Path) -> None:
    done = call("ui", tmp_path, "--uds", tmp_path / "x", "--port", "0")
    assert done.code == 2
    assert "--uds cannot be combined with --host or --port" in done.complaints
