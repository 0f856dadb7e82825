"""Answers to errors outside DRF: problem+json under /api/, an HTML page elsewhere."""

import secrets
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template import loader
from django.urls import Resolver404, resolve, reverse
from django.utils.functional import Promise
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.doors.api.problems.handler import describe
from msgplatform.doors.api.problems.problem import KINDS, Problem, unavailable

log = logging.get(__name__)

API_PREFIX = "/api/"


def _answer(
    request: HttpRequest, problem: Problem, template: str, reason: str = ""
) -> HttpResponse:
    """The problem as JSON or as a page. `reason` replaces the template's own sentence."""
    if request.path.startswith(API_PREFIX):
        return problem.response()
    # No request and no context processors: these may use a session or the database.
    context = {"detail": problem.detail, "reason": reason, **problem.more}
    page = loader.get_template(template).render(context)
    return HttpResponse(page, status=problem.kind.status)


def _reason(exception: Exception) -> str:
    """The text that a view gave to its exception, or ''."""
    # The exception of Django's URL resolver has a dict of patterns instead.
    reason = exception.args[0] if exception.args else ""
    return str(reason) if isinstance(reason, str | Promise) else ""


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler400`."""
    problem = Problem(KINDS["bad-request"], "The request breaks the rules of HTTP.")
    if isinstance(exception, DisallowedHost):
        log.info("foreign_host", host=request.META.get("HTTP_HOST", "")[:200])
    if isinstance(exception, RequestDataTooBig):
        problem = describe(exception, None) or problem
    return _answer(request, problem, "400.html")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler403`."""
    problem = Problem(KINDS["forbidden"], str(exception) or KINDS["forbidden"].help)
    return _answer(request, problem, "403.html", _reason(exception))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's `CSRF_FAILURE_VIEW`, mostly for a form of an ended session: links to the page that
    sent the form, where the person logs in again."""
    page = loader.get_template("403_csrf.html").render({"form_url": page_of_form(request)})
    return HttpResponse(page, status=HTTPStatus.FORBIDDEN)


def page_of_form(request: HttpRequest) -> str:
    """The path of the page whose form was sent; the first page if it is another site's, which
    people would trust because of our page."""
    referer = urlsplit(request.headers.get("Referer", ""))
    path = referer._replace(scheme="", netloc="", fragment="").geturl()
    is_own = referer.netloc == request.get_host() and url_has_allowed_host_and_scheme(path, None)
    return path if is_own else reverse("home")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler404`."""
    detail = f"There is nothing at {request.path}; /api/docs/ lists all addresses."
    with suppress(Resolver404):
        path = request.path.rstrip("/")
        if path != request.path and resolve(path).func is not unknown_api_address:
            detail = (
                f"There is nothing at {request.path}: leave out the slash at its end. "
                "/api/docs/ lists all addresses."
            )
    return _answer(request, Problem(KINDS["not-found"], detail), "404.html", _reason(exception))


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`: the answer has an id by which the cause is found in the log.

    While the database is unavailable, every page of the console is answered here.
    """
    error = sys.exc_info()[1]
    # A random id: logs of all processes, which make their own ids, are searched together.
    error_id = secrets.token_hex(8)
    facts = {"error_id": error_id, "method": request.method, "path": request.path}
    if isinstance(error, UNAVAILABLE):
        # One line without a traceback: each visitor causes it while the server is away.
        log.warning("request_unavailable", why=f"{type(error).__name__}: {error}"[:300], **facts)
        server = "Redis" if isinstance(error, RedisError) else _("The database")
        text = f"{server} does not answer. Repeat the request later."
        problem = unavailable(text, {"error_id": error_id, "server": server})
        return _answer(request, problem, "503.html")
    log.error("request_failed", exc_info=True, **facts)
    problem = Problem(
        KINDS["internal-error"],
        f"The cause is in the log under {error_id}. Repeating later may help.",
        more={"error_id": error_id},
    )
    return _answer(request, problem, "500.html")


@csrf_exempt
def unknown_api_address(request: HttpRequest) -> HttpResponse:
    """The last route under /api/: 404 for every method, where Django would redirect to `…/`."""
    return not_found(request, Http404())


def catalogue(request: HttpRequest, slug: str = "") -> HttpResponse:
    """The pages to which the `type` of a problem leads: all kinds, or the kind `slug`."""
    if slug and slug not in KINDS:
        raise Http404
    kinds: list[Any] = [KINDS[slug]] if slug else list(KINDS.values())
    return render(request, "problems.html", {"kinds": kinds, "all": not slug})
