"""Everything about one message, from Redis while it is there, else from the archive."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from gateway import codes, notifications, sgip
from gateway.archive_rows import live_row, time_of
from gateway.lifecycle import store
from gateway.lifecycle.messages import Finished
from gateway.messages.states import TITLES, TONES, ending_reason, waiting_reason
from gateway.models import SgipMt, SgipMtPart, SgipReport, SmsAccount, SmsGateway
from gateway.monitor.failures import RESENDABLE, resend_key
from msgplatform.core import personal
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.flows.page import (
    Attempt,
    Call,
    Page,
    PageLink,
    Recipient,
    TimelineEntry,
    Tone,
    Value,
)
from msgplatform.core.tracing.context import trace_id_of
from msgplatform.messages import engine
from msgplatform.messages.filters import number
from msgplatform.models import Biz
from notify.messages.index import MESSAGES as EVENTS

# A Report's state → the state of its timeline's entry, and its tone.
_REPORTS: dict[int, tuple[str, Tone]] = {
    0: ("delivered", "good"), 1: ("waiting", "warn"), 2: ("failed", "bad"),
}  # fmt: skip


class Step(msgspec.Struct, frozen=True):
    """`state` is that of a timeline's entry, `answer` the gateway's."""

    at: datetime | None
    title: str
    state: str
    answer: str
    tone: Tone
    detail: str = ""

    @classmethod
    def of_submit(cls, at: datetime | None, submit: Any, parts: int, result: int | None) -> Self:
        """One Submit; `submit` has its part and the three words of its sequence."""
        title = _("Submit") + _part_suffix(submit.part, parts)
        sequence = _("sequence %s") % f"{submit.node}:{submit.ts}:{submit.seqno}"
        if result is None:
            return cls(at, title, "attempt", "", "plain", sequence)
        answer = f"{result} {codes.meaning_of_result(result)}"
        return cls(at, title, "attempt", answer, "bad" if result else "good", sequence)

    @classmethod
    def of_report(cls, at: datetime | None, part: int, parts: int, state: int, error: int) -> Self:
        name, tone = _REPORTS.get(state, (str(state), "plain"))
        answer = codes.with_meaning(error) or codes.meaning(codes.STATES, state)
        return cls(at, _("Report") + _part_suffix(part, parts), name, answer, tone)

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
        submits.append(Step.of_submit(time_of(message.submitted_at), submit, message.parts, result))
    reports = [
        Step.of_report(time_of(at), part, message.parts, state, error)
        for part, (state, error, at) in sorted(message.reports.items())
    ]
    return submits, reports


def archived_steps(row: SgipMt) -> tuple[list[Step], list[Step]]:
    """Submits and Reports of a message in the archive."""
    submits = [
        Step.of_submit(row.submitted_at, part, row.parts, part.result)
        for part in SgipMtPart.objects.filter(mt_id=row.pk).order_by("id")
    ]
    reports = [
        Step.of_report(report.received_at, report.part, row.parts, report.state, report.error_code)
        for report in SgipReport.objects.filter(mt_id=row.pk).order_by("id")
    ]
    return submits, reports


def _part_suffix(part: int, parts: int) -> str:
    return f" {part}/{parts}" if parts > 1 else ""


_EVENTS_PERMISSION = "notify.view_bizmsg"
# The fields of a Submit, with the meaning of numbers where they have one.
_SUBMIT_FIELDS: dict[str, codes.Choices] = {
    "corp_id": (), "service_type": (), "charge_number": (), "fee_type": codes.FEE_TYPES,
    "fee_value": (), "given_value": (), "agent_flag": codes.AGENT_FLAGS,
    "morelateto_mt_flag": codes.MT_FLAGS, "report_flag": codes.REPORT_FLAGS,
    "message_coding": codes.CODINGS, "priority": (),
}  # fmt: skip
# The key of a message that resends another one.
_RESEND_KEY = re.compile(r"resend:([0-9]{1,19}):1")


def page(id: str, after: str = "") -> Page | None:
    """None for an unknown id. Raises Unavailable if a silent Redis may have the message."""
    try:
        message_id = number(id)
    except InvalidInput:
        return None
    try:
        live_messages, problem = store.read([str(message_id)]), ""
    except RedisError as error:
        live_messages, problem = [], type(error).__name__
    if live_messages:
        return _page(live_row(live_messages[0]), live_messages[0], "")
    row = SgipMt.objects.filter(pk=message_id).first()
    if row is None and problem:
        raise Unavailable(_("The SMS Redis does not answer: %s") % problem)
    return _page(row, None, problem) if row else None


def _page(row: SgipMt, message: Finished | None, problem: str) -> Page:
    """`message` is None for a row of the archive, `problem` the error of an unavailable Redis."""
    submits, reports = live_steps(message) if message else archived_steps(row)
    repeat_id = ""
    if message is None and not problem:
        with suppress(RedisError):  # show the page without it
            repeat_id = repeat_of(row.biz_id, row.pk)
    system = Biz.objects.filter(pk=row.biz_id).first()
    account = SmsAccount.objects.filter(pk=row.account_id).first()
    gateway = SmsGateway.objects.filter(pk=row.gateway_id).first()
    number_query = urlencode({"number": sgip.written_form(row.user_number)})
    number_url = f"{reverse('console:find', args=['sms'])}?{number_query}"
    missing = _("The SMS Redis does not answer: whether it was sent again is not known.")
    steps = [*submits, *reports]
    times = (
        row.ended_at, row.reported_at, row.responded_at, row.submitted_at, row.accepted_at,
    )  # fmt: skip
    state, why = str(row.get_final_display()), ending_reason(row)
    next_at: datetime | None = None
    if message and not row.final:
        state, why = str(TITLES[message.state]), waiting_reason(message, gateway)
        if row.schedule_at and row.schedule_at.timestamp() > time.time():
            next_at = row.schedule_at
    resend_effect = ""
    # Only archived messages are resent, unless another message resends this one already.
    if not repeat_id and row.archived_at is not None and row.final in RESENDABLE:
        resend_effect = _("It is sent once more, as a new message with an id of its own.")
        if row.final == SgipMt.Final.UNKNOWN:
            resend_effect += " " + _("It may arrive twice: nobody knows whether it did.")
    values = {"to": sgip.written_form(row.user_number), "text": row.text}
    values |= {"account": account.name} if account else {}
    values |= {"reference": row.reference} if row.reference else {}
    submit_fields: dict[str, Value] = {}
    for name, choices in _SUBMIT_FIELDS.items():
        value = getattr(row, name)
        text = codes.meaning(choices, value) if choices else str(value)
        submit_fields[_title_of(name)] = text or "–"
    call = Call.of_intake(
        _("Send this once more with curl"), "/api/v1/sms", json.dumps(values, ensure_ascii=False),
        _("With a key of the business system instead of YOUR_API_KEY; it becomes another message."),
    )  # fmt: skip
    return Page(
        id=str(row.pk),
        title=row.user_number,
        facts={
            _("Business system"): PageLink.to(system) if system else str(row.biz_id),
            _("Account"): PageLink.to(account) if account else str(row.account_id),
            _("Gateway"): PageLink.to(gateway) if gateway else str(row.gateway_id),
            _("All to this number"): PageLink(row.user_number, number_url, personal.PERMISSION),
            _("From"): row.sp_number,
            _("Parts"): str(row.parts),
            _("Reference"): row.reference or "–",
            _("Idempotency key"): row.idempotency_key or "–",
            **{
                _title_of(name): formats.date_format(timezone.localtime(at), "Y-m-d H:i:s")
                for name in ("schedule_at", "expire_at")
                if (at := getattr(row, name))
            },
        },
        fact_cards={_("What the operator got"): submit_fields},
        body=row.text,
        timeline=_timeline(row, submits, reports) + _links(row.idempotency_key, repeat_id),
        recipients=[
            Recipient(
                id=str(row.pk),
                name=row.user_number,
                state=state,
                tone=TONES.get(row.final, "plain"),
                since=next(filter(None, times), None),
                why=why,
                next_at=next_at,
                attempts=[step.attempt() for step in reversed(steps)],
                attempts_title=_("Submits and Reports, newest first"),
                notes=[_("The frames themselves are not kept.")] if steps else [],
                resend_effect=resend_effect,
            )
        ],
        recipients_title=_("Recipient"),
        notices=[missing] if problem else [],
        call=call,
        trace_id=trace_id_of(message.mt.trace) if message else "",
    )


def _timeline(row: SgipMt, submits: Sequence[Step], reports: Sequence[Step]) -> list[TimelineEntry]:
    """The events of a message up to its archive."""
    timeline = [TimelineEntry(row.accepted_at, _("Accepted"), "accepted", row.reference)]
    timeline += [step.entry() for step in submits]
    if row.responded_at:
        timeline.append(TimelineEntry(row.responded_at, _("Response"), "responded"))
    timeline += [step.entry() for step in reports]
    if row.final:
        detail = codes.with_meaning(row.error_code) or row.error
        ended_at = row.ended_at or row.reported_at
        title = str(row.get_final_display())
        timeline.append(TimelineEntry(ended_at, title, row.final, detail))
    timeline += _events(row)
    if row.archived_at:
        timeline.append(TimelineEntry(row.archived_at, _("Archived"), "done"))
    return timeline


def repeat_of(biz: int, message: int) -> str:
    """The message that resends this one, '' if there is none. Raises RedisError."""
    (call,) = store.first_calls([(biz, resend_key(message))])
    return call.ids[0] if call else ""


def _title_of(column: str) -> str:
    field: Any = SgipMt._meta.get_field(column)
    return capfirst(str(field.verbose_name))


def _events(row: SgipMt) -> Iterator[TimelineEntry]:
    """Its endings as events of Notify, with the state of each event's deliveries."""
    searches = {f"{notifications.REPORT}:{row.pk}:{final}": final for final in SgipMt.Final.values}
    if row.event_id:  # other messages' endings are in the same event
        searches[str(row.event_id)] = row.final
    owner = frozenset({row.biz_id})
    final_of_hit = {
        hit: final
        for text, final in searches.items()
        for hit in engine.search(EVENTS, text, 1, systems=owner).hits
    }
    for hit, final in final_of_hit.items():
        yield TimelineEntry(
            hit.at,
            _("Published as %(type)s: %(state)s") % {"type": hit.title, "state": final},
            "published",
            PageLink(f"{hit.id}: {hit.state}", _url("notify", hit.id), _EVENTS_PERMISSION),
        )


def _links(key: str, repeat_id: str) -> list[TimelineEntry]:
    """The message that this key's message resends, and the message that resends this one."""
    entries = []
    if original := _RESEND_KEY.fullmatch(key):
        text = format_html(_("This is another try of {}"), _link_to(original[1]))
        entries.append(TimelineEntry(None, text, "linked"))
    if repeat_id:
        text = format_html(_("Sent again as {}"), _link_to(repeat_id))
        entries.append(TimelineEntry(None, text, "linked"))
    return entries


def _url(flow: str, id: str) -> str:
    return reverse("console:message", args=[flow, id])


def _link_to(id: str) -> SafeString:
    """A message's id with a link to its page; people who see this page may see that one."""
    return format_html('<a href="{}">{}</a>', _url("sms", id), id)
