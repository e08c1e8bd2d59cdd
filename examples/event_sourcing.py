"""Shows event sourcing: the log stores events, and the program derives its state from them.

    python examples/event_sourcing.py      # opens an account in a temporary directory, and closes and opens the store in between

All events are in one partition, in order. A decision (is this withdrawal allowed?) reads to the end and appends under the log's
lock. No other process appends in between, so each decision uses the newest state.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import pylog


class Deposited(msgspec.Struct, tag=True):
    """A deposit."""

    account: str
    amount: int


class Withdrawn(msgspec.Struct, tag=True):
    """A withdrawal."""

    account: str
    amount: int


Event = Deposited | Withdrawn
DECODER = msgspec.json.Decoder(Event)
ENCODER = msgspec.json.Encoder()


class RefusedError(Exception):
    """The state does not allow the withdrawal; nothing was appended."""


@dataclass
class Accounts:
    """The state after the events so far. Only `apply` changes it, and it uses only the event."""

    balances: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0

    def apply(self, event: Event) -> None:
        """Applies an event without a check, because the event has happened."""
        sign = 1 if isinstance(event, Deposited) else -1
        self.balances[event.account] = self.balances.get(event.account, 0) + sign * event.amount


class Bank:
    """Accounts in a log: events give the state, and decisions append events."""

    def __init__(self, store: pylog.Store) -> None:
        if "accounts" not in store.topics():
            store.create_topic("accounts", retention_ms=-1)  # events are never deleted
        self.log = store.log("accounts")
        self.state = Accounts()

    def catch_up(self) -> Accounts:
        """Applies the events that any process has appended since the last call."""
        for record in self.log.records(self.state.next_offset):
            self.state.apply(DECODER.decode(record.value or b""))
            self.state.next_offset = record.offset + 1
        return self.state

    def deposit(self, account: str, amount: int) -> None:
        """Appends a deposit, which needs no decision."""
        self.append(Deposited(account, amount))

    def withdraw(self, account: str, amount: int) -> None:
        """Withdraws if the newest state allows it: no other process appends between reading and appending.

        Raises:
            RefusedError: The balance is too low.
        """
        with self.log.exclusively():
            if self.catch_up().balances.get(account, 0) < amount:
                raise RefusedError(f"{account} has less than {amount}")
            self.append(Withdrawn(account, amount))

    def append(self, event: Event) -> None:
        """Appends an event. After the return, the event survives a power loss."""
        self.log.append(ENCODER.encode(event), key=event.account.encode())


def main() -> None:
    """Opens an account, is refused a withdrawal, and reads the state again after the store was closed."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bank"
        with pylog.open(path) as store:
            bank = Bank(store)
            bank.deposit("alice", 100)
            bank.withdraw("alice", 30)
            bank.deposit("alice", 10)
            try:
                bank.withdraw("alice", 1000)
            except RefusedError as refused:
                print(f"refused: {refused}")
            bank.withdraw("alice", 5)
        with pylog.open(path) as store:
            state = Bank(store).catch_up()
            print(f"alice has {state.balances['alice']}, after {state.next_offset} events")


if __name__ == "__main__":
    main()
