"""A real Apache Kafka broker for tests: fetch it, start it on a directory, talk to it, kill it.

    jars = KafkaJars.fetch(Path("~/.cache/kafka").expanduser())    # Maven, once
    with Broker(tmp_path / "data", jars) as broker:                # formats an empty directory, opens a formatted one
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", [Message(b"paid", key=b"42", partition=0)], compression="zstd")
        records = broker.consume_all("orders", isolation="read_committed")
        print(broker.run_tool("get-offsets", "--topic", "orders").stdout)
        broker.stop()                                              # clean; or broker.kill(), as power loss to the process
        broker.run_tool("dump-log", "--files", str(broker.log_dir / "orders-0/00000000000000000000.log"))

A directory that another program wrote is handed to a broker with `support.kafka.adopt` before the first start.
Needs Java 17 (java, javac) and, for the first fetch, Maven. Standard library only.

In tests/:

    python3 -m support.kafka.harness fetch DIRECTORY       # the jars and the compiled client, unless they are there
    python3 -m support.kafka.harness selftest DIRECTORY    # every function of this module once, 20 s
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from support.kafka.adopt import NODE_ID, AdoptedTopic, adopt, batch, new_uuid

HERE = Path(__file__).resolve().parent
KAFKA_VERSION = "4.3.0"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 60.0

TOOLS = {  # kafka-<name>.sh -> class
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}
OFFLINE_TOOLS = {"dump-log", "storage"}  # these take no --bootstrap-server from us
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")  # settings of the JVM that make later work slow

LOG4J = """status = error
appender.c.type = Console
appender.c.name = C
appender.c.target = SYSTEM_{target}
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.c.ref = C
"""


class KafkaError(Exception):
    """Kafka, or what is needed to run it, did not do what was asked."""


def find_program(name: str) -> str:
    """The path of `name`, or an error that says what it is for."""
    found = shutil.which(name)
    if found is None:
        needs = {"mvn": "Maven fetches Kafka's jars (only the first time)", "javac": "a JDK 17 compiles the test client"}
        raise KafkaError(f"`{name}` is not on PATH: {needs.get(name, 'Java 17 runs the broker')}")
    return found


# ---- the jars ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KafkaJars:
    """One directory with Kafka's jars, the compiled KafkaProbe and the logger's settings; and how its JVMs are tuned."""

    directory: Path
    tuning: tuple[str, ...] = QUICK_START
    more: str = ""  # what else is on the class path

    @classmethod
    def fetch(cls, directory: Path, version: str = KAFKA_VERSION) -> KafkaJars:
        """Downloads through Maven and compiles into `directory/<version>`, unless a finished copy is there. About 100 jars."""
        target = directory / version
        if not (target / "complete").exists():
            target.mkdir(parents=True, exist_ok=True)
            goal = [f"-Dkafka.version={version}", f"-DoutputDirectory={target / 'libs'}", "dependency:copy-dependencies"]
            logger = "-DexcludeArtifactIds=slf4j-reload4j"  # of Kafka 3: it would take the place of the one in pom.xml
            run_or_raise([find_program("mvn"), "-q", "-B", "-f", str(HERE / "pom.xml"), logger, *goal], "fetching Kafka's jars")
        return cls(target).prepare()

    def prepare(self) -> KafkaJars:
        """Compiles the probe and writes the logger's settings; for a directory whose `libs` holds the jars already."""
        probe = self.directory / "probe"
        source = HERE / "KafkaProbe.java"
        compiled = probe / "KafkaProbe.class"
        if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
            probe.mkdir(parents=True, exist_ok=True)
            (probe / "broker-log4j2.properties").write_text(LOG4J.format(target="OUT", level="INFO"))
            (probe / "client-log4j2.properties").write_text(LOG4J.format(target="ERR", level="WARN"))
            javac = [find_program("javac"), "-nowarn", "-cp", f"{self.directory}/libs/*", "-d", str(probe), str(source)]
            run_or_raise(javac, "compiling KafkaProbe.java")
        (self.directory / "complete").touch()
        return self

    def with_tier(self) -> KafkaJars:
        """The same with Kafka's own `LocalTieredStorage`, a class of its tests; fetched by Maven the first time."""
        target = self.directory / "tier"
        if not (target / "complete").exists():
            plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
            for name in ("kafka-storage", "kafka-clients"):
                artifact = f"-Dartifact=org.apache.kafka:{name}:{self.directory.name}:jar:test"
                command = [find_program("mvn"), "-q", "-B", plugin, artifact, f"-DoutputDirectory={target}"]
                run_or_raise(command, "fetching Kafka's tiered storage for tests")
            (target / "complete").touch()
        return replace(self, more=f"{os.pathsep}{target}/*")

    def java(self, main: str, *arguments: str, logging: str = "client", heap_mib: int = 256) -> list[str]:
        """The command line for one of Kafka's main classes; what `tuning` says of the heap goes before `heap_mib`."""
        classpath = f"{self.directory}/libs/*{os.pathsep}{self.directory / 'probe'}{self.more}"
        log4j = f"-Dlog4j2.configurationFile={self.directory / 'probe' / logging}-log4j2.properties"
        return [find_program("java"), f"-Xmx{heap_mib}m", *self.tuning, log4j, "-cp", classpath, main, *arguments]


def run_or_raise(command: Sequence[str], doing: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise KafkaError(f"{doing} failed with exit status {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")


# ---- records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """What a producer sends. Without a partition Kafka's partitioner chooses; without a timestamp the clock does."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True)
class Record:
    """What a consumer sees."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


def encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def record_of(row: dict[str, Any]) -> Record:
    """A record as the probe prints it."""
    headers = tuple((name, decode(value)) for name, value in row["headers"])
    return Record(**{**row, "key": decode(row["key"]), "value": decode(row["value"]), "headers": headers})


class Probe:
    """The client JVM: KafkaProbe.java at the other end of two pipes. Costs a second to start, milliseconds a request."""

    def __init__(self, jars: KafkaJars) -> None:
        self._process = subprocess.Popen(
            jars.java("KafkaProbe"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._pumping = threading.Thread(target=self._pump, daemon=True)
        self._pumping.start()

    def _pump(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put('{"error": "the client JVM has ended"}')

    def request(self, op: str, **arguments: Any) -> list[dict[str, Any]]:
        """The result rows of one request. Raises KafkaError with Kafka's own error, or on silence."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        rows: list[dict[str, Any]] = []
        while True:
            try:
                row = json.loads(self._lines.get(timeout=REQUEST_TIMEOUT_S))
            except queue.Empty:
                self.close()
                raise KafkaError(f"no answer to `{op}` within {REQUEST_TIMEOUT_S:.0f} s") from None
            if "error" in row:
                raise KafkaError(f"{op}: {row['error']}")
            if "done" in row:
                return rows
            rows.append(row)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._pumping.join()
        with contextlib.suppress(BrokenPipeError):  # a request that the killed JVM did not take
            self._process.communicate()


# ---- the broker --------------------------------------------------------------------------------------------------------


PORTS = range(15_000, 32_000)  # below those that systems give to outgoing connections: one of these took a port before its broker


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


class Broker:
    """One node, broker and controller, on one log directory. A context manager: started on entry, killed on exit.

    `config` adds to or replaces lines of server.properties. server.properties and the broker's output lie beside the log
    directory, as `<log_dir>.properties` and `<log_dir>.out`.
    """

    def __init__(
        self, log_dir: Path, jars: KafkaJars, *, port: int | None = None, config: Mapping[str, str] | None = None
    ) -> None:
        self.log_dir = log_dir
        self.jars = jars
        self.port = port or free_port()
        self.controller_port = port + 1 if port else free_port()
        self.config = dict(config or {})
        self._side = log_dir.parent
        self._output = self._side / f"{log_dir.name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._probe: Probe | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def start(self, *, wait: bool = True) -> Self:
        """Formats the directory if it has no meta.properties, starts the broker and waits until it serves.

        Raises KafkaError with the end of the broker's output if it gives up.
        """
        if self.running:
            raise KafkaError("the broker is running")
        properties = self._write_properties()
        if not (self.log_dir / "meta.properties").exists():
            self.run_tool("storage", "format", "-t", new_uuid(), "-c", str(properties)).check()
        command = self.jars.java("kafka.Kafka", str(properties), logging="broker", heap_mib=512)
        with self._output.open("wb") as sink:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
        if wait:
            try:
                self.wait_for("Kafka Server started")
            except KafkaError:
                self.kill()
                raise
        return self

    def stop(self) -> None:
        """A clean shutdown (SIGTERM), waited for."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9. The page cache survives, the clean-shutdown marker is not written."""
        self._end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        """What the broker of the latest start has logged."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def wait_for(self, pattern: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """Waits for a line of the log that matches the regular expression, and returns it."""
        deadline = time.monotonic() + timeout_s
        while True:
            alive = self.running
            for line in self.output().splitlines():
                if re.search(pattern, line):
                    return line
            if not alive or time.monotonic() > deadline:
                why = f"did not log {pattern!r} within {timeout_s:.0f} s" if alive else "has ended"
                raise KafkaError(f"the broker on {self.log_dir} {why}:\n{self.output()[-4000:]}")
            time.sleep(0.05)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise KafkaError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s:\n{self.output()[-4000:]}") from None
        finally:
            self._process = None

    def _write_properties(self) -> Path:
        listener, controller = f"PLAINTEXT://{self.bootstrap}", f"CONTROLLER://127.0.0.1:{self.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self.controller_port}",
            "listeners": f"{listener},{controller}",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "2000",  # after kill -9 the next start waits for the old session to end
            "broker.heartbeat.interval.ms": "500",
            **self.config,
        }
        self._side.mkdir(parents=True, exist_ok=True)
        path = self._side / f"{self.log_dir.name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def request(self, op: str, **arguments: Any) -> list[dict[str, Any]]:
        """One request to the client JVM, which starts with the first."""
        if self._probe is None or not self._probe.alive:
            self._probe = Probe(self.jars)
        return self._probe.request(op, bootstrap=self.bootstrap, **arguments)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.request("create-topic", topic=topic, partitions=partitions, config=dict(config or {}))

    def delete_topic(self, topic: str) -> None:
        self.request("delete-topic", topic=topic)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.request("delete-records", topic=topic, partition=partition, before=before)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The log start and the high watermark of each partition."""
        return {row["partition"]: (row["start"], row["end"]) for row in self.request("offsets", topic=topic)}

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        compression: str = "none",
        transactional_id: str | None = None,
        transaction: Literal["commit", "abort", "leave open"] = "commit",
        config: Mapping[str, str] | None = None,
    ) -> list[tuple[int, int]]:
        """Sends, waits for the acknowledgements, returns (partition, offset) of each message."""
        settings = {"compression.type": compression, **(config or {})}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        records = [
            {
                "partition": message.partition,
                "timestamp": message.timestamp,
                "key": encode(message.key),
                "value": encode(message.value),
                "headers": [[name, encode(value)] for name, value in message.headers],
            }
            for message in messages
        ]
        rows = self.request("produce", topic=topic, config=settings, transaction=transaction, records=records)
        return [(row["partition"], row["offset"]) for row in rows]

    def consume_all(
        self,
        topic: str,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        *,
        config: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> list[Record]:
        """Every record from the log start to the end at the time of the call (read_committed: to the last stable offset)."""
        rows = self.request(
            "consume", topic=topic, isolation=isolation, config=dict(config or {}), timeout_ms=int(timeout_s * 1000)
        )
        records = [record_of(row) for row in rows]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def consume_in_group(
        self,
        group: str,
        topic: str,
        count: int,
        *,
        member: str = "member",
        leave: bool = True,
        config: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> list[Record]:
        """Reads as a member of a group until `count` records have come, and a moment longer; commits.

        Without `leave` the member stays in the group, and goes on when it is asked again, also after the broker was stopped.
        """
        rows = self.request(
            "consume-in-group",
            group=group,
            topic=topic,
            count=count,
            member=member,
            leave=leave,
            config=dict(config or {}),
            timeout_ms=int(timeout_s * 1000),
        )
        return [record_of(row) for row in rows]

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits offsets of a group without members, through the admin API."""
        self.request("commit", group=group, topic=topic, offsets={str(key): value for key, value in offsets.items()})

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        return {(row["topic"], row["partition"]): row["offset"] for row in self.request("committed", group=group)}

    def run_tool(self, tool: str, *arguments: str, stdin: str | None = None) -> ToolResult:
        """Runs one of Kafka's command-line tools (`TOOLS`) in its own JVM, against this broker if it needs one."""
        target = [] if tool in OFFLINE_TOOLS else ["--bootstrap-server", self.bootstrap]
        command = self.jars.java(TOOLS[tool], *target, *arguments)
        done = subprocess.run(
            command, check=False, input=stdin or "", capture_output=True, text=True, timeout=2 * REQUEST_TIMEOUT_S
        )
        return ToolResult(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class ToolResult:
    status: int
    stdout: str
    stderr: str

    def check(self) -> ToolResult:
        if self.status != 0:
            raise KafkaError(f"the tool ended with status {self.status}:\n{self.stdout}{self.stderr}")
        return self


# ---- selftest ----------------------------------------------------------------------------------------------------------


def selftest(cache: Path) -> None:
    """Every function once: a fresh broker, a clean and an unclean restart, a directory adopted from Python."""

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

    began = time.monotonic()
    jars = KafkaJars.fetch(cache)
    say(f"jars in {jars.directory}")
    with tempfile.TemporaryDirectory() as scratch:
        with Broker(Path(scratch) / "data", jars) as broker:
            say("fresh broker is up")
            broker.create_topic("t", partitions=2, config={"retention.ms": "-1"})
            sent = [
                Message(b"v%d" % i, key=b"k", headers=(("h", None), ("h", b"1")), timestamp=1000 + i, partition=i % 2)
                for i in range(10)
            ]
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                broker.produce("t", sent, compression=codec)
            broker.produce("t", [Message(None, partition=0)], transactional_id="a", transaction="abort")
            broker.produce("t", [Message(b"", partition=0)], transactional_id="a", transaction="commit")
            committed = broker.consume_all("t", "read_committed")
            assert len(committed) == 51 and len(broker.consume_all("t")) == 52, committed
            assert committed[0] == Record(0, 0, 1000, "CreateTime", b"k", b"v0", (("h", None), ("h", b"1")), 0), committed[0]
            assert broker.offsets("t") == {0: (0, 29), 1: (0, 25)}, broker.offsets("t")
            say("produced with five codecs and two transactions, consumed")
            broker.commit("g", "t", {0: 5, 1: 6})
            assert broker.committed("g") == {("t", 0): 5, ("t", 1): 6}
            broker.delete_records("t", 1, before=3)
            say("committed offsets, deleted records")
            assert broker.run_tool("get-offsets", "--topic", "t", "--time", "earliest").check().stdout == "t:0:0\nt:1:3\n"
            say("get-offsets")
            broker.stop()
            assert (broker.log_dir / ".kafka_cleanshutdown").exists()
            broker.start()
            assert broker.consume_all("t", "read_committed")[:25] == committed[:25]
            say("clean restart")
            broker.kill()
            assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
            broker.start()
            assert len(broker.consume_all("t")) == 52 - 3
            broker.delete_topic("t")
            say("restart after kill -9, topic deleted")

        data = Path(scratch) / "adopted"
        (data / "made-0").mkdir(parents=True)
        (data / "made-0" / f"{0:020d}.log").write_bytes(batch(0, [(b"k", b"v"), (None, None)]) + batch(7, [(b"k", b"")]))
        adopt(data, [AdoptedTopic("made", 1)])
        with Broker(data, jars) as broker:
            seen = [(record.offset, record.key, record.value) for record in broker.consume_all("made")]
            assert seen == [(0, b"k", b"v"), (1, None, None), (7, b"k", b"")], seen
            say("a directory made by Python, adopted by a fresh broker")
        try:
            (data / "lost+found").mkdir()
            Broker(data, jars).start()
        except KafkaError as error:
            assert "is not in the form of topic-partition" in str(error), error
            say("a broker that gives up is reported with its log")
    print("ok")


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["fetch", directory]:
            KafkaJars.fetch(Path(directory).resolve())
        case ["selftest", directory]:
            selftest(Path(directory).resolve())
        case _:
            raise KafkaError("usage: harness.py fetch|selftest DIRECTORY")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KafkaError as problem:
        sys.exit(str(problem))
