"""Drives the Kafka event source of ansible/event-driven-ansible, from a checkout, and prints the events that reach its queue.

    python -m pylog.compat --directory STORE event_source.py SOURCE HOST:PORT
    python event_source.py SOURCE HOST:PORT

The lines have no times, so that those of the layer and of a broker can be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

_TOPICS: Final = ("eda-cpu", "eda-disk")
_WAYS: Final[tuple[dict[str, Any], ...]] = (
    {"topic": "eda-cpu"},
    {"topics": list(_TOPICS)},
    {"topic_pattern": "^eda-.*"},
)


async def fill(server: str) -> None:
    """Creates the topics, with bodies of JSON and of text, keys and headers."""
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1) for name in _TOPICS])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=server) as producer:
        for topic in _TOPICS:
            for number, body in enumerate((b'{"load": 99}', b"no JSON")):
                headers = [("host", b"h%d" % number), ("uuid", b"0b3a3a4e-6a0a-4c1c-8d7e-00000000000%d" % number)]
                await producer.send_and_wait(topic, body, key=b"k%d" % number, headers=headers)


async def events(source: Any, server: str, count: int, **options: Any) -> list[str]:
    """Returns so many events of a run of the source, each confirmed, as lines in order."""
    host, _, port = server.rpartition(":")
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    confirmed: asyncio.Queue[Any] = asyncio.Queue()
    arguments = {"host": host, "port": port, "offset": "earliest", "eda_feedback_queue": confirmed, "feedback_timeout": 60}
    running = asyncio.create_task(source.main(queue, arguments | options))
    found = []
    for _ in range(count):
        event = await asyncio.wait_for(queue.get(), 60)
        event["meta"].pop("produced_at")
        found.append(json.dumps(event, sort_keys=True))
        await confirmed.put("done")
    await asyncio.sleep(1)  # the last commit
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert queue.empty(), "an event arrived twice"
    return sorted(found)


def say(*lines: str) -> None:
    """Prints lines."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


async def main(path: str, server: str) -> None:
    """Runs the source for each way to name topics; then once more, with one new record: its group has committed the others."""
    given = importlib.util.spec_from_file_location("event_source_of_others", path)
    assert given is not None
    assert given.loader is not None
    source = importlib.util.module_from_spec(given)
    given.loader.exec_module(source)
    await fill(server)
    for number, way in enumerate(_WAYS):
        count = 2 if "topic" in way else 4
        say(str(way), *await events(source, server, count, group_id=f"rules-{number}", **way))
    async with AIOKafkaProducer(bootstrap_servers=server) as producer:
        await producer.send_and_wait("eda-cpu", b'{"load": 1}')
    say("again", *await events(source, server, 1, group_id="rules-0", topic="eda-cpu"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
