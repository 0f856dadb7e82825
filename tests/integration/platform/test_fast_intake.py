"""The fast intake answers as Django does: the same requests through both, good and bad ones."""

import json
import time
from typing import Any

import pytest
import redis
import time_machine
from django.core.handlers.wsgi import WSGIHandler
from django.db import OperationalError
from hypothesis import HealthCheck, given, settings as effort, strategies as st
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from msgplatform.core.errors import NotNow, OutcomeUnknown, Unavailable
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.doors.api.access import keys, throttling
from msgplatform.doors.api.intake import SingleIntake
from msgplatform.doors.web.application import Application
from msgplatform.doors.web.django_app import DjangoApp
from notify.api.views import PublishBody
from tests.program_host import IS_FULL
from tests.support.fast_intakes import Both, CountingIntake, plain

pytestmark = pytest.mark.django_db(transaction=True)
MESSAGES, POSTS, SMS = "/api/v1/messages", "/api/v1/feed/posts", "/api/v1/sms"


BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: {"event_type": "order.paid", "payload": {"a": [1, "é"]}},
    POSTS: {"uid": "1001", "data": "Good morning!"},
    SMS: {"to": "13800000000", "text": "hello"},
}


@st.composite
def bodies(draw: st.DrawFn, path: str) -> bytes:
    """Mostly right; else a field is wrong, missing or unknown, or the JSON is broken."""
    body = dict(BODIES[path])
    body["idempotency_key"] = draw(st.sampled_from(["k1", "k2", "k3", None, "", "a b", "ü", 7]))
    if draw(st.integers(0, 2)) == 0:
        name = draw(st.sampled_from([*body, "channel", "nonsense"]))
        body[name] = draw(st.sampled_from([None, 1, "", "x" * 200, "order paid", ["a"], {"b": 1}]))
    if draw(st.integers(0, 9)) == 0:
        body.pop(draw(st.sampled_from(sorted(body))))
    text = json.dumps(body, ensure_ascii=draw(st.booleans())).encode()
    kinds = [text] * 8 + [text[:-1], b"", b"[]", text.replace(b"o", b"\xff"), text + b" x"]
    return draw(st.sampled_from(kinds))


# What a request may have otherwise than `plain`; None leaves the header out.
DEVIANT: dict[str, list[str | None]] = {
    "authorization": [
        "bearer {good}", "Bearer {without scope}", "Bearer {revoked}", "Bearer {unknown}",
        "Bearer  {good}", "Basic abc", "Bearer", "Bearer mp_ü", None,
    ],
    "content-type": [
        "application/json; charset=utf-8", "Application/JSON", "text/plain", None,
    ],
    "host": ["evil.example", "testserver:80", "testserver:x", "", None],
    "accept": ["*/*", "application/json", "application/xml", "text/html, */*;q=0.8"],
    "idempotency-key": ["k1", "k4", "a b", "ü", ""],
    "content-encoding": ["gzip", "identity"],
    "x-forwarded-proto": ["https", "http", "https, http", "http, https", None],
    "x-forwarded-host": ["evil.example"],
    "x-forwarded-for": ["10.0.0.1"],
    "x-request-id": ["abc-1", "no good"],
    "cookie": ["sessionid=abc"],
    "x-unheard-of": ["1"],
    "accept-language": ["zh-CN"],
    "expect": ["100-continue"],
    "user-agent": ["a client"],
}  # fmt: skip


@st.composite
def requests(
    draw: st.DrawFn, usual: dict[str, str]
) -> tuple[str, str, list[tuple[str, str]], bytes]:
    """`usual` are headers of every request that does not deviate in them."""
    path = draw(st.sampled_from(list(BODIES)))
    body = draw(bodies(path))
    changed = draw(st.sets(st.sampled_from(list(DEVIANT)), max_size=2))
    drawn = {name.replace("-", "_"): draw(st.sampled_from(DEVIANT[name])) for name in changed}
    headers = plain(body, **{**usual, **drawn})
    if draw(st.integers(0, 19)) == 0:
        headers.append(draw(st.sampled_from(headers)))
    method = draw(st.sampled_from(["POST"] * 15 + ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"]))
    target = draw(st.sampled_from([path] * 15 + [f"{path}?a=1", f"{path}/", f"{path}/batch"]))
    return method, target, headers, body


PROXY = ("HTTP_X_FORWARDED_PROTO", "https")
INSTALLATIONS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "TLS ends at a proxy": {
        "SECURE_PROXY_SSL_HEADER": PROXY, "SECURE_SSL_REDIRECT": True, "SECURE_HSTS_SECONDS": 60,
        "X_FRAME_OPTIONS": "SAMEORIGIN",
    },
    "other names": {"USE_X_FORWARDED_HOST": True, "SECURE_REFERRER_POLICY": "no-referrer"},
}  # fmt: skip


@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_the_same_as_django(
    work_redis: object, sms_redis: object, settings: Any, installation: str
) -> None:
    for name, value in INSTALLATIONS[installation].items():
        setattr(settings, name, value)
    # Django reads some settings once.
    both = Both()

    @effort(
        max_examples=300 if IS_FULL else 150, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(requests({"x_forwarded_proto": "https"} if "TLS" in installation else {}))
    def compare(request: tuple[str, str, list[tuple[str, str]], bytes]) -> None:
        ours, theirs = both.ask(*request)
        assert ours.comparable() == theirs.comparable(), request

    try:
        # Answers say how many seconds of a caller's minute are left.
        with time_machine.travel(time.time(), tick=False):
            compare()
    finally:
        both.loop.close()
    # Else Django was compared with itself.
    expected = 0 if "USE_X_FORWARDED_HOST" in INSTALLATIONS[installation] else 10
    assert both.fast_intake.served >= expected


@pytest.mark.parametrize("path", BODIES)
def test_a_key_that_it_knows_needs_the_scope(
    work_redis: object, sms_redis: object, settings: Any, path: str
) -> None:
    # Without a limit each key is far from it: no request goes to Django for that.
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": {}}
    both, body = Both(), json.dumps(BODIES[path]).encode()
    both.keys[0]["management"] = keys.create(None, "files", ["manage:systems"])[1]
    statuses, served = [], []
    try:
        for name in ("good", "good", "without scope", "management"):
            assert keys.verify(both.keys[0][name])
            headers = plain(body, authorization=f"Bearer {{{name}}}")
            statuses.append(both.ask("POST", path, headers, body)[0].status)
            served.append(both.fast_intake.served)
    finally:
        both.loop.close()
    assert statuses == [202, 202, 403, 403]
    assert 0 < served[1] == served[3]  # a system's first request may go to Django


CONFLICT = Verdict.duplicate_or_conflict(is_same_payload=False)
ENDINGS: list[tuple[Verdict | None, Exception | None, int, str | None]] = [
    (Verdict("created", 7), None, 202, None),
    (CONFLICT, None, 409, "conflict"),
    (None, Unavailable("The queue is full."), 503, "unavailable"),
    (None, OutcomeUnknown("no answer"), 503, "outcome-unknown"),
    (None, OperationalError(2006, "the password is hunter2"), 503, "outcome-unknown"),
    (None, OperationalError(2002, "the password is hunter2"), 503, "unavailable"),
    (None, ZeroDivisionError("the password is hunter2"), 500, "internal-error"),
]


@pytest.mark.parametrize(("verdict", "error", "status", "kind"), ENDINGS)
def test_every_ending_is_told(
    work_redis: object,
    sms_redis: object,
    verdict: Verdict | None,
    error: Exception | None,
    status: int,
    kind: str | None,
) -> None:
    both = Both()
    keys.verify(both.keys[0]["good"])
    ending = SingleIntake(MESSAGES, PublishBody, lambda _biz, _body, call: call(verdict, error))
    fast_intake = CountingIntake([ending])
    both.applications[0] = Application(fast_intake, DjangoApp(WSGIHandler(), threads=1))
    body = json.dumps(BODIES[MESSAGES]).encode()
    headers = plain(body, x_request_id="4711")
    try:
        with capture_logs(processors=[merge_contextvars]) as lines:
            said, _ = both.ask("POST", MESSAGES, headers, body)
    finally:
        both.loop.close()
    assert (fast_intake.served, said.status) == (1, status)
    names = ("request_id", "method", "path")
    logged = [[line.get(name) for name in names] for line in lines if "request_" in line["event"]]
    assert logged == [["4711", "POST", MESSAGES]] * (status >= 500)
    assert b"hunter2" not in said.body
    if kind:
        assert json.loads(said.body)["type"] == f"/problems/{kind}"


def test_a_request_that_goes_to_django_is_counted_once(
    work_redis: redis.Redis, sms_redis: object, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    monkeypatch.setattr(throttling, "_reserves", {})
    rates = {"DEFAULT_THROTTLE_RATES": {"write": "500/hour"}}
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, **rates}
    both = Both()
    caller = keys.verify(both.keys[0]["good"])
    assert caller is not None

    def refuse(_biz: int, _item: PublishBody, _call: object) -> None:
        raise NotNow("The events of this system are validated.")

    fast_intake = CountingIntake([SingleIntake(MESSAGES, PublishBody, refuse)])
    both.applications[0] = Application(fast_intake, DjangoApp(WSGIHandler(), threads=1))
    body = json.dumps(BODIES[MESSAGES]).encode()
    headers = plain(body, idempotency_key="k1")
    other_key = json.dumps({**BODIES[MESSAGES], "idempotency_key": "k2"}).encode()
    statuses = []
    try:
        # The first one is for the reserve, which Redis counts ahead.
        for sent in (body, body, other_key, body[:-1]):
            statuses.append(both.ask("POST", MESSAGES, headers, sent)[0].status)
            assert throttling._reserves[caller.key_id].remaining == 5
    finally:
        both.loop.close()
    assert (fast_intake.served, statuses) == (0, [202, 200, 400, 400])
    assert work_redis.get(f"throttle:write:key:{caller.key_id}") == b"9"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("host", ["testserver", "evil.example"])
@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_that_it_lives_is_said_the_same_way(
    settings: Any, method: str, host: str, installation: str
) -> None:
    for name, value in INSTALLATIONS[installation].items():
        setattr(settings, name, value)
    both = Both()
    try:
        answers = both.ask(
            method, "/healthz", [("host", host), ("x-forwarded-proto", "https")], b""
        )
    finally:
        both.loop.close()
    said, django = (answer.comparable() for answer in answers)
    for _, named, _ in (said, django):
        named.pop(b"expires", None)  # a second may have passed
    assert said == django
    assert both.fast_intake.served == (method != "POST" and host == "testserver")
