"""Output of commands: tables for people, JSON for programs, and a progress bar.

On a terminal, rich draws tables and sizes are rounded. On a pipe, tables are aligned with spaces and numbers are exact.
Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from pylog.text import json_text, printable, shown, size_text

MISSING: Final = "-"
_UTF_8: Final = ("utf-8", "utf8")


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: name of the field, also in JSON.
        title: heading; by default the name with blanks.
        kind: `"text"`, `"number"` or `"bytes"` (a size).
    """

    name: str
    kind: str = "text"
    title: str | None = None

    @property
    def heading(self) -> str:
        return (self.title or self.name.replace("_", " ")).upper()


TableRow = Mapping[str, Any]


def write_data(text: str) -> None:
    """Writes text for programs: UTF-8 on a pipe, whatever the locale is."""
    if to_terminal() or sys.stdout.encoding.lower() in _UTF_8:
        sys.stdout.write(text)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())


def to_terminal() -> bool:
    """Returns True if stdout is a terminal."""
    return sys.stdout.isatty()


# ---- JSON --------------------------------------------------------------------------------------------------------------------


def print_json(document: Any) -> None:
    """Prints one JSON document, indented.

    Args:
        document: values of JSON, and bytes, which become text or an object (see `jsonable`).
    """
    import msgspec

    encoded = msgspec.json.format(msgspec.json.encode(jsonable(document)), indent=2)
    write_data(json_text(encoded.decode()) + "\n")


def json_line(document: Any) -> str:
    """Returns a JSON document on one line, with a line end."""
    import msgspec

    return json_text(msgspec.json.encode(jsonable(document)).decode()) + "\n"


def jsonable(value: Any) -> Any:
    """Returns the value with bytes replaced by text, or by an object `{"base64": …}` if they are not UTF-8.

    Text is a name, such as a file name; bytes in it that are not UTF-8 are escaped.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {name: jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    return _encodable(value) if isinstance(value, str) else value


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return printable(text)
    return text


# ---- tables ------------------------------------------------------------------------------------------------------------------


def print_table(columns: Sequence[Column], rows: Iterable[TableRow]) -> None:
    """Prints a table: drawn on a terminal, aligned with spaces on a pipe. None is printed as `-`."""
    cells = [[_cell(column, row.get(column.name)) for column in columns] for row in rows]
    if to_terminal():
        _draw(columns, cells)
    else:
        for line in aligned([[column.heading for column in columns], *cells], [column.kind != "text" for column in columns]):
            sys.stdout.write(line + "\n")


def print_facts(facts: Mapping[str, Any]) -> None:
    """Prints names and values, one pair per line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        sys.stdout.write(f"{name:<{width}}  {_cell(Column(name), value)}\n")


def print_line(text: str) -> None:
    """Prints a line of text, escaped for terminals."""
    sys.stdout.write(printable(text) + "\n")


def aligned(lines: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    """Yields lines of cells. Each column is as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, widths, to_the_right, strict=True)
        yield "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return MISSING
    if column.kind == "bytes" and to_terminal():
        return size_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value if isinstance(value, bytes) else str(value))


def _draw(columns: Sequence[Column], cells: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.heading, justify="left" if column.kind == "text" else "right", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))  # `Text` has no markup: "[red]" in a name is printed as it is
    Console(file=sys.stdout, highlight=False).print(table)


# ---- progress ----------------------------------------------------------------------------------------------------------------


class ProgressCallback(Protocol):
    """Receives the progress of a command."""

    def __call__(self, done: float, total: float | None = None, /) -> None: ...


@contextmanager
def progress(doing: str, *, total: float | None = None, unit: str = "bytes") -> Iterator[ProgressCallback]:
    """Shows a progress bar with rate and remaining time on stderr, if stderr is a terminal.

    Args:
        doing: description of the work, a word or two.
        total: total amount, if it is known.
        unit: unit of the amounts: `"bytes"`, or a word such as `"records"`.

    Returns:
        A function to call with the amount done, and with the total if it has changed.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total=None, /: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as BytesRate

    counted = (DownloadColumn(), BytesRate()) if unit == "bytes" else (MofNCompleteColumn(), _rate(unit))
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *counted, TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(printable(doing), total=total)
        yield lambda done, total=None, /: bar.update(task, completed=done, total=total)


def _rate(unit: str) -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        """The rate column: amount per second."""

        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} {unit}/s")

    return Rate()
