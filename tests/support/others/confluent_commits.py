"""A program for confluent-kafka: what commits return and raise, and what `on_commit` is told. It prints one line for each step.

Its argument is the module to import. The real one gets the broker that librdkafka has inside for tests.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

client = importlib.import_module(sys.argv[1])
IS_REAL = sys.argv[1] == "confluent_kafka"
QUIET = {"log_level": 0} if IS_REAL else {}
told: list[str] = []


def place(each: Any) -> str:
    failure = None if each.error is None else each.error.name()
    return f"{each.topic}-{each.partition} {each.offset} {each.metadata} {failure}"


def on_commit(error: Any, partitions: list[Any]) -> None:
    told.append(f"told {None if error is None else error.name()}: {', '.join(map(place, partitions))}")


def shown(result: Any) -> str:
    if isinstance(result, list):
        return f"[{', '.join(map(place, result))}]"
    return f"message {result.offset()}" if isinstance(result, client.Message) else str(result)


def say(line: str) -> None:
    """Prints a line, and below it what was told."""
    sys.stdout.write("\n    ".join([line, *told]) + "\n")


def step(name: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    told.clear()
    try:
        result = call(*args, **options)
        line = shown(result)
    except client.KafkaException as error:
        result, line = None, f"raises {error.args[0].name()}"
    except (ValueError, TypeError, RuntimeError, ZeroDivisionError) as error:
        result, line = None, f"raises {type(error).__name__}"
    say(f"{name} -> {line}")
    return result


def wait(consumer: Any) -> None:
    """Polls a paused consumer until `on_commit` was called."""
    told.clear()
    for _ in range(200):
        consumer.poll(0.05)
        if told:
            say("poll")
            return
    say("nothing was told")


def made(group: str, **options: Any) -> Any:
    given = {"group.id": group, "auto.offset.reset": "earliest", "on_commit": on_commit} | options
    consumer = client.Consumer({**SERVER, **QUIET, **given})
    consumer.assign([PLACE])
    return consumer


def manual() -> None:
    consumer = made("manual", **{"enable.auto.commit": False})
    step("synchronous, nothing read", consumer.commit, asynchronous=False)
    first = step("poll", consumer.poll, 10)
    step("both", consumer.commit, first, [PLACE])
    step("no message", consumer.commit, 5)
    step("no list", consumer.commit, offsets=5)
    step("store a message", consumer.store_offsets, first)
    step("synchronous", consumer.commit, asynchronous=False)
    step("synchronous again", consumer.commit, asynchronous=False)
    step("some offsets", consumer.commit, offsets=[at(3, metadata="here"), at(-1001, 1)], asynchronous=False)
    consumer.pause([PLACE])
    step("asynchronous, nothing new", consumer.commit)
    wait(consumer)
    step("asynchronous", consumer.commit, message=first)
    wait(consumer)
    step("asynchronous, no such partition", consumer.commit, offsets=[at(4, metadata="here"), at(4, 700)])
    wait(consumer)
    step("asynchronous, then close", consumer.commit, offsets=[at(2)])
    step("close", consumer.close)
    step("close again", consumer.close)
    for name, call in (("poll", consumer.poll), ("commit", consumer.commit), ("assignment", consumer.assignment)):
        step(f"{name} when closed", call)


def stored_by_the_program() -> None:
    consumer = made("stored", **{"enable.auto.offset.store": False})
    first = step("poll", consumer.poll, 10)
    step("poll", consumer.poll, 10)
    step("commit, nothing stored", consumer.commit, asynchronous=False)
    step("store nothing", consumer.store_offsets)
    step("store elsewhere", consumer.store_offsets, offsets=[at(1, 1)])
    step("store", consumer.store_offsets, first)
    step("close", consumer.close)


def automatic() -> None:
    consumer = made("interval", **{"auto.commit.interval.ms": 50})
    step("poll", consumer.poll, 10)
    consumer.pause([PLACE])
    wait(consumer)
    consumer.close()  # the real one may report the same commit again
    consumer = made("off", **{"enable.auto.commit": False})
    step("poll", consumer.poll, 10)
    step("close without automatic commits", consumer.close)
    consumer = made("left", **{"auto.commit.interval.ms": 0})
    step("poll", consumer.poll, 10)
    step("assign nothing", consumer.unassign)
    wait(consumer)
    step("poll without partitions", consumer.poll, 0)
    step("close", consumer.close)


def failing() -> None:
    def fail(error: Any, partitions: list[Any]) -> None:
        told.append("fails")
        raise ZeroDivisionError

    consumer = made("failing", on_commit=fail)
    step("poll", consumer.poll, 10)
    step("close", consumer.close)


def at(offset: int, partition: int = 0, **metadata: str) -> Any:
    return client.TopicPartition("orders", partition, offset, **metadata)


if IS_REAL:
    producer = client.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "inside", **QUIET})
    broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
    SERVER = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
else:
    SERVER = {"bootstrap.servers": "pylog+memory://commits"}
    producer = client.Producer(SERVER)
PLACE = client.TopicPartition("orders", 0, 0)
for number in range(5):
    producer.produce("orders", b"%d" % number, partition=0)
producer.flush(30)
for part in (manual, stored_by_the_program, automatic, failing):
    told.clear()
    say(part.__name__)
    part()
