"""The README and docs/: every block of code runs, every link leads somewhere, the site builds, the examples run.

How the blocks run, and how a page shows what they print: tests/support/docs/pages.py.
"""

from __future__ import annotations

import html.parser
import importlib.util
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import pylog
from pylog.cli.run import app
from spark.conftest import spark  # noqa: F401 - the fixture, for pages that ask Spark
from support.docs.pages import CODE, OTHER, PROJECT, Course, Runner, blocks, code, courses, pages
from support.golden.data import case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = 336_776

# All that is shown and not run. A reason of its own stands before each block in its page.
NOT_RUN = {
    "README.md: Two commands": "it sets up the machine and runs all tests",
    "docs/index.md: Install": "it installs from the network",
    "docs/tutorial.md: Before you begin": "it installs from the network",
}

# Pages whose code another test runs: it needs a process of its own, with its own Spark.
ELSEWHERE = {"docs/SPARK.md": "tests/spark/test_spark_docs.py"}

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


def all_courses() -> list[Any]:
    marks = {page: [pytest.mark.damaged(why)] for page, why in DAMAGED.items()}
    here = [page for page in pages() if page not in ELSEWHERE]
    return [pytest.param(course, id=course.name, marks=marks.get(page, [])) for page in here for course in courses(page)]


@pytest.fixture
def spark_without_its_views(spark: SparkSession) -> Iterator[SparkSession]:  # noqa: F811
    """The session that other tests use too: a view that a page makes would hide a table of theirs."""
    yield spark
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)


@pytest.mark.slow
@pytest.mark.parametrize("course", all_courses())
def test_what_a_page_shows_runs_and_prints_what_the_page_says(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    runner = Runner()
    if course.mentions("spark"):  # its workers do not share the working directory
        runner.names["spark"] = request.getfixturevalue("spark_without_its_views")
        runner.replacements['"shop"'] = f'"{tmp_path}/work/shop"'
    if course.mentions(BROKERS_DIRECTORY):
        runner.replacements[BROKERS_DIRECTORY] = str(case("4.3.0", "txn").copy(tmp_path / "broker"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    GIVEN.get(course.page, lambda: None)()
    for block in course.blocks:
        runner.run(block)
    FURTHER_CHECKS.get(course.name, lambda runner: None)(runner)


def test_what_is_not_run_is_little_and_says_why() -> None:
    unrun = {f"{block.page}: {block.heading}": block.not_run for page in pages() for block in code(page) if block.not_run}
    assert unrun == NOT_RUN


def test_what_runs_elsewhere_does_run_there() -> None:
    for page in ELSEWHERE.keys() & set(pages()):
        assert Path(page).name in (PROJECT / ELSEWHERE[page]).read_text()


def test_every_block_says_what_it_is() -> None:
    languages = {block.place: block.language for page in pages() for block in blocks(page)}
    assert {place: language for place, language in languages.items() if language not in CODE + OTHER} == {}


# ---- what holds beyond what the pages show --------------------------------------------------------------------------------


def the_quickstart_appends_and_reads(runner: Runner) -> None:
    appended, looked_at = (printed.splitlines() for printed in runner.printed)
    assert [line.split()[0] for line in appended] == ["0", "1", "2", "3"]
    assert appended[0].endswith("b'42' b'paid'")
    assert Path("shop", "orders-3").is_dir()
    assert "txn [781, 162]" in looked_at


def spark_shows_every_record(runner: Runner) -> None:
    assert all(value in runner.printed[-1] for value in ("paid", "shipped", "delivered"))


def data_frames_have_what_the_log_has(runner: Runner) -> None:
    last = runner.printed[-1].splitlines()[-1]
    assert last.startswith("3 [0] ")
    assert "(b'42', 2)" in last


def a_duplicate_is_in_the_log_once(runner: Runner) -> None:
    with pylog.open("shop", mode="r") as store:
        assert [record.value for record in store.log("orders", 0).records()] == [b"delivered", b"paid"]


def what_is_sent_is_in_the_log(runner: Runner) -> None:
    assert "RecordMetadata(topic='orders', partition=" in runner.printed[-1]
    with pylog.open("shop", mode="r") as store:
        assert sum(store.log("orders", number).end_offset for number in range(4)) > 1100


def commits_hold_for_the_next_reader(runner: Runner) -> None:
    with pylog.open("shop") as store:
        assert store.offsets.position("billing", ("orders", 0)) == store.log("orders", 0).end_offset
        assert store.topic("audit").config.retention_group == "billing"
    committed = "TopicPartition(topic='orders', partition=0): OffsetAndMetadata(offset="
    assert runner.printed[-1].count(committed) == 1
    assert runner.printed[-1].count("b'") == 3


def consumers_hand_out_each_record(runner: Runner) -> None:
    printed = runner.printed[-1].splitlines()
    assert len([line for line in printed if line[:2] in ("0 ", "1 ")]) == 5
    assert {line[:-2] for line in printed if line.startswith("Topic")} == {
        f"TopicPartition(topic='orders', partition={number})" for number in range(2)
    }
    assert sorted(eval(printed[-1])) == [0, 0, 1, 1, 2]


def compaction_keeps_the_last(runner: Runner) -> None:
    assert runner.printed[-1] == "1 [b'1.30', b'1.40']\n"


def commands_print_what_they_did(runner: Runner) -> None:
    assert "\t42\tpaid\n" in runner.printed[-1]
    assert "Appended 1 record to orders." in runner.printed[-1]


def a_group_is_described_reset_and_exported(runner: Runner) -> None:
    assert runner.printed[-1].splitlines()[0] == "Empty Classic  []"
    assert Path("billing.csv").read_text() == "orders,0,100\nreturns,0,0\n"


FURTHER_CHECKS: Mapping[str, Callable[[Runner], None]] = {
    "README.md: Ten lines": the_quickstart_appends_and_reads,
    "README.md: Ten lines again": spark_shows_every_record,
    "README.md: Into pandas, polars, DuckDB": data_frames_have_what_the_log_has,
    "README.md: Many readers, many writers": a_duplicate_is_in_the_log_once,
    "README.md: Producing": what_is_sent_is_in_the_log,
    "README.md: Committed offsets": commits_hold_for_the_next_reader,
    "README.md: Consuming": consumers_hand_out_each_record,
    "README.md: Compaction": compaction_keeps_the_last,
    "README.md: Command line": commands_print_what_they_did,
    "docs/GROUPS.md: Administering groups": a_group_is_described_reset_and_exported,
}


def test_no_check_of_a_part_is_left_without_its_part() -> None:
    assert FURTHER_CHECKS.keys() <= {course.name for page in pages() for course in courses(page)}


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
