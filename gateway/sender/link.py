"""The connections of one gateway as the sender uses them: all of this runs in the net's loop.

    connecting ── Bound ──▶ up ── unbound, because nothing happened ──▶ asleep
     ▲      │               │                                             │ wake, put: at most
     │      │ no Bound      │ Closed for any other reason                 │ once a second
     └──── down ◀───────────┘                                             └──▶ connecting

A gateway may deliver over the link, which it cannot do while the link sleeps. So after the first
request over it, an idle link is connected again at once.

Other threads read only numbers. Submits that a link lost are written again when it is back, but
only until a response would be late: from then on Redis hands out the same bytes, and counts.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime

from gateway import sgip
from gateway.directory import Gateway
from gateway.inbox.arrivals import Arrivals, Request
from gateway.lifecycle.messages import Response
from gateway.net import Client, Connection, Login
from gateway.presence import LinkState
from gateway.sender.pending_submits import UNANSWERED, PendingSubmit, PendingSubmits, response
from msgplatform.core import logging
from msgplatform.core.daemons.timer import Every
from msgplatform.core.rates.backoff import Backoff

log = logging.get(__name__)

# The longest pause between two attempts to connect.
_MAX_PAUSE = 60.0
_WAKE_EVERY = 1.0
_IDLE_MARGIN = 0.8  # unbind before the gateway closes an idle connection


class Link:
    """Writes the Submits of a gateway, and collects the responses for `take`.

    `connections`: this sender's share of the gateway's; 0: the link stands by.
    """

    def __init__(
        self, gateway: Gateway, connections: int, arrivals: Arrivals, wake_event: threading.Event
    ) -> None:
        self.gateway, self.connections = gateway, connections
        self.problem = "connecting"
        self.down_since: float | None = time.monotonic()
        self.is_asleep = False
        self.state_changed = True  # True if other processes should know now
        self.bound_since: dict[Connection, float] = {}
        self._idle: set[Connection] = set()  # connections that were unbound as idle
        self.received_count = 0
        self._arrivals, self._wake_event = arrivals, wake_event
        self._submits = PendingSubmits(gateway.row.response_timeout)
        # The worker's thread counts the first, the loop the second: the difference is on its way.
        self._given_count = self._taken_count = 0
        self._answers: deque[Response] = deque()  # the loop appends, the worker's thread takes
        self._next_wake = Every(_WAKE_EVERY)
        self._client: Client | None = None

    # -- from outside ----------------------------------------------------------------------------
    @property
    def capacity(self) -> int:
        """How many Submits may be given to the link now."""
        coming = len(self._submits.ready) + self._given_count - self._taken_count
        if not self.connections:
            return 0
        return sum(connection.capacity for connection in list(self.bound_since)) - coming

    @property
    def open_count(self) -> int:
        """The number of given Submits without a response."""
        return len(self._submits) + self._given_count - self._taken_count

    @property
    def is_up(self) -> bool:
        return self.connections > 0 and bool(self.bound_since)

    @property
    def can_grow(self) -> bool:
        """True if connections of this sender's share are missing while others are bound."""
        return 0 < len(self.bound_since) < self.connections

    def give(self, submits: list[PendingSubmit]) -> None:
        """Count Submits that the worker's thread will hand over with `put`."""
        self._given_count += len(submits)

    def states(self) -> list[LinkState]:
        """Each connection's state, or why there is none, for the console and other senders."""
        gateway = self.gateway.id
        where = self.gateway.row.address
        if not self.bound_since:
            kind, problem = ("submit", self.problem) if self.connections else ("standby", "")
            return [LinkState(gateway, kind, where, time.time(), problem=problem)]
        times = list(self.bound_since.values())
        return [LinkState(gateway, "submit", where, since) for since in times]

    def take(self) -> list[Response]:
        """The responses since the last call. The loop may append meanwhile."""
        return [self._answers.popleft() for _ in range(len(self._answers))]

    # -- in the loop -----------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to connect. Without a readable password the link stays down, with the reason."""
        row, password = self.gateway.row, self.gateway.login_password
        if password is None:
            self.problem = self.gateway.problem
            log.error("gateway_unusable", gateway=self.gateway.name, why=self.problem)
            return
        sequences = sgip.SequenceSource(self.gateway.node_id, start=random.getrandbits(31))
        self._client = Client(
            sgip.Side.SP,
            row.host,
            row.port,
            Login(row.login_name, password),
            self,
            lambda: sequences.next(datetime.now(UTC)),
            connections=self.connections,
            limits=sgip.Limits(
                window=row.window,
                response_timeout=row.response_timeout,
                resends=0,  # Redis counts the repeats, whichever process makes them
                idle_timeout=row.idle_timeout * _IDLE_MARGIN,
                packet=sgip.MAX_FRAME,
            ),
            backoff=lambda: Backoff(first=0.5, factor=2, cap=_MAX_PAUSE),
            unreachable=self._unreachable,
        )
        self._client.start()

    def resize(self, connections: int) -> None:
        self.connections = connections
        if self._client:
            self._client.resize(connections)

    async def stop(self, timeout: float) -> None:
        if self._client:
            await self._client.stop(timeout)

    def wake(self) -> None:
        """There is more to write than fits: open sleeping connections again."""
        if self._client and self._next_wake.take():
            self._client.wake()

    def put(self, submits: Iterable[PendingSubmit]) -> None:
        """Write Submits as soon as the windows allow it. A Submit in flight is not written
        twice."""
        for submit in submits:
            self._taken_count += 1
            self._submits.add(submit)
        self._pump()

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        requests: list[Request] = []
        for event in events:
            if type(event) is sgip.Answered:
                submit: PendingSubmit = event.context
                self._submits.forget(submit.name)
                result: int = event.response.result  # type: ignore[attr-defined]  # Submit_Resp
                self._answers.append(
                    response(
                        submit.name, result, is_repeated=submit.is_repeated, tries=submit.tries
                    )
                )
            elif isinstance(event, Request):
                requests.append(event)
            elif type(event) is sgip.Ignored:
                self._arrivals.log_refused(connection, event)
                self._late(event)
            elif type(event) is sgip.TimedOut:
                self._submits.forget(event.context.name)  # Redis hands it out again
            else:
                self._link_event(connection, event)
        if requests:
            self.received_count += len(requests)
            self._arrivals.put(connection, self.gateway.id, requests)
        self._pump()
        self._wake_event.set()

    def sweep(self) -> None:
        """Forget Submits that waited for longer than a response may take."""
        self._submits.sweep()

    def _pump(self) -> None:
        client, ready = self._client, self._submits.ready
        if client is None or not ready:
            return
        for connection in sorted(client.bound, key=lambda connection: -connection.capacity):
            while connection.capacity > 0 and (submit := self._submits.next()):
                connection.send(submit.frame, submit)
        if ready and not client.bound:
            self.wake()

    def _late(self, event: sgip.Ignored) -> None:
        """A late response counts, except a refused sequence, which may belong to a repetition."""
        if event.error is not None or event.frame[4] & 0x80 == 0:
            return
        late_response = sgip.decode(event.frame)
        if (
            isinstance(late_response, sgip.SubmitResp)
            and late_response.result != sgip.Result.SEQUENCE
        ):
            name = f"{late_response.sequence[2]}:{late_response.sequence[1]}"
            answer = response(name, late_response.result, is_repeated=True, tries=0)
            self._answers.append(answer)
            if answer.verdict != UNANSWERED:  # a repeat of it may be in flight
                self._submits.forget(name)

    def _link_event(self, connection: Connection, event: sgip.Event) -> None:
        self.state_changed = True
        if type(event) is sgip.Bound:
            self.bound_since[connection] = time.time()
            self.down_since, self.is_asleep, self.problem = None, False, ""
            log.info("gateway_bound", gateway=self.gateway.name, peer=connection.peer)
        elif type(event) is sgip.BindRefused:
            log.warning("gateway_refused", gateway=self.gateway.name, result=event.result)
            self._down(f"login refused: {event.result} {sgip.result_text(event.result)}")
        elif type(event) is sgip.Idle:
            self._idle.add(connection)
        elif type(event) is sgip.Closed:
            self._submits.take_back(event)
            was_bound = self.bound_since.pop(connection, None) is not None
            was_idle = connection in self._idle
            self._idle.discard(connection)
            in_order = event.reason is sgip.CloseReason.UNBOUND and not event.unanswered
            if was_bound and in_order:
                self.is_asleep = not self.bound_since
                if self.is_asleep and was_idle and self.received_count and self._client:
                    self._client.wake()
            elif event.reason is not sgip.CloseReason.REFUSED:  # BindRefused said more
                why = f": {event.error}" if event.error else ""
                self._down(f"link {event.reason.value}{why}")

    def _unreachable(self, error: Exception) -> None:
        self._down(f"no connection: {str(error) or 'it took too long'}")
        self._wake_event.set()

    def _down(self, why: str) -> None:
        """A connection ended or was not made. Nothing changes while there is another connection."""
        if self.bound_since:
            return
        if self.down_since is None:
            self.down_since = time.monotonic()
            log.warning("gateway_lost", gateway=self.gateway.name, why=why)
        self.is_asleep, self.problem, self.state_changed = False, why, True
