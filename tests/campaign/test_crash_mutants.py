"""Whichever sync, directory sync or rename the engine were without, a promise would be broken (reliability 8.1, suite 7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.campaign.mutants import IN_NO_WORKLOAD, NOT_NEEDED_AFTER_A_CRASH, SAMPLES, broken_without, in_source, reached, run
from support.campaign.torture import SUITES
from support.campaign.workloads import quiet

PAGE = Path(__file__).parents[2] / "docs" / "TORTURE.md"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def test_every_sync_and_rename_of_the_engine_is_made_in_some_workload() -> None:
    """Else it could be anywhere, or nowhere, and no test would know."""
    assert sorted(call.name for call in in_source() - reached()) == sorted(IN_NO_WORKLOAD)


@pytest.mark.parametrize("name", sorted(call.name for call in in_source()))
def test_an_engine_without_one_of_its_syncs_or_renames_breaks_a_promise(name: str) -> None:
    (call,) = (call for call in in_source() if call.name == name)
    expected = name in NOT_NEEDED_AFTER_A_CRASH
    violation = broken_without(call, samples=3 if expected else SAMPLES)
    assert (violation is None) == expected, violation or "nobody noticed"


def test_a_long_run_reports_what_it_did() -> None:
    assert run(1, 0.0) == {"seed": 1, "mutants": 0, "violations": []}


def test_every_exception_is_of_a_call_that_is_there() -> None:
    assert set(NOT_NEEDED_AFTER_A_CRASH) <= {call.name for call in in_source()}


def test_the_page_of_the_campaign_has_each_suite_and_the_numbers_of_calls() -> None:
    page = PAGE.read_text()
    rows = dict(re.findall(r"^\| (\w+) \| (.+?) \|", page, re.MULTILINE))
    assert SUITES.keys() - rows.keys() == set()
    numbers = [int(number) for number in re.findall(r"\b\d+\b", rows["mutants"])]
    calls, exceptions = len(in_source()), len(NOT_NEEDED_AFTER_A_CRASH)
    assert numbers == [calls, calls - exceptions, exceptions, len(IN_NO_WORKLOAD)]
    assert set(IN_NO_WORKLOAD) <= set(NOT_NEEDED_AFTER_A_CRASH)
