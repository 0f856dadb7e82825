"""Names that people give, and that addresses and filters take where they take an id as well."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db.models import Model
from django.db.models.functions import Lower
from django.utils.translation import gettext as _


def refuse_digits(row: Model, name: str) -> None:
    """A new row's name is not digits alone, for these are taken for an id. Raises ValidationError
    for its field `name`."""
    if row.pk is None and name.isdecimal():
        raise ValidationError(
            {"name": _("A name of digits alone would be taken for an id: put a letter into it.")}
        )


def refuse_other_spelling(row: Model, name: str) -> None:
    """No two names differ only in case: two configurations would undo each other, and people take
    one for the other. A name that is stored already stays. Raises ValidationError for the field
    `name`."""
    if row.pk and type(row)._default_manager.filter(pk=row.pk, name=name).exists():
        return
    rows = type(row)._default_manager.exclude(pk=row.pk).exclude(name=name)
    same = rows.annotate(folded=Lower("name")).filter(folded=name.lower())
    if stored := same.values_list("name", flat=True).first():
        words = _("There is %(stored)s already: use its spelling, or another name.")
        raise ValidationError({"name": words % {"stored": stored}})
