"""The progress of a run as a cell."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from crmsync.models import Run
from crmsync.monitor.progress import Progress
from msgplatform.admin import cells
from msgplatform.core.durations import age


def percent(run: Run, progress: Progress) -> int:
    """The share of the known rows that is done, in percent; 100 only when the run is over."""
    if progress.is_over:
        return 100
    records_done = progress.unchanged + progress.confirmed + progress.replaced + progress.dead
    total = max(run.unread, progress.read) if run.state == Run.State.READING else progress.read
    return min(99, records_done * 100 // total) if total else 0


def progress(run: Run | None, run_progress: Progress | None, link: bool = False) -> SafeString:
    """A bar while the run goes on, and its result afterwards."""
    if run is None or run_progress is None:
        return cells.NOTHING
    if not run_progress.is_over:
        share = percent(run, run_progress)
        cell = format_html(
            '<progress max="100" value="{}"></progress> <small>{} %</small>', share, share
        )
    elif run.state == Run.State.FAILED:
        cell = cells.mark(_("failed"), "bad", below=run.problem)
    elif run_progress.dead:
        cell = cells.mark(_("%d dead") % run_progress.dead, "bad")
    else:
        cell = cells.mark(_("done"), "good")
    if not link:
        return cell
    url = reverse("admin:crmsync_run_change", args=[run.pk])
    below = cells.moment(run.started_at)
    return format_html(
        '<span class="lines"><a href="{}">{}</a> <small class="why">{}</small></span>',
        url, cell, below,
    )  # fmt: skip


def rate(run_progress: Progress) -> str:
    if run_progress.rate is None:
        return cells.NOTHING
    if run_progress.left is None:
        return _("%.0f/s") % run_progress.rate
    return cells.lines(_("%.0f/s") % run_progress.rate, _("%s left") % age(run_progress.left))
