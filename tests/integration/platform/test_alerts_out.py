"""Alerts reach people: real child processes, against robots that check what their documents say."""

import email
import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from email import policy
from html import unescape
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import time_machine
from aiosmtpd.controller import Controller
from django.db import OperationalError, connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from msgplatform.company.alerting import planning, send, texts
from msgplatform.company.alerting.models import AlertChannel, AlertMessage, AlertNotice, AlertRule
from msgplatform.company.alerting.outbox import MAX_SECONDS, Child, Outcome, check
from msgplatform.company.alerting.turn import Sender, write_summary
from msgplatform.core import alerts
from msgplatform.core.errors import Unavailable
from msgplatform.core.servers.private_server import free_port
from msgplatform.models import Alert, AlertNews, AuditLog, Biz, DayCounter, MinuteCounter
from msgplatform.monitor import alert_store
from tests.support import robot_sinks
from tests.support.api_support import problem
from tests.support.management import Manager
from tests.support.notify_rows import subscription
from tests.support.robot_sinks import (
    DINGTALK,
    FEISHU,
    PAGERDUTY,
    PLAIN,
    SECRET,
    SLACK,
    SLACK_PATH,
    TOKEN,
    WECOM,
    Robots,
)
from tests.waiting import pause

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
SECONDS = 120.0
CHANNELS = "/admin/msgplatform/alertchannel/"
NOON = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robots]:
    with robot_sinks.running(tmp_path_factory.mktemp("robots")) as robots:
        yield robots


@pytest.fixture
def robots(world: Robots, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Robots:
    world.calls.clear()
    world.modes.clear()
    settings.OUTBOUND_PROXY = world.proxy
    settings.OUTBOUND_CA_FILE = str(world.ca_file)
    # A child has so many seconds: a busy machine takes long to start one.
    monkeypatch.setattr(Child.__init__, "__defaults__", (60,))
    return world


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


def at(moment: datetime) -> time_machine.travel:
    """A clock that stands still: how long a send takes has no part in what is due."""
    return time_machine.travel(moment, tick=False)


def work(sender: Sender | None = None) -> Sender:
    """Turns until nothing is due any more and no send is under way."""
    sender = sender or Sender()
    begun = time.monotonic()
    while True:
        sender.turn(may_start=True)
        if sender.is_idle:
            return sender
        assert time.monotonic() < begun + SECONDS, "a send has no end"
        pause(begun, 0.1)  # a child starts for longer


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


@pytest.mark.parametrize(
    ("host", "url", "shown"),
    [
        (DINGTALK, f"https://oapi.dingtalk.com/robot/send?access_token={TOKEN}&secret={SECRET}",
         lambda body: body["markdown"]["text"]),
        (WECOM, f"wecombot://{TOKEN}", lambda body: body["markdown"]["content"]),
        (WECOM, f"wecombot://{TOKEN}?format=text", lambda body: body["text"]["content"]),
        (FEISHU, f"feishu://{TOKEN}?secret={SECRET}",
         lambda body: body["card"]["elements"][0]["content"]),
        (FEISHU, f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}?secret={SECRET}&format=text",
         lambda body: body["content"]["text"]),
        (SLACK, f"https://hooks.slack.com{SLACK_PATH}", json.dumps),
        (PLAIN, f"jsons://{PLAIN}/hook", lambda body: body["message"]),
    ],
)  # fmt: skip
def test_each_robot_takes_a_hundred_alerts_as_one_message(
    robots: Robots, host: str, url: str, shown: Callable[[Any], str]
) -> None:
    """By its own document: signature, fields, length."""
    rule(channel(url=url, language="zh-hans"), group_seconds=1)
    for number in range(100):
        alarm(f"notify.failing:{number}", f"订阅 {number}", "消费者没有回答。" * 40)
    work()
    assert robots.calls == [], "the window is open"
    AlertMessage.objects.update(due_at=timezone.now())
    work()
    message = AlertMessage.objects.get()
    assert (message.state, message.error) == ("sent", "")
    (call,) = robots.of(host)
    text = shown(call.body)
    assert "订阅 99" in text or "\\u8ba2\\u9605 99" in text
    assert "订阅 1\n" not in text, "as many as fit, the others as a number"
    assert "/admin/msgplatform/alert/" in text
    assert "Open the alert" not in text


def events(robots: Robots) -> list[tuple[str, str]]:
    """The action and the incident's key of each call to PagerDuty, which has had all calls."""
    bodies = [call.body for call in robots.of(PAGERDUTY)]
    robots.calls.clear()
    return sorted((body["event_action"], body.get("dedup_key", "")) for body in bodies)


def test_a_pager_has_one_incident_for_each_alert(robots: Robots) -> None:
    """One message has several alerts; the end of each closes what its beginning opened."""
    rule(channel(url=f"pagerduty://{'a' * 32}@{'b' * 20}?region=us"), repeat_minutes=1)
    numbers = range(texts.MAX_BLOCKS + 5)
    with at(NOON) as clock:
        for number in numbers:
            alarm(f"sms.gateway:{number}", f"Gateway {number}")
        work()
        summaries = [call.body["payload"]["summary"] for call in robots.of(PAGERDUTY)]
        assert all(f"Gateway {n}\r\n" in "".join(summaries) for n in numbers), summaries
        opened = events(robots)
        assert len(set(opened)) == len(numbers)
        assert {action for action, _key in opened} == {"trigger"}
        assert AlertMessage.objects.get().state == "sent"
        clock.move_to(NOON + timedelta(seconds=61))
        work()
        assert events(robots) == opened, "it is repeated to the same incidents"
        for number in numbers:
            alerts.resolve(f"sms.gateway:{number}")
        alarm("sms.gateway:99")
        work()
        *closed, other = events(robots)
    assert closed == [("resolve", key) for _action, key in opened]
    assert other[0] == "trigger"
    assert other not in opened


def test_an_attempt_that_failed_opens_nothing_that_has_ended_meanwhile(robots: Robots) -> None:
    rule(channel(url=f"pagerduty://{'a' * 32}@{'b' * 20}"))
    robots.modes[PAGERDUTY] = "breaks"
    with at(NOON) as clock:
        alarm()
        sender = Sender()
        sender.turn(may_start=True)
        begun = time.monotonic()
        while not robots.calls:
            pause(begun, 0.1)
        robots.modes.clear()
        alerts.resolve("sms.gateway:7")
        planning.plan(timezone.now())
        work(sender)
        clock.move_to(NOON + timedelta(seconds=61))
        work(sender)
    assert [action for action, _key in events(robots)] == ["resolve", "trigger"]
    assert [row.state for row in AlertMessage.objects.order_by("pk")] == ["dropped", "sent"]


def test_a_storm_is_several_messages() -> None:
    rule(channel(url=f"pagerduty://{'a' * 32}@{'b' * 20}"), group_seconds=30)
    for number in range(101):
        alarm(f"sms.gateway:{number}")
    planning.plan(timezone.now()), planning.plan(timezone.now())
    assert [row.notices.count() for row in AlertMessage.objects.order_by("pk")] == [100, 1]


def test_a_repeat_that_was_sent_keeps_the_beginning_and_its_end(robots: Robots) -> None:
    chat = channel(url=f"jsons://{PLAIN}/")
    by_rule = rule(chat)
    robots.modes[PLAIN] = "breaks"
    with at(NOON) as clock:
        alarm()
        work()
        robots.modes.clear()
        repeat = AlertMessage.objects.create(rule=by_rule, channel=chat, state="sent", due_at=NOON)
        repeat.notices.create(
            channel=chat, alert=Alert.objects.get(), event=AlertNotice.Event.REPEATED, number=1
        )
        clock.move_to(NOON + timedelta(seconds=11))
        work()
        alerts.resolve("sms.gateway:7")
        work()
    assert titles(robots)[-1] == "msgplatform: [resolved] Gateway 7"


def test_alerts_beyond_those_that_are_shown_are_counted() -> None:
    text = send.compose([*"ab", "", "", ""], "… and {count} more", "tail", 16_000)
    assert text == "a\n\nb\n\n… and 3 more\n\ntail"


class Mail:
    """A mail server that takes everything."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        content = email.message_from_bytes(envelope.content, policy=policy.default)
        self.mails.append((envelope, content))
        return "250 OK"


@pytest.fixture
def mail() -> Iterator[Controller]:
    controller = Controller(Mail(), hostname="127.0.0.1", port=free_port(), ready_timeout=SECONDS)
    controller.start()
    yield controller
    controller.stop()


def test_mail_goes_by_smtp_to_where_the_guard_allows(mail: Controller, settings: Any) -> None:
    url = f"mailto://127.0.0.1:{mail.port}/?from=alerts@msg.example&to=ops@shop.example"
    rule(channel(url=url))
    alarm()
    work()
    message = AlertMessage.objects.get()
    assert (message.state, message.error) == ("waiting", "127.0.0.1 is a loopback address.")
    assert mail.handler.mails == []
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    AlertMessage.objects.update(due_at=timezone.now())
    work()
    ((envelope, content),) = mail.handler.mails
    assert envelope.rcpt_tos == ["ops@shop.example"]
    assert content["Subject"] == "msgplatform: [critical] Gateway 7"
    assert "it is down" in content.get_body(("plain", "html")).get_content()


def test_quiet_hours_end_in_the_rules_own_zone(robots: Robots) -> None:
    """22 to 8 in Shanghai: a warning waits, a note is dropped, what is critical passes."""
    url = f"jsons://{PLAIN}/"
    quiet = {"quiet_from": "22:00", "quiet_until": "08:00", "time_zone": "Asia/Shanghai"}
    rule(channel(url=url), min_severity="info", quiet_drops_below="warning", **quiet)
    with at(datetime(2026, 11, 25, 18, 30, tzinfo=UTC)) as clock:  # 02:30
        alarm("sms.gateway:1", "critical one")
        alarm("notify.failing:1", "a warning")
        alarm("sms.login:1", "a note")
        work()
        assert titles(robots) == ["msgplatform: [critical] critical one"]
        alerts.resolve("sms.login:1")
        clock.move_to(datetime(2026, 11, 25, 23, 59, tzinfo=UTC))
        alarm("notify.failing:2", "another warning")
        work()
        assert len(titles(robots)) == 1
        alerts.resolve("notify.failing:1")
        clock.move_to(datetime(2026, 11, 26, 0, 0, 1, tzinfo=UTC))  # 08:00:01
        work()
    assert titles(robots)[1:] == ["msgplatform: 1 alert, 1 resolved"]
    assert "a note" not in robots.calls[-1].body["message"]
    states = AlertMessage.objects.values_list("state", flat=True)
    assert sorted(states) == ["dropped", "sent", "sent"]


def test_the_end_in_quiet_hours_that_drop_comes_when_they_end(robots: Robots) -> None:
    """An alert that began by day was sent, so its end is too. One of the night has neither."""
    quiet = {"quiet_from": "22:00", "quiet_until": "08:00", "time_zone": "UTC"}
    rule(channel(url=f"jsons://{PLAIN}/"), quiet_drops_below="critical", **quiet)
    with at(NOON) as clock:
        alarm("notify.failing:1", "by day")
        work()
        clock.move_to(NOON + timedelta(hours=14))
        alarm("notify.failing:2", "by night")
        alerts.resolve("notify.failing:1")
        work()
        alerts.resolve("notify.failing:2")
        work()
        assert len(robots.calls) == 1
        clock.move_to(NOON + timedelta(hours=20))
        work()
    assert titles(robots)[1:] == ["msgplatform: [resolved] by day"]


def test_repeated_until_somebody_acknowledges(robots: Robots) -> None:
    rule(channel(url=f"jsons://{PLAIN}/"), repeat_minutes=30)
    with at(NOON) as clock:
        alarm()
        for minutes in (0, 29, 31, 62):
            clock.move_to(NOON + timedelta(minutes=minutes))
            work()
        assert titles(robots) == [
            "msgplatform: [critical] Gateway 7",
            *["msgplatform: [critical, still open] Gateway 7"] * 2,
        ]
        alert_store.acknowledge(Alert.objects.get(), "li", "on it")
        clock.move_to(NOON + timedelta(minutes=200))
        work()
        assert len(robots.calls) == 3
        alert_store.resolve([Alert.objects.get().pk], "li")
        work()
    assert titles(robots)[3:] == ["msgplatform: [resolved] Gateway 7"]


def test_a_repeat_that_quiet_hours_drop_holds_up_no_other(
    robots: Robots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_BATCH", 1)
    quiet = {"quiet_from": "22:00", "quiet_until": "08:00", "time_zone": "UTC"}
    chat = channel(url=f"jsons://{PLAIN}/")
    rule(chat, repeat_minutes=60, quiet_drops_below="critical", **quiet)
    with at(NOON + timedelta(hours=9, minutes=30)) as clock:
        alarm("notify.failing:1", "a warning")
        work()
        alarm()
        work()
        clock.move_to(NOON + timedelta(hours=11))
        work()
    assert titles(robots)[2:] == ["msgplatform: [critical, still open] Gateway 7"]


def test_repeats_end_where_the_rule_ends(robots: Robots) -> None:
    """With the channel that was taken out, and with alerts that the rule no longer covers."""
    chat, mail = channel(url=f"jsons://{PLAIN}/chat"), channel("mail", f"jsons://{PLAIN}/mail")
    row = subscription(Biz.objects.create(name="orders"), "warehouse")
    both = rule(chat, mail, repeat_minutes=30)
    with at(NOON) as clock:
        alarm()
        alarm(f"notify.failing:{row.pk}", "of orders")
        work()
        robots.calls.clear()
        both.channels.remove(chat)
        clock.move_to(NOON + timedelta(minutes=31))
        work()
        assert {call.path for call in robots.calls} == {"/mail"}
        assert titles(robots) == ["msgplatform: 2 alerts"]
        both.systems.add(row.biz)
        clock.move_to(NOON + timedelta(minutes=62))
        work()
        assert titles(robots)[1:] == ["msgplatform: [warning, still open] of orders"]
        AlertRule.objects.update(min_severity="critical")
        clock.move_to(NOON + timedelta(minutes=93))
        work()
        assert len(robots.calls) == 2


@pytest.mark.parametrize(
    "first",
    [
        {"group_seconds": 3600},
        {"quiet_from": "11:00", "quiet_until": "13:00", "time_zone": "UTC"},
        {"quiet_from": "11:00", "quiet_until": "13:00", "time_zone": "UTC",
         "quiet_drops_below": "critical"},
    ],
)  # fmt: skip
def test_of_two_rules_the_one_that_sends_earliest_tells(
    robots: Robots, first: dict[str, Any]
) -> None:
    chat = channel(url=f"jsons://{PLAIN}/")
    rule(chat, name="a", **first)
    second = rule(chat, name="b")
    with at(NOON):
        alarm("notify.failing:1", "a warning")
        work()
    assert titles(robots) == ["msgplatform: [warning] a warning"]
    assert AlertMessage.objects.get().rule == second


def test_the_end_comes_by_another_rule_where_the_first_was_deleted(robots: Robots) -> None:
    chat = channel(url=f"jsons://{PLAIN}/")
    first = rule(chat, name="a")
    alarm("notify.failing:1", "a warning")
    work()
    first.delete()
    rule(chat, name="about texts only", kinds=["sms.*"])
    second = rule(chat, name="b")
    alerts.resolve("notify.failing:1")
    work()
    assert titles(robots)[1:] == ["msgplatform: [resolved] a warning"]
    assert AlertMessage.objects.latest("pk").rule == second


def test_an_alert_that_comes_and_goes_is_told_as_one_that_does(robots: Robots) -> None:
    """Twenty seconds up, twenty down, for an hour: not 90 messages."""
    rule(channel(url=f"jsons://{PLAIN}/"), group_seconds=0)
    with time_machine.travel(NOON, tick=False) as clock:
        for n in range(180):
            if n % 2:
                alerts.resolve("notify.failing:1")
            else:
                alarm("notify.failing:1", "a warning")
            planning.plan(timezone.now())
            clock.shift(20)
            due_rows = AlertMessage.objects.filter(due_at__lte=timezone.now())
            due_rows.update(state=AlertMessage.State.SENT)
        rows = list(AlertMessage.objects.order_by("due_at"))
        assert len(rows) <= 2 * planning.MAX_BEGINNINGS + 2
        told = texts.of_notices(rows[-1].channel, list(rows[-1].notices.all()))
    assert "since the last message it began 4" in told.plain
    assert told.title == "msgplatform: [resolved] a warning"


def test_only_what_the_rule_says(robots: Robots) -> None:
    orders, shop = (Biz.objects.create(name=name) for name in ("orders", "shop"))
    row, other = subscription(orders, "warehouse"), subscription(shop, "till")
    chat = channel(url=f"jsons://{PLAIN}/")
    rule(chat, name="orders", kinds=["notify.*"]).systems.add(orders)
    rule(chat, name="again", kinds=["notify.failing"], sends_resolved=False).systems.add(orders)
    alarm(f"notify.failing:{row.pk}", "of orders")
    alarm(f"notify.failing:{other.pk}", "of shop")
    alarm("notify.clock:maker", "of no system")
    alarm("sms.gateway:1", "of SMS")
    work()
    (call,) = robots.calls
    assert call.body["title"] == "msgplatform: [warning] of orders"
    AlertRule.objects.update(enabled=False)
    alarm("notify.failing:999", "nobody hears")
    work()
    assert len(robots.calls) == 1


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("refuses", "errcode 130101: send too fast"),
        ("cuts", "errcode 130101: send too fast ?"),
        ("dies", ""),
    ],
)
def test_a_robot_that_does_not_take_it_is_asked_again(
    robots: Robots, mode: str, error: str
) -> None:
    """Also one that says no with HTTP 200, and one whose text is cut in the middle of an emoji; the
    other channel reports the failure."""
    robots.modes[DINGTALK] = mode
    bad, good = channel(), channel("mail", f"jsons://{PLAIN}/")
    rule(bad, good)
    with at(NOON) as clock:
        alarm()
        work()
        message = AlertMessage.objects.get(channel=bad)
        assert (message.state, message.attempts) == ("waiting", 1)
        assert error in message.error
        assert not any(part in message.error for part in (TOKEN, SECRET))
        alarm("sms.gateway:8", "Gateway 8")
        clock.move_to(NOON + timedelta(seconds=11))
        work()
        work()
        told = [title for title in titles(robots) if "do not reach" in title]
        assert told == ["msgplatform: [warning] Alerts do not reach the channel operators"]
        assert Alert.objects.get(key=f"platform.channel:{bad.pk}").open_key
        robots.modes.clear()
        clock.move_to(NOON + timedelta(seconds=60))
        work()
        work()
    assert "Gateway 8" in robots.of(DINGTALK)[-1].body["markdown"]["text"], "all in one message"
    assert not Alert.objects.get(key=f"platform.channel:{bad.pk}").open_key
    assert AlertMessage.objects.filter(state="sent", channel=bad).count() == 1
    assert not AlertMessage.objects.filter(state="waiting").exists()


def test_news_brings_the_next_attempt_forward(robots: Robots) -> None:
    """By its window, and with no longer pause after it. A repeat waits for it."""
    rule(channel(), group_seconds=30, repeat_minutes=30)
    with at(NOON) as clock:

        def work_at(minutes: float) -> AlertMessage:
            clock.move_to(NOON + timedelta(minutes=minutes))
            work()
            return AlertMessage.objects.latest("pk")

        alarm()
        work()
        assert work_at(0.6).state == "sent"
        robots.modes[DINGTALK] = "refuses"
        alarm("sms.gateway:8", "Gateway 8")
        work()
        message, later = work_at(1.2), NOON + timedelta(hours=1)
        AlertMessage.objects.filter(pk=message.pk).update(attempts=6, due_at=later)
        message = work_at(40)
        assert (message.notices.count(), message.due_at) == (2, later)
        alarm("sms.gateway:9", "Gateway 9")
        work()
        alarm("sms.gateway:10", "Gateway 10")
        message = work_at(40.6)
        assert (message.notices.count(), len(robots.of(DINGTALK))) == (4, 3)
        assert message.due_at - timezone.now() == timedelta(minutes=30)
        robots.modes.clear()
        alerts.resolve("sms.gateway:9")
        work()
        assert work_at(41.2).state == "sent"


def test_an_alert_has_its_day_of_tries_in_an_old_message_and_after_a_long_window(
    robots: Robots,
) -> None:
    robots.modes[DINGTALK] = "refuses"
    rule(channel(), group_seconds=86_400)
    with at(NOON) as clock:
        alarm()
        work()
        clock.move_to(NOON + timedelta(hours=24, seconds=1))
        work()
        message = AlertMessage.objects.get()
        assert (message.state, message.attempts) == ("waiting", 1), "the window is no try"
        clock.move_to(NOON + timedelta(hours=47))
        alarm("sms.gateway:8", "Gateway 8")
        work()
        clock.move_to(NOON + timedelta(hours=49))
        work()
        message.refresh_from_db()
        assert (message.state, message.notices.count()) == ("waiting", 2)
        clock.move_to(NOON + timedelta(hours=71))
        work()
    message.refresh_from_db()
    assert message.state == "failed"
    assert AlertMessage.objects.count() == 1


def test_a_robot_that_hangs_holds_up_no_other(
    robots: Robots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child.__init__, "__defaults__", (MAX_SECONDS,))  # it is waited for
    robots.modes[DINGTALK] = "hangs"
    robots.released.clear()
    bad, good = (
        channel(url=f"dingtalk://{SECRET}@{TOKEN}/?rto=300"),
        channel("mail", f"jsons://{PLAIN}/"),
    )
    rule(bad, good)
    alarm()
    sender = Sender()
    deadline = time.monotonic() + SECONDS
    while not AlertMessage.objects.filter(channel=good, state="sent").exists():
        sender.turn(may_start=True)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not sender.is_idle
    assert AlertMessage.objects.get(channel=bad).state == "waiting"
    work(sender)  # ends by the child's own alarm
    message = AlertMessage.objects.get(channel=bad)
    assert (message.attempts, message.error) == (1, "no answer within 20 seconds")
    robots.released.set()


def test_what_waits_for_a_channel_that_became_a_heartbeat_is_dropped(robots: Robots) -> None:
    rule(channel(url=f"jsons://{PLAIN}/"), group_seconds=60)
    with at(NOON) as clock:
        alarm()
        work()
        AlertChannel.objects.update(heartbeat_seconds=86_400, next_heartbeat_at=NOON)
        clock.move_to(NOON + timedelta(seconds=61))
        work()
    assert AlertMessage.objects.get().state == "dropped"
    assert titles(robots) == []


def test_what_a_killed_program_had_begun_goes_on_elsewhere(robots: Robots) -> None:
    """Before the news was planned, and while the message was on its way."""
    rule(channel(url=f"jsons://{PLAIN}/"))
    with at(NOON) as clock:
        alarm()
        first = Sender()
        first.turn(may_start=True)
        assert not first.is_idle
        work()
        assert AlertMessage.objects.get().state == "waiting", "leased"
        clock.move_to(NOON + timedelta(seconds=61))
        work()
        assert AlertMessage.objects.get().state == "sent"
        work(first)  # its message does not come in a later test
    assert 1 <= len(robots.calls) <= 2


@pytest.mark.parametrize("column", ["attempts", "failures_in_row"])
def test_an_outcome_that_the_database_refuses_is_stored_later(robots: Robots, column: str) -> None:
    """Of a message, or of the heartbeat: as a database that is read-only for a moment."""
    refusals = 0

    def refuse(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal refusals
        if "UPDATE" in str(sql) and column in str(sql):  # bytes, where we write it
            refusals += 1
            raise OperationalError(1290, "The server is running with the --read-only option")
        return execute(sql, *rest)

    if column == "attempts":
        rule(channel(url=f"jsons://{PLAIN}/"))
    else:
        channel("switch", f"https://{PLAIN}/beat", heartbeat_seconds=3600)
    sender, begun = Sender(), time.monotonic()
    with at(NOON):
        alarm()
        with connection.execute_wrapper(refuse):
            while refusals < 2:
                with suppress(OperationalError):
                    sender.turn(may_start=True)
                assert time.monotonic() < begun + SECONDS
                pause(begun, 0.1)
        work(sender)
        assert len(robots.calls) == 1
        if column == "attempts":
            message = AlertMessage.objects.get()
            assert (message.state, message.attempts) == ("sent", 1)
            alarm("sms.gateway:8", "Gateway 8")
            work(sender)
            assert AlertMessage.objects.filter(state="sent").count() == 2
        else:
            assert AlertChannel.objects.get().last_sent_at == NOON


def test_the_heartbeat_beats_while_people_can_be_reached(robots: Robots) -> None:
    chat = channel(url=f"jsons://{PLAIN}/chat")
    channel("switch", f"https://{PLAIN}/beat", heartbeat_seconds=60)
    rule(chat)

    def beats() -> int:
        return sum((call.method, call.path) == ("GET", "/beat") for call in robots.calls)

    with at(NOON) as clock:
        work()
        work()
        assert beats() == 1
        clock.move_to(NOON + timedelta(seconds=61))
        work()
        assert beats() == 2
        AlertChannel.objects.filter(pk=chat.pk).update(failures_in_row=2, failing_since=NOON)
        clock.move_to(NOON + timedelta(seconds=200))
        work()
        assert beats() == 2, "nobody would hear of anything"


def test_a_shorter_interval_and_a_clock_that_was_ahead_stop_no_heartbeat(robots: Robots) -> None:
    switch = channel("switch", f"https://{PLAIN}/beat", heartbeat_seconds=86_400)
    with at(NOON) as clock:
        work()
        AlertChannel.objects.filter(pk=switch.pk).update(heartbeat_seconds=60)
        clock.move_to(NOON + timedelta(seconds=61))
        work()
        assert len(robots.calls) == 2
        ahead = NOON + timedelta(seconds=61 + 60 + 50)  # another machine's clock, by little
        AlertChannel.objects.filter(pk=switch.pk).update(next_heartbeat_at=ahead)
        work()
        assert len(robots.calls) == 2
        AlertChannel.objects.filter(pk=switch.pk).update(next_heartbeat_at=NOON + timedelta(1))
        work()
        assert len(robots.calls) == 3


def test_of_the_switch_only_the_status_counts(robots: Robots) -> None:
    switch = channel("switch", f"https://{PLAIN}/beat", heartbeat_seconds=600)
    robots.modes[PLAIN] = "floods"
    with at(NOON):
        work()
    switch.refresh_from_db()
    assert (switch.failures_in_row, switch.last_sent_at) == (0, NOON)


def test_a_call_of_the_switch_that_fails_is_made_again_soon(robots: Robots) -> None:
    switch = channel("switch", f"https://{PLAIN}/beat", heartbeat_seconds=600)
    with at(NOON) as clock:
        robots.modes[PLAIN] = "breaks"
        work()
        switch.refresh_from_db()
        assert (switch.failures_in_row, len(robots.calls)) == (1, 1)
        robots.modes.clear()
        for seconds, count in ((29, 1), (31, 2), (62, 2), (632, 3)):
            clock.move_to(NOON + timedelta(seconds=seconds))
            work()
            assert len(robots.calls) == count
        AlertChannel.objects.update(url="nowhere")
        clock.move_to(NOON + timedelta(seconds=1300))
        work()
    switch.refresh_from_db()
    assert switch.next_heartbeat_at == NOON + timedelta(seconds=1330)


def test_the_weekly_summary_balances(robots: Robots) -> None:
    """Monday 8 o'clock in Shanghai; the figures are those of the counters."""
    orders = Biz.objects.create(name="orders", title="Orders & more")
    chat = channel(url=f"jsons://{PLAIN}/", time_zone="Asia/Shanghai", summary_weekday=1)
    sunday = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)
    with at(sunday) as clock:
        minute = sunday.replace(hour=10)
        for name, value in (("accepted", 1234), ("delivered", 1200), ("exhausted", 34)):
            MinuteCounter.objects.create(
                flow="notify", minute=minute, biz_id=orders.pk, subject=1, name=name, value=value
            )
        work()
        assert robots.calls == []
        for seconds in (5, -2, 10):  # the clock goes back, and passes 8 o'clock once more
            clock.move_to(datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=seconds))
            work()
            work()
        (call,) = robots.calls
        assert call.body["title"] == "msgplatform: the week from 2026-11-23 to 2026-11-30"
        (line,) = [one for one in call.body["message"].splitlines() if "Orders" in one]
        assert re.findall(r"[\d,]+\d|\d", line) == ["1,234", "1,200", "34"]
        clock.move_to(datetime(2026, 12, 1, 0, 0, 5, tzinfo=UTC))
        work()
    assert len(robots.calls) == 1
    assert AlertMessage.objects.get(channel=chat).kind == "summary"


def test_the_summary_is_of_whole_days_where_hours_are_deleted_within_the_week(
    settings: Any,
) -> None:
    settings.MINUTE_COUNTER_DAYS = 3
    for day in range(21, 31):
        DayCounter.objects.create(
            day=date(2026, 11, day), flow="notify", biz_id=1, subject=1, name="delivered",
            value=1 if 23 <= day < 30 else 1000,
        )  # fmt: skip
    with at(datetime(2026, 11, 30, 0, 0, 5, tzinfo=UTC)):
        title, text = write_summary(channel(time_zone="Asia/Shanghai"), timezone.now())
    assert title == "msgplatform: the week from 2026-11-23 to 2026-11-29"
    assert "delivered 7," in text


def test_a_summary_that_cannot_be_written_holds_up_no_alert(
    robots: Robots, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_query: object) -> None:
        raise OperationalError(2013, "Lost connection to server during query")

    rule(channel(summary_weekday=1, next_summary_at=timezone.now() - timedelta(minutes=1)))
    alarm()
    sender = Sender()
    with monkeypatch.context() as context:
        context.setattr("msgplatform.company.alerting.turn.sums", fail)
        with pytest.raises(OperationalError):
            sender.turn(may_start=True)
    assert not sender.is_idle
    work(sender)
    title = robots.of(DINGTALK)[0].body["markdown"]["title"]
    assert title == "msgplatform: [critical] Gateway 7"


def test_nothing_leaves_while_outbound_is_off(robots: Robots, settings: Any) -> None:
    settings.OUTBOUND = False
    rule(channel())
    alarm()
    work()
    assert AlertMessage.objects.get().state == "waiting"
    settings.OUTBOUND = True
    work()
    assert len(robots.of(DINGTALK)) == 1


def test_what_comes_from_outside_makes_no_link_and_no_mention(robots: Robots) -> None:
    rule(channel())
    alarm(text="HTTP 500: [free](http://evil.example) <at id=all> @all 13800138000")
    work()
    text = robots.calls[0].body["markdown"]["text"]
    assert "[free](" not in text
    assert "@all" not in text
    assert "<at" not in text
    assert "13800138000" not in text


@pytest.mark.parametrize(
    "url",
    [
        "json://0x7f000001:{port}/", "mailto://127.0.0.1:{port}/?from=a@b.example&to=c@b.example",
        "rsyslog://127.0.0.1:{port}",
        *(
            pytest.param(other, marks=pytest.mark.full)
            for other in (
                "json://127.0.0.1:{port}/", "jsons://169.254.169.254/", "json://localhost:{port}/",
                "mqtt://127.0.0.1:{port}/topic",
            )
        ),
    ],
)  # fmt: skip
def test_no_library_connects_to_a_forbidden_address(url: str) -> None:
    """Whichever it uses: requests, smtplib, a datagram."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = Child(
            "send", url.format(port=port), title="t", severity="info", more="",
            blocks=[{"text": "b", "markdown": "b"}], tail={"text": "", "markdown": ""},
        ).wait()  # fmt: skip
        assert not outcome.is_ok
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("is_in_python", [False, True])
def test_no_library_opens_a_file_of_the_platform(is_in_python: bool, settings: Any) -> None:
    """Whether the platform keeps its files apart, or in the folder of its Python."""
    folder = sys.prefix if is_in_python else None
    with tempfile.TemporaryDirectory(dir=folder) as state_dir:
        settings.STATE_DIR = Path(state_dir)
        file = settings.STATE_DIR / "key.json"
        file.write_text('{"key": "hunter2"}')
        outcome = Child(
            "send", f"workflows://example.com/WORKFLOW/SIGNATURE/?template={file}", title="t",
            severity="info", more="", blocks=[{"text": "b", "markdown": "b"}],
            tail={"text": "", "markdown": ""},
        ).wait()  # fmt: skip
    assert outcome.error == "its address may name no file of this machine"


def test_python_may_lie_in_the_folder_of_the_platform(settings: Any) -> None:
    settings.STATE_DIR = Path(sys.prefix).resolve().parent
    outcome = Child(
        "send", "json://192.0.2.1/", title="t", severity="info", more="",
        blocks=[{"text": "b", "markdown": "b"}], tail={"text": "", "markdown": ""},
    ).wait()  # fmt: skip
    assert "192.0.2.1" in outcome.error, "only the address is refused"


def titles(robots: Robots) -> list[str]:
    return [call.body["title"] for call in robots.of(PLAIN) if call.method == "POST"]


# -- console -------------------------------------------------------------------------------------
def form(**values: Any) -> dict[str, Any]:
    return {"name": "ops", "enabled": "on", "language": "en", "time_zone": "UTC",
            "heartbeat_seconds": "0", "summary_weekday": "", **values}  # fmt: skip


def address(first: str, second: str = "", kind: str = "") -> dict[str, str]:
    """The address of a new channel as the form sends it."""
    return {"url_kind": kind, "url_first": first, "url_second": second}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (address("dingding://abc"), "No service is known for “dingding://”"),
        pytest.param(
            address("dbus://"), "No service is known for “dbus://”", marks=pytest.mark.full
        ),
        pytest.param(
            address("dingtalk://SECabc@"),
            "it is written: dingtalk://SECRET@TOKEN/",
            marks=pytest.mark.full,
        ),
        (address("slack://only"), "it is written: slack://{token_a}/{token_b}/{token_c}"),
        (
            address("dingtalk://a1b2") | {"heartbeat_seconds": "60"},
            "begin with http:// or https://",
        ),
        (address("dingtalk://a1b2") | {"time_zone": "Mars"}, "Mars is no time zone"),
        (address(""), "Enter: Address."),
        (address("", kind="dingtalk"), "Enter: Webhook."),
        (address("ops@example.com", "mail.example.com", "mail"), "Write the mail server as smtps:"),
        (address("x", kind="pager"), "Choose a service."),
        (
            address("https://ping.example.com/a") | {"heartbeat_seconds": "60", "rule": "warning"},
            "A heartbeat gets no messages.",
        ),
    ],
)
def test_a_wrong_channel_is_explained(
    admin_client: Client, values: dict[str, str], said: str
) -> None:
    answer = admin_client.post(f"{CHANNELS}add/", form(**values))
    assert answer.status_code == 200
    assert said in unescape(answer.content.decode())
    assert not AlertChannel.objects.exists()


def test_a_channel_is_set_up_tested_and_shown_without_its_secrets(
    admin_client: Client, robots: Robots
) -> None:
    url = f"https://{DINGTALK}/robot/send?access_token={TOKEN}&secret={SECRET}"
    assert 'value="warning" selected' in admin_client.get(f"{CHANNELS}add/").content.decode()
    answer = admin_client.post(f"{CHANNELS}add/", form(**address(url), rule="critical"))
    assert answer.status_code == 302
    row = AlertChannel.objects.get()
    rule = AlertRule.objects.get()
    assert (rule.name, rule.min_severity, [*rule.channels.all()]) == ("ops", "critical", [row])
    assert AuditLog.objects.filter(action="alert_rule_created", target="ops").exists()
    assert re.fullmatch(r"DingTalk dingtalk://… · [0-9a-f]{8}", row.shown)
    page = f"/admin/msgplatform/alertchannel/{row.pk}/"
    answer = admin_client.post(f"{page}test/", follow=True)
    assert "The test was sent" in answer.content.decode()
    assert "This is a test of the channel ops" in str(robots.calls[0].body)
    # Saved once more with the field left empty the address stays.
    shown = row.shown
    assert admin_client.post(f"{page}change/", form(url="", language="zh-hans")).status_code == 302
    row.refresh_from_db()
    assert (row.url, row.shown, row.language) == (url, shown, "zh-hans")
    robots.modes[DINGTALK] = "refuses"
    answer = admin_client.post(f"{page}test/", follow=True)
    text = unescape(answer.content.decode())
    assert "The test was not sent: errcode 130101: send too fast" in text, re.findall(
        r"The test[^<]*|130101[^<]*", text
    )
    message = AlertMessage.objects.latest("pk").pk
    lists = ["alertchannel/", "alertmessage/", f"alertchannel/{row.pk}/change/",
             f"alertmessage/{message}/change/", "auditlog/"]  # fmt: skip
    for each in lists:
        text = admin_client.get(f"/admin/msgplatform/{each}").content.decode()
        assert "130101" in text or each == "auditlog/", each
        assert not any(secret in text for secret in (TOKEN, SECRET)), each


@pytest.mark.parametrize(
    ("kind", "first", "second", "url"),
    [
        ("dingtalk", f"https://{DINGTALK}/robot/send?access_token=a1", "SECa1b2",
         f"https://{DINGTALK}/robot/send?access_token=a1&secret=SECa1b2"),
        pytest.param(
            "feishu", "https://open.feishu.cn/open-apis/bot/v2/hook/a1", "b2",
            "https://open.feishu.cn/open-apis/bot/v2/hook/a1?secret=b2", marks=pytest.mark.full,
        ),
        ("wecom", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=a1b2", "left over",
         "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=a1b2"),
        ("mail", "ops+night@example.com", "smtp+starttls://u:p@mail.example.com:587",
         "mailtos://u:p@mail.example.com:587/?to=ops%2Bnight%40example.com"),
        ("pagerduty", "a" * 32, "b" * 20, f"pagerduty://{'a' * 32}@{'b' * 20}"),
        ("webhook", "https://alerts.example.com/in", "", "jsons://alerts.example.com/in"),
    ],
)  # fmt: skip
def test_an_address_is_made_of_what_the_service_shows(
    admin_client: Client, kind: str, first: str, second: str, url: str
) -> None:
    answer = admin_client.post(f"{CHANNELS}add/", form(**address(first, second, kind)))
    assert answer.status_code == 302, unescape(answer.content.decode())
    assert AlertChannel.objects.get().url == url
    assert not AlertRule.objects.exists()


def test_a_url_of_your_own_is_called_with_its_query(admin_client: Client, robots: Robots) -> None:
    url = f"https://{PLAIN}/in?method=a1&to=https://b?c;d"
    admin_client.post(f"{CHANNELS}add/", form(**address(url, "", "webhook")))
    admin_client.post(f"{CHANNELS}{AlertChannel.objects.get().pk}/test/")
    assert robots.calls[0].query == {"method": "a1", "to": "https://b?c;d"}


def test_a_wrong_rule_is_explained(admin_client: Client) -> None:
    beat = channel("beat", heartbeat_seconds=60)
    values = {"name": "night", "min_severity": "info", "group_seconds": "30", "time_zone": "UTC",
              "repeat_minutes": "0", "quiet_passes_from": "critical", "kinds": "sms.*\nnotify.fail",
              "quiet_from": "22:00", "channels": [beat.pk]}  # fmt: skip
    answer = admin_client.post("/admin/msgplatform/alertrule/add/", values)
    text = unescape(answer.content.decode())
    assert "There is no kind of alert “notify.fail”" in text
    assert "A heartbeat gets no messages: leave out beat." in text
    assert "set both times, or none" in text
    # Stored kinds are those of a flow that left FLOWS.
    row = AlertRule.objects.create(name="night", kinds=["left.*"])
    values |= {"kinds": "left.*", "quiet_from": "", "channels": [channel("ops").pk]}
    address = f"/admin/msgplatform/alertrule/{row.pk}/change/"
    answer = admin_client.post(address, {**values, "kinds": "left.*\ngone.*"})
    assert "no kind of alert “gone.*”" in unescape(answer.content.decode())
    assert admin_client.post(address, {**values, "enabled": "on"}).status_code == 302
    assert admin_client.post(address, values).status_code == 302
    assert list(AlertRule.objects.values_list("enabled", "kinds")) == [(False, ["left.*"])]


def test_the_management_api_sets_up_and_tests(robots: Robots) -> None:
    manager = Manager()
    refused = manager.send("PUT", "alert-channels/ops", {"url": "dingding://abc"})
    assert "No service is known" in problem(refused, 400, "invalid-input")["detail"]
    address = {"url": f"dingtalk://{SECRET}@{TOKEN}/"}
    created = manager.send("PUT", "alert-channels/ops", address)
    assert created.status_code == 201
    assert "url" not in created.json()
    assert manager.send("PUT", "alert-channels/ops", {}).status_code == 200, "it keeps the address"
    assert manager.send("PUT", "alert-rules/all", {"channels": ["ops"]}).status_code == 201
    bodies: list[tuple[str, dict[str, Any], str]] = [
        ("alert-rules/none", {"channels": []}, "channels"),
        ("alert-rules/kinds", {"channels": ["ops"], "kinds": ["sms.*", "notify.fail"]}, "kinds"),
        (
            "alert-channels/ops",
            {"heartbeat_seconds": 60, "url": "https://ping.example.com/a"},
            "heartbeat_seconds",
        ),
        *(
            ("alert-rules/all", {"channels": ["ops"], "quiet_from": text, "quiet_until": "06:00"},
             "quiet_from")
            for text in ("22:00:00Z", "22:00+08:00", "22", 22)
        ),
    ]  # fmt: skip
    for path, body, field in bodies:
        answer = problem(manager.send("PUT", path, body), 400, "invalid-input")
        assert [error["field"] for error in answer["errors"]] == [field]
    quiet = {"channels": ["ops"], "quiet_from": "22:00", "quiet_until": "06:00:00"}
    assert manager.send("PUT", "alert-rules/all", quiet).json()["quiet_from"] == "22:00:00"
    kept = problem(manager.send("DELETE", "alert-channels/ops"), 409, "not-now")
    assert "It is the only channel of all" in kept["detail"]
    AlertRule.objects.update(kinds=["left.*"])  # those of a flow that left FLOWS
    left = {"channels": ["ops"], "kinds": ["left.*"], "min_severity": "info"}
    assert manager.send("PUT", "alert-rules/all", left).status_code == 200
    assert manager.send("POST", "alert-channels/ops/tests").json() == {"sent": True, "error": ""}
    robots.modes[DINGTALK] = "refuses"
    tested = manager.send("POST", "alert-channels/ops/tests").json()
    assert tested == {"sent": False, "error": "errcode 130101: send too fast"}
    assert AlertMessage.objects.filter(kind="test").count() == 2


def test_channels_that_are_checked_at_once_take_no_thread_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meeting, wait = Barrier(3, timeout=SECONDS), Child.wait

    def wait_late(child: Child) -> Outcome:
        meeting.wait()
        meeting.wait()
        return wait(child)

    with monkeypatch.context() as patched, ThreadPoolExecutor(2) as pool:
        patched.setattr(Child, "wait", wait_late)
        checks = [pool.submit(check, f"json://127.0.0.1/{number}") for number in range(2)]
        meeting.wait()  # both have begun, and end after the refusal of a third one
        with pytest.raises(Unavailable):
            check("json://127.0.0.1/2")
        meeting.wait()
        for future in checks:
            future.result()
    check("json://127.0.0.1/2")


def test_the_alert_about_a_channel_ends_when_the_last_one_is_deleted() -> None:
    channel(failures_in_row=2, failing_since=NOON, last_error="HTTP 500")
    Sender().turn(may_start=True)
    assert Alert.objects.get().open_key
    AlertChannel.objects.all().delete()
    Sender().turn(may_start=True)
    assert not Alert.objects.get().open_key


def test_failures_end_with_another_address_and_with_a_time_switched_off() -> None:
    manager, path = Manager(), "alert-channels/operators"
    url = f"dingtalk://{SECRET}@{'b' * 64}/"
    bodies: list[dict[str, Any]] = [{"enabled": False}, {}, {"url": url}]
    failing = []
    channel(language="en")
    for body in bodies:
        AlertChannel.objects.update(failures_in_row=2, failing_since=NOON, last_error="HTTP 500")
        failing.append(manager.send("PUT", path, {"language": "en", **body}).json()["failing"])
    assert failing == [False, False, False]
    AlertChannel.objects.update(failures_in_row=2, failing_since=NOON, last_error="HTTP 500")
    answer = manager.send("PUT", path, {"language": "en", "summary_weekday": 1}).json()
    assert (answer["failing"], answer["last_error"]) == (True, "HTTP 500")
