"""What all tests share: Hypothesis' settings, the golden corpus' directory, a real Kafka broker, a check of every store."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import inspect
import linecache
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from pylog import trace
from pylog.errors import PylogError
from pylog.fs import OsFileSystem
from pylog.log.checking.report import HARMLESS
from pylog.log.recovery.findings import Finding
from pylog.log_manager import LogManager
from pylog.segment.names import PARTITION_METADATA
from pylog.store import Store, manager_of
from support import warm
from support.kafka.harness import Broker, KafkaError, KafkaJars
from support.long_files import turn_of
from support.tiers import is_fast, is_left_out, marks_of, sample_of
from support.trust.features import FeatureError, pairs_of

PROJECT = Path(__file__).resolve().parent.parent
KAFKA_CACHE = PROJECT / ".cache" / "kafka"
MEMORY = Path("/dev/shm")  # Linux's file system in memory
MEMORY_NEEDED = 1 << 30  # the fast tests take a few hundred megabytes of it

# No deadlines: the first call of a kernel compiles it. In CI the examples are the same in every run, and a failure prints
# the blob that repeats it.
settings.register_profile("developer", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")
FAST_EXAMPLES = 15  # of a test that does not say how many; the other tests have Hypothesis' hundred

# Spark would start its workers with whatever `python3` is first on PATH, and bind to an address that a firewall may close.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only the tests that need no Java and are not slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--fast`, files without a fast test are not even imported."""
    return True if config.getoption("fast") and is_left_out(collection_path.relative_to(PROJECT).as_posix()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No examples are searched for in a module without one: the search takes a tenth of the time of a collection."""
    made = yield
    has_examples = ">>>" in file_path.read_text(errors="replace") if made else False
    return [each for each in made if has_examples or not isinstance(each, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    """Makes the directory that the golden corpus is unpacked into: one for the session, shared by all workers."""
    if config.getoption("fast"):
        _use_memory(config)
        settings.register_profile("fast", settings.default, max_examples=FAST_EXAMPLES)
        settings.load_profile("fast")
    if "PYLOG_GOLDEN_DIR" not in os.environ:
        os.environ["PYLOG_GOLDEN_DIR"] = tempfile.mkdtemp(prefix="pylog-golden-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        config.add_cleanup(_remove_golden_directory)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        # A shell ignores interrupts for what it starts in the background, and the processes of the tests would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Ends the interpreter whose forks the tests used."""
    warm.end()


def pytest_itemcollected(item: pytest.Item) -> None:
    """A mark for a pair of features names two that exist."""
    for mark in item.iter_markers("pair"):
        try:
            pairs_of(*mark.args)
        except FeatureError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from error


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, obj: object) -> list[pytest.Item] | None:
    """With `--fast`, makes no tests of a slow function: to make them for each of its parameters takes time, too."""
    if not collector.config.getoption("fast") or not inspect.isfunction(obj):
        return None
    marks = (*getattr(obj, "pytestmark", ()), *collector.iter_markers())
    return None if is_fast(mark.name for mark in marks) else []


@pytest.hookimpl(wrapper=True, specname="pytest_pycollect_makeitem")
def pytest_take_a_sample(collector: pytest.Module | pytest.Class) -> Generator[None, Any, Any]:
    """With `--fast`, takes some of a test's parameters, unless a test is asked for by its name."""
    made = yield
    if not isinstance(made, list) or not collector.config.getoption("fast"):
        return made
    fast = [item for item in made if _is_fast(item)]
    if fast and not any("::" in argument for argument in collector.config.args):
        sampled = fast[0].get_closest_marker("sampled")
        fast = sample_of(fast, *(sampled.args if sampled else ()))
    return fast


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test by its file and its parameters (`tiers`), and takes the fast ones if only these are asked for.

    If several workers share the files, the longest have their turn first.
    """
    for item in items:
        for name in marks_of(item.nodeid):
            item.add_marker(name)
    if config.getoption("fast"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_fast(item)])
        items[:] = [item for item in items if _is_fast(item)]
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: turn_of(item.nodeid.partition("::")[0]))


def _is_fast(item: pytest.Item) -> bool:
    """Whether neither a test nor its parameters have one of the marks."""
    return is_fast(chain((mark.name for mark in item.iter_markers()), marks_of(item.nodeid)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collected tests live as long as the session: no garbage collection walks through them, now or later.

    Nor does each example of a docstring ask for the times of the files whose lines the collection has read.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        linecache.clearcache()


def _use_memory(config: pytest.Config) -> None:
    """The fast tests sync files in memory, which costs them half of the time on a disk. All tests together use the disk.

    A directory that the caller has chosen (`--basetemp`, `PYTEST_DEBUG_TEMPROOT`) stays the one in use.
    """
    chosen = config.getoption("basetemp") is not None or "PYTEST_DEBUG_TEMPROOT" in os.environ
    if not chosen and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="pylog-fast-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop("PYTEST_DEBUG_TEMPROOT"), ignore_errors=True))


def _remove_golden_directory() -> None:
    shutil.rmtree(os.environ.pop("PYLOG_GOLDEN_DIR"), ignore_errors=True)


@pytest.fixture(autouse=True)
def no_line_is_left_of_another_test() -> None:
    """A line that waits when an interrupt ends a test is logged by the next call that logs one, in another test."""
    trace.waiting.clear()


@pytest.fixture(autouse=True)
def stores_are_sound_when_they_close(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All that `Store.check` knows holds for every store in real files when it is closed by a test (reliability 6.5).

    `@pytest.mark.damaged("why")` says that a test's stores are not meant to be sound. Half-made files only take room. The fast
    tests pass over the partitions that nothing was written to, of which internal topics have a hundred: to open each of them for
    a check takes most of the time of a short test.
    """
    found: list[Finding] = []
    close = Store.close
    fast = request.config.getoption("fast")

    def checking(store: Store) -> None:
        manager = manager_of(store)
        is_open = not manager.is_closed and manager.process == os.getpid()
        if is_open and manager.writable and type(manager.fs.below.base) is OsFileSystem:
            # A log that has failed cannot be asked.
            with contextlib.suppress(PylogError), _written_ones_only(manager) if fast else contextlib.nullcontext():
                found.extend(finding for finding in store.check().findings if finding.kind not in HARMLESS | {"leftover"})
        close(store)

    if request.node.get_closest_marker("damaged") is None:
        monkeypatch.setattr(Store, "close", checking)
    yield
    assert not found, [finding.message for finding in found]


@contextlib.contextmanager
def _written_ones_only(manager: LogManager) -> Iterator[None]:
    """Meanwhile a directory has only the partitions with files besides their metadata."""
    directories = ((key, Path(manager.path, f"{key.topic}-{key.partition}")) for key in manager.root.partitions())
    written = [key for key, directory in directories if any(each.name != PARTITION_METADATA for each in directory.glob("*"))]
    with patch.object(manager.root, "partitions", lambda: written):
        yield


@pytest.fixture(scope="session")
def kafka_jars() -> KafkaJars:
    """Kafka's jars and the test client. Their absence is a failure: what a broker says is what pylog promises."""
    try:
        return _locked_jars()
    except KafkaError as error:
        pytest.fail(f"{error}\nRun `./dev setup`: it installs Java and Maven and fetches Kafka's jars.", pytrace=False)


def _locked_jars() -> KafkaJars:
    KAFKA_CACHE.mkdir(parents=True, exist_ok=True)
    with (KAFKA_CACHE / "lock").open("wb") as lock:  # one worker fetches or compiles, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        return KafkaJars.fetch(KAFKA_CACHE)


StartBroker = Callable[..., Broker]


@pytest.fixture
def broker(tmp_path: Path, kafka_jars: KafkaJars) -> Iterator[StartBroker]:
    """Starts a broker on a directory (a new one unless given): `broker(directory, config={...})`. Ended with the test."""
    started: list[Broker] = []

    def start(log_dir: Path | None = None, *, config: Mapping[str, str] | None = None) -> Broker:
        made = Broker(log_dir or tmp_path / f"kafka-{len(started)}", kafka_jars, config=config)
        started.append(made)
        return made.start()

    yield start
    for each in started:
        each.__exit__()
