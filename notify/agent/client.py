"""The Agent's requests to the intake, and the meaning of the answers.

Only a whole answer that names an outcome for every event counts. Any other answer (a login page
with 200, a proxy's error, a cut body) says nothing about any event.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Literal

import msgspec

from msgplatform.core.http.engine import AddressGuard, Request, Response, engine_from_settings
from msgplatform.core.http.response import retry_after
from notify.agent.store import Event, Refusal

PATH = "/api/v1/messages/batch"
# Half of the largest request that the intake takes. The envelopes need a part of the rest.
MAX_REQUEST_BYTES = 8 * 1024 * 1024
_ANSWER_CAP = 2 * 1024 * 1024
_PROBLEM = b"application/problem+json"
# The intake may be in a private network. Metadata addresses stay forbidden.
_ANYWHERE = ("0.0.0.0/0", "::/0")
# The problems that are the request's own fault. Other 400s are not: a wrong Host, another program.
_OWN_FAULTS = ("/invalid-input", "/malformed-body", "/body-too-large")


class Kind(Enum):
    VERDICTS = auto()  # a verdict for each event
    TOO_MUCH = auto()  # the request is refused as a whole; a smaller request may pass
    BROKEN = auto()  # the intake broke on this request; another request may pass
    UNAVAILABLE = auto()  # no verdict: try again later


class Answer(msgspec.Struct, frozen=True):
    """`refusals` are by the positions of events. `is_condemned`: the intake itself refused the
    whole request. `is_slow`: the time ran out. `retry_after`: seconds for which the intake asks to
    be left alone.
    """

    kind: Kind
    detail: str = ""
    refusals: dict[int, Refusal] = msgspec.field(default_factory=dict)
    duplicates: int = 0
    is_condemned: bool = False
    is_slow: bool = False
    retry_after: float = 0.0


class _Verdict(msgspec.Struct):
    outcome: Literal["created", "duplicate", "rejected"]
    code: str = ""
    field: str = ""
    detail: str = ""


class _Verdicts(msgspec.Struct):
    results: list[_Verdict]


class _Problem(msgspec.Struct):
    type: str = ""
    title: str = ""
    detail: str = ""


_decode_verdicts = msgspec.json.Decoder(_Verdicts).decode
_decode_problem = msgspec.json.Decoder(_Problem).decode


class IntakeClient:
    """Sends one request at a time, on a connection that is kept alive.

    `key` is called for each request, so that a key can be replaced while the Agent runs. `timeout`
    in seconds covers the whole request.
    """

    def __init__(self, url: str, key: Callable[[], str], timeout: float) -> None:
        self.url = url.rstrip("/") + PATH
        self.timeout = timeout
        self._key = key
        self._engine = engine_from_settings(
            guard=AddressGuard(_ANYWHERE), window=1, max_connections=1, body_cap=_ANSWER_CAP,
            user_agent="msgplatform-agent",
        )  # fmt: skip

    def send(self, events: Sequence[Event]) -> Answer:
        """POST events whose payloads are checked to be JSON; returns the intake's answer."""
        try:
            key = self._key()
        except OSError as error:
            return Answer(Kind.UNAVAILABLE, f"the file with the API key: {error.strerror}")
        headers = [("content-type", "application/json"), ("authorization", f"Bearer {key}")]
        # Bytes that are not UTF-8 become U+FFFD, which the intake refuses with a sentence.
        items: list[dict[str, Any]] = []
        for event in events:
            item = {
                "event_type": event.event_type.decode("utf-8", "replace"),
                "channel": event.channel.decode("utf-8", "replace"),
                "idempotency_key": event.msg_key.decode("utf-8", "replace"),
                "payload": msgspec.Raw(event.payload),
            }
            if event.traceparent:
                item["traceparent"] = event.traceparent.decode("utf-8", "replace")
            items.append(item)
        body = msgspec.json.encode({"messages": items})
        self._engine.submit(Request(self.url, body, headers, self.timeout))
        while not (responses := self._engine.poll(self.timeout)):
            continue
        return understand(responses[0], len(events))

    def close(self) -> None:
        self._engine.close()


def understand(response: Response, sent_count: int) -> Answer:
    """Read the answer to a request of `sent_count` events."""
    status = response.status
    if status == 200 and not response.error:
        try:
            results = _decode_verdicts(response.body).results
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            results = []
        if len(results) != sent_count:
            return Answer(
                Kind.UNAVAILABLE, "HTTP 200 without a verdict for each event: is this the intake?"
            )
        refusals = {
            place: Refusal(
                verdict.code or "invalid", f"{verdict.field}: {verdict.detail}".strip(": ")
            )
            for place, verdict in enumerate(results)
            if verdict.outcome == "rejected"
        }
        duplicates = sum(verdict.outcome == "duplicate" for verdict in results)
        return Answer(Kind.VERDICTS, refusals=refusals, duplicates=duplicates)
    if not status or (response.error and status < 400):
        detail = response.detail or response.error
        return Answer(Kind.UNAVAILABLE, detail, is_slow=response.error == "timeout")
    problem = _Problem()
    if _PROBLEM in response.headers.lower():
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            problem = _decode_problem(response.body)
    words = f"{problem.title}. {problem.detail}".strip(". ")
    detail = " ".join(f"HTTP {status} {words}".split())[:300]
    is_condemned = 400 <= status < 500 and problem.type.endswith(_OWN_FAULTS)
    if is_condemned or status == 413:
        return Answer(Kind.TOO_MUCH, detail, is_condemned=is_condemned)
    if status == 500:
        return Answer(Kind.BROKEN, detail)
    # A server that did not get the whole request in time says 408, a proxy that waited for the
    # intake in vain 504.
    is_slow = status in (408, 504)
    seconds = retry_after(response.headers, time.time())
    return Answer(Kind.UNAVAILABLE, detail, retry_after=seconds, is_slow=is_slow)
