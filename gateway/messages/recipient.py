"""The one recipient of a message: how it stands, why, and every try."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from django.utils.translation import gettext as _

from gateway import notifications, presence, sgip
from gateway.lifecycle.messages import Finished
from gateway.messages import steps
from gateway.messages.steps import Step
from gateway.models import SgipMt, SmsGateway
from gateway.monitor.failures import RESENDABLE
from msgplatform.core.connections import RedisError
from msgplatform.core.flows import Recipient, Tone

_TONES: dict[str, Tone] = {
    SgipMt.Final.DELIVERED: "good", SgipMt.Final.ACCEPTED: "good", SgipMt.Final.EXPIRED: "bad",
    SgipMt.Final.UNKNOWN: "warn", SgipMt.Final.FAILED: "bad",
}  # fmt: skip


def live(found: Finished, tried: Sequence[Step], gateway: SmsGateway | None) -> Recipient:
    """Of a message that is in Redis."""
    mt = found.mt
    code, sentence = notifications.ending(found.error) if found.final else (0, "")
    waits = not found.final and mt.schedule_at > time.time()
    return Recipient(
        id=mt.id,
        name=mt.user_number,
        state=str(SgipMt.Final(found.final).label) if found.final else _(found.state),
        tone=_TONES.get(found.final, "plain"),
        since=_since(found),
        why=_ending(found.final, code, sentence) if found.final else _waiting(found, gateway),
        next_at=steps.at(mt.schedule_at) if waits else None,
        attempts=[step.attempt() for step in reversed(tried)],
        attempts_title=_("Submits and Reports, newest first"),
        notes=[_("The frames themselves are not kept.")] if tried else [],
    )


def archived(row: SgipMt, tried: Sequence[Step], again: str) -> Recipient:
    """Of a message in the archive; `again` is the message that repeats it already."""
    question = ""
    if row.final in RESENDABLE and not again:
        question = _("It is sent once more, as a new message with an id of its own.")
        if row.final == SgipMt.Final.UNKNOWN:
            question += " " + _("It may arrive twice: nobody knows whether it did.")
    return Recipient(
        id=str(row.pk),
        name=row.user_number,
        state=str(row.get_final_display()),
        tone=_TONES.get(row.final, "plain"),
        since=row.ended_at or row.reported_at,
        why=_ending(row.final, row.error_code, row.error),
        attempts=[step.attempt() for step in reversed(tried)],
        attempts_title=_("Submits and Reports, newest first"),
        notes=[_("The frames themselves are not kept.")] if tried else [],
        resend_effect=question,
    )


def _since(found: Finished) -> datetime | None:
    times = (found.ended_at, found.responded_at, found.submitted_at, found.accepted_at)
    return next((steps.at(moment) for moment in times if moment), None)


def _waiting(found: Finished, gateway: SmsGateway | None) -> str:
    """Why a message that has not ended is where it is."""
    name = gateway.name if gateway else found.gateway
    if found.state == "responded":
        return _("The gateway %s took it; its Report has not come yet.") % name
    if found.state == "submitted":
        return _("It was sent to the gateway %s, which has not answered yet.") % name
    if found.mt.schedule_at > time.time():
        return _("It is not to be sent before its time.")
    if gateway is None:
        return _("Its gateway was deleted.")
    if not gateway.enabled:
        return _("Its gateway %s is switched off.") % name
    try:
        if gateway.pk not in presence.connected_gateways(presence.live()):
            return _("Nobody is connected to its gateway %s: it waits for a connection.") % name
    except RedisError:
        return _("The SMS Redis does not answer: whether its gateway is connected is not known.")
    return _("It waits for its turn at the gateway %s.") % name


def _ending(final: str, code: int, sentence: str) -> str:
    if final == SgipMt.Final.UNKNOWN:
        return _("Its Report never came: nobody knows whether it arrived.")
    if final == SgipMt.Final.EXPIRED:
        return _("Its time was over before it could be sent.")
    if final == SgipMt.Final.ACCEPTED:
        return _("The gateway took it; no Report was asked for, or only one of a failure.")
    if code:
        return f"{code} {sentence or sgip.result_text(code)}"
    return sentence
