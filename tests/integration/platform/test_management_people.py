"""People over the management API: by an invitation, without passwords, and never a superuser."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from pytest_django.fixtures import Settings

from msgplatform import roles
from msgplatform.doors.api.access import keys, throttling
from msgplatform.models import AuditLog
from tests.support.api_support import problem
from tests.support.management import Manager

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
ANNA = {"first_name": "Anna", "email": "anna@example.com", "groups": ["Operator"]}


@pytest.fixture(autouse=True)
def fresh(work_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    roles.make()


@pytest.fixture
def manager() -> Manager:
    return Manager("manage:people", name="hr")


def test_a_person_comes_by_invitation_and_goes(manager: Manager) -> None:
    answer = manager.send("PUT", "people/anna", ANNA)
    assert answer.status_code == 201
    created = answer.json()
    assert (created["groups"], created["enabled"], created["has_password"]) == (
        ["Operator"], True, False,
    )  # fmt: skip
    client = Client()
    page = client.get(created["invitation"], follow=True)
    secret = "correct horse battery staple"
    chosen = {"new_password1": secret, "new_password2": secret}
    client.post(page.request["PATH_INFO"], chosen)
    assert client.get("/console/").status_code == 200
    assert client.get("/console/failures").status_code == 200
    shown = manager.send("GET", "people/anna").json()
    assert shown["has_password"]
    assert shown["last_login"]
    assert manager.send("PUT", "people/anna", shown).json() == shown
    problem(manager.send("POST", "people/anna/invite"), 409, "not-now")
    assert manager.send("DELETE", "people/anna").status_code == 204
    assert client.get("/console/").status_code == 302
    assert not Client().login(username="anna", password=secret)
    assert manager.send("DELETE", "people/anna").status_code == 204
    manager.send("PUT", "people/anna", {**ANNA, "groups": ["Viewer"]})
    assert Client().login(username="anna", password=secret)
    hash = User.objects.get().password
    actions = list(AuditLog.objects.filter(actor="hr (API key)").order_by("id").values())
    assert [entry["action"] for entry in actions] == [
        "user_created", "user_disabled", "user_changed",
    ]  # fmt: skip
    assert actions[2]["detail"]["after"] == {"groups": ["Viewer"], "is_active": True}
    assert not any(text in str([actions, shown]) for text in (secret, hash, created["invitation"]))


def test_a_lost_invitation_is_made_once_more(manager: Manager) -> None:
    manager.send("PUT", "people/anna", ANNA)
    invitation = manager.send("POST", "people/anna/invite").json()["invitation"]
    assert Client().get(invitation, follow=True).context["validlink"]
    manager.send("DELETE", "people/anna")
    problem(manager.send("POST", "people/anna/invite"), 409, "not-now")
    problem(manager.send("POST", "people/nobody/invite"), 404, "not-found")
    assert AuditLog.objects.filter(action="user_invited").count() == 1


def test_nobody_is_invited_where_the_provider_lets_people_in(
    manager: Manager, settings: Settings
) -> None:
    settings.LOCAL_PASSWORDS = False
    assert manager.send("PUT", "people/anna", ANNA).json()["invitation"] == ""
    problem(manager.send("POST", "people/anna/invite"), 409, "not-now")
    assert not AuditLog.objects.filter(action="user_invited").exists()


def test_no_key_touches_a_superuser_or_makes_one(manager: Manager) -> None:
    boss = User.objects.create_superuser("boss", password="x")
    for method, path, body in (
        ("PUT", "people/boss", {**ANNA, "enabled": False}),
        ("PUT", "people/boss", {"email": "thief@example.com"}),
        ("DELETE", "people/boss", None),
        ("POST", "people/boss/invite", None),
    ):
        problem(manager.send(method, path, body), 409, "not-now")
    for name in ("password", "is_superuser", "is_staff", "user_permissions"):
        answer = manager.send("PUT", "people/eve", {**ANNA, name: True})
        assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == name
    # It is read only, and is ignored when it is sent back.
    assert not manager.send("PUT", "people/eve", {**ANNA, "superuser": True}).json()["superuser"]
    boss.refresh_from_db()
    assert (boss.is_active, boss.email) == (True, "")
    assert manager.send("GET", "people/boss").json()["superuser"]


def test_names_are_exact(manager: Manager) -> None:
    manager.send("PUT", "people/anna", ANNA)
    answer = manager.send("PUT", "people/Anna", ANNA)
    assert "named anna" in problem(answer, 400, "invalid-input")["errors"][0]["message"]
    problem(manager.send("GET", "people/ANNA"), 404, "not-found")
    for name in ("a b", "%EF%AC%80", "x" * 151):
        problem(manager.send("PUT", f"people/{name}", ANNA), 400, "invalid-input")
    for groups in (["Nobody"], {}, {"Viewer": 1}, "Viewer", [5]):
        answer = manager.send("PUT", "people/berta", {**ANNA, "groups": groups})
        assert problem(answer, 400, "invalid-input")["errors"][0]["field"].startswith("groups")
    answer = manager.send("PUT", "people/berta", {**ANNA, "email": "nowhere"})
    assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == "email"
    assert list(User.objects.values_list("username", flat=True)) == ["anna"]


def test_roles_are_listed_with_what_they_may_do(manager: Manager) -> None:
    manager.send("PUT", "people/anna", ANNA)
    own = Group.objects.create(name="support")
    own.permissions.add(Permission.objects.get(codename="view_bizmsg"))
    results = {each["name"]: each for each in manager.send("GET", "roles").json()["results"]}
    assert results["support"] == {
        "name": "support", "role": "", "people": 0, "permissions": ["notify.view_bizmsg"],
    }  # fmt: skip
    assert (results["Operator"]["role"], results["Operator"]["people"]) == ("operator", 1)


def test_of_two_at_once_the_second_learns_what_differs(manager: Manager) -> None:
    manager.send("PUT", "people/anna", ANNA)
    read = manager.send("GET", "people/anna").headers["ETag"]
    manager.send("PUT", "people/anna", {**ANNA, "groups": []})
    answer = manager.send("PUT", "people/anna", ANNA, if_match=read)
    assert problem(answer, 412, "changed")["differences"] == {
        "groups": {"stored": [], "sent": ["Operator"]}
    }
