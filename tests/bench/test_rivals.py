"""The others do the work that they are measured at: what they were given is there, all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import columns, databases
from benchmarks.data import pairs_of, plain_rows

ROWS = plain_rows(0, 2_500)  # more than two transactions
PAIRS = pairs_of(ROWS)


@pytest.mark.parametrize("kind", databases.ALL, ids=lambda kind: kind.__name__)
def test_a_database_gives_back_every_record(kind: type[databases.Database], tmp_path: Path) -> None:
    some = PAIRS[:100] if kind is databases.PersistQueue else PAIRS  # it syncs each record
    database = kind(tmp_path / "data")
    database.write(some)
    assert database.scan() == len(some)
    database.close()


@pytest.mark.parametrize("kind", databases.BY_NUMBER, ids=lambda kind: kind.__name__)
def test_a_database_finds_a_record_by_its_number(kind: type[databases.Lookup], tmp_path: Path) -> None:
    database = kind(tmp_path / "data")
    database.write(PAIRS)
    for number in (0, 999, 1_000, 2_499):
        found = database.get(number)
        key, value = PAIRS[number]
        assert found == key + value or found[2:] == (key, value)  # type: ignore[index]
    database.close()


@pytest.mark.parametrize("form", columns.ALL, ids=lambda form: form.__name__)
def test_a_file_of_columns_gives_back_every_row(form: type[columns.Parquet | columns.ArrowFile], tmp_path: Path) -> None:
    file = form(tmp_path / "file")
    file.write([ROWS, ROWS])
    assert file.scan() == 2 * len(ROWS)
