"""The options of a topic that one log currently applies.

`Store.alter_topic` writes the catalog, then marks the header of each partition under that partition's lock. A writer whose header
carries another mark than that of its options is out of date and loads the log again with the options as they stand. So an append
need not read the catalog. A deletion first reads the catalog under the partition's lock, and puts
that version's mark into the header. From then on no other process appends by older options, even if `alter_topic` was killed
between the catalog and the headers. `durable_point` computes the marks.
"""

from __future__ import annotations

from collections.abc import Callable

from pylog.config import Durability, TopicConfig, codec_of, compression_level
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.record.builder import BatchEncoder
from pylog.record.compression import codec_id
from pylog.record.timestamps import TimestampBounds


def limit_of(config: TopicConfig) -> int:
    """Returns the largest batch size that a topic allows, in bytes.

    >>> limit_of(TopicConfig(max_message_bytes=1000, segment_bytes=100))
    100
    """
    return min(config.max_message_bytes, config.segment_bytes)


def limit_text(config: TopicConfig) -> str:
    """Returns the limit for messages, with the option that sets it.

    >>> limit_text(TopicConfig(max_message_bytes=1000, segment_bytes=100))
    'segment_bytes=100 of the topic'
    """
    name = "segment_bytes" if config.segment_bytes < config.max_message_bytes else "max_message_bytes"
    return f"{name}={limit_of(config)} of the topic"


def timestamp_bounds(config: TopicConfig, topic: str, warned: set[str] | None = None) -> TimestampBounds | None:
    """Returns the range of timestamps that a topic accepts; None if it accepts all.

    The time of the append replaces those of a topic with LogAppendTime. pylog itself stamps the records of internal topics.
    """
    if config.log_append_time or topic in INTERNAL_TOPICS:
        return None
    return TimestampBounds(topic, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms, warned)


def encoder_of(config: TopicConfig, name: str, timestamps: TimestampBounds | None = None) -> BatchEncoder:
    """Returns an encoder for a codec and a topic's options."""
    return BatchEncoder(
        codec_id(name),
        compression_level(config, name),
        log_append_time=config.log_append_time,
        max_message_bytes=limit_of(config),
        limit_text=limit_text(config),
        keyed=config.is_compacted,
        timestamps=timestamps,
    )


class Encoders:
    """A log's encoders, one for each codec, created on first use.

    Args:
        config: the config of the log's topic.
        topic: its name.
        warned: topics for which a warning about timestamps was logged; None to log none.

    Attributes:
        timestamps: the range of timestamps that the topic accepts; None if it accepts all.
    """

    def __init__(self, config: TopicConfig, topic: str, warned: set[str] | None) -> None:
        self._config = config
        self.timestamps = timestamp_bounds(config, topic, warned)
        self._made: dict[int | None, BatchEncoder] = {}  # None: the topic's own

    def of(self, compression: str | None) -> BatchEncoder:
        """Returns the encoder of a codec by its name; None is the topic's codec."""
        codec = None if compression is None else codec_id(compression)
        made = self._made.get(codec)
        return self._made.setdefault(codec, self._new(compression)) if made is None else made

    def _new(self, compression: str | None) -> BatchEncoder:
        if compression is None:
            return self.of(codec_of(self._config))
        return encoder_of(self._config, compression, self.timestamps)


def level_given(durability: Durability | str | None, default: Durability) -> Durability:
    """Returns the durability argument, a level or its name, or else the default."""
    return default if durability is None else Durability.of(durability)


class Options:
    """One version of a topic's options, with the objects that a log derives from it.

    Args:
        config: the options.
        level: the store's durability, used if the topic has none.
        topic, warned: the topic's name, and the topics for which a warning about timestamps was logged; None to log none.

    Attributes:
        config: as given.
        durability: the default level of an acknowledgement.
        encoders: encode batches by these options.
    """

    __slots__ = ("config", "durability", "encoders")

    def __init__(self, config: TopicConfig, level: Durability, topic: str, warned: set[str] | None) -> None:
        self.config = config
        self.durability = level if config.durability is None else Durability.of(config.durability)
        self.encoders = Encoders(config, topic, warned)


class LiveOptions:
    """The options that apply to one log.

    Args:
        read: returns the topic's current options from the catalog.
        level: the store's durability.
        topic, warned: as for `Options`.

    Attributes:
        now: the version in force. It is replaced only under the log's and the partition's lock, so that each change uses one
            version.
    """

    def __init__(
        self,
        read: Callable[[], TopicConfig],
        level: Durability = Durability.SYNC,
        topic: str = "",
        warned: set[str] | None = None,
    ) -> None:
        self._read = read
        self._given = level, topic, warned
        self.now = Options(read(), *self._given)

    def read(self) -> TopicConfig:
        """Returns the current options from the catalog. Cost: one small read."""
        return self._read()

    def refresh(self) -> bool:
        """Applies the current options. Returns whether they have changed. The caller holds both locks.

        Raises:
            CorruptionError, UnsupportedFormatError: the catalog cannot be read. Cost: one small read.
        """
        config = self._read()
        if config == self.now.config:
            return False
        self.now = Options(config, *self._given)
        return True
