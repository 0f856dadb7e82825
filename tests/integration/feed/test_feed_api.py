"""`/api/v1/feed/` for business systems: posts, relations, timelines, and every wrong input."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver

from bench.harness.plans import read_plan
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import Unavailable
from msgplatform.doors.api.access import keys, throttling
from msgplatform.messages import engine
from notify.feed.api.post_views import PostSerializer
from notify.feed.intake import relations
from notify.feed.models import EventQueue, Feed, FeedUser, Friend
from tests.integration.feed.support import drain
from tests.support import feed_rows
from tests.support.answers import Answer
from tests.support.api_document import api_views, document, statuses
from tests.support.api_support import Api, problem

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
FEED = "/api/v1/feed"
POSTS, RELATIONS, TIMELINES = f"{FEED}/posts", f"{FEED}/relations", f"{FEED}/timelines"


class System:
    """A business system with a key that may do everything with its feeds."""

    def __init__(self, api: Api, *scopes: str) -> None:
        self.api = api
        self.biz = api.biz()
        self.key = api.key(*(scopes or ("feed:write", "feed:read")), biz=self.biz)[1]

    def send(self, method: str, path: str, body: Any = None, **headers: Any) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        headers["HTTP_AUTHORIZATION"] = f"Bearer {self.key}"
        return self.api.client.generic(
            method, path, data, content_type="application/json", **headers
        )

    def get(self, path: str, **asked: str) -> Answer:
        return self.api.client.get(path, asked, HTTP_AUTHORIZATION=f"Bearer {self.key}")

    def post(self, uid: str = "ann", data: str = "hello", **more: Any) -> str:
        response = self.send("POST", POSTS, {"uid": uid, "data": data, **more})
        assert response.status_code == 202, response.content
        return response.json()["id"]

    def change(self, uid: str, action: str, other: str) -> Answer:
        return self.send("POST", RELATIONS, {"uid": uid, "action": action, "other": other})

    def pages(self, path: str, **asked: str) -> Iterator[list[dict[str, Any]]]:
        """The results of every page, by the links that the pages give."""
        response = self.get(path, **asked)
        while True:
            assert response.status_code == 200, response.content
            page = response.json()
            yield page["results"]
            if page["next"] is None:
                return
            response = self.get(page["next"])

    def timeline(self, uid: str, **asked: str) -> list[str]:
        return [post["id"] for page in self.pages(f"{TIMELINES}/{uid}", **asked) for post in page]


@pytest.fixture
def api(work_redis: object, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Api]:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    yield Api()
    keys.forget()


@pytest.fixture
def system(api: Api) -> System:
    return System(api)


@pytest.fixture
def other(api: Api) -> System:
    return System(api)


def wrong(response: Answer, field: str, *words: str) -> None:
    (error,) = problem(response, 400, "invalid-input")["errors"]
    assert error["field"] == field, error
    assert all(word in error["message"] for word in words), error


class TestPosts:
    def test_one(self, system: System) -> None:
        body = {"uid": "ann", "data": "早上好", "topic": "vip", "app_id": "web", "src_type": "note"}
        response = system.send("POST", POSTS, body)
        assert response.status_code == 202, response.content
        (row,) = Feed.objects.all()
        assert response.json() == {"outcome": "created", "id": str(row.pk)}
        shown = system.get(f"{POSTS}/{row.pk}").json()
        assert shown.pop("created_at").endswith("Z")
        assert shown == {**body, "id": str(row.pk), "updated_at": None}
        assert (row.biz, row.topic) == (system.biz, "vip")
        assert EventQueue.objects.get(pk=row.pk).status == EventQueue.Status.WAITING

    @pytest.mark.parametrize("where", ["body", "header"])
    def test_a_repeat_is_the_same_post(self, system: System, where: str) -> None:
        def post(data: str = "hello") -> Answer:
            body = {"uid": "ann", "data": data}
            if where == "body":
                return system.send("POST", POSTS, {**body, "idempotency_key": "k1"})
            return system.send("POST", POSTS, body, HTTP_IDEMPOTENCY_KEY="k1")

        first, second = post(), post()
        assert (first.status_code, second.status_code) == (202, 200)
        assert second.json() == {"outcome": "duplicate", "id": first.json()["id"]}
        problem(post("something else"), 409, "conflict")
        assert Feed.objects.count() == EventQueue.objects.count() == 1

    def test_many(self, system: System) -> None:
        posts = [
            {"uid": "ann", "data": "a", "idempotency_key": "a"},
            {"uid": "ann", "data": "a", "idempotency_key": "a"},
            {"uid": "a b", "data": "a"},
            {"uid": "ann"},
            {"uid": "ann", "data": "a", "colour": "red"},
            {"uid": "bob", "data": "b", "topic": "vip"},
        ]
        response = system.send("POST", f"{POSTS}/batch", {"posts": posts})
        assert response.status_code == 200, response.content
        results = response.json()["results"]
        assert [each["outcome"] for each in results] == [
            "created", "duplicate", "rejected", "rejected", "rejected", "created"
        ]  # fmt: skip
        assert [each.get("field") for each in results[2:5]] == ["uid", "data", "colour"]
        assert Feed.objects.count() == 2

    def test_of_an_author_newest_first_by_keyset(self, system: System, other: System) -> None:
        wanted = [
            system.post(topic=("friend", "vip")[n % 2], app_id=("web", "app")[n % 3 == 0])
            for n in range(9)
        ][::-1]
        system.post("bob")
        other.post("ann")
        found = [post for page in system.pages(POSTS, uid="ann", limit="4") for post in page]
        assert [post["id"] for post in found] == wanted
        first = system.get(POSTS, uid="ann", limit="4").json()
        assert first["previous"] is None
        assert [p["id"] for p in found if p["app_id"] == "app"] == [
            p["id"] for page in system.pages(POSTS, uid="ann", app_id="app") for p in page
        ]
        vip = [p["id"] for page in system.pages(POSTS, uid="ann", topic="vip") for p in page]
        assert vip == wanted[1::2]

    def test_every_filter(self, system: System, other: System) -> None:
        note = system.post(app_id="web", src_type="note")
        drain()
        failed = str(feed_rows.set_aside(system.biz, "ann"))
        bobs, edited, gone = system.post("bob"), system.post("ann"), system.post("ann")
        system.send("PATCH", f"{POSTS}/{edited}", {"data": "good night"})
        system.send("DELETE", f"{POSTS}/{gone}")
        other.post("ann")
        system.change("ann", "befriend", "bob")  # upkeep is no post
        for asked, wanted in (
            ({}, [edited, bobs, failed, note]),
            ({"uid": "bob"}, [bobs]),
            ({"src_type": "note"}, [note]),
            ({"state": "deleted"}, [gone]),
            ({"state": "deleted", "uid": "bob"}, []),
            ({"state": "edited"}, [edited]),
            ({"state": "not_deleted", "uid": "ann"}, [edited, failed, note]),
            ({"state": "waiting"}, [edited, bobs]),
            ({"state": "set_aside"}, [failed]),
            ({"state": "set_aside", "app_id": "web"}, []),
            ({"state": "handled"}, [note]),
            ({"since": "2099-01-01T00:00:00Z"}, []),
            ({"until": "2099-01-01T00:00:00Z", "uid": "bob"}, [bobs]),
        ):
            for limit in ("1", "50"):
                pages = system.pages(POSTS, limit=limit, **asked)
                assert [post["id"] for page in pages for post in page] == wanted, asked

    def test_edited_and_deleted(self, system: System) -> None:
        id = system.post()
        response = system.send("PATCH", f"{POSTS}/{id}", {"data": "good night"})
        assert response.status_code == 200, response.content
        assert response.json()["data"] == "good night"
        created, updated = (
            datetime.fromisoformat(response.json()[name]) for name in ("created_at", "updated_at")
        )
        assert updated > created
        assert system.get(TIMELINES + "/ann").json()["results"][0]["data"] == "good night"
        for _ in range(2):
            assert system.send("DELETE", f"{POSTS}/{id}").status_code == 204
        problem(system.get(f"{POSTS}/{id}"), 404, "not-found")
        problem(system.send("PATCH", f"{POSTS}/{id}", {"data": "x"}), 404, "not-found")
        assert system.get(POSTS, uid="ann").json()["results"] == []
        assert system.timeline("ann") == []

    def test_those_of_other_systems_are_not_there(self, system: System, other: System) -> None:
        id = system.post()
        problem(other.get(f"{POSTS}/{id}"), 404, "not-found")
        problem(other.send("PATCH", f"{POSTS}/{id}", {"data": "x"}), 404, "not-found")
        problem(other.send("DELETE", f"{POSTS}/{id}"), 404, "not-found")
        assert other.get(POSTS, uid="ann").json()["results"] == []
        assert other.timeline("ann") == []
        assert system.get(f"{POSTS}/{id}").json()["data"] == "hello"

    @pytest.mark.parametrize(
        ("more", "field", "words"),
        [
            ({"uid": ""}, "uid", ["1 to 64"]),
            ({"uid": "u" * 65}, "uid", ["1 to 64"]),
            ({"uid": "a/b"}, "uid", ["without spaces or /"]),
            ({"uid": ".."}, "uid", ["without spaces or /"]),
            ({"uid": "王"}, "uid", ["ASCII"]),
            ({"uid": 7}, "uid", ["str"]),
            ({"data": "  "}, "data", ["Write something"]),
            ({"data": "x" * 1025}, "data", ["at most 1024"]),
            ({"data": "a\x00b"}, "data", ["NUL"]),
            ({"topic": "upkeep"}, "topic", ["friend, vip"]),
            ({"app_id": "a b"}, "app_id", ["at most 32"]),
            ({"src_type": "x" * 33}, "src_type", ["at most 32"]),
            ({"idempotency_key": "with blanks"}, "idempotency_key", ["ASCII"]),
            ({"colour": "red"}, "colour", ["no such field"]),
        ],
    )
    def test_the_wrong_field_is_named(
        self, system: System, more: Any, field: str, words: list[str]
    ) -> None:
        wrong(system.send("POST", POSTS, {"uid": "ann", "data": "x", **more}), field, *words)
        assert not Feed.objects.exists()

    def test_what_is_missing_or_too_long(self, system: System) -> None:
        wrong(system.send("POST", POSTS, {"data": "x"}), "uid", "required")
        wrong(system.get(POSTS, uid="a b"), "uid", "1 to 64")
        wrong(system.get(POSTS, state="lost"), "state", "set_aside")
        wrong(system.get(POSTS, uid="ann", topic="upkeep"), "topic", "friend, vip")
        wrong(system.get(POSTS, uid="ann", topic="all"), "topic", "friend, vip")
        wrong(system.get(POSTS, uid="ann", src_type="a b"), "src_type")
        wrong(system.get(POSTS, uid="ann", limit="0"), "limit", "1 to 200")
        wrong(system.get(POSTS, uid="ann", cursor="x"), "cursor")
        problem(system.send("POST", POSTS, {"data": "x" * 20_000}), 413, "body-too-large")
        longest = "😀" * 1024  # as two escapes each
        assert system.send("POST", POSTS, {"uid": "ann", "data": longest}).status_code == 202
        assert Feed.objects.get().data == longest


class TestRelations:
    def test_one(self, system: System) -> None:
        for outcome in ("changed", "unchanged"):
            response = system.change("bob", "follow", "ann")
            assert (response.status_code, response.json()) == (200, {"outcome": outcome})
        row = Friend.objects.get()
        assert (row.biz_id, row.uid, row.relation, row.fri_uid) == (
            system.biz.pk, "ann", "follow", "bob",
        )  # fmt: skip

    def test_a_block_forbids_others(self, system: System) -> None:
        system.change("ann", "block", "bob")
        body = problem(system.change("bob", "follow", "ann"), 409, "not-now")
        assert "blocked" in body["detail"]

    def test_what_was_done_is_not_denied(
        self, system: System, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Many changes are several transactions, of which a later one may fail."""
        monkeypatch.setattr(relations, "CHUNK", 1)
        changes = [{"uid": "ann", "action": "follow", "other": name} for name in ("bob", "cat")]
        reserve = ids.reserve
        reserved: list[int] = []

        def once(count: int) -> ids.Block:
            if reserved:
                raise Unavailable("no id node")
            reserved.append(count)
            return reserve(count)

        monkeypatch.setattr(ids, "reserve", once)
        many = system.send("POST", f"{RELATIONS}/batch", {"changes": changes})
        problem(many, 503, "outcome-unknown")
        assert Friend.objects.count() == 1
        nothing = system.send("POST", f"{RELATIONS}/batch", {"changes": changes})
        problem(nothing, 503, "unavailable")

    def test_a_reader_has_so_many_authors_at_most(self, system: System, settings: Any) -> None:
        settings.FEED_MAX_AUTHORS = 1
        system.change("ann", "follow", "bob")
        body = problem(system.change("ann", "follow", "cat"), 409, "not-now")
        assert "the most there can be" in body["detail"]
        system.change("cat", "befriend", "dan")
        both = problem(system.change("cat", "follow", "dan"), 409, "not-now")
        assert both["detail"].startswith("cat has 1 relations that bring posts")

    def test_many_in_their_order(self, system: System) -> None:
        changes = [
            {"uid": "ann", "action": "befriend", "other": "bob"},
            {"uid": "ann", "action": "befriend", "other": "bob"},
            {"uid": "ann", "action": "block", "other": "bob"},
            {"uid": "bob", "action": "follow", "other": "ann"},
            {"uid": "ann", "action": "marry", "other": "bob"},
            {"uid": "ann", "action": "follow", "other": "ann"},
            {"uid": "ann", "action": "follow"},
        ]
        response = system.send("POST", f"{RELATIONS}/batch", {"changes": changes})
        assert response.status_code == 200, response.content
        results = response.json()["results"]
        assert [each["outcome"] for each in results] == [
            "changed", "unchanged", "changed", "rejected", "rejected", "rejected", "rejected",
        ]  # fmt: skip
        assert [(each["code"], each["field"]) for each in results[3:]] == [
            ("blocked", "other"), ("invalid", "action"), ("invalid", "other"),
            ("invalid", "other"),
        ]  # fmt: skip
        assert "id" not in results[0]
        many = [changes[0]] * 1001
        wrong(system.send("POST", f"{RELATIONS}/batch", {"changes": many}), "changes", "1000")

    def test_both_directions_by_keyset(self, system: System, other: System) -> None:
        fans = [f"fan{n}" for n in range(7)]
        for fan in fans:
            system.change(fan, "follow", "star")
            other.change(fan, "follow", "star")
        for star in ("moon", "sun"):
            system.change("fan0", "follow", star)
        system.change("star", "befriend", "bob")
        # However the posts reach fan0, the list is in one order.
        ways = Friend.Delivery
        for star, way in (("moon", ways.PUSHED), ("star", ways.BOTH), ("sun", ways.MERGED)):
            Friend.objects.filter(biz_id=system.biz.pk, uid=star, fri_uid="fan0").update(
                delivery=way
            )

        def listed(**asked: str) -> list[tuple[str, str, str]]:
            pages = list(system.pages(RELATIONS, limit="2", **asked))
            assert all(len(page) == 2 for page in pages[:-1])
            found = [row for page in pages for row in page]
            assert all(row["since"].endswith("Z") for row in found)
            return [(row["author"], row["relation"], row["reader"]) for row in found]

        recipients = listed(uid="star", relation="follow")
        assert recipients == [("star", "follow", fan) for fan in fans]
        authors = listed(uid="fan0", relation="follow", direction="authors")
        assert authors == [(star, "follow", "fan0") for star in ("moon", "star", "sun")]
        assert listed(uid="star", relation="friend") == [("star", "friend", "bob")]
        assert listed(uid="star", relation="block") == []
        first = system.get(RELATIONS, uid="fan0", relation="follow", direction="authors", limit="2")
        last = system.get(first.json()["next"]).json()
        assert system.get(last["previous"]).json()["results"] == first.json()["results"]

    def test_what_is_wrong(self, system: System) -> None:
        wrong(system.change("ann", "marry", "bob"), "action", "befriend")
        wrong(system.change("ann", "follow", "ann"), "other", "same user")
        wrong(system.change("ann", "follow", "a b"), "other", "1 to 64")
        wrong(system.get(RELATIONS, relation="friend"), "uid", "1 to 64")
        wrong(system.get(RELATIONS, uid="ann"), "relation", "friend, follow, block")
        asked = {"uid": "ann", "relation": "friend", "direction": "up"}
        wrong(system.get(RELATIONS, **asked), "direction", "recipients, authors")


class TestTimelines:
    def test_pages(self, system: System, other: System) -> None:
        system.change("ann", "befriend", "bob")
        other.change("ann", "befriend", "bob")
        wanted = [
            system.post(uid, src_type=("note", "update")[n % 2])
            for n, uid in enumerate(["ann", "bob", "ann", "bob", "ann"])
        ][::-1]
        other.post("ann")
        assert system.timeline("bob", limit="2") == wanted
        drain()
        assert system.timeline("bob", limit="2") == wanted
        assert system.timeline("bob", src_type="update") == wanted[1::2]
        page = system.get(f"{TIMELINES}/bob", limit="1", src_type="note").json()
        assert "src_type=note" in page["next"]
        assert set(page["results"][0]) == set(PostSerializer().fields)
        # The id of a post is a cursor too.
        assert system.timeline("bob", cursor=wanted[2]) == wanted[3:]

    def test_unread_and_read(self, system: System) -> None:
        system.change("ann", "befriend", "bob")
        first, second = system.post(), system.post()
        unread = f"{TIMELINES}/bob/unread"
        assert system.get(unread).json() == {"count": 2, "more": False}

        def read(up_to: str) -> int:
            return system.send("POST", f"{TIMELINES}/bob/read", {"up_to": up_to}).status_code

        assert read(first) == 204
        assert system.get(unread).json()["count"] == 1
        assert (read(second), read(first)) == (204, 204)  # it never goes back
        assert system.get(unread).json()["count"] == 0
        later = ids.first_id_at(sql.now()) + (3600 * ids.TICKS_PER_SECOND << ids.TICK_SHIFT)
        for up_to in (str(later), "9" * 19, "-1", "x", ""):
            response = system.send("POST", f"{TIMELINES}/bob/read", {"up_to": up_to})
            wrong(response, "up_to", "id")
        assert FeedUser.objects.get(biz_id=system.biz.pk, uid="bob").read_id == int(second)

    def test_a_post_by_a_clock_that_is_ahead_can_be_read(self, system: System) -> None:
        """The web server's clock is 90 s ahead; what it gives can be noted as read."""
        system.change("ann", "befriend", "bob")
        ahead = 90 * ids.TICKS_PER_SECOND << ids.TICK_SHIFT
        first = int(system.post()) + ahead
        Feed.objects.update(id=first)
        path = f"{TIMELINES}/bob/read"
        assert system.send("POST", path, {"up_to": str(first)}).status_code == 204
        wrong(system.send("POST", path, {"up_to": str(first + 1)}), "up_to", "id")

    @pytest.mark.parametrize("uid", ["%", "a?b", "a#b", "a%2fb", "~a..b;", "unread", "+"])
    def test_every_user_has_an_address(self, system: System, uid: str) -> None:
        id = system.post(uid)
        assert system.timeline(quote(uid, safe="")) == [id]
        assert system.get(f"{TIMELINES}/{quote(uid, safe='')}/unread").json()["count"] == 0

    def test_what_is_wrong(self, system: System) -> None:
        for uid in ("u" * 65, quote("a b"), quote("a/b", safe=""), "%00", quote("王")):
            problem(system.get(f"{TIMELINES}/{uid}"), 404, "not-found")
        for limit in ("0", "201", "x", "9" * 5000, "0" * 6 + "1009999", "²"):
            wrong(system.get(f"{TIMELINES}/ann", limit=limit), "limit", "1 to 200")
        for cursor in ("x", "-1", "9" * 30):
            wrong(system.get(f"{TIMELINES}/ann", cursor=cursor), "cursor", "id")
        wrong(system.get(f"{TIMELINES}/ann", app_id="a b"), "app_id")
        body = {"up_to": 7}
        wrong(system.send("POST", f"{TIMELINES}/ann/read", body), "up_to", "str")


ADDRESSES = [
    ("GET", POSTS, "feed:read"),
    ("POST", POSTS, "feed:write"),
    ("POST", f"{POSTS}/batch", "feed:write"),
    ("GET", f"{POSTS}/7", "feed:read"),
    ("PATCH", f"{POSTS}/7", "feed:write"),
    ("DELETE", f"{POSTS}/7", "feed:write"),
    ("GET", RELATIONS, "feed:read"),
    ("POST", RELATIONS, "feed:write"),
    ("POST", f"{RELATIONS}/batch", "feed:write"),
    ("GET", f"{TIMELINES}/ann", "feed:read"),
    ("GET", f"{TIMELINES}/ann/unread", "feed:read"),
    ("POST", f"{TIMELINES}/ann/read", "feed:write"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ADDRESSES)
class TestKeys:
    def test_without_one_and_with_a_wrong_one(
        self, method: str, path: str, scope: str, system: System
    ) -> None:
        for header in ("", "Bearer mp_wrong"):
            response = system.api.client.generic(method, path, HTTP_AUTHORIZATION=header)
            problem(response, 401, "unauthenticated")

    def test_with_another_scope(self, method: str, path: str, scope: str, api: Api) -> None:
        has = "feed:write" if scope == "feed:read" else "feed:read"
        body = problem(System(api, has, "events:read").send(method, path, {}), 403, "missing-scope")
        assert body["required_scope"] == scope


class TestSchema:
    def test_every_operation_is_in_it(self) -> None:
        paths = document()["paths"]
        known = {path for path, _view in api_views(get_resolver("msgplatform.urls"))}
        operations = {
            (method.upper(), path)
            for path in known
            if path.startswith(f"{FEED}/")
            for method in paths[path]
        }
        tested = {
            (method, path.replace("/7", "/{id}").replace("/ann", "/{uid}"))
            for method, path, _scope in ADDRESSES
        }
        assert operations == tested

    def test_answers(self) -> None:
        schema = document()
        assert {"200", "202", "400", "409", "413"} <= statuses(schema, POSTS, "post")
        assert "409" in statuses(schema, RELATIONS, "post")
        assert "409" not in statuses(schema, RELATIONS, "get")
        assert {"204", "404"} <= statuses(schema, f"{POSTS}/{{id}}", "delete")
        assert "404" in statuses(schema, f"{TIMELINES}/{{uid}}", "get")
        (uid,) = [
            p for p in schema["paths"][f"{TIMELINES}/{{uid}}"]["get"]["parameters"]
            if p["in"] == "path"
        ]  # fmt: skip
        assert "percent-encoded" in uid["description"]


MANY = 2000


def fill(biz: int) -> None:
    """An author with many posts and recipients, a reader with many authors; older posts of others,
    so that what is left of the table is never the quickest way."""
    now = sql.now()
    columns: tuple[str, ...] = (
        "id",
        "biz_id",
        "uid",
        "topic",
        "app_id",
        "src_type",
        "data",
        "create_date",
    )
    for uid in ("others", "star"):
        topics = (("friend", "vip")[n % 2] for n in range(MANY))
        rows = [(ids.new(0), biz, uid, topic, "", "", "x", now) for topic in topics]
        sql.insert("feed", columns, rows)
    columns = ("biz_id", "uid", "relation", "fri_uid", "delivery", "create_date")
    fans = [(biz, "star", "follow", f"f{n:04}", 0, now) for n in range(MANY)]
    stars = [(biz, f"a{n:04}", "follow", "fan", n % 3, now) for n in range(MANY)]
    sql.insert("friend", columns, [*fans, *stars])
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE TABLE feed, friend")
            cursor.fetchall()


def rows_read() -> int:
    """What this session has read from tables and indexes; SQLite does not count it."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


@pytest.mark.parametrize(
    ("path", "asked", "deep"),
    [
        (POSTS, {"uid": "star"}, "id"),
        (POSTS, {"uid": "star", "topic": "vip"}, "id"),
        (RELATIONS, {"uid": "star", "relation": "follow"}, "reader"),
        (RELATIONS, {"uid": "fan", "relation": "follow", "direction": "authors"}, "author"),
    ],
)
def test_a_page_costs_the_same_wherever_it_is(
    path: str, asked: dict[str, str], deep: str, system: System
) -> None:
    """Neither a sort of all, nor a read of what lies before the page."""
    fill(system.biz.pk)
    response = system.get(path, limit="100", **asked)
    seen: set[str] = set()
    costs: list[Any] = []
    while following := response.json()["next"]:
        seen.update(row[deep] for row in response.json()["results"])
        before = rows_read()
        with CaptureQueriesContext(connection) as queries:
            response = system.get(following)
        costs.append(rows_read() - before)
    seen.update(row[deep] for row in response.json()["results"])
    assert len(seen) == (MANY // 2 if "topic" in asked else MANY)
    assert max(costs) <= costs[0] * 1.2 + 10, costs
    # The last one that is in an order reads the page.
    (*_, statement) = [q["sql"] for q in queries.captured_queries if "ORDER BY" in q["sql"]]
    with connection.cursor() as cursor:
        steps = [str(step).lower() for step in read_plan(cursor, statement.replace("%", "%%"))]
    assert not [step for step in steps if "filesort" in step or "temp b-tree" in step], steps


def test_posts_that_hardly_ever_fit_are_found_page_by_page(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page looks at all of an author's posts."""
    fill(system.biz.pk)
    monkeypatch.setattr(engine, "BATCH", 50)
    monkeypatch.setattr(engine, "MAX_SCANNED", 150)
    of_star = Feed.objects.filter(uid="star").order_by("-id")
    wanted = [of_star[MANY // 2].pk, of_star[MANY - 1].pk]
    of_star.filter(pk__in=wanted).update(app_id="rare")
    of_star.filter(pk__lt=wanted[0], pk__gt=wanted[1]).update(delete_date=sql.now())
    asked: dict[str, str] = {"uid": "star", "app_id": "rare", "limit": "10"}
    found, pages, address = list[int](), 0, POSTS
    while address:
        before = rows_read()
        page = system.get(address, **asked).json()
        assert rows_read() - before < MANY
        found += [int(row["id"]) for row in page["results"]]
        address, asked, pages = page["next"], {}, pages + 1
    assert found == wanted
    assert 4 < pages < 20
