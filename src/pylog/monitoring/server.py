"""`MetricsServer`: answers scrapes over HTTP, in one thread, with bounds on all that a client can make it do.

One scrape runs at a time, and its text answers all requests of the next second. A connection has a deadline, a request has a
bound, and of too many connections the oldest ends. Nothing but `GET /metrics` is answered with data.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from pylog.clock import SystemClock
from pylog.errors import InvalidArgumentError, PylogError, StorageFailedError
from pylog.loopback import is_loopback
from pylog.monitoring.requests import MEDIA_TYPES, Answer, RequestError, ScrapeRequest, head_of, wanted_format
from pylog.threads import started

_LONGEST_REQUEST: Final = 8 << 10  # bytes
_MOST_CONNECTIONS: Final = 64
_DEADLINE_S: Final = 10.0  # for a request and its answer
_FRESH_S: Final = 1.0  # an answer this old is given again
_ENDING_S: Final = 10.0
_PAUSE_S: Final = 0.05


class MetricsServer:
    """Serves metrics over HTTP until it is closed. Created by `Store.serve_metrics`; a context manager.

    Args:
        render: returns the metrics as text in a format, "openmetrics" or "text".
        host: the address to listen on.
        port: the port; 0 for any free one.
        token: clients must send it as a bearer token; None asks for none, which only a loopback address allows.

    Attributes:
        host, port: where it listens.
        url: the URL of the metrics.

    Raises:
        InvalidArgumentError: the host is no loopback address, and there is no token.
        StorageFailedError: it cannot listen there.
    """

    def __init__(self, render: Callable[[str], str], host: str, port: int, token: str | None = None) -> None:
        if token is None and not is_loopback(host):
            raise InvalidArgumentError(f"host={host!r} can be reached from other machines; give a token, or use 127.0.0.1")
        self._render = render
        self._token = token
        self._clock = SystemClock()
        self._listener = _listener(host, port)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"
        self._texts: dict[str, tuple[float, bytes]] = {}
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._ending, self._wake = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ending, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="pylog-metrics", daemon=True)
        started(self._thread, self._release)

    def __repr__(self) -> str:
        return f"MetricsServer({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections and the thread. May be called twice."""
        with suppress(OSError):
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join(_ENDING_S)

    def wait(self) -> None:
        """Waits until the server is closed."""
        self._thread.join()

    # ---- the thread ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self._release()

    def _release(self) -> None:
        for each in (*self._clients, self._listener, self._ending, self._wake):
            each.close()
        self._clients.clear()
        self._selector.close()

    def _step(self) -> bool:
        """Handles what has arrived. Returns False once the server is closed."""
        for key, _ in self._selector.select(1.0 if self._clients else None):
            if key.fileobj is self._ending:
                return False
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._advance(key.data)
        now = self._clock.monotonic()
        for client in [each for each in self._clients.values() if each.deadline <= now]:
            self._drop(client)
        return True

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # the client has gone
            return
        except OSError:  # no descriptor is left: the connection waits
            self._clock.sleep(_PAUSE_S)
            return
        connection.setblocking(False)
        client = _Client(connection, self._clock.monotonic() + _DEADLINE_S)
        self._clients[connection] = client
        self._selector.register(connection, selectors.EVENT_READ, client)
        if len(self._clients) > _MOST_CONNECTIONS:
            self._drop(next(iter(self._clients.values())))

    def _advance(self, client: _Client) -> None:
        if client.connection not in self._clients:
            return
        try:
            if client.receives():
                self._send(client, self._answer_to(client.received))
            elif client.is_done:
                self._drop(client)
        except OSError:
            self._drop(client)

    def _send(self, client: _Client, answer: list[bytes]) -> None:
        client.answer = [memoryview(part) for part in answer if part]
        self._selector.modify(client.connection, selectors.EVENT_WRITE, client)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.connection, None) is not None:
            self._selector.unregister(client.connection)
            client.connection.close()

    # ---- answers -------------------------------------------------------------------------------------------------------------

    def _answer_to(self, received: bytes) -> list[bytes]:
        head_only = received.startswith(b"HEAD ")
        try:
            answer = self._answer(ScrapeRequest.parse(received))
        except RequestError as error:
            answer = Answer(error.status, "text/plain; charset=utf-8", f"{error}\n".encode())
        except Exception as error:  # noqa: BLE001 - the thread must go on, and the next scrape may succeed
            status = "503 Service Unavailable" if isinstance(error, PylogError) else "500 Internal Server Error"
            answer = Answer(status, "text/plain; charset=utf-8", f"{type(error).__name__}: {error}\n".encode(errors="replace"))
        return [head_of(answer), b"" if head_only else answer.body]

    def _answer(self, request: ScrapeRequest) -> Answer:
        if self._token is None:
            request.check_host()
        elif not hmac.compare_digest(request.bearer.encode(), self._token.encode(errors="surrogateescape")):
            raise RequestError("401 Unauthorized", "send the token, as Authorization: Bearer TOKEN")
        request.check_target()
        kind = wanted_format(request.headers.get("accept", ""))
        return Answer("200 OK", MEDIA_TYPES[kind], self._text(kind))

    def _text(self, kind: str) -> bytes:
        taken, text = self._texts.get(kind, (-_FRESH_S, b""))
        if self._clock.monotonic() - taken >= _FRESH_S:
            text = self._render(kind).encode(errors="surrogateescape")
            self._texts[kind] = self._clock.monotonic(), text
        return text


class _Client:
    """A connection: the request so far, and the rest of its answer."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.received = b""
        self.answer: list[memoryview] | None = None  # the parts that are not sent yet

    def receives(self) -> bool:
        """Receives a part of the request, or sends a part of the answer. Returns True once the request is whole, or too long.

        Raises:
            OSError: the connection has ended.
        """
        try:
            if self.answer is not None:
                rest = self.answer[0][self.connection.send(self.answer[0]) :]
                self.answer = [rest, *self.answer[1:]] if rest else self.answer[1:]
                return False
            part = self.connection.recv(_LONGEST_REQUEST)
        except BlockingIOError:
            return False
        if not part:
            raise ConnectionResetError
        self.received += part
        return b"\r\n\r\n" in self.received or b"\n\n" in self.received or len(self.received) > _LONGEST_REQUEST

    @property
    def is_done(self) -> bool:
        """True once the whole answer is sent."""
        return self.answer is not None and not self.answer


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        message = f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}; give another address or port"
        raise StorageFailedError(message, errno=getattr(error, "errno", None)) from error
    listener.setblocking(False)
    return listener
