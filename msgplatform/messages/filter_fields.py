"""Fields that the filters of several flows have (`core/flows/messages.py`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Q, TextChoices
from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows.messages import MAX_OPTIONS, Fields, FilterField, Option, Systems
from msgplatform.core.flows.text import Text
from msgplatform.messages import filters
from msgplatform.models import Biz


def system_options(typed_text: str, systems: Systems) -> Sequence[Option]:
    """Business systems with the typed text in their name or title."""
    rows = Biz.objects.filter(Q(name__icontains=typed_text) | Q(title__icontains=typed_text))
    if systems is not None:
        rows = rows.filter(pk__in=systems)
    names = rows.order_by("name").values_list("name", "title")[:MAX_OPTIONS]
    return [Option(name, title) for name, title in names]


def owner_of(fields: Fields, values: Mapping[str, str]) -> int | None:
    """The business system to which all messages of a filter belong; None: several, or not known.
    Raises InvalidInput for a value that cannot be read."""
    for name, text in values.items():
        field = fields.get(name)
        if field is None or field.owners is None or not text:
            continue
        owners = set(
            field.owners((field.read or filters.READERS.get(name, filters.searchable))(text, name))
        )
        if len(owners) == 1 and owners != {None}:
            return owners.pop()
    return None


def choice(
    label: Text,
    choices: type[TextChoices] | Iterable[tuple[str, Text]],
    help: Text = "",
    nothing: Text = "",
    read: Callable[[str, str], Any] | None = None,
) -> FilterField:
    """A field with a few choices. Without `read` its value is the name of the choice."""
    pairs = tuple(choices.choices if isinstance(choices, type) else choices)
    read = read or filters.one_of([value for value, _label in pairs])
    return FilterField(label, help, "choice", pairs, nothing, read=read)


def since(help: Text) -> FilterField:
    return FilterField(_("Since"), help, "time")


def until(help: Text) -> FilterField:
    return FilterField(_("Until"), help, "time")


def ids(help: Text) -> FilterField:
    return FilterField(_("Message ids"), help, "ids")


def message_id(help: Text) -> FilterField:
    return FilterField(_("Message id"), help)


BIZ = FilterField(
    _("Business system"),
    _("Type a part of its name"),
    "name",
    options=system_options,
    owners=lambda system_id: [system_id],
)
SINCE = since(_("Accepted at this time or later"))
UNTIL = until(_("Accepted before this time"))
# Used to leave out the acknowledged failures of a group.
FAILED_SINCE = FilterField(
    _("Failed since"), _("Failed at this time or later"), "time", read=filters.moment
)
