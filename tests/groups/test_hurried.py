"""Members of a group that are hurried by deletions, resets and retention, killed, slow and restarted, against a model."""

from __future__ import annotations

import os

import pytest

from support.groups.hurried import Course

STEPS, COURSES = 80, int(os.environ.get("PYLOG_TIMES", "1")) * 6


@pytest.mark.sampled(6)
@pytest.mark.pair("groups", "retention by size", "delete_records", "second process", "crash", "close")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # consumers are dropped
@pytest.mark.parametrize("seed", range(COURSES))
def test_a_group_reads_each_record_and_never_a_lost_one_while_its_topic_is_deleted_and_its_members_are_killed_and_slow(
    seed: int,
) -> None:
    course = Course(seed)
    for _ in range(STEPS):
        course.step()
    course.settle()
    course.end()
