"""Sandboxes of consumers in the console. A sandbox of a business system is a consumer, and the
subscription that joins the two."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _, gettext_noop

from msgplatform.core import personal
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import InvalidInput
from msgplatform.core.lazy_text import lazy_message
from msgplatform.core.sandbox import USUAL, Behaviour, Sandbox
from msgplatform.doors.admin import Select, audit, sees_personal
from msgplatform.doors.admin.fields import LinesField, item_check
from msgplatform.doors.admin.sandbox_pages import SandboxPages
from msgplatform.models import Biz
from notify import sandbox_receiver
from notify.admin.publish import PERMISSIONS
from notify.models import BizReceive, Receive
from notify.subscriptions import formats, limits, sandbox

# Four attempts in two minutes, so that a person who tests failures sees the retries.
SCHEDULE = [5, 30, 60]
IN_FLIGHT = 4


def sandboxes() -> list[BizReceive]:
    """The subscriptions of sandboxes, without discarded ones, by name."""
    rows = BizReceive.objects.select_related("biz", "receive").filter(
        receive__url__icontains=sandbox.HOST
    )
    rows = rows.exclude(status=BizReceive.Status.DISCARDED).order_by("biz__name", "receive__name")
    return [row for row in rows[:500] if sandbox.is_sandbox(row.receive.url)]


class MakeForm(forms.Form):
    system = forms.ModelChoiceField(
        Biz.objects.filter(enabled=True).order_by("name"),
        label=_("Business system"), widget=Select, empty_label=None,
        help_text=_("Its events come to the sandbox. Each system has one of its own."),
    )  # fmt: skip
    event_types = LinesField(
        label=_("Event types"),
        check=item_check(limits.event_types),
        help_text=_("Patterns: order.* or stock.empty. Empty: every event type."),
    )
    format = forms.ChoiceField(label=_("Format"), choices=formats.Format.choices, widget=Select)


class ConsumerSandboxes(SandboxPages):
    templates = "notify"
    list_name, page_name = "notify_sandboxes", "notify_bizreceive_sandbox"
    # Each status with the sender's reaction.
    answers = [
        ("", _("200: accepts it")),
        ("301", _("301: redirects, which senders do not follow")),
        ("400", _("400: refuses the message")),
        ("401", _("401: does not believe the signature")),
        ("404", _("404: nobody is at this address")),
        ("410", _("410: is gone, which disables the subscription")),
        ("429", _("429: wants fewer requests")),
        ("500", _("500: fails")),
        ("503", _("503: is down")),
    ]
    count_label = _("For so many requests")
    help_texts = {
        "delay": _("Seconds, 0 to 60. Longer than the subscription's timeout: no answer"),
        "retry_after": _("Seconds; empty: no such header"),
        "minutes": _("1 to 60, then it accepts again"),
    }
    make_form = MakeForm
    make_permissions = (
        "notify.add_receive", "notify.add_bizreceive", "notify.change_bizreceive",
    )  # fmt: skip
    view_permissions = ("notify.view_bizmsg",)
    answers_limited_people = True

    @transaction.atomic
    def make(self, request: HttpRequest, values: Mapping[str, Any]) -> BizReceive:
        """Make or change the subscription of the system's sandbox. Raises InvalidInput when another
        consumer has the name."""
        biz: Biz = values["system"]
        name = f"sandbox-{biz.name}"[:64]
        consumer, is_new = Receive.objects.get_or_create(
            name=name, defaults={"url": sandbox.URL, "title": f"Sandbox · {biz}"[:200]}
        )
        if not sandbox.is_sandbox(consumer.url):
            text = gettext_noop("A consumer %(name)s exists already, and is no sandbox.")
            raise InvalidInput(lazy_message(text, name=name), "system")
        if is_new:
            audit(request, "consumer_added", name)
        row, is_new = BizReceive.objects.get_or_create(
            biz=biz, receive=consumer, defaults={"schedule": SCHEDULE, "in_flight_limit": IN_FLIGHT}
        )
        row.event_types, row.format = list(values["event_types"]), values["format"]
        for field, value in {"status": BizReceive.Status.NORMAL, **BizReceive.RESUMED}.items():
            setattr(row, field, value)
        row.save()
        action = "subscription_added" if is_new else "subscription_changed"
        target, event_types = f"{row} #{row.pk}", row.event_types
        audit(request, action, target, event_types=event_types, format=row.format)
        return row

    def list_context(self, request: HttpRequest) -> Mapping[str, Any]:
        rows = []
        for row in sandboxes():
            try:
                arrivals = sandbox_receiver.arrivals(row.pk)
                behaviour = sandbox_receiver.store(row.pk).behaviour()
            except RedisError:
                rows.append({"row": row, "is_unavailable": True})
                continue
            rows.append({
                "row": row, "count": len(arrivals), "last": arrivals[0].at if arrivals else None,
                "is_usual": behaviour == USUAL, **self.describe(behaviour),
            })  # fmt: skip
        return {"rows": rows, "has_systems": Biz.objects.filter(enabled=True).exists()}

    def store(self, row: BizReceive) -> Sandbox | None:
        return sandbox_receiver.store(row.pk) if sandbox.is_sandbox(row.receive.url) else None

    def describe(self, behaviour: Behaviour) -> Mapping[str, Any]:
        return {"status": sandbox_receiver.status_of(behaviour)}

    def context(self, request: HttpRequest, row: BizReceive) -> Mapping[str, Any]:
        user: Any = request.user
        filters = {name: request.GET.get(name, "") for name in ("message", "event_type", "answer")}
        arrivals = sandbox_receiver.arrivals(row.pk)
        types = sorted({sandbox_receiver.event_type(arrival.call) for arrival in arrivals} - {""})
        shown_calls = []
        for arrival in sandbox_receiver.select(arrivals, filters):
            call, body, headers = arrival.call, arrival.call.body, dict(arrival.call.headers)
            # Personal data is masked like on a message's page.
            if not sees_personal(request):
                body = personal.mask_content(body)
                prefix = row.receive.header_prefix.lower()
                headers = {
                    name: text if name.lower().startswith(prefix) else personal.mask_sentence(text)
                    for name, text in headers.items()
                }
            shown_calls.append({
                "arrival": arrival, "body": body,
                "headers": "\n".join(f"{name}: {value}" for name, value in headers.items()),
                "event_type": sandbox_receiver.event_type(call), "is_accepted": call.status < 300,
                "page": call.message_id if call.message_id.isdecimal() else "",
            })  # fmt: skip
        return {
            "calls": shown_calls,
            "total": len(arrivals), "filters": filters, "types": types,
            "is_filtered": any(filters.values()),
            "may_publish": user.has_perms(PERMISSIONS),
        }  # fmt: skip
