"""The progress of a run as a cell."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from crmsync.models import Run
from crmsync.monitor.progress import Progress
from msgplatform.core.durations import age
from msgplatform.doors.admin import cells


def percent(run: Run, progress: Progress) -> int:
    """The share of the known rows that is done, in percent; 100 only when the run is over."""
    if progress.is_over:
        return 100
    records_done = progress.unchanged + progress.confirmed + progress.replaced + progress.dead
    total = max(run.unread, progress.read) if run.state == Run.State.READING else progress.read
    return min(99, records_done * 100 // total) if total else 0


def progress(run: Run | None, run_progress: Progress | None) -> SafeString:
    """A bar while the run goes on, and its result afterwards."""
    if run is None or run_progress is None:
        return cells.NOTHING
    if not run_progress.is_over:
        share = percent(run, run_progress)
        return format_html(
            '<progress max="100" value="{}"></progress> <small>{} %</small>', share, share
        )
    if run.state == Run.State.FAILED:
        return cells.mark(_("failed"), "bad", below=run.problem)
    if run_progress.dead:
        return cells.mark(_("%d dead") % run_progress.dead, "bad")
    return cells.mark(_("done"), "good")


def last_run(run: Run | None, run_progress: Progress | None, has_link: bool) -> SafeString:
    """The progress of a run and when it began; with a link to its page."""
    cell = progress(run, run_progress)
    if run is None:
        return cell
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
    if run_progress.left is None:
        return _("%.0f/s") % run_progress.rate
    return cells.lines(_("%.0f/s") % run_progress.rate, _("%s left") % age(run_progress.left))
