"""The window of the command: it changes the directory between others, logs each change once, and counts as Kafka's tool does."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import pylog
from pylog.cli.stores import writing
from pylog.monitoring.measured import measures_of
from pylog.ui.app import made_application
from support.golden import data as golden_data
from support.ui import Browser, form_token, posted


@pytest.fixture
def browser(directory: Path) -> Iterator[Browser]:
    with pylog.open(directory, mode="r") as store:
        yield Browser(made_application(measures_of(store).watch(), token=None, writing=partial(writing, str(directory))))


def change(browser: Browser, name: str, **fields: str) -> Any:
    token = form_token(browser.get("/health").text)
    return posted(browser, f"/change/{name}", form_token=token, **fields)


def test_each_change_opens_the_directory_for_itself_and_leaves_one_line(
    directory: Path, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pylog")
    assert change(browser, "reset-offsets", group="billing", to="earliest").status == 200
    assert change(browser, "delete-records", topic="orders", partition="0", before="1").status == 200
    assert change(browser, "delete-topic", topic="orders", typed="orders").status == 200
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]
    for word in ("billing", "delete_records", "topic"):
        assert [line for line in lines if word in line], (word, lines)
    assert "There are no topics yet" in browser.get("/topics").text
    with pylog.open(directory, exclusive=True):
        pass  # nobody has it open for writing


def test_a_change_while_another_process_keeps_the_directory_is_refused_with_the_reason(directory: Path, browser: Browser) -> None:
    with pylog.open(directory, exclusive=True) as store:
        answer = change(browser, "delete-records", topic="orders", partition="0", before="2")
        assert answer.status == 400
        assert "say bad" in answer.text
        assert store.log("orders").start_offset == 0
        assert browser.get("/topics/orders").status == 200


def test_a_window_ends_at_once_also_while_it_verifies(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pylog.open(directory)
    watch = measures_of(store).watch()
    begun = threading.Event()

    def endless(_: Any, progress: Any) -> None:
        while True:
            begun.set()
            progress(1, 2, "")

    monkeypatch.setattr(watch.manager, "verify", endless)
    watch.verifying.start()
    assert begun.wait(10)
    watch.close()
    assert watch.verifying.state().state == "stopped"
    store.close()


@pytest.mark.slow
def test_silent_clients_keep_no_other_client_out(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.ui.server._SILENT_S", 0.3)
    with pylog.open(directory, mode="r") as store, store.serve_ui(port=0, token="t") as server, ExitStack() as opened:
        for number in range(100):  # more than the server takes
            silent = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            silent.sendall(b"GET / HTTP/1.1\r\n" if number % 2 else b"")
        request = Request(f"http://127.0.0.1:{server.port}/", headers={"Authorization": "Bearer t"})
        deadline, statuses = time.monotonic() + 20, list[int]()
        while 200 not in statuses and time.monotonic() < deadline:
            time.sleep(0.1)
            with suppress(OSError), urlopen(request) as answer:
                statuses.append(answer.status)
        assert 200 in statuses


@pytest.mark.slow
@pytest.mark.parametrize("case", [each for each in golden_data.cases() if each.name == "groups"], ids=lambda case: case.version)
def test_lags_on_pages_are_those_that_kafkas_admin_client_reported(case: Any) -> None:
    with pylog.open(case.log_directory, mode="r") as store:
        browser = Browser(made_application(measures_of(store).watch(), token=None))
        checked = 0
        for group, expected in case.json("expected.json")["groups"].items():
            shown = browser.get(f"/groups/{quote(group, safe='')}.json").json.get("partitions", ())
            for each in shown:
                committed = expected["offsets"][f"{each['topic']}-{each['partition']}"]["offset"]
                end = store.log(each["topic"], each["partition"]).end_offset
                assert (each["offset"], each["lag"]) == (committed, end - committed), group
                checked += 1
        assert checked > 10


@pytest.mark.parametrize("count", [2, 3, 9])
def test_the_live_page_of_a_topic_that_another_process_creates_again_begins_at_its_start(
    directory: Path, browser: Browser, count: int
) -> None:
    page = browser.get("/topics/orders/live").text
    (following,) = re.findall(r'data-tail="([^"]*)"', page)
    address = unescape(following)
    program = (
        "import pylog, sys\nwith pylog.open(sys.argv[1]) as store:\n"
        " store.delete_topic('orders')\n store.create_topic('orders')\n"
        f" store.log('orders').append_many([b'new-%d' % each for each in range({count})])"
    )
    subprocess.run([sys.executable, "-c", program, directory], check=True)
    found = browser.get(address).text
    assert "the topic was created again" in found
    assert [f"new-{number}" in found for number in range(count)] == [True] * count
    assert 'data-passed="0"' in found
    (following,) = re.findall(r'data-tail="([^"]*)"', found)
    later = browser.get(unescape(following)).text
    assert ("created again" in later, "new-0" in later) == (False, False)
