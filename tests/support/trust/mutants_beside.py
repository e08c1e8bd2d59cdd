"""Mutants of "Beside and beneath": threads of one store, and processes that change a directory under an open store."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_FIRST: Final = "tests/trust/test_first_calls.py::"
_FILES: Final = "tests/beside/test_replaced_files.py::"

BESIDE: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="the_catalogs_type_is_prepared_at_its_first_use",
        file="pylog/topics/catalog.py",
        text="        catalog = _CATALOG_DECODER.decode(data)\n",
        replacement="        catalog = msgspec.json.decode(data, type=Catalog)\n",
        tests=(_FIRST + "test_no_type_of_msgspec_is_prepared_at_its_first_use",),
        why="Two threads that read the catalog first in a process crash it.",
    ),
    Mutant(
        name="each_thread_compiles_a_kernel",
        file="pylog/record/memory.py",
        text="            return self._compiled or self._compile()\n",
        replacement="            return self._compile()\n",
        tests=(_FIRST + "test_a_kernel_is_compiled_once_even_if_several_threads_call_it_first",),
        why="Eight threads that call a kernel first compile it eight times.",
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
        tests=(_FILES + "test_the_stable_offset_is_found_although_segments_go_while_transactions_are_looked_for[truncate]",),
        why="stable_offset raises 'No such file' next to another process that truncates.",
    ),
    Mutant(
        name="a_running_compaction_leaves_files_over",
        file="pylog/log/checking/report.py",
        text="            report = question(look()._replace(quiet=idle))\n",
        replacement="            report = question(look())\n",
        tests=(_FILES + "test_the_files_of_a_compaction_that_goes_on_are_no_findings[.log.cleaned-check]",),
        why="Store.check reports the files of a compaction that another thread runs as left over.",
    ),
)
