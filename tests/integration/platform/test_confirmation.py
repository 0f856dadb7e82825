"""What needs a recent proof of who somebody is asks for one: the password, of people without a
second factor."""

import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from msgplatform.company.signing_in import login
from msgplatform.doors.api.access import throttling
from msgplatform.models import ApiKey, Biz
from notify import operations
from notify.models import Receive

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
PASSWORD = "a long enough one"
USERS = "/admin/auth/user/"
ADD = f"{USERS}add/"


@pytest.fixture(autouse=True)
def quick_hashes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def anna() -> Client:
    """Signed in by the form, an hour ago."""
    User.objects.create_superuser("anna", password=PASSWORD)
    client = Client()
    entry = {"username": "anna", "password": PASSWORD}
    assert client.post("/admin/login/?next=/console/preferences", entry)["Location"] == (
        "/console/preferences"
    )
    age(client)
    return client


def age(client: Client) -> None:
    session = client.session
    session["confirmed_at"] = time.time() - 3600
    session.save()


def confirm(client: Client, url: str, password: str = PASSWORD) -> Any:
    """Follow the redirect to the page that asks, and send the password."""
    page = client.get(url)
    assert page.status_code == 302
    assert page["Location"].startswith("/console/sign-in/password?next=")
    return client.post(page["Location"], {"password": password})


def test_a_login_is_a_proof() -> None:
    User.objects.create_superuser("anna", password=PASSWORD)
    client = Client()
    client.post("/admin/login/", {"username": "anna", "password": PASSWORD})
    assert client.get(ADD).status_code == 200


def test_a_form_asks_and_leads_back(anna: Client) -> None:
    asked = anna.get(f"{ADD}?next=/console/")
    assert (
        asked["Location"]
        == "/console/confirm?next=%2Fadmin%2Fauth%2Fuser%2Fadd%2F%3Fnext%3D%2Fconsole%2F"
    )
    answer = confirm(anna, asked["Location"])
    assert answer["Location"] == f"{ADD}?next=/console/"
    assert anna.get(answer["Location"]).status_code == 200


def test_what_was_sent_too_late_is_not_done(anna: Client) -> None:
    entry = {"username": "berta", "password1": PASSWORD, "password2": PASSWORD}
    asked = anna.post(ADD, entry, headers={"Referer": f"http://testserver{ADD}"})
    assert asked["Location"] == "/console/confirm?next=%2Fadmin%2Fauth%2Fuser%2Fadd%2F"
    assert not User.objects.filter(username="berta").exists()
    assert "Nothing was done yet" in anna.get(asked["Location"], follow=True).content.decode()
    ids = {"action": "delete_selected", "_selected_action": "1", "post": "yes"}
    assert anna.post(USERS, ids)["Location"].startswith("/console/confirm")
    assert User.objects.count() == 1


def test_every_form_of_people_asks(anna: Client) -> None:
    key = User.objects.get().pk
    for url in (ADD, f"{USERS}{key}/change/", f"{USERS}{key}/delete/", f"{USERS}{key}/password/",
                "/admin/auth/group/add/"):  # fmt: skip
        assert anna.get(url)["Location"].startswith("/console/confirm"), url
    assert anna.get(USERS).status_code == 200


@pytest.mark.parametrize("page", ["msgplatform/apikey/add/", "notify/receive/add/"])
def test_no_secret_is_made_before_the_proof(anna: Client, page: str) -> None:
    shop = Biz.objects.create(name="shop")
    entry = {
        "biz": shop.pk, "name": "till", "scopes": ["events:write"],
        "url": "https://till.example.com/", "delivery": "push", "header_prefix": "webhook",
    }  # fmt: skip
    address = f"/admin/{page}"
    asked = anna.post(address, entry, headers={"Referer": f"http://testserver{address}"})
    assert (ApiKey.objects.count(), Receive.objects.count()) == (0, 0)
    answer = confirm(anna, asked["Location"])
    assert answer["Location"] == address
    made = anna.post(address, entry)
    shown = anna.get(made["Location"])
    assert shown.context["secret"] in shown.content.decode()


def test_no_secret_is_replaced_before_the_proof(anna: Client) -> None:
    consumer = Receive.objects.create(name="till", url="https://till.example.com/")
    address = f"/admin/notify/receive/{consumer.pk}/rotate/"
    form = {"hours": 0, "seen": operations.secret_mark(consumer)}
    asked = anna.post(address, form, headers={"Referer": f"http://testserver{address}"})
    assert Receive.objects.get().secret == consumer.secret
    answer = confirm(anna, asked["Location"])
    assert answer["Location"] == address
    made = anna.post(address, form)
    assert anna.get(made["Location"]).context["secret"] == Receive.objects.get().secret


def test_guesses_are_counted_with_those_at_the_login(anna: Client) -> None:
    asked = anna.get(ADD)["Location"]
    for _ in range(login.WRONG_FOR_NAME_AND_ADDRESS):
        assert "This is not your password" in confirm(anna, asked, "wrong").content.decode()
    assert "Too many wrong passwords" in confirm(anna, asked).content.decode()
    entry = {"username": "anna", "password": PASSWORD}
    assert "Too many wrong passwords" in Client().post("/admin/login/", entry).content.decode()


def test_nobody_is_led_away(anna: Client) -> None:
    for url in ("https://evil.example/", "//evil.example/", "javascript:alert(1)"):
        page = anna.get("/console/confirm", {"next": url})
        assert page["Location"] == "/console/sign-in/password?next=%2Fconsole%2F"


def test_people_without_a_password_log_in_again(anna: Client) -> None:
    user = User.objects.get()
    user.set_unusable_password()
    user.save()
    client = Client()
    client.force_login(user)
    age(client)
    asked = client.get("/console/confirm?next=/console/preferences")
    assert asked["Location"] == "/admin/login/?next=/console/preferences"
    assert "sessionid" not in client.cookies or not client.session.get("_auth_user_id")


def test_library_pages_that_the_console_lacks(anna: Client) -> None:
    for name in ("signup", "email", "password/reset", "password/change", "login", "logout",
                 "confirm-email", "inactive"):  # fmt: skip
        assert anna.get(f"/console/sign-in/{name}/").status_code == 404
        assert anna.get(f"/accounts/{name}/").status_code == 404
