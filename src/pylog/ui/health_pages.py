"""The page of a directory's health: what is wrong, how durable it is, and a verification with progress."""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h

from pylog.log.recovery.findings import Finding
from pylog.text import printable, size_text
from pylog.transactions.described import OpenTransactionDescription
from pylog.ui.html import GROUP_NUMBERS, SHORT_GROUP_TITLES, Html, PageFrame, cell, damage_lines, number, short_group_row, table
from pylog.ui.observation import ERRORS, Observation
from pylog.ui.storage_pages import open_table
from pylog.ui.verifying import Verified
from pylog.ui.words import count, counted, exact, seconds

_FINDINGS = 200  # that are listed


def health(
    frame: PageFrame, verified: Verified, opened: Sequence[OpenTransactionDescription], noted: Sequence[tuple[str, str]]
) -> str:
    """Returns the page.

    Args:
        frame: the page's frame.
        verified: the verification.
        opened: the open transactions, for which readers of committed records wait.
        noted: facts about the directory: each has a name and a sentence.
    """
    seen = frame.seen
    bad = [each for each in seen.attention if each.health.verdict in ERRORS]
    return frame.page(
        "Health",
        "Health",
        frame.head("Health"),
        damage_lines(seen.damaged)
        or h.p(".say.ok")[f"All {counted(sum(len(each.partitions) for each in seen.topics.values()), 'partition')} can be read."],
        h.section("#verify.card")[h.h2["Verification"], _verification(frame, verified)],
        h.section(".card")[
            h.h2["Groups with an error"],
            table(
                SHORT_GROUP_TITLES,
                (short_group_row(frame, each) for each in bad),
                GROUP_NUMBERS,
                "No group has an error.",
            ),
        ],
        h.section(".card")[h.h2["Open transactions"], open_table(frame, opened, with_topic=True)],
        h.section(".card")[h.h2["Not yet durable"], _undurable(seen)],
        h.section(".card")[
            h.h2["Directory"],
            table(("Fact", "Value"), (h.tr[h.td[name], h.td(".wide")[printable(said)]] for name, said in noted)),
            h.p[h.a(href=frame.url("metrics"))["Metrics"], " for Prometheus."],
        ],
        live=True,
    )


def _verification(frame: PageFrame, verified: Verified) -> Html:
    start = frame.form(frame.url("verify", "start"), "Verify all files")
    if verified.state == "none":
        text = "Reads every file, and compares it with its checksums and digests. Changes nothing; can be stopped."
        return [h.p(".quiet")[text], start]
    if verified.state == "running":
        label = f"{size_text(verified.done)} of {size_text(verified.total)}" if verified.total else "listing the files"
        return [
            h.div(".foot")[
                h.progress(max=str(max(1, verified.total)), value=str(verified.done), aria_label="Verification"),
                h.span(role="status")[label],
                frame.form(frame.url("verify", "stop"), "Stop"),
            ],
            h.p(".quiet.mono")[printable(verified.path.rpartition("/")[2])],
        ]
    return [_result(verified), _findings(verified.damage), _harmless(verified), start]


def _result(verified: Verified) -> Html:
    took = seconds((verified.ended_ms - verified.begun_ms) / 1000)
    when = f"{exact(verified.ended_ms)[:19].replace('T', ' ')} UTC"
    if verified.state == "failed":
        return h.p(".say.bad")[f"The verification failed: {printable(verified.why)}"]
    if verified.state == "stopped":
        return h.p(".say.warn")[f"Stopped after {size_text(verified.done)} of {size_text(verified.total)}, at {when}."]
    if verified.damage:
        return h.p(".say.bad")[f"{counted(len(verified.damage), 'finding')} in {took}, at {when}: pylog verify gives advice."]
    return h.p(".say.ok")[f"No damage: {size_text(verified.total)} in {took}, at {when}."]


def _findings(found: tuple[Finding, ...]) -> Html:
    if not found:
        return None
    rows = (
        h.tr[
            cell("kind", each.kind),
            h.td(".mono", data_label="file")[printable("/".join(each.path.rsplit("/", 2)[-2:]))],
            number("position", each.position),
            number("bytes", each.size),
            h.td(".wide")[printable(each.message)],
        ]
        for each in found[:_FINDINGS]
    )
    return table(("Kind", "File", "Position", "Bytes", "Finding"), rows, ("Position", "Bytes"))


def _harmless(verified: Verified) -> Html:
    if not verified.harmless:
        return None
    summary = f"{counted(len(verified.harmless), 'harmless finding')}"
    return h.details[h.summary[summary], _findings(verified.harmless)]


def _undurable(seen: Observation) -> Html:
    rows = sorted(
        (each for topic in seen.topics.values() for each in topic.partitions if each.durable_offset < each.end_offset),
        key=lambda each: each.durable_offset - each.end_offset,
    )
    made = (
        h.tr[
            h.td(".mono")[f"{printable(each.partition.topic)}-{each.partition.partition}"],
            number("durable", each.durable_offset),
            number("end", each.end_offset),
            number("offsets", each.end_offset - each.durable_offset),
        ]
        for each in rows[:20]
    )
    titles = ("Partition", "Durable", "End", "Offsets")
    more = h.p(".quiet")[f"and {count(len(rows) - 20)} more"] if len(rows) > 20 else None
    return [table(titles, made, titles[1:], "All records outlive a power loss."), more]
