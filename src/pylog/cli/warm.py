"""`pylog warm`: compiles the kernels, so that no later process does."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from pylog.cli.app import CARE, Flag, Json, command
from pylog.cli.exits import FAILED
from pylog.cli.output import print_facts, print_json

DECLARE_KERNELS: Final = (
    "pylog.index.entries",
    "pylog.partitioner",
    "pylog.record.compacting",
    "pylog.record.encoding",
    "pylog.record.finding",
    "pylog.record.kernels",
    "pylog.record.packed",
    "pylog.record.record_headers",
)


@command(CARE)
def warm(*, check: Flag = False, json: Json = False) -> int | None:
    """Compiles pylog's kernels and stores them in the cache: for container images and test machines.

    Without a warm cache pylog starts in plain Python, and compiles after 500,000 records. With a warm cache it loads the compiled
    code after 20,000 records.

    Args:
        check: Compile nothing. Exit with 1 if a kernel is not in the cache.
        json: Print one JSON document.

    Examples:
        pylog warm
        NUMBA_CACHE_DIR=/opt/numba NUMBA_CPU_NAME=generic pylog warm
        pylog warm --check
    """
    from pylog.clock import SystemClock
    from pylog.record.kernel import INTERPRETED, KERNELS

    for module in DECLARE_KERNELS:
        import_module(module)
    missing = [each for each in KERNELS if not each.in_cache()]
    facts: dict[str, object] = {"kernels": len(KERNELS), "missing": len(missing)}
    if not check:
        begun = SystemClock.monotonic()
        for each in missing:
            each.compile()
        facts["missing"] = sum(not each.in_cache() for each in missing)
        facts |= {"compiled": len(missing), "seconds": round(SystemClock.monotonic() - begun, 1)}
    facts["cache"] = KERNELS[0].cache_directory() if KERNELS else None
    if json:
        print_json(facts)
    else:
        print_facts({name: "none" if value is None else str(value) for name, value in facts.items()})
    return FAILED if facts["missing"] or INTERPRETED else None
