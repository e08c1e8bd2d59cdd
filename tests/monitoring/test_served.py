"""A scrape over HTTP gets the store's metrics, and a hostile client gets nothing, harms nobody, and holds nothing up."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

import pylog
from pylog import ClosedError, InvalidArgumentError, OffsetsConfig, StorageFailedError, Store
from pylog.monitoring.server import MetricsServer
from pylog.testing import MemoryFileSystem

MOST = 64  # connections


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders")
        made.log("orders").append_many([b"x"] * 5)
        made.offsets.commit("billing", {("orders", 0): 3})
        yield made


@pytest.fixture
def server(store: Store) -> MetricsServer:
    return store.serve_metrics(0)


def asked(server: MetricsServer, request: bytes) -> bytes:
    """The whole answer to some bytes."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(request)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def get(headers: str = "", target: str = "/metrics", method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\n{headers}\r\n".encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def test_a_scrape_gets_the_format_that_it_accepts_and_both_are_valid(server: MetricsServer) -> None:
    request = urllib.request.Request(server.url, headers={"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        first = {family.name for family in openmetrics(answer.read().decode())}
    with urllib.request.urlopen(server.url) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = list(classic(answer.read().decode()))
    assert {family.name for family in families} == first
    lag = next(family for family in families if family.name == "pylog_group_lag").samples
    assert [(each.labels, each.value) for each in lag] == [
        ({"store": "/s", "group": "billing", "topic": "orders", "partition": "0"}, 2)
    ]


def test_it_is_closed_with_the_store_and_its_thread_ends(store: Store) -> None:
    server = store.serve_metrics(0)
    assert store.serve_metrics(0).port != server.port
    store.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "pylog-metrics"]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((server.host, server.port), timeout=1)
    server.close()
    with pytest.raises(ClosedError):
        store.serve_metrics(0)


def test_an_address_that_others_can_reach_needs_a_token_and_then_every_request_needs_it(store: Store) -> None:
    for host in ("0.0.0.0", "::", ""):
        with pytest.raises(InvalidArgumentError, match="give a token"):
            store.serve_metrics(0, host=host)
    with store.serve_metrics(0, host="0.0.0.0", token="secret") as server:
        assert status(asked(server, get())) == 401
        assert status(asked(server, get("Authorization: Bearer wrong\r\n"))) == 401
        assert status(asked(server, get("Authorization: Basic secret\r\n"))) == 401
        assert status(asked(server, get("Authorization: Bearer secret\r\nHost: some.where\r\n"))) == 200


def test_a_port_that_is_taken_is_refused_with_the_address(store: Store, server: MetricsServer) -> None:
    with pytest.raises(StorageFailedError, match=f"127.0.0.1:{server.port}"):
        store.serve_metrics(server.port)
    with pytest.raises(InvalidArgumentError, match="kafka_exporter"):
        store.serve_metrics(0, names=["burrow"])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", 200),
        ("localhost:9308", 200),
        ("[::1]:9308", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("", 403),
        ("169.254.169.254", 403),
        ("0.0.0.0", 403),
        ("localhost@evil.example", 403),
    ],
)
def test_a_name_that_was_made_to_lead_here_gets_nothing(server: MetricsServer, host: str, expected: int) -> None:
    answer = asked(server, get(f"Host: {host}\r\n"))
    assert status(answer) == expected
    assert (b"pylog_" in answer) == (expected == 200)


HOSTILE = {
    "another method": (get(method="POST"), 405),
    "a method to delete": (get(method="DELETE"), 405),
    "another path": (get(target="/"), 404),
    "a path upwards": (get(target="/metrics/../../etc/passwd"), 404),
    "an absolute target": (get(target="http://evil.example/metrics"), 400),
    "an encoded path": (get(target="/%6detrics"), 404),
    "no version": (b"GET /metrics\r\n\r\n", 400),
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    "nothing": (b"\r\n\r\n", 400),
    "a line without a colon": (get("nonsense\r\n"), 400),
    "a folded line": (get("A: b\r\n c\r\n"), 400),
    "a null byte": (get("A: \x00\r\n"), 400),
    "two hosts": (get("Host: localhost\r\nHost: evil.example\r\n"), 400),
    "a carriage return in a header": (get("A: b\rSet-Cookie: c\r\n"), 400),
    "a long line": (get("A: " + "x" * 20_000 + "\r\n"), 431),
    "a long target": (get(target="/" + "x" * 4_000), 400),
    "many headers": (get("A: b\r\n" * 3_000), 431),
    "a line without an end": (b"GET /" + b"x" * 20_000, 431),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_gets_a_status_and_no_metrics_and_the_next_one_is_answered(server: MetricsServer, name: str) -> None:
    request, expected = HOSTILE[name]
    try:
        answer = asked(server, request)
    except ConnectionResetError:  # the rest of a long request was not read
        answer = b""
        assert expected == 431
    assert status(answer) in (expected, 0)
    assert b"pylog_" not in answer
    assert status(asked(server, get())) == 200


def test_head_gets_the_length_and_no_body(server: MetricsServer) -> None:
    head, _, body = asked(server, get(method="HEAD")).partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]) > 100
    assert body == b""


def test_clients_that_send_nothing_or_read_nothing_do_not_hold_up_a_scrape(server: MetricsServer) -> None:
    idle = [socket.create_connection((server.host, server.port), timeout=10) for _ in range(MOST + 20)]
    for number, each in enumerate(idle):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000)
        try:
            each.sendall(b"GET /metrics HTTP/1.1\r\nA: b" if number % 2 else get())
        except OSError:
            continue  # of too many connections the oldest ends
    began = time.monotonic()
    assert status(asked(server, get())) == 200
    assert time.monotonic() - began < 5
    for each in idle:
        each.close()


def test_a_request_that_arrives_byte_by_byte_is_answered(server: MetricsServer) -> None:
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        for byte in get("Host: localhost\r\n"):
            connection.sendall(bytes([byte]))
        assert connection.recv(15) == b"HTTP/1.1 200 OK"


def test_a_connection_ends_at_its_deadline(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.monitoring.server._DEADLINE_S", 0.2)
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(b"GET /met")
        assert connection.recv(10) == b""


def test_scrapes_within_a_second_share_one_look_at_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr("pylog.monitoring.monitor.Monitor.samples", lambda self, **_: taken.append(1) or [])
    server = store.serve_metrics(0)
    threads = [threading.Thread(target=asked, args=(server, get())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(taken) <= 3


def test_a_scrape_that_fails_says_why_and_the_next_one_succeeds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    server = store.serve_metrics(0)
    with monkeypatch.context() as patched:
        patched.setattr("pylog.monitoring.page.families", lambda *_: 1 // 0)
        assert status(asked(server, get())) == 500
    assert status(asked(server, get())) == 200


def test_names_from_a_directory_cannot_add_a_line_or_a_label(tmp_path: Path) -> None:
    group = 'a"} 1\npylog_up{x="\\'
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.offsets.commit(group, {("t", 0): 0})
        with store.serve_metrics(0, names=["kafka_exporter", "kminion", "lag_exporter"]) as server:
            text = asked(server, get()).partition(b"\r\n\r\n")[2].decode()
    families = list(classic(text))
    assert not [family for family in families if family.name == "pylog_up"]
    assert {each.labels["group"] for family in families if family.name == "pylog_group_lag" for each in family.samples} == {group}
