"""`pylog groups export`: writes committed offsets as CSV that Kafka's tools read."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pylog.cli.app import CONSUMERS, Json, StorePath, command
from pylog.cli.groups import groups
from pylog.cli.output import print_json, to_terminal, write_data
from pylog.cli.stores import naming_groups, reading
from pylog.text import lines_text


@command(CONSUMERS, under=groups)
def export(
    store: StorePath,
    group: Annotated[list[str] | None, Parameter(name="GROUP")] = None,
    /,
    *,
    to: Annotated[str | None, Parameter(name=["--to", "-o"])] = None,
    json: Json = False,
) -> None:
    """Writes committed offsets as CSV: topic,partition,offset for one group, group,topic,partition,offset for several.

    Args:
        store: Path of the log directory. A broker may be running on it.
        group: Names of groups. Default: all groups.
        to: File to write or replace. Default: stdout.
        json: Print one JSON document instead of CSV.

    Examples:
        pylog groups export shop billing > billing.csv
        pylog groups export shop --to offsets.csv
    """
    from pylog.groups import plan_file
    from pylog.groups.admin import committed_by

    with reading(store) as opened, naming_groups(store):
        names = list(dict.fromkeys(group or opened.groups()))
        offsets = {name: committed_by(opened.group(name)) for name in names}
    if json:
        print_json(
            {
                group: [{**partition._asdict(), "offset": offset} for partition, offset in committed.items()]
                for group, committed in offsets.items()
            }
        )
        return
    single = group is not None and len(names) == 1
    text = plan_file.format_plan(offsets[names[0]]) if single else plan_file.format_plans(offsets)
    if to is not None:
        plan_file.write(to, text)
    else:
        write_data(lines_text(text) if to_terminal() else text)
