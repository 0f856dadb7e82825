"""An SP on real sockets: sends, awaits, sends again what a link lost, takes Reports and MOs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from gateway.net import Client, Connection, Login, Server
from gateway.sgip import (
    Answered,
    Bind,
    BindRefused,
    BindResp,
    Closed,
    CloseReason,
    Command,
    Deliver,
    Event,
    FrameStream,
    Limits,
    LoginType,
    Report,
    SequenceNumber,
    SequenceSource,
    Side,
    Submit,
    SubmitResp,
    TimedOut,
    Unbind,
    UnbindResp,
    decode,
    part_of,
    text_of,
)
from msgplatform.core.rates.backoff import Backoff

LOGIN = Login("sp", "secret")
NODE = 3010099999
WAIT = 180  # seconds, generous


class Sp:
    """What happened stands in the public attributes; `until` awaits that it did."""

    def __init__(self, limits: Limits | None = None, connections: int = 1) -> None:
        self._limits, self._connections = limits, connections
        self._sequences = SequenceSource(NODE)
        self.changed = asyncio.Event()
        self.queue: deque[bytes] = deque()
        self.order: list[tuple[str, SequenceNumber]] = []
        self.results: dict[SequenceNumber, int] = {}
        self.reports: list[Report] = []
        self.texts: list[str] = []
        self.parts: dict[object, dict[int, bytes]] = {}  # of long texts that are not whole
        self.ends: list[Closed] = []
        self.refused: list[int] = []
        self.timed_out = 0
        self.most_waiting = 0
        self.report_result = 0
        self.drop_next_reports = False
        self.fail_on_reports = 0
        self.listener = Server(Side.SP, self._check, self, limits=limits)
        self.client: Client | None = None

    async def __aenter__(self) -> Sp:
        await self.listener.start("127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.client:
            await self.client.stop(timeout=0.5)
        await self.listener.stop()

    def connect(self, port: int, login: Login = LOGIN, host: str = "127.0.0.1") -> Client:
        self.client = Client(
            Side.SP,
            host,
            port,
            login,
            self,
            self.next,
            connections=self._connections,
            limits=self._limits,
            backoff=lambda: Backoff(first=0.01, factor=2, cap=0.2),
        )
        self.client.start()
        return self.client

    def next(self) -> SequenceNumber:
        return self._sequences.next(datetime.now(UTC))

    def submit(self, count: int, users: int = 1, content: bytes = b"hello") -> list[Submit]:
        made = [
            Submit(
                self.next(),
                "10690001",
                "0" * 21,
                tuple(f"86130{n:04d}{user:04d}" for user in range(users)),
                "99999",
                "TEST",
                message_content=content,
            )
            for n in range(count)
        ]
        self.queue.extend(submit.encode() for submit in made)
        self.pump()
        return made

    def pump(self) -> None:
        for connection in self.client.bound if self.client else []:
            for _ in range(min(connection.capacity, len(self.queue))):
                connection.send(self.queue.popleft())
            self.most_waiting = max(self.most_waiting, connection.session.waiting)

    def on_events(self, connection: Connection, events: list[Event]) -> None:
        if any(type(event) is Report for event in events):
            self._misbehave(connection)
        for event in events:
            if type(event) is Report or type(event) is Deliver:
                self._take(connection, event)
            else:
                self._note(event)
        self.pump()
        self.changed.set()

    def _misbehave(self, connection: Connection) -> None:
        if self.drop_next_reports:  # what is responded then goes to nobody
            self.drop_next_reports = False
            connection.drop()
        if self.fail_on_reports:
            self.fail_on_reports -= 1
            raise RuntimeError("planted")

    def _take(self, connection: Connection, request: Report | Deliver) -> None:
        if isinstance(request, Deliver):
            part = part_of(request)
            key = (request.user_number, request.sp_number, part.reference, part.total)
            parts = self.parts.setdefault(key, {})
            parts[part.number] = part.payload
            if len(parts) == part.total:
                self.texts.append(text_of(self.parts.pop(key), request.message_coding))
            connection.respond(request)
            return
        self.order.append(("report", request.submit_sequence))
        if not self.report_result:
            self.reports.append(request)
        connection.respond(request, self.report_result)

    def _note(self, event: Event) -> None:
        if type(event) is Answered:
            self.order.append(("response", event.response.sequence))
            self.results[event.response.sequence] = event.response.result  # type: ignore[attr-defined]
        elif type(event) is BindRefused:
            self.refused.append(event.result)
        elif type(event) is TimedOut:
            self.timed_out += 1
            self.queue.append(event.frame)
        elif type(event) is Closed:
            self.ends.append(event)
            self.queue.extendleft(frame for _, frame in reversed(event.unanswered))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def reasons(self) -> Counter[CloseReason]:
        return Counter(end.reason for end in self.ends)

    def _check(self, _: Connection, bind: Bind) -> int:
        assert bind.login_type == LoginType.SMG_TO_SP
        return 0 if (bind.login_name, bind.login_password) == ("smg", "secret") else 1


class OwnTimeSmg(asyncio.Protocol):
    """An SMG that accepts all, answers Unbind under its own time, and leaves closing to others."""

    def __init__(self, received: list[Command]) -> None:
        self._received = received
        self._stream = FrameStream()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._stream.feed(data):
            command = decode(frame)
            self._received.append(command)
            node, stamp, counter = command.sequence
            answer: Command | None = None
            if isinstance(command, Unbind):
                answer = UnbindResp((node, stamp - 1, counter))
            elif isinstance(command, Bind):
                answer = BindResp(command.sequence)
            elif isinstance(command, Submit):
                answer = SubmitResp(command.sequence)
            if answer:
                self._transport.write(answer.encode())  # type: ignore[attr-defined]


class LeavingSmg(OwnTimeSmg):
    """One that accepts every login, and unbinds in the same breath."""

    def data_received(self, data: bytes) -> None:
        for frame in self._stream.feed(data):
            command = decode(frame)
            self._received.append(command)
            if isinstance(command, Bind):
                answers = BindResp(command.sequence).encode() + Unbind(command.sequence).encode()
                self._transport.write(answers)  # type: ignore[attr-defined]


class UnbindingSmg(OwnTimeSmg):
    """One that accepts every login, and answers each Submit with Unbind."""

    def data_received(self, data: bytes) -> None:
        for frame in self._stream.feed(data):
            command = decode(frame)
            self._received.append(command)
            answer: Command | None = None
            if isinstance(command, Bind):
                answer = BindResp(command.sequence)
            elif isinstance(command, Submit):
                answer = Unbind(command.sequence)
            if answer:
                self._transport.write(answer.encode())  # type: ignore[attr-defined]


class MuteSmg(OwnTimeSmg):
    """One that does not answer Unbind: it closes the connection, or says nothing."""

    def __init__(self, received: list[Command], is_closing: bool) -> None:
        super().__init__(received)
        self._is_closing = is_closing

    def data_received(self, data: bytes) -> None:
        for frame in self._stream.feed(data):
            command = decode(frame)
            if not isinstance(command, Unbind):
                super().data_received(frame)
                continue
            self._received.append(command)
            if self._is_closing:
                self._transport.close()


class ClosingSmg(OwnTimeSmg):
    """One that closes the connection on each Submit to `user`, and accepts all others."""

    def __init__(self, received: list[Command], user: str) -> None:
        super().__init__(received)
        self._user = user

    def data_received(self, data: bytes) -> None:
        for frame in self._stream.feed(data):
            command = decode(frame)
            if isinstance(command, Submit) and self._user in command.user_numbers:
                self._received.append(command)
                self._transport.abort()  # type: ignore[attr-defined]
                return
            super().data_received(frame)


def logged(log: Path) -> Iterator[tuple[SequenceNumber, str, str, int]]:
    """Sequence, user, part and result of every line of a simulator's log."""
    for line in log.read_text(encoding="ascii").splitlines():
        sequence, user, part, result = line.split("\t")
        node, stamp, counter = map(int, sequence.split(":"))
        yield (node, stamp, counter), user, part, int(result)
