"""The management API: every operation, who may use it, and what a PUT by name promises."""

import re
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from crmsync.models import Crm, Policy, Record, Source
from crmsync.setup.policies import PolicyResource
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core import alerts
from msgplatform.core.data import sql
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.management.alerts import SETTLED
from msgplatform.jobs import control
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, ApiKey, AuditLog, Biz, MinuteCounter
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from notify.intake import catalogue
from notify.models import BizReceive, EventType, Receive, ReceiveMsg
from notify.subscriptions import sandbox
from tests.support.answers import Answer
from tests.support.api_support import problem
from tests.support.lock_waits import let_others_wait
from tests.support.management import Manager, operations
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import Maker
from tests.waiting import pause

pytestmark = pytest.mark.django_db(transaction=True)

ORDERS = {"title": "Order service", "enabled": True, "validates_events": False}
WAREHOUSE = {"url": "https://warehouse.example/hooks?token=abc", "headers": {"X-Api-Key": "s3cret"}}
_RESOURCES = (
    "systems|keys|consumers|subscriptions|event-types|jobs|statistics|gateways|accounts"
    "|landing-pages|alert-channels|alert-rules|alerts|audit|crms|sources|policies|failures|held"
    "|people|person-data|tests|platform|sandbox"
)
GATEWAY = {
    "host": "203.0.113.7", "login_name": "acme", "login_password": "s3cret-1",
    "smg_login_name": "unicom", "smg_login_password": "s3cret-2", "corp_id": "12345",
    "networks": ["203.0.113.0/28"], "prefixes": ["86130"],
}  # fmt: skip
HUBSPOT = {"object": "contacts", "id_property": "hive_id"}
CRM = {"adapter": "hubspot", "settings": HUBSPOT, "credentials": {"token": "s3cret"}}
SOURCE = {
    "database": "mysql://reader:s3cret@db.example/shop", "table": "customer",
    "time_column": "changed_at", "version_column": "version", "value_columns": ["name", "email"],
}  # fmt: skip
POLICY = {"mapping": "email = email", "interval_seconds": 30}
ACCOUNT = {"system": "orders", "sp_number": "10655012", "corp_id": "12345", "gateways": ["north"]}
PAGE = {"system": "orders", "title": "Spring", "form_fields": [{"name": "phone", "required": True}]}
PAID = {"description": "Paid.", "example": {"n": 1}, "schema": {"type": "object"}}


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    for key in work_redis.scan_iter("throttle:*"):
        work_redis.delete(key)
    keys.forget()
    catalogue.current.cache_clear()
    yield
    keys.forget()
    catalogue.current.cache_clear()


@pytest.fixture
def manager() -> Manager:
    return Manager()


def made(manager: Manager) -> None:
    """A system, a consumer and the subscription of both."""
    for path, body in (
        ("systems/orders", ORDERS),
        ("consumers/warehouse", WAREHOUSE),
        ("subscriptions/orders/warehouse", {"event_types": ["order.*"]}),
    ):
        assert manager.send("PUT", path, body).status_code == 201


def fields(answer: Answer) -> list[str]:
    return [error["field"] for error in problem(answer, 400, "invalid-input")["errors"]]


# -- every operation -----------------------------------------------------------------------------
def test_each_operation_needs_its_own_scope(work_redis: Any) -> None:
    """Not a key of a business system, whatever it may do; nor a management key with all the other
    scopes."""
    found = list(operations())
    assert len(found) >= 30
    everything = keys.create(Biz.objects.create(name="shop"), "all", keys.scopes())[1]
    for operation in found:
        work_redis.delete(*work_redis.keys("throttle:*") or ["throttle:"])  # more than a minute's
        named = re.findall(_RESOURCES, operation.path.replace("/roles", "/people"))
        scope_name = named[-1].replace("alert-rules", "alert-channels")
        if named[0] == "alert-channels":
            scope_name = named[0]
        assert operation.scope == f"manage:{scope_name}", operation.path
        path = re.sub(r"\{id\}", "1", operation.path)
        path = re.sub(r"\{\w+\}", "x", path).removeprefix("/api/v1/")
        others = keys.management_scopes().keys() - {operation.scope}
        manager = Manager(*others)
        for plain in (everything, manager.plain):
            answer = manager.send(operation.method, path, {}, key=plain)
            said = problem(answer, 403, "missing-scope")
            assert said["required_scope"] == operation.scope
        wrong = manager.plain[:-1] + ("a" if manager.plain[-1] != "a" else "b")
        problem(manager.send(operation.method, path, {}, key=wrong), 401, "unauthenticated")
    assert Biz.objects.count() == 1


def test_each_operation_once(manager: Manager, settings: Settings, tmp_path: Path) -> None:
    """The answers are as the document says; `Manager` looks at each."""
    settings.STATE_DIR = tmp_path  # the list of erasures
    made(manager)
    manager.send("PUT", "event-types/order.paid", PAID)
    manager.send("PUT", "systems/orders/event-types/order.paid", PAID)
    manager.send("PUT", "systems/orders/keys/checkout", {"scopes": ["events:write"]})
    manager.send("PUT", "sms/gateways/north", GATEWAY)
    manager.send("PUT", "sms/accounts/orders", ACCOUNT)
    manager.send("PUT", "landing-pages/spring-2026", PAGE)
    manager.send("PUT", "crms/sales", CRM)
    manager.send("PUT", "sources/shop", SOURCE)
    manager.send("PUT", "policies/shop/sales", POLICY)
    manager.send("PUT", "alert-channels/chat", {"url": "dingtalk://SECa1@a1b2/"})
    manager.send("PUT", "alert-rules/night", {"channels": ["chat"], "systems": ["orders"]})
    things = ["systems/orders", "systems/orders/keys/checkout", "consumers/warehouse",
              "subscriptions/orders/warehouse", "event-types/order.paid",
              "systems/orders/event-types/order.paid", "sms/gateways/north",
              "sms/accounts/orders", "landing-pages/spring-2026", "crms/sales",
              "policies/shop/sales", "alert-rules/night", "alert-channels/chat",
              "sources/shop"]  # fmt: skip
    lists = ["systems", "systems/orders/keys", "consumers", "subscriptions", "event-types",
             "sms/gateways", "sms/accounts", "landing-pages", "crms", "sources",
             "policies", "alert-channels", "alert-rules"]  # fmt: skip
    for path in lists:
        (first, *_rest) = manager.send("GET", path).json()["results"]
        assert first
    for path in things:
        shown = manager.send("GET", path).json()
        # What is shown can be sent back, and changes nothing.
        assert manager.send("PUT", path, shown).status_code == 200, path
        assert manager.send("GET", path).json() == shown
    delivered = manager.send("POST", "subscriptions/orders/warehouse/deliver").json()
    assert delivered == {"probe": False, "made_due": 0, "more": False}
    asked = {"flow": "notify", "action": "resend", "filter": {"biz": "orders"}}
    job = manager.send("POST", "jobs", asked).json()["id"]
    assert manager.send("GET", "jobs").json()["results"][0]["id"] == job
    for change, state in (("pause", "paused"), ("resume", "pending"), ("cancel", "cancelled")):
        assert manager.send("POST", f"jobs/{job}/{change}").json()["state"] == state
    assert manager.send("GET", f"jobs/{job}").json()["state"] == "cancelled"
    assert manager.send("GET", "statistics?flow=notify").status_code == 200
    AuditLog.objects.update(at=timezone.now() - 2 * SETTLED)
    assert manager.send("GET", "audit?limit=3").json()["results"][0]["actor"]
    alert = raised()
    assert manager.send("GET", "alerts").json()["results"][0]["id"] == str(alert.pk)
    assert manager.send("GET", f"alerts/{alert.pk}").json()["state"] == "open"
    manager.send("POST", f"alerts/{alert.pk}/acknowledge", {"note": "on it"})
    manager.send("POST", f"alerts/{alert.pk}/resolve")
    manager.send("PUT", "subscriptions/orders/warehouse", {"status": "paused"})
    publish(Biz.objects.get(name="orders"), 2)
    Maker().turn()
    (held,) = manager.send("GET", "held").json()["results"]
    assert (held["subscription"], held["held"]) == ("orders/warehouse", 2)
    for change in ("skip", "release"):
        assert manager.send("POST", f"held/orders/warehouse/{change}").json()["held"] == 2
    manager.send("PUT", "consumers/sandbox", {"url": sandbox.URL})
    manager.send("PUT", "subscriptions/orders/sandbox", {})
    at = "subscriptions/orders/sandbox/sandbox"
    assert manager.send("PUT", at, {"status": 500}).json()["status"] == 500
    assert manager.send("GET", at).json()["calls"] == []
    assert manager.send("DELETE", at).status_code == 204
    manager.send("PUT", "crms/sandbox", {"adapter": "sandbox"})
    assert manager.send("PUT", "crms/sandbox/sandbox", {"answer": "down"}).status_code == 200
    assert manager.send("GET", "crms/sandbox/sandbox").json()["records"] == []
    assert manager.send("DELETE", "crms/sandbox/sandbox").status_code == 204
    mark = manager.send("GET", "consumers/warehouse").json()["secret_fingerprint"]
    rotated = manager.send("POST", "consumers/warehouse/rotate", {"fingerprint": mark})
    assert rotated.json()["secret"].startswith("whsec_")
    assert manager.send("PUT", "people/anna", {"email": "anna@example.com"}).status_code == 201
    shown = manager.send("GET", "people/anna").json()
    assert manager.send("PUT", "people/anna", shown).json() == shown
    assert manager.send("GET", "people").json()["results"] == [shown]
    assert manager.send("POST", "people/anna/invite").json()["invitation"]
    assert manager.send("PUT", "people/anna/limit", {"systems": []}).json() == {"systems": []}
    assert manager.send("DELETE", "people/anna").status_code == 204
    assert manager.send("GET", "roles").status_code == 200
    row = BizReceive.objects.get(receive__name="warehouse")
    failure_store.add("notify", [Loss(row.pk, "HTTP 503", 1)] * 2, sql.now())
    (failure,) = manager.send("GET", "failures").json()["results"]
    assert manager.send("POST", f"failures/{failure['id']}/resend", {}).status_code == 201
    seen = {"note": "known", "lost": failure["lost"], "last_at": failure["last_at"]}
    acknowledged = manager.send("POST", f"failures/{failure['id']}/acknowledge", seen)
    assert acknowledged.json() == {"acknowledged": 2}
    tried = manager.send("POST", "subscriptions/orders/warehouse/filter-trial", {}).json()
    assert tried["tried"] == tried["matching"]
    person = {"phones": ["+86 138-0013-8000"]}
    assert manager.send("POST", "person-data/find", person).json() == {"kinds": []}
    assert "data" in manager.send("POST", "person-data/export", person).json()
    erasure = {**person, "reason": "asked for by mail"}
    key = manager.send("POST", "person-data/erasures", erasure).json()["key"]
    assert manager.send("GET", "person-data/erasures").json()["results"][0]["key"] == key
    assert manager.send("POST", f"person-data/erasures/{key}/end").json()["ends_open"] is True
    cancelled = manager.send("POST", f"person-data/erasures/{key}/cancel").json()
    assert cancelled["state"] == manager.send("GET", f"person-data/erasures/{key}").json()["state"]
    whole = manager.send("GET", "platform").json()
    assert manager.send("PUT", "platform?dry_run=true", whole).json()["counts"]["changed"] == 0
    assert manager.send("GET", "platform/schema").json()["title"]
    manager.send("PUT", "consumers/nobody", {"url": "https://nobody.example/"})
    manager.send("PUT", "sources/unused", SOURCE)
    problem(manager.send("DELETE", "sources/shop"), 409, "not-now")
    for path in ["consumers/nobody", *things[:2], *things[3:-1], "sources/unused"]:
        assert manager.send("DELETE", path).status_code == 204, path
        assert manager.send("DELETE", path).status_code in {204, 404}, path
    # Test sends need somebody who answers: `test_management_trials.py` sends them.
    rest = {(found.method, found.path) for found in operations() if "/tests" not in found.path}
    assert manager.done == rest


# -- two people at once --------------------------------------------------------------------------
def test_of_two_people_at_once_the_second_learns_what_differs(manager: Manager) -> None:
    made(manager)
    for path, change in (
        ("systems/orders", {"title": "A"}),
        ("consumers/warehouse", {"url": "https://warehouse.example/2", "title": "A"}),
        ("subscriptions/orders/warehouse", {"event_types": ["a.*"]}),
    ):
        shown = manager.send("GET", path)
        read = shown.headers["ETag"]
        first = manager.send("PUT", path, {**shown.json(), **change}, if_match=read)
        assert first.status_code == 200
        assert first.headers["ETag"] != read
        answer = manager.send("PUT", path, shown.json(), if_match=read)
        differences = problem(answer, 412, "changed")["differences"]
        assert {name: each["stored"] for name, each in differences.items()} == change
        problem(manager.send("DELETE", path, if_match=read), 412, "changed")
        assert manager.send("GET", path).headers["ETag"] == first.headers["ETag"]
        # A proxy that compresses answers makes their ETags weak.
        for now in ("*", first.headers["ETag"], f"W/{first.headers['ETag']}"):
            same = manager.send("PUT", path, {**shown.json(), **change}, if_match=now)
            assert same.status_code == 200
    problem(manager.send("PUT", "systems/new", ORDERS, if_match="*"), 412, "changed")
    for wrong in ("", "x", '""', "W/", "W/x", '"*"', "W/" + read, '"' + "x" * 5000 + '"'):
        problem(manager.send("PUT", path, {}, if_match=wrong), 412, "changed")
        problem(manager.send("DELETE", path, if_match=wrong), 412, "changed")


def test_differences_have_the_names_and_values_of_the_api(manager: Manager) -> None:
    """`system` and its name, not the model's `biz` and an id; no secret."""
    made(manager)
    manager.send("PUT", "systems/other", ORDERS)
    manager.send("PUT", "sms/gateways/north", GATEWAY)
    manager.send("PUT", "sms/accounts/orders", ACCOUNT)
    cases: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        ("sms/accounts/orders", {**ACCOUNT, "system": "other", "gateways": []}, {
            "system": {"stored": "orders", "sent": "other"},
            "gateways": {"stored": ["north"], "sent": []},
        }),
        ("sms/gateways/north", {**GATEWAY, "window": 3, "login_password": "s3cret-9"}, {
            "window": {"stored": 32, "sent": 3},
        }),
        ("subscriptions/orders/warehouse", {"status": "paused", "event_types": ["order.*"]}, {
            "status": {"stored": "normal", "sent": "paused"},
        }),
    )  # fmt: skip
    for path, body, differences in cases:
        answer = manager.send("PUT", path, body, if_match='"another"')
        assert problem(answer, 412, "changed")["differences"] == differences


def test_a_version_is_the_same_in_each_time_zone(manager: Manager, settings: Settings) -> None:
    made(manager)
    key, path = {"scopes": ["events:write"]}, "systems/orders/keys/checkout"
    settings.TIME_ZONE = "Asia/Shanghai"
    made_key = manager.send("PUT", path, {**key, "expires_at": "2099-01-01T00:00:00Z"})
    assert made_key.headers["ETag"] == manager.send("GET", path).headers["ETag"]
    changed = manager.send("PUT", path, key, if_match=made_key.headers["ETag"])
    assert changed.status_code == 200


def test_a_list_that_an_earlier_release_has_stored_as_null_is_empty(manager: Manager) -> None:
    manager.send("PUT", "event-types/order.paid", PAID)
    EventType.objects.update(personal_fields=None)
    count = AuditLog.objects.count()
    shown = manager.send("GET", "event-types/order.paid")
    for body in (shown.json(), PAID):
        same = manager.send("PUT", "event-types/order.paid", body, if_match=shown.headers["ETag"])
        assert same.headers["ETag"] == shown.headers["ETag"]
    assert AuditLog.objects.count() == count


def test_a_version_tells_nothing_about_a_secret(manager: Manager) -> None:
    """It changes with stored headers, and cannot be computed without the platform's key."""
    made(manager)
    path, body = "consumers/warehouse", {"url": "https://warehouse.example/"}
    versions = {
        manager.send("PUT", path, {**body, "headers": {"X-Key": key}}).headers["ETag"]
        for key in ("hidden-1", "hidden-2")
    }
    assert len(versions) == 2
    assert "hidden" not in str(list(AuditLog.objects.values_list("detail", flat=True)))


# -- alerts and the audit log --------------------------------------------------------------------
def raised(kind: str = "tests") -> Alert:
    alerts.raise_alert(kind, "Something is wrong", "Look at it.", f"{kind}:1")
    return Alert.objects.latest("id")


def test_an_alert_is_acknowledged_then_resolved(manager: Manager) -> None:
    alert = raised()
    path = f"alerts/{alert.pk}"
    assert fields(manager.send("POST", f"{path}/acknowledge", {"note": "  "})) == ["note"]
    assert fields(manager.send("POST", f"{path}/acknowledge", {"note": "x" * 501})) == ["note"]
    shown = manager.send("POST", f"{path}/acknowledge", {"note": "Li calls them"}).json()
    assert (shown["state"], shown["acknowledged_by"], shown["note"]) == (
        "acknowledged", "provisioning (API key)", "Li calls them",
    )  # fmt: skip
    for state, count in (("open", 0), ("acknowledged", 1), ("resolved", 0)):
        assert len(manager.send("GET", f"alerts?state={state}").json()["results"]) == count
    assert len(manager.send("GET", "alerts?kind=others").json()["results"]) == 0
    for _ in range(2):
        assert manager.send("POST", f"{path}/resolve").json()["state"] == "resolved"
    answer = manager.send("POST", f"{path}/acknowledge", {"note": "too late"})
    problem(answer, 409, "not-now")
    problem(manager.send("POST", f"alerts/{alert.pk + 9}/resolve"), 404, "not-found")
    actions = list(AuditLog.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["alert_acknowledged", "alert_resolved"]


def test_changes_are_followed_from_a_cursor(manager: Manager) -> None:
    made(manager)
    AuditLog.objects.update(at=timezone.now())
    assert manager.send("GET", "audit").json()["results"] == []  # they are not settled yet
    AuditLog.objects.update(at=timezone.now() - SETTLED)
    seen, since = [], ""
    while page := manager.send("GET", f"audit?limit=2&since_id={since}").json()["results"]:
        seen += [row["action"] for row in page]
        since = page[-1]["id"]
    assert seen == ["system_created", "consumer_created", "subscription_created"]
    # The first one's machine is ahead of the others': they wait for it, or it would be passed over.
    first, *_others = AuditLog.objects.order_by("id")
    AuditLog.objects.filter(pk=first.pk).update(at=timezone.now())
    assert manager.send("GET", "audit").json()["results"] == []
    AuditLog.objects.filter(pk=first.pk).update(at=timezone.now() + timedelta(days=1))
    assert len(manager.send("GET", "audit").json()["results"]) == 3
    assert "s3cret" not in str(list(AuditLog.objects.values()))


# -- SMS and landing pages -----------------------------------------------------------------------
def test_gateways_and_accounts_are_as_the_console_checks_them(manager: Manager) -> None:
    made(manager)
    assert manager.send("PUT", "sms/gateways/north", GATEWAY).status_code == 201
    shown = manager.send("PUT", "sms/accounts/orders", ACCOUNT).json()
    assert (shown["system"], shown["gateways"], shown["charge_number"]) == (
        "orders", ["north"], "0" * 21,
    )  # fmt: skip
    manager.send("PUT", "systems/other", {})
    manager.send("PUT", "sms/accounts/usual", {**ACCOUNT, "is_default": True})
    for path, body, field in (
        ("sms/gateways/a", {**GATEWAY, "host": "http://smg"}, "host"),
        ("sms/gateways/a", {**GATEWAY, "networks": ["10.0.0.0/99"]}, "networks"),
        ("sms/gateways/a", {**GATEWAY, "networks": "10.0.0.1"}, "networks"),
        ("sms/gateways/a", {**GATEWAY, "prefixes": ["+86"]}, "prefixes"),
        ("sms/gateways/a", {**GATEWAY, "prefixes": ["86"] * 1001}, "prefixes"),
        ("sms/gateways/a", {**GATEWAY, "area_code": "9"}, "area_code"),
        ("sms/gateways/a", {**GATEWAY, "login_password": "x" * 17}, "login_password"),
        ("sms/gateways/a", {**GATEWAY, "login_password": "密码"}, "login_password"),
        ("sms/gateways/a", {**GATEWAY, "login_password": None}, "login_password"),
        ("sms/gateways/a", {**GATEWAY, "response_timeout": 0.1}, "response_timeout"),
        ("sms/gateways/north", {"host": "thief.example", "login_name": "a", "corp_id": "1",
                                "smg_login_name": "b"}, "login_password"),
        ("sms/accounts/a", {**ACCOUNT, "system": "nobody"}, "system"),
        ("sms/accounts/a", {**ACCOUNT, "gateways": ["south"]}, "gateways"),
        ("sms/accounts/a", {**ACCOUNT, "sp_number": "1065x"}, "sp_number"),
        ("sms/accounts/a", {**ACCOUNT, "extension_digits": 20}, "extension_digits"),
        ("sms/accounts/a", {**ACCOUNT, "is_default": True}, "is_default"),
        ("sms/accounts/a", {**ACCOUNT, "recipients_limit": 0}, "recipients_limit"),
        ("sms/accounts/a", {**ACCOUNT, "fee_type": 5}, "fee_type"),
        ("sms/accounts/a", {**ACCOUNT, "agent_flag": 2}, "agent_flag"),
        ("sms/accounts/a", {**ACCOUNT, "morelateto_mt_flag": 4}, "morelateto_mt_flag"),
        ("landing-pages/spring", {**PAGE, "allowed_origins": ["www.example.com"]},
         "allowed_origins"),
        *(
            ("landing-pages/spring", {**PAGE, "form_fields": [form_field]}, "form_fields")
            for form_field in (
                {"name": "budget"}, {"name": "phone", "required": "no"},
                {"name": "phone", "required": 1},
                {"name": "phone", "required": True, "label": "a\nb"},
                {"name": "phone", "required": True, "label": "a\u202eb"},
            )
        ),
        ("landing-pages/spring", {**PAGE, "title": ""}, "title"),
        ("landing-pages/a b", PAGE, "appkey"),
    ):  # fmt: skip
        assert fields(manager.send("PUT", path, body)) == [field], (path, body)
    assert (SmsGateway.objects.count(), SmsAccount.objects.count()) == (1, 2)
    manager.send("PUT", "landing-pages/spring", PAGE)
    answer = manager.send("PUT", "landing-pages/spring", {**PAGE, "system": "other"})
    assert fields(answer) == ["system"]


def test_crms_sources_and_policies_are_as_the_console_checks_them(manager: Manager) -> None:
    for path, body in (
        ("crms/sales", CRM), ("sources/shop", SOURCE), ("policies/shop/sales", POLICY),
    ):  # fmt: skip
        answer = manager.send("PUT", path, body)
        assert answer.status_code == 201
        assert "s3cret" not in answer.content.decode()
    elsewhere = {**HUBSPOT, "base_url": "https://thief.example"}
    same_host = {"url": "https://api.hubapi.com/x", "headers": {"X-Key": "{secret.token}"}}
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("crms/a", {**CRM, "adapter": "none"}, "adapter"),
        ("crms/a", {**CRM, "settings": {"colour": "red"}}, "settings"),
        ("crms/a", {**CRM, "credentials": {}}, "credentials"),
        ("crms/a", {**CRM, "retry_seconds": [-1]}, "retry_seconds"),
        ("crms/sales", {"adapter": "hubspot", "settings": elsewhere}, "credentials"),
        ("crms/sales", {"adapter": "http", "settings": same_host}, "credentials"),
        ("sources/a", {**SOURCE, "database": "mysql://x"}, "database"),
        ("sources/a", {**SOURCE, "zone": "Mars/City"}, "zone"),
        ("sources/a", {**SOURCE, "value_columns": []}, "value_columns"),
        ("sources/shop", {**SOURCE, "table": "other"}, "table"),
        ("policies/shop/sales", {**POLICY, "mapping": "a = nowhere"}, "mapping"),
        ("policies/shop/sales", {**POLICY, "cron": "every day"}, "cron"),
        ("policies/shop/sales", {**POLICY, "appkeys": ["x"]}, "appkeys"),
        ("policies/shop/sales", {**POLICY, "system": "nobody"}, "system"),
    )
    for path, body, field in cases:
        assert fields(manager.send("PUT", path, body)) == [field], (path, body)
    problem(manager.send("PUT", "policies/none/sales", POLICY), 404, "not-found")
    assert "s3cret" not in str(list(AuditLog.objects.values()))
    crm = {name: value for name, value in CRM.items() if name != "credentials"}
    assert manager.send("PUT", "crms/sales", {**crm, "concurrency": 2}).status_code == 200
    assert Crm.objects.get().credentials == {"token": "s3cret"}
    Source.hive()
    problem(manager.send("PUT", "sources/hive", SOURCE), 409, "not-now")
    problem(manager.send("DELETE", "sources/hive"), 409, "not-now")


def test_passwords_of_a_gateway_are_written_only(manager: Manager) -> None:
    """They stay when a body leaves them out, and neither an answer nor the audit log has one."""
    path = "sms/gateways/north"
    answers = [manager.send("PUT", path, GATEWAY)]
    bare = {name: value for name, value in GATEWAY.items() if "password" not in name}
    answers.append(manager.send("PUT", path, {**bare, "window": 8}))
    answers.append(manager.send("GET", path))
    answers.append(manager.send("GET", "sms/gateways"))
    row = SmsGateway.objects.get()
    assert (row.login_password, row.smg_login_password) == ("s3cret-1", "s3cret-2")
    assert "s3cret" not in "".join(answer.content.decode() for answer in answers)
    assert "s3cret" not in str(list(AuditLog.objects.values()))
    manager.send("DELETE", path)
    assert not SmsGateway.objects.get().enabled
    assert AuditLog.objects.latest("id").action == "sms_gateway_disabled"


def test_the_gateways_of_an_account_follow_the_body(manager: Manager) -> None:
    made(manager)
    for name in ("north", "south"):
        manager.send("PUT", f"sms/gateways/{name}", GATEWAY)
    path = "sms/accounts/orders"
    manager.send("PUT", path, {**ACCOUNT, "gateways": ["south", "north"]})
    assert manager.send("GET", path).json()["gateways"] == ["north", "south"]
    count = AuditLog.objects.count()
    manager.send("PUT", path, {**ACCOUNT, "gateways": ["north", "south"]})
    assert AuditLog.objects.count() == count
    manager.send("PUT", path, {**ACCOUNT, "gateways": ["south"]})
    assert AuditLog.objects.latest("id").detail["after"] == {"gateways": ["south"]}
    count = AuditLog.objects.count()
    manager.send("PUT", path, {**ACCOUNT, "gateways": ["south", "south"]})
    assert AuditLog.objects.count() == count, "the same gateway twice is one"
    bare = {name: value for name, value in ACCOUNT.items() if name != "gateways"}
    assert manager.send("PUT", path, bare).json()["gateways"] == []


# -- a PUT by name -------------------------------------------------------------------------------
def test_the_same_put_changes_nothing(manager: Manager) -> None:
    made(manager)
    before = AuditLog.objects.count(), list(BizReceive.objects.values())
    for path, body in (
        ("systems/orders", ORDERS),
        ("consumers/warehouse", WAREHOUSE),
        ("subscriptions/orders/warehouse", {"event_types": ["order.*"]}),
    ):
        assert manager.send("PUT", path, body).status_code == 200
    assert (AuditLog.objects.count(), list(BizReceive.objects.values())) == before


def test_what_is_left_out_has_its_default(manager: Manager) -> None:
    made(manager)
    address = "subscriptions/orders/warehouse"
    whole = {"timeout": 3.5, "schedule": [5, 60], "attempts_limit": 4, "in_flight_limit": 7,
             "rate_limit": 12.5, "own_process": True, "channels": ["eu"]}  # fmt: skip
    shown = manager.send("PUT", address, whole).json()
    assert {name: shown[name] for name in whole} == whole
    assert shown["event_types"] == []
    nothing = dict.fromkeys(whole)
    bare = manager.send("PUT", address, {}).json()
    assert bare == manager.send("PUT", address, nothing).json()
    assert (bare["timeout"], bare["in_flight_limit"], bare["own_process"]) == (None, 32, False)
    assert bare["schedule"][0] == 5
    assert len(bare["schedule"]) == 9


def test_the_status_stays_unless_it_is_named(manager: Manager) -> None:
    made(manager)
    address = "subscriptions/orders/warehouse"
    BizReceive.objects.update(status=4, disabled_reason="410", failures=9)
    assert manager.send("PUT", address, {}).json()["status"] == "disabled"
    shown = manager.send("PUT", address, {"status": "normal"}).json()
    assert (shown["status"], shown["failures"], shown["disabled_reason"]) == ("normal", 0, "")
    assert manager.send("PUT", address, {"status": "paused"}).json()["status"] == "paused"
    assert fields(manager.send("PUT", address, {"status": "disabled"})) == ["status"]
    manager.send("DELETE", address)
    assert manager.send("GET", address).json()["status"] == "discarded"


def test_wrong_values_are_named_as_in_the_console(manager: Manager) -> None:
    made(manager)
    for path, body, field in (
        ("systems/orders", {"titel": "x"}, "titel"),
        ("systems/orders", {"title": "x" * 201}, "title"),
        ("systems/" + "x" * 65, {}, "name"),
        ("consumers/c", {}, "url"),
        ("consumers/c", {"url": "ftp://a.example/"}, "url"),
        ("consumers/c", {"url": "https://a.example/", "networks": ["10.0.0.0/99"]}, "networks"),
        ("consumers/c", {"url": "https://a.example/", "headers": {"Host": "x"}}, "headers"),
        ("consumers/c", {"url": "https://a.example/", "header_prefix": "acme",
                         "headers": {"Acme-Signature": "x"}}, "headers"),
        ("subscriptions/orders/warehouse", {"event_types": ["or der"]}, "event_types"),
        ("subscriptions/orders/warehouse", {"timeout": 500}, "timeout"),
        ("subscriptions/orders/warehouse", {"rate_limit": "nan"}, "rate_limit"),
        ("subscriptions/orders/warehouse", {"schedule": [5, -1]}, "schedule"),
        ("subscriptions/orders/warehouse", {"in_flight_limit": 0}, "in_flight_limit"),
        ("event-types/order%20paid", {}, "name"),
        ("event-types/order.paid", {"schema": {"type": "text"}}, "schema"),
        ("event-types/order.paid", {"schema": {"type": "array"}, "example": {}}, "example"),
        ("systems/orders/keys/k", {"scopes": []}, "scopes"),
        ("systems/orders/keys/k", {"scopes": ["manage:keys"]}, "scopes"),
        ("systems/orders/keys/" + "k" * 101, {"scopes": ["events:read"]}, "name"),
        ("systems/orders/keys/k", {"scopes": ["events:read"], "expires_at": "2020-01-01T00:00Z"},
         "expires_at"),
    ):  # fmt: skip
        assert fields(manager.send("PUT", path, body)) == [field], (path, body)
    assert not EventType.objects.exists()
    assert Receive.objects.count() == 1
    problem(manager.send("PUT", "subscriptions/none/warehouse", {}), 404, "not-found")
    problem(manager.send("PUT", "subscriptions/orders/none", {}), 404, "not-found")


def test_a_prefix_that_makes_a_stored_header_one_that_signs_is_refused(manager: Manager) -> None:
    body = {"url": "https://a.example/", "headers": {"Acme-Signature": "x"}}
    assert manager.send("PUT", "consumers/c", body).status_code == 201
    answer = manager.send("PUT", "consumers/c", {"url": body["url"], "header_prefix": "acme"})
    assert fields(answer) == ["headers"]
    assert Receive.objects.get().header_prefix == "webhook"


def put_at_once(manager: Manager, requests: Sequence[tuple[str, Any]], **options: Any) -> list[int]:
    """The sorted status codes of PUT requests that begin together."""
    together = threading.Barrier(len(requests))
    statuses: list[int] = []

    def put(path: str, body: Any) -> None:
        try:
            together.wait(120)
            statuses.append(manager.send("PUT", path, body, **options).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=put, args=request) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(statuses)


def test_two_that_create_the_same(manager: Manager) -> None:
    """One creates it, the others find it."""
    requests = [("consumers/warehouse", WAREHOUSE)] * 4
    assert put_at_once(manager, requests) == [200, 200, 200, 201]
    assert Receive.objects.count() == 1


@pytest.mark.parametrize("path", ["consumers/warehouse", "systems/orders/keys/checkout"])
def test_of_several_that_only_create_one_does(manager: Manager, path: str) -> None:
    """Nobody replaces, without knowing it, what another one has just created."""
    manager.send("PUT", "systems/orders", ORDERS)
    body = {"scopes": ["events:write"]} if "keys" in path else WAREHOUSE
    statuses = put_at_once(manager, [(path, body)] * 4, if_none_match="*")
    assert statuses == [201, 412, 412, 412]
    problem(manager.send("PUT", path, body, if_none_match='"*"'), 400, "invalid-input")


def test_of_two_policies_with_one_prefix_at_once_one_is_made(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_others_wait(monkeypatch)
    manager.send("PUT", "crms/sales", CRM)
    for name in ("shop", "fair"):
        manager.send("PUT", f"sources/{name}", SOURCE)
    crm, faults = Crm.objects.get(), list[Any]()

    def check_second() -> None:
        try:
            with transaction.atomic():
                row = Policy(
                    source=Source.objects.get(name="fair"), crm=crm, mapping="email = email"
                )
                faults.extend(PolicyResource("tester").faults(row, None))
        finally:
            connections.close_all()

    thread = threading.Thread(target=check_second)
    with transaction.atomic():
        row = Policy(source=Source.objects.get(name="shop"), crm=crm, mapping="email = email")
        assert not list(PolicyResource("tester").faults(row, None))
        thread.start()
        thread.join(0.5)  # the check of the second waits for the end of this transaction
        row.save()
    thread.join()
    assert [name for name, _sentence in faults] == ["key_prefix"]


def test_prefix_and_kind_of_crm_stay_when_records_were_sent(manager: Manager) -> None:
    """In another case, too: “Shop-” is another key in the CRM."""
    other = {"adapter": "http", "settings": {"url": "https://crm.example"}, "credentials": {}}
    assert manager.send("PUT", "crms/sales", other).status_code == 201
    manager.send("PUT", "crms/sales", CRM)
    manager.send("PUT", "sources/shop", SOURCE)
    body = {**POLICY, "key_prefix": "shop-"}
    manager.send("PUT", "policies/shop/sales", {**POLICY, "key_prefix": "Shop-"})
    assert manager.send("PUT", "policies/shop/sales", body).status_code == 200
    policy = Policy.objects.get()
    Record.objects.create(
        id=1, policy_id=policy.pk, key="1", version=1, operation_id=1, state=1,
        updated_at=timezone.now(),
    )  # fmt: skip
    for prefix in ("Shop-", "fair-", ""):
        answer = manager.send("PUT", "policies/shop/sales", {**POLICY, "key_prefix": prefix})
        assert fields(answer) == ["key_prefix"], prefix
    assert manager.send("PUT", "policies/shop/sales", {**body, "batch_size": 5}).status_code == 200
    assert fields(manager.send("PUT", "crms/sales", other)) == ["adapter"]
    assert manager.send("PUT", "crms/sales", {**CRM, "concurrency": 2}).status_code == 200


# -- secrets and keys ----------------------------------------------------------------------------
def test_secrets_are_shown_once_and_never_logged(manager: Manager) -> None:
    manager.send("PUT", "systems/orders", ORDERS)
    consumer = manager.send("PUT", "consumers/warehouse", WAREHOUSE).json()
    assert consumer["secret"] == Receive.objects.get().secret
    key = manager.send("PUT", "systems/orders/keys/k", {"scopes": ["events:write"]}).json()["key"]
    manager.send("PUT", "consumers/warehouse", {**WAREHOUSE, "headers": {"X-Api-Key": "0ther"}})
    again = manager.send("GET", "consumers/warehouse").json()
    assert again["header_names"] == ["X-Api-Key"]
    shown = str([again, manager.send("GET", "systems/orders/keys/k").json()])
    logged = str(list(AuditLog.objects.values()))
    for secret in (consumer["secret"], key, "s3cret", "0ther"):
        assert secret not in shown
        assert secret not in logged
    assert "token=abc" not in logged
    # Left out, the headers stay; only {} takes them away.
    manager.send("PUT", "consumers/warehouse", {"url": WAREHOUSE["url"]})
    assert Receive.objects.get().headers == {"X-Api-Key": "0ther"}
    manager.send("PUT", "consumers/warehouse", {"url": WAREHOUSE["url"], "headers": {}})
    assert Receive.objects.get().headers == {}


@pytest.mark.parametrize(
    ("path", "other", "body"),
    [
        ("systems/orders", "systems/ORDERS", ORDERS),
        ("consumers/warehouse", "consumers/Warehouse", WAREHOUSE),
        ("subscriptions/orders/warehouse", "subscriptions/Orders/WAREHOUSE", {}),
        ("event-types/order.paid", "event-types/Order.Paid", None),
        ("systems/orders/keys/checkout", "systems/ORDERS/keys/checkout", None),
    ],
)
def test_a_name_in_another_case_is_another_name(
    manager: Manager, path: str, other: str, body: dict[str, Any] | None
) -> None:
    """The same on every database: what a PUT would make beside it is refused."""
    made(manager)
    manager.send("PUT", "event-types/order.paid", PAID)
    manager.send("PUT", "systems/orders/keys/checkout", {"scopes": ["events:write"]})
    before = manager.send("GET", path).json()
    for method in ("GET", "DELETE"):
        assert manager.send(method, other).status_code == 404
    if body is not None:
        answer = manager.send("PUT", other, body)
        assert answer.status_code in (400, 404)
        if answer.status_code == 400:
            assert f"There is {before['name']} already" in answer.content.decode()
    assert manager.send("GET", path).json() == before
    assert Biz.objects.count() == 1
    assert Receive.objects.count() == 1


@pytest.mark.parametrize("model", [Biz, Receive, SmsGateway, SmsAccount, Crm, Source])
def test_no_two_names_differ_only_in_case(model: Any) -> None:
    needed = {"biz": Biz.objects.create(name="x")} if model is SmsAccount else {}
    model.objects.create(name="orders", **needed)
    assert not model.objects.filter(name="ORDERS").exists()
    with pytest.raises(ValidationError, match="There is orders already"):
        model(name="ORDERS").clean()


def test_rows_whose_names_differ_only_in_case_since_an_earlier_release_can_be_changed(
    admin_client: Client,
) -> None:
    given = {"adapter": "hubspot", "settings": {}, "credentials": {"token": "x"}}
    Crm.objects.create(name="sales", **given)
    other = Crm.objects.create(name="Sales", **given)
    form = {"settings": "{}", "credentials": "", "concurrency": "2", "retry_seconds": "30 s"}
    page = f"/admin/crmsync/crm/{other.pk}/change/"
    assert admin_client.post(page, form).status_code == 302
    other.refresh_from_db()
    assert other.concurrency == 2
    other.name = "SALES"
    with pytest.raises(ValidationError, match="already"):
        other.clean()


def test_a_name_with_blanks_around_it_is_no_other_name(manager: Manager) -> None:
    """MariaDB compares names without the blanks at their end."""
    made(manager)
    bodies = {"sources/shop": SOURCE, "event-types/order.paid": PAID,
              "systems/orders/event-types/order.paid": PAID}  # fmt: skip
    for path, body in bodies.items():
        assert manager.send("PUT", path, body).status_code == 201
    before = list(Source.objects.values()), list(EventType.objects.values())
    for path, body in bodies.items():
        for method in ("GET", "PUT", "DELETE"):
            sent = body if method == "PUT" else None
            for part in ("%20", "%E3%80%80"):
                problem(manager.send(method, path + part, sent), 404, "not-found")
    assert (list(Source.objects.values()), list(EventType.objects.values())) == before


def test_stored_headers_go_to_no_other_host(manager: Manager) -> None:
    manager.send("PUT", "consumers/warehouse", WAREHOUSE)
    for url in (
        "https://thief.example/",
        "http://warehouse.example/",
        "https://warehouse.example:8443/",
    ):
        answer = manager.send("PUT", "consumers/warehouse", {"url": url})
        assert (answer.status_code, fields(answer)) == (400, ["headers"])
        assert "https://warehouse.example:443" in answer.content.decode()
    assert Receive.objects.get().url == WAREHOUSE["url"]
    for body in (
        {"url": "https://warehouse.example/v2"},
        {"url": "https://new.example/", "headers": {"X-Api-Key": "s3cret"}},
        {"url": "https://other.example/", "headers": {}},
        {"url": "https://third.example/"},
    ):
        assert manager.send("PUT", "consumers/warehouse", body).status_code == 200
    assert Receive.objects.get().headers == {}


def test_a_new_header_is_set_once_whatever_its_case(manager: Manager) -> None:
    twice = {**WAREHOUSE, "headers": {"X-Api-Key": "a", "x-api-key": "b"}}
    answer = manager.send("PUT", "consumers/warehouse", twice)
    assert (answer.status_code, fields(answer)) == (400, ["headers"])
    assert "is listed twice" in answer.content.decode()
    manager.send("PUT", "consumers/warehouse", WAREHOUSE)
    assert manager.send("PUT", "consumers/warehouse", twice).status_code == 400
    Receive.objects.update(headers=twice["headers"])  # an earlier release took them
    body = {"url": WAREHOUSE["url"], "title": "Warehouse"}
    assert manager.send("PUT", "consumers/warehouse", body).status_code == 200


def test_the_life_of_a_key(manager: Manager) -> None:
    manager.send("PUT", "systems/orders", ORDERS)
    address = "systems/orders/keys/checkout"

    def publishes(key: str) -> int:
        event = {"event_type": "order.paid", "payload": 1}
        return manager.send("POST", "messages", event, key=key).status_code

    first = manager.send("PUT", address, {"scopes": ["events:write"]})
    assert publishes(first.json()["key"]) == 202
    again = manager.send("PUT", address, {"scopes": ["events:write"]})
    assert (again.status_code, "key" in again.json()) == (200, False)
    assert ApiKey.objects.filter(biz__name="orders").count() == 1
    manager.send("PUT", address, {"scopes": ["events:read"]})
    assert publishes(first.json()["key"]) == 403
    manager.send("DELETE", address)
    assert publishes(first.json()["key"]) == 401
    second = manager.send("PUT", address, {"scopes": ["events:write"]})
    assert second.status_code == 201
    assert publishes(second.json()["key"]) == 202
    manager.send("DELETE", "systems/orders")
    assert publishes(second.json()["key"]) == 401
    manager.send("PUT", "systems/orders", ORDERS)
    assert publishes(second.json()["key"]) == 202
    ApiKey.objects.filter(revoked_at=None, name="checkout").update(expires_at=timezone.now())
    end = manager.send("GET", address).json()["expires_at"]
    expired = {"scopes": ["events:read"], "expires_at": end}
    assert manager.send("PUT", address, expired).json()["expires_at"] == end
    keys.create(Biz.objects.get(name="orders"), "checkout", ["events:write"])
    for method in ("PUT", "DELETE"):
        answer = manager.send(method, address, {"scopes": ["events:write"]})
        problem(answer, 409, "not-now")


def test_a_management_key_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("management_key", "usual")
    usual = set(ApiKey.objects.get(name="usual").scopes)
    assert usual == keys.management_scopes().keys() - keys.SUPERUSER_SCOPES
    ApiKey.objects.all().delete()
    AuditLog.objects.all().delete()
    capsys.readouterr()
    call_command("management_key", "deploy", "--scope", "manage:systems")
    plain = capsys.readouterr().out.strip()
    caller = keys.verify(plain)
    assert caller is not None
    assert (caller.biz_id, caller.scopes) == (0, frozenset({"manage:systems"}))
    headers = {"Authorization": f"Bearer {plain}"}
    assert Client().get("/api/v1/systems", headers=headers).status_code == 200
    problem(Client().get("/api/v1/messages", headers=headers), 403, "missing-scope")


def test_the_audit_log_says_which_key_and_what(manager: Manager) -> None:
    made(manager)
    manager.send("PUT", "subscriptions/orders/warehouse", {"rate_limit": 5})
    entry = AuditLog.objects.latest("id")
    assert (entry.actor, entry.action) == ("provisioning (API key)", "subscription_changed")
    assert entry.detail["before"] == {"event_types": ["order.*"], "rate_limit": None}
    assert entry.detail["after"] == {"event_types": [], "rate_limit": 5}


# -- bulk jobs and statistics --------------------------------------------------------------------
def test_a_resend_with_a_status(manager: Manager) -> None:
    biz = Biz.objects.create(name="orders")
    subscription(biz)
    publish(biz, 3)
    Maker().turn()
    earlier = sql.now() - timedelta(hours=1)  # what changes later than the job began is left alone
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED, updated_at=earlier)
    asked = {"flow": "notify", "action": "resend", "rate": 2,
             "filter": {"subscription": "orders/warehouse", "status": "exhausted"}}  # fmt: skip
    preview = manager.send("POST", "jobs", {**asked, "preview": True})
    assert (preview.status_code, preview.json()) == (200, {"total": 3, "more": False})
    assert not BulkJob.objects.exists()
    job = manager.send("POST", "jobs", asked).json()
    assert (job["state"], job["total"], job["done"]) == ("pending", 3, 0)
    assert job["created_by"] == "provisioning (API key)"
    runner = BulkRunner()
    address = f"jobs/{job['id']}"
    begun = time.monotonic()
    while (done := manager.send("GET", address).json()["done"]) == 0:  # the first notes its start
        assert time.monotonic() < begun + 180
        if not runner.turn():
            pause(begun, 0.05)
    assert done == 2
    manager.send("POST", f"{address}/pause")
    BulkJob.objects.update(lease_until=None)
    assert not runner.turn()
    manager.send("POST", f"{address}/resume")
    while (ended := manager.send("GET", address).json())["state"] != "done":
        assert time.monotonic() < begun + 180, ended
        if not runner.turn():
            pause(begun, 0.05)
    assert ended["done"] == 3
    assert ended["finished_at"]
    assert not ReceiveMsg.objects.filter(status=ReceiveMsg.Status.EXHAUSTED).exists()
    problem(manager.send("POST", f"{address}/cancel"), 409, "not-now")
    for wrong, field in (
        ({"flow": "letters"}, "flow"),
        ({"action": "burn"}, "action"),
        ({"filter": {"nobody": "x"}}, "nobody"),
        ({"rate": 0}, "rate"),
        ({"Preview": True}, "Preview"),
        ({"rate_limit": 5}, "rate_limit"),
        ({"idempotency_key": 5}, "idempotency_key"),
    ):
        assert fields(manager.send("POST", "jobs", {**asked, **wrong})) == [field]


def test_a_job_is_started_once(manager: Manager) -> None:
    asked = {"flow": "notify", "action": "resend", "filter": {}}
    first = manager.send("POST", "jobs", asked, idempotency_key="k")
    again = manager.send("POST", "jobs", asked, idempotency_key="k")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["id"] == first.json()["id"]
    other = manager.send("POST", "jobs", {**asked, "rate": 5}, idempotency_key="k")
    problem(other, 409, "conflict")
    assert manager.send("POST", "jobs", asked, idempotency_key="l").status_code == 201
    assert Manager(name="other").send("POST", "jobs", asked, idempotency_key="k").status_code == 201
    preview = manager.send("POST", "jobs", {**asked, "preview": True}, idempotency_key="k")
    assert preview.json() == {"total": 0, "more": False}
    problem(manager.send("POST", "jobs", asked, idempotency_key="a b"), 400, "invalid-input")
    in_body = manager.send("POST", "jobs", {**asked, "idempotency_key": "k"})
    assert in_body.json()["id"] == first.json()["id"]
    assert BulkJob.objects.count() == 3


def test_a_put_without_a_body_changes_nothing(manager: Manager) -> None:
    made(manager)
    manager.send("PUT", "systems/orders/keys/checkout", {"scopes": ["events:write"]})
    for path in (
        "systems/orders",
        "subscriptions/orders/warehouse",
        "systems/orders/keys/checkout",
    ):
        before = manager.send("GET", path).json()
        problem(manager.send("PUT", path), 400, "malformed-body")
        assert manager.send("GET", path).json() == before


def test_two_keys_whose_names_differ_only_in_case(manager: Manager) -> None:
    made(manager)
    for name in ("till", "Till"):
        answer = manager.send("PUT", f"systems/orders/keys/{name}", {"scopes": ["events:write"]})
        assert answer.status_code == 201
    assert manager.send("DELETE", "systems/orders/keys/Till").status_code == 204
    assert manager.send("GET", "systems/orders/keys/till").json()["revoked_at"] is None


def test_statistics(manager: Manager) -> None:
    orders, stock = Biz.objects.create(name="orders"), Biz.objects.create(name="stock")
    now = sql.now().replace(minute=30)
    for biz, at in ((orders, now), (orders, now - timedelta(hours=2)), (stock, now)):
        MinuteCounter.add(
            "notify",
            {
                (biz.pk, 0, "accepted"): 5,
                (biz.pk, 7, "failed"): 1,
                (biz.pk, 7, "latency_le_50ms"): 1,
                # The same once more, by event type.
                (biz.pk, -3, "accepted"): 5,
                (biz.pk, -3, "failed"): 1,
            },
            at,
        )
    until = (timezone.now() + timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    asked = f"statistics?flow=notify&until={until}"
    everything = manager.send("GET", asked).json()
    assert everything["total"] == {"accepted": 15, "failed": 3}
    assert [point["counts"]["accepted"] for point in everything["points"]] == [5, 10]
    assert manager.send("GET", f"{asked}&system=stock").json()["total"]["accepted"] == 5
    assert manager.send("GET", f"{asked}&subscription=7").json()["total"] == {"failed": 3}
    of_type = manager.send("GET", f"{asked}&event_type=3").json()
    assert of_type["total"] == {"accepted": 15, "failed": 3}
    MinuteCounter.add("sms", {(orders.pk, -2, "sent"): 4, (orders.pk, 2, "sent"): 4}, now)
    MinuteCounter.add("sms", {(orders.pk, -2, "unknown"): -1}, now - timedelta(hours=2))
    of_gateway = manager.send("GET", f"statistics?flow=sms&gateway=2&until={until}").json()
    assert of_gateway["total"] == {"sent": 4, "unknown": -1}
    for wrong, field in (
        ("", "flow"),
        ("flow=letters", "flow"),
        ("flow=notify&step=year", "step"),
        ("flow=notify&system=none", "system"),
        ("flow=notify&subscription=none", "subscription"),
        ("flow=notify&gateway=2", "gateway"),
        ("flow=notify&subscription=7&event_type=3", "subscription"),
        ("flow=notify&until=0001-01-01T00:00:00Z", "until"),
        ("flow=notify&step=minute&since=2020-01-01T00:00:00Z", "since"),
    ):
        assert fields(manager.send("GET", f"statistics?{wrong}")) == [field]


# -- names, statuses and values that are easily mistaken -----------------------------------------
def test_a_name_is_no_number(manager: Manager) -> None:
    """Filters take ids and names: digits would be another system's."""
    assert fields(manager.send("PUT", "systems/12306", {})) == ["name"]
    first = Biz.objects.create(name="orders")
    earlier = Biz.objects.create(name=str(first.pk))  # before such names were refused
    subscription(first)
    assert manager.send("PUT", f"systems/{earlier.name}", {"title": "T"}).status_code == 200
    query = f"subscriptions?system={first.pk}"
    assert fields(manager.send("GET", query)) == ["system"]
    assert manager.send("GET", "subscriptions?system=orders").json()["results"]
    assert manager.send("GET", f"subscriptions?system={earlier.pk}").json()["results"] == []
    subscription(Biz.objects.create(name="12306"), "till")
    (found,) = manager.send("GET", "subscriptions?system=12306").json()["results"]
    assert found["name"] == "12306/till", "nobody has that id"


def test_what_was_to_be_skipped_is_not_sent_after_all(manager: Manager) -> None:
    made(manager)
    address = "subscriptions/orders/warehouse"
    BizReceive.objects.update(status=BizReceive.Status.SKIPPING)
    assert manager.send("PUT", address, {"status": "normal"}).json()["status"] == "skipping"
    for status in (BizReceive.Status.SKIPPING, BizReceive.Status.DISABLED):
        BizReceive.objects.update(status=status)
        shown = manager.send("GET", address).json()
        assert manager.send("PUT", address, shown).json() == shown, "as it was read"
    assert manager.send("PUT", address, {"status": "normal"}).json()["status"] == "normal"
    assert fields(manager.send("PUT", address, {"status": "disabled"})) == ["status"]


def test_one_is_not_true(manager: Manager) -> None:
    path = "event-types/order.paid"
    manager.send("PUT", path, {"schema": {"enum": [0, 1]}, "example": 1})
    answer = manager.send("PUT", path, {"schema": {"enum": [False, True]}, "example": True}).json()
    assert manager.send("GET", path).json() == answer
    assert EventType.objects.get().schema["enum"] == [False, True]
    assert EventType.objects.get().example is True


def test_a_job_says_that_its_count_was_cut(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(manager)
    counted = Counted(100_000, more=True)
    monkeypatch.setattr(control, "count", lambda *_: counted)
    asked = {"flow": "notify", "action": "resend", "filter": {"biz": "orders"}}
    job = manager.send("POST", "jobs", asked).json()
    assert (job["total"], job["more"]) == (100_000, True)
    assert BulkJob.objects.get().more


def test_deliver_now_is_audited_and_refused_for_what_is_paused(manager: Manager) -> None:
    made(manager)
    address = "subscriptions/orders/warehouse/deliver"
    answer = manager.send("POST", address)
    assert answer.json() == {"probe": False, "made_due": 0, "more": False}
    (entry,) = AuditLog.objects.filter(action="subscription_deliver_now")
    assert "(API key)" in entry.actor
    manager.send("PUT", "subscriptions/orders/warehouse", {"status": "paused"})
    problem(manager.send("POST", address), 409, "not-now")
    problem(manager.send("POST", "subscriptions/orders/none/deliver"), 404, "not-found")


def test_durations_are_numbers_or_texts_with_a_unit(manager: Manager) -> None:
    made(manager)
    path = "subscriptions/orders/warehouse"
    body = {"schedule": ["5 s", "5 min", 1800, "1.5h"], "timeout": "10 s"}
    shown = manager.send("PUT", path, body).json()
    assert (shown["schedule"], shown["timeout"]) == ([5, 300, 1800, 5400], 10)
    assert manager.send("PUT", path, shown).json() == shown
    for wrong in ("5", "soon", "5 weeks", "-5 s", "9" * 400 + " s", True):
        answer = manager.send("PUT", path, {"schedule": [wrong]})
        (error,) = problem(answer, 400, "invalid-input")["errors"]
        assert error["field"].startswith("schedule")
        assert "30 min" in error["message"]
