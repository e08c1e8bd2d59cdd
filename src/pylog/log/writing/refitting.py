"""Checks append requests by a topic's options: when they are created, and again if the options changed before their commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pylog.config import Durability
from pylog.errors import InvalidRecordError
from pylog.log.options import Options, level_given
from pylog.log.producer_state import ProducerStateManager
from pylog.log.writing.append_batches import BatchRange, FinishedBatches
from pylog.log.writing.requests import Request
from pylog.record.builder import BatchEncoder
from pylog.record.control import end_transaction_record
from pylog.record.few import Piece, few_rows, joined_rows, least_bound
from pylog.record.types import MarkerBatch, OpenTransaction, ProducerBatch

_PLAIN: Final = BatchEncoder()  # of records that pylog makes itself
ChooseMarker = Callable[[OpenTransaction | None], tuple[MarkerBatch, bool] | None]


def fitted(
    options: Options,
    now_ms: int,
    pieces: list[Piece],
    compression: str | None,
    durability: Durability | str | None,
    producer: ProducerBatch | None = None,
    atomic: bool = False,
) -> Request:
    """Creates a request to append rows.

    Args:
        options: the topic's, as known to the log.
        now_ms: the wall clock, in milliseconds.
        pieces: the rows.
        compression, durability: the caller's arguments; None is the topic's.
        producer: the numbers of the batch; None without idempotence.
        atomic: true if the rows must form one batch.

    Raises:
        InvalidArgumentError: unknown codec or durability.
        InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the topic does not accept a row.
    """
    level = options.durability if durability is None else Durability.of(durability)
    encoder = options.encoders.of(compression)
    must_fit = (producer is not None or atomic) and not (len(pieces) == 1 and pieces[0].size_bound <= encoder.unchecked_bytes)
    if must_fit:
        pieces = checked_pieces(pieces, encoder, now_ms, _owner_of(producer, atomic))
    else:  # saves a call for each append
        for rows in pieces:
            encoder.check(rows, now_ms)
    return Request(pieces, encoder, level, producer, atomic, options, (compression, durability), now_ms)


def spliced(
    parts: Sequence[BatchRange], producer: ProducerBatch | None, durability: Durability | str | None, default: Durability
) -> Request:
    """Creates a request to append finished batches, which are checked at their commit. Raises InvalidArgumentError."""
    return Request(parts, FinishedBatches(), level_given(durability, default), producer, asked=(None, durability))


class DecidedRequest(Request):
    """A request whose records are decided under the partition's lock, so that what they depend on cannot change any more."""

    __slots__ = ()

    def decide(self, producers: ProducerStateManager) -> bool:
        """Decides, from the current producer state. Returns False if there is nothing to append.

        Raises:
            PylogError: the request fails with it.
        """
        raise NotImplementedError


class MarkerRequest(DecidedRequest):
    """A request to append a marker that ends a producer's open transaction.

    Args:
        now_ms: the wall clock, in milliseconds.
        producer_id: the producer's id.
        choose: called under the partition's lock with the open transaction of the producer, or None. Returns the marker's
            numbers, and true to commit; or None to append nothing.
        coordinator_epoch: the epoch of the transaction's coordinator.
        durability: the marker's durability, or, if nothing is appended, of the records so far.
    """

    __slots__ = ("_choose", "_coordinator_epoch", "_producer_id")

    def __init__(
        self, now_ms: int, producer_id: int, choose: ChooseMarker, coordinator_epoch: int, durability: Durability
    ) -> None:
        number = MarkerBatch(producer_id, 0, -1)  # the epoch is not known yet
        super().__init__([], _PLAIN, durability, number, True, asked=("none", durability), now_ms=now_ms)
        self._choose = choose
        self._coordinator_epoch = coordinator_epoch
        self._producer_id = producer_id

    def decide(self, producers: ProducerStateManager) -> bool:
        chosen = self._choose(producers.open_transaction_of(self._producer_id))
        if chosen is None:
            return False
        self.producer, committed = chosen
        rows = few_rows([(self.now_ms, *end_transaction_record(self._coordinator_epoch, committed=committed), ())])
        self.pieces, self.count, self.size = [rows], 1, rows.size_bound
        return True


class FencingRequest(MarkerRequest):
    """A request to append an abort marker that keeps a producer's epoch out of the log, unless the log has a batch of that epoch.

    Args:
        now_ms: the wall clock, in milliseconds.
        producer_id, epoch: the numbers of the batch.
        coordinator_epoch: the epoch of the coordinator of the transaction.
        durability: the durability of the marker, or of the batch that is there.

    Attributes:
        has_batch: after the request, whether the log has the batch.
    """

    __slots__ = ("_epoch", "has_batch")

    def __init__(self, now_ms: int, producer_id: int, epoch: int, coordinator_epoch: int, durability: Durability) -> None:
        super().__init__(now_ms, producer_id, self._fence, coordinator_epoch, durability)
        self._epoch = epoch
        self.has_batch = False

    def _fence(self, _: OpenTransaction | None) -> tuple[MarkerBatch, bool]:
        return MarkerBatch(self._producer_id, self._epoch + 1, -1), False

    def decide(self, producers: ProducerStateManager) -> bool:
        self.has_batch = producers.has_batch(self._producer_id, self._epoch)
        return producers.epoch_of(self._producer_id) < self._epoch + 1 and not self.has_batch and super().decide(producers)


class ChosenRequest(DecidedRequest):
    """A request to append records that are chosen under the partition's lock, as one batch.

    Args:
        now_ms: the wall clock, in milliseconds.
        choose: called under the partition's lock. Returns the records; or None to append nothing.
        durability: the durability of the records.
    """

    __slots__ = ("_choose",)

    def __init__(self, now_ms: int, choose: Callable[[], Piece | None], durability: Durability) -> None:
        super().__init__([], _PLAIN, durability, whole=True, asked=(None, durability), now_ms=now_ms)
        self._choose = choose

    def decide(self, producers: ProducerStateManager) -> bool:  # noqa: ARG002 - as `DecidedRequest` has it
        rows = self._choose()
        if rows is None:
            return False
        assert isinstance(self.encoder, BatchEncoder)
        self.pieces = checked_pieces([rows], self.encoder, self.now_ms, _owner_of(None, True))
        self.count, self.size = len(rows), rows.size_bound
        return True


def refit(request: Request, options: Options, now_ms: int) -> None:
    """Changes a request to other options. Raises as `fitted`; the request is then unchanged.

    Args:
        request: the request.
        options: the topic's, as they count at the commit.
        now_ms: the wall clock at the commit: finished batches are checked by it. Rows are checked by the time of their request.
    """
    compression, durability = request.asked
    if isinstance(request, MarkerRequest):  # a transaction must end, whatever the options are
        request.options = options
        return
    if isinstance(request.encoder, FinishedBatches):
        _check_parts(request.pieces, options)
        request.encoder = FinishedBatches(options.config, options.encoders.timestamps, now_ms)
    else:
        encoder = options.encoders.of(compression)
        request.pieces = checked_pieces(list(request.pieces), encoder, request.now_ms, _owner_of(request.producer, request.whole))
        request.encoder = encoder
    request.level = level_given(durability, options.durability)
    request.options = options


def _owner_of(producer: ProducerBatch | None, atomic: bool) -> str | None:
    """Returns the beginning of the error for rows that do not fit into one batch; None if several are allowed."""
    return "a producer's" if producer is not None else "an atomic" if atomic else None


def _check_parts(parts: Sequence[BatchRange], options: Options) -> None:
    for part in parts:
        if options.config.is_compacted and not part.keyed:
            raise InvalidRecordError(
                f"{part.file.path} has records without a key, but the topic is now compacted (cleanup_policy="
                f"{options.config.cleanup_policy}); give each row a key, or remove 'compact' from that option"
            )


def checked_pieces(pieces: list[Piece], encoder: BatchEncoder, now_ms: int, whole: str | None) -> list[Piece]:
    """Returns rows that fit into batches.

    Args:
        pieces, encoder: the rows and their encoder.
        now_ms: the wall clock, in milliseconds.
        whole: if the rows must form one batch, its owner for messages, such as "a producer's".

    Raises:
        RecordTooLargeError: they do not fit. InvalidRecordError: a row has no key, and the topic is compacted.
        InvalidTimestampError: a timestamp is too far from now.
    """
    if whole and pieces:
        if len(pieces) > 1:  # joining them creates Python objects for all records
            encoder.check_one_batch(least_bound(pieces), sum(map(len, pieces)), whole)
            pieces = [joined_rows(pieces)]
        encoder.check_one_batch(pieces[0].size_bound, len(pieces[0]), whole)
    for rows in pieces:
        encoder.check(rows, now_ms, whole=bool(whole))
    return pieces
