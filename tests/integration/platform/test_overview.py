"""The overview: charts from the counters of all flows, what is in trouble, the parts alone."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench.harness.plans import read_plan
from gateway.models import SmsGateway
from msgplatform.core import alerts, flows
from msgplatform.core.daemons import exits
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import sql
from msgplatform.doors.console.views import page as pages
from msgplatform.models import Biz, MinuteCounter, Preferences
from msgplatform.monitor import failure_store
from msgplatform.monitor.failure_store import Loss
from msgplatform.monitor.statistics import recent
from msgplatform.monitor.statistics.points import CounterQuery
from msgplatform.monitor.statistics.recent import Span
from msgplatform.monitor.watch import of_flows
from notify.models import BizReceive
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def count(flow: str, subject: int, ago: timedelta = timedelta(), **values: int) -> None:
    MinuteCounter.add(flow, {(1, subject, name): n for name, n in values.items()}, sql.now() - ago)


def cards(answer: Any) -> dict[str, Any]:
    return {card.flow.name: card for card in answer.context["cards"]}


def numbers(card: Any) -> dict[str, Any]:
    return {str(title): value for title, value, *_ in card.numbers}


def test_a_chart_of_each_flow_and_its_figures(row: BizReceive, admin_client: Client) -> None:
    count("notify", 0, accepted=12)
    count("notify", row.pk, delivered=6, exhausted=2, failed=5, latency_le_100ms=6)
    count("notify", row.pk, 30 * MINUTE, delivered=2)
    count("notify", row.pk, 90 * MINUTE, delivered=1000)
    # Every short message is counted for its account and for its gateway.
    count("sms", 7, delivered=3, failed=1)
    count("sms", -4, delivered=3, failed=1)
    count("feed", 0, handled_vip=5, handled_friend=6, set_aside_vip=1)
    count("crmsync", 9, read=8, confirmed=4, dead=4)
    found = cards(admin_client.get("/console/"))
    shown = numbers(found["notify"])
    assert (shown["accepted"], shown["delivered"], shown["failures"]) == (12, 8, 2)
    assert shown["success"] == "80 %", "of the deliveries that ended, not of the attempts"
    assert shown["time to delivery, median"] == "50 ms"
    assert numbers(found["sms"])["delivered"] == 3
    assert numbers(found["sms"])["success"] == "75 %"
    assert numbers(found["feed"])["events handled"] == 11
    assert numbers(found["crmsync"])["success"] == "50 %"
    (chart,) = found["notify"].charts
    assert len(chart.times) == 60
    lines = {str(line.title): list(line.values) for line in chart.lines}
    assert (sum(lines["delivered"]), sum(v or 0 for v in lines["failures"])) == (8, 2)
    assert next(place for place, value in enumerate(lines["delivered"]) if value) in (28, 29)
    assert json.loads(chart.data)["lastIsOpen"]
    six_hours = cards(admin_client.get("/console/?period=6h"))["notify"]
    assert numbers(six_hours)["delivered"] == 1008
    assert len(six_hours.charts[0].times) == 72


def test_what_waited_is_a_curve_of_its_own(row: BizReceive, admin_client: Client) -> None:
    pages.set_up_flows.clear()
    now = sql.now().timestamp()
    of_flows.store_backlogs({"notify": 100, "sms": 0}, now - 600)
    of_flows.store_backlogs({"notify": 6300, "sms": 0}, now - 120)
    of_flows.store_backlogs({"notify": 6200, "sms": 0}, now - 120)
    found = cards(admin_client.get("/console/"))
    (chart,) = found["notify"].charts
    (line,) = chart.lines
    assert [value for value in line.values if value is not None] == [100, 6200]
    assert "sms" not in found, "nothing waited there, and nothing is set up"
    (waiting,) = cards(admin_client.get("/console/?period=24h"))["notify"].charts
    assert max(value or 0 for value in waiting.lines[0].values) == 6200


def test_the_watch_notes_what_waits(row: BizReceive, settings: Any) -> None:
    publish(row.biz, 3)
    settings.ROOT_URLCONF = ""  # as in a program without addresses
    of_flows.note_backlogs()
    (noted,) = of_flows.read_backlogs(["notify"])["notify"].values()
    assert noted == 3


def test_a_flow_that_nobody_has_set_up_is_a_word(admin_client: Client) -> None:
    pages.set_up_flows.clear()
    answer = admin_client.get("/console/")
    assert cards(answer) == {}
    assert {flow.name for flow in answer.context["unused"]} == {"notify", "feed", "sms", "crmsync"}
    assert "not set up" in answer.content.decode()
    SmsGateway.objects.create(name="unicom", host="127.0.0.1", port=8801)
    pages.unused_until.clear()  # a while later
    answer = admin_client.get("/console/")
    assert set(cards(answer)) == {"sms"}


def test_a_card_says_each_thing_once(row: BizReceive, admin_client: Client) -> None:
    count("notify", row.pk, delivered=432, exhausted=401)
    failure_store.add("notify", [Loss(row.pk, "HTTP 503", 1, "")] * 400, sql.now())
    page = admin_client.get("/console/").content.decode()
    card = page.partition('id="live-notify"')[2].partition("</article>")[0]
    words = re.findall("<dt>(.*?)</dt>", card)
    assert len(words) == len(set(words)), words
    assert not [word for word in words if "exhausted" in word or "last hour" in word]
    assert re.search(r"open failures</dt><dd><a[^>]+/console/failures[^>]+>400<", card)


def test_open_alerts_come_before_the_charts(row: BizReceive, admin_client: Client) -> None:
    order = ("live-alerts", "live-notify")
    count("notify", row.pk, delivered=6)
    page = admin_client.get("/console/").content.decode()
    assert sorted(order, key=page.index) == ["live-notify", "live-alerts"], "nothing needs anybody"
    alerts.raise_alert("a.b", "Gateway 7 is down", "It does not answer.", "a.b:7")
    page = admin_client.get("/console/").content.decode()
    assert sorted(order, key=page.index) == ["live-alerts", "live-notify"]
    assert page.count('id="live-alerts"') == page.count('id="live-troubles"') == 1


def test_the_parts_alone_are_those_of_the_page(row: BizReceive, admin_client: Client) -> None:
    count("notify", row.pk, delivered=6)
    page = admin_client.get("/console/").content.decode()
    parts = admin_client.get("/console/?live=1").content.decode()
    assert "<html" not in parts
    assert "http-equiv" not in page
    for id in ("live-time", "live-notify", "live-alerts", "live-programs", "chart-notify"):
        assert page.count(f'id="{id}"') == parts.count(f'id="{id}"') == 1, id
    assert 'data-live-seconds="10"' in page


def test_programs_of_two_releases_are_told_apart(admin_client: Client) -> None:
    beats = [Heartbeat("maker", release="1.0.0"), Heartbeat("sender", release="1.0.0")]
    for beat in beats:
        beat.send()
    assert "1.0.0" not in admin_client.get("/console/").content.decode()
    beats[1].release = "1.1.0"
    beats[1].send()
    page = admin_client.get("/console/").content.decode()
    for beat in beats:
        beat.withdraw()
    assert "Programs of the releases 1.0.0, 1.1.0 run: an update is under way" in page
    assert re.search(r"<td>maker</td><td>[^<]+ · 1\.0\.0</td>", page)


def test_what_is_in_trouble_the_worst_first(row: BizReceive, admin_client: Client) -> None:
    lossy, failing = (subscription(row.biz, name) for name in ("lossy", "failing"))
    count("notify", row.pk, delivered=100)
    count("notify", lossy.pk, exhausted=3, failed=3)
    count("notify", failing.pk, failed=40, delivered=1)
    count("notify", row.pk, 61 * MINUTE, exhausted=5)
    count("feed", 0, set_aside_vip=9)
    answer = admin_client.get("/console/")
    found = [
        (one.group.title, one.failures, one.failed_attempts)
        for one, _url in answer.context["troubles"]
    ]
    assert found == [("vip", 9, 0), (str(lossy), 3, 3), (str(failing), 0, 40)]
    assert f'href="/admin/notify/bizreceive/{lossy.pk}/change/"' in answer.content.decode()


def test_what_is_late_is_named_though_nothing_was_counted(row: BizReceive) -> None:
    flow = flows.get("notify")
    assert flow
    (found,) = recent.worst({flow: {str(row.pk): 99.0}}, sql.now(), 5, late=30.0)
    assert (found.group.title, found.oldest_seconds, found.failures) == (str(row), 99.0, 0)
    assert recent.worst({flow: {str(row.pk): 29.0}}, sql.now(), 5, late=30.0) == []


def test_each_sees_the_flows_that_are_theirs(row: BizReceive) -> None:
    count("notify", row.pk, exhausted=3)
    count("feed", 0, set_aside_vip=9)
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    client = Client()
    client.force_login(user)
    nothing = client.get("/console/")
    assert cards(nothing) == {}
    assert nothing.context["troubles"] == []
    user.user_permissions.add(Permission.objects.get(codename="view_bizmsg"))
    answer = client.get("/console/")
    assert set(cards(answer)) == {"notify"}
    ((_trouble, url),) = answer.context["troubles"]
    assert url == "", "who may not open the subscription is not led there"
    assert Client().get("/console/?live=1").status_code == 302


def test_alerts_are_shown_to_those_who_may_see_them() -> None:
    alerts.raise_alert("notify.failing", "It fails", "since noon", "k")
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    client = Client()
    client.force_login(user)
    page = client.get("/console/").content.decode()
    assert "It fails" not in page
    assert "/admin/msgplatform/alert/" not in page
    user.user_permissions.add(Permission.objects.get(codename="view_alert"))
    page = client.get("/console/").content.decode()
    assert "It fails" in page
    assert "/admin/msgplatform/alert/?state=unseen_other" in page


def test_the_alerts_that_are_counted_are_those_of_the_list(admin_client: Client) -> None:
    """Alerts about failures are not among them: their groups are counted."""
    alerts.raise_alert("sms.link", "No link", "to the gateway", "sms.link:1")
    alerts.raise_alert("notify.failures", "Given up", "for orders", "notify.failures:7")
    page = admin_client.get("/console/").content.decode()
    link = re.search(r'href="(/admin/msgplatform/alert/\?state=\w+)">1 alert is open', page)
    assert link
    listed = admin_client.get(link[1]).context["cl"].result_list
    assert [row.kind for row in listed] == ["sms.link"]
    failure_store.add("notify", [Loss(7, "HTTP 503", 1)], sql.now())
    assert ">1 other alert is open, and" in admin_client.get("/console/").content.decode()


def test_last_words_of_programs_are_masked_like_alerts(
    admin_client: Client, settings: Any, tmp_path: Any
) -> None:
    settings.STATE_DIR = tmp_path
    (tmp_path / "run").mkdir()
    words = "IntegrityError: Duplicate entry '13800001111' for key 'phone'"
    exits.report([exits.Exits("run_maker", 3, words)], [])
    assert "13800001111" in admin_client.get("/console/").content.decode()
    client = Client()
    client.force_login(User.objects.create_user("looker", is_staff=True))
    for address in ("/console/", "/console/?live=1"):
        shown = client.get(address).content.decode()
        assert "Duplicate entry" in shown
        assert "13800001111" not in shown


def test_the_cost_does_not_grow_with_what_is_shown(row: BizReceive, admin_client: Client) -> None:
    def queries(most: int) -> int:
        for n in range(most):
            one = subscription(row.biz, f"s{most}-{n}")
            count("notify", one.pk, n % 50 * MINUTE, delivered=1, exhausted=1, failed=1)
            count("crmsync", n + 1, read=1, dead=1)
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get("/console/").status_code == 200
        return len(captured)

    queries(1)  # what is cached is cached
    assert queries(20) == queries(200)


def test_only_the_time_that_is_looked_at_is_read(row: BizReceive) -> None:
    """However long counters are kept: the index by minute is the only one that fits."""
    now = sql.now().replace(second=0, microsecond=0)
    activity = flows.all()[0].health.activity
    assert activity
    MinuteCounter.objects.bulk_create(
        MinuteCounter(
            minute=now - n * MINUTE, flow="notify", biz_id=1, subject=row.pk,
            name="delivered", value=1,
        )
        for n in range(3000)
    )  # fmt: skip
    _statistics_of_the_table()
    with CaptureQueriesContext(connection) as captured:
        recent.series(flows.all(), Span(MINUTE, 60), now)
        list(CounterQuery(activity, "hour", now - 60 * MINUTE, now).series())
    statements = [q["sql"] for q in captured if "minutecounter" in q["sql"]]
    assert len(statements) == 2
    for statement in statements:
        with connection.cursor() as cursor:
            plan = str(read_plan(cursor, statement))
        assert ("minute_counter_key" if connection.vendor == "mysql" else "(minute>? AND") in plan


def _statistics_of_the_table() -> None:
    """MariaDB keeps some by itself; SQLite has none where nobody asks for them, and plans without.
    Another test may have left some of an empty table."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("ANALYZE TABLE msgplatform_minutecounter")
            cursor.fetchall()
            return
        for statement in ("ANALYZE", "DELETE FROM sqlite_stat1", "ANALYZE sqlite_schema"):
            cursor.execute(statement)


def test_the_time_of_the_page_has_its_zone(admin_client: Client) -> None:
    Preferences.objects.create(user=User.objects.get(), time_zone="Asia/Shanghai")
    assert "Asia/Shanghai" in admin_client.get("/console/?live=1").content.decode()
