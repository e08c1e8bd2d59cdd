"""aiokafka's `BatchBuilder`: a batch that the program fills itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pylog.aio import BatchBuilder as NativeBuilder
from pylog.compat.aiokafka.errors import ProducerClosed, Raising

Convert = Callable[[Any], Any] | None


class BatchBuilder:
    """Collects records that are appended as one batch. `AIOKafkaProducer.create_batch` creates it.

    Args:
        batch_size: the largest number of bytes. The first record may be larger.
        now_ms: returns the time for records without one.
        key_serializer, value_serializer: the producer's.
    """

    def __init__(
        self, batch_size: int, now_ms: Callable[[], int], key_serializer: Convert = None, value_serializer: Convert = None
    ) -> None:
        self._native = NativeBuilder(batch_size)
        self._now_ms = now_ms
        self._key, self._value = key_serializer, value_serializer

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Sequence[tuple[str, bytes | None]] | None = None
    ) -> Any:
        """Adds a record.

        Args:
            timestamp: milliseconds since 1970; None is now.
            key, value: bytes or None, or the arguments of the serializers.
            headers: pairs of a name and bytes.

        Returns:
            An object with `offset`, `timestamp`, `size` and `crc`; None if the batch is closed, or full, which closes it.
        """
        if self._native.closed():
            return None
        check_numbers(timestamp=timestamp)
        with Raising(ProducerClosed):
            return self._native.append(
                timestamp=self._now_ms() if timestamp is None else timestamp,
                key=key if self._key is None else self._key(key),
                value=value if self._value is None else self._value(value),
                headers=pairs_of(headers) or None,
            )

    def close(self) -> None:
        """Makes `append` return None from now on."""
        self._native.close()

    def size(self) -> int:
        """Returns the bytes of the batch, before compression."""
        return self._native.size()

    def record_count(self) -> int:
        """Returns the number of records."""
        return self._native.record_count()

    def closed(self) -> bool:
        """Returns whether the batch is closed."""
        return self._native.closed()


def native_of(batch: BatchBuilder) -> NativeBuilder:
    """Returns the native batch of one of these. Raises TypeError for anything else."""
    if not isinstance(batch, BatchBuilder):
        raise TypeError(f"batch={batch!r} is not what create_batch() returns")
    return batch._native


def check_numbers(**given: object) -> None:
    """Raises TypeError for an argument that is neither an int nor None.

    Args:
        given: the arguments by name.
    """
    for name, value in given.items():
        if value is not None and not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is not an int")


def pairs_of(headers: Any) -> list[tuple[str, bytes | None]]:
    """Returns the headers of a record as a list.

    Args:
        headers: pairs of text and bytes or None; None for no headers.

    Raises:
        TypeError: they are not.
    """
    if not headers:
        return []
    if not isinstance(headers, Iterable):
        raise TypeError(f"headers={headers!r} are not pairs of text and bytes")
    found = list(headers)
    for each in found:
        is_pair = isinstance(each, tuple | list) and len(each) == 2
        if not is_pair or not isinstance(each[0], str) or not isinstance(each[1], bytes | None):
            raise TypeError(f"a header is a pair of text and bytes, not {each!r}")
    return found
