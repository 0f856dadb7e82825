"""Who guesses passwords is slowed down; who knows theirs gets in."""

import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from msgplatform.company.signing_in import login
from msgplatform.doors.api.access import throttling
from msgplatform.models import AuditLog

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
PASSWORD = "a long enough one"
TOO_MANY = "Too many wrong passwords. Try again in 5 minutes."


@pytest.fixture(autouse=True)
def somebody(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    # The cost of a hash is not what is tested here.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_user("anna", password=PASSWORD, is_staff=True)


def log_in(name: str = "anna", password: str = "wrong", address: str = "10.0.0.1") -> Any:
    data = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post("/admin/login/", data)


def is_in(response: Any) -> bool:
    return bool(response.status_code == 302)


def test_the_limits_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    assert (
        f"| login | {login.WRONG_FOR_NAME_AND_ADDRESS} wrong passwords for a name from one address,"
        f" {login.WRONG_FROM_ADDRESS} from an address, {login.WRONG_FOR_NAME} for a name,"
        f" within {login.WINDOW_SECONDS // 60} minutes;"
    ) in page


def test_five_wrong_passwords_keep_this_address_away_from_this_name() -> None:
    for _ in range(5):
        assert TOO_MANY not in log_in().content.decode()
    refused = log_in(password=PASSWORD)
    assert not is_in(refused)
    assert TOO_MANY in refused.content.decode()
    assert TOO_MANY in log_in(name="ANNA").content.decode(), "names differ by more than their case"
    assert is_in(log_in(password=PASSWORD, address="10.0.0.2"))


def test_one_address_may_not_go_through_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "WRONG_FROM_ADDRESS", 3)
    for n in range(3):
        log_in(name=f"user-{n}")
    assert not is_in(log_in(password=PASSWORD))
    assert is_in(log_in(password=PASSWORD, address="10.0.0.2"))


def test_many_addresses_may_not_go_through_the_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "WRONG_FOR_NAME", 3)
    for n in range(3):
        log_in(address=f"10.0.1.{n}")
    assert not is_in(log_in(password=PASSWORD, address="10.0.0.2"))


def test_who_is_refused_costs_no_query_and_no_hash(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(login, "WRONG_FOR_NAME_AND_ADDRESS", 1)
    log_in()
    monkeypatch.setattr("django.contrib.auth.hashers.verify_password", None)
    with django_assert_num_queries(0):
        assert TOO_MANY in log_in().content.decode()


def test_right_passwords_are_not_counted() -> None:
    assert all(is_in(log_in(password=PASSWORD)) for _ in range(10))


def test_without_redis_operators_get_in(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.REDIS_URL = "unix:///no/such/redis.sock"
    for _ in range(login.WRONG_FOR_NAME_AND_ADDRESS + 1):
        log_in()
    assert is_in(log_in(password=PASSWORD))


@pytest.mark.parametrize("spelling", ["ANNA", "ánna", "ａnna", "anna "])
def test_another_spelling_is_the_same_name(spelling: str) -> None:
    """MariaDB takes most of them for the same user."""
    assert login.fold_name(spelling) == login.fold_name("anna")
    for _ in range(login.WRONG_FOR_NAME_AND_ADDRESS):
        log_in(name=spelling)
    assert TOO_MANY in log_in(password=PASSWORD).content.decode()


@pytest.mark.parametrize("spelling", ["hanß", "han\u200bs"])
def test_spellings_that_the_database_takes_for_one_user_are_one_name(spelling: str) -> None:
    """MariaDB's general_ci takes the first for hans, MySQL's 0900_ai_ci the second."""
    User.objects.create_user("hans", password=PASSWORD, is_staff=True)
    is_same = User.objects.filter(username=spelling).exists()
    for _ in range(login.WRONG_FOR_NAME_AND_ADDRESS):
        log_in(name=spelling)
    assert is_in(log_in(name="hans", password=PASSWORD)) is not is_same


def test_a_line_of_ipv6_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "WRONG_FROM_ADDRESS", 3)
    for n in range(3):
        log_in(name=f"user-{n}", address=f"2001:db8:1:2::{n}")
    assert not is_in(log_in(password=PASSWORD, address="2001:db8:1:2:ffff::1"))
    assert is_in(log_in(password=PASSWORD, address="2001:db8:1:3::1"))


def test_an_ipv4_address_written_as_ipv6_is_its_own_network() -> None:
    """All of them are in one /64."""
    given = ("::ffff:192.0.2.1", "::ffff:192.0.2.2", "192.0.2.1", "2001:db8::1", "no address")
    networks = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::/64", "no address"]
    assert [throttling.network_of(address) for address in given] == networks


def test_who_may_not_enter_the_console_counts_as_wrong() -> None:
    User.objects.update(is_staff=False)
    for _ in range(login.WRONG_FOR_NAME_AND_ADDRESS):
        assert not is_in(log_in(password=PASSWORD))
    assert TOO_MANY in log_in(password=PASSWORD).content.decode()


def test_few_wait_for_the_hash_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_HASHING_SECONDS", 60.0)
    with login._hashing:
        for _ in range(3):
            assert login._waiting_places.acquire(blocking=False)
        try:
            began = time.monotonic()
            answer = log_in(password=PASSWORD)
        finally:
            login._waiting_places.release(3)
    assert "Too many people log in at the moment" in answer.content.decode()
    assert time.monotonic() - began < login._HASHING_SECONDS


def test_hashes_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_HASHING_SECONDS", 0.01)
    with login._hashing:
        answer = log_in(password=PASSWORD)
    assert "Too many people log in at the moment" in answer.content.decode()
    assert is_in(log_in(password=PASSWORD))


def test_a_wrong_password_is_logged_without_the_name(caplog: pytest.LogCaptureFixture) -> None:
    log_in(name="my secret password")
    (record,) = [r.msg for r in caplog.records if "login_refused" in str(r.msg)]
    assert "my secret password" not in str(record)
    assert "10.0.0.1" in str(record)


@pytest.mark.parametrize("password", ["password123", "88888888888", "short", "annabel12"])
def test_weak_passwords_are_refused(admin_client: Client, password: str) -> None:
    annabel = User.objects.create_user("annabel")
    data = {"password1": password, "password2": password, "usable_password": "true"}
    page = admin_client.post(f"/admin/auth/user/{annabel.pk}/password/", data)
    assert page.status_code == 200
    assert "errorlist" in page.content.decode() or "text-red" in page.content.decode()
    annabel.refresh_from_db()
    assert not annabel.has_usable_password()


def test_the_old_password_is_guessed_as_slowly(somebody: User) -> None:
    client = Client(REMOTE_ADDR="10.0.0.1")
    client.force_login(somebody)
    new = "another long one"

    def change(old: str) -> Any:
        posted = {"old_password": old, "new_password1": new, "new_password2": new}
        return client.post("/admin/password_change/", posted)

    for _ in range(login.WRONG_FOR_NAME_AND_ADDRESS):
        assert TOO_MANY not in change("wrong").content.decode()
    assert TOO_MANY in change(PASSWORD).content.decode()
    assert not is_in(log_in(password=PASSWORD)), "it is the same limit"
    somebody.refresh_from_db()
    assert somebody.check_password(PASSWORD)


def test_the_right_one_changes_it(somebody: User) -> None:
    client = Client()
    client.force_login(somebody)
    new = "another long one"
    posted = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    answer = client.post("/admin/password_change/", posted)
    assert (answer.status_code, answer["Location"]) == (302, "/admin/password_change/done/")
    assert client.get(answer["Location"]).status_code == 200
    somebody.refresh_from_db()
    assert somebody.check_password(new)
    assert AuditLog.objects.get().action == "own_password_changed"
