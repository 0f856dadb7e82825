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
        how_far = of_runs(runs)
        for row in runs:
            row.far = how_far[row.pk]
        return runs

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        run_progress = row.far
        operations = Operation.objects.filter(run_id=row.pk).defer("data")[:_OPERATIONS]
        return {
            "far": run_progress,
            "percent": percent(row, run_progress),
            "state": progress(row, run_progress),
            "left": age(run_progress.left) if run_progress.left is not None else "",
            "operations": list(operations),
            "seconds": 0 if run_progress.is_over else _RENEWED_SECONDS,
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
    how_far = cells.column(_("state"), lambda row: progress(row, row.far))

    @admin.display(description=_("read"))
    def read_rows(self, row: Run) -> str:
        """Rows that were read, with how many were unchanged below."""
        below = gettext("%d unchanged") % row.unchanged if row.unchanged else ""
        return cells.lines(_count(row.read), below)

    sent = cells.column(_("sent"), lambda row: _count(row.far.sent))
    confirmed = cells.column(_("confirmed"), lambda row: _count(row.far.confirmed))

    @admin.display(description=_("dead"))
    def dead(self, row: Any) -> str:
        return cells.mark(str(row.far.dead), "bad") if row.far.dead else cells.nothing("0")

    speed = cells.column(_("speed"), lambda row: rate(row.far))


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


def progress(run: Run, run_progress: Progress) -> SafeString:
    """A bar while the run goes on, and its result afterwards."""
    if not run_progress.is_over:
        share = percent(run, run_progress)
        return format_html(
            '<progress max="100" value="{}"></progress> <small>{} %</small>', share, share
        )
    if run.state == Run.State.FAILED:
        return cells.mark(gettext("failed"), "bad", below=run.problem)
    if run_progress.dead:
        return cells.mark(gettext("%d dead") % run_progress.dead, "bad")
    return cells.mark(gettext("done"), "good")


def last_run(run: Run | None, run_progress: Progress | None, has_link: bool) -> SafeString:
    """The progress of a run and when it began; with a link to its page."""
    if run is None or run_progress is None:
        return cells.NOTHING
    cell = progress(run, run_progress)
    if has_link:
        url = reverse("admin:crmsync_run_change", args=[run.pk])
        cell = format_html('<a href="{}">{}</a>', url, cell)
    return format_html(
        '<span class="lines">{} <small class="why">{}</small></span>',
        cell, cells.moment(run.started_at),
    )  # fmt: skip


def rate(run_progress: Progress) -> str:
    if run_progress.rate is None:
        return cells.NOTHING
    below = "" if run_progress.left is None else gettext("%s left") % age(run_progress.left)
    return cells.lines(gettext("%.0f/s") % run_progress.rate, below)
