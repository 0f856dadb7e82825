"""Alerts: kept once while open, news goes out as events of the business system `platform`."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform.core import alerts
from msgplatform.core.lazy_text import lazy_message
from msgplatform.jobs import bulk
from msgplatform.models import Alert, AuditLog, Biz, Preferences
from msgplatform.monitor import alert_store
from msgplatform.monitor.watch.of_flows import report_conditions
from notify.models import BizMsg, BizReceive
from notify.monitor import alert_events
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
KEY = "sms.link:7"


@pytest.fixture
def platform() -> Biz:
    return Biz.objects.create(name="platform")


@pytest.fixture
def news() -> Iterator[list[alerts.AlertEvent]]:
    """What a further way out is handed."""
    found: list[alerts.AlertEvent] = []
    alerts.register("test", found.append)
    yield found
    alerts._handlers.pop("test")


def alarm(key: str = KEY, text: str = "the link is down") -> None:
    alerts.raise_alert("sms.link", "Gateway 7", text, key)


def events() -> list[tuple[str, dict[str, Any]]]:
    rows = BizMsg.objects.order_by("id").values_list("event_type", "payload")
    return [(event_type, msgspec.json.decode(bytes(payload))) for event_type, payload in rows]


def test_an_alert_goes_out_once_and_once_more_when_it_is_over(platform: Biz) -> None:
    for _ in range(3):
        alarm()
    alerts.resolve(KEY)
    alerts.resolve(KEY)
    said = {"kind": "sms.link", "subject": "Gateway 7", "text": "the link is down", "key": KEY}
    assert events() == [
        ("platform.alert", {**said, "count": 1}),
        ("platform.alert.resolved", {**said, "count": 3}),
    ]
    assert Alert.objects.get().count == 3
    alarm()
    assert len(events()) == 3, "raised again it is a new alert"


def conditions(*keys: str) -> list[alerts.Condition]:
    return [alerts.Condition(key, f"Gateway {key}", "the link is down") for key in keys]


def open_keys() -> set[str]:
    return {key for key in Alert.objects.values_list("open_key", flat=True) if key}


def test_open_alerts_become_what_holds_now(news: list[alerts.AlertEvent]) -> None:
    alarm("sms.linked:1")
    alerts.reconcile(["sms.link"], conditions("sms.link:1", "sms.link:2"))
    assert open_keys() == {"sms.linked:1", "sms.link:1", "sms.link:2"}
    news.clear()
    alerts.reconcile(["sms.link"], conditions("sms.link:2", "sms.link:3"))
    assert open_keys() == {"sms.linked:1", "sms.link:2", "sms.link:3"}
    assert [(event.key, event.resolved) for event in news] == [
        ("sms.link:3", False), ("sms.link:1", True),
    ]  # fmt: skip
    assert Alert.objects.get(key="sms.link:2").count == 1, "what stays open is not raised again"


def test_what_nobody_can_say_stays_open() -> None:
    alerts.reconcile(["sms.link"], conditions("sms.link:1", "sms.link:2"))
    alerts.reconcile(["sms.link"], (), {"sms.link:2"}.__contains__)
    assert open_keys() == {"sms.link:2"}


def test_nothing_is_raised_or_resolved_when_the_open_ones_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alerts.reconcile(["sms.link"], conditions("sms.link:1"))

    def broken(*_: object) -> set[str]:
        raise OperationalError("gone")

    monkeypatch.setattr(alert_store.AlertTable, "open_keys", broken)
    assert not alerts.reconcile(["sms.link"], conditions("sms.link:2"))
    assert open_keys() == {"sms.link:1"}


@pytest.mark.parametrize("enabled", [None, False])
def test_without_the_business_system_nothing_goes_out(enabled: bool | None) -> None:
    if enabled is not None:
        Biz.objects.create(name="platform", enabled=enabled)
    alarm()
    assert Alert.objects.count() == 1
    assert events() == []


def test_in_a_transaction_it_waits_for_the_commit(platform: Biz) -> None:
    with transaction.atomic():
        alarm()
        assert Alert.objects.count() == 0
    assert Alert.objects.count() == 1
    assert len(events()) == 1


def test_what_was_rolled_back_is_not_told(platform: Biz) -> None:
    with transaction.atomic():
        alarm()
        transaction.set_rollback(True)
    assert Alert.objects.count() == 0
    assert events() == []


def test_an_alert_that_cannot_be_stored_harms_nobody(platform: Biz) -> None:
    """Neither what goes on around it nor, inside a transaction, what was done before it."""
    name = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = "/no/such/place"
    try:
        with pytest.raises(OperationalError):
            Alert.objects.count()
        alarm()
    finally:
        connection.close()
        connection.settings_dict["NAME"] = name
    with transaction.atomic():
        Biz.objects.create(name="kept")
        alerts.raise_alert("kind", "subject", None, "key")  # type: ignore[arg-type]  # NOT NULL
        Biz.objects.create(name="kept too")
    assert Biz.objects.filter(name__startswith="kept").count() == 2
    assert Alert.objects.count() == 0


def test_a_way_out_that_breaks_stops_no_other(platform: Biz, news: list[alerts.AlertEvent]) -> None:
    def broken(_event: alerts.AlertEvent) -> None:
        raise RuntimeError

    alerts.register("test", broken)
    alerts.register("behind", news.append)
    try:
        alarm()
    finally:
        alerts._handlers.pop("behind")
    assert [event.key for event in news] == [KEY]
    assert len(events()) == 1


def test_raised_by_many_at_once_it_is_one(platform: Biz) -> None:
    barrier = threading.Barrier(6)

    def run() -> None:
        barrier.wait()
        alarm()
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events()) == 1
    alert = Alert.objects.get()
    assert alert.open_key == KEY
    assert 1 <= alert.count <= 6


def test_an_alert_about_its_own_delivery_stays_in_the_console(platform: Biz) -> None:
    pager = subscription(platform, "pager")
    other = subscription(Biz.objects.create(name="orders"), "warehouse")
    BizReceive.objects.update(status=BizReceive.Status.DISABLED, disabled_reason="it was gone")
    report_conditions()
    assert set(Alert.objects.values_list("key", flat=True)) == {
        f"notify.disabled:{pager.pk}", f"notify.disabled:{other.pk}",
    }  # fmt: skip
    assert [payload["key"] for _, payload in events()] == [f"notify.disabled:{other.pk}"]
    assert alert_events.MissedAlerts().announce() == 0


def test_what_a_killed_process_did_not_publish_is_published_later(platform: Biz) -> None:
    handler = alerts._handlers.pop("notify")
    try:
        alarm("first")
        alarm("second")
        alerts.resolve("second")
    finally:
        alerts._handlers["notify"] = handler
    assert events() == []
    bulk.BulkRunner().turn()
    assert [(kind, payload["key"]) for kind, payload in events()] == [
        ("platform.alert", "first"),
        ("platform.alert", "second"),
        ("platform.alert.resolved", "second"),
    ]
    missed_alerts = alert_events.MissedAlerts()
    assert missed_alerts.announce() == 0
    alarm("first")
    assert missed_alerts.announce() == 0, "another count is not another alert"
    assert len(events()) == 3


def test_an_old_alert_whose_end_was_not_published_ends_later(
    platform: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is none of the newest any more, and each look but the first one reads few rows."""
    monkeypatch.setattr(alert_events, "_MAX_ALERTS", 2)
    alarm("old")
    Alert.objects.update(first_at=F("first_at") - timedelta(days=2))
    for number in range(3):
        alarm(f"later.{number}")
    missed_alerts = alert_events.MissedAlerts()
    assert missed_alerts.announce() == 0
    handler = alerts._handlers.pop("notify")
    try:
        alerts.resolve("old")
    finally:
        alerts._handlers["notify"] = handler
    with CaptureQueriesContext(connection) as queries:
        assert missed_alerts.announce() == 1
    kind, payload = events()[-1]
    assert (kind, payload["key"]) == ("platform.alert.resolved", "old")
    conditions = [query["sql"].partition("WHERE")[2] for query in queries]
    (condition,) = (text for text in conditions if "resolved_at" in text)
    assert " IN (" in condition
    assert missed_alerts.announce() == 0


def test_without_the_business_system_no_alert_is_looked_for() -> None:
    alarm()
    with CaptureQueriesContext(connection) as queries:
        assert alert_events.MissedAlerts().announce() == 0
    assert len(queries) == 1


def test_overlong_texts_are_cut(platform: Biz) -> None:
    alerts.raise_alert("k" * 100, "s" * 500, "t" * 300_000, "y" * 500)
    alerts.raise_alert("k" * 100, "s" * 500, "t" * 300_000, "y" * 500)
    assert Alert.objects.get().count == 2
    alerts.resolve("y" * 500)
    assert len(events()) == 2


# -- languages -----------------------------------------------------------------------------------
def chinese(client: Client) -> Client:
    Preferences.objects.create(user=User.objects.get(), language="zh-hans")
    return client


def test_everybody_reads_it_in_their_language(platform: Biz, admin_client: Client) -> None:
    row = subscription(Biz.objects.create(name="orders"))
    BizReceive.objects.filter(pk=row.pk).update(
        status=BizReceive.Status.DISABLED, disabled_reason="it is broken"
    )
    report_conditions()
    alert = Alert.objects.get()
    english = f"The subscription {row} was disabled"
    assert alert.subject == english
    ((_type, payload),) = events()
    assert payload["subject"] == english, "whoever reads it: webhooks have the platform's language"
    pages = (
        "/console/",
        "/admin/msgplatform/alert/",
        f"/admin/msgplatform/alert/{alert.pk}/change/",
    )
    for page in pages:
        assert english in unescape(admin_client.get(page).content.decode()), page
    chinese(admin_client)
    for page in pages:
        shown = unescape(admin_client.get(page).content.decode())
        assert english not in shown, page
        assert str(row) in shown, page
    assert "it is broken" in shown
    assert "its deliveries wait" not in shown.lower()
    # What the page shows is not what is stored, nor what the audit log says of it.
    admin_client.post(f"/admin/msgplatform/alert/{alert.pk}/do/resolve/")
    alert.refresh_from_db()
    assert alert.subject == english
    assert AuditLog.objects.get(action="alert_resolved").target == english


def test_one_of_an_earlier_release_stays_as_it_was(admin_client: Client) -> None:
    alarm()
    assert Alert.objects.get().said == {}
    chinese(admin_client)
    assert "Gateway 7" in admin_client.get("/admin/msgplatform/alert/").content.decode()


def test_a_text_that_changes_is_renewed_in_all_languages() -> None:
    def holds(minutes: int) -> None:
        text = lazy_message("It has been open for %(minutes)d minutes.", minutes=minutes)
        alerts.reconcile(["sms.link"], [alerts.Condition(KEY, "Gateway 7", text)])

    holds(1)
    holds(2)
    row = Alert.objects.get()
    assert row.text == "It has been open for 2 minutes."
    assert row.said["text"][1] == {"minutes": 2}
    assert row.count == 1


def test_titles_of_flows(admin_client: Client) -> None:
    assert "CRM sync" in admin_client.get("/console/").content.decode()
    shown = chinese(admin_client).get("/console/").content.decode()
    assert "CRM 同步" in shown
    assert "CRM sync" not in shown


def test_no_telephone_number_goes_out(platform: Biz) -> None:
    alerts.raise_alert("sms.mo", "From 10.20.30.40", "13800138000 at 192.168.100.200.", "sms.mo:1")
    ((_type, payload),) = events()
    assert payload["subject"] == "From 10.20.30.40"
    assert payload["text"] == "138****8000 at 192.168.100.200."
