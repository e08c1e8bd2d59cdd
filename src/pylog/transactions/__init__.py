"""Transactions: their state in `__transaction_state`, its transitions, and the owners of what is open (transactions.md)."""

from pylog.transactions import deadlines, image, markers, owners, states

__all__ = ["deadlines", "image", "markers", "owners", "states"]
