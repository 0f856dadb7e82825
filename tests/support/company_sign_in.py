"""A platform whose people sign in by a provider of the test."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from msgplatform import roles
from msgplatform.company.single_sign_on import company
from msgplatform.doors.api.access import throttling
from tests.support.oidc_provider import OidcProvider

# Every person may see it, and it costs a sixth of what the preferences with their time zones do.
PAGE = "/console/search"
LOGIN = "/console/sign-in/company"
CALLBACK = f"{LOGIN}/callback"


@pytest.fixture(scope="module")
def server() -> Iterator[OidcProvider]:
    running = OidcProvider()
    yield running
    running.close()


@pytest.fixture
def provider(server: OidcProvider) -> OidcProvider:
    server.reset()
    company.memories.clear()
    return server


@pytest.fixture(autouse=True)
def configured(
    db: None, provider: OidcProvider, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles.make()  # a test that commits leaves none of those that `migrate` makes
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.PUBLIC_URL = "http://testserver"
    settings.OIDC_TIMEOUT_SECONDS = 60
    for name, value in provider.settings().items():
        setattr(settings, name, value)
    provider.claims = {"groups": ["ops"], "preferred_username": "anna", "email": "a@example.com"}


def begin(client: Client, next_page: str = PAGE) -> str:
    """The address of the provider to which the browser is led."""
    left = client.get(LOGIN, {"next": next_page})
    assert left.status_code == 302, left.content.decode()
    return str(left["Location"])


def sign_in(provider: OidcProvider, client: Client | None = None) -> Any:
    client = client or Client()
    return client.get(CALLBACK, provider.authorize(begin(client)))


def is_in(client: Client) -> bool:
    return client.get(PAGE).status_code == 200
