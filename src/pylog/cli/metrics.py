"""`pylog metrics`: prints the metrics of a directory, serves them to Prometheus, or writes them to a text file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, command
from pylog.cli.exits import UsageError, print_stderr
from pylog.cli.output import print_json, write_data
from pylog.cli.stores import reading
from pylog.clock import SystemClock

if TYPE_CHECKING:
    from pylog import Store
    from pylog.monitoring.measured import Measures
    from pylog.monitoring.page import Choice

_LEAST_EVERY_S = 0.1


@command(CARE)
def metrics(
    store: StorePath,
    /,
    *,
    listen: str | None = None,
    token: str | None = None,
    textfile: str | None = None,
    every: float | None = None,
    names: str = "",
    topics: Annotated[list[str] | None, Parameter(name=["--topics", "-t"])] = None,
    internal: Flag = False,
    openmetrics: Flag = False,
    json: Json = False,
) -> None:
    """Prints, serves or writes the metrics of a directory: offsets, sizes, and the lag and health of each group.

    Only reads, so a broker or other processes may be running on the directory. Counts of writes are in the processes that write:
    Store.serve_metrics.

    Args:
        store: Path of the log directory. A broker may be running on it.
        listen: HOST:PORT to serve /metrics at, such as 127.0.0.1:9308, until the command is interrupted.
        token: A bearer token that clients must send. An address that other machines can reach needs one.
        textfile: File to write or replace, for the textfile collector of node_exporter.
        every: Write the file again after this number of seconds, until the command is interrupted.
        names: Add the names of other exporters, with commas between: kafka_exporter, kminion, lag_exporter.
        topics: Patterns of topics to include, such as "orders*". Default: all topics.
        internal: Include Kafka's internal topics, such as __consumer_offsets.
        openmetrics: Print the format OpenMetrics instead of Prometheus's text format.
        json: Print one JSON document.

    Examples:
        pylog metrics shop
        pylog metrics shop --listen 127.0.0.1:9308 --names kafka_exporter
        pylog metrics shop --textfile /var/lib/node_exporter/shop.prom --every 15
    """
    from pylog.monitoring.foreign import check_exporters
    from pylog.monitoring.page import Choice

    exporters = check_exporters([name.strip() for name in names.split(",") if name.strip()])
    choice = Choice(exporters, topics or (), internal, counters=False)
    _check(listen, textfile, every, json=json)
    with reading(store) as opened:
        if listen is not None:
            _serve(opened, choice, listen, token)
        elif textfile is not None:
            _write(opened, choice, textfile, every)
        elif json:
            samples = choice.of(opened.metrics())
            print_json(
                {"metrics": [{"name": f"pylog_{each.name}", "labels": each.labels, "value": each.value} for each in samples]}
            )
        else:
            write_data(_measures_of(opened).page(choice, "openmetrics" if openmetrics else "text"))


def _check(listen: str | None, textfile: str | None, every: float | None, *, json: bool) -> None:
    if sum((listen is not None, textfile is not None, json)) > 1:
        raise UsageError("--listen, --textfile and --json cannot be combined; give one of them")
    if every is not None and (textfile is None or not every >= _LEAST_EVERY_S):
        raise UsageError(f"--every requires --textfile, and at least {_LEAST_EVERY_S} seconds")


def _measures_of(store: Store) -> Measures:
    from pylog.monitoring.measured import measures_of

    return measures_of(store)


def _serve(store: Store, choice: Choice, listen: str, token: str | None) -> None:
    """Serves until the command is interrupted."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise UsageError(f"--listen {listen!r} is not HOST:PORT; give an address such as 127.0.0.1:9308")
    server = _measures_of(store).serve(choice, host.removeprefix("[").removesuffix("]"), int(port), token)
    print_stderr(f"serving {server.url}\n")
    server.wait()


def _write(store: Store, choice: Choice, path: str, every: float | None) -> None:
    """Writes the file once, or again and again."""
    from pylog.fs import replace_file

    measures, clock = _measures_of(store), SystemClock()
    while True:
        replace_file(path, measures.page(choice, "text").encode(errors="surrogateescape"))
        if every is None:
            return
        clock.sleep(every)
