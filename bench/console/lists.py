"""The lists of the admin: each filter alone, some together, searches that find and that do not."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils import timezone

from bench.console import sms
from bench.console.page import Page, address, local
from bench.feed import people
from crmsync.models import Crm, ExceptionEntry, Operation, Policy, Record, RecoveryEntry, Run
from gateway.models import SgipMo, SgipMt, SgipReport, SgipUserRpt, SmsAccount
from msgplatform.doors.admin.rows import BoundedPaginator
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, ApiKey, AuditLog, Biz
from notify.feed.models import EventQueue
from notify.models import BizReceive

_MISS = {"for nothing": {"q": "no-such-thing"}}
# What is asked of a list, and the parameters of its address.
Asked = Mapping[str, Mapping[str, Any]]


def every() -> Iterator[Page]:
    """The lists of the connected database."""
    for model, asked in {**_notify(), **_sms(), **_crm(), **_feed(), **_platform()}.items():
        meta = model._meta
        path = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
        for what, query in asked.items():
            yield Page(f"{meta.verbose_name_plural}: {what}", address(path, **query))


def _between(name: str) -> dict[str, dict[str, str]]:
    """A day, three days ago."""
    now = timezone.now()
    since, until = (local(now - timedelta(days=days)) for days in (4, 3))
    return {"of a day": {f"{name}_since": since, f"{name}_until": until}}


def _last(model: type[Model]) -> dict[str, dict[str, Any]]:
    """The last page that the list has."""
    count = min(BoundedPaginator.MAX_COUNT, model._default_manager.count())
    return {"last page": {"p": -(-count // 50)}}


def _notify() -> dict[type[Model], Asked]:
    heavy = Biz.objects.get(name="system-0")
    return {
        BizReceive: {"by name": {"q": "system-7"}, "normal": {"status__exact": 0},
                     "of a system": {"biz__id__exact": heavy.pk}, "in need": {"attention": "yes"}},
    }  # fmt: skip


def _sms() -> dict[type[Model], Asked]:
    heavy = SmsAccount.objects.order_by("id")[0]
    message = SgipMt.objects.order_by("id")[100]
    return {
        SgipMo: {"of a system": {"owner": heavy.biz_id}, "of nobody": {"owner": 0},
                 "by number": {"q": sms.number(7)}, **_between("id"), **_MISS},
        SgipReport: {"that match nothing": {"matched": "no"}, "by id": {"q": message.pk},
                     **_between("id"), **_last(SgipReport)},
        SgipUserRpt: _between("id"),
    }  # fmt: skip


def _crm() -> dict[type[Model], Asked]:
    sales = Crm.objects.get(name="sales")
    policy, run = Policy.objects.get(crm=sales), Run.objects.order_by("id")[0]
    of_crm, of_policy = {"crm": sales.pk}, {"policy": policy.pk}
    key = Record.objects.order_by("id").values_list("key", flat=True)[100]
    return {
        Operation: {"of a CRM": of_crm, "of a policy": of_policy, "of a run": {"run": run.pk},
                    **_between("id")},
        Run: {"of a CRM": of_crm, "of changes": {"kind__exact": "changes"}},
        RecoveryEntry: {
            "solved": {"state": 2}, "every state": {"state": "all"}, "of a CRM": of_crm,
            "of a policy": of_policy, "refused": {"error": "invalid"},
            "of a CRM, every state": {**of_crm, "state": "all"},
            "every state, refused": {"state": "all", "error": "throttled"},
            **_between("created_at"), "by key": {"q": key}, **_MISS,
        },
        ExceptionEntry: {"of a CRM": of_crm, **_between("id"), **_MISS},
    }  # fmt: skip


def _feed() -> dict[type[Model], Asked]:
    system, author = {"biz__id__exact": people.biz()}, {"q": "user-00000007"}
    return {
        EventQueue: {
            "handled": {"status__exact": 1}, "set aside": {"status__exact": 3},
            "for friends, handled": {"topic__exact": "friend", "status__exact": 1},
            "of a system": system, "posts": {"kind__exact": "post"}, "old": {"age": "1d"},
            "by user": author, **_between("qid"), **_MISS,
        },
    }  # fmt: skip


def _platform() -> dict[type[Model], Asked]:
    return {
        AuditLog: {"of an action": {"action": "system_changed"}, "by target": {"q": "system-7"},
                   "of no action": {"action": "no-such-action"}, **_last(AuditLog), **_MISS},
        Alert: {"open": {"state": "open"}, "resolved": {"state": "resolved"},
                "of a kind": {"kind": "platform.backlog"}},
        BulkJob: {"done": {"state__exact": "done"}, "of a flow": {"flow": "notify"}},
        ApiKey: {"of a system": {"biz__id__exact": Biz.objects.get(name="system-0").pk}},
        Biz: {"by name": {"q": "system-7"}},
    }  # fmt: skip
