"""A person's own page: the language and the time zone in which they see the console."""

from functools import cache
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone, translation
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.doors.admin import Select
from msgplatform.doors.console.views.page import page, staff_view
from msgplatform.models import Preferences

# Only zones with the name of a place: people look for a place.
_REGIONS = ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe",
            "Indian", "Pacific")  # fmt: skip


def _languages() -> list[tuple[str, Any]]:
    # Each language in itself, so that everybody finds their own.
    names = [(code, translation.get_language_info(code)["name_local"])
             for code, _name in settings.LANGUAGES]  # fmt: skip
    return [("", _("As the browser asks")), *names]


def _zones() -> list[Any]:
    default = _("The platform's: %s") % timezone.get_default_timezone_name()
    return [("", default), ("UTC", "UTC"), *_regions()]


@cache
def _regions() -> list[tuple[str, list[tuple[str, str]]]]:
    """Region → (zone, place) of each; cached, because the zones are in hundreds of files."""
    zones_by_region: dict[str, list[tuple[str, str]]] = {region: [] for region in _REGIONS}
    for name in sorted(available_timezones()):
        region, _slash, place = name.partition("/")
        if region in zones_by_region:
            zones_by_region[region].append((name, place.replace("_", " ")))
    return list(zones_by_region.items())


class PreferencesForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    language = forms.ChoiceField(
        label=gettext_lazy("Language"), choices=_languages, required=False, widget=Select
    )
    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"),
        choices=_zones,
        required=False,
        widget=Select,
        help_text=gettext_lazy("In which times are shown, and the times that you write are read"),
    )

    class Meta:
        model = Preferences
        fields = ["language", "time_zone"]


@staff_view("GET", "POST", answers_limited_people=True)
def preferences(request: HttpRequest) -> HttpResponse:
    user: Any = request.user
    row = Preferences.objects.filter(pk=user.pk).first() or Preferences(user=user)
    form = PreferencesForm(request.POST if request.method == "POST" else None, instance=row)
    if form.is_valid():
        form.save()
        # The next page is in the new language: this sentence must be too.
        with translation.override(row.language or translation.get_language()):
            messages.success(request, _("Your preferences are saved."))
        return redirect("console:preferences")
    return page(request, "preferences.html", _("Preferences"), form=form)
