"""The whole public surface of kafka-python has a state here, and the layer keeps what the state says."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from typing import Any

import pytest

import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.kafka import errors, options
from support.compat.surface import CLIENTS, Row, renewed, table

ROWS = table()
SUPPORTED, IGNORED, REFUSED, TRANSACTIONS = "SIRT"
LEAST_SUPPORTED = 0.95


def of(where: str) -> list[Row]:
    return [row for row in ROWS if row.where == where]


def names_in(signature: str) -> list[str]:
    """The names of the parameters in a signature as the table has it."""
    inside = re.sub(r"=(?:\(\)|<[^>]*>|'[^']*'|[^,)]*)", "", signature[1:-1])
    return [each.strip(" *") for each in inside.split(",") if each.strip(" *")]


def ours(row: Row) -> Any:
    return getattr(importlib.import_module(f"pylog.compat.{row.where}"), row.name)


def test_the_table_is_the_installed_packages_surface_and_each_name_has_a_state() -> None:
    found = renewed()
    assert [row for row in found if not row.state] == [], "give these a state in tests/compat/surface.tsv"
    assert set(ROWS) == set(found), "run python -m support.compat.surface"


def test_nearly_all_that_means_something_without_a_network_is_supported() -> None:
    supported = sum(row.state == SUPPORTED for row in ROWS)
    meant = sum(row.state in (SUPPORTED, TRANSACTIONS) for row in ROWS)  # what is refused needs a broker, users or a network
    assert supported / meant >= LEAST_SUPPORTED


@pytest.mark.parametrize("where", sorted({row.where for row in ROWS if row.where.startswith("kafka")}))
def test_each_name_of_a_module_is_there_with_its_members_or_parameters(where: str) -> None:
    for row in of(where):
        found = ours(row)
        if row.signature.startswith("enum "):
            assert issubclass(found, enum.Enum)
            assert list(found.__members__) == row.signature.split()[1:], row
        elif where != "kafka.errors" and row.name not in CLIENTS and inspect.isclass(found) and row.signature:
            mine, theirs = list(inspect.signature(found).parameters), names_in(row.signature)
            assert mine[: len(theirs)] == theirs or row.state == REFUSED, row


@pytest.mark.parametrize("client", CLIENTS)
def test_each_method_is_there_with_its_parameters(client: str) -> None:
    for row in of(client):
        found = inspect.getattr_static(getattr(kafka, client), row.name, None)
        assert found is not None, row
        mine, theirs = list(inspect.signature(getattr(found, "__func__", found)).parameters), names_in(row.signature)
        mine, theirs = ([name for name in names if name not in ("self", "cls")] for names in (mine, theirs))
        assert mine[: len(theirs)] == theirs, row


@pytest.mark.parametrize("client", CLIENTS)
def test_each_option_is_taken_with_its_default_and_those_of_a_network_are_ignored(client: str, memory: Servers) -> None:
    known = getattr(kafka, client).DEFAULT_CONFIG | options.OLD[client]
    rows = of(f"{client} options")
    assert set(known) == {row.name for row in rows}
    for row in rows:
        assert (row.name in options.IGNORED[client]) == (row.state == IGNORED), row
    taken = {row.name: known[row.name] for row in rows if row.name != "bootstrap_servers" and row.state != TRANSACTIONS}
    getattr(kafka, client)(**memory, **taken).close()


@pytest.mark.parametrize("client", ["KafkaConsumer", "KafkaProducer"])
def test_each_metric_is_there(client: str, memory: Servers) -> None:
    with getattr(kafka, client)(**memory) as made:
        found = made.metrics()
    assert {(name, group) for group, names in found.items() for name in names} == {
        (row.name, row.signature) for row in of(f"{client} metrics")
    }


def test_refused_calls_raise_an_error_of_kafka_pythons(memory: Servers) -> None:
    with kafka.KafkaAdminClient(**memory) as admin:
        for row in of("KafkaAdminClient"):
            if row.state == REFUSED:
                count = len(inspect.signature(getattr(admin, row.name)).parameters)
                with pytest.raises((errors.UnsupportedVersionError, errors.SecurityDisabledError)) as raised:
                    getattr(admin, row.name)(*[[]] * count)
                assert len(str(raised.value)) > 40
