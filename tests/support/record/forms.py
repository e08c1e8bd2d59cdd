"""Runs tests of kernels on one of their two forms: compiled code, or plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pylog.record.kernel import INTERPRETED, KERNELS, WORK

FORMS = ["interpreted"] if INTERPRETED else ["compiled", "python"]


@contextmanager
def form(name: str) -> Iterator[None]:
    """Lets all kernels use one form: `compiled` or `python`."""
    before = WORK.choice, [each._compiled for each in KERNELS]
    WORK.choice = name
    if name == "python":
        for each in KERNELS:
            each._compiled = None
    try:
        yield
    finally:
        WORK.choice = before[0]
        for each, compiled in zip(KERNELS, before[1], strict=True):
            each._compiled = each._compiled or compiled


@pytest.fixture(scope="module", params=FORMS)
def each_form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test on each form: `pytestmark = pytest.mark.usefixtures("each_form")`."""
    with form(request.param):
        yield request.param
