"""A broker starts on what `repair` leaves, serves everything that could be read, and goes on writing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pylog.tools.plan import LostOffsets
from pylog.tools.repair import repair
from pylog.tools.verify import DAMAGED, verify
from support.kafka.harness import Broker, Message, Record
from support.kafka.interop_data import complaints, rows_of

SMALL = {"internal.segment.bytes": "1200", "index.interval.bytes": "200", "retention.ms": "-1"}
FAST = {"fetch.max.wait.ms": "20"}
Damage = Callable[[Path], None]


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def flip_a_value(directory: Path) -> None:
    change(logs(directory)[1], 90, bytes([logs(directory)[1].read_bytes()[90] ^ 1]))


def zero_a_length(directory: Path) -> None:
    change(logs(directory)[1], 8, bytes(4))


def append_zeros(directory: Path) -> None:
    """Under the marker of a clean stop, a broker does not start on them."""
    logs(directory)[-1].write_bytes(logs(directory)[-1].read_bytes() + bytes(5000))


def lose_a_segment(directory: Path) -> None:
    for path in directory.glob(f"{logs(directory)[1].stem}.*"):
        path.unlink()


def flip_in_the_last(directory: Path) -> None:
    change(logs(directory)[-1], 90, bytes([logs(directory)[-1].read_bytes()[90] ^ 1]))


def spoil_derived_files(directory: Path) -> None:
    """A broker does not start on such a checkpoint."""
    (directory / "leader-epoch-checkpoint").write_text("garbage")
    change(next(directory.glob("*.index")), 0, b"\xff" * 8)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "flipped": (flip_a_value, "skip"),
    "zeros": (append_zeros, "skip"),
    "holed": (lose_a_segment, "skip"),
    "ledger": (zero_a_length, "skip"),
    "derived": (spoil_derived_files, "skip"),
    "cut": (flip_in_the_last, "truncate"),
    "put-aside": (flip_a_value, "quarantine"),
}


def messages(count: int, seed: int) -> list[Message]:
    return [Message(value, key, headers, stamp, 0) for key, value, headers, stamp in rows_of(count, seed=seed)]


def fill(running: Broker, topic: str) -> None:
    running.create_topic(topic, 1, SMALL)
    for seed in range(4):
        end = "abort" if seed == 2 else "commit"
        transaction = {"transactional_id": "teller", "transaction": end} if topic == "ledger" else {}
        running.produce(topic, messages(12, seed), **transaction)


def seen(running: Broker, topic: str, isolation: str = "read_uncommitted") -> dict[int, Record]:
    return {record.offset: record for record in running.consume_all(topic, isolation, config=FAST)}


def is_lost(offset: int, lost: tuple[LostOffsets, ...]) -> bool:
    return any(each.first_offset <= offset and (each.last_offset is None or offset <= each.last_offset) for each in lost)


def test_a_broker_starts_on_what_was_repaired_and_loses_nothing_that_could_be_read(broker: Callable[..., Broker]):
    running = broker()
    for topic in DAMAGES:
        fill(running, topic)
    assert_sound_while_it_is_written(running)
    before = {topic: seen(running, topic) for topic in DAMAGES}
    committed = seen(running, "ledger", "read_committed")
    ends = {topic: running.offsets(topic)[0][1] for topic in DAMAGES}
    running.stop()

    lost: dict[str, tuple[LostOffsets, ...]] = {}
    for topic, (damage, policy) in DAMAGES.items():
        directory = running.log_dir / f"{topic}-0"
        damage(directory)
        if topic != "zeros":  # no acknowledged record is lost: no damage, and fatal all the same
            assert verify(str(directory)).exit_code == DAMAGED, topic
        backup = running.log_dir.with_name(f"backup-{topic}")
        ends_lost = "commit" if topic == "ledger" else None  # the transaction whose marker cannot be read was committed
        (plan,) = repair(str(directory), policy, execute=True, backup=str(backup), lost_markers=ends_lost).plans
        lost[topic] = plan.lost
        ends[topic] = plan.new_end_offset
    assert verify(str(running.log_dir)).affected == ()
    assert not any(each.readable for topic, (_, policy) in DAMAGES.items() if policy == "skip" for each in lost[topic])

    running.start()
    for topic in DAMAGES:
        found = seen(running, topic)
        assert found == {offset: record for offset, record in before[topic].items() if not is_lost(offset, lost[topic])}, topic
        assert running.offsets(topic)[0][1] == ends[topic], topic
        assert running.produce(topic, messages(1, 99)) == [(0, ends[topic])]
        assert ends[topic] in seen(running, topic)
    after = {offset: record for offset, record in committed.items() if not is_lost(offset, lost["ledger"])}
    assert after.items() <= seen(running, "ledger", "read_committed").items()
    running.stop()
    assert not complaints(running.output())
    assert verify(str(running.log_dir)).affected == ()


def assert_sound_while_it_is_written(running: Broker) -> None:
    """Indexes are preallocated, and the end of a file may be half a batch: that is no damage."""
    done = threading.Event()

    def write() -> None:
        for seed in range(4):
            running.produce("zeros", messages(20, seed))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while looks < 3 or not done.is_set():
        assert verify(str(running.log_dir / "zeros-0")).affected == ()
        looks += 1
    writer.join()
    assert verify(str(running.log_dir)).affected == ()
