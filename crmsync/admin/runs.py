"""Runs: the list with their progress, and the page of one, which renews itself while it goes on."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from crmsync.admin.rows import CrmFilter, NamedRowsAdmin, PolicyFilter
from crmsync.models import Operation, Run
from crmsync.monitor.backlog import Progress, of_runs
from msgplatform.core.durations import age
from msgplatform.doors.admin import ChoiceFilter, IdTimeFilter, cells

_OPERATIONS = 20  # that the page of a run shows
_RENEWED_SECONDS = 3


@admin.register(Run)
class RunAdmin(NamedRowsAdmin):
    list_display = [
        "began", "policy", "what", "how_far", "read_rows", "sent", "confirmed", "dead", "speed",
    ]  # fmt: skip
    list_display_links = None
    list_filter = [CrmFilter, PolicyFilter, ("kind", ChoiceFilter), ("id", IdTimeFilter)]
    search_help_text = _("A run's id")
    page_template = "admin/crmsync/run.html"
    live_template = "admin/crmsync/run_live.html"

    def add_details(self, rows: list[Any]) -> list[Any]:
        runs = super().add_details(rows)
        # One query for all rows of the page.
        progress_by_run = of_runs(runs)
        for row in runs:
            row.progress = progress_by_run[row.pk]
        return runs

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        operations = Operation.objects.filter(run_id=row.pk).defer("data")[:_OPERATIONS]
        return {
            "percent": percent(row, row.progress),
            "state": progress_cell(row, row.progress),
            "left": age(row.progress.left) if row.progress.left is not None else "",
            "operations": list(operations),
            "seconds": 0 if row.progress.is_over else _RENEWED_SECONDS,
        }

    @admin.display(description=_("began"))
    def began(self, row: Any) -> str:
        url = reverse("admin:crmsync_run_change", args=[row.pk])
        at = formats.date_format(timezone.localtime(row.started_at), "Y-m-d H:i:s")
        return cells.link(url, at)

    policy = cells.column(_("policy"), lambda row: row.policy_name or cells.NOTHING)
    what = cells.column(
        _("what"), lambda row: cells.lines(str(row.get_kind_display()), row.requested_by)
    )
    how_far = cells.column(_("state"), lambda row: progress_cell(row, row.progress))

    @admin.display(description=_("read"))
    def read_rows(self, row: Run) -> str:
        """Rows that were read, with how many were unchanged below."""
        below = gettext("%d unchanged") % row.unchanged if row.unchanged else ""
        return cells.lines(_count(row.read), below)

    sent = cells.column(_("sent"), lambda row: _count(row.progress.sent))
    confirmed = cells.column(_("confirmed"), lambda row: _count(row.progress.confirmed))

    @admin.display(description=_("dead"))
    def dead(self, row: Any) -> str:
        count = row.progress.dead
        return cells.mark(str(count), "bad") if count else cells.nothing("0")

    speed = cells.column(_("speed"), lambda row: rate(row.progress))


def _count(number: int) -> str:
    return str(number) if number else cells.nothing("0")


# -- cells of a run's progress --------------------------------------------------------------------
def percent(run: Run, progress: Progress) -> int:
    """The share of the known rows that is done, in percent; 100 only when the run is over."""
    if progress.is_over:
        return 100
    records_done = progress.unchanged + progress.confirmed + progress.replaced + progress.dead
    total = max(run.unread, progress.read) if run.state == Run.State.READING else progress.read
    return min(99, records_done * 100 // total) if total else 0


def progress_cell(run: Run, progress: Progress) -> SafeString:
    """A bar while the run goes on, and its result afterwards."""
    if not progress.is_over:
        share = percent(run, progress)
        return format_html(
            '<progress max="100" value="{}"></progress> <small>{} %</small>', share, share
        )
    if run.state == Run.State.FAILED:
        return cells.mark(gettext("failed"), "bad", below=run.problem)
    if progress.dead:
        return cells.mark(gettext("%d dead") % progress.dead, "bad")
    return cells.mark(gettext("done"), "good")


def last_run(run: Run | None, progress: Progress | None, has_link: bool) -> SafeString:
    """The progress of a run and when it began; with a link to its page."""
    if run is None or progress is None:
        return cells.NOTHING
    cell = progress_cell(run, progress)
    if has_link:
        url = reverse("admin:crmsync_run_change", args=[run.pk])
        cell = format_html('<a href="{}">{}</a>', url, cell)
    return format_html(
        '<span class="lines">{} <small class="why">{}</small></span>',
        cell, cells.moment(run.started_at),
    )  # fmt: skip


def rate(progress: Progress) -> str:
    if progress.rate is None:
        return cells.NOTHING
    below = "" if progress.left is None else gettext("%s left") % age(progress.left)
    return cells.lines(gettext("%.0f/s") % progress.rate, below)
