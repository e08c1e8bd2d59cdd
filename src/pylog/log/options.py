"""The options of a topic that one log currently applies.

`Store.alter_topic` writes the catalog, then marks the header of each partition under that partition's lock. A writer whose header
carries another mark than that of its options is out of date and loads the log again with the options as they stand. So an append
need not read the catalog. A deletion first reads the catalog under the partition's lock, and puts
that version's mark into the header. From then on no other process appends by older options, even if `alter_topic` was killed
between the catalog and the headers. `option_marks` computes the marks.
"""

from __future__ import annotations

from collections.abc import Callable

from pylog.config import Durability, TopicConfig
from pylog.log.arguments import Encoders


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
