"""Spark sessions for tests: without a page, a progress bar or log lines."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


def quiet_session(master: str, name: str, directory: Path, options: Mapping[str, str]) -> SparkSession:
    """Starts a session that keeps its tables below a directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName(name)
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        for option, value in options.items():
            builder = builder.config(option, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def make_active(session: SparkSession) -> None:
    """Makes a session the active one: the session whose settings Spark uses for work that names none."""
    session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr, operator]
