"""The forms of the console's pages; each flow defines their fields."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django import forms
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.messages import Fields, FilterField, personal_names
from msgplatform.doors.admin import Select, Textarea, TextInput
from msgplatform.messages.filters import moment
from msgplatform.models import SavedFilter

MAX_LENGTH = 200
MAX_SELECTION_LENGTH = 12_000  # maximum characters: some hundred ids
_FORMAT = "%Y-%m-%dT%H:%M"


def form_field(name: str, field: FilterField, page: tuple[str, str]) -> forms.Field:
    """`page` is (flow, page) as in the address of `console:options`."""
    widget: forms.Widget
    if field.kind == "choice":
        widget = ChoiceInput(field)
    elif field.kind == "time":
        widget = MomentInput()
    elif field.kind == "ids":
        widget = Textarea({"rows": 2})
    elif field.kind == "name":
        options = reverse("console:options", args=[*page, name])
        # Without browsers' own suggestions, which would cover those of the platform.
        widget = TextInput({"data-options": options, "autocomplete": "off"})
    else:
        widget = TextInput()
    kind = MomentField if field.kind == "time" else forms.CharField
    return kind(
        label=field.label,  # type: ignore[arg-type]  # a lazy text is one
        required=False,
        max_length=MAX_SELECTION_LENGTH if field.kind == "ids" else MAX_LENGTH,
        help_text=field.help,  # type: ignore[arg-type]
        widget=widget,
    )


class ChoiceInput(Select):  # type: ignore[misc]  # unfold has no types
    """A few choices, or any text. A text that is no choice stays visible beside its error."""

    choices: Any

    def __init__(self, field: FilterField) -> None:
        nothing = field.nothing or _("any")
        super().__init__(choices=[("", nothing), *field.choices])

    def optgroups(self, name: str, value: list[str], attrs: Any = None) -> Any:
        known_values = {str(choice) for choice, _label in self.choices}
        for entered_value in value:
            if entered_value and entered_value not in known_values:
                self.choices = [*self.choices, (entered_value, entered_value)]
        return super().optgroups(name, value, attrs)


class MomentField(forms.CharField):
    """A time with its offset from UTC: a stored filter means the same moment to every reader, and
    is the text that the browser sends back. A text that is no time stays: the flow refuses it."""

    def clean(self, value: Any) -> str:
        text = str(super().clean(value))
        at = _local_time(text)
        if at is None:
            return text
        is_in_milliseconds = at.microsecond and not _is_finer_than_picked(at)
        return at.isoformat(timespec="milliseconds" if is_in_milliseconds else "auto")


class MomentInput(TextInput):  # type: ignore[misc]  # unfold has no types
    """A time in the person's zone, picked in the browser.

    A text that is no time is shown unchanged beside its error.
    """

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, value, attrs)
        at = _local_time(str(value or ""))
        if value and (at is None or _is_finer_than_picked(at)):
            return context
        widget = context["widget"]
        widget["type"] = "datetime-local"
        widget["attrs"]["step"] = "any"  # seconds are accepted, but not required
        if at is not None:
            # To the minute, as people enter times; a link may have a more exact time.
            precision = "seconds" if at.second else "minutes"
            if at.microsecond:
                precision = "milliseconds"
            widget["value"] = at.replace(tzinfo=None).isoformat(timespec=precision)
        return context


def _local_time(text: str) -> datetime | None:
    """The time in the person's zone; None for another text, and for a time without a local one,
    such as the first and the last day may have."""
    try:
        return timezone.localtime(moment(text, "")) if text else None
    except (InvalidInput, OverflowError):
        return None


def _is_finer_than_picked(at: datetime) -> bool:
    """True for a time that browsers cannot pick, because they pick milliseconds. It stays a text:
    acknowledged failures of the same millisecond would be sent again."""
    return at.microsecond % 1000 > 0


def page_fields(flow: Flow, page: str) -> Fields:
    """The filter fields of the search, or of a bulk action; none if the flow has no such action."""
    if page == SavedFilter.SEARCH:
        return flow.messages.fields
    action = flow.actions.get(page)
    return action.fields if action else {}


class Preset(NamedTuple):
    """A period to choose; `since` and `until` as a field for a time takes them, '' is no bound."""

    title: str
    since: str
    until: str = ""


class FilterForm(forms.Form):
    """A text field for each of a flow's filter fields; the flow reads the texts.

    `page` is the search, or a bulk action. `clear`: for somebody who may see personal data. Others
    have no field for it, and an address with one is refused: without it the filter would mean other
    messages.
    """

    def __init__(self, flow: Flow, page: str, clear: bool, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields = page_fields(flow, page)
        refused_names = set() if clear else personal_names(fields)
        self._refused = {name: fields[name].label for name in refused_names}
        self._names = [name for name in fields if name not in self._refused]
        for name in self._names:
            self.fields[name] = form_field(name, fields[name], (flow.name, page))
        self.order_fields(self._names)

    def clean(self) -> dict[str, Any]:
        for name, label in self._refused.items():
            if self.data.get(self.add_prefix(name)):
                text = gettext("“%s” is only for people who may see personal data.")
                self.add_error(None, text % label)
        return self.cleaned_data

    def filter(self) -> dict[str, str]:
        return {name: self.cleaned_data[name] for name in self._names if self.cleaned_data[name]}

    def summary(self, values: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(label, value) of a filter, in the words and the zone of the form. A field that the form
        does not have any more is shown as it is stored."""
        lines = []
        for name, value in values.items():
            field, text = self.fields.get(name), str(value)
            label = str(field.label) if field else name
            if isinstance(field, MomentField):
                at = _local_time(text)
                text = at.strftime("%Y-%m-%d %H:%M") if at else text
            elif field:
                text = str(dict(getattr(field.widget, "choices", ())).get(text, text))
            lines.append((label, text))
        return lines

    def refuse(self, field: str, sentence: str) -> None:
        """Show the flow's error, at the field if the form has it."""
        self.add_error(field if field in self.fields else None, sentence)

    @property
    def presets(self) -> list[Preset]:
        """Periods in the person's time zone, if the form has a period."""
        if not {"since", "until"} <= self.fields.keys():
            return []
        now = timezone.localtime()
        hour_ago = timezone.now() - timedelta(hours=1)  # not by the wall clock, which may jump
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        evening, morning = (today - timedelta(days=1)).replace(hour=20), today.replace(hour=8)
        night_end = morning.strftime(_FORMAT) if morning < now else ""
        return [
            Preset(gettext("Last hour"), timezone.localtime(hour_ago).strftime(_FORMAT)),
            Preset(gettext("Today"), today.strftime(_FORMAT)),
            Preset(gettext("Last night"), evening.strftime(_FORMAT), night_end),
        ]


class BulkForm(FilterForm):
    """A bulk action's filter, and its pace."""

    rate = forms.IntegerField(
        label=_("Messages per second"),
        min_value=1,
        max_value=100_000,
        required=False,
        help_text=_("Empty: the rate limit of their only subscription, else as fast as possible"),
        widget=TextInput({"type": "number", "min": 1}),
    )

    @property
    def pace(self) -> int:
        """Messages per second; 0 if no pace was entered."""
        return self.cleaned_data["rate"] or 0
