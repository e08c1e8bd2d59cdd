"""Mutants: for each fault that was fixed, how to take the fix out again, and the tests that must fail then.

`./dev mutants` runs them (`support.trust.run_mutants`). tests/trust/test_mutants.py checks in every run that each text occurs
once in its file and that each test exists, and runs the mutants that are marked quick.
"""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant
from support.trust.mutants_administration import ADMINISTRATION
from support.trust.mutants_archive import ARCHIVE
from support.trust.mutants_beside import BESIDE
from support.trust.mutants_clients import CLIENTS
from support.trust.mutants_coroutines import COROUTINES
from support.trust.mutants_directory import DIRECTORY
from support.trust.mutants_hostile import HOSTILE
from support.trust.mutants_operating import OPERATING
from support.trust.mutants_partitions import PARTITIONS
from support.trust.mutants_tiering import TIERING
from support.trust.mutants_transaction_rules import TRANSACTION_RULES
from support.trust.mutants_transactions import TRANSACTIONS

MUTANTS: Final[tuple[Mutant, ...]] = (
    *BESIDE,
    *PARTITIONS,
    *CLIENTS,
    *COROUTINES,
    *DIRECTORY,
    *ARCHIVE,
    *HOSTILE,
    *TRANSACTIONS,
    *TRANSACTION_RULES,
    *ADMINISTRATION,
    *OPERATING,
    *TIERING,
)
