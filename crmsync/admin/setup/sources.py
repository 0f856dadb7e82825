"""Sources: the hive, and tables of other databases, whose changes are read."""

from typing import Any

import msgspec
from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _

from crmsync import trials
from crmsync.admin.setup import probes
from crmsync.models import Source
from crmsync.models.sources import HIVE
from crmsync.poller.reading.increment import Facts, Increment
from crmsync.poller.reading.source import Source as SourceToRead, source_from_row
from crmsync.setup.sources import SourceResource
from msgplatform.core.data import databases
from msgplatform.core.durations import age
from msgplatform.core.errors import InvalidInput, PlatformError, Undecryptable
from msgplatform.core.secrets.fields import Unreadable
from msgplatform.doors.admin import AdminPage, ResourceAdmin, audit, cells


class SourceCheck(msgspec.Struct, frozen=True):
    """The result of testing a source."""

    facts: Facts
    is_indexed: bool
    is_empty: bool


def examine(source: SourceToRead) -> SourceCheck:
    """Read one row as the poller does. Raises SourceUnavailable, SourceRefused, SourceMismatch,
    InvalidInput."""
    increment = Increment(source)
    page = increment.read(None, 1)
    facts = page.facts
    is_empty = not (page.rows or facts.waiting or facts.without_time)
    return SourceCheck(facts, increment.is_indexed, is_empty)


@admin.register(Source)
class SourceAdmin(ResourceAdmin):
    resource = SourceResource
    field_options = {"value_columns": {"rows": 6}}
    readonly_fields = ["database_place", "columns_text"]
    shown_instead = {"database": "database_place", "value_columns": "columns_text"}
    list_display = [
        "name", "database_place", "table", "time_column", "version_comparison", "policy_count",
    ]  # fmt: skip
    search_fields = ["name", "table"]
    search_help_text = _("Name or table")
    sortable_by = ["name", "table"]
    change_form_outer_before_template = "admin/crmsync/source_bar.html"
    change_form_after_template = "admin/crmsync/source_test.html"
    further_pages = [
        AdminPage("test/", "crmsync_source_test", "test_view", is_post=True),
        AdminPage("<int:pk>/test/", "crmsync_source_test", "test_view", is_post=True),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Source]:
        rows: QuerySet[Source] = super().get_queryset(request)
        return rows.annotate(policies=Count("policy"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        return fieldsets[:2] if obj and obj.is_hive else fieldsets  # the hive has no time zone

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)  # it does not ask `has_delete_permission`
        return actions

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        context["test_url"] = reverse("admin:crmsync_source_test", args=[row.pk] if row else [])
        has_permission = self.has_change_permission if row else self.has_add_permission
        context["may_test"] = has_permission(request)
        return super().render_change_form(request, context, *args, **kwargs)

    def test_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """Read one row of the source that the form describes; the form is not saved."""
        # The hive has no form to post: people who may change it test the stored source.
        row = Source.objects.filter(pk=pk, name=HIVE).first() if pk else None
        if row is None or not self.has_change_permission(request):
            form = probes.posted_form(self, request, pk)
            if isinstance(form, HttpResponse):
                return form
            row = form.instance
        audit(request, "sync_source_tested", row.name)
        try:
            source = source_from_row(row)
            check = trials.ask(lambda: examine(source))
        except PlatformError as error:
            return probes.piece(request, "answer.html", tone="bad", text=trials.describe(error))
        return probes.piece(
            request, "answer.html", tone="good", text=_result(check),
            more=list(_reservations(check, row)),
        )  # fmt: skip

    # -- columns ---------------------------------------------------------------------------------
    @admin.display(description=_("database"))
    def database_place(self, row: Source) -> str:
        """Server and name, without user and password."""
        if row.is_hive:
            return gettext("the platform's own")
        # `row.database` would raise if the encryption key is gone.
        stored_url = Source._meta.get_field("database").value_from_object(row)
        if isinstance(stored_url, Unreadable):
            return cells.mark(gettext("cannot be decrypted"), "bad")
        try:
            config = databases.configuration(row.database)
        except (InvalidInput, Undecryptable) as error:
            return cells.mark(gettext("cannot be used"), "bad", below=str(error))
        return f"{config['HOST']}/{config['NAME']}" if config["HOST"] else str(config["NAME"])

    columns_text = cells.column(
        _("columns that are read"), lambda row: ", ".join(row.value_columns)
    )

    @admin.display(description=_("comparison of versions"))
    def version_comparison(self, row: Source) -> str:
        if row.version_column:
            return cells.mark(gettext("possible"), "good", row.version_column)
        return cells.mark(gettext("no version column"), "plain")

    @admin.display(description=_("policies"))
    def policy_count(self, row: Any) -> str:
        if not row.policies:
            return cells.nothing("0")
        url = reverse("admin:crmsync_policy_changelist")
        return format_html('<a href="{}?source__id__exact={}">{}</a>', url, row.pk, row.policies)


# By `Facts.bounded_by`: why the horizon, before which no further row can appear, is not exact.
_BOUNDS = {
    "privilege": _(
        "The database does not show its open transactions: the user needs the privilege PROCESS."
    ),
    "replica": _(
        "This is a replica, or a server that is read only: transactions are open on the server "
        "that is written to. Name that one, if it can be read."
    ),
    "cluster": _("This is a server of a cluster: others are written to as well."),
    "file": _("The file cannot be written, so that its writers cannot be seen."),
}


def _result(check: SourceCheck) -> str:
    sentence = (
        gettext("The table can be read; it is empty.")
        if check.is_empty
        else gettext("The table can be read.")
    )
    if check.facts.bounded_by:
        return sentence
    exactness = gettext("No change is missed: the horizon is exact, %s behind.")
    return f"{sentence} {exactness % age(check.facts.age.total_seconds())}"


def _reservations(check: SourceCheck, row: Source) -> Any:
    """Facts to know before using the source."""
    facts = check.facts
    if facts.bounded_by:
        late_changes = gettext(
            "Reading misses a change that is committed more than %(seconds)d s after it was "
            "written, and only the comparison of versions finds it."
        ) % {"seconds": row.lag_seconds}
        yield f"{_BOUNDS[facts.bounded_by]} {late_changes}"
    if facts.without_time:
        text = gettext("Rows without a time in %(time)s: %(count)d or more. They are never read.")
        yield text % {"count": facts.without_time, "time": row.time_column}
    if not check.is_indexed:
        yield gettext(
            "There is no index by %(time)s and %(key)s: every look reads the whole table."
        ) % {"time": row.time_column, "key": row.key_column}
    if not row.version_column:
        yield gettext("Without a version column versions cannot be compared.")
