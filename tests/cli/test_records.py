"""`pylog cat` and `pylog produce`: records out, and in."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from support.cli import call

ALL = [
    "0\t0\t2024-01-31T12:00:00.000Z\t42\tpaid\tsource=web",
    "0\t1\t2024-01-31T13:00:00.000Z\t43\tshipped",
    "0\t2\t2024-01-31T14:00:00.000Z\t42\tnull",
    "0\t3\t2024-01-31T15:00:00.000Z\tnull\t\\xff\\x00",
    "1\t0\t2024-01-31T12:00:00.000Z\té\tone\\ttwo\\n\th=null",
]


def content(path: Path, topic: str) -> list[list[tuple[object, ...]]]:
    """Every partition's records, without their offsets."""
    with pylog.open(path, mode="r") as store:
        logs = [store.log(topic, number) for number in store.topic(topic).partition_ids]
        return [[(each.timestamp, each.key, each.value, each.headers) for each in log.records()] for log in logs]


# ---- cat: which records ------------------------------------------------------------------------------------------------------


def test_all_records_are_printed_a_line_each(shop: Path) -> None:
    assert call("cat", shop, "orders") == (0, ("\n".join(ALL) + "\n").encode(), "")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--partition 1", [4]),
        ("--partition 0,1", [0, 1, 2, 3, 4]),
        ("-p 0-1 --count 2", [0, 1]),
        ("--count 0", []),
        ("--from 2", [2, 3]),
        ("-p 0 --from 1 --to 3", [1, 2]),
        ("-p 0 --from 3 --to 1", []),
        ("--from -1", [3, 4]),
        ("--from latest", []),
        ("--from 99", []),
        ("--from earliest --to -1", [0, 1, 2]),
        ("--from 2024-01-31T13:30", [2, 3]),
        ("--from 2024-01-31T13:30:00+00:30", [1, 2, 3]),
        ("--from 2024-01-31T12:00:00.001Z --to 2024-01-31T15:00", [1, 2]),
        ("--from PT1H", []),
        ("--to P1D", [0, 1, 2, 3, 4]),
        ("--key 42", [0, 2]),
        ("--key 42 --count 1", [0]),
        ("--key é", [4]),
    ],
)
def test_records_are_chosen_by_place_time_key_and_count(shop: Path, options: str, wanted: list[int]) -> None:
    done = call("cat", shop, "orders", *options.split())
    assert (done.code, done.complaints) == (0, "")
    assert sorted(done.lines) == sorted(ALL[index] for index in wanted)


def test_a_key_is_given_as_it_is_shown(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append_many([(b"\x1b\xff\\", b"1"), (b"x1b", b"2")])
    (line,) = call("cat", tmp_path, "t", "--count", 1).lines
    assert call("cat", tmp_path, "t", "--key", line.split("\t")[3]).lines == [line]


def test_read_committed_leaves_out_aborted_records() -> None:
    from support.golden.data import case

    directory = case("4.3.0", "txn").log_directory
    with pylog.open(directory, mode="r") as store:
        committed = sum(batch.num_rows for batch in store.log("txn").scan(isolation_level="read_committed"))
        everything = sum(batch.num_rows for batch in store.log("txn").scan())
    found = call("cat", directory, "txn", "-p", 0, "--isolation", "read_committed")
    assert len(found.lines) == committed < everything == len(call("cat", directory, "txn", "-p", 0).lines)


def test_a_snapshot_leaves_out_what_is_undecided_in_any_partition(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability="os") as store:
        store.create_topic("t", partition_count=2)
        undecided = store.transaction("undecided")
        undecided.append("t", b"open", partition=0)
        undecided.flush()
        with store.transaction("decided") as transaction:
            for number in range(2):
                transaction.append("t", b"whole", partition=number, key=b"k")
        for options in ("", "--key k", "--isolation read_committed"):
            found = call("cat", tmp_path, "t", "--snapshot", *options.split())
            assert [line.split("\t")[4] for line in found.lines] == ["whole", "whole"], (options, found)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("--follow --snapshot", 2, "--snapshot prints the records of one moment"),
        ("--from soon", 2, "'soon' is not an offset or a time"),
        ("--from current", 2, "'current' is not an offset or a time"),
        ("--from Pfoo", 2, "'Pfoo' is not an offset or a time"),
        ("--partition x", 2, "'x' is not a partition"),
        ("--partition 1-0", 2, "'1-0' is an empty range; give the lower number first"),
        ("--partition 2000000", 1, "partition 2000000 of "),
        ("--partition 2000000-3000000", 1, "partition 2000000 of "),
        ("--count -1", 2, "--count -1 is out of range"),
        ("-n -1", 2, "--count -1 is out of range"),
        ("--count 9223372036854775808", 2, "--count 9223372036854775808 is out of range"),
        ("--partition 7", 1, "does not exist; its partitions are 0 to 1"),
        ("--follow --to 5", 2, "--follow never ends"),
        ("--follow --format parquet", 2, "--follow never ends"),
        ("--isolation none", 2, "--isolation"),
        ("--count some", 2, "--count"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(shop: Path, options: str, code: int, told: str) -> None:
    done = call("cat", shop, "orders", *options.split())
    assert (done.code, done.output) == (code, b"")
    assert told in done.complaints


@pytest.mark.damaged("a byte is flipped")
def test_records_before_damage_are_printed_and_its_position_is_reported(shop: Path) -> None:
    path = shop / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = call("cat", shop, "orders")
    assert done.code == 1
    assert done.lines == ALL[:2]
    assert f"{path}" in done.complaints


# ---- cat: formats ------------------------------------------------------------------------------------------------------------


def test_json_lines_have_text_where_there_is_text_and_base64_where_not(shop: Path) -> None:
    lines = call("cat", shop, "orders", "--json").json_lines
    paid = {"partition": 0, "offset": 0, "timestamp": 1706702400000, "key": "42", "value": "paid"}
    assert lines[0] == paid | {"headers": [{"key": "source", "value": "web"}]}
    assert lines[2]["value"] is None
    assert base64.b64decode(lines[3]["value"]["base64"]) == b"\xff\x00"
    assert lines == call("cat", shop, "orders", "--format", "jsonl").json_lines


def test_arrow_and_parquet_are_what_scan_gives_with_the_partition(shop: Path) -> None:
    streamed = pa.ipc.open_stream(call("cat", shop, "orders", "--format", "arrow").output).read_all()
    stored = pq.read_table(io.BytesIO(call("cat", shop, "orders", "--format", "parquet").output))
    assert streamed.column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert streamed.to_pylist() == stored.to_pylist()
    assert streamed.column("partition").to_pylist() == [0, 0, 0, 0, 1]
    with pylog.open(shop, mode="r") as store:
        scanned = pa.Table.from_batches(store.log("orders").scan())
    assert streamed.select(scanned.column_names).slice(0, 4).to_pylist() == scanned.to_pylist()


def test_csv_tells_null_from_empty_and_refuses_what_it_cannot_hold(shop: Path) -> None:
    lines = call("cat", shop, "orders", "--format", "csv", "--to", 3, "-p", 0).lines
    assert lines[0] == '"partition","offset","timestamp","key","value","headers"'
    assert lines[3] == '0,2,2024-01-31 14:00:00.000Z,"42",,'
    done = call("cat", shop, "orders", "--format", "csv")
    assert done.code == 1
    assert "the value of the record at offset 3 is not UTF-8" in done.complaints


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_binary_formats_are_kept_from_a_terminal(shop: Path, form: str) -> None:
    done = call("cat", shop, "orders", "--format", form, terminal=True)
    assert (done.code, done.output) == (2, b"")
    assert "stdout is a terminal" in done.complaints


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "arrow", "parquet"])
def test_nothing_is_a_document_too(shop: Path, form: str) -> None:
    done = call("cat", shop, "orders", "--from", "latest", "--format", form)
    assert (done.code, done.complaints) == (0, "")
    if form == "csv":
        assert len(done.lines) == 1
    elif form == "arrow":
        assert pa.ipc.open_stream(done.output).read_all().num_rows == 0
    elif form == "parquet":
        assert pq.read_table(io.BytesIO(done.output)).num_rows == 0
    else:
        assert done.output == b""


# ---- produce -----------------------------------------------------------------------------------------------------------------


def test_lines_are_values_and_it_is_said_where_they_are(shop: Path) -> None:
    done = call("produce", shop, "orders", "--partition", 1, stdin=b"a\r\n\n\xff\nlast")
    assert (done.code, done.complaints) == (0, "")
    assert [line.split() for line in done.lines] == [
        ["Appended", "4", "records", "to", "orders."],
        ["PARTITION", "RECORDS", "FIRST", "OFFSET", "LAST", "OFFSET"],
        ["1", "4", "1", "4"],
    ]
    assert [row[2] for row in content(shop, "orders")[1][1:]] == [b"a", b"", b"\xff", b"last"]


@pytest.mark.slow
def test_keys_are_before_the_separator_and_go_where_kafkas_clients_send_them(tmp_path: Path) -> None:
    assert call("create", tmp_path / "s", "t", "--partitions", 4).code == 0
    lines = b"".join(b"key-%d::a:b\n" % number for number in range(50))
    done = call("produce", tmp_path / "s", "t", "--key-separator", "::", "--json", stdin=lines).json
    assert (done["topic"], done["records"]) == ("t", 50)
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("u", partition_count=4)
        with store.producer() as producer:
            for number in range(50):
                producer.send("u", key=b"key-%d" % number, value=b"a:b")
    sides = [[[row[1:3] for row in rows] for rows in content(tmp_path / "s", topic)] for topic in ("t", "u")]
    assert sides[0] == sides[1]


def test_a_separator_may_be_an_escape(shop: Path) -> None:
    assert call("produce", shop, "orders", "-p", 1, "-k", "\\t", stdin=b"k\tv\n").code == 0
    assert content(shop, "orders")[1][-1][1:3] == (b"k", b"v")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none"])
def test_batches_are_compressed_as_asked(shop: Path, codec: str) -> None:
    lines = b"the same again\n" * 1000
    assert call("produce", shop, "orders", "-p", 1, "--compression", codec, stdin=lines).code == 0
    with pylog.open(shop, mode="r") as store:
        size = store.log("orders", 1).size_between(1, 1001)
    assert (size < 10_000) == (codec != "none")


def test_columns_may_have_other_names(shop: Path, tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "event": [b"1", b"2"], "more": [1, 2]})
    pq.write_table(table, tmp_path / "events.parquet")
    with pa.ipc.new_file(str(tmp_path / "events.arrow"), table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "events.csv").write_text("id,event,more\na,1,1\nb,2,2\n")
    for suffix in ("parquet", "arrow", "csv"):
        words = ["--from", tmp_path / f"events.{suffix}", "--key-column", "id", "--value-column", "event", "-p", 1]
        assert call("produce", shop, "orders", *words).code == 0
    assert [row[1:3] for row in content(shop, "orders")[1][1:]] == [(b"a", b"1"), (b"b", b"2")] * 3


@pytest.mark.parametrize("form", ["jsonl", "arrow", "csv", "parquet"])
def test_produce_appends_records_as_cat_prints_them(shop: Path, tmp_path: Path, form: str) -> None:
    words = ["--to", "3"] if form == "csv" else []  # which cannot hold the last record
    printed = call("cat", shop, "orders", "--format", form, *words).output
    call("create", tmp_path / "other", "orders", "--partitions", 2)
    if form == "parquet":
        (tmp_path / "orders.parquet").write_bytes(printed)
        done = call("produce", tmp_path / "other", "orders", "--from", tmp_path / "orders.parquet")
    else:
        done = call("produce", tmp_path / "other", "orders", "--format", form, stdin=printed)
    assert (done.code, done.complaints) == (0, "")
    original = content(shop, "orders")
    assert content(tmp_path / "other", "orders") == ([original[0][:3], original[1]] if words else original)


some_bytes = st.none() | st.binary(max_size=12) | st.text(max_size=5).map(str.encode)
record = st.tuples(
    some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=4), some_bytes), max_size=2), st.integers(-1, 2**50)
)


@pytest.mark.slow
@settings(max_examples=25)
@given(records=st.lists(record, min_size=1, max_size=5), form=st.sampled_from(["jsonl", "arrow"]))
def test_any_record_survives_being_printed_and_appended(
    records: list[tuple[object, ...]], form: str, echo: tuple[Path, pylog.Store]
) -> None:
    path, store = echo
    first = store.log("from").append_many([(key, value, headers, stamp) for key, value, headers, stamp in records]).start
    printed = call("cat", path, "from", "--from", first, "--format", form)
    begin = store.log("to").end_offset
    assert call("produce", path, "to", "--format", form, stdin=printed.output).code == 0
    read = [
        [(r.key, r.value, r.headers, r.timestamp) for r in store.log(name).records(at)]
        for name, at in (("from", first), ("to", begin))
    ]
    assert read[0] == read[1]


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A store with two topics, open meanwhile."""
    path = tmp_path_factory.mktemp("echo")
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        for name in ("from", "to"):
            store.create_topic(name, message_timestamp_after_max_ms=2**63 - 1)
        yield path, store


def test_csv_holds_times_beyond_the_calendar_and_gives_them_back(echo: tuple[Path, pylog.Store]) -> None:
    path, store = echo
    times = [0, 253_402_300_799_999, 253_402_300_800_000, 2**62, 1_706_702_400_000]
    first = store.log("from").append_many([(None, b"v", [], time) for time in times]).start
    printed = call("cat", path, "from", "--from", first, "--format", "csv").output
    begin = store.log("to").end_offset
    assert call("produce", path, "to", "--format", "csv", stdin=printed).code == 0
    assert [record.timestamp for record in store.log("to").records(begin)] == times


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "first_line"),
    [
        ("", b""),
        ("-k :", b""),
        ("--format jsonl", b""),
        ("--format csv", b"key,value\n"),
        ("--format csv", b'"key","value"\r\n'),
        ("--format csv --key-column id --value-column event", b"id,event\n"),
    ],
)
@pytest.mark.parametrize("through", ["stdin", "a file"])
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_a_record(
    shop: Path, tmp_path: Path, words: str, first_line: bytes, through: str
) -> None:
    mark = b"\xef\xbb\xbf"
    lines = b'{"key":"a","value":"b"}\n' if "jsonl" in words else b"a,b\n" if "csv" in words else b"a:b\n"
    given = mark + first_line + lines
    (tmp_path / "marked").write_bytes(given)
    form = words.split() if "format" in words else ["--format", "lines", *words.split()]
    source = {"stdin": given} if through == "stdin" else {}
    done = call("produce", shop, "orders", "-p", 1, *form, *([] if source else ["--from", tmp_path / "marked"]), **source)
    assert (done.code, done.complaints) == (0, "")
    assert [row[1:3] for row in content(shop, "orders")[1][1:]] == [(b"a", b"b") if words else (None, b"a:b")]


def test_csv_takes_times_as_numbers_or_as_text_and_values_with_line_ends(shop: Path) -> None:
    lines = b'timestamp,key,value\n1706702400000,,"a\nb"\n1706702400001,"",\n'
    assert call("produce", shop, "orders", "-p", 1, "--format", "csv", stdin=lines).code == 0
    assert call("produce", shop, "orders", "-p", 1, "--format", "csv", stdin=b"timestamp,value\n2024-01-31T12:00Z,c\n").code == 0
    rows = [row[:3] for row in content(shop, "orders")[1][1:]]
    assert rows == [(1706702400000, None, b"a\nb"), (1706702400001, b"", None), (1706702400000, None, b"c")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "stdin", "code", "told"),
    [
        ("-k :", b"a:1\nb\n", 1, "stdin, line 2 has no key separator b':'; nothing was appended"),
        ("-k ''", b"", 2, "--key-separator requires the format lines"),
        ("-k : --format csv", b"", 2, "--key-separator requires the format lines"),
        ("--key-column a", b"", 2, "lines has no columns"),
        (
            "--format jsonl",
            b'{"value":"a"}\n{"value":1}\n',
            1,
            "stdin, line 2 is not a JSON object with the optional fields key, value",
        ),
        ("--format jsonl", b'{"values":"a"}\n', 1, "stdin, line 1 is not a JSON object"),
        ("--format jsonl", b'{"value":"\xff"}\n', 1, "stdin, line 1 is not a JSON object"),
        ("--format jsonl", b'{"value":"a","partition":9}\n', 1, "column partition has 9"),
        ("--format jsonl", b'{"value":"a","timestamp":-5}\n', 1, "timestamp -5"),
        ("--format jsonl", b'{"value":"a","timestamp":9223372036854775808}\n', 1, "stdin, line 1 is not a JSON object"),
        ("--format jsonl", b'{"value":"a","partition":-9223372036854775809}\n', 1, "stdin, line 1 is not a JSON object"),
        ("--format csv", b"", 1, "cannot read stdin"),
        ("--format csv", b"value,value\n1,2\n", 1, "stdin has two columns with the same name: value, value"),
        ("--format csv", b"value,\xff\n1,2\n", 1, "cannot read stdin"),
        (
            "--format csv",
            b"a,b\n1,2\n",
            1,
            "stdin has the columns a, b; only key, value, timestamp, headers, partition are recognised",
        ),
        ("--format csv", b"timestamp\n1\n", 1, "has neither a column key nor a column value"),
        ("--format csv --key-column id", b"value\n1\n", 1, "stdin has no column id; it has value"),
        ("--format csv", b"value,headers\n1,nonsense\n", 1, "the column headers is not JSON"),
        ("--format csv", b"value,timestamp\n1,soon\n", 1, "cannot read stdin"),
        ("--format csv", b"value\n1,2\n", 1, "cannot read stdin"),
        ("--format arrow", b"nonsense", 1, "cannot read stdin"),
        ("--format parquet", b"nonsense", 1, "cannot read stdin"),
        ("--from NOTHING", b"", 1, "cannot read NOTHING"),
        ("--partition 9", b"a\n", 1, "partition 9 of"),
        ("--compression rar", b"a\n", 2, "--compression"),
    ],
)
def test_a_record_that_cannot_be_appended_is_named_and_nothing_is_appended(
    shop: Path, options: str, stdin: bytes, code: int, told: str
) -> None:
    done = call("produce", shop, "orders", *options.replace("''", "").split(" "), stdin=stdin)
    assert (done.code, done.output) == (code, b"")
    assert told in done.complaints
    assert [len(rows) for rows in content(shop, "orders")] == [4, 1]


def test_records_appended_before_an_error_are_reported(shop: Path) -> None:
    batches = pa.table({"value": ["a", "b"]}).to_batches() + pa.table({"value": ["c" * 2_000_000]}).to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    done = call("produce", shop, "orders", "--format", "arrow", "-p", 1, stdin=sink.getvalue().to_pybytes())
    assert done.code == 1
    assert "appended before: 2 records, at offsets 1 to 2 of partition 1" in done.complaints


def test_a_line_that_no_log_takes_ends_before_it_fills_the_memory(shop: Path) -> None:
    done = call("produce", shop, "orders", stdin=b"x" * (3 << 20))
    assert done.code == 1
    assert "stdin, line 1 is longer than the topic's max.message.bytes" in done.complaints


@pytest.mark.slow
def test_parquet_is_not_read_from_a_pipe_and_lines_are_appended_as_they_come(shop: Path) -> None:
    program = [sys.executable, "-m", "pylog", "produce", str(shop), "orders", "-p", "1"]
    read, write = os.pipe()
    with subprocess.Popen(program, stdin=read, stdout=subprocess.PIPE) as process:
        os.close(read)
        os.write(write, b"first\nsecond")
        with pylog.open(shop, mode="r") as store:
            assert store.log("orders", 1).wait_for(1, timeout_ms=60_000) == 2
            os.write(write, b" half\n")
            os.close(write)
            assert store.log("orders", 1).wait_for(2, timeout_ms=60_000) == 3
        assert process.wait() == 0
    assert [row[2] for row in content(shop, "orders")[1][1:]] == [b"first", b"second half"]
    done = subprocess.run([*program, "--format", "parquet"], input=b"", capture_output=True, check=False)
    assert (done.returncode, b"cannot be read from a pipe" in done.stderr) == (2, True)


# ---- what looks alike is told apart --------------------------------------------------------------------------------------------


def test_the_four_letters_null_are_not_shown_as_a_null(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append_many([(None, b"null"), (b"null", None)])
    lines = call("cat", tmp_path / "s", "t").lines
    assert [line.split("\t")[3:5] for line in lines] == [["null", r"\x6eull"], [r"\x6eull", "null"]]
    assert len(call("cat", tmp_path / "s", "t", "--key", r"\x6eull").lines) == 1


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_marks_are_no_part_of_a_record(tmp_path: Path, newline: bytes, mark: bytes) -> None:
    given = {
        "lines": [b"a", b"b", b"c"],
        "jsonl": [b'{"value":"a"}', b'{"value":"b"}', b'{"value":"c"}'],
        "csv": [b"value", b"a", b"b", b"c"],
    }
    for form, lines in given.items():
        with pylog.open(tmp_path / form) as store:
            store.create_topic("t")
        for ending in (b"", newline):
            call("produce", tmp_path / form, "t", "--format", form, stdin=mark + newline.join(lines) + ending)
        assert [value for _, _, value, _ in content(tmp_path / form, "t")[0]] == [b"a", b"b", b"c"] * 2


def test_a_carriage_return_within_a_line_stays(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
    call("produce", tmp_path / "s", "t", stdin=b"a\rb\r\r\nc\n")
    assert [value for _, _, value, _ in content(tmp_path / "s", "t")[0]] == [b"a\rb\r", b"c"]


@pytest.mark.slow
@pytest.mark.pair("scan and follow", "compaction", "truncation")
def test_the_last_records_are_counted_not_their_offsets(tmp_path: Path) -> None:
    """Compaction, a truncation within a batch and the log's start leave gaps."""
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("gaps", cleanup_policy="compact", segment_bytes=300)
        log = store.log("gaps")
        for number in range(40):
            log.append(b"%d" % number, key=b"even" if number % 2 == 0 and number < 30 else b"%d" % number)
        store.compact("gaps")
        log.append_many([(b"x", b"1"), (b"y", b"2"), (b"z", b"3")])
        log.truncate(log.end_offset - 1)  # the whole batch goes
        offsets = [record.offset for record in log.records()]
        assert len(offsets) < log.end_offset - 2
        store.create_topic("empty")
    for count in (1, 2, 3, 7, len(offsets) - 1, len(offsets), len(offsets) + 1, 10**6):
        shown = call("cat", tmp_path / "s", "gaps", "--from", f"-{count}").lines
        assert [int(line.split("\t")[1]) for line in shown] == offsets[-count:]
    shown = call("cat", tmp_path / "s", "gaps", "--from", "-3", "--to", "-1").lines
    assert [int(line.split("\t")[1]) for line in shown] == offsets[-3:-1]
    assert call("cat", tmp_path / "s", "empty", "--from", "-1") == (0, b"", "")


@pytest.mark.slow
def test_cat_without_a_stdout_says_so(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    command = f"{sys.executable} -m pylog cat {tmp_path / 's'} t >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "stdout is closed" in done.stderr


def test_records_with_a_key_are_found_wherever_they_are(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", durability=pylog.Durability.OS) as store:
        store.create_topic("t", partition_count=2, segment_bytes=4000)
        for number in range(300):
            store.log("t", number % 2).append(
                b"%d" % number, key=b"rare" if number in (7, 8, 250) else None if number % 3 else b"k"
            )
    shown = call("cat", tmp_path / "s", "t", "--key", "rare").lines
    assert [line.split("\t")[4] for line in shown] == ["8", "250", "7"]
    assert [line.split("\t")[4] for line in call("cat", tmp_path / "s", "t", "--key", "rare", "--count", 2).lines] == ["8", "250"]
    assert call("cat", tmp_path / "s", "t", "--key", "none").lines == []
