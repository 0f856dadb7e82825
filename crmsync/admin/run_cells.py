"""How far a run is, as a cell."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from crmsync.models import Run
from crmsync.monitor.progress import Progress
from msgplatform.admin import cells
from msgplatform.core.durations import age


def percent(run: Run, far: Progress) -> int:
    """How much of the known rows is done; 100 only when the run is over."""
    if far.is_over:
        return 100
    done = far.unchanged + far.confirmed + far.replaced + far.dead
    total = max(run.unread, far.read) if run.state == Run.State.READING else far.read
    return min(99, done * 100 // total) if total else 0


def progress(run: Run | None, far: Progress | None, link: bool = False) -> SafeString:
    """A bar while the run goes on, and afterwards how it ended."""
    if run is None or far is None:
        return cells.NOTHING
    if not far.is_over:
        share = percent(run, far)
        shown = format_html(
            '<progress max="100" value="{}"></progress> <small>{} %</small>', share, share
        )
    elif run.state == Run.State.FAILED:
        shown = cells.mark(_("failed"), "bad", below=run.problem)
    elif far.dead:
        shown = cells.mark(_("%d dead") % far.dead, "bad")
    else:
        shown = cells.mark(_("done"), "good")
    if not link:
        return shown
    url = reverse("admin:crmsync_run_change", args=[run.pk])
    below = cells.moment(run.started_at)
    return format_html(
        '<span class="lines"><a href="{}">{}</a> <small class="why">{}</small></span>',
        url, shown, below,
    )  # fmt: skip


def rate(far: Progress) -> str:
    if far.rate is None:
        return cells.NOTHING
    if far.left is None:
        return _("%.0f/s") % far.rate
    return cells.lines(_("%.0f/s") % far.rate, _("%s left") % age(far.left))
