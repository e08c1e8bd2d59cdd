"""Kafka's own transactional copier and one of pylog's take turns with the same transactional id and group, each killed."""

from __future__ import annotations

from support.campaign import broker_turns
from support.campaign.processes import new_seed
from support.kafka.harness import KafkaJars

TURNS = 4  # `./dev torture turns` takes 20


def test_a_broker_and_pylog_copy_in_turns_and_each_record_is_there_once_for_all_readers(kafka_jars: KafkaJars) -> None:
    done = broker_turns.run(new_seed(), turns=TURNS, jars=kafka_jars, kills_broker=False)
    assert done["turns"] == TURNS
    assert done["copiers_killed"] == TURNS // 2
    assert done["records"] == 60 * TURNS
