"""`pylog ui` prints an address, serves it while a writer has the directory open, and ends with an interrupt."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
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


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s"):
        pass
    done = call("ui", tmp_path / "s", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "token" in done.complaints
