"""Keeps alerts in the database."""

import json
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from msgplatform.core import alerts, logging
from msgplatform.core.connections import RedisError
from msgplatform.core.data import chunks, sql
from msgplatform.core.lazy_text import LazyMessage, dump, load
from msgplatform.models import Alert, AlertNews, AuditLog
from msgplatform.models.failures import MAX_NOTE

log = logging.get(__name__)

# `last_at` of an alert that still holds is written this often, not at every look of the watch.
_SEEN_EVERY = timedelta(minutes=1)
# Characters of the columns `key` and `subject`: longer ones are cut, and equal keys remain equal.
_MAX_TEXT = 200


class AlertTable:
    """The store of `core/alerts.py`."""

    def store(self, event: alerts.AlertEvent) -> alerts.AlertEvent | None:
        """Open, count or close the alert with this key. Two processes may raise it at once.

        Returns the alert's new state if this call opened or closed the alert, else None.
        """
        key, texts = event.key[:_MAX_TEXT], _texts(event)
        open_rows = Alert.objects.filter(open_key=key)
        if event.resolved:
            row = open_rows.first()
            if row is None:
                return None
            # If two processes resolve the alert at once, only one changes the row and reports.
            open_row = Alert.objects.filter(pk=row.pk, open_key=key)
            with transaction.atomic():
                has_closed = open_row.update(open_key=None, resolved_at=sql.now())
                if has_closed:
                    _note([row.pk], is_end=True)
            return row.as_event(is_resolved=True) if has_closed else None
        now = sql.now()
        if open_rows.update(count=F("count") + 1, last_at=now, **texts):
            return None
        with transaction.atomic():
            # Another process may have inserted a row for the same alert since: that row is kept.
            sql.insert_or_keep(
                Alert._meta.db_table,
                ("key", "open_key", "kind", "count", "first_at", "last_at", *texts),
                [(key, key, event.kind[:64], 1, now, now, texts["subject"], texts["text"],
                  json.dumps(texts["said"]))],
            )  # fmt: skip
            stored_row = open_rows.first()
            if stored_row:
                _note([stored_row.pk])
        return stored_row.as_event() if stored_row else None  # None: another process resolved it

    def open_keys(self, kind: str) -> set[str]:
        """The keys of the open alerts of a kind: `kind:…`, or the kind itself."""
        keys = Alert.objects.filter(Q(open_key=kind) | Q(open_key__startswith=f"{kind}:"))
        return {key for key in keys.values_list("open_key", flat=True) if key}

    def renew(self, conditions: Collection[alerts.Condition]) -> None:
        """Write the text of an open alert if the text changed, else only `last_at`, once a
        minute."""
        now = sql.now()
        for part in chunks(list(conditions), 500):
            texts_by_key = {condition.key[:_MAX_TEXT]: _texts(condition) for condition in part}
            rows = Alert.objects.filter(open_key__in=texts_by_key)
            for row in rows.values("open_key", "subject", "text", "said"):
                key = row["open_key"]
                if key and {"open_key": key, **texts_by_key[key]} != row:
                    rows.filter(open_key=key).update(**texts_by_key[key], last_at=now)
            old_ids = list(rows.filter(last_at__lt=now - _SEEN_EVERY).values_list("pk", flat=True))
            if old_ids:
                rows.filter(pk__in=old_ids).update(last_at=now)

    def open_kinds(self) -> dict[str, int]:
        """Kind → number of open alerts."""
        rows = Alert.objects.filter(open_key__isnull=False).order_by().values_list("kind")
        return dict(rows.annotate(Count("pk")))


def _texts(event: alerts.AlertEvent | alerts.Condition) -> dict[str, Any]:
    """The columns with texts: `said` has the lazy messages among them, as data. Other texts are in
    one language only."""
    texts = {"subject": event.subject, "text": event.text}
    messages = {name: dump(text) for name, text in texts.items() if isinstance(text, LazyMessage)}
    return {"subject": event.subject[:_MAX_TEXT], "text": event.text, "said": messages}


def open_conditions(condition: Q) -> list[alerts.Condition]:
    """The conditions of the open alerts that `condition` selects, with their stored texts."""
    return [
        alerts.Condition(
            row.key,
            load(row.said.get("subject", row.subject)),
            load(row.said.get("text", row.text)),
        )
        for row in Alert.objects.filter(condition, open_key__isnull=False)
    ]


def acknowledge(alert: Alert, actor: str, note: str) -> bool:
    """Store the person who looks after an open alert, also in the audit log. False if the alert was
    acknowledged or resolved after `alert` was read, so that nobody overwrites a note that they have
    not read."""
    unchanged_rows = Alert.objects.filter(
        pk=alert.pk, open_key__isnull=False, acknowledged_at=alert.acknowledged_at
    )
    values = {"acknowledged_by": actor[:150], "note": note[:MAX_NOTE]}
    with transaction.atomic():
        if not unchanged_rows.update(acknowledged_at=timezone.now(), **values):
            return False
        changes = {"note": [alert.note or None, note]}
        AuditLog.record(actor, "alert_acknowledged", str(alert), key=alert.key, changes=changes)
    return True


def resolve(ids: Collection[int], actor: str) -> int:
    """Resolve the alerts that are open, also in the audit log; returns their number. The watch
    opens an alert again if its cause still holds."""
    open_rows = Alert.objects.filter(pk__in=ids, open_key__isnull=False)
    with transaction.atomic():
        rows, now = list(open_rows.select_for_update()), timezone.now()
        for row in rows:
            changes = {"resolved_at": [None, now.isoformat()]}
            AuditLog.record(actor, "alert_resolved", str(row), key=row.key, changes=changes)
        open_ids = [row.pk for row in rows]
        _note(open_ids, is_end=True)
        return open_rows.filter(pk__in=open_ids).update(resolved_at=now, open_key=None)


def _note(ids: Collection[int], is_end: bool = False) -> None:
    """Store news for the rules (`company/alerting`), in the alert's transaction."""
    columns = ("alert_id", "is_end")
    sql.insert_or_keep(AlertNews._meta.db_table, columns, [(pk, is_end) for pk in ids])


def unless_away(
    conditions: Callable[[], Iterable[alerts.Condition]], *kinds: str
) -> list[alerts.Condition]:
    """The conditions of these kinds. If Redis does not answer, these are the conditions of the open
    alerts: alerts of these kinds stay as they are, and other kinds are not affected."""
    try:
        return list(conditions())
    except RedisError as error:
        log.warning("conditions_stay", kinds=list(kinds), why=str(error)[:200])
        return open_conditions(Q(kind__in=kinds))
