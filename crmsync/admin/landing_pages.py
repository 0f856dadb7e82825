"""Landing pages: their title, text and fields, and where else they are hosted."""

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from crmsync import lead_fields
from crmsync.models import LandingPage
from crmsync.setup.landing_pages import LandingPageResource
from msgplatform.doors.admin import ResourceAdmin, cells
from msgplatform.doors.admin.fields import LinesField


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

    note = _(
        "One on each line; an asterisk makes it required: phone *. With a label: budget: Your "
        "budget."
    )
    # Items are dicts: a field that is there twice is an error, where other lists drop it.
    may_repeat = True

    def __init__(self, **options: Any) -> None:
        super().__init__(check=lead_fields.validate_field, rows=6, **options)

    def has_changed(self, initial: Any, data: Any) -> bool:
        # The API and platform files may leave out what is false or empty.
        whole = [{"required": False, "label": "", **item} for item in initial or ()]
        return super().has_changed(whole, data)

    def clean(self, value: Any) -> Any:
        fields = super().clean(value)
        lead_fields.validate_fields(fields)
        return fields


@admin.register(LandingPage)
class LandingPageAdmin(ResourceAdmin):
    resource = LandingPageResource
    system_lookup = "biz"
    limited_views = frozenset({"changelist_view", "change_view", "add_view"})
    limited_may_change = True
    form_fields = {"form_fields": FieldsField}
    list_display = ["title", "appkey", "biz", cells.state, "asks_for", "page"]
    list_filter = ["enabled", "biz"]
    list_select_related = ["biz"]
    search_fields = ["title", "appkey"]
    search_help_text = _("Title or APPKEY")
    readonly_fields = ["page", "created_at"]

    def view_on_site(self, obj: LandingPage) -> str:
        """The page itself: Django's own way there asks for nothing but an id."""
        return str(obj.get_absolute_url())

    @admin.display(description=_("asks for"))
    def asks_for(self, row: LandingPage) -> str:
        return cells.cut(", ".join(field.name for field in row.fields))

    @admin.display(description=_("page"))
    def page(self, row: LandingPage) -> SafeString | str:
        if not (row.pk and row.enabled):
            return cells.NOTHING
        return format_html(
            '<a class="text-primary-600 dark:text-primary-500" href="{}" target="_blank" '
            'rel="noopener">{}</a>',
            row.get_absolute_url(), gettext("Open the page"),
        )  # fmt: skip
