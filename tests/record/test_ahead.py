"""Working one step ahead changes nothing about what comes, whether threads can begin or not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pylog.record.ahead import one_ahead


@pytest.mark.parametrize("allowed", [0, 1, 2, 3, 4, 5])
def test_nothing_is_lost_when_the_interpreter_ends_and_no_thread_begins_any_more(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    submit, calls = ThreadPoolExecutor.submit, []

    def refuse(self: ThreadPoolExecutor, *given: object) -> object:
        calls.append(given)
        if len(calls) > allowed:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        return submit(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with one_ahead(iter("abc")) as letters:
        assert list(letters) == ["a", "b", "c"]


def test_an_error_comes_where_the_item_would() -> None:
    def items():
        yield 1
        raise ZeroDivisionError

    with one_ahead(items()) as numbers:
        assert next(numbers) == 1
        with pytest.raises(ZeroDivisionError):
            next(numbers)
