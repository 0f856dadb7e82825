"""Two business systems with one of everything: the own one of a limited person, and a foreign one
whose words and ids may be in no answer to that person."""

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import CharField, F, Value
from django.db.models.functions import Concat
from django.utils import timezone

from crmsync.models import LandingPage
from gateway.models import SgipMo, SgipMt, SmsAccount, SmsGateway
from msgplatform.core import alerts
from msgplatform.core.data import ids, sql
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, ApiKey, AuditLog, Biz, MinuteCounter, SavedFilter
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from notify.feed.models import Feed
from notify.models import Attempt, BizMsg, EventType, Receive, ReceiveMsg
from tests.support import crm_rows, everything, feed_rows, notify_rows, sms_rows
from tests.support.notify_turns import Maker

OWN, ZEBRA = "orders", "zebra"
OWN_PHONE = "13700000001"
SECRET_WORD = f"{ZEBRA}-payload"


@dataclass
class System:
    """The ids of a business system's rows by what they are."""

    biz: Biz
    rows: dict[str, int] = field(default_factory=dict)


def make(folder: Path) -> tuple[System, System]:
    """The own system and the foreign one. Beside them is one of everything that belongs to the
    platform, or to others, and all of it has ZEBRA in its names."""
    everything.make(folder)
    _rename()
    foreign, own = _system(ZEBRA, f"{SECRET_WORD}"), _system(OWN, "own-payload")
    User.objects.create_user(f"{ZEBRA}-person")
    boss = User.objects.create_superuser(f"{ZEBRA}-boss")
    for page, flow in (("search", "notify"), ("resend", "notify"), ("search", "sms")):
        SavedFilter.objects.create(
            owner=boss, flow=flow, page=page, name=f"{ZEBRA} {page}", shared=True,
            query={"biz": ZEBRA},
        )  # fmt: skip
    AuditLog.objects.create(actor=f"{ZEBRA}-boss", action="system_changed", target=ZEBRA)
    return own, foreign


def _rename() -> None:
    """Put ZEBRA into the names of what `everything` has made, but for gateways and CRMs: they carry
    the messages of all systems."""
    for model, *names in (
        (Biz, "name", "title"), (Receive, "name", "title", "url"), (SmsAccount, "name"),
        (LandingPage, "appkey", "title"), (ApiKey, "name"), (Alert, "subject", "text"),
        (BulkJob, "created_by"),
    ):  # fmt: skip
        changes: dict[str, Any] = {
            name: Concat(Value(f"{ZEBRA}-"), F(name), output_field=CharField()) for name in names
        }
        rows: Any = model._default_manager.all()
        if model is Receive:
            changes["url"] = Value(f"https://{ZEBRA}.example/hook")
        rows.update(**changes)
    Alert.objects.update(said={})


def _system(name: str, word: str) -> System:
    biz = Biz.objects.create(name=name, title=f"The {name}")
    system = System(biz)
    put = system.rows.__setitem__
    put("biz", biz.pk)
    key = ApiKey.objects.create(
        biz=biz, name=f"{name}-key", prefix=f"{name}key", hash=secrets.token_hex(16),
        scopes=["events:write"],
    )  # fmt: skip
    put("key", key.pk)
    _notify(system, word)
    _sms(system, word)
    put("post", feed_rows.post(biz, f"{name}-author", data=word))
    put("set_aside", feed_rows.set_aside(biz, f"{name}-author", data=word))
    _leads(system, word)
    for flow, action, filter in (
        ("notify", "resend", {"biz": name}), ("sms", "resend", {"biz": name, "since": word}),
    ):  # fmt: skip
        job = BulkJob.objects.create(
            flow=flow, action=action, created_by=f"{name}-person", filter=filter, biz_id=biz.pk,
            state=BulkJob.State.PAUSED, total=3, done=1, error=f"waits for {name}",
        )  # fmt: skip
        put(f"job_{flow}", job.pk)
    now = sql.now()
    for counters in ("notify", "sms", "crmsync", "feed"):
        MinuteCounter.add(counters, {(biz.pk, 0, f"{name}_counter"): 1}, now)
    subscription = system.rows["subscription"]
    counts = {
        (biz.pk, subscription, "delivered"): 7000 + biz.pk,
        (biz.pk, subscription, "exhausted"): 3,
    }
    MinuteCounter.add("notify", counts, now)
    return system


def _notify(system: System, word: str) -> None:
    biz, name, put = system.biz, system.biz.name, system.rows.__setitem__
    row = notify_rows.subscription(biz, f"{name}-hook")
    Receive.objects.filter(pk=row.receive_id).update(
        title=f"Hook of {name}", url=f"https://{name}.example/hook?token={name}-token"
    )
    put("subscription", row.pk)
    put("consumer", row.receive_id)
    entry = EventType.objects.create(biz=biz, name=f"{name}.paid", description=f"of {name}")
    put("event_type", entry.pk)
    notify_rows.publish(
        biz, 2, payload=json.dumps({"word": word}).encode(), event_type=f"{name}.paid"
    )
    Maker().turn()
    messages = BizMsg.objects.filter(biz=biz).order_by("id")
    deliveries = list(ReceiveMsg.objects.filter(biz=biz).order_by("id"))
    put("message", messages[0].pk)
    put("delivery", deliveries[0].pk)
    failed = ReceiveMsg.objects.filter(pk=deliveries[0].pk)
    failed.update(status=ReceiveMsg.Status.EXHAUSTED, send_times=1, http_status=503)
    Attempt.objects.create(
        id=ids.reserve(1).ids([0])[0], copy=deliveries[0], claim="0" * 32, number=1, at=sql.now(),
        seconds=0.1, http_status=503, response_body=f"answer to {word}",
    )  # fmt: skip
    lost = Loss(row.pk, "HTTP 503", deliveries[0].pk, f"answer to {word}")
    with transaction.atomic():
        failure_store.add("notify", [lost], sql.now())
    alerts.raise_alert(
        "notify.subscription", f"{name} is failing", f"the answer was {word}",
        f"notify.subscription:{row.pk}",
    )  # fmt: skip
    put("alert", Alert.objects.latest("id").pk)


def _sms(system: System, word: str) -> None:
    biz, name = system.biz, system.biz.name
    gateway = SmsGateway.objects.first() or sms_rows.gateway(f"{ZEBRA}-gateway")
    account = sms_rows.account(biz, f"{name}-sms")
    system.rows["account"] = account.pk
    now = timezone.now()
    mt, mo = ids.reserve(2).ids([0, 0])
    SgipMt.objects.create(
        id=mt, biz_id=biz.pk, account_id=account.pk, gateway_id=gateway.pk,
        user_number=f"86{OWN_PHONE}" if name == OWN else everything.NUMBER, sp_number="10655",
        corp_id="12345", fee_type=1, fee_value="0", given_value="0", agent_flag=0,
        morelateto_mt_flag=2, priority=0, report_flag=1, text=word, parts=1, message_coding=8,
        final="failed", error_code=25, accepted_at=now, ended_at=now, archived_at=now,
    )  # fmt: skip
    SgipMo.objects.create(
        id=mo, biz_id=biz.pk, account_id=account.pk, gateway_id=gateway.pk,
        user_number=f"86{OWN_PHONE}", sp_number="10655", tp_pid=0, tp_udhi=0,
        message_coding=8, content=b"", text=word, parts=1,
        missing=0, sequence="3010099999:1121131500:9", received_at=now, archived_at=now,
    )  # fmt: skip
    system.rows |= {"sms": mt, "mo": mo}


def _leads(system: System, word: str) -> None:
    biz, name = system.biz, system.biz.name
    page = LandingPage.objects.create(appkey=f"{name}-page", biz=biz, title=f"Page of {name}")
    lead = crm_rows.lead(
        biz,
        appkey=page.appkey,
        name=f"{word} lead",
        phone=OWN_PHONE,
        extra={"email": f"{word}@x.example"},
    )
    crm = crm_rows.sql_crm(f"crm-of-{name}", "sqlite:///nowhere.db")
    policy = crm_rows.policy(crm, biz=biz)
    run = crm_rows.run(policy)
    entry = crm_rows.dead(policy, str(lead.pk), {"name": word}, reason=f"no {word}")
    system.rows |= {
        "landing_page": page.pk, "lead": lead.pk, "crm": crm.pk, "policy": policy.pk,
        "recovery": entry.pk, "run": run.pk,
    }  # fmt: skip


def foreign_needles(own: System) -> set[str]:
    """Texts that no answer to the person of the own system may have: the names, words and long ids
    of all others."""
    needles = {ZEBRA, *everything.PERSONAL}
    for model in apps.get_models():
        if not model._meta.managed or not isinstance(model._meta.pk, models.BigIntegerField):
            continue
        names = {each.name for each in model._meta.concrete_fields}
        if model in (BizMsg, ReceiveMsg, SgipMt, SgipMo, Feed) or "biz" in names:
            rows = model._base_manager.exclude(biz_id=own.biz.pk)
            needles |= {str(pk) for pk in rows.values_list("pk", flat=True) if pk > 10**9}
    return needles
