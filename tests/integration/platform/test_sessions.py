"""Sessions are listed and ended by their owner, and by an administrator."""

from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from msgplatform import roles
from msgplatform.doors.api.access import throttling
from msgplatform.models import AuditLog
from tests.support.management import Manager

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
PASSWORD = "a long enough one"
PAGE = "/console/sessions"


@pytest.fixture(autouse=True)
def anna(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_superuser("anna", password=PASSWORD)


def signed_in(name: str = "anna", browser: str = "Firefox", address: str = "10.0.0.1") -> Client:
    client = Client(headers={"User-Agent": browser}, REMOTE_ADDR=address)
    client.post("/admin/login/", {"username": name, "password": PASSWORD})
    assert client.get("/console/search").status_code == 200
    return client


def is_in(client: Client) -> bool:
    return client.get("/console/search").status_code == 200


def test_a_person_sees_and_ends_their_own() -> None:
    here, there, third = signed_in(), signed_in(browser="<b>Edge", address="10.0.0.2"), signed_in()
    page = here.get(PAGE).content.decode()
    assert page.count("this one") == 1
    assert "10.0.0.2" in page
    assert "&lt;b&gt;Edge" in page
    row = UserSession.objects.get(user_agent="<b>Edge")
    done = here.post(PAGE, {"session": row.pk}, follow=True).content.decode()
    assert "1 session is ended" in done
    assert [is_in(each) for each in (here, there, third)] == [True, False, True]
    here.post(PAGE, {"session": "all"})
    assert [is_in(each) for each in (here, third)] == [True, False]
    entry = AuditLog.objects.filter(action="session_ended").earliest("pk")
    assert (entry.actor, entry.target) == ("anna", "anna")
    assert entry.detail == {"address": "10.0.0.2", "browser": "<b>Edge"}
    assert AuditLog.objects.filter(action="session_ended").count() == 2


def test_a_session_of_somebody_else_is_not_ended_by_its_number() -> None:
    User.objects.create_superuser("berta", password=PASSWORD)
    here, other = signed_in(), signed_in("berta")
    row = UserSession.objects.get(user__username="berta")
    for id in (str(row.pk), "x", "", "9" * 30):
        text = here.post(PAGE, {"session": id}, follow=True).content.decode()
        assert "There was no such session any more" in text
    assert is_in(other)


def test_an_administrator_ends_those_of_others(anna: User) -> None:
    boss = signed_in()
    vera = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    roles.make()  # a test before may have emptied the tables
    vera.groups.add(Group.objects.get(role__name="viewer"))
    theirs = signed_in("vera")
    address = f"/console/people/{vera.pk}/sessions"
    assert "End all" in boss.get(address).content.decode()
    boss.post(address, {"session": "all"})
    assert not is_in(theirs)
    assert AuditLog.objects.get(action="session_ended").target == "vera"
    assert "Nobody is signed in with this account" in boss.get(address).content.decode()
    theirs = signed_in("vera")
    assert theirs.get(f"/console/people/{anna.pk}/sessions").status_code == 403
    assert theirs.post(f"/console/people/{anna.pk}/second-factors").status_code == 403
    assert boss.get(f"/console/people/{anna.pk}/sessions")["Location"] == PAGE
    assert boss.get("/console/people/999999/sessions").status_code == 404


def test_a_person_who_is_disabled_and_enabled_has_no_old_session() -> None:
    vera = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    roles.make()
    vera.groups.add(Group.objects.get(role__name="viewer"))
    theirs, manager = signed_in("vera"), Manager("manage:people")
    for is_enabled in (False, True):
        body = {"enabled": is_enabled, "groups": ["Viewer"]}
        assert manager.send("PUT", "people/vera", body).status_code == 200
    assert not is_in(theirs)
    assert is_in(signed_in("vera"))


def test_a_new_password_ends_the_other_sessions() -> None:
    here, there = signed_in(), signed_in(browser="Edge")
    entry = {"old_password": PASSWORD, "new_password1": "another long one",
             "new_password2": "another long one"}  # fmt: skip
    assert here.post("/admin/password_change/", entry).status_code == 302
    assert [is_in(each) for each in (here, there)] == [True, False]
    assert here.get(PAGE).content.decode().count("this one") == 1
    assert UserSession.objects.count() == 1


def test_a_logout_takes_the_session_from_the_list() -> None:
    here, there = signed_in(), signed_in(browser="Edge")
    there.post("/admin/logout/")
    assert "Edge" not in here.get(PAGE).content.decode()


def test_a_session_in_use_ends_all_the_same() -> None:
    here = signed_in()
    key = here.session.session_key
    ends_at = Session.objects.get(pk=key).expire_date
    assert timedelta(hours=11) < ends_at - timezone.now() <= timedelta(hours=12)
    session = here.session
    session["seen_at"] = 0.0
    session.save()
    assert is_in(here)
    assert here.session["seen_at"] > 0, "stored once more"
    assert Session.objects.get(pk=key).expire_date == ends_at


def test_a_request_in_five_minutes_writes(django_assert_num_queries: object) -> None:
    here = signed_in()
    before = UserSession.objects.get().last_seen_at
    here.get("/console/search")
    assert UserSession.objects.get().last_seen_at == before
    session = here.session
    session["seen_at"] = 0.0
    session.save()
    here.get("/console/search")
    assert UserSession.objects.get().last_seen_at > before
