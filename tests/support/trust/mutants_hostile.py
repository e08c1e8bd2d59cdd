"""Mutants of files that lie under right checksums."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_WRAPPERS: Final = "tests/log/test_offsets_in_wrappers.py::"

HOSTILE: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="parsers_errors_come_through_the_door",
        file="pylog/fs/kinds.py",
        text="        except Exception as error:\n            raise self._refusal(path, error) from error\n",
        replacement="",
        tests=(
            "tests/test_doors.py::test_whatever_a_parser_raises_is_an_error_of_pylog_with_the_path_and_what_to_do[OverflowError]",
        ),
        why="A parser's own error ends an opening or a read.",
    ),
    Mutant(
        name="checkpoint_lines_become_objects_before_they_are_counted",
        file="pylog/directory/checkpoints.py",
        text='    if data.count(b"\\n") > limits.MAX_CHECKPOINT_LINES + 2:\n        raise ValueError',
        replacement="    if False:\n        raise ValueError",
        tests=("tests/test_doors.py::test_a_checkpoint_of_too_many_lines_is_refused_before_its_lines_become_objects",),
        why="A checkpoint of 64 MiB takes gigabytes.",
    ),
    Mutant(
        name="names_from_files_are_paths",
        file="pylog/fs/inside.py",
        text="    if not _is_name(name):\n",
        replacement="    if False:\n",
        tests=(
            "tests/test_names_from_files.py::test_a_querys_file_that_names_a_file_outside_is_refused_and_nothing_appended[../elsewhere/staged]",
        ),
        why="A query's file has records of a file outside of the store appended.",
    ),
    Mutant(
        name="a_querys_file_names_another_query",
        file="pylog/staging/intents.py",
        text="    if intent_name(intent.query) != name:",
        replacement="    if False:",
        tests=("tests/test_names_from_files.py::test_a_querys_file_that_is_another_querys_writes_no_file_of_that_name[cd-34]",),
        why="A query's file decides which file is written when its micro-batch is done.",
    ),
    Mutant(
        name="unreadable_intents_stop_opening",
        file="pylog/staging/names.py",
        text="    except PylogError as error:  # an intent",
        replacement="    except ZeroDivisionError as error:  # an intent",
        tests=(
            "tests/test_names_from_files.py::test_a_querys_file_that_cannot_be_read_keeps_no_store_from_opening_and_all_staging_files[nested]",
        ),
        why="One unreadable file of a query keeps the store from opening for writing.",
    ),
    Mutant(
        name="parsers_errors_come_through",
        file="pylog/directory/documents.py",
        text="    except _UNREADABLE as error:\n",
        replacement="    except ZeroDivisionError as error:\n",
        tests=(
            "tests/test_names_from_files.py::test_an_index_of_a_staging_file_that_lies_under_its_checksum_is_refused[rubbish]",
        ),
        why="An odd byte in a JSON file of the store ends in an error of the parser.",
    ),
    Mutant(
        name="wrappers_have_any_offsets",
        file="pylog/record/legacy.py",
        text="        if not highest < record.offset <= last:\n",
        replacement="        if False:\n",
        tests=(_WRAPPERS + "test_a_wrapper_with_offsets_of_another_place_is_damage_and_reading_goes_on_after_it[0-inner0]",),
        why="Records of formats 0 and 1 come out of order, twice, or with offsets of other batches.",
    ),
    Mutant(
        name="only_damage_has_a_way_on",
        file="pylog/log/reading/good_batches.py",
        text="    error.path, error.next_offset = segment.path, next_offset\n",
        replacement="    error.path = segment.path\n",
        tests=(_WRAPPERS + "test_each_error_of_records_that_cannot_be_read_says_as_a_number_where_reading_goes_on[bomb]",),
        why="A program cannot read on after a decompression bomb or an unknown codec.",
    ),
    Mutant(
        name="arrow_offsets_are_believed",
        file="pylog/record/from_arrow.py",
        text="            _check_layout(batch)\n            yield",
        replacement="            yield",
        tests=(
            "tests/record/test_arrow_layout.py::test_a_column_whose_offsets_go_back_or_lead_outside_is_refused[append-binary-offsets0]",
        ),
        why="Arrow data with offsets that go back is appended as other records.",
    ),
    Mutant(
        name="a_negative_count_of_a_dump",
        file="pylog/tools/records.py",
        text=" & (table[COUNT] >= 0)",
        replacement="",
        tests=(
            "tests/tools/test_like_kafka_lies.py::test_a_batch_with_impossible_numbers_is_shown_or_not[data-a negative count]",
        ),
        why="A dump in Kafka's format ends in an error of Python's.",
    ),
    Mutant(
        name="counts_of_a_catalog_are_believed",
        file="pylog/topics/catalog.py",
        text="    if _partitions(catalog) > limits",
        replacement="    if not catalog and 0 > limits",
        tests=("tests/test_names_from_files.py::test_a_catalog_with_more_partitions_together_than_memory_holds_is_refused",),
        why="A catalog of some kilobytes takes 40 GB.",
    ),
)
