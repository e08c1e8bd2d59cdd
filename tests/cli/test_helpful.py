"""A command line that is nearly right is answered with the right one, and an empty result says that it is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from support.cli import call


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["creat"], 2, "unknown command creat; did you mean create? All: pylog --help"),
        (["xyz"], 2, "unknown command xyz; all: pylog --help"),
        (["groups", "lst"], 2, "unknown command lst; did you mean list? All: pylog groups --help"),
        (["config", "SHOP", "orders", "retention.ms=5"], 2, "give options as --set retention.ms=5"),
        (["create", "SHOP", "new", "retention.ms=5"], 2, "give options as --config retention.ms=5"),
        (["describe", "SHOP", "orders", "more"], 2, "unexpected more; see `pylog COMMAND --help`"),
        (["config", "SHOP", "orders", "--set", "retenton.ms=5"], 2, "'retenton.ms'; did you mean retention.ms?"),
        (["cat", "orders"], 2, "TOPIC is missing: pylog cat STORE TOPIC ('orders' was taken as STORE)"),
        (["cat"], 2, "STORE is missing: pylog cat STORE TOPIC"),
        (["groups", "describe", "SHOP", "no"], 1, "; list them: pylog groups list SHOP"),
        (["groups", "delete", "SHOP", "no", "--yes"], 1, "; list them: pylog groups list SHOP"),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_right_one(shop: Path, arguments: list[str], code: int, told: str) -> None:
    done = call(*[str(shop) if each == "SHOP" else each for each in arguments])
    assert (done.code, done.output) == (code, b"")
    assert done.complaints.splitlines()[-1].endswith(told.replace("SHOP", str(shop)))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["topics"], "no topics"),
        (["groups", "list"], "no consumer groups"),
        (["groups", "list", "--state"], "no consumer groups"),
        (["groups", "describe"], "no consumer groups"),
    ],
)
def test_an_empty_result_says_on_stderr_that_it_is_empty(tmp_path: Path, arguments: list[str], what: str) -> None:
    with pylog.open(tmp_path / "empty"):
        pass
    assert call(*arguments, tmp_path / "empty") == (0, b"", f"pylog: {what} in {tmp_path / 'empty'}\n")


def test_a_topic_is_created_with_a_line_that_says_when_its_records_will_be_deleted(tmp_path: Path) -> None:
    done = call("create", tmp_path / "new", "orders")
    assert done.output == b"Created topic orders with 1 partition.\n"
    advice = f"pylog config {tmp_path / 'new'} orders --set retention.ms=-1"
    assert done.complaints == f"pylog: records are deleted after 7 days; to keep all: {advice}\n"
