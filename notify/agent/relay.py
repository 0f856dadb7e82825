"""The Agent: relays the outbox of a business system to Notify's intake.

    claim (lease)  →  POST a request, outside any transaction  →  delete, or move to outbox_dead

An event is sent at least once: after an Agent died behind the POST, the next Agent sends again, and
the intake knows the key. While the intake is unavailable rows are given back, and the Agent tries
again for ever.

Outcomes of a request of one or many rows:

    a verdict for each   created, duplicate: deleted; rejected: moved to outbox_dead
    too much (413)       halved and sent again; a single row is dead when the intake itself refused
                         the request, and is pushed back when a proxy refused it
    broken (500)         the rows are pushed back, into smaller and smaller requests; after two such
                         outcomes in a row the Agent pauses
    unavailable          all rows are given back; the Agent waits. A row that was alone in a request
                         that was too slow comes back later, because it may be at fault
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from django.db import DatabaseError
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from msgplatform.core import logging
from msgplatform.core.daemons import bisect
from msgplatform.core.daemons.daemon import Worker
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data.claims import Claim
from msgplatform.core.failpoints import failpoint
from msgplatform.core.rates.backoff import Backoff, delay
from notify.agent.client import MAX_REQUEST_BYTES, Answer, IntakeClient, Kind
from notify.agent.store import MAX_COUNTED, Due, Event, Refusal, Store

log = logging.get(__name__)

LEASE_SECONDS = 60.0
TIMEOUT_SECONDS = 20.0
# Seconds between the end of a request and the end of the lease, to store the outcome.
MARGIN_SECONDS = 15.0
MAX_BATCH = 1000  # events that the intake takes in one request
_MEASURE_SECONDS = 10.0
_LONG_TROUBLE = 60.0  # seconds of an outage after which the log says error
STAYS_SECONDS = 3600.0  # the pause of a row that the database refuses to delete
_SLICE_SECONDS = 2.0  # a longer pause is cut into slices, so that heartbeats go on
# Seconds until a row is sent again after the intake broke on it for the n-th time. Short while the
# request is halved to find the row, long when the row is alone.
_BROKEN_SCHEDULE = (1, 1, 2, 2, 4, 4, 8, 8, 15, 30, 60, 300, 900, 3600)
_MAX_BROKEN = 2  # broken requests in a row, after which the rows are not to blame
_UP_TO = f"counted up to {MAX_COUNTED:,}"


class Figures:
    """The Agent's metrics for Prometheus. The Agent serves them itself (`serve`), because it runs
    far from the platform."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        gauge = partial(Gauge, registry=registry)
        self.pending = gauge("outbox_pending", f"Rows that wait in the outbox; {_UP_TO}")
        self.oldest = gauge("outbox_oldest_seconds", "Age of the oldest row")
        self.dead = gauge("outbox_dead", f"Rows that the intake refused; {_UP_TO}")
        self.counted_at = gauge("outbox_measured_timestamp_seconds", "When the tables were counted")
        self.intake_up = gauge("outbox_intake_up", "1 when it answered last time")
        self.relayed = Counter("outbox_relayed", "Rows done with", ["result"], registry=registry)
        for result in ("created", "duplicate", "refused"):
            self.relayed.labels(result)

    def serve(self, host: str, port: int) -> None:
        """Answer Prometheus from a thread. Raises OSError when the port is taken."""
        start_http_server(port, host, registry=self.registry)


class Relay(Worker):
    """An Agent for one outbox. Any number of Agents may work on the same outbox."""

    role = "agent"
    watches = False

    def __init__(
        self,
        store: Store,
        client: IntakeClient,
        batch: int = 500,
        name: str = "",
        figures: Figures | None = None,
        idle: Backoff | None = None,
        trouble: Backoff | None = None,
        lease: float = LEASE_SECONDS,
    ) -> None:
        super().__init__()
        if name:
            self.heartbeat.host = name
        self.store, self.client = store, client
        self.batch = batch
        self.figures = figures or Figures()
        self._idle = idle or Backoff(first=0.2, factor=1.3, cap=2.0)
        self._trouble = trouble or Backoff(first=0.5, factor=2.0, cap=25.0)
        self._lease = lease
        self._max_rows = batch  # events in a request; less while the intake is slow
        self._broken_count = 0  # requests in a row
        self._unavailable_since = 0.0
        self._resume_at = 0.0
        self._next_measure = Every(_MEASURE_SECONDS)

    def turn(self) -> bool:
        """Relay one claim. Returns True always, because this method makes the pauses itself."""
        if self._next_measure.is_due:
            measure = self.store.measure()
            self._next_measure.restart()  # after the query, so that a slow database gets a pause
            self.heartbeat.lag = round(measure.oldest, 1) if measure.pending else None
            self.figures.pending.set(measure.pending)
            self.figures.oldest.set(measure.oldest)
            self.figures.dead.set(measure.dead)
            self.figures.counted_at.set(time.time())
        pause = self._resume_at - time.monotonic()
        if pause > 0:
            self.stopping.wait(min(pause, _SLICE_SECONDS))
            return True
        # Read the clock before the claim, so that this end of the lease is not too late.
        lease_end = time.monotonic() + self._lease
        claim = self.store.claim(self.batch, self._lease)
        failpoint("agent_after_claim")
        if not claim:
            self.stopping.wait(self._idle.next())
            return True
        self._idle.reset()
        self._relay(claim, lease_end)
        return True

    def stop(self) -> None:
        self.client.close()
        self.store.close()

    # -- one claim -------------------------------------------------------------------------------
    def _relay(self, claim: Claim, lease_end: float) -> None:
        """Send the claim request by request; rows that are not sent are given back."""
        requests = deque(self._requests(claim))
        while requests:
            is_late = time.monotonic() + self.client.timeout + MARGIN_SECONDS > lease_end
            if is_late or self.stopping:
                self.store.release(claim, _ids(requests))
                return
            request = requests.popleft()
            # The Agent refuses a row that would make the intake refuse the whole request.
            refusals: dict[int, Refusal] = {}
            for row in request:
                if row.size > MAX_REQUEST_BYTES:
                    refusals[row.id] = Refusal(
                        "too_large",
                        f"payload: it has {row.size} bytes, more than a request may have; "
                        "publish a reference to what is large",
                    )
            events: list[Event] = []
            for event in self.store.read(
                claim, [row.id for row in request if row.id not in refusals]
            ):
                try:
                    # Check the JSON first: a missing quote would break the whole request.
                    event.payload.decode()
                    msgspec.json.decode(event.payload)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    reason = f"payload: it is not JSON in UTF-8: {error}"
                    refusals[event.id] = Refusal("invalid", reason)
                else:
                    events.append(event)
            self._settle(claim, [], refusals)
            if not events:
                continue
            answer = self.client.send(events)
            failpoint("agent_after_send_before_delete")
            if answer.kind is Kind.VERDICTS:
                self._settle_verdicts(claim, events, answer)
            elif answer.kind is Kind.TOO_MUCH and len(request) > 1:
                middle = len(request) // 2
                requests.extendleft([request[middle:], request[:middle]])
            elif answer.kind is Kind.TOO_MUCH and answer.is_condemned:
                self._settle(claim, [], {request[0].id: Refusal("invalid", answer.detail)})
            elif answer.kind is Kind.UNAVAILABLE and answer.is_slow and len(request) == 1:
                self.store.release(claim, _ids([request]), LEASE_SECONDS, answer.detail)
                self._pause(claim, _ids(requests), answer)
                return
            elif answer.kind is Kind.UNAVAILABLE:
                self._pause(claim, _ids([request, *requests]), answer)
                return
            elif not self._push_back(claim, request, answer):
                self._pause(claim, _ids(requests), answer)
                return

    def _requests(self, claim: Claim) -> Iterator[Sequence[Due]]:
        """Cut the claim into requests. The more often the intake broke on a row, the smaller is its
        request."""
        request: list[Due] = []
        row_limit, request_bytes = self._max_rows, 0
        for row in self.store.due(claim):
            limit_of_row = max(1, self.batch >> min(row.attempts, 32))
            is_full = len(request) >= min(row_limit, limit_of_row)
            if request and (is_full or request_bytes + row.size > MAX_REQUEST_BYTES):
                yield request
                request, row_limit, request_bytes = [], self._max_rows, 0
            request.append(row)
            row_limit, request_bytes = min(row_limit, limit_of_row), request_bytes + row.size
        if request:
            yield request

    # -- outcomes --------------------------------------------------------------------------------
    def _settle_verdicts(self, claim: Claim, events: Sequence[Event], answer: Answer) -> None:
        """Settle events by the intake's verdicts: the intake works."""
        self._trouble.reset()
        self._broken_count = 0
        self.figures.intake_up.set(1)
        if self._unavailable_since:
            seconds = round(time.monotonic() - self._unavailable_since)
            log.info("agent_intake_back", seconds=seconds)
            self._unavailable_since = 0.0
        self._max_rows = min(self.batch, self._max_rows * 2)
        refusals = {events[place].id: reason for place, reason in answer.refusals.items()}
        delivered_ids = [event.id for event in events if event.id not in refusals]
        settled_count = self._settle(claim, delivered_ids, refusals)
        if settled_count < len(events):
            log.warning("agent_overtaken", rows=len(events) - settled_count)
        self.heartbeat.done += len(delivered_ids)
        created_count = len(delivered_ids) - answer.duplicates
        self.figures.relayed.labels("created").inc(created_count)
        self.figures.relayed.labels("duplicate").inc(answer.duplicates)

    def _settle(
        self, claim: Claim, delivered_ids: Sequence[int], refusals: dict[int, Refusal]
    ) -> int:
        """Delete delivered rows, move refused rows; returns the number of rows still claimed."""

        def settle(ids: Sequence[int]) -> Sequence[int]:
            done_ids = [row_id for row_id in ids if row_id not in refusals]
            refused_rows = {row_id: refusals[row_id] for row_id in ids if row_id in refusals}
            return [self.store.settle(claim, done_ids, refused_rows)]

        def leave(row_id: int, error: Exception) -> None:
            """Leave a row that the business system's database refuses to delete until later."""
            log.error("agent_row_stays", row=row_id, again_in=STAYS_SECONDS, exc_info=error)
            with suppress(DatabaseError):  # if this fails too, the row is due after its lease
                self.store.release(claim, [row_id], STAYS_SECONDS, str(error), counts_attempt=True)

        ids = [*delivered_ids, *refusals]
        settled_count = sum(
            bisect.isolate(ids, settle, leave, bisect.is_unanswered, self.store.alias)
        )
        self.figures.relayed.labels("refused").inc(len(refusals))
        for row_id, refusal in list(refusals.items())[:10]:
            log.warning("agent_row_refused", row=row_id, code=refusal.code, reason=refusal.reason)
        return settled_count

    def _push_back(self, claim: Claim, request: Sequence[Due], answer: Answer) -> bool:
        """Push the rows back, to be sent in smaller requests. True if one of the rows may be to
        blame, False if the intake is broken."""
        seconds = delay(max(row.attempts for row in request) + 1, _BROKEN_SCHEDULE)
        self.store.release(claim, _ids([request]), seconds, answer.detail, counts_attempt=True)
        log.error("agent_intake_broke", rows=len(request), first=request[0].id, why=answer.detail,
                  again_in=round(seconds, 1))  # fmt: skip
        if len(request) > 1 or not request[0].attempts:
            self._broken_count += 1  # not for a row that broke a request alone before
        return self._broken_count < _MAX_BROKEN

    def _pause(self, claim: Claim, ids: Sequence[int], answer: Answer) -> None:
        """Give the rows back, and send nothing for a while: the intake is unavailable."""
        self._broken_count = 0
        if answer.is_slow:
            self._max_rows = max(1, self._max_rows // 2)
        now = time.monotonic()
        self._unavailable_since = self._unavailable_since or now
        seconds = max(self._trouble.next(), min(answer.retry_after, 30.0))
        self._resume_at = now + seconds
        self.figures.intake_up.set(0)
        seconds_away = round(now - self._unavailable_since)
        report = log.error if seconds_away >= _LONG_TROUBLE else log.warning
        report(
            "agent_intake_away", why=answer.detail, seconds=seconds_away, again_in=round(seconds, 1)
        )
        self.store.release(claim, ids, seconds, answer.detail)


def _ids(requests: Iterable[Sequence[Due]]) -> list[int]:
    return [row.id for request in requests for row in request]
