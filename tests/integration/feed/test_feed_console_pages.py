"""The console of Feed: the scheduler, statistics; who may see what, and what a page costs."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bench.harness.plans import read_plan
from msgplatform.core.data import ids, sql
from msgplatform.doors.admin import RowsAdmin, rows as list_rows
from msgplatform.doors.admin.chart import Chart
from msgplatform.models import Biz, Preferences
from notify.feed import presence
from notify.feed.models import EventQueue, Feed, FeedPace
from tests.support import feed_rows, table_rows
from tests.support.feed_pages import (
    ADMIN,
    ALL,
    EVENTS,
    PAGES,
    POSTS,
    SCHEDULER,
    STATISTICS,
    STATISTICS_FILE,
    USERS,
    address,
    get,
    person,
    replay,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Status = EventQueue.Status


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


class TestStatistics:
    def test_page_and_file(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        feed_rows.visited(biz, "bob", "cid")
        feed_rows.post(biz, "ann")
        feed_rows.post(biz, "ann", topic="vip")
        feed_rows.drain()
        context = admin_client.get(STATISTICS).context
        assert [value for _title, value in context["numbers"]][:3] == [2, 2, 3]
        topics = next(t for t in context["tables"] if t.heading == "Topic")
        assert {row.title: row.values[2] for row in topics.rows} == {"friend": 1, "vip": 2}
        one = admin_client.get(f"{STATISTICS}&topic=vip&system={biz.pk}&period=1h").context
        assert [value for _title, value in one["numbers"]][2] == 2
        assert one["form"].cleaned_data["step"] == "minute"
        answer = admin_client.get(f"{STATISTICS_FILE}&by=system&topic=vip")
        lines = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
        assert f",{biz.pk},orders,1,1,2,0,0," in lines[1]
        assert len(lines) == 2

    def test_a_wrong_topic(self, admin_client: Client) -> None:
        assert admin_client.get(f"{STATISTICS}&topic=x").context["form"].errors
        assert admin_client.get(f"{STATISTICS_FILE}&topic=x").status_code == 400


class TestScheduler:
    def charts(self, client: Client, query: str = "") -> dict[str, Any]:
        shown = client.get(f"{ADMIN}{SCHEDULER}{query}").context["charts"]
        return {chart.title: chart for chart in shown}

    def test_nothing_was_decided_yet(self, admin_client: Client) -> None:
        page = get(admin_client, SCHEDULER)
        assert "No dispatcher runs" in page
        assert page.count("Nothing was recorded in this time") == 1
        assert "There is no policy" in page
        presence.dispatchers.report({"one": presence.DispatcherReport(7)})
        assert "have not decided anything yet" in get(admin_client, SCHEDULER)

    def test_redis_is_unavailable(self, admin_client: Client, servers: Any) -> None:
        servers.work.kill()
        try:
            assert "The work Redis is unavailable" in get(admin_client, SCHEDULER)
        finally:
            servers.work.start()

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"share": 1.0}, "at full speed"),
            ({"share": 0.3, "max_share": 0.3}, "as much as the policy of this hour allows"),
            ({"share": 0.5, "load": 0.2}, "become faster every second"),
            ({"share": 0.5, "load": 0.9}, "keep their speed"),
            ({"share": 0.5, "load": 2.5, "cause": "stmt", "min_share": 0.1},
             "give way, because of: statements of others.<"),
            ({"share": 0.1, "load": 2.5, "cause": "cpu", "min_share": 0.1},
             "They keep the least share."),
        ],
    )  # fmt: skip
    def test_the_decision_and_why(
        self, admin_client: Client, given: dict[str, Any], says: str
    ) -> None:
        presence.lease.hold("me")
        decision = presence.PaceDecision(
            by="me", at=time.time(), events=40, oldest={"vip": 75.0}, **given
        )
        assert presence.publish_decision(decision)
        page = get(admin_client, SCHEDULER)
        assert says in page
        assert "oldest event, vip" in page
        assert "1 min" in page

    def test_policies_by_hour(self, admin_client: Client, settings: Any) -> None:
        hour = timezone.localtime().hour
        settings.FEED_SHARE_BY_HOUR = (
            f"{hour}-{(hour + 2) % 24}:0.3, {(hour + 5) % 24}-{(hour + 6) % 24}:1"
        )
        rules = admin_client.get(f"{ADMIN}{SCHEDULER}").context["policies"]
        assert [(rule["max_share"], rule["is_now"]) for rule in rules] == [
            ("30 %", True), ("100 %", False),
        ]  # fmt: skip

    def test_hours_are_in_the_zone_of_the_platform(
        self, admin_client: Client, settings: Any
    ) -> None:
        settings.FEED_SHARE_BY_HOUR = "19-23:0.3"
        Preferences.objects.create(user=User.objects.get(), time_zone="Asia/Shanghai")
        assert f"Times are in {settings.TIME_ZONE};" in get(admin_client, SCHEDULER)

    def test_charts(self, admin_client: Client) -> None:
        """Each step has the worst of its rows; where nothing ran the line is broken."""
        now = sql.now()
        for minutes, load, share in ((30, 0.5, 1.0), (30.05, 2.5, 0.2), (10, 0.1, 0.6)):
            FeedPace.objects.create(
                at=now - timedelta(minutes=minutes), load=load, share=share, events=50, cause="",
                latency=0.4, baseline=0.3, statements=1, cpu=0.5, backlog=1234, oldest=4000,
            )  # fmt: skip
        charts = self.charts(admin_client)
        loads = values(charts["Load"])
        assert [value for value in loads if value is not None] == [2.5, 0.1]
        first, second = (place for place, value in enumerate(loads) if value is not None)
        assert second - first > 1, "a gap between them"
        share = charts["Share of their time that dispatchers work"]
        assert [value for value in values(share) if value is not None] == [0.2, 0.6]
        assert max(value or 0 for value in values(charts["Events waiting"])) == 1234
        late = charts["Age of the oldest event"]
        assert [line.tone for line in late.lines] == ["plain", "limit"]
        assert "highest 4,000" in late.summary
        assert set(values(self.charts(admin_client, "?period=7d")["Load"])) == {None, 2.5}
        for period, is_live in (("1h", True), ("7d", False)):
            page = get(admin_client, f"{SCHEDULER}?period={period}")
            assert 'href="?period=24h"' in page
            assert ("data-live-seconds" in page) == is_live
            assert "http-equiv" not in page
        parts = get(admin_client, f"{SCHEDULER}?live=1")
        assert 'id="live-now"' in parts
        assert "<html" not in parts


def values(chart: Chart) -> list[float | None]:
    return list(chart.lines[0].values)


class TestPermissions:
    def test_who_has_none_sees_nothing(self, biz: Biz) -> None:
        qid = feed_rows.set_aside(biz, "ann")
        nobody = person("nobody")
        for path in (
            *PAGES, f"/console/feed/{qid}", f"{EVENTS}{qid}/change/",
            f"{USERS}?system=orders&uid=ann",
        ):  # fmt: skip
            get(nobody, path, 403)
        assert ADMIN not in nobody.get("/console/").content.decode()

    def test_each_page_has_its_permission(self, biz: Biz) -> None:
        feed_rows.post(biz, "ann")
        for name, allowed in (
            ("view_feed", {POSTS}), ("view_eventqueue", {EVENTS, SCHEDULER}),
            ("view_feeduser", set()),
        ):  # fmt: skip
            client = person(name, name)
            for path in PAGES:
                get(client, path, 200 if path in allowed else 403)
            for path in allowed & {POSTS, EVENTS}:
                page = get(client, path)
                assert "ann" in page
                assert USERS not in page  # nothing leads to what is refused
        client = person("all", *ALL)
        for path in PAGES:
            get(client, path)
            assert f'href="{address(path)}"' in client.get("/console/").content.decode()

    def test_looking_is_not_replaying(self, biz: Biz) -> None:
        qid = feed_rows.set_aside(biz, "ann")
        viewer = person("viewer", *ALL)
        assert "Replay" not in get(viewer, f"{EVENTS}{qid}/change/")
        replay(viewer, qid, confirmed="yes")
        assert feed_rows.event(qid).status == Status.SET_ASIDE
        replay(person("operator", *ALL, "change_eventqueue"), qid, confirmed="yes")
        assert feed_rows.event(qid).status == Status.WAITING


def test_a_list_asks_as_much_for_many_rows_as_for_few(
    admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowsAdmin, "list_per_page", 200)
    monkeypatch.setattr("notify.feed.admin.users.RELATIONS_PAGE", 200)

    def fill(many: int) -> None:
        for n in range(many):
            feed_rows.set_aside(biz, f"ann{n}")
            feed_rows.post(biz, "star")
            feed_rows.related(biz, (f"fan{many}-{n}", "follow", "star"))

    def queries() -> dict[str, int]:
        found = {}
        for path in (
            f"{POSTS}?biz=orders", EVENTS, f"{EVENTS}?status__exact=3",
            f"{USERS}?system=orders&uid=star&show=followers",
            f"{USERS}?system=orders&uid=star", SCHEDULER,
        ):  # fmt: skip
            with CaptureQueriesContext(connection) as captured:
                admin_client.get(address(path))
            found[path] = len(captured)
        return found

    admin_client.get(POSTS)  # what is cached is cached
    fill(20)
    few = queries()
    fill(180)
    assert queries() == few


def wrong_steps(statement: str) -> list[str]:
    """Steps of a plan that read a whole hot table."""
    hot = ("feed", "eventqueue", "friend", "feed_user")
    with connection.cursor() as cursor:
        plan = read_plan(cursor, statement)
    if connection.vendor == "sqlite":
        details = [step["detail"] for step in plan]
        return [d for d in details if d.startswith(tuple(f"SCAN {t}" for t in hot))
                and " USING " not in d and "WHERE" in statement]  # fmt: skip
    return [str(step) for step in plan if step["type"] == "ALL" and step["table"] in hot]


def test_whatever_is_chosen_is_read_from_an_index(
    admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_rows, "MAX_RECENT_ROWS", 500)
    feed_rows.related(biz, ("cid", "follow", "ann"), ("ann", "befriend", "bob"))
    now = sql.now()
    made = ids.reserve(4000).ids(range(4000))
    table_rows.insert_like(
        Feed(biz=biz, topic="friend", data="x", create_date=now),
        ("id", "uid"),
        ((number, f"u{n % 50}") for n, number in enumerate(made)),
    )
    table_rows.insert_like(
        EventQueue(biz=biz, uid="ann", create_date=now),
        ("qid", "topic", "status"),
        ((number, ("friend", "vip")[n % 2], 1 if n % 40 else 3) for n, number in enumerate(made)),
    )
    with connection.cursor() as cursor:
        for table in ("feed", "eventqueue"):
            word = "ANALYZE TABLE" if connection.vendor == "mysql" else "ANALYZE"
            cursor.execute(f"{word} {table}")
            cursor.fetchall()
    found: dict[str, list[str]] = {}
    for path in (
        POSTS, f"{POSTS}?cursor={made[70]}&topic=vip", f"{POSTS}?topic=vip",
        f"{POSTS}?state=deleted", f"{POSTS}?biz=orders", f"{POSTS}?user=u7",
        f"{POSTS}?id={made[7]}", f"{POSTS}?user=u7&topic=vip&app_id=web",
        f"{POSTS}?state=set_aside&app_id=web", EVENTS, f"{EVENTS}?status__exact=3",
        f"{EVENTS}?status__exact=1", f"{EVENTS}?topic__exact=vip&status__exact=3",
        f"{EVENTS}?kind__exact=post&age=1h", f"{EVENTS}?q=ann", f"{EVENTS}?age=1m",
        f"{USERS}?system=orders&uid=ann&show=followers",
        f"{USERS}?system=orders&uid=cid&show=follows",
    ):  # fmt: skip
        with CaptureQueriesContext(connection) as captured:
            get(admin_client, path)
        for query in captured:
            statement = query["sql"]
            is_hot = statement.startswith("SELECT") and "feed" in statement + path
            if is_hot and "WHERE" in statement and (wrong := wrong_steps(statement)):
                found[path] = [*wrong, statement[:300]]
    assert found == {}
