"""kafka-python's errors: the classes that programs catch, and which of pylog's errors become which."""

from __future__ import annotations

from typing import Any

import pytest

from pylog import errors as native
from pylog.compat.kafka import errors
from pylog.compat.kafka.translation import translated
from support.compat.real import real as real_module

real = real_module("kafka.errors")


def real_classes() -> dict[str, Any]:
    return {name: found for name, found in vars(real).items() if isinstance(found, type) and issubclass(found, real.KafkaError)}


def test_every_error_has_the_number_the_name_the_flags_and_the_bases_of_the_real_one() -> None:
    for name, theirs in real_classes().items():
        ours = getattr(errors, name)
        texts = ["message"] if theirs in real.kafka_errors.values() else []
        for attribute in ("errno", "retriable", "invalid_metadata", *texts):
            assert getattr(ours, attribute, None) == getattr(theirs, attribute, None), (name, attribute)
        bases = [each.__name__ for each in theirs.__mro__ if issubclass(each, real.KafkaError)]
        assert [each.__name__ for each in ours.__mro__ if issubclass(each, errors.KafkaError)] == bases, name
    assert set(errors.kafka_errors) == set(real.kafka_errors) - {None}


def test_errors_print_and_compare_as_the_real_ones_do() -> None:
    for name, arguments in (("KafkaTimeoutError", ("late",)), ("OffsetOutOfRangeError", ()), ("UnknownError", ("a", 1))):
        ours, theirs = getattr(errors, name), getattr(real, name)
        assert str(ours(*arguments)) == str(theirs(*arguments))
        assert ours(*arguments) == ours(*arguments)
        assert ours(*arguments) != ours("other")
    assert errors.for_code(3) is errors.UnknownTopicOrPartitionError
    assert errors.for_code(9999).errno == 9999


def test_loops_of_version_2_catch_what_version_3_raises() -> None:
    assert issubclass(errors.NoBrokersAvailable, errors.KafkaTimeoutError)
    assert issubclass(errors.KafkaError, RuntimeError)
    assert errors.GroupCoordinatorNotAvailableError is errors.CoordinatorNotAvailableError


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (native.FencedMemberError("x"), "CommitFailedError"),
        (native.CorruptionError("x"), "CorruptRecordError"),
        (native.ReadOnlyError("x"), "TopicAuthorizationFailedError"),
        (native.StoreLockedError("x"), "NoBrokersAvailable"),
        (native.NotALogDirectoryError("x"), "KafkaConfigurationError"),
        (native.StorageFailedError("x", path="/x"), "KafkaStorageError"),
        (native.RecordTooLargeError("x"), "MessageSizeTooLargeError"),
        (native.ClosedError("x"), "IllegalStateError"),
        (native.TopicAlreadyExistsError("x"), "TopicAlreadyExistsError"),
    ],
)
def test_pylogs_errors_become_kafka_pythons_and_stay_their_cause(error: native.PylogError, name: str) -> None:
    made = translated(error)
    assert type(made) is getattr(errors, name)
    assert made.__cause__ is error
    assert "x" in str(made)


def test_every_error_of_pylog_becomes_one_of_kafka_python() -> None:
    for name in native.__all__:
        kind = getattr(native, name)
        made = kind.__new__(kind, "x")
        made.args, made.partition, made.offset = ("x",), None, None
        if kind is not native.RecordDeserializationError:
            assert isinstance(translated(made), errors.KafkaError), name
