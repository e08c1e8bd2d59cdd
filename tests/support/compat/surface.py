"""kafka-python's public surface: read from the installed package, and the table that has a state for each name.

    python -m support.compat.surface        # writes tests/compat/surface.tsv again, with the states that it has

States: S supported, I accepted and ignored, R refused, T needs transactions.
"""

from __future__ import annotations

import csv
import enum
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.compat.real import real

TABLE = Path(__file__).resolve().parents[2] / "compat" / "surface.tsv"
MODULES = (
    "kafka",
    "kafka.structs",
    "kafka.consumer",
    "kafka.producer",
    "kafka.admin",
    "kafka.serializer",
    "kafka.partitioner",
    "kafka.errors",
)
CLIENTS = ("KafkaConsumer", "KafkaProducer", "KafkaAdminClient")
OLD = "only in 2"  # notes of names that the installed version does not have begin so


class Row(NamedTuple):
    """One name.

    Attributes:
        where: its module, its class, or "KafkaConsumer options".
        name: the name.
        signature: its parameters, its members, its bases or its default.
        state: S, I, R or T.
        note: in words.
    """

    where: str
    name: str
    signature: str
    state: str = ""
    note: str = ""


def table() -> list[Row]:
    """Returns the rows of the table."""
    with TABLE.open(newline="") as file:
        return [Row(*line) for line in csv.reader(file, delimiter="\t")][1:]


def introspected() -> Iterator[Row]:
    """Yields the names of the installed package, without states."""
    for where in MODULES:
        module = real(where)
        for name in _names(module):
            yield Row(where, name, _signature(getattr(module, name), with_errors=where == "kafka.errors"))
    for client in CLIENTS:
        kind = getattr(real("kafka"), client)
        for name, found in inspect.getmembers(kind):
            if callable(found) and (not name.startswith("_") or name in _SPECIAL) and _is_its_own(kind, name):
                yield Row(client, name, _of_method(kind, name))
        for name, default in kind.DEFAULT_CONFIG.items():
            yield Row(f"{client} options", name, _default(default))


_SPECIAL = ("__iter__", "__next__", "__enter__", "__exit__", "__del__")


def _is_its_own(kind: type, name: str) -> bool:
    return any(name in vars(each) for each in kind.__mro__[:-1])


def _names(module: Any) -> list[str]:
    """The names of `__all__`, and the classes and functions of the package, in the order of the alphabet."""
    listed = {name for name in getattr(module, "__all__", ()) if not inspect.ismodule(getattr(module, name))}
    own = {
        name
        for name, found in vars(module).items()
        if (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__.startswith("kafka.")
    }
    return sorted(name for name in listed | own | (vars(module).keys() & {"kafka_errors"}) if not name.startswith("_"))


def _signature(found: Any, *, with_errors: bool) -> str:
    if isinstance(found, dict):
        return "dict"
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        return " ".join(["enum", *found.__members__])
    if with_errors and inspect.isclass(found):
        bases = ", ".join(base.__name__ for base in found.__bases__)
        number = getattr(found, "errno", None)
        return f"({bases})" + ("" if number is None else f" errno {number}")
    try:
        return _parameters(inspect.signature(found))
    except ValueError:
        return ""


def _of_method(kind: type, name: str) -> str:
    found = inspect.getattr_static(kind, name)
    return _parameters(inspect.signature(getattr(found, "__func__", found)))


def _parameters(found: inspect.Signature) -> str:
    """A signature without annotations: they differ with the version of Python."""
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _default(found: Any) -> str:
    if inspect.isclass(found):
        return found.__name__
    if inspect.isfunction(found):
        return found.__name__
    text = repr(found)
    return type(found).__name__ if " at 0x" in text else text


def written(rows: list[Row]) -> None:
    """Writes the table again."""
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(["where", "name", "signature, default or bases", "state", "note"])
        writer.writerows(rows)


def renewed() -> list[Row]:
    """Returns the rows of the installed package with the states of the table, and the table's rows of older versions."""
    known = {(row.where, row.name): row for row in table()}
    rows = []
    for row in introspected():
        old = known.get((row.where, row.name))
        rows.append(row if old is None else row._replace(state=old.state, note=old.note))
    return rows + [row for row in known.values() if row.note.startswith(OLD) or row.where.endswith(" metrics")]


if __name__ == "__main__":
    written(renewed())
