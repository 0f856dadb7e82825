"""Requests of gateways, over any connection: safe in Redis before they are answered.

net's loop ── put ─┬▶ Reports ── turn (the worker's thread): one script for all that came
                   │                └─▶ respond, in the loop again
                   └▶ MOs ── a thread of their own: their ids come from the database, which may
                                    └─▶ respond           hang, and Reports do not wait for it
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

import msgspec
from django.utils.translation import gettext_noop as _

from gateway import sgip, signals
from gateway.directory import Directory
from gateway.inbox import mo_intake
from gateway.lifecycle import store
from gateway.lifecycle.messages import ReportIn
from gateway.net import Connection, NetThread
from gateway.sgip.constants import ReportType
from gateway.sgip.fields import WORDS
from msgplatform.core import alerts, logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.failpoints import failpoint

log = logging.get(__name__)

Request = sgip.Report | sgip.Deliver | sgip.UserRpt

BATCH = 500
# Maximum of Reports, and of MOs, that wait in memory while a server is unavailable. Further
# requests are answered with BUSY.
MAX_WAITING = 20_000
# Maximum pause of the MOs' thread in seconds, also after trouble with the database.
_MO_PAUSE = 1.0
# Seconds before the BUSY response to a request that was not stored: a gateway may repeat at once.
ASIDE_SECONDS = 5.0
_ALERT_SECONDS = 60.0  # seconds between alerts about Reports on another gateway's messages
_LOG_SECONDS = 10.0  # seconds between log lines about requests that a session refused
# Maximum of waiting alerts while the database hangs: the log has each alert.
_MAX_ALERTS = 100
_UNTIL_PUT = 60.0  # seconds; `put` ends the pause
_STOP_SECONDS = 1.0


class Arrival(msgspec.Struct, eq=False):
    connection: Connection
    gateway: int
    request: Request


class Arrivals:
    """`wake_event` is set when a Report comes. The loop appends to `_waiting` and `_mos`. The
    worker's thread takes from `_waiting`, the MOs' thread from `_mos`."""

    def __init__(self, net: NetThread, wake_event: threading.Event, directory: Directory) -> None:
        self._net, self._wake_event, self._directory = net, wake_event, directory
        self._waiting: deque[Arrival] = deque()
        self._reports: list[Arrival] = []
        self._mos: list[Arrival] = []
        self._reports_done = self._mos_done = 0  # one thread writes each
        self._next_alert, self._next_log = Every(_ALERT_SECONDS), Every(_LOG_SECONDS)
        self._refused_count = 0  # requests that sessions refused, since the last line in the log
        self._alerts = AlertQueue()
        self._mo_thread = ThreadLoop(
            "mos", self._take_mos, every=_MO_PAUSE, longest_pause=_MO_PAUSE
        )

    @property
    def open_count(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._waiting) + len(self._reports) + len(self._mos)

    @property
    def done_count(self) -> int:
        """The number of requests that are safe and answered."""
        return self._reports_done + self._mos_done

    def start(self) -> None:
        self._alerts.start()
        self._mo_thread.start()

    def stop(self) -> None:
        self._mo_thread.stop()
        self._alerts.stop(_STOP_SECONDS)

    # -- in the loop -----------------------------------------------------------------------------
    def put(self, connection: Connection, gateway: int, requests: Sequence[Request]) -> None:
        for request in requests:
            is_report = isinstance(request, sgip.Report)
            waiting = self._waiting if is_report else self._mos
            if len(waiting) >= MAX_WAITING:
                connection.respond(request, sgip.Result.BUSY)
            else:
                waiting.append(Arrival(connection, gateway, request))
        if self._mos:
            self._mo_thread.wake()
        self._wake_event.set()

    def log_refused(self, connection: Connection, event: sgip.Ignored) -> None:
        """Log a request that its session refused, because an SMG does not repeat a refused MO. One
        line in a while, with the number since the last line."""
        if event.error is None or event.frame[4] & 0x80:  # a duplicate, or a response
            return
        self._refused_count += 1
        if self._next_log.take():
            sequence = ":".join(map(str, WORDS.unpack_from(event.frame, 8)))
            log.warning(
                "request_refused", peer=connection.peer, sequence=sequence, why=str(event.error),
                count=self._refused_count,
            )  # fmt: skip
            self._refused_count = 0

    # -- in the worker's thread ------------------------------------------------------------------
    def turn(self) -> int:
        """Make the waiting Reports safe, then answer them; returns how many. Raises when Redis is
        unavailable: no Report is lost, and the next turn repeats the work."""
        while self._waiting and len(self._reports) < BATCH:
            self._reports.append(self._waiting.popleft())
        count = len(self._reports)
        if count:
            safe = bisect.isolate(self._reports, self._make_reports_safe, self._set_aside)
            signals.FORWARDER.send()
            # Killed here: the gateway repeats the Reports, and Redis knows them.
            failpoint("sms_receiver_after_report")
            self._respond(safe)
            self._reports = []
            self._reports_done += count
        return count

    def _make_reports_safe(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        now = time.time()
        reports: dict[Arrival, ReportIn] = {}
        for arrival in arrivals:
            report = arrival.request
            if isinstance(report, sgip.Report) and report.report_type == ReportType.SUBMIT:
                node, ts, seqno = report.submit_sequence
                reports[arrival] = ReportIn(
                    seqno, ts, node, sgip.international(report.user_number), report.state,
                    report.error_code, now, self._directory.reports_on(arrival.gateway),
                )  # fmt: skip
        outcomes = store.report(list(reports.values())) if reports else []
        foreign = [a for a, outcome in zip(reports, outcomes, strict=True) if outcome == "foreign"]
        if foreign and self._next_alert.take():
            first, report_in = foreign[0], reports[foreign[0]]
            gateway = self._directory.known.receiving.get(first.gateway)
            event = alerts.AlertEvent.of(
                f"sms.report:{first.gateway}",
                _("The gateway %(name)s reports on messages of another gateway"),
                _(
                    "%(example)s, for one. Such Reports do not count. If one operator gave you "
                    "both gateways, give both the same operator in the console."
                ),
                name=gateway.name if gateway else str(first.gateway),
                example=f"{report_in.node}:{report_in.ts}:{report_in.seqno}",
            )
            self._alerts.put(event)
        return arrivals

    # -- in the MOs' thread ----------------------------------------------------------------------
    def _take_mos(self) -> float | None:
        """Make the oldest MOs safe, then answer them. Raises when Redis or the database, which
        gives new ids, is unavailable: MOs wait for it, but Reports do not."""
        batch = self._mos[:BATCH]
        if not batch:
            return None
        safe = bisect.isolate(batch, self._make_mos_safe, self._set_aside)
        signals.FORWARDER.send()
        failpoint("sms_receiver_after_mo")
        self._respond(safe)
        del self._mos[: len(batch)]
        self._mos_done += len(batch)
        return 0.0

    def _make_mos_safe(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        mo_intake.take(
            [
                (arrival.gateway, arrival.request)
                for arrival in arrivals
                if not isinstance(arrival.request, sgip.Report)
            ]
        )
        return arrivals

    # -- in both threads -------------------------------------------------------------------------
    def _respond(self, arrivals: list[Arrival]) -> None:
        def respond() -> None:
            for arrival in arrivals:
                arrival.connection.respond(arrival.request)

        self._net.call(respond)

    def _set_aside(self, arrival: Arrival, error: Exception) -> None:
        """Refuse the request for now, so that the gateway repeats it. The log keeps it."""

        def refuse_later() -> None:
            refuse = partial(arrival.connection.respond, arrival.request, sgip.Result.BUSY)
            asyncio.get_running_loop().call_later(ASIDE_SECONDS, refuse)

        self._net.call(refuse_later)
        sequence = ":".join(map(str, arrival.request.sequence))
        log.error("set_aside", gateway=arrival.gateway, sequence=sequence, exc_info=error)
        gateway = self._directory.known.receiving.get(arrival.gateway)
        event = alerts.AlertEvent.of(
            f"sms.mo:{arrival.gateway}",
            _("A request of the gateway %(name)s cannot be taken in"),
            _("%(what)s. The gateway sends it again."),
            name=gateway.name if gateway else str(arrival.gateway),
            what=f"{sequence}: {type(error).__name__}: {error}"[:900],
        )
        self._alerts.put(event)


class AlertQueue(ThreadLoop):
    """Any thread may `put`; only this thread asks the database."""

    def __init__(self) -> None:
        super().__init__("alerts", self._raise, every=_UNTIL_PUT, last=self._raise)
        self._waiting: deque[alerts.AlertEvent] = deque()

    def put(self, event: alerts.AlertEvent) -> None:
        """Raise the alert soon; returns at once. Beyond _MAX_ALERTS it is dropped."""
        if len(self._waiting) >= _MAX_ALERTS:
            log.warning("alert_dropped", kind=event.kind, subject=event.subject, key=event.key)
            return
        self._waiting.append(event)
        self.wake()

    def _raise(self) -> None:
        while self._waiting:
            alerts.raise_event(self._waiting.popleft())
