"""`./dev pairs`: docs/PAIRS.md, the matrix of pairs of features, from the marks on the tests and on the machines' rules.

./dev pairs           writes the page
./dev pairs --print   prints it; tests/trust/test_pairs_page.py compares
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from support.trust.features import CANNOT_MEET, FEATURES, RULES, Pair, pair_of, pairs_of

TESTS: Final = Path(__file__).resolve().parents[2]
OWN: Final = (TESTS / "trust", Path(__file__).parent)  # these speak of marks without having any
PAGE: Final = TESTS.parent / "docs" / "PAIRS.md"
MARKED: Final = re.compile(r"mark\.pair\(|^ *@covers\(", re.MULTILINE)  # a file without one has nothing to say
HEAD: Final = """# The matrix of pairs

Most faults of a store are not in one feature. They are where two features meet. So each pair of features has a test, or a rule
of a state machine, that combines the two and compares the result with a model. This page names them.

`./dev pairs` generates this page from the marks on the tests (`@pytest.mark.pair("roll", "time search")`) and on the rules of the
machines (`@covers(("roll", "time search"))`). A test compares this page with the marks, and fails if nothing covers a pair.

## All pairs

The numbers say how many tests and rules cover a pair. The sections below name them.

"""

Cover = Mapping[Pair, set[str]]


class CollectionError(Exception):
    """The tests could not be collected, or a mark is on something that is never run."""


class _Collected:
    """What pytest collects."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def covered() -> dict[Pair, set[str]]:
    """Returns each pair with the tests and rules that cover it.

    Raises:
        CollectionError: a file cannot be collected, or a rule is not one of its machine.
    """
    found: defaultdict[Pair, set[str]] = defaultdict(set)
    files = sorted(path for path in TESTS.rglob("*.py") if path.parent not in OWN or path.name.startswith("test_pairs"))
    marked = [path for path in files if MARKED.search(path.read_text())]
    for item in _collected([path for path in marked if path.name.startswith("test_")]):
        for mark in item.iter_markers("pair"):
            for pair in pairs_of(*mark.args):
                found[pair].add(_named(item, mark))
    for path in marked:
        if not path.name.startswith("test_"):
            importlib.import_module(".".join(path.relative_to(TESTS).with_suffix("").parts))
    for name, pairs in RULES.items():
        for pair in pairs:
            found[pair].add(_rule(name))
    return dict(found)


def _named(item: pytest.Item, mark: pytest.Mark) -> str:
    """The test that a mark is on; with its parameters, if it is theirs."""
    function = getattr(item, "function", None)
    whole = mark in [*getattr(function, "pytestmark", ()), *getattr(getattr(item, "cls", None), "pytestmark", ())]
    return item.nodeid.partition("[")[0] if whole else item.nodeid


def _collected(files: list[Path]) -> list[pytest.Item]:
    plugin, printed = _Collected(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *map(str, files)], plugins=[plugin])
    if code != pytest.ExitCode.OK:
        raise CollectionError(printed.getvalue()[-3000:])
    return plugin.items


def _rule(name: str) -> str:
    """A rule as the page names it: where it is, and that its machine has it."""
    from hypothesis import stateful  # pytest's plugin of Hypothesis complains if it is imported before

    module_name, _, place = name.partition(":")
    machine_name, _, method = place.partition(".")
    module = importlib.import_module(module_name)
    machine = getattr(module, machine_name)
    if not issubclass(machine, stateful.RuleBasedStateMachine):
        raise CollectionError(f"{name}: `covers` is for rules of state machines; a test has the mark `pair`")
    if not vars(getattr(machine, method)).keys() & {
        stateful.RULE_MARKER,
        stateful.INITIALIZE_RULE_MARKER,
        stateful.INVARIANT_MARKER,
    }:
        raise CollectionError(f"{name} is no rule of {machine_name}")
    assert module.__file__ is not None
    file = Path(module.__file__).resolve().relative_to(TESTS.parent)  # a module's name may begin with "tests" or not
    return f"{file.as_posix()}::{machine_name}.{method} (rule)"


def empty(cover: Cover) -> list[Pair]:
    """Returns the pairs that nothing covers and that no reason excuses."""
    return [pair for pair in itertools.combinations(FEATURES, 2) if pair not in cover and pair not in CANNOT_MEET]


def excused_in_vain(cover: Cover) -> list[Pair]:
    """Returns the pairs that have a reason not to meet, and a test in which they do."""
    return [pair for pair in CANNOT_MEET if pair in cover]


def page(cover: Cover) -> str:
    """Returns docs/PAIRS.md."""
    sections = "".join(f"\n## {feature}\n\n{''.join(_section(feature, cover))}" for feature in FEATURES)
    return f"{HEAD}{_grid(cover)}{sections}"


def _grid(cover: Cover) -> str:
    head = f"| | {' | '.join(str(number) for number in range(1, len(FEATURES) + 1))} |\n|---|{'---|' * len(FEATURES)}\n"
    rows = (
        f"| {number} [{feature}](#{_anchor(feature)}) | {' | '.join(_number(feature, other, cover) for other in FEATURES)} |\n"
        for number, feature in enumerate(FEATURES, 1)
    )
    return head + "".join(rows)


def _anchor(feature: str) -> str:
    """As MkDocs makes it of a heading."""
    return re.sub(r"[^\w\s-]", "", feature).strip().lower().replace(" ", "-")


def _number(feature: str, other: str, cover: Cover) -> str:
    if feature == other:
        return ""
    pair = pair_of(feature, other)
    return "—" if pair in CANNOT_MEET else str(len(cover.get(pair, ())))


def _section(feature: str, cover: Cover) -> Iterator[str]:
    yield "| with | covered by |\n|---|---|\n"
    for other in FEATURES:
        if other != feature:
            pair = pair_of(feature, other)
            names = "<br>".join(f"`{name}`" for name in sorted(cover.get(pair, ())))
            yield f"| {other} | {names or CANNOT_MEET.get(pair, '**nothing**')} |\n"


def main(arguments: list[str]) -> int:
    """Writes or prints the page; returns 1 if a pair is covered by nothing."""
    cover = covered()
    if "--print" in arguments:
        sys.stdout.write(page(cover))
    else:
        PAGE.write_text(page(cover))
    told = [f"nothing covers {first} and {second}" for first, second in empty(cover)]
    told += [f"{first} and {second} has a reason not to meet, and a test" for first, second in excused_in_vain(cover)]
    print("\n".join(told), file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
