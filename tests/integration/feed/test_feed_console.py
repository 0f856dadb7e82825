"""The console of Feed: posts, and the queue of events."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils.html import escape

from msgplatform.core.data import ids, sql
from msgplatform.core.flows.page import Hit
from msgplatform.doors.admin import rows as list_rows
from msgplatform.models import AuditLog, Biz
from notify.feed.intake import posts
from notify.feed.models import EventQueue
from tests.support import feed_rows
from tests.support.feed_pages import (
    ADMIN,
    ALL,
    EVENTS,
    POSTS,
    USERS,
    cell,
    get,
    listed,
    person,
    replay,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
Status = EventQueue.Status


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def hits(client: Client, query: str = "") -> list[Hit]:
    """The lines of the list of posts."""
    answer = client.get(f"{POSTS}?{query}")
    assert answer.status_code == 200, query
    return [hit for _flow, hit in answer.context["hits"]]


class TestPosts:
    def test_list_search_and_filters(self, admin_client: Client, biz: Biz) -> None:
        other = Biz.objects.create(name="other")
        first = feed_rows.post(biz, "ann", "one", app_id="blog", src_type="note")
        vip = feed_rows.post(biz, "1001", "two", topic="vip")
        gone = feed_rows.post(other, "ann", "three")
        posts.edit(biz.pk, vip, "two, corrected")
        posts.delete(other.pk, gone)
        for query, wanted in (
            ("", [gone, vip, first]), (f"id={vip}", [vip]), ("user=ann", [gone, first]),
            ("user=1001", [vip]), ("user=nobody", []), ("topic=vip", [vip]),
            ("state=deleted", [gone]), ("state=edited", [vip]), ("state=not_deleted", [vip, first]),
            ("biz=other", [gone]), ("user=ann&state=not_deleted", [first]),
            ("app_id=blog", [first]), ("kind=note", [first]), ("app_id=blog&user=1001", []),
            ("state=waiting&app_id=blog", [first]), ("state=set_aside&app_id=blog", []),
            ("since=2099-01-01T00:00", []), ("until=2099-01-01T00:00", [gone, vip, first]),
            ("biz=x", []), ("user=%00", []), ("user=a b", []), ("kind=a b", []),
        ):  # fmt: skip
            assert [int(hit.id) for hit in hits(admin_client, query)] == wanted, query

    def test_the_line_says_what_became_of_it(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"))
        done = feed_rows.post(biz, "ann", app_id="web", src_type="note")
        posts.edit(biz.pk, done, "again")
        feed_rows.drain()
        old = feed_rows.post(biz, "ann")
        EventQueue.objects.filter(pk=old).delete()
        gone = feed_rows.post(biz, "ann")
        posts.delete(biz.pk, gone)
        failed = feed_rows.set_aside(biz, "ann")
        waiting = feed_rows.post(biz, "ann", topic="vip")
        lines = hits(admin_client)
        assert [int(hit.id) for hit in lines] == [waiting, failed, gone, old, done]
        assert [(hit.state, hit.tone, hit.details) for hit in lines] == [
            ("waiting", "plain", "vip"), ("set aside", "bad", "friend"),
            ("waiting (deleted)", "plain", "friend"), ("handled", "good", "friend"),
            ("handled", "good", "friend · web · note · edited"),
        ]  # fmt: skip
        assert feed_rows.REASON in lines[1].reason

    def test_the_page_of_a_post(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        failed = feed_rows.set_aside(biz, "ann", data="<b>hello</b>", topic="vip")
        page = get(admin_client, f"/console/feed/{failed}")
        for words in (
            "&lt;b&gt;hello&lt;/b&gt;", feed_rows.REASON, "Its recipients now", "posts are",
            f"{ADMIN}{EVENTS}{failed}/change/", f"{ADMIN}{USERS}?system=orders&amp;uid=ann",
        ):  # fmt: skip
            assert words in page, words
        assert "no reader sees it" not in page
        posts.delete(biz.pk, failed)
        assert "no reader sees it" in get(admin_client, f"/console/feed/{failed}")
        get(admin_client, "/console/feed/1", 404)
        event = get(admin_client, f"{EVENTS}{failed}/change/")
        assert f'href="/console/feed/{failed}"' in event

    def test_the_list_leads_to_users_and_the_scheduler(
        self, admin_client: Client, biz: Biz
    ) -> None:
        page = get(admin_client, POSTS)
        assert f'class="button" href="{ADMIN}{USERS}"' in page
        assert f'class="button" href="{ADMIN}eventqueue/scheduler/"' in page
        assert f'class="button" href="{ADMIN}{USERS}"' not in get(person("p", "view_feed"), POSTS)


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

    def test_what_no_index_serves_is_looked_for_among_the_newest(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = ids.first_id_at(sql.now() - timedelta(hours=2))
        EventQueue.objects.create(
            qid=old, biz=biz, topic="upkeep", kind="backfill", uid="bob", create_date=sql.now()
        )
        after = [feed_rows.post(biz, "ann") for _ in range(5)]
        assert listed(admin_client, f"{EVENTS}?kind__exact=backfill") == [old]
        monkeypatch.setattr(list_rows, "MAX_RECENT_ROWS", 5)
        hint = "Only the newest 5 rows were searched"
        assert listed(admin_client, f"{EVENTS}?kind__exact=backfill") == []
        assert hint in get(admin_client, f"{EVENTS}?kind__exact=backfill")
        assert listed(admin_client, f"{EVENTS}?biz__id__exact={biz.pk}") == after[::-1]
        # Indexes serve these: all of it is looked through.
        for query in (
            "", f"q={old}", "topic__exact=upkeep&status__exact=0", "qid_until=2099-01-01T00:00",
        ):  # fmt: skip
            assert old in listed(admin_client, f"{EVENTS}?{query}")
            assert hint not in get(admin_client, f"{EVENTS}?{query}")

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
        page = replay(admin_client, first, second, waiting, confirmed="yes").content.decode()
        assert "2 events wait again." in page
        assert "1 was left alone" in page
        for qid, position in ((first, ""), (second, "friend:b")):
            event = feed_rows.event(qid)
            assert (event.status, event.reason, event.position) == (Status.WAITING, "", position)
        entry = AuditLog.objects.get()
        assert (entry.actor, entry.action) == ("admin", "events_replayed")
        assert entry.detail["ids"] == [str(first), str(second), str(waiting)]

    def test_a_confirmation_of_what_is_gone(self, admin_client: Client, biz: Biz) -> None:
        qid = feed_rows.set_aside(biz, "ann")
        EventQueue.objects.all().delete()
        for back_to in ("", str(qid)):
            page = replay(admin_client, qid, confirmed="yes", back_to=back_to)
            assert page.status_code == 200
            assert "nothing to replay" in page.content.decode()
        waiting = feed_rows.post(biz, "ann")
        assert "1 was left alone" in replay(admin_client, waiting, confirmed="yes").content.decode()
        assert not AuditLog.objects.exists()

    def test_one_is_replayed_from_its_page(self, admin_client: Client, biz: Biz) -> None:
        Biz.objects.filter(pk=biz.pk).update(title="The orders")
        qid = feed_rows.set_aside(biz, "ann")
        page = get(admin_client, f"{EVENTS}{qid}/change/")
        assert "The orders" in page
        assert f"system={biz.name}" in page
        assert f"system={biz.name}" in get(admin_client, EVENTS)
        assert feed_rows.REASON in page
        assert "Replay" in page
        (dismiss_url,) = re.findall(r'href="([^"]+action=dismiss[^"]+)"', page)
        assert admin_client.get(unescape(dismiss_url)).context["counted"].count == 1
        answer = replay(admin_client, qid, confirmed="yes", back_to=str(qid))
        assert answer.redirect_chain == [(f"{ADMIN}{EVENTS}{qid}/change/", 302)]
        assert "Replay" not in get(admin_client, f"{EVENTS}{qid}/change/")

    def test_too_many_are_a_bulk_job(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("notify.feed.admin.events.MAX_SELECTED", 1)
        qids = [feed_rows.set_aside(biz, "ann") for _ in range(2)]
        page = replay(admin_client, *qids, confirmed="yes").content.decode()
        assert "More than 1 are selected: use a bulk job" in page
        assert feed_rows.event(qids[0]).status == Status.SET_ASIDE

    def test_all_like_these_are_a_bulk_job(self, admin_client: Client, biz: Biz) -> None:
        """The job's filters are those of the list, or there is no button."""
        vip = feed_rows.set_aside(biz, "ann", topic="vip")
        feed_rows.set_aside(biz, "bob")
        for query, count in (
            ("", 2), ("status__exact=3", 2), ("topic__exact=vip", 1), ("q=bob", 1), (f"q={vip}", 1),
            (f"biz__id__exact={biz.pk + 1}", 0), ("qid_until=2025-01-02T00:00", 0),
            ("qid_since=2025-01-02T00:00&qid_until=2099-01-01T00:00", 2), ("age=1h", 0),
        ):  # fmt: skip
            page = admin_client.get(f"{ADMIN}{EVENTS}?{query}")
            url = page.context["bulk_url"]
            assert escape(url) in page.content.decode()
            dismiss_url = page.context["dismiss_url"]
            assert escape(dismiss_url) in page.content.decode()
            for address in (url, dismiss_url):
                counted = admin_client.get(address).context["counted"]
                assert counted.count == count, query
        for query in ("status__exact=0", "kind__exact=post"):
            assert "Replay all like these" not in get(admin_client, f"{EVENTS}?{query}")
        viewer = person("viewer", *ALL, "change_eventqueue")
        assert "Replay all like these" not in get(viewer, EVENTS)
