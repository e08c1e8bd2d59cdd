"""`WindowServer`: serves the window from a thread of this process, on an address of this machine."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import threading
from collections.abc import Collection
from functools import partial
from typing import Final, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pylog.errors import InvalidArgumentError, StorageFailedError
from pylog.fs.unix_socket import private_listener, remove_listener
from pylog.loopback import is_loopback
from pylog.threads import started
from pylog.ui.app import made_application
from pylog.ui.planned import OpenForWriting
from pylog.ui.security import LOCAL
from pylog.ui.watch import Watch

DEFAULT_PORT: Final = 8055
_BACKLOG: Final = 64
_OTHERS: Final = 20  # ports that are tried after a taken one
_GRACE_S: Final = 0.5  # for answers that are being sent when the server is closed
_ENDING_S: Final = 5.0
_SILENT_S: Final = 10.0  # a connection is closed after one to two of these without a request
_ERRORS: Final = logging.getLogger("uvicorn.error.pylog")
_ERRORS.setLevel(logging.ERROR)  # a warning for each refused client would fill the disk


class _ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, but a client that sends no whole request for a while is disconnected, and keeps no place."""

    _timer: asyncio.TimerHandle | None = None
    _seen: tuple[object, bool] = (None, False)  # the request that is answered or was last, and whether the client was idle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _ERRORS
        self._check()

    def _check(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._seen == (self.cycle, True):
            self.transport.close()
            return
        self._seen = self.cycle, is_idle
        self._timer = self.loop.call_later(_SILENT_S, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)


class WindowServer:
    """Serves a window until it is closed. A context manager.

    Args:
        watch: the store's watch.
        host: the address to listen on. One that other machines can reach needs a token that was chosen by the caller.
        port: the port; 0 for any free one; None for the first free one from 8055 on.
        token: that requests must have; None makes one at random.
        hosts: names for the window besides those of this machine.
        writing: opens the store for a change; None for a window that only reads.
        hide_values: true to show sizes in the place of values.
        uds: a path; listens on a Unix socket there, for a proxy, and not on an address.

    Attributes:
        url: the address to open, with the token. For a Unix socket, the one that a client of it asks for.

    Raises:
        InvalidArgumentError: other machines can reach the host, and there is no token.
        StorageFailedError: it cannot listen there.
    """

    def __init__(
        self,
        watch: Watch,
        host: str = "127.0.0.1",
        port: int | None = None,
        token: str | None = None,
        hosts: Collection[str] = (),
        writing: OpenForWriting | None = None,
        *,
        hide_values: bool = False,
        uds: str | None = None,
    ) -> None:
        if token is None and not is_loopback(host):
            raise InvalidArgumentError(f"host={host!r} can be reached from other machines; give a token, or use 127.0.0.1")
        token = token or secrets.token_urlsafe(32)
        listener = _listener(host, port) if uds is None else private_listener(uds, _BACKLOG)
        self._uds = uds
        self.port = int(listener.getsockname()[1]) if uds is None else 0
        shown = f"[{host}]" if ":" in host else host
        where = f"{shown}:{self.port}" if uds is None else "localhost"
        self.url = f"http://{where}/?token={token}"
        names = [*LOCAL, shown, *hosts]
        app = made_application(watch, token=token, hosts=names, writing=writing, hide_values=hide_values)
        self._watch = watch
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            http=_ImpatientProtocol,
            limit_concurrency=64,
            timeout_graceful_shutdown=_GRACE_S,  # type: ignore[arg-type]  # asyncio takes fractions
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="pylog-ui", daemon=True)
        started(self._thread, partial(self._release, listener))

    def _run(self, listener: socket.socket) -> None:
        try:
            self._server.run(sockets=[listener])
        finally:
            self._release(listener)

    def _release(self, listener: socket.socket) -> None:
        listener.close()
        if self._uds is not None:
            remove_listener(self._uds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"WindowServer({self.url.partition('?')[0]!r})"

    def close(self) -> None:
        """Ends all connections and the thread. May be called twice."""
        self._server.should_exit = True
        self._watch.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_ENDING_S)

    def wait(self) -> None:
        """Waits until the server is closed."""
        while self._thread.is_alive():
            self._thread.join(0.2)


def _listener(host: str, port: int | None) -> socket.socket:
    tried = range(DEFAULT_PORT, DEFAULT_PORT + _OTHERS) if port is None else [port]
    failed: Exception | None = None
    for number in tried:
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, number), family=family, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            failed = error
    why = getattr(failed, "strerror", None) or failed
    message = f"cannot listen on {host}:{tried[0]}: {why}; give another address or port"
    raise StorageFailedError(message, errno=getattr(failed, "errno", None)) from failed
