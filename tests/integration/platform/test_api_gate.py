"""The API's own middleware: nothing of what Django's classes do for it is lost."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.test import Client, RequestFactory

from msgplatform.web.handlers import ApiHandler, Handler
from msgplatform.web.wsgi import application

pytestmark = pytest.mark.django_db
ADDRESSES = ["/api/v1/messages", "/api/nothing", "/api/docs", "/rpc/"]


class Answer:
    """What the API's chain says to a request made as Django's test client makes it."""

    def __init__(self, handler: Any, method: str, path: str, **extra: Any) -> None:
        environ = RequestFactory().generic(method, path, **extra).environ
        self.body = b"".join(handler(environ, self._start))

    def _start(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.status, self.headers = int(status[:3]), dict(headers)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"SECURE_SSL_REDIRECT": True, "SECURE_HSTS_SECONDS": 60, "SECURE_HSTS_PRELOAD": True},
    {"SECURE_HSTS_SECONDS": 60, "SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https")},
    {"X_FRAME_OPTIONS": "SAMEORIGIN", "SECURE_REFERRER_POLICY": "no-referrer"},
    {"USE_X_FORWARDED_HOST": True},
]
REQUESTS: list[dict[str, Any]] = [
    {},
    {"secure": True},
    {"HTTP_X_FORWARDED_PROTO": "https"},
    {"HTTP_HOST": "evil.example"},
    {"HTTP_X_FORWARDED_HOST": "evil.example"},
    {"HTTP_HOST": "testserver:99999:1"},
]


@pytest.mark.parametrize("changed", SETTINGS)
@pytest.mark.parametrize("extra", REQUESTS)
@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_same_answer_as_from_all_middleware(
    settings: Any, work_redis: object, changed: dict, extra: dict, path: str, method: str
) -> None:
    for name, value in changed.items():
        setattr(settings, name, value)
    ours = Answer(ApiHandler(), method, path, **extra)
    # A new client each time: its handler reads the settings once.
    theirs = Client(raise_request_exception=False).generic(method, path, **extra)
    assert ours.status == theirs.status_code
    # At least: an answer of the outermost class does not pass through the others.
    assert ours.headers.items() >= dict(theirs.items()).items()
    assert set(ours.headers) - set(theirs.headers) <= {"X-Frame-Options", "Content-Length"}
    assert ours.body == theirs.content


def test_a_good_host_opens_nothing_for_a_bad_one(settings: Any, work_redis: object) -> None:
    handler = ApiHandler()
    for host, status in [("testserver", 401), ("evil.example", 400), ("testserver", 401)]:
        assert Answer(handler, "GET", ADDRESSES[0], HTTP_HOST=host).status == status
    for n in range(1000):
        Answer(handler, "GET", ADDRESSES[0], HTTP_HOST=f"evil{n}.example")
    assert Answer(handler, "GET", ADDRESSES[0], HTTP_HOST="evil1.example").status == 400


def test_no_session_and_no_cookie_is_looked_at(work_redis: object) -> None:
    cookie = {"HTTP_COOKIE": "sessionid=abc; csrftoken=def; messages=ghi"}
    answer = Answer(application, "POST", "/api/v1/messages", **cookie)
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert "Cookie" not in answer.headers.get("Vary", "")


def test_pages_keep_all_middleware(work_redis: object) -> None:
    """A form without its token is refused, a page without a session leads to the login."""
    assert Answer(application, "GET", "/console/").status == 302
    assert Answer(application, "POST", "/admin/login/").status == 403


def test_an_address_that_only_begins_alike_is_a_page() -> None:
    def named(name: str) -> Any:
        return lambda environ, start: [name.encode()]

    handler = Handler(pages=named("pages"), api=named("api"))
    for path, name in {"/api/x": b"api", "/apis": b"pages", "/": b"pages", "": b"pages"}.items():
        assert list(handler({"PATH_INFO": path}, None)) == [name]


def test_addresses_that_callers_make_up_are_not_remembered(work_redis: object) -> None:
    handler = ApiHandler()
    for n in range(1000):
        path = f"/api/v1/messages/{n}"
        environ = RequestFactory().get(path).environ
        environ["wsgi.input"] = io.BytesIO()
        list(handler(environ, lambda *_: None))
        Answer(handler, "GET", f"/api/nothing/{n}")
    assert len(handler._matches) < 300
    # The rule for unknown addresses is one that takes no parameters: it is remembered, bounded.
    assert Answer(handler, "GET", "/api/v1/messages").status == 401
