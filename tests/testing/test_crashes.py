"""The crash states of a recording are those that a disk can be left in, and no others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from pylog.errors import InvalidArgumentError
from pylog.testing import Crash, MemoryFileSystem, Moment, RecordingFileSystem, restarted
from pylog.testing.crashes import FEW, RANDOM_SUBSETS, PartialWrite, selected
from pylog.testing.recording import GUARDING


def write(fs: Any, path: str, data: bytes, position: int = 0) -> Any:
    file = fs.open(path, write=True) if fs.exists(path) else fs.create(path)
    file.write(memoryview(data), position)
    return file


def contents(fs: MemoryFileSystem) -> dict[str, bytes | None]:
    return {entry.name: fs.read("/" + entry.name, 1 << 20) if entry.is_file else None for entry in fs.list("/")}


def left(fs: RecordingFileSystem, crash: Crash) -> dict[str, bytes | None]:
    """What a crash leaves, as the next process sees it."""
    _, image = Moment.of(fs.recording, crash.after).state(crash)
    return contents(MemoryFileSystem(image=image))


def states_now(fs: RecordingFileSystem) -> list[dict[str, bytes | None]]:
    """What a loss of power can leave at the end of a recording, each once."""
    moment = Moment.of(fs.recording, len(fs.recording))
    found = {}
    for crash in moment.crashes(random.Random(0)):
        digest, image = moment.state(crash)
        found[digest] = contents(MemoryFileSystem(image=image))
    return list(found.values())


def whole_states(fs: RecordingFileSystem) -> list[dict[str, bytes | None]]:
    """The same without partial writes."""
    moment = Moment.of(fs.recording, len(fs.recording))
    return [left(fs, crash) for crash in moment.crashes(random.Random(0), cuts=0)]


# ---- what is volatile --------------------------------------------------------------------------------------------------------


def test_nothing_is_volatile_once_everything_is_synced() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"1").sync()
    fs.sync_directory("/")
    assert states_now(fs) == [{"a": b"1"}]


def test_a_synced_file_whose_name_was_not_synced_may_be_gone() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"1").sync()
    assert states_now(fs) == [{}, {"a": b"1"}]


def test_a_name_that_was_synced_may_have_none_of_its_bytes() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"1")
    fs.sync_directory("/")
    assert {"a": b""} in states_now(fs)
    assert {"a": b"\0"} in states_now(fs)  # the size without the data
    assert {} not in states_now(fs)


def test_volatile_writes_get_to_the_disk_in_any_order() -> None:
    fs = RecordingFileSystem()
    file = write(fs, "/a", b"..")
    file.sync()
    fs.sync_directory("/")
    file.write(memoryview(b"x"), 0)
    file.write(memoryview(b"y"), 1)
    assert whole_states(fs) == [{"a": b".."}, {"a": b"xy"}, {"a": b"x."}, {"a": b".y"}]


def test_a_cut_may_be_lost_while_the_write_after_it_is_kept() -> None:
    fs = RecordingFileSystem()
    file = write(fs, "/a", b"abcd")
    file.sync()
    fs.sync_directory("/")
    file.truncate(1)
    file.write(memoryview(b"X"), 1)
    assert {"a": b"aXcd"} in whole_states(fs)
    file.sync()
    assert states_now(fs) == [{"a": b"aX"}]


def test_a_sync_covers_what_its_file_or_directory_has_open_and_nothing_else() -> None:
    fs = RecordingFileSystem()
    file, other = write(fs, "/a", b"1"), write(fs, "/b", b"2")
    file.write(memoryview(b"3"), 1)
    file.sync()
    fs.sync_directory("/")
    other.sync()
    moment = Moment.of(fs.recording, 5)  # two creations, three writes
    assert moment.volatile == [0, 1, 2, 3, 4]
    assert [moment.covered_by(number) for number in (4, 5, 6, 7)] == [[], [1, 4], [0, 2], [3]]


def test_a_rename_happens_whole_or_not_at_all_and_takes_the_old_file_away() -> None:
    fs = RecordingFileSystem()
    for name in ("/a", "/b"):
        write(fs, name, name.encode()).sync()
    fs.sync_directory("/")
    fs.rename("/a", "/b")
    assert states_now(fs) == [{"a": b"/a", "b": b"/b"}, {"b": b"/a"}]


def test_changes_of_names_are_lost_one_by_one() -> None:
    fs = RecordingFileSystem()
    for name in ("/a", "/b"):
        write(fs, name, b"").sync()
    fs.sync_directory("/")
    fs.rename("/a", "/A")
    fs.remove("/b")
    assert [sorted(state) for state in whole_states(fs)] == [["a", "b"], ["A"], ["A", "b"], ["a"]]


def test_files_in_a_directory_whose_name_was_not_synced_are_lost_with_it() -> None:
    fs = RecordingFileSystem()
    fs.make_directory("/d")
    write(fs, "/d/a", b"1").sync()
    fs.sync_directory("/d")
    assert whole_states(fs) == [{}, {"d": None}]
    fs.sync_directory("/")
    assert whole_states(fs) == [{"d": None}]


def test_a_tree_may_be_removed_in_part() -> None:
    fs = RecordingFileSystem()
    fs.make_directory("/d")
    for name in ("/d/a", "/d/b"):
        write(fs, name, b"").sync()
    fs.sync_directory("/d")
    fs.sync_directory("/")
    fs.remove_tree("/d")
    found = set()
    for crash in Moment.of(fs.recording, len(fs.recording)).crashes(random.Random(0)):
        _, image = Moment.of(fs.recording, crash.after).state(crash)
        there = MemoryFileSystem(image=image)
        found.add(tuple(entry.name for entry in there.list("/d")) if there.exists("/d") else None)
    assert found == {None, (), ("a",), ("b",), ("a", "b")}


# ---- partial writes ----------------------------------------------------------------------------------------------------------


def test_a_write_is_cut_at_each_sector_and_at_each_of_its_last_bytes() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", bytes(1500))
    moment = Moment.of(fs.recording, 2)
    assert sorted({cut.size for cut in moment.cuts(1)}) == [0, 512, 1024, *range(1436, 1500)]
    assert moment.cuts(0) == []


@pytest.mark.parametrize(("filling", "wanted"), [("absent", b"OLDnew"), ("zeros", b"OLDnew\0\0\0\0"), ("stale", b"OLDnewOLDO")])
def test_the_missing_part_of_a_write_is_absent_zeros_or_what_was_written_before(filling: str, wanted: bytes) -> None:
    fs = RecordingFileSystem()
    file = write(fs, "/a", b"OLD")
    file.sync()
    fs.sync_directory("/")
    file.write(memoryview(b"newdata"), 3)
    assert left(fs, Crash(5, (4,), PartialWrite(4, 3, filling))) == {"a": wanted}


def test_noise_is_the_same_in_every_run() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"0123456789")
    crash = Crash(2, (0, 1), PartialWrite(1, 2, "random"))
    state = left(fs, crash)["a"]
    assert state is not None
    assert state[:2] == b"01"
    assert len(state) == 10
    assert state == left(fs, crash)["a"] != b"0123456789"


def test_an_overwrite_that_is_cut_leaves_the_old_bytes_after_it() -> None:
    fs = RecordingFileSystem()
    file = write(fs, "/a", b"abcdef")
    file.sync()
    fs.sync_directory("/")
    file.write(memoryview(b"XYZ"), 1)
    assert left(fs, Crash(5, (4,), PartialWrite(4, 1, "absent"))) == {"a": b"aXcdef"}


# ---- which are tried ---------------------------------------------------------------------------------------------------------


def test_all_selections_of_few_operations_are_tried_and_those_that_matter_of_many() -> None:
    rng = random.Random(0)
    assert len(set(selected(range(FEW), rng))) == 2**FEW
    many = list(selected(range(12), rng))
    prefixes = {tuple(range(size)) for size in range(13)}
    one_missing = {tuple(other for other in range(12) if other != number) for number in range(12)}
    assert prefixes | one_missing | {(number,) for number in range(12)} <= set(many)
    assert {kept for kept in many if len(kept) == 10} >= set(itertools.combinations(range(12), 10))
    assert len(many) == len(set(many)) > RANDOM_SUBSETS + 66
    assert all(list(kept) == sorted(kept) for kept in many)


def test_a_budget_draws_the_same_ways_for_the_same_seed_and_keeps_the_extremes() -> None:
    fs = RecordingFileSystem()
    for number in range(10):
        write(fs, f"/{number}", b"1")
    moment = Moment.of(fs.recording, len(fs.recording))
    drawn = [list(moment.crashes(random.Random(seed), subsets=5, cuts=7)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {(), tuple(range(20))} <= {crash.kept for crash in drawn[0]}
    assert sum(crash.cut is not None for crash in drawn[0]) == 7
    assert 5 <= sum(crash.cut is None for crash in drawn[0]) <= 7


def test_a_crash_is_told_in_a_line_that_can_be_read_again() -> None:
    for crash in (Crash(0, ()), Crash(9, (1, 8), PartialWrite(8, 3, "stale")), Crash(3, (2,), None, power=False)):
        assert Crash.parse(str(crash)) == crash
    with pytest.raises(InvalidArgumentError):
        Crash.parse("after=x")


# ---- the death of a process --------------------------------------------------------------------------------------------------


def test_a_dead_process_leaves_everything_that_it_asked_for_and_part_of_its_last_write() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"abc")
    deaths = list(Moment.of(fs.recording, 2).deaths(random.Random(0)))
    assert [left(fs, crash) for crash in deaths] == [{"a": b"abc"}, {"a": b""}, {"a": b"a"}, {"a": b"ab"}]
    assert not any(crash.power for crash in deaths)
    fs.sync_directory("/")
    assert [left(fs, crash) for crash in Moment.of(fs.recording, 3).deaths(random.Random(0))] == [{"a": b"abc"}]


def test_records_that_a_dead_process_did_not_sync_can_still_be_lost_with_the_power() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"abc")
    fs.sync_directory("/")
    again = restarted(fs.recording, Crash(3, (1,), PartialWrite(1, 2, "absent"), power=False))
    assert again.boot_id() == fs.boot_id()
    assert contents(again) == {"a": b"ab"}
    write(again, "/b", b"")
    assert {"a": b""} in states_now(again)
    again.open("/a").sync()
    assert {"a": b""} not in states_now(again)


def test_after_a_power_loss_the_remaining_bytes_are_durable() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"abc")
    again = restarted(fs.recording, Crash(2, (0, 1)))
    assert again.boot_id() != fs.boot_id()
    assert states_now(again) == [{"a": b"abc"}]


def test_the_number_of_a_lost_file_is_not_used_again() -> None:
    fs = RecordingFileSystem()
    lost = write(fs, "/lost", b"").identity()
    again = restarted(fs.recording, Crash(2, ()))
    assert write(again, "/b", b"").identity() != lost


# ---- recording ---------------------------------------------------------------------------------------------------------------


def test_each_call_is_noted_with_the_place_that_made_it() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"1").sync()
    site = fs.recording.sites[-1]
    assert (site.kind, site.function) == ("sync", "test_each_call_is_noted_with_the_place_that_made_it")
    assert site.caller.startswith("_pytest.")
    assert [one.function for one in fs.recording.sites[:2]] == ["write", "write"]
    assert site.module.endswith("test_crashes")


def test_a_call_that_failed_is_not_noted() -> None:
    fs = RecordingFileSystem()
    failing: list[Callable[[], object]] = [
        lambda: fs.remove("/none"),
        lambda: fs.rename("/none", "/a"),
        lambda: fs.create("/x/y"),
    ]
    for call in failing:
        with pytest.raises(Exception, match="ENOENT"):
            call()
    assert len(fs.recording) == 0


def test_a_site_that_is_left_out_does_nothing() -> None:
    def use(fs: RecordingFileSystem) -> list[str]:
        write(fs, "/a", b"1").sync()
        fs.sync_directory("/")
        fs.rename("/a", "/b")
        return list(contents(fs)) + list(contents(fs.crash()))

    intact = RecordingFileSystem()
    assert use(intact) == ["b", "a"]
    assert set(GUARDING) <= {site.kind for site in intact.recording.sites}
    assert use(RecordingFileSystem(without=lambda site: site.kind == "rename")) == ["a", "a"]
    assert use(RecordingFileSystem(without=lambda site: site.kind == "sync_directory")) == ["b"]


def test_marks_say_what_was_known_when() -> None:
    fs = RecordingFileSystem()
    fs.recording.mark("nothing")
    write(fs, "/a", b"1")
    fs.recording.mark("written")
    fs.recording.mark("told")
    fs.sync_directory("/")
    assert [fs.recording.known_after(count) for count in range(4)] == ["nothing", "nothing", "told", "told"]


def test_all_processes_write_into_one_recording() -> None:
    fs = RecordingFileSystem()
    write(fs, "/a", b"1")
    write(fs.process(), "/b", b"2")
    assert [operation.path for operation in fs.recording.operations] == ["/a", "/a", "/b", "/b"]
