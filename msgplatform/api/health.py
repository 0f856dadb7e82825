"""Is the process alive, can it work, and what does it count. Plain views, outside the REST API."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from msgplatform.api.problem_kinds import KINDS
from msgplatform.api.problems import Problem
from msgplatform.core import logging, metrics
from msgplatform.core.connections import RedisError, work_redis

log = logging.get(__name__)

READY_SECONDS = 2.0
_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}
_FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED", "HTTP_VIA")


@never_cache
@require_safe
def alive(request: HttpRequest) -> HttpResponse:
    """/healthz: the process answers. Touches nothing else."""
    return HttpResponse("ok\n", content_type="text/plain")


def _ask_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    finally:
        connection.close()


def _ask_redis() -> None:
    work_redis().ping()


class Probe:
    """Asks in a thread of its own, so that the answer is in time although a driver hangs.

    One question at a time: while the last one hangs, nobody asks again.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._asked: Future[object] | None = None

    def start(self) -> None:
        if self._asked is None or self._asked.done():
            self._asked = self._pool.submit(self._ask)

    def answer(self, deadline: float) -> str:
        """`ok`, or what is wrong in a few words that give nothing away."""
        if self._asked is None:
            return "not asked"
        try:
            self._asked.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return f"no answer within {READY_SECONDS:g} s"
        except (DatabaseError, RedisError, OSError) as error:
            log.warning("not_ready", why=f"{type(error).__name__}: {error}")
            return "away"
        return "ok"


PROBES: dict[str, Probe] = {"database": Probe(_ask_database), "redis": Probe(_ask_redis)}


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """/readyz: 200 when database and Redis answer, else 503; the JSON says which one does not."""
    deadline = time.monotonic() + READY_SECONDS
    for probe in PROBES.values():
        probe.start()
    answers = {name: probe.answer(deadline) for name, probe in PROBES.items()}
    is_ready = all(answer == "ok" for answer in answers.values())
    return JsonResponse({"ready": is_ready, **answers}, status=200 if is_ready else 503)


def may_read_metrics(request: HttpRequest) -> bool:
    """With METRICS_TOKEN: who sends it as a bearer token. Without: only an installation whose own
    PUBLIC_URL is local answers, and only to its own machine, since behind a reverse proxy every
    caller looks like a local one."""
    if token := settings.METRICS_TOKEN:
        scheme, _, given = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode())
    if urlsplit(settings.PUBLIC_URL).hostname not in _LOCAL_HOSTS:
        return False
    return _is_loopback(request.META.get("REMOTE_ADDR", "")) and not any(
        name in request.META for name in _FORWARDED
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@never_cache
@require_safe
def prometheus(request: HttpRequest) -> HttpResponse:
    """/metrics in the Prometheus text format."""
    if not may_read_metrics(request):
        detail = "Set METRICS_TOKEN and send it: Authorization: Bearer <token>"
        return Problem(KINDS["forbidden"], detail).response()
    return HttpResponse(
        metrics.exposition(), content_type="text/plain; version=0.0.4; charset=utf-8"
    )
