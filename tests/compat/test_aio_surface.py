"""The whole public surface of aiokafka has a state here, and the layer keeps what the state says."""

from __future__ import annotations

import asyncio
import enum
import importlib
import inspect
from typing import Any

import pytest

import pylog.compat.aiokafka as aiokafka
from compat.conftest import Servers
from compat.test_surface import IGNORED, LEAST_SUPPORTED, REFUSED, SUPPORTED, names_in
from pylog.compat.aiokafka import errors, options
from support.compat.surface import AIO_CLIENTS, AIOKAFKA, Row, renewed, table

ROWS = table(AIOKAFKA)
WITH_OPTIONS = [client for client in AIO_CLIENTS if client != "AIOKafkaClient"]


def of(where: str) -> list[Row]:
    return [row for row in ROWS if row.where == where]


def ours(client: str) -> Any:
    return getattr(importlib.import_module(f"pylog.compat.{AIOKAFKA.clients[client]}"), client)


def test_the_table_is_the_installed_packages_surface_and_each_name_has_a_state() -> None:
    found = renewed(AIOKAFKA)
    assert [row for row in found if not row.state] == [], "give these a state in tests/compat/aio_surface.tsv"
    assert set(ROWS) == set(found), "run python -m support.compat.surface"


def test_nearly_all_that_means_something_without_a_network_is_supported() -> None:
    supported = sum(row.state == SUPPORTED for row in ROWS)
    assert supported / sum(row.state in (SUPPORTED, REFUSED) for row in ROWS) >= LEAST_SUPPORTED


@pytest.mark.parametrize("where", sorted({row.where for row in ROWS if row.where.startswith("aiokafka")}))
def test_each_name_of_a_module_is_there_with_its_members_or_parameters(where: str) -> None:
    for row in of(where):
        found = getattr(importlib.import_module(f"pylog.compat.{where}"), row.name)
        if row.signature.startswith("enum "):
            assert issubclass(found, enum.Enum)
            assert list(found.__members__) == row.signature.split()[1:], row
        elif row.signature and row.name not in (*AIO_CLIENTS, "BatchBuilder") and not where.endswith("errors"):
            assert list(inspect.signature(found).parameters) == names_in(row.signature), row


def test_each_error_has_aiokafkas_number_and_its_bases_by_name() -> None:
    for row in of("aiokafka.errors"):
        found = getattr(errors, row.name)
        if inspect.isclass(found):
            bases, _, number = row.signature.partition(" errno ")
            names = {base.__name__ for base in found.__mro__}
            assert {name for name in bases.strip("()").split(", ") if name} <= names, row
            assert str(getattr(found, "errno", None) or "") == number or number == "0", row


@pytest.mark.parametrize("client", AIO_CLIENTS)
def test_each_method_is_there_with_its_parameters(client: str) -> None:
    for row in of(client):
        found = inspect.getattr_static(ours(client), row.name, None)
        assert found is not None, row
        if row.name != "__del__" and row.state != REFUSED:
            mine = [name for name in inspect.signature(found).parameters if name not in ("_", "self")]
            theirs = [name for name in names_in(row.signature) if name != "self"]
            assert mine[: len(theirs)] == theirs or row.name == "__aexit__", row


@pytest.mark.parametrize("client", WITH_OPTIONS)
def test_each_option_is_taken_with_its_default_and_those_of_a_network_are_ignored(client: str, memory: Servers) -> None:
    config = options.config_of(client, {})
    known = config | options.OLD[client]
    rows = of(f"{client} options")
    assert set(known) == {row.name for row in rows}
    for row in rows:
        assert (row.name in options.IGNORED[client]) == (row.state == IGNORED), row
        assert row.signature in (repr(known[row.name]), "object", "DefaultPartitioner") or "class" in row.signature, row

    async def make() -> None:
        async with ours(client)(**(config | memory)):
            pass

    asyncio.run(make())


def test_refused_calls_raise_an_error_of_aiokafkas() -> None:
    async def program() -> None:
        client = aiokafka.AIOKafkaClient(bootstrap_servers="pylog+memory://refused")
        for row in of("AIOKafkaClient"):
            if row.state == REFUSED:
                with pytest.raises(errors.UnsupportedVersionError, match="network"):
                    await getattr(client, row.name)(0, None)

    asyncio.run(program())
