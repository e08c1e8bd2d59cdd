"""The cyclopts application: registration of commands, and the parameters that commands share."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, Final, TypeVar

from cyclopts import App, Group, Parameter

from pylog import __version__
from pylog.cli.help_page import EPILOGUE, HELP

Command = TypeVar("Command", bound=Callable[..., int | None])

TOPICS: Final = Group("Topics", sort_key=1)
RECORDS: Final = Group("Records", sort_key=2)
CONSUMERS: Final = Group("Consumer groups", sort_key=3)
TRANSACTIONS: Final = Group("Transactions", sort_key=4)
CARE: Final = Group("Maintenance", sort_key=5)
PROGRAM: Final = Group("The program", sort_key=6)

app: Final = App(
    name="pylog",
    help=HELP,
    help_format="plaintext",
    help_epilogue=EPILOGUE,
    version=__version__,
    group_commands=PROGRAM,
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)

StorePath = Annotated[str, Parameter(name="STORE")]
TopicName = Annotated[str, Parameter(name="TOPIC")]
TopicsGiven = Annotated[list[str], Parameter(name="TOPIC")]
TopicScope = Annotated[list[str] | None, Parameter(name=["--topic", "-t"])]
GroupName = Annotated[str, Parameter(name="GROUP")]
GroupNames = Annotated[list[str], Parameter(name="GROUP")]
Flag = Annotated[bool, Parameter(show_default=False)]
Json = Annotated[bool, Parameter(name="--json", show_default=False)]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], show_default=False)]
Verbose = Annotated[
    bool,
    Parameter(
        name=["--verbose", "-v"],
        show_default=False,
        help="Print log lines to stderr: what is deleted, moved, recovered or changed.",
    ),
]


def command(group: Group, name: str | None = None, under: App = app) -> Callable[[Command], Command]:
    """Registers a function as a command. Its signature defines the parameters, its docstring the help.

    The function returns an exit code, or None for 0. The help shows the `Examples:` block of the docstring below the options.

    Args:
        group: heading under which the program's help lists the command.
        name: name of the command; by default the name of the function.
        under: parent command.
    """

    def register(function: Command) -> Command:
        kwargs: dict[str, Any] = {"name": name or function.__name__.replace("_", "-")}
        under.command(_with_log_lines(function), group=group, help_epilogue=_examples(function), **kwargs)
        return function

    return register


def _with_log_lines(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Gives a command the option `--verbose`. One that has an option of this name prints the log lines too."""
    parameters = inspect.signature(function, eval_str=True).parameters
    has_its_own = "verbose" in parameters

    @functools.wraps(function)
    def verbose_command(*arguments: Any, verbose: bool = False, **options: Any) -> int | None:
        with log_lines() if verbose else nullcontext():
            return function(*arguments, **options, **({"verbose": verbose} if has_its_own else {}))

    added = inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)
    changed = inspect.Signature([*parameters.values(), *([] if has_its_own else [added])])
    verbose_command.__signature__ = changed  # type: ignore[attr-defined]
    verbose_command.__annotations__ = {each.name: each.annotation for each in changed.parameters.values()}
    del verbose_command.__wrapped__  # cyclopts would read its signature
    return verbose_command


@contextmanager
def log_lines() -> Iterator[None]:
    """Prints pylog's log lines of level INFO and above to stderr."""
    handler, logger = logging.StreamHandler(), logging.getLogger("pylog")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _examples(function: Callable[..., Any]) -> str:
    """Returns the `Examples:` block of a docstring, which cyclopts leaves out."""
    _, _, block = inspect.cleandoc(function.__doc__ or "").partition("\nExamples:\n")
    return "Examples:\n\n" + re.sub(r"^    ", "  ", block.rstrip(), flags=re.MULTILINE)
