"""Posts and events found by what people know of them, and the timeline of each."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bench.harness.plans import read_plan
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.page import Hit, Recipient
from msgplatform.messages import engine
from msgplatform.messages.filters import read_filter
from msgplatform.models import Biz
from notify.feed.actions.actions import dismiss_events, resend_events
from notify.feed.dispatcher import queue
from notify.feed.intake import posts
from notify.feed.messages import page as message_page
from notify.feed.messages.index import MESSAGES
from notify.feed.models import EventQueue, Feed, FeedUser
from tests.support.feed_rows import REASON, drain, event, post, related, set_aside, visited

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
MAX_ID = 2**63 - 1


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


@pytest.fixture
def other() -> Biz:
    return Biz.objects.create(name="shop")


def found(**filter: str) -> list[int]:
    return [int(hit.id) for hit in engine.find(MESSAGES, filter, "", 50).hits]


def searched(query: str) -> list[int]:
    return [int(hit.id) for hit in engine.search(MESSAGES, query, 50).hits if not hit.link]


def upkeep(biz: Biz) -> int:
    """An event of upkeep that waits: bob, who is active, befriends dan."""
    related(biz, ("bob", "befriend", "dan"))
    return EventQueue.objects.filter(topic="upkeep").latest("qid").pk


class TestSearch:
    def test_a_user_who_only_reads_is_found(
        self, biz: Biz, other: Biz, admin_client: Client
    ) -> None:
        related(biz, ("12", "follow", "ann"))
        assert [hit.link for hit in engine.search(MESSAGES, "13", 50).hits] == []
        (hit,) = engine.search(MESSAGES, "12", 50).hits
        assert hit.title == "user 12 of orders → timeline"
        page = admin_client.get(hit.link)
        assert page.status_code == 200
        assert page.context["uid"] == "12"
        assert (
            hit.link.replace("&", "&amp;")
            in admin_client.get("/console/search?q=12").content.decode()
        )

    def test_by_id_or_author(self, biz: Biz, other: Biz) -> None:
        first, second = post(biz, "ann"), post(biz, "ann", topic="vip")
        theirs, bobs = post(other, "ann"), post(biz, "7")
        assert searched("ann") == [theirs, second, first]
        assert searched(str(first)) == [first]
        assert searched("7") == [bobs]  # an id of a user, when no post has it
        assert searched("Ann") == searched("") == searched("\x00") == searched("9" * 25) == []

    def test_a_line(self, biz: Biz) -> None:
        id = set_aside(biz, "ann", data="x" * 100)
        (hit,) = engine.search(MESSAGES, str(id), 50).hits
        title = "ann: " + "x" * 59 + "…"
        assert hit == Hit(
            str(id), title, "set aside", hit.at, "orders", masked_title="ann", tone="bad",
            reason=REASON, details="friend",
        )  # fmt: skip
        assert hit.at == Feed.objects.get().create_date
        posts.delete(biz.pk, id)
        assert engine.search(MESSAGES, str(id), 50).hits[0].state == "set aside (deleted)"

    def test_an_event_of_upkeep(self, biz: Biz) -> None:
        related(biz, ("ann", "befriend", "bob"))
        visited(biz, "bob")
        qid = upkeep(biz)
        (hit,) = engine.search(MESSAGES, str(qid), 50).hits
        assert (hit.title, hit.state) == ("bob: backfill", "waiting")


class TestFind:
    def test_posts(self, biz: Biz, other: Biz) -> None:
        note = post(biz, "ann", src_type="note")
        vip = post(biz, "ann", topic="vip", src_type="note")
        bobs = post(biz, "bob")
        theirs = post(other, "ann", src_type="note")
        drain()
        failed = set_aside(biz, "ann")
        waits = post(biz, "ann")
        gone = post(biz, "ann")
        posts.delete(biz.pk, gone)
        everything = [gone, waits, failed, theirs, bobs, vip, note]
        assert found() == everything
        assert found(user="ann", biz="orders") == [gone, waits, failed, vip, note]
        assert found(user="ann") == [pk for pk in everything if pk != bobs]
        assert found(biz="shop") == [theirs]
        assert found(kind="note") == [theirs, vip, note]
        assert found(user="ann", topic="vip") == found(topic="vip") == [vip]
        assert found(id=str(note), user="ann") == [note]
        assert found(id=str(note), user="bob") == []
        assert found(state="deleted") == [gone]
        assert found(state="handled") == [theirs, bobs, vip, note]
        assert found(state="handled", user="ann", biz="orders") == [vip, note]
        EventQueue.objects.filter(pk=note).delete()  # some time after it was handled
        assert found(state="handled", user="ann", biz="orders") == [vip, note]

    def test_events_that_are_still_to_be_handled(self, biz: Biz, other: Biz) -> None:
        related(biz, ("ann", "befriend", "bob"))
        visited(biz, "bob")
        drain()
        aside = [set_aside(biz, "ann", src_type="note"), set_aside(biz, "bob", topic="vip"),
                 set_aside(other, "ann")]  # fmt: skip
        backfill = upkeep(biz)
        waits = post(biz, "ann", "later")
        assert found(state="set_aside") == aside[::-1]
        assert found(state="set_aside", biz="orders", topic="friend") == [aside[0]]
        assert found(state="set_aside", user="ann") == [aside[2], aside[0]]
        assert found(state="set_aside", kind="note") == [aside[0]]
        assert found(state="waiting") == [waits, backfill]
        assert found(topic="upkeep") == found(topic="upkeep", user="bob") == [backfill]
        assert found(id=str(backfill), topic="upkeep") == [backfill]
        assert found(state="in_slices") == []
        EventQueue.objects.filter(pk=waits).update(status=EventQueue.Status.IN_SLICES)
        assert found(state="in_slices") == [waits]

    def test_times(self, biz: Biz) -> None:
        id = post(biz, "ann")
        now = timezone.localtime()
        before, after = (f"{now + timedelta(minutes=n):%Y-%m-%d %H:%M}" for n in (-2, 2))
        for filter in ({}, {"user": "ann"}, {"state": "waiting"}, {"id": str(id)}):
            assert found(since=before, until=after, **filter) == [id]
            assert found(since=after, **filter) == found(until=before, **filter) == []

    @pytest.mark.parametrize(
        ("filter", "field"),
        [({"topic": "all"}, "topic"), ({"state": "lost"}, "state"), ({"biz": "nobody"}, "biz"),
         ({"topic": "upkeep", "state": "deleted"}, "state"), ({"since": "soon"}, "since"),
         ({"id": "x"}, "id")],
    )  # fmt: skip
    def test_what_is_wrong(self, filter: dict[str, str], field: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            engine.find(MESSAGES, filter, "", 50)
        assert caught.value.field == field

    @pytest.mark.parametrize(
        "filter", [{}, {"user": "ann"}, {"state": "waiting"}, {"kind": "note", "user": "ann"}]
    )
    def test_page_by_page(
        self, biz: Biz, other: Biz, filter: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "BATCH", 3)
        wanted = []
        for n in range(11):
            topic = ("friend", "vip")[n % 2]
            wanted.append(post((biz, other)[n % 3 == 0], "ann", topic=topic, src_type="note"))
        cursor, pages = "", []
        while True:
            page = engine.find(MESSAGES, filter, cursor, 4)
            pages.append([int(hit.id) for hit in page.hits])
            cursor = page.cursor
            if not cursor:
                break
        assert [pk for page in pages for pk in page] == wanted[::-1]
        assert [len(page) for page in pages[:2]] == [4, 4]

    def test_a_page_looks_at_so_many(self, biz: Biz, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "BATCH", 3)
        monkeypatch.setattr(engine, "MAX_SCANNED", 6)
        wanted = post(biz, "ann", src_type="rare")
        for _ in range(9):
            post(biz, "ann")
        page = engine.find(MESSAGES, {"kind": "rare"}, "", 4)
        assert (page.hits, bool(page.cursor)) == ([], True)
        assert "6" in page.notice
        (hit,) = engine.find(MESSAGES, {"kind": "rare"}, page.cursor, 4).hits
        assert hit.id == str(wanted)

    def test_as_many_queries_for_100_lines_as_for_10(self, biz: Biz) -> None:
        costs = []
        for more in (10, 90):
            for _ in range(more):
                post(biz, "ann")
            with CaptureQueriesContext(connection) as queries:
                assert len(engine.find(MESSAGES, {"user": "ann"}, "", 200).hits) % 10 == 0
            costs.append(len(queries))
        assert costs[0] == costs[1] <= 9


def steps(id: int) -> list[tuple[str, str, str]]:
    page = message_page.page(str(id))
    assert page
    return [(entry.title, entry.state, entry.detail) for entry in page.timeline]


class TestTimeline:
    def test_from_the_author_to_the_timelines(self, biz: Biz) -> None:
        related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"), ("ann", "befriend", "z"))
        visited(biz, "bob", "cid")
        friend = post(biz, "ann", "早上好", app_id="web", src_type="note")
        vip = post(biz, "ann", topic="vip")
        assert steps(friend)[1:] == [
            ("Waiting for the dispatcher", "waiting", ""), ("Stands in 0 timelines", "linked", ""),
        ]  # fmt: skip
        drain()
        page = message_page.page(str(friend))
        assert page
        assert (page.title, page.body) == ("ann: 早上好", "早上好")
        assert {name: str(value) for name, value in page.facts.items()} == {
            "Business system": "orders", "Author": "ann", "Topic": "friend", "Application": "web",
            "Kind": "note", "State": "handled", "Recipients": "2", "Idempotency key": "–",
        }  # fmt: skip
        assert steps(friend) == [
            ("Posted", "accepted", ""), ("Handled", "delivered", ""),
            ("Stands in 1 timeline", "linked", ""),
        ]  # fmt: skip
        assert steps(vip)[-1][0] == "Stands in 2 timelines"

    def test_edited_and_deleted(self, biz: Biz) -> None:
        id = post(biz, "ann")
        drain()
        posts.edit(biz.pk, id, "later")
        posts.delete(biz.pk, id)
        assert [title for title, _state, _detail in steps(id)[:4]] == [
            "Posted", "Handled", "Edited", "Deleted"
        ]  # fmt: skip
        EventQueue.objects.filter(pk=id).delete()
        assert ("Handled", "done", "the event is no longer kept") in steps(id)

    def test_slices_and_what_was_set_aside(self, biz: Biz) -> None:
        id = post(biz, "ann")
        EventQueue.objects.filter(pk=id).update(
            status=EventQueue.Status.IN_SLICES, position="friend:m7"
        )
        assert ("Being written in slices", "queued", "done up to friend:m7") in steps(id)
        EventQueue.objects.filter(pk=id).update(
            status=EventQueue.Status.SET_ASIDE, reason="ValueError: no"
        )
        assert steps(id)[1] == (
            "Set aside until somebody replays or dismisses it", "failed",
            "ValueError: no · done up to friend:m7",
        )  # fmt: skip
        resend_events([id])
        assert event(id).position == "friend:m7"
        assert steps(id)[1] == ("Waiting for the dispatcher", "waiting", "done up to friend:m7")
        queue.set_aside(id, ValueError("never"))
        dismiss_events([id])
        assert steps(id)[1] == ("Dismissed", "failed", "ValueError: never")

    def test_an_author_who_is_merged_at_read(self, biz: Biz) -> None:
        related(biz, ("cid", "follow", "ann"))
        FeedUser.objects.filter(uid="ann").update(merging=FeedUser.Merging.MERGED)
        assert steps(post(biz, "ann"))[-1][:2] == ("Merged at read", "linked")

    def test_only_so_many_recipients_are_looked_at(
        self, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(message_page, "MAX_COUNTED", 3)
        fans = [f"fan{n}" for n in range(5)]
        related(biz, *((fan, "follow", "ann") for fan in fans))
        visited(biz, *fans)
        id = post(biz, "ann", topic="vip")
        drain()
        assert steps(id)[-1] == (
            "Stands in 3 timelines", "linked", "3 timelines of recipients were looked at"
        )  # fmt: skip

    def test_one_card_for_its_timelines(self, biz: Biz, admin_client: Any, work_redis: Any) -> None:
        related(biz, ("ann", "befriend", "bob"))
        visited(biz, "bob")
        drain()

        def card(id: int) -> Recipient:
            page = message_page.page(str(id))
            assert page
            (only,) = page.recipients
            return only

        post(biz, "ann")
        waits = post(biz, "ann")
        assert "1 event of its business system goes first" in card(waits).why
        drain()
        assert (card(waits).tone, card(waits).why, card(waits).resend_effect) == ("good", "", "")
        assert str(card(waits).facts["Now"]) == "Stands in 1 timeline"
        failed = set_aside(biz, "ann")
        assert "this one cannot be written" in card(failed).why
        answer = admin_client.post(f"/console/feed/{failed}/resend", follow=True)
        assert "Sent again by admin" in answer.content.decode()
        drain()
        assert card(failed).tone == "good"
        hopeless = set_aside(biz, "ann")
        dismiss_events([hopeless])
        assert card(hopeless).why.startswith("Somebody dismissed it: ValueError")
        assert card(hopeless).resend_effect == ""
        assert admin_client.post(f"/console/feed/{failed + 1}/resend").status_code == 404
        alone = message_page.page(str(post(biz, "alone")))
        assert alone
        assert (alone.recipients, len(alone.no_recipient_reasons)) == ([], 1)

    def test_only_events_of_its_own_system_are_counted_before_one(
        self, biz: Biz, other: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A person may be limited to the system of the event."""
        related(biz, ("ann", "befriend", "bob"))
        for system in (other, other, biz):
            post(system, "ann")
        waiting = str(post(biz, "ann"))
        page = message_page.page(waiting)
        assert page is not None
        assert page.recipients[0].why == (
            "It waits for the dispatcher: 1 event of its business system goes first."
        )
        monkeypatch.setattr(message_page, "MAX_AHEAD", 2)
        page = message_page.page(waiting)
        assert page is not None
        assert page.recipients[0].why == (
            "It waits for the dispatcher: of the 2 oldest events before it, 0 are of its business "
            "system."
        )

    def test_an_event_of_upkeep(self, biz: Biz) -> None:
        related(biz, ("ann", "befriend", "bob"))
        visited(biz, "bob")
        related(biz, ("bob", "unfriend", "ann"))
        qid = EventQueue.objects.get(kind="unfollow").pk
        page = message_page.page(str(qid))
        assert page
        assert page.title == "ann: end of a relation"
        assert page.body == '{"reader": "bob"}'
        assert [entry.title for entry in page.timeline] == [
            "Asked for", "Waiting for the dispatcher"
        ]  # fmt: skip


def test_the_console_finds_and_shows_them(biz: Biz, admin_client: Any, work_redis: object) -> None:
    id = set_aside(biz, "ann")
    answer = admin_client.get("/console/search", {"q": "ann"}, follow=True)
    assert str(id) in answer.content.decode()
    assert "set aside" in admin_client.get(f"/console/feed/{id}").content.decode().lower()
    assert admin_client.get("/console/search/feed?state=set_aside").status_code == 200


ROWS = 3000


@pytest.mark.parametrize(
    ("filter", "index"),
    [({}, "PRIMARY"), ({"user": "ann", "biz": "orders"}, "feed_of_author"),
     ({"user": "ann"}, "feed_of_author"), ({"kind": "note"}, "PRIMARY"),
     ({"state": "set_aside", "topic": "vip"}, "eventqueue_to_handle"),
     ({"state": "waiting"}, "eventqueue_to_handle"), ({"topic": "upkeep"}, "eventqueue_to_handle")],
)  # fmt: skip
def test_each_search_reads_an_index(biz: Biz, filter: dict[str, str], index: str) -> None:
    now = sql.now()
    numbers = [ids.new(0) for _ in range(ROWS)]
    sql.insert(
        "feed",
        ("id", "biz_id", "uid", "topic", "app_id", "src_type", "data", "create_date"),
        [(pk, biz.pk, ("ann", "bob")[pk % 2], ("friend", "vip")[n % 2], "", "", "x", now)
         for n, pk in enumerate(numbers)],
    )  # fmt: skip
    sql.insert(
        "eventqueue",
        ("qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date", "position",
         "reason"),
        [(pk, biz.pk, ("friend", "vip", "upkeep")[n % 3], "post", n % 4, "", "ann", now, "", "")
         for n, pk in enumerate(numbers)],
    )  # fmt: skip
    values = read_filter(MESSAGES.fields, filter)
    (source,) = MESSAGES.sources(values)
    middle = numbers[ROWS // 2]
    with CaptureQueriesContext(connection) as queries:
        assert len(engine.Table(source, values).ids(middle, 50)) == 50
    tables = ("FROM `feed`", "FROM `eventqueue`", 'FROM "feed"', 'FROM "eventqueue"')
    asked_for = [q["sql"] for q in queries.captured_queries if "ORDER BY" in q["sql"]
                 and any(table in q["sql"] for table in tables)]  # fmt: skip
    assert asked_for
    for statement in asked_for:
        with connection.cursor() as cursor:
            (step,) = read_plan(cursor, statement.replace("%", "%%"))
        shown = str(step).replace("sqlite_autoindex_feed_1", "PRIMARY")
        assert index in shown, step
        assert "filesort" not in shown, step
