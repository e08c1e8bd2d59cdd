"""The page that `pylog --help` prints, without the commands and without cyclopts, which take a quarter of a second to load.

`python -m support.docs.help_page` writes `PANELS` again; a test compares the page with the one of cyclopts.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Final

from pylog.cli.exits import EXIT_CODES

HELP: Final = (
    "Works on Apache Kafka log directories without a broker. `pylog COMMAND --help` shows the options and examples of a command."
)
PANELS: Final[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "Topics",
        (
            ("config", "Shows the options of a topic, or changes some of them."),
            ("create", "Creates a topic, and the log directory if it does not exist."),
            ("delete", "Deletes topics and all of their records permanently."),
            ("describe", "Shows the options of a topic, its partitions with their offsets, and its segments."),
            ("topics", "Lists the topics of a log directory with their partitions, offsets, bytes and retention."),
        ),
    ),
    (
        "Records",
        (
            ("cat", "Prints the records of a topic, partition by partition, in offset order."),
            (
                "copy",
                ("Copies the records of a topic to another topic, partition by partition: keys, values, timestamps and headers."),
            ),
            ("produce", "Appends records from stdin or a file to an existing topic. Prints their number and offsets."),
        ),
    ),
    (
        "Consumer groups",
        (("groups", "Lists, describes, resets and deletes consumer groups; exports and imports committed offsets."),),
    ),
    (
        "Transactions",
        (("transactions", "Lists, describes and aborts transactions, and finds hanging ones."),),
    ),
    (
        "Maintenance",
        (
            (
                "archive",
                ("Uploads to an object store what an archive lacks: sealed segments, committed offsets, the topics' options."),
            ),
            ("backup", "Archives a whole directory, with the active segments: everything that is needed to restore it."),
            ("compact", "Compacts a topic now, regardless of its dirty ratio: keeps only the last record of each key."),
            (
                "compare",
                (
                    "Compares two directories: topics, options, partitions, and each record's offset, timestamp, key, "
                    "value and headers."
                ),
            ),
            (
                "dump",
                (
                    "Prints the content of files as JSON lines, one per batch, entry or record; or in the format of "
                    "Kafka's own tool."
                ),
            ),
            (
                "graduate",
                (
                    "Prepares a log directory for a new Kafka 4.3 broker, which starts with its topics, options, groups "
                    "and offsets."
                ),
            ),
            (
                "metrics",
                ("Prints, serves or writes the metrics of a directory: offsets, sizes, and the lag and health of each group."),
            ),
            ("ops", "Writes alert rules for Prometheus and a dashboard for Grafana."),
            ("repair", "Removes damage from a log directory. Without --execute, only prints the plan."),
            ("restore", "Creates a directory from an archive: records, offsets and options as they were archived."),
            (
                "retain",
                (
                    "Deletes the segments that the retention.ms, retention.bytes and retention.group of their topics no "
                    "longer keep."
                ),
            ),
            ("stats", "Counts records, bytes, rates over event time, compression, batch sizes and producers."),
            ("sweep", "Deletes the objects of an archive that no manifest needs. Without --execute, only shows them."),
            ("ui", "Shows a directory in the browser: topics, records, segments, groups and their health."),
            ("verify", "Reads all files and prints any damage, the offsets that are lost, and what to do next."),
            ("warm", "Compiles pylog's kernels and stores them in the cache: for container images and test machines."),
        ),
    ),
    (
        "The program",
        (
            (
                "doctor",
                (
                    "Checks Python, the libraries and the cache of compiled kernels; and a directory's file system, "
                    "locks, files and open transactions."
                ),
            ),
            ("--help (-h)", "Display this message and exit."),
            (
                "--install-completion",
                "Installs shell completion: writes a script, and a line that loads it into the shell's startup file.",
            ),
            ("--version", "Display application version."),
        ),
    ),
)
EPILOGUE: Final = "Exit codes:\n\n" + "\n".join(f"  {code:3}  {meaning}" for code, meaning in EXIT_CODES.items())
_NARROWEST: Final = 40


def page(width: int | None = None) -> str:
    """Returns the page.

    Args:
        width: the width of the terminal in columns; None asks for it.
    """
    columns = max(_NARROWEST, shutil.get_terminal_size().columns if width is None else width)
    lines = ["Usage: pylog COMMAND", "", *_wrapped(HELP, columns), ""]
    for title, rows in PANELS:
        lines += _panel(title, rows, columns)
    return "\n".join([*lines, "", EPILOGUE]) + "\n"


def _panel(title: str, rows: tuple[tuple[str, str], ...], columns: int) -> Iterator[str]:
    yield f"╭─ {title} ".ljust(columns - 1, "─") + "╮"
    inside = columns - 4
    first = max(len(name) for name, _ in rows) + 2
    for name, text in rows:
        for number, line in enumerate(_wrapped(text, inside - first)):
            yield f"│ {(name if number == 0 else '').ljust(first)}{line}".ljust(columns - 2) + " │"
    yield "╰" + "─" * (columns - 2) + "╯"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)
