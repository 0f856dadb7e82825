"""The console of Feed: posts, the queue of events, users; who may see and do what."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from msgplatform.admin import RowsAdmin
from msgplatform.core.data import ids, sql
from msgplatform.models import AuditLog, Biz
from notify.feed import pace_status
from notify.feed.admin import rows as lists
from notify.feed.intake import posts
from notify.feed.models import EventQueue, Feed, FeedPace, FeedUser
from tests.integration.support import feed_rows, table_rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
ADMIN = "/admin/feed/"
POSTS, EVENTS, USERS = "feed/", "eventqueue/", "feed/users/"
SCHEDULER, STATISTICS = "eventqueue/scheduler/", "eventqueue/statistics/"
PAGES = (POSTS, EVENTS, USERS, SCHEDULER)
Status = EventQueue.Status
ALL = ("view_feed", "view_eventqueue", "view_feeduser")


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def get(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(ADMIN + path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def listed(client: Client, path: str) -> list[int]:
    answer = client.get(ADMIN + path)
    assert answer.status_code == 200, (path, answer.status_code)
    return [row.pk for row in answer.context["cl"].result_list]


def cell(client: Client, path: str, column: str) -> list[str]:
    """A column's text in each row of a list."""
    shown = client.get(ADMIN + path).context["cl"]
    return [str(getattr(shown.model_admin, column)(row)) for row in shown.result_list]


def person(name: str, *permissions: str) -> Client:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def replay(client: Client, *qids: int, **given: str) -> Any:
    data = {"action": "replay", "_selected_action": qids, "index": 0, **given}
    return client.post(ADMIN + EVENTS, data, follow=True)


class TestPosts:
    def test_list_search_and_filters(self, admin_client: Client, biz: Biz) -> None:
        other = Biz.objects.create(name="other")
        first = feed_rows.post(biz, "ann", "one", app_id="blog", src_type="note")
        vip = feed_rows.post(biz, "1001", "two", topic="vip")
        gone = feed_rows.post(other, "ann", "three")
        posts.edit(biz.pk, vip, "two, corrected")
        posts.delete(other.pk, gone)
        for query, wanted in (
            ("", [gone, vip, first]), (f"q={vip}", [vip]), ("q=ann", [gone, first]),
            ("q=1001", [vip]), ("q=nobody", []), ("topic__exact=vip", [vip]),
            ("state=deleted", [gone]), ("state=edited", [vip]), ("state=there", [vip, first]),
            (f"biz__id__exact={other.pk}", [gone]), ("q=ann&state=there", [first]),
            ("id_since=2099-01-01T00:00", []), ("id_until=2099-01-01T00:00", [gone, vip, first]),
            ("biz__id__exact=x", [gone, vip, first]),
            ("q=%00", [gone, vip, first]),
        ):  # fmt: skip
            assert listed(admin_client, f"{POSTS}?{query}") == wanted, query

    def test_the_state_says_what_became_of_it(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"))
        done = feed_rows.post(biz, "ann")
        feed_rows.drain()
        old = feed_rows.post(biz, "ann")
        EventQueue.objects.filter(pk=old).delete()
        gone = feed_rows.post(biz, "ann")
        posts.delete(biz.pk, gone)
        failed = feed_rows.set_aside(biz, "ann")
        waiting = feed_rows.post(biz, "ann")
        assert listed(admin_client, POSTS) == [waiting, failed, gone, old, done]
        words = ("waiting", "set aside", "deleted", "in timelines", "in timelines")
        for state, word in zip(cell(admin_client, POSTS, "state"), words, strict=True):
            assert word in state

    def test_the_page_of_a_post(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        failed = feed_rows.set_aside(biz, "ann", data="<b>hello</b>", topic="vip")
        page = get(admin_client, f"{POSTS}{failed}/change/")
        for words in (
            "&lt;b&gt;hello&lt;/b&gt;", feed_rows.REASON, f"/console/feed/{failed}",
            f"{ADMIN}{EVENTS}{failed}/change/", "?system=orders&amp;uid=ann",
        ):  # fmt: skip
            assert words in page, words
        get(admin_client, f"{POSTS}1/change/", 404)

    def test_what_no_index_serves_is_looked_for_among_the_newest(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vip = feed_rows.post(biz, "ann", topic="vip")
        after = [feed_rows.post(biz, "ann") for _ in range(5)]
        assert listed(admin_client, f"{POSTS}?topic__exact=vip") == [vip]
        monkeypatch.setattr(lists, "LOOKED_AT", 5)
        told = "Only the newest 5 rows were looked through"
        assert listed(admin_client, f"{POSTS}?topic__exact=vip") == []
        assert told in get(admin_client, f"{POSTS}?topic__exact=vip")
        assert listed(admin_client, f"{POSTS}?biz__id__exact={biz.pk}") == after[::-1]
        # Indexes serve these: all of it is looked through.
        for query in ("", "q=ann", f"q={vip}", "id_until=2099-01-01T00:00"):
            assert vip in listed(admin_client, f"{POSTS}?{query}")
            assert told not in get(admin_client, f"{POSTS}?{query}")


class TestEvents:
    def test_list_search_and_filters(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"))
        done = feed_rows.post(biz, "ann")
        feed_rows.drain()
        failed = feed_rows.set_aside(biz, "bob", topic="vip")
        waiting = feed_rows.post(biz, "ann")
        old = ids.first_id_at(sql.now() - timedelta(hours=2))
        EventQueue.objects.create(
            qid=old, biz=biz, topic="upkeep", kind="backfill", uid="bob", create_date=sql.now()
        )
        for query, wanted in (
            ("", [waiting, failed, done, old]), (f"q={failed}", [failed]),
            ("q=bob", [failed, old]), ("status__exact=3", [failed]),
            ("topic__exact=upkeep", [old]), ("kind__exact=backfill", [old]),
            ("topic__exact=friend&status__exact=0", [waiting]), ("age=1h", [old]), ("age=1d", []),
            ("age=x", [waiting, failed, done, old]), ("qid_until=2025-01-02T00:00", []),
            ("status__exact=0&age=1h", [old]), ("status__exact=1", [done]),
            (f"biz__id__exact={biz.pk + 1}", []),
        ):  # fmt: skip
            assert listed(admin_client, f"{EVENTS}?{query}") == wanted, query
        states = cell(admin_client, f"{EVENTS}?status__exact=3", "status_mark")
        assert feed_rows.REASON in states[0]

    def test_the_bar_says_what_is_in_the_queue(self, admin_client: Client, biz: Biz) -> None:
        old = ids.first_id_at(sql.now() - timedelta(hours=2))
        EventQueue.objects.create(
            qid=old, biz=biz, topic="vip", uid="bob", status=Status.IN_SLICES,
            create_date=sql.now() - timedelta(hours=2),
        )  # fmt: skip
        for _ in range(3):
            feed_rows.post(biz, "ann")
        feed_rows.set_aside(biz, "ann")
        answer = admin_client.get(ADMIN + EVENTS)
        friend, vip, upkeep = answer.context["queue"]
        assert (friend.waiting, friend.in_slices, friend.set_aside) == ("3", "0", "1")
        assert friend.oldest_seconds < 60
        assert (vip.waiting, vip.in_slices, vip.set_aside) == ("0", "1", "0")
        assert 7199 < vip.oldest_seconds < 7300
        assert (friend.is_late, vip.is_late) == (False, True)
        assert (upkeep.waiting, upkeep.oldest_seconds) == ("0", None)

    def test_replay_asks_back_tells_and_is_written_down(
        self, admin_client: Client, biz: Biz
    ) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"))
        first, second = (feed_rows.set_aside(biz, "ann") for _ in range(2))
        waiting = feed_rows.post(biz, "ann")
        EventQueue.objects.filter(pk=second).update(position="friend:b")
        asked = replay(admin_client, first, second, waiting).content.decode()
        assert "2 events wait again" in asked
        assert feed_rows.REASON in asked
        assert "1 other was not set aside" in asked
        assert not EventQueue.objects.filter(pk=first, status=Status.WAITING).exists()
        assert not AuditLog.objects.exists()
        told = replay(admin_client, first, second, waiting, confirmed="yes").content.decode()
        assert "2 events wait again." in told
        assert "1 was left alone" in told
        for qid, position in ((first, ""), (second, "friend:b")):
            event = feed_rows.event(qid)
            assert (event.status, event.reason, event.position) == (Status.WAITING, "", position)
        entry = AuditLog.objects.get()
        assert (entry.actor, entry.action) == ("admin", "events_replayed")
        assert entry.detail["ids"] == [str(first), str(second), str(waiting)]

    def test_one_is_replayed_from_its_page(self, admin_client: Client, biz: Biz) -> None:
        qid = feed_rows.set_aside(biz, "ann")
        page = get(admin_client, f"{EVENTS}{qid}/change/")
        assert feed_rows.REASON in page
        assert "Replay" in page
        answer = replay(admin_client, qid, confirmed="yes", back_to=str(qid))
        assert answer.redirect_chain == [(f"{ADMIN}{EVENTS}{qid}/change/", 302)]
        assert "Replay" not in get(admin_client, f"{EVENTS}{qid}/change/")

    def test_too_many_are_a_bulk_job(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("notify.feed.admin.events._MOST", 1)
        qids = [feed_rows.set_aside(biz, "ann") for _ in range(2)]
        told = replay(admin_client, *qids, confirmed="yes").content.decode()
        assert "More than 1 are selected: use a bulk job" in told
        assert feed_rows.event(qids[0]).status == Status.SET_ASIDE

    def test_all_like_these_are_a_bulk_job(self, admin_client: Client, biz: Biz) -> None:
        """The job's filters are those of the list, or there is no button."""
        feed_rows.set_aside(biz, "ann", topic="vip")
        feed_rows.set_aside(biz, "bob")
        for query, count in (
            ("", 2), ("status__exact=3", 2), ("topic__exact=vip", 1), ("q=bob", 1),
            (f"biz__id__exact={biz.pk + 1}", 0), ("qid_until=2025-01-02T00:00", 0),
            ("qid_since=2025-01-02T00:00&qid_until=2099-01-01T00:00", 2), ("age=1h", 0),
        ):  # fmt: skip
            url = admin_client.get(f"{ADMIN}{EVENTS}?{query}").context["bulk_url"]
            assert escape(url) in get(admin_client, f"{EVENTS}?{query}")
            counted = admin_client.get(url).context["counted"]
            assert counted.count == count, query
        for query in ("status__exact=0", "kind__exact=post"):
            assert "Replay all like these" not in get(admin_client, f"{EVENTS}?{query}")
        viewer = person("viewer", *ALL, "change_eventqueue")
        assert "Replay all like these" not in get(viewer, EVENTS)


class TestUsers:
    def user(self, client: Client, uid: str, query: str = "") -> str:
        return get(client, f"{USERS}?system=orders&uid={uid}{query}")

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("system=nothing&uid=ann", "There is no system named nothing."),
            ("system=orders&uid=a%20b", "visible ASCII characters without spaces"),
            ("system=orders&uid=", "This field is required"),
            ("uid=ann", "This field is required"),
            ("system=orders&uid=" + "x" * 65, "at most 64 characters"),
            ("system=orders&uid=%00", "Null characters are not allowed"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, admin_client: Client, biz: Biz, query: str, says: str
    ) -> None:
        page = get(admin_client, f"{USERS}?{query}")
        assert says in page
        assert "Followers" not in page

    def test_figures_and_relations(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(
            biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"), ("ann", "follow", "dan"),
            ("ann", "block", "eve"),
        )  # fmt: skip
        feed_rows.visited(biz, "ann")
        page = self.user(admin_client, "ann")
        assert "active reader" in page
        figures = dict(admin_client.get(
            f"{ADMIN}{USERS}?system=orders&uid=ann").context["figures"])  # fmt: skip
        assert (figures["friends"], figures["followers"]) == ("1", "1")
        for show, other, others in (
            ("friends", "bob", ("cid", "dan", "eve")), ("followers", "cid", ("bob", "dan", "eve")),
            ("follows", "dan", ("bob", "cid", "eve")), ("blocks", "eve", ("bob", "cid", "dan")),
        ):  # fmt: skip
            page = self.user(admin_client, "ann", f"&show={show}")
            assert f">{other}</a>" in page, show
            assert not [name for name in others if f">{name}</a>" in page], show
        assert ">ann</a>" in self.user(admin_client, "eve", "&show=blocked")
        assert "Is blocked by nobody." in self.user(admin_client, "ann", "&show=blocked")
        assert "they never came to read" in self.user(admin_client, "nobody")

    @pytest.mark.parametrize("show", ["followers", "follows"])
    def test_relations_are_read_page_by_page(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch, show: str
    ) -> None:
        monkeypatch.setattr("notify.feed.admin.relations.PAGE", 3)
        others = [f"u+{n}&?" for n in range(7)]
        pairs = [("ann", o) if show == "follows" else (o, "ann") for o in others]
        feed_rows.related(biz, *((a, "follow", b) for a, b in pairs))
        found: list[str] = []
        address = f"{ADMIN}{USERS}?system=orders&uid=ann&show={show}"
        while address:
            context = admin_client.get(address).context
            found += [line.other for line in context["lines"]]
            address = context["next"] and f"{ADMIN}{USERS}?{context['next']}"
        assert found == others

    def test_other_systems_have_other_users(self, admin_client: Client, biz: Biz) -> None:
        other = Biz.objects.create(name="other")
        feed_rows.related(other, ("cid", "follow", "ann"))
        assert "they never came to read" in self.user(admin_client, "ann")
        assert "No followers." in self.user(admin_client, "ann", "&show=followers")


class TestTimeline:
    def see(self, client: Client, uid: str, query: str = "") -> tuple[list[int], int | None]:
        context = client.get(f"{ADMIN}{USERS}?system=orders&uid={uid}{query}").context
        return [post.id for post, _author in context["posts"]], context["next"]

    def test_it_is_what_the_user_sees(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        feed_rows.visited(biz, "bob")
        friend, vip = (feed_rows.post(biz, "ann", topic=topic) for topic in ("friend", "vip"))
        own = feed_rows.post(biz, "bob", "my own")
        feed_rows.drain()
        assert self.see(admin_client, "bob") == ([own, vip, friend], None)
        assert self.see(admin_client, "cid") == ([vip], None)
        assert self.see(admin_client, "dan") == ([], None)
        posts.delete(biz.pk, vip)
        assert self.see(admin_client, "bob") == ([own, friend], None)
        # To look at it here is no visit: cid's timeline is not written because of it.
        assert not FeedUser.objects.get(biz_id=biz.pk, uid="cid").active
        assert "unread" in get(admin_client, f"{USERS}?system=orders&uid=bob")

    def test_page_by_page(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("notify.feed.admin.users.PAGE", 3)
        made = [feed_rows.post(biz, "ann") for _ in range(7)]
        found, before = self.see(admin_client, "ann")
        while before:
            more, before = self.see(admin_client, "ann", f"&before={before}")
            found += more
        assert found == made[::-1]
        assert self.see(admin_client, "ann", "&before=x")[0] == made[:-4:-1]


class TestWhy:
    def why(self, client: Client, uid: str, post: object) -> str:
        return get(client, f"{USERS}?system=orders&uid={uid}&post={post}")

    def test_the_answer_and_its_reasons(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        feed_rows.visited(biz, "bob", "cid")
        done = feed_rows.post(biz, "ann")
        feed_rows.drain()
        failed = feed_rows.set_aside(biz, "ann")
        for uid, post, seen, says in (
            ("bob", done, True, "The post is written in the timeline."),
            ("bob", failed, False, "failed and was set aside"),
            ("cid", done, False, "but the post is for friends."),
            ("dan", done, False, "does not follow them."),
            ("bob", 1, False, "There is no post with this id in this system."),
        ):  # fmt: skip
            page = self.why(admin_client, uid, post)
            assert says in page, (uid, says)
            assert ("The user sees this post." in page) == seen
        assert f'href="{ADMIN}{POSTS}{failed}/change/"' in self.why(admin_client, "bob", failed)
        assert f"{POSTS}1/change/" not in self.why(admin_client, "bob", 1)

    @pytest.mark.parametrize("post", ["", "x", "-1", "9" * 19, "9" * 30, "%00"])
    def test_what_is_no_post(self, admin_client: Client, biz: Biz, post: str) -> None:
        page = self.why(admin_client, "bob", post)
        assert "<em>" in page
        assert "The user sees" not in page


class TestStatistics:
    def test_page_and_file(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        feed_rows.visited(biz, "bob", "cid")
        feed_rows.post(biz, "ann")
        feed_rows.post(biz, "ann", topic="vip")
        feed_rows.drain()
        context = admin_client.get(ADMIN + STATISTICS).context
        total = context["total"]["point"]
        assert (total.handled, total.entries) == (2, 3)
        found = {str(line["title"]): line["point"].entries for line in context["topics"]}
        assert found == {"friend": 1, "vip": 2, "upkeep": 0}
        assert context["chart"].highest == "3"
        one = admin_client.get(f"{ADMIN}{STATISTICS}?topic=vip&biz={biz.pk}&period=1h").context
        assert one["total"]["point"].entries == 2
        assert str(one["step_name"]) == "minute"
        answer = admin_client.get(f"{ADMIN}eventqueue/statistics.csv?topic=vip")
        lines = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
        assert lines[1].endswith(",orders,vip,1,2,0,0")
        assert len(lines) == 2

    def test_nothing_and_wrong_choices(self, admin_client: Client) -> None:
        assert "Nothing was handled in this time." in get(admin_client, STATISTICS)
        for query in ("period=never", "topic=x", "biz=x", "period=365d&step=minute"):
            assert admin_client.get(f"{ADMIN}{STATISTICS}?{query}").context["form"].errors
            path = f"{ADMIN}eventqueue/statistics.csv?{query}"
            assert admin_client.get(path).status_code == 400


class TestScheduler:
    def charts(self, client: Client, query: str = "") -> dict[str, Any]:
        shown = client.get(f"{ADMIN}{SCHEDULER}{query}").context["charts"]
        return {chart.title: chart for chart in shown}

    def test_nothing_was_decided_yet(self, admin_client: Client) -> None:
        page = get(admin_client, SCHEDULER)
        assert "No dispatcher runs" in page
        assert page.count("Nothing was written down in this time") == 1
        assert "No hour has one" in page
        pace_status.dispatchers.report({"one": pace_status.Working(7)})
        assert "have decided nothing yet" in get(admin_client, SCHEDULER)

    def test_redis_is_away(self, admin_client: Client, servers: Any) -> None:
        servers.work.kill()
        try:
            assert "Redis cannot be reached" in get(admin_client, SCHEDULER)
        finally:
            servers.work.start()

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"share": 1.0}, "at full speed"),
            ({"share": 0.3, "most": 0.3}, "as much as the policy of this hour allows"),
            ({"share": 0.5, "load": 0.2}, "become faster every second"),
            ({"share": 0.5, "load": 0.9}, "keep their speed"),
            ({"share": 0.5, "load": 2.5, "cause": "stmt", "least": 0.1},
             "give way, because of: statements of others.<"),
            ({"share": 0.1, "load": 2.5, "cause": "cpu", "least": 0.1},
             "They keep the least share."),
        ],
    )  # fmt: skip
    def test_the_decision_and_why(
        self, admin_client: Client, given: dict[str, Any], says: str
    ) -> None:
        pace_status.lease.hold("me")
        decision = pace_status.Decision(
            by="me", at=time.time(), events=40, oldest={"vip": 75.0}, **given
        )
        assert pace_status.publish(decision)
        page = get(admin_client, SCHEDULER)
        assert says in page
        assert "oldest event, vip" in page
        assert "1 min" in page

    def test_policies_by_hour(self, admin_client: Client, settings: Any) -> None:
        hour = timezone.localtime().hour
        settings.FEED_HOURS = f"{hour}-{(hour + 2) % 24}:0.3, {(hour + 5) % 24}-{(hour + 6) % 24}:1"
        rules = admin_client.get(f"{ADMIN}{SCHEDULER}").context["policies"]
        assert [(rule["most"], rule["is_now"]) for rule in rules] == [
            ("30 %", True), ("100 %", False),
        ]  # fmt: skip

    def test_charts(self, admin_client: Client) -> None:
        """Each step has the worst of its rows; where nothing ran the line is broken."""
        now = sql.now()
        for minutes, load, share in ((30, 0.5, 1.0), (30.05, 2.5, 0.2), (10, 0.1, 0.6)):
            FeedPace.objects.create(
                at=now - timedelta(minutes=minutes), load=load, share=share, events=50, cause="",
                latency=0.4, baseline=0.3, statements=1, cpu=0.5, backlog=1234, oldest=4000,
            )  # fmt: skip
        charts = self.charts(admin_client)
        load, share = charts["Load"], charts["Share of their time that dispatchers work"]
        assert (load.highest, load.now) == ("2.50", "0.10")
        assert len(load.lines) == 2
        assert len(load.moments) == 2
        assert [m.title.split(": ")[1] for m in share.moments] == ["20 %", "60 %"]
        assert charts["Events waiting"].highest == "1234"
        assert charts["Age of the oldest event"].limit
        assert charts["Age of the oldest event"].highest == "1 h"
        assert len(self.charts(admin_client, "?period=7d")["Load"].moments) == 1
        assert len(self.charts(admin_client, "?period=x")["Load"].moments) == 2


class TestPermissions:
    def test_who_has_none_sees_nothing(self, biz: Biz) -> None:
        qid = feed_rows.set_aside(biz, "ann")
        nobody = person("nobody")
        for path in (
            *PAGES, STATISTICS, f"{POSTS}{qid}/change/", f"{EVENTS}{qid}/change/",
            f"{USERS}?system=orders&uid=ann",
        ):  # fmt: skip
            get(nobody, path, 403)
        assert ADMIN not in nobody.get("/console/").content.decode()

    def test_each_page_has_its_permission(self, biz: Biz) -> None:
        feed_rows.post(biz, "ann")
        for name, allowed in (
            ("view_feed", {POSTS}), ("view_eventqueue", {EVENTS, SCHEDULER, STATISTICS}),
            ("view_feeduser", set()),
        ):  # fmt: skip
            client = person(name, name)
            for path in (*PAGES, STATISTICS):
                get(client, path, 200 if path in allowed else 403)
            for path in allowed & {POSTS, EVENTS}:
                page = get(client, path)
                assert "ann" in page
                assert USERS not in page  # nothing leads to what is refused
        client = person("all", *ALL)
        for path in PAGES:
            get(client, path)
            assert f'href="{ADMIN}{path}"' in client.get("/console/").content.decode()

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
    monkeypatch.setattr("notify.feed.admin.relations.PAGE", 200)

    def fill(many: int) -> None:
        for n in range(many):
            feed_rows.set_aside(biz, f"ann{n}")
            feed_rows.post(biz, "star")
            feed_rows.related(biz, (f"fan{many}-{n}", "follow", "star"))

    def queries() -> dict[str, int]:
        found = {}
        for path in (
            POSTS, EVENTS, f"{EVENTS}?status__exact=3",
            f"{USERS}?system=orders&uid=star&show=followers",
            f"{USERS}?system=orders&uid=star", SCHEDULER,
        ):  # fmt: skip
            with CaptureQueriesContext(connection) as captured:
                admin_client.get(ADMIN + path)
            found[path] = len(captured)
        return found

    admin_client.get(ADMIN + POSTS)  # what is cached is cached
    fill(20)
    few = queries()
    fill(180)
    assert queries() == few


def wrong_steps(statement: str) -> list[str]:
    """Steps of a plan that read a whole hot table."""
    hot = ("feed", "eventqueue", "friend", "feed_user")
    with connection.cursor() as cursor:
        plan = sql.plan(cursor, statement)
    if connection.vendor == "sqlite":
        details = [step["detail"] for step in plan]
        return [d for d in details if d.startswith(tuple(f"SCAN {t}" for t in hot))
                and " USING " not in d and "WHERE" in statement]  # fmt: skip
    return [str(step) for step in plan if step["type"] == "ALL" and step["table"] in hot]


def test_whatever_is_chosen_is_read_from_an_index(
    admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LOOKED_AT", 500)
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
        POSTS, f"{POSTS}?p=20", f"{POSTS}?topic__exact=vip", f"{POSTS}?state=deleted",
        f"{POSTS}?biz__id__exact={biz.pk}", f"{POSTS}?q=u7", f"{POSTS}?q={made[7]}",
        f"{POSTS}?q=u7&topic__exact=vip", EVENTS, f"{EVENTS}?status__exact=3",
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
