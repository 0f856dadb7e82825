"""People, and rows of every flow with long names, for the tests of the console's pages.

Run inside an empty platform: `make(folder, password)` returns the ids of each flow by name.
"""

from pathlib import Path

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from gateway.models import SgipMo, SgipMt, SgipReport, SgipUserRpt, SmsAccount, SmsGateway
from msgplatform.core import alerts
from msgplatform.core.data import ids
from msgplatform.models import AuditLog, Biz, DayCounter, Preferences, Role
from tests.support import everything
from tests.support.long_texts import LONG_NAME, LONG_SLUG, LONG_TEXT

NUMBER = "8613800000456"
# Of gateways: no page may show them.
PASSWORDS = ("hush-ours", "hush-theirs")
# "3010099999:1121131500:4711" is a Report that belongs to no message.
_NODE, _TS, _SEQNO = 3010099999, 1121131500, 4711


def make(folder: Path, password: str) -> dict[str, dict[str, str]]:
    ids_by_flow = everything.make(folder)
    _people(password)
    AuditLog.objects.create(
        actor="x", action="system_changed", target="shop",
        detail={"changes": {"title": ["Shop", None]}},
    )  # fmt: skip
    return {**ids_by_flow, "sms": {name: str(id) for name, id in _sms().items()}}


def _people(password: str) -> None:
    """`admin` may do everything, `gateway-viewer` look at gateways, `guest` nothing; there is one
    person of each role, who has its name."""
    admin = User.objects.create_superuser("admin", password=password)
    Preferences.objects.create(user=admin, time_zone="Asia/Shanghai")  # a long name on each page
    User.objects.create_user("guest", password=password, is_staff=True)
    viewer = User.objects.create_user("gateway-viewer", password=password, is_staff=True)
    viewer.user_permissions.set(Permission.objects.filter(codename="view_smsgateway"))
    for role in Role.objects.select_related("group"):
        user = User.objects.create_user(role.name, password=password, is_staff=True)
        user.groups.add(role.group)


def _sms() -> dict[str, int]:
    now = timezone.now()
    biz = Biz.objects.create(name="clinic", title=LONG_NAME)
    account = SmsAccount.objects.create(
        biz=biz, name=LONG_SLUG, sp_number="10655003", corp_id="12345"
    )
    gateway = SmsGateway.objects.create(
        name=LONG_SLUG, host="smg." + "a-very-long-name." * 8 + "example.com", corp_id="12345",
        login_name="sp", login_password=PASSWORDS[0], smg_login_name="smg",
        smg_login_password=PASSWORDS[1],
    )  # fmt: skip
    mt, mo, report, user = ids.reserve(4).ids([0] * 4)
    SgipMt.objects.create(
        id=mt, biz_id=biz.pk, account_id=account.pk, gateway_id=gateway.pk, user_number=NUMBER,
        sp_number="1065500312345678", corp_id="12345", fee_type=1, fee_value="0", given_value="0",
        agent_flag=0, morelateto_mt_flag=2, priority=0, report_flag=1, text=LONG_TEXT, parts=15,
        message_coding=8, idempotency_key="k" * 128, reference="r" * 64, final="failed",
        error_code=25, accepted_at=now, submitted_at=now, responded_at=now, reported_at=now,
        archived_at=now,
    )  # fmt: skip
    SgipMo.objects.create(
        id=mo, biz_id=0, gateway_id=gateway.pk, user_number=NUMBER, sp_number="1" * 21, tp_pid=0,
        tp_udhi=0, message_coding=8, content=b"", text=LONG_TEXT, parts=15, missing=2,
        sequence=f"{_NODE}:{_TS}:1", received_at=now, archived_at=now,
    )  # fmt: skip
    SgipReport.objects.create(
        id=report, node=_NODE, ts=_TS, seqno=_SEQNO, user_number=NUMBER, state=2, error_code=200,
        received_at=now, archived_at=now,
    )  # fmt: skip
    SgipUserRpt.objects.create(
        id=user, gateway_id=gateway.pk, sp_number="1" * 21, user_number=NUMBER, user_condition=1,
        sequence=f"{_NODE}:{_TS}:2", received_at=now, archived_at=now,
    )  # fmt: skip
    for subject in (account.pk, -gateway.pk):
        for name in ("failed", "error 25", "error 200"):
            DayCounter.objects.create(
                day=timezone.localdate(), flow="sms", biz_id=biz.pk, subject=subject, name=name,
                value=123456789,
            )  # fmt: skip
    alerts.raise_alert("sms.archive", f"Message {mt} cannot be archived", "why", key="test")
    return {
        "gateway": gateway.pk, "account": account.pk, "mt": mt, "mo": mo, "report": report,
        "user": user,
    }  # fmt: skip
