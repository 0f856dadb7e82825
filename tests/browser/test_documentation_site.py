"""The documentation as the platform serves it: its search works without the network, under the
platform's Content-Security-Policy."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.wsgi import get_wsgi_application
from playwright.sync_api import Browser, expect
from pytest_django.fixtures import Settings

ROOT = Path(__file__).resolve().parents[2]


class Handler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "site"
    subprocess.run([ROOT / "scripts" / "site.sh", folder], check=True, timeout=300)
    return folder


@pytest.fixture
def address(site: Path, settings: Settings) -> Iterator[str]:
    settings.SITE_DIR = site
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/docs/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("width", [1280, 375])
def test_a_word_is_found(browser: Browser, address: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    faults: list[str] = []
    foreign: list[str] = []
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else 0
    )
    page.on("request", lambda r: foreign.append(r.url) if not r.url.startswith(address[:22]) else 0)
    page.goto(address)
    expect(page.locator("h1")).to_have_text("Documentation¶")
    if width < 600:
        page.locator("label[for=__search]").first.click()
    # Key by key: its script hears keys, and a value that is set is seen by chance.
    page.get_by_role("textbox", name="Search").press_sequentially("watermark")
    result = page.locator(".md-search-result__link").first
    result.wait_for()
    result.click()
    page.wait_for_url("**/*.html?h=watermark*")
    assert "watermark" in page.locator("article").inner_text()
    assert (faults, foreign) == ([], [])
    page.close()
