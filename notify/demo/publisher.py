"""Publishes over HTTP as a business system would, and remembers what was answered with 2xx."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgplatform.core.api_connection import Connection

CONNECTIONS = 8
# After so many messages one request is repeated with the same key, as after a lost answer.
REPEAT_EVERY = 50
BATCH = 100


@dataclass(frozen=True)
class Accepted:
    """A message that the platform accepted, as the client saw it."""

    id: str
    system: str
    event_type: str


class Publisher(threading.Thread):
    """One keep-alive connection. What it repeats has the same key."""

    def __init__(
        self, base_url: str, work: Iterator[tuple[int, str, str]], key_prefix: str
    ) -> None:
        super().__init__(daemon=True)
        self._key_prefix = key_prefix
        self._work = work
        self._connection = Connection(base_url)
        self.accepted: list[Accepted] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number, system, token in self._work:
                first = self._post(number, token)
                if number % REPEAT_EVERY == 0 and self._post(number, token) != first:
                    raise RuntimeError(f"a repeat of message {number} got another id")
                self.accepted.append(Accepted(first, system, event_type(number)))
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.error = error

    def _post(self, number: int, token: str) -> str:
        answer = self._answer("/api/v1/messages", message(self._key_prefix, number), token)
        return str(answer["id"])

    def _answer(self, path: str, body: Any, token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return self._connection.json("POST", path, body, headers).require(200, 202).json()


class BatchPublisher(Publisher):
    """The same messages, a hundred a request, each with a verdict of its own."""

    def run(self) -> None:
        try:
            waiting: dict[tuple[str, str], list[int]] = {}
            for number, system, token in self._work:
                batch = waiting.setdefault((system, token), [])
                batch.append(number)
                if len(batch) == BATCH:
                    self._publish(system, token, waiting.pop((system, token)))
            for (system, token), numbers in waiting.items():
                self._publish(system, token, numbers)
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.error = error

    def _publish(self, system: str, token: str, numbers: list[int]) -> None:
        body = {"messages": [message(self._key_prefix, number) for number in numbers]}
        answer = self._answer("/api/v1/messages/batch", body, token)
        for number, verdict in zip(numbers, answer["results"], strict=True):
            if verdict["outcome"] not in ("created", "duplicate"):
                raise RuntimeError(f"message {number} was refused: {verdict}")
            self.accepted.append(Accepted(verdict["id"], system, event_type(number)))


def message(key_prefix: str, number: int) -> dict[str, object]:
    """What is published under this number."""
    return {
        "event_type": event_type(number),
        "payload": {"number": number, "text": "消息 ✓ message", "price": 12.50},
        "idempotency_key": f"{key_prefix}-{number}",
    }


def event_type(number: int) -> str:
    """Every tenth message is of a rare type."""
    return "demo.rare" if number % 10 == 7 else "demo.happened"


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
    base_url: str,
    tokens: Mapping[str, str],
    count: int,
    connections: int = CONNECTIONS,
    kind: type[Publisher] = Publisher,
    more: Callable[[], bool] = lambda: False,
) -> list[Accepted]:
    """Publish `count` messages, the systems in turn; what the platform accepted.

    After them `more` is asked for each further one; it may wait before it answers.
    """
    systems = list(tokens.items())
    numbers = itertools.takewhile(lambda number: number < count or more(), itertools.count())
    work = ((number, *systems[number % len(systems)]) for number in numbers)
    shared_work = iter(_Shared(work))
    prefix = f"demo-{uuid.uuid4().hex[:12]}"
    publishers = [kind(base_url, shared_work, prefix) for _ in range(connections)]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
        if publisher.error:
            raise publisher.error
    return [message for publisher in publishers for message in publisher.accepted]


class Trickle:
    """A message now and then, after the accounting; the systems in turn. For one thread."""

    def __init__(self, base_url: str, tokens: Mapping[str, str]) -> None:
        self._connection = Connection(base_url)
        self._tokens = list(tokens.values())
        self._prefix = f"trickle-{uuid.uuid4().hex[:12]}"

    def publish(self, number: int) -> None:
        """Raises RuntimeError; a repeat of the same number is the same message."""
        headers = {"Authorization": f"Bearer {self._tokens[number % len(self._tokens)]}"}
        answer = self._connection.json(
            "POST", "/api/v1/messages", message(self._prefix, number), headers
        )
        answer.require(200, 202)
