"""One of everything in every flow, with personal data that a walk through the console can find."""

import json
import secrets
from collections.abc import Iterable
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from gateway.models import SgipMo, SgipMt, SgipReport, SgipUserRpt
from msgplatform.company.alerting.models import AlertChannel, AlertMessage, AlertRule
from msgplatform.core import alerts
from msgplatform.core.data import ids, sql
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, ApiKey, AuditLog, Biz
from msgplatform.monitor import failure_store
from notify.maker.maker import Maker
from notify.models import Attempt, ReceiveMsg
from tests.support import crm_rows, feed_rows, notify_rows, sms_rows

NUMBER = "8613800000123"
TEXT = "Your code is on the back of the card"
CARD = "4111 1111 1111 1111"
ANSWER = "no such customer: Ann Lee"
POST = "Good morning"
# What people see who may, on some page; others see it nowhere.
PERSONAL = (NUMBER, TEXT, CARD, ANSWER, POST, crm_rows.PHONE, crm_rows.EMAIL)
# What an operator meets on the way from these pages.
OF_OPERATORS = {NUMBER, TEXT, CARD, ANSWER, POST}
ENTRANCES = ("/console/", f"/console/search?q={NUMBER}", "/console/search/sms?state=failed")


def personal_data(seen: Iterable[tuple[str, str]]) -> set[str]:
    """Which of PERSONAL is shown on these pages, each an address and its text."""
    return {
        each
        for address, text in seen
        for each in PERSONAL
        if each in text and each not in address  # what was asked for stands in the search box
    }


def make(folder: Path) -> dict[str, dict[str, str]]:
    """Rows of all flows; the ids of Feed's and of CRM sync's by name. Needs both Redis servers."""
    biz = Biz.objects.create(name="shop")
    ApiKey.objects.create(biz=biz, name="till", prefix="till", hash=secrets.token_hex(16))
    _notify(biz)
    _sms(biz)
    ids_by_flow = {"feed": json.loads(feed_rows.make()), "crm": crm_rows.make(str(folder))}
    BulkJob.objects.create(
        flow="sms", action="resend", created_by="somebody", state=BulkJob.State.PAUSED,
        filter={"number": NUMBER}, total=1_000_000, done=250_000,
    )  # fmt: skip
    AuditLog.objects.create(
        actor="somebody", action="bulk_resend", target="sms #1", detail={"filter": NUMBER}
    )
    alerts.raise_alert("tests", "Something is wrong", "Look at it.", "tests:1")
    _alert_message()
    return ids_by_flow


def _alert_message() -> None:
    """A message that did not reach a chat."""
    channel = AlertChannel.objects.create(
        name="chat", url="dingtalk://SECabc@a1b2/", shown="DingTalk dingtalk://… · 1a2b3c4d",
        failing_since=timezone.now(), failures_in_row=2,
        last_error="errcode 310000: sign not match",
    )  # fmt: skip
    rule = AlertRule.objects.create(name="all", kinds=["sms.*"])
    rule.channels.add(channel)
    message = AlertMessage.objects.create(
        channel=channel, rule=rule, state="failed", due_at=timezone.now(), attempts=2,
        error="errcode 310000: sign not match", title="msgplatform: [critical] Something is wrong",
        text="[critical] Something is wrong\nLook at it.",
    )  # fmt: skip
    alert = Alert.objects.get(open_key="tests:1")
    message.notices.create(channel=channel, alert=alert, event="opened")


def _notify(biz: Biz) -> None:
    """A failed delivery, and what its consumer said."""
    notify_rows.subscription(biz)
    notify_rows.publish(biz, payload=b'{"card":"%b"}' % CARD.encode())
    Maker().splitter.split()
    delivery = ReceiveMsg.objects.get()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED, send_times=1, http_status=404)
    Attempt.objects.create(
        id=ids.reserve(1).ids([0])[0], copy=delivery, claim="0" * 32, number=1, at=sql.now(),
        seconds=0.1, http_status=404, response_body=ANSWER,
    )  # fmt: skip
    lost = failure_store.Loss(delivery.biz_receive_id, "HTTP 404", delivery.pk, ANSWER)
    with transaction.atomic():
        failure_store.add("notify", [lost], sql.now())


def _sms(biz: Biz) -> None:
    """A message that failed, an MO, a Report, and a change of a user."""
    gateway, account = sms_rows.gateway(), sms_rows.account(biz)
    now = timezone.now()
    mt, mo, report, user = ids.reserve(4).ids([0] * 4)
    SgipMt.objects.create(
        id=mt, biz_id=biz.pk, account_id=account.pk, gateway_id=gateway.pk, user_number=NUMBER,
        sp_number="10655", corp_id="12345", fee_type=1, fee_value="0", given_value="0",
        agent_flag=0, morelateto_mt_flag=2, priority=0, report_flag=1, text=TEXT, parts=1,
        message_coding=8, final="failed", error_code=25, accepted_at=now, ended_at=now,
        archived_at=now,
    )  # fmt: skip
    SgipMo.objects.create(
        id=mo, biz_id=biz.pk, gateway_id=gateway.pk, user_number=NUMBER, sp_number="10655",
        tp_pid=0, tp_udhi=0, message_coding=8, content=b"", text=TEXT, parts=1, missing=0,
        sequence="3010099999:1121131500:1", received_at=now, archived_at=now,
    )  # fmt: skip
    SgipReport.objects.create(
        id=report, mt_id=mt, user_number=NUMBER, node=1, ts=1, seqno=1, state=2,
        error_code=25, received_at=now, archived_at=now,
    )  # fmt: skip
    SgipUserRpt.objects.create(
        id=user, gateway_id=gateway.pk, user_number=NUMBER, sp_number="10655", user_condition=0,
        sequence="3010099999:1121131500:2", received_at=now, archived_at=now,
    )  # fmt: skip
