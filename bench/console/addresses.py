"""Every page that the bench asks for: the side bar, lists, searches, messages, statistics, bulk
jobs, the API."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import Model
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from bench.console import crm, lists, sms
from bench.console.page import Page, address, local
from bench.feed import people
from crmsync.messages.fields import STATES
from crmsync.models import Crm, Lead, Operation, Policy, Record, RecoveryEntry, Run
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core import flows
from msgplatform.doors.api.access import keys
from msgplatform.doors.console.navigation import sidebar
from msgplatform.doors.console.statistics.form import PERIODS
from msgplatform.doors.console.views.overview import PERIODS as OVERVIEW_PERIODS
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, AuditLog, Biz
from notify.feed.models import EventQueue, Feed
from notify.models import BizMsg, BizReceive, IdempotencyKey, ReceiveMsg
from notify.models.cold import ColdBizMsg

_MISS = "no-such-thing"


def every(user: Any) -> list[Page]:
    """The pages of the connected database, as this administrator sees them."""
    pages = [
        *_side_bar(user), *_console(), *_searches(), *_finds(), *_messages(), *_statistics(),
        *_bulk(), *_rows(), *lists.every(), *_api(),
    ]  # fmt: skip
    return list({page.name: page for page in pages}.values())


def _side_bar(user: Any) -> Iterator[Page]:
    request = RequestFactory().get("/")
    request.user = user
    for group in sidebar(request):
        for item in group["items"]:
            yield Page(str(item["title"]), item["link"])


def _console() -> Iterator[Page]:
    overview = reverse("console:overview")
    for period in OVERVIEW_PERIODS:
        yield Page(f"Overview of {period}", address(overview, period=period))
        yield Page(f"Overview of {period}, live", address(overview, period=period, live=1))
    yield Page("Preferences", reverse("console:preferences"))


def _searches() -> Iterator[Page]:
    """The box at the top, and the texts that the page asks for then."""
    key = IdempotencyKey.objects.order_by("id").values_list("key", flat=True)[500]
    for what, text in {
        "for nothing": _MISS, "for no number": "86131000000001", "for no id": str(2**62),
        "by key": key, "by event type": "order.shipped", "by number": sms.number(7),
        "by phone": crm.phone(7), "by author": "user-00000007", "by name": "王小明",
        "by id": BizMsg.objects.order_by("id").values_list("id", flat=True)[500],
        "by reference": "order-150",
    }.items():  # fmt: skip
        yield Page(f"Search {what}", address(reverse("console:search"), q=text))
    for flow in flows.all():
        if flow.messages.searched_text_label:
            yield Page(
                f"Texts of {flow.title}, none",
                address(reverse("console:texts", args=[flow.name]), q="no such text"),
            )
    yield Page("Texts of Notify", address(reverse("console:texts", args=["notify"]), q="1299"))


def _finds() -> Iterator[Page]:
    """Searches by field."""
    heavy, small = (Biz.objects.get(name=name) for name in ("system-0", "system-49"))
    account, light = SmsAccount.objects.order_by("id")[0], SmsAccount.objects.order_by("id")[9]
    subscription = BizReceive.objects.get(biz=heavy, status=BizReceive.Status.NORMAL)
    key = IdempotencyKey.objects.order_by("id").values_list("key", flat=True)[500]
    record = Record.objects.order_by("id")[100]
    since, until = (local(timezone.now() - timedelta(days=days)) for days in (4, 3))
    day = {"since": since, "until": until}
    of_flow: dict[str, dict[str, dict[str, Any]]] = {
        "notify": {
            "a system": {"biz": heavy.pk}, "a system, older": {"biz": heavy.pk, "until": until},
            "a small system": {"biz": small.pk}, "a day": day,
            "an event type": {"event_type": "order.shipped"}, "older": {"until": until},
            "a system and an event type": {"biz": heavy.pk, "event_type": "order.returned"},
            "a subscription": {"subscription": subscription.pk},
            "a subscription, exhausted":
                {"subscription": subscription.pk, "status": "exhausted"},
            "a subscription, older": {"subscription": subscription.pk, "until": until},
            **{status.name.lower(): {"status": status.name.lower()}
               for status in ReceiveMsg.Status},
            "a system, held": {"biz": heavy.pk, "status": "held"},
            "a key": {"key": key}, "no key": {"key": _MISS},
            "a text": {"biz": heavy.pk, "text": "no such text"},
        },
        "sms": {
            "a number": {"number": sms.number(7)}, "a system": {"biz": heavy.pk},
            **{final: {"state": final} for final in SgipMt.Final.values},
            "delivered, older": {"state": "delivered", "until": until},
            "an account": {"account": account.name}, "a small account": {"account": light.name},
            "a small account, delivered": {"account": light.name, "state": "delivered"},
            "an account, older": {"account": account.name, "until": until},
            "an account, failed": {"account": account.name, "state": "failed"},
            "a reference": {"reference": _MISS}, "a key": {"key": _MISS},
        },
        "crmsync": {
            **{state: {"state": state} for state in STATES},
            "a phone": {"phone": crm.phone(7)}, "a name": {"name": "王"}, "a CRM": {"crm": "sales"},
            "a CRM, dead": {"crm": "sales", "state": "dead"},
            "a CRM, older": {"crm": "sales", "until": until}, "a day": day,
            "a policy": {"policy": record.policy_id}, "a record": {"record_key": record.key},
            "deleted": {"deleted": "true"}, "not deleted": {"deleted": "false"},
            "a system, deleted": {"biz": heavy.pk, "deleted": "true"},
            "a system, older": {"biz": heavy.pk, "until": until},
            "a system": {"biz": heavy.pk}, "a landing page": {"appkey": crm.APPKEY},
            "refused": {"error_class": "invalid"}, "throttled": {"error_class": "throttled"},
            "nothing": {"uid": _MISS},
            "a system, dead": {"biz": heavy.pk, "state": "dead"},
        },
        "feed": {
            "an author": {"user": "user-00000007"}, "set aside": {"state": "set_aside"},
            "handled": {"state": "handled"}, "deleted": {"state": "deleted"},
            "a kind": {"kind": "note"}, "a topic": {"topic": "vip"}, "a day": day,
            "a system": {"biz": people.biz()}, "another topic": {"topic": "friend"},
        },
    }  # fmt: skip
    for name, asked in of_flow.items():
        path = reverse("console:find", args=[name])
        yield Page(f"Find in {name}", path)
        for what, query in asked.items():
            yield Page(f"Find in {name}: {what}", address(path, **query))


def _messages() -> Iterator[Page]:
    """The page of one message of each flow."""
    exhausted = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.EXHAUSTED).order_by("id")
    dead = Record.objects.filter(state=Record.State.DEAD).order_by("id")
    for what, flow, found in (
        ("Notify", "notify", BizMsg.objects.order_by("id").values_list("id", flat=True)[500]),
        ("Notify, archived", "notify",
         ColdBizMsg.objects.order_by("id").values_list("id", flat=True)[500]),
        ("Notify, exhausted", "notify", exhausted.values_list("msg_id", flat=True)[0]),
        ("SMS", "sms", SgipMt.objects.order_by("id").values_list("id", flat=True)[100]),
        ("CRM sync", "crmsync", Lead.objects.order_by("id").values_list("id", flat=True)[100]),
        ("CRM sync, dead", "crmsync", dead.values_list("key", flat=True)[0]),
        ("Feed", "feed", Feed.objects.order_by("id").values_list("id", flat=True)[10]),
    ):  # fmt: skip
        yield Page(f"Message of {what}", reverse("console:message", args=[flow, found]))


def _statistics() -> Iterator[Page]:
    path = reverse("console:statistics")
    subscription = BizReceive.objects.filter(status=BizReceive.Status.NORMAL).order_by("id")[0]
    for period in PERIODS:
        yield Page(f"Statistics of {period}", address(path, period=period))
        for flow in flows.all():
            if flow.health.activity:
                name = f"Statistics of {flow.title} of {period}"
                yield Page(name, address(path, period=period, flow=flow.name))
    narrow = {"flow": "notify", "subscription": subscription.pk}
    asked: dict[str, dict[str, Any]] = {
        "a subscription, 24h": narrow, "a subscription, 7d by hour":
            {**narrow, "period": "7d", "step": "hour"},
        "a system, 24h": {"flow": "notify", "system": subscription.biz_id},
        "Notify by minute, 24h": {"flow": "notify", "step": "minute"},
        "Notify by hour, 7d": {"flow": "notify", "step": "hour", "period": "7d"},
    }  # fmt: skip
    for what, query in asked.items():
        yield Page(f"Statistics of {what}", address(path, **query))


def _bulk() -> Iterator[Page]:
    """The forms, and the previews that Failures leads to."""
    heavy, gateway = Biz.objects.get(name="system-0"), SmsGateway.objects.order_by("id")[0]
    subscription = BizReceive.objects.get(biz=heavy, status=BizReceive.Status.NORMAL)
    since = local(timezone.now() - timedelta(days=5))
    for name, action, query in (
        ("notify", "resend", {"subscription": subscription.pk, "status": "exhausted",
                               "answer": "HTTP 503"}),
        ("notify", "replay", {"subscription": subscription.pk, "since": since}),
        ("notify", "replay_failed", {"since": since}),
        ("notify", "backfill", {"biz": heavy.pk, "since": since}),
        ("sms", "resend", {"gateway": gateway.pk, "answer": "result 5", "since": since}),
        ("crmsync", "resend", {"crm": "sales", "error_class": "invalid"}),
        ("crmsync", "replay", {"crm": "sales"}),
        ("feed", "resend", {"topic": "friend", "answer": "ValueError"}),
    ):  # fmt: skip
        path = reverse("console:bulk-flow", args=[name])
        yield Page(f"Bulk {name} {action}", address(path, action=action))
        preview = address(path, action=action, count=1, **query)
        yield Page(f"Bulk {name} {action}, preview", preview)
    job = BulkJob.objects.order_by("id")[0]
    yield Page("Bulk job", reverse("console:job", args=[job.pk]))


def _rows() -> Iterator[Page]:
    """The page of one row of each table that has some."""
    heavy = Biz.objects.get(name="system-0")
    subscriptions = BizReceive.objects.filter(biz=heavy).order_by("id")
    rows: list[Model | None] = [
        heavy, subscriptions.first(), Alert.objects.order_by("id").last(),
        AuditLog.objects.order_by("id").first(), SmsAccount.objects.first(),
        SmsGateway.objects.first(), Crm.objects.first(),
        Policy.objects.first(), Run.objects.order_by("id").first(),
        Operation.objects.order_by("id").first(), RecoveryEntry.objects.order_by("id").first(),
        EventQueue.objects.order_by("qid").first(),
    ]  # fmt: skip
    for row in rows:
        assert row is not None
        meta = row._meta
        path = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
        yield Page(f"Row of {meta.verbose_name_plural}", path)
    users = reverse("admin:feed_users")
    user = {"system": people.BIZ, "uid": "user-00000007"}
    yield Page("Row of users", address(users, **user))


def _api() -> Iterator[Page]:
    """Lists of the API, one object of each, and what monitoring asks for."""
    heavy, feed = Biz.objects.get(name="system-0"), Biz.objects.get(name=people.BIZ)
    system = keys.create(heavy, "pages", sorted(keys.scopes()))[1]
    readers = keys.create(feed, "pages", sorted(keys.scopes()))[1]
    light = keys.create(Biz.objects.get(name="system-5"), "pages", sorted(keys.scopes()))[1]
    management = keys.create(None, "pages", sorted(keys.management_scopes()))[1]
    until = (timezone.now() - timedelta(days=3)).isoformat()
    message, archived, text, lead = (
        model._default_manager.filter(biz_id=heavy.pk).order_by("id").values_list("pk")[50][0]
        for model in (BizMsg, ColdBizMsg, SgipMt, Lead)
    )
    timeline = "feed/timelines/user-00000007"
    for path, query, token in (
        ("messages", {}, system), ("messages", {"event_type": "order.returned"}, system),
        ("messages", {"until": until}, system), (f"messages/{message}", {}, system),
        (f"messages/{archived}", {"expand": "payload"}, system),
        ("sms", {}, system), ("sms", {"until": until}, system),
        ("sms", {"state": "failed"}, system), ("sms", {"number": sms.number(7)}, system),
        (f"sms/{text}", {}, system),
        ("sms", {"account": f"{heavy.name}-sms"}, system), ("sms/incoming", {}, system),
        ("leads", {}, system), ("leads", {"until": until}, system),
        ("leads/changes", {"since": until}, system),
        ("leads", {"deleted": "true"}, system), ("leads", {"appkey": crm.APPKEY}, system),
        (f"leads/{lead}", {}, system), (f"leads/{lead}/crms", {}, system),
        ("sync/policies", {}, system), ("sync/runs", {}, system),
        ("feed/posts", {"uid": "user-00000007"}, readers), (timeline, {}, readers),
        (f"{timeline}/unread", {}, readers),
        ("feed/relations", {"uid": "user-00000007", "relation": "friend"}, readers),
        ("messages", {}, light), ("sms", {}, light), ("leads", {}, light),
        ("leads", {"deleted": "true"}, light), ("systems", {}, management),
        ("consumers", {}, management), ("subscriptions", {}, management), ("jobs", {}, management),
        ("statistics", {"flow": "notify"}, management),
        ("statistics", {"flow": "notify", "step": "minute"}, management),
    ):  # fmt: skip
        name = " ".join(part if not part.isdigit() else "of one" for part in path.split("/"))
        small = ["a small system"] if token == light else []
        said = ", ".join([f"API: {name}", *small, *sorted(query)])
        yield Page(said, address(f"/api/v1/{path}", **query), token)
    for path in ("/metrics", "/healthz", "/readyz"):
        yield Page(path, path)
