"""The methods of the matrix of calls that are for administrators, and the row that administers transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from support.campaign.beside_changes import new_value

if TYPE_CHECKING:
    from support.campaign.beside_calls import Caller

OF_ADMINISTRATORS: Final = ("abort", "describe", "end_hanging", "find_hanging", "find_open", "known", "list", "settle")
OF_OFFSETS: Final = ("commit", "delete", "expire", "fetch", "groups", "known_groups", "pending", "position", "skipped_records")


def administer_transactions(caller: Caller) -> None:
    """Lists, describes and aborts an open transaction of its own; the others' are never taken for hanging ones."""
    name, admin = f"administered {caller.number}", caller.store.transactions
    transaction = caller.store.transaction(name)
    try:
        transaction.append("t", new_value(), key=b"k", partition=0)
        transaction.flush()
        assert admin.describe(name).state == "Ongoing"
        assert name in [each.transactional_id for each in admin.list()]
        assert not admin.known()[1]
        admin.find_open("t", 0)
        assert admin.end_hanging(admin.find_hanging()) == []
        assert admin.abort(name).state == "CompleteAbort"
        admin.settle()
    finally:
        transaction.abort()
