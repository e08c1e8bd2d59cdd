"""Processes that a campaign starts, kills and judges.

Children are forked from an interpreter that has everything loaded and compiled, so that one lives within milliseconds; that
interpreter is one of its own, because a fork takes no other thread along (`in_fresh_process`). What a child did stands in shared
memory (`Journal`), which outlives it whenever it dies.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import logging
import mmap
import os
import random
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

from support.campaign.history import NEVER, Append, Operation, Outcome, Read

HANG_SECONDS: Final = 60  # an operation of these campaigns takes milliseconds
COMPILED: Final = {"PYLOG_KERNELS": "compiled"}  # environment: children of a few seconds share kernels that the parent has loaded
_WORD: Final = 8
_FIRST: Final = 2
_APPEND, _READ, _OFFSET, _RECORDS, _FAIL, _INFO = range(6)


class CampaignError(AssertionError):
    """A campaign found something. The message says what, with which seed it happened, and where the files are."""


def new_seed() -> int:
    """The seed of a run: PYLOG_SEED where it is set, to do again what failed; in CI always the same, so that a change that fails
    there is to blame for it; another one each time otherwise.
    """
    return int(os.environ.get("PYLOG_SEED") or (1 if os.environ.get("CI") else secrets.randbits(32)))


# ---- journals ----------------------------------------------------------------------------------------------------------------


class Journal:
    """What one process called and what came back, in memory that it shares with its parent.

    An entry counts once it is whole: a process that dies while it writes one leaves the entries before.

    Args:
        words: room, in words of 8 bytes. Entries take 4 words, and 2 more for each record read.
    """

    def __init__(self, words: int = 1 << 20) -> None:
        self._words = memoryview(mmap.mmap(-1, words * _WORD)).cast("q")
        self.clear()

    def clear(self) -> None:
        """Forgets everything, for the next process."""
        self._words[0] = _FIRST  # the end of the last whole entry
        self._words[1] = 0

    @property
    def room(self) -> int:
        """How many words are left."""
        return len(self._words) - self._words[0]

    @property
    def note(self) -> int:
        """A number for the parent, 0 at first."""
        return self._words[1]

    @note.setter
    def note(self, number: int) -> None:
        self._words[1] = number

    def _write(self, kind: int, *payload: int) -> None:
        start = self._words[0]
        entry = array("q", (len(payload) + 3, kind, time.monotonic_ns(), *payload))
        self._words[start : start + len(entry)] = entry
        self._words[0] = start + len(entry)

    def appending(self, partition: int, values: range) -> None:
        """Says what will be appended. Before the call."""
        self._write(_APPEND, partition, values.start, values.stop)

    def appended(self, offset: int) -> None:
        """Says that the append was acknowledged."""
        self._write(_OFFSET, offset)

    def refused(self, *, nothing_happened: bool) -> None:
        """Says that the append raised, and whether it promised that nothing is left of it."""
        self._write(_FAIL if nothing_happened else _INFO)

    def reading(self, partition: int, start: int | None, *, to_end: bool) -> None:
        """Says what will be read. Before the call."""
        self._write(_READ, partition, -1 if start is None else start, to_end)

    def found(self, records: Iterable[tuple[int, int]]) -> None:
        """Says which (offset, value) were read."""
        self._write(_RECORDS, *chain.from_iterable(records))

    def operations(self, process: str, died: int = NEVER) -> list[Operation]:
        """The operations, for a history; one without an end was over when the process was dead."""
        operations: list[Operation] = []
        begun: tuple[int, int, Sequence[int]] | None = None
        for kind, moment, payload in self._entries():
            if kind in (_APPEND, _READ):
                begun = kind, moment, payload
            elif begun is not None:
                operations.append(_ended(process, begun, (kind, moment, payload)))
                begun = None
        if begun is not None and begun[0] == _APPEND:
            partition, first, end = begun[2]
            operations.append(Append(process, partition, range(first, end), begun[1], died))
        return operations

    def _entries(self) -> Iterator[tuple[int, int, Sequence[int]]]:
        position, end = _FIRST, self._words[0]
        while position < end:
            size, kind, moment = self._words[position : position + 3]
            yield kind, moment, self._words[position + 3 : position + size].tolist()
            position += size


def _ended(process: str, begun: tuple[int, int, Sequence[int]], end: tuple[int, int, Sequence[int]]) -> Operation:
    _, invoked, (partition, *asked) = begun
    kind, completed, payload = end
    if kind == _RECORDS:
        start, to_end = asked
        records = list(zip(payload[::2], payload[1::2], strict=True))
        return Read(process, partition, records, invoked, completed, None if start < 0 else start, bool(to_end))
    outcome = {_OFFSET: Outcome.OK, _FAIL: Outcome.FAIL, _INFO: Outcome.INFO}[kind]
    return Append(process, partition, range(*asked), invoked, completed, outcome, *payload)


# ---- children ----------------------------------------------------------------------------------------------------------------


class Child:
    """A forked process that does one thing and ends. It ends with a trace on stderr and status 1 if it raises or hangs.

    Args:
        name: in histories.
        work: what it does; it is given a function to call when it is ready, which `wait_ready` waits for.
        journal: where it writes what it did; emptied first.
    """

    def __init__(self, name: str, work: Callable[[Callable[[], None]], None], journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self.died = NEVER
        journal.clear()
        self._ready, other_end = os.pipe()
        os.set_blocking(other_end, False)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _live(lambda: work(lambda: _say_ready(other_end)))
        os.close(other_end)

    def wait_ready(self, seconds: float) -> None:
        """Waits until the child says that it is ready, or is dead, or the time is over."""
        select.select([self._ready], [], [], seconds)

    def kill(self) -> None:
        """kill -9."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Waits for its end.

        Raises:
            CampaignError: it did not end well, and was not killed either.
        """
        _, status = os.waitpid(self.pid, 0)
        self.died = time.monotonic_ns()
        os.close(self._ready)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, -signal.SIGKILL, -signal.SIGALRM):
            raise CampaignError(f"{self.name} ended with status {code}; its trace is on stderr")
        self.was_killed = code != 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it if that was not done: no child outlives its campaign."""
        if self.died == NEVER:
            self.kill()
            os.waitpid(self.pid, 0)
            os.close(self._ready)

    def operations(self) -> list[Operation]:
        """What it did, when it is dead."""
        return self.journal.operations(self.name, self.died)


def die_at(of: type, name: str, countdown: int, *, after: bool) -> None:
    """Makes this process kill itself before or after one of the next calls of a method.

    Args:
        of, name: the class and its method.
        countdown: which call; 1 is the next one.
        after: true to make the call first.
    """
    original, left = getattr(of, name), countdown

    def dies(*given: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = original(*given, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    patch.object(of, name, dies).start()


def _say_ready(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):  # said often, and nobody listens any more
        os.write(descriptor, b"!")


def _live(work: Callable[[], None]) -> None:
    """The life of a child: nothing of the parent's is run or flushed at its end."""
    status = 1
    try:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not go on in the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


# ---- interpreters ------------------------------------------------------------------------------------------------------------


def in_fresh_process(
    function: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> Any:
    """Calls a function in an interpreter of its own, without threads, so that children can be forked there.

    Args:
        function: of a module; called with `arguments`, which must be JSON, as must be what it returns.
        environment: variables to set.
        before: a command line that runs the one that follows it.

    Raises:
        CampaignError: it raised; with what it wrote on stderr.
    """
    variables = {**own_environment(), "OPENBLAS_NUM_THREADS": "1", **(environment or {})}
    call = json.dumps([function.__module__, function.__qualname__, arguments])
    command = [*before, sys.executable, "-c", "from support.campaign.processes import main; main()", call]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CampaignError(f"{function.__module__}.{function.__qualname__}{arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def own_environment() -> dict[str, str]:
    """The environment of a process that finds the campaign's modules."""
    tests = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))}


def main() -> None:
    """What `in_fresh_process` starts."""
    logging.getLogger("pylog").addHandler(logging.NullHandler())  # torn tails are what these campaigns are about
    module, function, arguments = json.loads(sys.argv[1])
    print(json.dumps(getattr(importlib.import_module(module), function)(*arguments)))  # noqa: T201 - the answer


# ---- descriptors -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """What is opened inside must be closed there: a process that opens and closes stores would run out of descriptors."""
    before = _descriptors()
    yield
    gc.collect()  # maps live as long as their arrays
    left = _descriptors() - before
    if left:
        raise CampaignError(f"{len(left)} descriptors were left open: {sorted(left)[:10]}")


def _descriptors() -> set[str]:
    names = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that the listing itself takes
            names.add(f"{number}: {os.readlink(f'/proc/self/fd/{number}')}")
    return names


# ---- seeds -------------------------------------------------------------------------------------------------------------------


def until(rounds: int | None, seconds: float | None) -> Iterator[int]:
    """0, 1, 2 … until so many rounds are done, or so much time is over; at least one.

    Raises:
        ValueError: neither is given.
    """
    if rounds is None and seconds is None:
        raise ValueError("a campaign has to end: say after how many rounds, or seconds")
    end = None if seconds is None else time.monotonic() + seconds
    for number in range(rounds if rounds is not None else 1 << 62):
        yield number
        if end is not None and time.monotonic() > end:
            return


def new_directory(name: str) -> Path:
    """A new directory for a campaign, in memory where the system has a place for that: what dies here is processes."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix=f"pylog-{name}-", dir=memory if os.access(memory, os.W_OK) else None))


def seeded(*parts: object) -> random.Random:
    """A generator that is the same for the same parts."""
    return random.Random(":".join(map(str, parts)))
