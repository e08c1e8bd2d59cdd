"""A streaming query's intent to append a micro-batch, made durable before the first byte is appended.

Each query has one file in the store's root, which is replaced atomically. It names the micro-batch, the staging files with its
batches, and the end of each log at that time. A query that repeats the batch after a crash learns from the logs how much was
appended, and appends the rest *of the recorded batch*: the content of the repeated batch does not matter.

The batches carry a producer id and an epoch of their own, and sequences from 0 in each log. So each log shows how much of a
micro-batch it has, even if other writers have appended in between. Without a transaction, the producer id is derived from the
query, and the epoch from the number of the micro-batch; in a transaction, the intent has both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from pylog import limits
from pylog.directory.documents import Count, Offset, decoded, version_of
from pylog.directory.topic_names import is_topic_name
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.fs import FileKind, FileSystem, at_most, inside, join, write_atomically
from pylog.record.checksum import crc32c
from pylog.record.types import ProducerBatch, TransactionalBatch

_VERSION: Final = 2
_TRANSACTIONAL: Final = 3
_KNOWN: Final = (1, _VERSION, _TRANSACTIONAL)  # version 1 had no targets when it was done, and no records in them
_NAME: Final = re.compile(r"pylog-query\.[0-9a-f-]+\.json")


ProducerEpoch = Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_PRODUCER_EPOCH)]


class StagedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finished staging file.

    Attributes:
        name: in the store's root.
        index_position, index_size: position and size of its index, in bytes.
        index_crc: CRC-32C of the index.
    """

    name: str
    index_position: Offset
    index_size: Offset
    index_crc: Offset


class PartitionIntent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition that a micro-batch goes to.

    Attributes:
        topic, partition: which.
        end_offset: the end offset of its log when this was decided: no record of the micro-batch is below.
        records: how many of them the micro-batch has; said when it is done.
    """

    topic: str
    partition: Count
    end_offset: Offset
    records: Offset | msgspec.UnsetType = msgspec.UNSET  # and not null, which version 1 did not write under its checksum


class IntendedTransaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The transaction that a micro-batch is written in. It has what another process needs to complete it.

    Attributes:
        producer_id, producer_epoch: the producer id and producer epoch of its batches.
        timestamp_type: `CreateTime` or `LogAppendTime`; None is the topic's.
    """

    producer_id: Offset
    producer_epoch: ProducerEpoch
    timestamp_type: Literal["CreateTime", "LogAppendTime"] | None = None

    @property
    def numbers(self) -> TransactionalBatch:
        """The numbers of its first batch in each partition."""
        return TransactionalBatch(self.producer_id, self.producer_epoch, 0)


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query's intent.

    Attributes:
        query: the query's id.
        batch: the number of the micro-batch.
        files: its staging files, in order; none when it is done.
        targets: the partitions that it is appended to.
        done: whether all of it is in the logs.
        version: the version of the file format: 3 with a transaction.
        crc32c: the checksum of all other fields, eight hexadecimal digits.
        transaction: the transaction, until the micro-batch is done; none if it is appended without one.
    """

    query: str
    batch: Offset
    files: tuple[StagedFile, ...] = ()
    targets: tuple[PartitionIntent, ...] = ()
    done: bool = False
    version: int = _VERSION
    crc32c: str = ""
    transaction: IntendedTransaction | msgspec.UnsetType = msgspec.UNSET

    def sealed(self) -> Intent:
        """Returns the document with its checksum."""
        bare = msgspec.structs.replace(self, crc32c="")
        return msgspec.structs.replace(bare, crc32c=f"{crc32c(msgspec.json.encode(bare)):08x}")

    def records(self) -> int | None:
        """Returns how many records the micro-batch has; None if it is not done, or its intent has version 1.

        >>> Intent(
        ...     "ab", 7, targets=(PartitionIntent("orders", 0, 40, 2), PartitionIntent("orders", 1, 50, 3)), done=True
        ... ).records()
        5
        """
        counts = [target.records for target in self.targets if isinstance(target.records, int)]
        return sum(counts) if self.done and counts else None


def intent_of(
    query: str,
    batch: int,
    files: Sequence[StagedFile],
    targets: Sequence[PartitionIntent],
    transaction: IntendedTransaction | None,
) -> Intent:
    """Returns the intent to append a micro-batch. Args as the attributes of `Intent`."""
    made = Intent(query, batch, tuple(files), tuple(targets))
    return made if transaction is None else msgspec.structs.replace(made, version=_TRANSACTIONAL, transaction=transaction)


_DECODER: Final = msgspec.json.Decoder(Intent)  # created at import: see `pylog.topics.catalog`


def intent_name(query: str) -> str:
    """Returns the file name of a query's intent.

    >>> intent_name("ab-12")
    'pylog-query.ab-12.json'
    """
    return f"pylog-query.{query}.json"


def read_intent(fs: FileSystem, root: str, query: str) -> Intent | None:
    """Returns a query's last intent; None if it has none.

    Raises:
        CorruptionError: the file is damaged. UnsupportedFormatError: a newer pylog wrote it.
    """
    name = intent_name(query)
    return INTENTS.read(fs, join(root, name), root, name)


def _parse(data: bytes, path: str, root: str, name: str) -> Intent:
    damaged = partial(_damaged, path)
    version = version_of(data, damaged)
    if version not in _KNOWN:
        raise UnsupportedFormatError(
            f"{path} has version {version}, this pylog reads versions up to {_TRANSACTIONAL}; use a newer one", path=path
        )
    intent = decoded(_DECODER, data, damaged)
    if intent.sealed() != intent:
        raise damaged("its checksum is wrong")
    if intent_name(intent.query) != name:  # it becomes the name of a file when the micro-batch is done
        raise damaged("it is the file of another query")
    for staged in intent.files:
        inside(root, staged.name, path)
    if not all(is_topic_name(target.topic) for target in intent.targets):
        raise damaged("it names a topic that cannot exist")
    return intent


INTENTS: Final = FileKind(
    "a query's intent", _parse, at_most(limits.MAX_CHECKPOINT_BYTES), "start the query with a new checkpoint"
)


def _damaged(path: str, why: str) -> CorruptionError:
    message = f"{path} is damaged ({why}): the query's last micro-batch is unknown; start it with a new checkpoint"
    return CorruptionError(message, path=path)


def write_intent(fs: FileSystem, root: str, intent: Intent) -> None:
    """Replaces a query's intent. It is durable when this returns."""
    name = intent_name(intent.query)
    write_atomically(fs, root, name, INTENTS.checked(msgspec.json.encode(intent.sealed()), join(root, name)))


def needed_names(fs: FileSystem, root: str) -> set[str]:
    """Returns the staging files of micro-batches that were decided and are not done.

    Raises:
        As `read_intent`: what cannot be read may need anything.
    """
    names = [entry.name for entry in fs.list(root) if _NAME.fullmatch(entry.name)]
    needed: set[str] = set()
    for name in names:
        intent = INTENTS.read(fs, join(root, name), root, name)
        if intent is not None:
            needed |= {file.name for file in intent.files}
    return needed


def producer_of(query: str, batch: int) -> ProducerBatch:
    """Returns the producer of a query's micro-batch: each has another epoch, and another id once the epochs are used up.

    >>> one, two = producer_of("ab", 32767), producer_of("ab", 32768)
    >>> one.epoch, two.epoch, one.producer_id == two.producer_id
    (32767, 0, False)
    """
    generation, epoch = divmod(batch, limits.MAX_PRODUCER_EPOCH + 1)
    digest = hashlib.blake2b(f"{query} {generation}".encode(), digest_size=8).digest()
    first, end = limits.PRODUCER_IDS
    return ProducerBatch(first + int.from_bytes(digest, "big") % (end - first), epoch, 0)
