"""The superuser that `up` makes where nobody can log in, and what `doctor` says of it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from msgplatform import doctor
from msgplatform.models import OneTimePassword
from msgplatform.supervision import first_user
from tests.integration.support.lock_waits import until_somebody_waits

pytestmark = pytest.mark.django_db(transaction=True)
User = get_user_model()
CHOOSE = "/console/password"


def test_a_user_who_may_do_everything() -> None:
    shown: list[str] = []
    assert first_user.make(shown.append)
    (user,) = User.objects.all()
    assert OneTimePassword.objects.get().user == user
    assert (user.username, user.is_superuser, user.is_staff) == ("admin", True, True)
    assert user.check_password(*shown)
    assert len(shown[0]) >= 16


def test_never_when_there_is_a_user() -> None:
    User.objects.create_user("somebody", is_active=False)
    assert not first_user.make(pytest.fail)
    assert User.objects.count() == 1


def test_no_user_whose_password_nobody_has_seen() -> None:
    def terminal_is_gone(password: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        first_user.make(terminal_is_gone)
    assert not User.objects.exists()


def test_two_machines_at_once_make_one_user() -> None:
    shown: list[str] = []
    others: list[Future[bool]] = []
    with ThreadPoolExecutor() as pool:

        def show(password: str) -> None:
            """The other machine begins before this one has committed."""
            shown.append(password)
            others.append(pool.submit(first_user.make, shown.append))
            until_somebody_waits()

        assert first_user.make(show)
        assert others[0].result(timeout=60) is False
    assert User.objects.get().check_password(*shown)


@pytest.mark.usefixtures("work_redis", "sms_redis")
class TestFirstLogin:
    """Nothing opens before its user has chosen a password of their own."""

    OWN = "violet umbrella 7"

    @pytest.fixture
    def password(self) -> str:
        shown: list[str] = []
        first_user.make(shown.append)
        return shown[0]

    def logged_in(self, password: str) -> Client:
        browser = Client()
        form = {"username": first_user.NAME, "password": password}
        answer = browser.post("/admin/login/?next=/console/", form)
        assert (answer.status_code, answer["Location"]) == (302, "/console/")
        return browser

    def choose(self, browser: Client, password: str) -> Any:
        form = {"new_password1": password, "new_password2": password}
        return browser.post(CHOOSE, form)

    @pytest.mark.parametrize(
        "path",
        ["/console/", "/console/search", "/admin/", "/admin/auth/user/", "/admin/password_change/",
         "/django-rq/", "/nothing", "/console/notify/1/content"],
    )  # fmt: skip
    def test_every_page_leads_to_the_choice(self, password: str, path: str) -> None:
        browser = self.logged_in(password)
        for answer in (browser.get(path), browser.post(path, {"action": "anything"})):
            assert (answer.status_code, answer["Location"]) == (302, CHOOSE)
        assert browser.get(CHOOSE).status_code == 200

    def test_one_of_their_own_opens_everything(self, password: str) -> None:
        browser, other = self.logged_in(password), self.logged_in(password)
        for refused in (password, "12345678", "short"):
            answer = self.choose(browser, refused)
            assert answer.status_code == 200
            assert answer.context["form"].errors["new_password2"]
        answer = self.choose(browser, self.OWN)
        assert (answer.status_code, answer["Location"]) == (302, "/console/")
        assert browser.get("/console/").status_code == 200
        assert not OneTimePassword.objects.exists()
        # The page is no way to change a password without the old one.
        assert self.choose(browser, "another umbrella 8")["Location"] == "/console/"
        assert User.objects.get().check_password(self.OWN)
        # Whoever logged in with the one-time password meanwhile is out.
        assert "/admin/login/" in other.get("/console/", follow=True).redirect_chain[-1][0]
        assert self.logged_in(self.OWN).get("/console/").status_code == 200

    def test_the_way_out(self, password: str) -> None:
        browser = self.logged_in(password)
        assert browser.post("/admin/logout/").status_code == 200
        assert "/admin/login/" in browser.get("/console/", follow=True).redirect_chain[-1][0]
        assert "/admin/login/" in Client().get(CHOOSE)["Location"]

    def test_a_change_on_the_command_line_ends_it(self, password: str) -> None:
        user = User.objects.get()
        user.set_password(self.OWN)
        user.save()
        assert self.logged_in(self.OWN).get("/console/").status_code == 200

    def test_others_are_not_asked(self, password: str) -> None:
        browser = Client()
        browser.force_login(User.objects.create_superuser("chief"))
        assert browser.get("/console/").status_code == 200
        assert browser.get("/admin/password_change/").status_code == 200
        assert browser.get(CHOOSE)["Location"] == "/console/"


def said_of_users() -> list[tuple[str, str]]:
    return [(f.what, f.repair) for f in doctor.examine() if "log in" in f.what]


@pytest.mark.usefixtures("work_redis", "sms_redis")
def test_doctor_says_that_nobody_can_log_in() -> None:
    ((what, repair),) = said_of_users()
    assert what == "nobody can log in: there is no user"
    assert "`up` creates one" in repair
    assert "manage.py createsuperuser" in repair
    User.objects.create_user("somebody")
    ((what, repair),) = said_of_users()
    assert what == "nobody can log in: no user is active and staff"
    assert "`up`" not in repair
    User.objects.update(is_staff=True)
    assert said_of_users() == []
