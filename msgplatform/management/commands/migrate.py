"""Django's `migrate`, without the limit for the time that one statement may take.

A server goes on with a statement of which the client has had enough: a large table would be
changed, and the migration not be noted as applied, so that it could never be applied again.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

_LIMITS = ("read_timeout", "write_timeout")


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        given = connection.settings_dict["OPTIONS"]
        patient = {name: value for name, value in given.items() if name not in _LIMITS}
        if patient == given:
            super().handle(*args, **options)
            return
        connection.close()  # its limits are those with which it was opened
        connection.settings_dict["OPTIONS"] = patient
        try:
            super().handle(*args, **options)
        finally:
            connection.close()
            connection.settings_dict["OPTIONS"] = given
