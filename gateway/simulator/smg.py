"""A simulated SMG: takes Submits, writes down what it accepted, sends Reports and MOs.

Its log is what a test or a bench compares with: one line for each user of a Submit, flushed
before the response leaves: `node:time:counter <tab> user <tab> part/parts <tab> result`. A Submit
that comes again, over whichever connection, is answered again and not written again; also after a
restart, since the log is read then.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from gateway import sgip
from gateway.net import Client, Connection, Login, Server
from gateway.sgip.constants import THROTTLED
from gateway.simulator.journal import Journal, Outbox, read_log
from msgplatform.core.rates.backoff import Backoff

_GARBAGE = b"\0\0\0\5garbage"
NODE = sgip.smg_node_id("010", 1)
_LOG_BUFFER = 1 << 20  # bytes


class ReportTime(Enum):
    AFTER = "after the response"
    BEFORE = "before the response"
    NEVER = "never"


class Behaviour(msgspec.Struct, frozen=True):
    """Times are in seconds. Numbers of Submits are those of one connection."""

    login_result: int = 0
    result: int = 0
    response_delay: float | None = 0  # of a Submit's response; None: no response at all
    per_second: int | None = None  # Submits beyond this number get THROTTLED
    limit_first: bool = False  # `per_second` also counts repeats, and is asked before the memory
    drop_after: int | None = None  # after so many accepted Submits the link is cut without answers
    garbage_after: int | None = None  # number of Submits
    reports: ReportTime = ReportTime.AFTER
    report_copies: int = 1  # each repetition under its own sequence
    resent_reports: bool = False  # each frame is written twice
    on_submit_link: bool = False  # Reports and MOs come over the SP's own connection
    state: int = sgip.State.DELIVERED
    error_code: int = 0


BEHAVIOURS: dict[str, Behaviour] = {
    "happy": Behaviour(),
    "silent": Behaviour(response_delay=None, reports=ReportTime.NEVER),
    "slow": Behaviour(response_delay=0.5),
    "refusing": Behaviour(result=int(sgip.Result.NO_ROUTE)),
    "failing": Behaviour(state=sgip.State.FAILED, error_code=int(sgip.Result.UNKNOWN_USER)),
    "unwelcoming": Behaviour(login_result=int(sgip.Result.LOGIN)),
    "throttling": Behaviour(per_second=50),
    "dropping": Behaviour(drop_after=20),
    "overloaded": Behaviour(per_second=20, drop_after=20, limit_first=True),
    "early-reports": Behaviour(response_delay=0.05, reports=ReportTime.BEFORE),
    "submit-link": Behaviour(on_submit_link=True),
    "duplicating": Behaviour(report_copies=2, resent_reports=True),
    "garbage": Behaviour(garbage_after=20),
}


class _NoMemory(sgip.Duplicates):
    """Sessions take every command as new: the simulator itself remembers, behind its flow limit."""

    def admit(self, frame: bytes) -> int | None:
        return None


class Simulator:
    """An SMG on `port` (0: a free one); `listener` is where an SP takes Reports and MOs.

    Without a listener they come over the connections of the SP. An SP logs in with `login`, the
    simulator to the SP with `smg_login`. With a `journal` it still knows after a kill what it owes.
    """

    def __init__(
        self,
        log: Path,
        behaviour: Behaviour | None = None,
        *,
        journal: Path | None = None,
        listener: tuple[str, int] | None = None,
        login: Login | None = None,
        smg_login: Login | None = None,
        limits: sgip.Limits | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.behaviour = behaviour = behaviour or Behaviour()
        self.accepted: Counter[int] = Counter()  # Submits by Result
        self.throttled_repeats = 0  # only with the behaviour's `limit_first`
        self.changed = asyncio.Event()  # set whenever a command came
        self.log, self.host, self._port = log, host, port
        self._login = login or Login("sp", "secret")
        self._results = dict(read_log(log))  # Submit's sequence → Result
        # Lines that came together are one write: a kill leaves no half of a Submit.
        self._log_file = log.open("a", encoding="ascii", buffering=_LOG_BUFFER)
        # Not from 0: commands before a restart, or of other simulators, must not be duplicates.
        self._sequences = sgip.SequenceSource(NODE, start=random.getrandbits(31))
        self._submits: Counter[Connection] = Counter()
        self._references = 0
        self._second = (0, 0)  # the present second, and its number of Submits
        memory = _NoMemory if behaviour.limit_first else sgip.Duplicates
        self._server = Server(sgip.Side.SMG, self.check, self, limits=limits, duplicates=memory)
        self._client: Client | None = None
        if listener is not None and not behaviour.on_submit_link:
            own_login = smg_login or Login("smg", self._login.password)
            to_sp = replace(own_login, login_type=sgip.LoginType.SMG_TO_SP)
            # An SP in development is often unavailable, and not for long.
            self._client = Client(
                sgip.Side.SMG, *listener, to_sp, self, self._next, limits=limits,
                backoff=lambda: Backoff(first=0.2, factor=2, cap=2),
            )  # fmt: skip
        self._journal = Journal(journal) if journal else None
        self.outbox = Outbox(
            lambda: self._client.bound if self._client else self.connections,
            is_doubling=behaviour.resent_reports,
            journal=self._journal,
        )
        if self._journal and behaviour.reports is not ReportTime.NEVER:
            for submit, user in self._journal.unreported_users(log):
                self.outbox.put(sgip.Report(
                    self._next(), submit, 0, user, behaviour.state, behaviour.error_code,
                ))  # fmt: skip

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def connections(self) -> list[Connection]:
        """The connections of SPs."""
        return list(self._server.connections)

    async def __aenter__(self) -> Simulator:
        await self._server.start(self.host, self._port)
        if self._client:
            self._client.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._client:
            await self._client.stop(timeout=1)
        await self._server.stop()
        self._log_file.close()
        if self._journal:
            self._journal.close()

    def deliver(self, user: str, sp_number: str, text: str) -> int:
        """A user sends a text, in one MO or in several; gives their number."""
        self._references += 1
        parts = sgip.split(text, self._references, sgip.SplitOptions())
        for content in parts.contents:
            self.outbox.put(
                sgip.Deliver(
                    self._next(),
                    user,
                    sp_number,
                    tp_udhi=parts.tp_udhi,
                    message_coding=parts.message_coding,
                    message_content=content,
                )
            )
        self._pump()
        return len(parts.contents)

    def check(self, _: Connection, bind: sgip.Bind) -> int:
        """The Result for a Bind."""
        is_right = (bind.login_name, bind.login_password) == (
            self._login.name,
            self._login.password,
        )
        return self.behaviour.login_result or (0 if is_right else 1)

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        submits = [event for event in events if type(event) is sgip.Submit]
        results = [(submit, self._accept(connection, submit)) for submit in submits]
        if results:
            self._log_file.flush()  # an answered Submit is written down
            if self.behaviour.reports is ReportTime.BEFORE:
                self._report(results)
                self._pump()
            delay = self.behaviour.response_delay
            if delay:
                loop = asyncio.get_running_loop()
                loop.call_later(delay, self._respond, connection, results)
            elif delay is not None:
                self._respond(connection, results)
        for event in events:
            if type(event) is sgip.Trace:
                hop = sgip.TraceHop(0, str(NODE), "", "")
                connection.respond_trace(sgip.TraceResp(event.sequence, (hop,)))
            elif type(event) is sgip.Closed:
                self._submits.pop(connection, None)
        self.outbox.take(events)
        self._pump()
        self.changed.set()

    def _accept(self, connection: Connection, submit: sgip.Submit) -> int:
        # The Submit is known from an earlier run's log, or from `limit_first`; otherwise the
        # session answers repeats.
        earlier_result = self._results.get(submit.sequence)
        behaviour = self.behaviour
        if earlier_result is not None and behaviour.limit_first and self._is_over_limit():
            self.throttled_repeats += 1
            return THROTTLED
        if earlier_result is not None:
            return earlier_result
        result = THROTTLED if self._is_over_limit() else behaviour.result
        if behaviour.limit_first and result not in sgip.RETRY_RESULTS:
            self._results[submit.sequence] = result
        self.accepted[result] += 1
        self._submits[connection] += 1
        part = sgip.part_of(submit)
        sequence = ":".join(map(str, submit.sequence))
        for user in submit.user_numbers:
            self._log_file.write(f"{sequence}\t{user}\t{part.number}/{part.total}\t{result}\n")
        return result

    def _is_over_limit(self) -> bool:
        """Counts one more Submit of this second."""
        limit = self.behaviour.per_second
        if limit is None:
            return False
        now = int(asyncio.get_running_loop().time())
        second, count = self._second
        self._second = (now, count + 1 if second == now else 1)
        return self._second[1] > limit

    def _respond(self, connection: Connection, results: list[tuple[sgip.Submit, int]]) -> None:
        for submit, result in results:
            connection.respond(submit, result)
        behaviour, count = self.behaviour, self._submits[connection]
        if behaviour.drop_after is not None and count >= behaviour.drop_after:
            connection.drop()
        elif behaviour.garbage_after is not None and count >= behaviour.garbage_after:
            connection.write_raw(_GARBAGE)
        if behaviour.reports is ReportTime.AFTER:
            self._report(results)
            self._pump()

    def _report(self, results: list[tuple[sgip.Submit, int]]) -> None:
        behaviour = self.behaviour
        report_flags = {sgip.ReportFlag.ALWAYS}
        if behaviour.state == sgip.State.FAILED:
            report_flags.add(sgip.ReportFlag.ON_FAILURE)
        reports = [
            (submit, user)
            for submit, result in results
            if not result and submit.report_flag in report_flags
            for user in submit.user_numbers * behaviour.report_copies
        ]
        sequences = self._sequences.take(len(reports), datetime.now(UTC))
        state, error = behaviour.state, behaviour.error_code
        for sequence, (submit, user) in zip(sequences, reports, strict=True):
            self.outbox.put(sgip.Report(sequence, submit.sequence, 0, user, state, error))

    def _pump(self) -> None:
        self.outbox.pump()
        if self._client and len(self.outbox):
            self._client.wake()  # an idle connection may be unbound

    def _next(self) -> sgip.SequenceNumber:
        return self._sequences.next(datetime.now(UTC))
