"""Keeps alerts in the database."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from django.db.models import Count, F

from msgplatform.core import alerts
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.models import Alert

# `last_at` of an alert that still holds is written this often: not at each look of each process.
_SEEN_EVERY = timedelta(minutes=1)
_Said = TypeVar("_Said", alerts.AlertEvent, alerts.Condition)


class AlertTable:
    """The store of `core/alerts.py`."""

    def store(self, event: alerts.AlertEvent) -> alerts.AlertEvent | None:
        """Open, count or close the alert with this key; safe when two processes raise it at once.

        Returns the alert as it is now when it was opened or closed, None otherwise.
        """
        event = replace(_fitting(event), kind=event.kind[:64])
        opened = Alert.objects.filter(open_key=event.key)
        if event.resolved:
            row = opened.first()
            if row is None:
                return None
            # Of two processes that resolve it at once, one changes the row, and reports it.
            mine = Alert.objects.filter(pk=row.pk, open_key=event.key)
            closed = mine.update(open_key=None, resolved_at=sql.now())
            return as_event(row, resolved=True) if closed else None
        now = sql.now()
        if opened.update(count=F("count") + 1, last_at=now, text=event.text):
            return None
        # Another process may have raised it in between: its row is kept, and is this alert too.
        sql.insert_or_keep(
            Alert._meta.db_table,
            ("key", "open_key", "kind", "subject", "text", "count", "first_at", "last_at"),
            [(event.key, event.key, event.kind, event.subject, event.text, 1, now, now)],
        )
        stored = opened.first()
        return as_event(stored) if stored else None  # None: resolved meanwhile

    def open_keys(self, kind: str) -> set[str]:
        """The keys `kind:…` of the alerts that are open."""
        keys = Alert.objects.filter(open_key__startswith=f"{kind}:")
        return {key for key in keys.values_list("open_key", flat=True) if key}

    def renew(self, conditions: Collection[alerts.Condition]) -> None:
        """Write the text of an open alert if it changed; else only its time, once a minute."""
        now = sql.now()
        for some in chunks([_fitting(condition) for condition in conditions], 500):
            said = {condition.key: (condition.subject, condition.text) for condition in some}
            rows = Alert.objects.filter(open_key__in=said)
            for key, subject, text in rows.values_list("open_key", "subject", "text"):
                if key and said[key] != (subject, text):
                    subject, text = said[key]
                    rows.filter(open_key=key).update(subject=subject, text=text, last_at=now)
            old = list(rows.filter(last_at__lt=now - _SEEN_EVERY).values_list("pk", flat=True))
            if old:
                rows.filter(pk__in=old).update(last_at=now)

    def open_kinds(self) -> dict[str, int]:
        """How many alerts of each kind are open."""
        rows = Alert.objects.filter(open_key__isnull=False).order_by().values_list("kind")
        return dict(rows.annotate(Count("pk")))


def _fitting(said: _Said) -> _Said:
    """Cut to the length of the columns: a condition's key is always cut to the same text."""
    return replace(said, key=said.key[:200], subject=said.subject[:200])


def as_event(row: Alert, resolved: bool = False) -> alerts.AlertEvent:
    """The stored alert, as the handlers get it."""
    return alerts.AlertEvent(
        row.kind, row.subject, row.text, row.key, resolved=resolved, id=row.pk, count=row.count
    )


alerts.set_store(AlertTable())
