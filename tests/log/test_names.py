"""What a loader makes of a partition's names: the short way for a directory in order says what the long one says."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pylog.segment import names

OFFSETS = st.sampled_from(["0" * 20, f"{5:020}", f"{7:020}", "9", f"{1 << 62:020}", "9" * 20, "²" * 20, "0" * 19 + "²", "x" * 20])
SUFFIXES = st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".seal", ".torn", "", "."])
NAMES = st.builds(
    lambda offset, suffix, state: offset + suffix + state, OFFSETS, SUFFIXES, st.sampled_from(["", ".deleted", ".swap"])
)
IN_ORDER = st.builds(
    lambda offset, suffix: f"{offset:020}{suffix}", st.integers(0, 99), st.sampled_from([".log", ".index", ".snapshot"])
)


@pytest.mark.slow
@given(st.lists(st.one_of(IN_ORDER, NAMES, st.just("partition.metadata")), unique=True))
@example(["²" * 20 + ".log"])
def test_a_directory_in_order_is_planned_as_any_other(found: list[str]):
    plan = names.plan_load(found, lambda _: 6)
    with mock.patch.object(names, "plain_plan", return_value=None):
        assert plan == names.plan_load(found, lambda _: 6)


def test_a_directory_in_order_is_planned_the_short_way():
    found = [names.file_name(base, suffix) for base in (0, 5) for suffix in (names.LOG, names.INDEX, names.SNAPSHOT)]
    with mock.patch.object(names, "parse", side_effect=AssertionError):
        plan = names.plan_load([*found, "leader-epoch-checkpoint"], lambda _: 6)
    assert (plan.segments, plan.snapshots) == ({0: names.file_name(0, names.LOG), 5: names.file_name(5, names.LOG)}, [0, 5])
