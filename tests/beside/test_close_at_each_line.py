"""Another thread closes the store at any line of each public call: the answer or ClosedError, and nothing acknowledged is lost.

Once `close` waits for the calls that use files, as it does for ten seconds; once it waits for none, and all is closed under them.
"""

from __future__ import annotations

import inspect
import random
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

import pylog
from pylog import aio
from support.faults import closing

LINES = 2  # of each call, in the fast form
CLASSES = (
    pylog.Log,
    pylog.Store,
    pylog.Consumer,
    pylog.Producer,
    pylog.OffsetStore,
    pylog.Group,
    pylog.Transaction,
    pylog.TransactionAdmin,
    aio.AsyncConsumer,
    aio.AsyncProducer,
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store"
    closing.make(path)
    return path


@pytest.mark.sampled(80)
@pytest.mark.parametrize("patient", [True, False], ids=["patient", "impatient"])
@pytest.mark.parametrize("name", closing.CALLS)
@pytest.mark.pair("close", "option change", "groups", "scan and follow", "time search")
def test_a_close_at_any_line_of_a_call_gives_its_answer_or_closed_error(
    template: Path, tmp_path: Path, name: str, patient: bool
) -> None:
    lines = closing.count_lines(template, tmp_path / "count", name)
    chosen = random.Random(name).sample(range(1, lines + 1), min(LINES, lines))
    with nullcontext() if patient else closing.without_patience():
        found = [closing.closed_at(template, tmp_path / str(line), name, line) for line in chosen]
    assert not any(found), found


def test_each_public_method_is_closed_under() -> None:
    """A new method needs a call in tests/support/faults/closing.py."""
    called = set(re.findall(r"\.(\w+)\b", Path(closing.__file__).read_text("utf-8")))
    for of in CLASSES:
        assert {name for name, _ in inspect.getmembers(of) if not name.startswith("_")} <= called, of
