"""Faults below pylog: of the C library's calls, of a limit on file sizes, of a full disk (reliability 8.1, suites 9 and 10).

A case is a forked process that works with a store while calls fail, and may die of it; then another one opens the directory with
sound calls. What the work was told has to be true, and each fault has its promise.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pylog
from pylog import ClosedError, StorageFailedError
from support.campaign.actors import Scene, append, first_value, inspect, numbers_of, warm_up
from support.campaign.history import Operation, check
from support.campaign.processes import CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until
from support.campaign.shim import FOR_EVER, Action, Call, Fault, Shim, compile_shim


class Promise(enum.Enum):
    """What is to be seen of a fault besides what is always promised: everything acknowledged is there, and appending goes on."""

    NOTHING = "no call of pylog fails"
    CUT_OFF = "what was refused is not in the log, and the next append goes on"
    FAIL_STOP = "nothing is appended until the store is opened again"
    ERRORS = "calls of pylog may fail"


class Kind(NamedTuple):
    """A kind of fault, to be put at each call in turn.

    Attributes:
        promise: what is seen of it.
        faults: what happens.
        everywhere: whether the first call is as good as any other.
        after_crash: whether recovery may meet it in another way than work does.
    """

    promise: Promise
    faults: tuple[Fault, ...]
    everywhere: bool = False
    after_crash: bool = False


def _kind(promise: Promise, *faults: Fault, everywhere: bool = False, after_crash: bool = False) -> Kind:
    return Kind(promise, faults, everywhere, after_crash)


_LOG: Final = ".log"
_SMALL_DISK: Final = 20_000  # bytes: the work writes somewhat more
_FAIL, _SHORT, _TEAR = Action.FAIL, Action.SHORT, Action.TEAR

KINDS: Final[dict[str, Kind]] = {
    "a record is refused": _kind(Promise.CUT_OFF, Fault(Call.WRITE, _FAIL, errno.ENOSPC, suffix=_LOG)),
    "a record is written in part, then refused": _kind(
        Promise.CUT_OFF,
        Fault(Call.WRITE, _SHORT, 40, suffix=_LOG),
        Fault(Call.WRITE, _FAIL, errno.EDQUOT, suffix=_LOG, after=1),
    ),
    "a record is refused and cannot be cut off again": _kind(
        Promise.FAIL_STOP,
        Fault(Call.WRITE, _SHORT, 70, suffix=_LOG),
        Fault(Call.WRITE, _FAIL, errno.EIO, suffix=_LOG, after=1),
        Fault(Call.CUT, _FAIL, errno.EIO, FOR_EVER, _LOG, None),
        after_crash=True,
    ),
    "any write is refused": _kind(Promise.ERRORS, Fault(Call.WRITE, _FAIL, errno.EIO)),
    "all writes are refused from some moment on": _kind(Promise.ERRORS, Fault(Call.WRITE, _FAIL, errno.EROFS, FOR_EVER)),
    "a write is short": _kind(Promise.NOTHING, Fault(Call.WRITE, _SHORT, 1)),
    "all writes are short": _kind(Promise.NOTHING, Fault(Call.WRITE, _SHORT, 33, FOR_EVER), everywhere=True),
    "a write is interrupted": _kind(Promise.NOTHING, Fault(Call.WRITE, _FAIL, errno.EINTR)),
    "a segment's sync fails": _kind(Promise.FAIL_STOP, Fault(Call.SYNC, _FAIL, errno.EIO, suffix=_LOG), after_crash=True),
    "any sync fails": _kind(Promise.ERRORS, Fault(Call.SYNC, _FAIL, errno.EIO), after_crash=True),
    "all syncs fail from some moment on": _kind(Promise.ERRORS, Fault(Call.SYNC, _FAIL, errno.EIO, FOR_EVER)),
    "all syncs lie": _kind(Promise.NOTHING, Fault(Call.SYNC, Action.LIE, times=FOR_EVER), everywhere=True),
    "a rename fails": _kind(Promise.ERRORS, Fault(Call.RENAME, _FAIL, errno.EIO)),
    "a removal fails": _kind(Promise.ERRORS, Fault(Call.UNLINK, _FAIL, errno.EPERM)),
    "a file cannot be made": _kind(Promise.ERRORS, Fault(Call.CREATE, _FAIL, errno.ENOSPC), after_crash=True),
    "a read fails": _kind(Promise.ERRORS, Fault(Call.READ, _FAIL, errno.EIO)),
    "a write is torn by death": _kind(Promise.ERRORS, Fault(Call.WRITE, _TEAR, 70)),
    "death before any call": _kind(Promise.ERRORS, Fault(Call.ANY, Action.KILL_BEFORE), after_crash=True),
}


# ---- the work ----------------------------------------------------------------------------------------------------------------


class _Work:
    """What a process does with a store whose calls may fail. It raises when the store does not keep the promise.

    Args:
        journal: where it writes down what it is told.
        rng: decides what it does.
        promise: of the faults.
        persistent: the faults do not pass.
        writer: whose records it appends.
        dying: called before it dies of its own accord.
    """

    def __init__(
        self,
        journal: Journal,
        rng: random.Random,
        promise: Promise,
        *,
        persistent: bool = True,
        writer: int = 0,
        dying: Callable[[], object] = lambda: None,
    ) -> None:
        self._journal = journal
        self._rng = rng
        self._next = first_value(writer)
        self._promise = promise
        self._persistent = persistent
        self._dying = dying
        self._dies = rng.random() < 0.2  # of the first refusal
        self._sync_only = rng.random() < 0.5
        self._refused = False

    def lives(self, scene: Scene) -> None:
        """Opens the store, uses and closes it, some times."""
        for _ in range(2):
            self._refused = False
            with self._tolerant(), pylog.open(scene.directory, durability=pylog.Durability.SYNC) as store:
                for log in scene.logs(store):
                    self._use(log)

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except (StorageFailedError, ClosedError):
            if self._promise is Promise.NOTHING:
                raise

    def _use(self, log: pylog.Log) -> None:
        for count in (1, self._rng.randrange(2, 5), 30, 1):
            self.append(log, count)
        with self._tolerant():
            log.flush()
        self.append(log, 2)
        with self._tolerant():
            self.read(log)

    def append(self, log: pylog.Log, count: int) -> bool:
        """An append whose outcome must be one that the promise allows; returns whether it was acknowledged."""
        numbers = range(self._next, self._next + count)
        self._next += count
        end = log.end_offset
        self._journal.appending(log.partition.partition, numbers)
        try:
            offset = append(log, numbers, self._rng, any_level=not self._sync_only)
        except (StorageFailedError, ClosedError) as error:
            cut_off = self._promise is Promise.CUT_OFF and error.offset == end
            self._journal.refused(nothing_happened=cut_off)
            self._check_refusal(error)
            return False
        self._journal.appended(offset)
        if self._refused and self._promise is Promise.FAIL_STOP:
            raise CampaignError("an append succeeded after the log had failed")
        return True

    def _check_refusal(self, error: Exception) -> None:
        if self._dies:
            self._dying()
            os.kill(os.getpid(), signal.SIGKILL)
        again, self._refused = self._refused, True
        if self._promise is Promise.NOTHING or (self._promise is Promise.CUT_OFF and again and not self._persistent):
            raise CampaignError(f"an append failed and should not: {error}") from error

    def read(self, log: pylog.Log) -> None:
        """Reads everything that is said to be there.

        After a failed sync that is only what was synced before it (reliability 5): until the log is sound again nobody is shown
        what was acknowledged at a lower level, because the disk may not have it.
        """
        fails = self._promise in (Promise.FAIL_STOP, Promise.ERRORS)
        self._journal.reading(log.partition.partition, 0, to_end=self._sync_only or not fails)
        self._journal.found(numbers_of(log, 0))

    def fill(self, scene: Scene, make_room: Callable[[], None]) -> None:
        """Appends until there is no room for more, reads, gets room, and goes on."""
        self._dies = False
        with self._tolerant(), pylog.open(scene.directory, durability=pylog.Durability.SYNC) as store:
            (log,) = scene.logs(store)
            while not self._refused:
                self.append(log, self._rng.choice((1, 5, 40)))
            self.append(log, 1)
            self.read(log)
            make_room()
            self._promise = Promise.NOTHING
            self.append(log, 3)
        make_room()
        self._promise = Promise.NOTHING
        self.lives(scene)

    def meet_limits(self, scene: Scene) -> None:
        """Appends with room in the file for no byte, for one, for two and so on, until it is enough; notes how many that were."""
        with pylog.open(scene.directory, durability=pylog.Durability.SYNC) as store:
            (log,) = scene.logs(store)
            self.append(log, 30)  # no other file may be longer than this one: the limit is for all of them
            count = self._rng.choice((1, 2, 5))
            for room in itertools.count():
                with _file_limit(os.stat(log.segments[-1].path).st_size + room):
                    if self.append(log, count):
                        break
                self._journal.note += 1
                if room % 8 == 0:
                    if not self.append(log, 1):
                        raise CampaignError(f"{log} refuses records although there is room again")
                    self.read(log)


@contextlib.contextmanager
def _file_limit(size: int) -> Iterator[None]:
    """No file grows beyond a size; Python ignores the signal, so the call that would is short, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---- cases -------------------------------------------------------------------------------------------------------------------


class _Cases:
    """Runs cases, each in a directory of its own under a root; that of a case that fails is left behind."""

    def __init__(self, root: Path) -> None:
        warm_up("none")
        self.root = root
        self.counts: Counter[str] = Counter()
        self.case = ""
        self._shim = Shim()
        self._journal = Journal()

    def fault(self, name: str, first: int, seed: object, *, after_crash: bool = False) -> bool:
        """A kind of fault from one call on; returns whether there was such a call.

        Args:
            name: of the kind.
            first: the number of the call, from 1.
            seed: decides what the work is.
            after_crash: the work begins with what another process left that died in the middle of a write.
        """
        self.case = f"fault({name!r}, {first}, {seed}, after_crash={after_crash})"
        return self._work_with(KINDS[name], first, seeded(seed), after_crash=after_crash)

    def torn(self, size: int, write: int, seed: object) -> None:
        """Death when so many bytes of a write of records are done."""
        self.case = f"torn({size}, {write}, {seed})"
        self._work_with(
            _kind(Promise.ERRORS, Fault(Call.WRITE, _TEAR, size, suffix=_LOG)), write, seeded(seed), after_crash=False
        )

    def _work_with(self, kind: Kind, first: int, rng: random.Random, *, after_crash: bool) -> bool:
        scene = self._scene(rng)
        before = self._crash(scene, rng) if after_crash else []

        def note_next_call() -> None:
            self._journal.note = self._shim.count + 1

        def work() -> None:
            self._shim.arm(scene.directory, kind.faults, first)
            persistent = any(fault.times > 1 for fault in kind.faults)
            _Work(self._journal, rng, kind.promise, persistent=persistent, dying=note_next_call).lives(scene)
            note_next_call()

        self._journal.note = 0
        killed_by_fault = self._run(scene, work, before) and not self._journal.note
        return killed_by_fault or self._journal.note > first

    def _crash(self, scene: Scene, rng: random.Random) -> list[Operation]:
        """Lets a process die in a scene while it writes, and returns what it did."""
        torn = Fault(Call.WRITE, _TEAR, rng.randrange(80), suffix=_LOG)

        def work() -> None:
            self._shim.arm(scene.directory, [torn], 4)
            _Work(self._journal, rng, Promise.ERRORS, writer=2).lives(scene)

        with Child("crashed", lambda _: work(), self._journal) as child:
            child.wait()
        return child.operations()

    def limit(self, seed: object) -> None:
        """A limit on the sizes of files, met at each byte of an append."""
        self.case = f"limit({seed})"
        rng = seeded(seed)
        scene = self._scene(rng, segment_bytes=1 << 20)
        self._run(scene, lambda: _Work(self._journal, rng, Promise.CUT_OFF).meet_limits(scene))
        self.counts["positions"] += self._journal.note

    def small_disk(self, room: int, seed: object) -> None:
        """A disk that takes so many bytes more, made up by the shim."""
        self.case = f"small_disk({room}, {seed})"
        rng = seeded(seed)
        scene = self._scene(rng)

        def work() -> None:
            self._shim.leave_room(scene.directory, room)
            _Work(self._journal, rng, Promise.ERRORS).fill(scene, lambda: self._shim.leave_room(scene.directory, -1))

        self._run(scene, work)

    def full_disk(self, room: int, seed: object) -> None:
        """The same on a real file system, a small one: `root` must lie on it. What is too much is filled with a file."""
        self.case = f"full_disk({room}, {seed})"
        rng = seeded(seed)
        scene = self._scene(rng)
        ballast = self.root / "ballast"
        free = os.statvfs(self.root)
        ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_bsize - room)))
        self._run(scene, lambda: _Work(self._journal, rng, Promise.ERRORS).fill(scene, lambda: ballast.unlink(missing_ok=True)))
        ballast.unlink(missing_ok=True)

    def drawn(self, rng: random.Random) -> None:
        """A case of any sort but a real full disk."""
        seed, sort = rng.getrandbits(32), rng.choice(("fault", "torn", "limit", "small disk"))
        if sort == "fault":
            self.fault(rng.choice(list(KINDS)), rng.randrange(1, 150), seed, after_crash=rng.random() < 0.5)
        elif sort == "torn":
            self.torn(rng.randrange(2_000), rng.randrange(1, 9), seed)
        elif sort == "limit":
            self.limit(seed)
        else:
            self.small_disk(rng.randrange(_SMALL_DISK), seed)

    def _scene(self, rng: random.Random, **config: int) -> Scene:
        drawn = {"segment_bytes": rng.choice((1_500, 3_000)), "index_interval_bytes": rng.choice((0, 300)), "retention_ms": -1}
        return Scene(str(self.root / "store"), 1, drawn | config)

    def _run(self, scene: Scene, work: Callable[[], None], before: Sequence[Operation] = ()) -> bool:
        """Lets a child work in a scene, opens the store then, and checks what both saw; returns whether it was killed."""
        with Child("work", lambda _: work(), self._journal) as child:
            child.wait()
        found = inspect(scene, "rw", itertools.count(first_value(1)))
        anomalies = check([*before, *child.operations(), *found.operations])
        if anomalies:
            raise CampaignError("\n".join(map(str, anomalies[:20])))
        self.counts.update({"cases": 1, "killed": int(child.was_killed)})
        self.counts.update({f"found_{kind}": times for kind, times in found.findings.items()})
        shutil.rmtree(scene.directory)
        return child.was_killed


# ---- campaigns, in a process with the shim -----------------------------------------------------------------------------------


def sweep(seed: int, names: list[str]) -> dict[str, int]:
    """Kinds of faults at each call of the work in turn, until there is none left to fail; at how many calls each kind was put."""
    calls: Counter[str] = Counter()
    with _new_cases(f"sweep({seed}, {names})") as cases:
        for name in names:
            for after_crash in (False, True) if KINDS[name].after_crash else (False,):
                calls[name] += _sweep(cases, name, seed, after_crash=after_crash)
    return dict(calls)


def _sweep(cases: _Cases, name: str, seed: int, *, after_crash: bool) -> int:
    for first in itertools.count(1):
        if not cases.fault(name, first, seed, after_crash=after_crash):
            return first - 1
        if KINDS[name].everywhere:
            return first
    raise AssertionError  # counting has no end


def tear(seed: int) -> dict[str, int]:
    """Death in the middle of writing records: after each byte of a small batch, and after some of each of a large append's."""
    with _new_cases(f"tear({seed})") as cases:
        for write, sizes in ((1, range(150)), (3, range(0, 1_500, 13))):
            for size in sizes:
                cases.torn(size, write, seed)
        return dict(cases.counts)


def limits(seed: int, positions: int) -> dict[str, int]:
    """Limits on file sizes at so many byte positions at least."""
    with _new_cases(f"limits({seed}, {positions})") as cases:
        for number in itertools.count(seed):
            cases.limit(number)
            if cases.counts["positions"] >= positions:
                break
        return dict(cases.counts)


def small_disks(seed: int, count: int) -> dict[str, int]:
    """Disks that are full after so and so many bytes, made up by the shim."""
    with _new_cases(f"small_disks({seed}, {count})") as cases:
        for number in range(seed, seed + count):
            cases.small_disk(seeded(number).randrange(_SMALL_DISK), number)
        return dict(cases.counts)


def full_disks(seed: int, count: int, mounted: str) -> dict[str, int]:
    """Real ones, on a small file system that is mounted there."""
    with _new_cases(f"full_disks({seed}, {count}, {mounted!r})", Path(mounted)) as cases:
        for number in range(seed, seed + count):
            cases.full_disk(seeded(number).randrange(4 * _SMALL_DISK), number)
        return dict(cases.counts)


def mixture(seed: int, seconds: float | None, count: int | None) -> dict[str, int]:
    """Cases of all sorts, drawn by lot."""
    with _new_cases(f"mixture({seed}, {seconds}, {count})") as cases:
        for number in until(count, seconds):
            cases.drawn(seeded(seed, number))
        return {"seed": seed, **cases.counts}


@contextlib.contextmanager
def _new_cases(replay: str, root: Path | None = None) -> Iterator[_Cases]:
    """Cases whose failure says what does them again, and where their files are."""
    cases = _Cases(root or new_directory("faults"))
    try:
        yield cases
    except (CampaignError, pylog.PylogError) as error:
        raise CampaignError(f"{type(error).__name__}: {error}\nin case {cases.case}\nof {replay}, in {cases.root}") from error
    shutil.rmtree(cases.root, ignore_errors=True)


# ---- from outside ------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float | None = None, *, cases: int | None = None) -> dict[str, Any]:
    """Cases of all sorts until the time is over, or so many are done.

    Args:
        seed: decides everything.
        seconds, cases: how long; one of them at least.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a promise was broken; the directory is kept.
    """
    return with_shim(mixture, seed, seconds, cases)


def with_shim(campaign: Callable[..., Any], *arguments: Any, before: Sequence[str] = ()) -> Any:
    """Calls one of the campaigns above in a process that has the shim.

    Raises:
        CampaignError: it raised; or the shim cannot be compiled.
    """
    with tempfile.TemporaryDirectory() as directory:
        library = compile_shim(Path(directory))
        return in_fresh_process(campaign, *arguments, environment={"LD_PRELOAD": str(library)}, before=before)


def with_small_file_system(directory: Path) -> list[str] | None:
    """A command line before another one, that it finds a file system of 1 MiB in a directory; None where that is not allowed."""
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *users, "sh", "-c", f'mount -t tmpfs -o size=1m tmpfs "{directory}" && exec "$@"', "sh"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return command if done.returncode == 0 else None
