"""Lock files that are removed between any two system calls of opening or closing a store: no second writer gets in by that."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
from pylog.fs import OsFileSystem
from support.faults.lock_steps import REMOVED, SteppingFileSystem, openers, remove, walk

MOST_STEPS = 200


@pytest.mark.parametrize("names", REMOVED, ids="+".join)
@pytest.mark.parametrize("modes", ["ss", "sx", "xs", "xx"])
def test_another_opener_that_comes_at_any_step_after_a_removal_is_in_only_with_the_same_file(
    tmp_path: Path, modes: str, names: tuple[str, ...]
) -> None:
    """The first one stops before each of its steps; the files are removed; the second one opens; the first one goes on."""
    for stop in itertools.count(1):
        (root := tmp_path / str(stop)).mkdir()
        with openers(root, modes) as (first, second):
            first.advance(stop)
            ended = first.is_over
            remove(root, names, again=stop % 2 == 0)
            second.advance()
        if ended:
            break
        assert stop < MOST_STEPS
    assert stop > 10


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("directory_locks", [True, False], ids=["flock", "without flock"])
def test_openers_that_stop_anywhere_while_lock_files_go_are_in_only_with_the_same_file(
    tmp_path: Path, directory_locks: bool, number: int
) -> None:
    for seed in range(100 * number, 100 * number + 100):
        (root := tmp_path / str(seed)).mkdir()
        walk(root, seed, directory_locks=directory_locks)


def test_two_openers_that_wait_for_a_writer_with_a_removed_file_do_not_take_each_other_for_it(tmp_path: Path) -> None:
    for stop in itertools.count(1):
        with openers(tmp_path, "sss") as (writer, one, two):
            writer.advance()
            remove(tmp_path, (PYLOG_LOCK,))
            one.advance(stop)
            ended = one.is_over
            two.advance()
        if ended:
            return


# ---- whole stores --------------------------------------------------------------------------------------------------------------


class _At:
    """Runs an action before the call of a number; 0 for never."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        self.left = number
        self._action = action

    def __call__(self, _name: str) -> None:
        self.left -= 1
        if self.left == 0:
            self._action()

    def ended(self) -> bool:
        """Ends the counting. Returns whether the call came."""
        came, self.left = self.left <= 0, 0
        return came


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "s", durability=Durability.OS) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 3)
    return tmp_path / "s"


def _opened(path: Path, **options: Any) -> pylog.Store | None:
    try:
        return pylog.open(path, durability=Durability.OS, lock_timeout_ms=10, **options)
    except pylog.StoreLockedError:
        return None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", REMOVED, ids="+".join)
@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.pair("second process", "crash")
def test_stores_of_which_one_opens_in_the_middle_of_the_others_opening_append_one_after_the_other(
    root: Path, names: tuple[str, ...], mode: str
) -> None:
    for number in itertools.count(1):
        writers: list[pylog.Store | None] = []

        def come(writers: list[pylog.Store | None] = writers) -> None:
            remove(root, names)
            writers.append(_opened(root))

        at = _At(number, come)
        opened = _opened(root, fs=SteppingFileSystem(at), mode=mode)
        came = at.ended()
        writers += [opened] * (mode == "rw")
        if not any(writers):  # each was in the other's way for its whole timeout
            writers.append(pylog.open(root, durability=Durability.OS))
        inside = [store for store in writers if store is not None]
        end = inside[0].log("t").end_offset
        given = [store.log("t").append(b"y") for store in inside * 2]
        assert given == list(range(end, end + len(given)))
        for store in {*inside, *filter(None, [opened])}:
            assert store.log("t").end_offset == end + len(given)
            store.close()
        if not came:
            break
    with pylog.open(root) as again:
        assert again.verify().ok
    assert number > 4


@pytest.mark.sampled(3)
@pytest.mark.parametrize("names", REMOVED, ids="+".join)
def test_a_store_that_opens_in_the_middle_of_the_others_close_loses_nothing(root: Path, names: tuple[str, ...]) -> None:
    for number in itertools.count(1):
        others: list[pylog.Store | None] = []

        def come(others: list[pylog.Store | None] = others) -> None:
            remove(root, names)
            others.append(_opened(root))

        at = _At(0, come)
        store = pylog.open(root, fs=SteppingFileSystem(at), durability=Durability.OS)
        end = store.log("t").append(b"y")
        at.left = number
        store.close()
        came = at.ended()
        for other in filter(None, others):
            assert other.log("t").append(b"z") == end + 1
            other.close()
        if not came:
            break
    with pylog.open(root) as again:
        assert again.verify().ok
    assert number > 2


def test_a_check_and_the_close_of_a_store_keep_others_out_until_both_have_ended(tmp_path: Path) -> None:
    """A check that ends while the shutdown marker is written must not let another process in."""
    with openers(tmp_path, "ss") as (first, second):
        first.advance()
        assert first.locks is not None
        with first.locks.alone_meanwhile() as alone:
            assert alone
            assert first.locks.alone()
        second.advance()
        assert second.locks is None


def test_the_brokers_lock_file_is_taken_again_although_another_store_has_it_alone_for_a_moment(tmp_path: Path) -> None:
    """That moment, in which a store that opens writes its boot id, is none of a broker's."""
    with openers(tmp_path, "s") as (first,):
        first.advance()
        assert first.locks is not None
        remove(tmp_path, (KAFKA_LOCK,))
        opening = OsFileSystem().open_locks(str(tmp_path / KAFKA_LOCK))
        assert opening.try_lock(0, 0, exclusive=True)
        first.clock.napping = opening.close  # type: ignore[method-assign]
        first.locks.keep_brokers_out()
        assert OsFileSystem().lock_owner(str(tmp_path / KAFKA_LOCK)) is not None


def test_opening_reads_only_the_start_of_the_lock_file(tmp_path: Path) -> None:
    """A reserve of many partitions, or what somebody else wrote there, is not read."""
    with pylog.open(tmp_path):
        with (tmp_path / PYLOG_LOCK).open("r+b") as file:
            file.truncate(100 << 20)
        pylog.open(tmp_path).close()
        with (tmp_path / PYLOG_LOCK).open("r+b") as file:
            file.write(b"another machine's boot id")
        with pytest.raises(pylog.StoreLockedError, match="another machine"):
            pylog.open(tmp_path)
