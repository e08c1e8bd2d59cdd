"""One exactly-once program with confluent-kafka and a real broker, and with the layer: the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.kafka.exactly_once import program_for
from support.kafka.harness import Broker
from support.kafka.programs import lines_of


def test_a_read_process_write_program_prints_the_same_with_a_broker_and_with_the_layer(
    tmp_path: Path, broker: Callable[..., Broker]
) -> None:
    real = broker()
    for topic in ("lines", "copies"):
        real.create_topic(topic)
    expected = lines_of(program_for("confluent_kafka"), real.bootstrap, cwd=tmp_path)
    assert lines_of(program_for("pylog.compat.confluent"), f"pylog://{tmp_path / 'store'}", cwd=tmp_path) == expected
