"""`Verifying`: verifies the directory in a thread, at most one at a time, with progress; can be stopped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Final

from pylog.errors import IllegalStateError, PylogError
from pylog.log.checking.report import HARMLESS
from pylog.log.recovery.findings import Finding
from pylog.log_manager import LogManager
from pylog.threads import started

_RATE: Final = 500 << 20  # bytes a second: the disk stays usable for others
_ENDING_S: Final = 5.0


class _StoppedError(Exception):
    """The verification was stopped."""


@dataclass(frozen=True)
class Verified:
    """A verification, running or done.

    Attributes:
        state: "none", "running", "done", "stopped" or "failed".
        done, total: bytes.
        path: the file that is being read.
        begun_ms, ended_ms: times; -1 if it has not begun or ended.
        damage, harmless: what was found.
        why: why it failed.
    """

    state: str = "none"
    done: int = 0
    total: int = 0
    path: str = ""
    begun_ms: int = -1
    ended_ms: int = -1
    damage: tuple[Finding, ...] = ()
    harmless: tuple[Finding, ...] = ()
    why: str = ""


class Verifying:
    """Verifies a store when asked. Methods may be called from any thread.

    Args:
        manager: the store's manager.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._now = Verified()

    def state(self) -> Verified:
        """Returns the verification that runs, or the last one."""
        return self._now

    def start(self) -> None:
        """Begins a verification.

        Raises:
            IllegalStateError: one is running.
        """
        with self._guard:
            if self._thread is not None and self._thread.is_alive():
                raise IllegalStateError("a verification is running; stop it first, or wait")
            self._stop.clear()
            self._now = Verified("running", begun_ms=self._manager.clock.now_ms())
            self._thread = threading.Thread(target=self._run, name="pylog-ui-verify", daemon=True)
            started(self._thread)

    def stop(self) -> None:
        """Stops the verification that runs, if any, and waits until it has ended."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_ENDING_S)

    def _run(self) -> None:
        try:
            report = self._manager.verify(_RATE, self._progressed)
        except _StoppedError:
            self._end("stopped")
        except PylogError as error:
            self._end("failed", why=str(error))
        else:
            damage = tuple(each for each in report.findings if each.kind not in HARMLESS)
            harmless = tuple(each for each in report.findings if each.kind in HARMLESS)
            self._end("done", damage=damage, harmless=harmless, done=self._now.total)

    def _end(self, state: str, **found: object) -> None:
        self._now = replace(self._now, state=state, ended_ms=self._manager.clock.now_ms(), **found)  # type: ignore[arg-type]

    def _progressed(self, done: int, total: int, path: str) -> None:
        if self._stop.is_set() or self._manager.gate.is_shut:
            raise _StoppedError
        self._now = replace(self._now, done=done, total=total, path=path)
