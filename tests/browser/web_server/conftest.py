"""The web server alone, with one of everything: no daemon changes what a page shows."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, StorageState

from tests.browser.conftest import PASSWORD
from tests.browser.tabs import Tab, sign_in
from tests.cluster import WEB
from tests.flows.sms_cluster import SmsCluster
from tests.support.npm_provider import CLIENT, SECRET, npm_provider

ROWS = """
import json
from pathlib import Path
from tests.support import console_rows
print(json.dumps(console_rows.make(Path({folder!r}), {password!r})))
"""
Ids = dict[str, dict[str, str]]


@pytest.fixture(scope="session")
def empty_platform() -> Iterator[SmsCluster]:
    """With an OpenID provider; as `localhost`: no browser has security keys for an address."""
    folder = Path(tempfile.mkdtemp(prefix="mp-web-"))
    running = SmsCluster(folder, f"sqlite:///{folder / 'platform.db'}", {}, (WEB,))
    running.base_url = f"http://localhost:{running.port}"
    with npm_provider(running.base_url, folder / "provider.log") as issuer:
        running.environment |= {
            "PUBLIC_URL": running.base_url, "OIDC_ISSUER": issuer, "OIDC_CLIENT_ID": CLIENT,
            "OIDC_CLIENT_SECRET": SECRET, "OIDC_NAME": "Example Corp",
            "OIDC_ROLES": "ops=operator;staff=viewer", "OIDC_SCOPES": "openid,profile,email,groups",
        }  # fmt: skip
        with running:
            yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ids(empty_platform: SmsCluster) -> Ids:
    """Flow → the ids of its rows by name."""
    folder = str(empty_platform.folder)
    found: Ids = empty_platform.script(ROWS.format(folder=folder, password=PASSWORD))
    return found


@pytest.fixture(scope="session")
def platform(empty_platform: SmsCluster, ids: Ids) -> SmsCluster:
    """Everything is in its database."""
    return empty_platform


@pytest.fixture(scope="session")
def admin(platform: SmsCluster) -> StorageState:
    """The cookies of a person who may do everything."""
    return sign_in(platform.base_url, "admin")


@pytest.fixture(scope="session")
def tab(platform: SmsCluster, browser: Browser) -> Iterator[Tab]:
    running = Tab(browser, platform.base_url)
    yield running
    running.close()
