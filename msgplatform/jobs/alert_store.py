"""Keeps alerts in the database."""

from __future__ import annotations

from dataclasses import replace

from django.db.models import F

from msgplatform.core import alerts
from msgplatform.core.data import sql
from msgplatform.models import Alert


class AlertTable:
    """The store of `core/alerts.py`."""

    def store(self, event: alerts.AlertEvent) -> alerts.AlertEvent | None:
        """Open, count or close the alert with this key; safe when two processes raise it at once.

        Returns the alert as it is now when it was opened or closed, None otherwise.
        """
        # As the columns hold them: a cut key is still the same one for the same condition.
        event = replace(
            event, key=event.key[:200], kind=event.kind[:64], subject=event.subject[:200]
        )
        return _close(event) if event.resolved else _open(event)

    def open_keys(self, kind: str) -> set[str]:
        """The keys `kind:…` of the alerts that are open."""
        keys = Alert.objects.filter(open_key__startswith=f"{kind}:")
        return {key for key in keys.values_list("open_key", flat=True) if key}


def _open(event: alerts.AlertEvent) -> alerts.AlertEvent | None:
    now = sql.now()
    opened = Alert.objects.filter(open_key=event.key)
    if opened.update(count=F("count") + 1, last_at=now, text=event.text):
        return None
    # Whoever raised it in between wins; this one is then the same alert.
    sql.insert_or_keep(
        Alert._meta.db_table,
        ("key", "open_key", "kind", "subject", "text", "count", "first_at", "last_at"),
        [(event.key, event.key, event.kind, event.subject, event.text, 1, now, now)],
    )
    stored = opened.first()
    return as_event(stored) if stored else None  # None: resolved meanwhile


def _close(event: alerts.AlertEvent) -> alerts.AlertEvent | None:
    row = Alert.objects.filter(open_key=event.key).first()
    if row is None:
        return None
    mine = Alert.objects.filter(pk=row.pk, open_key=event.key)
    return (
        as_event(row, resolved=True) if mine.update(open_key=None, resolved_at=sql.now()) else None
    )


def as_event(row: Alert, resolved: bool = False) -> alerts.AlertEvent:
    """The stored alert, as it goes to the ways out."""
    return alerts.AlertEvent(
        row.kind, row.subject, row.text, row.key, resolved=resolved, id=row.pk, count=row.count
    )


alerts.set_store(AlertTable())
