"""`SkipList` against a sorted map, step by step, and under readers that run while it changes."""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sortedcontainers import SortedDict

from pylog.errors import InvalidArgumentError
from pylog.index import skiplist
from pylog.index.skiplist import SkipList
from pylog.limits import INT64_MAX

EDGES = [-INT64_MAX - 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX]
keys = st.integers(0, 60) | st.sampled_from(EDGES)


def item(model: Any, index: int) -> tuple[int, int] | None:
    return model.peekitem(index) if 0 <= index < len(model) else None


class SkipListMachine(RuleBasedStateMachine):
    """A skip list does what a SortedDict does."""

    def __init__(self) -> None:
        super().__init__()
        self.list = SkipList[int]()
        self.model: Any = SortedDict()

    @rule(key=keys, value=st.integers())
    def insert(self, key: int, value: int) -> None:
        if key in self.model:
            with pytest.raises(InvalidArgumentError, match="already"):
                self.list.insert(key, value)
        else:
            self.list.insert(key, value)
            self.model[key] = value

    @rule(start=st.integers(-100, 0), count=st.integers(1, 30))
    def insert_many(self, start: int, count: int) -> None:
        for key in range(start * 100, start * 100 + count):
            if key not in self.model:
                self.insert(key, key)

    @rule(key=keys)
    def remove(self, key: int) -> None:
        if key in self.model:
            assert self.list.remove(key) == self.model.pop(key)
        else:
            with pytest.raises(InvalidArgumentError, match="not in the list"):
                self.list.remove(key)

    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        if self.model:
            self.remove(data.draw(st.sampled_from(list(self.model))))

    @rule(key=keys | st.integers(-10_001, 100))
    def search(self, key: int) -> None:
        assert self.list.floor(key) == item(self.model, self.model.bisect_right(key) - 1)

    @rule()
    def iterate(self) -> None:
        assert list(self.list) == list(self.model.items())

    @invariant()
    def the_same_size_and_ends(self) -> None:
        assert len(self.list) == len(self.model)
        assert self.list.last == item(self.model, len(self.model) - 1)
        self.list.check()


TestSkipList = pytest.mark.slow(SkipListMachine.TestCase)
TestSkipList.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.sets(st.integers(-50, 50)), st.integers(-60, 60))
def test_a_list_made_of_sorted_items_is_searched_like_one_that_grew(known: set[int], key: int) -> None:
    made = SkipList([(each, str(each)) for each in sorted(known)])
    made.check()
    below = [each for each in known if each <= key]
    assert made.floor(key) == ((max(below), str(max(below))) if below else None)
    assert [each for each, _ in made] == sorted(known)


def test_items_out_of_order_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="rising order"):
        SkipList([(1, "a"), (1, "b")])


@pytest.mark.slow
def test_values_that_are_false_or_none_are_values() -> None:
    made = SkipList[object]([(0, None), (1, 0)])
    assert (made.floor(0), made.floor(1), made.remove(0)) == ((0, None), (1, 0), None)


def test_a_removed_value_is_let_go_at_once() -> None:
    class Value:
        pass

    made = SkipList([(0, Value()), (1, Value())])
    kept = [weakref.ref(value) for _, value in made]
    made.remove(0)
    assert [each() is None for each in kept] == [True, False]


def test_the_same_history_makes_the_same_levels() -> None:
    made = [SkipList[int](), SkipList[int]()]
    for each in made:
        for key in range(200):
            each.insert(key * 7919 % 200, key)
    assert levels_of(made[0]) == levels_of(made[1])


def levels_of(made: SkipList[int]) -> list[tuple[int, int]]:
    """The keys, each with the number of its node's levels."""
    return [(node.key, len(node.links)) for node in made._nodes(0)]


@pytest.mark.parametrize("order", ["rising", "falling", "alternating", "shuffled"])
def test_a_search_takes_few_steps_whatever_the_order_of_insertion(order: str) -> None:
    count = 4000
    keys_of = {
        "rising": list(range(count)),
        "falling": list(range(count, 0, -1)),
        "alternating": [key for each in range(count // 2) for key in (each, 10**6 + each)],
        "shuffled": random.Random(1).sample(range(count), count),
    }
    made = SkipList[int]()
    for key in keys_of[order]:
        made.insert(key, key)
    taken = [steps(made, key) for key in keys_of[order]]
    assert max(taken) < 150
    assert sum(taken) / count < 36


def steps(made: SkipList[int], key: int) -> int:
    """How many links a search follows: the same walk as the list's."""
    node, count = made._head, 0
    for level in reversed(range(len(node.links))):
        while (following := node.links[level]) is not None and following.key <= key:
            node, count = following, count + 1
    return count


class Turns:
    """Two functions on two threads, one running at a time; around each load and store of a link the draw says which."""

    def __init__(self, seed: int, how_often: float) -> None:
        self.draw = random.Random(seed)
        self.how_often = how_often
        self.turn = [threading.Semaphore(0), threading.Semaphore(0)]
        self.alive = [True, True]
        self.errors: list[BaseException] = []
        self.current = threading.local()

    def step(self) -> None:
        me = getattr(self.current, "number", None)
        if me is not None and self.alive[1 - me] and self.draw.random() < self.how_often:
            self.turn[1 - me].release()
            self.turn[me].acquire()

    def run(self, *functions: Any) -> None:
        threads = [threading.Thread(target=self.body, args=(me, function)) for me, function in enumerate(functions)]
        for thread in threads:
            thread.start()
        self.turn[0].release()
        for thread in threads:
            thread.join()
        for error in self.errors:
            raise error

    def body(self, me: int, function: Any) -> None:
        self.current.number = me
        self.turn[me].acquire()
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again where it is seen
            self.errors.append(error)
        self.alive[me] = False
        self.turn[1 - me].release()

    def nodes(self) -> Any:
        """A class of nodes whose links let the other thread run before and after each load and store."""
        step = self.step

        class Links(list[Any]):
            def __getitem__(self, level: Any) -> Any:
                step()
                found = super().__getitem__(level)
                step()
                return found

            def __setitem__(self, level: Any, node: Any) -> None:
                step()
                super().__setitem__(level, node)
                step()

        class Node(skiplist._Node[int]):
            def __init__(self, key: int, value: int, levels: int) -> None:
                super().__init__(key, value, levels)
                self.links = Links(self.links)

        return Node


def floor_of(state: Any, key: int) -> tuple[int, int] | None:
    """What a search of a sorted map answers."""
    return item(state, state.bisect_right(key) - 1)


def follow_writer(made: SkipList[int], states: list[Any], finished: list[int], changes: list[int]) -> None:
    """Inserts each key, or removes one that is in the list. `states` has each outcome before the change, `finished` each end."""
    for number, key in enumerate(changes, start=1):
        after = states[-1].copy()
        if key in after:
            del after[key]
        else:
            after[key] = number
        states.append(after)
        if key not in states[-2]:
            made.insert(key, number)
        else:
            made.remove(key)
        finished.append(number)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.sets(st.integers(0, 9)),
    st.lists(st.integers(0, 9), min_size=5, max_size=30),
    st.lists(st.integers(-1, 10), min_size=1, max_size=12),
    st.integers(0, 2**32),
    st.sampled_from([0.02, 0.1, 0.5]),
)
def test_however_reader_and_writer_interleave_answers_are_right_at_moments_that_follow_each_other(
    known: set[int], changes: list[int], searches: list[int], seed: int, how_often: float
) -> None:
    states: list[Any] = [SortedDict(dict.fromkeys(known, 0))]
    finished = [0]
    turns = Turns(seed, how_often)

    def read() -> None:
        moment = 0  # the earliest state that all answers so far allow: they must not go back in time either
        for key in searches:
            moment = max(moment, finished[-1])
            found = made.floor(key)
            right = [number for number in range(moment, len(states)) if floor_of(states[number], key) == found]
            assert right, (key, found)
            moment = right[0]

    with mock.patch.object(skiplist, "_Node", turns.nodes()):
        made = SkipList([(key, 0) for key in sorted(known)])
        turns.run(read, lambda: follow_writer(made, states, finished, changes))
    made.check()


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Python threads change places after microseconds, not milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_switches")
def test_readers_on_other_threads_see_only_what_was_right_during_their_call() -> None:
    made = SkipList([(0, 0), (100, 0)])
    states: list[Any] = [SortedDict({0: 0, 100: 0})]
    finished = [0]
    wrong: list[object] = []
    reads = [0, 0, 0]
    rng = random.Random(7)
    changes = [rng.randrange(1, 40) for _ in range(3000)]

    def read(reader: int) -> None:
        keys = random.Random(reader)
        while finished[-1] < len(changes):
            key = keys.randrange(1, 40)
            begun = finished[-1]
            found = made.floor(key)
            if found not in [floor_of(state, key) for state in states[begun:]]:
                wrong.append((key, found))
            reads[reader] += 1

    readers = [threading.Thread(target=read, args=(reader,)) for reader in range(3)]
    for thread in readers:
        thread.start()
    follow_writer(made, states, finished, changes)
    for thread in readers:
        thread.join()
    made.check()
    assert wrong == []
    assert list(made) == list(states[-1].items())
    assert min(reads) > 0
