"""Transactions: their state in `__transaction_state`, its transitions, and the owners of what is open (transactions.md)."""
