"""How a read reaches objects: the options of a bucket, and a broker's remote tier.

They travel to the executors with every task, so they have no secrets: credentials come from each process's environment, and the
keys of encrypted segments from files that each machine has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pylog.errors import InvalidArgumentError
from pylog.spark import values
from pylog.spark.given import GivenOptions

if TYPE_CHECKING:
    from pylog.objects.kafka_tier import KafkaTier

TIER = "tier"
_OF_TIER = ("tier.layout", "tier.keyPrefix", "tier.keys", "tier.topicIds")


@dataclass(frozen=True)
class TierAccess:
    """The arguments of a `KafkaTier`, without those of its bucket.

    Attributes:
        url, layout, key_prefix: as there.
        keys: paths of PEM files, by key id.
        topic_ids: as there.
    """

    url: str
    layout: str = "aiven"
    key_prefix: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Access:
    """How to reach the objects of a read.

    Attributes:
        bucket: names and values of `pylog.objects.open_objects`. Credentials are not among them.
        tier: the remote tier of a Kafka broker, if it is read.
    """

    bucket: tuple[tuple[str, str | bool], ...] = ()
    tier: TierAccess | None = None

    def opened_tier(self) -> KafkaTier | None:
        """Returns the tier; None if there is none. Sends no request. Raises as `KafkaTier`."""
        if self.tier is None:
            return None
        from pylog.objects.kafka_tier import KafkaTier  # few reads have a tier

        tier = self.tier
        return KafkaTier(
            tier.url,
            layout=tier.layout,
            key_prefix=tier.key_prefix,
            keys=dict(tier.keys),
            topic_ids=dict(tier.topic_ids),
            **dict[str, Any](self.bucket),
        )


NO_ACCESS: Final = Access()


def access_of(given: GivenOptions) -> Access:
    """Returns how to reach the objects of a read.

    Args:
        given: its options.

    Raises:
        InvalidArgumentError: an option has a bad value, or needs another one.
    """
    found = {
        "region": given.get("s3.region", values.word, None),
        "endpoint": given.get("s3.endpoint", values.word, None),
        "anonymous": given.get("s3.anonymous", values.boolean, None),
    }
    access = Access(tuple((name, value) for name, value in found.items() if value is not None), _tier(given))
    access.opened_tier()
    return access


def _tier(given: GivenOptions) -> TierAccess | None:
    if TIER not in given:
        for name in _OF_TIER:
            if name in given:
                raise InvalidArgumentError(f"{name} is about a broker's remote tier, and none is given; add the option 'tier'")
        return None
    keys = given.get("tier.keys", values.pairs, ())
    return TierAccess(
        given.required(TIER, values.word),
        given.get("tier.layout", values.word, TierAccess.layout),
        given.get("tier.keyPrefix", values.word, ""),
        tuple((key_id, str(Path(path).absolute())) for key_id, path in keys),
        given.get("tier.topicIds", values.pairs, ()),
    )
