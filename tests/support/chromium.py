"""Chromium, driven by Playwright: where it is, and pages that note what they ask for and what goes wrong in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, Route, sync_playwright

_COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_APPLICATIONS: Final = ("Chromium.app/Contents/MacOS/Chromium", "Google Chrome.app/Contents/MacOS/Google Chrome")
_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")  # containers have neither the rights nor the room
WIDE, NARROW = (1_300, 900), (375, 800)
_PATIENCE_MS: Final = 30_000  # a click that writes to the disk took more than ten seconds on a machine with other work


def executable() -> str:
    """The path of the system's Chromium. Its absence is a failure."""
    candidates = [shutil.which(name) for name in _COMMANDS]
    candidates += [str(path) for name in _APPLICATIONS if (path := Path("/Applications") / name).exists()]
    found = next(filter(None, candidates), None)
    if found is None:
        raise FileNotFoundError("Chromium is not there. Run `./dev setup`: it installs it, or says how.")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, until the block ends. Playwright's loop runs in this thread as long: `asyncio.run` must wait."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of a browser, which reaches one server only.

    Args:
        browser: the browser.
        origin: of the server, such as `http://127.0.0.1:8055`. Requests to others are ended, and noted.
        scheme: "light" or "dark".
        size: width and height in pixels.

    Attributes:
        page: Playwright's page.
        strayed: the addresses of requests to other places.
        complaints: errors in the console, among them each violation of the content policy, and errors of scripts.
    """

    def __init__(self, browser: Browser, origin: str, scheme: str = "light", size: tuple[int, int] = WIDE) -> None:
        self.origin = origin
        self.strayed: list[str] = []
        self.complaints: list[str] = []
        shape: Any = {"width": size[0], "height": size[1]}
        colours: Any = scheme
        self._context = browser.new_context(viewport=shape, color_scheme=colours, accept_downloads=True)
        self._context.set_default_timeout(_PATIENCE_MS)
        self._context.route("**/*", self._let_through)
        self.page: Page = self._context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dismiss)

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _let_through(self, route: Route) -> None:
        asked = urlsplit(route.request.url)
        if f"{asked.scheme}://{asked.netloc}" == self.origin:
            route.continue_()
        else:
            self.strayed.append(route.request.url)
            route.abort()

    def go(self, path: str) -> Page:
        """Opens a page of the server."""
        self.page.goto(self.origin + path, wait_until="load")
        return self.page

    def axe(self) -> list[str]:
        """What axe-core finds wrong with the page that is open: rules and elements."""
        found = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {node['html'][:120]} {node['failureSummary'][:200]}" for each in found for node in each["nodes"]]

    def is_wider_than_the_screen(self) -> bool:
        """Whether the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def close(self) -> None:
        """Closes the page, and forgets its cookies."""
        self._context.close()
