"""A broker and pylog take turns at one copying job: the same transactional id and group, each killed in its turn.

In a broker's turn Kafka's own `TransactionalMessageCopier` copies from `in` to `out` in transactions, and is killed, as is the
broker. In pylog's turn a process of pylog does the same, and dies at another step of the protocol each time. In the end `out` has
each record of `in` once, whoever reads it.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pylog
from pylog.transactions.coordinator import TransactionCoordinator
from support.campaign.processes import CampaignError, die_at, new_directory, own_environment, seeded
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.programs import PROJECT, lines_of
from support.transactional import committed, count_open

ID: Final = "copier"
GROUP: Final = "copies"
_TURNS: Final = 20
_PLACE: Final = pylog.TopicPartition("in", 0)
_NEW: Final = 60  # records of `in` that a turn adds
_SIZE: Final = 7  # records of a transaction
_ABORTS: Final = 0.3  # of pylog's transactions; about the same as the copier's
_PATIENCE_SECONDS: Final = 120
_COPIED: Final = (1, 3, 5, 8)  # transactions of the copier before it is killed
_STEPS: Final = (
    *("init", "begin", "add_partitions", "append", "prepare_commit", "prepare_abort", "write_markers", "_write_marker"),
    *("finish", "check_append"),
)
DEATHS: Final = tuple(itertools.product(_STEPS, ("before", "after")))
_UNENDING: Final = {"retention.ms": "-1"}
_CALM: Final = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "2000"}  # the machine may be busy
_READER: Final = """
    import sys
    from confluent_kafka import Consumer, TopicPartition
    consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "reader", "auto.offset.reset": "earliest",
                         "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition("out", number, 0) for number in range(2)])
    ended = set()
    while len(ended) < 2:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            print(message.value().decode())
    consumer.close()
"""


def run(
    seed: int,
    _seconds: float | None = None,
    *,
    turns: int = _TURNS,
    jars: KafkaJars | None = None,
    kills_broker: bool = True,
) -> dict[str, Any]:
    """Takes turns, and judges what all kinds of readers find in the end.

    Args:
        seed: decides where each side dies.
        turns: how many, the broker's and pylog's alternating.
        jars: Kafka's; by default those that `./dev setup` has fetched.
        kills_broker: false to stop the broker cleanly after its copier was killed. A broker 4.3 that was killed and starts on a
            busy machine may complete a prepared transaction before it has written all markers: then it loses a part of it.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a reader misses a record or has one twice, or a transaction hangs; the directory is kept.
    """
    path = new_directory("turns")
    played = _Turns(path / "data", jars or KafkaJars.fetch(PROJECT / ".cache" / "kafka"), seed, kills_broker=kills_broker)
    try:
        done = played.play(turns)
    except CampaignError as error:
        raise CampaignError(f"turns with seed {seed}, in {path}: {error}") from error
    shutil.rmtree(path)
    return {"seed": seed, **done}


class _Turns:
    """One directory, from the broker's first turn to the verdict."""

    def __init__(self, path: Path, jars: KafkaJars, seed: int, *, kills_broker: bool) -> None:
        self._path = path
        self._kills_broker = kills_broker
        self._jars = jars
        self._rng = seeded(seed)
        self._values: list[bytes] = []  # of `in`
        self._done = Counter[str]()

    def play(self, turns: int) -> Counter[str]:
        """See `run`."""
        deaths = self._rng.sample(DEATHS, len(DEATHS))
        for turn in range(turns):
            if turn % 2 == 0:
                self._brokers_turn()
            else:
                self._pylogs_turn(*deaths[turn // 2 % len(deaths)])
        if problems := [*self._problems()]:
            raise CampaignError("\n".join(problems))
        return self._done + Counter(turns=turns, records=len(self._values))

    def _problems(self) -> Iterator[str]:
        """Lets the copier end its work, and yields what is wrong then."""
        with Broker(self._path, self._jars, config=_CALM) as broker:
            self._copy(broker, None)
            hanging = broker.run_tool("transactions", "find-hanging", "--broker-id", "1").check().stdout.splitlines()[1:]
            found = {
                "kafka-clients": [record.value or b"" for record in broker.consume_all("out", "read_committed")],
                "librdkafka": [line.encode() for line in lines_of(_READER, broker.bootstrap, cwd=self._path.parent)],
            }
            offset = broker.committed(GROUP)["in", 0]
            broker.stop()
        with pylog.open(self._path) as store:
            found["pylog"] = committed(store, "out")
            yield from (f"verify: {finding}" for finding in store.verify().findings)
            if count_open(store, "out"):
                yield "a transaction is open"
        yield from (f"hanging: {line}" for line in hanging)
        if offset != len(self._values):
            yield f"the group is at {offset}, and the input ends at {len(self._values)}"
        for name, values in found.items():
            if wrong := (Counter(values) - Counter(self._values)) + (Counter(self._values) - Counter(values)):
                yield f"{name} finds these records twice, or not at all: {sorted(wrong)[:20]}"

    # ---- the broker ------------------------------------------------------------------------------------------------------------

    def _brokers_turn(self) -> None:
        is_first = not self._path.exists()
        with Broker(self._path, self._jars, config=_CALM) as broker:
            if is_first:
                broker.create_topic("in", config=_UNENDING)
                broker.create_topic("out", 2, config=_UNENDING)
            broker.produce("in", [Message(value, key=value, partition=0) for value in self._next_values()])
            self._copy(broker, self._rng.choice(_COPIED))
            if not self._kills_broker:
                broker.stop()
        self._done["broker_killed"] += self._kills_broker

    def _copy(self, broker: Broker, most: int | None) -> None:
        """Runs the copier until it has copied everything, or until it has ended so many transactions, and is killed."""
        command = self._jars.java("org.apache.kafka.tools.TransactionalMessageCopier", *_copier_options(broker))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copier:
            assert copier.stdout is not None
            ended = 0
            for line in copier.stdout:
                ended += json.loads(line).get("stage") == "ProcessLoop"
                if ended == most:
                    copier.kill()
        self._done["copied_by_broker"] += ended
        self._done["copiers_killed"] += copier.returncode == -signal.SIGKILL
        if most is None and copier.returncode != 0:
            raise CampaignError(f"the copier ended with status {copier.returncode}:\n{broker.output()[-4000:]}")

    # ---- pylog -----------------------------------------------------------------------------------------------------------------

    def _pylogs_turn(self, step: str, when: str) -> None:
        with pylog.open(self._path) as store:
            store.log("in").append_many([(value, value) for value in self._next_values()])
        arguments = [str(self._path), step, when, str(self._rng.choice((1, 2, 5, 11))), str(self._rng.random())]
        command = [sys.executable, "-m", "support.campaign.broker_turns", *arguments]
        done = subprocess.run(
            command, env=own_environment(), capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
        if done.returncode not in (0, -signal.SIGKILL):
            raise CampaignError(f"pylog's copier {arguments} ended with status {done.returncode}:\n{done.stderr[-4000:]}")
        self._done["pylog_killed"] += done.returncode == -signal.SIGKILL

    def _next_values(self) -> list[bytes]:
        first = len(self._values)
        self._values += [b"%d" % number for number in range(first, first + _NEW)]
        return self._values[first:]


def _copier_options(broker: Broker) -> Sequence[str]:
    return (
        *("--broker-list", broker.bootstrap, "--transactional-id", ID, "--consumer-group", GROUP),
        *("--input-topic", "in", "--input-partition", "0", "--output-topic", "out", "--transaction-size", str(_SIZE)),
        *("--enable-random-aborts", "--use-group-metadata"),
    )


# ---- the process of pylog ------------------------------------------------------------------------------------------------------


def _copy_until_killed(path: str, rng: random.Random) -> None:
    """Copies what the group has not copied yet, in transactions, some of which are aborted and begun again."""
    with pylog.open(path) as store:
        log = store.log("in")
        while True:
            position = store.offsets.fetch(GROUP, [_PLACE]).get(_PLACE)
            start = position.offset if position is not None else log.start_offset
            records = list(log.records(start, min(start + _SIZE, log.end_offset)))
            if not records:
                return
            transaction = store.transaction(ID)
            for record in records:
                transaction.append("out", record.value, key=record.key, partition=record.offset % 2)
                transaction.flush()
            if rng.random() < _ABORTS:
                transaction.abort()
                continue
            transaction.send_offsets(GROUP, {_PLACE: records[-1].offset + 1})
            transaction.commit()


def main(path: str, step: str, when: str, countdown: str, seed: str) -> None:
    """The process of pylog in a turn: copies, and dies at its step, or ends when everything is copied."""
    die_at(TransactionCoordinator, step, int(countdown), after=when == "after")
    _copy_until_killed(path, random.Random(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
