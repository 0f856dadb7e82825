"""Filters of a search or a bulk action: reads their values from the texts of a form or an address;
and the fields that filters of several flows have (`core/flows/messages.py`).

A flow has readers for its own filters. Every reader gets (text, field) and raises InvalidInput
naming the field, in the language of the person.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time
from typing import Any

from django.db.models import Q, QuerySet, TextChoices
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import (
    MAX_ID,
    MAX_OPTIONS,
    Fields,
    FilterField,
    Option,
    Systems,
)
from msgplatform.core.flows.text import Text
from msgplatform.models import Biz
from msgplatform.monitor.failure_groups import answer_name

MAX_SELECTION = 500  # ids in one statement

ReadValue = Callable[[str, str], Any]  # (text, field) → the value of a filter


def read_filter(
    fields: Fields, entries: Mapping[str, Any], required: Sequence[str] = ()
) -> dict[str, Any]:
    """The values of the fields that were entered. A field without a reader is a text.

    Raises InvalidInput naming the field, also when `until` is not later than `since`.
    """
    texts = {name: str(value).strip() for name, value in entries.items()}
    # An unknown filter is an error: ignoring it would select more than the person meant.
    if unknown_names := texts.keys() - fields.keys():
        raise InvalidInput(_("unknown filter; use %s") % ", ".join(fields), min(unknown_names))
    texts = {name: text for name, text in texts.items() if text}
    for name in required:
        if name not in texts:
            raise InvalidInput(_("this field is required"), name)
    values_by_name = {
        name: (fields[name].read or READERS.get(name, searchable))(text, name)
        for name, text in texts.items()
    }
    if "since" in texts and "until" in texts:
        # Compare times, not ids: all times before the first message have the same id, 0.
        start, end = (moment(texts[name], name) for name in ("since", "until"))
        if end <= start:
            raise InvalidInput(_("use a time later than the one of “since”"), "until")
    return values_by_name


def number(text: str, field: str = "id") -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_ID):
        raise InvalidInput(_("use the id, a whole number"), field)
    return int(text)


def position(cursor: str) -> int:
    """The id below which a page of a search begins; '' is the first page."""
    return number(cursor, "cursor") if cursor else MAX_ID


def selection(text: str, field: str) -> tuple[int, ...]:
    """Ids, separated by commas or blanks; sorted, each once."""
    parts = text.replace(",", " ").split()
    if len(parts) > MAX_SELECTION:
        raise InvalidInput(_("at most %d at once") % MAX_SELECTION, field)
    return tuple(sorted({number(part, field) for part in parts}))


def moment(text: str, field: str) -> datetime:
    """A time or a day as people write it, in the person's time zone."""
    with suppress(ValueError, OverflowError):
        entered_time = parse_datetime(text)
        if entered_time is None and (day := parse_date(text)):
            entered_time = datetime.combine(day, time())
        if entered_time is not None:
            if timezone.is_naive(entered_time):
                entered_time = timezone.make_aware(entered_time)
            # Databases store UTC: the first and the last day may overflow.
            entered_time.astimezone(UTC)
            return entered_time
    raise InvalidInput(_("use a time such as 2026-11-20 14:30, or a day"), field)


def first_id(text: str, field: str) -> int:
    """The smallest id that a message of this time can have; 0 for a time before all messages, so
    that such an `until` selects no message."""
    return min(id_numbers.first_id_at(moment(text, field)), MAX_ID)


def business_system(text: str, field: str, names: Collection[str] = ()) -> int:
    """The id of a business system, from its id or name. `names`, if not empty, are the only ones
    allowed."""
    unknown_error = _("no business system has this name; use its name or its id")
    if names and text not in names:
        raise InvalidInput(unknown_error, field)
    return id_of(Biz.objects.all(), text, field, unknown_error)


def id_of(rows: QuerySet[Any], text: str, field: str, unknown_error: str) -> int:
    """The id of one of these rows, from its id or its name; `unknown_error` is for an unknown
    name. Digits are refused if they are the id of one row and the (old) name of another."""
    id_by_name: int | None = (
        rows.filter(name=searchable(text, field)).values_list("id", flat=True).first()
    )
    if text.isascii() and text.isdigit():
        entered_number = number(text, field)
        if id_by_name in (None, entered_number):
            return entered_number
        if not rows.filter(pk=entered_number).exists():
            return int(id_by_name)
        sentence = _("“%(text)s” is a name and the id of another object: write %(named)d, the id "
                     "of the object with this name, or the other object's name.")  # fmt: skip
        raise InvalidInput(sentence % {"text": text, "named": id_by_name}, field)
    if id_by_name is None:
        raise InvalidInput(unknown_error, field)
    return id_by_name


def one_of(names: Collection[str]) -> ReadValue:
    """A reader that accepts only these names."""

    def read(text: str, field: str) -> str:
        if text not in names:
            raise InvalidInput(_("use one of %s") % ", ".join(names), field)
        return text

    return read


def checked_by(check: Callable[[str, str], None]) -> ReadValue:
    """A reader of texts that `check` accepts; `check` raises InvalidInput for other texts."""

    def read(text: str, field: str) -> str:
        check(text, field)
        return text

    return read


def searchable(text: str, field: str) -> str:
    """The text. Raises InvalidInput for the character NUL, which databases refuse in a query."""
    if "\x00" in text:
        raise InvalidInput(_("this character cannot be searched for"), field)
    return text


READERS: Mapping[str, ReadValue] = {
    "id": number,
    "ids": selection,
    "since": first_id,
    "until": first_id,
}


# -- fields --------------------------------------------------------------------------------------
def system_options(typed_text: str, systems: Systems) -> Sequence[Option]:
    """Business systems with the typed text in their name or title."""
    rows = Biz.objects.filter(Q(name__icontains=typed_text) | Q(title__icontains=typed_text))
    if systems is not None:
        rows = rows.filter(pk__in=systems)
    names = rows.order_by("name").values_list("name", "title")[:MAX_OPTIONS]
    return [Option(name, title) for name, title in names]


def choice(
    label: Text,
    choices: type[TextChoices] | Iterable[tuple[str, Text]],
    help_text: Text = "",
    nothing: Text = "",
    read: ReadValue | None = None,
) -> FilterField:
    """A field with a few choices. Without `read` its value is the name of the choice."""
    pairs = tuple(choices.choices if isinstance(choices, type) else choices)
    read = read or one_of([value for value, _label in pairs])
    return FilterField(label, help_text, "choice", pairs, nothing, read=read)


def since(help_text: Text) -> FilterField:
    return FilterField(gettext_lazy("Since"), help_text, "time")


def until(help_text: Text) -> FilterField:
    return FilterField(gettext_lazy("Until"), help_text, "time")


def answer(help_text: Text) -> FilterField:
    return FilterField(
        gettext_lazy("Answer"), help_text,
        read=lambda text, field: answer_name(searchable(text, field)),
    )  # fmt: skip


def ids(help_text: Text) -> FilterField:
    return FilterField(gettext_lazy("Message ids"), help_text, "ids")


def message_id(help_text: Text) -> FilterField:
    return FilterField(gettext_lazy("Message id"), help_text)


BIZ = FilterField(
    gettext_lazy("Business system"),
    gettext_lazy("Type a part of its name"),
    "name",
    options=system_options,
    owners=lambda system_id: [system_id],
    read=business_system,
)
SINCE = since(gettext_lazy("Accepted at this time or later"))
UNTIL = until(gettext_lazy("Accepted before this time"))
# Used to leave out the acknowledged failures of a group.
FAILED_SINCE = FilterField(
    gettext_lazy("Failed since"), gettext_lazy("Failed at this time or later"), "time", read=moment
)
