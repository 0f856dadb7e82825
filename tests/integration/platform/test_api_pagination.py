"""Lists: a walk sees every row once while others insert and delete, and never counts."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from msgplatform.models import AuditLog, MinuteCounter
from tests.support import api_support
from tests.support.api_support import READ, Api, problem

api = pytest.fixture(api_support.api)
MAX_PAGES = 50
AUDIT, COUNTERS = "/api/v1/test/audit", "/api/v1/test/counters"


def insert(count: int) -> list[str]:
    """New rows; their ids, newest first."""
    rows = [AuditLog.objects.create(actor="a", action="b", target="c") for _ in range(count)]
    return [str(row.pk) for row in reversed(rows)]


class Walk:
    """Follows links as a client would."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.key = api.key(READ)[1]

    def page(self, url: str) -> dict[str, Any]:
        response = self.api.get(url, self.key)
        assert response.status_code == 200, response.content
        body: dict[str, Any] = response.json()
        assert list(body) == ["results", "next", "previous"]
        return body

    def pages(self, url: str | None, link: str = "next") -> Iterator[dict[str, Any]]:
        for _ in range(MAX_PAGES):
            if url is None:
                return
            page = self.page(url)
            yield page
            url = page[link]
        raise AssertionError("the walk does not end")


def ids(page: dict[str, Any]) -> list[str]:
    return [row["id"] for row in page["results"]]


@pytest.fixture
def walk(api: Api) -> Walk:
    return Walk(api)


class TestWalk:
    def test_forward_and_back(self, walk: Walk) -> None:
        all_ids = insert(11)
        pages = list(walk.pages(f"{AUDIT}?limit=4"))
        assert [ids(page) for page in pages] == [all_ids[:4], all_ids[4:8], all_ids[8:]]
        assert pages[0]["previous"] is None
        back = list(walk.pages(pages[-1]["previous"], "previous"))
        assert [ids(page) for page in back] == [all_ids[4:8], all_ids[:4]]
        assert ids(walk.page(back[0]["next"])) == all_ids[8:]

    def test_a_full_last_page_has_no_next(self, walk: Walk) -> None:
        insert(4)
        assert walk.page(f"{AUDIT}?limit=4")["next"] is None

    def test_nothing(self, walk: Walk) -> None:
        assert walk.page(AUDIT) == {"results": [], "next": None, "previous": None}

    def test_rows_are_inserted_meanwhile(self, walk: Walk) -> None:
        before = insert(20)
        seen: list[str] = []
        for page in walk.pages(f"{AUDIT}?limit=3"):
            seen += ids(page)
            insert(5)
        assert seen == before

    def test_new_rows_come_with_previous(self, walk: Walk) -> None:
        before = insert(4)
        second = walk.page(walk.page(f"{AUDIT}?limit=2")["next"])
        added = insert(3)
        newer = [ids(page) for page in walk.pages(second["previous"], "previous")]
        assert newer == [before[:2], added[1:], added[:1]]

    def test_the_row_of_the_cursor_is_deleted(self, walk: Walk) -> None:
        all_ids = insert(6)
        first = walk.page(f"{AUDIT}?limit=3")
        AuditLog.objects.filter(pk__in=[int(all_ids[2]), int(all_ids[3])]).delete()
        assert ids(walk.page(first["next"])) == all_ids[4:]

    def test_all_rows_beyond_are_deleted(self, walk: Walk) -> None:
        all_ids = insert(6)
        first = walk.page(f"{AUDIT}?limit=3")
        AuditLog.objects.filter(pk__lt=int(all_ids[2])).delete()
        page = walk.page(first["next"])
        assert (ids(page), page["next"]) == ([], None)
        assert ids(walk.page(page["previous"])) == all_ids[:3]

    def test_two_fields_in_two_directions(self, walk: Walk) -> None:
        """Against a sort in Python; many equal values, so that a page ends inside them."""
        start, choose = datetime(2026, 11, 20, tzinfo=UTC), random.Random(7)
        rows = MinuteCounter.objects.bulk_create(
            MinuteCounter(
                minute=start + timedelta(minutes=choose.randrange(4)),
                flow="x",
                biz_id=n,
                name="sent",
                value=choose.randrange(3),
            )
            for n in range(60)
        )
        stored = MinuteCounter.objects.filter(biz_id__in=[row.biz_id for row in rows])
        by_hand = sorted(stored, key=lambda r: (-r.minute.timestamp(), r.value, r.pk))
        expected = [str(row.pk) for row in by_hand]
        pages = list(walk.pages(f"{COUNTERS}?limit=7"))
        assert list(chain.from_iterable(page["results"] for page in pages)) == expected
        back = list(walk.pages(pages[-1]["previous"], "previous"))
        assert list(chain.from_iterable(page["results"] for page in back[::-1])) == expected[:56]


class TestCost:
    def test_one_query_a_page_and_no_count(self, walk: Walk) -> None:
        insert(30)
        url = walk.page(f"{AUDIT}?limit=5")["next"]
        with CaptureQueriesContext(
            connection,
        ) as captured:
            walk.page(url)
        (query,) = [q["sql"].upper() for q in captured if "AUDITLOG" in q["sql"].upper()]
        assert "COUNT(" not in query
        assert "OFFSET" not in query
        assert "LIMIT 6" in query


class TestLinks:
    def test_they_are_absolute_and_keep_the_filter(self, walk: Walk) -> None:
        insert(3)
        url = walk.page(f"{AUDIT}?limit=2&biz=a%26b")["next"]
        parts = urlsplit(url)
        assert (parts.scheme, parts.netloc, parts.path) == ("http", "testserver", AUDIT)
        query = parse_qs(parts.query)
        assert (query["limit"], query["biz"]) == (["2"], ["a&b"])

    def test_fifty_by_default(self, walk: Walk) -> None:
        insert(51)
        assert len(ids(walk.page(AUDIT))) == 50


LIMITS = ["0", "201", "-1", "x", "1.5", "9" * 30, "٣"]
FORGERIES: list[Callable[[str], str]] = [
    lambda cursor: "x",
    lambda cursor: cursor[:-1],
    lambda cursor: "A" + cursor[1:],
    lambda cursor: cursor.replace(".", ""),
    lambda cursor: cursor + "\x00",
    lambda cursor: "消息",
]


class TestRefused:
    @pytest.mark.parametrize("limit", LIMITS)
    def test_limit(self, walk: Walk, limit: str) -> None:
        response = walk.api.client.get(
            AUDIT, {"limit": limit}, HTTP_AUTHORIZATION=f"Bearer {walk.key}"
        )
        body = problem(response, 400, "invalid-input")
        assert body["errors"][0]["field"] == "limit"

    def test_the_largest_limit(self, walk: Walk) -> None:
        assert walk.page(f"{AUDIT}?limit=200")["results"] == []

    @pytest.mark.parametrize("forge", FORGERIES)
    def test_a_cursor_that_we_did_not_make(self, walk: Walk, forge: Callable[[str], str]) -> None:
        insert(2)
        url = walk.page(f"{AUDIT}?limit=1")["next"]
        cursor = forge(parse_qs(urlsplit(url).query)["cursor"][0])
        response = walk.api.client.get(
            AUDIT, {"cursor": cursor}, HTTP_AUTHORIZATION=f"Bearer {walk.key}"
        )
        body = problem(response, 400, "invalid-input")
        assert body["errors"][0]["field"] == "cursor"

    def test_the_cursor_of_another_list(self, walk: Walk) -> None:
        insert(2)
        url = walk.page(f"{AUDIT}?limit=1")["next"]
        response = walk.api.get(url.replace(AUDIT, COUNTERS), walk.key)
        problem(response, 400, "invalid-input")
