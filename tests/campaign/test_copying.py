"""Copiers of a group copy each record exactly once, whatever happens to them and to their topics."""

from __future__ import annotations

import os
import random

import pytest

from support.campaign.copying import Course, Topics
from support.golden.data import case

COURSES, STEPS, CHECKED_EVERY = 8 * int(os.environ.get("PYLOG_TIMES", "1")), 100, 10


def run(course: Course) -> None:
    try:
        for number in range(STEPS):
            course.step()
            if number % CHECKED_EVERY == 0:
                course.check()
        course.settle()
        assert course.done["committed"]
    finally:
        course.close()


@pytest.mark.pair("groups", "timestamps", "retention by time", "retention by size", "compaction", "truncation", "delete_records")
@pytest.mark.pair("groups", "option change", "roll", "crash", "close", "second process", "aborted transactions", "LogAppendTime")
@pytest.mark.pair("aborted transactions", "timestamps", "retention by time", "retention by size", "truncation")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(COURSES))
def test_each_record_that_nothing_removes_is_copied_once(seed: int) -> None:
    run(Course(random.Random(seed)))


@pytest.mark.pair("broker's directory", "groups", "aborted transactions", "crash", "second process")
@pytest.mark.parametrize("seed", range(COURSES // 4))
def test_each_record_of_a_brokers_directory_is_copied_once(seed: int) -> None:
    brokers = case("4.3.0", "txn").log_directory
    run(Course(random.Random(seed), brokers, Topics(source="txn", kept="txn-open", side=None)))
