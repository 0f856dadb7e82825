"""The cold store: the database `cold` if there is one (COLD_DATABASE_URL), else the main one.

The table of a model is there if its base is ColdModel: `class ColdBizMsg(ColdModel)`. A table that
a flow writes in one transaction with tables of the main database must not be there.
"""

from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, models

COLD = "cold"


class ColdModel(models.Model):
    """Base of a model whose table lives in the cold store."""

    class Meta:
        abstract = True


def cold_alias() -> str:
    """The database alias of the cold store."""
    return COLD if COLD in connections else DEFAULT_DB_ALIAS


class ColdRouter:
    """Routes only models of the cold store to the cold store."""

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str | None:
        return cold_alias() if _is_cold(model._meta.app_label, model._meta.model_name) else None

    db_for_write = db_for_read

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if _is_cold(app_label, model_name):
            return db == cold_alias()
        return False if db == COLD else None


def _is_cold(app_label: str, model_name: str | None) -> bool:
    """Look the model up by name, because the models inside migrations lack these bases."""
    try:
        return bool(model_name) and issubclass(apps.get_model(app_label, model_name), ColdModel)
    except LookupError:  # a model that has been deleted since
        return False
