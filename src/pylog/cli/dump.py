"""`pylog dump`: prints the content of files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, command
from pylog.cli.exits import UsageError, print_stderr
from pylog.cli.output import json_line, to_terminal, write_data
from pylog.text import printable

if TYPE_CHECKING:
    from pylog.tools.like_kafka import DumpOptions

Files = Annotated[tuple[str, ...], Parameter(name="FILE")]


@command(CARE)
def dump(
    files: Files,
    /,
    *,
    records: Flag = False,
    decoder: Literal["offsets", "transactions"] | None = None,
    like_kafka: Flag = False,
    print_data_log: Flag = False,
    deep_iteration: Flag = False,
    skip_record_metadata: Flag = False,
    offsets_decoder: Flag = False,
    transaction_log_decoder: Flag = False,
    max_bytes: int | None = None,
    index_sanity_check: Flag = False,
    verify_index_only: Flag = False,
    json: Json = False,
) -> None:
    """Prints the content of files as JSON lines, one per batch, entry or record; or in the format of Kafka's own tool.

    Without --like-kafka, the command prints only undamaged records, and one line for each damaged range. With --like-kafka, the
    output is byte for byte that of kafka-dump-log.sh of Kafka 4.3, except that control characters are escaped on a terminal.
    The options below --like-kafka are Kafka's.

    Args:
        files: Files of these kinds: .log, .index, .timeindex, .txnindex, .snapshot, .seal, checkpoints, durable-point,
            partition.metadata. A directory stands for all such files in it.
        records: Print the records of .log files too.
        decoder: Decoder for keys and values. Default: by topic, for __consumer_offsets and __transaction_state.
        like_kafka: Print what Kafka's tool prints.
        print_data_log: Print records with keys and values.
        deep_iteration: Print records without keys and values.
        skip_record_metadata: Print only keys and values of records.
        offsets_decoder: Decode keys and values of __consumer_offsets.
        transaction_log_decoder: Decode keys and values of __transaction_state.
        max_bytes: Read at most this many bytes of each .log file.
        index_sanity_check: Only check whether indexes pass Kafka's quick check.
        verify_index_only: Compare indexes with their log, and print no entries.
        json: Print JSON lines, the default without --like-kafka.

    Examples:
        pylog dump shop/orders-0/00000000000000000000.log --records
        pylog dump shop/orders-0 | jq 'select(.kind == "damage")'
        pylog dump --like-kafka --print-data-log data/orders-0
        pylog dump --like-kafka --offsets-decoder data/__consumer_offsets-7
    """
    from pylog.tools.like_kafka import DumpOptions

    named = "offsets" if offsets_decoder else "transactions" if transaction_log_decoder else None
    options = DumpOptions(
        print_data_log,
        deep_iteration,
        skip_record_metadata,
        named,
        DumpOptions().max_bytes if max_bytes is None else max_bytes,
        index_sanity_check,
        verify_index_only,
    )
    if not like_kafka and options != DumpOptions():
        raise UsageError("Kafka's options require --like-kafka; without it, use --records and --decoder")
    if like_kafka and (records or json or decoder is not None):
        message = "--records, --decoder and --json cannot be combined with --like-kafka"
        raise UsageError(f"{message}; use --print-data-log and --offsets-decoder")
    if like_kafka:
        _as_kafka(files, options)
    else:
        _as_json(files, records, decoder)


def _as_json(files: Iterable[str], records: bool, decoder: str | None) -> None:
    from pylog.fs import OsFileSystem
    from pylog.tools.dump import documents

    fs = OsFileSystem()
    for path in _each(files, known_only=True):
        write_data(json_line({"kind": "file", "path": path}))
        for document in documents(fs, path, records=records, decoder=decoder):
            write_data(json_line(document))


def _as_kafka(files: Iterable[str], options: DumpOptions) -> None:
    from pylog.fs import OsFileSystem
    from pylog.tools.like_kafka import KafkaDump

    tool = KafkaDump(OsFileSystem(), options)
    try:
        for path in _each(files, known_only=False):
            for text in tool.text(path):
                _write(text)
    finally:
        sys.stdout.flush()
        for line in tool.complaints:
            print_stderr(f"{printable(line) if sys.stderr.isatty() else line}\n")


def _write(text: str) -> None:
    if to_terminal():
        sys.stdout.writelines(f"{printable(line)}\n" for line in text.split("\n")[:-1])
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))  # a file name may be any bytes


def _each(files: Iterable[str], *, known_only: bool) -> Iterator[str]:
    """Yields the given files, and the files in the given directories."""
    from pylog.fs import OsFileSystem, join
    from pylog.tools.dump import is_known
    from pylog.topics.signs import is_directory

    fs = OsFileSystem()
    for path in files:
        if is_directory(fs, path):
            names = (entry.name for entry in fs.list(path) if entry.is_file)
            yield from (join(path, name) for name in names if is_known(name) or not known_only)
        else:
            yield path
