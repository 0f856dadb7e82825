"""The one recipient of a message: how it stands, why, and every try."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.utils.translation import gettext as _

from gateway.lifecycle.messages import Finished
from gateway.messages.explanations import TONES, ending_reason, waiting_reason
from gateway.messages.steps import Step
from gateway.models import SgipMt, SmsGateway
from gateway.monitor.failures import RESENDABLE
from msgplatform.core.flows import Recipient


def recipient_of(
    row: SgipMt,
    message: Finished | None,
    steps: Sequence[Step],
    gateway: SmsGateway | None,
    can_resend: bool,
) -> Recipient:
    """`message` is None for a message of the archive. `can_resend` is False if another message
    resends this one already."""
    is_waiting = message is not None and not row.final
    is_scheduled = is_waiting and row.schedule_at and row.schedule_at.timestamp() > time.time()
    return Recipient(
        id=str(row.pk),
        name=row.user_number,
        state=_(message.state) if message and is_waiting else str(row.get_final_display()),
        tone=TONES.get(row.final, "plain"),
        since=row.ended_at
        or row.reported_at
        or row.responded_at
        or row.submitted_at
        or row.accepted_at,
        why=waiting_reason(message, gateway) if message and is_waiting else ending_reason(row),
        next_at=row.schedule_at if is_scheduled else None,
        attempts=[step.attempt() for step in reversed(steps)],
        attempts_title=_("Submits and Reports, newest first"),
        notes=[_("The frames themselves are not kept.")] if steps else [],
        resend_effect=_resend_effect(row) if can_resend else "",
    )


def _resend_effect(row: SgipMt) -> str:
    if row.archived_at is None or row.final not in RESENDABLE:
        return ""  # only archived messages are resent
    effect = _("It is sent once more, as a new message with an id of its own.")
    if row.final == SgipMt.Final.UNKNOWN:
        effect += " " + _("It may arrive twice: nobody knows whether it did.")
    return effect
