"""Every error is a problem document, tells what to change, and gives nothing away."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from msgplatform.doors.api.problems.problem import KINDS
from tests.support import api_support
from tests.support.answers import Answer
from tests.support.api_support import Api, problem

api = pytest.fixture(api_support.api)


class TestMapping:
    @pytest.mark.parametrize(
        ("name", "status", "slug", "says"),
        [
            ("input", 400, "invalid-input", "name: Use letters."),
            ("input-whole", 400, "invalid-input", "Nothing fits."),
            ("django-validation", 400, "invalid-input", "name: Too long."),
            ("permanent", 400, "invalid-input", "10.0.0.1 is private"),
            ("conflict", 409, "conflict", "new one"),
            ("unavailable", 503, "unavailable", "The queue is away."),
            ("lease", 409, "lease-lost", "ask for the next delivery"),
            ("database", 503, "unavailable", "Repeat the request later"),
            ("redis", 503, "unavailable", "Repeat the request later"),
            ("unknown", 503, "outcome-unknown", "repeat with the same idempotency key"),
            ("missing", 404, "not-found", "Nothing has this id"),
            ("denied", 403, "forbidden", "may not"),
            ("too-big", 413, "body-too-large", "smaller"),
            ("strange", 418, "other", "I am a teapot."),
        ],
    )
    def test_kinds(self, api: Api, name: str, status: int, slug: str, says: str) -> None:
        response = api.get(f"/api/v1/test/fault/{name}")
        assert says in problem(response, status, slug)["detail"]

    @pytest.mark.parametrize(
        ("name", "slug"), [("database", "outcome-unknown"), ("database-refused", "unavailable")]
    )
    def test_of_what_was_to_be_written(self, api: Api, name: str, slug: str) -> None:
        """A connection that broke may have broken during COMMIT."""
        problem(api.client.post(f"/api/v1/test/fault/{name}"), 503, slug)

    @pytest.mark.parametrize("name", ["unavailable", "database", "redis", "unknown"])
    def test_what_can_be_repeated_says_when(self, api: Api, name: str) -> None:
        assert 1 <= int(api.get(f"/api/v1/test/fault/{name}")["Retry-After"]) <= 60

    @pytest.mark.parametrize("name", ["database", "redis", "bug"])
    def test_no_secret_gets_out(self, api: Api, name: str) -> None:
        assert b"hunter2" not in api.get(f"/api/v1/test/fault/{name}").content

    def test_every_wrong_field_is_listed(self, api: Api) -> None:
        body = problem(api.get("/api/v1/test/fault/validation"), 400, "invalid-input")
        assert body["errors"] == [
            {"field": "name", "message": "This field is required."},
            {"field": "items[1].type", "message": "Wrong."},
            {"field": "items[1].type", "message": "Very wrong."},
            {"field": "", "message": "These do not go together."},
        ]
        assert "name: This field is required." in body["detail"]
        assert "1 more" in body["detail"]


class TestUnexpected:
    @pytest.fixture
    def log(self) -> Iterator[io.StringIO]:
        """What the log's own formatter writes."""
        root, stream = logging.getLogger(), io.StringIO()
        (formatter,) = (
            handler.formatter
            for handler in root.handlers
            if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter)
        )
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        root.addHandler(handler)
        yield stream
        root.removeHandler(handler)

    @pytest.mark.parametrize("path", ["/api/v1/test/fault/bug", "/api/plain/bug"])
    def test_the_id_is_in_the_log_with_the_cause(
        self, api: Api, path: str, log: io.StringIO
    ) -> None:
        body = problem(api.get(path), 500, "internal-error")
        self.assert_logged_once(body["error_id"], log)

    def test_a_page(self, api: Api, log: io.StringIO) -> None:
        response = api.get("/page/bug")
        assert_page(response, 500)
        shown = re.search(r"<code>([0-9a-f]{16})</code>", response.content.decode())
        assert shown
        self.assert_logged_once(shown[1], log)

    def assert_logged_once(self, error_id: str, log: io.StringIO) -> None:
        lines = [json.loads(line) for line in log.getvalue().splitlines()]
        assert [line["error_id"] for line in lines] == [error_id]
        assert "ZeroDivisionError: the password is hunter2" in lines[0]["exception"]

    def test_what_callers_do_wrong_is_not_logged(
        self, api: Api, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        api.get("/api/v1/test/fault/input")
        api.get("/api/v1/test/echo", "wrong")
        api.get("/api/v1/nothing")
        assert not caplog.records


class TestOutsideTheViews:
    @pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
    @pytest.mark.parametrize("debug", [False, True])
    @pytest.mark.parametrize("path", ["/api/nothing", "/api/v1/test/echo/", "/api/v1/"])
    def test_unknown_address(
        self, api: Api, path: str, method: str, debug: bool, settings: Any
    ) -> None:
        settings.DEBUG = debug
        api.client.handler.enforce_csrf_checks = True
        response = api.client.generic(method, path)
        detail = problem(response, 404, "not-found")["detail"]
        assert path in detail
        assert ("leave out the slash" in detail) is (path == "/api/v1/test/echo/")

    @pytest.mark.parametrize(
        ("name", "status", "slug"),
        [("denied", 403, "forbidden"), ("missing", 404, "not-found"),
         ("suspicious", 400, "bad-request"), ("too-big", 413, "body-too-large")],
    )  # fmt: skip
    def test_plain_views_below_api(self, api: Api, name: str, status: int, slug: str) -> None:
        problem(api.get(f"/api/plain/{name}"), status, slug)

    def test_a_host_that_is_not_ours(self, api: Api) -> None:
        problem(api.get("/api/v1/test/echo", HTTP_HOST="evil.example"), 400, "bad-request")

    @pytest.mark.parametrize(
        ("name", "status"),
        [("denied", 403), ("missing", 404), ("suspicious", 400), ("too-big", 413)],
    )
    def test_pages_elsewhere(self, api: Api, name: str, status: int) -> None:
        assert_page(api.get(f"/page/{name}"), status)

    def test_unknown_page(self, api: Api) -> None:
        assert_page(api.get("/nothing"), 404)

    def test_a_form_without_token(self, api: Api) -> None:
        api.client.handler.enforce_csrf_checks = True
        assert_page(api.client.post("/admin/login/", {"username": "x"}), 403)


def assert_page(response: Answer, status: int) -> None:
    """A page by itself: readable on a phone, in the dark, and without any other file."""
    assert response.status_code == status
    assert response["Content-Type"].startswith("text/html")
    page = response.content.decode()
    assert "width=device-width" in page
    assert "prefers-color-scheme: dark" in page
    assert "<link" not in page
    assert "<script" not in page
    assert "src=" not in page


class TestCatalogue:
    @pytest.mark.parametrize("slug", KINDS)
    def test_every_type_is_an_address(self, api: Api, slug: str) -> None:
        response = api.get(KINDS[slug].uri)
        assert_page(response, 200)
        assert KINDS[slug].title in response.content.decode()

    def test_all_of_them(self, api: Api) -> None:
        page = api.get("/problems/").content.decode()
        for kind in KINDS.values():
            assert f'id="{kind.slug}"' in page

    def test_one_that_is_none(self, api: Api) -> None:
        assert_page(api.get("/problems/nothing"), 404)

    def test_members_that_rfc_9457_names(self, api: Api) -> None:
        body = json.loads(api.get("/api/v1/test/fault/missing").content)
        assert list(body) == ["type", "title", "status", "detail"]
