"""`Guarded`: lets only requests through that come from this machine's browser and have the token, and adds strict headers."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

HttpScope = dict[str, Any]
COOKIE: Final = "pylog-ui"
LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LONGEST_QUERY: Final = 1 << 16


class Guarded:
    """An ASGI application in front of another one.

    Args:
        app: the pages.
        token: must come with each request, as a cookie or as a bearer token; None asks for none.
        hosts: names under which the pages may be asked for, without a port; None for all.

    A page of another site that has its name lead to this machine is refused: its `Host` is not one of `hosts`. A first request
    with `?token=` gets a cookie, and is sent to the same address without the token. A `POST` must come from a page of this
    origin, or have the bearer token, which no browser sends by itself.
    """

    def __init__(self, app: Any, token: str | None, hosts: Collection[str] | None = LOCAL) -> None:
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: HttpScope, receive: Any, send: Any) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await _answer(send, *refused)
        elif self._is_known(headers):
            await self._app(scope, receive, _with_headers(send))
        else:
            await self._let_in(scope, send)

    def _refused(self, scope: HttpScope, headers: dict[str, str]) -> tuple[int, str] | None:
        if self._hosts is not None and _host_of(headers.get("host", "")) not in self._hosts:
            return 400, "This name is not one of this window's. Use the address that it printed."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "This window does not have this method."
        if scope["method"] == "POST" and not _is_of_this_origin(headers):
            return 403, "This was not sent from a page of this window."
        if len(scope["query_string"]) > _LONGEST_QUERY:
            return 414, "The address is too long."
        return None

    def _is_known(self, headers: dict[str, str]) -> bool:
        if self._token is None:
            return True
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer if kind.lower() == "bearer" else "", _cookie_of(headers.get("cookie", ""))]
        return any(same(each, self._token) for each in given)

    async def _let_in(self, scope: HttpScope, send: Any) -> None:
        """Gives a cookie to a request with the token in its address. All others are refused."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), "")
        if self._token is None or not same(given, self._token):
            await _answer(send, 401, "The token is missing. Open the address that `pylog ui` printed.")
            return
        rest = urlencode([each for each in query if each[0] != "token"])
        target = "/" + quote(scope["path"].lstrip("/\\"), errors="surrogateescape") + (f"?{rest}" if rest else "")
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        more = [(b"location", target.encode()), (b"set-cookie", cookie.encode())]
        await _answer(send, 303, "", more)


def _is_of_this_origin(headers: dict[str, str]) -> bool:
    """Returns whether a request that may change something was sent by a page of the same origin, or by a program."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site == "same-origin"
    if origin is not None:
        return origin.partition("://")[2] == headers.get("host", "")
    return headers.get("authorization", "").lower().startswith("bearer ")


def same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _host_of(given: str) -> str:
    """Returns the name in a `Host` header, without the port."""
    if given.startswith("["):
        name, bracket, _ = given.partition("]")
        return name.lower() + bracket
    return given.partition(":")[0].lower()


def _cookie_of(given: str) -> str:
    try:
        found = SimpleCookie(given).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sending


async def _answer(send: Any, status: int, text: str, more: Collection[tuple[bytes, bytes]] = ()) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *more, *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
