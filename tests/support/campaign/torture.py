"""`./dev torture`: the campaign's suites in turn, for as long as one likes, each turn with a seed that repeats it.

./dev torture                          an hour
./dev torture --hours 8 --seed 1234
./dev torture kills traffic            these suites only
./dev torture kills --seed 77 --turns 1    one turn again
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

# Suites by name: "module:function", how it is called beside (seed, seconds), and what it does.
SUITES: dict[str, tuple[str, dict[str, Any], str]] = {
    "kills": ("kills:run", {}, "one writer, killed at any moment"),
    "crowds": ("kills:run", {"writers": 2, "readers": 1}, "two writers and a reader, each killed at any moment"),
    "traffic": ("traffic:run", {}, "histories of several processes, checked for lost, doubled and reordered records"),
    "system": ("system_faults:run", {}, "faults below Python: full disks, limits, lying calls"),
    "crashes": ("explorer:run", {}, "states of the disk that crashes leave, and crashes of their recoveries"),
    "commits": ("transaction_crashes:run", {}, "crashes of runs with transactions: each is there whole or not at all"),
    "refusals": ("transaction_faults:run", {}, "each call fails while a program uses transactions: each is what was answered"),
    "copies": (
        "group_kills:run",
        {},
        "members of a group that copy in transactions, killed, stopped and replaced: each record once",
    ),
    "deaths": ("transaction_kills:run", {}, "a process that writes transactions, killed at any moment or step, or fenced"),
    "bank": ("bank:run", {}, "transfers in transactions by processes that are killed: each snapshot has the same total"),
    "histories": (
        "transaction_traffic:run",
        {},
        "random transactions of several processes that are killed, stopped and fenced; one history, checked for anomalies",
    ),
    "turns": (
        "broker_turns:run",
        {},
        "a broker and pylog take turns at one copying job, each killed: each record once, 20 turns",
    ),
    "planted": ("transaction_traffic:run_planted", {}, "the same with a fault planted in the engine: the checker must find it"),
    "mutants": ("mutants:run", {}, "engines without one of their syncs or renames: somebody must notice"),
    "faults": ("faults:run", {}, "each call of the file system fails, in each way"),
    "protocol": ("protocol:run", {}, "several processes under a scheduler that stops and kills them anywhere"),
    "transactions": ("transactions:run", {}, "the model of transactions: all states, and each rule left out"),
    "models": ("models:run", {}, "stateful models of a log and of a store, with crashes, and of a store on real files"),
    "beside": ("beside:run", {}, "every method that reads, in threads next to a writer, in this process and in another"),
    "first": ("first_calls:run", {}, "fresh processes, in which eight threads make their first calls at once"),
    "full": ("full_disk:run", {}, "a crash between every two steps of the calls that free room on a full disk"),
    "splices": ("splices:run", {}, "a driver of Spark's, killed while it splices micro-batches"),
    "damage": ("corruption:run", {}, "flipped bits, cuts and misplaced sectors in logs with all codecs"),
    "lying": ("lying:run", {}, "files that lie under right checksums: every reading call and command, within limits"),
    "grows": ("growth:run", {}, "every public operation, repeated: what a call leaves behind in memory, descriptors, files"),
    "calls": ("beside_together:run", {}, "every method that changes something, in threads next to each change, by two processes"),
    "interrupts": ("interrupts:run", {}, "an interrupt, or the end of the process, at each step of a call"),
    "hostile": ("hostile:run", {}, "kernels beside forbidden pages, and each parser, with bytes that are almost right"),
}
TURN_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    """Runs turns until told to stop; returns 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="./dev torture", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "suites", nargs="*", metavar="suite", help="; ".join(f"{name}: {told[2]}" for name, told in SUITES.items())
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--turns", type=int, help="that many turns of each suite, instead of hours")
    parser.add_argument("--seed", type=int, default=None, help="of the first turn; the next ones count up")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.suites) - set(SUITES))
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    return torture(given.suites or list(SUITES), seed, given.hours * 3600, given.turns)


def torture(names: list[str], seed: int, seconds: float, turns: int | None) -> int:
    """One turn after the other, in the suites' order."""
    print(f"torture: seed {seed}, suites {', '.join(names)}", flush=True)
    deadline = time.monotonic() + seconds
    totals: dict[str, Counter[str]] = {name: Counter() for name in names}
    found = turn = 0
    while turn < turns if turns is not None else time.monotonic() < deadline:
        for name in names:
            found += _turn(name, seed + turn, totals[name])
        turn += 1
    for name in names:
        print(f"{name}: {json.dumps(dict(totals[name]))}")
    print(f"{turn} turns, {found} findings" + ("" if found else ": every promise held"))
    return 1 if found else 0


def _turn(name: str, seed: int, total: Counter[str]) -> int:
    """One suite for a while. Prints what it did, and of each finding what repeats it."""
    place, options, _ = SUITES[name]
    module, function = place.split(":")
    run: Callable[..., dict[str, Any]] = getattr(importlib.import_module(f"support.campaign.{module}"), function)
    try:
        done = run(seed, TURN_SECONDS, **options)
    except Exception:
        print(f"FOUND by {name}, seed {seed}:\n{traceback.format_exc()}", flush=True)
        print(f"again: ./dev torture {name} --seed {seed} --turns 1", flush=True)
        return 1
    violations = done.pop("violations", [])
    total.update({key: value for key, value in done.items() if isinstance(value, int) and key != "seed"})
    print(f"{name} {seed}: {json.dumps(done, default=str)}", flush=True)
    for violation in violations:
        print(f"FOUND by {name}, seed {seed}:\n{violation}\nagain: ./dev torture {name} --seed {seed} --turns 1", flush=True)
    return len(violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
