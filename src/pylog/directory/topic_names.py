"""Names of topics and of their partitions' directories, by Kafka's rules (storage-format 3.2)."""

from __future__ import annotations

import re
from typing import Final

from pylog import limits
from pylog.errors import InvalidTopicError
from pylog.record.types import TopicPartition

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", TRANSACTION_STATE_TOPIC, "__share_group_state", "__cluster_metadata"})
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def is_topic_name(name: str) -> bool:
    """Returns whether Kafka's rule for topic names allows a name (storage-format 3.2.2)."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_topic_name(name: str) -> str:
    """Returns a topic name after checking Kafka's rule (storage-format 3.2.2).

    Raises:
        InvalidTopicError: the name is not allowed.

    >>> check_topic_name("orders.paid")
    'orders.paid'
    """
    if isinstance(name, list | tuple | set | frozenset):
        raise InvalidTopicError(f"{name!r} is not a topic name; give topics one by one, as in consumer('orders', 'audit')")
    if not isinstance(name, str) or not is_topic_name(name):
        raise InvalidTopicError(
            f"{name!r} is not a topic name; a name has 1 to {limits.MAX_TOPIC_NAME_CHARACTERS} of the characters "
            "a-z A-Z 0-9 . _ - and is neither '.' nor '..'"
        )
    return name


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Returns the partition that a directory is named after, or None (storage-format 3.2).

    >>> parse_partition_directory("my-topic-3")
    TopicPartition(topic='my-topic', partition=3)
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or not _TOPIC_NAME.fullmatch(match[1]) or match[1] in (".", "..") or int(match[2]) > limits.INT32_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


def internal_topic(topic: str, directory: str) -> InvalidTopicError:
    """Returns the error for a change of one of Kafka's internal topics. As in a broker, only their owner may append: one
    malformed record can hide all others. Retention and compaction work as for every topic.
    """
    return InvalidTopicError(
        f"{topic} is one of Kafka's internal topics: only the store itself adds and deletes its records. "
        "Commit offsets with Store.offsets, and delete or reset a group with Store.group",
        path=directory,
    )
