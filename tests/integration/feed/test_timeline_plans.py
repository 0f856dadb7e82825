"""A page costs the same whatever the length of the tables: every step goes by an index."""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from bench.harness.plans import read_plan
from msgplatform.core.data import engines, ids, sql
from msgplatform.core.data.engines.contract import Engine
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import SLICE
from msgplatform.models import Biz
from notify.feed import merge, person_data, timeline
from notify.feed.intake import posts, relations
from notify.feed.intake.relations import Change
from notify.feed.models import EventQueue, Feed, FeedUser
from notify.feed.models.events import UpkeepEvent, add_upkeep
from notify.feed.models.users import NOTHING_WRITTEN
from tests.integration.feed.support import BIZ, change, drain, user, written

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

AUTHORS = [f"author{n}" for n in range(30)]
POSTS = 100  # of each author
SECONDS = 180.0


def fill() -> None:
    """Readers with all authors, half of them merged at read, among other readers and posts."""
    now = sql.now()
    numbers = ids.reserve(POSTS * len(AUTHORS)).ids([0] * (POSTS * len(AUTHORS)))
    made = [(id, AUTHORS[n % len(AUTHORS)]) for n, id in enumerate(numbers)]
    readers = ["bob", *(f"reader{n}" for n in range(20))]
    sql.insert(
        "feed", ("id", "biz_id", "uid", "topic", "app_id", "src_type", "data", "create_date"),
        [(id, BIZ, uid, ("friend", "vip")[id >> 15 & 1], "", "", "text", now) for id, uid in made],
    )  # fmt: skip
    sql.insert(
        "feed_broadcast", ("biz_id", "fri_uid", "feed_id", "create_date", "app_id", "src_type"),
        [(BIZ, reader, id, now, "", "") for reader in readers for id, _uid in made],
    )  # fmt: skip
    sql.insert(
        "friend", ("biz_id", "uid", "relation", "fri_uid", "delivery", "create_date"),
        [
            (BIZ, uid, "friend", reader, 1 + n % 2, now)
            for n, uid in enumerate(AUTHORS) for reader in readers
        ],
    )  # fmt: skip
    sql.insert(
        "eventqueue",
        ("qid", "biz_id", "topic", "kind", "status", "data", "uid", "create_date", "position",
         "reason"),
        [(id, BIZ, "friend", "post", 1, "", uid, now, "", "") for id, uid in made],
    )  # fmt: skip
    # A table of 51 users is read as a whole, by its own index, when 30 of them are asked for.
    others = [(BIZ + 1, f"other{n}") for n in range(1000)]
    users = [*((BIZ, uid) for uid in (*readers, *AUTHORS)), *others]
    sql.insert("feed_user", ("biz_id", "uid"), users)
    FeedUser.objects.update(active=True, floor=0, visit_date=now)
    analyze()


def analyze() -> None:
    """So that the optimizer knows what is there: what it counts by itself it counts when it likes,
    with rows of other tests that are not purged yet."""
    tables = "biz, eventqueue, feed, feed_broadcast, friend, feed_user"
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {tables}" if connection.vendor == "mysql" else "ANALYZE")


def statements_of(work: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        work()
    return [
        query["sql"].replace("%", "%%")
        for query in queries.captured_queries
        if re.match(r"SELECT|UPDATE|DELETE|\(|INSERT.*\bSELECT\b", query["sql"])
        and "id_node" not in query["sql"]
    ]


def check(work: Callable[[], object]) -> None:
    """No step reads a whole table, or sorts; posts of an author are read from the newest on."""
    statements = statements_of(work)
    deadline = time.monotonic() + SECONDS
    while True:
        analyze()
        with connection.cursor() as cursor:
            steps = [step for each in statements for step in read_plan(cursor, each)]
        try:
            judge(steps)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)  # the server purges what other tests have deleted
        else:
            return


def judge(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        if connection.vendor == "mysql":
            of_result = str(step["table"]).startswith("<") or step["select_type"] == "INSERT"
            assert of_result or step["type"] not in ("ALL", "index"), step
            assert "filesort" not in str(step["Extra"]), step
            if step["key"] == "feed_of_author":
                assert step["type"] == "range", step
        else:
            detail = step["detail"]
            assert not re.match(r"SCAN (?!e\b|\(|CONSTANT)", detail), step
            assert "TEMP B-TREE" not in detail, step


@pytest.mark.parametrize("floor", [0, NOTHING_WRITTEN])
def test_every_step_of_a_page_goes_by_an_index_and_none_sorts(floor: int) -> None:
    fill()
    FeedUser.objects.update(floor=floor)
    middle = timeline.read(BIZ, "bob", limit=1000, visit=False).posts[-1].id
    check(lambda: timeline.read(BIZ, "bob", visit=False))
    check(lambda: timeline.read(BIZ, "bob", middle, visit=False))
    check(lambda: timeline.read(BIZ, "bob", app_id="none", visit=False))
    check(lambda: timeline.count_unread(BIZ, "bob"))
    check(lambda: timeline.mark_read(BIZ, "bob", middle))


def rows_read() -> int:
    """By this connection, from indexes; SQLite does not count it."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for name, value in cursor.fetchall() if "_rnd" not in name)


@pytest.mark.parametrize("rare", ["app_id", "not deleted"])
def test_a_page_looks_at_a_bounded_number_of_posts(
    rare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here at a few of each author's, of 3,000 in all; those that fit are found page by page."""
    fill()
    FeedUser.objects.update(floor=NOTHING_WRITTEN)
    monkeypatch.setattr(timeline, "MAX_MERGED", 200)
    monkeypatch.setattr(merge, "_MAX_ROWS", 300)
    oldest = Feed.objects.order_by("id")[0].pk
    others = Feed.objects.exclude(pk=oldest)
    others.update(app_id="usual") if rare == "app_id" else others.update(delete_date=sql.now())
    Feed.objects.filter(pk=oldest).update(app_id="rare")
    app_id = "rare" if rare == "app_id" else ""
    found, before, pages = list[int](), None, 0
    while pages == 0 or before is not None:
        read = rows_read()
        page = timeline.read(BIZ, "bob", before, 5, app_id, visit=False)
        assert rows_read() - read < 1000
        found += [post.id for post in page.posts]
        before, pages = page.next, pages + 1
    assert found == [oldest]
    assert 3 < pages < 50


def test_for_one_deleted_post_few_others_are_looked_at() -> None:
    fill()
    FeedUser.objects.update(floor=NOTHING_WRITTEN)
    theirs = Feed.objects.filter(uid="author0").order_by("-id")
    Feed.objects.filter(pk=theirs[1].pk).update(delete_date=sql.now())
    read = rows_read()
    page = timeline.read(BIZ, "author0", limit=5, visit=False)
    assert rows_read() - read < 0.9 * POSTS
    assert [post.id for post in page.posts] == [theirs[n].pk for n in (0, 2, 3, 4, 5)]


def test_every_step_of_upkeep_goes_by_an_index_and_none_sorts() -> None:
    fill()
    change(("author0", "unfriend", "bob"))  # an UNFOLLOW, and one of the author's timeline
    check(lambda: drain("upkeep"))
    assert "author0" not in {post.uid for post in timeline.read(BIZ, "bob", visit=False).posts}
    posts.delete(BIZ, timeline.read(BIZ, "bob", visit=False).posts[0].id)
    check(lambda: drain("upkeep"))
    change(("author0", "befriend", "bob"))
    check(lambda: drain("upkeep"))
    FeedUser.objects.filter(uid="bob").update(active=False, floor=NOTHING_WRITTEN)
    check(lambda: timeline.read(BIZ, "bob"))
    check(lambda: drain("upkeep"))
    assert written("bob")
    add_upkeep([UpkeepEvent(BIZ, "author1", EventQueue.Kind.MERGE)], ids.reserve(1), sql.now())
    FeedUser.objects.filter(uid="author1").update(merging=FeedUser.Merging.BECOMING)
    check(lambda: drain("upkeep"))
    assert user("author1").merging != FeedUser.Merging.BECOMING


@pytest.mark.parametrize(
    ("engine", "row"), [(engines.MARIADB, "("), (engines.MYSQL, "ROW(")], ids=str
)
def test_relations_are_looked_up_as_each_server_writes_a_table(
    engine: Engine, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = MagicMock()
    cursor.__enter__.return_value = cursor
    cursor.fetchall.return_value = []

    monkeypatch.setattr(engines, "of", lambda: engine)
    monkeypatch.setattr(relations, "connection", MagicMock(cursor=lambda: cursor))
    assert relations._read_relations(BIZ, [Change(BIZ, "follow", "ann", "bob")]) == set()
    statement, _parameters = cursor.execute.call_args.args
    assert f"AS (VALUES {row}%s, %s, %s), {row}%s" in statement
    assert sql.table_of("t", ("a",), [(1,)]) == f"WITH t(a) AS (VALUES {row}1))"


NAMES = Person(users=frozenset({(BIZ, "bob"), (BIZ, "author1")}))
NUMBERS = Person(phones=frozenset({"13800138000"}), emails=frozenset({"li@example.com"}))


@pytest.mark.parametrize("person", [NAMES, NUMBERS], ids=["users", "numbers"])
def test_every_step_of_finding_a_person_goes_by_an_index_and_none_sorts(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "mysql":  # SQLite counts no rows, and reads a small table as a whole
        return
    fill()
    monkeypatch.setattr(person_data, "PAGE", 20)
    Biz.objects.bulk_create([Biz(id=BIZ + n, name=f"shop{n}") for n in range(200)])
    Feed.objects.filter(uid="author2").update(uid="138-0013-8000")
    EventQueue.objects.filter(uid="author3").update(status=EventQueue.Status.WAITING)
    for store in person_data.stores():
        if store.name in ("feed.texts", "feed.event_texts", "feed.keys"):
            continue  # read by id alone
        read = rows_read()
        part = store.find(person, "")
        assert rows_read() - read < SLICE + 500, store.name
        if store.name != "feed.posts":  # of the first page the index has a value of every column
            check(partial(store.find, person, ""))
        if part.cursor:
            check(partial(store.find, person, part.cursor))
        if store.name == "feed.users":
            check(partial(store.erase, person, part.rows))
