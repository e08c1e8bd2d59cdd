"""An exhaustive model of writing transactions: two processes, an output partition D0, the offsets of their consumer in D1, and T.

Each process reads the committed offset n in D1, writes output n to D0 and offset n + 1 to D1 in one transaction, commits, and
goes on. A step is what happens under one lock. Between any two steps a process may be stopped for ever, killed, or overtaken, or
the power fails. In every state the model also asks how it would end (`transaction_judge`). Rules are in `transaction_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from support.campaign.transaction_judge import Past
from support.campaign.transaction_logs import (
    AT_REST,
    BOTH,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Data,
    DataLog,
    Record,
    StateLog,
    States,
    committed,
    completed,
    cuts,
    marked,
    marker_of,
    offset_of,
    orphans_epoch,
    told,
)
from support.campaign.transaction_rules import SCENARIOS, Scope

READER: Final = 2  # the third process, if any, takes a snapshot


class Process(NamedTuple):
    """A process: the step it takes next, its epoch, the offset it is at, and what the step is about."""

    step: str = "off"
    epoch: int = 0
    n: int = 0
    about: Any = None


class Finish(NamedTuple):
    """What a finisher is about: the id, the Prepare, and the step that it comes back to."""

    producer: int
    record: Record
    back: str


class State(NamedTuple):
    """A state of the model."""

    states: States
    data: Data
    processes: tuple[Process, ...]
    past: Past
    left: Scope


class Step(NamedTuple):
    """A step that can be taken: what happens, the state after it, and what it violates."""

    label: str
    state: State
    violation: str | None


class Turn(NamedTuple):
    """A process that may take a step, and what it sees."""

    state: State
    number: int
    process: Process
    producer: int

    @property
    def t(self) -> StateLog:
        return self.state.states[self.producer]

    @property
    def last(self) -> Record | None:
        return self.t.last

    @property
    def is_ongoing(self) -> bool:
        """Whether T has the process's transaction open."""
        return self.last is not None and self.last[:2] == (ONGOING, self.process.epoch)

    def log(self, number: int) -> DataLog:
        return self.state.data[number]


OFF: Final = Process()


class Model:
    """The steps of a scenario under some rules.

    Args:
        scenario: a name in `SCENARIOS`.
        rules: those that hold.
    """

    def __init__(self, scenario: str, rules: frozenset[str]) -> None:
        self.is_single = scenario == "single"
        if self.is_single:
            lock = {"finisher locks"} if "single: finisher locks" in rules else set()
            rules = rules - {"finisher locks"} | lock
        self.rules = rules
        self.ids, self.scope = SCENARIOS[scenario]
        self.shares_an_id = self.ids[0] == self.ids[1]
        self._steps: Mapping[str, Callable[[Turn], Iterator[Step]]] = {
            name.removeprefix("step_"): getattr(self, name) for name in dir(self) if name.startswith("step_")
        }

    def start(self) -> State:
        processes = (OFF,) * (2 + bool(self.scope.snap))
        states = (StateLog(),) * (1 + max(self.ids))
        return State(states, (DataLog(), DataLog()), processes, Past((), (0, 0), ()), self.scope)

    def steps(self, state: State) -> Iterator[Step]:
        """All steps that can be taken."""
        for number, process in enumerate(state.processes):
            if number == READER:
                yield from self._reader(Turn(state, number, process, 0))
            else:
                yield from self._process(Turn(state, number, process, self.ids[number]))
        yield from self._world(state)

    def _process(self, turn: Turn) -> Iterator[Step]:
        state, left = turn.state, turn.state.left
        if turn.process.step == "off":
            is_first = turn.number == 0 or state.processes[0].step != "off" or left.init < self.scope.init
            if left.init and is_first:
                yield self._to(turn, "starts", Process("init"), use="init")
            return
        if left.kill:
            held = {at: log._replace(holder=-1) for at, log in enumerate(state.data) if log.holder == turn.number}
            yield self._killed(turn, "KILLED", held)
        yield from self._steps[turn.process.step.rstrip("01").lower().replace(" ", "_")](turn)

    def _killed(self, turn: Turn, label: str, data: dict[int, DataLog]) -> Step:
        return self._to(turn, label, OFF, d=data, use="kill")

    # ---- a new state -----------------------------------------------------------------------------------------------------------

    def _to(
        self,
        turn: Turn | State,
        label: str,
        process: Process | None = None,
        *,
        t: Mapping[int, StateLog] | None = None,
        d: Mapping[int, DataLog] | None = None,
        ack: int | None = None,
        use: str | None = None,
        bad: str | None = None,
    ) -> Step:
        """A step to another state: logs that changed, an answer, what of the scope it uses, and what it violates."""
        old = turn.state if isinstance(turn, Turn) else turn
        states = tuple((t or {}).get(number, log) for number, log in enumerate(old.states))
        data = tuple((d or {}).get(number, log) for number, log in enumerate(old.data))
        processes = old.processes
        if isinstance(turn, Turn):
            label = f"P{turn.number} {label}"
            if process is not None:
                process = self._settled(process, states, turn.number)
                processes = tuple(process if number == turn.number else each for number, each in enumerate(processes))
        past = old.past if ack is None else old.past._replace(acked=tuple(sorted((*old.past.acked, ack))))
        left = old.left if use is None else old.left._replace(**{use: getattr(old.left, use) - 1})
        for number in d or ():
            bad = bad or _given_again(old, number, data[number])
        return Step(label, State(states, data, processes, self._read(past, data, d or {}), left), bad)

    def _read(self, past: Past, data: Data, changed: Mapping[int, DataLog]) -> Past:
        """Readers see all that they may see of the partitions that changed."""
        if not changed:
            return past
        positions, seen = list(past.positions), set(past.seen)
        for number in changed:
            known = data[number].all
            end = min(known.stable, data[number].durable) if "durable readers" in self.rules else known.stable
            positions[number] = max(positions[number], end)
            read = [at for at, outcome in known.outcomes.items() if outcome == "C" and at < end]
            seen |= {(number, at, data[number].entries[at][3]) for at in read}
        return past._replace(positions=tuple(positions), seen=tuple(sorted(seen)))

    def _settled(self, process: Process, states: States, number: int) -> Process:
        """The process past the steps that do nothing."""
        following: str | None = process.step
        while following is not None:
            process = process._replace(step=following)
            following = self._skips(process, states, number)
            if process.step == "sync T" and following is not None:
                process = process._replace(about=None)
            if process.step == "abandoned":
                return Process("begin", process.epoch + 1, process.n) if self.shares_an_id else OFF
        return process

    def _skips(self, process: Process, states: States, number: int) -> str | None:
        """The step after one that does nothing; None if it does something."""
        step, about, rules = process.step, process.about, self.rules
        follows = {
            "sync T": ("look0", "predecessor synced" not in rules),
            "sync data": ("prepare", "data synced" not in rules),
            "sync prepare": (self._after_prepare, "prepare synced" not in rules),
            "settle": ("complete", "markers synced" not in rules),
        }
        if step in follows:
            following, is_left_out = follows[step]
            if step == "sync T":
                is_left_out = is_left_out or states[self.ids[number]].durable >= about
            return following if is_left_out else None
        if not isinstance(about, Finish):
            return None
        return self._finisher_skips(step, about, states[about.producer])

    def _finisher_skips(self, step: str, about: Finish, t: StateLog) -> str | None:
        is_abort = about.record[0] == PREPARE_ABORT
        if step == "finish":
            is_durable = t.durable >= len(t.entries)
            return "mark for another0" if is_abort or "decision synced" not in self.rules or is_durable else None
        if step == "mark for another0":
            return None if 0 in about.record[2] else "mark for another1"
        if step == "mark for another1":
            return None if 1 in about.record[2] else "settle for another"
        if step == "settle for another":
            return "complete for another" if is_abort or "markers synced" not in self.rules else None
        return None

    @property
    def _after_prepare(self) -> str:
        return "mark0" if "markers before answer" in self.rules else "answer"

    def _fenced(self, turn: Turn, **changes: Any) -> Step:
        return self._to(turn, "is fenced", OFF, **changes)

    # ---- init, and where to begin ----------------------------------------------------------------------------------------------

    def step_init(self, turn: Turn) -> Iterator[Step]:
        last = turn.last
        is_left_out = last is not None and (
            (last[0] == ONGOING and "init aborts" not in self.rules)
            or (last[0] in PREPARED and "init finishes" not in self.rules)
        )
        if last is None or last[0] in AT_REST or is_left_out:
            epoch = last[1] + 1 if last else 0
            process = Process("read" if self.shares_an_id else "take", epoch)
            yield self._to(turn, f"T: Empty, epoch {epoch}", process, t={turn.producer: turn.t.plus((EMPTY, epoch, ()))})
        elif last[0] == ONGOING:
            yield self._aborts(turn, turn.producer, "init", Process())
        else:
            yield self._to(turn, f"finds {last[0]}", Process("finish", about=Finish(turn.producer, last, "init")))

    def _aborts(self, turn: Turn, producer: int, back: str, process: Process) -> Step:
        """Writes PrepareAbort over an open transaction, and finishes it."""
        t = turn.state.states[producer]
        assert t.last is not None
        record = (PREPARE_ABORT, t.last[1] + 1, t.last[2])
        process = process._replace(step="finish", about=Finish(producer, record, back))
        return self._to(turn, f"T{producer}: PrepareAbort, epoch {record[1]}", process, t={producer: t.plus(record)})

    def step_read(self, turn: Turn) -> Iterator[Step]:
        n = len(committed(turn.log(0).entries)) if self.is_single else offset_of(turn.log(1).entries)
        yield self._to(turn, f"reads offset {n}", Process("begin", turn.process.epoch, n))

    def step_take(self, turn: Turn) -> Iterator[Step]:
        log = turn.log(1)
        if log.holder in (-1, turn.number):
            taken = {1: log.plus(("own", -1, 0, turn.number))} if log.all.owner != turn.number else None
            yield self._to(turn, "takes the partition", Process("taken", turn.process.epoch), d=taken)

    def step_taken(self, turn: Turn) -> Iterator[Step]:
        log = turn.log(1)
        pending = [producer for producer in log.all.open if producer != turn.producer]
        if log.all.owner != turn.number:
            yield self._to(turn, "is no owner", OFF)
        elif pending and "pending waits" in self.rules:
            label = f"finds pending offsets of producer {pending[0]}"
            yield self._to(turn, label, Process("pending", turn.process.epoch, about=pending[0]))
        elif log.holder == -1:
            yield from self.step_read(turn)

    def step_pending(self, turn: Turn) -> Iterator[Step]:
        producer, log = turn.process.about, turn.log(1)
        t = turn.state.states[producer]
        process = Process(epoch=turn.process.epoch)
        if t.last and t.last[0] == ONGOING:
            yield self._aborts(turn, producer, "taken", process)
        elif t.last and t.last[0] in PREPARED:
            process = process._replace(step="finish", about=Finish(producer, t.last, "taken"))
            yield self._to(turn, f"finds {t.last[0]}", process)
        elif log.holder == -1:
            orphan = None
            if producer in log.producers.open:
                orphan = {1: log.plus(("A", producer, orphans_epoch(log, t, producer, self.rules), -1))}
            yield self._to(turn, "aborts the orphan", process._replace(step="taken"), d=orphan)

    # ---- a transaction ---------------------------------------------------------------------------------------------------------

    def step_begin(self, turn: Turn) -> Iterator[Step]:
        epoch, last = turn.process.epoch, turn.last
        if "begin looks" in self.rules and not (last and last[0] in AT_REST and last[1] == epoch):
            yield self._fenced(turn)
        elif turn.state.left.tx:
            process = turn.process._replace(step="sync T", about=len(turn.t.entries))
            if "register first" in self.rules:
                begun = {turn.producer: turn.t.plus((ONGOING, epoch, (0,)))}
                yield self._to(turn, f"T: Ongoing, epoch {epoch}, D0", process, t=begun, use="tx")
            else:
                yield self._to(turn, "begins", process, use="tx")

    def step_sync_t(self, turn: Turn) -> Iterator[Step]:
        yield self._to(turn, "syncs T", turn.process._replace(step="look0", about=None), t={turn.producer: turn.t.synced()})

    def step_look(self, turn: Turn) -> Iterator[Step]:
        process, last, rules = turn.process, turn.last, self.rules
        number = int(process.step[-1])
        if turn.state.left.empty and number == 0 and turn.is_ongoing and last:
            parts = () if "names what it wrote" in rules else last[2]
            record = (PREPARE_COMMIT, process.epoch + int("new epoch each" in rules), parts)
            finish = process._replace(step="finish", about=Finish(turn.producer, record, "abandoned"))
            yield self._to(turn, "T: PrepareCommit, nothing written", finish, t={turn.producer: turn.t.plus(record)}, use="empty")
        is_named = turn.is_ongoing and last is not None and number in last[2]
        allowed = "look at T" not in rules or "register first" not in rules or is_named
        mine = self._is_mine(turn, number)
        appends = process._replace(step=f"append{number}")
        log = turn.log(number)
        if "look under the lock" not in rules:
            yield self._to(turn, f"looks at T: {allowed}", appends._replace(about=(allowed, None)))
        elif log.holder == -1:
            seen = allowed, mine if "owner under the lock" in rules else None
            held = {number: log._replace(holder=turn.number)}
            yield self._to(turn, f"locks D{number}, looks at T: {allowed}", appends._replace(about=seen), d=held)
        if number == 1 and "owner under the lock" not in rules and process.about is None and log.holder == -1:
            yield self._to(turn, f"looks at the owner: {mine}", process._replace(about=mine))

    def _is_mine(self, turn: Turn, number: int) -> bool:
        return self.shares_an_id or number == 0 or turn.log(1).all.owner == turn.number

    def step_append(self, turn: Turn) -> Iterator[Step]:
        process, number = turn.process, int(turn.process.step[-1])
        log = turn.log(number)
        if log.holder not in (turn.number, -1):
            return
        free = log._replace(holder=-1)
        allowed, mine = process.about
        if mine is None:
            mine = "owner under the lock" not in self.rules or self._is_mine(turn, number)
        if not allowed or log.producers.epochs.get(turn.producer, -1) > process.epoch:
            yield self._fenced(turn, d={number: free})
        elif not mine:
            yield self._to(turn, "is no owner any more", process._replace(step="abort", about=None), d={number: free})
        else:
            yield from self._appends(turn, number, self._without_orphan(turn, free))

    def _without_orphan(self, turn: Turn, log: DataLog) -> DataLog:
        opened = log.producers.open.get(turn.producer)
        if opened is None or "orphans first" not in self.rules:
            return log
        epoch = log.entries[opened[-1]][2]
        return log.plus(("A", turn.producer, epoch + 1, -1)) if epoch < turn.process.epoch else log

    def _appends(self, turn: Turn, number: int, log: DataLog) -> Iterator[Step]:
        process = turn.process
        new = log.plus(("data", turn.producer, process.epoch, process.n))
        if self.is_single:
            if turn.state.left.kill:
                yield self._killed(turn, f"KILLED amid the write of {process.n}", {number: new})
            both = new.plus(("C", turn.producer, process.epoch + 1, -1))
            label = f"appends {process.n} and COMMIT to D0, epoch {process.epoch}"
            yield self._to(turn, label, process._replace(step="single sync", about=None), d={number: both})
            return
        following = (("look1", "register0"), ("register1", "sync data"))["register first" in self.rules][number]
        label = f"appends {process.n} to D{number}, epoch {process.epoch}"
        yield self._to(turn, label, process._replace(step=following, about=None), d={number: new})

    def step_register(self, turn: Turn) -> Iterator[Step]:
        process, last = turn.process, turn.last
        is_late = process.step == "register0"
        okay = last is not None and last[1] == process.epoch and (last[0] in AT_REST if is_late else last[0] == ONGOING)
        if okay:
            following = process._replace(step="sync data" if is_late else "look1", about=None)
            named = {turn.producer: turn.t.plus((ONGOING, process.epoch, BOTH))}
            yield self._to(turn, "T: Ongoing, D0 and D1", following, t=named)
        else:
            yield self._fenced(turn)

    def step_sync_data(self, turn: Turn) -> Iterator[Step]:
        synced = {number: turn.log(number).synced() for number in BOTH}
        yield self._to(turn, "syncs D0, D1", turn.process._replace(step="prepare", about=None), d=synced)
        if turn.state.left.abort:
            yield self._to(turn, "wants to abort", turn.process._replace(step="abort", about=None), use="abort")

    def step_abort(self, turn: Turn) -> Iterator[Step]:
        yield self._aborts(turn, turn.producer, "abandoned", turn.process) if turn.is_ongoing else self._fenced(turn)

    # ---- the decision ----------------------------------------------------------------------------------------------------------

    def step_prepare(self, turn: Turn) -> Iterator[Step]:
        if "commit looks" in self.rules and not turn.is_ongoing:
            yield self._fenced(turn)
            return
        record = (PREPARE_COMMIT, turn.process.epoch + int("new epoch each" in self.rules), BOTH)
        process = turn.process._replace(step="sync prepare", about=record)
        yield self._to(turn, f"T: PrepareCommit, epoch {record[1]}", process, t={turn.producer: turn.t.plus(record)})

    def step_sync_prepare(self, turn: Turn) -> Iterator[Step]:
        process = turn.process._replace(step=self._after_prepare)
        yield self._to(turn, "syncs T", process, t={turn.producer: turn.t.synced()})

    def step_mark(self, turn: Turn) -> Iterator[Step]:
        number, record = int(turn.process.step[-1]), turn.process.about
        if turn.log(number).holder == -1:
            after = "answer" if "markers before answer" in self.rules else "settle"
            process = turn.process._replace(step="mark1" if number == 0 else after)
            yield self._marks(turn, number, turn.producer, record, process)

    def _marks(self, turn: Turn, number: int, producer: int, record: Record, process: Process) -> Step:
        log = turn.log(number)
        new = marked(log, producer, marker_of(record), record[1], self.rules)
        if new is log:
            return self._to(turn, f"D{number} needs no marker", process)
        return self._to(turn, f"marker in D{number}, epoch {record[1]}", process, d={number: new})

    def step_answer(self, turn: Turn) -> Iterator[Step]:
        n = turn.process.n
        following = "settle" if "markers before answer" in self.rules else "mark0"
        yield self._answers(turn, BOTH, turn.process._replace(step=following), n)

    def _answers(self, turn: Turn, partitions: tuple[int, ...], process: Process, n: int) -> Step:
        visible = all(n in committed(turn.log(number).entries) for number in partitions)
        bad = None if visible else f"{n} is answered and cannot be read"
        return self._to(turn, f"answers that {n} is committed", process, ack=n, bad=bad)

    def step_settle(self, turn: Turn) -> Iterator[Step]:
        synced = {number: turn.log(number).synced() for number in BOTH}
        yield self._to(turn, "syncs D0, D1", turn.process._replace(step="complete"), d=synced)

    def step_complete(self, turn: Turn) -> Iterator[Step]:
        process, record, last = turn.process, turn.process.about, turn.last
        goes_on = Process("begin", process.epoch + int("new epoch each" in self.rules), process.n + 1)
        if last == record or "still prepared" not in self.rules:
            yield self._to(turn, "T: CompleteCommit", goes_on, t={turn.producer: turn.t.plus(completed(record))})
        elif last and last[0] in AT_REST and last[0] != EMPTY and last[1] == record[1]:
            yield self._to(turn, "finds CompleteCommit", goes_on)
        else:
            yield self._fenced(turn)

    # ---- one partition: data and marker in one write -------------------------------------------------------------------------

    def step_single_sync(self, turn: Turn) -> Iterator[Step]:
        yield self._to(turn, "syncs D0", turn.process._replace(step="single answer"), d={0: turn.log(0).synced()})

    def step_single_answer(self, turn: Turn) -> Iterator[Step]:
        yield self._answers(turn, (0,), turn.process._replace(step="single complete"), turn.process.n)

    def step_single_complete(self, turn: Turn) -> Iterator[Step]:
        if not turn.is_ongoing:
            yield self._fenced(turn)
            return
        epoch = turn.process.epoch + 1
        done = {turn.producer: turn.t.plus((COMPLETE_COMMIT, epoch, ()))}
        yield self._to(turn, "T: CompleteCommit", Process("begin", epoch, turn.process.n + 1), t=done)

    # ---- a finisher ----------------------------------------------------------------------------------------------------------

    def step_finish(self, turn: Turn) -> Iterator[Step]:
        producer = turn.process.about.producer
        synced = {producer: turn.state.states[producer].synced()}
        yield self._to(turn, f"syncs T{producer}", turn.process._replace(step="mark for another0"), t=synced)

    def step_mark_for_another(self, turn: Turn) -> Iterator[Step]:
        number, about = int(turn.process.step[-1]), turn.process.about
        log = turn.log(number)
        is_free = log.holder == -1
        if "finisher locks" not in self.rules:
            is_free = is_free or marked(log, about.producer, "A", about.record[1], self.rules) is log
        if is_free:
            process = turn.process._replace(step=("mark for another1", "settle for another")[number])
            yield self._marks(turn, number, about.producer, about.record, process)

    def step_settle_for_another(self, turn: Turn) -> Iterator[Step]:
        synced = {number: turn.log(number).synced() for number in turn.process.about.record[2]}
        yield self._to(turn, "syncs what was marked", turn.process._replace(step="complete for another"), d=synced)

    def step_complete_for_another(self, turn: Turn) -> Iterator[Step]:
        about = turn.process.about
        t = turn.state.states[about.producer]
        process = turn.process._replace(step=about.back, about=None)
        if t.last == about.record or "still prepared" not in self.rules:
            done = completed(about.record)
            yield self._to(turn, f"T{about.producer}: {done[0]}", process, t={about.producer: t.plus(done)})
        else:
            yield self._to(turn, "T has moved on", process)

    # ---- a reader that takes a snapshot --------------------------------------------------------------------------------------

    def _reader(self, turn: Turn) -> Iterator[Step]:
        state, about = turn.state, turn.process.about
        lengths = tuple(len(t.entries) for t in state.states)
        match turn.process.step:
            case "off" if state.left.snap:
                yield self._to(turn, "begins a snapshot", Process("looks"), use="snap")
            case "looks" if not self._lacks_a_marker(state) or "snapshot looks again" not in self.rules:
                yield self._to(turn, "looks at T", Process("looks at D0", about=(lengths,)))
            case "looks at D0":
                yield self._to(turn, "looks at D0", Process("looks at D1", about=(*about, self._end(state, 0))))
            case "looks at D1":
                yield self._to(turn, "looks at D1", Process("compares", about=(*about, self._end(state, 1))))
            case "compares" if about[0] != lengths and "snapshot looks again" in self.rules:
                yield self._to(turn, "looks again", Process("looks"))
            case "compares":
                sees = [self._sees(state.data[number], about[1 + number]) for number in BOTH]
                bad = f"a snapshot has outputs {sees[0]} and the offsets of {sees[1]}"
                is_whole = sorted(sees[0]) == sorted(sees[1])
                yield self._to(turn, f"has outputs {sees[0]}", Process("done"), bad=None if is_whole else bad)

    def _end(self, state: State, number: int) -> int:
        log = state.data[number]
        return len(log.entries) if "snapshot by outcome" in self.rules else log.all.stable

    def _sees(self, log: DataLog, end: int) -> list[int]:
        known = log.cut(end) if "snapshot by outcome" in self.rules else log
        return [log.entries[at][3] for at, outcome in known.all.outcomes.items() if outcome == "C" and at < end]

    def _lacks_a_marker(self, state: State) -> bool:
        return any(
            t.last is not None and t.last[0] == PREPARE_COMMIT and producer in state.data[number].all.open
            for producer, t in enumerate(state.states)
            for number in (t.last[2] if t.last else ())
        )

    # ---- what happens by itself ----------------------------------------------------------------------------------------------

    def _world(self, state: State) -> Iterator[Step]:
        for number, log in enumerate(state.data):
            if state.left.other and log.durable < len(log.entries):
                yield self._to(state, f"another writer syncs D{number}", d={number: log.synced()}, use="other")
            if state.left.forget and len(log.entries) > log.forgotten and not log.all.open:
                idle = {number: log._replace(forgotten=len(log.entries))}
                yield self._to(state, f"D{number} forgets idle producers", d=idle, use="forget")
        if state.left.power and any(process.step != "off" for process in state.processes):
            left = state.left._replace(power=state.left.power - 1)
            for t, d in cuts(state.states, state.data):
                label = "POWER LOSS keeps " + told(t, d, lambda log: len(log.entries))
                yield Step(label, State(t, d, (OFF,) * 2, state.past, left), None)


def _given_again(old: State, number: int, log: DataLog) -> str | None:
    """Whether a reader is past an offset that new data gets."""
    position = old.past.positions[number]
    for at in range(len(old.data[number].entries), len(log.entries)):
        if log.entries[at][0] == "data" and at < position:
            return f"offset {at} of D{number} is given again below a reader's position {position}"
    return None
