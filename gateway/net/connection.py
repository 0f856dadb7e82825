"""One TCP connection: bytes and time to its session, the session's bytes and events out. And the
thread whose loop serves connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, cast

from gateway import sgip
from msgplatform.core.http.addresses import bracketed

T = TypeVar("T")
log = logging.getLogger(__name__)
_GRACE = 5.0  # seconds for writing the last bytes of a connection that closes
_JOIN_SECONDS = 5.0
# A request that gets a response with a Result.
Answerable = sgip.Submit | sgip.Deliver | sgip.Report | sgip.UserRpt


class Handler(Protocol):
    """Acts on the events of connections."""

    def on_events(self, connection: Connection, events: list[sgip.Event]) -> None:
        """Called once for events that came together; without events when more may be sent again.

        Commands that the handler sends leave when it returns. It must not block. `Closed` is always
        the last event. Every request must be responded to at some time, also after Closed: until
        then the same command is ignored when it comes again. If the handler raises, the requests of
        the batch are refused for now (Result.BUSY), so that they come again.
        """


class Connection(asyncio.Protocol):
    """A connection, made with a function that opens its session at a time of the loop's clock."""

    def __init__(
        self,
        open_session: Callable[[float], sgip.Session],
        handler: Handler,
        on_open: Callable[[Connection], object] | None = None,
    ) -> None:
        self._open_session, self._handler, self._on_open = open_session, handler, on_open
        self._loop = asyncio.get_running_loop()
        # Timer handles: a flush at the end of this turn, the next tick, the last grace.
        self._flush_handle: asyncio.Handle | None = None
        self._tick_handle: asyncio.TimerHandle | None = None
        self._abort_handle: asyncio.TimerHandle | None = None
        self._writable = True  # False while the peer does not read
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def session(self) -> sgip.Session:
        return self._session

    @property
    def capacity(self) -> int:
        """The number of commands that may be sent now; 0 while the peer does not read."""
        return self._session.capacity if self._writable else 0

    @property
    def address(self) -> str:
        """The IP address of the other end; IPv4 without the prefix of a listener for both."""
        address = (self._transport.get_extra_info("peername") or ("?", 0))[0]
        return str(address).removeprefix("::ffff:")

    @property
    def peer(self) -> str:
        """Address and port of the other end, for people."""
        port = (self._transport.get_extra_info("peername") or ("?", 0))[1]
        return f"{bracketed(self.address)}:{port}"

    def send(self, command: sgip.Request | bytes, context: Any = None) -> None:
        """As `Session.send`. The bytes leave at the end of this turn of the loop."""
        self._session.send(command, self._loop.time(), context)
        self._flush_soon()

    def respond(self, request: Answerable, result: int = 0) -> None:
        """As `Session.respond`; also for a connection that is gone."""
        self._session.respond(request, result)
        self._flush_soon()

    def respond_trace(self, response: sgip.TraceResp) -> None:
        self._session.respond_trace(response)
        self._flush_soon()

    def unbind(self, sequence: sgip.SequenceNumber) -> None:
        """As `Session.unbind`; a connection without a login is closed."""
        if self._session.phase is sgip.Phase.BOUND:
            self._session.unbind(sequence, self._loop.time())
            self._flush_soon()
        elif self._session.phase is sgip.Phase.BINDING:
            self._transport.close()

    def drop(self) -> None:
        """Closes at once; bytes that were not written yet are lost."""
        self._transport.abort()

    def write_raw(self, data: bytes) -> None:
        """Write bytes after the session's own, past the session: for a simulated peer's faults."""
        self._flush()
        self._transport.write(data)

    # Methods that asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._session = self._open_session(self._loop.time())
        if self._on_open:
            self._on_open(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._report(self._session.receive(data, self._loop.time()))
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        for handle in (self._flush_handle, self._tick_handle, self._abort_handle):
            if handle:
                handle.cancel()
        if events := self._session.connection_lost(self._loop.time()):
            self._report(events)
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable = False
        self._transport.pause_reading()  # a peer that does not read answers gets no more

    def resume_writing(self) -> None:
        self._writable = True
        self._transport.resume_reading()
        self._report([])  # more may be sent
        self._flush()

    def _report(self, events: list[sgip.Event]) -> None:
        try:
            self._handler.on_events(self, events)
        except Exception:  # one message must not end the connection of all
            log.exception("the handler of %s failed, its requests shall come again", self.peer)
            for event in events:
                if isinstance(event, Answerable):
                    self._session.respond(event, sgip.Result.BUSY)

    def _flush_soon(self) -> None:
        if self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if self._transport.is_closing():
            return
        if data := self._session.data_to_send():
            self._transport.write(data)
        if self._session.phase is sgip.Phase.CLOSED:
            # A peer that does not read must not keep the connection open.
            self._transport.close()
            self._abort_handle = self._loop.call_later(_GRACE, self._transport.abort)
            return
        # A tick that comes too early looks again. Only an earlier one needs a new timer.
        due = self._session.next_tick()
        if due is not None and (self._tick_handle is None or due < self._tick_handle.when()):
            if self._tick_handle:
                self._tick_handle.cancel()
            self._tick_handle = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._tick_handle = None
        if events := self._session.tick(self._loop.time()):
            self._report(events)
        self._flush()


class NetThread:
    """A thread with an event loop for the sockets; it does nothing else. `call` and `begin` hand
    work over and return at once, `run` waits."""

    def __init__(self) -> None:
        # `start` makes the loop: a program that is refused before would leave it open.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop,), name="net", daemon=True
        )
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Called in the loop soon; nothing happens before the start, or when the loop is closed."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *arguments)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            raise RuntimeError("the thread was not started")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 30.0) -> T:
        """Raises what the work raises, and TimeoutError after `timeout` seconds."""
        return self.begin(work).result(timeout)

    def stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            # The thread itself closes the loop after it has stopped.
            self.call(self._loop.stop)
            if self._thread.is_alive():
                self._thread.join(_JOIN_SECONDS)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()
