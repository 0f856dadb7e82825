"""Base of the lists of CRM sync: names of policies and CRMs, and filters.

Rows refer to policies and CRMs by id; names are read for all rows of a page at once.
"""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from crmsync.messages.explanations import ERROR_CLASSES
from crmsync.models import Crm, Policy
from msgplatform.doors.admin import PickFilter, RowsAdmin, cells, row_id

_MAX_OPTIONS = 500  # CRMs or policies that a filter offers


def timeline_link(record_id: int, key: str, is_of_hive: bool) -> SafeString:
    """The record's key, as a link to the page with its timeline. A lead has one page for all
    CRMs, a record of another source has its own."""
    id = key if is_of_hive and key.isdigit() else f"record-{record_id}"
    return cells.link(reverse("console:message", args=["crmsync", id]), key or record_id)


class CrmFilter(PickFilter):
    """Rows of a CRM by their `crm_id`, or by the CRM's policies where rows have none."""

    title = _("CRM")
    parameter_name = "crm"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Crm.objects.order_by("name").values_list("pk", "name")[:_MAX_OPTIONS]
        return [(str(pk), name) for pk, name in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        crm_id = row_id(self.value())
        if crm_id is None:
            return queryset
        # Some of these tables have `crm_id`, with an index.
        if any(field.name == "crm_id" for field in queryset.model._meta.concrete_fields):
            return queryset.filter(crm_id=crm_id)
        # A list, because databases do not use the index for a subquery.
        policies = Policy.objects.filter(crm_id=crm_id).order_by()
        return queryset.filter(policy_id__in=list(policies.values_list("pk", flat=True)))


class PolicyFilter(PickFilter):
    title = _("policy")
    parameter_name, column, is_id = "policy", "policy_id", True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Policy.objects.select_related("source", "crm")[:_MAX_OPTIONS]
        return [(str(row.pk), str(row)) for row in rows]


class ErrorFilter(PickFilter):
    title = _("error class")
    parameter_name, column, options = "error", "error_class", ERROR_CLASSES.items()


class NamedRowsAdmin(RowsAdmin):
    """Rows with the names of their policy, source and CRM."""

    def add_details(self, rows: list[Any]) -> list[Any]:
        """Two queries for any number of rows."""
        policies = Policy.with_names().in_bulk({row.policy_id for row in rows})
        crms = Crm.objects.in_bulk({getattr(row, "crm_id", 0) for row in rows} - {0})
        for row in rows:
            policy = policies.get(row.policy_id)
            # Rows of the logs name their CRM. Other rows have the CRM of their policy.
            crm = crms.get(getattr(row, "crm_id", 0)) or (policy and policy.crm)
            row.policy_name = str(policy or "")
            row.source_name = str(policy.source) if policy else ""
            row.crm_name = str(crm or "")
            row.is_of_hive = bool(policy and policy.source.is_hive)
        return rows
