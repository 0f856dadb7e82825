"""Listens for connections of peers, which bind to it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from gateway.sgip import Bind, Closed, Duplicates, Event, Limits, Session, Side

from .connection import Connection, Handler

_MEMORY = partial(Duplicates, 65536)  # of the commands of one login name


class Server:
    """Accepts connections for one side; `login` gives the Result for a Bind.

    A new one beyond `max_connections`, bound or not, or that `admit` refuses, is closed at once;
    the handler gets no event of it.

    All connections of a login name share one memory of sequences, since a command whose response
    was lost comes again over another connection. Peers do not share one: some write 0 or the SP's
    number where their own node belongs. `duplicates` makes a memory.
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
        """Listens; `port` 0 takes a free one, which is in `self.port`.

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
        # Taken first: a connection that is dropped leaves `connections`.
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
        # The session's login is asked with its connection, which is made with the session.
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
