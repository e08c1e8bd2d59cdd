"""Mutants of clients: producers, consumers, groups, committed offsets, Spark."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

CLIENTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="routes_are_not_renewed",
        file="pylog/producer/sender.py",
        text="        if route.changes != self._manager.topic_changes:\n",
        replacement="        if False:\n",
        tests=("tests/producer/test_topics_changed.py::test_added_partitions_are_sent_to_at_once_or_within_a_second",),
        why="A producer goes on with the number of partitions that its topic had.",
    ),
    Mutant(
        name="new_partitions_begin_at_their_end",
        file="pylog/groups/decisions.py",
        text="    if not members or after.epoch == before.epoch:\n",
        replacement="    if True:\n",
        tests=(
            "tests/consumer/test_new_partitions.py::test_records_sent_to_a_new_partition_are_read_from_the_first_one",
            "tests/consumer/test_new_partitions.py::test_whichever_member_gets_a_new_partition_reads_it_from_its_first_record",
        ),
        why="A group with latest misses the first records of a partition that is created while it is running.",
    ),
    Mutant(
        name="new_partitions_without_a_group",
        file="pylog/consumer/standalone_membership.py",
        text="        if self._reads_new:\n",
        replacement="        if False:\n",
        tests=("tests/consumer/test_new_partitions.py::test_records_sent_to_a_new_partition_are_read_from_the_first_one",),
        why="A consumer without a group misses the first records of a new partition.",
    ),
    Mutant(
        name="partitions_counted_from_zero",
        file="pylog/table_reading.py",
        text="numbers = known.partition_ids if",
        replacement="numbers = range(known.partition_count) if",
        tests=("tests/test_reading.py::test_the_partitions_that_are_there_are_read_whatever_their_numbers",),
        why="A directory with some of a topic's partitions cannot be read as a table.",
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
        text="Sender(manager, clock, _without_calls(config), self.buffer)",
        replacement="Sender(manager, clock, config, self.buffer)",
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
        tests=("tests/offsets/test_store_damage.py::test_records_of_a_transaction_that_no_kafka_writes_are_skipped",),
        why="One value that cannot be read ends every call about its group.",
        quick=True,
    ),
    Mutant(
        name="odd_value_leaves_the_commit_before_it",
        file="pylog/offsets/replay.py",
        text="            _take_earlier(image, frame, np.flatnonzero(keys == number)[:-1], written=was)\n",
        replacement="            pass\n",
        tests=("tests/offsets/test_store_damage.py::test_a_record_that_no_kafka_writes_is_skipped_and_no_commit_is_lost_by_it",),
        why="A value that cannot be read hides the commit before it.",
    ),
    Mutant(
        name="groups_are_empty_while_their_topic_is_made",
        file="pylog/internal_topic.py",
        text="                    if make or isinstance(error, ClosedError):\n",
        replacement="                    if True:\n",
        tests=("tests/offsets/test_internal_topics.py::test_groups_are_empty_while_the_topic_is_half_made",),
        why="Questions about groups fail while another process creates the topic.",
    ),
    Mutant(
        name="dropped_consumer_leaves",
        file="pylog/consumer/consumer.py",
        text="        if core is not None and core.is_open:\n            core.departing",
        replacement="        if core is not None and not core.is_open:\n            core.departing",
        tests=(
            "tests/test_life_cycle.py::test_fifty_dropped_consumers_leave_no_thread_no_member_and_no_descriptor",
            "tests/test_life_cycle.py::test_a_consumer_abandoned_by_an_exception_leaves_its_group",
        ),
        why="A consumer that is dropped without close keeps its partitions from others.",
    ),
    Mutant(
        name="wakeup_ends_a_poll",
        file="pylog/consumer/polling.py",
        text="            core.check_woken()\n",
        replacement="",
        tests=(
            "tests/consumer/test_wakeup.py::test_commits_and_other_calls_take_no_notice_of_it",
            "tests/consumer/test_wakeup.py::test_a_wakeup_before_a_poll_is_remembered_once_and_what_was_there_is_returned_by_the_next",
        ),
        why="A poll that waits cannot be ended from another thread.",
    ),
    Mutant(
        name="iteration_looks_after_its_group",
        file="pylog/consumer/polling.py",
        text="if check is not None and now() >= core.check_at and (found := check()) is not None:\n",
        replacement="if check is not None and now() < 0 and (found := check()) is not None:\n",
        tests=("tests/consumer/test_groups_interrupted.py::test_a_slow_iteration_keeps_its_partitions_and_commits_by_itself",),
        why="An iteration that takes its time with the records in hand is put out of its group.",
    ),
    Mutant(
        name="commits_belong_to_their_membership",
        file="pylog/groups/member.py",
        text="        if member_id not in (None, self._member_id):",
        replacement="        if False:",
        tests=("tests/consumer/test_groups_interrupted.py::test_a_commit_in_the_background_of_an_old_membership_is_refused",),
        why="A commit that was asked for before the member was put out takes the group back.",
    ),
    Mutant(
        name="a_table_without_columns_keeps_its_rows",
        file="pylog/table_reading.py",
        text=" if arrays else batch.select([])",
        replacement="",
        tests=("tests/test_reading.py::test_a_table_without_columns_keeps_its_number_of_rows",),
        why="`read_table(columns=[])` returns a table without rows.",
    ),
    Mutant(
        name="min_partitions_is_reached_between_index_entries",
        file="pylog/spark/planner.py",
        text="bounds=with_more((start, *interior, end), count)",
        replacement="bounds=(start, *interior, end)",
        tests=(
            "tests/spark/test_planner.py::test_min_partitions_is_reached_within_one_large_batch_and_every_record_is_read_once",
        ),
        why="Spark reads small records in few tasks, however many `minPartitions` asks for.",
    ),
    Mutant(
        name="tombstones_have_the_time_that_expiry_was_asked_for",
        file="pylog/offsets/offset_manager.py",
        text="partition.append(items, self.clock.now_ms(), None, atomic=False)",
        replacement="partition.append(items, self.clock.now_ms() + 10**11, None, atomic=False)",
        tests=("tests/offsets/test_store_damage.py::test_expiry_and_retention_go_by_the_commits_that_can_be_read",),
        why="Tombstones of expired offsets have a time in the future, and compaction keeps them for too long.",
    ),
    Mutant(
        name="an_earlier_name_is_refused_with_todays",
        file="pylog/arguments.py",
        text='{name: f": use {RENAMED[name]}" for name in unknown if RENAMED.get(name) in known}',
        replacement="{}",
        tests=("tests/test_names.py::test_an_earlier_name_of_an_option_is_refused_with_todays",),
        why="A program that was written for an earlier version is not told what the option is called now.",
    ),
    Mutant(
        name="numpys_integers_are_integers",
        file="pylog/arguments.py",
        text="    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))\n",
        replacement="    return type(value) is int\n",
        tests=("tests/test_names.py::test_a_call_takes_numpys_integers_as_integers",),
        why="An offset that NumPy computed is refused.",
    ),
    Mutant(
        name="a_class_names_its_factory",
        file="pylog/factory_made.py",
        text='        raise TypeError(f"a {type(self).__name__} cannot be created by calling its class; use {self._factory}")\n',
        replacement="        del self\n",
        tests=("tests/test_names.py::test_a_call_of_a_class_that_has_a_factory_names_the_factory",),
        why="A call of a class makes an object without its parts, which fails later and elsewhere.",
    ),
    Mutant(
        name="a_command_prints_no_log_lines",
        file="pylog/cli/app.py",
        text="        with log_lines() if verbose else nullcontext():\n",
        replacement="        with nullcontext():\n",
        tests=("tests/cli/test_frame.py::test_log_lines_go_to_stderr_with_the_option_only_and_not_beyond_the_command[-v]",),
        why="A command that deletes says nothing of what it deletes.",
    ),
    Mutant(
        name="a_new_topic_has_the_old_commits",
        file="pylog/offsets/offset_manager.py",
        text="            end = before if topic in self._manager.topics() else limits.INT64_MAX\n",
        replacement="            end = 0\n",
        tests=(
            "tests/groups/test_machine.py::test_a_group_reads_each_record_that_is_there_in_order_whatever_happens_to_its_topic[3]",
        ),
        why="A group does not read the first records of a topic that was deleted and created again.",
    ),
    Mutant(
        name="commits_do_not_check_their_topic",
        file="pylog/offsets/offset_manager.py",
        text="level, check=items.check)",
        replacement="level)",
        tests=(
            "tests/groups/test_deleted_topics.py::test_a_commit_that_arrives_after_this_store_deleted_its_topic_is_refused",
            "tests/groups/test_deleted_topics.py::test_a_commit_that_arrives_after_its_topic_was_deleted_elsewhere_is_refused[deleted]",
        ),
        why="A commit that arrives after its topic was deleted counts for the next topic of this name.",
    ),
    Mutant(
        name="members_that_joined_elsewhere_are_not_noticed",
        file="pylog/offsets/partition.py",
        text="        if self._memberless == (self._log, end):\n",
        replacement="        if self._memberless is not None:\n",
        tests=(
            "tests/groups/test_commits_of_no_member.py::test_a_member_that_joins_elsewhere_between_two_commits_keeps_the_next_one_out",
        ),
        why="A commit of no member counts although a member joined since the last check.",
    ),
    Mutant(
        name="members_that_join_while_a_commit_waits",
        file="pylog/offsets/offset_manager.py",
        text="            if not partition.has_no_members(name):\n",
        replacement="            if False:\n",
        tests=(
            "tests/groups/test_commits_of_no_member.py::test_a_member_that_joins_while_a_commit_waits_for_the_lock_keeps_it_out",
        ),
        why="A commit of no member counts although a member joins before it is written.",
    ),
    Mutant(
        name="a_deserializers_error_skips_the_record",
        file="pylog/compat/kafka/records.py",
        text="            return FetchedRecords(done, records[len(done)].offset, fetched.leader_epoch)\n",
        replacement="            return taken._replace(records=done)\n",
        tests=("tests/compat/test_clients.py::test_a_deserializer_gets_none_and_its_error_comes_out_unchanged",),
        why="A record that a deserializer of kafka-python's layer cannot read is skipped, with those after it.",
    ),
    Mutant(
        name="times_that_contradict_each_other_are_accepted",
        file="pylog/compat/kafka/consumer_options.py",
        text="    _check_waits(config, given)\n",
        replacement="",
        tests=("tests/compat/test_client_options.py::test_times_that_each_version_refuses_are_refused",),
        why="Options that every version of kafka-python refuses are accepted by its layer.",
    ),
    Mutant(
        name="a_sticky_partition_stays_when_it_is_unavailable",
        file="pylog/compat/kafka/partitioner.py",
        text="return known if known in usable else",
        replacement="return known if known is not None else",
        tests=(
            "tests/compat/test_client_options.py::test_the_sticky_partitioner_stays_until_a_batch_is_full_and_avoids_unavailable_partitions",
        ),
        why="The sticky partitioner chooses a partition that is not available.",
    ),
    Mutant(
        name="wrong_types_are_errors_of_kafka",
        file="pylog/compat/kafka/translation.py",
        text="        if isinstance(error, native.InvalidTypeError) and self._arguments in (None, ValueError):\n",
        replacement="        if False:\n",
        tests=("tests/compat/test_wrong_arguments.py::test_wrong_arguments_of_a_consumer_get_kafka_pythons_errors",),
        why="An argument of a wrong type raises another class than kafka-python's clients raise.",
    ),
    Mutant(
        name="records_without_headers_have_a_list_each",
        file="pylog/compat/kafka/records.py",
        text="pairs if has_headers else repeat([]),",
        replacement="pairs if has_headers else ([] for _ in range(frame.num_rows)),",
        tests=(
            "tests/compat/test_clients.py::test_records_without_headers_have_a_list_each_and_cost_the_garbage_collector_one_object",
        ),
        why="The garbage collector has two objects for each record of a poll, and takes longer than the poll.",
    ),
    Mutant(
        name="the_plug_in_comes_after_the_first_conftest",
        file="pylog/testing/plugin.py",
        text="    _install_if_asked(early_config, bool(early_config.known_args_namespace.pylog_kafka))\n",
        replacement="",
        tests=("tests/compat/test_plugin.py::test_the_fixture_replaces_the_real_package_or_is_installed_before_it",),
        why="With --pylog-kafka, a conftest.py that imports kafka-python ends the session with an error.",
    ),
    Mutant(
        name="a_missing_topic_is_not_created_on_demand",
        file="pylog/compat/kafka/choice.py",
        text="        self._check_at = -math.inf  # the first poll may create what is missing\n",
        replacement="",
        tests=("tests/compat/test_clients.py::test_a_missing_topic_is_created_by_the_first_poll_and_not_before",),
        why="The first poll of an assigned partition does not create its topic.",
    ),
    Mutant(
        name="a_loop_that_begins_again_looks_after_its_group",
        file="pylog/consumer/polling.py",
        text="        if self.is_check_due:  # records",
        replacement="        if False:  # records",
        tests=(
            (
                "tests/consumer/test_groups_interrupted.py"
                "::test_an_iteration_that_becomes_slow_is_handed_nothing_before_it_is_told_what_it_lost"
            ),
        ),
        why="A loop that begins again hands out records of a partition that is another member's.",
    ),
    Mutant(
        name="commits_of_consumers_belong_to_their_logs",
        file="pylog/offsets/offset_manager.py",
        text="        if logs is None:\n            log, end",
        replacement="        if True:\n            log, end",
        tests=(
            (
                "tests/groups/test_deleted_topics.py"
                "::test_a_consumers_commit_that_was_requested_for_a_deleted_topic_never_counts_for_the_next_one"
            ),
        ),
        why="A commit that waited is written for a topic that was created again meanwhile.",
    ),
    Mutant(
        name="resets_belong_to_their_logs",
        file="pylog/groups/admin.py",
        text="make=True, durability=durability, check=check)",
        replacement="make=True, durability=durability, check=None)",
        tests=(
            (
                "tests/groups/test_deleted_topics.py"
                "::test_a_reset_that_arrives_after_its_topic_was_deleted_elsewhere_is_refused[reset-deleted and made again]"
            ),
        ),
        why="A reset is written for a topic that was created again meanwhile.",
    ),
    Mutant(
        name="commits_of_an_unfinished_deletion",
        file="pylog/root_directory.py",
        text="            forget(topic)\n",
        replacement="            pass\n",
        tests=(
            (
                "tests/groups/test_deleted_topics.py"
                "::test_a_process_that_dies_while_it_deletes_a_topic_leaves_no_commit_for_the_next_one[alone-removed]"
            ),
        ),
        why="A process that dies while it deletes a topic leaves its commits for the next topic of this name.",
    ),
    Mutant(
        name="commits_of_a_deletion_that_another_store_began",
        file="pylog/topics/deleting.py",
        text="    forget(topic)\n",
        replacement="",
        tests=(
            (
                "tests/groups/test_deleted_topics.py"
                "::test_a_process_that_dies_while_it_deletes_a_topic_leaves_no_commit_for_the_next_one"
                "[with another store open-decided]"
            ),
        ),
        why="A topic is created while an older one of its name is being deleted, and has its commits.",
    ),
    Mutant(
        name="chosen_offsets_are_for_the_topic_of_now",
        file="pylog/consumer/core.py",
        text="self.logs_of([TopicPartition(*partition) for partition in wanted])",
        replacement="self._offsets.logs_of(wanted)",
        tests=(
            (
                "tests/groups/test_commits_of_old_topics.py"
                "::test_offsets_that_a_program_counted_itself_are_for_the_topic_whose_records_it_was_given"
                "[before anything has seen it-subscribed-by another process-sync]"
            ),
        ),
        why="Offsets that a program counted in an old topic are committed for the next topic of its name.",
    ),
    Mutant(
        name="a_deletion_that_a_commit_has_seen_is_forgotten",
        file="pylog/consumer/core.py",
        text="in self.assignment.begun_again.intersection(partitions):",
        replacement="in set[TopicPartition]():",
        tests=(
            (
                "tests/groups/test_commits_of_old_topics.py"
                "::test_offsets_that_a_program_counted_itself_are_for_the_topic_whose_records_it_was_given"
                "[after a commit has seen it-subscribed-by the same store-async]"
            ),
        ),
        why="Offsets of an old topic are committed for the next one once a first commit has noticed the deletion.",
    ),
    Mutant(
        name="an_assigned_partition_begins_again_without_a_word",
        file="pylog/consumer/core.py",
        text="            if self.assignment.begun_again and self.assignment.is_manual:\n",
        replacement="            if False:\n",
        tests=(
            (
                "tests/groups/test_commits_of_old_topics.py"
                "::test_offsets_that_a_program_counted_itself_are_for_the_topic_whose_records_it_was_given"
                "[after a commit has seen it-assigned-by the same store-sync]"
            ),
        ),
        why="A program that assigned partitions gets records of another topic without an error.",
    ),
    Mutant(
        name="the_log_of_a_deleted_topic_is_assigned",
        file="pylog/consumer/partition.py",
        text="self._known[partition] = self._manager.log(*partition)",
        replacement="self._known[partition] = self._manager.known_log(partition)",
        tests=(
            (
                "tests/groups/test_commits_of_old_topics.py"
                "::test_a_member_commits_for_the_new_topic_even_if_its_store_still_has_the_log_of_the_old_one"
            ),
        ),
        why="A member cannot commit for a topic that was created again before it joined.",
    ),
    Mutant(
        name="a_reset_of_an_administrator_is_for_the_topic_of_now",
        file="pylog/compat/kafka/admin_groups.py",
        text="offset_manager_of(self._cluster.store.offsets).logs_of(offset_specs)",
        replacement="None",
        tests=(
            (
                "tests/groups/test_commits_of_old_topics.py"
                "::test_an_administrators_reset_to_the_end_of_a_topic_never_counts_for_the_next_one"
            ),
        ),
        why="A reset to the end of an old topic counts for the next one of its name.",
    ),
    Mutant(
        name="a_query_commits_for_the_topic_of_now",
        file="pylog/spark/group.py",
        text="{topic for topic, each in (ids or {}).items() if current.get(topic) != each}",
        replacement="set[str]()",
        tests=(
            (
                "tests/spark/test_stream.py"
                "::test_the_end_of_a_micro_batch_never_counts_for_a_topic_that_is_created_again_during_the_commit"
            ),
        ),
        why="The end of a micro-batch counts for a topic that was created again during the commit.",
    ),
    Mutant(
        name="an_asynchronous_send_reads_the_topic_in_the_loop",
        file="pylog/producer/producer.py",
        text="    route = producer._routes.of(topic) if isinstance(topic, str) else None\n",
        replacement="    route = producer._route(topic)\n",
        tests=("tests/test_loop_thread.py::test_no_call_touches_a_file_in_the_thread_of_the_event_loop",),
        why="A send of a topic that was changed reads files in the thread of the event loop.",
    ),
    Mutant(
        name="a_cancelled_run_of_poll_loses_its_records",
        file="pylog/aio/consumer.py",
        text="        if (own := self._own(method)) is not None:\n            return cast(T, await own(*arguments, **options))\n",
        replacement="",
        tests=(
            (
                "tests/consumer/test_aio_cancelled.py::"
                "test_a_consumer_that_is_cancelled_at_any_step_returns_each_record_once[_poll_by_run-with its result]"
            ),
        ),
        why="A cancelled run(Consumer.poll) has moved the positions past records that nobody got.",
    ),
    Mutant(
        name="a_callback_that_awaits_a_cancelled_task_cancels_the_send",
        file="pylog/aio/delivery.py",
        text="        except (Exception, asyncio.CancelledError):",
        replacement="        except Exception:",
        tests=("tests/consumer/test_aio_callbacks.py::test_an_error_of_on_delivery_is_logged_and_the_send_returns[True]",),
        why="A send reports that it was cancelled, although its record is in the log.",
    ),
    Mutant(
        name="a_million_partitions_are_named_before_they_are_refused",
        file="pylog/topics/making.py",
        text="    check_room(fs, root, topic, numbers.stop)\n",
        replacement="",
        tests=("tests/test_numbers.py::test_any_number_gives_an_answer_or_an_error_of_pylog_at_once",),
        why="A refused number of partitions takes seconds and hundreds of megabytes.",
    ),
    Mutant(
        name="each_kind_of_waiting_commit_waits_for_the_lock",
        file="pylog/consumer/commits.py",
        text="            if error is not None:  # each of the others",
        replacement="            if False:  # each of the others",
        tests=(
            (
                "tests/consumer/test_waiting_commits.py"
                "::test_closing_waits_for_a_lock_that_is_held_a_few_times_however_many_commits_are_waiting"
                "[of offsets and of positions in turn]"
            ),
        ),
        why="Closing a consumer takes hours while another process holds the lock of its group.",
    ),
    Mutant(
        name="a_newer_offset_hides_a_refused_commit",
        file="pylog/consumer/commits.py",
        text="                if not _is_surely_covered(each.offsets, offsets):",
        replacement="                if False:",
        tests=(
            (
                "tests/consumer/test_waiting_commits.py"
                "::test_one_refused_commit_keeps_none_of_those_that_wait_with_it_from_being_made"
            ),
        ),
        why="A commit that must be refused reports success.",
    ),
    Mutant(
        name="commits_wait_without_a_bound",
        file="pylog/consumer/commits.py",
        text="        while len(self._queue) >= limits.COMMITS_WAITING:",
        replacement="        while False:",
        tests=(
            (
                "tests/consumer/test_waiting_commits.py"
                "::test_the_queue_of_commits_has_a_bound_and_keeps_the_newest_offset_of_each_partition"
            ),
        ),
        why="Commits in the background take any amount of memory while a lock is held.",
    ),
    Mutant(
        name="async_iteration_is_no_poll",
        file="pylog/aio/consumer.py",
        text="            if self._changes or self._polling.is_check_due:",
        replacement="            if self._changes:",
        tests=(
            (
                "tests/consumer/test_upkeep.py"
                "::test_a_reader_that_was_too_slow_is_told_so_before_it_is_given_a_record[iterating in a loop]"
            ),
        ),
        why="A slow `async for` loses its partitions and reads on.",
    ),
    Mutant(
        name="iteration_of_the_layer_is_no_poll",
        file="pylog/compat/kafka/consumer.py",
        text="        if not self._polling.is_check_due or self._is_checked():",
        replacement="        if True:",
        tests=(
            (
                "tests/consumer/test_upkeep.py"
                "::test_a_reader_that_was_too_slow_is_told_so_before_it_is_given_a_record[iterating as kafka python]"
            ),
        ),
        why="A slow loop of a kafka-python program loses its partitions and reads on.",
    ),
    Mutant(
        name="getone_reads_every_partition",
        file="pylog/consumer/fetcher.py",
        text="            if only and assigned.partition not in only:\n",
        replacement="            if False:\n",
        tests=("tests/consumer/test_aio_calls.py::test_only_the_named_partitions_are_read_and_the_others_are_not_paused",),
        why="getone(partition) returns records of other partitions.",
    ),
    Mutant(
        name="plain_changes_wait_for_the_next_fetch",
        file="pylog/aio/consumer.py",
        text="            if self._changes or self._polling.is_check_due:\n",
        replacement="            if self._polling.is_check_due:\n",
        tests=("tests/consumer/test_aio_calls.py::test_plain_changes_are_in_force_before_the_next_record",),
        why="A seek is ignored while an iteration has records in hand.",
    ),
    Mutant(
        name="plain_changes_of_a_listener_come_too_late",
        file="pylog/aio/consumer.py",
        text="        found._after_changes(lambda: None)  # those that the listener has made\n",
        replacement="        pass\n",
        tests=("tests/consumer/test_aio_calls.py::test_a_listeners_coroutine_may_await_these_calls",),
        why="A listener seeks, and the poll that called it returns records from before.",
    ),
    Mutant(
        name="an_option_that_type_checkers_do_not_see",
        file="pylog/consumer/options.py",
        text="    partition_assignment_strategy: str | tuple[str, ...] | list[str]\n",
        replacement="",
        tests=(
            (
                "tests/test_typed.py::test_the_options_that_a_type_checker_sees_are_those_that_are_checked_at_run_time"
                "[ConsumerArguments-ConsumerOptions]"
            ),
        ),
        why="A type checker rejects an option that the consumer accepts.",
    ),
    Mutant(
        name="records_decode_to_text",
        file="pylog/record/types.py",
        text='    V_co = TypeVar("V_co", covariant=True, bound=bytes | None)\n',
        replacement='    V_co = TypeVar("V_co", covariant=True)\n',
        tests=("tests/test_typed.py::test_generic_classes_are_at_run_time_what_they_were",),
        why="msgspec decodes the value of a record to a text, where it was bytes.",
    ),
)
