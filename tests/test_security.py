"""The sentences of SECURITY.md on hostile bytes: each names its test, and three of them have theirs here."""

from __future__ import annotations

import ast
import io
import logging
import os
import random
import re
from pathlib import Path

import pytest

import pylog
from support import warm
from support.campaign.lying_files import lie_in_log
from support.cli import call

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "pylog"
EVALUATING = {"eval", "exec", "compile", "__import__"}
UNPICKLING = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "code", "codeop"}
IMPORTING = {  # modules that import by a name; none of these names comes from a store's files
    "__init__.py",
    "cli/doctor.py",
    "cli/ops.py",  # and this one, as the window, only reads files that pylog ships
    "cli/start.py",
    "cli/warm.py",
    "compat/__main__.py",
    "compat/installing.py",
    "compat/modules.py",
    "monitoring/monitor.py",
    "record/kernel.py",
    "testing/__init__.py",
    "ui/app.py",
}


def test_each_sentence_on_hostile_bytes_names_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text().partition("**Hostile bytes.**")[2].partition("**Mistakes.**")[0]
    promises = re.split(r"\n\* ", text)[1:]
    assert len(promises) >= 15
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)`", promise)
        assert named, promise
        assert all((ROOT / name).exists() for name in named), promise


# ---- nothing is evaluated, unpickled or imported -----------------------------------------------------------------------------


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {each.name.partition(".")[0] for each in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def test_no_module_of_pylog_can_evaluate_or_unpickle() -> None:
    named = re.compile("|".join(rf"\b{name}\b" for name in {*EVALUATING, *UNPICKLING, "importlib"}))
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        if not named.search(text):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        assert not EVALUATING & set(map(_called, nodes)), path
        found = set().union(*map(_imported, nodes))
        assert not UNPICKLING & found, path
        assert "importlib" not in found or path.relative_to(SOURCES).as_posix() in IMPORTING, path


WATCHED = """
import sys, tempfile
from pathlib import Path
from support.campaign import lying
from support.campaign.lying_files import lay, lies
first, count = int(sys.argv[1]), int(sys.argv[2])
lying.warmed()
watching, events = False, set()
def hook(event, given):
    if watching and event in ("exec", "compile", "import", "marshal.loads", "pickle.find_class", "os.system", "subprocess.Popen"):
        events.add((event, str(given[:1])[:200]))
sys.addaudithook(hook)
for watching in (False, True):  # the first time, modules and kernels that only errors need are loaded
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as directory:
            files, lie = lies(seed)
            lay(root := Path(directory) / "store", files, lie)
            for call in (lying.read, lying.write, lambda root: lying.command(root, seed)):
                try:
                    call(root)
                except AssertionError:
                    pass
watching = False
print(sorted(events))
"""


@pytest.mark.slow
def test_nothing_of_a_files_content_is_evaluated_unpickled_or_imported() -> None:
    done = warm.run(["-c", WATCHED, 4000, 4], env=dict(os.environ, PYTHONPATH=f"{ROOT / 'tests'}:{ROOT / 'src'}"))
    assert done.stdout == "[]\n", done.stdout + done.stderr


# ---- control characters ------------------------------------------------------------------------------------------------------

HOSTILE = "\x1b[31m\x1b]0;title\x07\x9b\r\b\x00"
COMMANDS = (
    ("topics", "{}"),
    ("describe", "{}", "t"),
    ("stats", "{}"),
    ("verify", "{}"),
    ("doctor", "{}"),
    ("cat", "{}", "t"),
    ("cat", "{}", "t", "--format", "jsonl"),
    ("cat", "{}", "t", "--key", HOSTILE),
    ("groups", "list", "{}"),
    ("groups", "describe", "{}", HOSTILE, "--members"),
    ("groups", "describe", "{}", "--all"),
    ("groups", "reset", "{}", HOSTILE, "--to", "earliest"),
    ("compare", "{}", "{}"),
    ("retain", "{}", "--dry-run"),
    ("repair", "skip", "{}"),
    ("graduate", "{}", "--dry-run"),
    ("topics", "{}" + HOSTILE.rstrip("\0")),
    ("cat", "{}", HOSTILE),
)


@pytest.mark.slow
def test_no_command_prints_a_control_character_of_a_store(tmp_path: Path) -> None:
    raw = HOSTILE.encode()
    with pylog.open(tmp_path / "s", durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        store.log("t").append(raw, key=raw, headers=[(HOSTILE, raw)])
        with store.consumer("t", group_id=HOSTILE, auto_offset_reset="earliest") as consumer:
            consumer.poll(1000)
            consumer.commit()
        store.offsets.commit(HOSTILE, {("t", 0): pylog.OffsetAndMetadata(1, HOSTILE, -1)})
    (tmp_path / "s" / "pylog-\x1b[31m.json").write_bytes(b"{")
    (tmp_path / "s" / "t-0" / "\x1b[31m.log").write_bytes(b"{")
    files = [str(path) for path in sorted((tmp_path / "s").rglob("*")) if path.is_file()]
    dumps = [("dump", path, "--records") for path in files]
    for words in (*COMMANDS, *dumps):
        outcome = call(*(word.replace("{}", str(tmp_path / "s")) for word in words))
        printed = outcome.text + outcome.complaints
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed), (words, printed)


# ---- errors and the contents of records --------------------------------------------------------------------------------------

SECRET = "TopSecret"


def _errors_of(root: Path) -> str:
    """All that pylog says of a store's damage: errors, findings, and lines of the log."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("pylog").addHandler(handler)
    try:
        with pylog.open(root) as store:
            for read in (
                lambda: list(store.log("t").records()),
                lambda: list(store.log("t").records(isolation_level="read_committed")),
                lambda: store.log("t").append(b"x"),
                lambda: list(store.log("t").scan(columns=("key", "headers"))),
                lambda: said.write(str(store.check().findings) + str(store.verify(records=True).findings)),
            ):
                try:
                    read()
                except pylog.PylogError as error:
                    said.write(f"{error!r} {error}\n")
            said.write(str(store.recovery_report))
    except pylog.PylogError as error:
        said.write(f"{error!r} {error}\n")
    finally:
        logging.getLogger("pylog").removeHandler(handler)
    return said.getvalue()


@pytest.mark.slow
@pytest.mark.damaged("records lie under right checksums")
def test_errors_do_not_quote_the_contents_of_records(tmp_path: Path) -> None:
    raw = SECRET.encode()
    with pylog.open(tmp_path / "s", durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        for codec in ("none", "gzip", "zstd"):
            store.log("t").append_many([(raw, raw, [(SECRET, raw)])] * 3, compression=codec)
    path = tmp_path / "s" / "t-0" / f"{0:020}.log"
    whole = path.read_bytes()
    told = ""
    for seed in range(30):
        rng = random.Random(seed)
        content, _ = lie_in_log(whole, rng)
        path.write_bytes(content if isinstance(content, bytes) else content.data + bytes(100))
        told += _errors_of(tmp_path / "s")
        for words in (("verify", "{}"), ("dump", str(path)), ("cat", "{}", "t")):
            told += call(*(word.replace("{}", str(tmp_path / "s")) for word in words)).complaints
    assert told.count("CorruptionError") > 5
    assert SECRET not in told


@pytest.mark.parametrize(
    "wrong",
    [
        lambda store: store.log("t").append(SECRET),
        lambda store: store.log("t").append(b"x", key=SECRET),
        lambda store: store.log("t").append(b"x", headers=[(SECRET.encode(), b"x")]),
        lambda store: store.log("t").append(b"x", headers=[("h", SECRET)]),
        lambda store: store.log("t").append_many([SECRET]),
        lambda store: store.log("t").append_many([(b"k", b"v", SECRET)]),
        lambda store: store.log("small").append(SECRET.encode() * 1000),
        lambda store: store.log("c").append(SECRET.encode()),
        lambda store: store.producer().send("t", SECRET),
        lambda store: store.producer().send("t", b"x", headers=[SECRET]),
        lambda store: store.consumer("s", auto_offset_reset="earliest", value_deserializer=int).poll(1000),
    ],
    ids=str.split("value key header header_value values headers size keyless send send_headers deserializer"),
)
def test_errors_of_clients_do_not_quote_a_record(tmp_path: Path, wrong) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        for name, options in (("t", {}), ("s", {}), ("small", {"max_message_bytes": 1000}), ("c", {"cleanup_policy": "compact"})):
            store.create_topic(name, **options)
        store.log("s").append(SECRET.encode())
        with pytest.raises(pylog.PylogError) as found:
            wrong(store)
        assert SECRET not in str(found.value)
        assert SECRET not in repr(found.value)
