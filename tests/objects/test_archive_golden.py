"""The directories of three brokers, archived and restored: each `.log` has the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from support.golden import data as golden_data
from support.objects import MemoryObjects, every_url

PARTITIONS = {"2.8.2": 74, "3.9.1": 59, "4.3.0": 84}


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log") if path.stat().st_size}


def differences(case: golden_data.GoldenCase, tmp_path: Path) -> Iterator[str]:
    """Yields each partition that is not restored as it was, with the reason if it has one."""
    shop = case.copy(tmp_path / "shop")
    with pylog.open(shop, durability=pylog.Durability.OS) as store:
        report = store.archive("s3://any", include_active=True)
    restored = pylog.restore("s3://any", tmp_path / "copy")
    lowered = {each.partition.topic for each in restored.lowered} and {"__consumer_offsets"}
    for each in report.partitions:
        name = f"{each.partition.topic}-{each.partition.partition}"
        before = {partition.tp: logs(partition.directory) for partition in case.partitions}.get(name)
        if before is None or logs(tmp_path / "copy" / name) == before:
            continue
        reasons = {
            "damaged": bool(each.findings),
            "open transaction": each.archived_end_offset < each.end_offset,
            "deleted": each.start_offset == each.end_offset,
            "lowered offsets": each.partition.topic in lowered,
        }
        yield f"{name}: {next((reason for reason, holds in reasons.items() if holds), 'differs')}"


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(PARTITIONS))
def test_a_brokers_directories_are_restored_byte_for_byte(version: str, tmp_path: Path) -> None:
    count, found = 0, []
    for number, case in enumerate(case for case in golden_data.cases(version) if case.partitions):
        with every_url(MemoryObjects()):
            found += differences(case, tmp_path / str(number))
        count += len(case.partitions)
    assert count == PARTITIONS[version]
    assert not [each for each in found if each.endswith("differs")]
    assert len(found) <= 5
