"""The public surface of kafka-python and aiokafka: read from the installed packages, and the tables with a state for each name.

    python -m support.compat.surface        # writes tests/compat/*surface.tsv again, with the states that they have

States: S supported, I accepted and ignored, R refused, T needs transactions.
"""

from __future__ import annotations

import csv
import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.compat.real import real

_TABLES = Path(__file__).resolve().parents[2] / "compat"
CLIENTS = ("KafkaConsumer", "KafkaProducer", "KafkaAdminClient")
AIO_CLIENTS = ("AIOKafkaConsumer", "AIOKafkaProducer", "AIOKafkaAdminClient", "AIOKafkaClient")
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


class Package(NamedTuple):
    """A package that the layers stand for.

    Attributes:
        name: of the package.
        file: the table, below tests/compat.
        modules: its public modules; after a colon, the one name that is public in it.
        clients: its clients, with the module of each.
    """

    name: str
    file: str
    modules: tuple[str, ...]
    clients: dict[str, str]


KAFKA = Package(
    "kafka",
    "surface.tsv",
    (
        "kafka",
        "kafka.structs",
        "kafka.consumer",
        "kafka.producer",
        "kafka.admin",
        "kafka.serializer",
        "kafka.partitioner",
        "kafka.errors",
    ),
    dict.fromkeys(CLIENTS, "kafka"),
)
AIOKAFKA = Package(
    "aiokafka",
    "aio_surface.tsv",
    (
        "aiokafka",
        "aiokafka.abc",
        "aiokafka.structs",
        "aiokafka.consumer",
        "aiokafka.producer",
        "aiokafka.producer.message_accumulator:BatchBuilder",
        "aiokafka.admin",
        "aiokafka.admin.config_resource",
        "aiokafka.partitioner",
        "aiokafka.helpers",
        "aiokafka.coordinator.assignors.abstract:AbstractPartitionAssignor",
        "aiokafka.coordinator.assignors.range:RangePartitionAssignor",
        "aiokafka.coordinator.assignors.roundrobin:RoundRobinPartitionAssignor",
        "aiokafka.coordinator.assignors.sticky.sticky_assignor:StickyPartitionAssignor",
        "aiokafka.errors",
    ),
    {client: "aiokafka.admin" if "Admin" in client else "aiokafka" for client in AIO_CLIENTS},
)
PACKAGES = (KAFKA, AIOKAFKA)


def table(package: Package = KAFKA) -> list[Row]:
    """Returns the rows of a table."""
    path = _TABLES / package.file
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row(*line) for line in csv.reader(file, delimiter="\t")][1:]


def introspected(package: Package) -> Iterator[Row]:
    """Yields the names of an installed package, without states."""
    for each in package.modules:
        where, _, only = each.partition(":")
        module = real(where)
        for name in [only] if only else _names(module):
            yield Row(where, name, _signature(getattr(module, name), with_errors=where.endswith(".errors")))
    for client, where in package.clients.items():
        kind = getattr(real(where), client)
        for name, found in inspect.getmembers(kind):
            if callable(found) and (not name.startswith("_") or name in _SPECIAL) and _is_its_own(kind, name):
                yield Row(client, name, _of_method(kind, name))
        for name, default in _options(kind):
            yield Row(f"{client} options", name, _default(default))


_SPECIAL = ("__iter__", "__next__", "__enter__", "__exit__", "__del__", "__aiter__", "__anext__", "__aenter__", "__aexit__")


def _options(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yields the options of a client with their defaults: aiokafka's are parameters."""
    if hasattr(kind, "DEFAULT_CONFIG"):
        yield from kind.DEFAULT_CONFIG.items()
        return
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield name, parameter.default


def _is_its_own(kind: type, name: str) -> bool:
    return any(name in vars(each) for each in kind.__mro__[:-1])


def _names(module: Any) -> list[str]:
    """The names of `__all__`, and the classes and functions of the package, in the order of the alphabet."""
    listed = {name for name in getattr(module, "__all__", ()) if not inspect.ismodule(getattr(module, name))}
    own = {
        name
        for name, found in vars(module).items()
        if (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__.startswith(("kafka.", "aiokafka."))
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
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r" object at 0x[0-9a-f]+| from '[^']*'", "", text)  # they differ with the machine


def _default(found: Any) -> str:
    if inspect.isclass(found):
        return found.__name__
    if inspect.isfunction(found):
        return found.__name__
    text = repr(found)
    return type(found).__name__ if " at 0x" in text else text


def written(package: Package, rows: list[Row]) -> None:
    """Writes a table again."""
    with (_TABLES / package.file).open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(["where", "name", "signature, default or bases", "state", "note"])
        writer.writerows(rows)


def renewed(package: Package = KAFKA) -> list[Row]:
    """Returns the rows of the installed package with the states of the table, and the table's rows of older versions."""
    known = {(row.where, row.name): row for row in table(package)}
    rows = []
    for row in introspected(package):
        old = known.get((row.where, row.name))
        rows.append(row if old is None else row._replace(state=old.state, note=old.note))
    return rows + [row for row in known.values() if row.note.startswith(OLD) or row.where.endswith(" metrics")]


if __name__ == "__main__":
    for each in PACKAGES:
        written(each, renewed(each))
