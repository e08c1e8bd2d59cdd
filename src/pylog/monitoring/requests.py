"""Requests of HTTP as the metrics server reads them, and its answers. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pylog.loopback import is_loopback

_LINE: Final = re.compile(rb"([A-Z]{1,20}) (/[\x21-\x7e]{0,2000}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
_REFUSED: Final = re.compile(r"application/openmetrics-text[^,]*;\s*q=0(\.0*)?\s*(,|$)")

MEDIA_TYPES: Final = {
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "text": "text/plain; version=0.0.4; charset=utf-8",
}


class RequestError(Exception):
    """A request that gets no data.

    Attributes:
        status: the answer's status.
    """

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Answer(NamedTuple):
    """An answer: its status, its media type and its body."""

    status: str
    type: str
    body: bytes


class ScrapeRequest(NamedTuple):
    """A request.

    Attributes:
        method, path: the method and path of its first line, without a query.
        headers: by their names in lower case.
    """

    method: str
    path: str
    headers: Mapping[str, str]

    @classmethod
    def parse(cls, received: bytes) -> ScrapeRequest:
        """Returns the request in some bytes.

        Raises:
            RequestError: it is none, or too long.

        >>> ScrapeRequest.parse(b"GET /metrics?a=b HTTP/1.1\\r\\nHost: localhost:9308\\r\\n\\r\\n")
        ScrapeRequest(method='GET', path='/metrics', headers={'host': 'localhost:9308'})
        """
        head, end, _ = received.replace(b"\r\n", b"\n").partition(b"\n\n")
        if not end:
            raise RequestError("431 Request Header Fields Too Large", "the request is too long")
        first, *lines = head.split(b"\n")
        found = _LINE.fullmatch(first)
        headers = [_HEADER.fullmatch(line) for line in lines]
        if found is None or None in headers:
            raise RequestError("400 Bad Request", "the request is not HTTP/1.1")
        pairs = [(each[1].decode("ascii").lower(), each[2].decode("latin-1")) for each in headers if each is not None]
        if sum(name == "host" for name, _ in pairs) > 1:
            raise RequestError("400 Bad Request", "the request names two hosts")
        return cls(found[1].decode("ascii"), found[2].decode("ascii").partition("?")[0], dict(pairs))

    @property
    def bearer(self) -> str:
        """The token of the client; empty without one."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def check_host(self) -> None:
        """Refuses a name that is not this machine's: a page in a browser may have had its name resolved to it.

        Raises:
            RequestError: the request is for another host.
        """
        host = self.headers.get("host")
        if host is not None and not is_loopback(re.sub(r":\d{1,5}$", "", host)):
            raise RequestError("403 Forbidden", "the host of the request is not this machine; use 127.0.0.1 or localhost")

    def check_target(self) -> None:
        """Refuses all but reading the metrics.

        Raises:
            RequestError: the request is something else.
        """
        if self.method not in ("GET", "HEAD"):
            raise RequestError("405 Method Not Allowed", "only GET and HEAD are answered")
        if self.path != "/metrics":
            raise RequestError("404 Not Found", "the metrics are at /metrics")


def wanted_format(accept: str) -> str:
    """Returns the format for a client, from its header Accept: OpenMetrics if it is named.

    >>> wanted_format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3"), wanted_format("*/*")
    ('openmetrics', 'text')
    """
    return "openmetrics" if "application/openmetrics-text" in accept and not _REFUSED.search(accept) else "text"


def head_of(answer: Answer) -> bytes:
    """Returns the bytes before an answer's body. The connection ends after it, and no browser may keep or interpret it."""
    lines = [
        f"HTTP/1.1 {answer.status}",
        f"Content-Type: {answer.type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Content-Security-Policy: default-src 'none'",
        *(['WWW-Authenticate: Bearer realm="metrics"'] if answer.status.startswith("401") else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
