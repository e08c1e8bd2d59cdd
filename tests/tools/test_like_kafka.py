"""`dump --like-kafka` against what Kafka's own tool printed of the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.errors import CorruptionError, InvalidArgumentError, PylogError
from pylog.fs import OsFileSystem
from pylog.tools.like_kafka import DumpOptions, KafkaDump
from support.golden import data as golden_data
from support.golden.data import CorruptVariant, GoldenPartition

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
INDEXES = (".index", ".timeindex")
DECODERS = {"__consumer_offsets": "offsets", "__transaction_state": "transactions"}
EMPTY_INDEX = "Dumping {}\n(0 bytes)\n"  # what the corpus has of those: the tool was not asked
FAILED = "\ntool failed: "

# Java finds the bytes that make these batches too long only when they are decompressed, and minds them less than pylog does.
MINDED_LESS = {"length-plus-1-last", "length-plus-1-middle"}


def printed(directory: Path, options: DumpOptions, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[str]:
    """What is printed of each file of a directory, as the corpus has it."""
    for path in sorted(directory.iterdir()):
        if path.name.endswith(suffixes):
            dump, told = KafkaDump(OsFileSystem(), options), ""
            try:
                for text in dump.text(str(path)):
                    told += text
                told += "".join(f"{line}\n" for line in dump.complaints)
            except PylogError as error:
                told += f"{FAILED}{error}\n"
            yield told.replace(f"{directory}/", "")


def without_empty_indexes(directory: Path) -> Iterator[str]:
    for path, text in zip(
        sorted(p for p in directory.iterdir() if p.name.endswith(SUFFIXES)), printed_data(directory), strict=True
    ):
        index = path.suffix in (*INDEXES, ".txnindex")
        yield EMPTY_INDEX.format(path.name) if index and not path.stat().st_size else text


def printed_data(directory: Path) -> Iterator[str]:
    return printed(directory, DumpOptions(print_data_log=True))


def name_of(partition: GoldenPartition, kind: str) -> str:
    return f"{partition.version}/{partition.case.replace('/', '+')}/{partition.tp}.{kind}"


@pytest.mark.slow
@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_every_golden_file_is_printed_as_by_kafka(version: str):
    for partition in golden_data.partitions(version):
        if version == "4.3.0":
            expected = partition.of.text(partition.entry["dump"])
            assert "".join(without_empty_indexes(partition.directory)) == expected, partition.id
        else:
            assert "".join(printed_data(partition.directory)) == golden_data.tool_output(name_of(partition, "deep")), partition.id


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_internal_topics_are_decoded_as_by_kafka(version: str):
    partitions = [partition for partition in golden_data.partitions(version) if partition.topic in DECODERS]
    decoded = [partition for partition in partitions if version != "4.3.0" or "dumpDecoded" in partition.entry]
    assert decoded
    for partition in decoded:
        found = "".join(printed(partition.directory, DumpOptions(decoder=DECODERS[partition.topic]), (".log",)))
        told = partition.of.text(partition.entry["dumpDecoded"]) if version == "4.3.0" else None
        expected = golden_data.tool_output(name_of(partition, "decoded")) if told is None else told
        logs = [f"Dumping {piece}" for piece in expected.split("Dumping ")[1:] if piece.partition("\n")[0].endswith(".log")]
        assert found == "".join(logs), partition.id


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "options", "suffixes"),
    [
        ("shallow", DumpOptions(), SUFFIXES),
        ("deep", DumpOptions(deep_iteration=True), SUFFIXES),
        ("bare", DumpOptions(print_data_log=True, skip_record_metadata=True), SUFFIXES),
        ("bytes", DumpOptions(deep_iteration=True, max_bytes=3000), (".log",)),
        ("sanity", DumpOptions(index_sanity_check=True), INDEXES),
        ("verify", DumpOptions(verify_index_only=True), INDEXES),
    ],
)
def test_options_do_what_they_do_to_kafkas_tool(kind: str, options: DumpOptions, suffixes: tuple[str, ...]):
    for version, case in (("4.3.0", "mixed-codecs"), ("2.8.2", "v0-v1-v2"), ("4.3.0", "compact-txn/after2")):
        (partition,) = golden_data.case(version, case).partitions
        expected = golden_data.tool_output(f"options/{name_of(partition, kind)}")
        assert "".join(printed(partition.directory, options, suffixes)) == expected


def pieces(variant: CorruptVariant, kind: str) -> list[str]:
    return golden_data.tool_output(f"corrupt/{variant.base}/{variant.variant}.{kind}").split("Dumping ")[1:]


@pytest.mark.slow
def test_damaged_files_are_printed_as_by_kafka_where_its_tool_does_not_fail():
    compared = failed = 0
    for variant in golden_data.corrupt_variants():
        for kind, options in (("shallow", DumpOptions()), ("deep", DumpOptions(print_data_log=True))):
            for told, expected in zip(printed(variant.directory, options), pieces(variant, kind), strict=True):
                if FAILED in expected:
                    failed += FAILED in told  # Java looks one batch ahead, so it sometimes fails where nothing was to be shown
                elif variant.variant not in MINDED_LESS:
                    assert told == f"Dumping {expected}", (variant.id, kind)
                    compared += 1
    assert compared > 2000
    assert failed > 50


def test_lines_before_damage_are_not_lost(tmp_path: Path):
    log = next(iter(golden_data.case("4.3.0", "codec-none-plain").partitions[0].directory.glob("*.log")))
    data = bytearray(log.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + 8 : second + 12] = bytes(4)
    (tmp_path / log.name).write_bytes(data)
    dump, told = KafkaDump(OsFileSystem(), DumpOptions()), []
    with pytest.raises(CorruptionError, match=f"position {second}"):
        told.extend(dump.text(str(tmp_path / log.name)))
    assert "".join(told).count("baseOffset") == 1


def test_a_number_of_bytes_or_a_decoder_that_cannot_be_is_refused():
    with pytest.raises(InvalidArgumentError, match="decoder='x' is not one of offsets, transactions"):
        KafkaDump(OsFileSystem(), DumpOptions(decoder="x"))
    with pytest.raises(InvalidArgumentError, match="max_bytes=-1"):
        KafkaDump(OsFileSystem(), DumpOptions(max_bytes=-1))
