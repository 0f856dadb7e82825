"""Feed behind its real server: posts that share a commit, user ids in addresses."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.feed.models import EventQueue, Feed
from tests.support.api_server import Server

pytestmark = pytest.mark.django_db(transaction=True)
FEED = "/api/v1/feed"
JSON = {"Content-Type": "application/json"}
# More than the server has threads.
CALLERS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("granian") / "log"
    server = Server(log)
    yield server
    server.stop()


@pytest.fixture
def key(db: None) -> str:
    biz = Biz.objects.create(name="orders")
    return keys.create(biz, "tests", ["feed:write", "feed:read"])[1]


def ask(
    server: Server, key: str, method: str, path: str, body: Any = None
) -> tuple[int, dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    status, answer = server.request(method, f"{FEED}/{path}", key, data, JSON)
    return status, json.loads(answer) if answer else {}


def test_posts_that_come_together_are_each_answered(server: Server, key: str) -> None:
    def post(number: int) -> tuple[int, int, str, str]:
        # Each is sent twice, and every third has nothing to say.
        data = "" if number % 3 == 2 else f"post {number // 2}"
        body = {"uid": f"u{number // 2}", "data": data, "idempotency_key": f"k{number // 2}"}
        status, answer = ask(server, key, "POST", "posts", body)
        return number, status, data, answer.get("id", "")

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(post, range(240)))
    ids: dict[str, str] = {}
    for number, status, data, id in answers:
        assert status == (400 if not data else status)
        if data:
            assert status in (200, 202), number
            assert ids.setdefault(data, id) == id
    assert len(ids) == len(set(ids.values())) == Feed.objects.count()
    shown = {str(pk): data for pk, data in Feed.objects.values_list("id", "data")}
    assert shown == {id: data for data, id in ids.items()}
    assert EventQueue.objects.filter(pk__in=shown).count() == len(shown)


@pytest.mark.parametrize("uid", ["a%b", "a?b=c", "a#b", "a%2fb", "a;b,c&d", "~a..b", "+", "unread"])
def test_every_user_has_an_address(server: Server, key: str, uid: str) -> None:
    assert ask(server, key, "POST", "posts", {"uid": uid, "data": "hello"})[0] == 202
    address = f"timelines/{quote(uid, safe='')}"
    status, page = ask(server, key, "GET", address)
    assert status == 200
    assert [post["uid"] for post in page["results"]] == [uid]
    assert ask(server, key, "GET", f"{address}/unread") == (200, {"count": 0, "more": False})


def test_a_slash_is_never_part_of_one(server: Server, key: str) -> None:
    status, answer = ask(server, key, "POST", "posts", {"uid": "a/unread", "data": "hello"})
    assert (status, answer["errors"][0]["field"]) == (400, "uid")
    status, answer = ask(server, key, "GET", "timelines/a%2Funread")
    # The server decodes it, so it is a question about the user a.
    assert (status, answer) == (200, {"count": 0, "more": False})
