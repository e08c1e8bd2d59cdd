"""Every course that a small group can take: processes that join, read, commit, leave, are killed and stopped, one step after the
other in every order, with `pylog.groups`' own decisions and its own judgement of who lives.

What is in the log is shared and changes one decision at a time; what a process believes may be old. A rule that is left out is a
mutant: the exploration has to find what goes wrong then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from pylog.errors import FencedMemberError
from pylog.groups import decisions
from pylog.groups.liveness import FailureDetector, LivenessVerdict, MemberSlot
from pylog.groups.state import GroupState, Member, PartitionSet, TopicInfo
from pylog.record.types import TopicPartition

NAMES = "a slot names its member"
SLOT_FIRST = "first the slot, then the group"
LOOK_AGAIN = "look again under the lock"
OWNERSHIP = "a commit needs ownership"
POSITION = "the position is read when a partition is taken"
DEAD_FIRST = "first the dead member goes, then its slot"
FINISHED = "a revocation begun is finished"
GIVE_UP = "a partition is given up before another takes it"
RULES = frozenset({NAMES, SLOT_FIRST, LOOK_AGAIN, OWNERSHIP, POSITION, DEAD_FIRST, FINISHED, GIVE_UP})

SESSION_MS = 10_000
Log = tuple[int, tuple[Member, ...]]
Slots = tuple[tuple[int | None, str], ...]
Joined = tuple[tuple[str, int], ...]


class Proc(NamedTuple):
    """A process with one consumer, and what it believes.

    Attributes:
        life: "run", "stopped" or "dead".
        member: its id, "" without a membership.
        slot: its slot, -1 without one.
        reading: what it reads.
        positions: by partition, where it is.
        plan: what it does next: "join", "slot", "revoking", or members that it is about to put out, or positions read too early.
        revoked: what it is giving up.
        epoch: of its membership.
    """

    life: str = "run"
    member: str = ""
    slot: int = -1
    reading: PartitionSet = frozenset()
    positions: tuple[int, ...] = ()
    plan: object = None
    revoked: PartitionSet = frozenset()
    epoch: int = -1


class World(NamedTuple):
    """Everything.

    Attributes:
        log: the group.
        committed: by partition.
        procs: the processes.
        slots: of the members file: the process that holds the lock, and the member that it says.
        joined: the slot that each member had when it joined; only a world without names looks there.
        left: how many kills, stops and joins may still be.
    """

    log: Log
    committed: tuple[int, ...]
    procs: tuple[Proc, ...]
    slots: Slots
    joined: Joined
    left: tuple[int, int, int]


Move = tuple[str, World, str | None]  # what happens, the world then, and what is wrong with that


class Exploration:
    """The worlds of some processes.

    Args:
        rules: those that hold.
        processes, partitions, records, joins, kills, stops: how large it is; records are those of each partition.
        static: the members have instance ids.
    """

    def __init__(
        self,
        rules: frozenset[str] = RULES,
        *,
        processes: int = 2,
        partitions: int = 1,
        records: int = 2,
        joins: int = 3,
        kills: int = 1,
        stops: int = 1,
        static: bool = False,
    ) -> None:
        self.rules = rules
        self.available = {"t": TopicInfo(bytes(16), tuple(range(partitions)))}
        self.places = [TopicPartition("t", number) for number in range(partitions)]
        self.static = static
        self.records = records
        nowhere = (0,) * partitions
        self.start = World(
            (0, ()), nowhere, (Proc(positions=nowhere),) * processes, ((None, ""),) * processes, (), (kills, stops, joins)
        )
        self.judge = cache(self._judge)
        self.state = cache(self._state)
        self.remove = cache(self._remove)
        self.settle = cache(self._settle)

    # ---- the log ---------------------------------------------------------------------------------------------------------

    def _state(self, log: Log) -> GroupState:
        members = {member.member_id: member for member in log[1]}
        topics = {"t": len(self.places)} if members else {}
        return GroupState(log[0], members, topics, {"t": bytes(16)})

    @staticmethod
    def log(state: GroupState) -> Log:
        return state.epoch, tuple(state.members.values())

    def _remove(self, log: Log, members: frozenset[str]) -> Log:
        return self.log(decisions.remove(self.state(log), members, self.available))

    def _settle(self, log: Log, member: str, reading: PartitionSet) -> Log:
        state = self.state(log)
        if FINISHED in self.rules:
            after = decisions.settle(state, member, reading)
        else:  # what the log says that it has is not looked at again
            after = decisions.settle(state, member, reading | state.members[member].owned)
        if GIVE_UP not in self.rules:
            me = after.members[member]
            after = after._replace(members={**after.members, member: me._replace(owned=me.owned | me.target)})
        return self.log(after)

    def judged(self, world: World, observer: str, *, long: bool) -> LivenessVerdict:
        """What a member sees of the others: at one look, or as long as it takes to find out who is absent."""
        lives = tuple(holder is not None and world.procs[holder].life == "run" for holder, _ in world.slots)
        return self.judge(world.log, world.slots, lives, world.joined, observer, long)

    def _judge(
        self, log: Log, slots: Slots, lives: tuple[bool, ...], joined: Joined, observer: str, long: bool
    ) -> LivenessVerdict:
        watch = FailureDetector(SESSION_MS / 1000)
        others = [member for member in log[1] if member.member_id != observer]
        looks = [self._slots(slots, lives, joined, turn) for turn in range(4 if long else 1)]
        return [watch.judge(others, seen, turn * SESSION_MS / 1000) for turn, seen in enumerate(looks)][-1]

    def _slots(self, slots: Slots, lives: tuple[bool, ...], joined: Joined, turn: int) -> list[MemberSlot]:
        found = []
        for number, (holder, name) in enumerate(slots):
            beats = turn if lives[number] else 0
            told = [name] if NAMES in self.rules else [member for member, slot in joined if slot == number]
            found += [MemberSlot(holder is not None, each or None, SESSION_MS, SESSION_MS, beats, beats) for each in told]
        return found

    # ---- what may happen -------------------------------------------------------------------------------------------------

    def moves(self, world: World) -> Iterator[Move]:
        for number, proc in enumerate(world.procs):
            if proc.life == "stopped":
                yield f"P{number} SIGCONT", self._with(world, number, proc._replace(life="run")), None
            elif proc.life == "run":
                yield from self._faults(world, number, proc)
                yield from self._steps(world, number, proc)

    @staticmethod
    def _with(world: World, number: int, proc: Proc, **changes: object) -> World:
        procs = (*world.procs[:number], proc, *world.procs[number + 1 :])
        return world._replace(procs=procs, **changes)

    @staticmethod
    def _let_go(world: World, number: int) -> Slots:
        return tuple((None if holder == number else holder, name) for holder, name in world.slots)

    def _faults(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        kills, stops, joins = world.left
        if proc.member and kills:
            dead = Proc("dead", positions=self.start.committed)
            yield (
                f"P{number} KILLED",
                self._with(world, number, dead, slots=self._let_go(world, number), left=(kills - 1, stops, joins)),
                None,
            )
        if proc.member and stops:
            yield (
                f"P{number} SIGSTOP",
                self._with(world, number, proc._replace(life="stopped"), left=(kills, stops - 1, joins)),
                None,
            )

    def _steps(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        if not proc.member:
            yield from self._appears(world, number, proc)
        elif proc.plan == "join":
            yield from self._joins(world, number, proc)
        elif proc.plan == "slot":
            yield from self._takes_slot(world, number, proc)
        elif proc.member not in self.state(world.log).members:
            out = Proc(positions=proc.positions)
            yield f"P{number} is out", self._with(world, number, out, slots=self._let_go(world, number)), None
        else:
            yield from self._expires(world, number, proc)
            yield from self._reads(world, number, proc)
            yield from self._reconciles(world, number, proc)

    def _appears(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        kills, stops, joins = world.left
        if not joins:
            return
        member, left = f"m{joins}", (kills, stops, joins - 1)  # later ones sort before: they get partitions at once
        if SLOT_FIRST not in self.rules:
            yield from self._joins(world._replace(left=left), number, proc._replace(member=member))
            return
        for slot, (holder, name) in enumerate(world.slots):
            if holder is None and (DEAD_FIRST not in self.rules or name not in self.state(world.log).members):
                slots = (*world.slots[:slot], (number, member), *world.slots[slot + 1 :])
                claimed = proc._replace(member=member, slot=slot, plan="join")
                yield f"P{number} takes slot {slot} as {member}", self._with(world, number, claimed, slots=slots, left=left), None
                return

    def _joins(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        verdict = self.judged(world, proc.member, long=False)
        newcomer = Member(proc.member, frozenset({"t"}), ("range",), f"i{number}" if self.static else None)
        after = decisions.join(self.state(world.log), newcomer, self.available, dead=verdict.dead, expired=verdict.expired)
        log = self.log(after)
        slot = proc.slot if proc.slot >= 0 else len(world.joined) % len(world.slots)
        then = proc._replace(plan=None if proc.slot >= 0 else "slot", slot=slot, epoch=-1)
        joined = (*world.joined, (proc.member, slot)) if NAMES not in self.rules else ()
        bad = self._wrongly(world, verdict.expired & self.state(world.log).members.keys(), after)
        yield f"P{number} joins as {proc.member}", self._with(world, number, then, log=log, joined=joined), bad

    def _takes_slot(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        if world.slots[proc.slot][0] is None:
            slots = (*world.slots[: proc.slot], (number, proc.member), *world.slots[proc.slot + 1 :])
            yield f"P{number} takes its slot", self._with(world, number, proc._replace(plan=None), slots=slots), None

    def _wrongly(self, world: World, expired: frozenset[str], after: GroupState) -> str | None:
        living = {proc.member for proc in world.procs if proc.life == "run" and proc.slot >= 0}
        wrong = sorted(expired & living - after.members.keys())
        return f"{wrong[0]} is put out while it lives" if wrong else None

    def _expires(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        if isinstance(proc.plan, frozenset) and LOOK_AGAIN not in self.rules:
            gone = frozenset(proc.plan & self.state(world.log).members.keys())
        else:
            gone = self.judged(world, proc.member, long=True).expired
        if not gone:
            return
        if LOOK_AGAIN not in self.rules and proc.plan is None:
            yield f"P{number} finds {sorted(gone)} gone", self._with(world, number, proc._replace(plan=gone)), None
            return
        log = self.remove(world.log, gone)
        plan = None if isinstance(proc.plan, frozenset) else proc.plan
        bad = self._wrongly(world, gone, self.state(log))
        yield f"P{number} puts {sorted(gone)} out", self._with(world, number, proc._replace(plan=plan), log=log), bad

    # ---- reading and committing --------------------------------------------------------------------------------------------

    def _reads(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        for at, place in enumerate(self.places):
            position = proc.positions[at]
            if place in proc.reading - proc.revoked and position < self.records:
                yield f"P{number} handles {at}:{position}", self._with(world, number, self._at(proc, at, position + 1)), None
            if position and position != world.committed[at]:
                yield from self._commits(world, number, proc, at)

    @staticmethod
    def _at(proc: Proc, at: int, position: int) -> Proc:
        return proc._replace(positions=(*proc.positions[:at], position, *proc.positions[at + 1 :]))

    def _commits(self, world: World, number: int, proc: Proc, at: int) -> Iterator[Move]:
        state, position = self.state(world.log), proc.positions[at]
        try:
            decisions.check_commit(state, proc.member, proc.epoch, {self.places[at]} if OWNERSHIP in self.rules else ())
        except FencedMemberError:
            return
        committed = (*world.committed[:at], position, *world.committed[at + 1 :])
        owner = self.places[at] in state.members[proc.member].owned
        bad = (
            None if owner and position > world.committed[at] else f"{proc.member} commits {position} after {world.committed[at]}"
        )
        yield f"P{number} commits {at}:{position}", world._replace(committed=committed), bad

    def _reconciles(self, world: World, number: int, proc: Proc) -> Iterator[Move]:
        state = self.state(world.log)
        me = state.members[proc.member]
        if proc.plan == "revoking":
            yield from self._gives_up(world, number, proc, me)
        elif proc.reading - me.target:
            over = proc.reading - me.target
            yield f"P{number} revokes", self._with(world, number, proc._replace(plan="revoking", revoked=over)), None
        else:
            yield from self._takes(world, number, proc, state)

    def _gives_up(self, world: World, number: int, proc: Proc, me: Member) -> Iterator[Move]:
        reading = proc.reading - proc.revoked
        then = proc._replace(plan=None, reading=reading, revoked=frozenset())
        log = world.log
        if FINISHED in self.rules or proc.revoked - me.target:
            log = self.log(decisions.give_up(self.state(log), proc.member, proc.revoked))
        yield f"P{number} gives up", self._with(world, number, then, log=log), None

    def _takes(self, world: World, number: int, proc: Proc, state: GroupState) -> Iterator[Move]:
        is_greedy = GIVE_UP not in self.rules and not state.members[proc.member].target <= proc.reading
        if decisions.is_settled(state, proc.member, proc.reading) and not is_greedy:
            return
        if POSITION not in self.rules and not isinstance(proc.plan, tuple):
            yield f"P{number} reads positions", self._with(world, number, proc._replace(plan=world.committed)), None
            return
        committed = proc.plan if isinstance(proc.plan, tuple) else world.committed
        log = self.settle(world.log, proc.member, proc.reading)
        me = self.state(log).members[proc.member]
        new = me.owned - proc.reading if FINISHED in self.rules else me.owned - state.members[proc.member].owned
        positions = tuple(committed[at] if place in new else proc.positions[at] for at, place in enumerate(self.places))
        early = [at for at, place in enumerate(self.places) if place in new and positions[at] < world.committed[at]]
        bad = f"it starts at {positions[early[0]]} and {world.committed[early[0]]} was committed" if early else self._twice(log)
        reading = me.owned if FINISHED in self.rules else proc.reading | new
        then = proc._replace(plan=None, reading=reading, positions=positions, epoch=me.epoch)
        if then != proc or log != world.log:
            yield f"P{number} takes {sorted(each.partition for each in new)}", self._with(world, number, then, log=log), bad

    @staticmethod
    def _twice(log: Log) -> str | None:
        owned = [place for member in log[1] for place in member.owned]
        return "a partition has two owners" if len(owned) != len(set(owned)) else None

    # ---- all of it -------------------------------------------------------------------------------------------------------

    def run(self) -> tuple[int, list[str]]:
        """Explores. Returns the number of worlds, and the way to the first thing that goes wrong, which comes last."""
        came: dict[World, tuple[str, World] | None] = {self.start: None}
        before: dict[World, list[World]] = {}
        todo = deque([self.start])
        while todo:
            world = todo.popleft()
            for label, then, bad in self.moves(world):
                if bad is not None:
                    return len(came), [*_way(came, world), label, bad]
                if then not in came:
                    came[then] = label, world
                    todo.append(then)
                if then.left == world.left and not label.endswith("SIGCONT"):
                    before.setdefault(then, []).append(world)
        fine = self._reaching(before, [world for world in came if self._is_fine(world)])
        stuck = next((world for world in came if world not in fine), None)
        return len(came), [] if stuck is None else [*_way(came, stuck), "a partition has no reader for ever"]

    def _is_fine(self, world: World) -> bool:
        """Nobody is there who could read, or everything is read by whom the log says."""
        running = [proc for proc in world.procs if proc.life == "run" and proc.member]
        owned = self.state(world.log).members
        read = {place for proc in running if proc.member in owned for place in proc.reading & owned[proc.member].owned}
        return not running or len(read) == len(self.places)

    @staticmethod
    def _reaching(before: Mapping[World, list[World]], fine: list[World]) -> set[World]:
        found, todo = set(fine), deque(fine)
        while todo:
            for world in before.get(todo.popleft(), ()):
                if world not in found:
                    found.add(world)
                    todo.append(world)
        return found


def _way(came: Mapping[World, tuple[str, World] | None], world: World) -> list[str]:
    found = []
    while (step := came[world]) is not None:
        found.append(step[0])
        world = step[1]
    return found[::-1]
