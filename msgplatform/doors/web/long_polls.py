"""Long polls: requests whose answer waits in the event loop, see `core/web/long_polls.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from msgplatform.core.web.long_polls import HEADER, SECONDS, WAITING
from msgplatform.doors.api.problems.problem import RETRY_AFTER_SECONDS, unavailable
from msgplatform.doors.web import bodies, stopping
from msgplatform.doors.web.bodies import Answer

# Maximum of waiting requests in this process. Each costs a connection and some kilobytes.
MAX_WAITING = 256
# Maximum of one business system: no system takes the places of the others.
MAX_OF_SYSTEM = 64
_HEADER = HEADER.lower().encode()

Ask = Callable[[bool], Coroutine[Any, Any, Answer | int]]


class _Wait(msgspec.Struct):
    """`is_replaced`: a later request has taken its place."""

    is_replaced: bool = False


class LongPolls:
    """Used only in the event loop."""

    def __init__(self, max_waiting: int = MAX_WAITING, max_of_system: int = MAX_OF_SYSTEM) -> None:
        self._max_waiting, self._max_of_system = max_waiting, max_of_system
        self._waits: dict[asyncio.Event, str] = {}  # event → the system that waits
        # Topics with a replaced request that still waits. A client that repeats its request after a
        # time limit of its own, and leaves the connection open, would otherwise fill all places.
        self._replaced_topics: set[str] = set()
        self._is_stopping = False
        self._is_watching_stop = False

    async def answer(self, ask: Ask, receive: bodies.Receive) -> tuple[Answer | int, float]:
        """The answer of `ask`, and the seconds that it waited for an event. `ask` is called with
        True when the request has waited before.

        Raises bodies.Disconnected when the client leaves meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline, seconds = loop.time() + SECONDS, 0.0
        wait = _Wait()
        answer = await ask(False)
        while not isinstance(answer, int) and (
            header := next((pair for pair in answer.headers if pair[0] == _HEADER), None)
        ):
            answer.headers.remove(header)
            topic, _space, system = header[1].decode().rpartition(" ")
            start = loop.time()
            if self._is_stopping or start >= deadline:
                break
            if wait.is_replaced and topic in self._replaced_topics:
                answer.headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
                break
            system_count = list(self._waits.values()).count(system)
            if len(self._waits) >= self._max_waiting or system_count >= self._max_of_system:
                text = "Too many requests wait for events here; send it again later."
                return bodies.of_response(unavailable(text).response()), seconds
            is_woken = await self._wait(topic, system, wait, deadline - start, receive)
            seconds += loop.time() - start
            if not is_woken:
                break
            answer = await ask(True)
        return answer, seconds

    async def _wait(
        self, topic: str, system: str, wait: _Wait, seconds: float, receive: bodies.Receive
    ) -> bool:
        """Wait for the topic. True if an event came, or another request has taken the place. False
        after these seconds, or at the end of the process."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        was_replaced = wait.is_replaced
        if not self._is_watching_stop:
            # A server that begins to stop waits for answers: all waiting requests are answered.
            self._is_watching_stop = True
            stopping.call_at_stop(loop, self._stop)

        def wake(is_replaced: bool) -> None:
            wait.is_replaced |= is_replaced
            loop.call_soon_threadsafe(event.set)

        self._waits[event] = system
        # A replaced request does not take its place back: both would take it from each other again
        # and again. Both belong to one listener, or the view would have refused this one.
        if was_replaced:
            self._replaced_topics.add(topic)
        else:
            WAITING.add(topic, wake)
        departure = asyncio.ensure_future(_until_left(receive))
        arrival = asyncio.ensure_future(event.wait())
        try:
            done, _pending = await asyncio.wait(
                (arrival, departure), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            arrival.cancel()
            departure.cancel()
            WAITING.remove(topic, wake)
            if was_replaced:
                self._replaced_topics.discard(topic)
            self._waits.pop(event, None)
        if departure in done:
            raise bodies.Disconnected
        return arrival in done and not self._is_stopping

    def _stop(self) -> None:
        self._is_stopping = True
        for event in self._waits:
            event.set()


async def _until_left(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
