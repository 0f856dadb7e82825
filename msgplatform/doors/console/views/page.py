"""The common parts of the console's pages: their frame, the checks of who may see which flow, and
the masking of a flow's texts."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from msgplatform import person_limits
from msgplatform.core import flows, personal
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.contract import Flow
from msgplatform.doors.admin import sees_personal
from msgplatform.jobs.models import BulkJob

# Every page asks which flows are set up. This process remembers those that are, and takes other
# flows as unused until a time (monotonic).
set_up_flows: set[str] = set()
unused_until: dict[str, float] = {}
UNUSED_SECONDS = 5.0
_View = TypeVar("_View", bound=Callable[..., Any])


def staff_view(*methods: str, answers_limited_people: bool = False) -> Callable[[_View], _View]:
    """A view of the console, for these methods, that asks people to sign in.
    `answers_limited_people`: as `person_limits.answers_limited_people`."""

    def decorate(view: _View) -> _View:
        view = staff_member_required(require_http_methods(methods)(view))
        return person_limits.answers_limited_people(view) if answers_limited_people else view

    return decorate


def page(
    request: HttpRequest, template: str, title: str, status: int = 200, /, **context: Any
) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, **context}
    return render(request, f"console/{template}", context, status=status)


def visible(request: HttpRequest) -> list[Flow]:
    return [flow for flow in flows.all() if request.user.has_perm(flow.permission)]


def uncounted(request: HttpRequest) -> dict[Flow, str]:
    """The flows whose counters this person does not see because they do not distinguish business
    systems, each with a sentence that explains this."""
    if not person_limits.is_limited(request):
        return {}
    sentence = _("%(flow)s counts for all business systems together, and not for yours alone.")
    return {
        flow: sentence % {"flow": flow.title}
        for flow in visible(request)
        if (activity := flow.health.activity) and not activity.has_systems
    }


def is_set_up(flow: Flow) -> bool:
    """True if one of the flow's first steps is done, or if this is unknown."""
    if flow.name in set_up_flows:
        return True
    if time.monotonic() < unused_until.get(flow.name, 0.0):
        return False
    try:
        steps = flow.setup.first_steps()
    except UNAVAILABLE:
        return True
    if steps and not any(step.done for step in steps):
        unused_until[flow.name] = time.monotonic() + UNUSED_SECONDS
        return False
    set_up_flows.add(flow.name)
    return True


def require(request: HttpRequest, flow: Flow) -> None:
    if not request.user.has_perm(flow.permission):
        raise PermissionDenied


def can_see_jobs(request: HttpRequest) -> bool:
    """True if this person may see bulk jobs or start one."""
    return any(request.user.has_perm(f"msgplatform.{verb}_bulkjob") for verb in ("view", "add"))


def can_start_jobs(user: Any, flow: Flow) -> bool:
    """True if this person may start bulk jobs of the flow."""
    return bool(user.has_perm("msgplatform.add_bulkjob") and flow.is_bulk_allowed(user))


def jobs_of(request: HttpRequest) -> QuerySet[BulkJob]:
    """The jobs that this person may see: all, or only those about their systems."""
    systems = person_limits.ids_of(request)
    rows = BulkJob.objects.all()
    return rows if systems is None else rows.filter(biz_id__in=systems)


def job_of(request: HttpRequest, id: int) -> BulkJob:
    """The job with this id. Raises Http404, also for a job of systems that this person may not see,
    and PermissionDenied."""
    row = jobs_of(request).filter(pk=id).first()
    if row is None:
        raise Http404(_("There is no such bulk job."))
    if not can_see_jobs(request):
        raise PermissionDenied
    return row


def list_name(flow: Flow) -> str:
    """The name of the list of a flow's messages, as the side bar has it."""
    return capfirst(str(model_of(flow)._meta.verbose_name_plural))


def model_of(flow: Flow) -> type[Model]:
    """The model of a flow's messages, by its permission."""
    label, codename = flow.permission.split(".")
    return apps.get_model(label, codename.removeprefix("view_"))


def bulk_address(flow_name: str, action: str, filter: Mapping[str, Any], **more: Any) -> str:
    """The page of a bulk action with this filter; `count=1` makes the page count at once."""
    query = urlencode({"action": action, **filter, **more})
    return f"{reverse('console:bulk-flow', args=[flow_name])}?{query}"


def flow_of(request: HttpRequest, name: str) -> Flow:
    flow = flows.get(name)
    if flow is None:
        raise Http404(_("There is no such flow."))
    require(request, flow)
    return flow


T = TypeVar("T")
_UNMASKED_FIELDS = ("id", "cursor", "url", "permission")
# A command that repeats a message would need its content.
_OMITTED_FIELDS = ("call",)


def masked(part: T) -> T:
    """A flow's `Page` or `Hit`, or a part of one, with its personal data masked.

    Flows do not mask. A field whose name ends with "body" is a content, every other text a sentence
    in which only telephone numbers and addresses are masked.
    """
    row: Any = part
    masked_values: dict[str, Any] = {}
    for field, value in msgspec.structs.asdict(row).items():
        if field.endswith("body") and isinstance(value, str):
            masked_values[field] = personal.mask_content(value)
        elif field in _OMITTED_FIELDS:
            masked_values[field] = None
        elif field not in _UNMASKED_FIELDS:
            masked_values[field] = _mask_value(value)
    for name in ("title", "why"):
        if text := masked_values.get(f"masked_{name}"):
            masked_values[name] = text
    return msgspec.structs.replace(row, **masked_values)  # type: ignore[no-any-return]


def as_seen(request: HttpRequest, parts: Iterable[T]) -> list[T]:
    """These parts as this person may see them."""
    return list(parts) if sees_personal(request) else [masked(part) for part in parts]


def _mask_value(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return masked(value)
    # Links that a flow has made stay: they name a row, and would not lead there when masked.
    if isinstance(value, str) and not isinstance(value, SafeString):
        return personal.mask_sentence(value)
    if isinstance(value, Mapping):
        return {name: _mask_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_value(part) for part in value]
    return value
