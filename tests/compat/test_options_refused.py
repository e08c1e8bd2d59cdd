"""Options are refused by the layers where the real clients refuse them, and before anything is written.

Each option gets the same values in both. Left out are values over which the real client only fails later (a serializer that
cannot be called), options that mean nothing without a network, which may have any value, and what kafka-python 2 takes.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from pylog.compat import aiokafka, confluent, kafka
from pylog.compat.clusters import CLUSTERS
from pylog.compat.confluent.names import CHOICES, FLAGS, FUNCTIONS, NAMES, NUMBERS
from pylog.limits import INT32_MAX
from support.others import refusals

# By client: an option, and values that are tried. What is listed here is accepted by both or refused by both.
OF_KAFKA_CONSUMER: Final[dict[str, tuple[Any, ...]]] = {
    "auto_offset_reset": ("earliest", "Earliest", "LATEST", "smallest", "none", "banana", None),
    "isolation_level": ("read_committed", "READ_COMMITTED", "read-committed", 0, 1, 2, "banana", None),
    "request_timeout_ms": (600, 500, 540_000),
    "session_timeout_ms": (10_000, 3_000, 2_000),
    "heartbeat_interval_ms": (1_000, 45_000, 50_000),
    "group_instance_id": ("one", None),
    "metric_group_prefix": ("mine", None, 5),
    "banana": (1,),
}
OF_KAFKA_PRODUCER: Final[dict[str, tuple[Any, ...]]] = {
    "acks": ("all", -1, 0, 1),
    "compression_type": (None, "gzip", "zstd", "GZIP", "banana", 5),
    "delivery_timeout_ms": (120_000, 30_000, 29_999, 0),
    "linger_ms": (0, 90_000, 90_001),
    "request_timeout_ms": (1_000, 120_000, 120_001),
    "client_id": ("mine", None, 5),
    "transactional_id": ("t", None),
    "retries": (0, 5),
    "banana": (1,),
}
OF_AIOKAFKA_CONSUMER: Final[dict[str, tuple[Any, ...]]] = {
    "max_poll_records": (1, None, 0, -1, 1.5),
    "security_protocol": ("PLAINTEXT", "SSL", "banana"),
    "auto_offset_reset": ("earliest", "Earliest", "banana"),
    "banana": (1,),
}
OF_AIOKAFKA_PRODUCER: Final[dict[str, tuple[Any, ...]]] = {
    "acks": (0, 1, -1, "all", 2, "banana", None),
    "compression_type": (None, "gzip", "GZIP", "banana", 5),
    "linger_ms": (0, 5),
    "security_protocol": ("PLAINTEXT", "SSL", "banana"),
    "banana": (1,),
}
OF_CONFLUENT_CONSUMER: Final[dict[str, tuple[Any, ...]]] = {
    "auto.offset.reset": ("earliest", "EARLIEST", "beginning", "end", "error", "none", "by_duration:PT1H", "banana", 5, None),
    "isolation.level": ("read_committed", "READ_UNCOMMITTED", "banana", 5),
    "enable.auto.commit": (True, "true", "F", "0", 1, " true", "banana", 5, ""),
    "enable.partition.eof": (False, "t", "banana", 1.5),
    "session.timeout.ms": (10_000, "10000", 10_000.7, 0, -1, True, "banana", 3_600_001),
    "max.poll.interval.ms": (86_400_000, 45_000, 44_999, 86_400_001, True),
    "heartbeat.interval.ms": (1_000, 50_000, 0, -1, "banana", 3_600_001),
    "group.instance.id": ("one", "", 5),
    "on_commit": (print, None, 5),
    "on_delivery": (print,),
    "grop.id": ("g",),
    "fetch.min.bytes": (1, 0),
    "fetch.max.bytes": (1_000_000, 999_999),
    "receive.message.max.bytes": (52_429_312, 52_429_311),
    "group.protocol": ("consumer", "CLASSIC", "share"),
    "default.topic.config": ({"auto.offset.reset": "earliest"}, {"auto.offset.reset": "banana"}, {"banana": 1}),
}
OF_CONFLUENT_PRODUCER: Final[dict[str, tuple[Any, ...]]] = {
    "compression.type": ("none", "gzip", "GZIP", "inherit", "banana", 5),
    "compression.codec": ("lz4", "banana"),
    "transactional.id": ("t", "", 5),
    "transaction.timeout.ms": (60_000, "60000", 999, 0, True, "banana"),
    "on_delivery": (print, 5, "banana"),
    "dr_cb": (print,),
    "on_commit": (print,),
    "acks": ("all", "ALL", 1, 0, -1, -2, 1001, "banana", None),
    "transactionl.id": ("t",),
    "debug": ("broker, topic", "broker,banana", None),
    "partition.assignment.strategy": ("range, roundrobin", "cooperative-sticky", "cooperative-sticky,range", "sticky", "Range"),
    "partitioner": ("murmur2_random", "MURMUR2", None),
    "reconnect.backoff.ms": (10_000, 10_001),
    "enable.gapless.guarantee": (False, True),
}
# What every client of confluent-kafka refuses, also for an option that has no effect without a broker.
OF_ALL_CONFLUENT: Final[dict[str, tuple[Any, ...]]] = (
    {
        name: ("banana", None, low - 1, low, *((high + 1,) if high < INT32_MAX else ()))
        for name, (low, high) in NUMBERS.items()
        if name != "fetch.min.bytes"
    }
    | dict.fromkeys(FLAGS - {"delivery.report.only.error", "enable.gapless.guarantee"}, ("banana", None, True))
    | {name: ("banana", None, values[0].upper()) for name, values in CHOICES.items() if name != "partitioner"}
    | dict.fromkeys(FUNCTIONS, ("banana", None))
)
# Options that exclude each other, or nearly.
PAIRS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Producer", {"enable.idempotence": True, "acks": 1}),
    ("Producer", {"transactional.id": "t", "acks": "all"}),
    ("Producer", {"transactional.id": "t", "acks": 0}),
    ("Producer", {"transactional.id": "t", "enable.idempotence": False}),
    ("Producer", {"enable.idempotence": True, "max.in.flight": 5}),
    ("Producer", {"enable.idempotence": True, "max.in.flight": 6}),
    ("Producer", {"enable.idempotence": True, "retries": 0}),
    ("Producer", {"enable.idempotence": True, "queuing.strategy": "lifo"}),
    ("Producer", {"enable.idempotence": True, "enable.gapless.guarantee": True}),
    ("Producer", {"linger.ms": 5, "message.timeout.ms": 5}),
    ("Producer", {"linger.ms": 5, "delivery.timeout.ms": 6}),
    ("Producer", {"linger.ms": 5, "delivery.timeout.ms": 0}),
    ("Producer", {"transactional.id": "t", "message.timeout.ms": 60_000}),
    ("Producer", {"transactional.id": "t", "message.timeout.ms": 60_001}),
    ("Consumer", {"message.max.bytes": 2_000, "fetch.max.bytes": 1_999}),
    ("Consumer", {"fetch.max.bytes": 1_000_000, "receive.message.max.bytes": 1_000_511}),
    ("Consumer", {"group.protocol": "consumer", "session.timeout.ms": 10_000}),
    ("Consumer", {"group.protocol": "consumer", "partition.assignment.strategy": "range"}),
    ("Consumer", {"group.protocol": "classic", "session.timeout.ms": 10_000}),
)


TABLES: Final = {
    "KafkaConsumer": OF_KAFKA_CONSUMER,
    "KafkaProducer": OF_KAFKA_PRODUCER,
    "AIOKafkaConsumer": OF_AIOKAFKA_CONSUMER,
    "AIOKafkaProducer": OF_AIOKAFKA_PRODUCER,
    "Consumer": OF_CONFLUENT_CONSUMER,
    "Producer": OF_CONFLUENT_PRODUCER,
}


def refused(client: str, at: Path, options: Mapping[str, Any]) -> bool:
    """True if a client of the layer, with a store in a directory, refuses options."""
    try:
        made(client, f"pylog://{at}", options)
    except (ValueError, TypeError, kafka.errors.KafkaError, confluent.KafkaException):
        return True
    finally:
        CLUSTERS.forget(str(at))
    return False


def made(client: str, server: str, options: Mapping[str, Any]) -> None:
    if client.startswith("AIO"):
        asyncio.run(made_in_a_loop(getattr(aiokafka, client), server, options))
    elif client.startswith("Kafka"):
        group = {"group_id": "g"} if client == "KafkaConsumer" else {}
        getattr(kafka, client)(bootstrap_servers=server, **group | dict(options)).close()
    else:
        group = {"group.id": "g"} if client == "Consumer" else {}
        getattr(confluent, client)({"bootstrap.servers": server} | group | dict(options)).close()


async def made_in_a_loop(kind: type[Any], server: str, options: Mapping[str, Any]) -> None:
    client = kind(bootstrap_servers=server, **options)
    await client.start()
    await client.stop()


def refused_by_the_real_ones(asked: Sequence[tuple[str, dict[str, Any]]]) -> list[bool]:
    program = [sys.executable, "-W", "ignore", refusals.__file__]
    done = subprocess.run(program, input=pickle.dumps(asked), capture_output=True, check=True)
    found: list[bool] = pickle.loads(done.stdout)
    return found


def questions(client: str) -> list[tuple[str, dict[str, Any]]]:
    """What is asked of a client: its table, and what concerns all clients of its library."""
    asked = [(client, {name: value}) for name, values in TABLES[client].items() for value in values]
    if client == "Producer":
        asked += [(client, {name: value}) for name, values in OF_ALL_CONFLUENT.items() for value in values]
    return asked + [pair for pair in PAIRS if pair[0] == client]


@pytest.mark.parametrize("client", list(TABLES))
def test_an_option_is_refused_where_the_real_client_refuses_it_and_nothing_is_written(client: str, tmp_path: Path) -> None:
    asked = questions(client)
    differ = []
    for number, ((_, option), real) in enumerate(zip(asked, refused_by_the_real_ones(asked), strict=True)):
        at = tmp_path / str(number)
        ours = refused(client, at, option)
        if ours != real:
            differ.append((option, "the layer refuses it" if ours else "the real client refuses it"))
        assert not (ours and at.exists()), f"{option} was refused after a store had been made"
    assert differ == []


@pytest.mark.parametrize(
    ("layer", "wrong"),
    [
        ("KafkaConsumer", {"group_id": "g" * 40_000}),
        ("KafkaConsumer", {"key_deserializer": 5}),
        ("KafkaConsumer", {"max_poll_interval_ms": "soon"}),
        ("KafkaProducer", {"transactional_id": ""}),
        ("KafkaProducer", {"transactional_id": 5}),
        ("KafkaProducer", {"transactional_id": "t", "transaction_timeout_ms": 0}),
        ("KafkaProducer", {"value_serializer": 5}),
        ("KafkaProducer", {"transactional_id": "t", "transaction_timeout_ms": 900_001}),
        ("AIOKafkaProducer", {"transactional_id": "t", "transaction_timeout_ms": 900_001}),
        ("Producer", {"transactional.id": "t", "transaction.timeout.ms": 900_001}),
        ("AIOKafkaConsumer", {"group_id": "g" * 40_000}),
        ("AIOKafkaConsumer", {"group_id": "g", "group_instance_id": ""}),
        ("AIOKafkaConsumer", {"group_id": "g", "session_timeout_ms": 0}),
        ("AIOKafkaProducer", {"transactional_id": "t" * 40_000}),
        ("AIOKafkaProducer", {"transactional_id": "t", "transaction_timeout_ms": 0}),
        ("Consumer", {"group.id": ""}),
        ("Consumer", {"group.id": "g" * 40_000}),
        ("Producer", {"transactional.id": "t" * 40_000}),
    ],
)
def test_what_only_the_store_checks_is_refused_before_it_is_made(layer: str, wrong: dict[str, Any], tmp_path: Path) -> None:
    assert refused(layer, tmp_path / "store", wrong)
    assert not (tmp_path / "store").exists()


async def constructed(options: dict[str, Any]) -> None:
    aiokafka.AIOKafkaProducer(**options)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda options: kafka.KafkaProducer(**options), kafka.errors.InvalidTransactionTimeoutError),  # type: ignore[attr-defined]
        (lambda options: asyncio.run(constructed(options)), aiokafka.errors.InvalidTransactionTimeout),  # type: ignore[attr-defined]
    ],
    ids=["kafka-python", "aiokafka"],
)
def test_a_transaction_timeout_that_a_broker_refuses_is_its_error_where_the_producer_is_made(
    make: Callable[[dict[str, Any]], object], kind: type[Exception], tmp_path: Path
) -> None:
    servers = {"bootstrap_servers": f"pylog://{tmp_path / 'store'}"}
    with pytest.raises(kind, match=r"longer than 900000 ms, the broker's transaction\.max\.timeout\.ms"):
        make({**servers, "transactional_id": "t", "transaction_timeout_ms": 900_001})


def test_a_transaction_timeout_that_a_broker_refuses_has_its_code_for_confluent_kafka() -> None:
    with pytest.raises(confluent.KafkaException) as caught:
        confluent.Producer({"transactional.id": "t", "transaction.timeout.ms": 900_001})
    assert caught.value.args[0].name() == "INVALID_TRANSACTION_TIMEOUT"


def test_a_wrong_name_of_a_topic_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'orders/paid' is"):
        kafka.KafkaConsumer("orders/paid", bootstrap_servers=f"pylog://{tmp_path / 'store'}")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("client", [kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient])
def test_an_unknown_option_of_the_layer_for_kafka_python_makes_no_store(client: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, kafka.errors.KafkaConfigurationError), match="Unrecognized configs: banana"):
        client(bootstrap_servers=f"pylog://{tmp_path / 'store'}", banana=1)
    assert not (tmp_path / "store").exists()


def test_an_unknown_reset_policy_is_none_with_a_warning(caplog: pytest.LogCaptureFixture, memory: dict[str, Any]) -> None:
    with caplog.at_level(logging.WARNING, "pylog.compat"), kafka.KafkaConsumer(auto_offset_reset="banana", **memory):
        pass
    assert "auto_offset_reset='banana' is not earliest, latest or none" in caplog.text


def test_a_misspelt_option_of_confluent_kafka_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(confluent.KafkaException, match=r"there is no option 'grop\.id'; did you mean group\.id"):
        confluent.Consumer({"grop.id": "g"})


def test_the_names_of_confluent_kafka_s_options_are_those_of_the_installed_one() -> None:
    unknown = []
    for name in sorted(NAMES):
        try:
            confluent_kafka.Producer({"log_level": 0, name: "\x01"})  # a value that few options take
        except confluent_kafka.KafkaException as error:
            if "No such configuration property" in str(error):
                unknown.append(name)
        except (TypeError, ValueError, AttributeError):
            pass  # the option exists, and wants a function or a mapping
    assert unknown == []
