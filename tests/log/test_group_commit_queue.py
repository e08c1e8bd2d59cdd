"""The queue of appends that wait for one write: who leads, who waits for whom, and who leaves."""

from __future__ import annotations

import itertools
import threading

import pytest

from pylog import Durability, limits
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError
from pylog.log.writing import requests as requests_module
from pylog.log.writing.requests import Request, Requests, append_in_turn, grouped
from support.faults.interruptions import interrupted_at_step
from support.log.group_commit import PATIENCE, request, wait_until

# ---- the queue -------------------------------------------------------------------------------------------------------------


def may_go_on(requests: list[Request]) -> list[Request]:
    """Those whose threads have been woken and have not left."""
    return [each for each in requests if not each.signal.locked() and not each.left]


def test_the_first_one_leads_and_the_oldest_that_waits_leads_next_when_all_others_have_gone_on() -> None:
    requests = Requests(ManualClock())
    first, second, third = (request() for _ in range(3))
    assert [requests.add(each) for each in (first, second, third)] == [True, False, False]
    assert requests.take() == [first, second, third]
    late, later = request(), request()
    assert not requests.add(late)
    assert not requests.add(later)
    for leaving, woken in ((first, second), (second, third), (third, late)):
        requests.leave(leaving)
        assert may_go_on([second, third, late, later]) == [woken]
    assert not requests.add(request())  # it leads
    assert requests.take()[:2] == [late, later]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_thread_that_comes_back_while_others_are_woken_waits_for_them_and_then_leads_them_all(count: int) -> None:
    """Alone it would sync for itself, and they would wait behind it: every other sync would be one append's."""
    requests = Requests(ManualClock())
    group = [request() for _ in range(count)]
    for each in group:
        requests.add(each)
    requests.take()
    settle(group)
    back: list[Request] = []
    for leaving in group:
        requests.leave(leaving)
        assert may_go_on(back) == back[:1] * (leaving is group[-1])  # the last one has left: now it is time
        back.append(request())
        assert not requests.add(back[-1])
    assert requests.may_go_on(back[0])
    assert requests.take() == back


def test_no_leader_waits_twice_for_a_thread_that_does_not_go_on() -> None:
    """It may be in a handler of signals. Who has waited as long as it takes leads without it."""
    requests = Requests(ManualClock())
    group = [request() for _ in range(2)]
    for each in group:
        requests.add(each)
    requests.take()
    settle(group)
    requests.leave(group[0])
    first = request()
    assert not requests.add(first)
    assert requests.may_go_on(first)  # it looks by itself after a while
    assert requests.take() == [first]
    settle([first])
    requests.leave(first)
    assert requests.add(request())


def settle(group: list[Request]) -> None:
    for each in group:
        each.acknowledge(range(1), Durability.SYNC)


def time_to_append(requests: Requests, clock: ManualClock) -> float:
    """The milliseconds that a new thread waits before it commits, if it may lead at once."""
    before = clock.monotonic()
    append_in_turn(requests, request(), threading.RLock(), settle)
    return round(1000 * (clock.monotonic() - before), 6)


def behind_a_commit_of_two(took_ms: float) -> tuple[Requests, ManualClock]:
    """Requests that two threads have just left, and their clock."""
    clock = ManualClock()
    requests = Requests(clock)
    both = [request(), request()]
    for each in both:
        requests.add(each)
    requests.take()
    clock.sleep(took_ms / 1000)
    for each in both:
        requests.leave(each)
    return requests, clock


@pytest.mark.parametrize(("took_ms", "given_ms"), [(0.9, 0), (1, 0.1), (10, 1), (5_000, 2)])
def test_after_a_slow_commit_of_several_threads_the_next_leader_gives_them_time_to_come_back(
    took_ms: float, given_ms: float
) -> None:
    requests, clock = behind_a_commit_of_two(took_ms)
    assert time_to_append(requests, clock) == given_ms
    assert time_to_append(requests, clock) == 0  # behind one that was alone


def test_a_thread_that_waited_alone_gives_time_to_the_leader_before_it() -> None:
    clock = ManualClock()
    requests = Requests(clock)
    leader = request()
    requests.add(leader)
    requests.take()
    waiting = threading.Thread(target=append_in_turn, args=(requests, request(), threading.RLock(), settle))
    waiting.start()
    wait_until(lambda: len(requests._waiting) == 1)
    clock.sleep(0.01)
    before = clock.monotonic()
    requests.leave(leader)
    waiting.join(PATIENCE)
    assert clock.monotonic() - before == pytest.approx(0.001)


def test_no_leader_waits_for_threads_that_have_been_away_for_long() -> None:
    requests, clock = behind_a_commit_of_two(10)
    clock.sleep(0.0015)
    assert time_to_append(requests, clock) == 0


def test_a_thread_that_stops_waiting_is_passed_over_when_the_others_are_woken() -> None:
    requests = Requests(ManualClock())
    leader, *others = [request() for _ in range(5)]
    for each in (leader, *others):
        requests.add(each)
    requests.take()
    late = request()
    requests.add(late)
    requests.leave(others[0])  # interrupted while it waited
    requests.leave(leader)
    assert may_go_on([*others, late]) == [others[1]]
    requests.leave(others[2])  # interrupted too: it wakes one more, which hurts nobody
    assert may_go_on([*others, late]) == [others[1], others[3]]
    requests.leave(others[3])
    requests.leave(others[1])
    assert may_go_on([late]) == [late]


@pytest.mark.parametrize("who", [0, 2], ids=["the leader", "one that it has written for"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "and its second attempt"])
def test_wherever_one_is_interrupted_as_it_leaves_all_others_are_woken(who: int, again: bool) -> None:
    for number in itertools.count(1):
        requests = Requests(ManualClock())
        waiting = [request() for _ in range(4)]
        for each in waiting:
            requests.add(each)
        requests.take()
        late = [request() for _ in range(2)]
        for each in late:
            requests.add(each)
        if who:
            requests.leave(waiting[0])
            requests.leave(waiting[1])
        came = interrupted_at_step(number, lambda: requests.leave(waiting[who]), requests_module.__file__)  # noqa: B023 - called at once
        if again:
            interrupted_at_step(number // 2 + 1, lambda: requests.leave(waiting[who]), requests_module.__file__)  # noqa: B023
        assert not requests._guard.locked()
        requests.leave(waiting[who])
        left = [each for each in (*waiting, *late[:1]) if not each.left]
        while woken := may_go_on(left):
            for each in woken:
                requests.leave(each)
        assert [each.left for each in (*waiting, *late[:1])] == [True] * 5
        assert may_go_on(late[1:]) == late[1:]  # it leads, because the one before has left without taking anything
        if not came:
            break
    assert number > 4


def test_wherever_one_that_is_alone_is_interrupted_the_next_one_leads() -> None:
    for number in itertools.count(1):
        requests, lock = Requests(ManualClock()), threading.RLock()
        came = interrupted_at_step(number, lambda: append_in_turn(requests, request(), lock, settle), requests_module.__file__)  # noqa: B023
        assert not requests._guard.locked()
        assert requests._leader is None
        append_in_turn(requests, following := request(), lock, settle)
        assert following.done
        if not came:
            break
    assert number > 10


def test_a_group_is_not_larger_than_one_write_but_one_request_may_be() -> None:
    requests = Requests(ManualClock())
    sizes = [limits.APPEND_CHUNK_BYTES // 2, limits.APPEND_CHUNK_BYTES // 2, 1, 10 * limits.APPEND_CHUNK_BYTES, 1]
    waiting = [request(size) for size in sizes]
    for each in waiting:
        requests.add(each)
    assert [requests.take() for _ in range(4)] == [waiting[:2], waiting[2:3], waiting[3:4], waiting[4:]]


def test_a_thread_that_has_left_is_neither_committed_nor_made_leader() -> None:
    requests = Requests(ManualClock())
    first, second, third = (request() for _ in range(3))
    for each in (first, second, third):
        requests.add(each)
    requests.leave(second)
    requests.leave(first)
    third.wait()
    assert requests.take() == [third]


def test_a_group_acknowledges_what_lies_below_the_logs_end_and_refuses_the_rest() -> None:
    """A roll publishes what the old segment holds, so the first ones of a group that fails may be in the log."""
    first, second = request(), request()
    group = grouped([first, second], 10)
    assert group.end_offset == 12
    error = StorageFailedError("cannot write, for a test")
    group.settle(11, error)
    assert first.result().offsets == range(10, 11)
    with pytest.raises(StorageFailedError):
        second.result()
