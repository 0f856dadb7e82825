"""List filters for tables of any size: their choices do not grow with the table."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.contrib.admin import FieldListFilter
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AutocompleteSelect
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin.autocomplete_filters import AutocompleteSelectFilter
from unfold.contrib.filters.admin.dropdown_filters import ChoicesDropdownFilter, DropdownFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from msgplatform import person_limits
from msgplatform.core.data import ids
from msgplatform.core.flows.messages import MAX_ID
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin.base import limited_choices

_TEMPLATE = "admin/form_filter.html"
_PRESETS = (
    (timedelta(hours=1), _("last hour")),
    (timedelta(hours=5), _("last 5 hours")),
    (timedelta(days=1), _("last day")),
    (timedelta(days=7), _("last week")),
)


def row_id(text: Any) -> int | None:
    """The number in a URL's text; None if the text cannot be the id of a row."""
    text = str(text or "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= MAX_ID else None


class AutocompleteFilter(AutocompleteSelectFilter):  # type: ignore[misc]  # unfold has no types
    """A filter by a related row, which people find by typing. Its admin needs `search_fields`."""

    template = _TEMPLATE
    keeps_to_limit = True

    def value(self) -> str | None:
        """The chosen key; None also for a row that the person may not see, as for a deleted one."""
        choice: str | None = super().value()
        if row_id(choice) is None:
            return None
        if person_limits.is_limited(self.request):
            rows = limited_choices(self.field.remote_field.model._default_manager, self.request)
            return choice if rows.filter(pk=choice).exists() else None
        return choice


class RowSelect(AutocompleteSelect):
    """A select box in a form, whose rows are found by typing: `RowSelect(field, admin.site)`."""

    def optgroups(self, name: str, value: Any, attr: Any = None) -> Any:
        return super().optgroups(name, [key for key in value if row_id(key) is not None], attr)


class ChoiceFilter(ChoicesDropdownFilter):  # type: ignore[misc]  # unfold has no types
    template = _TEMPLATE


class PickFilter(DropdownFilter):  # type: ignore[misc]  # unfold has no types
    """A filter by `column` ('': the one named `parameter_name`), whose subclass has `options`, or
    `lookups` where they are read; with `is_id` its value is the id of a row."""

    template = _TEMPLATE
    column = ""
    is_id = False
    options: Iterable[tuple[Any, Text]] = ()  # values with their texts

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(value), str(text)) for value, text in self.options]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = row_id(self.value()) if self.is_id else self.value() or None
        if value is None:
            return queryset
        return queryset.filter(**{self.column or self.parameter_name: value})


class TimeForm(forms.Form):
    """Two times in the reader's time zone."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for suffix, label in (("since", _("Since")), ("until", _("Until"))):
            self.fields[f"{name}_{suffix}"] = forms.CharField(
                label=label,
                required=False,
                widget=UnfoldAdminTextInputWidget({"type": "datetime-local"}),
            )


class IdTimeFilter(FieldListFilter):
    """A period, as a range of ids: ids are ordered by time, and the primary key is their index.

    Use it as `("id", IdTimeFilter)`; the parameters are `id_since` and `id_until`.
    """

    template = "admin/time_filter.html"
    column = ""  # the column that is compared, if it is not the field

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = _("time")

    def expected_parameters(self) -> list[str | None]:
        return [f"{self.field_path}_since", f"{self.field_path}_until"]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since, until = (self.moment(name) for name in self.expected_parameters())
        column = self.column or self.field_path
        if since:
            queryset = queryset.filter(**{f"{column}__gte": self.bound(since)})
        if until:
            queryset = queryset.filter(**{f"{column}__lt": self.bound(until)})
        return queryset

    def bound(self, moment: datetime) -> Any:
        """The column's value at a time."""
        return min(ids.first_id_at(moment), MAX_ID)  # a time far in the future fits no BIGINT

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        data = {name: self._text(name) for name in self.expected_parameters()}
        # To the minute, as the form's inputs show it.
        now = timezone.now().replace(second=0, microsecond=0)
        since, until = (str(name) for name in self.expected_parameters())
        presets = [
            (
                title,
                changelist.get_query_string(
                    {since: timezone.localtime(now - span).strftime("%Y-%m-%dT%H:%M")}, [until, "p"]
                ),
            )
            for span, title in _PRESETS
        ]
        yield {"form": TimeForm(self.field_path, data), "presets": presets}

    def _text(self, name: str | None) -> str:
        value = self.used_parameters.get(str(name))
        return str(value[-1] if isinstance(value, list) else value or "")

    def moment(self, name: str | None) -> datetime | None:
        """An aware time; None if there is no time or it cannot be read."""
        try:
            time = parse_datetime(self._text(name))
            if time is not None and timezone.is_naive(time):
                time = timezone.make_aware(time)
            # In UTC as databases have it; the first and the last day may overflow.
            return time.astimezone(UTC) if time is not None else None
        except (ValueError, OverflowError):
            return None


class MomentFilter(IdTimeFilter):
    """A period of a column that is a time: `("created_at", MomentFilter)`."""

    def bound(self, moment: datetime) -> datetime:
        return moment
