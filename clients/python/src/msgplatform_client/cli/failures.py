"""Commands about what was given up: list it, and send it again. They need a management key."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..errors import PlatformError
from .events import TimeoutOption, checked_id, states
from .exits import Exit, Failure
from .output import BAD, BOLD, FAINT, Part, moment
from .session import Session, key_in_errors, key_option, on_platform

_FOLLOW_SECONDS = 5.0
_ENDED = {"done", "failed", "cancelled"}
RateOption = Annotated[
    int | None,
    typer.Option(
        min=1, show_default=False, help="Messages a second; without it as fast as it goes."
    ),
]


@on_platform
def failures(
    session: Session,
    flow: Annotated[
        str, typer.Option(help="Only of this flow: notify, sms, feed or crmsync.")
    ] = "",
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on, and print groups as they change.")
    ] = False,
) -> None:
    """List what was given up, in groups of messages with one place and one answer.

    It needs a management key with manage:failures.

    msgp failures --follow --json
    """
    seen: dict[str, Any] = {}
    while True:
        try:
            _show(session, session.get("failures", flow=flow), seen)
        except PlatformError as error:
            if error.is_permanent or not is_followed:
                raise
            session.output.warn(f"{error}. Trying on.")
        if not is_followed:
            return
        time.sleep(_FOLLOW_SECONDS)


@on_platform
def resend(
    session: Session,
    id: Annotated[
        str, typer.Argument(help="The group's id, of `msgp failures`.", show_default=False)
    ] = "",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="NAME=VALUE",
            show_default=False,
            help="Instead of a group: the messages of a bulk action, such as "
            "subscription=orders/warehouse and status=exhausted.",
        ),
    ] = None,
    flow: Annotated[str, typer.Option(help="The flow of the filters.")] = "notify",
    key: Annotated[
        str, key_option("Of the job of the filters: the same key again starts no second one.")
    ] = "",
    rate: RateOption = None,
    is_preview: Annotated[
        bool, typer.Option("--preview", help="Only count the messages of the filters.")
    ] = False,
    is_certain: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    is_followed: Annotated[
        bool, typer.Option("--follow", help="Follow the job until it has ended.")
    ] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Send again what was given up: a group of failures, or what filters say.

    A group needs a key with manage:failures; filters, and --follow, one with manage:jobs.

    msgp resend 42 --rate 50 --follow

    msgp resend --filter subscription=orders/warehouse --filter status=exhausted
    """  # fmt: skip
    if bool(id) == bool(filters):
        raise Failure("Name a group of `msgp failures`, or filters.", Exit.USAGE)
    if id and key:
        raise Failure("A key is for filters: a group has none.", Exit.USAGE)
    if id and is_preview:
        raise Failure(
            "--preview is for filters: `msgp failures` has the count of a group.", Exit.USAGE
        )
    if id:
        body = {"rate": rate} if rate else {}
        job = session.request("POST", f"failures/{checked_id(id)}/resend", json=body).json()
    else:
        job = _start(session, flow, filters or [], key, rate, is_preview, is_certain)
    if job is None:
        return
    session.output.result(job, _line(job))
    if is_followed:
        _follow(session, job["id"], timeout)


def _start(
    session: Session, flow: str, filters: list[str], key: str, rate: int | None, is_preview: bool,
    is_certain: bool,
) -> Any:  # fmt: skip
    """The job of these filters; None when nothing was started."""
    if wrong := [each for each in filters if not each.partition("=")[2]]:
        raise Failure(f"Write a filter as status=exhausted, not as {wrong[0]!r}.", Exit.USAGE)
    pairs = dict(each.split("=", 1) for each in filters)
    if len(pairs) < len(filters):
        raise Failure("A filter is named twice: it has one value.", Exit.USAGE)
    body: dict[str, Any] = {"flow": flow, "action": "resend", "filter": pairs}
    if is_preview or not is_certain:
        counted = session.request("POST", "jobs", json={**body, "preview": True}).json()
        words = f"{counted['total']}{' or more' if counted['more'] else ''} messages"
        if is_preview:
            session.output.result(counted, [words])
            return None
        confirm(f"Send {words} again?")
    with key_in_errors(key) as own_key:
        body |= {"idempotency_key": own_key} | ({"rate": rate} if rate else {})
        return session.request("POST", "jobs", json=body).json()


def confirm(question: str) -> None:
    """Asks on the terminal. Raises Failure for no, and where nobody can be asked."""
    if not sys.stdin.isatty():
        raise Failure("Without a terminal to ask, the command needs --yes.", Exit.USAGE)
    if not typer.confirm(question, err=True):
        raise Failure("Nothing was done.")


def _follow(session: Session, id: str, timeout: float | None) -> None:
    job: Any = None
    for job in states(lambda: session.get(f"jobs/{id}"), _has_ended, timeout):
        session.output.result(job, _line(job))
    if job["state"] != "done":
        raise typer.Exit(Exit.FAILED)


def _show(session: Session, found: Mapping[str, Any], seen: dict[str, Any]) -> None:
    """Print groups that are new or have grown, the latest last."""
    groups = [each for each in found["results"][::-1] if seen.get(each["id"]) != each]
    seen.clear()
    seen.update((each["id"], each) for each in found["results"])
    rows: list[list[Part]] = [
        [(each["id"], BOLD), each["flow"], each["place"], (each["answer"], BAD), str(each["count"]),
         (moment(each["last_at"]), FAINT), each["meaning"]]
        for each in groups
    ]  # fmt: skip
    for group, line in zip(groups, session.output.table(rows), strict=True):
        session.output.result(group, line)
    for each in found["unread"]:
        session.output.warn(f"Failures of {each['flow']} could not be read: {each['problem']}")


def _has_ended(job: Mapping[str, Any]) -> bool:
    return job["state"] in _ENDED


def _line(job: Mapping[str, Any]) -> list[Part]:
    return [(f"job {job['id']}", BOLD), f"  {job['state']}  {job['done']} of {job['total']}"]
