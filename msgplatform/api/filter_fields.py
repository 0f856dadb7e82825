"""Fields that the filters of several flows have (`core/flows/filters.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Q, TextChoices
from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import MAX_OPTIONS, FilterField, Option, Text
from msgplatform.models import Biz


def systems(typed_text: str) -> Sequence[Option]:
    """Business systems with the typed text in their name or title."""
    rows = Biz.objects.filter(Q(name__icontains=typed_text) | Q(title__icontains=typed_text))
    names = rows.order_by("name").values_list("name", "title")[:MAX_OPTIONS]
    return [Option(name, title) for name, title in names]


def choice(
    choices: type[TextChoices] | Iterable[tuple[str, Text]], help: Text = "", nothing: Text = ""
) -> FilterField:
    """One of a few."""
    pairs = choices.choices if isinstance(choices, type) else choices
    return FilterField(help, "choice", tuple(pairs), nothing)


def time(help: Text) -> FilterField:
    return FilterField(help, "time")


BIZ = FilterField(_("Type a part of its name"), "name", options=systems)
SINCE = time(_("Accepted at this time or later"))
UNTIL = time(_("Accepted before this time"))
