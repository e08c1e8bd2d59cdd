"""Python processes that live within milliseconds: forks of an interpreter that has pylog imported and its kernels loaded.

    done = run(["-c", program, path], cwd=directory)   # as subprocess.run([sys.executable, ...], capture_output=True, text=True)
    process = Started([file])                          # as subprocess.Popen, with pipes as its standard input and output

A new interpreter takes most of a second of the processor to import numba and pyarrow, many times what most tests measure. A test
of imports, of a killed parent or of signals still starts one with `subprocess`.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

PATIENCE: Final = 120.0  # seconds
_LOCK: Final = threading.Lock()


def run(
    arguments: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process of its own, and waits for its end.

    Args:
        arguments: `-W option`s, and then `-c program`, `-m module` or the name of a file, with arguments for it.
        cwd: the directory to begin in.
        env: its environment; this process's if not given. Folders in PYTHONPATH come first on the path of imports.
        timeout: after how many seconds the process is killed.
        check: raises an error if it ends with another status than 0.

    Returns:
        The status, and what it wrote.
    """
    command = [str(each) for each in arguments]
    with tempfile.TemporaryDirectory(prefix="pylog-warm-") as directory:
        out, error = Path(directory, "out"), Path(directory, "err")
        request = {"arguments": command, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        with _LOCK:
            status = _server().run({**request, "out": str(out), "err": str(error)}, timeout)
        written = [file.read_bytes().decode(errors="replace") for file in (out, error)]
    done = subprocess.CompletedProcess(["python", *command], status, *written)
    if check and status:
        raise AssertionError(f"the process ended with status {status}:\n{done.stdout}{done.stderr}")
    return done


class Started:
    """A process that runs until it ends itself or is killed, at the latest at the end of a `with` block.

    It inherits the standard error.

    Args:
        arguments: as for `run`.
        env: its environment; this process's if not given.

    Attributes:
        pid: its process id.
        stdin, stdout: unbuffered pipes.
    """

    def __init__(self, arguments: Sequence[object], env: Mapping[str, str] | None = None) -> None:
        self._status: int | None = None
        with tempfile.TemporaryDirectory(prefix="pylog-warm-") as directory:
            into, out = os.path.join(directory, "in"), os.path.join(directory, "out")
            os.mkfifo(into)
            os.mkfifo(out)
            self.stdout = os.fdopen(os.open(out, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
            os.set_blocking(self.stdout.fileno(), True)
            variables = dict(os.environ if env is None else env)
            request = {"arguments": [str(each) for each in arguments], "cwd": str(Path.cwd()), "env": variables}
            with _LOCK:
                self._server = _server()
                self.pid = self._server.start({**request, "in": into, "out": out})
            self.stdin = open(into, "wb", buffering=0)  # noqa: SIM115 - waits until the process has opened both pipes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until_stopped(self) -> None:
        """Waits until a signal has stopped it.

        Raises:
            AssertionError: it has ended instead.
        """
        with _LOCK:
            assert self._server.wait(self.pid, PATIENCE, stopped=True) is None

    def wait(self, timeout: float) -> int:
        """Waits for its end, and returns how it ended: minus the number of the signal that killed it."""
        if self._status is None:
            with _LOCK:
                self._status = self._server.wait(self.pid, timeout)
        assert self._status is not None
        return self._status

    def kill(self) -> None:
        """Ends it at once, if it runs, and closes the pipes."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(PATIENCE)
        self.stdin.close()
        self.stdout.close()


class _Server:
    """The interpreter that forks, seen from the tests. It ends when its standard input does: with this process."""

    def __init__(self) -> None:
        tests = str(Path(__file__).resolve().parents[1])
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))}
        variables.pop("PYTHONWARNINGS", None)  # each request has its own
        self.parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=variables
        )

    def run(self, request: dict[str, Any], timeout: float) -> int:
        status = self.wait(self.start(request), timeout)
        assert status is not None
        return status

    def start(self, request: dict[str, Any]) -> int:
        """Starts a process, and returns its id."""
        self._ask(request)
        return int(self._line(PATIENCE))

    def wait(self, pid: int, timeout: float, *, stopped: bool = False) -> int | None:
        """Waits until a process has ended, and returns its status; with `stopped`, returns None if a signal has stopped it."""
        self._ask({"wait": pid, "stopped": stopped})
        try:
            status: int | None = json.loads(self._line(timeout))
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            self._line(PATIENCE)
            raise
        return status

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            raise subprocess.TimeoutExpired("python", timeout)
        line: bytes = self._process.stdout.readline()
        assert line, "the interpreter that forks has ended"
        return line

    def end(self) -> None:
        self._process.communicate()


_started: list[_Server] = []


def _server() -> _Server:
    """The one of this process: started by the first call, and again in a fork."""
    if not _started or _started[0].parent != os.getpid():
        _started[:] = [_Server()]
        atexit.register(end)
    return _started[0]


def end() -> None:
    """Ends the interpreter that forks, if there is one."""
    while _started:
        server = _started.pop()
        if server.parent == os.getpid():
            server.end()


# ---- there -------------------------------------------------------------------------------------------------------------------


def _warm_up() -> None:
    """Imports what programs need, and has the kernels loaded that an append, a read and a commit call."""
    import pylog

    with tempfile.TemporaryDirectory(prefix="pylog-warm-") as directory:
        with pylog.open(directory, durability=pylog.Durability.OS) as store, store.producer() as producer:
            store.create_topic("t")
            producer.send("t", b"x").result()
            store.log("t").append_many([b"y"] * 3, compression="zstd")
            assert len(list(store.log("t").records())) == 4
            with store.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
                assert consumer.poll(1000)
                consumer.commit()
            assert store.check().ok
        with pylog.open(directory, mode="r") as store:
            assert store.log("t").read(0).value == b"x"
    gc.collect()
    gc.freeze()


def _serve() -> dict[str, Any] | None:
    """Forks for each request. Returns the request in the fork, and None at the end of them."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    while line := requests.readline():
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            status = os.waitpid(request["wait"], os.WUNTRACED if request["stopped"] else 0)[1]
            ended = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
            os.write(answers, json.dumps(ended).encode() + b"\n")
            continue
        assert threading.active_count() == 1, "a fork takes no other thread along"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Arrow's threads, which it begins again in a fork
            pid = os.fork()
        if pid == 0:
            requests.close()
            os.close(answers)
            return request
        os.write(answers, b"%d\n" % pid)
    return None


def _become(request: dict[str, Any]) -> list[str]:
    """Takes the directory, the environment, the output and the path of imports of a request, and returns its arguments."""
    for number, name in ((1, request["out"]), (2, request.get("err")), (0, request.get("in", os.devnull))):
        if name is not None:
            file = os.open(name, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY, 0o600)
            os.dup2(file, number)
            os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    own = str(Path(__file__).resolve().parent)
    folders = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*folders, *(each for each in sys.path if each != own)]
    for option in filter(None, request["env"].get("PYTHONWARNINGS", "").split(",")):
        _filter_warnings(option)
    arguments: list[str] = request["arguments"]
    while arguments[0] == "-W":
        _filter_warnings(arguments[1])
        arguments = arguments[2:]
    return arguments


def _filter_warnings(option: str) -> None:
    """Does what `-W` does, whose parts are an action, the beginning of a message and a class of the built-in ones."""
    action, message, category = [*option.split(":"), "", ""][:3]
    warnings.filterwarnings(action, message, getattr(builtins, category or "Warning"))  # type: ignore[arg-type]


def _run(arguments: Sequence[str]) -> None:
    """Runs a program, a module or a file as `__main__`."""
    kind, *rest = arguments
    if kind == "-m":
        sys.argv[:] = rest
        sys.path.insert(0, "")
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.argv[:] = arguments
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    _warm_up()
    asked = _serve()
    if asked is not None:
        _run(_become(asked))
