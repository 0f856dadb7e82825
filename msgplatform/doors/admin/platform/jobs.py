"""Bulk jobs."""

from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from msgplatform.core import flows
from msgplatform.core.errors import NotNow
from msgplatform.doors.admin.filters import row_id
from msgplatform.doors.admin.rows import ReadOnlyAdmin
from msgplatform.jobs import control
from msgplatform.jobs.models import BulkJob


@admin.register(BulkJob)
class BulkJobAdmin(ReadOnlyAdmin):
    system_lookup = "biz_id"
    limited_views = frozenset({"changelist_view", "change_view"})
    sentence_fields = ("filter", "error")
    empty_text = _("No bulk job has been started yet.")
    list_display = ["__str__", "state", "done", "total_text", "rate", "created_by", "created_at"]
    list_filter = ["state", "flow"]
    actions = ["pause", "resume", "cancel"]

    @admin.display(description=_("total"), ordering="total")
    def total_text(self, job: BulkJob) -> str:
        total = f"{job.total:,}"
        return gettext("more than %(n)s") % {"n": total} if job.more else total

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """A job's own page shows its progress."""
        number = row_id(object_id)
        if number is None:
            raise Http404
        return redirect("console:job", number)

    def _set_state(self, request: HttpRequest, jobs: QuerySet[BulkJob], to: str) -> None:
        """Change only jobs of flows in which the person may act on many messages."""
        flow_names = [flow.name for flow in flows.all() if flow.is_bulk_allowed(request.user)]
        if jobs.exclude(flow__in=flow_names).exists():
            raise PermissionDenied
        count = 0
        for job_id in jobs.values_list("pk", flat=True):
            with suppress(NotNow, BulkJob.DoesNotExist):
                count += control.change(job_id, to, request.user.get_username())[1]
        messages.success(request, ngettext("%d job changed.", "%d jobs changed.", count) % count)

    @admin.action(description=_("Pause"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, BulkJob.State.PAUSED)

    @admin.action(description=_("Resume"), permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, BulkJob.State.PENDING)

    @admin.action(description=_("Cancel"), permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        self._set_state(request, queryset, BulkJob.State.CANCELLED)
