"""Command `listen`: events of the platform to a program on this machine, one after another.

    wait for a delivery ─▶ forward or print it ─▶ tell the platform what was answered ─▶ wait …

The platform leases a delivery for a while. Ended in the middle, the command loses nothing: a
delivery without a result comes again.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any

import httpx
import typer

from ..errors import NotNow, PlatformError, ProblemError
from . import profiles
from .exits import Exit, Failure
from .forwarding import Answer, Forwarder
from .listener_setup import set_up
from .output import BAD, BOLD, FAINT, GOOD, WAITING, Part
from .session import Session, checked_part, on_platform

# The platform answers an empty wait after about 25 seconds.
_WAIT_TIMEOUT = 90.0
_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0
# A program that is down is waited for, then the platform is asked again how things stand.
_LEASE_PART = 0.7
_MAX_WAIT_SECONDS = 120.0


@on_platform
def listen(
    session: Session,
    consumer: Annotated[str, typer.Argument(help="A consumer for development, such as dev-anna.")],
    forward: Annotated[
        str,
        typer.Option(
            metavar="URL", help="POST each event there; without it events are only printed."
        ),
    ] = "",
    event_types: Annotated[
        list[str] | None,
        typer.Option("--event", help="With --set-up: only these, such as order.*."),
    ] = None,
    payload_filter: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="JSON",
            help='With --set-up: only events that say this: {"data": {"total": {"$gt": 100}}}.',
        ),
    ] = "",
    manager: Annotated[
        str,
        typer.Option(
            "--set-up",
            metavar="PROFILE",
            help="Make the consumer and its subscription first, with the management key of this "
            "profile.",
        ),
    ] = "",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the place of another listener.")
    ] = False,
) -> None:
    """Get events on your own machine, and pass them on to a program there, until Ctrl-C.

    It needs a key of your system with events:listen, and a consumer whose delivery is `listen`.
    Each event is forwarded as it is signed. An answer of 2xx acknowledges it; another one is a
    failed attempt, and the event comes again by the schedule of the subscription. While nobody
    listens at the address, the event waits.

    msgp listen dev-anna --forward http://localhost:3000/hooks

    msgp listen dev-anna --event 'order.*' --set-up manager --forward http://localhost:3000
    """
    if forward and not _is_address(forward):
        raise Failure(
            f"{forward} is no address of a program: write it as http://localhost:3000.", Exit.USAGE
        )
    if (event_types or payload_filter) and not manager:
        words = "--event and --filter set the subscription up, and need --set-up PROFILE."
        raise Failure(words, Exit.USAGE)
    try:
        filter_document = json.loads(payload_filter) if payload_filter else None
    except ValueError as error:
        raise Failure(f"The filter is not JSON: {error}", Exit.USAGE) from None
    checked_part(consumer)
    session.compare_versions()
    if manager:
        set_up(session, profiles.named(manager), consumer, event_types or [], filter_document)
    session.close()
    session.patience = 0  # the loop says what it waits for
    forwarder = Forwarder(forward) if forward else None
    try:
        _Listener(session, consumer, forwarder, take_over).run()
    finally:
        if forwarder:
            forwarder.close()


class _Listener:
    """One start of the command; its name is the same in all its requests."""

    def __init__(
        self, session: Session, consumer: str, forwarder: Forwarder | None, take_over: bool
    ) -> None:
        self._session, self._forwarder = session, forwarder
        self._path = f"consumers/{consumer}/listen"
        host = "".join(each for each in socket.gethostname() if each.isalnum())[:40]
        self._name = f"{host or 'msgp'}-{secrets.token_hex(4)}"
        self._take_over = take_over
        self._said = ""
        self._has_place = False

    def run(self) -> None:
        where = self._forwarder.address if self._forwarder else "nowhere: events are printed"
        self._session.output.note("Listening; forwarding to ", (where, BOLD), ". Ctrl-C ends it.")
        while True:
            began = time.monotonic()
            response = self._until_it_answers(self._wait)
            self._take_over, self._has_place = False, True
            answer = response.json()
            is_quiet = answer["status"] == "normal"
            self._say("" if is_quiet else f"The subscription is {answer['status']}: events wait.")
            if answer["delivery"] is not None:
                self._handle(answer["delivery"], _lease_seconds(response, answer["delivery"]))
            elif time.monotonic() - began < _PAUSE_SECONDS:
                time.sleep(_PAUSE_SECONDS)

    def _wait(self) -> httpx.Response:
        body = {"listener": self._name, "take_over": self._take_over}
        return self._session.request("POST", self._path, json=body, timeout=_WAIT_TIMEOUT)

    def _handle(self, delivery: Mapping[str, Any], lease_seconds: float) -> None:
        wait_seconds = min(lease_seconds * _LEASE_PART, _MAX_WAIT_SECONDS)
        answer = self._answer(delivery, time.monotonic() + wait_seconds)
        if answer is None:
            return  # the same delivery comes with the next wait
        if self._forwarder is None:
            self._print_event(delivery)  # before it is acknowledged: this may fail
        path = f"{self._path}/{delivery['id']}"
        body = {"claim": delivery["claim"], **answer.result()}
        try:
            response = self._until_it_answers(
                lambda: self._session.request("POST", path, json=body)
            )
        except ProblemError as error:
            if error.kind != "lease-lost":
                raise
            self._say("The answer came too late: the event comes again.")
            return
        if self._forwarder is not None:
            self._print_result(delivery, answer, response.json())

    def _answer(self, delivery: Mapping[str, Any], deadline: float) -> Answer | None:
        """The program's answer; None when nobody listens there until the deadline."""
        if self._forwarder is None:
            return Answer(status=200)
        while True:
            answer = self._forwarder.send(delivery["request"], delivery["timeout"])
            if not answer.is_refused_connection:
                return answer
            self._say(f"{self._forwarder.address} does not answer: {delivery['event_type']} waits.")
            if time.monotonic() >= deadline:
                return None
            time.sleep(_PAUSE_SECONDS)

    def _until_it_answers(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        """The answer to a request, which is repeated while the platform is away. Raises
        PlatformError when repeating does not help."""
        pause = _PAUSE_SECONDS
        while True:
            try:
                return call()
            except PlatformError as error:
                seconds = self._pause_after(error, pause)
            time.sleep(seconds)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _pause_after(self, error: PlatformError, pause: float) -> float:
        """Seconds until the request is repeated."""
        retry_after = (error.retry_after if isinstance(error, ProblemError) else None) or 0.0
        if isinstance(error, NotNow):  # its deliveries are pushed to an address
            raise Failure(error.detail) from None
        if isinstance(error, ProblemError) and error.kind == "already-listening":
            # A first request that takes over is never refused: one that waited was displaced.
            if self._has_place or self._take_over:
                raise error  # another listener took over
            self._say("Another listener is there: waiting for its place (--take-over takes it).")
            return min(max(pause, retry_after), _MAX_PAUSE_SECONDS)
        if error.is_permanent:
            raise error
        self._say(f"{error}. Trying on.")
        return max(pause, retry_after)

    def _say(self, sentence: str) -> None:
        """A note, once as long as it holds."""
        if sentence and sentence != self._said:
            self._session.output.note((sentence, WAITING))
        self._said = sentence

    def _print_event(self, delivery: Mapping[str, Any]) -> None:
        body = delivery["request"]["body"]
        self._session.output.result(
            {**_facts(delivery), "body": body}, [*_beginning(delivery), body]
        )

    def _print_result(
        self, delivery: Mapping[str, Any], answer: Answer, result: Mapping[str, Any]
    ) -> None:
        shown = {
            **_facts(delivery), "status": answer.status, "error": answer.error,
            "seconds": answer.seconds, **result,
        }  # fmt: skip
        is_delivered = result["outcome"] == "delivered"
        words = str(answer.status or answer.error)
        parts: list[Part] = [
            *_beginning(delivery), (words, GOOD if is_delivered else BAD),
            f"  {answer.seconds * 1000:.0f} ms",
        ]  # fmt: skip
        if not is_delivered:
            later = f"again at {result['next_attempt_at']}"
            parts.append(f"  {later if result['next_attempt_at'] else result['outcome']}")
        self._session.output.result(shown, parts)


def _is_address(text: str) -> bool:
    """True if requests can be sent there."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    has_port = url.port is None or 0 < url.port < 65536
    return url.scheme in {"http", "https"} and bool(url.host) and has_port


def _facts(delivery: Mapping[str, Any]) -> dict[str, Any]:
    return {name: delivery[name] for name in ("message_id", "event_type", "attempt")}


def _beginning(delivery: Mapping[str, Any]) -> list[Part]:
    """Of a line for people: when it came, and which event it is."""
    return [(time.strftime("%H:%M:%S"), FAINT), "  ", (delivery["message_id"], BOLD),
            f"  {delivery['event_type']}  "]  # fmt: skip


def _lease_seconds(response: httpx.Response, delivery: Mapping[str, Any]) -> float:
    """How long the lease is, by the platform's clock alone."""
    until = datetime.fromisoformat(delivery["lease_until"])
    return (until - parsedate_to_datetime(response.headers["date"])).total_seconds()
