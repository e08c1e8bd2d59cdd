"""Transactions: their state in `__transaction_state`, its transitions, and the owners of what is open (transactions.md)."""

from pylog.transactions import markers, states

__all__ = ["markers", "states"]
