"""Sandboxes in the console: the list with the form that makes one, and the page of one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import ModelAdmin, Select, audit, sandbox_form, sees_personal
from msgplatform.admin.fields import LinesField, each
from msgplatform.core import personal, sandbox
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import Conflict
from msgplatform.core.lazy_text import translated
from msgplatform.core.sandbox import Behaviour
from msgplatform.models import Biz
from msgplatform.person_limits import answers_limited_people
from notify.admin import publish
from notify.models import BizReceive
from notify.sandbox import calls, setup
from notify.sandbox.receiver import status_of
from notify.subscriptions import formats, limits
from notify.subscriptions import sandbox as own

REFRESH_SECONDS = 3
_MAKE = ("notify.add_receive", "notify.add_bizreceive", "notify.change_bizreceive")
# Each with what a sender makes of it.
ANSWERS = [
    ("200", _("200: accepts it")),
    ("301", _("301: redirects, which senders do not follow")),
    ("400", _("400: refuses the message")),
    ("401", _("401: does not believe the signature")),
    ("404", _("404: nobody is at this address")),
    ("410", _("410: is gone, which disables the subscription")),
    ("429", _("429: wants fewer requests")),
    ("500", _("500: fails")),
    ("503", _("503: is down")),
]


class MakeForm(forms.Form):
    """A sandbox for a system."""

    system = forms.ModelChoiceField(
        Biz.objects.none(), label=_("Business system"), widget=Select, empty_label=None,
        help_text=_("Its events come to the sandbox. Each system has one of its own."),
    )  # fmt: skip
    event_types = LinesField(
        label=_("Event types"),
        check=each(limits.event_types),
        help_text=_("Patterns, one a line: order.* or stock.empty. Empty: every event type"),
    )
    format = forms.ChoiceField(label=_("Format"), choices=formats.Format.choices, widget=Select)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice: Any = self.fields["system"]
        choice.queryset = Biz.objects.filter(enabled=True).order_by("name")


class BehaviourForm(sandbox_form.BehaviourForm):
    """How the sandbox answers, and for how long."""

    answer = forms.ChoiceField(label=_("Answer"), choices=ANSWERS, widget=Select)
    labels = {"count": _("For so many requests")}
    help_texts = {
        "delay": _("Seconds, 0 to 60. Longer than the subscription's timeout: no answer"),
        "retry_after": _("Seconds; empty: no such header"),
        "minutes": _("1 to 60, then it accepts again"),
    }

    def behaviour(self) -> Behaviour:
        """The behaviour that was filled in."""
        values = self.cleaned_data
        status = "" if values["answer"] == "200" else values["answer"]
        delay, retry_after = values["delay"] or 0.0, values["retry_after"] or 0
        if not (status or delay or retry_after):
            return sandbox.USUAL
        return Behaviour(status, delay, retry_after, count=values["count"])


def list_page(model_admin: ModelAdmin) -> Callable[[HttpRequest], HttpResponse]:
    """The page of all sandboxes; a POST makes one and leads to it."""

    def view(request: HttpRequest) -> HttpResponse:
        if not model_admin.has_view_permission(request):
            raise PermissionDenied
        user: Any = request.user
        may_make = user.has_perms(_MAKE) and sandbox.is_on()
        form = MakeForm(request.POST or None, initial={"system": request.GET.get("system", "")})
        if request.method == "POST" and not may_make:
            raise PermissionDenied
        if form.is_valid():
            values = form.cleaned_data
            try:
                row = setup.make(
                    values["system"], values["event_types"], values["format"],
                    partial(audit, request),
                )  # fmt: skip
            except Conflict as error:
                form.add_error("system", translated(error.args[0]))
            else:
                return redirect("admin:notify_bizreceive_sandbox", row.pk)
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Sandbox"), "opts": model_admin.opts, "form": form,
            "rows": [_listed(row) for row in setup.sandboxes()], "may_make": may_make,
            "has_systems": Biz.objects.filter(enabled=True).exists(), "is_on": sandbox.is_on(),
        }  # fmt: skip
        return TemplateResponse(request, "notify/sandboxes.html", context)

    return view


def _listed(row: BizReceive) -> dict[str, Any]:
    try:
        arrivals, behaviour = calls.arrivals(row.pk), own.store(row.pk).behaviour()
    except RedisError:
        return {"row": row, "is_unavailable": True}
    last = _moment(arrivals[0].at) if arrivals else None
    return {"row": row, "count": len(arrivals), "last": last, "behaviour": _shown(behaviour)}


def page(model_admin: ModelAdmin) -> Callable[[HttpRequest, int], HttpResponse]:
    """The page of one sandbox: what came, and how it answers."""

    @answers_limited_people
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        row = model_admin.get_queryset(request).filter(pk=pk).first()
        if row is None or not own.is_sandbox(row.receive.url):
            raise Http404(gettext("There is no such sandbox."))
        user: Any = request.user
        if not (
            model_admin.has_view_permission(request, row) and user.has_perm("notify.view_bizmsg")
        ):
            raise PermissionDenied
        may_operate = model_admin.has_operate_permission(request, row)
        form = BehaviourForm(request.POST if "answer" in request.POST else None)
        if request.method == "POST":
            if not may_operate:
                raise PermissionDenied
            if _change(request, row, form):
                return redirect(request.get_full_path())
        context = {
            **model_admin.admin_site.each_context(request),
            "title": gettext("Sandbox"), "opts": model_admin.opts, "row": row, "form": form,
            "may_operate": may_operate, "seconds": REFRESH_SECONDS, "is_on": sandbox.is_on(),
            "may_publish": user.has_perms(publish.PERMISSIONS),
            "keep_minutes": sandbox.KEEP_SECONDS // 60, "max_calls": sandbox.MAX_CALLS,
            **_content(request, row),
        }  # fmt: skip
        template = "sandbox_parts.html" if "live" in request.GET else "sandbox.html"
        response = TemplateResponse(request, f"notify/{template}", context)
        response["Cache-Control"] = "no-store"  # it shows messages' contents
        return response

    return view


def _change(request: HttpRequest, row: BizReceive, form: BehaviourForm) -> bool:
    target = f"{row} #{row.pk}"

    def record(behaviour: Behaviour) -> None:
        audit(request, "sandbox_behaviour", target, status=status_of(behaviour))

    store = own.store(row.pk)
    return sandbox_form.change(request, form, store, store.empty, target, record)


def _content(request: HttpRequest, row: BizReceive) -> dict[str, Any]:
    filters = {name: request.GET.get(name, "") for name in ("message", "event_type", "answer")}
    try:
        arrivals, behaviour = calls.arrivals(row.pk), own.store(row.pk).behaviour()
    except RedisError:
        return {"is_unavailable": True, "filters": filters}
    types = sorted({calls.event_type(each.call) for each in arrivals} - {""})
    return {
        "behaviour": _shown(behaviour),
        "calls": [_call(request, row, each) for each in calls.select(arrivals, filters)],
        "total": len(arrivals), "filters": filters, "types": types,
        "is_filtered": any(filters.values()),
    }  # fmt: skip


def _shown(behaviour: Behaviour) -> dict[str, Any]:
    return {
        "is_usual": behaviour == sandbox.USUAL,
        "status": status_of(behaviour),
        "delay": behaviour.delay,
        "count": behaviour.count,
        "until": _moment(behaviour.until) if behaviour.until else None,
    }


def _call(request: HttpRequest, row: BizReceive, arrival: calls.Arrival) -> dict[str, Any]:
    """A call as this person may see it: personal data is masked like on a message's page."""
    call, body, headers = arrival.call, arrival.call.body, dict(arrival.call.headers)
    if not sees_personal(request):
        body = personal.text(body)
        prefix = row.receive.header_prefix.lower()
        headers = {
            name: value if name.lower().startswith(prefix) else personal.in_sentence(value)
            for name, value in headers.items()
        }
    return {
        "arrival": arrival, "at": _moment(arrival.at), "body": body,
        "headers": "\n".join(f"{name}: {value}" for name, value in headers.items()),
        "event_type": calls.event_type(call), "is_accepted": call.status < 300,
        "id": f"{arrival.at:.6f}".replace(".", "-"),
        "page": call.message_id if call.message_id.isdecimal() else "",
    }  # fmt: skip


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
