"""A thread with an event loop for the sockets; it does nothing else."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_JOIN_SECONDS = 5.0


class NetThread:
    """Owns one event loop. `call` and `begin` hand work over and return at once, `run` waits."""

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
