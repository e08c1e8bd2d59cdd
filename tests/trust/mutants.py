"""Mutants: for each fault that was fixed, how to take the fix out again, and the tests that must fail then.

`./dev mutants` runs them (tests/trust/run_mutants.py). tests/trust/test_mutants.py checks in every run that each text occurs once
in its file and that each test exists, and runs the mutants that are marked quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutant:
    """One fix taken out.

    Attributes:
        name: for the command line; letters, digits and underscores.
        file: the source file, from `src/`: "pylog/log/retention.py".
        text: a piece of the file that occurs exactly once.
        replacement: what stands there without the fix.
        tests: ids of tests from the root, "tests/log/test_retention.py::test_name"; each of them must fail.
        why: the fault that comes back, in a sentence.
        quick: runs with the ordinary tests too; for a few whose tests take less than a second.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]
    why: str
    quick: bool = False


_OTHERS: Final = "tests/log/test_times.py::test_a_record_without_a_timestamp_keeps_its_segment_whatever_the_other_timestamps_are"
_ROLLS: Final = "tests/log/test_times.py::test_a_segment_rolls_by_the_clock_if_its_first_timestamp_is_in_the_future_or_missing"

MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="the_tiers_line_is_dropped",
        file="pylog/log/shutdown.py",
        text="    noted &= log_starts.note(raised | lowered)\n",
        replacement="    log_starts.update(raised, starts.keys() - raised.keys())\n",
        tests=("tests/test_tiered.py::test_nothing_that_the_broker_needs_is_dropped_or_changed",),
        why="The broker comes up with another log start, and serves nothing.",
    ),
    Mutant(
        name="reading_starts_at_the_local_log",
        file="pylog/log/state.py",
        text='            raise in_tier(f"{partition.topic}-{partition.partition}", remote, remote.start)\n',
        replacement="            pass\n",
        tests=("tests/test_tiered.py::test_reading_from_the_beginning_never_silently_starts_at_the_local_log",),
        why="Reading from the beginning silently starts after the records of a remote tier.",
    ),
    Mutant(
        name="retention_in_front_of_a_tier",
        file="pylog/log/trimming.py",
        text="    if state.remote_offsets:\n",
        replacement="    if False:\n",
        tests=("tests/test_tiered.py::test_nothing_that_the_broker_needs_is_dropped_or_changed",),
        why="Retention deletes local segments, and with them all that the remote tier has.",
    ),
    Mutant(
        name="a_tier_is_called_damage",
        file="pylog/log/check.py",
        text="        if partition.state.remote_offsets and has_tier(partition.fs, parent_of(partition.directory)):\n",
        replacement="        if False:\n",
        tests=("tests/test_tiered.py::test_a_healthy_tiered_directory_is_called_healthy_and_the_tier_is_named",),
        why="`verify` calls a healthy tiered directory damaged.",
    ),
    Mutant(
        name="links_are_left_out",
        file="pylog/topics/partitions.py",
        text="if entry.is_directory or entry.is_link else None",
        replacement="if entry.is_directory and not entry.is_link else None",
        tests=(
            "tests/test_links.py::test_partitions_behind_links_are_read_by_every_way",
            "tests/test_links.py::test_a_link_that_is_not_followed_is_an_error_in_words_by_every_way",
        ),
        why="A partition behind a symbolic link is left out of every answer.",
    ),
    Mutant(
        name="two_names_of_one_partition",
        file="pylog/topics/links.py",
        text="        if _target(fs, other) == target:\n",
        replacement="        if False:\n",
        tests=("tests/test_links.py::test_a_link_that_is_not_followed_hides_nothing_of_the_others",),
        why="Two links to one directory are two partitions, with two locks.",
    ),
    Mutant(
        name="strangers_links_are_followed",
        file="pylog/fs/system.py",
        text="        if found.st_uid not in (0, os.geteuid(), os.stat(os.path.dirname(path) or os.curdir).st_uid):\n",
        replacement="        if False:\n",
        tests=("tests/test_links.py::test_a_strangers_link_is_not_followed",),
        why="Another user decides by a link where this process reads and writes.",
    ),
    Mutant(
        name="topics_by_name_alone",
        file="pylog/topics/listing.py",
        text="    if is_log_directory(entries):\n",
        replacement="    if True:\n",
        tests=("tests/test_links.py::test_a_directory_that_is_no_store_has_no_topics_by_name_alone",),
        why="Any directory with a name like photos-2024 counts as a topic.",
        quick=True,
    ),
    Mutant(
        name="partitions_counted_from_zero",
        file="pylog/reading.py",
        text="numbers = store.topic(topic).partition_ids if",
        replacement="numbers = range(store.topic(topic).partitions) if",
        tests=("tests/test_reading.py::test_the_partitions_that_are_there_are_read_whatever_their_numbers",),
        why="A directory with some of a topic's partitions cannot be read as a table.",
        quick=True,
    ),
    Mutant(
        name="checkpoint_updates_start_from_old_lines",
        file="pylog/log/checkpoints.py",
        text="        content = self._read()  # as it is now, whoever wrote it\n",
        replacement="        content = self._content\n",
        tests=("tests/log/test_offset_checkpoints.py::test_an_update_starts_from_the_lines_that_are_there_now",),
        why="A checkpoint loses the lines that another process has written since it was read.",
    ),
    Mutant(
        name="checkpoint_lines_are_normalised",
        file="pylog/log/checkpoints.py",
        text="!= line.offset else line\n",
        replacement="!= line.offset else _line_of(line.partition, line.offset)\n",
        tests=("tests/log/test_offset_checkpoints.py::test_lines_of_others_and_starts_below_the_first_segment_stay",),
        why="Lines of another program are rewritten.",
        quick=True,
    ),
    Mutant(
        name="later_checkpoints_are_replaced",
        file="pylog/log/checkpoints.py",
        text="        if content.refused:\n",
        replacement="        if False:\n",
        tests=("tests/log/test_offset_checkpoints.py::test_a_checkpoint_of_a_later_version_is_never_replaced",),
        why="A checkpoint of a later version is replaced, and its lines are lost.",
    ),
    Mutant(
        name="damaged_checkpoints_are_forgotten",
        file="pylog/log/checkpoints.py",
        text='            _set_aside(self._fs, self._root, self._name, content.data or b"")\n',
        replacement="            pass\n",
        tests=("tests/log/test_offset_checkpoints.py::test_a_damaged_checkpoint_keeps_its_good_lines_and_is_kept_aside",),
        why="The bytes of a damaged checkpoint are lost when it is replaced.",
    ),
    Mutant(
        name="root_keeps_what_it_creates",
        file="pylog/fs/ownership.py",
        text="    if parent.st_uid == _ROOT or os.fstat(descriptor).st_uid != _ROOT:\n",
        replacement="    if True:\n",
        tests=(
            "tests/test_ownership.py::test_what_root_creates_in_the_directory_of_another_owner_is_that_owners",
            "tests/test_ownership.py::test_the_owner_of_a_directory_goes_on_where_root_has_written",
        ),
        why="The owner of a directory cannot read the files that root's process leaves in it.",
    ),
    Mutant(
        name="modes_ignore_the_umask",
        file="pylog/fs/ownership.py",
        text="FILE_MODE: Final = 0o666\n",
        replacement="FILE_MODE: Final = 0o600\n",
        tests=("tests/test_ownership.py::test_everything_that_pylog_creates_follows_the_umask",),
        why="New files get mode 0600, whatever the umask says.",
    ),
    Mutant(
        name="replaced_files_lose_their_mode",
        file="pylog/fs/ownership.py",
        text="            _keep(source, old)\n",
        replacement="            pass\n",
        tests=("tests/test_ownership.py::test_a_file_that_is_replaced_keeps_its_mode",),
        why="A checkpoint with mode 0640 has another mode after it was replaced.",
        quick=True,
    ),
    Mutant(
        name="appends_are_not_noted",
        file="pylog/segment/times.py",
        text="        if now_ms > self._latest:\n            self._latest = now_ms\n        elif",
        replacement="        if",
        tests=("tests/log/test_times.py::test_a_record_without_a_timestamp_is_as_old_as_its_append[1048576]",),
        why="A record without a timestamp is deleted a moment after its append: its segment has the age of its file.",
        quick=True,
    ),
    Mutant(
        name="old_timestamps_outweigh_missing_ones",
        file="pylog/segment/age.py",
        text="    young = found.untimed and now_ms - appended <= age_ms\n",
        replacement="    young = False\n",
        tests=(
            _OTHERS + "[one compressed batch]",
            _OTHERS + "[an earlier batch]",
        ),
        why="A record without a timestamp is deleted because another one in its segment has an old timestamp.",
        quick=True,
    ),
    Mutant(
        name="future_timestamps_hold_retention_up",
        file="pylog/segment/age.py",
        text="    newest = largest if 0 <= largest <= now_ms else appended\n",
        replacement="    newest = largest if largest >= 0 else appended\n",
        tests=("tests/log/test_times.py::test_a_timestamp_in_the_future_does_not_hold_retention_up[9223372036854775807]",),
        why="A timestamp in the future keeps its segment and all later ones.",
        quick=True,
    ),
    Mutant(
        name="closing_makes_records_younger",
        file="pylog/log/active_file.py",
        text="        if mtime_ms > 0:\n",
        replacement="        if False:\n",
        tests=("tests/log/test_times.py::test_closing_a_store_makes_no_record_younger[Durability.SYNC]",),
        why="Closing a store makes records without a timestamp as young as the closing.",
    ),
    Mutant(
        name="compaction_forgets_the_time_of_appends",
        file="pylog/log/replacing.py",
        text="        return AppendTimes.of_several(segment.appends for segment in self._replaced).file_ms\n",
        replacement="        return 0\n",
        tests=(
            "tests/log/test_times.py::test_compaction_keeps_the_time_of_the_appends[False]",
            "tests/log/test_times.py::test_compaction_keeps_the_time_of_the_appends[True]",
        ),
        why="A compacted segment is as young as its compaction.",
    ),
    Mutant(
        name="appends_of_others_are_not_noted",
        file="pylog/log/writer.py",
        text="        self.active.note_others(self._clock.now_ms())\n",
        replacement="",
        tests=("tests/log/test_times.py::test_what_another_store_appended_is_not_older_than_its_append",),
        why="A record that another process appended a moment ago is deleted for the age of an earlier one.",
    ),
    Mutant(
        name="first_timestamps_in_the_future_stop_rolls",
        file="pylog/log/rolling.py",
        text="    waited = stamp - first if stamp >= 0 and 0 <= first <= now_ms else now_ms - use.created_ms\n",
        replacement="    waited = now_ms - use.created_ms if first < 0 else stamp - first\n",
        tests=(_ROLLS + "[9223372036854775807]",),
        why="A segment whose first timestamp is in the future does not roll by time.",
        quick=True,
    ),
    Mutant(
        name="future_timestamps_are_taken",
        file="pylog/record/timestamps.py",
        text="        if largest - now_ms > self._after_max_ms:\n",
        replacement="        if False:\n",
        tests=(
            "tests/log/test_times.py::test_a_timestamp_too_far_in_the_future_is_refused_before_anything_is_written[append]",
            "tests/log/test_times.py::test_a_timestamp_too_far_in_the_future_is_refused_before_anything_is_written[send_arrow]",
        ),
        why="A topic takes timestamps of any future.",
        quick=True,
    ),
    Mutant(
        name="every_timestamp_in_seconds_warns",
        file="pylog/record/timestamps.py",
        text="            warned.add(self._topic)\n",
        replacement="            pass\n",
        tests=("tests/log/test_times.py::test_timestamps_in_seconds_draw_one_warning_for_a_topic[append]",),
        why="Each append of a timestamp in seconds draws a warning.",
        quick=True,
    ),
    Mutant(
        name="time_search_ends_in_the_first_segment",
        file="pylog/log/lookup.py",
        text="            if found is not None:\n                return found if found.offset < last else None\n",
        replacement="            return found if found is not None and found.offset < last else None\n",
        tests=(
            "tests/log/test_times.py::test_a_search_by_time_passes_segments_whose_latest_record_was_deleted[400]",
            "tests/log/test_times.py::test_a_search_by_time_passes_batches_that_compaction_emptied",
        ),
        why="A search by time finds nothing if the record with a segment's largest timestamp is gone.",
    ),
    Mutant(
        name="retention_waits_for_its_group",
        file="pylog/log/retention.py",
        text="    if config.retention_group is None:\n        return asked\n",
        replacement="    if True:\n        return asked\n",
        tests=("tests/log/test_retention.py::test_what_the_group_has_not_read_stays",),
        why="Retention deletes records that the retention group has not read.",
        quick=True,
    ),
    Mutant(
        name="dropped_producer_is_finished",
        file="pylog/producer/producer.py",
        text="        if core is not None and core.is_open:\n            has_been_dropped",
        replacement="        if core is not None and not core.is_open:\n            has_been_dropped",
        tests=(
            "tests/test_life_cycle.py::test_fifty_dropped_producers_append_what_was_sent_and_leave_no_thread_and_no_descriptor",
            "tests/test_life_cycle.py::test_a_future_outlives_the_producer_that_was_dropped",
        ),
        why="A producer that is dropped without close leaves its thread.",
    ),
    Mutant(
        name="producers_thread_knows_no_callables",
        file="pylog/producer/core.py",
        text="Sender(home, clock, _without_calls(config), self.buffer)",
        replacement="Sender(home, clock, config, self.buffer)",
        tests=("tests/test_life_cycle.py::test_a_producer_that_is_dropped_in_a_cycle_is_flushed_when_the_cycle_is_collected",),
        why="A serializer that refers to its producer keeps both from being collected.",
    ),
    Mutant(
        name="failed_sends_are_reported",
        file="pylog/producer/failures.py",
        text="        return self.size - len(self.outcome.observed or ())",
        replacement="        return 0",
        tests=("tests/producer/test_failures.py::test_a_report_counts_the_sends_that_no_call_has_asked_for_only",),
        why="flush and close are silent about sends that failed.",
        quick=True,
    ),
    Mutant(
        name="odd_commit_is_skipped",
        file="pylog/offsets/image.py",
        text="        fault = None if value is None else fault_of_commit(value)\n",
        replacement="        fault = None\n",
        tests=("tests/offsets/test_store.py::test_records_of_a_transaction_that_no_kafka_writes_are_skipped",),
        why="One value that cannot be read ends every call about its group.",
        quick=True,
    ),
    Mutant(
        name="odd_value_leaves_the_commit_before_it",
        file="pylog/offsets/image.py",
        text="                self._take_earlier(frame, np.flatnonzero(keys == number)[:-1], written=was)\n",
        replacement="                pass\n",
        tests=("tests/offsets/test_store.py::test_a_record_that_no_kafka_writes_is_skipped_and_no_commit_is_lost_by_it",),
        why="A value that cannot be read hides the commit before it.",
    ),
    Mutant(
        name="internal_topics_refuse_callers",
        file="pylog/log/internal.py",
        text="    kind = InternalLog if source.partition.topic in INTERNAL_TOPICS else Log\n",
        replacement="    kind = Log\n",
        tests=("tests/offsets/test_internal_topics.py::test_producers_are_refused_internal_topics",),
        why="Callers append to Kafka's internal topics.",
    ),
    Mutant(
        name="groups_are_empty_while_their_topic_is_made",
        file="pylog/offsets/store.py",
        text="                    if make or isinstance(error, ClosedError):\n",
        replacement="                    if True:\n",
        tests=("tests/offsets/test_internal_topics.py::test_groups_are_empty_while_the_topic_is_half_made",),
        why="Questions about groups fail while another process creates the topic.",
    ),
    Mutant(
        name="one_rate_for_all_compactions",
        file="pylog/log/cleaner.py",
        text="            self._paid = max(self._paid, now) + size / self._rate\n",
        replacement="            self._paid += size / self._rate\n",
        tests=("tests/log/test_cleaning_rate.py::test_many_topics_are_compacted_at_the_rate_of_one",),
        why="A store that compacted nothing for an hour then compacts without any limit.",
    ),
    Mutant(
        name="metrics_go_on_after_an_unreadable_log",
        file="pylog/monitoring.py",
        text='        yield Sample("log_unreadable", _labels(place), 1)\n        return\n',
        replacement="        raise\n",
        tests=("tests/test_metrics.py::test_a_log_that_cannot_be_opened_hides_nothing_of_the_others",),
        why="Metrics end with the first partition that is damaged.",
    ),
    Mutant(
        name="retention_says_what_it_deletes",
        file="pylog/log/trimming.py",
        text="        trace.later(trace.SEGMENTS_DELETED, source.partition, **facts)\n",
        replacement="        pass\n",
        tests=("tests/test_trace.py::test_a_line_of_retention_says_which_offsets_are_deleted_and_by_which_option",),
        why="Retention deletes segments and no line in the log says so.",
    ),
    Mutant(
        name="lines_cannot_be_forged",
        file="pylog/trace.py",
        text="    return text if _PLAIN.fullmatch(text) else repr(text)\n",
        replacement="    return text\n",
        tests=("tests/test_trace.py::test_text_from_outside_cannot_add_a_line_or_a_fact",),
        why="A group's name adds a line of its own to the log.",
    ),
    Mutant(
        name="dropped_consumer_leaves",
        file="pylog/consumer/consumer.py",
        text="        if core is not None and core.is_open:\n            core.store",
        replacement="        if core is not None and not core.is_open:\n            core.store",
        tests=(
            "tests/test_life_cycle.py::test_fifty_dropped_consumers_leave_no_thread_no_member_and_no_descriptor",
            "tests/test_life_cycle.py::test_a_consumer_that_an_exception_leaves_behind_leaves_its_group",
        ),
        why="A consumer that is dropped without close keeps its partitions from others.",
    ),
    Mutant(
        name="wakeup_ends_a_poll",
        file="pylog/consumer/consumer.py",
        text="            self._core.check_woken()\n",
        replacement="",
        tests=(
            "tests/consumer/test_wakeup.py::test_commits_and_other_calls_take_no_notice_of_it",
            "tests/consumer/test_wakeup.py::test_a_wakeup_before_a_poll_is_remembered_once_and_what_was_there_is_handed_out_by_the_next",
        ),
        why="A poll that waits cannot be ended from another thread.",
    ),
    Mutant(
        name="iteration_looks_after_its_group",
        file="pylog/consumer/consumer.py",
        text="                if at >= core.look_at:\n",
        replacement="                if at < 0:\n",
        tests=(
            "tests/consumer/test_groups.py::test_a_slow_iteration_keeps_its_partitions_and_commits_by_itself",
            "tests/consumer/test_wakeup.py::test_what_iteration_has_in_hand_is_not_lost",
        ),
        why="An iteration that takes its time with the records in hand is put out of its group.",
    ),
    Mutant(
        name="commits_belong_to_their_membership",
        file="pylog/groups/member.py",
        text="        if member_id not in (None, self._member_id):",
        replacement="        if False:",
        tests=("tests/consumer/test_groups.py::test_a_commit_in_the_background_of_an_old_membership_is_refused",),
        why="A commit that was asked for before the member was put out takes the group back.",
    ),
    Mutant(
        name="follow_checks_its_arguments_without_reading",
        file="pylog/log/log.py",
        text="        check_scan(columns, isolation, max_rows)  # without reading",
        replacement="        self.scan(self.end_offset, self.end_offset, columns=columns)  #",
        tests=("tests/log/test_follow.py::test_a_truncation_while_a_follower_begins_is_no_error",),
        why="A follower that begins while another thread truncates raises OffsetOutOfRangeError for an offset that is there.",
    ),
    Mutant(
        name="a_derived_file_that_is_too_large_counts_as_missing",
        file="pylog/fs/derived.py",
        text="    if error.errno in _OF_THE_PROCESS:\n",
        replacement="    if True:\n",
        tests=(
            "tests/log/test_derived_files.py::test_all_records_are_read_and_appended_whatever_a_derived_file_holds",
            "tests/log/test_derived_files.py::test_a_derived_file_that_cannot_be_used_is_a_finding_of_verify_and_of_doctor",
        ),
        why="A derived file that cannot be read keeps the partition from opening.",
    ),
    Mutant(
        name="a_slot_leaves_room_for_the_next_one",
        file="pylog/log/durable_point.py",
        text="    return slot if slot is not None and _is_possible(slot) else None\n",
        replacement="    return slot\n",
        tests=("tests/log/test_derived_files.py::test_a_slot_with_a_right_checksum_and_impossible_numbers_counts_as_none",),
        why="A header at its last number ends each append in struct.error.",
    ),
    Mutant(
        name="numbers_of_checkpoints_have_ranges",
        file="pylog/log/checkpoints.py",
        text="    if not 0 <= found <= high:\n",
        replacement="    if found < 0:\n",
        tests=(
            "tests/log/test_derived_files.py::test_an_epoch_is_an_int32",
            "tests/log/test_derived_files.py::test_a_number_that_kafka_would_not_read_is_none_of_a_checkpoint",
        ),
        why="A checkpoint's number beyond its field ends each read in OverflowError.",
    ),
    Mutant(
        name="producers_expire_at_a_roll",
        file="pylog/log/producer_state.py",
        text="        self.end_offset = end_offset\n        return self.expire(now_ms, expiration_ms)\n",
        replacement="        self.end_offset = end_offset\n        return []\n",
        tests=("tests/log/test_producer_expiry.py::test_producers_that_were_idle_for_a_day_are_forgotten_when_the_log_rolls",),
        why="Producers gather for years where nobody calls tick.",
    ),
    Mutant(
        name="producers_without_a_time_expire_a_day_after_the_append",
        file="pylog/log/loader.py",
        text="    return timestamp if 0 <= timestamp <= now_ms else min(written_ms, now_ms)\n",
        replacement="    return timestamp\n",
        tests=(
            "tests/log/test_producer_expiry.py::test_records_without_a_time_or_of_the_future_expire_a_day_after_their_append",
        ),
        why="A producer of records without a timestamp expires at once, and one of the future never.",
    ),
    Mutant(
        name="every_layout_is_taken",
        file="pylog/record/layouts.py",
        text="        if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):\n",
        replacement="        if pa.types.is_run_end_encoded(given):\n",
        tests=("tests/record/test_layouts.py::test_partitions_are_taken_from_a_dictionary",),
        why="A column of dictionary values, as pandas writes it, is refused.",
    ),
    Mutant(
        name="last_records_are_counted",
        file="pylog/cli/places.py",
        text="        return offset_of_last(log, -place.value, isolation)\n",
        replacement="        return max(log.end_offset + place.value, log.start_offset)\n",
        tests=("tests/cli/test_records.py::test_the_last_records_are_counted_not_their_offsets",),
        why="`cat --from -N` counts offsets, so gaps at the end of a log take the place of records.",
    ),
    Mutant(
        name="carriage_returns_end_lines",
        file="pylog/cli/sources.py",
        text='        lines = [line.removesuffix(b"\\r") for line in lines]\n',
        replacement="",
        tests=("tests/cli/test_records.py::test_line_ends_and_byte_order_marks_are_no_part_of_a_record",),
        why="`pylog produce` keeps the carriage return of lines that end with CR LF.",
    ),
    Mutant(
        name="null_is_not_the_word_null",
        file="pylog/cli/text.py",
        text="    if data == _NULL.encode():\n",
        replacement="    if False:\n",
        tests=("tests/cli/test_records.py::test_the_four_letters_null_are_not_shown_as_a_null",),
        why="`cat` prints the same for a null and for the word null.",
    ),
    Mutant(
        name="view_grows_with_a_roll",
        file="pylog/log/view.py",
        text="        view = object.__new__(SegmentView)\n",
        replacement="        view = self\n",
        tests=(
            "tests/log/test_views.py::test_the_segments_of_a_state_stay_what_they_were_when_the_log_changes[roll]",
            "tests/log/test_views.py::test_a_segment_that_was_never_published_is_in_no_later_view",
        ),
        why="A reader's state grows at a roll, so a time search misses acknowledged records.",
    ),
    Mutant(
        name="read_does_not_ask",
        file="pylog/log/log.py",
        text="            is_known = wanted < self._state.end_offset and not self._may_have_changed()\n",
        replacement="            is_known = wanted < self._state.end_offset\n",
        tests=(
            "tests/log/test_views.py::test_what_another_process_truncated_and_replaced_is_never_read[rw]",
            "tests/log/test_views.py::test_what_another_process_truncated_and_replaced_is_never_read[r]",
        ),
        why="read returns what another process has truncated and replaced.",
    ),
    Mutant(
        name="scan_over_a_truncation_goes_on",
        file="pylog/log/following.py",
        text="                if end > state.start_offset and not goes_on(state, end, crc):\n",
        replacement="                if False:\n",
        tests=(
            "tests/log/test_views.py::test_an_iterator_held_over_a_truncation_of_another_process_gives_nothing_that_was_read_later[active]",
        ),
        why="An iterator goes from records that were truncated to those that replaced them, without a word.",
    ),
    Mutant(
        name="iterators_outlive_close",
        file="pylog/fs/gate.py",
        text="        held = _Steps(self, steps)\n        self._steps.add(held)\n        return held\n",
        replacement="        return steps\n",
        tests=("tests/test_closed.py::test_an_iterator_begun_before_the_end_says_so_at_its_next_step[active-scan-Log.close]",),
        why="A scan goes on after close, and may map a file that is cut: SIGBUS.",
    ),
    Mutant(
        name="records_in_hand_outlive_close",
        file="pylog/fs/gate.py",
        text="        self._chunks.add(held)\n",
        replacement="",
        tests=(
            "tests/test_closed.py::test_an_iterator_begun_before_the_end_says_so_at_its_next_step[active-records-Store.close]",
        ),
        why="records() gives further records after close.",
    ),
    Mutant(
        name="long_intervals_end_the_thread",
        file="pylog/background.py",
        text="nap = min(max(0.0, min(self._due.values()) - self._now), _LONGEST_NAP_S) if self._due else None",
        replacement="nap = max(0.0, min(self._due.values()) - self._now) if self._due else None",
        tests=(
            "tests/test_limits_of_options.py::test_the_longest_interval_of_one_topic_takes_nothing_from_the_level_of_another",
        ),
        why="An interval longer than the system's waits ends the background's work for all topics.",
    ),
    Mutant(
        name="exits_end_the_background",
        file="pylog/background.py",
        text="            task()\n        except BaseException as error:",
        replacement="            task()\n        except Exception as error:",
        tests=("tests/test_limits_of_options.py::test_whatever_a_task_raises_is_counted_and_the_others_go_on[logged-an exit]",),
        why="A SystemExit of one task keeps the other tasks that are due from running.",
    ),
    Mutant(
        name="returned_coroutines_are_errors",
        file="pylog/awaitables.py",
        text="    if is_awaitable(made):\n",
        replacement="    if False:\n",
        tests=("tests/test_coroutines.py::test_a_coroutine_that_a_plain_function_returns_is_closed_and_an_error",),
        why="A coroutine that a callback returns is never awaited, and nothing says so.",
    ),
    Mutant(
        name="coroutine_functions_are_refused",
        file="pylog/awaitables.py",
        text="    if is_coroutine_function(call):\n",
        replacement="    if False:\n",
        tests=(
            "tests/test_coroutines.py::test_a_producer_refuses_coroutine_functions_when_they_are_given",
            "tests/test_coroutines.py::test_a_consumer_refuses_coroutine_functions_when_they_are_given",
        ),
        why="A coroutine function is taken as a listener or callback.",
    ),
    Mutant(
        name="async_consumer_awaits_its_listener",
        file="pylog/aio.py",
        text="        consumer.await_with(partial(_awaited, ref(self)))\n",
        replacement="        consumer.await_with(bool)\n",
        tests=(
            "tests/test_coroutines.py::test_an_asynchronous_consumer_awaits_its_listener_in_the_event_loop_and_its_poll_waits",
        ),
        why="The listener's coroutine of an AsyncConsumer never runs.",
    ),
    Mutant(
        name="closed_loops_are_let_go",
        file="pylog/aio.py",
        text="        made.add_done_callback(self._forget)",
        replacement="        made.add_done_callback(bool)",
        tests=("tests/test_coroutines.py::test_clients_keep_no_event_loop_that_was_closed",),
        why="An asynchronous client keeps event loops that were closed.",
    ),
    Mutant(
        name="stop_iteration_ends_a_call",
        file="pylog/aio.py",
        text="        made = self._last = self._pool.submit(_without_stop_iteration, call)",
        replacement="        made = self._last = self._pool.submit(call)",
        tests=("tests/test_coroutines.py::test_stop_iteration_of_a_listener_ends_the_call",),
        why="A StopIteration of a listener makes a call of AsyncConsumer wait forever.",
    ),
)
