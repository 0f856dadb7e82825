"""Alerts reach people: real child processes, against robots that check what their documents say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from django.urls import reverse

from msgplatform.alerting import texts
from msgplatform.alerting.turn import Sender
from msgplatform.core import alerts
from msgplatform.models import Alert, AlertChannel, AlertMessage, AlertNews, AlertRule
from tests.support import robot_sinks
from tests.support.robot_sinks import DINGTALK, SECRET, TOKEN, Robots

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
SECONDS = 120.0
NOON = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robots]:
    with robot_sinks.running(tmp_path_factory.mktemp("robots")) as robots:
        yield robots


@pytest.fixture
def robots(world: Robots, settings: Any) -> Robots:
    world.calls.clear()
    world.modes.clear()
    settings.OUTBOUND_PROXY = world.proxy
    settings.OUTBOUND_CA_FILE = str(world.ca_file)
    return world


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=True) as traveller:
        yield traveller


def channel(
    name: str = "operators", url: str = f"dingtalk://{SECRET}@{TOKEN}/", **values: Any
) -> AlertChannel:
    return AlertChannel.objects.create(name=name, url=url, shown=name, **values)


def rule(*channels: AlertChannel, name: str = "all", **values: Any) -> AlertRule:
    row = AlertRule.objects.create(name=name, **{"group_seconds": 0, **values})
    row.channels.set(channels)
    return row


def alarm(key: str = "sms.gateway:7", subject: str = "Gateway 7", text: str = "it is down") -> None:
    alerts.raise_alert(key.partition(":")[0], subject, text, key)


def work(sender: Sender | None = None) -> Sender:
    """Turns until nothing is due any more and no send is under way."""
    sender = sender or Sender()
    deadline = time.monotonic() + SECONDS
    while True:
        sender.turn(may_start=True)
        if sender.is_idle:
            return sender
        assert time.monotonic() < deadline, "a send has no end"
        time.sleep(0.02)


def test_an_alert_and_its_end_reach_a_chat(robots: Robots) -> None:
    rule(channel())
    alarm()
    work()
    (call,) = robots.of(DINGTALK)
    alert = Alert.objects.get()
    markdown = call.body["markdown"]
    assert markdown["title"] == "msgplatform: [critical] Gateway 7"
    assert "it is down" in markdown["text"]
    page = reverse("admin:msgplatform_alert_change", args=[alert.pk])
    assert texts.alert_url(alert).endswith(page)
    assert f"]({texts.alert_url(alert)})" in markdown["text"]
    message = AlertMessage.objects.get()
    assert (message.state, message.attempts, message.error) == ("sent", 1, "")
    alerts.resolve("sms.gateway:7")
    work()
    assert robots.of(DINGTALK)[1].body["markdown"]["title"] == "msgplatform: [resolved] Gateway 7"
    work()
    assert len(robots.calls) == 2
    assert not AlertNews.objects.exists()
