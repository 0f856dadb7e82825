"""The superuser that `up` makes where nobody can log in, and what `doctor` says of it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from msgplatform.models import AuditLog
from msgplatform.operation import doctor
from msgplatform.operation.supervision import preparation

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
User = get_user_model()


def test_a_user_who_may_do_everything() -> None:
    assert preparation.first_login_link().startswith("/console/password/")
    (user,) = User.objects.all()
    assert (user.username, user.is_superuser, user.is_staff) == ("admin", True, True)
    assert not user.has_usable_password()


def test_never_when_there_is_a_user() -> None:
    User.objects.create_user("somebody", is_active=False)
    assert preparation.first_login_link() == ""
    assert User.objects.count() == 1


def test_a_new_link_as_long_as_there_is_no_password() -> None:
    assert preparation.first_login_link()
    assert preparation.first_login_link()
    user = User.objects.get()
    user.set_password("violet umbrella 7")
    user.save()
    assert preparation.first_login_link() == ""


def test_an_administrator_whose_password_was_taken_away_gets_none() -> None:
    """Somebody has decided that; only a user who was never there is let in."""
    user = User.objects.create_superuser("admin", password="violet umbrella 7")
    user.set_unusable_password()
    user.last_login = timezone.now()
    user.save()
    assert preparation.first_login_link() == ""


def test_without_local_passwords_there_is_no_page_to_choose_one(settings: Any) -> None:
    settings.LOCAL_PASSWORDS = False
    assert preparation.first_login_link() == ""
    assert User.objects.get().is_superuser, "`login_link` lets in"


def test_two_machines_at_once_make_one_user() -> None:
    with ThreadPoolExecutor(8) as pool:
        links = list(pool.map(lambda _: preparation.first_login_link(), range(8)))
    assert all(links)
    assert User.objects.count() == 1


@pytest.mark.usefixtures("work_redis", "sms_redis")
class TestLink:
    OWN = "violet umbrella 7"

    @pytest.fixture
    def link(self) -> str:
        return preparation.first_login_link()

    def opened(self, link: str) -> tuple[Client, str]:
        """The browser, and the page without the token."""
        browser = Client()
        answer = browser.get(link)
        assert answer.status_code == 302
        assert "token" not in answer["Location"]
        return browser, answer["Location"]

    def choose(self, browser: Client, page: str, password: str) -> Any:
        form = {"new_password1": password, "new_password2": password}
        return browser.post(page, form)

    def test_a_password_is_chosen_and_its_user_is_in(self, link: str) -> None:
        browser, page = self.opened(link)
        assert "admin" in browser.get(page).content.decode()
        for refused in ("12345678", "short"):
            answer = self.choose(browser, page, refused)
            assert answer.status_code == 200
            assert answer.context["form"].errors["new_password2"]
        answer = self.choose(browser, page, self.OWN)
        assert (answer.status_code, answer["Location"]) == (302, "/console/")
        assert browser.get("/console/").status_code == 200
        assert User.objects.get().check_password(self.OWN)
        assert AuditLog.objects.get().action == "own_password_changed"

    def test_it_serves_once(self, link: str) -> None:
        other, other_page = self.opened(link)
        second = preparation.first_login_link()
        browser, page = self.opened(link)
        self.choose(browser, page, self.OWN)
        for refused in (link, second):
            answer = Client().get(refused)
            assert answer.status_code == 200
            assert "This link no longer works" in answer.content.decode()
        self.choose(other, other_page, "another umbrella 8")
        assert User.objects.get().check_password(self.OWN)

    def test_it_serves_for_a_day(self, link: str, settings: Any) -> None:
        assert settings.PASSWORD_RESET_TIMEOUT == 24 * 3600
        settings.PASSWORD_RESET_TIMEOUT = -1
        assert "This link no longer works" in Client().get(link).content.decode()

    @pytest.mark.parametrize("change", ["token=x", "token=", ""])
    def test_a_link_that_nobody_printed(self, link: str, change: str) -> None:
        page, _, _token = link.partition("?")
        for path in (f"{page}?{change}", f"/console/password/x?{change}"):
            answer = Client().get(path)
            assert answer.status_code == 200
            assert "This link no longer works" in answer.content.decode()
        self.choose(Client(), page, self.OWN)
        assert not User.objects.get().has_usable_password()

    def test_in_chinese(self, link: str) -> None:
        page = Client(HTTP_ACCEPT_LANGUAGE="zh-hans").get(f"{link}x").content.decode()
        assert 'lang="zh-hans"' in page
        assert "登录" in page


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
    ((what, repair),) = [(f.what, f.repair) for f in doctor.examine() if "password" in f.what]
    assert what == "nobody has a password yet"
    assert "manage.py changepassword somebody" in repair
    User.objects.create_superuser("chief", password="violet umbrella 7")
    assert not [f for f in doctor.examine() if "password" in f.what]
