"""The repair for each of Feed's alerts in a sentence; `docs/operations.md` says more."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from msgplatform.core.flows import Runbook

RUNBOOKS: Mapping[str, Runbook] = {
    "feed.set_aside": Runbook(
        _("Read the reason of an event on Failures, remove the cause, and replay them there."),
        "console:failures",
    ),
    "feed.late": Runbook(
        _("Look at the scheduler: does it give way to other load, or are dispatchers missing?"),
        "admin:feed_scheduler",
    ),
    "feed.events.retention": Runbook(
        _("Look at the database: why can handled events not be deleted?"), "console:overview"
    ),
    "feed.entries.retention": Runbook(
        _("Look at the database: why can old timeline entries not be deleted?"),
        "console:overview",
    ),
    "feed.keys.retention": Runbook(
        _("Look at the database: why can old idempotency keys not be deleted?"), "console:overview"
    ),
}
