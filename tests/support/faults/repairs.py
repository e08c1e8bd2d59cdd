"""Damaged copies of one golden log, and what a repair of them must leave."""

from __future__ import annotations

import base64

from pylog.tools.repair import Repair
from support.golden import data as golden_data
from support.golden.data import CorruptVariant

Values = dict[int, bytes | None]


def variant(name: str) -> CorruptVariant:
    return next(found for found in golden_data.corrupt_variants() if (found.base, found.variant) == ("mixed-codecs", name))


def written(damaged: CorruptVariant) -> Values:
    """Everything that the broker had."""
    records = damaged.pristine.expected()
    return {record["offset"]: None if record["value"] is None else base64.b64decode(record["value"]) for record in records}


def without(values: Values, done: Repair) -> Values:
    """The records that are left without those that the plans report as lost."""
    lost = [lost for plan in done.plans for lost in plan.lost]
    return {
        offset: value
        for offset, value in values.items()
        if not any(each.first_offset <= offset and (each.last_offset is None or offset <= each.last_offset) for each in lost)
    }
