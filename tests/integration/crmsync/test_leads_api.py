"""`/api/v1/leads` for business systems: store, read, change, delete, and every wrong input."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from crmsync.api import views
from crmsync.models import LandingPage, Lead, Record
from msgplatform.doors.api.access import keys, throttling
from tests.integration.crmsync import recovery_steps, sync_support
from tests.integration.crmsync.support import (
    LEADS,
    WANG,
    Caller,
    form_fields,
    landing_page,
    stored,
)
from tests.support.answers import Answer
from tests.support.api_support import Api, problem

pytestmark = pytest.mark.django_db(transaction=True)
FIELDS = form_fields(
    "name *", "phone *", "email", "message", "budget: Your budget", "test_drive: A test drive"
)
HOUR = timedelta(hours=1)
SCOPES = ("leads:write", "leads:read")


@pytest.fixture
def api(work_redis: object, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Api]:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    yield Api()
    keys.forget()


@pytest.fixture
def page(api: Api) -> LandingPage:
    return landing_page(api.biz(), form_fields=FIELDS)


@pytest.fixture
def caller(api: Api, page: LandingPage) -> Caller:
    return Caller(api, api.key(*SCOPES, biz=page.biz)[1])


def lead(page: LandingPage, **more: Any) -> dict[str, Any]:
    return {"appkey": page.appkey, **WANG, **more}


def wrong(response: Answer, field: str, *words: str) -> None:
    (error,) = problem(response, 400, "invalid-input")["errors"]
    assert error["field"] == field, error
    assert all(word in error["message"] for word in words), error
    assert not stored()


class TestStore:
    def test_one(self, caller: Caller, page: LandingPage) -> None:
        extra = {"email": "wang@example.com", "budget": 200000, "test_drive": True, "message": ""}
        response = caller.post(lead(page, uid="u-7", extra=extra))
        assert response.status_code == 202, response.content
        (row,) = stored()
        assert response.json() == {"outcome": "created", "id": str(row.pk)}
        assert (row.biz, row.appkey, row.uid) == (page.biz, page.appkey, "u-7")
        assert (row.name, row.phone) == ("王小明", "13800000000")
        assert row.extra == {"email": "wang@example.com", "budget": 200000, "test_drive": True}
        assert (row.is_delete, row.version) == (False, 1)

    @pytest.mark.parametrize("where", ["body", "header"])
    def test_a_repeat_is_the_same_lead(self, caller: Caller, page: LandingPage, where: str) -> None:
        def post(**more: Any) -> Answer:
            if where == "body":
                return caller.post(lead(page, idempotency_key="k1", **more))
            return caller.post(lead(page, **more), HTTP_IDEMPOTENCY_KEY="k1")

        first, second = post(), post()
        assert (first.status_code, second.status_code) == (202, 200)
        assert second.json() == {"outcome": "duplicate", "id": first.json()["id"]}
        problem(post(uid="other"), 409, "conflict")
        assert [row.version for row in stored()] == [1]

    def test_a_repeat_after_the_page_has_changed(self, caller: Caller, page: LandingPage) -> None:
        """What was stored once is not refused later: the caller would take it for lost."""
        body = lead(page, uid="u", extra={"budget": "5"}, idempotency_key="k1")
        first = caller.post(body)
        changes: list[dict[str, Any]] = [
            {"form_fields": form_fields("name *", "phone *", "budget: Your budget", "email *")},
            {"form_fields": form_fields("name *")},
            {"enabled": False},
        ]
        for change in changes:
            LandingPage.objects.update(**change)
            again = caller.post(body)
            assert again.status_code == 200, again.content
            assert again.json() == {"outcome": "duplicate", "id": first.json()["id"]}
            problem(caller.post({**body, "uid": "other"}), 409, "conflict")
            problem(caller.post({**body, "idempotency_key": "k2"}), 400, "invalid-input")
            problem(caller.post({**body, "phone": "12"}), 400, "invalid-input")
        assert len(stored()) == 1

    def test_a_key_of_another_system_is_unknown(
        self, api: Api, caller: Caller, page: LandingPage
    ) -> None:
        body = lead(page, idempotency_key="k1")
        assert caller.post(body).status_code == 202
        other = Caller(api, api.key(*SCOPES)[1])
        (error,) = problem(other.post(body), 400, "invalid-input")["errors"]
        assert error["field"] == "appkey"

    def test_many_repeats_after_the_page_has_changed(
        self, caller: Caller, page: LandingPage
    ) -> None:
        def send(leads: list[dict[str, Any]]) -> list[dict[str, Any]]:
            response = caller.send("POST", f"{LEADS}/batch", {"leads": leads})
            assert response.status_code == 200, response.content
            results: list[dict[str, Any]] = response.json()["results"]
            return results

        second = landing_page(page.biz, "ad-2")
        leads = [lead(page, uid=str(n), idempotency_key=f"k{n}") for n in range(120)]
        first = send(leads)
        LandingPage.objects.filter(appkey=page.appkey).update(enabled=False)
        more = [lead(second, idempotency_key="k120"), lead(page, idempotency_key="k121"),
                {**leads[7], "name": "another"}, lead(page)]  # fmt: skip
        results = send([*more, *leads])
        assert [(each["outcome"], each.get("code")) for each in results[:4]] == [
            ("created", None), ("rejected", "invalid"), ("rejected", "conflict"),
            ("rejected", "invalid"),
        ]  # fmt: skip
        assert results[1]["field"] == "appkey"
        assert results[4:] == [{"outcome": "duplicate", "id": each["id"]} for each in first]
        assert {each["outcome"] for each in send(leads)} == {"duplicate"}

    def test_without_a_key_each_is_a_lead(self, caller: Caller, page: LandingPage) -> None:
        assert [caller.post(lead(page)).status_code for _ in range(2)] == [202, 202]
        assert len(stored()) == 2

    def test_many(self, caller: Caller, page: LandingPage) -> None:
        leads = [
            lead(page, idempotency_key="a"),
            lead(page, idempotency_key="a"),
            lead(page, phone="1"),
            {**WANG, "appkey": "nobody"},
            {"appkey": page.appkey, "name": 5},
            lead(page, extra={"shoe_size": 43}),
            lead(page, name="李"),
        ]
        response = caller.send("POST", f"{LEADS}/batch", {"leads": leads})
        assert response.status_code == 200, response.content
        results = response.json()["results"]
        assert [each["outcome"] for each in results] == [
            "created", "duplicate", "rejected", "rejected", "rejected", "rejected", "created"
        ]  # fmt: skip
        assert [each.get("field") for each in results[2:6]] == [
            "phone", "appkey", "name", "extra.shoe_size"
        ]  # fmt: skip
        assert len(stored()) == 2


class TestWrong:
    @pytest.mark.parametrize(
        ("more", "field", "words"),
        [
            ({"appkey": "nobody"}, "appkey", ["no landing page"]),
            ({"name": None}, "name", ["fill this in"]),
            ({"name": "  "}, "name", ["fill this in"]),
            ({"name": "x" * 101}, "name", ["at most 100", "101"]),
            ({"name": "a\x00b"}, "name", ["control"]),
            ({"name": 7}, "name", ["str"]),
            ({"phone": "12345"}, "phone", ["13800000000"]),
            ({"phone": "1380000000"}, "phone", ["13800000000"]),
            ({"phone": "call me"}, "phone", ["13800000000"]),
            ({"phone": "1" * 33}, "phone", ["at most 32"]),
            ({"uid": "u" * 65}, "uid", ["at most 64"]),
            ({"extra": {"email": "wang"}}, "extra.email", ["name@example.com"]),
            ({"extra": {"budget": "x" * 501}}, "extra.budget", ["at most 500"]),
            ({"extra": {"shoe_size": 43}}, "extra.shoe_size", ["no such field", "extra.budget"]),
            ({"extra": {"phone": "13800000001"}}, "extra.phone", ["no such field"]),
            ({"extra": {"budget": [1]}}, "extra[...]", ["array"]),
            ({"extra": {"budget": 10**15}}, "extra.budget", ["at most 15 digits"]),
            ({"extra": {"budget": -(10**4000)}}, "extra.budget", ["at most 15 digits"]),
            ({"extra": {"budget": 1e300}}, "extra.budget", ["at most 15 digits"]),
            ({"extra": []}, "extra", ["object"]),
            ({"colour": "red"}, "colour", ["no such field"]),
            ({"idempotency_key": "with blanks"}, "idempotency_key", ["ASCII"]),
        ],
    )
    def test_the_field_is_named(
        self, caller: Caller, page: LandingPage, more: Any, field: str, words: list[str]
    ) -> None:
        wrong(caller.post(lead(page, **more)), field, *words)

    def test_missing(self, caller: Caller, page: LandingPage) -> None:
        wrong(caller.post(WANG), "appkey", "required")
        wrong(caller.post({"appkey": page.appkey, "name": "Li"}), "phone", "fill this in")

    def test_a_page_that_does_not_ask_for_a_column(self, caller: Caller, page: LandingPage) -> None:
        landing_page(page.biz, "short", form_fields=form_fields("phone *"))
        wrong(caller.post({"appkey": "short", **WANG}), "name", "no such field", "phone")

    def test_somebody_elses_page(self, caller: Caller, api: Api) -> None:
        landing_page(api.biz(), "theirs")
        wrong(caller.post({"appkey": "theirs", **WANG}), "appkey", "no landing page")

    def test_a_page_that_is_switched_off(self, caller: Caller, page: LandingPage) -> None:
        LandingPage.objects.update(enabled=False)
        wrong(caller.post(lead(page)), "appkey", "switched off")

    def test_a_body_that_is_too_large(self, caller: Caller, page: LandingPage) -> None:
        problem(caller.post(lead(page, name="x" * 300_000)), 413, "body-too-large")

    def test_scopes(self, api: Api, page: LandingPage) -> None:
        reader = Caller(api, api.key("leads:read", biz=page.biz)[1])
        writer = Caller(api, api.key("leads:write", biz=page.biz)[1])
        problem(reader.post(lead(page)), 403, "missing-scope")
        problem(writer.get(), 403, "missing-scope")
        for method in ("PUT", "PATCH", "DELETE"):
            problem(reader.send(method, f"{LEADS}/1", {}), 403, "missing-scope")
        problem(Caller(api).post(lead(page)), 401, "unauthenticated")
        problem(reader.send("OPTIONS", LEADS), 405, "method-not-allowed")


@pytest.fixture
def kept(caller: Caller, page: LandingPage) -> str:
    """The address of a stored lead."""
    response = caller.post(lead(page, uid="u", extra={"email": "w@example.com", "budget": "5"}))
    return f"{LEADS}/{response.json()['id']}"


class TestRead:
    def test_one(self, caller: Caller, page: LandingPage, kept: str) -> None:
        response = caller.get(kept)
        found = response.json()
        created, updated = (
            datetime.fromisoformat(found.pop(name)) for name in ("created_at", "updated_at")
        )
        assert found == {
            "id": kept.rpartition("/")[2], "appkey": page.appkey, "uid": "u", "name": "王小明",
            "phone": "13800000000", "extra": {"email": "w@example.com", "budget": "5"},
            "deleted": False, "version": 1,
        }  # fmt: skip
        assert abs(updated - created) < timedelta(minutes=5)

    def test_another_system_sees_nothing(self, api: Api, kept: str) -> None:
        other = Caller(api, api.key(*SCOPES)[1])
        assert other.get().json()["results"] == []
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            problem(other.send(method, kept, None if method == "GET" else {}), 404, "not-found")
        assert [row.version for row in stored()] == [1]

    def test_filters(
        self, caller: Caller, page: LandingPage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        landing_page(page.biz, "ad-2")
        for number, appkey in enumerate(["ad-1", "ad-1", "ad-2"]):
            body = {
                "appkey": appkey,
                "uid": f"u{number}",
                "name": "A",
                "phone": f"1380000000{number}",
            }
            assert caller.post(body).status_code == 202

        def uids(**parameters: str) -> list[str]:
            response = caller.get(**parameters)
            assert response.status_code == 200, response.content
            return [each["uid"] for each in response.json()["results"]]

        assert uids() == ["u2", "u1", "u0"]
        assert uids(appkey="ad-1") == ["u1", "u0"]
        assert uids(appkey="AD-1") == []
        assert uids(phone="138 0000 0001") == ["u1"]
        assert uids(uid="u2") == ["u2"]
        Lead.objects.filter(uid="u0").update(is_delete=True)
        assert uids(deleted="true") == ["u0"]
        assert uids(deleted="false") == ["u2", "u1"]
        before, after = ((datetime.now(UTC) + shift * HOUR).isoformat() for shift in (-1, 1))
        assert uids(since=before, until=after) == ["u2", "u1", "u0"]
        assert uids(since=after) == uids(until=before) == []

        def changed(**parameters: str) -> list[str]:
            response = caller.get(f"{LEADS}/changes", **parameters)
            assert response.status_code == 200, response.content
            return [each["uid"] for each in response.json()["results"]]

        monkeypatch.setattr(views, "_SETTLED", 2 * HOUR)
        assert changed(since=before) == [], "another transaction may still commit before these"
        monkeypatch.setattr(views, "_SETTLED", timedelta(0))
        assert changed(since=before) == ["u1", "u2", "u0"]
        assert changed(since=before, deleted="false", appkey="ad-1") == ["u1"]
        assert changed(since=before, phone="138 0000 0002") == ["u2"]
        assert changed(since=after) == []

    @pytest.mark.parametrize(
        "parameters",
        [{"since": "yesterday"}, {"phone": "x"}, {"deleted": "perhaps"}, {"updated_since": "1"},
         {"crm": "nowhere"}, {"policy": "7"}, {"rows": "records"}, {"state": "lost"}],
    )  # fmt: skip
    def test_a_wrong_filter(self, caller: Caller, parameters: dict[str, str]) -> None:
        wrong(caller.get(**parameters), *parameters)

    @pytest.mark.parametrize("parameters", [{}, {"since": ""}, {"since": "yesterday"}])
    def test_changes_begin_somewhere(self, caller: Caller, parameters: dict[str, str]) -> None:
        wrong(caller.get(f"{LEADS}/changes", **parameters), "since")

    def test_leads_by_their_state_at_a_crm(
        self, caller: Caller, api: Api, page: LandingPage
    ) -> None:
        """A key finds its own leads, and nothing out about the CRMs of others."""
        caller.send(
            "POST", f"{LEADS}/batch", {"leads": [lead(page, uid=f"u{n}") for n in range(3)]}
        )
        policy = sync_support.hive("sales", biz=page.biz)
        others = sync_support.hive("elsewhere", biz=api.biz())
        for kept in Lead.objects.all():
            state = Record.State.DEAD if kept.uid == "u1" else Record.State.CONFIRMED
            one = recovery_steps.request(policy.key_prefix + str(kept.pk))
            recovery_steps.record(
                sync_support.new_operation(policy, [one]), one, state, key=str(kept.pk),
                remote_id=f"r-{kept.uid}",
                error_class="invalid" if kept.uid == "u1" else "",
            )  # fmt: skip

        def uids(**parameters: str) -> list[str]:
            response = caller.get(**parameters)
            assert response.status_code == 200, response.content
            return [each["uid"] for each in response.json()["results"]]

        assert uids(crm="sales") == ["u2", "u1", "u0"]
        assert uids(state="dead") == uids(error_class="invalid") == uids(remote_id="r-u1") == ["u1"]
        assert uids(state="confirmed", crm="sales", policy=str(policy.pk)) == ["u2", "u0"]
        assert uids(state="dead", uid="u0") == uids(error_class="auth") == []
        stranger = Caller(api, api.key(*SCOPES)[1])
        assert stranger.get(state="dead").json()["results"] == []
        for who, name, value in (
            (stranger, "crm", "sales"), (caller, "crm", "elsewhere"), (caller, "crm", "nowhere"),
            (caller, "policy", "hive/elsewhere"), (caller, "policy", str(others.pk)),
        ):  # fmt: skip
            (error,) = problem(who.get(**{name: value}), 400, "invalid-input")["errors"]
            assert error["field"] == name
            assert error["message"].startswith("there is no ")

    @pytest.mark.parametrize("since", [{}, {"since": "2026-01-01T00:00:00Z"}])
    def test_pages(
        self,
        caller: Caller,
        page: LandingPage,
        since: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Ties of UpdateTime within a batch neither hide nor repeat a lead."""
        leads = [lead(page, uid=str(number)) for number in range(25)]
        caller.send("POST", f"{LEADS}/batch", {"leads": leads})
        monkeypatch.setattr(views, "_SETTLED", timedelta(0))
        seen, address = [], f"{LEADS}/changes" if since else LEADS
        response = caller.get(address, limit="10", **since)
        while True:
            body = response.json()
            seen += [int(each["uid"]) for each in body["results"]]
            address = body["next"]
            if not address:
                break
            response = caller.get(address)
        assert sorted(seen) == list(range(25))
        assert seen == sorted(seen, reverse=not since)


class TestChange:
    def test_patch(self, caller: Caller, kept: str) -> None:
        response = caller.send(
            "PATCH", kept, {"name": "李", "extra": {"email": None, "message": "嗨"}}
        )
        assert response.status_code == 200, response.content
        found = response.json()
        assert (found["name"], found["phone"], found["uid"]) == ("李", "13800000000", "u")
        assert found["extra"] == {"budget": "5", "message": "嗨"}
        assert found["version"] > 1
        (row,) = stored()
        assert row.extra == found["extra"]

    def test_patch_keeps_what_the_page_no_longer_asks_for(
        self, caller: Caller, page: LandingPage, kept: str
    ) -> None:
        LandingPage.objects.update(form_fields=form_fields("name *", "phone *", "email"))
        response = caller.send("PATCH", kept, {"extra": {"email": "n@example.com"}})
        assert response.json()["extra"] == {"email": "n@example.com", "budget": "5"}

    def test_patch_takes_everything_away(
        self, caller: Caller, page: LandingPage, kept: str
    ) -> None:
        """As in RFC 7396: null for `extra`, whatever the page asks for now."""
        LandingPage.objects.update(form_fields=form_fields("name *", "phone *", "email"))
        versions = set()
        for _ in range(2):  # there is nothing left for the second one
            response = caller.send("PATCH", kept, {"extra": None})
            assert response.status_code == 200, response.content
            found = response.json()
            assert (found["extra"], found["name"]) == ({}, "王小明")
            versions.add(found["version"])
        assert len(versions) == 1
        assert [row.extra for row in stored()] == [{}]

    @pytest.mark.parametrize("nothing", [None, ""])
    def test_patch_takes_away_a_column_that_the_page_no_longer_asks_for(
        self, caller: Caller, page: LandingPage, kept: str, nothing: str | None
    ) -> None:
        LandingPage.objects.update(form_fields=form_fields("name *", "email", "budget: Budget"))
        found = caller.send("PATCH", kept, {"phone": nothing}).json()
        assert (found["phone"], found["name"]) == ("", "王小明")
        assert caller.send("PATCH", kept, {"phone": nothing}).json() == found
        refused = caller.send("PATCH", kept, {"phone": "13900000000"})
        assert problem(refused, 400, "invalid-input")["errors"][0]["field"] == "phone"

    def test_patch_takes_away_what_the_page_no_longer_asks_for(
        self, caller: Caller, page: LandingPage, kept: str
    ) -> None:
        LandingPage.objects.update(form_fields=form_fields("name *", "phone *", "email"))
        response = caller.send("PATCH", kept, {"extra": {"budget": None}})
        assert response.status_code == 200, response.content
        assert response.json()["extra"] == {"email": "w@example.com"}
        # Who got no answer sends it again.
        again = caller.send("PATCH", kept, {"extra": {"budget": None}})
        assert again.json() == response.json()

    def test_patch_takes_nothing_away_that_is_required(
        self, caller: Caller, page: LandingPage, kept: str
    ) -> None:
        LandingPage.objects.update(form_fields=form_fields("name *", "phone *", "email *"))
        for extra in (None, {"email": None}):
            refused = caller.send("PATCH", kept, {"extra": extra})
            assert problem(refused, 400, "invalid-input")["errors"][0]["field"] == "extra.email"
        assert [row.version for row in stored()] == [1]

    def test_patch_with_nothing_changes_nothing(self, caller: Caller, kept: str) -> None:
        assert caller.send("PATCH", kept, {}).json()["version"] == 1

    def test_put(self, caller: Caller, page: LandingPage, kept: str) -> None:
        body = {"appkey": page.appkey, "name": "李", "phone": "+44 20 7946 0000"}
        found = caller.send("PUT", kept, body).json()
        assert (found["name"], found["phone"], found["uid"], found["extra"]) == (
            "李", "+442079460000", "", {}
        )  # fmt: skip
        assert found["version"] > 1

    @pytest.mark.parametrize(
        ("method", "body", "field"),
        [
            ("PATCH", {"phone": ""}, "phone"),
            ("PATCH", {"phone": "x"}, "phone"),
            ("PATCH", {"extra": {"shoe_size": 1}}, "extra.shoe_size"),
            ("PATCH", {"appkey": "ad-2"}, "appkey"),
            ("PATCH", {"version": 3}, "version"),
            ("PUT", {"name": "李"}, "phone"),
        ],
    )
    def test_wrong(
        self, caller: Caller, kept: str, method: str, body: dict[str, Any], field: str
    ) -> None:
        (error,) = problem(caller.send(method, kept, body), 400, "invalid-input")["errors"]
        assert error["field"] == field
        assert [row.version for row in stored()] == [1]

    def test_delete(self, caller: Caller, kept: str) -> None:
        for _ in range(2):
            response = caller.send("DELETE", kept)
            assert (response.status_code, response.content) == (204, b"")
        (row,) = stored()
        assert (row.is_delete, row.name) == (True, "王小明")
        assert row.version > 1
        assert caller.get(kept).json()["deleted"] is True
        for method in ("PUT", "PATCH"):
            assert "deleted" in problem(caller.send(method, kept, {}), 404, "not-found")["detail"]
