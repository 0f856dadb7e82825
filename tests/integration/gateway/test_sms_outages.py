"""An alert for a gateway without a connection: one, which is resolved when it has one again."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway import presence
from gateway.directory import Directory
from gateway.models import SmsGateway
from gateway.presence import LinkState
from gateway.sender.outages import Outages
from msgplatform.models import Alert
from tests.integration.support.sms_net_support import lasting_reports
from tests.integration.support.sms_rows import gateway

__all__ = ["lasting_reports"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "lasting_reports"),
]


class Sender:
    """What one process knows and says."""

    def __init__(self, name: str, only: tuple[str, ...] = (), patience: float = 0.0) -> None:
        self.name, self.directory = name, Directory(refresh_seconds=0.0)
        self._outages = Outages(self.directory, only, every=0.0, patience=patience)

    def says(self, row: SmsGateway, problem: str = "", kind: str = "submit") -> None:
        presence.report(self.name, [LinkState(row.pk, kind, "peer", time.time(), problem=problem)])

    def looks(self) -> None:
        self.directory.refresh()
        self._outages.look()


def alerts() -> list[tuple[str, bool]]:
    """Subject and whether it is over."""
    rows = Alert.objects.filter(kind="sms.gateway").order_by("id")
    return [(row.subject, row.resolved_at is not None) for row in rows]


def test_one_alert_that_says_why_and_ends() -> None:
    row = gateway(name="unicom")
    one, other = Sender("one"), Sender("other")
    one.says(row, "login refused: 1 illegal login")
    for sender in (one, other, one):
        sender.looks()
    assert alerts() == [("No connection to the gateway unicom", False)]
    text = Alert.objects.get().text
    assert "login refused: 1" in text
    assert f"{row.host}:{row.port}" in text
    other.says(row)
    for sender in (one, other):
        sender.looks()
    assert alerts() == [("No connection to the gateway unicom", True)]


def test_nobody_runs_its_own_process() -> None:
    """Those that leave it alone look at it all the same; its own sender ends the alert."""
    row = gateway(name="unicom")
    SmsGateway.objects.update(own_process=True)
    general, own = Sender("general"), Sender("own", only=("unicom",))
    general.looks()
    assert general.directory.served(()) == {}
    assert alerts() == [("No connection to the gateway unicom", False)]
    assert "run_sms_sender --gateway unicom is not running" in Alert.objects.get().text
    own.says(row)
    own.looks()
    assert list(own.directory.served(("unicom",))) == [row.pk]
    assert alerts() == [("No connection to the gateway unicom", True)]


def test_nobody_serves_it() -> None:
    row = gateway()
    sender = Sender("one")
    sender.says(row, kind="standby")
    sender.looks()
    assert "no sender serves it" in Alert.objects.get().text


def test_a_short_break_is_no_news() -> None:
    row = gateway()
    sender = Sender("one", patience=60.0)
    sender.says(row, "link lost")
    sender.looks()
    sender.looks()
    assert alerts() == []


def test_a_gateway_of_other_senders_is_theirs() -> None:
    gateway(name="theirs")
    mine = gateway(name="mine")
    sender = Sender("one", only=("mine",))
    sender.says(mine)
    sender.looks()
    assert alerts() == []


@pytest.mark.parametrize("how", ["switched off", "deleted"])
def test_one_that_nobody_wants_any_more(how: str) -> None:
    row = gateway()
    sender = Sender("one")
    sender.looks()
    assert alerts()[0][1] is False
    if how == "deleted":
        row.delete()
        gateway(name="another")
        sender.says(SmsGateway.objects.get())
    else:
        SmsGateway.objects.update(enabled=False)
    sender.looks()
    assert alerts()[0][1] is True


def test_an_outage_that_began_before_this_process(sms_redis: Any) -> None:
    row = gateway()
    before = Sender("before")
    before.looks()
    assert alerts()[0][1] is False
    sms_redis.delete("{sms}:link")
    after = Sender("after", patience=60.0)
    after.looks()
    assert alerts()[0][1] is False, "it is down for all we know"
    after.says(row)
    after.looks()
    assert alerts()[0][1] is True
