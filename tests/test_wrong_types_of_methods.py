"""No method, constructor or function of `pylog` with a wrong type raises anything but a PylogError, and none of them writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import pylog
import pylog.aio
from pylog.config import CreateTopicArguments
from pylog.consumer.options import ConsumerArguments
from pylog.producer.config import ProducerArguments
from pylog.testing import MemoryFileSystem
from support.wrong_calls import T0, WRONG, WrongCall, calls_of, public_methods


def opened() -> tuple[MemoryFileSystem, pylog.Store]:
    fs = MemoryFileSystem()
    internal = {
        "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
        "transactions": pylog.TransactionsConfig(topic_num_partitions=1),
    }
    store = pylog.open("/s", fs=fs, durability="os", **internal)  # type: ignore[arg-type]
    store.create_topic("t", partition_count=2)
    store.log("t").append_many([b"a", b"b", b"c"])
    store.offsets.commit("g", {("t", 0): 1})
    return fs, store


def transactional(store: pylog.Store) -> pylog.Producer:
    producer = store.producer(transactional_id="p")
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def sent(store: pylog.Store) -> pylog.FutureRecordMetadata:
    with store.producer() as producer:
        return producer.send("t", b"x")


RIGHT: Final = {
    **dict.fromkeys(("topic", "name"), "t"),
    **dict.fromkeys(("group_id", "group_metadata", "group"), "g"),
    **{each: [T0] for each in ("partitions", "scope")},
    **dict.fromkeys(("offset", "start", "before", "timeout_ms"), 0),
    **dict.fromkeys(("data", "table"), pa.table({"value": [b"x"]})),
    "partition": T0,
    "timestamps": {T0: 0},
    "offsets": {T0: 1},
    "end": 2,
    "partition_count": 3,
    "items": [b"x"],
    "value": b"v",
    "max_bytes": 100,
    "url": "file:///nothing/there",
    "level": "os",
    "ms": 5,
}
NUMBERED: Final = RIGHT | {"partition": 0}
OTHERS: Final = ("close", "serve_metrics", "serve_ui")  # they end the object, or open a port
WAITS: Final = (  # right types; these calls take long, or for ever
    *((method, "timeout_ms=None") for method in ("wait_for", "follow")),
    *((method, f"rate_limit={limit}") for method in ("verify", "archive") for limit in (5, 1.5)),
)
MADE: Final[Mapping[str, tuple[type, Mapping[str, Any], Callable[[pylog.Store], Any]]]] = {
    "Store": (pylog.Store, NUMBERED, lambda store: store),
    "Log": (pylog.Log, RIGHT | {"offsets": [0]}, lambda store: store.log("t")),
    "Consumer": (pylog.Consumer, RIGHT, lambda store: store.consumer(group_id="g", auto_offset_reset="earliest")),
    "Producer": (pylog.Producer, NUMBERED, lambda store: store.producer()),
    "a transactional Producer": (pylog.Producer, NUMBERED, transactional),
    "OffsetStore": (pylog.OffsetStore, RIGHT, lambda store: store.offsets),
    "Group": (pylog.Group, RIGHT, lambda store: store.group("g")),
    "Transaction": (pylog.Transaction, NUMBERED, lambda store: store.transaction("tx").__enter__()),
    "TransactionAdmin": (pylog.TransactionAdmin, RIGHT, lambda store: store.transactions),
    "FutureRecordMetadata": (pylog.FutureRecordMetadata, RIGHT, sent),
    "Snapshot": (pylog.Snapshot, RIGHT, lambda store: store.snapshot()),
}
CONSTRUCTORS: Final[tuple[Callable[..., Any], ...]] = (
    *(pylog.KafkaTier, pylog.TopicConfig, pylog.OffsetsConfig, pylog.TransactionsConfig, pylog.ProducerConfig, pylog.Durability),
    *(pylog.Durability.of, pylog.Durability.INTERVAL, pylog.ConsumerGroupMetadata, pylog.OffsetAndMetadata, pylog.ProducerBatch),
    *(pylog.aio.AsyncConsumer, pylog.aio.AsyncProducer, pylog.aio.AsyncLog, pylog.aio.AsyncStore, pylog.aio.BatchBuilder),
)
OPTIONS: Final = {
    "consumer": (ConsumerArguments, lambda made: (made.subscribe(["t"]), made.poll(0))),
    "producer": (ProducerArguments, lambda made: made.send("t", b"v", b"k").get(2)),
    "create_topic": (CreateTopicArguments, lambda made: None),
}
FUNCTIONS: Final = ("read_table", "read_batches", "restore", "sweep", "export_offsets", "import_offsets")


def outcome(call: Callable[[], Any]) -> str:
    """Returns what is wrong with the error of a call: it is not pylog's. Looks at the first items of an iterator."""
    try:
        made = call()
        if isinstance(made, Iterator) and not isinstance(made, pylog.Consumer):
            list(islice(made, 3))
        if isinstance(made, pylog.Consumer | pylog.Producer | pylog.Store):
            made.close()
    except pylog.PylogError:
        return "refused"
    except Exception as error:  # noqa: BLE001 - the finding
        return f"{type(error).__name__}: {error}"
    return "accepted"


def tried(name: str, method: str, call: WrongCall) -> str:
    """Makes one call of a method on a new store. Returns what is wrong with it; nothing if it is answered or refused."""
    fs, store = opened()
    with store:
        made = MADE[name][2](store)
        if name == "Consumer" and method not in ("assign", "subscribe"):
            made.assign([T0])
        before = fs.image()
        found = outcome(lambda: call(getattr(made, method)))
        if found == "refused" and fs.image() != before:
            found = "was refused, and has written"
        if hasattr(made, "close") and made is not store:
            made.close()
    return "" if found in ("refused", "accepted") else f"{method}({call.told}): {found}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_methods_answer_or_refuse(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # "x" is a path
    kind, given, _ = MADE[name]
    found = []
    for method, function in public_methods(kind):
        if method not in OTHERS:
            right = given | {"name": "new"} if method == "create_topic" else given
            found += [tried(name, method, call) for call in calls_of(function, right) if (method, call.told) not in WAITS]
    assert found, "the class has no methods"
    assert list(filter(None, found)) == []


@pytest.mark.parametrize("made", CONSTRUCTORS, ids=lambda made: made.__qualname__)
def test_constructors_answer_or_refuse(made: Callable[..., Any]) -> None:
    calls = list(calls_of(made, RIGHT | {"name": "OS", "threads": None}, skip=0))
    assert len(calls) >= len(WRONG)
    found = {call.told: outcome(lambda call=call: call(made)) for call in calls}  # type: ignore[misc]
    assert {told: each for told, each in found.items() if each not in ("refused", "accepted")} == {}


@pytest.mark.slow
@pytest.mark.parametrize("method", OPTIONS)
def test_options_are_refused_when_the_object_is_made_or_serve(method: str) -> None:
    arguments, use = OPTIONS[method]
    found = {}
    for option in arguments.__annotations__:
        for wrong in WRONG:
            fs, store = opened()
            with store:
                given = ("new",) if method == "create_topic" else ()
                before = fs.image()
                made = []
                found[option, repr(wrong)] = outcome(lambda: made.append(getattr(store, method)(*given, **{option: wrong})))  # noqa: B023
                if made:
                    found[option, repr(wrong)] = outcome(lambda: use(made[0]))  # noqa: B023
                    with suppress(AttributeError, pylog.PylogError):
                        made[0].close()
                else:
                    assert fs.image() == before, option
    assert {each: told for each, told in found.items() if told not in ("refused", "accepted")} == {}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", [pytest.param("open", marks=pytest.mark.slow), *FUNCTIONS])
def test_functions_answer_or_refuse(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    found = {}
    for number, call in enumerate(calls_of(getattr(pylog, name), {"topic": "t", "url": "archive", "directory": "r"}, skip=0)):
        with opened()[1] as store:
            named = {**call.named}
            if "store" in named and not call.told.startswith("store="):
                named["store"] = store
            if "path" in named and not call.told.startswith("path="):
                named["path"] = str(tmp_path / f"offsets-{number}") if "store" in named else str(tmp_path / "s")
            found[call.told] = outcome(lambda call=call, named=named: call._replace(named=named)(getattr(pylog, name)))  # type: ignore[misc]
    assert {told: each for told, each in found.items() if each not in ("refused", "accepted")} == {}
