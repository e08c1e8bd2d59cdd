"""The fixture `kafka` for programs of aiokafka, and the ways in that need no change of a program."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import aiokafka as real
import pytest

from compat.test_installing import printed
from pylog.compat import aiokafka
from pylog.compat.fixture import kafka_for_test

PROGRAM = """
    import asyncio
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context
    from aiokafka.structs import OffsetAndMetadata
    import aiokafka.admin.config_resource, aiokafka.producer.message_accumulator

    async def main():
        async with AIOKafkaProducer(bootstrap_servers="broker:9092", acks="all") as producer:
            for number in range(3):
                await producer.send("orders", b"%d" % number)
        options = {"group_id": "g", "auto_offset_reset": "earliest"}
        options["partition_assignment_strategy"] = [RoundRobinPartitionAssignor]
        async with AIOKafkaConsumer("orders", bootstrap_servers="broker:9092", **options) as consumer:
            print([(await consumer.getone()).value for _ in range(3)])
        try:
            import aiokafka.protocol
        except ImportError as error:
            print("has no network" in str(error))

    asyncio.run(main())
"""


def test_an_unmodified_program_runs_after_one_line(tmp_path: Path) -> None:
    installed = "import pylog.compat\npylog.compat.install('memory:')\n" + textwrap.dedent(PROGRAM)
    assert printed(installed, tmp_path) == "[b'0', b'1', b'2']\nTrue\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shop() -> Any:
    """A module of a program that has imported the real package."""
    made: Any = ModuleType("shop_of_aiokafka")
    made.Producer, made.errors = real.AIOKafkaProducer, sys.modules["aiokafka.errors"]
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_the_fixture_replaces_the_real_names_and_closes_what_a_test_leaves_open(shop: Any) -> None:
    async def program() -> None:
        left.append(shop.Producer())
        left.append(aiokafka.AIOKafkaConsumer("orders", group_id="g"))
        for each in left:
            await each.start()
        await left[0].send("orders", b"paid")

    def use() -> None:
        with kafka_for_test():
            assert shop.Producer is aiokafka.AIOKafkaProducer
            assert shop.errors is aiokafka.errors
            asyncio.run(program())

    left: list[Any] = []
    with pytest.warns(ResourceWarning, match="was not closed by the test"):
        use()
    assert shop.Producer is real.AIOKafkaProducer
    assert all(each._closed for each in left)
