import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState

from tests.browser.tabs import Tab, page_of_its_own, sign_in
from tests.browser.whole_platform.platform import Platform
from tests.cluster import DAEMONS


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """The web server on SQLite, with an administrator; tests ask for the daemons that they need."""
    folder = Path(tempfile.mkdtemp(prefix="mp-web-"))
    with Platform(folder) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def notify(platform: Platform) -> None:
    """The daemons that deliver messages; they stay."""
    for name in DAEMONS:
        platform.start(name)


@pytest.fixture
def sync(platform: Platform) -> Iterator[None]:
    """The daemons that carry leads."""
    with platform.running("run_sync_poller", "run_sync_handler"):
        yield


@pytest.fixture(scope="session")
def signed_in(platform: Platform) -> StorageState:
    """The cookies of the administrator."""
    return sign_in(platform.base_url, "admin")


@pytest.fixture(scope="session")
def tab(platform: Platform, browser: Browser) -> Iterator[Tab]:
    running = Tab(browser, platform.base_url)
    yield running
    running.close()


@pytest.fixture
def page(tab: Tab, signed_in: StorageState) -> Iterator[Page]:
    """A signed-in page. A script error or a refused request fails the test."""
    with tab.of(signed_in) as page:
        yield page


@pytest.fixture
def page_with_clock(browser: Browser, signed_in: StorageState) -> Iterator[Page]:
    """The same, with a clock that the test sets."""
    with page_of_its_own(browser, signed_in) as page:
        page.clock.install()
        yield page
