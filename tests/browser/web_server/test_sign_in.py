"""People sign in: by a certified OpenID provider (npm: oidc-provider), with an authenticator app,
with a security key (Chromium's virtual one), with a recovery code; at a desk and on a telephone."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, StorageState, ViewportSize, expect

from tests.browser.conftest import PASSWORD
from tests.browser.pages import wrong_with
from tests.browser.tabs import NOBODY, Tab
from tests.cluster import Cluster
from tests.support import totp

DESK: ViewportSize = {"width": 1280, "height": 900}
TELEPHONE: ViewportSize = {"width": 390, "height": 844}
FACTORS = "/console/sign-in/second-factor/"
PEOPLE = f"""
import json
from django.contrib.auth import get_user_model
for name in ("app", "key"):
    get_user_model().objects.create_superuser(name, password={PASSWORD!r})
print(json.dumps(True))
"""
WHO = """
import json
from django.contrib.auth.models import User
person = User.objects.get(username="anna")
print(json.dumps([person.email, person.is_staff, [each.name for each in person.groups.all()]]))
"""
PROOF = """
import json
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.contrib.sessions.backends.db import SessionStore
person = User.objects.get(username={name!r})
for row in Session.objects.all():
    store = SessionStore(row.pk)
    if store.get("_auth_user_id") == str(person.pk):
        store["confirmed_at"] = {at}
        store.save()
print(json.dumps(True))
"""


@pytest.fixture(scope="module", autouse=True)
def people(platform: Cluster) -> None:
    """`app` and `key` have only a password."""
    platform.script(PEOPLE)


@pytest.fixture
def page(tab: Tab) -> Iterator[Page]:
    """Nobody is signed in. A script error, or a page that is a fault, fails the test."""
    with tab.of(NOBODY, range(400, 500)) as page:
        page.set_viewport_size(DESK)
        yield page


def look(page: Page, name: str) -> None:
    """The page is for everybody, at a desk by day and on a telephone by night."""
    found = wrong_with(page)
    page.set_viewport_size(TELEPHONE)
    page.evaluate("document.documentElement.classList.add('dark')")
    found += [f"dark: {each}" for each in wrong_with(page)]
    page.evaluate("document.documentElement.classList.remove('dark')")
    page.set_viewport_size(DESK)
    assert found == [], name


def sign_in_there(page: Page, base_url: str, account: str) -> None:
    page.goto(f"{base_url}/admin/login/")
    page.click("#company")
    page.fill("[name=login]", account)
    page.fill("[name=password]", "any")
    page.click("[type=submit]")
    page.get_by_role("button", name="Continue").click()


def log_in(page: Page, base_url: str, name: str) -> None:
    page.goto(f"{base_url}/admin/login/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("[type=submit]")


def log_out(page: Page) -> None:
    with page.expect_navigation():
        page.locator("form[action='/admin/logout/']").evaluate("form => form.submit()")


def fresh_code(secret: str, used: str) -> str:
    """A code that was not used yet; one of the step before or after is taken, too."""
    now = time.time()
    return next(c for c in (totp.code(secret, now + s) for s in (30, 0, -30)) if c != used)


def test_by_the_provider_and_out_at_both(platform: Cluster, page: Page) -> None:
    page.goto(f"{platform.base_url}/admin/login/")
    expect(page.locator("#company")).to_have_text("Sign in with Example Corp")
    look(page, "login")
    sign_in_there(page, platform.base_url, "anna.ops.unknown")
    page.wait_for_url("**/console/")
    assert platform.script(WHO) == ["anna@example.com", True, ["Operator"]]
    page.goto(f"{platform.base_url}/console/sessions")
    expect(page.get_by_text("this one", exact=True)).to_be_visible()
    look(page, "sessions")
    log_out(page)
    page.get_by_role("button", name="Yes, sign me out").click()
    page.wait_for_url("**/admin/login/")
    expect(page.get_by_text("You are signed out, here and at the provider.")).to_be_visible()
    page.click("#company")
    expect(page.locator("[name=password]")).to_be_visible()  # the provider asks again


def test_a_form_leads_to_the_proof_at_the_provider(platform: Cluster, page: Page) -> None:
    """The browser stops a redirect to another site after a form."""
    sign_in_there(page, platform.base_url, "emil.staff")
    page.wait_for_url("**/console/")
    platform.script(PROOF.format(name="emil", at=time.time()))
    page.goto(f"{platform.base_url}{FACTORS}totp/activate/")
    platform.script(PROOF.format(name="emil", at=0))
    page.fill("[name=code]", "000000")
    page.get_by_role("button", name="Activate").click()
    page.wait_for_url(f"{platform.environment['OIDC_ISSUER']}/**")
    expect(page.locator("[name=password]")).to_be_visible()


def test_the_provider_ends_the_session(platform: Cluster, page: Page) -> None:
    page.set_viewport_size(TELEPHONE)
    sign_in_there(page, platform.base_url, "berta.staff")
    page.wait_for_url("**/console/")
    issuer = platform.environment["OIDC_ISSUER"]
    page.goto(f"{issuer}/session/end")
    page.get_by_role("button", name="Yes, sign me out").click()
    expect(page.get_by_text("Sign-out Success")).to_be_visible()
    page.goto(f"{platform.base_url}/console/")
    page.wait_for_url("**/admin/login/**")


def test_nobody_gets_in_without_a_role(platform: Cluster, page: Page) -> None:
    sign_in_there(page, platform.base_url, "carl.marketing")
    expect(page.get_by_text("none of your groups has a role on this platform")).to_be_visible()
    expect(page.get_by_text("Your name there: carl")).to_be_visible()
    look(page, "refused")
    page.get_by_role("link", name="Back to the login").click()
    page.wait_for_url("**/admin/login/")


def test_a_colleague_is_invited(platform: Cluster, page: Page, admin: StorageState) -> None:
    """Three actions: the form, the link that is handed over, the password."""
    page.context.add_cookies(admin["cookies"])  # type: ignore[arg-type]
    page.goto(f"{platform.base_url}/admin/auth/user/")
    look(page, "people")
    page.get_by_role("link", name="Invite a person").click()
    page.fill("[name=username]", "dora")
    page.fill("[name=email]", "dora@example.com")
    page.get_by_label("Operator:").check()
    look(page, "invite")
    page.get_by_role("button", name="Save").click()
    link = page.locator("#secret").inner_text()
    look(page, "link")
    page.get_by_role("link", name="I have saved it").click()
    expect(page.get_by_role("button", name="Revoke the invitation")).to_be_visible()
    look(page, "person")

    page.context.clear_cookies()
    page.goto(link)
    look(page, "choose")
    for name in ("new_password1", "new_password2"):
        page.fill(f"[name={name}]", PASSWORD)
    page.get_by_role("button", name="Choose this password").click()
    page.wait_for_url(f"**{FACTORS}")
    expect(page.locator("[href$='totp/activate/']")).to_be_visible()
    page.goto(f"{platform.base_url}/console/")
    page.wait_for_url("**/console/")
    dora = "import json\nfrom django.contrib.auth.models import User\n"
    dora += 'rows = User.objects.get(username="dora").groups.all()\n'
    assert platform.script(f"{dora}print(json.dumps([row.name for row in rows]))") == ["Operator"]


def test_an_authenticator_app_and_recovery_codes(platform: Cluster, page: Page) -> None:
    log_in(page, platform.base_url, "app")
    page.wait_for_url("**/console/")
    page.goto(platform.base_url + FACTORS)
    look(page, "no factors")
    page.locator("[href$='totp/activate/']").click()
    look(page, "set up an app")
    secret = page.locator("#authenticator_secret").input_value()
    used = totp.code(secret)
    page.fill("[name=code]", used)
    page.get_by_role("button", name="Activate").click()
    page.wait_for_url("**/recovery-codes/")
    look(page, "recovery codes")
    recovery = page.locator("#recovery_codes").input_value().split()
    assert len(recovery) == 10
    log_out(page)

    log_in(page, platform.base_url, "app")
    page.wait_for_url("**/authenticate/")
    look(page, "authenticate")
    page.fill("[name=code]", "000000")
    page.get_by_role("button", name="Sign In").click()
    expect(page.get_by_role("alert")).to_have_text("Incorrect code.")
    page.fill("[name=code]", fresh_code(secret, used))
    page.get_by_role("button", name="Sign In").click()
    page.wait_for_url("**/console/")

    platform.script(PROOF.format(name="app", at=0))
    page.goto(f"{platform.base_url}/admin/auth/user/add/")
    page.wait_for_url("**/reauthenticate/**")
    look(page, "confirm")
    page.fill("[name=code]", recovery[0])
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url("**/admin/auth/user/add/")
    log_out(page)

    log_in(page, platform.base_url, "app")
    page.fill("[name=code]", recovery[0])
    page.get_by_role("button", name="Sign In").click()
    expect(page.get_by_role("alert")).to_have_text("Incorrect code.")
    page.fill("[name=code]", recovery[1])
    page.get_by_role("button", name="Sign In").click()
    page.wait_for_url("**/console/")


def test_a_security_key(platform: Cluster, page: Page) -> None:
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": {
        "protocol": "ctap2", "transport": "usb", "hasResidentKey": True,
        "hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True,
    }})  # fmt: skip
    log_in(page, platform.base_url, "key")
    page.wait_for_url("**/console/")
    page.goto(f"{platform.base_url}{FACTORS}webauthn/add/")
    look(page, "add a key")
    page.fill("[name=name]", "Blue key")
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/recovery-codes/")
    page.goto(f"{platform.base_url}{FACTORS}webauthn/")
    expect(page.get_by_text("Blue key")).to_be_visible()
    look(page, "keys")
    log_out(page)

    log_in(page, platform.base_url, "key")
    page.wait_for_url("**/authenticate/")
    page.set_viewport_size(TELEPHONE)
    page.get_by_role("button", name="Use a security key").click()
    page.wait_for_url("**/console/")
    platform.script(PROOF.format(name="key", at=0))
    page.goto(f"{platform.base_url}/admin/auth/user/add/")
    page.wait_for_url("**/reauthenticate/**")
    page.get_by_role("link", name="Use a security key").click()
    look(page, "confirm by a key")
    page.get_by_role("button", name="Use a security key").click()
    page.wait_for_url("**/admin/auth/user/add/")
    devtools.detach()
