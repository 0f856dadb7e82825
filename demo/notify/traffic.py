"""Publishes over HTTP as business systems do, and remembers what was answered with 2xx."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from demo.connection import Connection
from demo.script import BATCH, THREADS, Script, spread
from msgplatform.core.data import chunks

MESSAGES = "/api/v1/messages"
# After so many messages one request is repeated with the same key, as after a lost answer.
REPEAT_EVERY = 50


@dataclass(frozen=True)
class Accepted:
    """A message that the platform accepted, as the client saw it."""

    id: str
    system: str
    event_type: str


def message(key_prefix: str, number: int) -> dict[str, object]:
    """The message with this number."""
    return {
        "event_type": event_type(number),
        "payload": {"number": number, "text": "消息 ✓ message", "price": 12.50},
        "idempotency_key": f"{key_prefix}-{number}",
    }


def event_type(number: int) -> str:
    """Every tenth message is of a rare type."""
    return "demo.rare" if number % 10 == 7 else "demo.happened"


def publish_all(
    base_url: str,
    tokens: Mapping[str, str],
    count: int,
    connections: int = THREADS,
    has_more: Callable[[], bool] = lambda: False,
) -> list[Accepted]:
    """Publish `count` messages one by one, the systems in turn; what the platform accepted.

    After them `has_more` is asked for each further one; it may wait before it answers.
    """
    systems, accepted_messages = list(tokens.items()), list[Accepted]()
    prefix = _prefix()

    def publish(connection: Connection, number: int) -> None:
        system, token = systems[number % len(systems)]
        is_repeated = number % REPEAT_EVERY == 0
        script = Script(connection, token)
        answer = script.send(MESSAGES, message(prefix, number), is_repeated=is_repeated)
        accepted_messages.append(Accepted(str(answer["id"]), system, event_type(number)))

    numbers = itertools.takewhile(lambda number: number < count or has_more(), itertools.count())
    spread(base_url, publish, numbers, connections)
    return accepted_messages


def publish_batches(base_url: str, tokens: Mapping[str, str], count: int) -> list[Accepted]:
    """Publish `count` messages, a hundred a request, each with a verdict of its own."""
    systems, accepted_messages = list(tokens), list[Accepted]()
    prefix = _prefix()

    def batches() -> Iterator[tuple[str, list[int]]]:
        for place, system in enumerate(systems):
            for numbers in chunks(range(place, count, len(systems)), BATCH):
                yield system, list(numbers)

    def publish(connection: Connection, batch: tuple[str, list[int]]) -> None:
        system, numbers = batch
        messages = [message(prefix, number) for number in numbers]
        script = Script(connection, tokens[system])
        verdicts = script.send_many(f"{MESSAGES}/batch", "messages", messages)
        for number, verdict in zip(numbers, verdicts, strict=True):
            accepted_messages.append(Accepted(str(verdict["id"]), system, event_type(number)))

    spread(base_url, publish, batches())
    return accepted_messages


def trickle(base_url: str, tokens: Mapping[str, str]) -> Callable[[int], None]:
    """A message now and then, the systems in turn, for one thread; a repeat of a number is the same
    message."""
    connection, prefix = Connection(base_url), _prefix()
    scripts = [Script(connection, token) for token in tokens.values()]

    def publish(number: int) -> None:
        scripts[number % len(scripts)].send(MESSAGES, message(prefix, number))

    return publish


def _prefix() -> str:
    return f"demo-{uuid.uuid4().hex[:12]}"
