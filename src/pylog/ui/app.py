"""The application: routes to pages, their data and files, and changes. Reading happens in threads, never in the event loop.

The data of a page `/X` is at `/X.json`, and at `/json/X`, which no name of a topic or group can hide.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from pylog.errors import ClosedError, InvalidArgumentError, OffsetOutOfRangeError, PylogError, UnknownTopicOrPartitionError
from pylog.ui import change_pages, store_pages
from pylog.ui.changes import CHANGES
from pylog.ui.data import in_json
from pylog.ui.export import MEDIA_TYPES
from pylog.ui.html import TOKEN_FIELD, PageFrame
from pylog.ui.observation import Observation
from pylog.ui.planned import Fields, OpenForWriting, WindowChange
from pylog.ui.security import LOCAL, Guarded, same
from pylog.ui.watch import Watch
from pylog.ui.window import BusyError, Page, Window

_STATIC: Final = {"ui.css": "text/css; charset=utf-8", "ui.js": "text/javascript; charset=utf-8"}
_LONGEST_FORM: Final = 2 << 20
_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_STATUS: Final[dict[type[Exception], int]] = {
    InvalidArgumentError: 400,
    UnknownTopicOrPartitionError: 404,
    OffsetOutOfRangeError: 404,
    ClosedError: 503,
    BusyError: 503,
}
_TITLES: Final = {400: "This request has an error", 404: "Not found", 503: "Not available now"}
Make = Callable[[Request, Observation], Page]


def shipped(name: str) -> bytes:
    """Returns a file that the pages use."""
    return resources.files("pylog.ui").joinpath("static", name).read_bytes()


def made_application(
    watch: Watch,
    *,
    token: str | None,
    hosts: Collection[str] | None = LOCAL,
    writing: OpenForWriting | None = None,
    hide_values: bool = False,
) -> Any:
    """Returns the window on a store as an ASGI application.

    Args:
        watch: the store's watch.
        token: that requests must have; None for none, if the application around it asks for one.
        hosts: names under which the pages may be asked for; None for all, if the application around it checks them.
        writing: opens the store for a change; None for a window that only reads.
        hide_values: true to show sizes in the place of values.
    """
    return Guarded(_Application(watch, Window(watch, hide_values=hide_values), writing).routed(), token, hosts)


class _Application:
    """Answers requests.

    Args:
        watch: the store's watch.
        window: the pages.
        writing: opens the store for a change.
    """

    def __init__(self, watch: Watch, window: Window, writing: OpenForWriting | None) -> None:
        self._watch = watch
        self._writing = writing
        self._window = window
        self._form_token = secrets.token_urlsafe(32)

    def routed(self) -> Any:
        """Returns the application with its routes."""
        window = self._window
        pages = {
            "/": window.overview,
            "/topics": window.topics,
            "/topics/{topic}": window.records,
            "/topics/{topic}/{tab}": window.tab,
            "/topics/{topic}/{partition}/{offset}": window.record,
            "/groups": window.groups,
            "/groups/{group:path}": window.group,
            "/health": window.health,
        }
        first = [
            Route("/static/{name}", _static),
            Route("/go", self._go),
            Route("/metrics", self._metrics),
            Route("/topics/{topic}/{partition}/{offset}/{part:str}", self._download),
            Route("/verify/{action}", self._verify, methods=["POST"]),
            Route("/change/{name}", self._change, methods=["GET", "POST"]),
            *(Route(f"/topics/{{topic}}/records.{form}", self._exporting(form)) for form in MEDIA_TYPES),
            _lines(
                Mount("/json", routes=[_lines(Route(path, self._answering(make, as_json=True))) for path, make in pages.items()])
            ),
        ]
        as_html = [_lines(Route(path, self._answering(make, as_json=False))) for path, make in pages.items()]
        return _DataBeside(Starlette(routes=[*first, *as_html], exception_handlers={PylogError: _unavailable}), self._is_name)

    def _is_name(self, path: str) -> bool:
        """Returns whether a path is the page of a topic or group whose own name ends like the address of data."""
        kind, _, name = path.lstrip("/").partition("/")
        seen = self._watch.observation()
        return name in (seen.topics if kind == "topics" else seen.groups if kind == "groups" else ())

    def _frame(self, request: Request, seen: Observation, *, as_json: bool = False) -> PageFrame:
        root = request.scope.get("root_path", "").removesuffix("/json" if as_json else "")
        may_change = self._writing is not None
        return PageFrame(root, seen, self._form_token, may_change=may_change, hides_values=self._window.hides_values)

    # ---- pages ---------------------------------------------------------------------------------------------------------------

    def _answering(self, make: Make, *, as_json: bool) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._answer, request, make, as_json)

        return answer

    def _answer(self, request: Request, make: Make, as_json: bool) -> Response:
        seen = self._watch.observation(whole=as_json or make not in self._window.early)
        frame = self._frame(request, seen, as_json=as_json)
        try:
            page = make(request, seen)
            made = in_json(page.data()) if as_json else page.html(frame).encode(errors="surrogateescape")
            return Response(made, page.status, media_type="application/json" if as_json else _HTML)
        except (PylogError, BusyError) as error:
            return _failed(error, frame, as_json=as_json)

    async def _go(self, request: Request) -> Response:
        seen = await run_in_threadpool(self._watch.observation)
        return RedirectResponse(_target(self._frame(request, seen), request.query_params.get("to", "").strip()), 303)

    async def _metrics(self, request: Request) -> Response:
        text, kind = await run_in_threadpool(self._watch.metrics, request.headers.get("accept", ""))
        return Response(text.encode(errors="surrogateescape"), media_type=kind)

    # ---- files ---------------------------------------------------------------------------------------------------------------

    def _exporting(self, form: str) -> Callable[[Request], Any]:
        async def export(request: Request) -> Response:
            return await run_in_threadpool(self._export, request, form)

        return export

    def _export(self, request: Request, form: str) -> Response:
        seen = self._watch.observation()
        try:
            name, parts = self._window.export(request, seen, form)
            next(parts)
        except (PylogError, BusyError) as error:
            return _failed(error, self._frame(request, seen), as_json=False)
        return StreamingResponse(_closing(parts), media_type=MEDIA_TYPES[form], headers=_attachment(name))

    async def _download(self, request: Request) -> Response:
        return await run_in_threadpool(self._part, request)

    def _part(self, request: Request) -> Response:
        """Returns the key or the value of a record as a file."""
        seen = self._watch.observation()
        try:
            name, content = self._window.part(request, seen)
        except PylogError as error:
            return _failed(error, self._frame(request, seen), as_json=False)
        return Response(content, headers=_attachment(name), media_type="application/octet-stream")

    # ---- what is sent --------------------------------------------------------------------------------------------------------

    async def _verify(self, request: Request) -> Response:
        fields = await self._fields(request)
        if isinstance(fields, Response):
            return fields
        verifying = self._watch.verifying
        act = {"start": verifying.start, "stop": verifying.stop}.get(request.path_params["action"])
        if act is None:
            return Response("There is no such action.", 404, media_type=_TEXT)
        try:
            await run_in_threadpool(act)
        except PylogError as error:
            return Response(str(error), 409, media_type=_TEXT)
        return RedirectResponse(f"{request.scope.get('root_path', '')}/health", 303)

    async def _change(self, request: Request) -> Response:
        change = CHANGES.get(request.path_params["name"])
        if change is None or self._writing is None:
            text = "This window only reads." if self._writing is None else "There is no such change."
            return Response(text, 404 if change is None else 403, media_type=_TEXT)
        if request.method != "POST":
            return await run_in_threadpool(self._planned, request, change, dict(request.query_params))
        fields = await self._fields(request)
        if isinstance(fields, Response):
            return fields
        act = self._planned if fields.pop(change_pages.STEP, "") == change_pages.PLAN else self._changed
        return await run_in_threadpool(act, request, change, fields)

    async def _fields(self, request: Request) -> dict[str, str] | Response:
        """Returns the fields of a form, if it was sent from a page of this window."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST_FORM:
                return Response("The form is too large.", 413, media_type=_TEXT)
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not same(fields.pop(TOKEN_FIELD, ""), self._form_token):
            return Response("The form is not of this window, or of an earlier one. Open the page again.", 403, media_type=_TEXT)
        return fields

    def _planned(self, request: Request, change: WindowChange, fields: dict[str, str], problem: str = "") -> Response:
        name = request.path_params["name"]
        kept: Fields = {}
        plan = None
        seen = self._watch.observation()
        try:
            given = self._filled(change, fields) if request.method == "GET" else fields
            kept = {each: given[each] for each in change.fields if each in given}
            is_sent = request.method == "POST" or not change.long  # a form that begins with a record is edited first
            if not problem and is_sent and change.is_complete(kept):
                plan = change.plan(self._watch, kept)
        except PylogError as error:
            problem = str(error)
        made = change_pages.form(self._frame(request, seen), name, change, kept, plan, problem)
        return Response(made.encode(errors="surrogateescape"), 400 if problem else 200, media_type=_HTML)

    def _filled(self, change: WindowChange, fields: Fields) -> Fields:
        """Returns the fields that a form begins with."""
        if change.filled is None or "offset" not in fields:
            return fields
        if self._window.hides_values:
            raise InvalidArgumentError("this window hides values, so no form begins with a record; the record can be copied")
        return change.filled(self._watch, fields)

    def _changed(self, request: Request, change: WindowChange, fields: dict[str, str]) -> Response:
        assert self._writing is not None
        kept = {each: fields[each] for each in change.fields if each in fields}
        try:
            plan = change.plan(self._watch, kept)
            if plan.must_type and fields.get("typed", "") != plan.must_type:
                raise InvalidArgumentError(f"the text that confirms it is {plan.must_type!r}; nothing was changed")
            with self._writing() as store:
                sentence = change.make(store, kept)
        except PylogError as error:
            return self._planned(request, change, fields, str(error))
        self._watch.forget()
        made = change_pages.done(self._frame(request, self._watch.observation()), change, sentence)
        return Response(made.encode(errors="surrogateescape"), media_type=_HTML)


class _DataBeside:
    """Answers `/X.json` as `/json/X`, unless a topic or group has that name.

    Args:
        app: the routes.
        is_name: returns whether a path is the page of a name.
    """

    def __init__(self, app: Any, is_name: Callable[[str], bool]) -> None:
        self._app = app
        self._is_name = is_name

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers a request."""
        root = scope.get("root_path", "")
        path = scope.get("path", "").removeprefix(root)
        if path.endswith(".json") and not path.startswith("/json/"):
            try:
                is_page = await run_in_threadpool(self._is_name, path)
            except PylogError:
                is_page = True
            if not is_page:
                scope = {**scope, "path": f"{root}/json{path.removesuffix('.json')}", "raw_path": None}
        await self._app(scope, receive, send)


def _lines(route: Route | Mount) -> Route | Mount:
    """Returns a route whose paths may have ends of lines, as the names of groups may."""
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


async def _closing(parts: Iterator[bytes]) -> Any:
    """Yields the parts of a file. If the client closes the connection, the search ends."""
    try:
        async for part in iterate_in_threadpool(parts):
            if part:
                yield part
    finally:
        close: Any = getattr(parts, "close", lambda: None)
        close()


def _attachment(name: str) -> dict[str, str]:
    """Returns the header of a file that browsers save, and never show."""
    return {"content-disposition": f"attachment; filename*=utf-8''{quote(name, safe='', errors='surrogateescape')}"}


async def _unavailable(_: Request, error: Exception) -> Response:
    """Answers where the store itself cannot be observed: it is closed, or its directory was deleted."""
    return Response(str(error), 503, media_type=_TEXT)


def _failed(error: Exception, frame: PageFrame, *, as_json: bool) -> Response:
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    if as_json:
        return Response(in_json({"error": str(error)}), status, media_type="application/json")
    page = store_pages.problem(frame, _TITLES.get(status, "It failed"), str(error))
    return Response(page.encode(errors="surrogateescape"), status, media_type=_HTML)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return Response("There is no such file.", 404, media_type=_TEXT)
    return Response(shipped(name), media_type=_STATIC[name])


def _target(frame: PageFrame, wanted: str) -> str:
    """Returns the page of `orders-3@1042`, of a topic, or of a group; else the list of topics with this text in their names."""
    wanted_partition, _, offset = wanted.partition("@")
    topic, _, number = wanted_partition.rpartition("-")
    digits = offset.replace(",", "")
    if topic in frame.seen.topics and number.isdecimal() and digits.isdecimal():
        return frame.url("topics", topic, number, digits)
    if wanted in frame.seen.topics:
        return frame.url("topics", wanted)
    if wanted in frame.seen.groups:
        return frame.url("groups", wanted)
    return frame.url("topics", find=wanted)
