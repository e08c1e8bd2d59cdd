"""Mutants of operating a store: health of groups, metrics, the metrics server."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

HISTORY: Final = "tests/groups/test_commit_history.py::"

OPERATING: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_form_of_another_site_is_taken",
        file="pylog/ui/security.py",
        text='    if site is not None:\n        return site == "same-origin"\n',
        replacement="    if site is not None:\n        return True\n",
        tests=(
            "tests/ui/test_functions.py::test_changes_of_others_sites_without_the_token_or_in_a_window_that_reads_do_nothing",
        ),
        why="A page of another site deletes a topic.",
    ),
    Mutant(
        name="a_form_needs_no_token",
        file="pylog/ui/app.py",
        text='        if not same(fields.pop(TOKEN_FIELD, ""), self._form_token):\n',
        replacement='        if not fields.pop(TOKEN_FIELD, "") and False:\n',
        tests=(
            "tests/ui/test_functions.py::test_changes_of_others_sites_without_the_token_or_in_a_window_that_reads_do_nothing",
        ),
        why="A form that no page of the window has made is taken.",
    ),
    Mutant(
        name="a_name_that_ends_like_data_is_hidden",
        file="pylog/ui/app.py",
        text="            if not is_page:\n",
        replacement="            if True:\n",
        tests=("tests/ui/test_functions.py::test_the_data_of_each_page_is_beside_it_also_of_names_that_end_like_data",),
        why="The page of a topic `a.json` shows the data of topic `a`.",
    ),
    Mutant(
        name="an_escaped_name_in_json_is_missed",
        file="pylog/ui/matching.py",
        text='candidates = pc.or_(pc.match_substring(values, name), pc.match_substring(values, "\\\\"))',
        replacement="candidates = pc.match_substring(values, name)",
        tests=("tests/ui/test_functions.py::test_a_path_is_found_also_if_its_name_is_escaped_and_damaged_json_is_none",),
        why="A search for a path silently misses documents with escapes.",
    ),
    Mutant(
        name="rows_past_the_page_are_skipped",
        file="pylog/ui/search.py",
        text="        if len(found) == left:  # there may be more rows before the end of what was read\n",
        replacement="        if False:\n",
        tests=("tests/ui/test_functions.py::test_matches_of_one_read_that_do_not_fit_on_a_page_are_on_the_next_ones",),
        why="A search loses the matches of a read that do not fit on its page.",
    ),
    Mutant(
        name="searches_have_no_bound",
        file="pylog/ui/window.py",
        text="    if not slots.acquire(timeout=_PATIENCE_S):\n",
        replacement="    if not slots.acquire(timeout=_PATIENCE_S) and False:\n",
        tests=("tests/ui/test_functions.py::test_more_searches_than_four_at_once_wait_and_are_then_refused",),
        why="Any number of searches runs at once.",
    ),
    Mutant(
        name="a_verification_keeps_the_store_open",
        file="pylog/ui/verifying.py",
        text="        if self._stop.is_set() or self._manager.gate.is_shut:\n",
        replacement="        if False:\n",
        tests=("tests/ui/test_beside.py::test_a_window_ends_at_once_also_while_it_verifies",),
        why="Closing a window waits for the end of a verification.",
    ),
    Mutant(
        name="a_quick_window_is_a_measure_for_a_stop",
        file="pylog/groups/health.py",
        text="    if silence <= max(LEAST_SILENCE_MS, last - _recent(facts.commits)[0].timestamp):\n",
        replacement="    if silence <= last - _recent(facts.commits)[0].timestamp:\n",
        tests=("tests/groups/test_health.py::test_a_member_that_commits_often_and_pauses_for_half_a_minute_does_not_stall",),
        why="A group is silent for as long as its last commits took, which may be milliseconds.",
    ),
    Mutant(
        name="a_new_record_of_a_slow_topic_is_a_stop",
        file="pylog/groups/health.py",
        text="    if facts.lag_ms is not None and facts.lag_ms <= LEAST_SILENCE_MS:\n        return None\n    said",
        replacement="    said",
        tests=("tests/groups/test_health.py::test_the_first_record_after_a_long_silence_is_no_stop_burrow_38_94_140_171",),
        why="A group of a slow topic has stopped whenever a record arrives.",
    ),
    Mutant(
        name="deleted_unread_records_are_not_lost",
        file="pylog/groups/health.py",
        text="    if offset < start:\n",
        replacement="    if False:\n",
        tests=("tests/groups/test_health.py::test_records_that_retention_deleted_unread_are_lost_kaskade_98",),
        why="Health does not tell that retention was faster than a group.",
    ),
    Mutant(
        name="constant_lag_is_a_warning",
        file="pylog/groups/health.py",
        text='    if course.trend == "rising":\n',
        replacement='    if course.trend != "falling":\n',
        tests=("tests/groups/test_health.py::test_a_constant_lag_keeps_up_where_burrow_warns",),
        why="A consumer that keeps up always has a warning.",
    ),
    Mutant(
        name="commits_before_a_tombstone_count",
        file="pylog/groups/commit_history.py",
        text="            complete |= found.ended\n",
        replacement="            complete |= set()\n",
        tests=("tests/groups/test_commit_history.py::test_commits_before_a_tombstone_in_an_earlier_chunk_do_not_count[4]",),
        why="A group that was deleted and created again is judged by the commits of the deleted one.",
    ),
    Mutant(
        name="later_commits_of_the_history_are_kept",
        file="pylog/groups/observer.py",
        text="    return [*(each for each in past if each.timestamp <= last.timestamp and each != last), last]\n",
        replacement="    return [*past, last]\n",
        tests=("tests/groups/test_commit_history.py::test_a_commit_between_two_reads_is_no_rewind",),
        why="A commit that arrives while a group is observed makes it look rewound.",
        quick=True,
    ),
    Mutant(
        name="metrics_are_served_to_any_name",
        file="pylog/monitoring/server.py",
        text="            request.check_host()\n",
        replacement="            pass\n",
        tests=("tests/monitoring/test_served.py::test_a_name_that_was_made_to_lead_here_gets_nothing[evil.example-403]",),
        why="A page in a browser reads the metrics through a name that it had resolved to this machine.",
    ),
    Mutant(
        name="idle_connections_stay",
        file="pylog/monitoring/server.py",
        text="        for client in [each for each in self._clients.values() if each.deadline <= now]:\n",
        replacement="        for client in []:\n",
        tests=("tests/monitoring/test_served.py::test_a_connection_ends_at_its_deadline",),
        why="A client that sends nothing keeps its connection forever.",
    ),
    Mutant(
        name="partitions_are_refreshed_for_each_group",
        file="pylog/groups/described.py",
        text="        ends = manager.start_and_end_offsets(wanted)\n",
        replacement="        ends = None\n",
        tests=(
            "tests/cli/test_groups.py::test_describing_all_groups_refreshes_each_partition_once_and_says_what_each_group_says",
        ),
        why="Describing all groups costs the partitions of each.",
    ),
    Mutant(
        name="a_topic_deleted_during_an_observation_is_damaged",
        file="pylog/groups/observer.py",
        text="Error:\n            return None\n        except PylogError as error:\n            return _",
        replacement="Error as error:\n            return _",
        tests=(f"{HISTORY}test_a_topic_that_is_deleted_while_groups_are_observed_has_no_rows_and_raises_nothing",),
        why="A group has the verdict DAMAGED because a topic is deleted at the same time.",
    ),
    Mutant(
        name="the_window_answers_under_any_host_name",
        file="pylog/ui/security.py",
        text='        if self._hosts is not None and _host_of(headers.get("host", "")) not in self._hosts:\n',
        replacement='        if not headers.get("host"):\n',
        tests=("tests/ui/test_window.py::test_another_host_name_is_refused",),
        why="A page of another site has its name lead to this machine, and reads all records.",
    ),
    Mutant(
        name="rows_that_do_not_fit_into_a_page_are_lost",
        file="pylog/ui/search.py",
        text="            cursor[part.number] = kept[-1].offset if query.backwards else kept[-1].offset + 1\n",
        replacement="            cursor[part.number] = part.at\n",
        tests=("tests/ui/test_window.py::test_the_pages_of_a_search_have_each_matching_record_once",),
        why="A search misses records.",
    ),
)
