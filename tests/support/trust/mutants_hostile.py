"""Mutants of files that lie under right checksums."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_WRAPPERS: Final = "tests/log/test_offsets_in_wrappers.py::"

HOSTILE: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_directory_is_found_in_any_case",
        file="pylog/log_opener.py",
        text="        if other == name or not self._fs.exists(join(self._path, other)):\n            return True\n",
        replacement="        if True:\n            return True\n",
        tests=("tests/test_names_without_case.py::test_a_topic_in_another_spelling_does_not_exist[True-log]",),
        why="On a file system that ignores case, a second log of the same files writes beside the first one.",
    ),
    Mutant(
        name="a_file_that_is_too_short_makes_the_whole_log_unreadable",
        file="pylog/log/checking/check.py",
        text=', "offset": end}',
        replacement="}",
        tests=(
            (
                "tests/tools/test_verify.py::"
                "test_a_file_that_is_shorter_than_was_synced_costs_the_records_that_it_lacks_and_no_others[200]"
            ),
        ),
        why="verify calls records lost that can be read.",
    ),
    Mutant(
        name="each_search_after_damage_has_the_whole_bound",
        file="pylog/segment/batch_search.py",
        text="            at, self._budget = int(result[0]), int(result[1])\n",
        replacement="            at = int(result[0])\n",
        tests=tuple(
            "tests/test_cost_in_proportion.py::"
            f"test_headers_that_each_claim_the_rest_of_a_file_cost_a_walk_no_more_than_some_times_the_file[{name}]"
            for name in ("claims_between_messages", "claims_between_batches")
        ),
        why="A file of some megabytes with crafted headers takes hours.",
    ),
    Mutant(
        name="zeros_after_batches_are_read_again_and_again",
        file="pylog/segment/batch_search.py",
        text="                self._budget -= len(part)\n",
        replacement="",
        tests=(
            (
                "tests/test_cost_in_proportion.py::"
                "test_headers_that_each_claim_the_rest_of_a_file_cost_a_walk_no_more_than_some_times_the_file[batches_in_batches]"
            ),
        ),
        why="A file whose batches all end before the same zeros takes the square of its size.",
    ),
    Mutant(
        name="a_deletion_parses_the_catalog_for_each_partition",
        file="pylog/topics/changes.py",
        text="            catalog = self._catalog.read()\n",
        replacement="            catalog = read_catalog(self._fs, self._root)\n",
        tests=(
            (
                "tests/test_cost_in_proportion.py::"
                "test_the_deletion_of_a_topic_parses_the_catalog_as_often_for_many_partitions_as_for_few"
            ),
        ),
        why="The deletion of a topic of some thousand partitions takes minutes.",
    ),
    Mutant(
        name="refused_slots_of_members_leave_no_line",
        file="pylog/groups/members_file.py",
        text="        self._report_refused(known)\n",
        replacement="",
        tests=(
            (
                "tests/log/test_lines_of_derived_files.py::"
                "test_a_file_of_members_with_slots_that_are_refused_leaves_one_line_when_a_member_joins"
            ),
        ),
        why="A file of members that lies is used as if it were empty, without a word.",
    ),
    Mutant(
        name="any_directory_becomes_a_store",
        file="pylog/root_directory.py",
        text="        if not options.create:\n            check_usable(self._fs, self._path)\n",
        replacement="",
        tests=("tests/test_helpful_arguments.py::test_a_directory_with_other_files_gets_no_locks_and_no_topics",),
        why="A wrong path gets lock files, and then its directories count as topics.",
    ),
    Mutant(
        name="missing_partitions_are_listed_one_by_one",
        file="pylog/log_manager.py",
        text="        if not self._opener.names(key):\n",
        replacement="        if True:\n",
        tests=("tests/test_cost_in_proportion.py::test_partitions_that_are_missing_cost_no_listing_each[metrics]",),
        why="A number in the catalog makes reports take the square of it.",
    ),
    Mutant(
        name="a_consumer_looks_for_missing_partitions_again_and_again",
        file="pylog/consumer/core.py",
        text="range(2 + len({partition.topic for partition in self.assignment.partitions}))",
        replacement="range(1 + len(self.assignment.places))",
        tests=(
            "tests/test_cost_in_proportion.py::test_a_consumer_does_not_look_for_every_missing_partition_as_often_as_there_are_partitions",
        ),
        why="A number in the catalog makes a poll take the square of it.",
    ),
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
    Mutant(
        name="locks_outlive_topics",
        file="pylog/directory/locks.py",
        text="self._bytes: WeakValueDictionary[int, ByteLock] = WeakValueDictionary()",
        replacement="self._bytes: dict[int, ByteLock] = {}",
        tests=("tests/test_what_grows.py::test_a_deleted_topic_leaves_no_locks_routes_and_logs[store]",),
        why="A store keeps three locks for each partition that was ever deleted.",
    ),
    Mutant(
        name="deleted_topics_are_kept_by_name",
        file="pylog/log_manager.py",
        text="        self.kept.forget(lambda topic: topic == name)\n",
        replacement="",
        tests=("tests/test_what_grows.py::test_a_deleted_topic_leaves_no_locks_routes_and_logs[consumer]",),
        why="Producers and consumers keep routes and logs of topics that are deleted.",
    ),
    Mutant(
        name="a_look_keeps_what_others_deleted",
        file="pylog/store.py",
        text="self._manager.current_topics()",
        replacement="self._manager.topics()",
        tests=("tests/test_what_grows.py::test_a_look_at_the_topics_lets_go_of_what_another_process_deleted[r]",),
        why="A store without ticks keeps the files of topics that another process deleted.",
    ),
    Mutant(
        name="encoders_keep_their_buffers",
        file="pylog/record/buffers.py",
        text="        while len(kept) > 1 and sum(each.size for each in list(kept)) > self._bound:",
        replacement="        while not kept:",
        tests=("tests/test_what_grows.py::test_buffers_of_appends_have_one_bound",),
        why="The buffers of appends have no bound.",
    ),
    Mutant(
        name="buffers_are_used_again_too_early",
        file="pylog/record/buffers.py",
        text=" and getrefcount(buffer.data) <= _ONE_REFERENCE and getrefcount(buffer.table) <= _ONE_REFERENCE:",
        replacement=":",
        tests=("tests/test_what_grows.py::test_a_buffer_of_an_append_is_not_used_again_while_its_batches_are",),
        why="An append writes over batches that another one has not written yet.",
    ),
    Mutant(
        name="findings_outlive_topics",
        file="pylog/root_directory.py",
        text="                self.findings.pop(finding, None)",
        replacement="                pass",
        tests=("tests/test_what_grows.py::test_findings_of_a_deleted_topic_leave_the_report",),
        why="The report of a store that stays open grows with each deleted topic that had damage.",
    ),
    Mutant(
        name="records_of_several_topics_are_taken_for_one",
        file="pylog/producer/sender.py",
        text="        if self._buffer.topics == 1:",
        replacement="        if taken:",
        tests=("tests/test_what_grows.py::test_records_of_a_forgotten_route_and_of_the_next_one_go_to_their_own_topics",),
        why="Records of several topics are appended to the first one.",
    ),
    Mutant(
        name="errors_in_the_background_are_kept",
        file="pylog/background.py",
        text="            self.count += 1\n",
        replacement="            self.count += 1\n            self._all = [*getattr(self, '_all', ()), error]\n",
        tests=("tests/test_what_grows.py::test_errors_in_the_background_are_counted_and_not_kept",),
        why="A store whose tick fails for a year keeps each error.",
    ),
    Mutant(
        name="each_shutdown_leaves_a_snapshot",
        file="pylog/log/recovery/producer_snapshots.py",
        text="    for offset in superseded if bases else ():",
        replacement="    for offset in ():",
        tests=("tests/test_what_grows.py::test_a_log_that_is_opened_and_closed_each_day_keeps_few_producer_snapshots",),
        why="Each clean shutdown leaves a file, which is never removed.",
    ),
    Mutant(
        name="headers_have_no_bound",
        file="pylog/record/decoder.py",
        text="            if bad is not None:\n                output.state[:]",
        replacement="            if bad is not None and not table.size:\n                output.state[:]",
        tests=("tests/test_what_grows.py::test_a_batch_with_too_many_headers_is_refused_after_the_records_before_it",),
        why="A batch of two kilobytes takes gigabytes as objects.",
    ),
    Mutant(
        name="a_writer_takes_more_headers_than_readers",
        file="pylog/record/builder.py",
        text="        check_headers(rows.header_count() if whole else rows.most_headers(), ",
        replacement="        check_headers(0, ",
        tests=(
            (
                "tests/test_written_is_read.py::"
                "test_headers_that_a_writer_takes_are_read_and_more_are_refused_before_they_are_written[append_many]"
            ),
        ),
        why="A record is acknowledged whose headers no reader takes.",
    ),
    Mutant(
        name="a_writer_compresses_more_than_readers_decompress",
        file="pylog/record/builder.py",
        text="        if len(payload) > limits.MAX_BATCH_DECOMPRESSED_BYTES:\n            return None\n",
        replacement="",
        tests=("tests/test_written_is_read.py::test_records_of_more_bytes_than_a_reader_decompresses_stay_uncompressed[zstd]",),
        why="A record is acknowledged that no reader decompresses.",
    ),
    Mutant(
        name="a_catalog_outgrows_its_readers",
        file="pylog/fs/kinds.py",
        text='        if len(data) > self.bound(size):\n            message = f"{path} would',
        replacement='        if False:\n            message = f"{path} would',
        tests=("tests/test_written_is_read.py::test_a_catalog_that_readers_would_refuse_is_not_written",),
        why="A new topic makes a store that does not open again.",
    ),
    Mutant(
        name="holes_are_read",
        file="pylog/segment/batch_search.py",
        text="        while (position := max(position, next_data(position) - LOG_OVERHEAD)) < end:",
        replacement="        while position < end:",
        tests=("tests/log/test_sparse_files.py::test_a_log_of_gigabytes_of_nothing_costs_what_is_there[a sealed segment-r]",),
        why="A file of a few kilobytes on the disk takes half a minute to read.",
    ),
    Mutant(
        name="two_findings_at_one_offset_end_verify",
        file="pylog/tools/verify.py",
        text="sorted((first, end - 1 if last is None else last) for first, last in lost)",
        replacement="sorted(lost)",
        tests=("tests/tools/test_verify.py::test_two_findings_at_the_same_offset_are_both_reported",),
        why="verify ends with a TypeError.",
    ),
    Mutant(
        name="each_candidate_of_an_old_format_reads_the_rest_again",
        file="pylog/segment/batch_search.py",
        text="            if _fits(entry):\n                self._budget -= len(entry)\n",
        replacement="            if True:\n",
        tests=("tests/test_cost_in_proportion.py::test_a_batch_that_is_there_many_times_takes_time_in_proportion_to_the_file",),
        why="A file of two megabytes takes minutes to open.",
    ),
    Mutant(
        name="a_copy_fills_holes",
        file="pylog/fs/extents.py",
        text="    while (found := next_data(position)) < end:\n",
        replacement="    while (found := position) < end:\n",
        tests=("tests/log/test_sparse_files.py::test_a_copy_has_the_bytes_and_the_holes_of_its_source",),
        why="The backup of a file of kilobytes takes the gigabytes that its size says.",
    ),
    Mutant(
        name="a_refused_seal_leaves_no_line",
        file="pylog/segment/batch_walk.py",
        text="            trace.later(trace.IGNORED, path=segment.path_of(SEAL), reason=str(error))\n",
        replacement="            del error\n",
        tests=("tests/log/test_lines_of_derived_files.py::test_a_seal_that_is_refused_leaves_one_line",),
        why="A seal that lies is left out without a word.",
    ),
    Mutant(
        name="a_refused_header_is_made_again_without_a_line",
        file="pylog/log/durable_point.py",
        text="        if header.is_refused():\n",
        replacement="        if False:\n",
        tests=("tests/log/test_lines_of_derived_files.py::test_a_header_that_is_refused_is_made_again_with_one_line",),
        why="A header that lies is replaced without a word.",
    ),
    Mutant(
        name="a_refused_marker_leaves_no_line",
        file="pylog/directory/checkpoints.py",
        text="    if fault is not None:\n        trace.later(trace.IGNORED",
        replacement="    if False:\n        trace.later(trace.IGNORED",
        tests=("tests/log/test_lines_of_derived_files.py::test_a_marker_or_metadata_that_is_refused_leaves_one_line",),
        why="Each log checks its end when it is opened, and nothing says why.",
    ),
    Mutant(
        name="a_batch_begins_at_the_end_of_a_hole",
        file="pylog/segment/batch_search.py",
        text="next_data(position) - LOG_OVERHEAD)",
        replacement="next_data(position))",
        tests=(
            (
                "tests/log/test_sparse_files.py::"
                "test_records_after_a_hole_are_found_even_if_their_batch_begins_with_zeros[some bytes before its end-r]"
            ),
        ),
        why="A batch whose first bytes are zeros in a hole is lost.",
    ),
    Mutant(
        name="an_index_is_made_again_without_a_line",
        file="pylog/segment/segment.py",
        text="        if self.sealed:  # the indexes of an active segment may be in its writer's memory only\n",
        replacement="        if False:\n",
        tests=(
            "tests/log/test_lines_of_derived_files.py::test_an_index_that_is_missing_or_refused_leaves_one_line_with_its_path[.index-missing]",
        ),
        why="An index is rebuilt, and nothing says so.",
    ),
    Mutant(
        name="topics_are_listed_without_the_engine",
        file="pylog/cli/topics.py",
        text="    rows = unopened_answer(store, _rows)\n",
        replacement="    rows = None\n",
        tests=("tests/cli/test_unopened.py::test_a_command_that_needs_names_and_sizes_only_loads_no_engine[topics]",),
        why="A list of names and sizes takes the start-up time of the engine.",
    ),
    Mutant(
        name="damaged_commits_are_not_read_from_an_unopened_directory",
        file="pylog/offsets/unopened.py",
        text="    if not good_crc(data, at, at + column[SIZE]):\n",
        replacement="    if False:\n",
        tests=("tests/cli/test_unopened.py::test_a_directory_that_is_damaged_gets_the_engine_s_answers[flipped]",),
        why="Groups are listed from bytes that do not match their checksum.",
    ),
    Mutant(
        name="a_segment_whose_copy_is_not_finished_counts",
        file="pylog/objects/tier_records.py",
        text="if segment.state == COPY_FINISHED]",
        replacement="]",
        tests=("tests/objects/test_kafka_tier.py::test_only_segments_whose_copy_is_finished_and_not_deleted_count[0]",),
        why="Segments are read whose copy was never finished, or which are being deleted.",
    ),
    Mutant(
        name="a_segment_of_another_leader_counts",
        file="pylog/objects/tier_files.py",
        text="        segments = [each for each in found if on_lineage(each, epochs, limits.INT64_MAX)]\n        _note",
        replacement="        segments = found\n        _note",
        tests=("tests/objects/test_kafka_tier.py::test_a_segment_of_a_leader_that_the_log_does_not_have_does_not_count",),
        why="Records are read that a later leader has replaced.",
    ),
    Mutant(
        name="a_tier_without_a_log_start_is_left_out",
        file="pylog/objects/tier_files.py",
        text="        start = tiered_log_start(recorded, epochs)\n",
        replacement="        start = recorded\n",
        tests=("tests/objects/test_kafka_tier.py::test_a_broker_that_has_not_yet_written_its_log_starts_has_its_remote_records",),
        why="The remote records of a running broker are left out without an error.",
    ),
    Mutant(
        name="chunks_of_a_tier_have_any_size",
        file="pylog/objects/aiven_manifest.py",
        text="    if wrong.size:\n",
        replacement="    if False:\n",
        tests=(
            (
                "tests/objects/test_kafka_tier.py::"
                "test_a_lying_manifest_is_one_error_that_names_its_url[stored chunks of other sizes]"
            ),
        ),
        why="A manifest from a bucket decides how much is read and allocated.",
    ),
)
