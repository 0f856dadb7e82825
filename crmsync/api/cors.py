"""Pages hosted elsewhere: their scripts send leads with the landing page's public APPKEY.

The browser says where the page comes from (`Origin`), and asks first whether it may send (a
preflight request). A caller that is no browser can claim any origin: the list of origins only keeps
other people's pages from using an APPKEY. The limits hold for everybody.
"""

from django.http import HttpResponseBase
from django.utils.cache import patch_vary_headers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from crmsync import directory
from crmsync.models import LandingPage
from msgplatform.doors.api.access.authentication import HasScope

# How long a browser remembers the permission: a page that is removed stops within minutes.
PREFLIGHT_SECONDS = 600


class KeyOrPage(HasScope):
    """Admits an API key with the scope, or a page in a browser: the view checks its origin."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return may_be_page(request) or super().has_permission(request, view)


def origin_of(request: Request) -> str:
    return request.headers.get("Origin", "")


def is_preflight(request: Request) -> bool:
    requested_method = request.headers.get("Access-Control-Request-Method")
    return request.method == "OPTIONS" and bool(origin_of(request)) and bool(requested_method)


def may_be_page(request: Request) -> bool:
    """True if a page may have sent this: it has no key, and an origin."""
    # A request with a key comes from a business system, whatever its origin.
    if request.user is not None or not origin_of(request):
        return False
    return request.method == "POST" or is_preflight(request)


def admit(request: Request, page: LandingPage) -> None:
    """Raises PermissionDenied when this page does not allow the origin."""
    origin = origin_of(request)
    if origin not in page.allowed_origins:
        raise PermissionDenied(
            f"Origin: {origin[:200]} is not among the allowed origins of this landing page."
        )


def preflight() -> Response:
    """Allows what the browser asks for, provided that `add_headers` allows the origin."""
    return Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": "Content-Type, Idempotency-Key",
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        },
    )


def add_headers(request: Request, response: HttpResponseBase) -> None:
    """Let the page's script read the answer, errors included. Requests with a key get no such
    headers: a key does not belong into a page."""
    # A cache must not give one page's permission to another.
    patch_vary_headers(response, ["Origin"])
    if may_be_page(request) and directory.origins.allow(origin_of(request)):
        response["Access-Control-Allow-Origin"] = origin_of(request)
        response["Access-Control-Expose-Headers"] = "Retry-After"
