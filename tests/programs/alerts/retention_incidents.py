"""Rows that are too old cannot be deleted: the same incident for each archive."""

from __future__ import annotations  # a field has no type parameters at run time

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import connection, models

from crmsync.models import ExceptionEntry
from gateway.models import SgipUserRpt
from msgplatform.core.data import ids, sql
from notify.feed.models import EventQueue, FeedBroadcast, FeedIdempotency
from notify.models import ColdBizMsg, IdempotencyKey
from tests.programs.alerts.incidents import Course, Places, incident, refuse

_OLD = timedelta(days=600)
_IDS = {"id", "qid", "feed_id"}
_EMPTY: Mapping[type[models.Field[Any, Any]], Any] = {
    models.CharField: "", models.TextField: "", models.BinaryField: b"",
    models.BooleanField: False, models.JSONField: "{}",
}  # fmt: skip
TABLES: Mapping[str, tuple[type[models.Model], Mapping[str, Any]]] = {
    "notify.retention": (ColdBizMsg, {}),
    "notify.keys.retention": (IdempotencyKey, {}),
    "sms.retention": (SgipUserRpt, {}),
    "feed.events.retention": (EventQueue, {"topic": "friend", "status": EventQueue.Status.HANDLED}),
    "feed.entries.retention": (FeedBroadcast, {}),
    "feed.keys.retention": (FeedIdempotency, {}),
    "crmsync.retention": (ExceptionEntry, {}),
}


def _course(model: type[models.Model], values: Mapping[str, Any], places: Places) -> Course:
    old = ids.first_id_at(sql.now() - _OLD)
    _insert(model, values, old)
    (column,) = {field.column for field in model._meta.concrete_fields} & _IDS
    allow = refuse("DELETE", model._meta.db_table, f"OLD.{column} <= {old}")
    yield
    allow()


def _insert(model: type[models.Model], values: Mapping[str, Any], old: int) -> None:
    row: dict[str, Any] = {
        str(field.column): _value(field, old) for field in model._meta.concrete_fields
    }
    row |= dict(values)
    names = ", ".join(map(connection.ops.quote_name, row))
    marks = ", ".join(["%s"] * len(row))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} ({names}) VALUES ({marks})",
            list(row.values()),
        )


def _value(field: models.Field[Any, Any], old: int) -> Any:
    if isinstance(field, models.DateTimeField):
        return sql.now() - _OLD
    if field.null:
        return None
    if field.column in _IDS:
        return old
    return next((empty for kind, empty in _EMPTY.items() if isinstance(field, kind)), 0)


for _kind, (_model, _values) in TABLES.items():
    # On SQLite the cleaner's walk deletes entries, and nobody tells what kept it from one.
    _why = "not final" if _model is FeedBroadcast else "read-only"
    incident(_kind, rf"{_model._meta.db_table} .*days ago.*{_why}")(
        partial(_course, _model, _values)
    )
