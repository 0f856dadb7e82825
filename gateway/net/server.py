"""Listens for connections of peers, which bind to it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from gateway.sgip import Bind, Closed, Duplicates, Event, Limits, Session, Side

from .connection import Connection, Handler

_MEMORY = partial(Duplicates, 65536)  # commands remembered for each login name


class Server:
    """Accepts connections for one side. `login` returns the Result for a Bind.

    A new connection is closed at once if there are `max_connections` already, bound or not, or if
    `admit` refuses it. The handler gets no event of such a connection.

    All connections of a login name share one memory of sequences, because a peer may repeat a
    command over another connection. Two peers never share a memory: some peers write 0 or the SP's
    number in place of their own node. `duplicates` makes a memory.
    """

    def __init__(
        self,
        side: Side,
        login: Callable[[Connection, Bind], int],
        handler: Handler,
        *,
        admit: Callable[[Connection], bool] = lambda connection: True,
        limits: Limits | None = None,
        max_connections: int = 1024,
        duplicates: Callable[[], Duplicates] = _MEMORY,
    ) -> None:
        self._max_connections = max_connections
        self._side, self._login, self._handler, self._may_enter = side, login, handler, admit
        self._limits = limits
        self._duplicates = defaultdict[str, Duplicates](duplicates)
        self._server: asyncio.Server | None = None
        self.connections: set[Connection] = set()
        self.port = 0

    async def start(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listens; `port` 0 takes a free port, which `self.port` then has.

        With `reuse_port` several processes listen, and the kernel divides the connections.
        """
        loop = asyncio.get_running_loop()
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

    def on_events(self, connection: Connection, events: list[Event]) -> None:
        if connection not in self.connections:  # not admitted: it is being dropped
            return
        if events and type(events[-1]) is Closed:
            self.connections.discard(connection)
        self._handler.on_events(connection, events)

    def _connect(self) -> Connection:
        # `login` gets the connection, which is assigned after `open_session` is defined.
        connection: Connection

        def open_session(now: float) -> Session:
            return Session(
                self._side,
                now,
                login=partial(self._login, connection),
                limits=self._limits,
                duplicates=lambda bind: self._duplicates[bind.login_name],
            )

        connection = Connection(open_session, self, self._admit)
        return connection

    def _admit(self, connection: Connection) -> None:
        if len(self.connections) < self._max_connections and self._may_enter(connection):
            self.connections.add(connection)
        else:
            connection.drop()
