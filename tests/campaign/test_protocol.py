"""Suite 14: the real engine under a scheduler keeps its promises, and without any one of its rules it would be seen not to."""

from __future__ import annotations

import functools
import itertools
import random
import re

import pytest

from pylog.log.durable_point import DurablePoint, parse_slot
from pylog.testing.memory import WRITE, Operation
from support.campaign.ledger import Ledger, ViolationError
from support.campaign.lossy import LossyFileSystem, View, pieces, torn_once
from support.campaign.protocol import (
    SCENARIOS,
    Outcome,
    enumerated,
    neighbour,
    replay,
    run,
    run_once,
    sampled,
    shrunk,
    usual_places,
)
from support.campaign.protocol_rules import RULES, missed
from support.campaign.scheduler import KILL, POWER, STOP, Event, Machine, Process, Schedule, VirtualClock

SEEDS = 40  # schedules drawn of each scenario
EVERY = 12  # of the enumerated schedules one in so many is run: each run of the tests takes the same ones

# ---- the engine --------------------------------------------------------------------------------------------------------------


def check(outcome: Outcome) -> None:
    """Tells what is wrong in as few events as possible, call by call, and how to see it again."""
    if outcome.problem is not None:
        pytest.fail(str(shrunk(outcome)), pytrace=False)


OF_A_STALE_INSTRUMENT = re.compile(r"^(AttributeError|NameError|TypeError)\b", re.MULTILINE)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_promise_holds_under_schedules_drawn_at_random(name: str) -> None:
    for seed in range(SEEDS):
        outcome = run_once(name, sampled(name, seed))
        check(outcome)


@pytest.mark.parametrize("name", ["die", "roll", "truncate", "first", "syncfail"])
def test_every_promise_holds_whatever_single_thing_happens(name: str) -> None:
    single = itertools.takewhile(lambda schedule: len(schedule.events) < 2, enumerated(name))
    for schedule in itertools.islice(single, 0, None, EVERY):
        outcome = run_once(name, schedule)
        check(outcome)


@pytest.mark.parametrize("name", RULES)
def test_an_engine_without_a_rule_is_seen_to_break_a_promise(name: str) -> None:
    rule = RULES[name]
    found = missed(rule)
    assert found is not None, f"nobody misses {name}: {rule.taken_out.__doc__}"
    assert not OF_A_STALE_INSTRUMENT.search(str(found.problem)), found  # it breaks no promise, it just does not run any more
    check(run_once(rule.scenario, found.schedule))


# ---- the exploration itself --------------------------------------------------------------------------------------------------


def test_a_schedule_is_the_same_run_each_time() -> None:
    schedule = sampled("big", 4)
    first, again = run_once("big", schedule), replay("big", str(schedule))
    assert len(schedule.events) > 2
    assert first == again


def test_a_flush_after_another_process_whose_sync_failed_writes_again_the_hidden_records_and_readers_follow() -> None:
    """Found by torture: the flush had nothing to do, said so, and the records were neither durable nor seen."""
    assert replay("syncfail", "V W W W R V R W V R / X X / Y Y; V@1.36:sync:913").problem is None


def test_a_slot_that_there_is_no_room_to_overwrite_hides_from_readers_nothing_that_was_acknowledged() -> None:
    """Found by torture: as the log rolled it stopped for good, and who read it elsewhere saw only what was durable."""
    schedule = "W W W W V V V V V R R R R S S S / X X X T T T / Y Y Z Z; W@1.17:kill, V@5.1:full"
    assert replay("big", schedule).problem is None


def test_the_torture_command_gets_counts_and_violations() -> None:
    done = run(seed=3, seconds=0.01)
    assert done["violations"] == []
    assert set(SCENARIOS) < set(done)


def test_an_enumeration_has_each_thing_that_can_happen_at_each_point_once() -> None:
    schedules = list(itertools.takewhile(lambda schedule: len(schedule.events) < 2, enumerated("roll")))
    deaths = [schedule.events[0] for schedule in schedules if schedule.events and schedule.events[0].kind == KILL]
    points = [call for steps in usual_places("roll").values() for calls in steps.values() for call in calls]
    assert len({str(schedule) for schedule in schedules}) == len(schedules)
    assert [(event.who, event.step, event.place) for event in deaths] == [(at.who, at.step, str(at.point)) for at in points]
    assert any(event.kind == POWER for schedule in schedules for event in schedule.events)


def test_a_neighbour_differs_in_places_and_bytes_only() -> None:
    schedule = Schedule.parse("W V / X; W@2.5:kill, V@1.sync/0.log:power:7")
    neighbours = {neighbour(schedule, seed) for seed in range(50)}
    assert len(neighbours) > 20
    assert all(other.turns == schedule.turns for other in neighbours)
    assert {tuple(event.kind for event in other.events) for other in neighbours} == {(KILL, POWER)}


# ---- the scheduler -----------------------------------------------------------------------------------------------------------


class Counting:
    """Processes that make calls, and who made which."""

    def __init__(self, schedule: str) -> None:
        self.clock = VirtualClock()
        self.machine = Machine(Schedule.parse(schedule), 0, self.clock, [])
        self.done: list[str] = []
        self.ended: list[str] = []

    def process(self, name: str, *steps: str) -> Process:
        """One whose steps make the calls of that kind, one for each letter; "z" is a nap."""
        work = [functools.partial(self._do, name, kinds) for kinds in steps]
        return Process(name, self.machine, work, functools.partial(self.ended.append, name))

    def _do(self, name: str, kinds: str) -> None:
        for kind in kinds:
            if kind == "z":
                self.clock.sleep(0.001)
            else:
                self.machine.point(kind)
                self.done.append(name + kind)

    @property
    def story(self) -> str:
        return " ".join(self.done)


def test_steps_are_taken_in_the_order_of_the_turns() -> None:
    world = Counting("V W V W")
    world.machine.run([world.process("W", "a", "b"), world.process("V", "c", "d")])
    assert world.story == "Vc Wa Vd Wb"


def test_a_stopped_process_goes_on_when_the_other_is_done() -> None:
    world = Counting("; W@1.2:stop:V")
    world.machine.run([world.process("W", "ab", "a"), world.process("V", "cd")])
    assert world.story == "Wa Vc Vd Wb Wa"


def test_a_sleeping_thread_lets_others_go_on_and_comes_back() -> None:
    world = Counting("")
    world.machine.run([world.process("W", "azb"), world.process("V", "c", "d")])
    assert world.story == "Wa Vc Vd Wb"
    assert world.clock.monotonic() == 0.001


def test_a_killed_process_lets_go_of_what_it_holds_and_does_no_more() -> None:
    world = Counting("; W@1.2:kill")
    world.machine.run([world.process("W", "abc"), world.process("V", "d")])
    assert world.story == "Wa Vd"
    assert world.ended == ["W"]


def test_a_power_loss_ends_everybody_wherever_they_are() -> None:
    world = Counting("; W@1.2:stop:V, V@1.2:power:3")
    world.machine.run([world.process("W", "abc"), world.process("V", "dd"), world.process("X", "a")])
    assert world.story == "Wa Vd"
    assert sorted(world.ended) == ["V", "W", "X"]
    assert world.machine.power == Event("V", 1, "2", POWER, "3")


def test_an_error_that_a_process_raises_ends_the_run_and_is_kept() -> None:
    world = Counting("")
    failing = Process("W", world.machine, [lambda: 1 // 0], lambda: None)
    world.machine.run([failing, world.process("V", "a")])
    assert isinstance(world.machine.failure, ZeroDivisionError)
    assert world.story == ""


def test_a_process_that_does_not_end_is_found_out() -> None:
    world = Counting("")
    world.machine.run([world.process("W", "z" * 30_000)])
    assert "does not come to an end" in str(world.machine.failure)


def test_an_event_can_name_a_call_instead_of_a_number() -> None:
    world = Counting("; W@1.b#2+1:stop:V")
    world.machine.run([world.process("W", "abbab"), world.process("V", "c")])
    assert world.story == "Wa Wb Wb Vc Wa Wb"
    assert Event("W", 1, "b#2+1", STOP, "V").moved(-1).place == "b#2+0"


# ---- the disk ----------------------------------------------------------------------------------------------------------------


def lossy() -> tuple[Machine, LossyFileSystem]:
    clock = VirtualClock()
    return Machine(Schedule(), 0, clock, []), LossyFileSystem(clock=clock)


def kept(fs: LossyFileSystem, path: str) -> set[bytes | None]:
    """The content that a power loss can leave of a file; None if its name is lost."""
    found = set()
    for seed in range(200):
        found.add(fs.lose_power(str(seed)).read(path, 100))
        fs.disk.powered = True
    return found


def test_a_loss_of_power_keeps_any_of_what_was_not_synced_and_all_of_what_was() -> None:
    _, fs = lossy()
    file = fs.create("/a")
    file.write(memoryview(b"old"), 0)
    file.sync()
    assert kept(fs, "/a") == {None, b"old"}
    fs.sync_directory("/")
    assert kept(fs, "/a") == {b"old"}
    fs.caller = "first"
    file.write(memoryview(b"AB"), 3)
    fs.caller = "second"
    file.write(memoryview(b"CD"), 5)
    assert kept(fs, "/a") == {b"old", b"oldAB", b"old\0\0CD", b"oldABCD", b"old\0\0\0\0", b"oldAB\0\0"}


def test_pages_of_a_failed_sync_are_written_by_no_later_one() -> None:
    _, fs = lossy()
    file = fs.create("/a")
    fs.sync_directory("/")
    file.write(memoryview(b"lost"), 0)
    seed = next(seed for seed in map(str, range(20)) if _after_failed_sync(seed) == b"")
    fs.fail_sync("/a", seed)
    file.write(memoryview(b"+"), 4)
    file.sync()
    assert fs.read("/a", 100) == b"lost+"
    assert kept(fs, "/a") == {b"\0\0\0\0+"}


def _after_failed_sync(seed: str) -> bytes | None:
    _, fs = lossy()
    file = fs.create("/a")
    fs.sync_directory("/")
    file.write(memoryview(b"lost"), 0)
    fs.fail_sync("/a", seed)
    return fs.lose_power("0").read("/a", 100)


def test_at_most_one_slot_of_the_header_is_torn() -> None:
    slots = [DurablePoint(counter=counter).encoded() for counter in range(8)]
    writes = [
        Operation(WRITE, 1, "durable-point", position=counter % 2 * 128 + start, data=slot[start:end])
        for counter, slot in enumerate(slots)
        for start, end in pieces(128)
    ]
    for seed in range(300):
        data = torn_once(slots[0] + slots[1], writes[4:], random.Random(seed))
        assert parse_slot(data[:128]) or parse_slot(data[128:256])


def test_a_write_comes_to_a_point_between_its_halves() -> None:
    machine, fs = lossy()
    halves: list[bytes | None] = []

    def write() -> None:
        file = View(machine, fs.process()).create("/a")
        file.write(memoryview(b"12345678"), 0)

    def look() -> None:
        halves.append(fs.read("/a", 100))

    schedule = Schedule.parse("; W@1.write/a#2:stop:R")
    machine = Machine(schedule, 0, VirtualClock(), [])
    machine.run([Process("W", machine, [write], lambda: None), Process("R", machine, [look], lambda: None)])
    assert halves == [b"1234"]
    assert fs.read("/a", 100) == b"12345678"


# ---- the ledger --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger() -> Ledger:
    """With a and b acknowledged durably, and c so that a loss of power may take it."""
    made = Ledger()
    made.acknowledge(made.begin(("a", "b"), soft=False), 0)
    made.acknowledge(made.begin(("c",), soft=True), 2)
    return made


WHOLE = [(0, "a"), (1, "b"), (2, "c")]


def test_acknowledged_records_are_right(ledger: Ledger) -> None:
    ledger.see(WHOLE, ledger.tick())
    assert (ledger.acknowledged, ledger.promised, ledger.safe) == (3, 3, 2)


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([(0, "b")], "'b' is at 0, and was at 1"),
        ([(3, "a")], "'a' is at 3, and was at 0"),
        ([(0, "x")], "'x' at 0 was never appended"),
    ],
)
def test_records_that_moved_or_were_never_written_are_found(ledger: Ledger, records: list[tuple[int, str]], told: str) -> None:
    with pytest.raises(ViolationError, match=told):
        ledger.see(records, ledger.tick())


def test_another_record_at_a_known_offset_is_found(ledger: Ledger) -> None:
    ledger.begin(("x",), soft=False)
    with pytest.raises(ViolationError, match="'x' is at 0, where 'a' was"):
        ledger.see([(0, "x")], ledger.tick())


def test_a_gap_in_the_records_read_is_found(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match=r"offsets \[0, 2\] are read"):
        ledger.check_offsets([(0, "a"), (2, "c")], 0, 3)
    ledger.compacted(2)
    ledger.check_offsets([(0, "a"), (2, "c")], 0, 3)


def test_a_refused_record_that_comes_back_is_found(ledger: Ledger) -> None:
    ledger.refuse(ledger.begin(("x",), soft=False), 3)
    with pytest.raises(ViolationError, match="'x' came back at 3"):
        ledger.see([(3, "x")], ledger.tick())


def test_the_second_half_of_a_call_alone_is_found(ledger: Ledger) -> None:
    ledger.leave_open(ledger.begin(("x", "y"), soft=False))
    with pytest.raises(ViolationError, match="'y' is at 3 without 'x'"):
        ledger.see([(3, "y")], ledger.tick())


def test_a_call_in_doubt_may_be_whole_or_absent_until_another_call_is_acknowledged(ledger: Ledger) -> None:
    ledger.leave_open(ledger.begin(("x",), soft=False))
    ledger.leave_open(ledger.begin(("y",), soft=False))
    ledger.see([(3, "x")], ledger.tick())
    ledger.acknowledge(ledger.begin(("z",), soft=False), 4)
    with pytest.raises(ViolationError, match="'y' came back at 5"):
        ledger.see([(5, "y")], ledger.tick())


def test_a_loss_of_power_may_take_what_was_soft_and_it_does_not_come_back(ledger: Ledger) -> None:
    ledger.lose_power()
    assert (ledger.promised, ledger.safe) == (2, 2)
    ledger.load(WHOLE[:2], 2, ledger.tick())
    with pytest.raises(ViolationError, match="'c' came back at 2"):
        ledger.see(WHOLE, ledger.tick())


def test_records_that_a_reader_of_durable_records_saw_are_safe(ledger: Ledger) -> None:
    ledger.see(WHOLE, ledger.tick(), durable=True)
    ledger.lose_power()
    assert ledger.safe == 3


def test_truncated_records_may_be_seen_only_by_reads_that_began_before(ledger: Ledger) -> None:
    before = ledger.tick()
    cut = ledger.begin_cut(1)
    ledger.see(WHOLE, ledger.tick())
    ledger.end_cut(cut)
    assert ledger.promised == 1
    ledger.see(WHOLE, before)
    with pytest.raises(ViolationError, match="'b' came back at 1"):
        ledger.see(WHOLE, ledger.tick())


def test_a_truncation_whose_process_died_may_have_happened_or_not(ledger: Ledger) -> None:
    ledger.begin_cut(1).active = False
    assert ledger.promised == 1
    assert ledger.may_have_cut(ledger.tick())
    ledger.see(WHOLE, ledger.tick())
    assert ledger.promised == 3


def test_a_replacement_of_records_that_a_truncation_may_have_removed_removes_them_all(ledger: Ledger) -> None:
    ledger.begin_cut(1).active = False
    ledger.acknowledge(ledger.begin(("x",), soft=False), 1)
    with pytest.raises(ViolationError, match="'c' came back at 2"):
        ledger.see([(2, "c")], ledger.tick())
