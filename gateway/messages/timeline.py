"""Everything about one message, from Redis while it is there, else from the archive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from gateway import notifications
from gateway.lifecycle import store
from gateway.lifecycle.messages import Finished
from gateway.messages import recipient, resent, steps
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.api.filters import number
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows import Call, Page, PageLink, TimelineEntry, Value
from msgplatform.messages import engine
from msgplatform.models import Biz
from notify.messages.index import MESSAGES as EVENTS

_LINK = '<a href="{}">{}</a>'
_EVENTS = "notify.view_bizmsg"


def page(id: str, after: str = "") -> Page | None:
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
    return _archived_page(row, problem) if row else None


def _live_page(found: Finished) -> Page:
    mt = found.mt
    submits, reports = list(steps.live_submits(found)), list(steps.live_reports(found))
    timeline = [TimelineEntry(steps.at(found.accepted_at), _("Accepted"), "accepted", mt.reference)]
    timeline += [step.entry() for step in submits]
    if found.responded_at:
        timeline.append(TimelineEntry(steps.at(found.responded_at), _("Response"), "responded"))
    timeline += [step.entry() for step in reports]
    if found.final:
        code, sentence = notifications.ending(found.error)
        timeline.append(_ended(steps.at(found.ended_at), found.final, code, sentence))
    timeline += _published(mt.id)
    names = _Names(mt.biz, mt.account, found.gateway)
    return Page(
        id=mt.id,
        title=mt.user_number,
        facts=names.facts(mt.sp_number, found.parts, mt.reference, mt.key),
        body=mt.text,
        timeline=timeline + _linked(mt.key, ""),  # only what is archived is sent again
        recipients=[recipient.live(found, [*submits, *reports], names.gateway)],
        recipients_title=_("Recipient"),
        call=names.call(mt.user_number, mt.text, mt.reference),
    )


def _archived_page(row: SgipMt, problem: str) -> Page:
    submits, reports = list(steps.archived_submits(row)), list(steps.archived_reports(row))
    timeline = [TimelineEntry(row.accepted_at, _("Accepted"), "accepted", row.reference)]
    timeline += [step.entry() for step in submits]
    if row.responded_at:
        timeline.append(TimelineEntry(row.responded_at, _("Response"), "responded"))
    timeline += [step.entry() for step in reports]
    timeline.append(_ended(row.ended_at or row.reported_at, row.final, row.error_code, row.error))
    timeline += _published(str(row.pk))
    timeline.append(TimelineEntry(row.archived_at, _("Archived"), "done"))
    names = _Names(row.biz_id, row.account_id, row.gateway_id)
    again = ""
    with suppress(RedisError):  # the page is worth showing without it
        again = "" if problem else resent.again_as(row.biz_id, row.pk)
    missing = _("The SMS Redis does not answer: whether it was sent again is not known.")
    return Page(
        id=str(row.pk),
        title=row.user_number,
        facts=names.facts(row.sp_number, row.parts, row.reference, row.idempotency_key)
        | {_("All fields"): PageLink.to(row, _("show"))},
        body=row.text,
        timeline=timeline + _linked(row.idempotency_key, again),
        recipients=[recipient.archived(row, [*submits, *reports], again)],
        recipients_title=_("Recipient"),
        notices=[missing] if problem else [],
        call=names.call(row.user_number, row.text, row.reference),
    )


class _Names:
    """What a message refers to by id; an id stands for what was deleted."""

    def __init__(self, biz: int, account: int, gateway: int) -> None:
        self._ids = biz, account, gateway
        self._biz = Biz.objects.filter(pk=biz).first()
        self._account = SmsAccount.objects.filter(pk=account).first()
        self.gateway = SmsGateway.objects.filter(pk=gateway).first()

    def facts(self, sp_number: str, parts: int, reference: str, key: str) -> dict[str, Value]:
        biz, account, gateway = (
            PageLink.to(row) if row else str(pk)
            for row, pk in zip((self._biz, self._account, self.gateway), self._ids, strict=True)
        )
        return {
            _("Business system"): biz,
            _("Account"): account,
            _("Gateway"): gateway,
            _("From"): sp_number,
            _("Parts"): str(parts),
            _("Reference"): reference or "–",
            _("Idempotency key"): key or "–",
        }

    def call(self, user_number: str, text: str, reference: str) -> Call:
        fields = {"to": user_number, "text": text}
        fields |= {"account": self._account.name} if self._account else {}
        fields |= {"reference": reference} if reference else {}
        return Call(
            _("Send this once more with curl"),
            "/api/v1/sms",
            {"Authorization": "Bearer YOUR_API_KEY", "Content-Type": "application/json"},
            json.dumps(fields, ensure_ascii=False),
            note=_("With a key of the business system instead of YOUR_API_KEY; it becomes another "
                   "message."),
        )  # fmt: skip


def _ended(at: datetime | None, final: str, code: int, sentence: str) -> TimelineEntry:
    detail = f"{code} {sentence}" if code else sentence
    return TimelineEntry(at, str(SgipMt.Final(final).label), final, detail)


def _published(message: str) -> Iterator[TimelineEntry]:
    """Its endings as Notify's events, each with how its deliveries stand."""
    for final in SgipMt.Final.values:
        for hit in engine.search(EVENTS, f"{notifications.REPORT}:{message}:{final}", 1):
            yield TimelineEntry(
                hit.at,
                _("Published as %(type)s: %(state)s")
                % {"type": notifications.REPORT, "state": final},
                "published",
                PageLink(f"{hit.id}: {hit.state}", _url("notify", hit.id), _EVENTS),
            )


def _linked(key: str, again: str) -> list[TimelineEntry]:
    """What a message with this key repeats, and `again`, which repeats it."""
    made = []
    if original := resent.original_of(key):
        text = format_html(_("This is another try of {}"), _page_of(original))
        made.append(TimelineEntry(None, text, "linked"))
    if again:
        text = format_html(_("Sent again as {}"), _page_of(again))
        made.append(TimelineEntry(None, text, "linked"))
    return made


def _url(flow: str, id: str) -> str:
    return reverse("console:message", args=[flow, id])


def _page_of(id: str) -> SafeString:
    """A message's id, leading to its page; whoever sees this one may see that."""
    return format_html(_LINK, _url("sms", id), id)
