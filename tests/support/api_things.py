"""Something to find at every address of the API, and keys that may do everything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from crmsync.models import Crm, LandingPage, Policy, Run, Source
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.company.alerting.models import AlertChannel, AlertRule
from msgplatform.company.person_data.models import Erasure
from msgplatform.core import alerts
from msgplatform.core.data import sql
from msgplatform.doors.api.access import keys
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, Biz, FailureGroup
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from notify import operations
from notify.models import BizMsg, BizReceive, EventType, Receive, ReceiveMsg
from notify.subscriptions import sandbox
from tests.support import crm_rows, everything, feed_rows, notify_rows

# As in the example of the document.
_APPKEY = "5f1c0a9be2d34786"


class Things:
    """Rows of every flow: those of the business system `shop`, whose key is used, and those that a
    management key manages. What may be deleted, or changed for good, is found by nothing else."""

    def __init__(self, folder: Path) -> None:
        everything.make(folder)
        shop, orders = (Biz.objects.get(name=name) for name in ("shop", "orders"))
        self._keys = {
            True: keys.create(None, "everything", keys.management_scopes())[1],
            False: keys.create(shop, "everything", keys.scopes())[1],
        }
        _managed(orders)
        self._ids = _owned(shop)

    def key(self, operation: Mapping[str, Any]) -> str:
        """For an operation, as the document describes it with its scope."""
        return self._keys["Scope: `manage:" in operation["description"]]

    @staticmethod
    def asked(method: str, path: str) -> Mapping[str, str]:
        """Query parameters that no caller can know by the document; an empty platform file removes
        nothing, so that the keys of further requests stay."""
        parameters = {"GET statistics": {"flow": "notify"}, "PUT platform": {"prune": "false"}}
        return parameters.get(f"{method} {path.rpartition('/')[2]}", {})

    @staticmethod
    def body(path: str) -> Mapping[str, str]:
        """Fields of a body that no caller can know by the document."""
        if not path.endswith("/rotate"):
            return {}
        return {"fingerprint": operations.secret_mark(Receive.objects.get(name="warehouse"))}

    def found(self, method: str, path: str) -> Mapping[str, str]:
        """The path parameters with which there is something at this address."""
        ids, spare = self._ids, method == "DELETE"
        name = "spare" if spare else "orders"
        by_address: dict[str, Mapping[str, str]] = {
            "alert-channels/{name}": {"name": "spare" if spare else "operators"},
            "alert-channels/{name}/tests": {"name": "operators"},
            "alert-rules/{name}": {"name": "spare" if spare else "night"},
            "alerts/{id}": {"id": ids["alert"]},
            "alerts/{id}/acknowledge": {"id": ids["alert"]},
            "alerts/{id}/resolve": {"id": ids["alert"]},
            "consumers/{name}": {"name": "unused" if spare else "warehouse"},
            "failures/{id}/acknowledge": {"id": ids["failure"]},
            "failures/{id}/resend": {"id": ids["resent failure"]},
            "event-types/{name}": {"name": "order.gone" if spare else "order.paid"},
            "feed/posts/{id}": {"id": ids["gone post" if spare else "post"]},
            "feed/timelines/{uid}": {"uid": "1001"},
            "feed/timelines/{uid}/read": {"uid": "1001"},
            "feed/timelines/{uid}/unread": {"uid": "1001"},
            "jobs/{id}": {"id": ids["cancel"]},
            "jobs/{id}/cancel": {"id": ids["cancel"]},
            "jobs/{id}/pause": {"id": ids["pause"]},
            "jobs/{id}/resume": {"id": ids["resume"]},
            "leads/{id}": {"id": ids["gone lead" if spare else "lead"]},
            "leads/{id}/crms": {"id": ids["lead"]},
            "messages/{id}": {"id": ids["message"]},
            "sms/{id}": {"id": ids["sms"]},
            "consumers/{name}/rotate": {"name": "warehouse"},
            "consumers/{consumer}/listen": {"consumer": "laptop"},
            "consumers/{consumer}/listen/{id}": {"consumer": "tablet", "id": ids["leased"]},
            "held/{system}/{consumer}/release": {"system": "orders", "consumer": "warehouse"},
            "held/{system}/{consumer}/skip": {"system": "orders", "consumer": "held"},
            "crms/{name}/tests": {"name": "sales"},
            "crms/{name}/sandbox": {"name": "sandbox"},
            "crms/{name}/tests/lead": {"name": "sales"},
            "sms/accounts/{name}/tests": {"name": "orders"},
            "subscriptions/{system}/{consumer}/tests": {"system": "orders", "consumer": "held"},
            "subscriptions/{system}/{consumer}/filter-trial": {
                "system": "orders", "consumer": "held",
            },
            "subscriptions/{system}/{consumer}/sandbox": {
                "system": "orders", "consumer": "sandbox",
            },
            "person-data/erasures/{key}": {"key": ids["erasure"]},
            "person-data/erasures/{key}/cancel": {"key": ids["cancelled erasure"]},
            "person-data/erasures/{key}/end": {"key": ids["ended erasure"]},
            "people/{name}": {"name": "unused" if spare else "anna"},
            "people/{name}/invite": {"name": "anna"},
            "people/{name}/limit": {"name": "anna"},
            "crms/{name}": {"name": "spare-crm"},
            "sources/{name}": {"name": "unused"},
            "policies/{source}/{crm}": {"source": "spare", "crm": "spare-crm"},
            "landing-pages/{appkey}": {"appkey": "spare-page"},
            "sms/accounts/{name}": {"name": "spare" if spare else "orders"},
            "sms/gateways/{name}": {"name": "spare" if spare else "north"},
            "subscriptions/{system}/{consumer}": {
                "system": "orders", "consumer": "spare" if spare else "warehouse",
            },
            "subscriptions/{system}/{consumer}/deliver": {
                "system": "orders", "consumer": "warehouse",
            },
            "sync/policies/{id}/runs": {"id": ids["policy"]},
            "sync/runs/{id}": {"id": ids["run"]},
            "systems/{name}": {"name": name},
            "systems/{system}/event-types/{name}": {
                "system": "orders", "name": "order.gone" if spare else "order.paid",
            },
            "systems/{system}/keys": {"system": "orders"},
            "systems/{system}/keys/{name}": {"system": "orders", "name": name},
        }  # fmt: skip
        return by_address[path.removeprefix("/api/v1/")] if "{" in path else {}


def _managed(orders: Biz) -> None:
    Biz.objects.create(name="spare")
    for name in ("anna", "unused"):
        User.objects.create_user(name)
    notify_rows.subscription(orders, "warehouse")
    notify_rows.subscription(orders, "spare")
    notify_rows.subscription(orders, "held", status=BizReceive.Status.PAUSED)
    Receive.objects.create(name="unused", url="https://unused.example/")
    Receive.objects.create(name="sandbox", url=sandbox.URL)
    notify_rows.subscription(orders, "sandbox")
    for name in ("order.paid", "order.gone"):
        EventType.objects.create(name=name)
        EventType.objects.create(biz=orders, name=name)
    for name in ("orders", "spare"):
        keys.create(orders, name, ["events:write"])
        SmsAccount.objects.create(name=name, biz=orders, sp_number="10655", corp_id="12345")
    for name in ("north", "spare"):
        SmsGateway.objects.create(
            name=name, host="203.0.113.7", corp_id="12345", login_password="a",
            smg_login_password="b",
        )  # fmt: skip
    for name in ("spare", "unused"):
        source = Source.objects.create(
            name=name, database="mysql://a:b@db.example/shop", table="customer",
            time_column="updated_at", version_column="version", value_columns=["name", "email"],
        )  # fmt: skip
        if name == "spare":
            crm = Crm.objects.create(name="spare-crm", adapter="hubspot")
            Policy.objects.create(source=source, crm=crm, mapping="email = email", sweep_cron="")
    for name in ("operators", "spare"):
        AlertChannel.objects.create(name=name, url="json://127.0.0.1:9/", shown="JSON")
    for name in ("night", "spare"):
        AlertRule.objects.create(name=name)
    Crm.objects.create(name="sandbox", adapter="sandbox")
    LandingPage.objects.create(appkey="spare-page", biz=orders, title="autumn")


def _open_alert() -> Alert:
    alerts.raise_alert("tests", "Something else is wrong", "Look at it.", "tests:2")
    return Alert.objects.get(open_key="tests:2")


def _failure(answer: str) -> FailureGroup:
    failure_store.add("notify", [Loss(1, answer, 1, "no room")] * 1000, sql.now())
    return FailureGroup.objects.get(flow="notify", subject=1, answer=answer)


def _leased(shop: Biz) -> ReceiveMsg:
    """A delivery that a listener has, under the claim of the document's example, and a due one for
    another listener: otherwise its request would wait for one."""
    now, message = sql.now(), BizMsg.objects.filter(biz=shop).first()
    assert message
    rows = {}
    for number, name in enumerate(("laptop", "tablet"), 1):
        Receive.objects.create(name=name, delivery="listen")
        rows[name] = ReceiveMsg.objects.create(
            id=number, msg=message, biz=shop, biz_receive=notify_rows.subscription(shop, name),
            next_at=now, created_at=now, updated_at=now,
        )  # fmt: skip
    leased = rows["tablet"]
    leased.status, leased.claimed_by = ReceiveMsg.Status.QUEUED, "listen-0123456789abcdef012345678"
    leased.save()
    return leased


def _erasure() -> str:
    row = Erasure.objects.create(reason="asked for", created_by="eve", created_at=sql.now())
    return str(row.key)


def _owned(shop: Biz) -> dict[str, str]:
    field: dict[str, Any] = {"name": "email", "required": False, "label": ""}
    fields = [{**field, "name": "name"}, {**field, "name": "phone", "required": True}, field]
    LandingPage.objects.create(appkey=_APPKEY, biz=shop, title="spring", form_fields=fields)
    feed_rows.related(shop, ("1001", "befriend", "1002"), ("1003", "follow", "1001"))
    found: dict[str, Any] = {
        "message": BizMsg.objects.filter(biz=shop).first(),
        "sms": SgipMt.objects.filter(biz_id=shop.pk).first(),
        "lead": crm_rows.lead(shop, appkey=_APPKEY),
        "gone lead": crm_rows.lead(shop, appkey=_APPKEY),
        "leased": _leased(shop),
        "alert": _open_alert(),
        "failure": _failure("HTTP 503"),
        "resent failure": _failure("timeout"),
        "policy": Policy.objects.filter(enabled=True, crm__name="sales").first(),
        "run": Run.objects.first(),
        "cancel": BulkJob.objects.create(flow="notify", created_by="somebody"),
        "pause": BulkJob.objects.create(flow="notify", created_by="somebody"),
        "resume": BulkJob.objects.create(
            flow="notify", created_by="somebody", state=BulkJob.State.PAUSED
        ),
    }
    return {
        "post": str(feed_rows.post(shop, "1001")),
        "gone post": str(feed_rows.post(shop, "1001")),
        **{name: _erasure() for name in ("erasure", "cancelled erasure", "ended erasure")},
        **{name: str(row.pk) for name, row in found.items()},
    }
