"""`pylog ui` prints an address, serves it while a writer has the directory open, and ends with an interrupt."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

import pylog
from support.cli import call


@pytest.mark.slow
def test_the_window_is_open_until_the_command_is_interrupted(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders")
        command = [sys.executable, "-m", "pylog", "ui", str(tmp_path / "s"), "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            url = process.stdout.readline().decode().strip()
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(url, timeout=20) as answer:
                assert b"orders" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_an_interrupt_ends_it_while_tails_run_and_files_are_half_read_and_refused_clients_leave_no_line(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders")
        store.log("orders").append_many([bytes(1_000)] * 20_000)
    command = [sys.executable, "-m", "pylog", "ui", str(tmp_path / "s"), "--port", "0", "--token", "t"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline().rpartition(":")[2].partition("/")[0])
        with ExitStack() as opened:
            for path in [*["/topics/orders/records.jsonl"] * 3, *["/topics/orders/live"] * 3]:
                assert asked(opened, port, path) == b"200"
            for _ in range(80):  # more than it takes
                opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            assert asked(opened, port, "/topics/orders/live") == b"503"
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        assert time.monotonic() - began < 5, "half a second for those who read, and the rest of a busy machine"
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def asked(opened: ExitStack, port: int, path: str) -> bytes:
    """The status of an answer, of which the rest is left unread."""
    client = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer t\r\n\r\n".encode())
    return client.recv(12)[9:]


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s"):
        pass
    done = call("ui", tmp_path / "s", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "token" in done.complaints
