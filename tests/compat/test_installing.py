"""`install`: unmodified programs, which store they mean, forks, and the real package."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

import pylog
from pylog.compat import clusters, modules
from support import warm

PROGRAM = """
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError, NoBrokersAvailable
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.structs import OffsetAndMetadata
    import kafka.producer.future, kafka.consumer.subscription_state, kafka.partitioner.default
    assert kafka.partitioner.default.DefaultPartitioner

    producer = KafkaProducer(bootstrap_servers="broker:9092", security_protocol="SASL_SSL", acks="all")
    for number in range(5):
        producer.send("orders", b"%d" % number, key=b"k")
    producer.flush()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=["broker:9092"], group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=0,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
    )
    print([message.value for message in consumer])
    consumer.close()
    producer.close()
"""
PRINTED = "[b'0', b'1', b'2', b'3', b'4']\n"


STRICT = ("-W", "error", "-W", "ignore:read_text:DeprecationWarning", "-W", "ignore:open_text:DeprecationWarning")


def run(program: str, tmp_path: Path, warnings: tuple[str, ...] = STRICT, **environment: str) -> subprocess.CompletedProcess[str]:
    mine = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}  # the tests of Spark set it
    return warm.run([*warnings, "-c", textwrap.dedent(program)], cwd=tmp_path, env=mine | environment)


def printed(program: str, tmp_path: Path, **environment: str) -> str:
    done = run(program, tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(arguments: str, program: str = PROGRAM) -> str:
    return f"import pylog.compat\npylog.compat.install({arguments})\n" + textwrap.dedent(program)


def test_an_unmodified_program_runs_after_one_line_and_its_records_are_in_the_directory(tmp_path: Path) -> None:
    assert printed(installed("'shop'"), tmp_path) == PRINTED
    with pylog.open(tmp_path / "shop") as store:
        assert store.log("orders").end_offset == 5
        assert store.offsets.position("g", ("orders", 0)) == 5


def test_a_program_runs_in_memory_and_writes_no_file(tmp_path: Path) -> None:
    assert printed(installed("'memory:'"), tmp_path) == PRINTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_environment_names_the_store_and_without_it_a_warning_names_the_default(tmp_path: Path) -> None:
    assert printed(installed(""), tmp_path, PYLOG_KAFKA="from-environment") == PRINTED
    done = run(installed(""), tmp_path, warnings=())
    assert done.stdout == PRINTED
    assert done.stderr.count(f"UserWarning: topics are in {tmp_path / 'pylog-kafka'}: no directory was named") == 1
    assert {each.name for each in tmp_path.iterdir()} == {"from-environment", "pylog-kafka"}


CLIENTS = {
    "kafka-python": "import pylog.compat.kafka as kafka\nkafka.KafkaProducer(bootstrap_servers='broker:9092')",
    "its admin client": "import pylog.compat.kafka as kafka\nkafka.KafkaAdminClient(bootstrap_servers='broker:9092')",
    "confluent-kafka": "import pylog.compat.confluent as kafka\nkafka.Producer({'bootstrap.servers': 'broker:9092'})",
}


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_that_turns_warnings_into_errors_gets_no_directory_that_it_did_not_name(tmp_path: Path, client: str) -> None:
    done = run(CLIENTS[client], tmp_path)
    assert "UserWarning: topics are in" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_two_clusters_are_two_directories(tmp_path: Path) -> None:
    program = """
        from kafka import KafkaConsumer, KafkaProducer
        for server in ("a:9092", "b:9092"):
            with KafkaProducer(bootstrap_servers=server) as producer:
                producer.send(server[0], b"x")
        with KafkaConsumer(bootstrap_servers=["b:9092"]) as consumer:
            print(consumer.topics())
    """
    assert printed(installed("'dir-a', clusters={'b:9092': 'dir-b'}", program), tmp_path) == "{'b'}\n"


def test_the_real_package_that_is_imported_already_is_refused_with_the_module_that_has_its_classes(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from kafka import KafkaProducer\n")
    program = """
        import shop
        import pylog.compat
        from pylog.errors import IllegalStateError
        try:
            pylog.compat.install("memory:")
        except IllegalStateError as error:
            print(error)
    """
    assert "shop have its classes" in printed(program, tmp_path)


def test_uninstall_closes_the_stores_and_brings_the_real_package_back(tmp_path: Path) -> None:
    program = """
        import pylog.compat
        pylog.compat.install("shop")
        import kafka
        producer = kafka.KafkaProducer()
        future = producer.send("orders", b"x")
        pylog.compat.uninstall()
        assert future.succeeded()
        import kafka
        print(kafka.__file__.replace("\\\\", "/").split("/")[-2:], kafka.KafkaProducer.__module__)
    """
    assert printed(program, tmp_path) == "['kafka', '__init__.py'] kafka.producer.kafka\n"


def test_modules_of_the_network_are_refused_in_words(tmp_path: Path) -> None:
    program = """
        names = "protocol conn client_async cluster cli net.compat record.util"
        for line in (
            *(f"import kafka.{name}" for name in names.split()),
            "from kafka.record import MemoryRecords",
            "from kafka.net import socks5_wrapper",
        ):
            try:
                exec(line)
            except ImportError as error:
                assert "has no network" in str(error), error
            else:
                raise AssertionError(line)
        from kafka.net.sasl.oauth import AbstractTokenProvider  # these two are named in programs without a network
        from kafka.record.abc import ABCRecord
        import kafka
        try:
            kafka.KafkaClient()
        except kafka.errors.UnsupportedVersionError as error:
            print("network" in str(error))
    """
    assert printed(installed("'memory:'", program), tmp_path) == "True\n"


@pytest.mark.slow
def test_a_forked_child_gives_up_the_parents_clients_and_opens_the_store_again(tmp_path: Path) -> None:
    program = """
        import os, sys
        from kafka import KafkaConsumer, KafkaProducer
        from kafka.errors import IllegalStateError, KafkaConfigurationError
        producer, consumer = KafkaProducer(), KafkaConsumer("orders")
        producer.send("orders", b"parent").get(60)
        pid = os.fork()
        if not pid:
            try:
                for call in (lambda: producer.send("orders", b"x"), lambda: consumer.poll(), consumer.topics):
                    try:
                        call()
                    except IllegalStateError:
                        continue
                    os._exit(1)
                try:
                    KafkaProducer().send("orders", b"child").get(60)
                except KafkaConfigurationError as error:
                    os._exit(7 if "name a directory" in str(error) else 1)
                os._exit(0)
            finally:
                os._exit(2)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        consumer.close(); producer.close()
        with KafkaConsumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=0) as again:
            print(len(list(again)))
    """
    assert printed(installed("'shop'", program), tmp_path) == "0\n2\n"
    assert printed(installed("'memory:'", program), tmp_path) == "7\n1\n"


def test_a_program_that_closes_nothing_leaves_its_records_and_a_clean_directory(tmp_path: Path) -> None:
    program = """
        from kafka import KafkaProducer
        producer = KafkaProducer(linger_ms=10_000)
        for number in range(1000):
            producer.send("orders", b"x")
    """
    printed(installed("'shop'", program), tmp_path)
    with pylog.open(tmp_path / "shop") as store:
        assert store.log("orders").end_offset == 1000
        assert store.check().ok
        assert not store.recovery_report


def test_every_module_is_importable_without_installing() -> None:
    import importlib

    for package, names in modules.OUR_MODULES.items():
        for name in names:
            assert importlib.import_module(f"pylog.compat.{package}.{name}")


def test_a_wrong_setting_is_refused() -> None:
    from pylog.compat.installing import install_only

    with pytest.raises(pylog.InvalidArgumentError, match="unknown setting directry"):
        install_only(("kafka",), None, {"directry": "x"})
    assert clusters.CLUSTERS.settings == clusters.ClusterSettings()


def test_modules_of_version_2_can_be_imported_where_six_is_not_installed(tmp_path: Path) -> None:
    program = """
        import pylog.compat
        pylog.compat.install("memory:")
        from kafka.admin.acl_resource import ACL
        from kafka.admin.config_resource import ConfigResource, ConfigResourceType
        from kafka.admin.new_partitions import NewPartitions
        from kafka.admin.new_topic import NewTopic
        from kafka.vendor import six
        from kafka.vendor.six.moves import range, urllib
        from kafka.vendor.six import iteritems, string_types, text_type
        assert six.PY3 and list(six.itervalues({"a": 1})) == list(range(1, 2))
        assert urllib.parse.urlparse("kafka://b:9092").port == 9092
    """
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
