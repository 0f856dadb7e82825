"""The page of statistics over all flows, and its files."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from msgplatform.core.data import sql
from msgplatform.doors.admin import cells
from msgplatform.models import Biz, DayCounter, MinuteCounter, Preferences
from msgplatform.monitor.statistics.points import in_order
from notify.models import BizReceive
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
ALL, PAGE, FILE = (
    "/console/statistics", "/console/statistics?flow=notify", "/console/statistics.csv?flow=notify",
)  # fmt: skip


@pytest.fixture
def rows() -> list[BizReceive]:
    """Two systems; the first's subscription lost a lot in the last hour."""
    made, now = [], sql.now()
    for name, delivered, lost in (("shop", 90, 10), ("stock", 7, 0)):
        biz = Biz.objects.create(name=name)
        row = subscription(biz, f"{name}-consumer")
        made.append(row)
        counts = {
            (biz.pk, 0, "accepted"): delivered, (biz.pk, row.pk, "delivered"): delivered,
            (biz.pk, row.pk, "exhausted"): lost, (biz.pk, row.pk, "failed"): lost,
            (biz.pk, row.pk, "answer 503"): lost,
        }  # fmt: skip
        MinuteCounter.add("notify", counts, now)
        for (biz_id, subject, counter), value in counts.items():
            DayCounter.objects.create(
                day=timezone.localdate() - timedelta(days=2), flow="notify", biz_id=biz_id,
                subject=subject, name=counter, value=value * 1000,
            )  # fmt: skip
    return made


def numbers(answer: Any) -> dict[str, Any]:
    return {str(title): value for title, value in answer.context["numbers"]}


def titles(answer: Any, heading: str) -> list[str]:
    (table,) = (t for t in answer.context["tables"] if str(t.heading) == heading)
    return [row.title for row in table.rows]


def test_one_flow_ranked_by_what_was_lost(admin_client: Client, rows: list[BizReceive]) -> None:
    answer = admin_client.get(PAGE)
    shown = numbers(answer)
    assert (shown["accepted"], shown["delivered"], shown["failed attempts"]) == (97, 97, 10)
    assert shown["success"] == "90.6 %"
    assert titles(answer, "Subscription") == [str(rows[0]), str(rows[1])]
    assert titles(answer, "System") == ["shop", "stock"]
    assert answer.context["answers"] == [("HTTP 503", 10)]
    assert "Times are in UTC" in answer.content.decode()


def test_all_flows(admin_client: Client, rows: list[BizReceive]) -> None:
    MinuteCounter.add("feed", {(rows[1].biz_id, 0, "set_aside_vip"): 11}, sql.now())
    MinuteCounter.add("sms", {(1, 5, "delivered"): 3, (1, -2, "delivered"): 3}, sql.now())
    answer = admin_client.get(ALL)
    assert set(titles(answer, "Flow")) == {"Notify", "SMS", "CRM sync", "Feed"}
    by_flow, by_system = answer.context["tables"]
    sms = next(row for row in by_flow.rows if row.title == "SMS")
    assert sms.values[0] == 3, "once, not for the gateway too"
    assert [(row.title, str(row.values[0])) for row in by_system.rows][:2] == [
        ("stock", "Feed"), ("shop", "Notify"),
    ]  # fmt: skip
    assert by_system.rows[1].url.endswith(f"flow=notify&system={rows[0].biz_id}")


def test_the_address_says_what_is_shown(admin_client: Client, rows: list[BizReceive]) -> None:
    answer = admin_client.get(f"{PAGE}&subscription={rows[1].pk}")
    assert numbers(answer)["delivered"] == 7
    assert numbers(answer)["accepted"] == cells.NOTHING, "not counted for one: a dash, and not 0"
    assert "Subscription" not in [str(table.heading) for table in answer.context["tables"]]
    assert f'href="/admin/notify/bizreceive/{rows[1].pk}/change/"' in answer.content.decode()
    answer = admin_client.get(f"{PAGE}&system={rows[0].biz_id}&step=day&period=7d")
    assert numbers(answer)["delivered"] == 90_000
    assert len(answer.context["steps"].rows) == 1
    file = answer.context["steps"].file
    assert file.startswith("/console/statistics.csv?")
    assert {"step=day", f"system={rows[0].biz_id}"} <= set(file.partition("?")[2].split("&"))


def test_the_other_flows_are_shown_for_the_same_time(
    admin_client: Client, rows: list[BizReceive]
) -> None:
    shown = admin_client.get(ALL).content.decode()
    assert 'href="?flow=notify"' in shown, "no period in the address: the usual one"
    shown = admin_client.get(f"{ALL}?period=7d&until=2026-01-02T00%3A00&step=").content.decode()
    time = "period=7d&amp;until=2026-01-02T00%3A00"
    assert f'href="?flow=notify&amp;{time}"' in shown
    assert f'href="?{time}"' in shown
    # An address with an empty period has the usual one, and says so.
    answer = admin_client.get(f"{PAGE}&period=")
    assert answer.context["form"]["period"].value() == "24h"
    assert '<option value="24h" selected>' in answer.content.decode()


def test_from_and_until_are_in_the_readers_time_zone(
    admin_client: Client, rows: list[BizReceive]
) -> None:
    Preferences.objects.create(user=User.objects.get(), time_zone="Asia/Shanghai")
    with timezone.override("Asia/Shanghai"):
        here = timezone.localtime()
        since, until = (
            (here + timedelta(minutes=shift)).strftime("%Y-%m-%dT%H:%M") for shift in (-5, 1)
        )
        answer = admin_client.get(f"{PAGE}&since={since}&until={until}")
        assert numbers(answer)["delivered"] == 97
        assert answer.context["form"].cleaned_data["step"] == "minute"
        assert "Times are in Asia/Shanghai" in answer.content.decode()
        earlier = (here - timedelta(hours=8)).strftime("%Y-%m-%dT%H:%M")
        answer = admin_client.get(f"{PAGE}&since={earlier}&until={since}")
        assert numbers(answer)["delivered"] == 0


def test_today_and_yesterday_are_days_of_the_reader(admin_client: Client) -> None:
    Preferences.objects.create(user=User.objects.get(), time_zone="Asia/Shanghai")
    # Yesterday's last minute and today's first one in Shanghai; both are of one day in UTC.
    with time_machine.travel(datetime(2026, 11, 25, 20, 30, tzinfo=UTC), tick=False):
        for shift, count in ((timedelta(hours=-5), 3), (timedelta(hours=-4), 5)):
            MinuteCounter.add("notify", {(1, 2, "delivered"): count}, timezone.now() + shift)
        for period, delivered in (("today", 5), ("yesterday", 3)):
            assert numbers(admin_client.get(f"{PAGE}&period={period}"))["delivered"] == delivered
    answer = admin_client.get(f"{PAGE}&period=today&since=2026-11-01T00%3A00")
    assert answer.status_code == 200


def test_a_step_of_another_day_has_its_date(admin_client: Client) -> None:
    at = sql.now() - timedelta(hours=26)
    MinuteCounter.add("notify", {(1, 0, "accepted"): 3}, at)
    (row,) = admin_client.get(f"{PAGE}&period=3d").context["steps"].rows
    assert row.title == f"{at:%m-%d %H}:00", "though all that was counted is of one day"


def test_a_step_that_goes_on_is_drawn_as_such(admin_client: Client, rows: list[BizReceive]) -> None:
    def open_charts(query: str) -> dict[str, bool]:
        charts = admin_client.get(f"{PAGE}&{query}").context["charts"]
        return {chart.name: json.loads(chart.data)["lastIsOpen"] for chart in charts}

    row, now = rows[0], sql.now()
    counts = {(row.biz_id, row.pk, name): 1 for name in ("delivered", "latency_le_100ms")}
    for ago in (timedelta(), timedelta(hours=3)):
        MinuteCounter.add("notify", counts, now - ago)
    both_open = {"counts": True, "times": True}
    assert open_charts("") == both_open
    assert open_charts("period=7d&step=day")["counts"]
    hour = now.replace(minute=0) - timedelta(hours=1)
    since, until = f"{now - timedelta(hours=9):%Y-%m-%dT%H:%M}", f"{hour:%Y-%m-%dT%H:%M}"
    whole = open_charts(f"since={since}&until={until}&step=hour")
    assert whole == {"counts": False, "times": False}
    half = f"{hour:%Y-%m-%dT%H}:30"
    assert open_charts(f"since={since}&until={half}&step=hour") == both_open, "half of it"
    yesterday = f"{now - timedelta(days=1):%Y-%m-%dT%H:%M}"
    assert open_charts(f"period=7d&until={yesterday}&step=day") == {"counts": False}


@pytest.mark.parametrize(
    "query",
    ["period=never", "step=week", "subscription=x", f"subscription={2**31 - 1}", "system=-1",
     "since=x", "period=365d&step=hour", "system=" + "9" * 40,
     "since=2026-01-02T00:00&until=2026-01-01T00:00",
     "since=0001-01-01T00:00&step=day", "until=0001-01-01T00:00",
     "since=9999-12-31T23:59", "subscription=%00"],
)  # fmt: skip
def test_a_wrong_choice_is_said(admin_client: Client, rows: list[BizReceive], query: str) -> None:
    answer = admin_client.get(f"{PAGE}&{query}")
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert "numbers" not in answer.context
    assert admin_client.get(f"{FILE}&{query}").status_code == 400


def test_there_is_no_such_flow_or_dimension(admin_client: Client) -> None:
    for path in (ALL, "/console/statistics.csv"):
        assert admin_client.get(f"{path}?flow=nothing").status_code == 404
    assert admin_client.get(f"{FILE}&by=nothing").status_code == 400


def test_nothing_yet(admin_client: Client) -> None:
    assert "Nothing was counted in this time." in admin_client.get(PAGE).content.decode()


def lines(client: Client, address: str) -> list[dict[str, str]]:
    answer: Any = client.get(address)
    assert answer["Content-Type"].startswith("text/csv")
    assert ".csv" in answer["Content-Disposition"]
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_file_holds_the_same(admin_client: Client, rows: list[BizReceive]) -> None:
    found = lines(admin_client, f"{FILE}&by=system&system={rows[0].biz_id}")
    assert {line["system_title"] for line in found} == {"shop"}
    assert sum(int(line["delivered"]) for line in found) == 90
    found = lines(admin_client, f"{FILE}&by=subscription")
    assert {line["subscription_title"]: line["failures"] for line in found} == {
        str(rows[0]): "10", str(rows[1]): "0",
    }  # fmt: skip
    (line,) = lines(admin_client, FILE)
    assert (line["accepted"], line["delivered"], line["success"]) == ("97", "97", "0.9065")


def test_all_flows_have_a_file(admin_client: Client, rows: list[BizReceive]) -> None:
    found = lines(admin_client, "/console/statistics.csv?period=24h")
    notify = [(one["system"], one["delivered"]) for one in found if one["flow"] == "notify"]
    assert notify == [("", "97"), ("shop", "90"), ("stock", "7")]
    assert {one["flow"] for one in found} == {"notify", "sms", "crmsync", "feed"}
    answer = admin_client.get(ALL)
    assert answer.context["tables"][0].file == "/console/statistics.csv?"
    assert admin_client.get("/console/statistics.csv?period=x").status_code == 400


@pytest.mark.parametrize(
    "name", ["=cmd()", " =1+1", "＝1+1", "＋1", "－1", "＠a", "\t=1", "\u3000=1"]
)
def test_a_name_is_no_formula(admin_client: Client, rows: list[BizReceive], name: str) -> None:
    """Full-width signs count for spreadsheets in Chinese and Japanese; blanks before them too."""
    Biz.objects.filter(pk=rows[0].biz_id).update(title=name)
    titles = {line["system_title"] for line in lines(admin_client, f"{FILE}&by=system")}
    assert titles == {f"'{name}", "stock"}


def test_only_for_those_who_may_see_the_flow(rows: list[BizReceive]) -> None:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    client = Client()
    client.force_login(user)
    for path in (ALL, PAGE, FILE):
        assert client.get(path).status_code == 403
        assert Client().get(path).status_code == 302
    assert ALL not in client.get("/console/").content.decode()
    user.user_permissions.add(Permission.objects.get(codename="view_feed"))
    assert titles(client.get(ALL), "Flow") == ["Feed"]
    assert client.get(PAGE).status_code == 403
    assert f'href="{ALL}"' in client.get("/console/").content.decode()


def test_the_cost_does_not_grow_with_the_rows(rows: list[BizReceive], admin_client: Client) -> None:
    def queries(many: int, address: str) -> int:
        for n in range(many):
            one = subscription(rows[0].biz, f"s{many}-{n}")
            counts = {(one.biz_id, one.pk, "delivered"): 1, (one.biz_id, one.pk, "exhausted"): 1}
            MinuteCounter.add("notify", counts, sql.now() - timedelta(minutes=n % 50))
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(address).status_code == 200
        return len(captured)

    queries(1, PAGE)
    assert queries(20, PAGE) == queries(200, PAGE)
    assert queries(0, ALL) == queries(30, ALL)


def test_a_file_is_read_in_pieces(admin_client: Client) -> None:
    """MariaDB's driver holds a whole answer: one of weeks of minutes would be too much."""
    now = sql.now().replace(minute=45)
    for ago in (0, 7, 25, 44):
        MinuteCounter.add("notify", {(1, 0, "accepted"): 1}, now - timedelta(minutes=ago))
    counters = MinuteCounter.objects.annotate(at=F("minute"))
    pieces = [list(piece.values_list("at", flat=True)) for piece in in_order(counters)]
    assert [len(piece) for piece in pieces] == [1, 1, 0, 1, 1]
    times = [at for piece in pieces for at in piece]
    assert times == sorted(times)
    assert list(in_order(counters.none())) == []
