"""The protocol of writers, readers and crashes (reliability 3, 4, 10 to 12), explored on the real engine: suite 14.

Some processes append to one partition, trim it and read it, as a scenario says; a schedule says who runs when, who dies, which
call fails and what a loss of power keeps. Whatever anybody sees is compared with a `Ledger` of what was promised.

`enumerated` gives the schedules of a scenario one after the other, `sampled` draws one by its seed, `replay` repeats what a
violation prints. `protocol_rules` takes the rules out of the engine, one at a time, to see that this would notice.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import random
import struct
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pylog
from pylog import limits
from pylog.log.checking.report import HARMLESS
from pylog.log.durable_point import SLOT_SIZE
from pylog.segment.names import DURABLE_POINT, LOG
from pylog.testing.disk import Image
from pylog.testing.memory import SYNC, SYNC_DIRECTORY, WRITE
from support.campaign.ledger import ViolationError
from support.campaign.lossy import LossyFileSystem
from support.campaign.protocol_actors import (
    DIRECTORY,
    NOW_MS,
    ROOT,
    TOPIC,
    Broker,
    Reader,
    World,
    Writer,
    check_findings,
    read_all,
    value_of,
)
from support.campaign.scheduler import FULL, KILL, POWER, STOP, SYNC_FAILS, Call, Event, Machine, Schedule, VirtualClock
from support.campaign.workloads import quiet

BATCH_BYTES: Final = 225  # a batch of one record, and a little more
MESSAGE_BYTES: Final = 375  # largest batch: two records do not fit into one
CHUNK_BYTES: Final = 560  # in place of `limits.APPEND_CHUNK_BYTES`: two batches
SHUFFLED: Final = 0.5  # of the phases
LIKELY: Final = 0.7  # that something happens that may happen
POWER_DRAWS: Final = 4  # of each loss of power in an enumeration
_SLOT_HEAD: Final = struct.Struct("<4sHHQQ16sq")  # of a slot of the header, up to the active segment's base


# ---- scenarios ---------------------------------------------------------------------------------------------------------------

Part = tuple[str, type, str, list[tuple[Any, ...]]]  # a process: its name, what it is, its level, its operations


class Scenario(NamedTuple):
    """What some processes do.

    Attributes:
        phases: the processes of each. A phase begins when the one before is over or the power fails; its processes have died.
        faults: how often what may happen.
        stops: how often a process may be stopped in the middle of a step.
        batches: that a segment has room for, and half of one more.
        order: of each phase the processes in the order of their steps, where it is not one after the other.
    """

    phases: tuple[tuple[Part, ...], ...]
    faults: Mapping[str, int]
    stops: int = 2
    batches: float = 6
    order: str = ""

    @property
    def turns(self) -> tuple[tuple[str, ...], ...]:
        """The order of all steps."""
        given = [tuple(phase.split()) for phase in self.order.split("/")]
        return tuple(own or one_by_one(phase) for own, phase in itertools.zip_longest(given, self.phases, fillvalue=()))


def one_by_one(phase: Sequence[Part]) -> tuple[str, ...]:
    return tuple(name for name, kind, _, operations in phase for _ in range(1 if kind is Broker else 1 + len(operations)))


def writer(name: str, level: str, *operations: str) -> Part:
    """A writer; `"append a b"` is an operation with its arguments."""
    return name, Writer, level, [_operation(text) for text in operations]


def reader(name: str, looks: int, way: str = "scan") -> Part:
    return name, Reader, way, [("look",)] * looks


def broker(*operations: str) -> Part:
    return "B", Broker, "", [_operation(text) for text in operations]


def _operation(text: str) -> tuple[Any, ...]:
    name, *arguments = text.split()
    return (name, *(int(argument) if argument.isdecimal() else argument for argument in arguments))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "die": Scenario(
        (
            (writer("W", "SYNC", "append a", "append b c"), writer("V", "SYNC", "append d", "append e")),
            (writer("X", "SYNC", "read", "append z"),),
        ),
        {KILL: 2, POWER: 1},
        order="W W V V W V",
    ),
    "roll": Scenario(  # b does not fit into the segment any more, D does
        (
            (writer("W", "SYNC", "append a", "append b e"), writer("V", "SYNC", "append C", "append D")),
            (writer("X", "SYNC", "append z"),),
        ),
        {KILL: 1, POWER: 1},
        batches=1.5,
        order="W W V V W V",
    ),
    "power": Scenario(
        (
            (writer("W", "SYNC", "append a", "append b"), writer("V", "OS", "append c"), reader("R", 2)),
            (reader("S", 1, "fresh"), writer("X", "SYNC", "append x"), reader("T", 1)),
        ),
        {POWER: 1},
        stops=1,
        batches=2,
    ),
    "os": Scenario(
        (
            (writer("W", "OS", "append a", "append b", "append c"),),
            (reader("R", 1),),
            (writer("X", "OS", "append x"), reader("S", 2, "durable")),
        ),
        {POWER: 2},
        stops=1,
        batches=2,
    ),
    "mixed": Scenario(
        (
            (writer("W", "SYNC", "append a"), writer("V", "OS", "append b", "append c", "append d", "append e", "append f")),
            (writer("X", "SYNC", "append x"),),
        ),
        {POWER: 1},
        stops=1,
    ),
    "truncate": Scenario(
        (
            (
                writer("W", "SYNC", "append a", "append b", "truncate 1", "append c"),
                writer("V", "OS", "append d", "append e"),
                reader("R", 3, "follow"),
            ),
            (writer("X", "SYNC", "append x"),),
        ),
        {KILL: 1, POWER: 1},
        batches=3,
    ),
    "syncfail": Scenario(
        (
            (writer("W", "OS", "append a", "append b", "flush"), writer("V", "SYNC", "append c", "append d"), reader("R", 2)),
            (writer("X", "SYNC", "append x"),),
            (writer("Y", "SYNC", "append y"),),
        ),
        {SYNC_FAILS: 1, POWER: 1},
        stops=1,
        order="W W W V R W V V R R",
    ),
    "full": Scenario(
        (
            (writer("W", "OS", "append a b", "append c", "append d"), writer("V", "SYNC", "append e")),
            (writer("X", "OS", "append x"),),
        ),
        {FULL: 1, POWER: 1},
        stops=1,
        batches=3,
    ),
    "first": Scenario(
        ((reader("R", 2, "fresh"), writer("W", "SYNC", "append a")), (writer("X", "SYNC", "append x"),)),
        {SYNC_FAILS: 1, POWER: 1},
        order="R W R W R",
    ),
    "broker": Scenario(
        (
            (writer("W", "SYNC", "append a", "append b"), writer("V", "OS", "append c")),
            (broker("append p", "roll", "append q"),),
            (writer("X", "SYNC", "append x"), reader("R", 2), reader("S", 1, "follow")),
        ),
        {KILL: 1, POWER: 1},
        stops=1,
        batches=4,
    ),
    "compact": Scenario(
        (
            (writer("W", "SYNC", "append a", "append b"),),
            (broker("append p", "roll", "append q", "compact", "stop"),),
            (reader("R", 1), writer("X", "SYNC", "append x"), reader("S", 1)),
        ),
        {POWER: 1},
        stops=0,
        batches=4,
    ),
    "refetch": Scenario(
        (
            (writer("W", "SYNC", "append a", "append b"),),
            (broker("refetch", "append p"),),
            (reader("R", 1), writer("X", "SYNC", "append x")),
        ),
        {POWER: 1},
        stops=1,
        batches=4,
    ),
    "slots": Scenario(
        (
            (writer("W", "SYNC", "append a", "append B", "append C", "append D"), reader("R", 3)),
            (writer("X", "SYNC", "append x"),),
        ),
        {KILL: 1},
        stops=4,
        order="W W W R R R W W R",
    ),
    "readers": Scenario(
        (
            (writer("W", "SYNC", "append a", "append b", "append c d"), reader("R", 3), reader("S", 3, "follow")),
            (writer("X", "SYNC", "append x"),),
        ),
        {KILL: 1, POWER: 1},
        stops=4,
        batches=1,
        order="W W R S W R S W R S R S",
    ),
    "retain": Scenario(
        (
            (
                writer("W", "OS", "append a", "append b", "append c", "retain"),
                writer("V", "OS", "append d", "append e"),
                reader("R", 2),
            ),
            (writer("X", "SYNC", "append z"),),
        ),
        {KILL: 1, POWER: 1},
        stops=1,
        batches=2,
    ),
    "close": Scenario(
        (
            (writer("W", "SYNC", "append a", "close"), writer("V", "OS", "append b", "append c", "close")),
            (writer("X", "SYNC", "append x", "close"), reader("R", 2, "fresh")),
            (writer("Y", "SYNC", "append y", "close"),),
        ),
        {KILL: 1, POWER: 1},
    ),
    "big": Scenario(
        (
            (
                writer("W", "SYNC", "append a", "append b c", "retain"),
                writer("V", "OS", "append d", "append e", "truncate 2", "append f"),
                reader("R", 3),
                reader("S", 2, "follow"),
            ),
            (writer("X", "OS", "append x", "append y"), reader("T", 2)),
            (writer("Y", "SYNC", "append z"), writer("Z", "SYNC", "append t")),
        ),
        {KILL: 2, POWER: 2, FULL: 1},
        stops=4,
        batches=2,
    ),
}


# ---- one run -----------------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a run came to.

    Attributes:
        scenario, schedule: what was run.
        problem: the promise that was broken, or what was raised; None when all is well.
        trace: what each process did.
    """

    scenario: str
    schedule: Schedule
    problem: str | None
    trace: list[Call]

    def __str__(self) -> str:
        told = f"{self.scenario}: {self.problem}\n  replay({self.scenario!r}, {str(self.schedule)!r})"
        return "\n    ".join([told, *map(told_of, self.trace)])


def told_of(call: Call) -> str:
    """A point as a line of text."""
    if not call.point:
        return f"{call.who}  -- {call.kind}"
    path = call.path.removeprefix(f"{DIRECTORY}/").removeprefix(f"{ROOT}/").removeprefix("0" * 15)
    size = "" if call.data is None else f" +{len(call.data)} {_content_of(call.data, call.position, path)}"
    return f"{call.who}@{call.step}.{call.point:<3} {call.kind} {path} {call.position or ''}{size}"


def _content_of(data: bytes, position: int, path: str) -> str:
    """What is written, as far as its bytes tell."""
    if path == DURABLE_POINT and position % SLOT_SIZE == 0:
        _, _, flags, counter, epoch, _, base = _SLOT_HEAD.unpack_from(data)
        return f"slot: counter {counter % 1000}, epoch {epoch % 1000}, flags {flags}, active {base}"
    return f"offset {int.from_bytes(data[:8], 'big')}" if path.endswith(LOG) and data[16:17] == b"\2" else repr(data[-16:])


@functools.cache
def base_image(segment_bytes: int) -> Image:
    """A store with one empty log, closed cleanly."""
    fs = LossyFileSystem(clock=VirtualClock(NOW_MS))
    with pylog.open(ROOT, fs=fs, clock=fs.clock) as store:
        store.create_topic(TOPIC, segment_bytes=segment_bytes, max_message_bytes=MESSAGE_BYTES, index_interval_bytes=0)
    return fs.image()


def run_once(name: str, schedule: Schedule) -> Outcome:
    """One run of a scenario. Cost: some 20 ms."""
    scenario = SCENARIOS[name]
    clock = VirtualClock(NOW_MS)
    image = base_image(round((scenario.batches + 0.5) * BATCH_BYTES))
    world = World(LossyFileSystem(clock=clock, image=image), clock)
    problem = None
    with shrunk_limits(), quiet(), collection_off():
        try:
            for number, phase in enumerate(scenario.phases):
                run_phase(world, phase, Machine(schedule, number, clock, world.trace))
            clock.machine = None
            look_at_the_end(world)
        except ViolationError as violation:
            problem = str(violation)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            problem = "".join(traceback.format_exception(error))
    return Outcome(name, schedule, problem, world.trace)


def replay(name: str, text: str) -> Outcome:
    """Repeats what a violation prints: the same calls, the same bytes."""
    return run_once(name, Schedule.parse(text))


def run_phase(world: World, phase: Sequence[Part], machine: Machine) -> None:
    """Runs the processes of a phase until they are done or dead."""
    actors = [kind(world, name, level, operations) for name, kind, level, operations in phase]
    machine.run([actor.begin(machine) for actor in actors])
    for actor in actors:
        actor.fs.kill()
    if machine.failure is not None:
        raise machine.failure
    if machine.power is not None:
        world.fs = world.fs.lose_power(machine.power.argument)
        world.ledger.lose_power()


def look_at_the_end(world: World) -> None:
    """Reads what is left, as a reader and as a writer, and appends to it."""
    ledger = world.ledger
    for mode in ("r", "rw"):
        store = pylog.open(ROOT, mode, fs=world.fs.process(), clock=world.clock)
        log = store.log(TOPIC)
        records, start, end = read_all(log), log.start_offset, log.end_offset
        ledger.check_offsets(records, start, end)
        if end < ledger.promised or not ledger.first_start <= start <= ledger.last_start:
            told = f"{ledger.promised} was promised, and a start from {ledger.first_start} to {ledger.last_start}"
            raise ViolationError(f"the log is from {start} to {end}; {told}")
        check_findings(log)
        (ledger.see if mode == "r" else functools.partial(ledger.load, end=end))(records, since=ledger.tick())
    ledger.acknowledge(ledger.begin(("end",), soft=False), log.append(value_of("end")))
    ledger.see(read_all(log), ledger.tick())
    wrong = [finding.message for finding in store.check().findings if finding.kind not in (*HARMLESS, "leftover")]
    if wrong:
        raise ViolationError(f"the check finds: {wrong}")
    store.close()


@contextlib.contextmanager
def shrunk_limits() -> Iterator[None]:
    """Sizes at which a few records are many."""
    with patch.multiple(limits, APPEND_CHUNK_BYTES=CHUNK_BYTES, FLUSH_BYTES=2 * CHUNK_BYTES):
        yield


@contextlib.contextmanager
def collection_off() -> Iterator[None]:
    """Files of deleted segments are removed when nobody holds the segment any more: no collector may decide when."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ---- schedules ---------------------------------------------------------------------------------------------------------------

Places = Mapping[str, Mapping[int, Sequence[Call]]]


@functools.cache
def usual_places(name: str) -> Places:
    """Of each process and step of a scenario the points that it comes to when nothing happens."""
    outcome = run_once(name, Schedule(SCENARIOS[name].turns))
    assert outcome.problem is None, outcome
    places: dict[str, dict[int, list[Call]]] = {}
    for call in outcome.trace:
        if call.point:
            places.setdefault(call.who, {}).setdefault(call.step, []).append(call)
    return places


def enumerated(name: str) -> Iterator[Schedule]:
    """All schedules in which one thing happens, then all in which a process is stopped twice, in the scenario's usual order."""
    turns = SCENARIOS[name].turns
    yield Schedule(turns)
    single = list(single_events(name))
    yield from (Schedule(turns, (event,)) for event in single)
    stops = [event for event in single if event.kind == STOP]
    yield from (Schedule(turns, pair) for pair in itertools.combinations(stops, 2))


def single_events(name: str) -> Iterator[Event]:
    """Everything that can happen in a scenario."""
    scenario = SCENARIOS[name]
    kinds = {SYNC_FAILS: (SYNC, SYNC_DIRECTORY), FULL: (WRITE, "create")}
    for phase in scenario.phases:
        names = [who for who, *_ in phase]
        arguments: dict[str, Sequence[object]] = {kind: [""] for kind in scenario.faults}
        arguments |= {kind: range(POWER_DRAWS) for kind in (POWER, SYNC_FAILS) if kind in scenario.faults}
        arguments |= {POWER: []} if phase is scenario.phases[-1] else {}
        for call in (call for who in names for calls in usual_places(name)[who].values() for call in calls):
            arguments[STOP] = [other for other in names if other != call.who and scenario.stops]
            for kind, given in arguments.items():
                if call.kind in kinds.get(kind, (call.kind,)):
                    yield from (Event(call.who, call.step, str(call.point), kind, str(argument)) for argument in given)


def sampled(name: str, seed: int) -> Schedule:
    """A schedule drawn at random."""
    rng = random.Random(f"{name} {seed}")
    scenario = SCENARIOS[name]
    turns = [tuple(rng.sample(phase, len(phase))) if rng.random() < SHUFFLED else phase for phase in scenario.turns]
    events = [_stop(name, rng) for _ in range(rng.randint(0, scenario.stops))]
    events += [_fault(name, kind, rng) for kind, most in scenario.faults.items() for _ in range(most) if rng.random() < LIKELY]
    return Schedule(tuple(turns), tuple(event for event in events if event is not None))


def _stop(name: str, rng: random.Random) -> Event | None:
    names = [who for who, *_ in rng.choice(SCENARIOS[name].phases)]
    if len(names) == 1:
        return None
    who, other = rng.sample(names, 2)
    return Event(who, *_place(name, who, rng), STOP, other)


def _fault(name: str, kind: str, rng: random.Random) -> Event:
    phases = [[who for who, made, *_ in phase if made is not Broker] for phase in SCENARIOS[name].phases]
    who = rng.choice([who for phase in (phases[:-1] if kind == POWER else phases) for who in phase])
    return Event(who, *_place(name, who, rng), kind, str(rng.randrange(1000)) if kind in (POWER, SYNC_FAILS) else "")


def _place(name: str, who: str, rng: random.Random) -> tuple[int, str]:
    """A step and a point in it: calls of each kind, with what came before it, are equally likely, however often they come."""
    step, calls = rng.choice(list(usual_places(name)[who].items()))
    kinds: dict[object, list[int]] = {}
    for before, call in zip([None, *calls], calls, strict=False):
        kinds.setdefault((before and before.kind, call.kind, call.path.rpartition(".")[2]), []).append(call.point)
    return step, str(rng.choice(rng.choice(list(kinds.values()))))


def neighbour(schedule: Schedule, seed: int) -> Schedule:
    """Nearly the same: its events a few points sooner or later, other bytes kept."""
    rng = random.Random(f"{schedule} {seed}")
    events = [event.moved(rng.choice((0, 0, 0, -2, -1, 1, 2, 3))) for event in schedule.events]
    drawn = [event._replace(argument=str(rng.randrange(1000))) if event.argument.isdecimal() else event for event in events]
    return schedule._replace(events=tuple(drawn))


# ---- many runs ---------------------------------------------------------------------------------------------------------------


def shrunk(outcome: Outcome) -> Outcome:
    """The same kind of problem with as few events as possible, and in the usual order if that does it."""
    attempts = [outcome.schedule.without(number) for number in range(len(outcome.schedule.events))]
    attempts.append(outcome.schedule._replace(turns=SCENARIOS[outcome.scenario].turns))
    for schedule in attempts:
        smaller = run_once(outcome.scenario, schedule) if schedule != outcome.schedule else outcome
        if smaller is not outcome and smaller.problem is not None:
            return shrunk(smaller)
    return outcome


def explore(name: str, schedules: Iterator[Schedule], seconds: float = float("inf")) -> tuple[int, list[Outcome]]:
    """Runs schedules of a scenario: how many, and what was found."""
    deadline = time.monotonic() + seconds
    runs, found = 0, []
    for schedule in schedules:
        if time.monotonic() > deadline:
            break
        runs += 1
        outcome = run_once(name, schedule)
        if outcome.problem is not None:
            found.append(shrunk(outcome))
    return runs, found


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Explores all scenarios for a while, half of the time one schedule after the other, half of it at random.

    Returns:
        The number of runs of each scenario, and the violations.
    """
    done: dict[str, Any] = {"seed": seed, "violations": []}
    for name in SCENARIOS:
        share = seconds / len(SCENARIOS) / 2
        start = random.Random(seed).randrange(sum(1 for _ in single_events(name)))
        drawn = (sampled(name, number) for number in itertools.count(seed * 1_000_000))
        results = [explore(name, itertools.islice(enumerated(name), start, None), share), explore(name, drawn, share)]
        done[name] = sum(runs for runs, _ in results)
        done["violations"] += [violation for _, found in results for violation in found]
    return done
