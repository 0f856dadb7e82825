"""/healthz, /readyz and /metrics."""

import threading
import time
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings
from pytest_django import DjangoAssertNumQueries

from msgplatform.core import connections as redis_connections
from msgplatform.core.data import server
from msgplatform.doors.api import health
from msgplatform.models import Alert
from tests.support import api_support
from tests.support.api_support import Api, problem

pytestmark = pytest.mark.both_databases

api = pytest.fixture(api_support.api)


class TestAlive:
    def test_without_any_server(
        self, api: Api, settings: Any, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        settings.REDIS_URL = "unix:///no/such/redis.sock"
        with django_assert_num_queries(0):
            response = api.get("/healthz")
        assert (response.status_code, response.content) == (200, b"ok\n")

    def test_only_for_reading(self, api: Api) -> None:
        assert api.client.post("/healthz").status_code == 405


class TestReady:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "READY_SECONDS", 60.0)
        monkeypatch.setattr(health, "INFORM_SECONDS", 60.0)

    def test_all_there(self, api: Api) -> None:
        response = api.get("/readyz")
        assert response.status_code == 200
        assert response.json() == {"ready": True, "database": "ok", "redis": "ok"}

    def test_redis_away_which_no_intake_needs(self, api: Api, settings: Any) -> None:
        settings.REDIS_URL = "unix:///no/such/redis.sock"
        response = api.get("/readyz")
        assert response.status_code == 200
        answer = response.json()
        assert "accepted all the same" in answer.pop("note")
        assert answer == {"ready": True, "database": "ok", "redis": "away"}

    def test_database_away(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        nowhere = {"NAME": "/no/such/folder/db", "HOST": "/no/such/folder/db.sock"}
        elsewhere = {**connections["default"].settings_dict, **nowhere}
        monkeypatch.setitem(connections.settings, "default", elsewhere)
        response = api.get("/readyz")
        assert response.status_code == 503
        assert response.json() == {"ready": False, "database": "away", "redis": "ok"}

    def test_a_database_before_the_migrations_of_this_release(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.check_columns.cache_clear()
        column = Alert._meta.get_field("subject")
        with monkeypatch.context() as patch:
            patch.setattr(column, "column", "column_of_this_release")
            response = api.get("/readyz")
        assert response.status_code == 503
        assert "migrate --before" in response.json()["database"]
        assert api.get("/readyz").status_code == 200
        with monkeypatch.context() as patch:  # later migrations only add: nobody looks again
            patch.setattr(column, "column", "column_of_this_release")
            assert api.get("/readyz").status_code == 200

    def test_a_server_that_hangs(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        let_go, asked = threading.Event(), []

        def hang() -> None:
            asked.append(1)
            let_go.wait(180)

        monkeypatch.setitem(health.PROBES, "redis", health.Probe(hang))
        monkeypatch.setattr(health, "INFORM_SECONDS", 0.5)
        began = time.monotonic()
        try:
            asked_for, database = 0, ""
            while asked_for < 2 or database != "ok":  # it too may be late on a busy machine
                response = api.get("/readyz")
                assert response.json()["redis"] == "no answer in time"
                asked_for, database = asked_for + 1, response.json()["database"]
                assert time.monotonic() - began < 150
        finally:
            let_go.set()
        assert time.monotonic() - began < 150  # `hang` lasts longer
        assert len(asked) == 1  # nobody piles up behind it

    def test_it_gives_nothing_away(self, api: Api, settings: Any) -> None:
        settings.REDIS_URL = "redis://user:hunter2@127.0.0.1:1/0"
        assert b"hunter2" not in api.get("/readyz").content

    def test_the_default_client_is_untouched(self, api: Api) -> None:
        assert redis_connections.work_redis().ping()


LOCAL = "127.0.0.1"
TOKEN = "a token for Prometheus"


class TestMetrics:
    @pytest.mark.parametrize(
        ("public_url", "address", "extra", "allowed"),
        [
            ("http://localhost:8000", "127.0.0.1", {}, True),
            ("http://127.0.0.1:8000", "::1", {}, True),
            ("http://[::1]:8000", "127.0.0.5", {}, True),
            ("http://localhost:8000", "10.0.0.1", {}, False),
            ("http://localhost:8000", "", {}, False),
            ("http://localhost:8000", "127.0.0.1", {"HTTP_X_FORWARDED_FOR": "8.8.8.8"}, False),
            ("http://localhost:8000", "127.0.0.1", {"HTTP_VIA": "1.1 proxy"}, False),
            ("https://msg.example.com", "127.0.0.1", {}, False),
            ("https://localhost.example.com", "127.0.0.1", {}, False),
        ],
    )
    def test_without_token(
        self, api: Api, public_url: str, address: str, extra: dict[str, str], allowed: bool
    ) -> None:
        with override_settings(PUBLIC_URL=public_url, METRICS_TOKEN=""):
            response = api.get("/metrics", REMOTE_ADDR=address, **extra)
        if allowed:
            assert response.status_code == 200
        else:
            assert "METRICS_TOKEN" in problem(response, 403, "forbidden")["detail"]

    @pytest.mark.parametrize(
        ("header", "allowed"),
        [
            (f"Bearer {TOKEN}", True),
            (f"bearer {TOKEN}", True),
            (f"Bearer {TOKEN}x", False),
            (f"Basic {TOKEN}", False),
            ("Bearer", False),
            ("Bearer 消息", False),
            (None, False),
        ],
    )
    def test_with_token(self, api: Api, header: str | None, allowed: bool) -> None:
        extra = {} if header is None else {"HTTP_AUTHORIZATION": header}
        with override_settings(PUBLIC_URL="http://localhost", METRICS_TOKEN=TOKEN):
            response = api.get("/metrics", REMOTE_ADDR=LOCAL, **extra)
        assert response.status_code == (200 if allowed else 403)

    def test_what_it_says(self, api: Api) -> None:
        with override_settings(METRICS_TOKEN=TOKEN):
            response = api.get("/metrics", HTTP_AUTHORIZATION=f"Bearer {TOKEN}")
        assert response["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'msgplatform_things_waiting{kind="big"} 7.0' in response.content.decode()
