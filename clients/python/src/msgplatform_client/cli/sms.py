"""Commands about texts: send one, and follow what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from .events import TimeoutOption, checked_id, states
from .exits import Exit
from .output import BAD, BOLD, FAINT, GOOD, WAITING, Part, moment
from .session import Session, key_in_errors, key_option, on_platform

sms = typer.Typer(no_args_is_help=True, help="Send texts, and look at what becomes of them.")
_UNDER_WAY = {"pending", "submitted", "responded"}
# A text of an account without Reports ends as accepted.
_ARRIVED = {"delivered", "accepted"}
_TIMES = ("accepted_at", "schedule_at", "submitted_at", "responded_at", "reported_at")


@on_platform
def send(
    session: Session,
    text: Annotated[str, typer.Argument(help="The text.")],
    to: Annotated[list[str], typer.Argument(help="Telephone numbers.")],
    key: Annotated[str, key_option("Names what happened: the same key again sends nothing.")] = "",
    account: Annotated[str, typer.Option(help="The SMS account, if there are several.")] = "",
    reference: Annotated[str, typer.Option(help="Your own name for it, in reports.")] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="Not before: 2026-11-20T08:00:00Z.")
    ] = "",
    is_followed: Annotated[
        bool, typer.Option("--follow", help="Follow it until its state is final.")
    ] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Send a text to one number or several.

    msgp sms send 'Your code is 1234' 13800000000 -k order-7-code --follow
    """  # fmt: skip
    optional = {"account": account, "reference": reference, "schedule_at": at}
    values = {name: value for name, value in optional.items() if value}
    with key_in_errors(key) as own_key:
        body = {"to": to, "text": text, "idempotency_key": own_key, **values}
        accepted = session.request("POST", "sms", json=body).json()
        outcome, ids = accepted["outcome"], accepted["ids"]
        lines: list[list[Part]] = [[(id, BOLD), "  ", outcome] for id in ids]
        session.output.result(accepted, *lines)
        if is_followed:
            _follow(session, ids, timeout)


@on_platform
def show(session: Session, id: Annotated[str, typer.Argument(help="The text's id.")]) -> None:
    """Show where a text is."""
    state = session.get(f"sms/{checked_id(id)}")
    times: list[list[Part]] = [
        [f"  {name.removesuffix('_at')}  ", (moment(state[name]), FAINT)]
        for name in _TIMES
        if state.get(name)
    ]
    session.output.result(state, _line(state), ["  ", state["text"]], *times)


@on_platform
def follow(
    session: Session,
    id: Annotated[str, typer.Argument(help="The text's id.")],
    timeout: TimeoutOption = None,
) -> None:
    """Follow a text until its state is final.

    The exit code is 0 when it was delivered, or accepted by the gateway where no Report comes, 1
    when it was not, 5 when the time was over.
    """
    _follow(session, [checked_id(id)], timeout)


def _follow(session: Session, ids: list[str], timeout: float | None) -> None:
    endings, began_at = [], time.monotonic()
    for id in ids:
        state: Any = None
        look = partial(session.get, f"sms/{id}")
        for state in states(look, _has_ended, timeout, began_at):
            session.output.result(state, _line(state))
        endings.append(state["state"])
    if not _ARRIVED.issuperset(endings):
        raise typer.Exit(Exit.FAILED)


def _has_ended(state: Mapping[str, Any]) -> bool:
    return state["state"] not in _UNDER_WAY


def _line(state: Mapping[str, Any]) -> list[Part]:
    name = state["state"]
    style = GOOD if name in _ARRIVED else WAITING if name in _UNDER_WAY else BAD
    error = f"  {state['error']}" if state.get("error") else ""
    return [(state["id"], BOLD), f"  {state['to']}  ", (name, style), error]


for _name, _command in (("send", send), ("show", show), ("follow", follow)):
    sms.command(_name)(_command)
