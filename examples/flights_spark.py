"""A worked example of Spark over a log: when do flights leave New York late? It ends with a chart, `flights.svg`.

    ./dev demo                                   (once: writes the flights of 2013 to the directory flights-demo)
    .venv/bin/python examples/flights_spark.py [directory [chart]]

The steps are functions to be read from top to bottom, like the cells of a notebook.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pylog.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = "carrier STRING, origin STRING, dest STRING, dep_delay LONG"
HOLIDAY = "2013-07-04"


class Hour(NamedTuple):
    """Flights scheduled to leave within one hour of the day, local time: how many, and how late on average in minutes."""

    hour: int
    flights: int
    delay: float


def main() -> int:
    """Runs the steps; returns the exit status."""
    parser = argparse.ArgumentParser(description="When do flights leave New York late?")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("flights-demo"), help="where ./dev demo left the flights")
    parser.add_argument("chart", nargs="?", type=Path, default=Path("flights.svg"), help="is written")
    given = parser.parse_args()
    if not (given.directory / "flights-0").is_dir():
        print(f"there are no flights in {given.directory}; make them with ./dev demo, or name another directory", file=sys.stderr)
        return 1
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[*]").appName("flights").config("spark.ui.enabled", "false").getOrCreate()
    explore(spark, given.directory, given.chart)
    spark.stop()
    return 0


def explore(spark: SparkSession, directory: Path, chart: Path) -> list[Hour]:
    """All steps in order.

    Args:
        spark: a session. Push-down is turned on in it, and its time zone becomes New York's.
        directory: with the topic `flights`.
        chart: the file to write.

    Returns:
        What the chart shows.
    """
    # 1. Predicates reach the files, and times are those on the clocks of New York.
    register(spark)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")

    # 2. A topic as a table: each row is an event, its value JSON.
    flights = parsed(spark, directory)
    flights.createOrReplaceTempView("flights")

    # 3. One day. Segments that end before it are not read: the time index tells.
    day = flights.where(f"timestamp >= '{HOLIDAY}' AND timestamp < date_add('{HOLIDAY}', 1)")
    print(f"{HOLIDAY}: {day.count()} flights, from {day.rdd.getNumPartitions()} tasks")

    # 4. The worst connections of the year, in SQL.
    spark.sql("""
        SELECT origin, dest, count(*) AS flights, round(avg(dep_delay), 1) AS delay
        FROM flights GROUP BY origin, dest HAVING count(dep_delay) > 300 ORDER BY delay DESC LIMIT 5
    """).show()

    # 5. By the hour, as a stream that ends where the log ends now: with another trigger it would go on for ever.
    hours = by_the_hour(spark, directory)
    for hour, count, delay in hours:
        print(f"{hour:2}:00 {count:6} flights {delay:6.1f} min {'#' * round(max(0.0, delay))}")

    # 6. A chart.
    chart.write_text(drawn(hours))
    print(f"drawn to {chart}")
    return hours


def parsed(spark: SparkSession, directory: Path) -> DataFrame:
    """The flights as columns."""
    events = spark.read.format("pylog").options(path=str(directory), subscribe="flights", columns="value,timestamp").load()
    return events.selectExpr("timestamp", f"from_json(CAST(value AS STRING), '{FIELDS}') AS flight").select(
        "timestamp", "flight.*"
    )


def by_the_hour(spark: SparkSession, directory: Path) -> list[Hour]:
    """Flights and mean delays by the hour of the scheduled departure; those that did not leave count as flights only."""
    from pyspark.sql import functions

    stream = spark.readStream.format("pylog").options(path=str(directory), subscribe="flights", startingOffsets="earliest")
    hours = "hour(timestamp) AS hour", f"from_json(CAST(value AS STRING), '{FIELDS}').dep_delay AS delay"
    flights = stream.load().selectExpr(*hours)
    grouped = flights.groupBy("hour").agg(functions.count("*").alias("flights"), functions.avg("delay").alias("delay"))
    query = grouped.writeStream.format("memory").queryName("hours").outputMode("complete").trigger(availableNow=True).start()
    query.awaitTermination()
    return [
        Hour(*row) for row in spark.sql("SELECT hour, flights, delay FROM hours WHERE delay IS NOT NULL ORDER BY hour").collect()
    ]


def drawn(hours: Sequence[Hour]) -> str:
    """The mean delays as bars of an SVG picture; the fewer flights, the paler."""
    width, height, gap = 24, 200, 4
    most, busiest = max((each.delay for each in hours), default=1), max((each.flights for each in hours), default=1)
    bars = []
    for number, (hour, flights, delay) in enumerate(hours):
        x, size = number * (width + gap), max(0.0, delay) / max(most, 1) * height
        bars.append(
            f'<rect x="{x}" y="{height - size:.1f}" width="{width}" height="{size:.1f}" fill="steelblue" '
            f'fill-opacity="{0.3 + 0.7 * flights / busiest:.2f}"><title>{flights} flights, {delay:.1f} min</title></rect>'
            f'<text x="{x + width / 2}" y="{height + 16}" text-anchor="middle">{hour}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -40 {len(hours) * (width + gap) + 16} {height + 70}" '
        'font-family="sans-serif" font-size="12"><text y="-20">Mean delay by the hour of departure, New York 2013</text>'
        f"{''.join(bars)}</svg>\n"
    )


if __name__ == "__main__":
    sys.exit(main())
