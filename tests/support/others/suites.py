"""The suites of others: where their tests come from, which files are run, and why the other files are not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("OTHERS_CACHE", PROJECT / ".cache" / "others"))

NETWORK: Final = "the network: connections, wire protocol, TLS, SASL"
AIO_INSIDES: Final = "aiokafka's private classes; pylog's engine takes their place"
INSIDES: Final = "kafka-python's private classes; pylog's engine takes their place"
MOCKED: Final = "a client over a simulated broker: the test scripts the protocol's answers"
_OLD: Final = {
    "test_api_object_implementation.py": NETWORK,
    "test_client_async.py": NETWORK,
    "test_cluster.py": INSIDES,
    "test_conn.py": NETWORK,
    "test_coordinator.py": INSIDES,
    "test_fetcher.py": INSIDES,
    "test_assignors.py": INSIDES,
    "test_codec.py": "kafka-python's own codecs; pylog's are tested in tests/record",
    "test_metrics.py": "kafka-python's registry of metrics; the layer has the metrics of clients only",
    "test_object_conversion.py": NETWORK,
    "test_partition_movements.py": INSIDES,
    "test_protocol.py": NETWORK,
    "test_sender.py": INSIDES,
    "test_subscription_state.py": INSIDES,
}


class Suite(NamedTuple):
    """One version of kafka-python or of aiokafka.

    Attributes:
        name: of the suite in the table.
        version: of the source distribution on the package index; None for a checkout.
        files: below its folder of tests, that are run.
        left_out: the reason by file, or by folder, for those that are not.
        repository: on GitHub.
        folder: of the tests.
        helpers: files of theirs that the tests import; None if ours stand in their place.
        partitions: of a topic that is created on demand, as their broker is configured.
    """

    name: str
    version: str | None
    files: tuple[str, ...]
    left_out: dict[str, str]
    repository: str = "dpkp/kafka-python"
    folder: str = "test"
    helpers: tuple[str, ...] | None = None
    partitions: int = 4


_INTEGRATION: Final = (
    "integration/test_admin_integration.py",
    "integration/test_consumer_integration.py",
    "integration/test_producer_integration.py",
)
SUITES: Final = (
    Suite(
        "kafka-python 3.0.12",
        "3.0.12",
        ("test_future.py", "test_package.py", "test_serializer.py", "test_util.py", *_INTEGRATION),
        {
            "integration/test_sasl_integration.py": NETWORK,
            "integration/test_ssl_integration.py": NETWORK,
            "net": NETWORK,
            "test_cluster.py": INSIDES,
            "test_codec.py": _OLD["test_codec.py"],
            "test_metrics.py": _OLD["test_metrics.py"],
            "test_mock_broker.py": NETWORK,
        },
    ),
    Suite(
        "kafka-python a3b3836",
        None,
        (
            "admin/test_admin_acl.py",
            "admin/test_admin_client_config.py",
            "consumer/test_consumer.py",
            "producer/test_kip679_config.py",
            "producer/test_partitioner.py",
            "producer/test_producer.py",
            "test_future.py",
            "test_package.py",
            "test_serializer.py",
            "test_util.py",
            *_INTEGRATION,
        ),
        {
            "admin": MOCKED,
            "consumer": INSIDES,
            "integration/test_sasl_integration.py": NETWORK,
            "integration/test_ssl_integration.py": NETWORK,
            "net": NETWORK,
            "producer": INSIDES,
            "protocol": NETWORK,
            "record": "kafka-python's own record formats; pylog's are tested in tests/record",
            "test_cluster.py": INSIDES,
            "test_codec.py": _OLD["test_codec.py"],
            "test_metrics.py": _OLD["test_metrics.py"],
            "test_mock_broker.py": NETWORK,
        },
    ),
    Suite(
        "kafka-python 2.3.3",
        "2.3.3",
        (
            "test_acl_comparisons.py",
            "test_admin.py",
            "test_consumer.py",
            "test_package.py",
            "test_partitioner.py",
            "test_producer.py",
            "test_util.py",
            "integration/test_consumer_group.py",
            *_INTEGRATION,
        ),
        _OLD
        | {
            "integration/test_sasl_integration.py": NETWORK,
            "record": "kafka-python's own record formats; pylog's are tested in tests/record",
            "sasl": NETWORK,
            "test_producer_batch.py": INSIDES,
            "test_record_accumulator.py": INSIDES,
        },
    ),
    Suite(
        "kafka-python 2.0.2",
        "2.0.2",
        (
            "test_acl_comparisons.py",
            "test_admin.py",
            "test_admin_integration.py",
            "test_consumer.py",
            "test_consumer_group.py",
            "test_consumer_integration.py",
            "test_package.py",
            "test_partitioner.py",
            "test_producer.py",
        ),
        _OLD
        | {
            "record": "kafka-python's own record formats; pylog's are tested in tests/record",
            "test_sasl_integration.py": NETWORK,
        },
    ),
    Suite(
        "aiokafka 672947a",
        None,
        (
            "test_admin.py",
            "test_consumer.py",
            "test_helpers.py",
            "test_partitioner.py",
            "test_pep492.py",
            "test_producer.py",
            "test_transactional_consumer.py",
            "test_transactional_producer.py",
        ),
        {
            "coordinator": AIO_INSIDES,
            "record": "aiokafka's own record formats; pylog's are tested in tests/record",
            "test_client.py": NETWORK,
            "test_cluster.py": AIO_INSIDES,
            "test_codec.py": "aiokafka's own codecs; pylog's are tested in tests/record",
            "test_conn.py": NETWORK,
            "test_coordinator.py": AIO_INSIDES,
            "test_fetcher.py": AIO_INSIDES,
            "test_message_accumulator.py": AIO_INSIDES,
            "test_protocol.py": NETWORK,
            "test_protocol_object_conversion.py": NETWORK,
            "test_rack_awareness.py": NETWORK,
            "test_requests.py": NETWORK,
            "test_sasl.py": NETWORK,
            "test_sender.py": AIO_INSIDES,
            "test_subscription_state.py": AIO_INSIDES,
            "test_transaction_manager.py": AIO_INSIDES,
        },
        repository="aio-libs/aiokafka",
        folder="tests",
        helpers=("__init__.py", "_testutil.py"),
        partitions=2,
    ),
)


def fetched(suite: Suite, checkout: Path | None) -> Path:
    """Returns the folder of a suite's tests, fetched if it is not there yet. Exits with the reason if it cannot be.

    Args:
        suite: the suite.
        checkout: a clone of its repository, or None.
    """
    if suite.version is None:
        return _from_checkout(suite, checkout)
    folder = CACHE / suite.version
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        archive = _archive(suite.version) or _downloaded(suite.version)
        with tarfile.open(archive) as file:
            file.extractall(CACHE / "unpacking", filter="data")
        (made,) = (CACHE / "unpacking").iterdir()
        made.rename(folder)
        shutil.rmtree(CACHE / "unpacking")
    return folder / suite.folder


def _archive(version: str) -> Path | None:
    return next((each for each in sorted(CACHE.glob("kafka*.tar.gz")) if each.name.endswith(f"-{version}.tar.gz")), None)


def _downloaded(version: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(CACHE), f"kafka-python=={version}"], capture_output=True, text=True, check=False
    )
    found = _archive(version)
    if found is None:
        sys.exit(
            f"cannot fetch kafka-python {version} from the package index:\n{done.stderr.strip()}\n"
            f"Try again where the index is reached, or put its source distribution (.tar.gz) into {CACHE}."
        )
    return found


def _from_checkout(suite: Suite, checkout: Path | None) -> Path:
    commit = suite.name.rpartition(" ")[2]
    if checkout is None:
        sys.exit(f"the suite {suite.name!r} needs --checkout DIR: a clone of github.com/{suite.repository} that has {commit}")
    folder = CACHE / commit
    if not folder.exists():
        done = subprocess.run(["git", "-C", str(checkout), "archive", commit, suite.folder], capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{checkout} has no commit {commit}: {done.stderr.decode().strip()}")
        folder.mkdir(parents=True)
        subprocess.run(["tar", "x", "-C", str(folder)], input=done.stdout, check=True)
    return folder / suite.folder


def functions_of(file: Path) -> int:
    """Returns how many test functions a file has."""
    return len(re.findall(r"^\s*(?:async )?def test", file.read_text(), re.MULTILINE))
