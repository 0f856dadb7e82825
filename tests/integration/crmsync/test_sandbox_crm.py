"""The sandbox as a CRM: records reach it through the handler, and it fails as it is told to."""

import time
from typing import Any

import pytest
import time_machine
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client

from crmsync.adapters import sandbox as sandbox_adapter
from crmsync.adapters.base import Record as AdapterRecord
from crmsync.adapters.registry import open_adapter
from crmsync.adapters.sandbox import Records, StoredRecord
from crmsync.models import Crm, Record, RecoveryEntry
from crmsync.monitor import conditions, failures
from crmsync.setup.policies import PolicyResource
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog
from tests.integration.crmsync import sync_support as sync
from tests.support import crm_rows
from tests.support.management import Manager

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED, _HELD = Record.State
PATH = "crms/sales/sandbox"


@pytest.fixture
def manager() -> Manager:
    keys.forget()
    return Manager("manage:sandbox")


@pytest.fixture
def crm() -> Crm:
    return sync.crm("sales", "sandbox", settings={"fields": ["name"]}, retry_seconds=[0, 0])


def test_records_come_are_changed_and_are_deleted(crm: Crm, manager: Manager) -> None:
    policy = sync.policy(crm)
    queued = sync.queued(policy, sync.requests("abc"))
    sync.handled(queued)
    assert queued.states() == dict.fromkeys("abc", CONFIRMED)
    answer = manager.send("GET", PATH).json()
    assert {each["key"]: each["values"] for each in answer["records"]} == {
        key: {"name": f"name {key}"} for key in "abc"
    }
    (call,) = answer["calls"]
    assert (call["answer"], call["count"], sorted(call["keys"])) == ("store", 3, ["a", "b", "c"])
    sync.newer(queued, "a")
    sync.deleted(queued, "b")
    Record.objects.filter(key="a").update(state=WAITING)
    sync.again(queued)
    with sync.running() as handler:
        sync.turn_until(handler, lambda: set(queued.states().values()) == {CONFIRMED})
    held = {each["key"]: each for each in manager.send("GET", PATH).json()["records"]}
    assert held.keys() == {"a", "c"}
    assert (held["a"]["values"], held["a"]["version"]) == ({"name": "newer"}, 2)
    assert manager.send("DELETE", PATH).status_code == 204
    answer = manager.send("GET", PATH).json()
    assert (answer["records"], answer["calls"]) == ([], [])
    assert AuditLog.objects.get(action="sandbox_emptied").target == crm.name


def test_other_values_of_the_same_version_are_stored(crm: Crm) -> None:
    """Such as a correction, or those of another mapping."""
    adapter = open_adapter("sandbox", crm.settings, {})
    for version, name in ((2, "too long"), (2, "short"), (1, "old")):
        assert adapter.send([AdapterRecord("a", version, {"name": name})])
        (held,) = Records("sandbox").all()
    assert (held.version, held.fields) == (2, {"name": "short"})


@pytest.mark.parametrize(
    ("answer", "state", "error_class"),
    [("invalid", DEAD, "invalid"), ("error", RETRY, "retry"), ("down", RETRY, "retry"),
     ("lost", RETRY, "unknown")],
)  # fmt: skip
def test_it_fails_as_it_is_told_to(
    crm: Crm, manager: Manager, answer: str, state: int, error_class: str
) -> None:
    Crm.objects.update(retry_seconds=[3600])
    manager.send("PUT", PATH, {"answer": answer, "delay": 0.01})
    queued = sync.queued(sync.policy(crm), sync.requests("a"))
    sync.handled(queued)
    record = queued.record("a")
    assert (record.state, record.error_class) == (state, error_class)
    kept = manager.send("GET", PATH).json()
    assert kept["calls"][0]["answer"] == answer
    assert [each["key"] for each in kept["records"]] == (["a"] if answer == "lost" else [])
    assert manager.send("PUT", PATH, {}).json()["answer"] == "store"
    sync.again(queued)
    if answer != "invalid":
        with sync.running() as handler:
            sync.turn_until(handler, lambda: queued.states()["a"] == CONFIRMED)


def test_refused_credentials_pause_it_and_make_no_alert(crm: Crm, manager: Manager) -> None:
    manager.send("PUT", PATH, {"answer": "auth"})
    policy = sync.policy(crm)
    sync.queued(policy, sync.requests("a"))
    with sync.running() as handler:
        sync.turn_until(handler, lambda: Crm.objects.filter(paused_at__isnull=False).exists())
    assert Crm.objects.get().paused_because
    entry = RecoveryEntry(policy_id=1, operation_id=1, record_id=1, error_class="auth", reason="no")
    with transaction.atomic():
        failures.open_entries(crm.pk, [entry], sql.now())
    assert [one.is_quiet for one in failures.failures()] == [True]
    other = sync.crm("real", "sql", paused_at="2026-01-01T00:00:00Z", paused_because="no")
    assert [one.key for one in conditions.conditions()] == [f"{conditions.PAUSED}:{other.pk}"]


def test_what_is_wrong_is_said(crm: Crm, manager: Manager, settings: LazySettings) -> None:
    for body, field in (({"answer": "dance"}, "answer"), ({"delay": 99}, "delay")):
        answer = manager.send("PUT", PATH, body)
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == field
    with pytest.raises(InvalidInput, match="space"):
        open_adapter("sandbox", {"space": "A b"}, {})
    assert open_adapter("sandbox", crm.settings, {}).check(["phone"]).kind == "field"
    sync.crm("real", "sql")
    assert manager.send("GET", "crms/real/sandbox").status_code == 409
    assert manager.send("GET", "crms/none/sandbox").status_code == 404
    settings.SANDBOX = False
    assert "SANDBOX" in manager.send("GET", PATH).json()["detail"]
    with pytest.raises(InvalidInput, match="SANDBOX"):
        open_adapter("sandbox", {}, {})


def test_what_it_holds_is_bounded(
    crm: Crm, work_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_adapter, "MAX_RECORDS", 3)
    records = Records("sandbox")
    queued = sync.queued(sync.policy(crm), sync.requests("abc"))
    sync.handled(queued)
    full = sync.queued(sync.policy(crm, "others", key_prefix="x"), sync.requests("de"))
    sync.handled(full)
    assert set(full.states().values()) == {RETRY}
    assert {one.key for one in records.all()} == set("abc")
    names = work_redis.keys("sandbox:crm:*")
    assert len(names) == 2
    assert all(0 < work_redis.ttl(name) <= 3600 for name in names)


def test_records_of_an_hour_ago_are_gone(work_redis: Any) -> None:
    for key, seconds in (("a", 0), ("b", 3601)):
        with time_machine.travel(time.time() + seconds):
            Records("sandbox").put({key: StoredRecord(key, 1, {}, time.time())})
    assert work_redis.hlen("sandbox:crm:sandbox:records") == 1


def test_one_click_makes_it_with_a_policy(admin_client: Client) -> None:
    crm_rows.hive()
    page = "/admin/crmsync/crm/sandbox/"
    assert b"There is none yet" in admin_client.get(page).content
    assert b"Use lower-case letters" in admin_client.post(page, {"name": "A b"}).content
    answer = admin_client.post(page, {"name": "training"})
    row = Crm.objects.get()
    assert answer["Location"] == f"/admin/crmsync/crm/{row.pk}/sandbox/"
    assert (row.adapter, row.settings) == ("sandbox", {"space": "training"})
    policy = row.policy_set.get()
    assert policy.source.is_hive
    assert not list(PolicyResource("tester").faults(policy, None))
    assert b"already exists" in admin_client.post(page, {"name": "training"}).content
    actions = list(AuditLog.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["crm_added", "policy_added"]


def test_the_page(crm: Crm, admin_client: Client) -> None:
    page = f"/admin/crmsync/crm/{crm.pk}/sandbox/"
    assert "It holds no record" in admin_client.get(page).content.decode()
    admin_client.post(page, {"answer": "error", "count": "5", "minutes": "5", "delay": "0.01"})
    sync.handled(sync.queued(sync.policy(crm), sync.requests("a", values={"name": "Ann Lee"})))
    text = admin_client.get(page).content.decode()
    assert "It was told: 500: fails" in text
    assert "for 4 more calls" in text
    wrong = admin_client.post(page, {"answer": "error", "minutes": "99"}).content.decode()
    assert "less than or equal to 60" in wrong
    assert admin_client.post(page, {"usual": "1"}, follow=True).status_code == 200
    sync.handled(
        sync.queued(
            sync.policy(crm, "x", key_prefix="x"), sync.requests("b", values={"name": "Bo"})
        )
    )
    live = admin_client.get(page, {"live": "1"}).content.decode()
    assert "It stores every record" in live
    assert "Bo" in live
    assert AuditLog.objects.filter(action="sandbox_behaviour").count() == 2
    viewer = User.objects.create_user("viewer", is_staff=True)
    names = ("view_crm", "view_record", "view_lead")
    viewer.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    client.force_login(viewer)
    text = client.get(page).content.decode()
    assert "B****" in text
    assert "Ann Lee" not in text
    assert "Let it answer differently" not in text
    assert client.post(page, {"usual": "1"}).status_code == 403
    other = sync.crm("real", "sql")
    assert admin_client.get(f"/admin/crmsync/crm/{other.pk}/sandbox/").status_code == 404
    admin_client.post(page, {"empty": "1"})
    assert AuditLog.objects.filter(action="sandbox_emptied").count() == 1
    assert "It holds no record" in admin_client.get(page).content.decode()
