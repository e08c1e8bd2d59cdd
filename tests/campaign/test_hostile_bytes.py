"""Files may have been written by somebody who means harm: a pylog error or a value, in bounded time and memory, and no crash;
and nothing outside of the directory is read, changed or removed, whatever is named or planted in it.

Reliability 9, suites 12 and 13. The programs are `fuzz_pages` (kernels beside forbidden pages) and `fuzz_targets` (all that
parses, also for libFuzzer); what they run is decided by the seed that a failure shows.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pylog
from pylog.clock import ManualClock
from pylog.errors import PylogError
from pylog.record.compression import compress
from pylog.record.kernels import BAD_CRC, BAD_HEADER, BAD_LENGTH, BAD_MAGIC, BAD_RECORD, FULL, NOT_FOUND, NOT_PLAIN, OK, TORN
from pylog.segment.names import SEAL
from pylog.spark.options import read_options
from pylog.spark.planner import plan
from pylog.testing import MemoryFileSystem
from pylog.topics.catalog import Catalog
from support.campaign import hostile
from support.campaign.corruption import NOW, ROOT, TOPIC, Specimen, make_specimen, patience
from support.campaign.fuzz_targets import TARGETS
from support.campaign.processes import new_seed
from support.reference import legacy as reference_legacy
from support.reference import records as reference

TESTS = Path(__file__).parent.parent
CASES = 1_200_000  # calls of kernels, beside forbidden pages
COMPARED = 2_000
INPUTS = 2_000  # of each parser


# ---- kernels -----------------------------------------------------------------------------------------------------------------

MUST_BE_MET = {
    "scan": (OK, FULL, TORN, BAD_LENGTH, BAD_MAGIC, BAD_HEADER),
    "find_batch": (OK, NOT_PLAIN, NOT_FOUND),
    "decode": (OK, FULL, BAD_HEADER, BAD_CRC, BAD_RECORD),
    "headers": (OK, FULL, BAD_RECORD),
    "find_record": (OK, TORN, BAD_LENGTH, BAD_MAGIC, BAD_HEADER, BAD_CRC, BAD_RECORD, NOT_PLAIN, NOT_FOUND),
    "find_by_time": (OK, TORN, BAD_LENGTH, BAD_MAGIC, BAD_HEADER, BAD_CRC, BAD_RECORD, NOT_PLAIN, NOT_FOUND),
}


def test_kernels_stay_inside_their_arrays_on_millions_of_damaged_inputs() -> None:
    answers = hostile.pages(CASES, new_seed())
    assert sum(map(sum, answers.values())) == CASES
    for kernel, statuses in MUST_BE_MET.items():
        assert all(answers[kernel][status] for status in statuses), (kernel, answers[kernel])


def test_compiled_kernels_answer_what_their_plain_meaning_does() -> None:
    hostile.compared(COMPARED, new_seed())


# ---- parsers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]

    @example(b"")
    @given(st.binary(max_size=300))
    def read(data: bytes) -> None:
        for given_bytes in (data, target.seal(data)):
            try:
                target.read(given_bytes)
            except PylogError as error:
                told = str(error)
            else:
                told = "a value"
            assert told

    read()


def test_inputs_that_are_almost_right_are_read_or_refused_within_bounds() -> None:
    """Thousands for each parser, in a process with a bound on its memory; one that takes a minute ends it."""
    hostile.parsers(INPUTS, new_seed())


# ---- a log with one batch that costs more than it is worth ---------------------------------------------------------------------


@functools.cache
def specimen() -> Specimen:
    return make_specimen(["none"])


READ = """
import resource, sys, time
from pathlib import Path
import pylog
import pylog.record.compiled  # the compiler takes 100 MiB, whatever the file is; a search after damage needs it

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

def read(path):
    with pylog.open(path, "r") as store:
        try:
            return sum(frame.num_rows for frame in store.log("t").scan())
        except pylog.PylogError as error:
            return type(error).__name__

warm, path, memory = sys.argv[1:]
rows = read(warm)
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(memory), resource.getrlimit(resource.RLIMIT_AS)[1]))
before, began = peak(), time.process_time()
print(rows, read(path), peak() - before, time.process_time() - began)
"""


def directory_with(path: Path, data: bytes) -> Path:
    """A log directory as a broker leaves it, whose only segment holds these bytes."""
    (path / "t-0").mkdir(parents=True)
    (path / "t-0" / "00000000000000000000.log").write_bytes(data)
    return path


def reading(tmp_path: Path, data: bytes, memory: int, form: str = "compiled") -> tuple[str, int, float]:
    """What reading a segment ends with, how much memory and how many seconds it takes; under a bound on address space."""
    good = reference.Batch([reference.Record(0, 0, b"key", b"value")]).encoded()
    warm = directory_with(tmp_path / "warm", good + compressed_batch(4, b"", 1, 0))
    bad = directory_with(tmp_path / "bad", data)
    command = [sys.executable, "-c", READ, str(warm), str(bad), str(memory)]
    environment = {**os.environ, "PYLOG_KERNELS": form}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    _, found, cost, seconds = done.stdout.split()
    return found, int(cost), float(seconds)


def compressed_batch(codec: int, payload: bytes, base_offset: int, count: int) -> bytes:
    return reference.Batch(
        payload=payload,
        base_offset=base_offset,
        attributes=codec,
        count=count,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=0,
    ).encoded()


MEBIBYTE = 1 << 20
BOMB = 512 * MEBIBYTE


def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(9, wbits=31)
    return b"".join(deflate.compress(bytes(MEBIBYTE)) for _ in range(BOMB // MEBIBYTE)) + deflate.flush()


def repeated(codec: int, block: int, head: int, tail: int) -> bytes:
    """A stream of one block again and again, of a codec whose frames have `head` bytes before the blocks and `tail` behind."""
    frame = compress(codec, bytes(block)).tobytes()
    return frame[:head] + frame[head : len(frame) - tail] * (BOMB // block) + frame[len(frame) - tail :]


def zstd_bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(BOMB)))


def nested_bomb() -> bytes:
    inner = reference_legacy.entry(1, reference_legacy.Message(0, 0, None, gzip_bomb()), reference_legacy.GZIP)
    return reference_legacy.entry(1, reference_legacy.Message(0, 0, None, gzip.compress(inner)), reference_legacy.GZIP)


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: compressed_batch(1, gzip_bomb(), 0, 1000),
    "snappy": lambda: compressed_batch(2, repeated(2, 32768, 16, 0), 0, 1000),
    "lz4": lambda: compressed_batch(3, repeated(3, 65536, 7, 4), 0, 1000),
    "zstd": lambda: compressed_batch(4, zstd_bomb(), 0, 1000),
    "nested": nested_bomb,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_log_with_a_bomb_of_512_mib_is_refused_at_the_limit(name: str, tmp_path: Path) -> None:
    """64 MiB is what a batch may take: twice for growing into it, once more for zstd's window."""
    found, cost, seconds = reading(tmp_path, BOMBS[name](), memory=1024 * MEBIBYTE)
    assert found == ("CorruptionError" if name == "nested" else "DecompressionLimitError")
    assert cost <= 3 * 64 * MEBIBYTE + 64 * MEBIBYTE
    assert seconds < 20


def lying(**fields: int) -> bytes:
    """A batch of one record whose header says something else, under a checksum that is right."""
    changed = bytearray(reference.Batch([reference.Record(0, 0, b"key", b"value")]).encoded())
    for name, value in fields.items():
        position, size = {"length": (8, 4), "delta": (23, 4), "count": (57, 4)}[name]
        changed[position : position + size] = struct.pack(">i", value)
    return reference.resealed(bytes(changed))


def lying_record(*varints: int) -> bytes:
    """A batch whose record says sizes and numbers that are not true."""
    payload = b"".join(map(reference.varint_bytes, varints)) + b"some bytes that follow"
    return reference.Batch(payload=payload, base_offset=0, count=1, last_offset_delta=0, base_timestamp=0).encoded()


MANY = 2**31 - 1
LIES = {
    "a count of 2^31 - 1": lying(count=MANY, delta=MANY),
    "a count that the bytes cannot hold": lying(count=100, delta=99),
    "offsets up to 2^31 - 1": lying(delta=MANY),
    "a length of 2^31 - 1": lying(length=MANY),
    "a negative length": lying(length=-1),
    "a record of 2^31 - 1 bytes": lying_record(MANY, 0, 0, 0),
    "a key of 2^31 - 1 bytes": lying_record(20, 0, 0, 0, MANY),
    "2^31 - 1 headers": lying_record(20, 0, 0, 0, -1, -1, MANY),
    "a header's name of 2^31 - 1 bytes": lying_record(20, 0, 0, 0, -1, -1, 1, MANY),
    "compressed, with a count of 2^31 - 1": compressed_batch(4, bytes(cramjam.zstd.compress(b"x" * 50)), 0, MANY),
    "compressed to nothing, with a count of 2^31 - 1": compressed_batch(4, bytes(cramjam.zstd.compress(b"")), 0, MANY),
}


@pytest.mark.parametrize("form", ["compiled", "auto"])
@pytest.mark.parametrize("name", LIES)
def test_counts_and_lengths_that_lie_cost_no_memory(name: str, form: str, tmp_path: Path) -> None:
    found, cost, seconds = reading(tmp_path, LIES[name], 512 * MEBIBYTE, form)
    assert found in ("CorruptionError", "0", "1"), "cut off at its first batch a log is an empty one; offsets may have gaps"
    assert cost < 64 * MEBIBYTE
    assert seconds < 10


def test_a_lie_between_good_batches_is_passed() -> None:
    """And what is behind it is read: in the second of three segments, and with all that vouches for it missing."""
    plain = specimen().without(".seal", "durable-point")
    place = plain.places_of(plain.logs[1])[3]
    for lie in LIES.values():
        data = plain.files[place.path]
        changed = data[: place.position] + lie + data[place.position + place.size :]
        fs = MemoryFileSystem(image=plain.damaged(place.path, changed))
        with pylog.open(ROOT, "r", fs=fs, clock=fs.clock) as store:
            log = store.log(TOPIC)
            with pytest.raises(pylog.CorruptionError) as caught:
                list(log.scan())
            assert caught.value.offset is not None
            assert log.read(plain.rows.num_rows - 1) == plain.records[-1]


# ---- names that lead elsewhere -------------------------------------------------------------------------------------------------

PATIENCE_S = 20  # a pipe that is opened and waited for takes for ever


def listing(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a directory: kind and permissions, and content or where a link leads."""
    found = {}
    for path in sorted(directory.rglob("*")):
        mode = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else os.readlink(path).encode() if stat.S_ISLNK(mode) else b""
        found[str(path.relative_to(directory))] = (mode, content)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store with a topic `t` whose second segment is full with the next record; beside it `elsewhere`, not ours."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "t-0").mkdir(parents=True)
    (elsewhere / "t-0" / "precious").write_bytes(b"not pylog's")
    (elsewhere / "precious").write_bytes(b"nor this")
    path = tmp_path / "data"
    with pylog.open(path, clock=ManualClock(NOW)) as store:
        store.create_topic("t", segment_bytes=300)
        for number in range(8):
            store.log("t").append(b"value %d" % number)
        assert len(store.log("t").segments) == 2
    return path


def use(root: Path) -> list[str]:
    """All that a program may do with a store; the errors on the way. Only pylog's are caught."""
    steps: list[Callable[[pylog.Store], object]] = [
        lambda store: store.topics(),
        lambda store: list(store.log("t").records()),
        lambda store: [store.log("t").append(b"more %d" % number) for number in range(9)],
        lambda store: store.log("t").delete_records(4),
        lambda store: store.tick(NOW),
        lambda store: store.verify(),
        lambda store: store.create_topic("other"),
        lambda store: store.delete_topic("t"),
    ]
    found = []
    for mode in ("r", "rw"):
        with patience(PATIENCE_S):
            try:
                with pylog.open(root, mode, clock=ManualClock(NOW), lock_timeout_ms=100) as store:
                    for step in steps:
                        try:
                            step(store)
                        except PylogError as error:
                            found.append(str(error))
            except PylogError as error:
                found.append(str(error))
    return found


def catalog(elsewhere: Path = Path("/nowhere"), /, **fields: object) -> bytes:
    """A `pylog.json` whose checksum is right, whatever it says."""
    text = json.dumps({"version": 1, "topics": {}, **fields}).replace("{elsewhere}", str(elsewhere))
    return msgspec.json.encode(msgspec.json.decode(text, type=Catalog).sealed())


ID = "A" * 22
HEX = "0" * 32
LEADING_OUT = {
    "a topic above": {"topics": {"../elsewhere/t": {"id": ID, "partitions": 2}}},
    "a topic at the root": {"topics": {"/tmp/pylog-was-here": {"id": ID, "partitions": 1}}},
    "a topic of dots": {"topics": {"..": {"id": ID, "partitions": 1}}},
    "a topic below": {"topics": {"t-0/x": {"id": ID, "partitions": 1}}},
    "a topic with a NUL": {"topics": {"a\0b": {"id": ID, "partitions": 1}}},
    "a topic of another script": {"topics": {"t\u03bfpic": {"id": ID, "partitions": 1}}},
    "an id with a line break": {"topics": {"t": {"id": "A\ntopic_id: B", "partitions": 1}}},
    "deleting what lies above": {"deleting": {"t-0": "../elsewhere"}},
    "deleting from above": {"deleting": {"../elsewhere": f"t-0.{HEX}-delete"}},
    "deleting what lies at the root": {"deleting": {"t-0": "{elsewhere}"}},
    "deleting what lies below": {"deleting": {"x-0": "t-0/../../elsewhere"}},
    "deleting a name that only ends well": {"deleting": {"t-0": f"../elsewhere.{HEX}-delete"}},
    "deleting the directory itself": {"deleting": {"x-0": "."}},
    "deleting everything above": {"deleting": {"x-0": ".."}},
}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_no_name_in_pylog_json_leads_out_of_the_directory(root: Path, name: str) -> None:
    elsewhere = root.parent / "elsewhere"
    (root / "pylog.json").write_bytes(catalog(elsewhere, **LEADING_OUT[name]))
    before, above = listing(elsewhere), sorted(root.parent.iterdir())
    logs = {path: path.read_bytes() for path in root.rglob("*.log")}
    assert any("pylog.json" in told for told in use(root))
    assert (listing(elsewhere), sorted(root.parent.iterdir())) == (before, above)
    assert not Path("/tmp/pylog-was-here-0").exists()
    assert {path: path.read_bytes() for path in logs} == logs


STRANGE_DIRECTORIES = [
    b"..-0",
    b".-0",
    b"-0",
    b"t-01",
    b"t-00",
    b"t-2147483648",
    b"t-0 ",
    b"a b-0",
    b"a\nb-0",
    b"\x1b[31mred-0",
    b"\xff\xfe-0",
    "t\u202e-0".encode(),
    "t-\u0663".encode(),
    b"a" * 250 + b"-0",
    b"t-0." + b"0" * 32 + b"-stray",
    b"__cluster_metadata-0",
]


def test_directories_that_are_no_partitions_are_neither_topics_nor_touched(root: Path) -> None:
    strange = [os.fsencode(root) + b"/" + name for name in STRANGE_DIRECTORIES]
    for path in strange:
        os.mkdir(path)
        with open(path + b"/precious", "wb") as file:
            file.write(b"kept")
    with pylog.open(root, "r") as store:
        assert list(store.topics()) == ["t"]
    use(root)
    for path in strange:
        with open(path + b"/precious", "rb") as file:
            assert file.read() == b"kept"


@pytest.mark.parametrize("name", ["../elsewhere/t", "/etc/passwd", "..", "t/../t", "t-0/../t", "t\0", "", "t,../elsewhere/t"])
def test_names_in_options_of_spark_never_become_paths(root: Path, name: str) -> None:
    for options in (
        {"subscribe": name},
        {"subscribePattern": f".*|{name}"} if "\0" not in name else {"subscribe": name},
        {"assign": json.dumps({name: [0]})},
        {"subscribe": "t", "startingOffsets": json.dumps({name: {"0": 0}})},
    ):
        try:
            slices = plan(read_options({"path": str(root), **options}))
        except PylogError:
            slices = []
        assert {part.topic for part in slices} <= {"t"}


# ---- what stands in a file's place ---------------------------------------------------------------------------------------------

# Every file that pylog reads or makes, and those it is about to make: the next segments', temporary ones, torn tails.
PLACES = [
    "pylog.json",
    "pylog.json.tmp",
    "pylog.lock",
    ".lock",
    ".kafka_cleanshutdown",
    ".kafka_cleanshutdown.tmp",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "log-start-offset-checkpoint.tmp",
    "t-0/partition.metadata",
    "t-0/leader-epoch-checkpoint",
    "t-0/leader-epoch-checkpoint.tmp",
    "t-0/durable-point",
    "t-0/00000000000000000000.index",
    "t-0/00000000000000000000.timeindex",
    "t-0/00000000000000000000.txnindex",
    "t-0/00000000000000000000.{seal}",
    "t-0/00000000000000000004.snapshot",
    "t-0/00000000000000000004.log",
    "t-0/00000000000000000004.{seal}",
    "t-0/00000000000000000004.index.tmp",
    "t-0/00000000000000000008.log",
    "t-0/00000000000000000008.index",
    "t-0/00000000000000000008.{seal}",
    "t-0/00000000000000000008.{seal}.tmp",
    "t-0/00000000000000000008.snapshot",
    "t-0/00000000000000000012.log",
    "other-0",
]


def planted(path: Path, kind: str, elsewhere: Path) -> None:
    """Puts something else in a file's place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    match kind:
        case "link":
            path.symlink_to(elsewhere / "precious")
        case "link to nowhere":
            path.symlink_to(elsewhere / "made by pylog")
        case "link to a directory":
            path.symlink_to(elsewhere / "t-0")
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
            (path / "precious").write_bytes(b"kept")


@pytest.mark.damaged("what was planted is found")
@pytest.mark.parametrize("kind", ["link", "link to nowhere", "link to a directory", "pipe", "directory"])
@pytest.mark.parametrize("place", PLACES)
def test_a_link_or_pipe_planted_in_a_files_place_is_not_followed_written_or_waited_for(root: Path, place: str, kind: str) -> None:
    path, elsewhere = root / place.format(seal=SEAL.lstrip(".")), root.parent / "elsewhere"
    planted(path, kind, elsewhere)
    before = listing(elsewhere)
    use(root)
    assert listing(elsewhere) == before


@pytest.mark.damaged("a link that is not followed is found")
@pytest.mark.parametrize("name", ["t-0", "t-1", f"t-0.{HEX}-delete"])
def test_deleting_a_topic_does_not_follow_links(root: Path, name: str) -> None:
    """A link in a partition's place, in it, and under the name of one that is being deleted."""
    elsewhere = root.parent / "elsewhere"
    inside = root / "t-0" / "linked"
    inside.symlink_to(elsewhere)
    if name == "t-0":
        shutil.rmtree(root / "t-0")
    (root / name).symlink_to(elsewhere / "t-0")
    if name.endswith("-delete"):
        (root / "pylog.json").write_bytes(catalog(deleting={"t-0": name}))
    before = listing(elsewhere)
    use(root)
    assert listing(elsewhere) == before


# ---- who may look --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_new_files_and_directories_follow_the_umask(tmp_path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        with pylog.open(tmp_path / "data", clock=ManualClock(NOW)) as store:
            store.create_topic("t", partition_count=2, segment_bytes=300)
            for number in range(20):
                store.log("t").append(b"value %d" % number)
            store.log("t").delete_records(9)
            store.log("t").truncate(15)
        use(tmp_path / "data")
    finally:
        os.umask(old)
    for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
        assert stat.S_IMODE(path.lstat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~mask, path
