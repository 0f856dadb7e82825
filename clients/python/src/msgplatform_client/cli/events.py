"""Commands about events: publish them, and follow what becomes of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from ..answers import FOLLOW_SECONDS
from . import payloads
from .exits import Exit, Failure
from .output import BAD, BOLD, FAINT, GOOD, Part, deliveries, moment
from .session import Session, key_in_errors, key_option, on_platform

_JSON = {"Content-Type": "application/json"}
_FAILED = {"exhausted", "poison"}
_WAITING = {"pending", "queued", "held"}
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", show_default=False,
        help="Stop following after so long, with exit code 5.",
    ),
]  # fmt: skip


@on_platform
def publish(
    session: Session,
    event_type: Annotated[str, typer.Argument(help="Such as order.paid.", show_default=False)] = "",
    payload: Annotated[
        str,
        typer.Argument(
            help="The event's data as JSON; - reads standard input.", show_default=False
        ),
    ] = "",
    file: Annotated[
        str, typer.Option("--file", "-f", help="Read the payload, or the lines, from this file.")
    ] = "",
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="Publish a line of JSON as an event; with an event type, as a payload."
        ),
    ] = False,
    key: Annotated[
        str,
        key_option("Names what happened: the same key again is a duplicate, and no second event."),
    ] = "",
    channel: Annotated[str, typer.Option(help="A shop or a region, for subscriptions.")] = "",
    is_followed: Annotated[
        bool, typer.Option("--follow", help="Follow the event until it has ended.")
    ] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Publish an event, or many.

    msgp publish order.paid '{"order": 7}' -k order-7-paid --follow

    msgp publish order.paid --file order.json

    msgp publish --batch < events.jsonl
    """  # fmt: skip
    if batch:
        if payload or key or is_followed:
            raise Failure(
                "With --batch the lines have payloads and keys, and are not followed.", Exit.USAGE
            )
        _publish_lines(session, payloads.read_text(file or "-"), event_type, channel)
        return
    text = _payload_text(event_type, payload, file)
    with key_in_errors(key) as own_key:
        body = payloads.request(event_type, text, own_key, channel)
        accepted = session.request("POST", "messages", content=body.encode(), headers=_JSON).json()
        session.output.result(accepted, [(accepted["id"], BOLD), "  ", accepted["outcome"]])
        if is_followed:
            _follow(session, accepted["id"], timeout)


@on_platform
def message(
    session: Session,
    id: Annotated[str, typer.Argument(help="The id that publish has printed.")],
    with_payload: Annotated[bool, typer.Option("--payload", help="With its payload.")] = False,
) -> None:
    """Show an event: its deliveries, and the attempts of each."""
    query = {"expand": "payload"} if with_payload else {}
    answer = session.request("GET", f"messages/{checked_id(id)}", params=query)
    shown = answer.json()
    lines = list(_details(shown))
    if with_payload:  # as it was published: a number keeps its digits
        payload = payloads.texts_of_values(answer.text)["payload"]
        lines += [[line] for line in payload.split("\n")]
    session.output.result(shown, *lines)


@on_platform
def follow(
    session: Session,
    id: Annotated[str, typer.Argument(help="The id that publish has printed.")],
    timeout: TimeoutOption = None,
) -> None:
    """Follow an event until it has ended.

    The exit code is 0 when it has arrived everywhere, 1 when a delivery was given up, 5 when the
    time was over.
    """
    _follow(session, checked_id(id), timeout)


def checked_id(id: str) -> str:
    """The id, which becomes a part of an address. Raises Failure."""
    if not (id.isascii() and id.isdigit()):
        raise Failure(f"{id!r} is no id: ids are digits.", Exit.USAGE)
    return id


def states(
    look: Callable[[], Any],
    has_ended: Callable[[Any], bool],
    timeout: float | None,
    began_at: float | None = None,
) -> Iterator[Any]:
    """What `look` gives, now and after each change, until it has ended. Raises Failure after the
    timeout, in seconds since `began_at` of `time.monotonic()`, else since now."""
    began_at = time.monotonic() if began_at is None else began_at
    deadline = None if timeout is None else began_at + timeout
    latest = None
    while True:
        state = look()
        if state != latest:
            yield state
            latest = state
        if has_ended(state):
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise Failure(f"It has not ended after {timeout:g} s.", Exit.TIMEOUT)
        left = FOLLOW_SECONDS if deadline is None else deadline - time.monotonic()
        time.sleep(max(0.0, min(FOLLOW_SECONDS, left)))


def _follow(session: Session, id: str, timeout: float | None) -> None:
    state: Any = None
    for state in states(lambda: session.get(f"messages/{id}"), _has_ended, timeout):
        session.output.result(state, [(state["id"], BOLD), "  ", *deliveries(state)])
    if any(each["status"] in _FAILED for each in state["deliveries"]):
        raise typer.Exit(Exit.FAILED)


def _has_ended(message: Mapping[str, Any]) -> bool:
    return message["state"] != "accepted" and not any(
        each["status"] in _WAITING for each in message["deliveries"]
    )


def _payload_text(event_type: str, payload: str, file: str) -> str:
    """The JSON of one event. Raises Failure."""
    if not event_type:
        raise Failure("Name the event type: msgp publish order.paid …", Exit.USAGE)
    if payload and payload != "-" and file:
        raise Failure("Write the payload, or name its file: not both.", Exit.USAGE)
    if not payload and not file and sys.stdin.isatty():
        raise Failure("Write the payload as JSON behind the event type.", Exit.USAGE)
    is_typed = payload not in ("", "-")
    text = payload if is_typed else payloads.read_text(file or "-")
    payloads.parse(text, "The payload")
    return text


def _publish_lines(session: Session, text: str, event_type: str, channel: str) -> None:
    """Publish each line; nothing is sent when a line is no event."""
    bodies = payloads.requests_of_lines(text, event_type, channel)
    number, rejected = 0, 0
    for body in payloads.batches(bodies):
        answer = session.request("POST", "messages/batch", content=body.encode(), headers=_JSON)
        for verdict in answer.json()["results"]:
            number += 1
            is_rejected = verdict["outcome"] == "rejected"
            rejected += is_rejected
            words = verdict.get("detail") if is_rejected else verdict.get("id")
            style = BAD if is_rejected else GOOD
            parts: list[Part] = [(verdict["outcome"], style), "  ", str(words or "")]
            session.output.result({"event": number, **verdict}, [f"{number}  ", *parts])
    if rejected:
        raise Failure(f"{rejected} of {number} events were rejected.")


def _details(message: Mapping[str, Any]) -> Iterator[list[Part]]:
    channel = f"  channel {message['channel']}" if message.get("channel") else ""
    yield [(message["id"], BOLD), f"  {message['event_type']}{channel}  {message['state']}  ",
           (moment(message["created_at"]), FAINT)]  # fmt: skip
    for each in message["deliveries"]:
        yield ["  ", *deliveries({"deliveries": [each]})]
        for attempt in each.get("attempts", ()):
            answer = attempt.get("http_status") or attempt.get("error") or ""
            detail = attempt.get("response_body") or attempt.get("detail") or ""
            yield [f"    {attempt['number']}.  ", (moment(attempt["at"]), FAINT),
                   f"  {answer}  {attempt['seconds']} s  ", (detail[:200], FAINT)]  # fmt: skip
        if each.get("next_at"):
            yield [f"    next attempt {moment(each['next_at'])}"]
    if not message["deliveries"]:
        yield ["  ", *deliveries(message)]
