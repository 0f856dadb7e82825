"""API keys: their form, what is stored, and how long a process trusts what it has seen."""

import hashlib
import json
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.db.utils import OperationalError
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from msgplatform.core.daemons import bounded_call
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.doors.api.access import key_cache, keys
from msgplatform.doors.api.access.key_cache import ApiCaller, KeyCache, ValidKey
from msgplatform.models import ApiKey
from tests.support import api_support
from tests.support.api_support import READ, WRITE, Api

api = pytest.fixture(api_support.api)
MALFORMED = [
    "",
    "x",
    "mp_",
    "mp_a_b",
    "mp_" + "A" * 12 + "_" + "b" * 43,
    "mp_" + "a" * 12 + "_" + "b" * 44,
    "mp_" + "é" * 56,
]


class TestCreate:
    def test_form(self, api: Api) -> None:
        key, plain = api.key(READ)
        assert re.fullmatch(r"mp_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", plain)
        assert plain.startswith(f"mp_{key.prefix}_")

    def test_only_the_hash_is_stored(self, api: Api) -> None:
        key, plain = api.key(READ)
        row = json.dumps(ApiKey.objects.filter(pk=key.pk).values().get(), default=str)
        assert plain not in row
        assert plain.split("_", 2)[2] not in row
        assert hashlib.sha256(plain.encode()).hexdigest() in row

    def test_keys_differ(self, api: Api) -> None:
        biz = api.biz()
        plains = {api.key(biz=biz)[1] for _ in range(50)}
        assert len(plains) == len({plain[:15] for plain in plains}) == 50

    @pytest.mark.parametrize(
        ("name", "allowed", "days", "field"),
        [
            ("x", ["nothing:write"], None, "scopes"),
            ("x", [], None, "scopes"),
            (" ", [READ], None, "name"),
            ("CI/CD", [READ], None, "name"),
            ("x", [READ], -1, "expires_at"),
        ],
    )
    def test_refused(
        self, api: Api, name: str, allowed: list[str], days: int | None, field: str
    ) -> None:
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        with pytest.raises(InvalidInput) as caught:
            keys.create(api.biz(), name, allowed, expires_at)
        assert caught.value.field == field
        assert not ApiKey.objects.exists()

    def test_scopes_come_from_the_flows(self, api: Api) -> None:
        assert {READ, WRITE} <= keys.scopes().keys()


class TestVerify:
    def test_owner_and_scopes(self, api: Api) -> None:
        biz = api.biz()
        key, plain = api.key(READ, biz=biz)
        assert keys.verify(plain) == ApiCaller(biz.pk, biz.name, key.pk, frozenset({READ}))

    def test_right_prefix_with_a_wrong_secret(self, api: Api) -> None:
        _, plain = api.key(READ)
        other = plain[:-1] + ("A" if plain[-1] != "A" else "B")
        assert keys.verify(other) is None
        assert keys.verify(plain) is not None

    def test_a_known_key_needs_no_database(
        self, api: Api, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        _, plain = api.key()
        with django_assert_num_queries(1):
            keys.verify(plain)
        with django_assert_num_queries(0):
            assert keys.verify(plain) is not None

    def test_a_wrong_key_is_asked_for_once(
        self, api: Api, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        wrong = "mp_" + "a" * 12 + "_" + "b" * 43
        with django_assert_num_queries(1):
            assert keys.verify(wrong) is None
            assert keys.verify(wrong) is None

    @pytest.mark.parametrize("text", MALFORMED)
    def test_a_malformed_key_asks_nobody(
        self, api: Api, text: str, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        with django_assert_num_queries(0):
            assert keys.verify(text) is None

    def test_it_expires_while_it_is_remembered(self, api: Api) -> None:
        start = timezone.now()
        _, plain = api.key(READ, expires_at=start + timedelta(hours=1))
        assert keys.verify(plain) is not None
        with time_machine.travel(start + timedelta(minutes=59), tick=False):
            assert keys.verify(plain) is not None
        with time_machine.travel(start + timedelta(hours=1), tick=False):
            assert keys.verify(plain) is None

    def test_revoking_works_at_once_in_this_process(self, api: Api) -> None:
        key, plain = api.key()
        assert keys.verify(plain) is not None
        keys.revoke(key)
        assert key.revoked_at is not None
        assert keys.verify(plain) is None


class TestLastUsed:
    def used(self, key: ApiKey) -> object:
        key.refresh_from_db()
        return key.last_used_at

    def test_written_after_the_answer(self, api: Api) -> None:
        key, plain = api.key()
        assert api.get("/api/v1/test/echo", plain).status_code == 200
        assert self.used(key) is not None

    def test_not_while_the_request_runs(
        self, api: Api, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        key, plain = api.key()
        with django_assert_num_queries(1) as captured:
            keys.verify(plain)
        assert captured[0]["sql"].startswith("SELECT")
        keys.write_last_used()
        assert self.used(key) is not None

    def test_at_most_once_a_minute(self, api: Api) -> None:
        key, plain = api.key()
        start = timezone.now()
        seen = []
        for seconds in (0, 59, 60, 61):
            with time_machine.travel(start + timedelta(seconds=seconds), tick=False):
                keys.forget()  # as another process, or this one when the cache has let go
                api.get("/api/v1/test/echo", plain)
            seen.append((self.used(key) - start).total_seconds())
        assert seen == [0, 0, 60, 60]

    def test_nothing_to_write_writes_nothing(
        self, api: Api, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        _, plain = api.key()
        api.get("/api/v1/test/echo", plain)
        keys.forget()
        with django_assert_num_queries(1) as captured:
            api.get("/api/v1/test/echo", plain)
        assert captured[0]["sql"].startswith("SELECT")

    def test_another_process_was_faster(self, api: Api) -> None:
        key, plain = api.key()
        keys.verify(plain)
        just_now = timezone.now() - timedelta(seconds=5)
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=just_now)
        keys.write_last_used()
        assert self.used(key) == just_now

    def test_a_failing_write_fails_no_request(self, api: Api) -> None:
        _, plain = api.key()

        def refuse_updates(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            if sql.startswith("UPDATE"):
                raise OperationalError("disk full")
            return execute(sql, params, many, context)

        with connection.execute_wrapper(refuse_updates):
            assert api.get("/api/v1/test/echo", plain).status_code == 200


@pytest.mark.django_db(transaction=True)
class TestConnections:
    """A server thread that looked at a key keeps no connection open for it."""

    def test_closed_when_it_was_closed(self, api: Api) -> None:
        _, plain = api.key()
        connection.close()
        assert keys.verify(plain) is not None
        assert connection.connection is None
        keys.write_last_used()
        assert connection.connection is None

    def test_left_open_when_it_was_open(self, api: Api) -> None:
        _, plain = api.key()
        connection.ensure_connection()
        assert keys.verify(plain) is not None
        assert connection.connection is not None


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestCache:
    """Time is an argument: no waiting."""

    caller = ApiCaller(1, "orders", 7, frozenset())

    def setup_method(self) -> None:
        self.clock = Clock()
        self.cache = KeyCache(self.clock)
        self.asked = 0
        self.answer: ValidKey | Exception | None = ValidKey(self.caller, None)

    def load(self) -> ValidKey | None:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def get(self, digest: str = "d") -> ApiCaller | None:
        return self.cache.get(digest, self.load, lambda: None)

    def test_a_revoked_key_ends_within_the_time_to_live(self) -> None:
        assert self.get() == self.caller
        self.answer = None
        self.clock.now += 24.9
        assert self.get() == self.caller
        self.clock.now += 0.1
        assert self.get() is None
        assert self.get() is None
        assert self.asked == 2

    def test_while_one_asks_the_others_go_on(self) -> None:
        assert self.cache.peek("d") is None
        self.get()
        assert self.cache.peek("d") == self.caller
        self.clock.now += 25
        assert self.cache.peek("d") is None, "somebody has to ask"
        meanwhile: list[ApiCaller | None] = []

        def slowly() -> ValidKey | None:
            meanwhile.append(self.cache.peek("d"))
            self.clock.now += 5
            meanwhile.append(self.cache.peek("d"))
            return self.load()

        self.answer = None
        assert self.cache.get("d", slowly, lambda: None) is None
        assert meanwhile == [self.caller, None], "until its time is over"
        assert self.cache.peek("d") is None

    def test_an_expired_key_is_not_remembered(self) -> None:
        self.answer = ValidKey(self.caller, 0.0)
        assert self.get() is None
        assert self.cache.peek("d") is None

    def test_a_key_that_is_made_later_works_soon(self) -> None:
        self.answer = None
        assert self.get() is None
        self.answer = ValidKey(self.caller, None)
        assert self.get() is None
        self.clock.now += key_cache.INVALID_TTL_SECONDS
        assert self.get() == self.caller

    def test_without_database_a_good_key_stays_good_for_a_while(self) -> None:
        self.get()
        self.answer = OperationalError("gone away")
        self.clock.now += 30
        assert self.get() == self.caller
        assert self.get() == self.caller
        assert self.asked == 2  # the next one asks only after a pause
        self.clock.now += key_cache.RETRY_SECONDS
        assert self.get() == self.caller
        assert self.asked == 3
        self.clock.now = 1000.0 + 30 + key_cache.STALE_SECONDS
        with pytest.raises(Unavailable):
            self.get()

    def test_while_the_database_hangs_a_good_key_stays_good(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bounded_call, "_is_on", True)
        may_end, asked = threading.Event(), []

        def hang() -> ValidKey | None:
            asked.append(1)
            may_end.wait(60)
            return None

        for digest in ("d", "e", "f"):
            self.get(digest)
        self.clock.now += 30
        try:
            for digest in ("d", "e", "f") * 3:
                assert self.cache.get(digest, hang, lambda: None) == self.caller
            assert len(asked) == key_cache.MAX_LOADING
        finally:
            may_end.set()

    def test_without_database_an_unknown_key_is_no_wrong_key(self) -> None:
        self.answer = OperationalError("gone away")
        with pytest.raises(OperationalError):
            self.get()
        self.answer = ValidKey(self.caller, None)
        assert self.get() == self.caller

    def test_a_flood_of_wrong_keys_displaces_no_good_one(self) -> None:
        self.get("good")
        self.answer = None
        for number in range(key_cache.MAX_INVALID + 500):
            self.get(f"wrong-{number}")
        assert len(self.cache._invalid_until) == key_cache.MAX_INVALID
        asked = self.asked
        assert self.get("good") == self.caller
        assert self.asked == asked

    def test_both_sides_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(key_cache, "MAX_VALID", 10)
        for number in range(25):
            self.get(f"good-{number}")
        assert len(self.cache._valid) == 10
        assert self.get("good-24") == self.caller
        assert self.asked == 25

    def test_admission_is_asked_only_for_keys_never_seen(self) -> None:
        class RefusedError(Exception):
            pass

        def refuse() -> None:
            raise RefusedError

        self.get("seen")
        self.clock.now += 3600
        assert self.cache.get("seen", self.load, refuse) == self.caller
        with pytest.raises(RefusedError):
            self.cache.get("never seen", self.load, refuse)
        assert self.asked == 2
