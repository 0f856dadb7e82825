"""The steps of a message at its gateway: Submits with their responses, and Reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway import sgip
from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt, SgipMtPart, SgipReport
from msgplatform.core.flows import Attempt, TimelineEntry, Tone

_STATES = {
    0: ("delivered", gettext_lazy("delivered")), 1: ("waiting", gettext_lazy("waiting")),
    2: ("failed", gettext_lazy("failed")),
}  # fmt: skip
_TONES: dict[str, Tone] = {"delivered": "good", "failed": "bad", "waiting": "warn"}


@dataclass(frozen=True, slots=True)
class Step:
    """`state` is that of a timeline's entry, `answer` what the gateway said."""

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


def live_submits(found: Finished) -> Iterator[Step]:
    last = {sent.part: sent for sent in found.sent}  # the response is that to the last try
    answers = found.answers
    for sent in found.sent:
        counts = last[sent.part] is sent
        result = answers.get(sent.part) if counts else None
        yield _submitted(at(found.submitted_at), sent, found.parts, result)


def live_reports(found: Finished) -> Iterator[Step]:
    for part, (state, error, moment) in sorted(found.reports.items()):
        yield _reported(at(moment), part, found.parts, state, error)


def archived_submits(row: SgipMt) -> Iterator[Step]:
    for part in SgipMtPart.objects.filter(mt_id=row.pk).order_by("id"):
        yield _submitted(row.submitted_at, part, row.parts, part.result)


def archived_reports(row: SgipMt) -> Iterator[Step]:
    for report in SgipReport.objects.filter(mt_id=row.pk).order_by("id"):
        yield _reported(report.received_at, report.part, row.parts, report.state, report.error_code)


def at(moment: float) -> datetime | None:
    """A time of Redis: unix seconds, 0 for none."""
    return datetime.fromtimestamp(moment, UTC) if moment else None


def _submitted(at: datetime | None, sent: Any, parts: int, result: int | None) -> Step:
    """One Submit; `sent` has its part and the three words of its sequence."""
    answer = "" if result is None else f"{result} {sgip.result_text(result)}"
    tone: Tone = "plain" if result is None else "bad" if result else "good"
    sequence = _("sequence %s") % f"{sent.node}:{sent.ts}:{sent.seqno}"
    return Step(at, _("Submit") + _of(sent.part, parts), "attempt", answer, tone, sequence)


def _reported(at: datetime | None, part: int, parts: int, state: int, error: int) -> Step:
    name, label = _STATES.get(state, (str(state), str(state)))
    answer = f"{error} {sgip.result_text(error)}" if error else str(label)
    tone = _TONES.get(name, "plain")
    return Step(at, _("Report") + _of(part, parts), name, answer, tone)


def _of(part: int, parts: int) -> str:
    return f" {part}/{parts}" if parts > 1 else ""
