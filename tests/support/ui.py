"""Asks an ASGI application, as a server does, and keeps its answers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

SAME: Final = {"sec-fetch-site": "same-origin"}  # as a browser sends it for a form of the page itself


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Asks an ASGI application, as a server does."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def get(self, url: str, method: str = "GET", root: str = "", body: bytes = b"", **headers: str) -> Answer:
        path, _, query = url.partition("?")
        given = {"host": "127.0.0.1:8055", **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": root,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
            "server": ("127.0.0.1", 8055),
        }
        sent: list[dict[str, Any]] = []

        bodies = [body]

        async def receive() -> dict[str, Any]:
            if not bodies:
                await asyncio.Event().wait()  # the reader stays
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        answered = b"".join(each.get("body", b"") for each in sent[1:])
        return Answer(sent[0]["status"], {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}, answered)


def form_token(text: str) -> str:
    """The token of the forms on a page."""
    found_token = re.search(r'name="form_token" value="([^"]+)"', text)
    assert found_token is not None
    return found_token[1]


def posted(browser: Browser, url: str, **fields: str) -> Any:
    """Sends a form from a page of the window itself."""
    return browser.get(url, "POST", body=urlencode(fields).encode(), **SAME)
