"""The CSV of Kafka's `--export` and `--from-file`: written as Kafka writes it, read in both of its forms, wrong lines named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import InvalidArgumentError, StorageFailedError, TopicPartition
from pylog.groups.plan_file import format_plan, format_plans, parse_plan, parse_plans, read, write

NAMES = st.text(st.sampled_from("aZ0-._, \"'\n\r\t#é😀\u2028"), max_size=30)
TOPICS = st.text(st.sampled_from("aZ0-._"), min_size=1, max_size=30).filter(lambda name: name not in (".", ".."))
PLACES = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
PLANS = st.dictionaries(PLACES, st.integers(0, 2**63 - 1), max_size=5)


@pytest.mark.slow
@given(NAMES, PLANS.filter(bool))
def test_a_plan_read_back_is_the_same(group: str, offsets: dict[TopicPartition, int]) -> None:
    assert parse_plan(format_plan(offsets), "f", group) == offsets
    assert parse_plan(format_plans({group: offsets}), "f", group) == offsets


@pytest.mark.slow
@given(st.dictionaries(NAMES, PLANS.filter(bool), max_size=4))
def test_the_plans_of_several_groups_read_back_are_the_same(groups: dict[str, dict[TopicPartition, int]]) -> None:
    assert parse_plans(format_plans(groups), "f") == groups


def test_lines_are_in_order_and_only_what_needs_quotes_has_them() -> None:
    """As Kafka's tool does: longer than 24 characters, or with a character before `-`."""
    some = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3, TopicPartition("t" * 25, 0): 4}
    assert format_plan(some) == f'a,9,3\na,10,2\nb,0,1\n"{"t" * 25}",0,4\n'
    assert format_plans({'x"y': {TopicPartition("a-b", 0): 1}, "é": {TopicPartition("a", 0): 2}}) == '"x""y",a-b,0,1\né,a,0,2\n'


def test_one_groups_lines_are_found_among_those_of_others() -> None:
    assert parse_plan("g,t,0,5\nother,t,0,6\ng,t,1,7\n", "f", "g") == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}


def test_empty_lines_and_other_line_ends_do_not_matter() -> None:
    assert parse_plan('\n"t",0,5\r\n\r\nt,1,6', "f", "g") == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}


BAD = [
    ("t,0,5\nt,1\n", "f, line 2: the line has 2 fields; it should be topic,partition,offset"),
    ("t,0,5\n\ng,t,1,6\n", "f, line 3: the line has 4 fields; it should be topic,partition,offset"),
    ("g,t,0,5\nt,1,6\n", "f, line 2: the line has 3 fields; it should be group,topic,partition,offset"),
    ("t,0,x\n", "f, line 1: the offset 'x' is not a number"),
    ("t,0,9223372036854775808\n", "f, line 1: the offset '9223372036854775808' is not a number from"),
    ("t,0,1.5\n", "f, line 1: the offset '1.5'"),
    ("t,-1,0\n", "f, line 1: the partition '-1' is not a number from 0"),
    ("t,2147483648,0\n", "f, line 1: the partition '2147483648'"),
    ("a b,0,1\n", "f, line 1: 'a b' is not a topic name"),
    ("t,0,5\nt,1,6\nt,0,7\n", "f, line 3: t-0 appears twice"),
    ('t,0,5\n"t,1,6\n', "f, line 2: "),
    ("", "f has no line for the group 'g'; it has some for none at all"),
    ("h,t,0,5\n", "f has no line for the group 'g'; it has some for 'h'"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=repr)
def test_a_wrong_line_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_plan(text, "f", "g")
    assert str(caught.value).startswith(message)


def test_a_file_of_one_group_is_none_of_several() -> None:
    with pytest.raises(InvalidArgumentError, match="line 1: the line has 3 fields; it should be group,"):
        parse_plans("t,0,5\n", "f")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path / "plan.csv", "é")
    write(str(tmp_path / "plan.csv"), "t,0,1\n")
    assert read(tmp_path / "plan.csv") == ("t,0,1\n", str(tmp_path / "plan.csv"))
    assert [each.name for each in tmp_path.iterdir()] == ["plan.csv"]


def test_a_file_that_is_replaced_keeps_its_mode_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text("old")
    (tmp_path / "plan.csv").chmod(0o664)
    (tmp_path / "plan.csv.tmp").write_text("the user's own")
    write(tmp_path / "plan.csv", "t,0,1\n")
    assert (tmp_path / "plan.csv").stat().st_mode & 0o777 == 0o664
    assert (tmp_path / "plan.csv.tmp").read_text() == "the user's own"


def test_a_file_that_is_not_readable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"t,0,\xe9")
    with pytest.raises(InvalidArgumentError, match="latin is not UTF-8: byte 4"):
        read(tmp_path / "latin")
    with pytest.raises(InvalidArgumentError, match=r"there is no file .*missing; export a group"):
        read(tmp_path / "missing")
    with pytest.raises(StorageFailedError):
        write(tmp_path / "missing" / "plan.csv", "")


@pytest.mark.parametrize("path", ["", ".", "/", 5, None, b"plan.csv", "a\0b"], ids=repr)
def test_a_value_that_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is not (a path|the path of a file)"):
        read(path)


def test_a_directory_is_not_replaced_by_a_file_and_a_link_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgumentError, match="is not a regular file"):
        write(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for text in ("one", "two"):
        write(tmp_path / "link", text)
        assert ((tmp_path / "link").is_symlink(), (tmp_path / "file").read_text()) == (True, text)
