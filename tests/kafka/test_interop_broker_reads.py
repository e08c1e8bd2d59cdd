"""A broker reads what pylog wrote: a directory that pylog closed, and one that a killed process left behind.

Each is handed to a broker once; what the broker said, served and left behind is collected, and the tests look at that.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pylog
from support.campaign.processes import own_environment
from support.kafka import interop_data
from support.kafka.adopt import adopt
from support.kafka.harness import Broker, KafkaJars, Record, ToolResult
from support.kafka.interop_data import NOW_MS, TOPICS, adopted, complaints, ends, faults, files, read, rows_of, write_topics

TIMES = (NOW_MS, NOW_MS + 50_000)  # searched for in every partition
CONSUMER = {"fetch.max.wait.ms": "20"}  # how long the broker holds back an answer at a partition's end
PATIENT = {"broker.session.timeout.ms": "9000"}  # the default; no broker is killed here
KAFKAS_OWN = {"__cluster_metadata-0"}

# Files of its own that a broker writes anew or removes whenever it starts and stops, whoever wrote them before.
REWRITTEN = (
    r"\.lock|\.kafka_cleanshutdown|meta\.properties|bootstrap\.checkpoint|[a-z-]+-offset-checkpoint",
    r"[^/]+/[0-9]{20}\.snapshot",  # old ones go, one is made at the log's end
    r"[^/]+/leader-epoch-checkpoint",  # each start as leader begins an epoch
    r"__cluster_metadata-0/.*",
)


def ours(paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if not any(re.fullmatch(pattern, path) for pattern in REWRITTEN))


@dataclass(frozen=True)
class Served:
    """What happened between pylog's last word on a directory and pylog's next.

    `before` and `after` hold every file's content by its path; `searches` the answers of Kafka's tool for each of `TIMES`.
    """

    how: str
    directory: Path
    by_pylog: dict[str, list[Record]]
    ends_by_pylog: dict[str, dict[int, tuple[int, int]]]
    before: dict[str, bytes]
    consumed: dict[str, list[Record]]
    offsets: dict[str, dict[int, tuple[int, int]]]
    searches: list[ToolResult]
    output: str
    after: dict[str, bytes]


@pytest.fixture(scope="module", params=["closed", "killed"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_jars: KafkaJars) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp(request.param) / "data"
    if request.param == "closed":
        write_topics(directory)
    else:
        program = [sys.executable, "-m", interop_data.__name__, str(directory)]
        assert subprocess.run(program, env=own_environment(), check=False).returncode == -9, "the writer was to kill itself"
    assert (directory / ".kafka_cleanshutdown").exists() == (request.param == "closed")
    with pylog.open(directory, mode="r") as store:
        by_pylog = {topic: read(store, topic) for topic in TOPICS}
        ends_by_pylog = {topic: ends(store, topic) for topic in TOPICS}
    adopt(directory, adopted(directory))
    before = files(directory)
    blank = [path for path, data in before.items() if path.endswith(".log") and data.endswith(bytes(1000))]
    assert bool(blank) == (request.param == "killed"), "zeros that were written ahead"
    with Broker(directory, kafka_jars, config=PATIENT) as broker:
        yield Served(
            how=request.param,
            directory=directory,
            by_pylog=by_pylog,
            ends_by_pylog=ends_by_pylog,
            before=before,
            consumed={topic: broker.consume_all(topic, config=CONSUMER) for topic in TOPICS},
            offsets={topic: broker.offsets(topic) for topic in TOPICS},
            searches=[broker.run_tool("get-offsets", "--time", str(time)).check() for time in TIMES],
            output=stopped(broker),
            after=files(directory),
        )


def stopped(broker: Broker) -> str:
    broker.stop()
    return broker.output()


@pytest.mark.parametrize("topic", TOPICS)
def test_a_consumer_gets_exactly_the_records_that_were_written(served: Served, topic: str) -> None:
    expected = TOPICS[topic].expected()
    assert served.by_pylog[topic] == expected
    assert served.consumed[topic] == expected


def test_the_brokers_start_and_end_offsets_are_those_of_pylog(served: Served) -> None:
    assert served.offsets == served.ends_by_pylog


def test_a_search_by_time_is_answered_alike_by_the_broker_and_by_pylog(served: Served) -> None:
    with pylog.open(served.directory, mode="r") as store:
        for time, answer in zip(TIMES, served.searches, strict=True):
            found = {
                f"{topic}:{partition}:{at.offset}"
                for topic, written in TOPICS.items()
                for partition in range(written.partitions)
                if (at := store.log(topic, partition).offset_for_timestamp(time)) is not None
            }
            assert set(answer.stdout.split()) == found


def test_the_broker_has_nothing_to_say_against_the_directory(served: Served) -> None:
    """But that zeros are no messages, where a killed process had written them ahead: there it cuts."""
    said = complaints(served.output)
    found = [match for line in said if (match := re.search(r"invalid messages in log segment (\S+) at byte offset (\d+)", line))]
    cut = {str(Path(match[1]).relative_to(served.directory)): int(match[2]) for match in found}
    about_mended = "Corruption found in segment 0, truncating to offset 12"  # said of one that had an index, too
    assert [line for line in said if "invalid messages" not in line and about_mended not in line] == []
    assert bool(cut) == (served.how == "killed")
    for path, position in cut.items():
        assert not any(served.before[path][position:])
        assert len(served.after[path]) == position
    assert "stray" not in served.output
    believed = "Skipping recovery of .* since clean shutdown file was found"
    assert bool(re.search(believed, served.output)) == (served.how == "closed")


def test_the_broker_trusts_the_indexes_of_a_closed_store_and_leaves_every_file_as_it_was(served: Served) -> None:
    """After a kill it makes all indexes again: those of sealed segments come out as they were. Zeros behind a log it cuts off."""
    changed = ours(path for path, data in served.before.items() if not is_the_same(path, data, served.after.get(path)))
    if served.how == "killed":
        assert [path for path in changed if not re.fullmatch("mended-0/0+\\.(time)?index", path)] == [], (
            "written by an earlier close"
        )
    else:
        assert changed == []
        made = ours(set(served.after) - set(served.before))
        assert [path for path in made if not path.startswith(("nothing-", "spread-3/"))] == [], "made in empty partitions only"


def is_the_same(path: str, before: bytes, after: bytes | None) -> bool:
    """Whether a file is what it was, or a log without the zeros that were behind it."""
    if after is None or not path.endswith(".log"):
        return before == after
    return before.startswith(after) and not any(before[len(after) :])


def test_the_broker_removes_and_renames_nothing_of_pylogs_own(served: Served) -> None:
    written = {f"{topic}-{partition}" for topic, each in TOPICS.items() for partition in range(each.partitions)}
    own = {"pylog.json", "pylog.lock"}
    own |= {f"{name}/durable-point" for name in written if not name.startswith("nothing-") and name != "spread-3"}
    own |= {f"{name}/partition.metadata" for name in written}
    own |= {"mended-0/00000000000000000000.torn.0"}
    assert {path: served.after.get(path) for path in own} == {path: served.before[path] for path in own}
    assert {path.name for path in served.directory.iterdir() if path.is_dir()} == written | KAFKAS_OWN


def test_pylog_takes_the_directory_back_reads_the_same_and_goes_on(served: Served, tmp_path: Path) -> None:
    directory = shutil.copytree(served.directory, tmp_path / "data")
    with pylog.open(directory) as store:
        assert {topic: read(store, topic) for topic in TOPICS} == served.by_pylog
        for topic, written in TOPICS.items():
            for partition in range(written.partitions):
                log = store.log(topic, partition)
                assert log.append_many(rows_of(3)) == range(log.end_offset - 3, log.end_offset)
            assert len(read(store, topic)) == len(served.by_pylog[topic]) + 3 * written.partitions
        assert [finding for finding in store.recovery_report if finding.kind != "rebuilt"] == []


# ---- Kafka's dump tool -------------------------------------------------------------------------------------------------------

RECORD = re.compile(r"(?m)^\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) .*? headerKeys: \[(.*?)\]")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dumped") / "data"
    write_topics(directory)
    return directory


@pytest.fixture
def dump(closed: Path, kafka_jars: KafkaJars):
    """Runs the tool on all files of some kinds: one JVM for hundreds of files."""

    def run(*arguments: str, suffixes: tuple[str, ...]) -> ToolResult:
        names = sorted(path for suffix in suffixes for path in closed.glob(f"*/*{suffix}"))
        assert len(names) > 20
        return Broker(closed, kafka_jars).run_tool("dump-log", *arguments, "--files", ",".join(map(str, names))).check()

    return run


def test_the_dump_tool_finds_every_batch_valid_and_every_record_in_its_place(closed: Path, dump) -> None:
    result = dump("--deep-iteration", "--print-data-log", suffixes=(".log",))
    assert faults(result) == []
    assert sorted(RECORD.findall(result.stdout)) == sorted(
        (
            str(record.offset),
            record.timestamp_type,
            str(record.timestamp),
            str(size(record.key)),
            str(size(record.value)),
            ",".join(name for name, _ in record.headers),
        )
        for topic in TOPICS.values()
        for record in topic.expected()
    )


def size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def test_the_dump_tool_finds_that_index_entries_and_batches_agree(dump) -> None:
    """Without an option for it, the tool looks up every entry of an index in the `.log` beside it."""
    for arguments in ((), ("--verify-index-only",)):
        result = dump(*arguments, suffixes=(".index", ".timeindex"))
        assert faults(result) == []
        if not arguments:
            assert len(re.findall(r"^offset: \d+ position: \d+$", result.stdout, re.MULTILINE)) > 50
            assert len(re.findall(r"^timestamp: \d+ offset: \d+$", result.stdout, re.MULTILINE)) > 50


def test_the_dump_tools_sanity_check_passes_every_index(closed: Path, dump) -> None:
    result = dump("--index-sanity-check", suffixes=(".index", ".timeindex"))
    assert faults(result) == []
    judged = {path for path, _ in re.findall(r"^(/.*index) (passed sanity check|is empty)\.$", result.stdout, re.MULTILINE)}
    assert judged == {str(path) for path in closed.glob("*/*index")}
