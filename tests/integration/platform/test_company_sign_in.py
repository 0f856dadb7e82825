"""Sign-in by the company's provider: who gets in and as what, and every way in which a provider can
be wrong, slow or away."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.dingtalk.views import DingTalkOAuth2Adapter
from allauth.socialaccount.providers.feishu.client import FeishuOAuth2Client
from allauth.socialaccount.providers.feishu.views import FeishuOAuth2Adapter
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from pytest_django.fixtures import Settings
from structlog.testing import capture_logs

from msgplatform import person_limits
from msgplatform.company.signing_in import accounts
from msgplatform.company.single_sign_on import guarded, views
from msgplatform.core import invitations
from msgplatform.core.characters import fold, mixes_alphabets
from msgplatform.core.rates.shared import Rate
from msgplatform.core.servers.private_server import free_port
from msgplatform.models import Alert, AuditLog, Biz
from tests.support import company_sign_in, totp
from tests.support.company_sign_in import CALLBACK, LOGIN, PAGE, begin, is_in, sign_in
from tests.support.oidc_provider import CLIENT, OidcProvider, new_key

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
server, provider = company_sign_in.server, company_sign_in.provider
configured = company_sign_in.configured
PASSWORD = "a long enough one"


# -- who gets in -------------------------------------------------------------------------------
def test_a_person_with_a_group_gets_in_with_its_role(provider: OidcProvider) -> None:
    client = Client()
    assert "Sign in with Example Corp" in client.get("/admin/login/").content.decode()
    answer = sign_in(provider, client)
    assert answer["Location"] == PAGE
    assert is_in(client)
    user = User.objects.get()
    assert (user.username, user.email, user.is_staff) == ("anna", "a@example.com", True)
    assert [group.role.name for group in user.groups.all()] == ["operator"]
    assert not user.is_superuser
    assert not user.has_usable_password()


def test_roles_are_those_of_the_groups_at_each_login(provider: OidcProvider) -> None:
    sign_in(provider)
    user = User.objects.get()
    user.groups.add(Group.objects.create(name="By hand"))
    user.user_permissions.add(Permission.objects.get(codename="erase_person"))
    provider.claims["groups"] = ["CN=Admins,OU=x", "unknown"]
    client = Client()
    sign_in(provider, client)
    assert [group.role.name for group in user.groups.all()] == ["administrator"]
    entry = AuditLog.objects.filter(action="user_changed").latest("pk")
    assert entry.detail["changes"] == {
        "groups": [["By hand", "Operator"], ["Administrator"]],
        "user_permissions": [["msgplatform.erase_person"], []],
    }
    assert not user.user_permissions.exists()
    provider.claims["groups"] = ["somebody"]
    refused = sign_in(provider)
    assert refused.status_code == 403
    user.refresh_from_db()
    assert (user.is_staff, user.groups.count()) == (False, 0)
    assert not is_in(client), "a person without a role is still in"


def test_nobody_without_a_role_gets_in(provider: OidcProvider) -> None:
    for groups in ([], ["marketing"], None, "marketing", {"ops": 1}, [1, None]):
        provider.claims["groups"] = groups
        provider.userinfo = {} if groups is None else provider.userinfo
        page = sign_in(provider)
        text = page.content.decode()
        assert page.status_code == 403
        assert "none of your groups has a role" in text
        assert "Your name there: anna" in text
    assert not User.objects.exists()
    entry = AuditLog.objects.filter(action="sign_in_refused").earliest("pk")
    assert (entry.actor, entry.target) == ("anna", "no_role")


def test_a_role_that_does_not_exist_is_ignored_and_audited(provider: OidcProvider) -> None:
    provider.claims["groups"] = ["odd"]
    client = Client()
    sign_in(provider, client)
    assert is_in(client)
    assert [group.role.name for group in User.objects.get().groups.all()] == ["viewer"]
    entry = AuditLog.objects.get(action="sign_in_unknown_names")
    assert entry.detail == {"missing": ["role no-such-role"]}


def test_groups_may_be_in_the_user_information_and_inside_of_objects(
    provider: OidcProvider, settings: Settings
) -> None:
    settings.OIDC_GROUPS_CLAIM = "realm_access.roles"
    del provider.claims["groups"]
    provider.userinfo = {"realm_access": {"roles": ["ops"]}}
    assert sign_in(provider)["Location"] == PAGE


def test_systems_are_those_of_the_groups(provider: OidcProvider, settings: Settings) -> None:
    Biz.objects.create(name="shop")
    settings.OIDC_SYSTEMS = {"shop-team": ["shop", "gone"], "all": ["*"]}
    provider.claims["groups"] = ["ops", "shop-team"]
    sign_in(provider)
    user = User.objects.get()
    assert [*person_limits.limit_of(user)] == ["shop"]
    provider.claims["groups"] = ["ops", "all"]
    sign_in(provider)
    assert person_limits.limit_of(user) is None
    provider.claims["groups"] = ["ops"]
    sign_in(provider)
    assert person_limits.limit_of(user) == {}


def test_accounts_with_one_address_or_name_stay_apart(provider: OidcProvider) -> None:
    local = User.objects.create_superuser("anna", "a@example.com", PASSWORD)
    sign_in(provider)
    provider.claims |= {"sub": "u2"}
    sign_in(provider)
    people = User.objects.exclude(pk=local.pk)
    assert people.count() == 2
    assert not people.filter(username="anna").exists()
    assert set(people.values_list("email", flat=True)) == {"a@example.com"}
    assert not people.filter(is_superuser=True).exists()
    assert SocialAccount.objects.filter(user=local).count() == 0


@pytest.mark.parametrize(
    "name",
    ["ａnna", "an\u200bna", "Anna", "anna\u202e", "\ufeffanna", "anna\n",
     "\u0430nna", "ann\u0430", "an\u03b7a", "\u0251nna\u0430"],
)  # fmt: skip
def test_nobody_of_the_provider_looks_like_somebody_else(provider: OidcProvider, name: str) -> None:
    User.objects.create_superuser("anna", "a@example.com", PASSWORD)
    provider.claims |= {"preferred_username": name, "email": ""}
    sign_in(provider)
    other = User.objects.exclude(username="anna").get().username
    assert fold(other) != "anna"
    assert not mixes_alphabets(other)
    assert other.isprintable()


def test_the_same_subject_of_another_issuer_is_another_person(
    provider: OidcProvider, settings: Settings
) -> None:
    sign_in(provider)
    SocialAccount.objects.update(uid="u1 https://other.example.com")
    sign_in(provider)
    assert User.objects.count() == 2


def test_a_person_links_their_account(provider: OidcProvider) -> None:
    local = User.objects.create_superuser("local", password=PASSWORD)
    client = Client()
    client.post("/admin/login/", {"username": "local", "password": PASSWORD})
    assert "Link your account at Example Corp" in client.get("/console/sessions").content.decode()
    assert client.get(f"{LOGIN}/link").status_code == 200
    page = client.post(f"{LOGIN}/link")
    done = client.get(CALLBACK, provider.authorize(page.context["continue_url"]))
    assert done["Location"] == "/console/sessions"
    assert "is linked with this one" in client.get("/console/sessions").content.decode()
    assert SocialAccount.objects.get().user == local
    assert AuditLog.objects.get(action="account_linked").target == "local"
    other = Client()
    assert sign_in(provider, other)["Location"] == PAGE
    assert User.objects.count() == 1
    provider.claims["groups"] = []
    assert sign_in(provider).status_code == 403
    local.refresh_from_db()
    assert (local.is_staff, local.is_superuser) == (True, True), "a superuser is one by hand"


def test_somebody_who_was_switched_off_stays_out(provider: OidcProvider) -> None:
    sign_in(provider)
    User.objects.update(is_active=False)
    client = Client()
    page = sign_in(provider, client)
    assert "switched off" in page.content.decode()
    assert not is_in(client)


# -- bad providers ------------------------------------------------------------------------------
def sets(name: str, value: Any) -> Callable[[OidcProvider], None]:
    return lambda provider: provider.claims.update({name: value})


def signs(algorithm: str = "ES256", kid: str = "one", key: Any = None) -> Any:
    def change(provider: OidcProvider) -> None:
        provider.algorithm, provider.kid, provider.signing_key = algorithm, kid, key

    return change


def says(path: str, body: bytes) -> Callable[[OidcProvider], None]:
    return lambda provider: provider.bodies.update({path: body})


WRONG = {
    "issuer": sets("iss", "https://evil.example.com"),
    "no issuer": sets("iss", None),
    "audience": sets("aud", "another-client"),
    "two audiences": sets("aud", [CLIENT, "another-client"]),
    "authorized party": sets("azp", "another-client"),
    "no audience": sets("aud", None),
    "nonce": sets("nonce", "0" * 64),
    "no nonce": sets("nonce", None),
    "expired": sets("exp", 1_700_000_000),
    "no expiry": sets("exp", None),
    "clock ahead": sets("iat", 4_000_000_000),
    "not yet valid": sets("nbf", 4_000_000_000),
    "no subject": sets("sub", None),
    "a number as subject": sets("sub", 7),
    "an empty subject": sets("sub", ""),
    "another key": signs(key=new_key()),
    "unknown key": signs(kid="two"),
    "none": signs("none"),
    "the secret": signs("HS256"),
    "not a token": says("/token", b'{"access_token": "x", "id_token": "a.b.c"}'),
    "no token": says("/token", b'{"access_token": "x"}'),
    "a number as token": says("/token", b'{"access_token": "x", "id_token": 7}'),
    "a list": says("/token", b"[1]"),
    "no keys": says("/keys", b"{}"),
    "keys of nothing": says("/keys", b'{"keys": [{}]}'),
    "no JSON": says("/keys", b"<html>"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_token_is_refused(provider: OidcProvider, wrong: str) -> None:
    WRONG[wrong](provider)
    client = Client()
    page = sign_in(provider, client)
    assert page.status_code in (403, 503)
    assert "Example Corp" in page.content.decode()
    assert not is_in(client)
    assert not User.objects.exists()
    assert AuditLog.objects.filter(action="sign_in_refused").count() == 1


@pytest.mark.parametrize(
    "document",
    [{"issuer": "https://evil.example.com"}, {"issuer": None}, {"token_endpoint": 7},
     {"jwks_uri": None}, {"authorization_endpoint": None}],
)  # fmt: skip
def test_a_wrong_document_is_refused(provider: OidcProvider, document: dict[str, Any]) -> None:
    provider.document = document
    page = Client().get(LOGIN)
    assert page.status_code == 403
    assert "nobody was signed in" in page.content.decode()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff\xfe", b"{" * 5000])
def test_a_document_that_cannot_be_read_is_refused(provider: OidcProvider, body: bytes) -> None:
    provider.bodies["/.well-known/openid-configuration"] = body
    assert Client().get(LOGIN).status_code in (403, 503)


def test_user_information_of_somebody_else_is_refused(provider: OidcProvider) -> None:
    del provider.claims["groups"]
    provider.userinfo = {"sub": "u2", "groups": ["ops"]}
    assert sign_in(provider).status_code == 403
    assert not User.objects.exists()


@pytest.mark.parametrize("path", ["/token", "/keys", "/.well-known/openid-configuration"])
def test_errors_of_the_provider_are_a_page(provider: OidcProvider, path: str) -> None:
    client = Client()
    back = provider.authorize(begin(client))
    provider.statuses[path] = 500
    page = client.get(CALLBACK, back)
    assert page.status_code in (403, 503)


def test_a_code_serves_once(provider: OidcProvider) -> None:
    client = Client()
    back = provider.authorize(begin(client))
    assert client.get(CALLBACK, back)["Location"] == PAGE
    again = client.get(CALLBACK, back)
    assert again.status_code == 403
    assert "begin again" in again.content.decode()
    thief = Client()
    assert thief.get(CALLBACK, back).status_code == 403
    state = provider.authorize(begin(thief))["state"]
    stolen = thief.get(CALLBACK, {"code": back["code"], "state": state})
    assert stolen.status_code == 403
    assert not is_in(thief)
    assert not Alert.objects.exists(), "a code that comes twice is no alert"


def test_a_code_of_another_sign_in_has_another_nonce(provider: OidcProvider) -> None:
    """The code of a victim, with the attacker's own state: PKCE and the nonce are of the state."""
    victim, attacker = Client(), Client()
    code = provider.authorize(begin(victim))["code"]
    state = provider.authorize(begin(attacker))["state"]
    provider.codes[code]["code_challenge"] = provider.codes["code-1"]["code_challenge"]
    page = attacker.get(CALLBACK, {"code": code, "state": state})
    assert page.status_code == 403
    assert AuditLog.objects.latest("pk").target == "nonce"
    assert not is_in(attacker)


def test_a_cancelled_sign_in_is_a_page(provider: OidcProvider) -> None:
    client = Client()
    state = provider.authorize(begin(client))["state"]
    page = client.get(CALLBACK, {"error": "access_denied", "state": state})
    assert "was cancelled" in page.content.decode()
    assert not Alert.objects.exists()
    for query in ({}, {"code": "x"}, {"state": "x"}, {"code": "x", "state": "\0"}):
        assert client.get(CALLBACK, query).status_code == 403


@pytest.mark.parametrize(
    "query", [{"error": "Sign in at https://evil.example/login"}, {"error": "server_error"}, {}]
)
def test_an_error_that_the_browser_brings_is_no_alert(
    provider: OidcProvider, query: dict[str, str]
) -> None:
    client = Client()
    state = provider.authorize(begin(client))["state"]
    assert client.get(CALLBACK, {**query, "state": state}).status_code == 403
    assert AuditLog.objects.get(action="sign_in_refused").target == "error"
    assert not Alert.objects.exists()


def test_a_provider_that_is_down_is_a_page_and_an_alert(
    provider: OidcProvider, settings: Settings
) -> None:
    settings.OIDC_ISSUER = "http://127.0.0.1:1"
    page = Client().get(LOGIN)
    assert page.status_code == 503
    assert "Example Corp does not answer" in page.content.decode()
    alert = Alert.objects.get()
    assert alert.kind == "platform.signin"
    assert "http://127.0.0.1:1: connect" in alert.text
    assert AuditLog.objects.get(action="sign_in_refused").target == "connect"
    settings.OIDC_ISSUER = provider.issuer
    sign_in(provider)
    alert.refresh_from_db()
    assert alert.resolved_at, "somebody got in"


def test_a_provider_that_hangs_holds_nobody_for_long(
    provider: OidcProvider, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OIDC_TIMEOUT_SECONDS = 0.5
    provider.hangs = True
    began = time.monotonic()
    page = Client().get(LOGIN)
    assert page.status_code == 503
    assert time.monotonic() - began < 60
    assert Alert.objects.get().text.startswith(f"{provider.issuer}: timeout")
    monkeypatch.setattr(guarded, "_places", threading.BoundedSemaphore(1))
    with guarded.exchange():
        busy = Client().get(LOGIN)
        with guarded.exchange(is_logout=True):
            pass
    assert "Many people sign in" in busy.content.decode()


def test_one_address_does_not_keep_others_from_signing_in(
    provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_SIGN_INS", Rate(3, 60))
    client = Client()
    pages = [client.get(LOGIN, REMOTE_ADDR=f"2001:db8::{number}") for number in range(1, 5)]
    assert [page.status_code for page in pages] == [302, 302, 302, 503]
    assert "Many people sign in" in pages[-1].content.decode()
    assert client.get(LOGIN, REMOTE_ADDR="2001:db8:1::1").status_code == 302


def test_a_provider_inside_is_called_if_it_is_allowed_only(
    provider: OidcProvider, settings: Settings
) -> None:
    settings.OUTBOUND_ALLOW = []
    for issuer in (provider.issuer.replace("http", "https"), provider.issuer):
        settings.OIDC_ISSUER = issuer
        assert Client().get(LOGIN).status_code == 503
        assert provider.paths == []
        entry = AuditLog.objects.filter(action="sign_in_refused").latest("id")
        assert entry.target == "address_forbidden"
    settings.OUTBOUND_ALLOW, settings.OUTBOUND = ["127.0.0.0/8"], False
    assert Client().get(LOGIN).status_code == 503
    assert provider.paths == []


def test_endpoints_of_the_document_are_guarded_too(provider: OidcProvider) -> None:
    client = Client()
    back = provider.authorize(begin(client))
    for address in ("http://169.254.169.254/token", "file:///etc/passwd", "gopher://x/"):
        provider.document = {"token_endpoint": address}
        page = client.get(CALLBACK, back)
        assert page.status_code in (403, 503), address
        back = {**back, "state": provider.authorize(begin(client))["state"]}


def test_redirects_are_not_followed(provider: OidcProvider) -> None:
    provider.statuses["/.well-known/openid-configuration"] = 302
    assert Client().get(LOGIN).status_code in (403, 503)


def test_refusals_fill_no_log(provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    for _ in range(30):
        assert client.get(CALLBACK).status_code == 403
    assert AuditLog.objects.filter(action="sign_in_refused").count() == 20
    for number in range(5):  # of the same line
        client.get(CALLBACK, REMOTE_ADDR=f"2001:db8::{number}")
    assert AuditLog.objects.filter(action="sign_in_refused").count() == 25
    monkeypatch.setattr(accounts, "_OF_ONE", Rate(1, 300))
    monkeypatch.setattr(accounts, "_OF_ALL", Rate(30, 300))
    for number in range(1, 20):
        client.get(CALLBACK, REMOTE_ADDR=f"2001:db8:{number}::1")
    assert AuditLog.objects.filter(action="sign_in_refused").count() == 30


# -- out again ----------------------------------------------------------------------------------
def test_the_logout_leads_to_the_provider(provider: OidcProvider) -> None:
    client = Client()
    sign_in(provider, client)
    page = client.post("/admin/logout/")
    url = page.context["continue_url"]
    assert url.startswith(f"{provider.issuer}/end?client_id=platform&post_logout_redirect_uri=")
    assert "id_token_hint=ey" in url
    assert not is_in(client)
    back = client.get(f"{LOGIN}/signed-out", follow=True)
    assert "You are signed out" in back.content.decode()


def test_a_provider_without_such_a_page(provider: OidcProvider) -> None:
    for end in (None, "javascript:alert(1)", 7):
        provider.document = {"end_session_endpoint": end}
        client = Client()
        sign_in(provider, client)
        assert client.post("/admin/logout/").status_code == 200
        assert not is_in(client)


def logout_token(provider: OidcProvider, **claims: Any) -> str:
    event: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
    return provider.token({"jti": "j1", "events": event, **claims})


def test_the_provider_ends_sessions(provider: OidcProvider) -> None:
    url = f"{LOGIN}/backchannel-logout"
    provider.claims["sid"] = "s1"
    one, other = Client(), Client()
    sign_in(provider, one)
    provider.claims["sid"] = "s2"
    sign_in(provider, other)
    server = Client(enforce_csrf_checks=True)
    wrongs: list[dict[str, Any]] = [
        {"events": {}}, {"nonce": "x"}, {"aud": "x"}, {"iss": "x"}, {"exp": 1}, {"jti": None},
        {"sub": None}, {"iat": time.time() - 700}, {"iat": time.time() - 700, "exp": None},
    ]  # fmt: skip
    for wrong in wrongs:
        token = logout_token(provider, sid=None, **wrong)
        assert server.post(url, {"logout_token": token}).status_code == 400, wrong
    assert server.post(url).status_code == 400
    assert [is_in(one), is_in(other)] == [True, True]
    token = logout_token(provider, sid="s1", sub=None)
    assert server.post(url, {"logout_token": token}).status_code == 200
    assert [is_in(one), is_in(other)] == [False, True]
    assert server.post(url, {"logout_token": token}).status_code == 400, "it came twice"
    assert server.post(url, {"logout_token": logout_token(provider, jti="j2")}).status_code == 200
    assert not is_in(other)
    assert AuditLog.objects.filter(action="session_ended", actor="OIDC").count() == 2


def test_a_logout_that_the_database_did_not_take_is_repeated(provider: OidcProvider) -> None:
    client, server = Client(), Client(raise_request_exception=False)
    sign_in(provider, client)

    def refuse(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "usersession" in str(sql):
            raise OperationalError(2013, "Lost connection to server during query")
        return execute(sql, *rest)

    form = {"logout_token": logout_token(provider)}
    with connection.execute_wrapper(refuse):
        answer = server.post(f"{LOGIN}/backchannel-logout", form)
    assert answer.status_code == 503
    assert is_in(client)
    assert server.post(f"{LOGIN}/backchannel-logout", form).status_code == 200
    assert not is_in(client)
    assert server.post(f"{LOGIN}/backchannel-logout", form).status_code == 400


def test_the_provider_ends_a_session_whose_person_has_a_new_password(
    provider: OidcProvider,
) -> None:
    local, client = User.objects.create_superuser("local", password=PASSWORD), Client()
    client.post("/admin/login/", {"username": "local", "password": PASSWORD})
    page = client.post(f"{LOGIN}/link")
    client.get(CALLBACK, provider.authorize(page.context["continue_url"]))
    assert SocialAccount.objects.get().user == local
    provider.claims["sid"] = "s1"
    client = Client()
    sign_in(provider, client)
    new = "another long one"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert client.post("/admin/password_change/", form).status_code == 302
    assert is_in(client)
    token = logout_token(provider, sid="s1", sub=None)
    answer = Client().post(f"{LOGIN}/backchannel-logout", {"logout_token": token})
    assert answer.status_code == 200
    assert not is_in(client)


def test_strangers_do_not_keep_the_back_channel_busy(provider: OidcProvider) -> None:
    """Their tokens are judged by the keys that are there, whatever they name."""
    url, client = f"{LOGIN}/backchannel-logout", Client()
    sign_in(provider, client)
    asked_before = len(provider.paths)
    key, provider.key, provider.kid = provider.key, new_key(), "nobody"
    junk = [logout_token(provider, jti=f"x{n}") for n in range(20)]
    provider.key, provider.kid = key, "one"
    with capture_logs() as lines:
        assert {Client().post(url, {"logout_token": token}).status_code for token in junk} == {400}
    assert sum(line["event"] == "backchannel_logout_refused" for line in lines) <= 5
    assert len(provider.paths) - asked_before <= 2
    assert Client().post(url, {"logout_token": logout_token(provider)}).status_code == 200
    assert not is_in(client)


def test_a_back_channel_that_cannot_judge_says_so(
    provider: OidcProvider, settings: Settings
) -> None:
    """A provider does not repeat a call that was answered by 400."""
    settings.OIDC_ISSUER = f"http://127.0.0.1:{free_port()}"
    answer = Client().post(f"{LOGIN}/backchannel-logout", {"logout_token": logout_token(provider)})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/keys", 502, None),
        ("/.well-known/openid-configuration", 429, None),
        ("/.well-known/openid-configuration", 200, b"<html>A proxy's page</html>"),
    ],
)
def test_a_back_channel_whose_provider_is_in_trouble_is_called_again(
    provider: OidcProvider, path: str, status: int, body: bytes | None
) -> None:
    provider.statuses[path] = status
    if body:
        provider.bodies[path] = body
    form = {"logout_token": logout_token(provider)}
    assert Client().post(f"{LOGIN}/backchannel-logout", form).status_code == 503


# -- without passwords --------------------------------------------------------------------------
def test_passwords_switched_off(provider: OidcProvider, settings: Settings) -> None:
    User.objects.create_superuser("local", password=PASSWORD)
    settings.LOCAL_PASSWORDS = False
    page = Client().get("/admin/login/").content.decode()
    assert 'name="password"' not in page
    assert "Sign in with Example Corp" in page
    client = Client()
    refused = client.post("/admin/login/", {"username": "local", "password": PASSWORD})
    assert "Passwords are switched off" in refused.content.decode()
    assert not is_in(client)
    sign_in(provider, client)
    assert "Change password" not in client.get(PAGE).content.decode()


def test_an_invitation_is_no_way_past_the_provider(settings: Settings) -> None:
    user = User.objects.create_user("invited", is_staff=True)
    link, client = invitations.link_path(user), Client()
    page = client.get(link)["Location"]
    settings.LOCAL_PASSWORDS = False
    client.post(page, {"new_password1": PASSWORD, "new_password2": PASSWORD})
    assert not is_in(client)
    assert "no longer works" in Client().get(link).content.decode()
    user.refresh_from_db()
    assert not user.has_usable_password()


def test_the_emergency_link(capsys: pytest.CaptureFixture[str], settings: Settings) -> None:
    user = User.objects.create_superuser("local", password=PASSWORD)
    settings.LOCAL_PASSWORDS = False
    call_command("login_link", "local")
    first = capsys.readouterr().out.strip()
    call_command("login_link", "local")
    url = capsys.readouterr().out.strip()
    client = Client()
    assert "signs you in as local" in client.get(url).content.decode()
    assert client.post(url)["Location"] == "/console/"
    assert is_in(client)
    actions = AuditLog.objects.order_by("pk").values_list("action", flat=True)
    assert [*actions] == ["login_link_made", "login_link_made", "login_link_used"]
    assert "?token=" in url, "logs have the path of a request"
    for used in (url, first, f"{url}x", "/console/sign-in/link?token=x", "/console/sign-in/link"):
        refused = Client().post(used)
        assert refused.status_code == 403
        assert "no longer works" in refused.content.decode()
    user.is_active = False
    user.save()
    for name, text in (("local", "may not enter"), ("nobody", "There is no user")):
        with pytest.raises(CommandError, match=text):
            call_command("login_link", name)


def test_the_provider_proves_who_somebody_is(provider: OidcProvider) -> None:
    client = Client()
    sign_in(provider, client)
    user = User.objects.get()
    user.is_superuser = True
    user.save()
    for subject, status in (("u2", 403), ("u1", 200)):
        session = client.session
        session["confirmed_at"] = 0.0
        session.save()
        asked = client.get("/admin/auth/user/add/", follow=False)
        # A page and no redirect: after a form a browser stops a redirect to another site.
        there = client.get(asked["Location"]).context["continue_url"]
        assert there.startswith(f"{LOGIN}/confirm?next=")
        url = client.get(there)["Location"]
        assert "prompt=login" in url
        provider.claims |= {"sub": subject, "auth_time": int(time.time())}
        answer = client.get(CALLBACK, provider.authorize(url), follow=True)
        assert answer.status_code == status


@pytest.mark.parametrize("said", [None, "now", 0, "an hour ago"])
def test_a_provider_that_remembers_proves_nothing(provider: OidcProvider, said: Any) -> None:
    """Neither at the login, nor for somebody who has taken `prompt=login` out of the address."""
    auth_time = int(time.time()) - 3600 if said == "an hour ago" else said
    provider.claims["auth_time"] = auth_time
    provider.claims["groups"] = ["CN=Admins,OU=x"]
    client = Client()
    sign_in(provider, client)
    assert is_in(client)
    asked = client.get("/admin/auth/user/add/")
    assert asked.status_code == 302
    there = client.get(asked["Location"]).context["continue_url"]
    url = client.get(there)["Location"]
    answer = client.get(CALLBACK, provider.authorize(url.replace("prompt=login", "")))
    assert answer.status_code == 403
    assert "signed in there anew" in answer.content.decode()
    assert client.get("/admin/auth/user/add/").status_code == 302
    # A factor of somebody else's would be a proof from then on.
    asked = client.get("/console/sign-in/second-factor/totp/activate/")
    assert asked["Location"].startswith("/console/confirm")


def test_without_a_provider_there_is_no_such_page(settings: Settings) -> None:
    settings.OIDC_ISSUER, settings.SOCIALACCOUNT_PROVIDERS = "", {}
    for page in ("", "/callback", "/confirm", "/link", "/signed-out", "/backchannel-logout"):
        assert Client().get(LOGIN + page).status_code == 404
    assert "Sign in with" not in Client().get("/admin/login/").content.decode()


# -- Feishu and DingTalk ------------------------------------------------------------------------
@pytest.fixture
def chats(provider: OidcProvider, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their answers, as the library reads them."""
    for name in ("feishu", "dingtalk"):
        app: dict[str, Any] = {
            "provider_id": name,
            "name": name,
            "client_id": "c",
            "secret": "s",
            "settings": {},
        }
        settings.SOCIALACCOUNT_PROVIDERS[name] = {"APPS": [app]}
    at = provider.issuer
    monkeypatch.setattr(FeishuOAuth2Client, "app_access_token_url", f"{at}/app")
    for name, path in (("authorization_url", "f"), ("access_token_url", "ft"),
                       ("user_info_url", "fu")):  # fmt: skip
        monkeypatch.setattr(FeishuOAuth2Adapter, name, f"{at}/{path}")
    for name, path in (("authorize_url", "d"), ("access_token_url", "dt"), ("profile_url", "du")):
        monkeypatch.setattr(DingTalkOAuth2Adapter, name, f"{at}/{path}")
    provider.bodies |= {
        "/app": b'{"code": 0, "app_access_token": "a"}',
        "/ft": b'{"code": 0, "data": {"access_token": "t", "expires_in": 60}}',
        "/fu": b'{"code": 0, "data": {"open_id": "ou_1", "name": "Anna", "mobile": "+86138"}}',
        "/dt": b'{"accessToken": "t", "refreshToken": "r", "expireIn": 60}',
        "/du": b'{"openId": "od_1", "nick": "Anna", "mobile": "13800000000"}',
    }  # fmt: skip


def chat_answer(code: str, url: str) -> dict[str, str]:
    """The parameters with which a chat leads back from this address."""
    return {code: "x", "state": parse_qs(urlsplit(url).query)["state"][0]}


@pytest.mark.usefixtures("chats")
def test_an_account_of_a_chat_is_no_way_around_the_directory(provider: OidcProvider) -> None:
    provider.claims["auth_time"] = int(time.time())
    linked = Client()
    sign_in(provider, linked)
    user = User.objects.get()
    address = "/console/sign-in/feishu"
    assert "Link your account at feishu" not in linked.get("/console/sessions").content.decode()
    assert linked.post(f"{address}/link").status_code == 403
    # One that was linked before the person's company account was.
    SocialAccount.objects.create(user=user, provider="feishu", uid="ou_1")
    client = Client()
    left = client.get(address)["Location"]
    refused = client.get(f"{address}/callback", chat_answer("code", left))
    assert "You sign in by Example Corp" in refused.content.decode()
    assert not is_in(client)
    assert AuditLog.objects.filter(target="left_to_company", actor="anna").count() == 2


@pytest.mark.usefixtures("chats")
def test_a_chat_proves_nothing_and_its_person_reads_what_does(settings: Settings) -> None:
    settings.LOCAL_PASSWORDS = False
    user = User.objects.create_superuser("local")
    SocialAccount.objects.create(user=user, provider="feishu", uid="ou_1")
    address, client = "/console/sign-in/feishu", Client()
    client.get(f"{address}/callback", chat_answer("code", client.get(address)["Location"]))
    assert is_in(client)
    for page in ("/admin/auth/user/add/", "/console/sign-in/second-factor/totp/activate/"):
        asked = client.get(page)["Location"]
        assert "manage.py login_link" in client.get(asked).content.decode(), page
    assert is_in(client), "logged out, to log in by the same account again"


def test_a_second_factor_is_a_proof_where_the_provider_remembers(provider: OidcProvider) -> None:
    provider.claims |= {"groups": ["CN=Admins,OU=x"], "auth_time": int(time.time())}
    first, factor = Client(), "/console/sign-in/second-factor/"
    sign_in(provider, first)
    form = first.get(f"{factor}totp/activate/").context["form"]
    first.post(f"{factor}totp/activate/", {"code": totp.code(form.secret)})
    provider.claims["auth_time"] = None
    client = Client()
    assert sign_in(provider, client)["Location"] == f"{factor}authenticate/"
    code = totp.code(form.secret, time.time() + 30)  # of another step: each serves once
    client.post(f"{factor}authenticate/", {"code": code})
    assert is_in(client)
    assert client.get("/admin/auth/user/add/").status_code == 200


@pytest.mark.usefixtures("chats")
@pytest.mark.parametrize(("name", "code"), [("feishu", "code"), ("dingtalk", "authCode")])
def test_a_linked_account_of_a_chat_gets_in(provider: OidcProvider, name: str, code: str) -> None:
    back = partial(chat_answer, code)
    address = f"/console/sign-in/{name}"
    stranger = Client()
    refused = stranger.get(f"{address}/callback", back(stranger.get(address)["Location"]))
    assert "No user of this platform is linked" in refused.content.decode()
    assert not User.objects.exists()
    local = User.objects.create_superuser("local", password=PASSWORD)
    client = Client()
    client.post("/admin/login/", {"username": "local", "password": PASSWORD})
    page = client.post(f"{address}/link")
    client.get(f"{address}/callback", back(page.context["continue_url"]))
    account = SocialAccount.objects.get()
    assert (account.user, account.provider) == (local, name)
    assert "138" not in str(account.extra_data)
    assert f"Your account at {name} is linked" in client.get("/console/sessions").content.decode()
    other = Client()
    url = other.get(address, {"next": PAGE})["Location"]
    assert other.get(f"{address}/callback", back(url))["Location"] == PAGE
    assert is_in(other)
    assert other.get("/admin/auth/user/add/")["Location"].startswith("/console/confirm"), "no proof"
    account.refresh_from_db()
    assert "138" not in str(account.extra_data)
    provider.bodies = {"/app": b"{}", "/dt": b"{}"}
    broken = Client()
    page = broken.get(f"{address}/callback", back(broken.get(address)["Location"]))
    assert page.status_code in (403, 503)
