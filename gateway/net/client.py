"""Keeps connections to a peer open: connects, binds, waits longer and longer when that fails."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.sgip import (
    Bind,
    Bound,
    Closed,
    CloseReason,
    Duplicates,
    Event,
    Idle,
    Limits,
    LoginType,
    SequenceNumber,
    Session,
    Side,
)
from gateway.sgip.constants import IDLE_TIMEOUT
from msgplatform.core.rates.backoff import Backoff

from .connection import Connection, Handler

log = logging.getLogger(__name__)
_CONNECT_TIMEOUT = 10.0  # seconds
_OF_LINK = frozenset({Bound, Idle, Closed})
_FAILURES = frozenset(
    {CloseReason.LOST_AFTER_BIND, CloseReason.UNBOUND_AFTER_BIND, CloseReason.SILENT}
)
_PROVEN = 120.0  # a connection that lasted for so many seconds counts as one that worked
# By default shorter than the time after which the other end closes an idle connection: a command in
# flight would be lost then.
_LIMITS = Limits(idle_timeout=IDLE_TIMEOUT - 10)


@dataclass(frozen=True, slots=True)
class Login:
    """The login with which an end binds."""

    name: str
    password: str = field(repr=False)
    login_type: int = LoginType.SP_TO_SMG


class Client:
    """`connections` connections from one side to `host`:`port`, for as long as it runs.

    `next_sequence` numbers Bind and Unbind. An idle connection is unbound, and opened again at
    `wake()`. `bound`: connections that take commands. `unreachable` is called when no connection
    could be made. Raises FieldError for a login that does not fit.
    """

    def __init__(
        self,
        side: Side,
        host: str,
        port: int,
        login: Login,
        handler: Handler,
        next_sequence: Callable[[], SequenceNumber],
        *,
        connections: int = 1,
        limits: Limits | None = None,
        backoff: Callable[[], Backoff] = lambda: Backoff(first=0.5, factor=2, cap=30),
        unreachable: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        # A login that no frame can hold is an error here, not at each attempt.
        Bind((0, 0, 0), login.login_type, login.name, login.password).encode()
        self._side, self._host, self._port = side, host, port
        self._login, self._handler, self._next_sequence = login, handler, next_sequence
        self._limits, self._backoff = limits or _LIMITS, backoff
        self._unreachable = unreachable
        self._duplicates = Duplicates()
        self._count = connections
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()  # set for messages to send, and by `resize`
        self._stopping = False
        self._ends: dict[Connection, Closed] = {}  # connections that were bound
        self.bound: list[Connection] = []
        self.attempts = 0

    def start(self) -> None:
        """Begins to connect; returns at once."""
        self.resize(self._count)

    def resize(self, connections: int) -> None:
        """Opens missing connections, or unbinds superfluous ones."""
        self._count = connections
        for _ in range(connections - len(self._tasks)):
            self._tasks.add(asyncio.create_task(self._keep_open()))
        for connection in self.bound[connections:]:
            connection.unbind(self._next_sequence())
        self.wake()  # waiting tasks look whether they are too many

    def wake(self) -> None:
        """There is something to send: connections that were unbound as idle are opened again."""
        self._wanted.set()

    async def stop(self, timeout: float = 5.0) -> None:
        """Awaits the responses, unbinds, and drops connections still open after `timeout`
        seconds."""
        self._stopping = True
        closing = list(self.bound)
        for connection in closing:
            connection.unbind(self._next_sequence())
        if closing:
            await asyncio.wait([connection.closed for connection in closing], timeout=timeout)
        # Tasks end only after their pause; a cancelled task drops its connection.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_events(self, connection: Connection, events: list[Event]) -> None:
        for event in events:
            if type(event) not in _OF_LINK:
                continue
            if type(event) is Bound:
                self.bound.append(connection)
            elif type(event) is Idle:
                connection.unbind(self._next_sequence())
            elif type(event) is Closed and connection in self.bound:
                self.bound.remove(connection)
                self._ends[connection] = event
                if event.unanswered:
                    self.wake()
        self._handler.on_events(connection, events)

    async def _keep_open(self) -> None:
        backoff = self._backoff()
        me = asyncio.current_task()
        while not self._stopping:
            if len(self._tasks) > self._count and me is not None:  # `resize` made it superfluous
                self._tasks.discard(me)
                return
            self._wanted.clear()
            began = asyncio.get_running_loop().time()
            end = await self._once()
            duration = asyncio.get_running_loop().time() - began
            # After a connection that worked, the minimum pause is enough.
            is_failure = _is_failure(end)
            if not is_failure or duration > _PROVEN:
                backoff.reset()
            if end and end.reason is CloseReason.UNBOUND and not is_failure:
                await self._wanted.wait()
            else:
                await asyncio.sleep(backoff.next())

    async def _once(self) -> Closed | None:
        """Connects and stays to the end. Returns None if the connection was never bound."""
        self.attempts += 1
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._open_session, self), self._host, self._port
                )
        except (OSError, TimeoutError) as error:
            log.info("no connection to %s:%s: %s", self._host, self._port, error)
            self._unreachable(error)
            return None
        try:
            await asyncio.shield(connection.closed)
        except asyncio.CancelledError:
            connection.drop()
            raise
        return self._ends.pop(connection, None)

    def _open_session(self, now: float) -> Session:
        login = self._login
        bind = Bind(self._next_sequence(), login.login_type, login.name, login.password)
        return Session(
            self._side, now, bind=bind, limits=self._limits, duplicates=lambda _: self._duplicates
        )


def _is_failure(end: Closed | None) -> bool:
    """True if another connection may end in the same way at once. A connection that the peer
    unbound instead of answering did not work either."""
    if end is None or end.reason in _FAILURES:
        return True
    return end.reason is CloseReason.UNBOUND and bool(end.unanswered)
