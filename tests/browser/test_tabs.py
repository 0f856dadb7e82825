"""A page that tests use one after another begins without anything of the test before."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, StorageState

from tests.browser.tabs import NOBODY, Tab

SESSION: StorageState = {
    "cookies": [
        {"name": "sessionid", "value": "1", "domain": "localhost", "path": "/", "expires": -1,
         "httpOnly": True, "secure": False, "sameSite": "Lax"},
    ],
    "origins": [],
}  # fmt: skip


class Site(BaseHTTPRequestHandler):
    """Pages without an icon. The answer to the request for one renews the session, as any answer
    may, and comes when the next test has begun."""

    is_asked, is_next, is_answered = threading.Event(), threading.Event(), threading.Event()

    def do_GET(self) -> None:
        has_session = "sessionid" in self.headers.get("Cookie", "")
        if self.path == "/favicon.ico":
            self.is_asked.set()
            self.is_next.wait(60)
        elif not has_session and self.is_asked.is_set():
            self.is_next.set()
            self.is_answered.wait(60)
        self.send_response(200)
        if has_session:
            self.send_header("Set-Cookie", "sessionid=2")
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()
        if self.path == "/favicon.ico":
            self.is_answered.set()


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_late_answer_brings_no_session_of_the_test_before(browser: Browser, url: str) -> None:
    tab = Tab(browser, url)
    with tab.of(SESSION) as page:
        page.goto(f"{url}/a-page")
        assert Site.is_asked.wait(60), "the browser asks for no icon"
    with tab.of(NOBODY) as page:
        page.goto(f"{url}/another")
        assert page.context.cookies() == []
    Site.is_next.set()
    tab.close()
