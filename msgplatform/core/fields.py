"""Model fields with text compared exactly on every database, and the rules for names that people
give. `core/secrets/fields.py` has the encrypted fields."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Lower
from django.utils.translation import gettext as _

from msgplatform.core.data import engines


class _Exact:
    """A column compared byte by byte, so that two idempotency keys never collide."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: Any = super().db_parameters(connection)  # type: ignore[misc]  # a field's
        if collation := engines.of_connection(connection).exact_collation:
            parameters["collation"] = collation
        return parameters


class ExactCharField(_Exact, models.CharField):  # type: ignore[type-arg]  # none at run time
    """Text compared byte by byte."""


class ExactSlugField(_Exact, models.SlugField):  # type: ignore[type-arg]  # none at run time
    """A name in addresses, compared byte by byte."""


class Named(models.Model):
    """A model whose rows have a name that people give: the unique field `name`."""

    # True where addresses and filters take a name or an id, and would take digits for an id.
    refuses_digits = False
    name: Any

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.name)

    def clean(self) -> None:
        """Refuses a new name of digits, and one that differs from another row's only in case: two
        configurations would undo each other, and people would confuse the two. A stored name
        stays."""
        if self.refuses_digits and self.pk is None and self.name.isdecimal():
            words = _("A name of digits alone would be taken for an id: put a letter into it.")
            raise ValidationError({"name": words})
        rows: Any = type(self)._default_manager
        if self.pk and rows.filter(pk=self.pk, name=self.name).exists():
            return
        other_rows = rows.exclude(pk=self.pk).exclude(name=self.name)
        rivals = other_rows.annotate(folded=Lower("name")).filter(folded=self.name.lower())
        if existing_name := rivals.values_list("name", flat=True).first():
            words = _("There is %(stored)s already: use its spelling, or another name.")
            raise ValidationError({"name": words % {"stored": existing_name}})
