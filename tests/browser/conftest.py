from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect, sync_playwright

from tests.cluster import PATIENT_LEASE_SECONDS, Cluster, times_of_notify

expect.set_options(timeout=60_000)  # the machine may be busy
PASSWORD = "a long password for tests"
# A browser that asks nobody but us.
_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ADMIN = f"""
import json
from django.contrib.auth import get_user_model
get_user_model().objects.create_superuser("admin", password={PASSWORD!r})
print(json.dumps(True))
"""


@pytest.fixture(scope="session")
def platform() -> Iterator[Cluster]:
    """The whole platform on SQLite, with an administrator."""
    folder = Path(tempfile.mkdtemp(prefix="mp-web-"))
    cluster = Cluster(folder, f"sqlite:///{folder / 'platform.db'}")
    cluster.environment |= times_of_notify(PATIENT_LEASE_SECONDS)
    with cluster as running:
        running.script(ADMIN)
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's own Chromium: the one that playwright would download is another."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium was not found: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=_QUIET, timeout=300_000)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def signed_in(platform: Cluster, browser: Browser) -> StorageState:
    """The cookies of a sign-in through the form."""
    context = browser.new_context()
    tab = context.new_page()
    tab.set_default_timeout(120_000)
    tab.goto(platform.base_url + "/")
    tab.fill("[name=username]", "admin")
    tab.fill("[name=password]", PASSWORD)
    tab.click("[type=submit]")
    tab.wait_for_url("**/console/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(platform: Cluster, browser: Browser, signed_in: StorageState) -> Iterator[Page]:
    """A signed-in page at the overview. A script error or a refused request fails the test."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, storage_state=signed_in)
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    # As of a script that the Content-Security-Policy refuses.
    tab.on("console", lambda line: line.type == "error" and wrong.append(line.text))
    tab.on(
        "response",
        lambda answer: answer.status >= 400 and wrong.append(f"{answer.status} {answer.url}"),
    )
    tab.goto(platform.base_url + "/console/")
    yield tab
    context.close()
    assert wrong == []
