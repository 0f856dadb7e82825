"""Landing pages: their title, text and fields, and where else they are hosted."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from crmsync import lead_fields
from crmsync.models import LandingPage
from crmsync.models.leads import appkey_prefix, validate_origins
from msgplatform.admin import UndeletableAdmin, cells
from msgplatform.admin.fields import LinesField, each


class FieldsField(LinesField):
    """One field on each line: `phone *`, or `budget: Your budget`; an asterisk: required."""

    def show(self, item: Any) -> str:
        star = " *" if item.get("required") else ""
        label = f": {item['label']}" if item.get("label") else ""
        return f"{item['name']}{star}{label}"

    def read(self, line: str) -> Any:
        # Chinese keyboards write a wide colon.
        name, _colon, label = (part.strip() for part in line.replace("：", ":", 1).partition(":"))
        is_required = name.endswith("*")
        return {"name": name.rstrip("* "), "required": is_required, "label": label}

    # Items are dicts: a field that is there twice is an error, where other lists drop it.
    may_repeat = True

    def clean(self, value: Any) -> Any:
        fields = super().clean(value)
        lead_fields.validate_fields(fields)
        return fields


class LandingPageForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    form_fields = FieldsField(
        check=lead_fields.validate_field,
        rows=6,
        required=True,
        initial=lead_fields.default_fields,
        label=_("Fields"),
        help_text=_(
            "One field on each line, in the order of the form; an asterisk makes it required: "
            "phone *. The fields name, phone, email, company, city and message have labels, which "
            "you can replace; every other field needs one: budget: Your budget."
        ),
    )
    allowed_origins = LinesField(
        check=each(validate_origins),
        label=_("Allowed origins"),
        help_text=_(
            "Where else the page is hosted, one origin on each line: https://www.example.com. "
            "Scripts there may send leads to /api/v1/leads with the APPKEY alone. Empty: nowhere."
        ),
    )

    class Meta:
        model = LandingPage
        fields = ["biz", "title", "appkey", "text", "form_fields", "language", "allowed_origins",
                  "enabled"]  # fmt: skip

    def clean_appkey(self) -> str:
        appkey: str = self.cleaned_data["appkey"]
        # The page shows it read-only; a request that was made by hand ends here.
        if self.instance.pk and appkey != self.initial["appkey"]:
            raise ValidationError(_("Leads refer to it: it cannot be changed."))
        if not self.instance.pk and not appkey.startswith(prefix := appkey_prefix()):
            raise ValidationError(_("Begin it with %s: the proxy finds this cell by it.") % prefix)
        return appkey


@admin.register(LandingPage)
class LandingPageAdmin(UndeletableAdmin):
    audit_name = "landing_page"
    system_lookup = "biz"
    limited_views = frozenset({"changelist_view", "change_view", "add_view"})
    limited_may_change = True
    form = LandingPageForm
    list_display = ["title", "appkey", "biz", "state", "asks_for", "page"]
    list_filter = ["enabled", "biz"]
    list_select_related = ["biz"]
    search_fields = ["title", "appkey"]
    search_help_text = _("Title or APPKEY")
    readonly_fields = ["page", "created_at"]
    fieldsets = [
        (None, {"fields": ["biz", "title", "appkey", "enabled", "page"]}),
        (_("The page"), {"fields": ["text", "form_fields", "language"]}),
        (_("Hosted elsewhere"), {"fields": ["allowed_origins"]}),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leads belong to the system that the page had when they came."""
        fields = super().get_readonly_fields(request, obj)
        return [*fields, "biz", "appkey"] if obj else fields

    def view_on_site(self, obj: LandingPage) -> str:
        """The page itself: Django's own way there asks for nothing but an id."""
        return str(obj.get_absolute_url())

    def audit_target(self, obj: LandingPage) -> str:
        return str(obj.appkey)

    @admin.display(description=_("state"), ordering="enabled")
    def state(self, row: LandingPage) -> str:
        return cells.enabled(row.enabled)

    @admin.display(description=_("asks for"))
    def asks_for(self, row: LandingPage) -> str:
        return cells.cut(", ".join(field.name for field in lead_fields.read(row.form_fields)))

    @admin.display(description=_("page"))
    def page(self, row: LandingPage) -> SafeString | str:
        if not (row.pk and row.enabled):
            return cells.NOTHING
        return format_html(
            '<a class="text-primary-600 dark:text-primary-500" href="{}" target="_blank" '
            'rel="noopener">{}</a>',
            row.get_absolute_url(), gettext("Open the page"),
        )  # fmt: skip
