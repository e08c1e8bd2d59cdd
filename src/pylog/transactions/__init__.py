"""Transactions: their state in `__transaction_state`, its transitions, and the owners of what is open (transactions.md)."""

from pylog.transactions import image, markers, owners, states

__all__ = ["image", "markers", "owners", "states"]
