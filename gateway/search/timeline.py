"""Everything about one message, from Redis while it is there, else from the archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway import events, sgip
from gateway.lifecycle import store
from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt, SgipMtPart, SgipReport, SmsAccount, SmsGateway
from gateway.search import resent
from msgplatform.api.filters import number
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows import Page, TimelineEntry
from msgplatform.models import Biz
from notify.search import find as events_search

_LINK = '<a href="{}">{}</a>'
_FIELDS = "admin:gateway_sgipmt_change"
_STATES = {
    0: ("delivered", gettext_lazy("delivered")), 1: ("waiting", gettext_lazy("waiting")),
    2: ("failed", gettext_lazy("failed")),
}  # fmt: skip


def page(id: str) -> Page | None:
    """None for an unknown id. Raises Unavailable when it may be in a Redis that does not answer."""
    try:
        message_id = number(id)
    except InvalidInput:
        return None
    try:
        found, problem = store.read([str(message_id)]), ""
    except RedisError as error:
        found, problem = [], type(error).__name__
    if found:
        return _live_page(found[0])
    row = SgipMt.objects.filter(pk=message_id).first()
    if row is None and problem:
        raise Unavailable(_("The SMS Redis does not answer: %s") % problem)
    return _archived_page(row) if row else None


def _live_page(found: Finished) -> Page:
    mt = found.mt
    timeline = [TimelineEntry(_at(found.accepted_at), _("Accepted"), "accepted", mt.reference)]
    last = {sent.part: sent for sent in found.sent}  # the response is that to the last try
    for sent in found.sent:
        counts = last[sent.part] is sent
        result = found.results.get(sent.part) if counts else None
        timeline.append(_submitted(_at(found.submitted_at), sent, found.parts, result))
    if found.responded_at:
        timeline.append(TimelineEntry(_at(found.responded_at), _("Response"), "responded"))
    for part, (state, error, at) in sorted(found.reports.items()):
        timeline.append(_reported(_at(at), part, found.parts, state, error))
    if found.final:
        code, sentence = events.ending(found.error)
        timeline.append(_ended(_at(found.ended_at), found.final, code, sentence))
    timeline += _published(mt.id)
    return Page(
        id=mt.id,
        title=mt.user_number,
        facts=_facts(
            mt.biz, mt.account, found.gateway, mt.sp_number, found.parts, mt.reference, mt.key,
            found.final or found.state,
        ),
        body=mt.text,
        timeline=timeline + _resent(mt.biz, mt.id, mt.key),
    )  # fmt: skip


def _archived_page(row: SgipMt) -> Page:
    timeline = [TimelineEntry(row.accepted_at, _("Accepted"), "accepted", row.reference)]
    timeline += [
        _submitted(row.submitted_at, part, row.parts, part.result)
        for part in SgipMtPart.objects.filter(mt_id=row.pk).order_by("id")
    ]
    if row.responded_at:
        timeline.append(TimelineEntry(row.responded_at, _("Response"), "responded"))
    timeline += [
        _reported(report.received_at, report.part, row.parts, report.state, report.error_code)
        for report in SgipReport.objects.filter(mt_id=row.pk).order_by("id")
    ]
    timeline.append(_ended(row.ended_at or row.reported_at, row.final, row.error_code, row.error))
    timeline += _published(str(row.pk))
    timeline.append(TimelineEntry(row.archived_at, _("Archived"), "done"))
    return Page(
        id=str(row.pk),
        title=row.user_number,
        facts=_facts(
            row.biz_id, row.account_id, row.gateway_id, row.sp_number, row.parts, row.reference,
            row.idempotency_key, str(row.get_final_display()),
        )
        | {_("All fields"): format_html(_LINK, reverse(_FIELDS, args=[row.pk]), _("show"))},
        body=row.text,
        timeline=timeline + _resent(row.biz_id, str(row.pk), row.idempotency_key),
    )  # fmt: skip


def _facts(
    biz: int, account: int, gateway: int, sp_number: str, parts: int, reference: str, key: str,
    state: str,
) -> dict[str, str]:  # fmt: skip
    return {
        _("Business system"): str(Biz.objects.filter(pk=biz).first() or biz),
        _("Account"): str(SmsAccount.objects.filter(pk=account).first() or account),
        _("Gateway"): str(SmsGateway.objects.filter(pk=gateway).first() or gateway),
        _("State"): state,
        _("From"): sp_number,
        _("Parts"): str(parts),
        _("Reference"): reference or "–",
        _("Idempotency key"): key or "–",
    }


def _submitted(at: datetime | None, sent: Any, parts: int, result: int | None) -> TimelineEntry:
    """One Submit; `sent` has its part and the three words of its sequence."""
    answer = "" if result is None else f"{result} {sgip.result_text(result)}"
    detail = [_("sequence %s") % f"{sent.node}:{sent.ts}:{sent.seqno}", answer]
    return TimelineEntry(
        at,
        _("Submit") + _of(sent.part, parts),
        "attempt",
        " · ".join(text for text in detail if text),
    )


def _reported(at: datetime | None, part: int, parts: int, state: int, error: int) -> TimelineEntry:
    name, label = _STATES.get(state, (str(state), str(state)))
    detail = f"{error} {sgip.result_text(error)}" if error else str(label)
    return TimelineEntry(at, _("Report") + _of(part, parts), name, detail)


def _of(part: int, parts: int) -> str:
    return f" {part}/{parts}" if parts > 1 else ""


def _ended(at: datetime | None, final: str, code: int, sentence: str) -> TimelineEntry:
    detail = f"{code} {sentence}" if code else sentence
    return TimelineEntry(at, str(SgipMt.Final(final).label), final, detail)


def _published(message: str) -> Iterator[TimelineEntry]:
    """Its endings as Notify's events, each with how its deliveries stand."""
    for final in SgipMt.Final.values:
        for hit in events_search.search(f"{events.REPORT}:{message}:{final}", 1):
            yield TimelineEntry(
                hit.at,
                _("Published as %(type)s: %(state)s") % {"type": events.REPORT, "state": final},
                "published",
                format_html("{}: {}", _page_of("notify", hit.id), hit.state),
            )


def _resent(biz: int, message: str, key: str) -> list[TimelineEntry]:
    """What this message repeats, and what repeats it; of the latter Redis knows for a month."""
    made = []
    if original := resent.original_of(key):
        text = format_html(_("This is another try of {}"), _page_of("sms", original))
        made.append(TimelineEntry(None, text, "linked"))
    with suppress(RedisError):  # the page is worth showing without it
        made += [
            TimelineEntry(
                None, format_html(_("Sent again as {}"), _page_of("sms", again)), "linked"
            )
            for again in resent.again_as(biz, message)
        ]
    return made


def _page_of(flow: str, id: str) -> SafeString:
    """A message's id, leading to its page."""
    return format_html(_LINK, reverse("console:message", args=[flow, id]), id)


def _at(moment: float) -> datetime | None:
    return datetime.fromtimestamp(moment, UTC) if moment else None
