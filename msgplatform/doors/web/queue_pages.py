"""The pages of queues: our own list, and the pages of django-rq that only show orders.

django-rq's pages name a queue by its place in the list of queues, and ours come and go with
subscriptions: between page and click another queue may get that place. Pages that empty, delete or
run again are refused: the orders belong to our own daemons, and the console has actions for them.

The platform has no RQ workers, so pages about workers, schedulers and the registries that workers
fill are not served. RQ reads those with pickle, runs callbacks that a job names, and cleans up
whenever it counts: a page would run what somebody wrote into Redis.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import user_passes_test
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView
from django_rq.settings import get_queues_map
from django_rq.urls import get_admin_urlpatterns

from msgplatform.core import logging, personal
from msgplatform.core.connections import RedisError
from msgplatform.core.queues import jobs
from msgplatform.doors.console.views.page import page

log = logging.get(__name__)

_SHOWN = frozenset({"jobs", "job_detail", "result_detail"})
# The names must exist, because the shown pages link to them.
_REFUSED = frozenset({
    "clear", "requeue_all", "delete_failed_jobs", "confirm_action", "actions", "delete_job",
    "requeue_job", "enqueue_job", "stop_job",
})  # fmt: skip
# Both permissions, since the pages show payloads.
_allowed = user_passes_test(
    lambda user: user.has_perms(["msgplatform.view_queues", personal.PERMISSION])
)


def urls() -> list[URLPattern]:
    """django-rq's addresses: pages that show orders, and a refusal for those that change them."""
    shown_pages, refused_pages = [], []
    for pattern in get_admin_urlpatterns(view_wrapper=_allowed):
        if pattern.name in _SHOWN:
            # These pages of django-rq contain scripts.
            view = csp_update({"script-src": [UNSAFE_INLINE]})(_with_fallback(pattern.callback))
            shown_pages.append(path(str(pattern.pattern), view, name=pattern.name))
        elif pattern.name in _REFUSED:
            refused_pages.append(path(str(pattern.pattern), _refuse, name=pattern.name))
    orders = RedirectView.as_view(pattern_name="django_rq:jobs")
    return [
        path("", home, name="home"),
        # In place of a queue's registries show its orders: our queues have nothing else.
        path("queues/<int:queue_index>/details/", orders, name="queue_details"),
        *refused_pages,
        *shown_pages,
    ]


@never_cache
@staff_member_required
@_allowed
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Every queue with the number of its orders."""
    return _show_list(request)


def _show_list(request: HttpRequest, notice: str = "", status: int = 200) -> HttpResponse:
    problem, rows = "", []
    try:
        places = get_queues_map()
        depths = jobs.depths(list(places))
        rows = [(name, place, depths[name]) for name, place in places.items()]
    except RedisError as error:
        problem = str(error)[:200]
    return page(
        request, "queues.html", _("Queues"), status,
        queues=rows, redis_problem=problem, notice=notice,
    )  # fmt: skip


def _refuse(_request: HttpRequest, *_args: Any, **_kwargs: Any) -> HttpResponse:
    raise PermissionDenied(
        _("Only the platform changes queues. Pause, resume or discard the subscription.")
    )


def _with_fallback(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """django-rq's page, or the list of queues when it cannot show what Redis holds."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Http404:
            raise
        except Exception as error:  # noqa: BLE001 - what is in Redis may be anything
            # Do not log the error's text, which may quote a payload.
            log.warning("queue_page_unreadable", path=request.path, why=type(error).__name__)
            notice = _("This queue is gone, or holds an order that the platform did not write.")
            return _show_list(request, notice, status=404)

    return wrapper
