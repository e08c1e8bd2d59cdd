"""Compares the states of transactional ids with the logs that they are about, for `verify`.

The kinds of findings:

* "undecodable": the last record of an id cannot be read, so its transaction can be neither committed nor aborted.
* "transaction": a transaction that waits for an administrator or for the next process that opens the directory for writing. No
  record is affected.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog.directory.locks import KAFKA_LOCK
from pylog.errors import PylogError
from pylog.fs import join
from pylog.log.recovery.findings import Finding
from pylog.log_manager import LogManager
from pylog.topics.partitions import directory_name
from pylog.transactions.admin import TransactionAdmin, missing_partitions
from pylog.transactions.described import OpenTransactionDescription, TransactionDescription
from pylog.transactions.metadata import TRANSACTION_STATE_TOPIC


def transaction_findings(admin: TransactionAdmin, manager: LogManager) -> list[Finding]:
    """Returns what the states of transactional ids say against the logs. Never raises for damage, which has its own findings.

    Args:
        admin, manager: the store's admin and manager.

    Cost: one refresh of each partition.
    """
    found, faults = admin.known()
    findings = [
        _finding("undecodable", error.path or manager.path, f"{error}; its transaction can be neither committed nor aborted")
        for of_what, error in faults.items()
        if isinstance(of_what, str)
    ]
    try:
        opened = admin.find_open()
        hanging = admin.find_hanging() if any(each.is_hanging for each in opened) else []
    except PylogError:  # a partition or a state is damaged, which is a finding of its own
        return findings
    for state in found:
        findings += _of_state(state, opened, manager)
    return findings + [_of_hanging(each, manager.path) for each in hanging]


def _of_state(state: TransactionDescription, opened: list[OpenTransactionDescription], manager: LogManager) -> Iterator[Finding]:
    fs, root = manager.fs, manager.path
    path = join(root, TRANSACTION_STATE_TOPIC)
    what = f"the transactional id {state.transactional_id!r} is in the state {state.state}"
    if state.state == "Ongoing":
        missing = ", ".join(f"{key.topic}-{key.partition}" for key in missing_partitions(manager, state.partitions))
        if missing:
            yield _finding("transaction", path, f"{path}: {what}, and names partitions that do not exist: {missing}")
        return
    if state.owner in (None, "alive") or (state.owner == "broker" and (fs.lock_owner(join(root, KAFKA_LOCK)) or 0) > 0):
        return  # its owner writes the markers now
    waiting = [each.topic_partition for each in opened if each.transactional_id == state.transactional_id and not each.is_hanging]
    if waiting:
        unmarked = ", ".join(f"{key.topic}-{key.partition}" for key in waiting)
        yield _finding("transaction", path, f"{path}: {what}, and partitions have no marker of it: {unmarked}")


def _of_hanging(found: OpenTransactionDescription, root: str) -> Finding:
    path = join(root, directory_name(found.topic_partition))
    which = f"a transaction of producer {found.producer_id}, epoch {found.producer_epoch}, hangs at offset {found.start_offset}"
    message = f"{path}: {which}: no transactional id has it open there, so readers with read_committed stop there"
    return _finding("transaction", path, message, found.start_offset)


def _finding(kind: str, path: str, message: str, offset: int = 0) -> Finding:
    return Finding(kind, path, 0, 0, offset, None, message)
