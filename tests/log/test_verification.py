"""`verify` reads everything again and names the file and the place of whatever is not what was written."""

from __future__ import annotations

import itertools
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

import pylog
from pylog import limits
from pylog.clock import ManualClock
from pylog.fs import File, OsFileSystem
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex
from pylog.log.checking.report import Partition, Report
from pylog.log.checking.verification import verify_store
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.producer_snapshots import encode_snapshot
from pylog.record.batch import scan_batches
from pylog.record.format import HEADER_SIZE, LAST_OFFSET, POSITION, PREFIX_SIZE, SIZE
from pylog.segment.header_digest import digest_of
from pylog.segment.names import INDEX, LOG, SEAL, TIME_INDEX, file_name
from pylog.segment.seal import make_seal, write_seal
from support.engines import engine_of, segments_of
from support.golden.data import CorruptVariant, GoldenPartition, case, corrupt_variants, partitions, unclean_cases
from support.log.checking import listing
from support.log.derived import parse_snapshot

FS = OsFileSystem()
SMALL = {"segment_bytes": 900, "index_interval_bytes": 100}


def partition_of(log: pylog.Log, root: Path, **changes: Any) -> Partition:
    """A partition as its log sees it."""
    directory = str(root / f"{log.partition.topic}-{log.partition.partition}")
    return Partition(FS, log.partition, directory, engine_of(log).known, False, False, log.recovery_report)._replace(**changes)


def verified(log: pylog.Log, root: Path, *, changes: dict[str, Any] | None = None, **how: Any) -> Report:
    return verify_store(
        FS, str(root), [lambda: partition_of(log, root, **(changes or {}))], how.pop("clock", ManualClock()), **how
    )


def verify(root: Path, topic: str = "t", partition: int = 0, **how: Any) -> Report:
    """What `verify` says of a store that is opened for reading."""
    with pylog.open(root, mode="r") as store:
        return verified(store.log(topic, partition), root, **how)


def filled(root: Path, records: int, **config: int) -> None:
    """A store with some segments, each but the last one sealed."""
    with pylog.open(root) as store:
        store.create_topic("t", **config)
        log = store.log("t")
        for number in range(records):
            log.append(b"value %d" % number, timestamp=1_000 + number)
        for segment, following in itertools.pairwise(segments_of(log)):
            digest = digest_of(segment, segment.size, 200)
            write_seal(FS, segment.directory, make_seal(segment.base_offset, following.base_offset, digest))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    filled(root, 30, **SMALL)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A closed store of 30 records in three sealed segments and an active one, for a test to damage."""
    return shutil.copytree(sound, tmp_path / "store")


@pytest.fixture
def directory(root: Path) -> Path:
    return root / "t-0"


def named(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.kind, Path(finding.path).name) for finding in findings]


# ---- sound stores ------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("golden", partitions(), ids=lambda partition: partition.id)
def test_directories_of_brokers_verify_clean_with_each_of_their_records(golden: GoldenPartition) -> None:
    report = verify(golden.log_directory, golden.topic, golden.partition, records=True)
    if "readError" in golden.meta:
        assert [finding.kind for finding in report.findings] == ["corrupt"]
        return
    assert report.findings == ()
    assert {file.verdict for file in report.files} <= {"good"}
    logs = {str(path): path.stat().st_size for path in golden.directory.glob("*.log")}
    assert {file.path: file.size for file in report.files} == logs
    assert report.bytes == sum(logs.values())


def test_a_verdict_is_given_for_each_file_and_says_whether_a_seal_vouches_for_it(root: Path, directory: Path) -> None:
    report = verify(root, records=True)
    assert report.ok
    assert report.findings == ()
    assert [Path(file.path).name for file in report.files] == sorted(path.name for path in directory.glob("*.log"))
    assert [file.sealed for file in report.files] == [True] * (len(report.files) - 1) + [False]
    assert (report.batches, report.records) == (30, 30)
    assert sum(file.batches for file in report.files) == 30
    assert str(report.files[0]) == f"good: {directory / file_name(0, LOG)} ({report.files[0].size} bytes, 11 batches, sealed)"


def test_a_log_without_segments_verifies_clean(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        report = verified(store.log("t"), tmp_path, records=True)
    assert (report.findings, report.files, report.bytes) == ((), (), 0)


@pytest.mark.damaged("it was damaged on purpose")
def test_verifying_changes_no_file_damaged_or_not(root: Path, directory: Path) -> None:
    with pylog.open(root) as store:
        log = store.log("t")
        log.append(b"so that the marker is gone already")
        flip(directory / file_name(0, LOG), 100)
        (directory / file_name(0, INDEX)).write_bytes(b"no index")
        (directory / file_name(0, TIME_INDEX)).unlink()
        before = listing(root)
        assert not verified(log, root, records=True).ok
        assert listing(root) == before


# ---- damage ------------------------------------------------------------------------------------------------------------------


def flip(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


def bits_to_flip(data: bytes) -> list[int]:
    """All bits that no batch's checksum covers, and of each other byte one."""
    headers = {
        8 * start + bit
        for start in scan_batches(np.frombuffer(data, np.uint8)).table[POSITION].tolist()
        for bit in range(8 * PREFIX_SIZE)
    }
    return sorted(headers | {8 * byte + byte % 8 for byte in range(len(data))})


@pytest.mark.slow
def test_every_flipped_bit_of_a_sealed_segment_is_named_with_its_place(tmp_path: Path) -> None:
    """All bits of offset, length, leader epoch, magic and checksum; and one of each byte that the checksums cover."""
    root, path = tmp_path, tmp_path / "t-0" / file_name(0, LOG)
    filled(root, 7, segment_bytes=400, index_interval_bytes=100)
    data = path.read_bytes()
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for bit in bits_to_flip(data):
            with path.open("r+b") as file:
                file.seek(bit // 8)
                file.write(bytes([data[bit // 8] ^ 1 << bit % 8]))
            report = verified(log, root)
            found = [finding for finding in report.findings if finding.kind == "corrupt"]
            assert [finding.path for finding in found] == [str(path)], (bit, report)
            assert found[0].position <= bit // 8 < found[0].position + found[0].size
            assert not report.ok
            assert report.files[0].verdict == "corrupt"
            path.write_bytes(data)
        assert verified(log, root).ok


DIFFERENT_BUT_LEGAL = {
    "index-preallocated",  # zeros behind the entries are what a broker leaves that is killed
    "index-cut",  # entries may be missing: an index is sparse
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("variant", corrupt_variants(), ids=lambda variant: variant.id)
def test_the_damaged_file_is_named_and_the_place_in_it(variant: CorruptVariant) -> None:
    report = verify(variant.log_directory, variant.pristine.topic, variant.pristine.partition)
    if variant.variant in DIFFERENT_BUT_LEGAL:
        assert report.findings == ()
        return
    damaged = {name: position for name, position in changed_files(variant).items() if is_needed(variant, name)}
    assert damaged
    for name, position in damaged.items():
        about_it = [finding for finding in report.findings if Path(finding.path).name == name]
        assert any(finding.position <= position <= finding.position + finding.size for finding in about_it), (name, report)


def changed_files(variant: CorruptVariant) -> dict[str, int]:
    """The files of a variant that are not what the broker wrote, each with the first byte that is another one."""
    found = {}
    for pristine in variant.pristine.directory.iterdir():
        path = variant.directory / pristine.name
        left, right = pristine.read_bytes(), path.read_bytes() if path.exists() else b""
        if left != right or not path.exists():
            differs = (place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
            found[pristine.name] = next(differs, min(len(left), len(right)))
    return found


def is_needed(variant: CorruptVariant, name: str) -> bool:
    """Of the deleted files, those that a log needs; a file that was deleted with its segment is reported with the `.log`."""
    path = variant.directory / name
    if path.exists() or path.suffix == LOG or not path.suffix:
        return True
    last = max(variant.directory.glob("*.log")).stem
    return path.with_suffix(LOG).exists() and path.suffix != ".snapshot" and path.stem != last


@pytest.mark.slow
def test_damage_in_a_killed_brokers_directory_is_named(tmp_path: Path) -> None:
    (unclean,) = unclean_cases()
    root = unclean.crashed(tmp_path / "crashed")
    kinds = {
        name: {finding.kind for finding in verify(root, name).findings} - {"derived"}
        for name in ("u-flip", "u-size", "u-flip-below", "u-garbage", "u-zero", "u-plain")
        if (root / f"{name}-0").exists()
    }
    assert kinds.pop("u-plain", set()) == set()
    assert kinds == {
        "u-flip": {"corrupt"},
        "u-size": {"corrupt"},
        "u-flip-below": {"corrupt"},
        "u-garbage": {"torn"},
        "u-zero": {"torn"},
    }


def test_bytes_after_the_last_batch_are_reported_as_a_torn_tail_until_they_are_cut(root: Path, directory: Path) -> None:
    path = max(directory.glob("*.log"))
    (directory / "durable-point").unlink()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(50))
    report = verify(root)
    assert [(found.kind, found.path, found.position, found.size) for found in report.findings] == [("torn", str(path), size, 50)]
    assert report.ok, "they were never acknowledged"


def test_a_torn_tail_that_was_cut_off_is_reported_no_more(root: Path, directory: Path) -> None:
    (directory / "durable-point").unlink()
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(bytes(50))
    (root / ".kafka_cleanshutdown").unlink()
    with pylog.open(root) as store:
        log = store.log("t")
        found = log.recovery_report
        assert [finding.kind for finding in found] == ["torn"]
        log.append(b"behind the cut", timestamp=1_030)
        assert verified(log, root, changes={"writable": True, "found": found}).findings == ()


def test_the_index_files_of_a_segment_that_is_appended_to_are_of_no_account(root: Path, directory: Path) -> None:
    """What counts is in memory; the files are written again when the segment is sealed."""
    last = max(directory.glob("*.index"))
    with pylog.open(root) as store:
        log = store.log("t")
        log.append(b"more", timestamp=1_030)
        last.write_bytes(b"rubbish")
        assert verified(log, root, changes={"writable": True}).findings == ()
    last.write_bytes(b"rubbish")
    assert named(verify(root).findings) == [("derived", last.name)]


def test_a_seal_that_is_damaged_leaves_its_segment_unsealed(root: Path, directory: Path) -> None:
    flip(directory / file_name(0, SEAL), 40)
    report = verify(root)
    assert named(report.findings) == [("derived", file_name(0, SEAL))]
    assert (report.files[0].verdict, report.files[0].sealed) == ("good", False)


def test_several_damages_are_all_named(root: Path, directory: Path) -> None:
    path = directory / file_name(0, LOG)
    table = scan_batches(np.frombuffer(path.read_bytes(), np.uint8)).table
    for batch in (1, 6, 9):
        flip(path, int(table[POSITION, batch]) + HEADER_SIZE + 3)
    flip(max(directory.glob("*.log")), HEADER_SIZE + 3)
    report = verify(root)
    assert [(found.kind, found.offset) for found in report.findings][:3] == [("corrupt", 1), ("corrupt", 6), ("corrupt", 9)]
    assert [file.verdict for file in report.files] == ["corrupt", "good", "corrupt"]
    assert report.batches == 26


# ---- records -----------------------------------------------------------------------------------------------------------------


def with_other_records(path: Path, batch: int, position: int, byte: int) -> int:
    """Changes a byte of a batch's records, corrects its checksum, and returns where the batch begins."""
    data = bytearray(path.read_bytes())
    table = scan_batches(np.frombuffer(bytes(data), np.uint8)).table
    start, size = int(table[POSITION, batch]), int(table[SIZE, batch])
    data[start + HEADER_SIZE + position] = byte
    data[start + 17 : start + 21] = google_crc32c.value(bytes(data[start + 21 : start + size])).to_bytes(4, "big")
    path.write_bytes(data)
    return start


def test_records_that_do_not_parse_under_a_correct_checksum_are_found_on_demand(root: Path, directory: Path) -> None:
    """Bytes that somebody wrote so: no checksum is wrong."""
    path = directory / file_name(0, LOG)
    (directory / file_name(0, SEAL)).unlink()
    starts = [with_other_records(path, batch, 0, 0x7F) for batch in (2, 5)]
    assert verify(root).ok
    report = verify(root, records=True)
    assert [(found.kind, found.path, found.position, found.offset) for found in report.findings] == [
        ("corrupt", str(path), starts[0], 2),
        ("corrupt", str(path), starts[1], 5),
    ]
    assert all(str(found.position) in found.message for found in report.findings)
    assert report.files[0].verdict == "corrupt"


def test_a_codec_of_a_later_kafka_is_unreadable_and_not_damage(root: Path, directory: Path) -> None:
    path = directory / file_name(0, LOG)
    (directory / file_name(0, SEAL)).unlink()
    data = bytearray(path.read_bytes())
    table = scan_batches(np.frombuffer(bytes(data), np.uint8)).table
    start, size = int(table[POSITION, 3]), int(table[SIZE, 3])
    data[start + 22] |= 7
    data[start + 17 : start + 21] = google_crc32c.value(bytes(data[start + 21 : start + size])).to_bytes(4, "big")
    path.write_bytes(data)
    report = verify(root, records=True)
    assert [(found.kind, found.position) for found in report.findings] == [("unreadable", start)]


# ---- transactions and snapshots ----------------------------------------------------------------------------------------------


@pytest.fixture
def transactional(tmp_path: Path) -> Path:
    return case("4.3.0", "txn").copy(tmp_path / "txn")


def entries_of(path: Path) -> list[AbortedTransaction]:
    index, _ = TransactionIndex.from_bytes(int(path.stem), np.frombuffer(path.read_bytes(), np.uint8))
    return list(index.entries)


@pytest.mark.parametrize("lost", [0, -1])
def test_an_aborted_transaction_that_an_index_lacks_is_named(transactional: Path, lost: int) -> None:
    """Its records would be read as committed."""
    path = max((transactional / "txn-0").glob("*.txnindex"), key=lambda path: path.stat().st_size)
    entries = entries_of(path)
    gone = entries.pop(lost)
    path.write_bytes(b"".join(entry.encoded() for entry in entries))
    (found,) = verify(transactional, "txn").findings
    assert (found.kind, found.path, found.offset) == ("derived", str(path), gone.first_offset)
    assert "does not have an aborted transaction" in found.message


def test_a_committed_transaction_that_an_index_calls_aborted_is_named(transactional: Path) -> None:
    """Its records would be hidden."""
    path = max((transactional / "txn-0").glob("*.txnindex"), key=lambda path: path.stat().st_size)
    entries = entries_of(path)
    changed = entries[-1]._replace(first_offset=entries[-1].first_offset - 1)
    path.write_bytes(b"".join(entry.encoded() for entry in [*entries[:-1], changed]))
    (found,) = verify(transactional, "txn").findings
    assert (found.kind, found.path) == ("derived", str(path))
    assert "was not aborted" in found.message


def test_a_snapshot_that_says_something_else_than_the_batches_is_named(transactional: Path) -> None:
    path = max((transactional / "txn-0").glob("*.snapshot"))
    state = parse_snapshot(path.read_bytes(), int(path.stem), "")
    changed = [state.producers[0]._replace(last_sequence=state.producers[0].last_sequence + 1), *state.producers[1:]]
    path.write_bytes(encode_snapshot(ProducerStateManager(changed)))
    assert named(verify(transactional, "txn").findings) == [("derived", path.name)]
    path.write_bytes(encode_snapshot(ProducerStateManager(state.producers[1:])))
    assert verify(transactional, "txn").ok, "an idle producer may be forgotten"


# ---- beside others -----------------------------------------------------------------------------------------------------------


def test_beside_a_writer_only_what_was_published_when_it_began_is_read(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", **SMALL)
        log = store.log("t")
        for number in range(15):
            log.append(b"value %d" % number)
        partition = partition_of(log, tmp_path, writable=True)
        published = sum(partition.state.size_of(segment) for segment, _ in partition.segments())
        for number in range(20):  # the active segment grows, is sealed, and others follow
            log.append(b"later %d" % number)
        with max((tmp_path / "t-0").glob("*.log")).open("ab") as file:
            file.write(b"half a batch")
        report = verify_store(FS, str(tmp_path), [lambda: partition], ManualClock(), records=True)
        assert report.findings == ()
        assert (report.records, report.bytes) == (15, published)


def test_a_segment_that_retention_takes_meanwhile_is_no_finding(root: Path, directory: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for path in directory.glob(f"{0:020d}.*"):
            path.unlink()
        report = verified(log, root)
    assert report.findings == ()
    assert [file.batches > 0 for file in report.files] == [False, True, True]


@pytest.mark.damaged("it was damaged on purpose")
def test_a_segment_that_is_replaced_while_it_is_verified_is_verified_again(root: Path, directory: Path) -> None:
    """Another process compacts: what was half read of the old file and half of the new one proves nothing."""
    path = directory / file_name(0, LOG)
    data = path.read_bytes()
    end = int(scan_batches(np.frombuffer(data, np.uint8)).table[POSITION, 6])
    steps: list[int] = []

    def replaced_meanwhile(done: int, total: int, name: str) -> None:
        steps.append(done)
        if len(steps) == 1:
            path.write_bytes(data)

    for suffix in (INDEX, TIME_INDEX, SEAL):
        (directory / file_name(0, suffix)).unlink()
    with pylog.open(root) as store:
        log = store.log("t")
        segments_of(log)[0].rebuild_indexes()
        path.write_bytes(data[:end])
        report = verified(log, root, progress=replaced_meanwhile)
        assert report.findings == ()
        assert report.records == 30
        assert steps[-1] == sum(file.size for file in report.files)
        path.write_bytes(data[:end])
        assert ("missing", path.name) in named(verified(log, root).findings), "when nothing moves, it is true"


def test_an_altered_header_of_the_active_segment_is_found_by_the_digest_that_the_log_knows(root: Path, directory: Path) -> None:
    path = max(directory.glob("*.log"))
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        digest = digest_of(segments_of(log)[-1], path.stat().st_size)
        known = {"header_digest": (digest.position, digest.value)}
        assert verified(log, root, changes=known).ok
        table = scan_batches(np.frombuffer(path.read_bytes(), np.uint8)).table
        flip(path, int(table[POSITION, -1]) + 15)
        report = verified(log, root, changes=known)
    assert ("corrupt", path.name) in named(report.findings)
    assert report.files[-1].sealed is False


class BadSector(OsFileSystem):
    """The real file system, but one file cannot be read from a position on."""

    def __init__(self, path: Path, position: int) -> None:
        self._bad = str(path), position

    def open(self, path: str, *, write: bool = False) -> Any:
        file = super().open(path, write=write)
        return _Unreadable(file, self._bad[1]) if path == self._bad[0] else file


class _Unreadable:
    def __init__(self, file: File, position: int) -> None:
        self._file = file
        self._position = position

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def expect(self, position: int, end: int) -> Any:
        return self

    def read_into(self, view: memoryview, position: int) -> int:
        if position + len(view) > self._position:
            raise pylog.StorageFailedError("cannot read: a bad sector", path=self._file.path, position=position, errno=5)
        return self._file.read_into(view, position)


def test_a_file_that_the_system_cannot_read_is_named_and_the_others_are_read(root: Path, directory: Path) -> None:
    path = directory / file_name(0, LOG)
    fs = BadSector(path, 0)
    with pylog.open(root, mode="r", fs=fs) as store:
        log = store.log("t")
        report = verified(log, root)
    assert ("unreadable", path.name) in named(report.findings)
    assert [file.verdict for file in report.files] == ["unreadable", "good", "good"]
    assert report.records == 30 - 11


def test_a_store_verifies_itself(root: Path, directory: Path) -> None:
    with pylog.open(root, mode="r") as store:
        report = store.verify(records=True)
        assert (report.findings, report.partitions, report.records) == ((), 1, 30)
        flip(directory / file_name(0, LOG), 100)
        report = store.verify()
        assert named(report.findings) == [("corrupt", file_name(0, LOG))]
        assert [file.verdict for file in report.files] == ["corrupt", "good", "good"]


def test_a_partition_that_cannot_be_opened_is_a_finding_and_the_others_are_read(root: Path) -> None:
    def broken() -> Partition:
        raise pylog.StorageFailedError("a link, not a file", path="/elsewhere")

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        report = verify_store(FS, str(root), [broken, lambda: partition_of(log, root)], ManualClock())
    assert [(found.kind, found.path) for found in report.findings] == [("unreadable", "/elsewhere")]
    assert (report.partitions, report.records) == (2, 30)


# ---- how it goes about it ----------------------------------------------------------------------------------------------------


def test_progress_is_reported_up_to_the_last_byte_whether_bytes_are_damaged_or_not(root: Path, directory: Path) -> None:
    flip(directory / file_name(0, LOG), 30)
    seen: list[tuple[int, int, str]] = []
    verify(root, progress=lambda *step: seen.append(step))
    total = sum(path.stat().st_size for path in directory.glob("*.log"))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert done[-1] == total
    assert {step[1] for step in seen} == {total}
    assert sorted({step[2] for step in seen}) == sorted(str(path) for path in directory.glob("*.log"))


@pytest.mark.parametrize("rate_limit", [100, 1000, 0.5])
def test_reading_is_held_to_a_rate(root: Path, directory: Path, rate_limit: float) -> None:
    clock, moments = ManualClock(5_000), []
    verify(root, clock=clock, rate_limit=rate_limit, progress=lambda done, *_: moments.append((done, clock.monotonic() - 5)))
    total = sum(path.stat().st_size for path in directory.glob("*.log"))
    assert clock.monotonic() - 5 == pytest.approx(total / rate_limit)
    assert all(before[0] / rate_limit <= after[1] * (1 + 1e-9) for before, after in itertools.pairwise(moments))


def test_a_slow_disk_is_not_slowed_down_further(root: Path) -> None:
    clock = ManualClock(5_000)
    verify(root, clock=clock, rate_limit=1_000, progress=lambda *_: clock.advance(60_000))
    before = clock.monotonic()
    assert before - 5 == pytest.approx(60 * len(list((root / "t-0").glob("*.log"))))


@pytest.mark.parametrize("rate_limit", [0, -1, float("nan")])
def test_a_rate_that_is_none_is_refused(root: Path, rate_limit: float) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="rate_limit"):
        verify(root, rate_limit=rate_limit)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=16 << 20)
        log = store.log("t")
        for _ in range(4):
            log.append_arrow(pa.table({"value": pa.array([bytes(1000)] * 12_000, pa.binary())}))
        verified(log, tmp_path, records=True)  # kernels are loaded
        tracemalloc.start()
        report = verified(log, tmp_path, records=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert report.ok
    assert report.bytes > 48_000_000
    assert peak < 4 * limits.VERIFY_CHUNK_BYTES + (4 << 20)  # two chunks, each with room for what the one before cut off


def test_the_last_offset_of_each_table_is_where_the_next_one_goes_on(tmp_path: Path) -> None:
    """A segment larger than a chunk: seals, indexes and offsets are compared across the chunks' borders."""
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=8 << 20)
        log = store.log("t")
        for _ in range(3):
            log.append_arrow(pa.table({"value": pa.array([bytes(5000)] * 1_000, pa.binary())}))
        first, *_ = segments_of(log)
        table = scan_batches(first.file().read(0, first.size)).table
        digest = digest_of(first, first.size)
        write_seal(FS, first.directory, make_seal(0, int(table[LAST_OFFSET, -1]) + 1, digest))
        report = verified(log, tmp_path, records=True)
        assert first.size > 3 * (2 << 20)
    assert report.findings == ()
    assert report.files[0].sealed
    assert report.records == 3_000
