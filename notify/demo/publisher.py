"""Publishes over HTTP as a business system would, and remembers what was answered with 2xx."""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

CONNECTIONS = 8
# Every so many messages the request is repeated with the same key, as after a lost answer.
REPEAT_EVERY = 50
_TRIES = 60


@dataclass(frozen=True)
class Accepted:
    """A message that the platform accepted, as the client saw it."""

    id: str
    system: str


class Publisher(threading.Thread):
    """One keep-alive connection. A 503 or a broken connection is repeated with the same key."""

    def __init__(
        self, base_url: str, work: Iterator[tuple[int, str, str]], key_prefix: str
    ) -> None:
        super().__init__(daemon=True)
        self._key_prefix = key_prefix
        self._address = urlsplit(base_url).netloc
        self._work = work
        self._connection = http.client.HTTPConnection(self._address, timeout=30)
        self.accepted: list[Accepted] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number, system, token in self._work:
                first = self._post(number, token)
                if number % REPEAT_EVERY == 0 and self._post(number, token) != first:
                    raise RuntimeError(f"a repeat of message {number} got another id")
                self.accepted.append(Accepted(first, system))
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.error = error

    def _post(self, number: int, token: str) -> str:
        body = json.dumps(
            {
                "event_type": "demo.happened",
                "payload": {"number": number, "text": "消息 ✓ message", "price": 12.50},
                "idempotency_key": f"{self._key_prefix}-{number}",
            }
        )
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        for _ in range(_TRIES):
            status, answer = self._once(body, headers)
            if status in (200, 202):
                return str(json.loads(answer)["id"])
            if status and status != 503 and status != 429:
                raise RuntimeError(f"HTTP {status}: {answer[:300]!r}")
            time.sleep(0.5)
        raise RuntimeError(f"message {number} was not accepted after {_TRIES} tries")

    def _once(self, body: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """(0, …) when the connection broke: it may or may not have been accepted."""
        try:
            self._connection.request("POST", "/api/v1/messages", body, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return 0, str(error).encode()


class _Shared:
    """An iterator that several threads may share."""

    def __init__(self, work: Iterator[tuple[int, str, str]]) -> None:
        self._work = work
        self._lock = threading.Lock()

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> tuple[int, str, str]:
        with self._lock:
            return next(self._work)


def publish_all(
    base_url: str, tokens: Mapping[str, str], count: int, connections: int = CONNECTIONS
) -> list[Accepted]:
    """Publish `count` messages, the systems in turn; what the platform accepted."""
    systems = list(tokens.items())
    work = ((number, *systems[number % len(systems)]) for number in range(count))
    shared = iter(_Shared(work))
    prefix = f"demo-{uuid.uuid4().hex[:12]}"
    publishers = [Publisher(base_url, shared, prefix) for _ in range(connections)]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
        if publisher.error:
            raise publisher.error
    return [message for publisher in publishers for message in publisher.accepted]
