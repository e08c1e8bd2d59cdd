"""A program: which options the real clients refuse when they are made. It ends at once, since they leave sockets and threads."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any, Final

NOWHERE: Final = "127.0.0.1:1"  # they do not connect while they check their options
REFUSED: Final = ("KafkaException", "KafkaError", "ValueError", "TypeError")


def made(client: str, options: Mapping[str, Any]) -> None:
    """Makes a client of a class, with an address and, where it takes one, a group."""
    if client.startswith("AIO"):
        import aiokafka

        asyncio.run(_made_in_a_loop(getattr(aiokafka, client), options))
    elif client.startswith("Kafka"):
        import kafka

        base = {"bootstrap_servers": NOWHERE, "api_version": (4, 0)} | ({"group_id": "g"} if client == "KafkaConsumer" else {})
        getattr(kafka, client)(**base | dict(options))
    else:
        import confluent_kafka

        base = {"bootstrap.servers": NOWHERE, "log_level": 0} | ({"group.id": "g"} if client == "Consumer" else {})
        getattr(confluent_kafka, client)(base | dict(options))


async def _made_in_a_loop(kind: type[Any], options: Mapping[str, Any]) -> None:
    kind(bootstrap_servers=NOWHERE, **options)._closed = True  # it was not started


def refused(client: str, options: Mapping[str, Any]) -> bool:
    try:
        made(client, options)
    except Exception as error:
        if not {each.__name__ for each in type(error).__mro__} & set(REFUSED):
            raise
        return True
    return False


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asked: list[tuple[str, dict[str, Any]]] = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps([refused(client, options) for client, options in asked]))
    sys.stdout.flush()
    os._exit(0)
