"""Management keys that are limited to business systems: what each operation shows and changes."""

import io
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.forms import model_to_dict
from django.test import Client
from django.urls import get_resolver

from crmsync.models import Crm, LandingPage, Policy, Source
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core import alerts, flows
from msgplatform.core.data import sql
from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.access.authentication import answers_limited_keys, required_scope
from msgplatform.doors.api.management.statistics import StatisticsView
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, ApiKey, AuditLog, Biz, FailureGroup, KeptObject, MinuteCounter
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from notify.intake import catalogue
from notify.models import BizReceive, EventType, Receive
from tests.support.answers import Answer
from tests.support.api_document import api_views
from tests.support.api_support import problem
from tests.support.management import Manager, operations
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import Maker

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
OWN, OTHER = "orders", "zebra"
CREATED = 201
GATEWAY = {"host": "203.0.113.7", "login_password": "a", "smg_login_password": "b",
           "corp_id": "12345"}  # fmt: skip
# A valid body for each PUT, by the beginning of its address.
BODIES: dict[str, Any] = {
    "systems/{name}": {"title": "taken"},
    "systems/{system}/keys/{name}": {"scopes": ["events:read"]},
    "systems/{system}/event-types/{name}": {"description": "taken"},
    "event-types/{name}": {"description": "taken"},
    "consumers/{name}": {"url": "https://thief.example/"},
    "subscriptions/{system}/{consumer}": {"event_types": ["taken.*"]},
    "sms/gateways/{name}": GATEWAY,
    "sms/accounts/{name}": {"system": OWN, "sp_number": "1065599", "corp_id": "12345"},
    "sms/accounts/{name}/tests": {"to": "13800000000", "text": "taken"},
    "landing-pages/{appkey}": {"system": OWN, "title": "taken"},
    "crms/{name}": {"adapter": "hubspot", "credentials": {"token": "t"},
                    "settings": {"object": "contacts", "id_property": "hive_id"}},
    "sources/{name}": {"table": "customer", "time_column": "t", "value_columns": ["a"]},
    "policies/{source}/{crm}": {"system": OWN, "mapping": "firstname = name"},
    "people/{name}": {"email": "taken@example.com"},
    "people/{name}/limit": {"systems": [OWN]},
    "alerts/{id}/acknowledge": {"note": "taken"},
    "consumers/{name}/rotate": {"fingerprint": "x"},
    "failures/{id}/acknowledge": {"note": "taken", "lost": 9, "last_at": "2099-01-01T00:00:00Z"},
    "platform": {"subscriptions": {f"{OTHER}/{OTHER}-hook": {"rate_limit": 5}}},
    "jobs": {"flow": "notify", "action": "resend", "filter": {"biz": OTHER}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": {}}
    keys.forget()
    catalogue.current.cache_clear()
    yield
    keys.forget()
    catalogue.current.cache_clear()


def set_up(name: str) -> BizReceive:
    """One of everything that belongs to a business system; its name is in all of it."""
    biz = Biz.objects.create(name=name, title=f"The {name}")
    row = subscription(biz, f"{name}-hook")
    Receive.objects.filter(pk=row.receive_id).update(
        url=f"https://{name}.example/hook?token=t", title=f"of {name}"
    )
    EventType.objects.create(biz=biz, name=f"{name}.paid", description=f"of {name}")
    keys.create(biz, f"{name}-key", ["events:write"])
    SmsAccount.objects.create(name=f"{name}-sms", biz=biz, sp_number="10655", corp_id="12345")
    LandingPage.objects.create(appkey=f"{name}-page", biz=biz, title=f"of {name}")
    crm = Crm.objects.create(name=f"crm{biz.pk}", adapter="hubspot")
    Policy.objects.create(source=Source.hive(), crm=crm, biz=biz, mapping=f"{name} = email",
                          sweep_cron="")  # fmt: skip
    failure_store.add("notify", [Loss(row.pk, "HTTP 503", 1, f"said to {name}")] * 2, sql.now())
    BizReceive.objects.filter(pk=row.pk).update(status=BizReceive.Status.PAUSED)
    publish(biz, 2)
    Maker().turn()
    MinuteCounter.add("notify", {(biz.pk, 0, "own"): biz.pk}, sql.now())
    return row


@pytest.fixture
def other() -> BizReceive:
    """Everything of the business system that the key is not for, and what belongs to none."""
    set_up(OWN)
    row = set_up(OTHER)
    SmsGateway.objects.create(name="north", **GATEWAY)
    EventType.objects.create(name="order.paid")
    User.objects.create_user("anna")
    alerts.raise_alert("tests", f"about {OTHER}", "Look at it.", "tests:1")
    BulkJob.objects.create(flow="notify", created_by="somebody", filter={"biz": OTHER})
    return row


@pytest.fixture
def limited() -> Manager:
    manager = Manager()
    ApiKey.objects.filter(pk=manager.key.pk).update(systems=[OWN])
    keys.forget()
    return manager


def addresses(row: BizReceive) -> dict[str, dict[str, str]]:
    """Part of an address → its value, by the first word of the address. All of it is there, and
    belongs to the other system, or to the whole platform."""
    crm = Policy.objects.get(biz=row.biz).crm.name
    group = FailureGroup.objects.get(flow="notify", subject=row.pk)
    pair = {"system": OTHER, "consumer": f"{OTHER}-hook"}
    return {
        "systems/{name}": {"name": OTHER},
        "systems/{system}/event-types": {"system": OTHER, "name": f"{OTHER}.paid"},
        "systems/{system}/keys": {"system": OTHER, "name": f"{OTHER}-key"},
        "event-types": {"name": "order.paid"},
        "consumers": {"name": f"{OTHER}-hook"},
        "subscriptions": pair,
        "held": pair,
        "sms/gateways": {"name": "north"},
        "sms/accounts": {"name": f"{OTHER}-sms"},
        "landing-pages": {"appkey": f"{OTHER}-page"},
        "crms": {"name": crm},
        "sources": {"name": "hive"},
        "policies": {"source": "hive", "crm": crm},
        "people": {"name": "anna"},
        "person-data": {"key": "0" * 32},
        "roles": {},
        "alerts": {"id": str(Alert.objects.get().pk)},
        "alert-channels": {"name": "operators"},
        "alert-rules": {"name": "night"},
        "audit": {},
        "failures": {"id": str(group.pk)},
        "jobs": {"id": str(BulkJob.objects.get().pk)},
        "statistics": {},
        "platform": {},
    }


def path_of(operation_path: str, row: BizReceive) -> str:
    path = operation_path.removeprefix("/api/v1/")
    if path == "systems":
        return path
    by_beginning = addresses(row)
    (beginning,) = [each for each in by_beginning if path.startswith(each)]
    return re.sub(r"\{(\w+)\}", lambda part: by_beginning[beginning][part[1]], path)


def content() -> dict[str, list[Any]]:
    """Every row of every table, without when keys were used, and the row that is only locked."""
    ApiKey.objects.update(last_used_at=None)
    KeptObject.objects.filter(section="").delete()
    return {
        model._meta.db_table: list(model._base_manager.order_by("pk").values())
        for model in apps.get_models()
        if model._meta.managed and "session" not in model._meta.db_table
    }


# -- every operation -----------------------------------------------------------------------------
def test_each_operation_says_how_it_keeps_to_a_limit() -> None:
    count = 0
    for path, view in api_views(get_resolver("msgplatform.urls")):
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} & set(view().allowed_methods):
            if (required_scope(view, method) or "").startswith("manage:"):
                assert answers_limited_keys(view, method) is not None, f"{method} {path}"
                count += 1
    assert count == len(list(operations()))


def test_no_operation_shows_or_changes_what_is_another_systems(
    limited: Manager, other: BizReceive
) -> None:
    before = content()
    for operation in operations():
        path = path_of(operation.path, other)
        body = BODIES.get(operation.path.removeprefix("/api/v1/"), {})
        query = "?flow=notify" if path in ("statistics", "failures") else ""
        answer = limited.send(
            operation.method, f"{path}{query}", None if operation.method == "GET" else body
        )
        name = f"{operation.method} {path}: {answer.content[:300]!r}"
        if (operation.method, path) == ("PUT", "platform"):  # the fault names what was sent
            (error,) = problem(answer, 400, "invalid-input")["errors"]
            assert (
                error["message"] == "There is nothing of this name in the business systems orders."
            )
            assert content() == before, name
            continue
        assert OTHER not in answer.content.decode(), name
        if operation.method == "GET":
            assert answer.status_code in (200, 403, 404), name
        else:
            assert answer.status_code in (403, 404), name
            assert content() == before, name
        if answer.status_code == 403:
            problem(answer, 403, "limited-key")
            assert OWN in answer.json()["detail"]
    assert content() == before


def test_what_is_anothers_is_answered_like_what_is_not_there(
    limited: Manager, other: BizReceive
) -> None:
    compared = 0
    for operation in operations():
        path = path_of(operation.path, other)
        body = BODIES.get(operation.path.removeprefix("/api/v1/"), {})
        gone = re.sub(rf"{OTHER}[\w.-]*|crm\d+", "nobody-1", path)
        # A PUT would create what is not there, under a name that all systems share.
        is_creation = operation.method == "PUT" and path.startswith(
            ("sms/accounts", "landing-pages", "policies")
        )
        if is_creation or path == gone or path.startswith(("crms", "sources")):
            continue
        here, there = (limited.send(operation.method, each, body) for each in (path, gone))
        assert here.status_code == there.status_code, path
        assert here.content == there.content, path
        compared += 1
    assert compared >= 20


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sms/accounts/orders-sms", {"sp_number": "10655", "corp_id": "12345"}),
        ("sms/accounts/new", {"sp_number": "10656", "corp_id": "12345"}),
        ("landing-pages/new-page", {"title": "t"}),
        ("policies/hive/new", {"mapping": "firstname = name"}),
    ],
)
def test_nothing_is_handed_to_another_system(
    limited: Manager, other: BizReceive, path: str, body: dict[str, Any]
) -> None:
    Crm.objects.create(name="new", adapter="hubspot")
    before = content()
    answers = [limited.send("PUT", path, {**body, "system": name}) for name in (OTHER, "nobody")]
    texts = [problem(answer, 400, "invalid-input")["detail"] for answer in answers]
    assert texts[0].replace(OTHER, "nobody") == texts[1]
    assert content() == before
    if not path.startswith("policies"):
        assert limited.send("PUT", path, {**body, "system": OWN}).status_code in (200, CREATED)
        return
    problem(limited.send("PUT", path, body), 403, "limited-key")  # the leads of all systems
    assert limited.send("PUT", path, {**body, "system": OWN}).status_code == CREATED


def test_another_systems_incoming_texts_cannot_be_taken(
    limited: Manager, other: BizReceive
) -> None:
    """An MO goes to the longest number that begins its own, then by keyword."""
    SmsAccount.objects.filter(biz=other.biz).update(sp_number="106557")
    body, path = {"system": OWN, "corp_id": "12345"}, "sms/accounts/new"
    before = content()
    for number in ("10655", "106557", "10655701"):
        answer = limited.send("PUT", path, {**body, "sp_number": number})
        (error,) = problem(answer, 400, "invalid-input")["errors"]
        assert error["field"] == "sp_number"
        assert OTHER not in answer.content.decode()
    assert content() == before
    assert limited.send("PUT", path, {**body, "sp_number": "10655801"}).status_code == CREATED
    # A number that a key without a limit lets two systems share.
    shared = {**body, "sp_number": "106557"}
    assert Manager().send("PUT", path, shared).status_code == 200
    assert limited.send("PUT", path, {**shared, "daily_limit": 5}).status_code == 200
    answer = limited.send("PUT", path, {**shared, "daily_limit": 5, "keywords": ["TD"]})
    assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == "keywords"
    # Texts without a keyword go to a default.
    answer = limited.send("PUT", path, {**shared, "is_default": True})
    assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == "is_default"
    assert limited.send("DELETE", path).status_code == 204
    answer = limited.send("PUT", path, shared)
    assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == "enabled"
    alone = {**body, "sp_number": "10655801", "is_default": True}
    assert limited.send("PUT", "sms/accounts/alone", alone).status_code == CREATED


def test_filters_by_system_know_no_other(limited: Manager, other: BizReceive) -> None:
    for path in ("subscriptions?", "event-types?", "sms/accounts?", "landing-pages?", "held?",
                 "statistics?flow=notify&"):  # fmt: skip
        told = [
            problem(limited.send("GET", f"{path}system={name}"), 400, "invalid-input")
            for name in (OTHER, "nobody", str(other.biz_id))
        ]
        assert told[0] == told[1] == told[2]
        assert limited.send("GET", f"{path}system={OWN}").status_code == 200


# -- what such a key can do ----------------------------------------------------------------------
def names(answer: Answer, field: str = "name") -> list[str]:
    return [each[field] for each in answer.json()["results"]]


def test_lists_have_what_is_its_own_and_what_everybody_shares(
    limited: Manager, other: BizReceive
) -> None:
    own = {
        "systems": ["orders"], "consumers": ["orders-hook"], "sms/accounts": ["orders-sms"],
        "systems/orders/keys": ["orders-key"], "subscriptions": ["orders/orders-hook"],
        "event-types": ["order.paid", "orders.paid"], "sms/gateways": ["north"],
    }  # fmt: skip
    for path, expected in own.items():
        assert names(limited.send("GET", path)) == expected
    assert names(limited.send("GET", "landing-pages"), "appkey") == ["orders-page"]
    assert names(limited.send("GET", "held"), "subscription") == ["orders/orders-hook"]
    assert len(names(limited.send("GET", "policies"), "mapping")) == 1
    # Others may send to this consumer too: its URL without what may be secret.
    shown = limited.send("GET", "consumers/orders-hook").json()
    assert "token" not in shown["url"]
    total = limited.send("GET", "statistics?flow=notify").json()["total"]
    assert total["own"] == Biz.objects.get(name=OWN).pk


def test_counters_of_another_system_are_counted_nowhere(limited: Manager) -> None:
    """Of every flow and every group, by whatever number."""
    own, another = (Biz.objects.create(name=name) for name in (OWN, OTHER))
    numbers = range(-3, 4)
    asked = 0
    for flow in flows.all():
        if (activity := flow.health.activity) is None:
            continue
        for biz, counter in ((own, "ours"), (another, "theirs")):
            counts = {(biz.pk, number, counter): 1 for number in numbers}
            MinuteCounter.add(activity.counters, counts, sql.now())
        groups = [f"&{each.name}={number}" for each in activity.dimensions if each.name != "system"
                  for number in (1, 2, 3)]  # fmt: skip
        for group in ("", *groups):
            answer = limited.send("GET", f"statistics?flow={flow.name}{group}")
            assert answer.status_code in (200, 400), answer.content
            assert "theirs" not in answer.content.decode()
            asked += answer.status_code == 200
    assert asked >= 5


def test_a_team_acts_on_its_own(limited: Manager, other: BizReceive) -> None:
    pair = "orders/orders-hook"
    made = limited.send("PUT", "systems/orders/keys/till", {"scopes": ["events:write"]})
    event = {"event_type": "order.paid", "payload": 1}
    assert limited.send("POST", "messages", event, key=made.json()["key"]).status_code == 202
    assert limited.send("PUT", "systems/orders", {"title": "Ours"}).status_code == 200
    assert limited.send("POST", f"held/{pair}/release").json()["held"] == 2
    assert limited.send("PUT", f"subscriptions/{pair}", {"rate_limit": 5}).status_code == 200
    assert limited.send("POST", f"subscriptions/{pair}/deliver").status_code == 200
    (failure,) = limited.send("GET", "failures").json()["results"]
    assert limited.send("POST", f"failures/{failure['id']}/resend", {}).status_code == CREATED
    assert BulkJob.objects.latest("id").filter["subscription"] == pair
    assert limited.send("DELETE", f"subscriptions/{pair}").status_code == 204
    assert BizReceive.objects.get(pk=other.pk).status == BizReceive.Status.PAUSED
    problem(limited.send("PUT", "systems/new", {"title": "New"}), 404, "not-found")


def test_a_view_that_says_nothing_refuses(
    limited: Manager, other: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limited.send("GET", "statistics?flow=notify").status_code == 200
    monkeypatch.setattr(StatisticsView, "answers_limited_keys", None)
    problem(limited.send("GET", "statistics?flow=notify"), 403, "limited-key")
    assert Manager().send("GET", "statistics?flow=notify").status_code == 200


def test_a_limit_outlives_the_system_it_names(limited: Manager) -> None:
    """The list is not empty then: the key sees nothing, not everything."""
    Biz.objects.create(name=OTHER)
    assert names(limited.send("GET", "systems")) == []


# -- where it is set -----------------------------------------------------------------------------
def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (OWN, OTHER):
        Biz.objects.create(name=name)
    call_command("management_key", "team", "--scope", "manage:systems", "--system", OWN)
    plain = capsys.readouterr().out.strip()
    assert names(Manager().send("GET", "systems", key=plain)) == [OWN]
    assert AuditLog.objects.get().detail["systems"] == [OWN]
    with pytest.raises(CommandError, match="no business system nobody"):
        call_command("management_key", "team", "--system", "nobody", stdout=io.StringIO())


def test_in_the_console(admin_client: Client) -> None:
    own, _other = (Biz.objects.create(name=name) for name in (OWN, OTHER))
    form = {"name": "team", "scopes": ["manage:systems"], "systems": [OWN]}
    page = admin_client.post("/admin/msgplatform/apikey/add/", form, follow=True)
    plain = re.search(r"mp_[a-z0-9]{12}_[\w-]{43}", page.content.decode())
    assert plain
    assert names(Manager().send("GET", "systems", key=plain[0])) == [OWN]
    row = ApiKey.objects.get(name="team")
    assert OWN in admin_client.get("/admin/msgplatform/apikey/").content.decode()
    # A system that is gone stays chosen.
    ApiKey.objects.filter(pk=row.pk).update(systems=[OWN, "gone"])
    address = f"/admin/msgplatform/apikey/{row.pk}/change/"
    shown = admin_client.get(address).context["adminform"].form
    chosen = {**form, "systems": shown["systems"].value()}
    admin_client.post(address, {**chosen, "name": "another"})
    row.refresh_from_db()
    assert (row.name, row.systems) == ("another", [OWN, "gone"])
    told = admin_client.post(
        "/admin/msgplatform/apikey/add/",
        {"name": "x", "biz": own.pk, "scopes": ["events:write"], "systems": [OWN]},
    )
    assert "sees only that system" in told.content.decode()
    assert model_to_dict(ApiKey.objects.get(pk=row.pk))["systems"] == [OWN, "gone"]


def test_a_limit_goes_along_with_a_system_that_is_renamed(
    admin_client: Client, limited: Manager, settings: Any
) -> None:
    settings.OIDC_SYSTEMS = {"staff": [OWN]}
    row, free = Biz.objects.create(name=OWN), Manager()
    address = f"/admin/msgplatform/biz/{row.pk}/change/"
    page = admin_client.post(address, {"name": "old", "enabled": "on"}, follow=True)
    assert f"OIDC_SYSTEMS names the system {OWN}: write old there." in page.content.decode()
    Biz.objects.create(name=OWN)  # another team's
    assert names(limited.send("GET", "systems")) == ["old"]
    assert limited.send("GET", f"systems/{OWN}").status_code == 404
    assert names(free.send("GET", "systems")) == ["old", OWN]
    entry = AuditLog.objects.get(action="api_key_changed")
    assert entry.detail["changes"] == {"systems": [[OWN], ["old"]]}


def test_nobody_takes_back_a_limit_of_scopes_that_are_not_theirs(admin_client: Client) -> None:
    for name in (OWN, OTHER):
        Biz.objects.create(name=name)
    row, _plain = keys.create(None, "team", ["manage:systems"], system_names=[OWN, OTHER])
    clerk = User.objects.create_user("clerk", is_staff=True)
    permitted = ["change_apikey", "view_apikey"]
    clerk.user_permissions.set(Permission.objects.filter(codename__in=permitted))
    client = Client()
    client.force_login(clerk)
    form = {"name": "team", "scopes": ["manage:systems"]}
    address = f"/admin/msgplatform/apikey/{row.pk}/change/"
    for who, chosen, is_saved in (
        (client, [OWN], True), (client, [OWN, OTHER], False), (client, [], False),
        (admin_client, [], True),
    ):  # fmt: skip
        before = ApiKey.objects.get().systems
        answer = who.post(address, {**form, "systems": chosen})
        assert (answer.status_code == 302) == is_saved
        assert ApiKey.objects.get().systems == (chosen if is_saved else before)
