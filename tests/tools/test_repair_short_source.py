"""A repair whose source is shorter than it was when the plan was made ends in an error."""

from __future__ import annotations

import pytest

from pylog.errors import StorageFailedError
from pylog.testing import MemoryFileSystem
from pylog.tools.pieces import KeptBytes
from pylog.tools.repair import _copy


def test_a_source_that_is_shorter_than_planned_is_an_error_and_no_endless_loop() -> None:
    fs = MemoryFileSystem()
    source, target = fs.create("/source"), fs.create("/target")
    source.write(memoryview(b"x" * 10), 0)
    with pytest.raises(StorageFailedError, match="ends at position 10"):
        _copy(source, KeptBytes(4, 100), target, 0)
    _copy(source, KeptBytes(4, 10), target, 0)
    assert target.size() == 6
