"""django-rq's pages, for looking only.

They name a queue by its place in the list of queues, and ours come and go with subscriptions:
between a look and a click another queue may stand in that place. What they would empty, delete or
run again is work of our own daemons, which have actions of their own in the console.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

_READING = frozenset({
    "home", "jobs", "queue_details", "finished_jobs", "failed_jobs", "scheduled_jobs",
    "started_jobs", "deferred_jobs", "job_detail", "result_detail", "workers", "worker_details",
})  # fmt: skip


def read_only(patterns: Iterable[URLPattern]) -> list[URLPattern]:
    """The same addresses; every page that is not known to read only refuses, and so does any
    request to a page that would change something."""
    return [
        pattern
        if pattern.name in _READING
        # The name stays, because the other pages' templates make links of it.
        else path(str(pattern.pattern), _refuse, name=pattern.name)
        for pattern in patterns
    ]


def _refuse(request: HttpRequest, *_args: Any, **_kwargs: Any) -> Any:
    raise PermissionDenied(
        _("Queues are changed by the platform only. Pause, resume or discard the subscription.")
    )
