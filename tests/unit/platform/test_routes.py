"""The route of a request: one of few, whatever address a caller makes up."""

import pytest
from django.urls import reverse

from msgplatform.doors.web.application import OTHER, Routes

ROUTES = Routes()


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/", "/"),
        ("/api/v1/messages", "/api/v1/messages"),
        ("/api/v1/messages/123", "/api/v1/messages"),
        ("/api/v1/messages/batch", "/api/v1/messages/batch"),
        ("/api/v1/feed/timelines/somebody/unread", "/api/v1/feed/timelines"),
        ("/api/v1/nothing", OTHER),
        ("/api/docs/", "/api/docs"),
        ("/console/search", "/console"),
        ("/admin/login/", "/admin/login"),
        ("/admin/auth/user/", "/admin"),
        ("/l/a-page/thanks", "/l"),
        ("/rpc", "/rpc"),
        ("/rpc/", "/rpc"),
        ("/static/console/console.css", "/static"),
        ("/metrics", "/metrics"),
        ("/nothing", OTHER),
        ("/nothing/console", OTHER),
        ("/" * 60_000 + "console", OTHER),
        ("nothing", OTHER),
        ("", OTHER),
        ("*", OTHER),
    ],
)
def test_the_longest_known_beginning(path: str, route: str) -> None:
    assert ROUTES.of(path) == route


def test_they_are_few_and_no_caller_adds_one() -> None:
    known = set(ROUTES)
    assert 20 < len(known) < 80
    for number in range(1000):
        assert ROUTES.of(f"/api/v1/messages/{number}/{number}") in known
    assert set(ROUTES) == known
    assert all(" " not in route for route in known)  # they are parts of names in Redis


@pytest.mark.parametrize(
    "name",
    ["home", "healthz", "readyz", "metrics", "rpc", "message-batch", "console:search", "api-docs",
     "problems", "django_rq:home", "admin:index", "lead-batch", "feed-posts"],
)  # fmt: skip
def test_what_is_served_has_a_route(name: str) -> None:
    assert ROUTES.of(reverse(name)) != OTHER
