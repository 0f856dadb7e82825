"""Who is let in, and what those who are not get to see."""

import io
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

import msgplatform
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from tests.support import api_support
from tests.support.api_support import READ, WRITE, Api, problem

api = pytest.fixture(api_support.api)
ECHO = "/api/v1/test/echo"
OWN_KEY = "/api/v1/key"


def test_a_good_key(api: Api) -> None:
    key, plain = api.key()
    response = api.get(ECHO, plain)
    assert response.status_code == 200
    assert response.json() == {"biz": key.biz.name, "key": str(key.pk)}


def test_the_scheme_is_not_case_sensitive(api: Api) -> None:
    _, plain = api.key()
    assert api.get(ECHO, HTTP_AUTHORIZATION=f"bEARER {plain}").status_code == 200


class TestRefused:
    """Every one of these gets the same answer, byte for byte."""

    def answer(self, api: Api, header: str | None) -> bytes:
        extra = {} if header is None else {"HTTP_AUTHORIZATION": header}
        response = api.get(ECHO, **extra)
        problem(response, 401, "unauthenticated")
        assert response["WWW-Authenticate"] == 'Bearer realm="msgplatform"'
        return response.content

    @pytest.mark.parametrize(
        "header",
        ["", "Bearer", "Bearer ", "Bearer x", "Basic dXNlcjpwdw==", "Bearer mp_x y", "\x00",
         "Bearer mp_" + "a" * 12 + "_" + "b" * 43, "Bearer mp_消息", "Bearer " + "x" * 5000],
    )  # fmt: skip
    def test_missing_malformed_and_wrong(self, api: Api, header: str) -> None:
        assert self.answer(api, header) == self.answer(api, None)

    def test_wrong_secret(self, api: Api) -> None:
        _, plain = api.key()
        assert self.answer(api, f"Bearer {plain[:-2]}zz") == self.answer(api, None)

    def test_revoked(self, api: Api) -> None:
        key, plain = api.key()
        assert api.get(ECHO, plain).status_code == 200
        keys.revoke(key)
        assert self.answer(api, f"Bearer {plain}") == self.answer(api, None)

    def test_expired(self, api: Api) -> None:
        _, plain = api.key(expires_at=timezone.now() + timedelta(hours=1))
        assert api.get(ECHO, plain).status_code == 200
        with time_machine.travel(timezone.now() + timedelta(hours=1, seconds=1), tick=False):
            assert self.answer(api, f"Bearer {plain}") == self.answer(api, None)

    def test_disabled_owner(self, api: Api) -> None:
        key, plain = api.key()
        Biz.objects.filter(pk=key.biz_id).update(enabled=False)
        assert self.answer(api, f"Bearer {plain}") == self.answer(api, None)

    def test_a_wrong_key_is_refused_even_where_none_is_needed(self, api: Api) -> None:
        assert api.get("/api/v1/test/public").status_code == 200
        problem(api.get("/api/v1/test/public", "wrong"), 401, "unauthenticated")

    def test_the_body_is_not_read(self, api: Api) -> None:
        body = io.BytesIO(b"x" * 100)
        response = api.post(ECHO, b"x" * 100, None, **{"wsgi.input": body})
        problem(response, 401, "unauthenticated")
        assert body.tell() == 0


def test_a_key_says_what_it_is(api: Api) -> None:
    key, plain = api.key(READ)
    assert api.get(OWN_KEY, plain).json() == {
        "name": key.name, "system": key.biz.name, "systems": [], "scopes": [READ],
        "platform_version": msgplatform.__version__,
    }  # fmt: skip
    manager = keys.create(None, "provisioning", ["manage:jobs"])[1]
    answer = api.get(OWN_KEY, manager).json()
    assert (answer["system"], answer["scopes"]) == (None, ["manage:jobs"])
    problem(api.get(OWN_KEY), 401, "unauthenticated")
    problem(api.get(f"{OWN_KEY}?name=x", plain), 400, "invalid-input")


class TestScope:
    def test_missing(self, api: Api) -> None:
        _, plain = api.key(READ)
        response = api.post(ECHO, b"{}", plain)
        body = problem(response, 403, "missing-scope")
        assert body["required_scope"] == WRITE
        assert WRITE in body["detail"]
        assert f'scope="{WRITE}"' in response["WWW-Authenticate"]

    def test_by_method(self, api: Api) -> None:
        _, plain = api.key(WRITE)
        assert api.post(ECHO, b"{}", plain).status_code == 200
        assert problem(api.get(ECHO, plain), 403, "missing-scope")["required_scope"] == READ

    def test_head_is_like_get(self, api: Api) -> None:
        _, reader = api.key(READ)
        _, writer = api.key(WRITE)
        authorized: Any = {"HTTP_AUTHORIZATION": f"Bearer {reader}"}
        assert api.client.head(ECHO, **authorized).status_code == 200
        authorized = {"HTTP_AUTHORIZATION": f"Bearer {writer}"}
        assert api.client.head(ECHO, **authorized).status_code == 403

    def test_a_view_without_scope_is_closed(self, api: Api) -> None:
        _, plain = api.key(READ, WRITE)
        problem(api.get("/api/v1/test/closed", plain), 403, "forbidden")

    def test_a_method_without_scope_is_closed(self, api: Api) -> None:
        _, plain = api.key(READ, WRITE)
        authorized: Any = {"HTTP_AUTHORIZATION": f"Bearer {plain}"}
        assert api.get("/api/v1/test/half-closed", plain).status_code == 200
        problem(api.client.delete("/api/v1/test/half-closed", **authorized), 403, "forbidden")

    def test_a_method_that_is_not_there(self, api: Api) -> None:
        _, plain = api.key(READ)
        for method in ("PUT", "OPTIONS", "TRACE", "HELLO"):
            response = api.client.generic(method, ECHO, HTTP_AUTHORIZATION=f"Bearer {plain}")
            body = problem(response, 405, "method-not-allowed")
            assert "GET, POST" in body["detail"]
            assert "POST" in response["Allow"]

    def test_a_scope_taken_away_ends_with_the_cache(self, api: Api) -> None:
        key, plain = api.key(READ)
        assert api.get(ECHO, plain).status_code == 200
        key.scopes = [WRITE]
        key.save()
        keys.forget()
        problem(api.get(ECHO, plain), 403, "missing-scope")


def test_a_request_with_a_known_key_needs_no_database(
    api: Api, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    _, plain = api.key()
    api.post(ECHO, b"{}", plain)
    with django_assert_num_queries(0):
        assert api.post(ECHO, b"{}", plain).status_code == 200
