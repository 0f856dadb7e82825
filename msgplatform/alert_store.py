"""Keeps alerts in the database."""

from __future__ import annotations

from django.db.models import F
from django.utils import timezone

from msgplatform.core import alerts
from msgplatform.models import Alert


def store(event: alerts.AlertEvent) -> None:
    """Open, count or close the alert with this key; safe when two processes raise it at once."""
    now = timezone.now()
    opened = Alert.objects.filter(open_key=event.key)
    if event.resolved:
        opened.update(open_key=None, resolved_at=now)
        return
    if opened.update(count=F("count") + 1, last_at=now, text=event.text):
        return
    row = Alert(
        kind=event.kind,
        subject=event.subject[:200],
        text=event.text,
        key=event.key,
        open_key=event.key,
        first_at=now,
        last_at=now,
    )
    # Whoever raised it in between wins; this one is then the same alert.
    Alert.objects.bulk_create([row], ignore_conflicts=True)


alerts.register("database", store)
