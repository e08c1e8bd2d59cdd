"""`pylog ops`: writes the alert rules and the dashboard that pylog ships."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from pylog.cli.app import CARE, Flag, Json, app, command
from pylog.cli.exits import UsageError
from pylog.cli.output import print_json, write_data

ops: Final = App(
    name="ops",
    group=CARE,
    group_commands=CARE,
    help="Writes alert rules for Prometheus and a dashboard for Grafana.",
)
app.command(ops)

_FILES: Final = {"rules": "pylog-rules.yml", "dashboard": "pylog-dashboard.json"}


@command(CARE, under=ops)
def write(
    what: Annotated[Literal["rules", "dashboard"], Parameter(name="WHAT")],
    directory: Annotated[str, Parameter(name="DIRECTORY")],
    /,
    *,
    force: Flag = False,
    json: Json = False,
) -> None:
    """Writes the alert rules for Prometheus, or the dashboard for Grafana.

    Both use pylog's own metrics, as `pylog metrics` and Store.serve_metrics serve them.

    Args:
        what: "rules" for pylog-rules.yml, "dashboard" for pylog-dashboard.json.
        directory: Directory to write the file to. It must exist.
        force: Replace a file that differs.
        json: Print one JSON document.

    Examples:
        pylog ops write rules /etc/prometheus
        pylog ops write dashboard /var/lib/grafana/dashboards
    """
    from pylog.fs import replace_file

    name = _FILES[what]
    data = shipped(name)
    path = Path(directory) / name
    if not path.parent.is_dir():
        raise UsageError(f"{directory} is not a directory; create it, or give another one")
    if path.exists() and path.read_bytes() != data and not force:
        raise UsageError(f"{path} exists and differs; give --force to replace it, or another directory")
    replace_file(str(path), data)
    if json:
        print_json({"path": str(path)})
    else:
        write_data(f"wrote {path}\n")


def shipped(name: str) -> bytes:
    """Returns a file that pylog ships for monitoring systems."""
    return resources.files("pylog.monitoring").joinpath("shipped", name).read_bytes()
