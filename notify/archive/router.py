"""Where the archive's tables are: in the database `cold` if there is one, else in the main one."""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model

COLD = "cold"
_APP = "notify"
_MODELS = frozenset({"coldbizmsg", "coldreceivemsg", "coldattempt"})


def cold_alias() -> str:
    """The database alias of the archive; COLD_DATABASE_URL makes it one of its own."""
    return COLD if COLD in connections else DEFAULT_DB_ALIAS


class ColdRouter:
    """Archive models go to the archive, and nothing else does."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return cold_alias() if _is_cold(model._meta.app_label, model._meta.model_name) else None

    db_for_write = db_for_read

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if _is_cold(app_label, model_name):
            return db == cold_alias()
        return False if db == COLD else None


def _is_cold(app_label: str, model_name: str | None) -> bool:
    return app_label == _APP and model_name in _MODELS
