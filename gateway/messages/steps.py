"""The steps of a message at its gateway: Submits with their responses, and Reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway import codes
from gateway.archive_rows import time_of
from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt, SgipMtPart, SgipReport
from msgplatform.core.flows.page import Attempt, TimelineEntry, Tone

_STATES = {
    0: ("delivered", gettext_lazy("delivered")), 1: ("waiting", gettext_lazy("waiting")),
    2: ("failed", gettext_lazy("failed")),
}  # fmt: skip
_TONES: dict[str, Tone] = {"delivered": "good", "failed": "bad", "waiting": "warn"}


@dataclass(frozen=True, slots=True)
class Step:
    """`state` is that of a timeline's entry, `answer` the gateway's."""

    at: datetime | None
    title: str
    state: str
    answer: str
    tone: Tone
    detail: str = ""

    def entry(self) -> TimelineEntry:
        detail = " · ".join(text for text in (self.detail, self.answer) if text)
        return TimelineEntry(self.at, self.title, self.state, detail)

    def attempt(self) -> Attempt:
        answer = self.answer or _("no response yet")
        return Attempt(self.at, self.title, answer, self.tone, detail=self.detail)


def live_steps(message: Finished) -> tuple[list[Step], list[Step]]:
    """Submits and Reports of a message in Redis."""
    last_submits = {submit.part: submit for submit in message.sent}
    submits = []
    for submit in message.sent:
        # The response belongs to the last try.
        is_last = last_submits[submit.part] is submit
        result = message.answers.get(submit.part) if is_last else None
        submits.append(_submit(time_of(message.submitted_at), submit, message.parts, result))
    reports = [
        _report(time_of(at), part, message.parts, state, error)
        for part, (state, error, at) in sorted(message.reports.items())
    ]
    return submits, reports


def archived_steps(row: SgipMt) -> tuple[list[Step], list[Step]]:
    """Submits and Reports of a message in the archive."""
    submits = [
        _submit(row.submitted_at, part, row.parts, part.result)
        for part in SgipMtPart.objects.filter(mt_id=row.pk).order_by("id")
    ]
    reports = [
        _report(report.received_at, report.part, row.parts, report.state, report.error_code)
        for report in SgipReport.objects.filter(mt_id=row.pk).order_by("id")
    ]
    return submits, reports


def _submit(at: datetime | None, submit: Any, parts: int, result: int | None) -> Step:
    """One Submit; `submit` has its part and the three words of its sequence."""
    answer = "" if result is None else f"{result} {codes.meaning_of_result(result)}"
    tone: Tone = "plain" if result is None else "bad" if result else "good"
    sequence = _("sequence %s") % f"{submit.node}:{submit.ts}:{submit.seqno}"
    return Step(at, _("Submit") + _of(submit.part, parts), "attempt", answer, tone, sequence)


def _report(at: datetime | None, part: int, parts: int, state: int, error: int) -> Step:
    name, label = _STATES.get(state, (str(state), str(state)))
    answer = codes.with_meaning(error) or str(label)
    tone = _TONES.get(name, "plain")
    return Step(at, _("Report") + _of(part, parts), name, answer, tone)


def _of(part: int, parts: int) -> str:
    return f" {part}/{parts}" if parts > 1 else ""
