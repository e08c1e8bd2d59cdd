"""Mutants of "Beside and beneath": threads of one store, and processes that change a directory under an open store."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_CLOSE: Final = "tests/beside/test_close.py::"
_BEGINNING: Final = "its beginning-compact"
_CUT_SHORT: Final = "tests/log/test_trimming_cut_short.py::"
_FORMS: Final = "tests/record/test_two_forms.py::"
_FIRST: Final = "tests/trust/test_first_calls.py::"
_MADE_AGAIN: Final = "tests/test_topic_made_again.py::"
_READERS: Final = "tests/transactions/test_readers_beside.py::"
_REFRESHES: Final = "tests/beside/test_refreshes.py::"
_FILES: Final = "tests/beside/test_replaced_files.py::"
_CLOSED: Final = "tests/beside/test_closed_under_calls.py::"
_DELETED_FILES = "tests/log/test_deleted_files.py::"
_FULL = "tests/campaign/test_full_disk_crashes.py::"
_TAKEN = "test_segments_are_deleted_on_a_full_disk_although_another_program_has_taken_the_reserve"
_LOCK_FILES: Final = "tests/beside/test_lock_files_removed_at_each_step.py::"

BESIDE: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="the_administrator_asks_the_log_of_a_deleted_topic",
        file="pylog/transactions/admin.py",
        text="for entry in self._manager.log(*key).open_producers()]\n",
        replacement="for entry in self._manager.known_log(key).open_producers()]\n",
        tests=(_MADE_AGAIN + "test_the_administrator_sees_and_settles_the_transactions_of_the_topic_that_was_created_again",),
        why="`find_open` leaves out the transactions of a topic that another process created again.",
    ),
    Mutant(
        name="a_followed_segment_stays_without_producers",
        file="pylog/log/recovery/loaded.py",
        text="        self.end, self.next_offset, self.plain = end, next_offset, False\n",
        replacement="        self.end, self.next_offset = end, next_offset\n",
        tests=(
            _READERS + "test_an_open_transaction_in_a_segment_that_had_only_plain_records_is_not_read_as_committed[r-end_offset]",
        ),
        why="A reader beside a writer takes open transactions for ended ones, and ended ones for open ones.",
    ),
    Mutant(
        name="a_reader_without_the_lock_does_not_remember_a_deletion",
        file="pylog/log/reading/refresher.py",
        text="            self.is_deleted = True\n",
        replacement="            pass\n",
        tests=(_REFRESHES + "test_the_log_of_a_topic_that_was_created_again_is_the_new_one_also_while_the_lock_is_taken",),
        why="While another process has the lock, `Store.log` returns the log of the topic that was deleted.",
    ),
    Mutant(
        name="a_closed_logs_writer_takes_calls",
        file="pylog/log/writing/partition_writer.py",
        text="            if self._is_closed:  # a caller that has this object is not always inside the log's gate\n",
        replacement="            if False:\n",
        tests=(_CLOSE + "test_code_that_took_a_logs_writer_before_the_close_gets_its_error_and_opens_no_file_again",),
        why="A sweep of transactions beside `close` reads a closed file, or opens a closed log for writing again.",
    ),
    Mutant(
        name="heartbeats_are_written_after_the_close",
        file="pylog/groups/heartbeat.py",
        text="            with self._gate:\n                self._file.beat(polled=True)\n",
        replacement="            self._file.beat(polled=True)\n",
        tests=(
            (
                "tests/test_closed.py::"
                "test_a_poll_that_is_under_way_when_another_thread_closes_the_store_writes_nothing_later[False]"
            ),
        ),
        why="A file of the directory changes after `close` has returned, when another process may own it.",
    ),
    Mutant(
        name="the_rest_of_the_reserve_waits_for_another_call",
        file="pylog/log_manager.py",
        text="        self.full_disk.complete_reserve()  # loading removes what a dead process left\n",
        replacement="",
        tests=(
            (
                "tests/campaign/test_full_disk_crashes.py::test_a_crash_between_two_steps_on_a_full_disk_loses_nothing_and_the_"
                "call_can_be_finished[truncate in a sealed segment]"
            ),
        ),
        why="After a crash on a full disk, appends take the blocks that calls which free room need.",
    ),
    Mutant(
        name="the_catalogs_type_is_prepared_at_its_first_use",
        file="pylog/topics/catalog.py",
        text="    catalog = decoded(_CATALOG_DECODER, data, damaged)\n",
        replacement="    catalog = msgspec.json.decode(data, type=Catalog)\n",
        tests=(_FIRST + "test_no_type_of_msgspec_is_prepared_at_its_first_use",),
        why="Two threads that read the catalog first in a process crash it.",
    ),
    Mutant(
        name="each_thread_compiles_a_kernel",
        file="pylog/record/kernel.py",
        text="                    return self._compiled or self._compile_or_refuse()\n",
        replacement="                    return self._compile_or_refuse()\n",
        tests=(_FIRST + "test_a_kernel_is_compiled_once_even_if_several_threads_call_it_first",),
        why="Eight threads that call a kernel first compile it eight times.",
    ),
    Mutant(
        name="a_little_work_loads_the_compiler",
        file="pylog/record/kernel.py",
        text="        if self.records <= CACHED_AFTER or self.refusal:\n",
        replacement="        if not self.records:\n",
        tests=(_FORMS + "test_a_cached_kernel_takes_over_when_the_process_has_done_enough",),
        why="The first append of each process imports numba, which takes half a second.",
    ),
    Mutant(
        name="a_signal_handler_compiles_inside_a_compilation",
        file="pylog/record/kernel.py",
        text="        return WORK.loader == threading.get_ident()\n",
        replacement="        return False\n",
        tests=(_FORMS + "test_a_signal_handler_inside_a_compilation_gets_the_plain_form",),
        why="A signal handler that reads while numba compiles ends the process.",
    ),
    Mutant(
        name="a_compiler_that_is_not_loaded_ends_the_call",
        file="pylog/record/kernel.py",
        text="            except (ImportError, OSError, MemoryError) as error:\n",
        replacement="            except ZeroDivisionError as error:\n",
        tests=(_FORMS + "test_a_process_without_the_compiler_runs_the_plain_form[OSError]",),
        why="Under a limit of memory, reading raises an error of numba about a shared object file.",
    ),
    Mutant(
        name="a_block_that_no_thread_reads_fails",
        file="pylog/objects/remote_file.py",
        text="        if not has_reader:\n            self._read()\n",
        replacement="        if not has_reader:\n            future.set_exception(RuntimeError())\n",
        tests=("tests/test_no_more_threads.py::test_archived_records_are_read_and_verified_without_another_thread",),
        why="Under a limit of threads, a sound archived segment is called damaged.",
    ),
    Mutant(
        name="a_lock_around_the_import_of_a_plain_form_is_copied_by_a_fork",
        file="pylog/record/kernel.py",
        text="    @property\n    def pure(self)",
        replacement="    @functools.cached_property\n    def pure(self)",
        tests=(_FORMS + "test_a_child_forked_while_another_thread_waits_for_a_plain_form_gets_its_own",),
        why="On Python 3.11 a forked child waits without end for a lock of a thread that it does not have.",
    ),
    Mutant(
        name="the_plain_encoder_converts_all_headers_for_each_window",
        file="pylog/record/few.py",
        text="    start, total = ends[0], ends[-1] - ends[0]  # of a slice: only a part of the columns\n",
        replacement="    start, total = 0, ends[-1]\n",
        tests=(_FORMS + "test_the_plain_encoder_converts_each_header_once",),
        why="The time of an append grows with the square of its headers.",
    ),
    Mutant(
        name="the_plain_encoder_copies_records_that_do_not_fit",
        file="pylog/record/pure_encoding.py",
        text="        end = min(end, first + max(1, fitting))\n",
        replacement="        end = max(end, first + fitting)\n",
        tests=(_FORMS + "test_the_plain_encoder_copies_no_more_than_its_output_has_room_for",),
        why="An append of large records copies a thousand of them for each part of a few that it writes.",
    ),
    Mutant(
        name="hashing_a_few_keys_copies_all",
        file="pylog/partitioner.py",
        text="ends.tolist(), memoryview(data), [], OK",
        replacement="ends.tolist(), data.tobytes(), [], OK",
        tests=(_FORMS + "test_hashing_the_keys_of_a_slice_copies_only_those",),
        why="send_arrow of a table in slices copies the whole column of keys for each slice.",
    ),
    Mutant(
        name="headers_are_no_work",
        file="pylog/record/kernel.py",
        text="        self.headers += count\n",
        replacement="",
        tests=(_FORMS + "test_millions_of_headers_in_one_record_are_read_by_the_compiled_form[decode_records]",),
        why="A file of 6 KB keeps a reader busy for 15 seconds.",
    ),
    Mutant(
        name="an_interrupted_close_keeps_its_locks",
        file="pylog/fs/descriptors.py",
        text="        self._taken = descriptor  # an interrupt",
        replacement="        # an interrupt",
        tests=("tests/log/test_descriptors.py::test_an_interrupt_as_a_lock_file_closes_does_not_keep_its_locks",),
        why="After Ctrl-C during close, no process can open the store until the interrupted one ends.",
    ),
    Mutant(
        name="a_replaced_segment_is_forgotten",
        file="pylog/log/state.py",
        text="        return self.epoch, self.replacements\n",
        replacement="        return (0, self.replacements) if self.replacements else (self.epoch, 0)\n",
        tests=(_FILES + "test_a_reader_that_saw_a_segment_go_without_the_header_goes_on_after_each_later_compaction",),
        why="A reader that has seen a broker delete a segment calls a sound log damaged at each later compaction.",
    ),
    Mutant(
        name="transactions_are_looked_for_once",
        file="pylog/log/reading/follower.py",
        text="                if not self._has_other_segments():\n                    raise\n",
        replacement="                raise\n",
        tests=(_FILES + "test_the_stable_offset_is_found_while_segments_are_deleted[truncate]",),
        why="stable_offset raises 'No such file' next to another process that truncates.",
    ),
    Mutant(
        name="a_running_compaction_leaves_files_over",
        file="pylog/log/checking/report.py",
        text="            report = question(read()._replace(quiet=idle))\n",
        replacement="            report = question(look())\n",
        tests=(_FILES + "test_the_files_of_a_compaction_that_goes_on_are_no_findings[.log.cleaned-check]",),
        why="Store.check reports the files of a compaction that another thread runs as left over.",
    ),
    Mutant(
        name="mappings_keep_a_descriptor",
        file="pylog/fs/mapping.py",
        text="        self._address, self.size = address, size\n",
        replacement="        self._address, self.size = address, size\n        os.dup(descriptor)\n",
        tests=("tests/log/test_descriptors.py::test_sealed_segments_of_a_store_open_for_writing_need_no_descriptor",),
        why="Each mapped segment and index uses up a descriptor.",
    ),
    Mutant(
        name="no_descriptor_and_nothing_released",
        file="pylog/fs/open_files.py",
        text="        if error.errno not in _NONE_LEFT + also or _releasing.is_active:\n",
        replacement="        if True:\n",
        tests=("tests/log/test_descriptors.py::test_a_call_that_finds_no_descriptor_left_has_other_logs_release_theirs",),
        why="A call fails although other logs keep files that nobody uses.",
    ),
    Mutant(
        name="the_bound_is_the_whole_limit",
        file="pylog/fs/open_files.py",
        text="limits.OPEN_FILES, limit() // _READING",
        replacement="limits.OPEN_FILES, limit()",
        tests=("tests/log/test_descriptors.py::test_the_bound_follows_the_limit_of_the_process",),
        why="pylog leaves no descriptor to the rest of the process.",
    ),
    Mutant(
        name="a_busy_owner_is_counted_no_more",
        file="pylog/fs/open_files.py",
        text="                self._add(owner)  # it is asked again later\n",
        replacement="                pass\n",
        tests=(
            "tests/log/test_descriptors.py::test_an_owner_that_cannot_release_its_file_stays_counted_and_another_one_is_asked",
        ),
        why="Writers that were at work when others needed descriptors stay open, and nothing limits them.",
        quick=True,
    ),
    Mutant(
        name="scans_keep_what_they_mapped",
        file="pylog/fs/pages.py",
        text="            self._regions[region.key] = region\n",
        replacement=(
            "            self._regions[region.key] = region\n            self.kept = [*getattr(self, 'kept', ()), mapping]\n"
        ),
        tests=("tests/log/test_descriptors.py::test_mappings_of_segments_and_their_indexes_are_bounded",),
        why="Segments that were released stay mapped.",
    ),
    Mutant(
        name="no_descriptor_is_no_process",
        file="pylog/fs/open_files.py",
        text="        raise_if_none_left(error, path)\n        return None\n",
        replacement="        return None\n",
        tests=("tests/log/test_descriptors.py::test_without_a_descriptor_no_process_is_taken_for_dead_and_no_lock_for_free",),
        why="A process that is alive is taken for a dead one, and its files are removed, if no descriptor is left.",
    ),
    Mutant(
        name="a_refresh_that_began_earlier_is_taken",
        file="pylog/log/reading/refresher.py",
        text="        if self.ended <= ticket:\n",
        replacement="        if self.ended < ticket:\n",
        tests=(_REFRESHES + "test_a_thread_that_finds_another_one_refreshing_does_not_take_its_older_state[end_offset]",),
        why="A record that another process acknowledged is not there for a thread that asks while another thread refreshes.",
    ),
    Mutant(
        name="a_writer_answers_with_its_last_state",
        file="pylog/log/reading/refresher.py",
        text="            return self._second_state(wait=wait, committed=committed)\n",
        replacement="            return self._known()\n",
        tests=(_REFRESHES + "test_a_store_that_has_written_sees_what_a_process_acknowledged_that_keeps_the_lock",),
        why="A store that has written once answers seconds late while another process appends and rolls.",
    ),
    Mutant(
        name="a_question_is_asked_once",
        file="pylog/log/reading/lookup.py",
        text="            if now.version == state.version:\n",
        replacement="            if True:\n",
        tests=(_FILES + "test_a_question_about_segments_is_asked_again_after_another_store_deleted_them[r]",),
        why="A call that meets a segment that another process deleted raises 'No such file'.",
    ),
    Mutant(
        name="a_deleted_topic_is_a_closed_store",
        file="pylog/open_logs.py",
        text="of_topic(topic):\n            self._take_out(key).close(deleted=True)\n",
        replacement="of_topic(topic):\n            self._take_out(key).close()\n",
        tests=(
            "tests/beside/test_close.py::test_a_log_whose_topic_this_store_deleted_says_so_and_not_that_the_store_is_closed[append]",
        ),
        why="Calls, `tick` and `flush` raise ClosedError of an open store while another thread deletes a topic.",
    ),
    Mutant(
        name="a_store_that_closes_takes_the_guard_first",
        file="pylog/log_manager.py",
        text="        self.gate.shut()  # before the guard",
        replacement="        # before the guard",
        tests=(
            "tests/beside/test_close.py::test_close_does_not_wait_for_a_lock_that_calls_of_other_threads_take_again_and_again",
        ),
        why="`Store.close` waits without a bound for a lock that calls of other threads take again and again.",
    ),
    Mutant(
        name="a_store_that_closes_its_consumer_is_another_user",
        file="pylog/consumer/consumer.py",
        text="    consumer._guard.ended_by = get_ident()\n",
        replacement="",
        tests=(
            "tests/beside/test_close.py::test_a_poll_during_the_close_of_its_store_says_that_it_is_closed_and_not_that_the_consumer_is_shared",
        ),
        why="A poll raises IllegalStateError while another thread closes the store.",
    ),
    Mutant(
        name="a_reader_writes_its_index_for_whatever_has_the_name",
        file="pylog/segment/segment.py",
        text="                if free and file is self._file and self._identity == self.fs.identity(self.path):\n",
        replacement="                if free:\n",
        tests=(
            _FILES + "test_an_index_that_a_read_rebuilds_is_not_written_for_a_file_that_has_replaced_the_one_it_read[compaction]",
        ),
        why="A read that rebuilds an index during a compaction leaves it for the compacted segment: `check` finds it damaged.",
    ),
    Mutant(
        name="a_compaction_says_bad_file_descriptor",
        file="pylog/log/maintenance/cleaner.py",
        text="    with task.explaining():\n        return _clean_or_trace(task)\n",
        replacement="    return _clean_or_trace(task)\n",
        tests=(
            f"{_CLOSE}test_a_compaction_passes_over_a_topic_that_is_deleted_meanwhile_and_says_that_the_store_was_closed[{_BEGINNING}]",
        ),
        why="`compact` raises EBADF while another thread deletes the topic.",
    ),
    Mutant(
        name="a_check_goes_by_the_checkpoints_of_before",
        file="pylog/log/checking/check.py",
        text="        log_start = _start_now(partition, ends)  # the topic may have been deleted and created again since\n",
        replacement="        pass\n",
        tests=("tests/beside/test_close.py::test_a_check_finds_nothing_in_a_topic_that_is_deleted_and_created_again_meanwhile",),
        why="`check` finds a log start after the log's in a topic that was deleted and created again during the check.",
    ),
    Mutant(
        name="numpys_masked_arrays_are_imported_at_the_first_call",
        file="pylog/record/compiled.py",
        text="import numpy.ma  # ",
        replacement="# ",
        tests=(_FIRST + "test_modules_that_a_kernels_first_call_imports_are_imported_with_the_kernels",),
        why="RecursionError in threads that make the first calls of a process.",
    ),
    Mutant(
        name="a_brokers_sealed_segment_is_cut_in_place",
        file="pylog/log/recovery/loader.py",
        text="    if not later or last < 0 or file_name(last, SEAL) in entries:\n",
        replacement="    if True or not later or last < 0 or file_name(last, SEAL) in entries:\n",
        tests=(
            f"{_CUT_SHORT}test_a_segment_that_was_sealed_is_never_cut_in_place_after_a_truncation_failed_half_way[rename EIO]",
        ),
        why="SIGBUS in a reader that has mapped a broker's segment, after a truncation failed half-way.",
    ),
    Mutant(
        name="the_reserve_does_not_grow",
        file="pylog/directory/locks.py",
        text="    return max(limits.RESERVE_BYTES, limits.RESERVE_BYTES // 2 + sum(",
        replacement="    return min(limits.RESERVE_BYTES, limits.RESERVE_BYTES // 2 + sum(",
        tests=("tests/test_full_disk.py::test_the_reserve_grows_with_the_files_that_name_all_partitions",),
        why="With thousands of partitions nothing frees room on a full disk: a checkpoint finds no room in the reserve.",
    ),
    Mutant(
        name="a_follower_keeps_what_it_has_read",
        file="pylog/log/reading/refresher.py",
        text="        self.follower.rest()\n",
        replacement="        pass\n",
        tests=(_DELETED_FILES + "test_deleted_segments_leave_no_file_in_a_store_that_was_opened_again[delete_records-a read]",),
        why="A store that was opened on an existing directory frees no room of the segments that it deletes until it is closed.",
    ),
    Mutant(
        name="a_lower_retention_needs_room",
        file="pylog/log_manager.py",
        text="self.full_disk.freeing(partial(self.root.changes.alter, name, config))",
        replacement="self.root.changes.alter(name, config)",
        tests=("tests/test_full_disk.py::test_calls_that_free_room_work_on_a_full_disk_and_appends_continue[alter]",),
        why="On a full disk `pylog config`, which the error advises, cannot lower a retention.",
    ),
    Mutant(
        name="an_opening_needs_room_for_the_boot_id",
        file="pylog/directory/locks.py",
        text="            if error.errno not in NO_ROOM:\n",
        replacement="            if True:\n",
        tests=(f"{_FULL}test_a_store_opens_for_writing_on_a_full_disk_on_which_its_lock_file_has_no_block",),
        why="After a power loss on a full disk a store cannot be opened for writing, so that nothing frees the disk.",
    ),
    Mutant(
        name="a_deletion_of_segments_needs_a_checkpoint",
        file="pylog/log/maintenance/trimming.py",
        text="left_out_if_full(_is_plain_start(writer, source, offset))",
        replacement="left_out_if_full(False)",
        tests=(f"{_FULL}{_TAKEN}[tick]",),
        why="Retention frees nothing on a full disk if another program takes the reserve meanwhile.",
    ),
    Mutant(
        name="stale_leader_epochs_stay_on_a_full_disk",
        file="pylog/directory/leader_epoch_cache.py",
        text="            remove_derived(self._fs, path)\n",
        replacement="",
        tests=(f"{_FULL}{_TAKEN}[tick]",),
        why="After a retention on a full disk `verify` reports the deleted segments as missing.",
    ),
    Mutant(
        name="records_are_deleted_only_with_a_checkpoint",
        file="pylog/log/partition_log.py",
        text=", partial(trimmer.delete_segments, *given))\n",
        replacement=")\n",
        tests=(f"{_FULL}{_TAKEN}[delete_records in a segment]",),
        why="`delete_records` within a segment frees nothing on a full disk if another program takes the reserve meanwhile.",
    ),
    Mutant(
        name="an_opening_has_to_finish_a_deletion",
        file="pylog/root_directory.py",
        text="            if error.errno not in NO_ROOM or not error.passes:\n",
        replacement="            if True:\n",
        tests=(f"{_FULL}test_a_store_opens_on_a_full_disk_although_a_deletion_that_a_dead_process_began_cannot_be_finished",),
        why="A process that dies as it deletes a topic on a full disk leaves a store that cannot be opened for writing.",
    ),
    Mutant(
        name="a_cleaned_file_must_be_there",
        file="pylog/log/recovery/loader.py",
        text="                _remove_if_there(source.fs, join(source.directory, name))\n            if free",
        replacement="                source.fs.remove(join(source.directory, name))\n            if free",
        tests=(
            _DELETED_FILES + "test_a_log_opens_although_another_process_removes_a_file_of_a_dead_compaction_at_the_same_moment",
        ),
        why="`retain` ends with 'No such file' while another process compacts.",
    ),
    Mutant(
        name="a_pipe_that_can_be_written_to",
        file="pylog/fs/descriptors.py",
        text="            opened, writing = os.pipe()\n",
        replacement="            opened, writing = os.open(os.devnull, os.O_RDWR), os.dup(0)\n",
        tests=(_CLOSED + "test_where_no_descriptor_is_of_a_path_only_a_call_on_a_closed_file_meets_no_other_file[write]",),
        why="On macOS a write to a file that is closed meanwhile succeeds, and is acknowledged.",
    ),
    Mutant(
        name="a_compaction_takes_a_truncation_for_damage",
        file="pylog/log/maintenance/cleaner.py",
        text="        if (isinstance(error, CorruptionError) or vanished(error)) and is_shorter(task, view):\n",
        replacement="        if not isinstance(error, CorruptionError) and vanished(error) and is_shorter(task, view):\n",
        tests=(
            _DELETED_FILES + "test_a_compaction_whose_segments_another_process_truncates_meanwhile_ends_and_is_repeated_later",
        ),
        why="`compact` reports a sound log as damaged while another process truncates it, and never compacts it again.",
    ),
    Mutant(
        name="a_tick_keeps_idle_buffers",
        file="pylog/upkeep.py",
        text="        APPENDS.clear()\n",
        replacement="",
        tests=("tests/test_what_grows.py::test_a_tick_drops_the_buffers_that_no_append_uses",),
        why="A process that appended much once keeps up to 32 MiB of buffers.",
    ),
    Mutant(
        name="a_lock_file_without_its_name_lets_in",
        file="pylog/directory/locks.py",
        text="        if not file.is_current():\n",
        replacement="        if False:\n",
        tests=(
            _LOCK_FILES
            + "test_another_opener_that_comes_at_any_step_after_a_removal_is_in_only_with_the_same_file[ss-pylog.lock+.lock]",
        ),
        why="Two processes that open at once, while `pylog.lock` is removed, hold different files and write at the same time.",
    ),
    Mutant(
        name="an_opener_that_waits_counts_as_a_writer",
        file="pylog/directory/locks.py",
        text="        if file.is_locked(*((0, 0) if self._exclusive else (EVERYTHING, 1))):\n",
        replacement="        if not self._is_present(file):\n",
        tests=(_LOCK_FILES + "test_two_openers_that_wait_for_a_writer_with_a_removed_file_do_not_take_each_other_for_it",),
        why="Two processes that wait for a writer with a removed `pylog.lock` let each other in beside it.",
    ),
    Mutant(
        name="the_lock_file_is_created_once",
        file="pylog/directory/locks.py",
        text="                    if error.errno not in (errno.ENOENT, errno.EEXIST):\n",
        replacement="                    if error.errno != errno.ENOENT:\n",
        tests=(
            _LOCK_FILES
            + "test_another_opener_that_comes_at_any_step_after_a_removal_is_in_only_with_the_same_file[ss-pylog.lock+.lock]",
        ),
        why="`pylog.lock` that is removed and created during an opening ends it with 'File exists'.",
    ),
    Mutant(
        name="a_check_lets_others_in_during_the_shutdown",
        file="pylog/directory/locks.py",
        text="            if not self._is_alone:\n",
        replacement="            if True:\n",
        tests=(_LOCK_FILES + "test_a_check_and_the_close_of_a_store_keep_others_out_until_both_have_ended",),
        why="A process opens the store while another one writes its clean-shutdown marker, which then hides a crash.",
    ),
    Mutant(
        name="a_store_that_opens_counts_as_a_broker",
        file="pylog/directory/locks.py",
        text="            self._kafka = self._lock_out_brokers(_is_shared)",
        replacement="""            self._kafka = self._fs.open_locks(join(self._root, KAFKA_LOCK))
            if not _is_shared(self._kafka):
                raise self._broker_running(None)""",
        tests=(_LOCK_FILES + "test_the_brokers_lock_file_is_taken_again_although_another_store_has_it_alone_for_a_moment",),
        why="After `.lock` was removed, an append says that a broker has the directory because another store opens it.",
    ),
    Mutant(
        name="the_whole_lock_file_is_read",
        file="pylog/directory/locks.py",
        text="BOOTS.fetch_start(self._fs, join(self._root, PYLOG_LOCK), limits.MAX_BOOT_ID_BYTES)",
        replacement="BOOTS.fetch_derived(self._fs, join(self._root, PYLOG_LOCK))",
        tests=(_LOCK_FILES + "test_opening_reads_only_the_start_of_the_lock_file",),
        why="Opening reads the whole reserve, and does not check the machine if it is large.",
    ),
    Mutant(
        name="a_closed_descriptor_is_free_at_once",
        file="pylog/fs/descriptors.py",
        text="        if sys.getrefcount(self) <= _ALONE or not _nowhere.lead(descriptor):\n",
        replacement="        if True:\n",
        tests=(_CLOSED + "test_a_call_on_a_file_that_is_closed_meanwhile_fails_and_meets_no_other_file[truncate]",),
        why="A call that runs while its file is closed cuts, writes or reads the file that was opened next.",
    ),
    Mutant(
        name="a_closed_lock_file_has_another_name",
        file="pylog/fs/locks.py",
        text="        if self.descriptor < 0:  # then the number led to another file\n",
        replacement="        if False:\n",
        tests=(_CLOSED + "test_a_lock_file_that_is_closed_says_so_and_no_other_file_is_locked_or_cut[is_current-meanwhile]",),
        why="A call beside `close` takes its own lock file for a removed one.",
    ),
    Mutant(
        name="an_object_that_deserializes_does_not_get_null",
        file="pylog/serializers.py",
        text="    return Conversion(of_record=found, takes_null=True)\n",
        replacement="    return Conversion(of_record=found)\n",
        tests=("tests/test_serializers.py::test_a_deserializer_gets_the_topic_and_the_headers_and_only_an_object_gets_null",),
        why="An object that turns null into a value is not asked.",
    ),
    Mutant(
        name="a_false_serializer_is_ignored",
        file="pylog/producer/producer.py",
        text="any(each is not None for each in closer)\n",
        replacement="bool(config.key_serializer or config.value_serializer or closer[2] or closer[3])\n",
        tests=("tests/test_serializers.py::test_a_serializer_whose_truth_value_is_false_is_called",),
        why="A serializer with a length of 0 is not called, and bytes are stored as they were given.",
    ),
    Mutant(
        name="ends_of_a_topic_made_again_are_those_of_the_new_one",
        file="pylog/log_manager.py",
        text="            state = manager.log(*key).snapshot()\n",
        replacement="            state = manager.known_log(key).snapshot()\n",
        tests=(
            "tests/test_topic_made_again.py::test_the_first_call_answers_for_the_topic_that_another_process_created_again[lag]",
        ),
        why="A group has no lag in a topic that another process made again, until it is asked twice.",
    ),
    Mutant(
        name="a_snapshot_has_a_topic_made_again",
        file="pylog/transactions/snapshots.py",
        text="        for _ in range(2):",
        replacement="        for _ in range(1):",
        tests=(
            "tests/test_topic_made_again.py::test_the_first_call_answers_for_the_topic_that_another_process_created_again[snapshot]",
        ),
        why="A snapshot leaves out a topic that another process made again.",
    ),
)
