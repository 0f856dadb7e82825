import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

expect.set_options(timeout=60_000)  # the machine may be busy
PASSWORD = "a long password for tests"
# A browser that asks nobody but us, and computes little.
_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A page lives too briefly for the compilers to be worth what they cost.
    "--js-flags=--no-opt,--no-maglev,--single-threaded-gc",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's own Chromium: the one that playwright would download is another."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium was not found: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=_QUIET, timeout=300_000)
        yield chromium
        chromium.close()
