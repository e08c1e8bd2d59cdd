"""Programs that other people wrote for kafka-python, run unmodified on the layer from checkouts of their repositories.

    python -m support.others --programs DIR [--broker HOST:PORT]

DIR has a folder for each repository, named like it. A program whose folder is missing, or whose own packages are not
installed, is reported as not run. With a broker, the programs that can be told its address run on it, too, with the real
packages, and must print the same lines.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from support.others.suites import PROJECT

_CONFIG: Final = """
brokers:
  - {ip: 127.0.0.1, port: "9092"}
ssl_config: {ssl_cafile: /nowhere/ca, ssl_certfile: /nowhere/crt, ssl_keyfile: /nowhere/key}
"""

_SEND: Final = """
import sys
from kafka import KafkaProducer
with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
    producer.send("test", b"x", key=sys.argv[1].encode()).get(30)
"""

_LOG: Final = """
import json, logging
from kafka import KafkaConsumer
from kafka_logger.handlers import KafkaLoggingHandler
handler = KafkaLoggingHandler("localhost:9092", "logs", security_protocol="PLAINTEXT", flush_interval=0.2)
logger = logging.getLogger("shop")
logger.addHandler(handler)
logger.warning("paid %d", 5)
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("failed")
handler.close()
options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 500}
for message in KafkaConsumer("logs", bootstrap_servers="localhost:9092", **options):
    print(json.loads(message.value)["message"])
"""

_TRACED: Final = """
import sys
sys.path.insert(0, "instrumentation/opentelemetry-instrumentation-kafka-python/src")
from kafka import KafkaConsumer, KafkaProducer
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
KafkaInstrumentor().instrument(tracer_provider=provider)
with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
    producer.send("orders", b"paid", headers=[("shop", b"1")]).get(30)
options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 500}
for message in KafkaConsumer("orders", bootstrap_servers="localhost:9092", **options):
    print([name for name, _ in message.headers])
send, receive = spans.get_finished_spans()
print(send.name, receive.name, send.context.trace_id == receive.context.trace_id)
"""


class Program(NamedTuple):
    """A program of others.

    Attributes:
        repository: on GitHub.
        commit: that was run.
        what: it is.
        needs: the modules of its own that must be installed.
        run: runs it in a folder; raises AssertionError if it does not do what it does with a broker.
    """

    repository: str
    commit: str
    what: str
    needs: tuple[str, ...]
    run: Callable[[Run], None]


class Run:
    """Runs the files of a checkout on one store.

    Args:
        folder: the checkout.
        work: a new directory.
        broker: the address of a broker to compare with, or None.
    """

    def __init__(self, folder: Path, work: Path, broker: str | None) -> None:
        self.folder = folder
        self.work = work
        self.broker = broker

    def compared(self, *arguments: str) -> str:
        """Runs a file on the layer, and with the real packages on the broker, if there is one. Its last argument is the address.

        Returns what it prints on the layer.

        Raises:
            AssertionError: it prints something else on the broker.
        """
        found = self.output(*arguments, "layer:9092")
        if self.broker is not None:
            command = [sys.executable, *arguments, self.broker]
            real = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
            assert real.returncode == 0, real.stderr
            assert found == real.stdout, f"on the layer:\n{found}\non the broker:\n{real.stdout}"
        return found

    def output(
        self,
        *arguments: str,
        given: str = "",
        interrupt_after: float | None = None,
        ready: str = "Starting polling loop",
        fails: bool = False,
    ) -> str:
        """Runs `python -m pylog.compat` with arguments. Returns what it prints.

        Args:
            arguments: a file of the checkout, and its arguments; or `-m`, a module, and its arguments.
            given: its standard input.
            interrupt_after: seconds after the text `ready` until it gets Ctrl-C; None lets it end by itself.
            ready: see above.
            fails: true if it must end with an error, which is returned, too.
        """
        command = [sys.executable, "-u", "-m", "pylog.compat", "--directory", str(self.work / "store"), *arguments]
        paths = [str(self.folder), str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")]
        started = subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert started.stdin is not None
        first = ""
        if interrupt_after is not None:
            assert started.stdout is not None
            while ready not in first:
                line = started.stdout.readline()
                assert line, started.communicate()[1]
                first += line
            _after(interrupt_after, started)
        out, err = started.communicate(given or None, timeout=120)
        assert (started.returncode == 1) if fails else started.returncode in (0, -signal.SIGINT), out + err
        return first + out + (err if fails else "")


def _after(seconds: float, started: subprocess.Popen[str]) -> None:
    threading.Timer(seconds, started.send_signal, [signal.SIGINT]).start()


def _example(run: Run) -> None:
    for _ in range(2):
        found = run.output("example.py")
        for value in ("value=b'test'", r"value=b'\xc2Hola, mundo!'"):
            assert found.count(value) >= 8, found


def _clickhouse(run: Run) -> None:
    tools = "utils/kafka/"
    assert "'error_code': 0" in run.output(tools + "manage.py", "--create", "events")
    sent = run.output(tools + "produce.py", "--topic", "events", "--repeat", "10", given="hello")
    assert sent.count("sent a message") == 10, sent
    assert run.output(tools + "consume.py", "--topic", "events", "--group", "g").count("value=b'hello'") == 10
    status = run.output(tools + "status.py")
    assert 'Topic "events": 0 (begin: 0, end: 10)' in status, status
    assert "events[0]: 0, 10, 10" in status, status
    assert "'error_code': 0" in run.output(tools + "manage.py", "--delete", "events")


def _listening(run: Run) -> None:
    config = run.work / "config.yaml"
    config.write_text(_CONFIG)
    producer = ("python/producer.py", "--config", str(config))
    consumer = ("python/consumer.py", "--config", str(config))

    def check(expected: int, *arguments: str) -> None:
        found = run.output(*consumer, *arguments, interrupt_after=5)
        assert len(re.findall(r"^Offset ", found, re.MULTILINE)) == expected, found

    run.output(*producer, "--create_keys", "--wait")
    check(10)
    check(0)
    run.output(*consumer, "--reset")
    check(10, "--no_commit")
    check(10, "--disable_auto_commit", "--max_poll_records", "5")
    check(0)


def _queue(run: Run) -> None:
    found = run.output("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert re.search(r"20 passed", found), found


def _of_text(run: Run, text: str) -> str:
    """Runs a short program that uses the checkout. Returns what it prints."""
    program = run.work / "program.py"
    program.write_text(text)
    return run.output(str(program))


def _log_handler(run: Run) -> None:
    found = _of_text(run, _LOG)
    assert found == "paid 5\nfailed\n", found


def _traced(run: Run) -> None:
    found = _of_text(run, _TRACED)
    assert found == "['shop', 'traceparent']\norders send orders receive True\n", found


def _examples_of_aiokafka(run: Run) -> None:
    sent = re.findall(r"^(\d+) messages sent to partition", run.output("examples/batch_produce.py"), re.MULTILINE)
    assert sum(map(int, sent)) == 1000, sent
    for example in ("simple_produce", "idempotent_produce"):
        found = run.output(f"examples/{example}.py", interrupt_after=3, ready="RecordMetadata")
        assert len(re.findall(r"offset=\d+", found)) >= 2, found
    found = run.output("examples/transactional_produce.py", given="\n", fails=True)
    assert "ValueError" in found, found


def _event_source(run: Run) -> None:
    plugin = run.folder / "extensions/eda/plugins/event_source/kafka.py"
    found = run.compared(str(Path(__file__).with_name("event_source.py")), str(plugin))
    assert found.count('"host": "h0"') == found.count('"body": "no JSON"') == 5, found
    assert '"source_offset": "eda-cpu:0:2"' in found.partition("again")[2], found


def _local_state(run: Run) -> None:
    """Its records are counted in files, from which it goes on after a restart; without them it begins again."""
    example, states = "examples/local_state_consumer.py", list(Path("/tmp").glob("my-partition-state-test-*.json"))
    assert not states, f"remove {states}: files of an earlier run"
    producer = run.work / "send.py"
    producer.write_text(_SEND)
    try:
        run.output(str(producer), "first")
        for expected in (["first"], [], ["second"]):
            found = run.output(example, interrupt_after=3, ready="Assigned")
            assert re.findall(r"^Process .* (\w+)$", found, re.MULTILINE) == expected, found
            if not expected:
                run.output(str(producer), "second")
    finally:
        for state in Path("/tmp").glob("my-partition-state-test-*.json"):
            state.unlink()


PROGRAMS: Final = (
    Program("dpkp/kafka-python", "a3b3836", "example.py: a producer and a consumer in threads", (), _example),
    Program("ClickHouse/ClickHouse", "3389561", "utils/kafka: topics, a pool of senders, a group, a status", (), _clickhouse),
    Program(
        "christianb93/kafka",
        "57b39af",
        "python: a producer and a consumer with a listener, ended by Ctrl-C",
        ("yaml",),
        _listening,
    ),
    Program(
        "aio-libs/aiokafka",
        "672947a",
        "examples: batches, sends ended by Ctrl-C, an aborted transaction",
        (),
        _examples_of_aiokafka,
    ),
    Program("aio-libs/aiokafka", "672947a", "examples/local_state_consumer.py: a listener that seeks", (), _local_state),
    Program(
        "ansible/event-driven-ansible",
        "8a96752",
        "extensions/eda/plugins/event_source/kafka.py: topics, a pattern, confirmed events",
        ("aiohttp", "fastavro", "yaml"),
        _event_source,
    ),
    Program("joowani/kq", "2.2.1", "a job queue: its own 20 tests", ("dill",), _queue),
    Program("redhat-aqe/kafka-logging-handler", "0.2.5", "a handler of logging, with a timer and an exit hook", (), _log_handler),
    Program(
        "open-telemetry/opentelemetry-python-contrib",
        "v0.66b1",
        "instrumentation of kafka-python: wraps send and __next__, adds a header",
        ("opentelemetry", "wrapt"),
        _traced,
    ),
)


def main(folder: Path, broker: str | None) -> int:
    """Runs the programs, and prints a line for each. Returns the exit code.

    Args:
        folder: has the checkouts.
        broker: the address of a broker to compare with, or None.
    """
    is_right = True
    for program in PROGRAMS:
        state = _state(program, folder / program.repository.rpartition("/")[2], broker)
        is_right = is_right and not state.startswith("failed")
        print(f"{program.repository} {program.commit}\t{program.what}\t{state}")
    return 0 if is_right else 1


def _state(program: Program, folder: Path, broker: str | None) -> str:
    if not folder.is_dir():
        return f"not run: clone https://github.com/{program.repository} to {folder}"
    missing = [name for name in program.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"not run: install {', '.join(missing)}"
    with tempfile.TemporaryDirectory() as work:
        try:
            program.run(Run(folder, Path(work), broker))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return "failed: " + " ".join(str(error).split())[-300:]
    return "passed"
