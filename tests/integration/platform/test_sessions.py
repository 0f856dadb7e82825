"""Sessions of the console: Redis saves a question, and is neither the truth nor believed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
PAGE = "/admin/password_change/"


class Planted:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.file,)


@pytest.fixture
def root(work_redis: redis.Redis) -> Client:
    work_redis.flushall()
    client = Client()
    User.objects.create_superuser("root", password="a good password")
    assert client.login(username="root", password="a good password")
    return client


def copies(work_redis: redis.Redis) -> list[bytes]:
    return sorted(work_redis.keys("*session*"))


def test_a_page_asks_redis_for_the_session(root: Client) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert root.get(PAGE).status_code == 200
    assert not [query for query in captured if "django_session" in query["sql"]]


def test_a_session_survives_a_flush(root: Client, work_redis: redis.Redis) -> None:
    work_redis.flushall()
    assert root.get(PAGE).status_code == 200
    assert len(copies(work_redis)) == 1


def test_a_pickle_in_its_place_is_not_read(
    root: Client, work_redis: redis.Redis, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    (key,) = copies(work_redis)
    work_redis.set(key, pickle.dumps(Planted(trap)))
    assert root.get(PAGE).status_code == 200
    assert not trap.exists()


def test_what_redis_holds_lets_nobody_in(root: Client, work_redis: redis.Redis) -> None:
    """Neither what can be read there nor what can be written."""
    (key,) = copies(work_redis)
    secret = root.cookies["sessionid"].value.encode()
    assert secret not in key + work_redis.get(key)

    guest = Client()
    guest.force_login(User.objects.create_user("guest"))
    (own,) = set(copies(work_redis)) - {key}
    work_redis.set(own, work_redis.get(key))
    assert guest.get("/admin/").status_code == 302
    work_redis.set(own, b'{"_auth_user_id": "1"}')
    assert guest.get("/admin/").status_code == 302
    assert Session.objects.count() == 2


def test_a_logout_is_one_at_once(root: Client, work_redis: redis.Redis) -> None:
    cookie = root.cookies["sessionid"].value
    root.post("/admin/logout/")
    again = Client()
    again.cookies["sessionid"] = cookie
    assert again.get(PAGE).status_code == 302
    assert copies(work_redis) == []
