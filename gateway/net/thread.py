"""A thread with an event loop for the sockets; it does nothing else."""

from __future__ import annotations

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
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="net", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Called in the loop soon; nothing happens when the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 30.0) -> T:
        """Raises what the work raises, and TimeoutError after `timeout` seconds."""
        return self.begin(work).result(timeout)

    def stop(self) -> None:
        # The loop is closed by its own thread, once it has stopped.
        self.call(self._loop.stop)
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()
