"""Another process, and things that happen in the middle of a call: what tests of several writers need.

    other = Neighbour()                                     # an interpreter of its own, with `pylog` imported
    other.run("store = pylog.open(path)", path=str(path))   # names given, and those assigned, stay for the next call
    other.run("store.log('t').append(b'x')")                # the value of a last expression comes back
    other.kill()                                            # as kill -9 does

A `HookedFileSystem` runs an action before a call of its choice: another writer's append, a signal, the death of the process.
"""

from __future__ import annotations

import ast
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pylog
from pylog.fs import OsFileSystem
from support import warm

ANSWER_SECONDS = 60.0  # a call takes milliseconds; the first one of a kernel may compile it


class NeighbourError(Exception):
    """What was run there raised an error.

    Attributes:
        kind: the name of its class.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Neighbour:
    """A process that runs the code that it is given. It ends with the context."""

    def __init__(self) -> None:
        tests = str(Path(__file__).resolve().parents[2])  # for code that uses `support`
        paths = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
        variables = {**os.environ, "PYTHONPATH": paths}
        self._process = warm.Started([__file__], env=variables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, code: str, **names: Any) -> None:
        """Has code run there, without waiting for it."""
        self._process.stdin.write(json.dumps([code, repr(names)]).encode() + b"\n")

    def answer(self) -> Any:
        """The value of the last expression of what was begun."""
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        assert ready, "the other process does not answer"
        line = self._process.stdout.readline()
        assert line, "the other process has ended"
        value, error = json.loads(line)
        if error is not None:
            raise NeighbourError(*error)
        return ast.literal_eval(value)

    def run(self, code: str, **names: Any) -> Any:
        """Runs code there."""
        self.begin(code, **names)
        return self.answer()

    def wait_until_stopped(self) -> None:
        """Waits until a signal has stopped it."""
        self._process.wait_until_stopped()

    def go_on(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Waits for its end and returns how it ended: minus the number of the signal that killed it."""
        return self._process.wait(ANSWER_SECONDS)

    def kill(self) -> None:
        """Ends it at once, whatever it is at."""
        self._process.kill()


class HookedFileSystem(OsFileSystem):
    """The real file system; something may happen before a call. Calls: create, open, write, sync, truncate, rename, remove,
    sync_directory. Names are those of files, without their directory.

    Attributes:
        calls: (call, name) of all of them so far.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._hooks: list[tuple[str, str, Callable[[], object]]] = []

    def before(self, call: str, name: str, action: Callable[[], object]) -> Self:
        """Runs `action` before the next such call of a file whose name ends with `name`. Once."""
        self._hooks.append((call, name, action))
        return self

    def forget(self) -> None:
        """Runs no action any more."""
        self._hooks.clear()

    def count(self, call: str, name: str = "") -> int:
        """How many such calls there were."""
        return sum(made == call and path.endswith(name) for made, path in self.calls)

    def meet(self, call: str, path: str) -> None:
        name = os.path.basename(path)
        self.calls.append((call, name))
        for hook in self._hooks:
            if hook[0] == call and name.endswith(hook[1]):
                self._hooks.remove(hook)
                hook[2]()
                return

    def open(self, path: str, *, write: bool = False) -> Any:
        self.meet("open", path)
        file = super().open(path, write=write)
        return _HookedFile(file, self) if write else file

    def create(self, path: str) -> Any:
        self.meet("create", path)
        return _HookedFile(super().create(path), self)

    def rename(self, source: str, target: str) -> None:
        self.meet("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.meet("remove", path)
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.meet("sync_directory", path)
        super().sync_directory(path)


class _HookedFile:
    """An open file that can be written."""

    def __init__(self, file: Any, fs: HookedFileSystem) -> None:
        self._file = file
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: memoryview, position: int) -> None:
        self._fs.meet("write", self._file.path)
        self._file.write(data, position)

    def write_back(self, position: int, size: int) -> None:
        self._fs.meet("write_back", self._file.path)
        self._file.write_back(position, size)

    def sync(self) -> None:
        self._fs.meet("sync", self._file.path)
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._fs.meet("truncate", self._file.path)
        self._file.truncate(size)


def send_self(number: int) -> Callable[[], None]:
    """An action: this process gets a signal."""
    return lambda: os.kill(os.getpid(), number)


def serve() -> None:
    """Runs what comes on the standard input, a line each, and answers on the standard output."""
    names: dict[str, Any] = {"pylog": pylog, "HookedFileSystem": HookedFileSystem, "send_self": send_self, "signal": signal}
    for line in sys.stdin:
        code, given = json.loads(line)
        names.update(ast.literal_eval(given))
        try:
            answer = [_literal(_run(code, names)), None]
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told
            answer = [None, [type(error).__name__, str(error)]]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _literal(value: Any) -> str:
    """A value as source text; None where it is no plain one, such as a store."""
    try:
        ast.literal_eval(repr(value))
    except (SyntaxError, ValueError):
        return "None"
    return repr(value)


def _run(code: str, names: dict[str, Any]) -> Any:
    """Runs statements; the value of the last one, if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<neighbour>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<neighbour>", "eval"), names) if isinstance(last, ast.Expr) else None


def values(log: pylog.Log, start: int | None = None) -> list[bytes | None]:
    """The values of a log's records."""
    return [record.value for record in log.records(start)]


def last_segment(directory: Path) -> Path:
    """The newest `.log` file of a partition."""
    return max(directory.glob("*.log"))


if __name__ == "__main__":
    serve()
