"""Options of confluent-kafka's clients that exclude each other: refused as by librdkafka, also where they have no effect here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.confluent.configuration import refused

_FETCH_BYTES: Final = 52_428_800  # defaults of librdkafka
_MESSAGE_BYTES: Final = 1_000_000
_LINGER_MS: Final = 5
_BACKOFF_MS: Final = 100
_LONGEST_BACKOFF_MS: Final = 10_000
_MOST_IN_FLIGHT: Final = 5  # requests whose order a broker can check
_PROTOCOL_BYTES: Final = 512  # beside the records of a response
_SET_BY_THE_BROKER: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.protocol.type",
)


def check_consumer(values: Mapping[str, Any]) -> None:
    """Raises KafkaException if options of a consumer exclude each other.

    Args:
        values: from `Given`.
    """
    _check_common(values)
    poll, session = values.get("max.poll.interval.ms", 300_000), values.get("session.timeout.ms", 45_000)
    if poll < session:
        raise refused(f"max.poll.interval.ms={poll} is less than session.timeout.ms={session}")
    fetch, message = values.get("fetch.max.bytes", _FETCH_BYTES), values.get("message.max.bytes", _MESSAGE_BYTES)
    if "fetch.max.bytes" in values and fetch < message:
        raise refused(f"fetch.max.bytes={fetch} is less than message.max.bytes={message}")
    response = values.get("receive.message.max.bytes")
    if response is not None and response < fetch + _PROTOCOL_BYTES:
        raise refused(f"receive.message.max.bytes={response} is less than fetch.max.bytes={fetch} and {_PROTOCOL_BYTES} more")
    wrong = next((name for name in _SET_BY_THE_BROKER if name in values), None)
    if values.get("group.protocol") == "consumer" and wrong is not None:
        raise refused(f"{wrong} is an option of group.protocol=classic; with consumer, the broker has its value")


def check_producer(values: Mapping[str, Any]) -> None:
    """Raises KafkaException if options of a producer exclude each other.

    Args:
        values: from `Given`.
    """
    _check_common(values)
    is_transactional = bool(values.get("transactional.id"))
    if not values.get("enable.idempotence", is_transactional):
        wrong = "transactional.id" if is_transactional else "enable.gapless.guarantee"
        if is_transactional or values.get(wrong):
            raise refused(f"{wrong} requires enable.idempotence=true")
    else:
        _check_idempotence(values)
    timeout, linger = values.get("message.timeout.ms"), values.get("queue.buffering.max.ms", _LINGER_MS)
    if timeout and "queue.buffering.max.ms" in values and timeout <= linger:
        raise refused(f"message.timeout.ms={timeout} is not greater than linger.ms={linger}")
    transaction = values.get("transaction.timeout.ms", 60_000)
    if is_transactional and timeout is not None and timeout > transaction:
        raise refused(f"message.timeout.ms={timeout} is greater than transaction.timeout.ms={transaction}")


def _check_idempotence(values: Mapping[str, Any]) -> None:
    """Refuses options under which an idempotent producer could not keep the order of records, or repeat failed requests."""
    acks, strategy = values.get("request.required.acks", -1), values.get("queuing.strategy", "fifo")
    in_flight = values.get("max.in.flight.requests.per.connection", _MOST_IN_FLIGHT)
    retries = values.get("message.send.max.retries", 1)
    for is_right, given, wanted in (
        (acks == -1, f"acks={acks}", "all"),
        (in_flight <= _MOST_IN_FLIGHT, f"max.in.flight={in_flight}", f"{_MOST_IN_FLIGHT} or less"),
        (retries >= 1, f"retries={retries}", "1 or more"),
        (strategy == "fifo", f"queuing.strategy={strategy}", "fifo"),
    ):
        if not is_right:
            raise refused(f"{given}: enable.idempotence=true needs {wanted}")


def _check_common(values: Mapping[str, Any]) -> None:
    least, most = values.get("reconnect.backoff.ms", _BACKOFF_MS), values.get("reconnect.backoff.max.ms", _LONGEST_BACKOFF_MS)
    if most < least:
        raise refused(f"reconnect.backoff.max.ms={most} is less than reconnect.backoff.ms={least}")
    assignors = values.get("partition.assignment.strategy", ())
    if "cooperative-sticky" in assignors and len(set(assignors)) > 1:
        raise refused(f"partition.assignment.strategy={','.join(assignors)} has cooperative-sticky and assignors that are not")
