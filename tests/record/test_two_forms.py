"""A small program runs without a compiler, and the two forms of the kernels write the same bytes and raise the same errors."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pylog
from pylog import limits
from pylog.cli.warm import DECLARE_KERNELS
from pylog.clock import ManualClock
from pylog.errors import PylogError
from pylog.partitioner import hashes
from pylog.record import few, finding, kernels, pure_encoding
from pylog.record import kernel as door
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.format import COLUMN_COUNT
from pylog.record.kernel import CACHED_AFTER, COMPILED_AFTER, INTERPRETED, KERNELS, WORK
from pylog.record.rows import Binary
from support.record.forms import FORMS, form

pytestmark = pytest.mark.skipif(INTERPRETED, reason="kernels have one form here")
NOW = 1_700_000_000_000
COMPILE = door.Kernel.compile

FIRST_SECOND = """
import sys
import pylog
with pylog.open(sys.argv[1]) as store:
    store.create_topic("orders", partition_count=2)
    log = store.log("orders", 0)
    log.append_many([b"value"] * 1000)
    assert sum(1 for _ in log.records()) == 1000
    assert sum(batch.num_rows for batch in log.scan()) == 1000
    assert log.read(500).value == b"value"
    with store.producer() as producer:
        producer.send("orders", b"paid", key=b"42").get()
    with store.consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
        assert next(iter(consumer)).value
        consumer.commit()
with pylog.open(sys.argv[1]) as store:
    assert store.log("orders", 0).end_offset >= 1000
print(*sorted({"numba", "llvmlite", "pandas"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_first_program_loads_no_compiler_and_leaves_no_cache(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYLOG_KERNELS": "auto"}
    command = [sys.executable, "-c", FIRST_SECOND, str(tmp_path / "store")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
    assert not (tmp_path / "cache").exists()


def test_each_kernel_of_appending_and_reading_has_a_plain_form() -> None:
    for module in DECLARE_KERNELS:
        __import__(module)
    own = {each.__name__ for each in KERNELS if each.py_func.__module__ in DECLARE_KERNELS and each.pure is None}
    assert own == {"find_batch", "index_keys", "keep_records"}


# ---- the same bytes, the same errors -------------------------------------------------------------------------------------------


def write(path: Path) -> dict[str, bytes]:
    """Writes a store in a fixed way; returns the files that hold records and what leads to them."""
    chance = random.Random(7)
    options: dict[str, Any] = {"index_interval_bytes": 300, "segment_bytes": 20_000}
    with pylog.open(path, clock=ManualClock(NOW), durability="os") as store:
        store.create_topic("plain", **options)
        store.create_topic("packed", compression_type="zstd", message_timestamp_type="LogAppendTime", **options)
        for name in ("plain", "packed"):
            log = store.log(name, 0)
            for _ in range(12):
                count = chance.choice([1, 3, 40, 300])
                keys = [chance.choice([None, b"", b"key%d" % number]) for number in range(count)]
                values = [chance.choice([None, b"", chance.randbytes(chance.randrange(90))]) for _ in range(count)]
                stamps = [NOW + chance.randrange(-1000, 1000) for _ in range(count)]
                headers = [[("name", b"a"), ("none", None)] if chance.random() < 0.2 else [] for _ in range(count)]
                log.append_many(list(zip(keys, values, headers, stamps, strict=True)))
    kept = (".log", ".index", ".timeindex")
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.name.endswith(kept)}


def told(path: Path) -> list[object]:
    """Everything that readers tell of a store: records, single reads, searches by time, and errors as text."""
    found: list[object] = []

    def ask(question: Any) -> None:
        try:
            found.append(question())
        except PylogError as error:
            found.append((type(error).__name__, str(error).replace(str(path), "")))

    with pylog.open(path, mode="r") as store:
        for name in ("plain", "packed"):
            log = store.log(name, 0)
            ask(lambda log=log: list(log.records()))
            ask(lambda log=log: [batch.to_pylist() for batch in log.scan(columns=["offset", "key", "value"])])
            for offset in (0, 7, 150, 500):
                ask(lambda log=log, offset=offset: log.read(offset))
                ask(lambda log=log, offset=offset: log.offset_for_timestamp(NOW - 1000 + 3 * offset))
    return found


@pytest.mark.slow
def test_both_forms_write_the_same_bytes_and_read_the_same_records(tmp_path: Path) -> None:
    written, read = [], []
    for name in FORMS:
        with form(name):
            written.append(write(tmp_path / name))
    for name in FORMS:
        with form(name):
            read.append(told(tmp_path / "compiled"))
    assert written[0].keys() == written[1].keys()
    assert written[0] == written[1]
    assert read[0] == read[1]


@pytest.mark.slow
@pytest.mark.damaged("bytes of the log are changed on purpose")
def test_both_forms_raise_the_same_errors_on_damage(tmp_path: Path) -> None:
    write(tmp_path / "store")
    (file,) = (tmp_path / "store" / "plain-0").glob("00000000000000000000.log")
    sound, chance = file.read_bytes(), random.Random(3)
    for _ in range(6):
        damaged = bytearray(sound)
        damaged[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        found = []
        for name in FORMS:
            with form(name):
                found.append(told(tmp_path / "store"))
        assert found[0] == found[1]


# ---- changing over ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[door.Kernel]:
    """A kernel that was never compiled, in a process that has done no work."""
    monkeypatch.setattr(WORK, "choice", "auto")
    monkeypatch.setattr(WORK, "records", 0)
    monkeypatch.setattr(WORK, "refusal", "")
    made = door.Kernel(kernels.first_bad_crc.py_func, kernels.first_bad_crc._signature, True, "pylog.record.pure:first_bad_crc")
    KERNELS.remove(made)
    return made


def test_a_cached_kernel_takes_over_when_the_process_has_done_enough(fresh: door.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "in_cache", lambda: True)
    assert not WORK.pays_for(fresh, CACHED_AFTER)
    assert WORK.pays_for(fresh, 1)


def test_a_kernel_that_is_not_cached_waits_for_more_work(fresh: door.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(fresh, "in_cache", lambda: bool(asked.append(1)))
    assert not any(WORK.pays_for(fresh, 1000) for _ in range(COMPILED_AFTER // 1000))
    assert len(asked) <= COMPILED_AFTER // CACHED_AFTER  # the disk is not asked at each call
    assert WORK.pays_for(fresh, 1)


def test_one_call_with_much_work_begins_compiled(fresh: door.Kernel) -> None:
    assert WORK.pays_for(fresh, COMPILED_AFTER + 1)


def test_a_choice_of_the_environment_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLOG_KERNELS", "fast")
    with pytest.raises(pylog.InvalidArgumentError, match="set it to one of auto, compiled, python"):
        door._choice_of_environment()


@pytest.mark.slow
def test_a_kernel_is_found_in_the_cache_without_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of numba's files are numba's own: this fails when a new numba gives them others."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not kernels.checksum.in_cache()
    program = "import numpy as np; from pylog.record import kernels; kernels.checksum(np.zeros(1, np.uint8), 0, 1)"
    environment = os.environ | {"PYLOG_KERNELS": "compiled"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert kernels.checksum.in_cache()
    assert not kernels.scan_batches.in_cache()


def test_a_signal_handler_inside_a_compilation_gets_the_plain_form(fresh: door.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba that begins a compilation inside another one of the same thread ends the process."""
    begun: list[int] = []

    def compile_under_signals() -> Any:
        begun.append(len(begun))
        if len(begun) < 3:
            signal.raise_signal(signal.SIGUSR1)
        return fresh.pure

    buffer, table = np.zeros(1, np.uint8), np.zeros((COLUMN_COUNT, 1), np.int64)
    found: list[int] = []
    monkeypatch.setattr(WORK, "choice", "compiled")
    monkeypatch.setattr(fresh, "_compile", compile_under_signals)
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append(fresh(buffer, table, 0, 1)))
    try:
        assert fresh(buffer, table, 0, 1) == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (begun, found) == ([0], [0])


REFUSALS = (OSError("Could not find/load shared object file"), MemoryError(), ImportError("no numba"))


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_process_without_the_compiler_runs_the_plain_form(
    fresh: door.Kernel, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A limit of memory (RLIMIT_AS) that is set before the first kernel keeps numba's library from being loaded."""
    tried: list[int] = []

    def refuse() -> Any:
        tried.append(1)
        raise error

    buffer, table = np.zeros(1, np.uint8), np.zeros((COLUMN_COUNT, 1), np.int64)
    monkeypatch.setattr(fresh, "_compile", refuse)
    monkeypatch.setattr(WORK, "pays_for", lambda *_: True)
    assert [fresh(buffer, table, 0, 1) for _ in range(2)] == [0, 0]
    assert len(tried) == 1  # half an import is not repeated


def test_a_process_without_the_compiler_does_not_ask_for_it(fresh: door.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WORK, "refusal", "no memory")
    monkeypatch.setattr(WORK, "headers", door.HEADERS_AFTER)
    assert not WORK.pays_for(fresh, COMPILED_AFTER + 1)
    WORK.add_headers(1)


def test_a_kernel_without_a_plain_form_says_what_it_lacks(fresh: door.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WORK, "refusal", "no memory")
    monkeypatch.setattr(fresh, "_home", None)
    with pytest.raises(pylog.StorageFailedError, match=r"first_bad_crc cannot be compiled \(no memory\); give the process more"):
        fresh(np.zeros(1, np.uint8), np.zeros((COLUMN_COUNT, 1), np.int64), 0, 1)


LIMITED = """
import resource, sys
import pylog
from pylog.record.kernel import Kernel
Kernel.in_cache = lambda kernel: True
with pylog.open(sys.argv[1]) as store:
    log = store.log("orders")
    log.read(0)
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + int(sys.argv[2]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(sum(1 for _ in log.records()))
print(sum(1 for name in sys.modules if name.startswith("llvmlite")) > 0, "pylog.record.compiled" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS has no limit of address space")
def test_records_are_read_under_a_limit_of_memory_that_numba_does_not_fit_into(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("orders")
        for _ in range(3):
            store.log("orders").append_many([b"x" * 100] * 10_000)
    environment = os.environ | {"PYLOG_KERNELS": "auto"}
    program = [sys.executable, "-c", LIMITED, str(tmp_path), "80"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["30000", "True", "False"], done.stderr


def test_a_child_forked_while_another_thread_waits_for_a_plain_form_gets_its_own(fresh: door.Kernel) -> None:
    other = door.Kernel(kernels.checksum.py_func, kernels.checksum._signature, True, "pylog.record.pure:checksum")
    KERNELS.remove(other)
    waiting = threading.Thread(target=lambda: fresh.pure)
    with door._LOADING:
        waiting.start()
        waiting.join(0.05)
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if other.pure is not None else 1)
        ended = os.waitpid(child, 0)[1]
    waiting.join()
    assert os.waitstatus_to_exitcode(ended) == 0


# ---- the plain encoder's memory and time ---------------------------------------------------------------------------------------


def test_the_plain_encoder_converts_each_header_once(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[int] = []
    monkeypatch.setattr(few, "_items", lambda column, count: converted.append(count) or [b"x"] * count)
    count = 8 * pure_encoding._WINDOW
    rows = rows_from_records([b"k"] * count, [b"v"] * count, None, [[("name", b"value")]] * count, NOW)
    with form("python"):
        list(BatchEncoder().encode(rows, 0, 0, whole=True))
    assert sum(converted) == 4 * count  # keys, values, names and values of headers


def test_the_plain_encoder_copies_no_more_than_its_output_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    items = few._items

    def counted(column: Binary, count: int) -> list[bytes | None]:
        made = items(column, count)
        copied.append(sum(len(each or b"") for each in made))
        return made

    monkeypatch.setattr(few, "_items", counted)
    monkeypatch.setattr(limits, "APPEND_CHUNK_BYTES", 50_000)
    rows = rows_from_records(None, [bytes(10_000)] * 100, None, None, NOW)
    with form("python"):
        sizes = [len(part.data) for part in BatchEncoder().encode(rows, 0, 0)]
    assert sum(sizes) > 1_000_000
    assert max(copied) <= 50_000
    assert sum(copied) <= 3_000_000


def test_hashing_the_keys_of_a_slice_copies_only_those() -> None:
    keys = pa.array([bytes(100)] * 20_000, pa.binary()).slice(1000, 100)
    with form("python"):
        hashes(keys)  # imports the plain form
        tracemalloc.start()
        try:
            assert hashes(keys).tolist() == hashes(pa.array(keys.to_pylist(), pa.binary())).tolist()
            assert tracemalloc.get_traced_memory()[1] < 500_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kernel", [kernels.decode_records, finding.find_record], ids=lambda kernel: kernel.__name__)
def test_millions_of_headers_in_one_record_are_read_by_the_compiled_form(
    tmp_path: Path, kernel: door.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed record with 30 million headers takes 6 KB, and plain Python 15 seconds."""
    compiled: list[str] = []

    def noted(called: door.Kernel) -> Any:
        compiled.append(called.__name__)
        return COMPILE(called)

    with pylog.open(tmp_path) as store, form("python"), monkeypatch.context() as patch:
        log = store.create_topic("t") and store.log("t", 0)
        log.append(b"value", headers=[("name", b"")] * 1000)
        patch.setattr(WORK, "choice", "auto")
        patch.setattr(WORK, "headers", door.HEADERS_AFTER)
        patch.setattr(door.Kernel, "compile", noted)
        found = log.read(0) if kernel is finding.find_record else next(log.records())
        assert (len(found.headers), found.value) == (1000, b"value")
    assert kernel.__name__ in compiled


WARM_CHECK = """
import sys
from pylog.cli.run import run
code = run(["warm", "--check"])
print(code, *sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_warm_check_reports_an_empty_cache_and_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", WARM_CHECK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1"
    assert "missing" in done.stdout
    assert not (tmp_path / "cache").exists()
