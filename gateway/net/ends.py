"""The two ends of connections: a Client connects and keeps connections open, a Server listens."""

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from gateway import sgip
from gateway.net.connection import Connection, Handler
from gateway.sgip.constants import IDLE_TIMEOUT
from msgplatform.core.http.addresses import bracketed
from msgplatform.core.rates.backoff import Backoff

log = logging.getLogger(__name__)
_CONNECT_TIMEOUT = 10.0  # seconds, for all addresses of a host together
_NEXT_ADDRESS_SECONDS = 1.0  # then the next address is tried too: the first may swallow packets
_OF_LINK = frozenset({sgip.Bound, sgip.Idle, sgip.Closed})
_FAILURES = frozenset({
    sgip.CloseReason.LOST_AFTER_BIND, sgip.CloseReason.UNBOUND_AFTER_BIND, sgip.CloseReason.SILENT,
})  # fmt: skip
_PROVEN_SECONDS = 120.0  # a connection that lasted for so long counts as one that worked
# By default shorter than the time after which the other end closes an idle connection: a command in
# flight would be lost then.
_LIMITS = sgip.Limits(idle_timeout=IDLE_TIMEOUT - 10)
_MEMORY = partial(sgip.Duplicates, 65536)  # commands remembered for each peer


@dataclass(frozen=True, slots=True)
class Login:
    """The login with which an end binds."""

    name: str
    password: str = field(repr=False)
    login_type: int = sgip.LoginType.SP_TO_SMG


class Client:
    """`connections` connections from one side to `host`:`port`, for as long as it runs.

    `next_sequence` numbers Bind and Unbind. An idle connection is unbound, and opened again at
    `wake()`. `bound`: connections that take commands. `unreachable` is called when no connection
    could be made. Raises FieldError for a login that does not fit.
    """

    def __init__(
        self,
        side: sgip.Side,
        host: str,
        port: int,
        login: Login,
        handler: Handler,
        next_sequence: Callable[[], sgip.SequenceNumber],
        *,
        connections: int = 1,
        limits: sgip.Limits | None = None,
        backoff: Callable[[], Backoff] = lambda: Backoff(first=0.5, factor=2, cap=30),
        unreachable: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        # A login that no frame can hold is an error here, not at each attempt.
        sgip.Bind((0, 0, 0), login.login_type, login.name, login.password).encode()
        self._side, self._host, self._port = side, host, port
        self._login, self._handler, self._next_sequence = login, handler, next_sequence
        self._limits, self._backoff = limits or _LIMITS, backoff
        self._unreachable = unreachable
        self._duplicates = sgip.Duplicates()
        self._count = connections
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_event = asyncio.Event()  # set for messages to send, and by `resize`
        self._stopping = False
        self._ends: dict[Connection, sgip.Closed] = {}  # connections that were bound
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
        self._wake_event.set()

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

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        for event in events:
            if type(event) not in _OF_LINK:
                continue
            if type(event) is sgip.Bound:
                self.bound.append(connection)
                if len(self.bound) > self._count:  # `resize` came while it logged in
                    connection.unbind(self._next_sequence())
            elif type(event) is sgip.Idle:
                connection.unbind(self._next_sequence())
            elif type(event) is sgip.Closed and connection in self.bound:
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
            self._wake_event.clear()
            began = asyncio.get_running_loop().time()
            end = await self._connect_once()
            duration = asyncio.get_running_loop().time() - began
            # Another connection may end in the same way at once. A connection that the peer unbound
            # instead of answering did not work either.
            is_failure = (
                end is None
                or end.reason in _FAILURES
                or (end.reason is sgip.CloseReason.UNBOUND and bool(end.unanswered))
            )
            # After a connection that worked, the minimum pause is enough.
            if not is_failure or duration > _PROVEN_SECONDS:
                backoff.reset()
            if end and end.reason is sgip.CloseReason.UNBOUND and not is_failure:
                await self._wake_event.wait()
            else:
                await asyncio.sleep(backoff.next())

    async def _connect_once(self) -> sgip.Closed | None:
        """Connects and stays to the end. Returns None if the connection was never bound."""
        self.attempts += 1
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._open_session, self), self._host, self._port,
                    happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
                )  # fmt: skip
        # RuntimeError: the system has no thread left, in which asyncio looks the host's name up.
        except (OSError, RuntimeError) as error:
            log.info("no connection to %s:%s: %s", bracketed(self._host), self._port, error)
            self._unreachable(error)
            return None
        try:
            await asyncio.shield(connection.closed)
        except asyncio.CancelledError:
            connection.drop()
            raise
        return self._ends.pop(connection, None)

    def _open_session(self, now: float) -> sgip.Session:
        login = self._login
        bind = sgip.Bind(self._next_sequence(), login.login_type, login.name, login.password)
        return sgip.Session(
            self._side, now, bind=bind, limits=self._limits, duplicates=lambda _: self._duplicates
        )


class Server:
    """Accepts connections for one side. `login` returns the Result for a Bind.

    A new connection is closed at once if there are `max_connections` already, bound or not, or if
    `admit` refuses it. The handler gets no event of such a connection.

    All connections of a peer share one memory of sequences, because it may repeat a command over
    another connection. Two peers never share a memory: some peers write 0 or the SP's number in
    place of their own node. `peer` names the peer after its login; `duplicates` makes a memory.
    """

    def __init__(
        self,
        side: sgip.Side,
        login: Callable[[Connection, sgip.Bind], int],
        handler: Handler,
        *,
        admit: Callable[[Connection], bool] = lambda connection: True,
        limits: sgip.Limits | None = None,
        max_connections: int = 1024,
        peer: Callable[[Connection, sgip.Bind], Hashable] = lambda _, bind: bind.login_name,
        duplicates: Callable[[], sgip.Duplicates] = _MEMORY,
    ) -> None:
        self._max_connections = max_connections
        self._side, self._login, self._handler, self._may_enter = side, login, handler, admit
        self._limits, self._peer = limits, peer
        self._duplicates = defaultdict[Hashable, sgip.Duplicates](duplicates)
        self._server: asyncio.Server | None = None
        self.connections: set[Connection] = set()
        self.port = 0

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listens; `port` 0 takes a free port, which `self.port` then has.

        With `reuse_port` several processes listen, and the kernel divides the connections.
        """
        loop = asyncio.get_running_loop()
        if host == "::":  # IPv4 too, as at the web server; asyncio's own socket takes IPv6 only
            listener = socket.create_server(
                (host, port), family=socket.AF_INET6, reuse_port=reuse_port,
                dualstack_ipv6=socket.has_dualstack_ipv6(),
            )  # fmt: skip
            self._server = await loop.create_server(self._connect, sock=listener)
        else:
            self._server = await loop.create_server(
                self._connect, host, port, reuse_port=reuse_port or None
            )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Accepts nothing more, and drops the connections."""
        if self._server is None:
            return
        self._server.close()
        # Collect the futures first: a dropped connection leaves `connections`.
        closing = [connection.closed for connection in self.connections]
        for connection in list(self.connections):
            connection.drop()
        if closing:
            await asyncio.wait(closing)
        await self._server.wait_closed()
        self._server = None

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        if connection not in self.connections:  # not admitted: it is being dropped
            return
        if events and type(events[-1]) is sgip.Closed:
            self.connections.discard(connection)
        self._handler.on_events(connection, events)

    def _connect(self) -> Connection:
        # `login` gets the connection, which is assigned after `open_session` is defined.
        connection: Connection

        def open_session(now: float) -> sgip.Session:
            return sgip.Session(
                self._side,
                now,
                login=partial(self._login, connection),
                limits=self._limits,
                duplicates=lambda bind: self._duplicates[self._peer(connection, bind)],
            )

        connection = Connection(open_session, self, self._admit)
        return connection

    def _admit(self, connection: Connection) -> None:
        if len(self.connections) < self._max_connections and self._may_enter(connection):
            self.connections.add(connection)
        else:
            connection.drop()
