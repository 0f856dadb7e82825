"""What gateways send us, over whichever connection: safe in Redis before it is answered.

net's loop ── put ──▶ waiting ── turn (the worker's thread): one script for all that came
                                   └─▶ respond, in the loop again
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.db.utils import InterfaceError, OperationalError
from django.utils.translation import gettext_noop as _

from gateway import bells, sgip
from gateway.directory import Directory
from gateway.inbox.incoming import MoIntake
from gateway.lifecycle import store
from gateway.lifecycle.messages import ReportIn
from gateway.net import Connection
from gateway.net.thread import NetThread
from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import Unavailable
from msgplatform.core.failpoints import failpoint
from msgplatform.core.said import say

log = logging.get(__name__)

Request = sgip.Report | sgip.Deliver | sgip.UserRpt

BATCH = 500
# Requests in memory while Redis is unavailable; beyond it gateways are asked to come again.
MAX_WAITING = 20_000
_DATABASE_PAUSE = 1.0  # seconds
# Delay of the BUSY response to a request that cannot be stored: a gateway may repeat it at once.
ASIDE_SECONDS = 5.0
_ALERT_SECONDS = 60.0  # between two alerts that a gateway reports on what is not its own
_OF_SUBMIT = 0  # ReportType; the other kind is for gateways that forward a Deliver


@dataclass(eq=False, slots=True)
class Arrival:
    connection: Connection
    gateway: int
    request: Request


class Arrivals:
    """`changed` is set when something came. The loop appends to `_waiting`, from which the worker's
    thread takes into `_reports` and `_mos`, which are its own."""

    def __init__(self, net: NetThread, changed: threading.Event, directory: Directory) -> None:
        self._net, self._changed, self._directory = net, changed, directory
        self._waiting: deque[Arrival] = deque()
        self._reports: list[Arrival] = []
        self._mos: list[Arrival] = []
        self._next_mos = Every(_DATABASE_PAUSE)
        self._next_alert = Every(_ALERT_SECONDS)
        self.mo_intake = MoIntake()

    @property
    def open(self) -> int:
        """Requests that have no response yet."""
        return len(self._waiting) + len(self._reports) + len(self._mos)

    # -- in the loop -----------------------------------------------------------------------------
    def put(self, connection: Connection, gateway: int, requests: Sequence[Request]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            for request in requests:
                connection.respond(request, sgip.Result.BUSY)
            return
        self._waiting.extend(Arrival(connection, gateway, request) for request in requests)
        self._changed.set()

    # -- in the worker's thread ------------------------------------------------------------------
    def turn(self) -> int:
        """Make safe what waits, then answer it; how many. Raises when Redis is unavailable: nothing
        of it is lost, and the next turn repeats it."""
        while self._waiting and len(self._reports) < BATCH and len(self._mos) < MAX_WAITING:
            arrival = self._waiting.popleft()
            is_report = isinstance(arrival.request, sgip.Report)
            (self._reports if is_report else self._mos).append(arrival)
        done = len(self._reports)
        if done:
            safe = bisect.isolate(self._reports, self._make_reports_safe, self._set_aside)
            bells.FORWARDER.ring()
            # Killed here: the gateway sends them again, and Redis knows them by then.
            failpoint("sms_receiver_after_report")
            self._respond(safe)
            self._reports = []
        if self._mos and self._next_mos.is_due:
            done += self._take_mos()
        return done

    def _make_reports_safe(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        now = time.time()
        of_submits: dict[Arrival, ReportIn] = {}
        for arrival in arrivals:
            report = arrival.request
            if isinstance(report, sgip.Report) and report.report_type == _OF_SUBMIT:
                node, ts, seqno = report.submit_sequence
                of_submits[arrival] = ReportIn(
                    seqno, ts, node, sgip.international(report.user_number), report.state,
                    report.error_code, now, self._directory.reports_on(arrival.gateway),
                )  # fmt: skip
        became = store.report(list(of_submits.values())) if of_submits else []
        foreign = [a for a, what in zip(of_submits, became, strict=True) if what == "foreign"]
        if foreign and self._next_alert.take():
            first, id = of_submits[foreign[0]], foreign[0].gateway
            gateway = self._directory.gateways.get(id)
            name = gateway.name if gateway else str(id)
            event = alerts.AlertEvent(
                "sms.report",
                say(_("The gateway %(name)s reports on messages of another gateway"), name=name),
                say(
                    _(
                        "%(example)s, for one. Such Reports do not count. If one operator gave you "
                        "both gateways, give both the same operator in the console."
                    ),
                    example=f"{first.node}:{first.ts}:{first.seqno}",
                ),
                key=f"sms.report:{id}",
            )
            alerts.raise_event(event)
        return arrivals

    def _take_mos(self) -> int:
        """Without the database there are no new ids: MOs wait for it, Reports do not."""
        batch = self._mos[:BATCH]
        try:
            safe = bisect.isolate(batch, self._make_mos_safe, self._set_aside)
            bells.FORWARDER.ring()
        except (OperationalError, InterfaceError, Unavailable) as error:
            log.warning("mos_wait", count=len(self._mos), why=str(error)[:200])
            self._next_mos.restart()
            return 0
        failpoint("sms_receiver_after_mo")
        self._respond(safe)
        del self._mos[: len(batch)]
        return len(batch)

    def _make_mos_safe(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        self.mo_intake.take(
            [
                (arrival.gateway, arrival.request)
                for arrival in arrivals
                if not isinstance(arrival.request, sgip.Report)
            ]
        )
        return arrivals

    def _respond(self, arrivals: list[Arrival]) -> None:
        def respond() -> None:
            for arrival in arrivals:
                arrival.connection.respond(arrival.request)

        self._net.call(respond)

    def _set_aside(self, arrival: Arrival, error: Exception) -> alerts.AlertEvent:
        """Refuse it for now, so that it is tried again; the gateway's log keeps it."""

        def refuse_later() -> None:
            refuse = partial(arrival.connection.respond, arrival.request, sgip.Result.BUSY)
            asyncio.get_running_loop().call_later(ASIDE_SECONDS, refuse)

        self._net.call(refuse_later)
        sequence = ":".join(map(str, arrival.request.sequence))
        return alerts.AlertEvent(
            "sms.mo",
            say(_("A request of gateway %(id)s cannot be taken in"), id=str(arrival.gateway)),
            say(
                _("%(what)s. The gateway sends it again."),
                what=f"{sequence}: {type(error).__name__}: {error}"[:900],
            ),
            key=f"sms.mo:{arrival.gateway}",
        )
