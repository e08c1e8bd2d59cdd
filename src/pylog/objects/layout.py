"""Names of the objects of an archive. Pure.

Segments have the names that Aiven's plugin for Kafka's tiered storage gives them. pylog's own documents are under `pylog/`: each
is immutable and numbered, and a small object `head.json` beside them names the newest number, as a hint.

```text
<topic>-<topicId>/<partition>/<base offset, 20 digits>-<segmentId>.log            the segment, byte for byte
                                                                  .indexes        its small files, one after the other
                                                                  .rsm-manifest   Aiven's description of both
pylog/store/<version>.json.zst                                 the store: its id, its topics and their configurations
pylog/partitions/<topic>-<topicId>/<partition>/<version>.json.zst       manifests of a partition
pylog/partitions/<topic>-<topicId>/<partition>/part-<partId>.json.zst    the oldest segments, of a partition that has many
pylog/catalogue/<topic>-<topicId>/<version>.parquet            all segments of a topic, in columns
pylog/sweep/<random>                                           of a sweep that runs
```
"""

from __future__ import annotations

import base64
import re
import secrets
from typing import Final, NamedTuple

from pylog.directory.archives import STORE_DOCUMENTS

NO_TOPIC_ID: Final = "A" * 22  # Kafka's zero id: of a partition of a broker before 2.8
LOG: Final = ".log"
INDEXES: Final = ".indexes"
RSM_MANIFEST: Final = ".rsm-manifest"
SEGMENT_OBJECTS: Final = (LOG, INDEXES, RSM_MANIFEST)

DOCUMENTS: Final = "pylog/"
STORE: Final = "/".join((*STORE_DOCUMENTS, ""))
SWEEPS: Final = "pylog/sweep/"  # an object that tells a sweep the time of the store
_PARTITIONS: Final = "pylog/partitions/"
_CATALOGUES: Final = "pylog/catalogue/"
HEAD: Final = "head.json"
DOCUMENT: Final = ".json.zst"
TABLE: Final = ".parquet"
_PART: Final = "part-"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_TOPIC: Final = re.compile(
    r"pylog/(?:partitions|catalogue)/(?P<topic>[a-zA-Z0-9._-]+)-(?P<topic_id>[A-Za-z0-9_-]{22})/(?:(?P<partition>\d+)/)?"
)
_SEGMENT: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<topic_id>[A-Za-z0-9_-]{22})/(?P<partition>\d+)/"
    r"(?P<base>\d{20})-(?P<segment_id>[A-Za-z0-9_-]{22})(?P<suffix>\.log|\.indexes|\.rsm-manifest)"
)


class ArchivedPartition(NamedTuple):
    """A partition in an archive. A topic that was deleted and created again has another id, and so other objects.

    Attributes:
        topic: the topic's name.
        topic_id: 22 characters of Kafka's base64 of its id.
        partition: its number.
    """

    topic: str
    topic_id: str
    partition: int

    @property
    def segments(self) -> str:
        """Prefix of the partition's segments."""
        return f"{self.topic}-{self.topic_id}/{self.partition}/"

    @property
    def manifests(self) -> str:
        """Prefix of the partition's manifests."""
        return f"{_PARTITIONS}{self.topic}-{self.topic_id}/{self.partition}/"


class SegmentName(NamedTuple):
    """The parts of the key of a segment's object."""

    partition: ArchivedPartition
    base_offset: int
    segment_id: str
    suffix: str


def new_segment_id() -> str:
    """Returns a random id, 22 characters of Kafka's base64. Each attempt to upload a segment, or a part, has its own."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def is_id(text: str) -> bool:
    """Returns whether a text is an id in Kafka's base64.

    >>> is_id("8SSgzKVaS0qTG9g3Uu47gg"), is_id("../x")
    (True, False)
    """
    return _ID.fullmatch(text) is not None


def segment_key(partition: ArchivedPartition, base_offset: int, segment_id: str, suffix: str) -> str:
    """Returns the key of one of a segment's objects.

    >>> segment_key(ArchivedPartition("orders", "8SSgzKVaS0qTG9g3Uu47gg", 3), 42, "ovMcNoR5R4yaIa_iCOkJ4g", LOG)
    'orders-8SSgzKVaS0qTG9g3Uu47gg/3/00000000000000000042-ovMcNoR5R4yaIa_iCOkJ4g.log'
    """
    return f"{partition.segments}{base_offset:020d}-{segment_id}{suffix}"


def parse_segment_key(key: str) -> SegmentName | None:
    """Returns the parts of the key of a segment's object; None if the key is another's.

    >>> parse_segment_key("a-b-8SSgzKVaS0qTG9g3Uu47gg/3/00000000000000000042-ovMcNoR5R4yaIa_iCOkJ4g.log").partition.topic
    'a-b'
    """
    found = _SEGMENT.fullmatch(key)
    if found is None:
        return None
    partition = ArchivedPartition(found["topic"], found["topic_id"], int(found["partition"]))
    return SegmentName(partition, int(found["base"]), found["segment_id"], found["suffix"])


def catalogue_prefix(topic: str, topic_id: str) -> str:
    """Returns the prefix of a topic's catalogues."""
    return f"{_CATALOGUES}{topic}-{topic_id}/"


def version_key(prefix: str, version: int, suffix: str) -> str:
    """Returns the key of a numbered document.

    >>> version_key(STORE, 7, DOCUMENT)
    'pylog/store/00000000000000000007.json.zst'
    """
    return f"{prefix}{version:020d}{suffix}"


def parse_version(prefix: str, key: str, suffix: str) -> int | None:
    """Returns the number of a document of a prefix; None if the key is another's.

    >>> (
    ...     parse_version(STORE, "pylog/store/00000000000000000007.json.zst", DOCUMENT),
    ...     parse_version(STORE, "pylog/store/head.json", DOCUMENT),
    ... )
    (7, None)
    """
    number = key.removeprefix(prefix).removesuffix(suffix)
    return int(number) if key == f"{prefix}{number}{suffix}" and re.fullmatch(r"\d{20}", number) else None


def part_key(partition: ArchivedPartition, part_id: str) -> str:
    """Returns the key of a part of a partition's manifests."""
    return f"{partition.manifests}{_PART}{part_id}{DOCUMENT}"


def parse_topic_prefix(prefix: str) -> ArchivedPartition | None:
    """Returns the partition, or the topic, whose documents have a prefix: of a catalogue, with the partition -1. None for others.

    >>> parse_topic_prefix(ArchivedPartition("a-b", "8SSgzKVaS0qTG9g3Uu47gg", 3).manifests).partition
    3
    >>> parse_topic_prefix(catalogue_prefix("a-b", "8SSgzKVaS0qTG9g3Uu47gg")).partition, parse_topic_prefix(STORE)
    (-1, None)
    """
    found = _TOPIC.fullmatch(prefix)
    return None if found is None else ArchivedPartition(found["topic"], found["topic_id"], int(found["partition"] or -1))


def parse_part_key(key: str) -> tuple[ArchivedPartition, str] | None:
    """Returns the partition and the id of a part of manifests; None if the key is another's.

    >>> partition = ArchivedPartition("orders", "8SSgzKVaS0qTG9g3Uu47gg", 3)
    >>> parse_part_key(part_key(partition, "ovMcNoR5R4yaIa_iCOkJ4g")) == (partition, "ovMcNoR5R4yaIa_iCOkJ4g")
    True
    >>> parse_part_key(partition.manifests + "head.json") is None
    True
    """
    prefix, _, name = key.rpartition("/")
    partition, part_id = parse_topic_prefix(prefix + "/"), name.removeprefix(_PART).removesuffix(DOCUMENT)
    if partition is None or not is_id(part_id) or key != part_key(partition, part_id):
        return None
    return partition, part_id


def parse_id(key: str) -> tuple[ArchivedPartition, str] | None:
    """Returns the partition and the id of a segment's object, or of a part of manifests; None if the key is another's.

    >>> parse_id("orders-8SSgzKVaS0qTG9g3Uu47gg/3/00000000000000000042-ovMcNoR5R4yaIa_iCOkJ4g.log")[1]
    'ovMcNoR5R4yaIa_iCOkJ4g'
    """
    name = parse_segment_key(key)
    return parse_part_key(key) if name is None else (name.partition, name.segment_id)
