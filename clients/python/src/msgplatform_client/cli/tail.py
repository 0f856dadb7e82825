"""Command `tail`: events as they come, and what becomes of their deliveries.

The list of events is read again and again, from a little before the newest one on: an event is
listed when its transaction ends, which may be after that of a later one. Events that were printed
already are known by their ids and deliveries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Annotated, Any

import typer

from ..errors import PlatformError
from .output import BOLD, FAINT, deliveries, moment
from .session import Session, on_platform

_OVERLAP = timedelta(seconds=60)
# Events whose deliveries wait longer are not looked at any more.
_MAX_OVERLAP = timedelta(minutes=10)
_MAX_EVENTS = 200  # of the list as it is at the start; with a status, as it is in each look
# The platform looks at up to 10,000 events for a page, which may be short, or empty, and have a
# next one: a few events that fit are not looked for through the whole archive.
_MAX_PAGES = 20
_WAITING = {"pending", "queued", "held"}
_Filters = Mapping[str, str]


@on_platform
def tail(
    session: Session,
    event_type: Annotated[str, typer.Option("--event", help="Only this event type.")] = "",
    channel: Annotated[str, typer.Option(help="Only this channel.")] = "",
    consumer: Annotated[str, typer.Option(help="Only with a delivery for this consumer.")] = "",
    status: Annotated[
        str,
        typer.Option(
            help="Only with a delivery in this status, such as exhausted; the newest 200 of them "
            "are looked at."
        ),
    ] = "",
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=200, help="So many earlier ones first.")
    ] = 10,
    interval: Annotated[
        float, typer.Option(min=0.2, metavar="SECONDS", help="Time between two looks.")
    ] = 1.0,
    is_once: Annotated[
        bool, typer.Option("--no-follow", help="Print the earlier ones, and end.")
    ] = False,
) -> None:
    """Show events as they come, and what becomes of their deliveries, until Ctrl-C.

    msgp tail --event order.paid

    msgp tail --status exhausted -n 50 --no-follow --json
    """
    filters = {"event_type": event_type, "channel": channel, "consumer": consumer, "status": status}
    if not is_once:
        session.compare_versions()
    view = _View(session, filters)
    view.start(lines)
    while not is_once:
        time.sleep(interval)
        try:
            view.look()
        except PlatformError as error:
            if error.is_permanent:
                raise
            session.output.warn(f"{error}. Trying on.")


class _View:
    """Events that were printed: id → the deliveries as they were then."""

    def __init__(self, session: Session, filters: _Filters) -> None:
        self._session, self._filters = session, filters
        self._printed: dict[str, str] = {}
        self._open: dict[str, datetime] = {}  # events with a delivery that waits
        self._first_id = 0  # older events were too many to be remembered: they are not shown
        self._newest_at = datetime.min.replace(tzinfo=UTC)

    def start(self, lines: int) -> None:
        """Print the latest events, and remember where the list stands."""
        # The platform's clock is the one that counts.
        answer = self._session.request("GET", "key")
        self._newest_at = parsedate_to_datetime(answer.headers["date"])
        messages = self._newest()
        if len(messages) == _MAX_EVENTS:
            self._first_id = int(messages[-1]["id"])
        self._show(messages[:lines][::-1])
        for message in messages[lines:]:
            self._remember(message)

    def look(self) -> None:
        """Print what is new or has changed, oldest first."""
        if self._filters["status"]:
            # A delivery may get this status days after its event came.
            messages = self._newest()
        else:
            since = self._since().isoformat()
            messages = list(self._session.pages("messages", since=since, **self._filters))
        self._show(each for each in messages[::-1] if int(each["id"]) >= self._first_id)
        self._forget_old()

    def _newest(self) -> list[Any]:
        """The latest events that fit the filters, from the newest on."""
        pages = self._session.pages("messages", _MAX_PAGES, **self._filters)
        return list(islice(pages, _MAX_EVENTS))

    def _since(self) -> datetime:
        latest_start = self._newest_at - _OVERLAP
        return max(min([latest_start, *self._open.values()]), self._newest_at - _MAX_OVERLAP)

    def _show(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            if self._remember(message):
                self._session.output.result(
                    message,
                    [(moment(message["created_at"]), FAINT), "  ", (message["id"], BOLD),
                     f"  {message['event_type']}  ", *deliveries(message)],
                )  # fmt: skip

    def _remember(self, message: Mapping[str, Any]) -> bool:
        """True if it is new, or its deliveries are other than before."""
        id, at = message["id"], datetime.fromisoformat(message["created_at"])
        now = str([message["state"], message["deliveries"]])
        is_new = self._printed.get(id) != now
        self._printed[id] = now
        self._newest_at = max(self._newest_at, at)
        has_waiting = any(each["status"] in _WAITING for each in message["deliveries"])
        if has_waiting or message["state"] == "accepted":
            self._open[id] = at
        else:
            self._open.pop(id, None)
        return is_new

    def _forget_old(self) -> None:
        """Events that the next looks do not list any more need no memory."""
        oldest_at = self._newest_at - _MAX_OVERLAP
        self._open = {id: at for id, at in self._open.items() if at >= oldest_at}
        if not self._filters["status"] and len(self._printed) > 100_000:
            self._printed = dict(islice(self._printed.items(), 50_000, None))
