"""The pages of a change: a form, its plan with a confirmation, and what was done."""

from __future__ import annotations

from collections.abc import Mapping

import htpy as h

from pylog.text import printable
from pylog.ui.html import Html, PageFrame, cell, table
from pylog.ui.planned import ChangePlan, WindowChange
from pylog.ui.words import count

STEP, PLAN = "step", "plan"  # the field of a form that asks for a plan, and its value


def form(
    frame: PageFrame, name: str, change: WindowChange, fields: Mapping[str, str], plan: ChangePlan | None, problem: str
) -> str:
    """Returns the form of a change, and its plan if it has one.

    Args:
        frame: the page's frame.
        name, change: the change.
        fields: as they were filled in.
        plan: what it would do; None if a field is missing.
        problem: a sentence about the fields.
    """
    labels = [
        h.label(".wide" if each in change.long else "")[label, _input(change, each, fields)]
        for each, label in change.fields.items()
    ]
    sent: Html = h.form(".filter", action=frame.url("change", name))[labels, h.button["Show the plan"]]
    if change.long:
        sent = frame.form(frame.url("change", name), "Show the plan", labels, step=PLAN)
    return frame.page(
        change.title,
        "",
        frame.head(change.title),
        h.section(".card")[
            sent,
            problem and h.p(".say.bad")[printable(problem)],
        ],
        plan and _confirmation(frame, name, fields, plan),
    )


def _input(change: WindowChange, name: str, fields: Mapping[str, str]) -> Html:
    given = fields.get(name, "")
    if name in change.long:  # browsers take the first end of a line away
        return h.textarea(name=name, rows="6" if name == "value" else "2", spellcheck="false")[f"\n{given}"]
    return h.input(name=name, value=given, size="24")


def _confirmation(frame: PageFrame, name: str, fields: Mapping[str, str], plan: ChangePlan) -> Html:
    rows = (h.tr[(_cell(title, value) for title, value in zip(plan.titles, row, strict=True))] for row in plan.rows)
    typed = None
    if plan.must_type:
        label = f"Type {printable(plan.must_type)} to confirm"
        typed = h.label[label, h.input(name="typed", autocomplete="off", required=True, size="24")]
    return h.section(".card")[
        h.h2["Plan"],
        h.p(".say.warn")[plan.sentence],
        table(plan.titles, rows, plan.titles[1:3], "Nothing would change.") if plan.titles else None,
        frame.form(frame.url("change", name), "Do it", typed, danger=True, **fields),
    ]


def _cell(title: str, value: object) -> Html:
    if isinstance(value, int):
        return cell(title.lower(), count(value), number=True)
    return cell(title.lower(), "none" if value is None else printable(str(value)))


def done(frame: PageFrame, change: WindowChange, sentence: str) -> str:
    """Returns the page after a change."""
    return frame.page(change.title, "", frame.head(change.title), h.p(".say.ok", role="status")[sentence])
