"""Names that people give, and that addresses and filters take where they take an id as well."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db.models import Model
from django.utils.translation import gettext as _


def refuse_digits(row: Model, name: str) -> None:
    """A new row's name is not digits alone, for these are taken for an id. Raises ValidationError
    for its field `name`."""
    if row.pk is None and name.isdecimal():
        raise ValidationError(
            {"name": _("A name of digits alone would be taken for an id: put a letter into it.")}
        )
