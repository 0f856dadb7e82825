"""States of a message and of its deliveries: names, colours, and their text in a list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from msgplatform.core.flows.page import Tone
from msgplatform.core.lazy_text import joined
from notify.models import BizMsg, ReceiveMsg

Status = ReceiveMsg.Status
ACCEPTED = "accepted"  # of a message that has no deliveries yet
STATUSES = {status.name.lower(): status for status in Status}
FAILED = (Status.EXHAUSTED, Status.POISON)
OPEN = (Status.PENDING, Status.QUEUED, Status.HELD)
TONES: Mapping[int, Tone] = {
    Status.DELIVERED: "good", Status.EXHAUSTED: "bad", Status.POISON: "bad",
    Status.HELD: "warn", Status.SKIPPED: "plain", Status.PENDING: "plain", Status.QUEUED: "plain",
}  # fmt: skip


def summary(state: int, counts: Mapping[int, int], is_archived: bool) -> str:
    """The text of a message's state. `counts`: status → number of its deliveries."""
    if state == BizMsg.State.ACCEPTED:
        return str(BizMsg.State.ACCEPTED.label)
    is_alone = len(counts) == 1
    parts = [
        str(Status(status).label) + ("" if is_alone else f" {count}")
        for status, count in sorted(counts.items())
    ]
    text = joined(parts) or _("no subscriber")
    return _("%s (archived)") % text if is_archived else text


def tone(statuses: Collection[int]) -> Tone:
    """The colour of a message with deliveries in these statuses: the colour of the worst status."""
    tones = {TONES[status] for status in statuses}
    for worst in ("bad", "warn", "plain"):
        if worst in tones:
            return worst
    return "good" if tones else "plain"


def answer(row: Any) -> str:
    """The answer of the last attempt of a delivery, or of an attempt: HTTP 503, timeout."""
    return f"HTTP {row.http_status}" if row.http_status else str(row.error)


def local(moment: datetime) -> str:
    """A time in the console's format and the person's time zone."""
    return str(formats.date_format(timezone.localtime(moment), "Y-m-d H:i:s"))
