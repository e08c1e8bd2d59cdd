"""A topic's options as one log acts by them.

`Store.alter_topic` writes the catalog, then marks the header of each partition under that partition's lock. A writer whose header
carries another mark than that of its options is out of date and loads the log again with the options as they stand. So an append
need not read the catalog. Whatever deletes reads the catalog under the partition's lock, and gets a writer whose header carries
that version's mark before it acts: from then on no other process appends by an older one, even if `alter_topic` was killed
between the catalog and the headers. `option_marks` computes the marks.
"""

from __future__ import annotations

from collections.abc import Callable

from pylog.config import Durability, TopicConfig
from pylog.log.arguments import Encoders


class Options:
    """One version of a topic's options, with what a log makes of them once.

    Args:
        config: the options.
        level: the store's durability, which counts where the topic names none.
        topic, warned: the topic's name, and the topics for which a warning about timestamps was logged; None: none is.

    Attributes:
        config: as given.
        durability: what an acknowledgement promises by default.
        encoders: make batches by these options.
    """

    __slots__ = ("config", "durability", "encoders")

    def __init__(self, config: TopicConfig, level: Durability, topic: str, warned: set[str] | None) -> None:
        self.config = config
        self.durability = level if config.durability is None else Durability.of(config.durability)
        self.encoders = Encoders(config, topic, warned)


class LiveOptions:
    """The options that count for one log.

    Args:
        read: returns the topic's options as the catalog has them now.
        level: the store's durability.
        topic, warned: as for `Options`.

    Attributes:
        now: the version that counts. It is replaced under the log's lock and the partition's only, so that one change acts by one
            version throughout.
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
        """The options as the catalog has them now. Cost: one small read."""
        return self._read()

    def refresh(self) -> bool:
        """Takes the options as they stand; returns whether they are others than before. Under both locks.

        Raises:
            CorruptionError, UnsupportedFormatError: the catalog cannot be read. Cost: one small read.
        """
        config = self._read()
        if config == self.now.config:
            return False
        self.now = Options(config, *self._given)
        return True
