"""Event sourcing: events are what is stored, and the state is what follows from them.

    python examples/event_sourcing.py      # opens an account in a temporary directory, and closes and opens the store in between

All events are in one partition, in order. Who decides (may this be withdrawn?) reads up to the end and appends under the log's
lock: nobody appends in between, so no decision rests on a state that is old.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import pylog


class Deposited(msgspec.Struct, tag=True):
    """Somebody paid in."""

    account: str
    amount: int


class Withdrawn(msgspec.Struct, tag=True):
    """Somebody took out."""

    account: str
    amount: int


Event = Deposited | Withdrawn
DECODER = msgspec.json.Decoder(Event)
ENCODER = msgspec.json.Encoder()


class RefusedError(Exception):
    """The state does not allow it; nothing was appended."""


@dataclass
class Accounts:
    """What the events so far come to. `apply` is all that changes it, and asks nothing but the event."""

    balances: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0

    def apply(self, event: Event) -> None:
        """Takes an event in, whatever it says: it has happened."""
        sign = 1 if isinstance(event, Deposited) else -1
        self.balances[event.account] = self.balances.get(event.account, 0) + sign * event.amount


class Bank:
    """Accounts over a log: state is read up from events, decisions append events."""

    def __init__(self, store: pylog.Store) -> None:
        if "accounts" not in store.topics():
            store.create_topic("accounts", retention_ms=-1)  # events are kept for ever
        self.log = store.log("accounts")
        self.state = Accounts()

    def catch_up(self) -> Accounts:
        """Applies what has been appended since, by whomever."""
        for record in self.log.records(self.state.next_offset):
            self.state.apply(DECODER.decode(record.value or b""))
            self.state.next_offset = record.offset + 1
        return self.state

    def deposit(self, account: str, amount: int) -> None:
        """Needs no decision: appended as it is."""
        self.append(Deposited(account, amount))

    def withdraw(self, account: str, amount: int) -> None:
        """Decides on the newest state: between reading and appending nobody else appends.

        Raises:
            RefusedError: there is not so much.
        """
        with self.log.exclusively():
            if self.catch_up().balances.get(account, 0) < amount:
                raise RefusedError(f"{account} has less than {amount}")
            self.append(Withdrawn(account, amount))

    def append(self, event: Event) -> None:
        """When this returns, the event has happened: it outlives a power loss."""
        self.log.append(ENCODER.encode(event), key=event.account.encode())


def main() -> None:
    """Opens an account, is refused, forgets everything, and knows it again."""
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
