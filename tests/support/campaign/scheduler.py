"""Several processes of which one runs at a time: who runs, who dies, and when the power fails is said before.

Each process is a thread. Before every call of its file system and every nap of its clock it comes to a *point*, where the
`Schedule` may stop it, kill it, fail its call or switch the machine off. Nothing else decides anything, so the same schedule of
the same work is the same run, call by call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pylog.clock import ManualClock
from pylog.testing.memory import SYNC, SYNC_DIRECTORY, WRITE

MOST_POINTS: Final = 20_000  # of a run: one that comes to more does not end
MOST_SECONDS: Final = 120.0  # of a phase: a thread waits for one that does not run

STOP, KILL, POWER, SYNC_FAILS, FULL = "stop", "kill", "power", "sync", "full"
_STRIKES: Final = {  # which calls a fault is for: it waits for the next one of them
    SYNC_FAILS: frozenset({SYNC, SYNC_DIRECTORY}),
    FULL: frozenset({WRITE, "create"}),
}


class Killed(BaseException):
    """Ends a thread whose process has ended. No error: nothing may handle it."""


# ---- what happens ------------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """Something that happens to a process.

    Attributes:
        who: the process.
        step: in which of its steps, counted from 1.
        place: before which point of that step: a number, counted from 1; or the call that is made there and the end of its path,
            `#` and a number if it is not the first such call of the step, `+` and a number for so many points later.
        kind: STOP (another one runs), KILL, POWER, SYNC_FAILS or FULL (the next sync, or write, from there on fails).
        argument: of STOP the other's name; of POWER and SYNC_FAILS a number that says what reached the disk.
    """

    who: str
    step: int
    place: str
    kind: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.who}@{self.step}.{self.place}:{self.kind}" + (f":{self.argument}" if self.argument else "")

    @classmethod
    def parse(cls, text: str) -> Event:
        """An event from its text.

        >>> Event.parse("V@3.sync/00001.log#2+1:stop:W")
        Event(who='V', step=3, place='sync/00001.log#2+1', kind='stop', argument='W')
        """
        where, kind, *argument = text.split(":")
        who, _, where = where.partition("@")
        step, _, place = where.partition(".")
        return cls(who, int(step), place, kind, *argument)

    def moved(self, points: int) -> Event:
        """The same some points later; or earlier, where the place is a number.

        >>> str(Event("W", 2, "sync/x+1", KILL).moved(2)), str(Event("W", 2, "7", KILL).moved(-2))
        ('W@2.sync/x+3:kill', 'W@2.5:kill')
        """
        name, _, later = self.place.partition("+")
        if name.isdecimal():
            return self._replace(place=str(max(1, int(name) + points)))
        return self._replace(place=f"{name}+{max(0, int(later or 0) + points)}")


class Watch:
    """Sees when the place of an event comes, point by point of its step."""

    def __init__(self, event: Event) -> None:
        self.event = event
        name, _, later = event.place.partition("+")
        name, _, number = name.partition("#")
        self._call, _, self._path = name.partition("/")
        self._to_come = int(number or 1)
        self._later = int(later or 0)

    def is_now(self, point: int, call: str, path: str) -> bool:
        """Whether this point, a call on a path, is the one. To be asked about each point once."""
        if self._call.isdecimal():
            return point == int(self._call)
        if self._to_come:
            self._to_come -= call == self._call and path.endswith(self._path)
        else:
            self._later -= 1
        return self._to_come == 0 and self._later == 0


class Schedule(NamedTuple):
    """All that is decided in a run.

    Attributes:
        turns: of each phase the processes in the order in which they may begin their next step; then one after the other.
        events: what happens to them.

    >>> str(Schedule.parse("W V W / X; W@2.7:kill, V@1.3:stop:W"))
    'W V W / X; W@2.7:kill, V@1.3:stop:W'
    """

    turns: tuple[tuple[str, ...], ...] = ()
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return " / ".join(map(" ".join, self.turns)) + "; " + ", ".join(map(str, self.events))

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """A schedule from its text."""
        turns, _, events = text.partition(";")
        found = tuple(Event.parse(event.strip()) for event in events.split(",") if event.strip())
        return cls(tuple(tuple(phase.split()) for phase in turns.split("/")), found)

    def without(self, number: int) -> Schedule:
        """The same without one of its events."""
        return self._replace(events=self.events[:number] + self.events[number + 1 :])


class Call(NamedTuple):
    """A point that a process came to, or (as point 0) a remark: what was done where, and to which of its bytes."""

    who: str
    step: int
    point: int
    kind: str
    path: str = ""
    position: int = 0
    data: bytes | None = None


# ---- processes ---------------------------------------------------------------------------------------------------------------


class Process:
    """A thread that runs when it is told to.

    Args:
        name: of the process.
        machine: that runs it.
        steps: its work; between two of them it can be another one's turn.
        end: called when it dies: everything that it holds is let go.

    Attributes:
        step, points: which step it is in, and how many points of it it came to.
        napping: waits for something that only others can do.
        over: its work is done, or it was killed.
        armed: the faults that wait for a call.
        met: those that a call has met, each with the path; for whoever asks why it failed.
    """

    def __init__(self, name: str, machine: Machine, steps: Iterable[Callable[[], None]], end: Callable[[], None]) -> None:
        self.name = name
        self.step = self.points = 0
        self.napping = self.over = self.dead = False
        self.armed: list[Event] = []
        self.met: list[tuple[str, str]] = []
        self._machine = machine
        self._steps = steps
        self._end = end
        self._baton = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def go(self) -> None:
        """Lets it run; whoever calls this stops then."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._baton.release()

    def pause(self) -> None:
        """Waits until it is told to go on."""
        self._baton.acquire()
        if self._machine.off:
            self.die()

    def die(self) -> None:
        """Ends the process where it stands."""
        self.dead = True
        self._end()
        raise Killed

    def _run(self) -> None:
        try:
            for step in self._steps:
                self.step, self.points = self.step + 1, 0
                step()
                self._machine.turn(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what we look for
            self._machine.fail(error)
        self.over = True
        self._machine.ended()


class Machine:
    """Runs some processes until all are done, or the power fails.

    Args:
        schedule, phase: what happens; which of its turns count.
        clock: all processes' time.
        trace: is filled with all points.

    Attributes:
        off: the power has failed, or there is no sense in going on.
        power: the event that made it fail.
        failure: what a process raised that it should not.
        switches: how often another process got its turn; who sees the same number twice was alone in between.
    """

    def __init__(self, schedule: Schedule, phase: int, clock: VirtualClock, trace: list[Call]) -> None:
        self._watches: dict[tuple[str, int], list[Watch]] = {}
        for event in schedule.events:
            self._watches.setdefault((event.who, event.step), []).append(Watch(event))
        self._turns = iter(schedule.turns[phase] if phase < len(schedule.turns) else ())
        self._trace = trace
        self._processes: dict[str, Process] = {}
        self._current: Process
        self._all_over = threading.Event()
        self.off = False
        self.power: Event | None = None
        self.failure: BaseException | None = None
        self.switches = 0
        clock.machine = self

    def run(self, processes: Sequence[Process]) -> None:
        """Runs processes to their ends."""
        self._processes = {process.name: process for process in processes}
        self._hand_over(self._called() or processes[0])
        assert self._all_over.wait(MOST_SECONDS), f"{self._current.name} does not come to an end"

    @property
    def caller(self) -> str:
        """Who is at which point now."""
        return f"{self._current.name}@{self._current.step}.{self._current.points}"

    # ---- points --------------------------------------------------------------------------------------------------------------

    def point(self, kind: str, path: str = "", position: int = 0, data: bytes | None = None) -> Event | None:
        """Called by the running process before it does something; the fault that its call meets, if any."""
        process = self._current
        if self.off or process.dead:
            process.die()
        process.points += 1
        self._trace.append(Call(process.name, process.step, process.points, kind, path, position, data))
        if len(self._trace) > MOST_POINTS:
            raise AssertionError(f"{process.name} does not come to an end")
        watches = self._watches.get((process.name, process.step), ())
        for event in [watch.event for watch in watches if watch.is_now(process.points, kind, path)]:
            self._happen(event, process)
        return self._strike(process, kind, path) if process.armed else None

    def _happen(self, event: Event, process: Process) -> None:
        if event.kind in _STRIKES:
            process.armed.append(event)
            return
        self.remark(str(event))
        if event.kind == STOP:
            self._stop(process, self._processes.get(event.argument))
            return
        if event.kind == POWER:
            self.off, self.power = True, event
        process.die()

    def _strike(self, process: Process, kind: str, path: str) -> Event | None:
        for event in process.armed:
            if kind in _STRIKES[event.kind]:
                process.armed.remove(event)
                process.met.append((event.kind, path))
                self.remark(str(event))
                return event
        return None

    def has_struck(self, kind: str) -> bool:
        """Whether a fault of that kind has met anybody."""
        return any(kind == met for process in self._processes.values() for met, _ in process.met)

    def remark(self, text: str) -> None:
        """Adds a line to the trace."""
        self._trace.append(Call(self._current.name, 0, 0, text))

    # ---- whose turn it is ----------------------------------------------------------------------------------------------------

    def turn(self, process: Process) -> None:
        """Called by the running process between two steps: whoever's turn it is goes on."""
        self.point("end")
        self._stop(process, self._called())

    def nap(self) -> None:
        """Called by the running process when it waits: somebody else goes on, if there is anybody."""
        self.point("nap")
        process = self._current
        process.napping = True
        self._stop(process, self._following(process))
        process.napping = False

    def ended(self) -> None:
        """Called by a process whose thread ends."""
        following = (None if self.off else self._called()) or self._following(self._current)
        if following is None:
            self._all_over.set()
        else:
            self._hand_over(following)

    def fail(self, error: BaseException) -> None:
        """A process raised what it should not: nobody goes on."""
        self.failure = self.failure or error
        self.off = True

    def _called(self) -> Process | None:
        """The next one in the schedule's turns."""
        return next((self._processes[name] for name in self._turns if not self._processes[name].over), None)

    def _following(self, process: Process) -> Process | None:
        """Who goes on when a process cannot: in turn, those that wait for nothing first."""
        everybody = list(self._processes.values())
        place = everybody.index(process)
        others = [other for other in everybody[place + 1 :] + everybody[:place] if not other.over]
        return min(others, key=lambda other: other.napping, default=None)

    def _stop(self, process: Process, other: Process | None) -> None:
        if other is not None and other is not process and not other.over:
            self._hand_over(other)
            process.pause()

    def _hand_over(self, process: Process) -> None:
        self.switches += 1
        self._current = process
        process.go()


class VirtualClock(ManualClock):
    """A clock that stands still but for naps, which let others run."""

    machine: Any = None  # while one runs

    def sleep(self, seconds: float) -> None:
        """Waits."""
        super().sleep(seconds)
        if self.machine is not None:
            self.machine.nap()
