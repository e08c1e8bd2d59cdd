"""Each public method is right next to a writer that rolls, trims, truncates, compacts and alters options."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import pylog
from support.campaign.beside import CONSUMER, LOG, STORE, Read, read_beside
from support.campaign.beside_calls import FUNCTIONS, ROWS

SECONDS = 4.0
API = Path(__file__).parents[1] / "api.txt"
OF_VALUES = {  # what has no files: values, errors, options, what a program implements, and the tools for tests
    *(
        "BatchMetadata",
        "ConsumerGroupMetadata",
        "ConsumerRebalanceListener",
        "Durability",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "OffsetsConfig",
    ),
    *("ProducerBatch", "ProducerConfig", "Record", "RecordMetadata", "Snapshot", "Topic", "TopicConfig", "TopicPartition"),
    *("BatchBuilder", "TransactionsConfig", "KafkaTier"),
}


@pytest.mark.parametrize(("of", "table"), [(pylog.Log, LOG), (pylog.Store, STORE), (pylog.Consumer, CONSUMER)])
def test_each_public_method_is_read_beside_a_writer_or_has_a_reason_not_to_be(of: type, table: dict[str, Read | str]) -> None:
    """A new method needs an entry in tests/support/campaign/beside.py."""
    assert set(table) == {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


def named(of: type) -> set[str]:
    """The public methods and properties of a class."""
    return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


@pytest.mark.parametrize("of", ROWS)
def test_each_public_method_has_a_row_or_a_reason_in_the_matrix(of: type) -> None:
    """A new method needs an entry in tests/support/campaign/beside_calls.py."""
    assert set(ROWS[of]) == named(of)


def test_each_public_class_and_function_is_in_the_matrix_or_has_no_files() -> None:
    """A new one joins `ROWS` or `FUNCTIONS` in tests/support/campaign/beside_calls.py, or `OF_VALUES` here."""
    lines = [line for line in API.read_text("utf-8").splitlines() if not re.match(r"pylog\.(testing|fs)\.", line)]
    names = [re.sub(r"^pylog\.(aio\.)?", "", re.split(r"[(: ]", line, maxsplit=1)[0]) for line in lines]
    outermost = {name.partition(".")[0] for name in names if name and not name.startswith("pylog")}
    errors = {name for name in outermost if name.endswith("Error")}
    assert outermost - errors - OF_VALUES == {of.__name__ for of in ROWS} | set(FUNCTIONS)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this process", "in another process"])
@pytest.mark.pair("scan and follow", "roll", "compaction", "truncation", "delete_records", "second process")
@pytest.mark.pair("time search", "roll", "compaction", "truncation", "second process")
def test_every_way_to_read_is_right_beside_a_writer(tmp_path: Path, elsewhere: bool) -> None:
    done = read_beside(tmp_path, 1, SECONDS, elsewhere=elsewhere)
    assert not done["violations"], done["violations"][0]
    assert done["calls"] > 100
