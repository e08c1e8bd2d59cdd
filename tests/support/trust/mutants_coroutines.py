"""Mutants of the clients for coroutines, and of the layers for the programs of other clients."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

RACES: Final = "tests/producer/test_aio_races.py::"
ENDS: Final = "tests/consumer/test_aio_loops_end.py::"

COROUTINES: Final = (
    Mutant(
        name="a_seek_takes_back_a_pause",
        file="pylog/aio/changes.py",
        text="            self._states[partition] = self._states.get(partition, _State())._replace(offset=offset)\n",
        replacement="            self._states[partition] = _State(offset=offset)\n",
        tests=("tests/consumer/test_aio_changes.py::test_changes_before_a_read_leave_what_the_same_calls_leave_one_by_one",),
        why="A seek takes back a pause that waits for the same read.",
    ),
    Mutant(
        name="a_partition_that_was_given_up_between_two_reads_keeps_its_position",
        file="pylog/aio/changes.py",
        text="        if consumer.assignment() & self.partitions - self.kept:\n",
        replacement="        if False:\n",
        tests=("tests/consumer/test_aio_changes.py::test_changes_before_a_read_leave_what_the_same_calls_leave_one_by_one",),
        why="assign() that is called twice before a read is another one than two assignments.",
    ),
    Mutant(
        name="a_large_record_of_a_coroutine_waits_in_the_loops_thread",
        file="pylog/producer/buffer.py",
        text="            if self._closed or not self._may_enter(self._came + 1, size):\n                return False\n",
        replacement="            self._wait_for_room(size)\n",
        tests=(
            (
                "tests/producer/test_aio_races.py::"
                "test_a_send_neither_waits_nor_reads_in_the_loops_thread_whatever_another_thread_does_at_any_step"
            ),
        ),
        why="A thread that fills the buffer at the wrong moment stops the event loop for max_block_ms.",
    ),
    Mutant(
        name="a_thread_waits_for_a_loop_that_is_closed",
        file="pylog/aio/inside.py",
        text="_CHECK_SECONDS: Final = 0.2",
        replacement="_CHECK_SECONDS: Final = 20.0",
        tests=(
            (
                "tests/consumer/test_aio_loops_end.py::"
                "test_a_loop_that_ends_at_any_step_leaves_no_thread_that_waits_for_it[after the call is queued-closes]"
            ),
        ),
        why="The program ends late, because the consumer's thread waits for a coroutine that never runs.",
    ),
    Mutant(
        name="a_cancelled_step_of_an_iteration_loses_what_it_has_read",
        file="pylog/aio/threads.py",
        text="self._step or self._thread.begin(self._steps.next)",
        replacement="self._thread.begin(self._steps.next)",
        tests=("tests/test_aio_store.py::test_a_cancelled_step_of_an_iteration_loses_no_record",),
        why="A coroutine that follows a log with a timeout misses records.",
    ),
    Mutant(
        name="a_store_that_is_opened_for_nobody_stays_open",
        file="pylog/aio/store_calls.py",
        text="            opened.add_done_callback(_close)  # nobody gets it\n",
        replacement="",
        tests=("tests/test_aio_store.py::test_a_store_whose_opening_was_cancelled_is_closed",),
        why="The directory of a cancelled pylog.aio.open stays locked.",
    ),
    Mutant(
        name="a_collected_iteration_waits_for_a_thread_pool",
        file="pylog/aio/threads.py",
        text="        self._drop = finalize(self, self._steps.drop)\n",
        replacement="        self._drop = finalize(self, self._thread.begin, self._steps.close)\n",
        tests=("tests/test_aio_store.py::test_an_iteration_that_is_collected_inside_a_thread_pool_waits_for_no_lock",),
        why="The collector runs inside the lock of a thread pool, and the process stands still.",
    ),
    Mutant(
        name="a_coroutines_subscription_is_a_number",
        file="pylog/aio/calls.py",
        text="        if not isinstance(topics, Iterable):\n",
        replacement="        if False:\n",
        tests=("tests/test_wrong_types_of_coroutines.py::test_a_subscription_to_no_list_of_topics_is_refused",),
        why="A wrong type raises an error of Python.",
    ),
    Mutant(
        name="a_choice_is_made_inside_the_listener_of_another",
        file="pylog/aio/changes.py",
        text="            if is_nested and (self._leaves or self._chosen is not None):\n",
        replacement="            if False:\n",
        tests=("tests/compat/test_aio_clients.py::test_unsubscribe_and_assign_at_once_end_the_membership_first",),
        why="unsubscribe() and assign() at once raise that the consumer is still subscribed.",
    ),
    Mutant(
        name="a_batch_of_the_program_is_split",
        file="pylog/producer/sender.py",
        text="for batch in [part] if whole else self._batches(route, part):",
        replacement="for batch in self._batches(route, part):",
        tests=("tests/compat/test_aio_clients.py::test_a_batch_of_the_program_is_one_batch_and_full_at_its_size",),
        why="send_batch writes two batches.",
    ),
    Mutant(
        name="offsets_without_a_member_are_refused",
        file="pylog/offsets/pending.py",
        text="            elif not self._manager.accepts_without_member:\n",
        replacement="            else:\n",
        tests=("tests/compat/test_aio_clients.py::test_a_transaction_is_atomic_with_the_offsets_of_a_running_group",),
        why="A program for aiokafka, which gives the group's name alone, cannot commit offsets in a transaction.",
    ),
    Mutant(
        name="a_group_is_only_followed_by_reads",
        file="pylog/compat/aiokafka/consumer.py",
        text="        await native.run(_check)\n",
        replacement="        await native.run(lambda _: None)\n",
        tests=("tests/compat/test_aio_clients.py::test_start_returns_with_partitions_and_members_share_them_without_polling",),
        why="start() of a second member waits until the first one reads.",
    ),
    Mutant(
        name="a_consumer_of_confluent_kafka_is_closed_while_it_closes",
        file="pylog/compat/confluent/consumer.py",
        text="        if self._is_closed:\n            raise RuntimeError",
        replacement="        if self._is_closing:\n            raise RuntimeError",
        tests=(
            "tests/compat/test_confluent_assignment.py::test_on_revoke_may_call_a_consumer_that_closes[pylog.compat.confluent]",
        ),
        why="A callback that unassigns as its partitions are revoked fails at each close.",
    ),
)
