"""What OpenID Connect Discovery 1.0 and Core 1.0 leave to a provider, sentence by sentence: however
it does it, people get in; and what they forbid, whatever a library takes, keeps them out.

Each row names its section; C is Core, D is Discovery.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from msgplatform.models import Alert, AuditLog
from tests.support import company_sign_in
from tests.support.company_sign_in import CALLBACK, LOGIN, begin, is_in, sign_in
from tests.support.oidc_provider import CLIENT, OidcProvider, new_key, public_entry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
server, provider = company_sign_in.server, company_sign_in.provider
configured = company_sign_in.configured

Habit = Callable[[OidcProvider], object]
CONFIGURATION = "/.well-known/openid-configuration"
METHODS = "token_endpoint_auth_methods_supported"


def document(**members: Any) -> Habit:
    return lambda provider: provider.document.update(members)


def claims(**members: Any) -> Habit:
    return lambda provider: provider.claims.update(members)


def times(**seconds: float) -> Habit:
    """Claims that are so many seconds from now."""
    return lambda provider: provider.claims.update(
        {name: time.time() + each for name, each in seconds.items()}
    )


def answer(**members: Any) -> Habit:
    return lambda provider: provider.answer.update(members)


def types(path: str, value: str) -> Habit:
    return lambda provider: provider.types.update({path: value})


def key(**members: Any) -> Habit:
    return lambda provider: provider.jwk.update(members)


def header(**members: Any) -> Habit:
    return lambda provider: provider.header.update(members)


def issuer_at(path: str) -> Habit:
    return lambda provider: setattr(provider, "path", path)


def signs_with(algorithm: str) -> Habit:
    return lambda provider: provider.sign_with(algorithm)


def without_kid(provider: OidcProvider) -> None:
    provider.kid = None


def all_of(*habits: Habit) -> Habit:
    return lambda provider: [habit(provider) for habit in habits]


def query_of(name: str, path: str) -> Habit:
    return lambda provider: provider.document.update({name: f"{provider.root}{path}?tenant=a%20b"})


def userinfo(**members: Any) -> Habit:
    """The groups are there alone."""

    def change(provider: OidcProvider) -> None:
        provider.claims.pop("groups", None)
        provider.userinfo = {"groups": ["ops"], **members}

    return change


def signed_userinfo(**members: Any) -> Habit:
    def change(provider: OidcProvider) -> None:
        userinfo(**members)(provider)
        provider.signs_userinfo = True

    return change


def more_keys(*entries: Callable[[], dict[str, Any]]) -> Habit:
    return lambda provider: provider.more_keys.extend(entry() for entry in entries)


def entry(**members: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {**public_entry(new_key()), **members}


ALLOWED: dict[str, Habit] = {
    # -- Discovery: the document
    "D 3 members that nobody knows": document(x_new={"a": [1]}, claims_parameter_supported=True),
    "D 3 no user information": document(userinfo_endpoint=None),
    "D 3 no logout": document(end_session_endpoint=None),
    "D 3 no methods named": document(**{METHODS: None}),
    "D 3 both methods": document(**{METHODS: ["client_secret_basic", "client_secret_post"]}),
    "D 3 the header, beside methods of others": document(
        **{METHODS: ["private_key_jwt", "client_secret_basic", "tls_client_auth"]}
    ),
    "D 3 algorithms for others": document(
        id_token_signing_alg_values_supported=["none", "HS256", "RS256"]
    ),
    "D 3 an issuer with a path": issuer_at("/realms/staff"),
    "D 4.1 an issuer with a last slash": issuer_at("/"),
    "D 4.1 a path with a last slash": issuer_at("/tenant/v2.0/"),
    "D 4.2 a charset": types(CONFIGURATION, "application/json; charset=UTF-8"),
    "D 3 a query of the login page": query_of("authorization_endpoint", "/authorize"),
    "D 3 a query of the token endpoint": query_of("token_endpoint", "/token"),
    "D 3 a query of the keys": query_of("jwks_uri", "/keys"),
    # -- the answer of the token endpoint
    "C 3.1.3.3 bearer in small letters": answer(token_type="bearer"),
    "C 3.1.3.3 members that nobody knows": answer(scope="openid", refresh_token="r", ext={"a": 1}),
    "C 3.1.3.3 no end of the access token": answer(expires_in=None),
    "C 3.1.3.3 an end after all calendars": answer(expires_in=10**15),
    "C 3.1.3.3 an end as text": answer(expires_in="3599.0"),
    "C 3.1.3.3 a media type in capitals": types("/token", "Application/JSON;charset=UTF-8"),
    "C 3.1.3.3 a blank before the parameter": types("/token", "application/json ; charset=utf-8"),
    # -- the ID token
    "C 2 a list of one audience": claims(aud=[CLIENT]),
    "C 2 a list with the authorized party": claims(aud=["api", CLIENT], azp=CLIENT),
    "C 2 the authorized party of one": claims(azp=CLIENT),
    "C 2 parts of a second": times(iat=-0.5, exp=3600.25, auth_time=-1.75),
    "C 2 a subject of 255 characters": claims(sub="S" * 255),
    "C 2 a subject of any characters": claims(sub="Ann|AD\\x/ü 1"),
    "C 2 claims that nobody knows": claims(acr="1", amr=["pwd", "otp"], sid="s", x={"y": [None]}),
    "C 3.1.3.7 the clock ahead": times(iat=50, nbf=50),
    "C 3.1.3.7 the clock behind": times(iat=-400, exp=-30),
    "C 3.1.3.7 a hash of the access token": claims(at_hash="x", c_hash="y"),
    "C 2 another type in the header": header(typ="at+jwt", cty="JWT"),
    "C 2 no type in the header": header(typ=None),
    # -- signatures and keys
    **{
        f"C 10.1 {algorithm}": signs_with(algorithm)
        for algorithm in ("RS256", "RS512", "PS256", "PS512", "ES256", "ES384", "ES512", "EdDSA")
    },
    "C 10.1 no key id, one key": all_of(key(kid=None), without_kid),
    "C 10.1 a key without an id": key(kid=None),
    "C 10.1 no key id, several keys": all_of(without_kid, more_keys(entry(kid="a"), entry())),
    "C 10.1 one key id for several keys": more_keys(
        entry(use="enc"), entry(alg="ES512"), entry(), lambda: {"kid": "one", "kty": "unknown"}
    ),
    "C 10.1 no use, no algorithm": key(use=None, alg=None),
    "C 10.1 what a key may do": key(use=None, key_ops=["verify"]),
    "C 10.1 a certificate, and members that nobody knows": key(x5c=["MIIB"], x5t="t", ext=True),
    "C 10.1.1 a new key beside the old one": more_keys(entry(kid="old"), entry(kid="older")),
    # -- claims about people
    "C 5.3.2 groups in the user information": userinfo(),
    "C 5.3.2 signed user information": signed_userinfo(),
    "C 5.3.2 signed, and without audience": signed_userinfo(aud=None, iss=None, iat=None),
    "C 5.3.2 signed, for several": signed_userinfo(aud=["api", CLIENT]),
    "C 5.3.2 a charset": all_of(userinfo(), types("/userinfo", "application/json;charset=utf-8")),
    "C 5.1 any name": claims(preferred_username="王伟 /a@b\\c "),
    "C 5.1 a long name": claims(preferred_username="n" * 400, given_name="g" * 400, name="x" * 900),
    "C 5.1 a picture as a name": claims(preferred_username="😀", family_name="😀"),
    "C 5.1 no name at all": claims(preferred_username=None, email=None),
    "C 5.1 a long address": claims(email=f"{'a' * 300}@example.com", email_verified=False),
    "C 5.1.1 an address, and names in languages": claims(
        address={"formatted": "x\r\ny"}, updated_at=1795392000, **{"family_name#ja-Kana-JP": "ク"}
    ),
    "C 5.6.2 claims elsewhere": claims(
        _claim_names={"phone": "src"}, _claim_sources={"src": {"endpoint": "https://x.example/"}}
    ),
}  # fmt: skip


# The milder one of two that are alike: it runs under the full load.
MILDER = {
    "D 3 members that nobody knows", "D 3 no logout", "D 3 both methods",
    "D 3 an issuer with a path", "D 4.1 an issuer with a last slash",
    "D 3 a query of the token endpoint", "D 3 a query of the keys",
    "C 3.1.3.3 bearer in small letters", "C 3.1.3.3 members that nobody knows",
    "C 3.1.3.3 no end of the access token", "C 3.1.3.3 a media type in capitals",
    "C 2 a list of one audience", "C 2 the authorized party of one",
    "C 2 another type in the header", "C 10.1 RS512", "C 10.1 PS256", "C 10.1 ES384",
    "C 10.1 a key without an id", "C 10.1 no use, no algorithm", "C 10.1 what a key may do",
    "C 5.3.2 signed, for several", "C 5.3.2 a charset",
}  # fmt: skip
assert ALLOWED.keys() > MILDER


@pytest.mark.parametrize(
    "habit",
    [pytest.param(name, marks=[pytest.mark.full] * (name in MILDER)) for name in ALLOWED],
)
def test_people_get_in(provider: OidcProvider, settings: Settings, habit: str) -> None:
    ALLOWED[habit](provider)
    for name, value in provider.settings().items():
        setattr(settings, name, value)
    client = Client()
    page = sign_in(provider, client)
    assert page.status_code == 302, page.content.decode()
    assert is_in(client)
    again = Client()
    sign_in(provider, again)
    assert is_in(again)
    assert User.objects.count() == 1, "the same person is another one the second time"
    assert not Alert.objects.exists()


def stranger(provider: OidcProvider) -> None:
    provider.signing_key = new_key()
    provider.header["jwk"] = public_entry(provider.signing_key)


FORBIDDEN: dict[str, tuple[Habit, str]] = {
    "C 2 an extension that must be understood": (header(crit=["exp"], exp=1), "token"),
    "C 2 a key that the token brings along": (stranger, "signature"),
    "C 3.1.3.7 no audience of ours": (claims(aud=["api", "web"]), "audience"),
    "C 3.1.3.7 an audience in capitals": (claims(aud=CLIENT.upper()), "audience"),
    "C 3.1.3.7 a subject of somebody else": (userinfo(sub="U1"), "userinfo"),
    "C 5.3.2 signed for another client": (signed_userinfo(aud="api"), "userinfo"),
    "C 5.3.2 signed by another issuer": (signed_userinfo(iss="https://x.example"), "userinfo"),
    "D 3 no secret": (document(**{METHODS: ["private_key_jwt", "none"]}), "document"),
    "D 4.3 another issuer": (document(issuer="https://x.example/"), "issuer"),
}  # fmt: skip


@pytest.mark.parametrize("habit", FORBIDDEN)
def test_nobody_gets_in(provider: OidcProvider, habit: str) -> None:
    change, reason = FORBIDDEN[habit]
    change(provider)
    client = Client()
    left = client.get(LOGIN)
    if left.status_code == 302:
        left = client.get(CALLBACK, provider.authorize(str(left["Location"])))
    assert left.status_code == 403
    assert not is_in(client)
    assert AuditLog.objects.filter(action="sign_in_refused").latest("pk").target == reason


@pytest.mark.parametrize("secret", ["a+b/c==", "50%:off", "é ü"])
@pytest.mark.parametrize("methods", [["client_secret_basic"], None, []])
def test_a_client_authenticates_in_the_header(
    provider: OidcProvider, settings: Settings, secret: str, methods: list[str] | None
) -> None:
    """C 9: form-encoded there (RFC 6749, 2.3.1)."""
    provider.document[METHODS] = methods
    app = settings.SOCIALACCOUNT_PROVIDERS["company"]["APPS"][0]
    app["secret"] = provider.secret = secret
    client = Client()
    sign_in(provider, client)
    assert is_in(client)


def test_keys_change_between_two_logins(provider: OidcProvider) -> None:
    """C 10.1.1, also where the new key has the id of the old one."""
    for algorithm in ("ES256", "ES256", "RS256"):
        provider.sign_with(algorithm)
        client = Client()
        sign_in(provider, client)
        assert is_in(client)


def test_subjects_are_case_sensitive(provider: OidcProvider) -> None:
    """C 2, also in a database whose columns take `U1` and `u1` for one, or drop blanks."""
    subjects = ["u1", "U1", "u1 ", "ü1", "u1" + "x" * 250]
    for subject in subjects:
        provider.claims["sub"] = subject
        sign_in(provider)
        sign_in(provider)
    assert User.objects.count() == SocialAccount.objects.count() == len(subjects)


@pytest.mark.parametrize("more", [
    {"session_state": "a.b"}, {"iss": "https://x.example", "scope": "openid"}, {"x": "y" * 500},
])  # fmt: skip
def test_further_parameters_of_the_way_back(provider: OidcProvider, more: dict[str, str]) -> None:
    """C 3.1.2.5."""
    client = Client()
    client.get(CALLBACK, {**provider.authorize(begin(client)), **more})
    assert is_in(client)


def test_a_long_code(provider: OidcProvider) -> None:
    client, code = Client(), "c" * 4000
    back = provider.authorize(begin(client))
    provider.codes[code] = provider.codes.pop(back["code"])
    client.get(CALLBACK, {**back, "code": code})
    assert is_in(client)


ERRORS = {  # C 3.1.2.6, RFC 6749 4.1.2.1 → whether it is more than a person's refusal
    "access_denied": False, "login_required": False, "interaction_required": False,
    "account_selection_required": False, "consent_required": False,
    "invalid_request": True, "unauthorized_client": True, "unsupported_response_type": True,
    "invalid_scope": True, "server_error": True, "temporarily_unavailable": True,
    "request_not_supported": True, "invalid_request_uri": True, "an_error_of_its_own": True,
}  # fmt: skip


@pytest.mark.parametrize("error", ERRORS)
def test_errors_of_the_login_page(provider: OidcProvider, error: str) -> None:
    client = Client()
    state = provider.authorize(begin(client))["state"]
    said = {"error": error, "error_description": "Nö <b>\r\n", "error_uri": "https://x.example/"}
    page = client.get(CALLBACK, {**said, "state": state})
    assert page.status_code == 403
    assert ("was cancelled" in page.content.decode()) is not ERRORS[error]
    assert not Alert.objects.exists(), "anybody can send an error"
    assert not is_in(client)
