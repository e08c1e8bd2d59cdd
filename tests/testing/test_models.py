"""The model of a log promises what the log's own promises say, and notices each way of breaking them."""

from __future__ import annotations

import pytest

from pylog.testing.models import POWER_LOSS, PROCESS_DEATH, Found, LogModel, Promise

BOTH = (PROCESS_DEATH, POWER_LOSS)


def model_of(durable: str, volatile: str = "", unacknowledged: str = "") -> LogModel:
    """A log with some records of each kind, one a letter."""
    model = LogModel()
    model.append(list(durable))
    model.acknowledge(durable=True)
    model.append(list(volatile))
    model.acknowledge(durable=False)
    model.append(list(unacknowledged))
    return model


def ok(model: LogModel, found: str, after: str, start: int = 0) -> bool:
    return not model.promise.problems(Found(start, tuple(found)), after)


def accepted(model: LogModel, after: str, longest: str) -> list[str]:
    """Which prefixes of a log are legal."""
    return [longest[:size] for size in range(len(longest) + 1) if ok(model, longest[:size], after)]


def test_promised_records_depend_on_the_level_and_on_the_kind_of_crash() -> None:
    model = model_of("ab", "cd", "ef")
    assert accepted(model, PROCESS_DEATH, "abcdef") == ["abcd", "abcde", "abcdef"]
    assert accepted(model, POWER_LOSS, "abcdef") == ["ab", "abc", "abcd", "abcde", "abcdef"]


def test_a_flush_makes_durable_what_lies_before_its_end() -> None:
    model = model_of("a", "bcd")
    model.flushed(3)
    assert accepted(model, POWER_LOSS, "abcd") == ["abc", "abcd"]
    model.flushed(1)
    assert accepted(model, POWER_LOSS, "abcd") == ["abc", "abcd"]


@pytest.mark.parametrize("found", ["axc", "acb", "abcx", "bc", "aabc"])
def test_records_that_were_never_appended_there_are_noticed(found: str) -> None:
    assert not ok(model_of("a", "bc"), found, POWER_LOSS)


def test_records_refused_and_cut_off_again_never_come_back() -> None:
    model = model_of("ab", "", "c")
    assert accepted(model, POWER_LOSS, "abc") == ["ab", "abc"]
    model.refused(2)
    assert accepted(model, POWER_LOSS, "abc") == ["ab"]


def test_while_a_truncation_is_under_way_every_end_beyond_it_is_legal() -> None:
    model = model_of("abcd")
    model.truncate(2)
    for after in BOTH:
        assert accepted(model, after, "abcd") == ["ab", "abc", "abcd"]
    model.truncated(2)
    for after in BOTH:
        assert accepted(model, after, "abcd") == ["ab"]
    model.append(["X"])
    assert ok(model, "abX", POWER_LOSS)
    assert not ok(model, "abc", POWER_LOSS)


def test_deleted_records_may_be_gone_once_that_is_asked_for_and_must_be_once_it_is_done() -> None:
    model = model_of("abcd")
    model.delete(2)
    assert [ok(model, "abcd"[start:], POWER_LOSS, start) for start in range(4)] == [True, True, True, False]
    model.deleted(2)
    assert [ok(model, "abcd"[start:], POWER_LOSS, start) for start in range(4)] == [False, False, True, False]


def test_a_log_whose_records_are_all_deleted_goes_on_at_its_end() -> None:
    model = model_of("abcd")
    model.delete(4)
    model.deleted(4)
    assert ok(model, "", POWER_LOSS, 4)
    assert not ok(model, "", POWER_LOSS, 0)


def test_records_seen_after_a_power_loss_stay_and_lost_ones_never_come_back() -> None:
    promise = model_of("a", "bc").promise.adopted(Found(0, ("a", "b")), POWER_LOSS)
    model = LogModel(promise)
    assert accepted(model, POWER_LOSS, "abc") == ["ab"]


def test_writes_that_a_dead_process_left_can_still_be_lost_with_the_power() -> None:
    promise = model_of("a", "bc").promise.adopted(Found(0, ("a", "b", "c")), PROCESS_DEATH)
    model = LogModel(promise)
    assert accepted(model, PROCESS_DEATH, "abc") == ["abc"]
    assert accepted(model, POWER_LOSS, "abc") == ["a", "ab", "abc"]


def test_after_a_power_loss_only_what_survives_one_is_promised() -> None:
    model = LogModel(model_of("a", "bc").promise.after(POWER_LOSS))
    assert accepted(model, PROCESS_DEATH, "abc") == ["a", "ab", "abc"]
    assert model_of("a", "b").promise.after(PROCESS_DEATH) == model_of("a", "b").promise


def test_problems_are_sentences_that_name_offsets() -> None:
    promise = Promise(records=("a", "b"), survives_death=2)
    assert promise.problems(Found(1, ("b", "x")), PROCESS_DEATH) == [
        "the log starts at offset 1, not between 0 and 0",
        "the log ends at offset 3; no record was appended at or after offset 2",
    ]
    assert promise.problems(Found(0, ("a", "x")), PROCESS_DEATH) == ["offset 1 has another record than the one appended there"]
