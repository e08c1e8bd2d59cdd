"""Directories and files that are not what they should be: a clear error of pylog's own, and nothing has changed."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pylog
from pylog.fs import OsFileSystem
from pylog.tools.stats import collect
from pylog.tools.verify import verify
from support import refusals, warm
from support.cli import call as command
from support.refusals import RECORDS, listing, refused

root = pytest.fixture(refusals.root)
store = pytest.fixture(refusals.store)


def run(program: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a process of its own."""
    return warm.run(["-c", program, *arguments])


def segments_of(root: Path) -> list[Path]:
    return sorted((root / "t-0").glob("*.log"))


# ---- the directory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_file_is_not_a_log_directory(tmp_path: Path, mode: str) -> None:
    (tmp_path / "file").write_bytes(b"notes")
    with refused(pylog.NotALogDirectoryError, "file", "not a directory", unchanged=tmp_path):
        pylog.open(tmp_path / "file", mode)
    with refused(pylog.NotALogDirectoryError, unchanged=tmp_path):
        pylog.open(tmp_path / "file" / "below", mode)


def test_a_directory_to_be_read_must_be_there(tmp_path: Path) -> None:
    with refused(pylog.NotALogDirectoryError, "nowhere", "there is no directory", unchanged=tmp_path):
        pylog.open(tmp_path / "nowhere", "r")


def test_a_directory_is_made_but_not_its_parents(tmp_path: Path) -> None:
    with refused(pylog.NotALogDirectoryError, "does not exist", "create it first", unchanged=tmp_path):
        pylog.open(tmp_path / "a" / "b", "rw")


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_link_that_leads_nowhere_is_not_a_log_directory(tmp_path: Path, mode: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with refused(pylog.NotALogDirectoryError, unchanged=tmp_path):
        pylog.open(tmp_path / "link", mode)


class BytesPath(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"shop"


@pytest.mark.parametrize("path", ["", "a\0b", None, 7, ["x"], "\ud800", b"shop", BytesPath()])
def test_a_value_that_is_no_path_is_refused(tmp_path: Path, path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(pylog.InvalidArgumentError, "path", unchanged=tmp_path):
        pylog.open(path)


@pytest.mark.parametrize(
    "route",
    [
        *("archive", "sweep", "restore from", "restore to", "export", "import"),
        *("read", "cache", "verify", "stats", "open with an archive"),
    ],
)
def test_a_text_that_is_no_path_is_refused_on_every_route(tmp_path: Path, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, archive = tmp_path / "here", (tmp_path / "archive").as_uri()
    here.mkdir()
    monkeypatch.chdir(here)
    with pylog.open(tmp_path / "store", offsets=pylog.OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.offsets.commit("g", {("t", 0): 0})
        store.archive(archive)
        routes: dict[str, Callable[[str], object]] = {
            "archive": store.archive,
            "sweep": pylog.sweep,
            "restore from": lambda path: pylog.restore(path, tmp_path / "copy"),
            "restore to": lambda path: pylog.restore(archive, path),
            "export": lambda path: pylog.export_offsets(store, path, ["g"]),
            "import": lambda path: pylog.import_offsets(store, path),
            "read": lambda path: pylog.read_table(path, "t"),
            "cache": lambda path: pylog.open(archive, "r", access={"cache_dir": path}),
            "verify": verify,
            "stats": collect,
            "open with an archive": lambda path: pylog.open(tmp_path / "other", archive=path),
        }
        for path in ("", "\0", "a\0b", "\ud800", "a\ud800"):
            with refused(pylog.InvalidArgumentError, "is not a path", unchanged=here):
                routes[route](path)


@pytest.mark.parametrize("url", ["s3://[/x", "gs://[/x", "file://[/x"])
def test_a_url_that_cannot_be_split_is_refused(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(pylog.InvalidArgumentError, "is not valid", url, unchanged=tmp_path):
        pylog.open(url, "r")


@pytest.mark.parametrize("mode", ["w", "a", "", "RW", None, 0])
def test_unknown_modes_are_refused(root: Path, mode: Any) -> None:
    with refused(pylog.InvalidArgumentError, "mode", "rw", unchanged=root):
        pylog.open(root, mode)


@pytest.mark.parametrize("durability", ["SYNC", 1, None])
def test_unknown_durabilities_are_refused(root: Path, durability: Any) -> None:
    with refused(pylog.InvalidArgumentError, "durability", unchanged=root):
        pylog.open(root, durability=durability)


ACTIONS = ("read", "command", "kafka", "confluent", "append", "open", "commit", "create")
# What runs without the rights of the tests' user: warmed up with them, as the interpreter's own files may be closed to others.
UNPRIVILEGED = """
import contextlib, io, os, sys
import pylog
from pylog.cli import main
from pylog.compat import confluent, kafka
from pylog.fs import OsFileSystem
from pylog.spark.group import GroupCommits
from pylog.tools.stats import collect
from pylog.tools.verify import verify
parent, target, action = sys.argv[1:]


def command(path, *words):
    sys.argv[1:] = [*words, path, "new-topic"] if words else ["describe", path, "t"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    if code:
        raise pylog.PylogError(told.getvalue())


actions = {
    "read": lambda path: list(pylog.open(path, "r").log("t").records()),
    "command": command,
    "kafka": lambda path: kafka.KafkaProducer(bootstrap_servers="pylog://" + path).close(),
    "confluent": lambda path: confluent.Producer({"bootstrap.servers": "pylog://" + path}).close(),
    "append": lambda path: pylog.open(path, "rw").log("t").append(b"more"),
    "open": lambda path: pylog.open(path, "rw"),
    "commit": lambda path: GroupCommits(path, "g").open().close(),
    "create": lambda path: command(path, "create"),
}
for name, act in actions.items():
    act(os.path.join(parent, "warm-" + name))
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    actions[action](os.path.join(parent, target))
    print("nothing refused")
except (pylog.PylogError, kafka.errors.KafkaError, confluent.KafkaException) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "mode", "target", "action", "expected"),
    [
        ("data", 0o000, "data", "read", "NotALogDirectoryError no permission to read"),
        ("data", 0o000, "data", "open", "NotALogDirectoryError no permission to read and write"),
        ("data", 0o555, "data", "open", "NotALogDirectoryError no permission to read and write"),
        ("data", 0o555, "data", "read", "nothing refused"),
        ("data", 0o000, "data", "command", "PylogError pylog: no permission to read"),
        ("data", 0o555, "data", "command", "nothing refused"),
        ("data", 0o555, "data", "kafka", "KafkaConfigurationError KafkaConfigurationError: no permission to read and write"),
        ("data", 0o555, "data", "confluent", "KafkaException KafkaError"),
        ("", 0o555, "new", "kafka", "KafkaConfigurationError KafkaConfigurationError: cannot create "),
        ("", 0o555, "new", "open", "NotALogDirectoryError cannot create "),
        ("data/t-0", 0o555, "data", "append", "NotALogDirectoryError no permission to read and write"),
        ("data/t-0", 0o000, "data", "read", "NotALogDirectoryError no permission to read"),
        ("data/t-0/00000000000000000000.log", 0o000, "data", "read", "StorageFailedError cannot open"),
    ],
)
def test_missing_permissions_are_named(closed: str, mode: int, target: str, action: str, expected: str) -> None:
    with tempfile.TemporaryDirectory(prefix="pylog-test-") as name:  # pytest's own directories are closed to other users
        parent = Path(name)
        parent.chmod(0o755)
        for path in ("data", *(f"warm-{each}" for each in ACTIONS)):
            with pylog.open(parent / path) as store:
                store.create_topic("t")
                store.log("t").append(b"kept")
        for path in sorted(parent.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        (parent / closed).chmod(mode)
        before = listing(parent / "data")
        result = run(UNPRIVILEGED, name, target, action)
        (parent / closed).chmod(0o755)
        assert result.stdout.startswith(expected), result
        if "no permission" in result.stdout:
            assert f"(uid {os.getuid()}, {mode:04o}), this process is uid " in result.stdout, result
        changed = {path: state for path, state in listing(parent / "data").items() if before.get(path) != state}
        locks = {".lock", "pylog.lock"} if action == "append" else set()  # the store itself could be opened
        assert set(changed) - {closed.removeprefix("data/")} <= locks


READS = 'or open it with mode="r"'
ELSEWHERE = "or choose another directory"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "target", "action", "advice"),
    [
        ("data", "data", "open", READS),
        ("", "new", "open", ELSEWHERE),
        ("data", "data", "create", "ask its owner for access"),
        ("", "new", "create", ELSEWHERE),
        ("data", "data", "kafka", 'or read it with pylog.compat.install(mode="r"), without a group'),
        ("data", "data", "confluent", 'or read it with pylog.compat.install(mode="r"), without a group'),
        ("", "new", "kafka", ELSEWHERE),
        ("data", "data", "commit", "ask its owner for access; to read without committing, leave out groupId"),
        ("data/t-0", "data", "append", "ask its owner for access"),
    ],
)
def test_the_advice_for_a_missing_permission_is_one_that_helps_there(closed: str, target: str, action: str, advice: str) -> None:
    with tempfile.TemporaryDirectory(prefix="pylog-test-") as name:
        parent = Path(name)
        parent.chmod(0o755)
        for path in ("data", *(f"warm-{each}" for each in ACTIONS)):
            with pylog.open(parent / path) as store:
                store.create_topic("t")
        for path in sorted(parent.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        (parent / closed).chmod(0o555)
        result = run(UNPRIVILEGED, name, target, action)
        (parent / closed).chmod(0o755)
    assert "no permission to read and write" in result.stdout, result
    assert result.stdout.strip().rstrip('")}').endswith(advice.rstrip('")}')), result
    assert ("mode=" in result.stdout) == ("mode=" in advice), result


@contextmanager
def mounted_read_only(patched: pytest.MonkeyPatch, path: Path) -> Iterator[None]:
    """A file system that is mounted at a path and cannot be written."""
    access, statvfs = os.access, os.statvfs

    def flags_of(at: str) -> os.statvfs_result:
        found = list(statvfs(at))
        return os.statvfs_result([*found[:8], found[8] | (os.ST_RDONLY if str(at) == str(path) else 0), *found[9:]])

    with patched.context() as within:
        within.setattr(os, "access", lambda at, mode: access(at, mode) and not (str(at) == str(path) and mode & os.W_OK))
        within.setattr(os, "statvfs", flags_of)
        yield


def test_a_read_only_file_system_is_called_so_and_not_a_missing_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pylog.open(tmp_path / "data") as store:
        store.create_topic("t")
        store.log("t").append(b"kept")
    told = "read-only file system; mount it for writing"
    with mounted_read_only(monkeypatch, tmp_path / "data"):
        with pytest.raises(pylog.NotALogDirectoryError, match=told):
            pylog.open(tmp_path / "data")
        with pylog.open(tmp_path / "data", "r") as store:
            assert store.log("t").end_offset == 1
    with pylog.open(tmp_path / "data") as store:
        with mounted_read_only(monkeypatch, tmp_path / "data" / "t-0"), pytest.raises(pylog.NotALogDirectoryError, match=told):
            store.log("t").append(b"more")
        assert store.log("t").append(b"more") == 1


@pytest.mark.damaged("the partition cannot be opened while the command runs")
@pytest.mark.parametrize("where", [".", "t-0"], ids=["the store", "a partition"])
@pytest.mark.parametrize("form", ["lines", "jsonl"])
def test_produce_onto_a_read_only_file_system_says_so_and_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, form: str
) -> None:
    with pylog.open(tmp_path / "data") as store:
        store.create_topic("t")
    with mounted_read_only(monkeypatch, tmp_path / "data" / where):
        done = command("produce", tmp_path / "data", "t", "--format", form, stdin=b'{"value": "x"}\n')
    assert done.code == 1
    assert "read-only file system; mount it for writing" in done.complaints
    assert "permission" not in done.complaints
    with pylog.open(tmp_path / "data", "r") as store:
        assert store.log("t").end_offset == 0


@pytest.mark.parametrize("refused_call", ["pwrite", "open"])
def test_produce_onto_a_file_system_that_became_read_only_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_call: str
) -> None:
    real, error = getattr(os, refused_call), OSError(errno.EROFS, os.strerror(errno.EROFS))

    def refuse(*given: Any, **options: Any) -> Any:
        if refused_call == "open" and not (str(given[0]).endswith(".log") and given[1] & (os.O_WRONLY | os.O_RDWR)):
            return real(*given, **options)
        raise error

    with pylog.open(tmp_path / "data") as store:
        store.create_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(os, refused_call, refuse)
        done = command("produce", tmp_path / "data", "t", stdin=b"x\n")
    assert done.code == 1
    assert "the file system is read-only; mount it for writing" in done.complaints
    assert "permission" not in done.complaints


@pytest.mark.parametrize("refused_call", ["open", "pwrite", "replace", "mkdir"])
def test_a_file_system_that_becomes_read_only_is_called_so_by_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_call: str
) -> None:
    real = getattr(os, refused_call)

    def refuse(*given: Any, **options: Any) -> Any:
        if refused_call == "open" and not given[1] & (os.O_WRONLY | os.O_RDWR):
            return real(*given, **options)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with pylog.open(tmp_path / "data") as store:
        store.create_topic("t")
        with monkeypatch.context() as patched:
            patched.setattr(os, refused_call, refuse)
            with pytest.raises(pylog.StorageFailedError, match="the file system is read-only; mount it") as caught:
                store.log("t").append(b"x") if refused_call in ("open", "pwrite") else store.create_topic("u")
        assert caught.value.errno == errno.EROFS


# ---- what is in the files --------------------------------------------------------------------------------------------------


def changed_magic(path: Path, batch: int, magic: int) -> None:
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(batch):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[at + 16] = magic
    path.write_bytes(data)


@pytest.mark.damaged("it was damaged on purpose")
@pytest.mark.parametrize("magic", [3, 127, 255])
@pytest.mark.parametrize(("segment", "batch", "good"), [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 3), (1, 1, 4)])
def test_an_unknown_format_is_reported_and_never_cut_off(root: Path, magic: int, segment: int, batch: int, good: int) -> None:
    changed_magic(segments_of(root)[segment], batch, magic)
    before = listing(root)
    for mode in ("r", "rw"):
        with pylog.open(root, mode) as store:
            log = store.log("t")
            with pytest.raises(pylog.CorruptionError, match="format") as caught:
                list(log.records())
            assert (caught.value.offset, caught.value.next_offset) == (good, good + 1 if good < 4 else None)
            assert log.end_offset == 5  # also with damage at the end: the header has the end
            if segment == 1:
                assert [finding.kind for finding in log.recovery_report][:1] == ["corrupt"]
            if mode == "rw" and segment == 1:
                with pytest.raises(pylog.CorruptionError, match="format"):
                    log.append(b"never behind it")
            assert [record.value for record in log.records(0, good)] == RECORDS[:good]
    changed = {path for path, state in listing(root).items() if before.get(path) != state}
    assert not {path for path in changed if path.endswith(".log") or ".torn" in path}


@pytest.mark.damaged("it was damaged on purpose")
@pytest.mark.parametrize("kind", ["link", "link to nowhere", "fifo", "socket"])
@pytest.mark.parametrize("segment", [0, 1])
def test_a_directory_or_pipe_in_a_segments_place_is_refused(
    root: Path, tmp_path: Path, kind: str, segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = segments_of(root)[segment]
    away = path.rename(tmp_path / "elsewhere.log")
    with socket.socket(socket.AF_UNIX) as listener:
        match kind:
            case "link":
                path.symlink_to(away)
            case "link to nowhere":
                path.symlink_to(tmp_path / "nowhere")
            case "fifo":
                os.mkfifo(path)
            case "socket":
                monkeypatch.chdir(path.parent)  # a socket's name must be short
                listener.bind(path.name)
        for mode in ("r", "rw"):
            with pylog.open(root, mode) as store, refused(pylog.StorageFailedError, path.name, "regular file", unchanged=root):
                list(store.log("t").records())


@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata", "durable-point"]
)
def test_a_fifo_in_place_of_another_file_does_not_hang(root: Path, suffix: str) -> None:
    (path, *_) = [found for found in sorted((root / "t-0").iterdir()) if found.name.endswith(suffix)]
    path.unlink()
    os.mkfifo(path)
    told = ""
    with pylog.open(root, "r") as store:
        try:
            assert [record.value for record in store.log("t").records()] == RECORDS
        except pylog.PylogError as error:
            told = str(error)
    assert told == "" or path.name in told


# ---- who may ---------------------------------------------------------------------------------------------------------------


def test_a_closed_store_refuses_everything(root: Path) -> None:
    store = pylog.open(root)
    log = store.log("t")
    store.close()
    calls: list[Callable[[], Any]] = [
        store.topics,
        store.flush,
        lambda: store.topic("t"),
        lambda: store.log("t"),
        lambda: store.create_topic("new"),
        lambda: store.add_partitions("t", 2),
        lambda: store.delete_topic("t"),
        log.flush,
        lambda: log.append(b"v"),
        lambda: log.append_many([b"v"]),
        lambda: log.append_many([b"v"], compression="zstd"),
        lambda: log.append_arrow(pa.table({"value": [b"v"]})),
        lambda: log.read(0),
        log.scan,
        log.records,
        lambda: log.offset_for_timestamp(0),
        lambda: log.size_between(0, 5),
        lambda: log.split_offsets(0, 5, 100),
    ]
    for call in calls:
        with refused(pylog.ClosedError, "closed", "again", unchanged=root):
            call()
    store.close()  # once more is no error


def test_a_store_for_reading_takes_no_writes(root: Path) -> None:
    with pylog.open(root, "r") as store:
        log = store.log("t")
        calls: list[Callable[[], Any]] = [
            lambda: store.create_topic("new"),
            lambda: store.add_partitions("t", 2),
            lambda: store.delete_topic("t"),
            lambda: log.append(b"v"),
            lambda: log.append_many([b"v"]),
            lambda: log.append_arrow(pa.table({"value": [b"v"]})),
        ]
        for call in calls:
            with refused(pylog.ReadOnlyError, "mode='rw'", unchanged=root):
                call()
        before = listing(root)
        log.flush()
        store.flush()
    assert listing(root) == before


@pytest.mark.slow
def test_a_second_writer_is_told_why_it_may_not_be_alone(root: Path, store: pylog.Store) -> None:
    with refused(pylog.StoreLockedError, str(root), "mode='r'", unchanged=root):
        pylog.open(root, exclusive=True)
    program = (
        "import pylog, sys\ntry: pylog.open(sys.argv[1], exclusive=True)\nexcept pylog.StoreLockedError as error: print(error)"
    )
    before = listing(root)
    result = run(program, root)
    assert "has" in result.stdout, result
    assert "open for writing" in result.stdout
    assert listing(root) == before
    assert store.log("t").append(b"still mine") == 6


FORKED = """
import os, sys
import pylog
from pylog.fs import OsFileSystem
from pylog.tools.stats import collect
from pylog.tools.verify import verify
store = pylog.open(sys.argv[1])
log = store.log("t")
log.append(b"the parent's")
calls = [lambda: log.append(b"v"), lambda: log.append_many([b"v"]), lambda: log.read(0), log.scan, log.flush, store.topics,
         lambda: store.log("t"), lambda: store.create_topic("new"), lambda: store.delete_topic("t"), store.flush,
         lambda: log.split_offsets(0, 5, 100)]
child = os.fork()
if child == 0:
    for call in calls:
        try:
            call()
            print("nothing refused", flush=True)
        except pylog.PylogError as error:
            print(type(error).__name__, flush=True)
    store.close()
    os._exit(0)
os.waitpid(child, 0)
try:
    pylog.open(sys.argv[1], exclusive=True)
except pylog.StoreLockedError:
    print("still locked")
print(log.append(b"the parent's again"))
store.close()
"""


@pytest.mark.slow
def test_a_forked_child_is_refused_and_does_its_parent_no_harm(root: Path) -> None:
    result = run(FORKED, root)
    assert result.stdout.split("\n")[:-1] == ["ClosedError"] * 11 + ["still locked", "6"], result
    with pylog.open(root, "r") as store:
        assert [record.value for record in store.log("t").records()] == [*RECORDS, b"the parent's", b"the parent's again"]


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_a_directory_that_is_removed_during_its_check_is_named(tmp_path: Path, write: bool) -> None:
    directory, access = tmp_path / "t-0", os.access
    directory.mkdir()

    def removed(path: str, mode: int) -> bool:
        if Path(path) == directory and directory.exists():
            directory.rmdir()
        return access(path, mode)

    with patch.object(os, "access", removed), pytest.raises(pylog.NotALogDirectoryError, match="t-0"):
        OsFileSystem().check_directory(str(directory), write=write)
