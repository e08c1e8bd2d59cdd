"""A server before an object store that refuses some of the requests, as S3 does when it is asked too much (503 SlowDown)."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

_SLOW_DOWN: Final = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>"


@dataclass
class Throttled:
    """The proxy, while it runs.

    Attributes:
        endpoint: its URL.
        passed, refused: how many requests it has passed on and refused.
    """

    endpoint: str
    passed: int = 0
    refused: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


@contextmanager
def throttled(target: str, *, each: int) -> Iterator[Throttled]:
    """Passes reads on to a server, and refuses each so-manieth. It ends with the block.

    Args:
        target: the URL of the server.
        each: 10 to refuse a tenth of the requests.
    """
    state = Throttled("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if next(state.numbers) % each == 0:
                state.refused += 1
                self._send(503, {}, _SLOW_DOWN)
                return
            state.passed += 1
            connection = http.client.HTTPConnection(urlsplit(target).netloc, timeout=60)
            try:
                connection.request(self.command, self.path, headers=dict(self.headers))
                answer = connection.getresponse()
                data = answer.read()
                self._send(answer.status, dict(answer.getheaders()), data)
            finally:
                connection.close()

        do_HEAD = do_GET  # noqa: N815 - as above

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
