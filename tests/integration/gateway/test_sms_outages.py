"""An alert for a gateway without a connection: one, which is resolved when it has one again."""

import time
from typing import Any

import pytest

from gateway import presence
from gateway.directory import Directory
from gateway.flow import FLOW
from gateway.models import SmsGateway
from gateway.monitor import conditions
from gateway.presence import LinkState
from msgplatform.core import alerts as platform_alerts, outbound
from msgplatform.core.alerts import Condition
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.presence import Presence
from msgplatform.models import Alert
from tests.support.sms_rows import gateway

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis"),
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage has an alert at the first look."""
    monkeypatch.setattr(conditions, "OUTAGE_SECONDS", 0.0)


def says(sender: str, row: SmsGateway, problem: str = "", kind: str = "submit") -> None:
    presence.report(sender, [LinkState(row.pk, kind, "peer", time.time(), problem=problem)])


def look() -> None:
    """As the daemon of the platform that holds the watch."""
    health = FLOW.health
    platform_alerts.reconcile(health.condition_kinds, list(health.conditions()))


def alerts() -> list[tuple[str, bool]]:
    """Subject and whether it is over."""
    rows = Alert.objects.filter(kind="sms.gateway").order_by("id")
    return [(row.subject, row.resolved_at is not None) for row in rows]


def test_one_alert_that_says_why_and_ends() -> None:
    row = gateway(name="unicom")
    says("one", row, "login refused: 1 illegal login")
    for _ in range(3):
        look()
    assert alerts() == [("No connection to the gateway unicom", False)]
    text = Alert.objects.get().text
    assert "login refused: 1" in text
    assert f"{row.host}:{row.port}" in text
    says("other", row)
    look()
    assert alerts() == [("No connection to the gateway unicom", True)]


def test_nobody_runs_its_own_process() -> None:
    """The senders of the other gateways leave it alone; its own sender ends the alert."""
    row = gateway(name="unicom")
    SmsGateway.objects.update(own_process=True)
    look()
    directory = Directory()
    directory.refresh()
    assert directory.served_gateways(()) == {}
    assert alerts() == [("No connection to the gateway unicom", False)]
    assert "run_sms_sender --gateway unicom is not running" in Alert.objects.get().text
    says("own", row)
    look()
    assert list(directory.served_gateways(("unicom",))) == [row.pk]
    assert alerts() == [("No connection to the gateway unicom", True)]


def test_nobody_serves_it() -> None:
    row = gateway()
    says("one", row, kind="standby")
    look()
    assert "no sender serves it" in Alert.objects.get().text


def test_a_short_break_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "OUTAGE_SECONDS", 60.0)
    row = gateway()
    says("one", row, "link lost")
    look()
    look()
    assert alerts() == []


def test_a_look_after_a_long_time_begins_anew(
    monkeypatch: pytest.MonkeyPatch, sms_redis: Any
) -> None:
    """The platform was stopped meanwhile: its senders have not had the time to connect."""
    monkeypatch.setattr(conditions, "OUTAGE_SECONDS", 60.0)
    row = gateway()
    assert presence.outages.note([row.pk])[row.pk] == 0.0
    times = Presence(lambda: sms_redis, "{sms}:gateway-away", float, 60.0)
    times.report({row.pk: time.time() - 59.0})
    assert 50.0 < presence.outages.note([row.pk])[row.pk] < 70.0
    assert 0 < sms_redis.ttl("{sms}:gateway-away") <= 60
    assert presence.outages.note([]) == {}
    assert not sms_redis.exists("{sms}:gateway-away")


@pytest.mark.parametrize("how", ["switched off", "deleted"])
def test_one_that_nobody_wants_any_more(how: str) -> None:
    row = gateway()
    look()
    assert alerts()[0][1] is False
    if how == "deleted":
        row.delete()
        gateway(name="another")
        says("one", SmsGateway.objects.get())
    else:
        SmsGateway.objects.update(enabled=False)
    look()
    assert alerts()[0][1] is True


def test_it_stays_while_nothing_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway()
    look()
    monkeypatch.setattr(outbound, "is_off", lambda: True)
    look()
    assert alerts()[0][1] is False


def test_a_redis_that_does_not_answer_mutes_no_other_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway()
    look()

    def away() -> None:
        raise RedisError("away")

    monkeypatch.setattr(presence, "live", away)
    monkeypatch.setattr(
        conditions, "_failing", lambda: [Condition(f"{conditions.FAILING}:1", "failing", "")]
    )
    look()
    assert alerts()[0][1] is False
    assert Alert.objects.filter(kind=conditions.FAILING, resolved_at=None).exists()


def test_an_outage_that_began_before_this_process(
    monkeypatch: pytest.MonkeyPatch, sms_redis: Any
) -> None:
    row = gateway()
    look()
    assert alerts()[0][1] is False
    sms_redis.delete("{sms}:link", "{sms}:gateway-away")
    monkeypatch.setattr(conditions, "OUTAGE_SECONDS", 60.0)
    look()
    assert alerts()[0][1] is False, "it is down for all we know"
    says("after", row)
    look()
    assert alerts()[0][1] is True
