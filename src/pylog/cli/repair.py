"""`pylog repair`: removes damage from a log directory."""

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
LostMarkers = Literal["commit", "abort"]
Execute = Annotated[bool, Parameter(name=["--execute", "--yes", "-y"], show_default=False)]


@command(CARE)
def repair(
    policy: Policy,
    path: str,
    /,
    *,
    execute: Execute = False,
    whole: Flag = False,
    lost_markers: LostMarkers | None = None,
    backup: str | None = None,
    json: Json = False,
) -> int:
    """Removes damage from a log directory. Without --execute, only prints the plan.

    skip removes only the damaged bytes and keeps every readable record. truncate ends a log at its first damage, as a broker
    does, and loses everything after it. quarantine removes whole damaged segments. The command copies each file before it
    changes it. Records keep their offsets. Indexes, producer snapshots and leader epochs are rebuilt. No process may have the
    directory open for writing. Exit code 1: some partitions are damaged and not repaired.

    Args:
        policy: skip, truncate or quarantine.
        path: Path of a log directory, or of one partition's directory.
        execute: Repair. Without it, the command writes nothing and takes no lock.
        whole: With quarantine, remove all records of the partition, which then continues, empty, at its end offset.
        lost_markers: How transactions end whose marker is lost and cannot be read: commit or abort. One that can be read is
            written again. Without it, a partition with transactions that lose their markers is not repaired.
        backup: Directory for the copies, which must not exist yet. Default: a directory next to the log directory.
        json: Print one JSON document.

    Examples:
        pylog repair skip shop
        pylog repair skip shop --execute
        pylog repair truncate data/orders-0 --execute --backup /mnt/old
        pylog repair quarantine shop/orders-0 --whole
        pylog repair skip shop --lost-markers abort --execute
    """
    from pylog.tools.repair import repair as repaired

    if whole and policy != "quarantine":
        raise UsageError("--whole requires the policy quarantine")
    done = repaired(path, policy, execute=execute, whole=whole, lost_markers=lost_markers, backup=backup)
    if json:
        print_json(_document(done, executed=execute))
    else:
        _print(done, executed=execute)
    return FAILED if done.refused or (done.plans and not execute) else OK


def _print(done: Repair, *, executed: bool) -> None:
    if not done.plans and not done.refused:
        print_line("no damage found; nothing to repair")
    for plan in done.plans:
        print_line(f"{plan.target.directory}:")
        for sentence in plan.sentences():
            print_line(f"  {sentence}")
    for refused in done.refused:
        print_line(f"{refused.target.directory}: not repaired: {refused.why}")
    if done.backup is not None:
        print_line(f"done; copies of the changed files are in {done.backup}")
    elif done.plans and not executed:
        print_line("nothing was done; give --execute to repair")


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
        "markers": [marker._asdict() for marker in plan.markers],
        "files": [{"path": each.path, "size": each.size, "new_size": each.new_size} for each in plan.segments],
        "steps": list(plan.sentences()),
    }
