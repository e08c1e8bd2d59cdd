"""The transactional ids of one partition of `__transaction_state`: a fold over its records. The last record of each id counts.

A record with a key that is not Kafka's is skipped. A value that does not parse is never skipped: the record before it may say
the opposite, as open where a commit was prepared. So its id is refused until it has another record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.log.reading.transaction_outcomes import TransactionEnd
from pylog.offsets.replay import take_last_of_each_key
from pylog.skipped import Skipped
from pylog.transactions.metadata import NO_PRODUCER_ID, TransactionMetadata, TransactionState
from pylog.transactions.records import parse_key, parse_value

_SKIPPED_KEPT: Final = 100  # all are counted, the first ones are named

# The usual values of ids at rest, in version 1: with the byte of a null or an empty array, and pylog's or a broker's tags.
_AT_REST: Final = struct.Struct(">hqhibBqq")
_EPOCH_AT: Final = 10  # in a value, after its version and its producer id
_UPDATED_AT: Final = 18  # in a value at rest: the time of the state
_TAGS: Final = b"\x01\x02\x02\x00\x02"
_BROKERS_TAGS: Final = struct.Struct(">3sq4s")  # tag 0, previous producer id, tag 2
_BROKERS_FIRST: Final = b"\x02\x00\x08"
_STATES_AT_REST: Final = {state: int(state.is_complete) for state in TransactionState if state.is_at_rest}
_UNDECIDED: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(slots=True)
class StateEntry:
    """The last record of an id.

    Attributes:
        record_offset: in `__transaction_state`.
        value: the record's value.
        producer_id: that of the value; -1 if the value cannot be read.
        status: number of the state; -1 if the value cannot be read.
        fault: why the value cannot be read; None if it can.
        known: the value as metadata, computed on first use.
    """

    record_offset: int
    value: bytes
    producer_id: int
    status: int
    fault: str | None = None
    known: TransactionMetadata | None = None


class TransactionsImage:
    """All transactional ids of a partition.

    Attributes:
        skipped: the first records that cannot be used, in the order of the replay.
        skipped_count: the number of all of these.
        decisions: rises with each record, unless it certainly means that no transaction was committed since the record before.
    """

    def __init__(self) -> None:
        self.skipped: list[Skipped] = []
        self.skipped_count = 0
        self.decisions = 0
        self._faults: dict[str, str] = {}
        self._undecided: dict[str, None] = {}  # ids with an open or a prepared transaction
        self._entries: dict[str, StateEntry] = {}
        self._producers: dict[int, str] = {}  # producer id → transactional id, also of the producer ids before the current ones

    # ---- what is known -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def ids(self) -> list[str]:
        """Returns the transactional ids, in the order of their first records."""
        return list(self._entries)

    def undecided(self) -> list[str]:
        """Returns the ids with an open or a prepared transaction. Ids whose value cannot be read are left out: see `faults`."""
        return list(self._undecided)

    def record_offset(self, transactional_id: str) -> int:
        """Returns the offset of an id's last record."""
        return self._entries[transactional_id].record_offset

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        """Returns the ids at rest that were unused for so long that a tombstone may replace their record (13.2).

        Args:
            now_ms: the wall clock, in milliseconds.
            expiration_ms: how long an unused id is kept.

        Cost: some 0.3 µs for each id.
        """
        return [
            name for name, entry in self._entries.items() if _is_at_rest(entry) and _updated_ms(entry) <= now_ms - expiration_ms
        ]

    def faults(self) -> dict[str, str]:
        """Returns the ids whose last value cannot be read, with the reasons. `state_of` raises for them."""
        return dict(self._faults)

    def state_of(self, transactional_id: str) -> TransactionMetadata | None:
        """Returns the state of an id; None if it has no record. Cost: 0.1 µs, and 20 µs at the first call after a record.

        Raises:
            CorruptionError: the id's last value does not parse.
            UnsupportedFormatError: the value is of a later version.
        """
        entry = self._entries.get(transactional_id)
        if entry is None:
            return None
        if entry.known is None:
            entry.known = _parsed(transactional_id, entry.record_offset, entry.value)
        return entry.known

    def state_of_producer(self, producer_id: int) -> TransactionMetadata | None:
        """Returns the state of the id that has a producer id, or had it before its current one; None if there is none.

        Raises:
            CorruptionError, UnsupportedFormatError: as `state_of`.
        """
        name = self._producers.get(producer_id)
        return None if name is None else self.state_of(name)

    # ---- replay --------------------------------------------------------------------------------------------------------------

    def replay(self, frames: Iterable[pa.RecordBatch], ends: Iterable[TransactionEnd]) -> None:
        """Takes more records. A coordinator writes none in a transaction, so markers are skipped and counted.

        Args:
            frames: the records, with the columns offset, key and value.
            ends: markers among them.
        """
        for frame in frames:
            if frame.num_rows:
                take_last_of_each_key(self, frame)
        for end in ends:
            self.skip(end.offset, "it ends a transaction, and no coordinator writes these records in one")
        self.skipped.sort()

    def take_own(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Takes one record that this process has just appended."""
        self.take(offset, key, value)

    def take_state(self, offset: int, value: bytes, known: TransactionMetadata) -> None:
        """Takes the record of a state that this process has just appended."""
        self._put(known.transactional_id, StateEntry(offset, value, known.producer_id, known.state, None, known))

    def take(self, offset: int, key: bytes | None, value: bytes | None, *, written: bool = False) -> bool:  # noqa: ARG002
        """Takes one record. Returns False if its key cannot be used: then it is skipped and counted.

        Args:
            offset, key, value: the record's offset, key and value.
            written: has no meaning here; see `KeyedImage`.
        """
        try:
            name = parse_key(key or b"")
        except (CorruptionError, UnsupportedFormatError) as error:
            self.skip(offset, str(error))
            return False
        if value is None:
            self._remove(name)
        else:
            self._put(name, _entry_of(name, offset, value))
        return True

    def skip(self, offset: int, fault: str) -> None:
        """Counts a record that cannot be used."""
        self.skipped_count += 1
        if len(self.skipped) < _SKIPPED_KEPT:
            self.skipped.append(Skipped(offset, fault))

    def _put(self, name: str, entry: StateEntry) -> None:
        self.decisions += not _decides_nothing(self._entries.get(name), entry)
        self._entries[name] = entry
        if entry.status in _UNDECIDED:
            self._undecided[name] = None
        else:
            self._undecided.pop(name, None)
        self._faults.pop(name, None)
        if entry.fault is not None:
            self._faults[name] = entry.fault
            self.skip(entry.record_offset, entry.fault)
            return
        self._producers[entry.producer_id] = name
        if entry.known is not None and entry.known.previous_producer_id != NO_PRODUCER_ID:
            self._producers.setdefault(entry.known.previous_producer_id, name)

    def _remove(self, name: str) -> None:
        """Applies a tombstone: the id has expired. Its producer ids are forgotten, or made-up ids would fill the memory."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self.decisions += 1
        self._undecided.pop(name, None)
        self._faults.pop(name, None)
        previous = NO_PRODUCER_ID if entry.known is None else entry.known.previous_producer_id
        for producer_id in (entry.producer_id, previous):
            if self._producers.get(producer_id) == name:
                del self._producers[producer_id]


def _decides_nothing(before: StateEntry | None, after: StateEntry) -> bool:
    """Returns whether no transaction of an id can have been decided to commit between two of its records, nor by the second one.

    With a client's version of 2, each transaction has an epoch of its own, and a commit takes the next one.
    """
    if before is None or before.producer_id != after.producer_id or not (_has_own_epochs(before) and _has_own_epochs(after)):
        return False
    step = _epoch_of(after.value) - _epoch_of(before.value)
    if after.status == TransactionState.PREPARE_ABORT:
        return step == 1 and before.status == TransactionState.ONGOING
    if after.status == TransactionState.PREPARE_COMMIT:
        return False
    if after.status == TransactionState.ONGOING and after.known is not None and after.known.is_single:
        return False  # its batch may be written from now on, which commits it
    return step == 0


def _has_own_epochs(entry: StateEntry) -> bool:
    """Returns whether an entry is of that version, as values in the usual forms are, which are not parsed."""
    return entry.fault is None and (entry.known is None or entry.known.has_own_epochs)


def _is_at_rest(entry: StateEntry) -> bool:
    return entry.fault is None and entry.status in _STATES_AT_REST


def _updated_ms(entry: StateEntry) -> int:
    """Returns the time of a state. A value that was not parsed has one of the usual forms of an id at rest."""
    if entry.known is not None:
        return entry.known.last_update_timestamp_ms
    return int.from_bytes(entry.value[_UPDATED_AT : _UPDATED_AT + 8], "big", signed=True)


def _epoch_of(value: bytes) -> int:
    return int.from_bytes(value[_EPOCH_AT : _EPOCH_AT + 2], "big", signed=True)


def _entry_of(name: str, offset: int, value: bytes) -> StateEntry:
    """Returns the entry of a record. Values of ids at rest, which are nearly all of them, are checked but not parsed."""
    found = _at_rest(value)
    if found is not None:
        return StateEntry(offset, value, *found)
    try:
        known = _parsed(name, offset, value)
    except (CorruptionError, UnsupportedFormatError) as error:
        return StateEntry(offset, value, NO_PRODUCER_ID, -1, str(error))
    return StateEntry(offset, value, known.producer_id, known.state, None, known)


def _parsed(name: str, offset: int, value: bytes) -> TransactionMetadata:
    try:
        return parse_value(name, value)
    except (CorruptionError, UnsupportedFormatError) as error:
        message = f"the record at offset {offset} gives the transactional id {name!r} no state that can be read: {error}"
        raise type(error)(message, offset=offset) from error


def rests(value: bytes) -> bool:
    """Returns whether a value certainly is that of an id without an open or prepared transaction. Cost: 1 µs."""
    return _at_rest(value) is not None


def _at_rest(value: bytes) -> tuple[int, int] | None:
    """Returns producer id and state of a value in one of the two usual forms of an id at rest; None for any other value."""
    rest = len(value) - _AT_REST.size
    if rest == len(_TAGS):
        usual = value[_AT_REST.size :] == _TAGS
    elif rest == _BROKERS_TAGS.size:
        first, _, last = _BROKERS_TAGS.unpack_from(value, _AT_REST.size)
        usual = first == _BROKERS_FIRST and last == _TAGS[1:] and value[2:10] == value[37:45]
    else:
        return None
    version, producer_id, epoch, timeout, status, partitions, _, _ = _AT_REST.unpack_from(value)
    usual = usual and version == 1 and min(producer_id, epoch, timeout) >= 0 and _STATES_AT_REST.get(status) == partitions
    return (producer_id, status) if usual else None
