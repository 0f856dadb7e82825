"""The failures of flows by place and answer, for the console, the API and alerts; and their
acknowledgement.

An acknowledgement covers the failures that the person saw on the page, not later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.db.models import Sum
from django.utils import translation
from django.utils.translation import gettext, gettext_noop

from msgplatform.core.data import engines, transactions
from msgplatform.core.flows.health import MAX_FAILURES, Failure
from msgplatform.core.lazy_text import lazy_message, translate_text
from msgplatform.models import Acknowledgement, AuditLog, FailureGroup
from msgplatform.models.failures import MAX_NOTE

if TYPE_CHECKING:
    from msgplatform.core.flows.contract import Flow

_MAX_COUNT = 100  # groups are counted up to this number
_MAX_READ = 5000  # groups that are read for a person who is limited to business systems
# Names of answers by which failures are grouped. They are stored and documented in English.
_PREFIXES = (gettext_noop("poison: "), gettext_noop("result "))
ANSWER_NAMES = frozenset({
    # Notify: the HTTP engine's classes of errors, and deliveries without an attempt.
    gettext_noop("dns"), gettext_noop("connect"), gettext_noop("tls"), gettext_noop("timeout"),
    gettext_noop("reset"), gettext_noop("too_large"), gettext_noop("address_forbidden"),
    gettext_noop("bad_url"), gettext_noop("other"), gettext_noop("not tried, breaker open"),
    gettext_noop("message is gone"), gettext_noop("payload is not UTF-8"),
    # SMS: endings.
    gettext_noop("failed"), gettext_noop("expired"), gettext_noop("unknown"),
    # CRM sync: classes of errors.
    gettext_noop("retry"), gettext_noop("throttled"), gettext_noop("invalid"),
    gettext_noop("conflict"), gettext_noop("auth"), gettext_noop("refused"), gettext_noop("fault"),
    gettext_noop("queue"), gettext_noop("mapping"),
})  # fmt: skip


class GroupSnapshot(msgspec.Struct, frozen=True):
    """The state of a group on the page of the person who acknowledges it."""

    id: int
    lost: int
    until: datetime


def failures_of(flow: Flow, systems: Collection[str] | None) -> Sequence[Failure]:
    """A flow's failures, largest first. `systems` limits them to messages of these business
    systems. Raises UNAVAILABLE."""
    if systems is None:
        return flow.health.failures()
    groups = flow.health.failures(limit=_MAX_READ)
    return [group for group in groups if group.system in systems][:MAX_FAILURES]


def open_groups(flow: str, limit: int = MAX_FAILURES) -> list[FailureGroup]:
    """A flow's groups with open failures, the largest first."""
    groups = list(
        FailureGroup.objects.filter(flow=flow, count__gt=0).order_by("-count", "id")[:limit]
    )
    if groups:
        subjects = {group.subject for group in groups}
        rows = Acknowledgement.objects.filter(flow=flow, subject__in=subjects).order_by()
        acknowledged_keys = set(rows.values_list("subject", "answer"))
        for group in groups:
            group.has_acknowledged = (group.subject, group.answer) in acknowledged_keys
    return groups


def latest_answer(flow: str, subject: int) -> str:
    """The answer of the place's last failure; '' if there is no failure."""
    rows = FailureGroup.objects.filter(flow=flow, subject=subject).order_by("-last_at")
    return rows.values_list("answer", flat=True).first() or ""


def as_failure(group: FailureGroup, **place: Any) -> Failure:
    """A group as the console shows it; `place` has the fields that only the flow knows."""
    values = {
        "answer": group.answer, "said": group.said, "count": group.count, "lost": group.lost,
        "since": group.since, "last_at": group.last_at, **place,
    }  # fmt: skip
    return Failure(id=group.pk, subject=group.subject, **values)


def lazy_answer(answer: str) -> str:
    """The title of an answer as a lazy message. Other answers, such as HTTP 503, stay unchanged."""
    for prefix in _PREFIXES:
        if answer.startswith(prefix):
            text = "%(prefix)s%(answer)s"  # in each language
            answer = lazy_answer(answer.removeprefix(prefix))
            return lazy_message(text, prefix=lazy_message(prefix), answer=answer)
    return lazy_message(answer) if answer in ANSWER_NAMES else answer


def lazy_answers(failures: Sequence[Failure]) -> str:
    """The answers of these failures with their numbers, as a lazy message."""
    text = ", ".join(f"%({number})s ({row.count})" for number, row in enumerate(failures))
    answers = {str(number): lazy_answer(str(row.answer)) for number, row in enumerate(failures)}
    return lazy_message(text, **answers)


def answer_title(answer: str) -> str:
    """The title of an answer in the reader's language."""
    return str(translate_text(lazy_answer(answer)))


def answer_name(text: str) -> str:
    """The answer of this title in any language, since a job reads its filter in another language
    than the person who typed it. Other texts stay unchanged."""
    for language, _name in settings.LANGUAGES:
        with translation.override(language):
            for prefix in _PREFIXES:
                if text.startswith(gettext(prefix)):
                    return prefix + answer_name(text.removeprefix(gettext(prefix)))
            for name in ANSWER_NAMES:
                if text == gettext(name):
                    return name
    return text


def count_groups(flows: Iterable[str]) -> int:
    """The number of open groups of these flows, counted up to _MAX_COUNT."""
    rows = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return rows.values("flow")[:_MAX_COUNT].count()


def count_by_subject(flow: str, subjects: Collection[int]) -> dict[int, int]:
    """Subject → number of its open failures. Runs one statement."""
    rows = FailureGroup.objects.filter(flow=flow, subject__in=subjects, count__gt=0).order_by()
    return dict(rows.values_list("subject").annotate(Sum("count")))


def count_by_flow(flows: Iterable[str]) -> dict[str, int]:
    """Flow → number of its open failures."""
    rows = FailureGroup.objects.filter(flow__in=list(flows), count__gt=0).order_by()
    return dict(rows.values_list("flow").annotate(Sum("count")))


@transactions.repeatable
def acknowledge(snapshot: GroupSnapshot, place: str, answer: str, note: str, actor: str) -> int:
    """Acknowledge the failures of a group that a person has seen, with a line in the audit log, and
    return their number.

    The call may be repeated. Failures that came after the snapshot stay open.
    """
    row = FailureGroup.objects.select_for_update().get(pk=snapshot.id)
    remaining_count = min(row.count, max(0, row.lost - snapshot.lost))
    acknowledged_count = row.count - remaining_count
    if not acknowledged_count:
        return 0
    until = min(snapshot.until, row.last_at)
    # One clock step after `until`: messages that ended at `until` are acknowledged too, and
    # `take_back` must not subtract them again.
    row.count = remaining_count
    row.counted_since = max(row.counted_since, until + engines.of().clock_step)
    row.since = max(row.since, until)
    row.save(update_fields=["count", "counted_since", "since"])
    Acknowledgement.objects.create(
        flow=row.flow, subject=row.subject, place=place[:200], answer=answer[:200],
        count=acknowledged_count, until=until, note=note[:MAX_NOTE], actor=actor[:150],
    )  # fmt: skip
    AuditLog.record(
        actor, "failures_acknowledged", f"{row.flow}: {place}, {answer}",
        count=acknowledged_count, note=note, until=snapshot.until.isoformat(),
    )  # fmt: skip
    return acknowledged_count


def acknowledge_group(flow: Flow, snapshot: GroupSnapshot, note: str, actor: str) -> int:
    """Acknowledge the failures of a group that a person or a key has seen. Returns their number; 0
    if the group has none left."""
    group = FailureGroup.objects.filter(pk=snapshot.id, flow=flow.name).first()
    if group is None:
        return 0
    place = next(
        (str(failure.where) for failure in flow.health.failures() if failure.id == group.pk),
        str(group.subject),
    )
    return acknowledge(snapshot, place, group.answer, note, actor)
