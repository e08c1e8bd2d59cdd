"""`pylog repair`: takes damage out of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, command
from pylog.cli.exits import FAILED, OK, UsageError
from pylog.cli.output import print_json, print_line

if TYPE_CHECKING:
    from pylog.tools.plan import PartitionPlan
    from pylog.tools.repair import Repair

Policy = Annotated[Literal["skip", "truncate", "quarantine"], Parameter(name="POLICY")]
Execute = Annotated[bool, Parameter(name=["--execute", "--yes", "-y"], show_default=False)]


@command(CARE)
def repair(
    policy: Policy,
    path: str,
    /,
    *,
    execute: Execute = False,
    whole: Flag = False,
    backup: str | None = None,
    json: Json = False,
) -> int:
    """Takes damage out of a directory: says what it would do, and does it with --execute.

    skip takes out only the bytes that are damaged: everything that can be read stays. truncate ends a log at its first damage,
    as a broker does, and loses what lies behind. quarantine takes damaged segments out as a whole. Every file that is touched is
    copied first. Offsets keep their numbers; indexes, producer snapshots and leader epochs are made again. Nothing may have the
    directory open for writing. Exit code 1: some partitions are damaged and not repaired.

    Args:
        policy: skip, truncate or quarantine.
        path: a directory of topics, or one partition's directory.
        execute: do it. Without, nothing is written or locked.
        whole: with quarantine: take out all of the partition, which goes on, empty, at its end offset.
        backup: where the copies go: a directory that does not exist yet; beside the directory of topics by default.
        json: print one JSON document.

    Examples:
        pylog repair skip shop
        pylog repair skip shop --execute
        pylog repair truncate data/orders-0 --execute --backup /mnt/old
        pylog repair quarantine shop/orders-0 --whole
    """
    from pylog.tools.repair import repair as repaired

    if whole and policy != "quarantine":
        raise UsageError("--whole goes with quarantine")
    done = repaired(path, policy, execute=execute, whole=whole, backup=backup)
    if json:
        print_json(_document(done, executed=execute))
    else:
        _print(done, executed=execute)
    return FAILED if done.refused or (done.plans and not execute) else OK


def _print(done: Repair, *, executed: bool) -> None:
    if not done.plans and not done.refused:
        print_line("nothing is wrong: nothing to repair")
    for plan in done.plans:
        print_line(f"{plan.target.directory}:")
        for told in plan.sentences():
            print_line(f"  {told}")
    for refused in done.refused:
        print_line(f"{refused.target.directory}: not repaired: {refused.why}")
    if done.backup is not None:
        print_line(f"done; the files as they were are in {done.backup}")
    elif done.plans and not executed:
        print_line("nothing was done: say --execute to do it")


def _document(done: Repair, *, executed: bool) -> dict[str, Any]:
    return {
        "policy": done.policy,
        "executed": executed and bool(done.plans),
        "backup": done.backup,
        "partitions": [_plan(plan) for plan in done.plans],
        "refused": [{"directory": refused.target.directory, "why": refused.why} for refused in done.refused],
    }


def _plan(plan: PartitionPlan) -> dict[str, Any]:
    return {
        "directory": plan.target.directory,
        "end_offset": plan.end_offset,
        "new_end_offset": plan.new_end_offset,
        "lost": [lost._asdict() for lost in plan.lost],
        "lost_ends": [lost._asdict() for lost in plan.lost_ends],
        "files": [{"path": each.path, "size": each.size, "new_size": each.new_size} for each in plan.segments],
        "steps": list(plan.sentences()),
    }
