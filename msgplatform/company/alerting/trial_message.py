"""A test message, sent at once by the process that is asked for it."""

from __future__ import annotations

from django.utils import timezone

from msgplatform.company.alerting import texts
from msgplatform.company.alerting.child import Child, Outcome
from msgplatform.company.alerting.outbox import note_outcome
from msgplatform.core import outbound
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import AlertChannel, AlertMessage

MAX_SECONDS = 15


def send(channel: AlertChannel) -> Outcome:
    """Send a test to a stored channel, or call its address; takes at most 20 seconds. The list of
    sent alerts has it. Raises Undecryptable."""
    if outbound.is_off():
        return Outcome(False, str(lazy_message(outbound.OFF)))
    now, text = timezone.now(), texts.test(channel, timezone.now())
    if channel.is_heartbeat:
        child = Child("call", channel.url, seconds=MAX_SECONDS)
    else:
        child = Child("send", channel.url, seconds=MAX_SECONDS, **text.order())
    outcome = child.wait()
    AlertMessage.objects.create(
        channel=channel,
        kind=AlertMessage.Kind.TEST,
        state=AlertMessage.State.SENT if outcome.is_ok else AlertMessage.State.FAILED,
        created_at=now, due_at=now, attempts=1,
        sent_at=timezone.now() if outcome.is_ok else None,
        error=outcome.error[:500], title=text.title, text=text.plain,
    )  # fmt: skip
    note_outcome(channel.pk, outcome, timezone.now())
    return outcome
