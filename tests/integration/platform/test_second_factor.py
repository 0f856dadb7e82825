"""Second factors: set up, asked for at the login and before secrets, required of roles, lost."""

import re
import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings

from msgplatform import roles
from msgplatform.core import invitations
from msgplatform.core.secrets import encryption, reencrypt
from msgplatform.doors.api.access import throttling
from msgplatform.models import AuditLog
from tests.support import totp

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
PASSWORD = "a long enough one"
FACTORS = "/console/sign-in/second-factor/"
AUTHENTICATE = f"{FACTORS}authenticate/"


@pytest.fixture(autouse=True)
def quick_hashes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def log_in(name: str = "anna", next_page: str = "/console/search") -> tuple[Client, Any]:
    client = Client()
    entry = {"username": name, "password": PASSWORD}
    return client, client.post(f"/admin/login/?next={next_page}", entry)


def activate(client: Client) -> str:
    """Set up an authenticator app; returns its secret."""
    page = client.get(f"{FACTORS}totp/activate/").content.decode()
    secret = re.search(r'value="([A-Z2-7]{32})"', page)[1]
    done = client.post(f"{FACTORS}totp/activate/", {"code": totp.code(secret)})
    assert done["Location"] == f"{FACTORS}recovery-codes/"
    return secret


@pytest.fixture
def anna() -> User:
    return User.objects.create_superuser("anna", password=PASSWORD)


@pytest.fixture
def secret(anna: User) -> str:
    client, _answer = log_in()
    secret = activate(client)
    client.logout()
    return secret


def later(seconds: float = 60) -> float:
    """A code of another step: the first one was used up by the set-up."""
    return time.time() + seconds


def test_the_login_asks_for_the_code(secret: str) -> None:
    client, asked = log_in()
    assert asked["Location"] == AUTHENTICATE
    assert client.get("/console/")["Location"].startswith("/admin/login/")
    page = client.get(AUTHENTICATE)
    assert page.status_code == 200
    wrong = client.post(AUTHENTICATE, {"code": "000000"}).content.decode()
    assert "Incorrect code" in wrong
    code = totp.code(secret, later(30))
    answer = client.post(AUTHENTICATE, {"code": code})
    assert answer["Location"] == "/console/search"
    assert client.get("/console/search").status_code == 200
    other, _asked = log_in()
    assert "Incorrect code" in other.post(AUTHENTICATE, {"code": code}).content.decode()


def test_a_link_to_choose_a_password_asks_for_the_code(secret: str, anna: User) -> None:
    client = Client()
    anna.refresh_from_db()
    page = client.get(invitations.link_path(anna))["Location"]
    entry = {"new_password1": "another long one", "new_password2": "another long one"}
    assert client.post(page, entry)["Location"] == AUTHENTICATE
    assert client.get("/console/search").status_code == 302
    code = totp.code(secret, later(30))
    assert client.post(AUTHENTICATE, {"code": code})["Location"] == "/console/"


def test_guesses_are_counted(secret: str) -> None:
    client, _asked = log_in()
    for _ in range(5):
        client.post(AUTHENTICATE, {"code": "000000"})
    refused = client.post(AUTHENTICATE, {"code": totp.code(secret, later(30))})
    assert "Too many failed login attempts" in refused.content.decode()


def test_without_redis_people_get_in(secret: str, settings: Settings) -> None:
    settings.REDIS_URL = "unix:///no/such/redis.sock"
    client, _asked = log_in()
    answer = client.post(AUTHENTICATE, {"code": totp.code(secret, later(30))})
    assert answer["Location"] == "/console/search"


def test_a_recovery_code_serves_once(secret: str, anna: User) -> None:
    row = Authenticator.objects.get(user=anna, type="recovery_codes")
    code = row.wrap().get_unused_codes()[0]
    client, _asked = log_in()
    assert client.post(AUTHENTICATE, {"code": code})["Location"] == "/console/search"
    assert AuditLog.objects.filter(action="recovery_code_used", target="anna").exists()
    other, _asked = log_in()
    assert "Incorrect code" in other.post(AUTHENTICATE, {"code": code}).content.decode()


def test_the_code_is_asked_for_before_secrets_and_not_the_password(secret: str) -> None:
    client, _asked = log_in()
    client.post(AUTHENTICATE, {"code": totp.code(secret, later(30))})
    session = client.session
    session["confirmed_at"] = time.time() - 3600
    session.save()
    asked = client.get("/admin/auth/user/add/")
    page = client.get(asked["Location"])
    assert page["Location"] == f"{FACTORS}reauthenticate/?next=%2Fadmin%2Fauth%2Fuser%2Fadd%2F"
    by_password = client.get("/console/sign-in/password?next=/admin/auth/user/add/")
    assert by_password["Location"].startswith(f"{FACTORS}reauthenticate/")
    assert client.post("/console/sign-in/password", {"password": PASSWORD}).status_code == 302
    assert client.get("/admin/auth/user/add/").status_code == 302
    code = totp.code(secret, later(-30))
    answer = client.post(page["Location"], {"code": code, "next": "/admin/auth/user/add/"})
    assert answer["Location"] == "/admin/auth/user/add/"
    assert client.get("/admin/auth/user/add/").status_code == 200


def test_factors_are_changed_after_a_proof_only(secret: str) -> None:
    client, _asked = log_in()
    client.post(AUTHENTICATE, {"code": totp.code(secret, later(30))})
    session = client.session
    session["confirmed_at"] = 0.0
    session.save()
    for page in ("totp/deactivate/", "recovery-codes/generate/", "webauthn/add/"):
        for answer in (client.get(FACTORS + page), client.post(FACTORS + page)):
            assert answer["Location"].startswith(f"{FACTORS}reauthenticate/"), page
    assert Authenticator.objects.count() == 2


def test_a_role_requires_it(anna: User, settings: Settings) -> None:
    settings.MFA_ROLES = ["administrator"]
    viewer = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    roles.make()  # a test before may have emptied the tables
    viewer.groups.add(Group.objects.get(role__name="viewer"))
    vera, _answer = log_in("vera")
    assert vera.get("/console/search").status_code == 200
    viewer.groups.add(Group.objects.get(role__name="administrator"))
    assert vera.get("/console/search")["Location"] == FACTORS, "as soon as the role is theirs"
    client, _answer = log_in()
    for page in ("/console/", "/admin/", "/admin/auth/user/", "/console/search"):
        assert client.get(page)["Location"] == FACTORS
    assert client.post("/console/preferences", {}).status_code == 403
    assert "Your role needs a second factor" in client.get(FACTORS).content.decode()
    activate(client)
    assert client.get("/console/search").status_code == 200
    client.post(f"{FACTORS}totp/deactivate/")
    assert client.get("/console/search")["Location"] == FACTORS


def test_what_is_stored_is_encrypted_and_gets_new_keys(
    secret: str, anna: User, settings: Settings
) -> None:
    data = Authenticator.objects.filter(user=anna).values_list("data", flat=True)
    texts = {name: str(value) for row in data for name, value in row.items()}
    assert {name for name, text in texts.items() if encryption.is_encrypted(text)} == {
        "secret", "seed",
    }  # fmt: skip
    (column,) = [each for each in reencrypt.columns() if str(each) == "mfa.Authenticator.data"]
    assert reencrypt.count(column) == {encryption.State.CURRENT: 2}
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(), *settings.ENCRYPTION_KEYS)
    assert reencrypt.count(column) == {encryption.State.OLD: 2}
    assert sum(reencrypt.renew(column)) == 2
    settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS[:1]
    assert reencrypt.count(column) == {encryption.State.CURRENT: 2}
    client, _asked = log_in()
    code = totp.code(secret, later(30))
    assert client.post(AUTHENTICATE, {"code": code})["Location"] == "/console/search"
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)
    client, _asked = log_in()
    refused = client.post(AUTHENTICATE, {"code": totp.code(secret, later(0))})
    assert "Incorrect code" in refused.content.decode()


def test_lost_factors_are_reset_by_an_administrator(secret: str, anna: User) -> None:
    berta = User.objects.create_superuser("berta", password=PASSWORD)
    session, _asked = log_in()  # may be on the lost phone
    session.post(AUTHENTICATE, {"code": totp.code(secret, later(30))})
    assert session.get("/console/search").status_code == 200
    client, _answer = log_in("berta")
    page = client.get(f"/console/people/{anna.pk}/sessions").content.decode()
    assert "Remove them all" in page
    done = client.post(f"/console/people/{anna.pk}/second-factors", follow=True)
    assert "The second factors of anna are removed" in done.content.decode()
    entry = AuditLog.objects.get(action="second_factors_reset")
    assert (entry.actor, entry.target) == ("berta", "anna")
    assert session.get("/console/search")["Location"].startswith("/admin/login/")
    assert log_in()[1]["Location"] == "/console/search"
    assert client.post(f"/console/people/{berta.pk}/sessions").status_code == 302


def test_lost_factors_are_reset_by_the_command(secret: str) -> None:
    call_command("reset_second_factor", "anna")
    assert log_in()[1]["Location"] == "/console/search"
    assert AuditLog.objects.get(action="second_factors_reset").actor.startswith("manage.py")
    for name, text in (("anna", "has no second factor"), ("nobody", "There is no user nobody")):
        with pytest.raises(CommandError, match=text):
            call_command("reset_second_factor", name)


def test_the_audit_log_names_them(
    anna: User, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    client, _answer = log_in()
    with django_capture_on_commit_callbacks(execute=True):
        activate(client)
    with django_capture_on_commit_callbacks(execute=True):
        client.post(f"{FACTORS}recovery-codes/generate/")
    client.post(f"{FACTORS}totp/deactivate/")
    entries = AuditLog.objects.order_by("pk").values_list("action", "target", "detail__kind")
    assert [*entries] == [
        ("second_factor_added", "anna", "totp"),
        ("second_factor_added", "anna", "recovery_codes"),
        ("second_factor_renewed", "anna", "recovery_codes"),
        ("second_factor_removed", "anna", "totp"),
        ("second_factor_removed", "anna", "recovery_codes"),
    ]
