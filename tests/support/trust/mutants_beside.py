"""Mutants of "Beside and beneath": threads of one store, and processes that change a directory under an open store."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_FIRST: Final = "tests/trust/test_first_calls.py::"

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
)
