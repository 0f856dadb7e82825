"""Requests that wait for an event without a thread.

A view without news puts a topic, and the system that waits, on its answer (`wait_for`). The web
server then keeps the request in its event loop until the topic is woken, and asks the view again;
after SECONDS it sends the answer. A server without support for topics sends the answer at once.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

# Shorter than the idle times of common proxies (30 to 60 seconds).
SECONDS = 25.0
# The response header with topic and system. The web server removes the header.
HEADER = "X-Long-Poll"
# Set in the WSGI environment of a repeated call of the view. HTTP headers cannot set it.
HAS_WAITED = "msgplatform.has_waited"


def wait_for(response: Any, topic: str, system: int) -> Any:
    """The response, to be sent if the topic is not woken in time. `system`: the id of the business
    system that waits."""
    response.headers[HEADER] = f"{topic} {system}"
    return response


class Waiting:
    """The waiting requests of this process, one for each topic. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake_of: dict[str, Callable[[bool], None]] = {}
        self._at_add: list[Callable[[], None]] = []

    def call_at_add(self, call: Callable[[], None]) -> None:
        """Call this in the event loop whenever a request begins to wait; it must not block."""
        self._at_add.append(call)

    def add(self, topic: str, wake: Callable[[bool], None]) -> None:
        """Call `wake(False)` once when the topic is woken. An earlier request for the topic gets
        `wake(True)`, because this request has its place now."""
        with self._lock:
            wake_earlier = self._wake_of.get(topic)
            self._wake_of[topic] = wake
        if wake_earlier is not None:
            wake_earlier(True)
        for call in self._at_add:
            call()

    def remove(self, topic: str, wake: Callable[[bool], None]) -> None:
        """The request waits no longer. No effect if a later request has its place."""
        with self._lock:
            if self._wake_of.get(topic) is wake:
                del self._wake_of[topic]

    def wake(self, topics: Iterable[str]) -> None:
        """Wake the requests of these topics."""
        with self._lock:
            wakes = [self._wake_of[topic] for topic in topics if topic in self._wake_of]
        for wake in wakes:
            wake(False)

    def topics(self, prefix: str) -> list[str]:
        """The topics with this prefix that have a waiting request."""
        with self._lock:
            return [topic for topic in self._wake_of if topic.startswith(prefix)]


WAITING = Waiting()
