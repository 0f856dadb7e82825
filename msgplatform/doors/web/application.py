"""The web application: one request, from its first byte to its last.

Every request is read in the event loop, bounded in size, time and number; then the fast intake
answers it, or Django in a thread. Until it has arrived whole, a request costs only memory.
"""

import itertools
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, cast

from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern
from django.utils.module_loading import import_string
from rest_framework.permissions import SAFE_METHODS

from msgplatform.core import flows, logging
from msgplatform.core.tracing import context
from msgplatform.core.web import request_counts
from msgplatform.doors.api.access import throttling
from msgplatform.doors.api.intake import SingleIntake
from msgplatform.doors.api.problems.error_pages import API_PREFIX
from msgplatform.doors.api.problems.handler import describe
from msgplatform.doors.api.problems.problem import KINDS, BodyTooLarge, BodyTooSlow, Problem
from msgplatform.doors.web import bodies
from msgplatform.doors.web.bodies import Answer, Send
from msgplatform.doors.web.django_app import DjangoApp
from msgplatform.doors.web.fast_intake import FastIntake, HeadersByName
from msgplatform.doors.web.long_polls import LongPolls

log = logging.get(__name__)

# Maximum of requests in flight in this process, of bytes of their bodies and of long answers, and
# the share of both that one address may take.
_MAX_REQUESTS = 2048
_MAX_BODY_BYTES = 256 * 1024 * 1024
_MAX_SHARE = 0.5
# One of so many answers says that its connection closes: otherwise all clients with open
# connections would stay with the workers that started first. A prime number: it must meet each of
# several clients that take turns. After a start the clients have to find all workers first: many
# use their newest connection again and again, and those are the first worker's.
CLOSE_EVERY = 1009
CLOSE_EVERY_AT_START = 101
_ANSWERS_AT_START = 20_000
_CLIENT_LEFT = 499  # nginx's status for a client that left before it had sent its body
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
# The ids of requests: random for the process, then a number.
_PROCESS = secrets.token_hex(6)
_numbers = itertools.count(1)

Scope = dict[str, Any]


class Application:
    """The ASGI application of one process. Settings are read once."""

    def __init__(self, fast_intake: FastIntake, django_app: DjangoApp) -> None:
        self._fast_intake, self._django = fast_intake, django_app
        self._long_polls = LongPolls()
        self._route_of = Routes().of
        self._allowance = bodies.Allowance(_MAX_REQUESTS, _MAX_BODY_BYTES, _MAX_SHARE)
        self._max_body_bytes: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        self._answers = itertools.count(1)
        self._is_logging: bool = settings.ACCESS_LOG

    async def __call__(self, scope: Scope, receive: bodies.Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start = time.perf_counter()
        headers = dict(scope["headers"])
        # The id that the caller or a proxy sent, or a new one.
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = f"{_PROCESS}-{next(_numbers):x}"
        status = 500  # granian's answer to an exception
        wait_seconds = 0.0
        try:
            status, wait_seconds = await self._serve(scope, headers, receive, send, request_id)
        except bodies.Disconnected:
            status = _CLIENT_LEFT
            # Granian also says this for chunks that break the rules.
            if b"transfer-encoding" in headers:
                problem = Problem(
                    KINDS["bad-request"], "The chunks of the body are malformed or incomplete."
                )
                # A client that has disconnected does not read it.
                await bodies.refusal(problem, scope["path"].startswith(API_PREFIX)).send(send)
            return
        finally:
            # The wait for an event is not the platform's own time.
            seconds = time.perf_counter() - start - wait_seconds
            route = self._route_of(scope["path"])
            request_counts.ANSWERED.count(route, scope["method"], status, seconds)
        if self._is_logging:
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round(seconds * 1000, 1),
                address=(scope.get("client") or ("",))[0],
                request_id=request_id,
                **context.log_facts(headers.get(b"traceparent", b"").decode("latin-1")),
            )

    async def _serve(
        self,
        scope: Scope,
        headers: HeadersByName,
        receive: bodies.Receive,
        send: Send,
        request_id: str,
    ) -> tuple[int, float]:
        """Answer; returns the status, and the seconds that a long poll waited for an event."""
        wait_seconds = 0.0
        share: bodies.Share | None = None
        try:
            try:
                # Answer it even when too much is in flight.
                if health := self._fast_intake.health(scope, headers):
                    await self._send(health, send, request_id)
                    return health.status, wait_seconds
                # The address whose share it takes: the caller's, as a trusted proxy reports it.
                address = (scope.get("client") or ("",))[0]
                if b"x-forwarded-for" in headers:
                    # Several lines of one name are one list (RFC 9110, 5.3).
                    hops = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
                    header = b",".join(hops).decode("latin-1")
                    address = throttling.reported_address(address, header)
                if ":" in address:
                    address = throttling.network_of(address)
                share = self._allowance.take(address[:64])
                # The length of a chunked body is unknown, see RFC 9112 (6.3).
                is_chunked = b"transfer-encoding" in headers
                length = None if is_chunked else int(headers.get(b"content-length", b"0"))
                body = b""
                if length != 0:
                    body = await bodies.read(receive, self._max_body_bytes, length, share)
                answer: Answer | int | None = await self._fast_intake.answer(
                    scope, headers, body, request_id
                )
                if answer is None:
                    ask = partial(self._django.answer, scope, body, request_id, send)
                    answer, wait_seconds = await self._long_polls.answer(ask, receive)
                if isinstance(answer, int):
                    return answer, wait_seconds
                if len(answer.body) > bodies.PIECE:
                    # A refusal would say that nothing was done, but a write with an answer was.
                    can_refuse = scope["method"] in SAFE_METHODS
                    share.add(len(answer.body), can_refuse)
            except (BodyTooLarge, BodyTooSlow, bodies.Full) as error:
                problem = cast(Problem, describe(error, None))
                answer = bodies.refusal(problem, scope["path"].startswith(API_PREFIX))
            await self._send(answer, send, request_id)
        finally:
            if share:
                share.give_back()
        return answer.status, wait_seconds

    async def _send(self, answer: Answer, send: Send, request_id: str) -> None:
        extra_headers = [(b"x-request-id", request_id.encode())]
        count = next(self._answers)
        interval = CLOSE_EVERY_AT_START if count <= _ANSWERS_AT_START else CLOSE_EVERY
        if count % interval == 0 and bodies.CLOSE not in answer.headers:
            extra_headers.append(bodies.CLOSE)
        try:
            await answer.send(send, *extra_headers)
        except TimeoutError:
            log.warning("answer_not_read", request_id=request_id, bytes=len(answer.body))


def intakes() -> list[SingleIntake]:
    return [import_string(name) for flow in flows.all() for name in flow.single_intakes]


OTHER = "other"  # the route of an address that nothing serves
# Below these prefixes each address is a route; every other prefix is one route.
_PREFIXES = ("/", "/api/v1/")
_SEGMENTS = 6


class Routes:
    """The route of a request for metrics. There are few: each address belongs to the longest prefix
    that the platform serves, such as /console or /api/v1/messages. All other addresses are OTHER,
    because callers can make up any number of them."""

    def __init__(self) -> None:
        prefixes = set(_prefixes(get_resolver().url_patterns, "/"))
        self._routes = {path.rstrip("/") or "/" for path in (*prefixes, settings.STATIC_URL)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._routes)

    def of(self, path: str) -> str:
        if path in self._routes:  # such as a publish
            return path
        path = "/".join(path.split("/", _SEGMENTS + 1)[: _SEGMENTS + 1])
        while path not in self._routes:
            path = path.rpartition("/")[0].rstrip("/")
            if not path:
                return OTHER
        return path


def _prefixes(patterns: Iterable[URLPattern | URLResolver], prefix: str) -> Iterator[str]:
    for pattern in patterns:
        if not isinstance(pattern.pattern, RoutePattern):
            continue  # a regular expression for addresses that nothing else serves
        path = prefix + str(pattern.pattern).partition("<")[0]
        if isinstance(pattern, URLResolver) and path in _PREFIXES:
            yield from _prefixes(pattern.url_patterns, path)
        else:
            yield path
