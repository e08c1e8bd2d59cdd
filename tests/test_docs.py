"""The README and docs/: every block of code runs, every link leads somewhere, the site builds, the examples run.

How the blocks run, and how a page shows what they print: tests/support/docs/pages.py.
"""

from __future__ import annotations

import html.parser
import importlib.util
import os
import re
import resource
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import pylog
from pylog.cli.run import app
from pylog.compat.clusters import CLUSTERS
from spark.conftest import spark  # noqa: F401 - the fixture, for pages that ask Spark
from support.chromium import chromium
from support.docs.pages import CODE, OTHER, PROJECT, Runner, blocks, code, pages, run_blocks
from support.golden.data import case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = 336_776

# All that is shown and not run. A reason of its own stands before each block in its page.
NOT_RUN = {
    "README.md: Install": "it needs a network",
    "README.md: Work on it": "it sets the machine up",
    "docs/how-to/serve-metrics.md: Without a program of yours": "it serves until it is interrupted",
    "docs/how-to/tiering.md: Several processes, several machines": "it needs a copy of the directory",
    "docs/how-to/window.md: Open a window on a directory": "it serves until it is interrupted",
    "docs/how-to/window.md: From another machine": "it needs another machine",
    "docs/how-to/window.md: Through a proxy": "it serves until it is interrupted",
    "docs/index.md: Install": "it installs from the network",
    "docs/tutorial.md: Before you begin": "it installs from the network",
    "docs/tutorial.md: Two consumers": "it reads until it is interrupted",
}

# Pages whose code another test runs: it needs a process of its own, with its own Spark, or without the real kafka-python.
ELSEWHERE = {
    "docs/SPARK.md": "tests/spark/test_spark_docs.py",
    "docs/how-to/kafka-programs.md": "tests/compat/test_page.py",
}

# Pages that damage a directory, and show how one lives with that.
DAMAGED = {"docs/how-to/recover.md": "the page damages its store and repairs it"}


def a_shop_with_a_group() -> None:
    with pylog.open("shop") as store:
        store.create_topic("orders", partition_count=2)
        store.create_topic("returns")
        store.log("orders").append_many([b"x"] * 500)
        store.offsets.commit("billing", {("orders", 0): 200, ("returns", 0): 0})


# What a page says is there before its code.
GIVEN: Mapping[str, Callable[[], None]] = {"docs/GROUPS.md": a_shop_with_a_group}

BROKERS_DIRECTORY = "/var/lib/kafka/data"  # in the pages; a real broker's, from the golden corpus, in the tests


# ---- the code ------------------------------------------------------------------------------------------------------------


def pages_that_run() -> list[Any]:
    marks = {page: [pytest.mark.damaged(why)] for page, why in DAMAGED.items()}
    here = [page for page in pages() if page not in ELSEWHERE and run_blocks(page)]
    return [pytest.param(page, id=page, marks=marks.get(page, [])) for page in here]


@pytest.fixture
def spark_without_its_views(spark: SparkSession) -> Iterator[SparkSession]:  # noqa: F811
    """The session that other tests use too: a view that a page makes would hide a table of theirs."""
    yield spark
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)


@pytest.fixture
def limits_of_this_process() -> Iterator[None]:
    """Puts the limit of descriptors back that a page lowers: Java does not start under it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def stores_of_the_layers() -> Iterator[None]:
    """Closes the stores that programs for Kafka's clients leave open until their process ends."""
    yield
    CLUSTERS.close()


@pytest.mark.slow
@pytest.mark.usefixtures("limits_of_this_process", "stores_of_the_layers")
@pytest.mark.parametrize("page", pages_that_run())
def test_code_that_a_page_shows_runs_and_prints_the_output_on_the_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    runner, run = Runner(), run_blocks(page)
    if any("spark" in block.source for block in run):  # its workers do not share the working directory
        runner.names["spark"] = request.getfixturevalue("spark_without_its_views")
        runner.replacements['"shop"'] = f'"{tmp_path}/work/shop"'
    if any(BROKERS_DIRECTORY in block.source for block in run):
        runner.replacements[BROKERS_DIRECTORY] = str(case("4.3.0", "txn").copy(tmp_path / "broker"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    GIVEN.get(page, lambda: None)()
    for block in run:
        runner.run(block)
    FURTHER_CHECKS.get(page, lambda runner: None)(runner)


def test_the_readmes_example_runs_twice_in_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = run_blocks("README.md")
    for orders in (2, 4):
        assert example.expected is not None
        Runner().run(replace(example, expected=example.expected.replace("2 orders", f"{orders} orders")))


def test_the_readme_fits_on_a_screen() -> None:
    text = (PROJECT / "README.md").read_text()
    assert len(text.split()) <= 450
    assert len(text.splitlines()) <= 90
    assert max(map(len, text.splitlines())) <= 160


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    unrun = {f"{block.page}: {block.heading}": block.not_run for page in pages() for block in code(page) if block.not_run}
    assert unrun == NOT_RUN


def test_steps_that_run_elsewhere_do_run_there() -> None:
    for page in ELSEWHERE.keys() & set(pages()):
        assert Path(page).name in (PROJECT / ELSEWHERE[page]).read_text()


def test_code_fits_a_narrow_window() -> None:
    lines = {
        f"{block.place}: {line}"
        for page in pages()
        for block in code(page)
        for line in block.source.splitlines()
        if len(line) > 80
    }
    assert lines == set()


def test_every_block_says_what_it_is() -> None:
    languages = {block.place: block.language for page in pages() for block in blocks(page)}
    assert {place: language for place, language in languages.items() if language not in CODE + OTHER} == {}


# ---- what holds beyond what the pages show --------------------------------------------------------------------------------


def a_group_is_described_reset_and_exported(runner: Runner) -> None:
    assert runner.printed[-1].splitlines()[0] == "Empty Classic  []"
    assert Path("billing.csv").read_text() == "orders,0,100\nreturns,0,0\n"


FURTHER_CHECKS: Mapping[str, Callable[[Runner], None]] = {"docs/GROUPS.md": a_group_is_described_reset_and_exported}


def test_no_check_of_a_page_is_left_without_its_page() -> None:
    assert FURTHER_CHECKS.keys() <= set(pages())


# ---- links ---------------------------------------------------------------------------------------------------------------


def links(page: str) -> list[str]:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", (PROJECT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(path: Path) -> set[str]:
    """Of the headings of a Markdown file, as forges and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def is_outside(link: str) -> bool:
    return urllib.parse.urlsplit(link).scheme != ""


@pytest.mark.parametrize("page", pages())
def test_links_within_the_repository_lead_somewhere(page: str) -> None:
    for link in links(page):
        if is_outside(link):
            continue
        path, _, anchor = link.partition("#")
        target = (PROJECT / page).parent / path if path else PROJECT / page
        assert target.exists(), f"{page}: there is no {link}"
        assert not anchor or anchor in anchors(target), f"{page}: {path or page} has no heading #{anchor}"


# ---- the site ------------------------------------------------------------------------------------------------------------


class Fetched(html.parser.HTMLParser):
    """What a browser would fetch to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(named.get("src") or "")
        elif tag == "link" and named.get("rel") != "canonical":
            self.found.append(named.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `./dev docs` builds it: a link or an anchor that leads nowhere, or a page in no menu, is an error."""
    directory = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", directory],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    return directory


@pytest.mark.slow
def test_no_page_of_the_site_scrolls_sideways_on_a_telephone(site: Path) -> None:
    width = 390
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 800})
        found = {}
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri(), wait_until="domcontentloaded")
            found[path.relative_to(site).as_posix()] = page.evaluate("document.documentElement.scrollWidth")
    assert len(found) > 50
    assert {name: wide for name, wide in found.items() if wide > width} == {}


@pytest.mark.slow
def test_the_site_has_every_page_and_fetches_nothing_from_elsewhere(site: Path) -> None:
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {page.removeprefix("docs/").replace(".md", ".html") for page in pages() if page.startswith("docs/")} <= made
    for name in made:
        fetched = Fetched()
        fetched.feed((site / name).read_text())
        assert not [place for place in fetched.found if urllib.parse.urlsplit(place).netloc], name


def test_the_reference_has_all_public_names(site: Path) -> None:
    text = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    assert [name for name in pylog.__all__ if f'id="pylog.{name}"' not in text] == []


def test_the_page_of_commands_has_them_all(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    assert [name for name in app if not name.startswith("-") and f'id="pylog-{name}' not in text] == []


# ---- the examples --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("exactly_once.py", "[(b'alice', 4, 120), (b'bob', 4, 48)]"),
        ("logging_workers.py", "300 lines of 3 workers, none lost, none torn"),
        ("event_sourcing.py", "alice has 75, after 4 events"),
        ("window_in_a_service.py", "tea"),
    ],
)
def test_an_example_runs_as_a_program(example: str, says: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-W", "error", PROJECT / "examples" / example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert says in ended.stdout.splitlines()


@pytest.mark.slow
def test_the_demo_gets_the_same_answers_from_pylog_and_from_spark(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    demo = imported("flights_demo")
    all_flights = demo.flights_as_events
    monkeypatch.setattr(demo, "flights_as_events", lambda: all_flights().take(list(range(0, FLIGHTS, 20))))  # spares time
    monkeypatch.setattr(demo, "spark_session", lambda: spark)
    demo.demonstrate(tmp_path / "flights")
    printed = capsys.readouterr().out
    assert f"{FLIGHTS // 20 + 1:,} events scanned, parsed and grouped" in printed
    assert printed.count("Spark agrees") == 4


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PROJECT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
