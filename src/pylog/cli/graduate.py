"""`pylog graduate`: prepares a log directory for a new Kafka broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pylog.cli.app import CARE, Flag, Json, StorePath, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import UsageError
from pylog.cli.output import Column, print_json, print_line, print_table, progress
from pylog.text import counted

if TYPE_CHECKING:
    from pylog.tools.graduate import Graduation

_TOPICS: Final = (Column("topic"), Column("partitions", "number"), Column("options"))
_SHOWN: Final = 10  # files printed; there may be one per partition


@command(CARE)
def graduate(
    store: StorePath, /, *, node_id: int = 1, dry_run: Flag = False, undo: Flag = False, yes: Yes = False, json: Json = False
) -> None:
    """Prepares a log directory for a new Kafka 4.3 broker, which starts with its topics, options, groups and offsets.

    The command verifies everything first and refuses damage. It writes a few small files and leaves the logs as they are. Until
    a broker has started on the directory, --undo removes those files.

    Args:
        store: Path of the log directory. No process may have it open for writing.
        node_id: Node id of the broker.
        dry_run: Only print what would be written.
        undo: Remove the files that graduate wrote.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog graduate shop --dry-run
        pylog graduate shop --node-id 1 --yes
        pylog graduate shop --undo --yes
    """
    if undo and dry_run:
        raise UsageError("--undo and --dry-run cannot be combined")
    if undo:
        _undo(store, yes=yes, json=json)
    else:
        _graduate(store, node_id, dry_run=dry_run, yes=yes, json=json)


def _graduate(store: str, node_id: int, *, dry_run: bool, yes: bool, json: bool) -> None:
    from pylog.tools.graduate import carry_out, plan_graduation

    with progress("verifying") as report:
        found = plan_graduation(store, node_id=node_id, progress=lambda done, total, _: report(done, total))
    if not json:
        _show(found)
    if not dry_run:
        count = len(found.files)
        confirm(f"This writes {counted(count, 'file')} into {found.root}, which belongs to a Kafka broker afterwards", yes=yes)
        carry_out(found)
    if json:
        print_json(_document(found, executed=not dry_run))
    elif not dry_run:
        print_line(f"Done. Until a broker has started on the directory, `pylog graduate {store} --undo` removes the files.")


def _show(found: Graduation) -> None:
    print_table(
        _TOPICS,
        [
            {
                "topic": topic.name,
                "partitions": len(topic.leader_epochs),
                "options": ", ".join(f"{name}={value}" for name, value in topic.options.items()),
            }
            for topic in found.topics
        ],
    )
    print_line("")
    print_line("Files to be written:")
    for file in found.files[-_SHOWN:]:
        print_line(f"  {file.path}  ({counted(len(file.data), 'byte')})")
    if len(found.files) > _SHOWN:
        print_line(f"  and partition.metadata in {counted(len(found.files) - _SHOWN, 'more partition')}")
    print_line("")
    print_line("The broker's server.properties must contain:")
    for name, value in found.properties.items():
        print_line(f"  {name}={value}")
    print_line("")
    for note in found.notes:
        print_line(f"Note: {note}.")


def _document(found: Graduation, *, executed: bool) -> dict[str, Any]:
    return {
        "executed": executed,
        "path": found.root,
        "files": [{"path": file.path, "bytes": len(file.data)} for file in found.files],
        "topics": [
            {"topic": topic.name, "id": topic.id, "partitions": len(topic.leader_epochs), "config": dict(topic.options)}
            for topic in found.topics
        ],
        "properties": dict(found.properties),
        "next_producer_id": found.next_producer_id,
        "notes": list(found.notes),
    }


def _undo(store: str, *, yes: bool, json: bool) -> None:
    from pylog.tools.graduate import take_back

    confirm(f"This removes from {store} the files that graduate wrote", yes=yes)
    removed = take_back(store)
    if json:
        print_json({"removed": removed})
    else:
        print_line(f"Removed {counted(len(removed), 'file')}. The directory belongs to pylog again.")
