"""Names that callers give, on every way to a file: each is refused with a sentence, or it can be read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import pylog
from pylog import ConsumerGroupMetadata, OffsetsConfig, TransactionsConfig
from pylog.compat import kafka
from pylog.compat.clusters import CLUSTERS
from pylog.compat.confluent import KafkaException
from pylog.compat.confluent import Producer as ConfluentProducer
from support.cli import call
from support.refusals import listing

T: Final = ("t", 0)
ID, GROUP, TOPIC, CLIENT = "a transactional id", "a group", "a topic", "a client"
WRONG: Final[dict[str, Any]] = {
    "half of a surrogate pair": "a\ud800",
    "a byte that is not UTF-8": "a\udcff",  # as the command line gives it
    "too long": "x" * 32_768,
    "too long in bytes": "ä" * 16_384,
    "empty": "",
    "bytes": b"a",
    "a number": 5,
}


class Shop(NamedTuple):
    """A store with a topic of one record, and its directory."""

    store: pylog.Store
    path: Path

    def transact(self, act: Callable[[pylog.Transaction], object]) -> None:
        transaction = self.store.transaction("t")
        try:
            act(transaction)
        finally:
            transaction.abort()

    def commit_with(self, group: Any) -> None:
        self.transact(lambda transaction: transaction.send_offsets(group, {T: 1}))

    def join(self, **options: Any) -> None:
        with self.store.consumer("t", **options) as consumer:
            consumer.poll(timeout_ms=0)

    def send_as(self, name: Any) -> None:
        with self.store.producer(transactional_id=name) as producer:
            producer.init_transactions()

    def send_to(self, name: Any) -> None:
        with self.store.producer() as producer:
            producer.send(name, b"v")


Way = Callable[[Shop, Any], object]
WAYS: Final[dict[str, dict[str, Way]]] = {
    ID: {
        "transaction": lambda shop, name: shop.store.transaction(name),
        "producer": Shop.send_as,
        "describe": lambda shop, name: shop.store.transactions.describe(name),
        "abort": lambda shop, name: shop.store.transactions.abort(name),
        "fence": lambda shop, name: shop.store.transactions.abort(name, fence=True),
    },
    GROUP: {
        "commit": lambda shop, name: shop.store.offsets.commit(name, {T: 1}),
        "send_offsets": Shop.commit_with,
        "send_offsets of a member": lambda shop, name: shop.commit_with(ConsumerGroupMetadata(name, "m", 1)),
        "consumer": lambda shop, name: shop.join(group_id=name),
        "group": lambda shop, name: shop.store.group(name).describe(),
        "snapshot of a group": lambda shop, name: shop.store.snapshot(groups=[name]),
    },
    TOPIC: {
        "create_topic": lambda shop, name: shop.store.create_topic(name),
        "log": lambda shop, name: shop.store.log(name),
        "send": Shop.send_to,
        "append": lambda shop, name: shop.transact(lambda transaction: transaction.append(name, b"v")),
        "append_many": lambda shop, name: shop.transact(lambda transaction: transaction.append_many(name, [b"v"])),
        "commit": lambda shop, name: shop.store.offsets.commit("g", {(name, 0): 1}),
        "send_offsets": lambda shop, name: shop.transact(lambda txn: txn.send_offsets("g", {(name, 0): 1})),
        "find_open": lambda shop, name: shop.store.transactions.find_open(name),
        "find_hanging": lambda shop, name: shop.store.transactions.find_hanging(name),
        "snapshot": lambda shop, name: shop.store.snapshot([name]),
        "consumer": lambda shop, name: shop.store.consumer(name),
    },
    CLIENT: {
        "client_id": lambda shop, name: shop.join(group_id="g", client_id=name),
        "group_instance_id": lambda shop, name: shop.join(group_id="g", group_instance_id=name),
        "member_id": lambda shop, name: shop.commit_with(ConsumerGroupMetadata("g", name, 1)),
    },
}
EVERY: Final = [(kind, way) for kind, ways in WAYS.items() for way in ways]
OF_NO_MEMBER: Final = {("member_id", wrong) for wrong, name in WRONG.items() if isinstance(name, str)}  # asked at the commit
PASSES: Final = {("client_id", "empty"), ("snapshot of a group", "empty"), *OF_NO_MEMBER}
UNKNOWN: Final = {("group", "empty"): pylog.GroupIdNotFoundError}  # a broker's group may have that name


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    few = {"offsets": OffsetsConfig(topic_num_partitions=1), "transactions": TransactionsConfig(topic_num_partitions=1)}
    with pylog.open(tmp_path / "data", **few) as store:  # type: ignore[arg-type]
        store.create_topic("t")
        store.log("t").append(b"v")
        store.offsets.commit("g", {T: 0})
        with store.transaction("t") as transaction:
            transaction.append("t", b"v")
        yield Shop(store, tmp_path / "data")


def names_in(shop: Shop) -> list[object]:
    """The names that the store has: topics, groups, ids and members."""
    members = [member.member_id for group in shop.store.groups() for member in shop.store.group(group).describe().members]
    ids = [each.transactional_id for each in shop.store.transactions.list()]
    return [sorted(shop.store.topics()), shop.store.groups(), ids, members]


@pytest.mark.parametrize(("kind", "way"), EVERY)
def test_a_name_that_no_record_can_hold_is_refused(shop: Shop, kind: str, way: str) -> None:
    before = names_in(shop)
    for wrong, name in WRONG.items():
        if (way, wrong) in PASSES:
            WAYS[kind][way](shop, name)
        else:
            with pytest.raises(UNKNOWN.get((way, wrong), pylog.InvalidArgumentError)):
                WAYS[kind][way](shop, name)
    assert names_in(shop) == before


@pytest.mark.parametrize("way", WAYS[ID])
def test_an_id_of_the_form_of_pylogs_own_can_only_be_asked_for(shop: Shop, way: str) -> None:
    expected = pylog.InvalidArgumentError if way in ("transaction", "producer") else pylog.TransactionalIdNotFoundError
    with pytest.raises(expected, match="pylog-anonymous-7"):
        WAYS[ID][way](shop, "pylog-anonymous-7")


@pytest.mark.parametrize("name", ["a\0b", "x" * 32_767, "ä" * 16_383, "\U0001f600", "a/b", "..", "\n"], ids=ascii)
def test_other_texts_are_ids_and_groups_and_are_read_back(shop: Shop, name: str) -> None:
    with shop.store.transaction(name) as transaction:
        transaction.append("t", b"v")
        transaction.send_offsets(name, {T: 1})
    shop.join(group_id=name)
    shop.store.close()
    with pylog.open(shop.path) as again:
        assert name in again.groups()
        assert again.transactions.describe(name).state == "CompleteCommit"
        assert again.offsets.position(name, T) is not None
        assert again.verify().findings == ()


@pytest.mark.parametrize("command", [("describe",), ("abort", "--yes")], ids=" ".join)
@pytest.mark.parametrize("wrong", ["a\udcff", ""], ids=ascii)
def test_the_command_line_refuses_an_id_that_is_no_text(shop: Shop, command: tuple[str, ...], wrong: str) -> None:
    shop.store.close()
    before = listing(shop.path)
    done = call("transactions", command[0], shop.path, wrong, *command[1:])
    assert done.code == 2
    assert "transactional" in done.complaints
    assert listing(shop.path) == before


def test_the_layers_for_kafkas_clients_refuse_it_too(shop: Shop) -> None:
    shop.store.close()
    before = listing(shop.path)
    server = f"pylog://{shop.path}"
    with pytest.raises((pylog.InvalidArgumentError, kafka.errors.KafkaError), match="surrogate"):
        kafka.KafkaProducer(bootstrap_servers=server, transactional_id="a\ud800").init_transactions()
    with pytest.raises((pylog.InvalidArgumentError, KafkaException), match="surrogate"):
        ConfluentProducer({"bootstrap.servers": server, "transactional.id": "a\ud800"}).init_transactions()
    CLUSTERS.forget(str(shop.path))
    assert listing(shop.path).keys() == before.keys()
