"""Model fields that mean the same on every database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class ExactCharField(models.CharField):
    """Text compared byte by byte.

    MySQL's default collations take `a` and `A` for the same, so that two idempotency keys could
    collide; SQLite compares exactly already.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: Any = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters
