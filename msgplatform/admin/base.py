"""The base class of every admin in the platform, and the audit entry."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.admin import ShowFacets
from django.core.paginator import Page, Paginator
from django.http import HttpRequest
from django.utils.functional import cached_property

from msgplatform.core.fields import encrypted_names
from msgplatform.models import AuditLog

if TYPE_CHECKING:  # unfold's are Django's with additions, but have no types
    from django.contrib import admin
    from django.contrib.admin.views.main import ChangeList

    UnfoldModelAdmin = admin.ModelAdmin[Any]
else:
    from unfold.admin import ModelAdmin as UnfoldModelAdmin
    from unfold.views import ChangeList


@lru_cache(maxsize=1)
def hidden_fields() -> frozenset[str]:
    """Columns, of any model, that hold a secret or a hash of one."""
    return frozenset({"hash", "password"}).union(*map(encrypted_names, apps.get_models()))


class PlainList(ChangeList):
    """A list that offers "show all" only if a filter leaves something out."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not (self.query or self.has_active_filters):
            self.full_result_count = self.result_count


class ModelAdmin(UnfoldModelAdmin):
    """The theme's admin with our defaults."""

    list_per_page = 50
    show_full_result_count = False  # a COUNT of the whole table, only to show it

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PlainList

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """People who may not change a row see its fields as they are stored, without the hidden
        ones."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return fieldsets
        hidden = hidden_fields()
        return [
            (title, {**options, "fields": [f for f in options["fields"] if f not in hidden]})
            for title, options in fieldsets
        ]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """No filter in the URL on hidden fields: it would reveal them, one character at a time."""
        hidden = hidden_fields().intersection(lookup.split("__"))
        return not hidden and bool(super().lookup_allowed(lookup, value, request))


class UndeletableAdmin(ModelAdmin):
    """Rows that messages refer to: they are disabled, not deleted, so that history is readable."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # it takes none at run time
    """Pages through a hot table: the count is bounded, and only ids are sorted."""

    # COUNT(*) of a hot table grows with the table; nobody pages further than this.
    MOST = 10_000

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.MOST].count())

    def page(self, number: int | str) -> Page[Any]:
        """Reads first the ids, which an index holds, then the rows of one page: a database that has
        to sort then sorts numbers, not rows with all their columns."""
        number = self.validate_number(number)
        rows: Any = self.object_list
        start = (number - 1) * self.per_page
        ids = list(rows.values_list("pk", flat=True)[start : start + self.per_page])
        found = {row.pk: row for row in rows.order_by().filter(pk__in=ids)}
        return Page([found[pk] for pk in ids if pk in found], number, self)


class BoundedList(PlainList):
    """A list whose only page is read by BoundedPaginator too; Django would read all rows."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:
            self.result_list = self.paginator.page(1).object_list


class ReadOnlyAdmin(ModelAdmin):
    """Rows that only the platform writes; lists of any size."""

    paginator = BoundedPaginator
    show_facets = ShowFacets.NEVER  # a count for each choice of a filter would read the table

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedList

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """For actions: nobody edits these rows, but people with the permission to change them may
        act on them."""
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))


def audit(request: HttpRequest, action: str, target: str, **detail: Any) -> AuditLog:
    """Store who did it."""
    return AuditLog.objects.create(
        actor=request.user.get_username(), action=action, target=target[:200], detail=detail
    )
