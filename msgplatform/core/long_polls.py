"""Requests that wait for an event without a thread.

A view that has nothing to answer yet names a topic (`wait_for`) on the answer that the caller gets
if nothing comes. The web server then keeps the request in its event loop until the topic is woken,
and asks the view once more; after SECONDS it sends the answer. A server that knows nothing of this
sends it at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

# Shorter than the idle times of common proxies (30 to 60 seconds).
SECONDS = 25.0
# The response header with the topic; the web server takes it off.
HEADER = "X-Long-Poll"
# In the WSGI environment of a question that is not the first: HTTP headers cannot set it.
HAS_WAITED = "msgplatform.has_waited"


def wait_for(response: Any, topic: str) -> Any:
    """The response, which is sent unless something comes for this topic."""
    response.headers[HEADER] = topic
    return response


class Waiting:
    """The requests that wait in this process, one for each topic. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake_of: dict[str, Callable[[bool], None]] = {}
        self._at_add: list[Callable[[], None]] = []

    def call_at_add(self, call: Callable[[], None]) -> None:
        """Call this in the event loop whenever a request begins to wait; it must not block."""
        self._at_add.append(call)

    def add(self, topic: str, wake: Callable[[bool], None]) -> None:
        """Call `wake` once when something comes, with False. An earlier request for the topic is
        woken with True: another one has its place now."""
        with self._lock:
            earlier = self._wake_of.get(topic)
            self._wake_of[topic] = wake
        if earlier is not None:
            earlier(True)
        for call in self._at_add:
            call()

    def remove(self, topic: str, wake: Callable[[bool], None]) -> None:
        """The request waits no longer; nothing happens if a later one has its place."""
        with self._lock:
            if self._wake_of.get(topic) is wake:
                del self._wake_of[topic]

    def wake(self, topics: Iterable[str]) -> None:
        """Something has come for these topics."""
        with self._lock:
            wakes = [self._wake_of[topic] for topic in topics if topic in self._wake_of]
        for wake in wakes:
            wake(False)

    def topics(self, prefix: str) -> list[str]:
        """The topics that begin with this and are waited for."""
        with self._lock:
            return [topic for topic in self._wake_of if topic.startswith(prefix)]


WAITING = Waiting()
