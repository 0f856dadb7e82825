"""/healthz, /readyz and /metrics: plain views, outside the REST API."""

import hmac
import ipaddress
import time
from collections.abc import Callable
from concurrent.futures import Future
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from msgplatform.core import logging
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.daemons import bounded_call
from msgplatform.core.data import engines, server
from msgplatform.core.data.engines.contract import Fault
from msgplatform.core.tracing.context import is_on
from msgplatform.doors.api.problems.problem import KINDS, Problem
from msgplatform.monitor import metrics

log = logging.get(__name__)

# Seconds. Load balancers give up after a few seconds, but an answer names the silent server.
READY_SECONDS = 2.0
# Seconds to wait for a server that does not decide the answer.
INFORM_SECONDS = 0.5
_OPEN_METRICS = "application/openmetrics-text"
_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}
# Headers of proxies: a request with one of these does not come from this machine itself.
_FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED", "HTTP_VIA")
_OF_SCHEMA = (Fault.NO_TABLE, Fault.NO_COLUMN)
_LACKS_COLUMNS = "lacks tables or columns of this release: run migrate --before"


@never_cache
@require_safe
def alive(request: HttpRequest) -> HttpResponse:
    """/healthz: the process answers. Touches nothing else."""
    return HttpResponse("ok\n", content_type="text/plain")


class Probe:
    """Checks a server in a thread of its own, so that the answer is in time even if a driver hangs.

    There is one check at a time: while it hangs, no other begins.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._check: Future[object] | None = None

    def start(self) -> Future[object]:
        if self._check is None or self._check.done():
            self._check = bounded_call.begin(self._ask)
        return self._check


def _answer(check: Future[object], deadline: float) -> str:
    """`ok`, or what is wrong, in a few words without details of the installation."""
    try:
        check.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        return "no answer in time"
    except (DatabaseError, RedisError, OSError) as error:
        log.warning("not_ready", why=f"{type(error).__name__}: {error}")
        is_of_schema = isinstance(error, DatabaseError) and engines.fault(error) in _OF_SCHEMA
        return _LACKS_COLUMNS if is_of_schema else "away"
    return "ok"


def _ask_database() -> None:
    server.ask()
    server.check_columns()


PROBES: dict[str, Probe] = {
    "database": Probe(_ask_database),
    "redis": Probe(lambda: work_redis().ping()),
}
_INTAKE_GOES_ON = (
    "Redis does not answer: messages of Notify, posts and leads are accepted all the same, and wait"
)


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """/readyz: 200 when the database answers and has the columns of this release, else 503; the
    JSON says which server does not answer.

    Without the work Redis a web server goes on: no intake needs it, and no other web server of the
    platform would have it.
    """
    start = time.monotonic()
    # Start both checks before waiting for one: together they take the time of the slower one.
    database, redis = PROBES["database"].start(), PROBES["redis"].start()
    answers = {"database": _answer(database, start + READY_SECONDS)}
    answers["redis"] = _answer(redis, start + INFORM_SECONDS)
    is_ready = answers["database"] == "ok"
    if is_ready and answers["redis"] != "ok":
        answers["note"] = _INTAKE_GOES_ON
    return JsonResponse({"ready": is_ready, **answers}, status=200 if is_ready else 503)


def may_read_metrics(request: HttpRequest) -> bool:
    """True for callers that send METRICS_TOKEN as a bearer token. Without a token: for callers on
    this machine, if PUBLIC_URL is local too; behind a reverse proxy every caller looks local."""
    if token := settings.METRICS_TOKEN:
        scheme, _, token_sent = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        # Compare in constant time: the duration must not tell how much of a guess was right.
        return scheme.lower() == "bearer" and hmac.compare_digest(
            token_sent.encode(), token.encode()
        )
    if urlsplit(settings.PUBLIC_URL).hostname not in _LOCAL_HOSTS:
        return False
    if any(name in request.META for name in _FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


@never_cache
@require_safe
def prometheus(request: HttpRequest) -> HttpResponse:
    """/metrics in the Prometheus text format. While traces are on, callers that accept OpenMetrics
    get that, because it has exemplars."""
    if not may_read_metrics(request):
        detail = "Set METRICS_TOKEN and send it: Authorization: Bearer <token>"
        return Problem(KINDS["forbidden"], detail).response()
    if is_on() and _OPEN_METRICS in request.META.get("HTTP_ACCEPT", ""):
        content, content_type = metrics.open_metrics()
        return HttpResponse(content, content_type=content_type)
    return HttpResponse(metrics.exposition(), content_type=metrics.CONTENT_TYPE)
