"""The form of the page of statistics: a period with its steps, and a group of each dimension.

Each field has a default, and the address holds all of them.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from msgplatform import person_limits
from msgplatform.core.flows.activity import Activity
from msgplatform.doors.admin import RowSelect, Select, TextInput, limited_choices
from msgplatform.monitor.statistics.points import CounterQuery, Step

PERIODS = {
    "1h": (timedelta(hours=1), _("an hour")),
    "6h": (timedelta(hours=6), _("6 hours")),
    "24h": (timedelta(days=1), _("24 hours")),
    "3d": (timedelta(days=3), _("3 days")),
    "7d": (timedelta(days=7), _("7 days")),
    "14d": (timedelta(days=14), _("14 days")),
    "30d": (timedelta(days=30), _("30 days")),
    "90d": (timedelta(days=90), _("90 days")),
    "365d": (timedelta(days=365), _("a year")),
}
# Days of the reader's time zone: how many days before today.
DAYS = {"today": (0, _("today")), "yesterday": (1, _("yesterday"))}
_DEFAULT = "24h"
STEPS: dict[Step, Any] = {"minute": _("minute"), "hour": _("hour"), "day": _("day")}
# The longest spans with steps of a minute, and of an hour, when no step is chosen.
_MAX_MINUTE_SPAN, _MAX_HOUR_SPAN = timedelta(hours=2), timedelta(days=3)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # nothing was counted before


class StatisticsForm(forms.Form):
    """`activity` adds a field for each dimension of a flow. For people who are limited to business
    systems, dimensions whose groups belong to the platform are left out."""

    period = forms.ChoiceField(
        label=_("Period"),
        choices=[(key, title) for key, (_span, title) in (*PERIODS.items(), *DAYS.items())],
        required=False,
        widget=Select,
    )
    since = forms.DateTimeField(
        label=pgettext_lazy("time", "From"),
        required=False,
        widget=TextInput({"type": "datetime-local"}),
    )
    until = forms.DateTimeField(
        label=pgettext_lazy("time", "Until"),
        required=False,
        widget=TextInput({"type": "datetime-local"}),
    )
    step = forms.ChoiceField(
        label=_("Resolution"), choices=[("", _("automatic")), *STEPS.items()], required=False,
        widget=Select,
    )  # fmt: skip

    def __init__(self, activity: Activity | None, query: QueryDict, request: HttpRequest) -> None:
        data = query.copy()
        data["period"] = data.get("period") or _DEFAULT
        super().__init__(data)
        self._dimensions = activity.dimensions if activity else ()
        self._systems = person_limits.ids_of(request)
        for dimension in self._dimensions:
            label = capfirst(str(dimension.title))
            if dimension.relation:  # its rows are found by typing
                app, model, name = dimension.relation.split(".")
                relation: Any = apps.get_model(app, model)._meta.get_field(name)
                rows = relation.related_model._default_manager.all()
                if self._systems is not None:
                    rows = limited_choices(rows, request)
                widget = RowSelect(relation, admin.site)
                self.fields[dimension.name] = forms.ModelChoiceField(
                    rows, label=label, required=False, widget=widget
                )
            elif self._systems is None:
                choices = [("", _("all")), *dimension.choices()]
                self.fields[dimension.name] = forms.ChoiceField(
                    label=label, choices=choices, required=False, widget=Select
                )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for dimension in self._dimensions:
            if dimension.name not in self.fields and self.data.get(dimension.name):
                self.add_error(None, gettext("There is no such choice."))
        now = timezone.now()
        since, until = values.get("since"), values.get("until")
        period = values.get("period") or _DEFAULT
        if since is None and until is None and period in DAYS:
            midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
            since = midnight - timedelta(days=DAYS[period][0])
            until = since + timedelta(days=1)
        until = max(min(until or now, now), _EPOCH)
        if since is None:
            since = until - PERIODS.get(period, PERIODS[_DEFAULT])[0]
        since = max(since, _EPOCH)
        if since >= until:
            self.add_error("until", gettext("The end must be after the beginning."))
            return values
        oldest_minute = now - timedelta(days=settings.MINUTE_COUNTER_DAYS)
        step, span = values.get("step"), until - since
        if not step and (since < oldest_minute or span > _MAX_HOUR_SPAN):
            step = "day"
        elif not step:
            step = "minute" if span <= _MAX_MINUTE_SPAN else "hour"
        if step != "day" and since < oldest_minute:
            self.add_error(
                "step",
                gettext("Minutes and hours are kept for %d days: choose days for a longer time.")
                % settings.MINUTE_COUNTER_DAYS,
            )
        return {**values, "since": since, "until": until, "step": step}

    def query(self, activity: Activity) -> CounterQuery:
        values = self.cleaned_data
        selection = {  # dimension → key of the group that the person chose
            dimension.name: str(getattr(value, "pk", value))
            for dimension in self._dimensions
            if (value := values.get(dimension.name))
        }
        since, until = values["since"], values["until"]
        return CounterQuery(activity, values["step"], since, until, selection, self._systems)

    def zone(self) -> str:
        """The time zone of the shown times. Days are counted in the platform's zone."""
        if self.cleaned_data["step"] == "day":
            return timezone.get_default_timezone_name()
        return timezone.get_current_timezone_name()
