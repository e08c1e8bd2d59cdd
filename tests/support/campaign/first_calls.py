"""The first calls of a process, made by eight threads at the same moment: for `./dev torture first` and a short test.

Types, kernels, caches and modules that are created at their first use must survive that. Most processes here are forks of one
that has imported pylog and called nothing. Some import pylog in their threads, too.

python first_calls.py DIRECTORY SEED COUNT [--imports] [CALL ...]
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

THREADS: Final = 8
SWITCH_SECONDS: Final = 1e-6
LONGEST_S: Final = 60  # of one process
MAKE: Final = """
import sys, pylog
with pylog.open(sys.argv[1]) as store:
    store.create_topic("t", partition_count=2, segment_bytes=2000)
    for partition in (0, 1):
        for number in range(40):
            store.log("t", partition).append(b"%d" % number, key=b"k%d" % (number % 7), headers=[("h", b"x")] * (number % 2))
    store.log("t").append_many([b"z" * 100] * 20, compression="zstd")
    store.create_topic("compacted", cleanup_policy="compact", segment_bytes=500)
    for number in range(40):
        store.log("compacted").append(b"%d" % number, key=b"k%d" % (number % 7))
    store.offsets.commit("g", {pylog.TopicPartition("t", 0): 10})
"""


def _poll(store: Any) -> None:
    consumer = store.consumer("t", auto_offset_reset="earliest")
    while not consumer.poll(100):
        pass
    consumer.close()


def _send(store: Any) -> None:
    with store.producer() as producer:
        producer.send("t", b"sent", key=b"k").result(30)


def _commit(store: Any) -> None:
    place = importlib.import_module("pylog").TopicPartition("t", 1)
    store.offsets.commit("other", {place: 1})


CALLS: Final[dict[str, Callable[[Any], object]]] = {
    "topics": lambda store: store.topics(),
    "topic": lambda store: store.topic("t"),
    "read": lambda store: store.log("t").read(30),
    "read_many": lambda store: store.log("t").read_many(range(40), columns=["offset", "headers"]),
    "records": lambda store: list(store.log("t", 1).records()),
    "scan": lambda store: list(store.log("t").scan(columns=["offset", "headers", "value"])),
    "committed": lambda store: list(store.log("t").scan(isolation_level="read_committed")),
    "time": lambda store: store.log("t").offset_for_timestamp(0),
    "split": lambda store: store.log("t").split_offsets(0, 40, 500),
    "follow": lambda store: list(store.log("t").follow(20, timeout_ms=0)),
    "metrics": lambda store: store.metrics(),
    "check": lambda store: store.check(),
    "verify": lambda store: store.verify(),
    "groups": lambda store: store.groups(),
    "describe": lambda store: store.group("g").describe(),
    "poll": _poll,
}
CHANGES: Final[dict[str, Callable[[Any], object]]] = {
    "append": lambda store: store.log("t").append(b"x", key=b"k"),
    "append_many": lambda store: store.log("t").append_many([b"x"] * 100),
    "compressed": lambda store: store.log("t").append_many([b"x" * 50] * 20, compression="lz4"),
    "commit": _commit,
    "send": _send,
    "create": lambda store: store.create_topic(f"t{threading.get_ident()}"),
    "alter": lambda store: store.alter_topic("t", segment_bytes=3000),
    "compact": lambda store: store.compact("compacted"),
    "tick": lambda store: store.tick(),
}


def make(directory: Path) -> None:
    """Creates the store that the processes open, in a process of its own: this one must stay fresh."""
    subprocess.run([sys.executable, "-c", MAKE, str(directory)], check=True)


def _chosen(rng: random.Random, mode: str, only: list[str]) -> list[str]:
    """Eight calls: all the same, of two kinds, or of any kind."""
    names = sorted(CALLS if mode == "r" else CALLS | CHANGES)
    kinds = only or rng.sample(names, rng.choice([1, 1, 2, 2, THREADS]))
    return [kinds[number % len(kinds)] for number in range(THREADS)]


def _together(path: str, names: list[str], mode: str, *, imports: bool) -> list[str]:
    """Runs the calls in eight threads at once. Returns what failed."""
    wrong: list[str] = []
    start = threading.Barrier(THREADS)
    shared = None if imports else importlib.import_module("pylog").open(path, mode=mode)

    def work(name: str) -> None:
        try:
            start.wait()
            store = importlib.import_module("pylog").open(path, mode=mode) if shared is None else shared
            (CALLS | CHANGES)[name](store)
            if shared is None:
                store.close()
        except BaseException:  # noqa: BLE001 - whatever it is, it is a finding
            wrong.append(f"{name} of {names}: {traceback.format_exc()}")

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if shared is not None:
        shared.close()
    return wrong


def _child(path: str, names: list[str], mode: str, *, imports: bool) -> int:
    sys.setswitchinterval(SWITCH_SECONDS)
    signal.alarm(LONGEST_S)
    wrong = _together(path, names, mode, imports=imports)
    sys.stderr.write("".join(wrong[:1]))
    sys.stderr.flush()
    return bool(wrong)


def fork(directory: str, seed: int, count: int, only: list[str], *, imports: bool) -> list[str]:
    """Forks fresh processes one after the other. Returns what was wrong with those that did not end well.

    Args:
        directory: a store, as `make` creates it.
        seed: chooses the calls.
        count: the number of processes.
        only: names of reading calls, instead of chosen ones.
        imports: pylog is imported by the threads.
    """
    wrong = []
    rng = random.Random(seed)
    if not imports:
        pylog = importlib.import_module("pylog")
        for name in pylog.__all__:
            getattr(pylog, name)
    for number in range(count):
        mode = "r" if only else rng.choice(["r", "rw"])
        names = _chosen(rng, mode, only)
        path = directory
        if mode == "rw":
            path = f"{directory}.{os.getpid()}"
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(directory, path)
        sys.stdout.flush()
        process = os.fork()
        if not process:
            os._exit(_child(path, names, mode, imports=imports))
        status = os.waitpid(process, 0)[1]
        if status:
            how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            wrong.append(f"seed {seed}, process {number}, mode {mode}, {sorted(set(names))}: {how}")
    shutil.rmtree(f"{directory}.{os.getpid()}", ignore_errors=True)
    return wrong


def forked(directory: Path, seed: int, count: int, *only: str, imports: bool = False) -> list[str]:
    """The same in a process of its own, which is fresh itself."""
    given = [sys.executable, __file__, str(directory), str(seed), str(count), *["--imports"] * imports, *only]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    found: list[str] = json.loads(done.stdout) if done.returncode == 0 else [f"exit {done.returncode}"]
    return [f"{each}\n{done.stderr}" for each in found[:1]] + found[1:]


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Fresh processes for a while. For long runs."""
    done: dict[str, Any] = {"seed": seed, "violations": [], "processes": 0}
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="pylog-first-") as directory:
        make(store := Path(directory) / "store")
        while time.monotonic() < deadline:
            imports = done["processes"] % 5 == 4
            count = 5 if imports else 50
            done["violations"] += forked(store, seed + done["processes"], count, imports=imports)
            done["processes"] += count
    return done


if __name__ == "__main__":
    where, first, many, *given_calls = sys.argv[1:]
    chosen_calls = [each for each in given_calls if each != "--imports"]
    json.dump(fork(where, int(first), int(many), chosen_calls, imports="--imports" in given_calls), sys.stdout)
